"""Builds of networks: parts counted by hand, and what holds of any size."""

from __future__ import annotations

import random

import pytest

from cosmic.cluster.builds.tree_builds import down_ports, up_ports
from cosmic.design.network_layer import Bill, FabricTier, Site, builds

TREES = ("fat_tree", "rail_optimized", "rail_only")
SWITCHED = (*TREES, "dragonfly")


def site(npus: int, inside: int = 8, radix: int = 64, leaf: float = 1.0, core: float = 1.0, groups: int = 1) -> Site:
    """Return a dimension of *npus* nodes of *inside* NICs, *groups* times side by side."""
    return Site(npus, inside, inside * groups, radix, leaf, core)


def usd(bill: Bill, switch: float = 40_000, optic: float = 500, cable: float = 240) -> float:
    return bill.switches * switch + bill.optics * optic + bill.cables * cable


# ---- by hand


@pytest.mark.parametrize(
    ("build", "at", "bill"),
    [
        # 8 nodes of 8 NICs: 64 ports, one switch; a cable and two optics for each NIC.
        ("fat_tree", site(8), Bill(1, 128, 64)),
        # One node more: leaves of 32 / 8 = 4 nodes, 3 of them, 32 links up each: 96 on 2 spines; 72 + 96 cables.
        ("fat_tree", site(9), Bill(5, 336, 168)),
        # 256 nodes, the most of two tiers: 64 leaves, 64 · 32 / 64 = 32 spines; 2,048 + 2,048 cables.
        ("fat_tree", site(256), Bill(96, 8192, 4096)),
        # 260 nodes: 65 leaves, 2,080 links up on 65 switches of 32 ports down; as many up on 33 cores of 64.
        ("fat_tree", site(260), Bill(65 + 65 + 33, 2 * 3 * 2080, 3 * 2080)),
        # 32,768 GPUs at 1:1 in three tiers: 1,024 leaves, 1,024 above, 512 cores: five ports of a switch for each GPU.
        ("fat_tree", site(4096), Bill(2560, 6 * 32768, 3 * 32768)),
        # 3:1: leaves of 48 ports down and 16 up hold 6 nodes: 43 of them, 688 links up on 11 spines.
        ("fat_tree", site(256, leaf=3.0), Bill(43 + 11, 2 * (2048 + 688), 2048 + 688)),
        # 4:1: at most 51 ports down, so 6 nodes, 48 ports, and 12 up: 43 leaves, 516 links on 9 spines.
        ("fat_tree", site(256, leaf=4.0), Bill(43 + 9, 2 * (2048 + 516), 2048 + 516)),
        # Racks of 72 NICs: 3 leaves of 24 each; 24 leaves, 24 links up: 576 on 9 spines.
        ("fat_tree", site(8, 72), Bill(24 + 9, 4 * 576, 2 * 576)),
        # Two groups outside have a tree each.
        ("fat_tree", site(9, groups=2), Bill(10, 672, 336)),
        # Four ports reach 4³ / 4 = 16 NICs in three tiers, 5 · 4² / 4 = 20 switches; 17 need a fourth: 9 + 9 + 9 + 5.
        ("fat_tree", site(16, 1, 4), Bill(20, 96, 48)),
        ("fat_tree", site(17, 1, 4), Bill(32, 2 * (17 + 3 * 18), 17 + 3 * 18)),
        # DGX SuperPOD of 127 nodes: 8 rails of 4 leaves, 1,024 links up on 16 spines.
        ("rail_optimized", site(127), Bill(48, 2 * (1016 + 1024), 1016 + 1024)),
        # 16 nodes: a leaf of 32 ports down holds two rails: 4 leaves, 128 links up on 2 spines.
        ("rail_optimized", site(16), Bill(6, 512, 256)),
        ("rail_optimized", site(8), Bill(1, 128, 64)),
        # 64 nodes: a switch for each of 8 rails. 16 nodes: four rails share a switch.
        ("rail_only", site(64), Bill(8, 1024, 512)),
        ("rail_only", site(16), Bill(2, 256, 128)),
        # 65 nodes: each rail has 3 leaves, 96 links up on 2 spines; 65 + 96 cables.
        ("rail_only", site(65), Bill(8 * 5, 8 * 322, 8 * 161)),
        # One group of 33 switches of 32 NICs: 33 · 32 / 2 = 528 copper cables between them.
        ("dragonfly", site(132), Bill(33, 2112, 1056 + 528)),
        # 2,376 NICs: 4 groups of 33 switches; 18 NICs, 14 global and 32 local links each.
        ("dragonfly", site(297), Bill(132, 2 * (2376 + 924), 2376 + 924 + 2112)),
        ("dragonfly", site(8), Bill(1, 128, 64)),
        ("dragonfly", site(132, groups=2), Bill(66, 4224, 3168)),
        ("dragonfly", site(8, groups=3), Bill(3, 384, 192)),
        # 16 x 16 chips: 16 rings of 16 in each dimension. Pairs have one cable.
        ("torus", Site(16, 16, 16, 2, 1.0, 1.0), Bill(0, 0, 256)),
        ("torus", Site(2, 1, 8, 2, 1.0, 1.0), Bill(0, 0, 8)),
        # 4,096 chips: 256 rings of 16 pass 4 cubes: 8 ends each; 12 cables of copper and 8 of fibre.
        ("optical_torus", Site(16, 16, 256, 2, 1.0, 1.0), Bill(0, 2048, 5120, 2048)),
        # A cube by itself closes its rings through the circuit switches; less than one has no optics.
        ("optical_torus", Site(4, 1, 16, 2, 1.0, 1.0), Bill(0, 32, 16 * 5, 32)),
        ("optical_torus", Site(2, 1, 4, 2, 1.0, 1.0), Bill(0, 0, 4)),
        ("optical_torus", Site(3, 1, 4, 2, 1.0, 1.0), Bill(0, 0, 12)),
        # Three ports, 4 NICs: 2 groups of 2 switches, each with a NIC, a local and a global link.
        ("dragonfly", site(4, 1, 3), Bill(4, 2 * (4 + 2), 4 + 2 + 2)),
        ("included", site(64), Bill()),
        ("by_bandwidth", site(64), Bill()),
    ],
)
def test_parts_are_those_counted_by_hand(build: str, at: Site, bill: Bill) -> None:
    assert builds[build].bill(at) == bill


@pytest.mark.parametrize(
    ("build", "at", "tiers"),
    [
        ("fat_tree", site(8), ()),
        ("fat_tree", site(9), (FabricTier(4, 1.0),)),
        ("fat_tree", site(256, leaf=4.0), (FabricTier(6, 4.0),)),
        # 64 leaves still are on spines of 64 ports.
        ("fat_tree", site(256, core=2.0), (FabricTier(4, 1.0),)),
        # Three tiers: pods of 32 leaves of 4 nodes; at 7:1 of 56 leaves.
        ("fat_tree", site(260), (FabricTier(4, 1.0), FabricTier(128, 1.0))),
        ("fat_tree", site(3072, core=7.0), (FabricTier(4, 1.0), FabricTier(224, 7.0))),
        ("fat_tree", site(8, 72), (FabricTier(1, 1.0),)),
        # 3 leaves a rack, so 10 racks to a pod of 32 leaves.
        ("fat_tree", site(40, 72), (FabricTier(1, 1.0), FabricTier(10, 1.0))),
        ("rail_optimized", site(8), ()),
        ("rail_optimized", site(127), (FabricTier(32, 1.0),)),
        ("rail_optimized", site(16), (FabricTier(16, 1.0),)),
        # A pod of 32 leaves has 4 for each of 8 rails: 4 · 32 nodes.
        ("rail_optimized", site(512, core=1.0), (FabricTier(32, 1.0), FabricTier(128, 1.0))),
        ("rail_only", site(64), ()),
        ("rail_only", site(65, leaf=3.0), (FabricTier(48, 3.0),)),
        ("dragonfly", site(132), (FabricTier(4, 1.0),)),
        # 4 groups of 33 switches of 18 NICs: 594 of 2,376, so 74 of 297 nodes.
        ("dragonfly", site(297), (FabricTier(2, 1.0), FabricTier(74, 1.0))),
        ("dragonfly", site(8), ()),
        # One node more than a group reaches: 2 groups, 21 NICs a switch; 26 of 51 switches have 546 NICs, 68 nodes.
        ("dragonfly", site(133), (FabricTier(2, 1.0), FabricTier(68, 1.0))),
        # Racks of 72 NICs: 3 groups, 19 NICs a switch; 26 of 76 switches have 494 NICs, 6 racks.
        ("dragonfly", site(20, 72), (FabricTier(1, 1.0), FabricTier(6, 1.0))),
        # Four ports: 3 switches of a group have 3 global links, so 4 groups are joined and 5 not. 24 switches in 5.
        ("dragonfly", site(24, 1, 4), (FabricTier(1, 1.0), FabricTier(5, 1.0))),
        # Eight ports: 2 NICs, 4 local and 2 global links; 10 of a group, so that 12 are too many. 75 switches in 12.
        ("dragonfly", site(150, 1, 8), (FabricTier(2, 1.0), FabricTier(14, 1.0))),
        # 64 ports: 16, 32 and 16; 528 of a group. 18,750 switches in 530 groups are 36 each.
        ("dragonfly", site(300_000, 1), (FabricTier(16, 1.0), FabricTier(576, 1.0))),
        ("torus", site(16), ()),
        ("optical_torus", site(16), ()),
        ("included", site(16), ()),
    ],
)
def test_tiers_say_how_many_npus_of_an_instance_are_below(build: str, at: Site, tiers: tuple[FabricTier, ...]) -> None:
    assert builds[build].tiers(at) == tiers


def test_a_tpu_v4_pod_has_48_circuit_switches_of_128_ports() -> None:
    ports = sum(builds["optical_torus"].bill(Site(16, 16**place, 256, 2, 1.0, 1.0)).circuit_ports for place in range(3))
    assert ports == 48 * 128


@pytest.mark.parametrize(("radix", "share", "down"), [
    (64, 1, 32), (64, 3, 48), (64, 4, 51), (64, 7, 56), (40, 1, 20),
    (48, 1.4, 28), (72, 3.8, 57),  # 28 / 20 and 57 / 15: whole ports, also where quotients round down
])  # fmt: skip
def test_down_ports_are_the_most_that_the_oversubscription_allows(radix: int, share: float, down: int) -> None:
    assert down_ports(radix, share) == down
    assert down / (radix - down) <= share < (down + 1) / (radix - down - 1)


def test_links_up_are_the_fewest_that_the_oversubscription_allows() -> None:
    for down in range(1, 60):
        for share in (1.0, 1.5, 2.0, 3.0, 7.0):
            up = up_ports(down, share)
            assert down / up <= share
            assert up == 1 or down / (up - 1) > share


# ---- what is published


@pytest.mark.parametrize(("build", "gpus", "switches"), [
    ("rail_only", 512, 8), ("rail_optimized", 1024, 48), ("rail_optimized", 2048, 96), ("rail_optimized", 32768, 2560),
    ("rail_optimized", 65536, 5120), ("fat_tree", 1024, 48), ("fat_tree", 65536, 5120),
])  # fmt: skip
def test_switches_are_as_many_as_a_published_cluster_sheet_has(build: str, gpus: int, switches: int) -> None:
    assert builds[build].bill(site(gpus // 8)).switches == switches


@pytest.mark.parametrize(("nodes", "inside"), [(64, 8), (512, 8), (64, 72), (16, 256), (64, 256)])
def test_rails_alone_save_what_is_published_where_they_need_a_tier_less(nodes: int, inside: int) -> None:
    """Published: 38 to 77 % of the network against a full fat tree (arXiv 2307.12169), whose domains have 256 GPUs."""
    alone, whole = (usd(builds[build].bill(site(nodes, inside))) for build in ("rail_only", "fat_tree"))
    assert 0.33 < 1 - alone / whole < 0.77


def test_rails_alone_save_nothing_where_they_need_as_many_tiers() -> None:
    """128 nodes: a rail of 128 NICs has 4 leaves and 2 spines, eight of them what a tree of 1,024 NICs has."""
    alone, whole = (builds[build].bill(site(128)) for build in ("rail_only", "fat_tree"))
    assert alone == whole == Bill(48, 4096, 2048)


def test_oversubscription_saves_exactly_its_switches_and_links() -> None:
    full, thin = (builds["fat_tree"].bill(site(256, leaf=leaf)) for leaf in (1.0, 4.0))
    assert (full.switches - thin.switches, full.cables - thin.cables) == (96 - 52, 2048 - 516)
    assert full.optics - thin.optics == 2 * (2048 - 516)
    assert usd(full) - usd(thin) == 44 * 40_000 + 1532 * (2 * 500 + 240)


@pytest.mark.parametrize("radix", [64, 128, 144])
@pytest.mark.parametrize("inside", [1, 4, 8, 72])
def test_a_dragonfly_costs_no_more_than_a_fat_tree(radix: int, inside: int) -> None:
    for nodes in (*range(2, 400, 7), 1000, 1881 // inside, 5000, 12_500):
        at = site(max(2, nodes), inside, radix)
        assert usd(builds["dragonfly"].bill(at)) <= usd(builds["fat_tree"].bill(at)), at


# ---- of any size


def random_sites(count: int) -> list[Site]:
    draw = random.Random(7)
    return [
        site(
            draw.choice((2, 3, draw.randint(4, 200), draw.randint(200, 20_000))),
            draw.choice((1, 2, 4, 8, 16, 72)),
            draw.choice((2, 3, 4, 8, 32, 40, 64, 128, 144)),
            draw.choice((1.0, 1.5, 2.0, 3.0, 7.0, 100.0)),
            draw.choice((1.0, 2.0, 7.0)),
            draw.choice((1, 2, 5)),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("build", sorted(builds))
def test_counts_are_whole_and_tiers_grow_outwards(build: str) -> None:
    for at in random_sites(150):
        found = builds[build].bill(at)
        assert all(isinstance(count, int) and count >= 0 for count in found), at
        tiers = builds[build].tiers(at)
        assert all(1 <= tier.npus <= at.npus and tier.oversubscription >= 1 for tier in tiers), at
        assert [tier.npus for tier in tiers] == sorted(tier.npus for tier in tiers), at


@pytest.mark.parametrize("build", SWITCHED)
def test_every_cable_has_its_ports(build: str) -> None:
    """A cable to a NIC takes one port, any other two: all of them fit on the switches, and every NIC has one."""
    for at in random_sites(200):
        found, nics = builds[build].bill(at), at.npus * at.instances
        assert found.cables >= nics, at
        assert 2 * found.cables - nics <= found.switches * at.radix, at
        assert found.optics <= 2 * found.cables, at
        if build in TREES:
            assert found.optics == 2 * found.cables, at


@pytest.mark.parametrize("build", [*SWITCHED, "torus", "optical_torus"])
@pytest.mark.parametrize("radix", [40, 64, 144])
def test_more_nodes_never_need_fewer_parts(build: str, radix: int) -> None:
    before = Bill()
    for nodes in (*range(2, 300), *range(300, 6000, 97)):
        found = builds[build].bill(site(nodes, radix=radix))
        assert all(now >= then for now, then in zip(found, before, strict=True)), nodes
        before = found


@pytest.mark.parametrize("build", TREES)
def test_thinner_networks_have_no_more_parts(build: str) -> None:
    for nodes in (9, 33, 127, 300, 4096):
        bills = [builds[build].bill(site(nodes, leaf=leaf)) for leaf in (1.0, 2.0, 3.0, 7.0)]
        assert [usd(bill) for bill in bills] == sorted((usd(bill) for bill in bills), reverse=True)
        cores = [builds[build].bill(site(nodes, core=core)) for core in (1.0, 3.0, 7.0)]
        assert [usd(bill) for bill in cores] == sorted((usd(bill) for bill in cores), reverse=True)
