"""The inputs of a search: options as a user gives them, and inputs that are complete and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.base.errors import BackendError, SpecError, UnknownName, as_key, require
from cosmic.search.agent import Task, start_agent
from cosmic.search.learning.prior_knowledge import (
    MAX_SOURCES,
    Lessons,
    Source,
    arithmetic_of,
    identify_sources,
    memory_filter,
    read_lessons,
)
from cosmic.search.problem import Problem, make_loss_bound, make_problem
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space
from cosmic.simulate.user_engines import identity_of

MAX_TRIALS = 10_000_000
"""Most trials of a search: their results are kept in memory, several GB of them."""
EVENT_BATCH = 32
"""The largest batch of designs that the event engine simulates: a crash can lose one batch."""
MAX_BATCH = 1_000_000
"""All its designs are in memory at the same time."""
MAX_SEED = 2**128
AUTO = "auto"
"""The agent that goes through every design of a set that is small enough, and else searches it (`DEFAULT_AGENT`)."""
DEFAULT_AGENT, DEFAULT_TRIALS = "genetic", 10_000
"""The agent for sets that are too large to go through, and how many designs it may evaluate if nothing is said."""
MAX_EXHAUSTIVE, MAX_BOUNDED = 1_500_000, 4_000_000
"""Designs of a set that is gone through, a minute or two: each of them, or but for those that bounds rule out."""
LEARNING_AGENT, LEARNED_TRIALS = "surrogate", 300
"""The same for searches that learn from earlier studies and measured runs."""
MAX_PROVISIONED, PROVISIONED_TRIALS = 3_000, 2_000
"""The same where bandwidth is provisioned: a design takes 10 to 40 ms, a thousand times as long."""
MAX_USER_ENGINE, USER_ENGINE_TRIALS = 2_000, 1_000
"""The same where an engine of somebody else evaluates."""
MAX_PATH_LENGTH = 4096
MAX_TEXTS, MAX_TEXT_LENGTH = 100, 500
"""Of objectives, constraints and layers: how many there may be, and how long each."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to search a parameter set."""

    agent: str = AUTO
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the agent by name."""
    objectives: Sequence[str] = ()
    """Metrics to improve; by default the objective of the set."""
    constraints: Sequence[str] = ()
    """Limits on metrics, besides those of the set."""
    stacks: Sequence[str] = ()
    """The layers to search, the others frozen; by default all."""
    trials: int | None = None
    """Designs to evaluate; if not given, all of a set that is gone through, else `DEFAULT_TRIALS`."""
    seed: int = 0
    batch: int | None = None
    """How many designs to ask for at once; by default what the agent prefers."""
    engine: str = "analytic"
    learn: Sequence[str | Path] = ()
    """Studies and CSV files of measured runs to learn from before the first trial."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Everything that determines what a search finds."""

    space: Mapping[str, Any]
    """The parameter set, complete: it refers to no file."""
    identity: str
    """The identity of the set when the study began: the catalog may change later."""
    stacks: tuple[str, ...] = ()
    agent: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    objectives: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    trials: int
    pace: int
    """The number of trials that the agent plans for: as first asked for, also where more are added later."""
    batch: int
    seed: int
    engine: str = "analytic"
    engine_identity: str = ""
    """Version and digest of an engine of somebody else when the study began; empty for COSMIC's own."""
    learn: tuple[tuple[str, str], ...] = ()
    """What it learns from: the path of each study or file, and the digest of its content."""

    @cached_property
    def lessons(self) -> Lessons:
        """What is known before the first trial; a source that is gone or has changed is refused."""
        return read_lessons(self.problem, [Source(*pair) for pair in self.learn])

    @cached_property
    def problem(self) -> Problem:
        """The problem that these inputs state; built here unless `with_problem` gave it."""
        space = load_space(self.space, files=False)
        if self.stacks:
            space = space.restrict(self.stacks)
        if space.identity != self.identity:
            rule = f"the catalog has changed since: its parameter set now is {space.identity}"
            raise SpecError("study.identity", self.identity, rule)
        return make_problem(space, self.objectives, self.constraints, self.engine)

    def task(self) -> Task:
        """Return the agent's task."""
        return task_of(self.problem, self.pace, self.lessons)

    def rng(self) -> np.random.Generator:
        """Return the agent's random generator."""
        return np.random.default_rng(self.seed)

    def differences(self, other: Inputs) -> list[str]:
        """Return the names of the inputs in which two studies differ, apart from the number of trials and the batch.

        The identity of the parameter set comes last: frozen layers change it too, and say more.
        """
        excluded = ("space", "identity", "trials", "pace", "batch")
        names = [*(input_field.name for input_field in fields(self) if input_field.name not in excluded), "identity"]
        return [name for name in names if getattr(self, name) != getattr(other, name)]


def with_problem(inputs: Inputs, problem: Problem) -> Inputs:
    """Return *inputs* with *problem*, which was built from the same values: so it is not built again."""
    inputs.__dict__["problem"] = problem  # where cached_property looks
    return inputs


def task_of(problem: Problem, trials: int, lessons: Lessons | None = None, *, expensive: bool | None = None) -> Task:
    """Return the agent's task for *problem*; closed forms describe points that are expensive to simulate.

    Where evaluations are *expensive*, what fits into memory is worked out before. By default they are if they are no
    closed forms, or if earlier studies teach: to know the memory of a design costs as much as its closed form.
    """
    simulated = problem.engine == "event"
    prior_lessons = lessons or Lessons()
    beforehand = expensive if expensive is not None else problem.engine != "analytic" or prior_lessons.prior is not None
    return Task(
        problem.space,
        trials,
        len(problem.objectives),
        describe=problem.features if simulated else None,
        arithmetic=arithmetic_of(problem, with_memory=beforehand),
        prior=prior_lessons.prior or (prior_lessons.measured(problem.closed_losses) if simulated else None),
        starts=prior_lessons.starts,
        fits=memory_filter(problem) if beforehand else None,
        bound=None
        if prior_lessons.factor is not None
        else make_loss_bound(problem),  # a corrected loss may be below the bound
    )


# ---- from plain data


def read_inputs(tree: Any) -> Inputs:
    """Return the inputs that plain data states, each of its type and within its range; others are refused."""
    if not isinstance(tree, Mapping):
        raise SpecError("inputs", tree, "must map names to values")
    input_fields = {input_field.name: input_field for input_field in fields(Inputs)}
    for name in tree:
        if name not in input_fields:
            raise UnknownName.key(as_key(name), tree[name], input_fields)
    for name, input_field in input_fields.items():
        if name not in tree and input_field.default is MISSING and input_field.default_factory is MISSING:
            raise SpecError(name, None, "is missing")
    _check_inputs(tree)
    texts: dict[str, Any] = {name: tuple(tree[name]) for name in TEXT_LISTS if name in tree}
    learn = tuple((str(path), str(digest)) for path, digest in tree.get("learn", ()))
    return Inputs(**{**tree, **texts, "learn": learn})


def _is_whole(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT_LENGTH and value.isprintable()


def _is_settings(settings: Any) -> bool:
    return isinstance(settings, Mapping) and all(
        _is_text(name) and (_is_text(value) or isinstance(value, int | float)) for name, value in settings.items()
    )


def _is_learn(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) <= MAX_SOURCES
        and all(isinstance(pair, list | tuple) and len(pair) == 2 and all(map(_is_path, pair)) for pair in value)
    )


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_PATH_LENGTH and value.isprintable()


TEXT_LISTS = ("stacks", "objectives", "constraints")
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "trials": (lambda value: _is_whole(value, 1, MAX_TRIALS), f"must be a number from 1 to {MAX_TRIALS:,}"),
    "batch": (lambda value: _is_whole(value, 1, MAX_BATCH), f"must be a number from 1 to {MAX_BATCH:,}"),
    "seed": (lambda value: _is_whole(value, 0, MAX_SEED), "must be a number from 0 to 2**128"),
    "space": (lambda value: isinstance(value, Mapping), "must be the content of a parameter set"),
    "settings": (_is_settings, "must map names to numbers or texts"),
    "identity": (_is_text, f"must be printable text of at most {MAX_TEXT_LENGTH} characters"),
}
_RULES["learn"] = (_is_learn, f"must be a list of at most {MAX_SOURCES} pairs, each of a path and a digest")
_RULES["pace"] = _RULES["trials"]
_RULES["agent"] = _RULES["engine"] = _RULES["engine_identity"] = _RULES["identity"]
_RULES |= dict.fromkeys(
    TEXT_LISTS,
    (
        lambda value: isinstance(value, list | tuple) and len(value) <= MAX_TEXTS and all(map(_is_text, value)),
        f"must be a list of at most {MAX_TEXTS} printable texts, each of at most {MAX_TEXT_LENGTH} characters",
    ),
)
_RULES["objectives"] = (
    lambda value: bool(value) and _RULES["stacks"][0](value),
    f"must be a list of 1 to {MAX_TEXTS} metrics",
)


def _check_inputs(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        holds, rule = _RULES[name]
        require(holds(value), name, value, rule)


# ---- from options


def check_trials(trials: int) -> None:
    """Refuse a number of trials that no search can have."""
    require(trials >= 1, "trials", trials, "give at least one")
    require(trials <= MAX_TRIALS, "trials", trials, f"at most {MAX_TRIALS:,} are kept")


def check_engine(inputs: Inputs) -> None:
    """Refuse to go on with another version of the engine than the study was begun with: results would be mixed."""
    current = identity_of(inputs.engine)
    rule = f"the study was begun with version {inputs.engine_identity}, and this is {current}: begin another"
    require(current == inputs.engine_identity, "engine", inputs.engine, rule)


def choose_effort(problem: Problem, options: Options) -> tuple[str, int]:
    """Return the agent and the number of trials of a search, which options may leave open."""
    if options.trials is not None:
        check_trials(options.trials)
    valid, bounded = problem.space.valid, make_loss_bound(problem) is not None
    most, usual = MAX_BOUNDED if bounded else MAX_EXHAUSTIVE, DEFAULT_TRIALS
    if problem.space.provisioner is not None:
        most, usual = MAX_PROVISIONED, PROVISIONED_TRIALS
    if problem.user_engine is not None:  # nobody knows how long it takes
        most, usual = MAX_USER_ENGINE, USER_ENGINE_TRIALS
    listed = problem.engine != "event" and valid <= most and not options.settings
    if options.agent == AUTO and options.learn:
        return LEARNING_AGENT, min(valid, LEARNED_TRIALS) if options.trials is None else options.trials
    if options.agent == AUTO and listed and (options.trials is None or options.trials >= valid):
        return ("bounded" if bounded else "exhaustive"), valid
    return (
        DEFAULT_AGENT if options.agent == AUTO else options.agent,
        usual if options.trials is None else options.trials,
    )


def make_inputs(space: ParameterSet, options: Options) -> Inputs:
    """Return the inputs of a search, checked before it begins."""
    require(options.seed >= 0, "seed", options.seed, "must be 0 or more")
    require(options.seed <= MAX_SEED, "seed", options.seed, "is too large")
    if space.source is None:
        raise SpecError("space", space.name, "a study keeps its parameter set: load it with cosmic.load_space")
    opened = space.restrict(options.stacks) if options.stacks else space
    problem = make_problem(opened, options.objectives, options.constraints, options.engine)
    name, trials = choose_effort(problem, options)
    sources = identify_sources(options.learn)
    lessons = read_lessons(problem, sources)
    agent = start_agent(name, task_of(problem, trials, lessons), np.random.default_rng(0), options.settings)
    preferred = getattr(agent, "batch", None)
    if not isinstance(preferred, int | np.integer) or preferred < 1:
        raise BackendError(f"agent {name}: prefers batches of {preferred!r}; wanted a number of points")
    most = trials if problem.engine == "analytic" else min(EVENT_BATCH, trials)
    batch = min(int(preferred), most, MAX_BATCH) if options.batch is None else options.batch
    require(batch >= 1, "batch", batch, "give at least one")
    require(batch <= MAX_BATCH, "batch", batch, f"give at most {MAX_BATCH:,}")
    if space.workloads:  # they are kept as they were written, and may name files
        load_space(space.source, files=False)
    inputs = Inputs(
        space=space.source,
        identity=opened.identity,
        stacks=tuple(options.stacks),
        agent=name,
        settings=dict(options.settings),
        objectives=problem.objectives,
        constraints=tuple(options.constraints),
        trials=trials,
        pace=trials,
        batch=batch,
        seed=options.seed,
        engine=problem.engine,
        engine_identity=identity_of(problem.engine),
        learn=tuple((source.path, source.digest) for source in sources),
    )
    inputs.__dict__["lessons"] = lessons
    _check_inputs(
        {input_field.name: getattr(inputs, input_field.name) for input_field in fields(inputs)}
    )  # or it could not be opened again
    return with_problem(inputs, problem)
