"""From shardings to what each device does: which factor each axis splits, and how tensors get there.

Operators are placed one after the other. Each reads its inputs in the sharding that its assignment of axes to
factors asks for and makes its outputs in the one that follows from it; transfers mend the differences to how
tensors are kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from cosmic.errors import UnknownName
from cosmic.workload.graph import Graph, Operator, Phase, Sizes, Tensor
from cosmic.workload.sharding.annotation import Sharding
from cosmic.workload.sharding.assignment import Assignment, Setting, assignments, xla_assignment
from cosmic.workload.sharding.factors import LINEAR, PRODUCTS
from cosmic.workload.sharding.partitioned import Partitioned, PartitionedOperator, Transfer, collectives_of
from cosmic.workload.sharding.propagation import Propagation
from cosmic.workload.sharding.resharding import Step, plan

Mode = Literal["best", "as_written", "as_compiled"]
MODES: tuple[Mode, ...] = get_args(Mode)


def partition(
    graph: Graph, propagation: Propagation, *, sizes: Sizes, mode: Mode = "best", share_phases: bool | None = None
) -> Partitioned:
    """Return what each device does when the tensors of *graph* lie as *propagation* says.

    *sizes* (numbers, of dimensions and axes) decide between ways of different cost; the result holds for other
    sizes too, though another way may then be cheaper. In mode ``best`` an operator is split so that the fewest
    bytes go over the wire, and then the fewest flop are done; in ``as_written`` it computes where its tensors
    lie, as hand-written parallel code does, and sends as little as that allows; in ``as_compiled`` it is split
    as XLA's partitioner does it.
    With *share_phases* what is gathered in the forward phase is kept for the backward phase, as XLA does;
    otherwise, as ``best`` does unless told, it is gathered again.
    """
    if mode not in MODES:
        raise UnknownName.among("mode", mode, "mode", MODES)
    share = mode == "as_compiled" if share_phases is None else share_phases
    planners = {"best": _Best, "as_written": _AsWritten, "as_compiled": _AsCompiled}
    planner = planners[mode](propagation.shardings, sizes, share, _addends(graph))
    parts = tuple(planner.place(operator) for operator in graph.operators)
    return Partitioned(parts, planner.homes, tuple(collectives_of(parts)))


def _addends(graph: Graph) -> frozenset[str]:
    """Return the tensors that one sum alone reads."""
    reads = Counter(tensor.name for operator in graph.operators for tensor in operator.inputs)
    summed = (tensor for operator in graph.operators if operator.kind in LINEAR for tensor in operator.inputs)
    return frozenset(tensor.name for tensor in summed if reads[tensor.name] == 1)


@dataclass(frozen=True, slots=True)
class _Copy:
    """A tensor in another sharding than the one it is kept in."""

    sharding: Sharding
    phase: Phase
    level: int = 0


@dataclass
class _Planner(ABC):
    """Places operators, and remembers where their tensors are."""

    wanted: Mapping[str, Sharding]
    sizes: Sizes
    share: bool
    addends: frozenset[str]
    homes: dict[str, Sharding] = field(init=False)
    """How each tensor is kept between operators."""
    copies: dict[str, list[_Copy]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.homes = dict(self.wanted)

    @abstractmethod
    def place(self, operator: Operator) -> PartitionedOperator:
        """Decide how *operator* is split, and note where this puts tensors."""

    def _found(self, tensor: Tensor, phase: Phase) -> list[_Copy]:
        return [copy for copy in self.copies.get(tensor.name, ()) if self.share or copy.phase == phase]

    def _transfer(self, tensor: Tensor, source: Sharding, target: Sharding) -> Transfer:
        steps, wire = plan(tensor.dims, source, target, self.sizes)
        return Transfer(tensor, source, target, steps, wire)

    def _note(self, part: PartitionedOperator, levels: Mapping[str, int]) -> PartitionedOperator:
        for transfer in part.inputs:
            if transfer.steps:
                copy = _Copy(transfer.target, part.operator.phase, levels.get(transfer.tensor.name, 0))
                self.copies.setdefault(transfer.tensor.name, []).append(copy)
        for transfer in part.outputs:
            self.homes[transfer.tensor.name] = transfer.target
        return part


def _part(assignment: Assignment, inputs: list[Transfer], outputs: list[Transfer]) -> PartitionedOperator:
    ends = [transfer.target for transfer in inputs] + [transfer.source for transfer in outputs]
    dims = {dim: axes for sharding in ends for dim, axes in sharding.dims}
    return PartitionedOperator(assignment.operator, dims, tuple(inputs), tuple(outputs))


class _Best(_Planner):
    """The fewest elements on the wire, then the least work, then the fewest steps; operator by operator."""

    def place(self, operator: Operator) -> PartitionedOperator:
        setting = Setting(operator, self.homes)
        best: tuple[tuple[float, float, int], PartitionedOperator] | None = None
        for assignment in assignments(setting):
            part = self._split(assignment)
            price = self._price(assignment, part)
            if best is None or price < best[0]:
                best = price, part
            if not price[0] and len(setting.axes) == sum(map(len, assignment.split.values())):
                break  # every axis splits the work and nothing is sent: nothing can be better
        assert best is not None  # noqa: S101  an operator without axes has one assignment, the empty one
        return self._note(best[1], {})

    def _price(self, assignment: Assignment, part: PartitionedOperator) -> tuple[float, float, int]:
        transfers = part.inputs + part.outputs
        wire = sum(transfer.wire for transfer in transfers)
        return wire, assignment.work(self.sizes), sum(len(transfer.steps) for transfer in transfers)

    def _split(self, assignment: Assignment) -> PartitionedOperator:
        operator = assignment.operator
        inputs = [self._fetch(tensor, assignment) for tensor in operator.inputs]
        return _part(assignment, inputs, [self._deliver(tensor, assignment) for tensor in operator.outputs])

    def _fetch(self, tensor: Tensor, assignment: Assignment) -> Transfer:
        """Bring an input to where it is read, from the nearest place where it is."""
        home = self.homes[tensor.name]
        target = assignment.reads(tensor, home)
        copies = (copy.sharding for copy in self._found(tensor, assignment.operator.phase))
        transfers = [self._transfer(tensor, source, target) for source in (home, *copies)]
        return min(transfers, key=lambda transfer: (transfer.wire, len(transfer.steps)))

    def _deliver(self, tensor: Tensor, assignment: Assignment) -> Transfer:
        """Bring an output to where it is wanted; a pending sum that is but an addend of another sum can wait."""
        target = self.wanted[tensor.name]
        made = assignment.makes(tensor, target)
        if tensor.name in self.addends and not set(made.partial) <= set(target.partial):
            return Transfer(tensor, made, made, wire=self._transfer(tensor, made, target).wire)
        return self._transfer(tensor, made, target)


class _AsWritten(_Best):
    """Axes split what they split in the tensors: data stays where it is, and only its neighbours are sent for."""

    def place(self, operator: Operator) -> PartitionedOperator:
        if operator.kind in LINEAR:
            return super().place(operator)  # sums that are pending in all addends are added while pending
        return self._note(self._split(xla_assignment(Setting(operator, self.homes))), {})


class _AsCompiled(_Planner):
    """What XLA's partitioner emits, before any pass that cleans up after it."""

    def place(self, operator: Operator) -> PartitionedOperator:
        assignment = xla_assignment(Setting(operator, self.homes))
        fresh = [self._fetch(tensor, assignment) for tensor in operator.inputs]
        levels = _levels(operator, fresh)
        inputs = [self._reused(transfer, operator.phase, levels) for transfer in fresh]
        outputs = [self._deliver(tensor, assignment) for tensor in operator.outputs]
        return self._note(_part(assignment, inputs, outputs), levels)

    def _fetch(self, tensor: Tensor, assignment: Assignment) -> Transfer:
        home = self.homes[tensor.name]
        return self._transfer(tensor, home, assignment.reads(tensor, home))

    def _reused(self, transfer: Transfer, phase: Phase, levels: Mapping[str, int]) -> Transfer:
        """Take what an earlier operator fetched in the same way."""
        level, target = levels.get(transfer.tensor.name, 0), transfer.target
        if any((copy.sharding, copy.level) == (target, level) for copy in self._found(transfer.tensor, phase)):
            return Transfer(transfer.tensor, target, target)
        return transfer

    def _deliver(self, tensor: Tensor, assignment: Assignment) -> Transfer:
        """Reduce first and slice afterwards: to make one reduce-scatter of the two is left to later passes."""
        target = self.wanted[tensor.name]
        made = assignment.makes(tensor, target)
        pending = tuple(axis for axis in made.partial if axis not in target.partial)
        if not pending:
            return self._transfer(tensor, made, target)
        reduced = made.pending(axis for axis in made.partial if axis in target.partial)
        rest = self._transfer(tensor, reduced, target)
        return replace(rest, source=made, steps=(Step("all_reduce", pending, made, reduced), *rest.steps))


def _levels(operator: Operator, transfers: list[Transfer]) -> dict[str, int]:
    """Return how deep in XLA's recursion over an einsum each input is fetched.

    Where several inputs must be sent for, the cheapest (the first of equals) is fetched at the top and the
    others inside its groups of devices. Fetching one tensor at two levels gives two instructions in which XLA
    does not recognise the same thing, so that it happens twice.
    """
    sent = [transfer for transfer in transfers if transfer.wire]
    if operator.kind not in PRODUCTS or not sent:
        return {}
    top = min(sent, key=lambda transfer: transfer.wire)
    return {transfer.tensor.name: int(transfer is not top) for transfer in sent}
