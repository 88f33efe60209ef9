"""A schedule as a value: which chunk crosses which link when, where each chunk begins and where it is to be.

Chunks are numbered group after group. In a group of p members m[0] to m[p - 1], with k chunks for each of them:

    all-gather        p k chunks; chunk c begins at m[c mod p], and is to reach all members
    reduce-scatter    p k chunks; all members have a part of chunk c, and its sum is to be at m[c mod p]
    all-reduce        p k chunks; all members have a part of chunk c, and its sum is to reach all of them
    all-to-all        p p k chunks; chunk c begins at m[c mod p], and is to reach m[(c div p) mod p]
    broadcast         k chunks; each begins at the root, and is to reach all members
    reduce            k chunks; all members have a part of each, and its sum is to be at the root

The root is m[root]. A transfer of partial sums adds to what its receiver has; a transfer of a whole sum replaces it.

`Chunks` holds where each chunk of a schedule begins, where it is to be, and how large it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import require
from cosmic.base.json_types import Count, PositiveCount
from cosmic.network.link_graph import Floats, Ints, LinkGraph

Kind = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", "reduce"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, eq=False)
class Schedule:
    """A collective, or the same one in several groups at once, as transfers over the links of a network."""

    graph: LinkGraph
    kind: Kind
    """Which collective, such as all_gather."""
    size_bytes: float
    """The whole buffer of one NPU: the output of an all-gather, the input of the others."""
    chunks_per_npu: PositiveCount
    """Chunks of a member: k above."""
    groups: tuple[tuple[int, ...], ...]
    """The members of each group, in order; the groups have no member in common."""
    link: Ints
    """The link of each transfer; transfers are in the order of their starts."""
    chunk: Ints
    start_s: Floats
    end_s: Floats
    root: int = 0
    """Position of the root among the members of each group."""
    reduces: npt.NDArray[np.bool_] | None = None
    """Whether the receiver adds each transfer to what it has, or copies it; None where nobody says so."""

    @property
    def time_s(self) -> float:
        """Time until the last transfer has ended."""
        return float(self.end_s.max()) if len(self.end_s) else 0.0

    @property
    def transfers(self) -> Count:
        """Transfers of a chunk over a link."""
        return len(self.link)

    def chunk_bytes(self, group: int = 0) -> float:
        """Return the bytes of one chunk of a group."""
        return chunk_bytes(self.kind, self.size_bytes, len(self.groups[group]), self.chunks_per_npu)


SCHEDULE_KEYS = {
    "collective": "schedule.kind",
    "size_bytes": "schedule.size_bytes",
    "npus": "schedule.graph.npus",
    "chunks_per_npu": "schedule.chunks_per_npu",
    "transfers": "schedule.transfers",
    "time_s": "schedule.time_s",
}
"""What the JSON of a value that has a schedule says of it, in sum."""


def chunk_bytes(kind: Kind, size_bytes: float, members: int, chunks_per_npu: int) -> float:
    """Return the bytes of one chunk.

    >>> chunk_bytes("all_gather", 1024, 8, 2), chunk_bytes("broadcast", 1024, 8, 2)
    (64.0, 512.0)
    """
    parts = 1 if kind in ("broadcast", "reduce") else members
    return size_bytes / (parts * chunks_per_npu)


def chunk_count(kind: Kind, members: int, chunks_per_npu: int) -> int:
    """Return the number of chunks of a group.

    >>> chunk_count("all_gather", 8, 2), chunk_count("all_to_all", 8, 1), chunk_count("broadcast", 8, 4)
    (16, 64, 4)
    """
    return chunks_per_npu * {"all_to_all": members * members, "broadcast": 1, "reduce": 1}.get(kind, members)


# ---- The chunks of a schedule: where each begins, where it is to be, and how large it is

SUMS: tuple[Kind, ...] = ("reduce_scatter", "all_reduce", "reduce")
"""Collectives that add up."""
NOWHERE = -1
MOST_CHUNKS = 2**25


@dataclass(frozen=True, eq=False)
class Chunks:
    """A row for each chunk of all groups."""

    group: Ints
    home: Ints
    """The node at which it begins or, of sums, at which the whole sum is formed first."""
    target: Ints
    """The only node that it is to reach, or `NOWHERE` if all members."""
    size_bytes: Floats
    first: Ints
    """The first chunk of each group, and the number of all chunks."""
    member_of: Ints
    """The group of each node, or `NOWHERE`."""

    @property
    def count(self) -> int:
        """Number of chunks."""
        return len(self.group)


def chunks_of(schedule: Schedule) -> Chunks:
    """Return the chunks of a schedule."""
    kind, k = schedule.kind, schedule.chunks_per_npu
    counts = [chunk_count(kind, len(group), k) for group in schedule.groups]
    require(sum(counts) < MOST_CHUNKS, "chunks", f"{sum(counts):,}", "are more than can be told apart")
    parts = [_homes_and_targets(schedule, index) for index in range(len(counts))]
    home, target = (np.concatenate([part[column] for part in parts]) for column in range(2))
    sizes = [chunk_bytes(kind, schedule.size_bytes, len(group), k) for group in schedule.groups]
    member_of = np.full(schedule.graph.nodes, NOWHERE, np.int64)
    for index, group in enumerate(schedule.groups):
        member_of[list(group)] = index
    return Chunks(
        np.repeat(np.arange(len(counts)), counts),
        home,
        target,
        np.repeat(np.array(sizes), counts),
        np.cumsum([0, *counts]),
        member_of,
    )


def _homes_and_targets(schedule: Schedule, index: int) -> tuple[Ints, Ints]:
    """Return the homes and targets of a group's chunks."""
    members = np.array(schedule.groups[index], np.int64)
    p = len(members)
    chunk = np.arange(chunk_count(schedule.kind, p, schedule.chunks_per_npu), dtype=np.int64)
    everywhere = np.full(len(chunk), NOWHERE)
    if schedule.kind == "all_to_all":
        return members[chunk % p], members[chunk // p % p]
    if schedule.kind == "broadcast":
        return np.full(len(chunk), members[schedule.root]), everywhere
    if schedule.kind == "reduce":
        root = np.full(len(chunk), members[schedule.root])
        return root, root
    home = members[chunk % p]
    return home, (home if schedule.kind == "reduce_scatter" else everywhere)


def check_groups(graph: LinkGraph, groups: Sequence[Sequence[int]], root: int = 0, where: str = "group") -> None:
    """Refuse groups without members, with a member twice, with members that are no NPUs, or without the root."""
    seen: set[int] = set()
    for group in groups:
        require(len(group) > 0, where, list(group), "a group has at least 1 member")
        for rank in group:
            rule = f"is no NPU: there are {graph.npus:,}, from 0"
            require(0 <= rank < graph.npus, where, rank, rule)
            require(rank not in seen, where, rank, "is a member twice; groups have no member in common")
            seen.add(rank)
        rule = f"the root is a position in each group: one has {len(group)} members, from 0"
        require(0 <= root < len(group), "root", root, rule)
