"""What each kernel of a profile computes: from the operator that launched it, its shapes, and the kernel's name.

`operator_works` is the entry for one operator, `works_of_kernels` for a whole profile. An operator that multiplies
has one kernel that does (two in the backward pass of a convolution) and helpers: memory is cleared, split sums are
added up, gradients are rounded. All kernels of others stream. Where nothing is known of a kernel, its work is None,
never a wrong zero.

A CUDA graph is one launch. A profile names the kernels that it replays, but no operators; a recording of the same
model without graphs has both. So these kernels have the work of kernels of the same name and launch whose operators
are known (`works_by_kernel`). cuBLAS gives GEMMs of different sizes one name and one grid, of as many blocks as
there are SMs: of these, the order decides.

What an operator multiplies (GEMMs, convolutions, attention) follows from the shapes of its inputs: a function for each
kind returns the work of the operator as a whole, or None where its shapes are not known.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from cosmic.step.kernel_prices import ELEMENT_BYTES, KernelWork, parse_work
from cosmic.traces.profiles.event_linking import DEVICE, LinkedEvents
from cosmic.traces.profiles.execution_traces import ExecutionTrace, parse_side
from cosmic.traces.profiles.kineto import OPERATOR, Kineto
from cosmic.traces.profiles.profiled_collectives import is_collective_kernel
from cosmic.traces.profiles.profiled_operators import (
    Kernel,
    ProfiledOperator,
    ProfiledTensor,
    operator_of_execution_trace,
    operator_of_kineto,
    stream_work,
    walk_of,
)

TENSOR_CORES = re.compile(r"tf32|s1688|f32f32_tf32|tensorop_s")
"""In a kernel's name: operands of single precision are rounded to tf32."""
NUMBERS = ("bf16", "fp16", "fp8", "fp4", "int8", "fp64")


class AttentionArguments(NamedTuple):
    """Where an operator of attention takes its arguments."""

    queries: int
    """The place of the queries; keys and values follow."""
    causal: int
    """The place of the flag, or of a type of mask that is not 0."""
    tokens_first: bool = False
    """Whether tensors are (batch, tokens, heads, width) rather than (batch, heads, tokens, width)."""


ATTENTION = {
    "_scaled_dot_product_flash_attention": AttentionArguments(0, 4),
    "_scaled_dot_product_flash_attention_for_cpu": AttentionArguments(0, 4),
    "_scaled_dot_product_efficient_attention": AttentionArguments(0, 6),
    "_scaled_dot_product_cudnn_attention": AttentionArguments(0, 6),
    "_scaled_dot_product_fused_attention_overrideable": AttentionArguments(0, 5),
    "_flash_attention_forward": AttentionArguments(0, 8, tokens_first=True),
    "_efficient_attention_forward": AttentionArguments(0, 9, tokens_first=True),
    "_cudnn_attention_forward": AttentionArguments(0, 10),
    "_flash_attn_forward": AttentionArguments(0, 5, tokens_first=True),
}
ATTENTION_BACKWARD = {
    "_scaled_dot_product_flash_attention_backward": AttentionArguments(1, 11),
    "_scaled_dot_product_flash_attention_for_cpu_backward": AttentionArguments(1, 7),
    "_scaled_dot_product_efficient_attention_backward": AttentionArguments(1, 11),
    "_scaled_dot_product_cudnn_attention_backward": AttentionArguments(1, 14),
    "_scaled_dot_product_fused_attention_overrideable_backward": AttentionArguments(1, 13),
    "_flash_attention_backward": AttentionArguments(1, 11, tokens_first=True),
    "_efficient_attention_backward": AttentionArguments(1, 14, tokens_first=True),
    "_cudnn_attention_backward": AttentionArguments(1, 14),
    "_flash_attn_backward": AttentionArguments(1, 11, tokens_first=True),
}
"""Arguments as PyTorch's native_functions.yaml and the flash_attn package order them."""


def number_of(tensor: ProfiledTensor, kernel: str) -> str:
    """Return the number format in which a kernel multiplies.

    >>> single = ProfiledTensor((8, 8), "fp32")
    >>> number_of(single, "cutlass_80_simt_sgemm"), number_of(single, "sm80_s1688gemm_tf32")
    ('fp32', 'tf32')
    """
    if tensor.dtype in NUMBERS:
        return tensor.dtype
    return "tf32" if TENSOR_CORES.search(kernel) else "fp32"


def gemm_of(operator: ProfiledOperator, kernel: str) -> KernelWork | None:
    """Return the GEMM of an operator.

    >>> x, w = ProfiledTensor((4096, 1024), "bf16"), ProfiledTensor((1024, 3072), "bf16")
    >>> gemm_of(ProfiledOperator("aten::mm", (x, w)), "nvjet").text
    'gemm bf16 1 4096 3072 1024'
    """
    operands = OPERANDS[operator.base](operator)
    if operands is None:
        return None
    count, m, n, k, first = operands
    return KernelWork("gemm", number_of(first, kernel), (count, m, n, k))


Sizes = tuple[int, int, int, int, ProfiledTensor]


def _matrix_operands(operator: ProfiledOperator, first: int) -> Sizes | None:
    """Return count, m, n and k of two inputs that are matrices, or batches of as many matrices."""
    left, right = operator.tensor(first), operator.tensor(first + 1)
    if left is None or right is None or len(left.shape) != len(right.shape) or len(left.shape) not in (2, 3):
        return None
    count = left.shape[0] if len(left.shape) == 3 else 1
    return count, left.shape[-2], right.shape[-1], left.shape[-1], left


def _vector_operands(operator: ProfiledOperator, first: int) -> Sizes | None:
    """Return the sizes of a matrix times a vector, or of two vectors."""
    left, right = operator.tensor(first), operator.tensor(first + 1)
    if left is None or right is None or len(right.shape) != 1 or not left.shape:
        return None
    return 1, prod(left.shape[:-1]), 1, left.shape[-1], left


def _linear_operands(operator: ProfiledOperator) -> Sizes | None:
    """Return the sizes of rows times a weight that is kept as (columns out, columns in)."""
    rows, weight = operator.tensor(0), operator.tensor(1)
    if rows is None or weight is None or len(weight.shape) != 2 or not rows.shape:
        return None
    return 1, prod(rows.shape[:-1]), weight.shape[0], rows.shape[-1], rows


def _matmul_operands(operator: ProfiledOperator) -> Sizes | None:
    """Return the sizes of a batched GEMM; the smaller batch is broadcast over the larger."""
    left, right = operator.tensor(0), operator.tensor(1)
    if left is None or right is None or len(left.shape) < 2 or len(right.shape) < 2:
        return _vector_operands(operator, 0)
    if len(right.shape) == 2:
        return 1, prod(left.shape[:-1]), right.shape[-1], left.shape[-1], left
    count = max(prod(left.shape[:-2]), prod(right.shape[:-2]))
    return count, left.shape[-2], right.shape[-1], left.shape[-1], left


OPERANDS: dict[str, Callable[[ProfiledOperator], Sizes | None]] = {
    "mm": lambda each: _matrix_operands(each, 0),
    "bmm": lambda each: _matrix_operands(each, 0),
    "_int_mm": lambda each: _matrix_operands(each, 0),
    "_scaled_mm": lambda each: _matrix_operands(each, 0),
    "addmm": lambda each: _matrix_operands(each, 1),
    "addmm_": lambda each: _matrix_operands(each, 1),
    "_addmm_activation": lambda each: _matrix_operands(each, 1),
    "baddbmm": lambda each: _matrix_operands(each, 1),
    "baddbmm_": lambda each: _matrix_operands(each, 1),
    "mv": lambda each: _vector_operands(each, 0),
    "dot": lambda each: _vector_operands(each, 0),
    "addmv": lambda each: _vector_operands(each, 1),
    "addmv_": lambda each: _vector_operands(each, 1),
    "linear": _linear_operands,
    "matmul": _matmul_operands,
}
"""How operators that multiply matrices name their sizes."""


def grouped_gemm_of(operator: ProfiledOperator, kernel: str) -> KernelWork | None:
    """Return the GEMMs of `_grouped_mm`: rows in groups, or the sum over rows cut into groups.

    >>> rows, weights = ProfiledTensor((512, 64), "bf16"), ProfiledTensor((8, 64, 32), "bf16")
    >>> grouped_gemm_of(ProfiledOperator("aten::_grouped_mm", (rows, weights)), "").text
    'grouped_gemm bf16 8 512 32 64'

    Where both are matrices, their common dimension is cut: a product of 64 x 32 for each of the 8 groups.

    >>> left, right, ends = ProfiledTensor((64, 512), "bf16"), ProfiledTensor((512, 32), "bf16"), ProfiledTensor((8,), "int32")
    >>> grouped_gemm_of(ProfiledOperator("aten::_grouped_mm", (left, right, ends)), "").text
    'grouped_gemm bf16 8 512 32 64'
    """
    left, right = operator.tensor(0), operator.tensor(1)
    ends = next(
        (tensor for tensor in operator.tensors()[2:] if tensor.dtype == "int32" and len(tensor.shape) == 1), None
    )
    if left is None or right is None or len(left.shape) < 2 or len(right.shape) < 2:
        return None
    number, shapes = number_of(left, kernel), (len(left.shape), len(right.shape))
    if shapes == (2, 3):
        sizes = (right.shape[0], left.shape[0], right.shape[2], left.shape[1])
    elif shapes == (3, 2):
        sizes = (left.shape[0], right.shape[1], left.shape[1], left.shape[2])
    elif shapes == (3, 3):
        sizes = (left.shape[0], left.shape[0] * left.shape[1], right.shape[2], left.shape[2])
    elif ends is not None:
        sizes = (ends.shape[0], left.shape[1], right.shape[1], left.shape[0])
    else:
        return None
    return KernelWork("grouped_gemm", number, sizes)


def convolution_of(operator: ProfiledOperator, kernel: str, phase: str = "fprop") -> KernelWork | None:
    """Return a convolution as an implicit GEMM: forward, or the gradient of its input (dgrad) or weight (wgrad).

    A product of (images x places) rows, output channels, and input channels x window:

    >>> x, w, y = ProfiledTensor((64, 64, 56, 56), "bf16"), ProfiledTensor((64, 64, 3, 3), "bf16"), ProfiledTensor((64, 64, 56, 56), "bf16")
    >>> convolution_of(ProfiledOperator("aten::cudnn_convolution", (x, w), (y,)), "").text
    'convolution bf16 1 200704 64 576 51453952'
    >>> convolution_of(ProfiledOperator("aten::convolution_backward", (y, x, w)), "", "wgrad").text
    'convolution bf16 1 64 576 200704 51453952'
    """
    images, weight, result = _convolution_tensors(operator)
    if images is None or weight is None or result is None or len(images.shape) < 3:
        return None
    channels = images.shape[1]
    if len(weight.shape) != len(images.shape) or not weight.shape[1] or not channels or channels % weight.shape[1]:
        return None
    groups = channels // weight.shape[1]
    positions, window = prod((result.shape[0], *result.shape[2:])), prod(weight.shape[2:])
    out, inside = weight.shape[0] // groups, weight.shape[1]
    sizes = {
        "fprop": (groups, positions, out, inside * window),
        "dgrad": (
            groups,
            prod((images.shape[0], *images.shape[2:])),
            inside,
            out * positions * window // max(prod((images.shape[0], *images.shape[2:])), 1),
        ),
        "wgrad": (groups, out, inside * window, positions),
    }[phase]
    moved = sum(tensor.bytes for tensor in (images, weight, result))
    return KernelWork("convolution", number_of(images, kernel), (*sizes, moved))


def _convolution_tensors(
    operator: ProfiledOperator,
) -> tuple[ProfiledTensor | None, ProfiledTensor | None, ProfiledTensor | None]:
    """Return input, weight and output of a convolution, forward or backward."""
    if "backward" in operator.base:
        return operator.tensor(1), operator.tensor(2), operator.tensor(0)
    images, weight = operator.tensor(0), operator.tensor(1)
    results = operator.results()
    return images, weight, results[0] if results else _convolution_output(operator, images, weight)


def _convolution_output(
    operator: ProfiledOperator, images: ProfiledTensor | None, weight: ProfiledTensor | None
) -> ProfiledTensor | None:
    """Return the output that strides, padding and dilation give, which follow the weight (and a bias) in that order."""
    if images is None or weight is None:
        return None
    lists = [
        input_
        for input_ in operator.inputs[2:]
        if isinstance(input_, tuple) and all(isinstance(x, int) for x in input_)
    ]
    dims = len(images.shape) - 2
    order = ("padding", "stride", "dilation") if "cudnn" in operator.base else ("stride", "padding", "dilation")
    geometry = dict(zip(order, lists, strict=False))
    if any(len(numbers) != dims for numbers in geometry.values()) or len(geometry) < len(order):
        return None
    if not all(geometry["stride"]):
        return None
    sides = [
        (size + 2 * pad - hop * (window - 1) - 1) // stride + 1
        for size, window, pad, stride, hop in zip(
            images.shape[2:],
            weight.shape[2:],
            geometry["padding"],
            geometry["stride"],
            geometry["dilation"],
            strict=False,
        )
    ]
    return ProfiledTensor((images.shape[0], weight.shape[0], *(max(side, 0) for side in sides)), images.dtype)


def attention_of(operator: ProfiledOperator) -> KernelWork | None:
    """Return the attention of an operator, forward or backward.

    >>> q, k = ProfiledTensor((2, 32, 2048, 128), "bf16"), ProfiledTensor((2, 8, 2048, 128), "bf16")
    >>> attention_of(ProfiledOperator("aten::_scaled_dot_product_flash_attention", (q, k, k, 0.0, True))).text
    'attention bf16 2 32 8 2048 2048 128 128 1'
    """
    backward = operator.base in ATTENTION_BACKWARD
    signature = (ATTENTION_BACKWARD if backward else ATTENTION)[operator.base]
    tensors = [operator.tensor(signature.queries + step) for step in range(3)]
    shapes = [_four_dimensions(tensor, signature.tokens_first) for tensor in tensors if tensor is not None]
    if len(shapes) < 3 or not all(shapes):
        return None
    (batch, heads, queries, width), (_, kv_heads, keys, _), values = shapes
    flag = operator.inputs[signature.causal] if signature.causal < len(operator.inputs) else False
    sizes = (batch, heads, kv_heads, queries, keys, width, values[3], int(bool(flag)))
    number = (
        tensors[0].dtype if tensors[0] is not None and tensors[0].dtype in ("bf16", "fp16", "fp8", "fp32") else "bf16"
    )
    return KernelWork("attention_backward" if backward else "attention", number, sizes)


def template_of(operator: ProfiledOperator) -> KernelWork | None:
    """Return the work of a compiler's own GEMM or attention, from the tensors that it touches; its output is last.

    >>> x, w, y = ProfiledTensor((512, 64), "bf16"), ProfiledTensor((256, 64), "bf16"), ProfiledTensor((512, 256), "bf16")
    >>> template_of(ProfiledOperator("triton_tem_fused_mm_t_0", (x, w, y))).text
    'gemm bf16 1 512 256 64'
    """
    tensors = [tensor for tensor in operator.tensors() if len(tensor.shape) > 1]
    if len(tensors) < 3 or "backward" in operator.name:
        return None
    first, result = tensors[0], tensors[-1]
    if "flex_attention" in operator.name:
        shapes = [_four_dimensions(tensor, tokens_first=False) for tensor in tensors[:3]]
        if not all(shapes):
            return None
        (batch, heads, queries, width), (_, kv_heads, keys, _), values = shapes
        return KernelWork("attention", "bf16", (batch, heads, kv_heads, queries, keys, width, values[3], 0))
    if not re.search(r"mm(_|$)", operator.name) or not first.elements:
        return None
    count = first.shape[0] if len(first.shape) == 3 else 1
    rows = first.elements // first.shape[-1]
    return KernelWork(
        "gemm", number_of(first, "tf32"), (count, rows // count, result.elements // rows, first.shape[-1])
    )


def _four_dimensions(tensor: ProfiledTensor, tokens_first: bool) -> Sequence[int]:
    """Return batch, heads, tokens and width; of packed sequences, all tokens are one sequence."""
    shape = tensor.shape
    if len(shape) == 3 and tokens_first:
        return 1, shape[1], shape[0], shape[2]
    if len(shape) != 4:
        return ()
    return (shape[0], shape[2], shape[1], shape[3]) if tokens_first else shape


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


class KernelLaunch(NamedTuple):
    """How a kernel was launched; for copies, what it moved."""

    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    bytes: int | None = None


def operator_works(
    operator: ProfiledOperator | None, kernel_names: Sequence[str], launches: Sequence[KernelLaunch | None] = ()
) -> list[KernelWork | None]:
    """Return the work of each kernel that an operator launched, in order; None where it is not known.

    >>> from cosmic.traces.profiles.profiled_operators import ProfiledTensor
    >>> x, w = ProfiledTensor((4096, 1024), "bf16"), ProfiledTensor((1024, 3072), "bf16")
    >>> kernels, launches = ["Memset (Device)", "nvjet_sm90_tst_256x128"], [KernelLaunch(bytes=4), None]
    >>> found = operator_works(ProfiledOperator("aten::mm", (x, w)), kernels, launches)
    >>> [work.text for work in found]
    ['memset uint8 4', 'gemm bf16 1 4096 3072 1024']
    """
    kernels = [
        kernel_of(name, launches[index] if index < len(launches) else None) for index, name in enumerate(kernel_names)
    ]
    works: list[KernelWork | None] = [copy_work(kernel, operator) for kernel in kernels]
    computing = [
        index
        for index, kernel in enumerate(kernels)
        if not _is_copy(kernel.name)
        and not (kernel.name.startswith(("nccl", "rccl", "msccl")) or "nvshmem" in kernel.name)
    ]
    if operator is None or COMPOSED.search(operator.name):
        return works
    for position, work in zip(
        computing, _compute_works(operator, [kernels[position] for position in computing]), strict=True
    ):
        works[position] = work
    return works


def kernel_of(name: str, launch: KernelLaunch | None) -> Kernel:
    """Return a kernel by its name and how it was launched."""
    if launch is None:
        return Kernel(name)
    return Kernel(
        name, prod(launch.grid) if launch.grid else 0, prod(launch.block) if launch.block else 0, launch.bytes
    )


def _is_copy(name: str) -> bool:
    return name.startswith(("Memset", "Memcpy"))


def copy_work(kernel: Kernel, operator: ProfiledOperator | None) -> KernelWork | None:
    """Return a copy or a memset; its bytes are those of the operator's first tensor where the profile has none."""
    if not _is_copy(kernel.name):
        return None
    moved = kernel.bytes
    if moved is None and operator is not None and operator.base == "copy_" and operator.tensor(0) is not None:
        moved = sum(tensor.bytes for tensor in operator.tensors()[:1])
    if moved is None:
        return None
    kind = next((kind for word, kind in COPIES.items() if word in kernel.name), None)
    if kernel.name.startswith("Memset"):
        kind = "memset"
    return KernelWork(kind, "uint8", (moved,)) if kind else None


def _compute_works(operator: ProfiledOperator, kernels: Sequence[Kernel]) -> list[KernelWork | None]:
    """Return the works of kernels that are no copies."""
    base = operator.base
    if RECURRENCES.search(base):
        return [None] * len(kernels)
    if TEMPLATE.search(base):
        return [template_of(operator) for _ in kernels]
    if base in OPERANDS or base in ("_grouped_mm", "_scaled_grouped_mm"):
        # The works of a GEMM's kernels: the first that multiplies, or the only one, and helpers
        own = [own_index for own_index, candidate in enumerate(kernels) if not HELPS.search(candidate.name)]
        mains = [own_index for own_index in own if MULTIPLIES.search(kernels[own_index].name)] or own
        works: list[KernelWork | None] = []
        for position, launched in enumerate(kernels):
            grouped = "grouped" in operator.base
            gemm = grouped_gemm_of(operator, launched.name) if grouped else gemm_of(operator, launched.name)
            if gemm is None or mains[:1] == [position]:
                works.append(gemm)
            else:
                result_elements = gemm["count"] * gemm["m"] * gemm["n"] if not grouped else gemm["m"] * gemm["n"]
                works.append(_gemm_helper(launched, gemm.dtype, result_elements, kernels[mains[0]] if mains else None))
        return works
    if base in ATTENTION or base in ATTENTION_BACKWARD:
        # The works of attention's kernels: the one that multiplies, and what streams before and after it
        work = attention_of(operator)
        if work is None:
            return [None] * len(kernels)
        main = next((index for index, kernel in enumerate(kernels) if not HELPS.search(kernel.name)), -1)
        return [work if index == main else _attention_helper(work, kernel) for index, kernel in enumerate(kernels)]
    if CONVOLUTIONS.search(base):
        return _convolution_works(operator, kernels)
    if any(walk_of(kernel.name) in ("optimizer", "foreach") for kernel in kernels):
        blocks = sum(kernel.blocks for kernel in kernels)
        shares = [kernel.blocks / blocks if blocks else 1 / len(kernels) for kernel in kernels]
        return [stream_work(operator, kernel, share) for kernel, share in zip(kernels, shares, strict=True)]
    # Whether a kernel multiplies, by its name; kernels of compilers say so in other words
    return [
        None
        if (
            bool(MULTIPLIES.search(kernel.name))
            and not HELPS.search(kernel.name)
            and walk_of(kernel.name) in ("elementwise", "strided")
        )
        else stream_work(operator, kernel)
        for kernel in kernels
    ]


def _gemm_helper(kernel: Kernel, dtype: str, elements: int, main: Kernel | None = None) -> KernelWork:
    """Return the work of a kernel beside a GEMM: it adds up the parts of a split sum, or copies a result."""
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


def _attention_helper(work: KernelWork, kernel: Kernel) -> KernelWork:
    """Return the work of a kernel that streams beside attention.

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


def _convolution_works(operator: ProfiledOperator, kernels: Sequence[Kernel]) -> list[KernelWork | None]:
    """Return the works of a convolution's kernels; backward, the input's gradient comes before the weight's."""
    backward = "backward" in operator.base
    works: list[KernelWork | None] = []
    phases = _gradients(operator) if backward else ["fprop"]
    before: Kernel | None = None
    for kernel in kernels:
        if HELPS.search(kernel.name) or not MULTIPLIES.search(kernel.name) or not phases:
            works.append(_convolution_helper(operator, kernel, before))
            continue
        phase = _convolution_phase(kernel.name, phases)
        works.append(convolution_of(operator, kernel.name, phase))
        phases = [other for other in phases if other != phase]
        before = kernel
    return works


def _gradients(operator: ProfiledOperator) -> list[str]:
    """Return which gradients the mask of a convolution's backward pass asks for: both where it is not known."""
    mask = next(
        (input_ for input_ in reversed(operator.inputs) if isinstance(input_, tuple) and len(input_) == len(MASK)), ()
    )
    wanted = [phase for phase, flag in zip(MASK, mask, strict=False) if phase and flag is True]
    return wanted or ["dgrad", "wgrad"]


def _convolution_phase(name: str, remaining: Sequence[str]) -> str:
    """Return which gradient a kernel makes, by its name: the weight's multiplies two matrices of as many rows."""
    for phase in ("dgrad", "wgrad"):
        if phase in name and phase in remaining:
            return phase
    layout = re.search(r"_(NT[NT]|nt)(_|$)", name)
    return "wgrad" if layout and "wgrad" in remaining else remaining[0]


def _convolution_helper(operator: ProfiledOperator, kernel: Kernel, before: Kernel | None) -> KernelWork | None:
    """Return the work of a kernel beside a convolution: partial sums of the weight's gradient, or padded tensors."""
    tensors = operator.tensors()
    if len(tensors) < 2 or not all(tensor.is_known for tensor in tensors):
        return None
    weight, images = (
        (tensors[2], tensors[1]) if "backward" in operator.base and len(tensors) > 2 else (tensors[1], tensors[0])
    )
    if "workspace" in kernel.name:
        return KernelWork("stream", weight.dtype, (0, 0, 0, 0, kernel.blocks, kernel.threads), "elementwise")
    operand = weight if re.search("splitK|reduc", kernel.name, re.IGNORECASE) else images
    if (
        "Padding" in kernel.name
        and kernel.blocks * kernel.threads
        and kernel.blocks * kernel.threads < images.elements // 64
    ):
        operand = weight
    return _gemm_helper(kernel, operand.dtype, operand.elements, before)


GROWING = ("elementwise", "strided", "fused")
"""Kernels whose work is as many times larger as they have blocks."""
Key = tuple[str, tuple[int, ...], tuple[int, ...]]


def works_by_kernel(
    kernels: Sequence[tuple[str, KernelLaunch]], described: Sequence[tuple[str, KernelLaunch, KernelWork | None]]
) -> list[KernelWork | None]:
    """Return the work of each kernel of a graph: that of a *described* one of the same name, grid and block, or None.

    Both are in the order in which they ran. Where as many are known, or a divisor of as many, the n-th takes the n-th
    work; otherwise that at the same part of the way. An elementwise kernel of which only other grids are known takes a
    work in proportion to its blocks.

    >>> add = KernelWork("stream", "bf16", (400, 200, 100, 100, 1, 128), "elementwise")
    >>> once, twice, other = KernelLaunch((1,), (128,)), KernelLaunch((2,), (128,)), KernelLaunch((2,), (64,))
    >>> kernels = [("add", once), ("add", twice), ("add", other)]
    >>> [each and each.text for each in works_by_kernel(kernels, [("add", once, add)])]
    ['stream bf16 elementwise 400 200 100 100 1 128', 'stream bf16 elementwise 800 400 200 200 2 128', None]
    """
    works: dict[Key, list[KernelWork]] = {}
    grown: dict[tuple[str, tuple[int, ...]], KernelWork] = {}
    for name, launch, work in described:
        if work is not None:
            works.setdefault((name, launch.grid, launch.block), []).append(work)
            if work.walk in GROWING and work["blocks"]:
                grown.setdefault((name, launch.block), work)
    keys = [(name, launch.grid, launch.block) for name, launch in kernels]
    counts, seen = Counter(keys), Counter[Key]()
    assigned: list[KernelWork | None] = []
    for key, (name, launch) in zip(keys, kernels, strict=True):
        own = works.get(key)
        if own:
            # Works repeat in order; where counts do not divide, neighbours share one.
            assigned.append(
                own[seen[key] % len(own)] if counts[key] % len(own) == 0 else own[seen[key] * len(own) // counts[key]]
            )
        else:
            assigned.append(_scale_to_blocks(grown.get((name, launch.block)), name, launch))
        seen[key] += 1
    return assigned


def _scale_to_blocks(work: KernelWork | None, name: str, launch: KernelLaunch) -> KernelWork | None:
    """Return a work in proportion to the blocks of a launch, or that of a copy."""
    kernel = kernel_of(name, launch)
    if work is None or not kernel.blocks:
        return copy_work(kernel, None)
    sizes = [round(size * kernel.blocks / work["blocks"]) for size in work.sizes[:4]]
    return replace(work, sizes=(*sizes, kernel.blocks, kernel.threads))


Works = list[str | None]
BLOCK_BYTES_PER_NS = 256
"""The most that a block moves: an SM reads 128 bytes a cycle from its cache (NVIDIA, Volta to Hopper), at 2 GHz."""
MOST_SMS = 320
"""More than any accelerator has: so many blocks move something at a time."""


def works_of_kernels(trace: Kineto, linked: LinkedEvents, details: ExecutionTrace | None) -> dict[int, str]:
    """Return the work of each kernel that is known, as text, by its entry in `Kineto.device`."""
    is_collective = np.array([is_collective_kernel(name) for name in trace.names], bool)
    nodes = np.flatnonzero(linked.kind == DEVICE)
    nodes = nodes[~is_collective[trace.device.name[linked.entry[nodes]]]] if len(is_collective) else nodes
    parent = linked.parent[nodes]
    operators = np.where(parent >= 0, linked.entry[parent], -1)
    operators[np.append(trace.host.category, -1)[operators] != OPERATOR] = -1
    by_operator: dict[int, list[int]] = {}
    alone: list[int] = []
    for entry, operator in zip(linked.entry[nodes].tolist(), operators.tolist(), strict=True):
        if operator >= 0:
            by_operator.setdefault(operator, []).append(entry)
        else:
            alone.append(entry)
    describer = _WorkDescriber(trace, details)
    works: dict[int, str] = {}
    for operator, entries in by_operator.items():
        for entry, text in zip(entries, describer.works(operator, entries), strict=True):
            if text is not None:
                works[entry] = text
    works = _drop_impossible(trace, works)
    works.update(_drop_impossible(trace, _graph_works(trace, alone, works)))
    return works


def _drop_impossible(trace: Kineto, works: dict[int, str]) -> dict[int, str]:
    """Return *works* without those that kernels cannot have done in the time that they took.

    An operator may launch a small kernel beside the one that walks through its tensors, and a recurrence one for each
    step of its sequence: what such a kernel moves is not known.
    """
    device = trace.device
    durations = (device.end - device.start).tolist()
    parsed = {text: parse_work(text) for text in set(works.values())}
    least = {text: _least_ns(work) for text, work in parsed.items()}
    return {entry: text for entry, text in works.items() if least[text] <= durations[entry]}


def _least_ns(work: KernelWork) -> float:
    """Return the least nanoseconds of a kernel whose blocks are known: all of them at the rate of their caches.

    >>> _least_ns(parse_work("stream fp32 reduce 25000 600 0 6250 1 256"))
    100.0
    """
    if work.kind != "stream" or not work["blocks"]:
        return 0.0
    return (work["read"] + work["written"]) / (BLOCK_BYTES_PER_NS * min(work["blocks"], MOST_SMS))


class _WorkDescriber:
    """Finds what kernels compute; operators of the same shapes that launch the same kernels are looked at once."""

    def __init__(self, trace: Kineto, details: ExecutionTrace | None) -> None:
        self._trace = trace
        self._known: dict[Any, Works] = {}
        device = trace.device
        self._kernel_launches = list(zip(device.name.tolist(), device.launch, device.bytes.tolist(), strict=True))
        self._functions, self._names = trace.host.function.tolist(), trace.host.name.tolist()
        self._detailed = details.details if details is not None else {}

    def works(self, operator: int, entries: Sequence[int]) -> Works:
        """Return the works of the kernels at *entries*, which *operator* launched."""
        trace, device = self._trace, self._trace.device
        launched = tuple(map(self._kernel_launches.__getitem__, entries))
        function = self._functions[operator]
        called = trace.inputs.get(operator) or (function if function in self._detailed else -1 - operator)
        key = self._names[operator], called, launched
        texts = self._known.get(key)
        if texts is None:
            names = [trace.names[device.name[entry]] for entry in entries]
            launches = [_launch(trace, entry) for entry in entries]
            works = operator_works(self._operator(operator), names, launches)
            texts = self._known[key] = [None if work is None else work.text for work in works]
        return texts

    def _operator(self, entry: int) -> ProfiledOperator | None:
        trace = self._trace
        name = trace.names[trace.host.name[entry]]
        detail = self._detailed.get(self._functions[entry])
        described = ProfiledOperator(name)
        if detail is not None:
            described = operator_of_execution_trace(detail.name, parse_side(detail.inputs), parse_side(detail.outputs))
        if described.tensors() or entry not in trace.inputs:
            return described
        shapes, types, values = (_listed(text) for text in trace.inputs[entry])
        return operator_of_kineto(name, {"Input Dims": shapes, "Input type": types, "Concrete Inputs": values})


def _listed(text: bytes) -> list[Any]:
    try:
        values = json.loads(text) if text else []
    except ValueError:
        return []
    return values if isinstance(values, list) else []


def _launch(trace: Kineto, entry: int) -> KernelLaunch:
    """Return how a kernel was launched."""
    text, size = trace.device.launch[entry], int(trace.device.bytes[entry])
    grid, _, block = text.decode(errors="replace").partition("]")
    return KernelLaunch(_numbers(grid), _numbers(block), size if size >= 0 else None)


def _numbers(text: str) -> tuple[int, ...]:
    words = text.replace("[", " ").replace("]", " ").replace(",", " ").split()
    return tuple(int(word) for word in words if word.isdecimal())


def _graph_works(trace: Kineto, alone: Sequence[int], described: dict[int, str]) -> dict[int, str]:
    """Return the works of kernels without an operator (of CUDA graphs): those of equal kernels that have one."""
    if not alone:
        return {}
    names, device = trace.names, trace.device
    others: list[tuple[str, KernelLaunch, KernelWork | None]] = [
        (names[device.name[entry]], _launch(trace, entry), parse_work(text)) for entry, text in described.items()
    ]
    kernels = [(names[device.name[entry]], _launch(trace, entry)) for entry in alone]
    works = works_by_kernel(kernels, others)
    return {entry: work.text for entry, work in zip(alone, works, strict=True) if work is not None}
