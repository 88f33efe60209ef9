"""Charts of searches, as SVG and in a terminal: convergence, and the Pareto front.

In a terminal, curves and scatter plots are of braille dots, eight to a character, or of letters where only ASCII is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from unicodedata import east_asian_width

import numpy as np

from cosmic.base.errors import one_line
from cosmic.report.charts.drawing import Axis, AxisScale, Point, Series, fit_scale, scale_of, shown_points
from cosmic.report.charts.plots import lines
from cosmic.search.agent import Floats
from cosmic.search.search_loop import Found
from cosmic.search.study.study_comparison import Comparison, Course, metric_of_loss
from cosmic.simulate.user_engines import direction

# ---- plots in a terminal


BLANK = 0x2800
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot of a braille character: four rows of two."""
LETTERS = "*o+x#@%&"
PLAIN = {**str.maketrans("µ–−×…·●○★◆", "u--x~.o0*#"), **str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")}
LEAST_WIDTH, LEAST_HEIGHT = 32, 7
NAME_WIDTH = 18

Cells = dict[tuple[int, int], str]


@dataclass(frozen=True, slots=True)
class Cloud:
    """A series of points: drawn as dots, or as a *mark*, one character such as '●'."""

    name: str
    points: Sequence[Point]
    mark: str = ""


def plot_curves(
    series: Sequence[Series], width: int = 72, height: int = 14, *, x: Axis, y: Axis, braille: bool = True
) -> list[str]:
    """Return at most *height* lines of at most *width* columns: curves with their names at their ends, and axes.

    Without *braille* the plot is ASCII, and each curve has a letter. Very small sizes are raised to a readable minimum.

    >>> curve = Series("", [(0, 4), (5, 2), (10, 2)], steps=True)
    >>> for line in plot_curves([curve], 32, 7, x=Axis("trials"), y=Axis("cost"), braille=False):
    ...     print(line)
    cost over trials
     4|***************
      |              *
     3|              *
     2|              ***************
      ++-----+----+-----+----+-----+
       0     2    4     6    8    10
    """
    width, height = max(width, LEAST_WIDTH), max(height, LEAST_HEIGHT)
    curves = [shown_points(each.points, x, y) for each in series]
    rows = height - 3
    up = scale_of([point[1] for point in chain(*curves)], y, wanted=max(2, rows // 3))
    labels = [_shorten_line(text, width // 3) for text in up.labels]
    margin = max(map(len, labels), default=0) + 1
    ends = [_shorten_line(each.name if braille else _ascii(each.name), min(NAME_WIDTH, width // 4)) for each in series]
    beside = max(map(_columns, ends), default=0) if len(series) > 1 or any(ends) else 0
    marked = "" if braille or len(series) < 2 else "* "
    columns = width - margin - 1 - (beside + len(marked) + 1 if beside else 0)
    across = fit_scale([point[0] for point in chain(*curves)], x, columns, lambda text: len(text) + 2)
    title = up.title + (f" over {across.title}" if up.title and across.title else across.title)
    if not any(curves):
        return [_finish_lines(line, width, braille=braille) for line in (title, "Nothing to show: no values.")]
    draw = _draw_braille if braille else _draw_letters
    cells = draw([(curve, each.steps) for curve, each in zip(curves, series, strict=True)], across, up, (columns, rows))
    names = _names(curves, ends, up, rows, marked=bool(marked))
    lines = [title, *_add_frame(cells, up, across, (columns, rows), names=names, labels=labels)]
    return [_finish_lines(line, width, braille=braille) for line in lines]


def plot_scatter(
    clouds: Sequence[Cloud], width: int = 72, height: int = 18, *, x: Axis, y: Axis, braille: bool = True
) -> list[str]:
    """Return at most *height* lines of at most *width* columns: a scatter plot, later clouds on top.

    A legend is under the title. Without *braille* the plot is ASCII.

    >>> clouds = [Cloud("trials", [(1, 3), (2, 3), (3, 2)]), Cloud("front", [(1, 2), (3, 1)], "●")]
    >>> for line in plot_scatter(clouds, 32, 9, x=Axis("cost"), y=Axis("time"), braille=False):
    ...     print(line)
    time over cost
    . trials   o front
     3|.             .
      |
     2|o                           .
      |
     1|                            o
      ++-------------+-------------+
       1             2             3
    """
    width, height = max(width, LEAST_WIDTH), max(height, LEAST_HEIGHT + 1)
    places = [shown_points(each.points, x, y) for each in clouds]
    rows = height - 4
    up = scale_of([point[1] for point in chain(*places)], y, wanted=max(2, rows // 3))
    labels = [_shorten_line(text, width // 3) for text in up.labels]
    columns = width - max(map(len, labels), default=0) - 2
    across = fit_scale([point[0] for point in chain(*places)], x, columns, lambda text: len(text) + 2)
    title = up.title + (f" over {across.title}" if up.title and across.title else across.title)
    if not any(places):
        return [_finish_lines(line, width, braille=braille) for line in (title, "Nothing to show: no values.")]
    legend = "   ".join(f"{each.mark or '·'} {each.name}" for each in clouds)
    cells: Cells = {}
    for cloud, points in zip(clouds, places, strict=True):
        fine = braille and not cloud.mark
        size = (columns * 2, rows * 4) if fine else (columns, rows)
        spots = (_place(point, across, up, size) for point in points)
        cells |= _braille(spots) if fine else dict.fromkeys(spots, cloud.mark or "·")
    lines = [title, legend, *_add_frame(cells, up, across, (columns, rows), names={}, labels=labels)]
    return [_finish_lines(line, width, braille=braille) for line in lines]


def _add_frame(
    cells: Cells, up: AxisScale, across: AxisScale, size: tuple[int, int], *, names: dict[int, str], labels: list[str]
) -> list[str]:
    """Return the cells with their axes, and names beside some rows."""
    columns, rows = size
    margin = max(map(len, labels), default=0) + 1
    ticks = {_row(up, tick, rows): text for tick, text in zip(up.ticks, labels, strict=True)}
    lines = []
    for row in range(rows):
        line = "".join(cells.get((column, row), " ") for column in range(columns))
        wall = "┤" if row in ticks else "│"
        lines.append(f"{ticks.get(row, '').rjust(margin)}{wall}{line} {names.get(row, '')}")
    return lines + _base(across, margin, columns)


def _row(scale: AxisScale, value: float, rows: int) -> int:
    return round((1 - scale.share(value)) * (rows - 1))


def _spots(
    curve: Sequence[Point], steps: bool, x: AxisScale, y: AxisScale, size: tuple[int, int]
) -> Iterator[tuple[int, int]]:
    """Yield the spots, in a raster of the given size, that a curve goes through."""
    places = [_place(point, x, y, size) for point in curve]
    corners = [places[0]]
    for before, after in pairwise(places):
        if after != before:
            corners += [(after[0], before[1]), after] if steps else [after]
    yield corners[0]
    for (left, top), (right, bottom) in pairwise(corners):
        count = max(abs(right - left), abs(bottom - top), 1)
        for part in range(count + 1):
            yield round(left + (right - left) * part / count), round(top + (bottom - top) * part / count)


def _place(point: Point, x: AxisScale, y: AxisScale, size: tuple[int, int]) -> tuple[int, int]:
    """Return the spot of one point in a raster of the given size."""
    wide, high = size
    return round(x.share(point[0]) * (wide - 1)), round((1 - y.share(point[1])) * (high - 1))


def _braille(spots: Iterable[tuple[int, int]]) -> Cells:
    """Return braille characters for the spots of a raster twice as wide and four times as high."""
    bits: dict[tuple[int, int], int] = {}
    for a, b in spots:
        bits[a // 2, b // 4] = bits.get((a // 2, b // 4), 0) | DOTS[b % 4][a % 2]
    return {cell: chr(BLANK + bit) for cell, bit in bits.items()}


def _draw_braille(
    curves: Sequence[tuple[list[Point], bool]], x: AxisScale, y: AxisScale, size: tuple[int, int]
) -> Cells:
    size = (size[0] * 2, size[1] * 4)
    return _braille(spot for curve, steps in curves if curve for spot in _spots(curve, steps, x, y, size))


def _draw_letters(
    curves: Sequence[tuple[list[Point], bool]], x: AxisScale, y: AxisScale, size: tuple[int, int]
) -> Cells:
    cells: Cells = {}
    for index, (curve, steps) in reversed(list(enumerate(curves))):  # the first on top
        for spot in _spots(curve, steps, x, y, size) if curve else ():
            cells[spot] = LETTERS[index % len(LETTERS)]
    return cells


def _names(
    curves: Sequence[list[Point]], ends: Sequence[str], y: AxisScale, rows: int, *, marked: bool
) -> dict[int, str]:
    """Return the names by row: each at the end of its curve, or on the nearest free row."""
    names: dict[int, str] = {}
    for index, (curve, name) in enumerate(zip(curves, ends, strict=True)):
        free = [row for row in range(rows) if row not in names]
        if curve and name and free:
            wanted = _row(y, curve[-1][1], rows)
            row = min(free, key=lambda each: (abs(each - wanted), each))
            names[row] = f"{LETTERS[index % len(LETTERS)]} {name}" if marked else name
    return names


def _base(x: AxisScale, margin: int, columns: int) -> list[str]:
    """Return the horizontal axis and the labels below it."""
    line, below = ["─"] * columns, [" "] * (margin + 1 + columns)
    free = 0
    for tick, text in zip(x.ticks, x.labels, strict=True):
        column = round(x.share(tick) * (columns - 1))
        line[column] = "┬"
        start = min(max(0, margin + 1 + column - len(text) // 2), len(below) - len(text))
        if start >= free:
            below[start : start + len(text)] = text
            free = start + len(text) + 1
    return [" " * margin + "└" + "".join(line), "".join(below)]


def _columns(text: str) -> int:
    """Return how many columns of a terminal *text* takes."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def _shorten_line(text: str, room: int) -> str:
    text = one_line(text)
    if _columns(text) <= room:
        return text
    while _columns(text) > room - 1:
        text = text[:-1]
    return text + "…"


def _ascii(text: str) -> str:
    return text.replace("×10", "e").translate(PLAIN).encode("ascii", "replace").decode()


def _finish_lines(line: str, width: int, *, braille: bool) -> str:
    """Return *line* cut to *width*, without trailing blanks; in ASCII without *braille*."""
    line = _shorten_line(line.rstrip(), width)
    return line if braille else _ascii(line.translate(str.maketrans("│┤└─┬", "||+-+")))


# ---- convergence, and the Pareto front


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
