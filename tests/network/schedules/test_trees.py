"""Baselines of trees: times worked out by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cosmic.network.collective_algorithms.double_binary_tree import NO_PARENT, double_tree_parents
from cosmic.network.link_graph import LinkGraph, graph_of

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from collectives import tree_baselines
from collectives.tree_baselines import double_tree_s, multitree_s

RATE = 1e9


def two_way_ring(npus: int) -> LinkGraph:
    return graph_of(npus, [(i, (i + way) % npus, RATE, 0.0) for i in range(npus) for way in (1, npus - 1)])


@pytest.mark.parametrize("members", [2, 3, 4, 7, 8, 13])
def test_a_binary_tree_joins_all_members_and_is_balanced(members: int) -> None:
    for parents in (tree.tolist() for tree in double_tree_parents(members)):
        assert parents.count(NO_PARENT) == 1
        assert max(parents.count(parent) for parent in parents if parent != NO_PARENT) <= 2
        for first in range(members):
            member, above = first, 0
            while parents[member] != NO_PARENT:
                member, above = parents[member], above + 1
            assert above <= (members - 1).bit_length()


@pytest.mark.parametrize("members", [2, 4, 6, 8, 14, 16])
def test_members_have_children_in_one_of_two_trees(members: int) -> None:
    first, second = ({*tree.tolist()} - {NO_PARENT} for tree in double_tree_parents(members))
    assert not first & second
    assert first | second == set(range(members))


def test_two_npus_add_up_and_send_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tree has half of the bytes and one edge, the two in opposite directions: 0.5 s up, 0.5 s down."""
    pair = graph_of(2, [(0, 1, RATE, 0.0), (1, 0, RATE, 0.0)])
    monkeypatch.setattr(tree_baselines, "CHUNKS", (1,))
    assert double_tree_s(pair, RATE, overlapped=False) == pytest.approx(1.0)


def test_chunks_that_go_down_at_once_are_faster_than_those_that_wait() -> None:
    ring = two_way_ring(8)
    apart, overlapped = (double_tree_s(ring, RATE, overlapped=each) for each in (False, True))
    assert apart is not None
    assert overlapped is not None
    assert overlapped < 0.9 * apart


def test_two_trees_share_no_link_on_their_way_up_through_a_full_graph() -> None:
    """Each link carries half of the bytes up, then half of them down: 1 s, and the first of 64 chunks' way."""
    full = graph_of(8, [(i, j, RATE, 0.0) for i in range(8) for j in range(8) if i != j])
    found = double_tree_s(full, RATE, overlapped=False)
    assert found is not None
    assert 1.0 < found < 1.0 + 6 / 64


def test_multitree_reaches_the_bound_of_a_ring_and_of_a_full_graph() -> None:
    """On a ring of 5, each NPU takes in 4 shards over two links: 2 steps of 0.2 s, twice. Fully connected: one."""
    assert multitree_s(two_way_ring(5), RATE) == pytest.approx(0.8)
    full = graph_of(4, [(i, j, RATE, 1e-6) for i in range(4) for j in range(4) if i != j])
    assert multitree_s(full, RATE) == pytest.approx(2 * (0.25 + 1e-6))


def test_a_network_with_switches_has_no_multitree() -> None:
    star = graph_of(2, [(0, 2, RATE, 0.0), (2, 0, RATE, 0.0), (1, 2, RATE, 0.0), (2, 1, RATE, 0.0)], switches=1)
    assert multitree_s(star, RATE) is None
    assert double_tree_s(star, RATE, overlapped=True) is not None
