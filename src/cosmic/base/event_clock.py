"""The event queue: simulated time in whole nanoseconds, and the order of events within one.

The order is ASTRA-sim's, because results depend on it. Events of one nanosecond run in the order in which they were
scheduled. Events that a rank schedules for itself form one batch, which runs in the place of its first event, so events
of several ranks do not interleave.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from cosmic.base.errors import SpecError

Action = Callable[[Any], None]
GLOBAL = -1
"""The owner of events that belong to no rank: messages in flight."""
LAST_NS = 2**62
"""More than a century: no job takes longer, and sums would overflow 64 bits."""


def check_time(nanoseconds: float) -> int:
    """Return a time truncated to whole nanoseconds; refuse one beyond `LAST_NS`.

    >>> check_time(1.5)
    1
    """
    if not nanoseconds < LAST_NS:
        raise SpecError("simulated time", f"{nanoseconds:.3g} ns", "sizes, rates or durations are out of proportion")
    return int(nanoseconds)


class EventClock:
    """Simulated time and the queue of events."""

    __slots__ = ("_batches", "_count", "_queue", "now", "place")

    def __init__(self) -> None:
        self.now = 0
        self.place = (0, 0)
        """The place of the running event within its nanosecond."""
        self._queue: list[tuple[int, int, int, int, int, Action, Any]] = []
        self._batches: dict[tuple[int, int], tuple[int, int]] = {}
        self._count = 0

    @property
    def events(self) -> int:
        """Number of events scheduled so far."""
        return self._count

    def after(self, delay: int, action: Action, argument: Any) -> None:
        """Call ``action(argument)`` in *delay* nanoseconds."""
        self._count = count = self._count + 1
        heappush(self._queue, (self.now + delay, self.now, count, count, GLOBAL, action, argument))

    def of_rank(self, rank: int, delay: int, action: Action, argument: Any) -> None:
        """Call ``action(argument)`` in *delay* nanoseconds, in the batch of *rank*'s events."""
        self.of_rank_at(rank, self.now + delay, self.now, action, argument)

    def of_rank_at(self, rank: int, time: int, decided: int, action: Action, argument: Any) -> None:
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

    def reserve(self) -> tuple[int, int]:
        """Return the place within a later nanosecond that an event scheduled now would have."""
        self._count += 1
        return self.now, self._count

    def at_place(self, time: int, slot: tuple[int, int], action: Action, argument: Any) -> None:
        """Call ``action(argument)`` at *time*, in a *slot* reserved earlier."""
        heappush(self._queue, (time, *slot, slot[1], GLOBAL, action, argument))

    def run(self) -> None:
        """Run all events until the queue is empty."""
        queue, batches = self._queue, self._batches
        heappush(queue, (LAST_NS, 0, 0, 0, GLOBAL, self._end, None))
        batch: tuple[int, int] | None = None
        while queue:
            time, decided, first, _, rank, action, argument = heappop(queue)
            # A batch ends when an event of another rank or time runs: what the rank schedules later begins a new one.
            if batch is not None and batch != (rank, time):
                del batches[batch]
                batch = None
            if rank != GLOBAL:
                batch = (rank, time)
            self.now, self.place = time, (decided, first)
            action(argument)

    def _end(self, _: Any) -> None:
        if self._queue:
            check_time(self._queue[0][0])
