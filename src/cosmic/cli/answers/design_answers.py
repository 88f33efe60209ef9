"""What commands on designs, models, networks and the catalog print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired, TypedDict

from cosmic.base.json_types import (
    AlwaysFalse,
    AlwaysTrue,
    AnyOf,
    Count,
    Keywords,
    PositiveCount,
    Share,
    described,
    unit,
)
from cosmic.cli.answers.common_keys import (
    CatalogSource,
    CatalogSummary,
    Identity,
    InfeasibleDesignAnswer,
    InvalidMapping,
    Reasons,
    StepTime,
    UserEngineMetrics,
)
from cosmic.frameworks.launch_arguments import NotModelled
from cosmic.search.evaluated_design import EvaluatedDesign, RefusedDesign

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
    tokens_per_s: float | None
    """Tokens per second of all accelerators together; null of a model without a sequence."""
    samples_per_s: float | None
    """Samples per second of all accelerators together, of a model without a sequence; null of others."""
    mfu: Annotated[float, unit("share")]
    """Model flop utilisation: flop of the model over the peak of the accelerators."""
    memory_bytes: float
    """Peak memory of the accelerator that needs most."""
    cost_usd: float | None
    """Price of accelerators, hosts and network, to buy; null where a price is not known."""
    network_usd: float | None
    """Price of the network alone; null where a price of a part is not known."""
    power_w: float | None
    """Power at the meter with everything at its rated power: accelerators, hosts, network, and the building by its PUE; null where a power is not known."""
    goodput: Annotated[float | None, unit("share")]
    """Share of the time of a training run that counts; null where no rate of interruptions is known."""
    train_days: float | None
    """Days to train on the tokens of the run, interruptions included; null where the run has no length."""
    ttft_s: NotRequired[float | None]
    """Time to first token, under a load its mean over requests; null unless the task is a prefill."""
    tpot_s: NotRequired[float | None]
    """Time per output token, under a load its mean over requests; null unless the task is decoding."""
    ttft_p95_s: NotRequired[float | None]
    """Time to first token within which 95 % of requests are; null without a load."""
    tpot_p95_s: NotRequired[float | None]
    """Time per output token within which 95 % of requests are; null without a load."""
    tokens_per_s_per_npu: NotRequired[Annotated[float | None, unit("tokens/s")]]
    """Output tokens a second for each accelerator of all pools; null without a load."""
    tokens_per_s_per_user: NotRequired[Annotated[float | None, unit("tokens/s")]]
    """Output tokens a second that one request gains while it decodes; null without a load."""
    unknown: Mapping[str, str]
    """Metrics that are unknown, each with the reason."""
    breakdown: Mapping[str, Annotated[float, unit("s")]]
    """Time of a step by component; the components add up to the step."""


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


class UserEngineAnswer(TypedDict):
    """The answer of an engine that somebody brought; without metrics, the command ends with exit code 1."""

    feasible: bool
    """Whether it gave metrics."""
    reasons: Reasons
    identity: Identity
    engine: str
    """Its name."""
    engine_identity: str
    """Its version, and a digest of what is known of it."""
    failed: bool
    """Whether it crashed, took too long or gave no proper answer."""
    metrics: UserEngineMetrics


EvaluateAnswer = Annotated[
    AnyOf[RefusedDesign, UserEngineAnswer, EvaluatedDesign],
    described("The metrics of one design, or why it cannot run."),
]


class ResolvedDesign(TypedDict):
    """The design as in a YAML file; quantities are strings with units, such as '80 GiB'."""

    model: Mapping[str, Any]
    """Shape of the model: layers, widths, heads, vocabulary."""
    workload: Mapping[str, Any]
    """Task, batch, precision, degrees of parallelism, schedule, recomputation."""
    collective: Mapping[str, Any]
    """How collectives run: algorithms by dimension, chunks, scheduling."""
    network: Mapping[str, Any]
    """Dimensions of the network, innermost first."""
    compute: Mapping[str, Any]
    """The accelerator: peak rates, efficiencies, power, price."""
    memory: Mapping[str, Any]
    """Capacity and bandwidth of memory, and outer tiers."""


class DesignShowAnswer(TypedDict):
    """One design, every name resolved and every default filled in."""

    identity: Identity
    invalid: InvalidMapping
    design: ResolvedDesign
    assumed: NotRequired[Sequence[str]]
    """What was assumed about a model whose architecture is not known, a sentence each; only where something was."""


class OperatorTotals(TypedDict):
    """Operators of one kind in one phase."""

    phase: str
    """Phase of the step: forward, backward, step, …"""
    kind: str
    """Kind of operator."""
    runs: Count
    """How often they run."""
    flop: float
    """Their floating-point operations."""
    moved_bytes: float
    """Bytes that they read and write."""


class CollectiveTotals(TypedDict):
    """Identical collectives."""

    phase: str
    """Phase of the step."""
    kind: str
    """Which collective, such as all_gather."""
    axes: str
    """Axes of the mesh along which it runs, joined by ' · '."""
    ranks: Annotated[int, Keywords(minimum=2)]
    """Group size."""
    times: PositiveCount
    """How often it runs in a step."""
    payload_bytes: float
    """Payload of one."""
    bytes: float
    """Payload of all of them."""
    hides: bool
    """Whether compute can overlap it."""


class ExplainedCollective(TypedDict):
    """One collective and why it is needed (--why)."""

    block: str
    """Block of the model."""
    phase: str
    """Phase of the step."""
    kind: str
    """Which collective, such as all_gather."""
    axes: str
    """Axes of the mesh along which it runs, joined by ' · '."""
    tensor: str
    """The tensor."""
    payload_bytes: float
    """Payload of one."""
    why: str
    """How the tensor is produced and how it is needed."""


class WorkloadAnswer(TypedDict):
    """The operators, collectives and memory of one step, on the busiest rank of a design."""

    identity: Identity
    invalid: InvalidMapping
    operators: Sequence[OperatorTotals]
    """Operators, the most flop first."""
    collectives: Sequence[AnyOf[CollectiveTotals, ExplainedCollective]]
    """Collectives: identical ones together, the most bytes first; with --why every one, with its reason."""
    memory: Mapping[str, Annotated[float, unit("B")]]
    """Peak memory by component; 'total' is their sum, 'capacity' that of the accelerator."""
    offloaded: Mapping[str, Annotated[float, unit("B")]]
    """Offloaded bytes, by tier."""
    offload_traffic_bytes: float
    """Bytes to and from outer tiers in a step."""


class CatalogKindRow(TypedDict):
    """A kind."""

    kind: str
    """What can be listed."""
    entries: Count
    """How many there are."""


class CatalogModelRow(TypedDict):
    """A model."""

    name: str
    """Name in the catalog."""
    family: str
    """Family of models: decoder, encoder, vision, …"""
    layers: int | None
    """Layers; null where the model is no plain transformer."""
    hidden: int | None
    """Width of the residual stream."""
    heads: int | None
    """Attention heads."""
    parameters: int
    """All parameters."""
    active_parameters: int
    """Parameters that one token uses."""
    sequence: int | None
    """Default sequence length in tokens; null if there is none."""
    source: CatalogSource


class CatalogAcceleratorRow(TypedDict):
    """An accelerator."""

    name: str
    """Name in the catalog."""
    vendor: str | None
    """The vendor."""
    year: str
    """Year of release; '-' if it is not known."""
    bf16_flop_per_s: float | None
    """Dense peak in bfloat16."""
    memory_bytes: float
    """Memory capacity."""
    memory_bandwidth_bytes_per_s: float
    """Memory bandwidth."""
    power_w: float | None
    """Power."""
    price_usd: float | None
    """Price of one."""
    source: CatalogSource


class CatalogComponentRow(TypedDict):
    """A node or a link. Quantities are texts with units, as in the catalog."""

    name: str
    """Name in the catalog."""
    kind: str
    """What it is: node, nic, switch, optic, cable, …"""
    vendor: str | None
    """The vendor; null if there are many."""
    npus: int | None
    """NPUs that it holds or connects; null for other components."""
    bandwidth: str | None
    """Bandwidth with its unit, such as '400 Gbps'."""
    power: str | None
    """Power with its unit, such as '8 W'."""
    price: str | None
    """Price with its unit, such as '500 USD'."""
    source: CatalogSource


class CatalogSystemRow(TypedDict):
    """A system."""

    name: str
    """Name in the catalog; MODEL@NAME is a design, MODEL@NAME:NPUS one of another size."""
    npus: int
    """Default size."""
    accelerator: str
    """Its accelerator."""
    network: str
    """Dimensions of its network as text, innermost first."""
    summary: CatalogSummary
    source: CatalogSource


class CatalogSpaceRow(TypedDict):
    """A space."""

    name: str
    """Name in the catalog."""
    base: str | Mapping[str, Any]
    """The base design."""
    summary: CatalogSummary
    source: CatalogSource


class CatalogAgentRow(TypedDict):
    """An agent."""

    name: str
    """Name, for --agent."""
    settings: str
    """Its settings and their defaults, as NAME=VALUE."""
    summary: CatalogSummary


class CatalogEngineRow(TypedDict):
    """An engine."""

    name: str
    """Name, for --engine, or of a design that serves."""
    kind: str
    """What it does: evaluates designs or fields of its own, or serves."""
    metrics: str
    """The metrics of an engine that somebody brought, separated by spaces; else empty."""
    summary: CatalogSummary
    source: CatalogSource


class CatalogPolicyRow(TypedDict):
    """A strategy, schedule, topology or algorithm."""

    name: str
    """Its name in designs."""
    summary: CatalogSummary
    source: NotRequired[CatalogSource]


CatalogListAnswer = Annotated[
    Sequence[
        AnyOf[
            CatalogKindRow,
            CatalogModelRow,
            CatalogAcceleratorRow,
            CatalogComponentRow,
            CatalogSystemRow,
            CatalogSpaceRow,
            CatalogAgentRow,
            CatalogEngineRow,
            CatalogPolicyRow,
        ]
    ],
    described("Everything of one kind; without a kind, the kinds and how many entries each has."),
]
ModelListAnswer = Annotated[Sequence[CatalogModelRow], described("The models of the catalog.")]


class CatalogShowAnswer(TypedDict):
    """An entry of the catalog, or of what can be chosen by name, with its source."""

    kind: str
    """What it is: models, systems, topologies, …"""
    name: str
    """Its name."""
    source: CatalogSource
    entry: Mapping[str, Any]
    """What its file says; of what has no file, what 'cosmic catalog list' says."""


class ProgramOperatorRow(TypedDict):
    """One operator of a program."""

    part: str
    """The part that it belongs to, and how often that is repeated."""
    name: str
    """What it makes."""
    kind: str
    """Its kind."""
    reads: str
    """The tensors that it reads, with their dimensions."""
    makes: str
    """The dimensions of what it makes."""
    flop: float
    """Flop of one run."""


class CatalogModelAnswer(TypedDict):
    """A model of the catalog."""

    name: str
    """Name in the catalog."""
    family: str
    """Family of models: decoder, encoder, vision, …"""
    parameters: int
    """All parameters."""
    active_parameters: int
    """Parameters that one token uses."""
    bf16_bytes: int
    """All parameters in bfloat16."""
    sequence: int | None
    """Usual sequence length in tokens; null if there is none."""
    shape: Mapping[str, Any]
    """Fields of a model, those with a usual value left out."""
    source: CatalogSource


class ModelProgramAnswer(TypedDict):
    """A program, operator by operator."""

    name: str
    """Its name."""
    flop: float
    """Flop of a forward pass, at the sizes that the program states."""
    parameters: int
    """Elements of all weights."""
    dims: Mapping[str, int]
    """Every dimension with its size."""
    operators: Sequence[ProgramOperatorRow]
    """Every operator, in order."""


ModelShowAnswer = Annotated[
    AnyOf[CatalogModelAnswer, ModelProgramAnswer],
    described("A model of the catalog, or a program, operator by operator."),
]
