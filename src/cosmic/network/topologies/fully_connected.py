"""Fully connected: every NPU has a link to every other."""

from __future__ import annotations

import numpy as np

from cosmic.base.numeric import Numeric
from cosmic.design.network_layer import Edges, Parts, topologies


@topologies.register("fully_connected")
class FullyConnected:
    """A link from each NPU to each other NPU."""

    algorithm = "direct"
    switched = False

    @staticmethod
    def links(npus: Numeric) -> Numeric:
        """Return p - 1 for p NPUs.

        >>> FullyConnected.links(8)
        7
        """
        return npus - 1

    @staticmethod
    def diameter(npus: Numeric) -> Numeric:
        """Return 1 (0 for an NPU alone).

        >>> int(FullyConnected.diameter(8))
        1
        """
        return np.minimum(1, npus - 1)

    @staticmethod
    def mean_hops(npus: Numeric) -> Numeric:
        """Return 1.

        >>> float(FullyConnected.mean_hops(8))
        1.0
        """
        return np.minimum(1.0, npus - 1)

    @staticmethod
    def bisection(npus: Numeric) -> Numeric:
        """Return floor(p / 2) * ceil(p / 2): each NPU of one half has a link to each of the other.

        >>> FullyConnected.bisection(8)
        16
        """
        return (npus // 2) * (npus - npus // 2)

    @staticmethod
    def share(members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return (m - 1) / (p - 1) for m members: their links to each other, which no other group uses.

        Assumes that data takes the direct link, and no path over NPUs outside the group.

        >>> float(FullyConnected.share(4, 7, 1))
        0.5
        """
        return np.where(members == 1, 1.0, (members - 1) / np.maximum(1, npus - 1))[()]

    @staticmethod
    def hops(members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return 1.

        >>> int(FullyConnected.hops(4, 8, 2))
        1
        """
        return np.ones_like(step)[()]

    @staticmethod
    def parts(npus: Numeric) -> Parts:
        """Return p (p - 1) links.

        >>> FullyConnected.parts(8).links
        56
        """
        return Parts(links=npus * (npus - 1))

    @staticmethod
    def edges(npus: int) -> Edges:
        """Return a link to every other NPU, which share the bandwidth.

        >>> list(FullyConnected.edges(2))
        [(0, 1, 1.0), (1, 0, 1.0)]
        """
        for source in range(npus):
            for target in range(npus):
                if source != target:
                    yield source, target, 1 / (npus - 1)
