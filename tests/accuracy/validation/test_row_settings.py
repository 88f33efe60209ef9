"""What a row's columns and notes say of its software comes before the practice of its framework."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.accuracy.measured_rows import Fields
from cosmic.accuracy.rows.training_software import Software, is_adapted, precision_of, recompute_of, settings_of
from cosmic.base.errors import SpecError

EARLY = Software("megatron-lm", "2022-03", {"attention": "unfused", "dropout": True, "dp_overlap": False})
EAGER = Software("pytorch", "2024-06", {"attention": "flash2", "execution": "eager"}, selective="alternate")
TUNED = Software("nemo", "2024-07", {"attention": "fused", "tp_overlap": True, "execution": "fused"})


def settings(software: Software, **cells: str) -> dict[str, Any]:
    return settings_of(Fields({"accel": "H100", **cells}), software)


def test_what_a_row_leaves_open_is_the_framework_s() -> None:
    found = settings(EARLY)
    assert (found["attention"], found["dropout"], found["dp_overlap"], found["precision"]) == (
        "unfused",
        True,
        False,
        "bf16",
    )
    assert (settings(TUNED)["tp_overlap"], settings(EAGER)["execution"]) == (True, "eager")


@pytest.mark.parametrize(
    ("software", "cells", "key", "value"),
    [
        (EARLY, {"attention": "flash2"}, "attention", "flash2"),
        (EARLY, {"notes": "flash attention"}, "attention", "flash1"),  # that of its date
        (TUNED, {"notes": "flash attention"}, "attention", "fused"),
        (EAGER, {"notes": "FlashAttention-3"}, "attention", "fused"),
        (TUNED, {"notes": "no flash attention"}, "attention", "unfused"),
        (TUNED, {"notes": "attention not flash"}, "attention", "unfused"),
        (EAGER, {"notes": "xformers"}, "attention", "flash1"),
        (EARLY, {"dropout": "0"}, "dropout", False),
        (EARLY, {"notes": "no dropout"}, "dropout", False),
        (TUNED, {"notes": "dropout 0.1"}, "dropout", True),
        (EARLY, {"overlap": "gradients"}, "dp_overlap", True),
        (TUNED, {"overlap": "none (no DP overlap)"}, "dp_overlap", False),
        (TUNED, {"overlap": "none (all overlap off)"}, "tp_overlap", False),
        (EAGER, {"notes": "async TP compile"}, "tp_overlap", True),
        (TUNED, {"notes": "vanilla TP"}, "tp_overlap", False),
        (EAGER, {"notes": "torch.compile"}, "execution", "compiled"),
        (EAGER, {"notes": "no compile"}, "execution", "eager"),
        (EAGER, {"precision": "float8"}, "execution", "compiled"),  # PyTorch's fp8 needs it
        (TUNED, {"precision": "fp8"}, "execution", "fused"),
        (TUNED, {"notes": "compile"}, "execution", "fused"),
        (TUNED, {"execution": "eager"}, "execution", "eager"),
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
        (TUNED, {"packing": "512"}, "packed_length", 512.0),
    ],
)
def test_columns_and_notes_come_first(software: Software, cells: dict[str, str], key: str, value: Any) -> None:
    assert settings(software, **cells)[key] == value


@pytest.mark.parametrize(
    ("name", "accel", "precision"),
    [
        ("amp_bf16", "H100", "bf16"),
        ("bfloat16", "H100", "bf16"),
        ("FP8-CS", "H100", "fp8"),
        ("float8-tensorwise", "H100", "fp8"),
        ("MXFP8", "B200", "fp8"),
        ("NVFP4", "B200", "fp4"),
        ("half", "V100", "fp16"),
        ("mixed", "V100", "fp16"),
        ("mixed", "A100", "bf16"),
        ("", "V100", "fp16"),
        ("tf32", "A100", "fp32"),
    ],
)
def test_precisions_have_many_names(name: str, accel: str, precision: str) -> None:
    assert precision_of(Fields({"precision": name, "accel": accel}), TUNED) == precision


def test_of_two_formats_the_usual_one_counts_and_none_that_an_accelerator_lacks() -> None:
    narrow, wider = Software("mlperf", "2025-11", precision="fp4"), Software("mlperf", "2024-06", precision="fp8")
    both = {"precision": "fp4/fp8 (both configs present)", "accel": "B200"}
    assert [precision_of(Fields(both), each) for each in (narrow, wider)] == ["fp4", "fp8"]
    open_ = [precision_of(Fields({"accel": name}), narrow) for name in ("B200", "H100", "A100")]
    assert open_ == ["fp4", "fp8", "bf16"]


def test_pure_bf16_is_said_in_the_notes() -> None:
    assert precision_of(Fields({"precision": "bf16", "notes": "MP mode PURE"}), TUNED) == "bf16_pure"


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(SpecError, match="no such precision"):
        precision_of(Fields({"precision": "fp3", "accel": "H100"}), TUNED)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"recompute": "none"}, {"recompute": "none"}),
        ({"recompute": "False"}, {"recompute": "none"}),
        ({"recompute": "Full"}, {"recompute": "full"}),
        ({"recompute": "activation checkpointing"}, {"recompute": "full"}),
        ({"recompute": "selective"}, {"recompute": "alternate"}),
        ({"recompute": "selective", "notes": "recompute of norms and activations; x"}, ("layernorm", "moe_act")),
        ({"recompute": "selective", "notes": "recompute not stated"}, {"recompute": "alternate"}),
        ({"recompute": "selective", "notes": "x; MoE layers recomputed"}, ("moe",)),
        ({"recompute": "minimal"}, {"recompute": "alternate"}),
        ({"notes": "selective recompute"}, {"recompute": "alternate"}),
        ({"notes": "gradient checkpointing"}, {"recompute": "full"}),
        ({"notes": "no activation checkpointing"}, {"recompute": "none"}),
        ({"notes": "RoCE"}, {}),
    ],
)
def test_recomputation_has_many_names(cells: dict[str, str], expected: Any) -> None:
    found = recompute_of(Fields(cells), EAGER)
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
        ({"lora": "32"}, True),
        ({"lora": "no", "set": "x-lora"}, False),
        ({"notes": "full weights, not LoRA"}, False),
        ({"notes": "explorations"}, False),
    ],
)
def test_rows_say_whether_they_train_adapters(cells: dict[str, str], adapted: bool) -> None:
    assert is_adapted(Fields(cells)) == adapted
