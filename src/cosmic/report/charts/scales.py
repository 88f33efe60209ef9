"""Axes and their scales (ranges, ticks, numbers as text), and the curves drawn on them, long ones thinned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from numbers import Integral
from sys import float_info
from typing import Literal

PREFIXES = {-4: "p", -3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P", 6: "E"}
PREFIXED_UNITS = frozenset({"s", "B", "B/s", "FLOP", "FLOP/s", "J", "W", "Hz"})
"""Units that take a prefix: 'GB/s'. Others follow it: '1.5 M USD'. Seconds take no prefix above one."""
FLATTEST = 1e-6
"""Relative spread below which values are drawn as equal: their labels would be the same."""
NEAREST = ((1, 2**0.5), (2, 10**0.5), (5, 50**0.5))
"""Round digits, and the bound up to which each is the nearest on a logarithmic scale."""
LARGEST, SMALLEST = 1e150, 1e-150
"""Bounds of what is drawn: beyond them, differences and ratios overflow a float."""


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis measures: its label, the unit of its numbers, and whether it is logarithmic."""

    label: str
    unit: str = ""
    log: bool = False
    better: Literal["", "lower", "higher"] = ""

    def shows(self, value: float) -> bool:
        """Return whether *value* has a place on this axis."""
        return abs(value) < LARGEST and (value > SMALLEST or not self.log)  # false for NaN


@dataclass(frozen=True, slots=True)
class AxisScale:
    """The range of an axis, its marked values, and their labels."""

    low: float
    high: float
    log: bool
    ticks: tuple[float, ...]
    labels: tuple[str, ...]
    title: str

    def share(self, value: float) -> float:
        """Return the position of *value*: 0 at the low end, 1 at the high end."""
        if self.log:
            position = log10(value / self.low) / log10(self.high / self.low)
        else:
            position = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, position))


def scale_of(values: Iterable[float], axis: Axis, *, wanted: int = 6, zero: bool = False) -> AxisScale:
    """Return a scale with round ends around the *values* that *axis* can show, and about *wanted* ticks.

    With *zero*, a linear scale begins at zero, as bars need.

    >>> scale_of([3, 17], Axis("trials")).ticks
    (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0)
    >>> scale_of([3e-6, 0.02], Axis("step time", "s", log=True)).labels
    ('10 µs', '100 µs', '1 ms', '10 ms')
    """
    shown = [value for value in values if axis.shows(value)]
    if zero and not axis.log:
        shown.append(0)
    if not shown:
        return AxisScale(*((1.0, 10.0) if axis.log else (0.0, 1.0)), axis.log, (), (), _title(axis, axis.unit))
    low, high = _widen_range(shown, log=axis.log)
    integral = all(isinstance(value, Integral) for value in shown)  # no tick at half a trial
    if axis.log:
        low, high, ticks = _log_ticks(low, high, wanted)
    else:
        ticks = _linear_ticks(low, high, wanted, integral=integral)
        low, high = ticks[0], ticks[-1]
    labels, title = _labels(ticks, axis)
    return AxisScale(low, high, axis.log, ticks, labels, title)


def fit_scale(values: Sequence[float], axis: Axis, room: float, width_of: Callable[[str], float]) -> AxisScale:
    """Return the scale with the most ticks whose labels fit side by side into *room*."""
    for wanted in (7, 5, 3):
        scale = scale_of(values, axis, wanted=wanted)
        gaps = [scale.share(b) - scale.share(a) for a, b in zip(scale.ticks, scale.ticks[1:], strict=False)]
        if min(gaps, default=1.0) * room > max(map(width_of, scale.labels), default=0.0):
            break
    return scale


def _widen_range(shown: Sequence[float], *, log: bool) -> tuple[float, float]:
    """Return the least and the largest value, moved apart where they are equal."""
    low, high = min(shown), max(shown)
    size = max(abs(low), abs(high))
    if high - low > max(FLATTEST * size, SMALLEST):
        return low, high
    if log:
        return low / 2, high * 2
    return (low - size / 10, high + size / 10) if size > SMALLEST else (0.0, 1.0)


def _linear_ticks(low: float, high: float, wanted: int, *, integral: bool = False) -> tuple[float, ...]:
    """Return multiples of 1, 2 or 5 times a power of ten; the first and the last enclose the range."""
    raw = (high - low) / wanted
    exponent = floor(log10(raw))
    digit = next((each for each, bound in NEAREST if raw < bound * 10.0**exponent), 10)
    if integral and exponent < 0:
        digit, exponent = 1, 0
    step = float(f"{digit}e{exponent}")
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return tuple(float(f"{count * digit}e{exponent}") for count in range(first, max(last, first + 1) + 1))


def _log_ticks(low: float, high: float, wanted: int) -> tuple[float, float, tuple[float, ...]]:
    """Return round ends and the ticks between them: decades, or 1-2-5 or equal steps where decades are too few."""
    decades = log10(high / low)
    if decades < 0.5:
        ticks = _linear_ticks(low, high, max(wanted, 4))  # steps are shorter than the low end: no tick is at zero
        return ticks[0], ticks[-1], ticks
    first, last = floor(log10(low)), ceil(log10(high)) + 1
    rounds = [float(f"{digit}e{exponent}") for exponent in range(first, last) for digit in (1, 2, 5)]
    start = max((each for each in rounds if each <= low * (1 + 1e-9)), default=low)
    end = min((each for each in rounds if each >= high * (1 - 1e-9)), default=high)
    if decades <= 2 and wanted >= 5:
        return start, end, tuple(each for each in rounds if start <= each <= end)
    stride = max(1, ceil(decades / (wanted + 1)))
    tens = tuple(float(f"1e{exponent}") for exponent in range(first, last) if exponent % stride == 0)
    return start, end, tuple(ten for ten in tens if start <= ten <= end)


def _labels(ticks: Sequence[float], axis: Axis) -> tuple[tuple[str, ...], str]:
    """Return the labels of the ticks, and the axis's title, which holds the unit of a linear axis."""
    prefixed = axis.unit in PREFIXED_UNITS
    if axis.log:
        own = axis.unit if prefixed else ""
        return tuple(quantity(tick, own) for tick in ticks), _title(axis, "" if prefixed else axis.unit)
    largest = max(map(abs, ticks))
    thousands = _common_prefix(largest, axis.unit)
    if thousands not in PREFIXES or (largest < 1e-4 and not prefixed):
        return tuple(map(quantity, ticks)), _title(axis, axis.unit)
    worth, prefix = 1000.0**thousands, PREFIXES[thousands]
    places = max(0, -floor(log10((ticks[1] - ticks[0]) / worth) + 1e-9))
    texts = [_use_minus_sign(f"{tick / worth:.{places}f}") if tick else "0" for tick in ticks]
    if prefixed:
        return tuple(texts), _title(axis, prefix + axis.unit)
    beside = [f"{text} {prefix}".strip() if text != "0" else text for text in texts]
    return tuple(beside), _title(axis, axis.unit)


def _common_prefix(largest: float, unit: str) -> int:
    """Return the power of 1000 for an axis up to *largest*; 0 for up to four digits."""
    thousands = floor(log10(largest) / 3 + 1e-9)
    if unit == "s":
        return min(thousands, 0)
    return 0 if unit not in PREFIXED_UNITS and largest < 10_000 else thousands


def _title(axis: Axis, unit: str) -> str:
    beside = ", ".join(filter(None, (unit, f"{axis.better} is better" if axis.better else "")))
    return f"{axis.label} ({beside})" if axis.label and beside else axis.label or beside


def quantity(value: float, unit: str = "", digits: int = 3) -> str:
    """Return *value* as text: significant *digits*, a prefix, the unit.

    >>> quantity(0.01234, "s"), quantity(1.5e6), quantity(999.96), quantity(2e6, "USD"), quantity(3e-7)
    ('12.3 ms', '1.5 M', '1 k', '2 M USD', '3×10⁻⁷')
    """
    if not abs(value) <= float_info.max:
        return "–"
    if value == 0:
        return f"0 {unit}".strip()
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    exponent = int(power)
    thousands = exponent // 3
    prefixed = unit in PREFIXED_UNITS
    if unit == "s" and 3 <= exponent < 6:
        return f"{_use_minus_sign(f'{value:,.0f}')} s"
    if not prefixed and -4 <= exponent < 0:
        thousands = 0
    elif thousands not in PREFIXES or (not prefixed and exponent < 0) or (unit == "s" and exponent >= 6):
        power = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"{_use_minus_sign(_trim_zeros(mantissa))}×10{power} {unit}".strip()
    scaled = f"{float(f'{mantissa}e{exponent - 3 * thousands}'):.{max(0, digits - 1 - exponent + 3 * thousands)}f}"
    number, prefix = _use_minus_sign(_trim_zeros(scaled)), PREFIXES[thousands]
    return f"{number} {prefix}{unit}".strip() if prefixed else " ".join(filter(None, (number, prefix, unit)))


def _trim_zeros(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def _use_minus_sign(number: str) -> str:
    """Return *number* with a minus sign that is as wide as a digit."""
    return number.replace("-", "−")


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


def shown_points(points: Sequence[Point], x: Axis, y: Axis) -> list[Point]:
    """Return the points that have a place on both axes, from left to right."""
    return sorted(((a, b) for a, b in points if x.shows(a) and y.shows(b)), key=lambda point: point[0])


def omission_note(total: int, drawn: int, *axes: Axis) -> str:
    """Return a sentence with how many of *total* points are left out, and why; an empty text if none is."""
    if total == drawn:
        return ""
    why = "it is not finite, or not positive on a logarithmic axis" if any(axis.log for axis in axes) else "not finite"
    count = total - drawn
    if count == 1:
        return f"1 of {total:,} values is not shown: {why}."
    return f"{count:,} of {total:,} values are not shown: {why.replace('it is ', '')}."


def thin_points(points: Sequence[Point], *, steps: bool, most: int = MOST_POINTS) -> list[Point]:
    """Return at most *most* of the *points*, given in pixels from left to right, that draw the same curve.

    The first, the last and the extreme points stay, and none is moved. A step curve drops repeated values, then steps
    of less than a pixel. A curve that is still too long keeps the first, lowest, highest and last point of each column.

    >>> thin_points([(0, 5), (1, 5), (2, 3), (3, 3), (4, 3)], steps=True)
    [(0, 5), (2, 3), (4, 3)]
    """
    thinned = list(points)
    if steps:
        thinned = _drop_small_steps(thinned, 0.0)
        for tolerance in TOLERANCES_PX:
            if len(thinned) <= most:
                return thinned
            held = _drop_small_steps(thinned, tolerance)
            thinned = held if len(held) <= most else thinned
    return thinned if len(thinned) <= most else _keep_column_extremes(thinned, most // 4)


def _drop_small_steps(points: list[Point], tolerance: float) -> list[Point]:
    """Return the points that differ by more than *tolerance* from the last kept one, and the ends and extremes."""
    if len(points) < 3:
        return points
    order = range(len(points))
    always = {0, len(points) - 1} | {pick(order, key=lambda place: points[place][1]) for pick in (min, max)}
    thinned: list[Point] = []
    for index, point in enumerate(points):
        if index in always or abs(point[1] - thinned[-1][1]) > tolerance:
            thinned.append(point)
    return thinned


def _keep_column_extremes(points: list[Point], columns: int) -> list[Point]:
    """Return the first, lowest, highest and last point of each of *columns* columns of equal width."""
    left, right = points[0][0], points[-1][0]
    per_column: dict[int, list[int]] = {}
    for index, (across, _) in enumerate(points):
        column = min(columns - 1, int((across - left) / (right - left) * columns)) if right > left else 0
        per_column.setdefault(column, []).append(index)
    extremes: set[int] = set()
    for places in per_column.values():
        extremes |= {places[0], places[-1]}
        extremes |= {pick(places, key=lambda row: points[row][1]) for pick in (min, max)}
    return [points[row] for row in sorted(extremes)]
