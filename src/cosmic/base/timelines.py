"""A timeline: who did what from when until when. Every simulation yields one, and this writes it for Perfetto.

The file is in Chrome's trace format. Spans are complete events (X), metadata (M) names tracks and processes, arrows are
flows (s, f) bound to the spans that they join, counters are C. All times in it are microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from cosmic.base.files import replace_file

BATCH = 10_000
"""Events per write."""
_compact = json.JSONEncoder(separators=(",", ":")).encode


class Track(NamedTuple):
    """A row of a process, whose spans do not overlap."""

    process: int
    name: str
    number: int
    """In the file, from 1 on."""


class TimelineSpan(NamedTuple):
    """What somebody did for a while."""

    track: int
    """Its place among the tracks."""
    name: str
    category: str
    begin_us: float
    lasting_us: float
    about: Mapping[str, Any] = {}


class Arrow(NamedTuple):
    """A message from one track, by place, to another."""

    source: int
    leaves_us: float
    target: int
    arrives_us: float


class Sample(NamedTuple):
    """What a counter of a process counts from a time on."""

    process: int
    name: str
    time_us: float
    about: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineRows:
    """A timeline row by row; of millions of rows, none need be in memory."""

    about: Mapping[str, Any]
    """What is true of all of it."""
    unit: Literal["ns", "ms"]
    """How viewers show times."""
    processes: Mapping[int, str]
    tracks: Sequence[Track]
    spans: Iterable[TimelineSpan]
    arrows: Iterable[Arrow] = ()
    samples: Iterable[Sample] = field(default=())


def write_rows(timeline: TimelineRows, path: str | Path, where: str = "file") -> None:
    """Write a timeline for Perfetto to *path*; messages name the file by *where*."""
    with replace_file(path, where, durable=False) as beside, beside.open("w", encoding="utf-8") as file:
        file.writelines(_file_parts(timeline))


def perfetto_text(timeline: TimelineRows) -> str:
    """Return what `write_rows` writes.

    >>> rows = TimelineRows(about={}, unit="ns", processes={}, tracks=[Track(0, "a", 1)], spans=[TimelineSpan(0, "x", "y", 0.0, 2.5)])
    >>> perfetto_text(rows).splitlines()[-2]
    '{"ph":"X","name":"x","cat":"y","pid":0,"tid":1,"ts":0.0,"dur":2.5}'
    """
    return "".join(_file_parts(timeline))


def _file_parts(timeline: TimelineRows) -> Iterator[str]:
    yield f'{{"displayTimeUnit": "{timeline.unit}", "otherData": {json.dumps(timeline.about)}, "traceEvents": [\n'
    lines, separator = _event_lines(timeline), ""
    while batch := list(islice(lines, BATCH)):
        yield separator + ",\n".join(batch)
        separator = ",\n"
    yield "\n]}\n"


def _event_lines(timeline: TimelineRows) -> Iterator[str]:
    """Yield the events of a timeline, each as JSON."""
    places = [{"pid": track.process, "tid": track.number} for track in timeline.tracks]
    for index, (process, name) in enumerate(timeline.processes.items()):
        yield _compact({"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}})
        yield _compact({"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": index}})
    for index, (track, place) in enumerate(zip(timeline.tracks, places, strict=True)):
        yield _compact({"ph": "M", **place, "name": "thread_name", "args": {"name": track.name}})
        yield _compact({"ph": "M", **place, "name": "thread_sort_index", "args": {"sort_index": index}})
    # Spans; there may be millions, so each is formatted by hand, and names, most of which recur, are encoded once
    encode, where = cache(_compact), [_compact(place)[1:-1] for place in places]
    for track_place, name, category, begin, lasting, about in timeline.spans:
        arguments = f',"args":{_compact(about)}' if about else ""
        kind = f'"name":{encode(name)},"cat":{encode(category)}'
        yield f'{{"ph":"X",{kind},{where[track_place]},"ts":{begin!r},"dur":{lasting!r}{arguments}}}'
    for number, arrow in enumerate(timeline.arrows, start=1):
        common = {"name": "message", "cat": "message", "id": number}
        yield _compact({**common, "ph": "s", **places[arrow.source], "ts": arrow.leaves_us})
        yield _compact({**common, "ph": "f", "bp": "e", **places[arrow.target], "ts": arrow.arrives_us})
    for process, name, time, about in timeline.samples:
        yield _compact({"ph": "C", "name": name, "pid": process, "ts": time, "args": about})
