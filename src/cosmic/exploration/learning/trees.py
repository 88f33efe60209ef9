"""An ensemble of gradient-boosted trees: its mean is the prediction, its spread the uncertainty."""

from __future__ import annotations

from typing import Any

import numpy as np

from cosmic.exploration.agent import Flags, Floats
from cosmic.exploration.extras import needs
from cosmic.exploration.learning.quality import Quality, quality

RIDGE = 1e-3
"""Ridge penalty of a linear trend, for collinear features."""


class LinearTrend:
    """A ridge regression: it extrapolates, which trees cannot."""

    def __init__(self, features: Floats, values: Floats) -> None:
        self._middle, spread = features.mean(axis=0), features.std(axis=0)
        self._spread = np.where(spread > 0, spread, 1.0)
        scaled = (features - self._middle) / self._spread
        self._level = float(values.mean())
        held = scaled.T @ scaled + RIDGE * len(values) * np.eye(features.shape[1])
        self._slopes = np.linalg.solve(held, scaled.T @ (values - self._level))

    def at(self, features: Floats) -> Floats:
        """Return the predicted values."""
        return np.asarray((features - self._middle) / self._spread @ self._slopes + self._level)


class Ensemble:
    """Boosted regressors, each on its own bootstrap sample, and a classifier of feasibility.

    The last *described* features are closed forms of the target: a linear trend in them is fitted first, and the trees
    learn its residual. So a few points suffice, and the prediction can be better than any known value.

    A member does not see the points that its sample leaves out, about a third: what it predicts for them is what the
    model knows of points that it did not learn from, and costs no further evaluation.
    """

    def __init__(self, who: str, members: int, rng: np.random.Generator, described: int = 0) -> None:
        self._trees = needs("sklearn.ensemble", "search", who)
        self._limits = needs("threadpoolctl", "search", who).threadpool_limits
        self._rng = rng
        self._count = members
        self._described = described
        self._members: list[tuple[Any, LinearTrend | None]] = []
        self._classifier: Any = None
        self.quality: Quality | None = None
        """How good it is on held-out points; None where that is not known."""

    def learn(self, features: Floats, values: Floats, feasible: Flags) -> None:
        """Fit the *values* of the feasible points, and feasibility."""
        with self._limits(1):  # on little data many threads mostly wait for each other
            self._classifier = None
            if 0 < feasible.sum() < len(feasible):
                classifier = self._trees.HistGradientBoostingClassifier(**self._shape())
                self._classifier = classifier.fit(features, feasible)
            self._members, self.quality = [], None
            known, wanted = features[feasible], values[feasible]
            if len(known) > 1:
                self._fit(known, wanted)

    def _fit(self, known: Floats, wanted: Floats) -> None:
        """Fit each member to a bootstrap sample, and judge them by what their samples leave out."""
        sums, times = np.zeros(len(known)), np.zeros(len(known))
        for _ in range(self._count):
            drawn = self._rng.integers(len(known), size=len(known))
            model = self._trees.HistGradientBoostingRegressor(**self._shape())
            trend = LinearTrend(self._last(known[drawn]), wanted[drawn]) if self._described else None
            rest = wanted if trend is None else wanted - trend.at(self._last(known))
            member = (model.fit(known[drawn], rest[drawn]), trend)
            self._members.append(member)
            left = np.setdiff1d(np.arange(len(known)), drawn)
            if len(left):
                sums[left] += self._by(member, known[left])
                times[left] += 1
        seen = times > 0
        self.quality = quality(sums[seen] / times[seen], wanted[seen])

    def _last(self, features: Floats) -> Floats:
        return features[:, -self._described :]

    def _by(self, member: tuple[Any, LinearTrend | None], features: Floats) -> Floats:
        """Return what one member predicts."""
        model, trend = member
        found = model.predict(features)
        return np.asarray(found if trend is None else found + trend.at(self._last(features)))

    def _shape(self) -> dict[str, Any]:
        """Return hyper-parameters for little data: small trees with few points in a leaf."""
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
        """Return the mean and the standard deviation of the members' predictions; 0 and 1 before any is fitted."""
        if not self._members:
            return np.zeros(len(features)), np.ones(len(features))
        with self._limits(1):
            found = np.stack([self._by(member, features) for member in self._members])
        return found.mean(axis=0), found.std(axis=0)

    def feasibility(self, features: Floats) -> Floats:
        """Return the probability that each point is feasible; 1 where all known points are alike."""
        if self._classifier is None:
            return np.ones(len(features))
        with self._limits(1):
            return np.asarray(self._classifier.predict_proba(features)[:, 1])
