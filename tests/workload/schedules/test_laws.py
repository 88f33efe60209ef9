"""The laws of schedules hold of every one, and a broken one does not pass."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.accuracy.suites import ScheduleSuite
from cosmic.base.registry import Registry
from cosmic.workload.pipeline_schedule import Number, PipelineTask, schedules
from cosmic.workload.pipeline_schedules.schedule_1f1b import OneForwardOneBackward as Sound


class TestEverySchedule(ScheduleSuite):
    """All that are registered."""

    names = schedules


broken: Registry[Any] = Registry("schedule")
broken.register("sound")(Sound)


def without_the_last(stage: int, stages: int, microbatches: int, virtual: int = 1) -> list[PipelineTask]:
    return Sound.order(stage, stages, microbatches, virtual)[:-1]


def backwards_first(stage: int, stages: int, microbatches: int, virtual: int = 1) -> list[PipelineTask]:
    return Sound.order(stage, stages, microbatches, virtual)[::-1]


def growing(stages: Number, microbatches: Number, *rest: Number) -> Number:
    return (stages - 1) * microbatches**2


def of_numbers_only(stages: int, microbatches: int, virtual: int = 1) -> bool:
    return bool(stages == 1 or virtual == 1)


def variant(name: str, **members: Any) -> None:
    """Register 1F1B with some of its functions replaced."""
    functions = {key: staticmethod(value) for key, value in members.items()}
    broken.register(name)(type(name, (Sound,), {"__doc__": "Broken.", **functions}))


variant("forgetful", order=without_the_last)
variant("hasty", order=backwards_first)
variant("modest", in_flight=lambda stage, stages, microbatches, virtual=1: 1)
variant("greedy", in_flight=lambda stage, stages, microbatches, virtual=1: microbatches + 1)
variant("early", bubble=lambda *sizes_and_times: -1.0)
variant("growing", bubble=growing)
variant("distant", transfers=lambda stages, microbatches, virtual=1: (stages - 1, microbatches - 1))
variant("near", transfers=lambda stages, microbatches, virtual=1: (stages - 1, 0))
variant(
    "apart", transfers=lambda stages, microbatches, virtual=1: (stages / 4, (microbatches - 1) * (stages - 1) // stages)
)
variant(
    "mute", invalid_reason=lambda stages, microbatches, virtual=1: None if of_numbers_only(stages, 1, virtual) else " "
)
variant("scalar", runs=of_numbers_only)
variant("demanding", invalid_reason=lambda stages, microbatches, virtual=1: "needs luck", runs=lambda *sizes: False)
broken.register("undescribed")(type("Undescribed", (Sound,), {"__doc__": None}))


class Suite(ScheduleSuite):
    """The laws, of schedules that are nowhere else."""

    registry = broken


def test_a_sound_schedule_obeys_every_law() -> None:
    laws = [name for name in dir(Suite) if name.startswith("test_")]
    assert len(laws) == 10
    for law in laws:
        getattr(Suite(), law)("sound")


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("undescribed", "test_it_says_what_it_is"),
        ("demanding", "test_one_stage_is_gradient_accumulation"),
        ("forgetful", "test_each_task_is_done_once_and_in_turn"),
        ("hasty", "test_each_task_is_done_once_and_in_turn"),
        ("modest", "test_what_is_in_flight_follows_from_the_order"),
        ("greedy", "test_at_least_one_and_at_most_all_microbatches_are_in_flight"),
        ("early", "test_idle_time_is_never_negative"),
        ("growing", "test_more_microbatches_never_enlarge_the_fraction_that_idles"),
        ("distant", "test_a_step_waits_for_the_transfers_that_are_stated"),
        ("near", "test_a_step_waits_for_the_transfers_that_are_stated"),
        ("apart", "test_a_step_waits_for_the_transfers_that_are_stated"),
        ("mute", "test_what_does_not_fit_is_refused_in_a_sentence"),
    ],
)
def test_a_broken_schedule_breaks_the_law_it_should(name: str, law: str) -> None:
    with pytest.raises(AssertionError):
        getattr(Suite(), law)(name)


def test_a_schedule_for_numbers_only_fails_on_arrays() -> None:
    with pytest.raises(ValueError, match="truth value"):
        Suite().test_arrays_give_what_numbers_give("scalar")
