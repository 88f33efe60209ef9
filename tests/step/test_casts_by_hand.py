"""Seconds of casts to 8 and 4 bits, worked out by hand.

The accelerator moves 100 bytes/s and multiplies at once. A cast reaches 50 bytes/s in kernels written for it, 25 in
those of a compiler and 20 eager; after each kernel there is a gap of 3 s. ffn_up reads 4 tokens x 8, and makes 4 x 16
with 128 weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cosmic.step import gemm, kernel_costs, kernel_launches
from cosmic.step.communication import list_collectives
from cosmic.step.gemm import CastPace
from cosmic.step.kernel_costs import KernelCosts
from cosmic.step.operator_work import list_operators
from cosmic.workload.precision import recipe_for
from tests.step.tiny import Changes, batch, point

HOPPER: Changes = {"compute": {"sms": 1, "bf16_flop_per_s": 1e30, "fp8_flop_per_s": 1e30}}
BLACKWELL: Changes = {"compute": HOPPER["compute"] | {"fp4_flop_per_s": 1e30}}
GAP = 3.0
READ, MADE, WEIGHTS = 4 * 8, 4 * 16, 8 * 16
FORWARD = (READ + WEIGHTS + 2 * MADE) / 100
"""Seconds in which the GEMM itself reads a byte for an element, and writes two."""
BACKWARD = (MADE + WEIGHTS + 2 * READ + READ + MADE + 2 * WEIGHTS) / 100
ACCUMULATED = (2 * 2 - 2) * WEIGHTS / 100
"""Seconds to add to 16-bit gradients in place of writing them."""
KERNELS = {"delayed": 1, "tensorwise": 2, "rowwise": 2, "blockwise": 1, "mxfp8": 1, "nvfp4": 2}


@pytest.fixture(autouse=True)
def _round_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_costs, "CONSTANTS", replace(kernel_launches.CONSTANTS, queue_gap_s=GAP))
    pace = CastPace(written=0.5, compiled=0.25, eager=0.2)
    monkeypatch.setattr(kernel_costs, "CAST_CONSTANTS", replace(gemm.CAST_CONSTANTS, pace=pace))


def seconds(name: str, phase: str = "forward", **changes: Any) -> float:
    made = batch(**{"precision": "fp8"} | changes)
    use = next(use for use in list_operators(made) if (use.name, use.phase) == (name, phase))
    return float(KernelCosts(made).seconds(use))


@pytest.mark.parametrize(
    ("recipe", "moved"),
    [
        ("delayed", 2 + 1 + 1),  # read, written, and written along columns
        ("tensorwise", 2 + 2 + 1 + 1),  # read for the maximum first
        ("rowwise", 2 + 1 + 2 + 2 + 1),  # columns are read for their maxima, too
        ("blockwise", 2 + 2 * (1 + 4 / 128)),
    ],
)
def test_hopper_needs_a_copy_along_rows_and_one_along_columns(recipe: str, moved: float) -> None:
    found = seconds("ffn_up", fp8_recipe=recipe, **HOPPER)
    assert found == pytest.approx(FORWARD + moved * (READ + WEIGHTS) / 50 + KERNELS[recipe] * GAP)


@pytest.mark.parametrize(("recipe", "moved"), [("delayed", 2 + 1), ("tensorwise", 2 + 2 + 1)])
def test_with_one_scale_for_a_tensor_blackwell_needs_one_copy(recipe: str, moved: float) -> None:
    found = seconds("ffn_up", fp8_recipe=recipe, **BLACKWELL)
    assert found == pytest.approx(FORWARD + moved * (READ + WEIGHTS) / 50 + KERNELS[recipe] * GAP)


def test_mxfp8_makes_both_copies_with_their_scales_and_orders_the_scales_of_both_operands() -> None:
    moved = 2 + 2 * (1 + 1 / 32)
    forward = FORWARD + moved * (READ + WEIGHTS) / 50 + GAP + 2 * GAP
    assert seconds("ffn_up", fp8_recipe="mxfp8", **BLACKWELL) == pytest.approx(forward)
    backward = BACKWARD + ACCUMULATED + moved * MADE / 50 + GAP + 4 * GAP
    assert seconds("ffn_up", "backward", fp8_recipe="mxfp8", **BLACKWELL) == pytest.approx(backward)


def test_nvfp4_reads_for_the_maximum_and_again_for_both_copies() -> None:
    narrow = (0.5625 * (READ + WEIGHTS) + 2 * MADE) / 100
    forward = narrow + (2 + 2 + 2 * 0.5625) * (READ + WEIGHTS) / 50 + 2 * GAP + 2 * GAP
    for recipe in ("auto", "tensorwise"):  # fp4 is NVFP4 whatever is said of fp8
        assert seconds("ffn_up", precision="fp4", fp8_recipe=recipe, **BLACKWELL) == pytest.approx(forward)


def test_frameworks_choose_a_recipe_by_the_accelerator_if_none_is_given() -> None:
    assert seconds("ffn_up", **HOPPER) == seconds("ffn_up", fp8_recipe="delayed", **HOPPER)
    assert seconds("ffn_up", **BLACKWELL) == seconds("ffn_up", fp8_recipe="mxfp8", **BLACKWELL)
    for machine in (HOPPER, BLACKWELL):
        compiled: Changes = {"execution": "compiled"} | machine
        assert seconds("ffn_up", **compiled) == seconds("ffn_up", fp8_recipe="tensorwise", **compiled)


def test_transformer_engine_casts_the_gradient_alone_as_the_input_is_kept() -> None:
    found = seconds("ffn_up", "backward", fp8_recipe="tensorwise", **HOPPER)
    assert found == pytest.approx(BACKWARD + ACCUMULATED + 6 * MADE / 50 + 2 * GAP)
    eager = seconds("ffn_up", "backward", fp8_recipe="delayed", execution="eager", weight_sharding="zero3", **HOPPER)
    assert eager == pytest.approx(BACKWARD + 4 * MADE / 50 + GAP + 3 * WEIGHTS / 50)


@pytest.mark.parametrize(("execution", "pace"), [("compiled", 25), ("eager", 20)])
def test_pytorch_casts_the_input_again_for_its_backward_pass(execution: str, pace: float) -> None:
    own: Changes = {"execution": execution, "fp8_recipe": "tensorwise", "weight_sharding": "zero3"} | HOPPER
    forward = FORWARD + 5 * READ / pace + 2 * GAP + 5 * WEIGHTS / pace
    assert seconds("ffn_up", **own) == pytest.approx(forward)
    backward = BACKWARD + (6 * MADE + 5 * READ) / pace + 4 * GAP + 2 * WEIGHTS / pace  # weights are turned
    assert seconds("ffn_up", "backward", **own) == pytest.approx(backward)


def test_gemms_that_read_one_tensor_cast_it_once() -> None:
    one = (4 * 8 + 8 * 8 + 2 * 4 * 8) / 100 + 4 * 8 * 8 / 50
    assert seconds("q", fp8_recipe="delayed", **HOPPER) == pytest.approx(one + 4 * READ / 50 + GAP)
    assert seconds("k", fp8_recipe="delayed", **HOPPER) == pytest.approx(one)


@pytest.mark.parametrize(
    ("recipe", "machine", "moved"),
    [
        ("delayed", HOPPER, 4 / 2 + 2 / 2),  # a rank's half, and the other half turned once it is there
        ("delayed", BLACKWELL, 3 / 2),
        ("mxfp8", BLACKWELL, (2 + 2 * 33 / 32) / 2),
        ("rowwise", HOPPER, 8),  # gathered in 16 bits
    ],
)
def test_ranks_cast_their_part_before_they_gather_it(recipe: str, machine: Changes, moved: float) -> None:
    weights = {"delayed": 4 if machine is HOPPER else 3, "mxfp8": 2 + 2 * 33 / 32, "rowwise": 8}[recipe] * 64
    scales = 2 * GAP if recipe == "mxfp8" else 0
    start = KERNELS[recipe] * GAP + scales
    narrow = (READ + 64 + 2 * 32) / 100  # 8 of 16 columns
    found = seconds("ffn_up", tp=2, fp8_recipe=recipe, **machine)
    assert found == pytest.approx(narrow + (moved * READ + weights) / 50 + start)
    down = (MADE / 2 + 64 + 2 * READ) / 100 + ((MADE / 2 + 64) * weights / 64) / 50 + start
    assert seconds("ffn_down", tp=2, fp8_recipe=recipe, **machine) == pytest.approx(down)


def test_the_gradient_of_what_is_scattered_is_cast_before_it_is_gathered() -> None:
    """The result of ffn_down is 4 x 8, of which each of 2 ranks has half; 8 of 16 rows of its weights are here."""
    gemms = (READ + 64 + 2 * 32 + 32 + READ + 2 * 64) / 100 + (2 * 2 - 2) * 64 / 100
    found = seconds("ffn_down", "backward", tp=2, fp8_recipe="delayed", **HOPPER)
    assert found == pytest.approx(gemms + (4 / 2 + 2 / 2) * READ / 50 + GAP)


def test_weights_are_cast_once_a_step_but_at_each_use_where_they_are_gathered() -> None:
    four: Changes = {"fp8_recipe": "delayed", "global_batch": 4} | HOPPER
    once = seconds("ffn_up", **four)
    assert seconds("ffn_up", fp8_recipe="delayed", **HOPPER) - once == pytest.approx(4 * WEIGHTS / 50 * (1 - 1 / 4))
    each = seconds("ffn_up", weight_sharding="zero3", **four)
    assert each - once == pytest.approx((3 - 4 / 4) * WEIGHTS / 50)


def test_shards_with_one_scale_for_a_tensor_are_cast_before_they_are_gathered() -> None:
    sharded: Changes = {"dp": 2, "weight_sharding": "zero3", "execution": "compiled"} | HOPPER
    own = seconds("ffn_up", fp8_recipe="tensorwise", **sharded)
    assert own == pytest.approx(FORWARD + 5 * READ / 25 + 2 * GAP + 5 * (WEIGHTS / 2) / 25)
    widths = {}
    for recipe in ("tensorwise", "rowwise"):
        made = batch(precision="fp8", fp8_recipe=recipe, **sharded)
        gathered = [use for use in list_collectives(made) if use.kind == "all_gather" and use.block == "layer"]
        widths[recipe] = {use.tensor: float(use.bytes) for use in gathered if use.phase == "forward"}
    assert widths["tensorwise"]["w_ffn_up"] == WEIGHTS
    assert widths["rowwise"]["w_ffn_up"] == 2 * WEIGHTS
    assert widths["tensorwise"]["w_ffn_norm"] == 2 * 8  # norms keep their 16 bits


@pytest.mark.parametrize(
    ("recipe", "input_", "gradient"), [("tensorwise", 1, 1), ("mxfp8", 1, 2), ("rowwise", 2, 2), ("auto", 1, 2)]
)
def test_both_copies_of_a_gradient_are_gathered_where_each_has_its_scales(
    recipe: str, input_: float, gradient: float
) -> None:
    uses = list_collectives(batch(precision="fp8", fp8_recipe=recipe, tp=2, **BLACKWELL))
    widths = {use.tensor: float(use.bytes) / 32 for use in uses if use.kind == "all_gather" and use.block == "layer"}
    assert (widths["ffn_norm"], widths["d_y"]) == (input_, gradient)


def test_head_and_router_stay_in_16_bits_and_are_not_cast() -> None:
    assert seconds("logits", fp8_recipe="tensorwise", **HOPPER) == seconds("logits", precision="bf16", **HOPPER)


def test_the_recipe_has_no_effect_on_other_precisions() -> None:
    for changes in ({"precision": "bf16"}, {"precision": "fp32"}):
        plain = seconds("ffn_up", **changes, **HOPPER)
        assert seconds("ffn_up", fp8_recipe="rowwise", **changes, **HOPPER) == plain


def test_what_is_kept_has_the_scales_of_its_recipe() -> None:
    kept = {
        recipe: recipe_for(point(precision="fp8", fp8_recipe=recipe).workload).saved
        for recipe in ("auto", "delayed", "tensorwise", "blockwise", "mxfp8")
    }
    assert kept == {"auto": 33 / 32, "delayed": 1, "tensorwise": 1, "blockwise": 1 + 4 / 128, "mxfp8": 33 / 32}
