"""What happened when, for a trace viewer: Chrome's trace format, which Perfetto opens.

A process is a rank that was simulated, with the ranks that it stands for; its tracks are the accelerator, the network,
receives and the CPU. Arrows lead from sends to receives.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.errors import SpecError
from cosmic.simulation.event.result import Played, Result
from cosmic.traces.trace import ABSENT, CollectiveType, NodeType

TRACKS = {"compute": 1, "communication": 2, "receive": 3, "memory": 4, "cpu": 5}
BATCH = 10_000
"""Events that are written at once."""


def write_timeline(result: Result, path: str | Path) -> None:
    """Write the course of a simulation to *path*."""
    try:
        with Path(path).open("w", encoding="utf-8") as file:
            file.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
            batch: list[str] = []
            separator = ""
            for event in events(result):
                batch.append(json.dumps(event, separators=(",", ":")))
                if len(batch) == BATCH:
                    file.write(separator + ",\n".join(batch))
                    separator, batch = ",\n", []
            file.write(separator * bool(batch) + ",\n".join(batch) + "\n]}\n")
    except OSError as error:
        raise SpecError("file", str(path), f"cannot be written: {error.strerror}") from None
    except ValueError:  # a null character, or half of a surrogate pair
        raise SpecError("file", str(path), "is no name that a file can have") from None


def events(result: Result) -> Iterator[dict[str, Any]]:
    """Yield the events of a timeline; times are microseconds."""
    entity_of = {rank: place for place, played in enumerate(result.played) for rank in played.ranks}
    for place, played in enumerate(result.played):
        yield from _names(place, played)
        yield from _spans(place, played)
    yield from _flows(result, entity_of)


def _names(place: int, played: Played) -> Iterator[dict[str, Any]]:
    first, alike = played.ranks[0], len(played.ranks)
    name = f"rank {first}" + (f" (and {alike - 1} alike)" if alike > 1 else "")
    yield {"ph": "M", "name": "process_name", "pid": place, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": place, "args": {"sort_index": first}}
    for track, number in TRACKS.items():
        yield {"ph": "M", "name": "thread_name", "pid": place, "tid": number, "args": {"name": track}}


def _track(kind: int, on_cpu: int) -> str:
    if on_cpu:
        return "cpu"
    if kind == NodeType.COMP:
        return "compute"
    if kind == NodeType.COMM_RECV:
        return "receive"
    return "memory" if kind in (NodeType.MEM_LOAD, NodeType.MEM_STORE) else "communication"


def _spans(place: int, played: Played) -> Iterator[dict[str, Any]]:
    template = played.template
    for row in np.flatnonzero(played.ended >= 0).tolist():
        begun, ended = int(played.begun[row]), int(played.ended[row])
        track = _track(int(template.type[row]), int(template.on_cpu[row]))
        yield {
            "ph": "X",
            "name": template.names[row] or f"node {template.id[row]}",
            "cat": track,
            "pid": place,
            "tid": TRACKS[track],
            "ts": begun / 1000,
            "dur": (ended - begun) / 1000,
            "args": _arguments(played, row),
        }


def _arguments(played: Played, row: int) -> dict[str, Any]:
    """Return what a viewer shows of a node: what it says itself."""
    template = played.template
    found: dict[str, Any] = {"node": int(template.id[row])}
    for name in ("num_ops", "tensor_size", "comm_size", "comm_tag"):
        value = int(getattr(template, name)[row])
        if value != ABSENT:
            found[name] = value
    kind = int(template.comm_type[row])
    if kind in set(CollectiveType):
        found["collective"] = CollectiveType(kind).name.lower()
    return found


def _flows(result: Result, entity_of: dict[int, int]) -> Iterator[dict[str, Any]]:
    """Yield an arrow for every send, from its beginning to the end of the receive that it is for."""
    waiting: dict[tuple[int, ...], deque[int]] = {}
    for place, played in enumerate(result.played):
        for row, peer, *message in _messages(played, NodeType.COMM_RECV, entity_of):
            waiting.setdefault((peer, place, *message), deque()).append(row)
    number = 0
    for place, played in enumerate(result.played):
        for row, target, *message in _messages(played, NodeType.COMM_SEND, entity_of):
            rows = waiting.get((place, target, *message))
            if not rows:
                continue
            received = rows.popleft()
            number += 1
            common = {"name": "message", "cat": "message", "id": number}
            start, end = int(played.begun[row]), int(result.played[target].ended[received])
            yield common | {"ph": "s", "pid": place, "tid": TRACKS["communication"], "ts": start / 1000}
            yield common | {"ph": "f", "bp": "e", "pid": target, "tid": TRACKS["receive"], "ts": end / 1000}


def _messages(played: Played, kind: NodeType, entity_of: dict[int, int]) -> Iterator[tuple[int, int, int, int]]:
    """Yield sends or receives as they began: row, peer, tag, size."""
    template = played.template
    rows = np.flatnonzero((template.type == kind) & (played.ended >= 0) & (template.peer != ABSENT))
    for row in rows[np.argsort(played.begun[rows], kind="stable")].tolist():
        peer = entity_of.get(played.peers[int(template.peer[row])], ABSENT)
        yield row, peer, int(template.comm_tag[row]), int(template.comm_size[row])
