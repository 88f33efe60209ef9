"""How fast a collective can be at all on a network, whatever the algorithm.

M bytes, p members, chunks of c bytes (k for each member), B bandwidth and a latency of links, τ = a + c / B:

    node       what must enter or leave one member, over its links
    cut        what must cross a set S of nodes: all-gather  M/p · |S| / B+(S), the largest over all S (ForestColl)
    ingress    smallest T at which Σ floor(T / τ) over the links into a member is all the chunks it must get
    distance   the farthest that a chunk must go, by τ; by latency alone where chunks may be as small as one likes

Reduce-scatter is all-gather with links turned round, reduce is broadcast so. In an all-reduce each side of a cut sends
its sum and gets the other's, M / B, and parts of a network exchange what `cosmic.synthesis.parting` says, unless
switches add up. A reduce-scatter and then an all-gather, as all-reduces are made here, may take longer than that where
members have unequal bandwidth: their two bounds together are `in_turn_s`. All-to-all has M/p bytes for each pair:
|S| (p - |S|) pairs cross a cut, and all pairs together need bandwidth on every link of their ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cosmic.graphs.graph import Floats, Ints, LinkGraph
from cosmic.graphs.schedule import Kind, chunk_bytes
from cosmic.synthesis.crossing import crossing_bandwidth, joint_cut, smaller_side
from cosmic.synthesis.flows import cut_rate, distances, near_first, net_of
from cosmic.synthesis.members import check_chunks, checked_groups
from cosmic.synthesis.parting import parted_s
from cosmic.synthesis.symmetry import Symmetry, symmetry_of

MOST_SOURCES = 1024
"""How many members distances are measured from where the network is not symmetric; fewer make a bound no less valid."""


STEPS = 80
"""How often links are made longer in search of a bound for all-to-all."""
MOST_LENGTHENED = 20_000_000
"""How many links are looked at meanwhile, at most."""


@dataclass(frozen=True)
class Bounds:
    """Lower bounds on the time of a collective, in seconds."""

    node_s: float
    cut_s: float
    ingress_s: float
    """With chunks of the stated number; 0 where none is."""
    distance_s: float
    cut: tuple[int, ...]
    """The nodes on the smaller side of the cut that binds."""
    in_turn_s: float = 0.0
    """Of an all-reduce that is a reduce-scatter, then an all-gather; 0 of other kinds, and where switches add up."""

    @property
    def seconds(self) -> float:
        """The largest: no schedule takes less."""
        return max(self.node_s, self.cut_s, self.ingress_s, self.distance_s)


NOTHING = Bounds(0.0, 0.0, 0.0, 0.0, ())


def bounds(
    graph: LinkGraph,
    kind: Kind,
    size_bytes: float,
    *,
    chunks: int | None = None,
    groups: Sequence[Sequence[int]] | None = None,
    root: int = 0,
) -> Bounds:
    """Return lower bounds on the time of a collective of *size_bytes* per NPU.

    >>> from cosmic.graphs.graph import graph_of
    >>> ring = graph_of(4, [(i, (i + j) % 4, 1e9, 0.0) for i in range(4) for j in (1, 3)])
    >>> bounds(ring, "all_gather", 4e9).seconds
    1.5
    """
    check_chunks(chunks)
    found = checked_groups(graph, kind, size_bytes, groups, root)
    symmetry = symmetry_of(graph) if groups is None else None
    each = [_Question(graph, kind, size_bytes, chunks, np.array(group), root, symmetry) for group in found]
    results = [_answer(question) for question in each if len(question.members) > 1]
    if not results:
        return NOTHING
    worst = max(results, key=lambda result: result.cut_s)
    several = [question.members for question in each]
    joint_s, cut = joint_cut(graph, kind, size_bytes, several, root) if len(found) > 1 else (0.0, worst.cut)
    return Bounds(
        max(result.node_s for result in results),
        max(worst.cut_s, joint_s),
        max(result.ingress_s for result in results),
        max(result.distance_s for result in results),
        cut if joint_s > worst.cut_s else worst.cut,
        max(result.in_turn_s for result in results),
    )


@dataclass(frozen=True, eq=False)
class _Question:
    """One group's collective."""

    graph: LinkGraph
    kind: Kind
    size_bytes: float
    chunks: int | None
    members: Ints
    root: int
    symmetry: Symmetry | None
    """Where the network looks the same from every member: its links by class, which turning them round leaves."""

    def turned(self, kind: Kind) -> _Question:
        """Return the question of *kind* with all links turned round."""
        return replace(self, graph=self.graph.transposed(), kind=kind)

    def seconds(self) -> Floats:
        """Return what a chunk takes on each link; its latency alone where chunks have no size."""
        if self.chunks is None:
            return self.graph.latency_s
        size = chunk_bytes(self.kind, self.size_bytes, len(self.members), self.chunks)
        return self.graph.latency_s + size / self.graph.bandwidth_bytes_per_s

    def sources(self) -> Ints:
        """Return the members from which distances are measured."""
        if self.symmetry is not None:
            return self.members[:1]
        count = len(self.members)
        places: Ints = np.unique(np.linspace(0, count - 1, min(count, MOST_SOURCES)).astype(np.int64))
        return self.members[places]


def _answer(question: _Question) -> Bounds:
    kind = question.kind
    if kind == "all_gather":
        return _gather(question)
    if kind == "reduce_scatter":
        return _gather(question.turned("all_gather"))
    if kind == "broadcast":
        return _broadcast(question)
    if kind == "reduce":
        return _broadcast(question.turned("broadcast"))
    if kind == "all_to_all":
        return _all_to_all(question)
    return _all_reduce(question)


def _gather(question: _Question) -> Bounds:
    graph, members, count = question.graph, question.members, len(question.members)
    into, out = _ports(graph)
    shares = np.concatenate([into[members] / (count - 1), out[members]])
    least = int(np.argmin(shares))
    net = net_of(graph, graph.bandwidth_bytes_per_s)
    sinks = members[:1] if question.symmetry is not None else _in_order(near_first(net, int(members[0])), members)
    rate, before = cut_rate(net, members, None, sinks, float(shares[least]))
    cut = (int(members[least % count]),) if before is None else smaller_side(before)
    part = question.size_bytes / count
    farthest = distances(net_of(graph, question.seconds()), members, question.sources())
    return Bounds(
        part / float(shares[least]),
        max(part / rate, _sent_once(graph, question.size_bytes * (count - 1))),
        _ingress(question, (count - 1) * (question.chunks or 0)),
        float(farthest.largest.max()),
        cut,
    )


def _broadcast(question: _Question) -> Bounds:
    graph, start = question.graph, int(question.members[question.root])
    others = question.members[question.members != start]
    into, out = _ports(graph)
    least = int(others[np.argmin(into[others])])
    first = min(float(out[start]), float(into[least]))
    net = net_of(graph, graph.bandwidth_bytes_per_s)
    rate, before = cut_rate(net, question.members, start, _in_order(near_first(net, start), others), first)
    narrow = start if out[start] == first else least
    farthest = distances(net_of(graph, question.seconds()), question.members, np.array([start]))
    return Bounds(
        question.size_bytes / first,
        max(question.size_bytes / rate, _sent_once(graph, question.size_bytes * len(others))),
        _ingress(replace(question, members=others), question.chunks or 0, question.seconds()),
        float(farthest.largest[0]),
        (narrow,) if before is None else smaller_side(before),
    )


def _sent_once(graph: LinkGraph, received_bytes: float) -> float:
    """Return what NPUs need to send all that is received: a switch that does not copy makes of one message no two.

    Without switches that is never the tightest bound, as all that is sent over a link is received over it.
    """
    if graph.reducing or not graph.switches:
        return 0.0
    _, out = _ports(graph)
    return received_bytes / float(out[: graph.npus].sum())


def _all_to_all(question: _Question) -> Bounds:
    graph, members, count = question.graph, question.members, len(question.members)
    into, out = _ports(graph)
    pair = question.size_bytes / count
    node_s = pair * (count - 1) / float(min(into[members].min(), out[members].min()))
    swept_s, cut = joint_cut(graph, "all_to_all", question.size_bytes, [members], 0)
    gathered = _gather(replace(question, kind="all_gather"))
    side = np.isin(members, gathered.cut).sum()
    crossing = min(crossing_bandwidth(graph, gathered.cut))
    by_cut_s = float(pair * side * (count - side) / crossing) if side and crossing else 0.0
    farthest = distances(net_of(graph, question.seconds()), members, question.sources())
    return Bounds(
        node_s,
        max(node_s, swept_s, by_cut_s, _carried(question, pair)),
        _ingress(question, (count - 1) * (question.chunks or 0)),
        float(farthest.largest.max()),
        cut if swept_s >= by_cut_s else gathered.cut,
    )


def _carried(question: _Question, pair_bytes: float) -> float:
    """Return the seconds that all links together need for all pairs.

    Whatever the lengths l of links, Σ over pairs of their distance · m <= T · Σ l B. Links that the shortest ways crowd
    are made longer, step by step, and the largest T is kept: what remains is the dual of the best concurrent flow.
    """
    graph, sources = question.graph, question.members[:MOST_SOURCES]
    classes = np.arange(graph.links)
    share = 1.0
    if question.symmetry is not None:
        sources, share, classes = question.members[:1], float(graph.npus), question.symmetry.link_class
    bandwidth, worst = graph.bandwidth_bytes_per_s, 0.0
    lengths = [np.ones(graph.links), 1 / bandwidth]
    steps = int(min(STEPS, max(MOST_LENGTHENED // max(len(sources) * graph.links, 1), 1)))
    for _ in range(steps):
        length = lengths[-1]
        found = distances(net_of(graph, length), question.members, sources)
        worst = max(worst, pair_bytes * share * float(found.total.sum()) / float((length * bandwidth).sum()))
        crowd = np.bincount(classes, found.load)[classes] / bandwidth
        lengths.append(length * (1 + 0.5 * crowd / crowd.max()))
    plain = distances(net_of(graph, lengths[0]), question.members, sources)
    return max(worst, pair_bytes * share * float(plain.total.sum()) / float(bandwidth.sum()))


def _all_reduce(question: _Question) -> Bounds:
    """Return what holds for all-reduces of any making: each side of every cut sends its sum and gets the other's."""
    graph, members = question.graph, question.members
    out = _broadcast(replace(question, kind="broadcast", chunks=None))
    back = _broadcast(replace(question, chunks=None).turned("broadcast"))
    worst = max(out, back, key=lambda each: each.cut_s)
    into, from_ = _ports(graph)
    least = float(min(into[members].min(), from_[members].min()))
    farthest = distances(net_of(graph, question.seconds()), members, question.sources())
    return Bounds(
        question.size_bytes / least,
        max(worst.cut_s, 0.0 if graph.reducing else parted_s(graph, question.size_bytes, members)),
        _ingress(question, len(members) * (question.chunks or 0)),  # of every chunk at least the sum, or the last part
        float(farthest.largest.max()),
        worst.cut,
        0.0 if graph.reducing else _in_turn_s(question),
    )


def _in_turn_s(question: _Question) -> float:
    """Return the bound of a reduce-scatter and that of an all-gather together, by bandwidth and chunks."""
    scatter, gather = _gather(question.turned("all_gather")), _gather(replace(question, kind="all_gather"))
    return sum(max(each.node_s, each.cut_s, each.ingress_s) for each in (scatter, gather))


def ingress_s(graph: LinkGraph, kind: Kind, size_bytes: float, chunks: int, groups: Sequence[Sequence[int]]) -> float:
    """Return when all members can have what they need of an all-gather, all-to-all or broadcast, links always busy."""
    worst = 0.0
    for group in groups:
        wanted = chunks if kind == "broadcast" else (len(group) - 1) * chunks
        members = np.array(group)
        if kind == "broadcast":  # the root needs none, and may have no links in
            members = members[np.isin(members, graph.targets)]
        if len(group) > 1:
            question = _Question(graph, kind, size_bytes, chunks, members, 0, None)
            sized = replace(question, members=np.array(group)).seconds()
            worst = max(worst, _ingress(question, wanted, sized))
    return worst


def _ports(graph: LinkGraph) -> tuple[Floats, Floats]:
    """Return the bandwidth into and out of each node."""
    into, out = np.zeros(graph.nodes), np.zeros(graph.nodes)
    np.add.at(into, graph.targets, graph.bandwidth_bytes_per_s)
    np.add.at(out, graph.sources, graph.bandwidth_bytes_per_s)
    return into, out


def _ingress(question: _Question, wanted: int, seconds: Floats | None = None) -> float:
    """Return when the last member can have *wanted* chunks, if all of its links were always busy."""
    if not wanted:
        return 0.0
    seconds = question.seconds() if seconds is None else seconds
    order = np.argsort(question.graph.targets, kind="stable")
    first = np.searchsorted(question.graph.targets[order], np.arange(question.graph.nodes + 1))
    profiles = {
        np.sort(seconds[order[first[member] : first[member + 1]]]).tobytes() for member in question.members.tolist()
    }
    return max(_fewest_seconds(np.frombuffer(profile), wanted) for profile in profiles)


def _fewest_seconds(seconds: Floats, wanted: int) -> float:
    """Return the smallest T with Σ floor(T / τ) >= *wanted*.

    >>> _fewest_seconds(np.array([1.0, 2.0]), 4)
    3.0
    """
    taus, links = np.unique(seconds, return_counts=True)
    fluid = wanted / float((links / taus).sum())
    first = np.maximum(np.floor(fluid / taus), 1)
    times = np.unique(np.concatenate([(first + more) * taus for more in range(-1, len(seconds) + 2)]))
    times = times[times > 0]

    def enough(time: float) -> bool:
        return float((links * np.floor(time / taus * (1 + 1e-12))).sum()) >= wanted

    low, high = 0, len(times) - 1
    while not enough(float(times[high])):
        times = np.append(times, times[high] + taus[0])
        high += 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(float(times[middle])) else (middle + 1, high)
    return float(times[low])


def _in_order(order: list[int], members: Ints) -> Ints:
    wanted = set(members.tolist())
    return np.array([node for node in order if node in wanted], np.int64)
