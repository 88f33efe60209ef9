"""Accelerators shared out among tasks."""

from __future__ import annotations

import pytest

from cosmic.base.errors import SpecError
from cosmic.search.fleet import SharedAccelerators, evaluate_tasks, share_out

BATCHES = (512, 256, 128, 128)


def test_accelerators_go_where_most_samples_are() -> None:
    assert share_out(BATCHES, 8) == (4, 2, 1, 1)
    assert share_out(BATCHES, 64, 8) == (32, 16, 8, 8)
    assert share_out((3, 1), 3) == (2, 1)


def test_no_other_sharing_has_fewer_samples_on_the_fullest() -> None:
    batches, npus = (70, 33, 9), 11
    ways = [(one, other, npus - one - other) for one in range(1, 10) for other in range(1, npus - one)]
    best = min(max(batch / each for batch, each in zip(batches, way, strict=True)) for way in ways)
    assert max(batch / each for batch, each in zip(batches, share_out(batches, npus), strict=True)) == best


def test_balanced_tasks_do_more_on_each_accelerator() -> None:
    changes = {"recompute": "full", "micro_batch": 32}
    uneven, even = (
        evaluate_tasks("vit-large@dgx-a100", BATCHES, given, changes) for given in ((1, 1, 1, 1), (4, 2, 1, 1))
    )
    assert isinstance(uneven, SharedAccelerators)
    assert isinstance(even, SharedAccelerators)
    assert [each.samples for each in uneven.tasks] == [512, 256, 128, 128]
    assert {each.samples for each in even.tasks} == {128}
    assert 1.5 < even.samples_per_s_per_npu / uneven.samples_per_s_per_npu < 2
    assert uneven.samples_per_s == pytest.approx(1024 / uneven.step_s)


@pytest.mark.parametrize(("batches", "npus", "unit"), [((), 4, 1), ((0,), 4, 1), ((1, 1), 1, 1), ((1,), 9, 8)])
def test_bad_numbers_are_one_sentence(batches: tuple[int, ...], npus: int, unit: int) -> None:
    with pytest.raises(SpecError):
        share_out(batches, npus, unit)


def test_a_hundred_million_accelerators_are_shared_out_at_once() -> None:
    assert share_out((512, 4), 100_000_000) == (99_224_806, 775_194)
    assert share_out((100, 1, 1), 9) == (7, 1, 1)  # 100 / 7 is still the most


@pytest.mark.parametrize("size", [0, -1, "two"])
def test_a_microbatch_of_a_task_is_a_whole_number(size: object) -> None:
    with pytest.raises(SpecError, match="micro_batch"):
        evaluate_tasks("gpt3-1.3b@dgx-h100", (64,), (8,), {"micro_batch": size})


def test_microbatches_that_nobody_states_are_the_quickest_that_fit() -> None:
    found, one = (
        evaluate_tasks("vit-large@dgx-a100", (96, 32), (3, 1), changes) for changes in ({}, {"micro_batch": 1})
    )
    assert isinstance(found, SharedAccelerators)
    assert isinstance(one, SharedAccelerators)
    each = [
        evaluate_tasks("vit-large@dgx-a100", (96, 32), (3, 1), {"micro_batch": size}) for size in (1, 2, 4, 8, 16, 32)
    ]
    assert found.step_s == min(other.step_s for other in each if isinstance(other, SharedAccelerators))
    assert found.step_s < one.step_s / 2
