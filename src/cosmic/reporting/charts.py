"""Charts as SVG text: curves and scatters here, bars and heat maps in `categories`.

Every chart reads on white and on dark, has a description for screen readers, and the same bytes for the same numbers.
A number that has no place on its axis is left out, and the chart says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from cosmic.reporting.categories import Bar, Group, bars, heat_map
from cosmic.reporting.curves import Point, Series, omission, shown, thin
from cosmic.reporting.scales import Axis, fitted, quantity, scale_of
from cosmic.reporting.svg import (
    EDGE,
    WIDTH,
    Entry,
    Frame,
    axes,
    document,
    fill,
    heading,
    label,
    notes,
    number,
    outline,
    stroke,
    width_of,
)

__all__ = ["Axis", "Bar", "Group", "Mark", "Series", "bars", "heat_map", "lines", "scatter"]

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
    curves = [shown(each.points, x, y) for each in series]
    bands = [_shown_band(each, x, y) for each in series]
    entries = [Entry(each.name, f'<path {stroke(place)} d="M0 0H22"/>') for place, each in enumerate(series)]
    head, top = heading(title, entries if len(series) > 1 else ())
    outlines = list(chain.from_iterable(chain(*pair) for pair in bands))
    frame = _frame(list(chain(*curves, outlines)), x, y, top)
    body = [*head, *axes(frame)]
    for place, (each, (low, high)) in enumerate(zip(series, bands, strict=True)):
        if low:
            there = _path(frame, low, steps=each.steps)
            back = _path(frame, high, steps=each.steps, back=True)
            body.append(f'<path class="cc-band {fill(place)}" d="{there}{back}Z"/>')
    for place, (each, curve) in reversed(list(enumerate(zip(series, curves, strict=True)))):  # the first on top
        if len(curve) > 1:
            body.append(f'<path {stroke(place)} d="{_path(frame, curve, steps=each.steps)}"/>')
        body += [_dot(frame.at(point), fill(place)) for point in curve[-1:]]
    given, kept = sum(len(each.points) for each in series), sum(map(len, curves))
    ends = [
        f"{each.name} ends at {quantity(curve[-1][1], y.unit)}" if curve else f"{each.name} has no points"
        for each, curve in zip(series, curves, strict=True)
    ]
    said = f"Line chart: {frame.y.title} against {frame.x.title}. {'; '.join(ends)}."
    return _finished(title, said, frame, body, omission(given, kept, x, y))


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
    dots, best = shown(points, x, y), shown(front or (), x, y)
    named = [mark for mark in marks if x.shows(mark.x) and y.shows(mark.y)]
    head, top = heading(title, _scatter_entries(bool(dots), bool(best)) if front else ())
    frame = _frame([*dots, *best, *((mark.x, mark.y) for mark in named)], x, y, top)
    body = [*head, *axes(frame)]
    if dots:
        spots = "".join(f"M{number(a)} {number(b)}h0" for a, b in _apart([frame.at(point) for point in dots]))
        body.append(f'<path class="cc-dots" d="{spots}"/>')
    if best:
        places = thin([frame.at(point) for point in best], steps=False)
        way = outline(places, steps=True, before=x.better == "higher")
        body.append(f'<path class="cc-line cc-s1" d="{way}"/>')
        body += [_dot(place, "cc-ring") for place in places]
    for mark in named:
        body += _named(frame, mark)
    given = len(points) + len(front or ()) + len(marks)
    kept = len(dots) + len(best) + len(named)
    said = f"Scatter plot of {len(dots):,} points: {frame.y.title} against {frame.x.title}."
    if best:
        said += f" The front has {len(best):,} points."
    said += "".join(f" {mark.name}: {quantity(mark.x, x.unit)}, {quantity(mark.y, y.unit)}." for mark in named)
    return _finished(title, said, frame, body, omission(given, kept, x, y))


def _frame(points: Sequence[Point], x: Axis, y: Axis, top: float) -> Frame:
    """Return a frame with room for its labels."""
    up = scale_of([point[1] for point in points], y, wanted=5)
    left = EDGE + max([36.0, *(width_of(text) + 8 for text in up.labels)])
    right = EDGE + 14.0
    across = fitted([point[0] for point in points], x, WIDTH - left - right, lambda text: width_of(text) + 12)
    right = max([right, *(EDGE + width_of(text) / 2 for text in across.labels[-1:])])
    return Frame(left, top + (36 if up.title else 18), WIDTH - left - right, PLOT_HEIGHT, across, up)


def _path(frame: Frame, points: Sequence[Point], *, steps: bool, back: bool = False) -> str:
    """Return a curve in pixels; *back* draws it from right to left, to continue another."""
    places = thin([frame.at(point) for point in points], steps=steps)
    if not back:
        return outline(places, steps=steps)
    return "L" + outline(places[::-1], steps=steps, before=True)[1:]


def _shown_band(series: Series, x: Axis, y: Axis) -> tuple[list[Point], list[Point]]:
    """Return the lower and the upper edge of a band, where both can be shown."""
    kept = [(a, low, high) for a, low, high in series.band if x.shows(a) and y.shows(low) and y.shows(high)]
    kept.sort()
    return [(a, low) for a, low, _ in kept], [(a, high) for a, _, high in kept]


def _scatter_entries(dots: bool, best: bool) -> list[Entry]:
    entries = [Entry("all points", '<path class="cc-dots" d="M11 0h0"/>')] if dots else []
    if best:
        entries.append(Entry("front", '<path class="cc-line cc-s1" d="M0 0H22"/>' + _dot((11, 0), "cc-ring")))
    return entries


def _apart(places: Sequence[Point]) -> list[Point]:
    """Return one point of each spot; spots grow until there are at most `MOST_DOTS`."""
    spot = 1.0
    while True:
        seen = {(round(a / spot), round(b / spot)): (a, b) for a, b in reversed(places)}
        if len(seen) <= MOST_DOTS:
            return [seen[key] for key in sorted(seen)]
        spot *= 1.5


def _dot(at: Point, classes: str) -> str:
    return f'<circle class="{classes}" cx="{number(at[0])}" cy="{number(at[1])}" r="3.5"/>'


def _named(frame: Frame, mark: Mark) -> list[str]:
    """Return a diamond with its name beside it, on the side that has the room."""
    across, down = frame.at((mark.x, mark.y))
    on_left = across > frame.left + frame.width * 0.6
    room = (across - frame.left if on_left else frame.left + frame.width - across) - 14
    at = (across - 11, down - 6) if on_left else (across + 11, down - 6)
    diamond = f'<path class="cc-ink" d="M{number(across)} {number(down - 6)}l6 6l-6 6l-6 -6Z"/>'
    return [diamond, label(at, mark.name, "cc-over", "end" if on_left else "start", room)]


def _finished(title: str, said: str, frame: Frame, body: Sequence[str], note: str) -> str:
    """Return the chart with its note below, or in the middle of an empty chart."""
    end = frame.top + frame.height + (50 if frame.x.title else 30)
    if frame.x.ticks:
        small, end = notes([note], end)
    else:
        note = f"Nothing to show: {'none of the values has a place on these axes' if note else 'no values'}."
        small = [label((frame.left + frame.width / 2, frame.top + frame.height / 2), note, "cc-muted", "middle")]
    return document(title, " ".join(filter(None, (said, note))), end + (8 if note else 4), [*body, *small])
