"""The least sum of costs of pairs of choices: variables are eliminated one after the other.

A *problem* has variables with few states each, a cost for each state, and a cost for each pair of states of two
variables that meet. To eliminate a variable is to replace the costs that it is in by their minimum over its states, a
table over its neighbours. The order is greedy: the smallest table first. On graphs that are nearly chains, as those
of programs are, tables stay small and the result is exact.

Where a table would grow beyond `MOST_ENTRIES`, the costs are split into groups that are minimised apart (Dechter and
Rish, mini-buckets, 2003): the sum of the minima is a bound, and what is chosen is improved variable by variable.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import prod

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
MOST_ENTRIES = 20_000_000
"""Entries of the largest table."""
LITTLE = 1e-9
"""What is this much less, relatively, is no improvement."""
SWEEPS = 50
"""Rounds of improvements, variable by variable, at most."""


@dataclass
class PairwiseCosts:
    """Variables by number, with costs of states and of pairs of states."""

    counts: list[int] = field(default_factory=list)
    """States of each variable."""
    single: list[Floats] = field(default_factory=list)
    """Costs of the states of each variable."""
    pairs: dict[tuple[int, int], Floats] = field(default_factory=dict)
    """Costs of pairs of states, by variables, the lower number first."""

    def value(self, states: list[int]) -> float:
        """Return the sum of all costs."""
        alone = sum(float(costs[state]) for costs, state in zip(self.single, states, strict=True))
        return alone + sum(float(costs[states[u], states[v]]) for (u, v), costs in self.pairs.items())


@dataclass(frozen=True)
class EliminationResult:
    """A state for every variable."""

    states: list[int]
    value: float
    bound: float
    """No choice of states has a smaller sum."""
    exact: bool
    """Whether no table was split, so that value and bound are equal but for rounding."""


@dataclass(frozen=True)
class _Table:
    """Costs over the states of some variables."""

    scope: tuple[int, ...]
    costs: Floats


def minimise_costs(problem: PairwiseCosts, most_entries: int = MOST_ENTRIES) -> EliminationResult:
    """Return states of the least sum, or nearly so, and a bound.

    >>> pair = {(0, 1): np.array([[3.0, 1.0], [0.0, 5.0]])}
    >>> minimise_costs(PairwiseCosts([2, 2], [np.array([0.0, 2.0]), np.zeros(2)], pair)).states
    [0, 1]
    """
    beside = _neighbours(problem)
    kept = [_undominated(problem.single[v], beside[v]) for v in range(len(problem.counts))]
    tables = [_Table((v,), costs[kept[v]]) for v, costs in enumerate(problem.single)]
    tables += [_Table((u, v), costs[np.ix_(kept[u], kept[v])]) for (u, v), costs in problem.pairs.items()]
    size = [len(each) for each in kept]
    work = _Elimination(tables, size, most_entries)
    work.run()
    chosen = _decode_states(work.done, size)
    states = [int(kept[v][chosen[v]]) for v in range(len(size))]
    if not work.exact:
        states = improve_states(problem, states)
    return EliminationResult(states, problem.value(states), work.bound, work.exact)


class _Elimination:
    """The tables that are left, by the variables that they are over."""

    def __init__(self, tables: list[_Table], size: list[int], most: int) -> None:
        self.size, self.most = size, most
        self.bound, self.exact = 0.0, True
        self.done: list[tuple[int, list[_Table]]] = []
        """Eliminated variables in order, each with the tables that it was in."""
        self.left: dict[int, list[_Table]] = {v: [] for v in range(len(size))}
        for table in tables:
            for v in table.scope:
                self.left[v].append(table)
        self.scopes = {v: self.scope(v) for v in self.left}

    def scope(self, variable: int) -> set[int]:
        """Return a variable and its neighbours."""
        return {variable}.union(*(set(each.scope) for each in self.left[variable]))

    def entries(self, variable: int) -> tuple[int, int]:
        """Return the entries of the table that a variable leaves, and the variable."""
        return prod(self.size[u] for u in self.scopes[variable]), variable

    def run(self) -> None:
        """Eliminate all variables, the one with the smallest table next."""
        queue = sorted(self.entries(v) for v in self.left)
        while queue:
            entry = heappop(queue)
            if entry[1] in self.left and entry == self.entries(entry[1]):  # else eliminated, or out of date
                for touched in self.eliminate(entry[1]):
                    self.scopes[touched] = self.scope(touched)
                    heappush(queue, self.entries(touched))

    def eliminate(self, variable: int) -> set[int]:
        """Replace the tables of a variable by their minimum over its states; return its neighbours."""
        bucket = self.left.pop(variable)
        self.done.append((variable, bucket))
        near = {u for table in bucket for u in table.scope if u != variable}
        gone = {id(table) for table in bucket}
        for u in near:
            self.left[u] = [each for each in self.left[u] if id(each) not in gone]
        groups = _groups(bucket, self.size, self.most)
        self.exact = self.exact and len(groups) == 1
        for group in groups:
            less = _eliminate_variable(group, variable, self.size)
            if isinstance(less, float):
                self.bound += less
            else:
                for u in less.scope:
                    self.left[u].append(less)
        return near


Neighbours = dict[int, list[tuple[int, Floats]]]
"""The variables that meet each one, with the costs of their states beside its own."""


def _neighbours(problem: PairwiseCosts) -> Neighbours:
    beside: Neighbours = {v: [] for v in range(len(problem.counts))}
    for (u, v), costs in problem.pairs.items():
        beside[u].append((v, costs))
        beside[v].append((u, costs.T))
    return beside


def _undominated(single: Floats, beside: list[tuple[int, Floats]]) -> npt.NDArray[np.intp]:
    """Return the states of a variable that no other state beats, whatever its neighbours are."""
    costs = np.concatenate([single[:, None], *(each for _, each in beside)], axis=1)
    order = np.argsort(costs.sum(axis=1), kind="stable")
    found: list[int] = []
    for state in order:
        if not found or not (costs[found] <= costs[state]).all(axis=1).any():
            found.append(int(state))
    return np.array(sorted(found), dtype=np.intp)


def _groups(bucket: list[_Table], size: list[int], most: int) -> list[list[_Table]]:
    """Return the tables of a bucket in groups whose joint tables are small enough."""
    groups: list[tuple[set[int], list[_Table]]] = []
    for table in sorted(bucket, key=lambda each: -each.costs.size):
        for scope, group in groups:
            if prod(size[v] for v in scope | set(table.scope)) <= most:
                scope |= set(table.scope)
                group.append(table)
                break
        else:
            groups.append((set(table.scope), [table]))
    return [group for _, group in groups]


def _eliminate_variable(group: list[_Table], variable: int, size: list[int]) -> _Table | float:
    scope = sorted(set().union(*(set(table.scope) for table in group)) - {variable})
    total = _sum_tables(group, (*scope, variable), size)
    least = total.min(axis=-1)
    return _Table(tuple(scope), least) if scope else float(least)


def _sum_tables(group: Iterable[_Table], scope: tuple[int, ...], size: list[int]) -> Floats:
    total = np.zeros(tuple(size[v] for v in scope))
    places = {v: index for index, v in enumerate(scope)}
    for table in group:
        order = sorted(range(len(table.scope)), key=lambda at: places[table.scope[at]])
        shape = [1] * len(scope)
        for v in table.scope:
            shape[places[v]] = size[v]
        total += table.costs.transpose(order).reshape(shape)
    return total


def _decode_states(done: list[tuple[int, list[_Table]]], size: list[int]) -> dict[int, int]:
    """Choose states from the last variable to the first: each the best for those chosen before it."""
    chosen: dict[int, int] = {}
    for variable, bucket in reversed(done):
        total = np.zeros(size[variable])
        for table in bucket:
            total += table.costs[tuple(chosen.get(v, slice(None)) for v in table.scope)]
        chosen[variable] = int(total.argmin())
    return chosen


def refine_states(problem: PairwiseCosts, states: list[int], labels: list[list[npt.NDArray[np.intp]]]) -> list[int]:
    """Return *states* after large changes: all variables at once, but for one part of each state that is held.

    *labels* have that part of every state of every variable, one after the other: where a mesh has three axes, what is
    split over one of them is held while the other two are chosen anew.
    """
    found, value = list(states), problem.value(states)
    held, unchanged = 0, 0
    while unchanged < len(labels):
        part = labels[held % len(labels)]
        kept = [np.flatnonzero(each == each[state]) for each, state in zip(part, found, strict=True)]
        less = PairwiseCosts(
            [len(each) for each in kept],
            [costs[kept[v]] for v, costs in enumerate(problem.single)],
            {(u, v): costs[np.ix_(kept[u], kept[v])] for (u, v), costs in problem.pairs.items()},
        )
        chosen = [int(kept[v][state]) for v, state in enumerate(minimise_costs(less).states)]
        better = problem.value(chosen)
        held += 1
        unchanged = 0 if better < value - LITTLE * abs(value) else unchanged + 1
        if better < value:
            found, value = chosen, better
    return found


def improve_states(problem: PairwiseCosts, states: list[int]) -> list[int]:
    """Return *states* after changes of one variable at a time, as long as one lowers the sum."""
    found = list(states)
    beside = _neighbours(problem)
    for _ in range(SWEEPS):
        changed = False
        for variable, near in beside.items():
            total = problem.single[variable].copy()
            for other, costs in near:
                total += costs[:, found[other]]
            best = int(total.argmin())
            if total[best] < total[found[variable]] - 1e-12 * abs(total[found[variable]]):
                found[variable], changed = best, True
        if not changed:
            break
    return found
