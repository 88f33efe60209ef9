"""How long kernels take that only stream through memory: norms, activations, losses, the optimizer.

    t = ( n + k * r ) / ( B * pace )  +  k * launch

    n  bytes moved: elements x width of one x passes over them       k  kernels, one after another
    r  bytes that could have streamed while a kernel starts and drains (the ramp)
    B  what a plain copy reaches of the memory's bandwidth
    pace  what a kernel reaches of B: arithmetic, reductions and rows that do not fill a multiprocessor hold it back

Passes count the elements that the operator makes (for a loss: the logits that it reads). They differ by how a step is
run: *eager* frameworks run one kernel after another, each reading and writing everything; *fused* kernels (those of a
compiler, or that training frameworks bring along) join neighbours. `TRAFFIC` has both.

Eager figures were measured on an H200 with PyTorch 2.11 in bf16: forward norms, gelu and softmax as kernels alone,
backward passes in the kernel trace of a training step, rope and loss as what whole steps take beside their products
(`calibration/fit_kernels.py`). Fused figures count what must be moved, near the pace of a copy; with them and one rate
for all products, LLaMA layers compiled on an H200 come out within one or two per cent. Kinds marked *counted* were not
measured.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

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


@dataclass(frozen=True, slots=True)
class KindTraffic:
    """What one kind of operator moves: forward and backward, eager and fused."""

    forward: Traffic
    backward: Traffic
    fused_forward: Traffic = field(default=NOTHING)
    fused_backward: Traffic = field(default=NOTHING)


UNARY = KindTraffic(Traffic(1, 2), Traffic(1, 3), Traffic(1, 2), Traffic(1, 3))
"""Reads one tensor and writes one; backward reads the gradient and what was kept. Counted, for kinds not listed."""
WITH_NEIGHBOUR = NOTHING
"""Fused into the kernel before or after it, whose passes include it."""

TRAFFIC: dict[str, KindTraffic] = {
    # Rows are read for their statistics and again to be scaled; small rows wait for each other. Backward: one kernel
    # for the input's gradient (3 passes), one for the weights' that reduces over rows (2 passes, slow).
    "norm": KindTraffic(Traffic(1, 2, 0.55), Traffic(2, 5, 0.70), Traffic(1, 2, 0.9), Traffic(2, 4, 0.9)),
    # A residual: two read, one written. Backward, the gradients of both branches are added.
    "add": KindTraffic(Traffic(1, 3), Traffic(1, 3), Traffic(1, 3), Traffic(1, 3)),
    # Added by the matrix product itself. Its gradient is a reduction over rows that few multiprocessors share.
    "bias": KindTraffic(NOTHING, Traffic(1, 1, 0.5), NOTHING, WITH_NEIGHBOUR),
    # The error function in single precision holds it back.
    "gelu": KindTraffic(Traffic(1, 2, 0.75), Traffic(1, 3, 0.85), Traffic(1, 2, 0.9), Traffic(1, 3, 0.9)),
    # Fused, silu and the product with the gate are one kernel, counted with the product.
    "silu": KindTraffic(Traffic(1, 2, 0.9), Traffic(1, 3, 0.9), WITH_NEIGHBOUR, WITH_NEIGHBOUR),
    "multiply": KindTraffic(Traffic(1, 3), Traffic(2, 6), Traffic(1, 3), Traffic(1, 5)),
    # Eager: halves are turned, joined, multiplied by cosine and sine, added; backward, slices are filled up and added.
    # Twice to four times as much where it is done in single precision. Fused: read, turned, written in another order.
    "rope": KindTraffic(Traffic(10, 11), Traffic(14, 16), Traffic(1, 3), Traffic(1, 2)),
    # A mask of one byte is written and read. Counted.
    "dropout": KindTraffic(Traffic(1, 2.5), Traffic(1, 2.5), Traffic(0, 0.5), Traffic(0, 0.5)),
    # Scores are read for the maximum, the sum and the result, mostly from cache.
    "softmax": KindTraffic(Traffic(1, 2, 0.48), Traffic(1, 3, 0.9), Traffic(1, 2, 0.9), Traffic(1, 3, 0.9)),
    # Eager: log-softmax, whose long rows are read twice, and the pick of one element; backward a gradient of zeros, the
    # pick, and log-softmax, which reads gradient and result. Fused: read for the maximum and for the sum; backward
    # read and overwritten.
    "loss": KindTraffic(Traffic(2, 3, 0.45), Traffic(3, 5, 0.9), Traffic(1, 2, 0.7), Traffic(1, 2)),
    # Rows are copied. Backward, indices are sorted (many tiny kernels) and rows are added in single precision.
    "embedding": KindTraffic(Traffic(1, 2), Traffic(26, 12), Traffic(1, 2), Traffic(26, 12)),
    # Scores, their softmax and the best few of them: small rows. Counted.
    "router": KindTraffic(Traffic(4, 6, 0.5), Traffic(4, 6, 0.5), Traffic(1, 2, 0.5), Traffic(1, 3, 0.5)),
    # Rows are gathered by expert, after sorting. Backward, they are scattered and added. Counted.
    "dispatch": KindTraffic(Traffic(4, 2), Traffic(2, 3), Traffic(1, 2), Traffic(1, 2)),
    # Rows are gathered back, weighted and summed. Counted.
    "combine": KindTraffic(Traffic(3, 6), Traffic(3, 6), Traffic(1, 3), Traffic(1, 3)),
    # Two that are no operators of the graph. Where one product makes queries, keys and values, their gradients are
    # written side by side (2 passes over the three). Where several products read one tensor, the gradients that they
    # give it are added, once for each product after the first: two for queries, keys and values, one for gate and up.
    "join": KindTraffic(NOTHING, Traffic(1, 2), NOTHING, Traffic(1, 2)),
    "fan": KindTraffic(NOTHING, Traffic(1, 3), NOTHING, Traffic(1, 3)),
    "view": KindTraffic(NOTHING, NOTHING),
}


@dataclass(frozen=True, slots=True)
class Stream:
    """What an accelerator's memory gives kernels that stream."""

    bytes_per_s: Numeric
    """What a plain copy reaches."""
    ramp_bytes: Numeric = 10e6
    """What could have streamed while a kernel starts and drains."""
    launch_s: Numeric = 0.0
    """Between two kernels of one queue."""


def traffic(kind: str, phase: Phase, style: Style = "eager") -> Traffic:
    """Return what a *kind* of operator moves.

    >>> traffic("add", "forward")
    Traffic(kernels=1, passes=3, pace=1.0)
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


OPTIMIZER_PACE = 0.52
"""Fused AdamW inside whole steps, relative to a plain copy. Alone, on one large tensor, it reaches 0.62."""


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
    return (parameters * bytes_per_parameter + stream.ramp_bytes) / (stream.bytes_per_s * OPTIMIZER_PACE)
