"""An execution trace without a Kineto trace: when its operators and kernels would have run, by prediction.

An execution trace says what was called, in which order and with which tensors, not when. An operator that touches a
tensor on a device launches one kernel, unless it only makes a view, or an operator that it calls launches one. Where
all tensors are on the CPU, operators are taken as if they were on the device. The host takes what a launch takes; a
kernel starts after its launch and the kernel before it, and takes what `kernel_pricing` predicts. The result is a
Kineto trace like a recorded one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cosmic.design.design_point import DesignPoint
from cosmic.traces.kernel_work import KernelWork
from cosmic.traces.profiles.execution_traces import ExecutionTrace, parse_side
from cosmic.traces.profiles.kernel_cost_model import kernel_seconds
from cosmic.traces.profiles.kineto import ANNOTATION, CALL, LAUNCHED, OPERATOR, Device, Host, Ints, Kineto
from cosmic.traces.profiles.kineto import MARK as STEP
from cosmic.traces.profiles.operator_kernels import operator_works
from cosmic.traces.profiles.profiled_collectives import OPERATOR as COMMUNICATES
from cosmic.traces.profiles.profiled_collectives import kind_of_operator
from cosmic.traces.profiles.profiled_operators import ProfiledOperator, ProfiledTensor, operator_of_execution_trace

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
MARKS = re.compile(r"(\[|#|Optimizer\.|ProfilerStep|enumerate\(|autograd::|nccl:|gloo:|detach)")
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
    marks = [MARKS.match(name) is not None and not name.startswith("autograd") for name in trace.names]
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
