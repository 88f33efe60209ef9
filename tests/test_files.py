"""Files are written whole, what is no file is not replaced by one, and only regular files of some size are read."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread

import pytest

from cosmic.files import Unreadable, Unwritable, check_writable, make_folder, read_bytes, read_text, write_text


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
    write_text(path, "text")
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
