"""Auto: what a library chooses by kind and size: rings, trees, reductions in the switch, or direct sends."""

from __future__ import annotations

import numpy as np

from cosmic.base.numeric import Numeric
from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.network.collective_algorithms.ring_algorithm import RingOrExchange
from cosmic.network.collective_rounds import all_but_own, passes_of


@algorithms.register("auto")
class Auto(RingOrExchange):
    """Rings within a host, trees across hosts or reductions in the switch where these are faster (as NCCL does).

    An all-to-all sends directly. This class describes the ring, the only algorithm for gathering and scattering;
    `cosmic.network.transport_protocols` compares it with the others. Chunks are pipelined: a collective takes its
    latency once, not once a chunk. What its messages are is a ring's, or a direct exchange's; what a library adds to
    their latency is measured, so that steps and peers are no sums over these rounds.
    """

    @staticmethod
    def steps(kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return p - 1 a pass, once round; 1 + log2 p for an all-to-all, whose sends start one after another.

        >>> float(Auto.steps("all_reduce", 8)), float(Auto.steps("all_to_all", 8))
        (14.0, 4.0)
        """
        if kind == "all_to_all":
            return (1 + np.log2(np.maximum(p, 1))) * (np.asarray(p) > 1)
        return passes_of(kind) * (p - 1)

    @staticmethod
    def traffic(kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return (p - 1) / p a pass.

        >>> Auto.traffic("all_reduce", 4), Auto.traffic("all_to_all", 4)
        (1.5, 0.75)
        """
        return passes_of(kind) * all_but_own(p)

    @staticmethod
    def peers(p: Numeric) -> Numeric:
        """Return p - 1: a library builds enough rings to use every link."""
        return np.maximum(p - 1, 1)

    @staticmethod
    def distance(p: Numeric) -> Numeric:
        """Return 1: neighbours."""
        return 1.0
