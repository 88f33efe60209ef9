"""The chunks of a schedule: where each begins, where it is to be, and how large it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cosmic.errors import require
from cosmic.graphs.graph import Floats, Ints, LinkGraph
from cosmic.graphs.schedule import Kind, Schedule, chunk_bytes, chunk_count

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
    parts = [_of_group(schedule, place) for place in range(len(counts))]
    home, target = (np.concatenate([part[column] for part in parts]) for column in range(2))
    sizes = [chunk_bytes(kind, schedule.size_bytes, len(group), k) for group in schedule.groups]
    member_of = np.full(schedule.graph.nodes, NOWHERE, np.int64)
    for place, group in enumerate(schedule.groups):
        member_of[list(group)] = place
    return Chunks(
        np.repeat(np.arange(len(counts)), counts),
        home,
        target,
        np.repeat(np.array(sizes), counts),
        np.cumsum([0, *counts]),
        member_of,
    )


def _of_group(schedule: Schedule, place: int) -> tuple[Ints, Ints]:
    """Return the homes and targets of a group's chunks."""
    members = np.array(schedule.groups[place], np.int64)
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
