"""Scans, frozen weights, dispatchers, repeated keys, checkpoints and time factors, worked by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import batch_of
from cosmic.evaluation import evaluate_batch
from cosmic.search.mapping.design_completion import load_design
from cosmic.step import device_memory
from cosmic.step.communication import CollectiveUse, list_collectives
from cosmic.step.device_memory import footprint
from cosmic.step.kernel_costs import KernelCosts
from cosmic.step.operator_work import OperatorUse, list_operators
from cosmic.step.scan import Scan
from cosmic.step.step_profile import profile_step
from tests.step.tiny import batch

PLAIN: dict[str, Any] = {"tp": 1, "cp": 1, "pp": 1, "ep": 1, "sequence": 1024, "global_batch": 8, "micro_batch": 1}


def uses(name: str, **workload: Any) -> list[OperatorUse]:
    return list_operators(batch_of(load_design(name, PLAIN | workload, plain=True)))


def scan(**workload: Any) -> OperatorUse:
    return next(each for each in uses("nemotron-3-nano@dgx-h100:8", **workload) if isinstance(each.kernel.shape, Scan))


# ---- scans


def test_a_rank_scans_the_groups_of_its_heads() -> None:
    """Nemotron-3 Nano has 64 heads in 8 groups: half of both with tp 2."""
    for tp in (1, 2, 4):
        shape = scan(tp=tp, dp=8 // tp, global_batch=8).kernel.shape
        assert isinstance(shape, Scan)
        assert (float(shape.heads), float(shape.groups)) == (64 / tp, 8 / tp)


def test_a_decoded_token_moves_the_state_twice() -> None:
    """64 matrices of 64 by 128 numbers in 4 bytes, read and written, for each of 3 sequences of a rank."""
    one = scan(task="decode", dp=8, global_batch=8, micro_batch=1)
    three = scan(task="decode", dp=8, global_batch=24, micro_batch=3)
    state = 4 * 64 * 64 * 128
    assert float(one.bytes) > 2 * state
    assert float(three.bytes) == pytest.approx(3 * float(one.bytes), rel=1e-3)  # the decays are read once
    prefilled = scan(task="prefill", dp=8, global_batch=8, sequence=1)
    assert float(one.bytes) - float(prefilled.bytes) == pytest.approx(2 * state)


# ---- frozen weights


def kernels(name: str, phase: str, **changes: Any) -> float:
    made = batch(compute={"host_launch_s": 1.0}, **changes)
    use = next(each for each in list_operators(made) if (each.name, each.phase) == (name, phase))
    return float(KernelCosts(made).launches.kernels(use))


LORA: dict[str, Any] = {"lora_rank": 4, "lora_targets": ("linear_fc1",)}


@pytest.mark.parametrize(
    ("name", "changes", "count"),
    [
        ("q", {"execution": "eager"}, 1),  # of two products, the weights' is not made
        ("k", {"execution": "eager"}, 1 + 1),  # and the sum with the gradient of q's input
        ("q", {"execution": "eager", "precision": "fp8"}, 1 + 2),  # a cast of the gradient: its maximum is found first
    ],
)
def test_a_frozen_gemm_has_one_backward_product(name: str, changes: dict[str, Any], count: float) -> None:
    assert kernels(name, "backward", **changes, **LORA) == count
    assert kernels(name, "backward", **changes) > count


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_a_frozen_gemm_takes_less_than_half_of_what_it_would(precision: str) -> None:
    point = load_design("llama3-8b@dgx-h100:8", PLAIN | {"dp": 8, "precision": precision}, plain=True)
    tuned = replace(point, workload=replace(point.workload, lora_rank=16, lora_targets=("linear_fc1",)))
    found = {}
    for frozen, each in ((False, point), (True, tuned)):
        made = batch_of(each)
        costs = KernelCosts(made)
        for use in list_operators(made):
            if use.phase == "backward" and use.name in ("q", "k"):
                found[use.name, frozen] = float(costs.seconds(use))
    assert 0.3 < found["q", True] / found["q", False] < 0.6
    assert 0.3 < found["k", True] / found["k", False] < 0.75  # the sum of gradients stays


# ---- communication


def sent(name: str, role: str, **workload: Any) -> list[CollectiveUse]:
    point = load_design(name, PLAIN | workload, plain=True)
    return [each for each in list_collectives(batch_of(point)) if each.role == role]


def test_a_token_goes_to_a_node_once_or_once_for_each_expert() -> None:
    """Mixtral picks 2 of 8 experts."""
    mesh = {"dp": 16, "ep": 8, "global_batch": 16}
    for dispatcher, copies in (("flex", 2), ("alltoall", 1)):
        found = sent("mixtral-8x7b@dgx-h100:16", "ep", moe_token_dispatcher_type=dispatcher, **mesh)
        assert max(each.copies for each in found) == copies
    assert {each.copies for each in sent("mixtral-8x7b@dgx-h100:16", "tp", tp=2, dp=8, ep=8, global_batch=16)} == {1}


@pytest.mark.parametrize("kind", ["ring", "all_gather"])
def test_repeated_keys_are_sent_for_every_head(kind: str) -> None:
    """LLaMA-3 8B has 32 heads and 8 of keys and values: four times the bytes."""
    mesh = {"cp": 2, "dp": 4, "cp_comm_type": kind}
    roles = ("ring", "cp")
    plain, repeated = (
        [each for role in roles for each in sent("llama3-8b@dgx-h100:8", role, kv_repeated=switch, **mesh)]
        for switch in (False, True)
    )
    ratios = {float(b.bytes / a.bytes) for a, b in zip(plain, repeated, strict=True)}
    assert 4.0 in ratios
    assert ratios <= {1.0, 4.0}


# ---- checkpoints


def test_only_recomputed_layers_enter_a_checkpoint_and_only_forwards() -> None:
    changes: dict[str, Any] = {"execution": "eager"}
    for recompute in ("none", "full"):
        made = batch(compute={"host_launch_s": 1.0}, recompute=recompute, **changes)
        costs = KernelCosts(made).launches
        layer = [use for use in list_operators(made) if use.block == "layer"]
        first = next(use for use in layer if use.phase == "forward")
        back = next(use for use in layer if use.phase == "backward" and use.name == first.name)
        entered = float(costs.operator_s(first)) - float(costs.kernels(first) * costs._one_s("forward"))
        assert (entered > 0) == (recompute == "full")
        assert float(costs.operator_s(back)) == pytest.approx(float(costs.kernels(back) * costs._one_s("backward")))


# ---- time factor


@pytest.mark.parametrize(
    "workload",
    [
        {"tp": 2, "pp": 2, "dp": 2, "execution": "fused"},
        {"dp": 8, "execution": "eager", "sequence": 64},
        {"dp": 8, "weight_sharding": "zero3"},
    ],
)
def test_a_factor_makes_everything_longer(workload: dict[str, Any]) -> None:
    point = load_design("gpt3-125m@dgx-h100:8", PLAIN | {"global_batch": 16} | workload, plain=True)
    slow = replace(point, compute=replace(point.compute, time_factor=2.0))
    one, two = (evaluate_batch(batch_of(each)).columns for each in (point, slow))
    for name in ("step_s", "breakdown.launch", "breakdown.optimizer", "breakdown.tp", "breakdown.pp"):
        assert float(two[name][0]) == pytest.approx(2 * float(one[name][0]), rel=1e-9), name
    for a, b in zip(profile_step(batch_of(point)).operators, profile_step(batch_of(slow)).operators, strict=True):
        assert np.allclose(2 * np.asarray(a.seconds), b.seconds)
        assert np.allclose(2 * np.asarray(a.launch_s), b.launch_s)
    for call, longer in zip(profile_step(batch_of(point)).traffic, profile_step(batch_of(slow)).traffic, strict=True):
        assert np.allclose(2 * np.asarray(call.seconds), longer.seconds)


# ---- stages


@pytest.mark.parametrize(
    ("name", "workload"),
    [
        ("gpt3-175b@dgx-h100:64", {"pp": 8, "schedule": "dualpipe", "model.layers": 45}),
        ("gpt3-175b@dgx-h100:64", {"pp": 8, "schedule": "dualpipe", "model.layers": 50}),
        ("llama3-8b@dgx-h100:64", {"pp": 8, "schedule": "dualpipe", "last_stage_layers": 1}),
        ("gpt3-175b@dgx-h100:64", {"pp": 8, "last_stage_layers": 3}),
        ("nemotron-3-nano@dgx-h100:64", {"pp": 8}),
        ("deepseek-v3@dgx-h100:64", {"pp": 16, "schedule": "dualpipe", "ep": 4}),
        ("llama3-70b@dgx-h100:64", {"pp": 16}),
    ],
)
def test_no_stage_that_is_left_out_is_the_fullest(
    name: str, workload: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    point = load_design(name, PLAIN | {"global_batch": 64} | workload, plain=True)
    found = float(footprint(batch_of(point)).peak)
    monkeypatch.setattr(device_memory, "fullest_stage_candidates", lambda _, __: list(range(workload["pp"])))
    assert found == pytest.approx(float(footprint(batch_of(point)).peak), rel=1e-12)
