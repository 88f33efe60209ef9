"""Networks of named topologies as graphs: the links that their parts count, with the bandwidth that they share."""

from __future__ import annotations

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design.network_layer import Dimension, topologies
from cosmic.network.link_graph import LinkGraph
from cosmic.network.network_graphs import network_graph
from tests.batches import check_all

GIGA = 1e9


def dimension(topology: str, npus: int, bandwidth: float = 100 * GIGA, oversubscription: float = 1.0) -> Dimension:
    return Dimension(
        topology=topology,
        npus=npus,
        bandwidth_bytes_per_s=bandwidth,
        latency_s=1e-6,
        oversubscription=oversubscription,
    )


def rates(graph: LinkGraph) -> dict[tuple[int, int], float]:
    ends = zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)
    return dict(zip(ends, graph.bandwidth_bytes_per_s.tolist(), strict=True))


@check_all("topology", list(topologies))
@check_all("npus", [2, 3, 8, 16, 36, 72])
def test_every_topology_has_the_links_that_its_parts_count(topology: str, npus: int) -> None:
    graph = network_graph([dimension(topology, npus)])
    assert graph.npus == npus
    out = np.bincount(graph.sources, weights=graph.bandwidth_bytes_per_s, minlength=graph.nodes)[:npus]
    assert out.max() <= 100 * GIGA * (1 + 1e-9)
    into = np.bincount(graph.targets, weights=graph.bandwidth_bytes_per_s, minlength=graph.nodes)[:npus]
    np.testing.assert_allclose(out, into)
    if topology in ("fat_tree", "hybrid_cube_mesh", "dragonfly"):  # cables side by side are one link here
        return
    assert graph.links == int(topologies[topology].parts(npus).links)
    if "mesh" not in topology:
        np.testing.assert_allclose(out, 100 * GIGA)


def test_a_fat_tree_carries_at_each_level_what_its_npus_send() -> None:
    graph = network_graph([dimension("fat_tree", 65)])
    ups = rates(graph)
    assert graph.switches == 4
    assert [round(ups[leaf, 68] / GIGA) for leaf in (65, 66, 67)] == [3200, 3200, 100]


def test_dimensions_are_there_once_for_every_choice_of_the_others() -> None:
    inner, outer = dimension("switch", 2, 400 * GIGA), dimension("ring", 3, 50 * GIGA, oversubscription=2.0)
    graph = network_graph([inner, outer])
    links = rates(graph)
    assert graph.npus == 6
    assert graph.switches == 3
    assert len(links) == graph.links == 3 * 4 + 2 * 6
    assert links[0, 6] == links[1, 6] == links[6, 1] == links[4, 8] == 400 * GIGA
    assert links[0, 2] == links[2, 4] == links[4, 0] == links[1, 5] == 12.5 * GIGA
    assert (0, 3) not in links


def test_a_network_too_large_to_list_is_refused() -> None:
    with pytest.raises(SpecError, match=r"network = '.* links': more than 20,000,000 are not listed one by one"):
        network_graph([dimension("fully_connected", 1024), dimension("ring", 1024)])
