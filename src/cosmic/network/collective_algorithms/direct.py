"""Direct: every NPU exchanges parts with every other NPU at once."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cosmic.base.numeric import Numeric
from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.network.collective_rounds import (
    ByRounds,
    Ints,
    Rounds,
    all_but_own,
    joined_rounds,
    message_round,
    passes_of,
)


@algorithms.register("direct")
class DirectAlgorithm(ByRounds):
    """One step a pass, at the bandwidth bound; needs a link between every two NPUs."""

    @staticmethod
    def rounds(kind: CollectiveKind, members: int) -> Rounds:
        """Return one round a pass: to every other member its part, or one's own part to every other member."""
        if kind == "all_reduce":
            return joined_rounds(
                DirectAlgorithm.rounds("reduce_scatter", members), DirectAlgorithm.rounds("all_gather", members)
            )
        # Each begins with its next neighbour, so that no two send to one member at a time.
        source: Ints = np.tile(np.arange(members, dtype=np.int64), members - 1)
        target = (source + np.repeat(np.arange(1, members), members)) % members
        chunk = {"reduce_scatter": target, "all_gather": source}.get(kind, source + members * target)
        reduces = kind == "reduce_scatter"
        return Rounds(members, (message_round(source, target, chunk[:, None], Fraction(1, members), reduces=reduces),))

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
