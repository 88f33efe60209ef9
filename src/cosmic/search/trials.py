"""Trials: every design that a search proposed, with its results, and where each point is among them.

Trials are kept in columns that grow: a batch is added without touching those before it, and all of them are one value.

Where points are is a dictionary while they are few, then a hash table of numbers. An entry of a dictionary takes more
than a hundred bytes, one of the table thirty, and a search of a million trials keeps several. The table is looked up
for many points at a time; for few of them, a dictionary is quicker.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.search.agent import Flags, Floats
from cosmic.search.objectives import hypervolume, losses, pareto_front
from cosmic.search.problem import METRICS, Problem, Reasons, Results
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameter_set import ParameterSet

# ---- Trials in columns that grow: a batch is added without touching those before it, and all of them are one value

MIN_ROOM = 256
"""Rows that a column has room for at first."""


def index_type(most: int) -> np.dtype[Any]:
    """Return the smallest type of unsigned whole numbers that holds 0 to *most*.

    >>> [index_type(most).name for most in (0, 255, 256, 70_000)]
    ['uint8', 'uint8', 'uint16', 'uint32']
    """
    return np.dtype("u1" if most < 2**8 else "u2" if most < 2**16 else "u4")


class TrialColumn:
    """One column."""

    __slots__ = ("_room", "_used")

    def __init__(self, start: npt.NDArray[Any]) -> None:
        self._room, self._used = start, len(start)

    def extend(self, values: npt.NDArray[Any], room: int = MIN_ROOM) -> None:
        """Add values at the end; arrays that were given out before stay as they are.

        A column that has to grow gets *room* for so many values at least.
        """
        end = self._used + len(values)
        kind = np.promote_types(self._room.dtype, values.dtype)
        if end > len(self._room) or kind != self._room.dtype:
            # Growing by half makes adding a value take constant time on average.
            grown = np.empty((max(room, end, 3 * self._used // 2), *self._room.shape[1:]), dtype=kind)
            grown[: self._used] = self._room[: self._used]
            self._room = grown
        self._room[self._used : end] = values
        self._used = end

    @property
    def values(self) -> npt.NDArray[Any]:
        """All values so far."""
        return self._room[: self._used]


class Columns:
    """Points and their results, column by column.

    A metric that no point has takes no room: its column is one NaN, seen many times.
    """

    def __init__(
        self,
        points: Indices,
        results: Results | None = None,
        room: int = MIN_ROOM,
        metrics: Sequence[str] = METRICS,
    ) -> None:
        """Begin with trials, which are not copied; without *results*, with none. There will be *room* for so many."""
        self._min_room = room
        initial = Results.failed(0, "", metrics) if results is None else results
        self._names = tuple(initial.columns)
        coded = initial.coded
        self._points = TrialColumn(points if results is not None else points[:0])
        self._excess, self._counted = TrialColumn(initial.excess), TrialColumn(initial.counted)
        self._texts: dict[str, int] = {text: code for code, text in enumerate(coded.texts) if len(coded)}
        self._codes = TrialColumn(coded.codes)
        self._metrics = {name: TrialColumn(column) for name, column in initial.columns.items() if _has_numbers(column)}

    def __len__(self) -> int:
        return len(self.points)

    @property
    def points(self) -> Indices:
        """Every point, in the smallest type of whole numbers."""
        return self._points.values

    def extend(self, points: npt.NDArray[Any], results: Results) -> None:
        """Add trials at the end."""
        before, room = len(self), self._min_room
        self._points.extend(points, room)
        self._excess.extend(results.excess, room)
        self._counted.extend(results.counted, room)
        self._codes.extend(results.coded.codes_in(self._texts), room)
        for name in self._names:
            column, stored = results.columns[name], self._metrics.get(name)
            if stored is None and _has_numbers(column):
                stored = self._metrics[name] = TrialColumn(np.full(before, np.nan))
            if stored is not None:
                stored.extend(column, room)

    @property
    def results(self) -> Results:
        """All results; nothing is copied."""
        metrics = self._metrics
        absent: Floats = np.broadcast_to(np.nan, (len(self),))
        columns = {name: metrics[name].values if name in metrics else absent for name in self._names}
        reasons = Reasons(tuple(self._texts), self._codes.values)
        return Results(columns, self._excess.values, reasons, self._counted.values)


def _has_numbers(column: Floats) -> bool:
    """Return whether some value is a number; one that has been seen many times is looked at once."""
    seen = column[:1] if column.strides == (0,) else column
    return not np.isnan(seen).all()


# ---- Where points are in a list: a dictionary while they are few, then a hash table of numbers

Keys = npt.NDArray[np.uint64]
DICTIONARY_POINTS = 65_536
"""Up to so many points are in a dictionary."""
SLOTS_PER_POINT = 4
"""The table has at least so many slots for each point: most are found at the first look."""
KEYS_AT_ONCE = 65_536
"""How many points are turned into keys at a time."""


class PointIndex:
    """The places of points, which count from 0 in the order in which they are added; equal points have the first."""

    def __init__(self, space: ParameterSet) -> None:
        self._exact = space.raw < 2**62
        """Whether different points have different keys; otherwise points with equal keys are compared."""
        # A secret factor, so that nobody can write a study whose points all fall into the same slots.
        secret = np.frombuffer(os.urandom(8 * (1 + len(space.sizes))), dtype=np.uint64) | np.uint64(1)
        self._factor = secret[0]
        self._weights = _radix_weights(space.sizes) if self._exact else secret[1:]
        self._keys = TrialColumn(np.empty(0, dtype=np.uint64))
        kind = index_type(max(space.sizes, default=1) - 1)
        self._points = TrialColumn(np.empty((0, 0 if self._exact else len(space.sizes)), dtype=kind))
        self._dictionary: dict[Hashable, int] | None = {}
        """The dictionary; None once there are too many."""
        self._slots = np.empty(0, dtype=np.int32)

    def __len__(self) -> int:
        return len(self._keys.values)

    def find(self, rows: Indices) -> Indices:
        """Return the place of each of *rows*; -1 for an unknown one."""
        keys = self._keys_of(rows)
        if self._dictionary is not None:
            get = self._dictionary.get
            return np.array([get(name, -1) for name in self._names(keys, rows)], dtype=np.intp)
        return self._look_up(keys, rows)

    def add(self, rows: Indices) -> bool:
        """Add points at the next places; one that is there already keeps its place. Return whether none was."""
        keys, start = self._keys_of(rows), len(self)
        self._keep(keys, rows)
        if self._dictionary is not None:
            for index, name in enumerate(self._names(keys, rows), start):
                self._dictionary.setdefault(name, index)
            return len(self._dictionary) == len(self)
        new = self._first_of(keys, rows)
        if start:
            new &= self._look_up(keys, rows) < 0
        self._enter(start + np.flatnonzero(new))
        return bool(new.all())

    def claim(self, rows: Indices) -> Flags:
        """Add those of *rows* that are not there; return which these are, each point once."""
        keys = self._keys_of(rows)
        if self._dictionary is not None:
            dictionary, count = self._dictionary, len(self)
            names = self._names(keys, rows)
            new = np.array(
                [dictionary.setdefault(name, count + index) == count + index for index, name in enumerate(names)], bool
            )
            if not new.all():  # places have no gaps
                dictionary |= {names[row]: count + offset for offset, row in enumerate(np.flatnonzero(new).tolist())}
            self._keep(keys[new], rows[new])  # which makes a table of the dictionary where that is due
            return new
        new = self._look_up(keys, rows) < 0
        new[new] = self._first_of(keys[new], rows[new])
        start = len(self)
        self._keep(keys[new], rows[new])
        self._enter(np.arange(start, len(self)))
        return new

    def first_of(self, rows: Indices) -> Flags:
        """Return which of *rows* do not equal one before them."""
        return self._first_of(self._keys_of(rows), rows)

    # ------------------------------------------------------------------------------------------------ keys

    def _keys_of(self, rows: Indices) -> Keys:
        """Return a number for each point: equal for equal points."""
        if len(rows) <= KEYS_AT_ONCE:
            return np.asarray(rows.astype(np.uint64) @ self._weights)
        return np.concatenate(
            [self._keys_of(rows[start : start + KEYS_AT_ONCE]) for start in range(0, len(rows), KEYS_AT_ONCE)]
        )

    def _names(self, keys: Keys, rows: Indices) -> Sequence[Hashable]:
        """Return what points are called in the dictionary."""
        return keys.tolist() if self._exact else [row.tobytes() for row in rows.astype(np.int64)]

    def _first_of(self, keys: Keys, rows: Indices) -> Flags:
        ordered = np.sort(keys)
        if not (ordered[1:] == ordered[:-1]).any():  # as usual; to sort alone is far quicker than what follows
            return np.ones(len(keys), dtype=bool)
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        earliest = first[inverse.reshape(-1)]
        if not self._exact and not np.array_equal(rows, rows[earliest]):  # different points with one key: hardly ever
            named: dict[bytes, int] = {}
            positions = [named.setdefault(row.tobytes(), index) for index, row in enumerate(rows)]
            earliest = np.array(positions, dtype=np.intp)
        return np.asarray(earliest == np.arange(len(keys)))

    # ----------------------------------------------------------------------------------------------- table

    def _keep(self, keys: Keys, rows: Indices) -> None:
        """Keep points at the next places; the table is made or made larger where that is due."""
        self._keys.extend(keys)
        if not self._exact:
            self._points.extend(rows.astype(self._points.values.dtype))
        if len(self) <= DICTIONARY_POINTS or SLOTS_PER_POINT * len(self) <= len(self._slots):
            return
        entered = self._slots[self._slots >= 0]
        if self._dictionary is not None:
            entered, self._dictionary = np.array(list(self._dictionary.values()), dtype=np.int32), None
        self._slots = np.full(1 << (SLOTS_PER_POINT * len(self) - 1).bit_length(), -1, dtype=np.int32)
        self._enter(entered)

    def _look_up(self, keys: Keys, rows: Indices) -> Indices:
        positions = np.full(len(keys), -1, dtype=np.intp)
        stored_keys, points = self._keys.values, self._points.values
        pending, slots = np.arange(len(keys)), self._first_slot(keys)
        while len(pending):
            occupant = self._slots[slots]
            occupied = occupant >= 0
            hit = occupied & (stored_keys[occupant] == keys[pending])
            if not self._exact and hit.any():
                hit[hit] = (points[occupant[hit]] == rows[pending[hit]]).all(axis=1)
            positions[pending[hit]] = occupant[hit]
            collided = occupied & ~hit
            pending, slots = pending[collided], self._next_slot(slots[collided])
        return positions

    def _enter(self, positions: npt.NDArray[np.signedinteger]) -> None:
        """Enter points, of which none equals another, into the table."""
        slots = self._first_slot(self._keys.values[positions])
        while len(positions):
            free = self._slots[slots] < 0
            self._slots[slots[free]] = positions[free]
            collided = self._slots[slots] != positions  # another point has the slot, one of these or one before them
            positions, slots = positions[collided], self._next_slot(slots[collided])

    def _first_slot(self, keys: Keys) -> Indices:
        """Return the first slot to look at: the highest bits of a product."""
        # Multiplicative hashing (Knuth): the high bits of the product depend on all bits of the key, the low ones do not.
        bits = len(self._slots).bit_length() - 1
        return np.asarray((keys * self._factor) >> np.uint64(64 - bits)).astype(np.intp)

    def _next_slot(self, slots: Indices) -> Indices:
        return np.asarray((slots + 1) & (len(self._slots) - 1))


def _radix_weights(sizes: tuple[int, ...]) -> Keys:
    """Return the place value of each parameter in a mixed-radix number.

    >>> _radix_weights((10, 2, 5)).tolist()
    [10, 5, 1]
    """
    values = [1]
    for size in sizes[:0:-1]:
        values.append(values[-1] * size)
    return np.array(values[::-1][: len(sizes)], dtype=np.uint64)


@dataclass(frozen=True)
class Trials:
    """Points in the order in which they were proposed, and their results."""

    points: Indices
    """A row of value indices for each, in any type of whole numbers; a study has the smallest that holds them."""
    results: Results

    def __len__(self) -> int:
        return len(self.points)

    @property
    def rows(self) -> Indices:
        """The points as a parameter set takes them; a copy, eight times as large, where they are kept in a byte."""
        return self.points.astype(np.intp, copy=False)

    def part(self, span: slice) -> Trials:
        """Return consecutive trials; nothing is copied."""
        return Trials(self.points[span], self.results.part(span))

    def select(self, indices: Indices) -> Trials:
        """Return the trials at *indices*."""
        return Trials(self.points[indices], self.results.select(indices))

    def row(self, trial: int) -> Indices:
        """Return the point at *trial* as a parameter set takes it."""
        return np.asarray(self.points[trial], dtype=np.intp)

    @property
    def evaluated(self) -> int:
        """How many took an evaluation: the budget counts these."""
        return int(self.results.counted.sum())

    @property
    def feasible(self) -> int:
        """How many can run."""
        return int(self.results.feasible.sum())

    def fits(self, problem: Problem) -> bool:
        """Return whether *problem* has these points, and all that can run have a value of each objective."""
        sizes = np.array(problem.space.sizes, dtype=np.intp)
        if self.points.shape[1] != len(sizes) or not (self.points < sizes).all():
            return False
        runs = self.results.feasible
        return not any(np.isnan(self.results.columns[name][runs]).any() for name in problem.objectives)

    def best(self, problem: Problem) -> int | None:
        """Return the place of the best trial; None where nothing can run.

        The best is by the first objective, ties by the next one, and so on: no other trial dominates it.
        """
        if not self.feasible:
            return None
        trial_losses = losses(problem.objectives, self.results.columns)
        ties = np.flatnonzero(trial_losses[:, 0] == np.nanmin(trial_losses[:, 0]))
        return int(ties[np.lexsort(trial_losses[ties].T[::-1])[0]])

    def front(self, problem: Problem) -> Indices:
        """Return the places of the Pareto front, in the order of the first objective.

        Of several points with the same losses, the front has the first.
        """
        trial_losses = losses(problem.objectives, self.results.columns)
        indices = np.flatnonzero(pareto_front(trial_losses))
        _, first = np.unique(trial_losses[indices], axis=0, return_index=True)
        return np.asarray(indices[first])

    def hypervolume(self, problem: Problem) -> float:
        """Return the share of the box of all feasible trials that the front dominates; 1 for a point best in all."""
        trial_losses = losses(problem.objectives, self.results.columns)[self.results.feasible]
        trial_losses = trial_losses[np.isfinite(trial_losses).all(axis=1)]
        if not len(trial_losses):
            return 0.0
        least, span = trial_losses.min(axis=0), np.ptp(trial_losses, axis=0)
        scaled = (trial_losses - least) / np.where(span > 0, span, 1.0)
        return hypervolume(scaled[pareto_front(scaled)], np.ones(scaled.shape[1]))

    def curve(self, problem: Problem) -> tuple[Indices, Floats]:
        """Return the evaluations at which the best so far improved, and its metric from then on."""
        first = losses(problem.objectives[:1], self.results.columns)[:, 0]
        so_far = np.fmin.accumulate(first) if len(first) else first
        better = np.flatnonzero(np.diff(so_far, prepend=np.nan) != 0)
        better = better[np.isfinite(so_far[better])]
        count = np.cumsum(self.results.counted)
        return np.asarray(count[better]), self.results.columns[problem.objectives[0]][better]

    def reasons(self) -> dict[str, int]:
        """Return how many points cannot run for each reason, the most frequent first."""
        counts: dict[str, int] = {}
        for text, times in self.results.coded.counts().items():
            for reason in filter(None, text.split(", ")):
                counts[reason] = counts.get(reason, 0) + times
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    def describe(self, problem: Problem, trial: int) -> dict[str, Any]:
        """Return the trial at *trial* as plain data: its point, and its metrics or the reasons why it has none."""
        reasons = [reason for reason in self.results.reasons[trial].split(", ") if reason]
        return {
            "trial": trial,
            "point": problem.space.labels(self.row(trial)),
            "metrics": self.results.figures(trial),
            "reasons": reasons,
        }


BatchedTrials = tuple[Indices, Trials]
"""Consecutive trials, and the batch in which each was asked for."""


class Ledger:
    """All trials of a search so far, found by their point.

    A search that is resumed repeats the trials of its study. They are *ahead* of it: kept once, known from the start,
    and counted when they come.
    """

    def __init__(self, problem: Problem, ahead: Trials | None = None) -> None:
        self._problem = problem
        sizes = problem.space.sizes
        self._kind = index_type(max(sizes, default=1) - 1)
        none = np.empty((0, len(sizes)), dtype=self._kind)
        self._columns = (
            Columns(none, metrics=problem.metrics) if ahead is None else Columns(ahead.points, ahead.results)
        )
        self._index = PointIndex(problem.space)
        self._regular = ahead is None or self._index.add(ahead.points)
        """Whether no point is in two of the trials ahead, as every search writes them."""
        self._count = 0
        self.evaluated = 0
        self.feasible = 0
        self.outside = 0
        """How many trials break a constraint of the set."""
        self.best = np.inf
        """The least loss of the first objective so far."""

    def __len__(self) -> int:
        return self._count

    def _equals_from(self, rows: Indices, first: int) -> bool:
        """Return whether *rows* are the points from place *first* on."""
        points = self._columns.points[first : first + len(rows)] if first >= 0 else ()
        return len(rows) > 0 and np.array_equal(points, rows)

    def _are_next(self, rows: Indices) -> bool:
        """Return whether *rows* are the next points ahead."""
        return self._count < len(self._columns) and self._equals_from(rows, self._count)

    def holds(self, rows: Indices) -> Flags:
        """Return which of *rows* have results, of trials so far or of those ahead."""
        if self._are_next(rows):
            return np.ones(len(rows), dtype=bool)
        return np.asarray(self._index.find(rows) >= 0)

    def unknown(self, rows: Indices) -> Indices:
        """Return the places in *rows* of points that are not in any trial yet, each point once."""
        if self._regular and self._are_next(rows):
            return np.arange(len(rows))
        positions = self._index.find(rows)
        new = np.flatnonzero((positions < 0) | (positions >= self._count))
        return np.asarray(new[self._index.first_of(rows[new])])

    def add(self, rows: Indices, results: Results) -> None:
        """Add new trials."""
        if not len(rows):
            return
        if not self._advance(rows):
            points = rows.astype(self._kind)
            self._index.add(rows)
            self._columns.extend(points, results)
        self._count += len(rows)
        self.evaluated += int(results.counted.sum())
        self.feasible += int(results.feasible.sum())
        first = losses(self._problem.objectives[:1], results.columns)[:, 0]
        self.best = min(self.best, float(np.nanmin(np.append(first, np.inf))))

    def _advance(self, rows: Indices) -> bool:
        """Return whether *rows* are the next points ahead; where others come, those ahead are forgotten."""
        if self._count == len(self._columns):
            return False
        if self._are_next(rows):
            return True
        so_far = self.trials
        self._columns, self._index = Columns(so_far.points, so_far.results), PointIndex(self._problem.space)
        self._index.add(so_far.points)
        return False

    def recall(self, rows: Indices) -> Results:
        """Return the results of points that are all in some trial."""
        for first in (self._count - len(rows), self._count):  # usually they are the last ones, or the next ahead
            if self._equals_from(rows, first):
                return self._columns.results.part(slice(first, first + len(rows)))
        return self._columns.results.select(self._index.find(rows))

    @property
    def trials(self) -> Trials:
        """All trials as one value; nothing is copied."""
        results = self._columns.results
        if self._count < len(results):
            results = results.part(slice(self._count))
        return Trials(self._columns.points[: self._count], results)
