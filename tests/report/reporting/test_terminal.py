"""Plots in a terminal: within their size, with their ends where the numbers are."""

from __future__ import annotations

import math

import pytest

from cosmic.report.charts.drawing import Axis, Point, Series
from cosmic.report.search_charts import Cloud, plot_curves, plot_scatter

X, Y = Axis("trials"), Axis("step time", "s")
FALL = [(float(place), 1.0 / (place + 1)) for place in range(200)]


@pytest.mark.parametrize("braille", [False, True])
@pytest.mark.parametrize(("width", "height"), [(32, 7), (60, 12), (120, 30)])
def test_a_plot_stays_within_its_size(width: int, height: int, braille: bool) -> None:
    series = [Series("random", FALL, steps=True), Series("a name longer than there is room for", [(1, 2)])]
    drawn = plot_curves(series, width, height, x=X, y=Y, braille=braille)
    assert len(drawn) == height
    assert max(map(len, drawn)) <= width
    assert drawn[0].startswith("step time")


def test_a_size_that_nobody_could_read_is_raised() -> None:
    assert plot_curves([Series("a", FALL)], 1, 1, x=X, y=Y) == plot_curves([Series("a", FALL)], 32, 7, x=X, y=Y)


def test_without_braille_everything_is_ascii_and_curves_have_letters() -> None:
    series = [Series("µ–é", FALL), Series("b", [(0, 1e-6), (199, 1e-6)])]
    drawn = plot_curves(series, x=X, y=Axis("t", "s", log=True), braille=False)
    assert "\n".join(drawn).isascii()
    assert "us" in "\n".join(drawn)
    assert any(line.endswith("* u-?") for line in drawn)
    assert any(line.endswith("o b") for line in drawn)


def test_a_curve_that_falls_starts_at_the_top_left_and_ends_at_the_bottom_right() -> None:
    drawn = plot_curves([Series("", [(0, 4), (10, 0)])], 40, 11, x=X, y=Axis("cost"), braille=False)
    rows = [line.partition("|")[2] for line in drawn[1:-2]]
    assert rows[0].startswith("*")
    assert rows[-1].endswith("*")
    assert [line.index("*") for line in rows] == sorted(line.index("*") for line in rows)


def test_a_step_holds_until_the_next_point() -> None:
    points = [(0, 1), (10, 0)]
    held = plot_curves([Series("", points, steps=True)], 40, 9, x=X, y=Axis("c"), braille=False)
    assert held[1].count("*") > 30
    assert plot_curves([Series("", points)], 40, 9, x=X, y=Axis("c"), braille=False)[1].count("*") < 8


def test_braille_shows_eight_dots_a_character() -> None:
    drawn = "".join(plot_curves([Series("", FALL)], x=X, y=Y))
    used = {letter for letter in drawn if "⠀" < letter <= "⣿"}
    assert len(used) > 4


@pytest.mark.parametrize("points", [[], [(math.nan, 1)], [(1, -1)]])
def test_a_plot_without_data_says_so(points: list[Point]) -> None:
    drawn = plot_curves([Series("a", points)], x=X, y=Axis("cost", log=True))
    assert drawn == ["cost over trials", "Nothing to show: no values."]


@pytest.mark.parametrize("braille", [False, True])
def test_long_labels_leave_room_for_the_curve(braille: bool) -> None:
    points = [(0, -1.000001e-99), (1, -1e-99)]
    drawn = plot_curves([Series("a long name for it", points)], 32, 7, x=X, y=Axis("cost"), braille=braille)
    assert max(map(len, drawn)) <= 32
    assert len(drawn[-2].strip()) >= 9


@pytest.mark.parametrize("points", [[(1, 2)], [(1, 2), (2, 2)], [(1, 2), (1, 5)]])
def test_one_point_and_equal_ones_are_drawn(points: list[Point]) -> None:
    assert "*" in "".join(plot_curves([Series("", points, steps=True)], x=X, y=Y, braille=False))


def test_names_that_end_at_one_place_stand_on_rows_of_their_own() -> None:
    drawn = plot_curves([Series(name, [(0, 1), (1, 0)]) for name in ("ant", "bee", "cat")], x=X, y=Y)
    assert all(sum(name in line for line in drawn) == 1 for name in ("ant", "bee", "cat"))


def test_names_cannot_send_orders_to_the_terminal() -> None:
    drawn = plot_curves([Series("\x1b[2J", FALL)], x=Axis("\x1b]0;a\x07"), y=Y)
    assert all(line.isprintable() for line in drawn)


def test_many_points_are_drawn_quickly_and_the_same_each_time() -> None:
    series = [Series("a", [(place, 1 / (place + 1)) for place in range(50_000)], steps=True)]
    assert plot_curves(series, x=X, y=Y) == plot_curves(series, x=X, y=Y)


# ---- clouds of points

MANY = [(float(place % 17), float(place % 23)) for place in range(400)]


@pytest.mark.parametrize("braille", [False, True])
@pytest.mark.parametrize(("width", "height"), [(32, 8), (60, 12), (120, 30)])
def test_a_scatter_stays_within_its_size_and_names_its_clouds(width: int, height: int, braille: bool) -> None:
    drawn = plot_scatter(
        [Cloud("trials", MANY), Cloud("best", [(3, 4)], "★")], width, height, x=X, y=Y, braille=braille
    )
    assert len(drawn) == height
    assert max(map(len, drawn)) <= width
    assert drawn[1] == ("· trials   ★ best" if braille else ". trials   * best")
    assert "".join(drawn).isascii() is not braille


def test_a_mark_covers_the_dots_below_it_and_stands_at_its_value() -> None:
    drawn = plot_scatter([Cloud("all", [(0, 0), (10, 10)]), Cloud("front", [(10, 10)], "●")], 40, 12, x=X, y=Axis("c"))
    rows = [line.partition("│")[2] or line.partition("┤")[2] for line in drawn[2:-2]]
    assert rows[0].endswith("●")
    assert [row.count("●") for row in rows] == [1] + [0] * (len(rows) - 1)
    assert rows[-1][0] == "⡀"  # the lowest dot on the left


def test_values_that_have_no_place_are_left_out() -> None:
    points = [(1.0, math.inf), (math.nan, 2.0)]
    assert plot_scatter([Cloud("a", points)], x=X, y=Y)[-1] == "Nothing to show: no values."
    assert len(plot_scatter([Cloud("a", [*points, (1.0, 1.0)])], x=X, y=Y)) == 18
