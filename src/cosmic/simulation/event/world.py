"""What the ranks of a simulation share: time, network, messages, memory, and meetings."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from cosmic.simulation.event.clock import Action, Clock, within
from cosmic.simulation.event.inputs import RemoteMemory, System
from cosmic.simulation.event.network import Aware, Consistent, Message, Network, Unaware
from cosmic.simulation.event.rings import Course, Ring, reduction_ns
from cosmic.simulation.event.streams import Stream
from cosmic.traces.trace import CollectiveType, NodeType, RankTrace

READY_BYTES = 8192
"""With rendezvous, what a receiver sends to say that it is ready."""
ARRIVED = object()
"""In the mail: a message that nobody has asked for yet."""
READY = "ready"


class World:
    """The shared part of a simulation."""

    def __init__(self, network: Network, system: System, memory: RemoteMemory, entity_of: Sequence[int]) -> None:
        self.clock = Clock()
        self.network, self.system, self.entity_of = network, system, entity_of
        self.checks_order = False
        """Whether to refuse (`Ambiguous`) where the order of events of one moment matters and may not be right."""
        self.memory = _Memory(memory, self.clock)
        self.fabric: Unaware | Aware | Consistent = Unaware(network, self.clock)
        self.queues_per_dim = 1
        self.rendezvous = False
        self.compat = True
        self.closed_forms = True
        """Whether phases whose course is known are not played: exact where no message delays another."""
        self.mail: dict[Any, Any] = {}
        self.sent_bytes = [[0] * len(network.dims) for _ in range(max(entity_of) + 1)]
        """By entity and dimension."""
        self._dims: dict[tuple[int, int], int] = {}
        self._counts: dict[Any, int] = {}
        self._meetings: dict[tuple[int, int, int, Course], _Meeting] = {}
        self._audience: dict[tuple[int, int, int], list[Ring]] = {}
        self._switches: dict[Any, list[tuple[Stream, int, int, Action]]] = {}

    # ----------------------------------------------------------------------------- messages

    def post_send(self, source: int, target: int, size: int, key: Any, sent: tuple[Action, Any] | None) -> None:
        """Send a message that whoever asks for *key* receives; tell when it has arrived."""
        if self.rendezvous:
            self._wait((READY, key), self._send, (source, target, size, key, sent))
        else:
            self._send((source, target, size, key, sent))

    def _send(self, what: tuple[int, int, int, Any, tuple[Action, Any] | None]) -> None:
        source, target, size, key, sent = what
        self._account(source, target, size)
        self.fabric.send(Message(source, target, size, self._arrived, (key, sent)))

    def _arrived(self, what: tuple[Any, tuple[Action, Any] | None]) -> None:
        key, sent = what
        if sent is not None:
            sent[0](sent[1])
        waiting = self.mail.pop(key, None)
        if waiting is None:
            self.mail[key] = ARRIVED
        else:
            waiting[0](waiting[1])

    def post_receive(self, rank: int, source: int, key: Any, action: Action, argument: Any) -> None:
        """Act when the message *key* is there."""
        if self.rendezvous:
            ready = (key, action, argument)
            self.fabric.send(Message(rank, source, READY_BYTES, self._ready, ready))
        else:
            self._wait(key, action, argument)

    def _ready(self, what: tuple[Any, Action, Any]) -> None:
        key, action, argument = what
        self._wait(key, action, argument)
        self._arrived(((READY, key), None))

    def _wait(self, key: Any, action: Action, argument: Any) -> None:
        if self.mail.get(key) is ARRIVED:
            del self.mail[key]
            self.clock.after(0, action, argument)
        else:
            self.mail[key] = (action, argument)

    def numbered(self, channel: Any) -> Any:
        """Return the key of the next message on *channel*: the n-th sent is the n-th received."""
        count = self._counts.get(channel, 0)
        self._counts[channel] = count + 1
        return ("point to point", *channel[1:], count)

    def _account(self, source: int, target: int, size: int) -> None:
        pair = (source, target)
        dim = self._dims.get(pair)
        if dim is None:
            self._dims[pair] = dim = self.network.first_difference(source, target)[0]
        self.sent_bytes[self.entity_of[source]][dim] += size

    # ----------------------------------------------------------------------------- meetings

    def introduce(self, ring: Ring, dim: int) -> None:
        """Let the entities of a ring know that they meet in it."""
        for entity, slot in ring.partners:
            self._audience.setdefault((entity, slot, dim), []).append(ring)

    def meet(self, stream: Stream, course: Course) -> None:
        """Begin a phase at one rank; when all members have, it is known when each of them is done."""
        unit, own = stream.unit, stream.phase.ring
        position = own.position[unit.rank]
        sent = self.sent_bytes[unit.entity]
        for place, size in enumerate(own.traffic(course, position)):
            sent[place] += size
        if own.alike:
            self._leave(stream, course, self.clock.now + own.done_ns(course, (0,))[position])
            return
        dim = stream.phase.queue // self.queues_per_dim
        for ring in self._audience[unit.entity, stream.slot, dim]:
            key = (id(ring), stream.ordinal, stream.next_phase, course)  # who comes for something else waits for ever
            meeting = self._meetings.get(key)
            if meeting is None:
                self._meetings[key] = meeting = _Meeting(ring)
            if meeting.arrive(unit.entity, stream.slot, self.clock.now, stream if ring is own else None):
                del self._meetings[key]
                done = ring.done_ns(course, meeting.starts)
                for each in meeting.streams:
                    self._leave(each, course, done[ring.position[each.unit.rank]])

    def _leave(self, stream: Stream, course: Course, time: int) -> None:
        unit = stream.unit
        self.clock.foreseen(unit.entity, time, time - _last_ns(stream, course), unit.proceed, stream)

    def foresee(self, stream: Stream, course: Course, *, chunks: int, turns: int) -> None:
        """End a collective of *chunks* that are all like *stream*, some at a time, in so many *turns*."""
        unit, ring = stream.unit, stream.phase.ring
        position = ring.position[unit.rank]
        sent = self.sent_bytes[unit.entity]
        for place, size in enumerate(ring.traffic(course, position)):
            sent[place] += size * chunks
        time = self.clock.now + turns * ring.done_ns(course, (0,))[position]
        collective = stream.collective
        decided = time - _last_ns(stream, course)
        self.clock.foreseen(unit.entity, time, decided, collective.done, collective.row)

    def through_switch(self, stream: Stream, up: int, down: int, action: Action) -> None:
        """Send *up* bytes to the switch; when it has them of all members, it sends *down* bytes to each."""
        rank, ring = stream.unit.rank, stream.phase.ring
        place, _ = self.network.first_difference(rank, ring.ranks[ring.position[rank] - 1])
        self.sent_bytes[stream.unit.entity][place] += up
        self.fabric.to_switch(rank, place, up, self._at_switch, (stream, place, max(up, down), action))

    def _at_switch(self, what: tuple[Stream, int, int, Action]) -> None:
        stream = what[0]
        dim = stream.phase.queue // self.queues_per_dim
        for ring in self._audience[stream.unit.entity, stream.slot, dim]:
            key = (id(ring), stream.ordinal, stream.next_phase)
            there = self._switches.setdefault(key, [])
            there.append(what)
            if len(there) < len(ring.partners):
                continue
            del self._switches[key]
            for member, place, size, action in there:
                if member.phase.ring is ring:
                    self.fabric.from_switch(member.unit.rank, place, size, action, None)

    # ----------------------------------------------------------------------------- scripted collectives

    def issue_scripted(self, stream: Stream, script: RankTrace, row: int, done: Callable[[int], None]) -> None:
        """Do what a row of a collective's own trace says; its peers are positions in the group."""
        template, unit, ring = script.template, stream.unit, stream.phase.ring
        kind = NodeType(int(template.type[row]))
        if kind not in (NodeType.COMM_SEND, NodeType.COMM_RECV):
            duration = max(1, 1000 * int(template.duration_us[row]))
            self.clock.of_rank(unit.entity, duration, done, row)
            return
        peer = ring.ranks[script.peers[int(template.peer[row])]]
        size, tag = int(template.comm_size[row]), int(template.comm_tag[row])
        if kind == NodeType.COMM_SEND:
            key = self.numbered(("send", unit.rank, peer, tag, size))
            self.post_send(unit.rank, peer, size, key, (done, row))
        else:
            key = self.numbered(("receive", peer, unit.rank, tag, size))
            self.post_receive(unit.rank, peer, key, done, row)


def _last_ns(stream: Stream, course: Course) -> int:
    """Return the delay before a phase ends: of a packet at the endpoint, or of a reduction."""
    if course.algorithm in ("ring", "direct") and course.kind == CollectiveType.REDUCE_SCATTER:
        return reduction_ns(course.size // len(stream.phase.ring), course.memory_bytes_per_s)
    return course.endpoint_ns


class _Meeting:
    """Who has begun a phase so far."""

    __slots__ = ("missing", "ring", "starts", "streams")

    def __init__(self, ring: Ring) -> None:
        self.ring, self.missing = ring, len(ring.partners)
        self.starts = [0] * len(ring)
        self.streams: list[Stream] = []

    def arrive(self, entity: int, slot: int, now: int, stream: Stream | None) -> bool:
        """Note that an entity has begun, and return whether all have."""
        for place in self.ring.partners[entity, slot]:
            self.starts[place] = now
        if stream is not None:
            self.streams.append(stream)
        self.missing -= 1
        return self.missing == 0


class _Memory:
    """Memory beyond the NPUs' own: private, or one request at a time for each node, or for all."""

    def __init__(self, memory: RemoteMemory, clock: Clock) -> None:
        self.spec, self._clock = memory, clock
        self._busy: set[int] = set()
        self._waiting: dict[int, deque[tuple[int, int, Action, Any]]] = {}

    def access(self, rank: int, size: int, action: Action, argument: Any) -> None:
        """Load or store *size* bytes, then act."""
        spec = self.spec
        duration = spec.latency_ns + within(size / spec.bandwidth_gb_per_s)
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

    def _served(self, what: tuple[int, Action, Any]) -> None:
        store, action, argument = what
        if waiting := self._waiting.get(store):
            self._serve(store, waiting.popleft())
        else:
            self._busy.discard(store)
        action(argument)
