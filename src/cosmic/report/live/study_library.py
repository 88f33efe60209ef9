"""The studies of a directory, as the page lists and opens them.

Another process may be writing a study: it is read incrementally and without a lock.

The page gets studies and designs as containers, the same that a report holds.
"""

from __future__ import annotations

import json
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from cosmic.base.errors import CosmicError, SpecError
from cosmic.base.files import FileError, read_bytes
from cosmic.report.container import Binary, pack_container
from cosmic.report.design_view import NamedDesign, design_of
from cosmic.report.document_types import SeriesJson
from cosmic.report.live.request_checks import NOT_FOUND, Refusal, error_sentence
from cosmic.report.live.search_processes import SearchProcesses
from cosmic.report.live.study_paths import StudyRoot
from cosmic.report.study_report import report as make_report
from cosmic.report.trial_block import block_of
from cosmic.search.design_wording import metric_label, metric_unit
from cosmic.search.objectives import MetricLimit, loss, losses
from cosmic.search.problem import Problem
from cosmic.search.search_inputs import Inputs
from cosmic.search.study.study import INPUTS, LOCK, Study, parse_study
from cosmic.search.study.study_comparison import Course
from cosmic.search.study.study_comparison import compare_studies as study_comparison_compare_studies
from cosmic.search.study.trial_storage import Storage, StudyError
from cosmic.search.trials import Trials
from cosmic.simulate.user_engines import direction, metrics_of

LONGEST_LOCK = 1000
"""The most bytes that the name of a process in a lock may have."""
LOCK_LIST = Path("/proc/locks")


@dataclass(frozen=True, slots=True)
class StudyTally:
    """The progress of a study."""

    n: int = 0
    """Trials that are written."""
    evaluated: int = 0
    feasible: int = 0
    best: float | None = None
    """Of the first objective."""
    ended: str = ""
    """Why its search ended; empty if it did not."""

    def better(self, value: float | None, metric: str) -> float | None:
        """Return the better of the best so far and another value of *metric*."""
        values = [each for each in (self.best, value) if each is not None]
        if not values:
            return None
        return min(values) if direction(metric) == "less" else max(values)


class GrowingStorage(Storage):
    """The trials of a study that another process may be writing."""

    def tally(self, metric: str, since: StudyTally) -> StudyTally:
        """Return the progress of the study, reading only the trials since an earlier tally, each checked."""
        n, evaluated, feasible_trials, best = since.n, since.evaluated, since.feasible, since
        for _, trials in self.parts(since.n):
            n, evaluated, feasible_trials = (
                n + len(trials),
                evaluated + trials.evaluated,
                feasible_trials + trials.feasible,
            )
            best = replace(best, best=best.better(_best_value(metric, trials), metric))
        return StudyTally(n, evaluated, feasible_trials, best.best, self.ending(n))

    def best(self, metrics: Sequence[str]) -> int | None:
        """Return the number of the best trial; the same as `Trials.best`."""
        index, least_losses, first = None, (inf,), 0
        for _, trials in self.parts():
            least = losses(metrics, trials.results.columns)
            candidates = np.flatnonzero(~np.isnan(least[:, 0]))
            if len(candidates):
                best = candidates[np.lexsort(least[candidates].T[::-1])[0]]
                ours = tuple(np.nan_to_num(least[best], nan=inf).tolist())
                if index is None or ours < least_losses:
                    index, least_losses = first + int(best), ours
            first += len(trials)
        return index


def _best_value(metric: str, trials: Trials) -> float | None:
    """Return the best value of a metric; None where no trial has one."""
    values = trials.results.columns[metric]
    finite = values[~np.isnan(values)]
    if not len(finite):
        return None
    return float(finite.min() if direction(metric) == "less" else finite.max())


def with_columns(trials: Trials, parameters: int) -> Trials:
    """Return *trials* with a column for each parameter, also if there are no trials."""
    return trials if len(trials) else Trials(np.empty((0, parameters), dtype=np.intp), trials.results)


def is_lock_held(lock: Path) -> bool:
    """Return whether a process holds the lock of a study.

    Trying the lock would take it for a moment and turn away a search that starts just then. So the operating system's
    list of locks is read; where there is none, the process named in the lock is looked up.
    """
    try:
        about = lock.lstat()
    except OSError:
        return False
    try:
        held = LOCK_LIST.read_text(encoding="ascii", errors="replace")
    except OSError:
        return _process_lives(lock)
    device = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}"
    return any(f" {device}:{about.st_ino} " in line for line in held.splitlines() if " FLOCK " in line)


def _process_lives(lock: Path) -> bool:
    """Return whether the process named in a lock is alive."""
    try:
        words = read_bytes(lock, most=LONGEST_LOCK).split()
        os.kill(int(words[1]), 0)
    except PermissionError:
        return True
    except (OSError, FileError, ValueError, IndexError, OverflowError):
        return False
    return True


MOST_CACHED = 64
"""Studies whose inputs and counts are cached."""
MOST_LOADED = 6
"""Studies whose parameter sets are cached."""
MOST_AT_ONCE = 100_000
"""Trials in one block."""
UNKNOWN_KEYS = (
    *("space", "agent", "seed", "engine", "objectives", "constraints", "stacks"),
    *("trials", "n", "evaluated", "feasible", "best", "better", "created"),
)
"""Keys that are null for a study that cannot be read."""
STATES = ("running", "stopped", "done", "damaged")
LISTING_S = 8.0
"""The longest time of a list: studies that are left then are listed unread."""
SLOW_S = 0.5
"""What took longer to fail is not tried again until it changes."""
NOT_WRITTEN = "is not what a search writes; try 'cosmic study doctor'"


@dataclass
class CachedStudy:
    """The cache of one study, valid as long as the stamp of its files is the same."""

    stamp: tuple[int, ...]
    study: Study
    tally: StudyTally = field(default_factory=StudyTally)


@dataclass(frozen=True, slots=True)
class StudyPulse:
    """The progress of a study, as an event reports it."""

    n: int
    best: float | None
    state: str

    @property
    def seq(self) -> int:
        """A number that changes with every change: the id of events."""
        return self.n * len(STATES) + STATES.index(self.state)

    @property
    def event(self) -> dict[str, Any]:
        """The content of an event."""
        return {"seq": self.seq, "n": self.n, "best": self.best, "state": self.state}


class Library:
    """All studies under a root, read only, with a bounded cache."""

    def __init__(self, root: StudyRoot, searches: SearchProcesses) -> None:
        self.root = root
        self.searches = searches
        self._known: OrderedDict[str, CachedStudy] = OrderedDict()
        self._loaded: OrderedDict[str, None] = OrderedDict()
        self._failed: dict[str, tuple[tuple[int, ...], str]] = {}
        """Why studies could not be read, where to find out took long."""
        self._lock = Lock()

    # ------------------------------------------------------------------------------------------- listing

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each study, the last changed first; one that cannot be read says why."""
        begun = [name for name in self.searches.names() if self.searches.is_new(name)]
        study_names = self.root.studies()
        listed, ends = [], time.monotonic() + LISTING_S
        self._failed = {name: each for name, each in self._failed.items() if name in study_names}
        for name in (*(name for name in begun if name not in study_names), *study_names):
            with suppress(Refusal):  # removed meanwhile, or just started
                late = time.monotonic() > ends and name not in self._known and name not in self._failed
                listed.append(self._unread(name) if late else self.row(name))
        return listed

    def row(self, name: str) -> dict[str, Any]:
        """Return the row of a study, without loading its parameter set."""
        failure = self.searches.failure(name)
        ours = {
            "ours": self.searches.is_running(name),
            "failure": None if failure is None else error_sentence(CosmicError(failure), self.root.path),
        }
        try:
            cached = self._look(name)
            inputs, created, tally = cached.study.inputs, cached.study.created, cached.tally
        except CosmicError as error:
            wanted = self.searches.inputs(name) if ours["ours"] or isinstance(error, Refusal) else None
            if wanted is None:
                if isinstance(error, Refusal):
                    raise
                return self._unreadable(name, error) | ours
            inputs, created, tally = wanted, None, StudyTally()  # just started
        pulse = StudyPulse(tally.n, tally.best, self._state(name, inputs, tally))
        return {
            "id": name,
            "problem": None,
            **ours,
            "state": pulse.state,
            "space": str(inputs.space.get("name", "")),
            "agent": inputs.agent,
            "seed": inputs.seed,
            "engine": inputs.engine,
            "objectives": list(inputs.objectives),
            "constraints": list(inputs.constraints),
            "stacks": list(inputs.stacks),
            "trials": inputs.trials,
            "n": tally.n,
            "evaluated": tally.evaluated,
            "feasible": tally.feasible,
            "best": tally.best,
            "better": direction(inputs.objectives[0]),
            "created": created,
            "changed": self._changed(name),
            "seq": pulse.seq,
        }

    def _unread(self, name: str) -> dict[str, Any]:
        error = StudyError(f"{name}: was not read yet, as others took long")
        return self._unreadable(name, error) | {"ours": self.searches.is_running(name), "failure": None}

    def _unreadable(self, name: str, error: CosmicError) -> dict[str, Any]:
        about = {"id": name, "problem": error_sentence(error, self.root.path), "state": "damaged"}
        return (
            about
            | dict.fromkeys(UNKNOWN_KEYS)
            | {"changed": self._changed(name), "seq": StudyPulse(0, None, "damaged").seq}
        )

    def _changed(self, name: str) -> float:
        try:
            return max(self.root.stamp(name)[2::3]) / 1e9
        except CosmicError:
            return 0.0

    def pulse(self, name: str) -> StudyPulse:
        """Return the progress of a study; only new trials are read."""
        row = self.row(name)
        return StudyPulse(row["n"] or 0, row["best"], row["state"])

    def _state(self, name: str, inputs: Inputs, tally: StudyTally) -> str:
        if self.searches.is_running(name) or is_lock_held(self.root.path / name / LOCK):
            return "running"
        ended = tally.evaluated >= inputs.trials or tally.ended in ("exhausted", "stalled")
        return "done" if ended else "stopped"

    # ------------------------------------------------------------------------------------------- opening

    def study(self, name: str) -> Study:
        """Return a study with its trials as of now and its parameter set loaded once."""
        with self._lock:
            self._loaded[name] = None
            self._loaded.move_to_end(name)
            while len(self._loaded) > MOST_LOADED:
                last, _ = self._loaded.popitem(last=False)
                self._known.pop(last, None)
        return replace(self._look(name).study)  # the same inputs, trials read again

    def _look(self, name: str) -> CachedStudy:
        """Return the cache of a study, brought up to date; what took long to fail is tried again when it changes."""
        stamp = self.root.stamp(name)
        was, failure = self._failed.get(name, ((), ""))
        if failure and was == stamp:
            raise StudyError(failure)
        began = time.monotonic()
        try:
            with blame_reading(name):
                return self._read(name, stamp)
        except StudyError as error:
            if time.monotonic() - began > SLOW_S:
                self._failed[name] = (stamp, str(error))
            raise

    def _read(self, name: str, stamp: tuple[int, ...]) -> CachedStudy:
        if not stamp[0]:
            if not stamp[3] or is_lock_held(self.root.path / name / LOCK):  # a search is just starting there
                raise Refusal(NOT_FOUND, "study", name, "no such study")
            raise StudyError(f"{name}: has lost its {INPUTS}: 'cosmic study doctor' restores it")
        cached = self._known.get(name)
        if cached is None or cached.stamp[:4] != stamp[:4]:  # other inputs, or another file of trials
            study = parse_study(self.root.shown / name, self.root.text(name, INPUTS))
            check_inputs(study.inputs)
            cached = CachedStudy((), study)
        if cached.stamp != stamp:
            metric = cached.study.inputs.objectives[0]
            with self.storage(name) as storage:
                cached = CachedStudy(stamp, cached.study, storage.tally(metric, cached.tally))
        with self._lock:
            self._known[name] = cached
            self._known.move_to_end(name)
            while len(self._known) > MOST_CACHED:
                self._known.popitem(last=False)
        return cached

    @contextmanager
    def storage(self, name: str, problem: Problem | None = None) -> Iterator[GrowingStorage]:
        """Yield the trials of a study, opened for reading; those that its *problem* cannot have are damage."""
        with GrowingStorage.opened(self.root.trials(name), problem=problem) as storage:
            yield storage

    def block(self, name: str, first: int) -> tuple[Study, Trials, StudyPulse]:
        """Return a study, its trials from *first* on, and its progress."""
        study = self.study(name)
        with self.storage(name, study.problem) as storage:
            trials = storage.since(first, MOST_AT_ONCE)
        return study, with_columns(trials, len(study.problem.space.parameters)), self.pulse(name)

    def trial(self, name: str, trial: int) -> tuple[Study, Trials]:
        """Return a study and one of its trials."""
        study = self.study(name)
        with self.storage(name, study.problem) as storage:
            trials = storage.since(trial, 1)
        if not len(trials):
            raise Refusal(NOT_FOUND, "trial", trial, "the study has no such trial")
        return study, trials

    def best(self, name: str) -> int | None:
        """Return the number of a study's best trial; None where no design is feasible."""
        study = self.study(name)
        with self.storage(name) as storage:
            return storage.best(study.inputs.objectives)


@contextmanager
def blame_reading(name: str) -> Iterator[None]:
    """Say in a sentence that a study is at fault, whatever it makes other code raise: anybody may have written it."""
    try:
        yield
    except CosmicError:
        raise
    except (Exception, RecursionError, MemoryError) as error:
        raise StudyError(f"{name}: {NOT_WRITTEN} ({type(error).__name__})") from error


def check_inputs(inputs: Inputs) -> None:
    """Refuse inputs that can be read but were not written by this package: later code trusts them."""
    texts = (inputs.agent, inputs.engine, *inputs.objectives, *inputs.constraints, *inputs.stacks)
    numbers = (inputs.seed, inputs.trials)
    typed = all(isinstance(text, str) for text in texts) and all(type(number) is int for number in numbers)
    if not typed or not inputs.objectives or not isinstance(inputs.space, Mapping):
        raise SpecError("study.inputs", "", "is not what a search writes")
    try:
        json.dumps([inputs.space, texts], ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        raise SpecError("study.inputs", "", "holds text that cannot be encoded") from None
    for name in inputs.objectives:
        if name not in metrics_of(inputs.engine):
            raise SpecError("study.objectives", name, "this release knows no such metric")


MOST_KEPT_BYTES = 2**26
"""Size of all cached documents."""


class DocumentCache:
    """Documents of studies, cached until the study changes."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._kept: OrderedDict[tuple[str, str, tuple[int, ...]], bytes] = OrderedDict()
        self._lock = Lock()

    def document(self, name: str) -> bytes:
        """Return the document of a study as a container."""
        return self._made(pack_study, name)

    def report(self, name: str) -> bytes:
        """Return the report of a study as a page."""
        return self._made(render_study_report, name)

    def _made(self, make: Callable[[Library, str], bytes], name: str) -> bytes:
        key = (make.__name__, name, self._library.root.stamp(name))
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        document = make(self._library, name)
        with self._lock:
            self._kept[key] = document
            while sum(map(len, self._kept.values())) > MOST_KEPT_BYTES:
                self._kept.popitem(last=False)
        return document


def pack_study(library: Library, name: str) -> bytes:
    """Return the document of a study as a container: its report's, without the searches of single layers."""
    report = make_report(library.study(name), beside={})
    return pack_container(report.contents, report.binary)


def render_study_report(library: Library, name: str) -> bytes:
    """Return the report of a study: one self-contained page."""
    return make_report(library.study(name)).html.encode(errors="backslashreplace")


def pack_trials(library: Library, name: str, first: int) -> bytes:
    """Return the trials of a study from *first* on, as a container."""
    study, trials, pulse = library.block(name, first)
    binary = Binary()
    packed = block_of(study.problem, trials, binary, first)
    about = {"n": first + len(trials), "total": pulse.n, "state": pulse.state}
    return pack_container({**about, "block": packed}, binary)


def pack_design(named: NamedDesign, engine: str = "analytic", limits: Sequence[MetricLimit] = ()) -> bytes:
    """Return a design, its cluster, roofline and timeline, as a container; *limits* are those of its study."""
    binary = Binary()
    return pack_container(design_of(named, engine, binary, limits), binary)


def _curve_to_end(objective: str, course: Course) -> list[tuple[int, float]]:
    """Return how a search converged, to its last evaluation: a search that found nothing better went on too."""
    values = loss(objective, course.losses)
    points = [(int(evaluation), float(value)) for evaluation, value in zip(course.evaluations, values, strict=True)]
    if points and points[-1][0] < course.evaluated:
        points.append((course.evaluated, points[-1][1]))
    return points


def compare_studies(library: Library, names: list[str]) -> dict[str, Any]:
    """Return a comparison of studies: what each found, and how it converged."""
    comparison = study_comparison_compare_studies([library.study(name) for name in names])
    curves = [
        SeriesJson(name=course.name, points=_curve_to_end(comparison.objective, course))
        for course in comparison.courses
    ]
    name = comparison.objective
    about = {"objective": name, "label": metric_label(name), "unit": metric_unit(name), "better": direction(name)}
    return {**about, "studies": comparison.rows(), "curves": curves}
