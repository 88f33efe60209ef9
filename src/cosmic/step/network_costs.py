"""What communication costs on a system: the seconds of one collective, of one message, of offloading.

Numbers, or arrays over a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cosmic.catalog.fitted import fitted
from cosmic.cost.fabric import NetworkDimension, Subgroup, collective_seconds, send_seconds, subgroups
from cosmic.cost.shapes import Span, shape, strides, together
from cosmic.design.batch import Batch
from cosmic.design.collective import CollectiveKind
from cosmic.design.workload import AXES
from cosmic.numeric import Numeric, larger
from cosmic.step.communication import CommunicationKind, Role


@dataclass(frozen=True, slots=True)
class OverlapEfficiency:
    """Share of an axis's communication that compute beside it can hide at best; the rest is what it takes from it."""

    tp: float
    ep: float


OVERLAP = fitted("overlap", OverlapEfficiency)


class NetworkCosts:
    """The seconds of collectives and messages for a batch of designs, by the place of their group in the network."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._chunks, self._multi_dim = batch["collective.chunks"], batch["collective.multi_dim"]
        self.dims = [NetworkDimension.of(batch, place) for place in range(len(batch.base.network.dims))]
        degrees: dict[str, Any] = {axis: batch[f"workload.{axis}"] for axis in AXES}
        placed = strides(batch.base.workload.placement, degrees)
        sizes = [dim.npus for dim in self.dims]
        self.shapes: dict[str, tuple[Span, ...]] = {axis: shape(sizes, placed[axis], degrees[axis]) for axis in AXES}
        ep = batch["workload.ep"]
        self.shapes["ep"] = shape(sizes, placed["dp"], ep)
        self.shapes["edp"] = shape(sizes, placed["dp"] * ep, larger(degrees["dp"] / ep, 1.0))
        """What every mesh axis has of each dimension: those of `AXES`, and ep and edp, into which dp divides."""
        self._groups: dict[tuple[str, ...], list[Subgroup]] = {}

    def group(self, axes: tuple[str, ...]) -> list[Subgroup]:
        """Return the place of the ranks of *axes* in the network: their part of each dimension that they span."""
        if axes not in self._groups:
            self._groups[axes] = subgroups(self.dims, together([self.shapes[axis] for axis in axes]))
        return self._groups[axes]

    def seconds(self, kind: CommunicationKind, axes: tuple[str, ...], size_bytes: Numeric, copies: int = 1) -> Numeric:
        """Return the seconds of one collective among the ranks of *axes*, or of one message to the next of them.

        An all-to-all sends one of several *copies* of a token that go to one node, and spreads it there.
        """
        group = self.group(axes)
        if kind in ("send", "collective_permute"):
            return send_seconds(group, size_bytes)
        known: CollectiveKind = kind  # type: ignore[assignment]  # the others were handled above
        return collective_seconds(group, known, size_bytes, self._chunks, self._multi_dim, copies)

    def efficiency(self, role: Role) -> Numeric:
        """Return the share of a role's seconds that compute can hide at best; 0 where it does not overlap.

        What is left is what communication takes from the compute beside it: SMs, and memory bandwidth.
        """
        workload = self._batch.base.workload
        if role == "tp":
            return OVERLAP.tp if workload.tp_overlap else 0.0
        if role == "ep":
            return OVERLAP.ep if workload.ep_overlap else 0.0
        return self._batch["collective.overlap_efficiency"] if workload.dp_overlap else 0.0

    def offload_seconds(self, moved_bytes: Numeric) -> Numeric:
        """Return the seconds to move bytes to or from the nearest outer tier, if there is one."""
        if not self._batch.base.memory.tiers:
            return 0.0
        bandwidth: Numeric = self._batch["memory.tiers.0.bandwidth"]
        return moved_bytes / bandwidth
