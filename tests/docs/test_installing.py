"""What the documentation and the errors say to install can be installed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
TEXTS = [
    path
    for pattern in ("*.md", "docs/**/*.md", "src/**/*.py", "examples/**/*.py", "examples/*.ipynb", "calibration/**/*")
    for path in sorted(ROOT.glob(pattern))
    if path.suffix in (".md", ".py", ".ipynb")
]
OTHERS = {"uv", "", "sb3-contrib", "{package}", "optuna", "scikit-learn"}
"""What else is installed: other packages by their name, and this one from a clone."""


def wrong_words(text: str) -> list[str]:
    """Return what *text* says to install that cannot be installed."""
    wrong = ["cosmic-codesign["] if "cosmic-codesign[" in text else []  # the project is on no index
    for word in re.findall(r"pip install +(?:-\S+ +)*([^\s,;:)]+)", text):
        bare = word.strip("`'\"\\")
        extra = re.fullmatch(r"\.\[(\{?\w+\}?)\]?.*", bare)
        known = extra[1] in EXTRAS | {"{extra}"} if extra else bare.rstrip(".`'\"") in OTHERS
        wrong += [] if known else [word]
    return wrong + [extra for extra in re.findall(r"--extra ([\w{}]+)", text) if extra not in EXTRAS | {"NAME"}]


def test_what_is_to_be_installed_is_in_the_clone_or_a_package() -> None:
    assert {str(path.relative_to(ROOT)): wrong for path in TEXTS if (wrong := wrong_words(path.read_text()))} == {}
    assert wrong_words("pip install 'cosmic-codesign[web]', pip install '.[wbe]', uv run --extra serch") != []


def test_every_extra_that_code_asks_for_exists() -> None:
    asked = {
        found
        for path in (ROOT / "src").rglob("*.py")
        for found in re.findall(r'\bimport_optional\([^,()]+, "(\w+)"', path.read_text())
    }
    assert {"search", "web", "ray", "gym"} <= asked <= EXTRAS


def test_every_extra_is_in_the_quickstart() -> None:
    said = set(re.findall(r"pip install '\.\[(\w+)\]'", (ROOT / "docs" / "tutorials" / "quickstart.md").read_text()))
    assert said == EXTRAS - {"dev"}
