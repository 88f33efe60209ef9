"""Groups of ranks: their members, the entities simulated for them, and the closed forms of their collectives.

One rank of each class of equivalent ranks is simulated (`cosmic.simulation.event.folding`): an *entity*. A ring lists
the entity of each member, and the slot (a rank's own numbering of its groups) under which that entity knows the group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cosmic.errors import SpecError
from cosmic.simulation.event.clock import within
from cosmic.simulation.event.network import Network
from cosmic.simulation.event.programs import NO_MEMBER, Step, completion_ns, steps
from cosmic.traces.trace import CollectiveType, Ints

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

    def __init__(self, network: Network, members: Sequence[int], entities: Sequence[int], slots: Sequence[int]) -> None:
        self.members = np.asarray(members, np.int64)
        self.ranks: list[int] = [int(rank) for rank in members]
        self.entities, self.slots = list(entities), list(slots)
        self.partners: dict[tuple[int, int], list[int]] = {}
        """The positions that an entity stands for, by entity and slot."""
        for place, pair in enumerate(zip(self.entities, self.slots, strict=True)):
            self.partners.setdefault(pair, []).append(place)
        self.position = {rank: place for place, rank in enumerate(self.ranks)}
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
        program = steps(spec.algorithm, spec.kind, len(self), spec.size, spec.clockwise)
        delays: dict[tuple[int, int], Ints] = {}
        for step in program:
            key = (id(step.source), step.size)
            if key not in delays:
                sources = np.where(step.source == NO_MEMBER, np.arange(len(self)), step.source)
                delays[key] = self._network.delays_ns(self.members[sources], self.members, step.size)
        rate = spec.memory_bytes_per_s
        waits = [delays[id(step.source), step.size] for step in program]
        reductions = [reduction_ns(step.reduces, rate) for step in program]
        longest = max(int(delay.max()) for delay in delays.values()) + max(reductions) + spec.endpoint_ns
        within(len(program) * longest)
        equal = all((delay == delay[0]).all() for delay in delays.values())
        if (
            equal
            and (starts == starts[0]).all()
            and all((step.source != NO_MEMBER).all() for step, _ in _distinct(program))
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
        program = steps(spec.algorithm, spec.kind, len(self), spec.size, spec.clockwise)
        for step, times in _distinct(program):
            if step.to[position] != NO_MEMBER:
                yield int(step.to[position]), step.size * times


def _distinct(program: tuple[Step, ...]) -> list[tuple[Step, int]]:
    """Return every distinct step, and how often it occurs."""
    first = {id(step): step for step in program}
    return [(first[each], times) for each, times in Counter(map(id, program)).items()]


def reduction_ns(size: int, memory_bytes_per_s: float) -> int:
    """Return the time to reduce a message: two reads and a write, each in whole nanoseconds.

    >>> reduction_ns(2**20, 50e9), reduction_ns(0, 0)
    (62913, 0)
    """
    if size == 0:
        return 0
    if memory_bytes_per_s == 0:
        raise SpecError("system: local-mem-bw", 0, "collectives that reduce need a positive rate")
    return 3 * within(size / memory_bytes_per_s * 1e9)  # this order: rounding as in ASTRA-sim
