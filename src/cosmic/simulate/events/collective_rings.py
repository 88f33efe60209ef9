"""Groups of ranks as rings: their members, the steps of their collective algorithms, and the closed forms of these.

One rank of each class of equivalent ranks is simulated (`cosmic.simulate.events.rank_folding`): an *entity*. A ring
lists the entity of each member, and the slot (a rank's own numbering of its groups) under which that entity knows the
group.

Algorithms are lists of steps, made of the rounds that describe them (`cosmic.network.collective_algorithms`). In each
step every member may send to one other and receive from one; a member's next step begins when it has received. The same
list is simulated message by message, or evaluated at once for all members where no message delays another
(`completion_ns`).

Sizes are ASTRA-sim's: the size of an all-gather is one member's shard, that of other collectives the whole buffer; a
reduction takes the time of the message that is sent next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from cosmic.base.errors import SpecError
from cosmic.base.event_clock import check_time
from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.network.collective_algorithms.astra_sim_variants import (
    double_tree_variant,
    halving_doubling_variant,
    ring_variant,
)
from cosmic.network.collective_rounds import Rounds, rounds_of
from cosmic.simulate.events.astra_sim_inputs import OURS
from cosmic.simulate.events.message_fabrics import SimulatedNetwork
from cosmic.traces.trace import CollectiveType, Ints

# ---- Collective algorithms as lists of steps

NO_MEMBER = -1
KIND_OF: dict[CollectiveType, CollectiveKind] = {
    CollectiveType.ALL_REDUCE: "all_reduce",
    CollectiveType.ALL_GATHER: "all_gather",
    CollectiveType.REDUCE_SCATTER: "reduce_scatter",
    CollectiveType.ALL_TO_ALL: "all_to_all",
}


class AlgorithmStep(NamedTuple):
    """Sends and receives by position in the group: at most one of each for every member."""

    to: Ints
    """The position to which each sends, or `NO_MEMBER`."""
    source: Ints
    """The position from which each receives, or `NO_MEMBER`."""
    size: int
    """Bytes of each message."""
    reduces: int
    """Bytes that are reduced once received; 0 if none."""
    more: bool = False
    """Whether the next step is of the same round: members go on to it at once, and wait at the end of the round."""


StepRuns = tuple[tuple[int, AlgorithmStep], ...]
"""Steps, and how often each is repeated before the next."""


@lru_cache(maxsize=4096)
def algorithm_steps(
    algorithm: str, kind: CollectiveType, members: int, size: int, clockwise: bool = True
) -> tuple[AlgorithmStep, ...]:
    """Return the steps of a collective of *size* bytes among *members*.

    >>> [(step.to.tolist(), step.size, step.reduces) for step in algorithm_steps("ring", CollectiveType.REDUCE_SCATTER, 3, 30)]
    [([1, 2, 0], 10, 10), ([1, 2, 0], 10, 10)]
    """
    return tuple(
        step for times, step in algorithm_step_runs(algorithm, kind, members, size, clockwise) for _ in range(times)
    )


def algorithm_step_runs(
    algorithm: str, kind: CollectiveType, members: int, size: int, clockwise: bool = True
) -> StepRuns:
    """Return the steps of a collective, equal ones in a row as one.

    >>> [times for times, _ in algorithm_step_runs("ring", CollectiveType.ALL_REDUCE, 8, 80)]
    [7, 7]
    """
    if algorithm.startswith(OURS):
        return tuple(
            _round_steps(rounds_of(algorithms[algorithm.removeprefix(OURS)], KIND_OF[kind], members), kind, size)
        )
    if algorithm == "ring":
        variant = ring_variant(KIND_OF[kind], members, size, 1 if clockwise else -1)
    elif kind == CollectiveType.ALL_TO_ALL:
        raise SpecError("all-to-all-implementation", algorithm, "has no all-to-all")
    else:
        variant = halving_doubling_variant(KIND_OF[kind], members, size)
    return tuple(
        (each.times, _step_of(members, each.source, each.target, each.size_bytes, each.reduced_bytes))
        for each in variant
    )


def _round_steps(rounds: Rounds, kind: CollectiveType, size: int) -> Iterator[tuple[int, AlgorithmStep]]:
    """Yield the steps of the algorithms that the closed form prices; levels of trees are rounds one after the other."""
    whole = size * rounds.members if kind == CollectiveType.ALL_GATHER else size
    for each in rounds.rounds:
        level = each.level if each.level is not None else np.zeros(len(each.source), np.int64)
        steps: list[AlgorithmStep] = []
        for number in range(each.levels):
            at = np.flatnonzero(level == number)
            sizes = (each.sizes[at] * whole).astype(np.int64)
            parts = list(_matchings(each.source[at], each.target[at], sizes))
            for turn, (source, target, part) in enumerate(parts):
                last = turn == len(parts) - 1
                adds = sum(one[2] for one in parts) if each.reduces and last else 0
                step = _step_of(rounds.members, source, target, part, adds)
                steps.append(step._replace(more=not last))
        if len(steps) == 1:
            yield each.times, steps[0]
        else:
            yield from ((1, step) for _ in range(each.times) for step in steps)


def _matchings(source: Ints, target: Ints, sizes: Ints) -> Iterator[tuple[Ints, Ints, int]]:
    """Yield messages of one size in which no member sends twice, and none receives twice, until all are there."""
    left = list(zip(source.tolist(), target.tolist(), sizes.tolist(), strict=True))
    while left:
        size, senders, receivers = left[0][2], set[int](), set[int]()
        taken: list[tuple[int, int, int]] = []
        rest: list[tuple[int, int, int]] = []
        for message in left:
            fits = message[2] == size and message[0] not in senders and message[1] not in receivers
            (taken if fits else rest).append(message)
            if fits:
                senders.add(message[0])
                receivers.add(message[1])
        left = rest
        yield np.array([one[0] for one in taken]), np.array([one[1] for one in taken]), size


def _step_of(members: int, source: Ints, target: Ints, size: int, reduces: int) -> AlgorithmStep:
    to, sources = np.full(members, NO_MEMBER), np.full(members, NO_MEMBER)
    to[source], sources[target] = target, source
    return AlgorithmStep(to, sources, size, reduces)


class ReductionTree(NamedTuple):
    """A binary tree over positions."""

    parent: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=256)
def double_binary_trees(members: int) -> tuple[ReductionTree, ReductionTree]:
    """Return the two trees of ASTRA-sim's double binary tree, with the children of each position.

    >>> [tree.children[1] for tree in double_binary_trees(4)]
    [(0, 2), ()]
    """
    first, second = (_tree_of_parents(parents) for parents in double_tree_variant(members))
    return first, second


def _tree_of_parents(parent: tuple[int, ...]) -> ReductionTree:
    children: list[list[int]] = [[] for _ in parent]
    for child, up in enumerate(parent):
        if up != NO_MEMBER:
            children[up].append(child)
    return ReductionTree(parent, tuple(map(tuple, children)))


def completion_ns(
    program: tuple[AlgorithmStep, ...], starts: Ints, delays: list[Ints], endpoint_ns: int, reductions: list[int]
) -> Ints:
    """Return when each member ends a collective that it begins at *starts*, if no message delays another.

        g_0 = start + d        g_k+1 = max(g_k, g_k of its source + L_k) + d + R_k        done = g after the last step

    d  endpoint delay    L_k  time of the message of step k to each member (*delays*)    R_k  *reductions*

    A member that neither sends nor receives in a step continues at once.
    """
    ready = starts + endpoint_ns
    for step, delay, reduction in zip(program, delays, reductions, strict=True):
        arrived = np.where(step.source == NO_MEMBER, ready, ready[step.source] + delay)
        after = np.maximum(arrived, ready) + endpoint_ns + np.where(step.source == NO_MEMBER, 0, reduction)
        idle = (step.source == NO_MEMBER) & (step.to == NO_MEMBER)
        ready = np.where(idle, ready, after)
    return ready


# ---- Groups of ranks: their members, the entities simulated for them, and the closed forms of their collectives

ALL = -1
"""The slot of all ranks."""
GIVEN = "given"
"""The algorithm of collectives with a given time: they end that long after the last member begins."""


class PhaseSpec(NamedTuple):
    """The inputs of the closed form of one phase of a collective."""

    algorithm: str
    kind: CollectiveType
    size: int
    clockwise: bool
    endpoint_ns: int
    memory_bytes_per_s: float


class Ring:
    """The members of a group in one dimension (or of a whole group), in order."""

    def __init__(
        self, network: SimulatedNetwork, members: Sequence[int], entities: Sequence[int], slots: Sequence[int]
    ) -> None:
        self.members = np.asarray(members, np.int64)
        self.ranks: list[int] = [int(rank) for rank in members]
        self.entities, self.slots = list(entities), list(slots)
        self.partners: dict[tuple[int, int], list[int]] = {}
        """The positions that an entity stands for, by entity and slot."""
        for index, pair in enumerate(zip(self.entities, self.slots, strict=True)):
            self.partners.setdefault(pair, []).append(index)
        self.position = {rank: position for position, rank in enumerate(self.ranks)}
        self._network = network
        self._done: dict[PhaseSpec, list[int]] = {}
        self._traffic: dict[tuple[PhaseSpec, int], tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self.ranks)

    @property
    def one_class(self) -> bool:
        """Whether one entity stands for all members, so that all begin at once."""
        return len(self.partners) == 1

    def done_ns(self, spec: PhaseSpec, starts: Sequence[int]) -> list[int]:
        """Return when each member ends a phase that it begins at *starts*.

        If all begin together, their ends are those of a start at 0, shifted.
        """
        first = starts[0]
        if self.one_class or starts.count(first) == len(starts):
            if spec not in self._done:
                self._done[spec] = self._evaluate(spec, np.zeros(len(self), np.int64)).tolist()
            return [first + done for done in self._done[spec]] if first else self._done[spec]
        done: list[int] = self._evaluate(spec, np.array(starts, np.int64)).tolist()
        return done

    def _evaluate(self, spec: PhaseSpec, starts: Ints) -> Ints:
        if spec.algorithm == GIVEN:
            return np.full(len(self), starts.max() + spec.size)
        if spec.algorithm == "direct":
            return self._direct(spec, starts)
        program = algorithm_steps(spec.algorithm, spec.kind, len(self), spec.size, spec.clockwise)
        delays: dict[tuple[int, int], Ints] = {}
        for step in program:
            # Steps of one program share their arrays, so that the identity of one stands for its pairs of
            # members.
            key = (id(step.source), step.size)
            if key not in delays:
                sources = np.where(step.source == NO_MEMBER, np.arange(len(self)), step.source)
                delays[key] = self._network.delays_ns(self.members[sources], self.members, step.size)
        rate = spec.memory_bytes_per_s
        waits = [delays[id(step.source), step.size] for step in program]
        reductions = [reduction_ns(step.reduces, rate) for step in program]
        longest = max(int(delay.max()) for delay in delays.values()) + max(reductions) + spec.endpoint_ns
        # Even if every step took the longest, the clock must be able to hold the time.
        check_time(len(program) * longest)
        equal = all((delay == delay[0]).all() for delay in delays.values())
        if (
            equal
            and (starts == starts[0]).all()
            and all((step.source != NO_MEMBER).all() for step, _ in _distinct_steps(program))
        ):
            # All members advance in lockstep: evaluate one.
            first = sum(int(wait[0]) for wait in waits) + sum(reductions) + (len(program) + 1) * spec.endpoint_ns
            return starts + first
        return completion_ns(program, starts, waits, spec.endpoint_ns, reductions)

    def _direct(self, spec: PhaseSpec, starts: Ints) -> Ints:
        """Return when each member has the shards of all others: they are sent at once, and reduced as they arrive."""
        part = spec.size if spec.kind == CollectiveType.ALL_GATHER else spec.size // len(self)
        sources, targets = np.meshgrid(self.members, self.members)
        delays = self._network.delays_ns(sources.ravel(), targets.ravel(), part).reshape(len(self), len(self))
        np.fill_diagonal(delays, 0)
        sent = starts + spec.endpoint_ns
        arrived = np.maximum((sent[None, :] + delays).max(axis=1), sent)
        reduces = part if spec.kind == CollectiveType.REDUCE_SCATTER else 0
        done: Ints = arrived + spec.endpoint_ns + reduction_ns(reduces, spec.memory_bytes_per_s)
        return done

    def traffic(self, spec: PhaseSpec, position: int) -> tuple[int, ...]:
        """Return the bytes that a member sends into each dimension in a phase."""
        key = (spec, position)
        if key not in self._traffic:
            carried = [0] * len(self._network.dims)
            for peer, size in self._sends(spec, position):
                carried[self._network.first_difference(self.ranks[position], self.ranks[peer])[0]] += size
            self._traffic[key] = tuple(carried)
        return self._traffic[key]

    def _sends(self, spec: PhaseSpec, position: int) -> Iterator[tuple[int, int]]:
        """Yield the positions to which a member sends, and the bytes to each; none for collectives with given times."""
        if spec.algorithm == GIVEN:
            return
        if spec.algorithm == "direct":
            part = spec.size if spec.kind == CollectiveType.ALL_GATHER else spec.size // len(self)
            yield from ((peer, part) for peer in range(len(self)) if peer != position)
            return
        program = algorithm_steps(spec.algorithm, spec.kind, len(self), spec.size, spec.clockwise)
        for step, times in _distinct_steps(program):
            if step.to[position] != NO_MEMBER:
                yield int(step.to[position]), step.size * times


def _distinct_steps(program: tuple[AlgorithmStep, ...]) -> list[tuple[AlgorithmStep, int]]:
    """Return every distinct step, and how often it occurs."""
    first = {id(step): step for step in program}
    return [(first[step_id], times) for step_id, times in Counter(map(id, program)).items()]


def reduction_ns(size: int, memory_bytes_per_s: float) -> int:
    """Return the time to reduce a message: two reads and a write, each in whole nanoseconds.

    >>> reduction_ns(2**20, 50e9), reduction_ns(0, 0)
    (62913, 0)
    """
    if size == 0:
        return 0
    if memory_bytes_per_s == 0:
        raise SpecError("system: local-mem-bw", 0, "collectives that reduce need a positive rate")
    return 3 * check_time(size / memory_bytes_per_s * 1e9)  # this order: rounding as in ASTRA-sim
