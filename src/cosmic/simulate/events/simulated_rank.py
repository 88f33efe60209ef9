"""One simulated rank: it issues the nodes of its trace as their dependencies and its hardware allow.

A rank has one slot for computation on the accelerator, one for communication (a collective, a send, an access to remote
memory) and one for the CPU; receives need none. Nodes are issued in the order of their ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any

from cosmic.base.event_clock import EventClock
from cosmic.simulate.events.chunk_streams import CollectiveScheduler, RunningCollective
from cosmic.simulate.events.collective_planner import CollectivePlacement
from cosmic.simulate.events.message_fabrics import AmbiguousOrder
from cosmic.simulate.events.simulation_world import World
from cosmic.traces.trace import CollectiveType, Ints

NEVER = -1


class Slot(IntEnum):
    """The resource that a node occupies while it runs."""

    CPU = 0
    COMPUTE = 1
    COMMUNICATION = 2
    BACKGROUND = 3
    """Overlapped communication; only in a design's own traces."""
    MEMORY = 4
    """Traffic with outer memory; only in a design's own traces."""
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
"""Plain numbers: the loop compares them often."""


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """A template ready for the event loop, one row per node."""

    slot: Ints
    action: Ints
    duration_ns: Ints
    size: Ints
    """Bytes; where times are given, nanoseconds."""
    compute_ns: Ints
    """Nanoseconds that count as computation on the accelerator."""
    waits: Ints
    """Number of nodes that each node depends on."""
    child_start: Ints
    """Row *r* is followed by ``child[child_start[r]:child_start[r + 1]]``."""
    child: Ints

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.slot)

    def listed(self) -> WorkLists:
        """Return the columns as plain lists."""
        start, child = self.child_start.tolist(), self.child.tolist()
        return WorkLists(
            slot=self.slot.tolist(),
            action=self.action.tolist(),
            duration_ns=self.duration_ns.tolist(),
            size=self.size.tolist(),
            compute_ns=self.compute_ns.tolist(),
            waits=self.waits.tolist(),
            children=[child[begin:end] for begin, end in pairwise(start)],
        )


@dataclass(frozen=True, slots=True, eq=False)
class WorkLists:
    """The columns of `Work` as lists, because a loop in Python reads single numbers."""

    slot: list[int]
    action: list[int]
    duration_ns: list[int]
    size: list[int]
    compute_ns: list[int]
    waits: list[int]
    children: list[list[int]]


class SimulatedRank:
    """One rank (or a class of equivalent ranks) that runs its trace."""

    def __init__(self, world: World, entity: int, rank: int, work: WorkLists) -> None:
        self.world, self.entity, self.rank, self.work = world, entity, rank, work
        self.scheduler = CollectiveScheduler(world, entity, rank)
        self.placements: dict[int, tuple[CollectiveType, CollectivePlacement]] = {}
        """Type and placement of collectives, by row."""
        self.channels: dict[int, tuple[int, Any]] = {}
        """Peer and channel of sends and receives, by row."""
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

    def action_of(self, row: int) -> int:
        """Return what issuing a node does."""
        return self.work.action[row]

    def placement_of(self, row: int) -> CollectivePlacement:
        """Return the placement of a collective."""
        return self.placements[row][1]

    def streams_of(self, slot: int) -> int:
        """Return the number of streams that the group in *slot* has begun."""
        return self.scheduler.streams_of(slot)

    def begin(self) -> None:
        """Issue the nodes without dependencies."""
        slot = self.work.slot
        for row, waits in enumerate(self._waits):
            if waits == 0:
                self._ready[slot[row]].append(row)
        for heap in self._ready:
            heapify(heap)
        self._issue()
        self._check_end()

    def complete(self, row: int) -> None:
        """Complete a node, and issue the nodes that it frees."""
        order = self._order
        is_tied = order is not None and order.is_tied(self.world.clock, self._decided_by.get(row, self.entity))
        self._release(row)
        if order is not None and is_tied:
            order.check_freed()
        self._issue()
        if order is not None and is_tied:
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
                # Freed while nodes are being issued: `_issue` decides when such a node may start.
                if self._issuing:
                    self._fresh.append(child)
                else:
                    heappush(self._ready[slot[child]], child)

    def _check_end(self) -> None:
        if self._ongoing == 0 and not any(self._ready):
            self.end_ns = self.world.clock.now

    def _issue(self) -> None:
        """Issue every node that can start, the lowest id first.

        In ASTRA-sim the nodes that a skipped node frees are issued at the rank's next event. If there is none, or
        without `compat`, they are issued at once.
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
        next_slot, best, busy = -1, 0, self._busy
        for slot, heap in self._heaps:
            if heap and (slot == _NONE or not busy[slot]) and (next_slot < 0 or heap[0] < best):
                next_slot, best = slot, heap[0]
        return next_slot

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
            kind, placement = self.placements[row]
            self.scheduler.start(RunningCollective(row, self.complete), kind, self.work.size[row], placement)
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
            key = world.next_key(("send", *channel))
            world.post_send(self.rank, peer, self.work.size[row], key, (self.complete, row))
        else:
            self._decided_by[row] = ~peer  # another rank, even if an equivalent one
            key = world.next_key(("receive", *channel))
            world.post_receive(self.rank, peer, key, self.complete, row)


class _Order:
    """Detects whether the order of events of one moment matters to a rank; folding and closed forms do not keep it.

    Two events are tied if different ranks scheduled them at one moment for one moment: a message of this rank arrives,
    and so does a message to it. A simulation of all ranks orders them by rank numbers. Usually the order changes
    nothing. It matters if a node that the second event frees would have started in place of one that the first event
    let start, or the other way round.
    """

    def __init__(self, slot: list[int]) -> None:
        self._slot = slot
        self._moment = (NEVER, NEVER)
        self._decider = NEVER
        self.freed: list[int] = []
        self.started: list[int] = []
        """Rows freed and started by the events of this moment."""
        self._freed_before: set[int] = set()
        self._started_before = 0

    def is_tied(self, clock: EventClock, decider: int) -> bool:
        """Record an event that *decider* scheduled, and return whether it is tied with the one before."""
        moment = (clock.now, clock.place[0])
        if moment == self._moment:
            is_tied = decider != self._decider
            self._decider = decider
            self._freed_before, self._started_before = set(self.freed), len(self.started)
            return is_tied
        self._moment, self._decider = moment, decider
        self.freed.clear()
        self.started.clear()
        return False

    def check_freed(self) -> None:
        """Raise `AmbiguousOrder` if a row freed last should have started before one that has started."""
        for child in self.freed[len(self._freed_before) :]:
            slot = self._slot[child]
            if slot != Slot.NONE and any(self._slot[row] == slot and row > child for row in self.started):
                raise AmbiguousOrder

    def check_started(self, ready: list[list[int]]) -> None:
        """Raise `AmbiguousOrder` if a row started last was freed before.

        Another could have started in its place.
        """
        for row in self.started[self._started_before :]:
            if row in self._freed_before and ready[self._slot[row]]:
                raise AmbiguousOrder
