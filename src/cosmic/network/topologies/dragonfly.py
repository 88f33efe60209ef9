"""A dragonfly: routers fully connected within groups, and groups fully connected with each other."""

from __future__ import annotations

from itertools import combinations
from typing import cast

import numpy as np

from cosmic.base.numeric import Numeric, larger
from cosmic.design.network_layer import Edges, Parts, topologies
from cosmic.network.topologies.switch import Switch

_CAPACITY = np.array([4 * h**4 + 2 * h**2 for h in range(2, 183)])
"""NPUs of a full dragonfly with h = 2, 3, … NPUs per router, up to more than 2**32."""


@topologies.register("dragonfly")
class Dragonfly:
    """The smallest balanced dragonfly with room for the NPUs, filled router by router and group by group.

    With h NPUs a router, 2 h routers a group, and h links from each router to other groups, 2 h² + 1 groups join
    4 h⁴ + 2 h² NPUs, with one link between any two groups (Kim, Dally, Scott & Abts, ISCA 2008). All links are
    equally fast. h is at least 2; full sizes are 72, 342, 1056, 2550 NPUs and so on.
    """

    algorithm = "halving_doubling"
    switched = True

    @staticmethod
    def per_router(npus: Numeric) -> Numeric:
        """Return h, the NPUs of one router.

        >>> [int(Dragonfly.per_router(npus)) for npus in (2, 72, 73, 1056)]
        [2, 2, 3, 4]
        """
        return cast(Numeric, 2 + np.searchsorted(_CAPACITY, npus))

    @staticmethod
    def links(npus: Numeric) -> Numeric:
        """Return 1, to the router.

        >>> int(Dragonfly.links(72))
        1
        """
        return Switch.links(npus)

    @staticmethod
    def diameter(npus: Numeric) -> Numeric:
        """Return 2 on one router, 3 in one group, 5 in all: router, local, global, local, and down again.

        >>> [int(Dragonfly.diameter(npus)) for npus in (2, 8, 72)]
        [2, 3, 5]
        """
        return _links_apart(npus - 1, Dragonfly.per_router(npus))

    @staticmethod
    def mean_hops(npus: Numeric) -> Numeric:
        """Return the mean of 2, 3 and 5 - 1 / h links, to the others on the router, in the group, and elsewhere.

        Between groups, the router itself has the global link in one of 2 h cases, on either side.
        Assumes shortest paths, and that the last group is as full as the others.

        >>> float(Dragonfly.mean_hops(2)), round(float(Dragonfly.mean_hops(72)), 3)
        (2.0, 4.338)
        """
        h = Dragonfly.per_router(npus)
        router, group = np.minimum(h, npus), np.minimum(2 * h**2, npus)
        total: Numeric = 2 * (router - 1) + 3 * (group - router) + (5 - 1 / h) * (npus - group)
        return total / larger(1, npus - 1)

    @staticmethod
    def bisection(npus: Numeric) -> Numeric:
        """Return the links between two halves of the routers of one group, or between two halves of the groups.

            floor(r / 2) ceil(r / 2)    or    floor(g / 2) ceil(g / 2) floor(2 h² / (g - 1))

        r  routers        g  groups, each of whose 2 h² global links go to the others evenly

        and no more than the links of half the NPUs.

        >>> [int(Dragonfly.bisection(npus)) for npus in (2, 8, 72)]
        [1, 4, 20]
        """
        h = Dragonfly.per_router(npus)
        routers, groups = -(-npus // h), -(-npus // (2 * h**2))
        local = np.where(routers == 1, npus // 2, (routers // 2) * (routers - routers // 2))
        between = (groups // 2) * (groups - groups // 2) * (2 * h**2 // np.maximum(1, groups - 1))
        return np.minimum(npus // 2, np.where(groups == 1, local, between))[()]

    @staticmethod
    def share(members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return 1 where neighbours share a router (step < h), else 1/2.

        Contiguous groups keep most of their data within routers and have spare links for the rest. If members are
        spread out, all data crosses between routers, where a balanced dragonfly carries any pattern at half its
        bandwidth by way of a random router (Valiant's routing).

        >>> float(Dragonfly.share(72, 72, 1)), float(Dragonfly.share(9, 72, 8))
        (1.0, 0.5)
        """
        return np.where((members == 1) | (step < Dragonfly.per_router(npus)), 1.0, 0.5)[()]

    @staticmethod
    def hops(members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return 2, 3 or 5, as NPUs a step apart are on one router, in one group, or neither.

        >>> [int(Dragonfly.hops(2, 72, step)) for step in (1, 2, 8)]
        [2, 3, 5]
        """
        return _links_apart(step, Dragonfly.per_router(npus))

    @staticmethod
    def parts(npus: Numeric) -> Parts:
        """Return the links, ports and NICs of p NPUs on a switch, and those between routers.

        Each router has a port to each other router of its group and, if there are several groups, h ports to other
        groups; a link leaves each of these ports.

        >>> parts = Dragonfly.parts(72)
        >>> int(parts.links), int(parts.switch_ports), parts.nics
        (324, 252, 72)
        """
        h = Dragonfly.per_router(npus)
        routers = -(-npus // h)
        ports = routers * (np.minimum(routers, 2 * h) - 1 + np.where(npus > 2 * h**2, h, 0))
        return Parts(links=2 * npus + ports, switch_ports=npus + ports, nics=npus)

    @staticmethod
    def edges(npus: int) -> Edges:
        """Return links between NPUs and routers, within groups, and between groups in turn over their routers.

        >>> len(list(Dragonfly.edges(72)))
        324
        """
        h = int(Dragonfly.per_router(npus))
        routers = -(-npus // h)
        groups = [range(first, min(first + 2 * h, routers)) for first in range(0, routers, 2 * h)]
        for npu in range(npus):
            yield npu, npus + npu // h, 1.0
            yield npus + npu // h, npu, 1.0
        for group in groups:
            yield from ((npus + a, npus + b, 1.0) for a in group for b in group if a != b)
        per_pair = 2 * h**2 // max(1, len(groups) - 1)
        for a, b in combinations(range(len(groups)), 2):
            for index in range(per_pair):
                source = npus + groups[a][((b - 1) * per_pair + index) % len(groups[a])]
                target = npus + groups[b][(a * per_pair + index) % len(groups[b])]
                yield source, target, 1.0
                yield target, source, 1.0


def _links_apart(distance: Numeric, h: Numeric) -> Numeric:
    """Return the links between NPUs whose numbers are *distance* apart, with *h* NPUs a router."""
    return 2 + np.where(distance >= h, 1, 0) + np.where(distance >= 2 * h**2, 2, 0)
