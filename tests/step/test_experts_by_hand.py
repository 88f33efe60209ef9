"""Experts folded over tp, cp and dp: what they keep, what is sent, and how long that takes, worked out by hand.

The tiny design has 4 tokens of 8 numbers in a sequence, and four experts of width 6 here, of which a token takes two.
"""

from __future__ import annotations

from math import prod
from random import Random
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import batch_of, batch_of_changes
from cosmic.design.model_layer import Experts
from cosmic.design.workload_layer import Workload
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.analytic_step import compute_step_seconds
from cosmic.simulate.events.design_simulation import simulate_design
from cosmic.step.block_memory import replica_axes, used_elements, weight_elements
from cosmic.step.communication import CollectiveUse, NetworkCosts, list_collectives
from cosmic.step.operator_work import list_operators
from cosmic.step.step_profile import profile_step
from cosmic.workload.block_plans import BlockPlan, plan_of
from cosmic.workload.mesh_sizes import expert_degrees, sizes_of
from tests.relations.random_designs import random_design
from tests.step.tiny import batch, point, switch

MOE: dict[str, Any] = {"model": {"experts": Experts(count=4, active=2, ffn=6)}}
BYTES = 2
GRADIENT = 4


def sent(**changes: Any) -> list[CollectiveUse]:
    """Return the collectives of a layer's experts in groups of several."""
    uses = [use for use in list_collectives(batch(**changes, **MOE)) if use.block == "moe_layer" and use.group > 1]
    names = ("sent", "expert_down", "combined", "d_expert_down", "d_sent", "d_ffn_norm.sent")
    return [use for use in uses if use.tensor in names]


def brief(uses: list[CollectiveUse]) -> list[tuple[str, str, tuple[str, ...], float, float]]:
    """Return kind, tensor, axes, ranks and bytes of each."""
    return [(use.kind, use.tensor, use.axes, float(use.group), float(use.bytes)) for use in uses]


# ---- degrees


@pytest.mark.parametrize(
    ("mesh", "etp", "edp"),
    [
        ({"tp": 8, "dp": 2, "ep": 2}, 8, 1),  # room for all of tp
        ({"tp": 8, "dp": 2, "ep": 4}, 4, 1),  # ep takes two ranks of tp
        ({"tp": 2, "pp": 8, "dp": 16, "ep": 32}, 1, 1),  # Qwen3-235B on 256 GPUs
        ({"tp": 2, "cp": 2, "dp": 4, "ep": 4}, 2, 2),
        ({"tp": 2, "cp": 2, "dp": 4, "ep": 4, "etp": 1}, 1, 4),
        ({"cp": 8, "ep": 8}, 1, 1),
    ],
)
def test_experts_are_split_over_what_ep_leaves_of_tp(mesh: dict[str, int], etp: int, edp: int) -> None:
    workload = Workload(sequence=1, global_batch=1, **mesh)  # type: ignore[arg-type]  # degrees
    assert (workload.expert_tensor, workload.expert_replicas) == (etp, edp)
    found = expert_degrees(batch(**mesh, **MOE))
    assert (found["etp"], found["edp"]) == (etp, edp)
    inside = workload.tp // etp
    assert (found["tep"], found["oep"]) == (inside, workload.ep / inside)


def test_degrees_of_many_designs_are_arrays() -> None:
    changes = [{"workload.tp": 8, "workload.ep": 4}, {"workload.tp": 2, "workload.ep": 2}, {"workload.etp": 1}]
    found = expert_degrees(batch_of_changes(point(tp=4, dp=2, ep=2, **MOE), changes))
    assert np.asarray(found["etp"]).tolist() == [4, 2, 1]
    assert np.asarray(found["edp"]).tolist() == [1, 1, 4]


# ---- dispatch


def test_every_rank_sends_its_own_tokens_to_whole_experts() -> None:
    """2 of 4 tokens on each rank of tp, 2 copies of 8 numbers: one all-to-all each way, over both ranks."""
    payload = BYTES * 2 * 2 * 8
    assert brief(sent(tp=2, ep=2)) == [
        ("all_to_all", "sent", ("ep",), 2, payload),
        ("all_to_all", "expert_down", ("ep",), 2, payload),
        ("all_to_all", "d_expert_down", ("ep",), 2, payload),
        ("all_to_all", "d_sent", ("ep",), 2, payload),
    ]
    assert {use.role for use in sent(tp=2, ep=2)} == {"ep"}
    assert {use.copies for use in sent(tp=2, ep=2)} == {2}


def test_one_all_to_all_spans_tp_cp_and_dp() -> None:
    """1 of 4 tokens on each of the four ranks of a sequence: 2 copies of 8 numbers, over 8 ranks of 16."""
    uses = sent(tp=2, cp=2, dp=4, ep=4, etp=1)
    assert {(use.kind, use.axes, float(use.group), float(use.bytes)) for use in uses} == {
        ("all_to_all", ("ep",), 4, BYTES * 2 * 8)
    }


def test_split_experts_gather_tokens_after_the_all_to_all_and_scatter_sums_before_it() -> None:
    """Tp 2 splits experts: its ranks have 2 tokens each, 2 copies of 8 numbers, and need those of both."""
    own, both = BYTES * 2 * 2 * 8, BYTES * 4 * 2 * 8
    assert brief(sent(tp=2, dp=2, ep=2)) == [
        ("all_to_all", "sent", ("ep",), 2, own),
        ("all_gather", "sent", ("etp",), 2, both),
        ("reduce_scatter", "expert_down", ("etp",), 2, both),
        ("all_to_all", "expert_down", ("ep",), 2, own),
        ("all_to_all", "d_expert_down", ("ep",), 2, own),
        ("all_gather", "d_expert_down", ("etp",), 2, both),
        ("reduce_scatter", "d_sent", ("etp",), 2, both),
        ("all_to_all", "d_sent", ("ep",), 2, own),
    ]
    assert {use.role for use in sent(tp=2, dp=2, ep=2)} == {"ep"}


def test_ranks_with_the_same_tokens_send_nothing_and_add_up() -> None:
    """Without sequence parallelism both ranks of tp have all 4 tokens, and experts of their own."""
    stream = BYTES * 4 * 8
    assert brief(sent(tp=2, ep=2, task="prefill")) == [("all_reduce", "combined", ("tp",), 2, stream)]
    assert brief(sent(tp=2, ep=2, sequence_parallel=False)) == [
        ("all_reduce", "combined", ("tp",), 2, stream),
        ("all_reduce", "d_ffn_norm.sent", ("tp",), 2, stream),
    ]


def test_ranks_with_the_same_tokens_share_out_what_they_send() -> None:
    """Four experts over tp 2 and dp 2: each rank sends the copies for experts on its side of tp, half of them."""
    uses = sent(tp=2, dp=2, ep=4, task="prefill")
    assert brief(uses) == [
        ("all_to_all", "sent", ("oep",), 2, BYTES * 4 * 2 * 8 / 2),
        ("all_to_all", "expert_down", ("oep",), 2, BYTES * 4 * 2 * 8 / 2),
        ("all_reduce", "combined", ("tp",), 2, BYTES * 4 * 8),
    ]
    assert [use.role for use in uses] == ["ep", "ep", "tp"]
    costs = NetworkCosts(batch(tp=2, dp=2, ep=4, task="prefill", **MOE))
    assert (costs.copies(("oep",), 8), costs.copies(("oep",), 1), costs.copies(("ep",), 8)) == (4, 1, 8)


def test_shared_experts_are_added_before_the_one_all_reduce() -> None:
    model = {"experts": Experts(count=4, active=2, ffn=6, shared_ffn=6)}
    uses = list_collectives(batch(tp=2, task="prefill", model=model))
    reduced = [use for use in uses if use.block == "moe_layer" and use.group > 1 and use.tensor != "out"]
    assert [(use.kind, use.axes, float(use.bytes)) for use in reduced] == [("all_reduce", ("tp",), BYTES * 4 * 8)]


def test_offsets_of_experts_wait_for_the_sum_too() -> None:
    model = {"experts": Experts(count=4, active=2, ffn=6), "biases": ("experts",)}
    uses = list_collectives(batch(tp=2, task="prefill", model=model))
    moved = [(use.kind, use.tensor) for use in uses if use.block == "moe_layer" and use.group > 1]
    assert moved == [("all_reduce", "out"), ("all_reduce", "combined")]


# ---- the work


@pytest.mark.parametrize(
    ("mesh", "count", "m", "n"),
    [
        ({}, 4, 2, 6),  # each of 4 experts gets 2 of 4 tokens on average
        ({"tp": 2}, 4, 2, 3),  # both ranks have half of each
        ({"tp": 2, "ep": 2}, 2, 2, 6),
        ({"tp": 2, "etp": 1}, 4, 1, 6),  # replicated, for half of the tokens each
        ({"tp": 2, "cp": 2, "dp": 2, "ep": 4, "etp": 1}, 1, 2, 6),  # 8 tokens, on 2 replicas of one expert
    ],
)
def test_the_products_of_experts(mesh: dict[str, int], count: float, m: float, n: float) -> None:
    uses = list_operators(batch(**mesh, **MOE))
    up = next(use for use in uses if use.name == "expert_ffn_up" and use.phase == "forward")
    shape: Any = up.kernel.shape
    tokens = 2 * m  # an expert gets half of those that reach its rank
    busy = 1 - 0.5**tokens
    assert (shape.count, shape.m, shape.n, shape.k) == pytest.approx((count * busy, m / busy, n, 8))


# ---- weights


def expert_plans(plans: tuple[BlockPlan, ...]) -> list[tuple[BlockPlan, frozenset[str]]]:
    """Return the blocks with experts, and the names of the experts' weights."""
    named = [
        (each, frozenset(weight.name for weight in each.block.graph.weights if "w_expert_" in weight.name))
        for each in plans
    ]
    return [(each, names) for each, names in named if names]


def test_experts_of_all_ranks_are_the_model_s_times_their_replicas() -> None:
    """Over the tp · cp · dp ranks of a stage, for random designs; sharded over replicas, they are the model's."""
    rng = Random(16)
    for _ in range(60):
        design = random_design(rng, family=rng.choice(("moe", "mla")), sync_period=1)
        many = batch_of(design)
        sizes, workload = sizes_of(many), design.workload
        ranks = workload.tp * workload.cp * workload.dp
        for each, names in expert_plans(plan_of(many)):
            whole = sum(
                float(prod(sizes[dim] for dim in weight.dims))
                for weight in each.block.graph.weights
                if weight.name in names
            )
            held = ranks * float(weight_elements(each, sizes, False, only=names))
            assert ranks * float(weight_elements(each, sizes, True, only=names)) == pytest.approx(whole)
            assert held == pytest.approx(whole * ranks / (workload.expert_tensor * workload.ep))


def test_gradients_and_updates_travel_between_replicas_of_a_weight() -> None:
    """Tp 2, cp 2, dp 2 and ep 4: an expert is on two ranks, another weight on cp · dp = 4."""
    uses = list_collectives(batch(tp=2, cp=2, dp=2, ep=4, etp=1, weight_sharding="zero1", **MOE))
    layer = [use for use in uses if use.block == "moe_layer"]
    gradients = {use.tensor: (use.kind, use.axes, float(use.group), float(use.bytes)) for use in layer}
    assert gradients["d_w_expert_down"] == ("reduce_scatter", ("edp",), 2, GRADIENT * 8 * 6)
    assert gradients["d_w_out"] == ("reduce_scatter", ("cp", "dp"), 4, GRADIENT * 64 / 2)
    updated = [(use.axes, float(use.group), float(use.bytes)) for use in layer if use.role == "updated"]
    dense = 4 * 64 / 2 + 2 * 8 + 8 * 4
    assert updated == [(("cp", "dp"), 4, BYTES * dense), (("edp",), 2, BYTES * 2 * 8 * 6)]


def test_sharded_experts_are_gathered_by_their_replicas() -> None:
    changes: dict[str, Any] = {"tp": 2, "cp": 2, "dp": 2, "ep": 4, "etp": 1, "weight_sharding": "zero3", **MOE}
    uses = list_collectives(batch(**changes))
    gathers = [use for use in uses if use.tensor == "w_expert_down" and use.phase == "forward"]
    assert [(use.kind, use.axes, float(use.bytes)) for use in gathers] == [("all_gather", ("edp",), BYTES * 8 * 6)]
    plans = plan_of(batch(**changes))
    each, _ = expert_plans(plans)[0]
    weight = each.block.graph.tensors["w_expert_down"]
    assert used_elements(each, weight, sizes_of(batch(**changes))) == 8 * 6
    assert replica_axes(each.shardings["w_expert_down"]) == ()


# ---- seconds


def test_experts_over_context_parallel_ranks_cost_an_all_to_all() -> None:
    """4 ranks into which an NPU sends 10 bytes/s: 3/4 of the payload each way, for both passes of 2 layers."""
    found = profile_step(batch(cp=4, ep=4, dims=(switch(4),), collective={"algorithms": ("direct",)}, **MOE), "first")
    payload = BYTES * 1 * 2 * 8
    calls = [each for each in found.traffic if each.role == "ep"]
    assert sum(float(each.calls) for each in calls) == 2 * 4
    assert sum(float(each.seconds) for each in calls) == pytest.approx(8 * 3 / 4 * payload / 10)


QWEN = {"dp": 1, "cp": 8, "tp": 1, "ep": 8, "micro_batch": 1, "model.layers": 4, "sequence": 4096}


def all_to_all_s(name: str, **mesh: Any) -> float:
    """Return the seconds of one all-to-all of a design's dispatch, over the NVLink of one node, by hand.

    Each of 8 GPUs has 4096 / 8 tokens of 2,048 numbers in 2 bytes, 8 copies of each, and sends 7/8 of that.
    """
    design = load_design(name, {**QWEN, **mesh}, plain=True)
    found = profile_step(batch_of(design))
    (inside,) = found.network.group(("ep",))
    payload = 4096 / 8 * 8 * 2048 * 2
    stage = inside.collective("all_to_all", True)
    assert float(inside.span.members) == 8
    forward = next(each for each in found.traffic if (each.role, each.phase) == ("ep", "forward"))
    assert float(forward.bytes) == payload
    chunks = design.collective.chunks
    by_hand = chunks * stage.per_chunk_s + stage.per_byte_s * payload + stage.per_call_s(payload)
    assert 7 / 8 * payload / design.network.dims[0].bandwidth_bytes_per_s < by_hand  # no faster than the wire
    assert float(forward.seconds / forward.calls) == pytest.approx(float(by_hand))
    return float(by_hand)


def test_experts_over_cp_cost_what_nvlink_takes_in_both_engines() -> None:
    design = load_design("qwen3-30b-a3b@dgx-h200:8", {**QWEN, "pp": 1, "global_batch": 2}, plain=True)
    once = all_to_all_s("qwen3-30b-a3b@dgx-h200:8", pp=1, global_batch=2)
    assert float(compute_step_seconds(batch_of(design)).parts["ep"]) == pytest.approx(
        4 * 4 * 2 * once
    )  # 4 layers, 2 microbatches
    alone = simulate_design(
        load_design("qwen3-30b-a3b@dgx-h200:8", {**QWEN, "pp": 1, "global_batch": 2, "ep": 1}, plain=True)
    )
    assert simulate_design(design).cycles != alone.cycles


def test_with_two_stages_experts_stay_inside_their_node() -> None:
    inside = all_to_all_s("qwen3-30b-a3b@dgx-h200:8", pp=1, global_batch=2)
    assert all_to_all_s("qwen3-30b-a3b@dgx-h200:16", pp=2, global_batch=2) == pytest.approx(inside)


def test_a_published_mapping_of_qwen3_runs() -> None:
    """Megatron-Bridge trains Qwen3-235B with tp 2, pp 8 and ep 32 on 256 H100."""
    design = load_design(
        "qwen3-235b-a22b@dgx-h100:256", {"tp": 2, "pp": 8, "ep": 32, "cp": 1, "global_batch": 2048}, plain=True
    )
    assert (design.workload.dp, design.workload.expert_tensor, design.workload.expert_replicas) == (16, 1, 1)
    assert float(compute_step_seconds(batch_of(design)).parts["ep"]) > 0
    (within, across) = NetworkCosts(batch_of(design)).group(("ep",))
    assert (float(within.span.members), float(across.span.members)) == (8, 4)
