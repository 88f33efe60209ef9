"""Paths over links, by hand and over random graphs: shortest ones, and quickest ones that share links out."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from cosmic.network.link_graph import graph_of
from cosmic.network.link_paths import Routes, hop_distances, link_loads


def test_equal_paths_share_a_message_by_their_bandwidth() -> None:
    # 0 → {1, 2} → 3: the links into 3 have 3 and 1 bytes per second.
    graph = graph_of(4, [(0, 1, 9.0, 1.0), (0, 2, 9.0, 5.0), (1, 3, 3.0, 1.0), (2, 3, 1.0, 1.0)])
    carried, latency = link_loads(graph, np.array([0]), np.array([3]), np.array([8.0]))
    assert carried.tolist() == [6.0, 2.0, 6.0, 2.0]
    assert latency == 6.0  # the slower of both


@pytest.mark.parametrize("seed", range(5))
def test_every_byte_crosses_as_many_links_as_its_ends_are_apart(seed: int) -> None:
    rng = np.random.default_rng(seed)
    npus = int(rng.integers(3, 12))
    ring = [(npu, (npu + 1) % npus, 1.0, 0.0) for npu in range(npus)]
    more = [(int(one), int(other), 2.0, 0.0) for one, other in rng.integers(0, npus, (10, 2)) if one != other]
    graph = graph_of(npus, [*ring, *more])
    sources, targets = rng.integers(0, npus, (2, 20))
    sizes = rng.random(20)
    apart = hop_distances(graph, np.arange(npus))
    carried, _ = link_loads(graph, sources, targets, sizes)
    assert carried.sum() == pytest.approx((apart[sources, targets] * sizes).sum())
    out = np.bincount(graph.sources, carried, npus) - np.bincount(graph.targets, carried, npus)
    moved = sources != targets
    wanted = np.bincount(sources[moved], sizes[moved], npus) - np.bincount(targets[moved], sizes[moved], npus)
    assert out == pytest.approx(wanted, abs=1e-9)


def busiest(power: int, *, balanced: bool) -> int:
    """Return how many of the paths between all pairs of a hypercube are on the busiest link."""
    npus = 2**power
    cube = graph_of(npus, [(i, i ^ (1 << bit), 1e9, 1e-6) for i in range(npus) for bit in range(power)])
    routes = Routes(cube, balanced=balanced)
    used = Counter(link for pair in permutations(range(npus), 2) for link in routes.path(*pair))
    assert sum(used.values()) == npus * power * npus // 2
    return max(used.values())


@pytest.mark.parametrize(("power", "most"), [(2, 2), (3, 5), (4, 11)])
def test_paths_of_equal_length_are_shared_out_over_links(power: int, most: int) -> None:
    """Each link is on 2, 4 or 8 paths on average; the first that are found crowd at NPUs of low numbers."""
    assert busiest(power, balanced=True) <= most
    assert busiest(power, balanced=True) <= busiest(power, balanced=False)


def test_a_quick_way_is_not_given_up_for_balance() -> None:
    """0 to 3 over 1 takes 2 s, over 2 it takes 3 s, whatever else is on the first."""
    links = [(0, 1, 1.0, 0.0), (1, 3, 1.0, 0.0), (0, 2, 1.0, 0.0), (2, 3, 0.5, 0.0), (3, 0, 1.0, 0.0)]
    assert Routes(graph_of(4, links), 1.0, balanced=True).path(0, 3) == (0, 1)


def test_equally_quick_paths_are_all_found_up_to_as_many_as_are_asked_for() -> None:
    ends = [(0, 2), (2, 1), (0, 3), (3, 1), (0, 4), (4, 1), (0, 2)]  # three switches; two links to the first
    graph = graph_of(2, [(a, b, 1e9, 0.0) for a, b in ends] + [(0, 1, 1e8, 0.0)], 3)
    routes = Routes(graph, balanced=True)
    assert set(routes.paths(0, 1, 8)) == {(0, 1), (2, 3), (4, 5)}
    assert len(routes.paths(0, 1, 2)) == 2
    assert Routes(graph).paths(0, 1, 8) == (Routes(graph).path(0, 1),)
