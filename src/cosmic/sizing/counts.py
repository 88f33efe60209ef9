"""How many accelerators to try: whole nodes, in numbers that parallelism can divide."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import cache

FACTORS = (2, 3, 5)
MOST = 2_000_000
"""Accelerators of the largest cluster that is tried."""
MOST_ODD = 135
"""Largest odd factor of a number of accelerators: a batch of several hundred sequences has a multiple of it nearby."""
SHARES = (0.75, 0.5, 0.25)
"""Of the largest number that fits, smaller ones to try as well: a cluster too large for its batch waits."""
LARGEST = 3
"""So many of the largest numbers that fit are tried."""
REFINED = 8
"""Numbers that are tried between the best and its neighbours."""
Loss = tuple[float, ...]


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


@cache
def multiples_of(node: int, most: int = MOST) -> tuple[int, ...]:
    """Return how many nodes of *node* to try: `smooth_numbers`, up to *most* accelerators of no large odd factor.

    >>> multiples_of(72, 1000)  # 9 accelerators and 1, 3, 5, 9 times so many are in some axis
    (1, 2, 3, 4, 5, 6, 8, 9, 10, 12)
    >>> 243 in multiples_of(8), 81 in multiples_of(8), 27 in multiples_of(72)
    (False, True, False)
    """
    return tuple(each for each in smooth_numbers(max(1, most // node)) if odd_part(each * node) <= max(MOST_ODD, node))


def odd_part(number: int) -> int:
    """Return a number without its factors of two.

    >>> odd_part(72), odd_part(1024)
    (9, 1)
    """
    return number // (number & -number)


def counts_within(node: int, fits: Callable[[int], bool], most: int | None = None) -> list[int]:
    """Return numbers of accelerators to try, in nodes of *node*, largest first; none if one node is too many.

    *fits* says whether so many are within the limits: if a number is, smaller ones are.

    >>> counts_within(8, lambda npus: npus <= 100)
    [96, 80, 72, 48, 24]
    """
    multiples = multiples_of(node, min(MOST, most or MOST))
    if most is not None and most < node:
        return []
    known = bisect_right(multiples, False, key=lambda each: not fits(each * node))
    if not known:
        return []
    largest = multiples[known - 1]
    chosen = {multiples[place] for place in range(max(0, known - LARGEST), known)}
    chosen |= {multiples[bisect_right(multiples, share * largest) - 1] for share in SHARES if share * largest >= 1}
    return [each * node for each in sorted(chosen, reverse=True)]


def searched(counts: Iterable[int], node: int, loss_of: Callable[[int], Loss | None]) -> dict[int, Loss | None]:
    """Return the loss of all numbers that were tried: *counts*, smaller ones while these are better, and between.

    *loss_of* a number is None where no mapping runs on it. The smallest is halved until two in a row run and are worse
    than the best; then gaps beside the best are halved. Finds the least loss where that falls up to a number and rises
    from it, whatever numbers between have no mapping.

    A run of 100,000 accelerator-days that must end within 100: 1,000 are the least that do, in nodes of 8. Numbers with
    factors of 2, 3 and 5 alone are tried; 1,024 is the first of them.

    >>> late = lambda npus: (max(0.0, 100_000 / npus - 100), npus)
    >>> found = searched(counts_within(8, lambda npus: npus <= 40_000), 8, late)
    >>> min(found, key=found.__getitem__), len(found)
    (1024, 17)
    """
    found = {npus: loss_of(npus) for npus in counts}
    multiples = multiples_of(node)
    while (smallest := min(found)) > node and not _is_past(found):
        half = node * multiples[bisect_right(multiples, smallest / node / 2) - 1]
        found[half] = loss_of(half)
    for _ in range(REFINED):
        between = _middles(found, node, multiples)
        if not between:
            break
        found[between[0]] = loss_of(between[0])
    return found


def _is_past(found: dict[int, Loss | None]) -> bool:
    """Return whether the two smallest numbers run, and are worse than the best."""
    two = sorted(found)[:2]
    return len(two) > 1 and _best(found) not in two and all(found[npus] is not None for npus in two)


def _best(found: dict[int, Loss | None]) -> int | None:
    """Return the number with the least loss, if anything runs."""
    runs = {npus: loss for npus, loss in found.items() if loss is not None}
    return min(runs, key=runs.__getitem__) if runs else None


def _middles(found: dict[int, Loss | None], node: int, multiples: tuple[int, ...]) -> list[int]:
    """Return numbers in the middle of the gaps below and above the best, the wider gap's first."""
    best, tried = _best(found), sorted(found)
    if best is None:
        return []
    place = tried.index(best)
    gaps = []
    for low, high in ((place - 1, place), (place, place + 1)):
        if low < 0 or high >= len(tried):
            continue
        first, last = (bisect_right(multiples, tried[each] // node) - 1 for each in (low, high))
        if last - first > 1:
            gaps.append((last - first, node * multiples[(first + last) // 2]))
    return [middle for _, middle in sorted(gaps, reverse=True)]


def batch_near(wanted: int, npus: int) -> int:
    """Return a global batch near the *wanted* one that replicas on *npus* accelerators can share.

    Odd factors of the number of accelerators are in some axis; a batch that has them too lets that be dp.

    >>> batch_near(2048, 16384), batch_near(2048, 12288), batch_near(2048, 15360)
    (2048, 2304, 1920)
    """
    odd = odd_part(npus)
    if wanted % odd == 0:
        return wanted
    best = wanted
    for power in range(10, -1, -1):
        step = odd * 2**power
        near = max(1, round(wanted / step)) * step
        if abs(near - wanted) <= wanted / 8:
            best = near
            break
    return best


def next_count(npus: int, node: int) -> int:
    """Return the next larger number of accelerators that is tried, in nodes of *node*.

    >>> next_count(96, 8)
    120
    """
    multiples = multiples_of(node)
    return node * multiples[min(len(multiples), multiples.index(npus // node) + 2) - 1]
