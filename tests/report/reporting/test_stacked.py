"""Stacked bars with a line across them: parts end to end, totals beside them, and an axis for the line."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from cosmic.base.errors import SpecError
from cosmic.report.charts.drawing import Axis
from cosmic.report.charts.plots import Bar, BarGroup, LineAcross, stacked_bars
from cosmic.report.page import Figure

ROWS = [
    BarGroup("MP1", [Bar("compute", 6.0), Bar("exposed MP", 2.0)]),
    BarGroup("MP2", [Bar("compute", 3.0), Bar("exposed MP", 1.0)]),
]
LINE = LineAcross("states", [100e9, 50e9], Axis("states", unit="B", log=True), 80e9, "80 GB")


def boxes(svg: str) -> list[tuple[float, float]]:
    """Return the start and the width of every part."""
    found = re.findall(r'<rect class="cc-f\d" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg)
    return [(float(start), float(width)) for start, width in found]


def test_parts_lie_end_to_end_and_in_proportion() -> None:
    first, second, third, fourth = boxes(stacked_bars(ROWS, x=Axis("step", unit="s"), title="t"))
    assert second[0] == pytest.approx(first[0] + first[1], abs=0.2)
    assert first[1] == pytest.approx(3 * second[1], rel=0.02)
    assert third[1] == pytest.approx(first[1] / 2, rel=0.02)
    assert fourth[0] == pytest.approx(third[0] + third[1], abs=0.2)


def test_totals_stand_beside_bars_and_the_line_has_its_own_axis_and_limit() -> None:
    svg = stacked_bars(ROWS, x=Axis("step", unit="s"), title="t", across=LINE)
    texts = [text.text for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert {"8 s", "4 s", "states", "80 GB", "compute", "exposed MP"} <= set(texts)
    assert "stroke-dasharray" in svg
    assert "states: 100 GB, 50 GB" in svg
    assert Figure(svg, "a-name").alt == "t"


def test_a_line_has_a_value_for_every_bar() -> None:
    with pytest.raises(SpecError, match="there are 1 bars"):
        stacked_bars(ROWS[:1], x=Axis("step"), title="t", across=LINE)
