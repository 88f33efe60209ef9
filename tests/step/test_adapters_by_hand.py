"""LoRA and packed sequences on tiny models: every expected number is worked out here, from the shapes alone.

The model of `tiny` has 2 layers, hidden 8, 2 heads of 4, ffn 16, vocab 10; a sequence has 4 tokens. At rank 2 a layer's
adapters are

    qkv   A 8 × 2 once, B 2 × 8 for each of q, k, v       64 weights
    out   A 8 × 2, B 2 × 8                                 32
    fc1   A 8 × 2, B 2 × 16                                48
    fc2   A 16 × 2, B 2 × 8                                48                  192 in all
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import Transformer
from cosmic.design.workload_layer import Workload
from cosmic.evaluation import evaluate
from cosmic.frameworks.launch import targets
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.analytic_step import compute_step_seconds
from cosmic.simulate.metrics import Infeasible, Metrics
from cosmic.simulate.recording.recorded_evaluation import run_recorded_point
from cosmic.simulate.recording.recorded_program import structure_of
from cosmic.simulate.step_evaluation import RECORDER
from cosmic.step.communication import list_collectives
from cosmic.step.device_memory import footprint, updated_elements
from cosmic.step.gemm import CAST_CONSTANTS as CASTS
from cosmic.step.operator_work import list_operators, model_flop_per_token
from cosmic.step.step_profile import profile_step
from cosmic.workload.attended_keys import attended_share, document_length
from cosmic.workload.mapping_rules import invalid_reasons
from tests.relations.random_designs import MODELS, random_design
from tests.simulate.recording.test_equality import directly, replayed, same
from tests.step import tiny

RANK = 2
QKV, OUT, FC1, FC2 = 8 * 2 + 3 * 2 * 8, 2 * 8 * 2, 8 * 2 + 2 * 16, 16 * 2 + 2 * 8
ADAPTERS = QKV + OUT + FC1 + FC2
"""Weights of one layer's adapters."""
LAYER = 2 * 8 + 4 * 8 * 8 + 2 * 8 * 16
ALL = 10 * 8 + 2 * LAYER + 8 + 10 * 8
LORA: dict[str, Any] = {"lora_rank": RANK, "sequence_parallel": False}


def test_a_layer_has_the_adapters_of_its_modules() -> None:
    assert (QKV, OUT, FC1, FC2) == (64, 32, 48, 48)
    whole = tiny.batch(**LORA)
    assert float(updated_elements(whole, 0)) == 2 * ADAPTERS
    attention = tiny.batch(**LORA, lora_targets=("linear_qkv",))
    assert float(updated_elements(attention, 0)) == 2 * QKV


def test_only_adapters_have_gradients_and_states() -> None:
    """bf16: 2 bytes a weight, and of adapters 4 a gradient, 4 a master copy, 8 of moments."""
    parts = footprint(tiny.batch(**LORA)).parts
    assert parts["weights"] == 2 * (ALL + 2 * ADAPTERS)
    assert parts["gradients"] == 4 * 2 * ADAPTERS
    assert parts["optimizer"] == 12 * 2 * ADAPTERS
    split = footprint(tiny.batch(**LORA, dp=2, weight_sharding="zero1")).parts
    assert (split["weights"], split["optimizer"]) == (parts["weights"], parts["optimizer"] / 2)


def test_sharded_weights_are_frozen_in_16_bits() -> None:
    """zero3 keeps a master copy of adapters alone; what is frozen is stored as it is used, and gathered."""
    parts = footprint(tiny.batch(**LORA, dp=2, weight_sharding="zero3")).parts
    assert parts["weights"] == (2 * ALL + 4 * 2 * ADAPTERS) / 2
    assert parts["gradients"] == 4 * 2 * ADAPTERS / 2
    assert parts["optimizer"] == 8 * 2 * ADAPTERS / 2


def test_a_frozen_gemm_has_one_gradient_and_an_adapter_two() -> None:
    """With 4 tokens, q is 2 · 4 · 8 · 8 = 512 flop, its A 2 · 4 · 8 · 2 = 128, its B 2 · 4 · 2 · 8 = 128."""
    found = {(use.block, use.name, use.phase): use for use in list_operators(tiny.batch(**LORA))}
    assert found["layer", "q", "forward"].flop == found["layer", "q", "backward"].flop == 512
    for name, flop in (("q_lora_a", 128), ("q_lora_b", 128), ("k_lora_b", 128), ("ffn_up_lora_b", 256)):
        assert found["layer", name, "forward"].flop == flop
        assert found["layer", name, "backward"].flop == 2 * flop
    assert ("layer", "k_lora_a", "forward") not in found  # shared with q
    assert found["head", "logits", "backward"].flop == found["head", "logits", "forward"].flop
    assert not [key for key in found if key[0] == "embedding" and key[2] == "backward"]


def test_the_flop_of_a_token_are_four_of_frozen_and_six_of_trained_weights() -> None:
    """Of 4 causal tokens each sees 2.5 on average: 2 · 2.5 · 2 · 8 = 80 flop of attention in a layer, forward."""
    model = tiny.point().model
    frozen, attention = 2 * (LAYER - 16) + 80, 2 * 80
    full = float(model_flop_per_token(model, 4))
    assert full == 3 * (2 * 2 * (LAYER - 16) + attention + 2 * 80)
    found = float(
        model_flop_per_token(model, 4, lora=(RANK, ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")))
    )
    assert found == 2 * 2 * frozen + 3 * attention + 2 * 3 * 2 * ADAPTERS


def test_only_gradients_of_adapters_are_reduced() -> None:
    """Once a step, in fp32; weights that are sharded are gathered as ever."""
    found = [use for use in list_collectives(tiny.batch(**LORA, dp=2)) if use.role in ("weights", "updated")]
    assert {use.tensor[:2] for use in found} == {"d_"}
    assert sum(float(use.bytes) for use in found if use.block == "layer") == 4 * ADAPTERS
    assert not [use for use in found if use.block in ("embedding", "head")]
    sharded = [
        use for use in list_collectives(tiny.batch(**LORA, dp=2, weight_sharding="zero3")) if use.role == "weights"
    ]
    gathered = sum(float(use.bytes) for use in sharded if use.phase == "forward" and use.block == "layer")
    assert gathered == 2 * (LAYER + ADAPTERS)
    reduced = sum(float(use.bytes) for use in sharded if use.tensor.startswith("d_"))
    assert reduced == 4 * ADAPTERS


def test_frozen_gemms_keep_no_activations() -> None:
    """With adapters of queries, keys and values alone, the inputs of the other GEMMs are not kept.

    In 2 bytes for each token: x 8, its norm 8 (A reads it), x A 2, queries, keys, values and attention 8 each, the
    stream 8, and 16 of the activation function; beside the statistics of 2 norms and 2 heads.
    """
    kept = footprint(tiny.batch(**LORA, lora_targets=("linear_qkv",))).parts["activations"]
    layer = 4 * (2 * (8 + 8 + 2 + 4 * 8 + 8 + 16) + 2 * 4 + 2 * 4)
    head = 4 * (2 * 8 + 4)
    assert kept == 2 * layer + head


@pytest.mark.parametrize(("precision", "width"), [("bf16", 2), ("fp8", 1)])
def test_a_served_model_keeps_all_adapters_in_16_bits(precision: str, width: int) -> None:
    """Embedding, head and norms keep 16 bits as well: 2 · 80 + 5 · 8 weights of `ALL`."""
    task = {"task": "decode", "precision": precision, "compute": {"fp8_flop_per_s": 2000.0}}
    wide = 2 * 80 + 5 * 8
    parts = footprint(tiny.batch(**LORA, **task, lora_adapters=3)).parts
    assert parts["weights"] == width * (ALL - wide) + 2 * wide + 3 * 2 * 2 * ADAPTERS


def test_served_requests_multiply_by_their_own_adapters() -> None:
    """Of 4 adapters 2 requests name 4 (1 - (3/4)²) = 1.75; an A has 8 × 2 weights of 2 bytes, x 8 and x A 2 a token."""
    task = {"task": "decode", "global_batch": 2, "micro_batch": 2, "lora_adapters": 4}
    found = {use.name: use for use in list_operators(tiny.batch(**LORA, **task)) if use.block == "layer"}
    assert found["q_lora_a"].bytes == pytest.approx(1.75 * 2 * 8 * 2 + 2 * 2 * (8 + 2))
    assert found["q_lora_a"].flop == 2 * 2 * 8 * 2
    assert found["q"].bytes == 2 * 8 * 8 + 2 * 2 * (8 + 8)
    prompts = {use.name: use for use in list_operators(tiny.batch(**LORA, **task | {"task": "prefill"}))}
    assert prompts["q_lora_a"].bytes == pytest.approx(1.75 * 2 * 8 * 2 + 2 * 2 * 4 * (8 + 2))


def test_pairs_of_a_packed_sequence_are_those_of_its_documents() -> None:
    """Documents of 2 tokens: a query sees 1.5 keys on average, of 4."""
    batch = tiny.batch(packed_length=2.0)
    use = next(use for use in list_operators(batch) if use.kind == "attention" and use.phase == "forward")
    assert use.flop == 4 * 1.5 * 2 * 2 * (4 + 4)
    model = tiny.point().model
    flop = float(model_flop_per_token(model, 4, document=2.0))
    assert flop == float(model_flop_per_token(model, 4)) - 3 * 2 * 2 * (2.5 - 1.5) * 2 * 8


def test_documents_of_different_lengths_weigh_by_their_tokens() -> None:
    """E[l²] / E[l] = 100 (1 + 0.5²) = 125; never more than the sequence."""
    assert document_length(tiny.batch(sequence=4096, packed_length=100.0, packed_spread=0.5)) == 125
    assert document_length(tiny.batch(packed_length=100.0)) == 4
    assert document_length(tiny.batch()) is None
    model = tiny.point(model={"window": 3}).model
    assert isinstance(model, Transformer)
    # Of 5 tokens with a window of 3: 1 + 2 + 3 + 3 + 3 = 12 of 25 pairs, in a sequence of 10.
    assert float(attended_share(model, "layer", 10, document=5)) == pytest.approx(12 / 50)


def test_one_document_is_no_packing() -> None:
    plain, packed = evaluate(tiny.point()), evaluate(tiny.point(packed_length=4.0))
    assert isinstance(plain, Metrics)
    assert isinstance(packed, Metrics)
    assert packed.step_s == pytest.approx(plain.step_s)
    assert packed.mfu == pytest.approx(plain.mfu)


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("lora_rank", 0, "must be at least 1"),
        ("lora_adapters", 0, "must be at least 1"),
        ("lora_targets", (), "must name a module at least"),
        ("packed_length", 0.5, "must be at least 1 token"),
        ("packed_spread", -1.0, "must not be negative"),
    ],
)
def test_what_makes_no_sense_is_refused(key: str, value: Any, rule: str) -> None:
    with pytest.raises(SpecError, match=rule):
        Workload(sequence=4, global_batch=1, **{key: value})


def test_a_model_without_the_modules_cannot_be_adapted() -> None:
    point = tiny.point(**LORA, lora_targets=("linear_kv_up_proj",))
    assert "the model has no such module" in invalid_reasons(point)[0]
    tables = load_design("dlrm-criteo@dgx-h100:8", {"lora_rank": 4}, plain=True)
    assert isinstance(evaluate(tables), Infeasible)


def test_a_launch_says_what_its_script_must_do() -> None:
    point = load_design("llama3-8b@dgx-h100:8", {"lora_rank": 16, "packed_length": 300}, plain=True)
    for name in ("megatron", "torchtitan", "deepspeed"):
        said = " ".join(targets[name](point).warnings)
        assert "adapters of rank 16 beside linear_qkv" in said
        assert "documents of 300 tokens" in said


def _tuned(rng: Random, family: str) -> DesignPoint:
    """Return a random design that has adapters, or packs documents, or both."""
    lora: dict[str, Any] = {
        "lora_rank": rng.choice((1, 8, 64)),
        "lora_targets": rng.choice((("linear_proj",), ("linear_fc1", "linear_proj"))),
    }
    packed: dict[str, Any] = {"packed_length": rng.choice((1.0, 300.0, 1e6)), "packed_spread": rng.choice((0.0, 2.0))}
    chosen = {**(lora if rng.random() < 0.7 else {}), **(packed if rng.random() < 0.7 else {})}
    return random_design(rng, family=family, task="training", **chosen)


def test_random_served_designs_with_adapters_are_the_same_bits_in_every_way_and_cost_more() -> None:
    for seed, task in enumerate(("decode", "prefill", "decode")):
        point = random_design(Random(seed), family="dense", task=task, lora_rank=8, lora_adapters=5)
        found = run_recorded_point(RECORDER, point)
        assert found is not None, "a design that cannot be recorded"
        assert same(found, directly(point)) == []
        assert same(found, replayed(RECORDER.variants(structure_of(point, {}))[0], point)) == []
        plain = point.changed({"workload.lora_rank": None})
        adapted, bare = (float(compute_step_seconds(batch_of(each)).seconds) for each in (point, plain))
        assert adapted > bare


@pytest.mark.parametrize("family", [name for name in MODELS if name != "recommender"])
def test_random_designs_are_the_same_bits_in_every_way_and_cost_no_more(family: str) -> None:
    rng = Random(family)
    for _ in range(2):
        point = _tuned(rng, family)
        found = run_recorded_point(RECORDER, point)
        assert found is not None, "a design that cannot be recorded"
        assert same(found, directly(point)) == []
        assert same(found, replayed(RECORDER.variants(structure_of(point, {}))[0], point)) == []
        full = point.changed({"workload.lora_rank": None, "workload.packed_length": None})
        tuned, whole = (float(compute_step_seconds(batch_of(each)).seconds) for each in (point, full))
        assert np.isfinite(tuned)
        if point.workload.lora_rank is None:
            assert tuned <= whole * (1 + 1e-9)


def test_weights_that_nothing_caches_are_cast_for_every_microbatch() -> None:
    """Tensorwise on a chip with fp4: 2 + 2 + 1 bytes for each of 8 × 16 weights, at the pace of a cast."""
    compute = {"sms": 1, "fp8_flop_per_s": 2000.0, "fp4_flop_per_s": 4000.0, "launch_s": 0.0}
    each: dict[str, Any] = {"precision": "fp8", "fp8_recipe": "tensorwise", "global_batch": 4, "compute": compute}

    def forward_s(**changes: Any) -> float:
        batch = tiny.batch(**each, **changes)
        found = profile_step(batch).operators
        return float(next(one.seconds for one in found if one.use.name == "ffn_up" and one.use.phase == "forward"))

    share = 3 / 4  # of four microbatches, three cast again
    twice = forward_s(fp8_weight_cache=False) - forward_s()
    assert twice == pytest.approx(share * 5 * 8 * 16 / (100 * CASTS.pace.written), rel=1e-6)
