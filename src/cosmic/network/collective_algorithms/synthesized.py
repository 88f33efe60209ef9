"""Synthesized: schedules made for the links at hand, transfer by transfer."""

from __future__ import annotations

import numpy as np

from cosmic.base.numeric import Numeric
from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.network.collective_algorithms.direct import DirectAlgorithm
from cosmic.network.collective_rounds import ByRounds, Rounds, all_but_own, passes_of, tree_depth

SYNTHESIZED = "synthesized"


@algorithms.register(SYNTHESIZED)
class Synthesized(ByRounds):
    """What a synthesiser finds for the links of a dimension, at least as fast as the textbook's algorithms there.

    What it takes is not a formula of the members: `cosmic.network.link_costs` fits lines to schedules. This
    class has what no schedule can do without, for those who ask how much is sent.
    """

    @staticmethod
    def rounds(kind: CollectiveKind, members: int) -> Rounds:
        """Return those of a direct exchange: what every schedule has to move, at once."""
        return DirectAlgorithm.rounds(kind, members)

    @staticmethod
    def steps(kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return ceil(log2 p) a pass: at best, each step doubles the NPUs that have a chunk."""
        return passes_of(kind) * tree_depth(p)

    @staticmethod
    def traffic(kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return (p - 1) / p a pass: all parts but the NPU's own.

        >>> Synthesized.traffic("all_reduce", 4)
        1.5
        """
        return passes_of(kind) * all_but_own(p)

    @staticmethod
    def peers(p: Numeric) -> Numeric:
        """Return p - 1: every link that there is."""
        return np.maximum(p - 1, 1)

    @staticmethod
    def distance(p: Numeric) -> Numeric:
        """Return 1: transfers cross one link."""
        return 1.0
