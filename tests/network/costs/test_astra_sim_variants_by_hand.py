"""ASTRA-sim's variants of textbook algorithms, in whole bytes, worked out by hand from its description of them."""

from __future__ import annotations

import numpy as np
import pytest

from cosmic.design.collective_layer import CollectiveKind
from cosmic.network.collective_algorithms.astra_sim_variants import (
    AstraSimRound,
    double_tree_variant,
    halving_doubling_variant,
    ring_variant,
)

Sent = tuple[dict[int, int], int, int, int]
"""Receiver of each sender, bytes, bytes added up, and repetitions."""


def sent(rounds: tuple[AstraSimRound, ...]) -> list[Sent]:
    return [
        (dict(zip(one.source.tolist(), one.target.tolist(), strict=True)), one.size_bytes, one.reduced_bytes, one.times)
        for one in rounds
    ]


RIGHT, LEFT = {0: 1, 1: 2, 2: 0}, {0: 2, 1: 0, 2: 1}


@pytest.mark.parametrize(
    ("kind", "rounds"),
    [
        # Of 100 bytes a third is 33 bytes, one is lost; two rounds, each adds up what comes.
        ("reduce_scatter", [(33, 33, 2)]),
        # The size of an all-gather is that of a shard.
        ("all_gather", [(100, 0, 2)]),
        ("all_reduce", [(33, 33, 2), (33, 0, 2)]),
        # Shards for 1 and 2 links away: 1 + 2 messages in turn.
        ("all_to_all", [(33, 0, 3)]),
    ],
)
def test_a_ring_passes_shards_on_one_way(kind: CollectiveKind, rounds: list[tuple[int, int, int]]) -> None:
    assert sent(ring_variant(kind, 3, 100, 1)) == [(RIGHT, *one) for one in rounds]
    assert sent(ring_variant(kind, 3, 100, -1)) == [(LEFT, *one) for one in rounds]


def test_an_all_to_all_of_a_ring_of_six_forwards_fifteen_times() -> None:
    assert sent(ring_variant("all_to_all", 6, 100, 1)) == [({0: 1, 1: 2, 2: 3, 3: 4, 4: 5, 5: 0}, 16, 0, 15)]


NEAR, FAR = {0: 1, 1: 0, 2: 3, 3: 2}, {0: 2, 1: 3, 2: 0, 3: 1}


@pytest.mark.parametrize(
    ("kind", "rounds"),
    [
        # A half, then a quarter, in whole bytes; a reduction has the size of the message after it.
        ("reduce_scatter", [(NEAR, 51, 25, 1), (FAR, 25, 0, 1)]),
        ("all_gather", [(FAR, 103, 0, 1), (NEAR, 206, 0, 1)]),
        ("all_reduce", [(NEAR, 51, 25, 1), (FAR, 25, 0, 1), (FAR, 25, 0, 1), (NEAR, 51, 0, 1)]),
    ],
)
def test_four_exchange_halves_with_the_nearest_first(kind: CollectiveKind, rounds: list[Sent]) -> None:
    assert sent(halving_doubling_variant(kind, 4, 103)) == rounds


def test_eight_exchange_at_distance_one_two_and_four() -> None:
    found = sent(halving_doubling_variant("reduce_scatter", 8, 800))
    assert [(pairs[0], pairs[5], *sizes) for pairs, *sizes in found] == [
        (1, 4, 400, 200, 1),
        (2, 7, 200, 100, 1),
        (4, 1, 100, 0, 1),
    ]
    gathered = sent(halving_doubling_variant("all_gather", 8, 100))
    assert [(pairs[0], size) for pairs, size, *_ in gathered] == [(4, 100), (2, 200), (1, 400)]


PAIR = {1: 2, 2: 1}


@pytest.mark.parametrize(
    ("kind", "rounds"),
    [
        # Member 0 hands its buffer to 1, which works for it with 2, and hands it back a third, the whole, or all three.
        ("reduce_scatter", [({0: 1}, 101, 101, 1), (PAIR, 50, 0, 1), ({1: 0}, 33, 0, 1)]),
        ("all_reduce", [({0: 1}, 101, 101, 1), (PAIR, 50, 0, 1), (PAIR, 50, 0, 1), ({1: 0}, 101, 0, 1)]),
        # Each of two has half of 303 bytes, rounded up.
        ("all_gather", [({0: 1}, 101, 0, 1), (PAIR, 152, 0, 1), ({1: 0}, 303, 0, 1)]),
    ],
)
def test_of_three_the_first_hands_its_buffer_to_the_next(kind: CollectiveKind, rounds: list[Sent]) -> None:
    assert sent(halving_doubling_variant(kind, 3, 101)) == rounds


INTO, BACK = {0: 1, 2: 3}, {1: 0, 3: 2}
CORE_NEAR, CORE_FAR = {1: 3, 3: 1, 4: 5, 5: 4}, {1: 4, 3: 5, 4: 1, 5: 3}


@pytest.mark.parametrize(
    ("kind", "rounds"),
    [
        (
            "reduce_scatter",
            [(INTO, 103, 103, 1), (CORE_NEAR, 51, 25, 1), (CORE_FAR, 25, 0, 1), (BACK, 17, 0, 1)],
        ),
        (
            "all_reduce",
            [
                (INTO, 103, 103, 1),
                (CORE_NEAR, 51, 25, 1),
                (CORE_FAR, 25, 0, 1),
                (CORE_FAR, 25, 0, 1),
                (CORE_NEAR, 51, 0, 1),
                (BACK, 103, 0, 1),
            ],
        ),
        # 618 bytes in all: a quarter, rounded up, then twice as much.
        ("all_gather", [(INTO, 103, 0, 1), (CORE_FAR, 155, 0, 1), (CORE_NEAR, 310, 0, 1), (BACK, 618, 0, 1)]),
    ],
)
def test_of_six_four_work_two_of_them_for_two(kind: CollectiveKind, rounds: list[Sent]) -> None:
    assert sent(halving_doubling_variant(kind, 6, 103)) == rounds


@pytest.mark.parametrize(
    ("members", "first", "second"),
    [
        (1, (-1,), (-1,)),
        # The root of one tree is the last member, of the other the first; below it a tree in order.
        (2, (1, -1), (-1, 0)),
        (4, (1, 3, 1, -1), (-1, 2, 0, 2)),
        (8, (1, 3, 1, 7, 5, 3, 5, -1), (-1, 2, 4, 2, 0, 6, 4, 6)),
        # Otherwise a tree in order with the middle at its root, and the same counted from the last member.
        (3, (1, -1, 1), (1, -1, 1)),
        (5, (1, 2, -1, 4, 2), (2, 0, -1, 2, 3)),
        (6, (1, 3, 1, -1, 5, 3), (2, 0, -1, 4, 2, 4)),
    ],
)
def test_two_trees_in_order(members: int, first: tuple[int, ...], second: tuple[int, ...]) -> None:
    assert double_tree_variant(members) == (first, second)


@pytest.mark.parametrize("members", [2, 4, 8, 16, 32])
def test_leaves_of_one_tree_are_inner_members_of_the_other(members: int) -> None:
    first, second = ({*np.asarray(tree).tolist()} - {-1} for tree in double_tree_variant(members))
    assert not first & second
    assert first | second == set(range(members))
