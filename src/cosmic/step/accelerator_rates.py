"""The rates at which an accelerator runs kernels: a roofline, scaled by what kernels reach of it, under a power cap.

    t = max( flop / (e_k * peak),  bytes / (e_m * bandwidth) )  +  launch

    e_k  share of the peak that the kind of operator reaches: GEMMs, fused attention
    e_m  share of the memory's bandwidth that kernels reach

Williams, Waterman & Patterson, CACM 52(4), 2009. Assumes large, regular operators. The launch time, once a
kernel, covers what small ones lose.

A chip lowers its clock until it draws no more than its limit. Where the voltage follows the clock f, power is about
as f³; near the lowest voltage it is as f². So a kernel that draws all the power there is runs at

    r = r_TDP (cap / TDP)^g        1/3 <= g <= 1/2

of the rate that it sustains at the thermal design power. Single short GEMMs end before the limit shows, and kernels
that wait for memory draw less and keep their rate: only the sustained part of GEMMs and fused attention are held back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosmic.base.numeric import Numeric, floats, power, smaller
from cosmic.design.catalog_entries import load_constants
from cosmic.design.design_batch import first_known, has_gaps, none_to_nan

# ---- How long an operator takes on one accelerator: a roofline, scaled by what kernels reach of it

FieldLookup = Callable[[str], Any]
"""Looks up a field of an accelerator by its key: a number, None where it is not known, or an array of these."""
RATES: dict[str, tuple[str, ...]] = {
    "fp32": ("tf32", "fp32"),
    "fp16": (),
    "bf16": (),
    "bf16_pure": (),
    "fp8": ("fp8",),
    "fp4": ("fp4", "fp8"),
    "int4": (),
}
"""The rates at which each precision multiplies, the best first; that of bf16 counts where none of them is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineConstants:
    """What an accelerator reaches whose file does not say so: declared, not fitted."""

    sustained: float
    """Rate of the GEMMs of a whole step, relative to the best single GEMM that was published."""
    usual_efficiency: float
    """Share of the peak where no GEMM was published."""


ROOFLINE_CONSTANTS = load_constants("roofline", RooflineConstants)


def peak_flop_per_s(compute: FieldLookup, precision: str) -> Numeric:
    """Return the dense matrix rate of a precision; *compute* looks up fields by their key.

    >>> peak_flop_per_s({"bf16": 1e15, "fp8": None}.get, "fp8")
    1000000000000000.0
    """
    rate: Numeric = first_known(*(compute(name) for name in (*RATES[precision], "bf16")))
    return rate


def gemm_efficiency(compute: FieldLookup) -> Numeric:
    """Return the share of the peak that large GEMMs reach: as stated, from the rate achieved, or as usual.

    >>> gemm_efficiency({"gemm_efficiency": None, "achieved_bf16": 5e14, "bf16": 1e15}.get)
    0.4
    """
    achieved = compute("achieved_bf16")
    share: Any = (
        None
        if achieved is None
        else ROOFLINE_CONSTANTS.sustained * smaller(1.0, none_to_nan(achieved) / compute("bf16"))
    )
    if has_gaps(achieved):
        share = np.where(np.isnan(share), ROOFLINE_CONSTANTS.usual_efficiency, share)
    efficiency: Numeric = first_known(compute("gemm_efficiency"), share, ROOFLINE_CONSTANTS.usual_efficiency)
    return efficiency


def operator_seconds(
    work_flop: Numeric, moved_bytes: Numeric, rate_flop_per_s: Numeric, rate_bytes_per_s: Numeric, launch_s: Numeric
) -> Numeric:
    """Return the seconds of one run of an operator.

    >>> float(operator_seconds(2e12, 1e9, 1e15, 1e12, 0.0))
    0.002
    """
    return np.maximum(work_flop / rate_flop_per_s, moved_bytes / rate_bytes_per_s) + launch_s


# ---- What a power cap leaves of the rate of compute-bound kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerConstants:
    """Constants that all accelerators have in common."""

    exponent: float
    """Of the power cap, relative to the thermal design power, in the rate that a kernel sustains."""
    idle_share: float
    """Power that an idle accelerator draws, over its thermal design power."""
    host_share: float
    """Power that hosts draw while their accelerators train, over what they are rated for."""


POWER_CONSTANTS = load_constants("power", PowerConstants)


def capped_share(cap_w: Numeric, tdp_w: Numeric) -> Numeric:
    """Return the rate of a kernel under a power cap, relative to what it sustains at the thermal design power.

    >>> round(float(capped_share(500, 700)), 3), float(capped_share(700, 700))
    (0.874, 1.0)
    """
    return power(floats(cap_w) / tdp_w, POWER_CONSTANTS.exponent)


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


def share_under_power_cap(share: Numeric, compute: FieldLookup) -> Numeric:
    """Return a share of the peak under the power cap; a cap above the thermal design power gives no more than all.

    >>> float(share_under_power_cap(0.8, {"power_cap": 350.0, "power": 700.0}.get)) < 0.8
    True
    """
    if compute("power_cap") is None:
        return share
    return np.minimum(1.0, share * power_share(compute))
