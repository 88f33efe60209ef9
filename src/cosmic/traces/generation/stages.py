"""The trace of one pipeline stage: its tasks in the order of the schedule, and what happens once a step.

Once a step, gradients are reduced and weights updated, and gathered if each rank updated its shard. Where the newest
collective goes first (LIFO), reductions that the last backward pass does not overlap extend into the next step, beside
its first forward pass. A trace of one step shows them at its start, as those of the step before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from cosmic.traces.generation.pieces import Collective, Piece, Run, merged
from cosmic.traces.generation.tapes import (
    EXPOSED,
    NEXT,
    OVERLAPPED,
    PREVIOUS,
    Fetched,
    Pace,
    Recorder,
    Row,
    Tape,
    collective_row,
    compute_row,
    listed,
    units_of,
)
from cosmic.traces.trace import ABSENT, RECORDED, Ints, NodeType, Template
from cosmic.workload.schedule import Task, TaskKind

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
    """The layers of each virtual stage, from the model's input on."""
    groups: tuple[tuple[str, ...], ...]
    """The axes of each kind of communicator group."""
    permuted: tuple[tuple[str, ...], ...]
    """The axes of each kind of collective-permute."""
    passed: Collective | None
    """The message from stage to stage."""
    stages: int
    microbatches: int
    newest_first: bool
    training: bool
    updates: dict[str, Run]
    """The optimizer's work for each block, by label."""
    paces: tuple[Mapping[str, Pace], ...]
    """How both passes go, for each part."""
    offloaded_states: tuple[float, float] = (0.0, 0.0)
    """Seconds and bytes of the update's traffic with outer memory tiers."""
    exchange_latency_s: float = 0.0
    """Of an exchange of parameters between islands, its mean over the steps between two of them."""
    offloaded: tuple[float, float] = (0.0, 0.0)
    """Seconds and bytes of each task's traffic with outer memory tiers."""
    outer: Mapping[str, Mapping[str, Fetched]] = field(default_factory=dict)
    """What blocks move between the accelerator and outer tiers, by pass and label, if it is fetched a layer ahead."""
    resident: int = 2
    """Blocks whose outer state is on the accelerator at a time."""
    gradients_out: tuple[float, float] = (0.0, 0.0)
    """Seconds and bytes of a stage's gradients on their way to the host's processor, once a step."""
    follows: bool = False
    """Whether a step follows another like it, which has fetched the first blocks."""


@dataclass(frozen=True)
class Compiled:
    """A tape as arrays."""

    tape: Tape
    passing: bool
    """Whether it has messages between stages: their tags depend on the microbatch."""

    @cached_property
    def names(self) -> list[str]:
        """Names of the rows."""
        return [row.name for row in self.tape.rows]

    @cached_property
    def numbers(self) -> Ints:
        """The columns `NUMBERS` of the rows."""
        return _numbers(self.tape.rows)

    @cached_property
    def seconds(self) -> Floats:
        """Seconds of the rows."""
        return np.array([row.seconds for row in self.tape.rows])

    @cached_property
    def data(self) -> Ints:
        """Data dependencies, as pairs of rows."""
        return np.array(self.tape.data, np.int64).reshape(-1, 2)

    @cached_property
    def control(self) -> Ints:
        """Control dependencies, as pairs of rows."""
        return np.array(self.tape.control, np.int64).reshape(-1, 2)

    @cached_property
    def rings(self) -> list[int]:
        """Rows that exchange something with neighbours: keys and values in a ring, or boundary rows."""
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
    tapes: dict[tuple[int, TaskKind, bool], Compiled] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    numbers: list[Ints] = field(default_factory=list)
    seconds: list[Floats] = field(default_factory=list)
    data: list[Ints] = field(default_factory=list)
    control: list[Ints] = field(default_factory=list)
    count: int = 0
    rings: int = 0
    passed: list[tuple[tuple[int, ...], float]] = field(default_factory=list)
    """The rows that end every block so far, and the seconds that it computes."""
    pending: tuple[list[int], float] = ([], 0.0)
    """Reductions of the task before, and the seconds of compute that may still overlap them."""
    made: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The rows that complete each block's gradients of the latest microbatch."""
    begun: dict[str, int] = field(default_factory=dict)
    """The first step of each block's first forward pass."""
    opened: set[int] = field(default_factory=set)
    """Virtual stages whose first forward pass was written."""
    freed: list[tuple[int, ...]] = field(default_factory=list)
    """The rows after which the buffer of each block so far that moves outer state is free."""
    stored: tuple[int, ...] = ()
    """The latest of the rows that bring state of blocks to outer tiers."""
    moved: tuple[int, ...] = ()
    """The latest task's traffic with outer memory tiers, which ends after that of all tasks before."""

    def write(self, tasks: Sequence[Task], detached: Iterable[int] = ()) -> tuple[Template, Floats]:
        """Return the nodes of the stage and their seconds; the input of *detached* tasks was sent before the step."""
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
        """Return the layers of the stage, in the order of the model."""
        parts = sorted({task.virtual_stage(self.stage, self.plan.stages) for task in tasks})
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
        data = compiled.data
        if self.plan.follows and not self.passed and tape.loads:  # the step before has fetched the first blocks
            data = data[~np.isin(data[:, 1], tape.loads)]
        self.data.append(data + start)
        self.control.append(compiled.control + start)
        self.connect(tape, start, received)
        self.advance(tape, start, task.kind)
        self.moved = self.moved if tape.offload is None else (start + tape.offload,)
        return start, compiled

    def connect(self, tape: Tape, start: int, received: bool) -> None:
        """Make a task depend on its receive and on the task before, and its overlapped communication on both."""
        before = self.passed[-1][0] if self.passed else ()
        self.after(self.control, ((start + head, row) for head in tape.heads for row in before))
        if tape.receive is not None and received:
            receive = tape.receive
            self.after(self.data, ((start + head, start + receive) for head in tape.heads if head != receive))
        for row, back in tape.waiting:
            if back <= len(self.freed):
                self.after(self.control, ((start + row, end) for end in self.freed[-back]))
        if tape.early:
            gate = self.gate(tape.took[-1])
            self.after(self.control, ((start + row, end) for row in tape.early for end in gate))
        self.settle(tape, start)

    def gate(self, seconds: float) -> tuple[int, ...]:
        """Return the rows after which about *seconds* of compute remain before the next task."""
        for ends, took in reversed(self.passed):
            if seconds < took / 2:
                return ends
            seconds -= took
        return ()

    def settle(self, tape: Tape, start: int) -> None:
        """Make this task wait for the reductions of the task before once its compute has overlapped enough of them."""
        rows, seconds = self.pending
        for begun, took in zip(tape.begun.values(), tape.took, strict=True):
            if rows and seconds < took / 2:
                self.after(self.control, ((start + begun, row) for row in rows))
                rows = []
            seconds -= took
        self.pending = rows, seconds
        if tape.reduced:
            self.pending = [*rows, *(start + row for row in tape.reduced)], tape.took[0] + tape.apart_s

    def advance(self, tape: Tape, start: int, work: TaskKind) -> None:
        """Record the blocks that the task began, ended and made gradients of."""
        if work == "F":
            for label, row in tape.begun.items():
                self.begun.setdefault(label, start + row)
        else:
            self.made |= {label: tuple(start + row for row in rows) for label, rows in tape.made.items()}
        ends = tape.ends or [tuple(tape.tail)][: len(tape.tail)]  # a stage without layers only forwards
        moved = [tuple(start + row for row in rows) for rows in ends]
        self.passed += zip(moved, tape.took or [0.0] * len(moved), strict=True)
        self.freed += [tuple(start + row for row in rows) for rows in tape.freed]
        self.stored = (start + tape.stores[-1],) if tape.stores else self.stored

    def join(self, first: tuple[int, Compiled], second: tuple[int, Compiled]) -> None:
        """Make two overlapped tasks start together and end together."""
        (start, one), (follows, other) = first, second
        if other.tape.receive is not None:
            arrival = follows + other.tape.receive
            self.after(self.data, ((start + head, arrival) for head in one.tape.heads))
        if one.tape.send is not None:
            sent = start + one.tape.send
            self.after(self.control, ((sent, follows + row) for row in other.tape.tail))

    def compiled(self, task: Task) -> Compiled:
        """Return the tape of a task."""
        part = task.virtual_stage(self.stage, self.plan.stages)
        key = (part, task.kind, task.reverse)
        if key not in self.tapes:
            self.tapes[key] = self.record(part, task)
        return self.tapes[key]

    def record(self, part: int, task: Task) -> Compiled:
        """Write the tape of a task."""
        plan, forward = self.plan, task.kind == "F"
        phase = "forward" if forward else "backward"
        pace = plan.paces[part][phase]
        recorder = Recorder(plan.groups, pace, plan.permuted, plan.outer.get(phase, {}), plan.resident)
        last = len(plan.parts) - 1
        call = plan.passed if plan.stages > 1 and task.kind != "W" else None
        onward, back = (PREVIOUS, NEXT) if task.reverse else (NEXT, PREVIOUS)
        name = "activations" if forward else "gradients"
        if call and part != (0 if forward else last):
            tag = 2 * (part - 1) if forward else 2 * part + 1
            recorder.receive(call, back if forward else onward, tag, name)
        if plan.offloaded[0] and task.kind != "W":
            self.record_offload(recorder, forward)
        layers = plan.parts[part]
        for layer in layers if forward else reversed(layers):
            recorder.block(layer.label, units_of(layer.piece, task.kind), task.kind)
        recorder.flush()
        if task.kind == "W":
            recorder.tape.apart_s = sum(recorder.tape.took)
        if call and part != (last if forward else 0):
            tag = 2 * part if forward else 2 * (part - 1) + 1
            recorder.send(call, onward if forward else back, tag, name)
        if not recorder.tape.tail and recorder.tape.receive is not None:
            recorder.tape.tail = [recorder.tape.receive]
        return Compiled(recorder.tape, call is not None)

    def record_offload(self, recorder: Recorder, forward: bool) -> None:
        """Write a task's traffic with outer memory tiers: no task waits for it, but the update does."""
        seconds, size = self.plan.offloaded
        stores = forward and self.plan.training
        kind, name = (NodeType.MEM_STORE, "store") if stores else (NodeType.MEM_LOAD, "load")
        row = recorder.add(Row(f"offload.{name}", kind, seconds, tensor_size=max(1, round(size))), ())
        recorder.tape.offload = row

    # ---------------------------------------------------------------------------------------- once a step

    def left_over(self, held: Sequence[Layer]) -> set[str]:
        """Return the blocks whose reduction extends into the next step, if the newest always goes first."""
        if not self.plan.newest_first:
            return set()
        waiting: list[tuple[str, float]] = []
        now = free = 0.0
        for layer in reversed(held):
            now += layer.piece.backward_s
            while waiting and free < now:
                free += waiting.pop()[1]
            free = max(free, now)
            waiting.append((layer.label, self.efficiency * sum(call.seconds for call in layer.piece.reduces)))
        if waiting and free <= now:
            waiting.pop()
        return {label for label, seconds in waiting if seconds}

    def open(self, task: Task, left: set[str]) -> None:
        """Write what the step before left to a virtual stage, beside its first forward pass.

        Updated weights, and reductions that the last backward pass did not overlap. Their rows follow those of the
        pass, which depends on them, so that its other dependencies go first.
        """
        part = task.virtual_stage(self.stage, self.plan.stages)
        if not self.plan.training or part in self.opened:
            return
        self.opened.add(part)
        layers = self.plan.parts[part]
        late = [call for layer in layers if layer.label in left for call in layer.piece.reduces]
        rest = self.rest([*late, *(call for layer in layers for call in layer.piece.updates)], "previous", ())
        for layer in layers:
            label, ready = f"previous.{layer.label}", rest
            if layer.label in left:
                ready = (self.update(layer, label, self.overlapped(layer.piece.reduces, label, ready) or ready),)
            ready = self.overlapped(layer.piece.updates, label, ready, layer.piece.held_up[1]) or ready
            self.after(self.data, ((self.begun[layer.label], row) for row in ready))

    def close(self, layers: Sequence[Layer]) -> None:
        """Write the reductions and updates of *layers*, which are in the order of the backward pass.

        Weights are updated when all gradients are reduced, and passes have had their traffic with outer tiers.
        """
        reduced: dict[str, tuple[int, ...]] = {}
        calls = [call for layer in layers for call in layer.piece.reduces]
        for layer in reversed(layers) if self.plan.newest_first else layers:
            made = self.made.get(layer.label, ())  # none of a block that is frozen and has no gradients to pass on
            rows = self.overlapped(layer.piece.reduces, layer.label, made, layer.piece.held_up[0])
            reduced[layer.label] = rows or made
        last = self.passed[-1][0] if self.passed else ()
        rows = tuple(row for each in reduced.values() for row in each)
        before = (*dict.fromkeys((*rows, *self.moved, *last, *self.stored)),)
        before = self.rest(calls, "all", before) or before
        before = self.send_gradients(layers, reduced, before)
        seconds, size = self.plan.offloaded_states
        if seconds:
            self.one(Row("optimizer.load", NodeType.MEM_LOAD, seconds, tensor_size=max(1, round(size))), before)
        for layer in layers:
            before = (self.update(layer, layer.label, before),)
        for call in merged((call for layer in layers for call in layer.piece.exchanged), "parameters"):
            longer = self.plan.exchange_latency_s if call.kind == "all_reduce" else 0.0
            row = collective_row(replace(call, seconds=call.seconds + longer), call.name, self.plan.groups, EXPOSED)
            before = (self.one(row, before),)

    def send_gradients(
        self, layers: Sequence[Layer], reduced: Mapping[str, tuple[int, ...]], before: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Write what brings the gradients of each layer to the host's processor, as soon as they are *reduced*."""
        seconds, size = self.plan.gradients_out
        whole = sum(layer.piece.elements for layer in layers)
        if not seconds or not whole:
            return before
        rows = []
        for layer in layers:
            share = layer.piece.elements / whole
            name, moved = f"{layer.label}.gradients.store", max(1, round(size * share))
            row = Row(name, NodeType.MEM_STORE, seconds * share, tensor_size=moved)
            rows.append(self.one(row, reduced[layer.label]))
        return (*before, *rows)

    @property
    def efficiency(self) -> float:
        """The share of the collectives of weights and gradients that runs beside compute."""
        return self.plan.paces[0]["backward"].efficiency

    def rest(self, calls: Iterable[Collective], label: str, before: Iterable[int]) -> tuple[int, ...]:
        """Write what of some collectives nothing overlaps, those of one kind and group as one."""
        share = 1 - self.efficiency
        found = [call.share(share) for call in merged(calls, "rest")] if share else []
        rows = [collective_row(call, f"{label}.{call.name}", self.plan.groups, EXPOSED) for call in found]
        return tuple(self.one(row, before) for row in rows)

    def update(self, layer: Layer, label: str, before: Iterable[int]) -> int:
        """Write the update of a block's weights."""
        return self.one(compute_row(self.plan.updates[layer.label], f"{label}.optimizer"), before)

    def overlapped(
        self, calls: Iterable[Collective], label: str, before: Iterable[int], held_up: float = 1.0
    ) -> tuple[int, ...]:
        """Write collectives as far as they run beside compute."""
        found = [call.share(self.efficiency) for call in calls] if self.efficiency else []
        rows = [collective_row(call, f"{label}.{call.name}", self.plan.groups, OVERLAPPED) for call in found]
        return tuple(self.one(row._replace(seconds=row.seconds * held_up), before) for row in rows)

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
        """Return the rows as a template; ids are row numbers."""
        numbers = np.concatenate(self.numbers) if self.numbers else np.zeros((0, len(NUMBERS)), np.int64)
        columns = {name: numbers[:, place].copy() for place, name in enumerate(NUMBERS)}
        seconds = np.concatenate(self.seconds) if self.seconds else np.zeros(0)
        computes = columns["type"] == NodeType.COMP
        columns["id"] = np.arange(self.count, dtype=np.int64)
        columns["duration_us"] = np.where(computes, np.maximum(1, np.rint(seconds * 1e6)), 0).astype(np.int64)
        columns["on_cpu"] = np.zeros(self.count, np.int64)
        for name in ("involved_dims", *RECORDED):
            columns[name] = np.full(self.count, ABSENT, np.int64)
        for name, pairs in (("data", self.data), ("ctrl", self.control)):
            columns[f"{name}_start"], columns[f"{name}_id"] = listed(pairs, self.count)
        return Template(**columns, names=self.names, kernels=(), process_groups={})
