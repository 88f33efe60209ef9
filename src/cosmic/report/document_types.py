"""The types of the documents that pages show: a report and a page of traces.

`ui/src/document.ts` and `ui/src/trace/document.ts` are the contract and explain every name. A document is plain data:
dictionaries that are written as JSON. Numbers are in SI units. Classes that share their subject with a class elsewhere
end in Json.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

# --------------------------------------------------------------------------------------
# The types of the document that pages show. `ui/src/document.ts` is the contract and explains every name
# --------------------------------------------------------------------------------------

Type = Literal["u8", "u16", "u32", "f32", "f64"]
Class = Literal["compute", "exposed", "hidden", "idle", "memory", "optimizer", "other"]
Role = Literal["base", "isolated", "best", "front", "other"]
Value = str | int | float | bool


class Packed(TypedDict):
    """Numbers in the binary part of a container."""

    offset: int
    count: int
    type: Type


Coding = dict[str, Any]
"""One of four, by its ``kind``: choices, numbers, scaled, from."""


class TuplePart(TypedDict):
    """Which entry of a parameter that sets several fields a column is."""

    of: str
    place: int


class Column(TypedDict):
    """A parameter or a metric of all trials."""

    name: str
    label: str
    role: Literal["parameter", "metric"]
    stack: str
    unit: str
    better: str
    objective: bool
    coding: Coding
    part: NotRequired[TuplePart]


class BlockJson(TypedDict):
    """Trials by column."""

    first: int
    count: int
    columns: list[Column]
    reasons: list[str]
    outcomes: Packed
    pools: NotRequired[Packed]


class Fact(TypedDict):
    """A number, as text and exactly."""

    label: str
    text: str
    value: float | None
    note: str


class Gain(TypedDict):
    """How many times better the best design is than another."""

    over: str
    times: float | None


class PlateauJson(TypedDict):
    """How many designs are as good as the best."""

    share: float
    count: int
    error: float | None
    within_error: int | None
    sentence: str


class LaunchJson(TypedDict):
    """How a design is launched by a framework."""

    target: str
    export: str
    script: str
    note: str


class WorkloadVerdict(TypedDict):
    """What the best system does with one of several workloads."""

    name: str
    note: str
    headline: str
    design: str
    facts: list[Fact]


class VerdictJson(TypedDict):
    """The first section of a page."""

    headline: str
    sentence: str
    design: str
    objective: str
    gains: list[Gain]
    bound: str
    facts: list[Fact]
    provenance: str
    expected_error: float | None
    expected_on: str
    command: str
    python: str
    caveats: list[str]
    plateau: PlateauJson | None
    workloads: NotRequired[list[WorkloadVerdict]]


Part = TypedDict("Part", {"name": str, "label": str, "class": Class, "seconds": float})


class MemoryPart(TypedDict):
    """Bytes on the accelerator with the least free memory."""

    name: str
    label: str
    bytes: float


class TierJson(TypedDict):
    """One tier of memory: what it has for each accelerator, and what it holds."""

    name: str
    capacity_bytes: float
    used_bytes: float
    traffic_bytes: float
    parts: list[MemoryPart]


class TiersJson(TypedDict):
    """Memory by tier, and what transfers between tiers cost."""

    sentence: str
    exposed_s: float
    rows: list[TierJson]


ChangedField = TypedDict("ChangedField", {"path": str, "from": str, "to": str})


class ChangeJson(TypedDict):
    """Fields that change together between the base and the best."""

    label: str
    fields: list[ChangedField]
    worth: float | None
    alone: float | None


class Why(TypedDict):
    """What the gain comes from."""

    sentence: str
    changes: list[ChangeJson]
    rest: float | None
    method: str
    compared: list[int]


class SeriesJson(TypedDict):
    """The best so far of one search."""

    name: str
    points: list[list[float]]


class Convergence(TypedDict):
    """The best so far of each search over its evaluations."""

    objective: str
    label: str
    unit: str
    better: str
    series: list[SeriesJson]


class Failure(TypedDict):
    """Designs that cannot run for one reason."""

    reason: str
    label: str
    count: int


class CommandJson(TypedDict):
    """A command to run."""

    label: str
    command: str


class Trust(TypedDict):
    """How far to trust it."""

    inputs: list[list[str]]
    versions: list[list[str]]
    limits: list[str]
    failures: list[Failure]
    raw: int
    valid: int
    evaluated: int
    feasible: int
    coverage: str
    commands: list[CommandJson]


class ParallelAxis(TypedDict):
    """A parallel axis: dp, tp, cp, pp or ep."""

    name: str
    label: str
    size: int


class AxisRanks(TypedDict):
    """How many ranks of an axis a network dimension holds."""

    name: str
    ranks: float


class DimensionLoad(TypedDict):
    """The bytes that an accelerator sends into a network dimension in a step, for one component of the step."""

    axis: str
    label: str
    bytes: float
    seconds: float


class NetworkDimensionJson(TypedDict):
    """One dimension of the network and its load."""

    topology: str
    label: str
    npus: int
    bandwidth_bytes_per_s: float
    latency_s: float
    algorithm: str
    axes: list[AxisRanks]
    load: list[DimensionLoad]
    utilization: float
    links: list[list[int]]


class Cluster(TypedDict):
    """A design on its network."""

    npus: int
    accelerator: str
    axes: list[ParallelAxis]
    dims: list[NetworkDimensionJson]
    reading: str


class RooflinePoint(TypedDict):
    """An operator of the step."""

    name: str
    intensity: float
    flop_per_s: float
    seconds: float
    bound: Literal["compute", "memory"]


class Roofline(TypedDict):
    """The operators of a step on a roofline."""

    precision: str
    peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    points: list[RooflinePoint]
    reading: str


TimelineJson = dict[str, Any]
"""A timeline, packed by `timelines`."""


class SloJson(TypedDict):
    """A limit on a latency."""

    metric: str
    statistic: str
    limit_s: float
    text: str


class Latency(TypedDict):
    """A time that requests see."""

    name: Literal["ttft", "tpot", "e2e"]
    label: str
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    slo: SloJson | None


class PoolJson(TypedDict):
    """Equal engine instances."""

    name: str
    label: str
    instances: int
    npus: int
    accelerator: str
    mapping: str
    utilization: float | None
    kv_use: float | None
    running: float | None
    waiting: float | None


class Spent(TypedDict):
    """A time taken apart."""

    name: Literal["ttft", "tpot", "decode"]
    label: str
    seconds: float
    parts: list[Part]


class Curve(TypedDict):
    """A latency by load; None where the load is more than the deployment can serve."""

    label: str
    p50_s: list[float | None]
    p95_s: list[float | None]
    slo: SloJson | None


class Curves(TypedDict):
    """Latency over load, in closed form."""

    label: str
    unit: Literal["", "1/s"]
    at: float
    loads: list[float]
    ttft: Curve
    tpot: Curve
    tokens_per_s_per_npu: list[float | None]
    tokens_per_s_per_user: list[float | None]
    saturated: float | None
    holds: float | None
    reading: str


class ServingJson(TypedDict):
    """What a design does under its load of requests."""

    kind: Literal["aggregated", "disaggregated"]
    engine: str
    load: str
    mapping: str
    limits: str
    latencies: list[Latency]
    pools: list[PoolJson]
    spent: list[Spent]
    curves: Curves | None
    reading: str


class ServingStudy(TypedDict):
    """What a study of serving is about."""

    user: str
    npu: str
    slos: list[SloJson]


class Design(TypedDict):
    """One complete design with all that the page shows of it."""

    label: str
    role: Role
    trial: int | None
    identity: str
    yaml: str
    command: str
    feasible: bool
    reasons: list[str]
    step_s: float | None
    step_s_range: tuple[float, float] | None
    facts: list[Fact]
    parts: list[Part]
    memory: list[MemoryPart]
    capacity_bytes: float
    tiers: NotRequired[TiersJson]
    bound: str
    cluster: Cluster | None
    timeline: TimelineJson | None
    roofline: Roofline | None
    launch: LaunchJson | None
    serving: NotRequired[ServingJson]


class ReportDocument(TypedDict):
    """A whole report."""

    format: Literal[1]
    title: str
    study: str
    verdict: VerdictJson
    why: Why
    trials: BlockJson
    front: list[int]
    convergence: Convergence
    designs: list[Design]
    best: int | None
    base: int | None
    trust: Trust
    serving: NotRequired[ServingStudy]


# --------------------------------------------------------------------------------------
# The types of the document that the page of a trace shows. `ui/src/trace/document.ts` explains every name
# --------------------------------------------------------------------------------------


class SignedNumbers(TypedDict):
    """Whole numbers of either sign: 2 n for n, -2 n - 1 for negative ones; with *running*, differences of those."""

    numbers: Packed
    running: bool


class DependencyColumns(TypedDict):
    """Dependencies of one kind."""

    counts: Packed
    back: SignedNumbers


class NodeAttribute(TypedDict):
    """What nodes state of one kind: either codes into values, or numbers."""

    name: str
    label: str
    unit: str
    values: NotRequired[list[str | int | float | None]]
    codes: NotRequired[Packed]
    numbers: NotRequired[Packed]
    worth: NotRequired[float]


class Track(TypedDict):
    """A row of the timeline."""

    process: int
    name: str


class OperatorJson(TypedDict):
    """Nodes of one name, or of one kind of kernel."""

    name: str
    kind: str
    count: int
    total: float
    share: float


class NodeColumns(TypedDict):
    """The columns of all nodes, in ascending order of their ids."""

    count: int
    id: SignedNumbers
    type: Packed
    name: Packed
    track: Packed
    kind: Packed
    start: SignedNumbers
    duration: Packed
    depth: Packed
    critical: Packed
    data: DependencyColumns
    ctrl: DependencyColumns
    absent: dict[str, Packed]
    attributes: list[NodeAttribute]


class TraceViewJson(TypedDict):
    """The nodes of ranks that run the same."""

    facts: list[Fact]
    reading: str
    problems: list[str]
    recorded: bool
    tick: float
    unit: str
    duration: float
    processes: list[str]
    tracks: list[Track]
    types: list[str]
    names: list[str]
    operators: list[OperatorJson]
    operators_note: str
    kernels: list[OperatorJson]
    nodes: NodeColumns


class RankJson(TypedDict):
    """A rank: which view it has, and what differs from others that have it."""

    rank: int
    view: int
    groups: list[str]
    peers: list[int]


class TraceDocument(TypedDict):
    """The traces of a job."""

    format: int
    title: str
    facts: list[Fact]
    kinds: list[str]
    ranks: list[RankJson]
    views: list[TraceViewJson]
