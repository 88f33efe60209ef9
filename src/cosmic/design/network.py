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
