"""Messages on shortest paths, by hand and over random graphs."""

from __future__ import annotations

import numpy as np
import pytest

from cosmic.network.link_graph import graph_of
from cosmic.network.link_paths import hop_distances, link_loads


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
