"""Simulate a pipeline schedule: when each task of each stage begins, given the duration of each task.

A stage runs its tasks in order, one at a time. F of a virtual stage follows F of the virtual stage before it, B follows
B of the one after it, and transfers between stages take time. Two overlapped tasks start when both can and send their
outputs when both are done; they are recorded one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from cosmic.simulation.timeline import Floats, Ints
from cosmic.workload.schedule import Task


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedTasks:
    """Tasks in the order of simulation, and the transfers between them. Times are seconds."""

    tasks: Sequence[Task]
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
    order: Sequence[Task]
    next: int = 0
    free: float = 0.0


@dataclass(slots=True)
class _Simulation:
    stages: list[_Stage]
    virtual_stages: int
    seconds: Callable[[int, Task], float]
    transfer_s: tuple[float, float]
    """From stage to stage: of activations, and of their gradients."""
    detached: frozenset[tuple[int, int]]
    """Stages and microbatches whose input was sent before the step began."""
    tasks: list[Task] = field(default_factory=list)
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
        for place, (task, read) in enumerate(zip(together, reads, strict=True)):
            begun, end = end, end + self.seconds(number, task)
            self.tasks.append(task)
            self.stage.append(number)
            self.times.append((begun, end))
            if read is not None and read[0] > read[2]:
                self.transfers.append((read[1], first + place, read[2], read[0], stage.free))
        for place, task in enumerate(together):
            self._complete(number, task, end, first + place, ready)
        stage.free, stage.next = end, stage.next + len(together)
        return True

    def _needs(self, stage: int, task: Task) -> tuple[bool, int, int] | None:
        """Return the key of the task that a task depends on, besides those before it on its stage."""
        if task.kind == "W" or (stage, task.microbatch) in self.detached:
            return None
        at = task.virtual_stage(stage, len(self.stages))
        if task.kind == "F":
            return (False, at - 1, task.microbatch) if at else None
        return (True, at + 1, task.microbatch) if at + 1 < self.virtual_stages else (False, at, task.microbatch)

    def _arrival(self, stage: int, task: Task, key: tuple[bool, int, int]) -> tuple[float, int, float]:
        """Return when the input of a task arrives, the task that made it, and when that ended."""
        when, source = self.done[key]
        across = self.stage[source] != stage
        return when + across * self.transfer_s[task.kind != "F"], source, when

    def _complete(self, stage: int, task: Task, end: float, number: int, ready: list[int]) -> None:
        """Record the end of a task, and make the stage that waits for it ready."""
        if task.kind == "W":
            return
        key = (task.kind != "F", task.virtual_stage(stage, len(self.stages)), task.microbatch)
        self.done[key] = end, number
        if (other := self.waiting.pop(key, None)) is not None:
            ready.append(other)


def simulate_tasks(
    orders: Sequence[Sequence[Task]],
    virtual_stages: int,
    seconds: Callable[[int, Task], float],
    transfer_s: tuple[float, float],
    detached: frozenset[tuple[int, int]] = frozenset(),
) -> SimulatedTasks:
    """Return when the tasks of each stage's order begin; *seconds* gives the duration of each.

    >>> orders = [[Task("F", 0), Task("F", 1)], [Task("F", 0), Task("F", 1)]]
    >>> simulated = simulate_tasks(orders, 2, lambda stage, task: 1.0, (0.5, 0.0))
    >>> [each.tolist() for each in (simulated.stage, simulated.start)]
    [[0, 0, 1, 1], [0.0, 1.0, 1.5, 2.5]]
    """
    simulation = _Simulation([_Stage(order) for order in orders], virtual_stages, seconds, transfer_s, detached)
    simulation.run()
    times = np.array(simulation.times, float).reshape(-1, 2)
    transfers = list(zip(*simulation.transfers, strict=True)) or [()] * 5
    sender, receiver = (np.array(each, np.int64) for each in transfers[:2])
    sent, arrived, free = (np.array(each, float) for each in transfers[2:])
    stage = np.array(simulation.stage, np.int64)
    return SimulatedTasks(simulation.tasks, stage, times[:, 0], times[:, 1], sender, receiver, sent, arrived, free)
