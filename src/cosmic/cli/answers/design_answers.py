"""What commands that compare, vary and convert designs print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from cosmic.base.json_types import (
    AlwaysFalse,
    AlwaysTrue,
    AnyOf,
    Count,
    Keywords,
    PositiveCount,
    Ratio,
    Share,
    described,
    one_of,
    unit,
)
from cosmic.cli.answers.common_keys import (
    GoodputShare,
    Identity,
    InfeasibleDesignAnswer,
    MeterPower,
    ModelFlopUtilization,
    NetworkPrice,
    PeakMemory,
    PurchasePrice,
    Reasons,
    SampleRate,
    StepBreakdown,
    StepTime,
    TimePerOutputToken,
    TimePerOutputTokenP95,
    TimeToFirstToken,
    TimeToFirstTokenP95,
    TokenRate,
    TokenRatePerNpu,
    TokenRatePerUser,
    TrainingDays,
    UnknownMetrics,
)
from cosmic.frameworks.launch_arguments import NotModelled
from cosmic.search.compare.design_differences import Difference


class DesignStanding(TypedDict):
    """Whether a design can run."""

    identity: Identity
    feasible: bool
    """Whether the design can run."""
    reasons: Reasons


class ComparedDesign(DesignStanding):
    """One of the two designs."""

    design: str
    """The design as it was named."""
    settings: Mapping[str, Any]
    """Fields that were changed, by path; of B, also those that it takes from A."""


class DesignDiffCertainty(TypedDict):
    """How sure the order of two designs is."""

    relation: Annotated[str, one_of("mapping", "work", "format", "accelerator", "model", "several")]
    """What they differ in: the mapping alone, the work, the number format, the accelerator, the model, or several of
    these."""
    pairs: Count
    """Measured pairs that differ in the same."""
    sources: Count
    """Sources of those pairs."""
    off_half: Share
    """What the ratio of the two predictions was off by at most, of half those pairs."""
    off_nine_tenths: Share
    """The same of nine in ten."""
    probability: Annotated[float, unit("share"), Keywords(minimum=0.5, maximum=1)]
    """That the one predicted to be faster is."""
    told_apart: bool
    """Whether that is at least 0.9."""
    sentence: str
    """The same in words."""


class RemappedField(TypedDict):
    """One field."""

    a: Any
    """Its value in A's mapping; null if it has none."""
    b: Any
    """Its value in B's best mapping; null if it has none."""


class ComparedMappings(TypedDict):
    """Which mappings were compared, and how the gain in tokens per second splits."""

    mode: Literal["best", "same", "fixed", "stated"]
    """B has its best mapping, A's, its best with some fields of A's, or the one that it states."""
    sentence: str
    """The same in words."""
    fixed: Sequence[str]
    """Fields that --fix holds."""
    change_speedup: Ratio | None
    """B with A's mapping over A; null where one cannot run, or B states its mapping."""
    remapping_speedup: Ratio | None
    """B with its best mapping over B with A's; null likewise."""
    reasons: Sequence[str]
    """Why B cannot run with A's mapping, a sentence each."""
    remapped: Mapping[str, RemappedField]
    """Fields in which the two mappings of B differ, by path."""


class MetricPair(TypedDict):
    """One metric."""

    a: Annotated[float | None, unit("that of the metric")]
    """A's value; null if it has none."""
    b: Annotated[float | None, unit("that of the metric")]
    """B's value; null if it has none."""
    ratio: Ratio | None
    """B's over A's."""


class DifferenceAttribution(TypedDict):
    """How worth was computed."""

    method: Literal["exact", "sampled", "one_at_a_time", "none"]
    """Average over all orders of the changes, over a sample of them, over first and last; or none."""
    designs: Count
    """Designs evaluated, A and B among them."""
    invalid: Count
    """Designs between A and B that are invalid mappings."""
    over_memory: Count
    """Designs that exceed the memory; their times count all the same."""
    together_s: float
    """Joint effect of several differences."""


class ComponentPair(TypedDict):
    """One component."""

    a: Annotated[float, unit("s")]
    """Its time in A."""
    b: Annotated[float, unit("s")]
    """Its time in B."""
    difference_s: float
    """B's minus A's."""


class DesignDifferences(TypedDict):
    """What differs between two designs."""

    metrics: Mapping[str, MetricPair]
    """Every metric of either design, by name, in the unit of its name (see 'cosmic schema evaluate')."""
    differences: Sequence[Difference]
    """What differs, in groups of fields that change together; the largest worth first."""
    attribution: DifferenceAttribution
    breakdown: Mapping[str, ComponentPair]
    """Components of the step, by name; empty where a step has no time."""


class DesignDiffAnswer(DesignDifferences):
    """A comparison of two designs: what differs, and what each difference is worth."""

    verdict: str
    """Which is faster and mostly why, in one sentence."""
    certainty: DesignDiffCertainty | None
    """How sure it is which takes less time for a token; null where one has no time, or they are the same design."""
    a: ComparedDesign
    b: ComparedDesign
    mapping: ComparedMappings


_MovedFieldKeys = TypedDict(
    "_MovedFieldKeys", {"from": Annotated[Any, described("Its value in the base; null if it has none.")]}
)


class MovedField(_MovedFieldKeys):
    """One field."""

    to: Any
    """Its value in this design; null if it has none."""


class InfeasibleSweepRow(TypedDict):
    """A combination that cannot run. Further keys are the varied fields, named as in --vary."""

    feasible: AlwaysFalse
    """Whether the design can run."""
    reasons: Annotated[Sequence[str], Keywords(minItems=1)]
    """Why the design cannot run, a sentence each."""
    moved: Mapping[str, MovedField]
    """Fields besides the varied ones that differ from the base, the design without --vary, by path."""


class FeasibleSweepRow(TypedDict):
    """A combination that can run. Further keys are the varied fields, named as in --vary."""

    feasible: AlwaysTrue
    """Whether the design can run."""
    reasons: Annotated[Sequence[str], Keywords(maxItems=0)]
    """Why the design cannot run: nothing."""
    moved: Mapping[str, MovedField]
    """Fields besides the varied ones that differ from the base, the design without --vary, by path."""
    step_s: StepTime
    tokens_per_s: TokenRate
    samples_per_s: SampleRate
    mfu: ModelFlopUtilization
    memory_bytes: PeakMemory
    cost_usd: PurchasePrice
    network_usd: NetworkPrice
    power_w: MeterPower
    goodput: GoodputShare
    train_days: TrainingDays
    ttft_s: NotRequired[TimeToFirstToken]
    tpot_s: NotRequired[TimePerOutputToken]
    ttft_p95_s: NotRequired[TimeToFirstTokenP95]
    tpot_p95_s: NotRequired[TimePerOutputTokenP95]
    tokens_per_s_per_npu: NotRequired[TokenRatePerNpu]
    tokens_per_s_per_user: NotRequired[TokenRatePerUser]
    unknown: UnknownMetrics
    breakdown: StepBreakdown


SweepAnswer = Annotated[
    Sequence[AnyOf[FeasibleSweepRow, InfeasibleSweepRow]],
    described("A row for each combination of the varied fields' values."),
]


class StudyExportAnswer(TypedDict):
    """A study as a table, written to a file."""

    study: str
    """Directory of the study."""
    file: str
    """The file that was written."""
    trials: Count
    """Rows."""
    columns: PositiveCount
    """Columns."""


class DesignExportAnswer(TypedDict):
    """A design for another program."""

    to: str
    """The program."""
    command: Sequence[str]
    """The command, word by word."""
    arguments: Mapping[str, Any]
    """Its arguments by name, as that program calls them."""
    environment: Mapping[str, str]
    """Environment variables."""
    files: Mapping[str, str]
    """Text of the files that it reads, by name."""
    warnings: Sequence[str]
    """What that program cannot express, a sentence each."""
    pools: NotRequired[Mapping[str, Mapping[str, Any]]]
    """Arguments of the servers of each pool: serve, or prefill and decode; only of a served design."""
    script: NotRequired[str]
    """The script that starts all servers, and the router before them; of a served design."""
    traces: NotRequired[PositiveCount]
    """Number of execution traces, one per rank; only for astra-sim."""


DesignExportAnswers = Annotated[
    AnyOf[InfeasibleDesignAnswer, DesignExportAnswer],
    described("A design as launch arguments of another program. Exit code 1 for an infeasible design."),
]


class ImportedDesign(TypedDict):
    """The design as in a YAML file: model and system by name where they have one."""

    model: str | Mapping[str, Any]
    """A name of the catalog, or the shape of the model."""
    system: str
    """The system, with its size: dgx-h100:64."""
    workload: Mapping[str, Any]
    """Task, batch, precision, degrees of parallelism, schedule, recomputation."""


_DesignImportAnswerKeys = TypedDict(
    "_DesignImportAnswerKeys",
    {"from": Annotated[str, described("The format: deepspeed, megatron, nemo or torchtitan.")]},
)


class DesignImportAnswer(_DesignImportAnswerKeys):
    """A launch script or configuration as a design, and what it achieves. Exit code 0 for an infeasible design too: it was read."""

    file: str
    """The file that was read."""
    identity: Identity
    design: ImportedDesign
    accelerators: PositiveCount
    """Their number."""
    said: str
    """What of the file their number comes from; empty where --system gives it."""
    assumed: Sequence[str]
    """What the file does not say, a sentence each."""
    not_modelled: Sequence[NotModelled]
    """Arguments that matter, or may matter, and that the design does not express."""
    feasible: bool
    """Whether the design can run."""
    reasons: Reasons
    step_s: float | None
    """Seconds per step; null if the design cannot run."""
    tokens_per_s: float | None
    """Tokens per second; null if the design cannot run, or its model has no sequence."""
    mfu: Share | None
    """Model FLOP utilisation; null if the design cannot run."""
    memory_bytes: float | None
    """Memory of the fullest accelerator; null if the design cannot run."""
    out: str | None
    """The file that was written, if one was."""
