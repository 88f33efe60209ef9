"""Charts of searches: convergence, and the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cosmic.report.charts.drawing import Axis, Series
from cosmic.report.charts.plots import lines
from cosmic.report.charts.terminal_plots import Cloud, plot_curves, plot_scatter
from cosmic.search.agent import Floats
from cosmic.search.search_loop import Found
from cosmic.search.study.study_comparison import Comparison, Course, metric_of_loss
from cosmic.simulate.user_engines import direction

LONGEST_NAME_SHOWN = 20
"""The longest name, in characters, that a chart has room for."""
LOG_AXIS_RATIO = 30
"""An axis is logarithmic where its largest value is more than this many times its least."""
UNITS = {"_bytes": "B", "_usd": "USD", "_j": "J", "_s": "s"}


def metric_axis(name: str, *, log: bool = False) -> Axis:
    """Return the axis of a metric: its label, its unit, and which direction is better."""
    label, unit = name, ""
    if "_per_" not in name:
        suffix = next((each for each in UNITS if name.endswith(each)), "")
        label, unit = name.removesuffix(suffix), UNITS.get(suffix, "")
    return Axis(label.replace("_", " "), unit, log, "lower" if direction(name) == "less" else "higher")


def convergence_chart(comparison: Comparison, title: str = "Best design so far") -> str:
    """Return the best so far of each search over its evaluations, as SVG."""
    return lines(
        _convergence_series(comparison), x=_evaluations_axis(), y=metric_axis(comparison.objective), title=title
    )


def convergence_plot(comparison: Comparison, width: int = 78, height: int = 16, *, braille: bool = True) -> list[str]:
    """Return the best so far of each search over its evaluations, for a terminal; without *braille* in ASCII."""
    y = metric_axis(comparison.objective)
    return plot_curves(_convergence_series(comparison), width, height, x=_evaluations_axis(), y=y, braille=braille)


def front_plot(found: Found, width: int = 78, height: int = 18, *, braille: bool = True) -> list[str]:
    """Return the feasible trials of a search for two objectives, and their front, for a terminal."""
    problem, trials = found.problem, found.trials
    names = problem.objectives[:2]
    runs = trials.results.feasible
    values = np.stack([trials.results.columns[name] for name in names], axis=1)
    front = trials.front(problem)
    base = problem.base
    clouds = [
        Cloud("trials that can run", _distinct_points(values[runs])),
        Cloud("front", _distinct_points(values[front]), "●"),
        Cloud("base", [tuple(base.columns[name][0] for name in names)] if base.feasible[0] else [], "○"),
    ]
    x, y = (metric_axis(name, log=_needs_log_axis(values[runs, index])) for index, name in enumerate(names))
    return plot_scatter([cloud for cloud in clouds if cloud.points], width, height, x=x, y=y, braille=braille)


def _distinct_points(values: Floats) -> list[tuple[float, float]]:
    return [(x, y) for x, y in np.unique(values, axis=0).tolist()]


def _needs_log_axis(values: Floats) -> bool:
    """Return whether values span so much that most would overlap on a linear axis."""
    positive = values[np.isfinite(values) & (values > 0)]
    return bool(len(positive) and positive.max() / positive.min() > LOG_AXIS_RATIO)


def _evaluations_axis() -> Axis:
    return Axis("evaluations", "", log=True)


def _convergence_series(comparison: Comparison) -> list[Series]:
    names = [course.name for course in comparison.courses]
    short = [f"{course.agent} {course.seed}" for course in comparison.courses]
    if max(map(len, names)) > LONGEST_NAME_SHOWN and len(set(short)) == len(
        short
    ):  # not the same agent and seed on many spaces
        names = short
    courses = zip(names, comparison.courses, strict=True)
    return [Series(name, _convergence_steps(comparison.objective, course), steps=True) for name, course in courses]


def _convergence_steps(objective: str, course: Course) -> Sequence[tuple[float, float]]:
    """Return the steps of a convergence curve, to its end: evaluations, and the best metric from then on."""
    points = [
        (float(max(1, count)), metric_of_loss(objective, float(least)) or 0.0)
        for count, least in zip(course.evaluations.tolist(), course.losses.tolist(), strict=True)
    ]
    return [*points, (float(course.evaluated), points[-1][1])] if points else []
