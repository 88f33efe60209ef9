"""What must hold for every pipeline schedule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isclose
from typing import NamedTuple

import numpy as np

from cosmic.errors import SpecError
from cosmic.simulation.schedule_simulation import simulate_tasks
from cosmic.testing.suite import Suite
from cosmic.workload.schedule import Schedule, Task, TaskKind, schedules

TIMES_S = ((1.0, 1.0, 1.0), (1.0, 1.5, 0.5), (2.0, 1.0, 3.0))
"""Seconds of forward, of backward for the input and of backward for the weights."""


TRANSFER_S = 1 / 64
"""Seconds from stage to stage, both ways, where transfers are simulated."""
TRANSFERS_APART = 1 / 4
"""By how many transfers and back a closed form may miss those that a simulated step waits for."""


class Sizes(NamedTuple):
    """Sizes of a pipeline."""

    stages: int
    microbatches: int
    virtual: int


GRID = [
    Sizes(stages, microbatches, virtual)
    for stages in (1, 2, 3, 4, 6, 8)
    for microbatches in (1, 2, 3, 4, 6, 8, 12, 16, 24)
    for virtual in (1, 2, 3)
]


def peak(tasks: list[Task], virtual: int) -> float:
    """Return the most microbatches whose activations a stage keeps while it runs *tasks*.

    A forward adds one; the whole backward, or its weight pass, removes one.
    """
    change = {"F": 1, "B": 0, "W": -1, "BW": -1}
    alive = np.cumsum([change[task.kind] for task in tasks])
    return float(alive.max()) / virtual


def simulated_s(schedule: Schedule, sizes: Sizes, transfer_s: float, times_s: Sequence[float] = (1, 1, 1)) -> float:
    """Return the seconds of a simulated step of equal stages."""
    orders = [schedule.order(stage, *sizes) for stage in range(sizes.stages)]
    forward, backward, weight = (each / sizes.virtual for each in times_s)
    seconds = {"F": forward, "B": backward, "W": weight, "BW": backward + weight}
    crossing = (transfer_s, transfer_s)
    found = simulate_tasks(
        orders, sizes.stages * sizes.virtual, lambda _, task: seconds[task.kind], crossing, frozenset()
    )
    return float(found.end.max())


def refuses(schedule: Schedule, sizes: Sizes) -> bool:
    """Return whether the schedule refuses to order *sizes*."""
    try:
        schedule.order(0, *sizes)
    except SpecError:
        return True
    return False


class ScheduleSuite(Suite):
    """Laws of order, bubble, transfers and activations in flight."""

    registry = schedules

    def fitting(self, name: str) -> Iterator[tuple[Schedule, Sizes]]:
        """Yield the schedule with each of the grid's sizes that it can run."""
        schedule: Schedule = self.registry[name]
        for sizes in GRID:
            if schedule.invalid_reason(*sizes) is None:
                yield schedule, sizes

    def test_one_stage_is_gradient_accumulation(self, name: str) -> None:
        """It always fits, has no bubble, and keeps one microbatch and one copy of the parameters."""
        schedule: Schedule = self.registry[name]
        for sizes in GRID:
            if sizes.stages == 1:
                assert schedule.invalid_reason(*sizes) is None
                assert schedule.parameter_copies(1) == 1
                assert schedule.in_flight(0, *sizes) == 1
                assert all(schedule.bubble(*sizes[:2], *times_s, sizes.virtual) == 0 for times_s in TIMES_S)

    def test_each_task_is_done_once_and_in_turn(self, name: str) -> None:
        """A stage runs each microbatch forward through each chunk, then backward, whole or as input and weight pass."""
        for schedule, sizes in self.fitting(name):
            work = {(m, chunk) for m in range(sizes.microbatches) for chunk in range(sizes.virtual)}
            for stage in range(sizes.stages):
                done: dict[tuple[int, int], tuple[TaskKind, ...]] = {}
                for task in schedule.order(stage, *sizes):
                    key = (task.microbatch, task.chunk)
                    done[key] = (*done.get(key, ()), task.kind)
                assert done.keys() == work
                assert set(done.values()) <= {("F", "BW"), ("F", "B", "W")}

    def test_what_is_in_flight_follows_from_the_order(self, name: str) -> None:
        """The closed form equals the peak over the order, on every stage."""
        for schedule, sizes in self.fitting(name):
            for stage in range(sizes.stages):
                expected = peak(schedule.order(stage, *sizes), sizes.virtual)
                assert isclose(schedule.in_flight(stage, *sizes), expected)

    def test_at_least_one_and_at_most_all_microbatches_are_in_flight(self, name: str) -> None:
        """A stage keeps the microbatch that it works on, and no more than there are."""
        for schedule, sizes in self.fitting(name):
            for stage in range(sizes.stages):
                assert 1 <= schedule.in_flight(stage, *sizes) <= sizes.microbatches

    def test_idle_time_is_never_negative(self, name: str) -> None:
        """For any times."""
        for schedule, sizes in self.fitting(name):
            for times_s in TIMES_S:
                assert schedule.bubble(*sizes[:2], *times_s, sizes.virtual) >= 0

    def test_more_microbatches_never_enlarge_the_fraction_that_idles(self, name: str) -> None:
        """The pipeline is filled and drained once per step."""
        for times_s in TIMES_S:
            fractions: dict[tuple[int, int], float] = {}
            for schedule, sizes in self.fitting(name):
                idle_s = schedule.bubble(*sizes[:2], *times_s, sizes.virtual)
                fraction = idle_s / (idle_s + sizes.microbatches * sum(times_s))
                key = (sizes.stages, sizes.virtual)
                assert fraction <= fractions.get(key, 1.0) + 1e-12
                fractions[key] = float(fraction)

    def test_a_step_waits_for_the_transfers_that_are_stated(self, name: str) -> None:
        """Simulated with stages of equal times and short transfers, within `TRANSFERS_APART`; one stage has none."""
        for schedule, sizes in self.fitting(name):
            stated = float(sum(schedule.transfers(*sizes)))
            waited = simulated_s(schedule, sizes, TRANSFER_S) - simulated_s(schedule, sizes, 0.0)
            assert abs(waited / (2 * TRANSFER_S) - stated) <= TRANSFERS_APART
            assert sizes.stages > 1 or stated == 0

    def test_what_does_not_fit_is_refused_in_a_sentence(self, name: str) -> None:
        """`invalid_reason`, `runs` and `order` agree."""
        schedule: Schedule = self.registry[name]
        for sizes in GRID:
            reason = schedule.invalid_reason(*sizes)
            assert schedule.runs(*sizes) == (reason is None)
            if reason is not None:
                assert reason.strip()
                assert refuses(schedule, sizes)

    def test_arrays_give_what_numbers_give(self, name: str) -> None:
        """The closed forms work on a batch of sizes as on one."""
        schedule: Schedule = self.registry[name]
        grid = [sizes for _, sizes in self.fitting(name)]
        stages, microbatches, virtual = np.array(grid).T
        for times_s in TIMES_S:
            bubbles = np.broadcast_to(schedule.bubble(stages, microbatches, *times_s, virtual), len(grid))
            assert bubbles.tolist() == [schedule.bubble(*sizes[:2], *times_s, sizes.virtual) for sizes in grid]
        kept = np.broadcast_to(schedule.in_flight(0 * stages, stages, microbatches, virtual), len(grid))
        assert kept.tolist() == [schedule.in_flight(0, *sizes) for sizes in grid]
        for place in (0, 1):
            sent = np.broadcast_to(schedule.transfers(stages, microbatches, virtual)[place], len(grid))
            assert sent.tolist() == [schedule.transfers(*sizes)[place] for sizes in grid]
        copies = np.broadcast_to(schedule.parameter_copies(stages), len(grid))
        assert copies.tolist() == [schedule.parameter_copies(sizes.stages) for sizes in grid]
        runs = np.broadcast_to(schedule.runs(*np.array(GRID).T), len(GRID))
        assert runs.tolist() == [schedule.runs(*sizes) for sizes in GRID]
