"""Which nodes of a network reach which."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cosmic.errors import require
from cosmic.graphs.graph import Ints, LinkGraph


def reached(graph: LinkGraph, start: int) -> npt.NDArray[np.bool_]:
    """Return which nodes a message from *start* can reach.

    >>> from cosmic.graphs.graph import graph_of
    >>> reached(graph_of(3, [(0, 1, 1e9, 0.0)]), 0).tolist()
    [True, True, False]
    """
    order = np.argsort(graph.sources, kind="stable")
    targets: Ints = graph.targets[order]
    first = np.searchsorted(graph.sources[order], np.arange(graph.nodes + 1))
    found = np.zeros(graph.nodes, np.bool_)
    found[start] = True
    front = np.array([start])
    while len(front):
        counts = first[front + 1] - first[front]
        places = np.repeat(first[front + 1] - np.cumsum(counts), counts) + np.arange(counts.sum())
        front = np.unique(targets[places])
        front = front[~found[front]]
        found[front] = True
    return found


def require_connected(graph: LinkGraph, groups: Sequence[Sequence[int]] | None = None, where: str = "network") -> None:
    """Refuse a network in which a member of a group cannot reach another one; without *groups*, all NPUs are one."""
    back = graph.transposed()
    for group in groups or [range(graph.npus)]:
        members = np.asarray(group, np.int64)
        start = int(members[0])
        for found, words in ((reached(graph, start), "from {} to {}"), (reached(back, start), "from {1} to {0}")):
            for lost in members[~found[members]][:1]:
                path = words.format(graph.name(start), graph.name(int(lost)))
                require(False, where, f"{graph.npus} NPUs", f"is not connected: no path leads {path}")
