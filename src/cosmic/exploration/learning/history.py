"""What a model learns from: every point that was told of, once, and its losses made fit to be learnt."""

from __future__ import annotations

from collections.abc import Hashable
from statistics import NormalDist

import numpy as np

from cosmic.exploration.agent import Flags, Floats, Outcomes
from cosmic.psa.diagram import Indices
from cosmic.psa.space import ParameterSet

NORMAL = NormalDist()
CHEBYSHEV = 0.05
"""How much the sum of all objectives counts besides the worst of them, so that no objective is ever free."""


class History:
    """All that was told, each point once, in the order in which it came; and which proposals are still out."""

    def __init__(self, space: ParameterSet, objectives: int) -> None:
        self.space = space
        self.rows: Indices = np.empty((0, len(space.parameters)), dtype=np.intp)
        self.losses: Floats = np.empty((0, objectives))
        self.excess: Floats = np.empty(0)
        self.waiting: dict[Hashable, Indices] = {}
        """Points that were proposed and not yet told of."""
        self._places: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def feasible(self) -> Flags:
        """Which of the points can run."""
        return np.asarray(self.excess == 0)

    def add(self, outcomes: Outcomes) -> None:
        """Remember *outcomes*; of a point that is known already the first is kept."""
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
        """Remember that *rows* were proposed."""
        self.waiting.update(zip(self.space.keys(rows), rows, strict=True))

    def find(self, key: Hashable) -> int | None:
        """Return the place of the point with this key, if it was told of."""
        return self._places.get(key)

    def unknown(self, rows: Indices) -> Indices:
        """Return those of *rows* that were neither told of nor proposed, each once."""
        fresh: dict[Hashable, int] = {}
        for place, key in enumerate(self.space.keys(rows)):
            if key not in self._places and key not in self.waiting:
                fresh.setdefault(key, place)
        return rows[list(fresh.values())]


def targets(losses: Floats, rng: np.random.Generator) -> Floats:
    """Return one number per point to be made small: the normal quantile of its rank, whatever the losses are.

    Ranks know no units and no outliers, and tell the best apart however close they are. Several objectives are joined
    by the weights of a random direction (the augmented Chebyshev norm of ParEGO: Knowles, IEEE Trans. Evolutionary
    Computation 10(1), 2006), another at each call, so that all of the front is looked for in turn.

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
    """Return for each value which share of all is below it; equal ones count half."""
    ordered = np.sort(values)
    twice = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    return np.asarray(twice / (2 * len(values)))
