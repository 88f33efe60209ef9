"""Where the copies of a grammar's blocks lie: rows of the source, and positions with other numbers of copies.

A row of the source is a row of the first copies (`first`), and the numbers of the copies around it, level by level.
Both rows and positions are affine in these numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cosmic.synthetic.grammar import Repeat, walk
from cosmic.traces.trace import Ints

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


def layout_of(nodes: int, grammar: Sequence[Repeat], counts: Mapping[int, int] | None = None) -> Layout:
    """Return the layout with *counts* of copies by the index of a repeat; those of the source where not given.

    >>> source = layout_of(4, (Repeat(1, 1, 2),))
    >>> source.first.tolist(), source.copy.tolist()
    ([0, 1, 1, 3], [[0, 0, 1, 0]])
    >>> layout_of(4, (Repeat(1, 1, 2),), {0: 3}).first.tolist()
    [0, 1, 1, 1, 3]
    """
    repeats = [each for each, _ in walk(grammar)]
    levels = _levels(grammar)
    count = np.array([(counts or {}).get(each.index, each.count) for each in repeats], np.int64)
    width = np.zeros(len(repeats), np.int64)
    table = _expand(grammar, (0, nodes), (count, width), 0, levels)
    first, copy, repeat = table[0], table[1 : levels + 1], table[levels + 1 :]
    place = np.full(nodes, NONE, np.int64)
    zero = np.flatnonzero((copy == 0).all(axis=0))
    place[first[zero]] = zero
    return Layout(first, copy, repeat, place, width, count)


def _levels(grammar: Sequence[Repeat]) -> int:
    return max((1 + _levels(each.inside) for each in grammar), default=0)


def length_of(nodes: int, grammar: Sequence[Repeat], counts: Mapping[int, int]) -> int:
    """Return the number of positions of a layout, without making it.

    >>> length_of(4, (Repeat(1, 1, 2),), {0: 3})
    5
    """
    for each in grammar:
        nodes += counts.get(each.index, each.count) * length_of(each.width, each.inside, counts)
        nodes -= each.count * each.width
    return nodes


def _expand(
    grammar: Sequence[Repeat], rows: tuple[int, int], sizes: tuple[Ints, Ints], level: int, levels: int
) -> Ints:
    """Return the rows of the first copies, the copies and the repeats, by position; fill in the widths of copies."""
    count, width = sizes
    at, stop = rows
    parts = []
    for each in grammar:
        parts.append(_plain(at, each.start, levels))
        block = _expand(each.inside, (each.start, each.start + each.width), sizes, level + 1, levels)
        width[each.index] = block.shape[1]
        copies = int(count[each.index])
        tiled = np.tile(block, (1, copies))
        tiled[1 + level] = np.repeat(np.arange(copies), block.shape[1])
        tiled[1 + levels + level] = each.index
        parts.append(tiled)
        at = each.start + each.width * each.count
    parts.append(_plain(at, stop, levels))
    return np.concatenate(parts, axis=1)


def _plain(start: int, stop: int, levels: int) -> Ints:
    table = np.zeros((1 + 2 * levels, max(stop - start, 0)), np.int64)
    table[0] = np.arange(start, start + table.shape[1])
    table[1 + levels :] = NONE
    return table


def source_copies(source: Layout, made: Layout) -> Ints:
    """Return, by level and position of *made*, the copy of the source that it is made of.

    The first copy is made of the first, the last of the last, and those between of those between, in turn: what begins
    or ends a series may depend on what is around it.
    """
    taken = np.zeros_like(made.copy)
    for level in range(made.levels):
        index = made.repeat[level]
        copies, wanted, at = source.count[index], made.count[index], made.copy[level]
        between = np.where(copies > 2, 1 + (at - 1) % np.maximum(copies - 2, 1), copies - 1)
        taken[level] = np.where(at == 0, 0, np.where(at == wanted - 1, copies - 1, between))
        taken[level][index == NONE] = 0
    return taken


def rows_of(source: Layout, made: Layout, copies: Ints) -> Ints:
    """Return the rows of the source at the positions of *made*, in the given *copies* of its blocks."""
    rows = made.first.copy()
    for level in range(made.levels):
        index = made.repeat[level]
        rows += np.where(index == NONE, 0, copies[level] * source.width[index])
    return rows
