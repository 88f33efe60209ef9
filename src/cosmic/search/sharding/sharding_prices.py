"""What kernels and collectives cost: bytes on the wire alone, or seconds on a system.

Costs have three parts, which a step adds up differently: *compute*; *exposed*, the collectives that the next operator
waits for; and *hidden*, those of weights and their gradients, which compute overlaps in part.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from cosmic.base.numeric import Numeric
from cosmic.design.collective_layer import CollectiveKind
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.network.collective_costs import NetworkDimension, Subgroup, collective_seconds, send_seconds, subgroups
from cosmic.network.mesh_spans import axis_spans, axis_strides, joint_spans
from cosmic.search.sharding.sharding_result import Mesh
from cosmic.step.kernel_costs import KernelCosts
from cosmic.step.operator_work import BACKWARD_FLOP, OperatorUse, kernel_shape, sequential_step
from cosmic.workload.operator_graph import Operator, Sizes, Tensor
from cosmic.workload.operator_kinds import SCANS, kinds, moved_bytes, moved_elements, operator_flop
from cosmic.workload.precision import Recipe, recipe_for, recipe_of
from cosmic.workload.sharding.factor_assignment import Assignment
from cosmic.workload.sharding.graph_partition import PartitionedOperator
from cosmic.workload.sharding.resharding import Move, wire_share
from cosmic.workload.sharding.tensor_sharding import REPLICATED, Axes

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
class Seconds(Prices):
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


def system_prices(mesh: Mesh, element_bytes: Mapping[str, float], point: DesignPoint) -> Seconds:
    """Return the prices of a mesh on the system of a design."""
    return Seconds(mesh, recipe_for(point.workload), element_bytes, point)
