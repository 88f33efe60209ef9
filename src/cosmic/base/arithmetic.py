"""Divisors and factorizations of whole numbers, for meshes and network dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import isqrt


@cache
def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a positive *number*, smallest first.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [factor for factor in range(1, isqrt(number) + 1) if number % factor == 0]
    large = [number // factor for factor in reversed(small) if factor * factor != number]
    return (*small, *large)


def factorizations(number: int, parts: int, *, powers_of_two: bool = False) -> Iterator[tuple[int, ...]]:
    """Yield every ordered way to write *number* as a product of *parts* whole numbers.

    >>> list(factorizations(4, 2)), list(factorizations(6, 2, powers_of_two=True))
    ([(1, 4), (2, 2), (4, 1)], [])
    """
    if powers_of_two and not is_power_of_two(number):
        return
    if parts == 1:
        yield (number,)
        return
    for factor in divisors(number):
        for rest in factorizations(number // factor, parts - 1):
            yield (factor, *rest)


def even_factors(number: int, parts: int) -> tuple[int, ...]:
    """Return *parts* factors of *number*, as equal as possible, smallest first.

    The largest is as small as possible, then the smallest as large as possible.

    >>> even_factors(512, 3), even_factors(128, 3), even_factors(7, 2)
    ((8, 8, 8), (4, 4, 8), (1, 7))
    """
    if parts == 0:
        return ()
    ascending = (split for split in factorizations(number, parts) if list(split) == sorted(split))
    return min(ascending, key=lambda split: (split[-1], [-part for part in split]))


def is_power_of_two(number: int) -> bool:
    """Return whether *number* is 1, 2, 4, 8 and so on."""
    return number > 0 and number & (number - 1) == 0
