"""How kernels walk through memory, and what they compute for each element, by their names.

PyTorch's kernels are templates whose names say what they are; a compiler's kernels list the operators that they fuse.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cosmic.profiles.constants import CONSTANTS
from cosmic.profiles.tensors import Operator


class Kernel(NamedTuple):
    """A kernel as a profile knows it."""

    name: str
    blocks: int = 0
    threads: int = 0
    """Of a block."""
    bytes: int | None = None
    """Moved by a copy, where the profile says so."""


COUNTS = r"InitKernel|ExclusiveSum|init_device_workspace|compute_num_of"
"""In the names of kernels that set a few counters, whatever their operator moves."""
WALK_OF = (
    ("elementwise", rf"{COUNTS}|splitKreduce|ReduceSplitK"),
    ("fused_sum", r"^triton_(red|per|mix|split)"),
    ("fused", r"^triton_"),
    ("optimizer", r"[Ff]used_?(Adam|Optimizer|SGD|adam|sgd)"),
    ("foreach", r"multi_tensor_apply"),
    ("sort", r"[Rr]adix|[Ss]ort|topk|TopK|Device(Scan|Unique|Compact|Reduce)|[Hh]istogram|segment(?!_k_)"),
    ("strided", r"_scatter_gather_elementwise"),
    ("gather", r"indexing_backward"),
    ("scatter", r"scatter|embedding_backward|grad_weight|index_?[Aa]dd|indexFunc|index_put|atomic"),
    ("gather", r"gather|EmbeddingBag|index_kernel|index_?[Ss]elect|embedding|nll_loss"),
    ("reduce", r"GammaBeta|batch_norm.*(reduce|collect)|[Rr]educe(?!_head)|ComputeInternalGradients"),
    ("norm", r"softmax_warp|SoftMax\w*Smem"),
    ("softmax", r"[Ss]oft_?[Mm]ax"),
    ("norm", r"layer_norm|LayerNorm|rms_norm|RMSNorm|RowwiseMoments|GroupNorm"),
    (
        "strided",
        r"(^|[: ])(unrolled_)?elementwise_kernel<|index_elementwise|CatArrayBatchedCopy<|transpose|nchwTo|nhwcTo",
    ),
)
"""How a kernel walks through memory, by its name; the first that fits counts, and elementwise where none does."""
_WALKS = tuple((walk, re.compile(pattern)) for walk, pattern in WALK_OF)
OPERATIONS = {each.name: each.count for each in CONSTANTS.operations}
"""Operations of the vector units for an element, by operator, or by a part of a kernel's name."""
FEW = 2
"""Operations of operators that are not listed."""
PARTS = ("collect_statistics", "backward_reduce", "backward_elemt", "transform_input")
"""Kernels of a batch norm, by a part of their names."""


def walk_of(kernel: str) -> str:
    """Return how a kernel walks through memory, by its name.

    >>> walk_of("void at::native::vectorized_elementwise_kernel<8, FillFunctor"), walk_of("triton_poi_fused_add_0")
    ('elementwise', 'fused')
    """
    return next((walk for walk, pattern in _WALKS if pattern.search(kernel)), "elementwise")


def operations_of(operator: Operator, kernel: str = "") -> int:
    """Return the operations for an element: of all operators that a fused kernel's name lists.

    A fused kernel that sums does so after another has computed; only a softmax is both.

    >>> operations_of(Operator("aten::gelu")), operations_of(Operator("aten::add"))
    (55, 2)
    >>> operations_of(Operator("triton_poi_fused_add_gelu_3")), operations_of(Operator("triton_red_fused_gelu_sum_3"))
    (57, 2)
    """
    base = operator.base.strip("_")
    if operator.name.startswith("triton_"):
        words = [each for each in fused_words(operator.name) if walk_of(operator.name) == "fused" or each == "softmax"]
        return sum(OPERATIONS.get(word, 0) for word in words) + FEW
    if "adam" in base:
        return OPERATIONS["adam"]
    if "batch_norm" in base:
        return next((OPERATIONS[part] for part in PARTS if part in kernel), FEW)
    if base == "cat" and walk_of(kernel) != "strided":
        return FEW
    return OPERATIONS.get(base.removeprefix("foreach_"), FEW)


def fused_words(name: str) -> list[str]:
    """Return the operators in the name of a kernel that a compiler fused.

    >>> fused_words("triton_poi_fused__unsafe_view_gelu_gelu_backward_7")
    ['gelu', 'gelu_backward']
    """
    words = name.split("_fused_", 1)[-1].split("_")
    found = []
    for place, word in enumerate(words):
        if (word in OPERATIONS and word != "cat") or word in ("add", "mul", "sub"):  # a fused kernel joins for free
            after = words[place + 1] if place + 1 < len(words) else ""
            found.append(f"{word}_backward" if after == "backward" and f"{word}_backward" in OPERATIONS else word)
    return found
