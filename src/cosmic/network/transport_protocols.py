"""What a communication library makes of a dimension's links: its fastest protocol, for every message size.

The time of each protocol is a straight line over the bytes S that enter the dimension; the fastest counts:

    large      overhead + bulk + hops * bulk_latency  +  S * w / (B * efficiency)
    small      overhead                               +  S * w / (B * small_efficiency)
    in switch  overhead + reduction - hops * latency  +  S * (1 + 1/p) * c / (B * reduction_efficiency)
    tree       as large and small, with hops' = hops * ceil(log2 p) / (p - 1)  and  w' = w * p / (p - 1)

    w = (traffic + copy_share / p) * c    c = (p / 2) ** contention    p  members    B  injection bandwidth of one NPU
    hops  links crossed in turn: the algorithm's steps times the links between neighbours

All-to-alls and point-to-point messages go straight to their receivers; they are announced once and not passed on:

    large      overhead + bulk / 2                    +  S * w / (B * efficiency * direct_share)
    small      overhead                               +  S * w / (B * small_efficiency * direct_small_share)

These times come on top of the algorithm's latency, hops * latency. A reduction in the switch does not take that
latency, and a tree takes less of it. Fields are those of `cosmic.design.network_layer.Transport`. Trees, and reductions
in
the switch, are for all-reduces of the algorithm `auto`. Switches reduce only for groups within one dimension, as
libraries use rings or trees over several. The kernel that sends to the others also copies an NPU's own part.

The least of straight lines is concave in S: sizes of a given mean take no longer than if all were of that mean.

Checked against NCCL on NVLink 2 to 5 and PCIe; `calibration/fit_collectives.py` fits the parameters of each link.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cosmic.base.numeric import Condition, Numeric, anywhere, choose, larger, power, smaller
from cosmic.design.catalog_entries import load_constants
from cosmic.design.network_layer import Transport
from cosmic.network.collective_rounds import tree_depth

IDEAL = Transport()
NEVER = 1e-12
"""Stands for an efficiency of 0: a protocol that is never the fastest."""

Protocol = tuple[Numeric, Numeric]
"""Seconds that a protocol takes for each call and for each byte, beside those that all protocols take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportConstants:
    """What libraries have in common on all links."""

    announced: float
    """Time to announce a large message between two NPUs, relative to that in a ring."""
    host_members: int
    """Members up to which a group is taken to share a host: libraries build trees only across hosts."""


CONSTANTS = load_constants("transport", TransportConstants)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportColumns:
    """A `Transport` whose fields are arrays where the designs of a batch differ."""

    efficiency: Numeric
    overhead_s: Numeric
    bulk_s: Numeric
    bulk_latency_s: Numeric
    small_efficiency: Numeric
    reduction_s: Numeric
    reduction_efficiency: Numeric
    direct_share: Numeric
    direct_small_share: Numeric
    copy_share: Numeric
    contention: Numeric


@dataclass(frozen=True, slots=True)
class StageCost:
    """What one dimension takes for its stage of a collective, or for a message."""

    per_chunk_s: Numeric
    """Seconds that each chunk takes whatever its size."""
    per_byte_s: Numeric
    """Seconds for each byte that enters the dimension."""
    protocols: tuple[Protocol, ...] = ()

    def per_call_s(self, size_bytes: Numeric) -> Numeric:
        """Return the seconds that a call takes beside those of its chunks, in the fastest protocol."""
        if not self.protocols:
            return 0.0
        least: Numeric = np.inf
        for once, per_byte in self.protocols:
            least = smaller(least, once + per_byte * size_bytes)
        return least


@dataclass(frozen=True, slots=True)
class Route:
    """How an algorithm sends data through a dimension."""

    members: Numeric
    hops: Numeric
    """Links crossed in turn."""
    traffic: Numeric
    """Bytes sent per byte of payload, over the share of the bandwidth that the algorithm can use."""
    copies_own: bool = True
    """Whether NPUs also copy their own part."""
    direct: bool = False
    """Whether data goes straight to its receiver."""
    auto: Condition = False
    """Whether the library chooses the algorithm. It then pipelines: a collective takes its latency once, not once a
    chunk."""
    alone: Condition = True
    """Whether the group lies in this dimension only, so that its switches can reduce."""
    crossing: tuple[Numeric, Numeric] | None = None
    """Shares of the bandwidth that tiers of switches leave rings, or reductions in switches, and trees; None without
    tiers. *traffic* is already over that of rings."""


def stage_cost(
    route: Route,
    bandwidth_bytes_per_s: Numeric,
    latency_s: Numeric,
    transport: Transport | TransportColumns,
    reduces: bool = False,
) -> StageCost:
    """Return what a dimension takes for data on a *route*.

    With *reduces*, a library that chooses may also reduce the data in the switch or over a tree.
    """
    latency = route.hops * latency_s
    if transport is IDEAL and not anywhere(route.auto):
        return StageCost(latency, route.traffic / bandwidth_bytes_per_s)
    rate, several = bandwidth_bytes_per_s, route.members > 1
    contention: Numeric = 1.0
    if anywhere(transport.contention):
        # 1 for two members; the bandwidth of each falls as more of them share the links.
        contention = power(larger(route.members / 2, 1.0), transport.contention)
    # An NPU copies its own part, a p-th of the data: a share of what sending it would take.
    own = several * transport.copy_share / route.members if route.copies_own else 0.0
    wire = (route.traffic + own) * contention / rate
    # Large messages synchronise first (NCCL's Simple), small ones carry flags beside the data (LL), at a lower rate.
    large, small = wire / transport.efficiency, wire / larger(transport.small_efficiency, NEVER)
    # The bulk protocol synchronises once a call and once a hop.
    bulk = several * transport.bulk_s + route.hops * transport.bulk_latency_s
    if route.direct:
        large, small = large / transport.direct_share, small / transport.direct_small_share
        bulk = several * transport.bulk_s * CONSTANTS.announced
    called = several * transport.overhead_s
    overhead = called + choose(route.auto, latency, 0.0)
    least = smaller(large, small)  # what chunks pipeline at: no protocol beside it gives time back
    protocols: list[Protocol] = [(overhead + bulk, large - least)]
    if anywhere(transport.small_efficiency):
        protocols.append((overhead, small - least))
    in_switch = route.auto & route.alone
    if reduces and anywhere(in_switch) and anywhere(transport.reduction_efficiency):
        per_byte = reduction_traffic(route.members) * contention / rate / larger(transport.reduction_efficiency, NEVER)
        if route.crossing is not None:
            per_byte = per_byte / route.crossing[0]
        once = called + transport.reduction_s
        protocols.append((choose(in_switch, once, np.inf), per_byte - least))
    if reduces and anywhere(route.auto & (route.members > CONSTANTS.host_members)):
        protocols += _tree_protocols(route, protocols[:2], latency, transport.bulk_latency_s, (large, small))
    return StageCost(choose(route.auto, 0.0, latency), least, tuple(protocols))


def reduction_traffic(p: Numeric) -> Numeric:
    """Return the bytes that an NPU sends, per byte of payload, in an all-reduce that the switch reduces: 1 + 1 / p.

    Each NPU reads the sum of its own 1 / p of the data from the switch, for which all members send theirs: S in total.
    Then it writes that part, S / p, which the switch copies to all (NVLink SHARP).

    >>> float(reduction_traffic(8))
    1.125
    """
    return 1 + 1 / np.maximum(p, 1)


def fastest_cost(costs: Sequence[StageCost]) -> StageCost:
    """Return the cost of the fastest of several ways, for every size; a collective takes its latency once.

    >>> cost = fastest_cost([StageCost(1.0, 4.0), StageCost(5.0, 2.0)])
    >>> [float(cost.per_byte_s * size + cost.per_call_s(size)) for size in (1.0, 2.0, 3.0)]
    [5.0, 9.0, 11.0]
    """
    lines = [
        (cost.per_chunk_s + once, cost.per_byte_s + per_byte)
        for cost in costs
        for once, per_byte in cost.protocols or ((0.0, 0.0),)
    ]
    least = lines[0][1]
    for _, per_byte in lines[1:]:
        least = smaller(least, per_byte)
    return StageCost(0.0, least, tuple((once, per_byte - least) for once, per_byte in lines))


def either_cost(chosen: Condition, first: StageCost, second: StageCost) -> StageCost:
    """Return the *first* cost in designs that are *chosen*, the *second* in others."""
    second_protocols = second.protocols or ((0.0, 0.0),)
    protocols = [(choose(chosen, once, np.inf), choose(chosen, per_byte, 0.0)) for once, per_byte in first.protocols]
    protocols += [(choose(chosen, np.inf, once), choose(chosen, 0.0, per_byte)) for once, per_byte in second_protocols]
    return StageCost(
        choose(chosen, first.per_chunk_s, second.per_chunk_s),
        choose(chosen, first.per_byte_s, second.per_byte_s),
        tuple(protocols),
    )


def _tree_protocols(
    route: Route, ring: list[Protocol], latency: Numeric, bulk_latency_s: Numeric, rates: tuple[Numeric, Numeric]
) -> Iterator[Protocol]:
    """Yield the protocols of a tree from those of the *ring* and their seconds per byte: fewer hops, more traffic."""
    # A ring has p - 1 hops a pass, a tree ceil(log2 p); it sends 2 S instead of 2 S (p - 1) / p, 1 / (p - 1) more.
    peers = larger(route.members - 1, 1.0)
    fewer = 1 - tree_depth(route.members) / peers
    applies = route.auto & (route.members > CONSTANTS.host_members)
    saved_s, saved_bulk_s = fewer * latency, fewer * route.hops * bulk_latency_s
    for index, (once, per_byte) in enumerate(ring):
        saved = saved_s + (saved_bulk_s if index == 0 else 0.0)
        more = rates[index] / peers
        if route.crossing is not None:
            rings, trees = route.crossing
            more = rates[index] * ((1 + 1 / peers) * rings / trees - 1)
        yield choose(applies, once - saved, np.inf), per_byte + more
