"""How-to pages: what a reader is told to write is little, works as it stands, and prints what is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from generation import how_to

MOST_LINES = 40
PAGES = [path for path in how_to.pages() if path.stem != "index"]
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)


def test_there_is_a_page_for_each_extension_point() -> None:
    wanted = {"accelerator", "topology", "collective", "agent", "strategy"}
    assert {re.sub(r"add-an?-", "", path.stem) for path in PAGES} == wanted


@by_page
def test_a_page_asks_for_fewer_than_forty_lines_of_code(page: Path) -> None:
    assert 0 < how_to.user_lines(page.read_text()) < MOST_LINES


@by_page
def test_what_a_page_shows_is_what_happens(page: Path) -> None:
    text = page.read_text()
    assert how_to.run_page(text) == text


@by_page
def test_a_page_uses_what_it_adds(page: Path) -> None:
    text = page.read_text()
    commands = [command for block in how_to.CONSOLE.findall(text) for command in how_to.commands(block)]
    assert any(re.match(r"cosmic (evaluate|search|sweep) ", command) for command in commands)
    if any(path.endswith(".py") for path in how_to.files(text)):
        assert "from cosmic.testing import" in text
        assert any(command.startswith("pytest ") for command in commands)


def test_a_page_that_shows_something_else_is_found_out() -> None:
    page = "```console\n$ echo this\nthat\n```\n"
    assert how_to.run_page(page) == "```console\n$ echo this\nthis\n```\n"


def test_a_command_that_fails_is_no_output() -> None:
    with pytest.raises(RuntimeError, match="ended with 3: gone wrong"):
        how_to.run_page("```console\n$ echo gone wrong >&2; exit 3\n```\n")


def test_variables_last_from_command_to_command_and_times_are_left_out() -> None:
    page = "```console\n$ export SIZE=12\n$ echo $SIZE passed in 0.25s\n```\n"
    assert how_to.run_page(page) == "```console\n$ export SIZE=12\n$ echo $SIZE passed in 0.25s\n12 passed\n```\n"
