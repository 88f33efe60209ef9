"""Seconds of offloading: bytes of each tier over the links that they cross."""

from __future__ import annotations

import numpy as np

from cosmic.design.batch import batch_of_changes
from cosmic.design.memory import Tier
from cosmic.step.network_costs import NetworkCosts
from tests.step import tiny

HOST = Tier(name="host", capacity_bytes=1000.0, bandwidth_bytes_per_s=10.0)
DRIVE = Tier(name="drive", capacity_bytes=9000.0, bandwidth_bytes_per_s=4.0)


def network(*tiers: Tier) -> NetworkCosts:
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
