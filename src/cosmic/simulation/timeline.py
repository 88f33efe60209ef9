"""What happens when in a step: one value, whichever engine found it.

A process is a rank or a pipeline stage, with those that do the same; its tracks hold spans, which do not overlap on a
track. Times are whole nanoseconds, so that what ends and what begins at one moment can be told to meet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Class: TypeAlias = Literal["compute", "exposed", "hidden", "idle", "memory", "optimizer", "other"]
CLASSES: tuple[Class, ...] = ("compute", "exposed", "hidden", "idle", "memory", "optimizer", "other")
"""What spans are, by code. Exposed communication is waited for; hidden communication runs beside computation."""
CODE: dict[Class, int] = {name: code for code, name in enumerate(CLASSES)}
PASSIVE = (CODE["hidden"], CODE["idle"])
"""Nothing waits for these."""


@dataclass(frozen=True, slots=True)
class Process:
    """A rank or a stage, and how many ranks do the same."""

    name: str
    ranks: int


@dataclass(frozen=True, slots=True)
class Track:
    """A row of a process."""

    process: int
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Arrays of one length, sorted by track and start."""

    track: npt.NDArray[np.int32]
    name: npt.NDArray[np.int32]
    kind: npt.NDArray[np.uint8]
    """Codes of `CLASSES`."""
    start_ns: Ints
    duration_ns: Ints
    critical: npt.NDArray[np.bool_]
    """Which lie on the critical path: had one taken longer, so would the step."""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.track)

    @property
    def end_ns(self) -> Ints:
        """When each ends."""
        return self.start_ns + self.duration_ns


@dataclass(frozen=True, slots=True, eq=False)
class Flows:
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
    """What it can be at most, where that is known."""
    times_ns: Ints
    values: Floats


@dataclass(frozen=True, slots=True)
class Totals:
    """How the process that bounds the step spends it: compute, exposed and idle add up to it."""

    compute_s: float
    """While it computes, the optimizer included."""
    exposed_s: float
    """While it waits for communication of its own."""
    hidden_s: float
    """While it both computes and communicates."""
    idle_s: float
    """While it does neither: it waits for other stages, for its host or for outer memory."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Timeline:
    """What happens when in a step."""

    engine: Literal["analytic", "event"]
    duration_ns: int
    processes: tuple[Process, ...]
    tracks: tuple[Track, ...]
    names: Sequence[str]
    """Of spans, by code."""
    spans: Spans
    flows: Flows
    counters: tuple[Counter, ...]
    totals: Totals
    reading: str
    """One sentence: what is drawn, and what is left out."""
    details: Mapping[str, Ints] = field(default_factory=dict)
    """More about each span, for trace viewers; -1 where there is nothing to tell."""

    @property
    def duration_s(self) -> float:
        """The whole step."""
        return self.duration_ns / 1e9


# ------------------------------------------------------------------------------------------------ being built


@dataclass(slots=True)
class Drawing:
    """Spans in any order, on tracks that are named as they are needed; `finish` sorts them out."""

    tracks: dict[tuple[int, str], int] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    columns: list[tuple[Ints, Ints, Ints, Ints, Ints]] = field(default_factory=list)
    """Tracks, names, classes, starts and ends."""
    count: int = 0
    arrows: list[tuple[Ints, Ints]] = field(default_factory=list)
    links: list[tuple[Ints, Ints]] = field(default_factory=list)
    """Pairs of spans of which one goes on where the other ends: pieces of one thing."""
    details: dict[str, list[tuple[int, Ints]]] = field(default_factory=lambda: defaultdict(list))

    def track(self, process: int, name: str) -> int:
        """Return the number of a track."""
        return self.tracks.setdefault((process, name), len(self.tracks))

    def name(self, text: str) -> int:
        """Return the code of a name."""
        return self.names.setdefault(text, len(self.names))

    def add(self, track: Ints | int, name: Ints | int, kind: Ints | Class, start_ns: Ints, end_ns: Ints) -> Ints:
        """Draw spans; return their numbers."""
        size = len(start_ns)
        code = CODE[kind] if isinstance(kind, str) else kind
        wide = [np.broadcast_to(np.asarray(each, np.int64), size) for each in (track, name, code)]
        self.columns.append((wide[0], wide[1], wide[2], start_ns, end_ns))
        first, self.count = self.count, self.count + size
        return np.arange(first, self.count)

    def detail(self, name: str, spans: Ints, values: Ints) -> None:
        """Say more of *spans*."""
        if len(spans):
            self.details[name].append((int(spans[0]), values))

    def flow(self, source: Ints, target: Ints) -> None:
        """Draw arrows between spans, by number."""
        self.arrows.append((source, target))

    def link(self, source: Ints, target: Ints) -> None:
        """Say that spans go on as others, by number."""
        self.links.append((source, target))

    def finish(self) -> tuple[tuple[Track, ...], tuple[str, ...], Spans, Flows, dict[str, Ints]]:
        """Return tracks in the order of their processes, names, spans with the critical path marked, and arrows."""
        track, name, kind, start, end = self.joined()
        track, owners = self._lanes(track, start, end)
        used = np.unique(track)
        place = np.empty(len(owners), np.int64)
        rank = sorted(used.tolist(), key=lambda each: owners[each])
        place[rank] = np.arange(len(rank))
        track = place[track]
        tracks = tuple(Track(owners[each][0], _lane_name(*owners[each][2:])) for each in rank)
        order = np.lexsort((end, start, track))
        moved = np.empty(self.count, np.int64)
        moved[order] = np.arange(self.count)
        source, target = _pairs(self.arrows, moved)
        goes_on = _pairs(self.links, moved)
        track, name, kind, start, end = (column[order] for column in (track, name, kind, start, end))
        process_of = np.array([each.process for each in tracks], np.int64)[track] if tracks else track
        critical = critical_path(
            process_of, kind, start, end, (np.append(source, goes_on[0]), np.append(target, goes_on[1]))
        )
        spans = Spans(
            track.astype(np.int32), name.astype(np.int32), kind.astype(np.uint8), start, end - start, critical
        )
        flows = Flows(source.astype(np.int32), target.astype(np.int32))
        return tracks, tuple(self.names), spans, flows, self._told(order)

    def joined(self) -> list[Ints]:
        """Return the columns of all spans so far: tracks, names, classes, starts and ends."""
        empty = np.zeros(0, np.int64)
        return [np.concatenate([each[at] for each in self.columns] or [empty]).astype(np.int64) for at in range(5)]

    def _told(self, order: Ints) -> dict[str, Ints]:
        """Return the details of all spans, in their final order."""
        found = {}
        for name, pieces in self.details.items():
            column = np.full(self.count, -1, np.int64)
            for first, values in pieces:
                column[first : first + len(values)] = values
            found[name] = column[order]
        return found

    def _lanes(self, track: Ints, start: Ints, end: Ints) -> tuple[Ints, list[tuple[int, int, str, int]]]:
        """Return tracks on which nothing overlaps: where spans do, their track becomes several.

        Of each track also its process, its place there, its name and which of several it is.
        """
        owners = [(process, place, name, 1) for place, (process, name) in enumerate(self.tracks)]
        track = track.copy()
        order = np.lexsort((end, start, track))
        bounds = np.searchsorted(track[order], np.arange(len(owners) + 1))
        for number, (process, place, name, _) in enumerate(tuple(owners)):
            rows = order[bounds[number] : bounds[number + 1]]
            if not len(rows) or (start[rows][1:] >= end[rows][:-1]).all():
                continue
            lanes = lanes_of(start[rows], end[rows])
            more = range(2, int(lanes.max()) + 2)
            numbers = np.array([number, *range(len(owners), len(owners) + len(more))])
            owners += [(process, place, name, lane) for lane in more]
            track[rows] = numbers[lanes]
        return track, owners


def _pairs(pairs: Sequence[tuple[Ints, Ints]], moved: Ints) -> tuple[Ints, Ints]:
    """Return pairs of spans by their new numbers."""
    empty = np.zeros(0, np.int64)
    source, target = (moved[np.concatenate([empty, *(pair[side] for pair in pairs)])] for side in (0, 1))
    return source, target


def _lane_name(name: str, lane: int) -> str:
    return name if lane == 1 else f"{name} {lane}"


def lanes_of(start: Ints, end: Ints) -> Ints:
    """Return for each span, in order of start, the first of as few lanes as needed on which it overlaps nothing.

    >>> lanes_of(np.array([0, 1, 4, 5]), np.array([4, 6, 5, 7])).tolist()
    [0, 1, 0, 0]
    """
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    found = np.empty(len(start), np.int64)
    used = 0
    for place, (begun, ended) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while busy and busy[0][0] <= begun:
            heappush(free, heappop(busy)[1])
        if free:
            lane = heappop(free)
        else:
            lane, used = used, used + 1
        heappush(busy, (ended, lane))
        found[place] = lane
    return found


# ------------------------------------------------------------------------------------------------ critical path


def critical_path(process: Ints, kind: Ints, start: Ints, end: Ints, flows: tuple[Ints, Ints]) -> npt.NDArray[np.bool_]:
    """Return which spans lie on the critical path.

    It is walked back from the last end: before a span came what an arrow brought to it (or what it goes on from), or
    else what its process did last until then. What is hidden or idle holds nobody up.

    >>> one = np.array([0, 0, 1]), np.array([0, 0, 1]), np.array([0, 5, 6]), np.array([5, 6, 9])
    >>> critical_path(*one, (np.array([0]), np.array([2]))).tolist()
    [True, False, True]
    """
    marked = np.zeros(len(start), bool)
    active = np.flatnonzero(~np.isin(kind, PASSIVE))
    if not len(active):
        return marked
    local = active[np.lexsort((active, start[active], end[active], process[active]))]
    ends: dict[int, tuple[list[int], list[int]]] = {}
    for each in np.unique(process[local]).tolist():
        rows = local[process[local] == each]
        ends[each] = end[rows].tolist(), rows.tolist()
    brought: dict[int, int] = {}
    for source, target in zip(flows[0].tolist(), flows[1].tolist(), strict=True):
        known = brought.get(target)
        if known is None or end[source] > end[known]:
            brought[target] = source
    return _walked(marked, (process, start, end), ends, brought)


def _walked(
    marked: npt.NDArray[np.bool_],
    spans: tuple[Ints, Ints, Ints],
    ends: Mapping[int, tuple[list[int], list[int]]],
    brought: Mapping[int, int],
) -> npt.NDArray[np.bool_]:
    """Mark the path from the last end to the beginning."""
    process, start, end = spans
    last = max((rows[-1] for _, rows in ends.values()), key=lambda row: (end[row], row))
    here: int | None = last
    while here is not None and not marked[here]:
        marked[here] = True
        here = brought[here] if here in brought else _before(ends[int(process[here])], int(start[here]), marked)
    return marked


def _before(ends: tuple[list[int], list[int]], moment: int, marked: npt.NDArray[np.bool_]) -> int | None:
    """Return the span of a process that ended last until *moment*, if any did."""
    times, rows = ends
    place = bisect_right(times, moment) - 1
    while place >= 0 and marked[rows[place]]:  # spans that take no time end where they begin
        place -= 1
    return rows[place] if place >= 0 else None


# ----------------------------------------------------------------------------------------------------- arithmetic


def covered(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return the time that at least one of the spans covers, as spans that do not touch.

    >>> [each.tolist() for each in covered(np.array([2, 0, 10]), np.array([6, 4, 11]))]
    [[0, 10], [6, 11]]
    """
    real = end > start
    order = np.argsort(start[real], kind="stable")
    begun, ended = start[real][order], np.maximum.accumulate(end[real][order])
    if not len(begun):
        return begun, ended
    breaks = np.flatnonzero(begun[1:] > ended[:-1]) + 1
    return begun[np.concatenate([[0], breaks])], ended[np.concatenate([breaks - 1, [len(ended) - 1]])]


def stepped(times_ns: Ints, changes: Floats) -> tuple[Ints, Floats]:
    """Return when a quantity that starts from 0 changes, and to what; changes at one moment are one.

    >>> [each.tolist() for each in stepped(np.array([5, 0, 5, 9]), np.array([1.0, 2.0, -2.0, -1.0]))]
    [[0, 5, 9], [2.0, 1.0, 0.0]]
    """
    order = np.argsort(times_ns, kind="stable")
    times, levels = times_ns[order], np.cumsum(changes[order])
    last = np.ones(len(times), bool)
    last[:-1] = times[1:] > times[:-1]
    return times[last], levels[last]


def averaged(times_ns: Ints, values: Floats, edges_ns: Ints) -> tuple[Ints, Floats]:
    """Return a quantity that holds from each time until the next, averaged between *edges_ns*.

    >>> found = averaged(np.array([0, 2, 6]), np.array([1.0, 3.0, 0.0]), np.array([0, 4, 8]))
    >>> [each.tolist() for each in found]
    [[0, 4, 8], [2.0, 1.5, 0.0]]
    """
    edges = np.unique(edges_ns)
    known = np.append(times_ns, max(int(edges[-1]), int(times_ns[-1])) + 1).astype(float)
    whole = np.concatenate([[0.0], np.cumsum(values * np.diff(known))])
    means = np.diff(np.interp(edges, known, whole)) / np.diff(edges)
    return edges, np.append(means, 0.0)
