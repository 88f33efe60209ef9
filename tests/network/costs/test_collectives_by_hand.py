"""Steps, traffic, peers and distance of each algorithm, counted by hand."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.network.collective_rounds import all_but_own, halving_distance, passes_of, tree_depth
from cosmic.network.transport_protocols import reduction_traffic

near = partial(pytest.approx, rel=1e-9, abs=0.0)

AR, AG, RS, A2A = "all_reduce", "all_gather", "reduce_scatter", "all_to_all"


@pytest.mark.parametrize(
    ("algorithm", "kind", "p", "steps", "traffic"),
    [
        # A ring passes on p - 1 parts of 1/p; an all-to-all's parts travel p/4 links on average, both ways round.
        ("ring", AG, 8, 7, 7 / 8),
        ("ring", RS, 8, 7, 7 / 8),
        ("ring", AR, 8, 14, 14 / 8),
        ("ring", A2A, 8, 4, 2.0),
        ("ring", A2A, 16, 8, 4.0),
        ("ring", A2A, 3, 1, 2 / 3),  # each neighbour has its part at once
        ("ring", A2A, 5, 2, 6 / 5),  # two parts go one link and two go two, of a fifth each
        ("ring", A2A, 2, 1, 1 / 2),
        ("ring", A2A, 1, 0, 0.0),
        # Direct: all parts but one's own, at once.
        ("direct", AG, 8, 1, 7 / 8),
        ("direct", AR, 8, 2, 14 / 8),
        ("direct", A2A, 8, 1, 7 / 8),
        ("direct", AR, 1, 0, 0.0),
        # Halving: 1/2 + 1/4 + 1/8; of 12 NPUs, 4 hand their buffer to others first, and get the result.
        ("halving_doubling", AG, 8, 3, 7 / 8),
        ("halving_doubling", AR, 8, 6, 14 / 8),
        ("halving_doubling", AR, 12, 8, 14 / 8 + 2),
        ("halving_doubling", AR, 6, 6, 6 / 4 + 2),
        # Of 12, 8 work for 1 or 2 members each: a half of the 8 for 6, a quarter for 3, an eighth for 2 at most.
        ("halving_doubling", AG, 12, 5, 1 + (6 + 3 + 2) / 12),
        ("halving_doubling", RS, 6, 4, 1 + (3 + 2) / 6),
        ("halving_doubling", A2A, 16, 4, 2.0),  # half the data in each of 4 rounds
        ("halving_doubling", A2A, 2, 1, 1 / 2),
        ("halving_doubling", A2A, 6, 3, (3 + 2 + 2) / 6),  # 1, 3, 5 go one further; 2, 3 two; 4, 5 four
        ("halving_doubling", AR, 1, 0, 0.0),
        # Two trees: everything once a pass, but between two NPUs half.
        ("double_binary_tree", AG, 8, 3, 1.0),
        ("double_binary_tree", AR, 9, 8, 2.0),
        ("double_binary_tree", AR, 3, 4, 2.0),
        ("double_binary_tree", AR, 2, 2, 1.0),
        ("double_binary_tree", A2A, 8, 1, 7 / 8),
        # A switch that reduces: everything once up, the sum down at the same time.
        ("in_network", AR, 8, 1, 1.0),
        ("in_network", AG, 8, 1, 7 / 8),
        ("in_network", A2A, 4, 1, 3 / 4),
        ("in_network", AR, 1, 0, 0.0),
        ("in_network", AR, 2, 1, 1.0),
        # A library's ring; sends of an all-to-all start one after another.
        ("auto", AG, 8, 7, 7 / 8),
        ("auto", AR, 8, 14, 14 / 8),
        ("auto", A2A, 8, 1 + 3, 7 / 8),
        ("auto", A2A, 2, 1 + 1, 1 / 2),
        ("auto", A2A, 1, 0, 0.0),
    ],
)
def test_steps_and_traffic(algorithm: str, kind: CollectiveKind, p: int, steps: float, traffic: float) -> None:
    assert float(algorithms[algorithm].steps(kind, p)) == near(steps)
    assert float(algorithms[algorithm].traffic(kind, p)) == near(traffic)


@pytest.mark.parametrize(
    ("algorithm", "p", "peers", "distance"),
    [
        ("ring", 8, 2, 1.0),
        ("ring", 2, 1, 1.0),
        ("direct", 16, 15, 4.0),
        ("direct", 2, 1, 1.0),
        ("halving_doubling", 8, 1, (3 / 2) / (7 / 8)),  # 1 x 1/2, 2 x 1/4, 4 x 1/8 over 7/8
        ("halving_doubling", 2, 1, 1.0),
        ("double_binary_tree", 16, 2, (4 / 2) / (15 / 16)),
        ("double_binary_tree", 3, 2, (np.log2(3) / 2) / (2 / 3)),
        ("in_network", 16, 1, 4.0),
        ("in_network", 2, 1, 1.0),
        ("auto", 8, 7, 1.0),
        ("auto", 1, 1, 1.0),
    ],
)
def test_peers_and_distance(algorithm: str, p: int, peers: float, distance: float) -> None:
    assert float(algorithms[algorithm].peers(p)) == peers
    assert float(algorithms[algorithm].distance(p)) == near(distance)


def test_what_algorithms_share() -> None:
    assert [passes_of(kind) for kind in (AR, AG, RS, A2A)] == [2, 1, 1, 1]  # type: ignore[arg-type]
    assert (all_but_own(4), all_but_own(1)) == (0.75, 0)
    assert float(tree_depth(8 * (1 + 1e-12))) == 3  # but for rounding
    assert [float(tree_depth(p)) for p in (0, 1, 2, 3, 4, 5, 1024, 1025)] == [0, 0, 1, 2, 2, 3, 10, 11]
    assert float(halving_distance(4)) == near(1 / 0.75)
    assert float(halving_distance(1)) == float(halving_distance(2)) == 1
    assert [float(reduction_traffic(p)) for p in (1, 2, 8)] == [2.0, 1.5, 1.125]


@pytest.mark.parametrize(
    "algorithm", ["ring", "direct", "halving_doubling", "double_binary_tree", "in_network", "auto"]
)
@pytest.mark.parametrize("kind", [AR, AG, RS, A2A])
def test_groups_of_a_batch_take_what_each_takes_alone(algorithm: str, kind: CollectiveKind) -> None:
    found, members = algorithms[algorithm], np.array([4.0, 64.0, 1.0, 6.0, 33.0, 2.0, 3.0, 8.0, 5.0])
    for number in (found.steps, found.traffic):
        alone = [float(number(kind, p)) for p in members.tolist()]
        assert np.asarray(number(kind, members)) * np.ones(len(members)) == near(alone)


@pytest.mark.parametrize("algorithm", ["direct", "halving_doubling", "double_binary_tree", "in_network", "auto"])
@pytest.mark.parametrize("kind", [AR, AG, RS, A2A])
def test_what_rounding_takes_from_a_whole_number_of_members_changes_nothing(
    algorithm: str, kind: CollectiveKind
) -> None:
    for whole in (4, 8):
        for number in (algorithms[algorithm].steps, algorithms[algorithm].traffic):
            assert float(number(kind, whole * (1 - 1e-12))) == pytest.approx(float(number(kind, whole)), rel=1e-9)


def test_between_whole_numbers_of_members_an_all_to_all_on_a_ring_never_sends_less() -> None:
    found = [float(algorithms["ring"].traffic(A2A, p)) for p in (2, 2.5, 3, 3.5, 4 - 1e-12, 4)]  # type: ignore[arg-type]
    assert [found[0], found[2], found[4], found[5]] == near([1 / 2, 2 / 3, 1.0, 1.0])
    assert found == sorted(found)
