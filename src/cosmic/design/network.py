"""The network layer: dimensions, innermost first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite, prod
from typing import Any, Protocol

from cosmic.design.bounds import check_bounds
from cosmic.errors import require
from cosmic.registry import Registry, members_of


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
    "topology", "cosmic.cost.topologies", "cosmic.topologies", members_of(Topology)
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
    found: Edges = edges(npus) if edges else iter(())
    return found


MOST_NPUS = 2**32
"""Most NPUs of a network: far more than can be built, few enough to search mappings quickly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """How a communication library drives the links. By default links are ideal: no losses, no contention.

    A library picks the protocol that is fastest for the message at hand. Small messages carry flags beside the data
    (NCCL's LL), which costs bandwidth; large ones synchronise first (NCCL's Simple), which costs time; some switches
    reduce (NVLS, SHARP). `cosmic.cost.transport` has the formulas, the catalog's links have fitted numbers.
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
class Dimension:
    """One network dimension: groups of NPUs joined by one topology."""

    topology: str = field(metadata={"names": topologies})
    npus: int
    """NPUs of one group."""
    bandwidth_bytes_per_s: float
    """Injection bandwidth of one NPU, in one direction; the topology divides it over links."""
    latency_s: float
    """Time for the first byte to cross one link."""
    oversubscription: float = 1.0
    """Bandwidth of the NPUs into the switches, over what the switches carry across; 1: non-blocking."""
    transport: Transport = Transport()
    """How a communication library drives the links."""

    def __post_init__(self) -> None:
        check_bounds(self)
        topologies.check(self.topology, "topology")
        require(self.npus >= 2, "npus", self.npus, "a dimension joins at least 2 NPUs")
        bandwidth = self.bandwidth_bytes_per_s
        require(isfinite(bandwidth) and bandwidth > 0, "bandwidth", bandwidth, "must be positive")
        require(isfinite(self.latency_s) and self.latency_s >= 0, "latency", self.latency_s, "must not be negative")
        share = self.oversubscription
        require(isfinite(share) and share >= 1, "oversubscription", share, "must be at least 1, which is none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The whole network: a hierarchy of dimensions. A single NPU has none."""

    dims: tuple[Dimension, ...]
    """Dimensions, innermost first."""

    def __post_init__(self) -> None:
        check_bounds(self)
        sizes = [dim.npus for dim in self.dims]
        require(self.npus <= MOST_NPUS, "dims", sizes, f"their sizes multiply to more than {MOST_NPUS:,} NPUs")

    @property
    def npus(self) -> int:
        """NPUs of the whole network."""
        return prod(dim.npus for dim in self.dims)
