"""What kernels move that compute little: bytes read and written, by operator and by the kernel's name.

An operator reads its inputs and writes its outputs, each once. Where that is not so, `TRAFFIC` says what is: a copy
does not read where it writes, an index picks a few rows of a table, and of the several kernels of a backward pass each
has a part. Operators that are not listed count all of their tensors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cosmic.profiles.tensors import Operator, Tensor, tensors_in
from cosmic.profiles.walks import COUNTS, Kernel, fused_words, operations_of, walk_of
from cosmic.traces.kernels import ELEMENT_BYTES, KernelWork

SECTOR_BYTES = 32
"""What a read of one element moves: GPUs read memory in sectors of 32 bytes."""


class Traffic(NamedTuple):
    """Bytes read and written, and the elements that a kernel computes."""

    read: int
    written: int
    elements: int


WRITES_ONLY = (
    "copy_",
    "fill_",
    "zero_",
    "zeros",
    "zeros_like",
    "ones",
    "full",
    "arange",
    "normal_",
    "uniform_",
    "random_",
)
"""Operators that do not read their first input."""
REDUCTIONS = (
    "sum",
    "mean",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "max",
    "min",
    "norm",
    "linalg_vector_norm",
    "var",
    "std",
    "prod",
    "all",
    "any",
)


def stream_of(operator: Operator, kernel: Kernel, share: float = 1.0) -> KernelWork | None:
    """Return what one kernel of an operator moves, *share* of what it moves in all; None where nothing is known of it.

    >>> x = Tensor((1024, 512), "bf16")
    >>> stream_of(Operator("aten::add", (x, x, 1), (x,)), Kernel("vectorized_elementwise_kernel<4>", 256, 128)).text
    'stream bf16 elementwise 2097152 1048576 1048576 524288 256 128'
    """
    known = [*operator.tensors(), *operator.results()]
    if not known or not any(each.is_known for each in known):
        return None
    if not all(each.is_known for each in known if each.elements):
        return None
    found = _traffic(operator, kernel)
    main = max((each for each in known if each.is_known), key=lambda each: each.elements)
    flop = found.elements * operations_of(operator, kernel.name)
    sizes = [round(share * each) for each in (found.read, found.written, flop, found.elements)]
    return KernelWork("stream", main.dtype, (*sizes, kernel.blocks, kernel.threads), walk_of(kernel.name))


def total(tensors: Sequence[Tensor | None]) -> int:
    """Return the bytes of those tensors that are on a device."""
    return sum(each.bytes for each in tensors if each is not None and each.on_device)


def _traffic(operator: Operator, kernel: Kernel) -> Traffic:
    if re.search(COUNTS, kernel.name):
        return Traffic(0, 0, 0)
    if "::" not in operator.name and not operator.outputs:  # a kernel of Triton, which names all that it touches
        return _fused(operator)
    rule = moved_by(operator.base)
    return rule(operator, kernel) if rule else usual(operator)


def usual(operator: Operator) -> Traffic:
    """Return what an operator moves that reads its inputs and writes its outputs.

    An input that is also an output is where the result goes, and is read only by operators that change it in place.

    >>> x, y = Tensor((4, 4), "fp32", id=1), Tensor((4, 4), "fp32", id=2)
    >>> usual(Operator("aten::add_", (x, y), (x,))), usual(Operator("aten::neg", (x, y), (y,))).read
    (Traffic(read=128, written=64, elements=16), 64)
    """
    inputs, results = operator.tensors(), operator.results()
    made = {each.id for each in results if each.id}
    if operator.base in WRITES_ONLY:
        inputs = inputs[1:]
    elif not operator.in_place:
        inputs = [each for each in inputs if each.id not in made]
    if not results:
        results = _guessed(operator)
    elements = max((each.elements for each in (*inputs, *results)), default=0)
    return Traffic(total(inputs), total(results), elements)


def _guessed(operator: Operator) -> list[Tensor]:
    """Return the outputs of an operator where the profile says nothing of them: as large as its largest input."""
    tensors = operator.tensors()
    if not tensors or operator.base.strip("_") in REDUCTIONS:
        return []
    if operator.in_place:
        return tensors[:1]
    shape = max(tensors, key=lambda each: each.elements)
    return [Tensor(shape.shape, shape.dtype)]


def _fused(operator: Operator) -> Traffic:
    """Return what a fused kernel moves: each of its tensors once.

    One that is changed in place is both read and written, and a profile does not say which is. Where an operator that
    takes two tensors has two in all, one of them must be. Rows picked out of a table are as many as the largest other
    tensor has.
    """
    tensors = operator.tensors()
    if "nll_loss_forward" in operator.name and "backward" not in operator.name:
        return _chosen(operator, Kernel(operator.name))
    others = [each for each in tensors if not _is_table(operator, each, tensors)]
    largest = max((each.elements for each in others), default=0)
    moved = sum(min(each.bytes, _row_bytes(each, largest)) for each in tensors)
    full = [each for each in others if each.elements == largest]
    joins = any(word in ("add", "mul", "sub") or word.endswith("backward") for word in fused_words(operator.name))
    if joins and len(full) == 2 and "_poi_" in operator.name:
        return Traffic(moved, full[0].bytes, largest)
    written = min(tensors[-1].bytes, moved)  # outputs come last
    return Traffic(moved - written, written, largest)


def _is_table(operator: Operator, tensor: Tensor, tensors: Sequence[Tensor]) -> bool:
    """Return whether a tensor is a table of embeddings, of which a fused kernel reads the rows of an index."""
    picks = "embedding" in operator.name and "_poi_" not in operator.name
    return (
        picks
        and len(tensor.shape) == 2
        and any(each.dtype == "int64" for each in tensors)
        and _is_largest(tensor, tensors)
    )


def _is_largest(tensor: Tensor, tensors: Sequence[Tensor]) -> bool:
    return all(tensor is each or tensor.elements > each.elements for each in tensors)


def _row_bytes(tensor: Tensor, elements: int) -> int:
    return round(elements * ELEMENT_BYTES[tensor.dtype])


def _picked(operator: Operator, _: Kernel) -> Traffic:
    """Return what an index moves: rows of a table, as many as come out, and the index."""
    results = operator.results()
    index = [each for each in operator.tensors()[1:] if each.dtype in ("int64", "int32", "bool")]
    if not results:
        return usual(operator)
    made = results[0]
    return Traffic(made.bytes + total(index), made.bytes, made.elements)


def _added(operator: Operator, kernel: Kernel) -> Traffic:
    """Return what adding rows where an index says moves: the rows, and as many of the table, read and written."""
    if walk_of(kernel.name) in ("elementwise", "strided") and "index" not in kernel.name:
        made = operator.results() or operator.tensors()[:1]  # the copy of the table that rows are added to
        return Traffic(total(made), total(made), sum(each.elements for each in made[:1]))
    tensors = operator.tensors()
    index = [each for each in tensors[1:] if each.dtype in ("int64", "int32")]
    if walk_of(kernel.name) == "sort":
        return Traffic(2 * total(index), 2 * total(index), sum(each.elements for each in index[:1]))
    rows = [each for each in tensors[1:] if each.dtype not in ("int64", "int32")]
    given = max(rows, key=lambda each: each.elements, default=None)
    moved = given.bytes if given else 0
    return Traffic(2 * moved + total(index), moved, given.elements if given else 0)


def _bag(operator: Operator, _: Kernel) -> Traffic:
    """Return what sums of rows of a table move: the row of each index is read, a sum for each bag written."""
    table, index = operator.tensor(0), operator.tensor(1)
    if table is None or index is None or len(table.shape) != 2:
        return usual(operator)
    rows = Tensor((index.elements, table.shape[1]), table.dtype)
    return Traffic(rows.bytes + index.bytes, total(operator.results()[:1]), rows.elements)


def _table_gradient(operator: Operator, kernel: Kernel) -> Traffic:
    """Return what a kernel of the gradient of a table moves: keys are sorted, rows summed in parts, parts added."""
    gradient, index = operator.tensor(0), operator.tensor(1)
    if gradient is None or index is None or not gradient.shape:
        return usual(operator)
    count, width = index.elements, gradient.shape[-1]
    if walk_of(kernel.name) != "scatter":
        keys = count * ELEMENT_BYTES["int64"]
        return Traffic(round(2 * keys), round(2 * keys), count)
    rows = round(count * width * ELEMENT_BYTES[gradient.dtype])
    parts = round(count * width * ELEMENT_BYTES["fp32"])
    if "sum_and_scatter" in kernel.name:
        return Traffic(parts, rows, count * width)
    return Traffic(rows, parts, count * width)


def _norm_gradient(operator: Operator, kernel: Kernel) -> Traffic:
    """Return what a kernel of the backward pass of a norm moves: gradient and input, and its own result."""
    gradient, inputs = operator.tensor(0), operator.tensor(1)
    if gradient is None or inputs is None:
        return usual(operator)
    small = re.search(r"GammaBeta|backward_reduce|grad_weight|gamma_beta", kernel.name)
    return Traffic(gradient.bytes + inputs.bytes, 0 if small else inputs.bytes, inputs.elements)


def _batch_norm(operator: Operator, kernel: Kernel) -> Traffic:
    """Return what a kernel of a batch norm moves: one sums, one scales, others are small."""
    inputs = operator.tensor(0)
    if inputs is None:
        return usual(operator)
    if re.search(r"multi_outputs|update_stats|invstd", kernel.name):
        small = total([each for each in operator.tensors()[1:] if each.elements < inputs.elements])
        return Traffic(small, small, inputs.shape[1] if len(inputs.shape) > 1 else 1)
    written = 0 if re.search(r"collect_statistics|reduce", kernel.name) else inputs.bytes
    return Traffic(inputs.bytes, written, inputs.elements)


def _chosen(operator: Operator, _: Kernel) -> Traffic:
    """Return what a loss moves that picks one score of each row, a sector of memory for each."""
    target = next((each for each in operator.tensors() if each.dtype == "int64"), None)
    rows = target.elements if target else 0
    picked = rows * SECTOR_BYTES
    backward = "backward" in operator.base
    return Traffic(rows * 8 + (0 if backward else picked), picked if backward else 0, rows)


def _filled(operator: Operator, _: Kernel) -> Traffic:
    """Return what an operator moves that only writes."""
    made = operator.results() or operator.tensors()[:1]
    return Traffic(0, total(made), sum(each.elements for each in made))


def _sliced(operator: Operator, _: Kernel) -> Traffic:
    """Return what a copy into slices moves: its first input is read and written."""
    whole = operator.tensor(0)
    return Traffic(whole.bytes, whole.bytes, whole.elements) if whole else usual(operator)


def _listed(operator: Operator, _: Kernel) -> Traffic:
    """Return what an operator on lists of tensors moves: all are read, and the first list is written in place."""
    lists = [list(tensors_in([each])) for each in operator.inputs if isinstance(each, tuple)]
    if not lists:
        return usual(operator)
    copies = operator.base in ("_foreach_copy_", "_foreach_zero_")
    read = sum(map(total, lists[1:] if copies else lists))
    written = total(lists[0]) if operator.in_place else total(operator.results())
    return Traffic(read, written, sum(each.elements for each in lists[0]))


def _adam(operator: Operator, _: Kernel) -> Traffic:
    """Return what a fused optimizer moves: weights, gradients and moments are read; all but gradients written.

    >>> w = (Tensor((10, 10), "bf16"),)
    >>> _adam(Operator("aten::_fused_adamw_", (w, w, w, w, (), ())), Kernel(""))
    Traffic(read=800, written=600, elements=100)
    """
    lists = [list(tensors_in([each])) for each in operator.inputs if isinstance(each, tuple)]
    state = [each for each in lists if each and any(len(tensor.shape) for tensor in each)]
    written = sum(total(each) for place, each in enumerate(state) if place != 1)
    return Traffic(sum(map(total, state)), written, sum(each.elements for each in state[0]) if state else 0)


LISTS = ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_")
TRAFFIC: dict[str, Callable[[Operator, Kernel], Traffic]] = {
    **dict.fromkeys(("embedding", "index_select", "index", "gather", "take", "take_along_dim"), _picked),
    **dict.fromkeys(
        ("index_add", "index_add_", "scatter_add", "scatter_add_", "index_put_", "_index_put_impl_"), _added
    ),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), _bag),
    **dict.fromkeys(("embedding_dense_backward", "_embedding_bag_dense_backward"), _table_gradient),
    **dict.fromkeys(
        ("native_layer_norm_backward", "_fused_rms_norm_backward", "native_batch_norm_backward"), _norm_gradient
    ),
    **dict.fromkeys(("native_batch_norm", "_batch_norm_with_update", "cudnn_batch_norm"), _batch_norm),
    **dict.fromkeys(("nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward"), _chosen),
    **dict.fromkeys(("fill_", "zero_", "arange", "normal_", "uniform_", "random_"), _filled),
    "split_with_sizes_copy": _sliced,
    **dict.fromkeys(LISTS, _adam),
}
"""Operators that do not move each tensor once."""


def moved_by(base: str) -> Callable[[Operator, Kernel], Traffic] | None:
    """Return the rule for an operator on lists of tensors, by its name."""
    return _listed if base.startswith(("_foreach_", "_amp_foreach")) else TRAFFIC.get(base)
