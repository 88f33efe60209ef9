"""Verdicts: one sentence that says how much better, and what bounds it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cosmic.design.design_batch import batch_of
from cosmic.evaluation import evaluate
from cosmic.search.advice.design_advice import explain_bound
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.problem import METRICS
from cosmic.search.search_loop import Found, search
from cosmic.search.search_verdict import REASONS, gain_over, judge_search, reason_text
from cosmic.serving.deployment import DEPLOYMENT_RULES
from cosmic.simulate.metrics import Metrics
from cosmic.step.bottleneck import PART_TITLES, network_loads
from cosmic.step.step_profile import profile_step
from cosmic.workload.mapping_rules import RULES
from tests.report.publishing.studies import SPACE, found, small, source


def test_a_verdict_says_the_gain_and_what_bounds_it() -> None:
    made = found(agent="genetic")
    verdict = judge_search(made)
    assert re.fullmatch(r"\d+\.\d\d× over the base design; .* bounds? it \(.*\d+ % of the step\)", verdict.sentence)
    best, base = made.best, made.problem.base.figures(0)
    assert best is not None
    value, before = best["metrics"]["perf_per_bandwidth"], base["perf_per_bandwidth"]
    assert before
    assert verdict.gains[0].times == pytest.approx(value / before)
    assert verdict.metrics is not None
    assert verdict.metrics.step_s == pytest.approx(best["metrics"]["step_s"])


def test_where_communication_takes_most_the_dimension_is_named() -> None:
    slow = {"workload.tp": 32, "workload.cp": 1, "network.dims.1.bandwidth": "100 MB/s"}
    point = load_design("gpt3-175b@cosmic-1024", slow)
    metrics = evaluate(point)
    assert isinstance(metrics, Metrics)
    said = explain_bound(point, metrics)
    part = max(metrics.breakdown, key=lambda name: metrics.breakdown[name])
    assert part == "tp"
    seconds = {
        load.dimension: load.seconds for load in network_loads(profile_step(batch_of(point))) if load.part == "tp"
    }
    slowest = max(seconds, key=lambda place: seconds[place])
    assert slowest == 1
    assert said.startswith(f"network dimension 2 bounds it ({PART_TITLES['tp']}, ")


def test_isolated_searches_are_named_by_the_nearest_of_them() -> None:
    made = found(agent="genetic")
    layers = {name: search(SPACE, stacks=[name], trials=50, seed=1) for name in ("workload", "network")}
    verdict = judge_search(made, layers)
    assert [each.over for each in verdict.gains] == [
        "the base design",
        "the best of workload alone",
        "the best of network alone",
    ]
    nearest = min(verdict.gains[1:], key=lambda each: each.times or 0)
    assert f" and {nearest.times:.2f}× over {nearest.over}" in verdict.sentence


def test_a_layer_alone_that_does_better_is_not_kept_quiet() -> None:
    made = found(trials=2, seed=0)
    alone = {"network": search(SPACE, stacks=["network"], trials=300, seed=1)}
    assert re.search(r", but the best of network alone is [\d.]+× better;", judge_search(made, alone).sentence)


def test_several_objectives_say_what_the_front_offers() -> None:
    made = search(SPACE, trials=200, objectives=["step_s", "network_usd"], seed=1)
    assert re.search(
        rf"the front has {len(made.front)} designs: step from .* s to .* s, network", judge_search(made).sentence
    )


def test_a_design_that_only_costs_less_is_said_to() -> None:
    """16 nodes: two switches for eight rails that are not joined, against six; the step is the same."""
    space = {
        "base": {"model": "llama3-8b", "system": "dgx-h100:128", "workload": {"tp": 1, "pp": 1, "dp": 128}},
        "parameters": {"network.dims.1.fabric.build": ["rail_optimized", "rail_only"]},
    }
    sentence = judge_search(search(space, trials=2, objectives=["step_s", "network_usd"])).sentence
    assert "no better than the base design in step" in sentence
    # 557,440 USD: 6 switches, 512 optics, 256 cables; 238,720 USD: 2 switches, 256 optics, 128 cables
    assert "the best in all 2 objectives: network cost 2.34× over the base design" in sentence


def test_where_nothing_runs_the_sentence_says_so_and_why() -> None:
    made = search(SPACE, trials=30, constraints=["memory_bytes <= 1 GB"])
    verdict = judge_search(made)
    assert verdict.sentence.startswith(
        "No design that was tried can run within the limits; the most frequent reason is the limit memory"
    )
    assert (verdict.gains, verdict.point, verdict.metrics, verdict.bound) == ((), None, None, "")


def test_a_search_that_ends_below_the_base_says_so() -> None:
    made = found(trials=2, seed=0)
    assert "× worse than the base design" in judge_search(made).sentence


def test_a_base_that_cannot_run_is_no_measure() -> None:
    space = source(base={**source()["base"], "workload": {**source()["base"]["workload"], "tp": 8}})
    verdict = judge_search(search(space, trials=50, seed=2))
    assert verdict.gains[0].times is None
    assert "the base design cannot run" in verdict.sentence


def test_several_workloads_have_no_single_design() -> None:
    shares: dict[str, Any] = {"chat": {"workload.task": "decode"}, "read": {"weight": 2, "workload.task": "prefill"}}
    verdict = judge_search(search(small(workloads=shares), trials=9))
    assert verdict.point is None
    assert verdict.gains[0].times
    assert any("several workloads: chat (weight 1), read (weight 2)" in each for each in verdict.caveats)


def test_an_interrupted_search_is_not_passed_off_as_whole() -> None:
    made = found()
    cut = Found(made.inputs, made.trials, "interrupted", 1.0, 10)
    assert any("not complete" in each for each in judge_search(cut).caveats)


def test_every_rule_has_words() -> None:
    assert {*RULES, *DEPLOYMENT_RULES, "memory", "offloaded", "cache", "rate"} == set(REASONS)
    assert all(reason_text(name) != name for name in REASONS)


@pytest.mark.parametrize("name", METRICS)
def test_a_gain_is_above_one_where_the_metric_is_better(name: str) -> None:
    assert {gain_over(name, 2.0, 4.0), gain_over(name, 4.0, 2.0)} == {2.0, 0.5}


def test_a_base_that_breaks_a_limit_is_not_said_not_to_run() -> None:
    base = search(SPACE, trials=1).problem.base.figures(0)["step_s"]
    assert base is not None
    made = search(
        SPACE, trials=400, seed=3, objectives=["perf_per_bandwidth"], constraints=[f"step_s <= {0.99 * base} s"]
    )
    verdict = judge_search(made)
    assert verdict.sentence.startswith("the base design breaks the limit step_s <= ")
    assert ", the best of the search meets it; " in verdict.sentence
    assert any("breaks the limit" in each for each in verdict.caveats)
    assert verdict.gains[0].times is None


def test_a_decoded_token_is_bounded_by_the_memory() -> None:
    point = load_design("llama3-8b@dgx-h100:1", {"workload.task": "decode", "workload.global_batch": 8})
    metrics = evaluate(point)
    assert isinstance(metrics, Metrics)
    assert explain_bound(point, metrics).startswith(f"memory bandwidth bounds it ({PART_TITLES['gemm']}, ")
    trained = load_design("llama3-8b@dgx-h100:8")
    metrics = evaluate(trained)
    assert isinstance(metrics, Metrics)
    assert explain_bound(trained, metrics).startswith(f"{PART_TITLES['gemm']} bound it (")


@pytest.mark.parametrize("sharding", ["zero2", "zero3"])
def test_gradients_reduced_for_each_microbatch_name_their_dimension(sharding: str) -> None:
    wide = {"workload.dp": 1024, "workload.tp": 1, "workload.cp": 1, "workload.pp": 1, "workload.dp_overlap": False}
    slow = {"network.dims.3.bandwidth": "1 MB/s", "memory.capacity": "4 TiB", "workload.weight_sharding": sharding}
    point = load_design("gpt3-175b@cosmic-1024", wide | slow | {"workload.reduce_every": "microbatch"})
    metrics = evaluate(point)
    assert isinstance(metrics, Metrics)
    assert explain_bound(point, metrics).startswith(f"network dimension 4 bounds it ({PART_TITLES['weights']}, ")


PLAYED: dict[str, tuple[str, dict[str, Any], str]] = {
    "stages": (
        "llama3-8b@dgx-h100:16",
        {
            "workload.pp": 4,
            "workload.tp": 1,
            "workload.task": "decode",
            "workload.global_batch": 64,
            "workload.micro_batch": 16,
        },
        "waiting for other stages and their messages bounds it",
    ),
    "compute": ("vit-base@dgx-h100:8", {}, "compute bounds it"),
    "host": (
        "gpt3-125m@dgx-h100:8",
        {
            "workload.execution": "eager",
            "workload.micro_batch": 1,
            "workload.global_batch": 8,
            "workload.sequence": 512,
        },
        "kernel launches bound it (",
    ),
    "memory": (
        "llama3-8b@dgx-h100:1",
        {"workload.task": "decode", "workload.global_batch": 4},
        "memory bandwidth bounds it (compute, ",
    ),
    "links": (
        "llama3-8b@dgx-h100:8",
        {"workload.tp": 8, "workload.global_batch": 1, "network.dims.0.bandwidth": "1 GB/s"},
        "network dimension 1 bounds it (exposed communication, ",
    ),
}


@pytest.mark.parametrize("name", list(PLAYED))
def test_a_step_that_was_played_is_bounded_by_what_holds_it_back(name: str) -> None:
    source, changes, said = PLAYED[name]
    point = load_design(source, changes)
    metrics = evaluate(point, "event")
    assert isinstance(metrics, Metrics)
    assert explain_bound(point, metrics).startswith(said)
