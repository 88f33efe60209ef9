"""Small facts of networks, each worked out by hand: what switches, what links are called, which designs share links."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.network_layer import Dimension, Fault, Link, Network, topologies
from cosmic.network.collective_costs import dimension_at, flat_seconds, subgroups
from cosmic.network.dimension_wiring import looks_at_links, wiring_paths
from cosmic.network.link_graph import graph_of
from cosmic.network.mesh_spans import Span
from cosmic.network.network_graphs import load_network, network_graph
from cosmic.network.switch_tiers import library_terms, tier_terms
from cosmic.search.mapping.design_completion import load_design

RING = Dimension(topology="ring", npus=4, bandwidth_bytes_per_s=100e9, latency_s=1e-6)


def test_only_switches_fat_trees_and_dragonflies_are_switched() -> None:
    assert {name for name in topologies if topologies[name].switched} == {"switch", "fat_tree", "dragonfly"}


def test_the_first_switch_comes_after_the_last_npu() -> None:
    graph = graph_of(2, [(0, 2, 1e9, 0.0), (2, 1, 1e9, 0.0)], switches=1)
    assert [graph.name(node) for node in range(3)] == ["0", "1", "s0"]


def test_links_are_looked_at_where_some_are_listed_or_at_fault() -> None:
    both_ways = (
        Link(source=0, target=1, bandwidth_bytes_per_s=1e9),
        Link(source=1, target=0, bandwidth_bytes_per_s=1e9),
    )
    listed = Dimension(topology="graph", npus=2, bandwidth_bytes_per_s=1e9, latency_s=0.0, links=both_ways)
    assert [looks_at_links(Network(dims=(RING, listed)), index) for index in range(2)] == [False, True]
    faulty = Network(dims=(RING, RING), faults=(Fault(npu=0, dim=0),))
    assert [looks_at_links(faulty, index) for index in range(2)] == [True, False]


def test_rings_have_no_nodes_beside_their_members() -> None:
    ring, switch = (
        network_graph([RING]),
        network_graph([Dimension(topology="switch", npus=4, bandwidth_bytes_per_s=1e9, latency_s=0.0)]),
    )
    assert ring.npus == ring.nodes == 4
    assert switch.npus == 4 < switch.nodes


def test_columns_of_faults_set_designs_apart() -> None:
    point = load_design("llama3-8b@dgx-h100:16")
    plain = batch_of(point)
    assert wiring_paths(plain) == []
    faulty = Batch(point, {"network.faults.0.speed": np.array([0.5, 0.25]), "workload.tp": np.array([8, 8])})
    assert wiring_paths(faulty) == ["network.faults.0.speed"]
    sizes = {"network.dims.1.npus": np.array([2, 4])}
    assert wiring_paths(Batch(point, sizes)) == []  # where no link is at fault, sizes need not agree
    assert wiring_paths(Batch(point, {**sizes, "network.faults.0.speed": np.array([0.5, 0.25])})) == [
        "network.dims.1.npus",
        "network.faults.0.speed",
    ]


def test_libraries_get_the_shares_and_not_the_distances() -> None:
    where = ("fat_tree", 8, 8, 64, 4.0, 1.0)  # 8 NPUs of a node, 8 nodes, radix 64, leaves oversubscribed 4:1
    ring, tree = library_terms("fat_tree", "auto", 256, 64, 1, *where)
    assert ring == tier_terms("all_reduce", "fat_tree", "ring", 256, 64, 1, *where)[0]
    assert tree == tier_terms("all_reduce", "fat_tree", "double_binary_tree", 256, 64, 1, *where)[0]
    assert ring <= 1.0
    assert tier_terms("all_reduce", "fat_tree", "ring", 256, 64, 1, *where)[1] != ring


def test_a_flat_all_to_all_takes_as_long_as_its_slowest_dimension() -> None:
    dims = (
        Dimension(topology="switch", npus=8, bandwidth_bytes_per_s=1e9, latency_s=0.0),
        Dimension(topology="switch", npus=4, bandwidth_bytes_per_s=100e9, latency_s=0.5),
    )
    group = subgroups([dimension_at(dims, place, "direct") for place in range(2)], [Span(8.0, 1.0), Span(4.0, 1.0)])
    # A quarter of 32 GB stays in the node, 7/8 of it goes to others; outside: 24 GB at 100 GB/s, and two hops.
    assert float(flat_seconds(group, 32e9)) == pytest.approx(32 / 4 * 7 / 8)
    assert float(flat_seconds(group, 32e6)) == pytest.approx(2 * 0.5 + 32e6 * 3 / 4 / 100e9)


def test_a_file_with_a_network_alone_needs_no_system(tmp_path: Path) -> None:
    path = tmp_path / "net.yaml"
    path.write_text("network:\n  dims: [{topology: ring, npus: 4, bandwidth: 100 GB/s, latency: 1 us}]\n")
    assert load_network(str(path), []).npus == 4
