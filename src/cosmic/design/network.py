"""The network layer: dimensions of links, innermost first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite, prod
from typing import Protocol

from cosmic.errors import require
from cosmic.registry import Registry


class Topology(Protocol):
    """A way to join *npus* devices."""

    algorithm: str
    """The collective algorithm that suits it, used where a design names none."""
    links: Callable[[int], int]
    """Links that leave each NPU; its injection bandwidth is divided over them."""
    diameter: Callable[[int], int]
    """Links on the shortest way between the two NPUs farthest apart."""
    bisection: Callable[[int], int]
    """Links that join one half of the NPUs to the other."""


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
