"""What tiers of switches, libraries and flat all-to-alls add to a collective's messages, worked out by hand.

A fat tree of 64 NPUs below switches of 8 ports: leaves of 4 NPUs and pods of 16. A link takes 1 second and no byte
does, so that seconds are links. In a ring of all, 1 of 4 messages leaves its leaf and 1 of 16 its pod: 2 + 2 (1/4 +
1/16) links on average.
"""

from __future__ import annotations

import numpy as np
import pytest

from cosmic.design.network_layer import Transport
from cosmic.network.collective_costs import (
    NetworkDimension,
    Subgroup,
    broadcast_seconds,
    collective_seconds,
    collective_terms,
    flat_seconds,
    send_seconds,
    spine_shares,
    subgroups,
    synthesized_terms,
)
from cosmic.network.link_costs import link_terms
from cosmic.network.link_graph import graph_of
from cosmic.network.link_paths import link_loads
from cosmic.network.mesh_spans import Span
from cosmic.network.switch_tiers import GroupShape, Tiers, crossing_phases, ports_at
from cosmic.network.transport_protocols import IDEAL

TREE = Tiers("fat_tree", 1, 1, 8, 1.0, 1.0)
IN_A_RING = 2 + 2 * (1 / 4 + 1 / 16)


def tree(algorithm: str) -> list[Subgroup]:
    return subgroups([NetworkDimension("fat_tree", 64, 1.0, 1.0, algorithm, IDEAL, TREE)], [Span(64.0, 1.0)])


def test_messages_of_a_ring_cross_tiers_at_the_ends_of_leaves_and_pods() -> None:
    assert collective_seconds(tree("ring"), "all_gather", 0.0, 1, "blueconnect") == pytest.approx(63 * IN_A_RING)
    assert send_seconds(tree("ring"), 0.0) == pytest.approx(IN_A_RING)


def test_of_messages_that_go_to_all_at_once_some_cross_every_tier() -> None:
    assert collective_seconds(tree("direct"), "all_to_all", 0.0, 1, "blueconnect") == 6
    assert flat_seconds(tree("direct"), 0.0) == 6


def test_a_library_starts_messages_of_a_flat_all_to_all_one_after_another() -> None:
    """To 4 members in the node, then to 4 in each of 8 nodes: 1 + log2 of as many starts of 2 links."""
    dims = [NetworkDimension("switch", size, 1.0, 1.0, "auto") for size in (4, 8)]
    spans = [Span(4.0, 1.0), Span(8.0, 1.0)]
    assert flat_seconds(subgroups(dims[:1], spans[:1]), 0.0) == 2 * (1 + 2)
    assert flat_seconds(subgroups(dims, spans), 0.0) == 2 * (1 + 5)


def test_an_all_to_all_of_a_library_is_measured_as_it_is() -> None:
    """On a ring of 8, messages that go 2 links on average take twice as long if counted; a library's are measured."""
    assert collective_terms("all_to_all", "ring", "direct", 8, 8, 1) == (1.0, 2 * 7 / 8)
    assert collective_terms("all_to_all", "ring", "double_binary_tree", 8, 8, 1) == (1.0, 2 * 7 / 8)
    assert collective_terms("all_to_all", "ring", "auto", 8, 8, 1) == (1 + 3, 7 / 8)


@pytest.mark.parametrize(
    ("topology", "build", "straight"),
    [
        ("switch", "rail_optimized", True),
        ("switch", "rail_only", False),
        ("fat_tree", "fat_tree", True),
        ("ring", "rail_optimized", False),
    ],
)
def test_switches_deliver_to_every_npu_behind_them_unless_rails_are_apart(
    topology: str, build: str, straight: bool
) -> None:
    tiers = Tiers(build, 8, 8, 8, 1.0, 1.0)
    found = Subgroup(NetworkDimension(topology, 4, 1.0, 0.0, "ring", IDEAL, tiers), Span(4.0, 1.0)).straight
    assert bool(found) is straight


def test_members_alone_and_rails_without_a_spine_cross_none() -> None:
    for build, members in (("rail_optimized", 1), ("rail_only", 4), ("included", 4)):
        assert spine_shares(4, members, 1, 8, build, 8, 8, 6, 2.0, 1.0) == (1.0, 1.0)
    assert spine_shares(4, 4, 1, 8, "rail_optimized", 8, 8, 6, 2.0, 1.0)[0] < 1


def test_a_member_alone_takes_nothing_on_links_or_lines() -> None:
    assert link_terms("all_gather", "ring", "ring", 8, 1, 1) == (1.0, 1.0)
    for line in range(3):
        assert synthesized_terms(f"all_gather {line}", "switch", "synthesized", 8, 1, 1) == (0.0, 0.0)


def test_a_broadcast_to_nobody_takes_nothing() -> None:
    """Of 8, three levels of a tree; a call takes a second."""
    dim = NetworkDimension("switch", 8, 1.0, 1.0, "ring", Transport(overhead_s=1.0))
    (subgroup,) = subgroups([dim], [Span(np.array([1.0, 8.0]), np.ones(2))])
    assert np.asarray(broadcast_seconds([subgroup], 0.0)).tolist() == [0.0, 3 * 2 + 1]


def test_the_latency_of_a_path_is_that_of_its_links() -> None:
    chain = graph_of(3, [(0, 1, 1.0, 0.25), (1, 2, 1.0, 0.5)])
    assert link_loads(chain, np.array([0]), np.array([1]), np.array([3.0]))[1] == 0.25
    assert link_loads(chain, np.array([0]), np.array([2]), np.array([3.0]))[1] == 0.75


def test_leaves_add_up_what_all_groups_send_out_of_them() -> None:
    """8 NPUs in leaves of 2: a group of 4 has 2 in each of two leaves, which send 2 x 2/3 each; no two groups share one.

    10 NPUs in pairs below leaves of 3: of the second pair and of the fifth, one sends out of its leaf alone.
    """
    (phase,) = crossing_phases("direct", "all_gather", GroupShape(8, 4, 1), 2)
    assert phase.leaving == pytest.approx(2 * (2 / 3) / 2)
    (phase,) = crossing_phases("direct", "all_gather", GroupShape(10, 2, 1), 3)
    assert phase.leaving == pytest.approx(1 / 3)


def test_ports_that_make_a_whole_number_but_for_rounding_do() -> None:
    assert 3 * 0.7 / 0.1 < 21
    assert ports_at(3, 0.7, 0.1) == 21
