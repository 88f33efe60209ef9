"""The types of the documents that pages show: a report and a page of traces.

They are the contract with the front end: views return them, and `ui/src/document.ts` is generated from them. What other
rooms have as a value of its own (gains, rows of a timeline) is shown as it is. Numbers are in SI units. Classes that share
their subject with a class elsewhere end in Json; in TypeScript they do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cosmic.base.json_types import json_keys
from cosmic.search.search_verdict import SearchGain
from cosmic.simulate.step_timeline import SpanClass, TimelineProcess, TimelineTotals, TimelineTrack

Type = Literal["u8", "u16", "u32", "f32", "f64"]
Role = Literal["base", "isolated", "best", "front", "other"]
Kind = Literal["compute", "communication", "memory", "cpu", "other"]
Value = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Numbers in the binary part of a container."""

    offset: int
    """Bytes from the beginning of the binary part."""
    count: int
    type: Type


@json_keys(optional=("of",))
@dataclass(frozen=True, slots=True, kw_only=True)
class ChoicesCoding:
    """One of a few values; for a metric, a code beyond the last one means no value."""

    kind: Literal["choices"]
    values: list[Value]
    labels: list[str]
    codes: Packed
    of: list[int] | None = None
    """Which of the values each code has, where codes are those of a tuple of values, shared by its columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumbersCoding:
    """Plain numbers; NaN for no value."""

    kind: Literal["numbers"]
    numbers: Packed


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledCoding:
    """Numbers between two bounds in 65,534 equal steps, of the logarithm if `log`; code 0 for no value."""

    kind: Literal["scaled"]
    codes: Packed
    low: float
    high: float
    log: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedCoding:
    """Numbers computed from another column: `by` times, `by` over, or `by` plus its numbers."""

    kind: Literal["from"]
    column: int
    rule: Literal["times", "over", "plus"]
    by: float


Coding = ChoicesCoding | NumbersCoding | ScaledCoding | DerivedCoding


@dataclass(frozen=True, slots=True, kw_only=True)
class TuplePart:
    """Which entry of a parameter that sets several fields a column is."""

    of: str
    place: int


@json_keys(optional=("part",))
@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A parameter or a metric of all trials."""

    name: str
    """The path of a parameter ("workload.tp") or the name of a metric ("step_s")."""
    label: str
    """As it is shown: "tp", "bandwidth of dimension 1", "step"."""
    role: Literal["parameter", "metric"]
    stack: str = ""
    """The layer that a parameter belongs to; empty for metrics."""
    unit: str = ""
    """One of "", "s", "B", "B/s", "USD", "J", "share" (0.4 is shown as 40 %), "1/s" …"""
    better: Literal["", "less", "more"] = ""
    """Which way a metric is better; empty for parameters."""
    objective: bool = False
    """Whether the search optimised it; the first objective decides which design is best."""
    coding: Coding
    part: TuplePart | None = None
    """Which entry it is of a parameter that sets several fields at once: "workload.{dp,tp}"."""


@json_keys(optional=("pools",))
@dataclass(frozen=True, slots=True, kw_only=True)
class BlockJson:
    """Trials by column."""

    first: int
    """The number of the first trial."""
    count: int
    columns: list[Column]
    reasons: list[str]
    """Why each trial cannot run: a code into `reasons`; the first reason is empty, for trials that run."""
    outcomes: Packed
    pools: Packed | None = None
    """In a study of serving, for each trial 1 where pools of its own prefill (disaggregated), else 0 (aggregated)."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A number, as text and exactly."""

    label: str
    text: str
    """As it is shown: "11.2 ms"."""
    value: float | None = None
    """The exact value in SI units, for copying; null where there is no number."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlateauJson:
    """How many designs are as good as the best."""

    share: float
    """Within which share of the best: 0.01."""
    count: int
    error: float | None
    """The mean relative error of the model and how many designs lie within it; null where it is not known."""
    within_error: int | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchJson:
    """How a design is launched by a framework."""

    target: str
    """Such as "Megatron-LM"; empty where none can."""
    export: str
    """Such as "cosmic design export best.yaml --to megatron"."""
    script: str
    """The lines of shell that it prints."""
    note: str
    """Which frameworks can, or why none can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadVerdict:
    """What the best system does with one of several workloads."""

    name: str
    """Such as "chat"."""
    note: str
    """Such as "weight 3"."""
    headline: str
    """Such as "llama3-8b on 16 × h100-sxm-80gb: 1,016 tokens/s/GPU"."""
    design: str
    """How it is mapped, in words."""
    facts: list[Fact]


@json_keys(optional=("workloads",))
@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictJson:
    """The first section of a page."""

    headline: str
    """Such as "llama3-70b on 512 × h100-sxm-80gb: 1,016 tokens/s/GPU"; empty where there is no single best design."""
    sentence: str
    """Such as "4.10× over the base design; GEMMs bound it (80 % of the step)"."""
    design: str
    """The best design in a few words: "dp 128 · tp 2 · microbatch 1 · zero1 · recompute none, on ring 4 × switch 64"."""
    objective: str
    gains: Sequence[SearchGain]
    bound: str
    """What bounds the best design."""
    facts: list[Fact]
    provenance: str
    """measured, calibrated or estimate; empty where nothing runs."""
    expected_error: float | None
    """Mean relative error to expect of the step; null where nothing runs."""
    expected_on: str
    command: str
    """The shell command and the Python lines that search this again."""
    python: str
    caveats: list[str]
    """What a reader should know first: interrupted, no feasible design, no searches of single layers."""
    plateau: PlateauJson | None
    """null where nothing runs."""
    workloads: list[WorkloadVerdict] | None = None
    """What the best system does with each of several workloads, each in its own words; left out where there is one."""


@json_keys(**{"class": "colour"})  # type: ignore[arg-type]  # keys that are words of Python
@dataclass(frozen=True, slots=True)
class Part:
    """A part of a time, with the class of its colour."""

    name: str
    label: str
    colour: SpanClass
    seconds: float


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """Bytes on the accelerator with the least free memory."""

    name: str
    label: str
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TierJson:
    """One tier of memory: what it has for each accelerator, and what it holds."""

    name: str
    capacity_bytes: float
    used_bytes: float
    traffic_bytes: float
    """Bytes that cross its link in a step, both ways together; 0 of HBM, and of tiers that kernels read in place."""
    parts: list[MemoryPart]
    """What it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TiersJson:
    """Memory by tier, and what transfers between tiers cost."""

    sentence: str
    exposed_s: float
    """Seconds of the step in which compute waits for transfers."""
    rows: list[TierJson]


@json_keys(**{"from": "old", "to": "new"})  # type: ignore[arg-type]  # keys that are words of Python
@dataclass(frozen=True, slots=True)
class ChangedField:
    """A field of the design, before and after."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeJson:
    """Fields that change together between the base and the best."""

    label: str
    """What changes together: "mapping", "network bandwidth"."""
    fields: list[ChangedField]
    worth: float | None
    """Its factor of the gain; the factors of all changes multiply to the gain."""
    alone: float | None
    """The gain when the base takes only this change; null where that is an invalid mapping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """What the gain comes from."""

    sentence: str = ""
    """One sentence on what the changes add up to."""
    changes: Sequence[ChangeJson] = ()
    """The changes that matter most, at most five, largest worth first; then `rest` for all others together."""
    rest: float | None = None
    method: str = "none"
    """One of "exact", "sampled", "one_at_a_time" or "none"."""
    compared: Sequence[int] = ()
    """Indices into `designs`: the base, the best of each layer alone, the best."""


@dataclass(frozen=True, slots=True)
class SeriesJson:
    """The best so far of one search."""

    name: str
    points: list[tuple[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Convergence:
    """The best so far of each search over its evaluations."""

    objective: str
    label: str
    unit: str
    better: Literal["less", "more"]
    series: list[SeriesJson]


@dataclass(frozen=True, slots=True)
class Failure:
    """Designs that cannot run for one reason."""

    reason: str
    label: str
    count: int


@dataclass(frozen=True, slots=True)
class CommandJson:
    """A command to run."""

    label: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """How far to trust it."""

    inputs: list[tuple[str, str]]
    """Names and values: space, agent, seed, objectives, constraints, engine, identity, when it was written …"""
    versions: list[tuple[str, str]]
    limits: list[str]
    """What the model leaves out, each a sentence."""
    failures: list[Failure]
    """Designs that cannot run, by reason, most first; `label` is a sentence."""
    raw: int
    valid: int
    evaluated: int
    feasible: int
    coverage: str
    """A sentence: the share of the valid designs that was tried."""
    commands: list[CommandJson]


@dataclass(frozen=True, slots=True)
class ParallelAxis:
    """A parallel axis: dp, tp, cp, pp or ep."""

    name: str
    """dp, tp, cp, pp, ep …"""
    label: str
    size: int


@dataclass(frozen=True, slots=True)
class AxisRanks:
    """How many ranks of an axis a network dimension holds."""

    name: str
    ranks: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionLoad:
    """The bytes that an accelerator sends into a network dimension in a step, for one component of the step."""

    axis: str
    label: str
    bytes: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkDimensionJson:
    """One dimension of the network and its load."""

    topology: str
    label: str
    npus: int
    bandwidth_bytes_per_s: float
    latency_s: float
    algorithm: str
    axes: list[AxisRanks]
    """The axes whose groups span this dimension, innermost first, and how many ranks of each it holds."""
    load: list[DimensionLoad]
    """What an accelerator sends into it in a step, by axis."""
    utilization: float
    """Share of its bandwidth that is used over the step: 0 to 1."""
    links: list[tuple[int, int]]
    """Links of one instance of the dimension, as pairs of its members; members from `npus` on are switches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A design on its network."""

    npus: int
    accelerator: str
    axes: list[ParallelAxis]
    dims: list[NetworkDimensionJson]
    """Innermost first."""
    reading: str
    """One sentence on how to read the picture: "tp 8 in network dimension 1 …"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePoint:
    """An operator of the step."""

    name: str
    intensity: float
    flop_per_s: float
    seconds: float
    bound: Literal["compute", "memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """The operators of a step on a roofline."""

    precision: str
    peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    points: list[RooflinePoint]
    reading: str


@json_keys(**{"class": "colour"})  # type: ignore[arg-type]  # keys that are words of Python
@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineSpans:
    """Spans sorted by track and start."""

    count: int
    colour: Packed
    track: Packed
    name: Packed
    gap: Packed
    """Code of the time since the end of the span before on the same track: since 0 for the first; negative where they overlap."""
    duration: Packed
    """Code of the duration."""
    critical: Packed
    """1 where a span lies on the critical path."""


@json_keys(**{"from": "source", "to": "target"})  # type: ignore[arg-type]  # keys that are words of Python
@dataclass(frozen=True, slots=True)
class TimelineFlows:
    """Arrows from span to span."""

    count: int
    source: Packed
    target: Packed


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineCounter:
    """A value that is valid from each of its times until the next."""

    process: int
    name: str
    unit: str
    most: float | None
    times: Packed
    """Codes of the time since the sample before: since 0 for the first."""
    values: Packed
    """Codes into `levels`."""
    levels: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineJson:
    """Spans, arrows and counters of a step, or of a load of requests."""

    engine: Literal["analytic", "event"]
    duration_s: float
    processes: Sequence[TimelineProcess]
    tracks: Sequence[TimelineTrack]
    names: list[str]
    """Names of spans, by code."""
    classes: list[SpanClass]
    spans: TimelineSpans
    seconds: list[float]
    """The times of spans and counters, by code."""
    flows: TimelineFlows
    counters: list[TimelineCounter]
    totals: TimelineTotals
    reading: str
    """One sentence: what is drawn and what is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SloJson:
    """A limit on a latency."""

    metric: str
    """The metric that it limits, as a column of the trials is called: "ttft_p95_s"."""
    statistic: str
    """Which value of the latency: "mean", "p50", "p95" or "p99"."""
    limit_s: float
    text: str
    """Such as "TTFT p95 ≤ 1 s"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A time that requests see."""

    name: Literal["ttft", "tpot", "e2e"]
    label: str
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    slo: SloJson | None
    """The limit that it is to hold; null where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolJson:
    """Equal engine instances."""

    name: str
    """One of "all", "prefill" or "decode"."""
    label: str
    """Such as "prefill and decode"."""
    instances: int
    npus: int
    accelerator: str
    mapping: str
    """An instance: "tp 8 · attention dp 2 · ep 16"."""
    utilization: float | None
    """Share of time in which its accelerators run steps; null where it is not known."""
    kv_use: float | None
    """Share of the KV cache that running requests fill."""
    running: float | None
    """Mean requests that run and that wait, in all instances."""
    waiting: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """A time taken apart."""

    name: Literal["ttft", "tpot", "decode"]
    label: str
    seconds: float
    """What the parts add up to."""
    parts: list[Part]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A latency by load; null where the load is more than the deployment can serve."""

    label: str
    p50_s: list[float | None]
    p95_s: list[float | None]
    slo: SloJson | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Latency over load, in closed form."""

    label: str
    """One of "requests in flight" or "requests per second"."""
    unit: Literal["", "1/s"]
    at: float
    """The design's own load."""
    loads: list[float]
    ttft: Curve
    """By load; null where the load is more than the deployment can serve."""
    tpot: Curve
    tokens_per_s_per_npu: list[float | None]
    tokens_per_s_per_user: list[float | None]
    saturated: float | None
    """The first load, on this grid, that is more than it can serve; null where there is none."""
    holds: float | None
    """The largest load, on this grid, that holds every SLO; null where there is none, or no SLO."""
    reading: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingJson:
    """What a design does under its load of requests."""

    kind: Literal["aggregated", "disaggregated"]
    engine: str
    """Such as "vllm"."""
    load: str
    """Such as "64 requests in flight, 4,000 tokens in and 500 out"."""
    mapping: str
    """Such as "2 replicas × tp 8"."""
    limits: str
    """Such as "at most 256 requests and 8,192 tokens a step, KV cache in fp8"."""
    latencies: list[Latency]
    pools: list[PoolJson]
    spent: list[Spent]
    """Where the mean time to first token, the mean time per output token and a mean decode step go."""
    curves: Curves | None
    """Latency over load; null where none could be computed."""
    reading: str
    """What the numbers say, in a sentence: whether the SLOs hold, and what waits for what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingStudy:
    """What a study of serving is about."""

    user: str
    """The metrics of the trade-off, by the names of their columns."""
    npu: str
    slos: list[SloJson]


@json_keys(optional=("tiers", "serving"))
@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """One complete design with all that the page shows of it."""

    label: str
    """Such as "base", "best", "workload alone", "trial 412"."""
    role: Role
    trial: int | None
    """Its number in the study; null for one that is not in it."""
    identity: str
    yaml: str
    """The whole design, ready for `cosmic evaluate`."""
    command: str
    """A command that evaluates it again."""
    feasible: bool = False
    reasons: Sequence[str] = ()
    step_s: float | None = None
    step_s_range: tuple[float, float] | None = None
    """P5 and P95 of what the step is expected to take when measured; null where it cannot run."""
    facts: Sequence[Fact] = ()
    parts: Sequence[Part] = ()
    memory: Sequence[MemoryPart] = ()
    capacity_bytes: float
    tiers: TiersJson | None = None
    """Of a design whose state is in several tiers of memory; left out where all of it is in HBM."""
    bound: str = ""
    cluster: Cluster | None = None
    timeline: TimelineJson | None = None
    roofline: Roofline | None = None
    launch: LaunchJson | None = None
    """Of the best design of a report, and of every design that a page asked for."""
    serving: ServingJson | None = None
    """Of a design with a load of requests; left out where a design is a single step. Its `step_s`, `parts`, cluster,
    roofline and timeline are then those of one decode step with the requests that run under the load."""


@json_keys(optional=("serving",))
@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDocument:
    """A whole report."""

    format: Literal[1]
    title: str
    study: str
    """The directory of the study, as it was given."""
    verdict: VerdictJson
    why: Why
    trials: BlockJson
    front: list[int]
    """Numbers of the trials on the Pareto front."""
    convergence: Convergence
    designs: list[Design]
    best: int | None
    """Indices into `designs`; null where no design is feasible."""
    base: int | None
    trust: Trust
    serving: ServingStudy | None = None
    """Of a study of serving; left out otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedNumbers:
    """Whole numbers of either sign: 2 n for n, -2 n - 1 for negative ones; with *running*, differences of those."""

    numbers: Packed
    running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyColumns:
    """Dependencies of one kind."""

    counts: Packed
    back: SignedNumbers


@json_keys(optional=("values", "codes", "numbers", "worth"))
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAttribute:
    """What nodes state of one kind: either codes into values, or numbers."""

    name: str
    """The column of Chakra: "comm_size". For "group" and "peer" a value is a place in those of the rank."""
    label: str
    unit: str
    """One of "", "s", "B", "FLOP"."""
    values: list[str | int | float | None] | None = None
    """Codes into values, null for nodes that state none; or numbers plus one, 0 for none, each worth `worth`."""
    codes: Packed | None = None
    numbers: Packed | None = None
    worth: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorJson:
    """Nodes of one name, or of one kind of kernel."""

    name: str
    kind: Kind
    count: int
    total: float
    """Seconds, or steps: see the unit of the view."""
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsentDependencies:
    """Dependencies on ids that no node has."""

    node: Packed
    id: Packed


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeColumns:
    """The columns of all nodes, in ascending order of their ids."""

    count: int
    id: SignedNumbers
    type: Packed
    """Codes into `types`, `names`, `tracks` and the document's `kinds`."""
    name: Packed
    track: Packed
    kind: Packed
    start: SignedNumbers
    duration: Packed
    depth: Packed
    """The most nodes that must run before it, one after the other."""
    critical: Packed
    """1 on the critical path."""
    data: DependencyColumns
    ctrl: DependencyColumns
    absent: AbsentDependencies
    """Dependencies on ids that no node has."""
    attributes: list[NodeAttribute]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceViewJson:
    """The nodes of ranks that run the same."""

    facts: list[Fact]
    reading: str
    """Where the times come from."""
    problems: list[str]
    """What is wrong with the dependencies: cycles, absent nodes."""
    recorded: bool
    tick: float
    """What a unit of `start` and `duration` is worth: seconds, or steps."""
    unit: Literal["s", "steps"]
    duration: float
    """When the last node ends."""
    processes: list[str]
    tracks: Sequence[TimelineTrack]
    types: list[str]
    names: list[str]
    operators: list[OperatorJson]
    """Those that take the most time, and what is to be said of them."""
    operators_note: str
    kernels: list[OperatorJson]
    nodes: NodeColumns
    """Columns of all nodes, in ascending order of their ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRank:
    """A rank: which view it has, and what differs from others that have it."""

    rank: int
    view: int
    """Its place in `views`."""
    groups: list[str]
    peers: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceDocument:
    """The traces of a job."""

    format: Literal[1]
    title: str
    facts: list[Fact]
    """Of all ranks together; none of a single one."""
    kinds: list[Kind]
    ranks: list[TraceRank]
    views: list[TraceViewJson]
