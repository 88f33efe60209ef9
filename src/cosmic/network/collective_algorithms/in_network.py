"""In-network: the switch reduces the data and sends the result to all (SHARP, NVLink SHARP)."""

from __future__ import annotations

import numpy as np

from cosmic.base.numeric import Numeric
from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.network.collective_algorithms.ring_algorithm import RingOrExchange
from cosmic.network.collective_rounds import all_but_own

IN_NETWORK = "in_network"


@algorithms.register(IN_NETWORK)
class InNetwork(RingOrExchange):
    """Half the bytes of any all-reduce among end points, in one step up and one down (Graham et al., COMHPC 2016).

    Assumes switches that reduce at line rate. Its rounds are what members do where no switch adds up. On topologies
    without switches the NPUs forward the data, at the distance of a direct exchange.
    """

    @staticmethod
    def steps(kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return 1: sends up and receives down overlap."""
        return 1.0 * (np.asarray(p) > 1)

    @staticmethod
    def traffic(kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return 1 for an all-reduce, each byte sent once; (p - 1) / p otherwise.

        >>> float(InNetwork.traffic("all_reduce", 8))
        1.0
        """
        return 1.0 * (np.asarray(p) > 1) if kind == "all_reduce" else all_but_own(p)

    @staticmethod
    def peers(p: Numeric) -> Numeric:
        """Return 1: the switch."""
        return 1.0

    @staticmethod
    def distance(p: Numeric) -> Numeric:
        """Return max(1, p / 4), where NPUs must forward."""
        return np.maximum(1.0, p / 4)
