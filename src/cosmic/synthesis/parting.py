"""What all-reduces must send between the parts of a network.

Of a network in q parts, each with some of the members, every byte of the sum takes 2 (q - 1) messages between parts:
q - 1 until some part has heard of all others, and q - 1 more until they have heard of it (the messages that gossip
among q needs). All of them leave a part, so that

    T >= 2 (q - 1) M / Σ B+(part)        and the same with what enters them

Parts that matter are those that narrow links part: what is left connected by links above some bandwidth. With every
node by itself this is the known 2 (p - 1) / p · M / B of p equal members.
"""

from __future__ import annotations

import numpy as np

from cosmic.graphs.graph import Ints, LinkGraph

MOST_LEVELS = 48
"""Bandwidths that are tried as the narrow ones."""
MOST_LINKS = 400_000
"""Links up to which parts are looked for beside single nodes."""


def parted_s(graph: LinkGraph, size_bytes: float, members: Ints) -> float:
    """Return the longest time that an all-reduce needs between the parts of a network.

    >>> from cosmic.graphs.graph import graph_of
    >>> ring = graph_of(4, [(i, (i + j) % 4, 1e9, 0.0) for i in range(4) for j in (1, 3)])
    >>> parted_s(ring, 4e9, np.arange(4))
    3.0
    """
    alone = np.arange(graph.nodes)
    worst = _between_s(graph, size_bytes, members, alone)
    levels = np.unique(graph.bandwidth_bytes_per_s)[:-1]  # above the widest no two nodes are joined
    if len(levels) > MOST_LEVELS:
        levels = levels[np.linspace(0, len(levels) - 1, MOST_LEVELS).astype(int)]
    if graph.links > MOST_LINKS:
        return worst
    for level in levels.tolist():
        parts = _parts(graph, graph.bandwidth_bytes_per_s > level)
        worst = max(worst, _between_s(graph, size_bytes, members, parts))
    return worst


def _between_s(graph: LinkGraph, size_bytes: float, members: Ints, parts: Ints) -> float:
    """Return the time that messages between *parts* take, by what can leave and enter those that have NPUs."""
    count = len(np.unique(parts[members]))
    if count < 2:
        return 0.0
    begins, ends = parts[graph.sources], parts[graph.targets]
    between = begins != ends
    housed = np.zeros(graph.nodes, bool)
    housed[parts[: graph.npus]] = True  # a switch by itself neither adds up nor copies
    rates = [float(graph.bandwidth_bytes_per_s[between & housed[side]].sum()) for side in (begins, ends)]
    return 2 * (count - 1) * size_bytes / min(rates)


def _parts(graph: LinkGraph, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Ints:
    """Return the part of each node: those that the *kept* links join, in either direction, are one."""
    part = np.arange(graph.nodes)
    sources, targets = graph.sources[kept], graph.targets[kept]
    while True:
        lower = np.minimum(part[sources], part[targets])
        after = part.copy()
        np.minimum.at(after, sources, lower)
        np.minimum.at(after, targets, lower)
        after = after[after]
        if (after == part).all():
            found: Ints = after
            return found
        part = after
