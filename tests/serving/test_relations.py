"""Relations that hold of any deployment, whatever its numbers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design.serving_engine import Engine
from cosmic.design.serving_layer import Load, RequestClass
from cosmic.search.advice.service_question import Asked, read_service
from cosmic.search.mapping.design_completion import load_design
from cosmic.serving.closed_form import deployment_capacity, estimate_deployment
from cosmic.serving.deployment import deployment_of
from cosmic.serving.disaggregated_serving import transfer_s
from cosmic.serving.request_simulation import simulate_load
from cosmic.serving.served_evaluation import estimate_design
from cosmic.serving.serving_metrics import ServingMetrics, read_slo
from cosmic.serving.step_price import StepPrice
from cosmic.simulate.metrics import Infeasible


def served(source: str, **fields: object) -> ServingMetrics:
    """Return what a deployment achieves, which must be able to run."""
    found = estimate_design(load_design(source, {name.replace("__", "."): value for name, value in fields.items()}))
    assert not isinstance(found, Infeasible), found.reasons
    return found


@pytest.mark.parametrize(
    ("system", "tp"), [("gh200", 1), ("tpu-v5p", 4), ("tpu-v6e", 1), ("mi300x", 4), ("gaudi3", 2), ("dgx-h100", 8)]
)
def test_replicas_are_alike_on_any_network(system: str, tp: int) -> None:
    load = {"isl": 500, "osl": 100, "precision": "bf16", "tp": tp}
    one = served(f"llama3-8b@{system}:{tp}", concurrency=4, **load)
    two = served(f"llama3-8b@{system}:{2 * tp}", concurrency=8, dp=2, **load)
    np.testing.assert_allclose(two.tpot.mean_s, one.tpot.mean_s, rtol=1e-3)
    np.testing.assert_allclose(two.output_tokens_per_s, 2 * one.output_tokens_per_s, rtol=1e-3)


@pytest.mark.parametrize("system", ["tpu-v5p", "tpu-v6e", "trn1", "gb200-nvl72"])
@pytest.mark.parametrize(("tp", "pp", "ep"), [(4, 2, 1), (2, 4, 1), (4, 1, 1), (2, 1, 8)])
@pytest.mark.long
def test_an_instance_is_cut_alike_out_of_machines_of_any_size(system: str, tp: int, pp: int, ep: int) -> None:
    model = "mixtral-8x7b" if ep > 1 else "llama3-8b"
    ranks = max(1, ep // tp)
    load = {"isl": 500, "osl": 100, "precision": "bf16", "tp": tp, "pp": pp, "ep": ep} | ({"etp": 1} if ep > 1 else {})
    one, *more = (
        served(f"{model}@{system}:{tp * pp * ranks * times}", concurrency=8 * times, dp=ranks * times, **load)
        for times in (1, 2, 4, 8)
    )
    for times, many in zip((2, 4, 8), more, strict=True):
        np.testing.assert_allclose(many.tpot.mean_s, one.tpot.mean_s, rtol=1e-3)
        np.testing.assert_allclose(many.output_tokens_per_s, times * one.output_tokens_per_s, rtol=1e-3)


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_a_part_of_a_fully_connected_host_has_its_own_links_alone(tp: int) -> None:
    sizes = {"precision": "bf16", "tp": tp, "dp": 8 // tp, "pp": 1}
    step = {"task": "prefill", "global_batch": 8 // tp, "micro_batch": 1, "sequence": 4000, "cp": 1}
    whole = StepPrice.for_design(load_design("llama3-8b@mi300x:8", {**sizes, **step}), Engine())
    design = load_design("llama3-8b@mi300x:8", {**sizes, "isl": 4000, "osl": 1, "concurrency": 8})
    alone = deployment_of(design).pool.price.steps("prefill", 1.0, 4000.0)
    np.testing.assert_allclose(alone["step_s"], whole.steps("prefill", 1.0, 4000.0)["step_s"], rtol=0.01)
    part = load_design(f"llama3-8b@mi300x:{tp}").network.dims[0].bandwidth_bytes_per_s
    assert part == pytest.approx(448e9 * (tp - 1) / 7)


@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_a_simulated_closed_loop_has_as_many_requests_in_flight_as_clients(spread: float) -> None:
    load = {"isl": 1000, "osl": 200, "isl_cv": spread, "osl_cv": spread, "concurrency": 16, "precision": "bf16"}
    found = simulate_load(deployment_of(load_design("llama3-8b@dgx-h100:1", load)), count=130)
    assert not isinstance(found, Infeasible)
    assert found.metrics.requests_per_s * found.metrics.e2e.mean_s == pytest.approx(16, rel=1e-6)
    assert found.metrics.output_tokens_per_s <= 16 * found.metrics.tokens_per_s_per_user * 1.02


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize(("isl", "osl"), [(32000, 50), (1000, 200), (200, 2)])
@pytest.mark.long
def test_a_rate_is_served_up_to_the_capacity_that_is_stated(engine: str, isl: int, osl: int) -> None:
    fields = {"isl": isl, "osl": osl, "precision": "fp8", "serving.engine": engine, "max_num_batched_tokens": 2048}
    refused = estimate_design(load_design("llama3-8b@dgx-h100:1", {**fields, "rate": 1e6}))
    assert isinstance(refused, Infeasible)
    most = float(refused.reasons[0].partition("more than the ")[2].split()[0].replace(",", ""))
    assert not isinstance(
        estimate_design(load_design("llama3-8b@dgx-h100:1", {**fields, "rate": 0.98 * most})), Infeasible
    )
    assert isinstance(estimate_design(load_design("llama3-8b@dgx-h100:1", {**fields, "rate": 1.02 * most})), Infeasible)


def test_an_encoder_is_refused_before_machines_are_tried_for_it() -> None:
    with pytest.raises(SpecError, match="generates no tokens"):
        read_service("bert-large@dgx-h100", {}, Asked())


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("osl", [1, 2, 10])
def test_a_single_client_waits_for_nobody_however_short_its_answers(engine: str, osl: int) -> None:
    found = served("llama3-8b@dgx-h100:1", isl=4000, osl=osl, concurrency=1, serving__engine=engine, precision="fp8")
    parts = found.ttft_breakdown
    assert found.ttft.mean_s == pytest.approx(parts["prefill"] + parts["front_end"], rel=1e-3)


@pytest.mark.parametrize("engine", ["vllm", "trtllm"])
@pytest.mark.parametrize(("isl", "osl"), [(8000, 10), (4000, 1), (8000, 100)])
@pytest.mark.long
def test_prompts_bound_the_throughput_of_many_clients(engine: str, isl: int, osl: int) -> None:
    fields = {"isl": isl, "osl": osl, "concurrency": 128, "serving.engine": engine, "precision": "fp8"}
    design = load_design("llama3-8b@dgx-h100:1", fields)
    closed, seen = estimate_design(design), simulate_load(deployment_of(design), count=640)
    assert not isinstance(closed, Infeasible)
    assert not isinstance(seen, Infeasible)
    assert closed.requests_per_s == pytest.approx(seen.metrics.requests_per_s, rel=0.05)
    assert closed.ttft.mean_s == pytest.approx(seen.metrics.ttft.mean_s, rel=0.05)
    if osl > 1:
        assert closed.tpot.mean_s == pytest.approx(seen.metrics.tpot.mean_s, rel=0.05)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("osl", [1, 20])
@pytest.mark.long
def test_more_clients_lower_neither_times_nor_throughput(engine: str, osl: int) -> None:
    fields = {"isl": 4000, "osl": osl, "serving__engine": engine, "precision": "fp8", "max_num_batched_tokens": 2048}
    found = [served("llama3-8b@l40s:8", tp=8, concurrency=clients, **fields) for clients in (1, 4, 64, 1024, 100_000)]
    for few, many in pairwise(found):
        assert many.ttft.mean_s >= 0.99 * few.ttft.mean_s
        assert osl == 1 or many.tpot.mean_s >= 0.99 * few.tpot.mean_s
        assert many.output_tokens_per_s >= 0.9 * few.output_tokens_per_s


TWO = {"serving.prefill.replicas": 1, "serving.prefill.tp": 2, "tp": 2, "precision": "fp8"}


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize(("isl", "hit"), [(4000, 0.0), (60000, 0.0), (60000, 0.9)])
def test_two_pools_agree_with_their_simulation_for_one_client(engine: str, isl: int, hit: float) -> None:
    fields = {**TWO, "isl": isl, "osl": 100, "concurrency": 1, "prefix_hit": hit, "serving.engine": engine}
    design = load_design("llama3-8b@dgx-h100:4", fields)
    closed, seen = estimate_design(design), simulate_load(deployment_of(design), count=30)
    assert not isinstance(closed, Infeasible)
    assert not isinstance(seen, Infeasible)
    assert closed.ttft.mean_s == pytest.approx(seen.metrics.ttft.mean_s, rel=0.05)
    assert closed.tpot.mean_s == pytest.approx(seen.metrics.tpot.mean_s, rel=0.03)
    assert closed.running + closed.waiting == pytest.approx(1, rel=0.01)


def test_clients_of_a_closed_loop_take_turns_at_a_busy_prefill_pool() -> None:
    fields = {**TWO, "isl": 8000, "osl": 50, "isl_cv": 0.2, "osl_cv": 0.2, "concurrency": 128}
    design = load_design("llama3-8b@dgx-h100:4", fields)
    closed, seen = estimate_design(design), simulate_load(deployment_of(design), count=640)
    assert not isinstance(closed, Infeasible)
    assert not isinstance(seen, Infeasible)
    assert closed.ttft.p95_s == pytest.approx(seen.metrics.ttft.p95_s, rel=0.15)


# ---- closed form and simulation

DEP: dict[str, object] = {"tp": 1, "dp": 8, "ep": 8}
KINDS: list[tuple[str, dict[str, object]]] = [
    ("llama3-8b@dgx-h100:1", {}),
    ("llama3-70b@dgx-h100:8", {"tp": 8}),
    ("llama3-8b@dgx-h100:4", {"tp": 1, "dp": 4}),
    ("mixtral-8x7b@dgx-h100:4", {"tp": 4}),
    ("deepseek-v3@dgx-h200:8", DEP),
    ("gpt-oss-120b@dgx-h100:2", {"tp": 1, "dp": 2, "ep": 2}),
    ("llama3-70b@dgx-h100:8", {"tp": 4, "pp": 2}),
    ("llama3-8b@dgx-h100:4", {"tp": 1, "pp": 2, "dp": 2}),
    ("llama3-70b@dgx-h200:8", {"tp": 4, "serving.prefill.replicas": 1, "serving.prefill.tp": 4}),
    (
        "llama3-70b@dgx-h100:16",
        {"tp": 8, "serving.prefill.replicas": 1, "serving.prefill.tp": 4, "serving.prefill.pp": 2},
    ),
    (
        "deepseek-v3@dgx-h200:16",
        {
            **DEP,
            "serving.prefill.replicas": 1,
            "serving.prefill.tp": 1,
            "serving.prefill.dp": 8,
            "serving.prefill.ep": 8,
        },
    ),
]
ENGINES = ("vllm", "sglang", "trtllm")


def both(source: str, fields: dict[str, object], count: int | None = None) -> tuple[ServingMetrics, ServingMetrics]:
    """Return what closed form and simulation say of a deployment, which must be able to run."""
    design = load_design(source, {"precision": "fp8", **fields})
    closed, seen = estimate_design(design), simulate_load(deployment_of(design), count=count)
    assert not isinstance(closed, Infeasible), closed.reasons
    assert not isinstance(seen, Infeasible), seen.reasons
    return closed, seen.metrics


@pytest.mark.parametrize("place", range(len(KINDS)))
def test_a_single_client_sees_its_prefill_in_both_engines(place: int) -> None:
    (source, mapping), stream = KINDS[place], Random(place)
    isl, osl = stream.choice([(200, 300), (1000, 100), (8000, 20), (20000, 50)])
    fields = {**mapping, "isl": isl, "osl": osl, "serving.engine": ENGINES[place % 3], "concurrency": 1}
    closed, seen = both(source, fields, count=12)
    for found in (closed, seen):
        alone = sum(seconds for name, seconds in found.ttft_breakdown.items() if name != "queueing")
        assert found.ttft.mean_s == pytest.approx(alone, rel=0.03)
    assert closed.ttft.mean_s == pytest.approx(seen.ttft.mean_s, rel=0.05)  # front ends of 12 requests differ
    assert closed.tpot.mean_s == pytest.approx(seen.tpot.mean_s, rel=0.03)
    assert closed.ttft_breakdown == pytest.approx(seen.ttft_breakdown, rel=0.2, abs=0.05 * closed.ttft.mean_s)


@pytest.mark.parametrize(
    ("engine", "load"),
    [
        ("vllm", {"concurrency": 256}),
        ("sglang", {"concurrency": 64}),
        ("trtllm", {"rate": 4.0}),
        ("vllm", {"rate": 4.0}),
    ],
)
def test_ranks_of_attention_wait_for_each_other_in_both_engines(engine: str, load: dict[str, object]) -> None:
    spread = {"isl": 1000, "osl": 200, "isl_cv": 0.5, "osl_cv": 0.5}
    closed, seen = both("deepseek-v3@dgx-h200:8", {**DEP, **spread, "serving.engine": engine, **load}, count=1200)
    assert closed.tpot.mean_s == pytest.approx(seen.tpot.mean_s, rel=0.10)
    assert closed.ttft.mean_s == pytest.approx(seen.ttft.mean_s, rel=0.20)
    assert closed.prefill_share == pytest.approx(seen.prefill_share, abs=0.15)


def test_stages_add_prefill_throughput() -> None:
    load = {"isl": 8000, "osl": 10, "isl_cv": 0.2, "osl_cv": 0.2, "concurrency": 256}
    one = both("llama3-70b@dgx-h100:8", {"tp": 8, **load}, count=1100)
    two = both("llama3-70b@dgx-h100:16", {"tp": 8, "pp": 2, **load}, count=1100)
    for few, many in zip(one, two, strict=True):
        assert 1.7 < many.requests_per_s / few.requests_per_s < 2.1


def test_more_clients_of_a_pipeline_have_more_throughput() -> None:
    fields = {"tp": 4, "pp": 2, "isl": 1000, "osl": 1, "precision": "bf16"}
    found = [served("gemma3-27b@tpu-v6e:8", concurrency=clients, **fields).requests_per_s for clients in (1, 2, 4, 16)]
    assert found == sorted(found)


def test_chunks_of_a_long_prompt_follow_each_other_through_the_stages() -> None:
    load = {"isl": 32000, "osl": 10, "concurrency": 1, "max_num_batched_tokens": 8192}
    (whole, seen), (staged, also) = (
        both(f"llama3-70b@dgx-h100:{8 * stages}", {"tp": 8, "pp": stages, **load}, count=10) for stages in (1, 2)
    )
    assert staged.ttft_breakdown["prefill"] / whole.ttft_breakdown["prefill"] == pytest.approx(0.6, rel=0.1)
    assert also.ttft_breakdown["prefill"] / seen.ttft_breakdown["prefill"] == pytest.approx(0.6, rel=0.1)


def test_two_pools_hand_over_no_more_than_their_links_carry() -> None:
    pools = {"tp": 4, "serving.prefill.replicas": 1, "serving.prefill.tp": 1, "precision": "fp8"}
    design = load_design("llama3-8b@dgx-h100:8", {**pools, "isl": 4000, "osl": 20, "concurrency": 64})
    deployment = deployment_of(design)
    assert deployment.prefill is not None
    slow = replace(deployment, batch=replace(deployment.batch, columns={"network.dims.0.bandwidth": np.array([1e9])}))
    sent = float(np.ravel(transfer_s(deployment.prefill.price, 4000, 1e9))[0])
    found = float(np.ravel(estimate_deployment(slow).requests_per_s)[0])
    assert found == pytest.approx(1 / sent, rel=0.02)
    assert float(np.ravel(estimate_deployment(deployment).requests_per_s)[0]) > 1.5 * found


def test_both_engines_name_the_parts_of_two_pools_alike() -> None:
    closed, seen = both(*KINDS[8][:1], {**KINDS[8][1], "isl": 4000, "osl": 100, "concurrency": 8}, count=100)
    assert closed.ttft_breakdown["front_end"] == pytest.approx(seen.ttft_breakdown["front_end"])
    assert closed.ttft_breakdown["transfer"] == pytest.approx(seen.ttft_breakdown["transfer"], rel=0.3)
    assert closed.prefill_share == pytest.approx(seen.prefill_share, abs=0.1)
    assert closed.tpot.mean_s == pytest.approx(sum(closed.decode_breakdown.values()), rel=0.01)


def test_a_single_token_has_no_next_one() -> None:
    for place in (0, 8):
        source, mapping = KINDS[place]
        for found in both(source, {**mapping, "isl": 500, "osl": 1, "osl_cv": 0.3, "concurrency": 4}, count=40):
            assert np.isnan(found.tpot.mean_s)
            assert np.isfinite(found.e2e.mean_s)
        assert read_slo("1 ms", "tpot").holds(found)


def test_a_short_open_loop_does_not_count_how_it_begins_and_ends() -> None:
    design = load_design(
        "llama3-8b@dgx-h100:1", {"isl": 500, "osl": 300, "rate": 10, "arrival_cv": 0, "precision": "fp8"}
    )
    short = simulate_load(deployment_of(design), count=60)
    assert not isinstance(short, Infeasible)
    assert short.metrics.requests_per_s == pytest.approx(10, rel=0.25)
    assert "so few" in short.cautions[0]
    many = simulate_load(deployment_of(design), count=400)
    assert not isinstance(many, Infeasible)
    assert many.metrics.requests_per_s == pytest.approx(10, rel=0.1)
    assert many.cautions == ()


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_one_more_token_of_a_prompt_takes_hardly_longer_through_stages(engine: str) -> None:
    """A prompt of one chunk and one of a chunk and a token pass all stages: Σ c + (p - 1) max c."""
    base = {"tp": 1, "pp": 4, "dp": 1, "precision": "fp8", "serving.engine": engine, "concurrency": 1, "osl": 8}
    for limit in (2048, 4 * 2048):
        found = []
        for isl in (limit, limit + 1):
            design = load_design("llama3-8b@dgx-h100:4", {**base, "isl": isl, "max_num_batched_tokens": 2048})
            closed = estimate_design(design)
            seen = simulate_load(deployment_of(design), count=3)
            assert not isinstance(closed, Infeasible)
            assert not isinstance(seen, Infeasible)
            found.append((float(closed.ttft.mean_s), float(seen.metrics.ttft.mean_s)))
        for shorter, longer in zip(*found, strict=True):
            assert shorter * 0.93 < longer < shorter * 1.1  # a prompt is cut evenly in closed form


def test_a_cached_share_is_of_tokens_where_classes_differ() -> None:
    """Of 3 chats of 500 tokens and a document of 8,000 with 0.9 cached: 7,200 of 9,500 tokens."""
    chat = RequestClass(name="chat", isl=500, osl=300, share=3)
    document = RequestClass(name="document", isl=8000, osl=50, prefix_hit=0.9)
    assert Load(classes=(chat, document), rate=1).mean("prefix_hit") == pytest.approx(7200 / 9500)


@pytest.mark.parametrize(
    ("source", "mapping"),
    [
        ("llama3-8b@dgx-h100:1", {}),
        ("deepseek-v3@dgx-h200:8", {"tp": 8}),
        ("qwen3-30b-a3b@dgx-h100:4", {"tp": 1, "dp": 4, "ep": 4}),
        ("llama3-70b@dgx-h100:8", {"tp": 4, "pp": 2}),
    ],
)
@pytest.mark.parametrize("share", [0.3, 0.7, 0.9])
@pytest.mark.long
def test_prompts_that_go_first_leave_short_answers_in_an_open_loop(
    source: str, mapping: dict[str, object], share: float
) -> None:
    fields = {**mapping, "isl": 500, "osl": 2, "precision": "fp8", "serving.engine": "sglang"}
    most = float(np.ravel(deployment_capacity(deployment_of(load_design(source, {**fields, "rate": 1}))))[0])
    closed, seen = both(source, {**fields, "rate": share * most}, count=4000)
    assert min(closed.ttft_breakdown.values()) >= 0
    assert closed.ttft.mean_s == pytest.approx(seen.ttft.mean_s, rel=0.4)
    # gaps between prompts are rare in a long queue: a few of them decide
    assert 0.5 < closed.tpot.mean_s / seen.tpot.mean_s < 2.0


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize(("isl", "osl"), [(500, 2), (2000, 50)])
def test_no_part_of_an_open_loop_is_negative(engine: str, isl: int, osl: int) -> None:
    fields = {"tp": 8, "isl": isl, "osl": osl, "precision": "fp8", "serving.engine": engine}
    most = float(
        np.ravel(deployment_capacity(deployment_of(load_design("deepseek-v3@dgx-h200:8", {**fields, "rate": 1}))))[0]
    )
    before = 0.0
    for share in (0.2, 0.8, 0.97):
        found = estimate_design(load_design("deepseek-v3@dgx-h200:8", {**fields, "rate": share * most}))
        assert not isinstance(found, Infeasible)
        assert min(found.ttft_breakdown.values()) >= 0
        assert found.ttft.mean_s >= 0.99 * before
        before = found.ttft.mean_s


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("isl", "osl"), [(8000, 2), (4000, 5), (500, 20)])
@pytest.mark.parametrize(("source", "tp"), [("llama3-8b@dgx-h100:1", 1), ("llama3-70b@dgx-h100:8", 8)])
@pytest.mark.long
def test_another_client_with_short_answers_takes_no_throughput(
    engine: str, isl: int, osl: int, source: str, tp: int
) -> None:
    fields = {"tp": tp, "isl": isl, "osl": osl, "serving__engine": engine, "precision": "fp8"}
    found = [served(source, concurrency=each, **fields).requests_per_s for each in (1, 2, 3, 4, 8, 50, 200, 300, 600)]
    for few, many in pairwise(found):
        assert many >= 0.97 * few


def test_a_request_meets_each_prompt_of_the_other_clients_once() -> None:
    fields = {"isl": 8000, "osl": 2, "serving.engine": "trtllm"}
    for clients in (2, 4):
        closed, seen = both("llama3-8b@dgx-h100:1", {**fields, "concurrency": clients}, count=60)
        assert closed.requests_per_s == pytest.approx(seen.requests_per_s, rel=0.1)
        assert closed.ttft.mean_s == pytest.approx(seen.ttft.mean_s, rel=0.1)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_bursts_wait_for_their_own_prompts(engine: str) -> None:
    load = {"isl": 8000, "osl": 100, "isl_cv": 0.2, "osl_cv": 0.2, "rate": 3, "serving.engine": engine}
    before = 0.0
    for spread in (0, 1, 3):
        closed, seen = both("llama3-8b@dgx-h100:1", {**load, "arrival_cv": spread}, count=1500)
        assert closed.ttft.mean_s == pytest.approx(seen.ttft.mean_s, rel=0.35)
        assert closed.ttft.mean_s > 1.05 * before
        before = closed.ttft.mean_s
