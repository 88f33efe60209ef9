"""Bytes of what is kept and sent in each number format, by the bits of numbers and of their scales."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.design.workload_layer import Workload
from cosmic.workload.precision import RECIPES, gathers_narrow, operand_scaling, recipe_for, shards_narrow


def workload(**changes: Any) -> Workload:
    return Workload(**{"sequence": 4, "global_batch": 1} | changes)


@pytest.mark.parametrize(
    ("precision", "recipe", "bits"),
    [
        ("fp8", "delayed", 8.0),
        ("fp8", "tensorwise", 8.0),
        ("fp8", "rowwise", 8.0),
        ("fp8", "blockwise", 8 + 32 / 128),  # a scale of 32 bits for 128 numbers
        ("fp8", "mxfp8", 8 + 8 / 32),  # of 8 bits for 32
        ("fp8", "auto", 8 + 8 / 32),
        ("fp4", "auto", 4 + 8 / 16),  # of 8 bits for 16
        ("fp4", "delayed", 4 + 8 / 16),  # whatever this says
    ],
)
def test_activations_are_kept_in_the_format_of_gemms_with_their_scales(
    precision: str, recipe: str, bits: float
) -> None:
    assert recipe_for(workload(precision=precision, fp8_recipe=recipe)).saved == bits / 8


def test_other_formats_keep_activations_as_they_are() -> None:
    assert {name for name, recipe in RECIPES.items() if recipe.saved is not None} == {"fp8", "fp4"}
    assert recipe_for(workload(precision="bf16", fp8_recipe="delayed")).saved is None
    assert recipe_for(workload(precision="fp8", fp8_recipe="delayed", task="prefill")).saved is None


@pytest.mark.parametrize(
    ("precision", "asked", "gradient"),
    [
        ("bf16", None, 4),
        ("bf16", True, 4),
        ("bf16", False, 2),
        ("fp16", None, 2),
        ("fp16", True, 4),
        ("fp16", False, 2),
        ("fp32", False, 4),  # there is no master copy to add to
        ("bf16_pure", True, 2),
    ],
)
def test_gradients_have_16_or_32_bits_beside_a_master_copy(precision: str, asked: bool | None, gradient: int) -> None:
    found = recipe_for(workload(precision=precision, grad_reduce_in_fp32=asked))
    assert (found.gradient, found.moments) == (gradient, RECIPES[precision].moments)


@pytest.mark.parametrize(("precision", "moments"), [("bf16", 4), ("fp32", 8), ("bf16_pure", 4)])
def test_two_moments_of_16_bits_are_4_bytes(precision: str, moments: int) -> None:
    assert recipe_for(workload(precision=precision, moments="bf16")).moments == moments
    served = recipe_for(workload(precision=precision, moments="bf16", task="decode"))
    assert (served.moments, served.gradient) == (0, 0)


@pytest.mark.parametrize(
    ("task", "precision", "dtype", "cache"),
    [
        ("decode", "bf16", "auto", 2),
        ("decode", "bf16", "fp8", 1),
        ("decode", "fp8", "auto", 1),
        ("prefill", "fp8", "bf16", 2),
        ("training", "bf16", "fp8", 2),  # nothing is cached
    ],
)
def test_the_kv_cache_has_a_format_of_its_own(task: str, precision: str, dtype: str, cache: int) -> None:
    assert recipe_for(workload(task=task, precision=precision, cache_dtype=dtype)).cache == cache


@pytest.mark.parametrize(
    ("precision", "recipe", "execution", "found", "gathered", "sharded"),
    [
        ("fp8", "auto", "eager", "tensorwise", False, True),
        ("fp8", "auto", "compiled", "tensorwise", True, True),
        ("fp8", "auto", "fused", "auto", True, False),
        ("fp8", "rowwise", "compiled", "rowwise", False, False),
        ("fp8", "tensorwise", "fused", "tensorwise", True, True),
        ("fp8", "delayed", "eager", "delayed", False, False),
        ("fp4", "rowwise", "fused", "nvfp4", True, False),
        ("fp4", "tensorwise", "eager", "nvfp4", False, False),
        ("bf16", "tensorwise", "fused", "tensorwise", False, False),
    ],
)
def test_ranks_cast_before_they_gather_where_a_scale_is_known(
    precision: str, recipe: str, execution: str, found: str, gathered: bool, sharded: bool
) -> None:
    given = workload(precision=precision, fp8_recipe=recipe, execution=execution)
    assert (operand_scaling(given), gathers_narrow(given), shards_narrow(given)) == (found, gathered, sharded)
