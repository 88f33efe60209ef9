"""What a step waits for at its ends and beside its passes, by hand: its controller, other islands, outer memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import Batch, batch_of, batch_of_changes
from cosmic.design.memory_layer import Memory, MemoryTier, Placement
from cosmic.simulate import analytic_step
from cosmic.simulate.analytic_step import (
    compute_step_seconds,
    dissect_step_of_stage,
    exchanged_s,
    exposed_after_step_s,
    offloaded_s,
    optimizer_s,
)
from cosmic.step import kernel_launches
from cosmic.step.device_memory import memory_of
from cosmic.step.kernel_launches import RuntimeConstants
from cosmic.step.stage_time import ComputeTime, block_times, stage_time
from cosmic.step.step_profile import profile_step
from tests.simulate.test_analytic_by_hand import FOUR, layers, stage_of
from tests.step import tiny
from tests.step.plain import collective, plain
from tests.step.tiny import switch

# ---- one controller


def parts_of(made: Batch) -> dict[str, float]:
    """Return the parts of a step that take any time; its seconds are their sum."""
    found = dissect_step_of_stage(profile_step(made, "first")).step
    assert float(found.seconds) == pytest.approx(sum(map(float, found.parts.values())), rel=1e-12)
    return {name: float(value) for name, value in found.parts.items() if value}


def led(monkeypatch: pytest.MonkeyPatch, least_s: float, **changes: Any) -> float:
    """Return how much longer a step is if each node takes *least_s* at least: half for a host, half to ask and answer.

    Layers take 4 s forward and 8 s backward for all microbatches of a pipeline of 4 stages.
    """
    monkeypatch.setattr(kernel_launches, "RUNTIME", RuntimeConstants(least_s / 4, least_s / 4, least_s / 4))
    training = changes.get("task", "training") == "training"
    operators = changes.pop("operators", None) or layers(4.0, 8.0 * training)
    shape: dict[str, Any] = {"global_batch": 4} | FOUR | changes
    made = plain(operators, [], runtime="single_sequential", **shape)
    found = parts_of(made)
    alone = parts_of(plain(operators, [], **shape))
    assert found.pop("launch", 0.0) == pytest.approx(sum(parts_of(made).values()) - sum(alone.values()))
    assert found == pytest.approx(alone)
    return sum(parts_of(made).values()) - sum(alone.values())


@pytest.mark.parametrize(
    ("least", "late"),
    [
        (1.0, 0.0),  # a node takes 1 s forward and 2 s backward: the controller keeps up
        (1.5, 4 * 0.5 + 3 * 0.5),  # half a second late in each forward pass, and the 3 that fill the pipeline
        (2.5, 4 * (1.5 + 0.5) + 3 * (1.5 + 0.5)),  # late in both
    ],
)
def test_the_nodes_of_a_pipeline_wait_for_their_controller(
    monkeypatch: pytest.MonkeyPatch, least: float, late: float
) -> None:
    assert led(monkeypatch, least) == pytest.approx(late)


def test_what_a_backward_pass_waits_may_wait_as_gradients_of_weights_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 (F + B) - 3 min(F, B, W) is idle: of 1 s each, then of 2.5 s, 1 s, and 1.5 s for W, which fills no more."""
    assert led(monkeypatch, 2.5, schedule="zero_bubble") == pytest.approx(4 * 2 + (3 * 3.5 - 3) - (3 * 2 - 3))


@pytest.mark.parametrize(
    ("least", "late"),
    [
        (0.75, 8 * 0.25 + 3 * 0.5 / 2),  # 8 nodes of 0.5 s forward; the bubble of virtual stages is half of the others'
        (1.25, 8 * (0.75 + 0.25) + 3 * (1.5 + 0.5) / 2),  # and of 1 s backward
    ],
)
def test_every_virtual_stage_is_a_node(monkeypatch: pytest.MonkeyPatch, least: float, late: float) -> None:
    virtual: dict[str, Any] = {"schedule": "interleaved", "virtual_stages": 2, "model": {"layers": 8}}
    assert led(monkeypatch, least, operators=layers(2.0, 4.0), **virtual) == pytest.approx(late)


def test_a_prompt_that_passes_all_stages_is_late_on_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 microbatches of 1 s become 1.5 s, on this stage and on 3 others; there is no backward pass to be late."""
    assert led(monkeypatch, 1.5, task="prefill") == pytest.approx(4 * 0.5 + 3 * 0.5)


@pytest.mark.parametrize(
    ("count", "least", "late"),
    [
        (1, 5.0, 4 * 5.0 - 4 * 4.0),  # a round passes 4 stages
        (2, 2.5, 4 * 2.5 - 4 * 2.0),
        (4, 1.5, 4 * 1.5 - 4 * 1.0),
        (8, 0.75, 8 * 0.75 - 4.0),  # the stage is busy throughout: 8 microbatches of 0.5 s become longer
        (8, 0.5, 0.0),
    ],
)
def test_a_decoded_token_is_as_late_as_the_longer_of_a_round_and_of_all_microbatches(
    monkeypatch: pytest.MonkeyPatch, count: int, least: float, late: float
) -> None:
    assert led(monkeypatch, least, task="decode", global_batch=count) == pytest.approx(late)


@pytest.mark.parametrize(("task", "late"), [("prefill", 4 * 0.5 + 3 * 0.5), ("decode", 4 * 0.5)])
def test_a_serving_engine_has_no_virtual_stages_to_start(
    monkeypatch: pytest.MonkeyPatch, task: str, late: float
) -> None:
    """4 nodes of 1 s on a stage, whatever its training had: each becomes 1.5 s."""
    virtual: dict[str, Any] = {"schedule": "interleaved", "virtual_stages": 2}
    assert led(monkeypatch, 1.5, task=task, **virtual) == pytest.approx(late)


# ---- islands


def test_islands_exchange_after_a_step_and_wait_once_for_all_blocks() -> None:
    """An all-reduce of two islands passes the switch twice, there and back: 4 links of 0.5 s, once in 4 steps.

    3 s of its bytes are the mean over these steps already. Nothing runs beside either.
    """
    dims = (switch(2), switch(2, latency_s=0.5))
    shape: dict[str, Any] = {"dims": dims, "dp": 4, "global_batch": 4, "model": {"layers": 1}}
    made = plain(layers(6.0, 12.0), [collective("sync", "step", 3.0)], sync_period=4, **shape)
    found = profile_step(made, "first")
    assert float(exchanged_s(found, stage_time(made, found.counts))) == pytest.approx(3 + 4 * 0.5 / 4)
    assert parts_of(made) == pytest.approx({"gemm": 18, "dp": 3.5})


# ---- outer memory

HOST = MemoryTier(
    name="host", capacity_bytes=1e6, bandwidth_bytes_per_s=10.0, latency_s=0.5, processor_bandwidth_bytes_per_s=20.0
)
WEIGHTS = 1224
"""Of the tiny design: 2 layers of 528, an embedding of 80, a head of 80 with a norm of 8."""


def placed(homes: dict[str, tuple[str, ...]], memory: dict[str, Any] | None = None, **changes: Any) -> Batch:
    """Return the tiny design with state in the memory of its host."""
    base = tiny.point(**changes)
    settings: dict[str, Any] = tiny.MEMORY | {"tiers": (HOST,), "placement": Placement(**homes)} | (memory or {})
    return batch_of(replace(base, memory=Memory(**settings)))


STATES_S = 2 * WEIGHTS * 12 / 10 + 0.5
"""12 bytes of each weight's states come and go at 10 bytes/s, after half a second."""
UPDATE_S = WEIGHTS * 30 / 100
"""A weight, its gradient, and its states read and written: 30 bytes at 100 bytes/s."""


def test_states_that_travel_come_beside_the_update_alone() -> None:
    found = profile_step(placed({"optimizer": ("host",)}), "first")
    assert [float(each) for each in offloaded_s(found)] == pytest.approx([0, STATES_S])
    assert float(optimizer_s(found)) == pytest.approx(UPDATE_S)
    whole = parts_of(found.batch)
    assert whole["offload"] == pytest.approx(STATES_S - UPDATE_S)


def test_the_accelerator_updates_what_its_host_does_not() -> None:
    """With room for some states in HBM, the accelerator updates as large a share of the weights."""
    there: dict[str, Any] = {"optimizer_device": "cpu"}
    assert float(optimizer_s(profile_step(placed({"optimizer": ("host",)}, **there), "first"))) == 0
    room = float(memory_of(tiny.batch()).total) - WEIGHTS * 6
    some = placed({"optimizer": ("hbm", "host")}, {"capacity_bytes": room}, **there)
    homes = memory_of(some).placed
    assert homes is not None
    share = float(homes.homes["hbm", "optimizer"]) / (WEIGHTS * 12)
    assert 0.1 < share < 0.9
    assert float(optimizer_s(profile_step(some, "first"))) == pytest.approx(share * UPDATE_S)


@pytest.mark.parametrize(
    ("homes", "offload", "beside"),
    [
        ({"optimizer": ("host",)}, (), 0.0),  # states come when all gradients are reduced
        ({}, ("optimizer",), 0.0),
        ({"activations": ("host",)}, (), UPDATE_S),  # states are there
        ({}, ("activations",), UPDATE_S),
    ],
)
def test_gradients_overlap_the_update_unless_its_states_travel(
    homes: dict[str, tuple[str, ...]], offload: tuple[str, ...], beside: float
) -> None:
    """1000 s of gradients beside 2 s forward and 4 s backward, newest first, and beside the update."""
    made = placed(homes, dp=2, offload=offload, collective={"scheduling": "lifo"})
    communicated: Any = {("weights", "step"): 1000.0}
    stage = stage_of(ComputeTime(forward=2.0, backward=4.0), communicated, {})
    found = [float(each) for each in exposed_after_step_s(profile_step(made, "first"), stage)]
    assert found == pytest.approx([1000 - 6 - beside, 0])


def test_states_that_travel_quickly_come_when_all_is_reduced_too() -> None:
    """29,376 bytes in 0.29 s, without a latency."""
    quick = replace(HOST, bandwidth_bytes_per_s=1e5, latency_s=0.0)
    made = placed({"optimizer": ("host",)}, {"tiers": (quick,)}, dp=2, collective={"scheduling": "lifo"})
    stage = stage_of(ComputeTime(forward=2.0, backward=4.0), {("weights", "step"): 1000.0}, {})
    found = profile_step(made, "first")
    assert float(offloaded_s(found)[1]) == pytest.approx(0.29376)
    assert float(exposed_after_step_s(found, stage)[0]) == pytest.approx(1000 - 6)


def test_gradients_go_to_the_host_while_others_are_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    """4896 bytes at 10 bytes/s after half a second, beside a backward pass; 100 s of reductions hide as much of it."""
    made = placed({"optimizer": ("host",)}, optimizer_device="cpu")
    found = profile_step(made, "first")
    stage = stage_time(made, found.counts)
    late = float(stage.gradients_out_s)
    beside = float(stage.seconds("backward") - block_times(made)["head"].compute.backward)  # the head comes first
    assert late == pytest.approx(4896 / 10 + 0.5 - beside)
    alone = float(dissect_step_of_stage(found).step.parts["offload"])
    for reducing, hidden in ((0.0, 0.0), (100.0, 100.0), (1000.0, late)):
        monkeypatch.setattr(analytic_step, "_step_end_s", lambda *_, reducing=reducing: (reducing, 0.0))
        step = dissect_step_of_stage(found).step
        assert float(step.parts["offload"]) == pytest.approx(alone - hidden)


def test_prefetch_over_a_step_hides_transfers_behind_all_passes() -> None:
    """2448 bytes of weights of a prompt at 10 bytes/s; a layer ahead, passes have them already."""
    whole, ahead = (
        placed({"weights": ("host",)}, {"prefetch": prefetch}, task="prefill") for prefetch in ("step", "layer")
    )
    assert [float(each) for each in offloaded_s(profile_step(whole, "first"))] == pytest.approx([244.8, 0])
    assert [float(each) for each in offloaded_s(profile_step(ahead, "first"))] == [0, 0]


def test_a_layer_ahead_a_step_waits_in_its_passes_and_at_its_ends() -> None:
    """One buffer hides nothing: 16 + 0.5, 2 x 106.1 and 18.1 s of a prompt's weights beside none of its compute."""
    made = placed({"weights": ("host",)}, {"resident_layers": 1}, task="prefill")
    inside = parts_of(tiny.batch(task="prefill"))
    found = parts_of(made)
    assert found.pop("offload") == pytest.approx(16.5 + 2 * 106.1 + 18.1)
    assert found == pytest.approx(inside)


def test_a_layer_ahead_a_prompt_waits_for_the_first_block_before_it_begins() -> None:
    """16.5 s of the embedding, in place of the head's 2.66 beside which it would be, are waited for at the step's end.

    2.66 + 16.5 s, two layers of 106.1 s and 33.6 s of a layer, beside which the head's 18.1 s come.
    """
    found = parts_of(placed({"weights": ("host",)}, task="prefill"))
    inside = parts_of(tiny.batch(task="prefill"))
    assert sum(found.values()) == pytest.approx(2.66 + 16.5 + 2 * 106.1 + 33.6)
    assert found["offload"] == pytest.approx(sum(found.values()) - sum(inside.values()))


# ---- batches


def test_designs_with_and_without_a_pipeline_fill_their_own() -> None:
    """Two replicas, or two stages, of which only these have a bubble: together as one by one."""
    changes = [{"workload.pp": 1, "workload.dp": 2}, {"workload.pp": 2, "workload.dp": 1}]
    many = batch_of_changes(tiny.point(dp=2, model={"layers": 4}, global_batch=4), changes)
    together = compute_step_seconds(many)
    for place, change in enumerate(changes):
        alone = compute_step_seconds(batch_of(many.base.changed(change)))
        assert np.asarray(together.seconds)[place] == pytest.approx(float(alone.seconds), rel=1e-12)
        assert np.asarray(together.parts["bubble"])[place] == pytest.approx(float(alone.parts["bubble"]))
    assert np.asarray(together.parts["bubble"]).tolist()[0] == 0 < np.asarray(together.parts["bubble"]).tolist()[1]
