"""The order of events: ends before arrivals, arrivals in the order of their jobs, then what follows from both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from typing import Protocol

from cosmic.fleets.requests import Request


class Ends:
    """When jobs end. An end that has moved is forgotten; those at the same time are in the order of the jobs."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._at: dict[int, float] = {}

    def move(self, index: int, end_s: float) -> None:
        """Let a job end at *end_s*, and no longer when it was to end before."""
        self._at[index] = end_s
        heappush(self._heap, (end_s, index))

    def next_s(self) -> float:
        """Return when the next job ends."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else inf

    def due(self, now_s: float) -> Iterator[int]:
        """Yield the jobs that end until *now_s*, each once."""
        while self.next_s() <= now_s:
            _, index = heappop(self._heap)
            del self._at[index]
            yield index


class State(Protocol):
    """A cluster at one time."""

    now: float
    ends: Ends

    def finish(self, index: int) -> None:
        """End a job now."""

    def arrive(self, index: int) -> None:
        """Take a job in."""

    def settle(self) -> None:
        """Do what follows from all that ended and arrived now."""


def drive(requests: Sequence[Request], state: State) -> None:
    """Take the events of all jobs in their order."""
    order = sorted(range(len(requests)), key=lambda place: (requests[place].arrival_s, place))
    arrived = 0
    while arrived < len(order) or state.ends.next_s() < inf:
        coming = requests[order[arrived]].arrival_s if arrived < len(order) else inf
        state.now = min(coming, state.ends.next_s())
        for index in state.ends.due(state.now):
            state.finish(index)
        while arrived < len(order) and requests[order[arrived]].arrival_s <= state.now:
            state.arrive(order[arrived])
            arrived += 1
        state.settle()
