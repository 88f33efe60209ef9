"""What islands exchange, uplinks carry and operators repeat step by step, in a tiny profile, worked out by hand.

Two islands of 2 replicas each: 10 bytes/s inside, 5 bytes/s and 3 s between them. A layer has 528 weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cosmic.design.network_layer import Fabric
from cosmic.step.bottleneck import network_loads
from cosmic.step.communication import NetworkCosts
from cosmic.step.device_memory import footprint
from cosmic.step.operator_work import KernelShape, OperatorUse
from cosmic.step.step_profile import CollectiveCost, OperatorCost, _cost_of_all_steps, profile_step
from tests.step.tiny import batch, switch

ISLANDS: dict[str, Any] = {
    "dp": 4,
    "sync_period": 4,
    "dims": (switch(2), switch(2, bandwidth_bytes_per_s=5.0, latency_s=3.0)),
}


def exchanged(**changes: Any) -> dict[str, CollectiveCost]:
    """Return by its kind what is exchanged of a layer."""
    found = profile_step(batch(**ISLANDS | changes)).traffic
    return {each.kind: each for each in found if each.role == "sync" and each.block == "layer"}


def test_an_exchange_between_islands_takes_its_bytes_in_every_fourth_step() -> None:
    """Half of 528 weights in fp32, there and back between two: 1056 bytes at 5 bytes/s; latency is waited for once."""
    found = exchanged(weight_sharding="zero1")
    assert set(found) == {"all_reduce"}
    assert float(found["all_reduce"].seconds) == pytest.approx(4 * 264 / 5 / 4)
    assert (found["all_reduce"].axes, float(found["all_reduce"].calls)) == (("odp",), 1 / 4)


def test_replicas_that_hold_all_weights_gather_what_was_exchanged() -> None:
    """2 bytes of 528 weights, half of which each of two has, at 10 bytes/s."""
    found = exchanged(weight_sharding="none")
    assert float(found["all_reduce"].seconds) == pytest.approx(4 * 264 / 5 / 4)
    assert float(found["all_gather"].seconds) == pytest.approx(2 * 264 / 10 / 4)
    assert (found["all_gather"].axes, float(found["all_gather"].bytes)) == (("cp", "idp"), 2 * 528)


def test_an_exchange_waits_twice_for_the_way_between_islands() -> None:
    """There and back, to the switch and from it, in every fourth step; without islands there is none.

    A slower clock slows all of it.
    """
    assert float(NetworkCosts(batch(**ISLANDS)).mean_exchange_latency_s()) == pytest.approx(2 * 2 * 3.0 / 4)
    assert NetworkCosts(batch(dp=4, dims=ISLANDS["dims"])).mean_exchange_latency_s() == 0
    slower = batch(**ISLANDS, compute={"time_factor": 1.5})
    assert float(NetworkCosts(slower).mean_exchange_latency_s()) == pytest.approx(18.0 / 4)
    assert float(NetworkCosts(slower).exchange_s(("odp",), 100.0)) == pytest.approx(1.5 * 100 / 5)


def test_uplinks_carry_what_leaves_a_leaf() -> None:
    """Leaves of 4 of 8 accelerators, with a third of their bandwidth upwards: an edge of a ring leaves each of them.

    So uplinks are busy 3/4 of the time of an accelerator's link. Gradients of 1224 weights in fp32 are sent 2 · 7/8
    times; 5 microbatches of 64 bytes go each way between stages.
    """
    tree = (switch(8, oversubscription=3.0, fabric=Fabric(build="fat_tree", radix=6)),)
    (found,) = network_loads(profile_step(batch(dp=8, dims=tree), "first"))
    assert found.bytes == pytest.approx(4 * 1224 * 2 * 7 / 8)
    assert found.uplinks == pytest.approx((found.bytes * 3 / 4,))
    (sent,) = network_loads(profile_step(batch(pp=8, dims=tree, global_batch=5, model={"layers": 8}), "first"))
    assert sent.bytes == pytest.approx(2 * 5 * 64)
    assert sent.uplinks == pytest.approx((2 * 5 * 64 * 3 / 4,))
    (plain,) = network_loads(profile_step(batch(dp=8), "first"))
    assert plain.uplinks == ()


@pytest.mark.parametrize(("sharding", "weights"), [("none", 1224), ("zero1", 1224 / 2)])
def test_islands_keep_what_they_exchanged_and_its_momentum(sharding: str, weights: float) -> None:
    """12 bytes of Adam with a master copy, and 8 of the exchange, of the weights that an island's replica updates."""
    assert footprint(batch(**ISLANDS, weight_sharding=sharding)).parts["optimizer"] == (12 + 8) * weights


def test_an_operator_that_runs_step_by_step_takes_all_its_steps() -> None:
    """Of each of 3 steps 10 flop, 7 bytes, 2 s, and a launch of 0.5 s."""
    use = OperatorUse("h", "einsum", "cell", "forward", 10.0, 7.0, 4.0, KernelShape(), steps=3.0)
    found = _cost_of_all_steps(OperatorCost(use, 4.0, 2.0, 0.5))
    assert (found.use.flop, found.use.bytes, found.runs, found.seconds, found.launch_s) == (30, 21, 4, 6, 1.5)
    once = OperatorCost(replace(use, steps=1), 4.0, 2.0, 0.5)
    assert _cost_of_all_steps(once) == once
