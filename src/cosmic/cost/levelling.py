"""How long a collective takes when its chunks visit the network's dimensions in orders of their own.

The first chunk goes from the inside out, as all chunks do without levelling. Each of the others may take any order, so
that all dimensions end together. What a reduce-scatter of S bytes sends into a set A of dimensions is least when every
chunk visits them last; the dimensions of A can share it out in proportion to their speed, and no order does better:

    T = max over A of (sum over A of (t_d + (C - 1) a_d) b_d  +  (C - 1) / C * S * (p_A - 1) / P) / sum over A of b_d
      + the first chunk's way through all dimensions but the slowest

    t_d  seconds of the first chunk in dimension d    a_d  seconds of any chunk there, whatever its size
    b_d  bytes that leave an NPU in a second          p_A  product of the members over A, P over all dimensions

Themis (`cosmic.cost.themis`) comes near to it one chunk at a time: it sends each to the dimension that has carried
least. As with any list of tasks (Graham, 1969), its way may end later if a dimension is faster. T does not: the orders
that it is the least of depend on no bandwidth.

The orders of C - 1 chunks are taken to be as fine as needed. Against the event engine, which plays Themis chunk by
chunk, T is within 2 to 10 % on average, for 2 to 32 chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod

from cosmic.numeric import Numeric, larger, smaller, sum_of

FEW = 2
"""Dimensions of the smaller sets that count; of the larger ones all dimensions, or all but one. Up to four dimensions
these are all sets; beyond, T may be a little less than any order gives."""
NOTHING = 1e-30
"""Stands for a speed of 0: dimensions of one member."""


@dataclass(frozen=True, slots=True)
class Lane:
    """What one dimension takes for its part of a collective: numbers, or arrays over a batch."""

    members: Numeric
    rate: Numeric
    """Bytes that an NPU sends into it in a second, as in a ring; 0 where it has one member."""
    first_s: Numeric
    """Seconds of the first chunk, from the inside out."""
    per_chunk_s: Numeric
    """Seconds of any chunk, whatever its size."""


def levelled_seconds(lanes: Sequence[Lane], size_bytes: Numeric, chunks: Numeric) -> Numeric:
    """Return T: the most loaded set of dimensions, and the first chunk's way through the others.

    Two dimensions of 4, of 200 and 100 bytes/s, 256 bytes in 4 chunks: together they send 240 bytes at 300 bytes/s, and
    the first chunk takes 0.12 seconds more in the outer one.

    >>> lanes = Lane(4, 200, 0.24, 0), Lane(4, 100, 0.12, 0)
    >>> float(round(levelled_seconds(lanes, 256, 4), 9))
    0.92
    """
    return level_s(lanes, size_bytes, chunks) + others(lanes)


def level_s(lanes: Sequence[Lane], size_bytes: Numeric, chunks: Numeric) -> Numeric:
    """Return the seconds that the most loaded set of dimensions is busy."""
    fixed = [(each.first_s + (chunks - 1) * each.per_chunk_s) * each.rate for each in lanes]
    spread = size_bytes * (chunks - 1) / chunks / prod(each.members for each in lanes)
    most: Numeric = 0.0
    for chosen in sets(len(lanes)):
        members = prod(lanes[place].members for place in chosen)
        work = sum_of(fixed[place] for place in chosen) + spread * (members - 1)
        most = larger(most, work / larger(sum_of(lanes[place].rate for place in chosen), NOTHING))
    return most


def others(lanes: Sequence[Lane]) -> Numeric:
    """Return the seconds of the first chunk in all dimensions but the one where it takes longest."""
    longest: Numeric = 0.0
    rest: Numeric = 0.0
    for each in lanes:
        rest = rest + smaller(longest, each.first_s)
        longest = larger(longest, each.first_s)
    return rest


def sets(count: int) -> Iterator[tuple[int, ...]]:
    """Yield the sets of so many dimensions that count.

    >>> [len(list(sets(count))) for count in (1, 2, 3, 4, 5)]
    [1, 3, 7, 15, 21]
    """
    for size in range(1, count + 1):
        if size <= FEW or size >= count - 1:
            yield from combinations(range(count), size)


def levelled_shares(lanes: Sequence[Lane], size_bytes: float, chunks: float) -> list[float]:
    """Return the share of a payload that enters each dimension, so that none is busy longer than the level; numbers.

    Of all ways to do so, the one that sends as much as it can through the inner dimensions. What the C - 1 chunks send
    into a set of dimensions is at most what they do if they visit it first: r (B) = (C - 1) / C * (1 - 1 / p_B). With
    room c_d in each dimension, the first dimensions together carry the least of r (B) and what there is room for beside
    B, over all their subsets B.

    >>> [round(each, 6) for each in levelled_shares((Lane(2, 10, 0.1, 0), Lane(2, 10, 0.05, 0)), 4, 2)]
    [0.75, 0.75]
    """
    level, count = float(level_s(lanes, size_bytes, chunks)), len(lanes)
    first = [float((each.first_s - each.per_chunk_s) * each.rate) / size_bytes for each in lanes]
    room = [
        max(0.0, float((level - chunks * each.per_chunk_s) * each.rate) / size_bytes - own)
        for each, own in zip(lanes, first, strict=True)
    ]

    def carried(inner: int) -> float:
        found = []
        for size in range(inner + 1):
            for chosen in combinations(range(inner), size):
                ranked = (chunks - 1) / chunks * (1 - 1 / prod(float(lanes[place].members) for place in chosen))
                found.append(ranked + sum(room[place] for place in range(inner) if place not in chosen))
        return min(found)

    sums = [carried(inner) for inner in range(count + 1)]
    sent = [own + after - before for own, before, after in zip(first, sums[:-1], sums[1:], strict=True)]
    return [each / (1 - 1 / float(lane.members)) for each, lane in zip(sent, lanes, strict=True)]
