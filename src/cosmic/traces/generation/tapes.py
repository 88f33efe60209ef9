"""Tapes: the nodes of one task of a pipeline stage, as rows that repeat for every microbatch.

A stage does the same for every microbatch. The rows of a task (forward, backward, backward for inputs or for weights,
of one virtual stage) are therefore written once; a stage's trace repeats them with other ids and tags.

The steps of a tape form a chain: each depends on the one before. Overlapped communication runs beside the chain:

    all-gather of weights            at most FETCHED_AHEAD blocks before the one that reads them
    reduce-scatter of gradients      until the task ends
    send                             of the input of the next virtual stage

No compute of their own task overlaps the first gathers and the last reductions. They extend into the task before or
after, for as long as the last block computes (which overlaps no gather of its task) or the first (which overlaps no
reduction). So exactly the compute of a task overlaps its communication: the analytic engine's rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from cosmic.step.communication import Role
from cosmic.step.stage_time import FETCHED_AHEAD
from cosmic.traces.generation.pieces import Collective, Piece, Run, Unit, turns
from cosmic.traces.trace import ABSENT, CollectiveType, Ints, NodeType
from cosmic.workload.schedule import TaskKind

NEXT, PREVIOUS, RING_NEXT, RING_PREVIOUS = range(4)
"""Indices of a rank's peers: on the neighbouring stages, and in the ring that passes keys and values. Those beside it
along the axes of collective-permutes follow, two for each kind: the next, and the one before."""
PEERS = 4
PERMUTE = "collective_permute"
COLLECTIVE_TYPES = {
    "all_reduce": CollectiveType.ALL_REDUCE,
    "all_gather": CollectiveType.ALL_GATHER,
    "reduce_scatter": CollectiveType.REDUCE_SCATTER,
    "all_to_all": CollectiveType.ALL_TO_ALL,
}
OVERLAPPED, EXPOSED = 0, 1
"""Priorities of communication: exposed communication goes first."""


class Row(NamedTuple):
    """One node without its dependencies."""

    name: str
    type: int
    seconds: float
    num_ops: int = ABSENT
    tensor_size: int = ABSENT
    comm_type: int = ABSENT
    comm_size: int = ABSENT
    comm_tag: int = ABSENT
    group: int = ABSENT
    peer: int = ABSENT
    comm_priority: int = 0


def compute_row(run: Run, name: str) -> Row:
    """Return the node of a run of compute; simulators divide by both of its sizes, so neither is 0."""
    return Row(name, NodeType.COMP, run.seconds, num_ops=max(1, round(run.flop)), tensor_size=max(1, round(run.bytes)))


def collective_row(call: Collective, name: str, groups: Sequence[tuple[str, ...]], priority: int = OVERLAPPED) -> Row:
    """Return the node of a collective; the size of an all-gather is one rank's shard."""
    size = call.bytes / call.members if call.kind == "all_gather" else call.bytes
    return Row(
        f"{name}.{call.kind}",
        NodeType.COMM_COLL,
        call.seconds,
        comm_type=COLLECTIVE_TYPES[call.kind],
        comm_size=max(1, round(size)),
        group=groups.index(call.axes),
        comm_priority=priority,
    )


@dataclass(slots=True)
class Tape:
    """The rows of a task."""

    rows: list[Row] = field(default_factory=list)
    data: list[tuple[int, int]] = field(default_factory=list)
    """Data dependencies: pairs of a row and the row that it reads."""
    control: list[tuple[int, int]] = field(default_factory=list)
    """Control dependencies: pairs of a row and the row that it follows."""
    early: list[int] = field(default_factory=list)
    """Gathers that may start in the task before."""
    heads: list[int] = field(default_factory=list)
    """Rows that depend on the receive and on the end of the task before."""
    tail: list[int] = field(default_factory=list)
    """Rows that end the task."""
    receive: int | None = None
    send: int | None = None
    ends: list[tuple[int, ...]] = field(default_factory=list)
    """Rows that end each block."""
    took: list[float] = field(default_factory=list)
    """Seconds that each block computes."""
    reduced: list[int] = field(default_factory=list)
    """Rows that reduce gradients."""
    begun: dict[str, int] = field(default_factory=dict)
    """The first step of each block."""
    made: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The rows that complete the gradients of each block."""
    apart_s: float = 0.0
    """Seconds of the other half of a split backward pass, which overlaps reductions as well."""
    loads: list[int] = field(default_factory=list)
    """Rows that fetch outer state, the first of those that a ring of buffers has room for."""
    waiting: list[tuple[int, int]] = field(default_factory=list)
    """Rows that take a buffer of a task before, and of which block: so many before the first that takes one here."""
    stores: list[int] = field(default_factory=list)
    """Rows that bring state of the task's blocks to outer tiers."""
    freed: list[tuple[int, ...]] = field(default_factory=list)
    """The rows after which the buffer of each block that moves outer state is free."""
    offload: int | None = None
    rings: int = 0
    """Number of exchanges with neighbours: rings of keys and values, and collective-permutes."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How one pass through a part of the model goes, beside what its nodes take alone."""

    slowdown: float = 1.0
    """How many times longer compute takes: it waits for the host, and gives SMs and bandwidth to communication."""
    exposed: Mapping[Role, float] = field(default_factory=dict)
    """Share of blocking collectives that compute waits for, 1 where nothing is said."""
    efficiency: float = 1.0
    """Share of what is reduced and gathered once a step that compute can hide."""


class Fetched(NamedTuple):
    """What a block moves between the accelerator and outer tiers in one pass: seconds and bytes, in and out."""

    load_s: float
    load_bytes: float
    store_s: float
    store_bytes: float
    shards: bool = False
    """Whether what comes are weights alone: once shards are gathered, their buffer is free."""


@dataclass(slots=True)
class Recorder:
    """Writes a tape."""

    groups: Sequence[tuple[str, ...]]
    pace: Pace
    permuted: Sequence[tuple[str, ...]] = ()
    """The axes of each kind of collective-permute."""
    outer: Mapping[str, Fetched] = field(default_factory=dict)
    """What blocks move between the accelerator and outer tiers of memory, by label."""
    resident: int = 2
    """Blocks whose outer state is on the accelerator at a time."""
    tape: Tape = field(default_factory=Tape)
    late: list[tuple[str, Unit, tuple[int, ...]]] = field(default_factory=list)
    """Reductions to write after the next unit, whose exposed communication goes first."""

    def add(self, row: Row, reads: Iterable[int]) -> int:
        """Write one row; return its index."""
        place = len(self.tape.rows)
        self.tape.rows.append(row)
        self.tape.data += [(place, read) for read in reads]
        return place

    def link(self, row: Row, reads: Iterable[int] = ()) -> int:
        """Write the next row of the chain."""
        place = self.add(row, (*self.tape.tail, *reads))
        if not self.tape.heads:
            self.tape.heads = [place]
        self.tape.tail = [place]
        return place

    # ---------------------------------------------------------------------------------------------- messages

    def receive(self, call: Collective, peer: int, tag: int, name: str) -> None:
        """Write the receive of the task's input."""
        size = max(1, round(call.bytes))
        row = Row(f"{name}.receive", NodeType.COMM_RECV, 0.0, comm_size=size, comm_tag=tag, peer=peer)
        self.tape.receive = self.add(row, ())

    def send(self, call: Collective, peer: int, tag: int, name: str) -> None:
        """Write the send of the task's output."""
        size = max(1, round(call.bytes))
        row = Row(f"{name}.send", NodeType.COMM_SEND, call.seconds, comm_size=size, comm_tag=tag, peer=peer)
        row = row._replace(comm_priority=EXPOSED)
        self.tape.send = self.add(row, self.tape.tail)
        if not self.tape.heads:
            self.tape.heads = [self.tape.send]

    def ring(self, call: Collective, name: str, before: Sequence[int]) -> tuple[int, int]:
        """Write the send of keys and values to the next rank of the ring, and the receive from the previous one."""
        size = max(1, round(call.bytes))
        tag = self.tape.rings
        self.tape.rings += 1
        back = Row(f"{name}.ring.receive", NodeType.COMM_RECV, 0.0, comm_size=size, comm_tag=tag, peer=RING_PREVIOUS)
        out = back._replace(name=f"{name}.ring.send", type=NodeType.COMM_SEND, seconds=call.seconds, peer=RING_NEXT)
        return self.add(out._replace(comm_priority=EXPOSED), before), self.add(back, before)

    def permute(self, call: Collective, name: str) -> None:
        """Write a collective-permute that what follows waits for."""
        paced = replace(call, seconds=call.seconds * self.pace.exposed.get(call.role, 1.0))
        both = self.neighbours(paced, name, tuple(self.tape.tail), EXPOSED)
        self.tape.heads = self.tape.heads or both
        self.tape.tail = both

    def neighbours(self, call: Collective, name: str, before: Sequence[int], priority: int) -> list[int]:
        """Write a collective-permute: every rank sends to the next along its axes, and waits for the one before.

        Of boundary rows the first and the last shard have one neighbour only; here they exchange theirs too.
        """
        place = PEERS + 2 * self.permuted.index(call.axes)
        size, tag = max(1, round(call.bytes)), self.tape.rings
        self.tape.rings += 1
        back = Row(f"{name}.permute.receive", NodeType.COMM_RECV, 0.0, comm_size=size, comm_tag=tag, peer=place + 1)
        out = back._replace(name=f"{name}.permute.send", type=NodeType.COMM_SEND, seconds=call.seconds, peer=place)
        return [self.add(out._replace(comm_priority=priority), before), self.add(back, before)]

    # ------------------------------------------------------------------------------------------------ blocks

    def block(self, label: str, units: Sequence[Unit], work: TaskKind) -> None:
        """Write the units of a block for one kind of task."""
        tape, took = self.tape, 0.0
        moved = self.outer.get(label) if work != "W" else None
        loaded: list[int] = []
        gathered: list[int] = []
        for unit in units:
            chain = _chain(unit, work)
            if not chain:
                continue
            if moved and label not in tape.begun:
                loaded = self.load(label, moved)
            new = [self.gather(call, label, loaded) for call in unit.gathers] if work != "W" else []
            gathered += new
            if label not in tape.begun:
                tape.begun[label] = len(tape.rows)
                if moved and moved.store_s and not loaded:
                    self.take_buffer(tape.begun[label])  # what leaves is written there
            self.chain(label, chain, [*new, *loaded])
            self.flush()
            if unit.reduces and work in ("W", "BW"):
                self.late.append((label, unit, tuple(tape.tail)))
            took += self.pace.slowdown * sum(step.seconds for step in chain if isinstance(step, Run))
        if label in tape.begun:
            tape.ends.append(tuple(tape.tail))
            tape.took.append(took)
            tape.made[label] = (*tape.made.get(label, ()), *tape.tail)
            if moved and (moved.load_s or moved.store_s):
                early = self.resident > 1 and loaded and gathered and moved.shards
                stored = self.store(label, moved)
                tape.freed.append(tuple(gathered) if early else stored or tape.ends[-1])

    def load(self, label: str, moved: Fetched) -> list[int]:
        """Write what brings a block's outer state in, once there is a buffer for it; return its row."""
        if not moved.load_s:
            return []
        size = max(1, round(moved.load_bytes))
        place = self.add(Row(f"{label}.load", NodeType.MEM_LOAD, moved.load_s, tensor_size=size), ())
        if len(self.tape.freed) < self.resident:
            self.tape.loads.append(place)
        self.take_buffer(place)
        return [place]

    def take_buffer(self, place: int) -> None:
        """Make a row wait for its buffer: that of the block so many before it as there are, of those that take one."""
        tape = self.tape
        if len(tape.freed) >= self.resident:
            tape.control += [(place, row) for row in tape.freed[-self.resident]]
        else:
            tape.waiting.append((place, self.resident - len(tape.freed)))

    def store(self, label: str, moved: Fetched) -> tuple[int, ...]:
        """Write what takes a block's state out; return its row."""
        if not moved.store_s:
            return ()
        size = max(1, round(moved.store_bytes))
        row = Row(f"{label}.store", NodeType.MEM_STORE, moved.store_s, tensor_size=size)
        place = self.add(row, self.tape.tail)
        self.tape.stores.append(place)
        return (place,)

    def chain(self, label: str, steps: Sequence[Run | Collective], fetched: Sequence[int]) -> None:
        """Write a chain of steps; the first that computes reads the *fetched* weights."""
        for step, turn in in_turns(steps):
            name, before = f"{label}.{step.name}{turn}", tuple(self.tape.tail)
            if isinstance(step, Collective) and step.kind == PERMUTE:
                self.permute(step, name)
                continue
            if isinstance(step, Collective):
                row = collective_row(step, name, self.groups, EXPOSED)
                self.link(row._replace(seconds=row.seconds * self.pace.exposed.get(step.role, 1.0)))
                continue
            run = compute_row(step, name)
            place = self.link(run._replace(seconds=run.seconds * self.pace.slowdown), fetched)
            fetched = ()
            if step.beside:
                self.tape.tail = [place, *self.ring(step.beside, name, before)]

    def gather(self, call: Collective, label: str, loaded: Sequence[int]) -> int:
        """Write the all-gather of a block's weights, which has each rank's shard when it is *loaded*."""
        tape = self.tape
        place = self.add(collective_row(call, f"{label}.{call.name}", self.groups), loaded)
        if len(tape.ends) >= FETCHED_AHEAD:
            tape.control += [(place, end) for end in tape.ends[-FETCHED_AHEAD]]
        else:
            tape.early.append(place)
        return place

    def flush(self) -> None:
        """Write the pending reductions."""
        for label, unit, made in self.late:
            places: list[int] = []
            for call in unit.reduces:
                name = f"{label}.{call.name}"
                if call.kind == PERMUTE:
                    places += self.neighbours(call, name, made, OVERLAPPED)
                else:
                    places.append(self.add(collective_row(call, name, self.groups), made))
            self.tape.reduced += places
            self.tape.made[label] = (*self.tape.made.get(label, ()), *places)
        self.late.clear()


def in_turns(steps: Sequence[Run | Collective]) -> Iterator[tuple[Run | Collective, str]]:
    """Yield the steps of a chain as they follow each other, with the number of the turn in names of recurrences."""
    for count, part in turns(steps):
        for turn in range(count):
            yield from ((step, f".{turn}" if count > 1 else "") for step in part)


def _chain(unit: Unit, work: TaskKind) -> tuple[Run | Collective, ...]:
    """Return the steps of a unit in one kind of task."""
    return {"F": unit.steps, "B": unit.steps, "W": unit.weights, "BW": (*unit.steps, *unit.weights)}[work]


def units_of(piece: Piece, work: TaskKind) -> tuple[Unit, ...]:
    """Return the units of a block in one kind of task."""
    return piece.forward if work == "F" else piece.backward


def listed(pairs: Sequence[Ints], rows: int) -> tuple[Ints, Ints]:
    """Return dependencies as lists, one for each row."""
    both = np.concatenate(pairs) if pairs else np.zeros((0, 2), np.int64)
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    return np.searchsorted(both[:, 0], np.arange(rows + 1)).astype(np.int64), both[:, 1].copy()
