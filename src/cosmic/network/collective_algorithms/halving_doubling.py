"""Recursive halving and doubling: partners at distance 1, 2, 4, … exchange halves, quarters and so on."""

from __future__ import annotations

import numpy as np

from cosmic.base.numeric import Numeric
from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.network.algorithm_terms import all_but_own, halving_distance, passes_of


@algorithms.register("halving_doubling")
class HalvingDoubling:
    """At the bandwidth bound in logarithmic steps when p is a power of two.

    Otherwise p - q NPUs first send their data to a partner and receive the result at the end: one more step a pass, and
    half the buffer more traffic (Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005, section 4.5).
    """

    @staticmethod
    def steps(kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return log2 q a pass, plus one unless p = q.

        >>> float(HalvingDoubling.steps("all_reduce", 8)), float(HalvingDoubling.steps("all_reduce", 9))
        (6.0, 8.0)
        """
        rounds = np.floor(np.log2(np.maximum(p, 1)) + 1e-9)
        return passes_of(kind) * (rounds + (p > 2**rounds))

    @staticmethod
    def traffic(kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return (q - 1) / q a pass, plus 1/2 unless p = q; for an all-to-all log2 p / 2 (Bruck's algorithm)."""
        if kind == "all_to_all":
            return np.maximum(all_but_own(p), np.log2(np.maximum(p, 1)) / 2)
        q = 2 ** np.floor(np.log2(np.maximum(p, 1)) + 1e-9)
        return passes_of(kind) * (all_but_own(q) + 0.5 * (p > q))

    @staticmethod
    def peers(p: Numeric) -> Numeric:
        """Return 1: one partner at a time."""
        return 1.0

    @staticmethod
    def distance(p: Numeric) -> Numeric:
        """Return the mean of 1, 2, 4, … over the bytes that go that far."""
        return halving_distance(p)
