"""From the name of a study in a request to its files: every file of a request is opened here.

A request names a study, never a path. A name is one entry of the root that is a directory and no link. This package
alone names the files in it; they must be regular and are opened without following links. All else is "no such study".
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cosmic.base.errors import SpecError, require
from cosmic.report.live.request_checks import NOT_FOUND, Refusal
from cosmic.search.study.study import INPUTS, LOCK, TRIALS
from cosmic.search.study.trial_storage import StudyError

LONGEST_NAME = 200
MOST_STUDIES = 2000
"""Of a larger directory, the page lists the last changed."""
MOST_TEXT_BYTES = 2**24
"""A study's inputs are a few kilobytes; a larger file is refused."""
NEW_STUDY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
"""Names of studies that are started here; existing ones may have any name."""
_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | os.O_NONBLOCK  # do not block on a pipe


@dataclass(frozen=True, slots=True)
class StudyRoot:
    """The directory whose studies are shown."""

    path: Path
    """Its path with all links resolved."""
    shown: Path
    """Its path as the user gave it, for commands on the page."""

    @classmethod
    def resolve(cls, path: Path) -> StudyRoot:
        """Return the directory *path*, which need not exist yet."""
        try:
            resolved = path.resolve()
            is_other, is_study = resolved.exists() and not resolved.is_dir(), (resolved / INPUTS).exists()
        except (OSError, ValueError, RuntimeError):
            raise SpecError("DIR", str(path), "is no directory that can be read") from None
        require(not is_other, "DIR", str(path), "is no directory")
        require(not is_study, "DIR", str(path), "is a study itself; give the directory that holds it")
        return cls(resolved, path)

    def studies(self) -> list[str]:
        """Return the names of all studies, the last changed first."""
        dated: list[tuple[float, str]] = []
        with suppress(OSError), os.scandir(self.path) as entries:
            for entry in entries:
                with suppress(OSError):
                    if is_study_name(entry.name) and entry.is_dir(follow_symlinks=False):
                        changed = self._changed(Path(entry.path))
                        dated += [(changed, entry.name)] if changed is not None else []
        return [name for _, name in sorted(dated, reverse=True)[:MOST_STUDIES]]

    @staticmethod
    def _changed(folder: Path) -> float | None:
        """Return when a study was last written to; None for a directory that holds none."""
        times = []
        for name in (INPUTS, TRIALS, f"{TRIALS}-wal"):
            with suppress(OSError):
                about = (folder / name).lstat()
                times += [about.st_mtime] if about.st_size or name == INPUTS else []  # readers leave an empty log
        return max(times, default=None)

    def folder(self, study: str) -> Path:
        """Return the directory of a study: an entry of the root that is no link."""
        entry = self._entry(study)
        if entry is None:
            raise Refusal(NOT_FOUND, "study", study, "no such study")
        return entry

    def _entry(self, study: str) -> Path | None:
        if not is_study_name(study):
            return None
        folder = self.path / study
        try:
            is_folder = stat.S_ISDIR(folder.lstat().st_mode)
            inside = folder.resolve().is_relative_to(self.path)
        except (OSError, ValueError, RuntimeError):
            return None
        return folder if is_folder and inside and folder.parent == self.path else None

    def text(self, study: str, name: str) -> str:
        """Return the text of a file of a study."""
        try:
            return self._bytes(self.folder(study), name).decode()
        except (OSError, UnicodeDecodeError):
            raise StudyError(f"{study}: its {name} cannot be read; try 'cosmic study doctor'") from None

    @staticmethod
    def _bytes(folder: Path, name: str) -> bytes:
        inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
        try:
            handle = os.open(name, _READ_FLAGS, dir_fd=inside)
        finally:
            os.close(inside)
        with os.fdopen(handle, "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_size > MOST_TEXT_BYTES:
                raise OSError("is no regular file of a sensible size")
            return file.read(MOST_TEXT_BYTES)

    def stamp(self, study: str) -> tuple[int, ...]:
        """Return numbers that change when a study is written to; refuse one whose files are links or devices."""
        folder, parts = self.folder(study), []
        for name in (INPUTS, TRIALS, f"{TRIALS}-wal", f"{TRIALS}-shm", LOCK):
            try:
                about = (folder / name).lstat()
            except OSError:
                parts += [0, 0, 0]
                continue
            if not stat.S_ISREG(about.st_mode):
                raise StudyError(f"{study}: its {name} is no regular file")
            if name in (INPUTS, TRIALS, f"{TRIALS}-wal"):
                parts += [about.st_ino, about.st_size, about.st_mtime_ns] if about.st_size else [0, 0, 0]
        return tuple(parts[:9])

    def trials(self, study: str) -> Path:
        """Return the path of a study's trials, for SQLite, which opens files itself."""
        self.stamp(study)
        return self.folder(study) / TRIALS

    def make(self, name: str) -> Path:
        """Make and return a new directory in the root: *name*, or *name* with a number."""
        if not NEW_STUDY_NAME.fullmatch(name):
            rule = "give letters, digits, '.', '_' and '-', at most 80, the first a letter or digit"
            raise SpecError("name", name, rule)
        for count in range(1, 10_000):
            folder = self.path / (name if count == 1 else f"{name}-{count}")
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                folder.mkdir()
            except FileExistsError:
                continue
            except OSError as error:
                raise SpecError("name", name, f"cannot be written ({error.strerror})") from None
            return folder
        raise SpecError("name", name, "is taken: choose another")


def is_study_name(text: str) -> bool:
    r"""Return whether *text* can be the name of a study.

    >>> [is_study_name(each) for each in ("demo", "a b", "..", "a/b", ".git", "a\x00", "\ud800", "")]
    [True, True, False, False, False, False, False, False]
    """
    return bool(
        0 < len(text) <= LONGEST_NAME and text.isprintable() and not text.startswith(".") and not set(text) & set("/\\")
    )
