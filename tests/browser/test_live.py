"""The live page in a real browser: start a search, watch it, stop it, change a design, compare; at three widths."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess  # the command is the product's own
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import cosmic
from tests.browser.conftest import Open, Watched, settle, violations

SPACE = "cosmic-512-full-stack"


@dataclass
class Served:
    """A server in a process of its own."""

    process: subprocess.Popen[str]

    def address(self) -> str:
        """Return the next address that it prints: each lets one browser in."""
        assert self.process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = self.process.stdout.readline()
            assert line, "the server ended before it said where it is"
            text += line
        return str(json.loads(text)["url"])

    def another(self) -> str:
        """Return a new address, as Enter prints it."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.address()


@pytest.fixture(scope="module")
def served(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server over a directory with one study, and one that is damaged."""
    pytest.importorskip("uvicorn", reason="the extra web is not installed")
    folder = tmp_path_factory.mktemp("runs")
    cosmic.search(SPACE, trials=400, seed=3, out=folder / "first")
    (folder / "torn").mkdir()
    (folder / "torn" / "study.json").write_text("{")
    command = [sys.executable, "-m", "cosmic", "ui", str(folder), "--port", "0", "--no-browser", "--json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        server = Served(process)
        server.address()
        yield server
        process.send_signal(signal.SIGINT)


@pytest.fixture
def live(watch: Open, served: Served) -> Open:
    def open_live(route: str = "", **options: Any) -> Watched:
        watched = watch(f"{served.another()}{route.replace('#', '&')}", **options)
        watched.page.wait_for_function("!location.hash.includes('token')")
        return watched

    return open_live


def test_an_address_lets_one_browser_in_and_stays_in_it(browser: Any, served: Served) -> None:
    address = served.another()
    first, second = browser.new_context(), browser.new_context()
    page = first.new_page()
    page.goto(address)
    page.wait_for_selector("table.studies td")
    assert "token" not in page.url
    assert first.cookies() == []
    page.reload()
    page.wait_for_selector("table.studies td")
    other = first.new_page()  # another window of the same browser
    other.goto(page.url)
    other.wait_for_selector("table.studies td")
    other.goto("about:blank")
    other.goto(address)  # from its history
    other.wait_for_selector("table.studies td")

    page = second.new_page()
    page.goto(address)
    page.wait_for_selector("[role=alert]:not([hidden])")
    assert "was used, or is too old: press Enter where 'cosmic ui' runs" in page.inner_text("[role=alert]")
    page.goto(page.url.split("#", maxsplit=1)[0])
    page.reload()
    page.wait_for_selector("[role=alert]:not([hidden])")
    assert "this browser was not let in" in page.inner_text("[role=alert]")
    page.goto(served.another())  # only what is after # is new: the page opens itself again
    page.wait_for_selector("table.studies td")
    for context in (first, second):
        context.close()


def test_a_page_of_another_port_gets_nothing(browser: Any, served: Served) -> None:
    """Cookies would reach it, and it can name this page's address; the key is not for it to read or to send."""
    heard: list[str] = []

    class Spy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(str(self.headers))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>spy</title>")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    context = browser.new_context()
    page = context.new_page()
    page.goto(served.another())
    page.wait_for_selector("table.studies td")
    key, root = page.evaluate("localStorage.getItem('cosmic-key')"), page.url.split("#", maxsplit=1)[0]
    assert len(key) >= 43
    with HTTPServer(("127.0.0.1", 0), Spy) as spy:
        threading.Thread(target=spy.serve_forever, daemon=True).start()
        page.goto(f"http://127.0.0.1:{spy.server_port}/")
        assert page.evaluate("localStorage.getItem('cosmic-key')") is None
        tried = "path => fetch(path, {credentials: 'include', headers: {'X-Cosmic': '1'}}).then(() => 1, () => 0)"
        assert page.evaluate(tried, f"{root}api/studies") == 0
        spy.shutdown()
    assert heard
    assert key not in "".join(heard)
    context.close()


def test_the_file_that_is_opened_leads_to_the_page(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="the extra web is not installed")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "look"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked.new && mv {tmp_path}/asked.new {tmp_path}/asked\n')
    program.chmod(0o755)
    command = [sys.executable, "-m", "cosmic", "ui", str(tmp_path / "runs"), "--json"]
    own = {**os.environ, "BROWSER": f"{program} %s"}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=own) as process:
        Served(process).address()
        ends = time.monotonic() + 30
        while not (tmp_path / "asked").exists() and time.monotonic() < ends:
            time.sleep(0.05)
        asked = (tmp_path / "asked").read_text().strip()
        assert asked.startswith("file://")
        assert "token" not in asked
        file = Path(asked.removeprefix("file://"))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        context = browser.new_context()
        page = context.new_page()
        page.goto(asked)
        page.wait_for_selector("text=No studies yet")
        assert not file.parent.exists(), "it is removed once it was used"
        context.close()
        process.send_signal(signal.SIGINT)


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
    page.fill("#trials", "1000000")
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


def test_a_model_on_a_system_is_evaluated_and_searched(live: Open) -> None:
    page = live("#page=search").page
    page.select_option("#machine-model", "llama3-8b")
    page.fill("#machine-npus", "8")
    page.select_option("#machine-task", "decode")
    page.wait_for_selector("text=valid designs")
    page.get_by_role("button", name="only evaluate it").click()
    page.wait_for_selector("#evaluated-title")
    assert page.inner_text("#evaluated-title") == "llama3-8b@dgx-h100:8"
    assert "tokens/s/GPU" in page.inner_text(".facts")
    page.fill("#trials", "5")
    page.fill("#name", "served")
    page.get_by_role("button", name="start the search").click()
    page.locator("p.starting, #verdict").first.wait_for()  # what it does is said before anything is found
    page.wait_for_selector("#verdict .headline", timeout=30_000)
    assert page.inner_text("#verdict .headline").startswith("llama3-8b on 8 × h100-sxm-80gb: ")


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
