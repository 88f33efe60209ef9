"""No topology: the place of a dimension that a machine does not have, where others of a search do."""

from __future__ import annotations

import numpy as np

from cosmic.design.network import ABSENT, Parts, topologies
from cosmic.numeric import Numeric


@topologies.register(ABSENT)
class Absent:
    """One NPU by itself: nothing is sent, nothing is built."""

    algorithm = "ring"
    switched = True

    @staticmethod
    def links(npus: Numeric) -> Numeric:
        """Return 0.

        >>> int(Absent.links(1))
        0
        """
        return np.zeros_like(npus)[()]

    @staticmethod
    def diameter(npus: Numeric) -> Numeric:
        """Return 0.

        >>> int(Absent.diameter(1))
        0
        """
        return np.zeros_like(npus)[()]

    @staticmethod
    def mean_hops(npus: Numeric) -> Numeric:
        """Return 0.

        >>> float(Absent.mean_hops(1))
        0.0
        """
        return 0.0 * Absent.links(npus)

    @staticmethod
    def bisection(npus: Numeric) -> Numeric:
        """Return 0.

        >>> int(Absent.bisection(1))
        0
        """
        return np.zeros_like(npus)[()]

    @staticmethod
    def share(members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return 1.

        >>> float(Absent.share(1, 1, 1))
        1.0
        """
        return np.ones(np.broadcast_shapes(np.shape(members), np.shape(npus), np.shape(step)))[()]

    @staticmethod
    def hops(members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return 0.

        >>> int(Absent.hops(1, 1, 1))
        0
        """
        return np.zeros_like(step)[()]

    @staticmethod
    def parts(npus: Numeric) -> Parts:
        """Return none.

        >>> Absent.parts(1)
        Parts(links=0, switch_ports=0, nics=0)
        """
        return Parts(links=0 * npus)
