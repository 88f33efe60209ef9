"""What traffic takes where a dimension is built in tiers: what leaves a leaf switch, or a pod, shares the uplinks.

A fabric says how many NPUs of a dimension are below one switch of each tier, and how oversubscribed what leaves them is
(`cosmic.design.network_layer`). All groups of a shape work at once. An algorithm is phases of messages between members, as in
`cosmic.network.link_costs`; with a byte for every NPU to send in all phases together, s_i of it in phase i,

    share = 1 / sum over phases of  max(s_i, max over tiers of  o_t x_it / L_t)

    L_t   NPUs below a switch of tier t, side by side
    o_t   their bandwidth over that of the tier's uplinks: the product of the oversubscription of tiers up to it
    x_it  bytes that leave, or enter, the busiest of these switches in phase i, of all groups

For p members, s apart, in a dimension whose groups and leaves are aligned that is

    p s <= L           1: no message leaves its leaf
    ring, messages     min(1, L / (o min(s, L))): one edge leaves for each group that a leaf has members of
    direct             min(1, (p - 1) / (o (p - c))) with c members of a group in a leaf
    halving, doubling  partners 1, 2, 4, ... apart: phases of partners in the leaf take as long as ever, others o times

Groups that straddle leaves are counted as they lie; the slowest group counts for all. A leaf that is not full has all
its uplinks. A reduction in switches sends one stream out of a leaf for each group, as a ring does.

Latency is that of the topology. Links of the catalog were fitted in whole clusters, so that theirs is that of a mean
path; only a `fat_tree`, which counts the switches on the way, takes two links more for each tier that messages cross,
on average over the steps (of a direct algorithm: if any message does).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, prod
from typing import Any, NamedTuple

import numpy as np

from cosmic.base.errors import BackendError
from cosmic.base.numeric import Condition, Numeric, anywhere, choose, sum_of
from cosmic.design.collective_layer import CollectiveKind
from cosmic.design.design_batch import Batch, Label, Names, first_known
from cosmic.design.network_layer import UNTIERED, Dimension, FabricTier, Site, builds, topologies
from cosmic.network.collective_algorithms.synthesized import SYNTHESIZED
from cosmic.network.dimension_wiring import topology_of
from cosmic.network.link_costs import TEXTBOOK, group_layouts, message_patterns, sends_to_all_at_once
from cosmic.network.link_graph import Floats, Ints

FAT_TREE = "fat_tree"
DOUBLE_TREE = "double_binary_tree"
FEWEST = 2
"""Ports of the smallest switch."""
ROUNDING = 1e-9
"""By so much a quotient of bandwidths may fall short of a whole number, and is one."""


@dataclass(frozen=True, slots=True)
class Tiers:
    """What a dimension's tiers follow from, beside its size: names and numbers, or columns of them over a batch."""

    build: Label
    inside: Numeric
    instances: Numeric
    radix: Numeric
    oversubscription: Numeric
    core_oversubscription: Numeric
    routing: Label = "adaptive"

    @classmethod
    def of(cls, batch: Batch, index: int) -> Tiers | None:
        """Return those of the dimension at *index*; None if in no design of the batch anything follows from them."""
        where = f"network.dims.{index}"
        build = batch[f"{where}.fabric.build"]
        if not _has_tiers(build):
            return None
        blocks = (batch[f"{where}.oversubscription"] > 1) | (batch[f"{where}.fabric.core_oversubscription"] > 1)
        routing = batch[f"{where}.fabric.routing"]
        hashed = "ecmp" in _label_names(routing) or "flat" in _label_names(batch["collective.all_to_all"])
        if FAT_TREE not in _label_names(batch[f"{where}.topology"]) and not anywhere(blocks) and not hashed:
            return None
        inside: Numeric = 1
        # NPUs that differ in inner dimensions only are neighbours here, such as those of one node.
        for inner in range(index):
            inside = inside * batch[f"network.dims.{inner}.npus"]
        leaves, pods = (batch[f"{where}.{key}"] for key in ("oversubscription", "fabric.core_oversubscription"))
        instances = batch.npus // batch[f"{where}.npus"]
        return cls(build, inside, instances, ports_of(batch, index), leaves, pods, routing)

    @classmethod
    def at(cls, dims: Sequence[Dimension], index: int) -> Tiers | None:
        """Return those of the dimension at *index* of one network."""
        dim, fabric = dims[index], dims[index].fabric
        if fabric.build in UNTIERED:
            return None
        inside, whole = (prod(member.npus for member in some) for some in (dims[:index], dims))
        shares = (dim.oversubscription, fabric.core_oversubscription)
        ports = int(ports_at(fabric.radix, fabric.port_bandwidth_bytes_per_s, dim.bandwidth_bytes_per_s))
        return cls(fabric.build, inside, whole // dim.npus, ports, *shares, routing=fabric.routing)

    @property
    def columns(self) -> tuple[Label | Numeric, ...]:
        """What `tier_terms` takes besides the group."""
        shares = (self.oversubscription, self.core_oversubscription)
        return self.build, self.inside, self.instances, self.radix, *shares


def tiers_of(dims: Sequence[Dimension], index: int) -> tuple[FabricTier, ...]:
    """Return the tiers of the dimension at *index*, innermost first."""
    tiers = Tiers.at(dims, index)
    if tiers is None:
        return ()
    build, *numbers = tiers.columns
    site: Any = (dims[index].npus, *numbers)
    return tiers_at(str(build), Site(*site))


def ports_of(batch: Batch, index: int) -> Numeric:
    """Return the ports that a switch of the dimension at *index* has at the bandwidth of its NICs."""
    where = f"network.dims.{index}"
    return ports_at(*(batch[f"{where}.{key}"] for key in ("fabric.radix", "fabric.port_bandwidth", "bandwidth")))


def ports_at(radix: Numeric, port_bandwidth: Any, bandwidth: Numeric) -> Numeric:
    """Return the whole ports of a NIC's bandwidth into which those of a switch are split or joined; at least two.

    64 ports of 100 GB/s: 128 NICs of 50 GB/s, 21 of 300 GB/s.

    >>> [int(ports_at(64, 100e9, each)) for each in (50e9, 100e9, 300e9)], ports_at(64, None, 50e9)
    ([128, 64, 21], 64)
    """
    if port_bandwidth is None:
        return radix
    # 64 ports of 800 Gbit/s are 128 of 400: switches are counted in ports of a NIC's bandwidth.
    ports: Numeric = np.floor(radix * first_known(port_bandwidth, bandwidth) / bandwidth * (1 + ROUNDING))
    return np.maximum(ports, FEWEST)


def injected_bandwidth(batch: Batch, index: int) -> Numeric:
    """Return the bandwidth of an NPU into a dimension, over the oversubscription where that acts on all traffic."""
    where = f"network.dims.{index}"
    build, share = batch[f"{where}.fabric.build"], batch[f"{where}.oversubscription"]
    if _has_tiers(build):
        share = 1.0 if isinstance(build, str) else choose(_is_untiered(build), share, 1.0)
    bandwidth: Numeric = batch[f"{where}.bandwidth"] / share
    return bandwidth


def _has_tiers(build: Label) -> bool:
    return any(name not in UNTIERED for name in _label_names(build))


def _label_names(label: Label) -> tuple[str, ...]:
    return (label,) if isinstance(label, str) else label.names


def _is_untiered(build: Names) -> Condition:
    matches: Condition = False
    for name in UNTIERED:
        matches = matches | (build == name)
    return matches


# ---- tables


@lru_cache(maxsize=65536)
def tier_terms(
    kind: CollectiveKind, topology: str, algorithm: str, npus: float, members: float, step: float, *tiers: Any
) -> tuple[float, float]:
    """Return the share of its bandwidth that *tiers* leave an algorithm, and how many times farther messages go.

    *tiers* are the columns of `Tiers`.
    """
    build, inside, instances, radix, *shares = tiers
    if members <= 1 or build in UNTIERED:
        return 1.0, 1.0
    levels = tiers_at(build, Site(int(npus), int(inside), int(instances), int(radix), *shares))
    group = group_of(npus, members, step)
    farther = 1.0
    if topology_of(topology)[0] == FAT_TREE:
        farther = _count_links(kind, algorithm, group, levels) / float(topologies[FAT_TREE].hops(members, npus, step))
    return tier_share(kind, algorithm, group, levels), farther


@lru_cache(maxsize=65536)
def message_terms(topology: str, algorithm: str, *sizes: Any) -> tuple[float, float]:
    """Return what `tier_terms` does for messages to the next member, which have no *algorithm*: those of a ring."""
    return tier_terms("all_gather", topology, "ring", *sizes)


@lru_cache(maxsize=65536)
def library_terms(topology: str, algorithm: str, *sizes: Any) -> tuple[float, float]:
    """Return the shares of bandwidth that tiers leave a library's rings, and its trees."""
    shares = [tier_terms("all_reduce", topology, name, *sizes)[0] for name in ("ring", DOUBLE_TREE)]
    return shares[0], shares[1]


def tiers_at(build: str, site: Site) -> tuple[FabricTier, ...]:
    """Return the tiers of a build, which may be a plugin; oversubscription is that of all tiers up to one.

    The leaves of a build send 1/2 of what they get into pods, and these 1/3 of that: 1/6 of what NPUs send.
    """
    listed: list[FabricTier] = []
    thinned = 1.0
    for tier in builds[build].tiers(site):
        if tier.npus < 1 or not (isfinite(tier.oversubscription) and tier.oversubscription >= 1):
            raise BackendError(f"build {build!r} gave {tier}; a tier has NPUs below it, and oversubscription from 1 on")
        # Traffic that leaves a pod has passed the leaf's uplinks too: oversubscription multiplies.
        thinned *= tier.oversubscription
        listed.append(FabricTier(tier.npus, thinned))
    return tuple(listed)


class GroupShape(NamedTuple):
    """A shape of groups that together fill a dimension."""

    npus: int
    members: int
    step: int


def group_of(npus: Any, members: Any, step: Any) -> GroupShape:
    """Return a shape in whole numbers: groups that straddle have members on average.

    >>> group_of(8, 2.67, 1.0)
    GroupShape(npus=8, members=3, step=1)
    """
    return GroupShape(int(npus), max(2, round(float(members))), max(1, round(float(step))))


class Phase(NamedTuple):
    """What one phase of an algorithm sends, for each byte that an NPU sends in all phases together."""

    own: float
    """By an NPU."""
    leaving: float
    """Out of the busiest leaf, or into it, over its NPUs."""
    across: float
    """Share of the messages that leave their leaf; of those that are sent at once, 1 if any does."""


def tier_share(kind: CollectiveKind, algorithm: str, group: GroupShape, tiers: tuple[FabricTier, ...]) -> float:
    """Return the share of its bandwidth that an algorithm reaches, of groups in a dimension with *tiers*.

    64 members side by side, 32 below a leaf of 4:1. A ring leaves each leaf once; 32 of 63 messages of a direct
    algorithm leave theirs:

    >>> tiers = (FabricTier(32, 4.0),)
    >>> tier_share("all_gather", "ring", GroupShape(64, 64, 1), tiers)
    1.0
    >>> tier_share("all_to_all", "direct", GroupShape(64, 64, 1), tiers) == 63 / (4 * 32)
    True
    """
    if algorithm == SYNTHESIZED:  # forwarding saves an all-to-all nothing; others take the order that crosses least
        names = ("direct",) if kind == "all_to_all" else TEXTBOOK
        return max(tier_share(kind, name, group, tiers) for name in names)
    oversubscribed = [tier for tier in tiers if tier.oversubscription > 1]
    if not oversubscribed:
        return 1.0
    loads = [
        [
            (phase.own, phase.leaving * tier.oversubscription)
            for phase in crossing_phases(algorithm, kind, group, tier.npus)
        ]
        for tier in oversubscribed
    ]
    seconds = [max(max(pair) for pair in phase) for phase in zip(*loads, strict=True)]
    # Phases follow each other: each takes as long as its own links or its share of the uplinks, whichever is slower.
    longer = float(sum_of(seconds) / sum_of(own for own, _ in loads[0]))
    return 1.0 / max(1.0, longer)


def uplink_loads(
    kind: CollectiveKind, algorithm: str, group: GroupShape, tiers: tuple[FabricTier, ...]
) -> tuple[float, ...]:
    """Return how busy the uplinks of each tier are, over how busy an NPU's own link is.

    >>> uplink_loads("all_to_all", "direct", GroupShape(64, 64, 1), (FabricTier(32, 4.0),)) == (4 * 32 / 63,)
    True
    """
    name = ("direct" if kind == "all_to_all" else "ring") if algorithm == SYNTHESIZED else algorithm
    return tuple(
        tier.oversubscription * float(sum_of(phase.leaving for phase in crossing_phases(name, kind, group, tier.npus)))
        for tier in tiers
    )


def _count_links(kind: CollectiveKind, algorithm: str, group: GroupShape, tiers: tuple[FabricTier, ...]) -> float:
    """Return the links of a message: up to a leaf and down, and two more for each tier that it crosses."""
    name = "ring" if algorithm == SYNTHESIZED else algorithm
    links = 2.0
    for tier in tiers:
        phases = crossing_phases(name, kind, group, tier.npus)
        links += 2 * float(sum_of(phase.across for phase in phases)) / len(phases)
    return links


# ---- counting


@lru_cache(maxsize=65536)
def crossing_phases(algorithm: str, kind: CollectiveKind, group: GroupShape, below: int) -> tuple[Phase, ...]:
    """Return the phases of an algorithm, with what leaves a switch with *below* NPUs side by side.

    4 members, 2 apart, fill 8 NPUs: of the 4 NPUs below a leaf, two send out of it in a ring.

    >>> crossing_phases("ring", "all_gather", GroupShape(8, 4, 2), 4)
    (Phase(own=1.0, leaving=0.5, across=0.5),)
    """
    slowest: list[Phase] = []
    for groups in group_layouts(*group):
        if sends_to_all_at_once(algorithm, kind):
            phases = [_direct_phase(groups, below)]
        else:
            phases = _message_phases(algorithm, kind, groups, below)
        slowest = [Phase(*map(max, first, second)) for first, second in zip(phases, slowest or phases, strict=True)]
    return tuple(slowest)


def _direct_phase(groups: Ints, below: int) -> Phase:
    """Return the one phase of all to all: c of p members in a leaf send c (p - c) of its messages out."""
    members = groups.shape[1]
    if members == 1 or below >= groups.max() + 1:
        return Phase(1.0, 0.0, 0.0)
    # NPUs are numbered along leaves, so that the leaf of an NPU is its number over the NPUs of a leaf.
    leaf = groups // below
    keys = np.arange(len(groups), dtype=np.int64)[:, None] * (leaf.max() + 1) + leaf
    distinct, counts = np.unique(keys, return_counts=True)
    leaving = np.bincount(distinct % (leaf.max() + 1), counts * (members - counts) / (members - 1))
    return Phase(1.0, min(1.0, float(leaving.max()) / below), float((counts < members).any()))


def _message_phases(algorithm: str, kind: CollectiveKind, groups: Ints, below: int) -> list[Phase]:
    leaf, listed = groups // below, []
    for senders, receivers, sizes in message_patterns(algorithm, kind, groups.shape[1])[0]:
        own = float(np.bincount(senders, sizes).max())
        begin, end = leaf[:, senders], leaf[:, receivers]
        across = begin != end
        weights = np.broadcast_to(sizes, across.shape)[across]
        leaving = max(_largest_load(ends[across], weights) for ends in (begin, end)) / below
        listed.append(Phase(own, min(own, leaving), float(across.mean())))
    return listed


def _largest_load(leaves: Ints, sizes: Floats) -> float:
    return float(np.bincount(leaves, sizes).max(initial=0.0))
