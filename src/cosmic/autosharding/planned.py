"""The planner's own account of annotations: `cosmic.workload.sharding.partition`, priced.

The search adds up tables; this goes through operators one by one, as the evaluation of a design does. Both must agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cosmic.autosharding.costs import update_cost
from cosmic.autosharding.parts import Part
from cosmic.autosharding.prices import MARK, Prices, primal
from cosmic.autosharding.result import Sent
from cosmic.workload.graph import Graph, SizeTable
from cosmic.workload.sharding import Mode, Partitioned, Sharding, partition, wire_share
from cosmic.workload.sharding.stepping import in_steps


@dataclass(frozen=True)
class Planned:
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
        return sum(each.cost for each in self.collectives if not each.overlapped)

    @property
    def hidden(self) -> float:
        """What the collectives of weights and their gradients cost."""
        return sum(each.cost for each in self.collectives if each.overlapped)


def planned(
    part: Part,
    shardings: Mapping[str, Sharding],
    prices: Prices,
    sizes: SizeTable,
    mode: Mode,
    graph: Graph | None = None,
) -> Planned:
    """Return what the planner makes of the *shardings* of a part's tensors, all of its repetitions together.

    *graph* is that of the part with steps that only change a sharding, if there are any.
    """
    found = in_steps(partition(graph or part.graph, shardings, sizes=sizes, mode=mode), part.handed)
    compute, fused = 0.0, set[str]()
    for each in found.operators:
        operator = each.operator
        if operator.phase != "forward" or MARK in operator.name:
            continue
        product = operator.kind == "einsum"
        read = primal(operator.inputs[0].name) if operator.inputs else ""
        fuses = product and read in fused
        fused |= {read} if product else set()
        compute += part.repeats * prices.kernel(each, sizes, training=part.training, fuses=fuses)
    kept = found.shardings
    update = sum(update_cost(part, weight, kept[weight.name], prices, sizes) for weight in part.forward.weights)
    return Planned(part, found, compute, update, tuple(_sent(part, found, prices, sizes)))


def _sent(part: Part, found: Partitioned, prices: Prices, sizes: SizeTable) -> list[Sent]:
    tensors = {tensor.name: tensor for each in found.operators for tensor in each.operator.tensors}
    sent = []
    for each in found.collectives:
        tensor = tensors[each.tensor]
        width = prices.width(tensor, part.weights)
        size = float(each.elements(sizes, tensor.stored_dims)) * width
        calls = part.repeats * int(each.steps(sizes))
        sent.append(
            Sent(
                part=part.name,
                kind=each.kind,
                axes=each.axes,
                tensor=each.tensor.partition(MARK)[0],
                phase=each.phase,
                calls=calls,
                bytes=size,
                wire_bytes=float(wire_share(each.kind, each.group(sizes))) * size,
                cost=calls * prices.collective(each.kind, each.axes, size),
                overlapped=part.is_of_weight(tensor),
                why=each.why.replace(MARK, " "),
            )
        )
    return sent
