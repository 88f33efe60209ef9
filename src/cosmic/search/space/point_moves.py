"""Moves of search agents from valid points to valid points: neighbours, mutation, crossover, many points at a time."""

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
