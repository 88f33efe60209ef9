"""The page of collectives says what the program computes, on networks that are those of the reference."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from cosmic.network.collective_costs import NetworkDimension, collective_seconds, subgroups
from cosmic.network.link_graph import LinkGraph, graph_of
from cosmic.network.mesh_spans import Span
from cosmic.network.network_files.network_formats import parse_tacos
from tests.batches import check_all

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "collectives.md"
LISTS = ROOT.parent / "shared" / "reference" / "collectives" / "tacos_links"
sys.path.append(str(ROOT / "benchmarks"))

from collectives import algorithms  # noqa: E402  it is no package that is installed
from collectives.algorithms import COLUMNS, best_orders_s, blueconnect_s, in_dimensions_s, ring_over_links  # noqa: E402
from collectives.command import rows  # noqa: E402
from collectives.networks import GIB, NETWORKS, US, Dim, Network, mesh, ring, torus  # noqa: E402
from collectives.page import line_of, notes, page  # noqa: E402

BY_NAME = {network.name: network for network in NETWORKS}
SIX = (Dim("ring", 4, 200, 0.5), Dim("switch", 4, 100, 1.0, 3))
SMALL = ("RingBi_8", "FC_8", "DGX1V_hybridcubemesh_8")


def columns(graph: LinkGraph) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of links, and their bandwidth and latency, in the order of their ends."""
    order = np.lexsort((graph.targets, graph.sources))
    ends = np.stack([graph.sources[order], graph.targets[order]])
    return ends, np.stack([graph.bandwidth_bytes_per_s[order], graph.latency_s[order]])


@pytest.mark.skipif(not LISTS.exists(), reason="the reference's lists of links are not here")
@check_all("network", NETWORKS)
def test_a_network_has_the_links_of_the_reference(network: Network) -> None:
    wanted = parse_tacos((LISTS / f"{network.name}.txt").read_text(), network.name)
    assert network.npus == wanted.npus
    (ends, values), (wanted_ends, wanted_values) = columns(network.graph), columns(wanted)
    assert np.array_equal(ends, wanted_ends)
    np.testing.assert_allclose(values, wanted_values, rtol=1e-9)


def test_networks_have_names_of_their_own_and_the_links_of_their_kind() -> None:
    assert len({network.label for network in NETWORKS}) == len(BY_NAME) == len(NETWORKS)
    assert all(network.npus <= 64 for network in NETWORKS)
    counts = {"Mesh2D_4x4": 48, "Torus3D_3x3x3": 162, "Hypercube_4d_16": 64, "DragonFly_5x4_50_25": 80}
    assert {name: len(BY_NAME[name].links) for name in counts} == counts


@pytest.mark.parametrize("name", SMALL)
def test_a_line_of_the_page_is_what_the_program_computes(name: str) -> None:
    row = algorithms.row_of(BY_NAME[name])
    assert row["valid"]
    assert row["played_ns"] == row["stated_ns"]
    assert f"\n{line_of(row)}\n" in PAGE.read_text()
    assert min(value for value in row["over_bound"].values() if value is not None) > 1 - 1e-9


def test_textbook_values_of_the_page() -> None:
    """On rings, full graphs, tori and hypercubes, the share of links that an algorithm keeps busy is known."""
    lines = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = {line[0]: dict(zip(COLUMNS, line[4:], strict=True)) for line in lines[1:-1]}
    assert cells["ring 8, two-way"]["ring"] == "2.00"
    assert cells["ring 8, two-way"]["two_way_ring"] == "1.00"
    assert cells["fully connected 8"]["direct"] == "1.00"
    assert (cells["fully connected 8"]["ring"], cells["fully connected 8"]["halving_doubling"]) == ("7.00", "7.00")
    assert (cells["torus 4×4"]["ring"], cells["hypercube 16"]["halving_doubling"]) == ("4.00", "4.00")
    values = [float(cell) for line in cells.values() for cell in line.values() if cell != "–"]
    assert min(values) >= 1
    assert max(float(line["cosmic"]) for line in cells.values()) <= 1.05


def test_a_page_says_why_cells_are_empty() -> None:
    rows_of = [algorithms.row_of(network) for network in (ring(4, two_way=True), mesh(3, 3))]
    text = " ".join(notes(rows_of).split())
    assert "- TACOS: no time of this network is recorded (ring 4, two-way; mesh 3×3)." in text
    assert "- BlueConnect, Themis, LP optimum: the network is no product" in text


def test_chunks_in_one_order_take_what_the_closed_form_says() -> None:
    forms = [(dim, *dim.form) for dim in SIX]
    dims = [
        NetworkDimension(topology, dim.npus, dim.rate * GIB, dim.late_us * US, algorithm)
        for dim, topology, algorithm in forms
    ]
    group = subgroups(dims, [Span(4.0, 1.0), Span(4.0, 1.0)])
    wanted = float(collective_seconds(group, "all_reduce", GIB, 64, "blueconnect"))
    assert in_dimensions_s(SIX, [(0, 1)] * 64) == pytest.approx(wanted, rel=1e-12)


def test_orders_by_hand() -> None:
    """Of 200 and 100 GiB/s, 4 NPUs each: 15/16 GiB, twice, over 300 GiB/s; in one order 3/4 GiB over the first."""
    pytest.importorskip("scipy")
    assert best_orders_s(SIX) == pytest.approx(2 * 15 / 16 / 300)
    without = tuple(Dim(dim.kind, dim.npus, dim.rate, 0.0, dim.degree) for dim in SIX)
    first, fill = 2 * 0.75 / 200, 2 * 0.75 / 4 / 100 / 256
    assert blueconnect_s(without) == pytest.approx(first + fill)


@pytest.mark.parametrize("network", [torus(4, 4), mesh(6, 5), BY_NAME["DGX1V_hybridcubemesh_8"]])
def test_a_ring_over_links_visits_everyone_once(network: Network) -> None:
    found = ring_over_links(network.graph)
    assert found is not None
    assert sorted(found) == list(range(network.npus))
    links = {link[:2] for link in network.links}
    assert all(pair in links for pair in zip(found, found[1:] + found[:1], strict=True))


def test_there_is_no_ring_over_the_links_of_an_odd_mesh_or_of_a_line() -> None:
    assert ring_over_links(mesh(3, 3).graph) is None
    assert ring_over_links(graph_of(3, [(0, 1, 1.0, 0.0), (1, 0, 1.0, 0.0), (1, 2, 1.0, 0.0)])) is None


@pytest.mark.long
def test_the_page_is_what_the_program_writes() -> None:
    pytest.importorskip("scipy")
    assert page(list(rows())) == PAGE.read_text()
