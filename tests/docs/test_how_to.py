"""How-to pages: they need few lines of code, work as they stand, and print what they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from generation import how_to

MOST_LINES = 40
PAGES = [path for path in how_to.pages() if path.stem != "index"]
ADDING = [path for path in PAGES if path.stem.startswith("add-")]
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
by_adding = pytest.mark.parametrize("page", ADDING, ids=lambda path: path.stem)


def test_there_is_a_page_for_each_extension_point() -> None:
    wanted = {"accelerator", "topology", "collective", "agent", "engine", "strategy"}
    assert {re.sub(r"add-an?-", "", path.stem) for path in ADDING} == wanted


@by_adding
def test_a_page_needs_fewer_than_forty_lines_of_code(page: Path) -> None:
    assert 0 < how_to.user_lines(page.read_text()) < MOST_LINES


@pytest.mark.long
@by_page
def test_commands_of_a_page_print_what_it_shows(page: Path) -> None:
    text = page.read_text()
    assert how_to.run_page(text) == text


@by_adding
def test_a_page_uses_what_it_adds(page: Path) -> None:
    text = page.read_text()
    commands = [command for block in how_to.CONSOLE.findall(text) for command in how_to.commands(block)]
    assert any(re.match(r"cosmic (evaluate|search|sweep) ", command) for command in commands)
    if any(path.endswith(".py") for path in how_to.files(text)):
        assert re.search(r"from cosmic.plugins import .*Suite", text)
        assert any(command.startswith("pytest ") for command in commands)
