"""Which dependencies close cycles.

Dependencies are added one by one, the most credible first; one that would close a cycle with those before it is left
out. So every cycle loses its least credible dependency, and no dependency is left out without a cycle. An order of the
nodes is kept as dependencies are added (Pearce and Kelly 2006, A dynamic topological sort algorithm for directed
acyclic graphs): only one that contradicts the order needs a search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cosmic.traces.order import Dependencies, topological_order
from cosmic.traces.trace import Ints

Mask = npt.NDArray[np.bool_]
MOST_VISITS = 5_000_000
"""Nodes that all searches may visit together: seconds. Then what contradicts the order is left out without a search."""


@dataclass(frozen=True, slots=True)
class Closing:
    """Which dependencies of each kind close a cycle."""

    certain: list[Mask]
    unsure: list[Mask]
    """Those that contradict the order of the others, when there are too many to search for cycles."""


def closing_a_cycle(both: Dependencies, kinds: Sequence[Dependencies], place: Ints, most: int = MOST_VISITS) -> Closing:
    """Return which dependencies of *kinds*, the most credible kind first, close a cycle; *both* are all of them.

    Of a kind, those on a row with a later *place* are less credible. All must be satisfiable.
    """
    nothing = [np.zeros(len(each.row), bool) for each in kinds]
    stuck = _between_cycles(both)
    if not stuck.any():
        return Closing(nothing, nothing)
    rows = np.flatnonzero(stuck)
    rows = rows[np.argsort(place[rows], kind="stable")]
    number = np.full(both.nodes, -1)
    number[rows] = np.arange(len(rows))
    order, found = _Order(len(rows), most), Closing(nothing, [each.copy() for each in nothing])
    for kind, certain, unsure in zip(kinds, found.certain, found.unsure, strict=True):
        inside = np.flatnonzero(stuck[kind.dependent] & stuck[kind.row])
        after, before = number[kind.dependent[inside]], number[kind.row[inside]]
        credible = np.argsort(before > after, kind="stable")
        triples = zip(*(each[credible].tolist() for each in (inside, before, after)), strict=True)
        for at, first, then in triples:
            if not order.add(first, then):
                (unsure if order.gave_up else certain)[at] = True
    return found


def _between_cycles(dependencies: Dependencies) -> Mask:
    """Return the rows in cycles, and those between two cycles."""
    stuck = np.ones(dependencies.nodes, bool)
    stuck[topological_order(dependencies)] = False
    if not stuck.any():
        return stuck
    # What only waits for a cycle is peeled; what only a cycle waits for is left: the same again, the other way round.
    kept = stuck[dependencies.dependent] & stuck[dependencies.row]
    dependent, row = dependencies.row[kept], dependencies.dependent[kept]
    order = np.argsort(dependent, kind="stable")
    turned = Dependencies(dependencies.nodes, dependent[order], row[order], row[order], np.zeros(len(row), bool))
    stuck[topological_order(turned)] = False
    return stuck


class _Order:
    """Nodes in an order in which each comes after those that it waits for."""

    def __init__(self, nodes: int, most: int) -> None:
        self._place = list(range(nodes))
        self._after: list[list[int]] = [[] for _ in range(nodes)]
        self._before: list[list[int]] = [[] for _ in range(nodes)]
        self._left = most
        self.gave_up = False
        """Whether the last node was refused without a search."""

    def add(self, first: int, then: int) -> bool:
        """Note that *then* waits for *first*, and return whether that closes no cycle."""
        place = self._place
        self.gave_up = False
        if place[first] > place[then]:
            if self._left <= 0:
                self.gave_up = True
                return False
            later = self._reached(then, self._after, range(place[then], place[first] + 1))
            if first in later:
                return False
            earlier = self._reached(first, self._before, range(place[then], place[first] + 1))
            self._reorder(earlier, later)
        self._after[first].append(then)
        self._before[then].append(first)
        return True

    def _reached(self, start: int, ways: list[list[int]], within: range) -> set[int]:
        """Return what is reached from *start*, of nodes whose place is *within*."""
        seen, waiting = {start}, [start]
        while waiting:
            ahead = ways[waiting.pop()]
            self._left -= 1 + len(ahead)
            fresh = [each for each in ahead if each not in seen and self._place[each] in within]
            seen.update(fresh)
            waiting += fresh
        return seen

    def _reorder(self, earlier: set[int], later: set[int]) -> None:
        """Move *earlier* nodes before *later* ones, into the places that they have together."""
        by_place = self._place.__getitem__
        nodes = sorted(earlier, key=by_place) + sorted(later, key=by_place)
        for node, place in zip(nodes, sorted(map(by_place, nodes)), strict=True):
            self._place[node] = place
