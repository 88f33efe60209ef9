"""What a stage takes, from layers whose seconds are plain numbers: each value worked out by hand.

A design of 4 microbatches on one stage, unless a test says otherwise. `tp_overlap` hides at best half, `ep_overlap` at
best four fifths, and weights overlap completely.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.design import schema
from cosmic.design.design_batch import batch_of, batch_of_changes
from cosmic.design.model_layer import Experts
from cosmic.simulate.analytic_step import compute_step_seconds
from cosmic.step import communication
from cosmic.step.communication import OverlapEfficiency
from cosmic.step.stage_time import ComputeTime, StageTime, block_times, part_times, stage_time
from cosmic.step.step_profile import CollectiveCost, OperatorCost
from cosmic.workload.operator_graph import PASSES
from tests.step.plain import collective, operator, plain
from tests.step.tiny import batch, point

ONE_LAYER = {"embedding": 0.0, "layer": 1.0, "head": 0.0}
GEMM, ATTENTION, NORM = "einsum", "attention", "norm"


@pytest.fixture(autouse=True)
def _overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communication, "OVERLAP", OverlapEfficiency(tp=0.5, ep=0.8))


def layer(
    operators: list[OperatorCost], traffic: list[CollectiveCost], *, count: float = 1.0, **changes: Any
) -> StageTime:
    """Return a stage of some layers."""
    made = plain(operators, traffic, **{"global_batch": 4} | changes)
    return whole(stage_time(made, ONE_LAYER | {"layer": count}))


def whole(found: StageTime) -> StageTime:
    """Return a stage, each of whose passes is what communication takes and what is free, and is all named."""
    for phase in PASSES:
        assert found.passed[phase] == pytest.approx(found.sent[phase] + found.free[phase])
        waited = sum(value for (_, when), value in found.exposed.items() if when == phase)
        named = found.compute.beside(phase)[2] + found.delay[phase] + waited
        assert found.seconds(phase) == pytest.approx(named)
    return found


def exposed(found: StageTime) -> dict[tuple[str, str], float]:
    return {key: float(value) for key, value in found.exposed.items()}


# ---- compute


def test_operators_are_summed_by_class_and_by_phase() -> None:
    """Two layers; 3 runs of 2, 4, 1 and 0.5 s."""
    found = layer(
        [
            operator(GEMM, "forward", 2.0, runs=3),
            operator(GEMM, "backward", 4.0, runs=3),
            operator(ATTENTION, "forward", 1.0, runs=3),
            operator(NORM, "backward", 0.5, runs=3),
        ],
        [],
        count=2,
    ).compute
    assert (found.gemm, found.attention, found.other) == (36, 6, 3)
    assert (found.forward, found.backward, found.recompute) == (18, 27, 0)
    assert (found.gemm_forward, found.attention_forward) == (12, 6)
    assert (found.gemm_again, found.attention_again) == (0, 0)


def test_every_second_run_of_a_recomputed_operator_is_recomputation() -> None:
    """3 runs of 2 s and 3 of 1 s in each pass; their launches take 0.1 s."""
    operators = [
        operator(GEMM, "forward", 2.0, runs=6, launch_s=0.1, again=1.0),
        operator(ATTENTION, "forward", 1.0, runs=6, again=1.0),
        operator(NORM, "forward", 1.0, runs=6, again=1.0),
    ]
    found = layer(operators, []).compute
    assert (found.gemm, found.attention, found.other) == (6, 3, 3)
    assert (found.forward, found.backward, found.recompute) == (12, 0, 12)
    assert (found.gemm_forward, found.gemm_again) == (6, 6)
    assert (found.attention_forward, found.attention_again) == (3, 3)
    assert [found.launch_forward, found.launch_backward] == pytest.approx([0.3, 0.3])


def test_a_share_of_layers_may_recompute() -> None:
    """Two of four layers: 4 runs of 2 s forward, 2 backward."""
    found = layer([operator(GEMM, "forward", 2.0, runs=6, launch_s=0.1, again=0.5)], []).compute
    assert (found.gemm, found.forward, found.recompute, found.gemm_again) == (8, 8, 4, 4)
    assert [found.launch_forward, found.launch_backward] == pytest.approx([0.4, 0.2])


def test_designs_of_a_batch_recompute_or_not() -> None:
    again: Any = np.array([0.0, 1.0])
    operators = [operator(GEMM, "forward", 2.0, runs=1 + again, launch_s=1.0, again=again)]
    found = layer(operators, [collective("tp", "forward", 3 * (1 + again), again=again)])
    assert np.asarray(found.compute.recompute).tolist() == [0, 2]
    assert np.asarray(found.compute.launch_backward).tolist() == [0, 1 + 0.5 * 0.125]
    assert [np.asarray(found.communication["tp", phase]).tolist() for phase in PASSES] == [[3, 3], [0, 3]]


def test_communication_has_the_compute_of_its_pass_beside_it_and_recomputation_backward() -> None:
    found = ComputeTime(
        gemm=15.0,
        attention=9.0,
        forward=8.0,
        backward=20.0,
        recompute=7.0,
        gemm_forward=5.0,
        gemm_again=4.0,
        attention_forward=3.0,
        attention_again=2.0,
    )
    assert found.beside("forward") == (5, 3, 8)
    assert found.beside("backward") == (15 - 5 + 4, 9 - 3 + 2, 20 + 7)


def test_blocks_count_as_often_as_a_stage_has_them() -> None:
    operators = [
        operator(GEMM, "forward", 1.0, block="embedding"),
        operator(GEMM, "forward", 10.0),
        operator(GEMM, "forward", 100.0, block="head"),
    ]
    made = plain(operators)
    assert stage_time(made, {"embedding": 1.0, "layer": 3.0, "head": 0.0}).compute.gemm == 31
    assert stage_time(made, {"embedding": 0.0, "layer": 2.5, "head": 1.0}).compute.gemm == 125
    assert {name: found.compute.gemm for name, found in block_times(made).items()} == {
        "embedding": 1,
        "layer": 10,
        "head": 100,
    }


@pytest.mark.parametrize(
    ("weights", "passed", "left"),
    [
        (0.0, 19.0, 13.0),
        (8.0, 19 + 2, 13 - 6),  # a quarter shows
        (16.0, 19 + 4, 13 - 12),
        (40.0, 6 + 40, 0),  # the network is busy throughout: 6 s of tp, 40 s of weights
    ],
)
def test_a_pass_is_compute_what_it_waits_for_and_lateness(weights: float, passed: float, left: float) -> None:
    """10 s of compute, 4 s of them again, 3 s late; of 6 s of tp 2 s show. Three quarters of weights can hide."""
    found = StageTime(
        ComputeTime(backward=10.0, recompute=4.0),
        {("tp", "backward"): 6.0, ("weights", "backward"): weights},
        {},
        {"backward": 3.0},
        passed={"backward": 10 + 4 + 2 + 3.0},
        sent={"backward": 6.0},
        free={"backward": 10 + 4 + 3 - 4.0},
        input_gradients_s=0.0,
        efficiency=0.75,
    )
    assert found.seconds("backward") == passed
    assert found.free_s("backward") == left


def test_half_of_the_backward_pass_makes_the_gradients_of_weights() -> None:
    """Of its compute and of its lateness; not of what it recomputes, nor of what it waits for.

    10 s of compute; 30 s to launch it and a collective (1/8 s), for which the device waits 5 s: 15 s late.
    """
    operators = [operator(NORM, "backward", 10.0, launch_s=30 - 1 / 8)]
    found = layer(operators, [collective("cp", "backward", 5.0)])
    assert found.weight_gradients_s == (10 + 15) / 2
    assert found.input_gradients_s == 30 - (10 + 15) / 2
    early = layer([operator(NORM, "backward", 10.0)], [collective("cp", "backward", 5.0)])
    assert (early.weight_gradients_s, early.input_gradients_s) == (5, 5 + 5)


# ---- launching


def test_a_pass_whose_kernels_are_launched_late_lasts_until_they_are() -> None:
    """Forward, 3 runs of 3 s to launch and 2 s to run; backward the device is slower."""
    operators = [
        operator(NORM, "forward", 2.0, runs=3, launch_s=3.0),
        operator(NORM, "backward", 4.0, runs=3, launch_s=3.0),
    ]
    found = layer(operators, [])
    assert found.delay == {"forward": 9 - 6, "backward": 0}
    assert [found.seconds(phase) for phase in PASSES] == [9, 12]


def test_lateness_is_that_of_the_stage_not_of_each_layer() -> None:
    """The host is 1 s late with a layer, and 3 s early with the head's backward pass."""
    operators = [
        operator(NORM, "backward", 2.0, launch_s=3.0),
        operator(NORM, "backward", 4.0, launch_s=1.0, block="head"),
    ]
    made = plain(operators)
    stages: tuple[dict[str, float], ...] = ({"layer": 2, "head": 0}, {"layer": 2, "head": 1}, {"layer": 5, "head": 1})
    late = [stage_time(made, counts).delay["backward"] for counts in stages]
    assert late == [2 * 3 - 2 * 2, 0, (5 * 3 + 1) - (5 * 2 + 4)]


def test_when_the_layers_of_a_forward_pass_are_launched_the_head_is_still_to_run() -> None:
    """9 s to launch layers that run for 6 s; then the head runs for 2 s, whose launch takes no time of its own."""
    operators = [
        operator(NORM, "forward", 6.0, launch_s=9.0),
        operator(GEMM, "forward", 2.0, launch_s=5.0, block="head"),
    ]
    found = stage_time(plain(operators), {"embedding": 1.0, "layer": 1.0, "head": 1.0})
    assert found.compute.launch_forward == 9
    assert found.delay["forward"] == 3
    assert found.seconds("forward") == 9 + 2


def test_the_head_waits_for_its_own_collectives_after_the_layers_are_launched() -> None:
    traffic = [collective("tp", "forward", 4.0, block="head", calls=0), collective("tp", "forward", 1.0, calls=0)]
    found = stage_time(plain([operator(NORM, "forward", 6.0, launch_s=9.0)], traffic), ONE_LAYER | {"head": 1.0})
    assert found.delay["forward"] == 9 - (6 + 1)
    assert found.seconds("forward") == 9 + 4
    assert (whole(found).sent["forward"], found.free["forward"]) == (4 + 1, 9 - 1)


def test_what_hides_communication_hides_no_weights_while_the_host_is_late() -> None:
    """A layer of 6 s takes 20 s to launch, then the head runs for 4 s and waits for 3 of its 5 s of tp.

    Of 10 s of tp in the layer 3 s hide behind its GEMMs and 7 show; cp takes 2 s. So a pass takes 20 + 4 + 3 s, and in
    10 + 5 + 2 of them tp and cp run. The host is 20 + 4 + 3 - (6 + 4) - (7 + 3 + 2) s late.
    """
    operators = [
        operator(GEMM, "forward", 3.0, launch_s=20.0),
        operator(NORM, "forward", 3.0),
        operator(GEMM, "forward", 2.0, block="head"),
        operator(NORM, "forward", 2.0, block="head"),
    ]
    traffic = [
        collective("tp", "forward", 10.0, calls=0),
        collective("cp", "forward", 2.0, calls=0),
        collective("tp", "forward", 5.0, block="head", calls=0),
    ]
    made = plain(operators, traffic, tp_overlap=True)
    found = whole(stage_time(made, ONE_LAYER | {"head": 1.0}))
    assert found.passed["forward"] == 20 + 4 + 3
    assert found.sent["forward"] == 10 + 5 + 2
    assert found.delay["forward"] == 5
    assert found.free["forward"] == 27 - 17


def test_no_all_to_alls_and_no_compute_leave_no_share() -> None:
    """A pass without any compute hides nothing; nor does one that has nothing to hide."""
    nothing = layer([], [collective("ep", "forward", 3.0)], ep_overlap=True)
    assert (nothing.exposed["ep", "forward"], nothing.sent["forward"], nothing.free["forward"]) == (3, 3, 0)
    quick = layer([operator(NORM, "forward", 0.5)], [collective("ep", "forward", 0.0)], ep_overlap=True)
    assert (quick.exposed["ep", "forward"], quick.sent["forward"], quick.free["forward"]) == (0, 0, 0.5)


def test_the_host_launches_blocking_collectives_too() -> None:
    """0.25 s for each forward call, 0.125 s backward; not those that overlap, which another thread launches."""
    traffic = [
        collective("tp", "forward", 0.0, calls=8),
        collective("ep", "backward", 0.0, calls=16),
        collective("cp", "backward", 0.0, calls=16),
        collective("dp", "forward", 0.0, calls=4),
        collective("weights", "forward", 0.0, calls=100),
        collective("ring", "forward", 0.0, calls=100),
    ]
    found = layer([], traffic, count=2)
    assert (found.compute.launch_forward, found.compute.launch_backward) == (2 * 12 * 0.25, 2 * 32 * 0.125)


def test_the_host_is_not_late_while_compute_waits_for_communication() -> None:
    operators = [operator(NORM, "forward", 2.0, launch_s=9.0)]
    assert layer(operators, [collective("cp", "forward", 3.0, calls=0)]).delay["forward"] == 9 - (2 + 3)


# ---- communication


def test_recomputed_collectives_are_in_both_passes() -> None:
    """8 s and 6 calls, half of them in the backward pass."""
    found = layer([], [collective("tp", "forward", 8.0, calls=6, again=1.0), collective("tp", "backward", 3.0)])
    assert found.communication == {("tp", "forward"): 4, ("tp", "backward"): 4 + 3}
    assert found.compute.launch_forward == 3 * 0.25
    assert found.compute.launch_backward == (3 + 1) * 0.125


def test_the_layers_that_recompute_run_their_collectives_again() -> None:
    """Every second layer: of 9 s and 6 calls, a third is in the backward pass."""
    found = layer([], [collective("tp", "forward", 9.0, calls=6, again=0.5)])
    assert found.communication == pytest.approx({("tp", "forward"): 6, ("tp", "backward"): 3})
    assert found.compute.launch_backward == pytest.approx(2 * 0.125)


def test_alike_communication_of_a_block_and_of_several_adds_up() -> None:
    traffic = [
        collective("tp", "forward", 1.0),
        collective("tp", "forward", 2.0),
        collective("tp", "forward", 4.0, block="head"),
        collective("weights", "step", 8.0),
    ]
    found = stage_time(plain([], traffic), {"embedding": 1.0, "layer": 2.0, "head": 1.0})
    assert found.communication == {("tp", "forward"): 2 * 3 + 4, ("weights", "step"): 16}
    assert exposed(found) == {("tp", "forward"): 10}  # the step's own is not a pass's


def test_what_is_sent_between_stages_is_no_part_of_a_pass() -> None:
    traffic = [collective("pp", "forward", 3.0, block=""), collective("tp", "forward", 1.0)]
    found = layer([], traffic)
    assert found.communication == {("tp", "forward"): 1}


def test_communication_that_overlaps_nothing_is_exposed() -> None:
    roles: tuple[Any, ...] = ("tp", "cp", "ep", "dp")
    traffic = [collective(role, phase, 1.0) for role in roles for phase in PASSES]
    operators = [operator(kind, phase, 50.0) for kind in (GEMM, ATTENTION) for phase in PASSES]
    assert exposed(layer(operators, traffic)) == {(role, phase): 1 for role in roles for phase in PASSES}


# ---- ring of keys


def test_a_ring_overlaps_the_attention_of_its_layer() -> None:
    """Forward 5 s beside 3 s, backward 5 s beside 6 s; GEMMs do not help."""
    operators = [
        operator(ATTENTION, "forward", 3.0),
        operator(ATTENTION, "backward", 6.0),
        operator(GEMM, "forward", 50.0),
    ]
    found = layer(operators, [collective("ring", phase, 5.0) for phase in PASSES])
    assert exposed(found) == {("ring", "forward"): 2, ("ring", "backward"): 0}


def test_a_ring_without_attention_is_exposed() -> None:
    found = layer([operator(GEMM, "forward", 50.0)], [collective("ring", "forward", 5.0)])
    assert exposed(found) == {("ring", "forward"): 5}


def test_a_ring_that_is_run_again_overlaps_recomputed_attention() -> None:
    """Recomputed attention takes 3 s again, beside half of 10 s; the backward pass has 6 + 3 s for 5 + 7 s."""
    operators = [operator(ATTENTION, "forward", 3.0, runs=2, again=1.0), operator(ATTENTION, "backward", 6.0)]
    traffic = [collective("ring", "forward", 10.0, again=1.0), collective("ring", "backward", 7.0)]
    assert exposed(layer(operators, traffic)) == {("ring", "forward"): 5 - 3, ("ring", "backward"): 12 - 9}


def test_full_recomputation_of_a_real_layer_moves_half_of_its_ring_backward() -> None:
    """4 ranks: forward 3 sends of keys and of values; backward those again, theirs, and their gradients'."""
    calls = {}
    for recompute in ("none", "full"):
        found = block_times(batch(cp=4, recompute=recompute, global_batch=1))["layer"]
        calls[recompute] = [float(found.communication["ring", phase]) for phase in PASSES]
        assert (float(found.compute.attention_again) > 0) == (recompute == "full")
    send = 2 * 8 / 10  # of one token's keys, 8 numbers
    assert calls["none"] == pytest.approx([6 * send, 12 * send])
    assert calls["full"] == pytest.approx([6 * send, 18 * send])


# ---- tensor parallelism


@pytest.mark.parametrize(("gemm_s", "hidden"), [(50.0, 5.0), (5.0, 5.0), (3.0, 3.0), (0.0, 0.0)])
def test_tensor_parallelism_hides_half_at_best_and_no_more_than_the_gemms_take(gemm_s: float, hidden: float) -> None:
    operators = [operator(GEMM, "forward", gemm_s), operator(ATTENTION, "forward", 50.0)]
    found = layer(operators, [collective("tp", "forward", 10.0)], tp_overlap=True)
    assert exposed(found) == {("tp", "forward"): 10 - hidden}
    assert found.free_s("forward") == gemm_s + 50 - hidden
    assert exposed(layer(operators, [collective("tp", "forward", 10.0)])) == {("tp", "forward"): 10}


def test_tensor_parallelism_overlaps_recomputed_gemms_backward() -> None:
    operators = [operator(GEMM, "forward", 1.0, runs=2, again=1.0), operator(GEMM, "backward", 2.0)]
    found = layer(operators, [collective("tp", "backward", 10.0)], tp_overlap=True)
    assert exposed(found) == {("tp", "backward"): 10 - (1 + 2)}


def test_the_gemms_of_one_block_do_not_hide_the_communication_of_another() -> None:
    operators = [operator(GEMM, "forward", 50.0, block="head"), operator(GEMM, "forward", 1.0)]
    traffic = [collective("tp", "forward", 10.0), collective("tp", "forward", 10.0, block="head")]
    found = stage_time(plain(operators, traffic, tp_overlap=True), {"embedding": 0.0, "layer": 2.0, "head": 1.0})
    assert exposed(found) == {("tp", "forward"): 2 * (10 - 1) + (10 - 5)}


# ---- expert parallelism


def experts(sent_s: float, compute_s: float, **changes: Any) -> float:
    """Return what is exposed of an all-to-all of both passes beside compute of both, a third of it forward."""
    operators = [operator(GEMM, "forward", compute_s / 3), operator(GEMM, "backward", compute_s * 2 / 3)]
    found = layer(operators, [collective("ep", phase, sent_s / 2) for phase in PASSES], **changes)
    assert found.exposed["ep", "forward"] == found.exposed["ep", "backward"]
    return float(sum(found.exposed.values()))


def test_an_all_to_all_hides_no_longer_than_compute_takes() -> None:
    """10.6 s behind 1.95 s, of which the first of 4 microbatches is beside no other."""
    found = experts(10.6, 1.95, ep_overlap=True)
    assert found == pytest.approx(10.6 - 1.95 * 3 / 4)
    assert 10.6 - found < 1.95
    assert experts(10.6, 1.95) == pytest.approx(10.6)


@pytest.mark.parametrize(("microbatches", "hidden"), [(1, 0.0), (2, 6.0), (3, 8.0), (4, 8.0)])
def test_an_all_to_all_overlaps_the_passes_of_other_microbatches(microbatches: int, hidden: float) -> None:
    """10 s, of which 8 s hide at best, beside 12 s of compute: none, 6, 8 and 9 s of it in other microbatches."""
    assert 10 - experts(10.0, 12.0, ep_overlap=True, global_batch=microbatches) == pytest.approx(hidden)


@pytest.mark.parametrize("task", ["prefill", "decode"])
@pytest.mark.parametrize(("microbatches", "hidden"), [(1, 6.0), (2, 6.0), (3, 8.0)])
def test_a_serving_engine_cuts_a_batch_in_two(task: str, microbatches: int, hidden: float) -> None:
    found = layer(
        [operator(GEMM, "forward", 12.0)],
        [collective("ep", "forward", 10.0)],
        ep_overlap=True,
        task=task,
        global_batch=microbatches,
    )
    assert exposed(found) == {("ep", "forward"): pytest.approx(10 - hidden)}


def test_a_short_all_to_all_hides_its_share_too() -> None:
    assert experts(0.5, 12.0, ep_overlap=True) == pytest.approx(0.5 * 0.2)


def test_an_all_to_all_that_takes_no_time_exposes_none() -> None:
    assert experts(0.0, 12.0, ep_overlap=True) == 0


# ---- weights and gradients


def sharded(phase: Any, efficiency: float = 1.0, **changes: Any) -> float:
    """Return what is exposed of 40 s of sharded weights in a pass of 10 s of compute that waits for another 2 s."""
    traffic = [collective("weights", phase, 40.0), collective("cp", phase, 2.0)]
    found = layer([operator(NORM, phase, 10.0)], traffic, collective={"overlap_efficiency": efficiency}, **changes)
    return float(found.exposed["weights", phase])


@pytest.mark.parametrize("phase", PASSES)
def test_sharded_weights_overlap_the_compute_of_their_pass(phase: str) -> None:
    assert sharded(phase) == 40 - 10
    assert sharded(phase, efficiency=0.25) == 30
    assert sharded(phase, dp_overlap=False) == 40


def test_sharded_weights_overlap_lateness() -> None:
    found = layer([operator(NORM, "forward", 2.0, launch_s=9.0)], [collective("weights", "forward", 40.0)])
    assert exposed(found) == {("weights", "forward"): 40 - 9}


def test_what_of_a_pass_already_hides_something_hides_no_weights() -> None:
    """Beside 10 s of GEMMs, tp hides 5 of 10 s; the others hide weights."""
    traffic = [collective("tp", "forward", 10.0), collective("weights", "forward", 40.0)]
    found = layer([operator(GEMM, "forward", 10.0)], traffic, tp_overlap=True)
    assert exposed(found) == {("tp", "forward"): 5, ("weights", "forward"): 40 - 5}
    assert found.free_s("forward") == 0


def test_what_one_pass_hides_is_not_taken_from_the_other() -> None:
    """Forward, 10 s of GEMMs hide 5 s of tp and 5 of weights; backward, 100 s hide all."""
    operators = [operator(GEMM, "forward", 10.0), operator(GEMM, "backward", 100.0)]
    traffic = [collective("tp", "forward", 10.0), *(collective("weights", phase, 40.0) for phase in PASSES)]
    found = layer(operators, traffic, tp_overlap=True)
    assert exposed(found) == {("tp", "forward"): 5, ("weights", "forward"): 35, ("weights", "backward"): 0}
    assert (found.free_s("forward"), found.free_s("backward")) == (0, 60)


def test_no_second_of_compute_hides_two_things() -> None:
    """6 s of GEMMs, 4 s of attention and 2 s of others; 2 microbatches.

    The ring hides 3 s behind attention, tp 5 of 10 s behind GEMMs: 4 s are left. The all-to-all has half of them, so
    that 18 of 20 s show; weights have the other half, and show 38 of 40 s.
    """
    operators = [operator(GEMM, "forward", 6.0), operator(ATTENTION, "forward", 4.0), operator(NORM, "forward", 2.0)]
    roles: tuple[tuple[Any, float], ...] = (("ring", 3.0), ("tp", 10.0), ("ep", 20.0), ("weights", 40.0))
    found = layer(
        operators,
        [collective(role, "forward", seconds) for role, seconds in roles],
        tp_overlap=True,
        ep_overlap=True,
        global_batch=2,
    )
    shown = {role: float(found.exposed[role, "forward"]) for role, _ in roles}
    assert shown == pytest.approx({"ring": 0, "tp": 5, "ep": 18, "weights": 38})
    assert found.seconds("forward") == pytest.approx(12 + 5 + 18 + 38)
    assert found.free_s("forward") == 0


def test_both_passes_hide_all_to_alls_as_far_as_they_have_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    """All-to-alls of 20 s a pass, all of which may hide, beside half of 2 + 58 s: 15 s of each hide.

    That is half of either pass, whichever an all-to-all belongs to: 1 s and 29 s are left for weights.
    """
    monkeypatch.setattr(communication, "OVERLAP", OverlapEfficiency(tp=0.5, ep=1.0))
    operators = [operator(NORM, "forward", 2.0), operator(NORM, "backward", 58.0)]
    traffic = [collective("ep", phase, 20.0) for phase in PASSES]
    traffic += [collective("weights", phase, 99.0) for phase in PASSES]
    found = layer(operators, traffic, ep_overlap=True, global_batch=2)
    assert exposed(found) == pytest.approx(
        {
            ("ep", "forward"): 5,
            ("ep", "backward"): 5,
            ("weights", "forward"): 99 - 1,
            ("weights", "backward"): 99 - 29,
        }
    )
    assert [found.free[phase] for phase in PASSES] == pytest.approx([1, 29])
    assert [found.sent[phase] for phase in PASSES] == pytest.approx([5 + 1, 5 + 29])
    assert [found.seconds(phase) for phase in PASSES] == pytest.approx([5 + 1 + 99, 5 + 29 + 99])


def test_gradients_of_a_step_are_no_part_of_its_passes() -> None:
    roles: tuple[Any, ...] = ("weights", "updated")
    found = layer([operator(NORM, "backward", 10.0)], [collective(role, "step", 9.0) for role in roles])
    assert exposed(found) == {}
    assert found.seconds("backward") == found.free_s("backward") == 10


# ---- parts and batches


def parts(**changes: Any) -> list[float]:
    """Return the forward seconds of each part: 1 s for the embedding, 10 for a layer, 100 for the head."""
    took = {"embedding": 1.0, "layer": 10.0, "head": 100.0}
    operators = [operator(NORM, "forward", seconds, block=block) for block, seconds in took.items()]
    return [float(each.seconds("forward")) for each in part_times(plain(operators, **changes))]


def test_every_part_of_a_model_has_its_layers() -> None:
    """5 layers on 2 stages are 3 and 2; on 4 virtual stages 2, 1, 1 and 1."""
    virtual: dict[str, Any] = {"schedule": "interleaved", "virtual_stages": 2, "global_batch": 4}
    assert parts(pp=2, model={"layers": 5}) == [31, 120]
    assert parts(pp=2, model={"layers": 5}, **virtual) == [21, 10, 10, 110]
    assert parts(pp=2, model={"layers": 5}, task="prefill", **virtual) == [31, 120]  # serving has no virtual stages
    assert parts(model={"layers": 5}, **virtual) == [151]
    assert parts(pp=3, model={"layers": 2}) == [11, 10, 100]


def test_parts_of_a_model_whose_layers_differ_have_their_own() -> None:
    """61 layers on 4 stages, of which the first three have no experts: 16, 15, 15, 15."""
    model = {"layers": 61, "experts": Experts(count=2, active=1, ffn=4, dense_first=3)}
    operators = [operator(NORM, "forward", 1.0), operator(NORM, "forward", 10.0, block="moe_layer")]
    found = [float(each.seconds("forward")) for each in part_times(plain(operators, pp=4, model=model))]
    assert found == [3 + 13 * 10, 150, 150, 150]


def test_a_batch_of_designs_takes_what_each_takes() -> None:
    changes: list[dict[str, Any]] = [
        {"workload.tp": tp, "workload.dp": dp, "workload.global_batch": 8, "collective.overlap_efficiency": efficiency}
        for tp, dp, efficiency in ((1, 4, 1.0), (2, 2, 0.5), (4, 1, 0.25))
    ]
    base = point(tp=2, dp=2, tp_overlap=True, weight_sharding="zero3", model={"heads": 4})
    many = batch_of_changes(base, changes)
    for place, each in enumerate(changes):
        alone = batch_of(schema.assign_fields(base, each))
        for phase in PASSES:
            together = np.broadcast_to(stage_time(many, ONE_LAYER).seconds(phase), 3)[place]
            assert together == pytest.approx(float(stage_time(alone, ONE_LAYER).seconds(phase)))
        assert np.broadcast_to(compute_step_seconds(many).seconds, 3)[place] == pytest.approx(
            float(compute_step_seconds(alone).seconds)
        )
