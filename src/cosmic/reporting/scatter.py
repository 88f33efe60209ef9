"""Predicted against measured values: points of several series around the line of equality."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from cosmic.errors import require
from cosmic.reporting.curves import Point, Series, omission, shown
from cosmic.reporting.scales import Axis, fitted
from cosmic.reporting.svg import (
    EDGE,
    HUES,
    WIDTH,
    Entry,
    Frame,
    axes,
    document,
    fill,
    heading,
    notes,
    number,
    width_of,
)

PLOT_HEIGHT = 440
RADIUS = 2.6


def agreement(series: Sequence[Series], *, x: Axis, y: Axis, title: str, within: float = 0.1) -> str:
    """Return points over two logarithmic axes of one range, the line of equality, and a band around it.

    Points in the band are off by at most the share *within*.

    >>> svg = agreement([Series("a", [(1.0, 1.05), (2.0, 3.0)])], x=Axis("m", "s"), y=Axis("p", "s"), title="t")
    >>> "1 of 2 within 10 %" in svg
    True
    """
    require(len(series) <= len(HUES), "series", len(series), f"at most {len(HUES)} can be told apart")
    across, up = (Axis(axis.label, axis.unit, True, axis.better) for axis in (x, y))
    dots = [shown(each.points, across, up) for each in series]
    values = [value for point in chain(*dots) for value in point]
    entries = [Entry(each.name, _dot((11, 0), place)) for place, each in enumerate(series)]
    head, top = heading(title, entries)
    frame = _frame(values, across, up, top)
    body = [*head, *axes(frame)]
    if values:
        body += [_band(frame, within), _line(frame)]
    body += [_dot(frame.at(point), place) for place, part in enumerate(dots) for point in part]
    given, kept = sum(len(each.points) for each in series), sum(map(len, dots))
    near = sum(abs(b / a - 1) <= within for a, b in chain(*dots))
    note = f"{near:,} of {kept:,} within {100 * within:g} %, the shaded band."
    small, end = notes([note, omission(given, kept, across, up)], frame.top + frame.height + 50)
    said = f"Scatter plot of {kept:,} points: {frame.y.title} against {frame.x.title}. {note}"
    return document(title, said, end + 8, [*body, *small])


def _frame(values: Sequence[float], x: Axis, y: Axis, top: float) -> Frame:
    """Return a frame whose axes have the same range."""
    up = fitted(values, y, PLOT_HEIGHT, lambda _: 24)
    left = EDGE + max([36.0, *(width_of(text) + 8 for text in up.labels)])
    across = fitted(values, x, WIDTH - left - 2 * EDGE, lambda text: width_of(text) + 12)
    return Frame(left, top + 36, WIDTH - left - 2 * EDGE, PLOT_HEIGHT, across, up)


def _ends(frame: Frame) -> tuple[float, float]:
    return max(frame.x.low, frame.y.low), min(frame.x.high, frame.y.high)


def _line(frame: Frame) -> str:
    low, high = _ends(frame)
    return f'<path class="cc-axis" d="{_path([frame.at((low, low)), frame.at((high, high))])}"/>'


def _band(frame: Frame, within: float) -> str:
    low, high = _ends(frame)
    above, below = 1 + within, 1 - within
    upper = [(low, low), (low, low * above), (high / above, high)]
    lower = [(high, high), (high, high * below), (low / below, low)]
    corners = [frame.at(point) for point in (*upper, *lower)]
    return f'<path class="cc-band cc-f5" d="{_path(corners)}Z"/>'


def _path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{number(a)} {number(b)}" for a, b in points)


def _dot(at: Point, place: int) -> str:
    return f'<circle class="{fill(place)}" cx="{number(at[0])}" cy="{number(at[1])}" r="{RADIUS}"/>'
