"""Keys and parts of what several commands print with `--json`: metrics, points, trials, recorded ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

from cosmic.base.json_types import AlwaysFalse, AnyOf, Count, Keywords, PositiveCount, Ratio, described, unit
from cosmic.simulate.metrics import DesignMetrics

Identity = Annotated[
    str,
    described("Hash of the complete design: equal for equal designs, however they were written."),
    Keywords(pattern="^[0-9a-f]{16}$"),
]
Reasons = Annotated[Sequence[str], described("Why the design cannot run, a sentence each; empty if it can.")]


InvalidMapping = Annotated[
    Sequence[str], described("Why the mapping is invalid, a sentence each; memory is not checked.")
]


class InfeasibleDesignAnswer(TypedDict):
    """An infeasible design; the command ends with exit code 1."""

    feasible: AlwaysFalse
    """Whether the design can run."""
    reasons: Annotated[Reasons, Keywords(minItems=1)]
    """Why the design cannot run, a sentence each."""
    identity: Identity


StepTime = Annotated[
    float, described("Time of one step: a training step, a prefill, or one decoded token for all sequences at once.")
]
TimeToFirstToken = Annotated[
    float | None,
    described("Time to first token, under a load its mean over requests; null unless the task is a prefill."),
]
TimePerOutputToken = Annotated[
    float | None,
    described("Time per output token, under a load its mean over requests; null unless the task is decoding."),
]
TokenRate = Annotated[
    float | None, described("Tokens per second of all accelerators together; null of a model without a sequence.")
]
SampleRate = Annotated[
    float | None,
    described("Samples per second of all accelerators together, of a model without a sequence; null of others."),
]
ModelFlopUtilization = Annotated[
    float, described("Model flop utilisation: flop of the model over the peak of the accelerators."), unit("share")
]
PeakMemory = Annotated[float, described("Peak memory of the accelerator that needs most.")]


PurchasePrice = Annotated[
    float | None, described("Price of accelerators, hosts and network, to buy; null where a price is not known.")
]
NetworkPrice = Annotated[
    float | None, described("Price of the network alone; null where a price of a part is not known.")
]
MeterPower = Annotated[
    float | None,
    described(
        "Power at the meter with everything at its rated power: accelerators, hosts, network, and the building by its PUE; null where a power is not known."
    ),
]
GoodputShare = Annotated[
    float | None,
    described("Share of the time of a training run that counts; null where no rate of interruptions is known."),
    unit("share"),
]
EffectiveTokenRate = Annotated[
    float | None, described("Tokens per second over a long training run: throughput times goodput.")
]
TrainingDays = Annotated[
    float | None,
    described("Days to train on the tokens of the run, interruptions included; null where the run has no length."),
]
TrainingCost = Annotated[
    float | None,
    described("Cost of owning the cluster for the run; null where the run has no length, or a price is not known."),
]
TrainingEnergy = Annotated[
    float | None,
    described("Energy of the run at the meter; null where the run has no length, or a power is not known."),
]
TrainingCarbon = Annotated[float | None, described("Carbon dioxide of that energy, by the grid's factor.")]


TimeToFirstTokenP95 = Annotated[
    float | None, described("Time to first token within which 95 % of requests are; null without a load.")
]
TimePerOutputTokenP95 = Annotated[
    float | None, described("Time per output token within which 95 % of requests are; null without a load.")
]
TokenRatePerNpu = Annotated[
    float | None,
    described("Output tokens a second for each accelerator of all pools; null without a load."),
    unit("tokens/s"),
]
TokenRatePerUser = Annotated[
    float | None,
    described("Output tokens a second that one request gains while it decodes; null without a load."),
    unit("tokens/s"),
]
UnknownMetrics = Annotated[Mapping[str, str], described("Metrics that are unknown, each with the reason.")]


UserEngineMetrics = Annotated[
    Mapping[str, float | None],
    described("Metrics of an engine that somebody brought, by their names; null where one is unknown."),
]
StepBreakdown = Annotated[
    Mapping[str, Annotated[float, unit("s")]],
    described("Time of a step by component; the components add up to the step."),
]
MemoryParts = Annotated[Mapping[str, Annotated[float, unit("B")]], described("Peak memory by component.")]


PointValues = Annotated[
    Mapping[str, Any],
    described("Value of each parameter and derived field of the space, by path, written as in YAML files."),
]


class TriedDesign(TypedDict):
    """One design that a search tried."""

    trial: Count
    """Number of the trial, from 0 on."""
    point: PointValues
    metrics: AnyOf[DesignMetrics, UserEngineMetrics]
    """Metrics of a design."""
    reasons: Reasons


LibraryVersions = Annotated[
    Mapping[str, str], described("Version of the program and of the libraries that affect results, by name.")
]
CountsByName = Annotated[Mapping[str, Count], described("Counts by name.")]


CatalogSource = Annotated[str, described("Source of the numbers.")]
CatalogSummary = Annotated[str, described("One sentence on it.")]


CollectiveName = Annotated[str, described("Which collective, such as all_gather.")]
CollectiveBuffer = Annotated[
    float, described("Buffer of one NPU: the output of an all-gather, the input of other collectives.")
]
GraphNpus = Annotated[PositiveCount, described("NPUs of the network.")]


ScheduleTime = Annotated[float, described("Time until the last transfer has ended.")]
ChunksPerNpu = Annotated[PositiveCount, described("Chunks for each NPU.")]


ChunkTransfers = Annotated[Count, described("Transfers of a chunk over a link.")]
WrittenFiles = Annotated[Sequence[str], described("Files that were written; traces as PREFIX.<rank>.et.")]


class MeasuredDesignRow(TypedDict):
    """A measured design."""

    trial: Count | None
    """Its trial in the study; null where the search has not tried it."""
    point: PointValues
    runs: PositiveCount
    """How often it was measured."""
    measured: Annotated[float, unit("that of the metric")]
    """The median over its runs."""
    predicted: Annotated[float | None, unit("that of the metric")]
    """What the study's engine predicts; null where it says that the design cannot run."""
    ratio: Ratio | None
    """Measured over predicted; null without a prediction."""
    sources: Sequence[str]
    """Where each run comes from: a file, with the row."""


class MeasuredDesigns(TypedDict):
    """Measured designs beside predictions, the best measured first."""

    metric: str
    """The metric that is compared: the study's first objective, or the time of a step."""
    tau: Annotated[float | None, unit("1"), Keywords(minimum=-1, maximum=1)]
    """Kendall's tau of predictions and measurements; null for fewer than two designs with both."""
    designs: Sequence[MeasuredDesignRow]
    """Every measured design once, the best measured first."""
