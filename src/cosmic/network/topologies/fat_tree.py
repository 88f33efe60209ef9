"""A fat tree: levels of switches, with as much bandwidth up as down at each."""

from __future__ import annotations

import numpy as np

from cosmic.base.numeric import Numeric, smaller
from cosmic.design.network_layer import Edges, Parts, topologies
from cosmic.network.topologies.switch import Switch

RADIX = 64
"""Ports of a switch, half of them down and half up: the usual size of 400G switches."""
LEVELS = 7
"""Enough for more than 2**32 NPUs."""


@topologies.register("fat_tree")
class FatTree:
    """Like one large switch made of switches of 64 ports: full bandwidth between any NPUs, over more hops.

    The folded Clos network of Al-Fares, Loukissas & Vahdat, SIGCOMM 2008: L levels of k ports join 2 (k / 2)^L NPUs.
    Assumes that traffic is spread evenly over the uplinks; `Dimension.oversubscription` states where there are fewer.
    """

    algorithm = "halving_doubling"
    switched = True

    @staticmethod
    def levels(npus: Numeric) -> Numeric:
        """Return the levels of switches that *npus* NPUs need.

        >>> [int(FatTree.levels(npus)) for npus in (2, 64, 65, 2048, 2049)]
        [1, 1, 2, 2, 3]
        """
        above: Numeric = sum(np.greater(npus, 2 * (RADIX // 2) ** level).astype(np.int64) for level in range(1, LEVELS))
        return 1 + above

    @staticmethod
    def links(npus: Numeric) -> Numeric:
        """Return 1.

        >>> int(FatTree.links(1024))
        1
        """
        return Switch.links(npus)

    @staticmethod
    def diameter(npus: Numeric) -> Numeric:
        """Return 2 L: up to the top and down again.

        >>> int(FatTree.diameter(64)), int(FatTree.diameter(1024))
        (2, 4)
        """
        return 2 * FatTree.levels(npus)

    @staticmethod
    def mean_hops(npus: Numeric) -> Numeric:
        """Return 2 * sum of (p - (k / 2)^l) / (p - 1) over the levels l = 0 … L - 1.

        That is two links, up and down, for each level at which two NPUs share no switch: (k / 2)^l of p NPUs are below
        one switch of level l. Assumes that switches are filled one after another.

        >>> float(FatTree.mean_hops(64)), round(float(FatTree.mean_hops(1024)), 3)
        (2.0, 3.939)
        """
        levels = FatTree.levels(npus)
        apart = sum(np.where(level < levels, npus - (RADIX // 2) ** level, 0) for level in range(LEVELS))
        return 2 * apart / np.maximum(1, npus - 1)

    @staticmethod
    def bisection(npus: Numeric) -> Numeric:
        """Return floor(p / 2), as for one switch.

        >>> FatTree.bisection(1024)
        512
        """
        return Switch.bisection(npus)

    @staticmethod
    def share(members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return 1: every level has as much bandwidth as the one below.

        >>> float(FatTree.share(32, 1024, 32))
        1.0
        """
        return Switch.share(members, npus, step)

    @staticmethod
    def hops(members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return 2 l for the lowest level l at which NPUs a step apart share a switch.

        >>> [int(FatTree.hops(2, 4096, step)) for step in (1, 32, 1024)]
        [2, 4, 6]
        """
        above: Numeric = sum(
            np.greater_equal(step, (RADIX // 2) ** level).astype(np.int64) for level in range(1, LEVELS)
        )
        return 2 * smaller(1 + above, FatTree.levels(npus))

    @staticmethod
    def parts(npus: Numeric) -> Parts:
        """Return 2 L p links, (2 L - 1) p switch ports and p NICs: each level carries what p NPUs can send.

        All switches but those at the top have as many ports up as down. Only ports in use count.

        >>> parts = FatTree.parts(1024)
        >>> int(parts.links), int(parts.switch_ports), parts.nics
        (4096, 3072, 1024)
        """
        levels = FatTree.levels(npus)
        return Parts(links=2 * levels * npus, switch_ports=(2 * levels - 1) * npus, nics=npus)

    @staticmethod
    def edges(npus: int) -> Edges:
        """Return the links of a tree in which each switch has one uplink, as fast as all its downlinks together.

        >>> len(list(FatTree.edges(64))), len(list(FatTree.edges(65)))
        (128, 136)
        """
        below, first = [(npu, 1.0) for npu in range(npus)], npus
        for level in range(1, int(FatTree.levels(npus)) + 1):
            top = level == int(FatTree.levels(npus))
            size = len(below) if top else RADIX // 2
            above = [below[start : start + size] for start in range(0, len(below), size)]
            for index, children in enumerate(above):
                for child, share in children:
                    yield child, first + index, share
                    yield first + index, child, share
            below = [(first + number, sum(share for _, share in children)) for number, children in enumerate(above)]
            first += len(above)
