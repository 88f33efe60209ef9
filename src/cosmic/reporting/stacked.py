"""Stacked bars, and a line across them that has a scale of its own: where time goes, and what memory it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cosmic.errors import require
from cosmic.reporting.categories import BAR, Group, beside_names, block, blocks, grid, group_name
from cosmic.reporting.scales import Axis, Scale, quantity, scale_of
from cosmic.reporting.svg import EDGE, WIDTH, Entry, abscissa, document, heading, label, outline, plain, rule, width_of

APART = 11
"""Between two bars."""


@dataclass(frozen=True, slots=True)
class Across:
    """A line across bars: a value for each of them, and a *limit* that it is measured against."""

    name: str
    values: Sequence[float]
    axis: Axis
    limit: float | None = None
    limit_name: str = "limit"


def stacked(rows: Sequence[Group], *, x: Axis, title: str, across: Across | None = None) -> str:
    """Return horizontal bars, each the sum of its parts, with its total beside it; *across* has its axis above.

    >>> from cosmic.reporting.categories import Bar
    >>> svg = stacked([Group("a", [Bar("one", 1.0), Bar("two", 2.0)])], x=Axis("time", unit="s"), title="t")
    >>> svg.startswith("<svg"), "a: one 1 s, two 2 s" in svg
    (True, True)
    """
    if across is not None:
        require(len(across.values) == len(rows), "across", len(across.values), f"there are {len(rows)} bars")
    names = list(dict.fromkeys(bar.name for row in rows for bar in row.bars))
    totals = [sum(bar.value or 0.0 for bar in row.bars) for row in rows]
    scale = scale_of(totals, x, wanted=5, zero=True)
    head, top = heading(title, _entries(names, across))
    left = beside_names(rows)
    beside = max((width_of(quantity(total, x.unit)) for total in totals), default=0.0) + 14
    width = WIDTH - left - EDGE - beside
    first = top + (58.0 if across is not None else 10.0)
    bottom = first + len(rows) * (BAR + APART)
    body = grid(scale, (left, width), (first - 6, bottom))
    for place, (row, total) in enumerate(zip(rows, totals, strict=True)):
        body += _row(row, total, names, (left, width, first + place * (BAR + APART)), scale, x)
    body += abscissa(scale, (left, bottom), width)
    body.append(rule((left, first - 6), (left, bottom), "cc-axis"))
    said = "; ".join(
        f"{row.name}: " + ", ".join(f"{bar.name} {quantity(bar.value or 0.0, x.unit)}" for bar in row.bars)
        for row in rows
    )
    if across is not None:
        body += _line(across, (left, width, first), bottom)
        shown = ", ".join(quantity(value, across.axis.unit) for value in across.values)
        said += f". {across.name}: {shown}"
    return document(title, f"Stacked bars of {scale.title}. {said}.", bottom + 54, [*head, *body])


def _entries(names: Sequence[str], across: Across | None) -> list[Entry]:
    entries = blocks(names)
    if across is not None:
        entries.append(Entry(across.name, '<path class="cc-line cc-ink" d="M0 0H22"/>'))
        if across.limit is not None:
            entries.append(
                Entry(across.limit_name, '<path class="cc-line cc-ink" stroke-dasharray="4 3" d="M0 0H22"/>')
            )
    return entries


def _row(
    row: Group, total: float, names: Sequence[str], where: tuple[float, float, float], scale: Scale, x: Axis
) -> list[str]:
    left, width, top = where
    parts = [group_name(row, top + BAR / 2)]
    start = 0.0
    for bar in row.bars:
        value = bar.value or 0.0
        begin, end = (left + scale.share(each) * width for each in (start, start + value))
        hover = f"<title>{plain(f'{bar.name} {quantity(value, x.unit)}')}</title>"
        parts.append(f"<rect {block(names.index(bar.name), begin, end - begin, top)}>{hover}</rect>")
        start += value
    end = left + scale.share(total) * width
    return [*parts, label((end + 7, top + BAR / 2 + 4.5), quantity(total, x.unit), "cc-over")]


def _line(across: Across, where: tuple[float, float, float], bottom: float) -> list[str]:
    """Return the line, its axis above the bars, and its limit."""
    left, width, first = where
    limits = [across.limit] if across.limit is not None else []
    scale = scale_of([*across.values, *limits], across.axis, wanted=5)
    above = first - 10
    parts = [rule((left, above), (left + width, above), "cc-axis")]
    for tick, text in zip(scale.ticks, scale.labels, strict=True):
        at = left + scale.share(tick) * width
        parts += [rule((at, above - 5), (at, above), "cc-axis"), label((at, above - 9), text, "cc-muted", "middle")]
    parts.append(label((left + width / 2, above - 28), scale.title, "cc-muted", "middle"))
    points = [
        (left + scale.share(value) * width, first + place * (BAR + APART) + BAR / 2)
        for place, value in enumerate(across.values)
    ]
    parts.append(f'<path class="cc-halo" d="{outline(points)}"/><path class="cc-line cc-ink" d="{outline(points)}"/>')
    for value in limits:
        at = left + scale.share(value) * width
        dashed = f'd="{outline([(at, above), (at, bottom)])}"'
        parts.append(f'<path class="cc-line cc-ink" stroke-dasharray="4 3" {dashed}/>')
    return parts
