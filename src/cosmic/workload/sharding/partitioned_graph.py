"""A partitioned graph: local operators, collectives between them, halos of windows, and steps of recurrences.

It holds no sizes. Local sizes and payloads are functions of the sizes of dimensions and axes, which may be arrays, so
that one partitioned graph serves every mapping of the same structure.

Boundary rows: what a window reads of its neighbours' shards where a dimension that it slides along is split.

A window of k rows in steps of s, with p rows of padding before the first, makes row o from rows o s - p to
o s - p + (k - 1) d, with a dilation d. A device that makes n rows and has the n s rows below them lacks

    before = p        after = (k - 1) d - (s - 1) - p

rows, at most. Each is one collective-permute: every device sends its boundary rows to one neighbour.

Recurrences: what every step sends on its own, and what is sent at once.

Operators of a recurrence run through a dimension step by step. A tensor that a step makes for a later operator of the
same step, or hands to the next one, is sent by each step: so many calls, each of its part of the tensor. What enters or
leaves the recurrence as a whole is sent at once: weights, inputs, and to the backward pass what the forward pass made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from cosmic.base.errors import SpecError
from cosmic.base.numeric import Numeric
from cosmic.workload.operator_graph import Operator, PassPhase, Sizes, Tensor, elements
from cosmic.workload.sharding.resharding import COLLECTIVES, Collective, Step, payload_elements, wire_share
from cosmic.workload.sharding.tensor_sharding import Axes, Sharding, group_size, local_elements, local_size

# --------------------------------------------------------------------------------------
# A partitioned graph: local operators, and the collectives between them
# --------------------------------------------------------------------------------------


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
        return sum(collective.wire_elements(sizes) for collective in self.collectives)


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


# --------------------------------------------------------------------------------------
# Boundary rows: what a window reads of its neighbours' shards where a dimension that it slides along is split
# --------------------------------------------------------------------------------------


def halo_rows(window: int, stride: int = 1, padding: int = 0, dilation: int = 1) -> tuple[int, int]:
    """Return the rows that a shard lacks before and after it.

    >>> halo_rows(3, 1, 1), halo_rows(3, 2, 1), halo_rows(7, 2, 3), halo_rows(2, 2), halo_rows(1)
    ((1, 1), (1, 0), (3, 2), (0, 0), (0, 0))
    """
    return padding, max(0, (window - 1) * dilation - (stride - 1) - padding)


def _is_summed(transfer: Transfer, operator: Operator, dim: str) -> bool:
    """Return whether a gradient is summed over *dim* into that of a weight: windows slide over the other input."""
    there = {dim, *(each for pair in operator.same if dim in pair for each in pair)}
    made = {each for tensor in operator.outputs for each in tensor.dims}
    return transfer.tensor.role == "gradient" and not there & made


def with_halo(transfer: Transfer, operator: Operator, sizes: Sizes) -> Transfer:
    """Return the fetching of an input of *operator* with the rows that its windows read of neighbours."""
    steps, wire = transfer.steps, transfer.wire
    for dim, *rows in operator.halo:
        axes = transfer.target.axes(dim)
        if dim not in transfer.tensor.dims or not axes or _is_summed(transfer, operator, dim):
            continue
        for count in rows:
            if count:
                steps += (Step("collective_permute", axes, transfer.target, transfer.target, (dim, count)),)
                wire += float(payload_elements(transfer.target, transfer.tensor.dims, (dim, count), sizes))
    return replace(transfer, steps=steps, wire=wire) if steps != transfer.steps else transfer


# --------------------------------------------------------------------------------------
# Recurrences: what every step sends on its own, and what is sent at once
# --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stepping:
    """The tensors of a recurrence that every step sends on its own."""

    dims: frozenset[str]
    """The dimensions that it runs through."""
    tensors: frozenset[tuple[str, PassPhase]]
    """Their names, with the pass in which steps send them."""

    def of(self, tensor: str, phase: PassPhase, dims: Iterable[str]) -> tuple[str, ...]:
        """Return the dimensions through which a *tensor* of these *dims* is sent step by step; none if at once."""
        return tuple(dim for dim in dims if dim in self.dims) if (tensor, phase) in self.tensors else ()


def stepping(operators: Iterable[Operator], handed: Collection[str] = ()) -> Stepping:
    """Return which tensors every step sends on its own; *handed* are those that it hands to the next.

    >>> from cosmic.workload.operator_graph import Tensor
    >>> x, u, h = (Tensor(name, ("batch", "time", "hidden")) for name in ("x", "u", "h"))
    >>> cell = [Operator("u", "gelu", (x,), (u,), serial=("time",)), Operator("h", "tanh", (u,), (h,))]
    >>> sorted(stepping(cell).tensors), stepping(cell, ["h"]).of("h", "forward", h.dims)
    ([('u', 'forward')], ('time',))
    """
    known = tuple(operators)
    dims = frozenset(dim for each in known for dim in each.serial)
    inside = [each for each in known if dims & set(each.dims)]
    made = {(tensor.name, each.phase) for each in inside for tensor in each.outputs}
    read = {(tensor.name, each.phase) for each in inside for tensor in each.inputs}
    passed: set[tuple[str, PassPhase]] = {(name, "forward") for name in handed} if dims else set()
    passed |= {(f"d_{name}", "backward") for name, _ in passed}
    return Stepping(dims, frozenset((made & read) | passed))


def in_steps(placed: Partitioned, handed: Collection[str]) -> Partitioned:
    """Return a partitioned graph with the collectives that every step of a recurrence calls on its own."""
    found = stepping((operator.operator for operator in placed.operators), handed)
    if not found.dims:
        return placed
    _check_whole(placed, found)

    def stepped(each: CollectiveOp) -> CollectiveOp:
        return replace(each, serial=found.of(each.tensor, each.phase, each.dims))

    return replace(placed, collectives=tuple(map(stepped, placed.collectives)))


def _check_whole(placed: Partitioned, found: Stepping) -> None:
    """Refuse a split of the dimension that a recurrence runs through: no step has all of a later one's part."""
    for operator in placed.operators:
        for transfer in (*operator.inputs, *operator.outputs):
            tensor = transfer.tensor
            for dim in found.of(tensor.name, operator.operator.phase, tensor.dims):
                axes = dict.fromkeys((*transfer.source.axes(dim), *transfer.target.axes(dim)))
                if axes:
                    rule = f"a recurrence runs through {dim} step by step, so that no axis can split it"
                    raise SpecError("annotations", f"{tensor.name} over {' '.join(axes)}", rule)
