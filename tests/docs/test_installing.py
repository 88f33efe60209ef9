"""What the documentation and the errors say to install can be installed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
TEXTS = [
    path
    for pattern in ("*.md", "docs/**/*.md", "src/**/*.py", "examples/**/*.py", "examples/*.ipynb", "calibration/**/*")
    for path in sorted(ROOT.glob(pattern))
    if path.suffix in (".md", ".py", ".ipynb")
]
OTHERS = {"uv", ".", "sb3-contrib", "{package}", "optuna", "scikit-learn"}
"""What else is installed: other packages by their name, and this one from a clone."""


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_to_be_installed_is_in_the_clone_or_a_package(path: Path) -> None:
    text = path.read_text()
    assert "cosmic-codesign[" not in text, "the project is on no index"
    for word in re.findall(r"pip install +(?:-\S+ +)*([^\s,;:)]+)", text):
        bare = word.strip("`'\"\\")
        extra = re.fullmatch(r"\.\[(\{?\w+\}?)\]?.*", bare)
        if extra is not None:
            assert extra[1] in EXTRAS | {"{extra}"}, word
        else:
            assert bare.rstrip(".`'\"") in {each.rstrip(".") for each in OTHERS}, word
    for extra in re.findall(r"--extra ([\w{}]+)", text):
        assert extra in EXTRAS | {"NAME"}


def test_every_extra_that_code_asks_for_exists() -> None:
    asked = {
        found
        for path in (ROOT / "src").rglob("*.py")
        for found in re.findall(r'\bneeds\([^,()]+, "(\w+)"', path.read_text())
    }
    assert {"search", "web", "ray", "gym"} <= asked <= EXTRAS


def test_every_extra_is_in_the_quickstart() -> None:
    said = set(re.findall(r"pip install '\.\[(\w+)\]'", (ROOT / "docs" / "quickstart.md").read_text()))
    assert said == EXTRAS - {"dev"}
