"""Search: ask an agent, evaluate what it proposes, write it down, tell it. The loop that everything else serves.

A search is a function of its inputs. To resume one is to run it again with a memory: the agent is asked and told as it
was, and what the study already knows is looked up instead of evaluated. So a resumed search ends as one that was never
interrupted, bit for bit, whatever the agent, with no state of it on disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.errors import SpecError, require
from cosmic.exploration.agent import start
from cosmic.exploration.extras import needs
from cosmic.exploration.inputs import Inputs, Options, make_inputs, with_problem
from cosmic.exploration.problem import Problem, Results
from cosmic.exploration.studies.storage import Storage, StudyError, Written, holds_trials
from cosmic.exploration.studies.study import INPUTS, TRIALS, Study, keep_text, locked, open_study, render
from cosmic.exploration.trials import Ledger, Trials
from cosmic.exploration.workers import Evaluate, evaluator
from cosmic.psa.diagram import Indices
from cosmic.psa.files import load_space
from cosmic.psa.space import ParameterSet

PATIENCE = 200
"""So many batches in a row without a new design end a search: its agent has nothing left to propose."""
MISFITS = 1_000_000
"""So many designs that do not fit together, and a thousand for each trial, end it too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a search is."""

    objective: str
    """The first one, which `best` is about."""
    evaluated: int
    trials: int
    """How many are to be evaluated."""
    feasible: int
    seen: int
    best: float
    """The least loss so far; infinite while nothing can run."""
    computed: int
    """How many were evaluated by this run: the others were known."""
    elapsed_s: float


Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Found:
    """What a search found."""

    inputs: Inputs
    trials: Trials
    stopped: str
    """Why it ended: ``trials`` are all used, the space is ``exhausted``, or the agent is ``stalled``."""
    elapsed_s: float
    computed: int
    path: Path | None = None

    @property
    def problem(self) -> Problem:
        """What was searched, and for what."""
        return self.inputs.problem

    @property
    def best(self) -> dict[str, Any] | None:
        """The best design: its point and its metrics; None where nothing can run."""
        place = self.trials.best(self.problem)
        return None if place is None else self.trials.describe(self.problem, place)

    @property
    def front(self) -> list[dict[str, Any]]:
        """The designs that no other is better than in every objective."""
        return [self.trials.describe(self.problem, place) for place in self.trials.front(self.problem).tolist()]


def search(  # noqa: PLR0913  the options of the command, each by its name
    space: str | Path | Mapping[str, Any] | ParameterSet,
    *,
    agent: str = Options.agent,
    settings: Mapping[str, Any] | None = None,
    objectives: Sequence[str] = (),
    constraints: Sequence[str] = (),
    stacks: Sequence[str] = (),
    trials: int = Options.trials,
    seed: int = 0,
    batch: int | None = None,
    engine: str = "analytic",
    workers: int = 1,
    address: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    watch: Watch | None = None,
) -> Found:
    """Return what *agent* finds in *space* with so many *trials*; with *out*, every trial is kept there.

    The same inputs and seed give the same trials, on one worker or many, interrupted and resumed or not.
    """
    parameters = space if isinstance(space, ParameterSet) else load_space(space)
    options = Options(
        agent=agent,
        settings=settings or {},
        objectives=objectives,
        constraints=constraints,
        stacks=stacks,
        trials=trials,
        seed=seed,
        batch=batch,
        engine=engine,
    )
    inputs = make_inputs(parameters, options)
    crew = Crew(workers, address)
    if out is None:
        require(not resume, "resume", resume, "needs the study to go on with: give its directory")
        return run(inputs, crew, watch=watch)
    return keep(inputs, Path(out), crew, resume=resume, watch=watch)


@dataclass(frozen=True, slots=True)
class Crew:
    """Who evaluates: so many processes here, or a Ray cluster at an address."""

    workers: int = 1
    address: str | None = None

    def __post_init__(self) -> None:
        require(self.workers >= 1, "workers", self.workers, "give at least one")
        if self.address is not None:
            needs("ray", "ray", "ray", where="engine")  # before anything is written


def keep(inputs: Inputs, folder: Path, crew: Crew, *, resume: bool, watch: Watch | None = None) -> Found:
    """Return what a search finds, written to the study in *folder* as it goes."""
    with ExitStack() as stack:
        stack.enter_context(locked(folder))
        exists = (folder / INPUTS).exists() or holds_trials(folder / TRIALS)
        if exists and not resume:
            raise SpecError("out", str(folder), "holds a study already: go on with it (--resume), or choose another")
        study = open_study(folder) if exists else None
        if study is not None:
            inputs = _continued(inputs, study)
        storage = stack.enter_context(Storage.opened(folder / TRIALS, write=True))
        if study is None or inputs != study.inputs or storage.inputs() is None:
            text = render(inputs, study.created if study else "")
            storage.set_inputs(text)  # first here: a study.json says that the database is complete
            keep_text(folder / INPUTS, text)
        found = run(inputs, crew, storage=storage, watch=watch)
        storage.set_ending(found.stopped, len(found.trials))
        return replace(found, path=folder)


def _continued(inputs: Inputs, study: Study) -> Inputs:
    """Return the inputs of a resumed study: as they were, with the number of trials that is now asked for."""
    if different := inputs.differences(study.inputs):
        name = different[0]
        ours, theirs = getattr(inputs, name), getattr(study.inputs, name)
        rule = f"the study was begun with {theirs!r}: resume it with that, or begin another"
        raise SpecError("space" if name == "identity" else name, ours, rule)
    return with_problem(replace(study.inputs, trials=inputs.trials), inputs.problem)


def resume_study(
    folder: str | Path, trials: int | None = None, crew: Crew | None = None, watch: Watch | None = None
) -> Found:
    """Return what the study in *folder* finds when it goes on to its end, or to so many *trials*."""
    inputs = open_study(folder).inputs
    return keep(replace(inputs, trials=trials or inputs.trials), Path(folder), crew or Crew(), resume=True, watch=watch)


def found_so_far(folder: Path, progress: Progress | None = None) -> Found | None:
    """Return what a search that was interrupted has written; None if it had not begun to."""
    if not (folder / INPUTS).exists():
        return None
    study = open_study(folder)
    elapsed_s, computed = (progress.elapsed_s, progress.computed) if progress else (0.0, 0)
    return Found(study.inputs, study.trials, "interrupted", elapsed_s, computed, folder)


# --------------------------------------------------------------------------------------------------- the loop


def run(inputs: Inputs, crew: Crew, *, storage: Storage | None = None, watch: Watch | None = None) -> Found:
    """Return what a search finds; what *storage* holds already is not evaluated again."""
    began = time.perf_counter()
    problem = inputs.problem
    record = Record(problem, storage)
    ledger = Ledger(problem)
    with evaluator(problem, crew.workers, crew.address) as evaluate:
        steps = explore(inputs, ledger, record.remembered(evaluate), record.asked)
        stopped = ""
        for asked, rows, results, why in steps:
            record.add(asked, Trials(rows, results), len(ledger) - len(rows))
            stopped = why
            if watch is not None:
                watch(_progress(inputs, ledger, record.computed, time.perf_counter() - began))
    return Found(inputs, ledger.trials, stopped, time.perf_counter() - began, record.computed)


def _progress(inputs: Inputs, ledger: Ledger, computed: int, elapsed_s: float) -> Progress:
    return Progress(
        objective=inputs.objectives[0],
        evaluated=ledger.evaluated,
        trials=inputs.trials,
        feasible=ledger.feasible,
        seen=len(ledger),
        best=ledger.best,
        computed=computed,
        elapsed_s=elapsed_s,
    )


def explore(
    inputs: Inputs, ledger: Ledger, evaluate: Evaluate, before: Sequence[int] = ()
) -> Iterator[tuple[int, Indices, Results, str]]:
    """Yield each batch: how many points were asked for, those that are new, their results, and why the search ends.

    *before* says how many were asked for in the batches of a search that is gone through again.

    Points that are known are told to the agent again, not evaluated; those that do not fit together are told as such
    and not counted. If the base design is a point of the set it comes first, so that no search ends worse than it.
    """
    problem, space = inputs.problem, inputs.problem.space
    agent = start(inputs.agent, inputs.task(), inputs.rng(), inputs.settings)
    idle, stopped = 0, ""
    base = space.row_of(space.base)
    for batch in count():
        if stopped and batch >= len(before):
            break
        if batch == 0 and base is not None:
            asked, rows = 0, base[None, :]
        else:
            asked = before[batch] if batch < len(before) else min(inputs.batch, inputs.trials - ledger.evaluated)
            rows = agent.ask(asked)
        new = rows[ledger.unknown(rows)]
        results = evaluate(new)
        ledger.add(new, results)
        agent.tell(problem.outcomes(rows, ledger.recall(rows)))
        idle = 0 if len(new) else idle + 1
        stopped = _why_stop(inputs, ledger, idle)
        yield asked, new, results, stopped


def _why_stop(inputs: Inputs, ledger: Ledger, idle: int) -> str:
    if ledger.evaluated >= inputs.trials:
        return "trials"
    if len(ledger) >= inputs.problem.space.valid:
        return "exhausted"
    misfits = len(ledger) - ledger.evaluated
    return "stalled" if idle >= PATIENCE or misfits >= MISFITS + 1000 * inputs.trials else ""


class Record:
    """What a study already holds, played back as the search goes through it again; then added to."""

    def __init__(self, problem: Problem, storage: Storage | None) -> None:
        self._storage = storage
        self._batches: list[Written] = []
        self._written: Trials | None = None
        if storage is not None:
            self._batches, self._written = storage.history()
        self._known = Ledger(problem)
        self._at = 0
        self.computed = 0
        """How many points were evaluated afresh."""
        for trials in (self._written, storage.trials("salvaged")) if storage else ():
            if trials:
                new = self._known.unknown(trials.rows)
                self._known.add(trials.rows[new], trials.results.take(new))

    @property
    def asked(self) -> list[int]:
        """How many points were asked for in each batch that is written."""
        return [batch.asked for batch in self._batches]

    def remembered(self, evaluate: Evaluate) -> Evaluate:
        """Return *evaluate* with a memory of what the study holds."""

        def look_up(rows: Indices) -> Results:
            unknown = self._known.unknown(rows)
            self.computed += len(unknown)
            if len(unknown) == len(rows):
                return evaluate(rows)
            if len(unknown):
                self._known.add(rows[unknown], evaluate(rows[unknown]))
            return self._known.recall(rows)

        return look_up

    def add(self, asked: int, trials: Trials, first: int) -> None:
        """Write a batch, or check that it is the one that was written."""
        if self._storage is None:
            return
        batch = Written(self._at, asked, len(trials))
        if self._at >= len(self._batches):
            self._storage.append(batch, trials, first)
        elif self._batches[self._at] != batch or not self._proposed(trials.rows, first):
            version = "another release of COSMIC, or of a library that its agent uses, wrote it"
            raise StudyError(f"{self._storage.path.parent}: cannot be resumed from batch {self._at}: {version}")
        self._at += 1

    def _proposed(self, rows: Indices, first: int) -> bool:
        """Return whether *rows* are what the study has from its trial *first* on."""
        return not len(rows) or (
            self._written is not None and np.array_equal(self._written.rows[first : first + len(rows)], rows)
        )
