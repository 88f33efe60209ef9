"""The explorer in a real browser: one brush filters all views, by pointer and by keyboard, and the address keeps it."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.browser.conftest import Open, settle

CLIPBOARD = {"permissions": ["clipboard-read", "clipboard-write"]}
MOST_ROWS = 60
MOST_NODES = 900
"""Of the 1,500 that a page may have."""


@pytest.fixture
def explore(report_page: Open) -> Any:
    """Return what opens the report at its explorer, and the page of it."""

    def opened(fragment: str = "", **options: Any) -> Any:
        page = report_page(fragment, **options).page
        page.locator("#explore-table tbody tr[data-place]").first.wait_for()
        page.locator("#explore-scatter").scroll_into_view_if_needed()
        return page

    return opened


def selected(page: Any) -> int:
    """Return how many trials are selected, as the page says it, once it has settled."""
    settle(page)
    text = page.locator(".selected-count").inner_text()
    found = re.fullmatch(r"Selected: ([\d,]+) of ([\d,]+) \([\d.]+ %\)", text)
    assert found, text
    return int(found[1].replace(",", ""))


def drag(page: Any, canvas: str, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Drag from one place of a canvas to another, both as shares of its size."""
    page.locator(canvas).scroll_into_view_if_needed()
    box = page.locator(canvas).bounding_box()
    at = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end)]
    page.mouse.move(*at[0])
    page.mouse.down()
    page.mouse.move(*at[1], steps=6)
    page.mouse.up()


SCATTER = "#explore-scatter .canvas canvas:last-of-type"
LANES = "#explore-parallel .canvas canvas:last-of-type"


def state(page: Any) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).fragment)


def shown(page: Any, column: int) -> list[str]:
    """Return what the rows in sight hold in a column."""
    rows = page.locator("#explore-table tbody tr[data-place]:not([hidden])")
    texts: list[str] = rows.evaluate_all(f"rows => rows.map((row) => row.cells[{column}].textContent)")
    return texts


def write(page: Any, text: str) -> None:
    page.fill("#explore-filter", text)
    page.keyboard.press("Enter")


def test_one_brush_filters_all_views_and_the_address_keeps_it(explore: Any) -> None:
    page = explore()
    everything = selected(page)
    drag(page, SCATTER, (0.3, 0.3), (0.6, 0.8))
    some = selected(page)
    assert 0 < some < everything
    assert page.locator("#explore-table table").get_attribute("aria-rowcount") == str(some + 1)
    assert f"{some:,} of" in page.locator(LANES).get_attribute("aria-label")
    brush = state(page)["brush"][0]
    assert "step_s" in brush
    assert "network_usd" in brush
    page.reload()
    page.locator("#explore-table tbody tr[data-place]").first.wait_for()
    assert selected(page) == some
    page.keyboard.press("Escape")
    assert selected(page) == everything
    assert "brush" not in state(page)


def test_keep_exclude_and_undo(explore: Any) -> None:
    page = explore()
    everything = selected(page)
    drag(page, SCATTER, (0.3, 0.3), (0.6, 0.8))
    some = selected(page)
    page.keyboard.press("x")
    assert selected(page) == everything - some
    assert page.locator(".chip:not(.brush) .text").inner_text().startswith("not (")
    page.keyboard.press("z")
    assert selected(page) == some
    page.get_by_role("button", name="Keep").click()
    assert selected(page) == some
    assert page.locator(".chip.brush").is_hidden()
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("button", name="Undo").click()
    assert selected(page) == everything
    assert page.get_by_role("button", name="Undo").is_disabled()


def test_filters_are_text_that_can_be_edited(explore: Any) -> None:
    page = explore()
    everything = selected(page)
    page.keyboard.press("/")
    page.keyboard.type("tp >= 8 & outcome = runs")
    page.keyboard.press("Enter")
    some = selected(page)
    assert 0 < some < everything
    assert state(page)["where"] == ["tp >= 8 & outcome = runs"]
    page.locator(".chip .text").click()
    write(page, "tp = 1")
    assert 0 < selected(page) != some
    assert state(page)["where"] == ["tp = 1"]
    write(page, "stp_s < 1")
    assert "the nearest is step_s" in page.get_by_role("alert").inner_text()
    page.get_by_role("button", name="remove the filter tp = 1").click()
    assert selected(page) == everything


def test_an_axis_is_brushed_by_pointer_by_keyboard_and_by_its_menu(explore: Any) -> None:
    page = explore()
    everything = selected(page)
    drag(page, LANES, (0.02, 0.1), (0.02, 0.5))
    by_pointer = selected(page)
    assert 0 < by_pointer < everything
    page.keyboard.press("Escape")
    page.locator(LANES).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    assert 0 < selected(page) < everything
    page.keyboard.press("Delete")
    assert selected(page) == everything
    name = page.locator(".axis-name").last
    name.focus()
    page.keyboard.press("Enter")
    page.get_by_label("to", exact=True).fill("1 us")
    page.keyboard.press("Enter")
    assert selected(page) == 0
    assert "passes these filters" in page.locator("#explore-table .empty").inner_text()
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0


def test_axes_move_flip_and_hide(explore: Any) -> None:
    page = explore()
    names = page.locator(".axis-name")
    before = names.evaluate_all("all => all.map((each) => each.title)")
    names.first.click()
    page.get_by_role("button", name="move right").click()
    after = names.evaluate_all("all => all.map((each) => each.title)")
    assert after[:2] == before[1::-1]
    names.first.click()
    page.get_by_role("button", name="hide").click()
    assert names.count() == len(before) - 1
    settle(page)
    assert len(state(page)["axes"][0].split(",")) == len(before) - 1


def test_the_table_sorts_by_number_and_has_few_rows_in_the_page(explore: Any) -> None:
    page = explore()
    count = page.locator("#explore-table tbody tr").count()
    assert count <= MOST_ROWS
    page.locator("#explore-table thead button", has_text="trial").click()
    settle(page)
    assert [int(each.split()[-1]) for each in shown(page, 0)][:4] == [0, 1, 2, 3]
    page.locator("#explore-table .trials").evaluate("box => { box.scrollTop = box.scrollHeight }")
    settle(page)
    assert int(shown(page, 0)[-1].split()[-1]) == selected(page) - 1
    assert page.locator("#explore-table tbody tr").count() <= count + 1
    assert page.locator("#explore *").count() <= MOST_NODES


def test_a_trial_is_the_same_in_every_view(explore: Any) -> None:
    page = explore()
    page.locator("#explore-table").scroll_into_view_if_needed()
    page.locator("#explore-table tbody tr[data-place]").nth(1).hover()
    page.locator("#explore-table tr.hovered").wait_for()
    page.mouse.move(0, 0)
    page.locator(SCATTER).focus()
    page.keyboard.press("ArrowRight")
    settle(page)
    assert page.locator("#explore-table tr.hovered").count() <= 1
    page.keyboard.press("Shift+Enter")
    page.locator("#explore-compare").wait_for()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+Enter")
    settle(page)
    assert page.locator("#explore-compare thead th").count() == 3
    assert len(state(page)["compare"][0].split(",")) == 2


def test_a_row_opens_its_design_or_says_how_to_evaluate_it(explore: Any) -> None:
    page = explore()
    write(page, "outcome != runs")
    selected(page)
    page.locator("#explore-table tbody tr[data-place]").first.click()
    said = page.locator(".said")
    assert "cannot run" in said.inner_text()
    assert "cosmic evaluate" in said.locator("pre").inner_text()


def test_a_selection_can_be_taken_elsewhere(explore: Any, tmp_path: Path) -> None:
    page = explore(**CLIPBOARD)
    write(page, "tp >= 8 & outcome = runs & network_usd <= 5 M")
    some = selected(page)
    page.get_by_role("button", name="copy as CLI").click()
    commands = page.evaluate("navigator.clipboard.readText()")
    assert "--constraint 'network_usd <= 5000000'" in commands
    page.get_by_role("button", name="copy as Python").click()
    code = page.evaluate("navigator.clipboard.readText()")
    compile(code, "selection", "exec")
    assert 'trials["workload.tp"]' in code
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV", exact=True).click()
    path = tmp_path / "selected.csv"
    download.value.save_as(path)
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert len(rows) == some > 0
    assert all(int(row["workload.tp"]) >= 8 and float(row["network_usd"]) <= 5e6 for row in rows)


def test_a_broken_address_is_as_none(explore: Any) -> None:
    page = explore("#where=%3Cscript%3E%26&brush=nothing&x=no&axes=,,no:log&sort=-no&columns=no&compare=-1,x&focus=no")
    assert selected(page) > 0
    assert page.locator(".axis-name").count() > 1


def test_a_brush_can_be_measured(explore: Any) -> None:
    page = explore()
    times = page.evaluate("window.cosmic.measureBrush(20)")  # `benchmarks/report.py` says how long they take
    assert len(times) == 20
    assert all(each >= 0 for each in times)


def test_it_looks_right_while_it_is_used(report_page: Open) -> None:
    watched = report_page()
    drag(watched.page, SCATTER, (0.3, 0.3), (0.6, 0.8))
    watched.at_all_widths("explore")
