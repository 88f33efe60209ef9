"""The ways from one node that keeps data to the next: a link, or links through switches.

Accelerators keep what they receive, and so do switches that add up and copy. Other switches pass each message on once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from cosmic.graphs.graph import Ints, LinkGraph


@dataclass(frozen=True, eq=False)
class Routes:
    """Routes between the nodes that keep data, sorted by where they begin."""

    keepers: Ints
    """The node of the network behind each node that keeps data."""
    from_: Ints
    to: Ints
    """Ends of each route, as places among the keepers."""
    hop_first: Ints
    """Where the links of each route begin in `hops`; one more than routes."""
    hops: Ints

    @property
    def count(self) -> int:
        """Number of routes."""
        return len(self.from_)


def routes_of(graph: LinkGraph, most: int) -> Routes:
    """Return the routes of a network; at most about *most* where switches would offer more."""
    keepers = np.array([*range(graph.npus), *sorted(graph.reducing)], np.int64)
    if not graph.switches:
        order = np.argsort(graph.sources, kind="stable")
        first = np.arange(graph.links + 1)
        return Routes(keepers, graph.sources[order], graph.targets[order], first, order)
    found = sorted(_routes(graph, keepers, most), key=lambda route: route[0])
    lengths = [len(route[2]) for route in found]
    return Routes(
        keepers,
        np.array([route[0] for route in found], np.int64),
        np.array([route[1] for route in found], np.int64),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.array([link for route in found for link in route[2]], np.int64),
    )


Route = tuple[int, int, tuple[int, ...]]


def _routes(graph: LinkGraph, keepers: Ints, most: int) -> Iterable[Route]:
    """Yield the routes: of each first link, the shortest to every keeper behind it."""
    places = {int(node): place for place, node in enumerate(keepers)}
    sources, targets = graph.sources.tolist(), graph.targets.tolist()
    out: list[list[int]] = [[] for _ in range(graph.nodes)]
    for link, source in enumerate(sources):
        out[source].append(link)
    few = _far_fewer(graph, len(keepers), most)
    behind: dict[int, dict[int, list[int]]] = {}
    for node, place in places.items():
        for link in out[node]:
            entry = targets[link]
            if entry in places:
                yield place, places[entry], (link,)
                continue
            if entry not in behind:
                behind[entry] = _behind(entry, out, targets, places)
            for last in behind[entry]:
                if last in places and last != node and (few is None or (places[last] - place) % len(places) in few):
                    ways = _path(entry, last, behind[entry], sources, place + places[last])
                    yield place, places[last], (link, *ways)


def _far_fewer(graph: LinkGraph, keepers: int, most: int) -> set[int] | None:
    """Return the distances of numbers that routes through switches may have, where all would be too many."""
    ports = int(np.count_nonzero((graph.sources < graph.npus) & (graph.targets >= graph.npus)))
    if ports * keepers <= most:
        return None
    return {1 << power for power in range(keepers.bit_length())} | {keepers - 1}


def _behind(entry: int, out: list[list[int]], targets: list[int], places: dict[int, int]) -> dict[int, list[int]]:
    """Return what is reached from a switch through switches alone, and the last links of the shortest ways there."""
    last: dict[int, list[int]] = {entry: []}
    edge = [entry]
    while edge:
        reached: dict[int, list[int]] = {}
        for node in edge:
            for link in out[node]:
                if targets[link] not in last:
                    reached.setdefault(targets[link], []).append(link)
        last |= reached
        edge = [node for node in reached if node not in places]
    return last


def _path(entry: int, end: int, last: dict[int, list[int]], sources: list[int], turn: int) -> list[int]:
    """Return the links from a switch to *end*; where ways are equally short, *turn* decides."""
    links: list[int] = []
    node = end
    while node != entry:
        choices = last[node]
        links.append(choices[turn % len(choices)])
        node = sources[links[-1]]
    return links[::-1]
