"""What collectives take that are synthesised for the links of a dimension.

For each kind of collective and shape of groups, schedules are synthesised for all groups at once: for sizes at which
latency decides, at which bandwidth does, and between. A schedule takes at most

    a * latency + b * size / bandwidth

with a its seconds if no transfer took bytes' time, and b those if none had a latency: transfers keep their order. Time
is so the least of several straight lines, as of a library's protocols (`cosmic.cost.transport`). Ring, direct and
halving-doubling are schedules too, and among the lines; no line is below what the links allow at all: distance, and the
bounds on nodes and cuts. A reduce-scatter is an all-gather with all links turned round, and an all-reduce both.

    up to 256 NPUs    schedules; of all-to-alls up to 64, beyond which they are direct
    more, and named   the topology's share of the bandwidth, which an all-gather can reach (`Topology.share`), and 5 %
                      more time for what a schedule of finitely many chunks loses; less by what faults take
                      from the slowest NPU
    more, and listed  the best of the textbook's algorithms on the links

Lines are in the units of `cosmic.graphs.wired`, kept in the process, and on disk by the links' digest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from cosmic.caching import keep, recall
from cosmic.cost.collectives import all_but_own, passes
from cosmic.cost.link_shares import layouts, slowest_npu
from cosmic.design.collective import CollectiveKind
from cosmic.design.network import GRAPH, topologies
from cosmic.graphs.graph import Ints, LinkGraph
from cosmic.graphs.wired import copies_of, disconnection, healthy_graph, topology_of

if TYPE_CHECKING:
    from cosmic.graphs.schedule import Schedule

TEXTBOOK = ("ring", "direct", "halving_doubling")
LINES = 3
MOST_NPUS = 256
MOST_TO_ALL = 64
MOST_CUT = 64
"""NPUs up to which cuts are looked for: beyond, only nodes bound a line."""
LOSS = 1.05
"""Time that a schedule of a large dimension takes, over what its links allow."""
SIZES = ((1e-3, 1), (4.0, None), (1e6, None))
"""Bytes per member that schedules are made for, in those that cross a link in its latency; and chunks: any."""
Line = tuple[float, float]
"""Latencies and bytes' times: a and b."""


@lru_cache(maxsize=65536)
def synthesized_lines(
    kind: CollectiveKind, label: str, npus: float, members: float, step: float, textbook: tuple[Line, ...]
) -> tuple[Line, ...]:
    """Return the `LINES` lines of a collective, beside which *textbook* has those of other algorithms."""
    whole = (int(npus), max(2, round(members)), max(1, round(step)))  # groups that straddle have members on average
    found, least = list(textbook), (0.0, 0.0)
    if has_links(label, whole[0]):
        own = all_but_own(members) / all_but_own(whole[1])
        if whole[0] <= MOST_NPUS:
            made, least = _made(kind, label, *whole)
            found += [(once, per_byte * float(own)) for once, per_byte in made]
            least = least[0], least[1] * float(own)
        else:
            found += _estimated(kind, label, *whole)
    return envelope([(max(once, least[0]), max(per_byte, least[1])) for once, per_byte in found])


def has_links(label: str, npus: int) -> bool:
    """Return whether the links of a dimension are known, and join its NPUs."""
    return not disconnection(label, npus)


def envelope(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Return `LINES` of some lines: the lowest, the flattest and the one that is least where those two meet.

    >>> envelope([(1.0, 9.0), (2.0, 9.5), (9.0, 1.0), (3.0, 3.0), (4.0, 3.5)])
    ((1.0, 9.0), (3.0, 3.0), (9.0, 1.0))
    """
    given = sorted(set(lines))
    low, flat = given[0], min(given, key=lambda line: (line[1], line[0]))
    if low[1] <= flat[1]:
        return (low,) * LINES
    meeting = (flat[0] - low[0]) / (low[1] - flat[1])
    return low, min(given, key=lambda line: (line[0] + line[1] * meeting, line)), flat


# ------------------------------------------------------------------------------------------------ schedules


def _made(kind: CollectiveKind, label: str, npus: int, members: int, step: int) -> tuple[list[Line], Line]:
    """Return the lines of schedules, and the least that any has; each as in the slowest copy."""
    slowest: list[Line] = []
    least = (0.0, 0.0)
    for graph in copies_of(label, npus):
        for groups in layouts(npus, members, step):
            lines, floor = _kept(kind, graph, groups, (members, step))
            before = slowest or [(0.0, 0.0)] * len(lines)
            slowest = [_larger(line, other) for line, other in zip(lines, before, strict=True)]
            least = _larger(least, floor)
    return slowest, least


def _larger(line: Line, other: Line) -> Line:
    return max(line[0], other[0]), max(line[1], other[1])


def _kept(
    kind: CollectiveKind, graph: LinkGraph, groups: Ints, shape: tuple[int, int]
) -> tuple[tuple[Line, ...], Line]:
    """Return the lines of a graph and their floor, from the disk if another process has made them."""
    key = f"{graph.digest} {kind} {shape} {groups[0, 0]}"
    content = recall("schedules", key)
    if content is not None:
        lines, floor = json.loads(content)
        return tuple((once, per_byte) for once, per_byte in lines), (floor[0], floor[1])
    named = tuple(map(tuple, groups.tolist()))
    found = tuple(_lines(kind, graph, named)), _floor(kind, graph, named)
    keep("schedules", key, json.dumps(found).encode())
    return found


Groups = tuple[tuple[int, ...], ...]


def _lines(kind: CollectiveKind, graph: LinkGraph, groups: Groups) -> list[Line]:
    if kind == "reduce_scatter":
        return _lines("all_gather", graph.transposed(), groups)
    if kind == "all_reduce":
        halves = [_lines("all_gather", each, groups) for each in _both_ways(graph)]
        return [(one[0] + other[0], one[1] + other[1]) for one, other in zip(halves[0], halves[-1], strict=True)]
    if kind == "all_to_all" and graph.npus > MOST_TO_ALL:
        return []
    return list(_gathered(kind, graph, groups))


def _both_ways(graph: LinkGraph) -> list[LinkGraph]:
    """Return a graph and the one with its links turned round; once if they are the same."""
    turned = graph.transposed()
    return [graph] if turned.digest == graph.digest else [graph, turned]


_MADE: dict[tuple[str, str, Groups], tuple[Line, ...]] = {}


def _gathered(kind: CollectiveKind, graph: LinkGraph, groups: Groups) -> tuple[Line, ...]:
    """Return a line for each of `SIZES`."""
    key = (graph.digest, kind, groups)
    if key not in _MADE:
        from cosmic.synthesis.synthesizing import synthesize  # noqa: PLC0415  only some designs need it

        sizes = [(size * len(groups[0]), chunks) for size, chunks in SIZES]
        made = (synthesize(graph, kind, size, chunks=chunks, groups=groups) for size, chunks in sizes)
        _MADE[key] = tuple(line_of(each) for each in made)
    return _MADE[key]


def line_of(schedule: Schedule) -> Line:
    """Return the seconds of a schedule if no byte took time, and for each byte if no link had a latency."""
    graph, sizes = schedule.graph, [schedule.chunk_bytes(group) for group in range(len(schedule.groups))]
    size = max(sizes, default=0.0)
    per_byte = size / graph.bandwidth_bytes_per_s[schedule.link] / schedule.size_bytes
    return _replayed(schedule, graph.latency_s[schedule.link]), _replayed(schedule, per_byte)


def _replayed(schedule: Schedule, seconds: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Return when the last transfer ends if each takes so many *seconds*, and all begin in the same order.

    What a switch sends on is the last that came in, as it keeps nothing; an NPU has a chunk from when it first came.
    """
    graph, last = schedule.graph, 0.0
    free = [0.0] * graph.links
    there: dict[tuple[int, int], float] = {}
    sources, targets = graph.sources[schedule.link].tolist(), graph.targets[schedule.link].tolist()
    taken = np.asarray(seconds, np.float64).tolist()
    for link, chunk, source, target, lasts in zip(
        schedule.link.tolist(), schedule.chunk.tolist(), sources, targets, taken, strict=True
    ):
        ends = max(free[link], there.get((chunk, source), 0.0)) + lasts
        free[link] = ends
        before = there.get((chunk, target)) if target < graph.npus else None
        there[chunk, target] = ends if before is None else min(before, ends)
        last = max(last, ends)
    return last


def _floor(kind: CollectiveKind, graph: LinkGraph, groups: Groups) -> Line:
    """Return what no schedule goes below: latencies to the farthest member, and bytes' time through nodes and cuts."""
    members = len(groups[0])
    through = node_floor(kind, graph, members)
    if graph.npus > MOST_CUT:
        return 0.0, through
    from cosmic.synthesis.bounds import bounds  # noqa: PLC0415  only some designs need it

    at_once = replace(graph, latency_s=np.zeros(graph.links))
    wide = bounds(at_once, kind, float(members), groups=groups)
    long = bounds(graph, kind, 1e-9, groups=groups)
    return long.distance_s, max(through, wide.node_s / members, wide.cut_s / members)


def node_floor(kind: CollectiveKind, graph: LinkGraph, members: int) -> float:
    """Return the time for each byte at the NPU that takes longest to receive what it lacks, or to send what it has.

    In an all-gather every NPU receives (p - 1) / p of the data and sends at least its own 1 / p; others may pass that
    on. A reduce-scatter is the same turned round, and in an all-to-all an NPU does both for all but its own part.
    """
    if kind == "all_reduce":
        return node_floor("all_gather", graph, members) + node_floor("reduce_scatter", graph, members)
    received, sent = 1 - 1 / members, 1 / members
    if kind != "all_gather":
        received, sent = (received, received) if kind == "all_to_all" else (sent, received)
    rates = [
        np.bincount(ends, graph.bandwidth_bytes_per_s, graph.nodes)[: graph.npus].min()
        for ends in (graph.targets, graph.sources)
    ]
    return float(max(received / rates[0], sent / rates[1]))


def _estimated(kind: CollectiveKind, label: str, npus: int, members: int, step: int) -> list[Line]:
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
    return [(passes(kind) * latencies * lost, passes(kind) * float(all_but_own(members)) / share * LOSS * lost)]
