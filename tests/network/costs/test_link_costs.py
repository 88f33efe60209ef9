"""Collectives on links: textbook ones by hand and between networks, and lines of schedules that are synthesised."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import get_args

import numpy as np
import pytest

from cosmic.cluster.cluster_cost import network_usd
from cosmic.design.collective_layer import CollectiveKind
from cosmic.design.network_layer import Dimension, Fault, Link, Network, Transport
from cosmic.network.collective_costs import collective_terms, one_dimension_seconds, synthesized_terms
from cosmic.network.dimension_wiring import PLAIN, healthy_graph, label_of, wiring_at
from cosmic.network.link_costs import LINES, TEXTBOOK, envelope, group_layouts, line_of, link_terms, node_floor
from cosmic.network.link_graph import graph_of
from cosmic.network.schedules.collective_schedule import Schedule
from cosmic.network.synthesis.lower_bounds import collective_bounds
from cosmic.network.transport_protocols import StageCost, either_cost, fastest_cost
from tests.relations.random_designs import list_links

KINDS: tuple[CollectiveKind, ...] = get_args(CollectiveKind)


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


def lines(kind: str, label: str, npus: int, members: int, step: int) -> list[tuple[float, float]]:
    return [synthesized_terms(f"{kind} {line}", label, "synthesized", npus, members, step) for line in range(LINES)]


def random_graph(rng: Random, npus: int) -> Dimension:
    """Return a connected graph of uneven links."""
    ends = {(npu, (npu + 1) % npus) for npu in range(npus)} | {((npu + 1) % npus, npu) for npu in range(npus)}
    for _ in range(npus):
        one, other = rng.sample(range(npus), 2)
        ends |= {(one, other), (other, one)}
    links = tuple(
        Link(source=one, target=other, bandwidth_bytes_per_s=rng.choice((25e9, 50e9, 100e9)), latency_s=1e-6)
        for one, other in sorted(ends)
    )
    return Dimension(topology="graph", npus=npus, links=links)


def test_a_line_is_a_schedule_without_bytes_and_one_without_latency() -> None:
    # 0 → 1 → 2, two chunks one after the other: the second waits for the link, then both for each other.
    graph = graph_of(3, [(0, 1, 1.0, 1.0), (1, 2, 2.0, 3.0)])
    link, chunk = np.array([0, 0, 1, 1]), np.array([0, 3, 0, 3])
    start = np.array([0.0, 2.0, 2.0, 5.5])
    schedule = Schedule(graph, "all_gather", 6.0, 2, ((0, 1, 2),), link, chunk, start, start + 1.0)
    # latencies 1, then 1; 3 from 1 to 4, then 3; and chunks of a byte: 1 s and 1/2 s each, for 6 bytes
    assert line_of(schedule) == pytest.approx((7.0, 2.5 / 6))


def test_the_envelope_keeps_the_ends_and_what_is_least_between() -> None:
    assert envelope([(1.0, 1.0), (2.0, 2.0)]) == ((1.0, 1.0),) * 3
    assert envelope([(1.0, 2.0), (5.0, 1.0)]) == ((1.0, 2.0), (1.0, 2.0), (5.0, 1.0))


def test_a_node_sends_its_own_and_receives_all_others() -> None:
    graph = graph_of(4, [(npu, (npu + 1) % 4, 1.0, 0.0) for npu in range(4)])
    assert node_floor("all_gather", graph, 4) == 0.75
    assert node_floor("all_reduce", graph, 4) == 1.0  # the sum itself; cuts and parts bound the rest
    narrow = replace(graph, bandwidth_bytes_per_s=np.array([0.1, 1.0, 1.0, 1.0]))
    assert node_floor("all_gather", narrow, 4) == pytest.approx(7.5)  # NPU 1 receives at 0.1
    assert node_floor("all_to_all", narrow, 4) == pytest.approx(7.5)


def test_two_lines_beside_each_other_give_the_least() -> None:
    fastest = fastest_cost([StageCost(1.0, 4.0, ((0.5, 0.0),)), StageCost(5.0, 2.0)])
    sizes = np.array([0.5, 1.0, 4.0])
    assert (fastest.per_byte_s * sizes + fastest.per_call_s(sizes)).tolist() == [3.5, 5.5, 13.0]
    chosen = np.array([True, False, True])
    mixed = either_cost(chosen, fastest, StageCost(np.full(3, 7.0), np.full(3, 1.0)))
    found = mixed.per_chunk_s + mixed.per_byte_s * sizes + mixed.per_call_s(sizes)
    assert np.asarray(found).tolist() == [3.5, 8.0, 13.0]


@pytest.mark.parametrize("topology", ["ring", "switch", "fully_connected", "torus_2d", "hypercube", "mesh_2d"])
def test_named_topologies_are_between_the_bound_and_the_textbook(topology: str) -> None:
    graph = replace(healthy_graph(topology, 8), latency_s=np.zeros(healthy_graph(topology, 8).links))
    for kind in ("all_gather", "reduce_scatter", "all_reduce"):
        found = lines(kind, topology, 8, 8, 1)
        least = collective_bounds(graph, kind, 1.0).seconds
        textbook = min(collective_terms(kind, topology, name, 8, 8, 1)[1] for name in TEXTBOOK)
        assert least * (1 - 1e-9) <= found[-1][1] <= max(least, textbook) * (1 + 1e-9)
        in_turn = collective_bounds(graph, kind, 1.0).in_turn_s  # on a mesh, other all-reduces could be shorter
        assert found[-1][1] <= 1.1 * max(least, in_turn)
        assert found[0][0] <= found[-1][0]


@pytest.mark.parametrize("seed", range(8))
def test_random_networks_are_between_the_bound_and_the_textbook(seed: int) -> None:
    rng = Random(seed)
    dim = random_graph(rng, rng.choice((4, 6, 8)))
    label = str(label_of("graph", wiring_at(Network(dims=(dim,)), 0)))
    members = rng.choice((dim.npus, 2))
    step = 1 if members == dim.npus else rng.choice((1, dim.npus // 2))
    graph = healthy_graph("graph", dim.npus, dim.links)
    groups = (
        None
        if members == dim.npus
        else [
            (start + offset, start + offset + step) for start in range(0, dim.npus, 2 * step) for offset in range(step)
        ]
    )
    for kind in KINDS:
        found = lines(kind, label, dim.npus, members, step)
        for size in (1e-3, 1.0, 1e6):
            time = min(once + per_byte * size for once, per_byte in found)
            assert time >= collective_bounds(graph, kind, size, groups=groups).seconds * (1 - 1e-9)
        for name in TEXTBOOK:
            per_byte = collective_terms(kind, label, name, dim.npus, members, step)[1]
            assert found[-1][1] <= per_byte * (1 + 1e-9), (kind, name)


def test_a_library_loses_as_much_as_with_a_ring() -> None:
    ideal = Dimension(topology="switch", npus=8, bandwidth_bytes_per_s=100e9, latency_s=0.0)
    lossy = replace(ideal, transport=Transport(efficiency=0.5, overhead_s=1e-3))
    for algorithm in ("ring", "synthesized"):
        quick = one_dimension_seconds("all_gather", algorithm, 8, 8e9, ideal)
        assert quick == pytest.approx(0.07)
        assert one_dimension_seconds("all_gather", algorithm, 8, 8e9, lossy) == pytest.approx(0.141)


def test_large_dimensions_are_estimated_and_faults_take_from_them() -> None:
    found = lines("all_gather", "torus_3d", 512, 512, 1)[-1][1]
    assert found == pytest.approx(511 / 512 * 1.05)
    assert found < collective_terms("all_gather", "torus_3d", "ring", 512, 512, 1)[1]
