"""What differs between two traces, operator by operator: read this first.

    traces, or a design ──▶ two sides (`TraceSide`) ──▶ a row for each operator ──▶ what explains the spans

A side is what a rank does in a step, operator by operator. Amounts are those of one rank and one step: means, where
a trace has several. The time of a recorded rank is, exactly,

    span = kernels + communication - overlap + idle

*kernels* and *communication* are sums of durations on the device, *overlap* is what they exceed the time by in which
anything runs, and *idle* is the rest: where the next kernel waited for the host, or came after a gap on the device.

So the difference of two spans is, exactly, the sum of the differences of all operators, of the overlap and of the
idle time. A side without a span (traces that were not recorded) has operators only.

**Classes** of work (`WorkClass`) are what recorded kernels and the operators of a design both belong to. A class is a group and a part of it. A recorded kernel is told by the operators around its launch
(``aten::layer_norm``), by its work (`cosmic.step.kernel_prices`) and, failing both, by its name:

    GEMMs                projections, feed-forward, head: where a design tells which shapes these have
    convolutions
    attention            forward, backward; and what cuDNN runs before and after
    memory operators     norms, activations, biases, adds, casts, layout (copies that reorder), fused, other
    embedding and loss   embedding, loss
    optimizer
    copies               copies and fills that are no kernels
    communication        by the collective
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError, require
from cosmic.base.json_types import PositiveCount, json_keys, unit
from cosmic.step.kernel_prices import KernelWork, parse_work
from cosmic.traces.dependencies import Dependencies, dependencies_of
from cosmic.traces.trace import (
    ABSENT,
    ALL_RANKS,
    COLUMNS,
    COMMUNICATION_TYPES,
    CollectiveType,
    Ints,
    NodeType,
    RankTrace,
    Template,
    TraceSet,
    known_groups,
    ranks_by_template,
)
from cosmic.traces.trace import COMMUNICATION_TYPES as COMMUNICATES
from cosmic.traces.trace_views import enum_name

GEMMS, CONVOLUTIONS, ATTENTION, MEMORY = "GEMMs", "convolutions", "attention", "memory operators"
TABLES, OPTIMIZER, COPIES, COMMUNICATION = "embedding and loss", "optimizer", "copies", "communication"
FUSED = "compute"
"""Nodes that hold several operators: those of generated traces."""

_KINDS = {
    "gemm": (GEMMS, ""),
    "grouped_gemm": (GEMMS, "grouped"),
    "convolution": (CONVOLUTIONS, ""),
    "attention": (ATTENTION, "forward"),
    "attention_backward": (ATTENTION, "backward"),
}
_ATTENTION = re.compile(r"flash|fmha|sdpa|attention|compute_dot_do_o|convert_dq", re.IGNORECASE)
_BACKWARD = re.compile(r"bprop|bwd|backward|dot_do_o|convert_dq", re.IGNORECASE)
_GEMM = re.compile(r"gemm|gemv|nvjet|xmma|cutlass|cublas|splitk|Cijk_|_mm_|matmul", re.IGNORECASE)
_SPLIT_K = re.compile(r"splitk_?reduce", re.IGNORECASE)
"""The last step of a GEMM whose sum is split."""
_CONVOLUTION = re.compile(r"convolve|conv2d|fprop|dgrad|wgrad", re.IGNORECASE)
_COPY = re.compile(r"Memcpy|Memset", re.IGNORECASE)
_COLLECTIVE = re.compile(r"nccl|rccl", re.IGNORECASE)
_OPTIMIZER = re.compile(r"^Optimizer\.step#|_fused_adam|_foreach_|multi_tensor_apply", re.IGNORECASE)
_LOSS = re.compile(r"nll_?loss|log_?softmax|cross_?entropy", re.IGNORECASE)
_EMBEDDING = re.compile(r"embedding", re.IGNORECASE)
_FUSED_NAME = re.compile(r"^triton_")
_PARTS = (
    ("norms", re.compile(r"norm", re.IGNORECASE)),
    ("activations", re.compile(r"gelu|silu|relu|swiglu|sigmoid|tanh", re.IGNORECASE)),
    ("casts", re.compile(r"aten::(to|_to_copy)$|ToCopyBackward", re.IGNORECASE)),
    ("layout", re.compile(r"aten::(cat|copy_|clone|contiguous|stack|index|select_backward)$", re.IGNORECASE)),
    ("biases", re.compile(r"aten::sum$", re.IGNORECASE)),
    ("adds", re.compile(r"aten::add_?$", re.IGNORECASE)),
)
"""Parts of memory operators by the operators around a kernel, the first that any of them matches."""
_SHAPE = re.compile(r"(gemm|attention|attention_backward)( [0-9]+)+")
_WALKS = {"strided": "layout", "optimizer": "", "fused": "fused"}


@dataclass(frozen=True, slots=True, order=True)
class WorkClass:
    """A class of work."""

    group: str
    part: str = ""

    @property
    def text(self) -> str:
        """The class on one line.

        >>> WorkClass(MEMORY, "norms").text, WorkClass(GEMMS).text
        ('memory operators: norms', 'GEMMs')
        """
        return f"{self.group}: {self.part}" if self.part else self.group


def classify_kernel(name: str, work: str, operators: Sequence[str] = ()) -> WorkClass:
    """Return the class of a kernel by its name, its work and the names of the operators around it, innermost first.

    >>> classify_kernel("nvjet_sm90", "gemm bf16 1 8 8 8").text, classify_kernel("Memset (Device)", "memset uint8 4").text
    ('GEMMs', 'copies')
    >>> classify_kernel("vectorized_layer_norm_kernel", "stream bf16 row 8 8 8 8 1 1", ["aten::native_layer_norm"]).text
    'memory operators: norms'
    >>> classify_kernel("vectorized_gather_kernel", "stream bf16 gather 8 8 8 8 1 1", ["aten::embedding"]).text
    'embedding and loss: embedding'
    >>> classify_kernel("flash_bwd_kernel", "").text
    'attention: backward'
    """
    parsed = parse_known_work(work)
    if _COPY.match(name):
        return WorkClass(COPIES)
    if parsed is not None and parsed.kind in _KINDS:
        return WorkClass(*_KINDS[parsed.kind])
    if _COLLECTIVE.search(name):
        return WorkClass(COMMUNICATION, "other")
    if any(map(_OPTIMIZER.search, (name, *operators))) or (parsed is not None and parsed.walk == "optimizer"):
        return WorkClass(OPTIMIZER)
    if _ATTENTION.search(name):
        return WorkClass(ATTENTION, "backward" if _BACKWARD.search(name) else "forward")
    if _SPLIT_K.search(name) or (parsed is None and _GEMM.search(name)):
        return WorkClass(GEMMS)
    if parsed is None and _CONVOLUTION.search(name):
        return WorkClass(CONVOLUTIONS)
    return _classify_stream(name, parsed, operators)


def _classify_stream(name: str, work: KernelWork | None, operators: Sequence[str]) -> WorkClass:
    """Return the class of a kernel that moves more than it computes."""
    around = (*operators, name)
    if any(map(_LOSS.search, around)):
        return WorkClass(TABLES, "loss")
    if any(map(_EMBEDDING.search, around)):
        return WorkClass(TABLES, "embedding")
    if _FUSED_NAME.match(name):
        return WorkClass(MEMORY, "fused")
    for operator in operators:  # the innermost that says something: a norm may call aten::add
        for part, pattern in _PARTS:
            if pattern.search(operator):
                return WorkClass(MEMORY, part)
    return WorkClass(MEMORY, _WALKS.get(work.walk, "other") if work is not None else "other")


def parse_known_work(work: str) -> KernelWork | None:
    """Return the work that a trace states; None where it states none, or one of a kind that is not known."""
    if not work:
        return None
    try:
        return parse_work(work)
    except SpecError:
        return None


def work_shape(work: str) -> str:
    """Return the shape of a GEMM or of attention, without number format, mask and which way its result lies.

    A framework computes the gradient of a weight, or its transpose: both have one shape here. Empty for other works.

    >>> work_shape("gemm bf16 1 2048 6144 8192"), work_shape("gemm bf16 1 6144 2048 8192")
    ('gemm 1 6144 2048 8192', 'gemm 1 6144 2048 8192')
    >>> work_shape("attention bf16 4 16 16 2048 2048 128 128 1")
    'attention 4 16 16 2048 2048 128 128'
    >>> work_shape("gemm 1 8 4 2"), work_shape("stream bf16 row 8 8 8 8 1 1")
    ('gemm 1 8 4 2', '')
    """
    if _SHAPE.fullmatch(work):
        return work
    parsed = parse_known_work(work)
    if parsed is None or parsed.kind == "stream":
        return ""
    if parsed.kind == "gemm":
        return gemm_shape(*parsed.sizes)
    return " ".join(map(str, (parsed.kind, *parsed.sizes[:7]))) if parsed.kind.startswith("attention") else ""


def gemm_shape(count: float, m: float, n: float, k: float) -> str:
    """Return the shape of GEMMs as text, as `work_shape` does.

    >>> gemm_shape(1.0, 64.0, 128.0, 32.0)
    'gemm 1 128 64 32'
    """
    return " ".join(["gemm", *(f"{round(size)}" for size in (count, max(m, n), min(m, n), k))])


def add_gemm_part(work_class: WorkClass, work: str, shapes: Mapping[str, str]) -> WorkClass:
    """Return the class of a kernel; of a GEMM whose shape a design knows, with its part.

    >>> add_gemm_part(WorkClass(GEMMS), "gemm bf16 1 8 4 2", {"gemm 1 8 4 2": "head"}).text
    'GEMMs: head'
    """
    if work_class.group != GEMMS or not shapes:
        return work_class
    return WorkClass(GEMMS, shapes.get(work_shape(work), "other"))


NANO = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceIdle:
    """Seconds in which a device runs nothing, by what it waits for."""

    host_s: float = 0.0
    """For the host to launch the next kernel."""
    gaps_s: float = 0.0
    """Between kernels that are launched already."""
    bubble_s: float = 0.0
    """For other pipeline stages; known of designs only: recorded, this is communication."""
    offload_s: float = 0.0
    """For traffic with outer memory tiers that nothing hides; known of designs only."""

    @property
    def total_s(self) -> float:
        """All of it."""
        return sum((float(getattr(self, part.name)) for part in fields(self)), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPath:
    """The nodes that each waited for last, from the last to end back to the first: seconds by what they are."""

    compute_s: float = 0.0
    """In kernels."""
    communication_s: float = 0.0
    """In communication."""
    host_s: float = 0.0
    """On the host."""
    delay_s: float = 0.0
    """From the end of one node to the start of the next: latencies of launches, gaps between kernels."""
    nodes: int = 0
    """Number of nodes."""


def device_rows(template: Template) -> Ints:
    """Return the rows that run on the device, and all that communicate."""
    communicates = np.isin(template.type, [int(kind) for kind in COMMUNICATION_TYPES])
    runs = template.type != NodeType.METADATA
    return np.flatnonzero(runs & ((template.on_cpu == 0) | communicates))


def times_ns(template: Template) -> tuple[Ints, Ints]:
    """Return when each node began and ended; 0 where it does not say."""
    start = np.maximum(template.start_ns, 0)
    durations = np.where(template.duration_ns == ABSENT, 1000 * template.duration_us, template.duration_ns)
    return start, start + np.maximum(durations, 0)


def span_s(template: Template) -> float:
    """Return the seconds from the first start to the last end of a recorded rank."""
    start, end = times_ns(template)
    timed = template.start_ns != ABSENT
    return float(end[timed].max() - start[timed].min()) * NANO if timed.any() else 0.0


def device_idle(template: Template) -> DeviceIdle:
    """Return where the device of a recorded rank runs nothing, within the span of all its nodes.

    >>> from cosmic.traces.trace import template_of
    >>> launch = {"id": 0, "type": 4, "on_cpu": 1, "start_ns": 0, "duration_ns": 10}
    >>> first = {"id": 1, "type": 4, "start_ns": 30, "duration_ns": 50, "data": [0]}
    >>> second = {"id": 2, "type": 4, "start_ns": 85, "duration_ns": 5, "data": [0, 1]}
    >>> found = device_idle(template_of([launch, first, second]))
    >>> round(found.host_s * 1e9), round(found.gaps_s * 1e9)
    (30, 5)
    """
    timed = template.start_ns != ABSENT
    if not timed.any():
        return DeviceIdle()
    start, end = times_ns(template)
    rows = device_rows(template)
    rows = rows[timed[rows]]
    rows = rows[np.argsort(start[rows], kind="stable")]
    begins, ends = int(start[timed].min()), int(end[timed].max())
    reached = np.maximum.accumulate(np.concatenate([[begins], end[rows]]))
    gaps = np.maximum(start[rows] - reached[:-1], 0)
    held = _held_by(_data_dependencies(template), end, template.nodes)[rows]
    by_host = (held < 0) | (template.on_cpu[held] == 1)
    tail = max(ends - int(reached[-1]), 0)  # the host goes on after the last kernel
    host = int(gaps[by_host].sum()) + tail
    return DeviceIdle(host_s=host * NANO, gaps_s=int(gaps[~by_host].sum()) * NANO)


def _held_by(dependencies: Dependencies, end: Ints, nodes: int) -> Ints:
    """Return for each row the one that it depends on and that ended last; -1 if it depends on none."""
    held = np.full(nodes, -1)
    order = np.lexsort((end[dependencies.row], dependencies.dependent))
    held[dependencies.dependent[order]] = dependencies.row[order]  # the last one that is written stays
    return held


def critical_path(template: Template) -> CriticalPath:
    """Return the critical path of a recorded rank as it ran: its seconds add up to the span, or to a part of it.

    >>> from cosmic.traces.trace import template_of
    >>> launch = {"id": 0, "type": 4, "on_cpu": 1, "start_ns": 0, "duration_ns": 10}
    >>> kernel = {"id": 1, "type": 4, "start_ns": 30, "duration_ns": 50, "data": [0]}
    >>> found = critical_path(template_of([launch, kernel]))
    >>> [round(each * 1e9) for each in (found.compute_s, found.host_s, found.delay_s)], found.nodes
    ([50, 10, 20], 2)
    """
    timed = template.start_ns != ABSENT
    if not timed.any():
        return CriticalPath()
    start, end = times_ns(template)
    held = _held_by(_data_dependencies(template), end, template.nodes)
    rows = np.flatnonzero(timed)
    row = int(rows[np.lexsort((-template.on_cpu[rows], end[rows]))[-1]])
    spent_ns, seen = {"compute_s": 0, "communication_s": 0, "host_s": 0, "delay_s": 0}, set[int]()
    while row >= 0 and row not in seen and timed[row]:
        seen.add(row)
        before = int(held[row])
        from_ns = min(int(end[before]), int(end[row])) if before >= 0 and timed[before] else int(start[row])
        spent_ns["delay_s"] += max(int(start[row]) - from_ns, 0)
        spent_ns[_time_kind(template, row)] += int(end[row]) - max(int(start[row]), from_ns)
        row = before
    return CriticalPath(nodes=len(seen), **{name: spent * NANO for name, spent in spent_ns.items()})


def _data_dependencies(template: Template) -> Dependencies:
    """Return the data dependencies: the control dependency of a recorded node is the operator that it is inside of."""
    none = np.zeros(template.nodes + 1, np.int64), np.zeros(0, np.int64)
    return dependencies_of(replace(template, ctrl_start=none[0], ctrl_id=none[1])).within()


def _time_kind(template: Template, row: int) -> str:
    if template.type[row] in COMMUNICATION_TYPES:
        return "communication_s"
    return "host_s" if template.on_cpu[row] else "compute_s"


Kind = Literal["recorded", "generated", "design"]
Floats = npt.NDArray[np.float64]
ROUNDING = 1e-9
"""Share of a span below which an overlap is none."""
DEEPEST = 64
"""Operators around a kernel that are looked at."""


@dataclass(frozen=True, slots=True)
class ComparedOperator:
    """What identifies an operator in a comparison."""

    of: WorkClass
    name: str
    work: str
    """Of a kernel, what it computes; of a collective, its bytes and ranks; empty where that is not known."""
    type: str
    """The type of its nodes."""


@json_keys("flop_per_s", "bytes_per_s")
@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAmount:
    """How much there is of an operator, in one step of one rank."""

    count: Annotated[float, unit("runs")] = 0.0
    """Runs."""
    seconds: float = 0.0
    """Time of all of them."""
    flop: float = 0.0
    """Floating-point operations, where they are known."""
    bytes: float = 0.0
    """Bytes moved or sent, where they are known."""

    def __add__(self, other: OperatorAmount) -> OperatorAmount:
        return OperatorAmount(
            count=self.count + other.count,
            seconds=self.seconds + other.seconds,
            flop=self.flop + other.flop,
            bytes=self.bytes + other.bytes,
        )

    def __mul__(self, share: float) -> OperatorAmount:
        """Return a share of it.

        >>> OperatorAmount(count=4, seconds=2.0) * 0.5
        OperatorAmount(count=2.0, seconds=1.0, flop=0.0, bytes=0.0)
        """
        return OperatorAmount(
            count=self.count * share, seconds=self.seconds * share, flop=self.flop * share, bytes=self.bytes * share
        )

    @property
    def flop_per_s(self) -> float | None:
        """Rate of operations; None where it is not known."""
        return self.flop / self.seconds if self.seconds and self.flop else None

    @property
    def bytes_per_s(self) -> float | None:
        """Rate of bytes; None where it is not known."""
        return self.bytes / self.seconds if self.seconds and self.bytes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphStructure:
    """How many nodes and dependencies the graphs of all ranks have."""

    ranks: int
    """Ranks."""
    nodes: int
    """Nodes of all ranks."""
    host_nodes: int
    """Those on the CPU."""
    data_dependencies: int
    """Data dependencies of all ranks."""
    control_dependencies: int
    """Control dependencies of all ranks."""
    streams: int
    """Of the rank that has most."""
    nodes_by_type: Mapping[str, int]
    """Nodes, by type."""


@json_keys(
    "kernels_s",
    "communication_s",
    "overlap_s",
    without=("operators", "order", "shapes"),
    critical_path="path",
)
@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSide:
    """A trace or a design."""

    name: str
    """Prefix of its files, or the design."""
    kind: Kind
    """Recorded by a profiler, not recorded (generated), or the prediction of a design."""
    operators: Mapping[ComparedOperator, OperatorAmount]
    span_s: float | None = None
    """From the first start to the last end of a rank; None where the trace does not say."""
    idle: DeviceIdle = field(default_factory=DeviceIdle)
    """Time in which a device runs nothing."""
    path: CriticalPath | None = None
    """The nodes that waited for one another, back from the last to end, of the rank with the longest span; None where
    a trace does not say when it ran."""
    structure: GraphStructure | None = None
    """Its graphs; None for a design."""
    order: tuple[ComparedOperator, ...] = ()
    """The operators of rank 0, in the order in which they began."""
    shapes: Mapping[str, str] = field(default_factory=dict)
    """Parts of the model by the shapes of their GEMMs; of designs."""
    steps: PositiveCount = 1
    """Recorded steps."""
    notes: tuple[str, ...] = ()
    """What is to be known of it."""

    @property
    def kernels_s(self) -> float:
        """Time of all kernels."""
        return self.sum_s(communicated=False)

    @property
    def communication_s(self) -> float:
        """Time of all communication."""
        return self.sum_s(communicated=True)

    def sum_s(self, *, communicated: bool) -> float:
        """Return the seconds of all kernels, or of all communication."""
        amounts = (
            operator
            for compared_operator, operator in self.operators.items()
            if (compared_operator.of.group == COMMUNICATION) == communicated
        )
        return sum(amount.seconds for amount in amounts)

    @property
    def overlap_s(self) -> float | None:
        """How much longer these take than a device is busy."""
        if self.span_s is None:
            return None
        overlap = self.kernels_s + self.communication_s + self.idle.total_s - self.span_s
        return overlap if abs(overlap) > ROUNDING * self.span_s else 0.0


def side_of_traces(
    traces: TraceSet,
    groups: Mapping[str, Sequence[int]] | None = None,
    steps: int = 1,
    seconds: Mapping[int, Floats] | None = None,
) -> TraceSide:
    """Return one side of a contrast: *traces* of *steps* steps; *seconds* of nodes are by `id` of a template."""
    members = known_groups(traces, groups)
    parts = ranks_by_template(traces)
    timed = bool(parts) and all(template.is_recorded for template, _ in parts if template.nodes) and traces.nodes > 0
    operators: dict[ComparedOperator, OperatorAmount] = {}
    span, idle, paths = 0.0, DeviceIdle(), []
    for template, ranks in parts:
        share = len(ranks) / len(traces.ranks) / steps
        seconds_of_nodes = _seconds(template) if seconds is None else seconds[id(template)]
        # A rank for each set of groups among the ranks that share the template, and how many have it
        ranks_of_groups: dict[tuple[str, ...], list[int]] = {}
        for rank in ranks:
            ranks_of_groups.setdefault(traces.ranks[rank].groups, []).append(rank)
        for number in [(ranks_alike[0], len(ranks_alike)) for ranks_alike in ranks_of_groups.values()]:
            weight = share * number[1] / len(ranks)
            for operator, amount in _amounts(traces.ranks[number[0]], seconds_of_nodes, members).items():
                operators[operator] = operators.get(operator, OperatorAmount()) + amount * weight
        if timed:
            span += share * span_s(template)
            waited = device_idle(template)
            idle = replace(idle, host_s=idle.host_s + share * waited.host_s, gaps_s=idle.gaps_s + share * waited.gaps_s)
            paths.append((span_s(template), critical_path(template)))
    notes = []
    if len(traces.ranks) > 1:
        notes.append(f"{traces.where}: means over {len(traces.ranks):,} ranks")
    if steps > 1:
        notes.append(f"{traces.where}: means over {steps} steps")
    recorded = [template for template in traces.templates() if template.is_recorded]
    if timed and not any(len(device_rows(template)) for template in recorded):
        notes.append(f"{traces.where}: nothing runs on a device in it; all time is the host's")
    if recorded and not timed:
        notes.append(f"{traces.where}: some ranks do not say when they ran; no span is known")
    return TraceSide(
        name=traces.where,
        kind="recorded" if timed else "generated",
        operators=operators,
        span_s=span if timed else None,
        idle=idle,
        path=max(paths, key=lambda path: path[0])[1] if timed else None,
        structure=_structure(parts),
        order=_order(traces, members),
        steps=steps,
        notes=tuple(notes),
    )


def _seconds(template: Template) -> Floats:
    start, end = times_ns(template)
    return (end - start).astype(np.float64) * NANO


def _amounts(
    rank: RankTrace, seconds: Floats, members: Mapping[str, Sequence[int]]
) -> dict[ComparedOperator, OperatorAmount]:
    """Return the operators on one rank's device, with their amounts."""
    template = rank.template
    rows = device_rows(template)
    operators = _operators(rank, rows.tolist(), members)
    numbers: dict[ComparedOperator, int] = {}
    code = np.array([numbers.setdefault(operator, len(numbers)) for operator in operators], np.int64)
    communicates = np.isin(template.type[rows], [int(communicate) for communicate in COMMUNICATES])
    moved = np.where(communicates, template.comm_size[rows], template.tensor_size[rows])
    columns = (np.ones(len(rows)), seconds[rows], np.maximum(template.num_ops[rows], 0), np.maximum(moved, 0))
    count, busy_s, flop, size = (np.bincount(code, column, len(numbers)).tolist() for column in columns)
    return {
        compared_operator: OperatorAmount(
            count=count[index], seconds=busy_s[index], flop=flop[index], bytes=size[index]
        )
        for compared_operator, index in numbers.items()
    }


def _operators(rank: RankTrace, rows: Sequence[int], members: Mapping[str, Sequence[int]]) -> list[ComparedOperator]:
    """Return the operator of each row; equal ones share one value."""
    template, cache, operators = rank.template, dict[object, ComparedOperator](), []
    parents = _parents(template)
    types, kernels, recorded = template.type.tolist(), template.kernel.tolist(), template.is_recorded
    for row in rows:
        if types[row] in COMMUNICATES:
            key: object = (template.names[row], types[row], *_message_key(rank, row))
        else:
            key = (template.names[row], kernels[row], types[row], int(parents[row]))
        if key not in cache:
            cache[key] = (
                _communication_operator(rank, row, members)
                if types[row] in COMMUNICATES
                else _compute_operator(template, row, parents)
            )
        operators.append(cache[key])
    return operators if recorded else [_without_work(operator) for operator in operators]


def _without_work(operator: ComparedOperator) -> ComparedOperator:
    """Return an operator of a trace that was not recorded: a node that states no work may hold several."""
    if operator.work or operator.of.group == COMMUNICATION:
        return operator
    optimizer = operator.name.endswith("optimizer")
    return replace(operator, of=WorkClass(OPTIMIZER if optimizer else FUSED))


def _message_key(rank: RankTrace, row: int) -> tuple[int, int, int]:
    template = rank.template
    return int(template.comm_type[row]), int(template.comm_size[row]), int(template.group[row])


def _communication_operator(rank: RankTrace, row: int, members_of: Mapping[str, Sequence[int]]) -> ComparedOperator:
    """Return a collective, a send or a receive, with its bytes and the size of its group."""
    template = rank.template
    kind, size, group = _message_key(rank, row)
    node_type = enum_name(NodeType, int(template.type[row]))
    if template.type[row] != NodeType.COMM_COLL:
        part = node_type.removeprefix("COMM_").lower()
        return ComparedOperator(
            WorkClass(COMMUNICATION, part), template.names[row], f"{part} {max(size, 0)}", node_type
        )
    part = enum_name(CollectiveType, kind).lower() if kind != ABSENT else "collective"
    members = members_of.get(rank.groups[group] if group != ABSENT else ALL_RANKS[0])
    ranks = "?" if members is None else len(members)
    work = f"{part} {max(size, 0)} {ranks}"
    return ComparedOperator(WorkClass(COMMUNICATION, part), template.names[row], work, node_type)


def _compute_operator(template: Template, row: int, parents: npt.NDArray[np.int64]) -> ComparedOperator:
    name, kernel = template.names[row], int(template.kernel[row])
    work = template.kernels[kernel] if kernel != ABSENT else ""
    around: list[str] = []
    parent = int(parents[row])
    while parent >= 0 and len(around) < DEEPEST:
        around.append(template.names[parent])
        parent = int(parents[parent])
    return ComparedOperator(
        classify_kernel(name, work, around), name, work, enum_name(NodeType, int(template.type[row]))
    )


def _parents(template: Template) -> npt.NDArray[np.int64]:
    """Return the row of the operator around each node, its first control dependency; -1 if it has none."""
    parents = np.full(template.nodes, -1)
    if not template.is_recorded:
        return parents
    has = np.flatnonzero(np.diff(template.ctrl_start) > 0)
    wanted = template.ctrl_id[template.ctrl_start[has]]
    index = np.minimum(np.searchsorted(template.id, wanted), max(template.nodes - 1, 0))
    present = template.id[index] == wanted
    parents[has[present]] = index[present]
    return parents


def _structure(parts: Sequence[tuple[Template, Sequence[int]]]) -> GraphStructure:
    types: dict[str, int] = {}
    for template, ranks in parts:
        for kind, count in zip(*np.unique(template.type, return_counts=True), strict=True):
            name = enum_name(NodeType, int(kind))
            types[name] = types.get(name, 0) + int(count) * len(ranks)
    streams = [
        np.unique(template.stream[(template.stream != ABSENT) & (template.on_cpu == 0)]) for template, _ in parts
    ]
    return GraphStructure(
        ranks=sum(len(ranks) for _, ranks in parts),
        nodes=sum(template.nodes * len(ranks) for template, ranks in parts),
        host_nodes=sum(int(template.on_cpu.sum()) * len(ranks) for template, ranks in parts),
        data_dependencies=sum(len(template.data_id) * len(ranks) for template, ranks in parts),
        control_dependencies=sum(len(template.ctrl_id) * len(ranks) for template, ranks in parts),
        streams=max(map(len, streams), default=0),
        nodes_by_type=types,
    )


def _order(traces: TraceSet, members: Mapping[str, Sequence[int]]) -> tuple[ComparedOperator, ...]:
    """Return the operators of rank 0 in the order in which they began, or of their ids."""
    if not traces.ranks:
        return ()
    template = traces.ranks[0].template
    rows = device_rows(template)
    rows = rows[np.argsort(np.maximum(template.start_ns[rows], 0), kind="stable")]
    return tuple(_operators(traces.ranks[0], rows.tolist(), members))


ContrastBy = Literal["name", "kernel", "type", "class"]
BYS: tuple[ContrastBy, ...] = ("name", "kernel", "type", "class")
IDLE = {"host_s": "idle: host", "gaps_s": "idle: gaps", "bubble_s": "idle: bubble", "offload_s": "idle: offload"}
OVERLAP = "overlap"
MOST_PAIRS = 4_000_000_000
"""Pairs of operators that are aligned: sequences of up to 63,000 each, which takes seconds."""


@json_keys("difference_s", **{"class": "of"})  # type: ignore[arg-type]  # a word of Python
@dataclass(frozen=True, slots=True)
class ContrastRow:
    """Operators of one name, kernel, type or class."""

    of: str
    """Class of work, such as 'memory operators: norms'; empty by type."""
    name: str
    """Name of the kernel or the node; by type, the type of the nodes; empty where a row has several."""
    work: str
    """What a kernel computes, or the bytes and ranks of a collective; empty where a row has several."""
    a: OperatorAmount
    """How much there is in A."""
    b: OperatorAmount
    """How much there is in B."""

    @property
    def difference_s(self) -> float:
        """Time in B less that in A."""
        return self.b.seconds - self.a.seconds

    @property
    def differs(self) -> bool:
        """Whether anything of it does."""
        return self.a != self.b


@dataclass(frozen=True, slots=True)
class OperatorOrder:
    """How many operators of rank 0 come in the same order on both sides: their longest common subsequence."""

    a: int
    """Operators of A."""
    b: int
    """Operators of B."""
    same: int
    """Those in the same order."""


@json_keys("difference_s")
@dataclass(frozen=True, slots=True)
class PartTimes:
    """One part."""

    a_s: float
    """In A."""
    b_s: float
    """In B."""

    @property
    def difference_s(self) -> float:
        """B less A."""
        return self.b_s - self.a_s


@json_keys("span_difference_s", beside_operators_s="beside_operators_known_s", parts="part_times")
@dataclass(frozen=True, slots=True, kw_only=True)
class TraceContrast:
    """What differs between two sides."""

    a: TraceSide
    """The first side."""
    b: TraceSide
    """The second side."""
    by: ContrastBy
    """What a row is."""
    rows: tuple[ContrastRow, ...]
    """Operators, the largest difference of time first; all of them."""
    parts: dict[str, tuple[float, float]]
    """Seconds of both sides by group of operators, of idle time, and of overlap, which counts negative; these add up to
    the spans."""
    order: OperatorOrder | None
    """How many operators of rank 0 come in the same order: their longest common subsequence; None where a side is a
    design, or has too many."""
    identical: bool
    """Whether every rank has the same nodes and dependencies; of two designs, whether they are the same."""

    @property
    def spans(self) -> tuple[float, float] | None:
        """Both spans; None where one is not known."""
        return None if self.a.span_s is None or self.b.span_s is None else (self.a.span_s, self.b.span_s)

    @property
    def totals(self) -> tuple[float, float]:
        """Both spans, or the sums of all operators where a span is not known."""
        if self.spans is not None:
            return self.spans
        return sum(a for a, _ in self.parts.values()), sum(b for _, b in self.parts.values())

    @property
    def beside_operators_s(self) -> float:
        """The part of the difference that overlap and idle time explain; operators explain the rest."""
        return sum(b - a for name, (a, b) in self.parts.items() if name == OVERLAP or name in IDLE.values())

    @property
    def span_difference_s(self) -> float | None:
        """The span of B less that of A; None where one is not known."""
        return None if self.spans is None else self.spans[1] - self.spans[0]

    @property
    def beside_operators_known_s(self) -> float | None:
        """The part of it that overlap and idle time explain; operators explain the rest."""
        return None if self.spans is None else self.beside_operators_s

    @property
    def part_times(self) -> Mapping[str, PartTimes]:
        """Time by group of operators, kind of idle time, and overlap, which counts negative: together the spans, if known."""
        return {name: PartTimes(a, b) for name, (a, b) in self.parts.items()}

    def only_in(self, side: Literal["a", "b"]) -> list[ContrastRow]:
        """Return the rows that the other side has none of."""
        other = "b" if side == "a" else "a"
        return [row for row in self.rows if getattr(row, side).count and not getattr(row, other).count]


def contrast_sides(
    a: TraceSide, b: TraceSide, by: ContrastBy | None = None, *, identical: bool = False
) -> TraceContrast:
    """Return the contrast of *a* and *b*, with a row for each name, kernel, type or class of operators.

    Without *by*: by class where one of them is a design or was not recorded, else by name.
    """
    kinds = {a.kind, b.kind}
    chosen: ContrastBy = by or ("name" if kinds in ({"recorded"}, {"generated"}) else "class")
    rule = "operators of a design and recorded kernels have different names: compare them by class or kernel"
    require(chosen != "name" or kinds != {"design", "recorded"}, "--by", chosen, rule)
    if not all(map(_knows_works, (a, b))):
        a, b = _without_works(a, b), _without_works(b, a)
    shapes = {**a.shapes, **b.shapes}
    loose = "design" in kinds
    rows: dict[tuple[str, str, str], list[OperatorAmount]] = {}
    for index, side in enumerate((a, b)):
        for operator, amount in side.operators.items():
            amounts = rows.setdefault(_key(operator, chosen, shapes, loose), [OperatorAmount(), OperatorAmount()])
            amounts[index] += amount
    contrasts = [ContrastRow(*key, *amounts) for key, amounts in rows.items()]
    contrasts.sort(key=_row_order)
    designs = "design" in kinds
    return TraceContrast(
        a=a,
        b=b,
        by=chosen,
        rows=tuple(contrasts),
        parts=_parts(a, b),
        order=None if designs else _align_operators(a.order, b.order),
        identical=identical,
    )


def _knows_works(side: TraceSide) -> bool:
    """Return whether the work of any kernel is known: the kernels of a CUDA graph, for one, have none."""
    return side.kind != "recorded" or any(
        operator.work for operator in side.operators if operator.of.group != COMMUNICATION
    )


def _without_works(side: TraceSide, other: TraceSide) -> TraceSide:
    """Return a side whose recorded kernels are known by their names alone.

    Where it knows no works at all, kernels take the class that *other* has for their name, if that is one.
    """
    if side.kind != "recorded":
        return side
    classes: dict[str, set[WorkClass]] = {}
    for named in () if _knows_works(side) else other.operators:
        classes.setdefault(named.name, set()).add(named.of)

    def plain(operator: ComparedOperator) -> ComparedOperator:
        if operator.of.group == COMMUNICATION:
            return operator
        classes_of_name = classes.get(operator.name, set())
        return replace(operator, work="", of=next(iter(classes_of_name)) if len(classes_of_name) == 1 else operator.of)

    amounts: dict[ComparedOperator, OperatorAmount] = {}
    for operator, amount in side.operators.items():
        amounts[plain(operator)] = amounts.get(plain(operator), OperatorAmount()) + amount
    return replace(side, operators=amounts, order=tuple(map(plain, side.order)))


def _row_order(row: ContrastRow) -> tuple[float, float, float, str, str, str]:
    """Return the sort key of a row."""
    a, b = row.a, row.b
    return -abs(row.difference_s), -abs(b.bytes - a.bytes), -abs(b.count - a.count), row.of, row.name, row.work


def _key(operator: ComparedOperator, by: ContrastBy, shapes: dict[str, str], loose: bool) -> tuple[str, str, str]:
    """Return class, name and work of the row that an operator belongs to."""
    group_text = (
        add_gemm_part(operator.of, operator.work, shapes).text if operator.of.group == GEMMS else operator.of.text
    )
    match by:
        case "class":
            return group_text, "", ""
        case "type":
            return "", operator.type, ""
        case "name":
            return group_text, operator.name, operator.work
        case "kernel":
            if loose:
                return (
                    group_text,
                    "",
                    operator.work if operator.of.group == COMMUNICATION else work_shape(operator.work),
                )
            return group_text, "" if operator.work else operator.name, operator.work


def _parts(a: TraceSide, b: TraceSide) -> dict[str, tuple[float, float]]:
    """Return the seconds of both sides by group, the groups in the order in which they are met."""
    parts: dict[str, list[float]] = {}
    for index, side in enumerate((a, b)):
        for operator, amount in side.operators.items():
            parts.setdefault(operator.of.group, [0.0, 0.0])[index] += amount.seconds
    if a.span_s is not None and b.span_s is not None:
        parts[OVERLAP] = [-(a.overlap_s or 0.0), -(b.overlap_s or 0.0)]
        for idle in fields(DeviceIdle):
            parts[IDLE[idle.name]] = [getattr(a.idle, idle.name), getattr(b.idle, idle.name)]
    return {name: (seconds[0], seconds[1]) for name, seconds in parts.items() if any(seconds)}


# ---- alignment


def _align_operators(a: Sequence[ComparedOperator], b: Sequence[ComparedOperator]) -> OperatorOrder | None:
    first, second = ([(operator.name, operator.work) for operator in side] for side in (a, b))
    if len(first) * len(second) > MOST_PAIRS and first != second:
        return None
    return OperatorOrder(len(first), len(second), common_length(first, second))


def common_length(a: Sequence[object], b: Sequence[object]) -> int:
    """Return the length of the longest common subsequence, with a bit for each element of *a*.

    After each element of *b*, the zeros of a word are where the table of dynamic programming grows along *a*: an
    addition carries them to the next match.

    >>> common_length("abcde", "xbad"), common_length("abc", "abc"), common_length("", "abc")
    (2, 3, 0)
    """
    if list(a) == list(b):
        return len(a)
    positions: dict[object, int] = {}
    for index, item in enumerate(a):
        positions[item] = positions.get(item, 0) | 1 << index
    everything = (1 << len(a)) - 1
    ones = everything
    for item in b:
        match = ones & positions.get(item, 0)
        ones = ((ones + match) | (ones - match)) & everything
    return len(a) - ones.bit_count()


# ---- identity


def identical_traces(a: TraceSet, b: TraceSet) -> bool:
    """Return whether every rank of *a* and *b* has the same nodes, dependencies, groups and peers."""
    if len(a.ranks) != len(b.ranks):
        return False
    compared: dict[tuple[int, int], bool] = {}
    return all(_same_rank(first, second, compared) for first, second in zip(a.ranks, b.ranks, strict=True))


def _same_rank(a: RankTrace, b: RankTrace, compared: dict[tuple[int, int], bool]) -> bool:
    key = id(a.template), id(b.template)
    if key not in compared:
        compared[key] = _same_template(a.template, b.template)
    return compared[key] and (a.groups, a.peers) == (b.groups, b.peers)


def _same_template(a: Template, b: Template) -> bool:
    if a is b:
        return True
    numbered = [name for name in COLUMNS if name != "kernel"]
    lists = ("data_start", "data_id", "ctrl_start", "ctrl_id")
    if not all(np.array_equal(getattr(a, name), getattr(b, name)) for name in (*numbered, *lists)):
        return False
    return list(a.names) == list(b.names) and _works(a) == _works(b)


def _works(template: Template) -> list[str]:
    texts: Iterable[int] = template.kernel.tolist()
    return ["" if text < 0 else template.kernels[text] for text in texts]
