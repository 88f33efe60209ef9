"""Lower bounds on the seconds of a collective on a network, whatever the algorithm.

M bytes, p members, chunks of c bytes (k for each member), B bandwidth and a latency of links, τ = a + c / B:

    node       what must enter or leave one member, over its links
    cut        what must cross a set S of nodes: all-gather  M/p · |S| / B+(S), the largest over all S (ForestColl)
    ingress    smallest T at which Σ floor(T / τ) over the links into a member is all the chunks it must get
    distance   the farthest that a chunk must go, by τ; by latency alone where chunks may be as small as one likes

Reduce-scatter is all-gather with links turned round, reduce is broadcast so. In an all-reduce each side of a cut
sends its sum and gets the other's, M / B, and parts of a network exchange what
`cosmic.network.synthesis.lower_bounds` says, unless switches add up. A reduce-scatter and then an all-gather, as
all-reduces are made here, may take longer than that where members have unequal bandwidth: their two bounds together
are `in_turn_s`. All-to-all has M/p bytes for each pair: |S| (p - |S|) pairs cross a cut, and all pairs together need
bandwidth on every link of their ways.

Cuts that are cheap to try: between the first nodes of a network, by number, and the rest; of a few nodes, all.

In grids and in hierarchies numbered from within, the narrowest waists are among them. They hold for several groups at
once, which share the links that cross.

What all-reduces must send between the parts of a network.

Of a network in q parts, each with some of the members, every byte of the sum takes 2 (q - 1) messages between parts:
q - 1 until some part has heard of all others, and q - 1 more until they have heard of it (the messages that gossip
among q needs). All of them leave a part, so that

    T >= 2 (q - 1) M / Σ B+(part)        and the same with what enters them

Parts that matter are those that narrow links part: what is left connected by links above some bandwidth. With every
node by itself this is the known 2 (p - 1) / p · M / B of p equal members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cosmic.base.json_types import json_keys
from cosmic.base.numeric import multiply
from cosmic.network.link_graph import Floats, Ints, LinkGraph
from cosmic.network.schedules.collective_schedule import Kind, chunk_bytes
from cosmic.network.synthesis.graph_symmetry import Symmetry, symmetry_of
from cosmic.network.synthesis.max_flow import (
    check_chunks,
    checked_groups,
    cut_rate,
    member_distances,
    near_first,
    net_of,
)

# ---- Cuts that are cheap to try: between the first nodes of a network, by number, and the rest; of a few nodes, all

FEW_NODES = 12
"""Nodes of which all cuts are tried."""
Cut = tuple[float, tuple[int, ...]]
"""Seconds that a cut takes, and the nodes on its smaller side."""


def smaller_side(before: npt.NDArray[np.uint8]) -> tuple[int, ...]:
    """Return the nodes on the smaller side of a cut; *before* marks one side."""
    inside, outside = np.flatnonzero(before), np.flatnonzero(before == 0)
    return tuple((inside if len(inside) <= len(outside) else outside).tolist())


def crossing_bandwidth(graph: LinkGraph, side: Sequence[int]) -> tuple[float, float]:
    """Return the bandwidth out of a set of nodes, and into it."""
    inside = np.zeros(graph.nodes, bool)
    inside[list(side)] = True
    begins, ends = inside[graph.sources], inside[graph.targets]
    bandwidth = graph.bandwidth_bytes_per_s
    return float(bandwidth[begins & ~ends].sum()), float(bandwidth[ends & ~begins].sum())


def joint_cut(graph: LinkGraph, kind: Kind, size_bytes: float, groups: Sequence[Ints], root: int) -> Cut:
    """Return the tightest of these cuts for all *groups* together."""
    if kind in ("all_gather", "all_to_all", "broadcast"):
        return _find_tightest_cut(graph, kind, size_bytes, groups, root)
    back = graph.transposed()
    if kind in ("reduce_scatter", "reduce"):
        return _find_tightest_cut(
            back, "all_gather" if kind == "reduce_scatter" else "broadcast", size_bytes, groups, root
        )
    return max(_find_tightest_cut(direction, "all_reduce", size_bytes, groups, root) for direction in (back, graph))


def _find_tightest_cut(graph: LinkGraph, kind: Kind, size_bytes: float, groups: Sequence[Ints], root: int) -> Cut:
    if 1 < graph.nodes <= FEW_NODES:
        return _try_all_cuts(graph, kind, size_bytes, groups, root)
    rank = _order_nodes(graph)
    forward, bandwidth = _prefix_bandwidth(graph, rank), graph.bandwidth_bytes_per_s
    if not len(forward):
        return 0.0, ()
    wanted = np.zeros(len(forward))
    for group in groups:
        inside = np.cumsum(np.bincount(rank[group], minlength=graph.nodes))[:-1]
        begun = np.arange(len(forward)) >= rank[group[root]]
        wanted += _leaving_bytes(kind, size_bytes, len(group), inside, begun)
    wide = forward > 1e-9 * bandwidth.max()  # less is what rounding left of nothing
    times = np.where(wide, wanted / np.where(wide, forward, 1.0), 0.0)
    worst = int(np.argmax(times))
    return float(times[worst]), smaller_side((rank <= worst).astype(np.uint8))


def _try_all_cuts(graph: LinkGraph, kind: Kind, size_bytes: float, groups: Sequence[Ints], root: int) -> Cut:
    """Return the tightest of all cuts of a few nodes."""
    # All subsets but the empty and the full one, as bits.
    sides = (np.arange(1, 2**graph.nodes - 1)[:, None] >> np.arange(graph.nodes)) & 1 == 1
    crosses = sides[:, graph.sources] & ~sides[:, graph.targets]
    forward = multiply(crosses, graph.bandwidth_bytes_per_s)
    wanted = np.zeros(len(sides))
    for group in groups:
        inside = sides[:, group].sum(axis=1)
        wanted += _leaving_bytes(kind, size_bytes, len(group), inside, sides[:, group[root]])
    times = np.where(forward > 0, wanted / np.where(forward > 0, forward, 1.0), 0.0)
    worst = int(np.argmax(times))
    return float(times[worst]), smaller_side(sides[worst].astype(np.uint8))


def _order_nodes(graph: LinkGraph) -> Ints:
    """Return the place of each node in order; a switch stands behind the first NPU that it joins."""
    position = np.arange(graph.nodes).astype(float)
    position[graph.npus :] = graph.npus
    for ends, far_ends in ((graph.sources, graph.targets), (graph.targets, graph.sources)):
        joined = (ends >= graph.npus) & (far_ends < graph.npus)
        np.minimum.at(position, ends[joined], far_ends[joined] + 0.5)
    rank = np.empty(graph.nodes, np.int64)
    rank[np.argsort(position, kind="stable")] = np.arange(graph.nodes)
    return rank


def _prefix_bandwidth(graph: LinkGraph, rank: Ints) -> Floats:
    """Return the bandwidth from the first node to the rest, from the first two, and so on."""
    begins, ends = rank[graph.sources], rank[graph.targets]
    forward = begins < ends
    # A link from rank a to rank b crosses the cuts after a up to the one before b: +1 and -1, summed up.
    change = np.zeros(graph.nodes)
    np.add.at(change, begins[forward], graph.bandwidth_bytes_per_s[forward])
    np.add.at(change, ends[forward], -graph.bandwidth_bytes_per_s[forward])
    return np.cumsum(change)[:-1]


def _leaving_bytes(kind: Kind, size_bytes: float, count: int, inside: Ints, begun: npt.NDArray[np.bool_]) -> Floats:
    """Return what must leave nodes that *inside* of *count* members are among, and the root where *begun*."""
    outside = count - inside
    if kind == "all_to_all":
        return np.asarray(size_bytes / count * inside * outside, np.float64)
    if kind == "all_reduce":
        return size_bytes * ((inside > 0) & (outside > 0)).astype(float)
    if kind == "broadcast":
        return size_bytes * (begun & (outside > 0)).astype(float)
    return np.asarray(size_bytes / count * inside * (outside > 0), np.float64)


# ---- What all-reduces must send between the parts of a network

MOST_LEVELS = 48
"""Bandwidths that are tried as the narrow ones."""
MOST_LINKS = 400_000
"""Links up to which parts are looked for beside single nodes."""


def parted_s(graph: LinkGraph, size_bytes: float, members: Ints) -> float:
    """Return the longest time that an all-reduce needs between the parts of a network.

    >>> from cosmic.network.link_graph import graph_of
    >>> ring = graph_of(4, [(i, (i + j) % 4, 1e9, 0.0) for i in range(4) for j in (1, 3)])
    >>> parted_s(ring, 4e9, np.arange(4))
    3.0
    """
    alone = np.arange(graph.nodes)
    worst = _between_s(graph, size_bytes, members, alone)
    levels = sorted(set(graph.bandwidth_bytes_per_s.tolist()))[:-1]  # above the widest no two nodes are joined
    if len(levels) > MOST_LEVELS:
        levels = [levels[place] for place in np.linspace(0, len(levels) - 1, MOST_LEVELS).astype(int)]
    if graph.links > MOST_LINKS:
        return worst
    for level in levels:
        parts = _connected_parts(graph, graph.bandwidth_bytes_per_s > level)
        worst = max(worst, _between_s(graph, size_bytes, members, parts))
    return worst


def _between_s(graph: LinkGraph, size_bytes: float, members: Ints, parts: Ints) -> float:
    """Return the time of messages between *parts*, by the bandwidth out of and into those that have NPUs."""
    count = len(set(parts[members].tolist()))
    if count < 2:
        return 0.0
    begins, ends = parts[graph.sources], parts[graph.targets]
    between = begins != ends
    housed = np.zeros(graph.nodes, bool)
    housed[parts[: graph.npus]] = True  # a switch by itself neither adds up nor copies
    rates = [float(graph.bandwidth_bytes_per_s[between & housed[side]].sum()) for side in (begins, ends)]
    return 2 * (count - 1) * size_bytes / min(rates)


def _connected_parts(graph: LinkGraph, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Ints:
    """Return the connected component of each node over the *kept* links, in either direction."""
    part = np.arange(graph.nodes)
    sources, targets = graph.sources[kept], graph.targets[kept]
    while True:
        lower = np.minimum(part[sources], part[targets])
        after = part.copy()
        np.minimum.at(after, sources, lower)
        np.minimum.at(after, targets, lower)
        after = after[after]
        if (after == part).all():
            labels: Ints = after
            return labels
        part = after


# ---- How fast a collective can be at all on a network, whatever the algorithm

MOST_SOURCES = 1024
"""How many members distances are measured from where the network is not symmetric; fewer make a bound no less valid."""


STEPS = 80
"""How often links are made longer in search of a bound for all-to-all."""
MOST_LENGTHENED = 20_000_000
"""How many links are looked at meanwhile, at most."""


@json_keys(without=("cut",))
@dataclass(frozen=True)
class Bounds:
    """Lower bounds on the time of a collective, in seconds."""

    node_s: float
    """What an NPU must send or receive over its own links."""
    cut_s: float
    """What must cross the links between two parts of the network."""
    ingress_s: float
    """Whole chunks into an NPU; 0 without a number of chunks."""
    distance_s: float
    """The way to the farthest NPU."""
    cut: tuple[int, ...]
    """The nodes on the smaller side of the cut that binds."""
    in_turn_s: float = 0.0
    """A reduce-scatter and then an all-gather, which is no bound on other all-reduces; 0 for other collectives, and where
    switches add up."""

    @property
    def seconds(self) -> float:
        """The largest of the bounds: no schedule takes less."""
        return max(self.node_s, self.cut_s, self.ingress_s, self.distance_s)


NOTHING = Bounds(0.0, 0.0, 0.0, 0.0, ())


def collective_bounds(
    graph: LinkGraph,
    kind: Kind,
    size_bytes: float,
    *,
    chunks: int | None = None,
    groups: Sequence[Sequence[int]] | None = None,
    root: int = 0,
) -> Bounds:
    """Return lower bounds on the time of a collective of *size_bytes* per NPU.

    >>> from cosmic.network.link_graph import graph_of
    >>> ring = graph_of(4, [(i, (i + j) % 4, 1e9, 0.0) for i in range(4) for j in (1, 3)])
    >>> collective_bounds(ring, "all_gather", 4e9).seconds
    1.5
    """
    check_chunks(chunks)
    checked = checked_groups(graph, kind, size_bytes, groups, root)
    symmetry = symmetry_of(graph) if groups is None else None
    questions = [_BoundQuestion(graph, kind, size_bytes, chunks, np.array(group), root, symmetry) for group in checked]
    results = [_bound_group(question) for question in questions if len(question.members) > 1]
    if not results:
        return NOTHING
    worst = max(results, key=lambda result: result.cut_s)
    group_members = [question.members for question in questions]
    joint_s, cut = joint_cut(graph, kind, size_bytes, group_members, root) if len(checked) > 1 else (0.0, worst.cut)
    return Bounds(
        max(result.node_s for result in results),
        max(worst.cut_s, joint_s),
        max(result.ingress_s for result in results),
        max(result.distance_s for result in results),
        cut if joint_s > worst.cut_s else worst.cut,
        max(result.in_turn_s for result in results),
    )


@dataclass(frozen=True, eq=False)
class _BoundQuestion:
    """One group's collective."""

    graph: LinkGraph
    kind: Kind
    size_bytes: float
    chunks: int | None
    members: Ints
    root: int
    symmetry: Symmetry | None
    """Where the network looks the same from every member: its links by class, which turning them round leaves."""

    def turned(self, kind: Kind) -> _BoundQuestion:
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
        indices: Ints = np.unique(np.linspace(0, count - 1, min(count, MOST_SOURCES)).astype(np.int64))
        return self.members[indices]


def _bound_group(question: _BoundQuestion) -> Bounds:
    kind = question.kind
    if kind == "all_gather":
        return _bound_gather(question)
    if kind == "reduce_scatter":
        return _bound_gather(question.turned("all_gather"))
    if kind == "broadcast":
        return _bound_broadcast(question)
    if kind == "reduce":
        return _bound_broadcast(question.turned("broadcast"))
    if kind == "all_to_all":
        return _bound_all_to_all(question)
    return _bound_all_reduce(question)


def _bound_gather(question: _BoundQuestion) -> Bounds:
    graph, members, count = question.graph, question.members, len(question.members)
    into, out = _port_bandwidth(graph)
    shares = np.concatenate([into[members] / (count - 1), out[members]])
    least = int(np.argmin(shares))
    net = net_of(graph, graph.bandwidth_bytes_per_s)
    sinks = (
        members[:1] if question.symmetry is not None else _members_in_order(near_first(net, int(members[0])), members)
    )
    rate, before = cut_rate(net, members, None, sinks, float(shares[least]))
    cut = (int(members[least % count]),) if before is None else smaller_side(before)
    part = question.size_bytes / count
    farthest = member_distances(net_of(graph, question.seconds()), members, question.sources())
    return Bounds(
        part / float(shares[least]),
        max(part / rate, _sent_once(graph, question.size_bytes * (count - 1))),
        _ingress_time(question, (count - 1) * (question.chunks or 0)),
        float(farthest.largest.max()),
        cut,
    )


def _bound_broadcast(question: _BoundQuestion) -> Bounds:
    graph, start = question.graph, int(question.members[question.root])
    receivers = question.members[question.members != start]
    into, out = _port_bandwidth(graph)
    least = int(receivers[np.argmin(into[receivers])])
    first = min(float(out[start]), float(into[least]))
    net = net_of(graph, graph.bandwidth_bytes_per_s)
    rate, before = cut_rate(net, question.members, start, _members_in_order(near_first(net, start), receivers), first)
    narrow = start if out[start] == first else least
    farthest = member_distances(net_of(graph, question.seconds()), question.members, np.array([start]))
    return Bounds(
        question.size_bytes / first,
        max(question.size_bytes / rate, _sent_once(graph, question.size_bytes * len(receivers))),
        _ingress_time(replace(question, members=receivers), question.chunks or 0, question.seconds()),
        float(farthest.largest[0]),
        (narrow,) if before is None else smaller_side(before),
    )


def _sent_once(graph: LinkGraph, received_bytes: float) -> float:
    """Return what NPUs need to send all that is received: a switch that does not copy makes of one message no two.

    Without switches that is never the tightest bound, as all that is sent over a link is received over it.
    """
    if graph.reducing or not graph.switches:
        return 0.0
    _, out = _port_bandwidth(graph)
    return received_bytes / float(out[: graph.npus].sum())


def _bound_all_to_all(question: _BoundQuestion) -> Bounds:
    graph, members, count = question.graph, question.members, len(question.members)
    into, out = _port_bandwidth(graph)
    pair = question.size_bytes / count
    node_s = pair * (count - 1) / float(min(into[members].min(), out[members].min()))
    swept_s, cut = joint_cut(graph, "all_to_all", question.size_bytes, [members], 0)
    gathered = _bound_gather(replace(question, kind="all_gather"))
    side = np.isin(members, gathered.cut).sum()
    crossing = min(crossing_bandwidth(graph, gathered.cut))
    by_cut_s = float(pair * side * (count - side) / crossing) if side and crossing else 0.0
    farthest = member_distances(net_of(graph, question.seconds()), members, question.sources())
    return Bounds(
        node_s,
        max(node_s, swept_s, by_cut_s, _all_links_s(question, pair)),
        _ingress_time(question, (count - 1) * (question.chunks or 0)),
        float(farthest.largest.max()),
        cut if swept_s >= by_cut_s else gathered.cut,
    )


def _all_links_s(question: _BoundQuestion, pair_bytes: float) -> float:
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
        distances = member_distances(net_of(graph, length), question.members, sources)
        worst = max(worst, pair_bytes * share * float(distances.total.sum()) / float((length * bandwidth).sum()))
        crowd = np.bincount(classes, distances.load)[classes] / bandwidth
        # Multiplicative weights: any lengths give a bound, and lengthening crowded links tightens it.
        lengths.append(length * (1 + 0.5 * crowd / crowd.max()))
    plain = member_distances(net_of(graph, lengths[0]), question.members, sources)
    return max(worst, pair_bytes * share * float(plain.total.sum()) / float(bandwidth.sum()))


def _bound_all_reduce(question: _BoundQuestion) -> Bounds:
    """Return what holds for all-reduces of any making: each side of every cut sends its sum and gets the other's."""
    graph, members = question.graph, question.members
    out = _bound_broadcast(replace(question, kind="broadcast", chunks=None))
    back = _bound_broadcast(replace(question, chunks=None).turned("broadcast"))
    worst = max(out, back, key=lambda bounds: bounds.cut_s)
    into, from_ = _port_bandwidth(graph)
    least = float(min(into[members].min(), from_[members].min()))
    farthest = member_distances(net_of(graph, question.seconds()), members, question.sources())
    return Bounds(
        question.size_bytes / least,
        max(worst.cut_s, 0.0 if graph.reducing else parted_s(graph, question.size_bytes, members)),
        _ingress_time(
            question, len(members) * (question.chunks or 0)
        ),  # of every chunk at least the sum, or the last part
        float(farthest.largest.max()),
        worst.cut,
        0.0 if graph.reducing else _in_turn_s(question),
    )


def _in_turn_s(question: _BoundQuestion) -> float:
    """Return the bound of a reduce-scatter and that of an all-gather together, by bandwidth and chunks."""
    scatter, gather = _bound_gather(question.turned("all_gather")), _bound_gather(replace(question, kind="all_gather"))
    return sum(max(bounds.node_s, bounds.cut_s, bounds.ingress_s) for bounds in (scatter, gather))


def ingress_s(graph: LinkGraph, kind: Kind, size_bytes: float, chunks: int, groups: Sequence[Sequence[int]]) -> float:
    """Return when all members can have what they need of an all-gather, all-to-all or broadcast, links always busy."""
    worst = 0.0
    for group in groups:
        wanted = chunks if kind == "broadcast" else (len(group) - 1) * chunks
        members = np.array(group)
        if kind == "broadcast":  # the root needs none, and may have no links in
            members = members[np.isin(members, graph.targets)]
        if len(group) > 1:
            question = _BoundQuestion(graph, kind, size_bytes, chunks, members, 0, None)
            sized = replace(question, members=np.array(group)).seconds()
            worst = max(worst, _ingress_time(question, wanted, sized))
    return worst


def _port_bandwidth(graph: LinkGraph) -> tuple[Floats, Floats]:
    """Return the bandwidth into and out of each node."""
    into, out = np.zeros(graph.nodes), np.zeros(graph.nodes)
    np.add.at(into, graph.targets, graph.bandwidth_bytes_per_s)
    np.add.at(out, graph.sources, graph.bandwidth_bytes_per_s)
    return into, out


def _ingress_time(question: _BoundQuestion, wanted: int, seconds: Floats | None = None) -> float:
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


def _members_in_order(order: list[int], members: Ints) -> Ints:
    wanted = set(members.tolist())
    return np.array([node for node in order if node in wanted], np.int64)
