"""Rules for the whole project: public names, modules, files, dependencies."""

from __future__ import annotations

import importlib
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import cosmic
from cosmic.design import catalog_entries
from tests.batches import check_all

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "cosmic"
MODULES = sorted(module.name for module in pkgutil.walk_packages(cosmic.__path__, "cosmic."))
TEXT = {".py", ".md", ".yaml", ".yml", ".toml", ".json", ".csv", ".txt", ".ts", ".tsx", ".sh", ".cfg", ".html", ".css"}
BUILT = {"__pycache__", "node_modules", "build", "dist", "site", "runs"}
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:tmp|work|root|home|Users)/[\w.]")


def text_files() -> Iterator[Path]:
    """Yield the text files of the project, without build outputs."""
    pending = [ROOT]
    while pending:
        for path in sorted(pending.pop().iterdir()):
            hidden = path.name.startswith(".") and path.name not in (".ci", ".github")
            if path.is_dir() and not (hidden or path.name in BUILT):
                pending.append(path)
            elif path.suffix in TEXT and path.is_file():
                yield path


def test_public_names_are_few_importable_and_documented() -> None:
    assert sorted(cosmic.__all__) == cosmic.__all__ == dir(cosmic)
    assert len(cosmic.__all__) <= 25
    for name in cosmic.__all__:
        assert name == "__version__" or (getattr(cosmic, name).__doc__ or "").strip(), name


def test_an_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'cosmic' has no attribute 'evalute'"):
        _ = cosmic.evalute  # type: ignore[attr-defined]


@check_all("name", [name for name in MODULES if name != "cosmic.__main__"])
def test_every_module_imports_and_has_a_docstring(name: str) -> None:
    assert (importlib.import_module(name).__doc__ or "").strip()


def test_only_the_command_line_prints() -> None:
    printing = re.compile(r"(?<![\w.])print\(")
    example = re.compile(r"^\s*(?:>>>|\.\.\.) .*$", re.MULTILINE)  # examples in docstrings may print
    names = [path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if "cli" not in path.parts]
    assert len(names) > 100
    assert [name for name in sorted(names) if printing.search(example.sub("", (SOURCE / name).read_text()))] == []


@pytest.mark.parametrize("kind", catalog_entries.KINDS)
def test_every_entry_of_the_catalog_has_a_source(kind: str) -> None:
    names = catalog_entries.entry_names(kind)
    assert names
    assert [name for name in names if not str(catalog_entries.read_entry(kind, name).get("source") or "").strip()] == []


def test_no_file_contains_a_path_of_a_developer_s_machine() -> None:
    files = list(text_files())
    assert len(files) > 100
    found = {
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if MACHINE_PATH.search(line)
    }
    assert found == set()


def test_dependencies_have_lower_bounds_only() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"].get("optional-dependencies", {})
    wanted = [*project["project"]["dependencies"], *(each for extra in extras.values() for each in extra)]
    wanted += project["build-system"]["requires"]
    assert [each for each in wanted if not re.fullmatch(r"[\w.-]+(\[[\w,-]+\])?>=[\d.]+", each)] == []
    assert re.fullmatch(r">=3\.\d+", project["project"]["requires-python"])


def test_the_version_is_stated_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", cosmic.__version__)
