"""Recursive halving and doubling: partners at distance 1, 2, 4, … exchange halves, quarters and so on."""

from __future__ import annotations

from fractions import Fraction
from math import gcd
from typing import Any

import numpy as np

from cosmic.base.numeric import Numeric
from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.network.collective_rounds import (
    ByRounds,
    Floats,
    Ints,
    Rounds,
    halving_distance,
    message_round,
    passes_of,
    reversed_rounds,
    stack_chunks,
)

MOST_HALVINGS = 62
"""Of a group: its size is a whole number of 64 bits."""


@algorithms.register("halving_doubling")
class HalvingDoubling(ByRounds):
    """At the bandwidth bound in logarithmic steps when p is a power of two.

    Otherwise q, the largest power of two below p, members work. Each of the p - q others first hands all it has to a
    neighbour, who adds it up, and gets its result from it at the end: two more steps that nothing overlaps. An
    all-reduce so moves two more buffers (Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005, section 4.5, as MPICH does
    it). In a reduce-scatter or all-gather, whose parts belong to p members, some of the q stand for two, and a round
    takes as long as its largest message.
    """

    @staticmethod
    def rounds(kind: CollectiveKind, members: int) -> Rounds:
        """Return the rounds: partners 1, 2, 4, … apart exchange a half, a quarter, …; a gather goes the way back."""
        if kind == "all_to_all":
            return _bruck_rounds(members)
        if kind == "all_gather":
            return reversed_rounds(_halving_rounds("reduce_scatter", members))
        return _halving_rounds(kind, members)

    @staticmethod
    def steps(kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return log2 q a pass, and two more unless p = q; of an all-to-all ceil(log2 p).

        >>> [float(HalvingDoubling.steps("all_reduce", p)) for p in (6, 8, 9)]
        [6.0, 6.0, 8.0]
        """
        rounds = np.floor(np.log2(np.maximum(p, 1)) + 1e-9)
        beyond = p > 2**rounds
        return rounds + beyond if kind == "all_to_all" else passes_of(kind) * rounds + 2 * beyond

    @staticmethod
    def traffic(kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return (q - 1) / q a pass; beyond a power of two, two buffers more of an all-reduce.

        Other passes then have the sum of ceil(p 2^i / q) / p for i from 0 to log2 q - 1, and one buffer more. An
        all-to-all (Bruck) sends in round i all that goes to members an odd number of 2^i further on.

        >>> [float(HalvingDoubling.traffic("all_reduce", p)) for p in (4, 6)]
        [1.5, 3.5]
        >>> float(HalvingDoubling.traffic("all_gather", 6)), float(HalvingDoubling.traffic("all_to_all", 4))
        (1.8333333333333333, 1.0)
        """
        if kind == "all_to_all":
            return _bruck_traffic(p)
        q = 2 ** np.floor(np.log2(np.maximum(p, 1)) + 1e-9)
        beyond = p > q
        if kind == "all_reduce":
            both: Numeric = 2 * ((q - 1) / q + beyond)
            return both
        halved = 0.0 * np.asarray(q)
        for halving in range(MOST_HALVINGS):
            part = 2.0**halving
            if not np.any(part < q):
                break
            halved = halved + np.where(part < q, np.ceil(p * part / q - 1e-9) / np.maximum(p, 1), 0.0)
        moved: Numeric = (halved + beyond)[()]
        return moved

    @staticmethod
    def peers(p: Numeric) -> Numeric:
        """Return 1: one partner at a time."""
        return 1.0

    @staticmethod
    def distance(p: Numeric) -> Numeric:
        """Return the mean of 1, 2, 4, … over the bytes that go that far."""
        return halving_distance(p)


def _bruck_traffic(p: Numeric) -> Numeric:
    """Return the sum over i of the numbers below p with bit i, over p."""
    counted = 0.0 * np.asarray(p)
    for bit in range(MOST_HALVINGS):
        period = 2.0 ** (bit + 1)
        if not np.any(period / 2 < p):
            break
        whole, rest = np.floor(np.asarray(p) / period), np.asarray(p) % period
        counted = counted + whole * period / 2 + np.maximum(0.0, rest - period / 2)
    sent: Numeric = (counted / np.maximum(p, 1))[()]
    return sent


# ---- rounds


def _halving_rounds(kind: CollectiveKind, members: int) -> Rounds:
    """Return the rounds of a reduce-scatter, or of an all-reduce."""
    depth = members.bit_length() - 1
    leaders, helpers, helped = working_members(members)
    working = len(leaders)
    scatters = kind == "reduce_scatter"
    chunks_per_npu = 1 if scatters else working // gcd(members, working)
    share = Fraction(1, members * chunks_per_npu)
    own: Ints = np.arange(working, dtype=np.int64)
    # The working member that each part of a reduce-scatter is for: its owner, or the one that the owner hands to.
    keeper = np.searchsorted(leaders, np.arange(members), side="right") - 1

    def chunks_of_bit(bit: int) -> Ints:
        mask, chunk = (2 << bit) - 1, np.arange(members * chunks_per_npu, dtype=np.int64)
        kept = keeper if scatters else chunk % working
        return stack_chunks([chunk[(kept & mask) == other] for other in ((own ^ (1 << bit)) & mask).tolist()])

    halvings = []
    for bit in range(depth):
        partner, mask = own ^ (1 << bit), (2 << bit) - 1
        size: Fraction | Floats = Fraction(1, 2 ** (bit + 1))
        if scatters and len(helpers):
            size = np.bincount(keeper & mask, minlength=mask + 1)[partner & mask] / members
        ends = (leaders, leaders[partner])
        halvings.append(message_round(*ends, chunks_of_bit, share, reduces=True, size=size, turn=bit))
    if not len(helpers):
        return Rounds(members, (*halvings, *_doublings(kind, members, halvings)), chunks_per_npu)
    every = Fraction(members - 1, members) if scatters else Fraction(1)

    def given(_: int) -> Ints:
        chunk = np.arange(members * chunks_per_npu, dtype=np.int64)
        if scatters:
            return stack_chunks([chunk[chunk != helper] for helper in helpers.tolist()])
        return np.tile(chunk, (len(helpers), 1))

    handed = message_round(helpers, helped, given, share, reduces=True, size=every)
    if scatters:
        result = message_round(helped, helpers, helpers[:, None], share, reduces=True)
    else:
        result = message_round(helped, helpers, given, share, size=every)
    return Rounds(members, (handed, *halvings, *_doublings(kind, members, halvings), result), chunks_per_npu)


def _doublings(kind: CollectiveKind, members: int, halvings: list[Any]) -> tuple[Any, ...]:
    return reversed_rounds(Rounds(members, tuple(halvings))).rounds if kind == "all_reduce" else ()


def working_members(members: int) -> tuple[Ints, Ints, Ints]:
    """Return the members that work, a power of two of them, those that help by handing over, and to whom these do.

    Each helper sits behind the one that it helps. Members that have one are spread, so that of the working members
    with the same last bits about the same share has one, and halves stay halves.

    >>> [part.tolist() for part in working_members(6)]
    [[0, 1, 2, 4], [3, 5], [2, 4]]
    """
    depth = members.bit_length() - 1
    working = 1 << depth
    turned = np.array([int(f"{index:0{depth}b}"[::-1], 2) for index in range(working)], np.int64)
    shares = (turned + 1) * members // working - turned * members // working
    leaders: Ints = np.concatenate(([0], np.cumsum(shares)[:-1])).astype(np.int64)
    helped = leaders[shares == 2]
    return leaders, helped + 1, helped


def _bruck_rounds(members: int) -> Rounds:
    """Return the rounds in which all that goes to members with bit i in their distance moves on by 2^i."""
    own: Ints = np.arange(members, dtype=np.int64)
    apart = np.arange(1, members, dtype=np.int64)

    def moved_by(bit: int) -> Ints:
        moved: Ints = apart[(apart >> bit) & 1 == 1]
        return moved

    def chunks_of_bit(bit: int) -> Ints:
        moved = moved_by(bit)
        origin = (own[:, None] - (moved & ((1 << bit) - 1))) % members
        return origin + members * ((origin + moved) % members)

    rounds = []
    for bit in range((members - 1).bit_length()):
        size = Fraction(len(moved_by(bit)), members)
        rounds.append(message_round(own, (own + (1 << bit)) % members, chunks_of_bit, size, size=size, turn=bit))
    return Rounds(members, tuple(rounds))
