"""Charts: numbers at round places, the same curve with fewer points, text that stays text."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from itertools import pairwise
from xml.etree import ElementTree as Tree

import pytest

from cosmic.base.errors import SpecError
from cosmic.report.charts.drawing import (
    DARK_HUES,
    DASHES,
    HUES,
    WIDTH,
    Axis,
    Point,
    Series,
    quantity,
    scale_of,
    stroke_attributes,
    thin_points,
)
from cosmic.report.charts.plots import Bar, BarGroup, Mark, bars, heat_map, lines, scatter
from tests.batches import check_all

HOSTILE = '<img src=x onerror="alert(1)">&\x1b[31m\ud800'
X, Y = Axis("trials"), Axis("step time", "s")
SVG = "{http://www.w3.org/2000/svg}"


def charts(name: str) -> dict[str, str]:
    """Return one chart of each kind, with *name* wherever a text can stand."""
    axis = Axis(name, name)
    return {
        "lines": lines([Series(name, [(1, 2), (2, 1)]), Series("b", [(1, 1)])], x=axis, y=axis, title=name),
        "scatter": scatter([(1, 2), (3, 4)], x=axis, y=axis, title=name, front=[(1, 2)], marks=[Mark(name, 2, 3)]),
        "bars": bars([BarGroup(name, [Bar(name, 1, 2), Bar("b", None)])], x=axis, title=name, reference=name),
        "heat_map": heat_map([name], [name, "b"], [[1, None]], value=axis, title=name, names=(name, name)),
    }


def texts(svg: str) -> list[str]:
    return ["".join(element.itertext()) for element in Tree.fromstring(svg).iter(f"{SVG}text")]


def path_of(svg: str) -> str:
    """Return the path of the one curve in a chart."""
    return next(
        each.attrib["d"] for each in Tree.fromstring(svg).iter(f"{SVG}path") if "cc-line" in each.attrib["class"]
    )


@pytest.mark.parametrize("kind", charts("a"))
def test_hostile_text_stays_text(kind: str) -> None:
    svg = charts(HOSTILE)[kind]
    root = Tree.fromstring(svg.encode())
    assert not [element for element in root.iter() if element.tag.endswith("img")]
    assert not [key for element in root.iter() for key in element.attrib if key.startswith("on")]
    assert any("<img" in text for text in texts(svg))
    assert "\x1b" not in svg


@pytest.mark.parametrize("kind", charts("a"))
def test_the_same_numbers_give_the_same_bytes(kind: str) -> None:
    assert charts("a")[kind] == charts("a")[kind]


@pytest.mark.parametrize("kind", charts("a"))
def test_a_chart_says_what_it_is_and_reads_in_light_and_dark(kind: str) -> None:
    root = Tree.fromstring(charts("agents")[kind])
    assert root.findtext(f"{SVG}title") == "agents"
    assert "agents" in (root.findtext(f"{SVG}desc") or "")
    style = root.findtext(f"{SVG}style") or ""
    light, dark = style.split("prefers-color-scheme:dark")
    assert all(hue in light for hue in HUES)
    assert all(hue in dark for hue in DARK_HUES)


RANGES = [(0, 1), (3, 17), (0.98, 1.02), (-8, 105), (1e-9, 3e-9), (1, 50_000), (-1e12, 1e12), (999, 1001), (0.3, 0.9)]


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_linear_ticks_are_round_and_cover_the_data(low: float, high: float) -> None:
    ticks = scale_of([float(low), float(high)], X).ticks
    assert ticks[0] <= low < high <= ticks[-1]
    assert 3 <= len(ticks) <= 13
    step = f"{ticks[1] - ticks[0]:.6e}"
    assert step[0] in "125"
    assert set(step[1:8]) == {".", "0"}
    assert all(abs(tick / float(step) - round(tick / float(step))) < 1e-6 for tick in ticks)


def test_whole_numbers_have_whole_ticks() -> None:
    assert scale_of([1, 3], X).ticks == (1, 2, 3)
    assert len(scale_of([1.0, 3.0], X).ticks) > 3


@pytest.mark.parametrize(("low", "high"), [(1, 10), (3e-6, 0.02), (1.1, 2.9), (7, 7e9), (0.5, 1e20), (9, 11)])
def test_logarithmic_ticks_are_round_and_their_axis_covers_the_data(low: float, high: float) -> None:
    scale = scale_of([low, high], Axis("cost", log=True))
    assert scale.low <= low < high <= scale.high
    assert 2 <= len(scale.ticks) <= 12
    digits = [f"{tick:.6e}".rstrip("0").partition("e")[0].rstrip("0.") for tick in scale.ticks]
    assert all(digit in ("1", "2", "5") for digit in digits) or high / low < 10**0.5
    if high / low > 1000:
        assert set(digits) == {"1"}
        assert len({round(math.log10(b / a)) for a, b in pairwise(scale.ticks)}) == 1


@pytest.mark.parametrize("values", [[3.5], [0.0], [7, 7, 7], [-2], [1e15, 1e15 + 1], [1e149], [1e-149], [5e-324]])
@pytest.mark.parametrize("log", [False, True])
def test_equal_values_get_an_axis_around_them(values: list[float], log: bool) -> None:
    axis = Axis("cost", log=log)
    scale = scale_of(values, axis)
    assert len(set(scale.labels)) == len(scale.labels)
    for value in values:
        assert not axis.shows(value) or 0 < scale.share(value) < 1 or abs(value) < 1e-150


@check_all("wanted", range(1, 9))
@check_all("ratio", [1.1, 1.9, 2.7, 3.15, 3.2, 12.0, 400.0])
def test_a_logarithmic_axis_never_reaches_zero(ratio: float, wanted: int) -> None:
    for low in (0.11, 0.19, 0.31, 0.49, 0.97):
        scale = scale_of([low, low * ratio], Axis("cost", log=True), wanted=wanted)
        assert 0 < scale.low <= low < low * ratio <= scale.high * (1 + 1e-9)


def test_labels_of_an_axis_have_one_unit_or_their_own() -> None:
    linear = scale_of([0.001, 0.004], Axis("step time", "s", better="lower"))
    assert (linear.title, linear.labels[0], linear.labels[-1]) == ("step time (ms, lower is better)", "1.0", "4.0")
    assert scale_of([0.002, 3], Axis("t", "s", log=True)).labels == ("10 ms", "100 ms", "1 s")
    assert scale_of([0, 1.5e6], Axis("price", "USD")).labels[1] == "0.2 M"
    assert scale_of([0, 50_000], Axis("trials")).labels[-1] == "50 k"
    assert scale_of([-1, 1], X).labels[0].startswith("−1")


def test_quantities_are_short_and_carry_when_rounded() -> None:
    assert [quantity(value) for value in (0, 9.999, 1e4, 1.5e6, -0.25)] == ["0", "10", "10 k", "1.5 M", "−0.25"]
    assert [quantity(value, "s") for value in (1e-7, 0.5, 12, 3600, 1e9)] == [
        "100 ns", "500 ms", "12 s", "3,600 s", "1×10⁹ s",
    ]  # fmt: skip
    assert [quantity(value, "B/s") for value in (4e11, 1e30)] == ["400 GB/s", "1×10³⁰ B/s"]
    assert quantity(math.nan) == "–"


def height_at(points: list[Point], across: float) -> float:
    """Return the value that a step curve holds at *across*."""
    return next(value for place, value in reversed(points) if place <= across)


def descent(count: int, seed: int) -> list[Point]:
    """Return a best-so-far curve with a step at every point, within 640 by 300 pixels."""
    rng = random.Random(seed)
    heights = sorted(rng.uniform(0, 300) for _ in range(count))
    return [(640 * place / count, height) for place, height in enumerate(heights)]


@pytest.mark.parametrize("seed", range(3))
def test_a_long_step_curve_is_drawn_with_few_points_and_looks_the_same(seed: int) -> None:
    given = descent(50_000, seed)
    kept = thin_points(given, steps=True)
    assert len(kept) <= 400
    assert set(kept) <= set(given)  # no step is moved
    assert (kept[0], kept[-1]) == (given[0], given[-1])
    assert all(abs(height_at(kept, across) - height) <= 1 for across, height in given[::97])


def test_a_curve_that_holds_keeps_every_step_exactly() -> None:
    given = [(place / 80, 300 - place // 500) for place in range(50_000)]
    kept = thin_points(given, steps=True)
    assert len(kept) == 101
    assert [height_at(kept, across) for across, _ in given[::7]] == [height for _, height in given[::7]]


@pytest.mark.parametrize("steps", [False, True])
def test_a_long_noisy_curve_keeps_its_ends_and_extremes(steps: bool) -> None:
    rng = random.Random(5)
    given = [(place / 32, rng.gauss(150, 40)) for place in range(20_000)]
    kept = thin_points(given, steps=steps)
    assert len(kept) <= 400
    assert set(kept) <= set(given)
    assert kept == sorted(kept)
    pick: Callable[..., Point]
    for pick in (min, max):
        assert pick(given, key=lambda point: point[1]) in kept
    assert {given[0], given[-1]} <= set(kept)


def test_a_short_curve_is_not_thinned() -> None:
    given = [(float(place), float(place % 7)) for place in range(400)]
    assert thin_points(given, steps=False) == given


def test_points_at_one_place_are_thinned_too() -> None:
    assert len(thin_points([(1.0, float(place)) for place in range(5000)], steps=False)) <= 4


def test_a_step_curve_goes_level_then_upright_and_sorts_its_points() -> None:
    svg = lines([Series("a", [(2, 1), (0, 3), (1, 2)], steps=True)], x=X, y=Y, title="t")
    assert re.fullmatch(r"M[\d.]+ [\d.]+(H[\d.]+V[\d.]+){2}", path_of(svg))
    stops = [float(stop) for stop in re.findall(r"H([\d.]+)", path_of(svg))]
    assert stops == sorted(stops)


def test_a_chart_of_many_points_stays_small() -> None:
    rng = random.Random(1)
    cloud = [(rng.random(), rng.random()) for _ in range(20_000)]
    curve = [(place, 1 / (place + 1)) for place in range(20_000)]
    assert len(scatter(cloud, x=X, y=Y, title="t")) < 60_000
    assert (
        len(lines([Series("a", curve, steps=True, band=[(a, b, 2 * b) for a, b in curve])], x=X, y=Y, title="t"))
        < 30_000
    )


@pytest.mark.parametrize("points", [[], [(math.nan, 1)], [(1, math.inf)]])
def test_a_chart_without_data_says_so(points: list[Point]) -> None:
    for svg in (lines([Series("a", points)], x=X, y=Y, title="t"), scatter(points, x=X, y=Y, title="t")):
        assert any(text.startswith("Nothing to show") for text in texts(svg))
    for svg in (bars([], x=X, title="t"), heat_map([], [], [], value=X, title="t")):
        assert any(text.startswith("Nothing to show") for text in texts(svg))


def test_what_is_not_finite_is_left_out_and_counted() -> None:
    svg = lines([Series("a", [(1, 2), (2, math.nan), (3, math.inf), (4, 1)])], x=X, y=Y, title="t")
    assert "2 of 4 values are not shown: not finite." in texts(svg)
    assert "nan" not in svg
    assert path_of(svg).count("L") == 1
    assert not any("not shown" in text for text in texts(lines([Series("a", [(1, 2)])], x=X, y=Y, title="t")))


def test_a_logarithmic_axis_leaves_out_what_is_not_positive_and_says_so() -> None:
    axis = Axis("cost", log=True)
    sentence = "1 of 3 values is not shown: it is not finite, or not positive on a logarithmic axis."
    assert sentence in texts(lines([Series("a", [(1, 0), (2, 1), (3, 5)])], x=X, y=axis, title="t"))
    assert sentence in texts(bars([BarGroup("g", [Bar("a", 0), Bar("b", 1), Bar("c", 9)])], x=axis, title="t"))
    assert sentence in texts(heat_map(["r"], ["a", "b", "c"], [[-1, 1, 9]], value=axis, title="t"))


def test_six_curves_differ_in_colour_and_in_dash_and_thirty_in_either() -> None:
    assert len({stroke_attributes(place) for place in range(30)}) == 30
    first = [stroke_attributes(place) for place in range(6)]
    assert len({each.split("cc-s")[1][0] for each in first}) == len(HUES)
    assert [dash for dash in DASHES if dash and not any(f'"{dash}"' in each for each in first)] == []


def test_text_stays_within_the_drawing() -> None:
    name = "a name that goes on and on " * 8
    for svg in charts(name).values():
        for element in Tree.fromstring(svg).iter(f"{SVG}text"):
            visible = element.text or element[0].tail or ""
            whole = "".join(element.itertext())
            size = 6.5 * len(visible)
            anchor = element.get("text-anchor", "start")
            left = float(element.attrib["x"]) - {"start": 0, "middle": size / 2, "end": size}[anchor]
            assert left >= -1, whole
            assert left + size <= WIDTH + 8, whole


def boxes(svg: str) -> list[float]:
    """Return the widths of the bars of a chart, in order."""
    found = Tree.fromstring(svg).iter(f"{SVG}rect")
    return [float(each.attrib["width"]) for each in found if each.get("height") == "17"]


def test_bars_are_as_long_as_their_values_and_carry_them() -> None:
    svg = bars([BarGroup("a", [Bar("v", 10)]), BarGroup("b", [Bar("v", 40)])], x=Axis("time", "s"), title="t")
    assert boxes(svg)[1] == pytest.approx(4 * boxes(svg)[0], rel=0.01)
    assert {"10 s", "40 s", "a", "b"} <= set(texts(svg))


def test_a_bar_below_zero_reaches_to_the_left_and_a_missing_one_is_a_dash() -> None:
    svg = bars([BarGroup("a", [Bar("up", 4), Bar("down", -2), Bar("none", None)])], x=Axis("change", "%"), title="t")
    up, down = [each for each in Tree.fromstring(svg).iter(f"{SVG}rect") if each.get("height") == "17"]
    assert float(down.attrib["x"]) + float(down.attrib["width"]) == pytest.approx(float(up.attrib["x"]), abs=0.2)
    assert {"4 %", "−2 %", "–"} <= set(texts(svg))


def test_a_reference_is_marked_where_it_is_and_named_in_the_legend() -> None:
    svg = bars([BarGroup("a", [Bar("v", 20, 40)])], x=Axis("time", "s"), title="t", reference="published")
    root = Tree.fromstring(svg)
    bar = next(each for each in root.iter(f"{SVG}rect") if each.get("height") == "17")
    marks = [each.attrib["d"] for each in root.iter(f"{SVG}path") if each.get("class") == "cc-line cc-ink"]
    across = float(re.findall(r"M([\d.]+)", marks[-1])[0])
    assert across - float(bar.attrib["x"]) == pytest.approx(2 * float(bar.attrib["width"]), rel=0.01)
    assert "published" in texts(svg)
    assert "published" not in texts(bars([BarGroup("a", [Bar("v", 20)])], x=X, title="t", reference="published"))


def test_the_staircase_of_a_front_bounds_what_is_dominated() -> None:
    front = [(1.0, 3.0), (2.0, 2.0)]
    fewer = scatter([], x=Axis("cost", better="lower"), y=Y, title="t", front=front)
    more = scatter([], x=Axis("speed", better="higher"), y=Y, title="t", front=front)
    assert [re.sub(r"[\d. ]", "", re.findall(r'cc-s1" d="(M[^"]+)"', svg)[-1]) for svg in (fewer, more)] == [
        "MHV",
        "MVH",
    ]


def test_a_heat_map_shows_numbers_where_they_fit_and_refuses_ragged_rows() -> None:
    assert {"1", "9", "–"} <= set(texts(heat_map(["r"], ["a", "b", "c"], [[1, 9, None]], value=X, title="t")))
    wide = heat_map(
        ["r"], [str(place) for place in range(60)], [[1000.0 + place for place in range(60)]], value=X, title="t"
    )
    assert "1.06 k" not in texts(wide)
    with pytest.raises(SpecError, match=r"values\.1 = 1: there are 2 columns"):
        heat_map(["r", "s"], ["a", "b"], [[1, 2], [3]], value=X, title="t")


def test_a_large_heat_map_stays_small() -> None:
    values = [[math.sin(row * column) for column in range(100)] for row in range(60)]
    svg = heat_map([str(row) for row in range(60)], [str(column) for column in range(100)], values, value=X, title="t")
    assert len(svg) < 250_000
    Tree.fromstring(svg)
