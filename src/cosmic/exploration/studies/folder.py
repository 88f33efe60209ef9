"""The files of a study: regular files inside its directory, never links, pipes or devices.

A study may come from anybody. A link in it would make us read or overwrite a file elsewhere, and a pipe would make us
wait for ever. So its files are looked at before anything opens them.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

from cosmic.files import Unreadable, open_regular

INPUTS, TRIALS, LOCK, BEST, PAGE = "study.json", "trials.db", "lock", "best.yaml", "report.html"
MOST_INPUT_BYTES = 2**24
"""A study.json has a few kilobytes; a larger one is not read, nor written."""
MOST_TRIAL_BYTES = 2**40
"""The largest database that is opened."""
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")


def database_files(path: Path) -> tuple[Path, ...]:
    """Return the files that SQLite opens for the database *path*: itself, its log, the log's index, its journal."""
    return path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal"))


def study_files(folder: Path) -> tuple[Path, ...]:
    """Return the files that commands read and write in the study in *folder*, whether they are there or not."""
    return *database_files(folder / TRIALS), *(folder / name for name in (INPUTS, LOCK, BEST, PAGE))


def complaint(files: Iterable[Path]) -> str:
    """Return why *files* cannot be those of a study; an empty text where nothing is wrong with them."""
    for path in files:
        try:
            about = path.lstat()
        except (OSError, ValueError):  # it is not there, or whoever opens it will say why it cannot be read
            continue
        if not stat.S_ISREG(about.st_mode):
            return f"its {path.name} is {_kind(about.st_mode)}, and must be a file of its own: remove it"
        if about.st_size > MOST_TRIAL_BYTES:
            return f"its {path.name} has more than {MOST_TRIAL_BYTES // 2**40} TiB"
        if path.name.endswith("-journal") and _names_another(path):
            return f"its {path.name} names a file elsewhere: remove it"
    return ""


def _kind(mode: int) -> str:
    kinds = {
        "a link": stat.S_ISLNK(mode),
        "a directory": stat.S_ISDIR(mode),
        "a pipe": stat.S_ISFIFO(mode),
        "a socket": stat.S_ISSOCK(mode),
    }
    return next((name for name, holds in kinds.items() if holds), "a device")


def _names_another(journal: Path) -> bool:
    """Return whether a journal ends in the name of another one, which SQLite would delete."""
    try:
        with open_regular(journal, most=MOST_TRIAL_BYTES) as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - len(_JOURNAL_MAGIC)))
            return file.read() == _JOURNAL_MAGIC
    except (OSError, Unreadable):
        return True
