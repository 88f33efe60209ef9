"""What the nodes of a trace cost: the seconds that the analytic engine adds up, one by one.

Both engines charge the same: the roofline of `cosmic.cost.compute` for operators, the phases of `cosmic.cost.fabric`
for collectives, on the shape that a group's axes have on the network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cosmic.cost.compute import matrix_efficiency, operator_seconds, peak_flop_per_s
from cosmic.cost.fabric import Crossing, Lane, collective_seconds, crossings, send_seconds
from cosmic.cost.shapes import Part, shape, strides, together
from cosmic.design.batch import Batch
from cosmic.design.workload import AXES
from cosmic.workload.collectives import CollectiveUse
from cosmic.workload.precision import RECIPES
from cosmic.workload.work import OperatorUse

OPTIMIZER_PASSES = 2
"""States are read and written once each."""


class Prices:
    """The seconds of operators, of collectives and of the optimizer, for one design."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.recipe = RECIPES[batch.base.workload.precision]
        field: Callable[[str], Any] = lambda key: batch[f"compute.{key}"]  # noqa: E731  a short word for a long path
        peak = peak_flop_per_s(field, batch.base.workload.precision)
        self._matrix = peak * matrix_efficiency(field)
        self._attention = peak * batch["compute.attention_efficiency"]
        self._bytes_per_s = batch["memory.bandwidth"] * batch["compute.memory_efficiency"]
        self._lanes = [self._lane(f"network.dims.{place}", place) for place in range(len(batch.base.network.dims))]
        degrees: dict[str, Any] = {axis: batch[f"workload.{axis}"] for axis in AXES}
        placed = strides(batch.base.workload.placement, degrees)
        sizes = [lane.npus for lane in self._lanes]
        self._shapes: dict[str, tuple[Part, ...]] = {axis: shape(sizes, placed[axis], degrees[axis]) for axis in AXES}
        self._shapes["ep"] = shape(sizes, placed["dp"], batch["workload.ep"])
        self._groups: dict[tuple[str, ...], list[Crossing]] = {}

    def _lane(self, field: str, place: int) -> Lane:
        return Lane(
            self.batch[f"{field}.topology"],
            self.batch[f"{field}.npus"],
            self.batch[f"{field}.bandwidth"] / self.batch[f"{field}.oversubscription"],
            self.batch[f"{field}.latency"],
            self.batch[f"collective.algorithms.{place}"],
        )

    def operator(self, use: OperatorUse) -> float:
        """Return the seconds of one run of an operator."""
        rate = self._attention if use.kind == "attention" else self._matrix
        return float(operator_seconds(use.flop, use.bytes, rate, self._bytes_per_s, self.batch["compute.launch"]))

    def collective(self, use: CollectiveUse) -> float:
        """Return the seconds of one collective, or of one message to the next member."""
        if use.axes not in self._groups:
            self._groups[use.axes] = crossings(self._lanes, together([self._shapes[axis] for axis in use.axes]))
        group = self._groups[use.axes]
        if use.kind in ("send", "collective_permute"):
            return float(send_seconds(group, use.bytes))
        chunks, order = self.batch["collective.chunks"], self.batch["collective.multi_dim"]
        return float(collective_seconds(group, use.kind, use.bytes, chunks, order))  # type: ignore[arg-type]

    def optimizer_bytes(self, elements: float) -> float:
        """Return the bytes to update weights of which this device has the states of *elements*."""
        recipe, sharded = self.recipe, self.batch.base.workload.weight_sharding == "zero3"
        share = elements * (recipe.moments if sharded else recipe.optimizer) / recipe.optimizer
        return share * (OPTIMIZER_PASSES * recipe.optimizer + recipe.gradient + recipe.weight)

    def streaming(self, moved_bytes: float) -> float:
        """Return the seconds to stream bytes through the device's memory once."""
        return float(moved_bytes / self._bytes_per_s)

    def offloading(self, moved_bytes: float) -> float:
        """Return the seconds that bytes travel to or from the nearest outer tier."""
        return float(moved_bytes / self.batch["memory.tiers.0.bandwidth"]) if moved_bytes else 0.0
