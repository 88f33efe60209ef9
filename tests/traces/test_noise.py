"""Noise: within its tolerance, over all of it, and with the divisors that simulators look at."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.traces.anonymization import Noise, NoiseTable, divisor_moduli, noise_table, tolerance_limits
from cosmic.traces.trace import ABSENT

NUMBERS = st.lists(st.integers(1, 2**62), min_size=1, max_size=40, unique=True).map(sorted)


@settings(max_examples=30)
@given(NUMBERS, st.sampled_from(["perturb", "bucket"]), st.floats(1e-4, 1.0), st.booleans())
def test_every_number_stays_within_the_tolerance(old: list[int], mode: str, tolerance: float, divided: bool) -> None:
    column = np.array(old, np.int64)
    made = noise_table(column, mode, tolerance, (Noise(3), "x"), divided=divided)
    low, high = tolerance_limits(column, tolerance)
    assert (made.new >= low).all()
    assert (made.new <= high).all()
    assert made.largest_change <= tolerance * (1 + 1e-9)
    if divided:
        modulus = divisor_moduli(high - low + 1)
        np.testing.assert_array_equal(np.gcd(column, modulus), np.gcd(made.new, modulus))


@given(st.integers(100, 2**40), st.integers(0, 2**128))
def test_a_number_that_can_change_does(number: int, seed: int) -> None:
    assert noise_table(np.array([number]), "perturb", 0.05, (Noise(seed), "x")).kept == 0


def test_noise_of_numbers_is_spread_evenly_around_one_common_factor() -> None:
    # A quarter of the noise is each number's own: in units of log(1 + t), uniform over c - 1/4 to c + 1/4.
    old = np.arange(10**9, 10**9 + 20_000)
    ratio = np.log(noise_table(old, "perturb", 0.05, (Noise(1), "x")).new / old) / np.log(1.05)
    middle = (ratio.min() + ratio.max()) / 2
    assert 1 / 4 <= abs(middle) <= 3 / 4  # three quarters of at least a third, and at most one
    counts = np.histogram(ratio, 4, (middle - 1 / 4, middle + 1 / 4))[0]
    assert counts == pytest.approx(5000, abs=300)  # four standard deviations: 245


def test_noise_over_all_seeds_reaches_both_ends_of_the_tolerance_and_has_no_bias() -> None:
    old = np.array([10**9])
    found = [noise_table(old, "perturb", 0.05, (Noise(seed), "x")).new[0] / 10**9 for seed in range(2000)]
    ratio = np.log(found) / np.log(1.05)
    assert abs(ratio.mean()) < 0.06  # its standard deviation is below 0.6: four of the mean's are 0.054
    assert ratio.min() < -0.9
    assert ratio.max() > 0.9


def test_bytes_and_times_of_a_trace_keep_their_proportion_within_the_root_of_the_tolerance() -> None:
    # Both have the factor 1.05^(3c/4); their own factors are within 1.05^(1/4), so ratios change by 1.05^(1/2) at most.
    one, other = (
        noise_table(np.array([10**9]), "perturb", 0.05, (Noise(5), label)).new[0] for label in ("bytes", "times")
    )
    assert one != other
    assert max(one, other) / min(one, other) <= 1.05**0.5


def test_a_small_size_that_divides_into_chunks_still_does() -> None:
    # 50 to 54 are within 5 % of 52, but only 52 has four as its common divisor with 16; 1,000 may become 8 times 121.
    for seed in range(20):
        new = noise_table(np.array([52, 1000]), "perturb", 0.05, (Noise(seed), "x"), divided=True).new
        assert new[0] == 52
        assert np.gcd(new[1], 16) == 8


def test_buckets_merge_neighbours_on_a_grid_of_the_tolerance() -> None:
    old = np.arange(10**6, 2 * 10**6, 1000)
    made = noise_table(old, "bucket", 0.05, (Noise(1), "x"))
    points = np.unique(made.new)
    assert len(points) in (8, 9)  # ln 2 / (2 ln 1.05) = 7.1 steps
    assert points[1:] / points[:-1] == pytest.approx(1.05**2, rel=1e-5)


def test_sizes_that_chunks_divide_still_do_and_others_still_do_not() -> None:
    old = np.array([2**20, 2**20 + 1, 2**20 + 2, 3 * 2**20])
    for seed in range(20):
        new = noise_table(old, "perturb", 0.05, (Noise(seed), "x"), divided=True).new
        assert (new % 4 == 0).tolist() == [True, False, False, True]
        assert (new % 3 == 0).tolist() == (old % 3 == 0).tolist()
        assert new[0] % 2**7 == 0  # 101,800 choices leave 16 × 3 × 16 × 5 of the factors


def test_a_table_maps_only_what_it_holds() -> None:
    assert NoiseTable(np.array([5]), np.array([6])).apply(np.array([5, 7, ABSENT])).tolist() == [6, 7, ABSENT]
    assert NoiseTable(np.empty(0, np.int64), np.empty(0, np.int64)).apply(np.array([5])).tolist() == [5]
