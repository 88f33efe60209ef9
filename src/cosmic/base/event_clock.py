"""The clock of every discrete-event simulation: simulated time, and the queue of what happens when.

An event is a call at a time: whole nanoseconds (`EventClock[int]`), or seconds (`EventClock[float]`). Of events at one
time those run first that have the least *order*, then the least *tie*, then those that were scheduled first. A time is
worked off in rounds: an event for the running time whose order has passed already waits until all others have run.

The event engine has ASTRA-sim's order instead, because its results depend on it (`after`, `of_rank`). Events of one
nanosecond run in the order in which they were scheduled. Events that a rank schedules for itself form one batch, which
runs in the place of its first event, so events of several ranks do not interleave.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any, Generic, TypeVar

from cosmic.base.errors import SpecError

Action = Callable[[Any], None]
Time = TypeVar("Time", int, float)
GLOBAL = -1
"""The owner of events that belong to no rank: messages in flight."""
LAST_NS = 2**62
"""More than a century: no job takes longer, and sums would overflow 64 bits."""
ORDERS = 16
"""Orders of a round."""


def check_time(nanoseconds: float) -> int:
    """Return a time truncated to whole nanoseconds; refuse one beyond `LAST_NS`.

    >>> check_time(1.5)
    1
    """
    if not nanoseconds < LAST_NS:
        raise SpecError("simulated time", f"{nanoseconds:.3g} ns", "sizes, rates or durations are out of proportion")
    return int(nanoseconds)


class EventClock(Generic[Time]):
    """Simulated time and the queue of events.

    >>> clock, log = EventClock[float](), []
    >>> _ = clock.at(2.0, log.append, "second"), clock.at(1.0, log.append, "first")
    >>> clock.cancel(clock.at(1.5, log.append, "cancelled"))
    >>> clock.run()
    >>> log, clock.now
    (['first', 'second'], 2.0)
    """

    __slots__ = ("_batches", "_cancelled", "_count", "_queue", "now", "place")

    def __init__(self) -> None:
        self.now: Time = 0
        self.place: tuple[Time, int] = (0, 0)
        """The place of the running event within its time: its order and its tie."""
        self._queue: list[tuple[Any, Any, int, int, int, Action | None, Any]] = []
        self._batches: dict[tuple[int, Time], tuple[Time, int]] = {}
        self._cancelled: set[int] = set()
        self._count = 0

    @property
    def events(self) -> int:
        """Number of events scheduled so far."""
        return self._count

    @property
    def is_last(self) -> bool:
        """Whether nothing more is scheduled for the running time."""
        found: bool = self._queue[0][0] > self.now
        return found

    # ---- events by time, order and tie

    def at(self, time: Time, action: Action, argument: Any, order: int = 0, tie: int = 0) -> int:
        """Call ``action(argument)`` at *time*; return the number by which it can be cancelled."""
        if time == self.now:  # in this round, or in the next one where it would come before what is running
            passed = int(self.place[0]) - order
            if passed > 0:
                order -= -passed // ORDERS * ORDERS
        self._count = count = self._count + 1
        heappush(self._queue, (time, order, tie, count, GLOBAL, action, argument))
        return count

    def cancel(self, event: int) -> None:
        """Do not run an *event* that has not run."""
        self._cancelled.add(event)

    # ---- events in ASTRA-sim's order

    def after(self, delay: Time, action: Action, argument: Any) -> None:
        """Call ``action(argument)`` in *delay*, behind what was scheduled for that time before."""
        self._count = count = self._count + 1
        heappush(self._queue, (self.now + delay, self.now, count, count, GLOBAL, action, argument))

    def of_rank(self, rank: int, delay: Time, action: Action, argument: Any) -> None:
        """Call ``action(argument)`` in *delay*, in the batch of *rank*'s events."""
        self.of_rank_at(rank, self.now + delay, self.now, action, argument)

    def of_rank_at(self, rank: int, time: Time, decided: Time, action: Action, argument: Any) -> None:
        """Call ``action(argument)`` at *time*, in the place of an event that would be scheduled at time *decided*.

        A collective evaluated in closed form thus ends in the same order as one simulated step by step.
        """
        self._count = count = self._count + 1
        key = (rank, time)
        # The first event of a rank at a time gives the batch its place; later ones run right after it.
        slot = self._batches.get(key)
        if slot is None:
            self._batches[key] = slot = (decided, count)
        heappush(self._queue, (time, slot[0], slot[1], count, rank, action, argument))

    def reserve(self) -> tuple[Time, int]:
        """Return the place within a later time that an event scheduled now would have."""
        self._count += 1
        return self.now, self._count

    def at_place(self, time: Time, slot: tuple[Time, int], action: Action, argument: Any) -> None:
        """Call ``action(argument)`` at *time*, in a *slot* reserved earlier."""
        heappush(self._queue, (time, *slot, slot[1], GLOBAL, action, argument))

    # ---- running

    def run(self, latest: float = LAST_NS, most: int = sys.maxsize) -> None:
        """Run events in their order: all of them, those up to the time *latest*, or so many.

        Those left can be run later. Without a bound, events beyond `LAST_NS` are refused.
        """
        queue, batches, cancelled = self._queue, self._batches, self._cancelled
        end = (latest, inf, 0, 0, GLOBAL, None, None)  # in the queue, it costs no comparison for each event
        heappush(queue, end)
        batch: tuple[int, Time] | None = None
        for _ in range(most):
            time, order, tie, event, rank, action, argument = heappop(queue)
            if action is None:
                break
            if cancelled and event in cancelled:
                cancelled.remove(event)
                continue
            # A batch ends when an event of another rank or time runs: what the rank schedules later begins a new one.
            if batch is not None and batch != (rank, time):
                del batches[batch]
                batch = None
            if rank >= 0:
                batch = (rank, time)
            self.now, self.place = time, (order, tie)
            action(argument)
        else:
            queue.remove(end)
            heapify(queue)
        if queue and latest == LAST_NS and most == sys.maxsize:
            check_time(queue[0][0])

    def stop(self) -> None:
        """Forget all that would still happen."""
        self._queue[:] = [(-inf, 0, 0, 0, GLOBAL, None, None)]


# ---- The garbage collector, paused for loops that make no cycles


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Pause the garbage collector: the loop makes no cycles, and scanning millions of live nodes takes time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
