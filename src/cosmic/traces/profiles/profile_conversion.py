"""Convert the profiles of a job's ranks to Chakra traces: read this first.

files ──▶ Kineto, execution trace ──▶ communications ──▶ linked nodes ──▶ kernels' works ──▶ one template a rank

`sort_inputs` tells what files are (execution traces, Kineto traces, graphs in JSON, text workloads), and which go
together.

An execution trace without a Kineto trace says what was called, in which order and with which tensors, not when. An operator that touches a
tensor on a device launches one kernel, unless it only makes a view, or an operator that it calls launches one. Where
all tensors are on the CPU, operators are taken as if they were on the device. The host takes what a launch takes; a
kernel starts after its launch and the kernel before it, and takes what `kernel_cost_model` predicts. The result is a
Kineto trace like a recorded one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import numpy as np

from cosmic.base.errors import SpecError, require
from cosmic.base.event_clock import without_garbage_collection
from cosmic.base.files import DASH
from cosmic.design.design_point import DesignPoint
from cosmic.step.kernel_prices import KernelWork, kernel_seconds
from cosmic.traces.profiles.event_linking import (
    DEVICE,
    EXCHANGE,
    HOST,
    LinkedEvents,
    Nesting,
    began_order,
    link_events,
    nesting_of,
)
from cosmic.traces.profiles.execution_traces import (
    ExecutionTrace,
    check_pair,
    operators_of_run,
    parse_side,
    read_execution_trace,
)
from cosmic.traces.profiles.integer_sets import is_in, sorted_distinct
from cosmic.traces.profiles.json_stream import read_blocks
from cosmic.traces.profiles.kineto import (
    ANNOTATION,
    CALL,
    LAUNCHED,
    OPERATOR,
    Device,
    Host,
    Kineto,
    ProfilerStep,
    profiler_steps,
    read_kineto,
    step_window,
)
from cosmic.traces.profiles.kineto import MARK as STEP
from cosmic.traces.profiles.operator_kernels import operator_works, works_of_kernels
from cosmic.traces.profiles.profiled_collectives import OPERATOR as COMMUNICATES
from cosmic.traces.profiles.profiled_collectives import Communication, find_communications, kind_of_operator
from cosmic.traces.profiles.profiled_operators import ProfiledOperator, ProfiledTensor, operator_of_execution_trace
from cosmic.traces.profiles.rank_matching import (
    Grouping,
    clock_offsets,
    complete_communications,
    same_collectives,
    settle_messages,
    tag_collectives,
)
from cosmic.traces.profiles.trace_projection import retime_rank
from cosmic.traces.replay import replay_traces
from cosmic.traces.trace import ABSENT, COLUMNS, MISSING, Ints, NodeType, RankTrace, Template, TraceSet

MICRO, MILLI = 1000, 1_000_000
"""Nanoseconds."""
MOST_AMOUNT = 2**62
MUCH_LONGER = 1.03
"""By so much a job may take longer than its longest rank before that is worth a sentence."""
SHOWN = 4
USUAL = "h100"
"""What execution traces without times are predicted for, where no accelerator is named."""


@dataclass(frozen=True, slots=True)
class RankProfile:
    """The files of one rank; either may be absent."""

    kineto: str | None = None
    execution_trace: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ConvertedProfiles:
    """A job's traces."""

    traces: TraceSet
    groups: dict[str, tuple[int, ...]]
    metadata: tuple[dict[str, str], ...]
    """What each rank's file says of its origin: device, steps ..."""
    notes: tuple[str, ...]
    kernels: int
    """Kernels on devices, of all ranks, without copies and fills."""
    described: int
    """Of these, kernels whose work is known."""


@dataclass(slots=True)
class _Rank:
    """What is known of one rank."""

    kineto: Kineto
    linked: LinkedEvents
    communications: list[Communication]
    works: dict[int, str]
    """What kernels compute, by their entries in `Kineto.device`."""
    steps: list[ProfilerStep]
    predicted: bool = False
    """Whether times are predictions."""
    offset_ns: int = 0
    notes: list[str] = field(default_factory=list)


def convert_profiles(
    profiles: Sequence[RankProfile], step: int | None = None, accelerator: str | None = None, where: str = "trace"
) -> ConvertedProfiles:
    """Return the traces of a job: of all steps that were recorded, or of the one with the number *step*.

    Without a Kineto trace, kernels take what they are predicted to take on *accelerator*.
    """
    require(bool(profiles), "profiles", 0, "there are none")
    try:
        with without_garbage_collection():
            return _convert_ranks(profiles, step, accelerator, where)
    except RecursionError:
        raise SpecError("profiles", len(profiles), "shapes or values are nested too deeply in them") from None


def _convert_ranks(
    profiles: Sequence[RankProfile], step: int | None, accelerator: str | None, where: str
) -> ConvertedProfiles:
    predicts = any(profile.kineto is None for profile in profiles)
    require(predicts or not accelerator, "--accelerator", accelerator, "is for execution traces without a Kineto trace")
    ranks = [_read_rank(profile, step, accelerator) for profile in profiles]
    numbers, notes = _rank_numbers([rank.kineto for rank in ranks])
    ranks = [ranks[numbers.index(rank)] for rank in sorted(numbers)]
    notes += [note for rank in ranks for note in rank.notes]
    # Which communications of several ranks are the same comes first: sizes, peers and clocks follow from it.
    calls = settle_messages([rank.communications for rank in ranks])
    grouping = Grouping([rank.kineto for rank in ranks], calls)
    same, unknown = same_collectives(calls, grouping, [rank.kineto.base_ns for rank in ranks])
    notes += grouping.notes + unknown
    for rank, communication in zip(ranks, complete_communications(calls, same, grouping), strict=True):
        rank.communications = communication
    for rank, offset in zip(ranks, clock_offsets(ranks, same), strict=True):
        rank.offset_ns = offset
    notes += _note_late_ranks(ranks)
    traces = tuple(_rank_trace(rank, number, grouping) for number, rank in enumerate(ranks))
    tag_collectives(traces, same)
    if any(rank.linked.lag for rank in ranks):
        times = replay_traces(TraceSet(traces, where), grouping.groups)
        traces = tuple(retime_rank(rank, times, number) for number, rank in enumerate(traces))
    counted = [_count_kernels(rank) for rank in ranks]
    return ConvertedProfiles(
        traces=TraceSet(traces, where),
        groups=grouping.groups,
        metadata=tuple(_metadata(rank, grouping.world_size) for rank in ranks),
        notes=tuple(dict.fromkeys(notes)),
        kernels=sum(kernels for kernels, _ in counted),
        described=sum(described for _, described in counted),
    )


def _read_rank(profile: RankProfile, step: int | None, accelerator: str | None) -> _Rank:
    """Return a rank read from its files."""
    details: ExecutionTrace | None
    if profile.kineto is None:
        kineto, details, notes = _predict_rank(profile.execution_trace or "", accelerator or USUAL)
        nesting = nesting_of(kineto.host)
    else:
        kineto = read_kineto(profile.kineto)
        nesting = nesting_of(kineto.host)
        details, notes = _details(profile, kineto, nesting)
    rule = "there are no events of a host or a device in it"
    require(len(kineto.host.name) + len(kineto.device.name) > 0, kineto.where, 0, rule)
    recorded_steps = profiler_steps(kineto)
    window = step_window(recorded_steps, step, kineto.where)
    calls = find_communications(kineto, details)
    linked = link_events(kineto, calls, window, nesting)
    works = works_of_kernels(kineto, linked, details)
    selected = (
        recorded_steps
        if step is None
        else [marked_step for marked_step in recorded_steps if marked_step.number == step]
    )
    notes += _processes(kineto)
    return _Rank(kineto, linked, calls, works, selected, profile.kineto is None, notes=notes)


def _processes(kineto: Kineto) -> list[str]:
    """Return a note if operators are of several processes, as in a file of several ranks."""
    host = kineto.host
    used = sorted_distinct(host.thread[host.category == OPERATOR]).tolist()
    processes = sorted({kineto.threads[thread][0] for thread in used})
    if len(processes) <= 1:
        return []
    listed = ", ".join(processes[:SHOWN])
    return [f"{kineto.where}: operators are of processes {listed}, taken as one rank: give a file for each rank"]


def _predict_rank(path: str, accelerator: str) -> tuple[Kineto, ExecutionTrace, list[str]]:
    """Return an execution trace as it would run on an accelerator."""
    # Machines come with the catalog, topologies and cost models, which no conversion of measured times needs.
    from cosmic.traces.profiles.trace_projection import machine_named  # noqa: PLC0415

    details = read_execution_trace(path)
    # Only execution traces without a Kineto trace need the cost model, and with it the packages of designs and steps.

    machine = machine_named(accelerator, 1)
    predicted = predict_profile(details, machine.point)
    kineto = predicted.kineto
    kineto.device_name = machine.point.compute.accelerator
    where, name = details.where, kineto.device_name
    notes = [f"{where}: there is no Kineto trace: times are predicted, for {name}"]
    if predicted.moved:
        notes.append(f"{where}: it ran on a CPU: each of its operators is taken as a kernel of {name}")
    if predicted.unknown:
        notes.append(f"{where}: the work of {predicted.unknown} operators is not known: they take no time")
    return kineto, details, notes


def _details(profile: RankProfile, kineto: Kineto, nesting: Nesting) -> tuple[ExecutionTrace | None, list[str]]:
    """Return the execution trace of a rank, its operators linked to those of Kineto by function."""
    if profile.execution_trace is None:
        return None, []
    if (kineto.host.function > 0).any():
        # Only operators that launch something: those around a call with a correlation
        host, device = kineto.host, kineto.device
        around = nesting.around[(host.correlation >= 0) & is_in(host.correlation, sorted_distinct(device.correlation))]
        functions = sorted_distinct(host.function[around[around >= 0]])
        wanted = functions[functions > 0]
        trace = read_execution_trace(profile.execution_trace, wanted)
        check_pair(kineto, trace, len(wanted))
        return trace, []
    trace = read_execution_trace(profile.execution_trace)
    return operators_of_run(kineto, trace)


def _rank_numbers(traces: Sequence[Kineto]) -> tuple[list[int], list[str]]:
    """Return the rank of each trace: as the trace states it, or its index among the files."""
    recorded = [trace.rank for trace in traces]
    if len(traces) == 1:
        size = traces[0].world_size or 1
        alone = f"{traces[0].where}: one rank of {size}: replayed as it was recorded, with its waits for the others"
        return [0], [alone] if size > 1 else []
    if any(rank is None for rank in recorded):
        return list(range(len(traces))), []
    numbers = [rank for rank in recorded if rank is not None]
    for index, rank in enumerate(numbers):
        if rank in numbers[:index]:
            raise SpecError(
                f"{traces[index].where}: rank", rank, f"{traces[numbers.index(rank)].where} is of this rank, too"
            )
    missing = sorted(set(range(len(numbers))) - set(numbers))
    if missing:
        raise SpecError("ranks", sorted(numbers), f"rank {missing[0]} is missing: give ranks from 0 on, or one alone")
    world = traces[0].world_size
    some = world is not None and world > len(traces)
    return numbers, [f"ranks 0 to {len(traces) - 1} of {world}: waits for the others stay as recorded"] if some else []


def _note_late_ranks(ranks: Sequence[_Rank]) -> list[str]:
    """Return a note where ranks began so far apart that the job takes longer than each of them."""
    spans = [
        (int(rank.linked.start.min()) + rank.offset_ns, int(rank.linked.end.max()) + rank.offset_ns)
        for rank in ranks
        if len(rank.linked.start)
    ]
    if len(spans) < 2:
        return []
    longest = max(end - begin for begin, end in spans)
    span_ns = max(end for _, end in spans) - min(begin for begin, _ in spans)
    if span_ns <= MUCH_LONGER * longest:
        return []
    apart = max(begin for begin, _ in spans) - min(begin for begin, _ in spans)
    lengths = f"the longest takes {longest / MILLI:.3g} ms, all of them {span_ns / MILLI:.3g} ms"
    return [f"ranks began up to {apart / MILLI:.3g} ms apart: {lengths} from the first start to the last end"]


def _count_kernels(rank: _Rank) -> tuple[int, int]:
    """Return how many kernels a rank has, and how many of them have a known work."""
    linked, device = rank.linked, rank.kineto.device
    entries = linked.entry[linked.kind == DEVICE]
    exchanged = np.array(
        [communication.kernel for communication in rank.communications if communication.kernel is not None], np.int64
    )
    entries = entries[(device.category[entries] == 0) & ~is_in(entries, sorted_distinct(exchanged))]
    described = np.fromiter(rank.works, np.int64, len(rank.works))
    return len(entries), int(is_in(entries, sorted_distinct(described)).sum())


def _metadata(rank: _Rank, world_size: int) -> dict[str, str]:
    metadata = {"recorded_with": "prediction" if rank.predicted else "kineto", "world_size": str(world_size)}
    if rank.kineto.device_name:
        metadata["device"] = rank.kineto.device_name
    if rank.steps:
        metadata["step_ns"] = ",".join(str(step.end - step.start) for step in rank.steps)
    return metadata


# ---- one rank


def _rank_trace(rank: _Rank, number: int, grouping: Grouping) -> RankTrace:
    """Return the trace of one rank: nodes in the order in which they began."""
    linked = rank.linked
    child = np.flatnonzero(linked.parent >= 0)
    node, wait = np.append(linked.node, child), np.append(linked.wait, linked.parent[child])
    order = began_order(node, wait, linked.start, linked.end)
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    # Microseconds are rounded so that their sums do not drift.
    nodes = rank.linked
    start, end = nodes.start[order] + rank.offset_ns, nodes.end[order] + rank.offset_ns
    waits = nodes.parent >= 0
    waits[nodes.node] = True
    delay = nodes.delay[order]
    delay[~waits[order]] += rank.offset_ns
    rounded = (end + MICRO // 2) // MICRO - (start + MICRO // 2) // MICRO
    columns = {
        "start_ns": start,
        "duration_ns": end - start,
        "delay_ns": delay,
        "duration_us": rounded,
    } | _type_columns(rank, order)
    columns["id"] = np.arange(len(order))
    columns["data_start"], columns["data_id"] = _dependency_columns(
        position[linked.node], position[linked.wait], len(order)
    )
    parents = linked.parent[order]
    columns["ctrl_start"] = np.concatenate([[0], np.cumsum(parents >= 0)])
    columns["ctrl_id"] = position[parents[parents >= 0]]
    event_nodes, kineto = rank.linked, rank.kineto
    texts = [*kineto.names, *(communication.name for communication in rank.communications)]
    kind, entry = event_nodes.kind, event_nodes.entry
    text_of = entry + len(kineto.names)  # of collectives without a kernel
    text_of[kind == HOST] = kineto.host.name[entry[kind == HOST]]
    text_of[kind == DEVICE] = kineto.device.name[entry[kind == DEVICE]]
    names = list(map(texts.__getitem__, text_of[order].tolist()))
    # What kernels compute, their operations and bytes, where they are known
    from cosmic.step.kernel_prices import parse_work  # noqa: PLC0415  not needed without works

    kernels = list(dict.fromkeys(rank.works.values()))
    code = {text: index for index, text in enumerate(kernels)}
    work = np.full(len(rank.kineto.device.name), ABSENT, np.int64)
    entries = np.fromiter(rank.works, np.int64, len(rank.works))
    work[entries] = np.fromiter(map(code.__getitem__, rank.works.values()), np.int64, len(entries))
    rows = np.flatnonzero(rank.linked.kind[order] == DEVICE)
    work_of_row = work[rank.linked.entry[order[rows]]]
    rows, work_of_row = rows[work_of_row >= 0], work_of_row[work_of_row >= 0]
    works = [parse_work(text) for text in kernels]
    columns["kernel"][rows] = work_of_row
    # Of kernels that stream, none: operations are those of the model.
    operations = [
        0 if work_of_kernel.kind == "stream" else _bound_amount(work_of_kernel.flop) for work_of_kernel in works
    ]
    columns["num_ops"][rows] = np.array(operations, np.int64)[work_of_row]
    columns["tensor_size"][rows] = np.array(
        [_bound_amount(work_of_kernel.bytes) for work_of_kernel in works], np.int64
    )[work_of_row]
    groups, peers = _communicate(rank, number, grouping, position, columns)
    template = Template(**columns, names=names, kernels=kernels, process_groups={})
    return RankTrace(template, groups, peers, number if peers else None)


def _type_columns(rank: _Rank, order: Ints) -> dict[str, Ints]:
    """Return the other columns, without those of communication."""
    linked, kineto = rank.linked, rank.kineto
    count = len(order)
    columns = {
        name: np.full(count, MISSING[name], np.int64)
        for name in COLUMNS
        if name not in ("id", "start_ns", "duration_ns", "delay_ns", "duration_us")
    }
    kind, entry = linked.kind[order], linked.entry[order]
    columns["type"][:] = int(NodeType.COMP)
    columns["on_cpu"] = (kind == HOST).astype(np.int64)
    threads, streams = kineto.host.thread, kineto.device.stream
    columns["stream"][kind == HOST] = threads[entry[kind == HOST]]
    columns["stream"][kind == DEVICE] = streams[entry[kind == DEVICE]]
    columns["stream"][kind == EXCHANGE] = int(streams.max(initial=-1)) + 1  # as if they had a stream of their own
    sizes = kineto.device.bytes
    columns["tensor_size"][kind == DEVICE] = np.maximum(sizes[entry[kind == DEVICE]], ABSENT)
    return columns


def _bound_amount(amount: float) -> int:
    return min(round(amount), MOST_AMOUNT)


def _dependency_columns(node: Ints, wait: Ints, count: int) -> tuple[Ints, Ints]:
    """Return dependencies as columns, ids ascending within a node."""
    start = np.concatenate([[0], np.cumsum(np.bincount(node, minlength=count))])
    return start, wait[np.lexsort((wait, node))]


def _communicate(
    rank: _Rank, number: int, grouping: Grouping, position: Ints, columns: Mapping[str, Ints]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Set the columns of communication; return the groups and peers that the rank names."""
    linked = rank.linked
    apart = linked.kind != HOST
    keys = zip(linked.kind[apart].tolist(), linked.entry[apart].tolist(), strict=True)
    node_of = dict(zip(keys, np.flatnonzero(apart).tolist(), strict=True)) if rank.communications else {}
    groups: dict[str, int] = {}
    peers: dict[int, int] = {}
    for index, communication in enumerate(rank.communications):
        node = node_of.get((EXCHANGE, index) if communication.kernel is None else (DEVICE, communication.kernel))
        if node is None:
            continue
        row = position[node]
        columns["type"][row] = int(communication.node_type)
        columns["comm_size"][row] = communication.size if communication.size >= 0 else ABSENT
        columns["tensor_size"][row] = ABSENT
        group = grouping.name_of(number, index)
        if communication.kind is not None:
            columns["comm_type"][row] = int(communication.kind)
            columns["comm_tag"][row] = index  # until it is known which are the same on other ranks
            if group:
                columns["group"][row] = groups.setdefault(group, len(groups))
        else:
            columns["comm_tag"][row] = communication.tag
            if communication.peer is not None and communication.peer != number:
                columns["peer"][row] = peers.setdefault(communication.peer, len(peers))
    return tuple(groups), tuple(peers)


NO_INPUTS = {
    b"ustar": "is a tar archive: unpack it first",
    b"\n\x051.0.0": "is a Chakra trace already: check, repair or simulate it",
    b"\n\x06schema": "is a Chakra trace already: check, repair or simulate it",
}
"""What others files begin with, and what to do with them."""
START_BYTES = 512
"""Of a file: where such a sign is."""
MARKS = {"traceEvents": "kineto", "nodes": "execution trace", "workload_graph": "graph"}
"""The key of each kind's long array."""


class InputKind(Enum):
    """What is converted."""

    PROFILES = "profiles"
    GRAPH = "graph"
    TEXT = "text"


def sort_inputs(files: Sequence[str]) -> tuple[InputKind, list[RankProfile]]:
    """Return the kind of the input *files* and, of profiles, the files of each rank in the order given."""
    for index, file in enumerate(files):
        require(file != DASH, "file", file, "is standard input: give a file, as it is read more than once")
        require(not _is_among(file, files[:index]), "file", file, "is given twice: each rank has files of its own")
    kinds = [kind_of_file(file) for file in files]
    if "text" in kinds:
        require(len(files) == 1, "file", files[kinds.index("text")], "is no JSON; a text workload is converted alone")
        return InputKind.TEXT, []
    if "graph" in kinds:
        unlike = [file for file, kind in zip(files, kinds, strict=True) if kind != "graph"]
        require(not unlike, "file", unlike[:1] and unlike[0], "is no graph of Chakra in JSON, as the others are")
        return InputKind.GRAPH, []
    kineto = [file for file, kind in zip(files, kinds, strict=True) if kind == "kineto"]
    execution = [file for file, kind in zip(files, kinds, strict=True) if kind == "execution trace"]
    if kineto and execution:
        rule = f"{len(execution)} execution traces and {len(kineto)} Kineto traces: give one of each for every rank"
        require(len(kineto) == len(execution), "files", len(files), rule)
        return InputKind.PROFILES, [RankProfile(*pair) for pair in zip(kineto, execution, strict=True)]
    return InputKind.PROFILES, [RankProfile(kineto=file) for file in kineto] + [
        RankProfile(execution_trace=file) for file in execution
    ]


def _is_among(file: str, others: Sequence[str]) -> bool:
    """Return whether one of *others* is the same file."""
    try:
        return any(file == other or os.path.samefile(file, other) for other in others)
    except (OSError, ValueError):  # whoever reads it says what is wrong with it
        return False


def kind_of_file(path: str) -> str:
    """Return the kind of the file at *path*: kineto, execution trace, graph or text."""
    start = b""
    positions: dict[str, int] = {}
    for block in read_blocks(path):
        tail = start[-64:]
        start = tail + block if start else block
        for key, kind in MARKS.items():
            position = start.find(f'"{key}"'.encode())
            if position >= 0:
                positions.setdefault(kind, position)
        if positions or start.lstrip()[:1] not in (b"{", b"["):
            break
    require(bool(start.strip()), "file", path, "is empty: a profile of PyTorch or a text workload is converted")
    if start.lstrip()[:1] not in (b"{", b"["):
        for sign, what in NO_INPUTS.items():
            require(sign not in start[:START_BYTES], "file", path, what)
        return "text"
    if not positions:
        kinds = "a Kineto trace (traceEvents), an execution trace (nodes) or a graph (workload_graph)"
        raise SpecError("file", Path(path).name, f"is JSON, but no profile: it must be {kinds}")
    return min(positions, key=positions.__getitem__)


DISPATCH_NS = 1_000
"""What an operator takes the host that launches nothing."""
LATENCY_NS = 2_000
"""From a launch to the start of its kernel on an idle stream."""
STREAM = 7
"""What CUDA usually numbers PyTorch's default stream."""
VIEWS = re.compile(
    r"aten::(view|_unsafe_view|reshape|_reshape_alias|t|transpose|permute|expand|expand_as|as_strided|slice|select|narrow"
    r"|split|split_with_sizes|chunk|unbind|unsqueeze|squeeze|flatten|unflatten|detach|detach_|alias|empty|empty_like"
    r"|empty_strided|new_empty|new_empty_strided|resize_|set_|lift_fresh|result_type|item|_local_scalar_dense|is_nonzero"
    r"|movedim|swapaxes|view_as|to|type_as|contiguous|clone|float|half|matmul|linear|layer_norm|rms_norm|dropout|_has_compatible_shallow_copy_type|requires_grad_|record_stream|pin_memory)$"
)
"""Operators that move nothing."""
PROFILER_MARKS = re.compile(r"(\[|#|Optimizer\.|ProfilerStep|enumerate\(|autograd::|nccl:|gloo:|detach)")
COMPUTES = re.compile(r"(?!torch::|autograd::|c10d)\w+::|triton_")
"""What names of operators that may launch begin with; others are functions of autograd, and annotations."""


@dataclass(frozen=True, slots=True)
class PredictedProfile:
    """An execution trace as it would have run."""

    kineto: Kineto
    unknown: int
    """Operators whose work is not known."""
    moved: bool
    """Whether it ran on a CPU alone."""


def predict_profile(trace: ExecutionTrace, point: DesignPoint) -> PredictedProfile:
    """Return *trace* as it would have run on the accelerator of *point*."""
    launching = _find_launching(trace, _is_on_device)
    moved = not launching
    if moved:
        launching = _find_launching(trace, _is_on_cpu)
    works = {entry: _work_of(operator) for entry, operator in launching.items()}
    seconds = kernel_seconds(list(works.values()), point.compute, point.memory) if works else np.empty(0)
    durations = {
        entry: 0 if np.isnan(predicted_s) else round(predicted_s * 1e9)
        for entry, predicted_s in zip(works, seconds, strict=True)
    }
    unknown = sum(work is None for work in works.values())
    profile = Kineto(trace.where)
    profile.threads = [("0", str(thread)) for thread in sorted(set(trace.thread))]
    _lay_out(profile, trace, durations, round(point.compute.host_launch_s * 1e9))
    for group in trace.groups:
        ranks, size = group.get("ranks"), group.get("group_size")
        if isinstance(ranks, list) and ranks and all(isinstance(rank, int) for rank in ranks):
            profile.groups[str(group.get("pg_name"))] = tuple(ranks)
        elif group.get("pg_name") == "0" and isinstance(size, int):
            profile.world_size = size
    return PredictedProfile(profile, unknown, moved and bool(launching))


def _is_on_device(tensor: ProfiledTensor) -> bool:
    return bool(tensor.device) and not tensor.device.startswith(("cpu", "meta"))


def _is_on_cpu(tensor: ProfiledTensor) -> bool:
    return tensor.device.startswith("cpu")


def _find_launching(trace: ExecutionTrace, is_there: Callable[[ProfiledTensor], bool]) -> dict[int, ProfiledOperator]:
    """Return the operators with a tensor that *is_there*, by their entries: each launches a kernel."""
    entry = {number: index for index, number in enumerate(trace.id)}
    skipped = [
        VIEWS.match(name) is not None or COMPUTES.match(name) is None or COMMUNICATES.match(name) is not None
        for name in trace.names
    ]
    operators: dict[int, ProfiledOperator] = {}
    launched: set[int] = set()  # operators inside of which something is launched
    for index in range(len(trace.id) - 1, -1, -1):  # those that an operator calls come after it
        detail = trace.details.get(trace.function[index])
        if index not in launched and not skipped[trace.name[index]] and detail is not None:
            operator = operator_of_execution_trace(detail.name, parse_side(detail.inputs), parse_side(detail.outputs))
            tensors = [*operator.tensors(), *operator.results()]
            if any(map(is_there, tensors)):
                operators[index] = operator
                launched.add(index)
        if index in launched and (parent := entry.get(trace.parent[index])) is not None:
            launched.add(parent)
    return dict(sorted(operators.items()))


def _work_of(operator: ProfiledOperator) -> KernelWork | None:
    """Return the work of an operator's only kernel; optimizers are known by the operator's name."""
    base = operator.base
    kernel = "multi_tensor_apply" if base.startswith(("_fused_", "_foreach_")) else base
    return operator_works(operator, [kernel])[0]


def _lay_out(profile: Kineto, trace: ExecutionTrace, durations_ns: dict[int, int], launch_ns: int) -> None:
    """Fill in when operators begin and end on the host, and their kernels on the device."""
    number = {thread: entry_index for entry_index, thread in enumerate(sorted(set(trace.thread)))}
    entry = {number: entry_index for entry_index, number in enumerate(trace.id)}
    profile.names = [*trace.names, "cudaLaunchKernel"]
    marks = [PROFILER_MARKS.match(name) is not None and not name.startswith("autograd") for name in trace.names]
    communicates = [COMMUNICATES.match(name) is not None and kind_of_operator(name) for name in trace.names]
    count = len(trace.id)
    starts, ends, launches = [0] * count, [0] * count, []
    clock = 0
    for entry_index, name in enumerate(trace.name):
        starts[entry_index] = clock
        clock += DISPATCH_NS
        if entry_index in durations_ns:
            launches.append((entry_index, clock))
        if entry_index in durations_ns or communicates[name]:
            clock += launch_ns
        ends[entry_index] = clock
    for entry_index in range(count - 1, -1, -1):
        parent = entry.get(trace.parent[entry_index])
        if parent is not None and parent < entry_index:
            ends[parent] = max(ends[parent], ends[entry_index])
    steps = [entry_index for entry_index, name in enumerate(trace.name) if STEP.fullmatch(trace.names[name])]
    for index, entry_index in enumerate(
        steps
    ):  # operators of other threads, as that of backward(), are not inside of it
        ends[entry_index] = starts[steps[index + 1]] if index + 1 < len(steps) else clock
    operators, calls = (
        np.array([entry_index for entry_index, _ in launches], np.int64),
        np.array([entry_index for _, entry_index in launches], np.int64),
    )
    thread = np.array([number[thread_id] for thread_id in trace.thread], np.int64)
    category = (
        np.where(np.array(marks, bool)[np.array(trace.name, np.int64)], ANNOTATION, OPERATOR) if count else thread
    )
    correlation = np.arange(1, len(launches) + 1)
    profile.host = Host(
        name=np.append(np.array(trace.name, np.int64), np.full(len(calls), len(trace.names))),
        start=np.append(np.array(starts, np.int64), calls),
        end=np.append(np.array(ends, np.int64), calls + launch_ns),
        thread=np.append(thread, thread[operators]),
        category=np.append(category, np.full(len(calls), CALL)),
        function=np.append(np.array(trace.function, np.int64), np.zeros(len(calls), np.int64)),
        correlation=np.append(np.full(count, -1), correlation),
    )
    durations = np.array([durations_ns[entry_index] for entry_index, _ in launches], np.int64)
    begins = _starts_in_turn(calls + launch_ns + LATENCY_NS, durations)
    profile.device = Device(
        name=np.array(trace.name, np.int64)[operators],
        start=begins,
        end=begins + durations,
        stream=np.full(len(calls), STREAM),
        category=np.full(len(calls), LAUNCHED.index("kernel")),
        correlation=correlation,
        bytes=np.full(len(calls), -1),
        launch=[b""] * len(calls),
    )


def _starts_in_turn(ready: Ints, durations: Ints) -> Ints:
    """Return when each of several kernels of one stream starts: when it is ready, and the one before it has ended.

    >>> _starts_in_turn(np.array([0, 1, 20]), np.array([10, 5, 1])).tolist()
    [0, 10, 20]
    """
    before = np.concatenate([[0], np.cumsum(durations)[:-1]]) if len(durations) else durations
    starts: Ints = np.maximum.accumulate(ready - before) + before
    return starts
