"""What collectives reach on the links of a dimension, looked at one by one: textbook algorithms, and synthesised schedules.

*Textbook algorithms.* All groups of a shape work at once. Each algorithm is phases of messages between members, which
take shortest paths (`cosmic.network.link_paths`); with 1 byte for every NPU to send in all phases together

    seconds = sum over phases of  max over links of  bytes on the link / its bandwidth        share = 1 / seconds
    hops    = mean over phases of  the longest latency of a message's path

of a normalised graph: NPUs inject at most 1 byte per second, the longest link takes 1 second. A slow link so slows all
messages over it, and a collective is as slow as the slowest group; messages whose link is broken go round, over links
that others use too. The messages are the rounds of the algorithm (`cosmic.network.collective_rounds`), whoever wrote it.

*Synthesised schedules.* For each kind of collective and shape of groups, schedules are synthesised for all groups at
once: for sizes at which latency decides, at which bandwidth does, and between. A schedule takes at most

    a * latency + b * size / bandwidth

with a its seconds if no transfer took bytes' time, and b those if none had a latency: transfers keep their order. Time
is so the least of several straight lines, as of a library's protocols (`cosmic.network.transport_protocols`). Ring,
direct, halving-doubling and double trees are schedules too, and among the lines; no line is below what the links allow
at all: the distance, and the bounds on nodes and cuts. Where a textbook's line meets these, nothing is synthesised. A
reduce-scatter is an all-gather with all links turned round, and an all-reduce both.

    NPUs                     groups    lines beside the textbook's
    up to 256                one       schedules; of all-to-alls up to 64 NPUs
    up to 64                 several   schedules, of few chunks
    more, topology is named  any       the topology's share of the bandwidth, which an all-gather can reach
                                       (`Topology.share`), and 5 % more time for what a schedule of finitely many chunks
                                       loses; less by what faults take from the slowest NPU; none of all-to-alls
    more, links are listed   any       none

Lines are in the units of `cosmic.network.dimension_wiring`, kept in the process, and on disk by the links' digest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cosmic.base.caching import keep_cached, read_cached
from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.design.network_layer import GRAPH, topologies
from cosmic.network.collective_rounds import Rounds, all_but_own, passes_of
from cosmic.network.dimension_wiring import copies_of, disconnection_reason, healthy_graph, topology_of
from cosmic.network.link_graph import Floats, Ints, LinkGraph
from cosmic.network.link_paths import link_loads

if TYPE_CHECKING:
    from cosmic.network.schedules.collective_schedule import Schedule


MOST_WORK = 10_000_000
"""NPUs times links beyond which messages are not routed: an NPU with slower links then slows all in proportion."""
MOST_MESSAGES = 500_000
"""Pairs of members beyond which they are not, either."""
Messages = tuple[Ints, Ints, Floats]
"""Senders, receivers and bytes: positions in a group, and per byte that a member sends in the whole collective."""


@lru_cache(maxsize=65536)
def link_terms(
    kind: CollectiveKind, label: str, algorithm: str, npus: int, members: int, step: int
) -> tuple[float, float]:
    """Return the hops and the seconds above, in the slowest kind of copy of a dimension.

    >>> link_terms("all_gather", "ring", "ring", 8, 8, 1), link_terms("all_gather", "ring", "ring", 8, 4, 1)
    ((1.0, 1.0), (3.0, 2.0))
    """
    if members <= 1 or disconnection_reason(label, npus):  # a design that cannot run is not asked how long it takes
        return 1.0, 1.0
    slowest = (0.0, 0.0)
    for graph in copies_of(label, npus):
        for groups in group_layouts(npus, members, step):
            terms = _find_quickest_way(graph, groups, algorithm, kind)
            slowest = (max(slowest[0], terms[0]), max(slowest[1], terms[1]))
    return slowest


def group_layouts(npus: int, members: int, step: int) -> Iterator[Ints]:
    """Yield all groups of a shape, a row of NPUs each; where they leave some NPUs over, also those from the last back.

    >>> [groups.tolist() for groups in group_layouts(5, 2, 2)]
    [[[0, 2], [1, 3]], [[1, 3], [2, 4]]]
    """
    members = min(members, npus)
    step = max(1, min(step, npus // members))
    block = members * step
    inside = np.arange(step, dtype=np.int64)[:, None] + step * np.arange(members, dtype=np.int64)
    first = np.arange(npus // block, dtype=np.int64)[:, None, None] * block
    groups = (first + inside).reshape(-1, members)
    yield groups
    if npus % block:
        yield groups + npus % block


def _find_quickest_way(graph: LinkGraph, groups: Ints, algorithm: str, kind: CollectiveKind) -> tuple[float, float]:
    """Return hops and seconds of an algorithm, in the order of messages that is fastest."""
    if graph.npus * graph.links > MOST_WORK or groups.size * groups.shape[1] > MOST_MESSAGES:
        return 1.0, slowest_npu(graph)
    ways = [_routed_seconds(graph, groups, way) for way in message_patterns(algorithm, kind, groups.shape[1])]
    return min(ways, key=lambda way: (way[1], way[0]))


def _routed_seconds(graph: LinkGraph, groups: Ints, phases: Sequence[Messages]) -> tuple[float, float]:
    hops, seconds = 0.0, 0.0
    for senders, receivers, sizes in phases:
        ends = groups[:, senders].reshape(-1), groups[:, receivers].reshape(-1)
        carried, latency = link_loads(graph, *ends, np.tile(sizes, len(groups)))
        hops += latency / len(phases)
        seconds += float((carried / graph.bandwidth_bytes_per_s).max(initial=0.0))
    return hops, seconds


def slowest_npu(graph: LinkGraph) -> float:
    """Return 1 over the share of its bandwidth that the slowest NPU sends or receives with."""
    sent = np.bincount(graph.sources, graph.bandwidth_bytes_per_s, graph.nodes)[: graph.npus]
    received = np.bincount(graph.targets, graph.bandwidth_bytes_per_s, graph.nodes)[: graph.npus]
    return float(1 / np.minimum(sent, received).min())


# ---- messages


def message_patterns(algorithm: str, kind: CollectiveKind, members: int) -> list[list[Messages]]:
    """Return the ways in which an algorithm may send, each as phases, per byte that the first of them has a member send.

    Rounds in which the same members send to the same others, as those of both passes of an all-reduce, are one phase.
    """
    ways = algorithms[algorithm].alternatives(kind, members)
    total = ways[0].traffic
    return [_merge_rounds(rounds, total) for rounds in ways]


@cache
def sends_to_all_at_once(algorithm: str, kind: CollectiveKind) -> bool:
    """Return whether members send to all others in one round, as five do: pairs of thousands need not be listed then.

    >>> sends_to_all_at_once("auto", "all_to_all"), sends_to_all_at_once("ring", "all_to_all")
    (True, False)
    """
    members = 5
    (phases, *_) = message_patterns(algorithm, kind, members)
    return len(phases) == 1 and len(phases[0][0]) == members * (members - 1)


def _merge_rounds(rounds: Rounds, total: Fraction | float) -> list[Messages]:
    merged: dict[bytes, tuple[Ints, Any]] = {}
    known: dict[tuple[int, int], tuple[Ints, Ints, bytes]] = {}  # rounds share their arrays
    for each in sorted(rounds.rounds, key=lambda one: -one.busiest_member()):
        ends = (id(each.source), id(each.target))
        if ends not in known:
            pairs = each.source * rounds.members + each.target
            order = np.argsort(pairs, kind="stable")
            known[ends] = order, pairs[order], pairs[order].tobytes()
        order, pairs, key = known[ends]
        size = each.size if isinstance(each.size, Fraction) else each.size[order]
        merged[key] = (pairs, (merged[key][1] if key in merged else 0) + each.times * size)
    return [_make_messages(*np.divmod(pairs, rounds.members), size / total) for pairs, size in merged.values()]


def _make_messages(senders: Ints, receivers: Ints, sizes: Any) -> Messages:
    return senders, receivers, np.broadcast_to(np.asarray(sizes, np.float64), senders.shape)


# ---- lines of synthesised schedules


TEXTBOOK = ("ring", "direct", "halving_doubling", "double_binary_tree")
LINES = 3
MOST_NPUS = 256
"""NPUs up to which one group gets schedules, and cuts are looked for."""
MOST_SEVERAL = 64
"""NPUs up to which several groups, and all-to-alls, get schedules."""
LOSS = 1.05
"""Time that a schedule of a large dimension takes, over what its links allow."""
SIZES = ((1e-3, 1), (4.0, None), (1e6, None))
"""Bytes per member that schedules of one group are made for, as multiples of those that cross a link in its latency,
and chunks of a member: any."""
SIZES_OF_SEVERAL = ((1e-3, 1), (1e6, 4))
EXACT = 1e-9
Line = tuple[float, float]
"""Latencies and bytes' times: a and b."""
Groups = tuple[tuple[int, ...], ...]


@lru_cache(maxsize=65536)
def synthesized_lines(
    kind: CollectiveKind, label: str, npus: float, members: float, step: float, textbook: tuple[Line, ...]
) -> tuple[Line, ...]:
    """Return the `LINES` lines of a collective, beside which *textbook* has those of other algorithms."""
    size, several, apart = int(npus), max(2, round(members)), max(1, round(step))
    if disconnection_reason(label, size):  # links that are not known, or a design that cannot run
        return envelope(textbook)
    own = float(all_but_own(members) / all_but_own(several))  # groups that straddle have members on average
    if size <= MOST_NPUS:
        once, per_byte = _slowest_lines("floors", kind, label, (size, several, apart))[0]
        least = (once, per_byte * own)
    else:
        least = (_farthest_latency(kind, label, size) if several == size else 0.0, 0.0)
    bounded = [_line_at_least(line, least) for line in textbook]
    if any(line[0] <= least[0] * (1 + EXACT) and line[1] <= least[1] * (1 + EXACT) for line in bounded):
        return envelope(bounded)
    if size <= (MOST_NPUS if several == size and kind != "all_to_all" else MOST_SEVERAL):
        made = _slowest_lines("schedules", kind, label, (size, several, apart))
        lines = [(once, per_byte * own) for once, per_byte in made]
    else:
        lines = _estimate_lines(kind, label, size, several, apart)
    return envelope([*bounded, *(_line_at_least(line, least) for line in lines)])


def _line_at_least(line: Line, floor: Line) -> Line:
    return max(line[0], floor[0]), max(line[1], floor[1])


def envelope(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Return `LINES` of some lines: the lowest, the flattest and the one that is least where those two meet.

    >>> envelope([(1.0, 9.0), (2.0, 9.5), (9.0, 1.0), (3.0, 3.0), (4.0, 3.5)])
    ((1.0, 9.0), (3.0, 3.0), (9.0, 1.0))
    """
    distinct = sorted(set(lines))
    low, flat = distinct[0], min(distinct, key=lambda line: (line[1], line[0]))
    if low[1] <= flat[1]:
        return (low,) * LINES
    # The size at which the line of least latency and that of least slope cost the same.
    meeting = (flat[0] - low[0]) / (low[1] - flat[1])
    return low, min(distinct, key=lambda line: (line[0] + line[1] * meeting, line)), flat


# ---- schedules


def _slowest_lines(cache_kind: str, kind: CollectiveKind, label: str, shape: tuple[int, int, int]) -> list[Line]:
    """Return the floor, or the lines of schedules, of a collective; each as in the slowest copy of the dimension."""
    slowest: list[Line] = []
    for graph in copies_of(label, shape[0]):
        for groups in group_layouts(*shape):
            lines = _cached_lines(cache_kind, kind, graph, tuple(map(tuple, groups.tolist())))
            slowest = [_line_at_least(line, slow) for line, slow in zip(lines, slowest or lines, strict=True)]
    return slowest


def _cached_lines(cache_kind: str, kind: CollectiveKind, graph: LinkGraph, groups: Groups) -> list[Line]:
    """Return the lines of a graph, from the disk if another process has made them."""
    shape = (len(groups), len(groups[0]), groups[0][0], groups[0][1])
    key = f"{graph.digest} {kind} {shape}"
    content = read_cached(cache_kind, key)
    if content is not None:
        return [(once, per_byte) for once, per_byte in json.loads(content)]
    lines = [_lower_line(kind, graph, groups)] if cache_kind == "floors" else _make_lines(kind, graph, groups)
    keep_cached(cache_kind, key, json.dumps(lines).encode())
    return lines


def _make_lines(kind: CollectiveKind, graph: LinkGraph, groups: Groups) -> list[Line]:
    if kind == "reduce_scatter":
        return _cached_lines("schedules", "all_gather", graph.transposed(), groups)
    if kind == "all_reduce":
        first, second = (
            _cached_lines("schedules", "all_gather", direction, groups) for direction in (graph.transposed(), graph)
        )
        return [(scatter[0] + gather[0], scatter[1] + gather[1]) for scatter, gather in zip(first, second, strict=True)]
    key = (graph.digest, kind, groups)
    if key not in _MADE:
        _MADE[key] = [line_of(schedule) for schedule in _synthesize_sizes(kind, graph, groups)]
    return _MADE[key]


_MADE: dict[tuple[str, str, Groups], list[Line]] = {}


def _synthesize_sizes(kind: CollectiveKind, graph: LinkGraph, groups: Groups) -> Iterator[Schedule]:
    from cosmic.network.synthesis.schedule_synthesis import synthesize  # noqa: PLC0415  only some designs need it

    for size, chunks in SIZES if len(groups) == 1 else SIZES_OF_SEVERAL:
        yield synthesize(graph, kind, size * len(groups[0]), chunks=chunks, groups=groups)


def line_of(schedule: Schedule) -> Line:
    """Return the seconds of a schedule if no byte took time, and for each byte if no link had a latency."""
    graph, sizes = schedule.graph, [schedule.chunk_bytes(group) for group in range(len(schedule.groups))]
    size = max(sizes, default=0.0)
    per_byte = size / graph.bandwidth_bytes_per_s[schedule.link] / schedule.size_bytes
    return _replay_s(schedule, graph.latency_s[schedule.link]), _replay_s(schedule, per_byte)


def _replay_s(schedule: Schedule, seconds: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Return when the last transfer ends if each takes its *seconds*, and all start in the same order.

    What a switch sends on is the last that came in, as it keeps nothing; an NPU has a chunk from when it first came.
    """
    graph, last = schedule.graph, 0.0
    free = [0.0] * graph.links
    arrived: dict[tuple[int, int], float] = {}
    sources, targets = graph.sources[schedule.link].tolist(), graph.targets[schedule.link].tolist()
    taken = np.asarray(seconds, np.float64).tolist()
    for link, chunk, source, target, lasts in zip(
        schedule.link.tolist(), schedule.chunk.tolist(), sources, targets, taken, strict=True
    ):
        ends = max(free[link], arrived.get((chunk, source), 0.0)) + lasts
        free[link] = ends
        before = arrived.get((chunk, target)) if target < graph.npus else None
        arrived[chunk, target] = ends if before is None else min(before, ends)
        last = max(last, ends)
    return last


def _lower_line(kind: CollectiveKind, graph: LinkGraph, groups: Groups) -> Line:
    """Return what no schedule goes below: latencies to the farthest member, and bytes' time through nodes and cuts."""
    members = len(groups[0])
    through = node_floor(kind, graph, members)
    from cosmic.network.synthesis.lower_bounds import collective_bounds  # noqa: PLC0415  only some designs need it

    at_once = replace(graph, latency_s=np.zeros(graph.links))
    wide = collective_bounds(at_once, kind, float(members), groups=groups)
    long = collective_bounds(graph, kind, 1e-9, groups=groups)
    return long.distance_s, max(through, wide.node_s / members, wide.cut_s / members)


def node_floor(kind: CollectiveKind, graph: LinkGraph, members: int) -> float:
    """Return the time for each byte at the NPU that takes longest to receive what it lacks, or to send what it has.

    In an all-gather every NPU receives (p - 1) / p of the data and sends at least its own 1 / p; others may pass that
    on. A reduce-scatter is the same turned round, and in an all-to-all an NPU does both for all but its own part.
    """
    if kind == "all_reduce":  # a tree may spare a slow NPU all but the sum itself
        return node_floor("all_to_all", graph, members) * members / (members - 1)
    received, sent = 1 - 1 / members, 1 / members
    if kind != "all_gather":
        received, sent = (received, received) if kind == "all_to_all" else (sent, received)
    rates = [
        np.bincount(ends, graph.bandwidth_bytes_per_s, graph.nodes)[: graph.npus].min()
        for ends in (graph.targets, graph.sources)
    ]
    return float(max(received / rates[0], sent / rates[1]))


def _farthest_latency(kind: CollectiveKind, label: str, npus: int) -> float:
    """Return the latencies between the NPUs farthest apart, of a large dimension of a named topology."""
    name, _ = topology_of(label)
    return 0.0 if name == GRAPH else passes_of(kind) * float(topologies[name].diameter(npus))


def _estimate_lines(kind: CollectiveKind, label: str, npus: int, members: int, step: int) -> list[Line]:
    """Return the line of a large dimension of a named topology; none for an all-to-all, or where links are listed."""
    name, wiring = topology_of(label)
    if name == GRAPH or kind == "all_to_all":
        return []
    topology = topologies[name]
    share = float(topology.share(members, npus, step))
    usual = slowest_npu(healthy_graph(name, npus)) if any(wiring.copies) else 1.0
    lost = max(slowest_npu(graph) / usual for graph in copies_of(label, npus)) if any(wiring.copies) else 1.0
    usable = max(1.0, share * float(topology.links(npus)))
    latencies = (members - 1) / usable + float(topology.hops(members, npus, step)) * float(np.log2(members))
    return [(passes_of(kind) * latencies * lost, passes_of(kind) * float(all_but_own(members)) / share * LOSS * lost)]
