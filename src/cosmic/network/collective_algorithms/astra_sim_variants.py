"""ASTRA-sim's variants of the textbook algorithms, whose recorded semantics its inputs keep.

They differ from ours in what is sent, in whole bytes: a ring goes one way, and forwards every shard of an all-to-all
p / 2 links; beyond a power of two each of the first members hands its buffer to its neighbour, and gets the whole
result back; trees are complete and in order below the last member, and below the first.

The size of an all-gather is one member's shard, that of other collectives the whole buffer. A reduction by halving has
the size of the message that is sent next.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cosmic.base.numeric import is_power_of_two
from cosmic.design.collective_layer import CollectiveKind
from cosmic.network.collective_algorithms.double_binary_tree import NO_PARENT
from cosmic.network.collective_rounds import Ints

REDUCING: tuple[CollectiveKind, ...] = ("all_reduce", "reduce_scatter")


@dataclass(frozen=True, eq=False)
class AstraSimRound:
    """Messages of one size that leave together, *times* in a row."""

    source: Ints
    target: Ints
    size_bytes: int
    reduced_bytes: int
    """Bytes that each receiver adds up."""
    times: int = 1


def ring_variant(kind: CollectiveKind, members: int, size_bytes: int, way: int) -> tuple[AstraSimRound, ...]:
    """Return the rounds of shards that go one way (1 or -1); an all-to-all forwards every shard until it arrives."""
    own: Ints = np.arange(members, dtype=np.int64)
    part = size_bytes if kind == "all_gather" else size_bytes // members

    def going_round(*, adds: bool, times: int) -> AstraSimRound:
        return AstraSimRound(own, (own + way) % members, part, part if adds else 0, times)

    if kind == "all_reduce":
        return going_round(adds=True, times=members - 1), going_round(adds=False, times=members - 1)
    if kind == "all_to_all":
        return (going_round(adds=False, times=members * (members - 1) // 2),)
    return (going_round(adds=kind in REDUCING, times=members - 1),)


def halving_doubling_variant(kind: CollectiveKind, members: int, size_bytes: int) -> tuple[AstraSimRound, ...]:
    """Return the rounds in which pairs at distance 1, 2, 4 ... exchange halves; the all-gather goes back the same way."""
    core = 1 << (members.bit_length() - 1)
    if core == members:
        return _core_rounds(kind, np.arange(members), size_bytes)
    extra = members - core
    working = np.array([2 * index + 1 if index < extra else index + extra for index in range(core)])
    first, second = np.arange(0, 2 * extra, 2), np.arange(1, 2 * extra, 2)
    gathers = kind == "all_gather"
    total = size_bytes * members if gathers else size_bytes
    into = AstraSimRound(first, second, size_bytes, size_bytes if kind in REDUCING else 0)
    middle = _core_rounds(kind, working, -(-total // core) if gathers else size_bytes)
    back = size_bytes // members if kind == "reduce_scatter" else total
    return (into, *middle, AstraSimRound(second, first, back, 0))


def _core_rounds(kind: CollectiveKind, working: Ints, size_bytes: int) -> tuple[AstraSimRound, ...]:
    depth = len(working).bit_length() - 1

    def exchange(distance: int, size: int, reduced: int = 0) -> AstraSimRound:
        return AstraSimRound(working, working[np.arange(len(working)) ^ distance], size, reduced)

    if kind == "all_gather":
        return tuple(exchange(len(working) >> (i + 1), size_bytes << i) for i in range(depth))
    scattering = [exchange(1 << i, size_bytes >> (i + 1)) for i in range(depth)]
    # After the last halving there is no next message, and no reduction.
    reducing = [
        exchange(1 << i, one.size_bytes, after.size_bytes) for i, (one, after) in enumerate(pairwise(scattering))
    ]
    scatter = (*reducing, scattering[-1])
    return scatter if kind == "reduce_scatter" else (*scatter, *reversed(scattering))


def double_tree_variant(members: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the parent of each member in two trees: a leaf of one is an inner node of the other, where possible.

    >>> double_tree_variant(4)
    ((1, 3, 1, -1), (-1, 2, 0, 2))
    """
    if is_power_of_two(members) and members > 1:
        return _rooted_tree(members, root_last=True), _rooted_tree(members, root_last=False)
    balanced = [NO_PARENT] * members
    _fill_complete_tree(balanced, 0, members)
    mirrored = tuple(NO_PARENT if up == NO_PARENT else members - 1 - up for up in reversed(balanced))
    return tuple(balanced), mirrored


def _rooted_tree(members: int, *, root_last: bool) -> tuple[int, ...]:
    """Return a complete in-order tree below a root that is the last position, or the first."""
    parent = [NO_PARENT] * members
    shift, root = (0, members - 1) if root_last else (1, 0)
    parent[_fill_complete_tree(parent, shift, shift + members - 1)] = root
    return tuple(parent)


def _fill_complete_tree(parent: list[int], begin: int, end: int) -> int:
    """Make the middle of a range the parent of its positions, and return it."""
    middle = (begin + end) // 2
    for low, high in ((begin, middle), (middle + 1, end)):
        if low < high:
            parent[_fill_complete_tree(parent, low, high)] = middle
    return middle
