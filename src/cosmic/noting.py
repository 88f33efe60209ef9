"""Which files are read while something runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOTES: list[set[str]] = []
"""What `noting_reads` is filling, by any thread."""


@contextmanager
def noting_reads() -> Iterator[set[str]]:
    """Yield a set that gets the path of every file that is read while the block runs, as it was written."""
    noted: set[str] = set()
    _NOTES.append(noted)
    try:
        yield noted
    finally:
        _NOTES.remove(noted)


def note_read(path: str | Path) -> None:
    """Note a file that others read: Python, for example, which imports it."""
    for noted in _NOTES:
        noted.add(str(path))
