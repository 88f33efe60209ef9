"""Files are written whole, and what is no file is not replaced by one."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread

import pytest

from cosmic.files import write_text


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
    with pytest.raises(OSError, match=r"."):
        write_text(tmp_path / "folder", "text")
    assert os.listdir(tmp_path) == ["folder"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "a.txt")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "a.txt").read_text() == "new"
