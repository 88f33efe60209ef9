"""The page of published mappings says what the program computes: some of its runs are searched again."""

from __future__ import annotations

import csv
from pathlib import Path
from runpy import run_path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "published-mappings.md"
PROGRAM = run_path(str(ROOT / "benchmarks" / "published_mappings.py"))


@pytest.mark.long
@pytest.mark.parametrize("name", ["mbridge-241", "titan-t2-1"])
def test_a_run_of_the_page_is_what_a_search_finds(name: str) -> None:
    with PROGRAM["CARRIED"].open(newline="") as file:
        row = next(each for each in csv.DictReader(file) if each["id"] == name)
    found = PROGRAM["judged"](row, {})
    assert PROGRAM["framework_of"](row)
    assert found["proven"]
    line = f"| {name} | {found['published']}: {found['published_s']:.2f} | {found['best']}: {found['best_s']:.2f} "
    assert f"{line}| {found['ratio']:.2f} | {'; '.join(found['differences'])} |" in PAGE.read_text()
