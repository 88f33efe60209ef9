"""Named curves, and the thinning of long ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cosmic.reporting.scales import Axis

Point = tuple[float, float]
MOST_POINTS = 400
TOLERANCES_PX = (0.25, 0.5, 1.0)
"""How far a thinned step curve may be from the given one, tried in this order."""


@dataclass(frozen=True, slots=True)
class Series:
    """A named curve through points, in any order; with *steps*, a value stays until the next point."""

    name: str
    points: Sequence[Point]
    steps: bool = False
    band: Sequence[tuple[float, float, float]] = ()
    """A shaded range around the curve, such as the quartiles over seeds: x, low, high."""


def shown(points: Sequence[Point], x: Axis, y: Axis) -> list[Point]:
    """Return the points that have a place on both axes, from left to right."""
    return sorted(((a, b) for a, b in points if x.shows(a) and y.shows(b)), key=lambda point: point[0])


def omission(given: int, kept: int, *axes: Axis) -> str:
    """Return a sentence with how many of the *given* points are left out, and why; an empty text if none is."""
    if given == kept:
        return ""
    why = "it is not finite, or not positive on a logarithmic axis" if any(axis.log for axis in axes) else "not finite"
    count = given - kept
    if count == 1:
        return f"1 of {given:,} values is not shown: {why}."
    return f"{count:,} of {given:,} values are not shown: {why.replace('it is ', '')}."


def thin(points: Sequence[Point], *, steps: bool, most: int = MOST_POINTS) -> list[Point]:
    """Return at most *most* of the *points*, given in pixels from left to right, that draw the same curve.

    The first, the last and the extreme points stay, and none is moved. A step curve drops repeated values, then steps
    of less than a pixel. A curve that is still too long keeps the first, lowest, highest and last point of each column.

    >>> thin([(0, 5), (1, 5), (2, 3), (3, 3), (4, 3)], steps=True)
    [(0, 5), (2, 3), (4, 3)]
    """
    kept = list(points)
    if steps:
        kept = _beyond(kept, 0.0)
        for tolerance in TOLERANCES_PX:
            if len(kept) <= most:
                return kept
            held = _beyond(kept, tolerance)
            kept = held if len(held) <= most else kept
    return kept if len(kept) <= most else _outline(kept, most // 4)


def _beyond(points: list[Point], tolerance: float) -> list[Point]:
    """Return the points that differ by more than *tolerance* from the last kept one, and the ends and extremes."""
    if len(points) < 3:
        return points
    order = range(len(points))
    always = {0, len(points) - 1} | {pick(order, key=lambda place: points[place][1]) for pick in (min, max)}
    kept: list[Point] = []
    for place, point in enumerate(points):
        if place in always or abs(point[1] - kept[-1][1]) > tolerance:
            kept.append(point)
    return kept


def _outline(points: list[Point], columns: int) -> list[Point]:
    """Return the first, lowest, highest and last point of each of *columns* columns of equal width."""
    left, right = points[0][0], points[-1][0]
    per_column: dict[int, list[int]] = {}
    for place, (across, _) in enumerate(points):
        column = min(columns - 1, int((across - left) / (right - left) * columns)) if right > left else 0
        per_column.setdefault(column, []).append(place)
    kept: set[int] = set()
    for places in per_column.values():
        kept |= {places[0], places[-1]}
        kept |= {pick(places, key=lambda place: points[place][1]) for pick in (min, max)}
    return [points[place] for place in sorted(kept)]
