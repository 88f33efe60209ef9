"""A real browser, and pages that may neither complain nor reach out: what every test here runs in.

Screenshots are kept in `artifacts/` (or where `COSMIC_ARTIFACTS` says), for people to look at after a run.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ARTIFACTS = Path(os.environ.get("COSMIC_ARTIFACTS", ROOT / "artifacts"))
WIDTHS = {"desktop": (1440, 900), "tablet": (820, 1180), "phone": (390, 844)}
NAMES = ("chromium", "chromium-browser", "google-chrome")
SCROLLS = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
SETTLED = """async () => {
    const frame = () => new Promise((next) => requestAnimationFrame(() => setTimeout(next)));
    const ms = (time) => new Promise((next) => setTimeout(next, time));
    for (let round = 0; round < 2; round += 1) { // a view tells the next one, then the address
        await frame();
        await frame();
        await ms(200);
    }
}"""
"""Waits by the page's own clock: on a busy machine its timers and frames are late together with this one."""
HARMLESS = ("file:", "data:", "blob:", "about:")
"""Addresses that do not leave the page."""


def settle(page: Any) -> None:
    """Wait until the page has drawn what was done, and written it into its address."""
    page.evaluate(SETTLED)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, and keep each file on one worker: a browser and its report are opened once."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="package")  # while it is open no other event loop can run in this process
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = os.environ.get("COSMIC_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no chromium here: install Debian's package chromium, or set COSMIC_CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@dataclass
class Watched:
    """A page, and what it said and asked for."""

    page: Any
    width: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def heard(self, message: Any) -> None:
        """Note what the page writes to its console, if it is a complaint."""
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def leave(self) -> None:
        """Forget the page that was looked at, and what it kept."""
        if self.page.url != "about:blank":
            self.page.evaluate("try { localStorage.clear() } catch {}")
            self.page.emulate_media(media="screen")
            self.resize(self.width)
            self.page.goto("about:blank")
        self.complaints.clear()
        self.requests.clear()

    def at_all_widths(self, name: str) -> None:
        """Keep what is seen at every width; no page is wider than its window."""
        for width in WIDTHS:
            self.resize(width)
            settle(self.page)  # canvases are redrawn
            assert not self.page.evaluate(SCROLLS), f"{name} is wider than a {width}"
            self.screenshot(f"{name}-{width}")

    def resize(self, width: str) -> None:
        """Make the window as wide as one of these devices."""
        wide, high = WIDTHS[width]
        self.page.set_viewport_size({"width": wide, "height": high})

    def screenshot(self, name: str) -> Path:
        """Keep what is seen now."""
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        path = ARTIFACTS / f"{name}.png"
        self.page.screenshot(path=str(path), full_page=True)
        return path


Open = Callable[..., Watched]


@pytest.fixture(scope="package")
def windows(browser: Any) -> Iterator[dict[str, Watched]]:
    """Windows by how they were opened: to open one takes longer than to go elsewhere with it."""
    opened: dict[str, Watched] = {}
    yield opened
    for watched in opened.values():
        watched.page.context.close()


@pytest.fixture
def watch(browser: Any, windows: dict[str, Watched]) -> Iterator[Open]:
    """Return what opens a page in a window of its own; at the end no page may have complained."""
    used: list[Watched] = []

    def open_page(address: str, *, width: str = "desktop", dark: bool = False, **options: Any) -> Watched:
        key = json.dumps([width, dark, len(used), options], sort_keys=True)
        if key not in windows:
            windows[key] = _window(browser, width, dark, options)
        watched = windows[key]
        watched.leave()
        used.append(watched)
        watched.page.goto(address)
        return watched

    yield open_page
    assert [each for watched in used for each in watched.complaints] == []


def _window(browser: Any, width: str, dark: bool, options: dict[str, Any]) -> Watched:
    wide, high = WIDTHS[width]
    scheme = "dark" if dark else "light"
    context = browser.new_context(
        viewport={"width": wide, "height": high}, color_scheme=scheme, reduced_motion="reduce", **options
    )
    watched = Watched(context.new_page(), width)
    watched.page.on("console", watched.heard)
    watched.page.on("pageerror", lambda error: watched.complaints.append(str(error)))
    watched.page.on("request", lambda request: watched.requests.append(request.url))
    return watched


def leaves(requests: list[str]) -> list[str]:
    """Return the requests that leave the page."""
    return [each for each in requests if not each.startswith(HARMLESS)]


@pytest.fixture
def report_page(watch: Open, report_file: Path) -> Open:
    """Return what opens the report of a small full-stack study from disk, ready to be used."""

    def open_report(fragment: str = "", *, path: Path | None = None, **options: Any) -> Watched:
        watched = watch(f"{(path or report_file).as_uri()}{fragment}", **options)
        watched.page.wait_for_selector("html[data-drawn]", state="attached", timeout=20_000)
        return watched

    return open_report


@pytest.fixture(scope="session")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import cosmic  # noqa: PLC0415  only where there is a browser

    folder = tmp_path_factory.mktemp("studies")
    found = cosmic.search(
        "cosmic-512-full-stack",
        trials=1000,
        objectives=["step_s", "network_usd"],
        seed=1,
        out=folder / "study",
    )
    return cosmic.report(found.path or folder, isolated=200).write(folder / "report.html")


def violations(page: Any, within: str = "html") -> list[str]:
    """Return what axe finds wrong with a part of a page for people who cannot see or point, of what is serious."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    found = axe.Axe().run(page, {"include": [[within]]}).response["violations"]
    return [
        f"{each['id']}: {node['target']}: {node['html'][:200]}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


@pytest.fixture(scope="session")
def study(report_file: Path) -> dict[str, Any]:
    """The document of the report, as Python wrote it."""
    import cosmic  # noqa: PLC0415  only where there is a browser

    return dict(cosmic.report(report_file.parent / "study", isolated=200).document)
