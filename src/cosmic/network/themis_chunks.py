"""Themis: the order in which each chunk visits the dimensions, and the closed form of how long all chunks take.

In the usual order the first dimension carries nearly all bytes and the last hardly any. Themis sends each chunk, while
it is still large, first through the dimension that has carried least so far, so that all dimensions end together.

Source: Rashidi et al., "Themis: a network bandwidth-aware collective scheduling policy", ISCA 2022, as in
ASTRA-sim (`OfflineGreedy`), with its integer divisions and its order among equals. The event engine plays these orders;
the closed form has the seconds of the best orders that there are (`cosmic.network.themis_chunks`).

How long a collective takes when its chunks visit the network's dimensions in orders of their own.

The first chunk goes from the inside out, as all chunks do without levelling. Each of the others may take any order, so
that all dimensions end together. What a reduce-scatter of S bytes sends into a set A of dimensions is least when every
chunk visits them last; the dimensions of A can share it out in proportion to their speed, and no order does better:

    T = max over A of (sum over A of (t_d + (C - 1) a_d) b_d  +  (C - 1) / C * S * (p_A - 1) / P) / sum over A of b_d
      + the first chunk's way through all dimensions but the slowest

    t_d  seconds of the first chunk in dimension d    a_d  seconds of any chunk there, whatever its size
    b_d  bytes that leave an NPU in a second          p_A  product of the members over A, P over all dimensions

Themis (`cosmic.network.themis_chunks`) comes near to it one chunk at a time: it sends each to the dimension that has
carried least. As with any list of tasks (Graham, 1969), its way may end later if a dimension is faster. T does not:
the orders that it is the least of depend on no bandwidth.

The orders of C - 1 chunks are taken to be as fine as needed. Against the event engine, which plays Themis chunk by
chunk, T is off by 2 to 11 % on average for 2 to 32 chunks, and by 5 to 18 % for all-gathers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import Literal

from cosmic.base.errors import require
from cosmic.base.numeric import Numeric, larger, smaller, sum_of

# ---- How long a collective takes when its chunks visit the network's dimensions in orders of their own

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
    """Return T: the time of the most loaded set of dimensions, plus the first chunk's time in the others.

    Two dimensions of 4, of 200 and 100 bytes/s, 256 bytes in 4 chunks: together they send 240 bytes at 300 bytes/s, and
    the first chunk takes 0.12 seconds more in the outer one.

    >>> lanes = Lane(4, 200, 0.24, 0), Lane(4, 100, 0.12, 0)
    >>> float(round(levelled_seconds(lanes, 256, 4), 9))
    0.92
    """
    return level_s(lanes, size_bytes, chunks) + other_lanes_s(lanes)


def level_s(lanes: Sequence[Lane], size_bytes: Numeric, chunks: Numeric) -> Numeric:
    """Return the seconds that the most loaded set of dimensions is busy."""
    # Latencies as bytes at the rate of their dimension: a level is one time for all dimensions of a set.
    fixed = [(lane.first_s + (chunks - 1) * lane.per_chunk_s) * lane.rate for lane in lanes]
    spread = size_bytes * (chunks - 1) / chunks / prod(lane.members for lane in lanes)
    longest: Numeric = 0.0
    for chosen in lane_sets(len(lanes)):
        members = prod(lanes[index].members for index in chosen)
        work = sum_of(fixed[index] for index in chosen) + spread * (members - 1)
        longest = larger(longest, work / larger(sum_of(lanes[index].rate for index in chosen), NOTHING))
    return longest


def other_lanes_s(lanes: Sequence[Lane]) -> Numeric:
    """Return the seconds of the first chunk in all dimensions but the one where it takes longest."""
    longest: Numeric = 0.0
    rest: Numeric = 0.0
    for lane in lanes:
        rest = rest + smaller(longest, lane.first_s)
        longest = larger(longest, lane.first_s)
    return rest


def lane_sets(count: int) -> Iterator[tuple[int, ...]]:
    """Yield the sets of dimensions that can be the most loaded.

    >>> [len(list(lane_sets(count))) for count in (1, 2, 3, 4, 5)]
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
    first = [float((lane.first_s - lane.per_chunk_s) * lane.rate) / size_bytes for lane in lanes]
    room = [
        max(0.0, float((level - chunks * lane.per_chunk_s) * lane.rate) / size_bytes - own)
        for lane, own in zip(lanes, first, strict=True)
    ]

    def carried(inner: int) -> float:
        candidates = []
        for size in range(inner + 1):
            for chosen in combinations(range(inner), size):
                ranked = (
                    (chunks - 1) / chunks * (1 - 1 / prod(float(lanes[lane_index].members) for lane_index in chosen))
                )
                candidates.append(ranked + sum(room[index] for index in range(inner) if index not in chosen))
        return min(candidates)

    sums = [carried(inner) for inner in range(count + 1)]
    sent = [own + after - before for own, before, after in zip(first, sums[:-1], sums[1:], strict=True)]
    return [share / (1 - 1 / float(lane.members)) for share, lane in zip(sent, lanes, strict=True)]


# ---- Themis: every chunk of a collective visits the network's dimensions in its own order

MIB = 2**20
EVEN_ENOUGH = 16
"""A chunk takes the default order if less than 1 / 16 of it would level the loads."""

ThemisKind = Literal["all_reduce", "reduce_scatter", "all_gather"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """The order of dimensions of one chunk, and the load of each dimension after it."""

    order: tuple[int, ...]
    size_bytes: int
    """Rounded down where a flexible chunk is gathered."""
    loads: tuple[float, ...]
    """For each dimension, in MiB at the speed of dimension 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThemisInput:
    """The collective to schedule: over dimensions of *npus* members, in *splits* chunks."""

    npus: tuple[int, ...]
    bandwidths: tuple[float, ...]
    """Of one NPU into each dimension; only their ratios matter."""
    size_bytes: int
    """The whole buffer of one NPU, or its shard if the collective is an all-gather."""
    splits: int
    flexible: bool = False
    """Choose chunks just large enough to level the loads (`offlineGreedyFlex`)."""
    as_in_astra_sim: bool = False
    """Count the loads of an all-gather as ASTRA-sim does, which confuses dimensions; otherwise an all-gather is the
    mirror image of a reduce-scatter."""

    def __post_init__(self) -> None:
        require(len(self.npus) == len(self.bandwidths) > 0, "bandwidths", self.bandwidths, "one for each dimension")
        require(max(self.npus) > 1, "npus", self.npus, "some dimension must join at least 2 NPUs")
        require(self.size_bytes >= self.splits >= 1, "splits", self.splits, "chunks must have at least one byte")

    def speed(self, dimension: int) -> float:
        """Return the bandwidth of *dimension*, that of dimension 0 being 1."""
        return self.bandwidths[dimension] / self.bandwidths[0]


def themis_chunks(kind: ThemisKind, inputs: ThemisInput) -> tuple[Chunk, ...]:
    """Return the order of each chunk and the loads after it; an all-reduce gathers in the reverse order.

    The reduce-scatter of a chunk of s bytes adds s (p - 1) / p / b to the load of a dimension and leaves s / p:

    p  members in the dimension    b  its bandwidth, relative to dimension 0

    Dimensions are sorted by load; equals keep their order. If less than 1/16 of a chunk would lift the least loaded
    dimension to the load of the most loaded, the chunk takes the default order. A flexible chunk has the size that
    levels the two, or the default order and size if that is smaller. As in the source, the last chunk counts in full
    even if fewer bytes are left.

    >>> tiny = ThemisInput(npus=(4, 4), bandwidths=(200, 100), size_bytes=256 * MIB, splits=4)
    >>> [(chunk.order, chunk.loads) for chunk in themis_chunks("all_reduce", tiny)]  # doctest: +NORMALIZE_WHITESPACE
    [((0, 1), (48.0, 24.0)), ((1, 0), (60.0, 120.0)), ((0, 1), (108.0, 144.0)), ((0, 1), (156.0, 168.0))]
    """
    if kind == "all_gather" and not inputs.as_in_astra_sim:
        return _mirror_reduce_scatter(inputs)
    gathers = kind == "all_gather"
    recommended, remaining = inputs.size_bytes // inputs.splits, inputs.size_bytes
    ranking, loads = list(range(len(inputs.npus))), [0.0] * len(inputs.npus)
    chunks: list[Chunk] = []
    while remaining:
        ranking.sort(key=loads.__getitem__)
        # An all-gather grows on its way: what comes last carries most, so that the least loaded dimension is last.
        if gathers:
            ranking.reverse()
        levelling = _levelling_bytes(inputs, ranking, loads, gathers=gathers)
        uneven = levelling >= (recommended if inputs.flexible else recommended // EVEN_ENOUGH)
        size = levelling if inputs.flexible and uneven else recommended
        if inputs.flexible and not uneven:
            size = min(remaining, size)
        if not uneven:
            ranking = sorted(ranking, reverse=gathers)
        order = ranking if uneven else sorted(ranking)
        _add_chunk(inputs, loads, zip(order, ranking, strict=True), size, gathers=gathers)
        chunks.append(Chunk(tuple(order), min(remaining, size), tuple(loads)))
        remaining -= min(remaining, size)
    return tuple(chunks)


def themis_orders(kind: ThemisKind, inputs: ThemisInput) -> tuple[tuple[int, ...], ...]:
    """Return the order of dimensions of each chunk.

    >>> wide = ThemisInput(npus=(16, 64), bandwidths=(200, 100), size_bytes=1024 * MIB, splits=8)
    >>> " ".join(f"{first}{second}" for first, second in themis_orders("reduce_scatter", wide))
    '01 10 01 01 10 01 01 10'
    """
    return tuple(chunk.order for chunk in themis_chunks(kind, inputs))


def themis_loads(kind: ThemisKind, inputs: ThemisInput) -> tuple[float, ...]:
    """Return the final load of each dimension, in MiB at the speed of dimension 0; the largest is the bottleneck.

    An all-reduce has it twice: once to scatter, once to gather.

    >>> themis_loads("reduce_scatter", ThemisInput(npus=(16, 64), bandwidths=(200, 100), size_bytes=1024 * MIB, splits=8))
    (605.625, 834.75)
    """
    return themis_chunks(kind, inputs)[-1].loads


def _levelling_bytes(inputs: ThemisInput, ranking: Sequence[int], loads: Sequence[float], *, gathers: bool) -> int:
    """Return the size of a chunk that lifts the least loaded dimension to the load of the most loaded."""
    joined = [dimension for dimension in ranking if inputs.npus[dimension] > 1]
    if not gathers:
        least = joined[0]
        gap = loads[ranking[-1]] - loads[least]
        return int(gap * inputs.speed(least) / ((inputs.npus[least] - 1) / inputs.npus[least]) * MIB)
    *before, least = joined  # a gathering chunk is largest where it ends
    gap = abs(loads[least] - loads[joined[0]])
    size = int(gap * inputs.speed(least) / (inputs.npus[least] - 1) * MIB)
    for dimension in before:
        size //= inputs.npus[dimension]
    return size


def _add_chunk(
    inputs: ThemisInput, loads: list[float], visits: Iterable[tuple[int, int]], size: int, *, gathers: bool
) -> None:
    """Add a chunk of *size* bytes to *loads*; a visit is a dimension and the one whose load it adds to."""
    for dimension, loaded in visits:
        p = inputs.npus[dimension]
        share = p - 1 if gathers else (p - 1) / p
        loads[loaded] += size / MIB * share / inputs.speed(dimension)
        size = size * p if gathers else size // p


def _mirror_reduce_scatter(inputs: ThemisInput) -> tuple[Chunk, ...]:
    """Return an all-gather: the reduce-scatter of its result, in reverse."""
    npus = prod(inputs.npus)
    gathered = ThemisInput(
        npus=inputs.npus,
        bandwidths=inputs.bandwidths,
        size_bytes=inputs.size_bytes * npus,
        splits=inputs.splits,
        flexible=inputs.flexible,
    )
    scattered = themis_chunks("reduce_scatter", gathered)
    return tuple(Chunk(chunk.order[::-1], chunk.size_bytes // npus, chunk.loads) for chunk in scattered)
