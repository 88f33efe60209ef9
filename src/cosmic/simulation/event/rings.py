"""Groups as ranks see them: who the members are, who stands for them, and how long their messages take.

Ranks that behave alike are simulated once (`cosmic.simulation.event.folding`): each is an *entity*, which stands for
its class of ranks. A ring therefore has a roster: which entity stands for each member, and under which slot (the
rank's own numbering of its groups) that entity knows the group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cosmic.errors import SpecError
from cosmic.simulation.event.clock import within
from cosmic.simulation.event.network import Network
from cosmic.simulation.event.programs import NOBODY, Step, meeting_ns, steps
from cosmic.traces.trace import CollectiveType, Ints

ALL = -1
"""The slot of all ranks."""
GIVEN = "given"
"""The algorithm of collectives whose time is given: they end that long after the last member has begun."""


class Course(NamedTuple):
    """One phase of a collective, and what it costs."""

    algorithm: str
    kind: CollectiveType
    size: int
    clockwise: bool
    endpoint_ns: int
    memory_bytes_per_s: float


class Ring:
    """Members of a group in one dimension (or of a group as a whole), in order."""

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
        self._done: dict[Course, list[int]] = {}
        self._traffic: dict[tuple[Course, int], tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self.ranks)

    @property
    def alike(self) -> bool:
        """Whether one entity stands for all members, so that all begin at once."""
        return len(self.partners) == 1

    def done_ns(self, course: Course, starts: Sequence[int]) -> list[int]:
        """Return when each member is done with a phase that it begins at *starts*.

        Times add: if all begin together, they are done as if they had begun at 0, and that much later.
        """
        first = starts[0]
        if self.alike or starts.count(first) == len(starts):
            if course not in self._done:
                self._done[course] = self._evaluate(course, np.zeros(len(self), np.int64)).tolist()
            return [first + done for done in self._done[course]] if first else self._done[course]
        done: list[int] = self._evaluate(course, np.array(starts, np.int64)).tolist()
        return done

    def _evaluate(self, course: Course, starts: Ints) -> Ints:
        if course.algorithm == GIVEN:
            return np.full(len(self), starts.max() + course.size)
        if course.algorithm == "direct":
            return self._direct(course, starts)
        program = steps(course.algorithm, course.kind, len(self), course.size, course.clockwise)
        delays: dict[tuple[int, int], Ints] = {}
        for step in program:
            key = (id(step.source), step.size)
            if key not in delays:
                sources = np.where(step.source == NOBODY, np.arange(len(self)), step.source)
                delays[key] = self._network.delays_ns(self.members[sources], self.members, step.size)
        rate = course.memory_bytes_per_s
        waits = [delays[id(step.source), step.size] for step in program]
        reductions = [reduction_ns(step.reduces, rate) for step in program]
        longest = max(int(delay.max()) for delay in delays.values()) + max(reductions) + course.endpoint_ns
        within(len(program) * longest)
        alike = all((delay == delay[0]).all() for delay in delays.values())
        if (
            alike
            and (starts == starts[0]).all()
            and all((step.source != NOBODY).all() for step, _ in _distinct(program))
        ):
            # All members are always equally far: one of them will do.
            first = sum(int(wait[0]) for wait in waits) + sum(reductions) + (len(program) + 1) * course.endpoint_ns
            return starts + first
        return meeting_ns(program, starts, waits, course.endpoint_ns, reductions)

    def _direct(self, course: Course, starts: Ints) -> Ints:
        """Return when each member has the parts of all others: they are sent at once, and added as they arrive."""
        part = course.size if course.kind == CollectiveType.ALL_GATHER else course.size // len(self)
        sources, targets = np.meshgrid(self.members, self.members)
        delays = self._network.delays_ns(sources.ravel(), targets.ravel(), part).reshape(len(self), len(self))
        np.fill_diagonal(delays, 0)
        sent = starts + course.endpoint_ns
        arrived = np.maximum((sent[None, :] + delays).max(axis=1), sent)
        reduces = part if course.kind == CollectiveType.REDUCE_SCATTER else 0
        done: Ints = arrived + course.endpoint_ns + reduction_ns(reduces, course.memory_bytes_per_s)
        return done

    def traffic(self, course: Course, position: int) -> tuple[int, ...]:
        """Return the bytes that a member sends into each dimension in a phase."""
        key = (course, position)
        if key not in self._traffic:
            carried = [0] * len(self._network.dims)
            for peer, size in self._sends(course, position):
                carried[self._network.first_difference(self.ranks[position], self.ranks[peer])[0]] += size
            self._traffic[key] = tuple(carried)
        return self._traffic[key]

    def _sends(self, course: Course, position: int) -> Iterator[tuple[int, int]]:
        """Yield to whom a member sends, and how many bytes in all; where times are given, nobody knows."""
        if course.algorithm == GIVEN:
            return
        if course.algorithm == "direct":
            part = course.size if course.kind == CollectiveType.ALL_GATHER else course.size // len(self)
            yield from ((peer, part) for peer in range(len(self)) if peer != position)
            return
        program = steps(course.algorithm, course.kind, len(self), course.size, course.clockwise)
        for step, times in _distinct(program):
            if step.to[position] != NOBODY:
                yield int(step.to[position]), step.size * times


def _distinct(program: tuple[Step, ...]) -> list[tuple[Step, int]]:
    """Return every step once, and how often it is taken."""
    first = {id(step): step for step in program}
    return [(first[each], times) for each, times in Counter(map(id, program)).items()]


def reduction_ns(size: int, memory_bytes_per_s: float) -> int:
    """Return the time to add one message to another: two reads and a write, each in whole nanoseconds.

    >>> reduction_ns(2**20, 50e9), reduction_ns(0, 0)
    (62913, 0)
    """
    if size == 0:
        return 0
    if memory_bytes_per_s == 0:
        raise SpecError("system: local-mem-bw", 0, "collectives that reduce need a positive rate")
    return 3 * within(size / memory_bytes_per_s * 1e9)  # in this order: its rounding shows
