"""Studies that another process may be writing, read incrementally and without a lock."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import numpy as np

from cosmic.engines import direction
from cosmic.exploration.objectives import losses
from cosmic.exploration.studies.storage import Storage
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
        return min(known) if direction(metric) == "less" else max(known)


class Growing(Storage):
    """The trials of a study that another process may be writing."""

    def tally(self, metric: str, since: Tally) -> Tally:
        """Return the progress of the study, reading only the trials since an earlier tally, each checked."""
        n, evaluated, able, best = since.n, since.evaluated, since.feasible, since
        for _, trials in self.parts(since.n):
            n, evaluated, able = n + len(trials), evaluated + trials.evaluated, able + trials.feasible
            best = replace(best, best=best.better(_least(metric, trials), metric))
        return Tally(n, evaluated, able, best.best, self.ending(n))

    def best(self, metrics: Sequence[str]) -> int | None:
        """Return the number of the best trial; the same as `Trials.best`."""
        place, found, first = None, (inf,), 0
        for _, trials in self.parts():
            least = losses(metrics, trials.results.columns)
            known = np.flatnonzero(~np.isnan(least[:, 0]))
            if len(known):
                best = known[np.lexsort(least[known].T[::-1])[0]]
                ours = tuple(np.nan_to_num(least[best], nan=inf).tolist())
                if place is None or ours < found:
                    place, found = first + int(best), ours
            first += len(trials)
        return place


def _least(metric: str, trials: Trials) -> float | None:
    """Return the best value of a metric; None where no trial has one."""
    values = trials.results.columns[metric]
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    return float(known.min() if direction(metric) == "less" else known.max())


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
