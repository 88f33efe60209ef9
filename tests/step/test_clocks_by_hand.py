"""Collectives by hand where little is said of them elsewhere: slower clocks, hiding, pools of experts, dispatchers.

The network of the tiny design (`tests.step.tiny`) takes 10 bytes/s from each accelerator.
"""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.design.memory_layer import HBM
from cosmic.design.model_layer import Experts
from cosmic.step.bottleneck import network_loads
from cosmic.step.communication import OVERLAP, NetworkCosts, list_collectives
from cosmic.step.step_profile import profile_step
from tests.step.test_placement_by_hand import HOST
from tests.step.test_tier_traffic_by_hand import CLASSES, pool, pooled
from tests.step.tiny import batch, switch


def test_a_slower_clock_slows_collectives_and_messages() -> None:
    """100 bytes there and back between two; 100 bytes to the next stage, or to a host; twice as long."""
    slow: dict[str, Any] = {"compute": {"time_factor": 2.0}}
    assert float(NetworkCosts(batch(dp=2, **slow)).seconds("all_reduce", ("dp",), 100.0)) == pytest.approx(2 * 10)
    assert float(NetworkCosts(batch(pp=2, **slow)).seconds("send", ("pp",), 100.0)) == pytest.approx(2 * 10)
    assert float(NetworkCosts(batch(memory={"tiers": (HOST,)}, **slow)).offload_seconds((100.0,))) == pytest.approx(20)


@pytest.mark.parametrize(("role", "most"), [("tp", OVERLAP.tp), ("ep", OVERLAP.ep)])
def test_an_accelerator_hides_more_or_less_than_the_measured_one(role: Any, most: float) -> None:
    """Half of it; never more than all."""

    def hidden(hiding: float) -> float:
        given: dict[str, Any] = {f"{role}_overlap": True, "compute": {f"{role}_hiding": hiding}}
        return float(NetworkCosts(batch(tp=2, **given)).efficiency(role))

    assert hidden(0.5) == pytest.approx(most / 2)
    assert hidden(100.0) == 1


def test_all_reduces_enter_dimensions_as_ever_where_all_to_alls_are_flat() -> None:
    """Each of the two inside passes on its half."""
    found = network_loads(
        profile_step(batch(dp=4, dims=(switch(2), switch(2)), collective={"all_to_all": "flat"}), "first")
    )
    assert [load.bytes for load in found] == pytest.approx([4 * 1224, 4 * 1224 / 2])


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(("there", "gathered"), [("weights", 2 * 2 * 256), ("experts", 2 * 304)])
def test_switches_gather_the_class_that_is_in_their_pool(there: str, gathered: float, together: bool) -> None:
    """Over the network travel 2 of 4 experts of 256 weights, or the 304 others, in 2 bytes."""
    states = {each: ("pool",) if each == there else (HBM,) for each in CLASSES}
    uses = list_collectives(pooled(pool(5.0), **states).batch, together=together)
    sent = [use for use in uses if use.block == "moe_layer" and use.kind == "all_gather" and use.phase == "forward"]
    assert sum(float(use.bytes) for use in sent if use.group > 1 and use.role == "weights") == gathered


@pytest.mark.parametrize(("dispatcher", "copies"), [("alltoall", 1), ("flex", 2)])
def test_only_a_flexible_dispatcher_sends_a_token_once_to_a_node(dispatcher: str, copies: int) -> None:
    """Tokens go to 2 of 4 experts."""
    model = {"experts": Experts(count=4, active=2, ffn=16)}
    uses = list_collectives(batch(dp=4, ep=4, model=model, moe_token_dispatcher_type=dispatcher))
    assert {use.copies for use in uses if use.kind == "all_to_all" and use.role == "ep"} == {copies}
