"""Graphs to try traces on: rows of `template_of` with random dependencies."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from cosmic.traces.trace import NodeType, RankTrace, TraceSet, template_of

Rows = list[dict[str, Any]]


@st.composite
def graphs(draw: st.DrawFn, most: int = 12) -> Rows:
    """Draw nodes without a cycle, whose ids say nothing about their order."""
    count = draw(st.integers(1, most))
    ids = draw(st.lists(st.integers(0, 2**40) | st.integers(0, 40), min_size=count, max_size=count, unique=True))
    rows = []
    for place, node in enumerate(ids):
        data, ctrl = (draw(st.lists(st.sampled_from(ids[:place]), max_size=4)) if place else [] for _ in range(2))
        time = draw(st.integers(0, 9))
        rows.append({"id": node, "type": NodeType.COMP, "data": data, "ctrl": ctrl, "duration_us": time})
    return draw(st.permutations(rows))


def waits(rows: Rows) -> dict[int, set[int]]:
    """Return the ids that each node waits for."""
    return {row["id"]: {*row.get("data", ()), *row.get("ctrl", ())} for row in rows}


def one_rank(rows: Rows) -> TraceSet:
    """Return the job of a single rank."""
    return TraceSet((RankTrace(template_of(rows)),))


def comp(node: int, *data: int, **rest: Any) -> dict[str, Any]:
    """Return a compute node."""
    return {"id": node, "type": NodeType.COMP, "data": data, **rest}


def collective(node: int, kind: int = 0, size: int = 64, **rest: Any) -> dict[str, Any]:
    """Return a collective of a rank's first group."""
    return {"id": node, "type": NodeType.COMM_COLL, "comm_type": kind, "comm_size": size, "group": 0, **rest}


def send(node: int, tag: int = 0, size: int = 64, **rest: Any) -> dict[str, Any]:
    """Return a send to a rank's first peer."""
    return {"id": node, "type": NodeType.COMM_SEND, "comm_tag": tag, "comm_size": size, "peer": 0, **rest}


def receive(node: int, tag: int = 0, size: int = 64, **rest: Any) -> dict[str, Any]:
    """Return a receive from a rank's first peer."""
    return send(node, tag, size, **rest) | {"type": NodeType.COMM_RECV}
