"""What calibrated systems must get right whatever their numbers are: batches, formats, stages, orders."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from cosmic.base.units import split_name
from cosmic.design.design_batch import Batch, Names, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.machine_layers import accelerator_layers
from cosmic.design.prediction_accuracy import NOT_MEASURED, expected_error
from cosmic.evaluation import evaluate_batch
from cosmic.search.mapping.design_completion import load_design
from cosmic.step.attention import Attention, AttentionRates, decode_attention_seconds
from cosmic.step.communication import list_collectives
from cosmic.step.kernel_costs import KernelCosts
from cosmic.step.operator_work import OperatorUse, list_operators
from cosmic.step.step_profile import profile_step

ACCELERATORS = ("h100-sxm-80gb", "tpu-v5p", "b200-sxm-180gb", "a100-sxm-80gb")


def design(name: str, **workload: Any) -> DesignPoint:
    mesh = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "dp": 1} | workload
    return load_design(name, {f"workload.{key}": value for key, value in mesh.items()})


def parts(point: DesignPoint) -> dict[str, float]:
    columns = evaluate_batch(batch_of(point)).columns
    return {name.removeprefix("breakdown."): float(column[0]) for name, column in columns.items()}


def use_of(point: DesignPoint, block: str, name: str) -> OperatorUse:
    return next(use for use in list_operators(batch_of(point)) if (use.block, use.name) == (block, name))


def seconds(point: DesignPoint, block: str, name: str) -> float:
    return float(KernelCosts(batch_of(point)).seconds(use_of(point, block, name)))


# ---- batches


def accelerator_changes(name: str) -> dict[str, Any]:
    compute, memory = accelerator_layers(name, "compute.accelerator")
    changes = {f"compute.{split_name(each.name)[0]}": getattr(compute, each.name) for each in fields(compute)}
    return changes | {"memory.capacity": memory.capacity_bytes, "memory.bandwidth": memory.bandwidth_bytes_per_s}


def column(values: list[Any]) -> Any:
    if all(isinstance(value, str) for value in values):
        names = sorted(set(values))
        return Names(names, np.array([names.index(value) for value in values]))
    return np.array(values, dtype=object if None in values else None)


MESHES: list[dict[str, Any]] = [
    {"tp": 1, "pp": 1, "dp": 64, "ep": 1, "global_batch": 128},
    {"tp": 8, "pp": 1, "dp": 8, "ep": 8, "global_batch": 64},
    {"tp": 2, "pp": 4, "dp": 8, "ep": 2, "global_batch": 64},
    {"tp": 1, "pp": 2, "dp": 32, "ep": 8, "global_batch": 64},
]
CASES = [
    ("mixtral-8x7b@dgx-h100:64", {"precision": "fp8", "weight_sharding": "zero1", "recompute": "full"}),
    ("mixtral-8x7b@dgx-b200:64", {"task": "decode", "precision": "fp4", "weight_sharding": "zero3"}),
    ("mixtral-8x7b@gb200-nvl72:64", {"task": "prefill", "precision": "int4"}),
    ("mixtral-8x7b@dgx-h100:64", {"sequence": 256, "execution": "eager", "tp_overlap": True}),
]


@pytest.mark.parametrize("mixed", [False, True], ids=["one accelerator", "several"])
@pytest.mark.parametrize(("name", "workload"), CASES)
def test_a_batch_gives_what_each_design_gives_alone(name: str, workload: dict[str, Any], mixed: bool) -> None:
    base = design(name, **workload, **MESHES[0])
    rows = [{f"workload.{key}": value for key, value in mesh.items()} for mesh in MESHES]
    if mixed:
        rows = [row | accelerator_changes(name) for row, name in zip(rows, ACCELERATORS, strict=True)]
    found = evaluate_batch(Batch(base, {path: column([row[path] for row in rows]) for path in rows[0]}))
    for place, row in enumerate(rows):
        alone = evaluate_batch(batch_of(base.changed(row)))
        for metric, values in alone.columns.items():
            assert found.columns[metric][place] == pytest.approx(values[0], rel=1e-9, nan_ok=True), (metric, row)


# ---- formats


@pytest.mark.parametrize("precision", ["fp8", "fp4", "int4"])
def test_the_head_is_read_in_16_bits_whatever_serves_the_rest(precision: str) -> None:
    usual, narrow = (
        design("llama3-8b@dgx-b200:1", task="decode", precision=each, micro_batch=8, global_batch=8)
        for each in ("bf16", precision)
    )
    assert seconds(narrow, "head", "logits") == pytest.approx(seconds(usual, "head", "logits"))
    assert seconds(narrow, "layer", "ffn_up") < seconds(usual, "layer", "ffn_up")


def test_four_bits_leave_attention_alone_in_the_dense_layers_of_an_moe_model_too() -> None:
    point = design("deepseek-v3@dgx-b200:8", task="decode", precision="fp4", tp=8, micro_batch=8, global_batch=8)
    assert seconds(point, "layer", "out") == seconds(point, "moe_layer", "out")


def test_engines_fuse_gemms_that_read_the_same_input() -> None:
    def both(execution: str) -> tuple[float, float]:
        work = {"task": "decode", "precision": "fp4", "tp": 8, "micro_batch": 8, "global_batch": 8}
        point = design("llama3-70b@dgx-b200:8", **work, execution=execution)
        return seconds(point, "layer", "ffn_up"), seconds(point, "layer", "ffn_gate")

    first, second = both("fused")  # 28 tiles of 256 columns find a place among 148 SMs
    assert 0 < second < 0.2 * first
    first, second = both("eager")
    assert second > 0.5 * first


def test_gathered_weights_travel_in_the_format_that_serves() -> None:
    def gathered(precision: str) -> float:
        point = design("llama3-8b@dgx-h100:8", task="decode", precision=precision, dp=8, weight_sharding="zero3")
        sent = [use for use in profile_step(batch_of(point), "first").collectives if use.overlaps]
        return sum(float(use.bytes * use.calls) for use in sent)

    assert 0.5 < gathered("fp8") / gathered("bf16") < 0.6  # embedding and head stay in 16 bits


def test_what_split_experts_make_is_added_up_before_it_is_exchanged() -> None:
    point = design("deepseek-v3@dgx-h200:8", task="decode", tp=8, micro_batch=64, global_batch=64)
    sent = [use for use in list_collectives(batch_of(point)) if use.axes == ("tp",) and use.block == "moe_layer"]
    assert [use.kind for use in sent] == ["all_reduce"] * 2  # after attention, and of all experts together
    assert sent[0].bytes == sent[1].bytes


def test_a_roofline_reads_weights_and_cache_as_they_are_kept() -> None:
    usual, narrow = (
        design("llama3-8b@tpu-v5p:8", task="decode", precision=each, dp=8, micro_batch=4, global_batch=32)
        for each in ("bf16", "fp8")
    )
    assert 0.5 < use_of(narrow, "layer", "ffn_up").bytes / use_of(usual, "layer", "ffn_up").bytes < 0.51
    assert 0.5 < use_of(narrow, "layer", "attention").bytes / use_of(usual, "layer", "attention").bytes < 0.51
    assert parts(narrow)["step_s"] < 0.65 * parts(usual)["step_s"]


def test_a_roofline_reads_the_experts_that_are_picked() -> None:
    few = design("mixtral-8x7b@tpu-v5p:8", task="decode", dp=8, micro_batch=1, global_batch=8)
    many = design("mixtral-8x7b@tpu-v5p:8", task="decode", dp=8, micro_batch=64, global_batch=512)
    ratio = use_of(few, "moe_layer", "expert_ffn_up").bytes / use_of(many, "moe_layer", "expert_ffn_up").bytes
    assert ratio == pytest.approx(2 / 8, rel=0.05)


@pytest.mark.parametrize("attention", ["fused", "unfused"])
def test_attention_in_single_precision_takes_nearly_twice_as_long(attention: str) -> None:
    usual, wide = (
        design("llama3-8b@dgx-h100:1", precision=each, attention=attention, sequence=4096, global_batch=1)
        for each in ("bf16", "fp32")
    )
    assert seconds(wide, "layer", "attention") > 1.8 * seconds(usual, "layer", "attention")


def test_serving_in_single_precision_multiplies_in_it() -> None:
    usual, wide = (
        design("llama3-8b@dgx-h100:1", task="prefill", precision=each, sequence=4096, global_batch=1)
        for each in ("bf16", "fp32")
    )
    assert seconds(wide, "layer", "ffn_up") > 1.8 * seconds(usual, "layer", "ffn_up")


def test_latent_attention_decodes_no_faster_than_its_products() -> None:
    rates = AttentionRates(989e12, 3e12, efficiency=0.7, backward_efficiency=0.6, ramp_s=2e-6)
    work = Attention(64, 128, 1, 1, 4096, 576, 512, element_bytes=1, mla=True)
    products = 2 * 64 * 128 * 4096 * (576 + 512) / (0.7 * 989e12)
    read = 64 * 4096 * 576 / (3e12 * 1.05)
    assert products > 2 * read
    assert decode_attention_seconds(work, rates) == pytest.approx(products + rates.ramp_s)


# ---- steps and stages


def test_replicas_that_share_the_update_take_as_long_however_weights_are_kept() -> None:
    update = {
        sharding: parts(design("llama3-8b@dgx-h100:8", dp=8, global_batch=8, weight_sharding=sharding))["optimizer"]
        for sharding in ("none", "zero1", "zero2", "zero3")
    }
    assert update["zero2"] == pytest.approx(update["zero1"])
    assert update["zero3"] == pytest.approx(update["zero1"])
    assert update["none"] > 7 * update["zero1"]


def test_the_stages_before_the_last_wait_for_no_head_that_they_lack() -> None:
    mesh = {"pp": 4, "dp": 64, "global_batch": 64, "sequence": 512, "precision": "fp8", "recompute": "full"}
    mesh |= {"execution": "compiled", "schedule": "1f1b", "micro_batch": 1}  # casts are kernels of their own
    slower = design("llama3-8b@dgx-b200:256", **mesh)  # bound by the host
    faster = slower.changed({"compute.bf16": 1.5 * slower.compute.bf16_flop_per_s})  # the head's rate
    assert parts(slower)["launch"] > 0
    assert parts(faster)["bubble"] == pytest.approx(parts(slower)["bubble"])
    assert parts(faster)["step_s"] <= parts(slower)["step_s"]


def test_what_was_never_measured_is_not_called_accurate() -> None:
    for found in (
        expected_error(load_design("dlrm-criteo@dgx-h100:8")),
        expected_error(load_design("llama3-8b@dgx-h100:8", {"precision": "fp32"})),
    ):
        assert (found.error, found.on) == (None, NOT_MEASURED)
