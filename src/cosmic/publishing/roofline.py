"""The operators of a step on a roofline: operational intensity and achieved flop/s."""

from __future__ import annotations

from cosmic.publishing.contract import Roofline, RooflinePoint
from cosmic.reporting.words import share
from cosmic.step.profile import StepProfile
from cosmic.step.roofline import RooflineOperator, peak_of, roofline_operators

MOST = 24
"""Operators with a point of their own; all others share one."""
REST = "all others"


def roofline_of(profile: StepProfile) -> Roofline:
    """Return the roofline of the stage that bounds the step: operators that take longest first."""
    point = profile.batch.base
    found = sorted(roofline_operators(profile), key=lambda each: -each.seconds)
    kept, rest = found[:MOST], found[MOST:]
    if rest:
        sums = (sum(getattr(each, name) for each in rest) for name in ("flop", "bytes", "seconds"))
        kept = [*kept, RooflineOperator(f"{REST} ({len(rest)})", "", *sums)]
    peak, bandwidth = peak_of(point), point.memory.bandwidth_bytes_per_s
    points = [_point(each, peak / bandwidth) for each in kept]
    return {
        "precision": point.workload.precision,
        "peak_flop_per_s": peak,
        "bandwidth_bytes_per_s": bandwidth,
        "points": points,
        "reading": _reading(points),
    }


def _point(work: RooflineOperator, ridge: float) -> RooflinePoint:
    return {
        "name": work.name,
        "intensity": work.intensity,
        "flop_per_s": work.flop / work.seconds,
        "seconds": work.seconds,
        "bound": "compute" if work.intensity >= ridge else "memory",
    }


def _reading(points: list[RooflinePoint]) -> str:
    total = sum(each["seconds"] for each in points)
    if not total:
        return "The step has no operators."
    memory = sum(each["seconds"] for each in points if each["bound"] == "memory")
    return (
        f"Each point is an operator with all its runs in a step. {share(memory / total)} of the operators' time is"
        " memory-bound, left of the ridge; the rest is compute-bound."
    )
