"""Every example runs."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

LONG = {"gymnasium_agent"}
"""Examples that take many seconds."""
EXAMPLES = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.long] if path.stem in LONG else [])
    for path in sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
]


@pytest.mark.parametrize("path", EXAMPLES)
def test_an_example_runs_and_prints_something(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()
