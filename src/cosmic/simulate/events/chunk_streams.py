"""Collectives in chunks: each chunk passes through the network's dimensions, and queues in each.

A rank has queues for every dimension. A chunk (a *stream*) enters the queue of its phase's dimension, runs when one of
the few places there is free, and continues with its next phase. The scheduling policy places a new collective before or
behind those that wait.

A state machine simulates one phase of a collective at one rank, message by message. It begins when its stream's turn
comes, and ends the phase itself. Each packet crosses the endpoint (a delay, then a reduction if needed) before the
machine continues. There is one machine for each algorithm.

The bus between an NPU and its network interface is modelled if the system sets ASTRA-sim's `model-shared-bus`.
Each side of the bus sends one packet at a time. LogGP's parameters: overhead *o* to hand a packet over, gap *g* between
two packets, gap *G* per byte, latency *L*. The receiver may process a packet and may send it back. The NPU's side
crosses a second, faster bus to its memory each time; packets there are neither processed nor sent back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from cosmic.base.event_clock import Action, EventClock
from cosmic.simulate.events.astra_sim_inputs import SharedBus
from cosmic.simulate.events.collective_planner import ChunkPhase, CollectivePlacement, CollectivePlanner
from cosmic.simulate.events.collective_rings import (
    ALL,
    GIVEN,
    NO_MEMBER,
    PhaseSpec,
    algorithm_steps,
    double_binary_trees,
    reduction_ns,
)
from cosmic.simulate.events.message_fabrics import AmbiguousOrder
from cosmic.traces.dependencies import list_dependents
from cosmic.traces.trace import CollectiveType, RankTrace

if TYPE_CHECKING:
    from cosmic.simulate.events.simulation_world import World


# ---- one phase at one rank


class PhaseMachine(Protocol):
    """Simulates a phase."""

    def begin(self) -> None:
        """Begin the phase."""


class StepwiseMachine:
    """One round at a time: send, receive, continue; rounds of ASTRA-sim's algorithms have one packet."""

    def __init__(self, stream: ChunkStream) -> None:
        phase = stream.phase
        self._stream, self._step, self._waiting = stream, 0, 0
        self._position = phase.ring.position[stream.scheduler.rank]
        self._program = algorithm_steps(phase.algorithm.name, phase.kind, len(phase.ring), phase.size, phase.clockwise)
        members = len(phase.ring)
        self._turn = members if phase.algorithm.name == "ring" else members.bit_length() - 1

    def begin(self) -> None:
        """Take the first packet to the network."""
        self._stream.endpoint(self._program[0].size, 0, self._go, outward=True)

    def _go(self, _: Any) -> None:
        stream, program = self._stream, self._program
        while self._step < len(program):
            sent = received = False
            self._waiting = 1  # for the end of the round: what it receives may be there already
            more = True
            while more:
                step, key = program[self._step], self._step
                self._step += 1
                more = step.more
                to, source = int(step.to[self._position]), int(step.source[self._position])
                if to != NO_MEMBER:
                    sent = True
                    stream.send(to, step.size, key)
                if source != NO_MEMBER:
                    received = True
                    self._waiting += 1
                    stream.receive(source, key, self._received)
            if received:
                self._received(None)
                return
            # A member that a round leaves out goes on to the next at once.
            if sent:
                stream.endpoint(step.size, 0, self._go, outward=True)
                return
        stream.leave()

    def _received(self, _: Any) -> None:
        self._waiting -= 1
        if self._waiting:
            return
        done = self._program[self._step - 1]
        turn = self._step % self._turn  # a turn ends where scatter becomes gather
        size = self._program[min(self._step, len(self._program) - 1)].size
        self._stream.endpoint(size, done.reduces, self._go, outward=turn == 0, last=turn == self._turn - 1)


class Direct:
    """Packets to all other members, a window of them at once; an all-reduce is two such rounds.

    Packets are counted, not identified: the next one leaves whenever one is free, and the second round begins when all
    packets of the first have arrived. In ASTRA-sim's groups the second round reduces too.
    """

    def __init__(self, stream: ChunkStream) -> None:
        phase = stream.phase
        self._stream, self._ring = stream, phase.ring
        self._kind, self._others = phase.kind, len(phase.ring) - 1
        self._position = phase.ring.position[stream.scheduler.rank]
        self._way = 1 if phase.clockwise else -1
        self._part = phase.size if phase.kind == CollectiveType.ALL_GATHER else phase.size // len(phase.ring)
        self._window = min(phase.algorithm.window or self._others, self._others)
        self._packets = self._others * (2 if phase.kind == CollectiveType.ALL_REDUCE else 1)
        self._reducing = self._window * (self._others if stream.in_group else 1)
        self._inserted = self._sent = self._free = self._arrived = 0

    def begin(self) -> None:
        """Take a window of packets to the network."""
        for _ in range(self._window):
            self._insert()

    def _insert(self) -> None:
        """Take one more packet through the endpoint: a window of plain packets, then some that reduce, and so on."""
        turn, position = divmod(self._inserted, self._window + self._reducing)
        self._inserted += 1
        first_round = self._kind == CollectiveType.ALL_REDUCE and turn % 2 == 0
        reduces = position >= self._window and (first_round or self._kind == CollectiveType.REDUCE_SCATTER)
        outward, last = position < self._window, position >= self._reducing
        self._stream.endpoint(self._part, self._part if reduces else 0, self._go, outward=outward, last=last)

    def _go(self, _: Any) -> None:
        self._free += 1
        unsent = self._packets - self._sent
        if self._kind == CollectiveType.ALL_REDUCE and unsent <= self._others:
            # The second round of an all-reduce sends what the first has reduced: it waits for all packets
            # of the first.
            if self._arrived < self._others:
                return
            for _ in range(self._window):
                self._send_next()
        else:
            self._send_next()
        if self._sent == self._packets and self._free == self._window:
            self._stream.leave()

    def _send_next(self) -> None:
        if self._sent == self._packets or self._free == 0 or self._sent == self._inserted:
            return
        distance = self._way * (self._sent % self._others + 1)
        self._stream.send((self._position + distance) % len(self._ring), self._part, self._sent)
        self._stream.receive((self._position - distance) % len(self._ring), self._sent, self._received)
        self._sent += 1
        self._free -= 1

    def _received(self, _: Any) -> None:
        self._arrived += 1
        self._insert()


class TreeMachine:
    """Up a binary tree and down again, whole chunks; each arrival at an inner node takes a reduction."""

    def __init__(self, stream: ChunkStream) -> None:
        phase = stream.phase
        self._stream, self._size = stream, phase.size
        self._position = phase.ring.position[stream.scheduler.rank]
        tree = double_binary_trees(len(phase.ring))[phase.tree]
        self._parent, self._children = tree.parent[self._position], tree.children[self._position]
        self._arrived = self._reduced = 0

    def begin(self) -> None:
        """Wait for the children; a leaf sends at once."""
        if not self._children:
            self._stream.endpoint(self._size, 0, self._upwards, outward=True)
        for child in self._children:
            self._stream.receive(child, ("up", child), self._from_child)

    def _from_child(self, _: Any) -> None:
        self._arrived += 1
        first_of_two = self._arrived == 1 and self._parent != NO_MEMBER
        self._stream.endpoint(self._size, self._size, self._added, last=first_of_two)

    def _added(self, _: Any) -> None:
        self._reduced += 1
        if self._reduced == len(self._children):
            self._upwards(None)

    def _upwards(self, _: Any) -> None:
        if self._parent == NO_MEMBER:
            self._downwards(None)
            return
        self._stream.send(self._parent, self._size, ("up", self._position))
        self._stream.receive(self._parent, "down", self._from_parent)

    def _from_parent(self, _: Any) -> None:
        reduces = self._size if self._children else 0
        self._stream.endpoint(self._size, reduces, self._downwards, last=not self._children)

    def _downwards(self, _: Any) -> None:
        for child in self._children:
            self._stream.send(child, self._size, "down")
        self._stream.leave()


class InSwitchMachine:
    """The switch reduces: in an all-reduce every member sends its buffer once and receives the sum once.

    In other collectives members send or receive the shards of others, or both.
    """

    def __init__(self, stream: ChunkStream) -> None:
        phase, members = stream.phase, len(stream.phase.ring)
        self._stream = stream
        gathers = phase.kind == CollectiveType.ALL_GATHER
        shard, total = (phase.size, phase.size * members) if gathers else (phase.size // members, phase.size)
        self._up, self._down = {
            CollectiveType.ALL_REDUCE: (total, total),
            CollectiveType.ALL_GATHER: (shard, total - shard),
            CollectiveType.REDUCE_SCATTER: (total - shard, shard),
        }.get(phase.kind, (total - shard, total - shard))

    def begin(self) -> None:
        """Take the buffer to the network."""
        self._stream.endpoint(self._up, 0, self._send, outward=True)

    def _send(self, _: Any) -> None:
        self._stream.through_switch(self._up, self._down, self._received)

    def _received(self, _: Any) -> None:
        self._stream.endpoint(self._down, 0, self._leave)

    def _leave(self, _: Any) -> None:
        self._stream.leave()


class ScriptedMachine:
    """A custom collective, given as a trace of sends, receives and computations; no slots, no chunks."""

    def __init__(self, stream: ChunkStream, script: RankTrace) -> None:
        self._stream, self._script = stream, script
        template = script.template
        self._waiting, self._children = list_dependents(template)
        self._left = template.nodes

    def begin(self) -> None:
        """Issue the nodes without dependencies."""
        free = [row for row, waits in enumerate(self._waiting) if waits == 0]
        if not free:
            self._stream.leave_later()
        for row in free:
            self._stream.issue_scripted(self._script, row, self._finished)

    def _finished(self, row: int) -> None:
        self._left -= 1
        for child in self._children[row]:
            self._waiting[child] -= 1
            if self._waiting[child] == 0:
                self._stream.issue_scripted(self._script, child, self._finished)
        if self._left == 0:
            self._stream.leave()


# ---- chunks in queues


# ---- The bus between an NPU and its network interface, modelled if the system sets ASTRA-sim's `model-shared-bus`

MEMORY_GAP_NS_PER_BYTE = 0.0038
FAIR_READS = 8
"""After this many packets in a row the other side goes first."""
FREE, SENDING, RECEIVING = range(3)


@dataclass(slots=True)
class _Packet:
    size: int
    processed: bool
    sent_back: bool
    done: Action


class SharedBusSimulation:
    """Both sides of a rank's bus."""

    def __init__(self, clock: EventClock[int], entity: int, spec: SharedBus, reduction_delay: int) -> None:
        def side(spec: SharedBus) -> _BusSide:
            return _BusSide(clock, entity, spec, reduction_delay)

        self._npu, self._interface = side(spec), side(spec)
        inner = replace(spec, gap_ns_per_byte=MEMORY_GAP_NS_PER_BYTE)
        memory = side(inner), side(inner)
        for near, opposite in ((self._npu, self._interface), memory):
            near.partner, opposite.partner = opposite, near
        self._npu.memory = memory

    def request(self, size: int, *, outward: bool, processed: bool, sent_back: bool, done: Action) -> None:
        """Move a packet from the NPU *outward*, or towards it, and call *done* when it arrives."""
        side = self._npu if outward else self._interface
        side.request(_Packet(size, processed, sent_back, done))


class _BusSide:
    """One side of a bus."""

    partner: _BusSide

    def __init__(self, clock: EventClock[int], entity: int, spec: SharedBus, reduction_delay: int) -> None:
        self._clock, self._entity, self._spec, self._reduction_delay = clock, entity, spec, reduction_delay
        self.memory: tuple[_BusSide, _BusSide] | None = None
        """The NPU's and the memory's side of the bus to memory, if this side has one."""
        self._state = self._before = FREE
        self._last = self._reads = 0
        self._processing = False
        self._sends: deque[_Packet] = deque()
        self._receives: deque[_Packet] = deque()
        self._to_process: deque[_Packet] = deque()

    def request(self, packet: _Packet) -> None:
        """Send a packet to the other side, from memory if there is one."""
        if self.memory is not None:
            self.memory[1].request(_Packet(packet.size, False, False, lambda _: self._send_later(packet)))
            return
        self._sends.append(packet)
        self._send_next()

    def _send_later(self, packet: _Packet) -> None:
        self._sends.append(packet)
        self._send_next()

    def _after(self, delay: float, action: Action) -> None:
        self._clock.of_rank(self._entity, int(delay), action, None)

    def _send_next(self) -> None:
        if self._state != FREE or not self._sends:
            return
        other = self.partner
        # After several packets in a row the other side gets the bus, so that neither starves.
        if self._reads > FAIR_READS and other._sends and other._reads <= FAIR_READS:
            other._send_next()
            return
        spec, since = self._spec, self._clock.now - self._last
        # LogGP: sends are at least a gap g apart; once it has passed, only the overhead o remains.
        rested = self._before != SENDING or spec.overhead_ns + since > spec.gap_ns
        offset = spec.overhead_ns if rested else spec.gap_ns - since
        packet = self._sends.popleft()
        serial = spec.gap_ns_per_byte * max(0, packet.size - 1)
        other._receive(packet, offset + serial + spec.latency_ns + spec.overhead_ns)
        self._state = SENDING
        self._after(offset + serial, self._sent)

    def _sent(self, _: Any) -> None:
        self._last, self._before, self._state = self._clock.now, self._state, FREE
        self._reads += 1
        self._send_next()

    def _receive(self, packet: _Packet, delay: float) -> None:
        self._receives.append(packet)
        self._before, self._state = self._state, RECEIVING
        self._after(delay, self._received)
        self._reads = 0

    def _received(self, _: Any) -> None:
        self._last, self._before = self._clock.now, self._state
        if len(self._receives) < 2:
            self._state = FREE
        packet = self._receives.popleft()
        if packet.processed:
            packet.processed = False
            self._through_memory(packet, self._process)
            self._process_next()
        else:
            self._pass_on(packet)
        self._send_next()

    def _through_memory(self, packet: _Packet, then: Callable[[_Packet], None], *, back: bool = True) -> None:
        """Take a packet to memory (and *back*), if there is one, then call *then*."""
        if self.memory is None:
            then(packet)
        else:
            self.memory[0].request(_Packet(packet.size, False, back, lambda _: then(packet)))

    def _pass_on(self, packet: _Packet) -> None:
        if packet.sent_back:
            packet.sent_back = False
            self._through_memory(packet, self._return)
        else:
            self._through_memory(packet, self._retire, back=False)

    def _return(self, packet: _Packet) -> None:
        self._sends.append(packet)
        self._send_next()

    def _retire(self, packet: _Packet) -> None:
        packet.done(None)
        self._send_next()

    def _process(self, packet: _Packet) -> None:
        self._to_process.append(packet)
        self._process_next()
        self._send_next()

    def _process_next(self) -> None:
        if not self._processing and self._to_process:
            self._processing = True
            self._after(self._to_process[0].size // 100 * self._reduction_delay + 50, self._processed)

    def _processed(self, _: Any) -> None:
        self._processing = False
        self._pass_on(self._to_process.popleft())
        self._process_next()
        self._send_next()


GROUP_ENDPOINT_NS = 10
"""ASTRA-sim's endpoint delay within a group smaller than the network, whatever the settings say."""
MACHINES: dict[str, Callable[[ChunkStream], PhaseMachine]] = {
    "ring": StepwiseMachine,
    "halvingDoubling": StepwiseMachine,
    "direct": Direct,
    "doubleBinaryTree": TreeMachine,
    "inSwitch": InSwitchMachine,
}


class RunningCollective:
    """A collective that a rank has begun; it calls *done* when all its chunks are done."""

    __slots__ = ("done", "left", "row")

    def __init__(self, row: int, done: Callable[[int], None]) -> None:
        self.row, self.done, self.left = row, done, 0

    def stream_done(self) -> None:
        """Count one chunk as done."""
        self.left -= 1
        if self.left == 0:
            self.done(self.row)


class ChunkStream:
    """A chunk in progress."""

    __slots__ = (
        "collective",
        "endpoint_ns",
        "fast",
        "in_group",
        "next_phase",
        "ordinal",
        "phase",
        "phases",
        "priority",
        "running",
        "scheduler",
        "script",
        "slot",
    )

    def __init__(
        self, scheduler: CollectiveScheduler, collective: RunningCollective, phases: tuple[ChunkPhase, ...], slot: int
    ) -> None:
        self.scheduler, self.collective, self.phases, self.slot = scheduler, collective, phases, slot
        self.ordinal = scheduler.count_stream(slot)
        self.next_phase = self.priority = self.endpoint_ns = 0
        self.running = self.in_group = self.fast = False
        """`in_group`: not among all ranks; `fast`: packets skip the bus, as in ASTRA-sim's groups."""
        self.phase = phases[0]
        self.script: RankTrace | None = None

    @property
    def to_go(self) -> int:
        """Number of phases after this one."""
        return len(self.phases) - self.next_phase

    def advance(self) -> None:
        """Enter the next phase, in its queue."""
        world = self.scheduler.world
        self.phase = phase = self.phases[self.next_phase]
        self.next_phase += 1
        self.running = False
        self.in_group = self.slot != ALL and len(phase.ring.ranks) < world.network.npus
        self.fast = self.in_group and world.compat and phase.algorithm.name != "doubleBinaryTree"
        self.endpoint_ns = GROUP_ENDPOINT_NS if self.fast else world.system.endpoint_delay_ns

    def begin(self) -> None:
        """Run the phase: in closed form if it has one, else message by message."""
        self.running = True
        world = self.scheduler.world
        if self.script is not None:
            ScriptedMachine(self, self.script).begin()
            return
        spec = self.closed_form()
        if spec is None:
            MACHINES.get(self.phase.algorithm.name, StepwiseMachine)(self).begin()
        else:
            world.join_phase(self, spec)

    def closed_form(self) -> PhaseSpec | None:
        """Return the inputs of the phase's closed form, if it has one."""
        world, phase = self.scheduler.world, self.phase
        name = phase.algorithm.name
        if not world.closed_forms:
            return None
        if name == "direct":
            window = phase.algorithm.window
            if phase.kind == CollectiveType.ALL_REDUCE or (window or len(phase.ring)) < len(phase.ring) - 1:
                return None
        elif name not in ("ring", "halvingDoubling", GIVEN):
            return None
        rate = world.system.memory_bytes_per_s
        return PhaseSpec(name, phase.kind, phase.size, phase.clockwise, self.endpoint_ns, rate)

    # What machines call.

    def endpoint(self, size: int, reduces: int, action: Action, *, outward: bool = False, last: bool = True) -> None:
        """Take a packet between NPU and network, reduce *reduces* bytes, then call *action*.

        *outward*, and *last* of the inward packets, matter only to a shared bus.
        """
        world, scheduler = self.scheduler.world, self.scheduler
        if reduces:
            then: Action = self._reduce
            argument: Any = (reduction_ns(reduces, world.system.memory_bytes_per_s), action)
        else:
            then, argument = action, None
        if scheduler.bus is None or self.fast:
            world.clock.of_rank(scheduler.entity, self.endpoint_ns, then, argument)
        else:
            processed, back = bool(reduces), not (outward or last)
            scheduler.bus.request(
                size, outward=outward, processed=processed, sent_back=back, done=lambda _: then(argument)
            )

    def _reduce(self, after: tuple[int, Action]) -> None:
        self.scheduler.world.clock.of_rank(self.scheduler.entity, *after, None)

    def send(self, position: int, size: int, step: Any) -> None:
        """Send to the member at *position*; *step* identifies the message within the phase."""
        phase, ring = self.phase, self.phase.ring
        member = (ring.entities[position], ring.slots[position], self.scheduler.entity)
        key = (*member, self.ordinal, self.next_phase, phase.kind, phase.size, step)
        self.scheduler.world.post_send(self.scheduler.rank, ring.ranks[position], size, key, None)

    def receive(self, position: int, step: Any, action: Action) -> None:
        """Call *action* when the message of the member at *position* has arrived."""
        phase = self.phase
        member = (self.scheduler.entity, self.slot, phase.ring.entities[position])
        key = (*member, self.ordinal, self.next_phase, phase.kind, phase.size, step)
        self.scheduler.world.post_receive(self.scheduler.rank, phase.ring.ranks[position], key, action, None)

    def through_switch(self, up: int, down: int, action: Action) -> None:
        """Send to the switch, and call *action* when its answer has arrived."""
        self.scheduler.world.through_switch(self, up, down, action)

    def issue_scripted(self, script: RankTrace, row: int, done: Callable[[int], None]) -> None:
        """Issue a row of a custom collective's trace."""
        self.scheduler.world.issue_scripted(self, script, row, done)

    def leave(self) -> None:
        """End the phase."""
        self.scheduler.proceed(self)

    def leave_later(self) -> None:
        """End the phase after the events of this moment, because others are being begun."""
        self.scheduler.world.clock.of_rank(self.scheduler.entity, 0, self.scheduler.proceed, self)


class CollectiveScheduler:
    """Schedules the collectives of a rank: its queues, and the streams in them."""

    def __init__(self, world: World, entity: int, rank: int) -> None:
        self.world, self.entity, self.rank = world, entity, rank
        system = world.system
        self.bus = (
            SharedBusSimulation(world.clock, entity, system.bus, system.local_reduction_delay) if system.bus else None
        )
        dims, per_dim = len(world.network.dims), world.queues_per_dim
        self._queues: list[list[ChunkStream]] = [[] for _ in range(dims * per_dim)]
        self._running = [0] * (dims * per_dim)
        self._places = -(-system.active_chunks // per_dim)
        self._planner = CollectivePlanner(world)
        self._newest = 0
        self._streams: dict[int, int] = {}
        self._entered = [(-1, -1)] * (dims * per_dim)
        """When a stream last entered each queue, and from which queue."""
        self._left: list[tuple[int, ChunkStream | None]] = [(-1, None)] * (dims * per_dim)
        """When a stream last left each queue, and which stream."""

    def count_stream(self, slot: int) -> int:
        """Return the number of streams that the group in *slot* has begun, and count one more."""
        count = self._streams.get(slot, 0)
        self._streams[slot] = count + 1
        return count

    def streams_of(self, slot: int) -> int:
        """Return the number of streams that the group in *slot* has begun."""
        return self._streams.get(slot, 0)

    def start(
        self, collective: RunningCollective, kind: CollectiveType, size: int, placement: CollectivePlacement
    ) -> None:
        """Split a collective into chunks, and queue each."""
        priority = self._priority(placement.priority)
        if placement.script is not None:
            self._start_scripted(collective, placement, priority)
            return
        levels = placement.levels
        if levels and levels[0].algorithm.name == GIVEN and levels[0].ring.one_class:
            self.world.clock.of_rank(self.entity, size, collective.done, collective.row)
            return
        streams = self._planner.streams(kind, size, levels) if levels else []
        if not streams:
            self.world.clock.of_rank(self.entity, 0, collective.done, collective.row)
            return
        if self._ends_at_once(collective, streams, placement.slot):
            return
        collective.left = len(streams)
        for phases in streams:
            stream = ChunkStream(self, collective, phases, placement.slot)
            stream.priority = priority
            self.proceed(stream)

    def _ends_at_once(self, collective: RunningCollective, streams: list[tuple[ChunkPhase, ...]], slot: int) -> bool:
        """Schedule the end of equal chunks of one phase that nothing delays, and return whether that was possible."""
        world, phase = self.world, streams[0][0]
        alone = len(streams[0]) == 1 and phase.ring.one_class and not self._queues[phase.queue]
        if not (world.closed_forms and world.queues_per_dim == 1 and alone and streams[0] == streams[-1]):
            return False
        stream = ChunkStream(self, collective, streams[0], slot)
        stream.advance()
        spec = stream.closed_form()
        if spec is None:
            self._streams[slot] -= 1
            return False
        self._streams[slot] += len(streams) - 1
        world.finish_chunks(stream, spec, chunks=len(streams), turns=-(-len(streams) // self._places))
        return True

    def _start_scripted(self, collective: RunningCollective, placement: CollectivePlacement, priority: int) -> None:
        """Start a custom collective: one stream of one phase, in the first dimension's queue."""
        queue, clockwise = self._planner.turns[0].next_any()
        level = placement.levels[0]
        phase = ChunkPhase(queue, CollectiveType.ALL_REDUCE, level.ring, level.algorithm, 0, 0, clockwise, 0)
        collective.left = 1
        stream = ChunkStream(self, collective, (phase,), placement.slot)
        stream.priority, stream.script = priority, placement.script
        self.proceed(stream)

    def _priority(self, explicit: int) -> int:
        policy = self.world.system.scheduling_policy
        if policy == "EXPLICIT":
            return explicit
        newest = self._newest
        self._newest += 1 if policy == "LIFO" else -1
        return newest

    # The queues.

    def proceed(self, stream: ChunkStream) -> None:
        """Take a stream to its next phase, or end it."""
        before = stream.phase.queue if stream.next_phase else None
        ends = stream.to_go == 0
        if ends:
            stream.collective.stream_done()  # may begin others, which then wait behind this one
        if before is not None:
            self._queues[before].remove(stream)
            self._running[before] -= 1
        if not ends:
            stream.advance()
        if before is not None and self.world.checks_order:
            self._check_order(stream, before, ends=ends)
        if not ends:
            queue = self._queues[stream.phase.queue]
            queue.insert(self._place(queue, stream), stream)
        if before is not None:
            self._serve(before)
        if not ends:
            self._serve(stream.phase.queue)

    def _check_order(self, stream: ChunkStream, before: int, *, ends: bool) -> None:
        """Raise `AmbiguousOrder` if two streams enter a queue at one moment from different queues.

        If new streams do not go behind the others, it also matters whether one left at that moment.
        """
        now, queue = self.world.clock.now, stream.phase.queue
        sorted_in = self.world.system.intra_dimension_scheduling != "FIFO"
        if sorted_in and self._entered[before][0] == now and self._queues[before]:
            raise AmbiguousOrder
        self._left[before] = (now, stream)
        if ends:
            return
        last, other = self._entered[queue]
        if len(self._queues[queue]) >= self._places:
            left, who = self._left[queue]
            if (last == now and other != before) or (sorted_in and left == now and who is not stream):
                raise AmbiguousOrder
        self._entered[queue] = (now, before)

    def _serve(self, queue: int) -> None:
        streams = self._queues[queue]
        while self._running[queue] < min(self._places, len(streams)):
            self._running[queue] += 1
            streams[self._running[queue] - 1].begin()

    def _place(self, queue: list[ChunkStream], stream: ChunkStream) -> int:
        """Return a stream's index in a queue: behind running streams, by the intra-dimension scheduling."""
        rule = self.world.system.intra_dimension_scheduling
        if rule == "FIFO":  # waiting streams are sorted then
            running = min(self._running[stream.phase.queue], len(queue))
            return bisect_right(queue, -stream.priority, running, key=lambda other: -other.priority)
        if stream.phase.kind in (CollectiveType.ALL_TO_ALL, CollectiveType.ALL_REDUCE):
            return _first_place(queue, lambda other: other.priority < stream.priority)
        if rule == "RG":
            # Reduce-scatter and all-gather take turns.
            pair = {CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_GATHER}
            index, last = 0, None
            while index < len(queue):
                queued = queue[index]
                previous, last = last, queued.phase.kind
                if queued.running:
                    index += 1
                    if index < len(queue) and not queue[index].running:
                        previous, last = last, queue[index].phase.kind
                        index += 1
                elif queued.priority > stream.priority or {last, previous} == pair:
                    index += 1
                else:
                    break
            return index
        if rule == "smallestFirst":
            if stream.to_go == 1:
                return len(queue)
            return _first_place(queue, lambda other: _extent_of_phase(other) >= _extent_of_phase(stream))
        return _first_place(queue, lambda other: other.to_go >= stream.to_go)


def _first_place(queue: list[ChunkStream], before: Callable[[ChunkStream], bool]) -> int:
    for index, other in enumerate(queue):
        if not other.running and before(other):
            return index
    return len(queue)


def _extent_of_phase(stream: ChunkStream) -> int:
    return max(stream.phase.size, stream.phase.final)
