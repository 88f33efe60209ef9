"""A profile's traffic, its roofline and what bounds it, worked out by hand.

The tiny design of `tests.step.tiny`: 1000 flop/s, 100 bytes/s of memory, 10 bytes/s of network.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import batch_of, batch_of_changes
from cosmic.design.model_layer import Experts, Recommender
from cosmic.step.bottleneck import (
    NetworkLoad,
    RooflineOperator,
    busy_seconds_by_dimension,
    describe_bound,
    ridge_flop_per_byte,
    roofline_operators,
    workload_peak_flop_per_s,
)
from cosmic.step.device_memory import memory_of
from cosmic.step.operator_work import KernelShape, OperatorUse
from cosmic.step.stage_time import launch_delay_s
from cosmic.step.step_profile import CollectiveCost, OperatorCost, StepProfile, bounding_stages, profile_step
from cosmic.workload.mesh_sizes import Stage
from tests.step.tiny import batch, point, switch

FOUR_EXPERTS = Experts(count=4, active=2, ffn=6)
STREAM = 2 * 4 * 8
"""Bytes of the residual stream of a microbatch."""


def of(stage: Stage | None = "first", **changes: Any) -> StepProfile:
    return profile_step(batch(**changes), stage)


# ---- traffic


def brief(each: CollectiveCost) -> tuple[Any, ...]:
    """Return role, phase, kind, block, calls, bytes and seconds."""
    numbers = (float(each.calls), float(each.bytes), float(each.seconds))
    return (each.role, each.phase, each.kind, each.block, *numbers)


def test_alike_collectives_of_a_block_are_one() -> None:
    """Two all-reduces a layer, one of the embedding, 3 microbatches; 64 bytes among two take 6.4 s."""
    found = [brief(each) for each in of(tp=2, sequence_parallel=False, global_batch=3).traffic]
    assert found == [
        ("tp", "forward", "all_reduce", "embedding", 3, STREAM, pytest.approx(3 * 6.4)),
        ("tp", "forward", "all_reduce", "layer", 12, STREAM, pytest.approx(12 * 6.4)),
        ("tp", "backward", "all_reduce", "layer", 12, STREAM, pytest.approx(12 * 6.4)),
        ("tp", "forward", "all_reduce", "head", 3, 2 * 4, pytest.approx(3 * 0.8)),
        ("tp", "backward", "all_reduce", "head", 3, STREAM, pytest.approx(3 * 6.4)),
    ]


def test_gradients_of_a_block_travel_in_one_buffer_once_a_step() -> None:
    """The matrices of two layers, whose gradients tp would split, and the norms, whose gradients it would not."""
    found = [brief(each) for each in of(dp=2, global_batch=6).traffic]
    matrices, norms = 4 * 512, 4 * 16
    assert found == [
        ("weights", "step", "all_reduce", "embedding", 1, 4 * 80, pytest.approx(32)),
        ("weights", "step", "all_reduce", "layer", 2, matrices, pytest.approx(2 * 204.8)),
        ("weights", "step", "all_reduce", "layer", 2, norms, pytest.approx(2 * 6.4)),
        ("weights", "step", "all_reduce", "head", 1, 4 * 80, pytest.approx(32)),
        ("weights", "step", "all_reduce", "head", 1, 4 * 8, pytest.approx(3.2)),
    ]
    dp, tp = ("cp", "dp"), ("tp", "cp", "dp")
    assert [each.axes for each in of(dp=2).traffic] == [dp, dp, tp, dp, tp]


def test_a_profile_without_a_stage_is_of_one_layer() -> None:
    found = of(None, dp=2, weight_sharding="zero3", global_batch=6).traffic
    assert [brief(each) for each in found if each.block == "layer"] == [
        ("weights", "forward", "all_gather", "layer", 3, 2 * 528, pytest.approx(3 * 52.8)),
        ("weights", "backward", "all_gather", "layer", 3, 2 * 528, pytest.approx(3 * 52.8)),
        ("weights", "backward", "reduce_scatter", "layer", 3, 4 * 528, pytest.approx(3 * 105.6)),
    ]


def test_recomputed_collectives_say_so() -> None:
    """Of a layer, the gathers and one scatter run again; the second scatter makes what nobody reads."""
    found = of(tp=2, recompute="full").traffic
    assert [(each.phase, each.kind, each.calls) for each in found if each.recomputed] == [
        ("forward", "all_gather", 2 * 2 * 2),
        ("forward", "reduce_scatter", 2 * 2),
    ]


@pytest.mark.parametrize(
    ("stage", "forward"), [("first", {"embedding": 1, "layer": 2, "head": 0}), ("last", {"layer": 2, "head": 1})]
)
def test_a_stage_has_the_collectives_of_its_blocks(stage: Stage, forward: dict[str, float]) -> None:
    """Two stages of one layer: the embedding is on the first, the head on the last."""
    found = of(stage, tp=2, pp=2, sequence_parallel=False)
    calls = {each.block: each.calls for each in found.traffic if (each.role, each.phase) == ("tp", "forward")}
    assert calls == {"embedding": 0} | forward
    alone = {use.tensor: use.calls for use in found.collectives if (use.role, use.phase) == ("tp", "forward")}
    assert alone == {"embedded": calls["embedding"], "out": 1, "ffn_down": 1, "loss": calls["head"]}


def test_every_stage_sends_once_each_way_for_each_microbatch() -> None:
    for stage in ("first", "last"):
        found = [brief(each) for each in of(stage, pp=2, global_batch=3).traffic]
        assert found == [
            ("pp", "forward", "send", "", 3, STREAM, pytest.approx(3 * 6.4)),
            ("pp", "backward", "send", "", 3, STREAM, pytest.approx(3 * 6.4)),
        ]


def test_groups_of_one_have_no_traffic() -> None:
    assert of().traffic == ()
    assert {each.role for each in of(tp=2, sequence_parallel=False).traffic} == {"tp"}


def test_designs_with_groups_of_one_in_a_batch_have_no_calls() -> None:
    many = batch_of_changes(point(sequence_parallel=False, tp=2), [{"workload.tp": 1}, {"workload.tp": 2}])
    found = profile_step(many, "first").traffic
    forward = next(each for each in found if (each.role, each.phase, each.block) == ("tp", "forward", "layer"))
    assert np.asarray(forward.calls).tolist() == [0, 4]
    assert np.asarray(forward.seconds).tolist() == pytest.approx([0, 4 * 6.4])


def test_a_collective_takes_all_its_seconds_whether_or_not_compute_overlaps_it() -> None:
    found = [of(tp=2, sequence_parallel=False, tp_overlap=overlap).traffic for overlap in (False, True)]
    assert found[0] == found[1]


def test_seconds_of_a_collective_take_its_copies_into_account() -> None:
    """Two copies of 8 tokens to 2 x 2 ranks: three quarters cross between nodes."""
    moe: dict[str, Any] = {"dp": 4, "ep": 4, "model": {"experts": FOUR_EXPERTS}, "dims": (switch(2), switch(2))}
    found = of(collective={"algorithms": ("direct", "direct")}, **moe)
    sent = next(use for use in found.collectives if use.tensor == "sent")
    assert float(found.seconds(sent)) == pytest.approx(64 / 10 + 0.75 * 64 / 10)
    merged = next(each for each in found.traffic if (each.role, each.phase) == ("ep", "forward"))
    assert merged.seconds == pytest.approx(4 * (6.4 + 0.75 * 6.4))


# ---- operators


def runs(stage: Stage | None = "first", **changes: Any) -> dict[str, float]:
    return {each.use.name: float(each.runs) for each in of(stage, **changes).operators if each.use.phase == "forward"}


@pytest.mark.parametrize(
    ("stage", "embedded", "q", "logits"),
    [(None, 3, 3, 3), ("first", 3, 9, 0), ("middle", 0, 6, 0), ("last", 0, 6, 3)],
)
def test_operators_run_where_their_block_is(stage: Stage | None, embedded: float, q: float, logits: float) -> None:
    """7 layers on 3 stages are 3, 2 and 2; 3 microbatches."""
    found = runs(stage, pp=3, global_batch=3, model={"layers": 7})
    assert (found["embedded"], found["q"], found["logits"]) == (embedded, q, logits)


def test_one_stage_has_embedding_and_head() -> None:
    found = runs(global_batch=3)
    assert (found["embedded"], found["q"], found["logits"]) == (3, 6, 3)


def test_operators_have_seconds_and_launches_of_one_run() -> None:
    found = {(each.use.name, each.use.phase): each for each in of(compute={"host_launch_s": 2.0}).operators}
    assert float(found["q", "forward"].seconds) == pytest.approx(2.56)
    assert found["q", "forward"].launch_s == 2


def test_a_profile_knows_how_much_it_has_of_each_block() -> None:
    model = {"layers": 7}
    assert of(None, pp=3, model=model).counts == {"embedding": 1, "layer": 1, "head": 1}
    assert of("first", pp=3, model=model).counts == {"embedding": 1, "layer": 3, "head": 0}
    assert of("middle", pp=3, model=model).counts == {"embedding": 0, "layer": 2, "head": 0}
    assert of("last", pp=3, model=model).counts == {"embedding": 0, "layer": 2, "head": 1}
    assert of(global_batch=3).microbatches == 3


def test_a_recommender_has_neither_embedding_nor_head() -> None:
    model = Recommender(dense_features=3, tables=(5,), embedding=2, bottom=(2,), top=(1,))
    found = profile_step(batch_of(replace(point(), model=model)), "first")
    assert {"embedding", "head"}.isdisjoint(found.counts)
    assert set(found.counts.values()) == {1}


# ---- profiles


MIXED = Experts(count=4, active=2, ffn=6, dense_first=1)


def test_the_first_or_the_last_stage_bounds_a_step_where_layers_are_alike() -> None:
    assert bounding_stages(batch()) == ("first",)
    assert bounding_stages(batch(pp=2)) == ("first", "last")
    assert bounding_stages(batch(model={"experts": FOUR_EXPERTS}, pp=2)) == ("first", "last")


def test_a_stage_between_may_bound_it_where_they_are_not() -> None:
    assert bounding_stages(batch(model={"experts": MIXED})) == ("first",)
    assert bounding_stages(batch(model={"experts": MIXED}, pp=2)) == ("first", "middle", "last")


def test_a_batch_has_all_stages_if_any_design_has() -> None:
    many = batch_of_changes(point(model={"experts": MIXED}), [{"workload.pp": 1}, {"workload.pp": 2}])
    assert bounding_stages(many) == ("first", "middle", "last")


def test_a_profile_and_its_memory_are_worked_out_once() -> None:
    made = batch()
    assert profile_step(made) is profile_step(made)
    assert profile_step(made) is not profile_step(made, "first")
    assert profile_step(made).stage is None
    assert profile_step(made).memory is memory_of(made)


def test_a_device_waits_for_launches_that_take_longer_than_its_kernels() -> None:
    assert launch_delay_s(5.0, 3.0) == 2
    assert launch_delay_s(3.0, 5.0) == 0
    assert np.asarray(launch_delay_s(np.array([1.0, 4.0]), 2.0)).tolist() == [0, 2]


# ---- roofline


def test_the_ridge_is_where_peak_and_bandwidth_meet() -> None:
    assert (workload_peak_flop_per_s(point()), ridge_flop_per_byte(point())) == (1000, 10)
    eight = point(precision="fp8", compute={"fp8_flop_per_s": 4000.0})
    assert (workload_peak_flop_per_s(eight), ridge_flop_per_byte(eight)) == (4000, 40)


def test_a_roofline_operator_has_all_its_runs() -> None:
    """2 layers and 3 microbatches; forward twice with recomputation."""
    found = {each.name: each for each in roofline_operators(of(global_batch=3, recompute="full"))}
    assert found["layer q, forward"] == RooflineOperator("layer q, forward", "einsum", 12 * 512, 12 * 256, 12 * 2.56)
    assert found["layer q, backward"] == RooflineOperator("layer q, backward", "einsum", 6 * 1024, 6 * 512, 6 * 5.12)
    assert found["layer ffn up, forward"].intensity == pytest.approx(1024 / 448)
    assert found["head logits, forward"].flop == 3 * 640


def test_an_operator_right_of_the_ridge_moves_its_tensors() -> None:
    """A ridge at 1000 / 10^4 flop a byte; a GEMM of 512 flop takes 0.512 s."""
    found = {each.name: each for each in roofline_operators(of(memory={"bandwidth_bytes_per_s": 1e4}))}
    assert found["layer q, forward"] == RooflineOperator("layer q, forward", "einsum", 2 * 512, 2 * 256, 2 * 0.512)
    assert found["layer y, forward"].seconds == pytest.approx(2 * 32 / 1000)


def test_operators_without_work_or_time_are_no_part_of_the_roofline() -> None:
    """An embedding has no flop; a fused gate takes no time of its own; another stage's embedding norm never runs."""
    names = {each.name for each in roofline_operators(of())}
    assert "embedding embedded, forward" not in names
    fast: dict[str, Any] = {"compute": {"sms": 1}, "model": {"gated": True, "embedding_norm": True}}
    fused = {each.name for each in roofline_operators(of(**fast))}
    assert "layer ffn gate open, forward" not in fused
    assert {"layer ffn inner, forward", "embedding embedding norm, forward"} <= fused
    assert "embedding embedding norm, forward" not in {
        each.name for each in roofline_operators(of("last", pp=2, **fast))
    }


def test_only_operators_with_flop_bytes_and_seconds_have_a_place_on_the_roofline() -> None:
    made = of()
    some = {"all": (0.5, 0.25, 1.0), "flop": (0, 1, 1), "bytes": (1, 0, 1), "seconds": (1, 1, 0)}
    vars(made)["operators"] = tuple(
        OperatorCost(OperatorUse(name, "einsum", "layer", "forward", flop, moved, 1, KernelShape()), 1, seconds, 0)
        for name, (flop, moved, seconds) in some.items()
    )
    assert roofline_operators(made) == [RooflineOperator("layer all, forward", "einsum", 0.5, 0.25, 1.0)]


def test_a_fused_operator_moves_no_more_than_the_memory_transfers_in_its_time() -> None:
    """Fused with q and k, v reads its weight and writes its result: 192 bytes in place of 256."""
    serving: dict[str, Any] = {"compute": {"sms": 1, "bf16_flop_per_s": 1e30}, "task": "prefill"}
    found = {each.name: each for each in roofline_operators(of(**serving))}
    assert found["layer v, forward"].bytes == pytest.approx(2 * 192)
    assert found["layer out, forward"].bytes == pytest.approx(2 * 256)


# ---- what bounds it


def test_the_network_dimension_that_is_busy_longest_bounds_communication() -> None:
    found = of(dp=4, dims=(switch(2), switch(2)))
    assert describe_bound(found, {"gemm": 1.0, "dp": 3.0}) == (
        "network dimension 1 bounds it (gradient reduction, 75 % of the step)"
    )
    slow = of(dp=4, dims=(switch(2), switch(2, bandwidth_bytes_per_s=1.0)))
    assert describe_bound(slow, {"gemm": 1.0, "dp": 3.0}).startswith("network dimension 2 bounds it")


def test_a_part_of_the_closed_form_is_exposed_seconds_however_busy_a_dimension_is() -> None:
    found = of(tp=2, sequence_parallel=False)
    assert describe_bound(found, {"tp": 1e9}).startswith("network dimension 1 bounds it (tensor-parallel")


def test_only_the_part_that_takes_longest_counts() -> None:
    """Tensor parallelism is busy in dimension 1, gradients in dimension 2."""
    found = of(tp=2, dp=2, sequence_parallel=False, dims=(switch(2), switch(2)))
    assert describe_bound(found, {"tp": 2.0, "dp": 1.0}).startswith("network dimension 1 bounds it (tensor-parallel")
    assert describe_bound(found, {"tp": 1.0, "dp": 2.0}).startswith("network dimension 2 bounds it (gradient")


def test_communication_without_a_busy_dimension_is_named_itself() -> None:
    assert describe_bound(of(), {"tp": 1.0}) == "tensor-parallel communication bounds it (100 % of the step)"


def test_simulated_communication_is_waiting_unless_a_dimension_is_busy_for_most_of_it() -> None:
    """Two all-reduces of 64 bytes a layer each way, one of the embedding, and the head's: 10 x 6.4 s and 0.8 s."""
    found = of(tp=2, sequence_parallel=False)
    busy = 10 * 6.4 + 0.8
    assert describe_bound(found, {"communication": 1.99 * busy, "compute": 1.0}).startswith(
        "network dimension 1 bounds it"
    )
    waiting = describe_bound(found, {"communication": 2.01 * busy, "compute": 0.0})
    assert waiting == "waiting for other stages and their messages bounds it (100 % of the step)"
    assert describe_bound(of(), {"communication": 1.0}).startswith("waiting for other stages")


def test_exactly_half_is_not_most() -> None:
    """64 bytes at 16 bytes/s are 4 s, 8 bytes half a second: 40.5 s."""
    exact = of(tp=2, sequence_parallel=False, dims=(switch(2, bandwidth_bytes_per_s=16.0),))
    assert describe_bound(exact, {"communication": 81.0}).startswith("waiting")
    assert describe_bound(exact, {"communication": 80.9}).startswith("network dimension 1")


SQUARE: dict[str, Any] = {"model": {"layers": 1, "ffn": 8, "vocab": 8}, "memory": {"bandwidth_bytes_per_s": 128.0}}
"""Seven GEMMs of 4 x 8 x 8, 512 flop and 256 bytes, 2 s each at 128 bytes/s: 14 s forward, 28 s backward."""


def test_memory_bounds_gemms_left_of_the_ridge() -> None:
    """2 flop a byte, and a ridge at 1000 / 128."""
    found = of(**SQUARE)
    assert (
        describe_bound(found, {"gemm": 42.0, "other": 14.0}) == "memory bandwidth bounds it (GEMMs, 75 % of the step)"
    )
    assert describe_bound(found, {"gemm": 83.0}) == "memory bandwidth bounds it (GEMMs, 100 % of the step)"
    assert describe_bound(found, {"gemm": 84.0}) == "GEMMs bound it (100 % of the step)"  # exactly half of it
    assert describe_bound(found, {"gemm": 1.0}) == "memory bandwidth bounds it (GEMMs, 100 % of the step)"


def test_the_tensor_cores_bound_gemms_at_the_ridge_and_right_of_it() -> None:
    at_ridge = of(**SQUARE, compute={"bf16_flop_per_s": 256.0})
    assert describe_bound(at_ridge, {"gemm": 1.0}) == "GEMMs bound it (100 % of the step)"
    right = of(**SQUARE, compute={"bf16_flop_per_s": 200.0})
    assert describe_bound(right, {"gemm": 1.0}) == "GEMMs bound it (100 % of the step)"


def test_gemms_and_attention_are_told_apart_and_compute_is_both() -> None:
    """Attention has 320 flop for 256 bytes: left of a ridge at 1.5, where GEMMs are right of it."""
    found = of(**SQUARE, compute={"bf16_flop_per_s": 192.0})
    assert describe_bound(found, {"attention": 1.0}) == "memory bandwidth bounds it (attention, 100 % of the step)"
    assert describe_bound(found, {"gemm": 1.0}) == "GEMMs bound it (100 % of the step)"
    assert describe_bound(found, {"compute": 1.0}) == "compute bounds it (100 % of the step)"
    assert describe_bound(of(**SQUARE), {"compute": 1.0}) == "memory bandwidth bounds it (compute, 100 % of the step)"
    # 2 s forward and 4 s backward of attention beside 42 s of GEMMs: compute of 90 s is more than twice both.
    assert describe_bound(of(**SQUARE), {"compute": 95.0}) == "memory bandwidth bounds it (compute, 100 % of the step)"
    assert describe_bound(of(**SQUARE), {"compute": 97.0}) == "compute bounds it (100 % of the step)"


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ("launch", "kernel launches bound it"),
        ("other", "memory-bound operators bound it"),
        ("recompute", "recomputation bounds it"),
        ("bubble", "the pipeline bubble bounds it"),
        ("optimizer", "the optimizer bounds it"),
        ("offload", "offloading bounds it"),
        ("idle", "waiting bounds it"),
    ],
)
def test_other_parts_bound_the_step_themselves(part: str, sentence: str) -> None:
    assert describe_bound(of(), {part: 2.0, "gemm": 1.0}) == f"{sentence} (67 % of the step)"


def test_busy_seconds_add_up_by_dimension() -> None:
    loads = [NetworkLoad(0, "tp", 1, 1.0), NetworkLoad(0, "dp", 1, 2.0), NetworkLoad(1, "dp", 1, 4.0)]
    assert busy_seconds_by_dimension(loads, "dp") == {0: 2, 1: 4}
    assert busy_seconds_by_dimension(loads, "communication") == {0: 3, 1: 4}
    assert busy_seconds_by_dimension(loads, "ep") == {}
