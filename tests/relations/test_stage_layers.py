"""Pipelines whose first or last stage states its layers: both engines, and what moving layers must do."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.space.space_files import load_space
from cosmic.simulate.analytic_step import compute_step_seconds
from cosmic.simulate.metrics import Infeasible, Metrics
from cosmic.workload.mapping_rules import invalid_reasons
from tests.relations.engine_agreement import compare_engines, measure_agreement
from tests.relations.metamorphic import is_small
from tests.relations.random_designs import random_design

STAGES = {"dp": 1, "tp": 1, "cp": 1, "pp": 8, "global_batch": 32, "schedule": "1f1b", "memory.capacity": "1 TiB"}


def stated(rng: Random, family: str) -> DesignPoint:
    """Return a random pipeline that states the layers of a stage, or of both."""
    while True:
        point = random_design(rng, family=family, accelerators=8, dp=2, tp=1, cp=1, pp=4, ep=1)
        virtual = point.workload.virtual_stages
        even = getattr(point.model, "layers", 0) // (point.workload.pp * virtual)
        ends = rng.choice((("first",), ("last",), ("first", "last")))
        layers = {f"workload.{end}_stage_layers": virtual * max(0, even + rng.randint(-3, 2)) for end in ends}
        changed = point.changed(layers)
        if is_small(point) and not invalid_reasons(changed):
            return changed


@pytest.mark.long
def test_both_engines_agree_on_pipelines_that_state_layers() -> None:
    rng = Random(11)
    designs = [stated(rng, family) for family in ("dense", "moe", "mla", "encoder_decoder") for _ in range(4)]
    found = measure_agreement([each for each in map(compare_engines, designs) if each is not None])
    assert found.designs == len(designs)
    assert found.median < 0.03
    assert abs(found.worst) < 0.2


def seconds(**workload: Any) -> float:
    outcome = evaluate(load_design("llama3-8b@dgx-h100:8", {**STAGES, **workload}))
    assert isinstance(outcome, Metrics), outcome
    return outcome.step_s


@pytest.mark.parametrize("engine", ["analytic", "event"])
def test_fewer_layers_beside_a_large_vocabulary_make_a_step_faster(engine: str) -> None:
    """Four layers on each of eight stages; a head of 128,256 words takes as long as two or three of them."""
    took = []
    for layers in (4, 3, 2):
        outcome = evaluate(load_design("llama3-8b@dgx-h100:8", {**STAGES, "last_stage_layers": layers}), engine)
        assert isinstance(outcome, Metrics)
        took.append(outcome.step_s)
    assert max(took[1:]) < 0.9 * took[0]  # of two or three, the first stage has five either way


def test_too_few_layers_at_an_end_are_too_many_elsewhere() -> None:
    """Six stages of five and six layers take longer than the head with two of its own; so does the head with six."""
    assert seconds(last_stage_layers=0, first_stage_layers=0) > seconds(last_stage_layers=2)
    assert seconds(last_stage_layers=6) > seconds()


def test_all_layers_cannot_move() -> None:
    outcome = evaluate(load_design("llama3-8b@dgx-h100:8", {**STAGES, "first_stage_layers": 32}))
    assert isinstance(outcome, Infeasible)
    assert outcome.reasons == ("first_stage_layers 32 leaves 0 of 32 layers for the other 7 stages: lower it",)


def test_the_fullest_stage_has_less_memory_with_fewer_layers() -> None:
    """The first stage keeps most microbatches in flight."""
    even, fewer = (
        evaluate(load_design("llama3-8b@dgx-h100:8", {**STAGES, "first_stage_layers": layers})) for layers in (4, 3)
    )
    assert isinstance(even, Metrics)
    assert isinstance(fewer, Metrics)
    assert (even.memory_stage, fewer.memory_stage) == (0, 1)
    assert fewer.memory_bytes < even.memory_bytes


def test_a_search_varies_them_with_the_stages() -> None:
    space = load_space(
        {
            "version": 1,
            "base": {"model": "llama3-8b", "system": "dgx-h100:8", "workload": {"global_batch": 32, "sequence": 8192}},
            "parameters": {
                "{dp,pp,tp,cp}": {"split": "npus", "powers_of_two": True},
                "last_stage_layers": [None, 0, 1, 2, 3, 4],
                "first_stage_layers": [None, 3, 4],
            },
            "objective": "step_s",
        }
    )
    rows = space.sample(600, np.random.default_rng(0))
    columns = space.columns(rows)
    found = evaluate_batch(Batch(space.base, columns))
    assert found.broken["stage_layers"].any()
    for row in np.flatnonzero(found.feasible)[:8]:
        point = space.point(rows[row])
        assert found.columns["step_s"][row] == float(compute_step_seconds(batch_of(point)).seconds)
