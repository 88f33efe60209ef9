"""Which link a transfer between two nodes takes; several may join the same two."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from cosmic.errors import require
from cosmic.graphs.graph import Floats, Ints, LinkGraph


def link_finder(graph: LinkGraph) -> dict[tuple[int, int], list[int]]:
    """Return the links between each two nodes, the fastest first."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    order = np.lexsort((graph.latency_s, -graph.bandwidth_bytes_per_s))
    for link in order.tolist():
        found[int(graph.sources[link]), int(graph.targets[link])].append(link)
    return dict(found)


def links_of_times(
    graph: LinkGraph, ends: tuple[Ints, Ints], sizes: Floats, times: Sequence[Floats], where: str
) -> Ints:
    """Return the link of each transfer; of parallel ones the first that is free then and takes as long.

    *times* are starts and ends in seconds, or arrivals alone, for which the fastest link is taken.
    """
    key = graph.sources * graph.nodes + graph.targets
    order = np.lexsort((graph.latency_s, -graph.bandwidth_bytes_per_s, key))
    known, wanted = key[order], ends[0] * graph.nodes + ends[1]
    first = np.searchsorted(known, wanted)
    count = np.searchsorted(known, wanted, "right") - first
    for row in np.flatnonzero(count == 0)[:1].tolist():
        names = "→".join(graph.name(int(end[row])) for end in ends)
        require(False, f"{where}: transfer {row}", names, "no link of this network joins them")
    links: Ints = order[first]
    parallel = np.flatnonzero(count > 1) if len(times) == 2 else np.zeros(0, np.int64)
    free: dict[int, float] = defaultdict(float)
    for row in sorted(parallel.tolist(), key=lambda each: (float(times[0][each]), each)):
        start, end = float(times[0][row]), float(times[1][row])
        close = 1e-9 * abs(end) + 1e-12
        options = order[first[row] : first[row] + count[row]].tolist()
        takes = {link: graph.latency_s[link] + sizes[row] / graph.bandwidth_bytes_per_s[link] for link in options}
        long = [link for link in options if takes[link] <= end - start + close]
        idle = [link for link in long if free[link] <= start + close]
        links[row] = (idle or long or options)[0]
        free[int(links[row])] = end
    return links
