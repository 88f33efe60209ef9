"""The network: coordinates of NPUs, routes of messages, and how long messages take.

Three fabrics carry messages:

`UnawareFabric`     as ASTRA-sim's congestion-unaware back end: no message delays another
`AwareFabric` as its congestion-aware back end, in any number of dimensions: every link is a queue, store and forward
`ConsistentFabric`  unaware of links, but concurrent messages of an NPU share its bandwidth into a dimension

A network that is a graph of links has a fabric of its own, `GraphFabric`; for the others it is one dimension.

On a graph, messages go hop by hop over links that carry one of them at a time. A message holds a link for

    latency + bytes / bandwidth

and then enters the next one of its path, where it waits behind those that came before it. Paths are the quickest. Of
several that are equally quick, and of links beside each other, a message takes at every node the one on which it
arrives first, as the queues are then.

Ranks act in whole nanoseconds; what follows an arrival within its nanosecond, such as the next hop, goes on from the
exact time, so that a path of many links rounds down once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from cosmic.base.errors import BackendError, SpecError
from cosmic.base.event_clock import Action, EventClock, check_time
from cosmic.network.link_graph import LinkGraph
from cosmic.network.link_paths import Routes
from cosmic.network.schedules.schedule_replay import Message
from cosmic.simulate.events.astra_sim_inputs import AstraSimDimension
from cosmic.traces.trace import Ints

# ---- The fabric of a network that is a graph: messages go hop by hop over links that carry one of them at a time

NO_DIFFERENCE_NS = 1e-6
"""A time this little before a whole nanosecond is that nanosecond."""
MOST_PATHS = 8
"""Equally quick paths among which a message chooses."""
Routings = tuple[tuple[int, ...], ...]
"""The links of some paths that have the same ones so far."""
Moment = tuple[int, float]
"""Whole nanoseconds, and the part of one beyond them."""
IN_SWITCH_ROUTE = "collectives that switches add up are not simulated on networks of links"


class GraphFabric:
    """Carries messages over the links of a graph, one at a time on each."""

    def __init__(self, graph: LinkGraph, clock: EventClock[int]) -> None:
        self._graph, self._clock = graph, clock
        self._latency_ns = (graph.latency_s * 1e9).tolist()
        self._bytes_per_ns = (graph.bandwidth_bytes_per_s / 1e9).tolist()
        self._quickest = Routes(graph, balanced=True)
        self._direct = Routes(graph, relays=False, balanced=True)
        # All links between the same two nodes are used as one: a message takes the first that is free.
        ends = graph.sources * graph.nodes + graph.targets
        parallel: dict[int, list[int]] = {}
        for link, key in enumerate(np.asarray(ends).tolist()):
            parallel.setdefault(key, []).append(link)
        self._beside = [tuple(parallel[key]) for key in np.asarray(ends).tolist()]
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
        # The part of a nanosecond is kept, so that rounding does not add up along a path.
        whole_ns = check_time(end + NO_DIFFERENCE_NS)
        self._free[link] = freed = (start[0] + whole_ns, max(0.0, end - whole_ns))
        self._busy_ns[link] += takes
        self._clock.after(freed[0] - now[0], self._arrived, (freed, (message, routes, passed + 1)))

    def _choose(self, routes: Routings, passed: int, now: Moment, size: int) -> Routings:
        """Return the paths with the link on which a message arrives first, as queues are now."""
        _, link = min((self._arrives_ns(route[passed:], now, size), route[passed]) for route in routes)
        return tuple(route for route in routes if route[passed] == link)

    def _arrives_ns(self, path: tuple[int, ...], now: Moment, size: int) -> float:
        """Return in how long a message would have passed the links of *path*, with queues as they are now."""
        time_ns = now[1]
        for link in path:
            time_ns = min(
                max(time_ns, self._free[parallel][0] - now[0] + self._free[parallel][1])
                + self._latency_ns[parallel]
                + size / self._bytes_per_ns[parallel]
                for parallel in self._beside[link]
            )
        return time_ns

    def _arrived(self, arrival: tuple[Moment, tuple[Message, Routings, int]]) -> None:
        self._moment, state = arrival
        self._hop(state)

    def _now(self) -> Moment:
        """Return the exact time, where the last arrival was in this nanosecond."""
        now = self._clock.now
        return self._moment if self._moment[0] == now else (now, 0.0)

    def _first_to_arrive(self, link: int, now: Moment, size: int) -> tuple[int, Moment, float]:
        """Return the link to take among those beside each other, when it is free, and how long it is held."""
        arrivals = []
        for parallel in self._beside[link]:
            start = max(now, self._free[parallel])
            takes = self._latency_ns[parallel] + size / self._bytes_per_ns[parallel]
            arrivals.append((start[0] - now[0] + start[1] + takes, parallel, start, takes))
        return min(arrivals)[1:]

    def to_switch(self, rank: int, dim: int, size: int, action: Action, argument: Any) -> None:
        """Refuse: which switch of a graph adds up is not known (`inSwitch` is refused before)."""
        raise BackendError(IN_SWITCH_ROUTE)

    def from_switch(self, rank: int, dim: int, size: int, action: Action, argument: Any) -> None:
        """Refuse, as above."""
        raise BackendError(IN_SWITCH_ROUTE)

    def busy_ns(self) -> dict[str, int]:
        """Return how long each used link was busy; links beside each other are numbered from the second on."""
        busy_by_name: dict[str, int] = {}
        for link, busy in enumerate(self._busy_ns):
            if busy:
                nth = self._beside[link].index(link)
                name = self._graph.describe(link) + (f" ({nth + 1})" if nth else "")
                busy_by_name[name.removeprefix("link ")] = round(busy)
        return busy_by_name


GRAPH = "Links"
"""The topology of the one dimension of a network that is a graph."""


@dataclass(frozen=True)
class SimulatedNetwork:
    """NPUs in dimensions; rank r has the coordinates r mod n0, r / n0 mod n1, and so on."""

    dims: tuple[AstraSimDimension, ...]

    @cached_property
    def npus(self) -> int:
        """Number of NPUs."""
        return prod(dim.npus for dim in self.dims)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Ranks between neighbours, by dimension."""
        return tuple(prod(dim.npus for dim in self.dims[:index]) for index in range(len(self.dims)))

    @cached_property
    def bytes_per_ns(self) -> tuple[float, ...]:
        """Bandwidth by dimension."""
        return tuple(dim.bandwidth_gib_per_s * 2**30 / 1e9 for dim in self.dims)  # this order: rounding as in ASTRA-sim

    def coordinate(self, rank: int, dim: int) -> int:
        """Return the coordinate of *rank* in a dimension."""
        return rank // self.strides[dim] % self.dims[dim].npus

    def hops(self, index: int, distance: int) -> int:
        """Return the number of links between two NPUs of a dimension whose coordinates differ by *distance*."""
        dim = self.dims[index]
        if dim.topology == "Ring":
            return min(distance % dim.npus, -distance % dim.npus)
        return 2 if dim.topology == "Switch" else 1

    def first_difference(self, source: int, target: int) -> tuple[int, int]:
        """Return the first dimension in which two ranks differ, and the number of links between them there."""
        for index in range(len(self.dims)):
            distance = self.coordinate(target, index) - self.coordinate(source, index)
            if distance:
                return index, self.hops(index, distance)
        return 0, 0

    def delay_ns(self, source: int, target: int, size: int) -> int:
        """Return the time of a message without congestion: t = trunc(h a + m / B).

        h  links in the first dimension in which the ranks differ    a  latency of a link [ns]
        m  bytes    B  bandwidth [bytes/ns]

        ASTRA-sim's rule: further dimensions cost nothing, and bytes are serialised once.
        """
        dim, hops = self.first_difference(source, target)
        return check_time(hops * self.dims[dim].latency_ns + size / self.bytes_per_ns[dim])

    def routes(self, sources: Ints, targets: Ints) -> tuple[Ints, Ints]:
        """Return `first_difference` of many pairs: dimensions and numbers of links."""
        dims_of_routes = np.zeros_like(sources)
        hops = np.zeros_like(sources)
        for dim in reversed(range(len(self.dims))):
            npus, stride = self.dims[dim].npus, self.strides[dim]
            distance = (targets // stride - sources // stride) % npus
            if self.dims[dim].topology == "Ring":
                links = np.minimum(distance, npus - distance)
            else:
                links = np.full_like(distance, self.hops(dim, 1))
            dims_of_routes = np.where(distance, dim, dims_of_routes)
            hops = np.where(distance, links, hops)
        return dims_of_routes, hops

    def path_codes(self, sources: Ints, targets: Ints) -> Ints:
        """Return codes that are equal for equal routes through all dimensions, directions in rings included."""
        codes = np.zeros_like(sources)
        for index, dim in enumerate(self.dims):
            distance = (targets // self.strides[index] - sources // self.strides[index]) % dim.npus
            seen = distance if dim.topology == "Ring" else np.minimum(distance, 1)
            codes = codes * dim.npus + seen
        return codes

    def dimensions_crossed(self, sources: Ints, targets: Ints) -> tuple[Ints, Ints]:
        """Return in how many dimensions pairs differ, and the most links that they cross in a ring."""
        dims, links = np.zeros_like(sources), np.zeros_like(sources)
        for index, dim in enumerate(self.dims):
            distance = (targets // self.strides[index] - sources // self.strides[index]) % dim.npus
            dims += distance > 0
            if dim.topology == "Ring":
                links = np.maximum(links, np.minimum(distance, dim.npus - distance))
        return dims, links

    def delays_ns(self, sources: Ints, targets: Ints, size: int) -> Ints:
        """Return `delay_ns` of many messages of one size."""
        dims_of_routes, hops = self.routes(sources, targets)
        latency = np.array([dim.latency_ns for dim in self.dims])[dims_of_routes]
        serial = np.array([size / rate for rate in self.bytes_per_ns])[dims_of_routes]
        exact = hops * latency + serial
        check_time(float(exact.max()))
        delays: Ints = exact.astype(np.int64)
        return delays


class UnawareFabric:
    """No message delays another."""

    def __init__(self, network: SimulatedNetwork, clock: EventClock[int]) -> None:
        self._network, self._clock = network, clock
        self._delays: dict[tuple[int, int, int], int] = {}

    def send(self, message: Message) -> None:
        """Deliver *message* after its delay."""
        key = message[:3]
        delay = self._delays.get(key)
        if delay is None:
            self._delays[key] = delay = self._network.delay_ns(*key)
        self._clock.after(delay, message.action, message.argument)

    def to_switch(self, rank: int, dim: int, size: int, action: Action, argument: Any) -> None:
        """Send to the switch of a dimension: bytes stream through it, so they are counted on the way down."""
        self._clock.after(int(self._network.dims[dim].latency_ns), action, argument)

    def from_switch(self, rank: int, dim: int, size: int, action: Action, argument: Any) -> None:
        """Receive from the switch of a dimension."""
        delay = self._network.dims[dim].latency_ns + size / self._network.bytes_per_ns[dim]
        self._clock.after(int(delay), action, argument)

    def busy_ns(self) -> dict[str, int]:
        """Return how long each link was busy: this fabric has none."""
        return {}


class TimedFabric(UnawareFabric):
    """Messages take given times: their size is their delay in nanoseconds."""

    def send(self, message: Message) -> None:
        """Deliver *message* after `size` nanoseconds."""
        self._clock.after(message.size, message.action, message.argument)


class LinkQueue:
    """One direction of a cable, or a port: one message at a time, the others queue."""

    __slots__ = ("busy_ns", "bytes_per_ns", "free_at", "free_place", "latency_ns", "name", "waiting")

    def __init__(self, name: str, bytes_per_ns: float, latency_ns: float) -> None:
        self.name, self.bytes_per_ns, self.latency_ns = name, bytes_per_ns, latency_ns
        self.free_at, self.free_place, self.busy_ns = 0, (-1, -1), 0
        self.waiting: deque[tuple[int, float, Action, Any]] = deque()


class _LinkedFabric:
    """The base of fabrics with links."""

    def __init__(self, network: SimulatedNetwork, clock: EventClock[int]) -> None:
        self._network, self._clock = network, clock
        self._links: dict[tuple[Any, ...], LinkQueue] = {}

    def busy_ns(self) -> dict[str, int]:
        """Return how long each used link was busy."""
        return {link.name: link.busy_ns for link in self._links.values()}

    def _enter(self, link: LinkQueue, size: int, latency_ns: float, action: Action, argument: Any) -> None:
        """Transmit when the link is free; within a nanosecond the order of events decides."""
        clock = self._clock
        if (link.free_at, link.free_place) < (clock.now, clock.place):
            self._transmit(link, size, latency_ns, action, argument)
            return
        if not link.waiting:
            clock.at_place(link.free_at, link.free_place, self._freed, link)
        link.waiting.append((size, latency_ns, action, argument))

    def _freed(self, link: LinkQueue) -> None:
        self._transmit(link, *link.waiting.popleft())
        if link.waiting:
            self._clock.at_place(link.free_at, link.free_place, self._freed, link)

    def _transmit(self, link: LinkQueue, size: int, latency_ns: float, action: Action, argument: Any) -> None:
        serial = size / link.bytes_per_ns
        self._clock.after(int(latency_ns + serial), action, argument)
        link.free_at, link.free_place = self._clock.now + int(serial), self._clock.reserve()
        link.busy_ns += int(serial)


class AmbiguousOrder(Exception):  # noqa: N818  no mistake: a reason to simulate all ranks
    """The order of two events of one nanosecond depends on which of several equivalent ranks they belong to."""


class AwareFabric(_LinkedFabric):
    """Every link is a queue; a message goes from link to link, dimension by dimension, the innermost first.

    *entity_of* gives the entity simulated for each rank; links of equivalent ranks are simulated once. The order in
    which messages of several senders reach a link at one moment is then unknown, and `AmbiguousOrder` is raised.
    """

    def __init__(self, network: SimulatedNetwork, clock: EventClock[int], entity_of: Sequence[int]) -> None:
        super().__init__(network, clock)
        self._entity_of = entity_of
        self._folded = len(set(entity_of)) < len(entity_of)
        self._reached: dict[int, tuple[int, int]] = {}
        self._routes: dict[tuple[int, int], tuple[LinkQueue, ...]] = {}

    def send(self, message: Message) -> None:
        """Send *message* over the links of its route."""
        pair = message[:2]
        route = self._routes.get(pair)
        if route is None:
            self._routes[pair] = route = tuple(self._route(*pair))
        self._hop((message, route, 0))

    def to_switch(self, rank: int, dim: int, size: int, action: Action, argument: Any) -> None:
        """Send to the switch of a dimension."""
        link = self._link(dim, f"{rank}→switch", rank, "up")
        self._enter(link, size, link.latency_ns, action, argument)

    def from_switch(self, rank: int, dim: int, size: int, action: Action, argument: Any) -> None:
        """Receive from the switch of a dimension."""
        link = self._link(dim, f"switch→{rank}", rank, "down")
        self._enter(link, size, link.latency_ns, action, argument)

    def _hop(self, state: tuple[Message, tuple[LinkQueue, ...], int]) -> None:
        message, route, passed = state
        link = route[passed]
        if self._folded and passed:
            self._reach(link, message.source)
        if passed == len(route) - 1:
            self._enter(link, message.size, link.latency_ns, message.action, message.argument)
        else:
            self._enter(link, message.size, link.latency_ns, self._hop, (message, route, passed + 1))

    def _reach(self, link: LinkQueue, source: int) -> None:
        now = self._clock.now
        before, sender = self._reached.get(id(link), (-1, -1))
        # In one nanosecond, messages of two ranks: which comes first is unknown where one rank stands for
        # several.
        if before == now and sender != source:
            raise AmbiguousOrder
        self._reached[id(link)] = (now, source)

    def _route(self, source: int, target: int) -> list[LinkQueue]:
        # Dimension by dimension, the lowest first; on a ring the shorter way round, upwards where both are
        # equal.
        links, position = [], source
        for index, dim in enumerate(self._network.dims):
            stride = self._network.strides[index]
            begin, end = self._network.coordinate(position, index), self._network.coordinate(target, index)
            next_position = position + (end - begin) * stride
            if begin == end:
                continue
            if dim.topology == "Ring":
                step = 1 if (end - begin) % dim.npus <= (begin - end) % dim.npus else -1
                while begin != end:
                    following = (begin + step) % dim.npus
                    rank = position + (begin - self._network.coordinate(position, index)) * stride
                    links.append(self._link(index, f"{rank}→{rank + (following - begin) * stride}", rank, step))
                    begin = following
            elif dim.topology == "Switch":
                links.append(self._link(index, f"{position}→switch", position, "up"))
                links.append(self._link(index, f"switch→{next_position}", next_position, "down"))
            else:
                links.append(self._link(index, f"{position}→{next_position}", position, next_position))
            position = next_position
        return links

    def _link(self, index: int, name: str, owner: int, way: Any) -> LinkQueue:
        key = (index, self._entity_of[owner], way)
        if key not in self._links:
            dim = self._network.dims[index]
            named = f"dim {index}: {name}"
            self._links[key] = LinkQueue(named, self._network.bytes_per_ns[index], dim.latency_ns)
        return self._links[key]


class ConsistentFabric(_LinkedFabric):
    """An NPU has one port into each dimension; its messages into that dimension queue there.

    A message that crosses several dimensions occupies the port of the slowest, and takes the latency of all.
    """

    def __init__(self, network: SimulatedNetwork, clock: EventClock[int], entity_of: Sequence[int]) -> None:
        super().__init__(network, clock)
        self._entity_of = entity_of
        self._routes: dict[tuple[int, int], tuple[LinkQueue, float]] = {}

    def send(self, message: Message) -> None:
        """Send *message* when the port is free; deliver it after the latency of its links."""
        pair = message[:2]
        route = self._routes.get(pair)
        if route is None:
            self._routes[pair] = route = self._route(*pair)
        self._enter(route[0], message.size, route[1], message.action, message.argument)

    def _route(self, source: int, target: int) -> tuple[LinkQueue, float]:
        """Return the port through which a message leaves, and the latency of its links."""
        network, latency, crossed = self._network, 0.0, []
        for index, dim in enumerate(network.dims):
            if distance := network.coordinate(target, index) - network.coordinate(source, index):
                latency += network.hops(index, distance) * dim.latency_ns
                crossed.append(index)
        slowest = min(crossed, key=network.bytes_per_ns.__getitem__)
        return self._port(source, slowest), latency

    def _port(self, rank: int, dim: int) -> LinkQueue:
        key = (dim, self._entity_of[rank])
        if key not in self._links:
            self._links[key] = LinkQueue(f"dim {dim}: {rank}→", self._network.bytes_per_ns[dim], 0.0)
        return self._links[key]

    def to_switch(self, rank: int, dim: int, size: int, action: Action, argument: Any) -> None:
        """Send to the switch of a dimension: bytes stream through it, so they are counted on the way down."""
        self._clock.after(int(self._network.dims[dim].latency_ns), action, argument)

    def from_switch(self, rank: int, dim: int, size: int, action: Action, argument: Any) -> None:
        """Receive from the switch of a dimension; the sending port is busy too."""
        self._enter(self._port(rank, dim), size, self._network.dims[dim].latency_ns, action, argument)
