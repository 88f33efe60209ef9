"""Code on the pages of the documentation is copied by a button: of a console, the commands alone."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def test_a_button_copies_a_block_of_code(browser: Any, tmp_path: Path) -> None:
    if find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed (extra docs)")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    context = browser.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    try:
        page.goto((tmp_path / "search.html").as_uri())
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
