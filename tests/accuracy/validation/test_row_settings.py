"""What a row's columns say of its software comes before the practice of its framework."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.accuracy.measured_rows import Fields
from cosmic.accuracy.rows.training_software import Software, precision_of, recompute_of, settings_of
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
        (EARLY, {"dropout": "false"}, "dropout", False),
        (TUNED, {"dp_overlap": "false"}, "dp_overlap", False),
        (TUNED, {"tp_overlap": "false"}, "tp_overlap", False),
        (EAGER, {"precision": "float8"}, "execution", "compiled"),  # PyTorch's fp8 needs it
        (EAGER, {"precision": "float8", "execution": "eager"}, "execution", "eager"),
        (TUNED, {"precision": "fp8"}, "execution", "fused"),
        (TUNED, {"execution": "eager"}, "execution", "eager"),
        (TUNED, {"cuda_graph": "[attn, mlp]"}, "cuda_graph", ("attn", "mlp")),
        (TUNED, {"cuda_graph": "[]"}, "cuda_graph", ()),
        (TUNED, {"fp8_recipe": "tensorwise"}, "fp8_recipe", "tensorwise"),
        (TUNED, {"lora": "8"}, "lora_rank", 8),
        (TUNED, {"lora": "yes"}, "lora_rank", 16),
        (TUNED, {"packed_length": "512"}, "packed_length", 512.0),
        (TUNED, {"packing": "512"}, "packed_length", 512.0),
        (TUNED, {"overlap": "none"}, "tp_overlap", False),
        (TUNED, {"grad_reduce_in_fp32": "false"}, "grad_reduce_in_fp32", False),  # any field of a workload
    ],
)
def test_columns_come_first(software: Software, cells: dict[str, str], key: str, value: Any) -> None:
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


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(SpecError, match="must be one of bf16"):
        precision_of(Fields({"precision": "fp3", "accel": "H100"}), TUNED)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"recompute": "none"}, {"recompute": "none"}),
        ({"recompute": "Full"}, {"recompute": "full"}),
        ({"recompute": "selective"}, {"recompute": "alternate"}),  # the framework's
        (
            {"recompute": "selective", "recompute_modules": "[layernorm, moe_act]"},
            {"recompute": "selective", "recompute_modules": ("layernorm", "moe_act")},
        ),
        ({}, {}),
    ],
)
def test_recomputation_is_that_of_the_row(cells: dict[str, str], expected: dict[str, Any]) -> None:
    assert recompute_of(Fields(cells), EAGER) == expected


def test_recomputation_in_other_words_is_refused() -> None:
    with pytest.raises(SpecError, match="recompute = 'uniform': must be one of none, selective"):
        recompute_of(Fields({"recompute": "uniform"}), EAGER)


def test_a_column_holds_what_a_design_may_say() -> None:
    with pytest.raises(SpecError, match="attention"):
        settings(TUNED, attention="flash9")
