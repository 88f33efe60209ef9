"""How long kernels take that only stream through memory: norms, activations, losses, the optimizer.

    t = ( n + k * r ) / ( B * pace )  +  k * launch

    n  bytes moved: elements x width of one x passes over them       k  kernels, one after another
    r  bytes that could have streamed while a kernel starts and drains (the ramp)
    B  memory bandwidth of a plain copy
    pace  share of B that a kernel reaches: arithmetic, reductions and rows that do not fill an SM slow it down

Passes count the operator's output elements (for a loss: the logits that it reads). *Eager* frameworks run one kernel
after another, each of which reads and writes everything; *fused* kernels, of a compiler or a training framework, join
neighbouring operators. `catalog/constants/streaming.yaml` has both.

Eager figures were measured on an H200 with PyTorch 2.11 in bf16: forward norms, gelu and softmax as kernels alone,
backward passes in the kernel trace of a training step, rope and loss as the time of whole steps beside their GEMMs
(`calibration/fit_kernels.py`). Fused figures count the bytes that must move, near the pace of a copy; with them and one
rate for all GEMMs, LLaMA layers compiled on an H200 come out within one or two per cent. Operators marked *counted*
were not measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cosmic.base.numeric import Numeric
from cosmic.design.catalog_entries import load_constants

PassPhase = Literal["forward", "backward"]
Style = Literal["eager", "fused"]


@dataclass(frozen=True, slots=True)
class MemoryTraffic:
    """What one operator moves through memory for each element, forward or backward."""

    kernels: float = 0.0
    passes: float = 0.0
    """Times that each element is read or written."""
    pace: float = 1.0
    """Rate relative to a plain copy."""


NOTHING = MemoryTraffic()
"""For an operator that moves nothing, or that is fused into the kernel before or after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTraffic:
    """What one kind of operator moves, forward and backward, eager and fused."""

    kind: str
    forward: MemoryTraffic = NOTHING
    backward: MemoryTraffic = NOTHING
    fused_forward: MemoryTraffic = NOTHING
    fused_backward: MemoryTraffic = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingConstants:
    """Constants that all accelerators have in common."""

    operators: tuple[OperatorTraffic, ...]
    optimizer_pace: float
    """Fused AdamW inside whole steps, relative to a plain copy. Alone, on one large tensor, it is faster."""


CONSTANTS = load_constants("streaming", StreamingConstants)
TRAFFIC = {operator.kind: operator for operator in CONSTANTS.operators}
UNARY = TRAFFIC.pop("unary")
"""For kinds that are not listed."""


@dataclass(frozen=True, slots=True)
class Stream:
    """How fast an accelerator runs kernels that stream through memory."""

    bytes_per_s: Numeric
    """Rate of a plain copy."""
    ramp_bytes: Numeric = 0.0
    """Bytes that could have streamed while a kernel starts and drains."""
    launch_s: Numeric = 0.0
    """Gap between two kernels of one queue."""


def memory_traffic(kind: str, phase: PassPhase, style: Style = "eager") -> MemoryTraffic:
    """Return what a *kind* of operator moves for each element.

    >>> memory_traffic("add", "forward")
    MemoryTraffic(kernels=1.0, passes=3.0, pace=1.0)
    >>> memory_traffic("silu", "forward", "fused")
    MemoryTraffic(kernels=0.0, passes=0.0, pace=1.0)
    """
    passes = TRAFFIC.get(kind, UNARY)
    name = phase if style == "eager" else f"fused_{phase}"
    traffic: MemoryTraffic = getattr(passes, name)
    return traffic


def streaming_seconds(moved: MemoryTraffic, elements: Numeric, element_bytes: Numeric, stream: Stream) -> Numeric:
    """Return the seconds of the kernels of one operator over *elements*.

    >>> h200 = Stream(bytes_per_s=4e12, ramp_bytes=16e6)
    >>> float(streaming_seconds(memory_traffic("add", "forward"), 64e6, 2, h200)) * 1e6
    100.0
    """
    moved_bytes = moved.passes * elements * element_bytes + moved.kernels * stream.ramp_bytes
    return moved_bytes / (stream.bytes_per_s * moved.pace) + moved.kernels * stream.launch_s


def optimizer_bytes_per_parameter(
    weight_bytes: Numeric, gradient_bytes: Numeric, moment_bytes: Numeric, master_bytes: Numeric
) -> Numeric:
    """Return the bytes that a fused Adam moves for each parameter.

    It reads the gradient, and reads and writes weight, moments and master copy; beside a master copy it only writes the
    working weight.

    >>> optimizer_bytes_per_parameter(2, 2, 2, 0), optimizer_bytes_per_parameter(2, 4, 4, 4)
    (14, 30)
    """
    weight = weight_bytes * (2 - (master_bytes > 0))
    return gradient_bytes + weight + 2 * (2 * moment_bytes + master_bytes)


def optimizer_seconds(parameters: Numeric, bytes_per_parameter: Numeric, stream: Stream) -> Numeric:
    """Return the seconds of a fused Adam over all *parameters* of an accelerator.

    >>> float(round(optimizer_seconds(1e9, 14, Stream(4.3e12, 0.0)) * 1e3, 2))
    6.26
    """
    return (parameters * bytes_per_parameter + stream.ramp_bytes) / (stream.bytes_per_s * CONSTANTS.optimizer_pace)
