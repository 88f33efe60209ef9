"""Statistics of traces: nodes, work and traffic, differences between ranks, and the longest chains of nodes.

Amounts are sums over all ranks, as their nodes state them: an all-reduce of 1 MB among four ranks is four nodes and
4 MB.

Of a recorded trace, also where the time of a rank went (`recorded_statistics`). The device is busy while a kernel, copy or collective runs on any of its streams. It is idle otherwise, for one of two
reasons: the next kernel had not been launched (the rank is launch-bound), or kernels follow each other with a gap.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import require
from cosmic.base.json_types import Count, unit
from cosmic.traces.dependencies import dependencies_of, longest_chains, topological_order
from cosmic.traces.trace import (
    ABSENT,
    ALL_RANKS,
    COMMUNICATION_TYPES,
    CollectiveType,
    Ints,
    NodeType,
    RankTrace,
    Template,
    TraceSet,
    known_groups,
    ranks_by_template,
    template_of,
)
from cosmic.traces.trace_views import enum_name

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RankRange:
    """The minimum and maximum over all ranks."""

    least: Annotated[float, unit("that of the amount")]
    """The least of a rank."""
    most: Annotated[float, unit("that of the amount")]
    """The most of a rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTally:
    """Collectives of one type in groups of one size."""

    collective: str
    """Which collective, such as ALL_REDUCE."""
    group_size: int | None
    """Ranks in the group; None where they are not given."""
    nodes: int
    """Number of nodes."""
    bytes: int
    """Their total payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChain:
    """Nodes of a rank, each of which depends on the one before."""

    rank: int
    """The first rank with such a chain."""
    nodes: int
    """Number of nodes."""
    seconds: float
    """Their time."""
    nodes_by_type: dict[str, int]
    """Nodes, by type."""
    seconds_by_type: dict[str, float]
    """Time, by type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStatistics:
    """Statistics of the traces of a job."""

    ranks: Count
    """Ranks."""
    nodes: Count
    """Nodes of all ranks."""
    templates: Count
    """Ranks that differ in more than their peers and groups."""
    nodes_by_type: Mapping[str, Count]
    """Nodes, by type."""
    collectives: tuple[CollectiveTally, ...]
    """Collectives by type and size of group, the most bytes first."""
    collective_bytes: int
    """Payload of all collectives."""
    sent_bytes: int
    """Bytes sent in messages."""
    received_bytes: int
    """Bytes received in messages."""
    compute_flop: int
    """Floating-point operations."""
    tensor_bytes: int
    """Bytes that compute nodes read and write."""
    duration_s: float
    """Sum of all durations."""
    by_rank: Mapping[str, RankRange]
    """The least and the most of a rank, by name of the amount."""
    longest_chain: NodeChain | None
    """The chain with the most nodes; None where the dependencies have a cycle."""
    critical_path: NodeChain | None
    """The chain that takes longest; None where the dependencies have a cycle."""  # each node as soon as it can run


def summarize_traces(
    traces: TraceSet,
    groups: Mapping[str, Sequence[int]] | None = None,
    flop_per_s: float | None = None,
    bytes_per_s: float | None = None,
) -> TraceStatistics:
    """Return the statistics of *traces*; with rates, compute nodes take the time of `node_seconds`."""
    parts = ranks_by_template(traces)
    amounts = [(_amounts(template), len(ranks)) for template, ranks in parts]
    names = _amounts(template_of([]))
    types: Counter[str] = Counter()
    for template, ranks in parts:
        types.update({name: count * len(ranks) for name, count in _by_type(template.type).items()})
    chains = [
        chains
        for template, ranks in parts
        if (chains := _chains(template, ranks[0], node_seconds(template, flop_per_s, bytes_per_s)))
    ]
    return TraceStatistics(
        ranks=len(traces.ranks),
        templates=len(parts),
        nodes_by_type=dict(types),
        collectives=tuple(_collectives(traces, known_groups(traces, groups))),
        by_rank={name: _range([amount[name] for amount, _ in amounts]) for name in names},
        longest_chain=max((longest for longest, _ in chains), key=lambda chain: chain.nodes, default=None),
        critical_path=max(
            (critical for _, critical in chains), key=lambda chain: (chain.seconds, chain.nodes), default=None
        ),
        **{name: sum(amount[name] * ranks for amount, ranks in amounts) for name in names},
    )


def node_seconds(template: Template, flop_per_s: float | None = None, bytes_per_s: float | None = None) -> Seconds:
    """Return the seconds of each node: its recorded duration or, with rates, a compute node's roofline time.

        t = max(w / F, m / B)

    w  operations (`num_ops`)            F  *flop_per_s*, if given
    m  bytes of tensors (`tensor_size`)  B  *bytes_per_s*, if given

    >>> template = template_of([{"id": 0, "type": NodeType.COMP, "num_ops": 600, "tensor_size": 8, "duration_us": 7}])
    >>> node_seconds(template).tolist(), node_seconds(template, flop_per_s=100.0, bytes_per_s=1.0).tolist()
    ([7e-06], [8.0])
    """
    seconds = template.duration_us / 1e6
    states = np.zeros(template.nodes, bool)
    roofline = np.zeros(template.nodes)
    rates = {"flop_per_s": (template.num_ops, flop_per_s), "bytes_per_s": (template.tensor_size, bytes_per_s)}
    for name, (amount, rate) in rates.items():
        if rate is not None:
            require(rate > 0, name, rate, "must be positive")
            states |= amount != ABSENT
            roofline = np.maximum(roofline, amount / rate)
    return np.where(states & (template.type == NodeType.COMP), roofline, seconds)


def _amounts(template: Template) -> dict[str, Any]:
    """Return the amounts of one rank, by their names in `TraceStatistics`."""
    kind = template.type
    return {
        "nodes": template.nodes,
        "collective_bytes": _sum(template.comm_size[kind == NodeType.COMM_COLL]),
        "sent_bytes": _sum(template.comm_size[kind == NodeType.COMM_SEND]),
        "received_bytes": _sum(template.comm_size[kind == NodeType.COMM_RECV]),
        "compute_flop": _sum(template.num_ops),
        "tensor_bytes": _sum(template.tensor_size),
        "duration_s": _sum(template.duration_us) / 1e6,
    }


def _sum(values: Ints) -> int:
    """Return the exact sum of the *values* that are stated; sums of work can exceed 64 bits."""
    stated = np.maximum(values, 0)
    return (int((stated >> 32).sum()) << 32) + int((stated & 0xFFFFFFFF).sum())


def _range(values: Sequence[float]) -> RankRange:
    return RankRange(min(values, default=0), max(values, default=0))


def _by_type(types: Ints) -> dict[str, int]:
    numbers, counts = np.unique(types, return_counts=True)
    return {enum_name(NodeType, number): count for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)}


def _collectives(traces: TraceSet, members_of: Mapping[str, Sequence[int]]) -> list[CollectiveTally]:
    """Return the collectives of all ranks by type and group size, the most bytes first."""
    nodes: Counter[tuple[int, int | None]] = Counter()
    moved: Counter[tuple[int, int | None]] = Counter()
    for template, ranks in ranks_by_template(traces):
        tallies = list(_tallies(template))
        for rank in ranks:
            for group, kind, count, size in tallies:
                members = members_of.get(traces.ranks[rank].groups[group] if group != ABSENT else ALL_RANKS[0])
                key = kind, (None if members is None else len(members))
                nodes[key] += count
                moved[key] += size
    return [
        CollectiveTally(collective=enum_name(CollectiveType, key[0]), group_size=key[1], nodes=nodes[key], bytes=size)
        for key, size in moved.most_common()
    ]


def _tallies(template: Template) -> Iterator[tuple[int, int, int, int]]:
    """Yield the collectives of each group and type: index of the group, type, number, bytes."""
    rows = np.flatnonzero(template.type == NodeType.COMM_COLL)
    rows = rows[np.lexsort((template.comm_type[rows], template.group[rows]))]
    group, kind = template.group[rows], template.comm_type[rows]
    starts = np.flatnonzero((np.diff(group) != 0) | (np.diff(kind) != 0)) + 1
    for part in np.split(rows, starts) if len(rows) else ():
        yield int(template.group[part[0]]), int(template.comm_type[part[0]]), len(part), _sum(template.comm_size[part])


def _chains(template: Template, rank: int, seconds: Seconds) -> tuple[NodeChain, NodeChain] | None:
    """Return the chains of most nodes and of most seconds, unless there is a cycle."""
    dependencies = dependencies_of(template).within()
    order = topological_order(dependencies)
    if len(order) < template.nodes:
        return None
    weights = [np.ones(template.nodes), seconds] if seconds.any() else [np.ones(template.nodes)]
    chains = [_chain(template, rank, rows, seconds) for rows in longest_chains(dependencies, order, weights)]
    return chains[0], chains[-1]


def _chain(template: Template, rank: int, rows: Ints, seconds: Seconds) -> NodeChain:
    types = template.type[rows]
    times = {enum_name(NodeType, kind): float(seconds[rows[types == kind]].sum()) for kind in np.unique(types).tolist()}
    return NodeChain(
        rank=rank,
        nodes=len(rows),
        seconds=float(seconds[rows].sum()),
        nodes_by_type=_by_type(types),
        seconds_by_type=times,
    )


COLLECTIVES, COPIES = "collectives", "copies and fills"
CLASSES = (
    ("attention", re.compile(r"flash|fmha|sdpa|attention|dot_do_o|convert_dq", re.IGNORECASE)),
    ("optimizer", re.compile(r"multi_tensor_apply|adam|sgd", re.IGNORECASE)),
    ("convolutions", re.compile(r"implicit|fprop|dgrad|wgrad|conv|winograd", re.IGNORECASE)),
    ("GEMMs", re.compile(r"gemm|nvjet|xmma|cutlass|cublas|Cijk_|_mm_|matmul|wgmma", re.IGNORECASE)),
    (COPIES, re.compile(r"^(memcpy|memset)|copyhosttodevice|copydevicetohost|fillbuffer", re.IGNORECASE)),
)
"""Classes of kernels by what their names contain; all others stream through memory."""
STREAMED = "memory operators"
KINDS = {"gemm": "GEMMs", "grouped_gemm": "GEMMs", "convolution": "convolutions", "memset": COPIES}
MOST_KERNELS = 20
SECOND = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassTime:
    """The kernels of one class."""

    name: str
    """Its name, such as GEMMs."""
    kernels: int
    """Kernels of the class."""
    seconds: float
    """Their time."""
    flop_per_s: float | None
    """While they run; None where their work is not known, or they do not compute."""
    bytes_per_s: float | None
    """Bytes over that time; null where the work is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """All runs of one kernel."""

    name: str
    """Its name."""
    kind: str
    """Its class."""
    runs: int
    """How often it ran."""
    seconds: float
    """Their time."""
    flop_per_s: float | None
    """Operations over that time; null where the work is not known."""
    bytes_per_s: float | None
    """Bytes over that time; null where the work is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Where the time of a recorded rank went."""

    rank: int
    """The rank."""
    span_s: float
    """From its first start to its last end."""
    kernels: int
    """Without copies, fills and collectives."""
    kernel_s: float
    """Their sum."""
    streams: int
    """Streams of the device."""
    busy_s: float
    """Time in which something runs on the device."""
    launch_bound_s: float
    """Device idle, as the next kernel had not been launched."""
    gaps_s: float
    """Device idle between kernels that had been launched, and before the first and after the last."""
    communication_s: float
    """Time of communication."""
    overlapped_s: float
    """Communication beside compute."""
    exposed_s: float
    """Time of communication without compute."""
    host_s: float
    """Time in which any thread is in an operator or a call, without waits."""
    flop_per_s: float | None
    """Over the span; of kernels whose work is known."""
    bytes_per_s: float | None
    """Bytes over the span, likewise."""
    classes: tuple[ClassTime, ...]
    """The longest first."""
    top: tuple[KernelTime, ...]
    """The kernels that take most, at most `MOST_KERNELS`."""


def coarse_kernel_class(work: str, name: str) -> str:
    """Return the class of a kernel, by its work if that is known, else by its name.

    >>> coarse_kernel_class("gemm bf16 1 64 64 64", "nvjet_sm90"), coarse_kernel_class("", "flash_fwd_kernel"), coarse_kernel_class("", "vectorized_add")
    ('GEMMs', 'attention', 'memory operators')
    """
    kind, _, rest = work.partition(" ")
    if kind.startswith("attention"):
        return "attention"
    if kind.startswith("copy_") or kind in KINDS:
        return KINDS.get(kind, COPIES)
    if kind == "stream" and rest.split(" ")[1:2] != ["optimizer"]:
        return next((kernel_class for kernel_class, pattern in CLASSES[:1] if pattern.search(name)), STREAMED)
    if kind == "stream":
        return "optimizer"
    return next((kernel_class for kernel_class, pattern in CLASSES if pattern.search(name)), STREAMED)


def coarse_node_classes(template: Template) -> list[str]:
    """Return the class of each node; empty for nodes of the host."""
    class_of: dict[tuple[int, str], str] = {}
    classes = []
    communicates = np.isin(template.type, COMMUNICATION_TYPES)
    columns = (template.on_cpu.tolist(), communicates.tolist(), template.kernel.tolist(), template.names)
    for on_cpu, communication, kernel, name in zip(*columns, strict=True):
        if communication:
            classes.append(COLLECTIVES)
        elif on_cpu:
            classes.append("")
        else:
            key = kernel, name
            if key not in class_of:
                class_of[key] = coarse_kernel_class(template.kernels[kernel] if kernel != ABSENT else "", name)
            classes.append(class_of[key])
    return classes


def recorded_statistics(trace: RankTrace, rank: int = 0) -> Recorded | None:
    """Return where the time of a rank went; None if it was not recorded."""
    template = trace.template
    if not template.is_recorded:
        return None
    start, end = template.start_ns, template.start_ns + np.maximum(template.duration_ns, 0)
    communicates = np.isin(template.type, COMMUNICATION_TYPES)
    device = (template.on_cpu == 0) & (template.type != NodeType.METADATA)
    computes = device & ~communicates
    classes = np.array(coarse_node_classes(template), dtype=object)
    span = int(end.max() - start.min())
    busy, compute = union_length(start[device], end[device]), union_length(start[computes], end[computes])
    communication = union_length(start[communicates], end[communicates])
    launch_bound = _launch_bound(template, device, start, end)
    is_kernel = computes & (classes != COPIES)
    kernel_ns = (end - start)[is_kernel].sum()
    return Recorded(
        rank=rank,
        span_s=span / SECOND,
        kernels=int(is_kernel.sum()),
        kernel_s=float(kernel_ns) / SECOND,
        streams=len(np.unique(template.stream[device])),
        busy_s=busy / SECOND,
        launch_bound_s=launch_bound / SECOND,
        gaps_s=(span - busy - launch_bound) / SECOND,
        communication_s=communication / SECOND,
        overlapped_s=(communication + compute - busy) / SECOND,
        exposed_s=(busy - compute) / SECOND,
        host_s=union_length(start[~device], end[~device]) / SECOND,
        flop_per_s=_rate(template.num_ops[is_kernel], span),
        bytes_per_s=_rate(template.tensor_size[computes], span),
        classes=tuple(_class_times(template, classes, device, end - start)),
        top=tuple(_kernel_times(template, classes, device, end - start)),
    )


def union_length(start: Ints, end: Ints) -> int:
    """Return the length of the union of intervals.

    >>> union_length(np.array([0, 2, 10]), np.array([4, 6, 11]))
    7
    """
    if not len(start):
        return 0
    order = np.argsort(start, kind="stable")
    starts, ends = start[order], np.maximum.accumulate(end[order])
    reached = np.concatenate([starts[:1], ends[:-1]])
    return int((ends - np.maximum(starts, reached)).clip(0).sum())


def _launch_bound(template: Template, device: npt.NDArray[np.bool_], start: Ints, end: Ints) -> int:
    """Return for how long the device was idle because the next kernel had not been launched.

    It is idle from the end of all kernels before until the host is done with what the next one waits for.
    """
    rows = np.flatnonzero(device)
    if not len(rows):
        return 0
    rows = rows[np.argsort(start[rows], kind="stable")]
    done = np.concatenate([[int(start.min())], np.maximum.accumulate(end[rows])[:-1]])
    gap = np.maximum(start[rows] - done, 0)
    dependencies = dependencies_of(template).within()
    by_host = np.zeros(template.nodes, np.int64)
    from_host = template.on_cpu[dependencies.row] > 0
    np.maximum.at(by_host, dependencies.dependent[from_host], end[dependencies.row[from_host]])
    return int(np.minimum(gap, np.maximum(by_host[rows] - done, 0)).sum())


def _rate(amounts: Ints, nanoseconds: int) -> float | None:
    total = float(np.maximum(amounts, 0).astype(np.float64).sum())
    return total / (nanoseconds / SECOND) if total > 0 and nanoseconds > 0 else None


def _class_times(
    template: Template, classes: npt.NDArray[np.object_], device: npt.NDArray[np.bool_], durations: Ints
) -> Iterator[ClassTime]:
    times = []
    for name in sorted(set(classes[device].tolist())):
        rows = np.flatnonzero(device & (classes == name))
        seconds = int(durations[rows].sum())
        rates = _rates(template, rows, seconds, name)
        times.append(
            ClassTime(name=name, kernels=len(rows), seconds=seconds / SECOND, flop_per_s=rates[0], bytes_per_s=rates[1])
        )
    yield from sorted(times, key=lambda time: -time.seconds)


def _kernel_times(
    template: Template, classes: npt.NDArray[np.object_], device: npt.NDArray[np.bool_], durations: Ints
) -> Iterator[KernelTime]:
    by_name: dict[str, list[int]] = {}
    for row in np.flatnonzero(device).tolist():
        by_name.setdefault(template.names[row], []).append(row)
    longest = sorted(by_name.items(), key=lambda item: -int(durations[item[1]].sum()))[:MOST_KERNELS]
    for name, rows in longest:
        seconds, kind = int(durations[rows].sum()), str(classes[rows[0]])
        rates = _rates(template, np.array(rows), seconds, kind)
        yield KernelTime(
            name=name, kind=kind, runs=len(rows), seconds=seconds / SECOND, flop_per_s=rates[0], bytes_per_s=rates[1]
        )


def _rates(template: Template, rows: Ints, nanoseconds: int, kind: str) -> tuple[float | None, float | None]:
    """Return operations and bytes a second of kernels; None if the work of some of them is not known."""
    if kind == COLLECTIVES:
        return None, _rate(template.comm_size[rows], nanoseconds)
    all_known = (template.tensor_size[rows] != ABSENT).all()
    if not all_known:
        return None, None
    return _rate(template.num_ops[rows], nanoseconds), _rate(template.tensor_size[rows], nanoseconds)
