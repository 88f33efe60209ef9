"""The operators of a step on a roofline: how much they compute for each byte, and what they reach."""

from __future__ import annotations

from cosmic.publishing.contract import Roofline, RooflinePoint
from cosmic.reporting.words import share
from cosmic.step.profile import StepProfile
from cosmic.step.roofline import RooflineOperator, peak_of, roofline_operators

MOST = 24
"""Operators that are told apart; what the others take is one point."""
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
        return "No operator of the step computes anything."
    memory = sum(each["seconds"] for each in points if each["bound"] == "memory")
    return (
        f"Each point is an operator with all its runs in a step. {share(memory / total)} of the operators' time is left"
        " of the ridge, where memory sets the pace; the rest could be as fast as the matrix units."
    )
