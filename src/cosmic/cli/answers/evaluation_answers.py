"""What commands that evaluate or show one design, and the catalog, print with `--json`."""

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
    unit,
)
from cosmic.cli.answers.common_keys import (
    CatalogSource,
    CatalogSummary,
    DesignMetrics,
    Identity,
    InvalidMapping,
    MemoryParts,
    PeakMemory,
    Reasons,
    SampleRate,
    StepBreakdown,
    StepTime,
    TokenRate,
    UnknownMetrics,
    UserEngineMetrics,
)
from cosmic.design.prediction_accuracy import Range

IgnoredFields = Annotated[Sequence[str], described("Fields that were stated and have no effect, a sentence each.")]


class AdvisedChange(TypedDict):
    """A change, or a pair of them."""

    kind: Literal["action", "purchase"]
    """Something that an engineer does, or something to buy."""
    changes: Mapping[str, Any]
    """The fields that change, by path."""
    settings: Mapping[str, Any]
    """Everything to set, by path: the changes, what was set before, and the mapping that stays."""
    condition: str
    """When it is open, such as 'if accuracy allows'; empty if always."""
    speedup: Ratio | None
    """Its throughput over that of the design; null where that cannot run."""
    step_s: StepTime
    tokens_per_s: TokenRate
    samples_per_s: SampleRate
    memory_bytes: PeakMemory
    command: str
    """The command that evaluates it, quoted for a shell."""


DesignAdvice = Annotated[
    Sequence[AdvisedChange],
    described("With --advice: changes that make the design faster, actions before purchases, each best first."),
]


class InfeasibleEvaluationAnswer(TypedDict):
    """An infeasible design; the command ends with exit code 1."""

    feasible: AlwaysFalse
    """Whether the design can run."""
    reasons: Annotated[Reasons, Keywords(minItems=1)]
    """Why the design cannot run, a sentence each."""
    identity: Identity
    notes: IgnoredFields
    improvements: NotRequired[DesignAdvice]
    """With --advice: changes that make the design run, actions before purchases, each fastest first."""


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


class CompletedMapping(TypedDict):
    """What of the mapping nobody stated."""

    suggested: Sequence[str]
    """The fields of the workload that a quick search has set."""
    searched: Count
    """Mappings that it evaluated; 0 where none was needed."""


class MemoryTierUse(TypedDict):
    """One tier: its capacity, its use, its traffic, and its bytes of each class of state."""

    capacity_bytes: float
    """Capacity, for each accelerator."""
    used_bytes: float
    """Bytes that it holds."""
    traffic_bytes: float
    """Bytes that cross its link in one step, both ways together."""


class EvaluatedMetrics(DesignMetrics):
    """What a design that can run achieves."""

    memory_stage: int
    """Number of the pipeline stage whose accelerators need that much, from 0 on."""
    memory: MemoryParts
    memory_tiers: Mapping[str, MemoryTierUse]
    """By tier of memory, hbm first: what it holds and what crosses its link; empty where all state is in HBM."""
    breakdown: StepBreakdown
    provenance: str
    """Provenance of the accelerator's efficiencies: measured, calibrated, or an estimate."""
    expected_error: Share | None
    """Mean relative error of step times that validation found for such designs; null where no run like it was measured
    and predicted by the same model."""
    expected_on: str
    """The measured runs of that error: how many, and what they have in common with the design."""
    step_s_range: Annotated[Range, unit("s")]
    """What the step is expected to take when measured."""
    tokens_per_s_range: Annotated[Range | None, unit("tokens/s")]
    """What the throughput is expected to be when measured; null of a model without a sequence."""
    samples_per_s_range: Annotated[Range | None, unit("samples/s")]
    """The same in samples, of a model without a sequence; null of others."""
    unknown: UnknownMetrics


class FeasibleEvaluationAnswer(EvaluatedMetrics):
    """A feasible design."""

    feasible: AlwaysTrue
    """Whether the design can run."""
    reasons: Annotated[Reasons, Keywords(maxItems=0)]
    """Why the design cannot run, a sentence each; empty if it can."""
    identity: Identity
    mapping: CompletedMapping
    notes: IgnoredFields
    improvements: NotRequired[DesignAdvice]
    assumed: NotRequired[Sequence[str]]
    """What was assumed about a model whose architecture is not known, a sentence each; only where something was."""


EvaluateAnswer = Annotated[
    AnyOf[InfeasibleEvaluationAnswer, UserEngineAnswer, FeasibleEvaluationAnswer],
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
    memory: MemoryParts
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
