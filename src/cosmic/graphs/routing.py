"""Messages over the links of a graph: on shortest paths, and what they put on every link.

A path is shortest if it has the fewest links. Where several are, a message is split among them: at every node back
from its target, in proportion to the bandwidth of the links that lead there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.graphs.graph import Floats, Ints, LinkGraph

ROOM = 4_000_000
"""Numbers of a table over sources and links that is held at once."""
Bools = npt.NDArray[np.bool_]


def distances(graph: LinkGraph, sources: Ints, asked: Bools | None = None) -> Ints:
    """Return the links between each of *sources* and every node; -1 where no path leads there.

    Nodes farther away than all that are *asked* for, by source, are left at -1.

    >>> from cosmic.graphs.graph import graph_of
    >>> distances(graph_of(3, [(0, 1, 1.0, 0.0), (1, 2, 1.0, 0.0)]), np.array([0, 2])).tolist()
    [[0, 1, 2], [-1, -1, 0]]
    """
    into = _Sums(graph.targets)
    found = np.full((len(sources), graph.nodes), -1, np.int64)
    found[np.arange(len(sources)), sources] = 0
    level = 0
    while True:
        there: Bools = into.any((found == level)[:, graph.sources], graph.nodes) & (found < 0)
        if not there.any():
            return found
        level += 1
        found[there] = level
        if asked is not None and (found[asked] >= 0).all():
            return found


def loads(graph: LinkGraph, sources: Ints, targets: Ints, sizes: Floats) -> tuple[Floats, float]:
    """Return the bytes that messages put on every link, and the longest latency of a message's path.

    >>> from cosmic.graphs.graph import graph_of
    >>> ring = graph_of(3, [(0, 1, 1.0, 1.0), (1, 2, 1.0, 1.0), (2, 0, 1.0, 1.0)])
    >>> carried, latency = loads(ring, np.array([0, 1]), np.array([2, 2]), np.array([5.0, 2.0]))
    >>> carried.tolist(), latency
    ([5.0, 7.0, 0.0], 2.0)
    """
    total, longest = np.zeros(graph.links), 0.0
    for block, demand in _demands(graph, sources, targets, sizes):
        carried, latency = _routed(graph, block, demand)
        total += carried
        longest = max(longest, latency)
    return total, longest


def _demands(graph: LinkGraph, sources: Ints, targets: Ints, sizes: Floats) -> Iterator[tuple[Ints, Floats]]:
    """Yield blocks of sources, and the bytes from each of them to every node."""
    senders, row = np.unique(sources, return_inverse=True)
    step = max(1, ROOM // max(1, graph.links))
    for first in range(0, len(senders), step):
        chosen = (row >= first) & (row < first + step)
        demand = np.zeros((len(senders[first : first + step]), graph.nodes))
        np.add.at(demand, (row[chosen] - first, targets[chosen]), sizes[chosen])
        yield senders[first : first + step], demand


def _routed(graph: LinkGraph, sources: Ints, demand: Floats) -> tuple[Floats, float]:
    """Return the bytes on every link, and the longest latency, of what some sources send."""
    apart = distances(graph, sources, demand > 0)
    into, out = _Sums(graph.targets), _Sums(graph.sources)
    begins, ends = apart[:, graph.sources], apart[:, graph.targets]
    weight = np.where((begins >= 0) & (begins + 1 == ends), graph.bandwidth_bytes_per_s, 0.0)
    there = into.sum(weight, graph.nodes)[:, graph.targets]
    part = np.divide(weight, there, out=np.zeros_like(weight), where=there > 0)
    levels = range(1, int(apart.max(initial=0)) + 1)
    latency = np.zeros(demand.shape)
    for level in levels:
        here = np.where((weight > 0) & (ends == level), latency[:, graph.sources] + graph.latency_s, 0.0)
        latency = np.maximum(latency, into.most(here, graph.nodes))
    carried, left = np.zeros(graph.links), demand.copy()
    for level in reversed(levels):
        passed = np.where(ends == level, left[:, graph.targets] * part, 0.0)
        carried += passed.sum(axis=0)
        left += out.sum(passed, graph.nodes)
    return carried, float(latency[demand > 0].max(initial=0.0))


class _Sums:
    """Sums, and the like, of columns over the links of each node."""

    def __init__(self, nodes: Ints) -> None:
        self._order = np.argsort(nodes, kind="stable")
        self._nodes, self._starts = np.unique(nodes[self._order], return_index=True)

    def sum(self, values: Floats, nodes: int) -> Floats:
        found: Floats = self._spread(np.add, values, nodes)
        return found

    def most(self, values: Floats, nodes: int) -> Floats:
        found: Floats = self._spread(np.maximum, values, nodes)
        return found

    def any(self, values: Bools, nodes: int) -> Bools:
        found: Bools = self._spread(np.logical_or, values, nodes)
        return found

    def _spread(self, function: np.ufunc, values: npt.NDArray[Any], nodes: int) -> npt.NDArray[Any]:
        found = np.zeros((len(values), nodes), values.dtype)
        if len(self._starts):
            found[:, self._nodes] = function.reduceat(values[:, self._order], self._starts, axis=1)
        return found
