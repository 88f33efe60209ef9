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
    graph: LinkGraph, sources: Ints, targets: Ints, sizes: Floats, times: Sequence[Floats], places: Sequence[str]
) -> Ints:
    """Return the link of each transfer; of parallel ones the first that is free then and takes as long.

    *times* are starts and ends in seconds, or arrivals alone, for which the fastest link is taken.
    """
    finder = link_finder(graph)
    links = np.zeros(len(sources), np.int64)
    parallel: list[int] = []
    for row, pair in enumerate(zip(sources.tolist(), targets.tolist(), strict=True)):
        found = finder.get(pair)
        if found is None:
            names = "→".join(map(graph.name, pair))
            require(False, places[row], names, "no link of this network joins them")
        elif len(found) > 1 and len(times) == 2:
            parallel.append(row)
        links[row] = found[0] if found else 0
    free: dict[int, float] = defaultdict(float)
    for row in sorted(parallel, key=lambda each: (float(times[0][each]), each)):
        start, end = float(times[0][row]), float(times[1][row])
        close = 1e-9 * abs(end) + 1e-12
        options = finder[int(sources[row]), int(targets[row])]
        long = [
            link
            for link in options
            if graph.latency_s[link] + sizes[row] / graph.bandwidth_bytes_per_s[link] <= end - start + close
        ]
        idle = [link for link in long if free[link] <= start + close]
        links[row] = (idle or long or options)[0]
        free[int(links[row])] = end
    return links
