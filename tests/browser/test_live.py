"""The live page in a real browser: start a search, watch it, stop it, change a design, compare; at three widths."""

from __future__ import annotations

import json
import signal
import subprocess  # the command is the product's own
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cosmic
from tests.browser.conftest import Open, Watched, settle, violations

SPACE = "cosmic-512-full-stack"


@pytest.fixture(scope="module")
def served(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a server over a directory with one study, and one that is damaged."""
    pytest.importorskip("uvicorn", reason="the extra web is not installed")
    folder = tmp_path_factory.mktemp("runs")
    cosmic.search(SPACE, trials=400, seed=3, out=folder / "first")
    (folder / "torn").mkdir()
    (folder / "torn" / "study.json").write_text("{")
    command = [sys.executable, "-m", "cosmic", "ui", str(folder), "--port", "0", "--no-browser", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = process.stdout.readline()
            assert line, "the server ended before it said where it is"
            text += line
        yield json.loads(text)["url"]
        process.send_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def state(browser: Any, served: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trade the address's token for a cookie once, and return what a browser keeps of it."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(served)
    assert "token" not in page.url
    path = tmp_path_factory.mktemp("state") / "state.json"
    context.storage_state(path=str(path))
    context.close()
    return path


@pytest.fixture
def live(watch: Open, served: str, state: Path) -> Open:
    root = served.split("?", maxsplit=1)[0]

    def open_live(route: str = "", **options: Any) -> Watched:
        return watch(f"{root}{route}", storage_state=str(state), **options)

    return open_live


def test_nobody_comes_in_without_the_cookie(browser: Any, served: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    answer = page.goto(served.split("?", maxsplit=1)[0])
    assert answer.status == 403
    context.close()


def test_the_list_shows_studies_and_what_is_wrong_with_one(live: Open) -> None:
    watched = live()
    watched.page.wait_for_selector("table.studies td")
    text = watched.page.inner_text("table.studies")
    assert "400 of 400" in text
    assert "torn" in text
    assert "doctor" in text  # the sentence says what to do


def test_a_search_is_started_watched_stopped_and_gone_on_with(live: Open) -> None:
    watched = live(f"#page=search&space={SPACE}")
    page = watched.page
    page.wait_for_selector("text=valid designs")
    everything = page.inner_text("[role=status]")
    page.uncheck("fieldset:has(legend:has-text('network')) >> nth=0 >> legend input")
    page.wait_for_function("before => document.querySelector('[role=status]').innerText !== before", arg=everything)
    page.fill("#trials", "200000")
    page.fill("#name", "begun")
    page.check("input[name=objective][value=step_s]")
    page.click("text=start the search")
    page.wait_for_selector(".state.running")
    page.wait_for_function("Number(document.querySelector('.bar.live').innerText.replace(/[^0-9]/g, ' ').trim()) !== 0")
    page.wait_for_selector("#explore canvas")
    before = page.inner_text(".bar.live [role=status]")
    page.wait_for_function(
        "before => document.querySelector('.bar.live [role=status]').innerText !== before", arg=before
    )
    watched.screenshot("live-running-desktop")
    page.click("text=stop")
    page.wait_for_selector(".state.stopped")
    page.wait_for_selector(".bar.live >> text=resume")
    page.wait_for_selector("#trust :text('workload, collective')")  # only the layers that were left open


def test_a_change_of_a_design_changes_its_metrics(live: Open) -> None:
    watched = live("#page=study&study=first")
    page = watched.page
    page.wait_for_selector("#what-if table")
    column = "#what-if td:nth-child(3)"
    before = page.locator(column).all_inner_texts()
    bandwidth = page.locator('[id="what-if.network.dims.0.bandwidth"]')
    values = bandwidth.locator("option").all_inner_texts()
    bandwidth.select_option(values[0] if bandwidth.input_value() != values[0] else values[-1])
    cells = "[...document.querySelectorAll(column)]"
    differs = f"([column, before]) => {cells}.some((cell, place) => cell.innerText !== before[place])"
    page.wait_for_function(differs, arg=[column, before])
    page.click("#what-if >> text=show the design")
    settle(page)
    watched.screenshot("live-study-desktop")


def test_studies_are_compared(live: Open) -> None:
    watched = live("#page=compare&with=first")
    watched.page.wait_for_selector("table.studies td >> text=first")
    assert watched.page.locator("canvas").count()


PAGES = {
    "studies": ("", "table.studies", "html"),
    "search": (f"#page=search&space={SPACE}", ".parameter", "html"),
    "study": ("#page=study&study=first", "#what-if table", "#what-if"),  # the rest of it is the report's
    "compare": ("#page=compare&with=first", "canvas", "html"),
}
"""Where each page is, what shows that it is there, and the part of it that is its own."""


@pytest.mark.parametrize("name", PAGES)
def test_every_page_at_three_widths(live: Open, name: str) -> None:
    route, shown, own = PAGES[name]
    watched = live(route)
    watched.page.wait_for_selector(shown)
    assert violations(watched.page, own) == []
    watched.at_all_widths(f"live-{name}")


def test_the_form_is_dark_where_the_reader_is(live: Open) -> None:
    watched = live(PAGES["search"][0], dark=True)
    watched.page.wait_for_selector(".parameter")
    watched.screenshot("live-search-desktop-dark")
    assert violations(watched.page) == []


def test_names_of_studies_stay_text(live: Open) -> None:
    watched = live("#page=study&study=" + "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    watched.page.wait_for_selector("[role=alert]:not([hidden])")
    assert watched.page.locator("img").count() == 0
    watched.complaints.clear()  # the browser itself notes the 404
