"""Numbers of switched topologies, and those of grids that their graphs leave open, counted by hand."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from cosmic.design.network_layer import Parts, topologies
from cosmic.network.collective_rounds import usable_share
from cosmic.network.topologies.dragonfly import Dragonfly
from cosmic.network.topologies.fat_tree import FatTree
from cosmic.network.topologies.grid_product import Line, Product
from cosmic.network.topologies.hybrid_cube_mesh import LANES, WIRING, HybridCubeMesh
from cosmic.network.topologies.hypercube import Hypercube
from cosmic.network.topologies.torus_2d import Torus2D

near = partial(pytest.approx, rel=1e-9, abs=0.0)


@pytest.mark.parametrize(
    ("name", "npus", "links", "diameter", "mean_hops", "bisection"),
    [
        ("switch", 8, 1, 2, 2, 4),
        ("switch", 7, 1, 2, 2, 3),
        ("fat_tree", 64, 1, 2, 2, 32),
        # 65 NPUs: 32 below each leaf; 2 links to 31 others, 4 to the 33 elsewhere.
        ("fat_tree", 65, 1, 4, (2 * 31 + 4 * 33) / 64, 32),
        ("fat_tree", 2049, 1, 6, (2 * 31 + 4 * (1024 - 32) + 6 * (2049 - 1024)) / 2048, 1024),
        ("dragonfly", 2, 1, 2, 2, 1),
        ("dragonfly", 3, 1, 3, (2 * 1 + 3 * 1) / 2, 1),
        ("dragonfly", 8, 1, 3, (2 * 1 + 3 * 6) / 7, 4),
        ("dragonfly", 9, 1, 5, (2 * 1 + 3 * 6 + 4.5 * 1) / 8, 4),
        # 3 groups of 8: two of them have 4 of 8 global links to each other.
        ("dragonfly", 24, 1, 5, (2 * 1 + 3 * 6 + 4.5 * 16) / 23, 1 * 2 * (8 // 2)),
        # h = 3: groups of 6 routers with 18 NPUs
        ("dragonfly", 100, 1, 5, (2 * 2 + 3 * 15 + (5 - 1 / 3) * 82) / 99, 3 * 3 * (18 // 5)),
        ("ring", 5, 2, 2, 1.5, 2),
        ("ring", 2, 1, 1, 1, 1),
        ("fully_connected", 5, 4, 1, 1, 6),
        ("torus_3d", 64, 6, 6, 3 * 64 / 63, 32),  # each side of 4: 4/3 x 3/4 = 1 link on average
        ("mesh_2d", 12, 4, 5, 12 / 11 * (4 / 3 * 2 / 3 + 5 / 3 * 3 / 4), 3),  # 3 x 4
    ],
)
def test_links_distances_and_cuts(
    name: str, npus: int, links: int, diameter: int, mean_hops: float, bisection: int
) -> None:
    shape = topologies[name]
    assert (int(shape.links(npus)), int(shape.diameter(npus)), int(shape.bisection(npus))) == (
        links,
        diameter,
        bisection,
    )
    assert float(shape.mean_hops(npus)) == near(mean_hops)


@pytest.mark.parametrize("name", sorted(topologies))
def test_an_npu_alone_has_no_distances(name: str) -> None:
    shape = topologies[name]
    assert float(shape.share(1, 8, 1)) == 1
    assert int(shape.hops(1, 8, 1)) >= 1


@pytest.mark.parametrize(
    ("name", "npus", "parts"),
    [
        ("switch", 8, (16, 8, 8)),
        ("fat_tree", 64, (2 * 64, 64, 64)),
        ("fat_tree", 65, (4 * 65, 3 * 65, 65)),
        ("fat_tree", 2049, (6 * 2049, 5 * 2049, 2049)),
        ("dragonfly", 2, (4, 2, 2)),  # one router
        ("dragonfly", 4, (8 + 2, 4 + 2, 4)),  # two routers, a link each way
        ("dragonfly", 8, (16 + 12, 8 + 12, 8)),  # four routers of one group: 3 ports each to the others
        ("dragonfly", 9, (18 + 25, 9 + 25, 9)),  # five routers: 3 local and 2 global ports
        ("ring", 8, (16, 0, 0)),
        ("ring", 2, (2, 0, 0)),
        ("fully_connected", 8, (56, 0, 0)),
        ("torus_2d", 16, (64, 0, 0)),
        ("mesh_2d", 12, (2 * (4 * 2 + 3 * 3), 0, 0)),  # 4 lines of 3 and 3 lines of 4
        ("hypercube", 8, (24, 0, 0)),
    ],
)
def test_links_ports_and_nics(name: str, npus: int, parts: tuple[int, int, int]) -> None:
    links, ports, nics = parts
    assert topologies[name].parts(npus) == Parts(links=links, switch_ports=ports, nics=nics)


@pytest.mark.parametrize(
    ("name", "group", "share", "hops"),
    [
        ("switch", (4, 8, 2), 1, 2),
        ("fat_tree", (2, 4096, 31), 1, 2),
        ("fat_tree", (2, 4096, 32), 1, 4),
        ("fat_tree", (2, 4096, 1023), 1, 4),
        ("fat_tree", (2, 4096, 1024), 1, 6),
        ("fat_tree", (2, 64, 32), 1, 2),  # one switch has them all
        ("dragonfly", (2, 72, 1), 1, 2),
        ("dragonfly", (2, 72, 2), 1 / 2, 3),
        ("dragonfly", (2, 72, 7), 1 / 2, 3),
        ("dragonfly", (2, 72, 8), 1 / 2, 5),
        ("dragonfly", (2, 73, 2), 1, 2),  # three NPUs a router
        ("ring", (8, 8, 1), 1, 1),
        ("ring", (4, 8, 1), 1 / 2, 1),
        ("ring", (4, 8, 2), 1 / 2, 2),
        ("ring", (2, 8, 2), 1 / 4, 2),
        ("ring", (2, 2, 1), 1, 1),
        ("fully_connected", (4, 8, 2), 3 / 7, 1),
        ("torus_2d", (8, 16, 1), (2 + 1) / 4, 1),  # a whole row and half a column
        ("torus_2d", (3, 16, 1), 1 / 4, 1),  # no box: a link
        ("torus_2d", (3, 16, 2), 1 / 8, 1),  # shared by two
        ("hypercube", (4, 16, 2), 2 / 4, 1),
        ("mesh_3d", (4, 64, 4), 1 / 6, 1),
    ],
)
def test_groups(name: str, group: tuple[int, int, int], share: float, hops: int) -> None:
    assert float(topologies[name].share(*group)) == near(share)
    assert int(topologies[name].hops(*group)) == hops


def test_levels_and_routers() -> None:
    assert [int(FatTree.levels(npus)) for npus in (64, 65, 2048, 2049, 65536, 65537, 2**21, 2**21 + 1)] == [
        *(1, 2, 2, 3, 3, 4, 4, 5)
    ]
    assert [int(FatTree.levels(npus)) for npus in (2**26, 2**26 + 1, 2**31, 2**31 + 1)] == [5, 6, 6, 7]
    assert [int(Dragonfly.per_router(npus)) for npus in (2, 72, 73, 342, 343, 2**32)] == [2, 2, 3, 3, 4, 182]
    assert [int(FatTree.hops(2, 2**32, 32**level)) for level in range(7)] == [2, 4, 6, 8, 10, 12, 14]
    assert float(FatTree.mean_hops(2**32)) == near(2 * sum(2**32 - 32**level for level in range(7)) / (2**32 - 1))


def test_a_line_is_a_ring_without_a_link() -> None:
    assert (int(Line.links(5)), int(Line.links(2)), Line.diameter(5), int(Line.bisection(5))) == (2, 1, 4, 1)
    assert Line.mean_hops(3) == near((1 + 1 + 2) / 3)
    assert Line.parts(5) == Parts(links=8)
    assert [float(Line.share(*each)) for each in ((8, 8, 1), (4, 8, 2), (2, 2, 1), (1, 8, 1))] == [0.5, 0.25, 1, 1]
    assert Line.hops(4, 8, 2) == 2


def test_sides_and_boxes_of_grids() -> None:
    assert [int(side) for side in Torus2D.sides(12)] == [3, 4]
    assert [np.asarray(side).tolist() for side in Torus2D.sides(np.array([12, 16]))] == [[3, 4], [4, 4]]
    boxes = [tuple(int(each) for each in box) for box in Torus2D.boxes(4, 16, 2)]
    assert boxes == [(2, 4, 2), (2, 4, 1)]  # every second of a row, two rows side by side
    assert [tuple(int(each) for each in box) for box in Torus2D.boxes(2, 16, 8)] == [(1, 4, 4), (2, 4, 2)]
    assert isinstance(HybridCubeMesh(), Product)


@pytest.mark.parametrize(
    ("members", "npus", "step", "lanes"),
    [
        (2, 8, 1, 1.0),  # the pair 0-1 has one lane
        (2, 8, 2, 1.0),  # 0-2
        (4, 8, 1, 4.0),  # two rings through a quad
        (8, 8, 1, 6.0),
        (3, 8, 1, 2.0),
        (5, 8, 1, 2 * 4 / 5),  # one chain
        (4, 8, 2, 2.0),
        (1, 8, 1, 6.0),
    ],
)
def test_lanes_of_a_dgx_1(members: int, npus: int, step: int, lanes: float) -> None:
    assert 6 * float(HybridCubeMesh.share(members, npus, step)) == near(lanes)


def test_more_than_eight_are_a_grid_of_quads() -> None:
    assert [int(side) for side in HybridCubeMesh.sides(16)] == [4, 2, 2]
    assert float(HybridCubeMesh.share(4, 16, 1)) == near(3 / 5)
    assert float(HybridCubeMesh.share(16, 16, 1)) == 1
    both = HybridCubeMesh.share(np.array([4.0, 4.0]), np.array([8.0, 16.0]), np.array([1.0, 1.0]))
    assert np.asarray(both).tolist() == near([4 / 6, 3 / 5])


def test_the_wiring_of_a_dgx_1() -> None:
    """Each quad has three double and three single links; two pairs of twins have two lanes, two have one."""
    lanes = {tuple(sorted(pair)): count for pair, count in WIRING.items()}
    quad = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 2}
    twins = {(0, 4): 2, (1, 5): 2, (2, 6): 1, (3, 7): 1}
    assert lanes == quad | twins | {(a + 4, b + 4): count for (a, b), count in quad.items()}
    assert {sum(count for pair, count in lanes.items() if npu in pair) for npu in range(8)} == {LANES}


def test_splits_of_small_and_odd_grids() -> None:
    assert [HybridCubeMesh.split(npus) for npus in (1, 2, 4, 8, 12)] == [(1,), (2,), (4, 1), (4, 2), (2, 2, 3)]
    assert [Hypercube.split(npus) for npus in (1, 2, 12, 30)] == [(1,), (2,), (2, 2, 3), (2, 3, 5)]


def test_only_switches_carry_any_traffic_at_full_rate() -> None:
    """Between NPUs that are wired to each other, an algorithm uses the links that lead to its peers, and no others."""
    switched = {name for name in topologies if topologies[name].switched}
    assert switched == {"dragonfly", "fat_tree", "switch"}


@pytest.mark.parametrize(
    ("topology", "npus", "share"),
    [
        ("switch", 8, 1.0),
        ("fat_tree", 8, 1.0),
        ("dragonfly", 8, 1.0),
        ("fully_connected", 8, 2 / 7),  # a ring uses two of seven links
        ("ring", 8, 1.0),  # both of two
        ("hypercube", 8, 2 / 3),  # two of three
        ("torus_2d", 16, 2 / 4),
        ("torus_3d", 64, 2 / 6),
    ],
)
def test_a_ring_uses_two_links_of_an_npu(topology: str, npus: int, share: float) -> None:
    assert usable_share(topology, "ring", npus, npus, 1) == near(share)
