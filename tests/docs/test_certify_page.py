"""The page about proofs shows what its commands print."""

from __future__ import annotations

from pathlib import Path

from generation import how_to

PAGE = Path(how_to.FOLDER).parent / "certify.md"


def test_the_page_shows_what_its_commands_print() -> None:
    text = PAGE.read_text()
    assert how_to.run_page(text) == text
