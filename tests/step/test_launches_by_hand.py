"""What the host launches, worked out by hand: on a host that takes a second for a launch, with round constants."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import batch_of, batch_of_changes
from cosmic.design.model_layer import Experts, StateSpace
from cosmic.step import kernel_launches, scan
from cosmic.step.kernel_costs import KernelCosts
from cosmic.step.kernel_launches import LaunchConstants, PassNumbers
from cosmic.step.operator_work import OperatorUse, list_operators
from cosmic.workload.user_programs.program_models import model_of
from cosmic.workload.user_programs.program_yaml import read_program
from tests.step.tiny import Changes, batch, point

ONE_OF_TWO = Experts(count=2, active=1, ffn=6)
MOE: Changes = {"model": {"experts": ONE_OF_TWO}}
EVEN: Changes = {"model": {"experts": Experts(count=2, active=1, ffn=6, capacity_factor=1.0)}}
HIT = 2 * 15 / 16
"""Of two experts, those that 4 tokens hit which choose one each."""


@pytest.fixture(autouse=True)
def _round_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = LaunchConstants(
        backward_launch=0.5,
        inference_launch=0.25,
        compiled_launch=0.125,
        compiled_call=PassNumbers(forward=10.0, backward=20.0),
        checkpoint_call=PassNumbers(forward=100.0, backward=60.0),
        router_kernels=PassNumbers(forward=30.0, backward=20.0),
        dispatch_kernels=PassNumbers(forward=40.0, backward=10.0),
        host_jitter=0.1,
        queue_gap_s=3.0,
        fused_gap_s=9.0,
        graph_gap_s=7.0,
        attention_kernels=PassNumbers(forward=1.0, backward=3.0),
        unfused_kernels=PassNumbers(forward=12.0, backward=24.0),
        collective_kernels=2.0,
    )
    monkeypatch.setattr(kernel_launches, "CONSTANTS", constants)


def use_of(name: str, phase: str = "forward", **changes: Any) -> tuple[KernelCosts, OperatorUse]:
    made = batch(compute={"host_launch_s": 1.0}, **changes)
    return KernelCosts(made), next(use for use in list_operators(made) if (use.name, use.phase) == (name, phase))


def kernels(name: str, phase: str = "forward", **changes: Any) -> float:
    costs, use = use_of(name, phase, **changes)
    return float(costs.launches.kernels(use))


def launch_s(name: str, phase: str = "forward", **changes: Any) -> float:
    costs, use = use_of(name, phase, **changes)
    return float(costs.launch_s(use))


EAGER: Changes = {"execution": "eager"}
DROPPED: Changes = {"execution": "eager", "weight_sharding": "zero3"}
"""Gradients are reduced and dropped, not added up."""


@pytest.mark.parametrize(
    ("name", "phase", "changes", "count"),
    [
        ("ffn_up", "forward", {}, 1),
        ("ffn_up", "forward", {"precision": "fp8"}, 1),  # the kernel before casts
        ("ffn_up", "forward", {"precision": "fp8", "execution": "compiled"}, 3),  # finds the maximum, and casts
        ("ffn_up", "forward", {"precision": "fp8"} | EAGER, 3),
        ("ffn_up", "forward", {"precision": "fp4"} | EAGER, 1),  # by a kernel of Transformer Engine
        ("logits", "forward", {"precision": "fp8"} | EAGER, 1),
        ("k", "forward", {"precision": "fp8"} | EAGER, 1),  # q has cast the same activation
        ("ffn_up", "forward", {"precision": "fp8", "task": "prefill"}, 1),
        ("ffn_up", "forward", {"precision": "fp8", "task": "prefill"} | EAGER, 2),
        ("k", "forward", {"task": "prefill"}, 0),  # columns of q's GEMM
        ("k", "forward", {"task": "prefill"} | EAGER, 1),
        ("k", "forward", {}, 0),  # training frameworks fuse q, k and v, too
        ("k", "forward", EAGER, 1),
        ("ffn_up", "backward", {}, 2),
        ("ffn_up", "backward", DROPPED, 2),
        ("ffn_up", "backward", EAGER, 3),  # and the sum with earlier gradients of the weight
        ("k", "backward", DROPPED, 3),  # and the sum with the gradient of q's input
        ("ffn_up", "backward", {"precision": "fp8"} | DROPPED, 6),  # casts of dy and of x
        ("k", "backward", {"precision": "fp8"} | DROPPED, 5),  # of dy alone, and the sum
        ("ffn_norm", "backward", DROPPED, 2),
        ("ffn_norm", "backward", EAGER, 3),
        ("attention", "forward", {}, 1),
        ("attention", "backward", {}, 3),
        ("attention", "forward", {"attention": "unfused"}, 12),
        ("attention", "backward", {"attention": "unfused"}, 24),
        ("y", "forward", {}, 1),
        ("ffn_inner", "backward", {"model": {"gated": True}} | EAGER, 2),
        ("ffn_inner", "backward", {"model": {"gated": True}}, 1),
    ],
)
def test_each_operator_has_its_kernels(name: str, phase: str, changes: dict[str, Any], count: float) -> None:
    assert kernels(name, phase, **changes) == pytest.approx(count)


@pytest.mark.parametrize(
    ("phase", "changes", "count"),
    [
        ("forward", EAGER, 1),  # one grouped GEMM
        ("backward", DROPPED, 2),
        ("forward", {"execution": "compiled"}, 1),
        ("forward", {"grouped_gemm": False} | EAGER, HIT),
        ("backward", {"grouped_gemm": False} | EAGER, 3 * HIT),
        ("forward", {}, HIT),  # one call by hand, but a GEMM for each expert
        ("backward", {}, 2 * HIT),
        ("forward", {"precision": "fp8"}, 2 * HIT),  # and a cast
        ("backward", {"precision": "fp8"}, 4 * HIT),  # casts of dy and of x
        ("forward", {"task": "prefill"}, 1),
    ],
)
def test_experts_share_a_launch_or_have_their_own(phase: str, changes: dict[str, Any], count: float) -> None:
    assert kernels("expert_ffn_up", phase, **MOE, **changes) == pytest.approx(count)


def test_a_loop_over_experts_activates_each_by_itself() -> None:
    gated: Changes = {"model": {"experts": ONE_OF_TWO, "gated": True}} | EAGER
    assert kernels("expert_ffn_inner", **gated) == 1
    assert kernels("expert_ffn_inner", grouped_gemm=False, **gated) == 2
    assert kernels("expert_ffn_inner", grouped_gemm=False, ep=2, dp=2, global_batch=2, **gated) == 1
    assert kernels("sent", grouped_gemm=False, **gated) == kernels("sent", **gated)


def test_fewer_than_one_expert_is_still_a_launch() -> None:
    """One token hits 1/2 of the one expert that a rank holds of two."""
    assert kernels("expert_ffn_up", task="prefill", sequence=1, grouped_gemm=False, **MOE) == 1


def test_routers_and_dispatchers_of_training_frameworks_have_more_kernels() -> None:
    """Those of the table, and the constants; the host reads no number of tokens where slots are even."""
    assert kernels("chosen", **MOE) - kernels("chosen", execution="compiled", **MOE) == 30
    assert kernels("sent", **MOE) - kernels("sent", execution="compiled", **MOE) == 40
    assert kernels("sent", "backward", **MOE) - kernels("sent", "backward", execution="compiled", **MOE) == 10
    assert kernels("sent", **EVEN) == kernels("sent", execution="compiled", **EVEN)
    assert kernels("chosen", **EVEN) == kernels("chosen", **MOE)


def test_a_launch_costs_less_backward_and_less_without_autograd() -> None:
    assert launch_s("ffn_up") == 1
    assert launch_s("ffn_up", "backward") == 2 * 0.5
    assert launch_s("ffn_up", task="prefill") == 0.25
    assert launch_s("ffn_up", execution="compiled") == 0.125
    assert launch_s("ffn_up", task="decode") == 0  # a replayed graph


def test_entering_a_compiled_layer_costs_its_call_once() -> None:
    compiled: Changes = {"execution": "compiled", "weight_sharding": "zero3"}
    assert launch_s("attention_norm", **compiled) == 0.125 + 10
    assert launch_s("attention_norm", "backward", **compiled) == (2 * 0.125 + 20) * 0.5
    assert launch_s("ffn_norm", **compiled) == 0.125


def test_a_checkpoint_is_entered_forward_and_recomputed_backward() -> None:
    """Two runs of the first operator of a layer share 160 launches; in half of the layers, three half runs do 80."""
    assert launch_s("attention_norm", recompute="full", **EAGER) == 1 + 160 / 2
    half: Changes = {"recompute": "full", "recompute_num_layers": 1, "model": {"layers": 2}}
    assert launch_s("attention_norm", **half, **EAGER) == pytest.approx(1 + 160 * 0.5 / 1.5)
    assert launch_s("ffn_norm", recompute="full", **EAGER) == 1
    assert launch_s("attention_norm", recompute="selective", **EAGER) == 1


@pytest.mark.parametrize(
    ("scope", "replayed"),
    [
        ("attn", {"attention_norm", "q", "attention", "out", "attended"}),
        ("moe_router", {"ffn_norm", "router", "chosen"}),
        ("moe_preprocess", {"sent"}),
        ("mlp", set()),
    ],
)
def test_a_graph_replays_the_kernels_of_its_scope(scope: str, replayed: set[str]) -> None:
    names = ("attention_norm", "q", "attention", "out", "attended", "ffn_norm", "router", "chosen", "sent")
    all_names = (*names, "expert_ffn_up", "expert_down", "combined", "y", "logits")
    found = {name for name in all_names if not launch_s(name, cuda_graph=(scope,), **MOE)}
    assert found == replayed


def test_graphs_of_a_dense_network_and_of_a_whole_step() -> None:
    assert launch_s("ffn_up", cuda_graph=("mlp",)) == 0
    assert launch_s("attention", cuda_graph=("mlp",)) == 1
    assert launch_s("logits", cuda_graph=("full_iteration",)) == 0
    costs = KernelCosts(batch(compute={"host_launch_s": 1.0}, cuda_graph=("full_iteration",)))
    assert costs.collective_launch_s("forward") == 0


def test_ranks_wait_for_the_slowest_of_their_hosts() -> None:
    assert launch_s("ffn_up", dp=8) == pytest.approx(1 + 0.1 * sqrt(2 * log(8)))


def test_a_host_that_takes_no_time_launches_nothing() -> None:
    many = batch_of_changes(point(), [{"compute.host_launch": 0.0}, {"compute.host_launch": 2.0}])
    use = next(use for use in list_operators(many) if (use.name, use.phase) == ("ffn_up", "backward"))
    assert np.asarray(KernelCosts(many).launch_s(use)).tolist() == [0, 2]
    made = batch()
    assert KernelCosts(made).launch_s(next(iter(list_operators(made)))) == 0


def test_a_collective_costs_two_launches() -> None:
    costs = KernelCosts(batch(compute={"host_launch_s": 1.0}))
    found = [costs.collective_launch_s(phase) for phase in ("forward", "backward", "step")]
    assert found == [2, 1, 2]
    assert KernelCosts(batch(compute={"host_launch_s": 1.0}, task="decode")).collective_launch_s("forward") == 0


PROGRAM: Changes = {
    "dims": {"batch": 8, "inner": 4, "same": 4, "outer": 6},
    "inputs": {"x": ["batch", "inner"]},
    "operators": [
        {"name": "renamed", "rename": "x", "dims": {"inner": "same"}},
        {"name": "y", "einsum": ["renamed", "w"], "to": ["batch", "outer"], "weights": {"w": ["same", "outer"]}},
        {"name": "z", "gelu": "y"},
    ],
}


def test_a_compiled_program_is_entered_by_its_first_kernel_not_by_a_view() -> None:
    usual = point(compute={"host_launch_s": 1.0}, execution="compiled", global_batch=8, micro_batch=8)
    made = batch_of(replace(usual, model=model_of(read_program(PROGRAM))))
    found = {use.name: float(KernelCosts(made).launch_s(use)) for use in list_operators(made) if use.phase == "forward"}
    assert found == {"y": 0.125 + 10, "z": 0.125}


def test_a_scan_has_the_kernels_of_its_pass() -> None:
    space = StateSpace(heads=4, head_dim=8, groups=2, state=16, chunk=4)
    mixed: Changes = {"model": {"pattern": "M*", "ssm": space}}
    passes = scan.CONSTANTS.ssd_scan
    assert passes.forward.kernels != passes.backward.kernels
    assert kernels("scanned", **mixed) == passes.forward.kernels
    assert kernels("scanned", "backward", **mixed) == passes.backward.kernels
