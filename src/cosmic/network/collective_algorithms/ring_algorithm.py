"""Ring: neighbours pass parts of the data on, once round for each pass."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cosmic.base.numeric import Numeric
from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.network.collective_algorithms.direct import DirectAlgorithm
from cosmic.network.collective_rounds import (
    ByRounds,
    Ints,
    Rounds,
    all_but_own,
    joined_rounds,
    message_round,
    passes_of,
    reversed_rounds,
)


@algorithms.register("ring")
class RingAlgorithm(ByRounds):
    """Meets the bandwidth bound with sends to neighbours only (Patarasuk & Yuan, JPDC 69(2), 2009).

    Half of the data goes round one way and half the other, as links carry data both ways; an all-to-all goes to each
    member the shorter way round.
    """

    @staticmethod
    def rounds(kind: CollectiveKind, members: int) -> Rounds:
        """Return p - 1 rounds a pass, half of the data each way; p // 2 of an all-to-all."""
        if kind == "all_to_all":
            return _shorter_way_round(members)
        return ring_rounds(kind, members, ways=(1, -1) if members > 2 else (1,))

    @staticmethod
    def alternatives(kind: CollectiveKind, members: int) -> list[Rounds]:
        """Return both ways at once, and either way alone: links may be faster one way."""
        if members == 2:
            return [RingAlgorithm.rounds(kind, members)]
        return [RingAlgorithm.rounds(kind, members), *(one_way_ring(kind, members, way) for way in (1, -1))]

    @staticmethod
    def steps(kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return p - 1 a pass: once round; of an all-to-all half way round.

        >>> float(RingAlgorithm.steps("all_to_all", 16)), float(RingAlgorithm.steps("all_to_all", 5))
        (8.0, 2.0)
        """
        return np.floor(p / 2) if kind == "all_to_all" else passes_of(kind) * (p - 1)

    @staticmethod
    def traffic(kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return (p - 1) / p a pass; for an all-to-all floor(p^2 / 4) / p, a quarter round on average.

        >>> RingAlgorithm.traffic("all_reduce", 4), float(RingAlgorithm.traffic("all_to_all", 16))
        (1.5, 4.0)
        """
        if kind == "all_to_all":
            odd = p % 2
            return (p * p - odd * (2 - odd)) / (4 * p)
        return passes_of(kind) * all_but_own(p)

    @staticmethod
    def peers(p: Numeric) -> Numeric:
        """Return 2: data goes round both ways."""
        return np.minimum(2, p - 1)

    @staticmethod
    def distance(p: Numeric) -> Numeric:
        """Return 1: neighbours."""
        return 1.0


class RingOrExchange(ByRounds):
    """The rounds of a ring; of an all-to-all those of a direct exchange."""

    @staticmethod
    def rounds(kind: CollectiveKind, members: int) -> Rounds:
        """Return the rounds of a collective among *members*."""
        return (DirectAlgorithm if kind == "all_to_all" else RingAlgorithm).rounds(kind, members)

    @classmethod
    def alternatives(cls, kind: CollectiveKind, members: int) -> list[Rounds]:
        """Return the ways in which it may send."""
        return (DirectAlgorithm if kind == "all_to_all" else RingAlgorithm).alternatives(kind, members)


def ring_rounds(kind: CollectiveKind, members: int, ways: tuple[int, ...]) -> Rounds:
    """Return the rounds of shards that go round in one way (1 or -1), or half of each shard in either.

    Member i sends shard i - 1 first, then what it received, so that after p - 1 rounds it has the sum of its own.
    """
    own: Ints = np.arange(members, dtype=np.int64)
    if kind == "all_reduce":
        scatter = ring_rounds("reduce_scatter", members, ways)
        return joined_rounds(scatter, ring_rounds("all_gather", members, ways))
    if kind == "all_gather":
        return reversed_rounds(ring_rounds("reduce_scatter", members, tuple(-way for way in ways)))
    halves = len(ways)

    def shards(repetition: int) -> Ints:
        listed = [(own - way * (repetition + 1)) % members + half * members for half, way in enumerate(ways)]
        return np.concatenate(listed)[:, None]

    source = np.tile(own, halves)
    target = np.concatenate([(own + way) % members for way in ways])
    share = Fraction(1, members * halves)
    rounds = (message_round(source, target, shards, share, reduces=True, times=members - 1),)
    return Rounds(members, rounds, halves)


def one_way_ring(kind: CollectiveKind, members: int, way: int = 1) -> Rounds:
    """Return the rounds of a ring in which all goes one way; of an all-to-all, each member forwards what is not its own.

    >>> [float(each.size) for each in one_way_ring("all_to_all", 4).rounds]
    [0.75, 0.5, 0.25]
    """
    if kind != "all_to_all":
        return ring_rounds(kind, members, ways=(way,))
    own: Ints = np.arange(members, dtype=np.int64)
    target = (own + way) % members

    def chunks_of_turn(turn: int) -> Ints:
        return _forwarded(own, way, turn, members - 1, members)

    rounds = []
    for turn in range(members - 1):
        size = Fraction(members - 1 - turn, members)
        rounds.append(message_round(own, target, chunks_of_turn, size, size=size, turn=turn))
    return Rounds(members, tuple(rounds))


def _forwarded(own: Ints, way: int, turn: int, farthest: int, members: int) -> Ints:
    """Return the chunks that members send on: what began *turn* members before and goes farther, up to *farthest*."""
    origin = ((own - way * turn) % members)[:, None]
    return origin + members * ((origin + way * np.arange(turn + 1, farthest + 1)) % members)


def _shorter_way_round(members: int) -> Rounds:
    """Return an all-to-all in which data goes the shorter way; of what goes half way round, a half goes either way."""
    own: Ints = np.arange(members, dtype=np.int64)
    if members == 2:
        return one_way_ring("all_to_all", 2)
    even = members % 2 == 0
    halves, count = (2 if even else 1), members * members
    source, target = np.tile(own, 2), np.concatenate([(own + 1) % members, (own - 1) % members])
    farthest = (members - 1) // 2

    def chunks_of_turn(turn: int) -> Ints:
        parts = []
        for half, way in enumerate((1, -1)):
            chunk = _forwarded(own, way, turn, farthest, members)
            listed = [chunk + count * number for number in range(halves)]
            if even:  # the member opposite: one of its two chunks goes this way
                origin = ((own - way * turn) % members)[:, None]
                listed.append(origin + members * ((origin + members // 2) % members) + count * half)
            parts.append(np.concatenate(listed, axis=1))
        return np.concatenate(parts)

    rounds = []
    for turn in range(members // 2):
        size = Fraction(halves * (farthest - turn) + (1 if even else 0), members * halves)
        rounds.append(message_round(source, target, chunks_of_turn, size, size=size, turn=turn))
    return Rounds(members, tuple(rounds), halves)
