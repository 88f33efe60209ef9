"""Networks in tiers: how much traffic leaves a leaf, counted by hand."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosmic.base.errors import BackendError
from cosmic.design.collective_layer import CollectiveKind
from cosmic.design.network_layer import Dimension, Fabric, FabricTier, Site, Transport, builds
from cosmic.network.collective_costs import (
    NetworkDimension,
    Subgroup,
    collective_seconds,
    one_dimension_seconds,
    send_seconds,
)
from cosmic.network.link_graph import LinkGraph
from cosmic.network.link_paths import link_loads
from cosmic.network.mesh_spans import Span
from cosmic.network.network_graphs import network_graph, tiered_graph
from cosmic.network.switch_tiers import (
    GroupShape,
    Tiers,
    crossing_phases,
    group_of,
    tier_share,
    tier_terms,
    tiers_at,
    tiers_of,
    uplink_loads,
)
from cosmic.network.transport_protocols import IDEAL
from tests.leaves import LEAVES

ALGORITHMS = ("ring", "direct", "halving_doubling", "double_binary_tree", "auto", "in_network", "synthesized")
FOUR = (FabricTier(32, 4.0),)
"""Leaves of 32 nodes, of which a quarter can send out at once."""
KINDS: tuple[CollectiveKind, ...] = get_args(CollectiveKind)


def dimension(npus: int = 64, share: float = 4.0, core: float = 1.0, **changed: Any) -> Dimension:
    """Return nodes of 8 on one rail: 100 GB/s, no latency."""
    stated: dict[str, Any] = {
        "topology": "switch",
        "latency_s": 0.0,
        "fabric": Fabric(build=LEAVES, core_oversubscription=core),
    }
    return Dimension(npus=npus, bandwidth_bytes_per_s=100e9, oversubscription=share, **stated | changed)


def seconds(kind: CollectiveKind, algorithm: str, members: float, step: float, dim: Dimension) -> float:
    """Return the seconds of 1 GB in groups of a shape."""
    tiers = Tiers.at((dim,), 0)
    lane = NetworkDimension(dim.topology, dim.npus, dim.bandwidth_bytes_per_s, dim.latency_s, algorithm, IDEAL, tiers)
    return float(collective_seconds([Subgroup(lane, Span(members, step))], kind, 1e9, 1, "blueconnect"))


# ---- by hand


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kind", KINDS)
def test_groups_below_one_leaf_never_cross(algorithm: str, kind: CollectiveKind) -> None:
    """32 members side by side, 16 every second, 8 every fourth: 32 nodes each, as many as a leaf has."""
    for members, step in ((32, 1), (16, 2), (8, 4), (2, 16)):
        assert tier_share(kind, algorithm, GroupShape(64, members, step), FOUR) == 1.0


@pytest.mark.parametrize(
    ("members", "step", "share"),
    [
        (64, 1, 1.0),  # one ring: 1 of 32 nodes sends out of a leaf that lets 8 do so
        (8, 8, 1.0),  # 8 rings: 8 of 32
        (4, 16, 0.5),  # 16 of 32
        (2, 32, 0.25),  # all of them
    ],
)
def test_a_ring_leaves_a_leaf_once_for_each_group(members: int, step: int, share: float) -> None:
    for algorithm in ("ring", "auto", "in_network"):
        assert tier_share("all_reduce", algorithm, GroupShape(64, members, step), FOUR) == share


@pytest.mark.parametrize(("members", "step", "own"), [(64, 1, 32), (16, 4, 8), (4, 16, 2), (2, 32, 1)])
def test_direct_messages_cross_to_the_members_elsewhere(members: int, step: int, own: int) -> None:
    """Of p - 1 others p - c are in other leaves: (p - c) / (p - 1) of all bytes cross, at 1/4 of the rate."""
    for kind, algorithm in (("all_to_all", "auto"), ("all_to_all", "in_network"), ("all_gather", "direct")):
        found = tier_share(kind, algorithm, GroupShape(64, members, step), FOUR)  # type: ignore[arg-type]  # kinds
        assert found == pytest.approx(min(1.0, (members - 1) / (4 * (members - own))))


def test_halving_pays_for_the_phases_whose_partner_is_outside() -> None:
    """16 members every 4th node: 8 in a leaf. Phases send 8, 4, 2 and 1 of 15; the last, 8 members apart, leaves.

    It takes 4 times as long: 15 / (8 + 4 + 2 + 4 * 1). Bruck's four phases send 1/4 each to members 1, 2, 4 and 8
    further on: of 32 NPUs 4, 8, 16 and 32 to another leaf, with room for 8: 4 / (1 + 1 + 2 + 4).
    """
    group = GroupShape(64, 16, 4)
    assert tier_share("all_gather", "halving_doubling", group, FOUR) == pytest.approx(15 / 18)
    assert tier_share("all_to_all", "halving_doubling", group, FOUR) == pytest.approx(4 / 8)


def test_trees_have_few_edges_out_of_a_leaf() -> None:
    """Trees of members that all are in different leaves cross with every edge, those of neighbours hardly ever."""
    assert tier_share("all_reduce", "double_binary_tree", GroupShape(64, 64, 1), FOUR) == 1.0
    assert tier_share("all_reduce", "double_binary_tree", GroupShape(256, 8, 32), FOUR) == pytest.approx(0.25, rel=0.2)


def test_tiers_multiply_and_the_worst_decides() -> None:
    """4:1 out of leaves, 3:1 out of pods of 4: pods pass 1/12 on. Half of the 128 nodes of a pod send out of it."""
    tiers = (FabricTier(32, 4.0), FabricTier(128, 12.0))
    assert tier_share("all_gather", "ring", GroupShape(256, 4, 64), tiers) == pytest.approx(1 / 6)
    assert tier_share("all_gather", "ring", GroupShape(256, 4, 32), tiers) == 0.25  # within a pod
    assert tier_share("all_gather", "ring", GroupShape(256, 2, 128), tiers) == pytest.approx(1 / 12)
    assert uplink_loads("all_gather", "ring", GroupShape(256, 2, 128), tiers) == (4.0, 12.0)


def test_groups_that_straddle_a_leaf_pay_for_it() -> None:
    """Groups of 4 on leaves of 6: the second lies on both, with 2 of 4 in each.

    Direct: out of the leaf go 2 * 2 / 3 bytes of 6 * 1. At 9:1 that takes 9 * (4 / 3) / 6 = 2 as long.
    """
    assert tier_share("all_gather", "direct", GroupShape(12, 4, 1), (FabricTier(6, 9.0),)) == pytest.approx(0.5)
    assert group_of(12, 3.6, 1.2) == GroupShape(12, 4, 1)


@pytest.mark.usefixtures("leaves")
def test_seconds_are_those_of_the_share() -> None:
    """1 GB at 100 GB/s: a ring of 64 sends 63/64 of it; every 32nd node 1/2 at a quarter of the rate.

    An all-to-all over 64 sends 63/64 of it at 63 / (4 * 32).
    """
    dim = dimension()
    assert seconds("all_gather", "ring", 64, 1, dim) == pytest.approx(0.01 * 63 / 64)
    assert seconds("all_gather", "ring", 32, 1, dim) == pytest.approx(0.01 * 31 / 32)
    assert seconds("all_gather", "ring", 2, 32, dim) == pytest.approx(0.04 / 2)
    assert seconds("all_to_all", "direct", 64, 1, dim) == pytest.approx(0.01 * 63 / 64 * 128 / 63)
    assert one_dimension_seconds("all_gather", "ring", 64, 1e9, dim) == pytest.approx(0.01 * 63 / 64)


@pytest.mark.usefixtures("leaves")
def test_a_message_to_the_next_stage_leaves_only_from_a_far_step() -> None:
    lane = NetworkDimension("switch", 64, 100e9, 0.0, "auto", IDEAL, Tiers.at((dimension(),), 0))
    assert send_seconds([Subgroup(lane, Span(4.0, 8.0))], 1e9) == pytest.approx(0.01)
    assert send_seconds([Subgroup(lane, Span(2.0, 32.0))], 1e9) == pytest.approx(0.04)


@pytest.mark.usefixtures("leaves")
def test_a_library_reduces_and_builds_trees_through_the_same_uplinks() -> None:
    """All-reduce of 1 GB among 32 nodes that are 32 apart, 4:1: ring 2 * 31/32, in the switch 1 + 1/32; all at 1/4."""
    reducing = Transport(reduction_efficiency=1.0, overhead_s=1e-6)
    plain, tiered = dimension(1024, 1.0, transport=reducing), dimension(1024, 4.0, transport=reducing)
    ring = Transport(overhead_s=1e-6)
    for transport, traffic in ((reducing, 1 + 1 / 32), (ring, 2 * 31 / 32)):
        taken = []
        for dim in (plain, tiered):
            tiers = Tiers.at((dim,), 0)
            lane = NetworkDimension("switch", 1024, 100e9, 0.0, "auto", transport, tiers)
            group = [Subgroup(lane, Span(32.0, 32.0))]
            taken.append(float(collective_seconds(group, "all_reduce", 1e9, 1, "blueconnect")))
        assert taken[0] == pytest.approx(1e-6 + 0.01 * traffic)
        assert taken[1] == pytest.approx(1e-6 + 0.04 * traffic, rel=1e-6)


@pytest.mark.usefixtures("leaves")
def test_only_fat_trees_take_longer_paths() -> None:
    """Links: 2 below a leaf. 4 members 16 apart: half of a ring's messages leave the leaf; 2 that are 32 apart: all."""
    where = (LEAVES, 1.0, 1.0, 64.0, 4.0, 1.0)
    for members, step, links in ((32, 1, 2.0), (4, 16, 3.0), (2, 32, 4.0)):
        found = tier_terms("all_gather", "fat_tree", "ring", 64, members, step, *where)[1]
        assert found * 2 == links  # 64 NPUs of a fat tree without a fabric are on one switch
        assert tier_terms("all_gather", "switch", "ring", 64, members, step, *where)[1] == 1.0
    across_pods = tier_terms("all_gather", "fat_tree", "ring", 256, 2, 128, *where)[1]
    assert across_pods * 4 == 6  # without a fabric, two levels up to 2,048 NPUs


# ---- relations

shapes = st.tuples(st.integers(1, 6), st.integers(0, 4), st.integers(0, 3)).map(
    lambda drawn: GroupShape(2 ** sum(drawn), 2 ** drawn[0], 2 ** drawn[1])
)
odd_shapes = st.tuples(st.integers(2, 9), st.integers(1, 7), st.integers(1, 5), st.integers(0, 6)).map(
    lambda drawn: GroupShape(drawn[0] * drawn[1] * drawn[2] + drawn[3], drawn[0], drawn[1])
)
any_shapes = st.one_of(shapes, odd_shapes)
shares = st.floats(1.0, 100.0)
kinds, algorithms = st.sampled_from(KINDS), st.sampled_from(ALGORITHMS)


@given(kind=kinds, algorithm=algorithms, group=any_shapes, leaf=st.integers(1, 40), first=shares, more=shares)
def test_more_oversubscription_is_never_faster(
    kind: CollectiveKind, algorithm: str, group: GroupShape, leaf: int, first: float, more: float
) -> None:
    less = tier_share(kind, algorithm, group, (FabricTier(leaf, first),))
    found = tier_share(kind, algorithm, group, (FabricTier(leaf, first * more),))
    assert 0 < found <= less <= 1
    assert found >= 1 / (first * more) * (1 - 1e-12)  # what it acts on is all traffic at most


@given(
    kind=kinds, algorithm=algorithms, group=any_shapes, leaf=st.integers(1, 20), times=st.integers(1, 8), share=shares
)
def test_leaves_that_are_joined_are_never_slower(
    kind: CollectiveKind, algorithm: str, group: GroupShape, leaf: int, times: int, share: float
) -> None:
    """Of leaves that are no multiple that need not hold: they may cut groups that smaller ones do not."""
    small = tier_share(kind, algorithm, group, (FabricTier(leaf, share),))
    assert tier_share(kind, algorithm, group, (FabricTier(times * leaf, share),)) >= small * (1 - 1e-12)


@given(kind=kinds, algorithm=algorithms, group=any_shapes, leaf=st.integers(1, 40))
def test_nothing_is_lost_without_oversubscription(
    kind: CollectiveKind, algorithm: str, group: GroupShape, leaf: int
) -> None:
    assert tier_share(kind, algorithm, group, (FabricTier(leaf, 1.0), FabricTier(2 * leaf, 1.0))) == 1.0


@given(kind=kinds, group=any_shapes, leaf=st.integers(1, 40), share=shares)
def test_what_is_synthesised_is_at_least_as_good(
    kind: CollectiveKind, group: GroupShape, leaf: int, share: float
) -> None:
    tiers = (FabricTier(leaf, share),)
    others = ("direct",) if kind == "all_to_all" else ALGORITHMS[:4]
    assert tier_share(kind, "synthesized", group, tiers) == max(tier_share(kind, each, group, tiers) for each in others)


# ---- graphs


def busiest(graph: LinkGraph, group: GroupShape) -> float:
    """Return the seconds of the most loaded link if every NPU sends a byte to the next in its ring."""
    first = np.arange(group.npus // (group.members * group.step)) * group.members * group.step
    ranks = first[:, None, None] + np.arange(group.step)[:, None] + group.step * np.arange(group.members)
    senders, receivers = ranks.reshape(-1), np.roll(ranks, -1, axis=2).reshape(-1)
    carried, _ = link_loads(graph, senders, receivers, np.ones(len(senders)))
    return float((carried / graph.bandwidth_bytes_per_s).max())


@pytest.mark.usefixtures("leaves")
@pytest.mark.parametrize(
    "group",
    [GroupShape(16, 16, 1), GroupShape(16, 4, 4), GroupShape(16, 2, 8), GroupShape(16, 4, 1), GroupShape(24, 3, 8)],
)
def test_the_links_of_the_tree_agree_with_what_is_counted(group: GroupShape) -> None:
    tiers = (FabricTier(4, 2.0), FabricTier(8, 3.0))
    graph = tiered_graph(dimension(group.npus), tiers)
    assert graph.switches == group.npus // 4 + group.npus // 8 + 1
    assert 1 / busiest(graph, group) == pytest.approx(tier_share("all_gather", "ring", group, tiers))


@pytest.mark.usefixtures("leaves")
def test_a_network_of_links_has_its_tiers() -> None:
    """8 nodes, 4 ports: 4 leaves of 2 in one pod of 8. The NPUs have all of their bandwidth, the leaves 2 / 4."""
    dim = dimension(8, 4.0, fabric=Fabric(build=LEAVES, radix=4), latency_s=1e-6)
    graph = network_graph([dim])
    assert (graph.npus, graph.switches, graph.links) == (8, 5, 2 * 8 + 2 * 4)
    assert graph.bandwidth_bytes_per_s[:16].tolist() == [100e9] * 16
    assert graph.bandwidth_bytes_per_s[16:].tolist() == [50e9] * 8
    assert graph.latency_s[16:].tolist() == [0.0] * 8
    assert tiers_of((dim,), 0) == (FabricTier(2, 4.0),)


# ---- builds


@pytest.mark.usefixtures("leaves")
def test_the_oversubscription_of_a_pod_is_that_of_both_tiers() -> None:
    assert tiers_at(LEAVES, Site(256, 8, 8, 64, 4.0, 3.0)) == (FabricTier(32, 4.0), FabricTier(128, 12.0))


@pytest.mark.parametrize("odd", [FabricTier(0, 2.0), FabricTier(4, 0.5), FabricTier(4, float("nan"))])
def test_a_build_with_odd_tiers_is_one_sentence(monkeypatch: pytest.MonkeyPatch, odd: FabricTier) -> None:
    len(builds)
    variant = type("Odd", (), {"tiers": staticmethod(lambda _: (odd,))})
    monkeypatch.setitem(builds._variants, "odd", variant)
    with pytest.raises(BackendError, match=r"build 'odd' gave FabricTier.*; a tier has NPUs below it"):
        tiers_at("odd", Site(8, 1, 1, 64, 1.0, 1.0))


def test_phases_say_what_leaves() -> None:
    """8 NPUs, leaves of 2, pairs 4 apart: every NPU sends out of its leaf."""
    (phase,) = crossing_phases("ring", "all_gather", GroupShape(8, 2, 4), 2)
    assert phase == (1.0, 1.0, 1.0)
    (phase,) = crossing_phases("direct", "all_to_all", GroupShape(8, 8, 1), 8)
    assert phase == (1.0, 0.0, 0.0)
