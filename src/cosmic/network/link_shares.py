"""What textbook algorithms reach on the links of a dimension: the most loaded link decides.

All groups of a shape work at once. Each algorithm is phases of messages between members, which take shortest paths
(`cosmic.network.link_paths`); with 1 byte for every NPU to send in all phases together

    seconds = sum over phases of  max over links of  bytes on the link / its bandwidth        share = 1 / seconds
    hops    = mean over phases of  the longest latency of a message's path

of a normalised graph: NPUs inject at most 1 byte per second, the longest link takes 1 second. A slow link so slows all
messages over it, and a collective is as slow as the slowest group; messages whose link is broken go round, over links
that others use too.

The messages are the rounds of the algorithm (`cosmic.network.collective_rounds`), whoever wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import numpy as np

from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.network.collective_rounds import Rounds
from cosmic.network.dimension_wiring import copies_of, disconnection_reason
from cosmic.network.link_graph import Floats, Ints, LinkGraph
from cosmic.network.link_paths import link_loads

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
