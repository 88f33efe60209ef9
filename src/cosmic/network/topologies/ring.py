"""A ring: every NPU has links to its two neighbours."""

from __future__ import annotations

import numpy as np

from cosmic.base.numeric import Numeric
from cosmic.design.network_layer import Edges, Parts, topologies


@topologies.register("ring")
class RingTopology:
    """Two links per NPU, one to each neighbour; two NPUs share a single one."""

    algorithm = "ring"
    switched = False

    @staticmethod
    def links(npus: Numeric) -> Numeric:
        """Return min(2, p - 1) for p NPUs.

        >>> int(RingTopology.links(8)), int(RingTopology.links(2))
        (2, 1)
        """
        return np.minimum(2, npus - 1)

    @staticmethod
    def diameter(npus: Numeric) -> Numeric:
        """Return floor(p / 2): the NPU opposite is as far away either way round.

        >>> RingTopology.diameter(8), RingTopology.diameter(5)
        (4, 2)
        """
        return npus // 2

    @staticmethod
    def mean_hops(npus: Numeric) -> Numeric:
        """Return floor(p / 2) ceil(p / 2) / (p - 1): 1, 1, 2, 2, … links to the others.

        >>> float(RingTopology.mean_hops(5)), float(RingTopology.mean_hops(2))
        (1.5, 1.0)
        """
        return (npus // 2) * ((npus + 1) // 2) / np.maximum(1, npus - 1)

    @staticmethod
    def bisection(npus: Numeric) -> Numeric:
        """Return 2: a ring is cut in two places (two NPUs in one).

        >>> int(RingTopology.bisection(8))
        2
        """
        return np.minimum(2, npus - 1)

    @staticmethod
    def share(members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return 1 / s for groups all round the ring, 1 / (k s) for groups on part of it.

        s  step        k  links of an NPU

        All round, a group of every s-th NPU crosses each link once in each direction, and so do the s - 1 groups
        between: each has 1 / s of both links of an NPU. Part of a ring is a line, at whose ends only one link leads
        inwards: data that passes along all of it, in both directions at once, moves at the rate of that one link.
        Both meet the cut bound on an all-gather (Zhao et al., ForestColl, 2024).

        >>> [float(RingTopology.share(*group)) for group in ((8, 8, 1), (4, 8, 1), (4, 8, 2), (2, 8, 2))]
        [1.0, 0.5, 0.5, 0.25]
        """
        all_round = members * step >= npus
        return np.where(
            members == 1, 1.0, np.where(all_round, 1.0, 1 / RingTopology.links(np.maximum(2, npus))) / step
        )[()]

    @staticmethod
    def hops(members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return s, the step.

        >>> RingTopology.hops(4, 8, 2)
        2
        """
        return step

    @staticmethod
    def parts(npus: Numeric) -> Parts:
        """Return p min(2, p - 1) links: those that leave each NPU.

        >>> int(RingTopology.parts(8).links)
        16
        """
        return Parts(links=npus * RingTopology.links(npus))

    @staticmethod
    def edges(npus: int) -> Edges:
        """Return a link to each neighbour, both ways round, with half the bandwidth each.

        >>> list(RingTopology.edges(3))
        [(0, 1, 0.5), (0, 2, 0.5), (1, 2, 0.5), (1, 0, 0.5), (2, 0, 0.5), (2, 1, 0.5)]
        """
        for npu in range(npus):
            for neighbour in dict.fromkeys(((npu + 1) % npus, (npu - 1) % npus)):
                yield npu, neighbour, 1 / min(2, npus - 1)
