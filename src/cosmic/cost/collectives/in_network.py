"""In-network: the switch adds what it is sent and sends everybody the sum (SHARP, NVLink SHARP)."""

from __future__ import annotations

from typing import Any

import numpy as np

from cosmic.cost.collectives import all_but_own
from cosmic.design.collective import CollectiveKind, algorithms


@algorithms.register("in_network")
class InNetwork:
    """Half the bytes of any all-reduce among end points, in one step up and one down (Graham et al., COMHPC 2016).

    Assumes switches that reduce at line rate. Where the dimension is no switch, its NPUs forward instead, and
    nothing is gained in steps.
    """

    @staticmethod
    def steps(kind: CollectiveKind, p: Any) -> Any:
        """Return 1: sending up and receiving down overlap."""
        return 1.0 * (np.asarray(p) > 1)

    @staticmethod
    def traffic(kind: CollectiveKind, p: Any) -> Any:
        """Return 1 for an all-reduce, each byte sent once; (p - 1) / p otherwise.

        >>> float(InNetwork.traffic("all_reduce", 8))
        1.0
        """
        return 1.0 * (np.asarray(p) > 1) if kind == "all_reduce" else all_but_own(p)

    @staticmethod
    def peers(p: Any) -> Any:
        """Return 1: the switch."""
        return 1.0

    @staticmethod
    def distance(p: Any) -> Any:
        """Return what halving has, where end points must forward."""
        return np.maximum(1.0, p / 4)
