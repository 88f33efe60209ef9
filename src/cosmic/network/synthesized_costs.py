"""What collectives take that are synthesised for the links of a dimension.

For each kind of collective and shape of groups, schedules are synthesised for all groups at once: for sizes at which
latency decides, at which bandwidth does, and between. A schedule takes at most

    a * latency + b * size / bandwidth

with a its seconds if no transfer took bytes' time, and b those if none had a latency: transfers keep their order. Time
is so the least of several straight lines, as of a library's protocols (`cosmic.network.transport_protocols`). Ring,
direct,
halving-doubling and double trees are schedules too, and among the lines; no line is below what the links allow at all:
the distance, and the bounds on nodes and cuts. Where a textbook's line meets these, nothing is synthesised. A
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
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from cosmic.base.caching import keep_cached, read_cached
from cosmic.design.collective_layer import CollectiveKind
from cosmic.design.network_layer import GRAPH, topologies
from cosmic.network.algorithm_terms import all_but_own, passes_of
from cosmic.network.dimension_wiring import copies_of, disconnection_reason, healthy_graph, topology_of
from cosmic.network.link_graph import LinkGraph
from cosmic.network.link_shares import group_layouts, slowest_npu

if TYPE_CHECKING:
    from cosmic.network.schedules.collective_schedule import Schedule


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
