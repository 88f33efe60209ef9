"""Deployments of two pools: what their closed form says of designs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import batch_of
from cosmic.design.serving_layer import Load, PrefillPool, RequestClass, Serving
from cosmic.search.mapping.design_completion import load_design
from cosmic.serving.closed_form import estimate_deployment
from cosmic.serving.deployment import deployment_of, deployments_of
from cosmic.serving.serving_metrics import ServingMetrics


def design(load: Load, *, tp: int = 4, dp: int = 1, prefill: PrefillPool | None = None, **limits: Any) -> Any:
    pool = prefill or PrefillPool(replicas=1, tp=4)
    size = tp * dp + pool.npus
    point = load_design(
        f"llama3-70b@dgx-h200:{size}",
        {"task": "decode", "precision": "fp8", "tp": 1, "dp": size, "global_batch": size, "sequence": 1000},
    )
    mapped = replace(point.workload, tp=tp, dp=dp, global_batch=dp)
    return replace(point, workload=mapped, serving=Serving(load=load, prefill=pool, **limits))


def estimated(load: Load, **others: Any) -> ServingMetrics:
    return estimate_deployment(deployment_of(design(load, **others)))


def number(value: Any) -> float:
    return float(np.ravel(value)[0])


def test_one_client_waits_for_nobody() -> None:
    found = estimated(Load(isl=2000, osl=200, concurrency=1))
    parts = {name: number(each) for name, each in found.ttft_breakdown.items()}
    assert parts["queueing"] == pytest.approx(0.0, abs=1e-6)
    assert number(found.ttft.mean_s) == pytest.approx(sum(parts.values()), rel=1e-3)
    assert number(found.requests_per_s) == pytest.approx(
        1 / (number(found.ttft.mean_s) + 200 * number(found.tpot.mean_s)), rel=1e-2
    )


def test_twice_the_instances_and_clients_give_twice_the_tokens() -> None:
    one = estimated(Load(isl=2000, osl=500, concurrency=16))
    two = estimated(Load(isl=2000, osl=500, concurrency=32), dp=2, prefill=PrefillPool(replicas=2, tp=4))
    assert number(two.output_tokens_per_s) == pytest.approx(2 * number(one.output_tokens_per_s), rel=0.05)
    assert number(two.tpot.mean_s) == pytest.approx(number(one.tpot.mean_s), rel=0.05)
    assert number(two.tokens_per_s_per_npu) == pytest.approx(number(one.tokens_per_s_per_npu), rel=0.05)


def test_a_limit_of_running_requests_makes_the_others_wait() -> None:
    load = Load(isl=500, osl=1000, concurrency=64)
    free, limited = estimated(load), estimated(load, max_num_seqs=16)
    assert number(limited.ttft.mean_s) > 5 * number(free.ttft.mean_s)
    assert number(limited.tpot.mean_s) < number(free.tpot.mean_s)
    assert number(limited.waiting) > 30


def test_a_rate_is_served_or_not() -> None:
    slow = estimated(Load(isl=2000, osl=500, rate=1.0))
    assert number(slow.requests_per_s) == 1.0
    assert number(slow.ttft.p99_s) >= number(slow.ttft.p50_s) > 0
    assert 0 < number(slow.utilisation["prefill"]) < 1
    assert np.isnan(number(estimated(Load(isl=2000, osl=500, rate=1000.0)).ttft.mean_s))


def test_limits_of_latency_are_counted() -> None:
    load = Load(isl=2000, osl=500, concurrency=16, ttft_slo_s=10.0, tpot_slo_s=1.0)
    found = estimated(load)
    assert number(found.within_slo) == 1.0
    assert number(found.goodput_per_s) == pytest.approx(number(found.requests_per_s))
    assert number(estimated(replace(load, tpot_slo_s=1e-6)).within_slo) == 0.0
    assert estimated(replace(load, ttft_slo_s=None, tpot_slo_s=None)).within_slo is None


def test_a_single_token_has_no_time_per_token_to_limit() -> None:
    """TPOT is the time of tokens after the first: a limit on it leaves requests of one token alone."""
    load = Load(isl=2000, osl=1, concurrency=4, tpot_slo_s=1e-6)
    assert number(estimated(load).within_slo) == 1.0
    assert number(estimated(replace(load, osl=2)).within_slo) == 0.0


def test_a_load_of_one_class_is_the_load_without_classes() -> None:
    lengths: dict[str, Any] = {"isl": 2000, "osl": 500, "isl_cv": 0.3, "osl_cv": 0.7}
    plain = estimated(Load(**lengths, concurrency=16))
    one = estimated(Load(classes=(RequestClass(**lengths),), concurrency=16))
    assert number(one.ttft.mean_s) == number(plain.ttft.mean_s)
    assert number(one.e2e.p99_s) == number(plain.e2e.p99_s)


def test_many_designs_are_estimated_at_once() -> None:
    base = design(Load(isl=2000, osl=500, concurrency=4))
    batch = batch_of(base)
    many = replace(batch, columns={**batch.columns, "serving.load.concurrency": np.array([4, 16, 64])})
    ((rows, deployment),) = deployments_of(many)
    together = estimate_deployment(deployment)
    assert rows.tolist() == [0, 1, 2]
    alone = [number(estimated(Load(isl=2000, osl=500, concurrency=each)).ttft.mean_s) for each in (4, 16, 64)]
    assert together.ttft.mean_s == pytest.approx(alone, rel=1e-6)
