"""Machines that a recorded trace is put on: an accelerator, and what collectives take on its network.

`WhatIf` is what may be asked of a recorded trace, `ProjectedTraces` the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

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
from cosmic.traces.dependencies import dependencies_of
from cosmic.traces.replay import Replayed
from cosmic.traces.trace import CollectiveType, Ints, NodeType, RankTrace, Template, TraceSet
from cosmic.traces.trace_statistics import Recorded

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


LEAST_GAP_NS = 400
"""Between two kernels of a stream: the median in CUDA graphs of steps on an H200 is 416 to 448."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What is asked."""

    machine: str = ""
    """An accelerator, a system or a design; empty for the one that the trace was recorded on."""
    network: str = ""
    """A system whose network is taken; empty for that of the machine."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the machine, such as ``network.dims.0.bandwidth``."""
    dp: int | None = None
    """Ranks of a data-parallel group."""
    batch: float = 1.0
    """Factor of the tokens of a step."""
    layers: float = 1.0
    """Factor of the number of layers."""
    host: float = 1.0
    """Factor of what the host takes; 0 as if it had captured everything in CUDA graphs."""
    from_shapes: bool = False
    """Take predicted times of kernels, not recorded ones times a ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectedTraces:
    """A trace, and the same on another machine."""

    traces: TraceSet
    """With the new times."""
    groups: dict[str, tuple[int, ...]]
    old: Recorded
    new: Recorded
    """Of the rank that takes longest."""
    old_machine: str
    new_machine: str
    device: str
    """What the new accelerator is called."""
    npus: int
    """Accelerators of the new machine."""
    ranks: int
    """Of the new job."""
    tokens: float
    """New over old tokens of a step, of all ranks."""
    without_host_s: float | None = None
    """The projected step if the host took no time; None where it hardly waits for it."""
    priced_share: float
    """Of the time of kernels, the part whose work is known."""
    notes: tuple[str, ...]

    def job(self) -> TraceSet:
        """Return the traces of all ranks of the new job, where a single rank was recorded and stands for all of them.

        Of several recorded ranks, these, with their groups and shards as they were.
        """
        if len(self.traces.ranks) > 1 or self.ranks == 1:
            return self.traces
        # A rank's trace whose all-gathers have shards of so many ranks
        rank = self.traces.ranks[0]
        template = rank.template
        gathers = (template.type == NodeType.COMM_COLL) & (template.comm_type == CollectiveType.ALL_GATHER)
        size = np.where(gathers & (template.comm_size > 0), -(-template.comm_size // self.ranks), template.comm_size)
        return TraceSet((replace(rank, template=replace(template, comm_size=size)),) * self.ranks, self.traces.where)

    @property
    def throughput(self) -> float:
        """New over old tokens a second, of all ranks."""
        return self.speedup * self.tokens

    @property
    def speedup(self) -> float:
        """Old over new time."""
        return self.old.span_s / self.new.span_s if self.new.span_s else float("inf")


def retime_rank(rank: RankTrace, replayed: Replayed, number: int) -> RankTrace:
    """Return a rank's trace with replayed times."""
    begin, ended = replayed.begun[number], replayed.ended[number]
    micro = (ended + 500) // 1000 - (begin + 500) // 1000
    template = replace(rank.template, start_ns=begin, duration_ns=ended - begin, duration_us=micro)
    return replace(rank, template=template)


def scale_host_delays(template: Template, delay: Ints, factor: float) -> Ints:
    """Return delays where the host takes *factor* times as long: its own, and of launches what exceeds a usual gap."""
    dependencies = dependencies_of(template).within()
    end = template.start_ns + np.maximum(template.duration_ns, 0)
    last = {True: np.zeros(template.nodes, np.int64), False: np.zeros(template.nodes, np.int64)}
    for of_host in (True, False):
        chosen = (template.on_cpu[dependencies.row] > 0) == of_host
        np.maximum.at(last[of_host], dependencies.dependent[chosen], end[dependencies.row[chosen]])
    device = template.on_cpu == 0
    queued = device & (last[False] >= last[True]) & (last[False] > 0)
    gap = max(float(np.median(delay[queued])), LEAST_GAP_NS) if queued.any() else float(LEAST_GAP_NS)
    launched = device & ~queued & (delay > gap)
    scaled = np.where(launched, gap + (delay - gap) * factor, np.where(device, delay, delay * factor))
    return np.rint(scaled).astype(np.int64)
