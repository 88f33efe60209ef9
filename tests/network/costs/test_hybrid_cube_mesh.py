"""The hybrid cube mesh against DGX-1: its wiring, the rings that fit into it, and what all-reduces reach there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise, permutations

import numpy as np
import pytest

from cosmic.network.topologies.hybrid_cube_mesh import LANES, WIRING, HybridCubeMesh, usable_lanes
from cosmic.search.mapping.design_completion import load_design

MEASURED_GB_PER_S = {2: 22.6, 3: 45.1, 4: 85.4, 5: 37.1, 6: 45.6, 7: 87.0, 8: 134.5}
"""Bus bandwidth of large all-reduces among the first V100s of a DGX-1 (nccl-tests; vTrain's tables)."""
LANE_GB_PER_S = 25


def closed_ways(members: int) -> Iterator[Counter[tuple[int, int]]]:
    """Yield every directed ring through the first NPUs, as the lanes it takes, one way each."""
    for order in permutations(range(1, members)):
        ring = Counter(pairwise((0, *order, 0)))
        if all(frozenset(pair) in WIRING for pair in ring):
            yield ring


def test_every_npu_has_six_lanes_to_four_others() -> None:
    for npu in range(8):
        ends = [count for pair, count in WIRING.items() if npu in pair]
        assert (len(ends), sum(ends)) == (4, LANES)


def test_the_two_quads_are_wired_alike() -> None:
    quads = [
        {frozenset(npu % 4 for npu in pair): count for pair, count in WIRING.items() if pair <= set(quad)}
        for quad in (range(4), range(4, 8))
    ]
    assert quads[0] == quads[1]


@pytest.mark.parametrize("members", MEASURED_GB_PER_S)
def test_lanes_are_those_that_all_reduces_were_measured_to_use(members: int) -> None:
    """A lane carries 89 to 93 % of its 25 GB/s, whatever the group."""
    reached = MEASURED_GB_PER_S[members] / (usable_lanes(frozenset(range(members))) * LANE_GB_PER_S)
    assert 0.85 < reached < 0.94


@pytest.mark.parametrize("members", [3, 4, 6, 7, 8])
def test_no_more_rings_leave_an_npu_than_it_has_lanes_to_the_others(members: int) -> None:
    inside = [
        sum(count for pair, count in WIRING.items() if npu in pair and max(pair) < members) for npu in range(members)
    ]
    assert usable_lanes(frozenset(range(members))) <= min(inside)


@pytest.mark.parametrize("members", [3, 4, 6])
def test_no_packing_of_one_way_rings_is_better(members: int) -> None:
    """Brute force over rings that need not come in both directions."""
    rings = list(closed_ways(members))

    def packed(first: int, used: Counter[tuple[int, int]]) -> int:
        most = 0
        for place in range(first, len(rings)):
            together = used + rings[place]
            if all(count <= WIRING[frozenset(pair)] for pair, count in together.items()):
                most = max(most, 1 + packed(place, together))
        return most

    assert usable_lanes(frozenset(range(members))) == packed(0, Counter())


def test_no_ring_joins_five_so_that_a_chain_must_do() -> None:
    assert not list(closed_ways(5))
    assert usable_lanes(frozenset(range(5))) == 2 * 4 / 5


def test_npus_that_no_chain_joins_have_nothing_of_their_own() -> None:
    assert usable_lanes(frozenset({0, 5})) == usable_lanes(frozenset({3, 4, 5})) == 0
    assert HybridCubeMesh.share(2, 8, 5) == pytest.approx(1 / 5 / LANES)  # passed on by those between


def test_the_group_placed_worst_sets_the_share() -> None:
    pairs = [WIRING[frozenset(pair)] for pair in ((0, 1), (2, 3), (4, 5), (6, 7))]
    assert sorted(pairs) == [1, 1, 2, 2]
    assert HybridCubeMesh.share(2, 8, 1) == pytest.approx(1 / LANES)


def test_fewer_than_eight_have_what_the_first_of_eight_have() -> None:
    for npus in range(2, 9):
        assert HybridCubeMesh.share(npus, npus, 1) == HybridCubeMesh.share(npus, 8, 1)


def test_more_than_eight_are_quads_joined_as_a_hypercube() -> None:
    assert HybridCubeMesh.split(32) == (4, 2, 2, 2)
    assert HybridCubeMesh.share(32, 32, 1) == 1
    assert HybridCubeMesh.share(4, 32, 1) == pytest.approx(1 / 2)  # three of six links


def test_shares_of_several_groups_come_as_they_are_asked_for() -> None:
    shares = HybridCubeMesh.share(np.array([[2.0], [4.0]]), np.array([8, 16]), 1)
    assert shares == pytest.approx(np.array([[1 / 6, 1 / 5], [4 / 6, 3 / 5]]))


def test_a_dgx_1_is_joined_by_it() -> None:
    inside, between = load_design("gpt3-13b@dgx-1v:64").network.dims
    assert (inside.topology, inside.npus, inside.bandwidth_bytes_per_s) == ("hybrid_cube_mesh", 8, 150e9)
    assert between.bandwidth_bytes_per_s * 8 == pytest.approx(4 * 100e9 / 8)  # four ports of 100 Gb/s for eight
