"""Every collective of a tiny design: kind, group, bytes, calls, phase, role and part, worked out by hand.

Calls are those of one layer. A microbatch has 4 tokens of 8 numbers, 64 bytes; a layer has weights of 8 x 8 (q, k, v,
out), 8 x 16 (ffn_up and ffn_down) and 8 (two norms), the embedding and the head of 8 x 10. Gradients travel in 4 bytes
unless stated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import batch_of, batch_of_changes
from cosmic.design.model_layer import Experts, Recommender
from cosmic.step.communication import CollectiveUse, Role, breakdown_part, list_collectives, order_axes, reduces_once
from tests.step.tiny import batch, point

STREAM = 2 * 4 * 8
"""Bytes of the residual stream of a microbatch."""
LAYER = {"q": 64, "k": 64, "v": 64, "out": 64, "ffn_up": 128, "ffn_down": 128, "attention_norm": 8, "ffn_norm": 8}
"""Elements of the weights of a layer."""
FOUR_EXPERTS = Experts(count=4, active=2, ffn=6)


def found(*blocks: str, together: bool = False, role: Role | None = None, **changes: Any) -> list[CollectiveUse]:
    """Return the collectives of some blocks in groups of several."""
    uses = list_collectives(batch(**changes), together=together)
    return [use for use in uses if use.group > 1 and use.block in blocks and role in (None, use.role)]


def brief(uses: list[CollectiveUse]) -> list[tuple[str, str, str, float, float]]:
    """Return phase, kind, tensor, bytes and calls of each."""
    return [(use.phase, use.kind, use.tensor, float(use.bytes), float(use.calls)) for use in uses]


def common(uses: list[CollectiveUse]) -> set[tuple[tuple[str, ...], float, str, str, bool]]:
    """Return the different axes, groups, roles, parts and whether they overlap."""
    return {(use.axes, float(use.group), use.role, use.part, use.overlaps) for use in uses}


# ---- tensor parallelism


def test_tensor_parallelism_all_reduces_the_stream_after_each_half_of_a_layer() -> None:
    """3 microbatches: 3 calls."""
    uses = found("layer", tp=2, sequence_parallel=False, global_batch=3)
    assert brief(uses) == [
        ("forward", "all_reduce", "out", STREAM, 3),
        ("forward", "all_reduce", "ffn_down", STREAM, 3),
        ("backward", "all_reduce", "d_ffn_norm", STREAM, 3),
        ("backward", "all_reduce", "d_attention_norm", STREAM, 3),
    ]
    assert common(uses) == {(("tp",), 2, "tp", "tp", False)}


def test_embedding_and_head_of_tensor_parallelism_reduce_once_a_microbatch() -> None:
    uses = found("embedding", "head", tp=2, sequence_parallel=False, global_batch=3)
    assert brief(uses) == [
        ("forward", "all_reduce", "embedded", STREAM, 3),
        ("forward", "all_reduce", "loss", 2 * 4, 3),
        ("backward", "all_reduce", "d_final_norm", STREAM, 3),
    ]


def test_sequence_parallelism_gathers_before_and_scatters_after_each_half() -> None:
    uses = found("layer", tp=2, role="tp")
    assert brief(uses) == [
        ("forward", "all_gather", "attention_norm", STREAM, 1),
        ("forward", "reduce_scatter", "out", STREAM, 1),
        ("forward", "all_gather", "ffn_norm", STREAM, 1),
        ("forward", "reduce_scatter", "ffn_down", STREAM, 1),
        ("backward", "all_gather", "d_y", STREAM, 1),
        ("backward", "reduce_scatter", "d_ffn_norm", STREAM, 1),
        ("backward", "all_gather", "ffn_norm", STREAM, 1),
        ("backward", "all_gather", "d_attended", STREAM, 1),
        ("backward", "all_gather", "attention_norm", STREAM, 1),
        ("backward", "reduce_scatter", "d_attention_norm", STREAM, 1),
    ]
    assert common(uses) == {(("tp",), 2, "tp", "tp", False)}


def test_sequence_parallel_norms_reduce_their_gradients_over_tp_too() -> None:
    uses = found("layer", tp=2, role="weights")
    assert brief(uses) == [
        ("step", "all_reduce", "d_w_ffn_norm", 4 * 8, 1),
        ("step", "all_reduce", "d_w_attention_norm", 4 * 8, 1),
    ]
    assert common(uses) == {(("tp", "cp", "dp"), 2, "weights", "dp", True)}


@pytest.mark.parametrize(
    ("changes", "gathered"),
    [
        ({"precision": "fp8"}, 1),  # cast before they are gathered
        ({"precision": "fp8", "execution": "compiled"}, 1),
        ({"precision": "fp8", "execution": "eager"}, 2),
        ({"precision": "int4"}, 2),
        ({"precision": "fp32"}, 4),
    ],
)
def test_activations_are_gathered_in_the_format_of_the_gemm_and_reduced_in_their_own(
    changes: dict[str, Any], gathered: float
) -> None:
    uses = found("layer", tp=2, role="tp", **changes)
    wide = 4 if changes["precision"] == "fp32" else 2
    assert {use.bytes for use in uses if use.kind == "all_gather"} == {gathered * 32}
    assert {use.bytes for use in uses if use.kind == "reduce_scatter"} == {wide * 32}


@pytest.mark.parametrize("to_end", [False, True])
def test_recomputation_runs_the_forward_collectives_again(to_end: bool) -> None:
    """Nobody reads what ffn_down makes: it is not made again, unless recomputation runs to the end."""
    uses = found("layer", tp=2, role="tp", recompute="full", recompute_to_end=to_end)
    calls = {use.tensor: (use.calls, use.recomputed) for use in uses if use.phase == "forward"}
    again, once = (2, True), (1, False)
    assert calls == {"attention_norm": again, "out": again, "ffn_norm": again, "ffn_down": again if to_end else once}
    assert {(use.calls, use.recomputed) for use in uses if use.phase == "backward"} == {once}


def test_recomputed_collectives_stay_apart_from_those_that_run_once() -> None:
    uses = found("layer", tp=2, role="tp", recompute="full", together=True)
    assert brief(uses) == [
        ("forward", "all_gather", "attention_norm", STREAM, 2 * 2),
        ("forward", "reduce_scatter", "out", STREAM, 2),
        ("forward", "reduce_scatter", "ffn_down", STREAM, 1),
        ("backward", "all_gather", "d_y", STREAM, 4),
        ("backward", "reduce_scatter", "d_ffn_norm", STREAM, 2),
    ]
    assert [use.recomputed for use in uses] == [True, True, False, False, False]


# ---- context parallelism


def test_a_ring_passes_keys_and_values_to_all_other_ranks() -> None:
    """4 ranks of one token: 3 sends of 8 numbers; backward also their gradients."""
    uses = found("layer", cp=4, role="ring")
    assert brief(uses) == [
        (phase, "collective_permute", tensor, 2 * 8, 3)
        for phase, tensor in (
            ("forward", "key"),
            ("forward", "value"),
            ("backward", "key"),
            ("backward", "value"),
            ("backward", "d_key"),
            ("backward", "d_value"),
        )
    ]
    assert common(uses) == {(("cp",), 4, "ring", "cp", True)}


def test_a_ring_of_one_sends_nothing() -> None:
    uses = [use for use in list_collectives(batch()) if use.role == "ring"]
    assert {use.calls for use in uses} == {0}


def test_a_ring_is_for_self_attention_and_the_source_of_cross_attention_is_gathered() -> None:
    both = {"family": "encoder_decoder", "encoder_layers": 2, "position_buckets": 4}
    uses = found("layer", cp=2, model=both, task="prefill")
    assert brief(uses) == [
        ("forward", "collective_permute", "key", STREAM / 2, 1),
        ("forward", "collective_permute", "value", STREAM / 2, 1),
        ("forward", "all_gather", "cross_k", STREAM, 1),
        ("forward", "all_gather", "cross_v", STREAM, 1),
    ]
    assert [use.role for use in uses] == ["ring", "ring", "cp", "cp"]


def test_gathering_context_parallelism_gathers_keys_and_values() -> None:
    uses = [use for use in found("layer", cp=2, cp_comm_type="all_gather") if use.role != "weights"]
    assert brief(uses) == [
        ("forward", "all_gather", "key", STREAM, 1),
        ("forward", "all_gather", "value", STREAM, 1),
        ("backward", "all_gather", "key", STREAM, 1),
        ("backward", "all_gather", "value", STREAM, 1),
        ("backward", "reduce_scatter", "d_key", STREAM, 1),
        ("backward", "reduce_scatter", "d_value", STREAM, 1),
    ]
    assert common(uses) == {(("cp",), 2, "cp", "cp", False)}


def test_keys_gathered_over_cp_stay_in_16_bits() -> None:
    uses = [use for use in found("layer", cp=2, cp_comm_type="all_gather", precision="fp8") if use.role == "cp"]
    assert {use.bytes for use in uses} == {STREAM}


def test_ulysses_exchanges_tokens_for_heads_four_times_each_way() -> None:
    uses = [use for use in found("layer", cp=2, cp_comm_type="ulysses") if use.role != "weights"]
    assert [(use.phase, use.kind, use.bytes, use.calls) for use in uses] == [
        ("forward", "all_to_all", STREAM / 2, 1),
        ("forward", "all_to_all", STREAM / 2, 1),
        ("forward", "all_to_all", STREAM / 2, 1),
        ("forward", "all_to_all", STREAM / 2, 1),
        ("backward", "all_to_all", STREAM / 2, 1),
        ("backward", "all_to_all", STREAM / 2, 1),
        ("backward", "all_to_all", STREAM / 2, 1),
        ("backward", "all_to_all", STREAM / 2, 1),
    ]
    assert common(uses) == {(("cp",), 2, "cp", "cp", False)}
    assert {use.copies for use in uses} == {1}


# ---- expert parallelism


def test_experts_get_two_copies_of_each_token_and_send_them_back() -> None:
    """4 tokens of a rank in 2 copies of 8 numbers."""
    uses = found("moe_layer", dp=4, ep=2, model={"experts": FOUR_EXPERTS}, role="ep")
    copies = 2 * (4 * 2) * 8
    assert brief(uses) == [
        ("forward", "all_to_all", "sent", copies, 1),
        ("forward", "all_to_all", "expert_down", copies, 1),
        ("backward", "all_to_all", "d_expert_down", copies, 1),
        ("backward", "all_to_all", "d_sent", copies, 1),
    ]
    assert common(uses) == {(("ep",), 2, "ep", "ep", False)}
    assert {use.copies for use in uses} == {2}


def test_gradients_of_experts_are_reduced_by_the_ranks_that_have_the_same_ones() -> None:
    uses = found("moe_layer", dp=4, ep=2, model={"experts": FOUR_EXPERTS}, role="weights")
    experts = [use for use in uses if "expert" in use.tensor]
    assert brief(experts) == [
        ("step", "all_reduce", "d_w_expert_down", 4 * 2 * 6 * 8, 1),
        ("step", "all_reduce", "d_w_expert_ffn_up", 4 * 2 * 8 * 6, 1),
    ]
    assert common(experts) == {(("edp",), 2, "weights", "dp", True)}
    assert {float(use.group) for use in uses if "expert" not in use.tensor} == {4}


def test_updated_experts_are_gathered_by_the_ranks_that_have_the_same_ones() -> None:
    uses = found("moe_layer", dp=4, ep=2, model={"experts": FOUR_EXPERTS}, weight_sharding="zero1", role="updated")
    dense = 4 * 64 + 2 * 8 + 8 * 4
    assert [(use.axes, use.group, use.bytes) for use in uses] == [
        (("cp", "dp"), 4, 2 * dense),
        (("edp",), 2, 2 * 2 * (8 * 6 + 6 * 8)),
    ]


def test_serving_engines_add_the_copies_of_a_token_before_they_reduce_over_tp() -> None:
    uses = found("moe_layer", dp=2, ep=2, tp=2, model={"experts": FOUR_EXPERTS}, task="prefill")
    assert brief(uses) == [
        ("forward", "all_reduce", "out", STREAM, 1),
        ("forward", "all_to_all", "sent", 2 * 8 * 8, 1),
        ("forward", "all_to_all", "expert_down", 2 * 8 * 8, 1),
        ("forward", "all_reduce", "combined", STREAM, 1),  # once for a token, not for each of its 2 copies
    ]
    assert [use.copies for use in uses] == [1, 2, 2, 1]


def test_without_sequence_parallelism_training_adds_the_copies_of_a_token_up_as_well() -> None:
    uses = found("moe_layer", tp=2, model={"experts": FOUR_EXPERTS}, sequence_parallel=False)
    reduced = [use for use in uses if use.tensor in ("combined", "d_ffn_norm.sent")]
    assert [(use.kind, use.axes, use.bytes) for use in reduced] == [("all_reduce", ("tp",), STREAM)] * 2


# ---- data and sharded parallelism


def test_gradients_are_all_reduced_once_a_step() -> None:
    uses = found("layer", dp=2, global_batch=6)
    assert {use.tensor: (use.bytes, use.calls) for use in uses} == {
        f"d_w_{name}": (4 * elements, 1) for name, elements in LAYER.items()
    }
    assert {(use.phase, use.kind, use.group, use.role, use.part, use.overlaps) for use in uses} == {
        ("step", "all_reduce", 2, "weights", "dp", True)
    }
    assert brief(found("embedding", dp=2, global_batch=6)) == [("step", "all_reduce", "d_w_embedding", 4 * 80, 1)]


@pytest.mark.parametrize(
    ("precision", "gradient", "updated"),
    [
        ("bf16", 4, 2),
        ("fp16", 2, 2),
        ("fp8", 2, 1),
        ("fp4", 2, 2),
        ("int4", 4, 2),
        ("bf16_pure", 2, 2),
        ("fp32", 4, 4),
    ],
)
def test_gradients_and_updated_weights_have_the_width_of_the_recipe(
    precision: str, gradient: float, updated: float
) -> None:
    uses = found("layer", dp=2, weight_sharding="zero1", precision=precision)
    widths = {use.bytes / LAYER[use.tensor.removeprefix("d_w_")] for use in uses if use.role == "weights"}
    assert widths == {gradient}
    assert [use.bytes for use in uses if use.role == "updated"] == [updated * 528]


def test_zero1_scatters_gradients_and_gathers_updated_weights_once_a_step() -> None:
    uses = found("layer", dp=2, global_batch=6, weight_sharding="zero1")
    scattered = [use for use in uses if use.role == "weights"]
    assert {(use.kind, use.phase, use.calls, use.part) for use in scattered} == {("reduce_scatter", "step", 1, "dp")}
    gathered = [use for use in uses if use.role == "updated"]
    assert brief(gathered) == [("step", "all_gather", "weights", 2 * 528, 1)]
    assert common(gathered) == {(("cp", "dp"), 2, "updated", "dp", True)}
    assert {use.copies for use in gathered} == {1}
    at_ends = found("embedding", "head", dp=2, global_batch=6, weight_sharding="zero1", role="updated")
    assert [(use.bytes, use.calls) for use in at_ends] == [(2 * 80, 1), (2 * 88, 1)]


def test_zero1_leaves_activations_to_their_all_reduces() -> None:
    uses = found("layer", tp=2, sequence_parallel=False, weight_sharding="zero1", role="tp")
    assert {use.kind for use in uses} == {"all_reduce"}


def test_zero2_scatters_gradients_once_a_step_unless_asked_for_each_microbatch() -> None:
    for every, expected in (("step", ("step", 1, "dp")), ("microbatch", ("backward", 3, "weights"))):
        uses = found("layer", dp=2, global_batch=6, weight_sharding="zero2", reduce_every=every)
        scattered = [use for use in uses if use.role == "weights"]
        assert {(use.kind, use.phase, use.calls, use.part) for use in scattered} == {("reduce_scatter", *expected)}
        gathered = [use for use in uses if use.role == "updated"]
        assert brief(gathered) == [("step", "all_gather", "weights", 2 * 528, 1)]


@pytest.mark.parametrize(
    ("sharding", "every", "once"),
    [
        ("none", "step", True),
        ("none", "microbatch", True),
        ("zero1", "step", True),
        ("zero1", "microbatch", True),
        ("zero2", "step", True),
        ("zero2", "microbatch", False),
        ("zero3", "step", False),
        ("zero3", "microbatch", False),
    ],
)
def test_only_zero2_has_a_choice_when_gradients_are_reduced(sharding: Any, every: Any, once: bool) -> None:
    assert reduces_once(point(weight_sharding=sharding, reduce_every=every).workload) == once


def test_zero3_gathers_weights_twice_and_scatters_gradients_for_each_microbatch() -> None:
    uses = found("layer", dp=2, global_batch=6, weight_sharding="zero3")
    for phase in ("forward", "backward"):
        gathered = {use.tensor: use.bytes for use in uses if (use.kind, use.phase) == ("all_gather", phase)}
        assert gathered == {f"w_{name}": 2 * elements for name, elements in LAYER.items()}
    scattered = {use.tensor: use.bytes for use in uses if use.kind == "reduce_scatter"}
    assert scattered == {f"d_w_{name}": 4 * elements for name, elements in LAYER.items()}
    assert {(use.calls, use.role, use.part) for use in uses} == {(3, "weights", "weights")}
    assert len(uses) == 3 * 8


def test_recomputation_gathers_no_weights_again() -> None:
    uses = found("layer", dp=2, weight_sharding="zero3", recompute="full", recompute_to_end=True)
    assert {(use.calls, use.recomputed) for use in uses} == {(1, False)}


def test_serving_gathers_sharded_weights_in_their_format() -> None:
    uses = found("layer", dp=2, weight_sharding="zero3", task="prefill", precision="fp8")
    gathered = {use.tensor: float(use.bytes) for use in uses}
    assert (gathered["w_q"], gathered["w_attention_norm"]) == (1 * 64, 2 * 8)
    moe = found(
        "moe_layer",
        dp=2,
        weight_sharding="zero3",
        task="prefill",
        precision="fp4",
        model={"experts": FOUR_EXPERTS},
    )
    width = {use.tensor: float(use.bytes) for use in moe}
    assert (width["w_q"], width["w_expert_down"]) == (2 * 64, 0.5625 * 4 * 6 * 8)


def test_serving_updates_no_weights() -> None:
    assert found("layer", dp=2, weight_sharding="zero1", task="prefill") == []


def test_together_the_weights_of_a_block_travel_in_one_buffer() -> None:
    """Matrices, whose gradients tp splits, and norms, whose gradients it does not."""
    uses = found("layer", dp=2, global_batch=6, together=True)
    assert brief(uses) == [
        ("step", "all_reduce", "d_w_ffn_down", 4 * (4 * 64 + 2 * 128), 1),
        ("step", "all_reduce", "d_w_ffn_norm", 4 * 2 * 8, 1),
    ]
    sharded = found("layer", dp=2, global_batch=6, weight_sharding="zero3", together=True)
    assert brief(sharded) == [
        ("forward", "all_gather", "w_attention_norm", 2 * 528, 3),
        ("backward", "all_gather", "w_ffn_down", 2 * 528, 3),
        ("backward", "reduce_scatter", "d_w_ffn_down", 4 * 528, 3),
    ]


def test_together_activations_of_a_block_are_calls_of_their_mean_size() -> None:
    """One KV head: keys and values of 4 columns beside queries and results of 8, in an all-to-all each."""
    ring = found("layer", cp=2, together=True, role="ring")
    assert brief(ring) == [
        ("forward", "collective_permute", "key", STREAM / 2, 2),
        ("backward", "collective_permute", "key", STREAM / 2, 2),
        ("backward", "collective_permute", "d_key", STREAM / 2, 2),
    ]
    model = {"kv_heads": 2, "heads": 4}
    exchanged = found("layer", cp=2, cp_comm_type="ulysses", model=model, together=True, task="prefill")
    mean = (2 * STREAM / 2 + 2 * STREAM / 4) / 4
    assert brief(exchanged) == [("forward", "all_to_all", "q_placed", mean, 4)]


def test_collectives_are_listed_one_by_one_unless_asked_for_together() -> None:
    made = batch(tp=2)
    assert (
        len(list_collectives(made))
        == len(list_collectives(made, together=False))
        > len(list_collectives(made, together=True))
    )


# ---- pipeline parallelism


def test_stages_send_the_stream_forward_and_its_gradient_back() -> None:
    uses = found("", pp=2, global_batch=3)
    assert brief(uses) == [("forward", "send", "x", STREAM, 3), ("backward", "send", "d_x", STREAM, 3)]
    assert common(uses) == {(("pp",), 2, "pp", "pp", False)}


def test_a_stage_sends_its_part_of_the_stream_once_for_each_virtual_stage() -> None:
    changes: dict[str, Any] = {"pp": 4, "tp": 2, "cp": 2, "global_batch": 3, "model": {"layers": 8}}
    uses = found("", virtual_stages=2, schedule="interleaved", role="pp", **changes)
    assert brief(uses) == [("forward", "send", "x", STREAM / 4, 6), ("backward", "send", "d_x", STREAM / 4, 6)]
    assert {use.group for use in uses} == {2}


def test_ranks_that_have_the_same_tensor_send_a_part_of_it_each() -> None:
    """Without sequence parallelism the stream is whole on both ranks of tp; each sends its half."""
    for task, calls in (("training", 2), ("prefill", 1)):
        uses = found("", pp=2, tp=2, sequence_parallel=False, task=task)
        assert [use.bytes for use in uses] == [STREAM / 2] * calls


def test_serving_sends_forward_only() -> None:
    assert brief(found("", pp=2, task="prefill")) == [("forward", "send", "x", STREAM, 1)]


def test_one_stage_sends_nothing() -> None:
    sends = [use for use in list_collectives(batch(global_batch=3)) if use.kind == "send"]
    assert [(use.group, use.calls) for use in sends] == [(1, 0), (1, 0)]


def test_a_recommender_exchanges_keys_for_vectors_and_sends_nothing_between_stages() -> None:
    """4 samples a rank, 2 tables: keys are int64 and not the rows that they select; vectors have 2 columns of bf16."""
    model = Recommender(dense_features=3, tables=(5, 7), embedding=2, bottom=(2,), top=(1,))
    made = replace(point(dp=2, micro_batch=4, global_batch=8), model=model)
    uses = list_collectives(batch_of(made))
    exchanged = [use for use in uses if use.kind == "all_to_all"]
    assert brief(exchanged) == [
        ("forward", "all_to_all", "keys", 2 * 4 * 8, 1),
        ("forward", "all_to_all", "looked_up", 2 * 4 * 2 * 2, 1),
        ("backward", "all_to_all", "d_gathered", 2 * 4 * 2 * 2, 1),
    ]
    assert common(exchanged) == {(("dp",), 2, "dp", "dp", False)}
    assert not [use for use in uses if use.kind == "send"]
    pooled = list_collectives(batch_of(replace(made, model=replace(model, lookups=5))))
    sizes = [use.bytes for use in pooled if use.kind == "all_to_all"]
    assert sizes == [5 * 2 * 4 * 8, 2 * 4 * 2 * 2, 2 * 4 * 2 * 2]  # more keys; sums of vectors


# ---- names and parts


@pytest.mark.parametrize(
    ("role", "phase", "part"),
    [
        ("ring", "backward", "cp"),
        ("weights", "step", "dp"),
        ("updated", "step", "dp"),
        ("weights", "forward", "weights"),
        ("weights", "backward", "weights"),
        ("tp", "forward", "tp"),
        ("cp", "backward", "cp"),
        ("ep", "forward", "ep"),
        ("dp", "forward", "dp"),
        ("pp", "forward", "pp"),
        ("tp", "step", "tp"),
    ],
)
def test_a_role_belongs_to_a_part_of_the_breakdown(role: Role, phase: str, part: str) -> None:
    assert breakdown_part(role, phase) == part


def test_axes_are_listed_from_the_inside() -> None:
    assert order_axes(("dp", "pp", "cp", "tp")) == ("tp", "cp", "dp", "pp")
    assert order_axes(("edp", "oep", "ep", "etp")) == ("etp", "ep", "oep", "edp")


def test_a_batch_of_designs_has_an_array_for_each_collective() -> None:
    many = batch_of_changes(point(), [{"workload.cp": 1}, {"workload.cp": 2}, {"workload.cp": 4}])
    key = next(use for use in list_collectives(many) if use.tensor == "key")
    assert np.asarray(key.calls).tolist() == [0, 1, 3]
    assert np.asarray(key.bytes).tolist() == [64, 32, 16]
    stages = batch_of_changes(point(global_batch=3), [{"workload.pp": 1}, {"workload.pp": 2}, {"workload.pp": 4}])
    send = next(use for use in list_collectives(stages) if use.kind == "send")
    assert (np.asarray(send.group).tolist(), np.asarray(send.calls).tolist()) == ([1, 2, 2], [0, 3, 3])


def test_a_decoded_token_waits_for_no_encoder() -> None:
    """Only the decoder's layers send, after both attentions and the feed-forward network."""
    model = {"family": "encoder_decoder", "encoder_layers": 2, "position_buckets": 4}
    for together in (False, True):
        uses = list_collectives(batch(model=model, task="decode", tp=2), together=together)
        calls = {use.block: 0.0 for use in uses}
        for use in uses:
            calls[use.block] += float(use.calls * (use.group > 1))
        assert calls.get("encoder_layer", 0) == 0
        assert calls["layer"] == 3


@pytest.mark.parametrize(("how", "share"), [("all_gather", 1), ("ring", 1 / 2)])
def test_repeated_keys_are_sent_for_every_head(how: str, share: float) -> None:
    """Of 2 heads, 4 wide, one has keys: 4 tokens of them are 32 bytes, and for both heads 64."""
    grouped: dict[str, Any] = {"cp": 2, "cp_comm_type": how, "model": {"kv_heads": 1}}
    for repeated, width in ((False, 1), (True, 2)):
        uses = found("layer", kv_repeated=repeated, **grouped)
        sent = {float(use.bytes) for use in uses if use.tensor in ("key", "value")}
        assert sent == {32 * width * share}
