"""Broken and slow links."""

from __future__ import annotations

import pytest

from cosmic.base.errors import SpecError
from cosmic.network.link_graph import LinkGraph, graph_of
from cosmic.network.network_files.named_nodes import NamedLink, assemble_graph
from cosmic.network.network_files.network_file import degrade_links

PAIRS = [(0, 1), (1, 0), (1, 2), (2, 1), (0, 1)]
RING = graph_of(3, [(a, b, 8e9, 1e-6) for a, b in PAIRS])


def named() -> LinkGraph:
    """Return a network whose nodes have names with signs in them."""
    link = NamedLink("gpu-0", "sw*1", 8e9, 0.0)
    return assemble_graph(["gpu-0", "gpu-1", "sw*1"], {"sw*1"}, [link, link.turned()], "x")


def test_a_broken_link_is_gone_in_both_directions() -> None:
    assert degrade_links(RING, ["0-1"]).links == 2
    assert degrade_links(RING, ["0>1"]).sources.tolist() == [1, 1, 2]
    assert degrade_links(RING, []).digest == RING.digest


def test_a_slow_link_keeps_a_share_of_its_bandwidth() -> None:
    assert degrade_links(RING, ["1-2*0.25"]).bandwidth_bytes_per_s.tolist() == [8e9, 8e9, 2e9, 2e9, 8e9]
    assert degrade_links(RING, ["1>2*0.5", "1>2*0.5"]).bandwidth_bytes_per_s.tolist() == [8e9, 8e9, 2e9, 8e9, 8e9]


def test_names_may_have_dashes_and_asterisks() -> None:
    assert degrade_links(named(), ["gpu-0-sw*1"]).links == 0
    assert degrade_links(named(), ["gpu-0>sw*1*0.5"]).bandwidth_bytes_per_s.tolist() == [4e9, 8e9]


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        ("0-9", "no such node; there are NPUs 0 to 2"),
        ("0-2", "there is no such link"),
        ("0", "write A-B"),
        ("0-1*2", "more than 0, and 1 at most"),
        ("0-1*0", "more than 0, and 1 at most"),
        ("0-1*x", "must be a number"),
        ("", "write A-B"),
    ],
)
def test_a_link_that_is_not_there_is_one_sentence(failure: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        degrade_links(RING, [failure])
