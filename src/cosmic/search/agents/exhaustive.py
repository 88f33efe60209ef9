"""Exhaustive search: every valid point, those that share a program one after another."""

from __future__ import annotations

import numpy as np

from cosmic.search.agent import Outcomes, Task, agents
from cosmic.search.learning.agent_memory import Novelty
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.trials import index_type
from cosmic.simulate.recording.recorded_program import STRUCTURAL

MAX_SORTED = 5_000_000
"""Points of a set that is sorted before it is gone through: more would not fit into memory."""


@agents.register("exhaustive")
class ExhaustiveAgent:
    """Enumerates the set without points that it was told of; at the end it starts again."""

    batch = 4096
    learns = False

    def __init__(self, task: Task, rng: np.random.Generator) -> None:
        self.space = task.space
        self._novelty = Novelty(task.space, rng)
        self._next = 0
        self._again = False
        self._points: Indices | None = None

    def ask(self, n: int) -> Indices:
        """Return the next *n* points."""
        points = np.empty((0, len(self.space.parameters)), dtype=np.intp)
        while len(points) < n:
            rows = self._listed(self._next, min(n - len(points), self.space.valid - self._next))
            self._next += len(rows)
            if not self._again:
                rows = rows[~self._novelty.known(rows)]
            points = np.concatenate((points, rows))
            if self._next == self.space.valid:
                self._next, self._again = 0, True
        return points

    def tell(self, outcomes: Outcomes) -> None:
        """Remember which points are known; nothing else is learnt."""
        self._novelty.note(outcomes.rows)

    def _listed(self, start: int, n: int) -> Indices:
        if self.space.valid > MAX_SORTED:
            return self.space.listed(start, n)
        if self._points is None:
            self._points = list_by_structure(self.space)
        return self._points[start : start + n].astype(np.intp)


def list_by_structure(space: ParameterSet) -> Indices:
    """Return every point of *space*, those with equal switches side by side: each program then runs once on all."""
    points = space.listed(0, space.valid).astype(index_type(max(space.sizes, default=1) - 1))
    return np.asarray(points[np.argsort(number_structures(space, points), kind="stable")])


def number_structures(space: ParameterSet, points: Indices) -> Indices:
    """Return a number for each point: two have the same if their switches are equal."""
    code = np.zeros(len(points), dtype=np.int64)
    for index, parameter in enumerate(space.parameters):
        switches = [position for position, path in enumerate(parameter.paths) if path in STRUCTURAL]
        if switches:
            numbers: dict[tuple[object, ...], int] = {}
            values = [
                numbers.setdefault(tuple(row[position] for position in switches), len(numbers))
                for row in parameter.values
            ]
            code = code * len(numbers) + np.array(values)[points[:, index]]
    return code
