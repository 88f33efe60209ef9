"""Search: ask an agent for points, evaluate them, write the results to a study, tell the agent.

A search is a function of its inputs. To resume one is to run it again: the agent is asked and told as before, and
results that the study already has are looked up instead of evaluated (`BatchLog`). So a resumed search ends as one that
was never interrupted, bit for bit, with any agent, and no state of the agent is on disk.

What agents propose is checked before it is evaluated: an agent may be a plugin that does as it likes. An answer that is
no array of value indices ends the search. A point that breaks a constraint of the set is a trial that cannot run: it is
counted and never evaluated.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from cosmic.base.errors import BackendError, CosmicError, SpecError, describe_error, one_line, require, shorten
from cosmic.base.optimise import explore
from cosmic.design.answer import Answer, Answered
from cosmic.search.agent import Agent, Flags, Outcomes, start_agent
from cosmic.search.design_wording import metric_text
from cosmic.search.learning.prediction_quality import Learned
from cosmic.search.optional_libraries import import_optional
from cosmic.search.plateau import Plateau, find_plateau
from cosmic.search.problem import Problem, Results
from cosmic.search.search_inputs import AUTO, Inputs, Options, check_engine, check_trials, make_inputs, with_problem
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space
from cosmic.search.study.measured_runs import Evidence, gather_evidence
from cosmic.search.study.study import keep_text, lock_study, name_study, open_study, render_inputs
from cosmic.search.study.trial_storage import (
    INPUTS,
    TRIALS,
    BatchRecord,
    Storage,
    StudyError,
    has_lost_trials,
    holds_trials,
)
from cosmic.search.study.trial_table import TabledTrials
from cosmic.search.trials import Ledger, Trials
from cosmic.search.worker_pools import Evaluate, PoolEvaluator, check_workers, open_evaluator
from cosmic.simulate.user_engines import BUILT_IN

if TYPE_CHECKING:
    from cosmic.search.search_verdict import SearchVerdict

# ---- What agents propose, checked before it is evaluated: an agent may be a plugin that does as it likes

T = TypeVar("T")


class CheckedAgent:
    """An agent whose answers are checked; where it fails, the error names it."""

    def __init__(self, name: str, agent: Agent, space: ParameterSet) -> None:
        self._name, self._agent, self._space = name, agent, space
        self._learns = getattr(agent, "learns", True) is not False
        self.proposals: deque[Indices] = deque()
        """What it has proposed already for the next times that it is asked."""

    def ask(self, n: int) -> Indices:
        """Return up to *n* points: rows of indices, each of a value that its parameter has."""
        return self.proposals.popleft() if self.proposals else self._ask(n)

    @property
    def finished(self) -> bool:
        """Whether it knows that nothing better is left."""
        return getattr(self._agent, "finished", False) is True

    @property
    def learned(self) -> Learned | None:
        """What it says of its model; None for one that has none."""
        report = self._call("learned", lambda: getattr(self._agent, "learned", None))
        return report if isinstance(report, Learned) else None

    def look_ahead(self, n: int, times: int) -> None:
        """Ask now for what it will be asked for the next *times*, *n* points each, unless it learns meanwhile."""
        if not self._learns:
            self.proposals.extend(self._ask(n) for _ in range(times - len(self.proposals)))

    def _ask(self, n: int) -> Indices:
        answer = as_plain_rows(self._call("ask", lambda: self._agent.ask(n)))
        if wrong := why_no_points(answer, n, self._space):
            raise BackendError(f"agent {self._name}: {wrong}")
        return answer.astype(np.intp, copy=False)  # type: ignore[no-any-return]  # an array, as was checked

    def tell(self, outcomes: Outcomes) -> None:
        """Tell the agent the outcomes of some points."""
        self._call("tell", lambda: self._agent.tell(outcomes))

    def _call(self, method: str, call: Callable[[], T]) -> T:
        try:
            with redirect_stdout(sys.stderr):  # what a plugin prints is no result
                return call()
        except CosmicError:
            raise
        except (Exception, SystemExit) as error:
            raise BackendError(f"agent {self._name}: {method} failed: {describe_error(error)}") from error


def why_no_points(answer: Any, n: int, space: ParameterSet) -> str:
    """Return why *answer* is no array of at most *n* points of *space*, valid or not; empty if it is one."""
    width = len(space.parameters)
    if not isinstance(answer, np.ndarray) or answer.dtype.kind not in "iu":
        shown = f"an array of {answer.dtype}" if isinstance(answer, np.ndarray) else one_line(shorten(answer))
        return f"proposed {shown}; wanted an array of whole numbers, a row of value indices for each point"
    if answer.ndim != 2 or answer.shape[1] != width:
        return f"proposed an array of shape {answer.shape}; wanted rows of {width} value indices"
    if len(answer) > n:
        return f"proposed {len(answer):,} points; it was asked for {n:,}"
    beyond = (answer < 0) | (answer >= np.array(space.sizes, dtype=np.intp))
    if beyond.any():
        row, column = np.argwhere(beyond)[0].tolist()
        parameter = space.parameters[column]
        return f"proposed value {answer[row, column]} of {parameter.name}, which has {len(parameter.values)} from 0 on"
    return ""


def as_plain_rows(answer: Any) -> Any:
    """Return rows as a plain array of our own; anything else, and rows that differ in length, as they are."""
    if not isinstance(answer, list | tuple | np.ndarray):
        return answer
    try:
        return np.array(answer, subok=False)
    except (ValueError, TypeError, OverflowError):
        return answer


def evaluate_proposals(
    problem: Problem, rows: Indices, valid: Flags, evaluate: Callable[[Indices], Results]
) -> Results:
    """Return the results of *rows*, of which those *valid* the set are evaluated; the others break its constraints."""
    if valid.all():
        return evaluate(rows)
    invalid = np.flatnonzero(~valid)
    refused = Results.failed(len(invalid), "", problem.metrics)
    reasons = [", ".join(problem.space.broken(rows[row])) for row in invalid.tolist()]
    refused = Results(refused.columns, refused.excess, reasons, refused.counted)
    joined = Results.join([evaluate(rows[valid]), refused])
    return joined.select(np.argsort(np.concatenate((np.flatnonzero(valid), invalid)), kind="stable"))


# ---- The batches of a study: checked while a resumed search repeats them, then appended to


class BatchLog:
    """The batches of a study, written and to be written; without *storage*, nothing is kept."""

    def __init__(self, problem: Problem, storage: Storage | None) -> None:
        self._storage = storage
        self.batches: list[BatchRecord] = []
        """The batches that were there."""
        self.recorded_trials: Trials | None = None
        """Their trials; None once all are repeated, as the search then has them."""
        self._saved = Ledger(problem)
        """Results of points that are in no batch: what the doctor saved, and what is evaluated beside them."""
        self._position = 0
        self.computed = 0
        """How many points this run evaluated."""
        if storage is not None:
            self.batches, self.recorded_trials = storage.history()
            saved = storage.salvaged()
            new = self._saved.unknown(saved.rows)
            self._saved.add(saved.rows[new], saved.results.select(new))

    def cache_results(self, evaluate: Evaluate, ledger: Ledger) -> Evaluate:
        """Return *evaluate*, with results that the study holds looked up instead; *ledger* has its trials ahead."""

        def look_up(rows: Indices) -> Results:
            ahead = ledger.holds(rows)
            if ahead.all():
                return ledger.recall(rows)
            if not ahead.any():
                return self._evaluate_unsaved(evaluate, rows)
            joined = Results.join([ledger.recall(rows[ahead]), self._evaluate_unsaved(evaluate, rows[~ahead])])
            order = np.concatenate((np.flatnonzero(ahead), np.flatnonzero(~ahead)))
            return joined.select(np.argsort(order, kind="stable"))

        return look_up

    def _evaluate_unsaved(self, evaluate: Evaluate, rows: Indices) -> Results:
        """Return the results of *rows*, of which those that were saved are looked up."""
        unknown = self._saved.unknown(rows) if len(self._saved) else np.arange(len(rows))
        self.computed += len(unknown)
        if len(unknown) == len(rows):
            return evaluate(rows)
        if len(unknown):
            self._saved.add(rows[unknown], evaluate(rows[unknown]))
        return self._saved.recall(rows)

    def add(self, asked: int, trials: Trials, first: int) -> None:
        """Write a batch, or check that it equals the one that was written."""
        if self._storage is None:
            return
        batch = BatchRecord(self._position, asked, len(trials))
        if self._position >= len(self.batches):
            self._storage.append(batch, trials, first)
        elif self.batches[self._position] != batch or not self._proposed(trials.points, first):
            version = "another release of COSMIC, or of a library that its agent uses, wrote it"
            raise StudyError(f"{self._storage.path.parent}: cannot be resumed from batch {self._position}: {version}")
        self._position += 1
        if self._position >= len(self.batches):
            self.recorded_trials = None

    def _proposed(self, points: Indices, first: int) -> bool:
        """Return whether *points* equal those of the study from its trial *first* on."""
        return not len(points) or (
            self.recorded_trials is not None
            and np.array_equal(self.recorded_trials.points[first : first + len(points)], points)
        )


PATIENCE = 200
"""A search ends after this many batches in a row without a new design: its agent has nothing left to propose."""
MAX_INVALID = 1_000_000
"""A search also ends after this many invalid mappings, plus a thousand for each trial."""
MAX_BARREN = 200_000
"""It ends after this many if no other design was among them."""
SCOUT_AFTER = 32
"""After this many batches in a row of invalid mappings only, random points are tried until one is another."""
SCOUT_BATCH = 4096
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
class Found(TabledTrials, Answered):
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

    def __repr__(self) -> str:
        """Say what was found in a line: a notebook shows it."""
        problem, best = self.problem, self.best
        name = problem.objectives[0]
        reached = "none can run" if best is None else f"best {name} {metric_text(name, best['metrics'][name])}"
        return f"<Found in {problem.space.name}: {self.trials.evaluated:,} designs, {reached}; ended: {self.stopped}>"

    @cached_property
    def judged(self) -> SearchVerdict:
        """The verdict on the search."""
        from cosmic.search.search_verdict import judge_search  # noqa: PLC0415  which imports searches

        return judge_search(self)

    @cached_property
    def answer(self) -> Answer:
        """What every question is answered with."""
        from cosmic.search.search_verdict import answer_search  # noqa: PLC0415  which imports searches

        return answer_search(self, self.judged)

    @property
    def problem(self) -> Problem:
        """The problem that was searched."""
        return self.inputs.problem

    @cached_property
    def plateau(self) -> Plateau | None:
        """The designs that are as good as the best, and which of them to take; None where nothing can run."""
        return find_plateau(self.problem, self.trials)

    @property
    def best(self) -> dict[str, Any] | None:
        """The best design: its point and its metrics; None where nothing can run."""
        trial = self.trials.best(self.problem)
        return None if trial is None else self.trials.describe(self.problem, trial)

    @property
    def front(self) -> list[dict[str, Any]]:
        """The Pareto front: the designs that no other dominates."""
        return [self.trials.describe(self.problem, trial) for trial in self.trials.front(self.problem).tolist()]

    @property
    def _searched(self) -> tuple[Problem, Trials]:
        return self.problem, self.trials

    @property
    def batch_sizes(self) -> tuple[int, ...] | None:
        """How many trials each batch has."""
        return self.batches


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
        return run_search(inputs, pool, watch=watch)
    return keep_search(inputs, Path(out), pool, resume=resume, watch=watch)


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """Where designs are evaluated: in this many processes on this machine, or on the Ray cluster at an address."""

    workers: int = 1
    address: str | None = None

    def __post_init__(self) -> None:
        check_workers(self.workers, self.address)
        if self.address is not None:
            import_optional(
                "ray", "ray", "ray", where="engine"
            )  # a missing library is reported before anything is written


def keep_search(inputs: Inputs, folder: Path, pool: PoolOptions, *, resume: bool, watch: Watch | None = None) -> Found:
    """Return what a search finds, and write it to the study in *folder* batch by batch."""
    with ExitStack() as stack:
        stack.enter_context(lock_study(folder))
        exists = (folder / INPUTS).exists() or holds_trials(folder / TRIALS)
        if exists and not resume:
            raise SpecError("out", str(folder), "holds a study already: resume it (--resume), or choose another")
        study = open_study(folder) if exists else None
        if study is not None:
            if (folder / INPUTS).exists() and has_lost_trials(folder / TRIALS):
                rule = "is missing or empty: bring it back, or begin anew in another folder"
                raise StudyError(f"{folder / TRIALS}: {rule}")
            # The inputs of a resumed study: as they were, with the number of trials now asked for.
            if inputs.engine == study.inputs.engine:
                check_engine(study.inputs)
            if different := inputs.differences(study.inputs):
                name = different[0]
                ours, theirs = getattr(inputs, name), getattr(study.inputs, name)
                rule = f"the study was begun with {theirs!r}: resume it with that, or begin another"
                raise SpecError("space" if name == "identity" else name, ours, rule)
            inputs = with_problem(replace(study.inputs, trials=inputs.trials), inputs.problem)
        storage = stack.enter_context(Storage.opened(folder / TRIALS, write=True, problem=inputs.problem))
        if study is None or inputs != study.inputs or storage.inputs() is None:
            text = render_inputs(inputs, study.created if study else "")
            storage.set_inputs(text)  # before study.json, which says that the database is complete
            keep_text(folder / INPUTS, text)
        result = run_search(inputs, pool, storage=storage, watch=watch)
        storage.set_learned(result.learned, len(result.trials))
        storage.set_ending(result.stopped, len(result.trials))
        evidence = gather_evidence(inputs.problem, storage.runs(), result.trials.points)
        return replace(result, path=folder, evidence=evidence)


def resume_study(
    folder: str | Path, trials: int | None = None, pool: PoolOptions | None = None, watch: Watch | None = None
) -> Found:
    """Return what the study in *folder* finds when it is resumed to its end, or to this number of *trials*."""
    study = open_study(folder)
    inputs = with_problem(replace(study.inputs, trials=trials or study.inputs.trials), study.problem)
    check_trials(inputs.trials)
    with name_study(folder):
        check_engine(inputs)
        return keep_search(inputs, Path(folder), pool or PoolOptions(), resume=True, watch=watch)


def read_interrupted(folder: Path, progress: Progress | None = None) -> Found | None:
    """Return what an interrupted search has written; None if it has written nothing."""
    if not (folder / INPUTS).exists():
        return None
    study = open_study(folder)
    elapsed_s, computed = (progress.elapsed_s, progress.computed) if progress else (0.0, 0)
    batches, trials = study.history
    sizes = tuple(batch.trials for batch in batches)
    return Found(study.inputs, trials, "interrupted", elapsed_s, computed, folder, sizes)


# ---- the loop


def run_search(
    inputs: Inputs, pool: PoolOptions, *, storage: Storage | None = None, watch: Watch | None = None
) -> Found:
    """Return what a search finds; results that *storage* holds are not evaluated again."""
    began = time.perf_counter()
    problem = inputs.problem
    record = BatchLog(problem, storage)
    ledger = Ledger(problem, record.recorded_trials)
    with open_evaluator(problem, pool.workers, pool.address) as evaluate:
        pooled = evaluate if isinstance(evaluate, PoolEvaluator) else None
        agent = make_agent(inputs)
        steps = explore_batches(inputs, ledger, record.cache_results(evaluate, ledger), record.batches, pooled, agent)
        stopped, sizes = "", []
        for asked, rows, results, why in steps:
            record.add(asked, Trials(rows, results), len(ledger) - len(rows))
            stopped = why
            sizes.append(len(rows))
            if watch is not None:
                watch(_report_progress(inputs, ledger, record.computed, time.perf_counter() - began))
    elapsed_s = time.perf_counter() - began
    trials = ledger.trials
    learned = _report_learned(inputs, agent.learned, trials)
    return Found(inputs, trials, stopped, elapsed_s, record.computed, batches=tuple(sizes), learned=learned)


def _report_learned(inputs: Inputs, report: Learned | None, trials: Trials) -> Learned | None:
    """Return what the agent says of its model, with what was learned before and what is expected of measurements."""
    lessons, problem = inputs.lessons, inputs.problem
    notes = list(lessons.notes)
    if (best := lessons.expected(problem, trials)) is not None:
        trial, times = best
        notes.append(
            f"By these measurements trial {trial:,} is expected to be the best: {times:.3f}× its predicted time."
        )
    if report is None:
        return Learned(None, notes=tuple(notes)) if notes else None
    return replace(report, notes=(*notes, *report.notes))


def make_agent(inputs: Inputs) -> CheckedAgent:
    """Return the agent of a search, as it is before the first batch."""
    agent = start_agent(inputs.agent, inputs.task(), inputs.rng(), inputs.settings)
    return CheckedAgent(inputs.agent, agent, inputs.problem.space)


def _report_progress(inputs: Inputs, ledger: Ledger, computed: int, elapsed_s: float) -> Progress:
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


@dataclass(frozen=True, slots=True)
class EvaluatedBatch:
    """One batch of a search."""

    asked: int
    """How many points the agent was asked for."""
    rows: Indices
    """The new ones."""
    results: Results
    outside: int
    """How many of them break a constraint of the set."""


class Exploration:
    """What a search asks for, batch by batch: the points of its agent that are new, and scouts where all are invalid.

    *recorded* is the batches of a search that is resumed or replayed. A *pool* of workers begins with the next batches
    of an agent that does not learn before the batch at hand is done.
    """

    def __init__(
        self,
        inputs: Inputs,
        ledger: Ledger,
        recorded: Sequence[BatchRecord] = (),
        pool: PoolEvaluator | None = None,
        agent: CheckedAgent | None = None,
    ) -> None:
        self._inputs, self._ledger, self._recorded, self._pool = inputs, ledger, recorded, pool
        self._problem, self._space = inputs.problem, inputs.problem.space
        self._agent = agent or make_agent(inputs)
        # A generator of its own: what the agent draws must not depend on whether scouts were sent.
        self._scouting = np.random.default_rng((inputs.seed, SCOUT_BATCH))
        self._batch = self._idle = self._barren = self._asked = 0
        self._proposed: Indices = np.empty((0, len(self._space.parameters)), dtype=np.intp)
        self.why = ""
        """Why the search ends after the last batch; empty while it goes on."""

    @property
    def stopped(self) -> str:
        """Why nothing more is asked for: a recorded search is repeated to its last batch, however it ends here."""
        return self.why if self._batch >= len(self._recorded) else ""

    @property
    def _is_scouting(self) -> bool:
        return self._barren >= SCOUT_AFTER

    def ask(self) -> Indices:
        """Return the new points of the next batch. If the base design is a point of the set it comes first."""
        inputs, batch = self._inputs, self._batch
        base = self._space.row_of(self._space.base) if batch == 0 else None
        if base is not None:
            self._asked, self._proposed = 0, base[None, :]
        elif self._is_scouting:
            self._asked, self._proposed = SCOUT_BATCH, self._space.sample(SCOUT_BATCH, self._scouting)
        else:
            remaining = inputs.trials - self._ledger.evaluated
            is_recorded = batch < len(self._recorded)
            self._asked = self._recorded[batch].asked if is_recorded else min(inputs.batch, remaining)
            self._proposed = self._agent.ask(self._asked)
            if self._pool is not None and not is_recorded:  # the next will be as large, however this one ends
                sure = min((remaining - self._asked) // inputs.batch, SCOUT_AFTER - self._barren - 1)
                self._agent.look_ahead(inputs.batch, min(sure, self._pool.ahead))
        new = _unknown_points(self._ledger, self._proposed)
        _start_evaluations(self._pool, self._space, (new, *self._agent.proposals))
        return new

    def evaluate(self, rows: Indices, evaluate: Evaluate) -> EvaluatedBatch:
        """Return the batch of *rows*; of scouts, what comes after the last trial is as if it was not tried."""
        inside = self._space.contains(rows)
        results = evaluate_proposals(self._problem, rows, inside, evaluate)
        most = (
            self._recorded[self._batch].trials
            if self._batch < len(self._recorded)
            else _count_within_budget(results, self._inputs.trials - self._ledger.evaluated)
        )
        if self._is_scouting and most < len(rows):
            rows, inside, results = rows[:most], inside[:most], results.select(np.arange(most))
        return EvaluatedBatch(self._asked, rows, results, int((~inside).sum()))

    def tell(self, batch: EvaluatedBatch) -> None:
        """Add a batch to the trials, and tell the agent: known points again, of scouts what is worth to learn."""
        ledger, rows, results, is_scouting = self._ledger, batch.rows, batch.results, self._is_scouting
        ledger.add(rows, results)
        ledger.outside += batch.outside
        reported = rows[results.counted] if is_scouting else self._proposed
        if len(reported) or not is_scouting:
            outcomes = self._problem.outcomes(reported, ledger.recall(reported))
            self._agent.tell(self._inputs.lessons.corrected(self._problem, outcomes))
        self._idle = 0 if len(rows) else self._idle + 1
        self._barren = 0 if results.counted.any() else self._barren + bool(len(rows))
        self.why = "exhausted" if self._agent.finished else _why_stop(self._inputs, ledger, self._idle)
        self._batch += 1


def explore_batches(
    inputs: Inputs,
    ledger: Ledger,
    evaluate: Evaluate,
    recorded: Sequence[BatchRecord] = (),
    pool: PoolEvaluator | None = None,
    agent: CheckedAgent | None = None,
) -> Iterator[tuple[int, Indices, Results, str]]:
    """Yield each batch: how many points were asked for, the new ones, their results, and why the search ends.

    *recorded* is the batches of a search that is resumed or replayed. A *pool* of workers begins with the next batches of
    an agent that does not learn before the batch at hand is done.

    A known point is told to the agent again, and not evaluated. An invalid mapping is told as infeasible, and does not
    count as a trial; one that breaks a constraint of the set does count. If the base design is a point of the set it
    comes first, so no search ends worse than it.
    """
    exploration = Exploration(inputs, ledger, recorded, pool, agent)
    for batch in explore(exploration, lambda rows: exploration.evaluate(rows, evaluate)):
        yield batch.asked, batch.rows, batch.results, exploration.why


def _unknown_points(ledger: Ledger, rows: Indices) -> Indices:
    """Return the points of *rows* that are in no trial yet, each once: the same array where all are."""
    unknown = ledger.unknown(rows)
    return rows if len(unknown) == len(rows) else rows[unknown]


def _start_evaluations(pool: PoolEvaluator | None, space: ParameterSet, batches: Sequence[Indices]) -> None:
    """Let workers begin with the valid ones of several *batches*; with a single one they do when it is evaluated."""
    if pool is not None and len(batches) > 1:
        for batch in batches:
            if space.contains(batch).all():
                pool.start(batch)


def _count_within_budget(results: Results, budget: int) -> int:
    """Return how many of *results*, from the first on, there are up to the last one that *budget* trials allow."""
    return (
        int(np.searchsorted(results.counted.cumsum(), budget)) + 1 if results.counted.sum() > budget else len(results)
    )


def _why_stop(inputs: Inputs, ledger: Ledger, idle: int) -> str:
    if len(ledger) - ledger.outside >= inputs.problem.space.valid:
        return "exhausted"
    if ledger.evaluated >= inputs.trials:
        return "trials"
    invalid = len(ledger) - ledger.evaluated
    most = MAX_INVALID + 1000 * inputs.trials if ledger.evaluated else MAX_BARREN
    return "stalled" if idle >= PATIENCE or invalid >= most else ""
