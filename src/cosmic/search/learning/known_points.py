"""The points that a search knows, and new ones beside them.

`Novelty` replaces known points by new ones: an evaluation spent on a known design is lost. `History` is the training
data of a model: every known point once, and targets made from the losses. `Prospects` is what model-based agents share:
the history, candidates to rank, and new proposals.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from statistics import NormalDist

import numpy as np

from cosmic.search.agent import Flags, Floats, Outcomes, Task
from cosmic.search.space.diagram import Flags as diagram_Flags
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.point_moves import Moves
from cosmic.search.trials import PointIndex

# --------------------------------------------------------------------------------------
# The training data of a model: every known point once, and targets made from the losses
# --------------------------------------------------------------------------------------

NORMAL = NormalDist()
CHEBYSHEV_WEIGHT = 0.05
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
        self._index: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def feasible(self) -> Flags:
        """Which of the points can run."""
        return np.asarray(self.excess == 0)

    def add(self, outcomes: Outcomes) -> None:
        """Add *outcomes*; a known point keeps its first."""
        new: list[int] = []
        for index, key in enumerate(self.space.keys(outcomes.rows)):
            self.waiting.pop(key, None)
            if key not in self._index:
                self._index[key] = len(self) + len(new)
                new.append(index)
        self.rows = np.concatenate([self.rows, outcomes.rows[new]])
        self.losses = np.concatenate([self.losses, outcomes.losses[new]])
        self.excess = np.concatenate([self.excess, outcomes.excess[new]])

    def proposed(self, rows: Indices) -> None:
        """Note that *rows* are pending."""
        self.waiting.update(zip(self.space.keys(rows), rows, strict=True))

    def find(self, key: Hashable) -> int | None:
        """Return the place of the point with this key; None if it is not known."""
        return self._index.get(key)

    def unknown(self, rows: Indices) -> Indices:
        """Return those of *rows* that are neither known nor pending, each once."""
        fresh: dict[Hashable, int] = {}
        for index, key in enumerate(self.space.keys(rows)):
            if key not in self._index and key not in self.waiting:
                fresh.setdefault(key, index)
        return rows[list(fresh.values())]


def make_targets(losses: Floats, rng: np.random.Generator) -> Floats:
    """Return one target per point to minimise: the normal quantile of its rank.

    Ranks have no units and no outliers, and separate the best however close they are. Several objectives are scalarised
    with random weights (the augmented Chebyshev norm of ParEGO: Knowles, IEEE Trans. Evolutionary Computation 10(1),
    2006), new ones at each call, so that the search covers the whole front.

    >>> make_targets(np.array([[7.0], [-1e9], [1.0]]), np.random.default_rng(0)).round(3).tolist()
    [0.967, -0.967, 0.0]
    """
    shares = np.stack([_rank_shares(column) for column in losses.T], axis=1)
    if shares.shape[1] > 1:
        weighted = shares * rng.dirichlet(np.ones(shares.shape[1]))
        joined = _rank_shares(weighted.max(axis=1) + CHEBYSHEV_WEIGHT * weighted.sum(axis=1))
    else:
        joined = shares[:, 0]
    return np.array([NORMAL.inv_cdf(share) for share in joined.tolist()])


def _rank_shares(values: Floats) -> Floats:
    """Return for each value the share of all values below it; equal ones count half."""
    ordered = np.sort(values)
    twice = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    return np.asarray(twice / (2 * len(values)))


# --------------------------------------------------------------------------------------
# Replaces known points by new ones: an evaluation spent on a known design is lost
# --------------------------------------------------------------------------------------

MAX_LISTED = 100_000
"""Sets up to this size are enumerated when sampling finds nothing new in them."""


class Novelty:
    """Remembers which points are known, and replaces them by others."""

    def __init__(self, space: ParameterSet, rng: np.random.Generator, moves: Moves | None = None) -> None:
        self.space = space
        self.moves = moves or Moves(space)
        self._rng = rng
        self._seen = PointIndex(space)
        self._listed: Indices | None = None

    def note(self, rows: Indices) -> None:
        """Mark *rows* as known."""
        self._seen.claim(rows)

    def known(self, rows: Indices) -> diagram_Flags:
        """Return which of *rows* are known."""
        return np.asarray(self._seen.find(rows) >= 0)

    def fresh(self, rows: Indices, tries: int = 3) -> Indices:
        """Return *rows* with known and repeated ones replaced by a neighbour, or else by a random point.

        A small set runs out of new points only once all of it is known.
        """
        replaced = rows.copy()
        stale = self._claim(replaced, np.arange(len(replaced)))
        for attempt in range(2 * tries):
            if not len(stale):
                return replaced
            near = attempt < tries
            replaced[stale] = (
                self.moves.neighbour(replaced[stale], self._rng) if near else self.space.sample(len(stale), self._rng)
            )
            stale = self._claim(replaced, stale)
        if self.space.valid <= MAX_LISTED:
            self._fill(replaced, stale)
        return replaced

    def _claim(self, rows: Indices, indices: Indices) -> Indices:
        """Mark the points at *indices* as known; return the places of those that were known already."""
        return np.asarray(indices[~self._seen.claim(rows[indices])])

    def _fill(self, points: Indices, stale: Indices) -> None:
        """Fill the stale places with the unknown points of a small set, in random order."""
        if self._listed is None:
            self._listed = self._rng.permutation(np.array(list(self.space.enumerate())))
        self._listed = self._listed[~self.known(self._listed)]
        unknown_points = self._listed[: len(stale)]
        points[stale[: len(unknown_points)]] = unknown_points
        self.note(unknown_points)


# --------------------------------------------------------------------------------------
# What model-based agents share: the history, candidates to rank, and new proposals
# --------------------------------------------------------------------------------------

MAX_TRIES = 50
"""How often points are drawn again if too few of them fit."""


class Prospects:
    """Proposes candidates that a model finds promising, once enough points are known."""

    def __init__(self, task: Task, rng: np.random.Generator, *, candidates: int, start: int) -> None:
        self.space, self.rng = task.space, rng
        self.moves = Moves(task.space)
        self.history = History(task.space, task.objectives)
        self._novelty = Novelty(task.space, rng, self.moves)
        self._candidates, self._start = candidates, start
        self._fits = task.fits
        self._everything = np.array(list(task.space.enumerate())) if task.space.valid <= candidates else None

    @property
    def listed(self) -> bool:
        """Whether every point of the set is a candidate."""
        return self._everything is not None

    def tell(self, outcomes: Outcomes) -> None:
        """Remember the outcomes of some points."""
        self.history.add(outcomes)
        self._novelty.note(outcomes.rows)

    def ask(self, n: int, promising: Callable[[int], Indices], least: int | None = None) -> Indices:
        """Return *n* new points: *promising* ones first, random ones for the rest.

        Nothing is promising before *least* points are known, by default as many as were said.
        """
        rows = self._sample(n)
        if n and len(self.history) >= (self._start if least is None else least):
            chosen = promising(n)
            rows[: len(chosen)] = chosen
        rows = self._novelty.fresh(rows)
        self.history.proposed(rows)
        return rows

    def losses(self) -> Floats:
        """Return one target to minimise for each known point; infinite for infeasible ones."""
        feasible = self.history.feasible
        targets = np.full(len(self.history), np.inf)
        if feasible.any():
            targets[feasible] = make_targets(self.history.losses[feasible], self.rng)
        return targets

    def pool(self, losses: Floats, share: float, bred: Callable[[Indices, Indices], list[Indices]]) -> Indices:
        """Return new candidates: all of a small set, else random points and what *bred* makes of pairs of good points.

        Good points are drawn from the best *share* of the feasible ones, better ones more often.
        """
        if self._everything is not None:
            return self._fitting(self.history.unknown(self._everything))
        third = self._candidates // 3
        parts = [self._sample(third)]
        best = self.history.rows[np.argsort(losses, kind="stable")[: np.isfinite(losses).sum()]]
        if len(best):
            parents = best[: max(5, int(share * len(best)))]
            parts += bred(*(parents[self._favouring(len(parents), third)] for _ in range(2)))
        return self._fitting(self.history.unknown(np.concatenate(parts)))

    def broad(self, times: int) -> Indices:
        """Return new candidates of all the set: all of a small one, else so many *times* the usual number."""
        if self._everything is not None:
            return self._fitting(self.history.unknown(self._everything))
        return self._fitting(self.history.unknown(self.space.sample(times * self._candidates, self.rng)))

    def _sample(self, n: int) -> Indices:
        """Return *n* random points, of which as many fit as a few draws find."""
        rows = self.space.sample(n, self.rng)
        if self._fits is None or not n:
            return rows
        for _ in range(MAX_TRIES):
            misfits = np.flatnonzero(~self._fits(rows))
            if not len(misfits):
                break
            rows[misfits] = self.space.sample(len(misfits), self.rng)
        return rows

    def _fitting(self, rows: Indices) -> Indices:
        """Return those of *rows* that fit; all of them where none does, as then it matters by how much they do not."""
        if self._fits is None or not len(rows):
            return rows
        fitting = rows[self._fits(rows)]
        return fitting if len(fitting) else rows

    def _favouring(self, size: int, n: int) -> Indices:
        """Return *n* places below *size*, small ones more often."""
        return np.asarray((size * self.rng.random(n) ** 2).astype(np.intp))
