"""Atomic file writes, and strict JSON."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Write a temporary file and move it to *path*: readers see the old file or the new one, never half of it."""
    with replacing(path) as beside, beside.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        if beside != path:
            os.fsync(file.fileno())


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces *path* when the block ends; if the block fails, remove it.

    A device or a pipe (``/dev/stdout``) is written in place. Of a symbolic link, the target is replaced.
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


def json_text(data: Any, **options: Any) -> str:
    """Return *data* as JSON, with null for NaN and infinity.

    >>> json_text({"regret": [1.0, float("nan")]})
    '{"regret": [1.0, null]}'
    """
    try:
        return json.dumps(data, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_finite(data), **options)


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not isfinite(data) else data
