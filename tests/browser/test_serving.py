"""A report of serving in a real browser: trade-off, latency over load, pools, by pointer and by keyboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Open, leaves, settle, violations
from tests.report.publishing.studies import serving

TTFT = "#latency-over-load .canvas >> nth=0 >> canvas:last-of-type"
SCATTER = "#explore-scatter .canvas canvas:last-of-type"


@pytest.fixture(scope="module")
def served_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import cosmic  # noqa: PLC0415  only where there is a browser

    folder = tmp_path_factory.mktemp("served")
    found = cosmic.search(serving(), trials=100, out=folder / "study")
    return cosmic.report(found.path or folder, isolated=50).write(folder / "report.html")


@pytest.fixture
def served(report_page: Open, served_file: Path) -> Open:
    def opened(fragment: str = "", **options: Any) -> Any:
        return report_page(fragment, path=served_file, **options)

    return opened


@pytest.mark.parametrize("dark", [False, True])
def test_everyone_can_read_it_on_every_screen(served: Open, dark: bool) -> None:
    watched = served(dark=dark)
    for part in ("#verdict", "#why", "#explore-scatter", "#latency-over-load", "#latencies", "#pools", "#spent"):
        assert violations(watched.page, part) == []
    watched.at_all_widths(f"serving-{'dark' if dark else 'light'}")
    assert leaves(watched.requests) == []


def test_the_trade_off_is_by_kind_and_its_front_opens_designs(served: Open) -> None:
    page = served().page
    card = page.locator("#explore-scatter")
    card.get_by_role("heading", name="Throughput of a GPU against speed for a user").wait_for()
    reading = card.locator(".reading").inner_text()
    assert "aggregated" in reading
    assert "deployments hold them" in reading
    assert card.locator(".key.aggregated").is_visible()
    assert card.locator(".key.disaggregated").is_visible()
    page.locator(SCATTER).focus()
    for key in ("ArrowRight", "ArrowRight", "Enter"):  # the fastest for its users but one
        page.keyboard.press(key)
    settle(page)
    chosen = page.locator("#design-shown").evaluate("each => each.selectedOptions[0].textContent")
    assert chosen.startswith("trial")
    assert "TPOT" in chosen
    card.get_by_label("logarithmic x axis").click()
    settle(page)
    assert "x=" in page.url
    card.locator("select").nth(1).select_option(label="P95 time to first token")
    settle(page)
    card.get_by_role("heading", name="Trade-off").wait_for()


def test_curves_say_their_numbers_by_key_and_pointer(served: Open) -> None:
    page = served().page
    card = page.locator("#latency-over-load")
    card.scroll_into_view_if_needed()
    said = card.locator(".curve-sentence")
    page.locator(TTFT).focus()
    page.keyboard.press("ArrowLeft")
    said.get_by_text("within its SLO").wait_for()
    first = said.inner_text()
    page.keyboard.press("ArrowLeft")
    settle(page)
    assert said.inner_text() != first
    box = page.locator(TTFT).bounding_box()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.5 * box["height"])
    page.locator(".tip", has_text="TTFT p95").wait_for()
    card.get_by_role("button", name="table").click()
    assert card.locator(".twin tbody tr").count() > 10


def test_pools_and_latencies_are_those_of_the_design_that_is_chosen(served: Open) -> None:
    page = served().page
    names = page.locator("#design-shown option").all_inner_texts()
    kinds = set()
    for place in range(len(names)):
        page.locator("#design-shown").select_option(index=place)
        settle(page)
        pools = page.locator("#pools .pool").count()
        kinds.add(pools)
        assert page.locator("#pools h3").inner_text() == ("Pools" if pools > 1 else "The pool")
        assert page.locator("#latencies .slo").count() == 2
    assert 2 in kinds  # the base is disaggregated
