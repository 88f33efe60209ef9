"""What the parts of a step cost on a system: seconds of operators, of collectives and of the optimizer.

Both engines charge these: the analytic one adds them up, the event engine plays them. Numbers, or arrays over a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cosmic.cost.compute import matrix_efficiency, operator_seconds, peak_flop_per_s
from cosmic.cost.fabric import Crossing, Lane, collective_seconds, crossings, send_seconds
from cosmic.cost.shapes import Part, shape, strides, together
from cosmic.design.batch import Batch
from cosmic.design.collective import Kind
from cosmic.design.workload import AXES
from cosmic.workload.precision import RECIPES
from cosmic.workload.work import OperatorUse

OPTIMIZER_PASSES = 2
"""States are read and written once each."""


class Prices:
    """The seconds of operators, of collectives and of the optimizer, for a batch of designs."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.recipe = RECIPES[batch.base.workload.precision]
        field: Callable[[str], Any] = lambda key: batch[f"compute.{key}"]  # noqa: E731  a short word for a long path
        peak = peak_flop_per_s(field, batch.base.workload.precision)
        self._matrix = peak * matrix_efficiency(field)
        self._attention = peak * batch["compute.attention_efficiency"]
        self._bytes_per_s = batch["memory.bandwidth"] * batch["compute.memory_efficiency"]
        self._launch_s = batch["compute.launch"]
        self._chunks, self._multi_dim = batch["collective.chunks"], batch["collective.multi_dim"]
        self._lanes = [self._lane(place) for place in range(len(batch.base.network.dims))]
        degrees: dict[str, Any] = {axis: batch[f"workload.{axis}"] for axis in AXES}
        placed = strides(batch.base.workload.placement, degrees)
        sizes = [lane.npus for lane in self._lanes]
        self._shapes: dict[str, tuple[Part, ...]] = {axis: shape(sizes, placed[axis], degrees[axis]) for axis in AXES}
        self._shapes["ep"] = shape(sizes, placed["dp"], batch["workload.ep"])
        self._groups: dict[tuple[str, ...], list[Crossing]] = {}

    def _lane(self, place: int) -> Lane:
        field = f"network.dims.{place}"
        return Lane(
            self.batch[f"{field}.topology"],
            self.batch[f"{field}.npus"],
            self.batch[f"{field}.bandwidth"] / self.batch[f"{field}.oversubscription"],
            self.batch[f"{field}.latency"],
            self.batch[f"collective.algorithms.{place}"],
        )

    def operator(self, use: OperatorUse) -> Any:
        """Return the seconds of one run of an operator."""
        rate = self._attention if use.kind == "attention" else self._matrix
        return operator_seconds(use.flop, use.bytes, rate, self._bytes_per_s, self._launch_s)

    def collective(self, kind: str, axes: tuple[str, ...], size_bytes: Any) -> Any:
        """Return the seconds of one collective among the ranks of *axes*, or of one message to the next of them."""
        if axes not in self._groups:
            self._groups[axes] = crossings(self._lanes, together([self._shapes[axis] for axis in axes]))
        group = self._groups[axes]
        if kind in ("send", "collective_permute"):
            return send_seconds(group, size_bytes)
        known: Kind = kind  # type: ignore[assignment]  # the others were handled above
        return collective_seconds(group, known, size_bytes, self._chunks, self._multi_dim)

    def update_bytes(self, elements: Any) -> Any:
        """Return the bytes that pass through memory to update *elements*: states both ways, gradients, weights."""
        recipe = self.recipe
        return elements * (OPTIMIZER_PASSES * recipe.optimizer + recipe.gradient + recipe.weight)

    def streaming(self, moved_bytes: Any) -> Any:
        """Return the seconds to stream bytes through the device's memory once."""
        return moved_bytes / self._bytes_per_s

    def offloading(self, moved_bytes: Any) -> Any:
        """Return the seconds that bytes travel to or from the nearest outer tier, if there is one."""
        if not self.batch.base.memory.tiers:
            return 0.0
        return moved_bytes / self.batch["memory.tiers.0.bandwidth"]
