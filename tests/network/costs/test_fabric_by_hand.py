"""Collectives on networks of several dimensions: every term worked out by hand."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from cosmic.base.numeric import Numeric
from cosmic.design.design_batch import Batch, Names
from cosmic.design.network_layer import Dimension, Transport
from cosmic.network.collective_costs import (
    NetworkDimension,
    Subgroup,
    barrier_seconds,
    broadcast_seconds,
    collective_seconds,
    collective_terms,
    deduplicated_share,
    flat_seconds,
    one_dimension_seconds,
    point_to_point_terms,
    ring_factor,
    send_seconds,
    subgroups,
)
from cosmic.network.collective_rounds import usable_share
from cosmic.network.mesh_spans import Span
from cosmic.network.transport_protocols import IDEAL
from cosmic.search.mapping.design_completion import load_design

near = partial(pytest.approx, rel=1e-9, abs=0.0)

OVERHEAD = Transport(overhead_s=10e-6)


def network(algorithm: str, transport: Transport = IDEAL) -> list[NetworkDimension]:
    """Two switches: 4 NPUs at 200 GB/s and 1 us a link, 8 of these at 100 GB/s and 2 us."""
    return [
        NetworkDimension("switch", 4, 200e9, 1e-6, algorithm, transport),
        NetworkDimension("switch", 8, 100e9, 2e-6, algorithm, transport),
    ]


def group(algorithm: str, transport: Transport = IDEAL, inner: Numeric = 4.0, outer: Numeric = 8.0) -> list[Subgroup]:
    return subgroups(network(algorithm, transport), [Span(inner, 1.0), Span(outer, 1.0)])


# ---- share of bandwidth


@pytest.mark.parametrize(
    ("topology", "algorithm", "sizes", "share"),
    [
        ("ring", "ring", (8, 8, 1), 1.0),
        ("ring", "ring", (8, 4, 1), 1 / 2),  # a line: one of two links leads inwards
        # One partner for two links; partners 12/7 links apart on average, in a ring whose mean is more than 8 / 4.
        ("ring", "halving_doubling", (8, 8, 1), 1 / 2 / (12 / 7)),
        # 4 x 4: mean of 32/15 links where a ring of 16 has 4, so (17/15) / 3 of direct's 4 - 1 links more.
        ("torus_2d", "direct", (16, 16, 1), 1 / (1 + 3 * (17 / 15) / 3)),
        ("torus_2d", "ring", (16, 16, 1), 2 / 4),  # two of four links busy
        ("fully_connected", "direct", (8, 8, 1), 1.0),
        ("fully_connected", "ring", (8, 8, 1), 2 / 7),
        ("fully_connected", "ring", (8, 4, 1), 3 / 7 * 2 / 3),  # three links within the group, two busy
        ("fully_connected", "direct", (8, 2, 1), 1 / 7),
        ("fully_connected", "halving_doubling", (8, 8, 1), 1 / 7),  # others are one link away: no contention
        ("hypercube", "double_binary_tree", (8, 2, 1), 1 / 3),
        ("ring", "double_binary_tree", (4, 4, 1), 1 / (1 / 0.75)),  # partners 1 / 0.75 links apart in a ring of 4
        ("ring", "direct", (4, 4, 1), 1.0),  # a ring of 4 has a mean of 1 link by this measure
        # A cube mesh has no switch: one partner for four links; 10/7 links apart where a ring of 8 has 2.
        ("hybrid_cube_mesh", "halving_doubling", (8, 8, 1), 1 / 4 / (1 + (12 / 7 - 1) * 3 / 7)),
        ("switch", "ring", (8, 8, 1), 1.0),
        ("switch", "halving_doubling", (8, 8, 1), 1.0),
        ("dragonfly", "halving_doubling", (72, 9, 8), 1 / 2),
        ("ring", "halving_doubling", (8, 1, 1), 1.0),
        ("ring", "halving_doubling", (8, 1.5, 1), 1 / 2 * 1 / 1),  # groups that straddle
    ],
)
def test_usable_share(topology: str, algorithm: str, sizes: tuple[float, float, float], share: float) -> None:
    assert usable_share(topology, algorithm, *sizes) == near(share)


def test_terms_are_hops_in_turn_and_traffic_over_the_usable_share() -> None:
    assert collective_terms("all_reduce", "dragonfly", "direct", 72, 9, 8) == (2 * 5.0, 2 * 8 / 9 / 0.5)
    assert collective_terms("all_gather", "ring", "ring", 8, 4, 1) == (3.0, 0.75 / 0.5)
    assert collective_terms("all_gather", "ring", "ring", 8, 1, 1) == (0.0, 0.0)
    assert point_to_point_terms("ring", "ring", 8, 4, 2) == (2.0, 0.5)
    assert point_to_point_terms("switch", "auto", 8, 4, 2) == (2.0, 1.0)
    assert point_to_point_terms("fully_connected", "direct", 8, 8, 1) == near((1.0, 2 / 7))


# ---- collectives


def test_chunks_pipeline_over_dimensions() -> None:
    """A chunk of 250 MB: 3 steps of 2 links and 3/4 of it inside; 7 steps of 2 links and 7/8 of a quarter outside."""
    inner = 3 * 2 * 1e-6 + 0.75 * 250e6 / 200e9
    outer = 7 * 2 * 2e-6 + 0.875 * 62.5e6 / 100e9
    found = collective_seconds(group("ring"), "all_gather", 1e9, 4, "blueconnect")
    assert found == near(inner + outer + 3 * inner)


def test_a_baseline_all_reduce_moves_everything_in_every_dimension() -> None:
    inner = 6 * 2 * 1e-6 + 1.5 * 1e9 / 200e9
    outer = 14 * 2 * 2e-6 + 1.75 * 1e9 / 100e9
    assert collective_seconds(group("ring"), "all_reduce", 1e9, 1, "baseline") == near(inner + outer)
    plain = 7 * 2 * 2e-6 + 0.875 * 0.25e9 / 100e9  # an all-gather has its share only, whatever the order
    gathered = collective_seconds(group("ring"), "all_gather", 1e9, 1, "baseline")
    assert gathered == near(3 * 2 * 1e-6 + 0.75e9 / 200e9 + plain)


def test_an_all_to_all_enters_every_dimension_whole() -> None:
    inner = 2 * 1e-6 + 0.75 * 1e9 / 200e9
    outer = 2 * 2e-6 + 0.875 * 1e9 / 100e9
    assert collective_seconds(group("direct"), "all_to_all", 1e9, 1, "themis") == near(inner + outer)


def test_copies_of_a_token_cross_to_a_node_once() -> None:
    """Two copies go to 8 (1 - (7/8)^2) = 15/8 of 8 nodes: 15/16 of the bytes; inside, all of them."""
    inner = 2 * 1e-6 + 0.75 * 1e9 / 200e9
    outer = 2 * 2e-6 + 0.875 * 15 / 16 * 1e9 / 100e9
    found = collective_seconds(group("direct"), "all_to_all", 1e9, 1, "blueconnect", copies=2)
    assert found == near(inner + outer)


@pytest.mark.parametrize(
    ("copies", "members", "inside", "share"),
    [
        (1, 4, 8, 1.0),
        (8, 4, 1, 1.0),
        (2, 2, 8, 2 * (1 - 1 / 4) / 2),
        (2, 2, 2, 2 * (1 - 1 / 4) / 2),
        (4, 2, 8, 2 * (1 - 1 / 16) / 4),
        (3, 1, 8, 1 / 3),  # all copies stay on the one node
    ],
)
def test_deduplicated_share(copies: int, members: float, inside: float, share: float) -> None:
    assert deduplicated_share(copies, members, inside) == near(share)


def test_rings_of_a_library_visit_all_members() -> None:
    """Outside, of 4 x 8 members, 31/32 of a quarter enters each NIC in place of 7/8 of it."""
    inner, outer = group("auto")
    assert ring_factor("all_gather", outer, 4.0) == near((31 / 32) / (7 / 8))
    assert ring_factor("all_gather", outer, 2.0) == near((15 / 16) / (7 / 8))
    assert ring_factor("all_gather", inner, 1.0) == 1.0
    assert ring_factor("all_to_all", outer, 4.0) == 1.0
    assert ring_factor("all_gather", group("ring")[1], 4.0) == 1.0
    found = collective_seconds([inner, outer], "all_gather", 1e9, 1, "blueconnect")
    expected = 3 * 2 * 1e-6 + 0.75e9 / 200e9 + 7 * 2 * 2e-6 + 31 / 32 * 0.25e9 / 100e9
    assert found == near(expected)


def test_groups_of_one_in_some_designs_have_no_ring() -> None:
    (outer,) = subgroups([NetworkDimension("switch", 8, 1e9, 0.0, "auto")], [Span(np.array([1.0, 8.0]), np.ones(2))])
    factor = ring_factor("all_gather", outer, np.array([4.0, 4.0]))
    assert np.asarray(factor).tolist() == near([1.0, (31 / 32) / (7 / 8)])
    mixed = Subgroup(
        NetworkDimension("switch", 8, 1e9, 0.0, Names(("ring", "auto"), np.array([0, 1]))),
        Span(np.array([8.0, 8.0]), 1.0),
    )
    assert np.asarray(ring_factor("all_gather", mixed, 4.0)).tolist() == near([1.0, (31 / 32) / (7 / 8)])


def test_calls_count_once_a_dimension_and_not_once_a_chunk() -> None:
    without = collective_seconds(group("ring"), "all_gather", 1e9, 4, "blueconnect")
    with_calls = collective_seconds(group("ring", OVERHEAD), "all_gather", 1e9, 4, "blueconnect")
    assert with_calls - without == near(2 * 10e-6)


def test_a_flat_all_to_all_takes_one_call_of_its_slowest_dimension() -> None:
    """An eighth of the data enters the node of 4, as messages to 8 nodes pass it by; all of it the other dimension."""
    inner = 2 * 1e-6 + 0.75 * (1 / 8) * 1e9 / 200e9
    outer = 2 * 2e-6 + 0.875 * 1e9 / 100e9
    assert inner < outer
    assert flat_seconds(group("direct"), 1e9) == near(outer)
    assert flat_seconds(group("direct", OVERHEAD), 1e9) == near(outer + 10e-6)
    assert flat_seconds(group("direct")[:1], 1e9) == near(2 * 1e-6 + 0.75 * 1e9 / 200e9)
    assert flat_seconds(group("direct"), 0.0) == near(2 * 2e-6)


def test_messages_of_a_flat_all_to_all_choose_their_protocol_by_size() -> None:
    """Small messages at half the rate, as nothing makes up for a second."""
    small = Transport(bulk_s=1.0, small_efficiency=0.5)
    assert flat_seconds(group("direct", small), 1e9) == near(2 * 2e-6 + 2 * 0.875 * 1e9 / 100e9)


def test_each_dimension_chooses_its_protocol_by_what_enters_it() -> None:
    """Small messages at half the rate: twice the time for 1 GB inside and for a quarter of it outside."""
    small = Transport(bulk_s=1.0, small_efficiency=0.5)
    inner = 3 * 2 * 1e-6 + 2 * 0.75e9 / 200e9
    outer = 7 * 2 * 2e-6 + 2 * 0.875 * 0.25e9 / 100e9
    assert collective_seconds(group("ring", small), "all_gather", 1e9, 1, "blueconnect") == near(inner + outer)


def test_a_third_dimension_has_the_share_of_both_inside() -> None:
    dims = [*network("ring"), NetworkDimension("switch", 2, 50e9, 0.0, "ring")]
    spans = [Span(4.0, 1.0), Span(8.0, 1.0), Span(2.0, 1.0)]
    two = 3 * 2 * 1e-6 + 0.75e9 / 200e9 + 7 * 2 * 2e-6 + 0.875 * 0.25e9 / 100e9
    found = collective_seconds(subgroups(dims, spans), "all_gather", 1e9, 1, "blueconnect")
    assert found == near(two + 0.5 * 1e9 / 32 / 50e9)


def test_an_all_to_all_goes_straight_to_its_receivers() -> None:
    direct = Transport(direct_share=0.5, copy_share=0.5)
    dims = [NetworkDimension("switch", 8, 100e9, 0.0, "direct", direct)]
    whole = subgroups(dims, [Span(8.0, 1.0)])
    wire = 7 / 8 + 0.5 / 8
    assert collective_seconds(whole, "all_to_all", 1e9, 1, "blueconnect") == near(wire * 1e9 / 50e9)
    assert collective_seconds(whole, "all_gather", 1e9, 1, "blueconnect") == near(wire * 1e9 / 100e9)
    assert send_seconds(whole, 1e9) == near(1e9 / 50e9)  # a message copies nothing


def test_a_subgroup_by_itself_is_alone() -> None:
    (outer,) = group("auto", Transport(reduction_efficiency=1.0), inner=1.0)
    assert outer.collective("all_reduce").per_call_s(1e9) == outer.collective("all_reduce", True).per_call_s(1e9)
    assert outer.collective("all_reduce").per_call_s(1e9) < outer.collective("all_reduce", False).per_call_s(1e9)


def test_members_of_one_dimension_lie_side_by_side() -> None:
    dim = Dimension(topology="ring", npus=8, bandwidth_bytes_per_s=100e9, latency_s=1e-6)
    assert one_dimension_seconds("all_gather", "ring", 4, 1e9, dim) == near(3e-6 + 0.75e9 / 50e9)


def test_themis_levels_the_loads_of_dimensions() -> None:
    """Together both dimensions send 15/16 of the data at 300 GB/s. Every chunk takes latency in either.

    The first one also takes its way through the outer dimension: 3/4 of a sixteenth, and latency once more.
    """
    dims = [NetworkDimension("switch", 4, rate, 1e-6, "ring") for rate in (200e9, 100e9)]
    spans = [Span(4.0, 1.0), Span(4.0, 1.0)]
    latency = 3 * 2 * 1e-6
    found = collective_seconds(subgroups(dims, spans), "reduce_scatter", 1e9, 4, "themis")
    assert found == near(15 / 16 * 1e9 / 300e9 + 4 * latency + 3 / 64 * 1e9 / 100e9 + latency)
    twice = collective_seconds(subgroups(dims, spans), "all_reduce", 1e9, 4, "themis")
    assert twice == near(2 * found)
    called = [NetworkDimension("switch", 4, rate, 1e-6, "ring", OVERHEAD) for rate in (200e9, 100e9)]
    assert collective_seconds(subgroups(called, spans), "reduce_scatter", 1e9, 4, "themis") - found == near(20e-6)
    in_turn = latency + 0.75 * 250e6 / 200e9  # of each chunk inside; outside, a quarter at half the speed
    usual = collective_seconds(subgroups(dims, spans), "reduce_scatter", 1e9, 4, "blueconnect")
    assert usual == near(4 * in_turn + latency + 0.75 * 62.5e6 / 100e9)


def test_themis_levels_each_of_several_sizes() -> None:
    """Half the bytes take half the time where links have no latency."""
    dims = [NetworkDimension("switch", 4, bandwidth, 0.0, "ring", IDEAL) for bandwidth in (200e9, 100e9)]
    together = subgroups(dims, [Span(4, 1), Span(4, 1)])
    found = collective_seconds(together, "reduce_scatter", np.array([1e9, 0.5e9]), 4, "themis")
    alone = [collective_seconds(together, "reduce_scatter", size, 4, "themis") for size in (1e9, 0.5e9)]
    assert np.asarray(found).tolist() == near(alone)
    assert alone[1] == near(alone[0] / 2)


def test_themis_never_takes_longer_than_the_usual_order() -> None:
    one = collective_seconds(group("ring"), "all_gather", 0.0, 1, "themis")
    assert one == near(3 * 2 * 1e-6 + 7 * 2 * 2e-6)
    modes = Names(("themis", "blueconnect"), np.array([0, 1]))
    dims = [NetworkDimension("switch", 4, rate, 0.0, "ring") for rate in (200e9, 100e9)]
    both = collective_seconds(
        subgroups(dims, [Span(np.array([4.0, 2.0]), 1.0), Span(4.0, 1.0)]), "all_gather", 1e9, 4, modes
    )
    usual = 0.5 * 250e6 / 200e9 + 4 * 0.75 * 125e6 / 100e9  # half a chunk enters the slower dimension
    assert np.asarray(both).tolist() == near([15 / 16 * 1e9 / 300e9 + 3 / 64 * 1e9 / 100e9, usual])


def test_oversubscription_divides_the_bandwidth() -> None:
    dim = Dimension(topology="switch", npus=8, bandwidth_bytes_per_s=100e9, latency_s=1e-6, oversubscription=4.0)
    found = one_dimension_seconds("all_gather", "ring", 8, 1e9, dim)
    assert found == near(14e-6 + 0.875e9 / 25e9)


def test_designs_of_a_batch_have_their_own_links() -> None:
    point = load_design("gpt3-13b@dgx-h100:16")
    base = point.network.dims[0]
    columns = {
        "network.dims.0.oversubscription": np.array([1.0, 4.0]),
        "network.dims.0.transport.efficiency": np.array([0.5, 0.25]),
    }
    found = NetworkDimension.of(Batch(point, columns), 0)
    assert np.array_equal(found.bandwidth_bytes_per_s, base.bandwidth_bytes_per_s / np.array([1.0, 4.0]))
    assert (found.topology, found.npus, found.latency_s) == (base.topology, base.npus, base.latency_s)
    assert found.algorithm == point.collective.algorithms[0]
    assert np.array_equal(found.transport.efficiency, [0.5, 0.25])
    assert found.transport.overhead_s == base.transport.overhead_s
    plain = NetworkDimension.of(Batch(point, {}), 0)
    assert plain.transport == base.transport


def test_dimensions_without_members_are_left_out() -> None:
    assert group("ring", inner=1.0, outer=1.0) == []
    assert collective_seconds([], "all_gather", 1e9, 1, "blueconnect") == 0
    assert [each.dimension.npus for each in group("ring", inner=1.0)] == [8]
    assert len(group("ring", inner=np.array([1.0, 2.0]))) == 2


def test_switches_reduce_only_if_one_dimension_has_all_members() -> None:
    reducing = Transport(reduction_efficiency=1.0)
    in_switch = 1.125 * 1e9 / 100e9  # 1 + 1/8; in rings 1.75
    alone = collective_seconds(group("auto", reducing, inner=1.0), "all_reduce", 1e9, 1, "blueconnect")
    assert alone == near(in_switch)
    some = collective_seconds(
        group("auto", reducing, inner=np.array([1.0, 4.0]), outer=8.0), "all_reduce", 1e9, 1, "blueconnect"
    )
    inner = 2 * 3 * 2 * 1e-6 + 1.5 * 1e9 / 200e9
    outer = 2 * 7 * 2 * 2e-6 + 2 * 31 / 32 * 0.25e9 / 100e9
    assert np.asarray(some).tolist() == near([in_switch, inner + outer])


# ---- messages


def test_a_message_takes_the_outermost_dimension() -> None:
    assert send_seconds(group("ring"), 1e6) == near(2 * 2e-6 + 1e6 / 100e9)
    assert send_seconds(group("ring", outer=1.0), 1e6) == near(2 * 1e-6 + 1e6 / 200e9)
    assert send_seconds(group("ring", OVERHEAD), 1e6) == near(4e-6 + 1e6 / 100e9 + 10e-6)
    assert send_seconds([], 1e6) == 0
    some = send_seconds(group("ring", outer=np.array([1.0, 8.0])), 1e6)
    assert np.asarray(some).tolist() == near([2e-6 + 1e6 / 200e9, 4e-6 + 1e6 / 100e9])


def test_all_members_sending_at_once_share_links() -> None:
    every_second = [Subgroup(NetworkDimension("ring", 8, 100e9, 1e-6, "ring"), Span(4.0, 2.0))]
    assert send_seconds(every_second, 1e6) == near(2e-6 + 1e6 / 50e9)


def test_a_broadcast_goes_down_a_tree_in_each_dimension() -> None:
    """Depths 2 and 3, links up and down, and the data once at each rate."""
    inner, outer = 2 * 2 * 1e-6 + 1e9 / 200e9, 3 * 2 * 2e-6 + 1e9 / 100e9
    assert broadcast_seconds(group("ring"), 1e9) == near(inner + outer)
    assert broadcast_seconds(group("ring", inner=2.0, outer=1.0), 1e9) == near(1 * 2 * 1e-6 + 1e9 / 200e9)
    assert broadcast_seconds(group("ring", OVERHEAD), 1e9) == near(inner + outer + 20e-6)
    some = broadcast_seconds(group("ring", OVERHEAD, outer=np.array([1.0, 8.0])), 1e9)
    assert np.asarray(some).tolist() == near([inner + 10e-6, inner + outer + 20e-6])


def test_a_barrier_takes_the_latency_of_an_all_reduce() -> None:
    assert barrier_seconds(group("ring")) == near(6 * 2 * 1e-6 + 14 * 2 * 2e-6)


# ---- distinct designs


@pytest.mark.parametrize("npus", [np.array([8.0, 16.0, 8.0]), np.array([600_000.0, 2.0**19, 8.0]), 600_000.0])
@pytest.mark.parametrize("members", [np.array([2.0, 2.5, 8.0]), np.array([8.0, 2.0, 2.0]), 4.0])
@pytest.mark.parametrize("step", [np.array([1.0, 1.0, 1.5]), 2.0])
def test_designs_are_told_apart_by_every_column(npus: Numeric, members: Numeric, step: Numeric) -> None:
    topology = Names(("ring", "switch"), np.array([0, 1, 0]))
    algorithm = Names(("ring", "direct", "auto"), np.array([2, 1, 0]))
    one = Subgroup(NetworkDimension(topology, npus, 1e9, 0.0, algorithm), Span(members, step))
    rows, which = one.combinations.distinct
    assert which is not None
    columns = [np.broadcast_to(each, 3).tolist() for each in (npus, members, step)]
    wanted = list(zip(["ring", "switch", "ring"], ["auto", "direct", "ring"], *columns, strict=True))
    assert [rows[place] for place in which] == wanted
    assert np.asarray(one.auto).tolist() == [True, False, False]


def test_equal_designs_are_one() -> None:
    columns = np.array([8.0, 8.0, 4.0])
    rows, which = Subgroup(NetworkDimension("ring", 8, 1e9, 0.0, "ring"), Span(columns, 1.0)).combinations.distinct
    assert rows == [("ring", "ring", 8.0, 4.0, 1.0), ("ring", "ring", 8.0, 8.0, 1.0)]
    assert which is not None
    assert which.tolist() == [1, 1, 0]
    assert Subgroup(NetworkDimension("ring", 8, 1e9, 0.0, "ring"), Span(np.array(4.0), 1.0)).combinations.distinct == (
        [("ring", "ring", 8.0, 4.0, 1.0)],
        None,
    )


@pytest.mark.parametrize(
    ("members", "step"),
    [
        ([4.0, 2.0], [2.0, 4.0]),
        ([2.0, 2.5], [1.0, 1.0]),
        ([1.0, 2.0], [2.0**19 + 1, 1.0]),
        ([1.0, 2.0], [2.0**19, 1.0]),
        ([1.5, 2.5], [2.5, 1.5]),
    ],
)
def test_designs_that_differ_in_any_column_differ(members: list[float], step: list[float]) -> None:
    one = Subgroup(NetworkDimension("ring", 8, 1e9, 0.0, "ring"), Span(np.array(members), np.array(step)))
    rows, which = one.combinations.distinct
    assert which is not None
    assert [rows[place][3:] for place in which] == list(zip(members, step, strict=True))


def test_an_array_of_no_dimension_is_one_number_for_all_designs() -> None:
    one = Subgroup(NetworkDimension("ring", 8, 1e9, 0.0, "ring"), Span(np.array([4.0, 2.0]), np.array(1.0)))
    assert sorted(one.combinations.distinct[0]) == [("ring", "ring", 8.0, 2.0, 1.0), ("ring", "ring", 8.0, 4.0, 1.0)]
    assert np.asarray(one.collective("all_gather").per_byte_s).tolist() == near([0.75 / 0.5e9, 0.5 / 0.5e9])
