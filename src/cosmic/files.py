"""Files that are never seen half written."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write a file beside its place, then move it there: whoever reads sees the old one or the new one, whole."""
    with replacing(path) as beside, beside.open("x", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield where to write what takes the place of *path* once it is whole; nothing is left of what fails."""
    beside = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}")
    try:
        yield beside
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
