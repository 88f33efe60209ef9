"""Minimise a sum of costs of states and of pairs of states, by variable elimination.

A *problem* has variables with few states each, a cost for each state, and a cost for each pair of states of two
neighbouring variables. To eliminate a variable is to add up all tables of costs that it is in, and to replace them by
one: for each combination of states of its neighbours, the least cost over its own states. The order is greedy: the
smallest table first. On graphs that are nearly chains, as those of programs are, tables stay small and the result is
exact.

Where a table would grow beyond `MAX_ENTRIES`, the costs are split into groups that are minimised apart (Dechter and
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
MAX_ENTRIES = 20_000_000
"""Entries of the largest table."""
RELATIVE_TOLERANCE = 1e-9
"""A sum that is less by a smaller share than this is no improvement: it may be rounding."""
MAX_SWEEPS = 50
"""Rounds of improvements, variable by variable, at most."""


@dataclass
class PairwiseCosts:
    """A problem: variables, counted from 0, with costs of their states and of pairs of states."""

    counts: list[int] = field(default_factory=list)
    """How many states each variable has."""
    single: list[Floats] = field(default_factory=list)
    """Costs of the states of each variable."""
    pairs: dict[tuple[int, int], Floats] = field(default_factory=dict)
    """For two neighbouring variables, the lower number first: a matrix of the costs of their pairs of states."""

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


def minimise_costs(problem: PairwiseCosts, most_entries: int = MAX_ENTRIES) -> EliminationResult:
    """Return the states with the least sum, or nearly so where a table was split, and a bound on the least sum.

    >>> pair = {(0, 1): np.array([[3.0, 1.0], [0.0, 5.0]])}
    >>> minimise_costs(PairwiseCosts([2, 2], [np.array([0.0, 2.0]), np.zeros(2)], pair)).states
    [0, 1]
    """
    neighbours = _neighbours(problem)
    states_kept = [_undominated_states(problem.single[v], neighbours[v]) for v in range(len(problem.counts))]
    tables = [_Table((v,), costs[states_kept[v]]) for v, costs in enumerate(problem.single)]
    tables += [_Table((u, v), costs[np.ix_(states_kept[u], states_kept[v])]) for (u, v), costs in problem.pairs.items()]
    size = [len(indices) for indices in states_kept]
    work = _Elimination(tables, size, most_entries)
    work.run()
    chosen = _decode_states(work.done, size)
    states = [int(states_kept[v][chosen[v]]) for v in range(len(size))]
    if not work.exact:
        states = improve_states(problem, states)
    return EliminationResult(states, problem.value(states), work.bound, work.exact)


class _Elimination:
    """The tables of costs that are left as variables are eliminated one after the other."""

    def __init__(self, tables: list[_Table], size: list[int], most_entries: int) -> None:
        self.size, self.most_entries = size, most_entries
        self.bound, self.exact = 0.0, True
        self.done: list[tuple[int, list[_Table]]] = []
        """Eliminated variables in order, each with the tables that it was in."""
        self.remaining: dict[int, list[_Table]] = {v: [] for v in range(len(size))}
        """By variable that is left: the tables that it is in."""
        for table in tables:
            for v in table.scope:
                self.remaining[v].append(table)
        self.scopes = {v: self.scope(v) for v in self.remaining}

    def scope(self, variable: int) -> set[int]:
        """Return a variable and its neighbours."""
        return {variable}.union(*(set(table.scope) for table in self.remaining[variable]))

    def entries(self, variable: int) -> tuple[int, int]:
        """Return a variable's place in the queue: how many entries its tables have together, and its number."""
        return prod(self.size[u] for u in self.scopes[variable]), variable

    def run(self) -> None:
        """Eliminate all variables, the one with the smallest table next."""
        queue = sorted(self.entries(v) for v in self.remaining)
        while queue:
            entry = heappop(queue)
            if entry[1] in self.remaining and entry == self.entries(entry[1]):  # else eliminated, or out of date
                for touched in self.eliminate(entry[1]):
                    self.scopes[touched] = self.scope(touched)
                    heappush(queue, self.entries(touched))

    def eliminate(self, variable: int) -> set[int]:
        """Replace the tables of a variable by their minimum over its states; return its neighbours.

        Where they are too large together, each group is minimised apart, which makes the sum of the minima a bound.
        """
        bucket = self.remaining.pop(variable)
        self.done.append((variable, bucket))
        neighbours = {u for table in bucket for u in table.scope if u != variable}
        removed = {id(table) for table in bucket}
        for u in neighbours:
            self.remaining[u] = [other for other in self.remaining[u] if id(other) not in removed]
        groups = _group_tables(bucket, self.size, self.most_entries)
        self.exact = self.exact and len(groups) == 1
        for group in groups:
            reduced = _eliminate_variable(group, variable, self.size)
            if isinstance(reduced, float):
                self.bound += reduced
            else:
                for u in reduced.scope:
                    self.remaining[u].append(reduced)
        return neighbours


Neighbours = dict[int, list[tuple[int, Floats]]]
"""By variable: its neighbours, each with the costs of pairs of states: a row for a state of its own."""


def _neighbours(problem: PairwiseCosts) -> Neighbours:
    neighbours: Neighbours = {v: [] for v in range(len(problem.counts))}
    for (u, v), costs in problem.pairs.items():
        neighbours[u].append((v, costs))
        neighbours[v].append((u, costs.T))
    return neighbours


def _undominated_states(single: Floats, neighbours: list[tuple[int, Floats]]) -> npt.NDArray[np.intp]:
    """Return the states that are not dominated by another, which costs no more whatever the neighbours' states are."""
    costs = np.concatenate([single[:, None], *(table for _, table in neighbours)], axis=1)
    order = np.argsort(costs.sum(axis=1), kind="stable")
    undominated: list[int] = []
    for state in order:
        if not undominated or not (costs[undominated] <= costs[state]).all(axis=1).any():
            undominated.append(int(state))
    return np.array(sorted(undominated), dtype=np.intp)


def _group_tables(bucket: list[_Table], size: list[int], most_entries: int) -> list[list[_Table]]:
    """Return the tables of a bucket in groups whose joint tables are small enough."""
    groups: list[tuple[set[int], list[_Table]]] = []
    for table in sorted(bucket, key=lambda entry: -entry.costs.size):
        for scope, group in groups:
            if prod(size[v] for v in scope | set(table.scope)) <= most_entries:
                scope |= set(table.scope)
                group.append(table)
                break
        else:
            groups.append((set(table.scope), [table]))
    return [group for _, group in groups]


def _eliminate_variable(group: list[_Table], variable: int, size: list[int]) -> _Table | float:
    """Return the least sum of a group of tables over a variable's states: a table over the others, or one number."""
    scope = sorted(set().union(*(set(table.scope) for table in group)) - {variable})
    total = _sum_tables(group, (*scope, variable), size)
    least = total.min(axis=-1)
    return _Table(tuple(scope), least) if scope else float(least)


def _sum_tables(group: Iterable[_Table], scope: tuple[int, ...], size: list[int]) -> Floats:
    """Return the sum of tables, each broadcast over the variables of *scope*, an axis each."""
    total = np.zeros(tuple(size[v] for v in scope))
    positions = {v: index for index, v in enumerate(scope)}
    for table in group:
        order = sorted(range(len(table.scope)), key=lambda axis: positions[table.scope[axis]])
        shape = [1] * len(scope)
        for v in table.scope:
            shape[positions[v]] = size[v]
        total += table.costs.transpose(order).reshape(shape)
    return total


def _decode_states(done: list[tuple[int, list[_Table]]], size: list[int]) -> dict[int, int]:
    """Return the best states, chosen in reverse order of elimination.

    A variable's tables are over itself and variables that were eliminated after it: their states are chosen already.
    """
    chosen: dict[int, int] = {}
    for variable, bucket in reversed(done):
        total = np.zeros(size[variable])
        for table in bucket:
            total += table.costs[tuple(chosen.get(v, slice(None)) for v in table.scope)]
        chosen[variable] = int(total.argmin())
    return chosen


def refine_states(problem: PairwiseCosts, states: list[int], labels: list[list[npt.NDArray[np.intp]]]) -> list[int]:
    """Return *states* improved by large neighbourhood search: all variables are chosen anew, but only in part.

    Each entry of *labels* gives every state of every variable a label. Rounds take the entries in turn: a state may
    only change to one with the same label. With an entry for each axis of a mesh, what is split over that axis stays,
    and what is split over the others is chosen anew. Rounds end when no entry brings an improvement.
    """
    best, value = list(states), problem.value(states)
    round_number, unchanged_rounds = 0, 0
    while unchanged_rounds < len(labels):
        label = labels[round_number % len(labels)]
        allowed = [np.flatnonzero(of_states == of_states[state]) for of_states, state in zip(label, best, strict=True)]
        restricted = PairwiseCosts(
            [len(states_allowed) for states_allowed in allowed],
            [costs[allowed[v]] for v, costs in enumerate(problem.single)],
            {(u, v): costs[np.ix_(allowed[u], allowed[v])] for (u, v), costs in problem.pairs.items()},
        )
        chosen = [int(allowed[v][state]) for v, state in enumerate(minimise_costs(restricted).states)]
        better = problem.value(chosen)
        round_number += 1
        unchanged_rounds = 0 if better < value - RELATIVE_TOLERANCE * abs(value) else unchanged_rounds + 1
        if better < value:
            best, value = chosen, better
    return best


def improve_states(problem: PairwiseCosts, states: list[int]) -> list[int]:
    """Return *states* improved by coordinate descent: one variable at a time, as long as one lowers the sum."""
    improved = list(states)
    neighbours = _neighbours(problem)
    for _ in range(MAX_SWEEPS):
        changed = False
        for variable, beside in neighbours.items():
            total = problem.single[variable].copy()
            for neighbour, costs in beside:
                total += costs[:, improved[neighbour]]
            best = int(total.argmin())
            if total[best] < total[improved[variable]] - 1e-12 * abs(total[improved[variable]]):
                improved[variable], changed = best, True
        if not changed:
            break
    return improved
