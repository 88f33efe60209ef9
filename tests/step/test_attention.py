"""Fused attention takes the time that an H200 took, and obeys what must hold on any accelerator."""

import csv
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosmic.accuracy.measured_rows import carried_files
from cosmic.step.attention import (
    Attention,
    AttentionRates,
    attention_backward_seconds,
    attention_seconds,
    decode_attention_seconds,
    limit_to_generation,
)

DATA = next(path for path in carried_files() if path.name == "h200_attention.csv")
H200 = AttentionRates(989e12, 4.32e12, efficiency=0.704, backward_efficiency=0.614, ramp_s=2.19e-6)
LONG = Attention(1, 32, 32, 8192, 8192, 128, 128)
OFFSET_S = {"fwd_ms": 29e-6, "bwd_ms": 82e-6}
"""Until the host launched the kernel: each was timed from an idle device."""


def causal(work: Attention) -> Attention:
    return replace(work, visible=(work.keys + 1) / (2 * work.keys))


def measured() -> tuple[Attention, dict[str, Any]]:
    with DATA.open() as file:
        rows = list(csv.DictReader(file))
    column = {key: np.array([float(row[key]) for row in rows]) for key in rows[0]}
    sequence, width = column["seq"], column["head_dim"]
    visible = np.where(column["causal"] == 1, (sequence + 1) / (2 * sequence), 1.0)
    shape = (column["batch"], column["heads"], column["kv_heads"], sequence, sequence, width, width, visible)
    return Attention(*shape), column


@pytest.mark.parametrize(("key", "seconds"), [("fwd_ms", attention_seconds), ("bwd_ms", attention_backward_seconds)])
def test_measured_kernels_are_met_within_a_tenth(key: str, seconds: Any) -> None:
    work, column = measured()
    errors = (seconds(work, H200) + OFFSET_S[key]) / (column[key] * 1e-3) - 1

    assert np.abs(errors).mean() < 0.08
    assert abs(errors.mean()) < 0.03


def test_the_kernels_of_a_training_step_are_met_without_an_offset() -> None:
    work = causal(Attention(4, 16, 16, 1024, 1024, 64, 64))

    assert attention_seconds(work, H200) == pytest.approx(33.8e-6, rel=0.1)
    assert attention_backward_seconds(work, H200) == pytest.approx(105.2e-6, rel=0.1)


def test_long_sequences_reach_the_stated_efficiency() -> None:
    work = Attention(8, 33, 33, 131072, 131072, 128, 128)
    flop = 4 * 8 * 33 * 131072**2 * 128

    assert flop / attention_seconds(work, H200) / H200.peak_flop_per_s == pytest.approx(H200.efficiency, rel=0.01)


def test_a_causal_mask_saves_less_than_half_and_least_on_short_sequences() -> None:
    lengths = np.array([512, 2048, 8192, 32768])
    work = Attention(1, 1056, 1056, lengths, lengths, 128, 128)
    ratio = attention_seconds(causal(work), H200) / attention_seconds(work, H200)

    assert np.all((ratio > 0.5) & (ratio < 1))
    assert np.all(np.diff(ratio) < 0)


def test_heads_are_filled_up() -> None:
    at = {width: attention_seconds(replace(LONG, width=width, value_width=width), H200) for width in (64, 80, 128)}

    assert at[80] == at[128]
    assert 0.5 < at[64] / at[128] < 0.8


def test_a_wave_that_is_just_begun_costs_a_whole_one() -> None:
    one, two = (attention_seconds(Attention(1, heads, 1, 128, 4096, 128, 128), H200) for heads in (132, 133))

    assert two == pytest.approx(2 * one)


def test_groups_save_memory_traffic_but_no_arithmetic() -> None:
    assert attention_seconds(replace(LONG, kv_heads=8), H200) == attention_seconds(LONG, H200)


def test_a_batch_gives_what_each_alone_gives() -> None:
    lengths = [197, 1024, 8192]
    together = attention_backward_seconds(
        causal(replace(LONG, queries=np.array(lengths), keys=np.array(lengths))), H200
    )
    alone = [attention_backward_seconds(causal(replace(LONG, queries=n, keys=n)), H200) for n in lengths]

    assert np.asarray(together).tolist() == [float(each) for each in alone]


def test_unknown_multiprocessors_count_as_the_usual() -> None:
    assert attention_seconds(LONG, replace(H200, sms=0)) == attention_seconds(LONG, H200)


@pytest.mark.parametrize(
    ("batch", "heads", "kv_heads", "keys", "split", "measured_s"),
    [
        # What longer contexts added to each layer of a decoding step on an H200.
        (1, 32, 8, 3584, False, 40.4e-6),
        (1, 64, 8, 3584, False, 40.7e-6),
        (32, 64, 8, 3072, False, 86.0e-6),
        (1, 40, 40, 3584, True, 17.4e-6),
        (32, 40, 40, 3072, True, 443.4e-6),
    ],
)
def test_decoding_reads_its_cache_once(
    batch: int, heads: int, kv_heads: int, keys: int, split: bool, measured_s: float
) -> None:
    work = Attention(batch, heads, kv_heads, 1, keys, 128, 128)

    assert decode_attention_seconds(work, replace(H200, ramp_s=0, splits_keys=split)) == pytest.approx(
        measured_s, rel=0.1
    )


def test_a_filled_device_need_not_split_the_cache() -> None:
    work = Attention(256, 64, 8, 1, 4096, 128, 128)

    whole = replace(H200, splits_keys=False)

    assert decode_attention_seconds(work, H200) == decode_attention_seconds(work, whole)


A100 = AttentionRates(312e12, 1.8e12, efficiency=0.70, backward_efficiency=0.60, sms=108)
H100 = AttentionRates(989.4e12, 3e12, efficiency=0.704, backward_efficiency=0.614, sms=132)
B200 = AttentionRates(2250e12, 7e12, efficiency=0.58, backward_efficiency=0.45, sms=148)
MI300X = AttentionRates(1307e12, 4.5e12, efficiency=0.40, backward_efficiency=0.30, sms=304)


@pytest.mark.parametrize(
    ("rates", "generation", "forward", "backward"),
    [
        # An SM of an A100 has a peak of 312 / 108 = 2.89 TFLOP/s, below the 3.97 that Ampere's instructions reach.
        (A100, "flash1", 0.40, 0.34),
        (A100, "flash2", 0.70, 0.60),
        # 3.97 * 132 / 989.4 = 0.5297 of an H100's peak, 3.97 * 148 / 2250 = 0.2611 of a B200's.
        (H100, "flash1", 0.40 * 0.5297, 0.34 * 0.5297),
        (H100, "flash2", 0.70 * 0.5297, 0.60 * 0.5297),
        (B200, "flash2", 0.70 * 0.2611, 0.60 * 0.2611),
        # Whose own kernels are no better keeps them.
        (MI300X, "flash2", 0.40, 0.30),
        (MI300X, "flash1", 0.369, 0.30),
        (H100, "fused", 0.704, 0.614),
        (H100, "unfused", 0.704, 0.614),
    ],
)
def test_earlier_kernels_reach_what_the_instructions_of_their_time_reach(
    rates: AttentionRates, generation: str, forward: float, backward: float
) -> None:
    found = limit_to_generation(rates, generation)
    assert found.efficiency == pytest.approx(forward, rel=1e-3)
    assert found.backward_efficiency == pytest.approx(backward, rel=1e-3)
