"""Schedules in the event engine, and textbook algorithms with congestion on every link."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.base.event_clock import EventClock
from cosmic.network.link_graph import graph_of
from cosmic.network.link_paths import NO_LINK, Routes, next_links
from cosmic.network.schedules.baseline_algorithms import algorithm_rounds, algorithms_of, make_baselines
from cosmic.network.schedules.collective_schedule import Kind, Schedule
from cosmic.network.schedules.schedule_checking import check_schedule
from cosmic.network.schedules.schedule_replay import (
    Message,
    WiredFabric,
    replay_schedule,
    simulate_schedule,
    to_nanoseconds,
)
from cosmic.network.schedules.schedule_transfers import flow_of, forwarded_pairs
from tests.network.schedules.made import gathered, of_kind, random_graph, ring, star

KINDS: tuple[Kind, ...] = ("all_gather", "reduce_scatter", "all_reduce")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_a_valid_schedule_takes_as_long_as_it_says(kind: Kind, seed: int) -> None:
    rng = np.random.default_rng(seed)
    schedule = of_kind(kind, gathered(random_graph(rng, 3 + seed), 1 + seed % 3, rng=rng))
    assert simulate_schedule(schedule) == to_nanoseconds(schedule.time_s)
    assert check_schedule(replay_schedule(schedule)).valid


def test_stated_times_do_not_matter_but_their_order_does() -> None:
    schedule = gathered(ring(5), 2)
    slow = replace(schedule, start_s=schedule.start_s * 3 + 1.0, end_s=schedule.end_s * 3 + 1.0)
    assert replay_schedule(slow).end_s.tolist() == schedule.end_s.tolist()


def test_a_switch_sends_what_came_last() -> None:
    """Two copies come to a switch at 1 and 2 us, and leave at 2 and 3: the first to leave is the second to come."""
    graph = graph_of(3, [(0, 3, 1e9, 0.0), (3, 1, 1e9, 0.0), (3, 2, 1e9, 0.0)], 1)
    link, start = np.array([0, 0, 1, 2]), np.array([0.0, 1e-6, 2e-6, 3e-6])
    schedule = Schedule(graph, "broadcast", 1000.0, 1, ((0, 1, 2),), link, np.zeros(4, np.int64), start, start + 1e-6)
    into, out, match = forwarded_pairs(flow_of(schedule))
    assert dict(zip(out.tolist(), into[match].tolist(), strict=True)) == {2: 1, 3: 0}
    assert check_schedule(schedule).valid
    assert replay_schedule(schedule).end_s.tolist() == pytest.approx([1e-6, 2e-6, 2e-6, 3e-6])


def test_what_is_sent_too_early_waits() -> None:
    graph = ring(3)
    both = np.array([0, 1]), np.array([0, 0]), np.zeros(2), np.full(2, 2e-6)
    schedule = Schedule(graph, "broadcast", 1000.0, 1, ((0, 1, 2),), *both)
    assert check_schedule(schedule).counts["not_causal"] == 1
    assert simulate_schedule(schedule) == 4000


def test_transfers_that_wait_for_each_other_are_refused() -> None:
    graph = graph_of(3, [(1, 2, 1e9, 0.0), (2, 1, 1e9, 0.0)])
    both = np.array([0, 1]), np.array([0, 0]), np.zeros(2), np.full(2, 1e-6)
    with pytest.raises(SpecError, match="for ever"):
        simulate_schedule(Schedule(graph, "broadcast", 1000.0, 1, ((0, 1, 2),), *both))
    with pytest.raises(SpecError, match="never receive"):
        simulate_schedule(
            Schedule(graph, "broadcast", 1000.0, 1, ((0, 1, 2),), both[0][:1], both[1][:1], both[2][:1], both[3][:1])
        )


def test_half_nanoseconds_are_rounded_up_whatever_their_last_bit() -> None:
    for exact in (0.5, 1.5, 1000000.5, 12345678.5):
        assert {to_nanoseconds(exact / 1e9 * (1 + sign * 1e-16)) for sign in (-1, 0, 1)} == {int(exact + 0.5)}


# ---- fabric


def test_messages_queue_on_a_shared_link() -> None:
    """Two messages of 1,000 bytes over 0→1→2, 1 us and 1 us a link: the second waits for one transfer of 2 us."""
    graph = graph_of(3, [(0, 1, 1e9, 1e-6), (1, 2, 1e9, 1e-6)])
    clock = EventClock()
    came: list[tuple[str, int]] = []
    fabric = WiredFabric(graph, clock, Routes(graph).path)
    for name in ("first", "second"):
        fabric.send(Message(0, 2, 1000, lambda each: came.append((each, clock.now)), name))
    clock.run()
    assert came == [("first", 4000), ("second", 6000)]
    assert fabric.busy_ns() == {"link 0→1": 4000, "link 1→2": 4000}


def test_a_message_to_itself_takes_no_time() -> None:
    clock = EventClock()
    came: list[tuple[str, int]] = []
    graph = ring(2)
    fabric = WiredFabric(graph, clock, Routes(graph).path)
    fabric.send(Message(1, 1, 1000, lambda each: came.append((each, clock.now)), "here"))
    clock.run()
    assert came == [("here", 0)]


def test_routes_are_the_quickest() -> None:
    links = [(0, 1, 1e9, 0.0), (1, 2, 1e9, 0.0), (0, 2, 1e9, 5e-3)]
    graph = graph_of(3, links)
    assert Routes(graph, 1e6).path(0, 2) == (0, 1)
    assert Routes(graph, 1e8).path(0, 2) == (2,)
    with pytest.raises(SpecError, match="no path leads from 2 to 0"):
        Routes(graph).path(2, 0)
    with pytest.raises(SpecError, match="no path of switches"):
        Routes(graph_of(3, links[:2]), relays=False).path(0, 2)


def test_tables_of_next_links_follow_the_paths() -> None:
    graph = random_graph(np.random.default_rng(3), 7)
    table, routes = next_links(graph), Routes(graph)
    for source in range(7):
        for target in range(7):
            path = routes.path(source, target)
            assert table[source, target] == (path[0] if path else NO_LINK)


# ---- textbook

SIZE, TAU = 8e6, 1e-6 + 1e6 / 1e9
"""A buffer of 8 MB on 8 NPUs, and what a shard takes on a link of 1 GB/s and 1 us."""


def test_a_ring_takes_a_shard_s_time_for_each_of_the_others() -> None:
    found = {each.algorithm: each.time_s for each in make_baselines(ring(8), "all_gather", SIZE, [range(8)])}
    assert found["ring"] == pytest.approx(7 * TAU)
    assert found["two_way_ring"] == pytest.approx(7 * (1e-6 + 5e5 / 1e9))
    twice = {each.algorithm: each.time_s for each in make_baselines(ring(8), "all_reduce", SIZE, [range(8)])}
    assert twice["ring"] == pytest.approx(14 * TAU)


def test_direct_exchange_is_one_message_where_all_are_joined() -> None:
    full = graph_of(4, [(a, b, 1e9, 1e-6) for a in range(4) for b in range(4) if a != b])
    for kind in ("all_gather", "reduce_scatter", "all_to_all"):
        found = {each.algorithm: each.time_s for each in make_baselines(full, kind, 4e6, [range(4)])}
        assert found["direct"] == pytest.approx(TAU)
    found = {each.algorithm: each.time_s for each in make_baselines(full, "all_gather", 4e6, [range(4)])}
    assert found["halving_doubling"] == pytest.approx(2 * 1e-6 + 3e6 / 1e9)


def test_through_a_switch_pieces_follow_one_another() -> None:
    """A ring over a switch: a shard in 8 pieces takes 9 times a piece on a link, not twice a shard."""
    found = {each.algorithm: each.time_s for each in make_baselines(star(4), "all_gather", 4e6, [range(4)])}
    assert found["ring"] == pytest.approx(3 * 9 * (1e-6 + 1e6 / 8 / 1e9))


def test_groups_at_once_share_links() -> None:
    graph = ring(4)
    alone = make_baselines(graph, "all_gather", SIZE, [(0, 2)])[0].time_s
    both = make_baselines(graph, "all_gather", SIZE, [(0, 2), (1, 3)])[0].time_s
    assert alone is not None
    assert both is not None
    assert both > alone


def test_a_tree_takes_as_long_as_its_longest_branch_where_the_root_has_a_link_to_each() -> None:
    full = graph_of(5, [(a, b, 1e9, 0.0) for a in range(5) for b in range(5) if a != b])
    assert [each.time_s for each in make_baselines(full, "broadcast", 1e9, [range(5)], 2)] == [pytest.approx(2.0)]
    assert [each.time_s for each in make_baselines(full, "reduce", 1e9, [range(5)], 2)] == [pytest.approx(2.0)]
    assert algorithm_rounds("tree", "broadcast", 4, 1.0, 3) == [[(3, 0, 1.0)], [(3, 1, 1.0), (0, 2, 1.0)]]


@pytest.mark.long
def test_what_is_not_simulated_says_why() -> None:
    many = {each.algorithm: each for each in make_baselines(ring(700), "all_to_all", SIZE, [range(700)])}
    assert "more than" in many["direct"].reason
    assert many["direct"].time_s is None


def test_six_members_halve_and_double_in_six_steps() -> None:
    """Two hand their buffer over, four halve 8 MB twice and double it twice, two get it: 2 + 2 * 3/4 buffers."""
    full = graph_of(6, [(a, b, 1e9, 1e-6) for a in range(6) for b in range(6) if a != b])
    found = {each.algorithm: each.time_s for each in make_baselines(full, "all_reduce", SIZE, [range(6)])}
    assert found["halving_doubling"] == pytest.approx(6 * 1e-6 + 3.5 * SIZE / 1e9)


def test_trees_send_half_of_a_buffer_over_each_link_up_and_down() -> None:
    """Eight members, three levels: 64 chunks of 62.5 kB each follow one another up, and down at the same time."""
    full = graph_of(8, [(a, b, 1e9, 0.0) for a in range(8) for b in range(8) if a != b])
    found = {each.algorithm: each.time_s for each in make_baselines(full, "all_reduce", SIZE, [range(8)])}
    chunk_s = SIZE / 2 / 64 / 1e9
    assert found["double_binary_tree"] is not None
    assert SIZE / 1e9 <= found["double_binary_tree"] <= SIZE / 1e9 + 6 * chunk_s


@pytest.mark.parametrize("kind", KINDS)
def test_every_algorithm_sends_what_its_collective_needs(kind: Kind) -> None:
    """Of n members, each receives the shards of all others at least; a tree sends the whole buffer n - 1 times.

    Shards of an all-to-all travel 4 links of a one-way ring of 8 on average, 16/7 of a two-way one; by doubling, half
    of all shards move in each of 3 rounds.
    """
    needed = {"all_reduce": 2 * 7 * 8.0, "broadcast": 7 * 8.0, "reduce": 7 * 8.0}.get(kind, 7 * 8.0)
    forwarded = {"ring": 4.0, "two_way_ring": 16 / 7, "halving_doubling": 12 / 7} if kind == "all_to_all" else {}
    for name in algorithms_of(kind):
        sent = sum(size for sends in algorithm_rounds(name, kind, 8, 8.0) for *_, size in sends)
        assert sent == pytest.approx(needed * forwarded.get(name, 1.0))
        assert algorithm_rounds(name, kind, 1, 8.0) == []


def test_direct_exchange_sends_no_two_messages_to_one_member_at_a_time() -> None:
    """Through a switch a member sends 3 messages of 1 s one after the other; they come down as they go up, a piece behind."""
    switched = graph_of(4, [link for npu in range(4) for link in ((npu, 4, 1e9, 0.0), (4, npu, 1e9, 0.0))], switches=1)
    for kind in ("all_gather", "reduce_scatter", "all_to_all"):
        found = {each.algorithm: each.time_s for each in make_baselines(switched, kind, 4e9, [range(4)])}
        assert found["direct"] == pytest.approx(3 + 1 / 8)  # in eight pieces, the last of which goes down alone
