"""A mesh of devices as users write it, and what automatic sharding found on it.

A mesh has named axes with their sizes, the last one innermost.

What kernels and collectives cost: bytes on the wire alone, or seconds on a system.

Costs have three parts, which a step adds up differently: *compute*; *exposed*, the collectives that the next operator
waits for; and *hidden*, those of weights and their gradients, which compute overlaps in part.
"""

from __future__ import annotations

import re
import typing
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

from cosmic.base.errors import SpecError, require
from cosmic.base.json_types import (
    Count,
    Keywords,
    NonNegative,
    PositiveCount,
    SecondsOrBytes,
    json_keys,
    one_of,
    unit,
)
from cosmic.base.numeric import Numeric
from cosmic.design.answer import Answer, Answered, MemoryNeed, Provenance
from cosmic.design.collective_layer import CollectiveKind
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.network.collective_costs import NetworkDimension, Subgroup, collective_seconds, send_seconds, subgroups
from cosmic.network.mesh_spans import axis_spans, axis_strides, joint_spans
from cosmic.search.design_wording import bytes_text, seconds_text
from cosmic.step.kernel_costs import KernelCosts
from cosmic.step.operator_work import BACKWARD_FLOP, OperatorUse, kernel_shape, sequential_step
from cosmic.workload.operator_graph import Operator, Sizes, Tensor
from cosmic.workload.operator_kinds import SCANS, kinds, moved_bytes, moved_elements, operator_flop
from cosmic.workload.precision import Recipe, recipe_for, recipe_of
from cosmic.workload.sharding.factor_assignment import Assignment
from cosmic.workload.sharding.graph_partition import PartitionedOperator
from cosmic.workload.sharding.resharding import Move, wire_share
from cosmic.workload.sharding.tensor_sharding import REPLICATED, Axes, Sharding

# ---- A mesh of devices as users write it: named axes with their sizes, the last one innermost

MAX_AXES = 3
"""More axes have more shardings of a tensor than can be listed."""


MAX_DIGITS = 9
"""Digits of a number of devices."""


@dataclass(frozen=True)
class Mesh:
    """Named axes with their sizes, outermost first: neighbours along the last axis are neighbours in the network."""

    axes: tuple[tuple[str, int], ...]
    cut: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Axes that are cut into sub-axes, with the names of these: sub-axes may split different dimensions of a tensor."""

    def __post_init__(self) -> None:
        require(1 <= len(self.axes) <= MAX_AXES, "mesh", str(self), f"must have 1 to {MAX_AXES} axes")
        names = [name for name, _ in self.axes]
        for name, size in self.axes:
            require(names.count(name) == 1, "mesh", str(self), f"names the axis {name} twice")
            require(bool(re.fullmatch(r"[A-Za-z]\w*", name)), "mesh", name, "must be a name, such as x or tp")
            require(isinstance(size, int) and size >= 1, f"mesh.{name}", size, "must be a whole number of at least 1")

    @property
    def sizes(self) -> dict[str, PositiveCount]:
        """Devices along each axis, outermost first."""
        return dict(self.axes)

    @property
    def names(self) -> tuple[str, ...]:
        """The axes that split something: those of more than one device."""
        return tuple(name for name, size in self.axes if size > 1)

    @property
    def devices(self) -> int:
        """How many devices there are."""
        return prod(size for _, size in self.axes)

    def axes_named(self, name: str) -> tuple[str, ...]:
        """Return the axes that a user calls *name*: one, or the sub-axes of one; none if there is no such axis."""
        return dict(self.cut).get(name, (name,) if name in self.sizes else ())

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.axes)


def read_mesh(source: str | Mapping[str, int] | Iterable[tuple[str, int]]) -> Mesh:
    """Return the mesh that a text, a mapping or pairs describe.

    ``y=2*8`` is an axis of 16 devices that is cut into y_0 and y_1, which may split different dimensions.

    >>> read_mesh("x=8,y=16").devices, read_mesh("x=8,y=2*8").axes
    (128, (('x', 8), ('y_0', 2), ('y_1', 8)))
    """
    if isinstance(source, Mapping):
        return Mesh(tuple(source.items()))
    if not isinstance(source, str):
        return Mesh(tuple((name, size) for name, size in source))
    axes: list[tuple[str, int]] = []
    cut: list[tuple[str, tuple[str, ...]]] = []
    for part in source.split(","):
        name, _, size = (text.strip() for text in part.partition("="))
        factors = [text.strip() for text in size.split("*")]
        if not (
            name and all(factor.isascii() and factor.isdigit() and len(factor) <= MAX_DIGITS for factor in factors)
        ):
            raise SpecError("mesh", source, "write AXIS=DEVICES, such as x=8,y=16")
        names = (name,) if len(factors) == 1 else tuple(f"{name}_{index}" for index in range(len(factors)))
        axes += zip(names, map(int, factors), strict=True)
        cut += [(name, names)] if len(factors) > 1 else []
    return Mesh(tuple(axes), tuple(cut))


# ---- What automatic sharding found


@json_keys(axes="entries", partial="sharding.partial")
@dataclass(frozen=True)
class TensorSharding:
    """The sharding of one tensor, and why."""

    part: str
    """Its part of the program, such as a block."""
    tensor: str
    """Its name."""
    role: str
    """input, index, weight, activation or gradient."""
    dims: tuple[str, ...]
    """Its dimensions."""
    sharding: Sharding
    given: bool
    """Whether it was annotated."""
    reason: str
    """Which collectives it costs or saves."""

    @property
    def entries(self) -> list[str]:
        """For each dimension its axes, joined by +, or _ for none: as `--annotate` takes them."""
        return ["+".join(self.sharding.axes(dim)) or "_" for dim in self.dims]


@dataclass(frozen=True)
class Sent:
    """Collectives of one tensor that are alike."""

    part: str
    """Its part of the program."""
    kind: typing.Annotated[
        str, one_of("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "collective_permute")
    ]
    """Its kind."""
    axes: tuple[str, ...]
    """The axes whose devices take part."""
    tensor: str
    """What is sent."""
    phase: typing.Annotated[str, one_of("forward", "backward")]
    """The pass."""
    calls: int
    """In a step: one for each repetition of its part."""
    bytes: float
    """Payload of a call on one device."""
    wire_bytes: float
    """What a device sends in a call."""
    cost: SecondsOrBytes
    """Of all calls: seconds, or bytes where no system is given."""
    overlapped: bool
    """Whether compute can go on meanwhile: it moves weights or their gradients."""
    why: str
    """Why it is there."""


@json_keys(sharding="read_as")
@dataclass(frozen=True)
class ReshardAtUse:
    """A tensor that an operator must read in another sharding than it is kept in: a constraint at its use."""

    part: str
    """Its part of the program."""
    operator: str
    """The operator that reads it."""
    tensor: str
    """The tensor."""
    sharding: Sharding

    @property
    def read_as(self) -> str:
        """The sharding in which it is read."""
        return str(self.sharding)


def step_cost(compute: float, exposed: float, hidden: float, overlap: float) -> float:
    """Return what a step costs of which compute hides the share *overlap* of *hidden* at best (see `solving`).

    >>> step_cost(10.0, 1.0, 4.0, 0.75), step_cost(2.0, 1.0, 8.0, 0.75)
    (12.0, 9.0)
    """
    return max(compute + exposed + (1 - overlap) * hidden, exposed + hidden)


PROVEN = 1e-9
"""A gap that is rounding alone."""
Cost = typing.Annotated[SecondsOrBytes, Keywords(minimum=0)]
Seconds = typing.Annotated[float, unit("s"), Keywords(minimum=0)]


@json_keys("gap", "wire_bytes", "answer", without=("overlap", "design"), mesh="mesh.sizes", overlapped="hidden")
@dataclass(frozen=True)
class Sharded(Answered):
    """The best sharding of a program over a mesh, what it costs, and how far from the best it may be."""

    program: str
    """Name of the program or model."""
    mesh: Mesh
    objective: typing.Annotated[str, one_of("step", "bytes", "memory")]
    """What is least."""
    mode: typing.Annotated[str, one_of("best", "as_compiled")]
    """best, or the rules of XLA."""
    unit: typing.Annotated[str, one_of("seconds", "bytes")]
    """The unit of costs: seconds on a system, else bytes on the wire."""
    value: Cost
    """The objective, as the planner prices these annotations."""
    searched_value: SecondsOrBytes
    """The same as the search added it up."""
    bound: Cost
    """No annotations have a lower objective, if operators read a tensor from where it is kept or from one copy of it."""
    exact: bool
    """Whether no table was split while variables were eliminated."""
    fits: bool
    """Whether memory is within the limit."""
    limit_bytes: float | None
    """The limit on memory of a device."""
    memory_bytes: NonNegative
    """Weights, gradients, optimizer states and kept activations on a device."""
    compute: Seconds
    """Seconds of kernels, without the optimizer's; 0 without a system."""
    update: Seconds
    """Seconds of the optimizer; 0 without a system."""
    exposed: Cost
    """Collectives that the next operator waits for."""
    hidden: Cost
    """Collectives of weights and their gradients, beside compute."""
    overlap: float
    operators: Count
    """Operators of both passes, each part once."""
    annotations: tuple[TensorSharding, ...]
    """Every tensor, with the axes that split its dimensions."""
    collectives: tuple[Sent, ...]
    """Every collective of a step."""
    uses: tuple[ReshardAtUse, ...] = ()
    """Tensors that must be read in another sharding than they are kept in, stated at their use; mostly none."""
    warnings: tuple[str, ...] = ()
    """Tensors made whole only to be split anew, and padding."""
    design: Mapping[str, Any] = field(default_factory=dict)
    """The design that `cosmic evaluate` prices this as, where there is one."""
    written: tuple[str, ...] = ()
    """Files that were written."""

    @property
    def step(self) -> float:
        """What a step costs, whatever the objective is."""
        return step_cost(self.compute + self.update, self.exposed, self.hidden, self.overlap)

    @property
    def gap(self) -> typing.Annotated[float, unit("share"), Keywords(minimum=0)]:
        """How far the objective may be above the optimum, relative to it."""
        return max(0.0, self.value / self.bound - 1) if self.bound > 0 else 0.0 if self.value <= 0 else 1.0

    @property
    def wire_bytes(self) -> NonNegative:
        """Bytes that a device sends in a step."""
        return sum(collective.wire_bytes * collective.calls for collective in self.collectives)

    @property
    def proof(self) -> str:
        """How near to the best it is, in words; empty where nothing was searched, or nothing fits."""
        if self.mode != "best" or not self.fits:
            return ""
        if self.gap <= PROVEN:
            return "proven: no annotations are better"
        return f"at most {100 * self.gap:.2g} % above the best"

    @property
    def answer(self) -> Answer:
        """What every question is answered with."""
        told = seconds_text if self.unit == "seconds" else bytes_text
        reasons = () if self.fits else ("no sharding fits into that memory: this one needs least, or nearly",)
        if self.objective == "memory":
            cost = f"{bytes_text(self.value)} of memory"
        else:
            cost = f"{told(self.value)} {'for a step' if self.unit == 'seconds' else 'on the wire'}"
        verdict = f"{self.program} on {self.mesh}: {cost}"
        return Answer(
            question="sharding",
            verdict="; ".join([verdict, *filter(None, [self.proof]), *reasons]),
            reasons=reasons,
            proof=self.proof,
            gap=self.gap if self.proof else None,
            memory=MemoryNeed(self.memory_bytes, self.limit_bytes),
            provenance=Provenance(
                inputs={
                    "program": self.program,
                    "mesh": str(self.mesh),
                    "objective": self.objective,
                    "mode": self.mode,
                }
            ),
        )

    def sharding(self, tensor: str, part: str | None = None) -> Sharding:
        """Return the sharding of a tensor."""
        for annotation in self.annotations:
            if annotation.tensor == tensor and part in (None, annotation.part):
                return annotation.sharding
        raise KeyError(tensor)


# ---- What kernels and collectives cost: bytes on the wire alone, or seconds on a system

PRODUCT_KINDS = frozenset(("attention", *SCANS))
"""Kinds whose work is matrix products, beside those that work on every combination of their dimensions."""
INDEX_BYTES = 4.0
MARK = "@"
"""In the name of a tensor: the same tensor in another sharding."""


@dataclass(frozen=True)
class Prices(ABC):
    """What a step costs on a mesh."""

    mesh: Mesh
    recipe: Recipe
    element_bytes: Mapping[str, float]
    """Bytes of an element, for tensors that are not in the format of the recipe."""

    unit = "bytes"
    """The unit of all costs."""
    overlap = 0.0
    """The share of weights' collectives that compute can hide at best."""

    def width(self, tensor: Tensor, weights: Collection[str] = ()) -> float:
        """Return the bytes of an element of *tensor*: activations, *weights*, and gradients of weights differ."""
        name = primal_tensor(tensor.name)
        for tensor_name in (tensor.name, name):
            if tensor_name in self.element_bytes:
                return float(self.element_bytes[tensor_name])
        if tensor.role == "index":
            return INDEX_BYTES
        if tensor.role == "weight":
            return self.recipe.weight
        return self.recipe.gradient if tensor.role == "gradient" and name in weights else self.recipe.activation

    @abstractmethod
    def collective(self, kind: Move, axes: Axes, size_bytes: float) -> float:
        """Return what a collective over *axes* costs whose payload on a device has *size_bytes*."""

    def update(self, elements: float) -> float:
        """Return what it costs to update so many weights; nothing where only bytes on the wire count."""
        return 0.0 * elements

    @abstractmethod
    def kernel(self, part: PartitionedOperator, sizes: Sizes, *, training: bool, fuses: bool = False) -> float:
        """Return what a forward operator costs on one device, with its backward pass if *training*."""


def primal_tensor(name: str) -> str:
    """Return the tensor that a gradient, or a share of one, is of; of any other tensor, itself.

    >>> primal_tensor("d_w_q"), primal_tensor("d_normed.q.0"), primal_tensor("w_q")
    ('w_q', 'normed', 'w_q')
    """
    name = name.partition(MARK)[0]
    return name.removeprefix("d_").partition(".")[0] if name.startswith("d_") else name


def local_part(assignment: Assignment) -> PartitionedOperator:
    """Return one device's share of an operator that is split as *assignment* says, without any transfers."""
    operator = assignment.operator
    dims: dict[str, Axes] = {}
    for tensor in operator.inputs:
        dims |= dict(assignment.reads(tensor, REPLICATED).dims)
    for tensor in operator.outputs:
        dims |= dict(assignment.makes(tensor, REPLICATED).dims)
    return PartitionedOperator(operator, dims, (), ())


@dataclass(frozen=True)
class WireBytes(Prices):
    """Bytes that a device sends; work that devices do twice weighs more than any bytes."""

    parallel: bool = True
    """Whether matrix products must be split over all devices, where they can."""
    repeated_flop_bytes: float = 1.0
    """Bytes that a flop done on a further device weighs as much as: machines do hundreds of them meanwhile."""

    def collective(self, kind: Move, axes: Axes, size_bytes: float) -> float:
        """Return the bytes that a device sends."""
        group = 1.0
        for axis in axes:
            group *= self.mesh.sizes[axis]
        return float(wire_share(kind, group)) * size_bytes

    def kernel(self, part: PartitionedOperator, sizes: Sizes, *, training: bool, fuses: bool = False) -> float:
        """Return the weight of what several devices compute alike."""
        kind = part.operator.kind
        if not self.parallel or not (kind in PRODUCT_KINDS or kinds[kind].index_space):
            return 0.0
        device_flop = _flop(part, sizes)
        total_flop = _flop(PartitionedOperator(part.operator, {}, (), ()), sizes)
        twice = max(0.0, device_flop - total_flop / self.mesh.devices)
        return twice * (1 + BACKWARD_FLOP * training) * self.repeated_flop_bytes


def _flop(part: PartitionedOperator, sizes: Sizes) -> float:
    def local(dims: Iterable[str]) -> Numeric:
        return part.elements(dims, sizes)

    return float(operator_flop(part.operator, local, sizes))


@dataclass(frozen=True)
class SystemSeconds(Prices):
    """Seconds on the accelerators and the network of a design, by the formulas that price every design."""

    point: DesignPoint

    unit = "seconds"

    @cached_property
    def batch(self) -> Batch:
        """The design as a batch of one."""
        return batch_of(self.point)

    @cached_property
    def kernels(self) -> KernelCosts:
        """What kernels cost on the accelerator."""
        return KernelCosts(self.batch)

    @cached_property
    def overlap(self) -> float:  # type: ignore[override]  # a number of the design
        """The share of weights' collectives that compute can hide at best."""
        return float(self.point.collective.overlap_efficiency) if self.point.workload.dp_overlap else 0.0

    @cached_property
    def _groups(self) -> dict[Axes, list[Subgroup]]:
        return {}

    @cached_property
    def _cache(self) -> dict[tuple[Move, Axes, float], float]:
        return {}

    def _group(self, axes: Axes) -> list[Subgroup]:
        """Return the place of the devices of *axes* in the network; the last axis of the mesh is innermost."""
        key = tuple(sorted(axes))
        if key not in self._groups:
            dims = [NetworkDimension.of(self.batch, index) for index in range(len(self.point.network.dims))]
            sizes = {name: float(size) for name, size in self.mesh.axes}
            apart = axis_strides(tuple(reversed(list(sizes))), sizes)
            spans = [axis_spans([dim.npus for dim in dims], apart[axis], sizes[axis]) for axis in key]
            self._groups[key] = subgroups(dims, joint_spans(spans))
        return self._groups[key]

    def collective(self, kind: Move, axes: Axes, size_bytes: float) -> float:
        """Return the seconds of a collective on the network."""
        if kind in ("slice", "mask"):
            return 0.0
        key = (kind, tuple(sorted(axes)), size_bytes)
        if key not in self._cache:
            group = self._group(axes)
            if kind == "collective_permute":
                seconds = send_seconds(group, size_bytes)
            else:
                collective_kind: CollectiveKind = kind  # type: ignore[assignment]  # the others were handled above
                collective = self.point.collective
                seconds = collective_seconds(
                    group, collective_kind, size_bytes, collective.chunks, collective.multi_dim
                )
            self._cache[key] = float(seconds * self.point.compute.time_factor)
        return self._cache[key]

    def update(self, elements: float) -> float:
        """Return the seconds of the optimizer."""
        return float(self.kernels.update(elements)[0])

    def _with_element_bytes(self, operator: Operator) -> Operator:
        """Return an operator whose tensors have the bytes that the program states of them."""
        if not any(tensor.name in self.element_bytes for tensor in operator.tensors):
            return operator

        def stated(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(replace(tensor, element_bytes=self.element_bytes.get(tensor.name)) for tensor in tensors)

        return replace(operator, inputs=stated(operator.inputs), outputs=stated(operator.outputs))

    def kernel(self, part: PartitionedOperator, sizes: Sizes, *, training: bool, fuses: bool = False) -> float:
        """Return the seconds of an operator on the accelerator."""
        operator = part.operator
        if operator.kind == "view":
            return 0.0
        sizes, steps = sequential_step(part, sizes)

        def local(dims: Iterable[str]) -> Numeric:
            return part.elements(dims, sizes)

        usual = moved_elements(operator, local) * self.recipe.activation
        sized = self._with_element_bytes(operator)
        work, moved = operator_flop(operator, local, sizes), moved_bytes(sized, local, self.recipe.activation)
        kernel = replace(kernel_shape(part, sizes, False), beside=float(fuses))
        if sized is not operator:
            wider = moved / usual
            kernel = replace(kernel, elements=kernel.elements * wider, wider=wider)
        use = OperatorUse(operator.name, operator.kind, "layer", "forward", work, moved, 1, kernel)
        total = float(self.kernels.seconds(use)) * float(steps)
        if training:
            backward = replace(use, phase="backward", flop=BACKWARD_FLOP * work, bytes=BACKWARD_FLOP * moved)
            total += float(self.kernels.seconds(backward)) * float(steps)
        return total


def wire_prices(mesh: Mesh, element_bytes: Mapping[str, float], *, training: bool, parallel: bool) -> WireBytes:
    """Return the prices of a mesh on no system: bytes on the wire, numbers in 16 bits."""
    return WireBytes(mesh, recipe_of("bf16_pure", "training" if training else "prefill"), element_bytes, parallel)


def system_prices(mesh: Mesh, element_bytes: Mapping[str, float], point: DesignPoint) -> SystemSeconds:
    """Return the prices of a mesh on the system of a design."""
    return SystemSeconds(mesh, recipe_for(point.workload), element_bytes, point)
