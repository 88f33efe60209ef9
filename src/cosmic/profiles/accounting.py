"""Where the time of a recorded rank goes.

Exactly,

    span = kernels + communication - overlap + idle

*kernels* and *communication* are sums of durations on the device, *overlap* is what they exceed the time by in which
anything runs, and *idle* is the rest: where the next kernel waited for the host, or came after a gap on the device.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from cosmic.traces.order import Dependencies, dependencies_of
from cosmic.traces.trace import ABSENT, COMMUNICATION, Ints, NodeType, Template

NANO = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """Seconds in which a device runs nothing, by what it waits for."""

    host_s: float = 0.0
    """For the host to launch the next kernel."""
    gaps_s: float = 0.0
    """Between kernels that are launched already."""
    bubble_s: float = 0.0
    """For other pipeline stages; known of designs only: recorded, this is communication."""
    offload_s: float = 0.0
    """For traffic with outer memory tiers that nothing hides; known of designs only."""

    @property
    def total_s(self) -> float:
        """All of it."""
        return sum((float(getattr(self, each.name)) for each in fields(self)), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """The nodes that each waited for last, from the last to end back to the first: seconds by what they are."""

    compute_s: float = 0.0
    communication_s: float = 0.0
    host_s: float = 0.0
    delay_s: float = 0.0
    """From the end of one node to the start of the next: latencies of launches, gaps between kernels."""
    nodes: int = 0


def on_device(template: Template) -> Ints:
    """Return the rows that run on the device, and all that communicate."""
    communicates = np.isin(template.type, [int(each) for each in COMMUNICATION])
    known = template.type != NodeType.METADATA
    return np.flatnonzero(known & ((template.on_cpu == 0) | communicates))


def times_ns(template: Template) -> tuple[Ints, Ints]:
    """Return when each node began and ended; 0 where it does not say."""
    start = np.maximum(template.start_ns, 0)
    took = np.where(template.duration_ns == ABSENT, 1000 * template.duration_us, template.duration_ns)
    return start, start + np.maximum(took, 0)


def span_s(template: Template) -> float:
    """Return the seconds from the first start to the last end of a recorded rank."""
    start, end = times_ns(template)
    known = template.start_ns != ABSENT
    return float(end[known].max() - start[known].min()) * NANO if known.any() else 0.0


def idle_of(template: Template) -> Idle:
    """Return where the device of a recorded rank runs nothing, within the span of all its nodes.

    >>> from cosmic.traces.trace import template_of
    >>> launch = {"id": 0, "type": 4, "on_cpu": 1, "start_ns": 0, "duration_ns": 10}
    >>> first = {"id": 1, "type": 4, "start_ns": 30, "duration_ns": 50, "data": [0]}
    >>> second = {"id": 2, "type": 4, "start_ns": 85, "duration_ns": 5, "data": [0, 1]}
    >>> found = idle_of(template_of([launch, first, second]))
    >>> round(found.host_s * 1e9), round(found.gaps_s * 1e9)
    (30, 5)
    """
    known = template.start_ns != ABSENT
    if not known.any():
        return Idle()
    start, end = times_ns(template)
    rows = on_device(template)
    rows = rows[known[rows]]
    rows = rows[np.argsort(start[rows], kind="stable")]
    begins, ends = int(start[known].min()), int(end[known].max())
    reached = np.maximum.accumulate(np.concatenate([[begins], end[rows]]))
    gaps = np.maximum(start[rows] - reached[:-1], 0)
    held = _held_by(_waits(template), end, template.nodes)[rows]
    by_host = (held < 0) | (template.on_cpu[held] == 1)
    tail = max(ends - int(reached[-1]), 0)  # the host goes on after the last kernel
    host = int(gaps[by_host].sum()) + tail
    return Idle(host_s=host * NANO, gaps_s=int(gaps[~by_host].sum()) * NANO)


def _held_by(dependencies: Dependencies, end: Ints, nodes: int) -> Ints:
    """Return for each row the one that it depends on and that ended last; -1 if it depends on none."""
    held = np.full(nodes, -1)
    order = np.lexsort((end[dependencies.row], dependencies.dependent))
    held[dependencies.dependent[order]] = dependencies.row[order]  # the last one that is written stays
    return held


def path_of(template: Template) -> Path:
    """Return the critical path of a recorded rank as it ran: its seconds add up to the span, or to a part of it.

    >>> from cosmic.traces.trace import template_of
    >>> launch = {"id": 0, "type": 4, "on_cpu": 1, "start_ns": 0, "duration_ns": 10}
    >>> kernel = {"id": 1, "type": 4, "start_ns": 30, "duration_ns": 50, "data": [0]}
    >>> found = path_of(template_of([launch, kernel]))
    >>> [round(each * 1e9) for each in (found.compute_s, found.host_s, found.delay_s)], found.nodes
    ([50, 10, 20], 2)
    """
    known = template.start_ns != ABSENT
    if not known.any():
        return Path()
    start, end = times_ns(template)
    held = _held_by(_waits(template), end, template.nodes)
    rows = np.flatnonzero(known)
    at = int(rows[np.lexsort((-template.on_cpu[rows], end[rows]))[-1]])
    took, seen = {"compute_s": 0, "communication_s": 0, "host_s": 0, "delay_s": 0}, set[int]()
    while at >= 0 and at not in seen and known[at]:
        seen.add(at)
        before = int(held[at])
        from_ns = min(int(end[before]), int(end[at])) if before >= 0 and known[before] else int(start[at])
        took["delay_s"] += max(int(start[at]) - from_ns, 0)
        took[_kind(template, at)] += int(end[at]) - max(int(start[at]), from_ns)
        at = before
    return Path(nodes=len(seen), **{name: each * NANO for name, each in took.items()})


def _waits(template: Template) -> Dependencies:
    """Return the data dependencies: the control dependency of a recorded node is the operator that it is inside of."""
    none = np.zeros(template.nodes + 1, np.int64), np.zeros(0, np.int64)
    return dependencies_of(replace(template, ctrl_start=none[0], ctrl_id=none[1])).within()


def _kind(template: Template, row: int) -> str:
    if template.type[row] in COMMUNICATION:
        return "communication_s"
    return "host_s" if template.on_cpu[row] else "compute_s"
