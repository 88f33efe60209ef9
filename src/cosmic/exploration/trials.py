"""Trials: every design that a search proposed, with its results."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosmic.exploration.agent import Floats
from cosmic.exploration.objectives import losses
from cosmic.exploration.pareto import front, hypervolume
from cosmic.exploration.problem import Problem, Results
from cosmic.psa.diagram import Indices


@dataclass(frozen=True)
class Trials:
    """Points in the order in which they were proposed, and their results."""

    rows: Indices
    results: Results

    def __len__(self) -> int:
        return len(self.rows)

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
        if self.rows.shape[1] != len(sizes) or not (self.rows < sizes).all():
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
        for text in self.results.reasons:
            for reason in filter(None, text.split(", ")):
                counts[reason] = counts.get(reason, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    def describe(self, problem: Problem, place: int) -> dict[str, Any]:
        """Return the trial at *place* as plain data: its point, and its metrics or the reasons why it has none."""
        reasons = [each for each in self.results.reasons[place].split(", ") if each]
        return {
            "trial": place,
            "point": problem.space.labels(self.rows[place]),
            "metrics": self.results.figures(place),
            "reasons": reasons,
        }


def joined(parts: Sequence[Trials]) -> Trials:
    """Return the trials of several parts as one value; there is at least one part."""
    if len(parts) == 1:
        return parts[0]
    return Trials(np.concatenate([part.rows for part in parts]), Results.join(part.results for part in parts))


class Ledger:
    """All trials of a search so far, indexed by point."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._rows: list[Indices] = []
        self._results: list[Results] = []
        self._place: dict[Hashable, int] = {}
        self.evaluated = 0
        self.feasible = 0
        self.best = np.inf
        """The least loss of the first objective so far."""

    def __len__(self) -> int:
        return len(self._place)

    def unknown(self, rows: Indices) -> Indices:
        """Return the places in *rows* of points that are not in any trial yet, each point once."""
        found: dict[Hashable, int] = {}
        for place, key in enumerate(self._problem.space.keys(rows)):
            if key not in self._place:
                found.setdefault(key, place)
        return np.array(list(found.values()), dtype=np.intp)

    def add(self, rows: Indices, results: Results) -> None:
        """Add new trials."""
        if not len(rows):
            return
        self._rows.append(rows)
        self._results.append(results)
        start = len(self._place)
        self._place.update(zip(self._problem.space.keys(rows), range(start, start + len(rows)), strict=True))
        self.evaluated += int(results.counted.sum())
        self.feasible += int(results.feasible.sum())
        first = losses(self._problem.objectives[:1], results.columns)[:, 0]
        self.best = min(self.best, float(np.nanmin(np.append(first, np.inf))))

    def recall(self, rows: Indices) -> Results:
        """Return the results of points that are all in some trial."""
        places = np.array([self._place[key] for key in self._problem.space.keys(rows)], dtype=np.intp)
        last = len(self._results[-1]) if self._results else 0
        since = len(self._place) - last
        if last and (places >= since).all():  # usually all are of the last batch
            return self._results[-1].take(places - since)
        return self.trials.results.take(places)

    @property
    def trials(self) -> Trials:
        """All trials as one value."""
        if not self._rows:
            return Trials(np.empty((0, len(self._problem.space.parameters)), dtype=np.intp), Results.failed(0, ""))
        if len(self._rows) > 1:  # joined once, not at every access
            self._rows, self._results = [np.concatenate(self._rows)], [Results.join(self._results)]
        return Trials(self._rows[0], self._results[0])
