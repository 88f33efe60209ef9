"""The fabric of a network that is a graph: messages go hop by hop over links that carry one of them at a time.

A message holds a link for

    latency + bytes / bandwidth

and then enters the next one of its route, where it waits behind those that came before it. Several links from one node
to another share what comes: a message takes the one on which it arrives first.

Ranks act in whole nanoseconds; what follows an arrival within its nanosecond, such as the next hop, goes on from the
exact time, so that a path of many links rounds down once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cosmic.errors import SpecError
from cosmic.graphs.graph import LinkGraph
from cosmic.graphs.quickest import Routes
from cosmic.simulation.event.clock import Action, Clock, within
from cosmic.simulation.event.network import Message

NO_DIFFERENCE_NS = 1e-6
"""A time this little before a whole nanosecond is that nanosecond."""
Moment = tuple[int, float]
"""Whole nanoseconds, and the part of one beyond them."""


class LinkQueues:
    """Carries messages over the links of a graph, one at a time on each."""

    def __init__(self, graph: LinkGraph, clock: Clock) -> None:
        self._graph, self._clock = graph, clock
        self._latency_ns = (graph.latency_s * 1e9).tolist()
        self._bytes_per_ns = (graph.bandwidth_bytes_per_s / 1e9).tolist()
        self._quickest = Routes(graph, balanced=True)
        self._direct = Routes(graph, relays=False, balanced=True)
        self._beside = _beside(graph)
        self._routes: dict[tuple[int, int, bool], tuple[int, ...]] = {}
        self._free: list[Moment] = [(0, 0.0)] * graph.links
        self._busy_ns = [0.0] * graph.links
        self._moment: Moment = (0, 0.0)

    def send(self, message: Message) -> None:
        """Send *message* over the links of its route."""
        key = (message.source, message.target, message.direct)
        route = self._routes.get(key)
        if route is None:
            self._routes[key] = route = self._route(*key)
        self._hop((message, route, 0))

    def _route(self, source: int, target: int, direct: bool) -> tuple[int, ...]:
        """Return the quickest path; of a *direct* message, one over switches alone where there is one."""
        if direct:
            try:
                return self._direct.path(source, target)
            except SpecError:  # other NPUs must relay it
                pass
        return self._quickest.path(source, target)

    def _hop(self, state: tuple[Message, tuple[int, ...], int]) -> None:
        message, route, passed = state
        if passed == len(route):
            message.action(message.argument)
            return
        now = self._now()
        link, start, takes = self._first_to_arrive(route[passed], now, message.size)
        end = start[1] + takes
        whole = within(end + NO_DIFFERENCE_NS)
        self._free[link] = there = (start[0] + whole, max(0.0, end - whole))
        self._busy_ns[link] += takes
        self._clock.after(there[0] - now[0], self._arrived, (there, (message, route, passed + 1)))

    def _arrived(self, what: tuple[Moment, tuple[Message, tuple[int, ...], int]]) -> None:
        self._moment, state = what
        self._hop(state)

    def _now(self) -> Moment:
        """Return the exact time, where the last arrival was in this nanosecond."""
        now = self._clock.now
        return self._moment if self._moment[0] == now else (now, 0.0)

    def _first_to_arrive(self, link: int, now: Moment, size: int) -> tuple[int, Moment, float]:
        """Return the link to take among those beside each other, when it is free, and how long it is held."""
        found = []
        for each in self._beside[link]:
            start = max(now, self._free[each])
            takes = self._latency_ns[each] + size / self._bytes_per_ns[each]
            found.append((start[0] - now[0] + start[1] + takes, each, start, takes))
        return min(found)[1:]

    def to_switch(self, rank: int, place: int, size: int, action: Action, argument: Any) -> None:
        """Refuse: placements of collectives have refused it before."""
        raise NotImplementedError

    def from_switch(self, rank: int, place: int, size: int, action: Action, argument: Any) -> None:
        """Refuse, as above."""
        raise NotImplementedError

    def busy_ns(self) -> dict[str, int]:
        """Return how long each used link was busy; links beside each other are numbered from the second on."""
        found: dict[str, int] = {}
        for link, busy in enumerate(self._busy_ns):
            if busy:
                place = self._beside[link].index(link)
                name = self._graph.describe(link) + (f" ({place + 1})" if place else "")
                found[name.removeprefix("link ")] = round(busy)
        return found


def _beside(graph: LinkGraph) -> list[tuple[int, ...]]:
    """Return, for each link, all those from its source to its target."""
    ends = graph.sources * graph.nodes + graph.targets
    alike: dict[int, list[int]] = {}
    for link, key in enumerate(np.asarray(ends).tolist()):
        alike.setdefault(key, []).append(link)
    return [tuple(alike[key]) for key in np.asarray(ends).tolist()]
