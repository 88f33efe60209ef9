"""What a step of serving reads, computes and sends, against counts of one's own."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.design.batch import batch_of
from cosmic.design.model import Transformer, parameters
from cosmic.errors import SpecError
from cosmic.loading.designs import load_design
from cosmic.step.serving_work import ServingWork, serving_work
from cosmic.workload.precision import SERVING, recipe_of, weight_bytes


def work(model: str, npus: int, **workload: Any) -> ServingWork:
    known = {"task": "decode", "sequence": 1024, "tp": npus, "dp": 1, "ep": 1, "pp": 1, "global_batch": 8}
    known |= {"micro_batch": 8, "precision": "bf16", **workload}
    settings = {f"workload.{key}": value for key, value in known.items()}
    return serving_work(batch_of(load_design(f"{model}@dgx-h200:{npus}", settings, plain=True)))


def shape(model: str) -> Transformer:
    found = load_design(f"{model}@dgx-h200:1", {"workload.task": "decode"}, plain=True).model
    assert isinstance(found, Transformer)
    return found


def test_a_dense_model_is_kept_and_read_whole_but_for_its_embedding() -> None:
    model, found = shape("llama3-8b"), work("llama3-8b", 1)
    assert found.resident_bytes == pytest.approx(2 * parameters(model))
    assert found.weight_bytes == pytest.approx(2 * (parameters(model) - model.vocab * model.hidden), rel=1e-4)
    assert found.wide_flop == pytest.approx(8 * found.weight_bytes)


def test_formats_shrink_what_is_read() -> None:
    wide, narrow = (work("llama3-70b", 8, precision=precision) for precision in ("bf16", "fp8"))
    assert narrow.weight_bytes == pytest.approx(wide.weight_bytes / 2, rel=0.03)  # the head stays in 16 bits
    assert narrow.cache_bytes == wide.cache_bytes / 2
    assert narrow.narrow_flop + narrow.wide_flop == pytest.approx(wide.wide_flop)


def test_experts_that_no_token_picks_are_not_read() -> None:
    model = shape("gpt-oss-120b")
    assert model.experts is not None
    few, many = (work("gpt-oss-120b", 1, micro_batch=count, global_batch=count, precision="fp4") for count in (1, 4096))
    one = 0.5625 * model.layers * 3 * model.hidden * model.experts.ffn
    assert many.weight_bytes - few.weight_bytes == pytest.approx(one * (128 - 4), rel=1e-3)


def test_tensor_parallelism_splits_experts_too() -> None:
    one, eight = (work("qwen3-235b-a22b", npus, precision="fp8") for npus in (1, 8))
    assert eight.resident_bytes == pytest.approx(one.resident_bytes / 8, rel=0.01)
    assert eight.expert_flop == pytest.approx(one.expert_flop / 8)


def test_expert_parallelism_splits_experts_and_replicates_attention() -> None:
    spread = work("deepseek-v3", 8, tp=1, dp=8, ep=8, micro_batch=1, precision="fp8")
    split = work("deepseek-v3", 8, precision="fp8")
    assert spread.expert_flop == pytest.approx(split.expert_flop)
    assert spread.resident_bytes > split.resident_bytes


def test_a_latent_cache_is_read_by_every_device_and_heads_are_split() -> None:
    one, eight = (work("deepseek-v3", npus, precision="fp8") for npus in (1, 8))
    assert eight.cache_bytes == one.cache_bytes == 8 * 1024 * 61 * (512 + 64)
    assert eight.attention_flop == pytest.approx(one.attention_flop / 8)
    assert one.attention_flop == pytest.approx(8 * 1024 * 61 * 128 * 2 * (2 * 512 + 64))


@pytest.mark.parametrize("model", ["llama3-70b", "deepseek-v3", "gpt-oss-120b"])
def test_each_layer_exchanges_twice_what_tokens_are(model: str) -> None:
    found, layers = work(model, 8, task="prefill", micro_batch=1, global_batch=1, precision="fp8"), shape(model)
    assert found.exchanges == 2 * layers.layers
    assert found.exchanged_bytes == pytest.approx(2 * layers.layers * 1024 * layers.hidden * 2)


def test_a_prompt_needs_no_head() -> None:
    prompt = work("llama3-8b", 1, task="prefill", micro_batch=1, global_batch=1)
    model = shape("llama3-8b")
    layers = parameters(model) - 2 * model.vocab * model.hidden
    assert prompt.wide_flop == pytest.approx(2 * 1024 * layers, rel=1e-3)


def test_training_is_no_serving() -> None:
    with pytest.raises(SpecError, match="prefill or decode"):
        work("llama3-8b", 1, task="training")


def test_four_bits_cover_the_experts_of_a_mixture_alone() -> None:
    recipe = recipe_of("int4", "prefill")
    assert recipe is SERVING["int4"]
    assert [weight_bytes(recipe, name, moe=True) for name in ("w_expert_down", "w_out", "w_router")] == [
        0.5625,
        2,
        2,
    ]
    assert weight_bytes(SERVING["fp8"], "w_out", moe=True) == 1
    assert weight_bytes(SERVING["fp8"], "w_head", moe=False) == 2
