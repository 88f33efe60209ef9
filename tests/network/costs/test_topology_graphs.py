"""Each topology by hand, and against its graph where that is small enough to walk and to cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from cosmic.accuracy.suites import divide_into_groups
from cosmic.base.numeric import even_factors
from cosmic.design.network_layer import Dimension, Fabric, Parts, topologies
from cosmic.network.network_graphs import network_graph
from cosmic.network.topologies.hybrid_cube_mesh import HybridCubeMesh
from cosmic.network.topologies.hypercube import Hypercube
from tests.batches import check_all

Graph = dict[int, set[int]]


def grid(sides: Iterable[int], offsets: Any, wraps: bool) -> Graph:
    """Return the graph of a grid whose NPUs reach those *offsets* away along each side."""
    sides = tuple(sides)
    places = list(product(*(range(side) for side in reversed(sides))))
    number = {place: index for index, place in enumerate(places)}
    graph: Graph = {index: set() for index in range(len(places))}
    for place, axis in product(places, range(len(sides))):
        side = sides[-1 - axis]
        for offset in offsets(side):
            there = place[axis] + offset
            if wraps or 0 <= there < side:
                neighbour = (*place[:axis], there % side, *place[axis + 1 :])
                graph[number[place]] |= {number[neighbour]} - {number[place]}
    return graph


def graph_of(name: str, npus: int) -> Graph:
    """Return which NPUs have links to which."""
    near, all_others = (lambda side: (-1, 1)), (lambda side: range(1, side))
    match name:
        case "ring":
            return grid([npus], near, wraps=True)
        case "fully_connected":
            return grid([npus], all_others, wraps=True)
        case "hypercube":
            return grid(Hypercube.split(npus), all_others, wraps=True)
        case "hybrid_cube_mesh":
            return grid(HybridCubeMesh.split(npus), all_others, wraps=True)
        case "mesh_2d" | "mesh_3d" | "torus_2d" | "torus_3d":
            sides = even_factors(npus, int(name[-2]))
            return grid(sides, near, wraps=name.startswith("torus"))
        case _:
            raise ValueError(f"the links of {name} are not stated here: do so by hand")


def distances(graph: Graph, start: int) -> dict[int, int]:
    """Return the links from *start* to everyone."""
    found, waiting = {start: 0}, deque([start])
    while waiting:
        here = waiting.popleft()
        for there in graph[here] - found.keys():
            found[there] = found[here] + 1
            waiting.append(there)
    return found


DIRECT = sorted(name for name in topologies if not topologies[name].switched)
WALKED = (2, 3, 4, 5, 6, 8, 12, 16, 30, 64)


def test_all_that_are_promised_are_there() -> None:
    grids = {"torus_2d", "torus_3d", "mesh_2d", "mesh_3d", "hypercube", "hybrid_cube_mesh"}
    assert set(topologies) >= {"ring", "fully_connected", "switch", "fat_tree", "dragonfly"} | grids


@check_all("npus", WALKED)
@check_all("name", DIRECT)
def test_links_and_distances_are_those_of_the_graph(name: str, npus: int) -> None:
    shape, graph = topologies[name], graph_of(name, npus)
    ways = [distances(graph, start) for start in graph]
    assert shape.links(npus) == max(map(len, graph.values()))
    assert shape.parts(npus) == Parts(links=sum(map(len, graph.values())))
    assert shape.diameter(npus) == max(max(way.values()) for way in ways)
    assert shape.mean_hops(npus) == pytest.approx(sum(sum(way.values()) for way in ways) / (npus * (npus - 1)))


@check_all("npus", [2, 4, 8, 12, 16])
@check_all("name", DIRECT)
def test_no_way_to_halve_it_cuts_fewer_links(name: str, npus: int) -> None:
    graph = graph_of(name, npus)
    halves = (set(half) | {0} for half in combinations(range(1, npus), npus // 2 - 1))
    least = min(sum(len(graph[npu] - half) for npu in half) for half in halves)
    # A plane across a side of three parts 2 x 2 x 3 NPUs into 4 and 8: fewer links, and no halves.
    assert topologies[name].bisection(npus) == (4 if (name, npus) == ("mesh_3d", 12) else least)


def test_a_ring_carries_every_group_at_the_share_it_states() -> None:
    """Neighbours of all groups send along the ring: no link carries more than all can share equally."""
    for members, npus, step in divide_into_groups((4, 6, 8, 12)):
        load = np.zeros((2, npus))  # messages over each link, one way and the other
        whole = members * step == npus
        for start in (b * members * step + o for b in range(npus // (members * step)) for o in range(step)):
            for hop in range(members if whole else members - 1):
                crossed = [(start + hop * step + link) % npus for link in range(step)]
                load[0, crossed] += 1
                load[1, crossed] += 1
        per_link = 1 / load.max()
        rate = per_link * (2 if whole else 1) / topologies["ring"].links(npus)  # an end of a line sends one way
        assert topologies["ring"].share(members, npus, step) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("name", "group", "share", "hops"),
    [
        ("ring", (2, 2, 1), 1, 1),
        ("ring", (2, 8, 4), 1 / 4, 4),
        ("fully_connected", (2, 8, 4), 1 / 7, 1),
        ("switch", (2, 8, 4), 1, 2),
        ("fat_tree", (64, 4096, 64), 1, 4),
        ("torus_2d", (4, 16, 4), 1 / 2, 1),  # a whole column
        ("torus_2d", (2, 16, 2), 1 / 4, 2),  # both ways round, shared by two
        ("torus_2d", (4, 16, 2), 1 / 2, 2),  # half a row and half a column
        ("torus_2d", (2, 12, 1), 1 / 4, 1),  # does not fit the side of 3, so lies along that of 4
        ("torus_3d", (8, 512, 8), 1 / 3, 1),
        ("torus_3d", (8, 512, 64), 1 / 3, 1),
        ("mesh_2d", (4, 16, 4), 1 / 4, 1),
        ("mesh_2d", (2, 16, 2), 1 / 8, 2),
        ("mesh_2d", (4, 4, 1), 1, 1),
        ("mesh_3d", (27, 27, 1), 1 / 2, 1),
        ("hypercube", (2, 64, 32), 1 / 6, 1),
        ("hypercube", (3, 12, 1), 1 / 2, 1),
        ("hybrid_cube_mesh", (2, 8, 4), 1 / 6, 1),  # two of four pairs of twins have one lane
        ("hybrid_cube_mesh", (4, 4, 1), 4 / 6, 1),  # half of a DGX-1
        ("dragonfly", (2, 72, 36), 1 / 2, 5),
        ("dragonfly", (4, 1056, 1), 1, 2),
    ],
)
def test_groups_by_hand(name: str, group: tuple[int, int, int], share: float, hops: int) -> None:
    assert topologies[name].share(*group) == pytest.approx(share)
    assert topologies[name].hops(*group) == hops


def test_groups_that_straddle_still_have_some_bandwidth() -> None:
    for name in topologies:
        assert 0 < topologies[name].share(np.array([1.5, 5.0]), 16, np.array([1.0, 1.5])).min() <= 1


def test_a_fat_tree_of_one_level_is_a_switch() -> None:
    tree, switch = topologies["fat_tree"], topologies["switch"]
    for npus in (2, 24, 64):
        assert (tree.parts(npus), tree.mean_hops(npus)) == (switch.parts(npus), switch.mean_hops(npus))
    assert tree.parts(65) == Parts(links=4 * 65, switch_ports=3 * 65, nics=65)


def test_a_whole_dragonfly_is_the_one_published() -> None:
    """72 NPUs: 36 routers of 7 ports (2 NPUs, 3 local, 2 global), 9 groups, 54 local and 36 global cables."""
    fly = topologies["dragonfly"]
    assert fly.parts(72) == Parts(links=2 * (72 + 54 + 36), switch_ports=36 * 7, nics=72)
    assert fly.bisection(72) == 4 * 5
    assert fly.mean_hops(72) == pytest.approx((2 * 1 + 3 * 6 + (2 + 1 + 2 * 3 / 4) * 64) / 71)


def test_only_topologies_with_switches_are_built_in_tiers() -> None:
    """16 NPUs and switches of 4 ports: a tree has leaves of 2 NPUs; a ring has no switch, whatever its fabric says."""
    fabric = Fabric(build="rail_optimized", radix=4)
    tree, ring = (
        network_graph([Dimension(topology=name, npus=16, bandwidth_bytes_per_s=1e9, latency_s=0.0, fabric=fabric)])
        for name in ("switch", "ring")
    )
    assert tree.switches > 1
    assert (ring.switches, ring.links) == (0, 32)
