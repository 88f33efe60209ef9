"""Tensors with named dimensions, and the operators between them.

A dimension has one name wherever it occurs: ``hidden`` of an activation is ``hidden`` of the weight that it is
multiplied with. So the tensors of an einsum define it (a dimension that the outputs lack is summed over), and names
define a sharding. A graph holds no sizes: they are numbers or arrays, given when flop and bytes are computed, so that
one graph serves ten thousand mappings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from cosmic.base.errors import SpecError
from cosmic.base.numeric import Numeric

Role = Literal["input", "index", "weight", "activation", "gradient"]
"""An index is an input that is one-hot along its last dimension, which is not stored (token ids, table keys)."""
PassPhase = Literal["forward", "backward", "step"]
PASSES = ("forward", "backward")
"""The passes of a microbatch, in order."""
Sizes = Mapping[str, Numeric]
"""The size of each dimension and of each mesh axis: numbers, or arrays of one length."""


class SizeTable(dict[str, Numeric]):
    """Sizes with a cache of quantities computed from them: many tensors of a model have one shape."""

    def __init__(self, sizes: Mapping[str, Numeric]) -> None:
        super().__init__(sizes)
        self.known: dict[Any, Numeric] = {}
        """Cached quantities, such as local sizes and element counts, by key."""


def cached_size(sizes: Sizes, key: Any, compute: Callable[[], Numeric]) -> Numeric:
    """Return the result of *compute*, cached in *sizes* under *key*."""
    if not isinstance(sizes, SizeTable):
        return compute()
    if key not in sizes.known:
        sizes.known[key] = compute()
    return sizes.known[key]


@dataclass(frozen=True, slots=True)
class Tensor:
    """An array whose dimensions have names."""

    name: str
    dims: tuple[str, ...]
    role: Role = "activation"
    element_bytes: float | None = None
    """Bytes of an element where they are not those of the precision: of masks, of what is computed in fp32."""

    def width(self, usual: float) -> float:
        """Return the bytes of an element, the *usual* ones where nothing is stated."""
        return usual if self.element_bytes is None else self.element_bytes

    @property
    def stored_dims(self) -> tuple[str, ...]:
        """Its dimensions in memory and on the wire."""
        return self.dims[:-1] if self.role == "index" else self.dims


@dataclass(frozen=True, slots=True)
class Operator:
    """One operation with its inputs and outputs."""

    name: str
    kind: str
    """Its kind: einsum, norm, attention, … (`cosmic.workload.operator_kinds` has their flop and bytes)."""
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    same: tuple[tuple[str, str], ...] = ()
    """Pairs of dimensions that are one and the same inside it: the keys' ``context`` and the queries' ``sequence``."""
    whole: tuple[str, ...] = ()
    """Dimensions that no axis may split: those of a normalisation or a softmax."""
    phase: PassPhase = "forward"
    halo: tuple[tuple[str, int, int], ...] = ()
    """Dimensions that a window slides along, with the rows that it reads before and after a shard of them."""
    serial: tuple[str, ...] = ()
    """Dimensions that it runs through step by step, a kernel for each: the time of a recurrence."""
    flop_per_element: float | None = None
    """Flop per element where they are not those of its kind: of fused pointwise operators."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Its inputs and outputs."""
        return self.inputs + self.outputs

    @property
    def dims(self) -> tuple[str, ...]:
        """The distinct dimensions of its tensors, in order of appearance."""
        return tuple(dict.fromkeys(dim for tensor in self.tensors for dim in tensor.dims))

    @property
    def summed(self) -> tuple[str, ...]:
        """The dimensions of its inputs that its outputs lack."""
        output_dims = {dim for tensor in self.outputs for dim in tensor.dims}
        return tuple(dim for dim in self.dims if dim not in output_dims)


@dataclass(frozen=True)
class Graph:
    """Operators in topological order."""

    operators: tuple[Operator, ...]

    def __post_init__(self) -> None:
        by_name: dict[str, Tensor] = {}
        produced: set[str] = set()
        for operator in self.operators:
            for tensor in operator.tensors:
                if by_name.setdefault(tensor.name, tensor) != tensor:
                    raise SpecError(f"tensor {tensor.name}", tensor.dims, f"is {by_name[tensor.name].dims} elsewhere")
            for tensor in operator.outputs:
                if tensor.name in produced:
                    raise SpecError(f"tensor {tensor.name}", operator.name, "is made by another operator already")
                produced.add(tensor.name)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name, in order of appearance."""
        return {tensor.name: tensor for operator in self.operators for tensor in operator.tensors}

    @cached_property
    def weights(self) -> tuple[Tensor, ...]:
        """The parameters that the operators read."""
        return tuple(tensor for tensor in self.tensors.values() if tensor.role == "weight")


def elements(dims: Iterable[str], sizes: Sizes) -> Numeric:
    """Return the number of elements of an unsharded tensor with *dims*.

    >>> elements(("batch", "hidden"), {"batch": 2, "hidden": 8})
    16.0
    """
    total: Numeric = 1.0  # sizes of large designs multiply to more than 64 bits
    for dim in dims:
        total = total * sizes[dim]
    return total
