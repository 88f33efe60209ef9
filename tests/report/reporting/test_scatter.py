"""Predicted against measured: what the drawing says and holds."""

from __future__ import annotations

import pytest

from cosmic.base.errors import SpecError
from cosmic.report.charts.drawing import Axis, Series
from cosmic.report.charts.plots import agreement_plot
from cosmic.report.page import Figure

X, Y = Axis("measured", "s"), Axis("predicted", "s")


def test_points_have_the_colour_of_their_series_and_the_band_is_told() -> None:
    svg = agreement_plot([Series("a", [(1, 1.1), (10, 30)]), Series("b", [(2, 2)])], x=X, y=Y, title="t", within=0.2)
    assert svg.count('<circle class="cc-f0"') == 3  # two points, and the legend's
    assert svg.count('<circle class="cc-f1"') == 2
    assert "2 of 3 within 20 %" in svg
    assert Figure(svg, "t").alt == "t"


def test_what_has_no_place_on_a_logarithmic_axis_is_left_out_and_said() -> None:
    svg = agreement_plot([Series("a", [(1, 1), (0, 1), (1, float("nan"))])], x=X, y=Y, title="t")
    assert "2 of 3 values are not shown" in svg


def test_nothing_is_drawn_of_nothing() -> None:
    assert "0 of 0 within" in agreement_plot([], x=X, y=Y, title="t")


def test_more_series_than_colours_are_refused() -> None:
    with pytest.raises(SpecError, match="at most 6"):
        agreement_plot([Series(str(place), []) for place in range(7)], x=X, y=Y, title="t")
