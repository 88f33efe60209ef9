"""The template of a role with other numbers of copies: nodes, dependencies, amounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cosmic.synthetic.layout import NONE, Layout, layout_of, rows_of, source_copies
from cosmic.synthetic.linking import link, lists_of
from cosmic.synthetic.plans import Structure
from cosmic.synthetic.roles import Role
from cosmic.traces.trace import ABSENT, COLUMNS, CollectiveType, Ints, NodeType, Template

DRAWN = ("num_ops", "tensor_size", "duration_us", "duration_ns", "delay_ns")
"""What is drawn together, from one node of the source."""
JITTER = 0.25
"""How far towards another node's amounts a node's may be moved, in logarithms."""
GATHERS = (CollectiveType.ALL_GATHER, CollectiveType.GATHER)
"""Collectives whose size is that of one member's part."""
MOST_LINKS = 8
"""Last nodes of a step that the first ones of the next wait for."""


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """A template, and what it takes to draw others with the same nodes."""

    template: Template
    keys: Ints
    """The channel of each message: `cosmic.synthetic.tags`."""
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
    structure: Structure,
    counts: Mapping[int, int],
    alone: Set[int],
    drawing: tuple[Ints, np.random.Generator, int | None],
) -> Made:
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
    return Made(found, keys[rows], role, source, made)


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
            link(lists_of(start, row, source), source, made, rows)
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
