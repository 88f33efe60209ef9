"""What a block keeps on a device, tensor by tensor: every expected number is worked out here, from the shapes alone.

The layer has hidden 8, 2 heads of 4, ffn 16 and RMS norms, and gets one sequence of 4 tokens. It keeps, for each token,

    x 8, attention_norm 8, query 8, key 8, value 8, attention 8, attended 8, ffn_norm 8, ffn_up 16, ffn_inner 16

in 2 bytes each, and 4 bytes for each row that a norm or a softmax runs over.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import Batch, batch_of
from cosmic.search.mapping.design_completion import load_design
from cosmic.step import block_memory
from cosmic.step.block_memory import (
    ActivationPolicy,
    activation_policy,
    elementwise_largest,
    recomputed_share,
    repeated_operators,
    saved_bytes,
    saved_tensors,
    used_elements,
    weight_elements,
)
from cosmic.workload.block_plans import BlockPlan, plan_of
from cosmic.workload.mesh_sizes import sizes_of
from cosmic.workload.precision import Recipe
from cosmic.workload.sharding.graph_partition import CollectiveOp

MODEL = {"layers": 2, "hidden": 8, "heads": 2, "ffn": 16, "vocab": 10, "norm": "rmsnorm"}
EXPERTS = {"count": 4, "active": 2, "ffn": 4}
LATENT = {"q_lora_rank": 3, "kv_lora_rank": 6, "qk_rope_head_dim": 2, "v_head_dim": 5}
AXES = {"dp": 1, "tp": 1, "cp": 1, "pp": 1, "ep": 1}
PLAIN = {"sequence": 4, "micro_batch": 1, "recompute": "none", "weight_sharding": "none", "sequence_parallel": False}
TWO_BYTES = Recipe(weight=2, gradient=4, master=4, moments=8, activation=2)


def batch(model: dict[str, Any] | None = None, **workload: Any) -> Batch:
    """Return the tiny model, changed by *model*, on as many accelerators as the mapping needs."""
    work = {**AXES, **PLAIN, **workload}
    work.setdefault("global_batch", work["dp"] * work["micro_batch"])
    npus = work["dp"] * work["tp"] * work["cp"] * work["pp"]
    dims = [{"topology": "switch", "npus": npus, "bandwidth": "100 GB/s", "latency": "1 us"}] if npus > 1 else []
    tree = {
        "model": model if model and "tables" in model else {**MODEL, **(model or {})},
        "compute": {"bf16": "100 TFLOP/s"},
        "memory": {"capacity": "1 GiB", "bandwidth": "1 TB/s"},
        "network": {"dims": dims},
        "workload": work,
    }
    return batch_of(load_design(tree))


def block(found: Batch, name: str = "layer") -> BlockPlan:
    return next(each for each in plan_of(found) if each.block.name == name)


def kept(
    model: dict[str, Any] | None = None, name: str = "layer", recipe: Recipe = TWO_BYTES, **workload: Any
) -> float:
    """Return the bytes that one microbatch leaves in a block."""
    found = batch(model, **workload)
    work = found.base.workload
    statistics = 2 if getattr(found.base.model, "norm", "") == "layernorm" else 1
    keeping = activation_policy(work, block(found, name).block.part)
    return float(saved_bytes(block(found, name), keeping, sizes_of(found), recipe, statistics))


def names(recompute: str, model: dict[str, Any] | None = None, name: str = "layer", **keeping: Any) -> list[str]:
    found = saved_tensors(block(batch(model), name).block, ActivationPolicy(recompute, **keeping))
    return [tensor.name for tensor in found]


def elements(model: dict[str, Any] | None = None, name: str = "layer", split: bool = False, **workload: Any) -> float:
    found = batch(model, **workload)
    return float(weight_elements(block(found, name), sizes_of(found), split))


def used(weight: str, model: dict[str, Any] | None = None, name: str = "layer", **workload: Any) -> float:
    found = batch(model, **workload)
    each = block(found, name)
    return float(used_elements(each, each.block.graph.tensors[weight], sizes_of(found)))


# ---- weights


def test_a_weight_in_use_is_split_over_tensor_and_expert_parallel_ranks_only() -> None:
    assert used("w_ffn_up") == used("w_ffn_up", dp=2, cp=2) == 8 * 16
    assert used("w_ffn_up", tp=2) == 8 * 8
    assert used("w_ffn_up", dp=2, weight_sharding="zero3") == 8 * 16
    assert used("w_ffn_up", dp=2, tp=2, weight_sharding="zero3") == 8 * 8
    moe = {"experts": EXPERTS}
    assert used("w_expert_ffn_up", moe, "moe_layer", dp=2, ep=2) == 2 * 8 * 4
    assert used("w_expert_ffn_up", moe, "moe_layer", dp=2) == 4 * 8 * 4
    assert used("w_expert_ffn_up", moe, "moe_layer", dp=2, ep=2, weight_sharding="zero3") == 2 * 8 * 4


def test_the_weights_of_a_block_are_the_sum_of_its_tensors() -> None:
    assert elements() == 2 * 8 + 4 * 64 + 2 * 128
    assert elements(tp=2) == 2 * 8 + 4 * 32 + 2 * 64
    assert elements({"norm": "layernorm", "gated": True, "biases": ["qkv", "out", "ffn"]}) == (
        2 * 16 + 4 * (64 + 8) + 3 * 128 + 2 * 16 + 8
    )
    assert elements(name="embedding") == 80
    assert elements(name="head") == 88


def test_some_weights_can_be_counted_by_their_names() -> None:
    found = batch()
    layer, sizes = block(found), sizes_of(found)
    assert weight_elements(layer, sizes, False, only=frozenset(("w_q", "w_ffn_up"))) == 64 + 128
    assert weight_elements(layer, sizes, False, only=frozenset()) == 0


def test_replicas_share_weights_and_fewer_share_experts() -> None:
    """Of 8 replicas, 4 hold each expert where two ranks share them out."""
    assert elements(dp=2, cp=2, split=True) == 528 / 4
    moe = elements({"experts": EXPERTS}, "moe_layer", dp=4, cp=2, ep=2, split=True)
    assert moe == (16 + 256 + 32) / 8 + 2 * 2 * 8 * 4 / 4


def test_a_table_has_no_replica() -> None:
    model = {
        "family": "recommender",
        "dense_features": 4,
        "tables": [6, 10],
        "embedding": 2,
        "bottom": [3, 2],
        "top": [3, 1],
    }
    found = batch(model, dp=2, micro_batch=4, sequence=1)
    each, sizes = block(found, "model"), sizes_of(found)
    assert weight_elements(each, sizes, True, only=frozenset(("w_tables",))) == 1 * 8 * 2
    assert weight_elements(each, sizes, True, only=frozenset(("w_bottom_0",))) == 4 * 3 / 2


# ---- what is kept

ALL_KEPT = ["x", "attention_norm", "query", "key", "value", "attention", "leaving", "attended", "ffn_norm", "ffn_up"]
ALL_KEPT += ["ffn_inner"]


def test_a_layer_keeps_what_its_backward_operators_read() -> None:
    """Adding, rotating and renaming read nothing; three projections read one norm."""
    assert names("none") == ALL_KEPT


def test_full_recomputation_keeps_the_input_alone() -> None:
    assert names("full") == ["x"]


def test_alternate_recomputation_keeps_every_second_gemm_and_attention() -> None:
    assert names("alternate") == ["x", "k", "out", "ffn_down", "attention"]


def test_an_eager_gate_keeps_both_sides_and_both_before_them() -> None:
    gated = ["attended", "ffn_norm", "ffn_gate", "ffn_gate_open", "ffn_up", "ffn_inner"]
    assert sorted(names("none", {"gated": True}, execution="eager")[-6:]) == sorted(gated)


@pytest.mark.parametrize("execution", ["fused", "compiled"])
def test_a_fused_gate_keeps_what_enters_it_alone(execution: str) -> None:
    """The backward kernel opens the gate again on its way. What the next GEMM reads is kept."""
    found = names("none", {"gated": True}, execution=execution)
    assert {"ffn_gate", "ffn_up", "ffn_inner"} < set(found)
    assert "ffn_gate_open" not in found
    assert kept({"gated": True}, execution=execution) == 832 + 4 * 2 * 16
    assert kept({"gated": True}, execution="eager") == 832 + 4 * 2 * 2 * 16


def test_offsets_are_added_again_in_a_fused_kernel() -> None:
    """What enters is the GEMM's output, as large."""
    model = {"biases": ["ffn"]}
    assert "ffn_up" in names("none", model)
    assert "ffn_up_biased" in names("none", model, execution="eager")
    assert kept(model) == kept(model, execution="eager") == 832


# ---- recomputed modules


def dropped(module: str, model: dict[str, Any] | None = None, name: str = "layer") -> tuple[set[str], set[str]]:
    """Return what is no longer kept, and what is kept instead, where a module is recomputed."""
    before, after = set(names("none", model, name)), set(names("selective", model, name, modules=(module,)))
    return before - after, after - before


def test_the_core_of_attention_keeps_its_inputs_and_what_the_next_gemm_reads() -> None:
    """*leaving* is *attention* under another name; the log-sum-exp of each row is not kept."""
    assert dropped("core_attn") == ({"attention"}, set())
    assert kept(recompute="selective") == 832 - 4 * 2 * 4


def test_norms_are_made_again_from_what_enters_them() -> None:
    assert dropped("layernorm") == ({"attention_norm", "ffn_norm"}, set())
    assert kept(recompute="selective", recompute_modules=["layernorm"]) == 832 - 4 * (2 * 16 + 2 * 4)


def test_a_dense_network_keeps_what_enters_its_norm() -> None:
    assert dropped("mlp") == ({"ffn_norm", "ffn_up", "ffn_inner"}, set())
    assert dropped("mlp", {"experts": EXPERTS}, "moe_layer") == (set(), set())


def test_the_up_projections_of_mla_keep_the_compressed_vectors_and_the_position() -> None:
    """Queries, keys and values of 12, 12 and 10 numbers go, a position of 2 comes; the norms of 3 and 6 go too."""
    lost, instead = dropped("mla_up_proj", {"mla": LATENT})
    assert lost == {"q_down_norm", "kv_down_norm", "query", "key", "value"}
    assert instead == {"k_position"}
    whole = kept({"mla": LATENT})
    assert kept({"mla": LATENT}, recompute="selective", recompute_modules=["mla_up_proj"]) == whole - 4 * (
        2 * (3 + 6 + 12 + 12 + 10 - 2) + 2 * 4
    )
    assert dropped("mla_up_proj") == (set(), set())


SHARED = {"experts": {**EXPERTS, "shared_ffn": 6}, "gated": True}


def test_the_activation_function_of_experts_is_made_again_from_its_inputs() -> None:
    assert dropped("moe_act", SHARED, "moe_layer") == ({"expert_ffn_inner"}, set())
    assert dropped("moe_act") == (set(), set())


def test_shared_experts_keep_what_enters_them() -> None:
    assert dropped("shared_experts", SHARED, "moe_layer") == (
        {"shared_ffn_gate", "shared_ffn_up", "shared_ffn_inner"},
        set(),
    )


def test_a_layer_of_experts_keeps_what_enters_it() -> None:
    lost, instead = dropped("moe", SHARED, "moe_layer")
    inside = {"expert_ffn_gate", "expert_ffn_up", "expert_ffn_inner", "sent", "chosen"}
    assert lost == inside | {"shared_ffn_gate", "shared_ffn_up", "shared_ffn_inner"}
    assert instead == set()


def test_modules_can_be_recomputed_together() -> None:
    one = names("selective", SHARED, "moe_layer", modules=("layernorm", "moe_act"))
    assert set(names("none", SHARED, "moe_layer")) - set(one) == {"attention_norm", "ffn_norm", "expert_ffn_inner"}


def test_what_a_recomputed_module_reads_may_be_made_again_itself() -> None:
    """The experts read a norm that is made again."""
    one = names("selective", {"experts": EXPERTS}, "moe_layer", modules=("layernorm", "moe"))
    assert "ffn_norm" not in one


# ---- narrow activations

EIGHT_BITS = Recipe(weight=2, gradient=2, master=4, moments=8, activation=2, saved=1.0)


def test_gemms_of_eight_bits_keep_their_inputs_in_eight_bits() -> None:
    """Both norms (8 each) and the inner activation (16) are read by GEMMs alone; attention's output is kept twice."""
    assert kept(recipe=EIGHT_BITS) == 832 - 4 * (8 + 8 + 16) + 4 * 8


def test_a_router_and_the_head_read_sixteen_bits() -> None:
    """The second norm of a layer of experts goes to its router, and to shared experts in eight bits besides."""
    wide = kept({"experts": EXPERTS}, "moe_layer")
    assert kept({"experts": EXPERTS}, "moe_layer", EIGHT_BITS) == wide - 4 * (8 - 8 + 2 * 8 + 2 * 4)
    shared = {"experts": {**EXPERTS, "shared_ffn": 6}}
    assert kept(shared, "moe_layer", EIGHT_BITS) == kept(shared, "moe_layer") - 4 * (8 - 8 - 8 + 2 * 8 + 2 * 4 + 6)
    assert kept(name="head", recipe=EIGHT_BITS) == kept(name="head")


@pytest.mark.parametrize("execution", ["eager", "compiled"])
def test_without_fused_casts_activations_stay_as_they_were_made(execution: str) -> None:
    assert kept(recipe=EIGHT_BITS, execution=execution) == 832


PER_TOKEN = 8 * 8 + 2 * 16


def test_a_layer_keeps_96_numbers_a_token_and_a_statistic_a_row() -> None:
    assert kept() == 4 * (2 * PER_TOKEN + 2 * 4 + 2 * 4) == 832
    assert kept(micro_batch=3) == 3 * 832
    assert kept(dp=2) == 832


def test_activations_have_the_bytes_of_their_format() -> None:
    found = batch()
    four = Recipe(weight=4, gradient=4, master=0, moments=8, activation=4)
    assert saved_bytes(block(found), ActivationPolicy(), sizes_of(found), four) == 4 * (4 * PER_TOKEN + 16)


def test_a_layer_norm_keeps_a_mean_and_a_variance() -> None:
    assert kept({"norm": "layernorm"}) == 4 * (2 * PER_TOKEN + 2 * 8 + 2 * 4)
    assert kept({"norm": "layernorm", "norm_bias": False}) == kept({"norm": "layernorm"})


def test_norms_of_heads_keep_a_row_for_each_head() -> None:
    """Queries and keys before their norms, too: 16 numbers a token."""
    assert kept({"qk_norm": True}) == 4 * (2 * (PER_TOKEN + 16) + 2 * 4 + 2 * 2 * 4 + 2 * 4)


def test_unfused_attention_keeps_five_bytes_a_score() -> None:
    assert kept(attention="unfused") == 4 * (2 * PER_TOKEN + 8) + 5 * 2 * 4 * 4
    assert kept(attention="unfused", sequence=8) == 8 * (2 * PER_TOKEN + 8) + 5 * 2 * 8 * 8
    assert kept(attention="unfused", recompute="selective") == kept(recompute="selective") == 800


def test_each_rank_keeps_the_scores_of_its_queries_and_heads() -> None:
    assert kept(attention="unfused", cp=2) == 2 * (2 * PER_TOKEN + 8) + 5 * 2 * 2 * 4
    assert kept(attention="unfused", tp=2) == 4 * (2 * (4 * 8 + 4 * 4 + 16) + 8) + 5 * 1 * 4 * 4


def test_recomputed_layers_keep_no_statistics() -> None:
    assert kept(recompute="full") == 4 * 8 * 2
    assert kept(recompute="alternate") == 4 * 5 * 8 * 2
    assert kept(recompute="full", attention="unfused") == 4 * 8 * 2


def test_dropout_keeps_a_mask_of_a_byte_after_attention_and_after_the_feed_forward_network() -> None:
    assert kept(dropout=True) == 832 + 2 * 4 * 8


def test_grouped_heads_keep_fewer_keys_and_values() -> None:
    assert kept({"kv_heads": 1}) == 832 - 4 * 2 * 4 * 2


def test_the_head_keeps_its_input_and_its_norm() -> None:
    assert kept(name="head") == 4 * (2 * 16 + 4)
    assert kept(name="embedding") == 0


def test_experts_keep_what_is_sent_and_chosen_and_eager_ones_what_they_return() -> None:
    layer = 4 * (2 * (8 * 8 + 2 + 2 * (8 + 4 + 4)) + 16)
    assert kept({"experts": EXPERTS}, "moe_layer") == layer
    assert kept({"experts": EXPERTS}, "moe_layer", dp=4, ep=2) == layer
    assert kept({"experts": EXPERTS}, "moe_layer", execution="eager") == layer + 4 * 2 * 2 * 8


def test_mla_keeps_the_compressed_vectors_and_the_heads_made_of_them() -> None:
    """Before and after their norms 2 · 3 and 2 · 6; queries and keys 2 · 6 each, values and attention 2 · 5 each."""
    per_token = 8 + 8 + 6 + 12 + 12 + 12 + 10 + 10 + 8 + 8 + 16 + 16
    assert per_token == 126
    assert kept({"mla": LATENT}) == 4 * (2 * 126 + 4 * 4 + 2 * 4)


def test_a_decoder_that_reads_an_encoder_keeps_a_second_attention() -> None:
    """It keeps the stream between, its norm, what the encoder made, queries, keys, values and attention again."""
    model = {"family": "encoder_decoder", "encoder_layers": 1, "layers": 1}
    assert kept(model, "encoder_layer") == 832
    assert kept(model) == 832 + 4 * (2 * 7 * 8 + 4 + 2 * 4)


# ---- views


def test_a_view_of_what_is_kept_is_counted_once() -> None:
    """*leaving* is *attention* under another name: 96 numbers a token, not 104."""
    assert "leaving" in names("none")
    assert kept() == 832


def test_a_view_that_is_split_in_another_way_is_a_copy() -> None:
    """Ulysses has all tokens of one head inside attention, and half of the tokens of all heads after it."""
    outside, inside, leaving = 2 * (4 * 8 + 2 * 16), 4 * (4 * 1 * 4), 2 * 2 * 4
    assert kept(cp=2, cp_comm_type="ulysses") == 2 * (outside + inside + leaving) + 2 * 2 * 4 + 4 * 4
    assert kept(cp=2) == 416


def test_a_view_of_what_is_not_kept_is_counted() -> None:
    """Queries are kept as attention reads them, after their rotation, which keeps nothing."""
    assert "q" not in names("none")
    assert "q_placed" not in names("none")


# ---- wide gradients


def wide(model: dict[str, Any] | None = None, name: str = "layer", **workload: Any) -> float:
    found = batch(model, **workload)
    return float(
        block_memory.wide_elements(block(found, name), activation_policy(found.base.workload), sizes_of(found))
    )


def test_the_gradients_alive_together_are_those_of_the_input_and_of_wide_activations() -> None:
    assert wide() == 4 * (8 + 16 + 16)
    assert wide({"gated": True}) == 4 * (8 + 3 * 16)
    assert wide({"gated": True}, execution="eager") == 4 * (8 + 4 * 16)
    assert wide(tp=2) == 4 * (8 + 8 + 8)
    assert wide({"experts": EXPERTS}, "moe_layer") == 4 * (8 + 2 * 4 + 2 * 4)
    assert wide({"experts": {**EXPERTS, "shared_ffn": 6}}, "moe_layer") == 4 * (8 + 2 * 8 + 6 + 6)


def test_the_largest_of_nothing_is_nothing() -> None:
    assert elementwise_largest([]) == 0
    assert elementwise_largest([2.0, 5.0, 3.0]) == 5
    assert np.asarray(elementwise_largest([np.array([1, 4]), np.array([2, 3])])).tolist() == [2, 4]


# ---- recomputation

BEFORE_DOWN = {"attention_norm", "q", "k", "v", "q_placed", "k_placed", "query", "key", "value", "attention"}
BEFORE_DOWN |= {"leaving", "out", "attended", "ffn_norm", "ffn_up", "ffn_inner"}
"""Every operator of a layer but its last GEMM and the sum after it."""


def again(model: dict[str, Any] | None = None, name: str = "layer", **workload: Any) -> frozenset[str]:
    found = batch(model, **workload)
    return repeated_operators(block(found, name).block, found.base.workload)


def test_nothing_runs_again_where_everything_is_kept() -> None:
    assert again() == frozenset()
    assert again(recompute="none", attention="unfused") == frozenset()


def test_a_recomputed_layer_runs_up_to_the_last_operator_that_is_read() -> None:
    assert again(recompute="full") == BEFORE_DOWN


def test_a_recomputed_layer_may_run_to_its_end() -> None:
    assert again(recompute="full", recompute_to_end=True) == BEFORE_DOWN | {"ffn_down", "y"}


def test_dropout_after_the_last_gemm_makes_it_run_again() -> None:
    """The mask is kept beside the output, so that both run."""
    assert again(recompute="full", dropout=True) == BEFORE_DOWN | {"attention_dropped", "ffn_down", "ffn_dropped"}


def test_alternate_recomputation_runs_what_it_does_not_keep() -> None:
    assert again(recompute="alternate") == BEFORE_DOWN - {"k", "out", "attention"}
    assert again(recompute="alternate", recompute_to_end=True) == BEFORE_DOWN - {"k", "out", "attention"} | {"y"}


def test_selective_recomputation_runs_its_modules_again() -> None:
    assert again(recompute="selective") == again(recompute="selective", attention="unfused") == {"attention"}
    assert again(recompute="selective", recompute_modules=["layernorm"]) == {"attention_norm", "ffn_norm"}
    assert again(recompute="selective", recompute_modules=["mlp"]) == {"ffn_norm", "ffn_up", "ffn_inner", "ffn_down"}
    assert again(recompute="selective", recompute_modules=[]) == frozenset()
    assert again(recompute="full", attention="fused") == again(recompute="full", attention="unfused") == BEFORE_DOWN


def test_the_modules_of_experts_run_again_with_what_is_sent() -> None:
    moe = again({"experts": EXPERTS}, "moe_layer", recompute="selective", recompute_modules=["moe"])
    inside = {"router", "chosen", "sent", "expert_ffn_up", "expert_ffn_inner", "expert_down", "combined"}
    assert moe == inside
    act = again({"experts": EXPERTS}, "moe_layer", recompute="selective", recompute_modules=["moe_act"])
    assert act == {"expert_ffn_inner"}


def share(**workload: Any) -> float:
    found = batch({"layers": 6}, recompute="full", **workload)
    return float(np.asarray(recomputed_share(found, block(found).block)))


def test_the_share_of_layers_that_recompute_is_of_all_stages() -> None:
    """Six layers: two each on three stages; on four 2, 2, 1 and 1."""
    assert share() == share(pp=3) == 1
    assert share(recompute_num_layers=3) == 0.5
    assert share(pp=3, recompute_num_layers=1) == 0.5
    assert share(pp=4, recompute_num_layers=1) == 4 / 6
    assert share(pp=4, recompute_num_layers=0) == 0
    halves = {"pp": 2, "schedule": "interleaved", "virtual_stages": 2, "global_batch": 2}
    assert share(**halves, recompute_num_layers=1) == 4 / 6


def test_the_share_of_layers_that_recompute_follows_stated_layers() -> None:
    """Six layers on three stages: 4, 1 and 1, or 0, 3 and 3."""
    assert share(pp=3, recompute_num_layers=2, first_stage_layers=4) == (2 + 1 + 1) / 6
    assert share(pp=3, recompute_num_layers=2, first_stage_layers=0) == (2 + 2) / 6


def test_layers_behind_many_stages_of_another_kind_recompute_too() -> None:
    """Six encoder layers on six stages come before both decoder layers, each of which recomputes."""
    model = {"family": "encoder_decoder", "encoder_layers": 6, "layers": 2, "position_buckets": 4}
    found = batch(model, recompute="full", pp=8, recompute_num_layers=1)
    assert float(np.asarray(recomputed_share(found, block(found).block))) == 1


def test_only_layers_run_again_and_only_in_training() -> None:
    assert again(recompute="full", name="head") == frozenset()
    assert again(recompute="full", task="prefill") == frozenset()


def collective(operator: str, phase: Any) -> CollectiveOp:
    found = block(batch(tp=2))
    first = found.partitioned.collectives[0]
    return CollectiveOp("all_reduce", ("tp",), "out", ("hidden",), first.sharding, operator, "output", phase, "because")


@pytest.mark.parametrize(
    ("operator", "phase", "runs"),
    [("out", "forward", True), ("ffn_down", "forward", False), ("out", "backward", False)],
)
def test_a_collective_runs_again_with_the_forward_operator_that_needs_it(operator: str, phase: str, runs: bool) -> None:
    found = batch(tp=2, recompute="full")
    one = collective(operator, phase)
    assert block_memory.is_collective_repeated(one, block(found).block, found.base.workload) is runs
