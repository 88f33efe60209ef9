"""What the parts of a step cost on a system: seconds of operators, of collectives and of the optimizer.

Both engines charge these: the analytic one adds them up, the event engine plays them. Numbers, or arrays over a batch.
"""

from __future__ import annotations

from typing import Any

from cosmic.cost.fabric import Crossing, Lane, collective_seconds, crossings, send_seconds
from cosmic.cost.shapes import Part, larger, shape, strides, together
from cosmic.design.batch import Batch
from cosmic.design.collective import CollectiveKind
from cosmic.design.workload import AXES
from cosmic.step.compute import OperatorUse
from cosmic.step.kernel_costs import KernelPrices

OVERLAPPED = {"tp": 0.47, "ep": 0.2}
"""Share of the communication of an axis that still shows where it travels beside computation: calibration/fit_runs.py
finds it on runs of TorchTitan, NeMo and Megatron-Bridge."""


class Prices:
    """The seconds of operators, of collectives and of the optimizer, for a batch of designs."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self._kernels = KernelPrices(batch)
        self.recipe = self._kernels.recipe
        self._chunks, self._multi_dim = batch["collective.chunks"], batch["collective.multi_dim"]
        self.lanes = [Lane.of(batch, place) for place in range(len(batch.base.network.dims))]
        degrees: dict[str, Any] = {axis: batch[f"workload.{axis}"] for axis in AXES}
        placed = strides(batch.base.workload.placement, degrees)
        sizes = [lane.npus for lane in self.lanes]
        self.shapes: dict[str, tuple[Part, ...]] = {axis: shape(sizes, placed[axis], degrees[axis]) for axis in AXES}
        ep = batch["workload.ep"]
        self.shapes["ep"] = shape(sizes, placed["dp"], ep)
        self.shapes["edp"] = shape(sizes, placed["dp"] * ep, larger(degrees["dp"] / ep, 1.0))
        """What every mesh axis has of each dimension: those of `AXES`, and ep and edp, into which dp divides."""
        self._groups: dict[tuple[str, ...], list[Crossing]] = {}

    def operator(self, use: OperatorUse) -> Any:
        """Return the seconds of one run of an operator on the device."""
        return self._kernels.operator(use)

    def hosted(self, use: OperatorUse) -> Any:
        """Return the seconds that the host takes to launch one run of an operator."""
        return self._kernels.hosted(use)

    def hosted_call(self, phase: str) -> Any:
        """Return the seconds that the host takes to launch one collective."""
        return self._kernels.hosted_call(phase)

    def collective(self, kind: str, axes: tuple[str, ...], size_bytes: Any, copies: int = 1) -> Any:
        """Return the seconds of one collective among the ranks of *axes*, or of one message to the next of them.

        Of several *copies* of a token that go to one node, an all-to-all sends one, and spreads it there.
        """
        if axes not in self._groups:
            self._groups[axes] = crossings(self.lanes, together([self.shapes[axis] for axis in axes]))
        group = self._groups[axes]
        if kind in ("send", "collective_permute"):
            return send_seconds(group, size_bytes)
        known: CollectiveKind = kind  # type: ignore[assignment]  # the others were handled above
        return collective_seconds(group, known, size_bytes, self._chunks, self._multi_dim, copies)

    def shown(self, axis: str) -> float:
        """Return the share of what ranks along *axis* send that computation waits for."""
        workload = self.batch.base.workload
        beside = {"tp": workload.tp_overlap, "ep": workload.ep_overlap}
        return OVERLAPPED[axis] if beside.get(axis) else 1.0

    @property
    def hidden(self) -> Any:
        """The share that computation hides at best of what need not be waited for."""
        return self.batch["collective.overlap_efficiency"] if self.batch.base.workload.dp_overlap else 0.0

    def update(self, elements: Any) -> tuple[Any, Any]:
        """Return the seconds to update *elements* weights, and the bytes that pass through memory for it."""
        return self._kernels.update(elements)

    def offloading(self, moved_bytes: Any) -> Any:
        """Return the seconds that bytes travel to or from the nearest outer tier, if there is one."""
        if not self.batch.base.memory.tiers:
            return 0.0
        return moved_bytes / self.batch["memory.tiers.0.bandwidth"]
