"""Who takes part in a collective: groups of accelerators, checked against a network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cosmic.errors import require
from cosmic.graphs.graph import LinkGraph
from cosmic.graphs.schedule import KINDS, Kind
from cosmic.synthesis.flows import net_of, reached

Groups = tuple[tuple[int, ...], ...]
MOST_CHUNKS = 1_000_000
"""The most chunks of a member."""
FROM_ALL: tuple[Kind, ...] = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
"""Collectives in which every member has something that all others wait for."""


def checked_groups(
    graph: LinkGraph, kind: Kind, size_bytes: float, groups: Sequence[Sequence[int]] | None, root: int
) -> Groups:
    """Return the groups of a collective: those stated, or one of all NPUs; raise where the network cannot carry it."""
    require(kind in KINDS, "collective", kind, f"must be one of {', '.join(KINDS)}")
    require(bool(np.isfinite(size_bytes)) and size_bytes > 0, "size", size_bytes, "must be positive")
    found: Groups = (
        (tuple(range(graph.npus)),) if groups is None else tuple(tuple(int(each) for each in group) for group in groups)
    )
    require(len(found) > 0, "groups", 0, "must have at least 1 group")
    _check_members(graph, found)
    for place, group in enumerate(found):
        rule = f"must be a place in group {place}, which has {len(group)} members, from 0"
        require(0 <= root < len(group), "root", root, rule)
        _check_reach(graph, kind, group, root)
    return found


def check_chunks(chunks: int | None) -> None:
    """Raise where a stated number of chunks is none."""
    if chunks is not None:
        require(1 <= chunks <= MOST_CHUNKS, "chunks", chunks, f"must be between 1 and {MOST_CHUNKS:,}")


def _check_members(graph: LinkGraph, groups: Groups) -> None:
    known: set[int] = set()
    for place, group in enumerate(groups):
        require(len(group) > 0, f"groups.{place}", 0, "a group has at least 1 member")
        for member in group:
            rule = f"is no NPU: there are {graph.npus}, from 0"
            require(0 <= member < graph.npus, f"groups.{place}", member, rule)
            require(member not in known, f"groups.{place}", member, "is a member twice")
            known.add(member)


def _check_reach(graph: LinkGraph, kind: Kind, group: tuple[int, ...], root: int) -> None:
    """Raise where a member cannot be reached, or cannot reach the others."""
    if len(group) == 1:
        return
    net, start = net_of(graph, graph.bandwidth_bytes_per_s), group[root]
    for back in (False, True):
        if kind not in FROM_ALL and back != (kind == "reduce"):
            continue
        found = reached(net, start, back=back)
        for member in group:
            rule = f"there is no way {'from it to' if back else 'to it from'} node {graph.name(start)}"
            require(member in found, f"node {graph.name(member)}", member, rule)
