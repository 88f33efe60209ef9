"""The closed form of deployments: laws, limits, many at once, and what was measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import Batch
from cosmic.design.design_point import DesignPoint
from cosmic.design.serving_engine import Engine
from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import load_design
from cosmic.serving.closed_form import deployment_capacity, estimate_deployment
from cosmic.serving.continuous_batching import load_of_rank
from cosmic.serving.deployment import Deployment, deployment_of, deployments_of
from cosmic.serving.serving_metrics import ServingMetrics
from cosmic.simulate.metrics import Infeasible

WHOLE = {"isl": 4000, "osl": 500}


def design(name: str = "llama3-70b@dgx-h200:8", load: dict[str, Any] | None = None, **changes: Any) -> DesignPoint:
    given: dict[str, Any] = {"task": "decode", "precision": "fp8", "tp": 8, "global_batch": 64} | changes
    given |= {f"serving.load.{key}": value for key, value in (WHOLE | (load or {"concurrency": 64})).items()}
    return load_design(name, given)


def deployed(name: str = "llama3-70b@dgx-h200:8", load: dict[str, Any] | None = None, **changes: Any) -> Deployment:
    return deployment_of(design(name, load, **changes))


def found(name: str = "llama3-70b@dgx-h200:8", load: dict[str, Any] | None = None, **changes: Any) -> ServingMetrics:
    return estimate_deployment(deployed(name, load, **changes))


# ---- laws


def test_one_client_with_one_request_waits_for_nobody() -> None:
    deployment = deployed(load={"concurrency": 1})
    price = deployment.pool.price
    alone = estimate_deployment(deployment)
    front = deployment.pool.engine.front_s(1, 8)
    assert alone.ttft.mean_s == pytest.approx(price.prefill_s(4000) + front, rel=1e-3)
    assert alone.tpot.mean_s == pytest.approx(price.decode_s(1, 4250), rel=1e-3)
    assert alone.tpot.p99_s == pytest.approx(alone.tpot.mean_s, rel=1e-3)


def test_two_replicas_with_twice_the_clients_give_twice_the_tokens() -> None:
    one, two = found(load={"concurrency": 64}), found("llama3-70b@dgx-h200:16", {"concurrency": 128}, dp=2)
    assert two.output_tokens_per_s == pytest.approx(2 * one.output_tokens_per_s)
    assert two.tpot.mean_s == pytest.approx(one.tpot.mean_s)
    assert two.ttft.p95_s == pytest.approx(one.ttft.p95_s)
    assert two.tokens_per_s_per_npu == pytest.approx(one.tokens_per_s_per_npu)


def test_requests_in_flight_are_rate_times_stay() -> None:
    """Little's law, in both kinds of loops."""
    closed = found(load={"concurrency": 64})
    assert closed.requests_per_s * closed.e2e.mean_s == pytest.approx(64)
    opened = found(load={"rate": 3.0})
    assert opened.running + opened.waiting == pytest.approx(3.0 * opened.e2e.mean_s)


def test_more_requests_in_flight_are_slower_each_and_faster_together() -> None:
    times = [found(load={"concurrency": count}) for count in (1, 8, 64, 256)]
    for values in (
        [each.ttft.mean_s for each in times],
        [each.tpot.mean_s for each in times],
        [each.output_tokens_per_s for each in times],
        [each.kv_use for each in times],
    ):
        assert np.all(np.diff(np.concatenate(values)) > 0)


def test_an_open_loop_is_a_closed_loop_of_as_many_requests() -> None:
    closed = found(load={"concurrency": 32})
    opened = found(load={"rate": float(closed.requests_per_s[0])})
    assert opened.tpot.mean_s == pytest.approx(closed.tpot.mean_s, rel=0.05)
    assert opened.running == pytest.approx(32, rel=0.05)


def test_a_rate_above_the_capacity_is_refused_with_the_capacity() -> None:
    most = float(np.ravel(deployment_capacity(deployed(load={"rate": 1.0})))[0])
    assert np.isfinite(found(load={"rate": 0.97 * most}).ttft.mean_s)
    assert np.isnan(found(load={"rate": 1.03 * most}).ttft.mean_s)
    outcome = evaluate(design(load={"rate": 2 * most}))
    assert isinstance(outcome, Infeasible)
    (reason,) = outcome.reasons
    assert reason.startswith("requests come faster than they are served")
    assert f"{most:.4g}" in reason


def test_bursts_wait_longer_than_even_arrivals() -> None:
    few: dict[str, Any] = {"serving.max_num_seqs": 16}
    most = float(np.ravel(deployment_capacity(deployed(load={"rate": 1.0}, **few)))[0])
    waits = [found(load={"rate": 0.9 * most, "arrival_cv": cv}, **few).waiting for cv in (0, 1, 3)]
    assert waits[0] < waits[1] < waits[2]


# ---- options


def test_percentiles_are_in_order_and_spread_with_lengths() -> None:
    narrow, wide = found(), found(load={"concurrency": 64, "isl_cv": 0.5, "osl_cv": 0.5})
    for each in (narrow, wide):
        for times in (each.ttft, each.tpot, each.e2e):
            assert times.p50_s <= times.p95_s <= times.p99_s
    assert wide.ttft.p95_s > narrow.ttft.p95_s
    assert wide.e2e.p99_s > narrow.e2e.p99_s


def test_a_prefix_that_is_cached_is_not_prefilled() -> None:
    plain, hit = (found(load={"concurrency": 64, "prefix_hit": share}) for share in (0.0, 0.75))
    assert hit.ttft.mean_s < 0.6 * plain.ttft.mean_s
    assert hit.tpot.mean_s < plain.tpot.mean_s


def test_drafts_that_are_accepted_speed_up_few_requests() -> None:
    drafting: dict[str, Any] = {"serving.draft_tokens": 3, "serving.acceptance": 0.8}
    few, many = ({"concurrency": count} for count in (1, 512))
    gain = [found(load=load).tpot.mean_s / found(load=load, **drafting).tpot.mean_s for load in (few, many)]
    assert gain[0] > 1.8
    assert gain[1] < gain[0]
    assert load_of_rank(deployed(**drafting)).tokens_per_step == pytest.approx(1 + 0.8 + 0.8**2 + 0.8**3)


def test_classes_have_limits_of_their_own() -> None:
    kinds = [
        {"name": "chat", "isl": 500, "osl": 200, "share": 3, "ttft_slo": "10 s"},
        {"name": "code", "isl": 8000, "osl": 1000, "ttft_slo": "1 us"},
    ]
    given = {"task": "decode", "precision": "fp8", "tp": 8, "global_batch": 64}
    load = {"serving.load.classes": kinds, "serving.load.concurrency": 16}
    mixed = estimate_deployment(deployment_of(load_design("llama3-70b@dgx-h200:8", given | load)))
    assert mixed.within_slo == pytest.approx(0.75)
    assert mixed.goodput_per_s == pytest.approx(0.75 * mixed.requests_per_s)
    assert found().within_slo is None


def test_a_breakdown_sums_to_what_it_is_of() -> None:
    seen = found(load={"concurrency": 64, "rounds": 10})
    assert sum(seen.ttft_breakdown.values()) == pytest.approx(seen.ttft.mean_s)
    step = deployed().pool.price.decode_s(64, 4250)
    assert sum(seen.decode_breakdown.values()) == pytest.approx(step)


def test_a_cache_without_room_runs_nothing() -> None:
    assert np.isnan(found("llama3-70b@dgx-h200:1", tp=1, precision="bf16").ttft.mean_s)


def test_stages_and_spread_experts_are_served() -> None:
    meshes: tuple[tuple[str, dict[str, Any]], ...] = (
        ("llama3-70b@dgx-h200:8", {"tp": 4, "pp": 2}),
        ("deepseek-v3@dgx-h200:8", {"tp": 1, "dp": 8, "ep": 8}),
        ("qwen3-next-80b-a3b@dgx-h200:8", {"tp": 2, "dp": 4}),
        ("gpt-oss-20b@dgx-h200:8", {"tp": 1, "dp": 8}),
        ("glm-5@dgx-b200:8", {"tp": 8}),
    )
    for name, mesh in meshes:
        seen = found(name, **mesh)
        assert np.all(np.isfinite(seen.ttft.mean_s))
        assert np.all(seen.tpot.mean_s > 0)


def test_many_deployments_at_once_are_as_one_by_one() -> None:
    counts = np.array([4, 64, 300])
    batch = Batch(design(), {"serving.load.concurrency": counts, "workload.tp": np.array([8, 8, 8])})
    ((rows, together),) = list(deployments_of(batch))
    seen = estimate_deployment(together)
    for row, count in zip(rows, counts, strict=True):
        alone = found(load={"concurrency": int(count)})
        assert seen.ttft.p95_s[row] == pytest.approx(alone.ttft.p95_s[0])
        assert seen.tpot.mean_s[row] == pytest.approx(alone.tpot.mean_s[0])


# ---- measured


@pytest.mark.parametrize(
    ("engine", "tp", "isl", "concurrency", "ttft_s", "tpot_s"),
    [
        ("vllm", 8, 1024, 64, 0.1949, 0.01273),
        ("vllm", 2, 1024, 32, 0.2716, 0.02035),
        ("vllm", 4, 8192, 32, 1.1171, 0.02862),
        ("trtllm", 4, 8192, 16, 0.7092, 0.01483),
    ],
)
def test_llama_70b_on_h200_is_as_measured(  # InferenceMAX, as aiconfigurator publishes it
    engine: str, tp: int, isl: int, concurrency: int, ttft_s: float, tpot_s: float
) -> None:
    lengths = {"isl": 0.9 * isl, "osl": 0.9 * 1024, "isl_cv": 0.064, "osl_cv": 0.064}
    load = lengths | {"concurrency": concurrency, "rounds": 10}
    seen = found(f"llama3-70b@dgx-h200:{tp}", load, tp=tp, **{"serving.engine": engine})
    assert seen.ttft.mean_s == pytest.approx(ttft_s, rel=0.3)
    assert seen.tpot.mean_s == pytest.approx(tpot_s, rel=0.2)


def test_an_engine_s_front_end_grows_with_its_load() -> None:
    engine = Engine(frontend_s=0.02, frontend_growth=0.5, device_handing_s=0.001, mla_frontend_s=0.3)
    assert engine.front_s(64, 8) == pytest.approx(0.048)
    assert engine.front_s(64, 8, mla=True) == pytest.approx(0.348)
