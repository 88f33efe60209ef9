"""The training data of a model: every known point once, and targets made from the losses."""

from __future__ import annotations

from collections.abc import Hashable
from statistics import NormalDist

import numpy as np

from cosmic.exploration.agent import Flags, Floats, Outcomes
from cosmic.psa.diagram import Indices
from cosmic.psa.space import ParameterSet

NORMAL = NormalDist()
CHEBYSHEV = 0.05
"""Weight of the sum of all objectives besides their maximum (the augmented Chebyshev norm)."""


class History:
    """All known points, each once, in the order in which they came; and which proposals are pending."""

    def __init__(self, space: ParameterSet, objectives: int) -> None:
        self.space = space
        self.rows: Indices = np.empty((0, len(space.parameters)), dtype=np.intp)
        self.losses: Floats = np.empty((0, objectives))
        self.excess: Floats = np.empty(0)
        self.waiting: dict[Hashable, Indices] = {}
        """Points that were proposed and have no outcome yet."""
        self._places: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def feasible(self) -> Flags:
        """Which of the points can run."""
        return np.asarray(self.excess == 0)

    def add(self, outcomes: Outcomes) -> None:
        """Add *outcomes*; a known point keeps its first."""
        new: list[int] = []
        for place, key in enumerate(self.space.keys(outcomes.rows)):
            self.waiting.pop(key, None)
            if key not in self._places:
                self._places[key] = len(self) + len(new)
                new.append(place)
        self.rows = np.concatenate([self.rows, outcomes.rows[new]])
        self.losses = np.concatenate([self.losses, outcomes.losses[new]])
        self.excess = np.concatenate([self.excess, outcomes.excess[new]])

    def proposed(self, rows: Indices) -> None:
        """Note that *rows* are pending."""
        self.waiting.update(zip(self.space.keys(rows), rows, strict=True))

    def find(self, key: Hashable) -> int | None:
        """Return the place of the point with this key; None if it is not known."""
        return self._places.get(key)

    def unknown(self, rows: Indices) -> Indices:
        """Return those of *rows* that are neither known nor pending, each once."""
        fresh: dict[Hashable, int] = {}
        for place, key in enumerate(self.space.keys(rows)):
            if key not in self._places and key not in self.waiting:
                fresh.setdefault(key, place)
        return rows[list(fresh.values())]


def targets(losses: Floats, rng: np.random.Generator) -> Floats:
    """Return one target per point to minimise: the normal quantile of its rank.

    Ranks have no units and no outliers, and separate the best however close they are. Several objectives are scalarised
    with random weights (the augmented Chebyshev norm of ParEGO: Knowles, IEEE Trans. Evolutionary Computation 10(1),
    2006), new ones at each call, so that the search covers the whole front.

    >>> targets(np.array([[7.0], [-1e9], [1.0]]), np.random.default_rng(0)).round(3).tolist()
    [0.967, -0.967, 0.0]
    """
    shares = np.stack([_shares(column) for column in losses.T], axis=1)
    if shares.shape[1] > 1:
        weighted = shares * rng.dirichlet(np.ones(shares.shape[1]))
        joined = _shares(weighted.max(axis=1) + CHEBYSHEV * weighted.sum(axis=1))
    else:
        joined = shares[:, 0]
    return np.array([NORMAL.inv_cdf(share) for share in joined.tolist()])


def _shares(values: Floats) -> Floats:
    """Return for each value the share of all values below it; equal ones count half."""
    ordered = np.sort(values)
    twice = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    return np.asarray(twice / (2 * len(values)))
