"""Repeated blocks in a sequence of node classes: layers in microbatches in steps, as a tree of tandem repeats.

The outermost repeat that covers most is taken first, then what a copy of its block and what is left around it hold.
Copies of a block are equal in their classes, so that one of them is parsed for all.

    a  L L L L  b  L L L L  c   ──▶   a (L)⁴ b (L)⁴ c
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cosmic.traces.trace import Ints

CANDIDATES = 24
"""Periods that are tried of each kind."""
OCCURRENCES = 48
"""Occurrences of a rare class whose distances are looked at."""
RARE = 4
DEEPEST = 12
"""Levels of nesting."""
LEAST_NODES = 4
"""Nodes of a repeat that is worth a rule."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """Copies of a block, one right after the other."""

    start: int
    """First row of the first copy, in the first copy of every block around it."""
    width: int
    """Rows of a copy, those of repeats inside it included."""
    count: int
    inside: tuple[Repeat, ...] = ()
    index: int = 0
    """Its place among all repeats of the tree, each before those inside it."""


def parse(classes: Ints) -> tuple[Repeat, ...]:
    """Return the repeats of a sequence of *classes*, from left to right.

    >>> [top] = parse(np.array([1, 2, 2, 3, 1, 2, 2, 3]))
    >>> top.start, top.width, top.count
    (0, 4, 2)
    """
    return _numbered(_parse(np.asarray(classes), 0, {}), iter(range(len(classes))))


def _numbered(repeats: tuple[Repeat, ...], numbers: Iterator[int]) -> tuple[Repeat, ...]:
    """Return the tree with an index for each repeat."""
    found = []
    for each in repeats:
        index = next(numbers)
        found.append(replace(each, index=index, inside=_numbered(each.inside, numbers)))
    return tuple(found)


def walk(repeats: Sequence[Repeat], around: int = 1) -> Iterator[tuple[Repeat, int]]:
    """Yield every repeat, outer ones first, and the number of times that it occurs."""
    for each in repeats:
        yield each, around
        yield from walk(each.inside, around * each.count)


def _parse(classes: Ints, level: int, known: dict[bytes, tuple[Repeat, ...]]) -> tuple[Repeat, ...]:
    """Return the repeats of *classes*; *known* keeps what was parsed before."""
    if len(classes) < LEAST_NODES or level >= DEEPEST:
        return ()
    key = classes.tobytes()
    if key not in known:
        known[key] = tuple(_split(classes, level, known))
    return known[key]


def _split(classes: Ints, level: int, known: dict[bytes, tuple[Repeat, ...]]) -> Iterator[Repeat]:
    """Yield the repeats of the period that covers most, and those of what is left between them."""
    runs = _best_runs(classes)
    at = 0
    for start, width, count in runs:
        yield from _moved(_parse(classes[at:start], level + 1, known), at)
        inside = _moved(_parse(classes[start : start + width], level + 1, known), start)
        yield Repeat(start, width, count, tuple(inside))
        at = start + width * count
    if runs:
        yield from _moved(_parse(classes[at:], level + 1, known), at)


def _moved(repeats: Sequence[Repeat], by: int) -> Iterator[Repeat]:
    for each in repeats:
        yield replace(each, start=each.start + by, inside=tuple(_moved(each.inside, by)))


def _best_runs(classes: Ints) -> list[tuple[int, int, int]]:
    """Return start, width and number of copies of the repeats of the period that covers most."""
    periods = _periods(classes)
    found = [_runs(classes, period) for period in periods]
    covered = [sum(width * count for _, width, count in runs) for runs in found]
    for place in sorted(range(len(periods)), key=lambda place: -covered[place]):
        if covered[place] < LEAST_NODES:
            break
        shorter = periods[:place]
        if runs := [run for run in found[place] if not any(_has_period(classes, run, each) for each in shorter)]:
            return runs
    return []


def _has_period(classes: Ints, run: tuple[int, int, int], period: int) -> bool:
    """Return whether a run repeats with a shorter *period* too: its copies are not the blocks."""
    start, width, count = run
    stop = start + width * count
    if classes[start] != classes[start + period]:
        return False
    return np.array_equal(classes[start + period : stop], classes[start : stop - period])


def _periods(classes: Ints) -> list[int]:
    """Return distances at which classes recur, shortest first: the most frequent, and those of the rarest classes."""
    order = np.argsort(classes, kind="stable")
    sorted_classes = classes[order]
    same = sorted_classes[1:] == sorted_classes[:-1]
    found = _most_frequent(np.diff(order)[same])
    first = np.flatnonzero(np.concatenate([[True], ~same]))
    counts = np.diff(np.append(first, len(classes)))
    twice = np.flatnonzero(counts > 1)
    for which in twice[np.argsort(counts[twice], kind="stable")][:RARE].tolist():
        # A class that occurs several times in a block shows the period between occurrences further apart.
        at = order[first[which] : first[which] + min(int(counts[which]), OCCURRENCES)]
        apart = at[None, :] - at[:, None]
        found |= _most_frequent(apart[apart > 0])
    return sorted(each for each in found if 2 * each <= len(classes))


def _most_frequent(distances: Ints) -> set[int]:
    values, counts = np.unique(distances, return_counts=True)
    return set(values[np.argsort(-counts, kind="stable")][:CANDIDATES].tolist())


def _runs(classes: Ints, period: int) -> list[tuple[int, int, int]]:
    """Return start, width and number of copies of each stretch that repeats with *period*.

    >>> _runs(np.array([9, 1, 2, 1, 2, 1, 8]), 2)
    [(1, 2, 2)]
    """
    same = np.concatenate([[False], classes[period:] == classes[:-period], [False]])
    edges = np.flatnonzero(same[1:] != same[:-1])
    starts, lengths = edges[::2], np.diff(edges)[::2]
    long = lengths >= period
    runs, free = [], 0
    for start, length in zip(starts[long].tolist(), lengths[long].tolist(), strict=True):
        begin = max(start, free)  # two runs of one period may overlap by less than a copy
        count = (start + length + period - begin) // period
        if count > 1:
            runs.append((begin, period, count))
            free = begin + count * period
    return runs
