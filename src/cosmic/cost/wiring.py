"""A network of named topologies as a graph: every NPU, switch and link of all dimensions.

Rank r has the coordinates r mod n0, r / n0 mod n1, and so on. Each dimension of p NPUs is there once for every choice
of the other coordinates. A link has its topology's share of the dimension's injection bandwidth over the
oversubscription, and the dimension's latency.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from cosmic.design.network import Dimension, Network, edges_of, topologies
from cosmic.errors import require
from cosmic.graphs.graph import Floats, Ints, LinkGraph

MOST_LINKS = 20_000_000
"""More would not fit into memory."""


def network_graph(network: Network | Sequence[Dimension]) -> LinkGraph:
    """Return all links of a network; switches come after the NPUs, dimension by dimension.

    >>> dim = Dimension(topology="ring", npus=4, bandwidth_bytes_per_s=100e9, latency_s=1e-6)
    >>> graph = network_graph([dim, dim])
    >>> graph.npus, graph.links, float(graph.bandwidth_bytes_per_s[0])
    (16, 64, 50000000000.0)
    """
    dims = network.dims if isinstance(network, Network) else tuple(network)
    npus = prod(dim.npus for dim in dims)
    parts: list[tuple[Ints, Ints, Floats, Floats]] = []
    stride, nodes, links = 1, npus, 0
    for dim in dims:
        copies = npus // dim.npus
        edges = np.array(list(edges_of(topologies[dim.topology], dim.npus)), np.float64).reshape(-1, 3)
        links += len(edges) * copies
        rule = f"more than {MOST_LINKS:,} are not listed one by one"
        require(links <= MOST_LINKS, "network", f"{links:,} links", rule)
        ends = edges[:, :2].astype(np.int64)
        switches = max(int(ends.max(initial=0)) + 1 - dim.npus, 0)
        placed = _placed(ends, dim.npus, _first_ranks(npus, stride, dim.npus), stride, nodes, switches)
        rate = dim.bandwidth_bytes_per_s / dim.oversubscription
        shares = np.tile(edges[:, 2], copies)
        parts.append((placed[:, 0], placed[:, 1], shares * rate, np.full(len(shares), dim.latency_s)))
        stride, nodes = stride * dim.npus, nodes + switches * copies
    if not parts:
        none = np.empty(0)
        return LinkGraph(npus, none.astype(np.int64), none.astype(np.int64), none, none)
    sources, targets, rates, latencies = (np.concatenate(column) for column in zip(*parts, strict=True))
    return LinkGraph(npus, sources, targets, rates, latencies, nodes - npus)


def _first_ranks(npus: int, stride: int, size: int) -> Ints:
    """Return the lowest rank of every copy of a dimension of *size* NPUs that are *stride* ranks apart."""
    ranks: Ints = np.arange(npus, dtype=np.int64)
    found: Ints = ranks[ranks // stride % size == 0]
    return found


def _placed(ends: Ints, size: int, first: Ints, stride: int, beyond: int, switches: int) -> Ints:
    """Return the ends of a dimension's links in each of its copies: ranks, or switches from node *beyond* on."""
    copy = np.arange(len(first), dtype=np.int64)[:, None, None]
    ranks = first[:, None, None] + ends * stride
    return np.where(ends < size, ranks, beyond + copy * switches + ends - size).reshape(-1, 2)
