"""Algorithms on graphs: nodes after those that they wait for, and nodes by their distance."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, TypeVar

Node = TypeVar("Node", bound=Hashable)


def sort_after_waits(waits: Sequence[Iterable[int]], keys: Sequence[Any]) -> list[int]:
    """Return nodes 0, 1 ... by their *keys*, but each after those that it waits for; without those that never can be.

    >>> sort_after_waits([[2], [], []], [0, 1, 2]), sort_after_waits([[1], [0], []], [0, 1, 2])
    ([1, 2, 0], [2])
    """
    sorter = TopologicalSorter(dict(enumerate(waits)))
    with suppress(CycleError):  # what no cycle holds up is sorted nevertheless
        sorter.prepare()
    ready = [(keys[node], node) for node in sorter.get_ready()]
    heapify(ready)
    order = []
    while ready:
        _, node = heappop(ready)
        order.append(node)
        sorter.done(node)
        for freed in sorter.get_ready():
            heappush(ready, (keys[freed], freed))
    return order


def nearest_first(
    start: Node,
    cost: Any,
    moves: Callable[[Node, Any], Iterable[tuple[Node, Any, Any]]],
    tie: Callable[[Node], Any] | None = None,
) -> Iterator[tuple[Node, Any, Any]]:
    """Yield every node that can be reached, the nearest first: with its distance, and the last move of its path.

    *cost* is that of *start*, whose move is None; *moves* yields from a node, and its distance, the next nodes with
    theirs and with the move to each (Dijkstra's algorithm: no distance is less than that of the node before). Nodes
    that are equally far come by *tie*, or as they were found.

    >>> roads = {"a": [("b", 4.0), ("c", 1.0)], "b": [], "c": [("b", 2.0)]}
    >>> list(nearest_first("a", 0.0, lambda node, far: ((to, far + length, node) for to, length in roads[node])))
    [('a', 0.0, None), ('c', 1.0, 'a'), ('b', 3.0, 'c')]
    """
    serial = count()
    distance = {start: cost}
    queue = [(cost, 0, start, None)]
    while queue:
        cost, _, node, move = heappop(queue)
        if cost > distance[node]:  # a shorter path was found after this entry was pushed
            continue
        yield node, cost, move
        for following, far, move in moves(node, cost):
            if following not in distance or far < distance[following]:
                distance[following] = far
                heappush(queue, (far, next(serial) if tie is None else tie(following), following, move))
