"""All-to-alls over several dimensions: flat, where each message goes straight to its receiver, and what spines take.

A hierarchical all-to-all has a stage for each dimension (`cosmic.cost.fabric`): what an NPU has for p members of a
dimension goes to each of them in one message. Flat, an NPU sends to all P - 1 others at once. With p_d members in
dimension d, each of which stands for I_d NPUs in the dimensions inside it,

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

from collections.abc import Sequence
from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np

from cosmic.cost.tiers import crossing, group_of, tiers_at
from cosmic.design.fabric import RAILS, UNTIERED, Site
from cosmic.numeric import Numeric

CHANNELS = 2
"""Connections of NCCL to each peer over a network (NCCL_NCHANNELS_PER_NET_PEER): messages that are hashed apart."""
SWITCHED = ("switch", "fat_tree")
"""Topologies through which an NPU reaches every NPU behind it."""
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
    found = tiers_at(build, Site(int(npus), int(inside), int(instances), int(radix), *shares))
    group, rails = group_of(npus, members, step), build in RAILS
    longest, busiest = 1.0, 1.0
    for place, tier in enumerate(found):
        leaving = float(crossing("direct", group, tier.npus)[0].leaving)
        if rails and build != RAIL_ONLY and place == 0:
            leaving = (leaving + within - 1) / within
        uneven = 1.0
        if place == 0 and leaving:
            nics = tier.npus * (1 if rails else inside)
            uplinks = ceil(nics / tier.oversubscription)
            leaves = ceil(npus / tier.npus) * (inside if rails else 1)
            messages = CHANNELS * nics * (group.members - 1) * within * leaving
            uneven = busiest_link(messages / uplinks, int(2 * leaves * uplinks))
        longest = max(longest, tier.oversubscription * leaving)
        busiest = max(busiest, tier.oversubscription * leaving * uneven)
    return 1 / longest, 1 / busiest


@lru_cache(maxsize=4096)
def busiest_link(mean: float, links: int) -> float:
    """Return the messages on the busiest of so many *links*, over their *mean*, if each takes one of them by chance.

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
    for each in members:
        within.append(within[-1] * each)
    found = []
    for place in range(len(members)):
        here = within[place + 1]
        for outer in range(place + 1, len(members)):
            here = here + (1 - 1.0 * straight[outer]) * (within[outer + 1] - within[outer])
        found.append(here / within[-1])
    return found
