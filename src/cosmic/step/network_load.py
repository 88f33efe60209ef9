"""What each accelerator sends into each dimension of its network in a step, for what, and how long that takes.

    sent_d    = S_d * traffic          bytes of a collective of payload S in dimension d
    seconds_d = C * latency_d + S_d * seconds per byte + what the library takes besides

    S_d  what enters the dimension: S shared out over the members in dimensions inside it (see `cosmic.cost.fabric`)
    C    chunks, each of which pays for latency

With Themis each chunk visits the dimensions in an order of its own, S_d follows from these orders, and latency shows
once, as in `cosmic.cost.fabric`. Seconds are
those in which a dimension is busy: several dimensions work on one collective at once, so that they add up to more than
it takes. Reductions inside switches send less than what is counted here, which is the rings' part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from cosmic.cost.fabric import Crossing, Lane, around, crossings, sent_once
from cosmic.cost.shapes import Part, together
from cosmic.cost.themis import Plan, orders
from cosmic.cost.transport import Phase
from cosmic.design.batch import batch_of
from cosmic.design.collective import CollectiveKind, algorithms
from cosmic.design.point import DesignPoint
from cosmic.step.communication import CollectiveUse, collectives
from cosmic.step.costs import Prices
from cosmic.workload.sizes import Stage, block_shares

SCHEDULED_BYTES = 2**30
"""Themis' orders depend on the ratio of bandwidths; this is large enough for its whole numbers not to matter."""


@dataclass(frozen=True, slots=True)
class Load:
    """What an accelerator sends into one dimension in a step for one part of it."""

    dimension: int
    part: str
    """The part of the step's breakdown that waits for it: tp, cp, ep, weights, dp or pp."""
    bytes: float
    seconds: float


def shapes_of(point: DesignPoint) -> dict[str, tuple[Part, ...]]:
    """Return what every mesh axis has of each dimension: those of `AXES`, and ep and edp, into which dp divides."""
    return Prices(batch_of(point)).shapes


def loads(point: DesignPoint, stage: Stage | None = None) -> tuple[Load, ...]:
    """Return what a stage sends in a step, by dimension and part, of a design that fits together (see `uses_of`)."""
    prices = Prices(batch_of(point))
    total: dict[tuple[int, str], list[float]] = {}
    for use in uses_of(point, stage):
        parts = together([prices.shapes[axis] for axis in use.axes])
        for dimension, sent, seconds in _sent(use, point, prices.lanes, parts):
            entry = total.setdefault((dimension, part_of(use)), [0.0, 0.0])
            entry[0] += float(use.times) * sent
            entry[1] += float(use.times) * seconds
    return tuple(Load(dimension, part, *sums) for (dimension, part), sums in sorted(total.items()))


def uses_of(point: DesignPoint, stage: Stage | None = None) -> list[CollectiveUse]:
    """Return the collectives of a pipeline stage, each by itself: of the fullest, unless layers differ by *stage*."""
    uses = collectives(batch_of(point), stage or "first")
    shares = block_shares(stage, point.workload.pp, head=any(use.block == "head" for use in uses))
    there = [use for use in uses if shares.get(use.block, 1.0)]
    return [use for use in there if float(use.group) > 1 and float(use.times) > 0]


def part_of(use: CollectiveUse) -> str:
    """Return the part of a step's breakdown that a collective belongs to."""
    if use.kind == "send":
        return "pp"
    if use.kind == "collective_permute":
        return "cp"
    if use.hides:  # once a step, or for each microbatch, where weights or gradients are sharded
        return "dp" if use.phase == "step" else "weights"
    return use.axes[0]


def _sent(
    use: CollectiveUse, point: DesignPoint, lanes: Sequence[Lane], parts: Sequence[Part]
) -> Iterator[tuple[int, float, float]]:
    """Yield for each dimension that one collective crosses the bytes that an accelerator sends, and the seconds."""
    places = [place for place, part in enumerate(parts) if part.members > 1]
    group = crossings(lanes, parts)
    payload = float(use.bytes)
    if use.kind in ("send", "collective_permute"):
        place, door = places[-1], group[-1].next_door()
        yield place, payload, _busy(door, payload, 1)
        return
    kind: CollectiveKind = use.kind  # type: ignore[assignment]  # the others were handled above
    chunks = 1 if point.collective.multi_dim == "themis" and kind != "all_to_all" else point.collective.chunks
    alone = len(group) == 1
    for place, each, share in zip(places, group, entering(kind, point, group, use.copies), strict=True):
        traffic = float(algorithms[each.lane.algorithm].traffic(kind, each.part.members))
        yield place, payload * share * traffic, _busy(each.phase(kind, alone), payload * share, chunks)


def _busy(phase: Phase, size_bytes: float, chunks: int) -> float:
    return float(chunks * phase.again_s + phase.per_byte_s * size_bytes + phase.besides_s(size_bytes))


def entering(kind: CollectiveKind, point: DesignPoint, group: Sequence[Crossing], copies: int = 1) -> list[float]:
    """Return the share of a collective's payload that enters each dimension of a group, innermost first."""
    members = [float(each.part.members) for each in group]
    inside = [prod(members[:place]) for place in range(len(members))]
    if kind == "all_to_all":
        return [float(sent_once(copies, own, within)) for own, within in zip(members, inside, strict=True)]
    how = point.collective.multi_dim
    if how == "themis" and len(group) > 1 and all(own.is_integer() for own in members):
        return _levelled(kind, point, group, members)
    if how == "baseline" and kind == "all_reduce":
        inside = [1.0] * len(inside)
    pairs = zip(group, inside, strict=True)
    return [float(around(kind, each, within) / within) for each, within in pairs]


def _levelled(
    kind: CollectiveKind, point: DesignPoint, group: Sequence[Crossing], members: Sequence[float]
) -> list[float]:
    """Return the shares when each chunk takes the order that Themis gives it."""
    rates = [(own - 1) / own / each.phase(kind).per_byte_s for own, each in zip(members, group, strict=True)]
    chunks = point.collective.chunks
    plan = Plan(
        npus=tuple(int(own) for own in members), bandwidths=tuple(rates), size_bytes=SCHEDULED_BYTES, splits=chunks
    )
    shares = np.zeros(len(members))
    for order in orders("reduce_scatter", plan):
        left = 1.0 / chunks
        for place in order:
            shares[place] += left
            left /= members[place]
    return [float(each) for each in shares]
