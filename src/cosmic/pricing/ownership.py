"""What owning a cluster costs: depreciation, upkeep and energy. Numbers or arrays."""

from __future__ import annotations

from cosmic.numeric import Numeric

SECONDS_PER_YEAR = 365.25 * 86400
JOULES_PER_KWH = 3.6e6


def owned_usd_per_s(
    capital_usd: Numeric, power_w: Numeric, years: Numeric, upkeep_per_year: Numeric, usd_per_kwh: Numeric
) -> Numeric:
    """Return the total cost of ownership, in dollars for each second that a cluster runs.

        K (1 / T + u) / year  +  P c

    K  capital                      P  power at the meter
    T  years of depreciation        c  price of energy
    u  upkeep, of K each year

    Assumes straight-line depreciation and a cluster that never idles (`cosmic.design.facility` has the terms).

    >>> round(owned_usd_per_s(30_000, 1_250, 4, 0.05, 0.08) * 3600, 3)  # dollars per hour of one: 1.027 + 0.1
    1.127
    """
    machines = capital_usd * (1 / years + upkeep_per_year) / SECONDS_PER_YEAR
    return machines + power_w * usd_per_kwh / JOULES_PER_KWH
