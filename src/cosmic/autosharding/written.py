"""Choices that a planner of designs makes too: it splits operators as their tensors are kept (mode ``as_written``).

A strategy states how tensors are kept, not how operators are split. Where a design would be run in another way than was
chosen, pairs of choices that lead there are forbidden, and the search goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cosmic.autosharding.constrained import Choice
from cosmic.autosharding.costs import EXPOSED, Costs, split_name, turned
from cosmic.autosharding.parts import Part
from cosmic.autosharding.planned import Planned
from cosmic.autosharding.prices import local_part
from cosmic.workload.graph import Operator, Tensor
from cosmic.workload.sharding.annotation import Sharding
from cosmic.workload.sharding.assignment import OFFSET, Assignment
from cosmic.workload.sharding.factors import EINSUMS, LINEAR, Factors, factors_of


def otherwise(found: Planned, choice: Choice) -> list[Operator]:
    """Return the operators that the planner splits in another way than was chosen."""
    return [
        each.operator
        for each in found.partitioned.operators
        if each.operator.kind not in (*LINEAR, OFFSET)
        and _sets(each.dims) != _sets(local_part(choice.splits[id(each.operator)]).dims)
    ]


def _sets(dims: Mapping[str, tuple[str, ...]]) -> set[tuple[str, frozenset[str]]]:
    return {(dim, frozenset(axes)) for dim, axes in dims.items() if axes}


def forbid(costs: Costs, part: Part, operators: Sequence[Operator], price: float) -> None:
    """Charge *price* for pairs of a sharding and a split that the planner would not run so."""
    for operator in operators:
        owner = part.owner(operator)
        number = costs.numbers[split_name(part, owner)]
        states: list[Assignment] = [
            each if owner is operator else turned(operator, each)  # type: ignore[misc, arg-type]
            for each in costs.states[number]
        ]
        for tensor in dict.fromkeys(operator.tensors):
            kept = costs.numbers[part.variable(tensor.name)]
            made = tensor in operator.outputs
            wrong = np.array(
                [[_unlike(tensor, each, split, made) for split in states] for each in costs.states[kept]],  # type: ignore[arg-type]
                dtype=np.float64,
            )
            costs.charge_pair(EXPOSED, kept, number, price * wrong)


def _unlike(tensor: Tensor, kept: Sharding, split: Assignment, made: bool) -> bool:
    """Return whether an operator whose tensor is *kept* so is not split so."""
    of = factors_of(split.operator)
    chosen = {axis: factor for factor, axes in split.split.items() for axis in axes}
    placed = {axis: place for dim, axes in kept.dims for axis in axes if (place := _place(of, dim))}
    for axis in {*chosen, *placed}:
        factor, place = chosen.get(axis), placed.get(axis)
        if factor is None:
            gathered = not made and place in of.summed and split.operator.kind in EINSUMS
            if place is not None and not gathered:
                return True
        elif of.sees(tensor, factor) and place != factor and (made or factor in of.summed):
            return True
    return False


def _place(of: Factors, dim: str) -> str | None:
    factor = of.of.get(dim)
    return None if factor is None or factor in of.whole else factor
