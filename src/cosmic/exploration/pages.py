"""Searches as charts and pages: how they converged, what they found."""

from __future__ import annotations

from collections.abc import Sequence

from cosmic.evaluation import BETTER
from cosmic.exploration.comparison import Comparison, Course, value_of
from cosmic.reporting.charts import lines
from cosmic.reporting.curves import Series
from cosmic.reporting.scales import Axis
from cosmic.reporting.terminal import plot

UNITS = {"_bytes": "B", "_usd": "USD", "_j": "J", "_s": "s"}


def metric_axis(name: str, *, log: bool = False) -> Axis:
    """Return the axis of a metric: its label, its unit, and which way it is better."""
    label, unit = name, ""
    if "_per_" not in name:
        suffix = next((each for each in UNITS if name.endswith(each)), "")
        label, unit = name.removesuffix(suffix), UNITS.get(suffix, "")
    return Axis(label.replace("_", " "), unit, log, "lower" if BETTER[name] == "less" else "higher")


def convergence_chart(comparison: Comparison, title: str = "Best design so far") -> str:
    """Return the best so far of each search over its evaluations, as SVG."""
    return lines(_series(comparison), x=_evaluations(), y=metric_axis(comparison.objective), title=title)


def convergence_plot(comparison: Comparison, width: int = 78, height: int = 16) -> list[str]:
    """Return the best so far of each search over its evaluations, for a terminal."""
    return plot(_series(comparison), width, height, x=_evaluations(), y=metric_axis(comparison.objective))


def _evaluations() -> Axis:
    return Axis("evaluations", "", log=True)


def _series(comparison: Comparison) -> list[Series]:
    names = [f"{course.agent} {course.seed}" for course in comparison.courses]
    if len(set(names)) < len(names):  # the same agent and seed on several spaces
        names = [course.name for course in comparison.courses]
    courses = zip(names, comparison.courses, strict=True)
    return [Series(name, course_points(comparison.objective, course), steps=True) for name, course in courses]


def course_points(objective: str, course: Course) -> Sequence[tuple[float, float]]:
    """Return the steps of a search: evaluations and the best metric from then on, to its end."""
    points = [
        (float(max(1, count)), value_of(objective, float(least)) or 0.0)
        for count, least in zip(course.evaluations.tolist(), course.losses.tolist(), strict=True)
    ]
    return [*points, (float(course.evaluated), points[-1][1])] if points else []
