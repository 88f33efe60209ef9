"""Searches as charts and pages: how they converged, what they found."""

from __future__ import annotations

from collections.abc import Sequence

from cosmic.evaluation import BETTER
from cosmic.exploration.comparison import Comparison, Course, course_of, value_of
from cosmic.exploration.isolation import FULL, Isolation
from cosmic.reporting.categories import Bar, Group, bars
from cosmic.reporting.charts import lines
from cosmic.reporting.curves import Series
from cosmic.reporting.page import Figure, Heading, Page, Table, Text
from cosmic.reporting.scales import Axis
from cosmic.reporting.terminal import plot

LONGEST = 20
"""Characters of a name that a chart has room for."""
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
    names = [course.name for course in comparison.courses]
    short = [f"{course.agent} {course.seed}" for course in comparison.courses]
    if max(map(len, names)) > LONGEST and len(set(short)) == len(short):  # not the same agent and seed on many spaces
        names = short
    courses = zip(names, comparison.courses, strict=True)
    return [Series(name, course_points(comparison.objective, course), steps=True) for name, course in courses]


def course_points(objective: str, course: Course) -> Sequence[tuple[float, float]]:
    """Return the steps of a search: evaluations and the best metric from then on, to its end."""
    points = [
        (float(max(1, count)), value_of(objective, float(least)) or 0.0)
        for count, least in zip(course.evaluations.tolist(), course.losses.tolist(), strict=True)
    ]
    return [*points, (float(course.evaluated), points[-1][1])] if points else []


def isolation_page(found: Isolation) -> Page:
    """Return the page of a full-stack search beside those of its layers: what each reached, and how."""
    rows, space = found.rows(), found.whole.problem.space
    gains = [Group(row["searched"], [Bar("gain", row["over_base"])]) for row in rows[1:]]
    courses = [
        course_of(name, name, each.inputs.seed, each.problem, each.trials)
        for name, each in {**found.layers, FULL: found.whole}.items()
    ]
    columns = ["searched", "valid designs", "evaluated", "step (s)", found.objective, "over base", "full stack over it"]
    best = found.whole.best
    return Page(
        f"{space.name}: co-design beside tuning one layer",
        [
            Text(
                f"{found.evaluated:,} of {space.valid:,} valid designs were evaluated for `{found.objective}`: each"
                " layer of the stack by itself, the others frozen at the base design, and all of them together."
            ),
            Figure(bars(gains, x=Axis("times the base design"), title="Gain over the base design"), "gain"),
            Table(columns, [list(row.values()) for row in rows]),
            Figure(convergence_chart(Comparison(found.objective, tuple(courses))), "convergence"),
            Heading("The best design"),
            Table(
                ["parameter", "value"], [[name, str(value)] for name, value in best["point"].items()] if best else []
            ),
            Table(["metric", "value"], list(best["metrics"].items()) if best else []),
        ],
    )
