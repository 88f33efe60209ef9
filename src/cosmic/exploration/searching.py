"""Search: ask an agent for points, evaluate them, write the results to a study, tell the agent.

A search is a function of its inputs. To resume one is to run it again: the agent is asked and told as before, and
results that the study already has are looked up instead of evaluated. So a resumed search ends as one that was never
interrupted, bit for bit, with any agent, and no state of the agent is on disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.engines.engine import BUILT_IN
from cosmic.errors import SpecError, require
from cosmic.exploration import frames
from cosmic.exploration.agent import start
from cosmic.exploration.extras import needs
from cosmic.exploration.importance import Importance, importance
from cosmic.exploration.inputs import AUTO, Inputs, Options, check_engine, check_trials, make_inputs, with_problem
from cosmic.exploration.learning.quality import Learned
from cosmic.exploration.plateau import Plateau, plateau
from cosmic.exploration.problem import Problem, Results
from cosmic.exploration.proposals import CheckedAgent, judged
from cosmic.exploration.studies.cells import BatchRecord
from cosmic.exploration.studies.folder import INPUTS, TRIALS
from cosmic.exploration.studies.record import Record
from cosmic.exploration.studies.runs import Evidence, evidence
from cosmic.exploration.studies.storage import Storage, holds_trials
from cosmic.exploration.studies.study import FORMAT, Study, keep_text, locked, named, open_study, render
from cosmic.exploration.tabular import Part, TrialTable
from cosmic.exploration.trials import Ledger, Trials
from cosmic.exploration.workers import Evaluate, PoolEvaluator, check_workers, evaluator
from cosmic.psa.diagram import Indices
from cosmic.psa.files import load_space
from cosmic.psa.space import ParameterSet

PATIENCE = 200
"""A search ends after this many batches in a row without a new design: its agent has nothing left to propose."""
INVALID = 1_000_000
"""A search also ends after this many invalid mappings, plus a thousand for each trial."""
BARREN = 200_000
"""It ends after this many if no other design was among them."""
SCOUTING = 32
"""After this many batches in a row of invalid mappings only, random points are tried until one is another."""
SCOUTS = 4096
"""How many of them at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a search."""

    objective: str
    """The first objective, whose loss `best` is."""
    evaluated: int
    trials: int
    """How many designs to evaluate."""
    feasible: int
    seen: int
    best: float
    """The least loss so far; infinite while nothing can run."""
    computed: int
    """How many designs this run evaluated: the others were in the study already."""
    elapsed_s: float


Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Found:
    """What a search found."""

    inputs: Inputs
    trials: Trials
    stopped: str
    """Why it ended: ``trials`` are all used, the space is ``exhausted`` (every design is known, or cannot be better),
    or the agent has ``stalled``."""
    elapsed_s: float
    computed: int
    path: Path | None = None
    batches: tuple[int, ...] | None = None
    """How many trials each batch has; None where that is not known."""
    evidence: Evidence | None = None
    """What was measured beside what is predicted; None where nothing was put in."""
    learned: Learned | None = None
    """What the agent says of its model; None for an agent without one, and before a search has ended."""

    @property
    def problem(self) -> Problem:
        """The problem that was searched."""
        return self.inputs.problem

    @cached_property
    def plateau(self) -> Plateau | None:
        """The designs that are as good as the best, and which of them to take; None where nothing can run."""
        return plateau(self.problem, self.trials)

    @property
    def best(self) -> dict[str, Any] | None:
        """The best design: its point and its metrics; None where nothing can run."""
        place = self.trials.best(self.problem)
        return None if place is None else self.trials.describe(self.problem, place)

    @property
    def front(self) -> list[dict[str, Any]]:
        """The Pareto front: the designs that no other dominates."""
        return [self.trials.describe(self.problem, place) for place in self.trials.front(self.problem).tolist()]

    def to_pandas(self, *, parts: bool = True) -> Any:
        """Return every trial as a DataFrame: a column for each field, metric and, with *parts*, part of a metric."""
        return frames.to_pandas(self._table(parts), [self._part])

    def to_arrow(self, *, parts: bool = True) -> Any:
        """Return every trial as an Arrow Table, with the columns of `to_pandas`."""
        return frames.to_arrow(self._table(parts), [self._part])

    def importance(self, objective: str = "") -> Importance:
        """Return which parameters matter for *objective*; by default, for the first one of the search."""
        return importance(self.problem, self.trials, objective)

    def _table(self, parts: bool) -> TrialTable:
        return TrialTable(self.problem, batches=self.batches is not None, parts=parts)

    @property
    def _part(self) -> Part:
        sizes = self.batches
        return None if sizes is None else np.repeat(np.arange(len(sizes)), sizes), self.trials


def search(  # noqa: PLR0913  the options of the command, each by its name
    space: str | Path | Mapping[str, Any] | ParameterSet,
    *,
    agent: str = Options.agent,
    settings: Mapping[str, Any] | None = None,
    objectives: Sequence[str] = (),
    constraints: Sequence[str] = (),
    stacks: Sequence[str] = (),
    trials: int | None = None,
    seed: int = 0,
    batch: int | None = None,
    engine: str = "analytic",
    learn: Sequence[str | Path] = (),
    workers: int = 1,
    address: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    watch: Watch | None = None,
) -> Found:
    """Return what *agent* finds in *space* with a budget of *trials*; with *out*, a study there keeps every trial.

    *space* is a parameter set, by its name or file, or a design whose mapping is searched (``MODEL@SYSTEM:N``). Without
    an agent, sets that can be gone through are, and the best is proven; others are searched. The same inputs and seed
    give the same trials, on one worker or many, interrupted and resumed or not. *learn* names studies and CSV files of
    measured runs, from which it starts.
    """
    parameters = (
        space if isinstance(space, ParameterSet) else load_space(space, engine="" if engine in BUILT_IN else engine)
    )
    if resume and agent == AUTO and out is not None and (Path(out) / INPUTS).exists():
        agent = open_study(out).inputs.agent
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
        learn=learn,
    )
    inputs = make_inputs(parameters, options)
    pool = PoolOptions(workers, address)
    if out is None:
        require(not resume, "resume", resume, "needs a study to resume: give its directory")
        return run(inputs, pool, watch=watch)
    return keep(inputs, Path(out), pool, resume=resume, watch=watch)


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """Where designs are evaluated: in this many processes on this machine, or on the Ray cluster at an address."""

    workers: int = 1
    address: str | None = None

    def __post_init__(self) -> None:
        check_workers(self.workers, self.address)
        if self.address is not None:
            needs("ray", "ray", "ray", where="engine")  # a missing library is reported before anything is written


def keep(inputs: Inputs, folder: Path, pool: PoolOptions, *, resume: bool, watch: Watch | None = None) -> Found:
    """Return what a search finds, and write it to the study in *folder* batch by batch."""
    with ExitStack() as stack:
        stack.enter_context(locked(folder))
        exists = (folder / INPUTS).exists() or holds_trials(folder / TRIALS)
        if exists and not resume:
            raise SpecError("out", str(folder), "holds a study already: resume it (--resume), or choose another")
        study = open_study(folder) if exists else None
        if study is not None:
            inputs = _continued(inputs, study)
        storage = stack.enter_context(Storage.opened(folder / TRIALS, write=True, problem=inputs.problem))
        if study is None or inputs != study.inputs or study.format != FORMAT or storage.inputs() is None:
            text = render(inputs, study.created if study else "")
            storage.set_inputs(text)  # before study.json, which says that the database is complete
            keep_text(folder / INPUTS, text)
        found = run(inputs, pool, storage=storage, watch=watch)
        storage.set_learned(found.learned, len(found.trials))
        storage.set_ending(found.stopped, len(found.trials))
        beside = evidence(inputs.problem, storage.runs(), found.trials.points)
        return replace(found, path=folder, evidence=beside)


def _continued(inputs: Inputs, study: Study) -> Inputs:
    """Return the inputs of a resumed study: as they were, with the number of trials now asked for."""
    if inputs.engine == study.inputs.engine:
        check_engine(study.inputs)
    if different := inputs.differences(study.inputs):
        name = different[0]
        ours, theirs = getattr(inputs, name), getattr(study.inputs, name)
        rule = f"the study was begun with {theirs!r}: resume it with that, or begin another"
        raise SpecError("space" if name == "identity" else name, ours, rule)
    return with_problem(replace(study.inputs, trials=inputs.trials), inputs.problem)


def resume_study(
    folder: str | Path, trials: int | None = None, pool: PoolOptions | None = None, watch: Watch | None = None
) -> Found:
    """Return what the study in *folder* finds when it is resumed to its end, or to this number of *trials*."""
    study = open_study(folder)
    inputs = with_problem(replace(study.inputs, trials=trials or study.inputs.trials), study.problem)
    check_trials(inputs.trials)
    with named(folder):
        check_engine(inputs)
        return keep(inputs, Path(folder), pool or PoolOptions(), resume=True, watch=watch)


def found_so_far(folder: Path, progress: Progress | None = None) -> Found | None:
    """Return what an interrupted search has written; None if it has written nothing."""
    if not (folder / INPUTS).exists():
        return None
    study = open_study(folder)
    elapsed_s, computed = (progress.elapsed_s, progress.computed) if progress else (0.0, 0)
    batches, trials = study.history
    sizes = tuple(batch.trials for batch in batches)
    return Found(study.inputs, trials, "interrupted", elapsed_s, computed, folder, sizes)


# --------------------------------------------------------------------------------------------------- the loop


def run(inputs: Inputs, pool: PoolOptions, *, storage: Storage | None = None, watch: Watch | None = None) -> Found:
    """Return what a search finds; results that *storage* holds are not evaluated again."""
    began = time.perf_counter()
    problem = inputs.problem
    record = Record(problem, storage)
    ledger = Ledger(problem, record.written)
    with evaluator(problem, pool.workers, pool.address) as evaluate:
        pooled = evaluate if isinstance(evaluate, PoolEvaluator) else None
        agent = agent_of(inputs)
        steps = explore(inputs, ledger, record.remembered(evaluate, ledger), record.batches, pooled, agent)
        stopped, sizes = "", []
        for asked, rows, results, why in steps:
            record.add(asked, Trials(rows, results), len(ledger) - len(rows))
            stopped = why
            sizes.append(len(rows))
            if watch is not None:
                watch(_progress(inputs, ledger, record.computed, time.perf_counter() - began))
    elapsed_s = time.perf_counter() - began
    trials = ledger.trials
    learned = _learned(inputs, agent.learned, trials)
    return Found(inputs, trials, stopped, elapsed_s, record.computed, batches=tuple(sizes), learned=learned)


def _learned(inputs: Inputs, said: Learned | None, trials: Trials) -> Learned | None:
    """Return what the agent says of its model, with what was learned before and what is expected of measurements."""
    lessons, problem = inputs.lessons, inputs.problem
    notes = list(lessons.notes)
    if (best := lessons.expected(problem, trials)) is not None:
        place, times = best
        notes.append(
            f"By these measurements trial {place:,} is expected to be the best: {times:.3f}× its predicted time."
        )
    if said is None:
        return Learned(None, notes=tuple(notes)) if notes else None
    return replace(said, notes=(*notes, *said.notes))


def agent_of(inputs: Inputs) -> CheckedAgent:
    """Return the agent of a search, as it is before the first batch."""
    made = start(inputs.agent, inputs.task(), inputs.rng(), inputs.settings)
    return CheckedAgent(inputs.agent, made, inputs.problem.space)


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
    inputs: Inputs,
    ledger: Ledger,
    evaluate: Evaluate,
    before: Sequence[BatchRecord] = (),
    pool: PoolEvaluator | None = None,
    agent: CheckedAgent | None = None,
) -> Iterator[tuple[int, Indices, Results, str]]:
    """Yield each batch: how many points were asked for, the new ones, their results, and why the search ends.

    *before* is the batches of a search that is resumed or replayed. A *pool* of workers begins with the next batches of
    an agent that does not learn before the batch at hand is done.

    A known point is told to the agent again, and not evaluated. An invalid mapping is told as infeasible, and does not
    count as a trial; one that breaks a constraint of the set does count. If the base design is a point of the set it
    comes first, so no search ends worse than it.
    """
    problem, space = inputs.problem, inputs.problem.space
    agent = agent or agent_of(inputs)
    scouting = np.random.default_rng((inputs.seed, SCOUTS))
    idle, barren, stopped = 0, 0, ""
    base = space.row_of(space.base)
    for batch in count():
        if stopped and batch >= len(before):
            break
        if batch == 0 and base is not None:
            asked, rows = 0, base[None, :]
        elif barren >= SCOUTING:
            asked, rows = SCOUTS, space.sample(SCOUTS, scouting)
        else:
            left = inputs.trials - ledger.evaluated
            asked = before[batch].asked if batch < len(before) else min(inputs.batch, left)
            rows = agent.ask(asked)
            if pool is not None and batch >= len(before):  # the next batches will be as large, however this one ends
                sure = min((left - asked) // inputs.batch, SCOUTING - barren - 1)
                agent.look_ahead(inputs.batch, min(sure, pool.ahead))
        new = _unknown(ledger, rows)
        inside = space.contains(new)
        _begin(pool, space, (new, *agent.coming))
        results = judged(problem, new, inside, evaluate)
        most = before[batch].trials if batch < len(before) else _fitting(results, inputs.trials - ledger.evaluated)
        if barren >= SCOUTING and most < len(new):  # scouts: what comes after the last trial is as if it was not tried
            new, inside, results = new[:most], inside[:most], results.take(np.arange(most))
        ledger.add(new, results)
        ledger.outside += int((~inside).sum())
        told = new[results.counted] if barren >= SCOUTING else rows  # of scouts, only what is worth to learn
        if len(told) or barren < SCOUTING:
            agent.tell(inputs.lessons.corrected(problem, problem.outcomes(told, ledger.recall(told))))
        idle = 0 if len(new) else idle + 1
        barren = 0 if results.counted.any() else barren + bool(len(new))
        stopped = "exhausted" if agent.finished else _why_stop(inputs, ledger, idle)
        yield asked, new, results, stopped


def _unknown(ledger: Ledger, rows: Indices) -> Indices:
    """Return the points of *rows* that are in no trial yet, each once: the same array where all are."""
    unknown = ledger.unknown(rows)
    return rows if len(unknown) == len(rows) else rows[unknown]


def _begin(pool: PoolEvaluator | None, space: ParameterSet, batches: Sequence[Indices]) -> None:
    """Let workers begin with the valid ones of several *batches*; with a single one they do when it is evaluated."""
    if pool is not None and len(batches) > 1:
        for each in batches:
            if space.contains(each).all():
                pool.begin(each)


def _fitting(results: Results, left: int) -> int:
    """Return how many of *results*, from the first on, there are up to the last one that *left* trials allow."""
    return int(np.searchsorted(results.counted.cumsum(), left)) + 1 if results.counted.sum() > left else len(results)


def _why_stop(inputs: Inputs, ledger: Ledger, idle: int) -> str:
    if len(ledger) - ledger.outside >= inputs.problem.space.valid:
        return "exhausted"
    if ledger.evaluated >= inputs.trials:
        return "trials"
    invalid = len(ledger) - ledger.evaluated
    most = INVALID + 1000 * inputs.trials if ledger.evaluated else BARREN
    return "stalled" if idle >= PATIENCE or invalid >= most else ""
