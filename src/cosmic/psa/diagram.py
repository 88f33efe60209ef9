"""Decision diagrams: the valid combinations of tied parameters, counted and sampled without listing them.

Parameters that share a constraint are tied. Take them in a fixed order, one level each. A node of a level
stands for all ways to choose values so far that leave the *same remaining question* (the constraints with
those values put in and simplified). Each node has one child per value, or none where a constraint fails.
Paths from the root to the end are exactly the valid combinations, and each is one path:

    count      paths, summed backwards, as whole numbers of any size
    sample     go down, choosing each value in proportion to the paths below it: uniform over valid points
    repair     go down, taking the wanted value where the child is alive and the nearest live one otherwise

The number of nodes follows from how much must be remembered, not from the number of combinations: for a
product of powers of two it is the number of different partial products.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from cosmic.errors import SpecError
from cosmic.psa.expressions import FALSE, TRUE, Constant, Expression, substitute, variables

Indices = npt.NDArray[np.intp]
DEAD = -1
MAX_EDGES = 2_000_000
"""Size beyond which a diagram is refused: about ten seconds of work."""


@dataclass(frozen=True, eq=False)
class Diagram:
    """The valid combinations of some parameters (its levels), each by the index of its value."""

    children: tuple[Indices, ...]
    """Per level, for each node and value: the node of the next level, or `DEAD`."""

    @cached_property
    def paths(self) -> list[list[int]]:
        """Per level and node: how many valid ways there are to go on from it."""
        below = [1]
        levels = [below]
        for table in reversed(self.children):
            below = [sum(below[child] for child in row if child != DEAD) for row in table.tolist()]
            levels.insert(0, below)
        return levels

    @property
    def count(self) -> int:
        """How many valid combinations there are."""
        return self.paths[0][0] if self.paths[0] else 0

    @cached_property
    def live(self) -> tuple[npt.NDArray[np.bool_], ...]:
        """Per level, for each node and value: whether some valid combination goes that way."""
        return tuple(
            (table != DEAD) & (np.array([n > 0 for n in below] or [False])[table])
            for table, below in zip(self.children, self.paths[1:], strict=True)
        )

    @cached_property
    def _shares(self) -> tuple[npt.NDArray[np.float64], ...]:
        """Per level and node: the cumulated share of paths through each value."""
        levels = []
        for table, here, below in zip(self.children, self.paths[:-1], self.paths[1:], strict=True):
            share = np.zeros(table.shape)
            for node, row in enumerate(table.tolist()):
                if here[node]:
                    share[node] = [0.0 if child == DEAD else below[child] / here[node] for child in row]
            levels.append(_cumulate(share))
        return tuple(levels)

    @cached_property
    def _nearest(self) -> tuple[Indices, ...]:
        """Per level, for each node and wanted value: the live value whose index is nearest."""
        levels = []
        for live in self.live:
            values = np.arange(live.shape[1])
            distance = np.abs(values[:, None] - values[None, :])
            distance = np.where(live[:, None, :], distance[None], live.shape[1] + 1)
            levels.append(distance.argmin(axis=2))
        return tuple(levels)

    @cached_property
    def supported(self) -> tuple[Indices, ...]:
        """Per level: the values that occur in some valid combination."""
        reached = np.array([True])
        levels = []
        for table, live in zip(self.children, self.live, strict=True):
            alive = live & reached[:, None]
            levels.append(np.flatnonzero(alive.any(axis=0)))
            reached = np.zeros(max(table.max(initial=0) + 1, 1), dtype=bool)
            reached[table[alive]] = True
        return tuple(levels)

    def sample(self, n: int, rng: np.random.Generator) -> Indices:
        """Return *n* valid combinations, drawn uniformly and independently."""
        drawn = np.empty((n, len(self.children)), dtype=np.intp)
        node = np.zeros(n, dtype=np.intp)
        for level, (table, shares) in enumerate(zip(self.children, self._shares, strict=True)):
            chance = rng.random(n)
            if len(table) == 1:
                drawn[:, level] = np.searchsorted(shares[0], chance, side="right")
            else:
                drawn[:, level] = (chance[:, None] >= shares[node]).sum(axis=1)
            node = table[node, drawn[:, level]]
        return drawn

    def contains(self, rows: Indices) -> npt.NDArray[np.bool_]:
        """Return for each combination whether it is valid."""
        node = np.zeros(len(rows), dtype=np.intp)
        valid = np.full(len(rows), self.count > 0)
        for level, (table, live) in enumerate(zip(self.children, self.live, strict=True)):
            if not valid.any():  # the levels of an empty diagram may have no nodes
                break
            valid &= live[node, rows[:, level]]
            node = np.where(valid, table[node, rows[:, level]], 0)
        return valid

    def repair(self, wanted: Indices) -> Indices:
        """Return a valid combination near each wanted one; a valid one is returned as it is."""
        rows = np.empty_like(wanted)
        node = np.zeros(len(wanted), dtype=np.intp)
        for level, (table, nearest) in enumerate(zip(self.children, self._nearest, strict=True)):
            rows[:, level] = nearest[node, wanted[:, level]]
            node = table[node, rows[:, level]]
        return rows

    def fixing(self, level: int, value: int) -> Diagram:
        """Return the diagram of those combinations that have *value* at *level*."""
        table = np.full_like(self.children[level], DEAD)
        table[:, value] = self.children[level][:, value]
        return Diagram((*self.children[:level], table, *self.children[level + 1 :]))

    def combinations(self) -> Iterator[tuple[int, ...]]:
        """Yield every valid combination, in lexicographic order."""
        pending: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, ())]
        while pending:
            level, node, chosen = pending.pop()
            if level == len(self.children):
                yield chosen
                continue
            for value in reversed(np.flatnonzero(self.live[level][node]).tolist()):
                pending.append((level + 1, int(self.children[level][node, value]), (*chosen, value)))


def build(levels: Sequence[Sequence[Mapping[str, Constant]]], constraints: Sequence[Expression]) -> Diagram:
    """Return the diagram of the combinations that satisfy *constraints*.

    *levels* gives, per parameter, what each of its values sets: a mapping from paths to constants.
    """
    frontier: dict[tuple[Expression, ...], int] = {tuple(constraints): 0}
    children = []
    edges = 0
    for values in levels:
        following: dict[tuple[Expression, ...], int] = {}
        table = np.full((len(frontier), len(values)), DEAD, dtype=np.intp)
        edges += table.size
        if edges > MAX_EDGES:
            raise SpecError("constraints", len(constraints), "tie too many parameters together to be counted exactly")
        for question, node in frontier.items():
            for index, setting in enumerate(values):
                rest = _remaining(question, setting)
                if rest is not None:
                    table[node, index] = following.setdefault(rest, len(following))
        children.append(table)
        frontier = following
    return Diagram(tuple(children))


def _remaining(question: tuple[Expression, ...], setting: Mapping[str, Constant]) -> tuple[Expression, ...] | None:
    """Return what is left to be satisfied after *setting*; None if that can no longer be."""
    rest = []
    for constraint in question:
        simpler = substitute(constraint, setting)
        if simpler == FALSE:
            return None
        if simpler == TRUE:
            continue
        if not variables(simpler):
            raise SpecError("constraints", setting, "divides by zero, or takes an impossible power")
        rest.append(simpler)
    return tuple(rest)


def _cumulate(share: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return cumulated shares that reach 1 exactly at the last value with any, whatever the rounding."""
    total = share.cumsum(axis=1)
    last = share.shape[1] - 1 - (share[:, ::-1] > 0).argmax(axis=1)
    total[np.arange(share.shape[1])[None, :] >= last[:, None]] = 1.0
    return total
