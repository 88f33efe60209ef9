"""A weight for each value of each parameter, and points drawn by these weights."""

from __future__ import annotations

import numpy as np

from cosmic.exploration.agent import Floats
from cosmic.psa.diagram import Indices
from cosmic.psa.space import ParameterSet


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
        self._last = widths - 1
        self._padding = value[None, :] > self._last[:, None]  # columns of free parameters, padded to the widest
        self._places = self._starts[space.free][:, None] + np.minimum(value[None, :], self._last[:, None])

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
        places = (rows + self._starts).reshape(-1)
        return np.bincount(places, weights=np.repeat(worth, rows.shape[1]), minlength=self.size).astype(float)

    def walk(self, numbers: Floats, n: int, rng: np.random.Generator) -> Indices:
        """Return *n* valid points, drawn in proportion to the product of their values' *numbers*, all positive."""
        rows = np.empty((n, len(self._starts)), dtype=np.intp)
        free = self.space.free
        if len(free):
            shares = np.where(self._padding, 0.0, self.shares(numbers)[self._places]).cumsum(axis=1)
            chance = rng.random((n, len(free), 1)) * shares[:, -1:]  # the sum may round to just off 1
            rows[:, free] = np.minimum((chance >= shares).sum(axis=2), self._last)
        parts = np.split(numbers, self._starts[1:])
        for component in self.space.tied:
            weights = [parts[column] for column in component.columns]
            rows[:, component.columns] = component.diagram.walk(weights, n, rng)
        return rows
