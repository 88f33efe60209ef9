"""What a design achieves, from its seconds and its bytes: every other number is worked out here, from the design alone.

The model has 2 layers, hidden 8, 2 heads of 4, ffn 16, vocab 10 and RMS norms; a sequence has 4 tokens. For a token its
GEMMs have 2 · 512 + 80 = 1104 weights, 2 flop each, and its attention 2 (4 + 4) flop for each key that it sees: with a
causal mask 10 of 16 pairs, 2.5 keys of 2 heads in 2 layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import exp, log, sqrt
from typing import Any, cast

import numpy as np
import pytest

from cosmic.base.errors import UnknownName
from cosmic.design import schema
from cosmic.design.design_batch import Batch, batch_of_changes
from cosmic.design.design_point import DesignPoint
from cosmic.design.prediction_accuracy import Range
from cosmic.design.serving_layer import Load, Serving
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.events.simulation_result import NpuTimes, SimulationResult
from cosmic.simulate.metrics import BETTER, Infeasible, Metrics
from cosmic.simulate.step_evaluation import busy_share, metrics_as_simulated, unknown_metrics, waiting_share

GIB = 2**30
PEAK = 100e12
MODEL = {"layers": 2, "hidden": 8, "heads": 2, "ffn": 16, "vocab": 10, "norm": "rmsnorm"}
EXPERTS = {"count": 4, "active": 2, "ffn": 4}
AXES = {"dp": 1, "tp": 1, "cp": 1, "pp": 1, "ep": 1}
PLAIN = {"sequence": 4, "micro_batch": 1, "recompute": "none", "weight_sharding": "none", "sequence_parallel": False}
HOST = {"name": "host", "capacity": "1 GB", "bandwidth": "10 GB/s"}


def design(
    model: Mapping[str, Any] | None = None,
    *,
    compute: Mapping[str, Any] | None = None,
    memory: Mapping[str, Any] | None = None,
    dims: list[dict[str, Any]] | None = None,
    **workload: Any,
) -> DesignPoint:
    """Return the tiny model on as many accelerators as the mapping needs, of round rates, power and price."""
    work = {**AXES, **PLAIN, **workload}
    work.setdefault("global_batch", work["dp"] * work["micro_batch"])
    npus = work["dp"] * work["tp"] * work["cp"] * work["pp"]
    switch = {"topology": "switch", "npus": npus, "bandwidth": "100 GB/s", "latency": "1 us"}
    return load_design(
        {
            "model": {**MODEL, **(model or {})},
            "compute": {"bf16": "100 TFLOP/s", "power": "500 W", "price": "1000 USD", **(compute or {})},
            "memory": {"capacity": "1 GiB", "context": "0 B", "bandwidth": "1 TB/s", **(memory or {})},
            "network": {"dims": dims if dims is not None else [switch] if npus > 1 else []},
            "workload": work,
        },
        plain=True,
    )


def metrics(point: DesignPoint, engine: str = "analytic") -> Metrics:
    outcome = evaluate(point, engine)
    assert isinstance(outcome, Metrics), outcome
    return outcome


def reasons(point: DesignPoint, engine: str = "analytic") -> tuple[str, ...]:
    outcome = evaluate(point, engine)
    assert isinstance(outcome, Infeasible), outcome
    return outcome.reasons


# ---- tokens and times


def test_a_training_step_passes_every_token_of_the_batch() -> None:
    found = metrics(design(dp=2, global_batch=6))
    assert found.tokens_per_s == pytest.approx(6 * 4 / found.step_s)
    assert (found.ttft_s, found.tpot_s) == (None, None)


def test_a_prefill_has_a_time_to_first_token() -> None:
    found = metrics(design(task="prefill", global_batch=3))
    assert found.tokens_per_s == pytest.approx(3 * 4 / found.step_s)
    assert (found.ttft_s, found.tpot_s) == (found.step_s, None)


def test_decoding_makes_one_token_a_sequence_and_has_a_time_per_output_token() -> None:
    found = metrics(design(task="decode", global_batch=3))
    assert found.tokens_per_s == pytest.approx(3 / found.step_s)
    assert (found.ttft_s, found.tpot_s) == (None, found.step_s)


def test_a_step_is_the_sum_of_its_breakdown_and_memory_that_of_its_components() -> None:
    found = metrics(design(dp=2))
    assert found.step_s == pytest.approx(sum(found.breakdown.values()))
    assert found.breakdown["gemm"] > 0
    static = 18 * 1224 + 4 * 16 + 64 * 2**20
    assert found.memory_bytes == pytest.approx(static + 1.03 * (2 * 832 + 144 + 320))
    assert found.memory["optimizer"] == 12 * 1224
    assert found.memory["activations"] == 2 * 832 + 144
    assert found.offloaded_bytes == 0


# ---- utilisation

WEIGHTS = 2 * 512 + 80
"""That a token is multiplied with."""
CAUSAL = 2 * (4 + 4) * 2.5 * 2 * 2
"""Flop of a token's attention: 2.5 keys, 2 heads, 2 layers."""


def needed(point: DesignPoint, peak: float = PEAK) -> float:
    """Return the flop of a step that its model flop utilisation says the model needs."""
    found = metrics(point)
    return found.mfu * found.step_s * point.network.npus * peak


def done(point: DesignPoint, peak: float = PEAK) -> float:
    """Return the flop of a step that its hardware flop utilisation says accelerators did."""
    found = metrics(point)
    return found.hfu * found.step_s * point.network.npus * peak


def test_training_needs_three_times_the_flop_of_a_forward_pass() -> None:
    assert needed(design()) == pytest.approx(3 * 4 * (2 * 1104 + 160))
    assert needed(design(dp=2, global_batch=6)) == pytest.approx(6 * 3 * 4 * (2 * 1104 + 160))


def test_a_prefill_needs_a_forward_pass_and_the_head_for_one_token() -> None:
    found = needed(design(task="prefill", global_batch=3))
    assert found == pytest.approx(3 * (4 * (2 * (WEIGHTS - 80) + CAUSAL) + 2 * 80))


def test_a_decoded_token_sees_the_whole_sequence() -> None:
    assert needed(design(task="decode", global_batch=3)) == pytest.approx(3 * (2 * WEIGHTS + 2 * 8 * 4 * 2 * 2))


def test_an_encoder_s_token_sees_the_whole_sequence() -> None:
    assert needed(design({"family": "encoder"})) == pytest.approx(3 * 4 * (2 * WEIGHTS + 2 * 8 * 4 * 2 * 2))


def test_of_experts_the_active_ones_count() -> None:
    """Two of four experts of two 8 × 4 matrices, and the router of 8 × 4."""
    layer = 256 + 8 * 4 + 2 * (2 * 8 * 4)
    assert needed(design({"experts": EXPERTS})) == pytest.approx(3 * 4 * (2 * (2 * layer + 80) + CAUSAL))


def test_what_the_model_needs_does_not_depend_on_the_mapping_or_on_recomputation() -> None:
    for change in ({"tp": 2}, {"recompute": "full"}, {"pp": 2}, {"cp": 2}):
        assert needed(design(**change)) == pytest.approx(28_416)


def test_the_hardware_does_what_the_model_needs() -> None:
    """However designs are mapped: uneven stages and an unbalanced context too."""
    changes: list[dict[str, Any]] = [{}, {"dp": 2, "global_batch": 10}, {"tp": 2}, {"cp": 2, "cp_balanced": False}]
    for change in changes:
        point = design(**change)
        assert done(point) == pytest.approx(needed(point))
    for task in ("prefill", "decode"):
        assert done(design(task=task)) == pytest.approx(needed(design(task=task)))
    assert done(design({"layers": 3}, pp=2)) == pytest.approx(needed(design({"layers": 3}, pp=2)))


def test_the_hardware_does_recomputation_besides() -> None:
    """Each layer runs again up to its last matrix: 384 weights, and attention."""
    again = 2 * (2 * 4 * 384 + 4 * CAUSAL / 2)
    assert done(design(recompute="full")) == pytest.approx(28_416 + again)
    assert needed(design(recompute="full")) == pytest.approx(28_416)
    to_end = 2 * (2 * 4 * 512 + 4 * CAUSAL / 2)
    assert done(design(recompute="full", recompute_to_end=True)) == pytest.approx(28_416 + to_end)
    assert done(design(recompute="selective", attention="unfused")) == pytest.approx(28_416 + 4 * CAUSAL)
    assert done(design(recompute="selective")) == pytest.approx(28_416 + 4 * CAUSAL)
    assert done(design(recompute="selective", recompute_modules=("layernorm",))) == pytest.approx(28_416)


def test_empty_slots_of_experts_are_work_of_the_hardware_alone() -> None:
    """Experts that take half as many tokens more compute 4 × 4 × 1.5 slots; those that take half drop tokens."""
    usual = needed(design({"experts": EXPERTS}))
    routed = 3 * 4 * 2 * 2 * 2 * (2 * 8 * 4)  # of 4 tokens, 2 layers, 2 experts of two matrices
    wider = design({"experts": {**EXPERTS, "capacity_factor": 1.5}})
    assert needed(wider) == pytest.approx(usual)
    assert done(wider) == pytest.approx(usual + routed / 2)
    half = design({"experts": {**EXPERTS, "capacity_factor": 0.5}})
    assert needed(half) == pytest.approx(usual - routed / 2)
    assert done(half) == pytest.approx(needed(half))


def test_of_attention_the_pairs_in_the_window_count() -> None:
    """A window of 2 shows 1 + 2 + 2 + 2 of 1 + 2 + 3 + 4 keys; with every other layer whole, the mean of both."""
    assert needed(design({"window": 2})) == pytest.approx(3 * 4 * (2 * WEIGHTS + CAUSAL * 7 / 10))
    mixed = design({"window": 2, "full_attention_every": 2})
    assert needed(mixed) == pytest.approx(3 * 4 * (2 * WEIGHTS + CAUSAL * 17 / 20))
    assert done(mixed) == pytest.approx(needed(mixed))


@pytest.mark.parametrize(("precision", "peak"), [("bf16", 100e12), ("fp8", 200e12), ("fp4", 400e12), ("fp32", 25e12)])
def test_utilisation_is_of_the_peak_of_the_precision(precision: str, peak: float) -> None:
    rates = {"fp8": "200 TFLOP/s", "fp4": "400 TFLOP/s", "fp32": "25 TFLOP/s"}
    point = design(compute=rates, precision=precision)
    assert needed(point, peak) == pytest.approx(28_416)
    assert done(point, peak) == pytest.approx(28_416)


# ---- dollars and joules

SWITCH_USD = 100 * (2 * 4 * 4 + 4 * 13)
"""Four NPUs of 100 GB/s at a switch inside a package: 8 links of 4 dollars a GB/s, 4 ports of 13."""
SWITCH_W = 2 * 4 * 11.671875
"""Four ports of 100 GB/s, which is twice 400 Gbit/s."""


def used_w(point: DesignPoint, found: Metrics, network: float = SWITCH_W) -> float:
    """Watts at the meter: an accelerator of 500 W that waits draws a tenth, ports the same; 1.25 by the building."""
    parts = found.breakdown
    computing = sum(parts[name] for name in ("gemm", "attention", "other", "recompute", "optimizer"))
    return (point.network.npus * 500 * (0.1 + 0.9 * computing / found.step_s) + network) * 1.25


def owned_usd_per_s(capital: float, power: float) -> float:
    """Four years of depreciation, 5 % upkeep a year; 0.08 dollars a kWh."""
    return capital * (1 / 4 + 0.05) / (365.25 * 86400) + power * 0.08 / 3.6e6


def test_accelerators_and_network_are_bought() -> None:
    found = metrics(design(dp=4))
    assert found.network_usd == pytest.approx(SWITCH_USD)
    assert found.cost_usd == pytest.approx(4 * 1000 + 8400)


def test_accelerators_and_network_draw_power() -> None:
    point = design(dp=4)
    found = metrics(point)
    assert found.power_w == pytest.approx((4 * 500 + 93.375) * 1.25)
    assert found.energy_j == pytest.approx(used_w(point, found) * found.step_s)


def test_a_token_costs_its_share_of_owning_the_cluster() -> None:
    point = design(dp=4, global_batch=8)
    found = metrics(point)
    per_step = owned_usd_per_s(4 * 1000 + SWITCH_USD, used_w(point, found)) * found.step_s
    assert found.cost_usd_per_token == pytest.approx(per_step / (8 * 4))
    point = design(dp=4, global_batch=8, task="decode")
    decoded = metrics(point)
    per_step = owned_usd_per_s(4 * 1000 + SWITCH_USD, used_w(point, decoded)) * decoded.step_s
    assert decoded.cost_usd_per_token == pytest.approx(per_step / 8)


def test_without_a_price_or_a_power_costs_are_unknown_and_the_network_has_its_own() -> None:
    tree = {"bf16": "100 TFLOP/s", "power": None, "price": None}
    found = metrics(design(dp=4, compute=tree))
    assert (found.cost_usd, found.cost_usd_per_token, found.energy_j) == (None, None, None)
    assert found.network_usd == pytest.approx(SWITCH_USD)
    assert found.unknown == {
        "cost_usd": "no price is known for the accelerator",
        "cost_usd_per_token": "no price and no power is known for the accelerator",
        "energy_j": "no power is known for the accelerator",
        "power_w": "no power is known for the accelerator",
    }
    priced = metrics(design(dp=4, compute={**tree, "price": "1000 USD"}))
    assert priced.cost_usd == pytest.approx(4 * 1000 + SWITCH_USD)
    assert set(priced.unknown) == {"cost_usd_per_token", "energy_j", "power_w"}
    assert metrics(design(dp=4)).unknown == {}
    simulated = metrics(design(dp=4, compute=tree), "event")
    assert (simulated.cost_usd_per_token, simulated.energy_j) == (None, None)


def test_rewards_are_steps_a_second_for_what_the_network_sends_and_costs() -> None:
    found = metrics(design(dp=4))
    assert found.perf_per_bandwidth == pytest.approx(1 / (found.step_s * 100e9))
    assert found.perf_per_network_cost == pytest.approx(1 / (found.step_s * 8400))


def test_the_dimensions_of_a_network_add_up() -> None:
    """Two switches of a package, 2 NPUs each, and two of a pod, where links cost 7.8, ports 18 and NICs 31.6."""
    inner = {"topology": "switch", "npus": 2, "bandwidth": "200 GB/s", "latency": "1 us"}
    outer = {"topology": "switch", "npus": 2, "bandwidth": "50 GB/s", "latency": "1 us"}
    point = design(dp=4, dims=[inner, outer])
    found = metrics(point)
    package = 2 * 200 * (4 * 4 + 2 * 13)
    pod = 2 * 50 * (4 * 7.8 + 2 * 18 + 2 * 31.6)
    watts = 2 * 4 * 2 * 11.671875 + 2 * 1 * (4 * 8 + 2 * 11.671875 + 2 * 25)
    assert found.network_usd == pytest.approx(package + pod)
    assert found.energy_j == pytest.approx(used_w(point, found, watts) * found.step_s)
    assert found.perf_per_bandwidth == pytest.approx(1 / (found.step_s * 250e9))


def test_one_accelerator_has_no_network_to_reward() -> None:
    point = design()
    found = metrics(point)
    assert (found.network_usd, found.perf_per_bandwidth, found.perf_per_network_cost) == (0, None, None)
    assert found.cost_usd == 1000
    assert found.power_w == pytest.approx(500 * 1.25)
    assert found.energy_j == pytest.approx(used_w(point, found, 0.0) * found.step_s)


UNPRICED = {"bf16": "100 TFLOP/s", "power": None, "price": None}


def test_only_runs_of_a_length_lack_what_they_would_cost() -> None:
    """Seven days without interruptions that are known would cost an unknown sum; a step has no length."""
    lasting = design(compute=UNPRICED).changed({"run.tokens": 1e6, "run.npu_mtbf": 1e9})
    of_runs = {name: reason for name, reason in unknown_metrics(lasting).items() if name.startswith("train_")}
    assert of_runs == {
        "train_usd": "no price and no power is known for the accelerator",
        "train_energy_j": "no power is known for the accelerator",
        "train_co2_kg": "no power is known for the accelerator",
    }
    served = design(compute=UNPRICED, task="prefill").changed({"run.tokens": 1e6})
    for without in (design(compute=UNPRICED), served):
        assert not any(name.startswith("train_") for name in unknown_metrics(without))


def test_only_designs_with_a_load_lack_the_energy_of_its_tokens() -> None:
    step = design(compute=UNPRICED, task="decode")
    loaded = replace(step, serving=Serving(load=Load(isl=10, osl=10, concurrency=1)))
    assert "energy_j_per_token" not in unknown_metrics(step)
    assert unknown_metrics(loaded)["energy_j_per_token"] == "no power is known for the accelerator"


def test_a_network_that_comes_with_its_nodes_has_no_price_to_reward() -> None:
    plain = {"topology": "switch", "npus": 2, "bandwidth": "100 GB/s", "latency": "1 us"}
    dims = [{**plain, "fabric": {"build": "included"}}, plain]
    for used, known in ((dims[:1], False), (dims[1:], True), (dims, True)):
        missing = unknown_metrics(design(dp=2 ** len(used), dims=used)).get("perf_per_network_cost")
        assert missing == (None if known else "the network is part of the node, and has no price of its own")
    assert "perf_per_network_cost" not in unknown_metrics(design())


def test_accelerators_wait_and_compute_in_shares_of_a_step() -> None:
    assert waiting_share({"breakdown.launch": 2.0, "step_s": 8.0}) == 0.25
    parts = {"gemm": 1.0, "attention": 2.0, "other": 4.0, "recompute": 8.0, "optimizer": 16.0, "tp": 32.0}
    assert busy_share(parts, 64.0) == 31 / 64


# ---- what cannot


def test_a_design_that_needs_too_much_says_its_three_largest_components() -> None:
    """67,133,151.84 bytes: 64 MiB of workspace, 14,688 of states, 4,896 of gradients, 2,448 of weights and so on."""
    sentence = "needs 0.06252 GiB of 0.05 GiB per NPU: 0.0625 workspace, 1.37e-05 optimizer, 4.56e-06 gradients"
    assert reasons(design(memory={"capacity": "0.05 GiB"})) == (sentence,)
    assert reasons(design(memory={"capacity": "0.05 GiB"}), "event") == (sentence,)


def test_of_a_pipeline_the_stage_that_needs_too_much_is_named() -> None:
    """The first of two stages keeps two microbatches in flight; the last of a large vocabulary has its logits."""
    small = {"capacity": "0.05 GiB"}
    assert reasons(design(pp=2, global_batch=2, memory=small))[0].startswith("stage 1 of 2 needs 0.0625")
    large = reasons(design({"vocab": 100_000}, pp=2, memory=small))
    assert large[0].startswith("stage 2 of 2 needs ")


def test_a_design_may_fill_the_memory_to_the_last_byte() -> None:
    point = design()
    full = metrics(point).memory_used_bytes
    assert isinstance(evaluate(schema.assign_fields(point, {"memory.capacity": full})), Metrics)
    assert isinstance(evaluate(schema.assign_fields(point, {"memory.capacity": full - 1})), Infeasible)


def test_what_is_offloaded_must_fit_all_outer_tiers_together() -> None:
    """States of 12 · 1224 = 14,688 bytes."""
    tiers = [{**HOST, "capacity": "10000 B"}, {**HOST, "name": "drive", "capacity": "4688 B"}]
    found = metrics(design(offload=["optimizer"], memory={"tiers": tiers}))
    assert (found.offloaded_bytes, found.memory["optimizer"]) == (14_688, 0)
    scarce = [{**HOST, "capacity": "10000 B"}, {**HOST, "name": "drive", "capacity": "4687 B"}]
    assert reasons(design(offload=["optimizer"], memory={"tiers": scarce})) == (
        "offloads 1.368e-05 GiB per NPU to outer tiers of 1.368e-05 GiB",
    )
    half = [{**HOST, "capacity": f"{2**13} B"}]
    assert reasons(design(offload=["optimizer"], memory={"tiers": half})) == (
        "offloads 1.368e-05 GiB per NPU to outer tiers of 7.629e-06 GiB",
    )


def test_a_mapping_that_breaks_rules_says_each() -> None:
    found = reasons(design(tp=4, dp=2, global_batch=3))
    assert found == (
        "tp 4 does not divide the 2 heads: choose a divisor, or set uneven_tp to pad",
        "global_batch 3 does not divide by dp 2 × micro_batch 1: choose a multiple of 2",
    )
    assert reasons(design(tp=4, dp=2, global_batch=3), "event") == found


def test_an_engine_that_is_not_there_is_named() -> None:
    with pytest.raises(UnknownName, match="engine = 'oracle': no such engine; choose from analytic, event"):
        evaluate(design(), "oracle")


# ---- engines


def rank(npu: int, cycles: int, communication: int = 0, hidden: int = 0, idle: int = 0) -> NpuTimes:
    return NpuTimes(
        npu=npu,
        cycles=cycles,
        exposed_cycles=0,
        compute_cycles=0,
        communication_cycles=communication,
        hidden_cycles=hidden,
        idle_cycles=idle,
        compute_bound=None,
        compute_utilization=None,
        memory_utilization=None,
        operational_intensity=None,
    )


SIMULATED = cast(
    SimulationResult, type("Simulated", (), {"per_npu": (rank(0, 100), rank(1, 5000, 1500, 300, 700), rank(2, 3000))})
)


def closed_form(**changes: Any) -> Metrics:
    """Return a step of 2 microseconds with round numbers."""
    values: dict[str, Any] = dict.fromkeys(BETTER, 1.0)
    values |= {"step_s": 2e-6, "ttft_s": None, "tpot_s": None, "tokens_per_s": 1e6, "mfu": 0.5, "hfu": 0.75}
    values |= {"cost_usd_per_token": 4.0, "energy_j": 8.0, "perf_per_bandwidth": 10.0, "perf_per_network_cost": 20.0}
    values |= {"memory": {}, "breakdown": {"gemm": 2e-6}, "provenance": "estimate"}
    values |= {"memory_stage": 0, "expected_error": 0.1, "expected_on": "nothing", "unknown": {}}
    values |= {"step_s_range": Range(1e-6, 1.5e-6, 2e-6, 3e-6, 4e-6)}
    values |= {"tokens_per_s_range": Range(5e5, 7e5, 1e6, 1.5e6, 2e6)}
    return Metrics(**{**values, **changes})


def test_a_simulated_step_takes_as_long_as_its_last_rank() -> None:
    """5000 ns in place of 2000: two and a half times slower. 1500 - 300 ns of communication are exposed."""
    found = metrics_as_simulated(closed_form(), SIMULATED)
    assert found.step_s == pytest.approx(5e-6, rel=1e-12, abs=0)
    assert (found.ttft_s, found.tpot_s) == (None, None)
    assert found.tokens_per_s == pytest.approx(1e6 / 2.5)
    assert (found.mfu, found.hfu) == pytest.approx((0.5 / 2.5, 0.75 / 2.5))
    assert (found.cost_usd_per_token, found.energy_j) == pytest.approx((4 * 2.5, 8 * 2.5))
    assert found.perf_per_bandwidth == pytest.approx(10 / 2.5)
    assert found.perf_per_network_cost == pytest.approx(20 / 2.5)
    parts = {"compute": 3.1e-6, "communication": 1.2e-6, "idle": 0.7e-6}
    assert found.breakdown == pytest.approx(parts, rel=1e-12, abs=0)
    assert (found.memory_bytes, found.cost_usd, found.network_usd) == (1, 1, 1)


def test_a_simulated_run_lasts_as_much_longer_as_its_steps() -> None:
    longer = {"train_days": 2.0, "train_usd": 3.0, "train_energy_j": 5.0, "train_co2_kg": 7.0}
    found = metrics_as_simulated(closed_form(effective_tokens_per_s=11.0, **longer), SIMULATED)
    assert {name: getattr(found, name) for name in longer} == pytest.approx({k: 2.5 * v for k, v in longer.items()})
    assert found.effective_tokens_per_s == pytest.approx(11 / 2.5)
    assert found.goodput == 1.0


def test_what_engines_disagree_by_widens_the_range_of_a_simulated_step() -> None:
    """Errors that are independent: the root of the sum of the squares of log 1.5, or log 2, and log 2.5."""
    found = metrics_as_simulated(closed_form(), SIMULATED)
    for name, value, ratios in (("step_s_range", 5e-6, (1.5, 2.0)), ("tokens_per_s_range", 4e5, (1.5, 2.0))):
        half, nine_tenths = (exp(sqrt(log(ratio) ** 2 + log(2.5) ** 2)) for ratio in ratios)
        around: Range = getattr(found, name)
        assert (around.p50, around.p75, around.p95) == pytest.approx((value, value * half, value * nine_tenths))
        assert (around.p25, around.p05) == pytest.approx((value / half, value / nine_tenths))
    assert found.expected_error is None
    said = "not measured: no run like this was predicted by the event engine"
    assert found.expected_on == f"{said}; the closed form is off by 10 % nothing"
    assert metrics_as_simulated(closed_form(expected_error=None), SIMULATED).expected_on == said


def test_a_simulated_step_of_serving_has_the_time_of_its_task() -> None:
    prefill = metrics_as_simulated(closed_form(ttft_s=2e-6), SIMULATED)
    assert prefill.ttft_s == pytest.approx(5e-6)
    assert prefill.tpot_s is None
    decode = metrics_as_simulated(closed_form(tpot_s=2e-6), SIMULATED)
    assert decode.tpot_s == pytest.approx(5e-6)
    assert decode.ttft_s is None


def test_a_simulated_step_of_one_accelerator_has_no_rewards() -> None:
    found = metrics_as_simulated(closed_form(perf_per_bandwidth=None, perf_per_network_cost=None), SIMULATED)
    assert (found.perf_per_bandwidth, found.perf_per_network_cost) == (None, None)


def test_both_engines_evaluate_a_design() -> None:
    """Rates change with the step, and what the model needs does not."""
    point = design(dp=2)
    analytic, event = metrics(point), metrics(point, "event")
    assert set(event.breakdown) == {"compute", "communication", "idle"}
    assert event.step_s == pytest.approx(sum(event.breakdown.values()))
    assert event.mfu * event.step_s * 2 * PEAK == pytest.approx(2 * 28_416)
    assert event.memory == analytic.memory
    assert "gemm" in analytic.breakdown


def test_a_design_says_on_how_many_measured_runs_its_error_was_found() -> None:
    found = metrics(design(compute={"provenance": "measured"}))
    assert found.provenance == "measured"
    assert found.expected_on.startswith("on ")
    assert found.expected_on.endswith(": training, one accelerator, dense, 16 bits")
    model = {"dense_features": 4, "tables": [6, 10], "embedding": 2, "bottom": [3, 2], "top": [3, 1]}
    tree = {
        "model": {"family": "recommender", **model},
        "compute": {"bf16": "100 TFLOP/s", "provenance": "measured"},
        "memory": {"capacity": "1 GiB", "context": "0 B", "bandwidth": "1 TB/s"},
        "network": {"dims": []},
        "workload": {"dp": 1, "global_batch": 4},
    }
    recommended = metrics(load_design(tree))
    assert recommended.expected_on == "not measured: no run like this was predicted by this model"
    assert recommended.expected_error is None


# ---- batches


def column(found: Any, name: str) -> list[float]:
    values: list[float] = found.columns[name].tolist()
    return values


def test_a_batch_has_every_metric_of_its_designs() -> None:
    """Structures may differ: a mapping, a task, a precision."""
    changes: list[dict[str, Any]] = [
        {},
        {"workload.global_batch": 6},
        {"workload.task": "prefill"},
        {"workload.task": "decode", "workload.global_batch": 4},
        {"workload.precision": "fp32"},
        {"workload.dp": 1, "workload.tp": 2},
    ]
    point = design(dp=2)
    found = evaluate_batch(batch_of_changes(point, changes))
    assert found.feasible.all()
    assert found.broken == {}
    assert (found.excess == 0).all()
    for row, change in enumerate(changes):
        alone = metrics(schema.assign_fields(point, change))
        for name in BETTER:
            expected = getattr(alone, name)
            assert column(found, name)[row] == pytest.approx(np.nan if expected is None else expected, nan_ok=True)
        for name, seconds in alone.breakdown.items():
            assert column(found, f"breakdown.{name}")[row] == pytest.approx(seconds)
        for name, size in alone.memory.items():
            assert column(found, f"memory.{name}")[row] == pytest.approx(size)
    tokens = np.array(column(found, "tokens_per_s")) * np.array(column(found, "step_s"))
    assert tokens.tolist() == pytest.approx([8, 24, 8, 4, 8, 8])


def test_a_batch_says_by_what_share_memory_is_too_small() -> None:
    """67,133,151.84 bytes in half as much, in 64 MiB, and in a GiB."""
    needs = 18 * 1224 + 64 + 64 * 2**20 + 1.03 * 2128
    changes = [{"memory.capacity": needs / 2}, {"memory.capacity": 2.0**26}, {"memory.capacity": 2.0**30}]
    found = evaluate_batch(batch_of_changes(design(), changes))
    assert found.excess.tolist() == pytest.approx([1, needs / 2**26 - 1, 0])
    assert {name: those.tolist() for name, those in found.broken.items()} == {"memory": [True, True, False]}
    assert found.feasible.tolist() == [False, False, True]


def test_what_fills_the_memory_exceeds_it_by_nothing() -> None:
    point = design()
    full = metrics(point).memory_used_bytes
    found = evaluate_batch(batch_of_changes(point, [{"memory.capacity": full}, {"memory.capacity": full / 4}]))
    assert found.excess.tolist() == pytest.approx([0, 3])
    assert found.feasible.tolist() == [True, False]


def test_a_batch_says_by_what_share_outer_tiers_are_too_small() -> None:
    """14,688 bytes of states: a quarter of that, twice that; and once with too little memory as well."""
    point = design(offload=["optimizer"], memory={"tiers": [HOST]})
    without_states = 6 * 1224 + 64 + 64 * 2**20 + 1.03 * 2128
    changes = [
        {"memory.tiers.0.capacity": 14_688.0 / 4, "memory.capacity": 2.0**30},
        {"memory.tiers.0.capacity": 14_688.0 * 2, "memory.capacity": 2.0**30},
        {"memory.tiers.0.capacity": 14_688.0 / 4, "memory.capacity": without_states / 3},
    ]
    found = evaluate_batch(batch_of_changes(point, changes))
    assert found.excess.tolist() == pytest.approx([3, 0, 3 + 2])
    assert {name: those.tolist() for name, those in found.broken.items()} == {
        "memory": [False, False, True],
        "offloaded": [True, False, True],
    }
    assert column(found, "offloaded_bytes") == [14_688] * 3


def test_a_batch_says_by_what_share_the_tier_of_some_state_is_too_small() -> None:
    """2,448 bytes of weights in a host of 2,000, beside a drive that is empty; too little memory counts alone."""
    tiers = [{**HOST, "capacity": "2000 B"}, {**HOST, "name": "drive"}]
    point = design(task="decode", memory={"tiers": tiers, "placement": {"weights": ["host"]}})
    changes = [
        {"memory.tiers.0.capacity": 2000.0, "memory.capacity": 2.0**30},
        {"memory.tiers.0.capacity": 2448.0, "memory.capacity": 2.0**30},
        {"memory.tiers.0.capacity": 2000.0, "memory.capacity": 2.0**20},
    ]
    found = evaluate_batch(batch_of_changes(point, changes))
    needed = column(found, "memory_bytes")[2]
    assert found.excess.tolist() == pytest.approx([2448 / 2000 - 1, 0, needed / 2**20 - 1])
    assert {name: those.tolist() for name, those in found.broken.items()} == {
        "memory": [False, False, True],
        "offloaded": [True, False, False],
    }


def test_a_design_of_a_batch_that_breaks_a_rule_exceeds_without_end() -> None:
    changes = [
        {"workload.dp": 4, "workload.tp": 1, "workload.global_batch": 4},
        {"workload.dp": 1, "workload.tp": 4, "workload.global_batch": 4},
        {"workload.dp": 4, "workload.tp": 1, "workload.global_batch": 6},
    ]
    found = evaluate_batch(batch_of_changes(design(dp=4), changes))
    assert found.excess.tolist() == [0, np.inf, np.inf]
    assert {name: those.tolist() for name, those in found.broken.items()} == {
        "heads": [False, True, False],
        "batch": [False, False, True],
    }


def test_offloading_without_outer_tiers_exceeds_without_end() -> None:
    found = evaluate_batch(batch_of_changes(design(), [{"workload.offload": ()}, {"workload.offload": ("weights",)}]))
    assert found.excess.tolist() == [0, np.inf]
    assert {name: those.tolist() for name, those in found.broken.items()} == {
        "offload": [False, True],
        "offloaded": [False, True],
    }


def test_a_batch_may_mix_known_and_unknown_prices() -> None:
    changes = [{"compute.price": None, "compute.power": 500.0}, {"compute.price": 1000.0, "compute.power": None}]
    found = evaluate_batch(batch_of_changes(design(dp=4), changes))
    assert column(found, "cost_usd") == pytest.approx([np.nan, 12_400], nan_ok=True)
    assert column(found, "power_w") == pytest.approx([(2000 + 93.375) * 1.25, np.nan], nan_ok=True)
    assert np.isnan(column(found, "energy_j")).tolist() == [False, True]
    assert np.isnan(column(found, "cost_usd_per_token")).all()
    assert column(found, "network_usd") == pytest.approx([8400, 8400])


def test_a_batch_of_single_accelerators_has_no_rewards() -> None:
    found = evaluate_batch(Batch(design(), {}))
    assert np.isnan(column(found, "perf_per_bandwidth")).all()
    assert np.isnan(column(found, "perf_per_network_cost")).all()
    assert np.isnan(column(found, "ttft_s")).all()
