"""What a cluster costs to buy and to own: accelerators and network, upkeep and energy. Numbers or arrays."""

from __future__ import annotations

from dataclasses import dataclass

from cosmic.catalog.fitted import fitted
from cosmic.numeric import Numeric

SECONDS_PER_YEAR = 365.25 * 86400
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """Terms of owning a cluster."""

    years: float
    """Of depreciation: until the cluster is worth nothing."""
    upkeep_per_year: float
    """Share of the capital."""
    pue: float
    """Power usage effectiveness: watts of the building for each watt of the cluster."""
    usd_per_kwh: float


OWNERSHIP = fitted("ownership", Ownership)
"""Where public estimates centre."""


def capital_usd(accelerator_price_usd: Numeric, npus: Numeric, network_usd: Numeric) -> Numeric:
    """Return the price of the accelerators and their network, without hosts, storage and buildings.

    >>> capital_usd(30_000, 1024, 9_441_280)
    40161280
    """
    return accelerator_price_usd * npus + network_usd


def owned_usd_per_s(capital_usd: Numeric, power_w: Numeric, terms: Ownership = OWNERSHIP) -> Numeric:
    """Return the total cost of ownership, in dollars for each second that a cluster runs.

        K (1 / T + u) / year  +  P e c

    K  capital                      P  power that accelerators and network draw
    T  years of depreciation        e  power usage effectiveness: watts of the building per watt of P
    u  upkeep, of K each year       c  price of energy

    Assumes straight-line depreciation and a cluster that never idles. The default terms are where public
    estimates of accelerator clusters centre, not a quote.

    >>> round(owned_usd_per_s(30_000, 1_000) * 3600, 3)  # dollars per hour of one accelerator: 1.027 + 0.1
    1.127
    """
    machines = capital_usd * (1 / terms.years + terms.upkeep_per_year) / SECONDS_PER_YEAR
    return machines + power_w * terms.pue * terms.usd_per_kwh / JOULES_PER_KWH
