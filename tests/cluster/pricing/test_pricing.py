"""Dollars as COSMIC logged them, watts by hand, and what owning costs."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from cosmic.cluster.cluster_cost import TierRates, dimension_tiers, network_usd, network_w, owned_usd_per_s, tier_rates
from cosmic.design.design_batch import Names
from cosmic.design.network_layer import topologies

near = partial(pytest.approx, rel=1e-9, abs=0.0)

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
    assert [dimension_tiers(dims) for dims in range(4)] == [
        (),
        ("package",),
        ("package", "pod"),
        ("package", "node", "pod"),
    ]
    assert dimension_tiers(5) == ("chiplet", "chiplet", "package", "node", "pod")


def test_a_switch_between_chiplets_has_the_price_of_the_next_tier() -> None:
    inner = network_usd((SWITCH, RING, RING, RING), (4, 4, 4, 4), (1e9, 0, 0, 0))
    assert inner == 256 * (2 * 2 + 13)


def test_a_single_npu_has_no_network() -> None:
    assert network_usd((), (), ()) == network_w((), (), ()) == 0


def test_a_pod_port_at_400_gbps_draws_its_optics_its_nic_and_its_share_of_the_switch() -> None:
    assert network_w((RING, SWITCH), (4, 8), (1e11, 50e9)) == near(32 * (2 * 8 + 747 / 64 + 25))


def test_owning_is_depreciation_upkeep_and_energy() -> None:
    year = 365.25 * 86400
    assert owned_usd_per_s(np.array([10_000, 250_000]), 0, 4, 0.05, 0.08) * year == near([3_000, 75_000])
    assert owned_usd_per_s(0, 1_250, 4, 0.05, 0.08) * 3600 == near(1.25 * 0.08)
    assert owned_usd_per_s(100, 0, 1, 0, 0.08) * year == near(100)


# ---- by hand


@pytest.mark.parametrize(
    ("names", "npus", "gb_per_s", "usd"),
    [
        # One dimension is a package: 1 block of 8 NPUs, 16 links of 50 GB/s at 4 USD.
        ((RING,), (8,), (100,), 16 * 50 * 4),
        # A pod of 4 packages: 4 x 16 links; 8 switches of 4 NPUs: 8 links, 4 ports, 4 NICs each at 50 GB/s.
        ((RING, SWITCH), (8, 4), (100, 50), 4 * 16 * 50 * 4 + 8 * (8 * 7.8 + 4 * 18 + 4 * 31.6) * 50),
        # Package, node and pod: 32 rings, 32 fully connected fours (3 links each NPU), 16 switches.
        (
            (RING, FULL, SWITCH),
            (4, 4, 8),
            (100, 90, 50),
            32 * 8 * 50 * 4 + 32 * 12 * 30 * 4 + 16 * (16 * 7.8 + 8 * 18 + 8 * 31.6) * 50,
        ),
        # A chiplet inside, at 2 USD a link; a switch in package and node at 13 USD a port, without NICs.
        ((RING, SWITCH, SWITCH, RING), (2, 2, 2, 2), (10, 10, 10, 10), 8 * 2 * 10 * 2 + 2 * 8 * (4 * 4 + 2 * 13) * 10
         + 8 * 2 * 10 * 7.8),
        # A fat tree of two levels: 4 links, 3 ports and a NIC for each NPU, in place of a switch's 2, 1 and 1.
        ((RING, "fat_tree"), (2, 128), (0, 50), 2 * 128 * (4 * 7.8 + 3 * 18 + 31.6) * 50),
    ],
)  # fmt: skip
def test_a_network_costs_its_links_ports_and_nics(
    names: tuple[str, ...], npus: tuple[int, ...], gb_per_s: tuple[float, ...], usd: float
) -> None:
    assert network_usd(names, npus, [rate * 1e9 for rate in gb_per_s]) == near(usd)


def test_a_network_draws_what_its_ports_optics_and_nics_draw() -> None:
    """At 400 Gbit/s, 50 GB/s: 11.67 W a port; in a pod 8 W for each link and 25 W for a NIC besides."""
    port = 747 / 64
    assert network_w((SWITCH,), (8,), (450e9,)) == near(8 * port * 9)
    assert network_w((RING, SWITCH, RING), (4, 2, 2), (1e11, 50e9, 50e9)) == near(
        8 * 2 * port + 8 * 2 * 1 * 8  # 8 switches of 2 ports in nodes; 8 pairs in pods: two links of one lane each
    )
    assert network_w((SWITCH, SWITCH), (8, 64), (450e9, 50e9)) == near(512 * (9 * port + port + 25 + 2 * 8))


def test_tiers_have_their_prices_and_watts() -> None:
    usd, watts = tier_rates("price"), tier_rates("power")
    assert list(usd) == list(watts) == ["chiplet", "package", "node", "pod"]
    assert usd["chiplet"] == TierRates(per_bytes_per_s=1e9, link=2, switch_port=13, nic=0)
    assert usd["package"] == usd["node"] == TierRates(per_bytes_per_s=1e9, link=4, switch_port=13, nic=0)
    assert watts["node"] == TierRates(per_bytes_per_s=50e9, link=0, switch_port=11.671875, nic=0)
    assert watts["pod"] == TierRates(per_bytes_per_s=50e9, link=8, switch_port=11.671875, nic=25)


def test_topologies_can_differ_in_a_batch() -> None:
    names = Names((RING, SWITCH), np.array([0, 1]))
    found = network_usd((names,), (8,), (100e9,))
    assert np.asarray(found).tolist() == [16 * 50 * 4, (16 * 4 + 8 * 13) * 100]


def test_owning_by_hand() -> None:
    """300,000 USD over 4 years and 5 % a year; 10 kW, a quarter more for the building, at 8 cents a kWh."""
    capital_per_s, energy_per_s = 300_000 * (1 / 4 + 0.05) / 31_557_600, 10 * 1.25 * 0.08 / 3600
    assert owned_usd_per_s(300_000, 12_500, 4, 0.05, 0.08) == near(capital_per_s + energy_per_s)
    other = owned_usd_per_s(300_000, 15_000, 5, 0.1, 0.2)
    assert other == near(300_000 * (1 / 5 + 0.1) / 31_557_600 + 10 * 1.5 * 0.2 / 3600)


@pytest.mark.parametrize("name", ["ring", "fully_connected", "torus_2d", "hypercube"])
def test_a_dimension_of_one_npu_has_no_links_to_pay_for(name: str) -> None:
    assert network_usd((name, "ring"), (1, 8), (1e11, 1e11)) == network_usd(("ring", "ring"), (1, 8), (1e11, 1e11))
    assert float(network_usd((name,), (1,), (1e11,))) == 0
