"""What bounds a step: its operators on the roofline, the load of each network dimension, and which holds it back.

Operators lie on a roofline by their flop, bytes and seconds. Its ridge is at peak / bandwidth flop per byte. The tensor
cores bound an operator to its right at best; memory bounds one to its left, however fast they are.

Each accelerator sends into each dimension of its network (`network_loads`)

    sent_d    = S_d * traffic          bytes of a collective of payload S in dimension d
    seconds_d = C * latency_d + S_d * seconds per byte + what the library takes besides

    S_d  what enters the dimension: S shared out over the members in dimensions inside it (see
    `cosmic.network.collective_costs`)
    C    chunks, each of which pays for latency

With Themis each chunk visits the dimensions in an order of its own, and S_d follows from these orders
(`cosmic.network.themis_chunks`). Seconds are those in which a dimension is busy: several dimensions work on one
collective at once, so that they add up to more than it takes. Reductions inside switches send less than what is counted
here, which is the rings' part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from cosmic.base.numeric import Numeric
from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.design.design_point import DesignPoint
from cosmic.network.collective_costs import (
    NetworkDimension,
    Subgroup,
    deduplicated_share,
    entering_flat,
    ring_factor,
    subgroups,
    themis_lanes,
)
from cosmic.network.mesh_spans import Span, joint_spans
from cosmic.network.switch_tiers import group_of, tiers_of, uplink_loads
from cosmic.network.themis_chunks import levelled_shares
from cosmic.network.transport_protocols import StageCost
from cosmic.step.accelerator_rates import peak_flop_per_s
from cosmic.step.communication import CollectiveUse
from cosmic.step.stage_time import stage_time
from cosmic.step.step_profile import StepProfile


@dataclass(frozen=True, slots=True)
class RooflineOperator:
    """An operator with all its runs in a step, recomputation included."""

    name: str
    kind: str
    """As in the graph: ``einsum`` is a GEMM."""
    flop: float
    bytes: float
    seconds: float

    @property
    def intensity(self) -> float:
        """Flop per byte."""
        return self.flop / self.bytes


def workload_peak_flop_per_s(point: DesignPoint) -> float:
    """Return the peak flop per second in the number format of the workload."""
    return float(peak_flop_per_s(lambda key: getattr(point.compute, f"{key}_flop_per_s"), point.workload.precision))


def ridge_flop_per_byte(point: DesignPoint) -> float:
    """Return the flop per byte above which compute bounds an operator."""
    return workload_peak_flop_per_s(point) / point.memory.bandwidth_bytes_per_s


def roofline_operators(profile: StepProfile) -> list[RooflineOperator]:
    """Return the operators of a stage of a single design that compute anything.

    An operator that is fused with its neighbours moves less than its operands, and never more than the memory
    transfers in its time.
    """
    total: dict[tuple[str, str], list[float]] = {}
    for operator in profile.operators:
        use, runs = operator.use, float(operator.runs)
        name = f"{use.block} {use.name}, {use.phase}".replace("_", " ")
        entry = total.setdefault((name, use.kind), [0.0, 0.0, 0.0])
        for index, once in enumerate((use.flop, use.bytes, operator.seconds)):
            entry[index] += runs * float(np.asarray(once))
    bandwidth = profile.batch.base.memory.bandwidth_bytes_per_s
    return [
        RooflineOperator(name, kind, flop, min(moved, seconds * bandwidth), seconds)
        for (name, kind), (flop, moved, seconds) in total.items()
        if flop > 0 and moved > 0 and seconds > 0
    ]


PART_TITLES = {
    "gemm": "GEMMs",
    "attention": "attention",
    "other": "memory-bound operators",
    "recompute": "recomputation",
    "launch": "kernel launches",
    "tp": "tensor-parallel communication",
    "cp": "context-parallel communication",
    "ep": "expert-parallel communication",
    "weights": "sharded weights and gradients",
    "dp": "gradient reduction",
    "pp": "pipeline transfers",
    "bubble": "the pipeline bubble",
    "optimizer": "the optimizer",
    "offload": "offloading",
    "compute": "compute",
    "communication": "exposed communication",
    "idle": "waiting",
    "engine": "the engine beside its kernels",
}
"""The parts of a step in words; then those of a simulated step, and what a serving engine adds."""
NETWORK_PARTS = ("tp", "cp", "ep", "weights", "dp", "pp", "communication")
"""Parts that the network holds back."""
GEMM_KINDS = ("einsum", "convolution")
PART_OPERATORS = {"gemm": GEMM_KINDS, "attention": ("attention",), "compute": (*GEMM_KINDS, "attention")}
"""Parts that either the tensor cores or the memory hold back, and the operators that they are made of."""
MOST_OF_PART = 0.5


def describe_bound(profile: StepProfile, breakdown: Mapping[str, float]) -> str:
    """Return what bounds a step, with its share: what holds back the part of *breakdown* that takes longest.

    Communication: the network dimension that it keeps busy longest. GEMMs and attention: the memory, where operators
    left of the ridge take most of their time. A simulated step has coarser parts: its communication may be waiting for
    other stages, its compute may be waiting for kernel launches.
    """
    part = max(breakdown, key=lambda name: breakdown[name])
    seconds = breakdown[part]
    share = f"{100 * seconds / sum(breakdown.values()):.0f} % of the step"
    if part in NETWORK_PARTS:
        busy = busy_seconds_by_dimension(network_loads(profile), part)
        dimension = max(busy, key=lambda dimension: busy[dimension], default=None)
        if dimension is not None and (part != "communication" or busy[dimension] > MOST_OF_PART * seconds):
            return f"network dimension {dimension + 1} bounds it ({PART_TITLES[part]}, {share})"
        if part == "communication":
            return f"waiting for other stages and their messages bounds it ({share})"
    if part == "compute" and _launch_s(profile) > MOST_OF_PART * seconds:
        return f"{PART_TITLES['launch']} bound it ({share}, with the compute that waits for them)"
    if part in PART_OPERATORS and _memory_bound(profile, part, seconds):
        return f"memory bandwidth bounds it ({PART_TITLES[part]}, {share})"
    return f"{PART_TITLES[part]} bound{'' if PART_TITLES[part].endswith('s') else 's'} it ({share})"


def _launch_s(profile: StepProfile) -> float:
    """Return how long the kernels of a stage of a single design wait for their launches in a step."""
    delay = stage_time(profile.batch, profile.counts).delay
    return float(np.asarray(delay["forward"] + delay["backward"]))


def _memory_bound(profile: StepProfile, part: str, seconds: float) -> bool:
    """Return whether operators left of the ridge take most of a part of the step, and most of such operators' time."""
    operators = [operator for operator in roofline_operators(profile) if operator.kind in PART_OPERATORS[part]]
    ridge = ridge_flop_per_byte(profile.batch.base)
    memory_bound_s = sum(operator.seconds for operator in operators if operator.intensity < ridge)
    return memory_bound_s > MOST_OF_PART * max(seconds, sum(operator.seconds for operator in operators))


def busy_seconds_by_dimension(loads: Iterable[NetworkLoad], part: str) -> dict[int, float]:
    """Return how long a part of the step keeps each network dimension busy; ``communication`` is all parts."""
    seconds: dict[int, float] = {}
    for load in loads:
        if part in (load.part, "communication"):
            seconds[load.dimension] = seconds.get(load.dimension, 0.0) + load.seconds
    return seconds


@dataclass(frozen=True, slots=True)
class NetworkLoad:
    """What an accelerator sends into one network dimension in a step, for one part of it."""

    dimension: int
    part: str
    """The part of the step's breakdown that waits for it: tp, cp, ep, weights, dp or pp."""
    bytes: float
    seconds: float
    uplinks: tuple[float, ...] = ()
    """Of each tier of switches: bytes that an accelerator's link carries in the time that uplinks carry these."""

    def added_to(self, previous: NetworkLoad | None, calls: float) -> NetworkLoad:
        """Return so many *calls* of this load beside a *previous* one of the same dimension and part."""
        base = previous or NetworkLoad(self.dimension, self.part, 0.0, 0.0, (0.0,) * len(self.uplinks))
        uplinks = tuple(old + calls * new for old, new in zip(base.uplinks, self.uplinks, strict=True))
        return replace(
            base,
            bytes=base.bytes + calls * self.bytes,
            seconds=base.seconds + calls * self.seconds,
            uplinks=uplinks,
        )


def network_loads(profile: StepProfile) -> tuple[NetworkLoad, ...]:
    """Return what a stage of a single design sends in a step, by dimension and part."""
    network, point = profile.network, profile.batch.base
    total: dict[tuple[int, str], NetworkLoad] = {}
    for use in sent_collectives(profile):
        parts = joint_spans([network.shapes[axis] for axis in use.axes])
        for load in _dimension_loads(use, point, network.dims, parts, network.copies(use.axes, use.copies)):
            key = (load.dimension, load.part)
            total[key] = load.added_to(total.get(key), float(use.calls))
    return tuple(load for _, load in sorted(total.items()))


def sent_collectives(profile: StepProfile) -> list[CollectiveUse]:
    """Return the collectives of a stage that send anything, each by itself."""
    return [use for use in profile.collectives if float(use.group) > 1 and float(use.calls) > 0]


def _dimension_loads(
    use: CollectiveUse,
    point: DesignPoint,
    dims: Sequence[NetworkDimension],
    parts: Sequence[Span],
    copies: Numeric = 1,
) -> Iterator[NetworkLoad]:
    """Yield for each dimension that one collective crosses what an accelerator sends."""
    dimensions = [index for index, part in enumerate(parts) if part.members > 1]
    group = subgroups(dims, parts)
    payload = float(use.bytes)
    if use.kind in ("send", "collective_permute"):
        dimension, door = dimensions[-1], group[-1].point_to_point()
        uplinks = _uplink_loads("all_gather", "ring", point, dimension, parts[dimension])
        yield NetworkLoad(
            dimension, use.part, payload, _phase_busy_s(door, payload, 1), tuple(payload * uplink for uplink in uplinks)
        )
        return
    kind: CollectiveKind = use.kind  # type: ignore[assignment]  # the others were handled above
    chunks, single = point.collective.chunks, len(group) == 1
    for dimension, subgroup, share in zip(
        dimensions, group, entering_shares(kind, point, group, copies, payload), strict=True
    ):
        name = str(subgroup.dimension.algorithm)
        sent = payload * share * float(algorithms[name].traffic(kind, subgroup.span.members))
        seconds = _phase_busy_s(subgroup.collective(kind, single), payload * share, chunks)
        uplinks = _uplink_loads(kind, name, point, dimension, subgroup.span)
        yield NetworkLoad(dimension, use.part, sent, seconds, tuple(sent * busy for busy in uplinks))


def _uplink_loads(
    kind: CollectiveKind, algorithm: str, point: DesignPoint, dimension: int, span: Span
) -> tuple[float, ...]:
    """Return how busy the uplinks of each tier are, over how busy an accelerator's own link is."""
    if not (tiers := tiers_of(point.network.dims, dimension)):
        return ()
    return uplink_loads(kind, algorithm, group_of(point.network.dims[dimension].npus, span.members, span.step), tiers)


def _phase_busy_s(phase: StageCost, size_bytes: float, chunks: int) -> float:
    return float(chunks * phase.per_chunk_s + phase.per_byte_s * size_bytes + phase.per_call_s(size_bytes))


def entering_shares(
    kind: CollectiveKind, point: DesignPoint, group: Sequence[Subgroup], copies: Numeric = 1, size_bytes: float = 1.0
) -> list[float]:
    """Return the share of a collective's payload that enters each dimension of a group, innermost first."""
    members = [float(subgroup.span.members) for subgroup in group]
    inner_members = [prod(members[:index]) for index in range(len(members))]
    if kind == "all_to_all" and point.collective.all_to_all == "flat":
        return [float(subgroup) for subgroup in entering_flat(members, [bool(share.straight) for share in group])]
    if kind == "all_to_all":
        return [
            float(deduplicated_share(copies, size, within)) for size, within in zip(members, inner_members, strict=True)
        ]
    policy = point.collective.multi_dim
    chunks = point.collective.chunks
    if policy == "themis" and size_bytes:
        stages = [subgroup.collective(kind) for subgroup in group]
        first_s = [
            stage.per_chunk_s + stage.per_byte_s * size_bytes / chunks * ring_factor(kind, subgroup, within) / within
            for stage, subgroup, within in zip(stages, group, inner_members, strict=True)
        ]
        return levelled_shares(themis_lanes(stages, group, first_s), size_bytes, chunks)
    if policy == "baseline" and kind == "all_reduce":
        inner_members = [1.0] * len(inner_members)
    pairs = zip(group, inner_members, strict=True)
    return [float(ring_factor(kind, subgroup, within) / within) for subgroup, within in pairs]
