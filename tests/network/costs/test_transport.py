"""What a library makes of links: every term of every protocol, worked out by hand."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial

import numpy as np
import pytest

from cosmic.design.network_layer import Transport
from cosmic.network.collective_costs import transport_of
from cosmic.network.transport_protocols import IDEAL, Route, TransportColumns, stage_cost

near = partial(pytest.approx, rel=1e-9, abs=0.0)

RATE, LATENCY_S = 100e9, 1e-6
NCCL = Transport(
    efficiency=0.8,
    overhead_s=5e-6,
    bulk_s=3e-6,
    bulk_latency_s=0.5e-6,
    small_efficiency=0.4,
    direct_share=0.9,
    direct_small_share=0.6,
    copy_share=0.2,
    contention=0.5,
)
REDUCING = replace(NCCL, reduction_s=7e-6, reduction_efficiency=0.7)
RING = Route(members=4, hops=6, traffic=1.5)
"""All-reduce of 4 with a link between neighbours: 2 x 3 hops, 2 x 3/4 of the data."""
WIRE = (1.5 + 0.2 / 4) * 2**0.5
"""Bytes of RING for each byte: traffic, an own part of 1/4 at a fifth of the time, and (4 / 2) ** 0.5 of contention."""


def seconds(route: Route, transport: Transport, size: float, *, reduces: bool = True) -> float:
    cost = stage_cost(route, RATE, LATENCY_S, transport, reduces)
    return float(cost.per_chunk_s + cost.per_byte_s * size + cost.per_call_s(size))


def test_ideal_links_take_latency_and_bytes() -> None:
    cost = stage_cost(RING, RATE, LATENCY_S, IDEAL)
    assert (cost.per_chunk_s, cost.per_byte_s, cost.per_call_s(1e9)) == (6e-6, 1.5 / 100e9, 0.0)


def test_each_chunk_takes_latency_and_the_rate_of_large_messages() -> None:
    cost = stage_cost(RING, RATE, LATENCY_S, NCCL)
    assert cost.per_chunk_s == 6e-6
    assert cost.per_byte_s == near(WIRE / 80e9)


def test_small_messages_skip_the_announcement_at_a_lower_rate() -> None:
    assert seconds(RING, NCCL, 0) == near(6e-6 + 5e-6)
    assert seconds(RING, NCCL, 1e5) == near(6e-6 + 5e-6 + 1e5 * WIRE / 40e9)


def test_large_messages_take_the_announcement_once_and_for_each_hop() -> None:
    assert seconds(RING, NCCL, 1e9) == near(6e-6 + 5e-6 + 3e-6 + 6 * 0.5e-6 + 1e9 * WIRE / 80e9)


def test_protocols_switch_where_they_take_equally_long() -> None:
    switch = (3e-6 + 6 * 0.5e-6) / (WIRE / 40e9 - WIRE / 80e9)  # 219 kB
    assert seconds(RING, NCCL, 0.99 * switch) == near(11e-6 + 0.99 * switch * WIRE / 40e9)
    assert seconds(RING, NCCL, 1.01 * switch) == near(17e-6 + 1.01 * switch * WIRE / 80e9)


def test_without_a_small_protocol_all_messages_are_large() -> None:
    assert seconds(RING, replace(NCCL, small_efficiency=0.0), 0) == near(17e-6)


def test_a_protocol_that_is_faster_throughout_sets_the_pace_of_chunks() -> None:
    """Small messages at 0.9 of the rate, large ones at 0.5: no call gives back what chunks took."""
    odd = Transport(efficiency=0.5, small_efficiency=0.9, bulk_s=2e-6)
    cost = stage_cost(RING, RATE, 0.0, odd)
    assert cost.per_byte_s == near(RING.traffic / RATE / 0.9)
    assert cost.per_call_s(1e9) == 0.0
    assert cost.protocols[0] == near((2e-6, RING.traffic / RATE * (1 / 0.5 - 1 / 0.9)))


def test_direct_messages_are_announced_one_way_and_not_passed_on() -> None:
    direct = replace(RING, direct=True)
    assert seconds(direct, NCCL, 0) == near(11e-6)
    assert seconds(direct, NCCL, 1e4) == near(11e-6 + 1e4 * WIRE / (40e9 * 0.6))
    assert seconds(direct, NCCL, 1e9) == near(11e-6 + 1.5e-6 + 1e9 * WIRE / (80e9 * 0.9))


def test_messages_copy_nothing() -> None:
    sent = replace(RING, copies_own=False)
    assert seconds(sent, NCCL, 1e9) == near(17e-6 + 1e9 * 1.5 * 2**0.5 / 80e9)


def test_two_members_do_not_contend() -> None:
    pair = Route(members=2, hops=2, traffic=1.0)
    assert seconds(pair, NCCL, 1e9) == near(2e-6 + 5e-6 + 3e-6 + 2 * 0.5e-6 + 1e9 * (1.0 + 0.2 / 2) / 80e9)


def test_without_contention_all_members_have_their_rate() -> None:
    free = replace(NCCL, contention=0.0)
    assert seconds(RING, free, 1e9) == near(17e-6 + 1e9 * 1.55 / 80e9)


def test_a_group_of_one_makes_no_call() -> None:
    alone = Route(members=1, hops=0, traffic=0.0)
    for each in (IDEAL, NCCL, REDUCING, replace(NCCL, small_efficiency=0.0)):
        assert seconds(replace(alone, direct=True), each, 1e9) == 0
        assert seconds(alone, each, 1e9) == 0
        assert seconds(replace(alone, auto=True), each, 1e9) == 0


def test_a_library_takes_latency_once_a_call() -> None:
    cost = stage_cost(replace(RING, auto=True), RATE, LATENCY_S, NCCL)
    assert cost.per_chunk_s == 0
    assert cost.per_call_s(0) == near(5e-6 + 6e-6)
    assert stage_cost(LARGE_RING, RATE, LATENCY_S, NCCL).per_call_s(0) == near(65e-6)  # no tree: no all-reduce
    assert stage_cost(replace(RING, auto=True), RATE, LATENCY_S, IDEAL).per_call_s(0) == near(6e-6)


def test_switches_reduce_where_that_is_faster() -> None:
    """Without the ring's latency, 1 + 1/4 of the data at 0.7 of the rate."""
    auto = replace(RING, auto=True)
    in_switch = 5e-6 + 7e-6 + 1e6 * 1.25 * 2**0.5 / 70e9  # 37.3 us; the ring takes 17 us + 27.4 us
    assert seconds(auto, REDUCING, 1e6) == near(in_switch)
    assert seconds(auto, REDUCING, 1e3) == near(11e-6 + 1e3 * WIRE / 40e9)  # reducing takes 12 us at least


@pytest.mark.parametrize(
    ("route", "transport", "reduces"),
    [
        (replace(RING, auto=True), REDUCING, False),  # no all-reduce
        (RING, REDUCING, True),  # the design names an algorithm
        (replace(RING, auto=True, alone=False), REDUCING, True),  # members in other dimensions
        (replace(RING, auto=True), replace(REDUCING, reduction_efficiency=0.0), True),  # no such switches
    ],
)
def test_switches_do_not_reduce_otherwise(route: Route, transport: Transport, reduces: bool) -> None:
    assert seconds(route, transport, 1e6, reduces=reduces) == near(17e-6 + 1e6 * WIRE / 80e9)


LARGE_RING = Route(members=16, hops=60, traffic=1.875, auto=True)
"""All-reduce of 16 on a switch: 2 x 15 steps of 2 links, 2 x 15/16 of the data. A tree takes 4/15 of the hops, 16."""
LARGE_WIRE = (1.875 + 0.2 / 16) * 8**0.5


def test_many_hosts_reduce_small_messages_over_a_tree() -> None:
    assert seconds(LARGE_RING, NCCL, 0) == near(5e-6 + 16e-6)
    assert seconds(LARGE_RING, NCCL, 1e4) == near(21e-6 + 1e4 * LARGE_WIRE * 16 / 15 / 40e9)


def test_large_messages_over_a_tree_are_announced_over_fewer_hops() -> None:
    large = replace(NCCL, small_efficiency=0.0)
    tree = 5e-6 + 16e-6 + 3e-6 + 16 * 0.5e-6 + 1e6 * LARGE_WIRE * 16 / 15 / 80e9  # 103 us
    assert tree < 5e-6 + 60e-6 + 3e-6 + 60 * 0.5e-6 + 1e6 * LARGE_WIRE / 80e9  # 165 us
    assert seconds(LARGE_RING, large, 1e6) == near(tree)


def test_the_largest_messages_go_round_a_ring() -> None:
    assert seconds(LARGE_RING, NCCL, 1e9) == near(68e-6 + 60 * 0.5e-6 + 1e9 * LARGE_WIRE / 80e9)


def test_trees_are_for_all_reduces_across_hosts_of_a_library() -> None:
    ring = near(5e-6 + 60e-6)
    assert seconds(LARGE_RING, NCCL, 0, reduces=False) == ring
    assert seconds(replace(LARGE_RING, auto=False), NCCL, 0) == ring
    assert seconds(replace(LARGE_RING, members=8), NCCL, 0) == ring  # as many as share a host
    assert seconds(replace(LARGE_RING, members=9), NCCL, 0) == near(5e-6 + 60e-6 * 4 / 8)


def test_a_batch_gives_what_each_design_gives() -> None:
    sizes = [1e3, 1e6, 1e9, 1e9, 1.0, 1e3]
    alone = Route(members=1, hops=0, traffic=0.0)
    routes = [replace(RING, auto=True), replace(LARGE_RING, alone=False), RING, alone, replace(LARGE_RING, members=8)]
    routes.append(replace(LARGE_RING, auto=False))
    transports = [REDUCING, NCCL, replace(NCCL, contention=0.0, small_efficiency=0.0), IDEAL, NCCL, NCCL]
    members, hops, traffic = np.array([(each.members, each.hops, each.traffic) for each in routes]).T
    route = Route(
        members,
        hops,
        traffic,
        auto=np.array([bool(each.auto) for each in routes]),
        alone=np.array([bool(each.alone) for each in routes]),
    )
    columns = {each.name: np.array([getattr(one, each.name) for one in transports]) for each in fields(Transport)}
    cost = stage_cost(route, RATE, LATENCY_S, TransportColumns(**columns), True)
    size = np.array(sizes)
    found = cost.per_chunk_s + cost.per_byte_s * size + cost.per_call_s(size)
    wanted = [seconds(*each) for each in zip(routes, transports, sizes, strict=True)]
    assert np.asarray(found).tolist() == near(wanted)


def test_a_transport_that_varies_has_a_column_for_each_field() -> None:
    assert transport_of(lambda key: 1.0, False, Transport()) is IDEAL
    assert transport_of(lambda key: 1.0, False, NCCL) is NCCL
    asked: list[str] = []
    found = transport_of(lambda key: float(len(asked.append(key) or asked)), True, NCCL)  # type: ignore[func-returns-value]
    assert isinstance(found, TransportColumns)
    assert asked == [each.name.removesuffix("_s") for each in fields(Transport)]
    assert (found.efficiency, found.overhead_s, found.contention) == (1.0, 2.0, 11.0)
