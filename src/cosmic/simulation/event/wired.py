"""A fabric of arbitrary links: every link is a queue with a bandwidth and a latency of its own.

A message holds a link for latency + bytes / bandwidth, and then enters the next link of its route. Times are exact
seconds that add up as those of schedules do; the clock, in whole ticks, decides in which order messages reach a link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cosmic.graphs.graph import LinkGraph
from cosmic.simulation.event.clock import Action, Clock, within

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


class Wired:
    """Carries messages over the links of a graph, one at a time on each link."""

    def __init__(self, graph: LinkGraph, clock: Clock, route: Route, ticks_per_s: float = NANOSECONDS) -> None:
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
        delay = max(0, within(end * self._ticks) - self._clock.now)
        self._clock.after(delay, self._arrived, (end, action, argument))

    def _arrived(self, state: tuple[float, Action, Any]) -> None:
        self.now_s, action, argument = state
        action(argument)

    def busy_ns(self) -> dict[str, int]:
        """Return how long each used link was busy."""
        return {self._graph.describe(link): round(busy * 1e9) for link, busy in enumerate(self._busy_s) if busy}
