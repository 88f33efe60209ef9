"""What charts are drawn with: axes with ticks, curves thinned to what can be seen, and the elements of a drawing as SVG.

A chart is 720 units wide and as high as it needs. It paints its own background, as a viewer's theme may differ from
that of the page around it. Colours are classes given twice, as few viewers but browsers know CSS variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from numbers import Integral
from sys import float_info
from typing import Literal
from unicodedata import east_asian_width

from cosmic.base.errors import one_line

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


# ---- the elements of a drawing

WIDTH = 720
EDGE = 16
FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"
HUES = ("#0072b2", "#d55e00", "#00805e", "#a8548a", "#9a6700", "#5b6470")
"""Blue, vermilion, green, purple, amber, grey: Okabe and Ito's set, darkened to 3:1 against white or more."""
DARK_HUES = ("#56b4e9", "#f0803c", "#2fc79b", "#dd8fbb", "#e9b23c", "#a3adb8")
DASHES = ("", "8 3", "2 2.5", "9 3 2 3", "5 2.5", "12 3 2 3 2 3")
"""A second cue beside colour."""


def _colour_rules(paper: str, ink: str, muted: str, grid: str, hues: Sequence[str]) -> str:
    """Return the rules that differ between light and dark."""
    rules = [
        f".cc-paper{{fill:{paper}}}.cc text{{fill:{ink}}}.cc .cc-muted{{fill:{muted}}}",
        f".cc-grid{{stroke:{grid}}}.cc-axis{{stroke:{muted}}}.cc-ink{{stroke:{ink};fill:{ink}}}",
        f".cc-dots{{stroke:{muted}}}.cc-ring{{fill:{paper};stroke:{hues[1]}}}.cc-halo{{stroke:{paper}}}",
        f".cc .cc-over{{stroke:{paper}}}",
    ]
    rules += [f".cc-s{index}{{stroke:{hue}}}.cc-f{index}{{fill:{hue}}}" for index, hue in enumerate(hues)]
    return "".join(rules)


LIGHT = _colour_rules("#ffffff", "#1b1f24", "#57606a", "#e4e8ec", HUES)
DARK = _colour_rules("#14161a", "#e6e8eb", "#a3adb8", "#2b3038", DARK_HUES)
STYLE = (
    f".cc text{{font:13px {FONT};font-variant-numeric:tabular-nums}}.cc .cc-title{{font-size:15px;font-weight:600}}"
    ".cc .cc-small{font-size:12px}.cc-grid,.cc-axis{stroke-width:1;fill:none}.cc-line{stroke-width:2;fill:none;"
    "stroke-linejoin:round}.cc-band{opacity:.16}.cc-dots{stroke-width:5;stroke-linecap:round;opacity:.5;fill:none}"
    ".cc .cc-over{stroke-width:4;stroke-linejoin:round;paint-order:stroke}"
    ".cc-ring{stroke-width:2}.cc-halo{stroke-width:5;fill:none}.cc-cells{shape-rendering:crispEdges}"
    f".cc .cc-pale{{fill:#ffffff}}.cc .cc-deep{{fill:#111418}}{LIGHT}"
    f"@media screen and (prefers-color-scheme:dark){{{DARK}}}"
)


def svg_document(title: str, description: str, height: float, body: Iterable[str]) -> str:
    """Return a whole drawing; screen readers read its title and description."""
    size = f'viewBox="0 0 {WIDTH} {coordinate_text(height)}" width="{WIDTH}" height="{coordinate_text(height)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="cc" {size} role="img">'
    texts = f"<title>{escape_line(title)}</title>\n<desc>{escape_line(description)}</desc>\n<style>{STYLE}</style>"
    paper = f'<rect class="cc-paper" width="{WIDTH}" height="{coordinate_text(height)}"/>'
    return "\n".join([head, texts, paper, *body, "</svg>"]) + "\n"


def escape_line(text: str) -> str:
    """Return *text* on one line, printable and escaped, for use in elements and attributes."""
    return escape(one_line(text))


def coordinate_text(value: float) -> str:
    """Return a coordinate to a tenth of a unit: finer cannot be seen."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def width_of(text: str, size: float = 13) -> float:
    """Return an upper estimate of the width of *text*, as fonts differ."""
    return sum(1.0 if east_asian_width(letter) in "WF" else 0.6 for letter in one_line(text)) * size


def shorten_text(text: str, room: float, size: float = 13) -> str:
    """Return *text*, shortened to fit into *room*."""
    text = one_line(text)
    if width_of(text, size) <= room:
        return text
    while text and width_of(text, size) > room - size * 0.6:
        text = text[:-1]
    return text.rstrip() + "…"


def draw_label(position: Point, text: str, classes: str = "", anchor: str = "start", room: float = WIDTH) -> str:
    """Return *text* at a point of its baseline; where it is cut, the full text shows on hovering."""
    short = shorten_text(text, room)
    style = f' class="{classes}"' if classes else ""
    side = f' text-anchor="{anchor}"' if anchor != "start" else ""
    tooltip = f"<title>{escape_line(text)}</title>" if short != one_line(text) else ""
    return f'<text x="{coordinate_text(position[0])}" y="{coordinate_text(position[1])}"{style}{side}>{tooltip}{escape_line(short)}</text>'


def draw_rule(start: Point, end: Point, classes: str) -> str:
    """Return a straight stroke."""
    ends = (
        f"M{coordinate_text(start[0])} {coordinate_text(start[1])}L{coordinate_text(end[0])} {coordinate_text(end[1])}"
    )
    return f'<path class="{classes}" d="{ends}"/>'


def path_through(points: Sequence[Point], *, steps: bool = False, before: bool = False) -> str:
    """Return the path through *points* in pixels; with *steps*, a value stays until the next, or is taken *before*."""
    first, *rest = [(coordinate_text(a), coordinate_text(b)) for a, b in points]
    if not steps:
        return f"M{first[0]} {first[1]}" + "".join(f"L{a} {b}" for a, b in rest)
    return f"M{first[0]} {first[1]}" + "".join(f"V{b}H{a}" if before else f"H{a}V{b}" for a, b in rest)


def stroke_attributes(index: int) -> str:
    """Return the attributes of the line of the series of an *index*: one of six colours, and a dash."""
    hue, turn = index % len(HUES), index // len(HUES)
    dash = DASHES[(hue + turn) % len(DASHES)]
    return f'class="cc-line cc-s{hue}"' + (f' stroke-dasharray="{dash}"' if dash else "")


def fill_class(index: int) -> str:
    """Return the class that fills with the colour of the series of an *index*."""
    return f"cc-f{index % len(HUES)}"


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a legend: a name and a sample drawn around the origin, 22 units wide."""

    name: str
    sample: str


def draw_legend(entries: Sequence[Entry], top: float) -> tuple[list[str], float]:
    """Return a legend in rows from *top* down, and its lower edge: it is above the data and covers none."""
    elements: list[str] = []
    left, row, room = float(EDGE), top, 260.0
    for entry in entries:
        wide = 30 + min(room, width_of(entry.name)) + 18
        if left > EDGE and left + wide > WIDTH - EDGE + 18:
            left, row = float(EDGE), row + 20
        elements.append(
            f'<g transform="translate({coordinate_text(left)} {coordinate_text(row + 9)})">{entry.sample}</g>'
        )
        elements.append(draw_label((left + 30, row + 13.5), entry.name, room=room))
        left += wide
    return elements, row + 20 if entries else top


def draw_heading(title: str, entries: Sequence[Entry]) -> tuple[list[str], float]:
    """Return the title of a chart with its legend below, and their lower edge."""
    elements = [draw_label((EDGE, 26), title, "cc-title", room=(WIDTH - 2 * EDGE) * 13 / 15)]
    below, end = draw_legend(entries, 40)
    return elements + below, end + (6 if entries else 0)


def draw_notes(sentences: Iterable[str], top: float) -> tuple[list[str], float]:
    """Return small print from *top* down, and its lower edge."""
    elements: list[str] = []
    for sentence in filter(None, sentences):
        elements.append(draw_label((EDGE, top + 12), sentence, "cc-muted cc-small", room=WIDTH - 2 * EDGE))
        top += 17
    return elements, top


@dataclass(frozen=True, slots=True)
class Frame:
    """The rectangle of the data."""

    left: float
    top: float
    width: float
    height: float
    x: AxisScale
    y: AxisScale

    def position_of(self, point: Point) -> Point:
        """Return where *point* is drawn."""
        across, up = self.x.share(point[0]), self.y.share(point[1])
        return self.left + across * self.width, self.top + (1 - up) * self.height


def draw_axes(frame: Frame) -> list[str]:
    """Return grid, ticks, labels and titles; that of the ordinate is horizontal, above it."""
    bottom, right = frame.top + frame.height, frame.left + frame.width
    elements = [draw_label((EDGE, frame.top - 12), frame.y.title, "cc-muted", room=WIDTH - 2 * EDGE)]
    for tick, text in zip(frame.y.ticks, frame.y.labels, strict=True):
        height = frame.top + (1 - frame.y.share(tick)) * frame.height
        elements.append(draw_rule((frame.left, height), (right, height), "cc-grid"))
        elements.append(draw_label((frame.left - 8, height + 4.5), text, "cc-muted", "end"))
    return elements + draw_abscissa(frame.x, (frame.left, bottom), frame.width)


def draw_abscissa(scale: AxisScale, start: Point, width: float) -> list[str]:
    """Return a horizontal axis from *start*, with its ticks and title below."""
    left, bottom = start
    elements = [draw_rule(start, (left + width, bottom), "cc-axis")]
    for tick, text in zip(scale.ticks, scale.labels, strict=True):
        across = left + scale.share(tick) * width
        elements.append(draw_rule((across, bottom), (across, bottom + 5), "cc-axis"))
        elements.append(draw_label((across, bottom + 20), text, "cc-muted", "middle"))
    middle = left + width / 2
    room = 2 * min(middle, WIDTH - middle)
    elements.append(draw_label((middle, bottom + 41), scale.title, "cc-muted", "middle", room))
    return elements
