"""A partitioned graph: local operators, and the collectives between them.

It holds no sizes. Local sizes and payloads are functions of the sizes of dimensions and axes, which may be arrays, so
that one partitioned graph serves every mapping of the same structure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from cosmic.numeric import Numeric
from cosmic.workload.graph import Operator, PassPhase, Sizes, Tensor, elements
from cosmic.workload.sharding.annotation import Axes, Sharding, group_size, local_elements, local_size
from cosmic.workload.sharding.resharding import COLLECTIVES, Collective, Step, payload_elements, wire_share


@dataclass(frozen=True, slots=True)
class CollectiveOp:
    """A collective that the shardings require."""

    kind: Collective
    axes: Axes
    tensor: str
    dims: tuple[str, ...]
    sharding: Sharding
    """The sharding of the payload: the output of an all-gather, the input of any other collective."""
    operator: str
    """The operator that requires it."""
    side: Literal["input", "output"]
    """Whether it comes before that operator or after it."""
    phase: PassPhase
    why: str
    halo: tuple[str, int] | None = None
    """Of boundary rows that neighbours exchange: their dimension, and how many of them."""
    serial: tuple[str, ...] = ()
    """Dimensions that its operator runs through step by step, where every step sends its own part of the tensor."""

    def elements(self, sizes: Sizes, dims: tuple[str, ...] | None = None) -> Numeric:
        """Return the elements per device of the payload of a call, of which *dims* are stored."""
        stored = tuple(dim for dim in (self.dims if dims is None else dims) if dim not in self.serial)
        return payload_elements(self.sharding, stored, self.halo, sizes)

    def group(self, sizes: Sizes) -> Numeric:
        """Return the number of devices in the group."""
        return group_size(self.axes, sizes)

    def steps(self, sizes: Sizes) -> Numeric:
        """Return how often it is called in one run of its operator."""
        return elements(self.serial, sizes)

    def wire_elements(self, sizes: Sizes) -> Numeric:
        """Return the elements that each device sends, if the algorithm is bandwidth-optimal."""
        return wire_share(self.kind, self.group(sizes)) * self.elements(sizes) * self.steps(sizes)

    def __str__(self) -> str:
        return f"{self.kind} of {self.tensor} over {' '.join(self.axes)}: {self.why}"


@dataclass(frozen=True, slots=True)
class Transfer:
    """The resharding of a tensor from a sharding in which it exists to the one that is needed."""

    tensor: Tensor
    source: Sharding
    target: Sharding
    steps: tuple[Step, ...] = ()
    wire: float = 0.0
    """Elements that each device sends, at the sizes of the plan; for a deferred sum, those of an immediate one."""


@dataclass(frozen=True, slots=True)
class PartitionedOperator:
    """One device's share of an operator: fetch the inputs, compute on its shard, deliver the outputs."""

    operator: Operator
    dims: Mapping[str, Axes]
    """The axes that split each dimension while it computes; unsplit dimensions are left out."""
    inputs: tuple[Transfer, ...]
    outputs: tuple[Transfer, ...]

    def local(self, dim: str, sizes: Sizes) -> Numeric:
        """Return the size of one device's shard of *dim*."""
        return local_size(sizes[dim], (sizes[axis] for axis in self.dims.get(dim, ())))

    def elements(self, dims: Iterable[str], sizes: Sizes) -> Numeric:
        """Return the number of elements of a tensor (or of an index space) with *dims* that one device works on."""
        return local_elements(tuple((dim, self.dims.get(dim, ())) for dim in dims), sizes)


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A graph as each device runs it."""

    operators: tuple[PartitionedOperator, ...]
    shardings: Mapping[str, Sharding]
    """The sharding in which each tensor is kept between operators."""
    collectives: tuple[CollectiveOp, ...]
    """Every collective, in the order of operators."""

    def wire_elements(self, sizes: Sizes) -> Numeric:
        """Return the elements that each device sends in all collectives."""
        return sum(each.wire_elements(sizes) for each in self.collectives)


def collectives_of(parts: Iterable[PartitionedOperator]) -> Iterator[CollectiveOp]:
    """Yield the collectives among the transfers of *parts*."""
    makers: dict[str, Operator] = {}
    for part in parts:
        for transfer in part.inputs:
            # A deferred sum is explained by the operator that made it, not by its reader.
            summed = set(transfer.source.partial) - set(transfer.target.partial)
            maker = makers.get(transfer.tensor.name) if summed else None
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
                why=why
                if step.halo is None
                else f"{operator.name} reads {step.halo[1]} rows of {step.halo[0]} of its neighbour",
                halo=step.halo,
            )
