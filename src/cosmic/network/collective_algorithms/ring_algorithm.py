"""Ring: neighbours pass parts of the data on, once round for each pass."""

from __future__ import annotations

import numpy as np

from cosmic.base.numeric import Numeric
from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.network.algorithm_terms import all_but_own, passes_of


@algorithms.register("ring")
class RingAlgorithm:
    """Meets the bandwidth bound with sends to neighbours only (Patarasuk & Yuan, JPDC 69(2), 2009)."""

    @staticmethod
    def steps(kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return p - 1 a pass: once round."""
        return passes_of(kind) * (p - 1)

    @staticmethod
    def traffic(kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return (p - 1) / p a pass; for an all-to-all p / 4, as parts travel a quarter round on average.

        >>> RingAlgorithm.traffic("all_reduce", 4), float(RingAlgorithm.traffic("all_to_all", 16))
        (1.5, 4.0)
        """
        if kind == "all_to_all":
            return np.maximum(all_but_own(p), p / 4) * (p > 1)
        return passes_of(kind) * all_but_own(p)

    @staticmethod
    def peers(p: Numeric) -> Numeric:
        """Return 2: data goes round both ways."""
        return np.minimum(2, p - 1)

    @staticmethod
    def distance(p: Numeric) -> Numeric:
        """Return 1: neighbours."""
        return 1.0
