"""Deployments: pools cut out of a design's network, the rules that they meet, one design or many."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import Batch, batch_of_changes
from cosmic.design.design_point import DesignPoint
from cosmic.evaluation import evaluate, evaluate_batch, step_of
from cosmic.search.advice.design_advice import find_improvements, mend_mapping
from cosmic.search.mapping.design_completion import load_design
from cosmic.serving.deployment import deployment_of, deployments_of, dimension_sizes_within
from cosmic.simulate.metrics import BETTER, Infeasible, Metrics

LOAD = {"isl": 1000, "osl": 100, "concurrency": 64}


def design(source: Any = "llama3-70b@dgx-h100:64", **settings: Any) -> DesignPoint:
    return load_design(source, {**LOAD, "tp": 8, "pp": 1, "cp": 1, **settings})


def sizes(point: DesignPoint) -> list[int]:
    return [dim.npus for dim in point.network.dims]


def test_one_pool_is_the_design() -> None:
    found = deployment_of(design())
    assert (found.pool.instances, found.pool.ranks, found.npus, found.prefill) == (8, 1, 64, None)
    assert found.pool.design == design()


def test_two_pools_share_the_network_with_whole_instances() -> None:
    found = deployment_of(design(**{"tp": 4, "prefill.replicas": 3, "prefill.tp": 4}))
    assert found.prefill is not None
    assert (found.pool.instances, found.prefill.instances, found.npus) == (13, 3, 64)
    assert (sizes(found.pool.design), sizes(found.prefill.design)) == ([4, 13], [4, 3])
    assert found.prefill.design.workload.tp == 4
    assert len(found.pool.design.collective.algorithms) == 2


def test_a_pool_on_a_system_of_its_own_is_beside_the_design() -> None:
    found = deployment_of(design(**{"prefill.replicas": 2, "prefill.tp": 8, "prefill.system": "dgx-h200"}))
    assert found.prefill is not None
    assert (found.pool.npus, found.prefill.npus) == (64, 16)
    assert found.prefill.design.compute.accelerator == "h200-sxm-141gb"
    assert sizes(found.prefill.design) == [8, 2]
    assert deployment_of(design(**{"prefill.replicas": 0})).prefill is None


def test_experts_over_several_ranks_make_larger_instances() -> None:
    found = deployment_of(design("deepseek-v3@dgx-h200:64", precision="fp8", tp=2, ep=8))
    assert (found.pool.ranks, found.pool.instances) == (8, 4)  # etp 2 · ep 8 / tp 2 = 8 ranks, of dp 32


@pytest.mark.parametrize(
    ("dims", "npus", "instance", "wanted"),
    [
        ((8, 8), 64, 8, (8, 8)),
        ((8, 8), 12, 4, (4, 3)),
        ((4, 4, 4), 32, 8, (4, 4, 2)),
        ((), 1, 1, ()),
        ((6,), 6, 2, (6,)),
    ],
)
def test_networks_are_filled_from_the_inside(dims: Any, npus: int, instance: int, wanted: Any) -> None:
    assert dimension_sizes_within(dims, npus, instance) == wanted


@pytest.mark.parametrize(
    ("dims", "alike", "npus", "wanted"),
    [
        ((4, 4), (False, True), 4, (2, 2)),
        ((3, 4), (False, True), 4, (2, 2)),
        ((4, 2), (False, True), 8, (4, 2)),
        ((4, 4, 4, 8), (False, True, True, False), 8, (2, 2, 2, 1)),
        ((4, 4, 8), (False, True, False), 32, (4, 4, 2)),
        ((4, 4, 8), (False, True, False), 10, (1, 2, 5)),
        ((2, 2, 2), (False, True, True), 64, (4, 4, 4)),
        ((2, 16), (False, True), 16, (2, 8)),
    ],
)
def test_a_part_of_a_torus_is_as_nearly_square_as_can_be(dims: Any, alike: Any, npus: int, wanted: Any) -> None:
    assert dimension_sizes_within(dims, npus, npus, alike) == wanted


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"dp": 7}, "dp 7 × tp 8 × cp 1 × pp 1 = 56 ranks on 64 NPUs"),
        ({"dp": 7, "prefill.replicas": 2, "prefill.tp": 8}, "56 NPUs decode .* and 16 prefill, 72 in all, of 64 NPUs"),
        (
            {"dp": 7, "prefill.replicas": 1, "prefill.tp": 8, "prefill.system": "dgx-h200"},
            "56 NPUs decode .* of 64 NPUs",
        ),
        ({"prefill.replicas": 8, "prefill.tp": 1}, "prefill pool: needs .* GiB of 79.2 GiB per NPU"),
        ({"tp": 1}, "needs .* GiB of 79.2 GiB per NPU"),
        ({"tp": 7, "dp": 9}, "tp 7 does not divide the 64 heads"),
        ({"dp": 6, "prefill.replicas": 16, "prefill.tp": 1}, "prefill pool"),
        ({"memory_fraction": 0.01}, "no room"),
        ({"isl": 200_000}, r"requests have 200,\d+ tokens, .*; the context of llama3-70b is 131,072 tokens"),
    ],
)
def test_a_deployment_that_cannot_run_says_why(settings: dict[str, Any], said: str) -> None:
    found = evaluate(design(**settings))
    assert isinstance(found, Infeasible)
    assert any(re.search(said, reason) for reason in found.reasons), found.reasons


def test_requests_have_times_rates_and_costs() -> None:
    point = design()
    found = evaluate(point)
    assert isinstance(found, Metrics)
    assert 0 < (found.ttft_s or 0) <= (found.ttft_p95_s or 0)
    assert 0 < (found.tpot_s or 0) <= (found.tpot_p95_s or 0)
    assert found.tokens_per_s_per_npu == pytest.approx(found.throughput_per_s / 64)
    # 8 nodes of 300,000 USD; 64 NICs on one switch: a link is a cable and two transceivers.
    assert found.cost_usd == pytest.approx(8 * 300_000 + 40_000 + 64 * (240 + 2 * 500))
    assert found.energy_j_per_token == pytest.approx((found.energy_j or 0) / found.step_s / found.throughput_per_s)
    assert sum(found.breakdown.values()) == pytest.approx(found.step_s)
    assert found.goodput_per_s is None
    assert "goodput_per_s" in found.unknown


def test_a_closed_loop_obeys_littles_law() -> None:
    found = evaluate(design())
    assert isinstance(found, Metrics)
    lasts = (found.ttft_s or 0) + (100 - 1) * (found.tpot_s or 0)
    assert found.tokens_per_s == pytest.approx(64 * 100 / lasts, rel=0.02)


def test_limits_give_a_goodput_and_unknown_prices_stay_unknown() -> None:
    found = evaluate(design(ttft_slo="10 s", **{"compute.price": None, "compute.power": None}))
    assert isinstance(found, Metrics)
    assert (found.goodput_per_s or 0) > 0
    assert set(found.unknown) == {"cost_usd", "cost_usd_per_token", "power_w", "energy_j", "energy_j_per_token"}


def test_a_prefill_pool_of_another_system_is_bought_with_its_own_nodes() -> None:
    """16 H200 for prefill are two nodes of 350,000 USD on one switch: 16 links of 1,240 USD."""
    pool = {"prefill.replicas": 2, "prefill.tp": 8, "prefill.system": "dgx-h200"}
    alone, beside = evaluate(design()), evaluate(design(**pool))
    assert isinstance(alone, Metrics)
    assert isinstance(beside, Metrics)
    assert (beside.cost_usd or 0) - (alone.cost_usd or 0) == pytest.approx(2 * 350_000 + 40_000 + 16 * 1_240)


def test_a_step_has_no_requests() -> None:
    found = evaluate(load_design("llama3-8b@dgx-h100:8", {"task": "decode", "sequence": 1024}))
    assert isinstance(found, Metrics)
    assert (found.ttft_p95_s, found.goodput_per_s, found.energy_j_per_token) == (None, None, None)


CHANGES: list[dict[str, Any]] = [
    {},
    {"workload.tp": 4, "workload.dp": 16},
    {"serving.engine": "trtllm"},
    {"serving.max_num_batched_tokens": 2048},
    {"serving.load.concurrency": 500},
    {"serving.prefill.replicas": 2, "workload.dp": 6},
    {"serving.prefill.replicas": 4, "serving.prefill.tp": 4, "workload.dp": 6},
    {
        "serving.prefill.replicas": 1,
        "serving.prefill.tp": 4,
        "workload.tp": 4,
        "workload.dp": 15,
        "serving.engine": "sglang",
    },
    {"serving.prefill.replicas": 2, "serving.prefill.system": "dgx-h200"},
    {"network.dims.0.bandwidth": 225e9},
    {"workload.dp": 5},
    {"memory.capacity": 40 * 2**30, "serving.kv_cache_dtype": "fp8"},
]


def test_many_deployments_are_each_what_one_is() -> None:
    base = design(**{"prefill.replicas": 0, "prefill.tp": 8})
    found = evaluate_batch(batch_of_changes(base, CHANGES))
    for place, changes in enumerate(CHANGES):
        alone = evaluate(base.changed(changes))
        assert found.feasible[place] == isinstance(alone, Metrics), changes
        if isinstance(alone, Metrics):
            for name in BETTER:
                value = getattr(alone, name)
                assert found.columns[name][place] == pytest.approx(
                    np.nan if value is None else value, rel=1e-9, nan_ok=True
                )


def test_groups_cover_every_row_once() -> None:
    base = design(**{"prefill.replicas": 0, "prefill.tp": 8})
    seen = np.concatenate([rows for rows, _ in deployments_of(batch_of_changes(base, CHANGES))])
    assert sorted(seen.tolist()) == list(range(len(CHANGES)))


def test_thousands_of_deployments_are_evaluated_at_once() -> None:
    rng, n = np.random.default_rng(0), 3000
    columns = {
        "serving.prefill.replicas": rng.integers(0, 4, n),
        "serving.load.concurrency": rng.integers(1, 500, n),
        "network.dims.0.bandwidth": rng.choice([225e9, 450e9], n),
    }
    columns["workload.dp"] = 8 - columns["serving.prefill.replicas"]
    found = evaluate_batch(Batch(design(**{"prefill.replicas": 0, "prefill.tp": 8}), columns))
    assert found.feasible.all()


def test_a_load_beyond_what_is_served_is_no_steady_state() -> None:
    found = evaluate(design(concurrency=None, rate=1e6))
    assert isinstance(found, Infeasible)
    assert re.search("requests come faster than they are served: 1e.06 a second, of which it serves", found.reasons[0])
    searched = load_design("llama3-70b@dgx-h100:64", {"isl": 1000, "osl": 100, "rate": 1e6})
    assert isinstance(evaluate(searched), Infeasible)
    assert "faster" in str(evaluate(searched))  # the mapping that serves most, not one that lacks memory


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"tp": 3, "dp": 1}, {"workload.tp": 2, "workload.dp": 32}),
        ({"dp": 5, "prefill.replicas": 2, "prefill.tp": 8}, {"workload.dp": 6}),
        ({"prefill.replicas": 3, "prefill.tp": 1, "dp": 7}, None),
        ({}, {}),
    ],
)
def test_a_deployment_is_mended_by_its_mesh(settings: dict[str, Any], wanted: Any) -> None:
    assert mend_mapping(design(**settings)) == wanted


def test_one_step_of_a_deployment_is_a_design_of_its_own() -> None:
    step = step_of(design())
    assert step.serving is None
    assert (step.workload.task, step.workload.sequence, step.workload.global_batch) == ("decode", 1100, 64)
    assert step_of(step) is step


def test_advice_is_of_engine_mesh_and_limits() -> None:
    point = design("llama3-8b@dgx-h100:8", tp=1)
    found = evaluate(point)
    assert isinstance(found, Metrics)
    paths = {path for change in find_improvements(point, found) for path in change.settings}
    assert paths
    assert not paths & {"workload.global_batch", "workload.micro_batch", "workload.sequence"}


def test_prefill_instances_take_what_a_stated_dp_leaves() -> None:
    def prefilling(**settings: Any) -> tuple[int, int, int]:
        point = load_design("llama3-8b@dgx-h100:24", {**LOAD, **settings})
        assert point.serving is not None
        assert point.serving.prefill is not None
        return point.workload.ranks, point.serving.prefill.replicas, point.serving.prefill.npus

    assert prefilling(**{"dp": 4, "tp": 1, "pp": 1, "prefill.tp": 1}) == (4, 20, 20)
    assert prefilling(**{"dp": 4, "tp": 1, "pp": 1, "prefill.tp": 4}) == (4, 5, 20)
    assert prefilling(**{"dp": 4, "tp": 1, "pp": 1, "prefill.tp": 4, "prefill.replicas": 1}) == (4, 1, 4)
    assert prefilling(**{"tp": 1, "pp": 1, "prefill.tp": 1}) == (23, 1, 1)
    assert sum(prefilling(**{"dp": 4, "prefill.tp": 1})[::2]) == 24
    assert prefilling(**{"dp": 5, "tp": 1, "pp": 1, "prefill.tp": 4}) == (5, 1, 4)  # 19 do not divide by 4: refused
