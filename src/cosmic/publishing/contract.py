"""The types of the document that pages show. `ui/src/document.ts` is the contract and explains every name.

A document is plain data: dictionaries that are written as JSON. Numbers are in SI units.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

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


class Block(TypedDict):
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


class Plateau(TypedDict):
    """How many designs are as good as the best."""

    share: float
    count: int
    error: float | None
    within_error: int | None
    sentence: str


class Launch(TypedDict):
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


class Verdict(TypedDict):
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
    plateau: Plateau | None
    workloads: NotRequired[list[WorkloadVerdict]]


Part = TypedDict("Part", {"name": str, "label": str, "class": Class, "seconds": float})


class MemoryPart(TypedDict):
    """Bytes on the accelerator with the least free memory."""

    name: str
    label: str
    bytes: float


class Tier(TypedDict):
    """One tier of memory: what it has for each accelerator, and what it holds."""

    name: str
    capacity_bytes: float
    used_bytes: float
    traffic_bytes: float
    parts: list[MemoryPart]


class Tiers(TypedDict):
    """Memory by tier, and what transfers between tiers cost."""

    sentence: str
    exposed_s: float
    rows: list[Tier]


ChangedField = TypedDict("ChangedField", {"path": str, "from": str, "to": str})


class Change(TypedDict):
    """Fields that change together between the base and the best."""

    label: str
    fields: list[ChangedField]
    worth: float | None
    alone: float | None


class Why(TypedDict):
    """What the gain comes from."""

    sentence: str
    changes: list[Change]
    rest: float | None
    method: str
    compared: list[int]


class Series(TypedDict):
    """The best so far of one search."""

    name: str
    points: list[list[float]]


class Convergence(TypedDict):
    """The best so far of each search over its evaluations."""

    objective: str
    label: str
    unit: str
    better: str
    series: list[Series]


class Failure(TypedDict):
    """Designs that cannot run for one reason."""

    reason: str
    label: str
    count: int


class Command(TypedDict):
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
    commands: list[Command]


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


class NetworkDimension(TypedDict):
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
    dims: list[NetworkDimension]
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


Timeline = dict[str, Any]
"""A timeline, packed by `timelines`."""


class Slo(TypedDict):
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
    slo: Slo | None


class Pool(TypedDict):
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
    slo: Slo | None


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


class Serving(TypedDict):
    """What a design does under its load of requests."""

    kind: Literal["aggregated", "disaggregated"]
    engine: str
    load: str
    mapping: str
    limits: str
    latencies: list[Latency]
    pools: list[Pool]
    spent: list[Spent]
    curves: Curves | None
    reading: str


class ServingStudy(TypedDict):
    """What a study of serving is about."""

    user: str
    npu: str
    slos: list[Slo]


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
    tiers: NotRequired[Tiers]
    bound: str
    cluster: Cluster | None
    timeline: Timeline | None
    roofline: Roofline | None
    launch: Launch | None
    serving: NotRequired[Serving]


class ReportDocument(TypedDict):
    """A whole report."""

    format: Literal[1]
    title: str
    study: str
    verdict: Verdict
    why: Why
    trials: Block
    front: list[int]
    convergence: Convergence
    designs: list[Design]
    best: int | None
    base: int | None
    trust: Trust
    serving: NotRequired[ServingStudy]
