"""Trials: every design that a search proposed, with its results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cosmic.exploration.agent import Flags, Floats
from cosmic.exploration.columns import Columns, index_type
from cosmic.exploration.objectives import losses
from cosmic.exploration.pareto import front, hypervolume
from cosmic.exploration.places import Places
from cosmic.exploration.problem import Problem, Results
from cosmic.psa.diagram import Indices


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

    def part(self, places: slice) -> Trials:
        """Return consecutive trials; nothing is copied."""
        return Trials(self.points[places], self.results.part(places))

    def take(self, places: Indices) -> Trials:
        """Return the trials at *places*."""
        return Trials(self.points[places], self.results.take(places))

    def row(self, place: int) -> Indices:
        """Return the point at *place* as a parameter set takes it."""
        return np.asarray(self.points[place], dtype=np.intp)

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
        found = losses(problem.objectives, self.results.columns)
        ties = np.flatnonzero(found[:, 0] == np.nanmin(found[:, 0]))
        return int(ties[np.lexsort(found[ties].T[::-1])[0]])

    def front(self, problem: Problem) -> Indices:
        """Return the places of the Pareto front, in the order of the first objective.

        Of several points with the same losses, the front has the first.
        """
        found = losses(problem.objectives, self.results.columns)
        places = np.flatnonzero(front(found))
        _, first = np.unique(found[places], axis=0, return_index=True)
        return np.asarray(places[first])

    def hypervolume(self, problem: Problem) -> float:
        """Return the share of the box of all feasible trials that the front dominates; 1 for a point best in all."""
        found = losses(problem.objectives, self.results.columns)[self.results.feasible]
        found = found[np.isfinite(found).all(axis=1)]
        if not len(found):
            return 0.0
        least, span = found.min(axis=0), np.ptp(found, axis=0)
        scaled = (found - least) / np.where(span > 0, span, 1.0)
        return hypervolume(scaled[front(scaled)], np.ones(scaled.shape[1]))

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

    def describe(self, problem: Problem, place: int) -> dict[str, Any]:
        """Return the trial at *place* as plain data: its point, and its metrics or the reasons why it has none."""
        reasons = [each for each in self.results.reasons[place].split(", ") if each]
        return {
            "trial": place,
            "point": problem.space.labels(self.row(place)),
            "metrics": self.results.figures(place),
            "reasons": reasons,
        }


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
        self._places = Places(problem.space)
        self._regular = ahead is None or self._places.add(ahead.points)
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

    def _are(self, rows: Indices, first: int) -> bool:
        """Return whether *rows* are the points from place *first* on."""
        points = self._columns.points[first : first + len(rows)] if first >= 0 else ()
        return len(rows) > 0 and np.array_equal(points, rows)

    def _are_next(self, rows: Indices) -> bool:
        """Return whether *rows* are the next points ahead."""
        return self._count < len(self._columns) and self._are(rows, self._count)

    def holds(self, rows: Indices) -> Flags:
        """Return which of *rows* have results, of trials so far or of those ahead."""
        if self._are_next(rows):
            return np.ones(len(rows), dtype=bool)
        return np.asarray(self._places.find(rows) >= 0)

    def unknown(self, rows: Indices) -> Indices:
        """Return the places in *rows* of points that are not in any trial yet, each point once."""
        if self._regular and self._are_next(rows):
            return np.arange(len(rows))
        places = self._places.find(rows)
        new = np.flatnonzero((places < 0) | (places >= self._count))
        return np.asarray(new[self._places.first_of(rows[new])])

    def add(self, rows: Indices, results: Results) -> None:
        """Add new trials."""
        if not len(rows):
            return
        if not self._comes(rows):
            points = rows.astype(self._kind)
            self._places.add(rows)
            self._columns.extend(points, results)
        self._count += len(rows)
        self.evaluated += int(results.counted.sum())
        self.feasible += int(results.feasible.sum())
        first = losses(self._problem.objectives[:1], results.columns)[:, 0]
        self.best = min(self.best, float(np.nanmin(np.append(first, np.inf))))

    def _comes(self, rows: Indices) -> bool:
        """Return whether *rows* are the next points ahead; where others come, those ahead are forgotten."""
        if self._count == len(self._columns):
            return False
        if self._are_next(rows):
            return True
        so_far = self.trials
        self._columns, self._places = Columns(so_far.points, so_far.results), Places(self._problem.space)
        self._places.add(so_far.points)
        return False

    def recall(self, rows: Indices) -> Results:
        """Return the results of points that are all in some trial."""
        for first in (self._count - len(rows), self._count):  # usually they are the last ones, or the next ahead
            if self._are(rows, first):
                return self._columns.results.part(slice(first, first + len(rows)))
        return self._columns.results.take(self._places.find(rows))

    @property
    def trials(self) -> Trials:
        """All trials as one value; nothing is copied."""
        results = self._columns.results
        if self._count < len(results):
            results = results.part(slice(self._count))
        return Trials(self._columns.points[: self._count], results)
