"""Files that are never seen half written."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write a file beside its place, then move it there: whoever reads sees the old one or the new one, whole."""
    with replacing(path) as beside, beside.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        if beside != path:
            os.fsync(file.fileno())


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield where to write what takes the place of *path* once it is whole; nothing is left of what fails.

    That is *path* itself if it is a device or a pipe (``/dev/stdout``): they are nobody's to replace. Of a link, what
    it points to is replaced.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        yield path
        return
    place = path.resolve() if path.is_symlink() and path.exists() else path
    beside = place.with_name(f".{place.name[:100]}.{secrets.token_hex(6)}")
    try:
        yield beside
        beside.replace(place)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
