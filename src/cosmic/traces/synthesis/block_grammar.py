"""Repeated blocks in a sequence of node classes, where their copies lie, and which get more or fewer copies.

**Grammar.** Layers in microbatches in steps are a tree of tandem repeats. The outermost repeat that covers most is
taken first, then what a copy of its block and what is left around it hold. Copies of a block are equal in their
classes, so that one of them is parsed for all.

    a  L L L L  b  L L L L  c   ──▶   a (L)⁴ b (L)⁴ c

**Layout.** A row of the source is a row of the first copies (`first`), and the numbers of the copies around it,
level by level. Both rows and positions, with other numbers of copies, are affine in these numbers.

**Plans** (`GrowthPlan`) make a job longer or shorter. Repeats with equal numbers of copies grow together: the layers
of forward and of backward passes. In a pipeline, stages have different numbers of copies of what they alternate in:
the longest repeat of each role grows by as many. Steps, all of a trace one after the other, are what is always
possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cosmic.traces.trace import Ints

# --------------------------------------------------------------------------------------
# Repeated blocks in a sequence of node classes: layers in microbatches in steps, as a tree of tandem repeats
# --------------------------------------------------------------------------------------

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
class BlockRepeat:
    """Copies of a block, one right after the other."""

    start: int
    """First row of the first copy, in the first copy of every block around it."""
    width: int
    """Rows of a copy, those of repeats inside it included."""
    count: int
    inside: tuple[BlockRepeat, ...] = ()
    index: int = 0
    """Its place among all repeats of the tree, each before those inside it."""


def parse_repeats(classes: Ints) -> tuple[BlockRepeat, ...]:
    """Return the repeats of a sequence of *classes*, from left to right.

    >>> [top] = parse_repeats(np.array([1, 2, 2, 3, 1, 2, 2, 3]))
    >>> top.start, top.width, top.count
    (0, 4, 2)
    """
    return _with_indices(_parse(np.asarray(classes), 0, {}), iter(range(len(classes))))


def _with_indices(repeats: tuple[BlockRepeat, ...], numbers: Iterator[int]) -> tuple[BlockRepeat, ...]:
    """Return the tree with an index for each repeat."""
    numbered = []
    for repeat in repeats:
        index = next(numbers)
        numbered.append(replace(repeat, index=index, inside=_with_indices(repeat.inside, numbers)))
    return tuple(numbered)


def walk_repeats(repeats: Sequence[BlockRepeat], around: int = 1) -> Iterator[tuple[BlockRepeat, int]]:
    """Yield every repeat, outer ones first, and the number of times that it occurs."""
    for repeat in repeats:
        yield repeat, around
        yield from walk_repeats(repeat.inside, around * repeat.count)


def _parse(classes: Ints, level: int, parsed: dict[bytes, tuple[BlockRepeat, ...]]) -> tuple[BlockRepeat, ...]:
    """Return the repeats of *classes*; *parsed* keeps what was parsed before."""
    if len(classes) < LEAST_NODES or level >= DEEPEST:
        return ()
    key = classes.tobytes()
    if key not in parsed:
        parsed[key] = tuple(_split(classes, level, parsed))
    return parsed[key]


def _split(classes: Ints, level: int, parsed: dict[bytes, tuple[BlockRepeat, ...]]) -> Iterator[BlockRepeat]:
    """Yield the repeats of the period that covers most, and those of what is left between them."""
    runs = _best_runs(classes)
    position = 0
    for start, width, count in runs:
        yield from _move_repeats(_parse(classes[position:start], level + 1, parsed), position)
        inside = _move_repeats(_parse(classes[start : start + width], level + 1, parsed), start)
        yield BlockRepeat(start, width, count, tuple(inside))
        position = start + width * count
    if runs:
        yield from _move_repeats(_parse(classes[position:], level + 1, parsed), position)


def _move_repeats(repeats: Sequence[BlockRepeat], by: int) -> Iterator[BlockRepeat]:
    for repeat in repeats:
        yield replace(repeat, start=repeat.start + by, inside=tuple(_move_repeats(repeat.inside, by)))


def _best_runs(classes: Ints) -> list[tuple[int, int, int]]:
    """Return start, width and number of copies of the repeats of the period that covers most."""
    # Distances at which classes recur, shortest first: the most frequent, and those of the rarest classes
    order = np.argsort(classes, kind="stable")
    sorted_classes = classes[order]
    same = sorted_classes[1:] == sorted_classes[:-1]
    distances = _most_frequent(np.diff(order)[same])
    first = np.flatnonzero(np.concatenate([[True], ~same]))
    counts = np.diff(np.append(first, len(classes)))
    twice = np.flatnonzero(counts > 1)
    for rare_class in twice[np.argsort(counts[twice], kind="stable")][:RARE].tolist():
        # A class that occurs several times in a block shows the period between occurrences further apart.
        occurrences = order[first[rare_class] : first[rare_class] + min(int(counts[rare_class]), OCCURRENCES)]
        apart = occurrences[None, :] - occurrences[:, None]
        distances |= _most_frequent(apart[apart > 0])
    periods = sorted(distance for distance in distances if 2 * distance <= len(classes))
    runs_of_periods = [_runs(classes, period) for period in periods]
    covered = [sum(width * count for _, width, count in runs) for runs in runs_of_periods]
    for index in sorted(range(len(periods)), key=lambda index: -covered[index]):
        if covered[index] < LEAST_NODES:
            break
        shorter = periods[:index]
        if runs := [
            run
            for run in runs_of_periods[index]
            if not any(_has_period(classes, run, shorter_period) for shorter_period in shorter)
        ]:
            return runs
    return []


def _has_period(classes: Ints, run: tuple[int, int, int], period: int) -> bool:
    """Return whether a run repeats with a shorter *period* too: its copies are not the blocks."""
    start, width, count = run
    stop = start + width * count
    if classes[start] != classes[start + period]:
        return False
    return np.array_equal(classes[start + period : stop], classes[start : stop - period])


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


# --------------------------------------------------------------------------------------
# Where the copies of a grammar's blocks lie: rows of the source, and positions with other numbers of copies
# --------------------------------------------------------------------------------------

NONE = -1
"""No repeat at this level."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A sequence of positions with some number of copies of each block."""

    first: Ints
    """The row in the first copies, by position."""
    copy: Ints
    """The copy that a position is in, by level and position."""
    repeat: Ints
    """The index of the repeat around it, by level and position; `NONE` where there is none."""
    place: Ints
    """The position of each row of the first copies."""
    width: Ints
    """Positions that a copy takes, by the index of a repeat."""
    count: Ints
    """Copies, by the index of a repeat."""

    @property
    def levels(self) -> int:
        """Levels of nesting."""
        return len(self.copy)


def layout_of(nodes: int, grammar: Sequence[BlockRepeat], counts: Mapping[int, int] | None = None) -> Layout:
    """Return the layout with *counts* of copies by the index of a repeat; those of the source where not given.

    >>> source = layout_of(4, (BlockRepeat(1, 1, 2),))
    >>> source.first.tolist(), source.copy.tolist()
    ([0, 1, 1, 3], [[0, 0, 1, 0]])
    >>> layout_of(4, (BlockRepeat(1, 1, 2),), {0: 3}).first.tolist()
    [0, 1, 1, 1, 3]
    """
    repeats = [one_repeat for one_repeat, _ in walk_repeats(grammar)]
    levels = _levels(grammar)
    count = np.array([(counts or {}).get(one_repeat.index, one_repeat.count) for one_repeat in repeats], np.int64)
    width = np.zeros(len(repeats), np.int64)
    table = _expand(grammar, (0, nodes), (count, width), 0, levels)
    first, copy, repeat = table[0], table[1 : levels + 1], table[levels + 1 :]
    new_row = np.full(nodes, NONE, np.int64)
    zero = np.flatnonzero((copy == 0).all(axis=0))
    new_row[first[zero]] = zero
    return Layout(first, copy, repeat, new_row, width, count)


def _levels(grammar: Sequence[BlockRepeat]) -> int:
    return max((1 + _levels(repeat.inside) for repeat in grammar), default=0)


def length_of(nodes: int, grammar: Sequence[BlockRepeat], counts: Mapping[int, int]) -> int:
    """Return the number of positions of a layout, without making it.

    >>> length_of(4, (BlockRepeat(1, 1, 2),), {0: 3})
    5
    """
    for repeat in grammar:
        nodes += counts.get(repeat.index, repeat.count) * length_of(repeat.width, repeat.inside, counts)
        nodes -= repeat.count * repeat.width
    return nodes


def _expand(
    grammar: Sequence[BlockRepeat], rows: tuple[int, int], sizes: tuple[Ints, Ints], level: int, levels: int
) -> Ints:
    """Return the rows of the first copies, the copies and the repeats, by position; fill in the widths of copies."""
    count, width = sizes
    position, stop = rows
    parts = []
    for repeat in grammar:
        parts.append(_plain_rows(position, repeat.start, levels))
        block = _expand(repeat.inside, (repeat.start, repeat.start + repeat.width), sizes, level + 1, levels)
        width[repeat.index] = block.shape[1]
        copies = int(count[repeat.index])
        tiled = np.tile(block, (1, copies))
        tiled[1 + level] = np.repeat(np.arange(copies), block.shape[1])
        tiled[1 + levels + level] = repeat.index
        parts.append(tiled)
        position = repeat.start + repeat.width * repeat.count
    parts.append(_plain_rows(position, stop, levels))
    return np.concatenate(parts, axis=1)


def _plain_rows(start: int, stop: int, levels: int) -> Ints:
    table = np.zeros((1 + 2 * levels, max(stop - start, 0)), np.int64)
    table[0] = np.arange(start, start + table.shape[1])
    table[1 + levels :] = NONE
    return table


def source_copies(source: Layout, layout: Layout) -> Ints:
    """Return, by level and position of *layout*, the copy of the source that it is made of.

    The first copy is made of the first, the last of the last, and those between of those between, in turn: what begins
    or ends a series may depend on what is around it.
    """
    chosen = np.zeros_like(layout.copy)
    for level in range(layout.levels):
        index = layout.repeat[level]
        copies, wanted, copy = source.count[index], layout.count[index], layout.copy[level]
        between = np.where(copies > 2, 1 + (copy - 1) % np.maximum(copies - 2, 1), copies - 1)
        chosen[level] = np.where(copy == 0, 0, np.where(copy == wanted - 1, copies - 1, between))
        chosen[level][index == NONE] = 0
    return chosen


def rows_of(source: Layout, layout: Layout, copies: Ints) -> Ints:
    """Return the rows of the source at the positions of *layout*, in the given *copies* of its blocks."""
    rows = layout.first.copy()
    for level in range(layout.levels):
        index = layout.repeat[level]
        rows += np.where(index == NONE, 0, copies[level] * source.width[index])
    return rows


# --------------------------------------------------------------------------------------
# Plans: which blocks get more or fewer copies so that a job becomes longer or shorter
# --------------------------------------------------------------------------------------

Counts = Sequence[Mapping[int, int]]
"""Copies by the index of a repeat, for each role."""
NEAR = 0.1
"""A plan that misses the length by more is tried last."""
MOST_PLANS = 8
BLOCKS, STEPS = "blocks", "steps"


@dataclass(frozen=True, slots=True, eq=False)
class RoleStructure:
    """The repeats of a role; the first is its whole trace, a step."""

    nodes: int
    grammar: tuple[BlockRepeat, ...]
    ranks: int


@dataclass(frozen=True, slots=True, eq=False)
class GrowthPlan:
    """Repeats that grow together."""

    name: str
    chosen: tuple[tuple[BlockRepeat, ...], ...]
    """By role."""
    copies: int
    """Of the largest of them, in the source."""
    width: int
    """Nodes of a copy of the largest."""
    covered: int
    """Nodes of the source, of all ranks, in their copies."""

    def counts(self, copies: int) -> Counts:
        """Return the numbers of copies if the largest has *copies*."""
        more = copies - self.copies
        return tuple({repeat.index: max(1, repeat.count + more) for repeat in of_role} for of_role in self.chosen)


def find_plans(structures: Sequence[RoleStructure]) -> list[GrowthPlan]:
    """Return the plans: those that cover most of the source first, then steps, then those that cover less than half."""
    numbers = sorted(
        {repeat.count for structure in structures for repeat, _ in walk_repeats(structure.grammar) if repeat.count > 1}
    )
    choices = (partial(choose, number) for number in numbers for choose in (_repeats_alike, _inner_repeats))
    plans = [_make_plan(structures, BLOCKS, choose) for choose in choices]
    plans.append(_make_plan(structures, BLOCKS, _longest))
    plans = sorted((candidate for candidate in plans if candidate.covered), key=lambda plan: -plan.covered)[:MOST_PLANS]
    half = sum(structure.ranks * structure.nodes for structure in structures) / 2
    steps = _make_plan(structures, STEPS, lambda structure: structure.grammar)
    return [
        *(candidate for candidate in plans if candidate.covered >= half),
        steps,
        *(candidate for candidate in plans if candidate.covered < half),
    ]


def _make_plan(
    structures: Sequence[RoleStructure], name: str, choose: Callable[[RoleStructure], Sequence[BlockRepeat]]
) -> GrowthPlan:
    chosen = tuple(tuple(choose(structure)) for structure in structures)
    times = [{repeat.index: around for repeat, around in walk_repeats(structure.grammar)} for structure in structures]
    # The nodes that a repeat makes up in the whole job: all of its copies, in the repeats around it, on all ranks
    sizes = [
        (around[repeat.index] * repeat.count * repeat.width * structure.ranks, repeat)
        for structure, around, of_role in zip(structures, times, chosen, strict=True)
        for repeat in of_role
    ]
    largest = max(sizes, key=lambda size: size[0], default=(0, BlockRepeat(0, 0, 1)))[1]
    return GrowthPlan(name, chosen, largest.count, largest.width, sum(size for size, _ in sizes))


def _repeats_alike(number: int, structure: RoleStructure) -> list[BlockRepeat]:
    """Return the outermost repeats with a number of copies."""
    return list(_with_copies(structure.grammar, number))


def _inner_repeats(number: int, structure: RoleStructure) -> list[BlockRepeat]:
    """Return the repeats with a number of copies inside others with as many: four layers in four microbatches."""
    return [inner for outer in _with_copies(structure.grammar, number) for inner in _with_copies(outer.inside, number)]


def _with_copies(grammar: Sequence[BlockRepeat], number: int) -> Iterator[BlockRepeat]:
    for repeat in grammar:
        if repeat.count == number:
            yield repeat
        else:
            yield from _with_copies(repeat.inside, number)


def _longest(structure: RoleStructure) -> list[BlockRepeat]:
    """Return the repeat that covers most of a role."""
    sizes = [
        (repeat.count * repeat.width * around, repeat)
        for repeat, around in walk_repeats(structure.grammar)
        if repeat.count > 1
    ]
    return [max(sizes, key=lambda size: size[0])[1]] if sizes else []


def count_nodes(structures: Sequence[RoleStructure], counts: Counts) -> int:
    """Return the nodes of all ranks."""
    return sum(
        structure.ranks * length_of(structure.nodes, structure.grammar, count)
        for structure, count in zip(structures, counts, strict=True)
    )


def copies_for(plan: GrowthPlan, structures: Sequence[RoleStructure], scale: float) -> int:
    """Return the number of copies with which a plan comes closest to *scale* times the source's nodes."""
    wanted = scale * sum(structure.ranks * structure.nodes for structure in structures)
    low, high = 1, max(2, plan.copies)
    while count_nodes(structures, plan.counts(high)) < wanted:
        low, high = high, 2 * high
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if count_nodes(structures, plan.counts(middle)) <= wanted else (low, middle)
    return min((low, high), key=lambda copies: abs(count_nodes(structures, plan.counts(copies)) - wanted))


def order_plans(
    plans: Sequence[GrowthPlan], structures: Sequence[RoleStructure], scale: float
) -> list[tuple[GrowthPlan, int]]:
    """Return plans and their copies for a length, best first: those that come near it, and cover most."""
    nodes = sum(structure.ranks * structure.nodes for structure in structures)

    def misses(choice: tuple[GrowthPlan, int]) -> bool:
        plan, copies = choice
        return abs(count_nodes(structures, plan.counts(copies)) / (scale * nodes) - 1) > NEAR

    return sorted(((plan, copies_for(plan, structures, scale)) for plan in plans), key=misses)
