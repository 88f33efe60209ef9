"""What commands on collectives and networks print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypedDict

from cosmic.base.json_types import Count, Keywords, NonNegative, NonNegativeRatio, PositiveCount, Share, unit
from cosmic.cli.answers.common_keys import (
    ChunksPerNpu,
    ChunkTransfers,
    CollectiveBuffer,
    CollectiveName,
    GraphNpus,
    ScheduleTime,
    WrittenFiles,
)
from cosmic.search.provision.bandwidth_problem import ProvisionedDimension, ProvisionedLoad, WholePorts


class CollectiveRequestKeys(TypedDict):
    """The collective that is asked for, and its network."""

    collective: CollectiveName
    size_bytes: CollectiveBuffer
    npus: GraphNpus
    switches: Count
    """Switches of the network."""
    links: Count
    """Links of the network, each direction by itself."""
    groups: PositiveCount
    """Groups of ranks that run the collective at once."""


class ScheduleKeys(TypedDict):
    """A schedule in sum."""

    collective: CollectiveName
    size_bytes: CollectiveBuffer
    npus: GraphNpus
    chunks_per_npu: ChunksPerNpu
    transfers: ChunkTransfers
    time_s: ScheduleTime


class CollectiveBoundParts(TypedDict):
    """Each bound by itself."""

    node_s: float
    """What an NPU must send or receive over its own links."""
    cut_s: float
    """What must cross the links between two parts of the network."""
    ingress_s: float
    """Whole chunks into an NPU; 0 without a number of chunks."""
    distance_s: float
    """The way to the farthest NPU."""
    in_turn_s: float
    """A reduce-scatter and then an all-gather, which is no bound on other all-reduces; 0 for other collectives."""


class TextbookAlgorithmTime(TypedDict):
    """One algorithm."""

    algorithm: str
    """Its name, such as ring."""
    time_s: float | None
    """Its time; null where it was not simulated."""
    over_bound: Annotated[float | None, unit("ratio")]
    """Its time over the bound; null where either is missing."""
    reason: str
    """Why it was not simulated; empty if it was."""


class CollectiveBoundAnswer(CollectiveRequestKeys):
    """What no schedule of a collective on a network can beat, and how far textbook algorithms are from it."""

    chunks_per_npu: PositiveCount | None
    """Chunks for each NPU that the ingress bound counts; null without a number."""
    bound_s: float
    """The largest of the bounds."""
    bounds: CollectiveBoundParts
    cut: Sequence[str]
    """Nodes on one side of the cut that binds, by name; empty if none does."""
    algorithms: Sequence[TextbookAlgorithmTime]
    """Textbook algorithms on this network, with congestion on every link."""


class CollectiveSynthesizeAnswer(CollectiveRequestKeys):
    """A schedule made for one network and collective. Exit code 1 if it fails its own check."""

    time_s: ScheduleTime
    bound_s: float
    """What no schedule can beat."""
    over_bound: Annotated[float | None, unit("ratio")]
    """Time over the bound; null where the bound is 0."""
    in_turn_bound_s: float | None
    """Of an all-reduce, the bound of a reduce-scatter and then an all-gather; null for other collectives."""
    algbw_bytes_per_s: float | None
    """Size over time; null where the time is 0."""
    chunks_per_npu: ChunksPerNpu
    transfers: ChunkTransfers
    valid: bool | None
    """Whether the independent check found nothing wrong; null where there are too many transfers for it."""
    files: WrittenFiles


class ScheduleViolations(TypedDict):
    """Violations of one kind."""

    count: Count
    """How many there are."""
    examples: Sequence[str]
    """The first few, a sentence each."""


class CollectiveCheckAnswer(ScheduleKeys):
    """Whether a schedule can run as it is and does what it is for. Exit code 1 if not."""

    valid: bool
    """Whether there is no violation."""
    violations: Mapping[str, ScheduleViolations]
    """Violations by kind: not_causal, overlapping, too_short, duplicate, missing."""


class CollectiveConvertAnswer(ScheduleKeys):
    """A schedule that was written in another format."""

    files: WrittenFiles


class ShadowPriceRow(TypedDict):
    """One limit."""

    limit: str
    """As it was written."""
    sense: Literal["<=", "==", ">="]
    """How it compares."""
    value: Annotated[float, unit("byte/s, or USD")]
    """What it compares with, all bandwidths on the other side."""
    binds: bool
    """Whether it is met exactly."""
    worth_per_unit: Annotated[float, unit("objective per unit of the limit")]
    """What the objective falls by for each byte/s, or dollar, that the limit is moved outwards, or up."""


class CollectiveBinding(TypedDict):
    """One collective, or one part of a design's step."""

    workload: str
    """Whose it is."""
    collective: str
    """Its name."""
    time_s: NonNegative
    """How long it takes, by weight; of a design how long it keeps the busiest dimension busy."""
    dims: Sequence[Count]
    """The slowest dimensions, from 0 on."""
    shares: Sequence[Share]
    """How the dimensions share in it: by the multipliers of the optimum, of a design by the time they are busy."""


class ProvisionAnswer(TypedDict):
    """The best bandwidth of every network dimension under a budget, and why."""

    source: str
    """The design or network file."""
    objective: Literal["time", "time_per_dollar"]
    """What is least: time, or time multiplied by the network's cost."""
    headline: str
    """The result in one sentence."""
    time_s: NonNegative
    """Time at the best bandwidth: of a design its step, else of the workload; several are added by weight."""
    base_time_s: NonNegative
    """The same before: at the design's own bandwidth, else at equal bandwidth in all dimensions."""
    cost_usd: NonNegative
    """Price of the network."""
    base_cost_usd: NonNegative
    """Price of the network before."""
    value: Annotated[float, unit("s, or s·USD"), Keywords(minimum=0)]
    """The objective: seconds, or seconds times dollars."""
    gain: NonNegativeRatio
    """The objective before over the objective now."""
    bound: Annotated[float | None, unit("s, or s·USD")]
    """No bandwidth within the limits has a lower objective; null of a design, whose step is searched."""
    duality_gap: Annotated[float | None, unit("share"), Keywords(minimum=0)]
    """How far the objective may be above the optimum, relative to it; null of a design."""
    bandwidth_bytes_per_s: Sequence[Annotated[float, unit("byte/s"), Keywords(minimum=0)]]
    """Bandwidth of an NPU in each dimension, innermost first."""
    dims: Sequence[ProvisionedDimension]
    """The dimensions, innermost first."""
    workloads: Sequence[ProvisionedLoad]
    """What the network was provisioned for."""
    shadow_prices: Sequence[ShadowPriceRow]
    """What the budget and each limit cost."""
    bindings: Sequence[CollectiveBinding]
    """Which dimensions each collective waits for."""
    ports: WholePorts | None
    """The best bandwidth in whole ports; null without --ports."""
