"""Where jobs go."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.cluster.job_requests import (
    UplinkTraffic,
    crossing_groups,
    join_ranges,
    place_job,
    return_ranges,
    take_ranges,
)
from tests.cluster.fleets.made import cluster

TIER = cluster(64, node=8, leaf=32)


def test_a_job_smaller_than_a_node_lies_in_the_fullest_node_that_has_room() -> None:
    free = ((4, 16), (30, 32))  # half a node, a whole one, two accelerators
    assert place_job(free, 4, TIER, "packed") == ((4, 8),)
    assert place_job(free, 2, TIER, "packed") == ((30, 32),)
    assert place_job(free, 8, TIER, "packed") == ((8, 16),)
    assert place_job(free, 2, TIER, "first_fit") == ((4, 6),)


def test_packed_stays_in_one_leaf_where_it_can() -> None:
    # 24 would fit into 16-40 across the leaves, and into 32-56 within one
    assert place_job(((16, 64),), 24, TIER, "packed") == ((32, 56),)
    assert place_job(((16, 64),), 24, TIER, "first_fit") == ((16, 40),)
    assert place_job(((16, 48),), 24, TIER, "packed") == ((16, 40),)


def test_a_job_of_several_leaves_begins_at_one() -> None:
    tier = cluster(128, node=8, leaf=32)
    assert place_job(((8, 128),), 64, tier, "packed") == ((32, 96),)


def test_there_may_be_no_place() -> None:
    assert place_job(((4, 12),), 8, TIER, "packed") is None  # no whole node
    assert place_job(((0, 8), (16, 24)), 16, TIER, "first_fit") is None
    assert place_job(((0, 8), (16, 24)), 16, TIER, "scattered") == ((0, 8), (16, 24))
    assert place_job((), 1, TIER, "scattered") is None


def test_scattered_deals_nodes_over_leaves() -> None:
    assert place_job(((0, 64),), 32, TIER, "scattered") == ((0, 16), (32, 48))


ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)), max_size=6).map(
    lambda pairs: [(first, min(64, first + size)) for first, size in pairs]
)


@settings(max_examples=50, deadline=None)
@given(ranges, st.sampled_from([1, 2, 4, 8, 16, 24, 32]), st.sampled_from(["packed", "first_fit", "scattered"]))
def test_a_place_is_free_and_what_is_given_back_is_free_again(held: list[tuple[int, int]], npus: int, how: str) -> None:
    free = take_ranges(((0, 64),), held)
    found = place_job(free, npus, TIER, how)  # type: ignore[arg-type]
    if found is None:
        return
    numbers = {each for first, end in found for each in range(first, end)}
    assert len(numbers) == npus
    assert numbers <= {each for first, end in free for each in range(first, end)}
    assert return_ranges(take_ranges(free, found), found) == join_ranges(free)


def test_only_whole_groups_of_a_ring_cross_where_ranks_are_in_order() -> None:
    # 6 nodes in leaves of 4 and 2: a ring through all leaves each once; rings of two nodes each stay inside
    leaves = [0, 0, 0, 0, 1, 1]
    assert crossing_groups(leaves, UplinkTraffic(1.0, 6)) == {0: 1.0, 1: 1.0}
    assert crossing_groups(leaves, UplinkTraffic(1.0, 2)) == {}
    # all to all: each of 4 sends 2/5 out, each of 2 sends 4/5
    assert crossing_groups(leaves, UplinkTraffic(1.0, 6, everywhere=True)) == {0: 1.6, 1: 1.6}
