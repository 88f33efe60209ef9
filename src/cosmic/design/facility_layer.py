"""The facility and node layers: what is around a cluster, and around its accelerators.

The facility is the building, and the terms on which a cluster is owned. A node is what is sold around accelerators.
"""

from __future__ import annotations

from dataclasses import dataclass

from cosmic.base.errors import require
from cosmic.design.schema import check_bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Facility:
    """The building and the terms; defaults are where public estimates of clusters centre, not a quote."""

    pue: float = 1.25
    """Power usage effectiveness: watts of the building for each watt of the cluster."""
    usd_per_kwh: float = 0.08
    """Price of energy."""
    co2_kg_per_kwh: float = 0.39
    """Carbon dioxide of the grid: 0.39 in the United States, 0.01 in Norway, 0.02 in Quebec, 0.82 in Poland."""
    years: float = 4.0
    """Of straight-line depreciation, until the cluster is worth nothing."""
    upkeep_per_year: float = 0.05
    """Share of the capital."""
    other_share: float = 0.0
    """Capital besides nodes and network (storage, racks, installation), as a share of theirs."""

    def __post_init__(self) -> None:
        check_bounds(self)
        require(self.pue >= 1, "pue", self.pue, "must be at least 1, which is no overhead")
        require(self.years > 0, "years", self.years, "must be positive")
        for key in ("usd_per_kwh", "co2_kg_per_kwh", "upkeep_per_year", "other_share"):
            require(getattr(self, key) >= 0, key, getattr(self, key), "must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node, or a rack, as it is sold: accelerators with their host, NICs and the links between them."""

    name: str = ""
    """Entry of the catalog; empty: accelerators are bought by themselves, and nothing is known of hosts."""
    accelerator: str = ""
    """What it is sold with; a design with another accelerator is a machine that is not on sale."""
    npus: int = 1
    """Accelerators of one."""
    host_price_usd: float | None = None
    """Price of one without its accelerators: chassis, processors, NICs, the links inside."""
    host_power_w: float | None = None
    """Rated power of one without its accelerators."""
    host_idle_power_w: float | None = None
    """What of that it draws when idle; None: all of it."""

    def __post_init__(self) -> None:
        check_bounds(self)
        require(self.npus >= 1, "npus", self.npus, "a node has at least 1 accelerator")
        for key, value in (
            ("host_price", self.host_price_usd),
            ("host_power", self.host_power_w),
            ("host_idle_power", self.host_idle_power_w),
        ):
            require(value is None or value >= 0, key, value, "must not be negative")
