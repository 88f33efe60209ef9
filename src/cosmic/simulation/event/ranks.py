"""A rank at work: it issues the nodes of its trace as their dependencies and its hardware allow.

A rank has one place for a computation on the accelerator, one for communication (a collective, a send, an access to
remote memory) and one for work on the CPU; receives need none. Nodes are issued in the order of their ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import Any

from cosmic.simulation.event.clock import Clock
from cosmic.simulation.event.network import Ambiguous
from cosmic.simulation.event.planning import Where
from cosmic.simulation.event.streams import Collective, Unit
from cosmic.simulation.event.world import World
from cosmic.traces.trace import CollectiveType

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


_NONE, _RUN, _COLLECTIVE = int(Slot.NONE), int(Action.RUN), int(Action.COLLECTIVE)
"""As plain numbers: the loop asks often."""


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
        self._heaps = tuple(enumerate(self._ready))
        self._busy = [0] * len(Slot)
        self._ongoing = 0
        self._fresh: list[int] = []
        self._issuing = False
        self._order = _Order(work.slot) if world.checks_order else None
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
        order = self._order
        tied = order is not None and order.tied(self.world.clock, self._decided_by.get(row, self.entity))
        self._release(row)
        if order is not None and tied:
            order.check_freed()
        self._issue()
        if order is not None and tied:
            order.check_started(self._ready)
        self._check_end()

    def _release(self, row: int) -> None:
        self.ended_ns[row] = self.world.clock.now
        slot = self.work.slot
        self._busy[slot[row]] -= 1
        self._ongoing -= 1
        for child in self.work.children[row]:
            self._waits[child] -= 1
            if self._waits[child] == 0:
                if self._order is not None:
                    self._order.freed.append(child)
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
            while (slot := self._next_slot()) >= 0:
                self._start(heappop(self._ready[slot]), slot)
            self._issuing = False
            if not self._fresh:
                return
            for row in self._fresh:
                heappush(self._ready[self.work.slot[row]], row)
            self._fresh.clear()
            if self._ongoing and self.world.compat:
                return

    def _next_slot(self) -> int:
        """Return the slot of the first node that can start; -1 if none can."""
        found, best, busy = -1, 0, self._busy
        for slot, heap in self._heaps:
            if heap and (slot == _NONE or not busy[slot]) and (found < 0 or heap[0] < best):
                found, best = slot, heap[0]
        return found

    def _start(self, row: int, slot: int) -> None:
        self._busy[slot] += 1
        self._ongoing += 1
        if self._order is not None:
            self._order.started.append(row)
        self.begun_ns[row] = self.world.clock.now
        action = self.work.action[row]
        if action == _RUN:
            self.compute_ns += self.work.compute_ns[row]
            self.world.clock.of_rank(self.entity, self.work.duration_ns[row], self.complete, row)
        elif action == _COLLECTIVE:
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


class _Order:
    """Whether the order of events of one moment matters to a rank, where short cuts may take them in another.

    Two events were decided at the same moment, by different ranks, for the same moment: a message that a rank sent has
    arrived, and so has one that was sent to it. A simulation of all ranks takes them in an order that depends on ranks'
    numbers. Usually that changes nothing. It does if what the second event frees would have been started in place of
    what the first one let start, or the other way round.
    """

    def __init__(self, slot: list[int]) -> None:
        self._slot = slot
        self._moment = (NEVER, NEVER)
        self._decider = NEVER
        self.freed: list[int] = []
        self.started: list[int] = []
        """By the events of this moment."""
        self._freed_before: set[int] = set()
        self._started_before = 0

    def tied(self, clock: Clock, decider: int) -> bool:
        """Note an event that *decider* decided, and return whether others of this moment could come after it."""
        moment = (clock.now, clock.place[0])
        if moment == self._moment:
            tied = decider != self._decider
            self._decider = decider
            self._freed_before, self._started_before = set(self.freed), len(self.started)
            return tied
        self._moment, self._decider = moment, decider
        self.freed.clear()
        self.started.clear()
        return False

    def check_freed(self) -> None:
        """Refuse if what was freed last should have gone before what was started."""
        for child in self.freed[len(self._freed_before) :]:
            slot = self._slot[child]
            if slot != Slot.NONE and any(self._slot[row] == slot and row > child for row in self.started):
                raise Ambiguous

    def check_started(self, ready: list[list[int]]) -> None:
        """Refuse if what was started last was freed before, and something else could have been started then."""
        for row in self.started[self._started_before :]:
            if row in self._freed_before and ready[self._slot[row]]:
                raise Ambiguous
