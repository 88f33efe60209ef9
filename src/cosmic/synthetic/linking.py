"""Dependencies between copies of blocks: how the copy of one node follows from the copy of the other.

A link is seen twice, at a node and at its like in the copy beside. Between a node in copy c and what it depends on in
copy e of k, it is one of

    kept apart   e - c is the same: in the same layer, the layer before
    mirrored     e + c is the same: backward passes through layers in reverse order
    fixed        e is the same: all layers depend on the first, or what follows on the last
    gathered     one node depends on all copies
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cosmic.synthetic.layout import NONE, Layout
from cosmic.traces.trace import Ints

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """A list of rows for each row, ascending in the rows of the first copies."""

    start: Ints
    row: Ints

    @property
    def lengths(self) -> Ints:
        """Their lengths."""
        return np.diff(self.start)


def lists_of(start: Ints, row: Ints, source: Layout) -> Lists:
    """Return the dependencies of a source such that copies of a block list theirs in one order."""
    owner = np.repeat(np.arange(len(start) - 1), np.diff(start))
    return Lists(start, row[np.lexsort((row, source.first[row], owner))])


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


def link(lists: Lists, source: Layout, made: Layout, rows: Ints) -> tuple[Ints, Ints]:
    """Return the positions that each position of *made* depends on: where its list starts, and the positions.

    *rows* are the rows of the source that the positions are made of. A link to a copy that there is not is dropped.
    """
    edges = _edges_of(lists, rows)
    shape = (made.levels, len(edges.row))
    copy, free = np.zeros(shape, np.int64), np.zeros(shape, bool)
    for level in range(made.levels):
        copy[level], free[level] = _copies(level, edges, lists, source, made)
    index = source.repeat[:, edges.wanted]
    gathered = free & (index != NONE) & _gathers(lists, source, edges, free)
    original = np.where(gathered, source.copy[:, edges.wanted], 0)
    in_range = (copy >= 0) & (copy < made.count[index]) if len(made.count) else np.ones(shape, bool)
    kept = ((index == NONE) | gathered | in_range).all(axis=0) & (original == 0).all(axis=0)
    position, target = edges.position[kept], made.place[source.first[edges.wanted[kept]]]
    index, gathered, copy = index[:, kept], gathered[:, kept], copy[:, kept]
    for level in range(made.levels):
        step = np.where(index[level] == NONE, 0, made.width[index[level]])
        copies = np.where(gathered[level], made.count[index[level]], 1)
        which = np.repeat(np.arange(len(copies)), copies)
        nth = np.arange(len(which)) - np.repeat(np.cumsum(copies) - copies, copies)
        position, index, gathered, copy = position[which], index[:, which], gathered[:, which], copy[:, which]
        target = target[which] + step[which] * np.where(gathered[level], nth, copy[level])
    return _as_lists(position, target, len(made.first))


def _edges_of(lists: Lists, rows: Ints) -> _Edges:
    lengths = lists.lengths[rows]
    position = np.repeat(np.arange(len(rows)), lengths)
    slot = np.arange(len(position)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    row = rows[position]
    return _Edges(position, row, slot, lists.row[lists.start[row] + slot])


def _copies(level: int, edges: _Edges, lists: Lists, source: Layout, made: Layout) -> tuple[Ints, Bools]:
    """Return the copy, at a level, of what each edge leads to, and whether no copy of the dependent decides it."""
    index = source.repeat[level][edges.wanted]
    here = source.copy[level][edges.wanted]
    most, wanted = source.count[index] if len(source.count) else index, made.count[index] if len(made.count) else index
    driver = _drivers(level, edges, source, made)
    free = driver == NONE
    at = np.where(free, 0, driver)
    along = np.arange(len(index))
    mine = source.copy[:, edges.row][at, along]
    now = made.copy[:, edges.position][at, along]
    like, seen = _beside(level, edges, lists, source, (at, mine))
    shared = ~free & (source.repeat[:, edges.row][at, along] == index)
    seen &= ~free
    apart = (seen & (here - mine == like[0] - like[1])) | (~seen & ~free & (shared | (here == mine)))
    mirrored = (seen & (here + mine == like[0] + like[1])) | (~seen & ~free & ~apart & (here == most - 1 - mine))
    fixed = np.where(2 * here < most, np.minimum(here, wanted - 1), np.maximum(wanted - most + here, 0))
    found = np.where(apart, now + here - mine, np.where(mirrored, here + mine + wanted - most - now, fixed))
    return found, free


def _drivers(level: int, edges: _Edges, source: Layout, made: Layout) -> Ints:
    """Return the level at which the dependent's copy decides which copy an edge leads to; `NONE` if there is none.

    It is that of the same repeat, or of one that has as many copies before and now.
    """
    index = source.repeat[level][edges.wanted]
    driver = np.full(len(index), NONE)
    for each in reversed(range(made.levels)):
        other = source.repeat[each][edges.row]
        alike = (source.count[other] == source.count[index]) & (made.count[other] == made.count[index])
        unshared = other != source.repeat[each][edges.wanted]  # a repeat around both says nothing about this one
        driver = np.where((other != NONE) & alike & unshared, each, driver)
    same = source.repeat[level][edges.row] == index
    return np.where(index == NONE, NONE, np.where(same, level, driver))


def _beside(
    level: int, edges: _Edges, lists: Lists, source: Layout, driver: tuple[Ints, Ints]
) -> tuple[tuple[Ints, Ints], Bools]:
    """Return the copies of both ends of the same dependency one copy of the dependent further, and whether it is there.

    *driver* is the level of the dependent's repeat that decides, and the copy that it is in.
    """
    at, mine = driver
    index = source.repeat[:, edges.row][at, np.arange(len(at))]
    other = np.where(mine > 0, mine - 1, mine + 1)
    row = edges.row + np.where(index == NONE, 0, (other - mine) * source.width[index])
    row = np.clip(row, 0, len(source.first) - 1)
    as_many = lists.lengths[row] == lists.lengths[edges.row]
    wanted = lists.row[np.where(as_many, lists.start[row] + edges.slot, 0)]
    seen = as_many & (source.first[wanted] == source.first[edges.wanted]) & (source.copy[at, row] == other)
    return (source.copy[level][wanted], other), seen


def _gathers(lists: Lists, source: Layout, edges: _Edges, free: Bools) -> Bools:
    """Return whether the dependent of an edge depends on all copies of what the edge leads to."""
    index = source.repeat[:, edges.wanted]
    copies = np.where(free & (index != NONE), source.count[index], 1).prod(axis=0)
    owner = np.repeat(np.arange(len(lists.lengths)), lists.lengths)
    keys, numbers = np.unique(owner * len(source.first) + source.first[lists.row], return_counts=True)
    like = numbers[np.searchsorted(keys, edges.row * len(source.first) + source.first[edges.wanted])]
    return np.asarray((copies > 1) & (like == copies), bool)


def _as_lists(position: Ints, target: Ints, positions: int) -> tuple[Ints, Ints]:
    """Return distinct targets by position, without those that are the position itself."""
    pairs = np.unique((position * max(positions, 1) + target)[position != target])
    owner, other = np.divmod(pairs, max(positions, 1))
    return np.searchsorted(owner, np.arange(positions + 1)), other
