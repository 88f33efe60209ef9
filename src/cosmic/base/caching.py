"""What processes keep on disk for those that come after them: recorded programs, suggested mappings, advice.

An entry is found by its kind and key, and by the digest of the sources that it follows from. It is a cache and nothing
more: where a folder cannot be written, or a file is damaged or another user's, there is no entry. ``COSMIC_CACHE``
names another folder, and turns the cache off where it is empty. It is off, too, where others have added to the
registries or to the catalog: then answers follow from files that are not looked at here.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

from cosmic.base.errors import CosmicError
from cosmic.base.files import read_bytes, replace_file
from cosmic.base.registry import PATH, entry_points


def digest(*parts: str | bytes) -> str:
    """Return the SHA-256 of *parts*, one after the other, as hexadecimal digits.

    >>> digest("abc")[:8], digest("a", b"bc") == digest("abc")
    ('ba7816bf', True)
    """
    state = sha256()
    for part in parts:
        state.update(part.encode() if isinstance(part, str) else part)
    return state.hexdigest()


FOLDER_VARIABLE = "COSMIC_CACHE"
"""Environment variable: another folder for the cache; none where it is empty."""
PACKAGE = Path(__file__).parents[1]
SOURCES = (
    "base",
    "cluster",
    "design",
    "network",
    "search/advice",
    "search/mapping",
    "serving",
    "simulate",
    "step",
    "workload",
)
FILES = ("evaluation.py",)
ENTRIES = ("models", "systems", "accelerators", "links", "spaces")
"""What entries of the cache follow from: packages, modules; not entries of the catalog, which are in their keys."""
GROUPS = ("schedules", "operator_kinds", "topologies", "collectives")
LARGEST = 2**24
"""Bytes that an entry may have."""
MOST_ENTRIES = 5_000
"""Entries of one kind and version."""
MOST_VERSIONS = 3
MARK = b"cosmic cache 1\n"
HEAD = len(MARK) + 32


def read_cached(kind: str, key: str) -> bytes | None:
    """Return what was kept for *key*; None if nothing was."""
    path = _entry_path(kind, key)
    try:
        if path is None or (hasattr(os, "geteuid") and path.stat().st_uid != os.geteuid()):
            return None
        data = read_bytes(path, most=LARGEST)
    except (CosmicError, OSError):
        return None
    # A process that was killed may have left half a file: the digest tells.
    intact = data.startswith(MARK) and sha256(data[HEAD:]).digest() == data[len(MARK) : HEAD]
    return data[HEAD:] if intact else None


def keep_cached(kind: str, key: str, content: bytes) -> None:
    """Keep *content* for other processes, if that can be."""
    path = _entry_path(kind, key)
    if path is None or len(content) > LARGEST - HEAD:
        return
    with suppress(CosmicError, OSError):
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, mode=0o700)
            _forget_old(path.parent)
        if sum(1 for _ in os.scandir(path.parent)) < MOST_ENTRIES:
            with replace_file(path, durable=False) as temporary:
                temporary.write_bytes(MARK + sha256(content).digest() + content)


def cache_folder() -> Path | None:
    """Return the folder of the cache; None where it is turned off."""
    setting = os.environ.get(FOLDER_VARIABLE)
    if setting is not None:
        return Path(setting).absolute() if setting else None
    parent = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    with suppress(RuntimeError):  # nobody's home
        return (Path(parent) if parent else Path.home() / ".cache") / "cosmic"
    return None


def _entry_path(kind: str, key: str) -> Path | None:
    inside = cache_folder()
    if inside is None or os.environ.get(PATH) or _has_extensions():
        return None
    return inside / kind / source_version() / digest(key)[:32]


@cache
def _has_extensions() -> bool:
    """Return whether other distributions add to the registries."""
    return any(True for group in GROUPS for _ in entry_points(f"cosmic.{group}"))


@cache
def source_version() -> str:
    """Return the digest of the sources."""
    excluded = {os.path.join("design", "catalog", name) for name in ENTRIES}
    paths = [*FILES]
    for room in SOURCES:
        for folder, folders, files in os.walk(PACKAGE / room):  # pathlib takes three times as long
            inside = os.path.relpath(folder, PACKAGE)
            folders[:] = [each for each in folders if os.path.join(inside, each) not in excluded]
            paths += [os.path.join(inside, each) for each in files if each.endswith((".py", ".yaml", ".c"))]
    ordered = sorted(paths, key=lambda path: path.split(os.sep))
    return digest(*(path.encode() + b"\0" + (PACKAGE / path).read_bytes() for path in ordered))[:16]


def _forget_old(newest: Path) -> None:
    """Remove the entries of all but the last few versions."""
    versions = sorted(
        (path for path in newest.parent.iterdir() if path != newest), key=lambda path: path.stat().st_mtime
    )
    for version in versions[: max(0, len(versions) + 1 - MOST_VERSIONS)]:
        for file in version.iterdir():
            file.unlink(missing_ok=True)
        version.rmdir()
