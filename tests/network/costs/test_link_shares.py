"""Textbook collectives on links: values worked out by hand, and relations between networks."""

from __future__ import annotations

from random import Random
from typing import get_args

import pytest

from cosmic.cluster.cluster_cost import network_usd
from cosmic.design.collective_layer import CollectiveKind
from cosmic.design.network_layer import Dimension, Fault, Link, Network
from cosmic.network.collective_costs import collective_terms, one_dimension_seconds
from cosmic.network.dimension_wiring import PLAIN, label_of, wiring_at
from cosmic.network.link_costs import group_layouts, link_terms
from tests.relations.random_designs import list_links

KINDS: tuple[CollectiveKind, ...] = get_args(CollectiveKind)
TEXTBOOK = ("ring", "direct", "halving_doubling", "double_binary_tree")


def named(topology: str, npus: int) -> Dimension:
    return Dimension(topology=topology, npus=npus, bandwidth_bytes_per_s=100e9, latency_s=1e-6)


def faulty(dim: Dimension, *faults: Fault) -> str:
    return str(label_of(dim.topology, wiring_at(Network(dims=(dim,), faults=faults), 0)))


def test_a_ring_one_way_is_a_ring() -> None:
    links = tuple(
        Link(source=npu, target=(npu + 1) % 4, bandwidth_bytes_per_s=100e9, latency_s=1e-6) for npu in range(4)
    )
    dim = Dimension(topology="graph", npus=4, links=links)
    # 3 steps; 3/4 of 4 GB over links of 100 GB/s
    assert one_dimension_seconds("all_gather", "ring", 4, 4e9, dim) == pytest.approx(3e-6 + 0.03)


def test_a_slow_link_slows_the_ring_over_it() -> None:
    speeds = (100e9, 100e9, 25e9, 100e9)
    links = tuple(
        Link(source=npu, target=(npu + 1) % 4, bandwidth_bytes_per_s=speeds[npu], latency_s=1e-6) for npu in range(4)
    )
    dim = Dimension(topology="graph", npus=4, links=links)
    assert one_dimension_seconds("all_gather", "ring", 4, 4e9, dim) == pytest.approx(3e-6 + 0.12)


@pytest.mark.parametrize(("speed", "slower"), [(0.25, 4.0), (0.5, 2.0), (1.0, 1.0)])
def test_a_slow_nic_slows_all_groups_at_a_switch(speed: float, slower: float) -> None:
    label = faulty(named("switch", 8), Fault(npu=3, dim=0, speed=speed))
    for algorithm in ("ring", "direct", "halving_doubling"):
        hops, traffic = collective_terms("all_reduce", "switch", algorithm, 8, 8, 1)
        found = collective_terms("all_reduce", label, algorithm, 8, 8, 1)
        assert found == pytest.approx((hops, traffic * slower))


def test_messages_of_a_broken_link_go_round() -> None:
    # All links of a ring of 8 the other way round carry one message more; that message crosses 7 links.
    label = faulty(named("ring", 8), Fault(npu=0, dim=0, peer=1))
    assert collective_terms("all_gather", "ring", "ring", 8, 8, 1) == (7.0, 0.875)
    assert collective_terms("all_gather", label, "ring", 8, 8, 1) == (49.0, 1.75)


def test_a_collective_is_as_slow_as_its_slowest_copy() -> None:
    switch = named("switch", 4)
    whole = Network(dims=(switch, switch), faults=(Fault(npu=5, dim=1, speed=0.5), Fault(npu=6, dim=1, speed=0.1)))
    assert wiring_at(whole, 0) == PLAIN
    wiring = wiring_at(whole, 1)
    assert [[(each.npu, each.speed) for each in copy] for copy in wiring.copies] == [[], [(1, 0.5)], [(1, 0.1)]]
    label = str(label_of("switch", wiring))
    assert collective_terms("all_gather", label, "ring", 4, 4, 1)[1] == pytest.approx(7.5)


def test_groups_that_leave_npus_over_begin_at_either_end() -> None:
    assert [groups.tolist() for groups in group_layouts(8, 4, 2)] == [[[0, 2, 4, 6], [1, 3, 5, 7]]]
    assert [groups.tolist() for groups in group_layouts(5, 4, 9)] == [[[0, 1, 2, 3]], [[1, 2, 3, 4]]]


@pytest.mark.parametrize("topology", ["ring", "switch", "fully_connected"])
def test_listed_links_take_as_long_as_the_topology_that_they_form(topology: str) -> None:
    dim = named(topology, 8)
    label = faulty(list_links(dim))
    exact = ("ring", "direct", "halving_doubling") if topology != "ring" else ("ring",)
    for members, step in ((8, 1), (4, 1), (4, 2), (2, 4)):
        for algorithm in exact:
            kinds = KINDS if algorithm == "direct" else ("all_gather", "reduce_scatter", "all_reduce")
            for kind in kinds:
                wanted = collective_terms(kind, topology, algorithm, 8, members, step)
                found = collective_terms(kind, label, algorithm, 8, members, step)
                assert found[1] == pytest.approx(wanted[1]), (kind, algorithm, members, step)


def test_listed_links_cost_what_their_topology_does() -> None:
    switch, pod = named("switch", 8), named("switch", 4)
    label = faulty(list_links(switch))
    assert network_usd((label, "switch"), (8, 4), (100e9, 50e9)) == network_usd(
        ("switch", "switch"), (8, 4), (100e9, 50e9)
    )
    label = faulty(list_links(pod), Fault(npu=0, dim=0, speed=0.5))
    assert network_usd(("switch", label), (8, 4), (100e9, 50e9)) == network_usd(
        ("switch", "switch"), (8, 4), (100e9, 50e9)
    )


@pytest.mark.parametrize("seed", range(6))
def test_faults_make_nothing_faster_and_speed_one_changes_nothing(seed: int) -> None:
    rng = Random(seed)
    topology = rng.choice(("ring", "torus_2d", "hypercube", "mesh_2d", "fat_tree", "dragonfly", "torus_3d"))
    dim, npu = named(topology, 16), rng.randrange(16)
    members, step = rng.choice(((16, 1), (4, 1), (4, 4), (8, 2)))
    slower = [faulty(dim, Fault(npu=npu, dim=0, speed=speed)) for speed in (1.0, 0.7, 0.2)]
    for algorithm in TEXTBOOK:
        for kind in KINDS:
            usual = collective_terms(kind, topology, algorithm, 16, members, step)
            found = [collective_terms(kind, label, algorithm, 16, members, step) for label in slower]
            assert found[0] == usual
            assert usual[1] <= found[1][1] <= found[2][1]


def test_trees_on_a_switch_reach_its_bandwidth() -> None:
    assert link_terms("all_reduce", "switch", "double_binary_tree", 16, 16, 1) == (2.0, 1.0)
