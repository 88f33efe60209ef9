"""What each kernel of an operator computes, from the operator's shapes and the kernels' names.

`works_of` is the one entry. An operator that multiplies has one kernel that does (two in the backward pass of a
convolution) and helpers: memory is cleared, split sums are added up, gradients are rounded. All kernels of others
stream. Where nothing is known of a kernel, its work is None, never a wrong zero. Kernels that CUDA graphs replay have
no operators: see `cosmic.profiles.graph_kernels`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from cosmic.profiles.products import (
    ATTENTION,
    ATTENTION_BACKWARD,
    OPERANDS,
    attention_of,
    convolution_of,
    gemm_of,
    grouped_gemm_of,
    template_of,
)
from cosmic.profiles.streams import stream_of
from cosmic.profiles.tensors import Operator, Tensor, operator_of_execution_trace, operator_of_kineto
from cosmic.profiles.walks import Kernel, walk_of
from cosmic.traces.kernels import ELEMENT_BYTES, KernelWork

__all__ = [
    "Launch",
    "Operator",
    "Tensor",
    "operator_of_execution_trace",
    "operator_of_kineto",
    "works_of",
]

MULTIPLIES = re.compile(
    r"gemm|nvjet|cutlass|xmma|gemv|wgmma|sdpa|fmha|flash|attention|Cijk_|dot_kernel|implicit|conv|winograd|mma|_bmm_"
    r"|[dw]grad|cudnn_infer",
    re.IGNORECASE,
)
"""In the name of a kernel that multiplies."""
HELPS = re.compile(
    r"splitKreduce|reduc|dot_do_o|convert_dq|init_device_workspace|AddPadding|nchwTo|nhwcTo|elementwise|memset"
    r"|scalePackedTensor|postprocess|preprocess|combine|winograd\w*(Data|Filter|Delta|Output)",
    re.IGNORECASE,
)
"""In the name of a kernel beside one that multiplies."""
COPIES = {"HtoD": "copy_h2d", "DtoH": "copy_d2h", "DtoD": "copy_d2d", "PtoP": "copy_d2d"}
COMPOSED = re.compile(
    r"^(autograd::|Optimizer|ProfilerStep|CompiledFunction|Torch-Compiled|## |nccl:|record_param_comms|DistributedData)"
)
"""Names of operators that are made of others: their shapes say nothing of one kernel."""
TEMPLATE = re.compile(r"^triton_(tem_|mm|bmm|flex)")
"""Names of kernels that a compiler makes of templates: they multiply."""
CONVOLUTIONS = re.compile(r"convolution|conv[123]d|_conv_")
RECURRENCES = re.compile(r"cudnn_rnn|miopen_rnn|mkldnn_rnn|lstm_mps")
"""Operators that run a sequence step by step, in one kernel or in thousands: their shapes do not say which."""
MASK = ("dgrad", "wgrad", "")
"""What the flags of a convolution's backward pass ask for; the last is the bias."""
SPLITS = 2
"""Parts of a split sum where the launch does not say how many there are."""
TILE = re.compile(r"(\d+)x(\d+)")


class Launch(NamedTuple):
    """How a kernel was launched; for copies, what it moved."""

    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    bytes: int | None = None


def works_of(
    operator: Operator | None, kernel_names: Sequence[str], launches: Sequence[Launch | None] = ()
) -> list[KernelWork | None]:
    """Return what each kernel computes that an operator launched, in order; None where it is not known.

    >>> x, w = Tensor((4096, 1024), "bf16"), Tensor((1024, 3072), "bf16")
    >>> kernels, launches = ["Memset (Device)", "nvjet_sm90_tst_256x128"], [Launch(bytes=4), None]
    >>> found = works_of(Operator("aten::mm", (x, w)), kernels, launches)
    >>> [work.text for work in found]
    ['memset uint8 4', 'gemm bf16 1 4096 3072 1024']
    """
    kernels = [
        kernel_of(name, launches[place] if place < len(launches) else None) for place, name in enumerate(kernel_names)
    ]
    found: list[KernelWork | None] = [copied(each, operator) for each in kernels]
    places = [
        place for place, each in enumerate(kernels) if not _is_copy(each.name) and not _is_communication(each.name)
    ]
    if operator is None or COMPOSED.search(operator.name):
        return found
    for place, work in zip(places, _computed(operator, [kernels[each] for each in places]), strict=True):
        found[place] = work
    return found


def kernel_of(name: str, launch: Launch | None) -> Kernel:
    """Return a kernel by its name and how it was launched."""
    if launch is None:
        return Kernel(name)
    return Kernel(
        name, prod(launch.grid) if launch.grid else 0, prod(launch.block) if launch.block else 0, launch.bytes
    )


def _is_copy(name: str) -> bool:
    return name.startswith(("Memset", "Memcpy"))


def _is_communication(name: str) -> bool:
    return name.startswith(("nccl", "rccl", "msccl")) or "nvshmem" in name


def copied(kernel: Kernel, operator: Operator | None) -> KernelWork | None:
    """Return a copy or a memset; its bytes are those of the operator's first tensor where the profile has none."""
    if not _is_copy(kernel.name):
        return None
    moved = kernel.bytes
    if moved is None and operator is not None and operator.base == "copy_" and operator.tensor(0) is not None:
        moved = sum(each.bytes for each in operator.tensors()[:1])
    if moved is None:
        return None
    kind = next((kind for word, kind in COPIES.items() if word in kernel.name), None)
    if kernel.name.startswith("Memset"):
        kind = "memset"
    return KernelWork(kind, "uint8", (moved,)) if kind else None


def _computed(operator: Operator, kernels: Sequence[Kernel]) -> list[KernelWork | None]:
    """Return the works of kernels that are no copies."""
    base = operator.base
    if RECURRENCES.search(base):
        return [None] * len(kernels)
    if TEMPLATE.search(base):
        return [template_of(operator) for _ in kernels]
    if base in OPERANDS or base in ("_grouped_mm", "_scaled_grouped_mm"):
        return _multiplied(operator, kernels)
    if base in ATTENTION or base in ATTENTION_BACKWARD:
        return _attended(operator, kernels)
    if CONVOLUTIONS.search(base):
        return _convolved(operator, kernels)
    if any(walk_of(each.name) in ("optimizer", "foreach") for each in kernels):
        blocks = sum(each.blocks for each in kernels)
        shares = [each.blocks / blocks if blocks else 1 / len(kernels) for each in kernels]
        return [stream_of(operator, each, share) for each, share in zip(kernels, shares, strict=True)]
    return [None if _is_product(each.name) else stream_of(operator, each) for each in kernels]


def _is_product(name: str) -> bool:
    """Return whether a kernel multiplies, by its name; kernels of compilers say so in other words."""
    return bool(MULTIPLIES.search(name)) and not HELPS.search(name) and walk_of(name) in ("elementwise", "strided")


def _multiplied(operator: Operator, kernels: Sequence[Kernel]) -> list[KernelWork | None]:
    """Return the works of a GEMM's kernels: the first that multiplies, or the only one, and helpers."""
    own = [place for place, each in enumerate(kernels) if not HELPS.search(each.name)]
    mains = [place for place in own if MULTIPLIES.search(kernels[place].name)] or own
    found: list[KernelWork | None] = []
    for place, each in enumerate(kernels):
        grouped = "grouped" in operator.base
        work = grouped_gemm_of(operator, each.name) if grouped else gemm_of(operator, each.name)
        if work is None or mains[:1] == [place]:
            found.append(work)
        else:
            made = work["count"] * work["m"] * work["n"] if not grouped else work["m"] * work["n"]
            found.append(_helper(each, work.dtype, made, kernels[mains[0]] if mains else None))
    return found


def _helper(kernel: Kernel, dtype: str, elements: int, main: Kernel | None = None) -> KernelWork:
    """Return what a kernel moves that adds up the parts of a split sum, or copies a result."""
    width = ELEMENT_BYTES[dtype]
    parts = _splits(main, elements) * ELEMENT_BYTES["fp32"] if re.search("reduc", kernel.name, re.IGNORECASE) else width
    sizes = (round(elements * parts), round(elements * width), 0, elements, kernel.blocks, kernel.threads)
    return KernelWork("stream", dtype, sizes, walk_of(kernel.name))


def _splits(main: Kernel | None, elements: int) -> int:
    """Return how many parts a split sum has: blocks of the GEMM over its tiles."""
    tile = TILE.search(main.name) if main else None
    if main is None or tile is None or not main.blocks:
        return SPLITS
    return max(SPLITS, min(8, round(main.blocks * int(tile[1]) * int(tile[2]) / max(elements, 1))))


def _attended(operator: Operator, kernels: Sequence[Kernel]) -> list[KernelWork | None]:
    """Return the works of attention's kernels: the one that multiplies, and what streams before and after it."""
    work = attention_of(operator)
    if work is None:
        return [None] * len(kernels)
    main = next((place for place, each in enumerate(kernels) if not HELPS.search(each.name)), -1)
    return [work if place == main else _beside(work, each) for place, each in enumerate(kernels)]


def _beside(work: KernelWork, kernel: Kernel) -> KernelWork:
    """Return what a kernel streams beside attention.

    Before the backward pass, the output times its gradient is summed along each row, and the gradient of queries, in
    single precision, is cleared; after it, that is rounded, and the gradients of keys and values, one for each query
    head, are summed over a group.
    """
    width, single = ELEMENT_BYTES[work.dtype], ELEMENT_BYTES["fp32"]
    rows = work["batch"] * work["heads"] * work["queries"]
    if re.search("reduce_head", kernel.name):
        keys = work["batch"] * work["keys"] * work["width"]
        read, written, elements = width * keys * work["heads"], width * keys * work["kv_heads"], keys * work["heads"]
    elif re.search("convert|postprocess", kernel.name):
        elements = rows * work["width"]
        read, written = single * elements, width * elements
    else:
        elements = rows * work["value_width"]
        read, written = 2 * width * elements, single * rows * (1 + work["width"])
    sizes = (round(read), round(written), 2 * elements, elements, kernel.blocks, kernel.threads)
    return KernelWork("stream", work.dtype, sizes, walk_of(kernel.name))


def _convolved(operator: Operator, kernels: Sequence[Kernel]) -> list[KernelWork | None]:
    """Return the works of a convolution's kernels; backward, the input's gradient comes before the weight's."""
    backward = "backward" in operator.base
    found: list[KernelWork | None] = []
    phases = _gradients(operator) if backward else ["fprop"]
    before: Kernel | None = None
    for each in kernels:
        if HELPS.search(each.name) or not MULTIPLIES.search(each.name) or not phases:
            found.append(_around(operator, each, before))
            continue
        phase = _phase(each.name, phases)
        found.append(convolution_of(operator, each.name, phase))
        phases = [other for other in phases if other != phase]
        before = each
    return found


def _gradients(operator: Operator) -> list[str]:
    """Return which gradients the mask of a convolution's backward pass asks for: both where it is not known."""
    mask = next((each for each in reversed(operator.inputs) if isinstance(each, tuple) and len(each) == len(MASK)), ())
    wanted = [phase for phase, flag in zip(MASK, mask, strict=False) if phase and flag is True]
    return wanted or ["dgrad", "wgrad"]


def _phase(name: str, left: Sequence[str]) -> str:
    """Return which gradient a kernel makes, by its name: the weight's multiplies two matrices of as many rows."""
    for phase in ("dgrad", "wgrad"):
        if phase in name and phase in left:
            return phase
    layout = re.search(r"_(NT[NT]|nt)(_|$)", name)
    return "wgrad" if layout and "wgrad" in left else left[0]


def _around(operator: Operator, kernel: Kernel, before: Kernel | None) -> KernelWork | None:
    """Return what a kernel moves around a convolution: parts of sums of the weight's gradient, or padded tensors."""
    tensors = operator.tensors()
    if len(tensors) < 2 or not all(each.is_known for each in tensors):
        return None
    weight, images = (
        (tensors[2], tensors[1]) if "backward" in operator.base and len(tensors) > 2 else (tensors[1], tensors[0])
    )
    if "workspace" in kernel.name:
        return KernelWork("stream", weight.dtype, (0, 0, 0, 0, kernel.blocks, kernel.threads), "elementwise")
    of = weight if re.search("splitK|reduc", kernel.name, re.IGNORECASE) else images
    if (
        "Padding" in kernel.name
        and kernel.blocks * kernel.threads
        and kernel.blocks * kernel.threads < images.elements // 64
    ):
        of = weight
    return _helper(kernel, of.dtype, of.elements, before)
