"""Gradient-boosted trees that agree or do not: an ensemble predicts a number and how sure it is of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from cosmic.exploration.agent import Flags, Floats
from cosmic.exploration.extras import needs

RIDGE = 1e-3
"""How strongly the slopes of a trend are held back, against features that say the same."""


class Trend:
    """A straight line through some features: trees hold what they have seen, and never say less or more."""

    def __init__(self, features: Floats, values: Floats) -> None:
        self._middle, spread = features.mean(axis=0), features.std(axis=0)
        self._spread = np.where(spread > 0, spread, 1.0)
        scaled = (features - self._middle) / self._spread
        self._level = float(values.mean())
        held = scaled.T @ scaled + RIDGE * len(values) * np.eye(features.shape[1])
        self._slopes = np.linalg.solve(held, scaled.T @ (values - self._level))

    def at(self, features: Floats) -> Floats:
        """Return the value on the line."""
        return np.asarray((features - self._middle) / self._spread @ self._slopes + self._level)


class Ensemble:
    """Several boosted regressors, each on its own resampling of the points, and a classifier of what can run.

    The last *described* features are closed forms of what is to be learnt: a trend in them comes first, and the trees
    learn what it gets wrong. So a few points suffice, and what is better than all that was seen can be told.
    """

    def __init__(self, who: str, members: int, rng: np.random.Generator, described: int = 0) -> None:
        self._trees = needs("sklearn.ensemble", "search", who)
        self._limits = needs("threadpoolctl", "search", who).threadpool_limits
        self._rng = rng
        self._count = members
        self._described = described
        self._trend: Trend | None = None
        self._members: list[Any] = []
        self._judge: Any = None

    def learn(self, features: Floats, values: Floats, feasible: Flags) -> None:
        """Learn the *values* of the feasible points, and which are feasible."""
        with self._limits(1):  # many threads on little data spend their time waiting for each other
            self._judge = None
            if 0 < feasible.sum() < len(feasible):
                judge = self._trees.HistGradientBoostingClassifier(**self._shape())
                self._judge = judge.fit(features, feasible)
            known, wanted = features[feasible], values[feasible]
            self._members = []
            if self._described and len(known) > 1:
                self._trend = Trend(known[:, -self._described :], wanted)
                wanted = wanted - self._trend.at(known[:, -self._described :])
            for _ in range(self._count if len(known) > 1 else 0):
                drawn = self._rng.integers(len(known), size=len(known))
                model = self._trees.HistGradientBoostingRegressor(**self._shape())
                self._members.append(model.fit(known[drawn], wanted[drawn]))

    def _shape(self) -> dict[str, Any]:
        """Small trees with few points in a leaf: there is little data, and steps matter more than slopes."""
        return {
            "max_iter": 60,
            "learning_rate": 0.15,
            "max_leaf_nodes": 8,
            "min_samples_leaf": 3,
            "max_features": 0.5,
            "early_stopping": False,
            "random_state": int(self._rng.integers(2**31)),
        }

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """Return the mean and the spread of what the members predict; nothing and all alike before any learnt."""
        if not self._members:
            return np.zeros(len(features)), np.ones(len(features))
        with self._limits(1):
            found = np.stack([member.predict(features) for member in self._members])
        trend = 0.0 if self._trend is None else self._trend.at(features[:, -self._described :])
        return found.mean(axis=0) + trend, found.std(axis=0)

    def chance(self, features: Floats) -> Floats:
        """Return how likely each point can run; 1 where no difference was ever seen."""
        if self._judge is None:
            return np.ones(len(features))
        with self._limits(1):
            return np.asarray(self._judge.predict_proba(features)[:, 1])
