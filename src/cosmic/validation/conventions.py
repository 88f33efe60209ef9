"""How long a measured step took: as stated, or from a rate, by the convention in which operations are counted.

What the column flops_kind says, in any words:

    model, hardware       hardware counts what is recomputed, too: a forward pass (full), or attention's (selective)
    causal, non-causal    pairs of query and key under the mask, or all of them
    6N, 8N                parameters alone, without attention, the latter with everything recomputed

    f  = g + a            operations of a token: GEMMs g, and attention a, which doubles where all pairs count
    t  = f T / (R n)      T tokens of the step, n accelerators, R operations a second of each: MFU × peak, or stated

Where it says nothing of attention, the framework's own counter does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cosmic.design.compute import Compute
from cosmic.design.model import active_parameters
from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError
from cosmic.step.compute import model_flop_per_token
from cosmic.validation.rows import Fields

TERA = 1e12
PERCENT = 100.0
FORWARD = 1 / 3
"""Share of the operations of a training step that a forward pass has."""
RATES = {"fp8": "fp8_flop_per_s", "fp4": "fp4_flop_per_s", "fp32": "fp32_flop_per_s"}
"""The peak that utilisation refers to, where it is not that of 16 bits."""


@dataclass(frozen=True, slots=True)
class Convention:
    """How operations are counted."""

    hardware: bool = False
    """Whether what is recomputed counts."""
    attention: str = "full"
    """Pairs that count: causal, full (all) or none."""


def convention_of(text: str, usual: str = "full", *, hardware: bool = False) -> Convention:
    """Return the convention that *text* describes; of attention, the *usual* one where it does not say.

    >>> convention_of("model (6N*T+12*L*d*T^2, non-causal attention)")
    Convention(hardware=False, attention='full')
    >>> convention_of("hardware incl. full recompute: 96BslH^2(1+s/6h+V/16lh)")
    Convention(hardware=True, attention='full')
    >>> [convention_of(each, "causal").attention for each in ("6ND", "MFU, full attention", "model")]
    ['none', 'full', 'causal']
    """
    plain = text.lower().replace(" ", "")
    counted = hardware or bool(re.search(r"hardware|hfu|(?<!\d)8nd?(?![a-z])|(?<!\d)96b", plain))
    if re.search(r"non-?causal|fullattention|12\*?l|12l|(72|96)b\*?s|s/6h|quadratic", plain):
        return Convention(counted, "full")
    if "causal" in plain:
        return Convention(counted, "causal")
    only = re.search(r"(?<!\d)[68]\*?[np](d|\*|t|$|[^a-z+])?", plain) and not re.search(r"attention|att|\+", plain)
    return Convention(counted, "none" if only or "withoutattention" in plain else usual)


def flop_per_token(point: DesignPoint, convention: Convention) -> float:
    """Return the operations of a token by a convention."""
    model, workload = point.model, point.workload
    causal = float(model_flop_per_token(model, workload.sequence, training=True, decoding=False))
    gemms = float(model_flop_per_token(model, 1, training=True, decoding=False))
    attention = {"causal": 1.0, "full": 2.0, "none": 0.0}[convention.attention] * (causal - gemms)
    total = (6.0 * active_parameters(model) if convention.attention == "none" else gemms) + attention
    if not convention.hardware:
        return total
    again = {"full": total, "alternate": total / 2, "selective": attention}.get(workload.recompute, 0.0)
    return total + FORWARD * again


def measured_s(fields: Fields, point: DesignPoint, usual: str = "full") -> float:
    """Return the seconds of a row's step; *usual* is how its framework counts attention."""
    if (seconds := fields.number("iter_time_s")) is not None:
        return seconds
    count, tokens = point.network.npus, point.workload.global_batch * point.workload.sequence
    if (rate := fields.number("tokens_per_s_per_accel")) is not None:
        fields.assumed.append("measured_s: from tokens_per_s_per_accel")
        return tokens / (rate * count)
    column, achieved = _achieved(fields, point)
    convention = convention_of(fields.text("flops_kind"), usual, hardware=column == "hfu")
    said = f"{'hardware' if convention.hardware else 'model'} operations, {convention.attention} attention"
    fields.assumed.append(f"measured_s: from {column}, {said}")
    return flop_per_token(point, convention) * tokens / (achieved * count)


def _achieved(fields: Fields, point: DesignPoint) -> tuple[str, float]:
    """Return the column that gives a rate, and operations a second of an accelerator."""
    if (tera := fields.number("tflops_per_accel")) is not None:
        return "tflops_per_accel", tera * TERA
    for column in ("mfu", "hfu"):
        if (share := fields.number(column)) is not None:
            peak = _stated_peak(fields) or peak_of(point.compute, point.workload.precision)
            return column, (share / PERCENT if share > 1 else share) * peak
    raise SpecError("iter_time_s", "", "neither a time nor a rate is given")


def _stated_peak(fields: Fields) -> float | None:
    """Return the peak that a row's utilisation refers to, if its flops_kind says: "MFU of 989 TFLOP/s"."""
    found = re.search(r"(?:of|peak)\s+(\d+(?:\.\d+)?)\s*TFLOP", fields.text("flops_kind"), re.IGNORECASE)
    return float(found[1]) * TERA if found else None


def peak_of(compute: Compute, precision: str) -> float:
    """Return the peak that utilisation refers to: of the format of GEMMs, where the accelerator has it."""
    rate = getattr(compute, RATES[precision]) if precision in RATES else None
    return float(rate or compute.bf16_flop_per_s)
