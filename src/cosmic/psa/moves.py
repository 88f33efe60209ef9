"""Moves for agents: from valid points to valid points, many at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cosmic.psa.diagram import Diagram, Indices
from cosmic.psa.space import ParameterSet


class Moves:
    """Neighbours, mutation and crossover within one parameter set.

    A move changes one parameter and then as few others as the constraints force it to: in a set where the
    dimensions must multiply to 1,024 NPUs, doubling one halves another.
    """

    def __init__(self, space: ParameterSet) -> None:
        self.space = space
        self._place = {  # where each column stands: its component and its level there
            column: (part, level)
            for part, component in enumerate(space.components)
            for level, column in enumerate(component.columns)
        }
        self.open = np.array(
            [column for column, (part, level) in self._place.items() if len(self._supported(part, level)) > 1],
            dtype=np.intp,
        )
        self.open.sort()
        self._fixed: dict[tuple[int, int], Diagram] = {}

    def _supported(self, part: int, level: int) -> Indices:
        return self.space.components[part].diagram.supported[level]

    def neighbour(self, rows: Indices, rng: np.random.Generator, *, near: bool = False) -> Indices:
        """Return for each row a random other point: one parameter changed, and what follows from it.

        With *near*, a number moves to the next larger or smaller value; a name to any other.
        """
        if not len(self.open):
            return rows.copy()
        columns = self.open[rng.integers(len(self.open), size=len(rows))]
        values = np.empty(len(rows), dtype=np.intp)
        chance = rng.random(len(rows))
        for column in np.unique(columns).tolist():
            chosen = columns == column
            values[chosen] = self._other(column, rows[chosen, column], chance[chosen], near)
        return self._set(rows, columns, values)

    def _other(self, column: int, current: Indices, chance: npt.NDArray[np.float64], near: bool) -> Indices:
        """Return for each current value another that occurs in valid points."""
        supported = self._supported(*self._place[column])
        at = np.minimum(np.searchsorted(supported, current), len(supported) - 1)
        if near and self.space.parameters[column].ordered:
            step = np.where(chance < 0.5, -1, 1)
            step = np.where(at + step < 0, 1, np.where(at + step >= len(supported), -1, step))
            return np.asarray(supported[at + step])
        shift = 1 + (chance * (len(supported) - 1)).astype(np.intp)
        return np.asarray(supported[(at + shift) % len(supported)])

    def _set(self, rows: Indices, columns: Indices, values: Indices) -> Indices:
        """Return rows with one column each set to a value, the tied ones adjusted."""
        moved = rows.copy()
        wanted = columns * (max(self.space.sizes) + 1) + values
        order = np.argsort(wanted, kind="stable")
        starts = np.flatnonzero(np.diff(wanted[order], prepend=-1))
        for group in np.split(order, starts[1:]):
            column, value = int(columns[group[0]]), int(values[group[0]])
            component = self.space.components[self._place[column][0]]
            if len(component.columns) == 1:
                moved[group, column] = value
            else:
                tied = np.ix_(group, np.array(component.columns))
                moved[tied] = self._fixing(column, value).repair(rows[tied])
        return moved

    def _fixing(self, column: int, value: int) -> Diagram:
        key = (column, value)
        if key not in self._fixed:
            part, level = self._place[column]
            self._fixed[key] = self.space.components[part].diagram.fixing(level, value)
        return self._fixed[key]

    def mutate(self, rows: Indices, rng: np.random.Generator, rate: float) -> Indices:
        """Return each row with about *rate* of its parameters changed, one after the other."""
        moved = rows.copy()
        changes = rng.binomial(len(self.open), rate, size=len(rows))
        for turn in range(int(changes.max(initial=0))):
            chosen = changes > turn
            moved[chosen] = self.neighbour(moved[chosen], rng)
        return moved

    def crossover(self, mothers: Indices, fathers: Indices, rng: np.random.Generator) -> Indices:
        """Return children that take each parameter from either parent at random, repaired where that is invalid."""
        from_mother = rng.random(mothers.shape) < 0.5
        return self.space.repair(np.where(from_mother, mothers, fathers))

    def neighbourhood(self, row: Indices) -> Indices:
        """Return all points one move away from *row*, each once."""
        moves = [
            (column, value)
            for column in self.open.tolist()
            for value in self._supported(*self._place[column]).tolist()
            if value != row[column]
        ]
        if not moves:
            return np.empty((0, len(row)), dtype=np.intp)
        columns, values = (np.array(part, dtype=np.intp) for part in zip(*moves, strict=True))
        return np.unique(self._set(np.tile(row, (len(moves), 1)), columns, values), axis=0)
