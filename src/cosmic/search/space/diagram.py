"""Decision diagrams: the valid combinations of tied parameters, counted and sampled without listing them.

Parameters that share a constraint are tied. Take them in a fixed order, one level each. A node of a level
stands for all choices of values so far that leave the *same remaining question* (the constraints with
those values substituted and simplified). Each node has one child per value, or none where a constraint fails.
Paths from the root to the end are exactly the valid combinations:

    count      paths, summed from the end, as integers of any size
    sample     go down, choosing each value in proportion to the paths below it: uniform over valid points
    walk       the same with a weight for each value: combinations in proportion to the product of their weights
    repair     go down, taking the wanted value where the child is alive and the nearest live one otherwise
    nth        go down, skipping the paths through smaller values: any place of the list, without the list

The number of nodes follows from how much must be remembered, not from the number of combinations: for a
product of powers of two it is the number of different partial products.

`Descent` holds the ways down as flat tables: many rows go down a level with two look-ups. A cell stands for a node, a
goal and a wanted value. It holds the value that is taken there, and the first cell of the node below. Goals are what a
way down is for: *this value at that level*, or nothing in particular.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError
from cosmic.search.space.expressions import FALSE, TRUE, UNDEFINED, Expression, Known, substitute

# ---- Ways down a decision diagram as flat tables: many rows go down a level with two look-ups

Indices = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Descent:
    """The tables of all levels, one after the other."""

    widths: Indices
    """Per level: how many values it has."""
    chosen: npt.NDArray[Any]
    """Per cell: the value that is taken, or what is asked about it."""
    below: Indices
    """Per cell: the first cell of the node to which that value leads."""

    def go(self, targets: Indices, goals: Indices | None = None) -> npt.NDArray[Any]:
        """Return what is taken for each row of *targets* values on its way to one of the *goals*, or to the only one."""
        cells = targets.T.copy() if goals is None else np.multiply.outer(self.widths, goals) + targets.T
        for level in range(1, len(cells)):
            cells[level] += self.below.take(cells[level - 1])
        return self.chosen.take(cells).T


def build_descent(children: Sequence[Indices], choices: Sequence[Indices], results: Sequence[Any] = ()) -> Descent:
    """Return the ways down a diagram, of which *choices* has per level, for each node, goal and wanted value: a value.

    A value that leads nowhere is on no way to its goal; what is below it does not matter. Where *results* is given, rows
    become that on their way instead of the values.
    """
    widths = np.array([table.shape[1] for table in children], dtype=np.intp)
    starts = np.cumsum([0, *(choice.size for choice in choices)])
    below = []
    for level, (table, choice) in enumerate(zip(children, choices, strict=True)):
        is_last = level + 1 == len(children)
        size = 0 if is_last else choices[level + 1][0].size
        node = np.maximum(table[np.arange(len(table))[:, None, None], choice], 0)
        below.append((0 if is_last else starts[level + 1]) + node * size)
    flat = [np.concatenate([part.reshape(-1) for part in parts]) for parts in (results or choices, below)]
    return Descent(widths, *flat)


def nearest_possible(possible: Flags) -> Indices:
    """Return for each wanted value (the last axis) the possible one whose index is nearest; 0 where none is.

    >>> nearest_possible(np.array([[False, True, False, False, True]])).tolist()
    [[1, 1, 1, 4, 4]]
    """
    # Where there is none on one side, that side is farther than any value on the other.
    values, far = np.arange(possible.shape[-1]), 3 * possible.shape[-1]
    below = np.maximum.accumulate(np.where(possible, values, -far), axis=-1)
    above = np.minimum.accumulate(np.where(possible, values, far)[..., ::-1], axis=-1)[..., ::-1]
    nearest = np.where(values - below <= above - values, below, above)
    return np.where(possible.any(axis=-1, keepdims=True), nearest, 0)


Floats = npt.NDArray[np.float64]
DEAD = -1
MAX_STEPS = 3_000_000
"""The most questions that are asked to build a diagram, one for each edge and constraint: ten seconds of work."""
MAX_CELLS = 1_000_000
"""The most cells of the tables that keep a value: 16 MB."""


@dataclass(frozen=True, eq=False)
class Diagram:
    """The valid combinations of some parameters (its levels), as value indices."""

    children: tuple[Indices, ...]
    """Per level, for each node and value: the node of the next level, or `DEAD`."""

    @cached_property
    def paths(self) -> list[list[int]]:
        """Per level and node: the number of paths from it to the end."""
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
    def live(self) -> tuple[Flags, ...]:
        """Per level, for each node and value: whether a valid combination passes there."""
        return tuple(
            (table != DEAD) & (np.array([n > 0 for n in below] or [False])[table])
            for table, below in zip(self.children, self.paths[1:], strict=True)
        )

    @cached_property
    def _shares(self) -> tuple[Floats, ...]:
        """Per level and node: the cumulative share of paths through each value."""
        levels = []
        for table, counts, below in zip(self.children, self.paths[:-1], self.paths[1:], strict=True):
            share = np.zeros(table.shape)
            for node, row in enumerate(table.tolist()):
                if counts[node]:
                    share[node] = [0.0 if child == DEAD else below[child] / counts[node] for child in row]
            levels.append(_cumulate(share))
        return tuple(levels)

    @cached_property
    def _nearest(self) -> tuple[Indices, ...]:
        """Per level, for each node and wanted value: the live value whose index is nearest."""
        return tuple(map(nearest_possible, self.live))

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
                # Inverse transform sampling: the value drawn is the number of cumulative shares that the chance has passed.
                drawn[:, level] = np.searchsorted(shares[0], chance, side="right")
            else:
                drawn[:, level] = (chance[:, None] >= shares[node]).sum(axis=1)
            node = table[node, drawn[:, level]]
        return drawn

    def walk(self, weights: Sequence[Floats], n: int, rng: np.random.Generator) -> Indices:
        """Return *n* valid combinations, drawn in proportion to the product of their values' weights.

        *weights* gives, per level, a positive number for each value. With equal weights this is `sample`.
        """
        shares = []
        below = np.ones(1)
        for table, live, weight in zip(reversed(self.children), reversed(self.live), reversed(weights), strict=True):
            mass = np.where(live, weight * below[table], 0.0)
            below = mass.sum(axis=1)
            shares.append(mass / np.where(below > 0, below, 1.0)[:, None])
            below = below / below.max()  # so that long products neither underflow nor overflow
        drawn = np.empty((n, len(self.children)), dtype=np.intp)
        node = np.zeros(n, dtype=np.intp)
        for level, (table, share) in enumerate(zip(self.children, reversed(shares), strict=True)):
            drawn[:, level] = (rng.random(n)[:, None] >= _cumulate(share)[node]).sum(axis=1)
            node = table[node, drawn[:, level]]
        return drawn

    def contains(self, rows: Indices) -> Flags:
        """Return for each combination whether it is valid."""
        if not self.count:  # its levels may have no nodes
            return np.zeros(len(rows), dtype=bool)
        return np.asarray(self._checks.go(rows).all(axis=1))

    @cached_property
    def _checks(self) -> Descent:
        same = [np.broadcast_to(np.arange(child.shape[1]), (len(child), 1, child.shape[1])) for child in self.children]
        return build_descent(self.children, same, self.live)

    def repair(self, targets: Indices) -> Indices:
        """Return a valid combination near each wanted one; a valid one stays as it is."""
        return self._repairs.go(targets)

    @cached_property
    def _repairs(self) -> Descent:
        return build_descent(self.children, [nearest[:, None, :] for nearest in self._nearest])

    def keeping(self, targets: Indices, levels: Indices, values: Indices) -> Indices:
        """Return a valid combination near each wanted one, with the value given for it at its level of *levels*.

        At least one valid combination must have that value.
        """
        if self._keeps is not None:
            return self._keeps.go(targets, self._first_goal[levels] + values)
        rows = np.empty_like(targets)
        for level in np.unique(levels).tolist():
            matching = np.flatnonzero(levels == level)
            rows[matching] = self._keeping(targets[matching], level, values[matching])
        return rows

    @cached_property
    def _first_goal(self) -> Indices:
        """Per level: how many values the levels above it have together."""
        return np.cumsum([0, *(table.shape[1] for table in self.children)], dtype=np.intp)

    @cached_property
    def _keeps(self) -> Descent | None:
        """The ways down to each value of each level; None where they would take too much memory."""
        goals = int(self._first_goal[-1])
        if goals * sum(table.size for table in self.children) > MAX_CELLS:
            return None
        choices = []
        for level, (table, live) in enumerate(zip(self.children, self.live, strict=True)):
            parts = []
            for goal_level, goal_table in enumerate(self.children):
                if goal_level > level:  # values from which the goal is still in reach
                    reached = self._reaching(goal_level)[level + 1][table] & live[:, :, None]
                    parts.append(nearest_possible(np.moveaxis(reached, 2, 1)))
                elif goal_level == level:
                    fixed = np.arange(table.shape[1])[None, :, None]
                    parts.append(np.broadcast_to(fixed, (len(table), table.shape[1], table.shape[1])))
                else:
                    shape = (len(table), goal_table.shape[1], table.shape[1])
                    parts.append(np.broadcast_to(self._nearest[level][:, None, :], shape))
            choices.append(np.concatenate(parts, axis=1))
        return build_descent(self.children, choices)

    def _keeping(self, targets: Indices, level: int, values: Indices) -> Indices:
        """Return what `keeping` does for values of one level, without its tables."""
        rows = np.empty_like(targets)
        node = np.zeros(len(targets), dtype=np.intp)
        reaching = self._reaching(level)
        for current, table in enumerate(self.children):
            if current < level:
                possible = self.live[current][node] & reaching[current + 1][table[node], values[:, None]]
                distance = np.abs(np.arange(table.shape[1]) - targets[:, current, None])
                rows[:, current] = np.where(possible, distance, table.shape[1] + 1).argmin(axis=1)
            else:
                rows[:, current] = values if current == level else self._nearest[current][node, targets[:, current]]
            node = table[node, rows[:, current]]
        return rows

    def _reaching(self, level: int) -> list[Flags]:
        """Per level down to *level*, for each node: which values of *level* are in a valid combination through it."""
        if level not in self._reached:
            levels = [self.live[level]]
            for table, live in zip(self.children[:level][::-1], self.live[:level][::-1], strict=True):
                levels.insert(0, np.asarray((levels[0][table] & live[:, :, None]).any(axis=1)))
            self._reached[level] = levels
        return self._reached[level]

    @cached_property
    def _reached(self) -> dict[int, list[Flags]]:
        return {}

    def nth(self, positions: npt.NDArray[Any]) -> Indices:
        """Return the combinations at *positions* (integers from 0) of the lexicographic order."""
        remaining = positions.astype(self._earlier[0].dtype if self._earlier else np.int64)
        rows = np.empty((len(positions), len(self.children)), dtype=np.intp)
        node = np.zeros(len(positions), dtype=np.intp)
        for level, (table, earlier) in enumerate(zip(self.children, self._earlier, strict=True)):
            rows[:, level] = (remaining[:, None] >= earlier[node][:, 1:]).sum(axis=1)
            remaining = remaining - earlier[node, rows[:, level]]
            node = table[node, rows[:, level]]
        return rows

    @cached_property
    def _earlier(self) -> tuple[npt.NDArray[Any], ...]:
        """Per level and node: the number of paths through all smaller values, for each value and one past the last."""
        exact = np.int64 if self.count < 2**62 else object
        levels = []
        for table, below in zip(self.children, self.paths[1:], strict=True):
            through = [[0, *(0 if child == DEAD else below[child] for child in row)] for row in table.tolist()]
            shape = (len(table), table.shape[1] + 1)  # stated for levels without nodes
            levels.append(np.array(through, dtype=exact).reshape(shape).cumsum(axis=1))
        return tuple(levels)


def build_diagram(levels: Sequence[Sequence[Mapping[str, Known]]], constraints: Sequence[Expression]) -> Diagram:
    """Return the diagram of the combinations that satisfy *constraints*.

    *levels* gives, per parameter, what each of its values sets: a mapping from paths to constants. A constraint holds
    for no combination for which it has no value.
    """
    frontier: dict[tuple[Expression, ...], int] = {tuple(constraints): 0}
    children = []
    steps = 0
    for values in levels:
        following: dict[tuple[Expression, ...], int] = {}
        steps += len(frontier) * len(values) * max(1, len(constraints))
        if steps > MAX_STEPS:
            rule = "tie too many values of their parameters together to be counted exactly: take coarser steps"
            raise SpecError("constraints", len(constraints), rule)
        table = np.full((len(frontier), len(values)), DEAD, dtype=np.intp)
        for residual, node in frontier.items():
            for index, setting in enumerate(values):
                remaining = _remaining(residual, setting)
                if remaining is not None:
                    table[node, index] = following.setdefault(remaining, len(following))
        children.append(table)
        frontier = following
    return Diagram(tuple(children))


def _remaining(residual: tuple[Expression, ...], setting: Mapping[str, Known]) -> tuple[Expression, ...] | None:
    """Return the constraints that remain after *setting*; None if one can no longer hold, or has no value."""
    remaining = []
    for constraint in residual:
        simpler = substitute(constraint, setting)
        if simpler in (FALSE, UNDEFINED):
            return None
        if simpler != TRUE:
            remaining.append(simpler)
    return tuple(remaining)


def _cumulate(share: Floats) -> Floats:
    """Return cumulative shares that reach exactly 1 at the last value with a share, despite rounding."""
    total = share.cumsum(axis=1)
    last_value = share.shape[1] - 1 - (share[:, ::-1] > 0).argmax(axis=1)
    total[np.arange(share.shape[1])[None, :] >= last_value[:, None]] = 1.0
    return total
