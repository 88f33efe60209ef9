"""Partition a graph: the factor that each axis splits in each operator, and the collectives between operators.

Operators are partitioned one after the other. The assignment of axes to factors determines the shardings in which an
operator reads its inputs and makes its outputs; transfers reshard them from and to those in which tensors are kept.
Operators that lead from one mesh to another (`cosmic.workload.sharding.graph_partition`) work on the mesh of dense layers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from cosmic.base.errors import SpecError, UnknownName
from cosmic.base.numeric import Numeric
from cosmic.workload.operator_graph import Graph, Operator, PassPhase, Sizes, Tensor, elements
from cosmic.workload.sharding.factor_assignment import (
    EINSUMS,
    LINEAR,
    Assignment,
    AssignmentSetting,
    factors_of,
    list_assignments,
    may_add_later,
    xla_assignment,
)
from cosmic.workload.sharding.resharding import COLLECTIVES, Collective, Step, payload_elements, reshard, wire_share
from cosmic.workload.sharding.tensor_sharding import Axes, Sharding, group_size, local_elements, local_size

# ---- A partitioned graph: local operators, and the collectives between them


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
        """Return the elements per device of the payload of one call, for a tensor with the stored *dims*."""
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
            yield from _of_transfer(transfer, maker or part.operator, is_output=maker is not None)
        for transfer in part.outputs:
            makers[transfer.tensor.name] = part.operator
            yield from _of_transfer(transfer, part.operator, is_output=True)


def _of_transfer(transfer: Transfer, operator: Operator, *, is_output: bool) -> Iterator[CollectiveOp]:
    verb, wish = ("makes", "is kept") if is_output else ("needs", "is")
    actual, required = (transfer.source, transfer.target) if is_output else (transfer.target, transfer.source)
    why = f"{operator.name} {verb} it [{actual}], it {wish} [{required}]"
    for step in transfer.steps:
        if step.kind in COLLECTIVES:
            yield CollectiveOp(
                kind=step.kind,
                axes=step.axes,
                tensor=transfer.tensor.name,
                dims=transfer.tensor.dims,
                sharding=step.payload,
                operator=operator.name,
                side="output" if is_output else "input",
                phase=operator.phase,
                why=why
                if step.halo is None
                else f"{operator.name} reads {step.halo[1]} rows of {step.halo[0]} of its neighbour",
                halo=step.halo,
            )


# ---- Boundary rows: what a window reads of its neighbours' shards where a dimension that it slides along is split


def halo_rows(window: int, stride: int = 1, padding: int = 0, dilation: int = 1) -> tuple[int, int]:
    """Return the rows that a shard lacks before and after it.

    >>> halo_rows(3, 1, 1), halo_rows(3, 2, 1), halo_rows(7, 2, 3), halo_rows(2, 2), halo_rows(1)
    ((1, 1), (1, 0), (3, 2), (0, 0), (0, 0))
    """
    return padding, max(0, (window - 1) * dilation - (stride - 1) - padding)


def _is_summed(transfer: Transfer, operator: Operator, dim: str) -> bool:
    """Return whether a gradient is summed over *dim* into that of a weight: windows slide over the other input."""
    same_dims = {dim, *(name for pair in operator.same if dim in pair for name in pair)}
    output_dims = {name for tensor in operator.outputs for name in tensor.dims}
    return transfer.tensor.role == "gradient" and not same_dims & output_dims


def add_halo(transfer: Transfer, operator: Operator, sizes: Sizes) -> Transfer:
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


# ---- Recurrences: what every step sends on its own, and what is sent at once


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


def find_stepping(operators: Iterable[Operator], handed: Collection[str] = ()) -> Stepping:
    """Return the tensors that each step of a recurrence sends by itself; *handed* are passed to the next step.

    >>> from cosmic.workload.operator_graph import Tensor
    >>> x, u, h = (Tensor(name, ("batch", "time", "hidden")) for name in ("x", "u", "h"))
    >>> cell = [Operator("u", "gelu", (x,), (u,), serial=("time",)), Operator("h", "tanh", (u,), (h,))]
    >>> sorted(find_stepping(cell).tensors), find_stepping(cell, ["h"]).of("h", "forward", h.dims)
    ([('u', 'forward')], ('time',))
    """
    listed = tuple(operators)
    dims = frozenset(dim for operator in listed for dim in operator.serial)
    inside = [operator for operator in listed if dims & set(operator.dims)]
    produced = {(tensor.name, operator.phase) for operator in inside for tensor in operator.outputs}
    read = {(tensor.name, operator.phase) for operator in inside for tensor in operator.inputs}
    passed: set[tuple[str, PassPhase]] = {(name, "forward") for name in handed} if dims else set()
    passed |= {(f"d_{name}", "backward") for name, _ in passed}
    return Stepping(dims, frozenset((produced & read) | passed))


def split_into_steps(partitioned: Partitioned, handed: Collection[str]) -> Partitioned:
    """Return a partitioned graph with the collectives that every step of a recurrence calls on its own."""
    recurrence = find_stepping((operator.operator for operator in partitioned.operators), handed)
    if not recurrence.dims:
        return partitioned
    _check_whole(partitioned, recurrence)

    def stepped(collective: CollectiveOp) -> CollectiveOp:
        return replace(collective, serial=recurrence.of(collective.tensor, collective.phase, collective.dims))

    return replace(partitioned, collectives=tuple(map(stepped, partitioned.collectives)))


def _check_whole(partitioned: Partitioned, recurrence: Stepping) -> None:
    """Refuse a split of the dimension that a recurrence runs through: no step has all of a later one's part."""
    for operator in partitioned.operators:
        for transfer in (*operator.inputs, *operator.outputs):
            tensor = transfer.tensor
            for dim in recurrence.of(tensor.name, operator.operator.phase, tensor.dims):
                axes = dict.fromkeys((*transfer.source.axes(dim), *transfer.target.axes(dim)))
                if axes:
                    rule = f"a recurrence runs through {dim} step by step, so that no axis can split it"
                    raise SpecError("annotations", f"{tensor.name} over {' '.join(axes)}", rule)


# ---- Two meshes over the same devices: dense layers split them into dp, cp and tp, experts into edp, ep and etp

CROSSINGS = ("dispatch", "combine", "dispatch_grad", "combine_grad")
"""Kinds of operators that read tensors of one mesh and make tensors of the other."""
TOKENS, EXPERTS = "tokens", "experts"


def is_folded(tensor: Tensor) -> bool:
    """Return whether *tensor* holds tokens on the mesh of experts."""
    return {TOKENS, EXPERTS} <= set(tensor.dims)


def routing_of(operator: Operator) -> Tensor:
    """Return the tensor that says which experts a token goes to, on the mesh of dense layers; a crossing reads it."""
    return operator.inputs[1]


def is_replicated(tokens: Axes) -> bool:
    """Return whether the devices of tp have the same tokens, if these *tokens* axes split them in dense layers."""
    return "tp" not in tokens


def computed_sharding(tokens: Axes, stored: Sharding) -> Sharding:
    """Return the sharding of a tensor of the experts' mesh while a crossing reads or makes it; *kept* is that after."""
    if is_replicated(tokens):
        return Sharding.of({EXPERTS: ("tep",), TOKENS: tokens}, stored.partial)
    return Sharding.of({TOKENS: tokens})


def steps_to_experts(tokens: Axes, stored: Sharding) -> tuple[Step, ...]:
    """Return the steps that take tokens to experts, where they are *kept*."""
    source = computed_sharding(tokens, stored)
    if is_replicated(tokens):
        return (Step("all_to_all", ("oep",), source, stored),)
    spread = Sharding.of({EXPERTS: ("ep",), TOKENS: ("edp", "etp")})
    return Step("all_to_all", ("ep",), source, spread), Step("all_gather", ("etp",), spread, stored)


def steps_from_experts(tokens: Axes, stored: Sharding) -> tuple[Step, ...]:
    """Return the steps that take what experts made back to where their tokens are."""
    axes = ("oep",) if is_replicated(tokens) else ("ep",)
    return (Step("all_to_all", axes, stored, computed_sharding(tokens, stored)),)


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
    planner = planners[mode](shardings, sizes, share, _find_addends(graph), frozenset(crossings))
    partitioned = tuple(planner.partition_operator(operator) for operator in graph.operators)
    return Partitioned(partitioned, planner.stored, tuple(collectives_of(partitioned)))


def _find_addends(graph: Graph) -> frozenset[str]:
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
    stored: dict[str, Sharding] = field(init=False)
    """How each tensor is kept between operators."""
    copies: dict[str, list[_Copy]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stored = dict(self.wanted)

    @abstractmethod
    def partition_operator(self, operator: Operator) -> PartitionedOperator:
        """Return the partitioned *operator*, and record the shardings of its tensors."""

    def _copies_of(self, tensor: Tensor, phase: PassPhase) -> list[_Copy]:
        return [copy for copy in self.copies.get(tensor.name, ()) if self.share or copy.phase == phase]

    def _transfer(self, tensor: Tensor, source: Sharding, target: Sharding) -> Transfer:
        steps, wire = reshard(tensor.dims, source, target, self.sizes)
        return Transfer(tensor, source, target, steps, wire)

    def _record(self, partitioned: PartitionedOperator, levels: Mapping[str, int]) -> PartitionedOperator:
        for transfer in partitioned.inputs:
            if transfer.steps:
                copy = _Copy(transfer.target, partitioned.operator.phase, levels.get(transfer.tensor.name, 0))
                self.copies.setdefault(transfer.tensor.name, []).append(copy)
        for transfer in partitioned.outputs:
            self.stored[transfer.tensor.name] = transfer.target
        return partitioned


def _make_partitioned(assignment: Assignment, inputs: list[Transfer], outputs: list[Transfer]) -> PartitionedOperator:
    ends = [transfer.target for transfer in inputs] + [transfer.source for transfer in outputs]
    dims = {dim: axes for sharding in ends for dim, axes in sharding.dims}
    return PartitionedOperator(assignment.operator, dims, tuple(inputs), tuple(outputs))


class _Best(_Planner):
    """The fewest elements on the wire, then the least work, then the fewest steps; operator by operator."""

    def partition_operator(self, operator: Operator) -> PartitionedOperator:
        setting = AssignmentSetting(operator, self.stored)
        best: tuple[tuple[float, float, int], PartitionedOperator] | None = None
        for assignment in list_assignments(setting):
            partitioned = self._partition_as(assignment)
            cost = self._cost(assignment, partitioned)
            if best is None or cost < best[0]:
                best = cost, partitioned
            if not cost[0] and len(setting.axes) == sum(map(len, assignment.split.values())):
                break  # every axis splits the work and nothing is sent: optimal
        assert best is not None  # noqa: S101  an operator without axes has one assignment, the empty one
        return self._record(best[1], {})

    def _cost(self, assignment: Assignment, partitioned: PartitionedOperator) -> tuple[float, float, int]:
        transfers = partitioned.inputs + partitioned.outputs
        wire = sum(transfer.wire for transfer in transfers)
        return wire, assignment.work(self.sizes), sum(len(transfer.steps) for transfer in transfers)

    def _partition_as(self, assignment: Assignment) -> PartitionedOperator:
        operator = assignment.operator
        inputs = [add_halo(self._fetch_input(tensor, assignment), operator, self.sizes) for tensor in operator.inputs]
        return _make_partitioned(
            assignment, inputs, [self._deliver_output(tensor, assignment) for tensor in operator.outputs]
        )

    def _fetch_input(self, tensor: Tensor, assignment: Assignment) -> Transfer:
        """Reshard an input for its reader, from its home or its cheapest copy."""
        stored = self.stored[tensor.name]
        target = assignment.reads(tensor, stored)
        copies = (copy.sharding for copy in self._copies_of(tensor, assignment.operator.phase))
        transfers = [self._transfer(tensor, source, target) for source in (stored, *copies)]
        return min(transfers, key=lambda transfer: (transfer.wire, len(transfer.steps)))

    def _deliver_output(self, tensor: Tensor, assignment: Assignment) -> Transfer:
        """Reshard an output as wanted; the reduction of an addend waits for the sum that reads it."""
        return self._reshard_output(tensor, assignment.makes(tensor, self.wanted[tensor.name]))

    def _reshard_output(self, tensor: Tensor, source: Sharding) -> Transfer:
        target = self.wanted[tensor.name]
        if tensor.name in self.addends and not set(source.partial) <= set(target.partial):
            return Transfer(tensor, source, source, wire=self._transfer(tensor, source, target).wire)
        return self._transfer(tensor, source, target)


class _AsWritten(_Best):
    """Axes split the factors that they split in the tensors, as in hand-written parallel code."""

    def partition_operator(self, operator: Operator) -> PartitionedOperator:
        if operator.kind in self.crossings:
            return self._partition_crossing(operator)
        if may_add_later(operator, self.stored):
            return super().partition_operator(
                operator
            )  # addends whose sums are all pending are added before the reduction
        return self._record(self._partition_as(xla_assignment(AssignmentSetting(operator, self.stored))), {})

    def _partition_crossing(self, operator: Operator) -> PartitionedOperator:
        """Partition an operator between two meshes as the mesh of dense layers splits its tokens."""
        routing = routing_of(operator)
        factors = factors_of(operator)
        tokens = factors.axes(routing, factors.of[TOKENS], self.stored[routing.name])
        folded = {tensor.name for tensor in operator.tensors if is_folded(tensor)}
        token_sharding = Sharding.of({TOKENS: tokens})
        assignment = xla_assignment(
            AssignmentSetting(operator, {**self.stored, **dict.fromkeys(folded, token_sharding)})
        )
        inputs, outputs = [], []
        for tensor in operator.inputs:
            stored = self.stored[tensor.name]
            leaves = tensor.name in folded
            inputs.append(
                self._crossing_transfer(tensor, steps_from_experts(tokens, stored))
                if leaves
                else self._fetch_input(tensor, assignment)
            )
        for tensor in operator.outputs:
            if tensor.name in folded:
                outputs.append(self._crossing_transfer(tensor, steps_to_experts(tokens, self.wanted[tensor.name])))
                continue
            output = assignment.makes(tensor, self.wanted[tensor.name])
            spread = is_replicated(tokens) and "hidden" in tensor.dims
            outputs.append(self._reshard_output(tensor, output.pending(("tp",)) if spread else output))
        return self._record(_make_partitioned(assignment, inputs, outputs), {})

    def _crossing_transfer(self, tensor: Tensor, steps: tuple[Step, ...]) -> Transfer:
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

    def partition_operator(self, operator: Operator) -> PartitionedOperator:
        assignment = xla_assignment(AssignmentSetting(operator, self.stored))
        fresh = [self._fetch_input(tensor, assignment) for tensor in operator.inputs]
        levels = _fetch_levels(operator, fresh)
        inputs = [
            add_halo(self._reuse_gathered(transfer, operator.phase, levels), operator, self.sizes) for transfer in fresh
        ]
        outputs = [self._deliver_output(tensor, assignment) for tensor in operator.outputs]
        return self._record(_make_partitioned(assignment, inputs, outputs), levels)

    def _fetch_input(self, tensor: Tensor, assignment: Assignment) -> Transfer:
        stored = self.stored[tensor.name]
        return self._transfer(tensor, stored, assignment.reads(tensor, stored))

    def _reuse_gathered(self, transfer: Transfer, phase: PassPhase, levels: Mapping[str, int]) -> Transfer:
        """Reuse a copy that an earlier operator fetched in the same way."""
        level, target = levels.get(transfer.tensor.name, 0), transfer.target
        if any((copy.sharding, copy.level) == (target, level) for copy in self._copies_of(transfer.tensor, phase)):
            return Transfer(transfer.tensor, target, target)
        return transfer

    def _deliver_output(self, tensor: Tensor, assignment: Assignment) -> Transfer:
        """All-reduce first and slice afterwards: later passes of XLA fuse the two into a reduce-scatter."""
        target = self.wanted[tensor.name]
        source = assignment.makes(tensor, target)
        pending = tuple(axis for axis in source.partial if axis not in target.partial)
        if not pending:
            return self._transfer(tensor, source, target)
        reduced = source.pending(axis for axis in source.partial if axis in target.partial)
        rest = self._transfer(tensor, reduced, target)
        return replace(rest, source=source, steps=(Step("all_reduce", pending, source, reduced), *rest.steps))


def _fetch_levels(operator: Operator, transfers: list[Transfer]) -> dict[str, int]:
    """Return the level of XLA's recursion over an einsum at which each input is fetched.

    Of several inputs to reshard, the cheapest (the first of equals) is fetched at the top and the others inside its
    groups of devices. Fetching one tensor at two levels gives two instructions that XLA does not merge.
    """
    sent = [transfer for transfer in transfers if transfer.wire]
    if operator.kind not in EINSUMS or not sent:
        return {}
    top = min(sent, key=lambda transfer: transfer.wire)
    return {transfer.tensor.name: int(transfer is not top) for transfer in sent}
