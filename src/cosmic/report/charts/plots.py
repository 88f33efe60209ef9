"""Charts as SVG text: lines, scatter plots, bars, heat maps, and predicted against measured values.

Every chart reads on white and on dark, has a description for screen readers, and the same bytes for the same numbers.
A number that has no place on its axis is left out, and the chart says so. `agreement_plot` draws points of several
series around the line of equality. The line across stacked bars has a scale of its own, such as where time goes and what
memory it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, nan

from cosmic.base.errors import require
from cosmic.report.charts.drawing import (
    EDGE,
    HUES,
    WIDTH,
    Axis,
    AxisScale,
    Entry,
    Frame,
    Point,
    Series,
    coordinate_text,
    draw_abscissa,
    draw_axes,
    draw_heading,
    draw_label,
    draw_notes,
    draw_rule,
    escape_line,
    fill_class,
    fit_scale,
    omission_note,
    path_through,
    quantity,
    scale_of,
    shown_points,
    stroke_attributes,
    svg_document,
    thin_points,
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


# ---- charts over categories

BAR, GAP, BETWEEN = 17, 3, 14
"""Height of a bar, the gap to the next, and that between groups."""
NAMES = 220.0
"""The most room for the name of a group."""
BESIDE = 140.0
"""The most room for the value beside a bar."""
RAMP = ("#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725")
"""Viridis: its lightness rises evenly, so that it reads without colour too."""

MOST_CELLS = 600
"""Up to this many cells, each shows its number, at least on hovering."""
SHADES = 64
Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Bar:
    """A named value, and a *reference* to compare it with, such as a published one."""

    name: str
    value: float | None
    reference: float | None = None


@dataclass(frozen=True, slots=True)
class BarGroup:
    """Bars under one name."""

    name: str
    bars: Sequence[Bar]


def bars(groups: Sequence[BarGroup], *, x: Axis, title: str, reference: str = "reference") -> str:
    """Return horizontal bars in groups, each with its value; *reference* names the marks across them.

    Bars begin at zero. On a logarithmic axis, which has none, they begin at a round number below all of them.
    """
    every = [bar for group in groups for bar in group.bars]
    names = list(dict.fromkeys(bar.name for bar in every))
    marked = [bar.reference for bar in every if bar.reference is not None]
    numbers = [bar.value for bar in every if bar.value is not None] + marked
    drawn = [value for value in numbers if x.shows(value)]
    scale = _bar_scale(drawn, x)
    head, top = draw_heading(title, _bar_entries(names, reference if marked else ""))
    texts = [_value_text(bar, x) for bar in every]
    left = left_of_bars(groups)
    beside = min(BESIDE, max(map(width_of, texts), default=0.0)) + 14
    if min(drawn, default=0.0) < 0 and not x.log:
        left += beside
    width = WIDTH - left - EDGE - beside
    body, row = [], top + 10.0
    start = row - 6
    for group in groups:
        high = max(1, len(group.bars)) * (BAR + GAP) - GAP
        body.append(group_name(group, row + high / 2))
        for bar in group.bars:
            body += _draw_bar(bar, names.index(bar.name), scale, x, (left, width, row))
            row += BAR + GAP
        row += BETWEEN - GAP + (0 if group.bars else BAR + GAP)
    bottom = row - BETWEEN + 8 if groups else row + 20
    drawn_grid = draw_upright_grid(scale, (left, width), (start, bottom))
    base = [_draw_upright(left + _share_of_base(scale) * width, start, bottom, "cc-axis")]
    note = omission_note(len(numbers), len(drawn), x) if drawn else "Nothing to show: no values."
    small, end = draw_notes([note], bottom + (50 if scale.title else 30))
    description = f"Bar chart of {scale.title}. " + "; ".join(
        f"{group.name}, {bar.name}: {_value_text(bar, x)}" for group in groups for bar in group.bars
    )
    parts = [*head, *drawn_grid, *draw_abscissa(scale, (left, bottom), width), *body, *base, *small]
    return svg_document(title, f"{description}. {note}".strip(), end + (8 if note else 4), parts)


def left_of_bars(groups: Sequence[BarGroup]) -> float:
    """Return where bars begin, right of the names of their groups."""
    return EDGE + min(NAMES, max((width_of(group.name) for group in groups), default=0.0)) + 10


def group_name(group: BarGroup, middle: float) -> str:
    """Return the name of a group, left of its bars."""
    return draw_label((EDGE, middle + 4.5), group.name, room=NAMES)


def legend_of_bars(names: Sequence[str]) -> list[Entry]:
    """Return the legend of bars: a block of its colour for each name."""
    return [
        Entry(name, f'<rect class="{fill_class(index)}" y="-6" width="22" height="12"/>')
        for index, name in enumerate(names)
    ]


def bar_attributes(index: int, start: float, wide: float, top: float) -> str:
    """Return colour, place and size of a bar."""
    size = f'width="{coordinate_text(wide)}" height="{BAR}"'
    return f'class="{fill_class(index)}" x="{coordinate_text(start)}" y="{coordinate_text(top)}" {size}'


def draw_upright_grid(scale: AxisScale, across: tuple[float, float], down: tuple[float, float]) -> list[str]:
    """Return an upright line at each tick: *across* is where the scale begins and how wide it is."""
    left, width = across
    return [_draw_upright(left + scale.share(tick) * width, *down, "cc-grid") for tick in scale.ticks]


def _bar_scale(drawn: Sequence[float], x: Axis) -> AxisScale:
    """Return a scale from zero, or on a logarithmic axis from below the shortest bar, so that it can be seen."""
    below = [min(drawn) / 2] if drawn and x.log else []
    return scale_of([*drawn, *below], x, wanted=5, zero=True)


def _share_of_base(scale: AxisScale) -> float:
    return 0.0 if scale.log else scale.share(0.0)


def _bar_entries(names: Sequence[str], reference: str) -> list[Entry]:
    """Return the legend: none for bars of one name, unless there are marks to explain."""
    entries = legend_of_bars(names) if len(names) > 1 else []
    return [*entries, Entry(reference, _draw_reference(11, -9, 9))] if reference else entries


def _value_text(bar: Bar, x: Axis) -> str:
    return quantity(nan if bar.value is None else bar.value, x.unit)


def _draw_bar(bar: Bar, index: int, scale: AxisScale, x: Axis, where: tuple[float, float, float]) -> list[str]:
    """Return a bar, the mark of its reference, and its value beyond both."""
    left, width, row = where
    value = bar.value if bar.value is not None and x.shows(bar.value) else None
    base = left + _share_of_base(scale) * width
    end = base if value is None else left + scale.share(value) * width
    parts = []
    if value is not None:
        start, wide = min(base, end), max(abs(end - base), 1.0)
        parts.append(f"<rect {bar_attributes(index, start, wide, row)}/>")
    text, mark = _value_text(bar, x), end
    if bar.reference is not None and x.shows(bar.reference):
        mark = left + scale.share(bar.reference) * width
        tooltip = f"<title>{escape_line(quantity(bar.reference, x.unit))}</title>"
        parts.append(f"<g>{tooltip}{_draw_reference(mark, row - 2, row + BAR + 2)}</g>")
    sign = -1 if value is not None and value < 0 else 1
    near = -8 < (mark - end) * sign < width_of(text) + 18  # a value stands at its bar, unless a mark is in the way
    tip = sign * max(sign * end, sign * mark) if near else end
    return [
        *parts,
        draw_label((tip + 7 * sign, row + BAR / 2 + 4.5), text, "cc-over", "end" if sign < 0 else "start", BESIDE),
    ]


def _draw_reference(across: float, top: float, bottom: float) -> str:
    """Return a mark with a rim of paper, to be seen on a bar of any colour."""
    return _draw_upright(across, top, bottom, "cc-halo") + _draw_upright(across, top, bottom, "cc-line cc-ink")


def _draw_upright(across: float, top: float, bottom: float, classes: str) -> str:
    return draw_rule((across, top), (across, bottom), classes)


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    *,
    value: Axis,
    title: str,
    names: tuple[str, str] = ("", ""),
) -> str:
    """Return a table of coloured cells with their numbers; *names* are those of rows and columns. None is empty."""
    require(len(values) == len(rows), "values", len(values), f"there are {len(rows)} rows")
    for index, line in enumerate(values):
        require(len(line) == len(columns), f"values.{index}", len(line), f"there are {len(columns)} columns")
    numbers = [each for line in values for each in line if each is not None]
    drawn = [number for number in numbers if value.shows(number)]
    scale = scale_of(drawn, value, wanted=5)
    left = EDGE + min(200.0, max(map(width_of, rows), default=0.0)) + 10
    wide = min(110.0, (WIDTH - left - EDGE) / max(1, len(columns)))
    high = 28.0 if len(rows) <= 24 else max(8.0, 672 / len(rows))
    upright = max(map(width_of, columns), default=0.0) + 6 > wide
    head, top = draw_heading(title, ())
    caption = " by ".join(filter(None, names))
    head.append(
        draw_label(
            (EDGE, top + 12), f"{scale.title}{', ' if caption else ''}{caption}", "cc-muted", room=WIDTH - 2 * EDGE
        )
    )
    top += 24 + (min(110.0, max(map(width_of, columns), default=0.0)) if upright else 20)
    body = _draw_column_names(columns, (left, top), wide, upright=upright)
    every = ceil(16 / high)
    for shown_row, name in enumerate(rows[::every]):
        position = (left - 8, top + (shown_row * every + 0.5) * high + 4.5)
        body.append(draw_label(position, name, "cc-muted", "end", room=200))
    boxes = [
        (each, f"{rows[down]}, {columns[across]}", (left + across * wide, top + down * high, wide, high))
        for down, line in enumerate(values)
        for across, each in enumerate(line)
    ]
    if len(boxes) <= MOST_CELLS:
        digits = _digits_that_fit(drawn, value, wide) if high > 16 else 0
        body += [_draw_cell(each, scale, value, box, (where, digits)) for each, where, box in boxes]
    else:
        body += _draw_mosaic(
            [(scale.share(each), box) for each, _, box in boxes if each is not None and value.shows(each)]
        )
    note = omission_note(len(numbers), len(drawn), value) if drawn else "Nothing to show: no values."
    bottom = top + len(rows) * high + 14
    parts, bottom = _draw_key(scale, bottom, left) if drawn else ([], bottom)
    small, end = draw_notes([note], bottom)
    description = f"Heat map of {scale.title} for {len(rows)} rows and {len(columns)} columns."
    if drawn:
        description += f" From {quantity(min(drawn), value.unit)} to {quantity(max(drawn), value.unit)}."
    return svg_document(title, f"{description} {note}".strip(), end + 8, [*head, *body, *parts, *small])


def _draw_column_names(columns: Sequence[str], start: tuple[float, float], wide: float, *, upright: bool) -> list[str]:
    """Return the names above the columns: turned where they are too wide, some left out where they are too many."""
    left, top = start
    every = ceil(16 / wide)
    parts = []
    for index in range(0, len(columns), every):
        middle = left + (index + 0.5) * wide
        if upright:
            turned = f'transform="rotate(-90 {coordinate_text(middle + 4.5)} {coordinate_text(top - 6)})"'
            parts.append(f"<g {turned}>{draw_label((middle + 4.5, top - 6), columns[index], 'cc-muted', room=110)}</g>")
        else:
            parts.append(draw_label((middle, top - 7), columns[index], "cc-muted", "middle"))
    return parts


def _draw_cell(each: float | None, scale: AxisScale, axis: Axis, box: Box, says: tuple[str, int]) -> str:
    """Return one cell: its colour, its number where it fits, and its name and number on hovering."""
    left, top, wide, high = box
    gap = 1.0 if min(wide, high) > 10 else 0.0
    area = f'x="{coordinate_text(left)}" y="{coordinate_text(top)}" width="{coordinate_text(wide - gap)}" height="{coordinate_text(high - gap)}"'
    where, digits = says
    tooltip = f"<title>{escape_line(f'{where}: {quantity(nan if each is None else each, axis.unit)}')}</title>"
    middle = (left + wide / 2, top + high / 2 + 4)
    if each is None or not axis.shows(each):
        return f'<g>{tooltip}<rect {area} fill="none"/>{draw_label(middle, "–", "cc-muted", "middle") if digits else ""}</g>'
    share = scale.share(each)
    ink = "cc-small cc-pale" if share < 0.6 else "cc-small cc-deep"
    text = draw_label(middle, _cell_text(each, axis, digits), ink, "middle") if digits else ""
    return f'<g>{tooltip}<rect {area} fill="{ramp_colour(share)}"/>{text}</g>'


def _digits_that_fit(drawn: Sequence[float], axis: Axis, wide: float) -> int:
    """Return the digits with which the numbers of all cells fit, 0 if there are none: all are shown or none."""
    for digits in (3, 2):
        if all(width_of(_cell_text(each, axis, digits), 12) + 3 < wide for each in drawn):
            return digits
    return 0


def _cell_text(each: float, axis: Axis, digits: int) -> str:
    return quantity(each, axis.unit if len(axis.unit) < 3 else "", digits)


def _draw_mosaic(cells: Sequence[tuple[float, Box]]) -> list[str]:
    """Return many cells as one path for each shade, which takes a tenth of the bytes of rectangles."""
    per_shade: dict[int, list[str]] = {}
    for share, (left, top, wide, high) in cells:
        right, bottom = coordinate_text(left + wide), coordinate_text(top + high)
        piece = f"M{coordinate_text(left)} {coordinate_text(top)}H{right}V{bottom}H{coordinate_text(left)}"
        per_shade.setdefault(round(share * (SHADES - 1)), []).append(piece)
    return [
        f'<path class="cc-cells" fill="{ramp_colour(shade / (SHADES - 1))}" d="' + "".join(pieces) + '"/>'
        for shade, pieces in sorted(per_shade.items())
    ]


def ramp_colour(share: float) -> str:
    """Return the colour at *share* of the ramp.

    >>> ramp_colour(0), ramp_colour(1)
    ('#440154', '#fde725')
    """
    position = share * (len(RAMP) - 1)
    before = min(int(position), len(RAMP) - 2)
    pairs = zip(bytes.fromhex(RAMP[before][1:]), bytes.fromhex(RAMP[before + 1][1:]), strict=True)
    return "#" + bytes(round(low + (high - low) * (position - before)) for low, high in pairs).hex()


def _draw_key(scale: AxisScale, top: float, left: float) -> tuple[list[str], float]:
    """Return the colour ramp over an axis, and its lower edge."""
    width = min(320.0, WIDTH - left - 2 * EDGE)
    piece = width / SHADES
    parts = [
        f'<rect x="{coordinate_text(left + index * piece)}" y="{coordinate_text(top)}" width="{coordinate_text(piece + 0.5)}" height="10"'
        f' fill="{ramp_colour(index / (SHADES - 1))}"/>'
        for index in range(SHADES)
    ]
    parts += draw_abscissa(scale, (left, top + 10), width)
    return parts, top + 10 + (50 if scale.title else 28)


STACKED_GAP = 11
"""Between two bars."""


@dataclass(frozen=True, slots=True)
class LineAcross:
    """A line across bars: a value for each of them, and a *limit* that it is measured against."""

    name: str
    values: Sequence[float]
    axis: Axis
    limit: float | None = None
    limit_name: str = "limit"


def stacked_bars(rows: Sequence[BarGroup], *, x: Axis, title: str, across: LineAcross | None = None) -> str:
    """Return horizontal bars, each the sum of its parts, with its total beside it; *across* has its axis above.

    >>> from cosmic.report.charts.plots import Bar
    >>> svg = stacked_bars([BarGroup("a", [Bar("one", 1.0), Bar("two", 2.0)])], x=Axis("time", unit="s"), title="t")
    >>> svg.startswith("<svg"), "a: one 1 s, two 2 s" in svg
    (True, True)
    """
    if across is not None:
        require(len(across.values) == len(rows), "across", len(across.values), f"there are {len(rows)} bars")
    names = list(dict.fromkeys(bar.name for row in rows for bar in row.bars))
    totals = [sum(bar.value or 0.0 for bar in row.bars) for row in rows]
    scale = scale_of(totals, x, wanted=5, zero=True)
    head, top = draw_heading(title, _stacked_entries(names, across))
    left = left_of_bars(rows)
    beside = max((width_of(quantity(total, x.unit)) for total in totals), default=0.0) + 14
    width = WIDTH - left - EDGE - beside
    first = top + (58.0 if across is not None else 10.0)
    bottom = first + len(rows) * (BAR + STACKED_GAP)
    body = draw_upright_grid(scale, (left, width), (first - 6, bottom))
    for index, (row, total) in enumerate(zip(rows, totals, strict=True)):
        body += _draw_stack(row, total, names, (left, width, first + index * (BAR + STACKED_GAP)), scale, x)
    body += draw_abscissa(scale, (left, bottom), width)
    body.append(draw_rule((left, first - 6), (left, bottom), "cc-axis"))
    description = "; ".join(
        f"{row.name}: " + ", ".join(f"{bar.name} {quantity(bar.value or 0.0, x.unit)}" for bar in row.bars)
        for row in rows
    )
    if across is not None:
        body += _draw_line_across(across, (left, width, first), bottom)
        shown = ", ".join(quantity(value, across.axis.unit) for value in across.values)
        description += f". {across.name}: {shown}"
    return svg_document(title, f"Stacked bars of {scale.title}. {description}.", bottom + 54, [*head, *body])


def _stacked_entries(names: Sequence[str], across: LineAcross | None) -> list[Entry]:
    entries = legend_of_bars(names)
    if across is not None:
        entries.append(Entry(across.name, '<path class="cc-line cc-ink" d="M0 0H22"/>'))
        if across.limit is not None:
            entries.append(
                Entry(across.limit_name, '<path class="cc-line cc-ink" stroke-dasharray="4 3" d="M0 0H22"/>')
            )
    return entries


def _draw_stack(
    row: BarGroup, total: float, names: Sequence[str], where: tuple[float, float, float], scale: AxisScale, x: Axis
) -> list[str]:
    left, width, top = where
    parts = [group_name(row, top + BAR / 2)]
    start = 0.0
    for bar in row.bars:
        value = bar.value or 0.0
        begin, end = (left + scale.share(each) * width for each in (start, start + value))
        hover = f"<title>{escape_line(f'{bar.name} {quantity(value, x.unit)}')}</title>"
        parts.append(f"<rect {bar_attributes(names.index(bar.name), begin, end - begin, top)}>{hover}</rect>")
        start += value
    end = left + scale.share(total) * width
    return [*parts, draw_label((end + 7, top + BAR / 2 + 4.5), quantity(total, x.unit), "cc-over")]


def _draw_line_across(across: LineAcross, where: tuple[float, float, float], bottom: float) -> list[str]:
    """Return the line, its axis above the bars, and its limit."""
    left, width, first = where
    limits = [across.limit] if across.limit is not None else []
    scale = scale_of([*across.values, *limits], across.axis, wanted=5)
    above = first - 10
    parts = [draw_rule((left, above), (left + width, above), "cc-axis")]
    for tick, text in zip(scale.ticks, scale.labels, strict=True):
        x_of_line = left + scale.share(tick) * width
        parts += [
            draw_rule((x_of_line, above - 5), (x_of_line, above), "cc-axis"),
            draw_label((x_of_line, above - 9), text, "cc-muted", "middle"),
        ]
    parts.append(draw_label((left + width / 2, above - 28), scale.title, "cc-muted", "middle"))
    points = [
        (left + scale.share(value) * width, first + index * (BAR + STACKED_GAP) + BAR / 2)
        for index, value in enumerate(across.values)
    ]
    parts.append(
        f'<path class="cc-halo" d="{path_through(points)}"/><path class="cc-line cc-ink" d="{path_through(points)}"/>'
    )
    for value in limits:
        x_of_line = left + scale.share(value) * width
        dashed = f'd="{path_through([(x_of_line, above), (x_of_line, bottom)])}"'
        parts.append(f'<path class="cc-line cc-ink" stroke-dasharray="4 3" {dashed}/>')
    return parts
