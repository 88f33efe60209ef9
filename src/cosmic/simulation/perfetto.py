"""Write a timeline in Chrome's trace format, which Perfetto opens.

Spans are complete events (X), metadata (M) names tracks and processes, arrows are flows (s, f) bound to the spans that
they join, counters are C. Times are microseconds. Spans on the critical path have the argument `critical`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.files import replacing
from cosmic.simulation.timeline import CLASSES, Timeline
from cosmic.traces.trace import ABSENT, CollectiveType

BATCH = 10_000
"""Events per write."""
COLLECTIVES = {int(kind): kind.name.lower() for kind in CollectiveType}


def write_timeline(timeline: Timeline, path: str | Path, where: str = "file") -> None:
    """Write *timeline* to *path*; messages name the file by *where*."""
    write_events(events(timeline), {"reading": timeline.reading}, "ns", path, where)


def write_events(lines: Iterator[str], about: Mapping[str, Any], unit: str, path: str | Path, where: str) -> None:
    """Write events, each as JSON, `BATCH` at a time; *about* says something of all, and *unit* how to show times."""
    with replacing(path, where, durable=False) as beside, beside.open("w", encoding="utf-8") as file:
        file.write(f'{{"displayTimeUnit": "{unit}", "otherData": {json.dumps(about)}, "traceEvents": [\n')
        separator = ""
        while batch := list(islice(lines, BATCH)):
            file.write(separator + ",\n".join(batch))
            separator = ",\n"
        file.write("\n]}\n")


def events(timeline: Timeline) -> Iterator[str]:
    """Yield the events of a timeline, each as JSON."""
    yield from map(_compact, _names(timeline))
    yield from _spans(timeline)
    yield from map(_compact, _flows(timeline))
    yield from map(_compact, _counters(timeline))


_compact = json.JSONEncoder(separators=(",", ":")).encode


def _names(timeline: Timeline) -> Iterator[dict[str, Any]]:
    for place, process in enumerate(timeline.processes):
        name = process.name + (f" (×{process.ranks:,})" if process.ranks > 1 else "")
        yield {"ph": "M", "name": "process_name", "pid": place, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": place, "args": {"sort_index": place}}
    for place, track in enumerate(timeline.tracks):
        common = {"ph": "M", "pid": track.process, "tid": place + 1}
        yield common | {"name": "thread_name", "args": {"name": track.name}}
        yield common | {"name": "thread_sort_index", "args": {"sort_index": place}}


def _spans(timeline: Timeline) -> Iterator[str]:
    """Yield spans; there may be millions, so each is formatted by hand."""
    spans = timeline.spans
    where = [f'"pid":{track.process},"tid":{place + 1}' for place, track in enumerate(timeline.tracks)]
    what = [f'"cat":"{name}"' for name in CLASSES]
    columns = (spans.track, spans.name, spans.kind, spans.start_ns, spans.duration_ns)
    for first in range(0, spans.count, BATCH):
        part = slice(first, first + BATCH)
        rows = zip(*(column[part].tolist() for column in columns), _arguments(timeline, part), strict=True)
        for track, name, kind, start, duration, arguments in rows:
            text = _compact(timeline.names[name])
            yield (
                f'{{"ph":"X","name":{text},{what[kind]},{where[track]},"ts":{start / 1000},"dur":{duration / 1000}'
                f"{arguments}}}"
            )


def _arguments(timeline: Timeline, part: slice) -> list[str]:
    """Return the arguments of some spans: whether they are critical, and the attributes of their nodes."""
    critical = timeline.spans.critical[part].tolist()
    found = [['"critical":true'] if each else [] for each in critical]
    for name, column in timeline.details.items():
        for arguments, value in zip(found, column[part].tolist(), strict=True):
            if value == ABSENT:
                continue
            if name != "comm_type":
                arguments.append(f'"{name}":{value}')
            elif value in COLLECTIVES:
                arguments.append(f'"collective":"{COLLECTIVES[value]}"')
    return [f',"args":{{{",".join(arguments)}}}' if arguments else "" for arguments in found]


def _flows(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """Yield both ends of every arrow, each within its span."""
    spans, flows = timeline.spans, timeline.flows
    process = [track.process for track in timeline.tracks]
    start, last = spans.start_ns, np.maximum(spans.start_ns, spans.end_ns - 1)
    arrives = last[flows.target]
    leaves = np.maximum(start[flows.source], np.minimum(last[flows.source], arrives))
    tracks = spans.track[flows.source], spans.track[flows.target]
    rows = zip(*(column.tolist() for column in (*tracks, leaves, arrives)), strict=True)
    for number, (source, target, leaving, arriving) in enumerate(rows, start=1):
        common = {"name": "message", "cat": "message", "id": number}
        yield common | {"ph": "s", "pid": process[source], "tid": source + 1, "ts": leaving / 1000}
        yield common | {"ph": "f", "bp": "e", "pid": process[target], "tid": target + 1, "ts": arriving / 1000}


def _counters(timeline: Timeline) -> Iterator[dict[str, Any]]:
    for counter in timeline.counters:
        name = f"{counter.name} [{counter.unit}]"
        for time, value in zip(counter.times_ns.tolist(), counter.values.tolist(), strict=True):
            yield {"ph": "C", "name": name, "pid": counter.process, "ts": time / 1000, "args": {"value": value}}
