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

**Copies** (`make_template`) make the template of a role with other numbers of copies: nodes, dependencies, amounts. How
the copy of one node follows from the copy of the other, in a dependency between copies of blocks, is found by comparing
links. A link is seen twice, at a node and at its like in the copy beside. Between a node in copy c and what it depends on
in copy e of k, it is one of

    kept apart   e - c is the same: in the same layer, the layer before
    mirrored     e + c is the same: backward passes through layers in reverse order
    fixed        e is the same: all layers depend on the first, or what follows on the last
    gathered     one node depends on all copies
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.traces.synthesis.rank_roles import Role
from cosmic.traces.trace import ABSENT, COLUMNS, CollectiveType, Ints, NodeType, Template

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


Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class RowLists:
    """A list of rows for each row, ascending in the rows of the first copies."""

    start: Ints
    row: Ints

    @property
    def lengths(self) -> Ints:
        """Their lengths."""
        return np.diff(self.start)


def lists_of(start: Ints, row: Ints, source: Layout) -> RowLists:
    """Return the dependencies of a source such that copies of a block list theirs in one order."""
    owner = np.repeat(np.arange(len(start) - 1), np.diff(start))
    return RowLists(start, row[np.lexsort((row, source.first[row], owner))])


@dataclass(frozen=True, slots=True, eq=False)
class _Edges:
    """Dependencies of what is made, one entry each."""

    position: Ints
    """The dependent, where it is made."""
    row: Ints
    """The row of the source that it is made of."""
    slot: Ints
    """Which of its dependencies."""
    wanted: Ints
    """The row of the source that it depends on."""


def link_copies(lists: RowLists, source: Layout, layout: Layout, rows: Ints) -> tuple[Ints, Ints]:
    """Return the positions that each position of *layout* depends on: where its list starts, and the positions.

    *rows* are the rows of the source that the positions are made of. A link to a copy that there is not is dropped.
    """
    lengths = lists.lengths[rows]
    edge_position = np.repeat(np.arange(len(rows)), lengths)
    slot = np.arange(len(edge_position)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    row = rows[edge_position]
    edges = _Edges(edge_position, row, slot, lists.row[lists.start[row] + slot])
    shape = (layout.levels, len(edges.row))
    copy, free = np.zeros(shape, np.int64), np.zeros(shape, bool)
    for level in range(layout.levels):
        copy[level], free[level] = _copies_at_level(level, edges, lists, source, layout)
    index = source.repeat[:, edges.wanted]
    # Whether the dependent of an edge depends on all copies of what the edge leads to
    edge_repeats = source.repeat[:, edges.wanted]
    copy_count = np.where(free & (edge_repeats != NONE), source.count[edge_repeats], 1).prod(axis=0)
    owners = np.repeat(np.arange(len(lists.lengths)), lists.lengths)
    keys, numbers = np.unique(owners * len(source.first) + source.first[lists.row], return_counts=True)
    like = numbers[np.searchsorted(keys, edges.row * len(source.first) + source.first[edges.wanted])]
    gathered = free & (index != NONE) & np.asarray((copy_count > 1) & (like == copy_count), bool)
    original = np.where(gathered, source.copy[:, edges.wanted], 0)
    in_range = (copy >= 0) & (copy < layout.count[index]) if len(layout.count) else np.ones(shape, bool)
    valid = ((index == NONE) | gathered | in_range).all(axis=0) & (original == 0).all(axis=0)
    position, target = edges.position[valid], layout.place[source.first[edges.wanted[valid]]]
    index, gathered, copy = index[:, valid], gathered[:, valid], copy[:, valid]
    for level in range(layout.levels):
        step = np.where(index[level] == NONE, 0, layout.width[index[level]])
        copies = np.where(gathered[level], layout.count[index[level]], 1)
        expanded = np.repeat(np.arange(len(copies)), copies)
        nth = np.arange(len(expanded)) - np.repeat(np.cumsum(copies) - copies, copies)
        position, index, gathered, copy = (
            position[expanded],
            index[:, expanded],
            gathered[:, expanded],
            copy[:, expanded],
        )
        target = target[expanded] + step[expanded] * np.where(gathered[level], nth, copy[level])
    # Distinct targets by position, without those that are the position itself
    positions = len(layout.first)
    pairs = np.unique((position * max(positions, 1) + target)[position != target])
    owner, other = np.divmod(pairs, max(positions, 1))
    return np.searchsorted(owner, np.arange(positions + 1)), other


def _copies_at_level(level: int, edges: _Edges, lists: RowLists, source: Layout, layout: Layout) -> tuple[Ints, Bools]:
    """Return the copy, at a level, of what each edge leads to, and whether no copy of the dependent decides it."""
    index = source.repeat[level][edges.wanted]
    copy = source.copy[level][edges.wanted]
    most, wanted = (
        source.count[index] if len(source.count) else index,
        layout.count[index] if len(layout.count) else index,
    )
    driver = _drivers(level, edges, source, layout)
    free = driver == NONE
    driver_level = np.where(free, 0, driver)
    along = np.arange(len(index))
    own_copy = source.copy[:, edges.row][driver_level, along]
    now = layout.copy[:, edges.position][driver_level, along]
    like, seen = _copy_beside(level, edges, lists, source, (driver_level, own_copy))
    shared = ~free & (source.repeat[:, edges.row][driver_level, along] == index)
    seen &= ~free
    apart = (seen & (copy - own_copy == like[0] - like[1])) | (~seen & ~free & (shared | (copy == own_copy)))
    mirrored = (seen & (copy + own_copy == like[0] + like[1])) | (
        ~seen & ~free & ~apart & (copy == most - 1 - own_copy)
    )
    fixed = np.where(2 * copy < most, np.minimum(copy, wanted - 1), np.maximum(wanted - most + copy, 0))
    copies = np.where(apart, now + copy - own_copy, np.where(mirrored, copy + own_copy + wanted - most - now, fixed))
    return copies, free


def _drivers(level: int, edges: _Edges, source: Layout, layout: Layout) -> Ints:
    """Return the level at which the dependent's copy decides which copy an edge leads to; `NONE` if there is none.

    It is that of the same repeat, or of one that has as many copies before and now.
    """
    index = source.repeat[level][edges.wanted]
    driver = np.full(len(index), NONE)
    for candidate in reversed(range(layout.levels)):
        other = source.repeat[candidate][edges.row]
        same_counts = (source.count[other] == source.count[index]) & (layout.count[other] == layout.count[index])
        unshared = other != source.repeat[candidate][edges.wanted]  # a repeat around both says nothing about this one
        driver = np.where((other != NONE) & same_counts & unshared, candidate, driver)
    same = source.repeat[level][edges.row] == index
    return np.where(index == NONE, NONE, np.where(same, level, driver))


def _copy_beside(
    level: int, edges: _Edges, lists: RowLists, source: Layout, driver: tuple[Ints, Ints]
) -> tuple[tuple[Ints, Ints], Bools]:
    """Return the copies of both ends of the same dependency one copy of the dependent further, and whether it is there.

    *driver* is the level of the dependent's repeat that decides, and the copy that it is in.
    """
    driver_level, own_copy = driver
    index = source.repeat[:, edges.row][driver_level, np.arange(len(driver_level))]
    next_copy = np.where(own_copy > 0, own_copy - 1, own_copy + 1)
    row = edges.row + np.where(index == NONE, 0, (next_copy - own_copy) * source.width[index])
    row = np.clip(row, 0, len(source.first) - 1)
    as_many = lists.lengths[row] == lists.lengths[edges.row]
    wanted = lists.row[np.where(as_many, lists.start[row] + edges.slot, 0)]
    seen = (
        as_many & (source.first[wanted] == source.first[edges.wanted]) & (source.copy[driver_level, row] == next_copy)
    )
    return (source.copy[level][wanted], next_copy), seen


DRAWN = ("num_ops", "tensor_size", "duration_us", "duration_ns", "delay_ns")
"""What is drawn together, from one node of the source."""
JITTER = 0.25
"""How far towards another node's amounts a node's may be moved, in logarithms."""
GATHERS = (CollectiveType.ALL_GATHER, CollectiveType.GATHER)
"""Collectives whose size is that of one member's part."""
MOST_LINKS = 8
"""Last nodes of a step that the first ones of the next wait for."""


@dataclass(frozen=True, slots=True, eq=False)
class MadeTemplate:
    """A template, and what it takes to draw others with the same nodes."""

    template: Template
    keys: Ints
    """The channel of each message: `cosmic.traces.synthesis.trace_model`."""
    role: Role
    source: Layout
    layout: Layout

    def variants(self, template: Template, number: int, rng: np.random.Generator) -> list[Template]:
        """Return templates with other amounts, as ranks that were recorded one by one have: the first is *template*.

        Each keeps to the amounts of one rank of the source, so that a slow one stays slow.
        """
        variants = [template]
        for variant in range(1, number):
            drawn: dict[str, Any] = _draw_amounts(self.role, self.source, self.layout, rng, variant)
            variants.append(replace(template, **drawn))
        return variants


def make_template(
    role: Role,
    structure: RoleStructure,
    counts: Mapping[int, int],
    alone: Set[int],
    drawing: tuple[Ints, np.random.Generator, int | None],
) -> MadeTemplate:
    """Return a template with *counts* of copies by the index of a repeat.

    *alone* are the groups whose members all have this role: sizes of their collectives are drawn, too. *drawing* holds
    the channels of the source's rows, the random numbers, and the rank that amounts are drawn from (None for any).
    """
    keys, rng, of_rank = drawing
    source = layout_of(structure.nodes, structure.grammar)
    layout = layout_of(structure.nodes, structure.grammar, counts)
    rows = rows_of(source, layout, source_copies(source, layout))
    template = role.template
    columns = {name: getattr(template, name)[rows] for name in COLUMNS}
    columns["id"] = np.arange(len(rows))
    columns |= _draw_amounts(role, source, layout, rng, of_rank)
    sized = (columns["type"] == NodeType.COMM_COLL) & np.isin(columns["group"], list(alone))
    if sized.any():
        other = template.comm_size[rows_of(source, layout, _draw_copies(source, layout, rng))]
        columns["comm_size"] = np.where(sized, other, columns["comm_size"])
    # The indices of peers: receives have theirs after those of sends
    columns["peer"] = np.where(
        (columns["type"] == NodeType.COMM_RECV) & (columns["peer"] != ABSENT),
        columns["peer"] + len(role.peers[0]),
        columns["peer"],
    )
    columns |= _dependencies(template, source, layout, rows)
    names = [template.names[row] for row in range(template.nodes)]
    new_template = Template(
        **columns, names=[names[row] for row in rows.tolist()], kernels=template.kernels, process_groups={}
    )
    return MadeTemplate(new_template, keys[rows], role, source, layout)


def with_messages(template: Template, tags: Ints, shares: Sequence[float]) -> Template:
    """Return a template whose messages have other tags, and whose all-gathers have parts for other groups.

    *shares* say by which factor the parts change, by the index of a group; the last is for all ranks. What members
    gather together stays what it is, so that in a larger group each has less of it.
    """
    gathers = (template.type == NodeType.COMM_COLL) & np.isin(template.comm_type, GATHERS) & (template.comm_size > 0)
    share = np.array(shares)[template.group]
    sizes = np.where(gathers, np.maximum(np.rint(template.comm_size * share), 1), template.comm_size)
    return replace(template, comm_tag=tags, comm_size=sizes.astype(np.int64))


def _dependencies(template: Template, source: Layout, layout: Layout, rows: Ints) -> dict[str, Ints]:
    columns = {}
    for name in ("data", "ctrl"):
        start, row = getattr(template, f"{name}_start"), getattr(template, f"{name}_id")
        columns[f"{name}_start"], columns[f"{name}_id"] = (
            link_copies(lists_of(start, row, source), source, layout, rows)
            if len(row)
            else (np.zeros(len(rows) + 1, np.int64), row)
        )
    return _chain_steps(columns, layout) if layout.count[0] > 1 else columns


def _chain_steps(columns: dict[str, Ints], layout: Layout) -> dict[str, Ints]:
    """Return dependencies in which the first nodes of a step wait for the last of the step before."""
    steps, width = int(layout.count[0]), int(layout.width[0])
    lengths = np.diff(columns["data_start"])
    waits = lengths + np.diff(columns["ctrl_start"])
    roots = np.flatnonzero(waits[:width] == 0)
    wanted = np.zeros(width, bool)
    for name in ("data", "ctrl"):
        ids = columns[f"{name}_id"]
        wanted[ids[ids < width]] = True
    sinks = np.flatnonzero(~wanted)[-MOST_LINKS:]
    owner = np.repeat(np.arange(len(lengths)), lengths)
    later = np.arange(1, steps)[:, None, None] * width
    more = np.broadcast_to(roots[None, :, None] + later, (steps - 1, len(roots), len(sinks))).ravel()
    before = np.broadcast_to(sinks[None, None, :] + later - width, (steps - 1, len(roots), len(sinks))).ravel()
    owners, ids = np.concatenate([owner, more]), np.concatenate([columns["data_id"], before])
    order = np.argsort(owners, kind="stable")
    start = np.searchsorted(owners[order], np.arange(len(lengths) + 1))
    return columns | {"data_start": start, "data_id": ids[order]}


# ---- amounts


def _draw_copies(source: Layout, layout: Layout, rng: np.random.Generator) -> Ints:
    """Return a copy of the source at random for each level and position, but first for first and last for last."""
    chosen = source_copies(source, layout)
    for level in range(layout.levels):
        index, copy = layout.repeat[level], layout.copy[level]
        copies = source.count[index]
        between = (index != NONE) & (copy > 0) & (copy < layout.count[index] - 1) & (copies > 2)
        drawn = 1 + (rng.random(len(copy)) * (copies - 2)).astype(np.int64)
        chosen[level] = np.where(between, drawn, chosen[level])
    return chosen


def _draw_amounts(
    role: Role, source: Layout, layout: Layout, rng: np.random.Generator, of_rank: int | None
) -> dict[str, Ints]:
    """Return amounts and durations: those of a like node of the source, moved a little towards those of another.

    One node is drawn for all columns, and all are moved by one share, so that they stay in proportion.
    """
    first, second = (rows_of(source, layout, _draw_copies(source, layout, rng)) for _ in range(2))
    templates = rng.integers(len(role.templates), size=(2, len(first)))
    if of_rank is not None:
        templates[:] = of_rank % len(role.templates)
    share = rng.uniform(-JITTER, JITTER, len(first))
    columns = {}
    for name in DRAWN:
        every = np.stack([getattr(template, name) for template in role.templates])
        first_amount, second_amount = every[templates[0], first], every[templates[1], second]
        if (first_amount == second_amount).all():
            columns[name] = first_amount
            continue
        positive = (first_amount > 0) & (second_amount > 0)
        ratio = np.where(positive, second_amount, 1) / np.where(positive, first_amount, 1)
        columns[name] = np.where(positive, np.rint(first_amount * ratio**share), first_amount).astype(np.int64)
    recorded = columns["duration_ns"] != ABSENT
    columns["duration_us"] = np.where(recorded, columns["duration_ns"] // 1000, columns["duration_us"])
    return columns
