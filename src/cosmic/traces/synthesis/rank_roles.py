"""Roles: ranks that run the same nodes, with their groups and peers, made fit for a model.

What no simulator could run is mended here, and said: dependencies on nodes that are not there are left out, and nodes
that lack what their type needs become compute of the same duration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from string import digits
from typing import Any

import numpy as np

from cosmic.base.errors import require
from cosmic.traces.comm_groups import ALL_RANKS, known_groups
from cosmic.traces.dependencies import dependencies_of, topological_order
from cosmic.traces.trace import ABSENT, CollectiveType, Ints, NodeType, Template, TraceSet
from cosmic.traces.trace_checks import LAST_COLLECTIVE, LAST_TYPE, NEEDED, check_traces

_NO_DIGITS = str.maketrans("", "", digits)
FEW_SIZES = 4
"""Amounts belong to a node's class if they make at most this many times as many classes."""
AMOUNTS = ("num_ops", "tensor_size", "comm_size")
STATED = ("type", "on_cpu", "comm_type", "group", "peer", "involved_dims", "comm_priority", "stream", "kernel")


@dataclass(frozen=True, eq=False)
class Role:
    """Nodes that several ranks run; ids are rows."""

    templates: tuple[Template, ...]
    """Of one structure; they differ in amounts and durations only."""
    ranks: tuple[int, ...]
    groups: tuple[tuple[str, ...], ...]
    """For each rank, the names of its groups, by the index in the column `group`."""
    peers: tuple[tuple[int, ...], ...]
    """For each rank, its peers, by the index in the column `peer`."""

    @property
    def template(self) -> Template:
        """The template of the first rank."""
        return self.templates[0]

    @cached_property
    def classes(self) -> Ints:
        """What kind of node each row is: type, collective, group, peer, name without numbers."""
        return number_node_classes(self.template)


def number_node_classes(template: Template) -> Ints:
    """Return a number for each node, equal for nodes of a kind.

    >>> from cosmic.traces.trace import template_of
    >>> rows = [{"id": 0, "type": 4, "name": "layer0"}, {"id": 1, "type": 4, "name": "layer1"}, {"id": 2, "type": 7}]
    >>> number_node_classes(template_of(rows)).tolist()
    [0, 0, 1]
    """
    classes = np.zeros(template.nodes, np.int64)
    numbers: dict[str, int] = {}
    words = np.array(
        [numbers.setdefault(name.translate(_NO_DIGITS), len(numbers)) for name in template.names], np.int64
    )
    for column in (*(getattr(template, name) for name in STATED), -words):
        classes = _join_classes(classes, column)
    sized = classes
    for name in AMOUNTS:
        sized = _join_classes(sized, getattr(template, name))
    few = len(np.unique(sized)) <= FEW_SIZES * len(np.unique(classes))
    return sized if few else classes


def _join_classes(classes: Ints, column: Ints) -> Ints:
    """Return classes that tell apart what either tells apart."""
    values, value_of = np.unique(column, return_inverse=True)
    return np.asarray(np.unique(classes * max(len(values), 1) + value_of, return_inverse=True)[1], np.int64)


# ------------------------------------------------------------------------------------------------ of a job


@dataclass(frozen=True, slots=True, eq=False)
class SourceJob:
    """A job that a model is fitted on."""

    traces: TraceSet
    """Mended."""
    groups: dict[str, tuple[int, ...]]
    """All groups by name, that of all ranks included."""
    roles: tuple[Role, ...]
    notes: tuple[str, ...]
    """What was mended."""

    @property
    def role_of(self) -> Ints:
        """The index of each rank's role."""
        role_of = np.zeros(len(self.traces.ranks), np.int64)
        for index, role in enumerate(self.roles):
            role_of[list(role.ranks)] = index
        return role_of


def source_job(traces: TraceSet, groups: Mapping[str, Sequence[int]] | None = None) -> SourceJob:
    """Return a job to fit a model on; raise a `SpecError` where its ranks contradict each other."""
    require(traces.nodes > 0, traces.where, 0, "has no nodes: there is nothing to fit")
    notes: Counter[str] = Counter()
    cleaned = {id(template): _mend_template(template, notes) for template in traces.templates()}
    mended = TraceSet(
        tuple(replace(rank, template=cleaned[id(rank.template)]) for rank in traces.ranks), where=traces.where
    )
    check_traces(mended, groups)
    members = known_groups(mended, groups)
    everyone = {name for name in ALL_RANKS if members[name] == members[ALL_RANKS[0]]}
    texts = tuple(f"{traces.where}: {count:,} {mended_things}" for mended_things, count in notes.items() if count)
    # Ranks with one role differ only in amounts and durations.
    ranks_of_roles: dict[bytes, list[int]] = {}
    keys: dict[int, bytes] = {}
    several = len(mended.templates()) > 1
    for number, trace in enumerate(mended.ranks):
        if id(trace.template) not in keys:
            keys[id(trace.template)] = _structure(trace.template) if several else b""
        ranks_of_roles.setdefault(keys[id(trace.template)], []).append(number)
    return SourceJob(mended, members, tuple(_role(mended, ranks, everyone) for ranks in ranks_of_roles.values()), texts)


def _mend_template(template: Template, notes: Counter[str]) -> Template:
    """Return a template whose ids are rows, that lacks nothing."""
    kind = template.type.copy()
    lacks = (kind <= NodeType.INVALID) | (kind > LAST_TYPE)
    collectives = kind == NodeType.COMM_COLL
    lacks |= collectives & (template.comm_type > LAST_COLLECTIVE)
    for node_type, columns in NEEDED.items():
        for column in columns:
            barrier = (column == "comm_size") & (template.comm_type == CollectiveType.BARRIER)
            lacks |= (kind == node_type) & (getattr(template, column) == ABSENT) & ~barrier
    kind[lacks] = NodeType.COMP
    notes["nodes lack what their type needs: they become compute of the same duration"] += int(lacks.sum())
    unstated = np.where(lacks, ABSENT, 0)
    communication: dict[str, Any] = {
        name: np.where(unstated == ABSENT, ABSENT, getattr(template, name))
        for name in ("comm_type", "comm_size", "comm_tag", "group", "peer", "involved_dims")
    }
    data, ctrl = (_rows_within(template, name, notes) for name in ("data", "ctrl"))
    ids: dict[str, Any] = {"id": np.arange(template.nodes), "type": kind, "start_ns": np.full(template.nodes, ABSENT)}
    lists: dict[str, Any] = {"data_start": data[0], "data_id": data[1], "ctrl_start": ctrl[0], "ctrl_id": ctrl[1]}
    recorded = replace(template, **ids, **communication, **lists)
    nodes = recorded.nodes
    if not len(recorded.ctrl_id) or len(topological_order(dependencies_of(recorded).within())) == nodes:
        return recorded
    bare = replace(recorded, ctrl_start=np.zeros(nodes + 1, np.int64), ctrl_id=np.empty(0, np.int64))
    order = topological_order(dependencies_of(bare).within())
    if len(order) < nodes:
        return recorded  # the cycle is one of data: no reader could run it
    position = np.empty(nodes, np.int64)
    position[order] = np.arange(nodes)
    owner = np.repeat(np.arange(nodes), np.diff(recorded.ctrl_start))
    forward = position[recorded.ctrl_id] < position[owner]
    notes["control dependencies that may close cycles are left out"] += int((~forward).sum())
    start = np.concatenate([[0], np.cumsum(np.bincount(owner[forward], minlength=nodes))])
    return replace(recorded, ctrl_start=start, ctrl_id=recorded.ctrl_id[forward])


def _rows_within(template: Template, name: str, notes: Counter[str]) -> tuple[Ints, Ints]:
    """Return the rows that each row depends on, as a list each, without absent ones and itself."""
    start, ids = getattr(template, f"{name}_start"), getattr(template, f"{name}_id")
    owner = np.repeat(np.arange(template.nodes), np.diff(start))
    rows = np.minimum(np.searchsorted(template.id, ids), template.nodes - 1)
    valid = (template.id[rows] == ids) & (rows != owner)
    notes["dependencies on absent nodes, or of nodes on themselves, are left out"] += int((~valid).sum())
    return np.concatenate([[0], np.cumsum(np.bincount(owner[valid], minlength=template.nodes))]), rows[valid]


def _structure(template: Template) -> bytes:
    """Return the structure that templates of one role share, as bytes."""
    lists = (template.data_start, template.data_id, template.ctrl_start, template.ctrl_id)
    # A message's or a collective's size belongs to the structure: members of a group must agree on it.
    unsized: dict[str, Any] = dict.fromkeys(AMOUNTS, np.full(template.nodes, ABSENT))
    columns = (number_node_classes(replace(template, **unsized)), template.comm_size, template.comm_tag)
    names = tuple(sorted({name.translate(_NO_DIGITS) for name in template.names}))
    return b"".join(np.ascontiguousarray(column).tobytes() for column in (*lists, *columns)) + repr(names).encode()


def _role(traces: TraceSet, ranks: Sequence[int], everyone: Set[str]) -> Role:
    """Return the role of *ranks*, in which indices that mean the same group or peer on every rank are one."""
    members = [traces.ranks[rank] for rank in ranks]
    groups, group_of = _merge_columns([member.groups for member in members], everyone)
    peers, peer_of = _merge_columns([member.peers for member in members], frozenset())
    changed = {}
    for template in {id(member.template): member.template for member in members}.values():
        columns: dict[str, Any] = {"group": group_of[template.group], "peer": peer_of[template.peer]}
        changed[id(template)] = replace(template, **columns)
    return Role(tuple(changed.values()), tuple(ranks), groups, peers)


def _merge_columns(of_ranks: Sequence[tuple[Any, ...]], left_out: Set[Any]) -> tuple[tuple[tuple[Any, ...], ...], Ints]:
    """Return the distinct values of each rank, and the new index of each column; the last entry is `ABSENT`.

    Columns that hold only what is *left_out* are absent, too.

    >>> _merge_columns([("a", "b", "a"), ("c", "d", "c")], {"b", "d"})
    ((('a',), ('c',)), array([ 0, -1,  0, -1]))
    """
    columns = list(zip(*of_ranks, strict=True))
    slots: dict[tuple[Any, ...], int] = {}
    new = [
        ABSENT if left_out >= set(values_of_ranks) else slots.setdefault(values_of_ranks, len(slots))
        for values_of_ranks in columns
    ]
    merged = tuple(tuple(column[rank] for column in slots) for rank in range(len(of_ranks)))
    return merged, np.array([*new, ABSENT], np.int64)
