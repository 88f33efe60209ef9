"""Partition a graph: the factor that each axis splits in each operator, and the collectives between operators.

Operators are partitioned one after the other. The assignment of axes to factors determines the shardings in which an
operator reads its inputs and makes its outputs; transfers reshard them from and to those in which tensors are kept.
Operators that lead from one mesh to another (`cosmic.workload.sharding.folded_mesh`) work on the mesh of dense layers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from cosmic.base.errors import UnknownName
from cosmic.workload.operator_graph import Graph, Operator, PassPhase, Sizes, Tensor
from cosmic.workload.sharding import folded_mesh
from cosmic.workload.sharding.factor_assignment import (
    EINSUMS,
    LINEAR,
    Assignment,
    AssignmentSetting,
    assignments,
    factors_of,
    may_add_later,
    xla_assignment,
)
from cosmic.workload.sharding.partitioned_graph import (
    Partitioned,
    PartitionedOperator,
    Transfer,
    collectives_of,
    with_halo,
)
from cosmic.workload.sharding.resharding import Step, reshard, wire_share
from cosmic.workload.sharding.tensor_sharding import Sharding, group_size

Mode = Literal["best", "as_written", "as_compiled"]
MODES: tuple[Mode, ...] = get_args(Mode)


def partition(
    graph: Graph,
    shardings: Mapping[str, Sharding],
    *,
    sizes: Sizes,
    mode: Mode = "best",
    share_phases: bool | None = None,
    crossings: Collection[str] = (),
) -> Partitioned:
    """Return what each device does if the tensors of *graph* have these *shardings*.

    *sizes* (numbers, of dimensions and axes) decide between partitionings of different cost; the result holds for other
    sizes too, though another partitioning may then be cheaper. Mode ``best`` splits an operator so that the fewest
    bytes go over the wire, and then the fewest flop are computed; ``as_written`` computes where the tensors are, as
    hand-written parallel code does, with the fewest bytes that this allows; ``as_compiled`` splits as XLA's partitioner
    does. With *share_phases* (the default of ``as_compiled`` only) tensors gathered in the forward pass are kept for
    the backward pass; otherwise they are gathered again. Operators of the kinds *crossings* lead from one mesh to
    another, in mode ``as_written``.
    """
    if mode not in MODES:
        raise UnknownName.among("mode", mode, "mode", MODES)
    share = mode == "as_compiled" if share_phases is None else share_phases
    planners = {"best": _Best, "as_written": _AsWritten, "as_compiled": _AsCompiled}
    planner = planners[mode](shardings, sizes, share, _addends(graph), frozenset(crossings))
    placed = tuple(planner.place(operator) for operator in graph.operators)
    return Partitioned(placed, planner.homes, tuple(collectives_of(placed)))


def _addends(graph: Graph) -> frozenset[str]:
    """Return the tensors that only one operator reads, and that operator adds."""
    reads = Counter(tensor.name for operator in graph.operators for tensor in operator.inputs)
    summed = (tensor for operator in graph.operators if operator.kind in LINEAR for tensor in operator.inputs)
    return frozenset(tensor.name for tensor in summed if reads[tensor.name] == 1)


@dataclass(frozen=True, slots=True)
class _Copy:
    """A tensor in another sharding than the one it is kept in."""

    sharding: Sharding
    phase: PassPhase
    level: int = 0


@dataclass
class _Planner(ABC):
    """Partitions operators, and keeps the shardings of their tensors."""

    wanted: Mapping[str, Sharding]
    sizes: Sizes
    share: bool
    addends: frozenset[str]
    crossings: frozenset[str]
    homes: dict[str, Sharding] = field(init=False)
    """How each tensor is kept between operators."""
    copies: dict[str, list[_Copy]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.homes = dict(self.wanted)

    @abstractmethod
    def place(self, operator: Operator) -> PartitionedOperator:
        """Return the partitioned *operator*, and record the shardings of its tensors."""

    def _found(self, tensor: Tensor, phase: PassPhase) -> list[_Copy]:
        return [copy for copy in self.copies.get(tensor.name, ()) if self.share or copy.phase == phase]

    def _transfer(self, tensor: Tensor, source: Sharding, target: Sharding) -> Transfer:
        steps, wire = reshard(tensor.dims, source, target, self.sizes)
        return Transfer(tensor, source, target, steps, wire)

    def _record(self, placed: PartitionedOperator, levels: Mapping[str, int]) -> PartitionedOperator:
        for transfer in placed.inputs:
            if transfer.steps:
                copy = _Copy(transfer.target, placed.operator.phase, levels.get(transfer.tensor.name, 0))
                self.copies.setdefault(transfer.tensor.name, []).append(copy)
        for transfer in placed.outputs:
            self.homes[transfer.tensor.name] = transfer.target
        return placed


def _placed(assignment: Assignment, inputs: list[Transfer], outputs: list[Transfer]) -> PartitionedOperator:
    ends = [transfer.target for transfer in inputs] + [transfer.source for transfer in outputs]
    dims = {dim: axes for sharding in ends for dim, axes in sharding.dims}
    return PartitionedOperator(assignment.operator, dims, tuple(inputs), tuple(outputs))


class _Best(_Planner):
    """The fewest elements on the wire, then the least work, then the fewest steps; operator by operator."""

    def place(self, operator: Operator) -> PartitionedOperator:
        setting = AssignmentSetting(operator, self.homes)
        best: tuple[tuple[float, float, int], PartitionedOperator] | None = None
        for assignment in assignments(setting):
            placed = self._split(assignment)
            cost = self._cost(assignment, placed)
            if best is None or cost < best[0]:
                best = cost, placed
            if not cost[0] and len(setting.axes) == sum(map(len, assignment.split.values())):
                break  # every axis splits the work and nothing is sent: optimal
        assert best is not None  # noqa: S101  an operator without axes has one assignment, the empty one
        return self._record(best[1], {})

    def _cost(self, assignment: Assignment, placed: PartitionedOperator) -> tuple[float, float, int]:
        transfers = placed.inputs + placed.outputs
        wire = sum(transfer.wire for transfer in transfers)
        return wire, assignment.work(self.sizes), sum(len(transfer.steps) for transfer in transfers)

    def _split(self, assignment: Assignment) -> PartitionedOperator:
        operator = assignment.operator
        inputs = [with_halo(self._fetch(tensor, assignment), operator, self.sizes) for tensor in operator.inputs]
        return _placed(assignment, inputs, [self._deliver(tensor, assignment) for tensor in operator.outputs])

    def _fetch(self, tensor: Tensor, assignment: Assignment) -> Transfer:
        """Reshard an input for its reader, from its home or its cheapest copy."""
        home = self.homes[tensor.name]
        target = assignment.reads(tensor, home)
        copies = (copy.sharding for copy in self._found(tensor, assignment.operator.phase))
        transfers = [self._transfer(tensor, source, target) for source in (home, *copies)]
        return min(transfers, key=lambda transfer: (transfer.wire, len(transfer.steps)))

    def _deliver(self, tensor: Tensor, assignment: Assignment) -> Transfer:
        """Reshard an output as wanted; the reduction of an addend waits for the sum that reads it."""
        return self._finish(tensor, assignment.makes(tensor, self.wanted[tensor.name]))

    def _finish(self, tensor: Tensor, made: Sharding) -> Transfer:
        target = self.wanted[tensor.name]
        if tensor.name in self.addends and not set(made.partial) <= set(target.partial):
            return Transfer(tensor, made, made, wire=self._transfer(tensor, made, target).wire)
        return self._transfer(tensor, made, target)


class _AsWritten(_Best):
    """Axes split the factors that they split in the tensors, as in hand-written parallel code."""

    def place(self, operator: Operator) -> PartitionedOperator:
        if operator.kind in self.crossings:
            return self._cross(operator)
        if may_add_later(operator, self.homes):
            return super().place(operator)  # addends whose sums are all pending are added before the reduction
        return self._record(self._split(xla_assignment(AssignmentSetting(operator, self.homes))), {})

    def _cross(self, operator: Operator) -> PartitionedOperator:
        """Partition an operator between two meshes as the mesh of dense layers splits its tokens."""
        routing = folded_mesh.routing_of(operator)
        factors = factors_of(operator)
        tokens = factors.axes(routing, factors.of[folded_mesh.TOKENS], self.homes[routing.name])
        folded = {tensor.name for tensor in operator.tensors if folded_mesh.is_folded(tensor)}
        there = Sharding.of({folded_mesh.TOKENS: tokens})
        assignment = xla_assignment(AssignmentSetting(operator, {**self.homes, **dict.fromkeys(folded, there)}))
        inputs, outputs = [], []
        for tensor in operator.inputs:
            kept = self.homes[tensor.name]
            leaves = tensor.name in folded
            inputs.append(
                self._crossed(tensor, folded_mesh.leaving(tokens, kept)) if leaves else self._fetch(tensor, assignment)
            )
        for tensor in operator.outputs:
            if tensor.name in folded:
                outputs.append(self._crossed(tensor, folded_mesh.entering(tokens, self.wanted[tensor.name])))
                continue
            made = assignment.makes(tensor, self.wanted[tensor.name])
            spread = folded_mesh.is_replicated(tokens) and "hidden" in tensor.dims
            outputs.append(self._finish(tensor, made.pending(("tp",)) if spread else made))
        return self._record(_placed(assignment, inputs, outputs), {})

    def _crossed(self, tensor: Tensor, steps: tuple[Step, ...]) -> Transfer:
        """Return the transfer of a tensor from one mesh to the other."""
        wire = sum(
            float(
                wire_share(step.kind, group_size(step.axes, self.sizes))
                * step.payload.elements(tensor.dims, self.sizes)
            )
            for step in steps
        )
        return Transfer(tensor, steps[0].before, steps[-1].after, steps, wire)


class _AsCompiled(_Planner):
    """As XLA's partitioner, before later passes optimise its output."""

    def place(self, operator: Operator) -> PartitionedOperator:
        assignment = xla_assignment(AssignmentSetting(operator, self.homes))
        fresh = [self._fetch(tensor, assignment) for tensor in operator.inputs]
        levels = _levels(operator, fresh)
        inputs = [with_halo(self._reused(transfer, operator.phase, levels), operator, self.sizes) for transfer in fresh]
        outputs = [self._deliver(tensor, assignment) for tensor in operator.outputs]
        return self._record(_placed(assignment, inputs, outputs), levels)

    def _fetch(self, tensor: Tensor, assignment: Assignment) -> Transfer:
        home = self.homes[tensor.name]
        return self._transfer(tensor, home, assignment.reads(tensor, home))

    def _reused(self, transfer: Transfer, phase: PassPhase, levels: Mapping[str, int]) -> Transfer:
        """Reuse a copy that an earlier operator fetched in the same way."""
        level, target = levels.get(transfer.tensor.name, 0), transfer.target
        if any((copy.sharding, copy.level) == (target, level) for copy in self._found(transfer.tensor, phase)):
            return Transfer(transfer.tensor, target, target)
        return transfer

    def _deliver(self, tensor: Tensor, assignment: Assignment) -> Transfer:
        """All-reduce first and slice afterwards: later passes of XLA fuse the two into a reduce-scatter."""
        target = self.wanted[tensor.name]
        made = assignment.makes(tensor, target)
        pending = tuple(axis for axis in made.partial if axis not in target.partial)
        if not pending:
            return self._transfer(tensor, made, target)
        reduced = made.pending(axis for axis in made.partial if axis in target.partial)
        rest = self._transfer(tensor, reduced, target)
        return replace(rest, source=made, steps=(Step("all_reduce", pending, made, reduced), *rest.steps))


def _levels(operator: Operator, transfers: list[Transfer]) -> dict[str, int]:
    """Return the level of XLA's recursion over an einsum at which each input is fetched.

    Of several inputs to reshard, the cheapest (the first of equals) is fetched at the top and the others inside its
    groups of devices. Fetching one tensor at two levels gives two instructions that XLA does not merge.
    """
    sent = [transfer for transfer in transfers if transfer.wire]
    if operator.kind not in EINSUMS or not sent:
        return {}
    top = min(sent, key=lambda transfer: transfer.wire)
    return {transfer.tensor.name: int(transfer is not top) for transfer in sent}
