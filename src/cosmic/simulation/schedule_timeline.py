"""The analytic engine's timeline: the order of the schedule, with the closed form's times.

Stages are processes. Each task is drawn as its compute and, on one track per axis, its exposed and its overlapped
communication; then come the exposed reduction of gradients, the update, and idle time. The schedule's order is
simulated, so timeline and closed form agree where the latter is exact; `reading` says where they do not.
"""

from __future__ import annotations

from collections import Counter as TaskCounter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cosmic.design.batch import Batch, batch_of
from cosmic.design.point import DesignPoint
from cosmic.simulation.analytic import anatomy
from cosmic.simulation.schedule_simulation import simulate_tasks
from cosmic.simulation.schedule_times import Piece, StepTimes, TaskTimes, step_times
from cosmic.simulation.timeline import (
    CODE,
    Class,
    Counter,
    Drawing,
    Floats,
    Ints,
    Process,
    Timeline,
    Totals,
    covered,
    stepped,
)
from cosmic.step.memory import stage_footprints
from cosmic.workload.schedule import Task, TaskKind, schedules
from cosmic.workload.sizes import microbatches

MOST_SPANS = 60_000
"""With more, each task is one span, or several tasks are."""
MOST_TASKS = 120_000
"""With more, a step is drawn with fewer microbatches."""
TRACKS = ("compute", "tp", "cp", "ep", "dp", "pp", "weights", "offload", "idle")
APART = 1e-3
"""From this relative difference on, the reading states the difference between closed form and simulated order."""


def timeline_of(point: DesignPoint) -> Timeline:
    """Return the timeline of a step of *point*, which must be feasible."""
    batch = batch_of(point)
    found = anatomy(batch)
    step = _Step(batch, step_times(found), _drawn_microbatches(batch), int(found.profile.place))
    return step.timeline(float(found.step.seconds))


def _drawn_microbatches(batch: Batch) -> int:
    """Return the number of microbatches to draw: all of them, if `MOST_TASKS` allows."""
    workload, count = batch.base.workload, int(microbatches(batch))
    virtual = workload.virtual_stages if workload.pp > 1 else 1
    rounds = 2 * workload.pp  # every schedule runs with a multiple of this
    most = max(2, MOST_TASKS // (3 * workload.pp * virtual) // rounds) * rounds
    return min(count, most)


def orders_of(point: DesignPoint, count: int) -> tuple[list[list[Task]], frozenset[tuple[int, int]]]:
    """Return the tasks of each stage, and the stages and microbatches whose input was sent before the step began."""
    workload = point.workload
    stages = workload.pp
    if workload.task == "training":
        virtual = workload.virtual_stages if stages > 1 else 1
        order = schedules[workload.schedule].order
        return [order(stage, stages, count, virtual) for stage in range(stages)], frozenset()
    if workload.task == "prefill":
        return [[Task("F", each) for each in range(count)] for _ in range(stages)], frozenset()
    turns = max(stages, count)  # per round: each microbatch is at one stage, or waits
    orders = []
    for stage in range(stages):
        first = (turns - stage) % turns  # the microbatch at this stage as the round begins
        turn = [*range(first, count), *range(min(first, count))]
        orders.append([Task("F", microbatch) for microbatch in turn])
    wrapped = ((stage, each) for stage in range(stages) for each in range(count) if stage + each == turns)
    return orders, frozenset(wrapped)


@dataclass(frozen=True, slots=True)
class _Placed:
    """The tasks of one kind on a stage."""

    stage: int
    times: TaskTimes
    numbers: Ints


class _Step:
    """One step of a design to draw."""

    def __init__(self, batch: Batch, times: StepTimes, count: int, bounding: int) -> None:
        self.batch, self.times, self.count, self.bounding = batch, times, count, bounding
        workload = batch.base.workload
        self.training, self.stages = workload.task == "training", workload.pp
        self.virtual = workload.virtual_stages if self.training and workload.pp > 1 else 1
        self.virtual_stages = self.stages * self.virtual
        orders, detached = orders_of(batch.base, count)
        self.seconds = {mark: each.seconds for mark, each in times.tasks.items()}
        self.left_out = int(microbatches(batch)) - count
        """Microbatches that are not drawn one by one."""
        self.simulated = simulate_tasks(orders, self.virtual_stages, self._task_s, times.crossing, detached)
        self.pauses = self._make_room() if self.left_out else None
        self.done = np.zeros(self.stages)
        np.maximum.at(self.done, self.simulated.stage, self.simulated.end)
        self.tail = times.reducing + times.updating + times.returning
        self.end_s = float(self.done.max()) + self.tail + times.offloading[1]

    def _mark(self, stage: int, task: Task) -> tuple[TaskKind, int]:
        return task.kind, task.virtual_stage(stage, self.stages)

    def _task_s(self, stage: int, task: Task) -> float:
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
        rest = self.left_out * sum(each.seconds for each in self._round())
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
        often = TaskCounter(self._mark(stage, task) for at, task in placed if at == stage)
        return [self.times.tasks[mark].share(number / self.count) for mark, number in often.items()]

    # ------------------------------------------------------------------------------------------------ drawing

    def timeline(self, step_s: float) -> Timeline:
        """Return the timeline of a step that takes *step_s* in closed form."""
        placed = self._placed()
        spans = sum(len(each.numbers) * (len(each.times.pieces) + len(each.times.beside)) for each in placed)
        spans += 2 * len(self.simulated.sender)
        whole = spans > MOST_SPANS
        folded = -(-len(self.simulated.tasks) * 2 // MOST_SPANS) if whole else 1
        drawing = Drawing()
        for stage in range(self.stages):
            for name in TRACKS:
                drawing.track(stage, name)
        if folded > 1:
            self._folded(drawing, folded)
        else:
            self._tasks(drawing, placed, whole=whole)
        if self.pauses is not None:
            self._pauses(drawing, self.pauses)
        self._ends(drawing, range(self.stages))
        self._waits(drawing, range(self.stages))
        tracks, names, found, flows, _ = drawing.finish()
        ranks = self.batch.base.workload.ranks // self.stages
        return Timeline(
            engine="analytic",
            duration_ns=_ns(self.end_s),
            processes=tuple(Process(f"stage {stage}", ranks) for stage in range(self.stages)),
            tracks=tracks,
            names=names,
            spans=found,
            flows=flows,
            counters=(*self._memory(), *(() if whole else self._links(drawing))),
            totals=self._totals(placed),
            reading=self._reading(step_s, whole, folded),
        )

    def _placed(self) -> list[_Placed]:
        """Return the tasks, grouped by stage and kind."""
        groups: dict[tuple[int, tuple[TaskKind, int]], list[int]] = {}
        for number, (stage, task) in enumerate(zip(self.simulated.stage.tolist(), self.simulated.tasks, strict=True)):
            groups.setdefault((stage, self._mark(stage, task)), []).append(number)
        return [_Placed(stage, self.times.tasks[mark], np.array(each)) for (stage, mark), each in groups.items()]

    def _tasks(self, drawing: Drawing, placed: Sequence[_Placed], *, whole: bool) -> None:
        """Draw every task, in segments or *whole*, and the transfers between stages."""
        called = np.array([drawing.name(self._called(task)) for task in self.simulated.tasks], np.int64)
        main = np.full(len(called), -1, np.int64)
        for each in placed:
            if whole:
                compute = drawing.track(each.stage, "compute")
                start, end = self.simulated.start[each.numbers], self.simulated.end[each.numbers]
                main[each.numbers] = drawing.add(compute, called[each.numbers], "compute", _ns(start), _ns(end))
            else:
                main[each.numbers] = self._pieces(drawing, each, called)
        self._transfers(drawing, main, whole=whole)

    def _pieces(self, drawing: Drawing, each: _Placed, called: Ints) -> Ints:
        """Draw tasks of one kind, segment by segment; return the last span of each."""
        now, ends = self.simulated.start[each.numbers], self.simulated.end[each.numbers]
        from_, until = now, now  # while they compute
        pieces = each.times.pieces or (Piece("compute", "", "compute", 0.0),)
        for place, piece in enumerate(pieces):
            following = ends if place == len(pieces) - 1 else now + piece.seconds
            name = drawing.name(piece.name) if piece.name else called[each.numbers]
            main = drawing.add(drawing.track(each.stage, piece.track), name, piece.kind, _ns(now), _ns(following))
            if piece.kind == "compute":
                from_, until = (from_ if piece.name else now), following
            now = following
        for piece in each.times.beside:
            most = ends if piece.track == "weights" else until
            track, name = drawing.track(each.stage, piece.track), drawing.name(piece.name)
            drawing.add(track, name, "hidden", _ns(from_), _ns(np.minimum(from_ + piece.seconds, most)))
        return main

    def _called(self, task: Task) -> str:
        """Return the name of a task: F12, or F12.1 for one of several model chunks; a whole backward is B."""
        kind = "B" if task.kind == "BW" else task.kind
        return f"{kind}{task.microbatch}" + (f".{task.chunk}" if self.virtual > 1 else "")

    def _transfers(self, drawing: Drawing, main: Ints, *, whole: bool) -> None:
        """Draw the transfers to each stage: exposed while the stage is idle, overlapped before."""
        simulated = self.simulated
        if whole:
            drawing.flow(main[simulated.sender], main[simulated.receiver])
            return
        kinds = np.array([task.kind != "F" for task in simulated.tasks], bool)[simulated.receiver]
        track = np.array([drawing.track(stage, "pp") for stage in range(self.stages)])[
            simulated.stage[simulated.receiver]
        ]
        name = np.where(kinds, drawing.name("gradients"), drawing.name("activations"))
        sent, arrived = _ns(simulated.sent), _ns(simulated.arrived)
        split = np.clip(_ns(simulated.free), sent, arrived)
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

    def _folded(self, drawing: Drawing, many: int) -> None:
        """Draw every *many* tasks of a stage as one span."""
        for stage in range(self.stages):
            rows = np.flatnonzero(self.simulated.stage == stage)
            firsts = np.arange(0, len(rows), many)
            lasts = np.minimum(firsts + many, len(rows)) - 1
            start, end = self.simulated.start[rows[firsts]], self.simulated.end[rows[lasts]]
            name = drawing.name(f"{many} tasks")
            drawing.add(drawing.track(stage, "compute"), name, "compute", _ns(start), _ns(end))

    def _pauses(self, drawing: Drawing, pauses: Floats) -> None:
        """Draw the remaining microbatches as one span on each stage."""
        rest = self.left_out * sum(each.seconds for each in self._round())
        for stage, begun in enumerate(pauses.tolist()):
            name = f"{self.left_out:,} microbatches more"
            _draw_one(drawing, (stage, "compute", name, "compute"), begun, begun + rest)

    def _ends(self, drawing: Drawing, stages: Sequence[int]) -> None:
        """Draw what happens once a step: gradients, the update, updated weights, outer memory."""
        times = self.times
        tail: tuple[tuple[str, str, Class, float], ...] = (
            ("dp", "gradients reduced", "exposed", times.reducing),
            ("compute", "optimizer", "optimizer", times.updating),
            ("dp", "updated weights", "exposed", times.returning),
        )
        for stage in stages:
            now = float(self.done[stage])
            for track, name, kind, seconds in tail:
                _draw_one(drawing, (stage, track, name, kind), now, now + seconds)
                now += seconds
            self._gradients_beside(drawing, stage)
            beside, after = times.offloading
            _draw_one(drawing, (stage, "offload", "outer memory", "memory"), self.end_s - after - beside, self.end_s)

    def _gradients_beside(self, drawing: Drawing, stage: int) -> None:
        """Draw the overlapped gradients: beside the last backward pass and, if that is too short, the next forward."""
        done = float(self.done[stage])
        behind = min(self.times.reduced_beside, self.seconds.get(("BW", stage), 0.0), done)
        _draw_one(drawing, (stage, "dp", "gradients reduced", "hidden"), done - behind, done)
        if self.batch.base.collective.scheduling == "lifo":
            row = int(np.argmax(self.simulated.stage == stage))
            first = float(self.simulated.start[row])
            rest = min(self.times.reduced_beside - behind, float(self.simulated.end[row]) - first)
            _draw_one(drawing, (stage, "dp", "gradients of the step before", "hidden"), first, first + rest)

    def _waits(self, drawing: Drawing, stages: Sequence[int]) -> None:
        """Draw the idle time of stages."""
        track, _, kind, start, end = drawing.joined()
        owner = np.array([process for process, _ in drawing.tracks], np.int64)[track]
        active = ~np.isin(kind, (CODE["hidden"], CODE["memory"]))
        name, whole = drawing.name("waits"), _ns(self.end_s)
        for stage in stages:
            mine = active & (owner == stage)
            begun, ended = covered(start[mine], end[mine])
            gaps = np.concatenate([[0], ended]), np.concatenate([begun, [whole]])
            real = gaps[1] > gaps[0]
            drawing.add(drawing.track(stage, "idle"), name, "idle", gaps[0][real], gaps[1][real])

    # ------------------------------------------------------------------------------------------------ numbers

    def _totals(self, placed: Sequence[_Placed]) -> Totals:
        """Return how the stage that bounds the step spends its time, all microbatches included."""
        bounding = self.bounding
        drawing = Drawing()
        whole = np.zeros(len(self.simulated.tasks), np.int64)
        for each in placed:
            if each.stage == bounding:
                self._pieces(drawing, each, whole)
        mine = self.simulated.stage[self.simulated.receiver] == bounding
        sent, arrived = _ns(self.simulated.sent[mine]), _ns(self.simulated.arrived[mine])
        split = np.clip(_ns(self.simulated.free[mine]), sent, arrived)
        drawing.add(drawing.track(bounding, "pp"), 0, "exposed", split, arrived)
        drawing.add(drawing.track(bounding, "pp"), 0, "hidden", sent, split)
        self._ends(drawing, [bounding])
        _, _, kind, start, end = drawing.joined()

        def seconds(*kinds: Class) -> float:
            wanted = np.isin(kind, [CODE[each] for each in kinds])
            begun, ended = covered(start[wanted], end[wanted])
            return float((ended - begun).sum()) / 1e9

        many = self.left_out if self.pauses is not None else 0
        pieces = [piece for task in self._round_of(bounding) for piece in (*task.pieces, *task.beside)]
        more = {each: many * sum(piece.seconds for piece in pieces if piece.kind == each) for each in CODE}
        compute = seconds("compute", "optimizer") + more["compute"]
        exposed = seconds("exposed") + more["exposed"]
        idle = max(0.0, _ns(self.end_s) / 1e9 - compute - exposed)
        return Totals(compute, exposed, seconds("hidden") + more["hidden"], idle)

    def _memory(self) -> list[Counter]:
        """Return the memory use of each stage over time.

        Weights, gradients and optimizer state are constant. A microbatch's activations are kept from its forward to the
        last backward that reads them; their size is the stage's activations over those in flight. Loss and buffers are
        held by tasks that compute gradients, or by all tasks in inference.
        """
        counters = []
        for stage, footprint in enumerate(stage_footprints(self.batch.base)):
            parts = {name: float(value) for name, value in footprint.parts.items()}
            passing = parts["loss"] + parts["buffers"] + parts["allowance"]
            constant = sum(parts.values()) - passing - parts["activations"]
            times, held = self._in_flight(stage)
            each = parts["activations"] / max(1e-9, float(held.max(initial=0.0)))
            begun, ended = self._busy(stage)
            moments = np.concatenate([[0], times, begun, ended])
            grown = np.diff(held, prepend=0.0) * each
            changes = np.concatenate([[constant], grown, np.full(len(begun), passing), np.full(len(ended), -passing)])
            levels = stepped(moments, changes)
            counters.append(Counter(stage, "memory", "B", self.batch.base.memory.capacity_bytes, *levels))
        return counters

    def _in_flight(self, stage: int) -> tuple[Ints, Floats]:
        """Return the number of microbatches whose activations a stage keeps, over time."""
        rows = np.flatnonzero(self.simulated.stage == stage)
        kinds = np.array([self.simulated.tasks[row].kind for row in rows.tolist()])
        start, end = _ns(self.simulated.start[rows]), _ns(self.simulated.end[rows])
        opens, closes = kinds == "F", np.isin(kinds, ("BW", "W")) if self.training else kinds == "F"
        share = 1 / self.virtual
        moments = np.concatenate([end[closes], start[opens]])
        changes = np.concatenate([np.full(closes.sum(), -share), np.full(opens.sum(), share)])
        return stepped(moments, changes)

    def _busy(self, stage: int) -> tuple[Ints, Ints]:
        """Return when a stage needs its buffers."""
        rows = np.flatnonzero(self.simulated.stage == stage)
        wanted = [not self.training or self.simulated.tasks[row].kind != "F" for row in rows.tolist()]
        rows = rows[np.array(wanted, bool)]
        return covered(_ns(self.simulated.start[rows]), _ns(self.simulated.end[rows]))

    def _links(self, drawing: Drawing) -> list[Counter]:
        """Return the traffic of an accelerator of each stage along each axis, over time."""
        track, _, kind, start, end = drawing.joined()
        counters = []
        for (stage, name), number in drawing.tracks.items():
            rate = self.times.rates.get(name)
            mine = (track == number) & np.isin(kind, (CODE["exposed"], CODE["hidden"]))
            if rate is None or not mine.any():
                continue
            begun, ended = covered(start[mine], end[mine])
            moments = np.concatenate([[0], begun, ended])
            changes = np.concatenate([[0.0], np.full(len(begun), rate), np.full(len(ended), -rate)])
            times, values = stepped(moments, changes)
            counters.append(Counter(stage, f"{name} traffic", "B/s", None, times, np.maximum(0.0, values)))
        return counters

    def _reading(self, step_s: float, whole: bool, folded: int) -> str:
        """Return a sentence: what is drawn, what is left out, and the difference to the closed form."""
        count = int(microbatches(self.batch))
        what = {"prefill": "One prefill", "decode": "One decoded token"}.get(self.batch.base.workload.task, "One step")
        said = [f"{what}, {count:,} microbatch{'es' * (count > 1)}"]
        said[0] += f" on {self.stages} stages" if self.stages > 1 else ""
        said[0] += "" if whole else ", each task drawn as its compute and then its exposed communication"
        if folded > 1:
            said.append(f"{folded} tasks of a stage are one span")
        elif whole:
            said.append("each task is one span, communication is left out")
        if self.left_out and self.pauses is None:
            said.append(f"only {self.count:,} of the microbatches are drawn")
        elif self.left_out:
            said.append(f"only {self.count:,} of the microbatches are drawn one by one, the others are one span")
        if (self.pauses is not None or not self.left_out) and abs(self.end_s / step_s - 1) > APART:
            said.append(
                f"simulated in order it takes {self.end_s:.4g} s, {100 * (self.end_s / step_s - 1):+.2g} % from the"
                f" closed form's {step_s:.4g} s"
            )
        return "; ".join(said) + "."


def _draw_one(drawing: Drawing, what: tuple[int, str, str, Class], start: float, end: float) -> None:
    stage, track, name, kind = what
    if end > start:
        drawing.add(drawing.track(stage, track), drawing.name(name), kind, _ns(np.array([start])), _ns(np.array([end])))


def _ns(seconds: Any) -> Any:
    """Return whole nanoseconds."""
    whole = np.rint(np.asarray(seconds) * 1e9).astype(np.int64)
    return whole if whole.ndim else int(whole)
