"""How many accelerators to try: whole nodes, in numbers that parallelism can divide."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache

FACTORS = (2, 3, 5)
MOST = 2_000_000
"""Accelerators of the largest cluster that is tried."""
SHARES = (0.75, 0.5, 0.25)
"""Of the largest number that fits, smaller ones to try as well: a cluster too large for its batch waits."""
LARGEST = 3
"""So many of the largest numbers that fit are tried."""
SIXTEENTHS = 16
"""Numbers of nodes below it, times powers of two, are tried near a cluster that is the best so far."""
BATCH_SHARE = 16
"""Global batches differ by at most one part in so many: others would train another model."""


@cache
def smooth_numbers(most: int) -> tuple[int, ...]:
    """Return the numbers up to *most* with no prime factor but 2, 3 and 5 (5 at most once).

    >>> smooth_numbers(12)
    (1, 2, 3, 4, 5, 6, 8, 9, 10, 12)
    """
    found = {1}
    for factor in FACTORS:
        grown = set(found)
        times = factor
        while times <= most:
            grown |= {each * times for each in found if each * times <= most}
            times = times * factor if factor != FACTORS[-1] else most + 1
        found = grown
    return tuple(sorted(found))


def counts_within(node: int, fits: Callable[[int], bool], most: int | None = None) -> list[int]:
    """Return numbers of accelerators to try, in nodes of *node*, largest first; none if one node is too many.

    *fits* says whether so many are within the limits: if a number is, smaller ones are.

    >>> counts_within(8, lambda npus: npus <= 100)
    [96, 80, 72, 48, 24]
    """
    multiples = smooth_numbers(max(1, min(MOST, most or MOST) // node))
    if most is not None and most < node:
        return []
    known = bisect_right(multiples, False, key=lambda each: not fits(each * node))
    if not known:
        return []
    largest = multiples[known - 1]
    chosen = {multiples[place] for place in range(max(0, known - LARGEST), known)}
    chosen |= {multiples[bisect_right(multiples, share * largest) - 1] for share in SHARES if share * largest >= 1}
    return [each * node for each in sorted(chosen, reverse=True)]


def fewest(node: int, most: int, meets: Callable[[int], bool]) -> int | None:
    """Return a small number of accelerators up to *most*, in nodes of *node*, that meets a goal; None if none is found.

    Nodes are doubled until the goal is met, and the range between the last two is halved: the number is the smallest
    if all larger ones meet the goal too.

    >>> asked = []
    >>> fewest(8, 1000, lambda npus: asked.append(npus) or npus >= 300), asked
    (320, [8, 16, 32, 64, 128, 256, 512, 384, 320, 288])
    >>> fewest(8, 200, lambda npus: npus >= 300) is None
    True
    """
    multiples = smooth_numbers(max(1, most // node))
    power = 1
    while not meets(node * min(power, multiples[-1])):
        if power >= multiples[-1]:
            return None
        power *= 2
    low, high = bisect_right(multiples, power // 2), multiples.index(min(power, multiples[-1]))
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if meets(node * multiples[middle]) else (middle + 1, high)
    return node * multiples[high]


def batch_near(wanted: int, npus: int) -> int:
    """Return a global batch near the *wanted* one that replicas on *npus* accelerators can share.

    Odd factors of the number of accelerators are in some axis; a batch that has them too lets that be dp.

    It has as many factors of two as a batch within a part in `BATCH_SHARE` can have; the *wanted* one where none has
    the odd factors.

    >>> batch_near(2048, 16384), batch_near(2048, 12288), batch_near(2048, 15360), batch_near(2048, 8 * 557)
    (2048, 1920, 1920, 2048)
    """
    odd = _odd(npus)
    if wanted % odd == 0:
        return wanted
    for power in range(10, -1, -1):
        step = odd * 2**power
        near: int = max(1, round(wanted / step)) * step
        if BATCH_SHARE * abs(near - wanted) <= wanted:
            return near
    return wanted


def _odd(number: int) -> int:
    """Return the largest odd factor of a number."""
    while number % 2 == 0:
        number //= 2
    return number


def smaller_counts(node: int, most: int) -> Iterator[int]:
    """Yield fewer accelerators than *most*, in nodes of *node*, by halves.

    >>> list(smaller_counts(8, 240))
    [120, 56, 24, 8]
    """
    nodes = most // node // 2
    while nodes:
        yield node * nodes
        nodes //= 2


def rungs(node: int, most: int) -> Iterator[int]:
    """Yield 1, 3, 5 and 15 times powers of two of nodes, up to *most* accelerators, largest first.

    They are the same for every limit, so that a larger one looks at all that a smaller one looks at.

    >>> list(rungs(8, 100))
    [96, 80, 64, 48, 40, 32, 24, 16, 8]
    """
    nodes = most // node
    powers = [1 << place for place in range(nodes.bit_length())]
    for each in sorted({odd * power for odd in (1, 3, 5, 15) for power in powers}, reverse=True):
        if each <= nodes:
            yield node * each


def around(node: int, npus: int, most: int) -> list[int]:
    """Return numbers from half of *npus* to its double, up to *most*, whose nodes divide well, largest first.

    Nodes without prime factors above 5, or of at most four binary digits and zeros.

    >>> around(8, 8 * 20, 8 * 32)
    [256, 240, 224, 216, 208, 192, 176, 160, 144, 128, 120, 112, 104, 96, 88, 80]
    """
    low, high = -(-npus // (2 * node)), min(most, 2 * npus) // node
    smooth = smooth_numbers(max(1, high))
    found = set(smooth[bisect_right(smooth, low - 1) :])
    for digits in range(1, SIXTEENTHS):
        power = 1
        while digits * power <= high:
            if digits * power >= low:
                found.add(digits * power)
            power *= 2
    return [node * each for each in sorted(found, reverse=True)]


def largest_within(node: int, fits: Callable[[int], bool], most: int | None = None) -> int:
    """Return the largest number of accelerators in whole nodes of *node* that *fits*; 0 if one node is too many.

    >>> largest_within(8, lambda npus: npus <= 117)
    112
    """
    nodes = range(1, min(MOST, most or MOST) // node + 1)
    return node * bisect_right(nodes, False, key=lambda each: not fits(each * node))


def finer_counts(node: int, largest: int, batch: int) -> Iterator[int]:
    """Yield every number of whole nodes up to *largest*, downwards, whose replicas can share a batch near *batch*.

    >>> list(finer_counts(8, 112, 512))[:4], next(finer_counts(8, 8 * 557, 2048))
    ([112, 104, 96, 88], 4448)
    """
    for npus in range(largest, 0, -node):
        if batch_near(batch, npus) % _odd(npus) == 0:
            yield npus
