"""What a power cap leaves of the rate of compute-bound kernels.

A chip lowers its clock until it draws no more than its limit. Where the voltage follows the clock f, power is about
as f³; near the lowest voltage it is as f². So a kernel that draws all the power there is runs at

    r = r_TDP (cap / TDP)^g        1/3 <= g <= 1/2

of the rate that it sustains at the thermal design power. Single short GEMMs end before the limit shows, and kernels
that wait for memory draw less and keep their rate: only the sustained part of GEMMs and fused attention are held back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosmic.catalog.fitted import fitted
from cosmic.cost.compute import FieldLookup
from cosmic.design.batch import first_known, known
from cosmic.numeric import Numeric, floats, power


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerConstants:
    """Constants that all accelerators have in common."""

    exponent: float
    """Of the power cap, relative to the thermal design power, in the rate that a kernel sustains."""
    idle_share: float
    """Power that an idle accelerator draws, over its thermal design power."""
    host_share: float
    """Power that hosts draw while their accelerators train, over what they are rated for."""


CONSTANTS = fitted("power", PowerConstants)


def capped_share(cap_w: Numeric, tdp_w: Numeric) -> Numeric:
    """Return the rate of a kernel under a power cap, relative to what it sustains at the thermal design power.

    >>> round(float(capped_share(500, 700)), 3), float(capped_share(700, 700))
    (0.874, 1.0)
    """
    return power(floats(cap_w) / tdp_w, CONSTANTS.exponent)


def power_share(compute: FieldLookup) -> Numeric:
    """Return `capped_share` of an accelerator, whose fields *compute* looks up by their key.

    It is 1 where there is no cap, or nothing that it would be a share of (which is against the rules).

    >>> power_share({"power_cap": None, "power": 700.0}.get)
    1.0
    """
    cap = compute("power_cap")
    if cap is None:
        return 1.0
    tdp = first_known(compute("power"), cap, 1.0)  # in a batch, some designs may have neither
    return capped_share(first_known(cap, tdp), tdp)


def held_back(share: Numeric, compute: FieldLookup) -> Numeric:
    """Return a share of the peak under the power cap; a cap above the thermal design power gives no more than all.

    >>> float(held_back(0.8, {"power_cap": 350.0, "power": 700.0}.get)) < 0.8
    True
    """
    if compute("power_cap") is None:
        return share
    return np.minimum(1.0, share * power_share(compute))


def drawn_w(compute: FieldLookup) -> Numeric:
    """Return the power that an accelerator draws at full load: its cap, or its thermal design power.

    >>> drawn_w({"power_cap": 500.0, "power": 700.0}.get), drawn_w({"power_cap": None, "power": 700.0}.get)
    (500.0, 700.0)
    """
    cap, tdp = compute("power_cap"), known(compute("power"))
    found: Numeric = tdp if cap is None else first_known(cap, tdp)
    return found
