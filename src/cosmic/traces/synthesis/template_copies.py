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


# ------------------------------------------------------------------------------------------------ amounts


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
