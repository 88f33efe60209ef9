"""Seconds of kernels and launches, worked out by hand.

Three accelerators make one term visible at a time: ROOFLINE states no SMs; STREAMING multiplies in no time, so that a
GEMM takes its bytes at 100 bytes/s; MULTIPLYING moves bytes in no time, so that a GEMM of one tile takes the
2 * 64 * 64 * k flop of that tile at 1000 flop/s. Constants that are fitted are replaced by round numbers.
"""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import batch_of_changes
from cosmic.design.model_layer import MLA, Experts
from cosmic.step import attention, gemm, kernel_costs, kernel_launches, streaming
from cosmic.step.block_memory import TableUse
from cosmic.step.kernel_costs import KernelCosts
from cosmic.step.operator_work import OperatorUse, list_operators
from cosmic.workload.precision import recipe_of
from tests.step.tiny import Changes, batch, point, switch

STREAMING: Changes = {"compute": {"sms": 1, "bf16_flop_per_s": 1e30, "fp8_flop_per_s": 1e30, "fp4_flop_per_s": 1e30}}
MULTIPLYING: Changes = {"compute": {"sms": 1}, "memory": {"bandwidth_bytes_per_s": 1e30}}
TILE = 2 * 64 * 64 / 1000
"""Seconds of a tile for each row of its weight, on `MULTIPLYING`."""
COMPRESSED = MLA(kv_lora_rank=6, qk_rope_head_dim=2, v_head_dim=3)
ONE_OF_TWO = Experts(count=2, active=1, ffn=6)


@pytest.fixture(autouse=True)
def _round_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    launching = replace(kernel_launches.CONSTANTS, queue_gap_s=3.0, graph_gap_s=7.0, fused_gap_s=9.0)
    monkeypatch.setattr(kernel_costs, "CONSTANTS", launching)
    monkeypatch.setattr(kernel_costs, "EMPTY_ROWS", 0)
    monkeypatch.setattr(gemm, "CONSTANTS", replace(gemm.CONSTANTS, cast_share=0.5))
    monkeypatch.setattr(streaming, "CONSTANTS", replace(streaming.CONSTANTS, optimizer_pace=0.5))
    monkeypatch.setattr(attention, "CONSTANTS", replace(attention.CONSTANTS, one_reader=1.0, read_alone=1.0))


def with_compute(base: Changes, **compute: Any) -> Changes:
    """Return an accelerator with changes."""
    return base | {"compute": base.get("compute", {}) | compute}


def use_of(name: str, phase: str = "forward", **changes: Any) -> tuple[KernelCosts, OperatorUse]:
    made = batch(**changes)
    return KernelCosts(made), next(use for use in list_operators(made) if (use.name, use.phase) == (name, phase))


def seconds(name: str, phase: str = "forward", **changes: Any) -> float:
    costs, use = use_of(name, phase, **changes)
    return float(costs.seconds(use))


# ---- roofline


def test_an_accelerator_without_sms_is_a_roofline() -> None:
    assert seconds("ffn_up") == pytest.approx(max(1024 / 1000, 448 / 100))
    fast: Changes = {"memory": {"bandwidth_bytes_per_s": 1e4}}
    assert seconds("ffn_up", **fast) == pytest.approx(1024 / 1000)
    assert seconds("attention", **fast) == pytest.approx(320 / 1000)
    assert seconds("ffn_up", "backward", **fast) == pytest.approx(2048 / 1000)


def test_a_roofline_takes_each_efficiency_and_a_launch() -> None:
    shares: Changes = {"gemm_efficiency": 0.5, "attention_efficiency": 0.25, "memory_efficiency": 0.8, "launch_s": 2.0}
    fast: Changes = {"memory": {"bandwidth_bytes_per_s": 1e4}, "compute": shares}
    assert seconds("ffn_up", **fast) == pytest.approx(1024 / 500 + 2)
    assert seconds("attention", **fast) == pytest.approx(320 / 250 + 2)
    assert seconds("ffn_up", compute=shares) == pytest.approx(448 / 80 + 2)


def test_a_roofline_multiplies_in_the_precision_of_the_workload() -> None:
    eight: Changes = {"memory": {"bandwidth_bytes_per_s": 1e4}, "compute": {"fp8_flop_per_s": 4000.0}}
    assert seconds("ffn_up", precision="fp8", **eight) == pytest.approx(1024 / 4000)
    assert seconds("attention", precision="fp8", **eight) == pytest.approx(320 / 4000)


def test_a_batch_mixes_rooflines_and_accelerators_with_sms() -> None:
    many = batch_of_changes(point(compute={"straggler_slack": 0.5}), [{"compute.sms": 0}, {"compute.sms": 1}])
    costs = KernelCosts(many)
    use = next(use for use in list_operators(many) if use.name == "y")
    assert np.asarray(costs.seconds(use)).tolist() == pytest.approx([192 / 100, 192 / 100 + 3])  # and a gap


# ---- GEMMs


def test_a_gemm_reads_both_operands_and_writes_its_result() -> None:
    assert seconds("ffn_up", **STREAMING) == pytest.approx(2 * (4 * 8 + 8 * 16 + 4 * 16) / 100)
    assert seconds("ffn_up", precision="fp32", **STREAMING) == pytest.approx(4 * (4 * 8 + 8 * 16 + 4 * 16) / 100)


def test_a_gemm_takes_its_tile() -> None:
    assert seconds("ffn_up", **MULTIPLYING) == pytest.approx(TILE * 8)
    assert seconds("ffn_down", **MULTIPLYING) == pytest.approx(TILE * 16)


def test_the_backward_gemms_have_the_shapes_of_both_gradients() -> None:
    """The gradient dx sums over 16 columns, dw over 4 tokens."""
    assert seconds("ffn_up", "backward", **MULTIPLYING) == pytest.approx(TILE * (16 + 4))


def test_gemms_multiply_in_the_narrow_format_but_for_head_and_router() -> None:
    eight: Changes = with_compute(MULTIPLYING, fp8_flop_per_s=4000.0, fp4_flop_per_s=8000.0)
    moe: Changes = {"model": {"experts": ONE_OF_TWO}} | eight
    start = 3 + 2 * 3  # gaps after a cast and after the kernels that order scales
    assert seconds("ffn_up", precision="fp8", **eight) == pytest.approx(TILE * 8 / 4 + start)
    assert seconds("logits", precision="fp8", **eight) == pytest.approx(TILE * 8)
    assert seconds("router", precision="fp8", **moe) == pytest.approx(TILE * 8)
    four = 2 * 128 * 256 / 8000  # NVFP4 has tiles of 128 x 256
    assert seconds("ffn_up", precision="fp4", **eight) == pytest.approx(four * 8 + 3 + start)
    assert seconds("ffn_up", precision="int4", **eight) == pytest.approx(TILE * 8)
    assert seconds("ffn_up", precision="bf16", **eight) == pytest.approx(TILE * 8)


def test_fp32_multiplies_at_its_own_rate_in_head_and_router_too() -> None:
    wide = with_compute(MULTIPLYING, fp32_flop_per_s=500.0)
    moe: Changes = {"model": {"experts": ONE_OF_TWO}} | wide
    for name, changes in (("ffn_up", wide), ("logits", wide), ("router", moe)):
        assert seconds(name, precision="fp32", **changes) == pytest.approx(TILE * 8 * 2)


def test_serving_multiplies_in_blocks_of_fp8_and_leaves_wide_what_the_format_leaves() -> None:
    shares: Changes = {"fp8_efficiency": 0.5, "fp8_block_efficiency": 0.25, "fp4_efficiency": 0.125}
    eight: Changes = with_compute(MULTIPLYING, fp8_flop_per_s=4000.0, fp4_flop_per_s=8000.0, **shares)
    moe: Changes = {"model": {"experts": ONE_OF_TWO}} | eight
    trained = seconds("ffn_up", precision="fp8", fp8_recipe="delayed", **eight)
    assert trained == pytest.approx(TILE * 8 / 4 / 0.5 + 3)  # and a cast
    for recipe in ("rowwise", "blockwise"):
        casts = 6 if recipe == "rowwise" else 3
        slower = seconds("ffn_up", precision="fp8", fp8_recipe=recipe, **eight)
        assert slower == pytest.approx(TILE * 8 / 4 / 0.25 + casts)
    assert seconds("ffn_up", precision="fp4", **eight) == pytest.approx(2 * 128 * 256 / 8000 * 8 / 0.5 + 12)
    assert seconds("ffn_up", precision="fp8", task="prefill", **eight) == pytest.approx(TILE * 8 / 4 / 0.5)
    blocks = seconds("ffn_up", precision="fp8", task="prefill", fp8_recipe="blockwise", **eight)
    assert blocks == pytest.approx(TILE * 8 / 4 / 0.25)
    assert seconds("q", precision="fp4", task="prefill", **moe) == pytest.approx(TILE * 8)
    four = 2 * 128 * 128 / 8000 / 0.125
    assert seconds("q", precision="fp4", task="prefill", **eight) == pytest.approx(four * 8)
    assert seconds("logits", precision="fp8", task="prefill", **eight) == pytest.approx(TILE * 8)


@pytest.mark.parametrize("precision", ["int4", "fp4"])  # the accelerator has no rate of fp4
def test_weights_that_nothing_multiplies_in_4_bits_are_widened_in_the_kernel(precision: str) -> None:
    few_rows = TILE * 16 / 64
    assert seconds("ffn_up", task="prefill", precision=precision, **MULTIPLYING) == pytest.approx(few_rows * 8)
    moe: Changes = {"model": {"experts": ONE_OF_TWO}} | MULTIPLYING
    shape: Changes = {"task": "prefill", "precision": precision, "grouped_gemm": True}
    experts = seconds("expert_ffn_up", **shape, **moe)
    assert experts == pytest.approx(2 * few_rows * 8 / 0.45)
    assert seconds("router", **shape, **moe) == pytest.approx(TILE * 8)


def test_serving_reads_weights_in_their_format() -> None:
    for precision, width in (("bf16", 2.0), ("fp8", 1.0), ("fp4", 0.5625), ("int4", 0.5625)):
        moved = width * (4 * 8 + 8 * 16) + 2 * 4 * 16
        eager: Changes = {"task": "prefill", "precision": precision} | STREAMING
        casts = {"fp4": 2.5625}.get(precision, 0.0) / 50 * 4 * 8  # 16 bits in, the format out
        assert seconds("ffn_up", **eager) == pytest.approx(moved / 100 + casts)


def test_in_an_moe_below_8_bits_serving_reads_attention_in_16() -> None:
    changes: Changes = {"task": "prefill", "precision": "fp4", "model": {"experts": ONE_OF_TWO}} | STREAMING
    assert seconds("out", **changes) == pytest.approx(2 * (4 * 8 + 8 * 8 + 4 * 8) / 100)


# ---- casts


def test_a_serving_engine_casts_in_the_kernel_before() -> None:
    cast = with_compute(STREAMING, fp8_cast_s=11.0, block_cast_s=13.0)
    fused = seconds("ffn_up", precision="fp8", task="prefill", **cast)
    eager = seconds("ffn_up", precision="fp8", task="prefill", execution="eager", **cast)
    assert eager - fused == pytest.approx(11 + 5 / 50 * 4 * 8)
    own = seconds("ffn_up", precision="fp8", task="prefill", fp8_recipe="blockwise", **cast)
    assert own - fused == pytest.approx(13 + 3 / 50 * 4 * 8)  # scales of blocks: a kernel of its own


# ---- accumulation


@pytest.mark.parametrize(
    ("changes", "moved"),
    [
        ({}, 2 * 4 - 2),  # fused: fp32 gradients read and written in place of a 16-bit result
        ({"execution": "eager"}, 2 * 4 + 2),  # eager: the 16-bit result is read as well
        ({"execution": "compiled"}, 2 * 4 - 2),
        ({"precision": "bf16_pure"}, 2 * 2 - 2),
        ({"precision": "fp32"}, 2 * 4 - 4),
        ({"weight_sharding": "zero1"}, 2 * 4 - 2),
        ({"weight_sharding": "zero2"}, 2 * 4 - 2),  # reduced once a step, and added up until then
        ({"weight_sharding": "zero2", "reduce_every": "microbatch"}, 0),
        ({"weight_sharding": "zero3"}, 0),
    ],
)
def test_gradients_are_added_to_those_of_earlier_microbatches(changes: dict[str, Any], moved: float) -> None:
    width = 4 if changes.get("precision") == "fp32" else 2
    gemms = width * ((4 * 16 + 16 * 8 + 4 * 8) + (8 * 4 + 4 * 16 + 8 * 16))
    found = seconds("ffn_up", "backward", **changes, **STREAMING)
    assert found == pytest.approx((gemms + moved * 8 * 16) / 100)


def test_the_gradients_of_all_experts_are_added_up() -> None:
    """Of 2 experts, 4 tokens that select one hit 2 (1 - 1/16): grouped GEMMs of 4/2 / (15/16) tokens each."""
    hit = 2 * 15 / 16
    m = 2 * 16 / 15
    gemms = 2 * hit * ((m * 6 + 6 * 8 + m * 8) + (8 * m + m * 6 + 8 * 6))
    found = seconds("expert_ffn_up", "backward", model={"experts": ONE_OF_TWO}, **STREAMING)
    assert found == pytest.approx((gemms + 6 * hit * 6 * 8) / 100)


def test_the_gradients_of_what_experts_read_are_added_for_all_of_them() -> None:
    """Gate and up read the same 4 slots of 8 numbers; backward of the gate, two gradients become one."""
    changes: Changes = {"model": {"experts": ONE_OF_TWO, "gated": True}} | STREAMING
    alone, added = (seconds(name, "backward", **changes) for name in ("expert_ffn_up", "expert_ffn_gate"))
    assert added - alone == pytest.approx(3 * 2 * 4 * 8 / 100 + 3)


# ---- fusion


def test_serving_engines_fuse_the_gemms_of_one_input() -> None:
    """The GEMM v adds 8 columns to the 16 of q and k: their weights and results, not the input again."""
    served: Changes = {"task": "prefill"} | STREAMING
    assert seconds("v", **served) == pytest.approx(2 * (8 * 8 + 4 * 8) / 100)
    assert seconds("q", **served) == pytest.approx(2 * (4 * 8 + 8 * 8 + 4 * 8) / 100)
    whole = 2 * (4 * 8 + 8 * 8 + 4 * 8) / 100
    assert seconds("v", execution="eager", **served) == pytest.approx(whole)
    assert seconds("v", **STREAMING) == pytest.approx(whole)  # training runs each by itself


def test_columns_that_fit_the_tile_of_their_neighbours_take_no_time() -> None:
    """Of q, k and v with 64 columns each in tiles of 64, one tile each; with 8 columns, one for all."""
    wide: Changes = {"model": {"heads": 2, "head_dim": 32}, "task": "prefill"} | MULTIPLYING
    assert seconds("v", **wide) == pytest.approx(TILE * 8, rel=1e-6)
    assert seconds("v", task="prefill", **MULTIPLYING) == pytest.approx(0, abs=1e-6)


# ---- rates that many keep together


def test_several_accelerators_keep_the_steady_rate() -> None:
    shares: Changes = {"steady_efficiency": 0.5, "narrow_steady_efficiency": 0.25, "fp8_flop_per_s": 4000.0}
    steady = with_compute(MULTIPLYING, **shares)
    assert seconds("ffn_up", **steady) == pytest.approx(TILE * 8)  # alone
    assert seconds("ffn_up", precision="fp8", **steady) == pytest.approx(TILE * 8 / 4 + 3)  # and the gap of a cast
    assert seconds("ffn_up", dp=2, **steady) == pytest.approx(TILE * 8 / 0.5)
    assert seconds("ffn_up", dp=2, precision="fp8", **steady) == pytest.approx(TILE * 8 / 4 / 0.25 + 3)
    assert seconds("logits", dp=2, precision="fp8", **steady) == pytest.approx(TILE * 8 / 0.5)


@pytest.mark.parametrize("npus", [2, 8])
def test_the_slowest_of_many_is_waited_for(npus: int) -> None:
    """The largest of n deviates of a tenth is sqrt(2 ln n) tenths."""
    found = seconds("ffn_up", dp=npus, **with_compute(MULTIPLYING, straggler_slack=0.1))
    assert found == pytest.approx(TILE * 8 * (1 + 0.1 * sqrt(2 * log(npus))))


def test_one_accelerator_waits_for_nobody() -> None:
    assert seconds("ffn_up", **with_compute(MULTIPLYING, straggler_slack=0.1)) == pytest.approx(TILE * 8)


def test_stragglers_are_among_all_npus_of_the_network() -> None:
    found = seconds("y", dims=(switch(4), switch(2)), **with_compute(STREAMING, straggler_slack=0.1))
    assert found == pytest.approx((3 * 2 * 32 / 100 + 3) * (1 + 0.1 * sqrt(2 * log(8))))


# ---- streaming


@pytest.mark.parametrize(
    ("name", "phase", "execution", "passes", "kernels"),
    [
        ("y", "forward", "eager", 3, 1),
        ("y", "backward", "fused", 3, 1),
        ("ffn_inner", "forward", "eager", 3, 1),
        ("ffn_inner", "backward", "eager", 6, 2),
        ("ffn_inner", "backward", "fused", 5, 1),
        ("ffn_inner", "backward", "compiled", 5, 1),
    ],
)
def test_streaming_operators_take_their_passes_ramps_and_gaps(
    name: str, phase: str, execution: str, passes: float, kernels: float
) -> None:
    """A sum of 4 x 8 numbers and a gate of 4 x 16; a ramp of 50 bytes, and a gap of 3 s a kernel."""
    elements = {"y": 4 * 8, "ffn_inner": 4 * 16}[name]
    changes: Changes = {"model": {"gated": True}, "execution": execution} | with_compute(
        STREAMING, stream_ramp_bytes=50.0
    )
    expected = (passes * 2 * elements + kernels * 50) / 100 + kernels * 3
    assert seconds(name, phase, **changes) == pytest.approx(expected)


def test_decoding_replays_a_graph_with_smaller_gaps_and_no_ramp() -> None:
    changes: Changes = {"task": "decode"} | with_compute(STREAMING, stream_ramp_bytes=50.0)
    assert seconds("y", execution="eager", **changes) == pytest.approx(3 * 2 * 1 * 8 / 100 + 7)
    assert seconds("ffn_norm", **changes) == pytest.approx((2 * 2 * 8 + 50) / 100 / 0.9 + 9)  # fused kernels ramp
    assert seconds("y", **changes) == pytest.approx(2 * 2 * 8 / 100)  # the norm adds to the residual


def test_a_decode_step_runs_what_is_between_experts_inside_their_kernels() -> None:
    changes: Changes = {"task": "decode", "model": {"experts": ONE_OF_TWO}}
    changes |= with_compute(STREAMING, stream_ramp_bytes=50.0)
    plain = changes | with_compute(STREAMING)
    assert seconds("expert_ffn_inner", **changes) == pytest.approx(seconds("expert_ffn_inner", **plain))
    assert seconds("ffn_norm", **changes) > seconds("ffn_norm", **plain)
    prefill: Changes = {"task": "prefill"} | with_compute(STREAMING, stream_ramp_bytes=50.0)
    assert seconds("y", **prefill) == pytest.approx(2 * 2 * 4 * 8 / 100)
    assert seconds("y", execution="eager", **prefill) == pytest.approx((3 * 2 * 4 * 8 + 50) / 100 + 3)


def test_streaming_reaches_the_memory_efficiency() -> None:
    found = seconds("y", **with_compute(STREAMING, memory_efficiency=0.5))
    assert found == pytest.approx(3 * 2 * 32 / 50 + 3)


# ---- attention


def test_fused_attention_moves_its_tensors_once() -> None:
    assert seconds("attention", **STREAMING) == pytest.approx(2 * 4 * 4 * 8 / 100)
    one_kv_head: Changes = {"model": {"kv_heads": 1}} | STREAMING
    assert seconds("attention", **one_kv_head) == pytest.approx(2 * (2 * 4 * 8 + 2 * 4 * 4) / 100)
    assert seconds("attention", precision="fp32", **STREAMING) == pytest.approx(4 * 4 * 4 * 8 / 100)
    assert seconds("attention", task="prefill", precision="fp8", **STREAMING) == pytest.approx(2 * 4 * 4 * 8 / 100)


def test_fused_attention_streams_gradients_backward() -> None:
    """Twice its tensors; output and its gradient; the query's gradient in fp32, three times, and rounded."""
    rows = 2 * 4
    streamed = rows * (2 * 4 * 2 + 4 * (3 * 4 + 2))
    assert seconds("attention", "backward", **STREAMING) == pytest.approx((2 * 2 * 4 * 4 * 8 + streamed) / 100)


def test_fused_attention_multiplies_tiles_of_128_at_its_own_efficiencies() -> None:
    """A tile for each of two heads of an encoder, widths filled up to 64: two GEMMs forward, five backward."""
    shares: Changes = {"attention_efficiency": 0.5, "attention_backward_efficiency": 0.25, "attention_ramp_s": 1e4}
    encoder: Changes = {"model": {"family": "encoder"}} | with_compute(MULTIPLYING, **shares)
    pairs = 128 * 128
    forward = pairs * 2 * (64 + 64) / 500
    assert seconds("attention", **encoder) == pytest.approx(2 * forward + 2 * 1e4, rel=1e-6)
    backward = pairs * 2 * (3 * 64 + 2 * 64) / 250
    assert seconds("attention", "backward", **encoder) == pytest.approx(2 * backward + 2 * 2.5e4, rel=1e-6)
    two_sms: Changes = encoder | {"compute": encoder["compute"] | {"sms": 2}}
    assert seconds("attention", **two_sms) == pytest.approx(2 * forward + 1e4, rel=1e-6)  # both heads at once


def test_attention_multiplies_in_16_bits_whatever_the_precision() -> None:
    eight: Changes = {"model": {"family": "encoder"}} | with_compute(
        MULTIPLYING, fp8_flop_per_s=1e30, fp32_flop_per_s=2000.0
    )
    each = 128 * 128 * 2 * (64 + 64) / 1000
    assert seconds("attention", precision="fp8", **eight) == pytest.approx(2 * each, rel=1e-6)
    assert seconds("attention", precision="fp32", **eight) == pytest.approx(each, rel=1e-6)


@pytest.mark.parametrize(("precision", "cache"), [("bf16", 2), ("fp8", 1), ("int4", 2), ("fp32", 4)])
def test_decoding_takes_the_time_to_read_the_cache(precision: str, cache: float) -> None:
    changes: Changes = {"task": "decode", "precision": precision, "sequence": 6} | STREAMING
    joined = 2 * 9  # a second kernel joins what parts of the keys gave
    assert seconds("attention", **changes) == pytest.approx(cache * 2 * 6 * (4 + 4) / 100 + joined)


def test_an_eager_decoder_with_grouped_heads_reads_with_one_sm_for_each_kv_head() -> None:
    """Of 4 SMs, one reads the one KV head."""
    changes: Changes = {"task": "decode", "sequence": 6} | with_compute(STREAMING, sms=4)
    one = {"kv_heads": 1}
    cache = 2 * 6 * (4 + 4) / 100
    assert seconds("attention", model=one, **changes) == pytest.approx(cache + 2 * 9)
    assert seconds("attention", model=one, execution="eager", **changes) == pytest.approx(4 * cache)
    assert seconds("attention", execution="eager", **changes) == pytest.approx(2 * cache)  # as many heads


def test_unfused_attention_writes_its_scores() -> None:
    """Keys of 6 columns, values of 3; 2 heads of 4 x 4 scores, passed over twice forward and 3 times backward."""
    changes: Changes = {"model": {"mla": COMPRESSED}, "attention": "unfused"} | STREAMING
    scores = 2 * 2 * (4 * 6 + 6 * 4 + 4 * 4)
    values = 2 * 2 * (4 * 4 + 4 * 3 + 4 * 3)
    pairs = 2 * 4 * 4
    assert seconds("attention", **changes) == pytest.approx((scores + values + 2 * 2 * pairs) / 100 + 3)
    backward = 2 * (scores + values) + 3 * 2 * pairs
    assert seconds("attention", "backward", **changes) == pytest.approx(backward / 100 + 3)
    two = seconds("attention", micro_batch=2, global_batch=2, **changes)
    assert two == pytest.approx(2 * (scores + values + 2 * 2 * pairs) / 100 + 3)
    dropped = 2.5 * 2 * pairs / 100 + 3
    found = seconds("attention", dropout=True, **changes)
    assert found == pytest.approx((scores + values + 2 * 2 * pairs) / 100 + 3 + dropped)
    serving = seconds("attention", dropout=True, task="prefill", **changes)
    assert serving == pytest.approx((scores + values + 2 * 2 * pairs) / 100 + 3)


def test_unfused_attention_runs_the_gemms_of_its_shapes() -> None:
    """One of 6 rows and one of 4, for each head a tile; backward 4 + 4 and 3 + 4."""
    changes: Changes = {"model": {"mla": COMPRESSED}, "attention": "unfused"} | MULTIPLYING
    assert seconds("attention", **changes) == pytest.approx(2 * TILE * (6 + 4) + 3)
    assert seconds("attention", "backward", **changes) == pytest.approx(2 * TILE * (4 + 4 + 3 + 4) + 3)
    wide = with_compute(changes, fp8_flop_per_s=1e30, fp32_flop_per_s=2000.0)
    assert seconds("attention", precision="fp8", **wide) == pytest.approx(2 * TILE * (6 + 4) + 3)
    assert seconds("attention", precision="fp32", **wide) == pytest.approx(TILE * (6 + 4) + 3)


# ---- experts


def test_experts_run_as_one_grouped_gemm_or_one_by_one() -> None:
    """4 tokens reach 15/16 of two experts, 32/15 tokens each, one tile of 64 x 64 x 8; two SMs run two at a time."""
    both: Changes = {"model": {"experts": ONE_OF_TWO}} | with_compute(MULTIPLYING, sms=2, launch_s=5.0)
    tile = 2 * 64 * 64 * 8 * 2 / 1000
    busy = 2 * 15 / 16
    assert seconds("expert_ffn_up", **both) == pytest.approx(tile + 5)
    assert seconds("expert_ffn_up", grouped_gemm=False, **both) == pytest.approx(busy * (tile + 5))
    assert seconds("ffn_up", grouped_gemm=False, **MULTIPLYING) == pytest.approx(TILE * 8)


def test_the_last_tile_of_an_expert_is_partly_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """32/15 tokens and 64 empty rows are two tiles for each of 15/8 experts; slots of a capacity are even.

    The gradient of the weight sums over tokens alone, in one tile for each expert.
    """
    monkeypatch.setattr(kernel_costs, "EMPTY_ROWS", 64)
    uneven: Changes = {"model": {"experts": ONE_OF_TWO}} | MULTIPLYING
    assert seconds("expert_ffn_up", **uneven) == pytest.approx(4 * TILE * 8)  # 3.75 tiles on one SM
    assert seconds("expert_ffn_up", "backward", **uneven) == pytest.approx(4 * TILE * 6 + 2 * TILE * 32 / 15)
    even: Changes = {"model": {"experts": replace(ONE_OF_TWO, capacity_factor=1.0)}} | MULTIPLYING
    assert seconds("expert_ffn_up", **even) == pytest.approx(2 * TILE * 8)
    assert seconds("expert_ffn_up", task="prefill", **uneven) == pytest.approx(2 * TILE * 8)


def test_rows_of_experts_are_padded_where_no_framework_does_it_on_the_way() -> None:
    """Eager dispatch of 4 slots of 8 numbers: 2.2 passes in 24 kernels; padding: 6.5 passes in 14."""
    moe: Changes = {"model": {"experts": ONE_OF_TWO}} | STREAMING
    assert seconds("sent", execution="eager", grouped_gemm=False, **moe) == pytest.approx(2.2 * 64 / 100 + 24 * 3)
    assert seconds("sent", execution="eager", **moe) == pytest.approx((2.2 + 6.5) * 64 / 100 + (24 + 14) * 3)
    assert seconds("sent", **moe) == pytest.approx(2.2 * 64 / 100 + 10 * 3)
    assert seconds("sent", execution="compiled", **moe) == pytest.approx((2.2 + 2.5) * 64 / 100 + (10 + 10) * 3)


def test_a_replayed_step_has_smaller_gaps() -> None:
    assert seconds("y", **STREAMING) == pytest.approx(3 * 2 * 32 / 100 + 3)
    assert seconds("y", cuda_graph=("full_iteration",), **STREAMING) == pytest.approx(3 * 2 * 32 / 100 + 7)
    assert seconds("y", cuda_graph=("attn",), **STREAMING) == pytest.approx(3 * 2 * 32 / 100 + 3)


# ---- optimizer


@pytest.mark.parametrize(
    ("precision", "each"),
    [
        ("bf16", 4 + 2 + 2 * (8 + 4)),  # gradient read, weight written, moments and master copy read and written
        ("bf16_pure", 2 + 2 * 2 + 2 * 4),
        ("fp32", 4 + 2 * 4 + 2 * 8),
    ],
)
def test_the_optimizer_streams_its_states_at_its_pace(precision: str, each: float) -> None:
    found, moved = KernelCosts(batch(precision=precision)).update(10.0)
    assert [float(found), float(moved)] == pytest.approx([10 * each / 100, 10 * each])
    found, moved = KernelCosts(batch(precision=precision, **STREAMING)).update(10.0)
    assert [float(found), float(moved)] == pytest.approx([10 * each / 50, 10 * each])


def test_the_optimizer_streams_the_rows_that_were_looked_up() -> None:
    """Of 3 rows of 2 weights: gradients of 4 bytes read; weights of 2 and a state of 4 read and written."""
    tables = TableUse(elements=100.0, rows=50.0, touched=3.0, width=2.0, recipe=recipe_of("bf16", "training"))
    assert tables.update_bytes == 3 * 2 * (4 + 2 * 2) + 3 * 2 * 4
    found, moved = KernelCosts(batch(**STREAMING)).update(0.0, tables)
    assert moved == 72
    assert float(found) == pytest.approx(72 / 50)
    both, everything = KernelCosts(batch(**STREAMING)).update(1.0, tables)
    assert everything == 72 + 30
    assert float(both) == pytest.approx((72 + 30) / 50)
    assert TableUse().update_bytes == TableUse().gradient_bytes == TableUse().weight_bytes == 0
