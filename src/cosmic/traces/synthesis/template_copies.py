"""The template of a role with other numbers of copies of its blocks: nodes, dependencies, amounts.

How the copy of one node follows from the copy of the other, in a dependency between copies of blocks, is found by
comparing links.

A link is seen twice, at a node and at its like in the copy beside. Between a node in copy c and what it depends on
in copy e of k, it is one of

    kept apart   e - c is the same: in the same layer, the layer before
    mirrored     e + c is the same: backward passes through layers in reverse order
    fixed        e is the same: all layers depend on the first, or what follows on the last
    gathered     one node depends on all copies
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.traces.synthesis.block_grammar import NONE, Layout, RoleStructure, layout_of, rows_of, source_copies
from cosmic.traces.synthesis.rank_roles import Role
from cosmic.traces.trace import ABSENT, COLUMNS, CollectiveType, Ints, NodeType, Template

# --------------------------------------------------------------------------------------
# Dependencies between copies of blocks: how the copy of one node follows from the copy of the other
# --------------------------------------------------------------------------------------

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


def link_copies(lists: RowLists, source: Layout, made: Layout, rows: Ints) -> tuple[Ints, Ints]:
    """Return the positions that each position of *made* depends on: where its list starts, and the positions.

    *rows* are the rows of the source that the positions are made of. A link to a copy that there is not is dropped.
    """
    edges = _edges_of(lists, rows)
    shape = (made.levels, len(edges.row))
    copy, free = np.zeros(shape, np.int64), np.zeros(shape, bool)
    for level in range(made.levels):
        copy[level], free[level] = _copies(level, edges, lists, source, made)
    index = source.repeat[:, edges.wanted]
    # Whether the dependent of an edge depends on all copies of what the edge leads to
    repeats_ = source.repeat[:, edges.wanted]
    copy_count = np.where(free & (repeats_ != NONE), source.count[repeats_], 1).prod(axis=0)
    owners = np.repeat(np.arange(len(lists.lengths)), lists.lengths)
    keys, numbers = np.unique(owners * len(source.first) + source.first[lists.row], return_counts=True)
    like = numbers[np.searchsorted(keys, edges.row * len(source.first) + source.first[edges.wanted])]
    gathered = free & (index != NONE) & np.asarray((copy_count > 1) & (like == copy_count), bool)
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
    # Distinct targets by position, without those that are the position itself
    positions = len(made.first)
    pairs = np.unique((position * max(positions, 1) + target)[position != target])
    owner, other = np.divmod(pairs, max(positions, 1))
    return np.searchsorted(owner, np.arange(positions + 1)), other


def _edges_of(lists: RowLists, rows: Ints) -> _Edges:
    lengths = lists.lengths[rows]
    position = np.repeat(np.arange(len(rows)), lengths)
    slot = np.arange(len(position)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    row = rows[position]
    return _Edges(position, row, slot, lists.row[lists.start[row] + slot])


def _copies(level: int, edges: _Edges, lists: RowLists, source: Layout, made: Layout) -> tuple[Ints, Bools]:
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
    like, seen = _copy_beside(level, edges, lists, source, (at, mine))
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


def _copy_beside(
    level: int, edges: _Edges, lists: RowLists, source: Layout, driver: tuple[Ints, Ints]
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


# --------------------------------------------------------------------------------------
# The template of a role with other numbers of copies: nodes, dependencies, amounts
# --------------------------------------------------------------------------------------

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
    """The channel of each message: `cosmic.traces.synthesis.message_tags`."""
    role: Role
    source: Layout
    layout: Layout

    def variants(self, template: Template, number: int, rng: np.random.Generator) -> list[Template]:
        """Return templates with other amounts, as ranks that were recorded one by one have: the first is *template*.

        Each keeps to the amounts of one rank of the source, so that a slow one stays slow.
        """
        found = [template]
        for variant in range(1, number):
            drawn: dict[str, Any] = _drawn(self.role, self.source, self.layout, rng, variant)
            found.append(replace(template, **drawn))
        return found


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
    made = layout_of(structure.nodes, structure.grammar, counts)
    rows = rows_of(source, made, source_copies(source, made))
    template = role.template
    columns = {name: getattr(template, name)[rows] for name in COLUMNS}
    columns["id"] = np.arange(len(rows))
    columns |= _drawn(role, source, made, rng, of_rank)
    sized = (columns["type"] == NodeType.COMM_COLL) & np.isin(columns["group"], list(alone))
    if sized.any():
        other = template.comm_size[rows_of(source, made, _drawn_copies(source, made, rng))]
        columns["comm_size"] = np.where(sized, other, columns["comm_size"])
    columns["peer"] = _peers(columns["type"], columns["peer"], len(role.peers[0]))
    columns |= _dependencies(template, source, made, rows)
    names = [template.names[row] for row in range(template.nodes)]
    found = Template(
        **columns, names=[names[row] for row in rows.tolist()], kernels=template.kernels, process_groups={}
    )
    return MadeTemplate(found, keys[rows], role, source, made)


def with_messages(template: Template, tags: Ints, shares: Sequence[float]) -> Template:
    """Return a template whose messages have other tags, and whose all-gathers have parts for other groups.

    *shares* say by which factor the parts change, by the index of a group; the last is for all ranks. What members
    gather together stays what it is, so that in a larger group each has less of it.
    """
    gathers = (template.type == NodeType.COMM_COLL) & np.isin(template.comm_type, GATHERS) & (template.comm_size > 0)
    share = np.array(shares)[template.group]
    sizes = np.where(gathers, np.maximum(np.rint(template.comm_size * share), 1), template.comm_size)
    return replace(template, comm_tag=tags, comm_size=sizes.astype(np.int64))


def _peers(kind: Ints, peer: Ints, peers: int) -> Ints:
    """Return the indices of peers: receives have theirs after those of sends."""
    return np.where((kind == NodeType.COMM_RECV) & (peer != ABSENT), peer + peers, peer)


def _dependencies(template: Template, source: Layout, made: Layout, rows: Ints) -> dict[str, Ints]:
    found = {}
    for name in ("data", "ctrl"):
        start, row = getattr(template, f"{name}_start"), getattr(template, f"{name}_id")
        found[f"{name}_start"], found[f"{name}_id"] = (
            link_copies(lists_of(start, row, source), source, made, rows)
            if len(row)
            else (np.zeros(len(rows) + 1, np.int64), row)
        )
    return _in_steps(found, made) if made.count[0] > 1 else found


def _in_steps(found: dict[str, Ints], made: Layout) -> dict[str, Ints]:
    """Return dependencies in which the first nodes of a step wait for the last of the step before."""
    steps, width = int(made.count[0]), int(made.width[0])
    lengths = np.diff(found["data_start"])
    waits = lengths + np.diff(found["ctrl_start"])
    roots = np.flatnonzero(waits[:width] == 0)
    wanted = np.zeros(width, bool)
    for name in ("data", "ctrl"):
        ids = found[f"{name}_id"]
        wanted[ids[ids < width]] = True
    sinks = np.flatnonzero(~wanted)[-MOST_LINKS:]
    owner = np.repeat(np.arange(len(lengths)), lengths)
    later = np.arange(1, steps)[:, None, None] * width
    more = np.broadcast_to(roots[None, :, None] + later, (steps - 1, len(roots), len(sinks))).ravel()
    before = np.broadcast_to(sinks[None, None, :] + later - width, (steps - 1, len(roots), len(sinks))).ravel()
    owners, ids = np.concatenate([owner, more]), np.concatenate([found["data_id"], before])
    order = np.argsort(owners, kind="stable")
    start = np.searchsorted(owners[order], np.arange(len(lengths) + 1))
    return found | {"data_start": start, "data_id": ids[order]}


# ------------------------------------------------------------------------------------------------ amounts


def _drawn_copies(source: Layout, made: Layout, rng: np.random.Generator) -> Ints:
    """Return a copy of the source at random for each level and position, but first for first and last for last."""
    taken = source_copies(source, made)
    for level in range(made.levels):
        index, at = made.repeat[level], made.copy[level]
        copies = source.count[index]
        between = (index != NONE) & (at > 0) & (at < made.count[index] - 1) & (copies > 2)
        drawn = 1 + (rng.random(len(at)) * (copies - 2)).astype(np.int64)
        taken[level] = np.where(between, drawn, taken[level])
    return taken


def _drawn(role: Role, source: Layout, made: Layout, rng: np.random.Generator, of_rank: int | None) -> dict[str, Ints]:
    """Return amounts and durations: those of a like node of the source, moved a little towards those of another.

    One node is drawn for all columns, and all are moved by one share, so that they stay in proportion.
    """
    first, second = (rows_of(source, made, _drawn_copies(source, made, rng)) for _ in range(2))
    templates = rng.integers(len(role.templates), size=(2, len(first)))
    if of_rank is not None:
        templates[:] = of_rank % len(role.templates)
    share = rng.uniform(-JITTER, JITTER, len(first))
    found = {}
    for name in DRAWN:
        every = np.stack([getattr(template, name) for template in role.templates])
        mine, other = every[templates[0], first], every[templates[1], second]
        if (mine == other).all():
            found[name] = mine
            continue
        positive = (mine > 0) & (other > 0)
        ratio = np.where(positive, other, 1) / np.where(positive, mine, 1)
        found[name] = np.where(positive, np.rint(mine * ratio**share), mine).astype(np.int64)
    recorded = found["duration_ns"] != ABSENT
    found["duration_us"] = np.where(recorded, found["duration_ns"] // 1000, found["duration_us"])
    return found
