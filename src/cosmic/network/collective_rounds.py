"""A collective algorithm as what it is: rounds of messages (from, to, chunks, add up or copy).

An algorithm is one function, `rounds`. All else follows from it: how many messages follow one another and how many
bytes the busiest NPU sends (the closed form), what every link carries (`cosmic.network.link_costs`), the steps of the
event engine (`cosmic.simulate.events.collective_rings`), and a schedule that is exported, checked and executed
(`cosmic.network.schedules.baseline_algorithms`).

Members are positions in a group, from 0. In a round each member sends its messages, and begins the next round once it
has received all of its own. Messages of a round may depend on one another: those of a tree go up or down *levels*, in
chunks that follow one another through them, so that all of its links are busy at once.

    steps    sum over rounds of  times * levels
    traffic  sum over rounds of  times * the most bytes that one member sends or receives
    links    sum over rounds of  times * the most bytes that one member sends to one other

all for a buffer of one byte. Chunks are those of `cosmic.network.schedules.collective_schedule`: k for each member.

An all-reduce is a reduce-scatter and an all-gather: it has the steps and the traffic of both. How much of a topology's
bandwidth an algorithm uses (`usable_share`) is asked of both, which may be plugins: their numbers are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import inf
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import BackendError, CosmicError, SpecError, describe_error
from cosmic.base.numeric import Numeric, log2
from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.design.network_layer import topologies

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
RoundedKind = CollectiveKind | Literal["broadcast", "reduce"]
"""What has rounds: the collectives of a design, and those that begin or end at one member."""
NO_CHUNK = -1
"""Fills the rows of messages with fewer chunks than others of their round."""


@dataclass(frozen=True, eq=False)
class Round:
    """Messages that go out together, once or several times in a row."""

    source: Ints
    """Sender of each message: a position in the group."""
    target: Ints
    """Receiver of each message."""
    size: Fraction | Floats
    """Bytes of each message of a buffer of one byte: the same of all, or one for each."""
    reduces: bool = False
    """Whether receivers add what comes to what they have; else they copy it."""
    times: int = 1
    """How often the round is repeated, with other chunks each time."""
    level: Ints | None = None
    """Order of messages within the round, from 0, where some wait for others of the same round."""
    chunks: Callable[[int], Ints] | None = None
    """Chunks of each message (a row each, `NO_CHUNK` beyond its last) in each repetition; None where a message is no
    set of chunks: then there are seconds, but no schedule."""

    @property
    def levels(self) -> int:
        """How many messages follow one another."""
        return 1 if self.level is None else int(self.level.max(initial=-1)) + 1

    @property
    def sizes(self) -> Floats:
        """The size of every message."""
        return np.full(len(self.source), float(self.size)) if isinstance(self.size, Fraction) else self.size

    def busiest_member(self) -> Fraction | float:
        """Return the most that one member sends or receives."""
        return max(self._most(self.source), self._most(self.target))

    def busiest_pair(self) -> Fraction | float:
        """Return the most that one member sends to one other."""
        return self._most(self.source * (int(self.target.max(initial=0)) + 1) + self.target)

    def _most(self, ends: Ints) -> Fraction | float:
        """Return the largest sum of messages with the same *ends*: exactly, where all have one size."""
        if isinstance(self.size, Fraction):
            return self.size * int(np.bincount(ends).max(initial=0))
        return float(np.bincount(ends, self.size).max(initial=0.0))

    def turned(self) -> Round:
        """Return the round turned round: who received sends, last level first.

        Sums along a tree, turned round, are copies along the same tree.
        """
        level = None if self.level is None else self.level.max(initial=0) - self.level
        own, last = self.chunks, self.times - 1
        chunks = None if own is None else lambda repetition: own(last - repetition)
        return Round(self.target, self.source, self.size, not self.reduces, self.times, level, chunks)


@dataclass(frozen=True, eq=False)
class Rounds:
    """All rounds of a collective of some algorithm among some members."""

    members: int
    rounds: tuple[Round, ...]
    chunks_per_npu: int = 1
    """The least number of chunks of a member in which messages are sets of whole chunks."""

    @property
    def steps(self) -> int:
        """How many messages follow one another."""
        return sum(each.times * each.levels for each in self.rounds)

    @property
    def traffic(self) -> Fraction | float:
        """Bytes that the busiest member sends, or receives, in a round, added up over rounds."""
        return sum((each.times * each.busiest_member() for each in self.rounds), Fraction(0))

    @property
    def pair_traffic(self) -> Fraction | float:
        """Bytes that a member sends to one other in a round, added up over rounds."""
        return sum((each.times * each.busiest_pair() for each in self.rounds), Fraction(0))

    @property
    def executable(self) -> bool:
        """Whether its messages are known chunk by chunk, so that there is a schedule."""
        return all(each.chunks is not None for each in self.rounds)

    def mean_distance(self) -> float:
        """Return how far a byte travels along a ring of all members, the shorter way round, on average over bytes."""
        carried = travelled = 0.0
        for each in self.rounds:
            apart = (each.target - each.source) % self.members
            sizes = each.sizes * each.times
            carried += float(sizes.sum())
            travelled += float((sizes * np.minimum(apart, self.members - apart)).sum())
        return travelled / carried if carried else 1.0


NOTHING = Rounds(1, ())
"""A group of one: nobody to send to."""


def reversed_rounds(scatter: Rounds) -> Rounds:
    """Return the all-gather that is a reduce-scatter turned round, or the reduce-scatter of an all-gather."""
    rounds = tuple(each.turned() for each in reversed(scatter.rounds))
    return Rounds(scatter.members, rounds, scatter.chunks_per_npu)


def joined_rounds(first: Rounds, second: Rounds) -> Rounds:
    """Return one after the other: an all-reduce is a reduce-scatter and an all-gather."""
    return Rounds(first.members, first.rounds + second.rounds, max(first.chunks_per_npu, second.chunks_per_npu))


def rounds_of(algorithm: Any, kind: RoundedKind, members: int) -> Rounds:
    """Return the rounds of a collective, which an algorithm is asked for once; none in a group of one."""
    return _asked_rounds(algorithm, kind, members) if members > 1 else NOTHING


@lru_cache(maxsize=256)
def _asked_rounds(algorithm: Any, kind: RoundedKind, members: int) -> Rounds:
    rounds: Rounds = algorithm.rounds(kind, members)
    return rounds


class ByRounds:
    """The closed form of an algorithm that states no other: sums over its rounds.

    Between two whole numbers of members (groups that straddle nodes have a mean number) it is a straight line.
    """

    @staticmethod
    def rounds(kind: CollectiveKind, members: int) -> Rounds:
        """Return the rounds of a collective among *members*: the description that everything else follows from."""
        raise SpecError("algorithm", "", "must say its rounds")

    @classmethod
    def alternatives(cls, kind: CollectiveKind, members: int) -> list[Rounds]:
        """Return the ways in which it may send, of which a network takes the fastest; the first is that of `rounds`."""
        return [cls.rounds(kind, members)]

    @classmethod
    def steps(cls, kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return how many messages follow one another."""
        return _at_members(lambda members: rounds_of(cls, kind, members).steps, p)

    @classmethod
    def traffic(cls, kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return the bytes that the busiest NPU sends or receives, per byte of payload."""
        return _at_members(lambda members: float(rounds_of(cls, kind, members).traffic), p)

    @classmethod
    def peers(cls, p: Numeric) -> Numeric:
        """Return to how many peers an NPU sends at once: what it sends over what it sends to one of them."""

        def at_once(members: int) -> float:
            rounds = rounds_of(cls, "all_gather", members)
            return float(rounds.traffic / rounds.pair_traffic) if rounds.rounds else 1.0

        return _at_members(at_once, p)

    @classmethod
    def distance(cls, p: Numeric) -> Numeric:
        """Return how far a byte travels along a ring of all members on average; 1 is to a neighbour."""
        return _at_members(lambda members: max(1.0, rounds_of(cls, "all_gather", members).mean_distance()), p)


def _at_members(of_whole: Callable[[int], float], p: Numeric) -> Numeric:
    """Return a function of whole numbers at *p* members: on a straight line between two whole numbers."""

    def at(members: float) -> float:
        below = int(np.floor(members + 1e-9))
        rest = members - below
        value = of_whole(max(1, below))
        return value if rest <= 1e-9 else value + rest * (of_whole(below + 1) - value)

    return np.vectorize(at, otypes=[float])(p)[()] if np.ndim(p) else at(float(p))


# ---- chunks of messages, for those who write rounds


def message_round(
    source: Sequence[int] | Ints,
    target: Sequence[int] | Ints,
    chunks: Callable[[int], Ints] | Ints,
    chunk_share: Fraction,
    *,
    reduces: bool = False,
    times: int = 1,
    size: Fraction | Floats | None = None,
    turn: int = 0,
) -> Round:
    """Return a round whose messages are the rows of *chunks*, each chunk a *chunk_share* of the buffer.

    Chunks of thousands of members fill gigabytes: a function that lists them, with the *size* of messages stated, is
    asked only for a schedule. Rounds of several sizes share it: it is asked for a *turn*, counted on by repetitions.

    >>> message_round([0, 1], [1, 0], np.array([[0], [1]]), Fraction(1, 2)).size
    Fraction(1, 2)
    """

    def listed(repetition: int) -> Ints:
        return chunks(turn + repetition) if callable(chunks) else chunks

    if size is None:
        size = _counted_size(listed(0), chunk_share)
    ends = (np.asarray(source, np.int64), np.asarray(target, np.int64))
    return Round(*ends, size, reduces, times, chunks=listed)


def _counted_size(table: Ints, chunk_share: Fraction) -> Fraction | Floats:
    counts: Ints = (table != NO_CHUNK).sum(axis=1)
    even = bool((counts == counts[:1]).all())
    return chunk_share * int(counts[0]) if even else counts.astype(np.float64) * float(chunk_share)


def stack_chunks(rows: Sequence[Sequence[int] | Ints]) -> Ints:
    """Return chunks of messages as one table, rows filled up with `NO_CHUNK`.

    >>> stack_chunks([[0, 1], [2]]).tolist()
    [[0, 1], [2, -1]]
    """
    table = np.full((len(rows), max(map(len, rows), default=0)), NO_CHUNK, np.int64)
    for row, chunks in zip(table, rows, strict=True):
        row[: len(chunks)] = chunks
    return table


# ---- terms that closed forms share


# ---- Collective algorithms, one file each; `cosmic.design.collective_layer.algorithms` finds them here


def passes_of(kind: CollectiveKind) -> int:
    """Return how many times the data passes through the group: 2 for an all-reduce, else 1."""
    return 2 if kind == "all_reduce" else 1


def all_but_own(p: Numeric) -> Numeric:
    """Return (p - 1) / p: the share of a buffer that comes from, or goes to, other members."""
    return (p - 1) / p


def tree_depth(p: Numeric) -> Numeric:
    """Return ceil(log2 p): the depth of a binary tree of p members.

    >>> [int(tree_depth(p)) for p in (1, 2, 3, 8, 9)]
    [0, 1, 2, 3, 4]
    """
    return np.ceil(log2(np.maximum(p, 1)) - 1e-9)


def halving_distance(p: Numeric) -> Numeric:
    """Return the mean distance over bytes, if partners 1, 2, 4, … apart exchange a half, a quarter, … of the data.

    (log2 p / 2) / ((p - 1) / p)
    """
    share = np.maximum(all_but_own(np.maximum(p, 2)), 0.5)
    return np.maximum(1.0, np.log2(np.maximum(p, 2)) / 2 / share)


# ---- What an algorithm can use of a topology's bandwidth; both may be plugins, whose numbers are checked

MOST_SHARE = 1 + 1e-9
"""Of bandwidth: all of it, but for rounding."""


def number_of(variant: Any, method: str, *arguments: Any) -> float:
    """Return the number that a topology or an algorithm gives, which may be a plugin: finite, and not negative."""
    try:
        number = float(getattr(variant, method)(*arguments))
    except CosmicError:
        raise
    except (Exception, SystemExit) as error:
        raise BackendError(f"{_variant_name(variant)}.{method} failed: {describe_error(error)}") from error
    if not 0 <= number < inf:
        raise BackendError(f"{_variant_name(variant)}.{method} gave {number:g}; it must be finite, and 0 or more")
    return number


def _variant_name(variant: Any) -> str:
    return str(getattr(variant, "__name__", type(variant).__name__))


@lru_cache(maxsize=65536)
def usable_share(topology: str, algorithm: str, npus: float, members: float, step: float) -> float:
    """Return the share of its injection bandwidth that an NPU uses in a group of *members*, *step* apart.

    >>> usable_share("fully_connected", "direct", 8, 8, 1), round(usable_share("fully_connected", "ring", 8, 8, 1), 3)
    (1.0, 0.286)
    """
    shape, pattern = topologies[topology], algorithms[algorithm]
    if members <= 1:
        return 1.0
    share = number_of(shape, "share", members, npus, step)
    if not 0 < share <= MOST_SHARE:
        raise BackendError(
            f"{_variant_name(shape)}.share gave {share:g}; it is a share of the bandwidth: above 0, up to 1"
        )
    if shape.switched:
        return share
    # Links that an algorithm can keep busy: one for each peer that it sends to at once, and no more than members.
    links = max(1.0, min(number_of(shape, "links", npus), members - 1))
    busy = min(1.0, number_of(pattern, "peers", members) / links)
    # A message that travels d links uses them d times: contention grows from 1 with the distance, as far as the
    # topology's mean distance is that of a ring.
    ring_hops = max(1.0, npus / 4)  # the mean distance in a ring, for which algorithms state theirs
    apart = (number_of(shape, "mean_hops", npus) - 1) / max(ring_hops - 1, 1e-9)
    contention = 1 + (number_of(pattern, "distance", members) - 1) * min(1.0, max(0.0, apart))
    return share * busy / contention
