"""State machines that simulate one phase of a collective at one rank, message by message.

A machine begins when its stream's turn comes, and ends the phase itself. Each packet crosses the endpoint (a delay,
then a reduction if needed) before the machine continues. There is one machine for each algorithm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from cosmic.simulate.events.collective_rings import NO_MEMBER, algorithm_steps, double_binary_trees
from cosmic.traces.dependencies import list_dependents
from cosmic.traces.trace import CollectiveType, RankTrace

if TYPE_CHECKING:
    from cosmic.simulate.events.chunk_streams import ChunkStream


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
