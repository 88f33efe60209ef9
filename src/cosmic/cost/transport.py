"""What a communication library makes of a dimension's links: the quickest of its protocols, for every size.

Each protocol is a straight line over the bytes S that enter the dimension, and the least of them is charged:

    large      overhead + bulk + hops * bulk_latency  +  S * w / (B * efficiency)
    small      overhead                               +  S * w / (B * small_efficiency)
    in switch  overhead + reduction - hops * latency  +  S * (1 + 1/p) * c / (B * reduction_efficiency)
    tree       as large and small, with hops' = hops * ceil(log2 p) / (p - 1)  and  w' = w * p / (p - 1)

    w = (traffic + copy_share / p) * c    c = (p / 2) ** contention    p  members    B  what one NPU injects
    hops  links crossed in turn: the algorithm's steps times the links between neighbours

What goes straight to others, in all-to-alls and single messages, is announced once and not passed on:

    large      overhead + bulk / 2                    +  S * w / (B * efficiency * direct_share)
    small      overhead                               +  S * w / (B * small_efficiency * direct_small_share)

all besides the latency, hops * latency, that the algorithm takes anyway: a reduction in the switch is spared it, and a
tree has less of it. Fields are those of `cosmic.design.network.Transport`. Trees, and reductions in the switch, are for
all-reduces of the algorithm `auto`; switches add only for groups that lie within one dimension, as libraries go round
rings or trees over several. Copying one's own part is work of the same kernel that sends the others'.

The least of straight lines is concave in S: sizes of a given mean take no longer than if all were of that mean.

Checked against NCCL on NVLink 2 to 5 and PCIe; the parameters of each link are fitted by `calibration/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from cosmic.catalog.fitted import fitted
from cosmic.cost.collectives import depth
from cosmic.cost.collectives.auto import reduction_traffic
from cosmic.design.network import Transport
from cosmic.numeric import Condition, Numeric, anywhere, choose, larger, smaller
from cosmic.units import split_name

IDEAL = Transport()
NEVER = 1e-12
"""Stands for a share of 0: a protocol that is never the quickest."""

Line = tuple[Numeric, Numeric]
"""A protocol's seconds for each call and for each byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportConstants:
    """What libraries have in common on all links."""

    announced: float
    """Time to announce a large message between two NPUs, relative to that in a ring."""
    host_members: int
    """Members up to which a group is taken to share a host: libraries build trees only across hosts."""


CONSTANTS = fitted("transport", TransportConstants)


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
class Phase:
    """What one dimension takes for its part of a collective."""

    again_s: Numeric
    """Seconds that each chunk takes whatever its size."""
    per_byte_s: Numeric
    """Seconds for each byte that enters the dimension."""
    lines: tuple[Line, ...] = ()
    """Of each protocol: seconds that a call takes besides, and for each byte besides."""

    def besides_s(self, size_bytes: Numeric) -> Numeric:
        """Return the seconds that a call takes besides what its chunks do, in the protocol that is quickest."""
        if not self.lines:
            return 0.0
        least: Numeric = np.inf
        for once, per_byte in self.lines:
            least = smaller(least, once + per_byte * size_bytes)
        return least


@dataclass(frozen=True, slots=True)
class Way:
    """How data goes through a dimension: the algorithm's part of a phase."""

    members: Numeric
    hops: Numeric
    """Links that are crossed one after the other."""
    traffic: Numeric
    """Bytes sent per byte of payload, over the share of the bandwidth that the algorithm can use."""
    copies: bool = True
    """Whether NPUs copy their own part, too."""
    direct: bool = False
    """Whether it goes straight to those who need it."""
    chosen: Condition = False
    """Whether a library chooses among algorithms, and pipelines: then chunks do not pay for latency again."""
    alone: Condition = True
    """Whether the group lies in this dimension only: a switch can add up no more than it is sent."""


def phase(
    way: Way,
    bandwidth_bytes_per_s: Numeric,
    latency_s: Numeric,
    how: Transport | TransportColumns,
    reduces: bool = False,
) -> Phase:
    """Return what a dimension takes for data that goes *way*, driven as *how* (a `Transport`, or columns) says.

    With *reduces*, the data may be reduced in the switch or over a tree instead, where a library chooses.
    """
    latency = way.hops * latency_s
    if how is IDEAL and not anywhere(way.chosen):
        return Phase(latency, way.traffic / bandwidth_bytes_per_s)
    rate, several = bandwidth_bytes_per_s, way.members > 1
    crowd: Numeric = 1.0
    if anywhere(how.contention):
        crowd = larger(way.members / 2, 1.0) ** how.contention
    own = several * how.copy_share / way.members if way.copies else 0.0
    wire = (way.traffic + own) * crowd / rate
    full, small = wire / how.efficiency, wire / larger(how.small_efficiency, NEVER)
    bulk = several * how.bulk_s + way.hops * how.bulk_latency_s
    if way.direct:
        full, small = full / how.direct_share, small / how.direct_small_share
        bulk = several * how.bulk_s * CONSTANTS.announced
    pipelined = choose(way.chosen, latency, 0.0)
    overhead = several * how.overhead_s + pipelined
    lines: list[Line] = [(overhead + bulk, 0.0)]
    if anywhere(how.small_efficiency):
        lines.append((overhead, small - full))
    added = way.chosen & way.alone
    if reduces and anywhere(added) and anywhere(how.reduction_efficiency):
        per_byte = reduction_traffic(way.members) * crowd / rate / larger(how.reduction_efficiency, NEVER)
        once = overhead - pipelined + how.reduction_s
        lines.append((choose(added, once, np.inf), per_byte - full))
    if reduces and anywhere(way.chosen & (way.members > CONSTANTS.host_members)):
        lines += _tree(way, lines[:2], latency, how.bulk_latency_s, (full, small))
    return Phase(latency - pipelined, full, tuple(lines))


def _tree(
    way: Way, ring: list[Line], latency: Numeric, bulk_latency_s: Numeric, rates: tuple[Numeric, Numeric]
) -> Iterator[Line]:
    """Yield the lines of a tree, from those of the *ring* and their seconds per byte: fewer hops, more sent."""
    others = larger(way.members - 1, 1.0)
    fewer = 1 - depth(way.members) / others
    applies = way.chosen & (way.members > CONSTANTS.host_members)
    spared = fewer * latency, fewer * way.hops * bulk_latency_s
    for place, (once, per_byte) in enumerate(ring):
        saved = spared[0] + (spared[1] if place == 0 else 0.0)
        yield choose(applies, once - saved, np.inf), per_byte + rates[place] / others


def transport_of(field: Callable[[str], Any], varies: bool, base: Transport) -> Transport | TransportColumns:
    """Return how a library drives a dimension: *base*, or the like with columns where designs *vary* in it."""
    if not varies:
        return IDEAL if base == IDEAL else base
    return TransportColumns(**{each.name: field(split_name(each.name)[0]) for each in fields(Transport)})
