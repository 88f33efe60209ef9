"""Quickest paths over the links of a network, one for each pair of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np

from cosmic.errors import require
from cosmic.graphs.graph import Ints, LinkGraph

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
        found = self._paths.get((source, target))
        if found is None:
            self._paths[source, target] = found = self._walk(source, target)
        return found

    def paths(self, source: int, target: int, most: int) -> tuple[tuple[int, ...], ...]:
        """Return up to *most* paths from one node to another that are equally quick, if *balanced*; else the one.

        They differ in the nodes that they pass: of links beside each other, they have the first.
        """
        first = self.path(source, target)
        ways = self._ways[source]
        if not ways:
            return (first,)
        found: list[tuple[int, ...]] = []
        open_ends: list[tuple[int, tuple[int, ...]]] = [(target, ())]
        while open_ends and len(found) < most:
            node, rest = open_ends.pop()
            if node == source:
                found.append(rest)
                continue
            before = {self._sources[link]: link for link in reversed(ways[node])}
            open_ends += [(above, (link, *rest)) for above, link in before.items()]
        return tuple(found)

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
            for each in reversed(chain):
                above = self._sources[came[each]]
                first[each] = came[each] if above == source else first[above]
        return first


def route(graph: LinkGraph, size_bytes: float = TYPICAL_BYTES) -> Ints:
    """Return the next link of a message at a node (row) for another (column), on the quickest path; -1 for none.

    >>> from cosmic.graphs.graph import graph_of
    >>> ring = graph_of(3, [(0, 1, 1e9, 0.0), (1, 2, 1e9, 0.0), (2, 0, 1e9, 0.0)])
    >>> route(ring).tolist()
    [[-1, 0, 0], [1, -1, 1], [2, 2, -1]]
    """
    found = Routes(graph, size_bytes).next_links(range(graph.nodes))
    return np.stack([found[node] for node in range(graph.nodes)])
