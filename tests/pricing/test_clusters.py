"""Accelerators, hosts and networks of clusters."""

from __future__ import annotations

import numpy as np
import pytest

from cosmic.design.batch import batch_of, batch_of_changes
from cosmic.loading.designs import load_machine
from cosmic.pricing.clusters import cluster_cost


@pytest.mark.parametrize(
    ("size", "racks"),
    [
        (64, 1),
        (72, 1),
        (144, 2),
        (1024, 16),  # 64 in each rack: 1,024 / 72 = 14.2 would be 15
        (16384, 256),  # not 228
        (100, 2),  # 50 in each
        (146, 3),  # pairs, of which a rack holds 36: 73 / 36
    ],
)
def test_every_rack_in_use_is_bought(size: int, racks: int) -> None:
    point = load_machine(f"llama3-8b@gb200-nvl72:{size}")
    host = point.node.host_price_usd
    assert host is not None
    assert cluster_cost(batch_of(point)).hosts_usd == racks * host


@pytest.mark.parametrize(("inner", "outer", "hosts"), [(8, 4, 4), (4, 4, 2), (4, 3, 2), (2, 3, 1), (8, 1, 1)])
def test_small_groups_share_a_host(inner: int, outer: int, hosts: int) -> None:
    point = load_machine("llama3-8b@dgx-h100:32")
    changed = {"network.dims.0.npus": inner, "network.dims.1.npus": outer}
    batch = batch_of_changes(point, [changed, {}])
    host = point.node.host_price_usd
    assert host is not None
    assert np.asarray(cluster_cost(batch).hosts_usd).tolist() == [hosts * host, 4 * host]


def test_a_domain_of_several_nodes_has_a_host_for_each() -> None:
    # 64 chips of a Trainium2 UltraServer, taken as four nodes of 16
    point = load_machine("llama3-8b@trn2-ultra:64", {"node.host_price": "1 USD", "node.npus": 16})
    assert cluster_cost(batch_of(point)).hosts_usd == 4
