"""Who sends to whom in textbook collectives on links, and networks link by link, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.design.collective_layer import CollectiveKind
from cosmic.design.network_layer import Dimension, FabricTier, Fault, Network, topologies
from cosmic.network import link_costs
from cosmic.network.dimension_wiring import label_of, wiring_at
from cosmic.network.link_costs import (
    _make_lines,
    envelope,
    group_layouts,
    line_of,
    link_terms,
    message_patterns,
    node_floor,
    sends_to_all_at_once,
    slowest_npu,
    synthesized_lines,
)
from cosmic.network.link_graph import graph_of
from cosmic.network.network_graphs import tiered_graph
from cosmic.network.schedules.collective_schedule import Schedule

Phase = tuple[list[int], list[int], Any]


def ways(algorithm: str, members: int, kind: CollectiveKind = "all_gather") -> list[list[Phase]]:
    """Return senders, receivers and the size of their messages, by way and phase."""
    found = []
    for way in message_patterns(algorithm, kind, members):
        assert all(len(set(sizes.tolist())) == 1 for _, _, sizes in way)
        found.append([(senders.tolist(), receivers.tolist(), float(sizes[0])) for senders, receivers, sizes in way])
    return found


def test_a_ring_sends_both_ways_or_one_way_round() -> None:
    both = ([0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1], 0.5)
    assert ways("ring", 3) == [[both], [([0, 1, 2], [1, 2, 0], 1.0)], [([0, 1, 2], [2, 0, 1], 1.0)]]
    assert ways("ring", 2) == [[([0, 1], [1, 0], 1.0)]]


def test_direct_messages_go_to_each_other_member() -> None:
    assert ways("direct", 3) == [[([0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1], 0.5)]]


def test_halving_sends_a_half_and_then_a_quarter() -> None:
    """Of 3/4 in all: 2/3 and 1/3."""
    ((first, second),) = ways("halving_doubling", 4)
    assert first == ([0, 1, 2, 3], [1, 0, 3, 2], pytest.approx(2 / 3))
    assert second == ([0, 1, 2, 3], [2, 3, 0, 1], pytest.approx(1 / 3))


def test_passes_of_an_all_reduce_between_the_same_members_are_one_phase() -> None:
    """Of 3/2 bytes, partners exchange a half twice and a quarter twice; in a ring of three all goes either way."""
    near, far = ([0, 1, 2, 3], [1, 0, 3, 2], pytest.approx(2 / 3)), ([0, 1, 2, 3], [2, 3, 0, 1], pytest.approx(1 / 3))
    assert ways("halving_doubling", 4, "all_reduce") == [[near, far]]
    assert ways("ring", 3, "all_reduce") == ways("ring", 3)


def test_messages_of_unequal_size_stay_with_their_ends() -> None:
    """Of 2 bytes in all: member 3 works for 4, and hands it four fifths at the end; 1 gets from 3 what both have."""
    (phases,) = message_patterns("halving_doubling", "all_gather", 5)
    found = [
        dict(zip(zip(one.tolist(), other.tolist(), strict=True), sizes.tolist(), strict=True))
        for one, other, sizes in phases
    ]
    assert found == [
        pytest.approx({(3, 4): 0.4}),
        pytest.approx({(0, 1): 0.2, (1, 0): 0.3, (2, 3): 0.2, (3, 2): 0.3}),
        pytest.approx({(0, 2): 0.1, (1, 3): 0.1, (2, 0): 0.1, (3, 1): 0.2}),
        pytest.approx({(4, 3): 0.1}),
    ]


def test_members_send_to_all_at_once_in_direct_exchanges_alone() -> None:
    kinds: tuple[CollectiveKind, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    for algorithm in ("ring", "halving_doubling", "double_binary_tree", "auto", "in_network"):
        found = [sends_to_all_at_once(algorithm, kind) for kind in kinds]
        assert found == [False, False, False, algorithm not in ("ring", "halving_doubling")]
    assert all(sends_to_all_at_once(algorithm, kind) for algorithm in ("direct", "synthesized") for kind in kinds)


def test_two_members_beyond_four_hand_over_all_they_have() -> None:
    """3 and 5 hand to 2 and 4, who hand back: 1 buffer each way of 3 1/2, then halves and quarters both ways."""
    ((handed, back, first, second),) = ways("halving_doubling", 6, "all_reduce")
    assert handed == ([3, 5], [2, 4], pytest.approx(1 / 3.5))
    assert back == ([2, 4], [3, 5], pytest.approx(1 / 3.5))
    assert first == ([0, 1, 2, 4], [1, 0, 4, 2], pytest.approx(1 / 3.5))
    assert second == ([0, 1, 2, 4], [2, 4, 0, 1], pytest.approx(0.5 / 3.5))


def test_an_all_to_all_by_doubling_sends_all_that_goes_an_odd_number_of_times_as_far() -> None:
    """Bruck among five: 1 and 3 go one further, 2 and 3 two, 4 four, of 5 moves of a shard in all."""
    ((one, two, four),) = ways("halving_doubling", 5, "all_to_all")
    assert one == ([0, 1, 2, 3, 4], [1, 2, 3, 4, 0], pytest.approx(2 / 5))
    assert two == ([0, 1, 2, 3, 4], [2, 3, 4, 0, 1], pytest.approx(2 / 5))
    assert four == ([0, 1, 2, 3, 4], [4, 0, 1, 2, 3], pytest.approx(1 / 5))
    assert [receivers for _, receivers, _ in ways("halving_doubling", 4, "all_to_all")[0]] == [
        [1, 2, 3, 0],
        [2, 3, 0, 1],
    ]


def test_the_second_tree_is_the_first_turned_round_or_moved_on() -> None:
    """Of four members 1 and 3 are leaves below 2, and 2 below 0; turned round, 2 and 0 below 1, and 1 below 3."""
    ((up, down),) = ways("double_binary_tree", 4, "all_reduce")
    assert up == ([0, 1, 1, 2, 2, 3], [1, 2, 3, 0, 1, 2], 0.25)
    assert down == ([0, 1, 1, 2, 2, 3], [2, 0, 2, 1, 3, 1], 0.25)
    ((up, _),) = ways("double_binary_tree", 5, "all_reduce")
    assert up == ([0, 1, 2, 2, 3, 3, 4, 4], [1, 2, 3, 4, 0, 2, 0, 3], 0.25)
    assert ways("double_binary_tree", 2) == [[([0, 1], [1, 0], 1.0)]]


def test_names_that_stand_for_others_send_what_these_do() -> None:
    assert ways("auto", 4, "all_to_all") == ways("double_binary_tree", 4, "all_to_all") == ways("direct", 4)
    assert ways("auto", 4) == ways("in_network", 4) == ways("ring", 4)
    assert ways("synthesized", 3) == ways("direct", 3)


def test_the_slowest_npu_sends_or_receives_at_a_quarter() -> None:
    graph = graph_of(3, [(0, 1, 1.0, 0.0), (1, 0, 0.5, 0.0), (1, 2, 1.0, 0.0), (2, 0, 0.25, 0.0)])
    assert slowest_npu(graph) == slowest_npu(graph.transposed()) == 4.0


def test_groups_are_as_far_apart_as_they_fit() -> None:
    """Steps of 9 among 8 NPUs become 4, and 9 members become 8."""
    assert [groups.tolist() for groups in group_layouts(8, 2, 9)] == [[[0, 4], [1, 5], [2, 6], [3, 7]]]
    assert [groups.tolist() for groups in group_layouts(8, 9, 1)] == [[list(range(8))]]
    assert [groups.tolist() for groups in group_layouts(4, 2, 0)] == [[[0, 1], [2, 3]]]


@pytest.mark.parametrize(("topology", "above_s"), [("switch", 0.0), ("fat_tree", 1.0)])
def test_a_tree_of_switches_has_its_uplinks_in_one(topology: str, above_s: float) -> None:
    """Four leaves of two NPUs at 2/4 of a byte per second, two pods of four at 4/1, and one switch above."""
    dim = Dimension(topology=topology, npus=8, bandwidth_bytes_per_s=1e9, latency_s=1e-6)
    graph = tiered_graph(dim, [FabricTier(2, 4.0), FabricTier(4, 1.0)])
    assert (graph.npus, graph.switches, graph.links) == (8, 7, 28)
    assert graph.bandwidth_bytes_per_s.tolist() == [1.0] * 16 + [0.5] * 8 + [4.0] * 4
    assert graph.latency_s.tolist() == [1.0] * 16 + [above_s] * 12
    ends = list(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True))
    assert ends[::2] == [
        *[(npu, 8 + npu // 2) for npu in range(8)],
        *[(8 + leaf, 12 + leaf // 2) for leaf in range(4)],
        *[(12, 14), (13, 14)],
    ]
    assert ends[1::2] == [(target, source) for source, target in ends[::2]]


def test_a_large_dimension_is_estimated_from_its_topology() -> None:
    """Of 512 NPUs in a torus, 511 parts over six links, and log2 512 = 9 times the hops of a doubling."""
    textbook = ((1e6, 1e6),)
    shape = topologies["torus_3d"]
    once = 511 / 6 + 9 * float(shape.hops(512, 512, 1))
    for kind, passes in (("all_gather", 1), ("reduce_scatter", 1), ("all_reduce", 2)):
        (line, *_) = synthesized_lines(kind, "torus_3d", 512, 512, 1, textbook)
        assert line == pytest.approx((passes * once, passes * 511 / 512 * 1.05))
    assert np.array_equal(synthesized_lines("all_to_all", "torus_3d", 512, 512, 1, textbook), textbook * 3)


def faulty(topology: str, npus: int, fault: Fault) -> str:
    dim = Dimension(topology=topology, npus=npus, bandwidth_bytes_per_s=100e9, latency_s=1e-6)
    return str(label_of(topology, wiring_at(Network(dims=(dim,), faults=(fault,)), 0)))


def test_a_slow_npu_slows_a_large_dimension_in_proportion() -> None:
    """The corner of a mesh has three of six links, and is twice as slow at half their speed."""
    label, shape = faulty("mesh_3d", 512, Fault(npu=0, dim=0, speed=0.5)), topologies["mesh_3d"]
    share, hops = (float(each(512, 512, 1)) for each in (shape.share, shape.hops))
    once = 511 / max(1.0, share * float(shape.links(512))) + 9 * hops
    (line, *_) = synthesized_lines("all_gather", label, 512, 512, 1, ((1e6, 1e6),))
    assert line == pytest.approx((2 * once, 2 * 511 / 512 / share * 1.05))


def test_no_line_is_below_the_way_to_the_farthest_npu() -> None:
    """Four hops in each of three dimensions of eight, and both ways for an all-reduce."""
    lines = [
        synthesized_lines(kind, "torus_3d", 512, 512, 1, ((0.0, 1e6),))[0] for kind in ("all_gather", "all_reduce")
    ]
    assert lines == [(12.0, 1e6), (24.0, 1e6)]


def test_an_npu_that_nothing_reaches_has_the_lines_of_the_textbook() -> None:
    label = faulty("switch", 8, Fault(npu=3, dim=0))
    assert synthesized_lines("all_gather", label, 8, 8, 1, ((5.0, 6.0),)) == ((5.0, 6.0),) * 3


def test_an_all_reduce_takes_what_both_of_its_halves_take() -> None:
    """Of two NPUs each sends its half: at 1/2 byte per second a second for each byte, and two for the latency."""
    graph = graph_of(2, [(0, 1, 1.0, 1.0), (1, 0, 0.5, 2.0)])
    for kind, halves in (("all_gather", 1), ("reduce_scatter", 1), ("all_reduce", 2)):
        for line in _make_lines(kind, graph, ((0, 1),)):  # type: ignore[arg-type]
            assert line == pytest.approx((2.0 * halves, 1.0 * halves))


def test_a_chunk_that_comes_twice_is_passed_on_from_when_it_first_came() -> None:
    graph = graph_of(4, [(0, 1, 1.0, 1.0), (0, 2, 1.0, 1.0), (1, 2, 1.0, 1.0), (2, 3, 1.0, 1.0)])
    links = np.array([1, 0, 2, 3])
    start = np.array([0.0, 0.0, 1.0, 1.0])
    schedule = Schedule(graph, "all_gather", 4.0, 1, ((0, 1, 2, 3),), links, np.zeros(4, int), start, start + 1.0)
    assert line_of(schedule) == pytest.approx((2.0, 0.5))  # a chunk is a quarter of the bytes


def test_the_line_between_is_the_least_where_the_outer_ones_meet() -> None:
    """They meet at a hundredth of a byte's time: 1.2 + 0.3 there is less than 1.5 + 0.05."""
    assert envelope([(1.0, 100.0), (1.2, 30.0), (1.5, 5.0), (2.0, 0.0)]) == ((1.0, 100.0), (1.2, 30.0), (2.0, 0.0))


def test_what_each_collective_sends_and_receives_bounds_it() -> None:
    """NPU 0 receives at 3/4 at the least, and NPU 2 sends at 1/4."""
    graph = graph_of(3, [(0, 1, 1.0, 0.0), (1, 0, 0.5, 0.0), (1, 2, 1.0, 0.0), (2, 0, 0.25, 0.0)])
    assert node_floor("all_gather", graph, 3) == pytest.approx(4 / 3)
    assert node_floor("reduce_scatter", graph, 3) == pytest.approx(8 / 3)
    assert node_floor("all_to_all", graph, 3) == pytest.approx(8 / 3)
    assert node_floor("all_reduce", graph, 3) == pytest.approx(4.0)
    assert node_floor("all_gather", graph.transposed(), 3) == pytest.approx(8 / 3)


def test_too_many_messages_are_not_routed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups of four are 2 × 4 × 4 pairs, and a ring of 8 NPUs has 16 links."""
    routed = link_terms("all_gather", "ring", "direct", 8, 4, 1)
    assert routed[1] > 1.0
    for pairs, work, found in ((32, 128, routed), (31, 128, (1.0, 1.0)), (32, 127, (1.0, 1.0))):
        monkeypatch.setattr(link_costs, "MOST_MESSAGES", pairs)
        monkeypatch.setattr(link_costs, "MOST_WORK", work)
        link_terms.cache_clear()
        assert link_terms("all_gather", "ring", "direct", 8, 4, 1) == found
    link_terms.cache_clear()
