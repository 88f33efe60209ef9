"""What the project is built from: exact versions with hashes that name no index, true lower bounds, a citation."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import cosmic

ROOT = Path(__file__).parents[1]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ENVIRONMENTS = [
    {
        "python_version": version,
        "python_full_version": f"{version}.9",
        "sys_platform": system,
        "platform_system": system.title(),
        "platform_machine": machine,
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
    }
    for version, (system, machine) in itertools.product(
        ("3.11", "3.12", "3.13"), (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
    )
]

by_lock = pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)


class Pin(NamedTuple):
    """A line of a lock: what is installed, and the hashes of its files."""

    wanted: Requirement
    hashes: list[str]

    @property
    def version(self) -> str:
        """Return the version that is stated."""
        (only,) = self.wanted.specifier
        return only.version


def pins(lock: Path) -> list[Pin]:
    """Return the packages that a file of requirements states."""
    lines = lock.read_text().replace("\\\n", " ").splitlines()
    return [
        Pin(Requirement(words[0]), words[1:]) for words in (re.split(r"\s+--hash=", line.strip()) for line in lines)
    ]


def applied(lock: Path, environment: dict[str, str]) -> dict[str, str]:
    """Return the version of each package that is installed in an environment."""
    meant = [pin for pin in pins(lock) if pin.wanted.marker is None or pin.wanted.marker.evaluate(environment)]
    found: dict[str, str] = {canonicalize_name(pin.wanted.name): pin.version for pin in meant}
    assert len(found) == len(meant), "two versions of one package"
    return found


def installed() -> dict[str, list[str]]:
    """Return the extras that the tests install; of PyTorch, gigabytes for a GPU that is not there, a fake stands in."""
    extras = PROJECT["project"]["optional-dependencies"]
    return {name: wanted for name, wanted in extras.items() if name not in ("jax", "torch")}


def direct() -> list[Requirement]:
    """Return what pyproject.toml asks for: to run, in the extras, and to build."""
    extras = installed().values()
    wanted = [*PROJECT["project"]["dependencies"], *itertools.chain(*extras), *PROJECT["build-system"]["requires"]]
    return [Requirement(each) for each in wanted]


# ---- Python


def test_the_locks_are_those_that_ci_uses() -> None:
    assert [path.stem for path in LOCKS] == ["ci", "lowest", "uv"]
    scripts = "".join(path.read_text() for path in (ROOT / ".ci").iterdir())
    assert [path.name for path in LOCKS if f"requirements/{path.name}" not in scripts] == []
    assert "uv.lock" in (ROOT / ".gitignore").read_text().splitlines()  # it names an index
    assert not {"index", "index-url", "extra-index-url", "find-links", "sources"} & set(
        PROJECT.get("tool", {}).get("uv", {})
    )


@by_lock
def test_a_lock_states_versions_and_hashes_and_names_no_index(lock: Path) -> None:
    for pin in pins(lock):
        assert pin.wanted.url is None
        assert [each.operator for each in pin.wanted.specifier] == ["=="]
        assert pin.hashes
        assert [each for each in pin.hashes if not re.fullmatch(r"sha256:[0-9a-f]{64}", each)] == []
    assert re.findall(r"//|index|find-links|file:|@", lock.read_text()) == []


@pytest.mark.parametrize("lock", ["ci", "lowest"])
@pytest.mark.parametrize(
    "environment",
    ENVIRONMENTS,
    ids=lambda each: "-".join((each["python_version"], each["sys_platform"], each["platform_machine"])),
)
def test_a_lock_has_what_the_project_asks_for(lock: str, environment: dict[str, str]) -> None:
    found = applied(ROOT / "requirements" / f"{lock}.txt", environment)
    missing = [
        str(each)
        for each in direct()
        if not each.specifier.contains(found.get(canonicalize_name(each.name), "0"), prereleases=True)
    ]
    assert missing == [], "run: bash .ci/lock"


def test_the_lowest_versions_are_the_bounds_that_are_stated() -> None:
    lowest = applied(ROOT / "requirements" / "lowest.txt", ENVIRONMENTS[0])
    wrong = {
        f"{each}: {lowest[canonicalize_name(each.name)]}"
        for each in direct()
        if not Requirement(f"x=={lowest[canonicalize_name(each.name)]}").specifier.contains(
            next(iter(each.specifier)).version
        )
    }
    assert wrong == set(), "run: bash .ci/lock"


def test_a_package_of_two_extras_has_one_bound() -> None:
    bounds: dict[str, set[str]] = {}
    for each in direct():
        bounds.setdefault(canonicalize_name(each.name), set()).add(str(each.specifier))
    assert {name: found for name, found in bounds.items() if len(found) > 1} == {}


def test_the_tests_install_what_every_extra_does() -> None:
    extras = installed()
    dev = {Requirement(each).name for each in extras["dev"]}
    assert {Requirement(each).name for extra in extras.values() for each in extra} <= dev


# ---- front end


def test_the_front_end_is_built_from_exact_versions_with_hashes_that_name_no_registry() -> None:
    asked = json.loads((ROOT / "ui" / "package.json").read_text())
    lock = json.loads((ROOT / "ui" / "package-lock.json").read_text())
    packages: dict[str, dict[str, Any]] = lock["packages"]
    own = packages.pop("")
    for kind in ("dependencies", "devDependencies"):
        assert own[kind] == asked[kind], "run: bash .ci/lock"
        assert {name: packages[f"node_modules/{name}"]["version"] for name in asked[kind]} == asked[kind]
    assert packages
    assert [name for name, package in packages.items() if not package["integrity"].startswith("sha512-")] == []
    assert [name for name, package in packages.items() if "resolved" in package] == []


# ---- CI


def test_the_quick_tests_exist() -> None:
    lines = (ROOT / ".ci" / "quick-tests.txt").read_text().splitlines()
    tests = [line.partition("::") for line in lines if not line.startswith("-")]
    assert len(tests) > 20
    assert [file for file, _, name in tests if name and f"def {name}(" not in (ROOT / file).read_text()] == []
    assert [file for file, _, _ in tests if not (ROOT / file).exists()] == []


@pytest.mark.parametrize(
    "script", sorted(path for path in (ROOT / ".ci").iterdir() if not path.suffix), ids=lambda path: path.name
)
def test_a_script_of_ci_can_be_run(script: Path) -> None:
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in script.read_text()
    subprocess.run(["bash", "-n", script], check=True)


def test_a_python_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    for name, body in (("python3.98", "exit 127"), ("python3.97", "echo 3.11 /a/python")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    search = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYENV_ROOT": str(tmp_path)}
    for version in ("3.97", "3.98", "3.99"):
        ended = subprocess.run(
            [ROOT / ".ci" / "find-python", version], env=search, capture_output=True, text=True, check=False
        )
        assert (ended.returncode, ended.stdout) == (1, "")


# ---- citation


def test_the_citation_is_of_this_version_and_names_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == cosmic.__version__
    assert citation["license"] == PROJECT["project"]["license"]
    assert citation["keywords"] == PROJECT["project"]["keywords"]
    assert citation["abstract"] == PROJECT["project"]["description"]
    assert citation["authors"] == [{"name": "The COSMIC authors"}]
    (paper,) = citation["references"]
    assert paper["url"] in (ROOT / "README.md").read_text()
    assert paper["title"] in (ROOT / "README.md").read_text()
