"""A switch: every NPU has one link to a switch that connects them all."""

from __future__ import annotations

import numpy as np

from cosmic.base.numeric import Numeric
from cosmic.design.network_layer import Edges, Parts, topologies


@topologies.register("switch")
class Switch:
    """One link up from each NPU; the switch has full bandwidth (but see `Dimension.oversubscription`)."""

    algorithm = "halving_doubling"
    switched = True

    @staticmethod
    def links(npus: Numeric) -> Numeric:
        """Return 1.

        >>> int(Switch.links(8))
        1
        """
        return np.ones_like(npus)[()]

    @staticmethod
    def diameter(npus: Numeric) -> Numeric:
        """Return 2: up to the switch and down again.

        >>> int(Switch.diameter(8))
        2
        """
        return np.full_like(npus, 2)[()]

    @staticmethod
    def mean_hops(npus: Numeric) -> Numeric:
        """Return 2: all NPUs are equally far apart.

        >>> float(Switch.mean_hops(8))
        2.0
        """
        return 2.0 * Switch.links(npus)

    @staticmethod
    def bisection(npus: Numeric) -> Numeric:
        """Return floor(p / 2): the links of the smaller half.

        >>> Switch.bisection(8)
        4
        """
        return npus // 2

    @staticmethod
    def share(members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return 1: each NPU has a link of its own.

        >>> float(Switch.share(4, 8, 2))
        1.0
        """
        return np.ones(np.broadcast_shapes(np.shape(members), np.shape(npus), np.shape(step)))[()]

    @staticmethod
    def hops(members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return 2: up and down.

        >>> int(Switch.hops(4, 8, 2))
        2
        """
        return np.full_like(step, 2)[()]

    @staticmethod
    def parts(npus: Numeric) -> Parts:
        """Return 2 p links (up and down), and a port and a NIC for each of the p NPUs.

        >>> Switch.parts(8)
        Parts(links=16, switch_ports=8, nics=8)
        """
        return Parts(links=2 * npus, switch_ports=npus, nics=npus)

    @staticmethod
    def edges(npus: int) -> Edges:
        """Return a link up and one down for every NPU; the switch is the node after the last of them.

        >>> list(Switch.edges(2))
        [(0, 2, 1.0), (2, 0, 1.0), (1, 2, 1.0), (2, 1, 1.0)]
        """
        for npu in range(npus):
            yield npu, npus, 1.0
            yield npus, npu, 1.0
