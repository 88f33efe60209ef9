"""Serving: the closed form by hand, its laws, and deployments that others measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosmic import catalog
from cosmic.catalog.engines import load_engine
from cosmic.design.batch import Batch
from cosmic.design.engine import Engine
from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError
from cosmic.evaluation import Infeasible
from cosmic.loading.designs import load_design
from cosmic.serving import (
    Deployment,
    Rates,
    RequestLoad,
    ServingMetrics,
    burst_share,
    continuous_batching,
    decode_seconds,
    deployment,
    prefill_seconds,
    serve,
)
from cosmic.step.serving_work import ServingWork

NOTHING: dict[str, Any] = dict.fromkeys(ServingWork.__slots__, 0.0)
PACE = Rates(
    wide_flop_per_s=1e15,
    narrow_flop_per_s=2e15,
    attention_flop_per_s=5e14,
    weight_bytes_per_s=1e12,
    cache_bytes_per_s=2e12,
    link_bytes_per_s=1e11,
)
LOAD = RequestLoad(concurrency=8, isl=1000, osl=100)


def given(**changes: Any) -> Deployment:
    """Return a deployment that takes 10 ms to decode a step and 40 ms for a prefill."""
    known: dict[str, Any] = {
        "decode": ServingWork(**{**NOTHING, "weight_bytes": 8e9, "cache_bytes": 4e9}),
        "prefill": ServingWork(**{**NOTHING, "narrow_flop": 60e12, "attention_flop": 5e12}),
        "rates": PACE,
        "running": 8,
        "replicas": 1,
        "layers": 10,
        "mla": 0.0,
    }
    return Deployment(**{**known, **changes})


def design(model: str, system: str = "dgx-h200:8", **workload: Any) -> DesignPoint:
    mapping = {"tp": 8, "dp": 1, "pp": 1, "ep": 1, "global_batch": 1, "precision": "fp8", "task": "decode"}
    return load_design(
        f"{model}@{system}", {f"workload.{key}": each for key, each in {**mapping, **workload}.items()}, plain=True
    )


# ------------------------------------------------------------------------------------------------ by hand


def test_a_step_reads_weights_and_cache_once() -> None:
    assert decode_seconds(given(), Engine()) == pytest.approx(8e9 / 1e12 + 4e9 / 2e12)


def test_a_prefill_computes_gemms_and_attention() -> None:
    assert prefill_seconds(given(), Engine(), alone=True) == pytest.approx(60e12 / 2e15 + 5e12 / 5e14)


def test_every_other_request_is_replaced_once_while_one_decodes() -> None:
    assert continuous_batching(given(), LOAD, Engine()).tpot_s == pytest.approx(0.010 + 0.040 * 7 / 100)


def test_prefills_that_come_first_delay_half_of_a_wave() -> None:
    seen = continuous_batching(given(), LOAD, Engine(prefill_first=True))
    assert seen.tpot_s == pytest.approx(0.010 + 0.040 * 3.5 / 100)
    assert seen.ttft_s == pytest.approx(0.040 * 4.5)  # all eight prefills at once: four and a half on average


def test_a_single_request_waits_for_a_step_and_for_its_prefill() -> None:
    alone = continuous_batching(given(running=1), replace(LOAD, concurrency=1, osl=1e9, rounds=10**6), Engine())
    assert alone.ttft_s == pytest.approx(0.010 / 2 + 0.010 + 0.040, rel=1e-3)


def test_a_draft_that_is_checked_yields_more_tokens_a_step() -> None:
    plain, drafted = (continuous_batching(given(running=1), LOAD, Engine(), tokens).tpot_s for tokens in (1.0, 2.0))
    assert drafted == pytest.approx(plain / 2)


def test_all_reduces_are_one_shot_or_two_shot() -> None:
    small = ServingWork(**{**NOTHING, "exchanges": 10, "exchanged_bytes": 1e3, "group": 8})
    large = replace(small, exchanged_bytes=1e9)
    engine = Engine(collective_s=1e-6)
    assert decode_seconds(given(decode=small), engine) == pytest.approx(10e-6 + 7e3 / 1e11)
    assert decode_seconds(given(decode=large), engine) == pytest.approx(20e-6 + 2 * 7 / 8 * 1e9 / 1e11)


def test_a_single_prefill_has_all_experts() -> None:
    work = ServingWork(**{**NOTHING, "expert_flop": 8e12})
    shared = given(prefill=work, replicas=8)
    assert prefill_seconds(shared, Engine(), alone=True) == pytest.approx(
        prefill_seconds(shared, Engine(), alone=False) / 8
    )


# --------------------------------------------------------------------------------------------------- laws


def test_requests_in_flight_are_rate_times_stay() -> None:
    """Little's law."""
    seen = continuous_batching(given(running=5), LOAD, load_engine("vllm"))
    assert seen.tokens_per_s / 100 * (seen.ttft_s + 100 * seen.tpot_s) == pytest.approx(8)


def test_a_request_without_kv_cache_waits_for_others_to_end() -> None:
    fits, queues = (continuous_batching(given(running=running), LOAD, Engine()) for running in (8, 4))
    stay = 100 * queues.tpot_s + queues.prefill_s
    assert queues.ttft_s > fits.ttft_s
    assert queues.ttft_s > stay * (8 - 4) / 4


@pytest.mark.parametrize("engine", catalog.names("engines"))
def test_more_requests_in_flight_are_slower_each_and_faster_together(engine: str) -> None:
    counts = np.array([1.0, 4.0, 16.0, 64.0])
    load = RequestLoad(concurrency=counts, isl=1024, osl=1024, spread=0.2)
    point = design("llama3-70b")
    seen = continuous_batching(deployment(Batch(point, {}), load, load_engine(engine)), load, load_engine(engine))
    assert np.all(np.diff(seen.tpot_s) > 0)
    assert np.all(np.diff(seen.ttft_s) > 0)
    assert np.all(np.diff(seen.tokens_per_s) > 0)


def test_lengths_that_spread_pull_bursts_apart() -> None:
    first = Engine(prefill_first=True)
    shares = [burst_share(replace(LOAD, spread=spread), first, 0.4) for spread in (0.0, 0.1, 0.2, 5.0)]
    assert shares[0] == 1
    assert np.all(np.diff(shares) < 0)
    assert shares[-1] == pytest.approx(1 / LOAD.rounds)


def test_many_deployments_at_once_are_as_one_by_one() -> None:
    point, engine = design("deepseek-v3"), load_engine("sglang")
    counts = np.array([4.0, 64.0])
    load = RequestLoad(concurrency=counts, isl=8192, osl=1024, spread=0.2)
    together = continuous_batching(deployment(Batch(point, {}), load, engine), load, engine)
    for place, count in enumerate(counts):
        alone = serve(point, replace(load, concurrency=count), engine)
        assert isinstance(alone, ServingMetrics)
        assert (alone.ttft_s, alone.tpot_s) == pytest.approx((together.ttft_s[place], together.tpot_s[place]))


# ------------------------------------------------------------------------------------------ measured, refused


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
    load = RequestLoad(concurrency=concurrency, isl=isl, osl=1024, spread=0.2)
    seen = serve(design("llama3-70b", f"dgx-h200:{tp}", tp=tp), load, load_engine(engine))
    assert isinstance(seen, ServingMetrics)
    assert seen.ttft_s == pytest.approx(ttft_s, rel=0.3)
    assert seen.tpot_s == pytest.approx(tpot_s, rel=0.2)


def test_a_cache_that_is_set_aside_holds_as_many_requests_as_measured() -> None:
    """One H200, 70 billion parameters in fp8, 1024 + 8192 tokens: 47 requests ran of 64 and of 128 in flight."""
    load = RequestLoad(concurrency=128, isl=1024, osl=8192, spread=0.2)
    seen = serve(design("llama3-70b", "dgx-h200:1", tp=1), load, load_engine("trtllm"))
    assert isinstance(seen, ServingMetrics)
    assert seen.running == pytest.approx(47, rel=0.15)


def test_a_request_has_a_token_at_least() -> None:
    seen, one = (
        serve(design("llama3-70b"), RequestLoad(concurrency=1, isl=1, osl=1, spread=spread), load_engine("vllm"))
        for spread in (1.0, 0.0)
    )
    assert isinstance(seen, ServingMetrics)
    assert isinstance(one, ServingMetrics)
    assert seen.prefill_s == one.prefill_s


def test_weights_that_do_not_fit_are_a_reason() -> None:
    found = serve(design("deepseek-v3", "dgx-h200:1", tp=1), LOAD, load_engine("vllm"))
    assert isinstance(found, Infeasible)
    assert "weights take" in found.reasons[0]


def test_a_mapping_that_does_not_fit_is_a_reason() -> None:
    found = serve(design("qwen3-32b", "dgx-h200:8", tp=4), LOAD, load_engine("vllm"))
    assert isinstance(found, Infeasible)
    assert "4 ranks on 8 NPUs" in found.reasons[0]


def test_stages_are_refused() -> None:
    with pytest.raises(SpecError, match="not modelled"):
        serve(design("llama3-70b", tp=4, pp=2), LOAD, load_engine("vllm"))
