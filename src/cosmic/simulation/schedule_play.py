"""A pipeline schedule, played: when each task of each stage begins, if tasks take the times they are given.

A stage does its tasks in order, one at a time. F of a part of the model follows F of the part before it, B follows B of
the part behind it, and what crosses from stage to stage takes a while. Two tasks that overlap start when both can and
hand on what they made when both are done; they are told one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from cosmic.simulation.timeline import Floats, Ints
from cosmic.workload.schedule import Task


@dataclass(frozen=True, slots=True, eq=False)
class PlayedTasks:
    """Tasks in the order in which they were found to begin, and what crossed between them. Times are seconds."""

    tasks: Sequence[Task]
    stage: Ints
    start: Floats
    end: Floats
    sender: Ints
    """Of each crossing: the task that sent."""
    receiver: Ints
    sent: Floats
    arrived: Floats
    free: Floats
    """When the receiving stage had nothing else to do."""


@dataclass(slots=True)
class _Stage:
    order: Sequence[Task]
    next: int = 0
    free: float = 0.0


@dataclass(slots=True)
class _Play:
    stages: list[_Stage]
    parts: int
    seconds: Callable[[int, Task], float]
    crossing: tuple[float, float]
    detached: frozenset[tuple[int, int]]
    """Stages and microbatches that read what was sent before the step began."""
    tasks: list[Task] = field(default_factory=list)
    stage: list[int] = field(default_factory=list)
    times: list[tuple[float, float]] = field(default_factory=list)
    crossings: list[tuple[int, int, float, float, float]] = field(default_factory=list)
    done: dict[tuple[bool, int, int], tuple[float, int]] = field(default_factory=dict)
    """By backward or not, part and microbatch: when, and which task."""
    waiting: dict[tuple[bool, int, int], int] = field(default_factory=dict)
    """Stages that wait for something to be done."""

    def run(self) -> None:
        """Play all stages to their ends."""
        eager = list(range(len(self.stages)))[::-1]
        while eager:
            stage = eager.pop()
            while self._advance(stage, eager):
                pass

    def _advance(self, number: int, eager: list[int]) -> bool:
        """Do the next task of a stage, or the next two; return whether it could be done."""
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
        for place, (task, read) in enumerate(zip(together, reads, strict=True)):
            begun, end = end, end + self.seconds(number, task)
            self.tasks.append(task)
            self.stage.append(number)
            self.times.append((begun, end))
            if read is not None and read[0] > read[2]:
                self.crossings.append((read[1], first + place, read[2], read[0], stage.free))
        for place, task in enumerate(together):
            self._note(number, task, end, first + place, eager)
        stage.free, stage.next = end, stage.next + len(together)
        return True

    def _needs(self, stage: int, task: Task) -> tuple[bool, int, int] | None:
        """Return what must be done before a task, apart from what its stage does before it."""
        if task.kind == "W" or (stage, task.microbatch) in self.detached:
            return None
        part = task.part(stage, len(self.stages))
        if task.kind == "F":
            return (False, part - 1, task.microbatch) if part else None
        return (True, part + 1, task.microbatch) if part + 1 < self.parts else (False, part, task.microbatch)

    def _arrival(self, stage: int, task: Task, key: tuple[bool, int, int]) -> tuple[float, int, float]:
        """Return when a task has what it reads, who made it, and when that was done."""
        when, source = self.done[key]
        across = self.stage[source] != stage
        return when + across * self.crossing[task.kind != "F"], source, when

    def _note(self, stage: int, task: Task, end: float, number: int, eager: list[int]) -> None:
        """Note that a task is done, and who waited for it."""
        if task.kind == "W":
            return
        key = (task.kind != "F", task.part(stage, len(self.stages)), task.microbatch)
        self.done[key] = end, number
        if (other := self.waiting.pop(key, None)) is not None:
            eager.append(other)


def play(
    orders: Sequence[Sequence[Task]],
    parts: int,
    seconds: Callable[[int, Task], float],
    crossing: tuple[float, float],
    detached: frozenset[tuple[int, int]] = frozenset(),
) -> PlayedTasks:
    """Return when the tasks of each stage's order begin; *seconds* says how long each takes.

    >>> orders = [[Task("F", 0), Task("F", 1)], [Task("F", 0), Task("F", 1)]]
    >>> played = play(orders, 2, lambda stage, task: 1.0, (0.5, 0.0))
    >>> [each.tolist() for each in (played.stage, played.start)]
    [[0, 0, 1, 1], [0.0, 1.0, 1.5, 2.5]]
    """
    course = _Play([_Stage(order) for order in orders], parts, seconds, crossing, detached)
    course.run()
    times = np.array(course.times, float).reshape(-1, 2)
    crossed = list(zip(*course.crossings, strict=True)) or [()] * 5
    sender, receiver = (np.array(each, np.int64) for each in crossed[:2])
    sent, arrived, free = (np.array(each, float) for each in crossed[2:])
    stage = np.array(course.stage, np.int64)
    return PlayedTasks(course.tasks, stage, times[:, 0], times[:, 1], sender, receiver, sent, arrived, free)
