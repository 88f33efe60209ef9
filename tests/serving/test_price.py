"""The price of an engine's step: what `cosmic evaluate` says, and what the engine adds."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design.serving_engine import Engine
from cosmic.search.mapping.design_completion import load_design
from cosmic.serving.step_price import StepPrice, total_step_s
from cosmic.simulate.metrics import Infeasible
from cosmic.simulate.step_evaluation import evaluate_step
from tests.relations.random_designs import MODELS, random_design

FAMILIES = tuple(family for family in MODELS if family not in ("encoder", "recommender", "vision"))


def served(name: str = "llama3-70b@dgx-h200:8", **changes: Any) -> Any:
    given = {"task": "decode", "precision": "fp8", "tp": 8, "global_batch": 8, "micro_batch": 8, "sequence": 1000}
    return load_design(name, given | changes)


def price(engine: Engine | None = None, drafts: int = 0, **changes: Any) -> StepPrice:
    return StepPrice.for_design(served(**changes), engine or Engine(), drafts)


# ---- one physics


@pytest.mark.long
@pytest.mark.parametrize("task", ["decode", "prefill"])
def test_an_engine_that_adds_nothing_takes_what_evaluate_says(task: str) -> None:
    rng, seen = Random(7), set()
    for _ in range(30):
        drawn = random_design(rng, family=rng.choice(FAMILIES), task=task, runtime="multi_controller")
        workload = drawn.workload
        flights = workload.pp if task == "decode" else 1
        sizes = {"workload.micro_batch": 2, "workload.global_batch": 2 * flights * workload.dp}
        point = drawn.changed(sizes)
        found = evaluate_step(point)
        if isinstance(found, Infeasible):
            continue
        steps = StepPrice.for_design(point, Engine())
        tokens = workload.sequence
        seconds = steps.decode_s(2 * flights, tokens) if task == "decode" else steps.prefill_s(tokens, 2)
        assert seconds == pytest.approx(found.step_s, rel=1e-9)
        seen.add((point.model.name, workload.pp > 1, workload.ep > 1))
    assert len(seen) > 8


def test_a_batch_costs_what_each_of_its_steps_does() -> None:
    steps = price()
    counts, tokens = np.array([1.0, 8.0, 64.0]), np.array([100.0, 1000.0, 5000.0])
    together = steps.mixed_s(500, counts, tokens, cached=300)
    alone = [steps.mixed_s(500, count, each, cached=300) for count, each in zip(counts, tokens, strict=True)]
    assert together == pytest.approx(np.concatenate(alone))


def test_a_model_that_generates_nothing_is_refused() -> None:
    with pytest.raises(SpecError, match="only decoders are served"):
        StepPrice.for_design(load_design("bert-large@dgx-h200:8", {"task": "prefill"}), Engine())


# ---- what engines add


def test_a_decode_step_has_gaps_and_host_time() -> None:
    plain, engine = price(), Engine(layer_gap_s=1e-5, request_host_s=2e-6, step_host_s=3e-4, decode_factor=1.5)
    kernels = sum(plain.decode_parts(8, 1000)[name] for name in ("gemm", "attention", "other"))
    more = 0.5 * kernels + 80 * 1e-5 + 8 * 2e-6 + 3e-4
    assert price(engine).decode_s(8, 1000) - plain.decode_s(8, 1000) == pytest.approx(more)


def test_layers_with_experts_have_gaps_of_their_own() -> None:
    def step(engine: Engine, precision: str = "fp8", system: str = "dgx-h200:8") -> Any:
        design = served(f"qwen3-235b-a22b@{system}", precision=precision, tp=4, dp=2)
        return StepPrice.for_design(design, engine).decode_s(8, 1000)

    plain = step(Engine())
    assert step(Engine(expert_gap_s=1e-5)) - plain == pytest.approx(94 * 1e-5)
    assert step(Engine(cast_gap_s=1e-5)) - plain == pytest.approx(94 * 1e-5)
    assert step(Engine(cast_gap_s=1e-5), "bf16") == pytest.approx(step(Engine(), "bf16"))
    widened = Engine(widening_gap_s=1e-5)
    assert step(widened, "int4") - step(Engine(), "int4") == pytest.approx(94 * 1e-5)
    assert step(widened, "fp4") - step(Engine(), "fp4") == pytest.approx(94 * 1e-5)
    assert step(widened, "fp4", "dgx-b200:8") == pytest.approx(step(Engine(), "fp4", "dgx-b200:8"))
    assert price(Engine(expert_gap_s=1.0)).decode_s(8, 1000) == price().decode_s(8, 1000)  # a dense model has none


def test_casts_to_blocks_slow_the_prefills_of_experts() -> None:
    plain, slow = (
        StepPrice.for_design(served("qwen3-235b-a22b@dgx-h200:8", tp=4, dp=2), engine).prefill_parts(8000)
        for engine in (Engine(), Engine(cast_factor=1.5))
    )
    assert slow["gemm"] == pytest.approx(1.5 * plain["gemm"])
    assert price(Engine(cast_factor=1.5)).prefill_s(8000) == price().prefill_s(8000)


def test_without_graphs_a_decode_step_waits_for_its_launches() -> None:
    captured, eager = price(), price(Engine(cuda_graphs=False))
    launched = total_step_s(captured.prefill_parts(1))
    assert eager.decode_s(1, 1000) == pytest.approx(launched, rel=1e-3)
    assert eager.decode_s(1, 1000) > 1.5 * captured.decode_s(1, 1000)
    long: dict[str, Any] = {"sequence": 10**6}
    assert price(Engine(cuda_graphs=False), **long).decode_s(64, 10**6) == price(**long).decode_s(64, 10**6)


def test_a_prefill_has_its_factor_and_waits_for_its_launches() -> None:
    plain = price().prefill_parts(6000)
    assert plain["launch"] == 0
    kernels = sum(plain[name] for name in ("gemm", "attention", "other"))
    slower = price(Engine(prefill_factor=1.5, step_host_s=1e-3)).prefill_s(6000)
    assert slower == pytest.approx(total_step_s(plain) + 0.5 * kernels + 1e-3)
    short = price().prefill_parts(16)
    assert short["launch"] > 0
    rather = price(Engine(launch_factor=0.7)).prefill_s(16)
    assert rather == pytest.approx(0.7 * total_step_s(short))
    assert price(Engine(launch_factor=0)).prefill_s(16) == pytest.approx(total_step_s(short) - short["launch"])


def test_a_mixed_step_reads_weights_once() -> None:
    steps = price()
    mixed, prefill, decode = steps.mixed_s(2000, 64, 3000), steps.prefill_s(2000), steps.decode_s(64, 3000)
    assert max(prefill, decode) < mixed < prefill + decode
    whole, alone = steps.mixed_parts(2000, 64, 3000), steps.prefill_parts(2064)
    assert whole["gemm"] == pytest.approx(alone["gemm"])
    assert whole["tp"] == pytest.approx(alone["tp"])
    apart = steps.prefill_parts(2000)["attention"] + steps.decode_parts(64, 3000)["attention"]
    assert whole["attention"] == pytest.approx(apart)


def test_a_mixed_step_without_requests_is_a_prefill() -> None:
    steps = price()
    assert steps.mixed_s(6000, 0, 1000) == pytest.approx(steps.prefill_s(6000))
    assert steps.mixed_s(2000, 0, 1000, cached=1000, prompts=3) == pytest.approx(steps.prefill_s(2000, 3, 1000))


def test_chunks_attend_to_what_is_cached() -> None:
    steps = price()
    whole = steps.prefill_parts(8000)["attention"]
    chunks = [steps.prefill_parts(2000, 1, cached)["attention"] for cached in (0, 2000, 4000, 6000)]
    assert sum(chunks) == pytest.approx(whole)
    assert np.all(np.diff(np.concatenate(chunks)) > 0)


def test_an_engine_reduces_faster_inside_a_node_alone() -> None:
    usual, own = (price(engine).decode_parts(8, 1000)["tp"] for engine in (Engine(), Engine(all_reduce_s=4e-6)))
    reduced = 8 * 8192 * 2 * (1 + 1 / 8) / (450e9 * 0.25)
    assert own < 0.5 * usual
    assert own == pytest.approx(161 * (4e-6 + reduced), rel=0.05)
    slow = Engine(all_reduce_s=1.0)
    assert price(slow).decode_parts(8, 1000)["tp"] == usual


def test_replicas_leave_the_links_of_a_group_as_they_are() -> None:
    one, four = (
        StepPrice.for_design(served(f"llama3-70b@dgx-h200:{count}", dp=count // 8, global_batch=count), Engine())
        for count in (8, 32)
    )
    assert one.decode_parts(8, 1000)["tp"] == pytest.approx(four.decode_parts(8, 1000)["tp"])


def test_stages_decode_shares_of_the_requests() -> None:
    staged = StepPrice.for_design(served(tp=4, pp=2), Engine())
    one, flight = staged.decode_s(64, 1000), staged.decode_s(32, 1000)
    assert flight < one < 2 * flight


# ---- speculation, memory


def test_a_draft_is_checked_with_the_next_token() -> None:
    plain, drafting = price(), price(drafts=3)
    found, wide = drafting.decode_parts(16, 1000), plain.decode_parts(64, 1000)
    assert found["gemm"] == wide["gemm"]
    assert found["tp"] == wide["tp"]
    assert found["attention"] == plain.decode_parts(16, 1000)["attention"]
    step = total_step_s({name: value for name, value in found.items() if name != "engine"})
    assert found["engine"] == pytest.approx(3 * 2 / 80 * step)


def test_many_heads_make_drafts_compute_bound() -> None:
    apart = {"tp": 1, "dp": 8, "ep": 8, "global_batch": 64}
    drafting = StepPrice.for_design(served("deepseek-v3@dgx-h200:8", **apart), Engine(), 1)
    read = 576 / (4.8e12 * 0.9 * 1.0)
    multiplied = 2 * 128 * (576 + 512) / (989.4e12 * 0.704)
    assert multiplied > read
    ratio = (
        drafting.decode_parts(8, 4000)["attention"]
        / StepPrice.for_design(served("deepseek-v3@dgx-h200:8", **apart), Engine()).decode_parts(8, 4000)["attention"]
    )
    assert ratio == pytest.approx(2, rel=0.01)


def test_the_kv_cache_has_what_weights_leave() -> None:
    engine = Engine(memory_fraction=0.9, workspace_bytes=2e9)
    steps = price(engine)
    found = steps.steps("decode", 1, 4000)
    room = 0.9 * 141 * 2**30 - (found["memory_bytes"] - found["memory.kv_cache"]) - 2e9
    each = 2 * 128 * 80 * 1  # one KV head for each of tp 8, in 8 bits
    assert found["memory.kv_cache"] == each * 4000
    assert steps.kv_tokens(4000) == pytest.approx(room / each)
    left = price(replace(engine, reserves_kv=True)).kv_tokens(4000)
    assert left == pytest.approx(0.9 * (room + 0.1 * 141 * 2**30) / each)


def test_a_wider_cache_holds_less() -> None:
    narrow, wide = price(), price(cache_dtype="bf16")
    assert wide.kv_tokens(1000) == pytest.approx(narrow.kv_tokens(1000) / 2)
    assert wide.decode_parts(64, 9000)["attention"] > 1.5 * narrow.decode_parts(64, 9000)["attention"]


@pytest.mark.parametrize("system", ["dgx-h100", "l40s"])
def test_weights_of_four_bits_alone_are_read_fast_and_multiplied_in_sixteen(system: str) -> None:
    def gemms_s(precision: str, task: str, requests: float, tokens: float) -> float:
        design = load_design(f"llama3-8b@{system}:1", {"precision": precision})
        price = StepPrice.for_design(design, Engine())
        return float(price.steps(task, requests, tokens)["breakdown.gemm"][0])

    for requests in (1, 8, 32):
        integers, floats, eight = (gemms_s(each, "decode", requests, 1000) for each in ("int4", "fp4", "fp8"))
        assert integers == floats
        assert integers < 0.8 * eight
    integers, floats, eight, wide = (gemms_s(each, "prefill", 1, 8192) for each in ("int4", "fp4", "fp8", "bf16"))
    assert integers == floats == pytest.approx(wide, rel=0.05)
    assert integers > 1.5 * eight
