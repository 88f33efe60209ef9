"""The one place that reads and writes files.

Reading takes regular files up to a stated size: a pipe may never answer, a device may never end. Writing is atomic: a
file is whole or absent. What fails is one sentence, an `Unreadable` or an `Unwritable`.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import IO, Any

from cosmic.errors import SpecError

LARGEST_BYTES = 256 * 2**20
"""The most that a description (YAML, JSON, CSV) may have."""
NO_NAME = "is no name that a file can have"
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class FileError(SpecError):
    """A file that cannot be read or written."""

    errno: int | None = None
    """The operating system's number of the error; None where the reason is ours."""
    done = "used"

    @classmethod
    def of(cls, where: str, path: str | Path, error: OSError | ValueError) -> FileError:
        """Return what the operating system says of *path*, as a sentence."""
        if not isinstance(error, OSError):  # a null character, or half of a surrogate pair
            return cls(where, str(path), NO_NAME)
        found = cls(where, str(path), f"cannot be {cls.done}: {error.strerror or error}")
        found.errno = error.errno
        return found


class Unreadable(FileError):  # noqa: N818  its base says that it is an error
    """A file that cannot be read."""

    done = "read"

    @property
    def missing(self) -> bool:
        """Whether there is no such file."""
        return self.errno in (errno.ENOENT, errno.ENOTDIR)


class Unwritable(FileError):  # noqa: N818  its base says that it is an error
    """A file that cannot be written."""

    done = "written"

    @property
    def no_room(self) -> bool:
        """Whether the disk is full."""
        return self.errno in (errno.ENOSPC, errno.EDQUOT)


# ------------------------------------------------------------------------------------------------------ reading


def read_bytes(path: str | Path, where: str = "file", most: int = LARGEST_BYTES) -> bytes:
    """Return the bytes of the regular file at *path*; messages name it by *where*."""
    with open_regular(path, where, most) as file:
        try:
            data = file.read(most + 1)
        except OSError as error:
            raise Unreadable.of(where, path, error) from None
    _check_size(len(data), path, where, most)
    return data


def read_text(path: str | Path, where: str = "file", most: int = LARGEST_BYTES) -> str:
    """Return the text of the regular file at *path*, which must be UTF-8."""
    try:
        return read_bytes(path, where, most).decode("utf-8")
    except UnicodeDecodeError:
        raise Unreadable(where, str(path), "is not text in UTF-8") from None


@contextmanager
def open_regular(path: str | Path, where: str = "file", most: int = LARGEST_BYTES) -> Iterator[IO[bytes]]:
    """Open the regular file at *path* for reading; anything else, and a file larger than *most*, is refused."""
    try:
        handle = os.open(path, _READ)  # does not wait for the other end of a pipe
    except (OSError, ValueError) as error:
        raise Unreadable.of(where, path, error) from None
    try:
        _check_regular(os.fstat(handle), path, where, most)
    except BaseException:
        os.close(handle)
        raise
    with os.fdopen(handle, "rb") as file:
        yield file


def _check_regular(about: os.stat_result, path: str | Path, where: str, most: int) -> None:
    if stat.S_ISDIR(about.st_mode):
        raise Unreadable(where, str(path), "is a directory, not a file")
    if not stat.S_ISREG(about.st_mode):
        raise Unreadable(where, str(path), "is no regular file: a pipe or a device may never end")
    _check_size(about.st_size, path, where, most)


def _check_size(size: int, path: str | Path, where: str, most: int) -> None:
    if size > most:
        raise Unreadable(where, str(path), f"has more than the {most / 2**20:,.0f} MiB that such a file may have")


# ------------------------------------------------------------------------------------------------------ writing


def write_text(path: str | Path, text: str, where: str = "file") -> None:
    """Write *text* to *path* as UTF-8: readers see the old file or the new one, never half of it."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"), where)


def write_bytes(path: str | Path, data: bytes, where: str = "file", *, durable: bool = True) -> None:
    """Write *data* to *path*: readers see the old file or the new one, never half of it."""
    with replacing(path, where, durable=durable) as beside, beside.open("wb") as file:
        file.write(data)


@contextmanager
def replacing(path: str | Path, where: str = "file", *, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path that replaces *path* when the block ends; if the block fails, remove it.

    A device or a pipe (``/dev/stdout``) is written in place. Of a symbolic link, the target is replaced. *durable*: the
    file also survives a loss of power, which takes milliseconds. An error of the operating system, in the block too, is
    an `Unwritable`.
    """
    _check_name(path, where)
    try:
        with _replacing(Path(path), durable) as beside:
            yield beside
    except OSError as error:
        raise Unwritable.of(where, path, error) from None


def _check_name(path: str | Path, where: str) -> None:
    try:
        known = b"\0" not in os.fsencode(path)
    except ValueError:
        known = False
    if not known:
        raise Unwritable(where, str(path), NO_NAME)


@contextmanager
def _replacing(path: Path, durable: bool) -> Iterator[Path]:
    if path.exists() and not path.is_file() and not path.is_dir():
        with _read_by_somebody(path):
            yield path
        return
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    place = path.resolve() if path.is_symlink() and path.exists() else path
    beside = place.with_name(f".{place.name[:100]}.{secrets.token_hex(6)}")
    try:
        yield beside
        if durable:
            with beside.open("rb+") as file:
                os.fsync(file.fileno())
        beside.replace(place)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def _read_by_somebody(path: Path) -> Iterator[None]:
    """Refuse a named pipe that nobody reads: to open it would wait for ever."""
    if not path.is_fifo():
        yield
        return
    handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        yield
    finally:
        os.close(handle)


def check_writable(path: str | Path, where: str = "file") -> None:
    """Refuse a target that cannot be written, before the work of an hour is lost."""
    _check_name(path, where)
    target = Path(path)
    try:
        folder = target.resolve().parent
        refused = {
            errno.EISDIR: target.is_dir(),
            errno.ENOENT: not folder.is_dir(),
            errno.EACCES: not os.access(target if target.exists() else folder, os.W_OK),
        }
    except OSError as error:
        raise Unwritable.of(where, path, error) from None
    for number in (number for number, holds in refused.items() if holds):
        raise Unwritable.of(where, path, OSError(number, os.strerror(number)))


def make_folder(path: str | Path, where: str = "file") -> Path:
    """Return the directory *path*, made with its parents where it is missing."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise Unwritable.of(where, path, error) from None
    return folder


# --------------------------------------------------------------------------------------------------------- JSON


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
