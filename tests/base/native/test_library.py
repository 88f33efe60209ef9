"""The compiled library: loaded if it belongs to its sources, and done without otherwise."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cosmic.base.native.build import NotBuilt, build, compiler, main
from cosmic.base.native.library import (
    FOLDER,
    SWITCH,
    library_file_name,
    load_library,
    native_library,
    platform_tag,
    source_digest,
    source_files,
)


def _has_compiler() -> bool:
    try:
        compiler()
    except NotBuilt:
        return False
    return True


needs_compiler = pytest.mark.skipif(not _has_compiler(), reason="this machine has no C compiler")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of the sources without a library."""
    made = tmp_path / "sources"
    made.mkdir()
    for path in source_files():
        shutil.copy(path, made)
    return made


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the smallest library that can be loaded, and its sources."""
    made = tmp_path_factory.mktemp("small")
    for name in ("native.c", "native.h"):
        shutil.copy(FOLDER / name, made)
    build(made)
    return made


@pytest.mark.long
@needs_compiler
def test_it_is_built_and_loaded(folder: Path) -> None:
    path, _ = build(folder)
    assert path.name == library_file_name(source_digest(folder))
    assert source_digest(folder) == source_digest()
    found = load_library(folder)
    assert found is not None
    assert found.cosmic_native_digest().decode() == source_digest()


@needs_compiler
def test_the_same_sources_give_the_same_bytes_wherever_they_lie(small: Path, tmp_path: Path) -> None:
    for path in source_files(small):
        shutil.copy(path, tmp_path)
    assert build(tmp_path)[0].read_bytes() == (small / library_file_name(source_digest(small))).read_bytes()


@needs_compiler
@pytest.mark.parametrize("name", ["native.c", "native.h"])
def test_an_edited_source_means_no_library_until_it_is_built_again(small: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(small, tmp_path, dirs_exist_ok=True)
    old = tmp_path / library_file_name(source_digest(tmp_path))
    with (tmp_path / name).open("a") as file:
        file.write("/* edited */\n")
    assert load_library(tmp_path) is None
    other = tmp_path / f"_native-{source_digest()}.elsewhere-riscv64.so"
    other.touch()
    built, _ = build(tmp_path)
    assert load_library(tmp_path) is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["native.c", "native.h", built.name, other.name]
    ), f"{old.name} is of no use any more"


@needs_compiler
def test_a_library_of_other_sources_is_not_loaded_whatever_its_name(small: Path, tmp_path: Path) -> None:
    shutil.copytree(small, tmp_path, dirs_exist_ok=True)
    old = tmp_path / library_file_name(source_digest(tmp_path))
    with (tmp_path / "native.c").open("a") as file:
        file.write("/* edited */\n")
    old.rename(tmp_path / library_file_name(source_digest(tmp_path)))
    assert load_library(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"no library"])
def test_what_cannot_be_loaded_is_no_library(folder: Path, content: bytes) -> None:
    (folder / library_file_name(source_digest(folder))).write_bytes(content)
    assert load_library(folder) is None


def test_without_sources_or_a_folder_there_is_no_library(tmp_path: Path) -> None:
    assert load_library(tmp_path) is None
    assert load_library(tmp_path / "missing") is None


def test_a_variable_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    assert native_library() is native_library()
    monkeypatch.setenv(SWITCH, "0")
    assert native_library() is None


@needs_compiler
def test_a_folder_that_cannot_be_written_is_loaded_from_and_not_built_in(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(small, tmp_path, dirs_exist_ok=True)
    tmp_path.chmod(0o555)
    try:
        assert load_library(tmp_path) is not None
    finally:
        tmp_path.chmod(0o755)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "there")

    monkeypatch.setattr(os, "replace", refuse)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(NotBuilt, match="Permission denied: there"):
        build(tmp_path)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("stated", "why"),
    [
        ("false", "false ended with 1: it said nothing"),
        ("no-such-compiler -O", "there is no compiler: no no-such-compiler"),
        ("'cc", "CC has a quote that is not closed"),
    ],
)
def test_a_compiler_that_fails_is_said_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, stated: str, why: str
) -> None:
    monkeypatch.setenv("CC", stated)
    before = sorted(folder.iterdir())
    with pytest.raises(NotBuilt, match=f"{why}$"):
        build(folder)
    assert sorted(folder.iterdir()) == before


def test_without_a_compiler_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotBuilt, match="there is no compiler: no cc, gcc, clang"):
        compiler()


@needs_compiler
@pytest.mark.long
def test_the_first_error_of_a_source_is_said(folder: Path) -> None:
    (folder / "wrong.c").write_text("int a = ;\n")
    with pytest.raises(NotBuilt, match=r"wrong\.c:1.*error"):
        build(folder)


def test_the_command_says_what_it_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cosmic.base.native.build.build", lambda: (tmp_path / "made.so", "a warning\n"))
    assert main() == 0
    assert capsys.readouterr() == (f"{tmp_path / 'made.so'}\n", "a warning\n")

    def fail() -> tuple[Path, str]:
        raise NotBuilt("no compiler")

    monkeypatch.setattr("cosmic.base.native.build.build", fail)
    assert main() == 1
    assert capsys.readouterr().err == "cosmic: built without its native library, which is optional: no compiler\n"


def test_importing_it_loads_nothing() -> None:
    script = "import sys, cosmic.base.native; sys.exit(bool({'ctypes', 'hashlib', 'subprocess'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_the_name_says_for_which_machine_it_is() -> None:
    assert platform_tag().startswith(f"{sys.platform}-")
    assert library_file_name("0" * 12) == f"_native-{'0' * 12}.{platform_tag()}.so"
