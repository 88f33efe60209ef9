"""Which pipeline stages may be the fullest, and what they keep in flight, by layers dealt out one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import Batch, batch_of, batch_of_changes
from cosmic.design.model_layer import Experts
from cosmic.step.device_memory import memory_of
from cosmic.step.stage_memory import fullest_stage_candidates, in_flight_bytes, interleaved_bytes
from cosmic.workload.block_plans import plan_of
from cosmic.workload.pipeline_schedules.interleaved import Interleaved
from tests.step import tiny


def dense_then_experts(dense: int, every: int = 1) -> dict[str, Any]:
    return {"experts": Experts(count=2, active=1, ffn=4, dense_first=dense, every=every)}


def found(made: Batch) -> list[int]:
    """Return the stages that may be the fullest, in order."""
    return sorted(int(each) for each in fullest_stage_candidates(made, [each.block for each in plan_of(made)]))


@pytest.mark.parametrize(
    ("layers", "stages", "changes", "expected"),
    [
        (4, 1, {}, [0]),
        (4, 2, {}, [0, 1]),
        # Layers that are all alike: the first stage has as many as any, and the last the head.
        (18, 8, {}, [0, 7]),
        # 3, 3, 3, 3, 2, 2, 2, 2 of which 15 are dense: the fifth has two dense ones, the sixth one of each kind.
        (20, 8, {"model": dense_then_experts(15)}, [0, 4, 5, 6, 7]),
        # The same, of which 19 are dense: the last has one of each kind.
        (20, 8, {"model": dense_then_experts(19)}, [0, 4, 7]),
        # 1 is stated for the first, the others have 3, 2 and 2.
        (8, 4, {"first_stage_layers": 1}, [0, 1, 3]),
        # 2, 2 and six of 1, of which 3 are dense: the second has one of each kind.
        (10, 8, {"model": dense_then_experts(3)}, [0, 1, 2, 7]),
        # 2 stated for the first: all others have 3, and the third the first of experts.
        (17, 6, {"model": dense_then_experts(6), "first_stage_layers": 2}, [0, 1, 2, 3, 5]),
        # 3 layers on 6 stages: the embedding is alone on the first, and the head on the last two.
        (3, 6, {}, [0, 1, 5]),
        # Either end of 3, 3, 3, 3 and of 2, 2, 2, 2 where each device has a stage and its mirror image.
        (20, 8, {"schedule": "dualpipe"}, [0, 3, 4, 7]),
        # 3, 3 and fourteen of 2, with the two that are their own mirror images in the middle.
        (34, 16, {"schedule": "dualpipe"}, [0, 1, 2, 7, 8, 13, 14, 15]),
        (34, 16, {"schedule": "dualpipe", "task": "prefill"}, [0, 15]),
    ],
)
def test_one_stage_of_each_run_of_equal_stages_may_be_the_fullest(
    layers: int, stages: int, changes: dict[str, Any], expected: list[int]
) -> None:
    model = {"layers": layers} | changes.get("model", {})
    assert found(tiny.batch(**changes | {"pp": stages, "model": model})) == expected


def dealt(layers: int, stages: int, dense: int, every: int) -> list[int]:
    """Return the layers with experts of each stage: from the first *dense* on, the last of each *every* has them."""
    kinds = [place >= dense and (place - dense) % every == every - 1 for place in range(layers)]
    each, more = divmod(layers, stages)
    sizes = [each + (stage < more) for stage in range(stages)]
    starts = [sum(sizes[:stage]) for stage in range(stages)]
    return [100 * size + sum(kinds[start : start + size]) for start, size in zip(starts, sizes, strict=True)]


@pytest.mark.parametrize(
    ("layers", "stages", "dense", "every"),
    [
        *((48, 16, 0, 2), (32, 16, 5, 2), (53, 16, 11, 2), (64, 16, 20, 3), (37, 8, 9, 1), (50, 12, 30, 1)),
        *((16, 16, 6, 2), (10, 8, 8, 1), (20, 8, 5, 1), (24, 16, 22, 1), (24, 16, 7, 1)),
    ],
)
def test_every_mixture_of_layers_is_looked_at_where_it_comes_first(
    layers: int, stages: int, dense: int, every: int
) -> None:
    """The first of all stages with the same layers has most microbatches in flight."""
    mixtures = dealt(layers, stages, dense, every)
    first = {mixtures.index(each) for each in mixtures}
    made = tiny.batch(pp=stages, model={"layers": layers} | dense_then_experts(dense, every))
    assert first <= set(found(made))


# ---- in flight


@pytest.mark.parametrize(
    ("stages", "count", "virtual", "sizes"),
    [
        (2, 4, 2, (1.0, 0.0)),
        (2, 6, 3, (0.0, 0.0, 5.0)),
        (3, 6, 3, (1.0, 7.0, 2.0)),
        (4, 8, 2, (3.0, 4.0)),
        (4, 8, 4, (0.0, 1.0, 0.0, 9.0)),
        (4, 12, 4, (9.0, 0.0, 1.0, 0.0)),
        (2, 8, 5, (1.0, 0.0, 8.0, 0.0, 2.0)),
        (3, 3, 2, (2.0, 5.0)),
        (2, 2, 2, (5.0, 1.0)),
        (2, 4, 3, (9.0, 0.0, 5.0)),
        (4, 8, 2, (9.0, 2.0)),
    ],
)
def test_virtual_stages_keep_the_most_of_what_their_tasks_leave_behind(
    stages: int, count: int, virtual: int, sizes: tuple[float, ...]
) -> None:
    """Task by task: a forward keeps its part, a backward lets it go."""
    for stage in range(stages):
        kept = most = 0.0
        for task in Interleaved.order(stage, stages, count, virtual):
            kept += sizes[task.chunk] * (1 if task.kind == "F" else -1)
            most = max(most, kept)
        assert float(interleaved_bytes(stage, stages, count, virtual, *sizes)) == most


def test_a_device_keeps_both_directions_in_flight() -> None:
    """Of 4 stages the second keeps 3 microbatches of its own, and 2 of the third's part, which enter at the other end.

    5 layers are 2, 1, 1, 1, or 3 and 2; a single stage has one direction, whatever its schedule.
    """
    changes = [{"workload.pp": 4}, {"workload.pp": 1}, {"workload.pp": 2}]
    many = batch_of_changes(tiny.point(pp=4, schedule="dualpipe", global_batch=8, model={"layers": 5}), changes)
    blocks = [each.block for each in plan_of(many)]

    def kept(layers: dict[str, Any], _: dict[str, Any]) -> Any:
        return layers["layer"]

    for place, expected in (
        (0, [4 * 2 + 1 * 1, 5, 2 * 3 + 1 * 2]),
        (1, [3 + 2, 5, 1 * 2 + 2 * 3]),
        (3, [1 * 1 + 4 * 2, 5, 1 * 2 + 2 * 3]),
    ):
        where = np.array([place, 0, min(place, 1)])
        assert np.asarray(in_flight_bytes(many, where, blocks, kept)).tolist() == expected


def test_a_batch_finds_the_fullest_stage_of_each_design() -> None:
    base = tiny.point(pp=4, schedule="dualpipe", global_batch=8, model={"layers": 6})
    changes = [{"workload.pp": pp} for pp in (1, 2, 4)]
    together = np.asarray(memory_of(batch_of_changes(base, changes)).total)
    for place, change in enumerate(changes):
        assert together[place] == pytest.approx(float(memory_of(batch_of(base.changed(change))).total))
