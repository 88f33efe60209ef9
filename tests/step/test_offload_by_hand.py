"""Seconds of offloading: bytes of each tier over the links that they cross."""

from __future__ import annotations

import numpy as np
import pytest

from cosmic.design.design_batch import batch_of_changes
from cosmic.design.memory_layer import MemoryTier
from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Metrics
from cosmic.step.communication import NetworkCosts
from cosmic.step.device_memory import COMPONENTS, Footprint
from tests.step import tiny

HOST = MemoryTier(name="host", capacity_bytes=1000.0, bandwidth_bytes_per_s=10.0)
DRIVE = MemoryTier(name="drive", capacity_bytes=9000.0, bandwidth_bytes_per_s=4.0)


def network(*tiers: MemoryTier) -> NetworkCosts:
    return NetworkCosts(tiny.batch(memory={"tiers": tiers}))


def test_bytes_of_one_tier_cross_its_link() -> None:
    assert network(HOST).offload_seconds((50.0,)) == 5
    assert network(HOST).offload_seconds((0.0,)) == 0


def test_bytes_of_the_second_tier_cross_both_links_at_once() -> None:
    """60 + 20 bytes over the host's link take 8 s, 20 over the drive's 5 s; with 40 of them, 10 s each."""
    assert network(HOST, DRIVE).offload_seconds((60.0, 20.0)) == 8
    assert network(HOST, DRIVE).offload_seconds((60.0, 40.0)) == 10
    assert network(HOST, DRIVE).offload_seconds((0.0, 40.0)) == 10


def test_without_outer_tiers_nothing_travels() -> None:
    assert network().offload_seconds(()) == 0


def test_designs_of_a_batch_have_their_own_links() -> None:
    point = tiny.point(memory={"tiers": (HOST,)})
    batch = batch_of_changes(point, [{"memory.tiers.0.bandwidth": 10.0}, {"memory.tiers.0.bandwidth": 5.0}])
    assert np.asarray(NetworkCosts(batch).offload_seconds((50.0,))).tolist() == [5, 10]


def test_states_of_the_optimizer_travel_at_the_update() -> None:
    """100 bytes of states go in and out, 300 bytes of weights come in: 2/5 of the traffic is the update's."""
    kept = dict.fromkeys(COMPONENTS, 0.0)
    both = Footprint(kept, {"optimizer": 100.0, "weights": 300.0}, (500.0,))
    assert both.update_share == pytest.approx(2 * 100 / 500)
    assert Footprint(kept, {"weights": 300.0}, (300.0,)).update_share == 0
    assert Footprint(kept).update_share == 0


def test_the_update_waits_for_its_states() -> None:
    point = load_design(
        "llama3-8b@dgx-h100:8",
        {"offload": ["optimizer"], "memory.tiers": [{"name": "host", "capacity": "1 TB", "bandwidth": "50 GB/s"}]},
        plain=True,
    )
    found = evaluate(point)
    assert isinstance(found, Metrics)
    travels = 2 * found.offloaded_bytes / 50e9
    assert found.breakdown["offload"] == pytest.approx(travels - found.breakdown["optimizer"])
