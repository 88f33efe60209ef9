"""Who sends what to whom in the rounds of each algorithm, worked out by hand for few members."""

from __future__ import annotations

from fractions import Fraction as Share
from itertools import chain
from math import isclose
from typing import get_args

import numpy as np
import pytest

from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.network.collective_algorithms.binomial_tree import BinomialTree
from cosmic.network.collective_algorithms.double_binary_tree import double_tree_parents, tree_levels
from cosmic.network.collective_algorithms.halving_doubling import working_members
from cosmic.network.collective_algorithms.ring_algorithm import one_way_ring
from cosmic.network.collective_rounds import NO_CHUNK, Round, Rounds, rounds_of

KINDS: tuple[CollectiveKind, ...] = get_args(CollectiveKind)
Pairs = list[tuple[int, int]]
Said = tuple[Pairs, list[float], bool, int]
"""Sender and receiver of each message, the bytes of each, whether they are added up, and repetitions."""

ADDS, COPIES = True, False


def pairs(one: Round) -> Pairs:
    return list(zip(one.source.tolist(), one.target.tolist(), strict=True))


def said(rounds: Rounds) -> list[Said]:
    return [
        (pairs(one), [round(size, 12) for size in one.sizes.tolist()], one.reduces, one.times) for one in rounds.rounds
    ]


def told(ends: Pairs, sizes: list[Share] | Share, adds: bool, times: int = 1) -> Said:
    each = [sizes] * len(ends) if isinstance(sizes, Share) else sizes
    return ends, [round(float(size), 12) for size in each], adds, times


def chunk_lists(one: Round, repetition: int = 0) -> list[list[int]]:
    assert one.chunks is not None
    return [[chunk for chunk in row if chunk != NO_CHUNK] for row in one.chunks(repetition).tolist()]


@pytest.mark.parametrize("name", ["ring", "direct", "halving_doubling", "double_binary_tree"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_message_has_the_bytes_of_its_chunks_and_no_chunk_twice(name: str, kind: CollectiveKind) -> None:
    for members in (2, 3, 4, 5, 6, 7, 8, 11):
        rounds = rounds_of(algorithms[name], kind, members)
        for one in rounds.rounds:
            if one.chunks is None:
                continue
            for repetition in range(one.times):
                listed = chunk_lists(one, repetition)
                assert all(len(set(row)) == len(row) for row in listed)
                for row, size in zip(listed, one.sizes.tolist(), strict=True):
                    assert isclose(size, len(row) / (members * rounds.chunks_per_npu)), (members, repetition)


@pytest.mark.parametrize(
    "name", ["ring", "direct", "halving_doubling", "double_binary_tree", "in_network", "auto", "synthesized"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_sends_to_itself_or_outside_the_group(name: str, kind: CollectiveKind) -> None:
    for members in (2, 3, 4, 5, 6, 7, 8, 11):
        for rounds in algorithms[name].alternatives(kind, members):
            assert rounds.members == members
            for one in rounds.rounds:
                assert (one.source != one.target).all()
                assert {*one.source.tolist(), *one.target.tolist()} <= set(range(members))


# ---- rings


RIGHT: Pairs = [(0, 1), (1, 2), (2, 0)]
LEFT: Pairs = [(0, 2), (1, 0), (2, 1)]


def test_halves_of_shards_go_round_three_members_both_ways() -> None:
    scatter = rounds_of(algorithms["ring"], "reduce_scatter", 3)
    assert said(scatter) == [told(RIGHT + LEFT, Share(1, 6), ADDS, 2)]
    # Member i first sends the shard that is farthest from home, so that it ends with its owner.
    assert [[*chain(*chunk_lists(scatter.rounds[0], turn))] for turn in (0, 1)] == [
        [2, 0, 1, 4, 5, 3],
        [1, 2, 0, 5, 3, 4],
    ]
    gather = rounds_of(algorithms["ring"], "all_gather", 3)
    assert sorted(pairs(gather.rounds[0])) == sorted(RIGHT + LEFT)
    assert (len(gather.rounds), gather.rounds[0].times, gather.rounds[0].reduces) == (1, 2, COPIES)
    first = dict(zip(pairs(gather.rounds[0]), chunk_lists(gather.rounds[0]), strict=True))
    # In a gather a member first sends its own half shards: i to the one side, 3 + i to the other.
    assert {
        sender: {chunk % 3 for (start, _), row in first.items() if start == sender for chunk in row}
        for sender in range(3)
    } == {
        0: {0},
        1: {1},
        2: {2},
    }


def test_an_all_reduce_of_a_ring_scatters_and_gathers() -> None:
    rounds = rounds_of(algorithms["ring"], "all_reduce", 4)
    assert [(one.reduces, one.times, one.size) for one in rounds.rounds] == [
        (ADDS, 3, Share(1, 8)),
        (COPIES, 3, Share(1, 8)),
    ]
    assert (rounds.steps, rounds.traffic, rounds.pair_traffic, rounds.chunks_per_npu) == (
        6,
        Share(3, 2),
        Share(3, 4),
        2,
    )


def test_two_members_of_a_ring_exchange_whole_shards_over_one_link() -> None:
    assert said(rounds_of(algorithms["ring"], "reduce_scatter", 2)) == [told([(0, 1), (1, 0)], Share(1, 2), ADDS)]
    assert said(rounds_of(algorithms["ring"], "all_to_all", 2)) == [told([(0, 1), (1, 0)], Share(1, 2), COPIES)]
    assert len(algorithms["ring"].alternatives("all_gather", 2)) == 1


def test_a_ring_may_send_both_ways_or_either_way() -> None:
    both, right, left = algorithms["ring"].alternatives("all_gather", 3)
    assert (both.traffic, right.traffic, left.traffic) == (Share(2, 3),) * 3
    assert [{(end - start) % 3 for start, end in pairs(way.rounds[0])} for way in (both, right, left)] == [
        {1, 2},
        {1},
        {2},
    ]
    assert [way.rounds[0].size for way in (both, right, left)] == [Share(1, 6), Share(1, 3), Share(1, 3)]
    both, right, left = algorithms["ring"].alternatives("all_to_all", 4)
    # Half way round both ways; or 3/4 + 2/4 + 1/4 one way.
    assert (both.traffic, right.traffic, left.traffic) == (1, Share(3, 2), Share(3, 2))
    assert [{(end - start) % 4 for start, end in pairs(way.rounds[0])} for way in (both, right, left)] == [
        {1, 3},
        {1},
        {3},
    ]


@pytest.mark.parametrize(
    ("members", "sizes"),
    [
        (3, [Share(1, 3)]),
        # Of four, one shard goes one link and half of one goes two: 3/8, then 1/8.
        (4, [Share(3, 8), Share(1, 8)]),
        (5, [Share(2, 5), Share(1, 5)]),
        (6, [Share(5, 12), Share(3, 12), Share(1, 12)]),
        (7, [Share(3, 7), Share(2, 7), Share(1, 7)]),
    ],
)
def test_an_all_to_all_goes_the_shorter_way_round(members: int, sizes: list[Share]) -> None:
    rounds = rounds_of(algorithms["ring"], "all_to_all", members)
    ends = [(own, (own + way) % members) for way in (1, -1) for own in range(members)]
    assert said(rounds) == [told(ends, size, COPIES) for size in sizes]
    assert rounds.chunks_per_npu == (1 if members % 2 else 2)


def test_what_goes_half_way_round_four_goes_half_either_way() -> None:
    # Chunk from i to j is i + 4 j, the second half 16 more.
    rounds = rounds_of(algorithms["ring"], "all_to_all", 4)
    first, second = (dict(zip(pairs(one), chunk_lists(one), strict=True)) for one in rounds.rounds)
    assert set(first[0, 1]) == {0 + 4 * 1, 0 + 4 * 1 + 16, 0 + 4 * 2}
    assert set(first[0, 3]) == {0 + 4 * 3, 0 + 4 * 3 + 16, 0 + 4 * 2 + 16}
    assert second[1, 2] == [0 + 4 * 2]
    assert second[3, 2] == [0 + 4 * 2 + 16]


@pytest.mark.parametrize("way", [1, -1])
def test_one_way_round_each_passes_on_what_is_not_its_own(way: int) -> None:
    rounds = one_way_ring("all_to_all", 3, way)
    ends = [(own, (own + way) % 3) for own in range(3)]
    assert said(rounds) == [told(ends, Share(2, 3), COPIES), told(ends, Share(1, 3), COPIES)]
    first, second = (chunk_lists(one) for one in rounds.rounds)
    assert set(first[0]) == {3 * 1, 3 * 2}
    # Then member 0 has, of what the one before it sent, what is for the one after.
    assert second[0] == [(-way) % 3 + 3 * (way % 3)]


# ---- direct exchanges


def test_all_send_to_all_others_at_once_next_neighbours_first() -> None:
    ends = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 3), (2, 0), (3, 1), (0, 3), (1, 0), (2, 1), (3, 2)]
    for kind, adds in (("reduce_scatter", ADDS), ("all_gather", COPIES), ("all_to_all", COPIES)):
        (one,) = rounds_of(algorithms["direct"], kind, 4).rounds  # type: ignore[arg-type]
        assert (pairs(one), one.size, one.reduces, one.times) == (ends, Share(1, 4), adds, 1)
        # The receiver's shard to add up, the sender's own to hand out, or what the one has for the other.
        wanted = {"reduce_scatter": [end for _, end in ends], "all_gather": [start for start, _ in ends]}
        assert [*chain(*chunk_lists(one))] == wanted.get(kind, [start + 4 * end for start, end in ends])
    both = rounds_of(algorithms["direct"], "all_reduce", 4)
    assert [one.reduces for one in both.rounds] == [ADDS, COPIES]
    assert (both.steps, both.traffic, both.pair_traffic) == (2, Share(3, 2), Share(1, 2))


# ---- halving and doubling


def test_four_exchange_halves_and_then_quarters() -> None:
    near, far = [(0, 1), (1, 0), (2, 3), (3, 2)], [(0, 2), (1, 3), (2, 0), (3, 1)]
    scatter = rounds_of(algorithms["halving_doubling"], "reduce_scatter", 4)
    assert said(scatter) == [told(near, Share(1, 2), ADDS), told(far, Share(1, 4), ADDS)]
    # Odd members keep odd shards.
    assert [chunk_lists(one) for one in scatter.rounds] == [[[1, 3], [0, 2], [1, 3], [0, 2]], [[2], [3], [0], [1]]]
    whole = rounds_of(algorithms["halving_doubling"], "all_reduce", 4)
    assert [(sorted(ends), *rest) for ends, *rest in said(whole)] == [
        told(near, Share(1, 2), ADDS),
        told(far, Share(1, 4), ADDS),
        told(far, Share(1, 4), COPIES),
        told(near, Share(1, 2), COPIES),
    ]
    gather = rounds_of(algorithms["halving_doubling"], "all_gather", 4)
    assert [(sorted(ends), *rest) for ends, *rest in said(gather)] == [
        told(far, Share(1, 4), COPIES),
        told(near, Share(1, 2), COPIES),
    ]


def test_eight_gather_from_the_farthest_partner_to_the_nearest() -> None:
    gather = rounds_of(algorithms["halving_doubling"], "all_gather", 8)
    assert [(dict(pairs(one))[6], one.size) for one in gather.rounds] == [
        (2, Share(1, 8)),
        (4, Share(1, 4)),
        (7, Share(1, 2)),
    ]
    assert gather.mean_distance() == pytest.approx((4 / 8 + 2 / 4 + 1 / 2) / (7 / 8))


@pytest.mark.parametrize(
    ("members", "leaders", "helped"),
    [
        (2, [0, 1], []),
        (3, [0, 1], [1]),
        (4, [0, 1, 2, 3], []),
        (5, [0, 1, 2, 3], [3]),
        # The two that are helped end in different bits, as do the other two.
        (6, [0, 1, 2, 4], [2, 4]),
        (7, [0, 1, 3, 5], [1, 3, 5]),
        (12, [0, 1, 2, 3, 4, 6, 8, 10], [4, 6, 8, 10]),
    ],
)
def test_a_power_of_two_works_and_each_helper_sits_behind_the_one_it_helps(
    members: int, leaders: list[int], helped: list[int]
) -> None:
    helpers = [member + 1 for member in helped]
    assert [part.tolist() for part in working_members(members)] == [leaders, helpers, helped]
    assert sorted(leaders + helpers) == list(range(members))


def test_of_six_two_hand_over_and_get_their_shard_back() -> None:
    rounds = rounds_of(algorithms["halving_doubling"], "reduce_scatter", 6)
    handed, half, quarter, result = rounds.rounds
    # All but their own shard, which comes back at the end.
    assert said(rounds)[0] == told([(3, 2), (5, 4)], Share(5, 6), ADDS)
    assert chunk_lists(handed) == [[0, 1, 2, 4, 5], [0, 1, 2, 3, 4]]
    # 0 and 2 work for 0, 2 and 3; 1 and 4 for 1, 4 and 5.
    assert said(rounds)[1] == told([(0, 1), (1, 0), (2, 4), (4, 2)], Share(1, 2), ADDS)
    assert chunk_lists(half) == [[1, 4, 5], [0, 2, 3], [1, 4, 5], [0, 2, 3]]
    # Then 2 works for two, and 0 for itself.
    sizes = [Share(2, 6), Share(2, 6), Share(1, 6), Share(1, 6)]
    assert said(rounds)[2] == told([(0, 2), (1, 4), (2, 0), (4, 1)], sizes, ADDS)
    assert chunk_lists(quarter) == [[2, 3], [4, 5], [0], [1]]
    assert said(rounds)[3] == told([(2, 3), (4, 5)], Share(1, 6), ADDS)
    assert chunk_lists(result) == [[3], [5]]
    assert (len(rounds.rounds), rounds.chunks_per_npu) == (4, 1)
    assert float(rounds.traffic) == pytest.approx(5 / 6 + 1 / 2 + 1 / 3 + 1 / 6)


def test_of_five_one_works_for_two() -> None:
    rounds = rounds_of(algorithms["halving_doubling"], "reduce_scatter", 5)
    near, far = [(0, 1), (1, 0), (2, 3), (3, 2)], [(0, 2), (1, 3), (2, 0), (3, 1)]
    assert said(rounds) == [
        told([(4, 3)], Share(4, 5), ADDS),
        told(near, [Share(3, 5), Share(2, 5), Share(3, 5), Share(2, 5)], ADDS),
        told(far, [Share(1, 5), Share(2, 5), Share(1, 5), Share(1, 5)], ADDS),
        told([(3, 4)], Share(1, 5), ADDS),
    ]


def test_an_all_reduce_of_six_moves_two_buffers_more() -> None:
    rounds = rounds_of(algorithms["halving_doubling"], "all_reduce", 6)
    near, far = [(0, 1), (1, 0), (2, 4), (4, 2)], [(0, 2), (1, 4), (2, 0), (4, 1)]
    assert [(sorted(ends), *rest) for ends, *rest in said(rounds)] == [
        told([(3, 2), (5, 4)], Share(1), ADDS),
        told(near, Share(1, 2), ADDS),
        told(far, Share(1, 4), ADDS),
        told(far, Share(1, 4), COPIES),
        told(near, Share(1, 2), COPIES),
        told([(2, 3), (4, 5)], Share(1), COPIES),
    ]
    # A quarter is no whole number of sixths: of twelfths.
    assert rounds.chunks_per_npu == 2
    assert rounds.traffic == Share(7, 2)
    assert rounds_of(algorithms["halving_doubling"], "all_reduce", 5).chunks_per_npu == 4
    assert rounds_of(algorithms["halving_doubling"], "all_reduce", 12).chunks_per_npu == 2


def test_an_all_to_all_moves_on_by_the_bits_of_the_distance() -> None:
    # From 0 to 1 and 3 away one further; then to 2 and 3 away, of which the latter is at member 1, two further.
    rounds = rounds_of(algorithms["halving_doubling"], "all_to_all", 4)
    assert said(rounds) == [
        told([(0, 1), (1, 2), (2, 3), (3, 0)], Share(1, 2), COPIES),
        told([(0, 2), (1, 3), (2, 0), (3, 1)], Share(1, 2), COPIES),
    ]
    assert chunk_lists(rounds.rounds[0])[0] == [0 + 4 * 1, 0 + 4 * 3]
    assert chunk_lists(rounds.rounds[1])[1] == [1 + 4 * 3, 0 + 4 * 3]
    sizes = {
        members: [one.size for one in rounds_of(algorithms["halving_doubling"], "all_to_all", members).rounds]
        for members in (3, 5, 6)
    }
    assert sizes == {
        3: [Share(1, 3), Share(1, 3)],
        5: [Share(2, 5), Share(2, 5), Share(1, 5)],
        6: [Share(3, 6), Share(2, 6), Share(2, 6)],
    }


# ---- trees


@pytest.mark.parametrize(
    ("members", "first", "second"),
    [
        (2, [-1, 0], [1, -1]),
        (3, [-1, 2, 0], [2, 0, -1]),
        (4, [-1, 2, 0, 2], [1, 3, 1, -1]),
        # Moved on by one: 1 is the root, above 3 and so on.
        (5, [-1, 2, 4, 2, 0], [1, -1, 3, 0, 3]),
        (6, [-1, 2, 4, 2, 0, 4], [1, 5, 3, 1, 3, -1]),
        (7, [-1, 2, 4, 2, 0, 6, 4], [5, -1, 3, 5, 3, 1, 0]),
    ],
)
def test_parents_in_two_trees(members: int, first: list[int], second: list[int]) -> None:
    assert [parents.tolist() for parents in double_tree_parents(members)] == [first, second]


def test_a_member_is_one_level_above_its_highest_child() -> None:
    assert tree_levels(np.array([-1, 0, 1, 1, 3])).tolist() == [3, 2, 0, 1, 0]
    assert tree_levels(np.array([-1])).tolist() == [0]


def test_halves_go_up_two_trees_and_down_again() -> None:
    rounds = rounds_of(algorithms["double_binary_tree"], "all_reduce", 4)
    up, down = rounds.rounds
    ends = [(1, 2), (2, 0), (3, 2), (0, 1), (1, 3), (2, 1)]
    assert said(rounds)[0] == told(ends, Share(1, 2), ADDS)
    assert said(rounds)[1] == told([(end, start) for start, end in ends], Share(1, 2), COPIES)
    assert up.level is not None
    assert down.level is not None
    # Leaves first; on the way down the root first.
    assert (up.level.tolist(), down.level.tolist()) == ([0, 1, 0, 0, 1, 0], [1, 0, 1, 1, 0, 1])
    assert chunk_lists(up) == chunk_lists(down) == [[0, 1]] * 3 + [[2, 3]] * 3
    assert rounds_of(algorithms["double_binary_tree"], "all_reduce", 6).chunks_per_npu == 1
    assert (rounds.steps, rounds.traffic, rounds.pair_traffic, rounds.chunks_per_npu) == (4, 2, 1, 1)


def test_halves_of_an_odd_number_of_shards_need_half_shards() -> None:
    rounds = rounds_of(algorithms["double_binary_tree"], "all_reduce", 5)
    assert rounds.chunks_per_npu == 2
    assert chunk_lists(rounds.rounds[0]) == [[0, 1, 2, 3, 4]] * 4 + [[5, 6, 7, 8, 9]] * 4


def test_half_an_all_reduce_by_trees_is_one_way_and_no_schedule() -> None:
    scatter, gather = (
        rounds_of(algorithms["double_binary_tree"], kind, 6) for kind in ("reduce_scatter", "all_gather")
    )
    assert [one.reduces for one in scatter.rounds + gather.rounds] == [ADDS, COPIES]
    assert [(each.steps, each.traffic, each.executable) for each in (scatter, gather)] == [(3, 1, False)] * 2
    assert pairs(gather.rounds[0]) == [(end, start) for start, end in pairs(scatter.rounds[0])]


def test_algorithms_without_an_all_to_all_of_their_own_send_directly() -> None:
    direct = said(rounds_of(algorithms["direct"], "all_to_all", 5))
    for name in ("double_binary_tree", "in_network", "auto", "synthesized"):
        assert said(rounds_of(algorithms[name], "all_to_all", 5)) == direct
        assert [said(way) for way in algorithms[name].alternatives("all_to_all", 5)] == [direct]
    ring = [said(way) for way in algorithms["ring"].alternatives("all_gather", 5)]
    for name in ("in_network", "auto"):
        assert said(rounds_of(algorithms[name], "all_gather", 5)) == ring[0]
        assert [said(way) for way in algorithms[name].alternatives("all_gather", 5)] == ring


def test_those_that_have_the_data_send_it_to_as_many_others() -> None:
    broadcast = rounds_of(BinomialTree, "broadcast", 6)
    ways: list[Pairs] = [[(0, 1)], [(0, 2), (1, 3)], [(0, 4), (1, 5)]]
    assert said(broadcast) == [told(way, Share(1), COPIES) for way in ways]
    assert all(chunk_lists(one) == [[0]] * len(one.source) for one in broadcast.rounds)
    reduction = rounds_of(BinomialTree, "reduce", 6)
    assert said(reduction) == [told([(end, start) for start, end in way], Share(1), ADDS) for way in reversed(ways)]
    assert (broadcast.steps, broadcast.traffic, reduction.steps) == (3, 3, 3)
    assert [rounds_of(BinomialTree, "broadcast", members).steps for members in (2, 3, 4, 5, 8, 9)] == [1, 2, 2, 3, 3, 4]


# ---- what schedules that are synthesised for links cannot do without


def test_a_synthesised_schedule_sends_what_it_must_to_all_at_once() -> None:
    synthesized = algorithms["synthesized"]
    assert [float(synthesized.peers(members)) for members in (1, 2, 5)] == [1, 1, 4]
    assert [float(synthesized.distance(members)) for members in (2, 9)] == [1, 1]
    assert [float(synthesized.steps("all_gather", members)) for members in (2, 5, 8)] == [1, 3, 3]
    assert float(synthesized.steps("all_reduce", 5)) == 6
    assert float(synthesized.traffic("all_gather", 5)) == pytest.approx(0.8)
    assert float(synthesized.traffic("all_reduce", 5)) == pytest.approx(1.6)
