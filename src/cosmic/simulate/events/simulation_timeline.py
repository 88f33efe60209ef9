"""The timeline of a simulated cluster: what each simulated rank runs when.

A process is a simulated rank, with the ranks that it stands for. Communication has one track per axis where the axes of
communicator groups are known. It is split where the accelerator begins or ends to compute: what computation covers is
overlapped (class `hidden`), the rest exposed. A receive is drawn from the departure of its message. Arrows lead from
sends to receives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.simulate.events.simulation_result import RankTimes, SimulationResult
from cosmic.simulate.stage_traces import RING_NEXT, cut_into_pieces
from cosmic.simulate.step_timeline import (
    CLASS_CODES,
    Counter,
    Floats,
    Ints,
    Timeline,
    TimelineDrawing,
    TimelineProcess,
    TimelineTotals,
    accumulate_levels,
    merge_spans,
)
from cosmic.simulate.trace_generation import axes_of_groups
from cosmic.step.communication import ROLES, order_axes
from cosmic.step.step_profile import profile_step
from cosmic.traces.trace import ABSENT, COMMUNICATION_TYPES, MEMORY_TYPES, NodeType

DETAILS = ("num_ops", "tensor_size", "comm_size", "comm_tag", "comm_type")
MOST_POINTS = 8_000
"""Most points of a counter; one with more is averaged over as many intervals."""
Message = tuple[int, int, int, int]
"""From, to, tag, bytes."""


def timeline_of_result(result: SimulationResult, point: DesignPoint | None = None) -> Timeline:
    """Return the timeline of a simulation; *point* is the design whose own traces were simulated, if any."""
    axes = group_names(point) if point is not None else None
    drawing = TimelineDrawing()
    ranks = [_DrawnRank(index, times, axes, result.cycles) for index, times in enumerate(result.rank_times)]
    sends = _match_messages(result)
    counters: list[Counter] = []
    first: list[Ints] = []
    for rank in ranks:
        first.append(rank.draw(drawing, _departures_of_messages(result, sends, rank.place)))
        counters += rank.counters
        counters += _memory_counters(result, rank)
    if sends:
        source, target = (np.array([first[pair[side]][pair[side + 1]] for pair in sends], np.int64) for side in (0, 2))
        drawing.flow(source, target)
    tracks, names, spans, flows, details = drawing.finish()
    last = max(result.per_npu, key=lambda npu: npu.cycles).npu
    rank_count, simulated = len(result.per_npu), len(result.rank_times)
    every = f"all {rank_count:,} ranks"
    which_ranks = f"{simulated} of {rank_count:,} ranks, the others are equivalent" if simulated < rank_count else every
    whose = "the design's own traces" if point is not None else "the traces"
    memory = "" if result.local_memory else "; traces hold no memory use, so none is drawn"
    return Timeline(
        engine="event",
        duration_ns=result.cycles,
        processes=tuple(
            TimelineProcess(f"rank {rank_time.ranks[0]}", len(rank_time.ranks)) for rank_time in result.rank_times
        ),
        tracks=tracks,
        names=names,
        spans=spans,
        flows=flows,
        counters=tuple(counters),
        totals=ranks[next(index for index, times in enumerate(result.rank_times) if last in times.ranks)].totals,
        reading=f"Every node of {whose}, simulated: {which_ranks}{memory}.",
        details=details,
    )


def group_names(point: DesignPoint) -> tuple[str, ...]:
    """Return the axes of the communicator groups in a design's own traces, by index in `RankTrace.groups`."""
    kinds = axes_of_groups(cut_into_pieces(profile_step(batch_of(point))))
    return tuple("+".join(ROLES.get(axis, axis) for axis in order_axes(axes)) for axes in kinds)


def _memory_counters(result: SimulationResult, rank: _DrawnRank) -> Iterator[Counter]:
    """Yield the local memory of a simulated rank, where it is tracked."""
    if result.local_memory:
        memory = result.local_memory[rank.times.ranks[0]]
        yield Counter(rank.place, "local memory", "B", None, memory.times_ns, memory.bytes.astype(np.float64))


# ---- one rank


class _DrawnRank:
    """A simulated rank to draw."""

    def __init__(self, index: int, times: RankTimes, axes: Sequence[str] | None, cycles: int) -> None:
        self.place, self.times, self.axes, self.cycles = index, times, axes, cycles
        self.counters: list[Counter] = []
        self.totals = TimelineTotals(0.0, 0.0, 0.0, 0.0)
        template = times.template
        self.ran = times.ended >= 0
        self.communicates = self.ran & np.isin(template.type, COMMUNICATION_TYPES)
        computes = self.ran & (template.type == NodeType.COMP) & (template.on_cpu == 0)
        self.computing = merge_spans(times.begun[computes], times.ended[computes])

    def draw(self, drawing: TimelineDrawing, departed: Ints) -> Ints:
        """Draw the rank's nodes, receives from when their messages *departed*; return the first span of each node."""
        first = np.full(self.times.template.nodes, -1, np.int64)
        tracks = self._tracks(drawing)
        numbers = self.times.template.id.tolist()
        names = np.array(
            [
                drawing.name(name or f"node {number}")
                for name, number in zip(self.times.template.names, numbers, strict=True)
            ],
            np.int64,
        )
        begun = np.maximum(self.times.begun, np.minimum(departed, self.times.ended))
        plain = np.flatnonzero(self.ran & ~self.communicates)
        spans = drawing.add(tracks[plain], names[plain], self._kinds()[plain], begun[plain], self.times.ended[plain])
        first[plain] = spans
        self._add_details(drawing, spans, plain)
        rows = np.flatnonzero(self.communicates)
        owner, start, end, hidden = split_spans(begun[rows], self.times.ended[rows], *self.computing)
        kinds = np.where(hidden, CLASS_CODES["hidden"], CLASS_CODES["exposed"])
        spans = drawing.add(tracks[rows][owner], names[rows][owner], kinds, start, end)
        self._add_details(drawing, spans, rows[owner])
        opening = np.flatnonzero(np.diff(owner, prepend=-1))
        first[rows[owner[opening]]] = spans[opening]
        going_on = np.flatnonzero(np.diff(owner, prepend=-1) == 0)
        drawing.link(spans[going_on - 1], spans[going_on])
        self._count(drawing, tracks, begun)
        self._wait(drawing, begun)
        computing, exposed, beside = (
            int((interval[1] - interval[0]).sum())
            for interval in (
                self.computing,
                merge_spans(start[~hidden], end[~hidden]),
                merge_spans(start[hidden], end[hidden]),
            )
        )
        seconds = (computing, exposed, beside, self.cycles - computing - exposed)
        self.totals = TimelineTotals(*(total_ns / 1e9 for total_ns in seconds))
        return first

    def _wait(self, drawing: TimelineDrawing, begun: Ints) -> None:
        """Draw the idle time."""
        from_, until = merge_spans(begun[self.ran], self.times.ended[self.ran])
        gaps = np.append(0, until), np.append(from_, self.cycles)
        real = gaps[1] > gaps[0]
        if real.any():
            track, name = drawing.track(self.place, "idle"), drawing.name("waits")
            drawing.add(track, name, "idle", gaps[0][real], gaps[1][real])

    def _tracks(self, drawing: TimelineDrawing) -> Ints:
        """Return the track of each node."""
        template = self.times.template
        numbers = {name: drawing.track(self.place, name) for name in ("compute", "cpu")}
        tracks = np.full(template.nodes, numbers["cpu"], np.int64)
        tracks[(template.type == NodeType.COMP) & (template.on_cpu == 0)] = numbers["compute"]
        if self.axes is None:
            tracks[self.communicates] = drawing.track(self.place, "communication")
            tracks[template.type == NodeType.COMM_RECV] = drawing.track(self.place, "receive")
        else:
            for index, name in enumerate(self.axes):
                tracks[self.communicates & (template.group == index)] = drawing.track(self.place, name)
            messages = self.communicates & (template.type != NodeType.COMM_COLL)
            tracks[messages] = drawing.track(self.place, "pp")
            tracks[messages & (template.peer >= RING_NEXT)] = drawing.track(self.place, "cp")
        tracks[np.isin(template.type, MEMORY_TYPES)] = drawing.track(self.place, "memory")
        return tracks

    def _kinds(self) -> Ints:
        """Return the class of each node that is not communication."""
        template = self.times.template
        kinds = np.full(template.nodes, CLASS_CODES["other"], np.int64)
        kinds[(template.type == NodeType.COMP) & (template.on_cpu == 0)] = CLASS_CODES["compute"]
        kinds[np.isin(template.type, MEMORY_TYPES)] = CLASS_CODES["memory"]
        if self.axes is not None:
            updates = [row for row, name in enumerate(template.names) if name.endswith(".optimizer")]
            kinds[updates] = CLASS_CODES["optimizer"]
        return kinds

    def _add_details(self, drawing: TimelineDrawing, spans: Ints, rows: Ints) -> None:
        """Keep the attributes of nodes for trace viewers."""
        template = self.times.template
        drawing.detail("node", spans, template.id[rows])
        for name in DETAILS:
            column = getattr(template, name)[rows]
            if (column != ABSENT).any():
                drawing.detail(name, spans, column)

    def _count(self, drawing: TimelineDrawing, tracks: Ints, begun: Ints) -> None:
        """Add a counter of traffic for each track: each node's bytes, spread evenly over its time."""
        sizes = self.times.template.comm_size
        moves = self.communicates & (sizes > 0) & (self.times.ended > begun)
        for (process, name), number in tuple(drawing.tracks.items()):
            rows = np.flatnonzero(moves & (tracks == number)) if process == self.place else ()
            if not len(rows):
                continue
            rate = 1e9 * sizes[rows] / (self.times.ended[rows] - begun[rows])
            moments = np.concatenate([[0], begun[rows], self.times.ended[rows]])
            times, values = accumulate_levels(moments, np.concatenate([[0.0], rate, -rate]))
            values[np.abs(values) < 1e-6 * rate.max()] = 0.0  # rounding errors of sums
            if len(times) > MOST_POINTS:
                times, values = average_levels(
                    times, values, np.linspace(0, self.cycles, MOST_POINTS + 1).astype(np.int64)
                )
            self.counters.append(Counter(self.place, f"{name} traffic", "B/s", None, times, values))


def split_spans(begun: Ints, ended: Ints, from_: Ints, until: Ints) -> tuple[Ints, Ints, Ints, np.ndarray]:
    """Return spans, cut where other spans (sorted and disjoint) begin or end.

    The columns are the index of the span, start, end, and whether one of the others covers the segment.

    >>> segments = split_spans(np.array([0, 7]), np.array([6, 8]), np.array([2]), np.array([4]))
    >>> [each.tolist() for each in segments]
    [[0, 0, 0, 1], [0, 2, 4, 7], [2, 4, 6, 8], [False, True, False, False]]
    """
    cuts = np.stack([from_, until], axis=1).reshape(-1)
    low, high = np.searchsorted(cuts, begun, "right"), np.searchsorted(cuts, ended, "left")
    count = np.maximum(high - low, 0) + 1
    owner = np.repeat(np.arange(len(begun)), count)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    padded = np.append(cuts, 0)
    start = np.where(within == 0, begun[owner], padded[np.maximum(low[owner] + within - 1, 0)])
    end = np.where(within == count[owner] - 1, ended[owner], padded[np.minimum(low[owner] + within, len(cuts))])
    inside = np.searchsorted(from_, start, "right") - 1
    covering = np.append(until, 0)[inside] > start
    return owner, start, end, covering & (inside >= 0)


def average_levels(times_ns: Ints, values: Floats, edges_ns: Ints) -> tuple[Ints, Floats]:
    """Return a piecewise constant quantity, averaged between *edges_ns*.

    >>> found = average_levels(np.array([0, 2, 6]), np.array([1.0, 3.0, 0.0]), np.array([0, 4, 8]))
    >>> [each.tolist() for each in found]
    [[0, 4, 8], [2.0, 1.5, 0.0]]
    """
    edges = np.unique(edges_ns)
    moments = np.append(times_ns, max(int(edges[-1]), int(times_ns[-1])) + 1).astype(float)
    integral = np.concatenate([[0.0], np.cumsum(values * np.diff(moments))])
    means = np.diff(np.interp(edges, moments, integral)) / np.diff(edges)
    return edges, np.append(means, 0.0)


# ---- messages


def _match_messages(result: SimulationResult) -> list[tuple[int, int, int, int]]:
    """Return the rank and row of every send, and those of its receive."""
    entity_of = {rank: entity for entity, times in enumerate(result.rank_times) for rank in times.ranks}
    waiting: dict[Message, deque[int]] = {}
    for index, times in enumerate(result.rank_times):
        for row, peer, tag, size in _messages_in_order(times, NodeType.COMM_RECV, entity_of):
            waiting.setdefault((peer, index, tag, size), deque()).append(row)
    matches = []
    for entity, times in enumerate(result.rank_times):
        for row, target, tag, size in _messages_in_order(times, NodeType.COMM_SEND, entity_of):
            if rows := waiting.get((entity, target, tag, size)):
                matches.append((entity, row, target, rows.popleft()))
    return matches


def _departures_of_messages(result: SimulationResult, sends: Sequence[tuple[int, int, int, int]], entity: int) -> Ints:
    """Return when the message of each receive of a rank departed; -1 for all other nodes."""
    departures = np.full(result.rank_times[entity].template.nodes, -1, np.int64)
    for source, row, target, received in sends:
        if target == entity:
            departures[received] = result.rank_times[source].begun[row]
    return departures


def _messages_in_order(
    times: RankTimes, kind: NodeType, entity_of: dict[int, int]
) -> Iterator[tuple[int, int, int, int]]:
    """Yield sends or receives in the order in which they began: row, peer, tag, size."""
    template = times.template
    rows = np.flatnonzero((template.type == kind) & (times.ended >= 0) & (template.peer != ABSENT))
    for row in rows[np.argsort(times.begun[rows], kind="stable")].tolist():
        peer = entity_of.get(times.peers[int(template.peer[row])], ABSENT)
        yield row, peer, int(template.comm_tag[row]), int(template.comm_size[row])
