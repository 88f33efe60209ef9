"""Tensors with named dimensions, and the operators between them.

A dimension has one name wherever it occurs: ``hidden`` of an activation is ``hidden`` of the weight that
reads it. An einsum is therefore told by its tensors alone (a dimension that the outputs lack is summed over),
and a sharding is told by names. Sizes are no part of a graph: they are numbers or arrays, given when flop and
bytes are wanted, so that one graph serves ten thousand mappings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from cosmic.errors import SpecError
from cosmic.numeric import Numeric

Role = Literal["input", "index", "weight", "activation", "gradient"]
"""An index is an input too: one-hot along its last dimension, which nobody writes out (token numbers, table keys)."""
Phase = Literal["forward", "backward", "step"]
Sizes = Mapping[str, Numeric]
"""The size of each dimension and of each mesh axis: numbers, or arrays of one length."""


class SizeTable(dict[str, Numeric]):
    """Sizes that remember what was worked out of them: many tensors of a model are of one shape."""

    def __init__(self, sizes: Mapping[str, Numeric]) -> None:
        super().__init__(sizes)
        self.known: dict[Any, Numeric] = {}
        """Local sizes and element counts, by what they were asked for."""


def remembered(sizes: Sizes, key: Any, compute: Callable[[], Numeric]) -> Numeric:
    """Return what *compute* gives; a second time, for the same *sizes* and *key*, without computing it."""
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

    @property
    def stored_dims(self) -> tuple[str, ...]:
        """The dimensions that it has in memory and on the wire."""
        return self.dims[:-1] if self.role == "index" else self.dims


@dataclass(frozen=True, slots=True)
class Operator:
    """One operation: what it reads, what it makes."""

    name: str
    kind: str
    """What it is: einsum, elementwise, norm, attention, … (`cosmic.workload.operators` knows their flop and bytes)."""
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    same: tuple[tuple[str, str], ...] = ()
    """Pairs of dimensions that are one and the same inside it: the keys' ``context`` and the queries' ``sequence``."""
    whole: tuple[str, ...] = ()
    """Dimensions that every device needs in full: what is normalised or softmaxed over."""
    phase: Phase = "forward"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Everything it reads and makes."""
        return self.inputs + self.outputs

    @property
    def dims(self) -> tuple[str, ...]:
        """Every dimension it touches, each once, in order of appearance."""
        return tuple(dict.fromkeys(dim for tensor in self.tensors for dim in tensor.dims))

    @property
    def summed(self) -> tuple[str, ...]:
        """The dimensions of its inputs that its outputs lack."""
        kept = {dim for tensor in self.outputs for dim in tensor.dims}
        return tuple(dim for dim in self.dims if dim not in kept)


@dataclass(frozen=True)
class Graph:
    """Operators in an order in which they can run."""

    operators: tuple[Operator, ...]

    def __post_init__(self) -> None:
        known: dict[str, Tensor] = {}
        made: set[str] = set()
        for operator in self.operators:
            for tensor in operator.tensors:
                if known.setdefault(tensor.name, tensor) != tensor:
                    raise SpecError(f"tensor {tensor.name}", tensor.dims, f"is {known[tensor.name].dims} elsewhere")
            for tensor in operator.outputs:
                if tensor.name in made:
                    raise SpecError(f"tensor {tensor.name}", operator.name, "is made by another operator already")
                made.add(tensor.name)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name, in order of appearance."""
        return {tensor.name: tensor for operator in self.operators for tensor in operator.tensors}

    @cached_property
    def weights(self) -> tuple[Tensor, ...]:
        """The parameters that the operators read."""
        return tuple(tensor for tensor in self.tensors.values() if tensor.role == "weight")


def elements(dims: Iterable[str], sizes: Sizes) -> Numeric:
    """Return how many elements a tensor with *dims* has, before any sharding.

    >>> elements(("batch", "hidden"), {"batch": 2, "hidden": 8})
    16
    """
    total: Numeric = 1
    for dim in dims:
        total = total * sizes[dim]
    return total
