"""The state that ranks of a simulation share: time, network, messages, memory, and phases they join.

One simulated rank: it issues the nodes of its trace as their dependencies and its hardware allow.

A rank has one slot for computation on the accelerator, one for communication (a collective, a send, an access to remote
memory) and one for the CPU; receives need none. Nodes are issued in the order of their ids.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any

from cosmic.base.event_clock import Action, EventClock, check_time
from cosmic.network.schedules.schedule_replay import Message
from cosmic.simulate.events.astra_sim_inputs import RemoteMemory, System
from cosmic.simulate.events.chunk_streams import ChunkStream, CollectiveScheduler, RunningCollective
from cosmic.simulate.events.collective_planner import CollectivePlacement
from cosmic.simulate.events.collective_rings import PhaseSpec, Ring, reduction_ns
from cosmic.simulate.events.message_fabrics import (
    AmbiguousOrder,
    AwareFabric,
    ConsistentFabric,
    GraphFabric,
    SimulatedNetwork,
    UnawareFabric,
)
from cosmic.traces.trace import CollectiveType, Ints, NodeType, RankTrace

READY_BYTES = 8192
"""Size of the message with which a receiver says that it is ready, with rendezvous."""
ARRIVED = object()
"""In the mailbox: a message whose receive was not posted yet."""
READY = "ready"


class World:
    """The shared state of a simulation."""

    def __init__(
        self, network: SimulatedNetwork, system: System, memory: RemoteMemory, entity_of: Sequence[int]
    ) -> None:
        self.clock = EventClock()
        self.network, self.system, self.entity_of = network, system, entity_of
        self.checks_order = False
        """Whether to raise `Ambiguous` where the order of events of one moment matters and may be wrong."""
        self.memory = _Memory(memory, self.clock)
        self.fabric: UnawareFabric | AwareFabric | ConsistentFabric | GraphFabric = UnawareFabric(network, self.clock)
        self.queues_per_dim = 1
        self.rendezvous = False
        self.compat = True
        self.closed_forms = True
        """Whether phases that have a closed form are evaluated; exact where no message delays another."""
        self.mailbox: dict[Any, Any] = {}
        self.sent_bytes = [[0] * len(network.dims) for _ in range(max(entity_of) + 1)]
        """Bytes sent, by entity and dimension."""
        self._dims: dict[tuple[int, int], int] = {}
        self._counts: dict[Any, int] = {}
        self._arrivals: dict[tuple[int, int, int, PhaseSpec], _Arrivals] = {}
        self._rings_of: dict[tuple[int, int, int], list[Ring]] = {}
        self._switches: dict[Any, list[tuple[ChunkStream, int, int, Action]]] = {}

    # ----------------------------------------------------------------------------- messages

    def post_send(
        self,
        source: int,
        target: int,
        size: int,
        key: Any,
        sent: tuple[Action, Any] | None,
        *,
        direct: bool = False,
    ) -> None:
        """Send a message to the receive of *key*; call *sent* when it has arrived."""
        message = Message(source, target, size, self._arrived, (key, sent), direct)
        if self.rendezvous:
            self._wait((READY, key), self._send, message)
        else:
            self._send(message)

    def _send(self, message: Message) -> None:
        self._count_sent(message.source, message.target, message.size)
        self.fabric.send(message)

    def _arrived(self, arrival: tuple[Any, tuple[Action, Any] | None]) -> None:
        key, sent = arrival
        if sent is not None:
            sent[0](sent[1])
        waiting = self.mailbox.pop(key, None)
        if waiting is None:
            self.mailbox[key] = ARRIVED
        else:
            waiting[0](waiting[1])

    def post_receive(self, rank: int, source: int, key: Any, action: Action, argument: Any) -> None:
        """Call *action* when the message *key* has arrived."""
        if self.rendezvous:
            # Rendezvous: the sender holds the message back until the receiver says that it is ready.
            ready = (key, action, argument)
            self.fabric.send(Message(rank, source, READY_BYTES, self._ready, ready))
        else:
            self._wait(key, action, argument)

    def _ready(self, event: tuple[Any, Action, Any]) -> None:
        key, action, argument = event
        self._wait(key, action, argument)
        self._arrived(((READY, key), None))

    def _wait(self, key: Any, action: Action, argument: Any) -> None:
        # A key holds what waits for the message, or that it has arrived, whichever came first.
        if self.mailbox.get(key) is ARRIVED:
            del self.mailbox[key]
            self.clock.after(0, action, argument)
        else:
            self.mailbox[key] = (action, argument)

    def next_key(self, channel: Any) -> Any:
        """Return the key of the next message on *channel*: the n-th send matches the n-th receive."""
        count = self._counts.get(channel, 0)
        self._counts[channel] = count + 1
        return ("point to point", *channel[1:], count)

    def _count_sent(self, source: int, target: int, size: int) -> None:
        pair = (source, target)
        dim = self._dims.get(pair)
        if dim is None:
            self._dims[pair] = dim = self.network.first_difference(source, target)[0]
        self.sent_bytes[self.entity_of[source]][dim] += size

    # ----------------------------------------------------------------------------- phases in closed form

    def add_ring(self, ring: Ring, dim: int) -> None:
        """Register a ring with its entities."""
        for entity, slot in ring.partners:
            self._rings_of.setdefault((entity, slot, dim), []).append(ring)

    def join_phase(self, stream: ChunkStream, spec: PhaseSpec) -> None:
        """Begin a phase at one rank; when all members have begun it, schedule the end of each."""
        scheduler, own = stream.scheduler, stream.phase.ring
        position = own.position[scheduler.rank]
        sent = self.sent_bytes[scheduler.entity]
        for index, size in enumerate(own.traffic(spec, position)):
            sent[index] += size
        if own.one_class:
            self._leave(stream, spec, self.clock.now + own.done_ns(spec, (0,))[position])
            return
        dim = stream.phase.queue // self.queues_per_dim
        for ring in self._rings_of[scheduler.entity, stream.slot, dim]:
            key = (id(ring), stream.ordinal, stream.next_phase, spec)  # members in another phase never complete this
            arrivals = self._arrivals.get(key)
            if arrivals is None:
                self._arrivals[key] = arrivals = _Arrivals(ring)
            if arrivals.arrive(scheduler.entity, stream.slot, self.clock.now, stream if ring is own else None):
                del self._arrivals[key]
                done = ring.done_ns(spec, arrivals.starts)
                for waiting_stream in arrivals.streams:
                    self._leave(waiting_stream, spec, done[ring.position[waiting_stream.scheduler.rank]])

    def _leave(self, stream: ChunkStream, spec: PhaseSpec, time: int) -> None:
        scheduler = stream.scheduler
        self.clock.of_rank_at(scheduler.entity, time, time - _last_ns(stream, spec), scheduler.proceed, stream)

    def finish_chunks(self, stream: ChunkStream, spec: PhaseSpec, *, chunks: int, turns: int) -> None:
        """Schedule the end of a collective of *chunks* equal to *stream*, which pass in *turns*."""
        scheduler, ring = stream.scheduler, stream.phase.ring
        position = ring.position[scheduler.rank]
        sent = self.sent_bytes[scheduler.entity]
        for index, size in enumerate(ring.traffic(spec, position)):
            sent[index] += size * chunks
        time = self.clock.now + turns * ring.done_ns(spec, (0,))[position]
        collective = stream.collective
        decided = time - _last_ns(stream, spec)
        self.clock.of_rank_at(scheduler.entity, time, decided, collective.done, collective.row)

    def through_switch(self, stream: ChunkStream, up: int, down: int, action: Action) -> None:
        """Send *up* bytes to the switch; when it has those of all members, it sends *down* bytes to each."""
        rank, ring = stream.scheduler.rank, stream.phase.ring
        dim, _ = self.network.first_difference(rank, ring.ranks[ring.position[rank] - 1])
        self.sent_bytes[stream.scheduler.entity][dim] += up
        self.fabric.to_switch(rank, dim, up, self._at_switch, (stream, dim, max(up, down), action))

    def _at_switch(self, entry: tuple[ChunkStream, int, int, Action]) -> None:
        stream = entry[0]
        dim = stream.phase.queue // self.queues_per_dim
        for ring in self._rings_of[stream.scheduler.entity, stream.slot, dim]:
            key = (id(ring), stream.ordinal, stream.next_phase)
            entries = self._switches.setdefault(key, [])
            entries.append(entry)
            # The switch reduces: it sends nothing down before the buffers of all members are there.
            if len(entries) < len(ring.partners):
                continue
            del self._switches[key]
            for member, dimension, size, action in entries:
                if member.phase.ring is ring:
                    self.fabric.from_switch(member.scheduler.rank, dimension, size, action, None)

    # ----------------------------------------------------------------------------- custom collectives

    def issue_scripted(self, stream: ChunkStream, script: RankTrace, row: int, done: Callable[[int], None]) -> None:
        """Issue a row of a custom collective's trace; its peers are positions in the group."""
        template, scheduler, ring = script.template, stream.scheduler, stream.phase.ring
        kind = NodeType(int(template.type[row]))
        if kind not in (NodeType.COMM_SEND, NodeType.COMM_RECV):
            duration = max(1, 1000 * int(template.duration_us[row]))
            self.clock.of_rank(scheduler.entity, duration, done, row)
            return
        peer = ring.ranks[script.peers[int(template.peer[row])]]
        size, tag = int(template.comm_size[row]), int(template.comm_tag[row])
        if kind == NodeType.COMM_SEND:
            key = self.next_key(("send", scheduler.rank, peer, tag, size))
            self.post_send(scheduler.rank, peer, size, key, (done, row), direct=True)
        else:
            key = self.next_key(("receive", peer, scheduler.rank, tag, size))
            self.post_receive(scheduler.rank, peer, key, done, row)


def _last_ns(stream: ChunkStream, spec: PhaseSpec) -> int:
    """Return the last delay of a phase: of a packet at the endpoint, or of a reduction."""
    if spec.algorithm in ("ring", "direct") and spec.kind == CollectiveType.REDUCE_SCATTER:
        return reduction_ns(spec.size // len(stream.phase.ring), spec.memory_bytes_per_s)
    return spec.endpoint_ns


class _Arrivals:
    """The members that have begun a phase so far."""

    __slots__ = ("missing", "ring", "starts", "streams")

    def __init__(self, ring: Ring) -> None:
        self.ring, self.missing = ring, len(ring.partners)
        self.starts = [0] * len(ring)
        self.streams: list[ChunkStream] = []

    def arrive(self, entity: int, slot: int, now: int, stream: ChunkStream | None) -> bool:
        """Record that an entity has begun, and return whether all have."""
        for position in self.ring.partners[entity, slot]:
            self.starts[position] = now
        if stream is not None:
            self.streams.append(stream)
        self.missing -= 1
        return self.missing == 0


class _Memory:
    """Remote memory: private, or one request at a time for each node, or for all."""

    def __init__(self, memory: RemoteMemory, clock: EventClock[int]) -> None:
        self.spec, self._clock = memory, clock
        self._busy: set[int] = set()
        self._waiting: dict[int, deque[tuple[int, int, Action, Any]]] = {}

    def access(self, rank: int, size: int, action: Action, argument: Any) -> None:
        """Load or store *size* bytes, then call *action*."""
        spec = self.spec
        duration = spec.latency_ns + check_time(size / spec.bandwidth_gb_per_s)
        if spec.type == "PER_NPU_MEMORY_EXPANSION":
            self._clock.of_rank(rank, duration, action, argument)
            return
        store = rank // spec.npus_per_node if spec.type == "PER_NODE_MEMORY_EXPANSION" else 0
        request = (rank, duration, action, argument)
        if store in self._busy:
            self._waiting.setdefault(store, deque()).append(request)
        else:
            self._busy.add(store)
            self._serve(store, request)

    def _serve(self, store: int, request: tuple[int, int, Action, Any]) -> None:
        rank, duration, action, argument = request
        self._clock.of_rank(rank, duration, self._served, (store, action, argument))

    def _served(self, access: tuple[int, Action, Any]) -> None:
        store, action, argument = access
        if waiting := self._waiting.get(store):
            self._serve(store, waiting.popleft())
        else:
            self._busy.discard(store)
        action(argument)


# ---- One simulated rank


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


class NodeAction(IntEnum):
    """What issuing a node does."""

    SKIP = 0
    RUN = 1
    COLLECTIVE = 2
    SEND = 3
    RECEIVE = 4
    MEMORY = 5


_NONE, _RUN, _COLLECTIVE = int(Slot.NONE), int(NodeAction.RUN), int(NodeAction.COLLECTIVE)
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
        elif action == NodeAction.SKIP:
            self._release(row)
        elif action == NodeAction.MEMORY:
            self.world.memory.access(self.rank, self.work.size[row], self.complete, row)
        else:
            self._exchange(row, action)

    def _exchange(self, row: int, action: int) -> None:
        peer, channel = self.channels[row]
        world = self.world
        if action == NodeAction.SEND:
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

    def is_tied(self, clock: EventClock[int], decider: int) -> bool:
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
