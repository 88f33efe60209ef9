"""What may be asked of a recorded trace (`WhatIf`), and the answer (`ProjectedTraces`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cosmic.traces.dependencies import dependencies_of
from cosmic.traces.recorded_statistics import Recorded
from cosmic.traces.replay import Replayed
from cosmic.traces.trace import CollectiveType, Ints, NodeType, RankTrace, Template, TraceSet

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
