"""Kill studies at many points, resume them, and check that nothing is lost.

python benchmarks/crash.py --kills 200 --json

A study runs in a child process, which kills itself (SIGKILL) at the n-th evaluation, SQLite statement, slice of a
statement or file operation, or which the parent kills after some time. After each kill the study is read and compared
with one that was never interrupted; then it is resumed, until it ends. The output counts

    trials_lost     trials of batches that were reported as done and are missing: must be 0
    not_whole       kills after which the study was unreadable or had wrong content: must be 0
    zombies         trials of no finished batch: must be 0
    resumes_equal   studies that ended like the uninterrupted one, of `studies`: must be all
"""

from __future__ import annotations

import os
import signal
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from command import main

from cosmic.search.problem import METRICS, Problem
from cosmic.search.search_inputs import Inputs, Options, make_inputs
from cosmic.search.search_loop import PoolOptions, keep_search, run_search
from cosmic.search.space.space_files import load_space
from cosmic.search.study import trial_storage as storing
from cosmic.search.study.study import INPUTS, TRIALS
from cosmic.search.study.trial_storage import BatchRecord, Storage, StudyError, holds_trials
from cosmic.search.trials import Trials

AGENTS = ("random", "genetic")
SEED = 7
STUDY = Options(trials=600, batch=30, seed=SEED)
PER_STUDY = 6
"""Most kills per study: many studies have to start, which is where most can go wrong."""
PLACES = {"file": 4, "evaluation": 6, "statement": 60, "slice": 150, "boundary": 20, "time": 1}
"""Places to kill at; a kill comes at one of the first n occasions."""
LONGEST_S = 0.04
"""Latest time at which the parent kills: sooner than a study ends."""
SLICE = 5
"""SQLite instructions between two occasions within a statement."""
KILLED = -signal.SIGKILL


class Bomb:
    """Kills this process at the n-th occasion at one place."""

    def __init__(self, place: str, n: int) -> None:
        self._place, self._left = place, n

    def tick(self, place: str) -> int:
        """Count an occasion."""
        if place == self._place:
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return 0

    def plant(self) -> None:
        """Count every occasion from now on."""
        connect, evaluate = sqlite3.connect, Problem.evaluate
        # Replacing methods is the point here; mypy objects.
        sqlite3.connect = lambda *given, **named: self._watch(connect(*given, **named))  # type: ignore[assignment]
        storing.STEPS_AT_ONCE = SLICE
        Storage._is_endless = lambda _: bool(self.tick("slice"))  # type: ignore[assignment, method-assign]
        Problem.evaluate = self._around("evaluation", evaluate)  # type: ignore[method-assign]
        os.fsync = self._around("file", os.fsync)
        os.replace = self._around("file", os.replace)

    def _around(self, place: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def ticking(*given: Any, **named: Any) -> Any:
            self.tick(place)
            found = function(*given, **named)
            self.tick(place)
            return found

        return ticking

    def _watch(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        def said(statement: str) -> None:
            self.tick("statement")
            if "INTO packed" not in statement:
                self.tick("boundary")

        connection.set_trace_callback(said)
        return connection


@dataclass
class Reference:
    """A study that was never interrupted."""

    inputs: Inputs
    trials: Trials
    batches: list[int]
    """Trials of each batch."""


def reference(space: str, agent: str) -> Reference:
    """Return an uninterrupted study."""
    inputs = make_inputs(load_space(space), replace(STUDY, agent=agent))
    seen = [0]
    found = run_search(inputs, PoolOptions(), watch=lambda progress: seen.append(progress.seen))
    return Reference(inputs, found.trials, np.diff(seen).tolist())


def live(inputs: Inputs, folder: Path, place: str, n: int, delay_s: float) -> tuple[int, int]:
    """Run a study in a child that is killed; return its exit status and the batches that it reported as done."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.close(ours)
            Bomb(place, n).plant()
            keep_search(inputs, folder, PoolOptions(), resume=True, watch=lambda _: void(os.write(theirs, b".")))
            status = 0
        finally:
            os._exit(status)
    os.close(theirs)
    if place == "time":
        time.sleep(delay_s)
        os.kill(child, signal.SIGKILL)
    reports = b""
    while some := os.read(ours, 1000):
        reports += some
    os.close(ours)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(reports)


def void(_: object) -> None:
    """Ignore a value."""


def inspect(folder: Path, wanted: Reference, done: int) -> tuple[int, Counter[str]]:
    """Return the batches of a study after a kill, and its faults, counted; *done* batches were reported."""
    found: Counter[str] = Counter()
    if not (folder / INPUTS).exists():
        found["not_whole"] += holds_trials(folder / TRIALS)
        found["trials_lost"] += sum(wanted.batches[:done])
        return 0, found
    try:
        with Storage.opened(folder / TRIALS) as storage:
            batches, trials = storage.history()
            found["zombies"] += len(storage.history()[1]) - sum(batch.trials for batch in batches)
            sound = not storage.problems()
    except StudyError:
        return 0, Counter(not_whole=1, trials_lost=sum(wanted.batches[:done]))
    possible = len(batches) <= done + 1  # at most the one in flight is not reported
    right = same(trials, wanted.trials, len(trials)) and right_sizes(batches, wanted)
    found["not_whole"] += not (sound and right and possible)
    found["trials_lost"] += sum(wanted.batches[len(batches) : done])
    return len(batches), found


def right_sizes(batches: list[BatchRecord], wanted: Reference) -> bool:
    """Return whether the batches have as many trials as the reference's."""
    return [batch.trials for batch in batches] == wanted.batches[: len(batches)]


def same(ours: Trials, theirs: Trials, n: int) -> bool:
    """Return whether *ours* are exactly the first *n* of *theirs*, bit for bit."""
    if len(ours) != n or not n:
        return len(ours) == n
    one, other = ours.results, theirs.results
    columns: list[tuple[Any, Any]] = [(one.columns[name], other.columns[name][:n]) for name in METRICS]
    columns += [(one.excess, other.excess[:n]), (one.counted, other.counted[:n])]
    alike = all(np.array_equal(a, b, equal_nan=True) for a, b in columns)
    return alike and list(one.reasons) == list(other.reasons[:n]) and np.array_equal(ours.rows, theirs.rows[:n])


def lives(rng: np.random.Generator) -> Iterator[tuple[str, int, float]]:
    """Yield where and when to kill: every place in turn."""
    for place in cycle(("file", *PLACES)):  # twice: only new studies write files
        yield place, int(rng.integers(1, PLACES[place] + 1)), float(rng.uniform(0, LONGEST_S))


def drive(study: Reference, folder: Path, bombs: Iterator[tuple[str, int, float]], kills: int) -> Counter[str]:
    """Run one study to its end, with at most *kills* kills on the way; return the counts."""
    found: Counter[str] = Counter()
    ended, done = KILLED, 0
    while ended != 0:
        place, n, delay_s = next(bombs) if kills else ("never", 0, 0.0)
        if place == "file" and (folder / INPUTS).exists():
            continue
        ended, reported = live(study.inputs, folder, place, n, delay_s)
        if ended not in (0, KILLED):
            raise SystemExit(f"a study that was killed before ended with status {ended}")
        done = max(done, reported)
        written, wrong = inspect(folder, study, done)
        done = max(done, written)
        found.update(wrong)
        if ended == KILLED:
            found[f"at {place}"] += 1
            kills -= 1
    with Storage.opened(folder / TRIALS) as storage:
        found["resumes_equal"] += same(storage.history()[1], study.trials, len(study.trials))
    return found


def measure(space: str, kills: int) -> dict[str, Any]:
    """Return the counts over *kills* kills."""
    rng = np.random.default_rng(SEED)
    wanted = cycle([reference(space, agent) for agent in AGENTS])
    found: Counter[str] = Counter()
    began, bombs, killed = time.perf_counter(), lives(rng), 0
    with tempfile.TemporaryDirectory() as root:
        while killed < kills:
            found["studies"] += 1
            found.update(drive(next(wanted), Path(root) / str(found["studies"]), bombs, min(PER_STUDY, kills - killed)))
            killed = sum(found[f"at {place}"] for place in PLACES)
    counted = {name: found[name] for name in ("studies", "resumes_equal", "trials_lost", "not_whole", "zombies")}
    kinds = {place: found[f"at {place}"] for place in PLACES}
    elapsed_s = time.perf_counter() - began
    return {"space": space, "kills": killed, "kills_by_place": kinds, **counted, "elapsed_s": elapsed_s}


if __name__ == "__main__":
    main(__doc__, measure, "kills", 200)
