"""Direct: every NPU exchanges parts with every other NPU at once."""

from __future__ import annotations

import numpy as np

from cosmic.base.numeric import Numeric
from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.network.algorithm_terms import all_but_own, passes_of


@algorithms.register("direct")
class DirectAlgorithm:
    """One step a pass, at the bandwidth bound; needs a link between every two NPUs."""

    @staticmethod
    def steps(kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return 1 a pass."""
        return 1.0 * passes_of(kind) * (p > 1)

    @staticmethod
    def traffic(kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return (p - 1) / p a pass: all parts but the NPU's own.

        >>> DirectAlgorithm.traffic("all_gather", 8)
        0.875
        """
        return passes_of(kind) * all_but_own(p)

    @staticmethod
    def peers(p: Numeric) -> Numeric:
        """Return p - 1: all others."""
        return p - 1

    @staticmethod
    def distance(p: Numeric) -> Numeric:
        """Return max(1, p / 4): the mean distance to all others in a ring, the shorter way round."""
        return np.maximum(1.0, p / 4)
