"""Moves for agents: from valid points to valid points, many at a time."""

from __future__ import annotations

import numpy as np

from cosmic.search.space.diagram import Flags, Floats, Indices
from cosmic.search.space.parameter_set import ParameterSet


class Moves:
    """Neighbours, mutation and crossover within one parameter set.

    A move changes one parameter, and then only the others that the constraints require: in a set where the
    dimensions must multiply to 1,024 NPUs, doubling one halves another.
    """

    def __init__(self, space: ParameterSet) -> None:
        self.space = space
        self._component_levels = {  # the component of each column, and its level there
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
        self.open.sort()
        self._tied = [(component, self._levels(component.columns)) for component in space.tied]
        self._ordered = np.array([parameter.ordered for parameter in space.parameters], dtype=bool)
        self._number = np.array(
            [len(values) for values in map(self._values, range(len(space.parameters)))], dtype=np.intp
        )
        widest = (len(space.parameters), max(space.sizes, default=0))
        self._nth = np.zeros(widest, dtype=np.intp)  # per column: the values that occur in valid points, in order
        self._rank = np.zeros(widest, dtype=np.intp)  # per column and value: how many smaller ones occur
        for column, size in enumerate(space.sizes):
            occurring = self._values(column)
            self._nth[column, : len(occurring)] = occurring
            self._rank[column, :size] = np.searchsorted(occurring, np.arange(size))

    def _levels(self, columns: tuple[int, ...]) -> Indices:
        """Return for each column of a row its place in *columns*, or -1."""
        levels = np.full(len(self.space.parameters), -1, dtype=np.intp)
        levels[list(columns)] = np.arange(len(columns))
        return levels

    def _values(self, column: int) -> Indices:
        return self._supported(*self._component_levels[column])

    def _supported(self, part: int, level: int) -> Indices:
        return self.space.components[part].diagram.supported[level]

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
        """Return for each current value of a column another one that occurs in valid points."""
        number = self._number[columns]
        rank = np.minimum(self._rank[columns, current], number - 1)
        other_rank = (rank + 1 + (chance * (number - 1)).astype(np.intp)) % number
        step = np.where(chance < 0.5, -1, 1)
        step = np.where(rank + step < 0, 1, np.where(rank + step >= number, -1, step))
        return np.asarray(self._nth[columns, np.where(self._ordered[columns] & near, rank + step, other_rank)])

    def _set(self, rows: Indices, columns: Indices, values: Indices) -> Indices:
        """Return rows with one column each set to a value, and tied columns adjusted."""
        moved = rows.copy()
        moved[np.arange(len(rows)), columns] = values
        for component, levels in self._tied:
            goal_levels = levels[columns]
            chosen = np.flatnonzero(goal_levels >= 0)
            if len(chosen):
                cells = (chosen[:, None], component.columns)
                moved[cells] = component.diagram.keeping(rows[cells], goal_levels[chosen], values[chosen])
        return moved

    def mutate(self, rows: Indices, rng: np.random.Generator, rate: float) -> Indices:
        """Return each row with a share *rate* of its parameters changed on average, one after the other."""
        return self.change(rows, rng.binomial(len(self.open), rate, size=len(rows)), rng)

    def change(self, rows: Indices, times: Indices, rng: np.random.Generator, near: float = 0.0) -> Indices:
        """Return each row after the number of single changes in *times*; a share *near* of them moves one step only."""
        moved = rows.copy()
        for turn in range(int(times.max(initial=0))):
            chosen = np.flatnonzero(times > turn)
            close = rng.random(len(chosen)) < near if near else False
            moved[chosen] = self.neighbour(moved[chosen], rng, near=close)
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
