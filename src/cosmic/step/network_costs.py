"""What communication costs on a system: the seconds of one collective, of one message, of offloading.

Numbers, or arrays over a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosmic.base.numeric import Numeric, larger, sum_of
from cosmic.design.catalog_entries import load_constants
from cosmic.design.collective_layer import CollectiveKind
from cosmic.design.design_batch import Batch
from cosmic.design.model_layer import is_moe
from cosmic.design.program_model import ProgramModel
from cosmic.design.workload_layer import AXES
from cosmic.network.collective_costs import NetworkDimension, Subgroup, collective_seconds, send_seconds, subgroups
from cosmic.network.mesh_spans import Span, axis_spans, axis_strides, folded_spans, joint_spans
from cosmic.step.communication import CommunicationKind, Role
from cosmic.workload.mesh_sizes import INSIDE, OUTSIDE, exchanges_apart, expert_degrees, folded_order


@dataclass(frozen=True, slots=True)
class OverlapEfficiency:
    """Share of an axis's communication that compute beside it can hide at best; the rest is what it takes from it."""

    tp: float
    ep: float


OVERLAP = load_constants("overlap", OverlapEfficiency)


class NetworkCosts:
    """The seconds of collectives and messages for a batch of designs, by the place of their group in the network."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._chunks, self._multi_dim = batch["collective.chunks"], batch["collective.multi_dim"]
        self._all_to_all = batch["collective.all_to_all"]
        self.dims = [NetworkDimension.of(batch, index) for index in range(len(batch.base.network.dims))]
        degrees: dict[str, Any] = {axis: batch[f"workload.{axis}"] for axis in AXES}
        placed = axis_strides(batch.base.workload.placement, degrees)
        sizes = [dim.npus for dim in self.dims]
        self.shapes: dict[str, tuple[Span, ...]] = {
            axis: axis_spans(sizes, placed[axis], degrees[axis]) for axis in AXES
        }
        """What every mesh axis has of each dimension: those of `AXES`, and those of experts."""
        if isinstance(batch.base.model, ProgramModel):
            for cut in batch.base.model.cuts:
                stride = placed[cut.axis]
                for name, size in reversed(cut.sizes.items()):
                    self.shapes[name] = axis_spans(sizes, stride, size)
                    stride = stride * size
        if is_moe(batch.base.model):
            experts = expert_degrees(batch)
            order = [(placed[axis], degrees[axis]) for axis in folded_order(batch.base.workload.placement)]
            expert_ranks = experts["etp"] * experts["ep"]
            for axis, first, last in (
                ("etp", 1, experts["etp"]),
                ("ep", experts["etp"], expert_ranks),
                ("oep", degrees["tp"], expert_ranks),
                ("edp", expert_ranks, expert_ranks * experts["edp"]),
            ):
                self.shapes[axis] = folded_spans(sizes, order, first, last)
        if exchanges_apart(batch.base.workload):
            for axis in (axis for axis in INSIDE if axis in self.shapes):
                *inner, outermost = self.shapes[axis]
                self.shapes[INSIDE[axis]] = (*inner, Span(1.0, 1.0))
                self.shapes[OUTSIDE[axis]] = (*(Span(1.0, 1.0) for _ in inner), outermost)
        self._groups: dict[tuple[str, ...], list[Subgroup]] = {}
        self._time_factor: Numeric = batch["compute.time_factor"]

    def group(self, axes: tuple[str, ...]) -> list[Subgroup]:
        """Return the place of the ranks of *axes* in the network: their part of each dimension that they span."""
        if axes not in self._groups:
            self._groups[axes] = subgroups(self.dims, joint_spans([self.shapes[axis] for axis in axes]))
        return self._groups[axes]

    def seconds(self, kind: CommunicationKind, axes: tuple[str, ...], size_bytes: Numeric, copies: int = 1) -> Numeric:
        """Return the seconds of one collective among the ranks of *axes*, or of one message to the next of them.

        An all-to-all sends one of several *copies* of a token that go to one node, and spreads it there.
        """
        group = self.group(axes)
        if kind in ("send", "collective_permute"):
            return send_seconds(group, size_bytes) * self._time_factor
        collective: CollectiveKind = kind  # type: ignore[assignment]  # the others were handled above
        multiplicity = self.copies(axes, copies)
        policy = (self._chunks, self._multi_dim, multiplicity, self._all_to_all)
        return collective_seconds(group, collective, size_bytes, *policy) * self._time_factor

    def exchange_s(self, axes: tuple[str, ...], size_bytes: Numeric) -> Numeric:
        """Return the seconds in which islands exchange so many bytes of parameters, once the first have arrived.

        All blocks are on their way at the same time: `exchange_latency_s` is waited for once.
        """
        group = self.group(axes)
        full_s, latency_s = (
            collective_seconds(group, "all_reduce", size, 1, self._multi_dim) for size in (size_bytes, 0.0)
        )
        return (full_s - latency_s) * self._time_factor

    def exchange_latency_s(self) -> Numeric:
        """Return what an exchange of parameters between islands takes beyond its bytes; 0 where there is none."""
        if not exchanges_apart(self._batch.base.workload):
            return 0.0
        return collective_seconds(self.group(("odp",)), "all_reduce", 0.0, 1, self._multi_dim) * self._time_factor

    def copies(self, axes: tuple[str, ...], copies: int) -> Numeric:
        """Return how many of the *copies* of a token one rank sends: the ranks of tp that have it share them out."""
        return larger(1, copies / expert_degrees(self._batch)["tep"]) if axes == ("oep",) else copies

    def efficiency(self, role: Role) -> Numeric:
        """Return the share of a role's seconds that compute can hide at best; 0 where it does not overlap.

        What is left is what communication takes from the compute beside it: SMs, and memory bandwidth.
        """
        workload = self._batch.base.workload
        if role == "tp":
            return np.minimum(OVERLAP.tp * self._batch["compute.tp_hiding"], 1.0) if workload.tp_overlap else 0.0
        if role == "ep":
            return np.minimum(OVERLAP.ep * self._batch["compute.ep_hiding"], 1.0) if workload.ep_overlap else 0.0
        return self._batch["collective.overlap_efficiency"] if workload.dp_overlap else 0.0

    def offload_seconds(self, tier_traffic: Sequence[Numeric]) -> Numeric:
        """Return the seconds in which bytes travel between the device and its outer tiers, so many to or from each.

        Tiers are a chain: what lies in the second passes the link of the first too. Links work at the same time, so
        that the slowest counts; transfers start ahead of their use, which hides their latency.
        """
        slowest: Numeric = 0.0
        for index in range(len(tier_traffic)):
            beyond = sum_of(tier_traffic[index:])
            slowest = larger(slowest, beyond / self._batch[f"memory.tiers.{index}.bandwidth"])
        return slowest * self._time_factor
