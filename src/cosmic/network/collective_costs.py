"""How long collectives take on a multi-dimensional network: a stage in each dimension, in chunks that pipeline.

    t_d = steps * hops * latency  +  S_d / C * traffic / (B_d * e_d)        of one chunk in dimension d
    T   = sum over d of t_d  +  (C - 1) * max over d of t_d                 of C chunks, pipelined over the dimensions

    S_d  bytes that enter dimension d: S / (product of the members in dimensions inside), as each stage leaves every
         NPU its share (BlueConnect); with `baseline` all-reduces, and with all-to-alls, S in every dimension
    B_d  injection bandwidth of one NPU     e_d  share of it that the algorithm can use on the topology

e_d is the topology's share for such a group. Without switches it is less where an algorithm uses fewer neighbours
than there are links, and where its partners are several links apart and share them with others. Where links are
listed, or have faults, the most loaded link decides (`cosmic.network.link_costs`): of named topologies it says how
much longer than without faults. Collectives that are synthesised for the links have several lines, of which the
fastest counts (`cosmic.network.link_costs`). Flat all-to-alls have no stages
(`cosmic.network.collective_costs`).

With `themis` each chunk has an order of its own, and T is that of `cosmic.network.themis_chunks`.

A real library takes longer, by an amount that depends on S_d: `cosmic.network.transport_protocols` adds it, once for
each dimension and not for each chunk.

All-to-alls over several dimensions: flat, where each message goes straight to its receiver, and what spines take.

A hierarchical all-to-all has a stage for each dimension (`cosmic.network.collective_costs`): what an NPU has for p
members of a dimension goes to each of them in one message. Flat, an NPU sends to all P - 1 others at once. With p_d
members in dimension d, each of which stands for I_d NPUs in the dimensions inside it,

    messages that differ in d, and in no dimension farther out:    (p_d - 1) I_d of P - 1

cross d as they are: through a switch an NPU reaches every NPU behind it. Where d joins only NPUs of one place in the
dimensions inside (a ring, a torus, rails without a spine), they cross those too. Dimensions work at the same time: the
slowest counts. Messages are more and smaller: a library starts p_d I_d of them where a stage starts p_d.

In a rail-optimized fabric a leaf switch joins NPUs of one rank in their nodes. Stages stay below it; of the messages of
a flat all-to-all, those for other ranks cross a spine. A leaf that chooses an uplink for each message by a hash (ECMP)
gives some of them more than others: the all-to-all ends when the busiest link does. With a mean of m messages on each
of L links,

    E[max] = Σ_j (1 - F(j)^L)        F  distribution function of Poisson's law of mean m

Sources: Shen et al., SE-MoE, arXiv 2205.10034 (hierarchical all-to-all); Raab and Steger, "Balls into Bins", 1998.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from math import ceil, prod
from typing import Any

import numpy as np

from cosmic.base.numeric import Condition, Numeric, anywhere, choose, floats, larger, log2, power, sum_of, where
from cosmic.base.units import split_name
from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.design.design_batch import Batch, Combinations, Label, Names
from cosmic.design.network_layer import GRAPH, RAILS, UNTIERED, Dimension, Network, Site, Transport, topologies
from cosmic.network.collective_algorithms.synthesized import SYNTHESIZED
from cosmic.network.collective_rounds import number_of, tree_depth, usable_share
from cosmic.network.dimension_wiring import MARK, dimension_label, label_of, topology_of, wiring_at
from cosmic.network.link_costs import LINES, TEXTBOOK, link_terms, sends_to_all_at_once, synthesized_lines
from cosmic.network.mesh_spans import Span
from cosmic.network.switch_tiers import (
    Tiers,
    crossing_phases,
    group_of,
    injected_bandwidth,
    library_terms,
    message_terms,
    tier_terms,
    tiers_at,
)
from cosmic.network.themis_chunks import NOTHING, Lane, levelled_seconds
from cosmic.network.transport_protocols import (
    IDEAL,
    Route,
    StageCost,
    TransportColumns,
    either_cost,
    fastest_cost,
    stage_cost,
)

# ---- All-to-alls over several dimensions: flat, where each message goes straight to its receiver, and what spines take

CHANNELS = 2
"""Connections of NCCL to each peer over a network (NCCL_NCHANNELS_PER_NET_PEER): messages that are hashed apart."""
ANY_TO_ANY_TOPOLOGIES = ("switch", "fat_tree")
"""Topologies whose switches deliver to every NPU behind them; others join only NPUs of the same place in each group."""
RAIL_ONLY = "rail_only"


@lru_cache(maxsize=65536)
def spine_shares(npus: float, members: float, step: float, within: float, *tiers: Any) -> tuple[float, float]:
    """Return the share of its bandwidth that tiers leave an all-to-all, if routed adaptively, and by ECMP.

    An NPU sends to *within* NPUs of each of the other *members*: 1 in a stage. *tiers* are the columns of `Tiers`.
    4 nodes of 8 below 8 leaves of 4 ports down and 4 up: 7 of 8 messages to other nodes cross the spine if flat, 42 on
    each of 64 links, and the busiest has 57.

    >>> rails = ("rail_optimized", 8, 8, 8, 1.0, 1.0)
    >>> [round(each, 3) for each in spine_shares(4, 4, 1, 8, *rails)], spine_shares(4, 4, 1, 1, *rails)
    ([1.0, 0.829], (1.0, 1.0))
    """
    build, inside, instances, radix, *shares = tiers
    if members <= 1 or build in UNTIERED:
        return 1.0, 1.0
    levels = tiers_at(build, Site(int(npus), int(inside), int(instances), int(radix), *shares))
    group, rails = group_of(npus, members, step), build in RAILS
    longest, busiest = 1.0, 1.0
    for index, tier in enumerate(levels):
        # The largest share of an NPU's messages that leaves the switches of this tier.
        leaving = float(crossing_phases("direct", "all_to_all", group, tier.npus)[0].leaving)
        if rails and build != RAIL_ONLY and index == 0:
            leaving = (leaving + within - 1) / within
        uneven = 1.0
        if index == 0 and leaving:
            nics = tier.npus * (1 if rails else inside)
            # Flows hash to uplinks at random (ECMP): the busiest of all carries more than the mean.
            uplinks = ceil(nics / tier.oversubscription)
            leaves = ceil(npus / tier.npus) * (inside if rails else 1)
            messages = CHANNELS * nics * (group.members - 1) * within * leaving
            uneven = busiest_link(messages / uplinks, int(2 * leaves * uplinks))
        longest = max(longest, tier.oversubscription * leaving)
        busiest = max(busiest, tier.oversubscription * leaving * uneven)
    return 1 / longest, 1 / busiest


@lru_cache(maxsize=4096)
def busiest_link(mean: float, links: int) -> float:
    """Return the messages on the busiest of *links* links over their *mean*, if each message takes a random link.

    Of two links with one message each on average, the busiest has E[max] of two variables of Poisson's law:

    >>> round(busiest_link(1.0, 2), 3), round(busiest_link(42.0, 64), 3), busiest_link(42.0, 1)
    (1.524, 1.379, 1.0)
    """
    if links <= 1 or mean <= 0:
        return 1.0
    counts = np.arange(int(mean + 40 * np.sqrt(mean) + 60))
    logs = counts * np.log(mean) - mean - np.concatenate(([0.0], np.cumsum(np.log(counts[1:]))))
    reached = np.minimum(np.cumsum(np.exp(logs)), 1.0)
    return max(1.0, float((1 - reached**links).sum()) / mean)


def entering_flat(members: Sequence[Numeric], straight: Sequence[Any]) -> list[Numeric]:
    """Return the share of a flat all-to-all's payload that enters each dimension, innermost first.

    *straight* says of each whether an NPU reaches every NPU behind it. A dimension sends (p - 1) / p of what enters it.

    >>> entering_flat([8, 4], [True, True]), entering_flat([8, 4], [True, False])
    ([0.25, 1.0], [1.0, 1.0])
    """
    within: list[Numeric] = [1.0]
    for member in members:
        within.append(within[-1] * member)
    shares = []
    for index in range(len(members)):
        entering = within[index + 1]
        for outer in range(index + 1, len(members)):
            entering = entering + (1 - 1.0 * straight[outer]) * (within[outer + 1] - within[outer])
        shares.append(entering / within[-1])
    return shares


@dataclass(frozen=True, slots=True)
class NetworkDimension:
    """One dimension of the network and its algorithm: numbers and names, or columns of them over a batch."""

    topology: Label
    """Its name; of one whose links are looked at one by one, that of `cosmic.network.dimension_wiring`."""
    npus: Numeric
    bandwidth_bytes_per_s: Numeric
    """Injection bandwidth of one NPU, over the oversubscription where the fabric has no tiers."""
    latency_s: Numeric
    algorithm: Label
    transport: Transport | TransportColumns = IDEAL
    tiers: Tiers | None = None
    """How its switches are arranged, if that is known."""

    @classmethod
    def of(cls, batch: Batch, index: int) -> NetworkDimension:
        """Return the dimension at *index* of the networks of a batch."""
        where = f"network.dims.{index}"
        varies = any(path.startswith(f"{where}.transport.") for path in batch.columns)
        base = batch.base.network.dims[index].transport
        return cls(
            dimension_label(batch, index),
            batch[f"{where}.npus"],
            injected_bandwidth(batch, index),
            batch[f"{where}.latency"],
            batch[f"collective.algorithms.{index}"],
            transport_of(lambda key: batch[f"{where}.transport.{key}"], varies, base),
            Tiers.of(batch, index),
        )


def transport_of(field: Callable[[str], Any], varies: bool, base: Transport) -> Transport | TransportColumns:
    """Return the transport of a dimension: *base*, or columns if it *varies* among the designs of a batch."""
    if not varies:
        return IDEAL if base == IDEAL else base
    return TransportColumns(**{slot.name: field(split_name(slot.name)[0]) for slot in fields(Transport)})


@dataclass(frozen=True)
class Subgroup:
    """The members of a group along one network dimension, for every design of a batch."""

    dimension: NetworkDimension
    span: Span

    @cached_property
    def combinations(self) -> Combinations:
        """What topologies and algorithms depend on: their names, NPUs, members and step."""
        dim, span = self.dimension, self.span
        return Combinations(dim.topology, dim.algorithm, dim.npus, span.members, span.step)

    @cached_property
    def _tiered(self) -> Combinations:
        """What tiers depend on besides."""
        dim, span = self.dimension, self.span
        tiers = () if dim.tiers is None else dim.tiers.columns
        return Combinations(dim.topology, dim.algorithm, dim.npus, span.members, span.step, *tiers)

    def _spine(self, within: Numeric) -> Combinations:
        """What an all-to-all among *within* NPUs of every member takes of its tiers."""
        dim, span = self.dimension, self.span
        return Combinations(
            dim.npus, span.members, span.step, within, *([] if dim.tiers is None else dim.tiers.columns)
        )

    def flat(self, within: Numeric) -> StageCost:
        """Return the cost of this dimension's messages of a flat all-to-all, to *within* NPUs of every other member."""
        dim, peers = self.dimension, self.span.members * within
        hops, traffic = self.combinations.look_up(direct_terms)
        if dim.tiers is not None:
            farther = self._tiered.look_up(tier_terms, "all_to_all")[1]
            adaptive, hashed = self._spine(within).look_up(spine_shares)
            hops, traffic = hops * farther, traffic / choose(dim.tiers.routing == "ecmp", hashed, adaptive)
        started = choose(self.auto, 1 + log2(larger(peers, 1.0)), 1.0)
        route = Route(peers, hops * started, traffic, direct=True, auto=self.auto)
        return stage_cost(route, dim.bandwidth_bytes_per_s, dim.latency_s, dim.transport)

    @property
    def straight(self) -> Condition:
        """Whether an NPU reaches every NPU behind the members of this dimension, not those of its own place alone."""
        topology, build = self.dimension.topology, self.dimension.tiers and self.dimension.tiers.build
        switched: Condition = False
        for name in ANY_TO_ANY_TOPOLOGIES:
            switched = switched | (topology == name)
        return switched & (build != RAIL_ONLY)

    def _terms(self, function: Callable[..., tuple[float, float]], kind: CollectiveKind, line: str = "") -> Any:
        """Return links and traffic, more of both where tiers of switches are crossed."""
        hops, traffic = self.combinations.look_up(function, f"{kind}{line}")
        if self.dimension.tiers is None:
            return hops, traffic
        share, farther = self._tiered.look_up(tier_terms, kind)
        if kind == "all_to_all" and anywhere(hashed := self.dimension.tiers.routing == "ecmp"):
            share = choose(hashed, self._spine(1.0).look_up(spine_shares)[1], share)
        return hops * farther, traffic / share

    @cached_property
    def auto(self) -> Condition:
        """Whether the library chooses the algorithm."""
        is_auto: Condition = self.dimension.algorithm == "auto"
        return is_auto

    @cached_property
    def synthesized(self) -> Condition:
        """Whether collectives are synthesised for the links; plainly not where no design of a batch asks for it."""
        name = self.dimension.algorithm
        if isinstance(name, Names) and SYNTHESIZED not in name.names:
            return False
        is_synthesized: Condition = name == SYNTHESIZED
        return is_synthesized

    def collective(self, kind: CollectiveKind, alone: Condition = True) -> StageCost:
        """Return the cost of this dimension's stage of a collective; *alone*: the group lies in this dimension only."""
        if not anywhere(self.synthesized):
            return self._textbook(kind, alone)
        dim, direct = self.dimension, kind == "all_to_all"
        costs = []
        for line in range(LINES):
            hops, traffic = self._terms(synthesized_terms, kind, f" {line}")
            route = Route(self.span.members, hops, traffic, direct=direct)
            costs.append(stage_cost(route, dim.bandwidth_bytes_per_s, dim.latency_s, dim.transport))
        if isinstance(dim.algorithm, str):
            return fastest_cost(costs)
        return either_cost(self.synthesized, fastest_cost(costs), self._textbook(kind, alone))

    def _textbook(self, kind: CollectiveKind, alone: Condition) -> StageCost:
        hops, traffic = self._terms(collective_terms, kind)
        dim, direct = self.dimension, kind == "all_to_all"
        crossing = None
        if dim.tiers is not None and kind == "all_reduce" and anywhere(self.auto):
            crossing = self._tiered.look_up(library_terms)
        route = Route(self.span.members, hops, traffic, direct=direct, auto=self.auto, alone=alone, crossing=crossing)
        return stage_cost(route, dim.bandwidth_bytes_per_s, dim.latency_s, dim.transport, kind == "all_reduce")

    def point_to_point(self) -> StageCost:
        """Return the cost of a message to the next member in this dimension, if all members send at once."""
        hops, shares = self.combinations.look_up(point_to_point_terms)
        dim = self.dimension
        if dim.tiers is not None:
            share, farther = self._tiered.look_up(message_terms)
            hops, shares = hops * farther, shares * share
        route = Route(self.span.members, hops, 1 / shares, copies_own=False, direct=True)
        return stage_cost(route, dim.bandwidth_bytes_per_s, dim.latency_s, dim.transport)


@lru_cache(maxsize=65536)
def collective_terms(
    kind: CollectiveKind, topology: str, algorithm: str, npus: float, members: float, step: float
) -> tuple[float, float]:
    """Return the links that a stage crosses in turn, and its traffic per byte over the usable share of bandwidth.

    >>> collective_terms("all_reduce", "switch", "ring", 8, 8, 1)
    (28.0, 1.75)
    """
    if members <= 1:
        return 0.0, 0.0
    if algorithm == SYNTHESIZED:
        return synthesized_terms(f"{kind} {LINES - 1}", topology, algorithm, npus, members, step)
    traffic = number_of(algorithms[algorithm], "traffic", kind, members)
    steps = number_of(algorithms[algorithm], "steps", kind, members)
    # Peers and distance of an algorithm are those of its gathers. What a library reaches is measured as it is.
    if kind == "all_to_all" and algorithm != "auto" and sends_to_all_at_once(algorithm, kind):
        algorithm = "direct"
    hops, share = _reached_share(kind, topology, algorithm, npus, members, step)
    return steps * hops, traffic / share


@lru_cache(maxsize=65536)
def direct_terms(topology: str, algorithm: str, npus: float, members: float, step: float) -> tuple[float, float]:
    """Return `collective_terms` of an all-to-all that is sent directly; the *algorithm* does not matter."""
    return collective_terms("all_to_all", topology, "direct", npus, members, step)


@lru_cache(maxsize=65536)
def synthesized_terms(
    asked: str, topology: str, algorithm: str, npus: float, members: float, step: float
) -> tuple[float, float]:
    """Return what `collective_terms` does for one line of collectives that are synthesised for the links.

    *asked* is the kind and the number of the line. Other algorithms have one line.

    >>> synthesized_terms("all_reduce 0", "switch", "ring", 8, 8, 1)
    (28.0, 1.75)
    """
    kind: CollectiveKind = asked.partition(" ")[0]  # type: ignore[assignment]  # one of those that were asked for
    if members <= 1 or algorithm != SYNTHESIZED:
        return collective_terms(kind, topology, algorithm, npus, members, step)
    textbook = [collective_terms(kind, topology, name, npus, members, step) for name in TEXTBOOK]
    return synthesized_lines(kind, topology, npus, members, step, tuple(textbook))[int(asked[-1])]


@lru_cache(maxsize=65536)
def point_to_point_terms(
    topology: str, algorithm: str, npus: float, members: float, step: float
) -> tuple[float, float]:
    """Return the links to the next member, and the usable share of bandwidth if all members send at once.

    Messages between two NPUs have no *algorithm*: whatever it is, they go to the next one in a ring.
    """
    return _reached_share("all_gather", topology, "ring", npus, members, step)


def _reached_share(
    kind: CollectiveKind, label: str, algorithm: str, npus: float, members: float, step: float
) -> tuple[float, float]:
    """Return the links between neighbours, and the share of the bandwidth that an algorithm reaches."""
    if MARK not in label:
        return number_of(topologies[label], "hops", members, npus, step), usable_share(
            label, algorithm, npus, members, step
        )
    topology, _ = topology_of(label)
    sizes = (int(npus), max(2, round(members)), max(1, round(step)))  # groups that straddle have members on average
    latency, seconds = link_terms(kind, label, algorithm, *sizes)
    if topology == GRAPH:
        return latency, 1 / seconds
    hops, share = _reached_share(kind, topology, algorithm, npus, members, step)
    usual_latency, usual_seconds = link_terms(kind, topology, algorithm, *sizes)
    # The degraded dimension is priced by its closed form, times how much worse its links are than healthy ones.
    return hops * max(1.0, latency / usual_latency), share / max(1.0, seconds / usual_seconds)


def one_dimension_seconds(
    kind: CollectiveKind, algorithm: str, members: Numeric, size_bytes: Numeric, dim: Dimension
) -> Numeric:
    """Return the seconds of one collective among *members* side by side in one dimension; numbers or arrays.

    >>> dim = Dimension(topology="switch", npus=8, bandwidth_bytes_per_s=100e9, latency_s=0.0)
    >>> float(one_dimension_seconds("all_gather", "auto", 4, 1e9, dim))
    0.0075
    """
    network = [dimension_at((dim,), 0, algorithm)]
    span = Span(floats(members)[()], 1.0)
    return collective_seconds(subgroups(network, [span]), kind, size_bytes, 1, "blueconnect")


def dimension_at(dims: tuple[Dimension, ...], index: int, algorithm: str) -> NetworkDimension:
    """Return the dimension at *index* of a network of *dims*."""
    dim = dims[index]
    transport = IDEAL if dim.transport == IDEAL else dim.transport
    label = label_of(dim.topology, wiring_at(Network(dims=dims), index))
    bandwidth = dim.bandwidth_bytes_per_s / dim.blocking
    return NetworkDimension(label, dim.npus, bandwidth, dim.latency_s, algorithm, transport, Tiers.at(dims, index))


def subgroups(dims: Sequence[NetworkDimension], spans: Sequence[Span]) -> list[Subgroup]:
    """Return a group's members along each network dimension in which it has several, in some design at least."""
    pairs = zip(dims, spans, strict=True)
    return [Subgroup(dim, span) for dim, span in pairs if anywhere(span.members > 1)]


def collective_seconds(
    group: Sequence[Subgroup],
    kind: CollectiveKind,
    size_bytes: Numeric,
    chunks: Numeric,
    multi_dim: Label,
    copies: Numeric = 1,
    all_to_all: Label = "hierarchical",
) -> Numeric:
    """Return the seconds of one collective of *size_bytes* among a group.

    In an all-to-all each token has *copies*, one for each of its experts. Copies for one node cross to it once, and its
    members distribute them; not if it is flat.
    """
    if not group:
        return 0.0
    flat = all_to_all == "flat"
    if kind == "all_to_all" and anywhere(flat):
        staged = 0.0 if flat is True else collective_seconds(group, kind, size_bytes, chunks, multi_dim, copies)
        return choose(flat, flat_seconds(group, size_bytes), staged)
    stages = [subgroup.collective(kind, _is_alone(subgroup, group)) for subgroup in group]
    shrunk: Numeric
    # BlueConnect reduces before it goes outwards, so that less enters outer dimensions; the baseline sends all.
    unreduced = (multi_dim == "baseline") if kind == "all_reduce" else False
    times: list[Numeric] = []
    inside: Numeric = 1.0
    calls: Numeric = 0.0
    for stage, subgroup in zip(stages, group, strict=True):
        if kind == "all_to_all":
            shrunk = 1 / deduplicated_share(copies, subgroup.span.members, inside)
        else:
            shrunk = choose(unreduced, 1.0, inside) / ring_factor(kind, subgroup, inside)
        times.append(stage.per_chunk_s + stage.per_byte_s * size_bytes / (shrunk * chunks))
        calls = calls + stage.per_call_s(size_bytes / shrunk)
        inside = inside * subgroup.span.members
    # A pipeline: the first chunk passes all stages, each further one waits for the slowest stage.
    in_turn = sum_of(times) + (chunks - 1) * _largest_of(times) + calls
    levelling = multi_dim == "themis"
    if kind == "all_to_all" or not anywhere(levelling):
        return in_turn
    levelled = levelled_seconds(themis_lanes(stages, group, times), size_bytes, chunks) + calls
    return where(levelling, levelled, in_turn)


def flat_seconds(group: Sequence[Subgroup], size_bytes: Numeric) -> Numeric:
    """Return the seconds of an all-to-all whose messages go straight to their receivers, in all dimensions at once."""
    members = [subgroup.span.members for subgroup in group]
    slowest: Numeric = 0.0
    within: Numeric = 1.0
    for subgroup, share in zip(group, entering_flat(members, [subgroup.straight for subgroup in group]), strict=True):
        cost, size = subgroup.flat(within), size_bytes * share
        slowest = larger(slowest, cost.per_chunk_s + cost.per_byte_s * size + cost.per_call_s(size))
        within = within * subgroup.span.members
    return slowest


def deduplicated_share(copies: Numeric, members: Numeric, inside: Numeric) -> Numeric:
    """Return the share of an all-to-all that crosses a dimension if the copies for one member cross once.

    k copies of a token go to p (1 - (1 - 1/p)^k) different members on average. Holds only where each member stands for
    several NPUs *inside*, which distribute the copies.

    >>> round(deduplicated_share(8, 4, 8), 3), deduplicated_share(8, 4, 1), deduplicated_share(1, 4, 8)
    (0.45, 1.0, 1.0)
    """
    if not anywhere(copies != 1):
        return 1.0
    different = members * (1 - power(1 - 1 / larger(members, 1.0), copies)) / copies
    return choose(inside > 1, different, 1.0)


def _is_alone(subgroup: Subgroup, group: Sequence[Subgroup]) -> Condition:
    """Return whether one dimension has all members of a group whose library chooses the algorithm."""
    if len(group) == 1 or not anywhere(subgroup.auto):
        return True
    return prod(neighbour.span.members for neighbour in group) == subgroup.span.members


def ring_factor(kind: CollectiveKind, subgroup: Subgroup, inside: Numeric) -> Numeric:
    """Return how much more than its share a dimension carries when a library's rings visit all members of a group.

    (1 - 1 / (m p)) / (1 - 1 / p) for p members, each of which stands for m NPUs in the dimensions inside: rings reduce
    nothing inside before they send it on.
    """
    members, auto = subgroup.span.members, subgroup.auto
    if kind == "all_to_all" or not anywhere(auto) or not anywhere(inside > 1):
        return 1.0
    # A ring among all n members sends (n - 1) / n, where this stage by itself would send (m - 1) / m.
    factor = (1 - 1 / (inside * members)) / larger(1 - 1 / members, 0.5)
    return choose(auto & (members > 1), factor, 1.0)


def themis_lanes(stages: Sequence[StageCost], group: Sequence[Subgroup], first_s: Sequence[Numeric]) -> list[Lane]:
    """Return what each dimension of a group takes where chunks visit them in orders of their own (Themis).

    *first_s* are the seconds of the first chunk, which goes from the inside out.
    """
    listed = []
    for stage, subgroup, first in zip(stages, group, first_s, strict=True):
        members = subgroup.span.members
        rate = choose(members > 1, (1 - 1 / members) / larger(stage.per_byte_s, NOTHING), 0.0)
        listed.append(Lane(members, rate, first, stage.per_chunk_s))
    return listed


def broadcast_seconds(group: Sequence[Subgroup], size_bytes: Numeric) -> Numeric:
    """Return the seconds of a broadcast from one member to all: down a pipelined tree in each dimension."""
    seconds: Numeric = 0.0
    for subgroup in group:
        hop, spans = subgroup.point_to_point(), subgroup.span.members > 1
        # The latency of each level of a binary tree, and the bytes once, as the levels pipeline.
        seconds = seconds + tree_depth(subgroup.span.members) * hop.per_chunk_s + size_bytes * hop.per_byte_s * spans
        seconds = seconds + hop.per_call_s(size_bytes) * spans
    return seconds


def barrier_seconds(group: Sequence[Subgroup]) -> Numeric:
    """Return the seconds of a barrier: an all-reduce of no bytes."""
    return collective_seconds(group, "all_reduce", 0.0, 1, "blueconnect")


def send_seconds(group: Sequence[Subgroup], size_bytes: Numeric) -> Numeric:
    """Return the seconds of a message of *size_bytes* to the next member, over the group's outermost dimension."""
    seconds: Numeric = 0.0
    for subgroup in group:
        hop = subgroup.point_to_point()
        hop_s = hop.per_chunk_s + size_bytes * hop.per_byte_s + hop.per_call_s(size_bytes)
        seconds = choose(subgroup.span.members > 1, hop_s, seconds)
    return seconds


def _largest_of(values: Sequence[Numeric]) -> Numeric:
    largest: Numeric = 0.0
    for value in values:
        largest = larger(largest, value)
    return largest
