"""What operators multiply: GEMMs, convolutions and attention, by the shapes of their inputs.

Each function returns the work of an operator as a whole, or None where its shapes are not known; which of its kernels
does it is for `cosmic.traces.profiles.operator_kernels` to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from cosmic.traces.kernel_work import KernelWork
from cosmic.traces.profiles.profiled_operators import ProfiledOperator, ProfiledTensor

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
