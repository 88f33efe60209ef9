"""Flop, bytes, runs and kernels of every operator of a tiny design, counted by hand.

Unless a test says otherwise: 4 tokens, hidden 8, 2 heads of 4, ffn 16, vocabulary 10, 2 bytes a number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import batch_of, batch_of_changes
from cosmic.design.model_layer import MLA, Experts, Image, Model, Recommender, Transformer
from cosmic.step.attention import Attention
from cosmic.step.gemm import Gemm
from cosmic.step.operator_work import (
    KernelShape,
    OperatorUse,
    attention_shape,
    kernel_shape,
    list_operators,
    model_flop_per_token,
)
from cosmic.workload.block_plans import plan_of
from cosmic.workload.mesh_sizes import sizes_of
from cosmic.workload.operator_graph import Operator, Tensor
from cosmic.workload.sharding.graph_partition import PartitionedOperator, Transfer
from cosmic.workload.sharding.resharding import Step
from cosmic.workload.sharding.tensor_sharding import Sharding
from cosmic.workload.user_programs.program_models import model_of
from cosmic.workload.user_programs.program_yaml import read_program
from tests.step.tiny import MODEL, batch, point

FOUR_EXPERTS = Experts(count=4, active=2, ffn=6)
COMPRESSED = MLA(kv_lora_rank=6, qk_rope_head_dim=2, v_head_dim=3)


def uses(**changes: Any) -> dict[tuple[str, str], OperatorUse]:
    """Return the operators of a tiny design, by name and phase."""
    return {(use.name, use.phase): use for use in list_operators(batch(**changes))}


def forward(name: str, **changes: Any) -> OperatorUse:
    return uses(**changes)[name, "forward"]


def gemm(name: str, **changes: Any) -> Gemm:
    shape = forward(name, **changes).kernel.shape
    assert isinstance(shape, Gemm)
    return shape


def attention(**changes: Any) -> Attention:
    shape = forward("attention", **changes).kernel.shape
    assert isinstance(shape, Attention)
    return shape


# ---- flop and bytes

DENSE = [
    # operator, kind, block, flop, elements moved
    ("embedded", "embedding", "embedding", 0, 4 + 4 * 8),  # indices, and the rows that they select
    ("attention_norm", "norm", "layer", 5 * 4 * 8, 4 * 8 + 8 + 4 * 8),
    ("q", "einsum", "layer", 2 * 4 * 8 * 8, 4 * 8 + 8 * 8 + 4 * 8),
    ("k", "einsum", "layer", 2 * 4 * 8 * 8, 4 * 8 + 8 * 8 + 4 * 8),
    ("v", "einsum", "layer", 2 * 4 * 8 * 8, 4 * 8 + 8 * 8 + 4 * 8),
    ("q_placed", "rope", "layer", 3 * 4 * 8, 4 * 8 + 4 * 8),
    ("k_placed", "rope", "layer", 3 * 4 * 8, 4 * 8 + 4 * 8),
    # Query i sees i keys: 1 + 2 + 3 + 4 pairs a head, 2 flop for each of 4 columns of keys and 4 of values.
    ("attention", "attention", "layer", 2 * (1 + 2 + 3 + 4) * 2 * (4 + 4), 4 * 4 * 8),
    ("out", "einsum", "layer", 2 * 4 * 8 * 8, 4 * 8 + 8 * 8 + 4 * 8),
    ("attended", "add", "layer", 4 * 8, 3 * 4 * 8),
    ("ffn_norm", "norm", "layer", 5 * 4 * 8, 4 * 8 + 8 + 4 * 8),
    ("ffn_up", "einsum", "layer", 2 * 4 * 8 * 16, 4 * 8 + 8 * 16 + 4 * 16),
    ("ffn_inner", "gelu", "layer", 8 * 4 * 16, 2 * 4 * 16),
    ("ffn_down", "einsum", "layer", 2 * 4 * 16 * 8, 4 * 16 + 16 * 8 + 4 * 8),
    ("y", "add", "layer", 4 * 8, 3 * 4 * 8),
    ("final_norm", "norm", "head", 5 * 4 * 8, 4 * 8 + 8 + 4 * 8),
    ("logits", "einsum", "head", 2 * 4 * 8 * 10, 4 * 8 + 8 * 10 + 4 * 10),
    ("loss", "loss", "head", 5 * 4, 4 * 10 + 4),
]


def test_each_operator_of_a_dense_layer_has_its_flop_and_bytes() -> None:
    found = [use for use in list_operators(batch()) if use.phase == "forward"]
    assert [(use.name, use.kind, use.block, use.flop, use.bytes) for use in found] == [
        (name, kind, block, flop, 2 * elements) for name, kind, block, flop, elements in DENSE
    ]


def test_the_backward_pass_has_twice_the_flop_and_the_bytes_of_the_forward_pass() -> None:
    found = [use for use in list_operators(batch()) if use.phase == "backward"]
    assert [(use.name, use.flop, use.bytes) for use in found] == [
        (name, 2 * flop, 2 * 2 * elements) for name, _, _, flop, elements in DENSE
    ]


def test_serving_has_no_backward_pass() -> None:
    for task in ("prefill", "decode"):
        assert {use.phase for use in list_operators(batch(task=task))} == {"forward"}


@pytest.mark.parametrize(
    ("name", "model", "workload", "flop", "elements"),
    [
        ("ffn_gate", {"gated": True}, {}, 2 * 4 * 8 * 16, 4 * 8 + 8 * 16 + 4 * 16),
        ("ffn_gate_open", {"gated": True}, {}, 4 * 4 * 16, 2 * 4 * 16),
        ("ffn_inner", {"gated": True}, {}, 4 * 16, 3 * 4 * 16),
        ("q_biased", {"biases": ("qkv",)}, {}, 4 * 8, 2 * 4 * 8 + 8),
        ("q_norm", {"qk_norm": True}, {}, 5 * 4 * 8, 2 * 4 * 8 + 4),
        ("ffn_norm", {"norm": "layernorm"}, {}, 5 * 4 * 8, 2 * 4 * 8 + 2 * 8),
        ("ffn_dropped", {}, {"dropout": True}, 4 * 8, 2 * 4 * 8),
        # 4 experts, 2 for a token: 4 scores a token, 2 choices, 8 slots of 8 numbers.
        ("router", {"experts": FOUR_EXPERTS}, {}, 2 * 4 * 8 * 4, 4 * 8 + 8 * 4 + 4 * 4),
        ("chosen", {"experts": FOUR_EXPERTS}, {}, 10 * 4 * 2, 4 * 4 + 4 * 2),
        ("sent", {"experts": FOUR_EXPERTS}, {}, 0, 4 * 8 + 4 * 2 + 8 * 8),
        ("expert_ffn_up", {"experts": FOUR_EXPERTS}, {}, 2 * 8 * 8 * 6, 8 * 8 + 4 * 8 * 6 + 8 * 6),
        ("expert_down", {"experts": FOUR_EXPERTS}, {}, 2 * 8 * 6 * 8, 8 * 6 + 4 * 6 * 8 + 8 * 8),
        ("combined", {"experts": FOUR_EXPERTS}, {}, 2 * 4 * 8, 8 * 8 + 4 * 2 + 4 * 8),
        # MLA: keys of 4 + 2 columns, values of 3, all heads' from 6 columns a token.
        ("q", {"mla": COMPRESSED}, {}, 2 * 4 * 8 * (2 * 6), 4 * 8 + 8 * 12 + 4 * 12),
        ("kv_down", {"mla": COMPRESSED}, {}, 2 * 4 * 8 * 6, 4 * 8 + 8 * 6 + 4 * 6),
        ("k_position", {"mla": COMPRESSED}, {}, 2 * 4 * 8 * 2, 4 * 8 + 8 * 2 + 4 * 2),
        ("k_up", {"mla": COMPRESSED}, {}, 2 * 4 * 6 * (2 * 4), 4 * 6 + 6 * 8 + 4 * 8),
        ("v_up", {"mla": COMPRESSED}, {}, 2 * 4 * 6 * (2 * 3), 4 * 6 + 6 * 6 + 4 * 6),
        ("attention", {"mla": COMPRESSED}, {}, 2 * 10 * 2 * (6 + 3), 2 * 4 * (6 + 6 + 3 + 3)),
        ("out", {"mla": COMPRESSED}, {}, 2 * 4 * (2 * 3) * 8, 4 * 6 + 6 * 8 + 4 * 8),
        # One head of keys and values for both of queries.
        ("k", {"kv_heads": 1}, {}, 2 * 4 * 8 * 4, 4 * 8 + 8 * 4 + 4 * 4),
        ("attention", {"kv_heads": 1}, {}, 2 * 10 * 2 * (4 + 4), 4 * 8 + 2 * 4 * 4 + 4 * 8),
        # An encoder attends to everything; a window of 2 shows 1, 2, 2, 2 keys.
        ("attention", {"family": "encoder"}, {}, 2 * 16 * 2 * 8, 4 * 4 * 8),
        ("attention", {"window": 2}, {}, 2 * (1 + 2 + 2 + 2) * 2 * 8, 4 * 4 * 8),
    ],
)
def test_operators_of_other_layers_have_their_flop_and_bytes(
    name: str, model: dict[str, Any], workload: dict[str, Any], flop: float, elements: float
) -> None:
    use = forward(name, model=model, **workload)
    assert use.flop == pytest.approx(flop)
    assert use.bytes == 2 * elements


def test_numbers_in_fp32_move_twice_the_bytes() -> None:
    assert forward("y", precision="fp32").bytes == 4 * 3 * 4 * 8


def test_tensor_parallel_ranks_share_heads_ffn_and_vocabulary() -> None:
    split = {"tp": 2, "sequence_parallel": False}
    assert gemm("q", **split) == Gemm(1, 4, 4, 8)
    assert gemm("out", **split) == Gemm(1, 4, 8, 4)
    assert gemm("ffn_up", **split) == Gemm(1, 4, 8, 8)
    assert gemm("logits", **split) == Gemm(1, 4, 5, 8)
    assert forward("attention", **split).flop == 2 * 10 * 1 * 8  # one head
    assert forward("ffn_norm", **split).flop == 5 * 4 * 8
    assert forward("ffn_norm", tp=2).flop == 5 * 2 * 8  # sequence parallel: 2 of 4 tokens


def test_context_parallel_ranks_have_part_of_the_queries_and_all_keys() -> None:
    found = attention(cp=2)
    assert (found.queries, found.keys, found.visible) == (2, 4, (1 + 2 + 3 + 4) / 16)


# ---- runs


def test_an_operator_of_one_layer_runs_once_for_each_microbatch() -> None:
    found = uses(global_batch=6, dp=2)  # 3 microbatches of one sequence a replica
    assert {use.runs for use in found.values()} == {3}


def test_operators_are_those_of_one_layer_whatever_the_stages() -> None:
    found = uses(model={"layers": 7}, pp=3)
    assert {found[name, "forward"].runs for name in ("embedded", "q", "logits")} == {1}


def test_full_recomputation_runs_forward_twice_up_to_what_the_backward_pass_reads() -> None:
    found = uses(recompute="full")
    again = {name for (name, phase), use in found.items() if use.recomputed}
    once = {name for (name, phase), use in found.items() if use.block == "layer" and not use.recomputed}
    assert again == {name for name, _, block, *_ in DENSE if block == "layer"} - {"ffn_down", "y"}
    assert once >= {"ffn_down", "y"}
    assert {use.runs for use in found.values() if use.recomputed} == {2}
    assert {found[name, "forward"].runs for name in ("ffn_down", "y")} == {1}
    assert {use.runs for (_, phase), use in found.items() if use.block == "layer" and phase == "backward"} == {1}


def test_recomputation_to_the_end_runs_the_whole_layer_twice() -> None:
    found = uses(recompute="full", recompute_to_end=True)
    assert {use.runs for (_, phase), use in found.items() if use.block == "layer" and phase == "forward"} == {2}
    assert not any(use.recomputed for use in found.values() if use.phase == "backward")


def test_selective_recomputation_runs_attention_twice() -> None:
    found = uses(recompute="selective", attention="unfused")
    assert [use.name for use in found.values() if use.recomputed] == ["attention"]
    fused = uses(recompute="selective")  # as Megatron-LM does, although it keeps no scores
    assert [use.name for use in fused.values() if use.recomputed] == ["attention"]


# ---- kernels


def test_a_gemm_has_tokens_by_columns_by_rows_of_its_weight() -> None:
    assert gemm("ffn_up") == Gemm(count=1, m=4, n=16, k=8)
    assert gemm("ffn_down") == Gemm(count=1, m=4, n=8, k=16)
    assert gemm("ffn_up", micro_batch=3, global_batch=3).m == 12


def test_the_gradient_of_the_activation_and_of_the_weight_are_gemms_of_other_shapes() -> None:
    assert Gemm(3, 4, 16, 8).backward() == (Gemm(3, 4, 8, 16), Gemm(3, 8, 16, 4))


def test_views_run_no_kernel() -> None:
    assert not {"query", "key", "value", "leaving"} & {use.name for use in list_operators(batch())}


def test_gemms_that_read_one_tensor_know_the_columns_before_them() -> None:
    found = uses(model={"gated": True})
    beside = {name: found[name, "forward"].kernel.beside for name in ("q", "k", "v", "out", "ffn_up", "ffn_gate")}
    assert beside == {"q": 0, "k": 8, "v": 16, "out": 0, "ffn_up": 0, "ffn_gate": 16}
    assert [found[name, "backward"].kernel.fuses for name in ("q", "k", "out")] == [False, True, False]


def test_kernels_know_their_weight_and_their_largest_activation() -> None:
    assert forward("ffn_up").kernel.weight == "w_ffn_up"
    found = {name: forward(name).kernel.elements for name in ("embedded", "ffn_inner", "loss", "y")}
    assert found == {"embedded": 4 * 8, "ffn_inner": 4 * 16, "loss": 4 * 10, "y": 4 * 8}  # not the table of 80
    assert forward("chosen", model={"experts": FOUR_EXPERTS}).kernel.elements == 4 * 4
    assert KernelShape() == KernelShape(None, 1, 1, 0, "", 0)


def test_a_gemm_knows_over_how_many_ranks_its_input_was_split() -> None:
    split = uses(tp=2)
    ranks = {name: split[name, "forward"].kernel.gathered for name in ("q", "ffn_up", "out", "ffn_down", "logits")}
    assert ranks == {"q": 2, "ffn_up": 2, "out": 1, "ffn_down": 1, "logits": 2}
    assert forward("q", tp=2, sequence_parallel=False).kernel.gathered == 1
    assert forward("q").kernel.gathered == 1


@pytest.mark.parametrize(
    ("kind", "axes", "ranks"),
    [
        ("all_gather", ("tp",), 2),
        ("all_gather", ("tp", "cp"), 2 * 3),
        ("slice", ("tp",), 1),
        ("all_to_all", ("cp",), 1),
    ],
)
def test_only_gathers_count_as_gathered(kind: Any, axes: tuple[str, ...], ranks: int) -> None:
    read, weight = Tensor("x", ("tokens", "hidden")), Tensor("w_y", ("hidden", "ffn"), "weight")
    whole = Sharding()
    split = Transfer(read, whole, whole, (Step(kind, axes, whole, whole),))
    made = Operator("y", "einsum", (read, weight), (Tensor("y", ("tokens", "ffn")),))
    part = PartitionedOperator(made, {}, (split, Transfer(weight, whole, whole)), ())
    sizes = {"tokens": 4, "hidden": 8, "ffn": 16, "tp": 2, "cp": 3}
    assert kernel_shape(part, sizes, decoding=False) == KernelShape(Gemm(1, 4, 16, 8), gathered=ranks, weight="w_y")


def test_a_gemm_fuses_where_any_design_of_a_batch_has_columns_before_it() -> None:
    assert KernelShape(beside=np.array([0, 8])).fuses
    assert not KernelShape(beside=np.array([0, 0])).fuses


def test_sinks_do_not_change_the_shape_of_attention() -> None:
    assert attention(model={"sinks": True}) == attention()


# ---- MoE and MLA


def test_experts_that_no_token_selects_are_not_read() -> None:
    """An expert is selected by one of 4 tokens with 1 - (1 - 2/4)^4 = 15/16."""
    found = gemm("expert_ffn_up", model={"experts": FOUR_EXPERTS})
    assert found.count == pytest.approx(4 * 15 / 16)
    assert found.m == pytest.approx((4 * 2 / 4) / (15 / 16))  # 8 copies of tokens all together
    assert (found.n, found.k) == (6, 8)


def test_one_token_hits_as_many_experts_as_it_selects() -> None:
    for task in ("prefill", "decode"):
        found = gemm("expert_ffn_up", model={"experts": FOUR_EXPERTS}, task=task, sequence=1)
        assert [found.count, found.m] == pytest.approx([2, 1])


def test_experts_are_hit_by_the_tokens_of_all_ranks_that_share_them() -> None:
    """Two of 4 experts a rank, hit by the 8 tokens of both ranks: 1 - (1/2)^8 = 255/256 of them."""
    found = gemm("expert_ffn_up", model={"experts": FOUR_EXPERTS}, dp=2, ep=2)
    assert found.count == pytest.approx(2 * 255 / 256)
    assert found.m == pytest.approx(8 * 2 / 4 / (255 / 256))


def test_capacity_gives_experts_more_slots() -> None:
    spare = Experts(count=4, active=2, ffn=6, capacity_factor=1.5)
    assert forward("expert_ffn_up", model={"experts": spare}).flop == 2 * (4 * 2 * 1.5) * 8 * 6
    assert forward("sent", model={"experts": spare}).bytes == 2 * (4 * 8 + 4 * 2 + 12 * 8)
    twice = Experts(count=4, active=4, ffn=6, capacity_factor=2.0)
    found = gemm("expert_ffn_up", model={"experts": twice})
    assert (found.count, found.m) == (4, 8)  # every token to every expert, and as many slots empty


def test_mla_attends_to_expanded_keys_except_when_decoding() -> None:
    for task in ("training", "prefill"):
        found = attention(model={"mla": COMPRESSED}, task=task)
        assert (found.kv_heads, found.width, found.value_width, found.mla) == (2, 4 + 2, 3, False)
    found = attention(model={"mla": COMPRESSED}, task="decode")
    assert found == Attention(
        batch=1, heads=2, kv_heads=1, queries=1, keys=4, width=6 + 2, value_width=6, visible=1, mla=True
    )


def test_attention_is_not_decoding_unless_stated() -> None:
    made = batch(model={"mla": COMPRESSED})
    parts = next(each for each in plan_of(made) if each.block.name == "layer").partitioned.operators
    part = next(part for part in parts if part.operator.name == "attention")
    assert not attention_shape(part, {**sizes_of(made), "visible": 1.0}).mla


def test_decoding_without_mla_reads_the_keys_of_each_kv_head() -> None:
    found = attention(model={"kv_heads": 1}, task="decode", micro_batch=3, global_batch=3, sequence=6)
    assert found == Attention(batch=3, heads=2, kv_heads=1, queries=1, keys=6, width=4, value_width=4, visible=1)


# ---- bytes of serving


@pytest.mark.parametrize(
    ("precision", "weight"),
    [("bf16", 2.0), ("fp8", 1.0), ("fp4", 0.5 + 1 / 16), ("int4", 0.5 + 2 / 32)],
)
def test_serving_reads_weights_in_their_format_and_activations_in_16_bits(precision: str, weight: float) -> None:
    found = uses(task="prefill", precision=precision)
    assert found["ffn_up", "forward"].bytes == weight * 8 * 16 + 2 * 4 * (8 + 16)
    assert found["logits", "forward"].bytes == 2 * (
        8 * 10 + 1 * (8 + 10)
    )  # the head stays in 16 bits, for the last token
    assert found["attention", "forward"].bytes == 2 * 4 * 4 * 8
    assert found["y", "forward"].bytes == 2 * 3 * 4 * 8


@pytest.mark.parametrize(("precision", "weight", "attention_weight"), [("fp8", 1, 1), ("fp4", 0.5625, 2)])
def test_formats_below_8_bits_leave_the_attention_of_an_moe_in_16(
    precision: str, weight: float, attention_weight: float
) -> None:
    found = uses(task="prefill", precision=precision, model={"experts": FOUR_EXPERTS})
    hit = 4 * (1 - 0.5 / (1 + 3))  # some experts are more popular than others
    each = weight * 8 * 6 + 2 * (2 * 4 / hit) * (8 + 6)
    assert found["expert_ffn_up", "forward"].bytes == pytest.approx(hit * each)
    assert found["q", "forward"].bytes == attention_weight * 64 + 2 * 4 * 16
    assert found["router", "forward"].bytes == 2 * (8 * 4 + 4 * (8 + 4))


@pytest.mark.parametrize(("precision", "dtype", "cache"), [("fp8", "bf16", 2), ("bf16", "fp8", 1), ("fp8", "auto", 1)])
def test_the_kv_cache_may_have_a_format_of_its_own(precision: str, dtype: str, cache: float) -> None:
    changes = {"task": "decode", "precision": precision, "sequence": 6, "cache_dtype": dtype}
    found = forward("attention", model={"kv_heads": 1}, **changes)
    assert found.bytes == cache * 6 * (4 + 4) + 2 * 2 * (4 + 4)


@pytest.mark.parametrize(("precision", "cache"), [("fp32", 4), ("bf16", 2), ("fp8", 1), ("fp4", 1), ("int4", 2)])
def test_decoding_reads_the_kv_cache_in_its_format(precision: str, cache: float) -> None:
    wide = 4 if precision == "fp32" else 2
    cached = 6 * (4 + 4)  # one KV head, 6 tokens, keys and values
    own = 2 * (4 + 4)  # a query and a result of each head
    model = {"kv_heads": 1}
    changes = {"task": "decode", "precision": precision, "sequence": 6, "micro_batch": 2, "global_batch": 2}
    found = forward("attention", model=model, **changes)
    assert found.bytes == 2 * (cache * cached + wide * own)
    windowed = forward("attention", model=model | {"window": 3}, **changes)
    assert windowed.bytes == 2 * (cache * cached / 2 + wide * own)
    every_head = forward("attention", **changes)
    assert every_head.bytes == 2 * (cache * 2 * cached + wide * own)


def test_decoding_with_mla_reads_one_compressed_vector_a_token() -> None:
    found = forward("attention", task="decode", model={"mla": COMPRESSED})
    assert found.bytes == 2 * (4 * (6 + 2) + 2 * (8 + 6))


# ---- flop of a model

LAYER = 2 * (4 * 8 * 8 + 2 * 8 * 16)
"""Flop of a layer's GEMMs for a token."""
HEAD = 2 * 8 * 10


def per_token(sequence: int = 4, *, training: bool = True, decoding: bool = False, **model: Any) -> float:
    made = Transformer(**MODEL | model)
    return float(model_flop_per_token(made, sequence, training=training, decoding=decoding))


def test_a_token_costs_three_times_its_forward_pass_to_train() -> None:
    attended = 2 * 10 * 2 * 8 / 4  # 10 pairs a head and 4 tokens
    assert per_token(training=False) == 2 * (LAYER + attended) + HEAD
    assert per_token() == 3 * (2 * (LAYER + attended) + HEAD)


def test_a_decoded_token_attends_to_the_whole_sequence() -> None:
    assert per_token(6, training=False, decoding=True) == 2 * (LAYER + 2 * 6 * 2 * 8) + HEAD


def test_an_encoder_attends_to_everything() -> None:
    assert per_token(training=False, family="encoder") == 2 * (LAYER + 2 * 4 * 2 * 8) + HEAD


def test_an_encoder_beside_a_decoder_attends_to_everything() -> None:
    both: dict[str, Any] = {"family": "encoder_decoder", "position_buckets": 4}
    more, fewer = (per_token(training=False, encoder_layers=layers, **both) for layers in (3, 2))
    assert more - fewer == LAYER + 2 * 4 * 2 * 8


def test_a_picture_is_patches_and_its_class_is_read_once() -> None:
    """4 patches of 3 x 2 x 2 numbers; the head reads one vector for 4 tokens."""
    image = Image(size=4, patch=2, class_token=False)
    patches = 2 * 12 * 8
    found = per_token(training=False, family="vision", image=image)
    assert found == patches + 2 * (LAYER + 2 * 4 * 2 * 8) + HEAD / 4


def test_a_token_of_an_moe_costs_the_experts_that_it_selects() -> None:
    expert = 2 * (2 * 8 * 6)
    found = per_token(training=False, experts=FOUR_EXPERTS)
    layer = 2 * 4 * 8 * 8 + 2 * 8 * 4 + 2 * expert + 2 * 10 * 2 * 8 / 4
    assert found == 2 * layer + HEAD


ENCODED: dict[str, Any] = {"family": "encoder_decoder", "encoder_layers": 2, "position_buckets": 4}


def test_a_decoder_attends_to_all_of_the_source() -> None:
    """The mask hides later tokens of its own sequence: 10 of 16 pairs; of the encoder's it hides none."""
    found = uses(model=ENCODED)
    assert found["attention", "forward"].flop == 2 * 10 * 2 * 8
    assert found["cross_attention", "forward"].flop == 2 * 16 * 2 * 8
    shape = found["cross_attention", "forward"].kernel.shape
    assert isinstance(shape, Attention)
    assert shape.visible == 1.0
    cross = 2 * 4 * 8 * 8 + 2 * 4 * 2 * 8  # of a token: q, k, v, out; all 4 keys
    attended = 2 * 10 * 2 * 8 / 4
    encoder = 2 * (LAYER + 2 * 4 * 2 * 8)
    assert per_token(training=False, **ENCODED) == encoder + 2 * (LAYER + attended + cross) + HEAD


def test_a_decoded_token_finds_the_source_encoded_and_its_keys_and_values_cached() -> None:
    found = uses(model=ENCODED, task="decode")
    blocks = {use.block for use in found.values()}
    assert blocks == {"embedding", "layer", "head"}
    names = {name for name, _ in found}
    assert {"cross_q", "cross_attention", "cross_out"} <= names
    assert not names & {"cross_k", "cross_v", "encoder_final_norm"}
    cross = 2 * 2 * 8 * 8 + 2 * 4 * 2 * 8
    assert per_token(training=False, decoding=True, **ENCODED) == 2 * (LAYER + 2 * 4 * 2 * 8 + cross) + HEAD


def test_a_sample_of_a_recommender_costs_its_perceptrons_and_interactions() -> None:
    """Perceptrons 3 -> 2 and 3 -> 1; two vectors (of the features and of the table) interact in 1 pair beside 2."""
    model: Model = Recommender(dense_features=3, tables=(5,), embedding=2, bottom=(2,), top=(1,))
    assert float(model_flop_per_token(model, 1, training=False)) == 2 * 3 * 2 + 2 * 3 * 1


def test_many_sequences_at_once_cost_what_each_costs() -> None:
    lengths = np.array([4.0, 6.0])
    model = Transformer(**MODEL)
    found = model_flop_per_token(model, lengths, training=False)
    attended = [2 * 10 * 2 * 8 / 4, 2 * 21 * 2 * 8 / 6]
    assert np.asarray(found).tolist() == [2 * (LAYER + each) + HEAD for each in attended]


def test_a_batch_of_designs_has_an_array_for_each_operator() -> None:
    many = batch_of_changes(point(), [{"workload.tp": 1}, {"workload.tp": 2}])
    found = next(use for use in list_operators(many) if use.name == "k" and use.phase == "backward")
    assert np.asarray(found.flop).tolist() == [2 * 512, 2 * 256]
    assert found.kernel.fuses


# ---- lookups


@pytest.mark.parametrize("lookups", [1, 3])
def test_an_embedding_reads_every_row_that_it_looks_up_and_adds_them(lookups: int) -> None:
    """8 samples of both ranks in one of two tables: keys, rows of 2 read and their sum written, all but one added."""
    model = Recommender(dense_features=3, tables=(5, 7), embedding=2, lookups=lookups, bottom=(2,), top=(1,))
    made = batch_of(replace(point(dp=2, micro_batch=4, global_batch=8), model=model))
    use = next(use for use in list_operators(made) if (use.name, use.phase) == ("looked_up", "forward"))
    assert use.flop == 8 * 2 * (lookups - 1)
    assert use.bytes == 2 * 8 * (lookups + 2 * lookups + 2)
    assert use.kernel.elements == 8 * 2 * (lookups + 1) / 2


def test_tensors_in_formats_of_their_own_make_a_kernel_wider() -> None:
    """Y in 4 bytes: 8 x 4 and 4 x 6 numbers of 2 bytes make 8 x 6 of 4; a gelu reads these and writes 8 x 6 of 2."""
    program = {
        "dims": {"batch": 8, "inner": 4, "outer": 6},
        "inputs": {"x": ["batch", "inner"]},
        "operators": [
            {"name": "y", "einsum": ["x", "w"], "to": ["batch", "outer"], "weights": {"w": ["inner", "outer"]}},
            {"name": "z", "gelu": "y"},
        ],
    }
    elements = {}
    for widths in ({}, {"y": 4}):
        model = model_of(read_program({**program, "element_bytes": widths}))
        made = batch_of(replace(point(global_batch=8, micro_batch=8), model=model))
        found = {use.name: use for use in list_operators(made) if use.phase == "forward"}
        elements[len(widths)] = found["z"].kernel.elements
        usual = not widths
        assert found["y"].bytes == 2 * (32 + 24) + (2 if usual else 4) * 48
        assert found["z"].bytes == (2 + (2 if usual else 4)) * 48
        assert found["y"].kernel.wider == (1 if usual else pytest.approx((2 * 56 + 4 * 48) / (2 * (56 + 48))))
        assert found["z"].kernel.wider == (1 if usual else 1.5)
    assert elements[1] == 1.5 * elements[0]
