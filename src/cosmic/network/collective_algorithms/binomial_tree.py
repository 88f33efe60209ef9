"""Binomial tree: in each round all that have the data send it to one more; a reduction goes the way back."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cosmic.network.collective_rounds import Ints, RoundedKind, Rounds, message_round, reversed_rounds


class BinomialTree:
    """A broadcast from the first member, or a reduction to it, in ceil(log2 p) steps of the whole buffer."""

    @staticmethod
    def rounds(kind: RoundedKind, members: int) -> Rounds:
        """Return the rounds: the first 1, 2, 4, … members send to as many others.

        >>> [(each.source.tolist(), each.target.tolist()) for each in BinomialTree.rounds("broadcast", 3).rounds]
        [([0], [1]), ([0], [2])]
        """
        if kind == "reduce":
            return reversed_rounds(BinomialTree.rounds("broadcast", members))
        rounds = []
        have = 1
        while have < members:
            source: Ints = np.arange(min(have, members - have), dtype=np.int64)
            rounds.append(message_round(source, source + have, np.zeros((len(source), 1), np.int64), Fraction(1)))
            have *= 2
        return Rounds(members, tuple(rounds))
