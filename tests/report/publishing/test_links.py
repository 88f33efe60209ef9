"""Pictures of a dimension have the links that the topology says it has."""

from __future__ import annotations

from cosmic.design.network_layer import topologies
from cosmic.report.design_view import LINKS_OF_TOPOLOGY, MOST_DRAWN_NPUS, drawn_links
from tests.batches import check_all


@check_all("name", list(LINKS_OF_TOPOLOGY))
@check_all("npus", [2, 4, 8, 16, 64])
def test_each_npu_has_as_many_connections_as_the_topology_says(name: str, npus: int) -> None:
    drawn = drawn_links(name, npus)
    degree = [sum(place in pair for pair in drawn) for place in range(npus)]
    wanted = int(topologies[name].links(npus))
    if name.startswith("mesh"):
        assert max(degree) <= wanted  # those at the rim have fewer
    else:
        assert set(degree) == {wanted}
    assert len(set(drawn)) == len(drawn)
    assert all(one < other for one, other in drawn)


@check_all("name", list(LINKS_OF_TOPOLOGY))
@check_all("npus", [2, 3, 6, 8, 64])
def test_everybody_can_reach_everybody(name: str, npus: int) -> None:
    reached, waiting = {0}, [0]
    while waiting:
        here = waiting.pop()
        there = {other for pair in drawn_links(name, npus) if here in pair for other in pair} - reached
        reached |= there
        waiting += there
    assert reached >= set(range(npus))


def test_all_topologies_of_the_catalog_can_be_drawn() -> None:
    assert set(topologies) == set(LINKS_OF_TOPOLOGY)


def test_what_is_too_large_to_draw_is_left_out() -> None:
    assert drawn_links("ring", MOST_DRAWN_NPUS + 1) == ()
    assert drawn_links("no such topology", 4) == ()
