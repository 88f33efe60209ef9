"""Factors: every way to split a number, and the most even one."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosmic.base.numeric import divisors, even_factors, factorizations, is_power_of_two

NUMBERS = st.integers(1, 400)
PARTS = st.integers(1, 3)


@given(NUMBERS)
def test_divisors_are_all_the_numbers_that_divide(number: int) -> None:
    assert divisors(number) == tuple(each for each in range(1, number + 1) if number % each == 0)


@given(st.integers(1, 60), PARTS)
def test_splits_are_all_the_products_each_once(number: int, parts: int) -> None:
    wanted = [way for way in product(range(1, number + 1), repeat=parts) if prod(way) == number]
    assert list(factorizations(number, parts)) == wanted


@given(NUMBERS, PARTS)
def test_the_most_even_split_has_the_least_largest_part_and_then_the_largest_least(number: int, parts: int) -> None:
    found = even_factors(number, parts)
    assert prod(found) == number
    assert list(found) == sorted(found)
    flattest = [way for way in factorizations(number, parts) if max(way) == max(found)]
    assert max(found) == min(max(way) for way in factorizations(number, parts))
    assert min(found) == max(min(way) for way in flattest)


@pytest.mark.parametrize(
    ("number", "parts", "split"),
    [(512, 3, (8, 8, 8)), (1, 2, (1, 1)), (96, 2, (8, 12)), (128, 3, (4, 4, 8)), (7, 3, (1, 1, 7)), (5, 0, ())],
)
def test_even_splits_worked_by_hand(number: int, parts: int, split: tuple[int, ...]) -> None:
    assert even_factors(number, parts) == split


def test_powers_of_two_begin_with_one() -> None:
    assert [number for number in range(-2, 20) if is_power_of_two(number)] == [1, 2, 4, 8, 16]
