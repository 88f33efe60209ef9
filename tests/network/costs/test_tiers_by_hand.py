"""Tiers of dimensions: when they matter, what they are told, and small cases counted by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import BackendError
from cosmic.design.design_batch import Batch, batch_of_changes
from cosmic.design.network_layer import Dimension, Fabric, FabricTier, Site, builds, topologies
from cosmic.network.collective_costs import busiest_link, spine_shares
from cosmic.network.collective_rounds import number_of, usable_share
from cosmic.network.switch_tiers import (
    GroupShape,
    Phase,
    Tiers,
    crossing_phases,
    injected_bandwidth,
    ports_at,
    tier_share,
    tier_terms,
    tiers_at,
    uplink_loads,
)
from tests.leaves import LEAVES
from tests.step import tiny

FOUR = (FabricTier(32, 4.0),)


def tree(npus: int = 4, fabric: dict[str, Any] | None = None, **changed: Any) -> Dimension:
    return tiny.switch(npus, fabric=Fabric(**{"build": "fat_tree", **(fabric or {})}), **changed)


def network(*dims: Dimension, **collective: Any) -> Batch:
    return tiny.batch(dims=dims, collective=collective, dp=int(np.prod([dim.npus for dim in dims])))


# ---- when they matter


def test_a_tree_at_full_bandwidth_is_a_switch() -> None:
    assert Tiers.of(network(tree()), 0) is None


def test_dimensions_of_which_no_switch_is_counted_have_no_tiers() -> None:
    assert Tiers.of(network(tiny.switch(4, oversubscription=2.0)), 0) is None
    assert Tiers.at((tiny.switch(4, oversubscription=2.0),), 0) is None


@pytest.mark.parametrize(
    "dim",
    [
        tree(oversubscription=1.5),
        tree(fabric={"core_oversubscription": 1.5}),
        tree(topology="fat_tree"),
        tree(fabric={"routing": "ecmp"}),
    ],
)
def test_tiers_matter_where_something_shares_uplinks_or_counts_switches(dim: Dimension) -> None:
    assert Tiers.of(network(dim), 0) is not None


def test_tiers_matter_to_messages_that_go_straight() -> None:
    assert Tiers.of(network(tree(), all_to_all="flat"), 0) is not None


@pytest.mark.parametrize(("place", "inside", "instances"), [(0, 1, 12), (1, 2, 8), (2, 6, 6)])
def test_tiers_know_what_is_inside_and_how_often_they_are_there(place: int, inside: int, instances: int) -> None:
    """2 x 3 x 4 NPUs: in the middle, 2 inside and 8 of three side by side."""
    dims = tuple(tree(npus, oversubscription=1.5) for npus in (2, 3, 4))
    expected = Tiers("fat_tree", inside, instances, 64, 1.5, 1.0)
    assert Tiers.of(network(*dims), place) == Tiers.at(dims, place) == expected


def test_oversubscription_acts_on_all_traffic_where_no_switch_is_counted() -> None:
    """10 bytes/s at 2:1; a tree has tiers for that."""
    point = network(tree(oversubscription=2.0)).base
    builds_of = [{"network.dims.0.fabric.build": each} for each in ("fat_tree", "by_bandwidth", "included")]
    assert np.asarray(injected_bandwidth(batch_of_changes(point, builds_of), 0)).tolist() == [10, 5, 5]
    assert float(injected_bandwidth(network(tree(oversubscription=2.0)), 0)) == 10
    assert float(injected_bandwidth(network(tiny.switch(4, oversubscription=2.0)), 0)) == 5


def test_a_switch_has_two_ports_at_least() -> None:
    assert float(ports_at(64, 1.0, 64.0)) == 2
    assert float(ports_at(64, 1.0, 16.0)) == 4


# ---- by hand


def test_one_member_or_no_tiers_lose_nothing() -> None:
    assert tier_terms("all_gather", "fat_tree", "ring", 64, 1, 1, "fat_tree", 8, 8, 64, 4.0, 1.0) == (1.0, 1.0)
    assert tier_terms("all_gather", "switch", "ring", 256, 1, 64, "fat_tree", 8, 8, 64, 4.0, 1.0) == (1.0, 1.0)
    assert tier_terms("all_gather", "switch", "ring", 256, 2, 64, "fat_tree", 8, 8, 64, 4.0, 1.0)[0] < 1
    assert tier_terms("all_gather", "fat_tree", "ring", 256, 2, 128, "included", 8, 8, 64, 4.0, 1.0) == (1.0, 1.0)


def test_a_leaf_may_hold_part_of_one_node() -> None:
    """Racks of 72 NICs need several leaves each."""
    assert tiers_at("fat_tree", Site(8, 72, 72, 64, 1.0, 1.0)) == (FabricTier(1, 1.0),)


def test_a_tier_that_passes_nothing_on_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    len(builds)
    odd = type("Odd", (), {"tiers": staticmethod(lambda _: (FabricTier(4, float("inf")),))})
    monkeypatch.setitem(builds._variants, "odd", odd)
    with pytest.raises(BackendError, match="oversubscription from 1 on"):
        tiers_at("odd", Site(8, 1, 1, 64, 1.0, 1.0))


def test_uplinks_of_what_is_synthesised_carry_a_ring_or_all_messages() -> None:
    """A ring leaves a leaf of 32 once: 4 / 32. Of all messages 32 of 63 do."""
    group = GroupShape(64, 64, 1)
    assert uplink_loads("all_gather", "synthesized", group, FOUR) == (4 / 32,)
    assert uplink_loads("all_to_all", "synthesized", group, FOUR) == pytest.approx((4 * 32 / 63,))


def test_an_all_to_all_over_a_ring_is_forwarded() -> None:
    """Messages go from neighbour to neighbour: one edge leaves each leaf."""
    assert tier_share("all_to_all", "ring", GroupShape(64, 64, 1), FOUR) == 1.0


@pytest.mark.usefixtures("leaves")
@pytest.mark.parametrize(("algorithm", "links"), [("direct", 4), ("ring", 3), ("synthesized", 3)])
def test_paths_are_those_of_the_algorithms_messages(algorithm: str, links: float) -> None:
    """4 members 16 apart, two to a leaf: some of all messages leave it, and half of a ring's."""
    where = (LEAVES, 1.0, 1.0, 64.0, 4.0, 1.0)
    assert tier_terms("all_gather", "fat_tree", algorithm, 64, 4, 16, *where)[1] * 2 == links


def test_one_member_outside_is_reached_by_all_others() -> None:
    """5 members, 4 in a leaf: 4 · 1 of 4 messages each leave it, over its 4 NPUs."""
    assert crossing_phases("direct", "all_to_all", GroupShape(5, 5, 1), 4) == (Phase(1.0, 0.25, 1.0),)
    assert crossing_phases("direct", "all_to_all", GroupShape(4, 4, 1), 4) == (Phase(1.0, 0.0, 0.0),)


def test_paths_are_longer_if_one_group_straddles() -> None:
    """Groups of 4 on leaves of 6: one of three lies below a leaf, one on both."""
    assert crossing_phases("direct", "all_to_all", GroupShape(12, 4, 1), 6)[0].across == 1.0


def test_a_flat_all_to_all_hashes_its_messages_over_the_uplinks_of_a_leaf() -> None:
    """20 nodes of 8 at 2:1: leaves of 5 nodes, 40 NICs and 20 uplinks, 4 of them.

    15 of 19 others are elsewhere. 2 · 40 · 19 · 8 · 15 / 19 = 9600 messages on 20 uplinks, of 2 · 4 · 20 links.
    """
    adaptive, hashed = spine_shares(20, 20, 1, 8, "fat_tree", 8, 8, 64, 2.0, 1.0)
    assert adaptive == pytest.approx(19 / 30)
    assert hashed == pytest.approx(19 / 30 / busiest_link(480.0, 160))


# ---- plugins


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
def test_a_number_of_a_plugin_is_finite_and_not_negative(value: float) -> None:
    with pytest.raises(BackendError, match="must be finite, and 0 or more"):
        number_of(SimpleNamespace(share=lambda: value), "share")
    assert number_of(SimpleNamespace(share=lambda: 0.0), "share") == 0.0


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_a_share_of_bandwidth_is_above_0_and_no_more_than_all(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    len(topologies)
    odd = type("Odd", (), {"share": staticmethod(lambda *_: share), "switched": True})
    monkeypatch.setitem(topologies._variants, "odd", odd)
    with pytest.raises(BackendError, match="above 0, up to 1"):
        usable_share("odd", "ring", 8, 8, 1)


def test_a_member_alone_has_all_bandwidth() -> None:
    assert usable_share("fully_connected", "ring", 8, 1, 1) == 1.0
