"""What the planner of designs makes of annotations: each part of a program partitioned, and priced.

The search adds up tables; this goes through operators one by one, as the evaluation of a design does. Both must agree.

A strategy states how tensors are kept, not how operators are split: the planner splits operators as their tensors are
kept (mode ``as_written``). Where a design would be run in another way than was chosen, pairs of choices that lead there
are forbidden, and the search goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cosmic.search.sharding.program_parts import Choice, Part
from cosmic.search.sharding.sharding_costs import EXPOSED, Costs, split_backward, split_name, update_cost
from cosmic.search.sharding.sharding_prices import MARK, Prices, local_part, primal_tensor
from cosmic.search.sharding.sharding_result import Sent
from cosmic.workload.operator_graph import Graph, Operator, SizeTable, Tensor
from cosmic.workload.sharding.factor_assignment import EINSUMS, LINEAR, OFFSET, Assignment, Factors, factors_of
from cosmic.workload.sharding.graph_partition import Mode, Partitioned, partition, split_into_steps
from cosmic.workload.sharding.resharding import wire_share
from cosmic.workload.sharding.tensor_sharding import Sharding

# ---- The planner's own account of annotations: `cosmic.workload.sharding.graph_partition`, priced


@dataclass(frozen=True)
class PlannedPart:
    """One part of a program as the planner runs it."""

    part: Part
    partitioned: Partitioned
    compute: float
    update: float
    """What the optimizer costs."""
    collectives: tuple[Sent, ...]

    @property
    def exposed(self) -> float:
        """What the collectives cost that the next operator waits for."""
        return sum(collective.cost for collective in self.collectives if not collective.overlapped)

    @property
    def hidden(self) -> float:
        """What the collectives of weights and their gradients cost."""
        return sum(collective.cost for collective in self.collectives if collective.overlapped)


def plan_part(
    part: Part,
    shardings: Mapping[str, Sharding],
    prices: Prices,
    sizes: SizeTable,
    mode: Mode,
    graph: Graph | None = None,
) -> PlannedPart:
    """Return what the planner makes of the *shardings* of a part's tensors, all of its repetitions together.

    *graph* is that of the part with steps that only change a sharding, if there are any.
    """
    partitioned = split_into_steps(partition(graph or part.graph, shardings, sizes=sizes, mode=mode), part.handed)
    compute, fused = 0.0, set[str]()
    for partitioned_operator in partitioned.operators:
        operator = partitioned_operator.operator
        if operator.phase != "forward" or MARK in operator.name:
            continue
        product = operator.kind == "einsum"
        read = primal_tensor(operator.inputs[0].name) if operator.inputs else ""
        fuses = product and read in fused
        fused |= {read} if product else set()
        compute += part.repeats * prices.kernel(partitioned_operator, sizes, training=part.training, fuses=fuses)
    planned = partitioned.shardings
    update = sum(update_cost(part, weight, planned[weight.name], prices, sizes) for weight in part.forward.weights)
    return PlannedPart(part, partitioned, compute, update, tuple(_list_sent(part, partitioned, prices, sizes)))


def _list_sent(part: Part, partitioned: Partitioned, prices: Prices, sizes: SizeTable) -> list[Sent]:
    tensors = {tensor.name: tensor for operator in partitioned.operators for tensor in operator.operator.tensors}
    sent = []
    for collective in partitioned.collectives:
        tensor = tensors[collective.tensor]
        width = prices.width(tensor, part.weights)
        size = float(collective.elements(sizes, tensor.stored_dims)) * width
        calls = part.repeats * int(collective.steps(sizes))
        sent.append(
            Sent(
                part=part.name,
                kind=collective.kind,
                axes=collective.axes,
                tensor=collective.tensor.partition(MARK)[0],
                phase=collective.phase,
                calls=calls,
                bytes=size,
                wire_bytes=float(wire_share(collective.kind, collective.group(sizes))) * size,
                cost=calls * prices.collective(collective.kind, collective.axes, size),
                overlapped=part.is_of_weight(tensor),
                why=collective.why.replace(MARK, " "),
            )
        )
    return sent


# ---- Choices that a planner of designs makes too: it splits operators as their tensors are kept (mode ``as_written``)


def operators_split_otherwise(planned: PlannedPart, choice: Choice) -> list[Operator]:
    """Return the operators that the planner splits in another way than was chosen."""
    return [
        operator.operator
        for operator in planned.partitioned.operators
        if operator.operator.kind not in (*LINEAR, OFFSET)
        and _axis_sets(operator.dims) != _axis_sets(local_part(choice.splits[id(operator.operator)]).dims)
    ]


def _axis_sets(dims: Mapping[str, tuple[str, ...]]) -> set[tuple[str, frozenset[str]]]:
    return {(dim, frozenset(axes)) for dim, axes in dims.items() if axes}


def forbid_splits(costs: Costs, part: Part, operators: Sequence[Operator], price: float) -> None:
    """Charge *price* for pairs of a sharding and a split that the planner would not run so."""
    for operator in operators:
        owner = part.owner(operator)
        number = costs.numbers[split_name(part, owner)]
        states: list[Assignment] = [
            state if owner is operator else split_backward(operator, state)  # type: ignore[misc, arg-type]
            for state in costs.states[number]
        ]
        for tensor in dict.fromkeys(operator.tensors):
            tensor_variable = costs.numbers[part.variable(tensor.name)]
            is_output = tensor in operator.outputs
            violates = np.array(
                [
                    [_is_split_otherwise(tensor, state, split, is_output) for split in states]  # type: ignore[arg-type]
                    for state in costs.states[tensor_variable]
                ],
                dtype=np.float64,
            )
            costs.charge_pair(EXPOSED, tensor_variable, number, price * violates)


def _is_split_otherwise(tensor: Tensor, sharding: Sharding, split: Assignment, is_output: bool) -> bool:
    """Return whether an operator whose tensor is *sharding* so is not split so."""
    factors = factors_of(split.operator)
    chosen = {axis: factor for factor, axes in split.split.items() for axis in axes}
    factor_by_axis = {
        axis: factor_of_axis
        for dim, axes in sharding.dims
        for axis in axes
        if (factor_of_axis := _factor_of_dim(factors, dim))
    }
    for axis in {*chosen, *factor_by_axis}:
        factor, factor_of_axis = chosen.get(axis), factor_by_axis.get(axis)
        if factor is None:
            gathered = not is_output and factor_of_axis in factors.summed and split.operator.kind in EINSUMS
            if factor_of_axis is not None and not gathered:
                return True
        elif factors.sees(tensor, factor) and factor_of_axis != factor and (is_output or factor in factors.summed):
            return True
    return False


def _factor_of_dim(factors: Factors, dim: str) -> str | None:
    factor = factors.of.get(dim)
    return None if factor is None or factor in factors.whole else factor
