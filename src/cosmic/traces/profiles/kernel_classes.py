"""Classes of work that recorded kernels and the operators of a design both belong to.

A class is a group and a part of it. A recorded kernel is told by the operators around its launch
(``aten::layer_norm``), by its work (`cosmic.traces.kernel_work`) and, failing both, by its name:

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cosmic.base.errors import SpecError
from cosmic.traces.kernel_work import KernelWork, parse_work

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
