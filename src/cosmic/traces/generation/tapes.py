"""Tapes: the nodes of one task of a pipeline stage, as rows that can be played for any microbatch.

A stage does the same for every microbatch. The rows of a task (forward, backward, backward for inputs or for weights,
of one part of the model) are therefore written once; a stage's trace repeats them, with other numbers.

On a tape, steps form a chain: each waits for the one before. Beside the chain run the things that hide behind it:

    gathering of weights       at most AHEAD blocks before the one that reads them: so many are whole at one time
    scattering of gradients    while the task lasts
    sending                    of what the next part of the model reads

The first gathers and the last reductions have nothing of their own task to hide behind. They reach into the task
before or after, for as long as the last block computes (which no gather of its task hides behind) or the first (which
no reduction does). So all of a task's compute covers what hides in it, and no more: the analytic engine's rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from cosmic.traces.generation.pieces import Collective, Piece, Run, Unit
from cosmic.traces.trace import ABSENT, CollectiveType, NodeType

AHEAD = 4
NEXT, PREVIOUS, RING_NEXT, RING_PREVIOUS = range(4)
"""Places of a rank's peers: on the stages beside its own, and those between which keys and values pass."""
KINDS = {
    "all_reduce": CollectiveType.ALL_REDUCE,
    "all_gather": CollectiveType.ALL_GATHER,
    "reduce_scatter": CollectiveType.REDUCE_SCATTER,
    "all_to_all": CollectiveType.ALL_TO_ALL,
}
HIDDEN, WAITED = 0, 1
"""Priorities of communication: what compute waits for goes first."""
Work = Literal["F", "B", "W", "BW"]


class Row(NamedTuple):
    """One node, but for what it waits for."""

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
    """Return the node of a run of compute; simulators divide by both of its sizes, so that neither is 0."""
    return Row(name, NodeType.COMP, run.seconds, num_ops=max(1, round(run.flop)), tensor_size=max(1, round(run.bytes)))


def collective_row(talk: Collective, name: str, groups: Sequence[tuple[str, ...]], priority: int = HIDDEN) -> Row:
    """Return the node of a collective; of a gather, traces tell what each rank brings."""
    size = talk.bytes / talk.members if talk.kind == "all_gather" else talk.bytes
    return Row(
        f"{name}.{talk.kind}",
        NodeType.COMM_COLL,
        talk.seconds,
        comm_type=KINDS[talk.kind],
        comm_size=max(1, round(size)),
        group=groups.index(talk.axes),
        comm_priority=priority,
    )


@dataclass(slots=True)
class Tape:
    """The rows of a task."""

    rows: list[Row] = field(default_factory=list)
    data: list[tuple[int, int]] = field(default_factory=list)
    """Pairs: a row, and one whose result it reads."""
    control: list[tuple[int, int]] = field(default_factory=list)
    """Pairs: a row, and one that it only comes after."""
    early: list[int] = field(default_factory=list)
    """Gathers that may start in the task before."""
    heads: list[int] = field(default_factory=list)
    """Rows that wait for what is received, and for the end of the task before."""
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
    """The rows after which the gradients of each block are there."""
    apart_s: float = 0.0
    """Seconds of the rest of a backward pass that is split, which is done elsewhere and covers reductions as well."""
    offload: int | None = None
    rings: int = 0
    """Rounds of passing keys and values."""


@dataclass(slots=True)
class Recorder:
    """Writes a tape."""

    groups: Sequence[tuple[str, ...]]
    tape: Tape = field(default_factory=Tape)
    late: list[tuple[str, Unit, tuple[int, ...]]] = field(default_factory=list)
    """Reductions that are to be written after the unit that follows: what is waited for goes first."""

    def add(self, row: Row, reads: Iterable[int]) -> int:
        """Write one row; return its place."""
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

    def receive(self, talk: Collective, peer: int, tag: int, name: str) -> None:
        """Write the arrival of what the task starts from."""
        size = max(1, round(talk.bytes))
        row = Row(f"{name}.receive", NodeType.COMM_RECV, 0.0, comm_size=size, comm_tag=tag, peer=peer)
        self.tape.receive = self.add(row, ())

    def send(self, talk: Collective, peer: int, tag: int, name: str) -> None:
        """Write the sending of what the task ends with."""
        size = max(1, round(talk.bytes))
        row = Row(f"{name}.send", NodeType.COMM_SEND, talk.seconds, comm_size=size, comm_tag=tag, peer=peer)
        row = row._replace(comm_priority=WAITED)
        self.tape.send = self.add(row, self.tape.tail)
        if not self.tape.heads:
            self.tape.heads = [self.tape.send]

    def ring(self, talk: Collective, name: str, before: Sequence[int]) -> tuple[int, int]:
        """Write keys and values on their way to the next rank, and from the previous one."""
        size = max(1, round(talk.bytes))
        tag = self.tape.rings
        self.tape.rings += 1
        back = Row(f"{name}.ring.receive", NodeType.COMM_RECV, 0.0, comm_size=size, comm_tag=tag, peer=RING_PREVIOUS)
        out = back._replace(name=f"{name}.ring.send", type=NodeType.COMM_SEND, seconds=talk.seconds, peer=RING_NEXT)
        return self.add(out._replace(comm_priority=WAITED), before), self.add(back, before)

    # ------------------------------------------------------------------------------------------------ blocks

    def block(self, label: str, units: Sequence[Unit], work: Work) -> None:
        """Write the units of a block that a kind of task goes through."""
        tape, took = self.tape, 0.0
        for unit in units:
            chain = _chain(unit, work)
            if not chain:
                continue
            fetched = [self.gather(talk, label) for talk in unit.gathers] if work != "W" else []
            tape.begun.setdefault(label, len(tape.rows))
            self.chain(label, chain, fetched)
            self.flush()
            if unit.reduces and work in ("W", "BW"):
                self.late.append((label, unit, tuple(tape.tail)))
            took += sum(step.seconds for step in chain if isinstance(step, Run))
        if label in tape.begun:
            tape.ends.append(tuple(tape.tail))
            tape.took.append(took)
            tape.made[label] = (*tape.made.get(label, ()), *tape.tail)

    def chain(self, label: str, steps: Iterable[Run | Collective], fetched: Sequence[int]) -> None:
        """Write steps that follow one another; the first of them that computes reads what was *fetched*."""
        for step in steps:
            name, before = f"{label}.{step.name}", tuple(self.tape.tail)
            if isinstance(step, Collective):
                self.link(collective_row(step, name, self.groups, WAITED))
                continue
            row = self.link(compute_row(step, name), fetched)
            fetched = ()
            if step.beside:
                self.tape.tail = [row, *self.ring(step.beside, name, before)]

    def gather(self, talk: Collective, label: str) -> int:
        """Write the gathering of weights for a block."""
        tape = self.tape
        place = self.add(collective_row(talk, f"{label}.{talk.name}", self.groups), ())
        if len(tape.ends) >= AHEAD:
            tape.control += [(place, end) for end in tape.ends[-AHEAD]]
        else:
            tape.early.append(place)
        return place

    def flush(self) -> None:
        """Write the reductions that waited for the unit after theirs."""
        for label, unit, made in self.late:
            rows = [collective_row(talk, f"{label}.{talk.name}", self.groups) for talk in unit.reduces]
            places = [self.add(row, made) for row in rows]
            self.tape.reduced += places
            self.tape.made[label] = (*self.tape.made.get(label, ()), *places)
        self.late.clear()


def _chain(unit: Unit, work: Work) -> tuple[Run | Collective, ...]:
    """Return the steps of a unit that a kind of task has."""
    return {"F": unit.steps, "B": unit.steps, "W": unit.weights, "BW": (*unit.steps, *unit.weights)}[work]


def units_of(piece: Piece, work: Work) -> tuple[Unit, ...]:
    """Return the units of a block that a kind of task goes through."""
    return piece.forward if work == "F" else piece.backward
