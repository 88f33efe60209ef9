"""What communication costs on a system: the seconds of one collective, of one message, of offloading.

Numbers, or arrays over a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cosmic.catalog.fitted import fitted
from cosmic.cost.fabric import NetworkDimension, Subgroup, collective_seconds, send_seconds, subgroups
from cosmic.cost.shapes import Span, folded, shape, strides, together
from cosmic.design.batch import Batch
from cosmic.design.collective import CollectiveKind
from cosmic.design.model import is_moe
from cosmic.design.workload import AXES
from cosmic.numeric import Numeric, larger
from cosmic.step.communication import CommunicationKind, Role
from cosmic.workload.sizes import expert_degrees, folded_order


@dataclass(frozen=True, slots=True)
class ExposedShares:
    """Share of an axis's communication that stays exposed where it overlaps compute."""

    tp: float
    ep: float


EXPOSED = fitted("overlap", ExposedShares)


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
        """What every mesh axis has of each dimension: those of `AXES`, and those of experts."""
        if is_moe(batch.base.model):
            experts = expert_degrees(batch)
            order = [(placed[axis], degrees[axis]) for axis in folded_order(batch.base.workload.placement)]
            inside = experts["etp"] * experts["ep"]
            for axis, first, last in (
                ("etp", 1, experts["etp"]),
                ("ep", experts["etp"], inside),
                ("oep", degrees["tp"], inside),
                ("edp", inside, inside * experts["edp"]),
            ):
                self.shapes[axis] = folded(sizes, order, first, last)
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
        return collective_seconds(group, known, size_bytes, self._chunks, self._multi_dim, self.copies(axes, copies))

    def copies(self, axes: tuple[str, ...], copies: int) -> Numeric:
        """Return how many of the *copies* of a token one rank sends: the ranks of tp that have it share them out."""
        return larger(1, copies / expert_degrees(self._batch)["tep"]) if axes == ("oep",) else copies

    def exposed_share(self, role: Role) -> float:
        """Return the share of a role's seconds that compute waits for; see `tp_overlap` and `ep_overlap`."""
        workload = self._batch.base.workload
        if role == "tp" and workload.tp_overlap:
            return EXPOSED.tp
        return EXPOSED.ep if role == "ep" and workload.ep_overlap else 1.0

    @property
    def overlap_efficiency(self) -> Numeric:
        """The share of weight gathering and gradient reduction that compute can overlap at best."""
        return self._batch["collective.overlap_efficiency"] if self._batch.base.workload.dp_overlap else 0.0

    def offload_seconds(self, moved_bytes: Numeric) -> Numeric:
        """Return the seconds to move bytes to or from the nearest outer tier, if there is one."""
        if not self._batch.base.memory.tiers:
            return 0.0
        bandwidth: Numeric = self._batch["memory.tiers.0.bandwidth"]
        return moved_bytes / bandwidth
