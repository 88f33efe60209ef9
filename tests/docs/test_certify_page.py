"""The page about proofs shows what its commands print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.commands import output

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "prove-an-optimum.md").read_text()
TOOK = re.compile(r", [\d.]+ (s|ms|min)\)")


def test_the_page_shows_what_its_first_command_prints(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    [shown] = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    words = re.findall(r"^\$ cosmic (.*)", PAGE, re.MULTILINE)[0].split()
    printed = output(capsys, *words)
    assert TOOK.sub(")", printed).rstrip() == TOOK.sub(")", shown).rstrip()


def test_the_page_shows_the_space_that_it_proves() -> None:
    assert (ROOT / "examples" / "proof" / "small.yaml").read_text() in PAGE
