"""Jobs to fit models on: small ones, of nodes stated here, and random ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from cosmic.traces.trace import CollectiveType, NodeType, RankTrace, TraceSet, template_of

COMP, SEND, RECEIVE, COLLECTIVE = NodeType.COMP, NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL
Given = tuple[TraceSet, dict[str, tuple[int, ...]]]
Rows = list[dict[str, Any]]


def layers(count: int, ranks: int = 4) -> Given:
    """Return a step of *count* layers: forward in their order, backward in reverse, then the sum of all gradients.

    A backward pass needs its layer's forward pass, and the sum all backward passes.
    """
    rows: Rows = [{"id": 0, "type": COMP, "name": "embedding", "duration_us": 7}]
    for layer in range(count):
        rows.append({"id": len(rows), "type": COMP, "name": f"forward{layer}", "duration_us": 10, "data": [layer]})
    rows.append({"id": len(rows), "type": COMP, "name": "loss", "duration_us": 3, "data": [count]})
    for layer in reversed(range(count)):
        waits = [len(rows) - 1, layer + 1]
        rows.append({"id": len(rows), "type": COMP, "name": f"backward{layer}", "duration_us": 20, "data": waits})
    waits = list(range(count + 2, 2 * count + 2))
    gradient = {"comm_type": CollectiveType.ALL_REDUCE, "comm_size": 4096, "group": 0}
    rows.append({"id": len(rows), "type": COLLECTIVE, "name": "gradients", "data": waits, **gradient})
    template = template_of(rows)
    traces = tuple(RankTrace(template, (str(1 + rank % 2),), (), rank) for rank in range(ranks))
    return TraceSet(traces), {str(1 + first): tuple(range(first, ranks, 2)) for first in range(min(2, ranks))}


def pipeline(microbatches: int, width: int = 2) -> Given:
    """Return two stages of *width* ranks each that alternate forward and backward passes, the first one ahead."""
    first, second = _Stage(), _Stage()
    ahead = 1
    for step in range(microbatches + ahead):
        if step < microbatches:
            first.compute(f"forward{step}", 10)
            first.message(SEND, f"activations{step}", step, 1000)
        if step >= ahead:
            first.message(RECEIVE, f"gradients{step - ahead}", 100 + step - ahead, 500)
            first.compute(f"backward{step - ahead}", 20)
    for step in range(microbatches):
        second.message(RECEIVE, f"activations{step}", step, 1000)
        second.compute(f"forward{step}", 10)
        second.compute(f"backward{step}", 20)
        second.message(SEND, f"gradients{step}", 100 + step, 500)
    for stage in (first, second):
        stage.total("sum")
    templates = [template_of(stage.rows) for stage in (first, second)]
    traces = []
    for rank in range(2 * width):
        place = rank // width
        other = rank + width if place == 0 else rank - width
        traces.append(RankTrace(templates[place], (str(place + 1),), (other,), rank))
    return TraceSet(tuple(traces)), {"1": tuple(range(width)), "2": tuple(range(width, 2 * width))}


class _Stage:
    """Nodes, each of which waits for the one before it."""

    def __init__(self) -> None:
        self.rows: Rows = []

    def _add(self, **row: Any) -> None:
        self.rows.append({"id": len(self.rows), "data": [len(self.rows) - 1] if self.rows else [], **row})

    def compute(self, name: str, micros: int) -> None:
        self._add(type=COMP, name=name, duration_us=micros)

    def message(self, side: NodeType, name: str, tag: int, size: int) -> None:
        self._add(type=side, name=f"{name}.{side.name}", comm_tag=tag, comm_size=size, peer=0)

    def total(self, name: str) -> None:
        self._add(type=COLLECTIVE, name=name, comm_type=CollectiveType.ALL_REDUCE, comm_size=64, group=0)


@st.composite
def random_jobs(draw: st.DrawFn) -> Given:
    """Return a job on a mesh of two axes, with blocks that repeat, some of them with mistakes, and any dependencies."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    inner, outer = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    ranks = inner * outer
    kinds: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 4))):
        block = [_random_kind(rng, ranks) for _ in range(draw(st.integers(1, 5)))]
        for _ in range(draw(st.integers(1, 4))):
            kinds += block
            if rng.random() < 0.2:
                kinds.append(_random_kind(rng, ranks))
    rows = _random_rows(kinds, rng)
    template = template_of(rows)
    along = [tuple(range(first * inner, (first + 1) * inner)) for first in range(outer)]
    across = [tuple(range(first, ranks, inner)) for first in range(inner)]
    groups = {str(place + 1): members for place, members in enumerate([*along, *across])}
    traces = tuple(
        RankTrace(
            template,
            (str(1 + rank // inner), str(1 + outer + rank % inner)),
            ((rank + inner) % ranks, (rank - inner) % ranks),
            rank,
        )
        for rank in range(ranks)
    )
    return TraceSet(traces), groups


def _random_kind(rng: np.random.Generator, ranks: int) -> dict[str, Any]:
    name = str(rng.choice(["", "attention", "mlp", "norm"]))
    kind = int(rng.integers(4 if ranks > 1 else 3))
    if kind == 1:
        size, group = int(rng.integers(1, 2000)), int(rng.integers(-1, 2))
        return {"type": COLLECTIVE, "name": name, "comm_type": 0, "comm_size": size, "group": group}
    if kind == 3:
        return {"type": SEND, "name": name, "comm_size": int(rng.integers(1, 2000)), "peer": 0}
    return {"type": COMP, "name": name, "num_ops": int(rng.integers(1, 10**9)), "duration_us": int(rng.integers(50))}


def _random_rows(kinds: Rows, rng: np.random.Generator) -> Rows:
    """Return nodes of *kinds*, a receive after each send, with dependencies along a random order."""
    rows: Rows = []
    for kind in kinds:
        rows.append({**kind, "id": 3 * len(rows)})
        if kind["type"] == SEND:
            rows[-1]["comm_tag"] = len(rows)
            rows.append({**rows[-1], "id": 3 * len(rows), "type": RECEIVE, "peer": 1})
    place = rng.permutation(len(rows)) if rng.random() < 0.3 else np.arange(len(rows))
    for at, row in enumerate(rows):
        before = np.flatnonzero(place < place[at])
        wanted = rng.permutation(before)[: int(rng.integers(4))].tolist()
        row[str(rng.choice(["data", "ctrl"]))] = [3 * each for each in wanted]
    return rows
