"""What each accelerator sends into each dimension of its network in a step, for what, and how long that takes.

    sent_d    = S_d * traffic          bytes of a collective of payload S in dimension d
    seconds_d = C * latency_d + S_d * seconds per byte + what the library takes besides

    S_d  what enters the dimension: S shared out over the members in dimensions inside it (see
    `cosmic.network.collective_costs`)
    C    chunks, each of which pays for latency

With Themis each chunk visits the dimensions in an order of its own, and S_d follows from these orders
(`cosmic.network.themis_chunks`). Seconds are those in which a dimension is busy: several dimensions work on one
collective at
once, so that they add up to more than it takes. Reductions inside switches send less than what is counted here, which
is the rings' part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

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
from cosmic.step.communication import CollectiveUse
from cosmic.step.step_profile import StepProfile


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

    def added_to(self, other: NetworkLoad | None, calls: float) -> NetworkLoad:
        """Return so many *calls* of this load beside an *other* one of the same dimension and part."""
        before = other or NetworkLoad(self.dimension, self.part, 0.0, 0.0, (0.0,) * len(self.uplinks))
        uplinks = tuple(old + calls * new for old, new in zip(before.uplinks, self.uplinks, strict=True))
        return replace(
            before,
            bytes=before.bytes + calls * self.bytes,
            seconds=before.seconds + calls * self.seconds,
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
    places = [index for index, part in enumerate(parts) if part.members > 1]
    group = subgroups(dims, parts)
    payload = float(use.bytes)
    if use.kind in ("send", "collective_permute"):
        place, door = places[-1], group[-1].point_to_point()
        uplinks = _uplink_loads("all_gather", "ring", point, place, parts[place])
        yield NetworkLoad(
            place, use.part, payload, _phase_busy_s(door, payload, 1), tuple(payload * uplink for uplink in uplinks)
        )
        return
    kind: CollectiveKind = use.kind  # type: ignore[assignment]  # the others were handled above
    chunks, alone = point.collective.chunks, len(group) == 1
    for place, each, share in zip(places, group, entering_shares(kind, point, group, copies, payload), strict=True):
        name = str(each.dimension.algorithm)
        sent = payload * share * float(algorithms[name].traffic(kind, each.span.members))
        seconds = _phase_busy_s(each.collective(kind, alone), payload * share, chunks)
        uplinks = _uplink_loads(kind, name, point, place, each.span)
        yield NetworkLoad(place, use.part, sent, seconds, tuple(sent * busy for busy in uplinks))


def _uplink_loads(
    kind: CollectiveKind, algorithm: str, point: DesignPoint, place: int, span: Span
) -> tuple[float, ...]:
    """Return how busy the uplinks of each tier are, over how busy an accelerator's own link is."""
    if not (tiers := tiers_of(point.network.dims, place)):
        return ()
    return uplink_loads(kind, algorithm, group_of(point.network.dims[place].npus, span.members, span.step), tiers)


def _phase_busy_s(phase: StageCost, size_bytes: float, chunks: int) -> float:
    return float(chunks * phase.per_chunk_s + phase.per_byte_s * size_bytes + phase.per_call_s(size_bytes))


def entering_shares(
    kind: CollectiveKind, point: DesignPoint, group: Sequence[Subgroup], copies: Numeric = 1, size_bytes: float = 1.0
) -> list[float]:
    """Return the share of a collective's payload that enters each dimension of a group, innermost first."""
    members = [float(each.span.members) for each in group]
    inside = [prod(members[:index]) for index in range(len(members))]
    if kind == "all_to_all" and point.collective.all_to_all == "flat":
        return [float(each) for each in entering_flat(members, [bool(each.straight) for each in group])]
    if kind == "all_to_all":
        return [float(deduplicated_share(copies, own, within)) for own, within in zip(members, inside, strict=True)]
    how = point.collective.multi_dim
    chunks = point.collective.chunks
    if how == "themis" and size_bytes:
        stages = [each.collective(kind) for each in group]
        first_s = [
            stage.per_chunk_s + stage.per_byte_s * size_bytes / chunks * ring_factor(kind, each, within) / within
            for stage, each, within in zip(stages, group, inside, strict=True)
        ]
        return levelled_shares(themis_lanes(stages, group, first_s), size_bytes, chunks)
    if how == "baseline" and kind == "all_reduce":
        inside = [1.0] * len(inside)
    pairs = zip(group, inside, strict=True)
    return [float(ring_factor(kind, each, within) / within) for each, within in pairs]
