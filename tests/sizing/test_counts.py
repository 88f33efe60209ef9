"""How many accelerators are tried: whole nodes, numbers that divide well, and batches that replicas can share."""

from __future__ import annotations

import pytest

from cosmic.sizing.counts import MOST, batch_near, counts_within, fewest, next_count, smooth_numbers


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
    assert counts_within(8, lambda _: True)[0] <= MOST


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
    assert fewest(8, 8000, lambda npus: npus >= goal) == expected


def test_a_goal_that_is_not_met_has_no_number() -> None:
    assert fewest(8, 1000, lambda _: False) is None
    assert fewest(8, 8, lambda _: True) == 8


def test_a_batch_has_the_odd_factors_of_the_accelerators() -> None:
    assert batch_near(2048, 16384) == 2048  # a power of two already
    # 12,288 = 3 * 2^12: 3 * 256 * 3 = 2304 is an eighth more, with the most factors of two of all within that
    assert batch_near(2048, 12288) == 2304
    # 360 = 8 * 45: multiples of 45 * 2^k within an eighth of 512: 45 * 8 = 360 is too far; 45 * 4 * 3 = 540 is near
    assert batch_near(512, 360) == 540


def test_a_batch_stays_as_wanted_if_none_is_near() -> None:
    # 81 * 3 = 243 accelerators and a batch of 100: the nearest multiple of 243 is 243, more than an eighth off
    assert batch_near(100, 243) == 100


def test_the_next_number_is_the_next_smooth_one() -> None:
    assert next_count(96, 8) == 120  # 12 nodes, then 15
    assert next_count(72, 72) == 144
