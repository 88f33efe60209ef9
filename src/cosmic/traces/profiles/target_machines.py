"""Machines that a recorded trace is put on: an accelerator, and what collectives take on its network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cosmic.base.errors import SpecError, UnknownName
from cosmic.design import catalog_entries
from cosmic.design.collective_layer import CollectiveKind
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.loading import load_machine
from cosmic.design.measured_hardware import find_accelerator, find_system, find_system_with
from cosmic.design.systems import YAML_ENDINGS, is_model_at_system, split_size
from cosmic.network.collective_costs import (
    NetworkDimension,
    Subgroup,
    barrier_seconds,
    broadcast_seconds,
    collective_seconds,
    send_seconds,
    subgroups,
)
from cosmic.network.mesh_spans import axis_spans
from cosmic.traces.trace import CollectiveType

TINY = {"family": "decoder", "layers": 1, "hidden": 64, "heads": 1, "ffn": 64, "vocab": 2}
"""A model for designs of which only the hardware is asked."""
KINDS: dict[CollectiveType, CollectiveKind] = {
    CollectiveType.ALL_REDUCE: "all_reduce",
    CollectiveType.ALL_GATHER: "all_gather",
    CollectiveType.REDUCE_SCATTER: "reduce_scatter",
    CollectiveType.REDUCE_SCATTER_BLOCK: "reduce_scatter",
    CollectiveType.ALL_TO_ALL: "all_to_all",
}
ROOTED = (CollectiveType.BROADCAST, CollectiveType.REDUCE, CollectiveType.GATHER, CollectiveType.SCATTER)
"""From one member to all, or the other way round: both are priced as a broadcast of the whole."""


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks that communicate: so many, so far apart."""

    members: int
    stride: int

    @classmethod
    def from_ranks(cls, ranks: Sequence[int]) -> RankGroup:
        """Return the group of *ranks*; the distance of the first two counts.

        >>> RankGroup.from_ranks((1, 5, 9)), RankGroup.from_ranks((3,))
        (RankGroup(members=3, stride=4), RankGroup(members=1, stride=1))
        """
        ordered = sorted(ranks)
        return cls(len(ordered), ordered[1] - ordered[0] if len(ordered) > 1 else 1)


@dataclass(frozen=True)
class Machine:
    """A system of so many accelerators."""

    name: str
    point: DesignPoint

    @cached_property
    def _batch(self) -> Batch:
        return batch_of(self.point)

    @cached_property
    def _dims(self) -> list[NetworkDimension]:
        return [NetworkDimension.of(self._batch, index) for index in range(len(self.point.network.dims))]

    def _subgroups(self, group: RankGroup) -> list[Subgroup]:
        spans = axis_spans([dim.npus for dim in self._dims], group.stride, group.members)
        used = [index for index, span in enumerate(spans) if float(span.members) > 1]
        return subgroups([self._dims[dim_index] for dim_index in used], [spans[dim_index] for dim_index in used])

    def collective_s(self, kind: CollectiveType, whole_bytes: float, group: RankGroup) -> float:
        """Return the seconds of a collective whose whole buffer has *whole_bytes*."""
        if group.members <= 1:
            return 0.0
        self._check(group)
        spanned = self._subgroups(group)
        if kind == CollectiveType.BARRIER:
            return float(barrier_seconds(spanned))
        if kind in ROOTED:
            return float(broadcast_seconds(spanned, whole_bytes))
        layer = self.point.collective
        chunks = layer.chunks if len(spanned) > 1 else 1
        return float(collective_seconds(spanned, KINDS[kind], whole_bytes, chunks, layer.multi_dim))

    def message_s(self, size_bytes: float, distance: int) -> float:
        """Return the seconds of a message to a rank that is *distance* away."""
        group = RankGroup(2, max(1, abs(distance)))
        self._check(RankGroup(1, group.stride + 1))
        return float(send_seconds(self._subgroups(group), size_bytes))

    def _check(self, group: RankGroup) -> None:
        last = group.stride * (group.members - 1) + 1
        npus = self.point.network.npus
        if last > npus:
            raise SpecError("machine", self.name, f"has {npus} accelerators, and the job has ranks up to {last - 1}")


def machine_named(
    name: str, npus: int, settings: Mapping[str, Any] | None = None, where: str = "--accelerator"
) -> Machine:
    """Return the machine that *name* means, with *npus* accelerators: a system, an accelerator's usual one, a design.

    *settings* override fields of it, such as ``network.dims.0.bandwidth``.
    """
    if is_model_at_system(name):
        return Machine(name, load_machine(name, dict(settings or {})))
    stem, size = split_size(name)
    system = stem if stem.endswith(YAML_ENDINGS) else _system(stem, where)
    mesh = {"sequence": 1, "global_batch": 1, "tp": 1, "cp": 1, "pp": 1}
    sized = f"{system}:{size or npus}"
    return Machine(sized, load_machine({"model": TINY, "system": sized, "workload": mesh}, dict(settings or {})))


def _system(name: str, where: str) -> str:
    """Return the system that *name* means: its own name, or the usual one of an accelerator."""
    entry = catalog_entries.resolve_name("systems", name) or name
    if entry in catalog_entries.entry_names("systems"):
        return entry
    if name in catalog_entries.entry_names("accelerators"):
        return find_system_with(name)
    try:
        return find_system_with(find_accelerator(name).like)
    except UnknownName:
        raise UnknownName.among(where, name, "accelerator or system", catalog_entries.entry_names("systems")) from None


def recorded_machine(device: str, npus: int) -> Machine | None:
    """Return the usual machine of the accelerator that a driver calls *device*; None if the catalog has none."""
    system = find_system(device)
    return machine_named(system, npus) if system else None
