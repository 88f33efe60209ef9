"""The analytic engine's timeline: the order of the pipeline schedule, with the closed form's times.

Stages are processes. Each task is drawn as its compute and, on one track per axis, its exposed and its overlapped
communication; then come the exposed reduction of gradients, the update, and idle time. The schedule's order is
simulated, so timeline and closed form agree where the latter is exact; `reading` says where they do not.

How long each task takes, and of what (`step_times`): the closed form's seconds, shared out over the tasks. Every part
of the model (a stage, or a virtual stage) has the layers that it has. A task is its compute, then what that waits for,
each in one piece: within a task layers alternate, which is not told. Beside it runs what hides.

When each task of each stage begins, given the duration of each (`simulate_tasks`): a stage runs its tasks in order, one
at a time. F of a virtual stage follows F of the virtual stage before it, B follows B of the one after it, and transfers
between stages take time. Two overlapped tasks start when both can and send their outputs when both are done; they are
recorded one after the other.
"""

from __future__ import annotations

from collections import Counter as TaskCounter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from cosmic.base.numeric import sum_of
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.simulate.analytic_step import Anatomy, dissect_step, exchanged_s, exposed_after_step_s, transfer_s
from cosmic.simulate.step_timeline import (
    CLASS_CODES,
    Counter,
    Floats,
    Ints,
    SpanClass,
    Timeline,
    TimelineDrawing,
    TimelineProcess,
    TimelineTotals,
    accumulate_levels,
    merge_spans,
)
from cosmic.step.communication import Role, breakdown_part
from cosmic.step.device_memory import stage_footprints
from cosmic.step.stage_time import StageTime, part_times
from cosmic.workload.mesh_sizes import microbatches
from cosmic.workload.pipeline_schedule import PipelineTask, TaskKind, schedules

# ---- Simulate a pipeline schedule: when each task of each stage begins, given the duration of each task


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedTasks:
    """Tasks in the order of simulation, and the transfers between them. Times are seconds."""

    tasks: Sequence[PipelineTask]
    stage: Ints
    start: Floats
    end: Floats
    sender: Ints
    """The sending task of each transfer."""
    receiver: Ints
    sent: Floats
    arrived: Floats
    free: Floats
    """When the receiving stage became idle."""


@dataclass(slots=True)
class _Stage:
    order: Sequence[PipelineTask]
    next: int = 0
    free: float = 0.0


@dataclass(slots=True)
class _Simulation:
    stages: list[_Stage]
    virtual_stages: int
    seconds: Callable[[int, PipelineTask], float]
    transfer_s: tuple[float, float]
    """From stage to stage: of activations, and of their gradients."""
    detached: frozenset[tuple[int, int]]
    """Stages and microbatches whose input was sent before the step began."""
    tasks: list[PipelineTask] = field(default_factory=list)
    stage: list[int] = field(default_factory=list)
    times: list[tuple[float, float]] = field(default_factory=list)
    transfers: list[tuple[int, int, float, float, float]] = field(default_factory=list)
    done: dict[tuple[bool, int, int], tuple[float, int]] = field(default_factory=dict)
    """End and index of each task, by whether it is backward, virtual stage and microbatch."""
    waiting: dict[tuple[bool, int, int], int] = field(default_factory=dict)
    """The stage that waits for each such task."""

    def run(self) -> None:
        """Simulate all stages."""
        ready = list(range(len(self.stages)))[::-1]
        while ready:
            stage = ready.pop()
            while self._advance(stage, ready):
                pass

    def _advance(self, number: int, ready: list[int]) -> bool:
        """Run the next task of a stage, or the next two if they overlap; return whether their inputs were there."""
        stage = self.stages[number]
        if stage.next >= len(stage.order):
            return False
        together = stage.order[stage.next : stage.next + 1 + stage.order[stage.next].with_next]
        reads: list[tuple[float, int, float] | None] = []
        for task in together:
            key = self._needs(number, task)
            if key is not None and key not in self.done:
                self.waiting[key] = number
                return False
            reads.append(None if key is None else self._arrival(number, task, key))
        start = max([stage.free, *(read[0] for read in reads if read)])
        end = start
        first = len(self.tasks)
        for index, (task, read) in enumerate(zip(together, reads, strict=True)):
            begun, end = end, end + self.seconds(number, task)
            self.tasks.append(task)
            self.stage.append(number)
            self.times.append((begun, end))
            if read is not None and read[0] > read[2]:
                self.transfers.append((read[1], first + index, read[2], read[0], stage.free))
        for offset, task in enumerate(together):
            self._complete(number, task, end, first + offset, ready)
        stage.free, stage.next = end, stage.next + len(together)
        return True

    def _needs(self, stage: int, task: PipelineTask) -> tuple[bool, int, int] | None:
        """Return the key of the task that a task depends on, besides those before it on its stage."""
        if task.kind == "W" or (stage, task.microbatch) in self.detached:
            return None
        virtual = task.virtual_stage(stage, len(self.stages))
        if task.kind == "F":
            return (False, virtual - 1, task.microbatch) if virtual else None
        return (
            (True, virtual + 1, task.microbatch)
            if virtual + 1 < self.virtual_stages
            else (False, virtual, task.microbatch)
        )

    def _arrival(self, stage: int, task: PipelineTask, key: tuple[bool, int, int]) -> tuple[float, int, float]:
        """Return when the input of a task arrives, the task that made it, and when that ended."""
        when, source = self.done[key]
        across = self.stage[source] != stage
        return when + across * self.transfer_s[task.kind != "F"], source, when

    def _complete(self, stage: int, task: PipelineTask, end: float, number: int, ready: list[int]) -> None:
        """Record the end of a task, and make the stage that waits for it ready."""
        if task.kind == "W":
            return
        key = (task.kind != "F", task.virtual_stage(stage, len(self.stages)), task.microbatch)
        self.done[key] = end, number
        if (waiting := self.waiting.pop(key, None)) is not None:
            ready.append(waiting)


def simulate_tasks(
    orders: Sequence[Sequence[PipelineTask]],
    virtual_stages: int,
    seconds: Callable[[int, PipelineTask], float],
    transfer_s: tuple[float, float],
    detached: frozenset[tuple[int, int]] = frozenset(),
) -> SimulatedTasks:
    """Return when the tasks of each stage's order begin; *seconds* gives the duration of each.

    >>> orders = [[PipelineTask("F", 0), PipelineTask("F", 1)], [PipelineTask("F", 0), PipelineTask("F", 1)]]
    >>> simulated = simulate_tasks(orders, 2, lambda stage, task: 1.0, (0.5, 0.0))
    >>> [each.tolist() for each in (simulated.stage, simulated.start)]
    [[0, 0, 1, 1], [0.0, 1.0, 1.5, 2.5]]
    """
    simulation = _Simulation([_Stage(order) for order in orders], virtual_stages, seconds, transfer_s, detached)
    simulation.run()
    times = np.array(simulation.times, float).reshape(-1, 2)
    transfers = list(zip(*simulation.transfers, strict=True)) or [()] * 5
    sender, receiver = (np.array(transfer, np.int64) for transfer in transfers[:2])
    sent, arrived, free = (np.array(transfer, float) for transfer in transfers[2:])
    stage = np.array(simulation.stage, np.int64)
    return SimulatedTasks(simulation.tasks, stage, times[:, 0], times[:, 1], sender, receiver, sent, arrived, free)


# ---- How long each task of a pipeline schedule takes, and of what: the closed form's seconds, shared out over its tasks


class TaskPiece(NamedTuple):
    """A part of a task."""

    track: str
    name: str
    """Empty for compute, which is called as its task is."""
    kind: SpanClass
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """One task: pieces one after another, and what runs beside them."""

    pieces: tuple[TaskPiece, ...] = ()
    beside: tuple[TaskPiece, ...] = ()

    @property
    def seconds(self) -> float:
        """The whole task."""
        return sum(piece.seconds for piece in self.pieces)

    def share(self, fraction: float) -> TaskTimes:
        """Return a fraction of it."""
        pieces, beside = (
            tuple(piece._replace(seconds=piece.seconds * fraction) for piece in side)
            for side in (self.pieces, self.beside)
        )
        return replace(self, pieces=pieces, beside=beside)

    def with_more(self, pieces: Iterable[TaskPiece], beside: Iterable[TaskPiece] = ()) -> TaskTimes:
        """Return the task with more pieces; equal ones are merged."""
        return TaskTimes(_merge_alike_pieces((*self.pieces, *pieces)), _merge_alike_pieces((*self.beside, *beside)))


SHOWN: tuple[Role, ...] = ("tp", "cp", "ring", "ep", "dp", "weights")
"""What a pass may wait for, in the order in which it is drawn."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """What a step is made of, task by task."""

    tasks: dict[tuple[TaskKind, int], TaskTimes]
    """By kind, and by the part of the model."""
    crossing: tuple[float, float]
    """From stage to stage: activations, and their gradients back."""
    reducing: float
    """Gradients, after the last backward pass."""
    reduced_beside: float
    """Gradients, behind the last backward pass and what follows it."""
    updating: float
    returning: float
    """Updated weights, to those that need them, after the update."""
    offloading: tuple[float, float]
    """Traffic with outer memory, beside the step and after it."""
    rates: dict[str, float]
    """By track: bytes a second that a device brings into collectives while they run."""


def step_times(anatomy: Anatomy) -> StepTimes:
    """Return the tasks of the design whose anatomy is *anatomy*."""
    batch, memory = anatomy.profile.batch, anatomy.profile.memory
    training = batch.base.workload.task == "training"
    tasks: dict[tuple[TaskKind, int], TaskTimes] = {}
    for part, stage in enumerate(part_times(batch)):
        passes = _Passes(stage, float(anatomy.profile.microbatches))
        tasks["F", part] = passes.whole("forward")
        if training:
            tasks["BW", part] = both = passes.whole("backward")
            tasks["W", part] = later = passes.weight_gradients()
            tasks["B", part] = both.with_more(piece._replace(seconds=-piece.seconds) for piece in later.pieces)
    reducing, returning = (float(exposed) for exposed in exposed_after_step_s(anatomy.profile, anatomy.stage))
    exchanged = float(exchanged_s(anatomy.profile, anatomy.stage))
    reducing += exchanged
    communication_s = (
        sum(float(anatomy.stage.communication.get((role, "step"), 0.0)) for role in ("weights", "updated")) + exchanged
    )
    offloaded = float(anatomy.profile.network.offload_seconds(memory.tier_traffic))
    beyond = float(anatomy.step.parts["offload"]) - float(sum_of(anatomy.stage.stalled.values(), 0.0))
    offloaded = max(offloaded, beyond)  # what layers wait for is part of their passes
    sizes: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for traffic in anatomy.profile.traffic:
        track = breakdown_part(traffic.role, traffic.phase)
        sizes[track] = sizes.get(track, 0.0) + float(traffic.bytes * traffic.calls)
        seconds[track] = seconds.get(track, 0.0) + float(traffic.seconds)
    return StepTimes(
        tasks=tasks,
        crossing=(float(transfer_s(anatomy.profile, "forward")), float(transfer_s(anatomy.profile, "backward"))),
        reducing=reducing,
        reduced_beside=max(0.0, communication_s - reducing - returning),
        updating=float(anatomy.step.parts["optimizer"]),
        returning=returning,
        offloading=(offloaded - beyond, beyond),
        rates={track: sizes[track] / track_s for track, track_s in seconds.items() if track_s > 0},
    )


@dataclass(frozen=True, slots=True)
class _Passes:
    """Both passes of one microbatch through a part of the model."""

    stage: StageTime
    count: float
    """Microbatches in a step."""

    def whole(self, phase: str) -> TaskTimes:
        """Return a task: compute, what it waits for, and what runs beside it."""
        again = float(self.stage.compute.recompute) if phase == "backward" else 0.0
        compute = float(self.stage.compute.beside(phase)[2])
        pieces = [
            TaskPiece("compute", "", "compute", compute - again),
            TaskPiece("compute", "recompute", "compute", again),
        ]
        beside = []
        for role in SHOWN:
            communication_s = float(self.stage.communication.get((role, phase), 0.0))
            shown = float(self.stage.exposed.get((role, phase), 0.0))
            track = breakdown_part(role, phase)
            name = f"{'keys and values' if role == 'ring' else role}, {phase}"
            waited = TaskPiece(track, name, "exposed", shown)
            pieces = [waited, *pieces] if role == "weights" else [*pieces, waited]
            beside.append(TaskPiece(track, name, "hidden", communication_s - shown))
        pieces.append(TaskPiece("compute", f"host late, {phase}", "other", float(self.stage.delay[phase])))
        return TaskTimes(_merge_alike_pieces(pieces), _merge_alike_pieces(beside)).share(1 / self.count)

    def weight_gradients(self) -> TaskTimes:
        """Return the part of a backward task that only makes the gradients of weights."""
        late = float(self.stage.delay["backward"]) * self.stage.weight_share
        compute = float(self.stage.weight_gradients_s) - late
        pieces = (
            TaskPiece("compute", "", "compute", compute),
            TaskPiece("compute", "host late, backward", "other", late),
        )
        return TaskTimes(_merge_alike_pieces(pieces)).share(1 / self.count)


def _merge_alike_pieces(pieces: Iterable[TaskPiece]) -> tuple[TaskPiece, ...]:
    """Return the pieces with equal ones merged into the first of them, without those of no duration."""
    merged: dict[tuple[str, str, str], TaskPiece] = {}
    for piece in pieces:
        earlier = merged.get(piece[:3])
        merged[piece[:3]] = piece if earlier is None else earlier._replace(seconds=earlier.seconds + piece.seconds)
    return tuple(piece for piece in merged.values() if piece.seconds > 0)


# ---- The analytic engine's timeline: the order of the schedule, with the closed form's times

MOST_SPANS = 60_000
"""With more, each task is one span, or several tasks are."""
MOST_TASKS = 120_000
"""With more, a step is drawn with fewer microbatches."""
TRACKS = ("compute", "tp", "cp", "ep", "dp", "pp", "weights", "offload", "idle")
NEGLIGIBLE_DIFFERENCE = 1e-3
"""From this relative difference on, the reading states the difference between closed form and simulated order."""


def draw_design_timeline(point: DesignPoint) -> Timeline:
    """Return the timeline of a step of *point*, which must be feasible."""
    batch = batch_of(point)
    anatomy = dissect_step(batch)
    # All microbatches are drawn, if `MOST_TASKS` allows.
    workload, count = batch.base.workload, int(microbatches(batch))
    virtual = workload.virtual_stages if workload.pp > 1 else 1
    rounds = 2 * workload.pp  # every schedule runs with a multiple of this
    most = max(2, MOST_TASKS // (3 * workload.pp * virtual) // rounds) * rounds
    step = _DrawnStep(batch, step_times(anatomy), min(count, most), int(anatomy.profile.stage_index))
    return step.timeline(float(anatomy.step.seconds))


def stage_orders_of(point: DesignPoint, count: int) -> tuple[list[list[PipelineTask]], frozenset[tuple[int, int]]]:
    """Return the tasks of each stage, and the stages and microbatches whose input was sent before the step began."""
    workload = point.workload
    stages = workload.pp
    if workload.task == "training":
        virtual = workload.virtual_stages if stages > 1 else 1
        order = schedules[workload.schedule].order
        return [order(stage, stages, count, virtual) for stage in range(stages)], frozenset()
    if workload.task == "prefill":
        return [[PipelineTask("F", number) for number in range(count)] for _ in range(stages)], frozenset()
    turns = max(stages, count)  # per round: each microbatch is at one stage, or waits
    orders = []
    for stage in range(stages):
        first = (turns - stage) % turns  # the microbatch at this stage as the round begins
        turn = [*range(first, count), *range(min(first, count))]
        orders.append([PipelineTask("F", microbatch) for microbatch in turn])
    wrapped = ((stage, number) for stage in range(stages) for number in range(count) if stage + number == turns)
    return orders, frozenset(wrapped)


@dataclass(frozen=True, slots=True)
class _TasksOfKind:
    """The tasks of one kind on a stage."""

    stage: int
    times: TaskTimes
    numbers: Ints


class _DrawnStep:
    """One step of a design to draw."""

    def __init__(self, batch: Batch, times: StepTimes, count: int, bounding: int) -> None:
        self.batch, self.times, self.count, self.bounding = batch, times, count, bounding
        workload = batch.base.workload
        self.training, self.stages = workload.task == "training", workload.pp
        self.virtual = workload.virtual_stages if self.training and workload.pp > 1 else 1
        self.virtual_stages = self.stages * self.virtual
        orders, detached = stage_orders_of(batch.base, count)
        self.seconds = {mark: task.seconds for mark, task in times.tasks.items()}
        self.left_out = int(microbatches(batch)) - count
        """Microbatches that are not drawn one by one."""
        self.simulated = simulate_tasks(orders, self.virtual_stages, self._task_s, times.crossing, detached)
        self.pauses = self._make_room() if self.left_out else None
        self.done = np.zeros(self.stages)
        np.maximum.at(self.done, self.simulated.stage, self.simulated.end)
        self.tail = times.reducing + times.updating + times.returning
        self.end_s = float(self.done.max()) + self.tail + times.offloading[1]

    def _mark(self, stage: int, task: PipelineTask) -> tuple[TaskKind, int]:
        return task.kind, task.virtual_stage(stage, self.stages)

    def _task_s(self, stage: int, task: PipelineTask) -> float:
        return self.seconds[self._mark(stage, task)]

    def _make_room(self) -> Floats | None:
        """Insert a pause in the middle of every stage for the microbatches that are not drawn; return when each begins.

        In the middle of a step all stages repeat the same round, at the pace of the slowest. Return None where a
        transfer would arrive before the pause of its sender ends: the step is then drawn without the rest.
        """
        simulated, middle = self.simulated, self.count // 2
        numbers = np.arange(len(simulated.tasks))
        cuts = np.full(self.stages, len(simulated.tasks))
        for number, (stage, task) in enumerate(zip(simulated.stage.tolist(), simulated.tasks, strict=True)):
            if task.kind == "F" and task.microbatch == middle:
                cuts[stage] = min(cuts[stage], number)
        late = numbers >= cuts[simulated.stage]
        if (late[simulated.sender] & ~late[simulated.receiver]).any():
            return None
        pauses: Floats = simulated.start[cuts]
        rest = self.left_out * sum(undrawn.seconds for undrawn in self._round())
        shifted = rest * late
        received = shifted[simulated.receiver]
        self.simulated = replace(
            simulated,
            start=simulated.start + shifted,
            end=simulated.end + shifted,
            sent=simulated.sent + received,
            arrived=simulated.arrived + received,
            free=simulated.free + received,
        )
        return pauses

    def _round(self) -> list[TaskTimes]:
        """Return the tasks of the slowest stage for one microbatch, on average over its microbatches."""
        return max(
            (self._round_of(stage) for stage in range(self.stages)),
            key=lambda tasks: sum(task.seconds for task in tasks),
        )

    def _round_of(self, stage: int) -> list[TaskTimes]:
        placed = zip(self.simulated.stage.tolist(), self.simulated.tasks, strict=True)
        often = TaskCounter(self._mark(stage, task) for task_stage, task in placed if task_stage == stage)
        return [self.times.tasks[mark].share(number / self.count) for mark, number in often.items()]

    # ------------------------------------------------------------------------------------------------ drawing

    def timeline(self, step_s: float) -> Timeline:
        """Return the timeline of a step that takes *step_s* in closed form."""
        placed = self._placed()
        spans = sum(len(kind.numbers) * (len(kind.times.pieces) + len(kind.times.beside)) for kind in placed)
        spans += 2 * len(self.simulated.sender)
        whole_tasks = spans > MOST_SPANS
        folded = -(-len(self.simulated.tasks) * 2 // MOST_SPANS) if whole_tasks else 1
        drawing = TimelineDrawing()
        for stage in range(self.stages):
            for name in TRACKS:
                drawing.track(stage, name)
        if folded > 1:
            self._folded(drawing, folded)
        else:
            self._tasks(drawing, placed, whole_tasks=whole_tasks)
        if self.pauses is not None:
            self._pauses(drawing, self.pauses)
        self._ends(drawing, range(self.stages))
        self._waits(drawing, range(self.stages))
        tracks, names, drawn_spans, flows, _ = drawing.finish()
        ranks = self.batch.base.workload.ranks // self.stages
        return Timeline(
            engine="analytic",
            duration_ns=_to_ns(self.end_s),
            processes=tuple(TimelineProcess(f"stage {stage}", ranks) for stage in range(self.stages)),
            tracks=tracks,
            names=names,
            spans=drawn_spans,
            flows=flows,
            counters=(*self._memory(), *(() if whole_tasks else self._links(drawing))),
            totals=self._totals(placed),
            reading=self._reading(step_s, whole_tasks, folded),
        )

    def _placed(self) -> list[_TasksOfKind]:
        """Return the tasks, grouped by stage and kind."""
        groups: dict[tuple[int, tuple[TaskKind, int]], list[int]] = {}
        for number, (stage, task) in enumerate(zip(self.simulated.stage.tolist(), self.simulated.tasks, strict=True)):
            groups.setdefault((stage, self._mark(stage, task)), []).append(number)
        return [_TasksOfKind(stage, self.times.tasks[mark], np.array(group)) for (stage, mark), group in groups.items()]

    def _tasks(self, drawing: TimelineDrawing, placed: Sequence[_TasksOfKind], *, whole_tasks: bool) -> None:
        """Draw every task, in segments or *whole_tasks*, and the transfers between stages."""
        called = np.array([drawing.name(self._task_name(task)) for task in self.simulated.tasks], np.int64)
        main = np.full(len(called), -1, np.int64)
        for kind in placed:
            if whole_tasks:
                compute = drawing.track(kind.stage, "compute")
                start, end = self.simulated.start[kind.numbers], self.simulated.end[kind.numbers]
                main[kind.numbers] = drawing.add(compute, called[kind.numbers], "compute", _to_ns(start), _to_ns(end))
            else:
                main[kind.numbers] = self._pieces(drawing, kind, called)
        self._transfers(drawing, main, whole_tasks=whole_tasks)

    def _pieces(self, drawing: TimelineDrawing, kind: _TasksOfKind, called: Ints) -> Ints:
        """Draw tasks of one kind, segment by segment; return the last span of each."""
        now, ends = self.simulated.start[kind.numbers], self.simulated.end[kind.numbers]
        from_, until = now, now  # while they compute
        pieces = kind.times.pieces or (TaskPiece("compute", "", "compute", 0.0),)
        for index, piece in enumerate(pieces):
            following = ends if index == len(pieces) - 1 else now + piece.seconds
            name = drawing.name(piece.name) if piece.name else called[kind.numbers]
            main = drawing.add(drawing.track(kind.stage, piece.track), name, piece.kind, _to_ns(now), _to_ns(following))
            if piece.kind == "compute":
                from_, until = (from_ if piece.name else now), following
            now = following
        for piece in kind.times.beside:
            most = ends if piece.track == "weights" else until
            track, name = drawing.track(kind.stage, piece.track), drawing.name(piece.name)
            drawing.add(track, name, "hidden", _to_ns(from_), _to_ns(np.minimum(from_ + piece.seconds, most)))
        return main

    def _task_name(self, task: PipelineTask) -> str:
        """Return the name of a task: F12, or F12.1 for one of several model chunks; a whole backward is B."""
        kind = "B" if task.kind == "BW" else task.kind
        return f"{kind}{task.microbatch}" + (f".{task.chunk}" if self.virtual > 1 else "")

    def _transfers(self, drawing: TimelineDrawing, main: Ints, *, whole_tasks: bool) -> None:
        """Draw the transfers to each stage: exposed while the stage is idle, overlapped before."""
        simulated = self.simulated
        if whole_tasks:
            drawing.flow(main[simulated.sender], main[simulated.receiver])
            return
        kinds = np.array([task.kind != "F" for task in simulated.tasks], bool)[simulated.receiver]
        track = np.array([drawing.track(stage, "pp") for stage in range(self.stages)])[
            simulated.stage[simulated.receiver]
        ]
        name = np.where(kinds, drawing.name("gradients"), drawing.name("activations"))
        sent, arrived = _to_ns(simulated.sent), _to_ns(simulated.arrived)
        split = np.clip(_to_ns(simulated.free), sent, arrived)
        ahead, late = split > sent, arrived > split
        hidden = drawing.add(track[ahead], name[ahead], "hidden", sent[ahead], split[ahead])
        exposed = drawing.add(track[late], name[late], "exposed", split[late], arrived[late])
        arrow = np.full(len(sent), -1, np.int64)
        arrow[late] = exposed
        both = ahead & late
        drawing.link(hidden[both[ahead]], arrow[both])
        arrow[ahead] = hidden
        real = arrow >= 0
        drawing.flow(main[simulated.sender[real]], arrow[real])

    def _folded(self, drawing: TimelineDrawing, many: int) -> None:
        """Draw every *many* tasks of a stage as one span."""
        for stage in range(self.stages):
            rows = np.flatnonzero(self.simulated.stage == stage)
            firsts = np.arange(0, len(rows), many)
            lasts = np.minimum(firsts + many, len(rows)) - 1
            start, end = self.simulated.start[rows[firsts]], self.simulated.end[rows[lasts]]
            name = drawing.name(f"{many} tasks")
            drawing.add(drawing.track(stage, "compute"), name, "compute", _to_ns(start), _to_ns(end))

    def _pauses(self, drawing: TimelineDrawing, pauses: Floats) -> None:
        """Draw the remaining microbatches as one span on each stage."""
        rest = self.left_out * sum(task.seconds for task in self._round())
        for stage, begun in enumerate(pauses.tolist()):
            name = f"{self.left_out:,} microbatches more"
            _draw_span(drawing, (stage, "compute", name, "compute"), begun, begun + rest)

    def _ends(self, drawing: TimelineDrawing, stages: Sequence[int]) -> None:
        """Draw what happens once a step: gradients, the update, updated weights, outer memory."""
        times = self.times
        tail: tuple[tuple[str, str, SpanClass, float], ...] = (
            ("dp", "gradients reduced", "exposed", times.reducing),
            ("compute", "optimizer", "optimizer", times.updating),
            ("dp", "updated weights", "exposed", times.returning),
        )
        for stage in stages:
            now = float(self.done[stage])
            for track, name, kind, seconds in tail:
                _draw_span(drawing, (stage, track, name, kind), now, now + seconds)
                now += seconds
            self._gradients_beside(drawing, stage)
            beside, after = times.offloading
            _draw_span(drawing, (stage, "offload", "outer memory", "memory"), self.end_s - after - beside, self.end_s)

    def _gradients_beside(self, drawing: TimelineDrawing, stage: int) -> None:
        """Draw the overlapped gradients: beside the last backward pass and, if that is too short, the next forward."""
        done = float(self.done[stage])
        behind = min(self.times.reduced_beside, self.seconds.get(("BW", stage), 0.0), done)
        _draw_span(drawing, (stage, "dp", "gradients reduced", "hidden"), done - behind, done)
        if self.batch.base.collective.scheduling == "lifo":
            row = int(np.argmax(self.simulated.stage == stage))
            first = float(self.simulated.start[row])
            rest = min(self.times.reduced_beside - behind, float(self.simulated.end[row]) - first)
            _draw_span(drawing, (stage, "dp", "gradients of the step before", "hidden"), first, first + rest)

    def _waits(self, drawing: TimelineDrawing, stages: Sequence[int]) -> None:
        """Draw the idle time of stages."""
        track, _, kind, start, end = drawing.joined()
        owner = np.array([process for process, _ in drawing.tracks], np.int64)[track]
        active = ~np.isin(kind, (CLASS_CODES["hidden"], CLASS_CODES["memory"]))
        name, end_ns = drawing.name("waits"), _to_ns(self.end_s)
        for stage in stages:
            on_stage = active & (owner == stage)
            begun, ended = merge_spans(start[on_stage], end[on_stage])
            gaps = np.concatenate([[0], ended]), np.concatenate([begun, [end_ns]])
            real = gaps[1] > gaps[0]
            drawing.add(drawing.track(stage, "idle"), name, "idle", gaps[0][real], gaps[1][real])

    # ------------------------------------------------------------------------------------------------ numbers

    def _totals(self, placed: Sequence[_TasksOfKind]) -> TimelineTotals:
        """Return how the stage that bounds the step spends its time, all microbatches included."""
        bounding = self.bounding
        drawing = TimelineDrawing()
        no_names = np.zeros(len(self.simulated.tasks), np.int64)
        for tasks in placed:
            if tasks.stage == bounding:
                self._pieces(drawing, tasks, no_names)
        to_bounding = self.simulated.stage[self.simulated.receiver] == bounding
        sent, arrived = _to_ns(self.simulated.sent[to_bounding]), _to_ns(self.simulated.arrived[to_bounding])
        split = np.clip(_to_ns(self.simulated.free[to_bounding]), sent, arrived)
        drawing.add(drawing.track(bounding, "pp"), 0, "exposed", split, arrived)
        drawing.add(drawing.track(bounding, "pp"), 0, "hidden", sent, split)
        self._ends(drawing, [bounding])
        _, _, kind, start, end = drawing.joined()

        def seconds(*kinds: SpanClass) -> float:
            wanted = np.isin(kind, [CLASS_CODES[span_kind] for span_kind in kinds])
            begun, ended = merge_spans(start[wanted], end[wanted])
            return float((ended - begun).sum()) / 1e9

        many = self.left_out if self.pauses is not None else 0
        pieces = [piece for task in self._round_of(bounding) for piece in (*task.pieces, *task.beside)]
        more = {
            class_code: many * sum(piece.seconds for piece in pieces if piece.kind == class_code)
            for class_code in CLASS_CODES
        }
        compute = seconds("compute", "optimizer") + more["compute"]
        exposed = seconds("exposed") + more["exposed"]
        idle = max(0.0, _to_ns(self.end_s) / 1e9 - compute - exposed)
        return TimelineTotals(compute, exposed, seconds("hidden") + more["hidden"], idle)

    def _memory(self) -> list[Counter]:
        """Return the memory use of each stage over time.

        Weights, gradients and optimizer state are constant. A microbatch's activations are kept from its forward to the
        last backward that reads them; their size is the stage's activations over those in flight. Loss and buffers are
        held by tasks that compute gradients, or by all tasks in inference.
        """
        counters = []
        for stage, footprint in enumerate(stage_footprints(self.batch.base)):
            parts = {name: float(value) for name, value in footprint.parts.items()}
            passing = parts["loss"] + parts["buffers"] + parts["fragmentation"]
            constant = sum(parts.values()) - passing - parts["activations"]
            times, held = self._in_flight(stage)
            microbatch_bytes = parts["activations"] / max(1e-9, float(held.max(initial=0.0)))
            begun, ended = self._busy(stage)
            moments = np.concatenate([[0], times, begun, ended])
            grown = np.diff(held, prepend=0.0) * microbatch_bytes
            changes = np.concatenate([[constant], grown, np.full(len(begun), passing), np.full(len(ended), -passing)])
            levels = accumulate_levels(moments, changes)
            counters.append(Counter(stage, "memory", "B", self.batch.base.memory.capacity_bytes, *levels))
        return counters

    def _in_flight(self, stage: int) -> tuple[Ints, Floats]:
        """Return the number of microbatches whose activations a stage keeps, over time."""
        rows = np.flatnonzero(self.simulated.stage == stage)
        kinds = np.array([self.simulated.tasks[row].kind for row in rows.tolist()])
        start, end = _to_ns(self.simulated.start[rows]), _to_ns(self.simulated.end[rows])
        opens, closes = kinds == "F", np.isin(kinds, ("BW", "W")) if self.training else kinds == "F"
        share = 1 / self.virtual
        moments = np.concatenate([end[closes], start[opens]])
        changes = np.concatenate([np.full(closes.sum(), -share), np.full(opens.sum(), share)])
        return accumulate_levels(moments, changes)

    def _busy(self, stage: int) -> tuple[Ints, Ints]:
        """Return when a stage needs its buffers."""
        rows = np.flatnonzero(self.simulated.stage == stage)
        wanted = [not self.training or self.simulated.tasks[row].kind != "F" for row in rows.tolist()]
        rows = rows[np.array(wanted, bool)]
        return merge_spans(_to_ns(self.simulated.start[rows]), _to_ns(self.simulated.end[rows]))

    def _links(self, drawing: TimelineDrawing) -> list[Counter]:
        """Return the traffic of an accelerator of each stage along each axis, over time."""
        track, _, kind, start, end = drawing.joined()
        counters = []
        for (stage, name), number in drawing.tracks.items():
            rate = self.times.rates.get(name)
            on_track = (track == number) & np.isin(kind, (CLASS_CODES["exposed"], CLASS_CODES["hidden"]))
            if rate is None or not on_track.any():
                continue
            begun, ended = merge_spans(start[on_track], end[on_track])
            moments = np.concatenate([[0], begun, ended])
            changes = np.concatenate([[0.0], np.full(len(begun), rate), np.full(len(ended), -rate)])
            times, values = accumulate_levels(moments, changes)
            counters.append(Counter(stage, f"{name} traffic", "B/s", None, times, np.maximum(0.0, values)))
        return counters

    def _reading(self, step_s: float, whole_tasks: bool, folded: int) -> str:
        """Return a sentence: what is drawn, what is left out, and the difference to the closed form."""
        count = int(microbatches(self.batch))
        what = {"prefill": "One prefill", "decode": "One decoded token"}.get(self.batch.base.workload.task, "One step")
        sentences = [f"{what}, {count:,} microbatch{'es' * (count > 1)}"]
        sentences[0] += f" on {self.stages} stages" if self.stages > 1 else ""
        sentences[0] += "" if whole_tasks else ", each task drawn as its compute and then its exposed communication"
        if folded > 1:
            sentences.append(f"{folded} tasks of a stage are one span")
        elif whole_tasks:
            sentences.append("each task is one span, communication is left out")
        if self.left_out and self.pauses is None:
            sentences.append(f"only {self.count:,} of the microbatches are drawn")
        elif self.left_out:
            sentences.append(f"only {self.count:,} of the microbatches are drawn one by one, the others are one span")
        if (self.pauses is not None or not self.left_out) and abs(self.end_s / step_s - 1) > NEGLIGIBLE_DIFFERENCE:
            sentences.append(
                f"simulated in order it takes {self.end_s:.4g} s, {100 * (self.end_s / step_s - 1):+.2g} % from the"
                f" closed form's {step_s:.4g} s"
            )
        return "; ".join(sentences) + "."


def _draw_span(drawing: TimelineDrawing, span: tuple[int, str, str, SpanClass], start: float, end: float) -> None:
    stage, track, name, kind = span
    if end > start:
        drawing.add(
            drawing.track(stage, track),
            drawing.name(name),
            kind,
            _to_ns(np.array([start])),
            _to_ns(np.array([end])),
        )


def _to_ns(seconds: Any) -> Any:
    """Return whole nanoseconds."""
    nanoseconds = np.rint(np.asarray(seconds) * 1e9).astype(np.int64)
    return nanoseconds if nanoseconds.ndim else int(nanoseconds)
