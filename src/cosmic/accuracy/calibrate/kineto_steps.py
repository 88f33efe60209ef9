"""Kineto traces (PyTorch's profiler): the step, and the seconds of its kernels by class.

Steps begin where the host marks ``ProfilerStep#``; the last ends with its mark, or with its last kernel. The profiler
slows the host down: the time of a step counts only where kernels fill most of it. Kernels of NCCL wait for other ranks
inside, and are not used.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from cosmic.accuracy.calibrate.map_estimate import Array
from cosmic.accuracy.calibrate.physical_parameters import Changes, measurement_noise
from cosmic.accuracy.calibrate.predicted_measurements import PredictedMeasurements, observed_step
from cosmic.base.errors import SpecError, require
from cosmic.base.files import LARGEST_BYTES
from cosmic.base.numeric import sum_of
from cosmic.design.design_batch import batch_of_changes
from cosmic.design.design_point import DesignPoint
from cosmic.step.attention import Attention
from cosmic.step.operator_work import Gemm
from cosmic.step.step_profile import profile_step

MICRO = 1e-6
CLASSES = (
    ("collectives", re.compile(r"nccl|rccl", re.IGNORECASE)),
    ("attention", re.compile(r"flash|fmha|sdpa|attention|compute_dot_do_o|convert_dq", re.IGNORECASE)),
    ("optimizer", re.compile(r"multi_tensor_apply|adam", re.IGNORECASE)),
    ("GEMMs", re.compile(r"gemm|nvjet|xmma|cutlass|cublas|Cijk_|_mm_|matmul", re.IGNORECASE)),
)
"""Classes of kernels by what their names contain; all others stream through memory."""
STREAMED = "memory operators"
USED = ("GEMMs", "attention", STREAMED)
DEVICE_EVENTS = ("kernel", "gpu_memcpy", "gpu_memset")
STEP = re.compile(r"ProfilerStep#\d+")
FULL = 0.7
"""A step counts where kernels run for at least this share of it."""


@dataclass(frozen=True, slots=True)
class TracedStep:
    """What one step of a trace took on the device, on average over its steps."""

    step_s: float
    seconds: Mapping[str, float]
    """By class of kernels."""
    steps: int
    device: str

    @property
    def busy(self) -> float:
        """The share of the step in which kernels run; more than 1 where they overlap."""
        return sum(self.seconds.values()) / self.step_s


def is_kineto(data: bytes) -> bool:
    """Return whether *data* looks like a trace of Kineto, compressed or not."""
    return data[:2] == b"\x1f\x8b" or b'"traceEvents"' in data


def read_kineto(data: bytes, where: str) -> TracedStep:
    """Return the steps of a trace."""
    tree = _tree(data, where)
    events = tree.get("traceEvents") if isinstance(tree, dict) else None
    require(isinstance(events, list), where, type(tree).__name__, "is no trace of Kineto: it has no traceEvents")
    kernels = [_Kernel.of(event) for event in events or [] if _category(event) in DEVICE_EVENTS]
    spans = _spans(events or [], max((kernel.end for kernel in kernels), default=0.0))
    require(bool(spans), where, 0, "there are no steps in this trace: call the profiler's step() after each")
    totals: dict[str, float] = defaultdict(float)
    for kernel in kernels:
        if any(first <= kernel.start < last for first, last in spans):
            totals[_class(kernel.name)] += kernel.took * MICRO
    require(bool(totals), where, 0, "there are no kernels in the steps of this trace: trace CUDA, too")
    step_s = median(last - first for first, last in spans) * MICRO
    return TracedStep(step_s, {kind: total / len(spans) for kind, total in totals.items()}, len(spans), _device(tree))


@dataclass(frozen=True, slots=True)
class _Kernel:
    """What ran on the device, in µs."""

    name: str
    start: float
    took: float

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> _Kernel:
        return cls(str(event.get("name", "")), _number(event.get("ts")), _number(event.get("dur")))

    @property
    def end(self) -> float:
        return self.start + self.took


def observed_trace(step: TracedStep, point: DesignPoint, name: str, skipped: list[str]) -> list[PredictedMeasurements]:
    """Return the step of a trace and its classes of kernels, which the design *point* predicts.

    What is not used is noted in *skipped*.
    """
    steps = [observed_step(name, point, step.step_s)]
    if step.busy < FULL:
        idle = f"its step is left out: the device is idle for {100 * (1 - step.busy):.0f} % of it"
        skipped.append(f"{name}: {idle}, as the profiler slows the host down")
        steps = []
    if point.workload.pp > 1:  # the stage of the traced rank is not known
        return steps
    kinds = [kind for kind in USED if step.seconds.get(kind, 0.0) > 0]

    def seconds(changes: Sequence[Changes]) -> Array:
        first = "compute.time_factor"
        full_changes = [{first: point.compute.time_factor, **change} for change in changes]
        totals = _predicted(point, full_changes)
        return np.stack(
            [np.broadcast_to(np.asarray(totals[kind], dtype=float), len(full_changes)) for kind in kinds], axis=1
        )

    names = tuple(f"{name}: {kind}" for kind in kinds)
    measured = np.array([step.seconds[kind] for kind in kinds])
    spread = np.full(len(kinds), measurement_noise().kernel)
    return [
        *steps,
        *([PredictedMeasurements("kernels of steps", names, measured, spread, point, seconds)] if kinds else []),
    ]


def _predicted(point: DesignPoint, changes: Sequence[Changes]) -> dict[str, Any]:
    """Return the predicted seconds of a step by class of kernels, an array over *changes* each."""
    costs = profile_step(batch_of_changes(point, changes), "first").operators
    classes: dict[str, list[Any]] = {kind: [0.0] for kind in USED}
    for cost in costs:
        shape = cost.use.kernel.shape
        kind = "GEMMs" if isinstance(shape, Gemm) else "attention" if isinstance(shape, Attention) else STREAMED
        classes[kind].append(cost.runs * cost.seconds)
    return {kind: sum_of(parts) for kind, parts in classes.items()}


def _tree(data: bytes, where: str) -> Any:
    if data[:2] == b"\x1f\x8b":
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as opened:
                data = opened.read(LARGEST_BYTES + 1)
        except (OSError, EOFError, zlib.error):
            raise SpecError(where, data[:20], "is not a valid gzip file") from None
        require(
            len(data) <= LARGEST_BYTES, where, "unpacked", f"has more than the {LARGEST_BYTES:,} bytes that it may have"
        )
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SpecError(where, data[:40], f"is no valid JSON: {error}") from None


def _spans(events: Sequence[Any], last_s: float) -> list[tuple[float, float]]:
    """Return start and end of each step, in µs."""
    marks = {}
    for event in events:
        if _category(event) == "user_annotation" and STEP.fullmatch(str(event.get("name", ""))):
            start = _number(event.get("ts"))
            marks[start] = start + _number(event.get("dur"))
    starts = sorted(marks)
    ends = [*starts[1:], *([max(marks[starts[-1]], last_s)] if starts else [])]
    return [(first, last) for first, last in zip(starts, ends, strict=True) if last > first]


def _category(event: Any) -> Any:
    return event.get("cat") if isinstance(event, dict) else None


def _class(name: str) -> str:
    return next((kind for kind, pattern in CLASSES if pattern.search(name)), STREAMED)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and np.isfinite(value) and value >= 0 else 0.0


def _device(tree: Mapping[str, Any]) -> str:
    listed = tree.get("deviceProperties")
    first = listed[0] if isinstance(listed, list) and listed else {}
    return str(first.get("name", "")) if isinstance(first, dict) else ""
