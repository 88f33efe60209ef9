"""The trace of one pipeline stage: its tasks in the order of the schedule, and what surrounds them.

Before the tasks and after them come the things of which a step has one: gradients are reduced, weights updated, and
gathered if each rank updated its share. Where the newest collective goes first (LIFO), reductions that find no time
behind the last backward pass run into the next step, behind its first forward pass. A trace of one step out of many
shows them at its start, as those of the step before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from cosmic.traces.generation.pieces import Collective, Piece, Run
from cosmic.traces.generation.tapes import (
    NEXT,
    PREVIOUS,
    Recorder,
    Row,
    Tape,
    Work,
    collective_row,
    compute_row,
    units_of,
)
from cosmic.traces.trace import ABSENT, Ints, NodeType, Template
from cosmic.workload.schedule import Task

Floats = npt.NDArray[np.float64]
NUMBERS = ("type", "num_ops", "tensor_size", "comm_type", "comm_size", "comm_tag", "group", "peer", "comm_priority")
TAG = NUMBERS.index("comm_tag")


@dataclass(frozen=True, slots=True)
class Layer:
    """A block at its place in the model."""

    label: str
    piece: Piece


@dataclass(frozen=True, slots=True)
class Plan:
    """What all stages of a job share."""

    parts: tuple[tuple[Layer, ...], ...]
    """The parts of the model, from its input on: what one task passes through."""
    groups: tuple[tuple[str, ...], ...]
    """The axes of each kind of communicator group."""
    passed: Collective | None
    """What is sent from part to part, where they lie on different stages."""
    stages: int
    microbatches: int
    newest_first: bool
    training: bool
    updates: dict[str, Run]
    """The optimizer's work for each block, by label."""
    offloaded: tuple[float, float] = (0.0, 0.0)
    """Seconds and bytes of each task's traffic with outer tiers."""


@dataclass(frozen=True)
class Compiled:
    """A tape as arrays."""

    tape: Tape
    passing: bool
    """Whether its messages go from part to part: their tags depend on the microbatch."""

    @cached_property
    def names(self) -> list[str]:
        """What the rows are called."""
        return [row.name for row in self.tape.rows]

    @cached_property
    def numbers(self) -> Ints:
        """The columns `NUMBERS`, a line for each row."""
        return _numbers(self.tape.rows)

    @cached_property
    def seconds(self) -> Floats:
        """How long each row takes."""
        return np.array([row.seconds for row in self.tape.rows])

    @cached_property
    def data(self) -> Ints:
        """Pairs of rows."""
        return np.array(self.tape.data, np.int64).reshape(-1, 2)

    @cached_property
    def control(self) -> Ints:
        """Pairs of rows."""
        return np.array(self.tape.control, np.int64).reshape(-1, 2)

    @cached_property
    def rings(self) -> list[int]:
        """Rows that pass keys and values round."""
        ends = (self.tape.receive, self.tape.send)
        tagged = np.flatnonzero(self.numbers[:, TAG] != ABSENT).tolist() if self.tape.rings else []
        return [row for row in tagged if row not in ends]


def _numbers(rows: Sequence[Row]) -> Ints:
    return np.array([[getattr(row, name) for name in NUMBERS] for row in rows], np.int64).reshape(-1, len(NUMBERS))


@dataclass
class StageTrace:
    """Writes the trace of one stage."""

    plan: Plan
    stage: int
    tapes: dict[tuple[int, Work, bool], Compiled] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    numbers: list[Ints] = field(default_factory=list)
    seconds: list[Floats] = field(default_factory=list)
    data: list[Ints] = field(default_factory=list)
    control: list[Ints] = field(default_factory=list)
    count: int = 0
    rings: int = 0
    passed: list[tuple[tuple[int, ...], float]] = field(default_factory=list)
    """Of every block so far: the rows that end it, and the seconds that it computes."""
    pending: tuple[list[int], float] = ([], 0.0)
    """Reductions of the task before, and for how many more seconds of compute they may go on."""
    made: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """By block: the rows after which its gradients are there, of the latest microbatch."""
    begun: dict[str, int] = field(default_factory=dict)
    """By block: the first step of its first forward pass."""
    opened: set[int] = field(default_factory=set)
    """Parts of the model that were begun."""

    def write(self, tasks: Sequence[Task], detached: Iterable[int] = ()) -> tuple[Template, Floats]:
        """Return the nodes of the stage and their seconds; *detached* tasks have been sent what they read before."""
        held = self.held(tasks)
        left = self.left_over(held) if self.plan.training else set()
        apart, pair = set(detached), None
        for place, task in enumerate(tasks):
            last = self.task(task, received=place not in apart)
            self.open(task, left)
            if pair is not None:
                self.join(pair, last)
            pair = last if task.with_next else None
        if self.plan.training:
            self.close([layer for layer in reversed(held) if layer.label not in left])
        return self.template(), np.concatenate(self.seconds) if self.seconds else np.zeros(0)

    def held(self, tasks: Sequence[Task]) -> list[Layer]:
        """Return what the stage holds, in the order of the model."""
        parts = sorted({task.part(self.stage, self.plan.stages) for task in tasks})
        return [layer for part in parts for layer in self.plan.parts[part]]

    # ------------------------------------------------------------------------------------------------ tasks

    def task(self, task: Task, received: bool) -> tuple[int, Compiled]:
        """Write one task; return where it starts."""
        compiled = self.compiled(task)
        tape, start = compiled.tape, self.count
        numbers = compiled.numbers
        if compiled.passing or tape.rings:
            numbers = numbers.copy()
            for row in (tape.receive, tape.send):
                if row is not None:
                    numbers[row, TAG] += task.microbatch * 2 * len(self.plan.parts)
            numbers[compiled.rings, TAG] += self.plan.microbatches * 2 * len(self.plan.parts) + self.rings
            self.rings += tape.rings
        prefix = f"mb{task.microbatch}."
        self.append([prefix + name for name in compiled.names], numbers, compiled.seconds)
        self.data.append(compiled.data + start)
        self.control.append(compiled.control + start)
        self.connect(tape, start, received)
        self.advance(tape, start, task.kind)
        return start, compiled

    def connect(self, tape: Tape, start: int, received: bool) -> None:
        """Let a task wait for what it receives and for the task before, and what hides behind both for its turn."""
        before = self.passed[-1][0] if self.passed else ()
        self.after(self.control, ((start + head, row) for head in tape.heads for row in before))
        if tape.receive is not None and received:
            receive = tape.receive
            self.after(self.data, ((start + head, start + receive) for head in tape.heads if head != receive))
        if tape.early:
            gate = self.gate(tape.took[-1])
            self.after(self.control, ((start + row, end) for row in tape.early for end in gate))
        if tape.offload is not None:
            self.after(self.control, ((start + tape.offload, end) for end in before))
        self.settle(tape, start)

    def gate(self, seconds: float) -> tuple[int, ...]:
        """Return the rows after which about so many *seconds* of compute remain before the next task."""
        for ends, took in reversed(self.passed):
            if seconds < took / 2:
                return ends
            seconds -= took
        return ()

    def settle(self, tape: Tape, start: int) -> None:
        """Let the task before have its gradients reduced before this one has covered enough of it."""
        rows, seconds = self.pending
        for begun, took in zip(tape.begun.values(), tape.took, strict=True):
            if rows and seconds < took / 2:
                self.after(self.control, ((start + begun, row) for row in rows))
                rows = []
            seconds -= took
        self.pending = rows, seconds
        if tape.reduced:
            self.pending = [*rows, *(start + row for row in tape.reduced)], tape.took[0] + tape.apart_s

    def advance(self, tape: Tape, start: int, work: Work) -> None:
        """Note where the task leaves things."""
        if work == "F":
            for label, row in tape.begun.items():
                self.begun.setdefault(label, start + row)
        else:
            self.made |= {label: tuple(start + row for row in rows) for label, rows in tape.made.items()}
        ends = tape.ends or [tuple(tape.tail)][: len(tape.tail)]  # a stage without layers only hands on
        moved = [tuple(start + row for row in rows) for rows in ends]
        self.passed += zip(moved, tape.took or [0.0] * len(moved), strict=True)

    def join(self, first: tuple[int, Compiled], second: tuple[int, Compiled]) -> None:
        """Let two tasks that overlap start together and end together."""
        (start, one), (follows, other) = first, second
        if other.tape.receive is not None:
            arrival = follows + other.tape.receive
            self.after(self.data, ((start + head, arrival) for head in one.tape.heads))
        if one.tape.send is not None:
            sent = start + one.tape.send
            self.after(self.control, ((sent, follows + row) for row in other.tape.tail))

    def compiled(self, task: Task) -> Compiled:
        """Return the tape of a task."""
        part = task.part(self.stage, self.plan.stages)
        key = (part, task.kind, task.reverse)
        if key not in self.tapes:
            self.tapes[key] = self.record(part, task)
        return self.tapes[key]

    def record(self, part: int, task: Task) -> Compiled:
        """Write the tape of a task."""
        plan, forward = self.plan, task.kind == "F"
        recorder = Recorder(plan.groups)
        last = len(plan.parts) - 1
        talk = plan.passed if plan.stages > 1 and task.kind != "W" else None
        onward, back = (PREVIOUS, NEXT) if task.reverse else (NEXT, PREVIOUS)
        name = "activations" if forward else "gradients"
        if talk and part != (0 if forward else last):
            tag = 2 * (part - 1) if forward else 2 * part + 1
            recorder.receive(talk, back if forward else onward, tag, name)
        if plan.offloaded[0]:
            self.record_offload(recorder, forward)
        layers = plan.parts[part]
        for layer in layers if forward else reversed(layers):
            recorder.block(layer.label, units_of(layer.piece, task.kind), task.kind)
        recorder.flush()
        if task.kind == "W":
            recorder.tape.apart_s = sum(recorder.tape.took)
        if talk and part != (last if forward else 0):
            tag = 2 * part if forward else 2 * (part - 1) + 1
            recorder.send(talk, onward if forward else back, tag, name)
        if not recorder.tape.tail and recorder.tape.receive is not None:
            recorder.tape.tail = [recorder.tape.receive]
        return Compiled(recorder.tape, talk is not None)

    def record_offload(self, recorder: Recorder, forward: bool) -> None:
        """Write a task's traffic with the outer tiers, for which nobody waits."""
        seconds, size = self.plan.offloaded
        stores = forward and self.plan.training
        kind, name = (NodeType.MEM_STORE, "store") if stores else (NodeType.MEM_LOAD, "load")
        row = recorder.add(Row(f"offload.{name}", kind, seconds, tensor_size=max(1, round(size))), ())
        recorder.tape.offload = row

    # ---------------------------------------------------------------------------------------- once a step

    def left_over(self, held: Sequence[Layer]) -> set[str]:
        """Return the blocks whose reduction the next step finds unfinished, if the newest always goes first."""
        if not self.plan.newest_first:
            return set()
        waiting: list[tuple[str, float]] = []
        now = free = 0.0
        for layer in reversed(held):
            now += layer.piece.backward_s
            while waiting and free < now:
                free += waiting.pop()[1]
            free = max(free, now)
            waiting.append((layer.label, sum(talk.seconds for talk in layer.piece.reduces)))
        if waiting and free <= now:
            waiting.pop()
        return {label for label, seconds in waiting if seconds}

    def open(self, task: Task, left: set[str]) -> None:
        """Write what the step before left over for a part of the model, behind the first forward pass through it.

        The rows come after those of the pass, although it waits for them: what else it waits for goes first.
        """
        part = task.part(self.stage, self.plan.stages)
        if not self.plan.newest_first or not self.plan.training or part in self.opened:
            return
        self.opened.add(part)
        for layer in self.plan.parts[part]:
            label = f"previous.{layer.label}"
            ready: tuple[int, ...] = ()
            if layer.label in left:
                reduced = self.talk(layer.piece.reduces, label, ())
                ready = (self.update(layer, label, reduced),)
            ready = self.talk(layer.piece.updates, label, ready) or ready
            self.after(self.data, ((self.begun[layer.label], row) for row in ready))

    def close(self, layers: Sequence[Layer]) -> None:
        """Write how gradients are reduced and weights updated, of the *layers* in the order of the backward pass.

        Weights are updated when all gradients are there. Where the oldest goes first and updated weights have to be
        gathered, each block's are updated as soon as they can be, as only the backward pass covers the gathering.
        """
        newest_first = self.plan.newest_first
        reduced = {}
        for layer in reversed(layers) if newest_first else layers:
            made = self.made[layer.label]
            reduced[layer.label] = self.talk(layer.piece.reduces, layer.label, made) or made
            if layer.piece.updates and not newest_first:
                updated = self.update(layer, layer.label, reduced.pop(layer.label))
                self.talk(layer.piece.updates, layer.label, (updated,))
        before = tuple(dict.fromkeys(row for rows in reduced.values() for row in rows))
        for layer in layers:
            if layer.label in reduced:
                before = (self.update(layer, layer.label, before),)

    def update(self, layer: Layer, label: str, before: Iterable[int]) -> int:
        """Write the update of a block's weights."""
        return self.one(compute_row(self.plan.updates[layer.label], f"{label}.optimizer"), before)

    def talk(self, calls: Iterable[Collective], label: str, before: Iterable[int]) -> tuple[int, ...]:
        """Write collectives that hide."""
        rows = [collective_row(talk, f"{label}.{talk.name}", self.plan.groups) for talk in calls]
        return tuple(self.one(row, before) for row in rows)

    def one(self, row: Row, before: Iterable[int]) -> int:
        """Write a single row."""
        place = self.count
        self.append([row.name], _numbers([row]), np.array([row.seconds]))
        self.after(self.data, ((place, earlier) for earlier in before))
        return place

    # ---------------------------------------------------------------------------------------------- columns

    def append(self, names: list[str], numbers: Ints, seconds: Floats) -> None:
        """Add rows."""
        self.names += names
        self.numbers.append(numbers)
        self.seconds.append(seconds)
        self.count += len(names)

    @staticmethod
    def after(kind: list[Ints], pairs: Iterable[tuple[int, int]]) -> None:
        """Add dependencies: pairs of a row and one that comes before it."""
        found = list(pairs)
        if found:
            kind.append(np.array(found, np.int64))

    def template(self) -> Template:
        """Return the rows as a template; ids are their places."""
        numbers = np.concatenate(self.numbers) if self.numbers else np.zeros((0, len(NUMBERS)), np.int64)
        columns = {name: numbers[:, place].copy() for place, name in enumerate(NUMBERS)}
        seconds = np.concatenate(self.seconds) if self.seconds else np.zeros(0)
        computes = columns["type"] == NodeType.COMP
        columns["id"] = np.arange(self.count, dtype=np.int64)
        columns["duration_us"] = np.where(computes, np.maximum(1, np.rint(seconds * 1e6)), 0).astype(np.int64)
        columns["on_cpu"] = np.zeros(self.count, np.int64)
        columns["involved_dims"] = np.full(self.count, ABSENT, np.int64)
        for name, pairs in (("data", self.data), ("ctrl", self.control)):
            columns[f"{name}_start"], columns[f"{name}_id"] = _listed(pairs, self.count)
        return Template(**columns, names=self.names, process_groups={})


def _listed(pairs: Sequence[Ints], rows: int) -> tuple[Ints, Ints]:
    """Return pairs of a row and what it waits for as lists, one for each row."""
    both = np.concatenate(pairs) if pairs else np.zeros((0, 2), np.int64)
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    return np.searchsorted(both[:, 0], np.arange(rows + 1)).astype(np.int64), both[:, 1].copy()
