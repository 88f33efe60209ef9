"""Simulates the orders of all stages with their dependencies, to compare the closed forms with.

A stage runs its tasks strictly in order, one at a time. A task starts as soon as its stage is free and its inputs are
there; transfers take no time. Overlapped tasks start when all of them can, take the sum of their times, and send their
outputs together at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from cosmic.workload.pipeline_schedule import PipelineSchedule, PipelineTask, TaskKind

Event = tuple[str, int, int]
"""F, B or W of a microbatch on a virtual stage; a whole backward is B and W at once."""


class DeadlockError(AssertionError):
    """The stages wait for each other."""


@dataclass(frozen=True)
class Simulated:
    """Times and activations of one simulated step."""

    makespan: Fraction
    idle: tuple[Fraction, ...]
    """Idle seconds of each stage."""
    peak: tuple[Fraction, ...]
    """Most microbatches whose activations each stage keeps."""


def simulate(
    schedule: PipelineSchedule, stages: int, microbatches: int, virtual: int, times: Sequence[Fraction | int]
) -> Simulated:
    """Simulate one step; *times* are those of F, B and W of a whole stage."""
    forward, backward, weight = (Fraction(time) / virtual for time in times)
    seconds: dict[TaskKind, Fraction] = {"F": forward, "B": backward, "W": weight, "BW": backward + weight}
    queues = [bundles(schedule.order(stage, stages, microbatches, virtual)) for stage in range(stages)]
    ends = run(queues, seconds, stages * virtual)
    busy = [sum((seconds[task.kind] for bundle in queue for task in bundle), Fraction(0)) for queue in queues]
    return Simulated(
        makespan=max(ends),
        idle=tuple(max(ends) - work for work in busy),
        peak=tuple(peak(queue) / virtual for queue in queues),
    )


def bundles(order: Sequence[PipelineTask]) -> list[list[PipelineTask]]:
    """Return the tasks, overlapped ones together."""
    grouped: list[list[PipelineTask]] = []
    joined = False
    for task in order:
        if joined:
            grouped[-1].append(task)
        else:
            grouped.append([task])
        joined = task.with_next
    assert not joined, "the last task overlaps with nothing"
    return grouped


def run(
    queues: Sequence[Sequence[list[PipelineTask]]], seconds: Mapping[TaskKind, Fraction], virtual_stages: int
) -> list[Fraction]:
    """Return when each stage is done."""
    done: dict[Event, Fraction] = {}
    ends = [Fraction(0)] * len(queues)
    places = [0] * len(queues)
    moved = True
    while moved:
        moved = False
        for stage, queue in enumerate(queues):
            while places[stage] < len(queue):
                bundle = queue[places[stage]]
                needed = {event for task in bundle for event in needs(task, stage, len(queues), virtual_stages)}
                if not needed <= done.keys():
                    break
                start = max([ends[stage], *(done[event] for event in needed)])
                ends[stage] = start + sum((seconds[task.kind] for task in bundle), Fraction(0))
                done |= {event: ends[stage] for task in bundle for event in makes(task, stage, len(queues))}
                places[stage] += 1
                moved = True
    if any(place < len(queue) for place, queue in zip(places, queues, strict=True)):
        raise DeadlockError(places)
    return ends


def virtual_stage_of(task: PipelineTask, stage: int, stages: int) -> int:
    """Return the virtual stage: stage after stage and round again, or from the last stage to the first."""
    if task.reverse:
        return stages - 1 - stage
    return stage + stages * task.chunk


def needs(task: PipelineTask, stage: int, stages: int, virtual_stages: int) -> list[Event]:
    """Return the events that *task* depends on."""
    at = virtual_stage_of(task, stage, stages)
    if task.kind == "F":
        return [("F", task.microbatch, at - 1)] if at > 0 else []
    if task.kind == "W":
        return [("B", task.microbatch, at)]
    after = [("B", task.microbatch, at + 1)] if at < virtual_stages - 1 else []
    return [("F", task.microbatch, at), *after]


def makes(task: PipelineTask, stage: int, stages: int) -> list[Event]:
    """Return the events that *task* completes."""
    at = virtual_stage_of(task, stage, stages)
    return [(letter, task.microbatch, at) for letter in task.kind]


def peak(queue: Sequence[Sequence[PipelineTask]]) -> Fraction:
    """Return the most activations alive: allocated when F starts, freed when W (or a whole backward) ends."""
    alive = most = 0
    for bundle in queue:
        alive += sum(task.kind == "F" for task in bundle)
        most = max(most, alive)
        alive -= sum("W" in task.kind for task in bundle)
    assert alive == 0, "some activations were never freed"
    return Fraction(most)
