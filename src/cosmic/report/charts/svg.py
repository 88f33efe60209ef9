"""The elements of a chart: escaped text, colours for light and dark, legends, axes.

A chart is 720 units wide and as high as it needs. It paints its own background, as a viewer's theme may differ from
that of the page around it. Colours are classes given twice, as few viewers but browsers know CSS variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from unicodedata import east_asian_width

from cosmic.base.errors import one_line
from cosmic.report.charts.scales import AxisScale, Point

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
