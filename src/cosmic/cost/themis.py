"""Themis: every chunk of a collective visits the network's dimensions in its own order.

In the usual order the first dimension carries nearly all bytes and the last hardly any. Themis sends each chunk, while
it is still large, first through the dimension that has carried least so far, so that all dimensions end together.

Source: Rashidi et al., "Themis: a network bandwidth-aware collective scheduling policy", ISCA 2022, as in
ASTRA-sim (`OfflineGreedy`), with its integer divisions and its order among equals. The event engine plays these orders;
the closed form has the seconds of the best orders that there are (`cosmic.cost.levelling`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from cosmic.errors import require

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


def chunks(kind: ThemisKind, inputs: ThemisInput) -> tuple[Chunk, ...]:
    """Return the order of each chunk and the loads after it; an all-reduce gathers in the reverse order.

    The reduce-scatter of a chunk of s bytes adds s (p - 1) / p / b to the load of a dimension and leaves s / p:

    p  members in the dimension    b  its bandwidth, relative to dimension 0

    Dimensions are sorted by load; equals keep their order. If less than 1/16 of a chunk would lift the least loaded
    dimension to the load of the most loaded, the chunk takes the default order. A flexible chunk has the size that
    levels the two, or the default order and size if that is smaller. As in the source, the last chunk counts in full
    even if fewer bytes are left.

    >>> tiny = ThemisInput(npus=(4, 4), bandwidths=(200, 100), size_bytes=256 * MIB, splits=4)
    >>> [(chunk.order, chunk.loads) for chunk in chunks("all_reduce", tiny)]  # doctest: +NORMALIZE_WHITESPACE
    [((0, 1), (48.0, 24.0)), ((1, 0), (60.0, 120.0)), ((0, 1), (108.0, 144.0)), ((0, 1), (156.0, 168.0))]
    """
    if kind == "all_gather" and not inputs.as_in_astra_sim:
        return _mirrored(inputs)
    gathers = kind == "all_gather"
    recommended, left = inputs.size_bytes // inputs.splits, inputs.size_bytes
    ranking, loads = list(range(len(inputs.npus))), [0.0] * len(inputs.npus)
    found: list[Chunk] = []
    while left:
        ranking.sort(key=loads.__getitem__)
        if gathers:
            ranking.reverse()
        levelling = _levelling_bytes(inputs, ranking, loads, gathers=gathers)
        uneven = levelling >= (recommended if inputs.flexible else recommended // EVEN_ENOUGH)
        size = levelling if inputs.flexible and uneven else recommended
        if inputs.flexible and not uneven:
            size = min(left, size)
        if not uneven:
            ranking = sorted(ranking, reverse=gathers)
        order = ranking if uneven else sorted(ranking)
        _add_chunk(inputs, loads, zip(order, ranking, strict=True), size, gathers=gathers)
        found.append(Chunk(tuple(order), min(left, size), tuple(loads)))
        left -= min(left, size)
    return tuple(found)


def orders(kind: ThemisKind, inputs: ThemisInput) -> tuple[tuple[int, ...], ...]:
    """Return the order of dimensions of each chunk.

    >>> wide = ThemisInput(npus=(16, 64), bandwidths=(200, 100), size_bytes=1024 * MIB, splits=8)
    >>> " ".join(f"{first}{second}" for first, second in orders("reduce_scatter", wide))
    '01 10 01 01 10 01 01 10'
    """
    return tuple(chunk.order for chunk in chunks(kind, inputs))


def loads(kind: ThemisKind, inputs: ThemisInput) -> tuple[float, ...]:
    """Return the final load of each dimension, in MiB at the speed of dimension 0; the largest is the bottleneck.

    An all-reduce has it twice: once to scatter, once to gather.

    >>> loads("reduce_scatter", ThemisInput(npus=(16, 64), bandwidths=(200, 100), size_bytes=1024 * MIB, splits=8))
    (605.625, 834.75)
    """
    return chunks(kind, inputs)[-1].loads


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


def _mirrored(inputs: ThemisInput) -> tuple[Chunk, ...]:
    """Return an all-gather: the reduce-scatter of its result, in reverse."""
    npus = prod(inputs.npus)
    whole = ThemisInput(
        npus=inputs.npus,
        bandwidths=inputs.bandwidths,
        size_bytes=inputs.size_bytes * npus,
        splits=inputs.splits,
        flexible=inputs.flexible,
    )
    scattered = chunks("reduce_scatter", whole)
    return tuple(Chunk(chunk.order[::-1], chunk.size_bytes // npus, chunk.loads) for chunk in scattered)
