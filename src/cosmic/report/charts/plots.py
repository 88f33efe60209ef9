"""Line charts, scatter plots, and plots of predicted against measured values, as SVG text.

Every chart reads on white and on dark, has a description for screen readers, and the same bytes for the same numbers.
A number that has no place on its axis is left out, and the chart says so. Bars and heat maps are in `category_charts`.
`agreement_plot` draws points of several series around the line of equality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from cosmic.base.errors import require
from cosmic.report.charts.scales import (
    Axis,
    Point,
    Series,
    fit_scale,
    omission_note,
    quantity,
    scale_of,
    shown_points,
    thin_points,
)
from cosmic.report.charts.svg import (
    EDGE,
    HUES,
    WIDTH,
    Entry,
    Frame,
    coordinate_text,
    draw_axes,
    draw_heading,
    draw_label,
    draw_notes,
    fill_class,
    path_through,
    stroke_attributes,
    svg_document,
    width_of,
)

PLOT_HEIGHT = 300
MOST_DOTS = 3000


@dataclass(frozen=True, slots=True)
class Mark:
    """A named point, such as the base design."""

    name: str
    x: float
    y: float


def lines(series: Sequence[Series], *, x: Axis, y: Axis, title: str) -> str:
    """Return curves over a common axis, each with its own colour and dash.

    >>> svg = lines([Series("random", [(1, 3.0), (2, 2.5)], steps=True)], x=Axis("trials"), y=Axis("cost"), title="t")
    >>> svg.startswith("<svg"), "random ends at 2.5." in svg
    (True, True)
    """
    curves = [shown_points(each.points, x, y) for each in series]
    bands = [_shown_band(each, x, y) for each in series]
    entries = [
        Entry(each.name, f'<path {stroke_attributes(colour)} d="M0 0H22"/>') for colour, each in enumerate(series)
    ]
    head, top = draw_heading(title, entries if len(series) > 1 else ())
    outlines = list(chain.from_iterable(chain(*pair) for pair in bands))
    frame = _frame(list(chain(*curves, outlines)), x, y, top)
    body = [*head, *draw_axes(frame)]
    for index, (each, (low, high)) in enumerate(zip(series, bands, strict=True)):
        if low:
            rising = _draw_curve(frame, low, steps=each.steps)
            back = _draw_curve(frame, high, steps=each.steps, back=True)
            body.append(f'<path class="cc-band {fill_class(index)}" d="{rising}{back}Z"/>')
    for colour, (each, curve) in reversed(list(enumerate(zip(series, curves, strict=True)))):  # the first on top
        if len(curve) > 1:
            body.append(f'<path {stroke_attributes(colour)} d="{_draw_curve(frame, curve, steps=each.steps)}"/>')
        body += [_draw_dot(frame.position_of(point), fill_class(colour)) for point in curve[-1:]]
    total, drawn = sum(len(each.points) for each in series), sum(map(len, curves))
    ends = [
        f"{each.name} ends at {quantity(curve[-1][1], y.unit)}" if curve else f"{each.name} has no points"
        for each, curve in zip(series, curves, strict=True)
    ]
    description = f"Line chart: {frame.y.title} against {frame.x.title}. {'; '.join(ends)}."
    return _finish_chart(title, description, frame, body, omission_note(total, drawn, x, y))


def scatter(
    points: Sequence[Point],
    *,
    x: Axis,
    y: Axis,
    title: str,
    front: Sequence[Point] | None = None,
    marks: Sequence[Mark] = (),
) -> str:
    """Return points, their Pareto *front* as rings on a staircase, and *marks* with their names.

    The staircase bounds the dominated region: it keeps a point's ordinate until the next point, or from the one before
    where more of *x* is better.
    """
    dots, best = shown_points(points, x, y), shown_points(front or (), x, y)
    named = [mark for mark in marks if x.shows(mark.x) and y.shows(mark.y)]
    head, top = draw_heading(title, _scatter_entries(bool(dots), bool(best)) if front else ())
    frame = _frame([*dots, *best, *((mark.x, mark.y) for mark in named)], x, y, top)
    body = [*head, *draw_axes(frame)]
    if dots:
        spots = "".join(
            f"M{coordinate_text(a)} {coordinate_text(b)}h0"
            for a, b in _spread_dots([frame.position_of(point) for point in dots])
        )
        body.append(f'<path class="cc-dots" d="{spots}"/>')
    if best:
        places = thin_points([frame.position_of(point) for point in best], steps=False)
        way = path_through(places, steps=True, before=x.better == "higher")
        body.append(f'<path class="cc-line cc-s1" d="{way}"/>')
        body += [_draw_dot(ring, "cc-ring") for ring in places]
    for mark in named:
        body += _draw_mark(frame, mark)
    total = len(points) + len(front or ()) + len(marks)
    drawn = len(dots) + len(best) + len(named)
    description = f"Scatter plot of {len(dots):,} points: {frame.y.title} against {frame.x.title}."
    if best:
        description += f" The front has {len(best):,} points."
    description += "".join(f" {mark.name}: {quantity(mark.x, x.unit)}, {quantity(mark.y, y.unit)}." for mark in named)
    return _finish_chart(title, description, frame, body, omission_note(total, drawn, x, y))


def _frame(points: Sequence[Point], x: Axis, y: Axis, top: float) -> Frame:
    """Return a frame with room for its labels."""
    up = scale_of([point[1] for point in points], y, wanted=5)
    left = EDGE + max([36.0, *(width_of(text) + 8 for text in up.labels)])
    right = EDGE + 14.0
    across = fit_scale([point[0] for point in points], x, WIDTH - left - right, lambda text: width_of(text) + 12)
    right = max([right, *(EDGE + width_of(text) / 2 for text in across.labels[-1:])])
    return Frame(left, top + (36 if up.title else 18), WIDTH - left - right, PLOT_HEIGHT, across, up)


def _draw_curve(frame: Frame, points: Sequence[Point], *, steps: bool, back: bool = False) -> str:
    """Return a curve in pixels; *back* draws it from right to left, to continue another."""
    places = thin_points([frame.position_of(point) for point in points], steps=steps)
    if not back:
        return path_through(places, steps=steps)
    return "L" + path_through(places[::-1], steps=steps, before=True)[1:]


def _shown_band(series: Series, x: Axis, y: Axis) -> tuple[list[Point], list[Point]]:
    """Return the lower and the upper edge of a band, where both can be shown."""
    visible = [(a, low, high) for a, low, high in series.band if x.shows(a) and y.shows(low) and y.shows(high)]
    visible.sort()
    return [(a, low) for a, low, _ in visible], [(a, high) for a, _, high in visible]


def _scatter_entries(dots: bool, best: bool) -> list[Entry]:
    entries = [Entry("all points", '<path class="cc-dots" d="M11 0h0"/>')] if dots else []
    if best:
        entries.append(Entry("front", '<path class="cc-line cc-s1" d="M0 0H22"/>' + _draw_dot((11, 0), "cc-ring")))
    return entries


def _spread_dots(places: Sequence[Point]) -> list[Point]:
    """Return one point of each spot; spots grow until there are at most `MOST_DOTS`."""
    spot = 1.0
    while True:
        seen = {(round(a / spot), round(b / spot)): (a, b) for a, b in reversed(places)}
        if len(seen) <= MOST_DOTS:
            return [seen[key] for key in sorted(seen)]
        spot *= 1.5


def _draw_dot(point: Point, classes: str) -> str:
    return f'<circle class="{classes}" cx="{coordinate_text(point[0])}" cy="{coordinate_text(point[1])}" r="3.5"/>'


def _draw_mark(frame: Frame, mark: Mark) -> list[str]:
    """Return a diamond with its name beside it, on the side that has the room."""
    across, down = frame.position_of((mark.x, mark.y))
    on_left = across > frame.left + frame.width * 0.6
    room = (across - frame.left if on_left else frame.left + frame.width - across) - 14
    position = (across - 11, down - 6) if on_left else (across + 11, down - 6)
    diamond = f'<path class="cc-ink" d="M{coordinate_text(across)} {coordinate_text(down - 6)}l6 6l-6 6l-6 -6Z"/>'
    return [diamond, draw_label(position, mark.name, "cc-over", "end" if on_left else "start", room)]


def _finish_chart(title: str, description: str, frame: Frame, body: Sequence[str], note: str) -> str:
    """Return the chart with its note below, or in the middle of an empty chart."""
    end = frame.top + frame.height + (50 if frame.x.title else 30)
    if frame.x.ticks:
        small, end = draw_notes([note], end)
    else:
        note = f"Nothing to show: {'none of the values has a place on these axes' if note else 'no values'}."
        small = [draw_label((frame.left + frame.width / 2, frame.top + frame.height / 2), note, "cc-muted", "middle")]
    return svg_document(title, " ".join(filter(None, (description, note))), end + (8 if note else 4), [*body, *small])


AGREEMENT_HEIGHT = 440
RADIUS = 2.6


def agreement_plot(series: Sequence[Series], *, x: Axis, y: Axis, title: str, within: float = 0.1) -> str:
    """Return points over two logarithmic axes of one range, the line of equality, and a band around it.

    Points in the band are off by at most the share *within*.

    >>> svg = agreement_plot([Series("a", [(1.0, 1.05), (2.0, 3.0)])], x=Axis("m", "s"), y=Axis("p", "s"), title="t")
    >>> "1 of 2 within 10 %" in svg
    True
    """
    require(len(series) <= len(HUES), "series", len(series), f"at most {len(HUES)} can be told apart")
    across, up = (Axis(axis.label, axis.unit, True, axis.better) for axis in (x, y))
    dots = [shown_points(each.points, across, up) for each in series]
    values = [value for point in chain(*dots) for value in point]
    entries = [Entry(each.name, _draw_agreement_dot((11, 0), index)) for index, each in enumerate(series)]
    head, top = draw_heading(title, entries)
    frame = _agreement_frame(values, across, up, top)
    body = [*head, *draw_axes(frame)]
    if values:
        body += [_draw_band(frame, within), _draw_equality(frame)]
    body += [_draw_agreement_dot(frame.position_of(point), index) for index, part in enumerate(dots) for point in part]
    total, drawn = sum(len(each.points) for each in series), sum(map(len, dots))
    near = sum(abs(b / a - 1) <= within for a, b in chain(*dots))
    note = f"{near:,} of {drawn:,} within {100 * within:g} %, the shaded band."
    small, end = draw_notes([note, omission_note(total, drawn, across, up)], frame.top + frame.height + 50)
    description = f"Scatter plot of {drawn:,} points: {frame.y.title} against {frame.x.title}. {note}"
    return svg_document(title, description, end + 8, [*body, *small])


def _agreement_frame(values: Sequence[float], x: Axis, y: Axis, top: float) -> Frame:
    """Return a frame whose axes have the same range."""
    up = fit_scale(values, y, AGREEMENT_HEIGHT, lambda _: 24)
    left = EDGE + max([36.0, *(width_of(text) + 8 for text in up.labels)])
    across = fit_scale(values, x, WIDTH - left - 2 * EDGE, lambda text: width_of(text) + 12)
    return Frame(left, top + 36, WIDTH - left - 2 * EDGE, AGREEMENT_HEIGHT, across, up)


def _common_range(frame: Frame) -> tuple[float, float]:
    return max(frame.x.low, frame.y.low), min(frame.x.high, frame.y.high)


def _draw_equality(frame: Frame) -> str:
    low, high = _common_range(frame)
    return f'<path class="cc-axis" d="{_straight_path([frame.position_of((low, low)), frame.position_of((high, high))])}"/>'


def _draw_band(frame: Frame, within: float) -> str:
    low, high = _common_range(frame)
    above, below = 1 + within, 1 - within
    upper = [(low, low), (low, low * above), (high / above, high)]
    lower = [(high, high), (high, high * below), (low / below, low)]
    corners = [frame.position_of(point) for point in (*upper, *lower)]
    return f'<path class="cc-band cc-f5" d="{_straight_path(corners)}Z"/>'


def _straight_path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{coordinate_text(a)} {coordinate_text(b)}" for a, b in points)


def _draw_agreement_dot(point: Point, index: int) -> str:
    return f'<circle class="{fill_class(index)}" cx="{coordinate_text(point[0])}" cy="{coordinate_text(point[1])}" r="{RADIUS}"/>'
