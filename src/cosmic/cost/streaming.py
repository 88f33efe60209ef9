"""How long kernels take that only stream through memory: norms, activations, losses, the optimizer.

    t = ( n + k * r ) / ( B * pace )  +  k * launch

    n  bytes moved: elements x width of one x passes over them       k  kernels, one after another
    r  bytes that could have streamed while a kernel starts and drains (the ramp)
    B  what a plain copy reaches of the memory's bandwidth
    pace  what a kernel reaches of B: arithmetic, reductions and rows that do not fill a multiprocessor hold it back

Passes count the elements that the operator makes (for a loss: the logits that it reads). They differ by how a step is
run: *eager* frameworks run one kernel after another, each reading and writing everything; *fused* kernels (those of a
compiler, or that training frameworks bring along) join neighbours. `catalog/constants/streaming.yaml` has both.

Eager figures were measured on an H200 with PyTorch 2.11 in bf16: forward norms, gelu and softmax as kernels alone,
backward passes in the kernel trace of a training step, rope and loss as what whole steps take beside their products
(`calibration/fit_kernels.py`). Fused figures count what must be moved, near the pace of a copy; with them and one rate
for all products, LLaMA layers compiled on an H200 come out within one or two per cent. Kinds marked *counted* were not
measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cosmic.catalog.fitted import fitted
from cosmic.numeric import Numeric

Phase = Literal["forward", "backward"]
Style = Literal["eager", "fused"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one operator sends through memory in one phase, for each element."""

    kernels: float = 0.0
    passes: float = 0.0
    """Times that each element is read or written."""
    pace: float = 1.0
    """Rate relative to a plain copy."""


NOTHING = Traffic()
"""Of an operator that moves nothing, or whose passes the kernel before or after it includes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindTraffic:
    """What one kind of operator moves: forward and backward, eager and fused."""

    kind: str
    forward: Traffic = NOTHING
    backward: Traffic = NOTHING
    fused_forward: Traffic = NOTHING
    fused_backward: Traffic = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingConstants:
    """What all accelerators have in common."""

    operators: tuple[KindTraffic, ...]
    optimizer_pace: float
    """Fused AdamW inside whole steps, relative to a plain copy. Alone, on one large tensor, it is faster."""


CONSTANTS = fitted("streaming", StreamingConstants)
TRAFFIC = {each.kind: each for each in CONSTANTS.operators}
UNARY = TRAFFIC.pop("unary")
"""For kinds that are not listed."""


@dataclass(frozen=True, slots=True)
class Stream:
    """What an accelerator's memory gives kernels that stream."""

    bytes_per_s: Numeric
    """What a plain copy reaches."""
    ramp_bytes: Numeric = 0.0
    """What could have streamed while a kernel starts and drains."""
    launch_s: Numeric = 0.0
    """Between two kernels of one queue."""


def traffic(kind: str, phase: Phase, style: Style = "eager") -> Traffic:
    """Return what a *kind* of operator moves.

    >>> traffic("add", "forward")
    Traffic(kernels=1.0, passes=3.0, pace=1.0)
    >>> traffic("silu", "forward", "fused")
    Traffic(kernels=0.0, passes=0.0, pace=1.0)
    """
    of = TRAFFIC.get(kind, UNARY)
    name = phase if style == "eager" else f"fused_{phase}"
    found: Traffic = getattr(of, name)
    return found


def streaming_seconds(moved: Traffic, elements: Numeric, element_bytes: Numeric, stream: Stream) -> Numeric:
    """Return the seconds of the kernels of one operator over *elements*.

    >>> h200 = Stream(bytes_per_s=4e12, ramp_bytes=16e6)
    >>> float(streaming_seconds(traffic("add", "forward"), 64e6, 2, h200)) * 1e6
    100.0
    """
    moved_bytes = moved.passes * elements * element_bytes + moved.kernels * stream.ramp_bytes
    return moved_bytes / (stream.bytes_per_s * moved.pace) + moved.kernels * stream.launch_s


def optimizer_bytes_per_parameter(
    weight_bytes: Numeric, gradient_bytes: Numeric, moment_bytes: Numeric, master_bytes: Numeric
) -> Numeric:
    """Return what a fused Adam moves for each parameter: gradient read; weight, moments and master read and written.

    With a master copy the working weight is only written.

    >>> optimizer_bytes_per_parameter(2, 2, 2, 0), optimizer_bytes_per_parameter(2, 4, 4, 4)
    (14, 30)
    """
    weight = weight_bytes * (2 - (master_bytes > 0))
    return gradient_bytes + weight + 2 * (2 * moment_bytes + master_bytes)


def optimizer_seconds(parameters: Numeric, bytes_per_parameter: Numeric, stream: Stream) -> Numeric:
    """Return the seconds of a fused Adam over all *parameters* of a device.

    >>> float(round(optimizer_seconds(1e9, 14, Stream(4.3e12, 0.0)) * 1e3, 2))
    6.26
    """
    return (parameters * bytes_per_parameter + stream.ramp_bytes) / (stream.bytes_per_s * CONSTANTS.optimizer_pace)
