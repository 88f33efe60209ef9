"""Accelerators, hosts and networks of clusters."""

from __future__ import annotations

import numpy as np
import pytest

from cosmic.base import units
from cosmic.cluster.cluster_cost import cluster_cost, dimension_parts
from cosmic.design.design_batch import batch_of, batch_of_changes
from cosmic.design.loading import design_tree, load_machine
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Infeasible, Metrics


@pytest.mark.parametrize(
    ("size", "racks"),
    [
        (64, 1),
        (72, 1),
        (144, 2),
        (1024, 16),  # 64 in each rack: 1,024 / 72 = 14.2 would be 15
        (16384, 256),  # not 228
        (108, 2),  # 54 in each
    ],
)
def test_every_rack_in_use_is_bought(size: int, racks: int) -> None:
    point = load_machine(f"llama3-8b@gb200-nvl72:{size}")
    host = point.node.host_price_usd
    assert host is not None
    assert cluster_cost(batch_of(point)).hosts_usd == racks * host


@pytest.mark.parametrize(
    ("inner", "outer", "racks"),
    [(50, 2, 2), (2, 73, 3)],  # 50 in each; pairs, of which a rack holds 36: 73 / 36
)
def test_every_rack_is_bought_of_which_a_part_is_in_use(inner: int, outer: int, racks: int) -> None:
    sizes = {"network.dims.0.npus": inner, "network.dims.1.npus": outer}
    point = load_machine("llama3-8b@gb200-nvl72:144").changed(sizes)
    assert cluster_cost(batch_of(point)).hosts_usd == racks * (point.node.host_price_usd or 0.0)


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


def test_spares_are_whole_nodes_with_nics_and_ports() -> None:
    """64 nodes and one more, of which 3 accelerators are asked for: 520 NICs, as 65 nodes have."""
    point = load_machine("llama3-8b@dgx-h100:512", {"run.spare_npus": 3})
    spared, larger = (cluster_cost(batch_of(each)) for each in (point, load_machine("llama3-8b@dgx-h100:520")))
    for part in ("accelerators_usd", "hosts_usd", "network_usd", "network_w"):
        assert getattr(spared, part) == getattr(larger, part)


def test_spares_of_a_torus_are_further_rings() -> None:
    """4 x 4 x 4 chips with 64 more: twice the cables, optics and ports of circuit switches."""
    one, both = (
        dimension_parts(batch_of(load_machine("llama3-8b@tpu-v5p:64", {"run.spare_npus": spare})), 2)
        for spare in (0, 64)
    )
    assert {name: 2 * count for name, count in one.items()} == both


def test_bandwidth_splits_ports_the_same_way_however_it_is_set() -> None:
    """Loaded, or changed in a batch as searches and sweeps do; 64 ports of 50 GB/s are 128 of 25, 53 of 60.

    53 ports, 26 down: 5 leaves on each of 8 rails; 40 · 26 links up are 20 spines.
    """
    path, loaded = "network.dims.1.bandwidth", load_machine("llama3-8b@dgx-h100:1024")
    widths = ("25 GB/s", "50 GB/s", "60 GB/s", "100 GB/s")
    changes = [{path: units.read_quantity(width, units.BYTES_PER_S)} for width in widths]
    together = cluster_cost(batch_of_changes(loaded, changes))
    alone = [cluster_cost(batch_of(load_machine("llama3-8b@dgx-h100:1024", {path: width}))) for width in widths]
    assert np.asarray(together.network_usd).tolist() == [each.network_usd for each in alone]
    assert np.asarray(together.network_w).tolist() == [each.network_w for each in alone]
    switches = dimension_parts(batch_of_changes(loaded, changes), 1)["switches"]
    assert np.asarray(switches).tolist() == [24, 48, 60, 160]


@pytest.mark.parametrize("build", ["torus", "optical_torus"])
def test_cables_between_neighbours_make_no_switch(build: str) -> None:
    changed = {"network.dims.1.fabric.build": build, "tp": 8, "dp": 16, "pp": 1, "cp": 1, "micro_batch": 1}
    outcome = evaluate(load_design("llama3-8b@dgx-h100:128", changed))
    assert isinstance(outcome, Infeasible)
    assert outcome.reasons == (
        f"network.dims.1.fabric.build {build} of a switch: cables between neighbours make a ring or a line, choose a "
        "build with switches",
    )
    assert isinstance(
        evaluate(load_design("llama3-8b@dgx-h100:128", {**changed, "network.dims.1.topology": "ring"})), Metrics
    )


def test_a_switch_has_two_ports_at_least() -> None:
    changed = {"network.dims.1.bandwidth": "2000 GB/s", "tp": 8, "dp": 16, "pp": 1, "cp": 1, "micro_batch": 1}
    outcome = evaluate(load_design("llama3-8b@dgx-h100:128", changed))
    assert isinstance(outcome, Infeasible)
    assert "fewer than two ports" in outcome.reasons[0]


def test_a_found_design_costs_the_same_when_it_is_saved_and_loaded() -> None:
    """By a search over bandwidth, by `evaluate` of what it exports, and by one change at a time."""
    point = load_design("llama3-8b@dgx-h100:256", {"tp": 8, "dp": 32, "pp": 1, "cp": 1, "micro_batch": 1})
    path, widths = "network.dims.1.bandwidth", [25e9, 40e9, 50e9, 75e9]
    found = evaluate_batch(batch_of_changes(point, [{path: width} for width in widths]))
    for place, width in enumerate(widths):
        changed = point.changed({path: width})
        saved = load_design(design_tree(changed))
        for one in (changed, saved):
            metrics = evaluate(one)
            assert isinstance(metrics, Metrics)
            assert metrics.cost_usd == found.columns["cost_usd"][place]
            assert metrics.power_w == found.columns["power_w"][place]
