"""How many accelerators are tried: whole nodes, numbers that divide well, and batches that replicas can share."""

from __future__ import annotations

import pytest

from cosmic.base.optimise import optimise
from cosmic.search.cluster_sizing import (
    MOST_ACCELERATORS,
    batch_near,
    counts_around,
    counts_within,
    fewest_accelerators,
    finer_counts,
    ladder_counts,
    largest_within,
    smooth_numbers,
)
from tests.batches import check_all


def test_smooth_numbers_have_no_prime_factor_above_five_and_five_once() -> None:
    # up to 30: 7, 11, 13, 14, 17, 19, 21, 22, 23, 26, 28 and 29 have other factors; 25 has 5 twice
    assert smooth_numbers(30) == (1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16, 18, 20, 24, 27, 30)


def test_the_largest_three_numbers_that_fit_are_tried_and_shares_of_the_largest() -> None:
    # 1,000 fit: 125 nodes of 8. Smooth up to 125: …, 96, 108, 120. Of 120 nodes 90 (3/4), 60 (1/2) and 30 (1/4).
    assert counts_within(8, lambda npus: npus <= 1000) == [960, 864, 768, 720, 480, 240]


def test_whole_nodes_are_counted() -> None:
    assert counts_within(72, lambda npus: npus <= 300) == [288, 216, 144, 72]
    assert counts_within(72, lambda npus: npus <= 71) == []
    assert counts_within(72, lambda _: True, 71) == []


def test_no_number_is_above_the_most_that_are_wanted() -> None:
    assert counts_within(8, lambda _: True, 100)[0] == 96
    assert counts_within(8, lambda _: True)[0] <= MOST_ACCELERATORS


@pytest.mark.parametrize("limit", [8, 24, 100, 1000, 12345, 999_999])
def test_every_number_fits_and_larger_limits_allow_no_fewer(limit: int) -> None:
    counts = counts_within(8, lambda npus: npus <= limit)
    assert counts == sorted(counts, reverse=True)
    assert all(count <= limit and count % 8 == 0 for count in counts)
    assert counts_within(8, lambda npus: npus <= 2 * limit)[0] >= counts[0]


@pytest.mark.parametrize("goal", [1, 8, 9, 100, 1000, 1025, 7777])
def test_the_fewest_that_meet_a_goal_are_what_trying_all_finds(goal: int) -> None:
    all_numbers = [8 * each for each in smooth_numbers(1000)]
    expected = next((npus for npus in all_numbers if npus >= goal), None)
    assert optimise(fewest_accelerators(8, 8000), lambda npus: npus >= goal) == expected


def test_a_goal_that_is_not_met_has_no_number() -> None:
    assert optimise(fewest_accelerators(8, 1000), lambda _: False) is None
    assert optimise(fewest_accelerators(8, 8), lambda _: True) == 8


def test_a_batch_has_the_odd_factors_of_the_accelerators() -> None:
    assert batch_near(2048, 16384) == 2048  # a power of two already
    # 12,288 = 3 * 2^12: 3 * 2^7 * 5 = 1920 is 128 less than 2048, a part in 16: none with more twos is so near
    assert batch_near(2048, 12288) == 1920
    # 320 = 5 * 2^6: 5 * 2^5 * 3 = 480 is 32 less than 512, so that 160 replicas share it
    assert batch_near(512, 320) == 480
    # 616 = 8 * 77: multiples of 77 within 32 of 512: 77 * 6 = 462 and 77 * 7 = 539
    assert batch_near(512, 616) == 539
    # 696 = 8 * 87: 87 * 5 = 435 and 87 * 6 = 522; 840 = 8 * 105: 105 * 4 = 420 and 105 * 5 = 525
    assert (batch_near(512, 696), batch_near(512, 840)) == (522, 525)
    # 936 = 8 * 117: 117 * 4 = 468 and 117 * 5 = 585 are too far
    assert batch_near(512, 936) == 512


@check_all("npus", [8 * nodes for nodes in range(1, 600, 7)])
def test_batches_that_are_compared_differ_by_a_part_in_16(npus: int) -> None:
    assert abs(batch_near(2048, npus) - 2048) <= 2048 / 16


def test_a_batch_stays_as_wanted_if_none_is_near() -> None:
    # 81 * 3 = 243 accelerators and a batch of 100: the nearest multiple of 243 is 243
    assert batch_near(100, 243) == 100


def test_the_largest_number_of_whole_nodes_fits_and_one_more_does_not() -> None:
    assert largest_within(8, lambda npus: npus <= 117) == 112
    assert largest_within(72, lambda npus: npus <= 71) == 0
    assert largest_within(8, lambda _: True, 100) == 96


def test_every_whole_node_is_a_number_to_try_unless_no_batch_is_near() -> None:
    # 13 nodes of 8: 13 * 8 * 5 = 520 is near 512; 117 nodes: no multiple of 117 is within 32
    assert list(finer_counts(8, 112, 512)) == [8 * nodes for nodes in range(14, 0, -1)]
    assert 8 * 117 not in list(finer_counts(8, 8 * 118, 512))


def test_rungs_are_the_same_for_every_limit() -> None:
    # nodes of 8: 1, 3, 5 and 15 times powers of two
    assert [npus // 8 for npus in ladder_counts(8, 8 * 31)] == [30, 24, 20, 16, 15, 12, 10, 8, 6, 5, 4, 3, 2, 1]
    assert list(ladder_counts(8, 8 * 12 - 1)) == [80, 64, 48, 40, 32, 24, 16, 8]
    assert list(ladder_counts(72, 72)) == [72]
    assert list(ladder_counts(72, 71)) == []


def test_numbers_around_divide_well_and_are_within_a_factor_of_two() -> None:
    # of 36 nodes: 18 to 72, but at most 40. 27 = 3^3 and 30 = 2 * 3 * 5 are smooth; 22, 26 and 28 are 11, 13 and 14
    # doubled; 19, 21, 23, 25, 29, 31, 33, 34, 35, 37, 38 and 39 are neither
    assert [npus // 8 for npus in counts_around(8, 8 * 36, 8 * 40)] == [40, 36, 32, 30, 28, 27, 26, 24, 22, 20, 18]
    assert counts_around(8, 8, 8) == [8]
