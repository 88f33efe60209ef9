"""The one place that reads and writes files.

Reading takes regular files up to a stated size: a pipe may never answer, a device may never end. Writing is atomic: a
file is whole or absent. What fails is one sentence, an `Unreadable` or an `Unwritable`. While `record_reads` is open,
the path of every file that is read is noted.
"""

from __future__ import annotations

import csv
import errno
import json
import os
import signal
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, is_dataclass
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import IO, Any, Self

from cosmic.base.errors import SpecError

# ---- Which files are read while something runs

_READ_NOTES: list[set[str]] = []
"""What `record_reads` is filling, by any thread."""


@contextmanager
def record_reads() -> Iterator[set[str]]:
    """Yield a set that gets the path of every file that is read while the block runs, as it was written."""
    noted: set[str] = set()
    _READ_NOTES.append(noted)
    try:
        yield noted
    finally:
        _READ_NOTES.remove(noted)


def note_read(path: str | Path) -> None:
    """Note a file that others read: Python, for example, which imports it."""
    for noted in _READ_NOTES:
        noted.add(str(path))


# ---- The one place that reads and writes files

LARGEST_BYTES = 256 * 2**20
"""The most that a description (YAML, JSON, CSV) may have."""
_BLOCK = 2**16
"""Files of the kernel say that they have no bytes."""
DASH = "-"
"""What other programs call their standard output; a file of this name would be a mistake."""
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
        failure = cls(where, str(path), f"cannot be {cls.done}: {error.strerror or error}")
        failure.errno = error.errno
        return failure

    def inside(self, outer: str) -> Self:
        """Return the same error one level further out: *outer* precedes its place."""
        failure = super().inside(outer)
        failure.errno = self.errno
        return failure


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
    def unread(self) -> bool:
        """Whether it is a pipe whose reader has gone."""
        return self.errno == errno.EPIPE

    @property
    def no_room(self) -> bool:
        """Whether the disk is full."""
        return self.errno in (errno.ENOSPC, errno.EDQUOT)


# ---- looking


def exists(path: str | Path) -> bool:
    """Return whether there is anything at *path*; text that can be no path names nothing."""
    return _stat_path(path) is not None


def is_file(path: str | Path) -> bool:
    """Return whether there is a regular file at *path*; text that can be no path names none."""
    about = _stat_path(path)
    return about is not None and stat.S_ISREG(about.st_mode)


def is_folder(path: str | Path) -> bool:
    """Return whether there is a directory at *path*; text that can be no path names none."""
    about = _stat_path(path)
    return about is not None and stat.S_ISDIR(about.st_mode)


def _stat_path(path: str | Path) -> os.stat_result | None:
    """Return what is at *path*: `Path.exists` raises for long names, on some versions of Python."""
    try:
        return os.stat(path)
    except (OSError, ValueError):
        return None


# ---- reading


def read_bytes(path: str | Path, where: str = "file", most: int = LARGEST_BYTES) -> bytes:
    """Return the bytes of the regular file at *path*; messages name it by *where*."""
    with open_regular(path, where, most) as file:
        try:
            size = max(os.fstat(file.fileno()).st_size, _BLOCK)
            data = file.read(min(most, size) + 1)  # as much as it may read is reserved
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
        _check_regular(os.stat(path), path, where, most)  # first: to open a device may start something
        handle = os.open(path, _READ)  # does not wait for the other end of a pipe
    except SpecError:  # a ValueError too
        raise
    except (OSError, ValueError) as error:
        raise Unreadable.of(where, path, error) from None
    try:
        _check_regular(os.fstat(handle), path, where, most)
    except BaseException:
        os.close(handle)
        raise
    note_read(path)
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


# ---- writing


def write_text(path: str | Path, text: str, where: str = "file") -> None:
    """Write *text* to *path* as UTF-8: readers see the old file or the new one, never half of it."""
    write_bytes(path, _encode_content(text), where)


def write_bytes(path: str | Path, data: bytes, where: str = "file", *, durable: bool = True) -> None:
    """Write *data* to *path*: readers see the old file or the new one, never half of it."""
    with replace_file(path, where, durable=durable) as beside, beside.open("wb") as file:
        file.write(data)


def _encode_content(content: str | bytes) -> bytes:
    return content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content


def _unique_token() -> str:
    """Return a name that no other process takes."""
    return os.urandom(6).hex()


@contextmanager
def replace_file(path: str | Path, where: str = "file", *, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path that replaces *path* when the block ends; if the block fails, remove it.

    A device or a pipe (``/dev/stdout``) is written in place. Of a symbolic link, the target is replaced. *durable*: the
    file also survives a loss of power, which takes milliseconds. An error of the operating system, in the block too, is
    an `Unwritable`.
    """
    _check_name(path, where)
    try:
        with _replace_target(Path(path), durable) as beside:
            yield beside
    except OSError as error:
        raise Unwritable.of(where, path, error) from None


def _check_name(path: str | Path, where: str) -> None:
    try:
        encodable = b"\0" not in os.fsencode(path)
    except ValueError:
        encodable = False
    if not encodable:
        raise Unwritable(where, str(path), NO_NAME)
    if str(path) == DASH:
        raise Unwritable(where, DASH, "is no file's name; name a file, or /dev/stdout for standard output")


@dataclass(frozen=True, slots=True)
class _WriteTarget:
    """The target of a write: its path with links followed, and the file that is there now."""

    place: Path
    about: os.stat_result | None

    @classmethod
    def at(cls, path: Path) -> _WriteTarget:
        """Return the target at *path*; raise an `OSError` if it can never be written."""
        try:
            about = os.stat(path)
        except FileNotFoundError:
            about = None
        if about is not None and stat.S_ISDIR(about.st_mode):
            raise _os_error(errno.EISDIR)
        if about is not None and not os.access(path, os.W_OK, effective_ids=_EFFECTIVE):
            raise _os_error(errno.EACCES)  # a file that was protected is not replaced
        target = cls(path, about)
        return cls(Path(os.path.realpath(path)), about) if not target.in_place and os.path.islink(path) else target

    @property
    def in_place(self) -> bool:
        """Whether it is a device or a pipe."""
        return self.about is not None and not stat.S_ISREG(self.about.st_mode)

    def beside(self, ending: str) -> Path:
        """Return a temporary path in the same directory; a name of 50 letters fits, whatever their alphabet."""
        return self.place.with_name(f".{self.place.name[:50]}.{ending}")

    def move(self, beside: Path) -> None:
        """Move a temporary file to its place, with the permissions of what was there."""
        if self.about is not None:
            beside.chmod(stat.S_IMODE(self.about.st_mode))
        os.replace(beside, self.place)


_EFFECTIVE = os.access in os.supports_effective_ids


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@contextmanager
def _replace_target(path: Path, durable: bool) -> Iterator[Path]:
    target = _WriteTarget.at(path)
    if target.in_place:
        with _require_pipe_reader(path):
            yield path
        return
    beside = target.beside(_unique_token())
    try:
        yield beside
        if durable:
            with beside.open("rb+") as file:
                os.fsync(file.fileno())
        target.move(beside)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def _require_pipe_reader(path: Path) -> Iterator[None]:
    """Refuse a named pipe that nobody reads: to open it would wait for ever."""
    if not path.is_fifo():
        yield
        return
    handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        yield
    finally:
        os.close(handle)


# ---- files that belong together


def write_all(contents: Iterable[tuple[str | Path, str | bytes]], where: str = "file") -> int:
    """Write files that belong together, and return their bytes: if one cannot be written, none is.

    All are written beside their places first and then moved, so that an interruption leaves what was there before. What
    was there is gone for the instant of the move. Not durable: there may be thousands.
    """
    token, moves, written = _unique_token(), list[tuple[Path, _WriteTarget]](), 0
    path: str | Path = ""
    try:
        for path, content in contents:
            _check_name(path, where)
            target, data = _WriteTarget.at(Path(path)), _encode_content(content)
            written += len(data)
            if target.in_place:
                write_bytes(path, data, where)
                continue
            beside = target.beside(f"{token}.{len(moves)}")
            moves.append((beside, target))
            with open(beside, "wb", buffering=0) as file:
                _write_out(file, data)
        with _defer_signals():
            _move_all(moves, where)
    except BaseException as error:
        for beside, _ in moves:
            beside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise Unwritable.of(where, path, error) from None
        raise
    return written


def _write_out(file: IO[bytes], data: bytes) -> None:
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[file.write(remaining) :]


def _move_all(moves: list[tuple[Path, _WriteTarget]], where: str) -> None:
    """Move files to their places; if one cannot be moved, put back what was there."""
    moved: list[tuple[Path | None, _WriteTarget]] = []
    try:
        for beside, target in moves:
            try:
                old = _set_aside(beside, target)
                moved.append((old, target))
                target.move(beside)
            except OSError as error:
                raise Unwritable.of(where, target.place, error) from None
    except BaseException:
        for old, target in reversed(moved):
            with suppress(OSError):
                if old is not None:
                    os.replace(old, target.place)
                elif target.about is None:
                    target.place.unlink(missing_ok=True)
        raise
    for old, _ in moved:
        if old is not None:
            old.unlink(missing_ok=True)


def _set_aside(beside: Path, target: _WriteTarget) -> Path | None:
    """Move the present file aside, and return its new path.

    To move the new file over it would be slow: file systems then write the new one to the disk at once.
    """
    if target.about is None:
        return None
    old = beside.with_name(f"{beside.name}.old")
    os.replace(target.place, old)
    return old


@contextmanager
def _defer_signals() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM until the block ends."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread is interrupted
        yield
        return
    caught: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    ours = {number: handler for number, handler in before.items() if handler is not None}
    for our in ours:
        signal.signal(our, lambda number, _: caught.append(number))
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
        if caught:
            signal.raise_signal(caught[0])


# ---- before the work


def check_writable(path: str | Path, where: str = "file") -> None:
    """Refuse a target that cannot be written, before the work of an hour is lost.

    A named pipe may find its reader later.
    """
    _check_name(path, where)
    try:
        target = _WriteTarget.at(Path(path))
        if not target.in_place:
            _probe_folder(target.beside(_unique_token()))
    except OSError as error:
        raise Unwritable.of(where, path, error) from None


def check_folder(path: str | Path, where: str = "file") -> None:
    """Refuse a directory in which no file can be written, or that cannot be made."""
    _check_name(path, where)
    folder = Path(path)
    try:
        while _is_missing(folder) and folder != folder.parent:
            folder = folder.parent
        _probe_folder(folder / f".{_unique_token()}")
    except OSError as error:
        raise Unwritable.of(where, path, error) from None


def _is_missing(path: Path) -> bool:
    try:
        os.stat(path)
    except FileNotFoundError:
        return True
    return False


def _probe_folder(path: Path) -> None:
    """Make a file and remove it: whether a directory can be written to is more than its permissions."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    path.unlink()


def make_folder(path: str | Path, where: str = "file") -> Path:
    """Return the directory *path*, made with its parents where it is missing."""
    _check_name(path, where)
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise Unwritable.of(where, path, error) from None
    return folder


def csv_text(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    r"""Return a table as CSV; numbers read back as they are.

    >>> csv_text(("name", "seconds"), [("a, b", 0.1), ("c", 2)])
    'name,seconds\n"a, b",0.1\nc,2\n'
    """
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def dump_json(data: Any, **options: Any) -> str:
    """Return *data* as JSON, with null for NaN and infinity, and an object for each dataclass.

    >>> dump_json({"regret": [1.0, float("nan")]})
    '{"regret": [1.0, null]}'
    """
    try:
        return json.dumps(data, allow_nan=False, default=_fields_of, **options)
    except ValueError:
        return json.dumps(_replace_nonfinite(data), default=_fields_of, **options)


def _fields_of(data: Any) -> Any:
    if is_dataclass(data) and not isinstance(data, type):
        from cosmic.base.json_types import json_object  # noqa: PLC0415  help prints no JSON

        return json_object(data)
    if isinstance(data, Path):
        return str(data)
    raise TypeError(f"{type(data).__name__} is no JSON")


def _replace_nonfinite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _replace_nonfinite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_replace_nonfinite(value) for value in data]
    if is_dataclass(data) or isinstance(data, Path):
        return _replace_nonfinite(_fields_of(data))
    return None if isinstance(data, float) and not isfinite(data) else data
