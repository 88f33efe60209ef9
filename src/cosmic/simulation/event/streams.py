"""Collectives in chunks: each passes through the network's dimensions, and waits its turn in each.

A rank has queues for every dimension. A chunk (a *stream*) enters the queue of its phase's dimension, runs when one of
the few places there is free, and goes on to the next. A new collective goes before or behind those that wait, by the
scheduling policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from cosmic.cost.themis import Kind as ThemisKind
from cosmic.cost.themis import Plan, chunks
from cosmic.errors import SpecError
from cosmic.simulation.event.bus import Bus
from cosmic.simulation.event.clock import Action
from cosmic.simulation.event.inputs import Algorithm
from cosmic.simulation.event.machines import Direct, InSwitch, Machine, Scripted, Stepwise, TreeReduction
from cosmic.simulation.event.rings import ALL, GIVEN, Course, Ring, reduction_ns
from cosmic.traces.trace import CollectiveType, RankTrace

if TYPE_CHECKING:
    from cosmic.simulation.event.world import World

GROUP_ENDPOINT_NS = 10
"""ASTRA-sim's endpoint delay within a group smaller than the network, whatever the settings say."""
THEMIS: dict[CollectiveType, ThemisKind] = {
    CollectiveType.ALL_REDUCE: "all_reduce",
    CollectiveType.ALL_GATHER: "all_gather",
    CollectiveType.REDUCE_SCATTER: "reduce_scatter",
}
MACHINES: dict[str, Callable[[Stream], Machine]] = {
    "ring": Stepwise,
    "halvingDoubling": Stepwise,
    "direct": Direct,
    "doubleBinaryTree": TreeReduction,
    "inSwitch": InSwitch,
}


class Phase(NamedTuple):
    """What a chunk does in one dimension."""

    queue: int
    kind: CollectiveType
    ring: Ring
    algorithm: Algorithm
    size: int
    final: int
    """Bytes afterwards."""
    clockwise: bool
    tree: int
    """Which of the two trees a double binary tree uses."""


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
        course = self._course()
        if course is None:
            MACHINES[self.phase.algorithm.name](self).begin()
        else:
            world.meet(self, course)

    def _course(self) -> Course | None:
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
        ring = self.phase.ring
        key = (ring.entities[position], ring.slots[position], self.ordinal, self.next_phase, step)
        self.unit.world.post_send(self.unit.rank, ring.ranks[position], size, key, None)

    def receive(self, position: int, step: Any, action: Action) -> None:
        """Act when the message of the member at *position* is there."""
        key = (self.unit.entity, self.slot, self.ordinal, self.next_phase, step)
        self.unit.world.post_receive(self.unit.rank, self.phase.ring.ranks[position], key, action, None)

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


@dataclass(slots=True)
class _Turns:
    """Whose turn it is among the queues of a dimension."""

    queues: int
    any: int = 0
    first: int = 0
    last: int = 0

    def next_any(self) -> tuple[int, bool]:
        """Return a queue, and whether its rings run clockwise: the upper half do not."""
        queue = self.any
        self.any = (queue + 1) % self.queues
        return queue, not (self.queues > 1 and queue >= self.queues // 2)

    def next_first(self) -> tuple[int, bool]:
        """Return a queue of the first half."""
        queue = self.first
        self.first = (queue + 1) % max(1, self.queues // 2)
        return queue, True

    def next_last(self) -> tuple[int, bool]:
        """Return a queue of the second half."""
        half = self.queues // 2
        queue = half + self.last
        self.last = (self.last + 1) % (self.queues - half)
        return queue, False


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
        self._turns = [_Turns(per_dim) for _ in range(dims)]
        self._rotation = self._newest = 0
        self._trees: dict[tuple[CollectiveType, int], int] = {}
        self._streams: dict[int, int] = {}

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
        given = levels[0].algorithm.name == GIVEN
        if given and levels[0].ring.alike:
            self.world.clock.of_rank(self.entity, size, collective.done, collective.row)
            return
        begun = []
        for chunk, order in [(size, [0])] if given else self._chunks(kind, size, levels):
            phases = self._plan(kind, chunk, [levels[place] for place in order])
            if phases:
                begun.append(phases)
        if not begun:
            self.world.clock.of_rank(self.entity, 0, collective.done, collective.row)
            return
        collective.left = len(begun)
        for phases in begun:
            stream = Stream(self, collective, phases, where.slot)
            stream.priority = priority
            self.proceed(stream)

    def _start_scripted(self, collective: Collective, where: Where, priority: int) -> None:
        """A collective given as a trace is one stream of one phase, in the first dimension's queue."""
        queue, clockwise = self._turns[0].next_any()
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

    def _chunks(self, kind: CollectiveType, size: int, levels: list[Level]) -> list[tuple[int, list[int]]]:
        """Return the size of every chunk, and in which order it visits the dimensions."""
        system = self.world.system
        chunk = size // system.splits
        if kind != CollectiveType.ALL_GATHER and chunk < self.world.network.npus:
            chunk = self.world.network.npus
            size = system.splits * chunk
        if chunk == 0:
            raise SpecError("comm_size", size, f"an all-gather in {system.splits} chunks needs a byte for each")
        order = list(range(len(levels)))
        if kind == CollectiveType.ALL_GATHER:
            order.reverse()
        inter = system.inter_dimension_scheduling
        if inter.startswith("offlineGreedy") and kind in THEMIS and len(levels) > 1:
            return self._themis(kind, size, levels)
        found = []
        for _ in range(-(-size // chunk)):
            found.append((chunk, order))
            if inter == "roundRobin":
                found[-1] = (chunk, order[self._rotation :] + order[: self._rotation])
                self._rotation = (self._rotation + 1) % len(levels)
        return found

    def _themis(self, kind: CollectiveType, size: int, levels: list[Level]) -> list[tuple[int, list[int]]]:
        system, dims = self.world.system, self.world.network.dims
        plan = Plan(
            npus=tuple(len(level.ring) for level in levels),
            bandwidths=tuple(dims[level.dim].bandwidth_gib_per_s for level in levels),
            size_bytes=size,
            splits=system.splits,
            flexible=system.inter_dimension_scheduling == "offlineGreedyFlex",
            as_in_astra_sim=self.world.compat,
        )
        return [(chunk.size_bytes, list(chunk.order)) for chunk in chunks(THEMIS[kind], plan)]

    def _plan(self, kind: CollectiveType, size: int, levels: list[Level]) -> tuple[Phase, ...]:
        """Return the phases of a chunk that visits *levels* in this order.

        An all-reduce scatters upwards, reduces in the last dimension and gathers downwards; Themis scatters in the
        last one too. As a baseline it is a whole all-reduce in each.
        """
        system = self.world.system
        active = [level for level in levels if len(level.ring) > 1]
        anywhere, first, last = _Turns.next_any, _Turns.next_first, _Turns.next_last
        scatter, gather = CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_GATHER
        if kind != CollectiveType.ALL_REDUCE or system.collective_optimization == "baseline":
            visits = [(level, kind, anywhere) for level in active]
        else:
            lower = active
            visits = []
            if not system.inter_dimension_scheduling.startswith("offlineGreedy"):
                lower = active[:-1]
                visits = [(level, kind, first) for level in active[-1:]]
            visits = [
                *((level, scatter, first) for level in lower),
                *visits,
                *((level, gather, last) for level in reversed(lower)),
            ]
        phases = []
        for level, part, turn in visits:
            queue, clockwise = turn(self._turns[level.dim])
            final = after(level.algorithm, part, size, len(level.ring))
            tree = self._next_tree(kind, level) if level.algorithm.name == "doubleBinaryTree" else 0
            queue += level.dim * self.world.queues_per_dim
            phases.append(Phase(queue, part, level.ring, level.algorithm, size, final, clockwise, tree))
            size = final
        return tuple(phases)

    def _next_tree(self, kind: CollectiveType, level: Level) -> int:
        key = (kind, level.dim)
        tree = self._trees.get(key, 0)
        self._trees[key] = 1 - tree
        return tree

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
            queue = self._queues[stream.phase.queue]
            queue.insert(self._place(queue, stream), stream)
        if before is not None:
            self._serve(before)
        if not ends:
            self._serve(stream.phase.queue)

    def _serve(self, queue: int) -> None:
        streams = self._queues[queue]
        while self._running[queue] < min(self._places, len(streams)):
            self._running[queue] += 1
            streams[self._running[queue] - 1].begin()

    def _place(self, queue: list[Stream], stream: Stream) -> int:
        """Return where in a queue a stream goes: behind what runs, and by the rule within a dimension."""
        rule = self.world.system.intra_dimension_scheduling
        if rule == "FIFO" or stream.phase.kind in (CollectiveType.ALL_TO_ALL, CollectiveType.ALL_REDUCE):
            return _first(queue, lambda other: other.priority < stream.priority)
        if rule == "RG":
            return _alternating(queue, stream)
        if rule == "smallestFirst":
            if stream.to_go == 1:
                return len(queue)
            return _first(queue, lambda other: _extent(other) >= _extent(stream))
        return _first(queue, lambda other: other.to_go >= stream.to_go)


def after(algorithm: Algorithm, kind: CollectiveType, size: int, members: int) -> int:
    """Return the bytes that a rank holds after a phase."""
    if algorithm.name == "doubleBinaryTree":
        return size
    if kind == CollectiveType.REDUCE_SCATTER:
        return size // members
    return size * members if kind == CollectiveType.ALL_GATHER else size


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


class Level(NamedTuple):
    """A dimension as a group occupies it."""

    dim: int
    ring: Ring
    algorithm: Algorithm


class Where(NamedTuple):
    """Where a collective runs, and how urgently."""

    slot: int
    levels: list[Level]
    priority: int
    script: RankTrace | None = None
