"""What an installation does: `hatch_build.py` with hatchling's interface left out, which only builds have."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cosmic.base.native.library import platform_tag

ROOT = Path(__file__).parents[3]
HOOK = ROOT / "hatch_build.py"
SOURCE = ROOT / "src" / "cosmic"
WITH_COMPILER = pytest.param("", marks=pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler"))


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module of the hook, with a base class in place of hatchling's."""

    class Interface:
        def __init__(self, root: Path) -> None:
            self.root = str(root)

    names = ["hatchling", "builders", "hooks", "plugin", "interface"]
    for end in range(1, len(names) + 1):
        monkeypatch.setitem(sys.modules, ".".join(names[:end]), ModuleType(names[end - 1]))
    sys.modules[".".join(names)].BuildHookInterface = Interface  # type: ignore[attr-defined]
    spec = importlib.util.spec_from_file_location("hatch_build", HOOK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of what a build reads, without a library."""
    to = tmp_path / "tree" / "src" / "cosmic" / "base"
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(SOURCE / "base" / "native", to / "native", ignore=ignored)
    return tmp_path / "tree"


def run(hook: ModuleType, tree: Path, version: str) -> dict[str, Any]:
    """Return what a build is told; the library of a wheel is copied to the tree before it is removed."""
    made = hook.NativeLibrary(tree)
    data: dict[str, Any] = {"force_include": {}, "pure_python": True}
    made.initialize(version, data)
    for path in data["force_include"]:
        shutil.copy(path, tree)
    made.finalize(version, data, "the.whl")
    assert not any(Path(path).exists() for path in data["force_include"])
    return data


@pytest.mark.long
@pytest.mark.parametrize("stated", [WITH_COMPILER])
def test_a_wheel_with_a_library_is_for_this_platform(
    hook: ModuleType, tree: Path, monkeypatch: pytest.MonkeyPatch, stated: str
) -> None:
    monkeypatch.setenv("CC", stated)
    data = run(hook, tree, "standard")
    assert data["pure_python"] is False
    assert re.fullmatch(r"py3-none-\w+", data["tag"])
    (place,) = data["force_include"].values()
    assert re.fullmatch(rf"cosmic/base/native/_native-[0-9a-f]{{12}}\.{platform_tag()}\.so", place)
    assert not list((tree / "src").rglob("*.so")), "the source stays as it is"


@pytest.mark.long
@pytest.mark.parametrize("stated", [WITH_COMPILER])
def test_an_editable_installation_has_it_in_the_source(
    hook: ModuleType, tree: Path, monkeypatch: pytest.MonkeyPatch, stated: str
) -> None:
    monkeypatch.setenv("CC", stated)
    data = run(hook, tree, "editable")
    assert data == {"force_include": {}, "pure_python": True}
    assert len(list((tree / "src" / "cosmic" / "base" / "native").glob("_native-*.so"))) == 1


@pytest.mark.parametrize("version", ["standard", "editable"])
def test_without_a_compiler_a_build_succeeds_and_says_so(
    hook: ModuleType,
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    version: str,
) -> None:
    monkeypatch.setenv("CC", "false")
    assert run(hook, tree, version) == {"force_include": {}, "pure_python": True}
    assert not list(tree.rglob("*.so"))
    assert re.fullmatch(r"cosmic: built without its native library, .*\n", capsys.readouterr().err)


def test_the_hook_needs_nothing_that_a_build_does_not_have() -> None:
    script = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); import cosmic.base.native.build"
    subprocess.run([sys.executable, "-S", "-I", "-c", script], check=True)


@pytest.mark.parametrize(
    ("python", "machine", "expected"),
    [
        ("linux-x86_64", "x86_64", "linux_x86_64"),
        ("linux-aarch64", "aarch64", "linux_aarch64"),
        ("macosx-10.13-universal2", "arm64", "macosx_11_0_arm64"),
        ("macosx-14.0-arm64", "arm64", "macosx_14_0_arm64"),
        ("macosx-10.13-universal2", "x86_64", "macosx_10_13_x86_64"),
        ("win-amd64", "", "win_amd64"),
    ],
)
def test_the_tag_is_of_the_machine_that_it_was_compiled_for(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, python: str, machine: str, expected: str
) -> None:
    class Machine:
        def __init__(self) -> None:
            self.machine = machine

    monkeypatch.delenv("MACOSX_DEPLOYMENT_TARGET", raising=False)
    monkeypatch.setattr(sysconfig, "get_platform", lambda: python)
    monkeypatch.setattr(os, "uname", Machine)
    assert hook.platform() == expected
