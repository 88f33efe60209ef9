"""What a network lets through (maximum flows, distances), and groups of a collective checked against it.

The rate x of an all-gather is the largest at which every member can send to all others at once. It is feasible when
the maximum flow to each member v, from all others that supply x each, is (p - 1) x; else the minimum cut, S without v,
bounds it by

    B+(S) / |S's members|

and that is the next x to try (Dinkelbach). Every cut that is tighter still leaves the members that got their x on the
side of the sources; so they supply without limit from then on, and later flows come from nearby.

Groups of accelerators that take part in a collective are checked against the network: who can reach whom.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ctypes import Structure, byref, c_double, c_int64, c_void_p
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import require
from cosmic.base.graphs import nearest_first
from cosmic.base.native.library import native_library
from cosmic.network.link_graph import Floats, Ints, LinkGraph
from cosmic.network.schedules.collective_schedule import KINDS, Kind

# ---- What a network lets through: its tightest cut by maximum flows, and its distances

SMALL, CLOSE = 1e-12, 1e-9
"""Of a flow that is wanted: what counts as nothing, and how near is near enough."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Net:
    """The links of a network with a number each, and those into and out of each node."""

    nodes: int
    source: Ints
    target: Ints
    in_first: Ints
    in_links: Ints
    out_first: Ints
    out_links: Ints
    capacity: Floats


def net_of(graph: LinkGraph, capacity: Floats) -> Net:
    """Return the links of a network, each with its *capacity* or length."""
    into, out = np.argsort(graph.targets, kind="stable"), np.argsort(graph.sources, kind="stable")
    nodes = np.arange(graph.nodes + 1)
    in_first = np.searchsorted(graph.targets[into], nodes)
    out_first = np.searchsorted(graph.sources[out], nodes)
    return Net(graph.nodes, graph.sources, graph.targets, in_first, into, out_first, out, np.asarray(capacity))


def cut_rate(net: Net, members: Ints, root: int | None, sinks: Ints, rate: float) -> tuple[float, Bytes | None]:
    """Return the rate that all *sinks* get, at most *rate*, and the nodes before the cut that sets it, if one does.

    With a *root* it alone sends; else every member does.
    """
    member = np.zeros(net.nodes, np.uint8)
    member[members] = 1
    library = native_library()
    cut = np.zeros(net.nodes, np.uint8)
    if library is None:
        lowest = _Flow(net, member).lowest(root, [int(sink) for sink in sinks], rate, cut)
    else:
        result, ends = c_double(rate), np.ascontiguousarray(sinks, np.int32)
        status = library.cosmic_cut_rate(
            byref(_FlowInputs.of(net)),
            member.ctypes.data,
            -1 if root is None else root,
            ends.ctypes.data,
            len(ends),
            byref(result),
            cut.ctypes.data,
        )
        if status < 0:
            raise MemoryError
        lowest = result.value
    return lowest, cut if lowest < rate else None


@dataclass(frozen=True, eq=False)
class Distances:
    """How far members are from some sources, and the ways there."""

    largest: Floats
    """Of each source, to the farthest member; infinite if there is no way."""
    total: Floats
    """Of each source, to all members."""
    load: Floats
    """How many of the ways each link is on."""


def member_distances(net: Net, members: Ints, sources: Ints) -> Distances:
    """Return how far *members* are from each source, by the capacities of links as their lengths."""
    member = np.zeros(net.nodes, np.uint8)
    member[members] = 1
    result = Distances(np.zeros(len(sources)), np.zeros(len(sources)), np.zeros(len(net.source)))
    library = native_library()
    if library is None:
        for row, source in enumerate(sources.tolist()):
            result.largest[row], result.total[row] = _shortest_distances(net, member, source, result.load)
        return result
    starts = np.ascontiguousarray(sources, np.int32)
    status = library.cosmic_distances(
        byref(_FlowInputs.of(net)),
        member.ctypes.data,
        starts.ctypes.data,
        len(starts),
        result.largest.ctypes.data,
        result.total.ctypes.data,
        result.load.ctypes.data,
    )
    if status < 0:
        raise MemoryError
    return result


def reachable_from(net: Net, source: int, *, back: bool = False) -> set[int]:
    """Return the nodes that can be reached from *source*, or that can reach it."""
    first, links, ends = (
        (net.in_first, net.in_links, net.source) if back else (net.out_first, net.out_links, net.target)
    )
    reached, frontier = {source}, [source]
    while frontier:
        node = frontier.pop()
        for link in links[first[node] : first[node + 1]].tolist():
            neighbour = int(ends[link])
            if neighbour not in reached:
                reached.add(neighbour)
                frontier.append(neighbour)
    return reached


def near_first(net: Net, source: int) -> list[int]:
    """Return the nodes that can be reached from *source*, the nearest first."""
    order, reached = [source], {source}
    for node in order:
        for link in net.out_links[net.out_first[node] : net.out_first[node + 1]].tolist():
            neighbour = int(net.target[link])
            if neighbour not in reached:
                reached.add(neighbour)
                order.append(neighbour)
    return order


def _shortest_distances(net: Net, member: Bytes, source: int, load: Floats) -> tuple[float, float]:
    def moves(node: int, far: float) -> Iterator[tuple[int, float, int]]:
        for link in net.out_links[net.out_first[node] : net.out_first[node + 1]].tolist():
            yield int(net.target[link]), far + float(net.capacity[link]), link

    distance, via, order = [inf] * net.nodes, [-1] * net.nodes, []
    for node, far, link in nearest_first(source, 0.0, moves, tie=int):
        distance[node] = far
        order.append(node)
        if link is not None:
            via[node] = link
    behind = [0.0] * net.nodes
    for node in reversed(order[1:]):
        behind[node] += float(member[node])
        load[via[node]] += behind[node]
        behind[int(net.source[via[node]])] += behind[node]
    largest = total = 0.0
    for node in np.flatnonzero(member).tolist():
        largest = max(largest, distance[node])
        total += distance[node]
    return largest, total


class _Flow:
    """Maximum flows into one sink after the other; as in cuts.c."""

    def __init__(self, net: Net, member: Bytes) -> None:
        self.net, self.member = net, member.tolist()
        self.arcs = [self._arcs(node) for node in range(net.nodes)]
        self.capacity = net.capacity.tolist()
        self.flow = [0.0] * len(self.capacity)
        self.left = [0.0] * net.nodes
        self.free = [False] * net.nodes
        self.least = 0.0
        self.level: dict[int, int] = {}
        self.next: dict[int, int] = {}

    def _arcs(self, node: int) -> list[tuple[int, int, bool]]:
        """Return the links at a node, those in before those out: the other end, the link, and whether it comes in."""
        net = self.net
        into = net.in_links[net.in_first[node] : net.in_first[node + 1]].tolist()
        out = net.out_links[net.out_first[node] : net.out_first[node + 1]].tolist()
        return [(int(net.source[link]), link, True) for link in into] + [
            (int(net.target[link]), link, False) for link in out
        ]

    def lowest(self, root: int | None, sinks: list[int], rate: float, cut: Bytes) -> float:
        """Lower the rate until each sink gets it."""
        members = sum(self.member)
        if root is not None:
            self.free[root] = True
        for sink in sinks:
            while True:
                # From a root each sink gets the rate; of an all-gather it gets it from every other member.
                wanted = rate if root is not None else (members - 1) * rate
                if self._fill_sink(sink, 0.0 if root is not None else rate, wanted) >= wanted * (1.0 - CLOSE):
                    break
                across = self._cut_rate(root is None)
                if not across < rate:
                    break
                rate = across
                cut[:] = [node not in self.level for node in range(self.net.nodes)]
            # A sink that gets the rate may hand on all that it has: to later sinks it is a source.
            self.free[sink] = True
        return rate

    def _room(self, link: int, inward: bool) -> float:
        return self.capacity[link] - self.flow[link] if inward else self.flow[link]

    def _supplies(self, node: int) -> bool:
        return self.free[node] or self.left[node] > self.least

    def _search(self, sink: int) -> bool:
        self.level, self.next = {sink: 0}, {sink: 0}
        queue, supply_level = [sink], -1
        for node in queue:
            if 0 <= supply_level <= self.level[node]:
                break
            for neighbour, link, inward in self.arcs[node]:
                if self._room(link, inward) <= self.least or neighbour in self.level:
                    continue
                self.level[neighbour], self.next[neighbour] = self.level[node] + 1, 0
                queue.append(neighbour)
                if supply_level < 0 and self._supplies(neighbour):
                    supply_level = self.level[neighbour]
        return supply_level >= 0

    def _find_path(self, sink: int) -> list[int] | None:
        """Return the nodes of one more shortest way, from the sink to one that supplies."""
        path = [sink]
        while path[-1] == sink or not self._supplies(path[-1]):
            node = path[-1]
            arcs = self.arcs[node]
            while self.next[node] < len(arcs):
                neighbour, link, inward = arcs[self.next[node]]
                if self._room(link, inward) > self.least and self.level.get(neighbour, -1) == self.level[node] + 1:
                    break
                self.next[node] += 1
            if self.next[node] < len(arcs):
                path.append(arcs[self.next[node]][0])
                continue
            path.pop()
            if not path:
                return None
            self.next[path[-1]] += 1
        return path

    def _augment(self, sink: int, wanted: float) -> float:
        path = self._find_path(sink)
        if path is None:
            return 0.0
        end = path.pop()
        amount = wanted if self.free[end] or self.left[end] > wanted else self.left[end]
        used = [self.arcs[node][self.next[node]] for node in path]
        for _, link, inward in used:
            amount = min(amount, self._room(link, inward))
        for _, link, inward in used:
            self.flow[link] += amount if inward else -amount
        if not self.free[end]:
            self.left[end] -= amount
        return amount

    def _fill_sink(self, sink: int, supply: float, wanted: float) -> float:
        total, self.least = 0.0, SMALL * wanted
        self.flow = [0.0] * len(self.capacity)
        self.left = [supply if member else 0.0 for member in self.member]
        self.left[sink] = 0.0
        while total < wanted * (1.0 - CLOSE) and self._search(sink):
            while total < wanted and (more := self._augment(sink, wanted - total)) > 0.0:
                total += more
        return total

    def _cut_rate(self, share: bool) -> float:
        ends = zip(self.net.source.tolist(), self.net.target.tolist(), self.capacity, strict=True)
        total = 0.0
        for source, target, capacity in ends:
            if source not in self.level and target in self.level:
                total += capacity
        members = sum(bool(flag) for node, flag in enumerate(self.member) if node not in self.level)
        return (total / members if members else inf) if share else total


class _FlowInputs(Structure):
    """`Net` of cuts.c."""

    _fields_ = [
        *((name, c_int64) for name in ("nodes", "links")),
        *((name, c_void_p) for name in ("source", "target", "in_first", "in_links", "out_first", "out_links")),
        ("capacity", c_void_p),
    ]
    kept: dict[str, Any]

    @staticmethod
    def of(net: Net) -> _FlowInputs:
        """Return a network as C reads it."""
        names = ("source", "target", "in_first", "in_links", "out_first", "out_links")
        arrays: dict[str, Any] = {name: np.ascontiguousarray(getattr(net, name), np.int32) for name in names}
        arrays["capacity"] = np.ascontiguousarray(net.capacity, np.float64)
        columns = {name: array.ctypes.data for name, array in arrays.items()}
        inputs = _FlowInputs(nodes=net.nodes, links=len(net.source), **columns)
        inputs.kept = arrays  # alive as long as the pointers to it
        return inputs


# ---- Who takes part in a collective: groups of accelerators, checked against a network

Groups = tuple[tuple[int, ...], ...]
MOST_CHUNKS = 1_000_000
"""The most chunks of a member."""
FROM_ALL: tuple[Kind, ...] = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
"""Collectives in which every member has something that all others wait for."""


def checked_groups(
    graph: LinkGraph, kind: Kind, size_bytes: float, groups: Sequence[Sequence[int]] | None, root: int
) -> Groups:
    """Return the groups of a collective: those stated, or one of all NPUs; raise where the network cannot carry it."""
    require(kind in KINDS, "collective", kind, f"must be one of {', '.join(KINDS)}")
    require(bool(np.isfinite(size_bytes)) and size_bytes > 0, "size", size_bytes, "must be positive")
    checked: Groups = (
        (tuple(range(graph.npus)),)
        if groups is None
        else tuple(tuple(int(member) for member in group) for group in groups)
    )
    require(len(checked) > 0, "groups", 0, "must have at least 1 group")
    _check_members(graph, checked)
    for index, group in enumerate(checked):
        rule = f"must be a place in group {index}, which has {len(group)} members, from 0"
        require(0 <= root < len(group), "root", root, rule)
        _check_reach(graph, kind, group, root)
    return checked


def check_chunks(chunks: int | None) -> None:
    """Raise where a stated number of chunks is none."""
    if chunks is not None:
        require(1 <= chunks <= MOST_CHUNKS, "chunks", chunks, f"must be between 1 and {MOST_CHUNKS:,}")


def _check_members(graph: LinkGraph, groups: Groups) -> None:
    members: set[int] = set()
    for index, group in enumerate(groups):
        require(len(group) > 0, f"groups.{index}", 0, "a group has at least 1 member")
        for member in group:
            rule = f"is no NPU: there are {graph.npus}, from 0"
            require(0 <= member < graph.npus, f"groups.{index}", member, rule)
            require(member not in members, f"groups.{index}", member, "is a member twice")
            members.add(member)


def _check_reach(graph: LinkGraph, kind: Kind, group: tuple[int, ...], root: int) -> None:
    """Raise where a member cannot be reached, or cannot reach the others."""
    if len(group) == 1:
        return
    net, start = net_of(graph, graph.bandwidth_bytes_per_s), group[root]
    for back in (False, True):
        if kind not in FROM_ALL and back != (kind == "reduce"):
            continue
        reached = reachable_from(net, start, back=back)
        for member in group:
            rule = f"there is no way {'from it to' if back else 'to it from'} node {graph.name(start)}"
            require(member in reached, f"node {graph.name(member)}", member, rule)
