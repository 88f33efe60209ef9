"""The timeline of a step, the same value for both engines, and its file.

A process is a rank or a pipeline stage, and stands for all that do the same. Its tracks hold spans that do not overlap.
Times are whole nanoseconds, so that one span's end can equal another's start.

In the file, which Perfetto opens (`cosmic.base.timelines`), spans on the critical path have the argument `critical`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from cosmic.base.timelines import BATCH, Arrow, Sample, TimelineRows, TimelineSpan, Track, write_rows
from cosmic.traces.trace import ABSENT, CollectiveType

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
SpanClass: TypeAlias = Literal["compute", "exposed", "hidden", "idle", "memory", "optimizer", "other"]
CLASSES: tuple[SpanClass, ...] = ("compute", "exposed", "hidden", "idle", "memory", "optimizer", "other")
"""Classes of spans, by code. `exposed` communication blocks computation; `hidden` communication is overlapped."""
CLASS_CODES: dict[SpanClass, int] = {name: code for code, name in enumerate(CLASSES)}
PASSIVE_CLASSES = (CLASS_CODES["hidden"], CLASS_CODES["idle"])
"""Classes that are never on the critical path."""


@dataclass(frozen=True, slots=True)
class TimelineProcess:
    """A rank or a stage, and the number of ranks that do the same."""

    name: str
    ranks: int


@dataclass(frozen=True, slots=True)
class TimelineTrack:
    """A row of a process."""

    process: int
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class TimelineSpans:
    """Arrays of one length, sorted by track and start."""

    track: npt.NDArray[np.int32]
    name: npt.NDArray[np.int32]
    kind: npt.NDArray[np.uint8]
    """Indices into `CLASSES`."""
    start_ns: Ints
    duration_ns: Ints
    critical: npt.NDArray[np.bool_]
    """Whether each is on the critical path: had it taken longer, so would the step."""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.track)

    @property
    def end_ns(self) -> Ints:
        """When each ends."""
        return self.start_ns + self.duration_ns


@dataclass(frozen=True, slots=True, eq=False)
class TimelineFlows:
    """Arrows between spans, by index."""

    source: npt.NDArray[np.int32]
    target: npt.NDArray[np.int32]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.source)


@dataclass(frozen=True, slots=True, eq=False)
class Counter:
    """A quantity over time: each value holds from its time until the next."""

    process: int
    name: str
    unit: str
    most: float | None
    """Its upper limit, where known."""
    times_ns: Ints
    values: Floats


@dataclass(frozen=True, slots=True)
class TimelineTotals:
    """How the process that bounds the step spends its time: compute, exposed and idle add up to the step."""

    compute_s: float
    """Computation, the optimizer included."""
    exposed_s: float
    """Exposed communication of the process itself."""
    hidden_s: float
    """Communication that computation overlaps."""
    idle_s: float
    """Neither: it waits for other stages, or for outer memory, or is launch-bound."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Timeline:
    """The timeline of a step."""

    engine: Literal["analytic", "event"]
    duration_ns: int
    processes: tuple[TimelineProcess, ...]
    tracks: tuple[TimelineTrack, ...]
    names: Sequence[str]
    """Names of spans, by code."""
    spans: TimelineSpans
    flows: TimelineFlows
    counters: tuple[Counter, ...]
    totals: TimelineTotals
    reading: str
    """One sentence: what is drawn, and what is left out."""
    details: Mapping[str, Ints] = field(default_factory=dict)
    """Attributes of each span, for trace viewers; -1 where absent."""

    @property
    def duration_s(self) -> float:
        """Seconds of the step."""
        return self.duration_ns / 1e9


# ---- building


@dataclass(slots=True)
class TimelineDrawing:
    """Collects spans in any order, on tracks that are created as needed; `finish` sorts them."""

    tracks: dict[tuple[int, str], int] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    columns: list[tuple[Ints, Ints, Ints, Ints, Ints]] = field(default_factory=list)
    """Tracks, names, classes, starts and ends."""
    count: int = 0
    arrows: list[tuple[Ints, Ints]] = field(default_factory=list)
    links: list[tuple[Ints, Ints]] = field(default_factory=list)
    """Pairs of consecutive segments of one span."""
    details: dict[str, list[tuple[int, Ints]]] = field(default_factory=lambda: defaultdict(list))

    def track(self, process: int, name: str) -> int:
        """Return the number of a track."""
        return self.tracks.setdefault((process, name), len(self.tracks))

    def name(self, text: str) -> int:
        """Return the code of a name."""
        return self.names.setdefault(text, len(self.names))

    def add(self, track: Ints | int, name: Ints | int, kind: Ints | SpanClass, start_ns: Ints, end_ns: Ints) -> Ints:
        """Draw spans; return their numbers."""
        size = len(start_ns)
        code = CLASS_CODES[kind] if isinstance(kind, str) else kind
        wide = [np.broadcast_to(np.asarray(values, np.int64), size) for values in (track, name, code)]
        self.columns.append((wide[0], wide[1], wide[2], start_ns, end_ns))
        first, self.count = self.count, self.count + size
        return np.arange(first, self.count)

    def detail(self, name: str, spans: Ints, values: Ints) -> None:
        """Add an attribute to *spans*, whose numbers are consecutive."""
        if len(spans):
            self.details[name].append((int(spans[0]), values))

    def flow(self, source: Ints, target: Ints) -> None:
        """Draw arrows between spans, by number."""
        self.arrows.append((source, target))

    def link(self, source: Ints, target: Ints) -> None:
        """Link segments of one span, by number."""
        self.links.append((source, target))

    def finish(
        self,
    ) -> tuple[tuple[TimelineTrack, ...], tuple[str, ...], TimelineSpans, TimelineFlows, dict[str, Ints]]:
        """Return tracks in the order of processes, names, spans with the critical path marked, arrows and details."""
        track, name, kind, start, end = self.joined()
        track, owners = self._split_tracks(track, start, end)
        used = np.unique(track)
        position = np.empty(len(owners), np.int64)
        rank = sorted(used.tolist(), key=lambda number: owners[number])
        position[rank] = np.arange(len(rank))
        track = position[track]
        tracks = tuple(TimelineTrack(owners[number][0], _track_name(*owners[number][2:])) for number in rank)
        order = np.lexsort((end, start, track))
        moved = np.empty(self.count, np.int64)
        moved[order] = np.arange(self.count)
        source, target = _renumber_pairs(self.arrows, moved)
        linked = _renumber_pairs(self.links, moved)
        track, name, kind, start, end = (column[order] for column in (track, name, kind, start, end))
        process_of = np.array([drawn.process for drawn in tracks], np.int64)[track] if tracks else track
        critical = critical_path(
            process_of, kind, start, end, (np.append(source, linked[0]), np.append(target, linked[1]))
        )
        spans = TimelineSpans(
            track.astype(np.int32), name.astype(np.int32), kind.astype(np.uint8), start, end - start, critical
        )
        flows = TimelineFlows(source.astype(np.int32), target.astype(np.int32))
        return tracks, tuple(self.names), spans, flows, self._sorted_details(order)

    def joined(self) -> list[Ints]:
        """Return the columns of all spans so far: tracks, names, classes, starts and ends."""
        empty = np.zeros(0, np.int64)
        return [
            np.concatenate([column[index] for column in self.columns] or [empty]).astype(np.int64) for index in range(5)
        ]

    def _sorted_details(self, order: Ints) -> dict[str, Ints]:
        """Return the details of all spans, in their final order."""
        details = {}
        for name, slices in self.details.items():
            column = np.full(self.count, -1, np.int64)
            for first, values in slices:
                column[first : first + len(values)] = values
            details[name] = column[order]
        return details

    def _split_tracks(self, track: Ints, start: Ints, end: Ints) -> tuple[Ints, list[tuple[int, int, str, int]]]:
        """Return the track of each span; a track with overlapping spans becomes several.

        Each track is also described by its process, its index there, its name and its number among several.
        """
        owners = [(process, index, name, 1) for index, (process, name) in enumerate(self.tracks)]
        track = track.copy()
        order = np.lexsort((end, start, track))
        bounds = np.searchsorted(track[order], np.arange(len(owners) + 1))
        for number, (process, row, name, _) in enumerate(tuple(owners)):
            rows = order[bounds[number] : bounds[number + 1]]
            if not len(rows) or (start[rows][1:] >= end[rows][:-1]).all():
                continue
            subtracks = subtracks_of(start[rows], end[rows])
            more = range(2, int(subtracks.max()) + 2)
            numbers = np.array([number, *range(len(owners), len(owners) + len(more))])
            owners += [(process, row, name, subtrack) for subtrack in more]
            track[rows] = numbers[subtracks]
        return track, owners


def _renumber_pairs(pairs: Sequence[tuple[Ints, Ints]], moved: Ints) -> tuple[Ints, Ints]:
    """Return pairs of spans by their new numbers."""
    empty = np.zeros(0, np.int64)
    source, target = (moved[np.concatenate([empty, *(pair[side] for pair in pairs)])] for side in (0, 1))
    return source, target


def _track_name(name: str, subtrack: int) -> str:
    return name if subtrack == 1 else f"{name} {subtrack}"


def subtracks_of(start: Ints, end: Ints) -> Ints:
    """Return the subtrack of each span, in order of start: the first, of as few as needed, with no overlap.

    >>> subtracks_of(np.array([0, 1, 4, 5]), np.array([4, 6, 5, 7])).tolist()
    [0, 1, 0, 0]
    """
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    subtracks = np.empty(len(start), np.int64)
    used = 0
    for index, (begun, ended) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while busy and busy[0][0] <= begun:
            heappush(free, heappop(busy)[1])
        if free:
            subtrack = heappop(free)
        else:
            subtrack, used = used, used + 1
        heappush(busy, (ended, subtrack))
        subtracks[index] = subtrack
    return subtracks


# ---- critical path


def critical_path(process: Ints, kind: Ints, start: Ints, end: Ints, flows: tuple[Ints, Ints]) -> npt.NDArray[np.bool_]:
    """Return which spans are on the critical path.

    The path is walked back from the last end. A span's predecessor is the source of an arrow or link to it, or else the
    last span of its process that ended by then. Overlapped communication and idle time are never on the path.

    >>> one = np.array([0, 0, 1]), np.array([0, 0, 1]), np.array([0, 5, 6]), np.array([5, 6, 9])
    >>> critical_path(*one, (np.array([0]), np.array([2]))).tolist()
    [True, False, True]
    """
    marked = np.zeros(len(start), bool)
    active = np.flatnonzero(~np.isin(kind, PASSIVE_CLASSES))
    if not len(active):
        return marked
    local = active[np.lexsort((active, start[active], end[active], process[active]))]
    ends: dict[int, tuple[list[int], list[int]]] = {}
    for owner in np.unique(process[local]).tolist():
        rows = local[process[local] == owner]
        ends[owner] = end[rows].tolist(), rows.tolist()
    brought: dict[int, int] = {}
    for source, target in zip(flows[0].tolist(), flows[1].tolist(), strict=True):
        latest = brought.get(target)
        if latest is None or end[source] > end[latest]:
            brought[target] = source
    # Mark the path from the last end to the beginning
    process_of, start_ns, end_ns = (process, start, end)
    last = max((rows[-1] for _, rows in ends.values()), key=lambda row: (end_ns[row], row))
    span: int | None = last
    while span is not None and not marked[span]:
        marked[span] = True
        span = (
            brought[span]
            if span in brought
            else _last_span_before(ends[int(process_of[span])], int(start_ns[span]), marked)
        )
    return marked


def _last_span_before(ends: tuple[list[int], list[int]], moment: int, marked: npt.NDArray[np.bool_]) -> int | None:
    """Return the last span of a process that ended by *moment*, if any."""
    times, rows = ends
    index = bisect_right(times, moment) - 1
    while index >= 0 and marked[rows[index]]:  # a span of no duration ends where it begins
        index -= 1
    return rows[index] if index >= 0 else None


# ---- arithmetic


def merge_spans(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return the union of the spans, as disjoint spans.

    >>> [each.tolist() for each in merge_spans(np.array([2, 0, 10]), np.array([6, 4, 11]))]
    [[0, 10], [6, 11]]
    """
    real = end > start
    order = np.argsort(start[real], kind="stable")
    begun, ended = start[real][order], np.maximum.accumulate(end[real][order])
    if not len(begun):
        return begun, ended
    breaks = np.flatnonzero(begun[1:] > ended[:-1]) + 1
    return begun[np.concatenate([[0], breaks])], ended[np.concatenate([breaks - 1, [len(ended) - 1]])]


def accumulate_levels(times_ns: Ints, changes: Floats) -> tuple[Ints, Floats]:
    """Return the times and levels of a quantity that starts from 0; changes at one moment are added.

    >>> [each.tolist() for each in accumulate_levels(np.array([5, 0, 5, 9]), np.array([1.0, 2.0, -2.0, -1.0]))]
    [[0, 5, 9], [2.0, 1.0, 0.0]]
    """
    order = np.argsort(times_ns, kind="stable")
    times, levels = times_ns[order], np.cumsum(changes[order])
    last = np.ones(len(times), bool)
    last[:-1] = times[1:] > times[:-1]
    return times[last], levels[last]


# ---- The timeline row by row, as its file has it

COLLECTIVE_NAMES = {int(kind): kind.name.lower() for kind in CollectiveType}


def write_timeline(timeline: Timeline, path: str | Path, where: str = "file") -> None:
    """Write *timeline* for Perfetto to *path*; messages name the file by *where*."""
    rows = TimelineRows(
        about={"reading": timeline.reading},
        unit="ns",
        processes={
            index: process.name + (f" (×{process.ranks:,})" if process.ranks > 1 else "")
            for index, process in enumerate(timeline.processes)
        },
        tracks=[Track(track.process, track.name, index + 1) for index, track in enumerate(timeline.tracks)],
        spans=_span_rows(timeline),
        arrows=_arrow_rows(timeline),
        samples=_counter_rows(timeline),
    )
    write_rows(rows, path, where)


def _span_rows(timeline: Timeline) -> Iterator[TimelineSpan]:
    spans, names = timeline.spans, timeline.names
    columns = (spans.track, spans.name, spans.kind, spans.start_ns / 1000, spans.duration_ns / 1000)
    for first in range(0, spans.count, BATCH):
        part = slice(first, first + BATCH)
        rows = zip(*(column[part].tolist() for column in columns), _span_details(timeline, part), strict=True)
        for track, name, kind, start, duration, details in rows:
            yield TimelineSpan(track, names[name], CLASSES[kind], start, duration, details)


def _span_details(timeline: Timeline, part: slice) -> list[dict[str, Any]]:
    """Return what is known of some spans: whether they are critical, and the attributes of their nodes."""
    listed: list[dict[str, Any]] = [
        {"critical": True} if critical else {} for critical in timeline.spans.critical[part].tolist()
    ]
    for name, column in timeline.details.items():
        for details, value in zip(listed, column[part].tolist(), strict=True):
            if name != "comm_type":
                if value != ABSENT:
                    details[name] = value
            elif value in COLLECTIVE_NAMES:
                details["collective"] = COLLECTIVE_NAMES[value]
    return listed


def _arrow_rows(timeline: Timeline) -> Iterator[Arrow]:
    """Yield both ends of every arrow, each within its span."""
    spans, flows = timeline.spans, timeline.flows
    start, last = spans.start_ns, np.maximum(spans.start_ns, spans.end_ns - 1)
    arrives = last[flows.target]
    leaves = np.maximum(start[flows.source], np.minimum(last[flows.source], arrives))
    columns = (spans.track[flows.source], leaves / 1000, spans.track[flows.target], arrives / 1000)
    yield from map(Arrow, *(column.tolist() for column in columns))


def _counter_rows(timeline: Timeline) -> Iterator[Sample]:
    for counter in timeline.counters:
        name = f"{counter.name} [{counter.unit}]"
        for time, value in zip((counter.times_ns / 1000).tolist(), counter.values.tolist(), strict=True):
            yield Sample(counter.process, name, time, {"value": value})
