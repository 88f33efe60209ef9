"""What commands on spaces, studies and recipes, and on the program itself, print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from cosmic.base.json_types import (
    AnyOf,
    Count,
    Keywords,
    NonNegative,
    PositiveCount,
    Ratio,
    Share,
    ShareOrNull,
    described,
    json_keys,
    one_of,
    unit,
)
from cosmic.cli.answers.common_keys import (
    Identity,
    PointValues,
    StepTime,
    TriedDesign,
    UserEngineMetrics,
)
from cosmic.cli.recipes import ReplayedRecipe
from cosmic.design.answer import Answer
from cosmic.search.importance import Importance
from cosmic.search.leaderboard import BoardLine, BoardRules
from cosmic.search.search_verdict import SearchGain
from cosmic.search.study.doctor import StudyRepair
from cosmic.search.study.measured_runs import Evidence
from cosmic.search.study.study_comparison import ReplayedStudy
from cosmic.simulate.metrics import DesignMetrics


class SearchPlateau(TypedDict):
    """The designs that are as good as the best by the first objective."""

    within: Share
    """Share of the least loss that counts as equal."""
    count: PositiveCount
    """Designs that are as good."""
    above: Share
    """By what share the loss of best is above the least."""
    least_trial: Count
    """Number of the trial with the least loss."""
    expected_error: Share | None
    """Expected error of the step; null if not measured."""
    within_error: Count
    """Designs within that error of the least."""


class SearchFacts(TypedDict):
    """What a search found."""

    verdict: str
    """The result in one sentence."""
    space: str
    """Name of the space."""
    agent: str
    """The agent."""
    seed: Count
    """Seed of the search."""
    objectives: Annotated[Sequence[str], Keywords(minItems=1)]
    """The objectives; the first decides which design is best."""
    constraints: Sequence[str]
    """Limits on metrics."""
    best: TriedDesign | None
    """The best design; null if none is feasible."""
    plateau: SearchPlateau | None
    """The designs that are as good as the best by the first objective; null if none is feasible."""
    front: Sequence[TriedDesign]
    """The Pareto front, sorted by the first objective."""
    hypervolume: Share | None
    """Hypervolume of the front, between 0 and 1; null for one objective."""
    base: AnyOf[DesignMetrics, UserEngineMetrics] | None
    """Metrics of the base design; null if it is infeasible."""
    gain_over_base: Ratio | None
    """How many times better the best design is in the first objective; null if either is infeasible."""
    bound: str
    """What bounds the best design, with its share of the step; empty if that is not known."""
    valid: Count
    """Designs of the space that meet its constraints."""
    trials: Count
    """Designs evaluated."""
    feasible: Count
    """How many of them are feasible."""
    refused: Count
    """Proposed designs that are invalid mappings and were not evaluated."""
    reasons: Mapping[str, Count]
    """Infeasible designs by reason."""
    stopped: str
    """Why it ended: trials, exhausted (every valid design is known, or cannot be better), stalled (nothing new is
    proposed), interrupted."""
    computed: Count
    """Designs evaluated now, not read from the study."""
    elapsed_s: float
    """Elapsed time."""
    evaluations_per_s: float | None
    """Designs evaluated per second; null if no time elapsed."""
    study: str | None
    """Directory of the study; null if it is not kept."""


class SearchAnswer(SearchFacts):
    """The result of a search. Exit code 1, and best is null, where no evaluated design is feasible."""

    answer: Answer
    changes: NotRequired[Sequence[str]]
    """With --from: what to change in the launch, a line for each argument."""


class DemoSearchRow(TypedDict):
    """One search."""

    searched: str
    """The layer that was searched, or 'full stack'."""
    valid: Count
    """Valid designs."""
    evaluated: Count
    """Designs evaluated."""
    step_s: float | None
    """Step time of its best design; null if none is feasible."""
    reward: Annotated[float | None, unit("that of the objective")]
    """The objective of its best design."""
    over_base: Ratio | None
    """How many times better than the base."""
    full_stack_over_it: Ratio | None
    """How many times better the full stack is than this."""


class DemoFacts(TypedDict):
    """What a full-stack search and searches of one layer each found."""

    space: str
    """Name of the space."""
    objective: str
    """The objective."""
    seed: Count
    """Seed of the search."""
    raw: Count
    """All combinations of values."""
    valid: Count
    """Those that the constraints allow."""
    designs: Count
    """Designs evaluated by all searches together."""
    elapsed_s: float
    """Elapsed time."""
    evaluations_per_s: float
    """Designs evaluated per second."""
    base: DesignMetrics | None
    """Metrics of the base design; null if it is infeasible."""
    best: TriedDesign | None
    """The best design of the full stack; null if none is feasible."""
    searches: Sequence[DemoSearchRow]
    """The base, each layer alone, and the full stack."""


class DemoAnswer(DemoFacts):
    """A full-stack search, compared with searches of one layer each."""

    verdict: str
    """The result in one sentence."""
    study: str
    """Directory of the full-stack study."""
    report: str
    """The report."""


class ComparedStudyRow(TypedDict):
    """One study."""

    study: str
    """Name of its directory."""
    agent: str
    """The agent."""
    seed: Count
    """Seed of the search."""
    trials: Count
    """Designs evaluated."""
    feasible: Count
    """How many of them are feasible."""
    best: Annotated[float | None, unit("that of the objective")]
    """The best value of the objective; null if no design is feasible."""
    behind: Share | None
    """How far it is behind the best study."""
    trials_to_5_percent: int | None
    """Trials until it was within 5 % of the best of all studies; null if it never was."""
    told_apart: bool | None
    """Whether its best design is surely slower than the best of all (see 'cosmic design diff'); null for that one, and where
    the objective is no time or rate."""


class CompareAnswer(TypedDict):
    """A comparison of several studies."""

    objective: str
    """The objective of all studies."""
    studies: Sequence[ComparedStudyRow]
    """The studies, in the order given."""
    curves: Mapping[str, Sequence[tuple[float, float]]]
    """The convergence of each study: pairs of trials evaluated and the best value so far."""


@json_keys(beside=("importance",))
@dataclass(frozen=True, slots=True)
class ImportanceAnswer:
    """Which parameters of a study matter for its objective."""

    study: Path
    """Directory of the study."""
    agent: str
    """The agent that chose the trials."""
    importance: Importance


class TournamentAgentRow(TypedDict):
    """One agent."""

    agent: str
    """Its name."""
    median: Annotated[float | None, unit("that of the objective")]
    """Median over seeds of the best value that it found."""
    best: Annotated[float | None, unit("that of the objective")]
    """The best value that it found."""
    regret_mean: ShareOrNull
    """Mean regret over seeds; null if it found no feasible design."""
    regret_median: ShareOrNull
    """Median regret over seeds."""
    regret_worst: ShareOrNull
    """Regret of its worst seed."""
    within_2_percent: Count
    """Seeds that came within 2 % of the optimum."""
    seeds: PositiveCount
    """Number of its searches."""
    trials_to_5_percent: Annotated[float | None, unit("trials")]
    """Median of the trials until it was within 5 %; null if most seeds never were."""
    elapsed_s: float
    """Time of all its searches."""
    checked: bool
    """Whether its best designs evaluate to the same again."""


class TournamentSearchRow(TypedDict):
    """One search."""

    agent: str
    """The agent."""
    seed: Count
    """The seed."""
    loss: Annotated[float | None, unit("that of the objective")]
    """The objective as a loss (less is better: a metric, or its inverse); null if none is feasible."""
    point: PointValues | None
    """The best design; null if none is feasible."""
    checked: bool
    """Whether it evaluates to the same again."""
    elapsed_s: float
    """Time of the search."""


class TournamentAnswer(TypedDict):
    """A comparison of agents with the same budget."""

    space: str
    """The space as it was named."""
    objective: str
    """The objective."""
    trials: PositiveCount
    """Designs that each agent may evaluate with each seed."""
    optimum: Annotated[str, one_of("exhaustive", "proven", "found")]
    """The reference of regret: the optimum of all designs, one that was proven, or the best that any agent found."""
    leaderboard: Sequence[TournamentAgentRow]
    """The agents, the least mean regret first."""
    entries: Sequence[TournamentSearchRow]
    """Every search."""


@json_keys(beside=("rules",))
@dataclass(frozen=True, slots=True)
class LeaderboardRules:
    """The rules of a new board."""

    board: Path
    """Folder of the board."""
    rules: BoardRules


@json_keys(beside=("rules",))
@dataclass(frozen=True, slots=True)
class LeaderboardAnswer(LeaderboardRules):
    """A board, its entries evaluated again, the best first."""

    lines: Sequence[BoardLine]
    """A line for each entry."""


@json_keys(beside=("replayed",))
@dataclass(frozen=True, slots=True)
class ReplayAnswer:
    """A study run again and compared trial by trial."""

    study: Path
    """Directory of the study."""
    replayed: ReplayedStudy


@json_keys(beside=("repair",))
@dataclass(frozen=True, slots=True)
class StudyDoctorAnswer:
    """The check of a study. Exit code 1 if it stays damaged."""

    study: Path
    """Directory of the study."""
    repair: StudyRepair


class LearnedSource(TypedDict):
    """A study or a file."""

    path: str
    """Its path."""
    sha256: str
    """Digest of its content."""


class StudyShowAnswer(TypedDict):
    """A study, what its model learned, and what was measured beside what is predicted."""

    study: str
    """The directory of the study."""
    space: str
    """Name of the space."""
    agent: str
    """The agent."""
    settings: Mapping[str, float | str | bool]
    """Settings of the agent, by name."""
    seed: Count
    """Seed of the search."""
    engine: str
    """The engine that evaluates."""
    objectives: Sequence[str]
    """The objectives, the first one first."""
    trials: Count
    """Designs evaluated."""
    feasible: Count
    """How many of them are feasible."""
    stopped: str
    """Why the search ended."""
    best: Mapping[str, Any] | None
    """The best predicted design; null if no design is feasible."""
    learn: Sequence[LearnedSource]
    """What the search learned from before its first trial."""
    learned: Mapping[str, Any] | None
    """What the agent says of its model; null for an agent without one."""
    measured: Evidence | None
    """Measured designs beside predictions; null where nothing was measured."""


class StudyTellAnswer(TypedDict):
    """Measured runs that were put into a study."""

    study: str
    """The directory of the study."""
    new: Count
    """How many runs were new."""
    runs: Count
    """How many runs it has now."""
    measured: Evidence | None
    """Measured designs beside predictions; null where nothing was measured."""


class ReportAnswer(TypedDict):
    """The report that was written, and its verdict."""

    report: str
    """The file."""
    bytes: int
    """Its size."""
    trials: Count
    """Trials that it holds."""
    verdict: str
    """The result of the study in one sentence."""
    gains: Sequence[SearchGain]
    """How much better the best design is."""
    bound: str
    """What bounds the best design, with its share of the step; empty if that is not known."""
    caveats: Sequence[str]
    """Caveats, a sentence each."""


class ProvenDesign(TypedDict):
    """One design."""

    point: PointValues
    metrics: DesignMetrics


class NearBestDesigns(TypedDict):
    """How many designs are near the best; null unless asked for."""

    share: float
    """How near: so much worse than the best, at most."""
    count: Count | None
    """How many designs; null if time ran out."""


class SimulatedBestDesign(TypedDict):
    """One design."""

    point: PointValues
    step_s: StepTime
    simulated_step_s: float
    """The step as the event engine simulates it."""


class ProofAnswer(TypedDict):
    """What is proven of a parameter set."""

    space: str
    """The space as it was named."""
    designs: PositiveCount
    """How many designs it has."""
    objectives: Annotated[Sequence[str], Keywords(minItems=1)]
    """The metrics that are optimised."""
    limits: Sequence[str]
    """The limits that designs must meet."""
    method: Annotated[str, one_of("bounded", "enumerated")]
    """How it was proven: by bounds, or because every design was evaluated."""
    why_enumerated: str | None
    """Why designs could not be bounded; null if they were."""
    proven: bool
    """Whether nothing is better by more than the gap that was asked for (1e-9 at least)."""
    gap: Share | None
    """By what share something may be better than the best; null if nothing is known of it."""
    front: Sequence[ProvenDesign]
    """The best design, or the front of several objectives; empty if none can run."""
    within: NearBestDesigns | None
    """How many designs are near the best; null unless asked for."""
    judged: Count
    """Boxes and designs that were evaluated."""
    elapsed_s: float
    """Time of the proof."""
    certificate: str | None
    """The file of the certificate; null if none was written."""
    expected_error: Share | None
    """Mean relative error of the best design's step that validation found for designs like it; null where none was
    measured."""
    expected_on: str | None
    """What that error rests on; null if no design can run."""
    simulated: Sequence[SimulatedBestDesign]
    """The best designs that were met, simulated by the event engine."""
    simulated_note: str | None
    """Why fewer designs were simulated; null if none is missing."""


class CertificateCheckAnswer(TypedDict):
    """Whether a certificate holds."""

    valid: bool
    """Whether it holds."""
    proven: bool | None
    """Whether it claims a proof; null if it is refused."""
    gap: Share | None
    """By what share something may be better than its best; null if it is refused, or where that is not known."""
    slack: Share | None
    """What its checks allow: leaves and designs may be better by this share; null if it is refused."""
    checked: Sequence[str]
    """What was checked, a sentence each."""
    refused: str | None
    """Why it is refused; null if it holds."""


CertifyAnswer = Annotated[
    AnyOf[ProofAnswer, CertificateCheckAnswer],
    described("What is proven of a parameter set; with --check, whether a certificate holds."),
]


class SpaceParameterRow(TypedDict):
    """A parameter."""

    name: str
    """Its path, or a pattern of several."""
    stack: str
    """Layer of the stack: workload, collective, network, compute, memory."""
    sets: Sequence[str]
    """Paths of the fields that it sets."""
    values: Annotated[Sequence[Any], Keywords(minItems=1)]
    """The values that it takes, written as in files."""


class SpaceShowAnswer(TypedDict):
    """What may vary around a base design."""

    name: str
    """Name of the space."""
    base: Identity
    """Identity of the base design."""
    parameters: Sequence[SpaceParameterRow]
    """What may vary."""
    derived: Mapping[str, str]
    """Fields that follow from others, by path: the expression."""
    constraints: Sequence[str]
    """Expressions that every valid point fulfils."""
    limits: Sequence[str]
    """Limits on metrics."""
    workloads: Mapping[str, Ratio]
    """Workloads that a design has to run, by name: how often each runs in a round."""
    objective: str
    """The objective."""


SampleAnswer = Annotated[
    PointValues,
    described("One valid point a line (JSON Lines): this is the schema of a line."),
    Keywords(**{"x-lines": True}),
]


_SpaceSchemaAnswerKeys = TypedDict(
    "_SpaceSchemaAnswerKeys",
    {
        "$schema": Annotated[
            Literal["https://json-schema.org/draft/2020-12/schema"], described("The dialect of JSON Schema.")
        ]
    },
)


class SpaceSchemaAnswer(_SpaceSchemaAnswerKeys):
    """A parameter set as JSON Schema of its points."""

    title: str
    """Name of the space."""
    type: Literal["object"]
    """A point is an object."""
    properties: Mapping[str, Mapping[str, Any]]
    """Each parameter: its values, its layer, the fields that it sets."""


class RecipeStepRow(TypedDict):
    """One step of a recipe."""

    id: str
    """Name of the step."""
    command: str
    """The command as it is typed."""
    key: str
    """Digest of all that it depends on."""
    output: Mapping[str, Any]
    """What the command printed with --json."""


class RecipeRunRow(TypedDict):
    """One combination of the grid."""

    variables: Mapping[str, Any]
    """Variables of the row."""
    status: Literal["ok", "failed", "unexpected"]
    """As above."""
    error: str
    """What went wrong; empty if nothing did."""
    steps: Sequence[RecipeStepRow]
    """Its steps."""
    results: Mapping[str, Any]
    """Results by name."""


class RecipeRunAnswer(TypedDict):
    """What a recipe gave."""

    run: str
    """Name of the run in the store."""
    name: str
    """Name of the recipe."""
    tags: Sequence[str]
    """Tags of the recipe."""
    status: Literal["ok", "failed", "unexpected"]
    """ok, failed (a step), or unexpected (a condition of expect does not hold)."""
    version: str
    """Version of COSMIC."""
    sources: str
    """Digest of the sources that results follow from."""
    began: str
    """When the run began (UTC)."""
    elapsed_s: NonNegative
    """Seconds that it took."""
    executed: Count
    """Steps that were run."""
    cached: Count
    """Steps whose results were known."""
    rows: Sequence[RecipeRunRow]
    """A row for each combination of the grid."""


class StoredRunRow(TypedDict):
    """A run of the store."""

    run: str
    """Name of the run."""
    name: str
    """Name of the recipe."""
    tags: Sequence[str]
    """Its tags."""
    status: Literal["ok", "failed", "unexpected"]
    """How it ended."""
    began: str
    """When it began (UTC)."""
    executed: Count
    """Steps that were run."""
    cached: Count
    """Steps whose results were known."""


RunAnswer = Annotated[
    AnyOf[RecipeRunAnswer, Sequence[StoredRunRow], ReplayedRecipe],
    described("What a recipe gave; with --list, the runs of the store; with --replay, a comparison."),
]


class UiAnswer(TypedDict):
    """The address of the live page, printed when it can be opened; the command keeps running."""

    url: str
    """The address to open, with a token that works once."""
    port: Annotated[PositiveCount, Keywords(maximum=65535)]
    """The port."""
    directory: str
    """The directory that holds the studies."""


class PublishedCommandRow(TypedDict):
    """A command."""

    command: str
    """The command, such as 'space count'."""
    prints: str
    """What its --json prints."""


_PublishedSchemaKeys = TypedDict(
    "_PublishedSchemaKeys",
    {
        "$schema": Annotated[
            Literal["https://json-schema.org/draft/2020-12/schema"], described("The dialect of JSON Schema.")
        ]
    },
)


class PublishedSchema(_PublishedSchemaKeys):
    """A schema."""

    title: str
    """The command."""
    description: str
    """What it prints."""


SchemaAnswer = Annotated[
    AnyOf[Sequence[PublishedCommandRow], PublishedSchema],
    described("Without a command, the commands that have a schema; with one, its JSON Schema."),
]


class CompletionAnswer(TypedDict):
    """The completion script."""

    shell: Annotated[str, one_of("bash", "zsh", "fish")]
    """The shell."""
    script: str
    """Text of the script."""
