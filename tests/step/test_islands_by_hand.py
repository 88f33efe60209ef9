"""Islands that exchange parameters every few steps: bytes, seconds and memory, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.systems import read_system
from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Infeasible, Metrics
from cosmic.simulate.trace_generation import generate_traces
from cosmic.step.communication import CollectiveUse
from cosmic.step.device_memory import footprint
from cosmic.step.step_profile import profile_step

MESH = {"dp": 64, "tp": 2, "cp": 1, "pp": 1, "global_batch": 1024, "micro_batch": 2, "recompute": "full"}
MESH |= {"weight_sharding": "zero1", "placement": ["tp", "cp", "pp", "dp"]}
PARAMETERS = 8_030_261_248


def llama(**keys: Any) -> DesignPoint:
    return load_design("llama3-8b@dgx-h100:2x64", {**MESH, **keys})


def uses(point: DesignPoint, role: str) -> list[CollectiveUse]:
    found = profile_step(batch_of(point), "first")
    return [use for use in found.collectives if use.role == role and use.group > 1]


def test_any_system_has_islands() -> None:
    """One of 400 Gb/s for a host of 8: 6.25 GB/s for each accelerator."""
    dims = read_system("dgx-h100:2x512")["network"]["dims"]
    assert [dim["npus"] for dim in dims] == [8, 64, 2]
    assert (dims[-1]["bandwidth"], dims[-1]["latency"]) == ("6.25 GB/s", "10 us")


def test_without_a_period_nothing_is_exchanged_apart() -> None:
    assert not uses(llama(), "sync")
    assert {float(use.group) for use in uses(llama(), "weights")} == {64.0, 128.0}  # norms, over tp too


def test_gradients_are_reduced_inside_an_island() -> None:
    """64 replicas on two islands: 32 in each; gradients of norms are summed over tp 2 too."""
    found = uses(llama(sync_period=10), "weights") + uses(llama(sync_period=10), "updated")
    assert {(use.axes, float(use.group)) for use in found} == {(("cp", "idp"), 32.0), (("tp", "cp", "idp"), 64.0)}


@pytest.mark.parametrize(("compression", "expected"), [(1.0, 4.0), (0.125, 0.5)])
def test_a_rank_exchanges_its_share_of_all_parameters(compression: float, expected: float) -> None:
    """Of an island, tp 2 × 32 replicas share them out: 1 / 64 of 4 bytes each, or of 4 bits."""
    found = uses(llama(sync_period=10, sync_compression=compression), "sync")
    sent = sum(float(use.bytes * use.calls) for use in found)
    assert {(use.kind, use.axes, float(use.group)) for use in found} == {("all_reduce", ("odp",), 2.0)}
    assert sent == pytest.approx(PARAMETERS * expected / 64 / 10, rel=1e-4)


def test_without_sharding_an_island_gathers_what_was_exchanged() -> None:
    found = [use for use in uses(llama(sync_period=10, weight_sharding="none"), "sync") if use.kind == "all_gather"]
    assert sum(float(use.bytes * use.calls) for use in found) == pytest.approx(PARAMETERS * 2 / 2 / 10, rel=1e-4)
    assert {use.axes for use in found} == {("cp", "idp")}


@pytest.mark.parametrize("engine", ["analytic", "event"])
def test_an_exchange_takes_its_bytes_and_one_latency(engine: str) -> None:
    """0.502 GB at 6.25 × 0.8 GB/s: 0.1004 s; there and back over two links of 50 ms each: 0.2 s. A tenth of both."""

    def seconds(**keys: Any) -> float:
        outcome = evaluate(llama(**keys), engine)
        assert isinstance(outcome, Metrics), outcome
        return outcome.step_s

    far = {"network.dims.2.latency": "50 ms"}
    often, never = seconds(sync_period=10, **far), seconds(sync_period=1_000_000, **far)
    assert often - never == pytest.approx((PARAMETERS * 4 / 64 / 5e9 + 4 * 0.05) / 10, rel=2e-3)


def test_far_islands_hardly_slow_an_exchange_now_and_then() -> None:
    """At 220 ms for an all-reduce, once in 500 steps: 0.44 ms of a step of more than 8 s."""
    near, far = (
        evaluate(llama(sync_period=500, **{"network.dims.2.latency": latency})) for latency in ("10 us", "55 ms")
    )
    assert isinstance(near, Metrics)
    assert isinstance(far, Metrics)
    assert far.step_s - near.step_s == pytest.approx(4 * (0.055 - 10e-6) / 500, rel=1e-6)


def test_an_island_keeps_its_states_and_those_of_the_exchange() -> None:
    """Adam: 12 bytes over 64 replicas; apart, over 32, and 8 more: what was exchanged last, and its momentum."""
    together, apart = (footprint(batch_of(llama(sync_period=period))).parts["optimizer"] for period in (1, 2))
    assert float(together) == pytest.approx(12 * PARAMETERS / 2 / 64, rel=1e-3)
    assert float(apart) == pytest.approx(20 * PARAMETERS / 2 / 32, rel=1e-3)


def test_traces_name_the_groups_inside_and_across_islands() -> None:
    small = {"dp": 8, "tp": 2, "global_batch": 16, "model.layers": 2, "sync_period": 4}
    job = generate_traces(load_design("llama3-8b@dgx-h100:2x8", {**MESH, **small}))
    groups = set(job.groups.values())
    assert (0, 2, 4, 6) in groups  # replicas of an island
    assert (0, 8) in groups  # the same rank of both
    assert (0, 2, 4, 6, 8, 10, 12, 14) not in groups  # all replicas


def test_experts_stay_inside_an_island() -> None:
    keys = {**MESH, "dp": 32, "tp": 1, "ep": 8, "sync_period": 4, "global_batch": 64, "micro_batch": 1}
    point = load_design("qwen3-30b-a3b@dgx-h100:2x16", keys)
    assert {use.axes for use in uses(point, "sync")} == {("odp",), ("oedp",)}
    outcome = evaluate(point.changed({"workload.ep": 32}))
    assert isinstance(outcome, Infeasible)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"sync_compression": 0.25}, "sync_compression 0.25 with sync_period 1: set sync_period above 1"),
        (
            {"sync_period": 4, "dp": 32, "pp": 2, "placement": ["tp", "cp", "dp", "pp"]},
            "sync_period 4: the outermost network dimension joins 2 islands, which dp 32 must fill alone: choose a "
            "multiple of it as dp, put dp last in placement, and keep ep inside an island",
        ),
    ],
)
def test_islands_that_are_no_replicas_are_refused(keys: dict[str, Any], reason: str) -> None:
    outcome = evaluate(llama(**keys))
    assert isinstance(outcome, Infeasible)
    assert reason in outcome.reasons


def test_each_rank_of_an_island_casts_a_share_of_its_island_s_weights() -> None:
    """Two islands of 8 GPUs shard weights over 8, as one does; 16 GPUs of one job cast a sixteenth each."""
    fp8 = {"precision": "fp8", "fp8_recipe": "tensorwise", "weight_sharding": "zero3", "micro_batch": 1}
    stated = {"compute.straggler_slack": 0.0} | {f"workload.{key}": value for key, value in fp8.items()}

    def gemm_s(npus: int, sync_period: int) -> float:
        mesh = {"workload.dp": npus, "workload.global_batch": npus, "workload.sync_period": sync_period}
        found = evaluate(load_design(f"gpt3-1.3b@dgx-h100:{npus}", stated | mesh))
        assert isinstance(found, Metrics)
        return float(found.breakdown["gemm"])

    assert gemm_s(16, 500) == gemm_s(8, 1)
    assert gemm_s(16, 1) < gemm_s(8, 1)
