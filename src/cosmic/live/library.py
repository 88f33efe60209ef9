"""The studies of a directory, as the page lists and opens them."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from cosmic.engines import direction, metrics_of
from cosmic.errors import CosmicError, SpecError
from cosmic.exploration.inputs import Inputs
from cosmic.exploration.problem import Problem
from cosmic.exploration.studies.storage import StudyError
from cosmic.exploration.studies.study import INPUTS, LOCK, Study, parse_study
from cosmic.exploration.trials import Trials
from cosmic.live.growing import Growing, Tally, is_held, shaped
from cosmic.live.paths import Root
from cosmic.live.refusals import NOT_FOUND, Refusal, sentence
from cosmic.live.searches import Searches

KNOWN = 64
"""Studies whose inputs and counts are cached."""
LOADED = 6
"""Studies whose parameter sets are cached."""
MOST_AT_ONCE = 100_000
"""Trials in one block."""
UNKNOWN = (
    *("space", "agent", "seed", "engine", "objectives", "constraints", "stacks"),
    *("trials", "n", "evaluated", "feasible", "best", "better", "created"),
)
"""Keys that are null for a study that cannot be read."""
STATES = ("running", "stopped", "done", "damaged")
LISTING_S = 8.0
"""The longest time of a list: studies that are left then are listed unread."""
SLOW_S = 0.5
"""What took longer to fail is not tried again until it changes."""
NOT_WRITTEN = "is not what a search writes; try 'cosmic doctor'"


@dataclass
class Known:
    """The cache of one study, valid as long as the stamp of its files is the same."""

    stamp: tuple[int, ...]
    study: Study
    tally: Tally = field(default_factory=Tally)


@dataclass(frozen=True, slots=True)
class Pulse:
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

    def __init__(self, root: Root, searches: Searches) -> None:
        self.root = root
        self.searches = searches
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._loaded: OrderedDict[str, None] = OrderedDict()
        self._failed: dict[str, tuple[tuple[int, ...], str]] = {}
        """Why studies could not be read, where to find out took long."""
        self._lock = Lock()

    # ------------------------------------------------------------------------------------------- listing

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each study, the last changed first; one that cannot be read says why."""
        begun = [name for name in self.searches.names() if self.searches.is_new(name)]
        written = self.root.studies()
        found, ends = [], time.monotonic() + LISTING_S
        self._failed = {name: each for name, each in self._failed.items() if name in written}
        for name in (*(name for name in begun if name not in written), *written):
            with suppress(Refusal):  # removed meanwhile, or just started
                late = time.monotonic() > ends and name not in self._known and name not in self._failed
                found.append(self._unread(name) if late else self.row(name))
        return found

    def row(self, name: str) -> dict[str, Any]:
        """Return the row of a study, without loading its parameter set."""
        failure = self.searches.failure(name)
        ours = {
            "ours": self.searches.is_running(name),
            "failure": None if failure is None else sentence(CosmicError(failure), self.root.path),
        }
        try:
            known = self._look(name)
            inputs, created, tally = known.study.inputs, known.study.created, known.tally
        except CosmicError as error:
            wanted = self.searches.inputs(name) if ours["ours"] or isinstance(error, Refusal) else None
            if wanted is None:
                if isinstance(error, Refusal):
                    raise
                return self._unreadable(name, error) | ours
            inputs, created, tally = wanted, None, Tally()  # just started
        pulse = Pulse(tally.n, tally.best, self._state(name, inputs, tally))
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
        about = {"id": name, "problem": sentence(error, self.root.path), "state": "damaged"}
        return about | dict.fromkeys(UNKNOWN) | {"changed": self._changed(name), "seq": Pulse(0, None, "damaged").seq}

    def _changed(self, name: str) -> float:
        try:
            return max(self.root.stamp(name)[2::3]) / 1e9
        except CosmicError:
            return 0.0

    def pulse(self, name: str) -> Pulse:
        """Return the progress of a study; only new trials are read."""
        row = self.row(name)
        return Pulse(row["n"] or 0, row["best"], row["state"])

    def _state(self, name: str, inputs: Inputs, tally: Tally) -> str:
        if self.searches.is_running(name) or is_held(self.root.path / name / LOCK):
            return "running"
        ended = tally.evaluated >= inputs.trials or tally.ended in ("exhausted", "stalled")
        return "done" if ended else "stopped"

    # ------------------------------------------------------------------------------------------- opening

    def study(self, name: str) -> Study:
        """Return a study with its trials as of now and its parameter set loaded once."""
        with self._lock:
            self._loaded[name] = None
            self._loaded.move_to_end(name)
            while len(self._loaded) > LOADED:
                last, _ = self._loaded.popitem(last=False)
                self._known.pop(last, None)
        return replace(self._look(name).study)  # the same inputs, trials read again

    def _look(self, name: str) -> Known:
        """Return the cache of a study, brought up to date; what took long to fail is tried again when it changes."""
        stamp = self.root.stamp(name)
        was, failure = self._failed.get(name, ((), ""))
        if failure and was == stamp:
            raise StudyError(failure)
        began = time.monotonic()
        try:
            with reading(name):
                return self._read(name, stamp)
        except StudyError as error:
            if time.monotonic() - began > SLOW_S:
                self._failed[name] = (stamp, str(error))
            raise

    def _read(self, name: str, stamp: tuple[int, ...]) -> Known:
        if not stamp[0]:
            if not stamp[3] or is_held(self.root.path / name / LOCK):  # a search is just starting there
                raise Refusal(NOT_FOUND, "study", name, "no such study")
            raise StudyError(f"{name}: has lost its {INPUTS}: 'cosmic doctor' restores it")
        known = self._known.get(name)
        if known is None or known.stamp[:4] != stamp[:4]:  # other inputs, or another file of trials
            study = parse_study(self.root.shown / name, self.root.text(name, INPUTS))
            check(study.inputs)
            known = Known((), study)
        if known.stamp != stamp:
            metric = known.study.inputs.objectives[0]
            with self.storage(name) as storage:
                known = Known(stamp, known.study, storage.tally(metric, known.tally))
        with self._lock:
            self._known[name] = known
            self._known.move_to_end(name)
            while len(self._known) > KNOWN:
                self._known.popitem(last=False)
        return known

    @contextmanager
    def storage(self, name: str, problem: Problem | None = None) -> Iterator[Growing]:
        """Yield the trials of a study, opened for reading; those that its *problem* cannot have are damage."""
        with Growing.opened(self.root.trials(name), problem=problem) as storage:
            yield storage

    def block(self, name: str, first: int) -> tuple[Study, Trials, Pulse]:
        """Return a study, its trials from *first* on, and its progress."""
        study = self.study(name)
        with self.storage(name, study.problem) as storage:
            trials = storage.since(first, MOST_AT_ONCE)
        return study, shaped(trials, len(study.problem.space.parameters)), self.pulse(name)

    def trial(self, name: str, trial: int) -> tuple[Study, Trials]:
        """Return a study and one of its trials."""
        study = self.study(name)
        with self.storage(name, study.problem) as storage:
            found = storage.since(trial, 1)
        if not len(found):
            raise Refusal(NOT_FOUND, "trial", trial, "the study has no such trial")
        return study, found

    def best(self, name: str) -> int | None:
        """Return the number of a study's best trial; None where no design is feasible."""
        study = self.study(name)
        with self.storage(name) as storage:
            return storage.best(study.inputs.objectives)


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Say in a sentence that a study is at fault, whatever it makes other code raise: anybody may have written it."""
    try:
        yield
    except CosmicError:
        raise
    except (Exception, RecursionError, MemoryError) as error:
        raise StudyError(f"{name}: {NOT_WRITTEN} ({type(error).__name__})") from error


def check(inputs: Inputs) -> None:
    """Refuse inputs that can be read but were not written by this package: later code trusts them."""
    texts = (inputs.agent, inputs.engine, *inputs.objectives, *inputs.constraints, *inputs.stacks)
    numbers = (inputs.seed, inputs.trials)
    whole = all(isinstance(each, str) for each in texts) and all(type(each) is int for each in numbers)
    if not whole or not inputs.objectives or not isinstance(inputs.space, Mapping):
        raise SpecError("study.inputs", "", "is not what a search writes")
    try:
        json.dumps([inputs.space, texts], ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        raise SpecError("study.inputs", "", "holds text that cannot be encoded") from None
    for name in inputs.objectives:
        if name not in metrics_of(inputs.engine):
            raise SpecError("study.objectives", name, "this release knows no such metric")
