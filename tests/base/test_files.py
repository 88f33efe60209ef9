"""Files are written whole, what is no file is not replaced by one, and only regular files of some size are read."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from time import sleep

import pytest

from cosmic.base import files
from cosmic.base.files import (
    Unreadable,
    Unwritable,
    check_folder,
    check_writable,
    exists,
    is_file,
    is_folder,
    make_folder,
    read_bytes,
    read_text,
    write_all,
    write_text,
)


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for text in ("one", "two"):
        write_text(path, text)
        assert path.read_text() == text
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read: list[str] = []
    reader = Thread(target=lambda: read.append(path.read_text()))
    reader.start()
    for _ in range(1000):
        with suppress(Unwritable):  # until the reader is there
            write_text(path, "text")
            break
        sleep(0.01)
    reader.join(10)
    assert read == ["text"]
    assert path.is_fifo()


def test_a_directory_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(Unwritable, match=r"folder.*: cannot be written: Is a directory"):
        write_text(tmp_path / "folder", "text")
    assert os.listdir(tmp_path) == ["folder"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "a.txt")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "a.txt").read_text() == "new"


def test_a_pipe_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Unwritable, match="cannot be written: No such device or address"):
        write_text(tmp_path / "pipe", "text")


def test_a_full_disk_is_a_sentence() -> None:
    with pytest.raises(Unwritable, match="cannot be written: No space left") as caught:
        write_text("/dev/full", "text", "--out")
    assert caught.value.no_room
    assert str(caught.value).startswith("--out = '/dev/full'")


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", tmp_path / "pipe"):
        with pytest.raises(Unreadable, match="is no regular file"):
            read_bytes(path)
    with pytest.raises(Unreadable, match="is a directory, not a file"):
        read_bytes(tmp_path)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(2**21)
    assert len(read_bytes(path, most=2**21)) == 2**21
    with pytest.raises(Unreadable, match=r"--plan.*has more than the 1 MiB"):
        read_bytes(path, "--plan", most=2**20)


@pytest.mark.parametrize("name", ["a\0b", "a\ud800", "n" * 300, "missing/a.txt"])
def test_names_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    for attempt in (lambda path: write_text(path, ""), check_writable):
        with pytest.raises(Unwritable, match=r"is no name that a file can have|too long|[Nn]o such|no directory"):
            attempt(tmp_path / name)
    with pytest.raises(Unreadable, match=r"is no name that a file can have|too long|No such"):
        read_bytes(tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Unreadable) as caught:
        read_text(tmp_path / "a.txt")
    assert caught.value.missing
    (tmp_path / "a.txt").write_bytes(b"\xff")
    with pytest.raises(Unreadable, match="is not text in UTF-8") as caught:
        read_text(tmp_path / "a.txt")
    assert not caught.value.missing


def test_a_folder_cannot_be_made_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(Unwritable, match="cannot be written: Not a directory"):
        make_folder(tmp_path / "a.txt" / "b")
    assert make_folder(tmp_path / "b" / "c").is_dir()


def test_what_can_be_no_path_names_nothing(tmp_path: Path) -> None:
    for name in ("a\0b", "a\ud800", "n" * 300, str(tmp_path / "missing")):
        assert not exists(name)
        assert not is_file(name)
        assert not is_folder(name)
    assert exists("/dev/zero")
    assert not is_file("/dev/zero")
    assert is_folder(tmp_path)


@pytest.mark.parametrize("letter", ["n", "\N{FACE WITH TEARS OF JOY}"])
def test_the_longest_names_are_written(tmp_path: Path, letter: str) -> None:
    path = tmp_path / (letter * (255 // len(letter.encode())))
    check_writable(path)
    write_text(path, "text")
    assert path.read_text() == "text"


def test_permissions_are_kept_and_a_protected_file_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(0o600)
    write_text(path, "new")
    assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(os, "access", lambda *_, **__: False)  # root may write all files
    with pytest.raises(Unwritable, match="cannot be written: Permission denied"):
        write_text(path, "newer")
    with pytest.raises(Unwritable, match="cannot be written: Permission denied"):
        check_writable(path)
    assert path.read_text() == "new"


def test_a_link_to_nothing_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a.txt")
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a.txt").read_text() == "text"


def test_a_folder_is_checked_before_it_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check_folder(tmp_path / "new" / "folder")
    assert os.listdir(tmp_path) == ["file"]
    for wrong in (tmp_path / "file", tmp_path / "file" / "folder", "n" * 300, "a\0b"):
        with pytest.raises(Unwritable, match=r"^--out = .*(Not a directory|too long|is no name)"):
            check_folder(wrong, "--out")


# ---- files that belong together


def test_files_that_belong_together_are_all_written(tmp_path: Path) -> None:
    for text in ("one", "two"):
        assert write_all([(tmp_path / "a", text), (tmp_path / "b", text.encode())]) == 6
        assert [(tmp_path / name).read_text() for name in sorted(os.listdir(tmp_path))] == [text, text]


def _broken(folder: Path, error: BaseException) -> Iterator[tuple[Path, str]]:
    yield folder / "a", "new"
    raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left"), ValueError("wrong")])
def test_if_one_fails_the_old_ones_stay(tmp_path: Path, error: BaseException) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(Unwritable if isinstance(error, OSError) else type(error)):
        write_all(_broken(tmp_path, error))
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_if_one_cannot_be_moved_the_others_are_moved_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("old")
    move = files._WriteTarget.move

    def fails(target: files._WriteTarget, beside: Path) -> None:
        if target.place.name == "c":
            raise OSError(5, "Input/output error")
        move(target, beside)

    monkeypatch.setattr(files._WriteTarget, "move", fails)
    with pytest.raises(Unwritable, match=r"--out = .*c': cannot be written: Input/output error"):
        write_all([(tmp_path / name, "new") for name in "abc"], "--out")
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_ctrl_c_during_the_moves_comes_after_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    move = files._WriteTarget.move

    def interrupted(target: files._WriteTarget, beside: Path) -> None:
        signal.raise_signal(signal.SIGINT)
        move(target, beside)

    monkeypatch.setattr(files._WriteTarget, "move", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_all([(tmp_path / name, "new") for name in "ab"])
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
