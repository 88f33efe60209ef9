"""No topology: the place of a dimension that a machine does not have, where others of a search do."""

from __future__ import annotations

import numpy as np

from cosmic.base.numeric import Numeric
from cosmic.design.network_layer import ABSENT, Parts, topologies


@topologies.register(ABSENT)
class AbsentDimension:
    """One NPU by itself: nothing is sent, nothing is built."""

    algorithm = "ring"
    switched = True

    @staticmethod
    def links(npus: Numeric) -> Numeric:
        """Return 0.

        >>> int(AbsentDimension.links(1))
        0
        """
        return np.zeros_like(npus)[()]

    @staticmethod
    def diameter(npus: Numeric) -> Numeric:
        """Return 0.

        >>> int(AbsentDimension.diameter(1))
        0
        """
        return np.zeros_like(npus)[()]

    @staticmethod
    def mean_hops(npus: Numeric) -> Numeric:
        """Return 0.

        >>> float(AbsentDimension.mean_hops(1))
        0.0
        """
        return 0.0 * AbsentDimension.links(npus)

    @staticmethod
    def bisection(npus: Numeric) -> Numeric:
        """Return 0.

        >>> int(AbsentDimension.bisection(1))
        0
        """
        return np.zeros_like(npus)[()]

    @staticmethod
    def share(members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return 1.

        >>> float(AbsentDimension.share(1, 1, 1))
        1.0
        """
        return np.ones(np.broadcast_shapes(np.shape(members), np.shape(npus), np.shape(step)))[()]

    @staticmethod
    def hops(members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return 0.

        >>> int(AbsentDimension.hops(1, 1, 1))
        0
        """
        return np.zeros_like(step)[()]

    @staticmethod
    def parts(npus: Numeric) -> Parts:
        """Return none.

        >>> AbsentDimension.parts(1)
        Parts(links=0, switch_ports=0, nics=0)
        """
        return Parts(links=0 * npus)
