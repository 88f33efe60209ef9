"""The design in a real browser: the cluster, the timeline and all that moves it, the roofline, the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import ARTIFACTS, Open, settle

PICTURE = "canvas => canvas.toDataURL()"


@pytest.fixture
def design_page(report_page: Open) -> Any:
    """Return what opens the report and goes to the design: the page."""

    def open_design(fragment: str = "", **options: Any) -> Any:
        page = report_page(fragment, **options).page
        page.locator("#timeline").scroll_into_view_if_needed()
        return page

    return open_design


@pytest.fixture(scope="module")
def best(study: dict[str, Any]) -> dict[str, Any]:
    """The design that the page shows first."""
    return dict(study["designs"][study["best"]])


def rows(page: Any) -> Any:
    """Return the layer of the timeline that takes pointers and keys."""
    return page.locator(".lanes canvas").nth(1)


def point(page: Any, along: float, y: float) -> tuple[float, float]:
    """Return where on the page a share of the time and a height of the timeline lie."""
    rows(page).scroll_into_view_if_needed()
    box = rows(page).bounding_box()
    gutter = 98 if box["width"] < 560 else 148
    return box["x"] + gutter + along * (box["width"] - gutter), box["y"] + y


def seen(page: Any) -> str:
    """Return the part of the address that holds the view, once it has been written."""
    settle(page)
    found = [each for each in page.evaluate("location.hash")[1:].split("&") if each.startswith("time=")]
    return found[0] if found else ""


COMPUTE = 24 + 10
"""Inside the first row: below the times."""


def first_track(page: Any, along: float) -> tuple[float, float]:
    """Return a place on the first row that holds spans: below the name of its process, where that is unfolded."""
    for y in (COMPUTE, COMPUTE + 22):
        page.mouse.move(*point(page, along, y))
        settle(page)
        if page.locator(".tip").count():
            return point(page, along, y)
    raise AssertionError("no span below the pointer on the first two rows")


# ---- the whole


def test_the_best_is_shown_first_and_any_other_can_be_chosen(design_page: Any, study: dict[str, Any]) -> None:
    page = design_page()
    chooser = page.get_by_label("design", exact=True)
    assert chooser.locator("option:checked").inner_text().startswith("best")
    assert chooser.locator("option").count() == len(study["designs"])
    base = study["designs"][study["base"]]
    chooser.select_option(index=study["base"])
    facts = dict(zip(*(page.locator(f"#design .facts {tag}").all_inner_texts() for tag in ("dt", "dd")), strict=True))
    assert facts["step"] == next(each["text"] for each in base["facts"] if each["label"] == "step")
    settle(page)
    page.reload()
    page.locator("html[data-drawn]").wait_for(state="attached")
    assert page.get_by_label("design", exact=True).locator("option:checked").inner_text().startswith("base")


def test_the_file_is_the_design(design_page: Any, best: dict[str, Any]) -> None:
    page = design_page()
    page.locator("#design summary", has_text="YAML").click()
    assert page.locator("#design pre.yaml").text_content() == best["yaml"]
    assert page.locator("#design pre").first.text_content() == best["command"]
    with page.expect_download() as caught:
        page.locator("#design").get_by_role("button", name="save best.yaml").click()
    assert Path(caught.value.path()).read_text() == best["yaml"]


# ---- the cluster


def test_the_cluster_shows_every_dimension_and_where_axes_lie(design_page: Any, best: dict[str, Any]) -> None:
    page, cluster = design_page(), best["cluster"]
    shown = page.locator("#cluster figure")
    assert shown.count() == len(cluster["dims"])
    for place, dim in enumerate(cluster["dims"]):
        assert dim["label"] in shown.nth(place).inner_text()
        switches = {member for pair in dim["links"] for member in pair if member >= dim["npus"]}
        assert shown.nth(place).locator("svg .member").count() == dim["npus"] + len(switches)
        assert shown.nth(place).locator(".wires path").count() == len(dim["links"])
    axis = cluster["axes"][-1]
    button = page.locator("#cluster .axis", has_text=f"{axis['name']} {axis['size']}")
    button.click()
    page.mouse.move(0, 0)
    assert button.get_attribute("aria-pressed") == "true"
    assert f"{axis['name']}, {axis['label']}" in page.locator("#cluster .axis-sentence").inner_text()
    away = sum(all(each["name"] != axis["name"] for each in dim["axes"]) for dim in cluster["dims"])
    page.evaluate("document.activeElement.blur()")
    assert page.locator("#cluster figure.away").count() == away


def test_the_cluster_as_a_table(design_page: Any, best: dict[str, Any]) -> None:
    page = design_page()
    page.locator("#cluster").get_by_role("button", name="table", exact=True).click()
    loads = sum(max(1, len(dim["load"])) for dim in best["cluster"]["dims"])
    assert page.locator("#cluster-twin tbody tr").count() == loads


# ---- the timeline


def test_keys_and_wheels_zoom_where_the_pointer_is(design_page: Any) -> None:
    page = design_page()
    assert seen(page) == ""
    assert "It opens on" in page.locator("#timeline .reading").first.inner_text()  # a part of it, where most happens
    page.get_by_role("button", name="fit").click()
    whole = seen(page)
    assert whole.startswith("time=0_")
    page.mouse.move(5, 5)
    before = rows(page).evaluate(PICTURE)
    for key in "wwa":
        page.keyboard.press(key)
    assert seen(page) == whole  # the timeline has neither the focus nor the pointer
    page.mouse.move(*point(page, 0.25, COMPUTE))
    for key in "www":
        page.keyboard.press(key)
    from_, to = map(float, seen(page).removeprefix("time=").split("_"))
    assert from_ + 0.25 * (to - from_) == pytest.approx(0.25 * (to - from_) * 1.4**3, rel=0.02)
    assert page.evaluate("document.documentElement.dataset.theme ?? 'auto'") == "auto"
    page.keyboard.press("d")  # later, not dark
    assert float(seen(page).removeprefix("time=").split("_")[0]) > from_
    assert page.evaluate("document.documentElement.dataset.theme ?? 'auto'") == "auto"
    page.keyboard.press("f")
    assert seen(page) == whole
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    assert seen(page) != whole
    page.get_by_role("button", name="fit").click()
    assert seen(page) == whole
    page.mouse.move(5, 5)
    assert rows(page).evaluate(PICTURE) == before


def test_dragging_pans_and_the_address_brings_a_view_back(design_page: Any, best: dict[str, Any]) -> None:
    duration = best["timeline"]["duration_s"]
    page = design_page(f"#time={duration / 4}_{duration / 2}")
    page.mouse.move(*point(page, 0.5, COMPUTE))
    page.mouse.down()
    page.mouse.move(*point(page, 0.1, COMPUTE), steps=5)
    page.mouse.up()
    from_, to = map(float, seen(page).removeprefix("time=").split("_"))
    assert to - from_ == pytest.approx(duration / 4, rel=1e-6)
    assert from_ == pytest.approx(duration / 4 + 0.4 * duration / 4, rel=0.02)


def test_a_span_says_what_it_is_and_arrows_go_on_from_it(design_page: Any) -> None:
    page = design_page()
    page.get_by_role("button", name="fit").click()
    place = first_track(page, 0.02)
    name, when, where = page.locator(".tip").inner_text().split("\n")[:3]
    page.mouse.click(*place)
    first = page.locator("#timeline .picked").inner_text()
    assert all(each in first for each in (name, when.split(",")[0], where, "critical path"))
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")  # the first span that is seen
    first = page.locator("#timeline .picked").inner_text()
    assert first.split()[0] == "F0"
    page.keyboard.press("ArrowRight")
    second = page.locator("#timeline .picked").inner_text()
    assert second != first
    page.keyboard.press("ArrowLeft")
    assert page.locator("#timeline .picked").inner_text() == first
    page.keyboard.press("Escape")
    assert "Click a span" in page.locator("#timeline .picked").inner_text()


def test_an_area_is_added_up(design_page: Any, best: dict[str, Any]) -> None:
    page = design_page()
    totals = page.locator("#timeline .splits")
    assert "the whole step" in totals.inner_text()
    page.keyboard.down("Shift")
    page.mouse.move(*point(page, 0.25, COMPUTE))
    page.mouse.down()
    page.mouse.move(*point(page, 0.75, COMPUTE), steps=5)
    page.mouse.up()
    page.keyboard.up("Shift")
    totals.get_by_text("selected").wait_for()
    assert all(word in totals.inner_text() for word in ("compute", "exposed", "idle"))
    page.locator("#timeline").get_by_role("button", name="table", exact=True).click()
    assert page.locator("#timeline-twin tbody tr").count() == len(best["timeline"]["processes"])
    rows(page).focus()
    page.keyboard.press("Escape")
    totals.get_by_text("the whole step").wait_for()


def test_spans_are_found_by_name(design_page: Any, best: dict[str, Any]) -> None:
    page = design_page()
    page.get_by_label("find spans by name").fill("optimizer")
    page.keyboard.press("Enter")
    assert page.locator("#timeline .find output").inner_text().startswith("1 of ")
    assert "optimizer" in page.locator("#timeline .picked b").inner_text()
    assert seen(page) != ""  # it is short: the view came nearer
    page.get_by_label("find spans by name").fill("no such span")
    assert page.locator("#timeline .find output").inner_text() == "none"


def test_the_critical_path_can_be_seen_alone(design_page: Any) -> None:
    page = design_page()
    below = page.locator(".lanes canvas").first
    before = below.evaluate(PICTURE)
    button = page.get_by_role("button", name="critical path only")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert below.evaluate(PICTURE) != before
    button.click()
    assert below.evaluate(PICTURE) == before


def test_colours_follow_the_theme(design_page: Any) -> None:
    page = design_page()
    below = page.locator(".lanes canvas").first
    before = below.evaluate(PICTURE)
    page.get_by_role("button", name="light or dark").click()
    assert below.evaluate(PICTURE) != before


def test_it_is_saved_for_perfetto(design_page: Any, best: dict[str, Any]) -> None:
    page = design_page()
    with page.expect_download() as caught:
        page.get_by_role("button", name="save for Perfetto").click()
    events = json.loads(Path(caught.value.path()).read_text())["traceEvents"]
    spans = [each for each in events if each["ph"] == "X"]
    assert len(spans) == best["timeline"]["spans"]["count"]
    end = max(each["ts"] + each["dur"] for each in spans)
    assert end == pytest.approx(best["timeline"]["duration_s"] * 1e6, rel=1e-3)
    assert {each["name"] for each in events if each["ph"] == "C"} == {
        each["name"] for each in best["timeline"]["counters"]
    }


def test_two_designs_on_one_scale_of_time(design_page: Any, study: dict[str, Any], best: dict[str, Any]) -> None:
    page = design_page()
    page.get_by_label("compare with").select_option(index=1)
    assert page.locator("#timeline .split").count() == 2
    assert page.locator("#timeline .split b").first.inner_text().startswith("best")
    settle(page)
    assert "beside=" in page.evaluate("location.hash")
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.locator("#timeline").screenshot(path=str(ARTIFACTS / "design-beside.png"))
    page.get_by_label("compare with").select_option(index=0)
    assert page.locator("#timeline .split").count() == 1


def test_two_fingers_zoom(design_page: Any) -> None:
    page = design_page(width="phone", has_touch=True)
    rows(page).scroll_into_view_if_needed()
    rows(page).evaluate(
        """canvas => {
            const box = canvas.getBoundingClientRect();
            canvas.setPointerCapture = () => undefined; // these pointers are not real ones
            const send = (type, pointerId, x) => canvas.dispatchEvent(new PointerEvent(type, {
                pointerId, pointerType: "touch", bubbles: true, clientX: box.left + x, clientY: box.top + 60 }));
            send("pointerdown", 1, 200);
            send("pointerdown", 2, 240);
            send("pointermove", 2, 241);
            send("pointermove", 2, 281);
            send("pointerup", 1, 200);
            send("pointerup", 2, 281);
        }"""
    )
    from_, to = map(float, seen(page).removeprefix("time=").split("_"))
    assert to > from_ > 0


# ---- the roofline


def test_the_roofline_goes_through_its_operators(design_page: Any, best: dict[str, Any]) -> None:
    page = design_page()
    points = sorted(best["roofline"]["points"], key=lambda each: -each["seconds"])
    assert page.locator(".roofline .point").count() == min(200, len(points))
    page.locator(".roofline").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".roofline-sentence").inner_text().startswith(points[0]["name"])
    page.locator("#roofline").get_by_role("button", name="table", exact=True).click()
    assert page.locator("#roofline-twin tbody tr").count() == min(200, len(points))
