"""Flop and bytes of each kind of operator, and the activations that its backward pass needs.

Quantities are functions of sizes that may be arrays: one call serves a whole batch of mappings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from cosmic.base.numeric import Numeric, sum_of
from cosmic.base.registry import Registry
from cosmic.workload.operator_graph import Operator, Sizes, Tensor, elements

Local = Callable[[Iterable[str]], Numeric]
"""Returns the number of elements that one accelerator holds of a tensor with the given dimensions."""


@dataclass(frozen=True, slots=True)
class OperatorKind:
    """The rules of one kind of operator."""

    flop_per_element: float = 0.0
    """Operations per element of the outputs (of the index space, for an einsum)."""
    index_space: bool = False
    """Whether it works on every combination of all its dimensions, as an einsum does."""
    keeps_inputs: bool = False
    """Whether the backward pass needs its input activations."""
    keeps_outputs: bool = False
    """Whether the backward pass needs its outputs."""
    extra_bytes_per_output: float = 0.0
    """Further bytes per output element that the backward pass needs: masks, saved probabilities."""
    linear: bool = False
    """Whether pending sums may pass through it."""


kinds: Registry[OperatorKind] = Registry("operator kind")
for _name, _kind in {
    "einsum": OperatorKind(flop_per_element=2, index_space=True, keeps_inputs=True),
    "embedding": OperatorKind(),
    "norm": OperatorKind(flop_per_element=5, keeps_inputs=True),
    "add": OperatorKind(flop_per_element=1, linear=True),
    "bias": OperatorKind(flop_per_element=1),
    "gelu": OperatorKind(flop_per_element=8, keeps_inputs=True),
    "silu": OperatorKind(flop_per_element=4, keeps_inputs=True),
    "relu": OperatorKind(flop_per_element=1, keeps_outputs=True),
    "tanh": OperatorKind(flop_per_element=4, keeps_outputs=True),
    "multiply": OperatorKind(flop_per_element=1, keeps_inputs=True),
    "rope": OperatorKind(flop_per_element=3),
    "dropout": OperatorKind(flop_per_element=1, extra_bytes_per_output=1),
    "attention": OperatorKind(keeps_inputs=True, keeps_outputs=True),
    "softmax": OperatorKind(flop_per_element=5, keeps_outputs=True),
    "loss": OperatorKind(flop_per_element=5),
    "router": OperatorKind(flop_per_element=10, keeps_outputs=True),
    "dispatch": OperatorKind(),
    "combine": OperatorKind(flop_per_element=2, keeps_inputs=True),
    "interaction": OperatorKind(flop_per_element=2, keeps_inputs=True),
    "pool": OperatorKind(),
    "conv": OperatorKind(flop_per_element=8, keeps_inputs=True),
    "ssd_scan": OperatorKind(keeps_inputs=True),
    "delta_scan": OperatorKind(keeps_inputs=True),
    "selective_scan": OperatorKind(keeps_inputs=True),
    "gated_norm": OperatorKind(flop_per_element=10, keeps_inputs=True),
    "pool_block": OperatorKind(flop_per_element=4, keeps_inputs=True),
    "mix_streams": OperatorKind(flop_per_element=8, keeps_inputs=True),
    "view": OperatorKind(),
    "pointwise": OperatorKind(flop_per_element=1, keeps_inputs=True),
    "convolution": OperatorKind(flop_per_element=2, index_space=True, keeps_inputs=True),
    "pooling": OperatorKind(flop_per_element=1, keeps_inputs=True),
    "reduce": OperatorKind(flop_per_element=1),
    "gather": OperatorKind(),
    "scatter": OperatorKind(flop_per_element=1),
    "copy": OperatorKind(),
    "sort": OperatorKind(flop_per_element=1),
}.items():
    kinds.register(_name)(_kind)


REDUCTIONS = frozenset(("pooling", "reduce", "scatter"))
"""Kinds that work on every element of what they read: a scatter adds each of its rows to one that it makes."""
SCANS = frozenset(("ssd_scan", "delta_scan", "selective_scan"))
"""Kinds that carry a state along a sequence."""


def attention_flop(operator: Operator, local: Local, sizes: Sizes) -> Numeric:
    """Return the flop of attention: queries times keys, scores times values.

    t = 2 (b a s c)(d_qk + d_v) * visible

    b, a, s  sequences, heads, queries       c  keys        d_qk, d_v  width of keys and of values
    visible  the share of keys that a query attends to: about half of them with a causal mask

    The softmax is left out: in fused kernels the GEMMs overlap it.
    """
    queries, keys, values = (tensor for tensor in operator.inputs[:3])
    # Dimensions are told by their position: queries [b, s, h, d_qk], keys [b, c, kv, d_qk], values [b, c, kv, d_v].
    batch, sequence, heads, width = queries.dims
    context, value_width = keys.dims[1], values.dims[3]
    pairs = local((batch, sequence, heads)) * sizes[context] * seen_share(operator, sizes)
    return 2 * pairs * (sizes[width] + sizes[value_width])


def scan_flop(operator: Operator, local: Local, sizes: Sizes) -> Numeric:
    """Return the flop of a scan: of the matrix products of chunks, or of Mamba-1's recurrence.

    Of each token, with a mean of c = (q + 1) / 2 tokens of its chunk of q before it and itself:

        mamba2   2 c G N  +  H (2 c P + 4 N P)           B against C; scores times values; into and out of the state
        delta    H (2 c (3 N + 2 P) + 6 N P)             keys against keys and queries; the triangular system; the state
        mamba1   9 D N                                   Gu and Dao, arXiv 2312.00752: decay, update, output

    H, P  heads and their width       G, N  groups and state       D  channels, H P
    """
    batch, sequence, heads, width = operator.outputs[0].dims
    tokens = local((batch, sequence, heads)) / sizes[heads]  # times the share of heads that a device has
    h, p, n, g = (sizes[dim] for dim in (heads, width, "ssm_state", "ssm_groups"))
    if operator.kind == "selective_scan":
        return 9 * tokens * h * p * n
    # A sequence shorter than a chunk is one chunk; a token meets (q + 1) / 2 tokens of its own on average.
    chunk = np.minimum(sizes["ssm_chunk"], sizes[sequence])
    before = (chunk + 1) / 2
    if operator.kind == "ssd_scan":
        return tokens * (2 * before * g * n + h * (2 * before * p + 4 * n * p))
    return tokens * h * (2 * before * (3 * n + 2 * p) + 6 * n * p)


def seen_share(operator: Operator, sizes: Sizes) -> Numeric:
    """Return the share of the keys that a query of an attention sees: all of another sequence's, the encoder's."""
    return sizes["visible"] if operator.inputs[1].dims[1] == "context" else 1.0


def operator_flop(operator: Operator, local: Local, sizes: Sizes) -> Numeric:
    """Return the flop of a forward *operator* on one accelerator."""
    kind = kinds[operator.kind]
    if operator.kind == "attention":
        return attention_flop(operator, local, sizes)
    if operator.kind in SCANS:
        return scan_flop(operator, local, sizes)
    if operator.kind == "embedding":
        return looked_up_elements(operator, local) - local(operator.outputs[0].dims)  # additions of pooled rows
    rate = kind.flop_per_element if operator.flop_per_element is None else operator.flop_per_element
    if operator.kind == "convolution":
        return rate * local(window_dims(operator))
    if kind.index_space:
        return rate * local(operator.dims)
    if operator.kind in REDUCTIONS:
        return rate * local(window_dims(operator) if operator.kind == "pooling" else operator.inputs[0].dims)
    return sum_of(rate * local(tensor.dims) for tensor in operator.outputs)


def window_dims(operator: Operator) -> tuple[str, ...]:
    """Return the index space of a convolution or a pooling: each element that it puts out, times its window.

    The window is what the weight has and the output has not: its rows and columns, and the channels that are summed.
    A pooling has no weight; the dimensions of its window are `Operator.whole`.
    """
    output_dims = operator.outputs[0].dims
    weight = operator.inputs[1].dims if operator.kind == "convolution" else operator.whole
    return (*output_dims, *(dim for dim in weight if dim not in output_dims))


def moved_elements(operator: Operator, local: Local) -> Numeric:
    """Return the number of elements that *operator* reads and writes on one accelerator, each tensor once.

    A view moves none; an embedding reads only the rows of its table that it looks up, which its output counts, unless
    it is their sum. A gather reads as much of its first input as it puts out.
    """
    return _sum_moved(operator, local, lambda _: 1.0)


def moved_bytes(operator: Operator, local: Local, width: float) -> Numeric:
    """Return the bytes of what *operator* moves: *width* for each element, or what its tensor states."""
    if all(tensor.element_bytes is None for tensor in operator.tensors):
        return moved_elements(operator, local) * width
    return _sum_moved(operator, local, lambda tensor: tensor.width(width))


def _sum_moved(operator: Operator, local: Local, width: Callable[[Tensor], float]) -> Numeric:
    if operator.kind == "view":
        return 0.0
    if operator.kind == "gather" and operator.phase == "forward":
        values, *indices = operator.inputs
        # A gather reads of its table only the rows that it puts out.
        picked = _scale_elements(width(values), local(operator.outputs[0].dims))
        return picked + sum_of(
            _scale_elements(width(tensor), local(tensor.stored_dims)) for tensor in (*indices, *operator.outputs)
        )
    table = operator.kind == "embedding"
    read = (tensor for tensor in operator.tensors if not (table and tensor.role == "weight"))
    moved = sum_of(_scale_elements(width(tensor), local(tensor.stored_dims)) for tensor in read)
    rows = looked_up_elements(operator, local) if table and _pooled_dims(operator) else 0.0
    return moved + _scale_elements(width(operator.inputs[-1]), rows)


def _scale_elements(width: float, elements: Numeric) -> Numeric:
    return elements if width == 1.0 else width * elements


def looked_up_elements(operator: Operator, local: Local) -> Numeric:
    """Return the elements of the rows that an embedding looks up: of a pooled one, more than it puts out."""
    return local((*operator.outputs[0].dims, *_pooled_dims(operator)))


def _pooled_dims(operator: Operator) -> tuple[str, ...]:
    """Return the dimensions of the keys of an embedding over which it sums the rows."""
    return tuple(dim for dim in operator.inputs[0].stored_dims if dim not in operator.outputs[0].dims)


def kept_activations(operator: Operator) -> tuple[Tensor, ...]:
    """Return the activations that the backward pass of *operator* needs."""
    kind = kinds[operator.kind]
    needed = (operator.inputs if kind.keeps_inputs else ()) + (operator.outputs if kind.keeps_outputs else ())
    return tuple(tensor for tensor in needed if tensor.role == "activation")


def unsharded_elements(sizes: Sizes) -> Local:
    """Return the element count of an accelerator that holds everything."""
    return lambda dims: elements(dims, sizes)
