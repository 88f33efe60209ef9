"""Clocks of ranks: by how much each is ahead, found from collectives, which end together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from statistics import median
from typing import Protocol

from cosmic.profiles.collectives import Communication
from cosmic.profiles.completing import Same
from cosmic.profiles.kineto import Kineto
from cosmic.profiles.linking import Linked
from cosmic.traces.trace import CollectiveType

MOST_NS = 10**12
"""Clocks further apart than this (17 minutes) are not of one run."""
TOGETHER = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_GATHER,
    CollectiveType.ALL_TO_ALL,
    CollectiveType.REDUCE_SCATTER,
)
"""Collectives that nobody can leave before all have entered."""
Spans = list[tuple[int, int, int]]
"""The members of a collective: their ranks, and when they entered and left."""
Span = tuple[int, int]
Pairs = dict[tuple[int, int], list[tuple[Span, Span]]]
"""By two ranks, when both entered and left each collective that they share."""


class Recorded(Protocol):
    """What is needed of a rank."""

    kineto: Kineto
    linked: Linked
    communications: list[Communication]


def clock_offsets(ranks: Sequence[Recorded], same: Same) -> list[int]:
    """Return what to add to each rank's times, so that all count from one moment on and the first begins at 0.

    Where ranks ran on one host their clocks agree, and are kept. They disagree where a rank seems to leave a collective
    before another enters it; then the ends of the collectives that the two share are laid together. *same* says which
    collectives are.
    """
    first = [int(rank.linked.start.min()) if len(rank.linked.start) else 0 for rank in ranks]
    clocks = [rank.kineto.base_ns - ranks[0].kineto.base_ns for rank in ranks]
    if max(clocks) - min(clocks) > MOST_NS:
        clocks = [first[0] - begin for begin in first]
    shared = _shared(ranks, same)
    offsets = clocks
    if not _agree(shared, offsets):
        pairs = _pairs(shared)
        shifts = {two: _shift(spans) for two, spans in pairs.items()}
        kept = {(one, two) for (one, two), spans in pairs.items() if _overlap(spans, clocks[two] - clocks[one])}
        offsets = _spread(clocks, shifts, kept)
        if not _agree(shared, offsets):
            offsets = _spread(clocks, shifts, set())
    least = min(begin + offset for begin, offset in zip(first, offsets, strict=True))
    return [offset - least for offset in offsets]


def _shared(ranks: Sequence[Recorded], same: Same) -> list[Spans]:
    """Return the collectives that several ranks recorded and that nobody leaves early."""
    found: dict[tuple[object, ...], Spans] = {}
    for (rank, at), number in same.items():
        call = ranks[rank].communications[at]
        if call.kind in TOGETHER and not call.is_exchange:
            found.setdefault((*number, call.kind), []).append((rank, call.start, call.end))
    return [each for each in found.values() if len(each) > 1]


def _pairs(shared: Sequence[Spans]) -> Pairs:
    """Return what two ranks share: each of a group with the first of it, and with the next."""
    found: Pairs = {}
    for spans in shared:
        listed = sorted(spans)
        for one, two in {*pairwise(listed), *((listed[0], each) for each in listed[1:])}:
            found.setdefault((one[0], two[0]), []).append((one[1:], two[1:]))
    return found


def _agree(shared: Sequence[Spans], offsets: Sequence[int]) -> bool:
    """Return whether no rank leaves a collective before another enters it."""
    return all(
        max(start + offsets[rank] for rank, start, _ in spans) <= min(end + offsets[rank] for rank, _, end in spans)
        for spans in shared
    )


def _overlap(spans: Sequence[tuple[Span, Span]], apart: int) -> bool:
    """Return whether this holds for two ranks if *apart* is added to the times of the second.

    >>> _overlap([((0, 10), (4, 6))], 6), _overlap([((0, 10), (4, 6))], 7)
    (True, False)
    """
    return all(max(one[0], two[0] + apart) <= min(one[1], two[1] + apart) for one, two in spans)


def _shift(spans: Sequence[tuple[Span, Span]]) -> int:
    """Return what to add to the times of the second rank so that collectives end together.

    >>> _shift([((0, 10), (0, 4)), ((20, 30), (0, 23)), ((40, 50), (41, 45))])
    6
    """
    return round(median(one[1] - two[1] for one, two in spans))


def _spread(clocks: Sequence[int], shifts: Mapping[tuple[int, int], int], kept: set[tuple[int, int]]) -> list[int]:
    """Return offsets along the collectives that ranks share, from rank 0 on; the clocks of pairs in *kept* stay.

    >>> _spread([0, 7, 100, 0], {(0, 1): 2, (1, 2): 30}, {(0, 1)})
    [0, 7, 37, 0]
    """
    near: list[list[tuple[int, int, bool]]] = [[] for _ in clocks]
    for (one, two), shift in shifts.items():
        stays = (one, two) in kept
        apart = clocks[two] - clocks[one] if stays else shift
        near[one].append((two, apart, stays))
        near[two].append((one, -apart, stays))
    found: dict[int, int] = {}
    for root, clock in enumerate(clocks):
        waiting = [(False, root, clock)]
        while waiting:  # pairs whose clocks stay come first
            _, rank, offset = heappop(waiting)
            if rank not in found:
                found[rank] = offset
                for other, apart, stays in near[rank]:
                    heappush(waiting, (not stays, other, offset + apart))
    return [found[rank] for rank in range(len(clocks))]
