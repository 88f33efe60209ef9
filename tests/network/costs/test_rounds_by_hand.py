"""Rounds of messages, and the sums over them, counted by hand."""

from __future__ import annotations

from fractions import Fraction as Share
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import BackendError, SpecError
from cosmic.design.collective_layer import CollectiveKind
from cosmic.network.collective_algorithms.direct import DirectAlgorithm
from cosmic.network.collective_rounds import (
    NO_CHUNK,
    NOTHING,
    ByRounds,
    Floats,
    Round,
    Rounds,
    joined_rounds,
    message_round,
    number_of,
    reversed_rounds,
    rounds_of,
    stack_chunks,
)


def made(pairs: list[tuple[int, int]], size: Share | list[float], **more: Any) -> Round:
    """Return a round of messages between *pairs*."""
    source, target = np.array(pairs, np.int64).reshape(-1, 2).T
    sizes: Share | Floats = np.array(size) if isinstance(size, list) else size
    return Round(source, target, sizes, **more)


class Star(ByRounds):
    """A plugin that states only its rounds: all send their shard to member 0, which sends the others to each."""

    @staticmethod
    def rounds(kind: CollectiveKind, members: int) -> Rounds:
        """Return two rounds of an all-gather, the first of them of other collectives."""
        assert members > 1, "a group of one has no rounds to ask for"
        others = range(1, members)
        inwards = made([(other, 0) for other in others], Share(1, members))
        outwards = made([(0, other) for other in others], Share(members - 1, members))
        return Rounds(members, (inwards, outwards) if kind == "all_gather" else (inwards,))


class Exchange(ByRounds):
    """A plugin that states only the rounds of a direct exchange."""

    rounds = staticmethod(DirectAlgorithm.rounds)


# ---- one round


def test_the_busiest_member_may_be_the_one_that_sends_most() -> None:
    # 0 sends 0.2 + 0.4; 3 receives 0.4 + 0.1
    assert made([(0, 1), (0, 3), (2, 3)], [0.2, 0.4, 0.1]).busiest_member() == pytest.approx(0.6)


def test_the_busiest_member_may_be_the_one_that_receives_most() -> None:
    # 3 receives 0.2 + 0.3 from two; no one sends more than 0.4
    assert made([(0, 3), (1, 3), (2, 0)], [0.2, 0.3, 0.4]).busiest_member() == 0.5


def test_of_messages_of_one_size_the_busiest_member_is_known_exactly() -> None:
    assert made([(0, 1), (0, 2), (1, 2), (3, 2)], Share(1, 7)).busiest_member() == Share(3, 7)


def test_two_messages_to_one_member_go_over_the_same_link() -> None:
    # 0 to 1 twice; 0 to 2 and 1 to 0 are other links, each with less
    assert made([(0, 1), (0, 2), (0, 1), (1, 0)], [0.2, 0.4, 0.3, 0.1]).busiest_pair() == 0.5
    assert made([(0, 1), (0, 2), (0, 1), (1, 0)], Share(1, 5)).busiest_pair() == Share(2, 5)
    assert made([(0, 2), (1, 0)], Share(1, 5)).busiest_pair() == Share(1, 5)


def test_a_round_without_messages_sends_nothing() -> None:
    for size in (Share(1, 2), list[float]()):
        empty = made([], size)
        assert (empty.busiest_member(), empty.busiest_pair(), empty.sizes.tolist()) == (0, 0, [])
    assert made([], Share(1, 2), level=np.array([], np.int64)).levels == 0


def test_every_message_has_a_size() -> None:
    assert made([(0, 1), (1, 0)], Share(1, 4)).sizes.tolist() == [0.25, 0.25]
    assert made([(0, 1), (1, 0)], [0.5, 0.75]).sizes.tolist() == [0.5, 0.75]


def test_messages_of_one_level_go_out_at_once() -> None:
    pairs = [(1, 0), (2, 0), (3, 1)]
    assert made(pairs, Share(1)).levels == 1
    assert made(pairs, Share(1), level=np.array([2, 2, 0])).levels == 3


def test_a_round_turned_round_undoes_itself_last_first() -> None:
    one = made([(1, 0), (3, 1)], Share(1), reduces=True, times=3, level=np.array([1, 0]), chunks=lambda turn: turn)
    back = one.turned()
    assert list(zip(back.source.tolist(), back.target.tolist(), strict=True)) == [(0, 1), (1, 3)]
    assert (back.reduces, back.times, float(back.sizes.sum())) == (False, 3, 2)
    assert back.level is not None
    assert back.level.tolist() == [0, 1]
    assert back.chunks is not None
    assert [back.chunks(turn) for turn in range(3)] == [2, 1, 0]
    plain = made([(1, 0)], Share(1)).turned()
    assert (plain.reduces, plain.level, plain.chunks) == (True, None, None)


# ---- all rounds

UNEVEN = Rounds(
    5,
    (
        made([(0, 1), (4, 0)], Share(1, 10), times=2, reduces=True, chunks=lambda _: np.zeros((2, 1), np.int64)),
        made([(0, 2), (0, 3), (1, 0)], [0.2, 0.3, 0.4], level=np.array([0, 2, 1])),
    ),
    chunks_per_npu=3,
)


def test_repeated_rounds_and_levels_count_once_each() -> None:
    assert UNEVEN.steps == 2 + 3


def test_traffic_is_the_busiest_member_of_each_round() -> None:
    # twice 1/10; then 0 sends 0.2 + 0.3, but at most 0.4 to one other
    assert float(UNEVEN.traffic) == pytest.approx(0.2 + 0.5)
    assert float(UNEVEN.pair_traffic) == pytest.approx(0.2 + 0.4)


def test_a_byte_goes_the_shorter_way_round_the_ring_of_all_members() -> None:
    # of five, 0 to 3 is two away and 4 to 0 one: 2 x 0.1 x (1 + 1), and 0.2 x 2 + 0.3 x 2 + 0.4 x 1
    assert UNEVEN.mean_distance() == pytest.approx((0.4 + 1.4) / (0.4 + 0.9))
    assert Rounds(7, (made([(0, 4)], Share(1, 2)),)).mean_distance() == 3.0
    assert NOTHING.mean_distance() == 1.0


def test_there_is_a_schedule_if_the_chunks_of_all_rounds_are_known() -> None:
    assert not UNEVEN.executable
    assert Rounds(5, UNEVEN.rounds[:1]).executable


def test_a_collective_turned_round_begins_with_its_last_round() -> None:
    back = reversed_rounds(UNEVEN)
    assert [one.times for one in back.rounds] == [1, 2]
    assert [one.reduces for one in back.rounds] == [True, False]
    assert back.rounds[0].target.tolist() == [0, 0, 1]
    assert (back.members, back.chunks_per_npu, back.steps) == (5, 3, 5)


def test_joined_rounds_follow_one_another_in_the_finer_chunks() -> None:
    plain = Rounds(5, (made([(0, 1)], Share(1), times=4),))
    for joined in (joined_rounds(UNEVEN, plain), joined_rounds(plain, UNEVEN)):
        assert (joined.members, joined.chunks_per_npu, joined.steps) == (5, 3, 9)
    assert [one.times for one in joined_rounds(UNEVEN, plain).rounds] == [2, 1, 4]


def test_a_group_of_one_is_not_asked_and_sends_nothing() -> None:
    assert rounds_of(Star, "all_gather", 1) is NOTHING
    assert (NOTHING.members, NOTHING.steps, NOTHING.traffic, NOTHING.pair_traffic) == (1, 0, 0, 0)
    assert len(rounds_of(Star, "all_gather", 2).rounds) == 2


# ---- algorithms that state only their rounds


@pytest.mark.parametrize("members", [2, 3, 4, 5, 8])
def test_a_star_takes_two_steps_at_the_rate_of_its_middle(members: int) -> None:
    # It receives p - 1 shards of 1/p, then sends p - 1 of (p - 1)/p.
    assert Star.steps("all_gather", members) == 2
    assert Star.steps("reduce_scatter", members) == 1
    others = members - 1
    assert Star.traffic("all_gather", members) == pytest.approx((others + others * others) / members)
    assert Star.traffic("reduce_scatter", members) == pytest.approx(others / members)
    assert Star.peers(members) == pytest.approx(others)


@pytest.mark.parametrize(("members", "distance"), [(2, 1.0), (3, 1.0), (4, 4 / 3), (5, 1.5), (6, 9 / 5)])
def test_a_star_sends_as_far_as_its_middle_is_from_others(members: int, distance: float) -> None:
    assert Star.distance(members) == pytest.approx(distance)
    assert Exchange.distance(members) == pytest.approx(distance)


def test_an_exchange_sends_to_all_others_at_once() -> None:
    # (p - 1) / p in all, of which 1 / p to each
    assert [Exchange.peers(members) for members in (2, 3, 8)] == pytest.approx([1, 2, 7])


def test_alone_there_is_no_step_no_byte_and_one_peer() -> None:
    for alone in (1, 0.5, np.array([1.0, 0.25])):
        assert np.all(np.asarray(Star.steps("all_gather", alone)) == 0)
        assert np.all(np.asarray(Star.traffic("all_gather", alone)) == 0)
        assert np.all(np.asarray(Star.peers(alone)) == 1)
        assert np.all(np.asarray(Star.distance(alone)) == 1)


def test_between_whole_numbers_of_members_the_closed_form_is_a_straight_line() -> None:
    # 1/2 of two, 2/3 of three, 3/4 of four
    assert Exchange.traffic("all_gather", 2.25) == pytest.approx(1 / 2 + (2 / 3 - 1 / 2) / 4)
    assert Exchange.steps("all_gather", 1.5) == 0.5
    assert Exchange.distance(3.5) == pytest.approx((1 + 4 / 3) / 2)
    columns = Exchange.traffic("all_gather", np.array([2.25, 3.0, 3.75]))
    assert np.asarray(columns) == pytest.approx([13 / 24, 2 / 3, 2 / 3 + 3 / 4 * (3 / 4 - 2 / 3)])
    assert np.ndim(Exchange.traffic("all_gather", 3)) == 0


def test_a_number_of_members_that_is_whole_but_for_rounding_is_whole() -> None:
    for members in (3 - 1e-12, 3 + 1e-12):
        assert Exchange.traffic("all_gather", members) == float(Share(2, 3))


def test_the_only_alternative_is_what_an_algorithm_says() -> None:
    (only,) = Star.alternatives("all_gather", 4)
    assert [len(one.source) for one in only.rounds] == [3, 3]


def test_an_algorithm_without_rounds_is_refused() -> None:
    with pytest.raises(SpecError, match="must say its rounds"):
        ByRounds.steps("all_gather", 3)


# ---- for those who write rounds


def test_a_message_is_as_large_as_its_chunks() -> None:
    even = message_round([0, 1], [1, 0], stack_chunks([[0, 1], [4, 5]]), Share(1, 6), reduces=True, times=2)
    assert (even.size, even.reduces, even.times) == (Share(1, 3), True, 2)
    uneven = message_round([0, 1], [1, 0], stack_chunks([[0, 1, 2], [4]]), Share(1, 6))
    assert uneven.sizes == pytest.approx([1 / 2, 1 / 6])
    assert (uneven.reduces, uneven.times) == (False, 1)
    stated = message_round([0, 1], [1, 0], stack_chunks([[0], [4]]), Share(1, 6), size=Share(1, 9))
    assert stated.size == Share(1, 9)


def test_rows_of_chunks_are_filled_up_to_the_longest() -> None:
    assert stack_chunks([[7], [0, 1, 2], []]).tolist() == [[7, NO_CHUNK, NO_CHUNK], [0, 1, 2], [NO_CHUNK] * 3]
    assert stack_chunks([]).shape == (0, 0)


def test_rounds_that_share_a_list_of_chunks_are_asked_for_their_own_turn() -> None:
    one = message_round([0], [1], lambda turn: np.array([[turn]]), Share(1, 8), times=2, turn=5)
    assert one.chunks is not None
    assert [one.chunks(repetition).tolist() for repetition in range(2)] == [[[5]], [[6]]]
    first = message_round([0], [1], lambda turn: np.array([[turn]]), Share(1, 8), times=2)
    assert first.chunks is not None
    assert first.chunks(0).tolist() == [[0]]


# ---- plugins


class Says:
    """A plugin whose numbers are what the test says."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def steps(self, members: float) -> Any:
        """Return the answer, for each member."""
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer * members


@pytest.mark.parametrize("number", [0, 0.5, np.float64(3), 1e300])
def test_a_number_of_a_plugin_may_be_nothing_or_more(number: float) -> None:
    assert number_of(Says(number), "steps", 2) == 2 * number


def test_what_goes_wrong_in_a_plugin_is_said_with_its_name() -> None:
    for wrong in (ZeroDivisionError("by nothing"), SystemExit(3), "text"):
        with pytest.raises(BackendError, match=r"Says\.steps failed"):
            number_of(Says(wrong), "steps", 1)
    with pytest.raises(SpecError, match="must be even"):
        number_of(Says(SpecError("members", "3", "must be even")), "steps", 1)
