"""Studies that another process may be writing, read incrementally and without a lock."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import numpy as np

from cosmic.evaluation import BETTER
from cosmic.exploration.studies.storage import Damaged, Storage
from cosmic.exploration.trials import Trials
from cosmic.files import FileError, read_bytes

LONGEST_LOCK = 1000
"""The most bytes that the name of a process in a lock may have."""
LOCKS = Path("/proc/locks")


@dataclass(frozen=True, slots=True)
class Tally:
    """The progress of a study."""

    n: int = 0
    """Trials that are written."""
    evaluated: int = 0
    feasible: int = 0
    best: float | None = None
    """Of the first objective."""
    ended: str = ""
    """Why its search ended; empty if it did not."""

    def better(self, other: float | None, metric: str) -> float | None:
        """Return the better of the best so far and another value of *metric*."""
        known = [each for each in (self.best, other) if each is not None]
        if not known:
            return None
        return min(known) if BETTER[metric] == "less" else max(known)


class Growing(Storage):
    """The trials of a study that another process may be writing."""

    def tally(self, metric: str, since: Tally) -> Tally:
        """Return the progress of the study, reading only the trials since an earlier tally."""
        choose = "MIN" if BETTER[metric] == "less" else "MAX"
        query = (
            f"SELECT COUNT(*), TOTAL(counted), COUNT(CASE WHEN excess = 0 THEN 1 END), {choose}({metric})"
            f" FROM trials WHERE trial >= {since.n}"
        )
        count, counted, feasible, best = self.rows(query)[0]
        if not (best is None or (isinstance(best, int | float) and isfinite(best))) or not isfinite(counted):
            raise Damaged(self.path, "a number is not finite")
        n = since.n + int(count)
        evaluated, able = since.evaluated + int(counted), since.feasible + int(feasible)
        return Tally(n, evaluated, able, since.better(best, metric), self.ending(n))

    def best(self, metrics: Sequence[str]) -> int | None:
        """Return the number of the best trial; the same as `Trials.best`."""
        order = ", ".join(f"{name} {'ASC' if BETTER[name] == 'less' else 'DESC'} NULLS LAST" for name in metrics)
        found = self.rows(f"SELECT trial FROM trials WHERE {metrics[0]} IS NOT NULL ORDER BY {order}, trial LIMIT 1")
        return int(found[0][0]) if found else None


def shaped(trials: Trials, parameters: int) -> Trials:
    """Return *trials* with a column for each parameter, also if there are no trials."""
    return trials if len(trials) else Trials(np.empty((0, parameters), dtype=np.intp), trials.results)


def is_held(lock: Path) -> bool:
    """Return whether a process holds the lock of a study.

    Trying the lock would take it for a moment and turn away a search that starts just then. So the operating system's
    list of locks is read; where there is none, the process named in the lock is looked up.
    """
    try:
        about = lock.lstat()
    except OSError:
        return False
    try:
        held = LOCKS.read_text(encoding="ascii", errors="replace")
    except OSError:
        return _lives(lock)
    device = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}"
    return any(f" {device}:{about.st_ino} " in line for line in held.splitlines() if " FLOCK " in line)


def _lives(lock: Path) -> bool:
    """Return whether the process named in a lock is alive."""
    try:
        words = read_bytes(lock, most=LONGEST_LOCK).split()
        os.kill(int(words[1]), 0)
    except PermissionError:
        return True
    except (OSError, FileError, ValueError, IndexError, OverflowError):
        return False
    return True
