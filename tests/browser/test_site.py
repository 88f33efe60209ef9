"""The documentation as a site, opened from disk: its code is copied by a button, and its search finds pages."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed (extra docs)")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


def test_the_search_works_from_disk(browser: Any, site: Path) -> None:
    page = browser.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    try:
        page.goto((site / "how-to" / "serve.html").as_uri())
        page.keyboard.press("s")  # the theme's key opens the search
        page.locator("#mkdocs-search-query").fill("goodput failures")
        first = page.locator("#mkdocs-search-results a").first
        first.wait_for()
        assert first.text_content() == "Plan for failures"
        first.click()
        page.wait_for_url("**/how-to/plan-for-failures.html")
        assert complaints == []
    finally:
        page.close()


def test_a_button_copies_a_block_of_code(browser: Any, site: Path) -> None:
    context = browser.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    try:
        page.goto((site / "explanation" / "search.html").as_uri())
        assert page.locator("pre").count() == page.locator("button.copy").count() > 3
        for language, wanted in (
            ("gp", "cosmic study tournament cosmic-512-full-stack --stacks workload"),
            ("kn", "import gymnasium\n\nenv = gymnasium.make("),
        ):
            block = page.locator(".copied", has=page.locator(f".{language}")).last
            if language == "gp":
                block = page.locator(".copied", has_text="cosmic study tournament")
            block.hover()
            block.locator("button").click()
            block.get_by_text("Copied").wait_for()
            assert page.evaluate("navigator.clipboard.readText()").startswith(wanted)
    finally:
        context.close()
