"""What agents remember of the points that were tried, and new points beside them.

`Novelty` replaces known points by new ones: an evaluation spent on a known design is lost. `History` is the training
data of a model: every known point once, and targets made from the losses. `Prospects` is what model-based agents share:
the history, candidates to rank, and new proposals. `Elite` holds the best points so far, which agents select as
parents, reinforce and restart from. `Weights` has a number for each value of each parameter, and draws points by them.

Moves of search agents from valid points to valid points: neighbours, mutation, crossover, many points at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from statistics import NormalDist

import numpy as np

from cosmic.search.agent import Flags, Floats, Outcomes, Task
from cosmic.search.objectives import pareto_order
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.trials import PointIndex

# ---- Moves of search agents from valid points to valid points: neighbours, mutation, crossover, many points at a time


class Moves:
    """Neighbours, mutation and crossover within one parameter set.

    A move changes one parameter, and then only the others that the constraints require: in a set where the
    dimensions must multiply to 1,024 NPUs, doubling one halves another.
    """

    def __init__(self, space: ParameterSet) -> None:
        self.space = space
        # A point has a column for each parameter. Parameters that constraints tie together form a component with one
        # decision diagram; a column is a level of it.
        self._component_levels = {
            column: (component_index, level)
            for component_index, component in enumerate(space.components)
            for level, column in enumerate(component.columns)
        }
        self.open = np.array(
            [
                column
                for column, (component_index, level) in self._component_levels.items()
                if len(self._supported(component_index, level)) > 1
            ],
            dtype=np.intp,
        )
        """Columns that can change: more than one of their values occurs in valid points."""
        self.open.sort()
        self._tied = [(component, self._levels(component.columns)) for component in space.tied]
        self._ordered = np.array([parameter.ordered for parameter in space.parameters], dtype=bool)
        self._value_counts = np.array(
            [len(values) for values in map(self._values, range(len(space.parameters)))], dtype=np.intp
        )
        widest = (len(space.parameters), max(space.sizes, default=0))
        self._value_at_rank = np.zeros(widest, dtype=np.intp)  # per column: the values of valid points, in order
        self._rank_of_value = np.zeros(widest, dtype=np.intp)  # per column and value: how many smaller ones occur
        for column, size in enumerate(space.sizes):
            occurring = self._values(column)
            self._value_at_rank[column, : len(occurring)] = occurring
            self._rank_of_value[column, :size] = np.searchsorted(occurring, np.arange(size))

    def _levels(self, columns: tuple[int, ...]) -> Indices:
        """Return for each column of a point its position in *columns*, or -1."""
        levels = np.full(len(self.space.parameters), -1, dtype=np.intp)
        levels[list(columns)] = np.arange(len(columns))
        return levels

    def _values(self, column: int) -> Indices:
        """Return the values of a column that occur in valid points, ascending."""
        return self._supported(*self._component_levels[column])

    def _supported(self, component_index: int, level: int) -> Indices:
        return self.space.components[component_index].diagram.supported[level]

    def neighbour(self, rows: Indices, rng: np.random.Generator, *, near: bool | Flags = False) -> Indices:
        """Return for each row a random other point: one parameter changed, and the others that this requires.

        Where *near* is true, a number moves to the next larger or smaller value, and a name to any other.
        """
        if not len(self.open):
            return rows.copy()
        columns = self.open[rng.integers(len(self.open), size=len(rows))]
        current = rows[np.arange(len(rows)), columns]
        return self._set(rows, columns, self._draw_other(columns, current, rng.random(len(rows)), near))

    def _draw_other(self, columns: Indices, current: Indices, chance: Floats, near: bool | Flags) -> Indices:
        """Return for each current value of a column another one that occurs in valid points.

        *chance* is a random number in [0, 1) for each. Values are handled by rank, their position among those that
        occur: any other rank is as likely; where *near* is true and values are ordered, one up or down.
        """
        count = self._value_counts[columns]
        rank = np.minimum(self._rank_of_value[columns, current], count - 1)
        any_other_rank = (rank + 1 + (chance * (count - 1)).astype(np.intp)) % count
        step = np.where(chance < 0.5, -1, 1)
        step = np.where(rank + step < 0, 1, np.where(rank + step >= count, -1, step))  # inwards at the ends
        new_rank = np.where(self._ordered[columns] & near, rank + step, any_other_rank)
        return np.asarray(self._value_at_rank[columns, new_rank])

    def _set(self, rows: Indices, columns: Indices, values: Indices) -> Indices:
        """Return rows with one column each set to a value, and the columns that constraints tie to it adjusted."""
        moved = rows.copy()
        moved[np.arange(len(rows)), columns] = values
        for component, levels in self._tied:
            changed_levels = levels[columns]
            affected = np.flatnonzero(changed_levels >= 0)
            if len(affected):
                cells = (affected[:, None], component.columns)
                moved[cells] = component.diagram.keeping(rows[cells], changed_levels[affected], values[affected])
        return moved

    def mutate(self, rows: Indices, rng: np.random.Generator, rate: float) -> Indices:
        """Return each row with a share *rate* of its parameters changed on average, one after the other."""
        return self.change(rows, rng.binomial(len(self.open), rate, size=len(rows)), rng)

    def change(self, rows: Indices, times: Indices, rng: np.random.Generator, near: float = 0.0) -> Indices:
        """Return each row after the number of single changes in *times*; a share *near* of them moves one step only."""
        moved = rows.copy()
        for turn in range(int(times.max(initial=0))):
            changing = np.flatnonzero(times > turn)
            is_near = rng.random(len(changing)) < near if near else False
            moved[changing] = self.neighbour(moved[changing], rng, near=is_near)
        return moved

    def crossover(self, mothers: Indices, fathers: Indices, rng: np.random.Generator) -> Indices:
        """Return children that take each parameter from a random parent, repaired where they are invalid."""
        from_mother = rng.random(mothers.shape) < 0.5
        return self.space.repair(np.where(from_mother, mothers, fathers))

    def neighbourhood(self, row: Indices) -> Indices:
        """Return all points one move away from *row*, each once."""
        moves = [
            (column, value)
            for column in self.open.tolist()
            for value in self._supported(*self._component_levels[column]).tolist()
            if value != row[column]
        ]
        if not moves:
            return np.empty((0, len(row)), dtype=np.intp)
        columns, values = (np.array(part, dtype=np.intp) for part in zip(*moves, strict=True))
        return np.unique(self._set(np.tile(row, (len(moves), 1)), columns, values), axis=0)


# ---- The training data of a model: every known point once, and targets made from the losses

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


# ---- Replaces known points by new ones: an evaluation spent on a known design is lost

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

    def known(self, rows: Indices) -> Flags:
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


# ---- What model-based agents share: the history, candidates to rank, and new proposals

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


# ---- The best points so far: agents select parents from them, reinforce them, and restart from them


def generation_size(trials: int) -> int:
    """Return how many points a generation has: fewer for few trials, so that there are enough generations.

    >>> generation_size(300), generation_size(20_000)
    (15, 285)
    """
    return max(4, round(math.pow(trials, 0.7) / 3.6))


class Elite:
    """The best *size* points so far, best first, each once."""

    def __init__(self, task: Task, size: int) -> None:
        self.space = task.space
        self.size = size
        width = len(task.space.parameters)
        self.outcomes = Outcomes(np.empty((0, width), dtype=np.intp), np.empty((0, task.objectives)), np.empty(0))
        self.outcomes_told = 0
        """How many outcomes were added."""

    def __len__(self) -> int:
        return len(self.outcomes)

    def add(self, outcomes: Outcomes) -> None:
        """Add *outcomes*, and keep the best *size* points."""
        self.outcomes_told += len(outcomes)
        joined = join_outcomes([self.outcomes, outcomes])
        # A point told twice keeps its latest outcome.
        last_index = {key: index for index, key in enumerate(self.space.keys(joined.rows))}
        once = np.fromiter(last_index.values(), dtype=np.intp)
        best = once[pareto_order(joined.losses[once], joined.excess[once])][: self.size]
        self.outcomes = Outcomes(joined.rows[best], joined.losses[best], joined.excess[best])


def join_outcomes(parts: Sequence[Outcomes]) -> Outcomes:
    """Return several outcomes as one, in their order."""
    return Outcomes(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.losses for part in parts]),
        np.concatenate([part.excess for part in parts]),
    )


# ---- A weight for each value of each parameter, and points drawn by these weights


class Weights:
    """Arithmetic on flat arrays with a number for each value of each parameter, parameter after parameter."""

    def __init__(self, space: ParameterSet) -> None:
        self.space = space
        self.size = sum(space.sizes)
        """The length of such an array."""
        self._starts = np.concatenate(([0], np.cumsum(space.sizes)[:-1])).astype(np.intp)[: len(space.sizes)]
        self._owner = np.repeat(np.arange(len(space.sizes)), space.sizes)
        widths = np.array(space.sizes, dtype=np.intp)[space.free]
        value = np.arange(widths.max(initial=1))
        self._last_values = widths - 1
        self._padding = value[None, :] > self._last_values[:, None]  # columns of free parameters, padded to the widest
        self._positions = self._starts[space.free][:, None] + np.minimum(value[None, :], self._last_values[:, None])

    def sums(self, numbers: Floats) -> Floats:
        """Return for each value the sum of *numbers* over all values of its parameter."""
        return np.asarray(np.bincount(self._owner, weights=numbers, minlength=len(self._starts))[self._owner])

    def shares(self, numbers: Floats) -> Floats:
        """Return *numbers*, normalised to a sum of 1 for each parameter."""
        return np.asarray(numbers / self.sums(numbers))

    def largest(self, numbers: Floats) -> Floats:
        """Return for each value the largest of *numbers* among all values of its parameter."""
        if not self.size:
            return numbers
        return np.asarray(np.maximum.reduceat(numbers, self._starts)[self._owner])

    def totals(self, rows: Indices, worth: Floats) -> Floats:
        """Return for each value the sum of *worth* over the rows that have it."""
        positions = (rows + self._starts).reshape(-1)
        return np.bincount(positions, weights=np.repeat(worth, rows.shape[1]), minlength=self.size).astype(float)

    def walk(self, numbers: Floats, n: int, rng: np.random.Generator) -> Indices:
        """Return *n* valid points, drawn in proportion to the product of their values' *numbers*, all positive."""
        rows = np.empty((n, len(self._starts)), dtype=np.intp)
        free = self.space.free
        if len(free):
            shares = np.where(self._padding, 0.0, self.shares(numbers)[self._positions]).cumsum(axis=1)
            chance = rng.random((n, len(free), 1)) * shares[:, -1:]  # the sum may round to just off 1
            rows[:, free] = np.minimum((chance >= shares).sum(axis=2), self._last_values)
        parts = np.split(numbers, self._starts[1:])
        for component in self.space.tied:
            weights = [parts[column] for column in component.columns]
            rows[:, component.columns] = component.diagram.walk(weights, n, rng)
        return rows
