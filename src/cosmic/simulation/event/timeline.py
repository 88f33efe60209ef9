"""What happened when in a simulation, as a timeline.

A process is a rank that was simulated, with the ranks that it stands for. Communication has a track for each axis where
the axes of communicator groups are known, and is split where the accelerator begins or ends to compute: what it covers
is hidden, the rest exposed. A receive is drawn from when its message set out. Arrows lead from sends to receives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from cosmic.design.batch import batch_of
from cosmic.design.point import DesignPoint
from cosmic.simulation.event.result import Played, Result
from cosmic.simulation.timeline import (
    CODE,
    Counter,
    Drawing,
    Ints,
    Process,
    Timeline,
    Totals,
    averaged,
    covered,
    stepped,
)
from cosmic.step.communication import named_axes
from cosmic.step.profile import profile
from cosmic.traces.generation import axes_of_groups
from cosmic.traces.generation.blocks import pieces
from cosmic.traces.generation.tapes import RING_NEXT
from cosmic.traces.trace import ABSENT, COMMUNICATION, MEMORY, NodeType, Template

DETAILS = ("num_ops", "tensor_size", "comm_size", "comm_tag", "comm_type")
MOST_POINTS = 8_000
"""Of a counter; one with more is averaged over as many parts of the run."""
Message = tuple[int, int, int, int]
"""From, to, tag, bytes."""


def timeline_of_result(result: Result, point: DesignPoint | None = None) -> Timeline:
    """Return the course of a simulation; *point* is the design whose own traces were played, if they are one's."""
    axes = group_names(point) if point is not None else None
    drawing = Drawing()
    ranks = [_Rank(place, played, axes, result.cycles) for place, played in enumerate(result.played)]
    sends = _matched(result)
    counters: list[Counter] = []
    first: list[Ints] = []
    for rank in ranks:
        first.append(rank.draw(drawing, _departures(result, sends, rank.place)))
        counters += rank.counters
    if sends:
        source, target = (np.array([first[pair[side]][pair[side + 1]] for pair in sends], np.int64) for side in (0, 2))
        drawing.flow(source, target)
    tracks, names, spans, flows, details = drawing.finish()
    return Timeline(
        engine="event",
        duration_ns=result.cycles,
        processes=tuple(Process(f"rank {each.ranks[0]}", len(each.ranks)) for each in result.played),
        tracks=tracks,
        names=names,
        spans=spans,
        flows=flows,
        counters=tuple(counters),
        totals=ranks[_last(result)].totals,
        reading=_reading(result, point),
        details=details,
    )


def group_names(point: DesignPoint) -> tuple[str, ...]:
    """Return the axes of the communicator groups in a design's own traces, by place in `RankTrace.groups`."""
    kinds = axes_of_groups(pieces(profile(batch_of(point))))
    return tuple("+".join("dp" if axis == "edp" else axis for axis in named_axes(axes)) for axes in kinds)


def _last(result: Result) -> int:
    """Return the place of the rank that is done last."""
    last = max(result.per_npu, key=lambda npu: npu.cycles).npu
    return next(place for place, played in enumerate(result.played) if last in played.ranks)


def _reading(result: Result, point: DesignPoint | None) -> str:
    ranks, played = len(result.per_npu), len(result.played)
    alike = f"{played} of {ranks:,} ranks, the others are like them" if played < ranks else f"all {ranks:,} ranks"
    whose = "the design's own traces" if point is not None else "the traces"
    return f"Every node of {whose}, played: {alike}; memory is not told by traces and not drawn."


# ---------------------------------------------------------------------------------------------------- one rank


class _Rank:
    """A rank that was simulated, to be drawn."""

    def __init__(self, place: int, played: Played, axes: Sequence[str] | None, cycles: int) -> None:
        self.place, self.played, self.axes, self.cycles = place, played, axes, cycles
        self.counters: list[Counter] = []
        self.totals = Totals(0.0, 0.0, 0.0, 0.0)
        template = played.template
        self.ran = played.ended >= 0
        self.talks = self.ran & np.isin(template.type, COMMUNICATION)
        computes = self.ran & (template.type == NodeType.COMP) & (template.on_cpu == 0)
        self.computing = covered(played.begun[computes], played.ended[computes])

    def draw(self, drawing: Drawing, departed: Ints) -> Ints:
        """Draw its nodes, messages to it from when they *departed*; return the first span of each node."""
        first = np.full(self.played.template.nodes, -1, np.int64)
        tracks = self._tracks(drawing)
        names = _names(drawing, self.played.template)
        begun = np.maximum(self.played.begun, np.minimum(departed, self.played.ended))
        plain = np.flatnonzero(self.ran & ~self.talks)
        spans = drawing.add(tracks[plain], names[plain], self._kinds()[plain], begun[plain], self.played.ended[plain])
        first[plain] = spans
        self._tell(drawing, spans, plain)
        rows = np.flatnonzero(self.talks)
        which, start, end, hidden = split(begun[rows], self.played.ended[rows], *self.computing)
        kinds = np.where(hidden, CODE["hidden"], CODE["exposed"])
        spans = drawing.add(tracks[rows][which], names[rows][which], kinds, start, end)
        self._tell(drawing, spans, rows[which])
        opening = np.flatnonzero(np.diff(which, prepend=-1))
        first[rows[which[opening]]] = spans[opening]
        going_on = np.flatnonzero(np.diff(which, prepend=-1) == 0)
        drawing.link(spans[going_on - 1], spans[going_on])
        self._count(drawing, tracks, begun)
        self._wait(drawing, begun)
        computing, exposed, beside = (
            int((each[1] - each[0]).sum())
            for each in (self.computing, covered(start[~hidden], end[~hidden]), covered(start[hidden], end[hidden]))
        )
        seconds = (computing, exposed, beside, self.cycles - computing - exposed)
        self.totals = Totals(*(each / 1e9 for each in seconds))
        return first

    def _wait(self, drawing: Drawing, begun: Ints) -> None:
        """Draw the time in which nothing goes on."""
        from_, until = covered(begun[self.ran], self.played.ended[self.ran])
        gaps = np.append(0, until), np.append(from_, self.cycles)
        real = gaps[1] > gaps[0]
        if real.any():
            track, name = drawing.track(self.place, "idle"), drawing.name("waits")
            drawing.add(track, name, "idle", gaps[0][real], gaps[1][real])

    def _tracks(self, drawing: Drawing) -> Ints:
        """Return the track of each node."""
        template = self.played.template
        numbers = {name: drawing.track(self.place, name) for name in ("compute", "cpu")}
        found = np.full(template.nodes, numbers["cpu"], np.int64)
        found[(template.type == NodeType.COMP) & (template.on_cpu == 0)] = numbers["compute"]
        if self.axes is None:
            found[self.talks] = drawing.track(self.place, "communication")
            found[template.type == NodeType.COMM_RECV] = drawing.track(self.place, "receive")
        else:
            for place, name in enumerate(self.axes):
                found[self.talks & (template.group == place)] = drawing.track(self.place, name)
            messages = self.talks & (template.type != NodeType.COMM_COLL)
            found[messages] = drawing.track(self.place, "pp")
            found[messages & (template.peer >= RING_NEXT)] = drawing.track(self.place, "cp")
        found[np.isin(template.type, MEMORY)] = drawing.track(self.place, "memory")
        return found

    def _kinds(self) -> Ints:
        """Return the class of each node that is no communication."""
        template = self.played.template
        found = np.full(template.nodes, CODE["other"], np.int64)
        found[(template.type == NodeType.COMP) & (template.on_cpu == 0)] = CODE["compute"]
        found[np.isin(template.type, MEMORY)] = CODE["memory"]
        if self.axes is not None:
            updates = [row for row, name in enumerate(template.names) if name.endswith(".optimizer")]
            found[updates] = CODE["optimizer"]
        return found

    def _tell(self, drawing: Drawing, spans: Ints, rows: Ints) -> None:
        """Keep what nodes say of themselves."""
        template = self.played.template
        drawing.detail("node", spans, template.id[rows])
        for name in DETAILS:
            column = getattr(template, name)[rows]
            if (column != ABSENT).any():
                drawing.detail(name, spans, column)

    def _count(self, drawing: Drawing, tracks: Ints, begun: Ints) -> None:
        """Count what communication moves on each track: each node's bytes, spread evenly over its time."""
        sizes = self.played.template.comm_size
        moves = self.talks & (sizes > 0) & (self.played.ended > begun)
        for (process, name), number in tuple(drawing.tracks.items()):
            rows = np.flatnonzero(moves & (tracks == number)) if process == self.place else ()
            if not len(rows):
                continue
            rate = 1e9 * sizes[rows] / (self.played.ended[rows] - begun[rows])
            moments = np.concatenate([[0], begun[rows], self.played.ended[rows]])
            times, values = stepped(moments, np.concatenate([[0.0], rate, -rate]))
            values[np.abs(values) < 1e-6 * rate.max()] = 0.0  # what sums of rates leave
            if len(times) > MOST_POINTS:
                times, values = averaged(times, values, np.linspace(0, self.cycles, MOST_POINTS + 1).astype(np.int64))
            self.counters.append(Counter(self.place, f"{name} traffic", "B/s", None, times, values))


def _names(drawing: Drawing, template: Template) -> Ints:
    """Return the codes of nodes' names."""
    numbers = template.id.tolist()
    return np.array(
        [drawing.name(name or f"node {number}") for name, number in zip(template.names, numbers, strict=True)], np.int64
    )


def split(begun: Ints, ended: Ints, from_: Ints, until: Ints) -> tuple[Ints, Ints, Ints, np.ndarray]:
    """Return spans, cut where other spans (sorted, apart from each other) begin or end.

    Of each piece: of which span, start, end, and whether one of the others covers it.

    >>> pieces = split(np.array([0, 7]), np.array([6, 8]), np.array([2]), np.array([4]))
    >>> [each.tolist() for each in pieces]
    [[0, 0, 0, 1], [0, 2, 4, 7], [2, 4, 6, 8], [False, True, False, False]]
    """
    cuts = np.stack([from_, until], axis=1).reshape(-1)
    low, high = np.searchsorted(cuts, begun, "right"), np.searchsorted(cuts, ended, "left")
    count = np.maximum(high - low, 0) + 1
    which = np.repeat(np.arange(len(begun)), count)
    within = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
    padded = np.append(cuts, 0)
    start = np.where(within == 0, begun[which], padded[np.maximum(low[which] + within - 1, 0)])
    end = np.where(within == count[which] - 1, ended[which], padded[np.minimum(low[which] + within, len(cuts))])
    inside = np.searchsorted(from_, start, "right") - 1
    covering = np.append(until, 0)[inside] > start
    return which, start, end, covering & (inside >= 0)


# ------------------------------------------------------------------------------------------------------ messages


def _matched(result: Result) -> list[tuple[int, int, int, int]]:
    """Return the place and row of every send, and those of the receive that it is for."""
    entity_of = {rank: place for place, played in enumerate(result.played) for rank in played.ranks}
    waiting: dict[Message, deque[int]] = {}
    for place, played in enumerate(result.played):
        for row, peer, tag, size in _messages(played, NodeType.COMM_RECV, entity_of):
            waiting.setdefault((peer, place, tag, size), deque()).append(row)
    found = []
    for place, played in enumerate(result.played):
        for row, target, tag, size in _messages(played, NodeType.COMM_SEND, entity_of):
            if rows := waiting.get((place, target, tag, size)):
                found.append((place, row, target, rows.popleft()))
    return found


def _departures(result: Result, sends: Sequence[tuple[int, int, int, int]], place: int) -> Ints:
    """Return when the message of each receive of a rank was sent; -1 for all other nodes."""
    found = np.full(result.played[place].template.nodes, -1, np.int64)
    for source, row, target, received in sends:
        if target == place:
            found[received] = result.played[source].begun[row]
    return found


def _messages(played: Played, kind: NodeType, entity_of: dict[int, int]) -> Iterator[tuple[int, int, int, int]]:
    """Yield sends or receives as they began: row, peer, tag, size."""
    template = played.template
    rows = np.flatnonzero((template.type == kind) & (played.ended >= 0) & (template.peer != ABSENT))
    for row in rows[np.argsort(played.begun[rows], kind="stable")].tolist():
        peer = entity_of.get(played.peers[int(template.peer[row])], ABSENT)
        yield row, peer, int(template.comm_tag[row]), int(template.comm_size[row])
