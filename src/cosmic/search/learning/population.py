"""The best points so far, and weights of values.

Agents select parents from the best points, reinforce them, and restart from them (`Elite`). `Weights` has a number for
each value of each parameter, and draws points by them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cosmic.search.agent import Floats, Outcomes, Task
from cosmic.search.pareto import pareto_order
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameter_set import ParameterSet

# --------------------------------------------------------------------------------------
# The best points so far: agents select parents from them, reinforce them, and restart from them
# --------------------------------------------------------------------------------------


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


# --------------------------------------------------------------------------------------
# A weight for each value of each parameter, and points drawn by these weights
# --------------------------------------------------------------------------------------


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
