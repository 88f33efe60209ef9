"""What textbook algorithms reach on the links of a dimension: the most loaded link decides.

All groups of a shape work at once. Each algorithm is phases of messages between members, which take shortest paths
(`cosmic.network.link_paths`); with 1 byte for every NPU to send in all phases together

    seconds = sum over phases of  max over links of  bytes on the link / its bandwidth        share = 1 / seconds
    hops    = mean over phases of  the longest latency of a message's path

of a normalised graph: NPUs inject at most 1 byte per second, the longest link takes 1 second. A slow link so slows all
messages over it, and a collective is as slow as the slowest group; messages whose link is broken go round, over links
that others use too.

    ring              members to both neighbours, a half each; all one way where that is faster
    direct            all members to all others
    halving_doubling  partners 1, 2, 4, … apart: a half, a quarter and so on; first those beyond a power of two
    double_binary_tree  children to parents, and parents to children, of two trees

An all-to-all by halving and doubling (Bruck) sends as much to each of the members 1, 2, 4, … further on. Algorithms of
others are taken for rings if they have up to two peers, else for direct ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from cosmic.design.collective_layer import CollectiveKind, algorithms
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


# ---- patterns


def message_patterns(algorithm: str, kind: CollectiveKind, members: int) -> list[list[Messages]]:
    """Return the ways in which an algorithm may send, each as phases."""
    name = pattern_of(algorithm, kind, members)
    if name == "halving_doubling":
        return [_bruck_phases(members) if kind == "all_to_all" else _halving_phases(members)]
    if name == "double_binary_tree":
        return [_tree_phases(members)]
    own: Ints = np.arange(members, dtype=np.int64)
    if name == "direct":
        # All ordered pairs of different members, a (p - 1)-th of the traffic each.
        senders, receivers = (grid.reshape(-1) for grid in np.meshgrid(own, own, indexing="ij"))
        apart = senders != receivers
        return [[_make_messages(senders[apart], receivers[apart], 1 / (members - 1))]]
    onwards, back = (own + 1) % members, (own - 1) % members
    one_way = [[_make_messages(own, onwards, 1.0)], [_make_messages(own, back, 1.0)]]
    if members == 2:
        return one_way[:1]
    # Both directions at once, or either alone: links may be faster one way.
    return [[_make_messages(np.tile(own, 2), np.concatenate((onwards, back)), 0.5)], *one_way]


def pattern_of(algorithm: str, kind: CollectiveKind, members: int) -> str:
    """Return which of the patterns here an algorithm has."""
    if algorithm == "auto":
        return "direct" if kind == "all_to_all" else "ring"
    if algorithm == "double_binary_tree" and kind == "all_to_all":
        return "direct"
    if algorithm in ("ring", "direct", "halving_doubling", "double_binary_tree"):
        return algorithm
    return "ring" if float(algorithms[algorithm].peers(max(members, 4))) <= 2 else "direct"


def _make_messages(senders: Ints, receivers: Ints, size: float) -> Messages:
    return senders, receivers, np.full(len(senders), size)


def _halving_phases(members: int) -> list[Messages]:
    """Return the phases of recursive halving: members beyond a power of two join a partner first."""
    own: Ints = np.arange(1 << (members.bit_length() - 1), dtype=np.int64)
    sizes = [0.5 ** (phase + 1) for phase in range(len(own).bit_length() - 1)]
    beyond = members - len(own)
    total = sum(sizes) + (0.5 if beyond else 0.0)
    phases = [_make_messages(own, own ^ (1 << phase), size / total) for phase, size in enumerate(sizes)]
    if beyond:
        phases.insert(0, _make_messages(own[:beyond] + len(own), own[:beyond], 0.5 / total))
    return phases


def _bruck_phases(members: int) -> list[Messages]:
    own: Ints = np.arange(members, dtype=np.int64)
    apart = [1 << phase for phase in range((members - 1).bit_length())]
    return [_make_messages(own, (own + distance) % members, 1 / len(apart)) for distance in apart]


def _tree_phases(members: int) -> list[Messages]:
    """Return two phases, up and down two binary trees; each edge carries half of the data in either.

    The second tree is the first turned round, or moved on by one, so that inner nodes of one are leaves of the other.
    """
    pairs = [(member, _tree_parent(member, members)) for member in range(1, members)]
    mirrored = [members - 1 - rank if members % 2 == 0 else (rank + 1) % members for rank in range(members)]
    pairs += [(mirrored[child], mirrored[parent]) for child, parent in pairs]
    ends: Ints = np.array(pairs, np.int64)
    up, down = (ends[:, 0], ends[:, 1]), (ends[:, 1], ends[:, 0])
    return [_make_messages(*up, 0.25), _make_messages(*down, 0.25)] if members > 2 else [_make_messages(*up, 1.0)]


def _tree_parent(member: int, members: int) -> int:
    """Return the parent in a binary tree in whose order odd members are leaves: 0 is the root."""
    lowest = member & -member
    above = (member ^ lowest) | (lowest << 1)
    return above if above < members else member ^ lowest
