"""Recurrences: what every step sends on its own, and what is sent at once.

Operators of a recurrence run through a dimension step by step. A tensor that a step makes for a later operator of the
same step, or hands to the next one, is sent by each step: so many calls, each of its part of the tensor. What enters or
leaves the recurrence as a whole is sent at once: weights, inputs, and to the backward pass what the forward pass made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from cosmic.errors import SpecError
from cosmic.workload.graph import Operator, PassPhase
from cosmic.workload.sharding.partitioned import CollectiveOp, Partitioned


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

    >>> from cosmic.workload.graph import Tensor
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
    found = stepping((each.operator for each in placed.operators), handed)
    if not found.dims:
        return placed
    _check_whole(placed, found)

    def stepped(each: CollectiveOp) -> CollectiveOp:
        return replace(each, serial=found.of(each.tensor, each.phase, each.dims))

    return replace(placed, collectives=tuple(map(stepped, placed.collectives)))


def _check_whole(placed: Partitioned, found: Stepping) -> None:
    """Refuse a split of the dimension that a recurrence runs through: no step has all of a later one's part."""
    for each in placed.operators:
        for transfer in (*each.inputs, *each.outputs):
            tensor = transfer.tensor
            for dim in found.of(tensor.name, each.operator.phase, tensor.dims):
                axes = dict.fromkeys((*transfer.source.axes(dim), *transfer.target.axes(dim)))
                if axes:
                    rule = f"a recurrence runs through {dim} step by step, so that no axis can split it"
                    raise SpecError("annotations", f"{tensor.name} over {' '.join(axes)}", rule)
