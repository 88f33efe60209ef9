"""A rank at work: it issues the nodes of its trace as their dependencies and its hardware allow.

A rank has one place for a computation on the accelerator, one for communication (a collective, a send, an access to
remote memory) and one for work on the CPU; receives need none. Nodes are issued in the order of their ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.simulation.event.network import Ambiguous
from cosmic.simulation.event.planning import Where
from cosmic.simulation.event.streams import Collective, Unit
from cosmic.simulation.event.world import World
from cosmic.traces.trace import CollectiveType

Ints = npt.NDArray[np.int64]
NEVER = -1


class Slot(IntEnum):
    """What a node occupies while it runs."""

    CPU = 0
    COMPUTE = 1
    COMMUNICATION = 2
    BACKGROUND = 3
    """Communication that nothing waits for soon; only where a design says so."""
    MEMORY = 4
    """Traffic with outer memory; likewise."""
    NONE = 5


class Action(IntEnum):
    """What issuing a node does."""

    SKIP = 0
    RUN = 1
    COLLECTIVE = 2
    SEND = 3
    RECEIVE = 4
    MEMORY = 5


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """A template made ready to be played: plain lists, as the loop reads single numbers."""

    slot: list[int]
    action: list[int]
    duration_ns: list[int]
    size: list[int]
    """Bytes; where times are given, nanoseconds."""
    waits: list[int]
    """For how many nodes each waits."""
    children: list[list[int]]
    compute_ns: list[int]
    """Counted as computation on the accelerator."""


class Rank:
    """One rank (or all that are like it), playing its trace."""

    def __init__(self, world: World, entity: int, rank: int, work: Work) -> None:
        self.world, self.entity, self.rank, self.work = world, entity, rank, work
        self.unit = Unit(world, entity, rank)
        self.wheres: dict[int, tuple[CollectiveType, Where]] = {}
        """By row: where a collective runs."""
        self.channels: dict[int, tuple[int, Any]] = {}
        """By row: with whom a send or receive talks, and on which channel."""
        self.end_ns = NEVER
        self.begun_ns = [NEVER] * len(work.slot)
        self.ended_ns = [NEVER] * len(work.slot)
        self.compute_ns = 0
        self._waits = list(work.waits)
        self._ready: list[list[int]] = [[] for _ in Slot]
        self._busy = [0] * len(Slot)
        self._ongoing = 0
        self._fresh: list[int] = []
        self._issuing = False
        self._latest = (NEVER, NEVER, entity)
        self._decided_by: dict[int, int] = {}

    def begin(self) -> None:
        """Issue what waits for nothing."""
        slot = self.work.slot
        for row, waits in enumerate(self._waits):
            if waits == 0:
                self._ready[slot[row]].append(row)
        for heap in self._ready:
            heapify(heap)
        self._issue()
        self._check_end()

    def complete(self, row: int) -> None:
        """Note that a node is done, and issue what that allows."""
        if self.world.same_order:
            self._check_order(self._decided_by.get(row, self.entity))
        self._release(row)
        self._issue()
        self._check_end()

    def _check_order(self, decider: int) -> None:
        """Refuse to guess which of two events comes first that different ranks decided at one moment for one moment."""
        clock = self.world.clock
        when = (clock.now, clock.place[0])
        if self._latest == (*when, decider) or self._latest[:2] != when:
            self._latest = (*when, decider)
        else:
            raise Ambiguous

    def _release(self, row: int) -> None:
        self.ended_ns[row] = self.world.clock.now
        slot = self.work.slot
        self._busy[slot[row]] -= 1
        self._ongoing -= 1
        for child in self.work.children[row]:
            self._waits[child] -= 1
            if self._waits[child] == 0:
                if self._issuing:
                    self._fresh.append(child)
                else:
                    heappush(self._ready[slot[child]], child)

    def _check_end(self) -> None:
        if self._ongoing == 0 and not any(self._ready):
            self.end_ns = self.world.clock.now

    def _issue(self) -> None:
        """Issue every node that can start, the lowest id first.

        In ASTRA-sim what a skipped node frees is seen at the rank's next event only; where there would be none, or
        where its numbers are not asked for, it is issued at once.
        """
        while True:
            self._issuing = True
            while (slot := self._next_slot()) is not None:
                self._start(heappop(self._ready[slot]), slot)
            self._issuing = False
            if not self._fresh:
                return
            for row in self._fresh:
                heappush(self._ready[self.work.slot[row]], row)
            self._fresh.clear()
            if self._ongoing and self.world.compat:
                return

    def _next_slot(self) -> int | None:
        """Return the slot of the first node that can start."""
        best, found = None, None
        for slot, heap in enumerate(self._ready):
            free = slot == Slot.NONE or not self._busy[slot]
            if heap and free and (best is None or heap[0] < best):
                best, found = heap[0], slot
        return found

    def _start(self, row: int, slot: int) -> None:
        self._busy[slot] += 1
        self._ongoing += 1
        self.begun_ns[row] = self.world.clock.now
        action = self.work.action[row]
        if action == Action.RUN:
            self.compute_ns += self.work.compute_ns[row]
            self.world.clock.of_rank(self.entity, self.work.duration_ns[row], self.complete, row)
        elif action == Action.COLLECTIVE:
            kind, where = self.wheres[row]
            self.unit.start(Collective(row, self.complete), kind, self.work.size[row], where)
        elif action == Action.SKIP:
            self._release(row)
        elif action == Action.MEMORY:
            self.world.memory.access(self.rank, self.work.size[row], self.complete, row)
        else:
            self._exchange(row, action)

    def _exchange(self, row: int, action: int) -> None:
        peer, channel = self.channels[row]
        world = self.world
        if action == Action.SEND:
            key = world.numbered(("send", *channel))
            world.post_send(self.rank, peer, self.work.size[row], key, (self.complete, row))
        else:
            self._decided_by[row] = ~peer  # another rank, even if one like this
            key = world.numbered(("receive", *channel))
            world.post_receive(self.rank, peer, key, self.complete, row)
