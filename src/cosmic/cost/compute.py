"""How long an operator takes on one accelerator: a roofline, scaled by what kernels reach of it.

    t = max( flop / (e_k * peak),  bytes / (e_m * bandwidth) )  +  launch

    e_k  share of the peak that the kind of operator reaches: GEMMs, fused attention
    e_m  share of the memory's bandwidth that kernels reach

Williams, Waterman & Patterson, CACM 52(4), 2009. Assumes large, regular operators. The launch time, once a
kernel, covers what small ones lose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosmic.catalog.fitted import fitted
from cosmic.design.batch import first_known, has_gaps, known
from cosmic.numeric import Numeric, smaller

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


CONSTANTS = fitted("roofline", RooflineConstants)


def peak_flop_per_s(compute: FieldLookup, precision: str) -> Numeric:
    """Return the dense matrix rate of a precision; *compute* looks up fields by their key.

    >>> peak_flop_per_s({"bf16": 1e15, "fp8": None}.get, "fp8")
    1000000000000000.0
    """
    known: Numeric = first_known(*(compute(name) for name in (*RATES[precision], "bf16")))
    return known


def gemm_efficiency(compute: FieldLookup) -> Numeric:
    """Return the share of the peak that large GEMMs reach: as stated, from the rate achieved, or as usual.

    >>> gemm_efficiency({"gemm_efficiency": None, "achieved_bf16": 5e14, "bf16": 1e15}.get)
    0.4
    """
    achieved = compute("achieved_bf16")
    share: Any = None if achieved is None else CONSTANTS.sustained * smaller(1.0, known(achieved) / compute("bf16"))
    if has_gaps(achieved):
        share = np.where(np.isnan(share), CONSTANTS.usual_efficiency, share)
    found: Numeric = first_known(compute("gemm_efficiency"), share, CONSTANTS.usual_efficiency)
    return found


def operator_seconds(
    work_flop: Numeric, moved_bytes: Numeric, rate_flop_per_s: Numeric, rate_bytes_per_s: Numeric, launch_s: Numeric
) -> Numeric:
    """Return the seconds of one run of an operator.

    >>> float(operator_seconds(2e12, 1e9, 1e15, 1e12, 0.0))
    0.002
    """
    return np.maximum(work_flop / rate_flop_per_s, moved_bytes / rate_bytes_per_s) + launch_s
