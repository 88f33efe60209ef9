"""The facility layer: the building around a cluster, and the terms on which it is owned."""

from __future__ import annotations

from dataclasses import dataclass

from cosmic.design.bounds import check_bounds
from cosmic.errors import require


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
