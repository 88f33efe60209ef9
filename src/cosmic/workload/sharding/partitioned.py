"""What a partitioned graph is: local operators, and the collectives between them.

Nothing here holds a size. Local sizes and payloads are functions of the sizes of dimensions and axes, which may
be arrays, so that one partitioned graph serves every mapping of the same structure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from cosmic.numeric import Numeric
from cosmic.workload.graph import Operator, Phase, Sizes, Tensor
from cosmic.workload.sharding.annotation import Axes, Sharding, local_elements, local_size
from cosmic.workload.sharding.resharding import COLLECTIVES, Collective, Step, group_size, wire_share


@dataclass(frozen=True, slots=True)
class CollectiveOp:
    """A collective that the shardings make necessary."""

    kind: Collective
    axes: Axes
    tensor: str
    dims: tuple[str, ...]
    sharding: Sharding
    """How the payload lies: what a gather ends with, what any other collective starts from."""
    operator: str
    """The operator that makes it necessary."""
    side: Literal["input", "output"]
    """Whether it comes before that operator or after it."""
    phase: Phase
    why: str

    def elements(self, sizes: Sizes) -> Numeric:
        """Return the elements per device of the payload."""
        return self.sharding.elements(self.dims, sizes)

    def group(self, sizes: Sizes) -> Numeric:
        """Return how many devices take part."""
        return group_size(self.axes, sizes)

    def wire_elements(self, sizes: Sizes) -> Numeric:
        """Return the elements that each device sends, if the algorithm is bandwidth-optimal."""
        return wire_share(self.kind, self.group(sizes)) * self.elements(sizes)

    def __str__(self) -> str:
        return f"{self.kind} of {self.tensor} over {' '.join(self.axes)}: {self.why}"


@dataclass(frozen=True, slots=True)
class Transfer:
    """How a tensor gets from a sharding in which it exists to the one in which it is needed."""

    tensor: Tensor
    source: Sharding
    target: Sharding
    steps: tuple[Step, ...] = ()
    wire: float = 0.0
    """Elements that each device sends, at the sizes of the plan; of a sum that waits, those it would send at once."""


@dataclass(frozen=True, slots=True)
class PartitionedOperator:
    """What one device does for an operator: fetch the inputs, compute on its part, pass on the outputs."""

    operator: Operator
    dims: Mapping[str, Axes]
    """The axes that split each dimension while it computes; dimensions that it runs over in full are left out."""
    inputs: tuple[Transfer, ...]
    outputs: tuple[Transfer, ...]

    def local(self, dim: str, sizes: Sizes) -> Numeric:
        """Return the size of *dim* that one device works on."""
        return local_size(sizes[dim], (sizes[axis] for axis in self.dims.get(dim, ())))

    def elements(self, dims: Iterable[str], sizes: Sizes) -> Numeric:
        """Return the elements of a tensor (or of an index space) with *dims* that one device works on."""
        return local_elements(tuple((dim, self.dims.get(dim, ())) for dim in dims), sizes)


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A graph as each device runs it."""

    operators: tuple[PartitionedOperator, ...]
    shardings: Mapping[str, Sharding]
    """How each tensor is kept between operators."""
    collectives: tuple[CollectiveOp, ...]
    """Every collective, in the order in which they are met."""

    def wire_elements(self, sizes: Sizes) -> Numeric:
        """Return the elements that each device sends in all collectives."""
        return sum(each.wire_elements(sizes) for each in self.collectives)


def collectives_of(parts: Iterable[PartitionedOperator]) -> Iterator[CollectiveOp]:
    """Yield the collectives among the transfers of *parts*."""
    makers: dict[str, Operator] = {}
    for part in parts:
        for transfer in part.inputs:
            # A pending sum that waited for a reader is still its maker's to explain.
            maker = makers.get(transfer.tensor.name) if transfer.source.partial else None
            yield from _of_transfer(transfer, maker or part.operator, made=maker is not None)
        for transfer in part.outputs:
            makers[transfer.tensor.name] = part.operator
            yield from _of_transfer(transfer, part.operator, made=True)


def _of_transfer(transfer: Transfer, operator: Operator, *, made: bool) -> Iterator[CollectiveOp]:
    verb, wish = ("makes", "is kept") if made else ("needs", "is")
    given, asked = (transfer.source, transfer.target) if made else (transfer.target, transfer.source)
    why = f"{operator.name} {verb} it [{given}], it {wish} [{asked}]"
    for step in transfer.steps:
        if step.kind in COLLECTIVES:
            yield CollectiveOp(
                kind=step.kind,
                axes=step.axes,
                tensor=transfer.tensor.name,
                dims=transfer.tensor.dims,
                sharding=step.payload,
                operator=operator.name,
                side="output" if made else "input",
                phase=operator.phase,
                why=why,
            )
