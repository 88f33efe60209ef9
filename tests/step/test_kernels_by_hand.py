"""GEMMs, attention, streaming kernels and rooflines: every term worked out by hand."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import first_known
from cosmic.step.accelerator_rates import gemm_efficiency, operator_seconds, peak_flop_per_s
from cosmic.step.attention import (
    Attention,
    AttentionRates,
    attention_backward_seconds,
    attention_seconds,
    decode_attention_seconds,
)
from cosmic.step.gemm import ChipLoad, MatrixUnit, gemm_seconds, matrix_unit
from cosmic.step.streaming import (
    PassPhase,
    Stream,
    Style,
    memory_traffic,
    optimizer_bytes_per_parameter,
    optimizer_seconds,
    streaming_seconds,
)

near = partial(pytest.approx, rel=1e-9, abs=0.0)

# ---- GEMM

FIELDS: dict[str, Any] = {
    "bf16": 1000e12,
    "tf32": 500e12,
    "fp32": 60e12,
    "fp8": 2000e12,
    "fp4": 4000e12,
    "gemm_efficiency": 0.8,
    "fp8_efficiency": 0.7,
    "fp8_block_efficiency": 0.6,
    "fp4_efficiency": 0.5,
    "operand_efficiency": 0.9,
    "memory_efficiency": 0.85,
    "sms": 132,
    "split_k": 8,
    "tile_ramp": 1e-6,
    "fp4_ramp": 2e-6,
    "sustained_efficiency": 0.75,
    "burst": 24e-3,
    "launch": 3e-6,
    "fp8_cast": 9e-6,
    "block_cast": 4e-6,
}


SHARED = {"result_bytes": 4.0, "sms": 132, "sustained": 0.75, "launch_s": 3e-6, "burst_s": 1e-3}
SIXTEEN_BITS = MatrixUnit(
    flop_per_s=0.8 * 1000e12,
    bytes_per_s=0.9 * 3e12,
    operand_bytes=2.0,
    split_k=8,
    tiles=((64, 64), (128, 128)),
    ramp_s=1e-6,
    **SHARED,
)


@pytest.mark.parametrize(
    ("number", "wanted"),
    [
        ("bf16", {}),
        ("fp16", {}),
        ("fp32", {"flop_per_s": 0.8 * 500e12, "operand_bytes": 4.0}),  # on tensor cores, as tf32
        (
            "fp8",  # casting reads 16 bits twice and writes 8
            {
                "flop_per_s": 0.7 * 2000e12,
                "operand_bytes": 1.0,
                "split_k": 1,
                "cast_s": 9e-6,
                "cast_s_per_element": 5.0 / (0.5 * 3e12),
            },
        ),
        (
            "fp8_block",  # casting reads 16 bits once
            {
                "flop_per_s": 0.6 * 2000e12,
                "operand_bytes": 1.0,
                "split_k": 1,
                "cast_s": 4e-6,
                "cast_s_per_element": 3.0 / (0.5 * 3e12),
            },
        ),
        (
            "fp4",  # half a byte and 1/16 of a scale
            {
                "flop_per_s": 0.5 * 4000e12,
                "operand_bytes": 0.5625,
                "split_k": 1,
                "tiles": ((128, 256),),
                "ramp_s": 2e-6,
                "cast_s": 4e-6,
                "cast_s_per_element": 2.5625 / (0.5 * 3e12),
            },
        ),
    ],
)
def test_an_accelerator_s_fields_for_each_format(number: str, wanted: dict[str, Any]) -> None:
    found, expected = asdict(matrix_unit(FIELDS.get, 3e12, number, result_bytes=4.0)), SIXTEEN_BITS
    for key, value in asdict(replace(expected, **wanted)).items():
        assert found[key] == (value if key == "tiles" else near(value)), key


@pytest.mark.parametrize(("load", "burst_s"), [("alone", 24e-3), ("repeated", 2e-3), ("workload", 1e-3)])
def test_a_warm_chip_has_little_burst_left(load: ChipLoad, burst_s: float) -> None:
    assert matrix_unit(FIELDS.get, 3e12, load=load).burst_s == near(burst_s)
    assert matrix_unit(FIELDS.get, 3e12).burst_s == near(1e-3)


def test_fields_that_are_not_stated_are_those_of_16_bits() -> None:
    absent = ("fp4", "fp8", "fp4_efficiency", "fp4_ramp", "operand_efficiency")
    unit = matrix_unit((FIELDS | dict.fromkeys(absent)).get, 3e12, "fp4")
    assert unit.flop_per_s == near(0.8 * 1000e12)
    assert unit.bytes_per_s == near(0.85 * 3e12)
    assert unit.ramp_s == 1e-6
    unit = matrix_unit((FIELDS | {"fp4": None}).get, 3e12, "fp4")
    assert unit.flop_per_s == near(0.5 * 2000e12)


TEN_SMS = MatrixUnit(flop_per_s=1e12, bytes_per_s=1e30, sms=10, tiles=((64, 64),))
LOOP_S = 2 * 64 * 64 * 1000 / 1e11
"""64 x 64 x 1000 on one of ten SMs: 81.92 us."""


def test_compute_and_memory_that_take_equally_long_take_a_quarter_longer() -> None:
    moved = 2 * (640 + 64) * 1000 + 2 * 640 * 64
    unit = replace(TEN_SMS, bytes_per_s=moved / LOOP_S)
    assert gemm_seconds(1, 640, 64, 1000, unit) == near(LOOP_S * 2 ** (1 / 3))
    half = replace(TEN_SMS, bytes_per_s=2 * moved / LOOP_S)
    assert gemm_seconds(1, 640, 64, 1000, half) == near(LOOP_S * (1 + 1 / 8) ** (1 / 3))


def test_operands_and_results_move_once_each_in_their_widths() -> None:
    unit = MatrixUnit(flop_per_s=1e30, bytes_per_s=1e12, operand_bytes=1.0, result_bytes=4.0)
    assert gemm_seconds(3, 10, 20, 30, unit) == near(3 * (10 * 30 + 20 * 30 + 4 * 10 * 20) / 1e12)


def test_tiles_of_a_batch_of_gemms_share_waves() -> None:
    unit = replace(TEN_SMS, ramp_s=1e-6, launch_s=2e-6, cast_s=4e-6, cast_s_per_element=1e-12)
    # 3 x ceil(130 / 64) x ceil(65 / 64) = 18 tiles in 2 waves; 3 x 130 x 1000 elements to cast
    assert gemm_seconds(3, 130, 65, 1000, unit) == near(2 * (LOOP_S + 1e-6) + 3 * 130 * 1000e-12 + 6e-6)


def test_idle_sms_share_a_sum_at_most_split_k_of_them() -> None:
    unit = replace(TEN_SMS, bytes_per_s=1e12, operand_bytes=0.0, result_bytes=0.0, ramp_s=1e-6)
    merge = 1e-6 + 16 * 64 * 64 * 10 / 1e12
    assert gemm_seconds(1, 64, 64, 1000, replace(unit, split_k=8)) == near(1e-6 + LOOP_S / 8 + merge)  # one tile
    for split, shared in ((1, 1), (3, 3), (8, 5)):  # two tiles on ten SMs: five for each
        each = 1e-6 + (LOOP_S / shared + merge if shared > 1 else LOOP_S)
        assert gemm_seconds(1, 128, 64, 1000, replace(unit, split_k=split)) == near(each)


def test_a_gemm_beyond_its_burst_is_throttled() -> None:
    unit = replace(TEN_SMS, sustained=0.5, burst_s=3 * LOOP_S)
    assert gemm_seconds(1, 640, 64, 1000, unit) == near(LOOP_S * (1 + (1 / 0.5 - 1) * 1 / (1 + 3)))
    assert gemm_seconds(1, 640, 64, 1000, replace(unit, burst_s=0.0)) == near(2 * LOOP_S)
    at_once = MatrixUnit(flop_per_s=1e12, bytes_per_s=1e30, sms=10, tiles=((64, 64),), sustained=0.5)
    assert gemm_seconds(1, 640, 64, 1000, at_once) == near(2 * LOOP_S)


def test_accelerators_without_sms_are_rooflines_in_a_batch_too() -> None:
    sms = np.array([0, 10])
    found = gemm_seconds(1, 64, 64, 1000, replace(TEN_SMS, sms=sms))
    assert np.asarray(found).tolist() == near([2 * 64 * 64 * 1000 / 1e12, LOOP_S])
    assert gemm_seconds(1, 64, 128, 1000, replace(TEN_SMS, sms=1)) == near(2 * 2 * 64 * 64 * 1000 / 1e12)  # two waves
    work = gemm_seconds(2, 64, 64, 1000, replace(TEN_SMS, sms=0, launch_s=1e-6))
    assert work == near(2 * 2 * 64 * 64 * 1000 / 1e12 + 1e-6)


# ---- attention

HOPPER = AttentionRates(989.4e12, 1e15, efficiency=0.5, backward_efficiency=0.4, ramp_s=3e-6, sms=132)
"""On Hopper exponentials take as long as a head of width 64, so that 0.5 at width 128 is 0.5 x 192 / 128 without."""
WAVE = Attention(1, 132, 132, 128, 256, 128, 128)
"""A tile of queries for each SM, two tiles of keys."""
TILE_S = 128 * 128 * 2 * (128 + 128 + 2 * 64) / (0.5 * 1.5) / (989.4e12 / 132)


@pytest.mark.parametrize(
    ("changes", "tiles", "waves"),
    [
        ({}, 2, 1),
        ({"batch": 2}, 4, 2),
        ({"queries": 129}, 4, 2),
        ({"keys": 257}, 3, 1),
        ({"heads": 133}, 4, 2),  # one tile more is a wave more
        ({"heads": 66}, 2, 1),  # half a wave takes as long as one
        ({"visible": 0.5}, 1.5 + 0.75 * 2, 1),  # half of 2 and half a tile; three quarters of the longest
        ({"keys": 1024, "visible": 0.25}, 2.5 + 0.75 * 4, 1),  # the longest has twice the mean
        ({"keys": 128, "visible": 0.8}, 1 + 0.75, 1),  # no more tiles than there are
        ({"heads": 264, "visible": 0.5}, 2 * 1.5 + 0.75 * 2, 2),
    ],
)
def test_attention_takes_tiles_and_ramps(changes: dict[str, Any], tiles: float, waves: int) -> None:
    assert attention_seconds(replace(WAVE, **changes), HOPPER) == near(tiles * TILE_S + waves * 3e-6)


@pytest.mark.parametrize(
    ("width", "values", "flop"), [(80, 64, 128 + 64 + 128), (64, 64, 256), (192, 128, 192 + 128 + 128)]
)
def test_heads_are_padded_to_64_and_exponentials_take_64_twice(width: int, values: int, flop: int) -> None:
    found = attention_seconds(replace(WAVE, width=width, value_width=values), HOPPER)
    assert found == near(2 * TILE_S * flop / 384 + 3e-6)


def test_exponentials_weigh_more_beside_a_higher_peak() -> None:
    """Twice the flop of Hopper on as many SMs: a width of 128, for which 0.5 is 0.5 x 256 / 128 without."""
    blackwell = replace(HOPPER, peak_flop_per_s=2 * 989.4e12)
    tile = 128 * 128 * 2 * (128 + 128 + 2 * 128) / (0.5 * 2) / (2 * 989.4e12 / 132)
    assert attention_seconds(WAVE, blackwell) == near(2 * tile + 3e-6)


def test_attention_moves_queries_keys_values_and_output_once() -> None:
    slow = replace(HOPPER, bytes_per_s=1e9)
    work = replace(WAVE, batch=3, kv_heads=4, value_width=64, element_bytes=1)
    moved = 3 * (132 * 128 + 4 * 256) * (128 + 64)
    assert attention_seconds(work, slow) == near(moved / 1e9)


def test_the_backward_pass_has_five_products_and_streams_gradients() -> None:
    fast = replace(HOPPER, bytes_per_s=1e12)
    tile = 128 * 128 * 2 * (3 * 128 + 2 * 128 + 5 * 64) / (0.4 * 1.5) / (989.4e12 / 132)
    # output and its gradient in 2 bytes; gradient of queries: three passes in 4 bytes and one in 2
    streamed = 132 * 128 * (2 * 128 * 2 + 128 * (3 * 4 + 2)) / 1e12
    work = replace(WAVE, kv_heads=1)
    assert attention_backward_seconds(work, fast) == near(2 * tile + 2.5 * 3e-6 + streamed)
    narrow = replace(WAVE, width=192, value_width=64, element_bytes=1)
    tile = 128 * 128 * 2 * (3 * 192 + 2 * 64 + 5 * 64) / (0.4 * 1.5) / (989.4e12 / 132)
    streamed = 132 * 128 * (2 * 64 * 1 + 192 * 14) / 1e12
    found = attention_backward_seconds(replace(narrow, kv_heads=1), fast)
    assert found == near(2 * tile + 2.5 * 3e-6 + streamed)


def test_the_backward_pass_moves_tensors_and_their_gradients() -> None:
    slow = replace(HOPPER, bytes_per_s=1e9)
    moved = 2 * (132 * 128 + 132 * 256) * 256 * 2
    streamed = 132 * 128 * (2 * 128 * 2 + 128 * 14)
    assert attention_backward_seconds(WAVE, slow) == near((moved + streamed) / 1e9)


def test_decoding_reads_the_cache_at_105_hundredths_of_the_streaming_rate() -> None:
    rates = replace(HOPPER, bytes_per_s=1e12)
    one = Attention(2, 64, 8, 1, 1000, 128, 64, visible=0.5)
    cache = 8 * 2 * 1000 * 0.5 * (128 + 64) * 2
    assert decode_attention_seconds(one, rates) == near(cache / 1.05e12 + 3e-6)
    alone = cache / (1.05e12 * 2 * 8 * 1.25 / 132)  # 16 SMs read, each 5/4 of its share
    assert decode_attention_seconds(one, replace(rates, splits_keys=False)) == near(alone + 3e-6)
    many = replace(one, batch=14)  # 112 SMs read everything
    assert decode_attention_seconds(many, replace(rates, splits_keys=False)) == near(7 * cache / 1.05e12 + 3e-6)
    some = decode_attention_seconds(one, replace(rates, splits_keys=np.array([True, False])))
    assert np.asarray(some).tolist() == near([cache / 1.05e12 + 3e-6, alone + 3e-6])


def test_mla_reads_values_with_the_keys_and_is_bound_by_its_products() -> None:
    rates = replace(HOPPER, bytes_per_s=1e12)
    mla = Attention(2, 16, 1, 1, 1000, 576, 512, mla=True)
    assert decode_attention_seconds(mla, rates) == near(2 * 1000 * 576 * 2 / 1.05e12 + 3e-6)
    several = replace(mla, heads=128, queries=16)
    products = 2 * 128 * 16 * 2 * 1000 * (576 + 512) / (0.5 * 989.4e12)
    assert decode_attention_seconds(several, rates) == near(products + 3e-6)


def test_sms_that_are_not_known_are_those_of_hopper() -> None:
    assert [float(replace(HOPPER, sms=sms).sms_or_hopper) for sms in (0, 1, 80)] == [132, 1, 80]
    assert np.asarray(replace(HOPPER, sms=np.array([0, 80])).sms_or_hopper).tolist() == [132, 80]
    assert attention_seconds(WAVE, replace(HOPPER, sms=0)) == attention_seconds(WAVE, HOPPER)
    assert AttentionRates(1.0, 1.0, 1.0, 1.0) == AttentionRates(1.0, 1.0, 1.0, 1.0, ramp_s=0.0, sms=0)
    assert Attention(1, 2, 3, 4, 5, 6, 7) == Attention(1, 2, 3, 4, 5, 6, 7, visible=1.0, element_bytes=2, mla=False)


# ---- streaming

MEMORY = Stream(bytes_per_s=4e12, ramp_bytes=10e6, launch_s=1.5e-6)


@pytest.mark.parametrize(
    ("kind", "phase", "style", "kernels", "passes", "pace"),
    [
        ("norm", "forward", "eager", 1, 2, 0.55),
        ("norm", "backward", "eager", 2, 5, 0.7),
        ("norm", "forward", "fused", 1, 2, 0.9),
        ("norm", "backward", "fused", 2, 4, 0.9),
        ("rope", "forward", "eager", 10, 11, 1.0),
        ("silu", "forward", "fused", 0, 0, 1.0),
        ("bias", "forward", "eager", 0, 0, 1.0),
        ("bias", "backward", "eager", 1, 1, 0.5),
        ("relu", "forward", "eager", 1, 2, 1.0),  # not listed: reads one tensor and writes one
        ("relu", "backward", "fused", 1, 3, 1.0),
        ("unary", "forward", "eager", 1, 2, 1.0),
    ],
)
def test_kernels_move_passes_at_their_pace(
    kind: str, phase: PassPhase, style: Style, kernels: int, passes: float, pace: float
) -> None:
    wanted = (passes * 1e9 * 2 + kernels * 10e6) / (4e12 * pace) + kernels * 1.5e-6
    assert streaming_seconds(memory_traffic(kind, phase, style), 1e9, 2, MEMORY) == near(wanted)


def test_streams_have_neither_ramp_nor_gap_unless_stated() -> None:
    assert Stream(4e12) == Stream(bytes_per_s=4e12, ramp_bytes=0.0, launch_s=0.0)
    assert memory_traffic("norm", "backward") == memory_traffic("norm", "backward", "eager")


@pytest.mark.parametrize(
    ("widths", "moved"),
    [
        ((2, 2, 2, 0), 2 + 2 * 2 + 2 * 2 * 2),
        ((2, 4, 4, 4), 4 + 2 + 2 * 2 * 4 + 2 * 4),
        ((4, 4, 4, 0), 4 + 2 * 4 + 2 * 2 * 4),
        ((1, 2, 1, 2), 2 + 1 + 2 * 2 * 1 + 2 * 2),
        ((2, 2, 2, 1), 2 + 2 + 2 * 2 * 2 + 2 * 1),
    ],
)
def test_adam_reads_gradients_and_reads_and_writes_the_rest(widths: tuple[int, int, int, int], moved: int) -> None:
    assert optimizer_bytes_per_parameter(*widths) == moved


def test_adam_streams_at_half_the_pace_of_a_copy() -> None:
    assert optimizer_seconds(1e9, 30, MEMORY) == near((30e9 + 10e6) / (4e12 * 0.52))


# ---- roofline


@pytest.mark.parametrize(
    ("precision", "known", "best"),
    [
        ("fp32", {"tf32": 5.0, "fp32": 1.0}, 5.0),
        ("fp32", {"fp32": 1.0}, 1.0),
        ("fp32", {}, 2.0),
        ("fp16", {"tf32": 5.0}, 2.0),
        ("bf16", {"fp8": 4.0}, 2.0),
        ("bf16_pure", {"fp8": 4.0}, 2.0),
        ("fp8", {"fp8": 4.0}, 4.0),
        ("fp4", {"fp8": 4.0, "fp4": 8.0}, 8.0),
        ("fp4", {"fp8": 4.0}, 4.0),
        ("int4", {"fp4": 8.0}, 2.0),  # weights only: products in 16 bits
    ],
)
def test_a_precision_multiplies_at_its_own_rate_or_at_that_of_16_bits(
    precision: str, known: dict[str, float], best: float
) -> None:
    assert peak_flop_per_s(({"bf16": 2.0} | known).get, precision) == best


def test_gemms_reach_what_is_stated_or_four_fifths_of_what_was_achieved_or_three_fifths_of_the_peak() -> None:
    fields = {"gemm_efficiency": 0.7, "achieved_bf16": 5e14, "bf16": 1e15}
    assert gemm_efficiency(fields.get) == 0.7
    assert gemm_efficiency((fields | {"gemm_efficiency": None}).get) == near(0.8 * 0.5)
    assert gemm_efficiency((fields | {"gemm_efficiency": None, "achieved_bf16": 2e15}).get) == near(0.8)
    assert gemm_efficiency((fields | {"gemm_efficiency": None, "achieved_bf16": None}).get) == 0.6
    columns = {
        "gemm_efficiency": np.array([0.7, None, None], dtype=object),
        "achieved_bf16": np.array([None, 5e14, None], dtype=object),
        "bf16": 1e15,
    }
    assert np.asarray(gemm_efficiency(columns.get)).tolist() == near([0.7, 0.4, 0.6])


def test_an_operator_is_bound_by_compute_or_by_memory_and_is_launched() -> None:
    assert operator_seconds(2e12, 1e9, 1e15, 1e12, 3e-6) == near(2e-3 + 3e-6)
    assert operator_seconds(2e12, 5e9, 1e15, 1e12, 3e-6) == near(5e-3 + 3e-6)


def test_arrays_that_all_know_a_value_hide_the_rest() -> None:
    assert first_known(np.array([1.0, 2.0]), 5.0).tolist() == [1.0, 2.0]
    assert first_known(None, None) is None
    alone = first_known(np.array([None, 2.0], dtype=object))
    assert (alone.dtype, alone.tolist()[1]) == (float, 2.0)
    assert first_known(np.array([1, 2]), 5.0).dtype == int
