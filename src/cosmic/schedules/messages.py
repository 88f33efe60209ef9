"""A schedule as messages between accelerators: what passes through switches is one message from end to end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosmic.errors import require
from cosmic.graphs.graph import Floats, Ints
from cosmic.graphs.schedule import Schedule
from cosmic.schedules.chunks import SUMS, chunks_of
from cosmic.schedules.flows import flow_of, forwarded_pairs


@dataclass(frozen=True, eq=False)
class Messages:
    """A row for each message, in the order of their starts."""

    source: Ints
    target: Ints
    chunk: Ints
    size_bytes: Floats
    start_s: Floats
    end_s: Floats

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.chunk)


def messages_of(schedule: Schedule, what: str) -> Messages:
    """Return the messages of a schedule, for a format of the name *what* that knows no switches."""
    graph, flow = schedule.graph, flow_of(schedule)
    used = graph.reducing & set(flow.target.tolist())
    rule = f"{what} has no switches that reduce or copy, and this schedule uses one"
    require(not used, "network", sorted(graph.name(node) for node in used), rule)
    into, out, match = forwarded_pairs(flow)
    stuck = len(into) - len(np.unique(match[match >= 0]))
    require(bool((match >= 0).all()) and not stuck, "schedule", stuck, "a switch forwards each message once")
    following = np.full(schedule.transfers, -1)
    if len(out):
        following[into[match]] = out
    first = np.flatnonzero(flow.source < graph.npus)
    last = first.copy()
    while (on_way := flow.target[last] >= graph.npus).any():
        last[on_way] = following[last[on_way]]
    sizes = chunks_of(schedule).size_bytes
    order = np.lexsort((flow.end_s[last], flow.chunk[first], flow.start_s[first]))
    first, last = first[order], last[order]
    return Messages(
        flow.source[first],
        flow.target[last],
        flow.chunk[first],
        sizes[flow.chunk[first]],
        flow.start_s[first],
        flow.end_s[last],
    )


def needs(schedule: Schedule, messages: Messages) -> list[list[int]]:
    """Return which messages must have arrived before each is sent: those that bring what it carries.

    Of copies, that is the first that brings the chunk; of sums, all that have come when it is sent.
    """
    tolerance = 1e-9 * schedule.time_s + 1e-12
    come: dict[tuple[int, int], list[tuple[float, int]]] = {}
    ends, chunks, targets = messages.end_s.tolist(), messages.chunk.tolist(), messages.target.tolist()
    for row, key in enumerate(zip(chunks, targets, strict=True)):
        come.setdefault(key, []).append((ends[row], row))
    for arrivals in come.values():
        arrivals.sort()
    home = chunks_of(schedule).home
    found: list[list[int]] = []
    for source, chunk, start in zip(messages.source.tolist(), chunks, messages.start_s.tolist(), strict=True):
        arrivals = come.get((chunk, source), [])
        if schedule.kind in SUMS:
            found.append([row for end, row in arrivals if end <= start + tolerance])
        else:
            found.append([] if source == home[chunk] else [row for _, row in arrivals[:1]])
    return found


def carries_whole(schedule: Schedule, messages: Messages) -> list[bool]:
    """Return which messages carry a whole sum, and not a part that the receiver adds to its own."""
    chunks = chunks_of(schedule)
    parts: dict[tuple[int, int], int] = {}
    for place, group in enumerate(schedule.groups):
        bits = [(member, 1 << position) for position, member in enumerate(group)]
        for chunk in range(int(chunks.first[place]), int(chunks.first[place + 1])):
            parts.update({(chunk, member): bit for member, bit in bits})
    tolerance = 1e-9 * schedule.time_s + 1e-12
    starts, ends = messages.start_s.tolist(), messages.end_s.tolist()
    events = sorted([(end, 0, row) for row, end in enumerate(ends)])
    events += [(start + tolerance, 1, row) for row, start in enumerate(starts)]
    carried, whole = [0] * messages.count, [False] * messages.count
    for _, is_send, row in sorted(events):
        chunk = int(messages.chunk[row])
        full = (1 << len(schedule.groups[int(chunks.group[chunk])])) - 1
        if is_send:
            carried[row] = parts.get((chunk, int(messages.source[row])), 0)
            whole[row] = carried[row] == full
        else:
            key = (chunk, int(messages.target[row]))
            parts[key] = parts.get(key, 0) | carried[row]
    return whole
