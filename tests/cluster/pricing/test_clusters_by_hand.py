"""Bills of small clusters, worked out by hand.

Three boxes of 4 accelerators: 10 USD and 7 W each, hosts 100 USD and 50 W. Their 12 NICs of 10 bytes/s are on a switch
of 1000 USD and 30 W, with a transceiver (5 USD, 2 W at 20 bytes/s, so half of it) at both ends of cables of 3 USD.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosmic.cluster import cluster_cost as clusters
from cosmic.cluster.cluster_cost import ClusterCost, cluster_cost, dimension_parts, network_usd
from cosmic.design.design_batch import Batch, batch_of, batch_of_changes
from cosmic.design.design_point import DesignPoint
from cosmic.design.facility_layer import Facility, Node
from cosmic.design.network_layer import Dimension, Fabric, Link
from cosmic.network.dimension_wiring import Wiring, label_of
from cosmic.step.accelerator_rates import PowerConstants
from tests.step import tiny

INSIDE = tiny.switch(4, fabric=Fabric(build="included"))
FIGURES: dict[str, Any] = {
    "switch_price_usd": 1000.0,
    "switch_power_w": 30.0,
    "optic_price_usd": 5.0,
    "optic_power_w": 2.0,
    "cable_price_usd": 3.0,
}
BOX = Node(name="box", npus=4, host_price_usd=100.0, host_power_w=50.0)


def tree(npus: int = 3, port: float | None = 20.0, build: str = "fat_tree", **changed: Any) -> Dimension:
    return tiny.switch(npus, fabric=Fabric(build=build, port_bandwidth_bytes_per_s=port, **FIGURES), **changed)


def cluster(*dims: Dimension, node: Node = BOX, spare: int = 0, **facility: float) -> DesignPoint:
    point = tiny.point(dims=dims or (INSIDE, tree()), compute={"price_usd": 10.0, "power_w": 7.0}, dp=12)
    run = replace(point.run, spare_npus=spare)
    return replace(point, node=node, run=run, facility=Facility(**{"pue": 1.5, **facility}))


def cost(*dims: Dimension, **changed: Any) -> ClusterCost:
    return cluster_cost(batch_of(cluster(*dims, **changed)))


def bill(batch: Batch, place: int) -> list[list[float]]:
    """Return switches, optics and cables of the dimension at *place*, design by design."""
    parts = dimension_parts(batch, place)
    found: list[list[float]] = np.stack(
        [np.atleast_1d(parts[name]) for name in ("switches", "optics", "cables")], axis=1
    ).tolist()
    return found


def test_capital_is_accelerators_hosts_network_and_what_is_beside_them() -> None:
    """120 + 300 + (1000 + 24 · 5 / 2 + 12 · 3 = 1096), and half of it again: 1516 · 1.5."""
    found = cost(other_share=0.5)
    assert (found.accelerators_usd, found.hosts_usd, found.network_usd, found.other_usd) == (120, 300, 1096, 758)
    assert found.capital_usd == 2274


def test_power_is_that_of_all_parts_at_the_meter() -> None:
    """12 · 7 + 3 · 50 + (30 + 24 · 2 / 2) = 288 W, times 1.5."""
    found = cost()
    assert (found.accelerators_w, found.hosts_w, found.network_w) == (84, 150, 54)
    assert found.power_w == 432


def test_idle_accelerators_and_hosts_draw_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the time busy, a fifth of the power idle: 84 · (0.2 + 0.8 / 4) = 33.6; 150 / 2; 54: 162.6 · 1.5."""
    monkeypatch.setattr(clusters, "POWER_CONSTANTS", PowerConstants(exponent=0.5, idle_share=0.2, host_share=0.5))
    assert cost().used_w(0.25) == pytest.approx(243.9)


def test_transceivers_of_a_dimensions_own_bandwidth_cost_what_is_stated() -> None:
    """1000 + 24 · 5 + 12 · 3; 30 + 24 · 2."""
    found = cost(INSIDE, tree(port=None))
    assert (found.network_usd, found.network_w) == (1156, 78)


def test_accelerators_by_themselves_have_no_hosts() -> None:
    found = cost(node=replace(BOX, name=""))
    assert (found.hosts_usd, found.hosts_w) == (0, 0)
    named = batch_of_changes(cluster(node=replace(BOX, name="")), [{"node.name": "box"}])
    assert cluster_cost(named).hosts_usd == 300


def test_a_node_has_as_many_whole_groups_of_its_own_network_as_it_holds() -> None:
    """Boxes of 6: one group of 4 each, 3 boxes; without a network inside, 6 are in use: 2 boxes."""
    six = replace(BOX, npus=6)
    batch = batch_of_changes(
        cluster(node=six), [{"network.dims.0.fabric.build": build} for build in ("included", "fat_tree")]
    )
    assert np.asarray(cluster_cost(batch).hosts_usd).tolist() == [300, 200]
    halves = tiny.switch(2, fabric=Fabric(build="included"))
    point = cluster(halves, halves, tree(), node=six)
    assert cluster_cost(batch_of(point)).hosts_usd == 300  # groups of 2 x 2
    second = batch_of_changes(point, [{"network.dims.1.fabric.build": build} for build in ("included", "fat_tree")])
    assert np.asarray(cluster_cost(second).hosts_usd).tolist() == [300, 200]  # of 2, boxes hold 3


def test_builds_of_a_batch_cost_what_each_does() -> None:
    """By bandwidth, two links, a port and a NIC of a pod: 12 · (2 · 7.8 + 18 + 31.6) · 10 bytes/s / 1 GB/s."""
    batch = batch_of_changes(
        cluster(), [{"network.dims.1.fabric.build": build} for build in ("fat_tree", "by_bandwidth", "included")]
    )
    plain = 12 * (2 * 7.8 + 18 + 31.6) * 10 / 1e9
    assert np.asarray(cluster_cost(batch).network_usd).tolist() == pytest.approx([1096, plain, 0])


def test_nics_of_all_dimensions_inside_are_on_one_tree() -> None:
    """2 x 2 accelerators inside, 3 boxes: 12 NICs on one switch."""
    halves = tiny.switch(2, fabric=Fabric(build="included"))
    assert bill(batch_of(cluster(halves, halves, tree())), 2) == [[1, 24, 12]]


# ---- spares


def test_spares_are_whole_nodes() -> None:
    """5 spares are 2 boxes: 20 accelerators, 5 hosts, 20 NICs: 1000 + 40 · 5 / 2 + 20 · 3."""
    found = cost(spare=5)
    assert (found.accelerators_usd, found.hosts_usd, found.network_usd) == (200, 500, 1160)


def test_spares_cost_in_proportion_where_parts_do() -> None:
    """8 beside 12."""
    plain = tiny.switch(12)
    one, more = (cost(plain, spare=spare).network_usd for spare in (0, 5))
    assert one > 0
    assert more == pytest.approx(one * 20 / 12)


def test_one_spare_takes_a_port_of_the_switch_that_is_there() -> None:
    """4 accelerators and one more on one switch."""
    alone = replace(BOX, npus=1)
    assert bill(batch_of(cluster(tree(4), node=alone, spare=1)), 0) == [[1, 10, 5]]


def test_part_of_a_node_is_a_node_of_the_outer_dimension() -> None:
    """Domains of 4 in boxes of 2: a spare box takes a place of a domain, 4 x 4 NICs."""
    assert bill(batch_of(cluster(node=replace(BOX, npus=2), spare=2)), 1) == [[1, 32, 16]]


def test_spares_are_further_instances_of_what_is_inside() -> None:
    """Three switches of 4, and a fourth for the spare box."""
    assert bill(batch_of(cluster(tree(4), tree(3), spare=4)), 0) == [[4, 32, 16]]
    ring = tree(3, build="torus", topology="ring")
    alone = replace(BOX, npus=1)
    assert bill(batch_of(cluster(ring, tree(4), node=alone, spare=5)), 0) == [[0, 0, 18]]  # 4 rings, 2 for 5 spares


def test_spares_of_a_ring_are_another_ring_those_of_a_switch_take_ports() -> None:
    """3 accelerators and 2 spares: two rings of 3 cables, or 5 NICs on a switch."""
    point = cluster(tree(3, build="torus", topology="ring"), node=replace(BOX, npus=1), spare=2)
    assert bill(batch_of(point), 0) == [[0, 0, 6]]
    both = batch_of_changes(point, [{"network.dims.0.fabric.build": build} for build in ("torus", "fat_tree")])
    assert bill(both, 0) == [[0, 0, 6], [1, 10, 5]]


# ---- listed links


def test_listed_links_cost_by_their_own_bandwidth() -> None:
    """Two NPUs, 4 bytes/s to and from switch 2 and 1 to each other; switches 2 and 3 have 5 both ways. 5 are injected.

    Links: 4 · 4 + 2 · 1 + 2 · 5 = 28, at 7.8. Ports: 2 · 4 + 2 · 5 = 18, at 18. NICs: 2 · 4 = 8, at 31.6; two of them.
    """
    ends = {(0, 2): 4, (2, 0): 4, (1, 2): 4, (2, 1): 4, (0, 1): 1, (1, 0): 1, (2, 3): 5, (3, 2): 5}
    links = tuple(Link(source=s, target=t, bandwidth_bytes_per_s=float(rate)) for (s, t), rate in ends.items())
    name = label_of("graph", Wiring(links))
    assert float(network_usd(("ring", name), (2, 2), (0.0, 5e9))) == pytest.approx(
        2 * (28 * 7.8 + 18 * 18 + 8 * 31.6), rel=1e-12
    )
