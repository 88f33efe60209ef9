"""Every term of the closed form, by values worked out by hand from layers whose seconds are plain numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import Batch, batch_of, batch_of_changes
from cosmic.design.memory_layer import MemoryTier
from cosmic.design.model_layer import Experts, Recommender
from cosmic.simulate import analytic_step
from cosmic.simulate.analytic_step import (
    BREAKDOWN,
    StepSeconds,
    _bounds_step,
    _exposed_beyond_passes_s,
    _idle_between_stages_s,
    _mean_of_other_stages,
    _slower_step,
    bounding_profile,
    compute_step_seconds,
    dissect_step,
    dissect_step_of_stage,
    exposed_after_step_s,
    optimizer_s,
    transfer_s,
)
from cosmic.step import communication
from cosmic.step.block_memory import table_use
from cosmic.step.communication import OverlapEfficiency, Role
from cosmic.step.device_memory import Footprint, updated_elements
from cosmic.step.stage_time import ComputeTime, StageTime, stage_time
from cosmic.step.step_profile import CollectiveCost, OperatorCost, StepProfile, profile_step
from cosmic.workload.block_plans import plan_of
from cosmic.workload.mesh_sizes import Stage
from cosmic.workload.operator_graph import PASSES
from tests.step.plain import collective, operator, plain
from tests.step.tiny import batch, point

GEMM, ATTENTION, NORM = "einsum", "attention", "norm"


@pytest.fixture(autouse=True)
def _overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communication, "OVERLAP", OverlapEfficiency(tp=0.5, ep=0.8))


def layers(forward_s: float, backward_s: float = 0.0) -> list[OperatorCost]:
    """Return a layer that takes so long for all microbatches together."""
    return [operator(GEMM, "forward", forward_s), operator(GEMM, "backward", backward_s)]


# ---- the end of a step


@pytest.mark.parametrize(
    ("pass_s", "efficiency", "virtual", "exposed"),
    [
        # 12 s of gradients, one stage: beside a pass of c seconds, of which e can hide.
        (5.0, 1.0, 1, 7.0),
        (20.0, 1.0, 1, 0.0),
        (20.0, 0.75, 1, 3.0),
        (5.0, 0.0, 1, 12.0),
        # Three virtual stages of 4 s each. Beside 1 + 2 x 4 passes of a third of 2 s, 6 s show; the last alone, 4/3 s.
        (2.0, 1.0, 3, 6.0),
        # Beside 9 passes of 4/3 s all hide but what the last has beside its own pass: 4 - 4/3 s.
        (4.0, 1.0, 3, 4 - 4 / 3),
        (12.0, 1.0, 3, 0.0),
        # Half can hide at best: 6 s of all, and 2 s of the last.
        (4.0, 0.5, 3, 6.0),
    ],
)
def test_collectives_at_the_end_of_a_step_overlap_the_passes_that_are_left(
    pass_s: float, efficiency: float, virtual: int, exposed: float
) -> None:
    assert _exposed_beyond_passes_s(12.0, pass_s, efficiency, 4, virtual) == pytest.approx(exposed)


def stage_of(
    compute: ComputeTime, communicated: Any, exposed: Any, late_s: float = 0.0, efficiency: float = 1.0
) -> StageTime:
    """Return a stage whose host is late in the backward pass; nothing but weights and gradients is hidden."""
    late = {"forward": 0.0, "backward": late_s}
    passed = {phase: compute.beside(phase)[2] + late[phase] for phase in PASSES}
    sent = dict.fromkeys(PASSES, 0.0)
    return StageTime(compute, communicated, exposed, late, passed, sent, passed, 0.0, efficiency)


def ended(reduced: float, updated: float = 0.0, traffic: Any = (), **changes: Any) -> list[float]:
    """Return what is exposed after a step whose passes take 8 and 16 s, in 4 microbatches."""
    fifo = {"scheduling": "fifo"} | changes.pop("collective", {})
    made = plain([], traffic, **{"global_batch": 4, "collective": fifo} | changes)
    communicated: Any = {("weights", "step"): reduced, ("updated", "step"): updated}
    stage = stage_of(ComputeTime(forward=8.0, backward=16.0), communicated, {})
    return [float(each) for each in exposed_after_step_s(profile_step(made, "first"), stage)]


def test_gradients_overlap_the_last_backward_pass_and_updated_weights_the_next_forward_pass() -> None:
    """A microbatch takes 4 s backward and 2 s forward."""
    assert ended(10.0, 5.0) == [10 - 4, 5 - 2]
    assert ended(3.0, 1.0) == [0, 0]
    assert ended(10.0, 5.0, collective={"overlap_efficiency": 0.25}) == [10 - 2.5, 5 - 1.25]
    assert ended(10.0, 5.0, dp_overlap=False) == [10, 5]


def test_what_of_a_pass_hides_other_communication_hides_no_gradients() -> None:
    """Of 16 s backward, 6 s hide sharded weights, and the host is 2 s late: 12 s in 4 microbatches."""
    made = plain([], [], global_batch=4, collective={"scheduling": "fifo"})
    communicated: Any = {("weights", "step"): 10.0, ("weights", "backward"): 9.0}
    exposed: Any = {("weights", "backward"): 3.0}
    stage = stage_of(ComputeTime(backward=16.0), communicated, exposed, 2.0, efficiency=6 / 9)
    assert exposed_after_step_s(profile_step(made, "first"), stage)[0] == 10 - 12 / 4


def test_the_gradients_of_the_embedding_come_last_and_are_exposed() -> None:
    """6 s once a step and 8 s over 4 microbatches, of which the last shows: 8 s is more than the 6 s that are left."""
    traffic = [
        collective("weights", "step", 6.0, block="embedding"),
        collective("weights", "backward", 8.0, block="embedding"),
    ]
    assert ended(10.0, 4.0, traffic) == [8, 2]
    assert ended(3.0, 1.0, traffic, collective={"scheduling": "lifo"}) == [8, 0]
    assert ended(20.0, 4.0, traffic) == [16, 2]


def test_the_gradients_of_the_embedding_are_not_waited_for_twice() -> None:
    """8 s over 4 microbatches, of which 3 s show in backward passes: (8 - 3) / 4 s are left to show at the end."""
    traffic = [collective("weights", "backward", 8.0, block="embedding")]
    made = plain([], traffic, global_batch=4, collective={"scheduling": "fifo"})
    for waited, left in ((3.0, 5 / 4), (9.0, 0.0)):
        exposed: Any = {("weights", "backward"): waited}
        stage = stage_of(ComputeTime(backward=16.0), exposed, exposed)
        assert exposed_after_step_s(profile_step(made, "first"), stage) == (left, 0)


@pytest.mark.parametrize(
    ("reduced", "updated", "efficiency", "exposed"),
    [
        # A microbatch waits 2 s for gradients; of the embedding's, 1 s in each, and 3 s at the end.
        (8.0, 0.5, 0.5, 0.5 * (8 + 0.5 + 2) + 0.5 * 2),  # half of all shows, and all of what was waited for
        (10.0, 0.5, 0.5, 0.5 * (10 + 0.5 + 2) + 0.5 * 2),  # a second less than in order, where 4 s hide 4 of 10
        (3.0, 9.0, 1.0, 3 + 9 + 2 - 2),  # the embedding's, updated weights, and what was waited for: 2 s beside them
        (9.0, 9.0, 1.0, 9 + 9 + 2 - 6),
    ],
)
def test_the_newest_first_counts_what_a_backward_pass_waits_for_once(
    reduced: float, updated: float, efficiency: float, exposed: float
) -> None:
    traffic = [
        collective("weights", "step", 3.0, block="embedding"),
        collective("weights", "backward", 4.0, block="embedding"),
    ]
    lifo = {"scheduling": "lifo", "overlap_efficiency": efficiency}
    made = plain([], traffic, global_batch=4, collective=lifo)
    communicated: Any = {("weights", "step"): reduced, ("updated", "step"): updated}
    waited: Any = {("weights", "backward"): 8.0}
    stage = stage_of(ComputeTime(forward=8.0, backward=16.0), communicated, waited)
    assert float(exposed_after_step_s(profile_step(made, "first"), stage)[0]) == pytest.approx(exposed - 2)


@pytest.mark.parametrize(
    ("updated", "exposed"),
    [
        (1.0, 6.0),  # what comes last is exposed in any case, and 1 + 6 - 2 s are less
        (5.0, 5 + 6 - 2),  # both wait for the network, and have 2 s of the next forward pass beside them
    ],
)
def test_the_newest_first_does_not_hide_the_last_gradients_behind_updated_weights(
    updated: float, exposed: float
) -> None:
    """24 s for the embedding over 4 microbatches: 6 s after the last one, as with ZeRO-2."""
    traffic = [collective("weights", "backward", 24.0, block="embedding")]
    found = ended(0.0, updated, traffic, collective={"scheduling": "lifo"})
    assert found == [pytest.approx(exposed), 0]
    in_order = ended(0.0, updated, traffic)
    assert sum(found) <= sum(in_order) == 6 + max(0.0, updated - 2)


def test_only_the_stage_with_the_embedding_waits_for_it() -> None:
    communicated: Any = {("weights", "step"): 10.0}
    stage = stage_of(ComputeTime(backward=16.0), communicated, {})
    for traffic in (
        collective("weights", "step", 9.0, block="embedding"),
        collective("weights", "backward", 4 * 9.0, block="embedding"),
    ):
        made = plain([], [traffic], pp=2, global_batch=4, collective={"scheduling": "fifo"})
        exposed = [float(exposed_after_step_s(profile_step(made, place), stage)[0]) for place in ("first", "last")]
        assert exposed == [9, 10 - 4]


def test_all_gradients_of_a_recommender_come_last() -> None:
    """It is one block: 12 weights of its perceptrons in 4 bytes, between two at 10 bytes/s, whatever runs beside."""
    model = Recommender(dense_features=3, tables=(5,), embedding=2, bottom=(2,), top=(1,))
    made = batch_of(replace(point(dp=2, collective={"scheduling": "fifo"}), model=model))
    stage = stage_of(ComputeTime(backward=100.0), {("weights", "step"): 4.8}, {})
    assert [float(each) for each in exposed_after_step_s(profile_step(made, "first"), stage)] == pytest.approx([4.8, 0])


def test_of_a_model_that_begins_with_layers_no_gradients_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of any layer but the last overlap the backward pass of the others: 10 s beside 4."""
    without = [each for each in plan_of(batch()) if each.block.part != "first"]
    assert [each.block.name for each in without] == ["layer", "head"]
    monkeypatch.setattr(analytic_step, "plan_of", lambda _: without)
    assert ended(10.0, 0.0, [collective("weights", "step", 9.0)]) == [10 - 4, 0]
    assert ended(3.0, 0.0, [collective("weights", "backward", 8.0)]) == [0, 0]


def test_virtual_stages_finish_one_after_the_other() -> None:
    """Two on each of two stages: gradients overlap 1 + 2 halves of 4 s, updated weights as many of 2 s."""
    virtual: dict[str, Any] = {"schedule": "interleaved", "virtual_stages": 2, "model": {"layers": 4}}
    assert ended(12.0, 5.0, pp=2, **virtual) == [12 - 6, 5 - 3]
    assert ended(12.0, 5.0, **virtual) == [12 - 4, 5 - 2]  # a single stage has none
    # One microbatch passes each virtual stage in one turn.
    assert ended(40.0, pp=2, global_batch=1, **virtual)[0] == 40 - 16 * 2 / 2


@pytest.mark.parametrize(
    ("reduced", "updated", "update_s", "exposed"),
    [
        (10.0, 5.0, 0.0, 15 - 6),  # beside 2 + 4 s of both passes
        (10.0, 5.0, 0.002, 15 - 6 - 2.448),  # and beside the update of 1,224 weights
        (10.0, 0.0, 0.0, 10 - 6),
        (1.0, 0.0, 0.0, 0.0),
        (0.0, 5.0, 0.0, 5 - 2),  # there are no updated weights before the backward pass ends
        (0.0, 5.0, 0.002, 5 - 2 - 2.448),
    ],
)
def test_the_newest_first_overlaps_both_passes_and_the_update(
    reduced: float, updated: float, update_s: float, exposed: float
) -> None:
    found = ended(reduced, updated, update_s=update_s, collective={"scheduling": "lifo"})
    assert found == [pytest.approx(exposed), 0]


def test_the_newest_first_hides_a_share_at_best_and_never_less_than_in_order() -> None:
    assert ended(10.0, 5.0, collective={"scheduling": "lifo", "overlap_efficiency": 0.2}) == [pytest.approx(12), 0]
    virtual: dict[str, Any] = {"schedule": "interleaved", "virtual_stages": 2, "model": {"layers": 4}}
    # In order, virtual stages leave 12 - 6 and 5 - 3 s; one pass each way would leave 17 - 6.
    assert ended(12.0, 5.0, pp=2, collective={"scheduling": "lifo"}, **virtual) == [8, 0]


def test_a_batch_has_orders_of_its_own() -> None:
    """4 s backward; 2 s forward beside gradients where the newest goes first, and longer than that to update."""
    orders = [{"collective.scheduling": "lifo"}, {"collective.scheduling": "fifo"}]
    many = batch_of_changes(point(dp=2, collective={"scheduling": "fifo"}), orders)
    communicated: Any = {("weights", "step"): 1000.0}
    stage = stage_of(ComputeTime(forward=2.0, backward=4.0), communicated, {})
    found = profile_step(many, "first")
    update = float(optimizer_s(found))
    assert update == pytest.approx(1224 * (2 + 4 + 2 * 12) / 100)  # 30 bytes of a weight, its gradient and its states
    assert np.asarray(exposed_after_step_s(found, stage)[0]).tolist() == pytest.approx([1000 - 6 - update, 1000 - 4])


# ---- other stages


def others(stage: Stage, **changes: Any) -> tuple[float, ...]:
    """Return F, B and W of the others: embedding 1 s, layer 8 s, head 2 s forward and twice as much backward."""
    took = {"embedding": 1.0, "layer": 8.0, "head": 2.0}
    operators = [
        operator(GEMM, phase, seconds * (1 + (phase == "backward")), block=block)
        for block, seconds in took.items()
        for phase in PASSES
    ]
    made = plain(operators, **{"global_batch": 4} | changes)
    return tuple(float(each) for each in _mean_of_other_stages(profile_step(made, stage)))


def test_the_other_stages_have_what_this_one_has_not() -> None:
    """5 layers on 3 stages are 2, 2, 1; half of a backward pass makes the gradients of weights."""
    rest = 3 * 8 + 2  # beside the first
    assert others("first", pp=3, model={"layers": 5}) == (rest / 2 / 4, rest / 2 / 4, rest / 2 / 4)
    rest = 1 + 4 * 8  # beside the last
    assert others("last", pp=3, model={"layers": 5}) == (rest / 2 / 4, rest / 2 / 4, rest / 2 / 4)
    assert others("first") == (0, 0, 0)


@pytest.mark.parametrize(("stages", "layers", "ahead"), [(2, 16, 4 / 9), (3, 24, 8 / 17), (2, 6, 1.0), (2, 2, 1.0)])
def test_the_other_stages_have_fetched_weights_ahead(stages: int, layers: int, ahead: float) -> None:
    """3 s of a layer's weights forward and 5 s backward, without compute beside them; the last stage has a head too."""
    traffic = [collective("weights", "forward", 3.0), collective("weights", "backward", 5.0)]
    made = plain([], traffic, pp=stages, model={"layers": layers}, global_batch=4)
    waited = (1 - ahead) * layers / stages / 4
    assert _mean_of_other_stages(profile_step(made, "first")) == pytest.approx((3 * waited, 5 * waited, 0))


def test_the_other_stages_of_a_server_have_no_backward_pass() -> None:
    assert others("first", pp=3, model={"layers": 5}, task="prefill") == (26 / 2 / 4, 0, 0)


def test_the_other_directions_of_a_stage_and_its_mirror_image_are_its_own() -> None:
    """3 layers on 2 stages are 2 and 1: each device has 1.5, half an embedding and half a head."""
    found = others("first", pp=2, model={"layers": 3}, schedule="dualpipe")
    assert found == pytest.approx([(1.5 * 8 + 0.5 + 1) / 4] * 3)


# ---- bubble and transfers


def between(stage: Stage = "first", sent: float = 0.0, operators: Any = None, **changes: Any) -> list[float]:
    """Return bubble and transfers of a pipeline whose layers take 4 s forward and 8 backward for 4 microbatches.

    One transfer takes *sent* seconds forward and twice as long backward.
    """
    count = changes.get("global_batch", 4)
    virtual = changes.get("virtual_stages", 1)
    calls = count * virtual
    traffic = [
        collective("pp", phase, calls * sent * (1 + (phase == "backward")), block="", calls=calls) for phase in PASSES
    ]
    training = changes.get("task", "training") == "training"
    made = plain(operators or layers(4.0, 8.0 * training), traffic, **{"global_batch": 4} | changes)
    found = profile_step(made, stage)
    whole = dissect_step_of_stage(found).step
    assert float(whole.seconds) == pytest.approx(sum(float(each) for each in whole.parts.values()), rel=1e-12)
    return [
        float(each)
        for each in _idle_between_stages_s(found, stage_time(made, found.counts), _mean_of_other_stages(found))
    ]


FOUR: dict[str, Any] = {"pp": 4, "model": {"layers": 4}}


def test_one_transfer_takes_its_share_of_all() -> None:
    traffic = [
        collective("tp", "forward", 50.0),
        collective("pp", "forward", 6.0, block="", calls=3),
        collective("pp", "backward", 9.0, block="", calls=3),
    ]
    found = profile_step(plain([], traffic, pp=2, global_batch=3), "first")
    assert (transfer_s(found, "forward"), transfer_s(found, "backward")) == (2, 3)
    assert transfer_s(profile_step(plain([], []), "first"), "forward") == 0


def test_the_bubble_is_that_of_the_schedule() -> None:
    """1F1B with 4 stages idles 3 (1 + 1 + 1) s; two virtual stages, interleaved, halve it; zero bubble fills W."""
    assert between(**FOUR) == [9, 0]
    eight: dict[str, Any] = {"pp": 4, "model": {"layers": 8}, "operators": layers(2.0, 4.0)}
    assert between(schedule="interleaved", virtual_stages=2, **eight) == [4.5, 0]
    assert between(schedule="zero_bubble", **FOUR) == [3, 0]
    assert between() == [0, 0]


def test_transfers_fill_the_pipeline_and_hold_up_every_round() -> None:
    """There and back in 0.3 s: 3 to fill, and (4 - 1) / 4 x 16 - 1 in the rounds of 16 microbatches."""
    times: dict[str, Any] = {"sent": 0.1, "global_batch": 16}
    assert between(**FOUR, **times)[1] == pytest.approx(3 * 0.3 + 11 * 0.3)
    assert between(schedule="gpipe", **FOUR, **times)[1] == pytest.approx(3 * 0.3)


def test_transfers_hide_where_the_other_stages_have_less_to_do() -> None:
    """The first of 5 layers on 4 stages has two, and takes 0.75 s longer than others for each of 16 microbatches."""
    times: dict[str, Any] = {"pp": 4, "model": {"layers": 5}, "global_batch": 16}
    assert between(sent=0.1, **times)[1] == pytest.approx(3 * 0.3)
    assert between(sent=0.5, **times)[1] == pytest.approx(3 * 1.5 + 11 * (1.5 - 0.75))
    # The last has a layer less than the first: no slack.
    assert between("last", sent=0.1, **times)[1] == pytest.approx(3 * 0.3 + 11 * 0.3)


def test_a_prompt_passes_every_stage() -> None:
    assert between(task="prefill", sent=0.5, **FOUR) == [3 * 1, 3 * 0.5]


@pytest.mark.parametrize(
    ("count", "bubble", "sent"),
    [
        # All microbatches take 4 s on a stage; a round passes 3 others of 4 / m s, with a transfer of 0.5 s to each.
        (1, 3 * 4, 3 * 0.5),
        (2, 3 * 2 - 2, 3 * 0.5),
        (4, 3 * 1 - 3, 3 * 0.5),
        (5, 0, 3 * 0.8 + 1.5 - 4 * 0.8),  # 3.9 s pass while this stage runs the 4 others
        (8, 0, 0),
    ],
)
def test_a_decoded_token_returns_after_a_round(count: int, bubble: float, sent: float) -> None:
    assert between(task="decode", sent=0.5, global_batch=count, **FOUR) == pytest.approx([bubble, sent])


# ---- optimizer


@pytest.mark.parametrize(
    ("changes", "weights"),
    [
        ({}, 2 * 528 + 80 + 88),
        ({"dp": 2, "weight_sharding": "zero1"}, (2 * 528 + 80 + 88) / 2),
        ({"dp": 2, "weight_sharding": "zero3"}, (2 * 528 + 80 + 88) / 2),
        ({"dp": 2}, 2 * 528 + 80 + 88),
        ({"pp": 2}, 528 + 80),
        ({"task": "prefill"}, 0),
    ],
)
def test_the_optimizer_updates_the_weights_that_a_device_of_its_stage_holds(
    changes: dict[str, Any], weights: float
) -> None:
    assert optimizer_s(profile_step(plain(update_s=0.5, **changes), "first")) == pytest.approx(weights / 2)


def test_rows_of_tables_are_updated_apart_from_dense_weights() -> None:
    """Perceptrons 3 -> 2 and 3 -> 1 with offsets, 12 weights of 30 bytes; the tables' 10 weights are not among them."""
    model = Recommender(dense_features=3, tables=(5,), embedding=2, bottom=(2,), top=(1,))
    made = batch_of(replace(point(), model=model))
    assert updated_elements(made, 0) == 12 + 10
    assert optimizer_s(profile_step(made, "first")) == pytest.approx((12 * 30 + table_use(made).update_bytes) / 100)


def test_the_last_stage_updates_its_own_weights() -> None:
    assert optimizer_s(profile_step(plain(update_s=0.5, pp=2), "last")) == pytest.approx((528 + 88) / 2)


# ---- the whole step


def one(operators: list[OperatorCost], traffic: list[CollectiveCost], **changes: Any) -> dict[str, float]:
    """Return the parts of a step of one layer that take any time."""
    settings: dict[str, Any] = {"model": {"layers": 1}, "global_batch": 4} | changes
    found = compute_step_seconds(plain(operators, traffic, **settings))
    assert float(found.seconds) == pytest.approx(sum(float(each) for each in found.parts.values()), rel=1e-12)
    return {name: float(value) for name, value in found.parts.items() if value}


def test_a_step_is_the_sum_of_its_parts() -> None:
    made = plain(layers(6.0, 12.0), [collective("tp", "forward", 1.0)], model={"layers": 1})
    found = compute_step_seconds(made)
    assert list(found.parts) == list(BREAKDOWN)
    assert {name: float(value) for name, value in found.parts.items() if value} == {"gemm": 18, "tp": 1}
    assert (found.seconds, found.busy_s) == (19, 19)


def test_compute_is_told_by_class_and_recomputation_apart() -> None:
    operators = [
        operator(GEMM, "forward", 1.0, runs=2, again=1.0),
        operator(ATTENTION, "backward", 2.0),
        operator(NORM, "forward", 4.0),
    ]
    assert one(operators, []) == {"gemm": 1, "recompute": 1, "attention": 2, "other": 4}


def test_communication_is_told_by_what_it_is_for() -> None:
    """1, 2, 4, 8, 16 and 32 s in each pass, without compute to hide behind."""
    roles: tuple[Role, ...] = ("tp", "cp", "ep", "dp", "ring", "weights")
    traffic = [collective(role, phase, 2.0**place) for place, role in enumerate(roles) for phase in PASSES]
    assert one([], traffic) == {"tp": 2, "cp": 2 * (2 + 16), "ep": 8, "dp": 16, "weights": 64}


def test_a_late_host_is_a_part_of_its_own() -> None:
    operators = [operator(NORM, "forward", 2.0, launch_s=3.0), operator(NORM, "backward", 2.0, launch_s=7.0)]
    assert one(operators, []) == {"other": 4, "launch": 1 + 5}


def test_gradients_and_updated_weights_are_data_parallelism() -> None:
    """4 s backward and 2 s forward a microbatch."""
    traffic = [collective("weights", "step", 10.0), collective("updated", "step", 5.0)]
    found = one(layers(8.0, 16.0), traffic, collective={"scheduling": "fifo"})
    assert found == {"gemm": 24, "dp": 6 + 3}


def offloaded(moved: float) -> dict[str, float]:
    tier = MemoryTier(name="host", capacity_bytes=1e9, bandwidth_bytes_per_s=10.0)
    traffic = [collective("tp", "forward", 1.0), collective("weights", "step", 2.0)]
    operators = [
        *layers(6.0, 0.0),
        operator(ATTENTION, "forward", 1.0),
        operator(NORM, "forward", 1.0, runs=2, again=1.0),
    ]
    return one(operators, traffic, memory={"tiers": (tier,)}, moved=moved, dp_overlap=False, update_s=1 / 696)


def test_offloading_overlaps_all_but_the_update() -> None:
    """GEMMs 6 s, attention 1, a norm twice, tp 1, gradients 2: 12 s, and an update of 696 weights 1."""
    assert sum(offloaded(0.0).values()) == pytest.approx(13)
    assert "offload" not in offloaded(119.0)
    assert offloaded(180.0)["offload"] == pytest.approx(18 - 12)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_states_come_in_beside_the_update(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    """18 s of traffic, of which a *share* runs beside an update of 1 s, the rest beside 12 s."""
    monkeypatch.setattr(Footprint, "update_share", share)
    found = offloaded(180.0)
    passing, updating = 18 * (1 - share), 18 * share
    assert sum(found.values()) == pytest.approx(max(12, passing) + max(1, updating))
    assert found["offload"] == pytest.approx(max(0, passing - 12) + max(0, updating - 1))


def test_everything_but_offloading_counts_before_it_shows() -> None:
    operators = [
        operator(GEMM, "forward", 1.0, runs=2, again=1.0, launch_s=4.0),
        operator(ATTENTION, "forward", 1.0),
        operator(NORM, "backward", 1.0),
    ]
    roles: tuple[Role, ...] = ("tp", "cp", "ep", "dp", "weights")
    traffic = [collective(role, "forward", 8.0) for role in roles]
    traffic += [collective("pp", "forward", 1.0, block="")]
    tier = MemoryTier(name="host", capacity_bytes=1e9, bandwidth_bytes_per_s=10.0)
    found = one(operators, traffic, pp=2, model={"layers": 2}, memory={"tiers": (tier,)}, moved=1e4, update_s=1e-3)
    assert set(found) == set(BREAKDOWN)
    assert sum(found.values()) == pytest.approx(1000 + found["optimizer"])  # 10,000 bytes at 10 a second


# ---- the stage that bounds it


def test_the_slower_of_two_stages_counts_design_by_design() -> None:
    one = StepSeconds({"gemm": np.array([1.0, 5.0])}, np.array([10.0, 20.0]), np.array([1.0, 5.0]))
    other = StepSeconds({"gemm": np.array([2.0, 4.0])}, np.array([9.0, 40.0]), np.array([2.0, 4.0]))
    found = _slower_step(one, other)
    assert np.asarray(found.seconds).tolist() == [2.0, 5.0]
    assert np.asarray(found.parts["gemm"]).tolist() == [2.0, 5.0]
    assert np.asarray(found.busy_s).tolist() == [9.0, 20.0]


@pytest.mark.parametrize(
    ("seconds", "busy", "longer"),
    [
        ((3.0, 2.0), (1.0, 2.0), True),
        ((2.0, 3.0), (2.0, 1.0), False),
        # Equally long but for rounding, the stage that has more to do bounds the step; of equals the first.
        ((3.0, 3.0 + 2e-9), (2.0, 1.0), True),
        ((3.0 + 2e-9, 3.0), (1.0, 2.0), False),
        ((3.0, 3.0), (1.0, 1.0), True),
        ((3.0, 3.0 + 4.5e-9), (2.0, 1.0), False),
        ((3e-9, 3.1e-9), (2.0, 1.0), False),
        ((2.5e9, 2.5e9 + 2.0), (2.0, 1.0), True),
        ((0.0, 0.0), (1.0, 2.0), False),
    ],
)
def test_of_equally_long_steps_the_stage_with_more_to_do_counts(
    seconds: tuple[float, float], busy: tuple[float, float], longer: bool
) -> None:
    one, other = (StepSeconds({"gemm": took}, does, took) for took, does in zip(seconds, busy, strict=True))
    assert bool(_bounds_step(one, other)) == longer


def test_a_single_microbatch_is_bounded_by_the_stage_with_more_to_do() -> None:
    """Whichever stage waits, it takes as long: the last has a head of 6 s beside its layers, forward and backward."""
    found = staged(pp=2, model={"layers": 4}, global_batch=1)
    assert dissect_step(found).profile.stage == "last"
    assert compute_step_seconds(found).parts["bubble"] == pytest.approx(2 * (2 * 8 + 1))
    assert compute_step_seconds(found).busy_s == pytest.approx(2 * (2 * 8 + 6))


def test_of_equally_long_steps_the_one_counts_whose_stage_has_more_to_do() -> None:
    waits = StepSeconds({"gemm": 1.0, "bubble": 2.0}, 1.0, 3.0)
    works = StepSeconds({"gemm": 2.0, "bubble": 1.0}, 2.0, 3.0 - 1e-10)
    for pair in ((waits, works), (works, waits)):
        assert float(_slower_step(*pair).parts["gemm"]) == 2.0
        assert float(_slower_step(*pair).seconds) == 3.0  # the longer one's all the same


def staged(**changes: Any) -> Batch:
    """Return a pipeline in which the embedding takes 1 s, a layer 8 and the head 6, forward and backward alike."""
    took = {"embedding": 1.0, "layer": 8.0, "head": 6.0}
    operators = [operator(GEMM, phase, seconds, block=block) for block, seconds in took.items() for phase in PASSES]
    return plain(operators, **{"global_batch": 4} | changes)


def test_the_head_makes_the_last_stage_the_slowest_and_a_layer_more_the_first() -> None:
    even = staged(pp=2, model={"layers": 4})
    assert bounding_profile(even).stage == "last"
    # 2 layers and the head, 4 (F + B), and (F + B) of the first: 2 layers and the embedding, for one microbatch.
    assert compute_step_seconds(even).seconds == pytest.approx(2 * (2 * 8 + 6) + 2 * (2 * 8 + 1) / 4)
    uneven = staged(pp=2, model={"layers": 5})
    assert bounding_profile(uneven).stage == "first"
    assert compute_step_seconds(uneven).seconds == pytest.approx(2 * (3 * 8 + 1) + 2 * (2 * 8 + 6) / 4)


def test_sixty_one_layers_on_four_stages() -> None:
    """16, 15, 15 and 15: the first takes 128 + 1 s each way, the others a third of 45 x 8 + 6 s, 1/4 of it to fill."""
    found = staged(pp=4, model={"layers": 61})
    first, rest = 2 * (16 * 8 + 1), 2 * (45 * 8 + 6)
    assert compute_step_seconds(found).seconds == pytest.approx(first + 3 * rest / 3 / 4)
    assert dissect_step(found).profile.counts == {"embedding": 1, "layer": 16, "head": 0}


def test_a_layer_less_beside_the_head_makes_the_step_faster() -> None:
    """8 layers on 4 stages: 2 each and the head take 22 s each way; 1 and the head 14, and 3 on the first 25."""
    even = staged(pp=4, model={"layers": 8})
    assert compute_step_seconds(even).seconds == pytest.approx(2 * 22 + 2 * (1 + 3 * 16) / 4)
    fewer = staged(pp=4, model={"layers": 7}, last_stage_layers=1)
    assert dissect_step(fewer).profile.stage == "first"  # 2, 2, 2, 1: the embedding takes a second more
    assert compute_step_seconds(fewer).seconds == pytest.approx(2 * 17 + 2 * (16 + 16 + 14) / 4)
    between = staged(pp=4, model={"layers": 8}, first_stage_layers=1, last_stage_layers=1)
    assert dissect_step(between).profile.stage == "middle"  # 1, 3, 3, 1
    assert dissect_step(between).profile.counts == {"embedding": 0, "layer": 3, "head": 0}
    assert compute_step_seconds(between).seconds == pytest.approx(2 * 24 + 2 * (9 + 24 + 14) / 4)


def test_a_stage_beside_stated_ones_bounds_where_its_layers_are_the_slowest() -> None:
    """9 layers on 4 stages, the last 3 of experts: 3, 3, 2 and 1, of which the third has two of experts."""
    model = {"layers": 9, "experts": Experts(count=2, active=1, ffn=4, dense_first=6)}
    operators = [operator(NORM, "forward", 1.0), operator(NORM, "forward", 10.0, block="moe_layer")]
    found = plain(operators, pp=4, model=model, global_batch=4, last_stage_layers=1)
    assert dissect_step(found).profile.stage == "penultimate"
    assert compute_step_seconds(found).seconds == pytest.approx(20 + (3 + 3 + 10) / 4)
    dense = [operator(NORM, "forward", 10.0), operator(NORM, "forward", 1.0, block="moe_layer")]
    model = {"layers": 9, "experts": Experts(count=2, active=1, ffn=4, dense_first=3)}
    found = plain(dense, pp=4, model=model, global_batch=4, first_stage_layers=1)
    assert dissect_step(found).profile.stage == "second"  # 1, 3, 3, 2: the second has two of the three dense ones
    assert compute_step_seconds(found).seconds == pytest.approx(21 + (10 + 3 + 2) / 4)


def test_a_stage_of_experts_bounds_where_the_first_layers_are_dense() -> None:
    """7 layers on 3 stages, 3, 2 and 2, the first three dense and ten times as fast: the last has experts and head."""
    model = {"layers": 7, "experts": Experts(count=2, active=1, ffn=4, dense_first=3)}
    operators = [
        operator(NORM, "forward", 1.0),
        operator(NORM, "forward", 10.0, block="moe_layer"),
        operator(NORM, "forward", 0.5, block="head"),
    ]
    found = plain(operators, pp=3, model=model, global_batch=4)
    assert dissect_step(found).profile.stage == "last"
    assert compute_step_seconds(found).seconds == pytest.approx(20.5 + 2 * ((3 + 20) / 2) / 4)


def test_a_stage_between_bounds_where_its_layers_are_the_slowest() -> None:
    """8 layers on 3 stages, 3, 3 and 2, the first three dense: the middle has three of experts."""
    model = {"layers": 8, "experts": Experts(count=2, active=1, ffn=4, dense_first=3)}
    operators = [operator(NORM, "forward", 1.0), operator(NORM, "forward", 10.0, block="moe_layer")]
    found = plain(operators, pp=3, model=model, global_batch=4)
    assert dissect_step(found).profile.stage == "middle"
    assert compute_step_seconds(found).seconds == pytest.approx(30 + 2 * ((3 + 20) / 2) / 4)


def test_a_stage_and_its_mirror_image_share_embedding_and_head() -> None:
    """3 layers on 2 stages are 2 and 1; both directions together 1.5, half an embedding and half a head.

    8 microbatches: F = B = W of the other for one of them; with 2 stages DualPipe idles max(0, -F).
    """
    operators = [
        operator(GEMM, phase, seconds * (1 + (phase == "backward")), block=block)
        for block, seconds in (("embedding", 1.0), ("layer", 8.0), ("head", 6.0))
        for phase in PASSES
    ]
    found = plain(operators, pp=2, model={"layers": 3}, schedule="dualpipe", global_batch=8)
    assert compute_step_seconds(found).seconds == pytest.approx(3 * (1.5 * 8 + 0.5 + 3))


def test_uneven_virtual_stages_count_as_the_stage_that_has_them() -> None:
    """5 layers on 2 x 2 virtual stages are 2, 1, 1, 1: stages of 3 and 2; the bubble of others is halved."""
    found = staged(pp=2, model={"layers": 5}, schedule="interleaved", virtual_stages=2)
    assert compute_step_seconds(found).seconds == pytest.approx(2 * (3 * 8 + 1) + 2 * (2 * 8 + 6) / 4 / 2)


def test_a_design_on_one_stage_is_not_asked_which_bounds_it() -> None:
    found = staged(model={"layers": 4})
    assert bounding_profile(found) is profile_step(found, "first")
    assert dissect_step(found).step.seconds == dissect_step_of_stage(profile_step(found, "first")).step.seconds


# ---- what changes a real step


def exposed(**changes: Any) -> dict[str, float]:
    return {name: float(value) for name, value in compute_step_seconds(batch(**changes)).parts.items()}


def test_zero2_reduces_gradients_once_a_step_or_for_each_microbatch() -> None:
    """6 microbatches: 1,224 gradients of 4 bytes between two take 244.8 s at 10 bytes/s, once or six times."""
    fixed: dict[str, Any] = {"dp": 2, "global_batch": 12, "weight_sharding": "zero2", "dp_overlap": False}
    updated = 1224 * 2 / 2 / 10
    once, each = (exposed(reduce_every=every, **fixed) for every in ("step", "microbatch"))
    assert (once["dp"], once["weights"]) == pytest.approx((244.8 + updated, 0))
    assert (each["dp"], each["weights"]) == pytest.approx((updated, 6 * 244.8))


def test_recomputed_collectives_run_in_the_backward_pass() -> None:
    """Of a layer's all-reduces the first runs again: half of a stream of 64 bytes at 10 bytes/s, twice."""
    found = {}
    for recompute in ("none", "full"):
        made = batch(tp=2, sequence_parallel=False, recompute=recompute, model={"layers": 1})
        stage: StepProfile = profile_step(made, "first")
        waited = stage_time(made, stage.counts).exposed
        found[recompute] = [float(waited["tp", phase]) for phase in PASSES]
    assert found["none"] == pytest.approx([3 * 6.4 + 0.8, 3 * 6.4])
    assert found["full"] == pytest.approx([3 * 6.4 + 0.8, 4 * 6.4])
