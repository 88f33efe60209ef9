"""The network layer: dimensions of links, innermost first."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite, prod
from typing import Any, Protocol

from cosmic.errors import require
from cosmic.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What joins the NPUs of one dimension, each part as fast as one link of an NPU; counts or arrays of them."""

    links: Any
    """Links in one direction; a cable that carries both is two of them."""
    switch_ports: Any = 0
    nics: Any = 0


class Topology(Protocol):
    """A way to join *npus* devices. All functions take whole numbers or arrays of them.

    A group is *members* NPUs of the dimension, *step* apart (1: side by side), and all the dimension's NPUs are in
    such groups at once: *step* groups interleave in a block of members * step NPUs, and blocks fill the dimension.
    What is said of groups is exact where members * step divides npus, and an estimate where groups straddle.
    """

    algorithm: str
    """The collective algorithm that suits it, used where a design names none."""
    switched: bool
    """Whether switches carry the data, so that no NPU passes on what others send."""

    @staticmethod
    def links(npus: Any) -> Any:
        """Return the links that leave each NPU; its injection bandwidth is divided over them."""
        ...

    @staticmethod
    def diameter(npus: Any) -> Any:
        """Return the links on the shortest way between the two NPUs farthest apart."""
        ...

    @staticmethod
    def mean_hops(npus: Any) -> Any:
        """Return the links on the shortest way between two NPUs, on average over all pairs."""
        ...

    @staticmethod
    def bisection(npus: Any) -> Any:
        """Return the links that join one half of the NPUs to the other."""
        ...

    @staticmethod
    def share(members: Any, npus: Any, step: Any) -> Any:
        """Return what part of an NPU's injection bandwidth its group can use, in (0, 1]; 1 for a group of one.

        It is the rate of an all-gather or reduce-scatter within each group, over that bandwidth.
        """
        ...

    @staticmethod
    def hops(members: Any, npus: Any, step: Any) -> Any:
        """Return the links between neighbouring members of a group."""
        ...

    @staticmethod
    def parts(npus: Any) -> Parts:
        """Return what the dimension of *npus* NPUs is made of."""
        ...


topologies: Registry[Topology] = Registry("topology", "cosmic.cost.topologies", "cosmic.topologies")


MOST_NPUS = 2**32
"""In one network; far more than can be built, and few enough to look for mappings in no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """How a communication library drives the links; as it stands, links without losses that anybody can use at once.

    Libraries know several protocols, and take the one that is fastest for the size at hand. Small messages carry
    flags beside the data, which costs bandwidth; large ones are announced first, which costs time; some switches add
    up what they are sent. `cosmic.cost.transport` has the formulas, the catalog's links have fitted numbers.
    """

    efficiency: float = 1.0
    """Share of the bandwidth that large messages reach."""
    overhead_s: float = 0.0
    """Time of any call, however small and among however few: launch and synchronisation."""
    bulk_s: float = 0.0
    """What a large message takes besides, once a call."""
    bulk_latency_s: float = 0.0
    """What a large message takes besides for each link that it crosses."""
    small_efficiency: float = 0.0
    """Share of the bandwidth that small messages reach, which are spared the times of large ones; 0: none are."""
    reduction_s: float = 0.0
    """What a reduction inside the switches takes besides, once a call."""
    reduction_efficiency: float = 0.0
    """Share of the bandwidth that a reduction inside the switches reaches; 0: they cannot add."""
    direct_share: float = 1.0
    """Rate of what is sent straight to another, or to all others, over that of what goes round a ring."""
    direct_small_share: float = 1.0
    """The same of small messages."""
    copy_share: float = 0.0
    """Time to copy what stays on an NPU, over the time to send as much."""
    contention: float = 0.0
    """By which power of their number, over two, members take bandwidth from each other; 0 if there is enough."""

    def __post_init__(self) -> None:
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
    """One dimension of the network: groups of NPUs joined by one topology."""

    topology: str = field(metadata={"names": topologies})
    npus: int
    bandwidth_bytes_per_s: float
    """What one NPU can put into this dimension, in one direction; the topology divides it over links."""
    latency_s: float
    """Time for the first byte to cross one link."""
    oversubscription: float = 1.0
    """How many times more the NPUs can send into the switches than the switches can carry across."""
    transport: Transport = Transport()
    """What of all this a communication library achieves."""

    def __post_init__(self) -> None:
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

    def __post_init__(self) -> None:
        sizes = [dim.npus for dim in self.dims]
        require(self.npus <= MOST_NPUS, "dims", sizes, f"their sizes multiply to more than {MOST_NPUS:,} NPUs")

    @property
    def npus(self) -> int:
        """NPUs that the dimensions join, all together."""
        return prod(dim.npus for dim in self.dims)
