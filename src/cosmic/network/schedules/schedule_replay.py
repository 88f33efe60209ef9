"""Replay a schedule in the event engine: by what each transfer waits for, and not by the times that it states.

A transfer begins when the one before it on its link has ended, and when all that it forwards has arrived: a copy of its
chunk, or all partial sums that had come when it was to begin. Times add up exactly as those of schedules do, and are
rounded once, at the end, to whole nanoseconds: to the nearest, halves up, within a tolerance (`HALF_TOLERANCE_NS`).

`WiredFabric` carries messages over a graph of arbitrary links: every link is a queue with a bandwidth and a latency.

A message holds a link for latency + bytes / bandwidth, and then enters the next link of its route. Times are exact
seconds that add up as those of schedules do; the clock, in whole ticks, decides in which order messages reach a link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import floor
from typing import Any, NamedTuple

import numpy as np

from cosmic.base.errors import require
from cosmic.base.event_clock import Action, EventClock, check_time
from cosmic.network.link_graph import Floats, Ints, LinkGraph
from cosmic.network.schedules.collective_schedule import SUMS, Chunks, Schedule, chunks_of
from cosmic.network.schedules.schedule_tables import sort_transfers
from cosmic.network.schedules.schedule_transfers import TransferFlow, flow_of, forwarded_pairs, look_up

# ---- A network of arbitrary links: every link is a queue with a bandwidth and a latency of its own

NANOSECONDS, PICOSECONDS = 1e9, 1e12
"""Ticks in a second."""
Route = Callable[[int, int], Sequence[int]]
"""The links from one node to another."""


class Message(NamedTuple):
    """Bytes in flight from one rank to another, and the action on arrival."""

    source: int
    target: int
    size: int
    action: Action
    argument: Any
    direct: bool = False
    """Whether no other NPU is to relay it, where the network is a graph."""


class WiredFabric:
    """Carries messages over the links of a graph, one at a time on each link."""

    def __init__(
        self, graph: LinkGraph, clock: EventClock[int], route: Route, ticks_per_s: float = NANOSECONDS
    ) -> None:
        self._graph, self._clock, self._route, self._ticks = graph, clock, route, ticks_per_s
        self._latency_s = graph.latency_s.tolist()
        self._rate = graph.bandwidth_bytes_per_s.tolist()
        self._free_s = [0.0] * graph.links
        self._busy_s = [0.0] * graph.links
        self.now_s = 0.0
        """The exact time of the running event, where it is the end of a transfer."""

    def send(self, message: Message) -> None:
        """Send *message* over the links of its route."""
        self.send_over(self._route(message.source, message.target), message.size, message.action, message.argument)

    def send_over(self, path: Sequence[int], size_bytes: float, action: Action, argument: Any) -> None:
        """Send bytes over the links of *path*, and then call ``action(argument)``; without links, at once."""
        if path:
            self._hop((path, 0, size_bytes, action, argument))
        else:
            self._clock.after(0, action, argument)

    def _hop(self, state: tuple[Sequence[int], int, float, Action, Any]) -> None:
        path, passed, size, action, argument = state
        if passed == len(path) - 1:
            self.carry(path[passed], size, action, argument)
        else:
            self.carry(path[passed], size, self._hop, (path, passed + 1, size, action, argument))

    def carry(self, link: int, size_bytes: float, action: Action, argument: Any) -> None:
        """Send bytes over one link when it is free, and call ``action(argument)`` when they have arrived."""
        takes = self._latency_s[link] + size_bytes / self._rate[link]
        start = max(self.now_s, self._free_s[link])
        end = start + takes
        self._free_s[link] = end
        self._busy_s[link] += takes
        delay = max(0, check_time(end * self._ticks) - self._clock.now)
        self._clock.after(delay, self._arrived, (end, action, argument))

    def _arrived(self, state: tuple[float, Action, Any]) -> None:
        self.now_s, action, argument = state
        action(argument)

    def busy_ns(self) -> dict[str, int]:
        """Return how long each used link was busy."""
        return {self._graph.describe(link): round(busy * 1e9) for link, busy in enumerate(self._busy_s) if busy}


# ---- A schedule in the event engine: by what each transfer waits for, and not by the times that it states

HALF_TOLERANCE_NS = 1e-6
"""A time this little below a half rounds up as the half does. Times are sums of floating-point numbers, whose last bits
depend on the order of addition: without it, equal times could round to different nanoseconds."""


def to_nanoseconds(seconds: float) -> int:
    """Return a time in whole nanoseconds, by the rule above.

    >>> to_nanoseconds(1.4e-9), to_nanoseconds(2.5e-9), to_nanoseconds(2.4999999e-9)
    (1, 3, 3)
    """
    return floor(seconds * 1e9 + 0.5 + HALF_TOLERANCE_NS)


def simulate_schedule(schedule: Schedule) -> int:
    """Return how many nanoseconds a schedule takes in the event engine."""
    return to_nanoseconds(replay_schedule(schedule).time_s)


def replay_schedule(schedule: Schedule) -> Schedule:
    """Return a schedule with every transfer as early as its links and chunks allow."""
    flow, chunks = flow_of(schedule), chunks_of(schedule)
    before, after = transfer_waits(schedule, flow, chunks)
    order = np.argsort(before, kind="stable")
    start, end = _TransferRun(schedule, chunks.size_bytes[schedule.chunk], before[order], after[order]).run()
    return sort_transfers(replace(schedule, start_s=start, end_s=end))


class _TransferRun:
    """Transfers on their links, each released by the last that it waits for."""

    def __init__(self, schedule: Schedule, sizes: Floats, before: Ints, after: Ints) -> None:
        count = schedule.transfers
        self._clock = EventClock()
        self._network = WiredFabric(schedule.graph, self._clock, lambda _source, _target: (), PICOSECONDS)
        self._pending = np.bincount(after, minlength=count).tolist()
        """By transfer: how many others it still waits for."""
        self._first = np.searchsorted(before, np.arange(count + 1)).tolist()
        self._after = after.tolist()
        """Transfers that wait for another: for transfer i, those from `_first[i]` to `_first[i + 1]`."""
        self._link, self._size = schedule.link.tolist(), sizes.tolist()
        self._ready, self._end = [0.0] * count, [-1.0] * count

    def run(self) -> tuple[Floats, Floats]:
        """Return the starts and ends of all transfers."""
        for row in [row for row, pending in enumerate(self._pending) if not pending]:
            self._begin(row)
        self._clock.run()
        stuck = sum(end < 0 for end in self._end)
        rule = "wait for each other for ever: a chunk is sent before it can be there"
        require(not stuck, "schedule", f"{stuck:,} transfers", rule)
        return np.array(self._ready), np.array(self._end)

    def _begin(self, row: int) -> None:
        self._network.now_s = self._ready[row]
        self._network.carry(self._link[row], self._size[row], self._arrived, row)

    def _arrived(self, row: int) -> None:
        now = self._end[row] = self._network.now_s
        for follower in self._after[self._first[row] : self._first[row + 1]]:
            self._ready[follower] = max(self._ready[follower], now)
            self._pending[follower] -= 1
            if not self._pending[follower]:
                self._begin(follower)
        self._network.now_s = now


def transfer_waits(schedule: Schedule, flow: TransferFlow, chunks: Chunks) -> tuple[Ints, Ints]:
    """Return which transfers wait for which: those before, and those after, of one length."""
    order = np.lexsort((schedule.end_s, schedule.start_s, schedule.link))
    same = schedule.link[order][1:] == schedule.link[order][:-1]
    pairs = [(order[:-1][same], order[1:][same])]
    into, out, match = forwarded_pairs(flow)
    rule = "a switch sends what it has not received"
    require(bool((match >= 0).all()), "schedule", f"{int((match < 0).sum()):,} transfers", rule)
    pairs.append((into[match], out) if len(out) else (out, out))
    pairs.append(_waits_of_sums(flow) if schedule.kind in SUMS else _waits_of_copies(flow, chunks))
    return np.concatenate([pair[0] for pair in pairs]), np.concatenate([pair[1] for pair in pairs])


def _waits_of_copies(flow: TransferFlow, chunks: Chunks) -> tuple[Ints, Ints]:
    """Return the first delivery of each chunk to whoever sends it on."""
    receptions = np.flatnonzero(flow.keeps[flow.target])
    key = flow.chunk * flow.nodes + flow.target
    receptions = receptions[np.lexsort((flow.end_s[receptions], key[receptions]))]
    first = (
        np.concatenate([[True], key[receptions][1:] != key[receptions][:-1]])
        if len(receptions)
        else np.zeros(0, np.bool_)
    )
    held, delivery = key[receptions][first], receptions[first]
    sent = np.flatnonzero(flow.keeps[flow.source] & (flow.source != chunks.home[flow.chunk]))
    row, present = look_up(held, (flow.chunk * flow.nodes + flow.source)[sent])
    rule = "are sent by nodes that never receive their chunk"
    require(bool(present.all()), "schedule", f"{int((~present).sum()):,} transfers", rule)
    return (delivery[row], sent) if len(sent) else (sent, sent)


def _waits_of_sums(flow: TransferFlow) -> tuple[Ints, Ints]:
    """Return all receptions of a chunk that have ended when a node that keeps them sends it on."""
    receptions, sent = np.flatnonzero(flow.keeps[flow.target]), np.flatnonzero(flow.keeps[flow.source])
    key = flow.chunk * flow.nodes + flow.target
    receptions = receptions[np.lexsort((flow.end_s[receptions], key[receptions]))]
    held = key[receptions]
    wanted = (flow.chunk * flow.nodes + flow.source)[sent]
    first, stop = np.searchsorted(held, wanted, "left"), np.searchsorted(held, wanted, "right")
    counts = stop - first
    after = np.repeat(sent, counts)
    before = receptions[np.repeat(stop - np.cumsum(counts), counts) + np.arange(counts.sum())]
    come = flow.end_s[before] <= flow.start_s[after] + flow.tolerance_s
    return before[come], after[come]
