"""Networks with broken and slow links.

A-B        no link between A and B, in either direction
A>B        no link from A to B
A-B*0.25   links between A and B have a quarter of their bandwidth; so does A>B*0.25
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from cosmic.errors import SpecError, require
from cosmic.graphs.graph import LinkGraph
from cosmic.graphs.nodes import find_node, node_of, plain_number

RULE = "write A-B for both directions of a link, A>B for one, A-B*0.25 to slow it"


def degraded(graph: LinkGraph, failures: Sequence[str], where: str = "--fail") -> LinkGraph:
    """Return *graph* without the links that *failures* name, or with those links slowed.

    >>> from cosmic.graphs.graph import graph_of
    >>> pair = graph_of(2, [(0, 1, 8e9, 0.0), (1, 0, 8e9, 0.0)])
    >>> degraded(pair, ["0>1"]).links, degraded(pair, ["0-1*0.25"]).bandwidth_bytes_per_s.tolist()
    (1, [2000000000.0, 2000000000.0])
    """
    rate = graph.bandwidth_bytes_per_s.copy()
    for failure in failures:
        source, target, both, share = _parsed(graph, failure, where)
        hit = (graph.sources == source) & (graph.targets == target)
        if both:
            hit |= (graph.sources == target) & (graph.targets == source)
        require(bool(hit.any()), where, failure, "there is no such link")
        rate[hit] *= share
    kept = rate > 0
    return replace(
        graph,
        sources=graph.sources[kept],
        targets=graph.targets[kept],
        bandwidth_bytes_per_s=np.ascontiguousarray(rate[kept]),
        latency_s=graph.latency_s[kept],
    )


def _parsed(graph: LinkGraph, failure: str, where: str) -> tuple[int, int, bool, float]:
    """Return both ends of a failed link, whether both directions fail, and the share of its bandwidth that is left."""
    for link, share in _shares(failure, where):
        for place, letter in enumerate(link):
            if letter not in "->":
                continue
            ends = [find_node(graph, part.strip()) for part in (link[:place], link[place + 1 :])]
            if ends[0] is not None and ends[1] is not None:
                return ends[0], ends[1], letter == "-", share
    link = failure.rpartition("*")[0] or failure
    for mark in ">-":
        if link.count(mark) == 1:
            for part in link.split(mark):
                node_of(graph, part.strip(), f"{where} {failure}")
    raise SpecError(where, failure, RULE)


def _shares(failure: str, where: str) -> Iterator[tuple[str, float]]:
    """Yield a link and the share that is left of it; names may have asterisks."""
    link, mark, share = failure.rpartition("*")
    if mark:
        left = plain_number(share.strip(), f"{where} {failure}")
        require(0 < left <= 1, where, failure, "the share of bandwidth that is left is more than 0, and 1 at most")
        yield link, left
    yield failure, 0.0
