"""Dollars as COSMIC logged them, watts by hand, and what owning costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cosmic.design.network import topologies
from cosmic.pricing.network import network_usd, network_w, tiers
from cosmic.pricing.ownership import OWNERSHIP, capital_usd, owned_usd_per_s

RING, FULL, SWITCH = "ring", "fully_connected", "switch"
LOGGED = [  # topologies, sizes, bandwidth of one link in GB/s, dollars: logs of the authors' exp 8
    ((RING, SWITCH, RING, SWITCH), (8, 4, 4, 8), (50, 100, 50, 100), 9_441_280),
    ((RING, FULL, RING, FULL), (4, 16, 4, 4), (50, 100 / 15, 50, 100 / 3), 1_822_720),
    ((RING, FULL, RING, FULL), (4, 4, 4, 4), (50, 100 / 3, 50, 100 / 3), 455_680),
]


@pytest.mark.parametrize(("names", "npus", "link_gb_per_s", "usd"), LOGGED)
def test_the_logged_dollars_are_exact(
    names: tuple[str, ...], npus: tuple[int, ...], link_gb_per_s: tuple[float, ...], usd: int
) -> None:
    per_link = zip(names, npus, link_gb_per_s, strict=True)
    injected = [link * topologies[name].links(size) * 1e9 for name, size, link in per_link]
    assert network_usd(names, npus, injected) == usd


def test_a_batch_costs_what_its_networks_cost() -> None:
    names = (RING, "torus_2d", "fat_tree")
    sizes = (np.array([2, 4, 8]), np.array([16, 12, 6]), np.array([8, 128, 64]))
    rates = (np.array([1e11, 2e11, 3e11]), 5e10, np.array([5e10, 25e9, 1e11]))
    for cost in (network_usd, network_w):
        batch = cost(names, sizes, rates)
        singles = [cost(names, [n[i] for n in sizes], [rates[0][i], 5e10, rates[2][i]]) for i in range(3)]
        assert np.asarray(batch).tolist() == singles


def test_the_outermost_dimension_is_the_pod() -> None:
    assert [tiers(dims) for dims in range(4)] == [(), ("package",), ("package", "pod"), ("package", "node", "pod")]
    assert tiers(5) == ("chiplet", "chiplet", "package", "node", "pod")


def test_a_switch_between_chiplets_has_the_price_of_the_next_tier() -> None:
    inner = network_usd((SWITCH, RING, RING, RING), (4, 4, 4, 4), (1e9, 0, 0, 0))
    assert inner == 256 * (2 * 2 + 13)


def test_a_single_npu_has_no_network() -> None:
    assert network_usd((), (), ()) == network_w((), (), ()) == 0


def test_a_pod_port_at_400_gbps_draws_its_optics_its_nic_and_its_share_of_the_switch() -> None:
    assert network_w((RING, SWITCH), (4, 8), (1e11, 50e9)) == pytest.approx(32 * (2 * 8 + 747 / 64 + 25))


def test_owning_is_depreciation_upkeep_and_energy() -> None:
    capital = capital_usd(np.array([0, 30_000]), 8, 10_000)
    assert np.asarray(capital).tolist() == [10_000, 250_000]
    year = 365.25 * 86400
    assert owned_usd_per_s(capital, 0) * year == pytest.approx([3_000, 75_000])
    assert owned_usd_per_s(0, 1_000) * 3600 == pytest.approx(1.25 * 0.08)
    assert owned_usd_per_s(100, 0, replace(OWNERSHIP, years=1, upkeep_per_year=0)) * year == pytest.approx(100)
