"""What each kind of operator computes, moves and must remember for its backward pass.

Quantities are functions of sizes that may be arrays: one call serves a whole batch of mappings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cosmic.numeric import Numeric
from cosmic.registry import Registry
from cosmic.workload.graph import Operator, Sizes, Tensor, elements

Local = Callable[[Iterable[str]], Numeric]
"""How many elements a tensor with the given dimensions has on one device."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The rules of one kind of operator."""

    flop_per_element: float = 0.0
    """Operations for each element that it makes (for each element of the index space, if it is an einsum)."""
    index_space: bool = False
    """Whether work is done for every combination of all its dimensions, as in an einsum."""
    keeps_inputs: bool = False
    """Whether the backward pass needs what it read (weights are there anyway)."""
    keeps_outputs: bool = False
    """Whether the backward pass needs what it made."""
    extra_bytes_per_output: float = 0.0
    """Further bytes that the backward pass needs for each element made: masks, saved probabilities."""
    linear: bool = False
    """Whether pending sums may pass through it."""


kinds: Registry[Kind] = Registry("operator kind")
for _name, _kind in {
    "einsum": Kind(flop_per_element=2, index_space=True, keeps_inputs=True),
    "embedding": Kind(),
    "norm": Kind(flop_per_element=5, keeps_inputs=True),
    "add": Kind(flop_per_element=1, linear=True),
    "bias": Kind(flop_per_element=1),
    "gelu": Kind(flop_per_element=8, keeps_inputs=True),
    "silu": Kind(flop_per_element=4, keeps_inputs=True),
    "relu": Kind(flop_per_element=1, keeps_outputs=True),
    "tanh": Kind(flop_per_element=4, keeps_outputs=True),
    "multiply": Kind(flop_per_element=1, keeps_inputs=True),
    "rope": Kind(flop_per_element=3),
    "dropout": Kind(flop_per_element=1, extra_bytes_per_output=1),
    "attention": Kind(keeps_inputs=True, keeps_outputs=True),
    "softmax": Kind(flop_per_element=5, keeps_outputs=True),
    "loss": Kind(flop_per_element=5),
    "router": Kind(flop_per_element=10, keeps_outputs=True),
    "dispatch": Kind(),
    "combine": Kind(flop_per_element=2, keeps_inputs=True),
    "interaction": Kind(flop_per_element=2, keeps_inputs=True),
    "pool": Kind(),
    "view": Kind(),
}.items():
    kinds.register(_name)(_kind)


def attention_flop(operator: Operator, local: Local, sizes: Sizes) -> Numeric:
    """Return the operations of attention: queries against keys, weights against values.

    t = 2 (b a s c)(d_qk + d_v) * visible

    b, a, s  sequences, heads, queries       c  keys        d_qk, d_v  width of keys and of values
    visible  the share of keys that a query attends to: about half of them with a causal mask

    The softmax is left out: it is hidden by the matrix products in fused kernels.
    """
    queries, keys, values = (tensor for tensor in operator.inputs[:3])
    batch, sequence, heads, width = queries.dims
    context, value_width = keys.dims[1], values.dims[3]
    pairs = local((batch, sequence, heads)) * sizes[context] * sizes["visible"]
    return 2 * pairs * (sizes[width] + sizes[value_width])


def flop(operator: Operator, local: Local, sizes: Sizes) -> Numeric:
    """Return the operations of a forward *operator* on one device."""
    kind = kinds[operator.kind]
    if operator.kind == "attention":
        return attention_flop(operator, local, sizes)
    if kind.index_space:
        return kind.flop_per_element * local(operator.dims)
    return sum(kind.flop_per_element * local(tensor.dims) for tensor in operator.outputs)


def moved_elements(operator: Operator, local: Local) -> Numeric:
    """Return how many elements *operator* reads and writes on one device, each tensor once.

    A view moves none; an embedding reads no more of its table than it makes.
    """
    if operator.kind == "view":
        return 0.0
    table = operator.kind == "embedding"
    return sum(local(tensor.stored_dims) for tensor in operator.tensors if not (table and tensor.role == "weight"))


def kept(operator: Operator) -> tuple[Tensor, ...]:
    """Return the activations that the backward pass of *operator* needs."""
    kind = kinds[operator.kind]
    needed = (operator.inputs if kind.keeps_inputs else ()) + (operator.outputs if kind.keeps_outputs else ())
    return tuple(tensor for tensor in needed if tensor.role == "activation")


def unsharded(sizes: Sizes) -> Local:
    """Return the element count of a device that holds everything."""
    return lambda dims: elements(dims, sizes)
