"""The network layer: dimensions, innermost first, and how each is built.

A dimension says what NPUs can send; its *fabric* says what carries that: switches of a radix, in tiers, with optics and
cables. A *build* arranges switches: it knows how many NPUs are below one switch of each tier, where traffic that leaves
them is oversubscribed, and which parts are to be bought, in whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite, prod
from typing import Any, Literal, NamedTuple, Protocol

from cosmic.base.errors import require
from cosmic.base.registry import Registry, members_of
from cosmic.design.schema import DERIVED_FIELD, Absent, check_bounds

BY_BANDWIDTH = "by_bandwidth"
"""Build of a dimension whose parts cost in proportion to its bandwidth (LIBRA's prices): no switch is counted."""
INCLUDED = "included"
"""Build of a dimension that is part of a node as it is sold: nothing of it is bought apart."""
UNTIERED = (BY_BANDWIDTH, INCLUDED)
"""Builds that say nothing of switches: `Dimension.oversubscription` acts on all traffic of a dimension."""

RAILS = ("rail_optimized", "rail_only")
"""Builds whose leaf switches join NPUs of one rank in their nodes: another rank is reached over a spine, or not."""
Routing = Literal["adaptive", "ecmp"]


class Site(NamedTuple):
    """A dimension as a build sees it: its sizes, and the figures of its fabric."""

    npus: int
    """NPUs that one instance of the dimension joins: nodes, where the dimensions inside are nodes."""
    inside: int
    """NPUs in all dimensions inside it, each with a NIC of its own: rails of a node."""
    instances: int
    """How often the dimension stands side by side: once for each NPU inside, and for each group outside."""
    radix: int
    oversubscription: float
    """Bandwidth into the leaf switches, over what leaves them upwards."""
    core_oversubscription: float
    """The same of pods, between the second and the third tier."""


class FabricTier(NamedTuple):
    """A tier of switches that traffic may stay below."""

    npus: int
    """NPUs of one instance of the dimension below one switch, or group of switches, of the tier."""
    oversubscription: float
    """Bandwidth that they send upwards together, over what the tier can pass on; 1: all of it."""


class Bill(NamedTuple):
    """Parts of all instances of a dimension together: whole numbers."""

    switches: int = 0
    optics: int = 0
    """Transceivers, one at each end of an optical cable."""
    cables: int = 0
    circuit_ports: int = 0
    """Ports of optical circuit switches."""


class Build(Protocol):
    """One way to arrange switches."""

    @staticmethod
    def tiers(site: Site) -> tuple[FabricTier, ...]:
        """Return the tiers that traffic may stay below, innermost first; none where all NPUs are on one switch."""
        ...

    @staticmethod
    def bill(site: Site) -> Bill:
        """Return the parts of all instances of the dimension."""
        ...


builds: Registry[Build] = Registry("build", "cosmic.cluster.builds", "cosmic.builds", members_of(Build))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """What a dimension is built of."""

    build: str = field(default=BY_BANDWIDTH, metadata={"names": builds})
    """How switches are arranged; `by_bandwidth`: parts cost in proportion to bandwidth, `included`: in the node."""
    switch: str = ""
    """Entry of the catalog that the following figures are of."""
    radix: int = 64
    """Ports of a switch, of `port_bandwidth` each."""
    port_bandwidth_bytes_per_s: float | None = None
    """Bandwidth of a port, which transceivers are of; None: that of the dimension. NICs of another bandwidth b split or
    join ports: a switch has ⌊radix · port_bandwidth / b⌋ of them, and a transceiver costs and draws
    b / port_bandwidth times as much."""
    routing: Routing = "adaptive"
    """How leaf switches choose among their uplinks: packet by packet, so that all are as busy (adaptive), or message by
    message, by a hash of its ends (ecmp), so that some uplinks get more of an all-to-all's messages than others."""
    core_oversubscription: float = 1.0
    """Bandwidth of a pod into the third tier of switches, over what that carries; `oversubscription` of the dimension
    is that of leaf switches into the second."""
    switch_price_usd: float | None = None
    switch_power_w: float | None = None
    optic_price_usd: float | None = None
    optic_power_w: float | None = None
    cable_price_usd: float | None = None
    circuit_port_price_usd: float | None = None
    """Price of a port of an optical circuit switch."""
    circuit_port_power_w: float | None = None

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.build != BY_BANDWIDTH:  # what is named has modules, which import this one
            builds.check(self.build, "build")
        require(self.radix >= 2, "radix", self.radix, "a switch has at least 2 ports")
        rate = self.port_bandwidth_bytes_per_s
        require(rate is None or rate > 0, "port_bandwidth", rate, "must be positive")
        share = self.core_oversubscription
        require(isfinite(share) and share >= 1, "core_oversubscription", share, "must be at least 1, which is none")
        for key in ("switch_price_usd", "optic_price_usd", "cable_price_usd", "circuit_port_price_usd"):
            value = getattr(self, key)
            require(value is None or value >= 0, key.removesuffix("_usd"), value, "must not be negative")
        for key in ("switch_power_w", "optic_power_w", "circuit_port_power_w"):
            value = getattr(self, key)
            require(value is None or value >= 0, key.removesuffix("_w"), value, "must not be negative")


# ---- dimensions: what NPUs can send over them


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Components of one network dimension, each at the rate of one link of an NPU; counts, or arrays of them."""

    links: Any
    """Unidirectional links; a cable that carries both directions is two."""
    switch_ports: Any = 0
    nics: Any = 0


Edges = Iterator[tuple[int, int, float]]
"""Links: source, target, and the share of an NPU's injection bandwidth; nodes after the last NPU are switches."""


class Topology(Protocol):
    """A topology of *npus* NPUs. All functions take whole numbers or arrays of them.

    A group is *members* NPUs of the dimension, *step* apart (1: adjacent). All NPUs of the dimension are in such groups
    at once: *step* groups interleave in a block of members * step NPUs, and blocks fill the dimension. Functions of
    groups are exact where members * step divides npus, and estimates elsewhere.

    A topology may also have `edges(npus)`, which yields its `Edges`; without it no link of it can be named.
    """

    algorithm: str
    """Collective algorithm of designs that name none."""
    switched: bool
    """Whether switches carry the data, so that NPUs forward nothing."""

    @staticmethod
    def links(npus: Any) -> Any:
        """Return the links out of each NPU, which share its injection bandwidth."""
        ...

    @staticmethod
    def diameter(npus: Any) -> Any:
        """Return the hops between the two NPUs farthest apart."""
        ...

    @staticmethod
    def mean_hops(npus: Any) -> Any:
        """Return the hops between two NPUs, on average over all pairs."""
        ...

    @staticmethod
    def bisection(npus: Any) -> Any:
        """Return the links between the two halves of the NPUs."""
        ...

    @staticmethod
    def share(members: Any, npus: Any, step: Any) -> Any:
        """Return the share of an NPU's injection bandwidth that its group can use, in (0, 1]; 1 for a group of one.

        It is the rate of an all-gather or reduce-scatter within each group, over that bandwidth.
        """
        ...

    @staticmethod
    def hops(members: Any, npus: Any, step: Any) -> Any:
        """Return the hops between neighbouring members of a group."""
        ...

    @staticmethod
    def parts(npus: Any) -> Parts:
        """Return the components of a dimension of *npus* NPUs."""
        ...


topologies: Registry[Topology] = Registry(
    "topology", "cosmic.network.topologies", "cosmic.topologies", members_of(Topology)
)


def edges_of(topology: Topology | type[Topology], npus: int) -> Edges:
    """Return the links of *npus* NPUs, for a topology that says which it has."""
    edges = getattr(topology, "edges", None)
    require(
        edges is not None,
        "topology",
        getattr(topology, "__name__", str(topology)),
        "does not say which links it has: it needs 'edges'",
    )
    links: Edges = edges(npus) if edges else iter(())
    return links


GRAPH = "graph"
"""Topology of a dimension that lists its links."""
ABSENT = "_absent"
"""Topology of a dimension of one NPU: machines of a search have as many places for dimensions as the one with most."""
MOST_NPUS = 2**32
"""Most NPUs of a network: far more than can be built, few enough to search mappings quickly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """How a communication library drives the links. By default links are ideal: no losses, no contention.

    A library picks the protocol that is fastest for the message at hand. Small messages carry flags beside the data
    (NCCL's LL), which costs bandwidth; large ones synchronise first (NCCL's Simple), which costs time; some switches
    reduce (NVLS, SHARP). `cosmic.network.transport_protocols` has the formulas, the catalog's links have fitted
    numbers.
    """

    efficiency: float = 1.0
    """Share of the bandwidth that large messages reach."""
    overhead_s: float = 0.0
    """Time of any call, whatever its size and group: launch and synchronisation."""
    bulk_s: float = 0.0
    """Additional time of a large message, per call."""
    bulk_latency_s: float = 0.0
    """Additional time of a large message, per hop."""
    small_efficiency: float = 0.0
    """Share of the bandwidth that small messages reach, without those times; 0: no such protocol."""
    reduction_s: float = 0.0
    """Additional time of an in-network reduction, per call."""
    reduction_efficiency: float = 0.0
    """Share of the bandwidth that an in-network reduction reaches; 0: the switches cannot reduce."""
    direct_share: float = 1.0
    """Rate of point-to-point and all-to-all messages, relative to a ring."""
    direct_small_share: float = 1.0
    """The same for small messages."""
    copy_share: float = 0.0
    """Time to copy the data that stays on an NPU, relative to sending it."""
    contention: float = field(default=0.0, metadata={"most": 16.0})
    """Exponent of (members / 2) by which the bandwidth of each member falls; 0: no contention."""

    def __post_init__(self) -> None:
        check_bounds(self)
        for name in ("overhead_s", "bulk_s", "bulk_latency_s", "reduction_s", "copy_share", "contention"):
            value = getattr(self, name)
            require(isfinite(value) and value >= 0, name.removesuffix("_s"), value, "must not be negative")
        for name in ("efficiency", "small_efficiency", "reduction_efficiency"):
            value = getattr(self, name)
            require(0 <= value <= 1, name, value, "must be a share, from 0 to 1")
        for name in ("efficiency", "direct_share", "direct_small_share"):
            value = getattr(self, name)
            require(isfinite(value) and value > 0, name, value, "must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One link of a dimension, in one direction."""

    source: int
    """Node where it begins: an NPU of the dimension or, from its number of NPUs on, a switch."""
    target: int
    bandwidth_bytes_per_s: float
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        check_bounds(self)
        for key, node in (("source", self.source), ("target", self.target)):
            require(node >= 0, key, node, "nodes count from 0")
        require(self.source != self.target, "target", self.target, "a link joins two different nodes")
        bandwidth = self.bandwidth_bytes_per_s
        require(isfinite(bandwidth) and bandwidth > 0, "bandwidth", bandwidth, "must be positive")
        require(isfinite(self.latency_s) and self.latency_s >= 0, "latency", self.latency_s, "must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Links of one NPU that are broken, or slower than they should be."""

    npu: int
    """Rank of the NPU in the whole network."""
    dim: int
    """Dimension of the links, from 0."""
    peer: int | None = None
    """Rank at the other end of the links, both ways; without it all links of the NPU in the dimension are meant."""
    speed: float = 0.0
    """Share of their bandwidth that is left; 0: they are broken."""

    def __post_init__(self) -> None:
        check_bounds(self)
        for key, value in (("npu", self.npu), ("dim", self.dim), ("peer", self.peer or 0)):
            require(value >= 0, key, value, "must not be negative")
        require(self.peer != self.npu, "peer", self.peer, "a link joins two different NPUs")
        require(0 <= self.speed <= 1, "speed", self.speed, "must be a share of the bandwidth, from 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One network dimension: groups of NPUs joined by one topology, or by links that are listed."""

    topology: str = field(metadata={"names": topologies})
    """Name of the topology; `graph` where links are listed."""
    npus: int
    """NPUs of one group."""
    bandwidth_bytes_per_s: float = DERIVED_FIELD
    """Injection bandwidth of one NPU, in one direction; the topology divides it over links. Of listed links it is
    the most that an NPU has, by default as they say; another value scales them all."""
    latency_s: float = DERIVED_FIELD
    """Time for the first byte to cross one link. Of listed links it is the longest, and scales them all likewise."""
    oversubscription: float = 1.0
    """Bandwidth of the NPUs into the switches, over what the switches carry across; 1: non-blocking. It acts where
    traffic leaves a leaf switch, if the fabric says how the dimension is built, else on all of it."""
    transport: Transport = Transport()
    """How a communication library drives the links."""
    fabric: Fabric = Fabric()
    """What the dimension is built of: switches, optics and cables, with their prices."""
    links: tuple[Link, ...] = field(default=(), metadata={"whole": True})
    """The links of a topology `graph`; nodes from the number of NPUs on are switches."""

    def __post_init__(self) -> None:
        require(self.topology != GRAPH or bool(self.links), "links", Absent(), "a topology 'graph' lists its links")
        if self.links:
            self._take_from_links()
        for key, value in (("bandwidth", self.bandwidth_bytes_per_s), ("latency", self.latency_s)):
            require(value is not None, key, Absent(), "is required")
        check_bounds(self)
        present = self.topology != ABSENT
        require(self.npus >= 2 or not present, "npus", self.npus, "a dimension joins at least 2 NPUs")
        require(self.npus == 1 or present, "npus", self.npus, "a dimension that is absent has 1 NPU")
        if self.links:
            check_links(self.links, self.npus)
        else:
            topologies.check(self.topology, "topology")
        bandwidth = self.bandwidth_bytes_per_s
        require(isfinite(bandwidth) and bandwidth > 0, "bandwidth", bandwidth, "must be positive")
        require(isfinite(self.latency_s) and self.latency_s >= 0, "latency", self.latency_s, "must not be negative")
        share = self.oversubscription
        require(isfinite(share) and share >= 1, "oversubscription", share, "must be at least 1, which is none")

    @property
    def blocking(self) -> float:
        """Oversubscription that acts on all traffic: 1 where the fabric says how switches are arranged."""
        return self.oversubscription if self.fabric.build in UNTIERED else 1.0

    def _take_from_links(self) -> None:
        """Set the fields that follow from the links where they are not stated."""
        require(self.topology == GRAPH, "topology", self.topology, "a dimension that lists its links is a 'graph'")
        if self.bandwidth_bytes_per_s is DERIVED_FIELD:
            object.__setattr__(self, "bandwidth_bytes_per_s", injection_bytes_per_s(self.links, self.npus))
        if self.latency_s is DERIVED_FIELD:
            object.__setattr__(self, "latency_s", max(link.latency_s for link in self.links))


@lru_cache(maxsize=64)
def injection_bytes_per_s(links: tuple[Link, ...], npus: int) -> float:
    """Return the most bytes per second that an NPU can send over *links*.

    >>> injection_bytes_per_s((Link(source=0, target=1, bandwidth_bytes_per_s=2e9),) * 2, 2)
    4000000000.0
    """
    sent = [0.0] * max(npus, 1)
    for link in links:
        if link.source < npus:
            sent[link.source] += link.bandwidth_bytes_per_s
    return max(sent)


@lru_cache(maxsize=64)
def check_links(links: tuple[Link, ...], npus: int) -> None:
    """Raise a `SpecError` unless *links* join *npus* NPUs: each of them reaches all others."""
    most = npus + len(links)
    for index, link in enumerate(links):
        for key, node in (("source", link.source), ("target", link.target)):
            require(node < most, f"links.{index}.{key}", node, f"so many nodes have no link: number them below {most}")
    for forwards in (True, False):
        reached = _find_reached(links, forwards)
        missing = next((npu for npu in range(npus) if npu not in reached), None)
        way = f"from NPU 0 to NPU {missing}" if forwards else f"from NPU {missing} to NPU 0"
        require(missing is None, "links", f"{len(links)} links", f"no path leads {way}: the NPUs are not connected")


def _find_reached(links: tuple[Link, ...], forwards: bool) -> set[int]:
    """Return the nodes to which paths lead from node 0; with *forwards* false, those from which they lead to it."""
    beyond: dict[int, list[int]] = {}
    for link in links:
        ends = (link.source, link.target) if forwards else (link.target, link.source)
        beyond.setdefault(ends[0], []).append(ends[1])
    reached, waiting = {0}, [0]
    while waiting:
        for node in beyond.get(waiting.pop(), ()):
            if node not in reached:
                reached.add(node)
                waiting.append(node)
    return reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The whole network: a hierarchy of dimensions. A single NPU has none."""

    dims: tuple[Dimension, ...]
    """Dimensions, innermost first."""
    faults: tuple[Fault, ...] = ()
    """Links that are broken or slow."""

    def __post_init__(self) -> None:
        check_bounds(self)
        sizes = [dim.npus for dim in self.dims]
        require(self.npus <= MOST_NPUS, "dims", sizes, f"their sizes multiply to more than {MOST_NPUS:,} NPUs")
        for index, fault in enumerate(self.faults):
            rule = f"there are {len(sizes)} dimensions, from 0"
            require(fault.dim < len(sizes), f"faults.{index}.dim", fault.dim, rule)

    @property
    def npus(self) -> int:
        """NPUs of the whole network."""
        return prod(dim.npus for dim in self.dims)
