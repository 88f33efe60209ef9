"""What the prose of published tables says is read into columns, once."""

from __future__ import annotations

from typing import Any

import pytest
from read_words import (
    FILES,
    accumulations,
    adapters_of,
    catalog_name,
    columns_of,
    date_of,
    flops_kind_of,
    framework_of,
    with_columns,
)

from cosmic.accuracy.measured_rows import CARRIED, Fields
from cosmic.accuracy.rows.training_software import Software, precision_of, recompute_of, settings_of
from cosmic.design import catalog_entries
from tests.batches import check_all

EARLY = Software("megatron-lm", "2022-03", {"attention": "unfused", "dropout": True, "dp_overlap": False})
EAGER = Software("pytorch", "2024-06", {"attention": "flash2", "execution": "eager"}, selective="alternate")
TUNED = Software("nemo", "2024-07", {"attention": "fused", "tp_overlap": True, "execution": "fused"})


def read(software: Software, cells: dict[str, str]) -> Fields:
    """Return a row with the columns that its words say."""
    row = {"accel": "H100", **cells}
    return Fields({**row, **columns_of(row, software)})


@check_all("name", FILES)
def test_the_columns_of_the_package_are_what_its_words_say(name: str) -> None:
    table = (CARRIED / name).read_text()
    assert with_columns(table) == table


@pytest.mark.parametrize(
    ("cells", "framework"),
    [
        ({"source": "NVIDIA Megatron-Bridge performance summary 26.08 NeMo Container"}, "megatron-bridge"),
        ({"source": "NVIDIA NeMo performance summary 24.07", "notes": "888 is the MLPerf submission"}, "nemo"),
        ({"source": "MLPerf Training v5.1 result logs", "source_loc": "nemo/config.sh"}, "mlperf"),
        ({"source": "vTrain", "notes": "Megatron-DeepSpeed; 4xHDR"}, "megatron-deepspeed"),
        ({"url": "https://github.com/pytorch/torchtitan"}, "torchtitan"),  # the longest word of a column
        ({"source": "a README", "model": "OPT-175B"}, "metaseq"),
        ({"source": "Optimus", "model": "GPT"}, ""),  # no word within a word
        ({"accel": "TPU-v5p"}, "maxtext"),
        ({}, ""),
    ],
)
def test_words_name_a_framework(cells: dict[str, str], framework: str) -> None:
    assert framework_of(Fields(cells)) == framework


@pytest.mark.parametrize(
    ("cells", "date"),
    [
        ({"notes": "2022-03", "source": "24.07"}, "2024-07"),  # a release is the most telling
        ({"notes": "2022-03", "source": "of 2025"}, "2022-03"),
        ({"source": "container 26.04.01"}, "2026-04"),
        ({"notes": "mean time-to-train 24.07 min"}, ""),
        ({"url": "https://arxiv.org/abs/2205.05198"}, "2022-05"),
        ({"source": "llama3_h100_202412.md"}, "2024-12"),
        ({"source": "benchmarks of 2025-06"}, "2025-06"),
        ({"source": "MLPerf Training v5.1"}, "2025-11"),
        ({"source": "MLPerf Training v4.0"}, "2024-06"),
        ({"source": "a simulator (MICRO 24)"}, "2023-06"),  # a paper measures what was there a year before
        ({"source": "a simulator, SC'23"}, "2022-06"),
        ({"source": "a report, 2023"}, "2023-06"),
        ({"source": "a batch of 2048"}, ""),  # no year
    ],
)
def test_releases_archives_and_years_date_a_run(cells: dict[str, str], date: str) -> None:
    assert date_of(Fields(cells)) == date


@pytest.mark.parametrize(
    ("software", "cells", "key", "value"),
    [
        (EARLY, {"notes": "flash attention"}, "attention", "flash1"),  # that of its date
        (TUNED, {"notes": "flash attention"}, "attention", "fused"),
        (EAGER, {"notes": "FlashAttention-3"}, "attention", "fused"),
        (TUNED, {"notes": "no flash attention"}, "attention", "unfused"),
        (TUNED, {"notes": "attention not flash"}, "attention", "unfused"),
        (EAGER, {"notes": "xformers"}, "attention", "flash1"),
        (EARLY, {"notes": "no dropout"}, "dropout", False),
        (TUNED, {"notes": "dropout 0.1"}, "dropout", True),
        (EARLY, {"overlap_words": "gradients"}, "dp_overlap", True),
        (TUNED, {"overlap_words": "none (no DP overlap)"}, "dp_overlap", False),
        (TUNED, {"overlap_words": "none (all overlap off)"}, "tp_overlap", False),
        (EAGER, {"notes": "async TP compile"}, "tp_overlap", True),
        (TUNED, {"notes": "vanilla TP"}, "tp_overlap", False),
        (EAGER, {"notes": "torch.compile"}, "execution", "compiled"),
        (EAGER, {"notes": "no compile"}, "execution", "eager"),
        (TUNED, {"notes": "compile"}, "execution", "fused"),
        (TUNED, {"notes": "1F1B overlap of all-to-all"}, "ep_overlap", True),
        (TUNED, {"notes": "no all-to-all overlap"}, "ep_overlap", False),
        (TUNED, {"notes": "TP overlap off"}, "tp_overlap", False),
        (EAGER, {"notes": "layers of TE"}, "execution", "fused"),
        (TUNED, {"notes": "CUDA graphs"}, "cuda_graph", ("attn", "mlp", "moe_router", "moe_preprocess")),
        (TUNED, {"notes": "one CUDA graph for the whole step"}, "cuda_graph", ("full_iteration",)),
        (TUNED, {"source_loc": "config_tp4pp8cp2_cg.sh"}, "cuda_graph", ("full_iteration",)),
        (TUNED, {"notes": "no CUDA graphs"}, "cuda_graph", ()),
        (TUNED, {"precision": "FP8-CS"}, "fp8_recipe", "tensorwise"),
        (TUNED, {"precision": "MXFP8"}, "fp8_recipe", "mxfp8"),
        (TUNED, {"precision": "fp8", "notes": "fp8 delayed scaling"}, "fp8_recipe", "delayed"),
        (TUNED, {"precision": "fp8", "notes": "blockwise fp8 (1x128)"}, "fp8_recipe", "blockwise"),
        (TUNED, {"notes": "LoRA, rank 8"}, "lora_rank", 8),
        (TUNED, {"set": "x-lora"}, "lora_rank", 16),
        (TUNED, {"notes": "mean document 512"}, "packed_length", 512.0),
    ],
)
def test_words_say_what_software_does(software: Software, cells: dict[str, str], key: str, value: Any) -> None:
    assert settings_of(read(software, cells), software)[key] == value


def test_pure_bf16_is_said_in_the_notes() -> None:
    assert precision_of(read(TUNED, {"precision": "bf16", "notes": "MP mode PURE"}), TUNED) == "bf16_pure"


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"recompute_words": "none"}, {"recompute": "none"}),
        ({"recompute_words": "False"}, {"recompute": "none"}),
        ({"recompute_words": "Full"}, {"recompute": "full"}),
        ({"recompute_words": "activation checkpointing"}, {"recompute": "full"}),
        ({"recompute_words": "selective"}, {"recompute": "alternate"}),
        ({"recompute_words": "selective", "notes": "recompute of norms and activations; x"}, ("layernorm", "moe_act")),
        ({"recompute_words": "selective", "notes": "recompute not stated"}, {"recompute": "alternate"}),
        ({"recompute_words": "selective", "notes": "x; MoE layers recomputed"}, ("moe",)),
        ({"recompute_words": "minimal"}, {"recompute": "alternate"}),
        ({"notes": "selective recompute"}, {"recompute": "alternate"}),
        ({"notes": "gradient checkpointing"}, {"recompute": "full"}),
        ({"notes": "no activation checkpointing"}, {"recompute": "none"}),
        ({"notes": "RoCE"}, {}),
    ],
)
def test_recomputation_has_many_names(cells: dict[str, str], expected: Any) -> None:
    found = recompute_of(read(EAGER, cells), EAGER)
    if isinstance(expected, tuple):
        assert found == {"recompute": "selective", "recompute_modules": expected}
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("cells", "adapted"),
    [
        ({"set": "mbridge-lora"}, True),
        ({"model": "Llama-2-70B LoRA"}, True),
        ({"notes": "QLoRA, rank 16"}, True),
        ({"notes": "full weights, not LoRA"}, False),
        ({"notes": "explorations"}, False),
    ],
)
def test_rows_say_whether_they_train_adapters(cells: dict[str, str], adapted: bool) -> None:
    assert bool(adapters_of(Fields(cells))) == adapted


@pytest.mark.parametrize(
    ("text", "counted", "attention"),
    [
        ("model", "model", ""),
        ("model (6N*T+12*L*d*T^2, non-causal attention)", "model", "full"),
        ("model 6N+12Lhs per token (derived)", "model", "full"),
        ("hardware incl. full recompute: 96BslH^2(1+s/6h+V/16lh)", "hardware", "full"),
        ("HFU", "hardware", ""),
        ("72BslH^2", "model", "full"),
        ("6ND", "model", "none"),
        ("6 N D", "model", "none"),
        ("8N", "hardware", "none"),
        ("model, causal attention halved", "model", "causal"),
        ("full attention", "model", "full"),
        ("model without attention", "model", "none"),
    ],
)
def test_words_say_how_operations_are_counted(text: str, counted: str, attention: str) -> None:
    assert flops_kind_of(text) == f"{counted} {attention}".strip()


def test_the_peak_of_a_utilisation_may_be_stated() -> None:
    assert flops_kind_of("model (MFU of 989 TFLOP/s; formula not read)") == "model peak=989"


def test_notes_say_how_often_gradients_accumulate() -> None:
    assert accumulations(Fields({"notes": "gradient accumulation steps: 8"})) == "8"
    assert accumulations(Fields({"notes": "grad_accum 0"})) == "1"


@pytest.mark.parametrize(
    ("notes", "mtp"),
    [("no MTP", "false"), ("without multi-token prediction", "false"), ("multi-token prediction", "true")],
)
def test_notes_say_whether_further_tokens_are_predicted(notes: str, mtp: str) -> None:
    assert columns_of({"accel": "H100", "notes": notes})["mtp"] == mtp


@check_all("name", catalog_entries.entry_names("models"))
def test_every_model_is_known_by_its_own_name_however_it_is_written(name: str) -> None:
    assert catalog_name(name) == name
    assert catalog_name(name.upper().replace("-", "_")) == name
    assert catalog_name(name.replace("-", " ").title()) == name


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("GPT-3 175B", "gpt3-175b"),
        ("GPT 175B", "gpt3-175b"),
        ("Llama 3.1 405B", "llama3-405b"),
        ("Meta-Llama-3-8B-Instruct", "llama3-8b"),
        ("LLaMA-1-7B", "llama-7b"),
        ("Llama-v2-70b-chat", "llama2-70b"),
        ("Nemotron-4-340B", "nemotron-340b"),
        ("Megatron 530B", "megatron-529.6b"),
        ("MT-NLG 530B", "megatron-529.6b"),
        ("Qwen3-235B-A22B (tokendrop)", "qwen3-235b-a22b"),
        ("DeepSeekV3", "deepseek-v3"),
        ("Mixtral 8x7B v0.1", "mixtral-8x7b"),
        ("GPT 60B", "gpt3-60b"),  # none is near: as it is spelled
    ],
)
def test_names_have_many_spellings(name: str, known: str) -> None:
    assert catalog_name(name) == known
