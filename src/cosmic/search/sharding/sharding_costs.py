"""From a program to variables and costs: what may be chosen, and what each choice and each pair of choices costs.

    variables   a sharding for each tensor, as it is kept; a split for each operator; for a tensor that several
                operators read, the copy that they read in a pass
    costs       of a split: its kernels. Of a tensor and an operator: the collectives between how it is kept and how it
                is read or made. Of a kept tensor: its memory

A backward operator is split as its forward operator is. The gradient of a weight is kept as the weight is; gradients of
activations have shardings of their own.

What may be chosen: each axis of the mesh splits one dimension, or none. Axes that split one dimension together come in
every order, if they are two; else in the order of the mesh. A dimension that does not divide is padded, but no device
is left without a part of it.

Reshardings between all shardings of a tensor are priced at once. The planner (`resharding` of the workload) finds the
steps of fewest bytes from one sharding to another, a pair at a time. Here its steps are the edges of a graph of all
shardings, and each target is relaxed backwards: of fewest elements on the wire, then of fewest steps, then of the
smallest groups. What a path costs is added up beside.

The best choice of all variables, under a limit on memory, with a bound.

A step takes C + E + max((1 - e) H, H - C): compute C, exposed collectives E, and what compute does not hide of the
collectives of weights, H, of which it can hide the share e at best. That is the larger of two sums,
f = C + E + (1 - e) H and g = E + H. For every l between 0 and 1, and every price p of a byte of memory,

    min over choices of   l f + (1 - l) g + p (memory - limit)

is a bound (Lagrange), and one elimination finds it. Both numbers are searched: l between the choices that make f and g
smallest, p until memory fits. The best choice on the way is kept; where it meets the bound, it is proven.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import combinations, permutations, product
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cosmic.base.numeric import multiply
from cosmic.base.optimise import Steps, optimise
from cosmic.search.sharding.elimination import (
    MAX_ENTRIES,
    EliminationResult,
    PairwiseCosts,
    minimise_costs,
    refine_states,
)
from cosmic.search.sharding.program_parts import Choice, Part, ProgramParts
from cosmic.search.sharding.sharding_result import Prices, local_part
from cosmic.workload.operator_graph import Operator, PassPhase, Sizes, SizeTable, Tensor, elements
from cosmic.workload.sharding.factor_assignment import LINEAR, OFFSET, THROUGH, Assignment, factors_of
from cosmic.workload.sharding.graph_partition import Transfer, add_halo
from cosmic.workload.sharding.resharding import Move, Step, list_dim_moves, wire_share
from cosmic.workload.sharding.tensor_sharding import REPLICATED, Axes, Sharding, group_size

# ---- What may be chosen: the shardings of a tensor, and the splits of an operator

MAX_ORDERED_AXES = 2
"""Up to this many axes of one dimension are tried in every order; reshardings pass through all orders."""
PENDING = "…"
"""In place of a dimension: the sum over the axis is pending."""


def tensor_shardings(tensor: Tensor, axes: Axes, sizes: Sizes, *, pending: bool = False) -> tuple[Sharding, ...]:
    """Return the shardings in which *tensor* may be kept; with *pending*, also those with sums over some axes to do.

    >>> x = Tensor("x", ("batch", "hidden"))
    >>> [str(each) for each in tensor_shardings(x, ("tp",), {"batch": 2, "hidden": 8, "tp": 4})]
    ['replicated', 'hidden: tp']
    """
    dim_sizes = tuple((name, int(sizes[name])) for name in (*tensor.dims, *axes))
    return _list_shardings(tensor.stored_dims, axes, dim_sizes, pending, True)


def all_shardings(dims: tuple[str, ...], axes: Axes, sizes: Sizes) -> tuple[Sharding, ...]:
    """Return every sharding of a tensor with *dims* that a resharding may pass through."""
    return _list_shardings(dims, axes, tuple((name, int(sizes[name])) for name in (*dims, *axes)), True, False)


@lru_cache(maxsize=4096)
def _list_shardings(
    dims: tuple[str, ...], axes: Axes, dim_sizes: tuple[tuple[str, int], ...], pending: bool, limited: bool
) -> tuple[Sharding, ...]:
    sizes = dict(dim_sizes)
    options = (None, *dict.fromkeys(dims), *((PENDING,) if pending else ()))
    shardings: list[Sharding] = []
    for axes_by_dim in _assign_axes(
        axes, options, sizes, set(dims) if limited else set(), set(dims), MAX_ORDERED_AXES if limited else 9
    ):
        partial = axes_by_dim.pop(PENDING, ())
        shardings.append(Sharding(tuple(sorted(axes_by_dim.items())), tuple(sorted(partial))))
    return tuple(dict.fromkeys(shardings))


def operator_splits(operator: Operator, axes: Axes, sizes: Sizes) -> tuple[Assignment, ...]:
    """Return the ways to split *operator*: each axis on one of its factors, on none, or on a sum that stays pending."""
    factors = factors_of(operator)
    open_ = [factor for factor in factors.names if factor not in factors.whole]
    through = (THROUGH,) if operator.kind in (*LINEAR, OFFSET) else ()
    splits = []
    for axes_by_factor in _assign_axes(axes, (None, *open_, *through), sizes, set(open_), set(open_)):
        pending = axes_by_factor.pop(THROUGH, ())
        splits.append(Assignment(operator, axes_by_factor, tuple(sorted(pending))))
    return tuple(splits)


def _assign_axes(
    axes: Axes,
    options: Sequence[str | None],
    sizes: Sizes,
    limited: set[str],
    ordered: set[str],
    max_ordered: int = MAX_ORDERED_AXES,
) -> Iterator[dict[str, Axes]]:
    """Yield every way to give each axis a place, in every order where axes share one."""
    for chosen in product(options, repeat=len(axes)):
        axes_by_target: dict[str, Axes] = {}
        for axis, target in zip(axes, chosen, strict=True):
            if target is not None:
                axes_by_target[target] = (*axes_by_target.get(target, ()), axis)
        if any(
            target in limited and prod(sizes[axis] for axis in group) > sizes[target]
            for target, group in axes_by_target.items()
        ):
            continue
        orders_of = [
            permutations(group) if target in ordered and len(group) <= max_ordered else (group,)
            for target, group in axes_by_target.items()
        ]
        for orders in product(*orders_of):
            yield dict(zip(axes_by_target, orders, strict=True))


# ---- Reshardings between all shardings of a tensor at once

Price = Callable[[Move, Axes, float], float]
"""What a collective costs: of its kind, its axes and the elements of its payload."""
Floats = npt.NDArray[np.float64]
STEP_WEIGHT = 1e-9
"""A step more weighs as much as this share of the tensor on the wire: it decides between equals only."""


@dataclass(frozen=True)
class ReshardingRoutes:
    """What it costs to take a tensor from each of some shardings to each other."""

    index_of: dict[Sharding, int]
    cost: Floats
    """By source and target; infinite where there is no way."""

    def between(self, source: Sharding, target: Sharding) -> float:
        """Return what it costs to get from *source* to *target*."""
        return float(self.cost[self.index_of[source], self.index_of[target]])


def find_resharding_routes(
    dims: tuple[str, ...], states: tuple[Sharding, ...], sizes: Sizes, price: Price
) -> ReshardingRoutes:
    """Return the cheapest reshardings between *states*, the shardings of a tensor with *dims*."""
    index_of = {state: index for index, state in enumerate(states)}
    mesh = tuple(dict.fromkeys(axis for state in states for axis in state.used))
    payloads = [float(state.elements(dims, sizes)) for state in states]
    unit = STEP_WEIGHT * max(payloads)
    steps: list[tuple[int, int, Step, float, float]] = []
    for state, source in index_of.items():
        for step in _list_steps(dims, state, mesh):
            after = index_of.get(step.after)
            if after is not None:
                group = float(group_size(step.axes, sizes))
                payload = payloads[after] if step.kind == "all_gather" else payloads[source]
                weight = float(wire_share(step.kind, group)) * payload + unit * (1 + STEP_WEIGHT * group)
                steps.append((source, after, step, weight, price(step.kind, step.axes, payload)))
    if not steps:
        return ReshardingRoutes(index_of, np.zeros((1, 1)))
    sources, targets = (np.array([edge[side] for edge in steps]) for side in (0, 1))
    wire, cost = (np.array([edge[side] for edge in steps]) for side in (3, 4))
    kinds, named = _group_steps([edge[2] for edge in steps])
    total = np.empty((len(states), len(states)))
    for target, source in index_of.items():
        allowed = np.flatnonzero(np.array([_step_allowed(step, target) for step in named])[kinds])
        total[:, source] = _relax_paths(
            source, len(states), sources[allowed], targets[allowed], wire[allowed], cost[allowed]
        )
    return ReshardingRoutes(index_of, total)


def _relax_paths(
    target: int, count: int, sources: npt.NDArray[np.intp], targets: npt.NDArray[np.intp], wire: Floats, cost: Floats
) -> Floats:
    """Return what the paths of fewest elements to *target* cost, from every state (Bellman and Ford)."""
    distance = np.full(count, np.inf)
    paid = np.full(count, np.inf)
    distance[target] = paid[target] = 0.0
    order = np.argsort(sources, kind="stable")
    sources, targets, wire, cost = sources[order], targets[order], wire[order], cost[order]
    firsts = np.flatnonzero(np.r_[True, sources[1:] != sources[:-1]])
    owners = sources[firsts]
    while True:
        offered = wire + distance[targets]
        best = np.minimum.reduceat(offered, firsts)
        better = best < distance[owners]
        if not better.any():
            return paid
        chosen = _first_best(offered, best, firsts)
        distance[owners[better]] = best[better]
        paid[owners[better]] = (cost + paid[targets])[chosen[better]]


def _first_best(offered: Floats, best: Floats, firsts: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return the place of the first offer of each group that is its best."""
    counts = np.diff(np.r_[firsts, len(offered)])
    hits = np.flatnonzero(offered == np.repeat(best, counts))
    groups = np.searchsorted(firsts, hits, side="right") - 1
    chosen = np.zeros(len(firsts), dtype=np.intp)
    chosen[groups[::-1]] = hits[::-1]
    return chosen


def _group_steps(steps: list[Step]) -> tuple[npt.NDArray[np.intp], list[Step]]:
    """Return which steps are alike to `_step_allowed`, and one of each kind."""
    kinds: dict[object, int] = {}
    numbers: list[int] = []
    representatives: list[Step] = []
    for step in steps:
        axis, key = step.axes[0], None
        onto = next((dim for dim, axes in step.after.dims if axis in axes), "")
        if step.kind in ("slice", "mask", "all_reduce", "reduce_scatter"):
            key = (step.kind, step.axes, onto, step.before.partial)
        if kinds.setdefault(key, len(kinds)) == len(representatives):
            representatives.append(step)
        numbers.append(kinds[key])
    return np.array(numbers), representatives


def _step_allowed(step: Step, target: Sharding) -> bool:
    """Return whether the planner takes *step* on a way to *target*."""
    axis = step.axes[0]
    if step.kind == "slice":
        return target.holds(axis) is not None and axis in step.after.axes(target.holds(axis) or "")
    if step.kind == "mask":
        return axis in target.partial
    if step.kind == "all_reduce":
        return step.axes == tuple(
            other_axis
            for other_axis in step.before.partial
            if other_axis not in target.partial and target.holds(other_axis) is None
        )
    if step.kind != "reduce_scatter":
        return True
    if any(other_axis in target.partial for other_axis in step.axes):
        return False
    if len(step.axes) == 1 and target.holds(axis) is None:
        return True
    onto = next(dim for dim, axes in step.after.dims if axis in axes)
    ordered = tuple(other_axis for other_axis in target.axes(onto) if other_axis in step.before.partial)
    return any(ordered[start : start + len(step.axes)] == step.axes for start in range(len(ordered)))


def _list_steps(dims: tuple[str, ...], state: Sharding, mesh: Axes) -> Iterator[Step]:
    """Yield every step from *state* on a mesh of these axes."""
    used = state.used
    for axis in mesh:
        if axis not in used:
            yield Step("mask", (axis,), state, state.pending((*state.partial, axis)))
            for dim in dims:
                yield Step("slice", (axis,), state, state.split(dim, (*state.axes(dim), axis)))
    yield from _list_reductions(dims, state)
    for dim, axes in state.dims:
        yield Step("mask", axes[-1:], state, state.split(dim, axes[:-1]).pending((*state.partial, axes[-1])))
        yield from list_dim_moves(dim, dims, state)


def _list_reductions(dims: tuple[str, ...], state: Sharding) -> Iterator[Step]:
    """Yield the reductions of pending sums: some of them to all, or onto one dimension."""
    pending = state.partial
    for count in range(1, len(pending) + 1):
        for reduced in combinations(pending, count):
            remaining = state.pending(axis for axis in pending if axis not in reduced)
            yield Step("all_reduce", reduced, state, remaining)
            for axes in permutations(reduced):
                for dim in dims:
                    yield Step("reduce_scatter", axes, state, remaining.split(dim, remaining.axes(dim) + axes))


# ---- From a program to variables and costs: what is chosen, and what each choice and each pair of choices costs

COMPUTE, EXPOSED, HIDDEN, MEMORY = range(4)
"""The parts of a cost."""
COST_PARTS = 4
PHASES: tuple[PassPhase, ...] = ("forward", "backward")
Fixed = Mapping[str, tuple[Sharding, frozenset[str]]]
"""Shardings that are given, by the names of tensors, and the dimensions that are left open."""


@dataclass
class Costs:
    """Variables with their states, and what states and pairs of states cost, in parts."""

    states: list[tuple[Sharding | Assignment, ...]] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    """The number of each variable, by name."""
    single: list[Floats] = field(default_factory=list)
    pairs: dict[tuple[int, int], Floats] = field(default_factory=dict)

    def add(self, name: str, states: tuple[Sharding | Assignment, ...]) -> int:
        """Add a variable, unless it is there."""
        if name not in self.numbers:
            self.numbers[name] = len(self.states)
            self.states.append(states)
            self.single.append(np.zeros((COST_PARTS, len(states))))
        return self.numbers[name]

    def charge(self, kind: int, variable: int, costs: Floats) -> None:
        """Add costs of the states of one variable."""
        self.single[variable][kind] += costs

    def charge_pair(self, kind: int, first: int, second: int, costs: Floats) -> None:
        """Add costs of the states of two variables, by rows and columns."""
        if first > second:
            first, second, costs = second, first, costs.T
        key = (first, second)
        if key not in self.pairs:
            self.pairs[key] = np.zeros((COST_PARTS, len(self.states[first]), len(self.states[second])))
        self.pairs[key][kind] += costs

    def weighed(self, weights: tuple[float, ...]) -> PairwiseCosts:
        """Return the problem in which the parts of costs have these weights."""
        weight_array = np.array(weights)
        return PairwiseCosts(
            [len(state) for state in self.states],
            [multiply(weight_array, table) for table in self.single],
            {
                key: multiply(weight_array, pair.reshape(len(weight_array), -1)).reshape(pair.shape[1:])
                for key, pair in self.pairs.items()
            },
        )

    @property
    def neighbours(self) -> list[list[tuple[int, Floats]]]:
        """For each variable, those that meet it, with the costs of its states beside theirs."""
        tables: list[list[tuple[int, Floats]]] = [[] for _ in self.states]
        for (first, second), table in self.pairs.items():
            tables[first].append((second, table))
            tables[second].append((first, table.transpose(0, 2, 1)))
        return tables

    @cached_property
    def labels(self) -> list[list[npt.NDArray[np.intp]]]:
        """For each axis, the place that it has in every state of every variable, as a number."""
        axes = sorted(
            {axis for variable_states in self.states for state in variable_states for axis in _axis_roles(state)}
        )
        labels_by_axis = []
        for axis in axes:
            numbers: dict[str, int] = {}
            labels_by_axis.append(
                [
                    np.array(
                        [
                            numbers.setdefault(_axis_roles(state).get(axis, ""), len(numbers))
                            for state in variable_states
                        ]
                    )
                    for variable_states in self.states
                ]
            )
        return labels_by_axis

    def total(self, states: list[int]) -> Floats:
        """Return the parts of the costs of all variables in these states."""
        total = np.zeros(COST_PARTS)
        for number, state in enumerate(states):
            total += self.single[number][:, state]
        for (first, second), pair in self.pairs.items():
            total += pair[:, states[first], states[second]]
        return total


def _axis_roles(state: Sharding | Assignment) -> dict[str, str]:
    """Return what each axis splits in a sharding or in an operator."""
    if isinstance(state, Sharding):
        return {axis: dim for dim, axes in state.dims for axis in axes} | dict.fromkeys(state.partial, THROUGH)
    return {axis: dim for dim, axes in state.split.items() for axis in axes} | dict.fromkeys(state.through, THROUGH)


def price_choices(program: ProgramParts, prices: Prices, fixed: Fixed) -> Costs:
    """Return what may be chosen for *program*, and what it costs."""
    costs = Costs()
    for part in program.parts:
        tables = _SharedTables(prices, SizeTable({**program.sizes, **part.extra}))
        _PartCosts(part, costs, tables, fixed).add()
    return costs


@dataclass
class _SharedTables:
    """Tables that tensors of one shape, and operators of one form, share."""

    prices: Prices
    sizes: SizeTable
    by_shape: dict[object, ReshardingRoutes] = field(default_factory=dict)
    by_form: dict[object, Floats] = field(default_factory=dict)

    @cached_property
    def axes(self) -> Axes:
        """The axes of the mesh."""
        return self.prices.mesh.names

    def routes(self, dims: tuple[str, ...], width: float, steps: float = 1.0) -> ReshardingRoutes:
        """Return the reshardings of tensors with *dims*, whose elements have *width* bytes, in so many *steps*."""
        key = (dims, width, steps)
        if key not in self.by_shape:
            states = all_shardings(dims, self.axes, self.sizes)
            self.by_shape[key] = find_resharding_routes(
                dims,
                states,
                self.sizes,
                lambda kind, axes, n: steps * self.prices.collective(kind, axes, n / steps * width),
            )
        return self.by_shape[key]

    def kernels(self, splits_: tuple[Assignment, ...], training: bool, fuses: bool) -> Floats:
        """Return what the kernels of an operator cost in each of its splits."""
        operator = splits_[0].operator
        widths = tuple(self.prices.element_bytes.get(tensor.name) for tensor in operator.tensors)
        key = (_operator_form(operator), widths, training, fuses)
        if key not in self.by_form:
            self.by_form[key] = np.array(
                [self.prices.kernel(local_part(split), self.sizes, training=training, fuses=fuses) for split in splits_]
            )
        return self.by_form[key]


@dataclass
class _PartCosts:
    """Adds one part of a program to the costs."""

    part: Part
    costs: Costs
    tables: _SharedTables
    fixed: Fixed

    def add(self) -> None:
        """Add the variables and the costs of all operators."""
        for tensor in self.part.graph.tensors.values():
            self.add_tensor(tensor)
        fused: set[str] = set()
        for operator in self.part.graph.operators:
            if self.part.owner(operator) is operator:
                self.add_operator(operator, fused)
        readers = self.readers()
        for name, tensor_readers in readers.items():
            self.add_reads(self.part.graph.tensors[name], tensor_readers)
        for operator in self.part.graph.operators:
            for tensor in operator.outputs:
                self.add_made(operator, tensor)

    # ------------------------------------------------------------------------------------------- variables

    def number(self, tensor: Tensor) -> int:
        """Return the number of the variable of *tensor*."""
        return self.costs.numbers[self.part.variable(tensor.name)]

    def add_tensor(self, tensor: Tensor) -> None:
        """Add the variable of a tensor, and the memory that it takes."""
        number = self.costs.add(self.part.variable(tensor.name), self.kept_states(tensor))
        states: tuple[Sharding, ...] = self.costs.states[number]  # type: ignore[assignment]  # of a tensor
        prices, sizes = self.tables.prices, self.tables.sizes
        memory = [held_bytes(self.part, tensor, state, prices, sizes) for state in states]
        self.costs.charge(MEMORY, number, np.array(memory))
        if tensor.role == "weight":
            update = [update_cost(self.part, tensor, state, prices, sizes) for state in states]
            self.costs.charge(COMPUTE, number, np.array(update))

    def kept_states(self, tensor: Tensor) -> tuple[Sharding, ...]:
        """Return the shardings in which a tensor may be kept: sums may be pending where its only reader adds."""
        possible = self.possible(tensor, pending=tensor.name in self.addends)
        fixed = self.fixed.get(f"{self.part.name}/{tensor.name}") or self.fixed.get(tensor.name)
        if fixed is None:
            return possible
        required, open_ = fixed
        fitting = tuple(
            state
            for state in possible
            if not state.partial
            and all(
                state.axes(dim) == required.axes(dim)
                or (dim in open_ and state.axes(dim)[: len(required.axes(dim))] == required.axes(dim))
                for dim in tensor.dims
            )
        )
        return fitting or (required,)

    def possible(self, tensor: Tensor, *, pending: bool = False) -> tuple[Sharding, ...]:
        """Return the shardings of a tensor; no axis splits a dimension of which every step sends its part."""
        shardings = tensor_shardings(tensor, self.tables.axes, self.tables.sizes, pending=pending)
        unsplit_dims = {dim for phase in PHASES for dim in self.part.stepping.of(tensor.name, phase, tensor.dims)}
        return (
            tuple(state for state in shardings if not any(state.axes(dim) for dim in unsplit_dims))
            if unsplit_dims
            else shardings
        )

    @cached_property
    def addends(self) -> frozenset[str]:
        """The tensors that only one operator reads, and that operator adds."""
        reads: dict[str, list[Operator]] = {}
        for operator in self.part.graph.operators:
            for tensor in operator.inputs:
                reads.setdefault(tensor.name, []).append(operator)
        return frozenset(name for name, read in reads.items() if len(read) == 1 and read[0].kind in LINEAR)

    def add_operator(self, operator: Operator, fused: set[str]) -> None:
        """Add the variable of a forward operator, or of a sum of gradients, with its kernels."""
        splits = operator_splits(operator, self.tables.axes, self.tables.sizes)
        number = self.costs.add(split_name(self.part, operator), splits)
        if operator.phase == "forward":
            product = operator.kind == "einsum"
            fuses = product and operator.inputs[0].name in fused
            fused |= {operator.inputs[0].name} if product else set()
            seconds = self.tables.kernels(splits, self.part.training, fuses)
            self.costs.charge(COMPUTE, number, self.part.repeats * seconds)

    def split_of(self, operator: Operator) -> tuple[int, tuple[Assignment, ...]]:
        """Return the variable that decides the split of an operator, and the operator in each of its states."""
        owner = self.part.owner(operator)
        number = self.costs.numbers[split_name(self.part, owner)]
        states: tuple[Assignment, ...] = self.costs.states[number]  # type: ignore[assignment]  # of an operator
        if owner is operator:
            return number, states
        return number, tuple(split_backward(operator, state) for state in states)

    # ------------------------------------------------------------------------------------------- collectives

    def kind_of(self, tensor: Tensor) -> int:
        """Return the part of the costs that the collectives of a tensor belong to."""
        return HIDDEN if self.part.is_of_weight(tensor) else EXPOSED

    def routes(self, tensor: Tensor, phase: PassPhase) -> ReshardingRoutes:
        """Return the reshardings of a tensor in one pass."""
        width = self.tables.prices.width(tensor, self.part.weights)
        return self.tables.routes(tensor.dims, width, self.steps(tensor, phase))

    def steps(self, tensor: Tensor, phase: PassPhase) -> float:
        """Return in how many calls a tensor is sent: one, or one at each step of a recurrence."""
        return float(elements(self.part.stepping.of(tensor.name, phase, tensor.dims), self.tables.sizes))

    def readers(self) -> dict[str, dict[PassPhase, list[tuple[int, tuple[Assignment, ...]]]]]:
        """Return who reads each tensor in each pass: operators that are split alike are one reader."""
        readers_by_tensor: dict[str, dict[PassPhase, list[tuple[int, tuple[Assignment, ...]]]]] = {}
        for operator in self.part.graph.operators:
            number, states = self.split_of(operator)
            for tensor in dict.fromkeys(operator.inputs):
                phase_readers = readers_by_tensor.setdefault(tensor.name, {}).setdefault(operator.phase, [])
                if number not in [reader_number for reader_number, _ in phase_readers]:
                    phase_readers.append((number, states))
        return readers_by_tensor

    def add_reads(self, tensor: Tensor, readers: Mapping[PassPhase, list[tuple[int, tuple[Assignment, ...]]]]) -> None:
        """Add what it costs to bring a tensor to its readers, in each pass; several read one copy."""
        stored, kind = self.number(tensor), self.kind_of(tensor)
        several = any(len(reader) > 1 for reader in readers.values())
        source = stored
        if several:
            copies = self.possible(tensor)
            source = self.costs.add(f"{self.part.variable(tensor.name)}'", copies)
            for phase in readers:
                table = self._between(self.routes(tensor, phase), stored, source)
                self.costs.charge_pair(kind, stored, source, self.part.repeats * table)
        for phase, phase_readers in readers.items():
            for number, states in phase_readers:
                table = self.table(tensor, self.routes(tensor, phase), source, states, is_output=False)
                self.costs.charge_pair(kind, source, number, self.part.repeats * table)
                if states[0].operator.halo:
                    rows = np.array([self.boundary(tensor, state) for state in states])
                    self.costs.charge(kind, number, self.part.repeats * rows)

    def boundary(self, tensor: Tensor, split: Assignment) -> float:
        """Return what it costs an operator that is split in this way to read the boundary rows of neighbours."""
        target = split.reads(tensor, REPLICATED)
        rows = add_halo(Transfer(tensor, target, target), split.operator, self.tables.sizes)
        width, prices = self.tables.prices.width(tensor, self.part.weights), self.tables.prices
        return sum(
            prices.collective(step.kind, step.axes, float(step.elements(tensor.dims, self.tables.sizes)) * width)
            for step in rows.steps
        )

    def _between(self, routes: ReshardingRoutes, first: int, second: int) -> Floats:
        rows = [routes.index_of[state] for state in self.costs.states[first]]  # type: ignore[index]
        columns = [routes.index_of[state] for state in self.costs.states[second]]  # type: ignore[index]
        return routes.cost[np.ix_(rows, columns)]

    def add_made(self, operator: Operator, tensor: Tensor) -> None:
        """Add what it costs to bring a tensor from where it is made to where it is kept."""
        number, states = self.split_of(operator)
        stored, routes = self.number(tensor), self.routes(tensor, operator.phase)
        table = self.table(tensor, routes, stored, states, is_output=True)
        self.costs.charge_pair(self.kind_of(tensor), stored, number, self.part.repeats * table)

    def table(
        self, tensor: Tensor, routes: ReshardingRoutes, number: int, states: tuple[Assignment, ...], *, is_output: bool
    ) -> Floats:
        """Return what it costs between the shardings of a tensor and the splits of an operator."""
        shardings: tuple[Sharding, ...] = self.costs.states[number]  # type: ignore[assignment]  # of a tensor
        operator = states[0].operator
        width = self.tables.prices.width(tensor, self.part.weights)
        operands = operator.outputs if is_output else operator.inputs
        steps = self.steps(tensor, operator.phase)
        forms = _operator_form(operator), _operator_form(self.part.owner(operator))
        key = (*forms, operands.index(tensor), is_output, shardings, width, steps, tensor.role)
        if key not in self.tables.by_form:
            rows = [routes.index_of[operand] for operand in shardings]
            factors = factors_of(operator)
            spread = any(len(factors.dims(tensor, factor)) > 1 for factor in factors.names)
            nearest = shardings if spread else shardings[:1]
            indices = np.array(
                [
                    [
                        routes.index_of[state.makes(tensor, near) if is_output else state.reads(tensor, near)]
                        for state in states
                    ]
                    for near in nearest
                ]
            )
            columns = np.broadcast_to(indices, (len(shardings), len(states)))
            stored_rows = np.array(rows)[:, None]
            self.tables.by_form[key] = (
                routes.cost[columns, stored_rows] if is_output else routes.cost[stored_rows, columns]
            )
        return self.tables.by_form[key]


def split_name(part: Part, owner: Operator) -> str:
    """Return the name of the variable of an operator's split."""
    return f"{part.name}:{'' if owner.phase == 'forward' else '+'}{owner.name}"


def split_backward(operator: Operator, forward: Assignment) -> Assignment:
    """Return the split of a backward operator whose forward operator is split as *forward* says."""
    factors = factors_of(operator)
    split = {factors.of[factor]: axes for factor, axes in forward.split.items() if factor in factors.of}
    return Assignment(operator, {factor: axes for factor, axes in split.items() if factor not in factors.whole})


def _operator_form(operator: Operator) -> tuple[object, ...]:
    """Return what two operators have in common that are alike in all but names."""
    tensors = tuple((tensor.dims, tensor.role) for tensor in operator.tensors)
    moves = (operator.halo, operator.serial, operator.flop_per_element)
    return (operator.kind, tensors, len(operator.inputs), operator.same, operator.whole, operator.phase, *moves)


def held_bytes(part: Part, tensor: Tensor, sharding: Sharding, prices: Prices, sizes: SizeTable) -> float:
    """Return the memory of a tensor on a device, in all runs of its part.

    Weights have their gradients and optimizer states beside them; activations count that the backward pass reads.
    """
    recipe = prices.recipe
    if tensor.role == "weight":
        counts = tensor.name not in part.counted_elsewhere
        element_bytes = counts * (recipe.weight + (recipe.gradient + recipe.optimizer) * part.training)
    else:
        element_bytes = prices.width(tensor) if part.training and tensor.name in part.kept else 0.0
    return part.repeats * float(sharding.elements(tensor.stored_dims, sizes)) * element_bytes


def update_cost(part: Part, weight: Tensor, sharding: Sharding, prices: Prices, sizes: SizeTable) -> float:
    """Return what the optimizer costs for one weight, in all runs of its part."""
    if not part.training or weight.name in part.counted_elsewhere:
        return 0.0
    return prices.update(part.repeats * float(sharding.elements(weight.dims, sizes)))


def decode_choice(part: Part, costs: Costs, states: Sequence[int]) -> Choice:
    """Return what the states of variables say of one part of a program."""

    def state_of(name: str) -> Sharding | Assignment:
        number = costs.numbers[name]
        return costs.states[number][states[number]]

    shardings: dict[str, Sharding] = {name: state_of(part.variable(name)) for name in part.graph.tensors}  # type: ignore[misc]
    copies: dict[str, Sharding] = {
        name: state_of(f"{part.variable(name)}'")  # type: ignore[misc]
        for name in part.graph.tensors
        if f"{part.variable(name)}'" in costs.numbers
    }
    splits_ = {}
    for operator in part.graph.operators:
        owner = part.owner(operator)
        split = state_of(split_name(part, owner))
        assert isinstance(split, Assignment)  # noqa: S101  the variable of an operator
        splits_[id(operator)] = split if owner is operator else split_backward(operator, split)
    return Choice(shardings, splits_, copies)


# ---- The best choice of all variables, under a limit on memory, with a bound

FEW_AXES = 2
"""Up to so many axes, tables are small; with more of them, axes are chosen two at a time."""
MAX_ENTRIES_MANY_AXES = 1_000_000
"""Entries of the largest table where they are not."""
MAX_PRICE_ROUNDS = 8
"""Prices of memory that are tried, at most."""
MAX_SHARES = 6
"""Weights between the two sums that are tried at each price, at most."""
GAP_TOLERANCE = 1e-4
"""A gap that is not worth another elimination."""
MAX_CHANGES = 500
"""Changes of single variables, at most."""
RELATIVE_TOLERANCE = 1e-9
"""What is this much off, relatively, is equal."""
TIE_WEIGHT = 1e-12
"""The weight of what decides between equals: memory where time counts, and the other way round."""


@dataclass(frozen=True)
class ChosenStates:
    """States of all variables, and what they cost."""

    states: list[int]
    value: float
    """Of the objective."""
    memory_bytes: float
    bound: float
    """No choice within the limit has a smaller value."""
    fits: bool
    """Whether memory is within the limit."""
    exact: bool
    """Whether every elimination was exact: then only the prices of memory and overlap leave a gap."""


class Weighing(NamedTuple):
    """How the parts of costs are weighed: one elimination each."""

    share: float
    """Of the first of the two sums whose larger is the time of a step."""
    price: float
    """Of a byte of memory."""


class Weighed(NamedTuple):
    """What the choice costs that one weighing finds."""

    first: float
    second: float
    memory_bytes: float


@dataclass
class _Search:
    """Tries weights of the parts of costs, and keeps the best choice and the best bound."""

    costs: Costs
    overlap: float
    limit_bytes: float | None
    best: ChosenStates | None = None
    lightest: ChosenStates | None = None
    bound: float = 0.0
    exact: bool = True

    def value(self, parts: Sequence[Any]) -> tuple[Any, Any]:
        """Return the two sums of which the larger one is the time of a step."""
        hidden = parts[HIDDEN]
        return parts[COMPUTE] + parts[EXPOSED] + (1 - self.overlap) * hidden, parts[EXPOSED] + hidden

    def attempt(self, asked: Weighing) -> Weighed:
        """Minimise for one share of the first sum and one price of memory; return both sums, and the memory."""
        share, price = asked
        # l f + (1 - l) g by parts: C counts l, E counts 1, H counts l (1 - e) + (1 - l) = 1 - l e.
        weights = (share, 1.0, 1 - share * self.overlap, price or TIE_WEIGHT * self.scale)
        problem = self.costs.weighed(weights)
        many_axes = len(self.costs.labels) > FEW_AXES
        result: EliminationResult = minimise_costs(problem, MAX_ENTRIES_MANY_AXES if many_axes else MAX_ENTRIES)
        states = (
            result.states if result.exact or not many_axes else refine_states(problem, result.states, self.costs.labels)
        )
        self.exact = self.exact and result.exact
        parts = [float(part) for part in self.costs.total(states)]
        memory = parts[MEMORY]
        limit = self.limit_bytes if self.limit_bytes is not None else memory
        slack = price * limit if price else TIE_WEIGHT * self.scale * memory
        self.bound = max(self.bound, result.bound - slack)
        fits = _fits(memory, self.limit_bytes)
        chosen = ChosenStates(states, max(self.value(parts)), memory, 0.0, fits, result.exact)
        if fits and (self.best is None or chosen.value < self.best.value * (1 - RELATIVE_TOLERANCE)):
            self.best = chosen
        if self.lightest is None or memory < self.lightest.memory_bytes:
            self.lightest = chosen
        return Weighed(*self.value(parts), memory)

    scale: float = 1.0
    """What a byte of memory is worth, in the unit of the objective, about."""

    def steps(self) -> Steps[Weighing, Weighed, None]:
        """Ask for shares of the first sum without a price of memory; with one where what that chooses does not fit."""
        memory = yield from self._search_share(0.0)
        if self.limit_bytes is not None and not _fits(memory, self.limit_bytes):
            yield from self._price_memory(self.limit_bytes)

    def _search_share(self, price: float) -> Steps[Weighing, Weighed, float]:
        """Search the share of the first sum at one price of memory; return the memory of the last attempt."""
        found = yield Weighing(1.0, price)
        if found.first >= found.second * (1 - RELATIVE_TOLERANCE) or self.overlap == 0.0:
            return found.memory_bytes
        found = yield Weighing(0.0, price)
        if found.second >= found.first * (1 - RELATIVE_TOLERANCE):
            return found.memory_bytes
        low, high = 0.0, 1.0
        for _ in range(MAX_SHARES):
            share = (low + high) / 2
            found = yield Weighing(share, price)
            low, high = (low, share) if found.first >= found.second else (share, high)
            if self.best is not None and self.best.value <= self.bound * (1 + GAP_TOLERANCE):
                break
        return found.memory_bytes

    def _price_memory(self, limit: float) -> Steps[Weighing, Weighed, None]:
        """Raise the price of memory until it fits, and then halve the interval of prices in between."""
        lightest = minimise_costs(self.costs.weighed((0.0, 0.0, 0.0, 1.0)))
        parts = [float(part) for part in self.costs.total(lightest.states)]
        if parts[MEMORY] > limit:
            value = max(self.value(parts))
            self.lightest = ChosenStates(lightest.states, value, parts[MEMORY], 0.0, False, lightest.exact)
            return
        value = self.lightest.value if self.lightest else 1.0
        low, high = 0.0, max(value, RELATIVE_TOLERANCE) / limit
        for _ in range(MAX_PRICE_ROUNDS):
            memory = yield from self._search_share(high)
            if _fits(memory, limit):
                break
            low, high = high, high * 8
        for _ in range(MAX_PRICE_ROUNDS):
            price = (low + high) / 2
            memory = yield from self._search_share(price)
            low, high = (low, price) if _fits(memory, limit) else (price, high)
            if self.best and self.best.value <= self.bound * (1 + RELATIVE_TOLERANCE):
                return


def choose_within_memory(costs: Costs, overlap: float, limit_bytes: float | None) -> ChosenStates:
    """Return the choice of the least time within a limit on memory."""
    search = _Search(costs, overlap, limit_bytes, scale=_byte_worth(costs))
    optimise(search.steps(), search.attempt)
    _polish_choice(search)
    choice = search.best or search.lightest
    assert choice is not None  # noqa: S101  at least one attempt was made
    bound = min(search.bound, choice.value) if choice.fits else search.bound
    return ChosenStates(choice.states, choice.value, choice.memory_bytes, bound, choice.fits, search.exact)


def _byte_worth(costs: Costs) -> float:
    """Return what a byte of memory is worth: all of it as much as the least compute, or 1 where that is nothing."""
    least = sum(float(costs_of_variable[COMPUTE].min()) for costs_of_variable in costs.single)
    most = sum(float(costs_of_variable[MEMORY].max()) for costs_of_variable in costs.single)
    return least / most if least > 0 and most > 0 else 1.0


def _polish_choice(search: _Search) -> None:
    """Change one variable at a time, the one that saves most time and still fits.

    Prices decide for all variables at once: what lies between two of them is found here.
    """
    if search.best is None:
        return
    costs, states, beside = search.costs, list(search.best.states), search.costs.neighbours
    limit = np.inf if search.limit_bytes is None else search.limit_bytes
    parts = costs.total(states)
    for _ in range(MAX_CHANGES):
        value, change = max(search.value(list(parts))), (0.0, 0, 0)
        for variable, neighbours in enumerate(beside):
            total = costs.single[variable].copy()
            for neighbour, table in neighbours:
                total += table[:, :, states[neighbour]]
            after = parts[:, None] + total - total[:, [states[variable]]]
            saved = value - np.maximum(*search.value(list(after)))
            saved[after[MEMORY] > limit] = 0.0
            state = int(saved.argmax())
            if saved[state] > max(change[0], RELATIVE_TOLERANCE * value):
                change = float(saved[state]), variable, state
        if not change[0]:
            break
        states[change[1]] = change[2]
        parts = costs.total(states)
    polished_value = max(search.value([float(part) for part in parts]))
    if polished_value < search.best.value:
        search.best = ChosenStates(
            states, polished_value, float(parts[MEMORY]), 0.0, fits=True, exact=search.best.exact
        )


def choose_lightest(costs: Costs, limit_bytes: float | None) -> ChosenStates:
    """Return the choice of the least memory; of several, about the fastest."""
    result = minimise_costs(costs.weighed((TIE_WEIGHT, TIE_WEIGHT, TIE_WEIGHT, 1.0)))
    memory = float(costs.total(result.states)[MEMORY])
    return ChosenStates(
        result.states, memory, memory, min(result.bound, memory), _fits(memory, limit_bytes), result.exact
    )


def _fits(memory_bytes: float, limit_bytes: float | None) -> bool:
    return limit_bytes is None or memory_bytes <= limit_bytes * (1 + RELATIVE_TOLERANCE)
