"""Whether ranks wait for each other in a circle, seen from one rank of each role."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cosmic.synthetic.meshes import Bindings
from cosmic.traces.messages import SEND, messages_of
from cosmic.traces.order import Dependencies, dependencies_of, topological_order
from cosmic.traces.trace import Ints, NodeType, TraceSet


def deadlocks(traces: TraceSet, bindings: Bindings) -> bool:
    """Return whether nodes of different roles may wait for each other in a circle.

    Ranks of one role are one here. So a circle may be none among single ranks; there is none if this finds none.
    """
    of_role = [np.flatnonzero(bindings.role == role) for role in np.unique(bindings.role)]
    roles = [(traces.ranks[ranks[0]].template, ranks) for ranks in of_role]
    if len(roles) == 1:
        return False
    nodes = sum(template.nodes for template, _ in roles)
    starts = np.cumsum([0, *(template.nodes for template, _ in roles)])
    start_of = np.zeros(len(traces.ranks), np.int64)
    for (_, ranks), start in zip(roles, starts.tolist(), strict=False):
        start_of[ranks] = start
    late, early = [], []
    for (template, _), start in zip(roles, starts.tolist(), strict=False):
        dependencies = dependencies_of(template).within()
        late.append(dependencies.dependent + start)
        early.append(dependencies.row + start)
    sends, receives = _messages(traces, start_of)
    one = _merged(nodes, _collectives(traces, bindings, start_of))
    dependent, row = one[np.concatenate([*late, receives])], one[np.concatenate([*early, sends])]
    kept = dependent != row
    pairs = np.unique(dependent[kept] * nodes + row[kept])
    dependent, row = np.divmod(pairs, nodes)
    whole = Dependencies(nodes, dependent, row, row, np.zeros(len(row), bool))
    return bool(len(topological_order(whole)) < nodes)


def _messages(traces: TraceSet, start_of: Ints) -> tuple[Ints, Ints]:
    """Return sends and the receives that wait for them; tags are distinct on a route."""
    messages = messages_of(traces)
    sends, receives = np.flatnonzero(messages.side == SEND), np.flatnonzero(messages.side != SEND)
    first = np.lexsort((messages.row[sends], messages.tag[sends], messages.peer[sends], messages.rank[sends]))
    second = np.lexsort(
        (messages.row[receives], messages.tag[receives], messages.rank[receives], messages.peer[receives])
    )
    place = start_of[messages.rank] + messages.row
    return place[sends[first]], place[receives[second]]


def _collectives(traces: TraceSet, bindings: Bindings, start_of: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield nodes of different roles that are one collective."""
    everyone = tuple(range(len(traces.ranks)))
    seen = set()
    for name, members in ((None, everyone), *bindings.groups.items()):
        first: dict[int, int] = {}
        for rank in members:
            first.setdefault(int(bindings.role[rank]), rank)
        key = (name is None, tuple(sorted(first.values())), len(members))
        if len(first) < 2 or key in seen:
            continue
        seen.add(key)
        rows = [_rows(traces, rank, name) + start_of[rank] for rank in first.values()]
        for other in rows[1:]:
            yield rows[0], other


def _rows(traces: TraceSet, rank: int, name: str | None) -> Ints:
    trace = traces.ranks[rank]
    template = trace.template
    place = -1 if name is None else trace.groups.index(name) if name in trace.groups else -2
    return np.flatnonzero((template.type == NodeType.COMM_COLL) & (template.group == place))


def _merged(nodes: int, pairs: Iterator[tuple[Ints, Ints]]) -> Ints:
    """Return the node that stands for each: nodes that are one collective have one."""
    one = np.arange(nodes)
    for mine, theirs in pairs:
        np.minimum.at(one, theirs, one[mine])
    return one
