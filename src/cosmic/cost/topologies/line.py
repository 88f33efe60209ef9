"""A line: the side of a mesh, a ring without one of its links; not registered as a topology."""

from __future__ import annotations

import numpy as np

from cosmic.design.network import Edges, Parts
from cosmic.numeric import Numeric


class Line:
    """Two links per NPU, one to each neighbour; those at the ends have a single one."""

    algorithm = "ring"
    switched = False

    @staticmethod
    def links(npus: Numeric) -> Numeric:
        """Return min(2, p - 1): the links of an NPU that is not at an end."""
        return np.minimum(2, npus - 1)

    @staticmethod
    def diameter(npus: Numeric) -> Numeric:
        """Return p - 1: from end to end."""
        return npus - 1

    @staticmethod
    def mean_hops(npus: Numeric) -> Numeric:
        """Return (p + 1) / 3, the mean distance of two of p NPUs in a row.

        >>> Line.mean_hops(5)
        2.0
        """
        return (npus + 1) / 3

    @staticmethod
    def bisection(npus: Numeric) -> Numeric:
        """Return 1."""
        return np.ones_like(npus)[()]

    @staticmethod
    def share(members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return 1 / (k s), as on part of a ring: one of k links leads inwards from an end, and s groups share it.

        >>> float(Line.share(8, 8, 1)), float(Line.share(4, 8, 2)), float(Line.share(2, 2, 1))
        (0.5, 0.25, 1.0)
        """
        return np.where(members == 1, 1.0, 1 / (Line.links(np.maximum(2, npus)) * step))[()]

    @staticmethod
    def hops(members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return s, the step."""
        return step

    @staticmethod
    def parts(npus: Numeric) -> Parts:
        """Return 2 (p - 1) links: p - 1 pairs of neighbours, both ways."""
        return Parts(links=2 * (npus - 1))

    @staticmethod
    def edges(npus: int) -> Edges:
        """Return a link to each neighbour; links at the ends are as fast as the others.

        >>> list(Line.edges(3))
        [(0, 1, 0.5), (1, 0, 0.5), (1, 2, 0.5), (2, 1, 0.5)]
        """
        for npu in range(npus - 1):
            yield npu, npu + 1, 1 / min(2, npus - 1)
            yield npu + 1, npu, 1 / min(2, npus - 1)
