"""Collectives that are synthesised: lines of schedules, between the bound and the textbook."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import get_args

import numpy as np
import pytest

from cosmic.design.collective_layer import CollectiveKind
from cosmic.design.network_layer import Dimension, Link, Network, Transport
from cosmic.network.collective_costs import collective_terms, one_dimension_seconds, synthesized_terms
from cosmic.network.dimension_wiring import healthy_graph, label_of, wiring_at
from cosmic.network.link_costs import LINES, TEXTBOOK, envelope, line_of, node_floor
from cosmic.network.link_graph import graph_of
from cosmic.network.schedules.collective_schedule import Schedule
from cosmic.network.synthesis.lower_bounds import collective_bounds
from cosmic.network.transport_protocols import StageCost, either_cost, fastest_cost

KINDS: tuple[CollectiveKind, ...] = get_args(CollectiveKind)


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
