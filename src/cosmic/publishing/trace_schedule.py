"""When the nodes of a trace are drawn, and on which row: as they were recorded, or along their dependencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.errors import require
from cosmic.traces.earliest import earliest_starts, last_to_end
from cosmic.traces.order import Dependencies, cycle, dependencies_of, longest_chains, topological_order
from cosmic.traces.trace import ABSENT, COMMUNICATION, MEMORY, Ints, NodeType, Template

LONGEST = 2**53
"""Nanoseconds of a recorded trace, 104 days, or microseconds of another: whole numbers that JavaScript knows."""
LANES, SLOT_LANES = 16, 6
"""Rows that one recorded thread or stream gets, or one slot, where its nodes overlap; beyond, they hide each other."""
SHOWN_CYCLE = 6
"""Nodes of a cycle that are named."""
KINDS = ("compute", "communication", "memory", "cpu", "other")
COMPUTE, EXCHANGE, STORAGE, CPU, OTHER = range(len(KINDS))
PROCESSES = ("CPU threads", "CUDA streams", "communication", "other")
SLOTS = ("CPU", "compute", "communication", "other")
_PROCESS = (1, 2, 1, 0, 3)
"""Of each kind, the process that it belongs to."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Schedule:
    """The nodes of a template in time; times are whole numbers of *tick*."""

    recorded: bool
    tick: float
    """Seconds; 1 step where no node states a time."""
    unit: str
    """"s", or "steps"."""
    start: Ints
    duration: Ints
    depth: Ints
    """The most nodes that must run before it, one after the other."""
    kind: Ints
    """Index into `KINDS`."""
    critical: Ints
    """Rows of the critical path, first row first; none if there is a cycle."""
    dependencies: Dependencies
    cycle: tuple[int, ...]
    """Rows, each of which depends on the next; empty if there is no cycle."""
    first: int
    """The recorded start that is drawn at 0."""
    timeless: int
    """Nodes that state no duration, or in recorded traces no start."""

    @property
    def end(self) -> int:
        """When the last node ends."""
        return int((self.start + self.duration).max(initial=0))

    @property
    def critical_length(self) -> int:
        """The time of the critical path; of a node, until the next one begins."""
        start, end = self.start[self.critical], (self.start + self.duration)[self.critical]
        return int((np.minimum(end, np.append(start[1:], end[-1:])) - start).sum())


def schedule_of(template: Template) -> Schedule:
    """Return when the nodes ran, where they say so; else when each could begin, once its dependencies are done."""
    _check_times(template)
    dependencies = dependencies_of(template).within()
    order = topological_order(dependencies)
    around = tuple(cycle(dependencies, order))
    if around:  # those on earlier nodes alone have none
        dependencies = _backward(dependencies)
        order = np.arange(template.nodes)
    recorded = template.is_recorded
    tick, unit, duration, timeless = _durations(template, recorded)
    first = int(template.start_ns[template.start_ns != ABSENT].min()) if recorded else 0
    known = np.where(template.start_ns != ABSENT, template.start_ns - first, ABSENT)
    start = earliest_starts(dependencies, order, duration, known)
    ones = np.ones(template.nodes, np.int64)
    return Schedule(
        recorded=recorded,
        tick=tick,
        unit=unit,
        start=start,
        duration=duration,
        depth=earliest_starts(dependencies, order, ones),
        kind=kinds_of(template),
        critical=np.zeros(0, np.int64) if around else _critical(template, dependencies, order, start, duration),
        dependencies=dependencies,
        cycle=around,
        first=first,
        timeless=timeless,
    )


def _check_times(template: Template) -> None:
    """Refuse times whose sum is not exact in a page: those of a damaged file."""
    starts = template.start_ns[template.start_ns != ABSENT].astype(float)
    recorded_ns = np.maximum(template.duration_ns.astype(float), 1e3 * template.duration_us)
    total = np.maximum(recorded_ns if len(starts) else template.duration_us, 0).sum(dtype=float) + (
        np.ptp(starts) if len(starts) else 0
    )
    require(total < LONGEST, "trace", f"{total:.3g}", f"durations and starts add up to {LONGEST:,} at most, in a page")


def _backward(dependencies: Dependencies) -> Dependencies:
    """Return the dependencies on rows before the dependent one."""
    kept = dependencies.row < dependencies.dependent
    return Dependencies(
        dependencies.nodes,
        dependencies.dependent[kept],
        dependencies.wanted[kept],
        dependencies.row[kept],
        dependencies.absent[kept],
    )


def _durations(template: Template, recorded: bool) -> tuple[float, str, Ints, int]:
    """Return the tick, its unit, the duration of each node in it, and how many nodes state no time."""
    if recorded:
        stated = np.where(template.duration_ns != ABSENT, template.duration_ns, 1000 * template.duration_us)
        return 1e-9, "s", np.maximum(stated, 0), int((template.start_ns == ABSENT).sum())
    if (template.duration_us > 0).any():
        duration = np.maximum(template.duration_us, 0)
        return 1e-6, "s", duration, int((duration == 0).sum())
    return 1.0, "steps", np.ones(template.nodes, np.int64), template.nodes


def _critical(template: Template, dependencies: Dependencies, order: Ints, start: Ints, duration: Ints) -> Ints:
    """Return the rows of the critical path: of a recorded trace, threads and streams run one node after the other."""
    if not template.is_recorded:
        return longest_chains(dependencies, order, [duration])[0]
    alone = -2 - np.arange(template.nodes)  # nodes without a thread or a stream wait for no other
    queue = np.where(template.stream == ABSENT, alone, 2 * template.stream + template.on_cpu)
    return last_to_end(dependencies, start, duration, queue)


def kinds_of(template: Template) -> Ints:
    """Return the kind of each node, as an index into `KINDS`."""
    kind = np.full(template.nodes, OTHER)
    kind[template.type == NodeType.COMP] = COMPUTE
    kind[np.isin(template.type, MEMORY)] = STORAGE
    kind[template.on_cpu > 0] = CPU
    kind[np.isin(template.type, COMMUNICATION)] = EXCHANGE
    return kind


@dataclass(frozen=True, slots=True, eq=False)
class Tracks:
    """The rows of a timeline."""

    processes: list[str]
    process: list[int]
    """Of each row, its process."""
    names: list[str]
    of: Ints
    """The row of each node."""


def tracks_of(template: Template, schedule: Schedule) -> Tracks:
    """Return the rows: one for each thread or stream, and more where nodes of one overlap."""
    process = np.array(_PROCESS)[schedule.kind]
    stream = template.stream if schedule.recorded else np.full(template.nodes, ABSENT)
    order = np.lexsort((-schedule.duration, schedule.start, stream, process))  # the outer of nested ones first
    lane = np.empty(template.nodes, np.int64)
    bounds = np.flatnonzero((np.diff(process[order]) != 0) | (np.diff(stream[order]) != 0)) + 1
    ends, most = schedule.start + schedule.duration, LANES if schedule.recorded else SLOT_LANES
    for part in np.split(order, bounds) if template.nodes else ():
        lane[part] = _lanes(schedule.start[part].tolist(), ends[part].tolist(), most)
    keys, of = np.unique(np.stack([process, stream, lane], axis=1), axis=0, return_inverse=True)
    used = np.unique(keys[:, 0]).tolist()
    words = PROCESSES if schedule.recorded else SLOTS
    return Tracks(
        [words[each] for each in used],
        [used.index(each) for each in keys[:, 0].tolist()],
        [_track_name(group, stream, lane, schedule.recorded) for group, stream, lane in keys.tolist()],
        np.asarray(of).reshape(-1),
    )


def _track_name(process: int, stream: int, lane: int, recorded: bool) -> str:
    """Return the name of a row.

    >>> _track_name(1, 7, 0, True), _track_name(0, 3, 2, True), _track_name(2, -1, 0, False)
    ('stream 7', 'thread 3, level 3', 'communication')
    """
    if not recorded:
        name = SLOTS[process]
    elif stream == ABSENT:
        name = "no thread" if process == 0 else "no stream"
    else:
        name = f"{'thread' if process == 0 else 'stream'} {stream}"
    return f"{name}, level {lane + 1}" if lane else name


def _lanes(starts: list[int], ends: list[int], most: int) -> list[int]:
    """Return the first row that is free for each node, of those in order of their start; of *most*, the first to be.

    >>> _lanes([0, 2, 4, 5], [10, 3, 9, 6], 3), _lanes([0, 2, 4, 5], [10, 3, 9, 6], 2)
    ([0, 1, 1, 2], [0, 1, 1, 1])
    """
    until: list[int] = []
    found = []
    for start, end in zip(starts, ends, strict=True):
        lane = next((lane for lane, busy in enumerate(until) if busy <= start), -1)
        if lane < 0 and len(until) < most:
            lane = len(until)
            until.append(end)
        elif lane < 0:
            lane = until.index(min(until))
        until[lane] = end
        found.append(lane)
    return found


def covered(start: npt.NDArray[Any], end: npt.NDArray[Any]) -> int:
    """Return how long at least one of some intervals lasts.

    >>> covered(np.array([0, 2, 9]), np.array([5, 3, 10]))
    6
    """
    if not len(start):
        return 0
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    before = np.concatenate([start[:1], reach[:-1]])
    return int(np.maximum(reach - np.maximum(start, before), 0).sum())


def cycle_text(template: Template, rows: tuple[int, ...]) -> str:
    """Return a cycle in words, first node first."""
    ids = [str(template.id[row]) for row in rows[:SHOWN_CYCLE]]
    more = f" → {len(rows) - SHOWN_CYCLE:,} more" if len(rows) > SHOWN_CYCLE else ""
    return f"{' → '.join(ids)}{more} → {ids[0]}"
