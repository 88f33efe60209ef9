"""The baseline that a model of traces must beat: nodes drawn one by one.

Types follow each other as often as in the source; amounts are drawn column by column from all nodes of a type, and a
node depends on as many earlier nodes, any of them, as some node of the source does. All ranks run the same nodes; a
send goes along with the receive that it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.traces.synthesis.rank_roles import Role, SourceJob
from cosmic.traces.trace import ABSENT, Ints, NodeType, RankTrace, TraceSet, template_of

DRAWN = ("num_ops", "tensor_size", "duration_us", "duration_ns", "on_cpu", "comm_priority", "involved_dims")
SEND, RECEIVE = NodeType.COMM_SEND, NodeType.COMM_RECV


def resample(source: SourceJob, seed: int = 0) -> tuple[TraceSet, dict[str, tuple[int, ...]]]:
    """Return traces of about the source's length, and their groups."""
    rng = np.random.default_rng([seed, 2])
    pool = _Pool(source, rng)
    # Groups of which all members have the same index: ranks of all roles can use them alike
    names_of_ranks = _group_names_of_ranks(source)
    slots = []
    for index in range(min(len(rank_names) for rank_names in names_of_ranks)):
        own = [rank_names[index] for rank_names in names_of_ranks]
        if all(own[member] == name for name in set(own) for member in source.groups[name]):
            slots.append(index)
    ranks = len(source.traces.ranks)
    length = round(source.traces.nodes / ranks)
    rows: list[dict[str, Any]] = []
    # Each type is drawn after the one before it; a receive comes with its send.
    most = max(NodeType) + 1
    begin, follow = np.zeros(most), np.zeros((most, most))
    for role in source.roles:
        node_type = role.template.type
        begin[node_type[0]] += len(role.ranks)
        np.add.at(
            follow, (node_type, np.roll(node_type, -1)), len(role.ranks)
        )  # the first follows the last: nothing is the end
    drawn = _draw(begin, rng)
    node_types = [drawn]
    while len(node_types) < length:
        drawn = _draw(follow[drawn], rng)
        node_types.append(drawn)
    for kind in [drawn_type for drawn_type in node_types if drawn_type != RECEIVE]:
        rows += pool.rows(kind, len(rows), len(slots), ranks)
    template = template_of(rows)
    names, groups = _number_groups(source, slots)
    away = _distance(source.roles)
    traces = tuple(
        RankTrace(template, names[rank], ((rank + away) % ranks, (rank - away) % ranks), rank) for rank in range(ranks)
    )
    return TraceSet(traces, where="baseline"), groups


def _draw(weights: npt.NDArray[np.float64], rng: np.random.Generator) -> int:
    return int(np.searchsorted(np.cumsum(weights), rng.random() * weights.sum(), side="right"))


class _Pool:
    """Columns of all nodes of the source, to draw from."""

    def __init__(self, source: SourceJob, rng: np.random.Generator) -> None:
        self._rng = rng
        templates = [role.template for role in source.roles]
        self._columns = {
            name: np.concatenate([getattr(template, name) for template in templates])
            for name in (*DRAWN, "type", "comm_type", "comm_size")
        }
        degrees = [np.diff(template.data_start) + np.diff(template.ctrl_start) for template in templates]
        self._degree = np.concatenate(degrees)
        self._rows = {kind: np.flatnonzero(self._columns["type"] == kind) for kind in NodeType}

    def _pick(self, kind: int, name: str) -> int:
        return int(self._columns[name][self._rng.choice(self._rows[NodeType(kind)])])

    def rows(self, kind: int, number: int, slots: int, ranks: int) -> list[dict[str, Any]]:
        """Return a node of a type, or a send and its receive."""
        row: dict[str, Any] = {name: self._pick(kind, name) for name in DRAWN}
        row |= {"id": number, "type": kind, "data": self._waits(number)}
        if kind == SEND and ranks > 1:
            size = self._pick(kind, "comm_size")
            send = row | {"peer": 0, "comm_tag": number, "comm_size": size}
            receive = {"id": number + 1, "type": int(RECEIVE), "data": self._waits(number)}
            return [send, receive | {"peer": 1, "comm_tag": number, "comm_size": size}]
        if kind == NodeType.COMM_COLL:
            row |= {name: self._pick(kind, name) for name in ("comm_type", "comm_size")}
            row["group"] = int(self._rng.integers(slots)) if slots else ABSENT
        return [row]

    def _waits(self, number: int) -> list[int]:
        count = min(number, int(self._rng.choice(self._degree)))
        return sorted(self._rng.choice(number, size=count, replace=False).tolist()) if count else []


def _group_names_of_ranks(source: SourceJob) -> list[tuple[str, ...]]:
    names_of_ranks: list[tuple[str, ...]] = [()] * len(source.traces.ranks)
    for role in source.roles:
        for rank, names in zip(role.ranks, role.groups, strict=True):
            names_of_ranks[rank] = names
    return names_of_ranks


def _number_groups(source: SourceJob, slots: Sequence[int]) -> tuple[list[tuple[str, ...]], dict[str, tuple[int, ...]]]:
    """Return the names of each rank's groups, and the groups, named by numbers from 1."""
    own = [tuple(names[slot] for slot in slots) for names in _group_names_of_ranks(source)]
    number = {
        name: str(index + 1)
        for index, name in enumerate(dict.fromkeys(group_name for names in own for group_name in names))
    }
    groups = {number[name]: source.groups[name] for name in number}
    return [tuple(number[name] for name in names) for names in own], groups


def _distance(roles: Sequence[Role]) -> int:
    """Return how far apart the ranks of a message are, in most of the source's messages."""
    for role in roles:
        used: Ints = role.template.peer[role.template.type == SEND]
        if len(used):
            values, counts = np.unique(used, return_counts=True)
            return int(role.peers[0][int(values[np.argmax(counts)])]) - role.ranks[0]
    return 1
