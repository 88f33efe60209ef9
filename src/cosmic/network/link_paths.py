"""Paths over the links of a network: shortest ones with the load of every link, and quickest ones.

Messages over the links of a graph: on shortest paths, and what they put on every link.

A path is shortest if it has the fewest links. Where several are, a message is split among them: at every node back
from its target, in proportion to the bandwidth of the links that lead there.

Quickest paths over the links of a network, one for each pair of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import require
from cosmic.network.link_graph import Floats, Ints, LinkGraph

# ---- Quickest paths over the links of a network, one for each pair of nodes

NO_LINK = -1
SAME = 1e-12
"""Paths whose times differ by this share are equally quick."""
TYPICAL_BYTES = 2.0**20
"""A message that is neither all latency nor all bandwidth."""


class Routes:
    """The quickest paths of a message of some size; without *relays*, only switches lie between their ends.

    Of paths that are equally quick, the first that is found, which is over nodes of low numbers; or, *balanced*, the
    one whose busiest link other such paths have taken least.
    """

    def __init__(
        self, graph: LinkGraph, size_bytes: float = TYPICAL_BYTES, *, relays: bool = True, balanced: bool = False
    ) -> None:
        self._graph, self._relays, self._balanced = graph, relays, balanced
        self._cost = (graph.latency_s + size_bytes / graph.bandwidth_bytes_per_s).tolist()
        order = np.argsort(graph.sources, kind="stable")
        self._out, self._targets = order.tolist(), graph.targets.tolist()
        self._sources = graph.sources.tolist()
        self._first = np.searchsorted(graph.sources[order], np.arange(graph.nodes + 1)).tolist()
        self._trees: dict[int, list[int]] = {}
        self._taken_s = [0.0] * graph.links
        self._paths: dict[tuple[int, int], tuple[int, ...]] = {}
        self._ways: dict[int, list[list[int]]] = {}

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """Return the links from one node to another."""
        links = self._paths.get((source, target))
        if links is None:
            self._paths[source, target] = links = self._walk(source, target)
        return links

    def paths(self, source: int, target: int, limit: int) -> tuple[tuple[int, ...], ...]:
        """Return up to *limit* paths from one node to another that are equally quick, if *balanced*; else the one.

        They differ in the nodes that they pass: of links beside each other, they have the first.
        """
        first = self.path(source, target)
        ways = self._ways[source]
        if not ways:
            return (first,)
        listed: list[tuple[int, ...]] = []
        open_ends: list[tuple[int, tuple[int, ...]]] = [(target, ())]
        while open_ends and len(listed) < limit:
            node, rest = open_ends.pop()
            if node == source:
                listed.append(rest)
                continue
            before = {self._sources[link]: link for link in reversed(ways[node])}
            open_ends += [(above, (link, *rest)) for above, link in before.items()]
        return tuple(listed)

    def _walk(self, source: int, target: int) -> tuple[int, ...]:
        came = self._tree(source)
        links: list[int] = []
        node = target
        while node != source:
            link = came[node]
            if link == NO_LINK:
                ends = f"{self._graph.name(source)} to {self._graph.name(target)}"
                why = "is not connected: no path" if self._relays else "has no link and no path of switches that"
                require(False, "network", f"{self._graph.npus} NPUs", f"{why} leads from {ends}")
            links.append(link)
            node = self._sources[link]
        return tuple(reversed(links))

    def _tree(self, source: int) -> list[int]:
        """Return the last link of the path from *source* to each node."""
        if source in self._trees:
            return self._trees[source]
        came = [NO_LINK] * self._graph.nodes
        cost = [float("inf")] * self._graph.nodes
        cost[source] = 0.0
        queue = [(0.0, source)]
        ways: list[list[int]] = [[] for _ in came] if self._balanced else []
        while queue:
            so_far, node = heappop(queue)
            if so_far > cost[node]:
                continue
            if self._balanced and node != source:
                came[node] = self._least_taken(came, ways[node])
            if not self._relays and source != node < self._graph.npus:
                continue
            for link in self._out[self._first[node] : self._first[node + 1]]:
                target, total = self._targets[link], so_far + self._cost[link]
                if self._balanced and total <= cost[target] * (1 + SAME):
                    ways[target] = [*(ways[target] if total >= cost[target] * (1 - SAME) else ()), link]
                if total < cost[target]:
                    cost[target], came[target] = total, link
                    heappush(queue, (total, target))
        self._trees[source], self._ways[source] = came, ways
        return came

    def _least_taken(self, came: list[int], ways: list[int]) -> int:
        """Return the last link of the path to a node that is taken least, by its busiest link; and take it."""
        paths = []
        for link in ways:
            path = [link]
            while (before := came[self._sources[path[-1]]]) != NO_LINK:
                path.append(before)
            paths.append(path)
        taken = [sorted((self._taken_s[link] + self._cost[link] for link in path), reverse=True) for path in paths]
        best = paths[min(range(len(paths)), key=taken.__getitem__)]
        for link in best:
            self._taken_s[link] += self._cost[link]
        return best[0]

    def next_links(self, sources: Sequence[int]) -> dict[int, Ints]:
        """Return, for each source, the first link towards each node; -1 where it is itself or none leads there."""
        return {source: np.array(self._first_links(source), np.int64) for source in sources}

    def _first_links(self, source: int) -> list[int]:
        came = self._tree(source)
        first = [NO_LINK] * len(came)
        for target in range(len(came)):
            chain: list[int] = []
            node = target
            while node != source and first[node] == NO_LINK and came[node] != NO_LINK:
                chain.append(node)
                node = self._sources[came[node]]
            for step in reversed(chain):
                above = self._sources[came[step]]
                first[step] = came[step] if above == source else first[above]
        return first


def next_links(graph: LinkGraph, size_bytes: float = TYPICAL_BYTES) -> Ints:
    """Return the next link of a message at a node (row) for another (column), on the quickest path; -1 for none.

    >>> from cosmic.network.link_graph import graph_of
    >>> ring = graph_of(3, [(0, 1, 1e9, 0.0), (1, 2, 1e9, 0.0), (2, 0, 1e9, 0.0)])
    >>> next_links(ring).tolist()
    [[-1, 0, 0], [1, -1, 1], [2, 2, -1]]
    """
    by_node = Routes(graph, size_bytes).next_links(range(graph.nodes))
    return np.stack([by_node[node] for node in range(graph.nodes)])


# ---- Messages over the links of a graph: on shortest paths, and what they put on every link

ROOM = 4_000_000
"""Numbers of a table over sources and links that is held at once."""
Bools = npt.NDArray[np.bool_]


def hop_distances(graph: LinkGraph, sources: Ints, wanted: Bools | None = None) -> Ints:
    """Return the links between each of *sources* and every node; -1 where no path leads there.

    Nodes farther away than all that are *wanted* for, by source, are left at -1.

    >>> from cosmic.network.link_graph import graph_of
    >>> hop_distances(graph_of(3, [(0, 1, 1.0, 0.0), (1, 2, 1.0, 0.0)]), np.array([0, 2])).tolist()
    [[0, 1, 2], [-1, -1, 0]]
    """
    # Breadth first from all sources at once: a row for each source, a level of distance in each pass.
    into = _Sums(graph.targets)
    distances = np.full((len(sources), graph.nodes), -1, np.int64)
    distances[np.arange(len(sources)), sources] = 0
    level = 0
    while True:
        reached: Bools = into.any((distances == level)[:, graph.sources], graph.nodes) & (distances < 0)
        if not reached.any():
            return distances
        level += 1
        distances[reached] = level
        if wanted is not None and (distances[wanted] >= 0).all():
            return distances


def link_loads(graph: LinkGraph, sources: Ints, targets: Ints, sizes: Floats) -> tuple[Floats, float]:
    """Return the bytes that messages put on every link, and the longest latency of a message's path.

    >>> from cosmic.network.link_graph import graph_of
    >>> ring = graph_of(3, [(0, 1, 1.0, 1.0), (1, 2, 1.0, 1.0), (2, 0, 1.0, 1.0)])
    >>> carried, latency = link_loads(ring, np.array([0, 1]), np.array([2, 2]), np.array([5.0, 2.0]))
    >>> carried.tolist(), latency
    ([5.0, 7.0, 0.0], 2.0)
    """
    total, longest = np.zeros(graph.links), 0.0
    for block, demand in _block_demands(graph, sources, targets, sizes):
        carried, latency = _route_block(graph, block, demand)
        total += carried
        longest = max(longest, latency)
    return total, longest


def _block_demands(graph: LinkGraph, sources: Ints, targets: Ints, sizes: Floats) -> Iterator[tuple[Ints, Floats]]:
    """Yield blocks of sources, and the bytes from each of them to every node."""
    senders, row = np.unique(sources, return_inverse=True)
    step = max(1, ROOM // max(1, graph.links))
    for first in range(0, len(senders), step):
        chosen = (row >= first) & (row < first + step)
        demand = np.zeros((len(senders[first : first + step]), graph.nodes))
        np.add.at(demand, (row[chosen] - first, targets[chosen]), sizes[chosen])
        yield senders[first : first + step], demand


def _route_block(graph: LinkGraph, sources: Ints, demand: Floats) -> tuple[Floats, float]:
    """Return the bytes on every link, and the longest latency, of what some sources send."""
    apart = hop_distances(graph, sources, demand > 0)
    into, out = _Sums(graph.targets), _Sums(graph.sources)
    begins, ends = apart[:, graph.sources], apart[:, graph.targets]
    # Of the links on shortest paths into a node, each carries in proportion to its bandwidth.
    weight = np.where((begins >= 0) & (begins + 1 == ends), graph.bandwidth_bytes_per_s, 0.0)
    total = into.sum(weight, graph.nodes)[:, graph.targets]
    part = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
    levels = range(1, int(apart.max(initial=0)) + 1)
    latency = np.zeros(demand.shape)
    for level in levels:
        arriving = np.where((weight > 0) & (ends == level), latency[:, graph.sources] + graph.latency_s, 0.0)
        latency = np.maximum(latency, into.most(arriving, graph.nodes))
    carried, remaining = np.zeros(graph.links), demand.copy()
    # From the farthest nodes back: what a node receives or passes on arrives over the links before it.
    for level in reversed(levels):
        passed = np.where(ends == level, remaining[:, graph.targets] * part, 0.0)
        carried += passed.sum(axis=0)
        remaining += out.sum(passed, graph.nodes)
    return carried, float(latency[demand > 0].max(initial=0.0))


class _Sums:
    """Sums, and the like, of columns over the links of each node."""

    def __init__(self, nodes: Ints) -> None:
        self._order = np.argsort(nodes, kind="stable")
        self._nodes, self._starts = np.unique(nodes[self._order], return_index=True)

    def sum(self, values: Floats, nodes: int) -> Floats:
        sums: Floats = self._spread(np.add, values, nodes)
        return sums

    def most(self, values: Floats, nodes: int) -> Floats:
        maxima: Floats = self._spread(np.maximum, values, nodes)
        return maxima

    def any(self, values: Bools, nodes: int) -> Bools:
        hits: Bools = self._spread(np.logical_or, values, nodes)
        return hits

    def _spread(self, function: np.ufunc, values: npt.NDArray[Any], nodes: int) -> npt.NDArray[Any]:
        result = np.zeros((len(values), nodes), values.dtype)
        if len(self._starts):
            result[:, self._nodes] = function.reduceat(values[:, self._order], self._starts, axis=1)
        return result
