"""Simulate a schedule in the event engine: by what each transfer waits for, and not by the times that it states.

A transfer begins when the one before it on its link has ended, and when all that it forwards has arrived: a copy of its
chunk, or all partial sums that had come when it was to begin. Times add up exactly as those of schedules do, and are
rounded once, at the end, to whole nanoseconds: to the nearest, halves up, where a millionth of one is no difference.
"""

from __future__ import annotations

from dataclasses import replace
from math import floor

import numpy as np

from cosmic.errors import require
from cosmic.graphs.graph import Floats, Ints
from cosmic.graphs.schedule import Schedule
from cosmic.schedules.chunks import SUMS, Chunks, chunks_of
from cosmic.schedules.flows import Flow, flow_of, forwarded_pairs, look_up
from cosmic.schedules.tables import ordered
from cosmic.simulation.event.clock import Clock
from cosmic.simulation.event.wired import PICOSECONDS, Wired

NO_DIFFERENCE_NS = 1e-6


def nanoseconds(seconds: float) -> int:
    """Return a time in whole nanoseconds, by the rule above.

    >>> nanoseconds(1.4e-9), nanoseconds(2.5e-9), nanoseconds(2.4999999e-9)
    (1, 3, 3)
    """
    return floor(seconds * 1e9 + 0.5 + NO_DIFFERENCE_NS)


def play(schedule: Schedule) -> int:
    """Return how many nanoseconds a schedule takes in the event engine."""
    return nanoseconds(played(schedule).time_s)


def played(schedule: Schedule) -> Schedule:
    """Return a schedule with every transfer as early as its links and chunks allow."""
    flow, chunks = flow_of(schedule), chunks_of(schedule)
    before, after = waits(schedule, flow, chunks)
    order = np.argsort(before, kind="stable")
    start, end = _Run(schedule, chunks.size_bytes[schedule.chunk], before[order], after[order]).run()
    return ordered(replace(schedule, start_s=start, end_s=end))


class _Run:
    """Transfers on their links, each released by the last that it waits for."""

    def __init__(self, schedule: Schedule, sizes: Floats, before: Ints, after: Ints) -> None:
        count = schedule.transfers
        self._clock = Clock()
        self._fabric = Wired(schedule.graph, self._clock, lambda _source, _target: (), PICOSECONDS)
        self._left = np.bincount(after, minlength=count).tolist()
        self._first = np.searchsorted(before, np.arange(count + 1)).tolist()
        self._after = after.tolist()
        self._link, self._size = schedule.link.tolist(), sizes.tolist()
        self._ready, self._end = [0.0] * count, [-1.0] * count

    def run(self) -> tuple[Floats, Floats]:
        """Return the starts and ends of all transfers."""
        for row in [row for row, left in enumerate(self._left) if not left]:
            self._begin(row)
        self._clock.run()
        stuck = sum(end < 0 for end in self._end)
        rule = "wait for each other for ever: a chunk is sent before it can be there"
        require(not stuck, "schedule", f"{stuck:,} transfers", rule)
        return np.array(self._ready), np.array(self._end)

    def _begin(self, row: int) -> None:
        self._fabric.now_s = self._ready[row]
        self._fabric.carry(self._link[row], self._size[row], self._arrived, row)

    def _arrived(self, row: int) -> None:
        now = self._end[row] = self._fabric.now_s
        for follower in self._after[self._first[row] : self._first[row + 1]]:
            self._ready[follower] = max(self._ready[follower], now)
            self._left[follower] -= 1
            if not self._left[follower]:
                self._begin(follower)
        self._fabric.now_s = now


def waits(schedule: Schedule, flow: Flow, chunks: Chunks) -> tuple[Ints, Ints]:
    """Return which transfers wait for which: those before, and those after, of one length."""
    order = np.lexsort((schedule.end_s, schedule.start_s, schedule.link))
    same = schedule.link[order][1:] == schedule.link[order][:-1]
    pairs = [(order[:-1][same], order[1:][same])]
    into, out, match = forwarded_pairs(flow)
    rule = "a switch sends what it has not received"
    require(bool((match >= 0).all()), "schedule", f"{int((match < 0).sum()):,} transfers", rule)
    pairs.append((into[match], out) if len(out) else (out, out))
    pairs.append(_sums(flow) if schedule.kind in SUMS else _copies(flow, chunks))
    return np.concatenate([pair[0] for pair in pairs]), np.concatenate([pair[1] for pair in pairs])


def _copies(flow: Flow, chunks: Chunks) -> tuple[Ints, Ints]:
    """Return the first delivery of each chunk to whoever sends it on."""
    kept = np.flatnonzero(flow.keeps[flow.target])
    key = flow.chunk * flow.nodes + flow.target
    kept = kept[np.lexsort((flow.end_s[kept], key[kept]))]
    first = np.concatenate([[True], key[kept][1:] != key[kept][:-1]]) if len(kept) else np.zeros(0, np.bool_)
    held, delivery = key[kept][first], kept[first]
    sent = np.flatnonzero(flow.keeps[flow.source] & (flow.source != chunks.home[flow.chunk]))
    place, there = look_up(held, (flow.chunk * flow.nodes + flow.source)[sent])
    rule = "are sent by nodes that never receive their chunk"
    require(bool(there.all()), "schedule", f"{int((~there).sum()):,} transfers", rule)
    return (delivery[place], sent) if len(sent) else (sent, sent)


def _sums(flow: Flow) -> tuple[Ints, Ints]:
    """Return all receptions of a chunk that have ended when a node that keeps them sends it on."""
    kept, sent = np.flatnonzero(flow.keeps[flow.target]), np.flatnonzero(flow.keeps[flow.source])
    key = flow.chunk * flow.nodes + flow.target
    kept = kept[np.lexsort((flow.end_s[kept], key[kept]))]
    held = key[kept]
    wanted = (flow.chunk * flow.nodes + flow.source)[sent]
    first, stop = np.searchsorted(held, wanted, "left"), np.searchsorted(held, wanted, "right")
    counts = stop - first
    after = np.repeat(sent, counts)
    before = kept[np.repeat(stop - np.cumsum(counts), counts) + np.arange(counts.sum())]
    come = flow.end_s[before] <= flow.start_s[after] + flow.tolerance_s
    return before[come], after[come]
