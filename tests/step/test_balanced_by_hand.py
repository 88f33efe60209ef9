"""Layers cut so that the slowest stage is as quick as can be, worked out by hand and by trying every cut."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.frameworks.launch import targets
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Infeasible, Metrics
from cosmic.step.cuts.balanced import balanced_layers, part_seconds, state_end_layers
from cosmic.workload.block_plans import plan_of
from cosmic.workload.pipeline_cut import layers_per_part

PIPELINE = {"dp": 1, "tp": 1, "cp": 1, "pp": 8, "global_batch": 32, "schedule": "1f1b", "virtual_stages": 1}


def llama(**workload: Any) -> DesignPoint:
    """Return a pipeline whose memory has room for any cut."""
    return load_design("llama3-8b@dgx-h100:8", {**PIPELINE, "memory.capacity": "1 TiB", **workload})


def slowest(counts: list[int], first: float, last: float) -> float:
    """Return the layers' worth of time that the slowest stage takes."""
    return max(counts[0] + first, counts[-1] + last, *counts)


def test_a_head_of_two_and_a_half_layers_has_fewer_beside_it() -> None:
    """32 layers on 8 stages: 4 each takes 6.5 at the head. 5 on each takes 5: room for 2 beside it, 37 in all."""
    first, last, better = balanced_layers(32, 8, 0.0, 2.5)
    assert (int(first), int(last), bool(better)) == (4, 2, True)
    assert layers_per_part(32, 8, first=4, last=2) == [4, 5, 5, 4, 4, 4, 4, 2]


def test_an_even_cut_that_is_as_quick_stays() -> None:
    assert not balanced_layers(32, 8, 0.0, 0.0)[2]
    assert not balanced_layers(61, 4, 0.0, 0.5)[2]  # 16, 15, 15, 15: the first takes 16, the last 15.5


@pytest.mark.long
def test_no_cut_of_the_ends_is_quicker() -> None:
    """Every pair of layers of first and last stage, the others evenly, for 300 random pipelines."""
    rng = Random(5)
    for _ in range(300):
        layers, stages = rng.randint(2, 30), rng.randint(2, 9)
        if stages > layers:
            continue
        first, last = rng.choice((0.0, 0.1, 1.0, 2.3)), rng.choice((0.0, 0.4, 1.7, 6.0))
        ours = balanced_layers(layers, stages, first, last)
        ends = (int(ours[0]), int(ours[1])) if ours[2] else (None, None)
        found = layers_per_part(layers, stages, first=ends[0], last=ends[1])
        assert sum(found) == layers
        assert min(found[1:-1], default=1) >= 1
        tried = [
            layers_per_part(layers, stages, first=a, last=z)
            for a, z in product(range(layers + 1), repeat=2)
            if a + z <= layers and (stages > 2 or a + z == layers)
        ]
        best = min(slowest(each, first, last) for each in tried)
        assert slowest(found, first, last) == pytest.approx(best)


def test_with_virtual_stages_the_ends_have_a_multiple() -> None:
    """32 layers on 4 stages of 2 virtual ones: a head of 2.5 layers beside 6; the others have 26, 9 at most."""
    first, last, better = balanced_layers(32, 4, 0.0, 2.5, 2)
    assert (int(first), int(last), bool(better)) == (8, 6, True)


def test_many_pipelines_at_once_are_as_one_by_one() -> None:
    stages, last = np.array([2, 4, 8, 8]), np.array([1.0, 2.5, 0.0, 2.5])
    together = balanced_layers(32, stages, 0.05, last)
    for place, (pp, head) in enumerate(zip(stages.tolist(), last.tolist(), strict=True)):
        alone = balanced_layers(32, pp, 0.05, head)
        assert [float(np.asarray(each)[place]) for each in together] == [float(each) for each in alone]


def test_a_head_takes_the_time_of_its_own_kernels() -> None:
    """A head of 128,256 words is 2.4 layers of 218M parameters by flop; as one large GEMM it takes somewhat less."""
    batch = batch_of(llama())
    first, layer, last = part_seconds(batch, [each.block for each in plan_of(batch)])
    assert first < 0.2 * layer
    assert 1.8 * layer < last < 2.8 * layer


@pytest.mark.parametrize("engine", ["analytic", "event"])
def test_balanced_stages_are_as_quick_as_the_best_that_are_stated(engine: str) -> None:
    def seconds(**workload: Any) -> float:
        outcome = evaluate(llama(**workload), engine)
        assert isinstance(outcome, Metrics)
        return outcome.step_s

    found = seconds(stage_layers="balanced")
    assert found < 0.9 * seconds()
    assert found == pytest.approx(min(seconds(last_stage_layers=last) for last in (1, 2, 3)), rel=0.02)


def test_what_is_stated_and_what_is_balanced_are_the_same_design() -> None:
    point = llama(stage_layers="balanced")
    same = state_end_layers(point)
    assert (same.workload.first_stage_layers, same.workload.last_stage_layers) == (4, 2)
    one, other = evaluate(point), evaluate(same)
    assert isinstance(one, Metrics)
    assert isinstance(other, Metrics)
    assert (one.step_s, one.memory) == (other.step_s, other.memory)


def test_a_batch_of_balanced_pipelines_is_as_one_by_one() -> None:
    base = llama(stage_layers="balanced")
    stages, dp = np.array([1, 2, 4, 8]), np.array([8, 4, 2, 1])
    found = evaluate_batch(Batch(base, {"workload.pp": stages, "workload.dp": dp}))
    for place in range(4):
        alone = evaluate(base.changed({"workload.pp": int(stages[place]), "workload.dp": int(dp[place])}))
        if isinstance(alone, Metrics):
            assert found.columns["step_s"][place] == alone.step_s


def test_megatron_takes_balanced_stages_as_numbers() -> None:
    point = load_design("llama3-8b@dgx-h100:8", {**PIPELINE, "pp": 2, "dp": 4, "stage_layers": "balanced"})
    arguments = targets["megatron"](point).arguments
    assert arguments["--decoder-last-pipeline-num-layers"] == 15


def test_layers_are_not_balanced_and_stated() -> None:
    outcome = evaluate(llama(stage_layers="balanced", last_stage_layers=2))
    assert isinstance(outcome, Infeasible)
    assert outcome.reasons == ("stage_layers balanced with last_stage_layers 2: give one of both",)


def test_stages_of_both_ends_are_not_balanced() -> None:
    outcome = evaluate(llama(stage_layers="balanced", schedule="dualpipe"))
    assert isinstance(outcome, Infeasible)
    expected = "stage_layers balanced with dualpipe: its stages have layers of both ends, set it to even"
    assert expected in outcome.reasons


@pytest.mark.parametrize(
    ("layers", "stages", "ends", "virtual", "cut"),
    [
        # 4, 3, 3 take 4.5 with the half of the first; 3, 4, 3 take 4.
        (10, 3, (0.5, 0.0), 1, (3, 3, True)),
        # Two stages with 3 and 5 layers' worth each: 5 and 3 take 8.
        (8, 2, (3.0, 5.0), 1, (5, 3, True)),
        # 4 layers' worth besides on both of two stages: 10 each.
        (20, 2, (4.0, 4.0), 1, (10, 10, False)),
        # A head of 9 layers takes longer than all else: nothing beside it, 3 on each of the others.
        (6, 3, (0.0, 9.0), 1, (3, 0, True)),
        # Two virtual stages: ends have a multiple of two. A head of 2: 4, 5, 5, 2 take 5, and 4 each 6.
        (16, 4, (0.0, 2.0), 2, (4, 2, True)),
        # An embedding of 2 and a head of 2 beside 16 layers on 4: 3, 5, 5, 3 take 5.
        (16, 4, (2.0, 2.0), 1, (3, 3, True)),
    ],
)
def test_ends_have_fewer_layers_by_what_they_have_besides(
    layers: int, stages: int, ends: tuple[float, float], virtual: int, cut: tuple[int, int, bool]
) -> None:
    first, last, better = balanced_layers(layers, stages, *ends, virtual)
    assert (int(first), int(last), bool(better)) == cut


def test_the_last_stage_gives_up_no_layer_that_the_first_has_given_up() -> None:
    """11 layers on 4 stages of 3 leave room for one: the first has 2, and the three others 3 each."""
    assert [int(each) for each in balanced_layers(11, 4, 0.0, 0.0)[:2]] == [2, 3]


def test_layers_that_are_given_up_are_a_multiple_of_virtual_stages() -> None:
    """18 layers on 4 stages of 2 virtual ones and a head of 4: 6 on three stages, 2 beside the head.

    That is room for 20: the first gives up 2, and keeps its even share of 4.
    """
    first, last, better = balanced_layers(18, 4, 0.0, 4.0, 2)
    assert (int(first), int(last), bool(better)) == (4, 2, True)
