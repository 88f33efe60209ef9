"""Networks as graphs of every NPU, switch and link: from a network file, a design, or a system of the catalog.

`load_network` takes what a user writes: a network file, a design, or a system of the catalog.

`network_graph` has every NPU, switch and link of all dimensions of a network of named topologies.

Rank r has the coordinates r mod n0, r / n0 mod n1, and so on. Each dimension of p NPUs is there once for every choice
of the other coordinates. A link has its topology's share of the dimension's injection bandwidth over the
oversubscription, and the dimension's latency. A switch whose fabric has tiers is a tree of switches: each has all its
uplinks in one, and only those are oversubscribed; latency is that of the links of NPUs, unless it is a fat tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.base.errors import SpecError, require
from cosmic.base.files import exists, is_file
from cosmic.design import catalog_entries, schema
from cosmic.design.network_layer import Dimension, FabricTier, Network, topologies
from cosmic.design.plain_data import load_yaml, merge_at_key
from cosmic.design.systems import YAML_ENDINGS, is_model_at_system, read_system, split_size
from cosmic.network.dimension_wiring import healthy_graph, with_faults
from cosmic.network.link_graph import Ints, LinkGraph, graph_of
from cosmic.network.network_files.named_nodes import check_size
from cosmic.network.network_files.network_file import degrade_links, graph_of_data, is_network_data, read_graph
from cosmic.network.switch_tiers import FAT_TREE, tiers_of

# ---- A network of named topologies as a graph: every NPU, switch and link of all dimensions

MOST_LINKS = 20_000_000
"""More would not fit into memory."""


def network_graph(network: Network | Sequence[Dimension]) -> LinkGraph:
    """Return all links of a network; switches come after the NPUs, dimension by dimension.

    Links that are listed are as they say, scaled to the dimension's bandwidth and latency; links with faults are
    slower, and broken ones are left out.

    >>> dim = Dimension(topology="ring", npus=4, bandwidth_bytes_per_s=100e9, latency_s=1e-6)
    >>> graph = network_graph([dim, dim])
    >>> graph.npus, graph.links, float(graph.bandwidth_bytes_per_s[0])
    (16, 64, 50000000000.0)
    """
    full = network if isinstance(network, Network) else Network(dims=tuple(network))
    npus, stride, links = full.npus, 1, 0
    parts = [graph_of(npus, [])]
    for index, dim in enumerate(full.dims):
        tiers = tiers_of(full.dims, index) if not dim.links and topologies[dim.topology].switched else ()
        graph = tiered_graph(dim, tiers) if tiers else healthy_graph(dim.topology, dim.npus, dim.links)
        links += graph.links * (npus // dim.npus)
        rule = f"more than {MOST_LINKS:,} are not listed one by one"
        require(links <= MOST_LINKS, "network", f"{links:,} links", rule)
        copies = _copy_dimension(graph, dim, npus, stride, parts[-1].nodes)
        parts.append(with_faults(copies, tuple(fault for fault in full.faults if fault.dim == index)))
        stride *= dim.npus
    return LinkGraph(
        npus,
        np.concatenate([part.sources for part in parts]),
        np.concatenate([part.targets for part in parts]),
        np.concatenate([part.bandwidth_bytes_per_s for part in parts]),
        np.concatenate([part.latency_s for part in parts]),
        parts[-1].switches,
    )


def tiered_graph(dim: Dimension, tiers: Sequence[FabricTier]) -> LinkGraph:
    """Return one dimension whose switches are in tiers, normalised: NPUs inject 1 byte per second, links take 1 second.

    >>> dim = Dimension(topology="switch", npus=4, bandwidth_bytes_per_s=100e9, latency_s=1e-6)
    >>> tree = tiered_graph(dim, [FabricTier(2, 4.0)])
    >>> [(int(tree.sources[link]), int(tree.targets[link])) for link in range(8, 12)]
    [(4, 6), (6, 4), (5, 6), (6, 5)]
    >>> tree.bandwidth_bytes_per_s[8:].tolist(), tree.latency_s[8:].tolist()
    ([0.5, 0.5, 0.5, 0.5], [0.0, 0.0, 0.0, 0.0])
    """
    ends: list[tuple[int, int]] = []
    rates: list[float] = []
    latencies: list[float] = []
    # Normalised: an NPU injects 1 byte a second. Further tiers add latency in a fat tree only.
    below, rate, latency = [(npu, npu) for npu in range(dim.npus)], 1.0, 1.0  # nodes, with the first NPU of each
    for tier in (*tiers, FabricTier(dim.npus, 1.0)):
        first = max(node for node, _ in below) + 1
        above = {npu // tier.npus: npu for _, npu in reversed(below)}
        switch_of = {group: first + index for index, group in enumerate(sorted(above))}
        for node, npu in below:
            switch = switch_of[npu // tier.npus]
            ends += [(node, switch), (switch, node)]
        rates += [rate] * (2 * len(below))
        latencies += [latency] * (2 * len(below))
        below = [(switch_of[group], npu) for group, npu in sorted(above.items())]
        rate, latency = tier.npus / tier.oversubscription, 1.0 if dim.topology == FAT_TREE else 0.0
    links: Ints = np.array(ends, np.int64)
    switches = int(links.max()) + 1 - dim.npus
    return LinkGraph(dim.npus, links[:, 0], links[:, 1], np.array(rates), np.array(latencies), switches)


def _copy_dimension(graph: LinkGraph, dim: Dimension, npus: int, stride: int, nodes: int) -> LinkGraph:
    """Return all copies of a dimension with ranks *stride* apart; its switches are numbered from *nodes* on."""
    copies = npus // dim.npus
    ends = np.stack((graph.sources, graph.targets), axis=1)
    ranks: Ints = np.arange(npus, dtype=np.int64)
    first: Ints = ranks[ranks // stride % dim.npus == 0]  # the lowest rank of every copy
    placed = _place_ends(ends, dim.npus, first, stride, nodes, graph.switches)
    rates = np.tile(graph.bandwidth_bytes_per_s * (dim.bandwidth_bytes_per_s / dim.blocking), copies)
    latencies = np.tile(graph.latency_s * dim.latency_s, copies)
    switches = nodes - npus + graph.switches * copies
    return LinkGraph(npus, placed[:, 0], placed[:, 1], rates, latencies, switches)


def _place_ends(ends: Ints, size: int, first: Ints, stride: int, beyond: int, switches: int) -> Ints:
    """Return the ends of a dimension's links in each of its copies: ranks, or switches from node *beyond* on."""
    copy = np.arange(len(first), dtype=np.int64)[:, None, None]
    ranks = first[:, None, None] + ends * stride
    return np.where(ends < size, ranks, beyond + copy * switches + ends - size).reshape(-1, 2)


# ---- From what a user writes to the links of a network: a network file, a design, or a system of the catalog

TREES = (*YAML_ENDINGS, ".json")
NEITHER = "is no network: give a file of links, a design, MODEL@SYSTEM:N or SYSTEM:N of the catalog"


def load_network(source: str, failures: Sequence[str] = ()) -> LinkGraph:
    """Return the network of *source*, without the links in *failures*.

    *source* is the path of a network file of any format, or of a design; ``MODEL@SYSTEM:N`` or ``SYSTEM:N``.

    >>> graph = load_network("dgx-h100:16", ["0-s0*0.5"])
    >>> graph.npus, graph.switches > 0
    (16, True)
    """
    return degrade_links(_load_source(source), failures, "--fail")


def _load_source(source: str) -> LinkGraph:
    if is_file(source):
        return _load_file(source)
    if is_model_at_system(source):
        model, _, name = source.rpartition("@")
        if not exists(model):
            catalog_entries.read_entry("models", model)
        return _load_tree({"system": name}, Path())
    if catalog_entries.resolve_name("systems", split_size(source)[0]) or split_size(source)[0].endswith(YAML_ENDINGS):
        return _load_tree({"system": source}, Path())
    require(not exists(source), "network", source, "is a directory, a pipe or a device, and not a file")
    raise SpecError("network", source, NEITHER)


def _load_file(path: str) -> LinkGraph:
    """Return the network of a file, which may be a design."""
    if not path.lower().endswith(TREES):
        return read_graph(path)
    tree = load_yaml(Path(path))
    if is_network_data(tree) or not isinstance(tree, dict) or not {"network", "system"} & set(tree):
        return graph_of_data(tree, Path(path).name)
    return _load_tree(tree, Path(path).parent)


def _load_tree(tree: Mapping[str, Any], folder: Path) -> LinkGraph:
    """Return the network of a design, as `load_design` completes it; nothing else of the design is needed."""
    name = tree.get("system")
    require(name is None or isinstance(name, str), "system", name, "must be the name of a system")
    base = read_system(name, folder) if isinstance(name, str) else {}
    merged = merge_at_key(base.get("network", {}), tree.get("network", {}), "network")
    network: Network = schema.read_value(Network, merged, "network")
    check_size(prod(dim.npus for dim in network.dims), "network")
    return network_graph(network)
