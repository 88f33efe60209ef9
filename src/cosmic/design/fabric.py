"""How a network dimension is built: switches of a radix, in tiers, with optics and cables.

A dimension says what NPUs can send (`cosmic.design.network_layer`); its fabric says what carries that. A *build*
arranges
switches: it knows how many NPUs are below one switch of each tier, where traffic that leaves them is oversubscribed,
and which parts are to be bought, in whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Literal, NamedTuple, Protocol

from cosmic.base.errors import require
from cosmic.base.registry import Registry, members_of
from cosmic.design.schema import check_bounds

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
