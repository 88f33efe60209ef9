"""Deployments simulated request by request, with the price of their steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design.design_point import DesignPoint
from cosmic.design.serving_engine import load_engine
from cosmic.design.serving_layer import Load, PrefillPool, RequestClass, Serving
from cosmic.search.mapping.design_completion import load_design
from cosmic.serving.closed_form import estimate_deployment
from cosmic.serving.deployment import deployment_of
from cosmic.serving.engine_instances import StepPriceTable
from cosmic.serving.request_simulation import SimulatedLoad, simulate_load
from cosmic.serving.serving_requests import draw_requests, read_request_trace
from cosmic.serving.serving_timeline import write_serving_timeline
from cosmic.serving.step_price import StepPrice
from cosmic.simulate.metrics import Infeasible

ENGINES = ("vllm", "sglang", "trtllm")


@cache
def design(model: str = "llama-3-8b", npus: int | None = None, system: str = "dgx-h200", **mapping: int) -> DesignPoint:
    degrees = {"tp": 1, "dp": 1, "pp": 1, "ep": 1} | mapping
    usual = {"global_batch": 1, "precision": "fp8", "task": "decode"}
    fields = {f"workload.{name}": each for name, each in (degrees | usual).items()}
    npus = npus or degrees["tp"] * degrees["dp"] * degrees["pp"]
    return load_design(f"{model}@{system}:{npus}", fields, plain=True)


def served(load: Load, point: DesignPoint | None = None, count: int | None = None, **serving: Any) -> SimulatedLoad:
    options = {name: serving.pop(name) for name in ("seed", "router", "noting", "requests") if name in serving}
    point = replace(point or design(), serving=Serving(load=load, **serving))
    found = simulate_load(deployment_of(point), options.pop("requests", None), count=count, **options)
    assert isinstance(found, SimulatedLoad)
    return found


# ---- the price of steps


@pytest.mark.parametrize(
    ("engine", "model", "mapping", "drafts"),
    [
        ("vllm", "llama-3-8b", {"tp": 1, "dp": 8}, 0),
        ("sglang", "deepseek-v3", {"tp": 1, "dp": 8, "ep": 8}, 2),
        ("trtllm", "llama-3-70b", {"tp": 2, "pp": 4}, 0),
    ],
)
def test_tables_have_the_price_of_steps(engine: str, model: str, mapping: dict[str, int], drafts: int) -> None:
    price = StepPrice.for_design(design(model, **mapping), load_engine(engine), drafts)
    table = StepPriceTable(price, 600, 5000, 30_000)
    rng = np.random.default_rng(0)

    def some(most: float) -> Any:
        return np.rint(most ** rng.random(150)).astype(int)

    requests, context, tokens, past, prompts = some(600), some(30_000), some(700), some(20_000), some(7)
    mixing, after = requests * (some(4) > 1), past * (some(4) > 1)
    cases: list[tuple[Callable[..., float], tuple[Any, ...], Any]] = [
        (lambda r, c: table.decode(r, r * c)[0], (requests, context), price.decode_s(requests, context)),
        (lambda t: table.mixed(t, [(0, t)], 0, 0), (tokens,), price.prefill_s(tokens)),
        (
            lambda t, k, p, r, c: table.mixed(t * k, [(p, t)] * k, r, r * c),
            (tokens, prompts, after, mixing, context),
            price.mixed_s(tokens, mixing, context, after, prompts),
        ),
    ]
    for looked_up, arguments, true in cases:
        found = [looked_up(*map(int, each)) for each in zip(*arguments, strict=True)]
        np.testing.assert_allclose(found, true, rtol=0.01)


def test_a_prompt_longer_than_a_step_is_priced_too() -> None:
    price = StepPrice.for_design(design(), load_engine("trtllm"))
    table = StepPriceTable(price, 8, 1000, 4000)
    assert table.mixed(3000, [(0, 3000)], 0, 0) == pytest.approx(float(price.prefill_s(3000)[0]))


# ---- clients


@pytest.mark.parametrize("engine", ENGINES)
def test_one_client_waits_for_nobody(engine: str) -> None:
    found = served(Load(isl=1500, osl=100, concurrency=1, rounds=3), engine=engine)
    price = deployment_of(replace(design(), serving=Serving(engine=engine, load=found.deployment.load))).pool.price
    assert found.ttft_s - found.front_s == pytest.approx(float(price.prefill_s(1500)[0]), rel=1e-6)
    steps = price.decode_s(1, 1501 + np.arange(99))
    assert found.tpot_s == pytest.approx(float(np.mean(steps)), rel=1e-3)
    assert found.metrics.ttft_breakdown["queueing"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_two_replicas_with_twice_the_clients_give_twice_the_tokens(engine: str) -> None:
    load = Load(isl=800, osl=120, osl_cv=0.4, concurrency=16)
    one = served(load, engine=engine, count=800)
    two = served(replace(load, concurrency=32), design(dp=2), engine=engine, count=1600)
    assert two.metrics.output_tokens_per_s == pytest.approx(2 * one.metrics.output_tokens_per_s, rel=0.02)
    assert two.metrics.tpot.mean_s == pytest.approx(one.metrics.tpot.mean_s, rel=0.02)
    exact = replace(load, osl_cv=0.0)
    even = [replace(draw_requests(replace(exact, concurrency=16 * many), 800 * many), haste=None) for many in (1, 2)]
    one, two = (
        served(exact, design(dp=many), requests=each, engine=engine) for many, each in zip((1, 2), even, strict=True)
    )
    assert two.metrics.output_tokens_per_s == pytest.approx(2 * one.metrics.output_tokens_per_s, rel=0.005)
    assert two.metrics.tpot.mean_s == pytest.approx(one.metrics.tpot.mean_s, rel=0.005)


@pytest.mark.parametrize("engine", ENGINES)
def test_means_obey_littles_law(engine: str) -> None:
    found = served(Load(isl=600, osl=200, isl_cv=0.3, osl_cv=0.6, rate=15), engine=engine, count=3000).metrics
    in_engine = found.e2e.mean_s - found.ttft_breakdown["front_end"]
    assert found.running + found.waiting == pytest.approx(found.requests_per_s * in_engine, rel=0.05)
    assert found.requests_per_s == pytest.approx(15, rel=0.05)
    assert sum(found.ttft_breakdown.values()) == pytest.approx(found.ttft.mean_s)
    assert found.tokens_per_s_per_npu == found.output_tokens_per_s
    assert 0 < found.prefill_share < 1
    assert found.decode_breakdown["attention"] > 0


def test_more_load_waits_longer() -> None:
    calm, busy = (served(Load(isl=2000, osl=100, rate=rate), count=800).metrics for rate in (2, 20))
    assert busy.ttft.p95_s > calm.ttft.p95_s
    assert busy.tpot.mean_s > calm.tpot.mean_s
    assert busy.utilisation["all"] > calm.utilisation["all"]


def test_a_full_cache_preempts_or_makes_wait() -> None:
    load = Load(isl=4000, osl=2000, concurrency=200, rounds=1)
    point = design().changed({"memory.capacity": 26e9})
    seen = {engine: served(load, point, engine=engine) for engine in ENGINES}
    assert seen["vllm"].preemptions.sum() > 0
    assert seen["trtllm"].preemptions.sum() == 0
    for found in seen.values():
        assert found.most_held[0] <= found.kv_tokens[0]
        assert found.metrics.kv_use > 0.5
        assert found.metrics.waiting > 1


def test_goodput_is_of_requests_within_the_limits_of_their_class() -> None:
    chat = RequestClass(name="chat", isl=500, osl=50, ttft_slo_s=1e-6)
    batch = RequestClass(name="batch", share=3, isl=500, osl=50, ttft_slo_s=100.0, tpot_slo_s=10.0)
    found = served(Load(classes=(chat, batch), rate=20), count=1000)
    within = found.metrics.within_slo
    assert within == pytest.approx((found.kind == 1)[found.measured].mean())
    assert found.metrics.goodput_per_s == pytest.approx(0.75 * found.metrics.requests_per_s, rel=0.1)
    assert served(Load(isl=500, osl=50, rate=20), count=50).metrics.goodput_per_s is None


def test_drafts_make_fewer_steps() -> None:
    load = Load(isl=500, osl=200, concurrency=1, rounds=1)
    plain, drafted = served(load), served(load, draft_tokens=2, acceptance=0.5)
    assert plain.steps == 1 + 199
    assert drafted.steps == 1 + np.ceil(199 / 1.75)


def test_a_prefix_in_the_cache_is_not_computed() -> None:
    plain, hit = (served(Load(isl=6000, osl=10, concurrency=1, rounds=2, prefix_hit=share)) for share in (0, 0.9))
    assert hit.ttft_s.max() - hit.front_s.max() < 0.3 * (plain.ttft_s.max() - plain.front_s.max())


# ---- two pools


def test_two_pools_hand_requests_over() -> None:
    load = Load(isl=2000, osl=100, concurrency=12)
    point = design(dp=2, npus=4)
    found = served(load, point, prefill=PrefillPool(replicas=2), count=400, noting=True)
    metrics = found.metrics
    assert set(metrics.utilisation) == {"prefill", "decode"}
    assert metrics.ttft_breakdown["transfer"] > 0
    assert sum(metrics.ttft_breakdown.values()) == pytest.approx(metrics.ttft.mean_s)
    assert (found.prefilled_s < found.first_token_s).all()
    assert metrics.tokens_per_s_per_npu == pytest.approx(metrics.output_tokens_per_s / 4)
    together = served(load, design(dp=4), count=400).metrics
    assert metrics.tpot.p99_s < together.tpot.p99_s  # no prefill delays a token
    assert sum(span.tokens for spans in found.spans["decode"] for span in spans) == 0


# ---- traces, timelines


def test_a_router_that_knows_prefixes_computes_less(tmp_path: Path) -> None:
    rows = [
        {
            "timestamp": 40 * place,
            "input_length": 4096,
            "output_length": 20,
            "hash_ids": [*range(9 * who, 9 * who + 7), -place],
        }
        for place, who in enumerate(np.random.default_rng(0).integers(0, 12, 300).tolist())
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    trace = read_request_trace(path)
    load = Load(isl=1, osl=1, rate=1)
    aware, blind = (served(load, design(dp=4), requests=trace, router=name) for name in ("prefix_aware", "round_robin"))
    assert aware.metrics.ttft.mean_s < blind.metrics.ttft.mean_s
    assert aware.measured.all()
    with pytest.raises(SpecError, match="no such router"):
        served(load, requests=trace, router="random")


def test_a_timeline_has_steps_and_counters(tmp_path: Path) -> None:
    found = served(Load(isl=500, osl=30, concurrency=6, rounds=2), design(dp=2), noting=True)
    path = tmp_path / "serving.json"
    write_serving_timeline(found, path)
    events = json.loads(path.read_text())["traceEvents"]
    spans = [each for each in events if each["ph"] == "X"]
    assert {each["tid"] for each in spans} == {1, 2}
    assert sum(each["args"]["prompt_tokens"] for each in spans) == 12 * 500
    assert sum(each["args"]["decoding"] * each["args"]["steps"] for each in spans) == 12 * 29
    assert max(each["ts"] + each["dur"] for each in spans) == pytest.approx(found.end_s * 1e6)
    assert {
        each["args"]["value"] for each in events if each["ph"] == "C" and each["name"] == "running, instance 0"
    } >= {0, 3}


# ---- refusals, bits


def test_a_request_that_no_cache_holds_cannot_run() -> None:
    load = Load(isl=5_000_000, osl=10, concurrency=1)
    point = design()
    point = replace(point.changed({"model.context": None}), serving=Serving(load=load))
    found = simulate_load(deployment_of(point), count=1)
    assert isinstance(found, Infeasible)
    assert "the longest request has 5,000,010" in found.reasons[0]


def test_the_same_seed_gives_the_same_bits() -> None:
    load = Load(isl=700, osl=60, isl_cv=0.5, osl_cv=0.5, rate=30, arrival_cv=2)
    first, same, other = (served(load, design(dp=2), count=400, seed=seed) for seed in (1, 1, 2))
    assert first.completion_s.tobytes() == same.completion_s.tobytes()
    assert first.metrics == same.metrics
    assert first.completion_s.tobytes() != other.completion_s.tobytes()
    assert draw_requests(load, 400, seed=1).count == 400


def test_a_mapping_that_breaks_a_rule_cannot_run() -> None:
    for point in (design(npus=2), design("llama-3-405b", system="dgx-h100")):
        found = simulate_load(deployment_of(replace(point, serving=Serving(load=Load(isl=10, osl=10, concurrency=1)))))
        assert isinstance(found, Infeasible)
        assert all(found.reasons)


@pytest.mark.parametrize("load", [Load(isl=50, osl=1, concurrency=3), Load(isl=50, osl=9, rate=1e9)])
@pytest.mark.parametrize("count", [1, 2, 25])
def test_few_requests_are_measured_too(load: Load, count: int) -> None:
    found = served(load, count=count)
    assert found.measured.any()
    assert found.metrics.requests_per_s > 0
    assert 0 < found.metrics.utilisation["all"] <= 1


def test_what_runs_and_waits_is_known_over_time() -> None:
    found = served(Load(isl=3000, osl=400, osl_cv=0.5, concurrency=40, rounds=4), max_num_seqs=16)
    seen = found.over_time()
    assert seen["running"].max() == 16
    assert np.median(seen["waiting"][:100]) == 24
    assert (seen["waiting"] >= 0).all()
    assert seen["kv_use"].mean() == pytest.approx(found.metrics.kv_use, rel=0.05)
    assert seen["running"].mean() == pytest.approx(found.metrics.running, rel=0.05)
    assert found.of_class("all")[0] == found.metrics.ttft
    with pytest.raises(SpecError, match="no such class of requests"):
        found.of_class("chat")


def test_steps_without_number_are_refused() -> None:
    with pytest.raises(SpecError, match="max_num_batched_tokens = 1: cuts prompts into 20,000,000 chunks"):
        served(Load(isl=10_000, osl=1, concurrency=1), count=2000, max_num_batched_tokens=1)


# ---- the closed form

FEW = [
    (engine, model, mapping, lengths)
    for engine in ENGINES
    for model, mapping, lengths in (
        ("llama-3-8b", {}, (8000, 100)),
        ("llama-3-8b", {"dp": 2}, (500, 600)),
        ("llama-3-70b", {"tp": 4}, (1000, 200)),
        ("llama-3-70b", {"tp": 2, "pp": 2}, (1000, 200)),
        ("deepseek-v3", {"tp": 8}, (4000, 500)),
        ("gpt-oss-120b", {"tp": 2}, (500, 1000)),
    )
]


@pytest.mark.parametrize(("engine", "model", "mapping", "lengths"), FEW)
def test_the_closed_form_agrees_at_low_load(
    engine: str, model: str, mapping: dict[str, int], lengths: tuple[int, int]
) -> None:
    usual: dict[str, Any] = {"isl": lengths[0], "osl": lengths[1]}
    alone = served(Load(**usual, concurrency=1), design(model, **mapping), engine=engine, count=30)
    rate = 0.05 / alone.metrics.e2e.mean_s
    rare = served(Load(**usual, rate=rate), design(model, **mapping), engine=engine, count=600)
    for found in (alone, rare):
        closed = estimate_deployment(found.deployment)
        for name in ("ttft", "tpot", "e2e"):
            true = getattr(found.metrics, name).mean_s
            assert float(np.ravel(getattr(closed, name).mean_s)[0]) == pytest.approx(true, rel=0.03), name
