"""Values of the papers, and what is refused."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.workload.pipeline_schedule import PipelineSchedule, schedules
from cosmic.workload.pipeline_schedules.dualpipe import DualPipe
from cosmic.workload.pipeline_schedules.gpipe import GPipe
from cosmic.workload.pipeline_schedules.interleaved import Interleaved
from cosmic.workload.pipeline_schedules.schedule_1f1b import OneForwardOneBackward
from cosmic.workload.pipeline_schedules.zero_bubble import ZeroBubble

EACH: list[PipelineSchedule] = [
    GPipe,
    OneForwardOneBackward,
    Interleaved,
    ZeroBubble,
    DualPipe,
]  # mypy checks the protocol


def test_each_is_registered() -> None:
    assert set(schedules.values()) == set(EACH)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_the_bubble_fraction_of_gpipe_and_1f1b(name: str) -> None:
    """(p - 1) / (m + p - 1) of the step (Huang et al. 2019; Narayanan et al. 2021)."""
    p, m, work = 4, 12, 3.0
    idle = schedules[name].bubble(p, m, 1.0, 1.5, 0.5)
    assert idle == (p - 1) * work
    assert idle / (idle + m * work) == pytest.approx((p - 1) / (m + p - 1))


@pytest.mark.parametrize(("stages", "microbatches", "efficiency"), [(4, 16, 0.842), (8, 32, 0.821), (16, 64, 0.810)])
def test_the_pipelines_of_pathways(stages: int, microbatches: int, efficiency: float) -> None:
    """GPipe's M / (M + S - 1) at the sizes of Barham et al., MLSys 2022, Table 2."""
    idle = GPipe.bubble(stages, microbatches, 1, 1, 1)
    assert 3 * microbatches / (3 * microbatches + idle) == pytest.approx(efficiency, abs=5e-4)


def test_interleaving_divides_the_bubble() -> None:
    for virtual in (1, 2, 3):
        assert Interleaved.bubble(4, 8, 1, 1, 1, virtual) == 9 / virtual


def test_interleaving_once_is_1f1b() -> None:
    for stage in range(4):
        assert Interleaved.order(stage, 4, 6) == OneForwardOneBackward.order(stage, 4, 6)


def test_interleaving_costs_memory_on_the_first_stage() -> None:
    """It keeps p (1 + (p - 1) / (p v)): Korthikanti et al., MLSys 2023, §4.2.3."""
    assert Interleaved.in_flight(0, 8, 64, 3) == pytest.approx(8 * (1 + 7 / 24))


def test_zb_h1_has_the_published_bubble_where_w_is_shortest() -> None:
    """(p - 1) (F + B - W), a third of 1F1B's for equal times: Qi et al., ICLR 2024, Table 2."""
    assert ZeroBubble.bubble(8, 32, 1.0, 1.25, 0.75) == 7 * (1.0 + 1.25 - 0.75)
    assert ZeroBubble.bubble(8, 32, 1, 1, 1) * 3 == OneForwardOneBackward.bubble(8, 32, 1, 1, 1)


def test_zb_h1_keeps_what_1f1b_keeps_at_worst() -> None:
    for microbatches in (1, 3, 8, 20):
        worst = max(OneForwardOneBackward.in_flight(stage, 8, microbatches) for stage in range(8))
        assert max(ZeroBubble.in_flight(stage, 8, microbatches) for stage in range(8)) == worst


@pytest.mark.parametrize("weight", [0.25, 0.5, 1.0])
def test_dualpipe_has_the_published_bubble_where_f_and_b_are_equal(weight: float) -> None:
    """(p/2 - 1) (F&B + B - 3W), whose B is the whole backward: DeepSeek-AI, arXiv 2412.19437, Table 2."""
    forward = backward = 1.0
    whole = backward + weight
    published = (8 / 2 - 1) * ((forward + whole) + whole - 3 * weight)
    assert DualPipe.bubble(8, 20, forward, backward, weight) == pytest.approx(published)


def test_dualpipe_keeps_two_copies_and_one_activation_more() -> None:
    assert DualPipe.parameter_copies(8) == 2
    assert [DualPipe.in_flight(stage, 8, 20) for stage in range(8)] == [9] * 8


def test_dualpipe_is_symmetric() -> None:
    """A stage and its mirror image do the same, in opposite directions."""
    half = 10
    for stage in range(4):
        here, there = DualPipe.order(stage, 8, 2 * half), DualPipe.order(7 - stage, 8, 2 * half)
        for mine, theirs in zip(here, there, strict=True):
            assert (mine.kind, mine.with_next) == (theirs.kind, theirs.with_next)
            assert mine.reverse != theirs.reverse
            assert abs(mine.microbatch - theirs.microbatch) == half


def test_dualpipe_overlaps_only_forwards_with_backwards() -> None:
    order = DualPipe.order(1, 8, 20)
    for task, following in pairwise(order):
        if task.with_next:
            assert (task.kind, following.kind) == ("F", "BW")
            assert task.reverse != following.reverse


@pytest.mark.parametrize(
    ("name", "sizes", "words"),
    [
        ("interleaved", (4, 10, 2), "microbatches = 10"),
        ("dualpipe", (3, 12, 1), "pp = 3"),
        ("dualpipe", (4, 6, 1), "at least 2 pp = 8"),
        ("dualpipe", (4, 9, 1), "an even number"),
        ("dualpipe", (4, 8, 2), "virtual_stages = 2"),
        ("1f1b", (4, 8, 2), "virtual_stages = 2"),
        ("gpipe", (4, 8, 3), "virtual_stages = 3"),
        ("zero_bubble", (4, 8, 2), "virtual_stages = 2"),
    ],
)
def test_what_cannot_run_is_told_why(name: str, sizes: tuple[int, int, int], words: str) -> None:
    reason = schedules[name].invalid_reason(*sizes)
    assert reason is not None
    assert words in reason
    with pytest.raises(SpecError, match=words):
        schedules[name].order(0, *sizes)


def test_a_batch_of_times_is_one_call() -> None:
    forward = np.linspace(0.5, 2.0, 7)
    for schedule in EACH:
        bubbles = schedule.bubble(4, 8, forward, 1.0, 0.5)
        assert np.asarray(bubbles).tolist() == [schedule.bubble(4, 8, one, 1.0, 0.5) for one in forward.tolist()]
