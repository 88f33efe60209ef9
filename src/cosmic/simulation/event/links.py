"""The fabric of a network that is a graph: messages go hop by hop over links that carry one of them at a time.

A message holds a link for

    latency + bytes / bandwidth

and then enters the next one of its path, where it waits behind those that came before it. Paths are the quickest. Of
several that are equally quick, and of links beside each other, a message takes at every node the one on which it
arrives first, as the queues are then.

Ranks act in whole nanoseconds; what follows an arrival within its nanosecond, such as the next hop, goes on from the
exact time, so that a path of many links rounds down once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cosmic.errors import BackendError, SpecError
from cosmic.graphs.graph import LinkGraph
from cosmic.graphs.quickest import Routes
from cosmic.simulation.event.clock import Action, Clock, within
from cosmic.simulation.event.wired import Message

NO_DIFFERENCE_NS = 1e-6
"""A time this little before a whole nanosecond is that nanosecond."""
MOST_PATHS = 8
"""Equally quick paths among which a message chooses."""
Routings = tuple[tuple[int, ...], ...]
"""The links of some paths that have the same ones so far."""
Moment = tuple[int, float]
"""Whole nanoseconds, and the part of one beyond them."""
IN_SWITCH = "collectives that switches add up are not simulated on networks of links"


class LinkQueues:
    """Carries messages over the links of a graph, one at a time on each."""

    def __init__(self, graph: LinkGraph, clock: Clock) -> None:
        self._graph, self._clock = graph, clock
        self._latency_ns = (graph.latency_s * 1e9).tolist()
        self._bytes_per_ns = (graph.bandwidth_bytes_per_s / 1e9).tolist()
        self._quickest = Routes(graph, balanced=True)
        self._direct = Routes(graph, relays=False, balanced=True)
        self._beside = _beside(graph)
        self._routes: dict[tuple[int, int, bool], Routings] = {}
        self._free: list[Moment] = [(0, 0.0)] * graph.links
        self._busy_ns = [0.0] * graph.links
        self._moment: Moment = (0, 0.0)

    def send(self, message: Message) -> None:
        """Send *message* over the links of a path."""
        key = (message.source, message.target, message.direct)
        routes = self._routes.get(key)
        if routes is None:
            self._routes[key] = routes = self._paths(*key)
        self._hop((message, routes, 0))

    def _paths(self, source: int, target: int, direct: bool) -> Routings:
        """Return the quickest paths; of a *direct* message, those over switches alone where there are any."""
        if direct:
            try:
                return self._direct.paths(source, target, MOST_PATHS)
            except SpecError:  # other NPUs must relay it
                pass
        return self._quickest.paths(source, target, MOST_PATHS)

    def _hop(self, state: tuple[Message, Routings, int]) -> None:
        message, routes, passed = state
        if passed == len(routes[0]):
            message.action(message.argument)
            return
        now = self._now()
        if len(routes) > 1:
            routes = self._choose(routes, passed, now, message.size)
        link, start, takes = self._first_to_arrive(routes[0][passed], now, message.size)
        end = start[1] + takes
        whole = within(end + NO_DIFFERENCE_NS)
        self._free[link] = there = (start[0] + whole, max(0.0, end - whole))
        self._busy_ns[link] += takes
        self._clock.after(there[0] - now[0], self._arrived, (there, (message, routes, passed + 1)))

    def _choose(self, routes: Routings, passed: int, now: Moment, size: int) -> Routings:
        """Return the paths with the link on which a message arrives first, as queues are now."""
        _, link = min((self._arrives_ns(route[passed:], now, size), route[passed]) for route in routes)
        return tuple(route for route in routes if route[passed] == link)

    def _arrives_ns(self, path: tuple[int, ...], now: Moment, size: int) -> float:
        """Return in how long a message would have passed the links of *path*, with queues as they are now."""
        time_ns = now[1]
        for link in path:
            time_ns = min(
                max(time_ns, self._free[each][0] - now[0] + self._free[each][1])
                + self._latency_ns[each]
                + size / self._bytes_per_ns[each]
                for each in self._beside[link]
            )
        return time_ns

    def _arrived(self, what: tuple[Moment, tuple[Message, Routings, int]]) -> None:
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
        """Refuse: which switch of a graph adds up is not known (`inSwitch` is refused before)."""
        raise BackendError(IN_SWITCH)

    def from_switch(self, rank: int, place: int, size: int, action: Action, argument: Any) -> None:
        """Refuse, as above."""
        raise BackendError(IN_SWITCH)

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
