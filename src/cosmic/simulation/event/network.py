"""The network: coordinates of NPUs, routes of messages, and how long messages take.

Three fabrics carry messages:

`Unaware`     as ASTRA-sim's congestion-unaware back end: no message delays another
`Aware`       as its congestion-aware back end, in any number of dimensions: every link is a queue, store and forward
`Consistent`  unaware of links, but concurrent messages of an NPU share its bandwidth into a dimension

A network that is a graph of links has a fabric of its own (`cosmic.simulation.event.links`); here it is one dimension.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from cosmic.simulation.event.clock import Action, Clock, within
from cosmic.simulation.event.inputs import AstraSimDimension
from cosmic.simulation.event.wired import Message
from cosmic.traces.trace import Ints

GRAPH = "Links"
"""The topology of the one dimension of a network that is a graph."""


@dataclass(frozen=True)
class Network:
    """NPUs in dimensions; rank r has the coordinates r mod n0, r / n0 mod n1, and so on."""

    dims: tuple[AstraSimDimension, ...]

    @cached_property
    def npus(self) -> int:
        """Number of NPUs."""
        return prod(dim.npus for dim in self.dims)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Ranks between neighbours, by dimension."""
        return tuple(prod(dim.npus for dim in self.dims[:place]) for place in range(len(self.dims)))

    @cached_property
    def bytes_per_ns(self) -> tuple[float, ...]:
        """Bandwidth by dimension."""
        return tuple(dim.bandwidth_gib_per_s * 2**30 / 1e9 for dim in self.dims)  # this order: rounding as in ASTRA-sim

    def coordinate(self, rank: int, place: int) -> int:
        """Return the coordinate of *rank* in a dimension."""
        return rank // self.strides[place] % self.dims[place].npus

    def hops(self, place: int, distance: int) -> int:
        """Return the number of links between two NPUs of a dimension whose coordinates differ by *distance*."""
        dim = self.dims[place]
        if dim.topology == "Ring":
            return min(distance % dim.npus, -distance % dim.npus)
        return 2 if dim.topology == "Switch" else 1

    def first_difference(self, source: int, target: int) -> tuple[int, int]:
        """Return the first dimension in which two ranks differ, and the number of links between them there."""
        for place in range(len(self.dims)):
            distance = self.coordinate(target, place) - self.coordinate(source, place)
            if distance:
                return place, self.hops(place, distance)
        return 0, 0

    def delay_ns(self, source: int, target: int, size: int) -> int:
        """Return the time of a message without congestion: t = trunc(h a + m / B).

        h  links in the first dimension in which the ranks differ    a  latency of a link [ns]
        m  bytes    B  bandwidth [bytes/ns]

        ASTRA-sim's rule: further dimensions cost nothing, and bytes are serialised once.
        """
        place, hops = self.first_difference(source, target)
        return within(hops * self.dims[place].latency_ns + size / self.bytes_per_ns[place])

    def routes(self, sources: Ints, targets: Ints) -> tuple[Ints, Ints]:
        """Return `first_difference` of many pairs: dimensions and numbers of links."""
        places = np.zeros_like(sources)
        hops = np.zeros_like(sources)
        for place in reversed(range(len(self.dims))):
            npus, stride = self.dims[place].npus, self.strides[place]
            distance = (targets // stride - sources // stride) % npus
            if self.dims[place].topology == "Ring":
                links = np.minimum(distance, npus - distance)
            else:
                links = np.full_like(distance, self.hops(place, 1))
            places = np.where(distance, place, places)
            hops = np.where(distance, links, hops)
        return places, hops

    def path_codes(self, sources: Ints, targets: Ints) -> Ints:
        """Return codes that are equal for equal routes through all dimensions, directions in rings included."""
        codes = np.zeros_like(sources)
        for place, dim in enumerate(self.dims):
            distance = (targets // self.strides[place] - sources // self.strides[place]) % dim.npus
            seen = distance if dim.topology == "Ring" else np.minimum(distance, 1)
            codes = codes * dim.npus + seen
        return codes

    def dimensions_crossed(self, sources: Ints, targets: Ints) -> tuple[Ints, Ints]:
        """Return in how many dimensions pairs differ, and the most links that they cross in a ring."""
        dims, links = np.zeros_like(sources), np.zeros_like(sources)
        for place, dim in enumerate(self.dims):
            distance = (targets // self.strides[place] - sources // self.strides[place]) % dim.npus
            dims += distance > 0
            if dim.topology == "Ring":
                links = np.maximum(links, np.minimum(distance, dim.npus - distance))
        return dims, links

    def delays_ns(self, sources: Ints, targets: Ints, size: int) -> Ints:
        """Return `delay_ns` of many messages of one size."""
        places, hops = self.routes(sources, targets)
        latency = np.array([dim.latency_ns for dim in self.dims])[places]
        serial = np.array([size / rate for rate in self.bytes_per_ns])[places]
        exact = hops * latency + serial
        within(float(exact.max()))
        delays: Ints = exact.astype(np.int64)
        return delays


class Unaware:
    """No message delays another."""

    def __init__(self, network: Network, clock: Clock) -> None:
        self._network, self._clock = network, clock
        self._delays: dict[tuple[int, int, int], int] = {}

    def send(self, message: Message) -> None:
        """Deliver *message* after its delay."""
        key = message[:3]
        delay = self._delays.get(key)
        if delay is None:
            self._delays[key] = delay = self._network.delay_ns(*key)
        self._clock.after(delay, message.action, message.argument)

    def to_switch(self, rank: int, place: int, size: int, action: Action, argument: Any) -> None:
        """Send to the switch of a dimension: bytes stream through it, so they are counted on the way down."""
        self._clock.after(int(self._network.dims[place].latency_ns), action, argument)

    def from_switch(self, rank: int, place: int, size: int, action: Action, argument: Any) -> None:
        """Receive from the switch of a dimension."""
        delay = self._network.dims[place].latency_ns + size / self._network.bytes_per_ns[place]
        self._clock.after(int(delay), action, argument)

    def busy_ns(self) -> dict[str, int]:
        """Return how long each link was busy: this fabric has none."""
        return {}


class Timed(Unaware):
    """Messages take given times: their size is their delay in nanoseconds."""

    def send(self, message: Message) -> None:
        """Deliver *message* after `size` nanoseconds."""
        self._clock.after(message.size, message.action, message.argument)


class Link:
    """One direction of a cable, or a port: one message at a time, the others queue."""

    __slots__ = ("busy_ns", "bytes_per_ns", "free_at", "free_place", "latency_ns", "name", "waiting")

    def __init__(self, name: str, bytes_per_ns: float, latency_ns: float) -> None:
        self.name, self.bytes_per_ns, self.latency_ns = name, bytes_per_ns, latency_ns
        self.free_at, self.free_place, self.busy_ns = 0, (-1, -1), 0
        self.waiting: deque[tuple[int, float, Action, Any]] = deque()


class _Linked:
    """The base of fabrics with links."""

    def __init__(self, network: Network, clock: Clock) -> None:
        self._network, self._clock = network, clock
        self._links: dict[tuple[Any, ...], Link] = {}

    def busy_ns(self) -> dict[str, int]:
        """Return how long each used link was busy."""
        return {link.name: link.busy_ns for link in self._links.values()}

    def _enter(self, link: Link, size: int, latency_ns: float, action: Action, argument: Any) -> None:
        """Transmit when the link is free; within a nanosecond the place of the event decides."""
        clock = self._clock
        if (link.free_at, link.free_place) < (clock.now, clock.place):
            self._transmit(link, size, latency_ns, action, argument)
            return
        if not link.waiting:
            clock.at_place(link.free_at, link.free_place, self._freed, link)
        link.waiting.append((size, latency_ns, action, argument))

    def _freed(self, link: Link) -> None:
        self._transmit(link, *link.waiting.popleft())
        if link.waiting:
            self._clock.at_place(link.free_at, link.free_place, self._freed, link)

    def _transmit(self, link: Link, size: int, latency_ns: float, action: Action, argument: Any) -> None:
        serial = size / link.bytes_per_ns
        self._clock.after(int(latency_ns + serial), action, argument)
        link.free_at, link.free_place = self._clock.now + int(serial), self._clock.reserve()
        link.busy_ns += int(serial)


class Ambiguous(Exception):  # noqa: N818  no mistake: a reason to simulate all ranks
    """The order of two events of one nanosecond depends on which of several equivalent ranks they belong to."""


class Aware(_Linked):
    """Every link is a queue; a message goes from link to link, dimension by dimension, the innermost first.

    *entity_of* gives the entity simulated for each rank; links of equivalent ranks are simulated once. The order in
    which messages of several senders reach a link at one moment is then unknown, and `Ambiguous` is raised.
    """

    def __init__(self, network: Network, clock: Clock, entity_of: Sequence[int]) -> None:
        super().__init__(network, clock)
        self._entity_of = entity_of
        self._folded = len(set(entity_of)) < len(entity_of)
        self._reached: dict[int, tuple[int, int]] = {}
        self._routes: dict[tuple[int, int], tuple[Link, ...]] = {}

    def send(self, message: Message) -> None:
        """Send *message* over the links of its route."""
        pair = message[:2]
        route = self._routes.get(pair)
        if route is None:
            self._routes[pair] = route = tuple(self._route(*pair))
        self._hop((message, route, 0))

    def to_switch(self, rank: int, place: int, size: int, action: Action, argument: Any) -> None:
        """Send to the switch of a dimension."""
        link = self._link(place, f"{rank}→switch", rank, "up")
        self._enter(link, size, link.latency_ns, action, argument)

    def from_switch(self, rank: int, place: int, size: int, action: Action, argument: Any) -> None:
        """Receive from the switch of a dimension."""
        link = self._link(place, f"switch→{rank}", rank, "down")
        self._enter(link, size, link.latency_ns, action, argument)

    def _hop(self, state: tuple[Message, tuple[Link, ...], int]) -> None:
        message, route, passed = state
        link = route[passed]
        if self._folded and passed:
            self._reach(link, message.source)
        if passed == len(route) - 1:
            self._enter(link, message.size, link.latency_ns, message.action, message.argument)
        else:
            self._enter(link, message.size, link.latency_ns, self._hop, (message, route, passed + 1))

    def _reach(self, link: Link, source: int) -> None:
        now = self._clock.now
        before, sender = self._reached.get(id(link), (-1, -1))
        if before == now and sender != source:
            raise Ambiguous
        self._reached[id(link)] = (now, source)

    def _route(self, source: int, target: int) -> list[Link]:
        links, here = [], source
        for place, dim in enumerate(self._network.dims):
            stride = self._network.strides[place]
            begin, end = self._network.coordinate(here, place), self._network.coordinate(target, place)
            there = here + (end - begin) * stride
            if begin == end:
                continue
            if dim.topology == "Ring":
                step = 1 if (end - begin) % dim.npus <= (begin - end) % dim.npus else -1
                while begin != end:
                    following = (begin + step) % dim.npus
                    rank = here + (begin - self._network.coordinate(here, place)) * stride
                    links.append(self._link(place, f"{rank}→{rank + (following - begin) * stride}", rank, step))
                    begin = following
            elif dim.topology == "Switch":
                links.append(self._link(place, f"{here}→switch", here, "up"))
                links.append(self._link(place, f"switch→{there}", there, "down"))
            else:
                links.append(self._link(place, f"{here}→{there}", here, there))
            here = there
        return links

    def _link(self, place: int, name: str, owner: int, way: Any) -> Link:
        key = (place, self._entity_of[owner], way)
        if key not in self._links:
            dim = self._network.dims[place]
            named = f"dim {place}: {name}"
            self._links[key] = Link(named, self._network.bytes_per_ns[place], dim.latency_ns)
        return self._links[key]


class Consistent(_Linked):
    """An NPU has one port into each dimension; its messages into that dimension queue there.

    A message that crosses several dimensions occupies the port of the slowest, and takes the latency of all.
    """

    def __init__(self, network: Network, clock: Clock, entity_of: Sequence[int]) -> None:
        super().__init__(network, clock)
        self._entity_of = entity_of
        self._routes: dict[tuple[int, int], tuple[Link, float]] = {}

    def send(self, message: Message) -> None:
        """Send *message* when the port is free; deliver it after the latency of its links."""
        pair = message[:2]
        route = self._routes.get(pair)
        if route is None:
            self._routes[pair] = route = self._route(*pair)
        self._enter(route[0], message.size, route[1], message.action, message.argument)

    def _route(self, source: int, target: int) -> tuple[Link, float]:
        """Return the port through which a message leaves, and the latency of its links."""
        network, latency, crossed = self._network, 0.0, []
        for place, dim in enumerate(network.dims):
            if distance := network.coordinate(target, place) - network.coordinate(source, place):
                latency += network.hops(place, distance) * dim.latency_ns
                crossed.append(place)
        slowest = min(crossed, key=network.bytes_per_ns.__getitem__)
        return self._port(source, slowest), latency

    def _port(self, rank: int, place: int) -> Link:
        key = (place, self._entity_of[rank])
        if key not in self._links:
            self._links[key] = Link(f"dim {place}: {rank}→", self._network.bytes_per_ns[place], 0.0)
        return self._links[key]

    def to_switch(self, rank: int, place: int, size: int, action: Action, argument: Any) -> None:
        """Send to the switch of a dimension: bytes stream through it, so they are counted on the way down."""
        self._clock.after(int(self._network.dims[place].latency_ns), action, argument)

    def from_switch(self, rank: int, place: int, size: int, action: Action, argument: Any) -> None:
        """Receive from the switch of a dimension; the sending port is busy too."""
        self._enter(self._port(rank, place), size, self._network.dims[place].latency_ns, action, argument)
