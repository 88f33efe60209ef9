"""Collectives in chunks: each passes through the network's dimensions, and waits its turn in each.

A rank has queues for every dimension. A chunk (a *stream*) enters the queue of its phase's dimension, runs when one of
the few places there is free, and goes on to the next. A new collective goes before or behind those that wait, by the
scheduling policy.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cosmic.simulation.event.bus import Bus
from cosmic.simulation.event.clock import Action
from cosmic.simulation.event.machines import Direct, InSwitch, Machine, Scripted, Stepwise, TreeReduction
from cosmic.simulation.event.network import Ambiguous
from cosmic.simulation.event.planning import Phase, Planner, Where
from cosmic.simulation.event.rings import ALL, GIVEN, Course, reduction_ns
from cosmic.traces.trace import CollectiveType, RankTrace

if TYPE_CHECKING:
    from cosmic.simulation.event.world import World

GROUP_ENDPOINT_NS = 10
"""ASTRA-sim's endpoint delay within a group smaller than the network, whatever the settings say."""
MACHINES: dict[str, Callable[[Stream], Machine]] = {
    "ring": Stepwise,
    "halvingDoubling": Stepwise,
    "direct": Direct,
    "doubleBinaryTree": TreeReduction,
    "inSwitch": InSwitch,
}


class Collective:
    """A collective that a rank has begun, and what it tells when all its chunks are done."""

    __slots__ = ("done", "left", "row")

    def __init__(self, row: int, done: Callable[[int], None]) -> None:
        self.row, self.done, self.left = row, done, 0

    def stream_done(self) -> None:
        """Count one chunk as done."""
        self.left -= 1
        if self.left == 0:
            self.done(self.row)


class Stream:
    """A chunk on its way."""

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
        "script",
        "slot",
        "unit",
    )

    def __init__(self, unit: Unit, collective: Collective, phases: tuple[Phase, ...], slot: int) -> None:
        self.unit, self.collective, self.phases, self.slot = unit, collective, phases, slot
        self.ordinal = unit.count_stream(slot)
        self.next_phase = self.priority = self.endpoint_ns = 0
        self.running = self.in_group = self.fast = False
        """`in_group`: among some ranks only; `fast`: packets take ASTRA-sim's short cut of groups."""
        self.phase = phases[0]
        self.script: RankTrace | None = None

    @property
    def to_go(self) -> int:
        """Phases after this one."""
        return len(self.phases) - self.next_phase

    def advance(self) -> None:
        """Enter the next phase, waiting."""
        world = self.unit.world
        self.phase = phase = self.phases[self.next_phase]
        self.next_phase += 1
        self.running = False
        self.in_group = self.slot != ALL and len(phase.ring.ranks) < world.network.npus
        self.fast = self.in_group and world.compat and phase.algorithm.name != "doubleBinaryTree"
        self.endpoint_ns = GROUP_ENDPOINT_NS if self.fast else world.system.endpoint_delay_ns

    def begin(self) -> None:
        """Run the phase: at once where its course is known, else message by message."""
        self.running = True
        world = self.unit.world
        if self.script is not None:
            Scripted(self, self.script).begin()
            return
        course = self.course()
        if course is None:
            MACHINES[self.phase.algorithm.name](self).begin()
        else:
            world.meet(self, course)

    def course(self) -> Course | None:
        """Return the phase as a closed form, if it has one."""
        world, phase = self.unit.world, self.phase
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
        return Course(name, phase.kind, phase.size, phase.clockwise, self.endpoint_ns, rate)

    # What machines do.

    def endpoint(self, size: int, reduces: int, action: Action, *, outward: bool = False, last: bool = True) -> None:
        """Take a packet between NPU and network, add it to another if it *reduces*, and then act.

        Only a shared bus cares whether it goes *outward*, and whether it is the *last* to come inward.
        """
        world, unit = self.unit.world, self.unit
        if reduces:
            then: Action = self._reduce
            argument: Any = (reduction_ns(reduces, world.system.memory_bytes_per_s), action)
        else:
            then, argument = action, None
        if unit.bus is None or self.fast:
            world.clock.of_rank(unit.entity, self.endpoint_ns, then, argument)
        else:
            processed, back = bool(reduces), not (outward or last)
            unit.bus.request(size, outward=outward, processed=processed, sent_back=back, done=lambda _: then(argument))

    def _reduce(self, after: tuple[int, Action]) -> None:
        self.unit.world.clock.of_rank(self.unit.entity, *after, None)

    def send(self, position: int, size: int, step: Any) -> None:
        """Send to the member at *position*; *step* tells the messages of a phase apart."""
        phase, ring = self.phase, self.phase.ring
        member = (ring.entities[position], ring.slots[position])
        key = (*member, self.ordinal, self.next_phase, phase.kind, phase.size, step)
        self.unit.world.post_send(self.unit.rank, ring.ranks[position], size, key, None)

    def receive(self, position: int, step: Any, action: Action) -> None:
        """Act when the message of the member at *position* is there."""
        phase = self.phase
        key = (self.unit.entity, self.slot, self.ordinal, self.next_phase, phase.kind, phase.size, step)
        self.unit.world.post_receive(self.unit.rank, phase.ring.ranks[position], key, action, None)

    def through_switch(self, up: int, down: int, action: Action) -> None:
        """Send to the switch, and act when it has answered all members."""
        self.unit.world.through_switch(self, up, down, action)

    def issue_scripted(self, script: RankTrace, row: int, done: Callable[[int], None]) -> None:
        """Do what a row of a scripted collective says."""
        self.unit.world.issue_scripted(self, script, row, done)

    def leave(self) -> None:
        """End the phase."""
        self.unit.proceed(self)

    def leave_later(self) -> None:
        """End the phase, but not while others are being begun."""
        self.unit.world.clock.of_rank(self.unit.entity, 0, self.unit.proceed, self)


class Unit:
    """What runs the collectives of a rank."""

    def __init__(self, world: World, entity: int, rank: int) -> None:
        self.world, self.entity, self.rank = world, entity, rank
        system = world.system
        self.bus = Bus(world.clock, entity, system.bus, system.local_reduction_delay) if system.bus else None
        dims, per_dim = len(world.network.dims), world.queues_per_dim
        self._queues: list[list[Stream]] = [[] for _ in range(dims * per_dim)]
        self._running = [0] * (dims * per_dim)
        self._places = -(-system.active_chunks // per_dim)
        self._planner = Planner(world)
        self._newest = 0
        self._streams: dict[int, int] = {}
        self._entered = [(-1, -1)] * (dims * per_dim)
        """By queue: when a stream came last, and from which queue."""
        self._left: list[tuple[int, Stream | None]] = [(-1, None)] * (dims * per_dim)
        """By queue: when a stream went last, and which."""

    def count_stream(self, slot: int) -> int:
        """Return how many streams the group in *slot* has had, and count one more."""
        count = self._streams.get(slot, 0)
        self._streams[slot] = count + 1
        return count

    def streams_of(self, slot: int) -> int:
        """Return how many streams the group in *slot* has had."""
        return self._streams.get(slot, 0)

    def start(self, collective: Collective, kind: CollectiveType, size: int, where: Where) -> None:
        """Cut a collective into chunks, and send each on its way."""
        priority = self._priority(where.priority)
        if where.script is not None:
            self._start_scripted(collective, where, priority)
            return
        levels = where.levels
        if levels and levels[0].algorithm.name == GIVEN and levels[0].ring.alike:
            self.world.clock.of_rank(self.entity, size, collective.done, collective.row)
            return
        begun = self._planner.streams(kind, size, levels) if levels else []
        if not begun:
            self.world.clock.of_rank(self.entity, 0, collective.done, collective.row)
            return
        if self._ends_at_once(collective, begun, where.slot):
            return
        collective.left = len(begun)
        for phases in begun:
            stream = Stream(self, collective, phases, where.slot)
            stream.priority = priority
            self.proceed(stream)

    def _ends_at_once(self, collective: Collective, begun: list[tuple[Phase, ...]], slot: int) -> bool:
        """Foresee the end of equal chunks of one phase that nothing delays: they pass in turns, each as long."""
        world, phase = self.world, begun[0][0]
        alone = len(begun[0]) == 1 and phase.ring.alike and not self._queues[phase.queue]
        if not (world.closed_forms and world.queues_per_dim == 1 and alone and begun[0] == begun[-1]):
            return False
        stream = Stream(self, collective, begun[0], slot)
        stream.advance()
        course = stream.course()
        if course is None:
            self._streams[slot] -= 1
            return False
        self._streams[slot] += len(begun) - 1
        world.foresee(stream, course, chunks=len(begun), turns=-(-len(begun) // self._places))
        return True

    def _start_scripted(self, collective: Collective, where: Where, priority: int) -> None:
        """A collective given as a trace is one stream of one phase, in the first dimension's queue."""
        queue, clockwise = self._planner.turns[0].next_any()
        level = where.levels[0]
        phase = Phase(queue, CollectiveType.ALL_REDUCE, level.ring, level.algorithm, 0, 0, clockwise, 0)
        collective.left = 1
        stream = Stream(self, collective, (phase,), where.slot)
        stream.priority, stream.script = priority, where.script
        self.proceed(stream)

    def _priority(self, explicit: int) -> int:
        policy = self.world.system.scheduling_policy
        if policy == "EXPLICIT":
            return explicit
        newest = self._newest
        self._newest += 1 if policy == "LIFO" else -1
        return newest

    # The queues.

    def proceed(self, stream: Stream) -> None:
        """Take a stream to its next phase, or let it end."""
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

    def _check_order(self, stream: Stream, before: int, *, ends: bool) -> None:
        """Refuse to guess which of two streams comes first that enter a queue at one moment from different ones.

        If new ones do not go behind the others, it also matters whether one has left at that moment.
        """
        now, queue = self.world.clock.now, stream.phase.queue
        sorted_in = self.world.system.intra_dimension_scheduling != "FIFO"
        if sorted_in and self._entered[before][0] == now and self._queues[before]:
            raise Ambiguous
        self._left[before] = (now, stream)
        if ends:
            return
        last, other = self._entered[queue]
        if len(self._queues[queue]) >= self._places:
            left, who = self._left[queue]
            if (last == now and other != before) or (sorted_in and left == now and who is not stream):
                raise Ambiguous
        self._entered[queue] = (now, before)

    def _serve(self, queue: int) -> None:
        streams = self._queues[queue]
        while self._running[queue] < min(self._places, len(streams)):
            self._running[queue] += 1
            streams[self._running[queue] - 1].begin()

    def _place(self, queue: list[Stream], stream: Stream) -> int:
        """Return where in a queue a stream goes: behind what runs, and by the rule within a dimension."""
        rule = self.world.system.intra_dimension_scheduling
        if rule == "FIFO":  # what waits is sorted then
            running = min(self._running[stream.phase.queue], len(queue))
            return bisect_right(queue, -stream.priority, running, key=lambda other: -other.priority)
        if stream.phase.kind in (CollectiveType.ALL_TO_ALL, CollectiveType.ALL_REDUCE):
            return _first(queue, lambda other: other.priority < stream.priority)
        if rule == "RG":
            return _alternating(queue, stream)
        if rule == "smallestFirst":
            if stream.to_go == 1:
                return len(queue)
            return _first(queue, lambda other: _extent(other) >= _extent(stream))
        return _first(queue, lambda other: other.to_go >= stream.to_go)


def _first(queue: list[Stream], before: Callable[[Stream], bool]) -> int:
    for place, other in enumerate(queue):
        if not other.running and before(other):
            return place
    return len(queue)


def _extent(stream: Stream) -> int:
    return max(stream.phase.size, stream.phase.final)


def _alternating(queue: list[Stream], stream: Stream) -> int:
    """Return a place that lets scattering and gathering take turns."""
    pair = {CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_GATHER}
    place, last = 0, None
    while place < len(queue):
        other = queue[place]
        previous, last = last, other.phase.kind
        if other.running:
            place += 1
            if place < len(queue) and not queue[place].running:
                previous, last = last, queue[place].phase.kind
                place += 1
        elif other.priority > stream.priority or {last, previous} == pair:
            place += 1
        else:
            break
    return place
