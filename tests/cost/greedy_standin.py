"""A plain greedy synthesiser: what tests of pricing use, so that they do not follow from the real one's choices."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosmic.graphs.graph import LinkGraph
from cosmic.graphs.routing import distances
from cosmic.graphs.schedule import Kind, Schedule, chunk_bytes, chunk_count


@dataclass(frozen=True)
class Bounds:
    """Only what pricing reads."""

    node_s: float
    cut_s: float
    distance_s: float


def bounds(graph: LinkGraph, kind: Kind, size_bytes: float, *, groups: Any = None, **_: Any) -> Bounds:
    """Return the node bound and the distance bound."""
    members = len(groups[0])
    sent = np.bincount(graph.sources, graph.bandwidth_bytes_per_s, graph.nodes)[: graph.npus]
    received = np.bincount(graph.targets, graph.bandwidth_bytes_per_s, graph.nodes)[: graph.npus]
    passes = 2 if kind == "all_reduce" else 1
    node = passes * size_bytes * (members - 1) / members / float(np.minimum(sent, received).min())
    apart = distances(graph, np.arange(graph.npus))
    far = max(int(apart[one, other]) for group in groups for one in group for other in group)
    return Bounds(node, 0.0, passes * far * float(graph.latency_s.min(initial=np.inf)))


def synthesize(
    graph: LinkGraph, kind: Kind, size_bytes: float, *, chunks: int | None = None, groups: Any = None, **_: Any
) -> Schedule:
    """Return a schedule: every chunk floods from its owner along shortest paths, first come first served."""
    per = chunks or 2
    first = 0
    moves: list[tuple[int, int, float, float]] = []
    free = np.zeros(graph.links)
    leaving: dict[int, list[int]] = {}
    for link, source in enumerate(graph.sources.tolist()):
        leaving.setdefault(source, []).append(link)
    towards = distances(graph.transposed(), np.arange(graph.npus))
    waiting: list[tuple[float, int, int, tuple[int, ...]]] = []
    size = 1.0
    for group in groups:
        size = chunk_bytes(kind, size_bytes, len(group), per)
        for chunk in range(chunk_count(kind, len(group), per)):
            owner = group[chunk % len(group)]
            ends = (group[chunk // len(group) % len(group)],) if kind == "all_to_all" else tuple(group)
            for end in ends:
                if end != owner:
                    heapq.heappush(waiting, (0.0, first + chunk, owner, (end,)))
        first += chunk_count(kind, len(group), per)
    carried: dict[tuple[int, int], float] = {}
    while waiting:
        ready, chunk, node, (end,) = heapq.heappop(waiting)
        options = [link for link in leaving[node] if towards[end, graph.targets[link]] == towards[end, node] - 1]
        known = [link for link in options if (chunk, link) in carried and kind != "all_to_all"]
        if known and node < graph.npus:
            arrived, link = carried[chunk, known[0]], known[0]
        else:
            link = min(options, key=lambda each: (max(ready, free[each]), each))
            began = max(ready, free[link])
            arrived = began + graph.latency_s[link] + size / graph.bandwidth_bytes_per_s[link]
            free[link] = carried[chunk, link] = arrived
            moves.append((link, chunk, began, arrived))
        there = int(graph.targets[link])
        if there != end:
            heapq.heappush(waiting, (float(arrived), chunk, there, (end,)))
    return _scheduled(graph, kind, size_bytes, per, groups, moves)


def _scheduled(
    graph: LinkGraph, kind: Kind, size_bytes: float, chunks: int, groups: Any, moves: Sequence[tuple[Any, ...]]
) -> Schedule:
    moves = sorted(moves, key=lambda move: move[2])
    columns = list(zip(*moves, strict=True)) if moves else [(), (), (), ()]
    link, chunk = (np.array(column, np.int64) for column in columns[:2])
    start, end = (np.array(column, np.float64) for column in columns[2:])
    return Schedule(graph, kind, size_bytes, chunks, tuple(groups), link, chunk, start, end)
