"""Constants are read with their units, and each says where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

from cosmic.base.errors import SpecError
from cosmic.design.catalog_entries import CATALOG_FOLDER, load_constants


@dataclass(frozen=True)
class Ramp:
    """A group of constants."""

    ramp_s: float


@dataclass(frozen=True)
class Constants:
    """The constants of a file."""

    share: float
    first: Ramp
    sizes: tuple[int, ...]


STATED = 'source: "a trace", set_by: by hand'
FILE = f"""
share: {{value: 0.5, {STATED}}}
first:
  ramp: {{value: 2 us, {STATED}}}
sizes: {{value: [64, 128], {STATED}}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(import_module("cosmic.design.catalog_entries"), "CATALOG_FOLDER", tmp_path)
    (tmp_path / "constants").mkdir()
    return tmp_path / "constants"


def test_constants_are_read_in_groups_and_with_their_units(folder: Path) -> None:
    (folder / "one.yaml").write_text(FILE)
    assert load_constants("one", Constants) == Constants(0.5, Ramp(2e-6), (64, 128))


@pytest.mark.parametrize(
    ("before", "after", "where"),
    [
        (f"share: {{value: 0.5, {STATED}}}", "share: 0.5", "one.share"),
        ("{value: 2 us, " + STATED, '{value: 2 us, source: "a trace"', "one.first.ramp"),
        ("{value: 2 us, " + STATED, "{value: 2 us, set_by: by hand", "one.first.ramp"),
        ("{value: 2 us, " + STATED, "{value: 2 us, unit: us, " + STATED, "one.first.ramp"),
        ("2 us", "2", "one.first.ramp"),
        ("2 us", "2 MB", "one.first.ramp"),
        ("share", "shares", "one.shares"),
    ],
)
def test_a_constant_without_source_or_unit_is_refused(folder: Path, before: str, after: str, where: str) -> None:
    assert before in FILE
    (folder / "one.yaml").write_text(FILE.replace(before, after))
    with pytest.raises(SpecError) as error:
        load_constants("one", Constants)
    assert error.value.where == where


def test_scripts_that_files_name_are_there() -> None:
    root = Path(__file__).parents[3]
    for path in (CATALOG_FOLDER / "constants").glob("*.yaml"):
        for line in path.read_text().splitlines():
            if "calibration/" in line:
                script = line.partition("calibration/")[2].partition(".py")[0]
                assert (root / "calibration" / f"{script}.py").exists()
