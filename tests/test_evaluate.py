"""Evaluation: what a systems engineer would demand of any tool."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.design import schema
from cosmic.design.design_batch import Batch
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.search.advice.design_advice import explain_bound
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space
from cosmic.simulate.analytic_step import BREAKDOWN
from cosmic.simulate.metrics import Infeasible, Metrics
from cosmic.step.bottleneck import PART_TITLES

SPACE = load_space("cosmic-1024-full-stack")


def metrics(design: str, **workload: Any) -> Metrics:
    outcome = evaluate(load_design(design, {f"workload.{key}": value for key, value in workload.items()}, plain=True))
    assert isinstance(outcome, Metrics), outcome
    return outcome


GPT = "gpt3-175b@dgx-h100:512"
MESH = {"tp": 8, "pp": 8, "cp": 1, "weight_sharding": "zero1", "global_batch": 1536}


def test_the_breakdown_adds_up_to_the_step() -> None:
    found = metrics(GPT, **MESH)
    assert sum(found.breakdown.values()) == pytest.approx(found.step_s)
    assert min(found.breakdown.values()) >= 0
    assert sum(found.memory.values()) == pytest.approx(found.memory_used_bytes)


def test_a_usual_mapping_gets_a_usual_utilisation() -> None:
    assert 0.35 < metrics(GPT, **MESH).mfu < 0.65  # published runs of this model on this machine get 0.45 to 0.55


def test_hardware_utilisation_counts_recomputation() -> None:
    plain, again = metrics(GPT, **MESH), metrics(GPT, **MESH, recompute="full")
    assert again.hfu / again.mfu > 1.2 * plain.hfu / plain.mfu
    assert again.step_s > plain.step_s
    assert again.memory_bytes < plain.memory_bytes


def test_tensor_parallelism_beyond_a_node_costs_more_than_inside() -> None:
    inside = metrics(GPT, **{**MESH, "tp": 8, "pp": 8})
    across = metrics(GPT, **{**MESH, "tp": 16, "pp": 4})
    assert across.breakdown["tp"] > 2 * inside.breakdown["tp"]


def test_more_microbatches_shrink_the_bubble() -> None:
    shares = []
    for batch in (512, 1024, 4096):
        found = metrics(GPT, **{**MESH, "global_batch": batch})
        shares.append(found.breakdown["bubble"] / found.step_s)
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.03


def test_interleaving_shrinks_the_bubble() -> None:
    plain = metrics(GPT, **MESH)
    mixed = metrics(GPT, **MESH, schedule="interleaved", virtual_stages=4)
    assert mixed.breakdown["bubble"] < 0.3 * plain.breakdown["bubble"]


def test_sharded_weights_save_memory_and_add_traffic() -> None:
    fixed = {"tp": 8, "pp": 1, "cp": 1, "dp": 64, "recompute": "full"}
    kept = load_design(
        "llama3-70b@dgx-h100:512",
        {f"workload.{k}": v for k, v in {**fixed, "weight_sharding": "zero1"}.items()},
        plain=True,
    )
    sharded = schema.assign_fields(kept, {"workload.weight_sharding": "zero3"})
    one, other = evaluate(kept), evaluate(sharded)
    assert isinstance(one, Metrics)
    assert isinstance(other, Metrics)
    assert other.memory_bytes < 0.6 * one.memory_bytes
    assert other.step_s > one.step_s


def test_what_does_not_fit_says_how_much_is_missing() -> None:
    outcome = evaluate(
        load_design("gpt3-175b@dgx-h100:8", {"workload.tp": 8, "workload.pp": 1, "workload.cp": 1}, plain=True)
    )
    assert isinstance(outcome, Infeasible)
    assert outcome.reasons[0].startswith("needs ")
    assert "GiB of 79.2 GiB per NPU and fits with less than 1 % where 95% is asked: " in outcome.reasons[0]


def test_what_is_offloaded_must_fit_the_outer_tiers() -> None:
    design = {"workload.offload": ["optimizer"], "workload.dp": 4, "workload.tp": 2, "workload.cp": 1, "workload.pp": 1}

    def behind(capacity: str) -> Metrics | Infeasible:
        tier = {"name": "host", "capacity": capacity, "bandwidth": "50 GB/s"}
        return evaluate(load_design("llama3-8b@dgx-h100:8", {**design, "memory.tiers": [tier]}, plain=True))

    ample, scarce = behind("256 GB"), behind("1 GB")
    assert isinstance(ample, Metrics)
    assert ample.memory["optimizer"] == 0
    assert ample.offloaded_bytes > 1e9
    assert scarce == Infeasible(
        (f"offloads {ample.offloaded_bytes / 2**30:.4g} GiB per NPU to outer tiers of {1e9 / 2**30:.4g} GiB",)
    )


def test_layers_that_do_not_fit_together_say_so() -> None:
    outcome = evaluate(
        load_design(GPT, {"workload.tp": 5, "workload.dp": 2, "workload.pp": 2, "workload.cp": 1}, plain=True)
    )
    assert isinstance(outcome, Infeasible)
    assert any("does not divide the 96 heads" in reason for reason in outcome.reasons)


def test_serving_decodes_at_the_pace_of_the_memory() -> None:
    """LLaMA-3 8B on one H100: 16 GB of weights at 3.35 TB/s are 4.8 ms a token, and a little more."""
    found = metrics("llama3-8b@dgx-h100:1", task="decode", sequence=1024, global_batch=1, tp=1, pp=1, cp=1, dp=1)
    assert 0.0048 < found.step_s < 0.0085
    assert (found.tpot_s, found.ttft_s) == (found.step_s, None)
    prompt = metrics("llama3-8b@dgx-h100:1", task="prefill", sequence=1024, global_batch=1, tp=1, pp=1, cp=1, dp=1)
    assert 0.015 < prompt.step_s < 0.04  # 16 TFLOP at 989 peak
    assert (prompt.tpot_s, prompt.ttft_s) == (None, prompt.step_s)


def test_every_part_of_a_step_has_a_name() -> None:
    assert set(BREAKDOWN) <= set(PART_TITLES)
    point = load_design("gpt3-125m@dgx-h100:8", {"sequence": 256, "micro_batch": 1}, plain=True)
    waiting = evaluate(point)
    assert isinstance(waiting, Metrics)
    assert explain_bound(point, waiting).startswith("kernel launches bound it (")


def test_the_expected_error_is_that_of_measured_runs_alike() -> None:
    alone = metrics("llama3-8b@dgx-h200:1", sequence=2048, global_batch=1, precision="bf16_pure", recompute="full")
    assert alone.expected_error is not None
    assert alone.expected_error < 0.08
    assert "runs of " in alone.expected_on
    assert alone.expected_on.endswith(": training, one accelerator, dense, 16 bits")
    cluster = metrics(GPT, **MESH)
    assert cluster.expected_error is not None
    assert alone.expected_error < cluster.expected_error < 0.15
    assert "several nodes" in cluster.expected_on
    guess = metrics("gpt3-13b@tpu-v5p:64")
    assert guess.expected_error is not None
    assert guess.expected_error > cluster.expected_error
    assert guess.expected_on.endswith("its kernels were not measured")


def test_a_step_has_a_range_around_its_prediction() -> None:
    found = metrics(GPT, **MESH)
    step, rate = found.step_s_range, found.tokens_per_s_range
    assert rate is not None
    assert step.p05 < step.p25 < step.p50 == found.step_s < step.p75 < step.p95
    assert rate.p50 == found.tokens_per_s
    assert rate.p95 / rate.p50 == pytest.approx(step.p50 / step.p05)
    unlike = metrics("dlrm-criteo@dgx-h100:8").step_s_range
    assert unlike.p95 / unlike.p50 > step.p95 / step.p50


NOT_MEASURED = "not measured: no run like this was predicted by this model"


@pytest.mark.parametrize("task", ["prefill", "decode"])
def test_the_error_of_serving_is_that_of_steps_that_the_closed_form_predicted(task: str) -> None:
    """Measured were eager stacks of dense layers in 16 bits on one accelerator; nothing else is like them."""
    one = {"task": task, "sequence": 2048, "global_batch": 1}
    alike = metrics("llama3-8b@dgx-h200:1", execution="eager", **one)
    assert alike.expected_error is not None
    assert alike.expected_error < 0.1
    assert alike.expected_on.endswith(f": {task}, one accelerator, dense, 16 bits")
    unlike: list[tuple[str, dict[str, Any]]] = [
        ("llama3-8b@dgx-h200:1", {}),
        ("llama3-8b@dgx-h200:1", {"execution": "eager", "precision": "fp8"}),
        ("llama3-8b@dgx-h200:8", {"execution": "eager", "tp": 8}),
        ("gpt-oss-20b@dgx-h200:1", {"execution": "eager"}),
    ]
    for name, changes in unlike:
        found = metrics(name, **{**one, **changes})
        assert (found.expected_error, found.expected_on) == (None, NOT_MEASURED)


def test_the_event_engine_quotes_no_error_of_the_closed_form_as_its_own() -> None:
    point = load_design("gpt3-125m@dgx-h100:8", {"sequence": 256, "micro_batch": 1, "global_batch": 8}, plain=True)
    found = evaluate(point, "event")
    assert isinstance(found, Metrics)
    assert found.expected_error is None
    assert found.expected_on.startswith("not measured: no run like this was predicted by the event engine; the closed")
    closed = evaluate(point)
    assert isinstance(closed, Metrics)
    assert found.step_s_range.p50 == found.step_s
    narrow, wide = (each.p95 / each.p50 for each in (closed.step_s_range, found.step_s_range))
    assert wide >= narrow


def test_what_goes_first_matters_where_gradients_wait() -> None:
    """With the newest first, the next step finds the weights that it needs first."""
    base = load_design("gpt3-13b@cosmic-1024", {"workload.weight_sharding": "zero1"}, plain=True)
    slow = {"network.dims.3.bandwidth": 1e8}
    first = schema.assign_fields(base, {**slow, "collective.scheduling": "lifo"})
    last = schema.assign_fields(base, {**slow, "collective.scheduling": "fifo"})
    one, other = evaluate(first), evaluate(last)
    assert isinstance(one, Metrics)
    assert isinstance(other, Metrics)
    assert one.step_s < other.step_s


def test_every_collective_of_a_design_has_its_place_in_the_step() -> None:
    """A recommender waits for vectors from everybody's tables: slower networks show in its step."""
    base = load_design("dlrm-criteo@dgx-h100:64")
    slow = schema.assign_fields(base, {"network.dims.1.bandwidth": 1e8})
    found, slower = evaluate(base), evaluate(slow)
    assert isinstance(found, Metrics)
    assert isinstance(slower, Metrics)
    assert found.breakdown["dp"] > 0
    assert slower.breakdown["dp"] > 10 * found.breakdown["dp"]


def test_every_family_can_be_evaluated() -> None:
    for model in ("bert-large", "t5-11b", "vit-huge", "mixtral-8x7b", "deepseek-v3", "dlrm-criteo"):
        outcome = evaluate(load_design(f"{model}@dgx-h100:1024"))
        assert isinstance(outcome, Metrics), model
        assert 0 < outcome.mfu < 1, model


ROWS = SPACE.sample(400, np.random.default_rng(0))
WHOLE = evaluate_batch(Batch(SPACE.base, SPACE.columns(ROWS)))


def agreeing(space: ParameterSet, rows: Any) -> int:
    """Return how many designs can run, having found that each alone gets what it gets in a batch."""
    together = evaluate_batch(Batch(space.base, space.columns(rows)))
    for place, row in enumerate(rows):
        outcome = evaluate(space.point(row))
        assert together.feasible[place] == isinstance(outcome, Metrics)
        if isinstance(outcome, Metrics):
            for name in ("step_s", "mfu", "memory_bytes", "network_usd"):
                assert together.columns[name][place] == pytest.approx(getattr(outcome, name), rel=1e-9)
    return int(together.feasible.sum())


def test_a_batch_gives_what_its_points_give() -> None:
    assert agreeing(SPACE, ROWS[:60]) > 0


@pytest.mark.parametrize("precision", ["bf16", "fp8", "fp32"])
def test_a_batch_may_mix_accelerators_that_lack_a_rate(precision: str) -> None:
    space = load_space(
        {
            "base": {
                "model": "llama3-8b",
                "system": "dgx-h100:64",
                "workload": {"precision": precision, "pp": 1, "weight_sharding": "zero3"},
            },
            "parameters": {
                "compute.accelerator": ["h100-sxm-80gb", "v100-sxm2-32gb", "tpu-v5e", "cosmic-10tf"],
                "workload.{dp,tp}": {"split": "npus"},
            },
            "constraints": ["tp <= 8"],
        }
    )
    assert agreeing(space, np.array(list(space.enumerate()))) > 0


def test_a_batch_may_vary_the_outer_tiers() -> None:
    tier = {"name": "host", "capacity": "256 GB", "bandwidth": "50 GB/s"}
    workload = {"offload": ["activations"], "dp": 4, "tp": 2}
    space = load_space(
        {
            "base": {"model": "llama3-8b", "system": "dgx-h100:8", "memory": {"tiers": [tier]}, "workload": workload},
            "parameters": {
                "memory.tiers.0.bandwidth": ["1 GB/s", "50 GB/s"],
                "memory.tiers.0.capacity": ["1 GB", "256 GB"],
            },
        }
    )
    assert agreeing(space, np.array(list(space.enumerate()))) == 2


def test_no_design_does_more_than_its_accelerators_can() -> None:
    assert WHOLE.feasible.any()
    assert (WHOLE.columns["mfu"][WHOLE.feasible] <= 1).all()
    assert (WHOLE.columns["hfu"][WHOLE.feasible] <= 1).all()


@given(st.integers(0, len(ROWS) - 1), st.integers(0, 3))
@settings(max_examples=40)
def test_twice_the_bandwidth_never_hurts(place: int, dim: int) -> None:
    point = SPACE.point(ROWS[place])
    bandwidth = point.network.dims[dim].bandwidth_bytes_per_s
    twice = schema.assign_fields(point, {f"network.dims.{dim}.bandwidth": 2 * bandwidth})
    before, after = evaluate(point), evaluate(twice)
    if isinstance(before, Metrics):
        assert isinstance(after, Metrics)
        assert after.step_s <= before.step_s * (1 + 1e-12)
        assert (after.network_usd or 0.0) > (before.network_usd or 0.0)


def test_each_generation_of_attention_kernels_is_faster_and_those_on_chip_need_equal_memory() -> None:
    found = [
        evaluate(load_design("llama3-8b@dgx-h100:8", {"workload.attention": each}, plain=True))
        for each in ("unfused", "flash1", "flash2", "fused")
    ]
    metrics = [each for each in found if isinstance(each, Metrics)]
    assert len(metrics) >= 3  # unfused scores may not fit
    steps, memory = [each.step_s for each in metrics[-3:]], [each.memory_bytes for each in metrics[-3:]]
    assert steps == sorted(steps, reverse=True)
    assert len(set(steps)) == 3
    assert len(set(memory)) == 1


@pytest.mark.parametrize("attention", ["fused", "flash1", "unfused"])
@pytest.mark.parametrize(("tp", "cp"), [(1, 1), (4, 1), (2, 2)])
def test_what_is_not_kept_is_made_again_and_takes_its_time(attention: str, tp: int, cp: int) -> None:
    settings = {"tp": tp, "cp": cp, "pp": 1, "weight_sharding": "zero3", "attention": attention, "global_batch": 64}
    times, sizes = [], []
    for recompute in ("none", "selective", "alternate", "full"):
        changes = {f"workload.{key}": value for key, value in {**settings, "recompute": recompute}.items()}
        outcome = evaluate(load_design("llama3-8b@dgx-h200:16", {**changes, "memory.capacity": "2 TB"}, plain=True))
        assert isinstance(outcome, Metrics)
        times.append(outcome.breakdown["recompute"])
        sizes.append(outcome.memory_bytes)
    nothing, selective, alternate, full = times
    assert nothing == 0
    assert 0 < selective < full
    assert 0 < alternate < full
    assert sizes == sorted(sizes, reverse=True)


def test_an_evaluated_batch_keeps_no_profile_that_would_wait_for_the_garbage_collector() -> None:
    space = load_space("cosmic-512-full-stack")
    columns = space.columns(space.sample(8, np.random.default_rng(0)))
    kept = {path: column for path, column in columns.items() if path.startswith("network.")}
    batch = Batch(space.base, kept)
    evaluate_batch(batch)
    assert batch.known == {}
