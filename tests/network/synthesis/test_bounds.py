"""Lower bounds on collectives: by hand on small networks, and against recorded ones."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.network.link_graph import LinkGraph, graph_of
from cosmic.network.schedules.collective_schedule import Kind
from cosmic.network.synthesis.graph_symmetry import symmetry_of
from cosmic.network.synthesis.lower_bounds import collective_bounds, parted_s

from .checker import grid, random_network, star

REFERENCE = Path(__file__).parents[3].parent / "shared" / "reference" / "collectives"
GIB = 2**30
needs_reference = pytest.mark.skipif(not REFERENCE.is_dir(), reason="the recorded bounds are not here")


def ring(npus: int, latency_s: float = 0.0) -> LinkGraph:
    """Return a ring in both directions, of links of 1 GB/s."""
    return graph_of(npus, [(i, (i + j) % npus, 1e9, latency_s) for i in range(npus) for j in (1, npus - 1)])


def dumbbell() -> LinkGraph:
    """Return two groups of three that are joined well, with one thin cable between them."""
    inner = [(i, j, 10e9, 0.0) for half in ((0, 1, 2), (3, 4, 5)) for i in half for j in half if i != j]
    return graph_of(6, [*inner, (2, 3, 1e9, 0.0), (3, 2, 1e9, 0.0)])


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        ("all_gather", 1.5),  # 3 GB over 2 links
        ("reduce_scatter", 1.5),
        ("all_reduce", 3.0),
        ("all_to_all", 2.0),  # 4 pairs of 1 GB cross from one half to the other, over 2 links
        ("broadcast", 2.0),
        ("reduce", 2.0),
    ],
)
def test_a_ring_of_four(kind: Kind, seconds: float) -> None:
    assert collective_bounds(ring(4), kind, 4e9).seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("kind", "seconds"), [("all_gather", 1.0), ("all_to_all", 1.0), ("broadcast", 4 / 3), ("all_reduce", 2.0)]
)
def test_four_that_are_all_joined(kind: Kind, seconds: float) -> None:
    graph = graph_of(4, [(i, j, 1e9, 0.0) for i in range(4) for j in range(4) if i != j])
    assert collective_bounds(graph, kind, 4e9).seconds == pytest.approx(seconds)


def test_a_switch_that_adds_up_halves_an_all_reduce() -> None:
    graph = star(4)
    assert collective_bounds(graph, "all_reduce", 4e9).seconds == pytest.approx(6.0)
    assert collective_bounds(replace(graph, reducing=frozenset([4])), "all_reduce", 4e9).seconds == pytest.approx(4.0)


def test_a_switch_that_does_not_copy_must_be_sent_all_that_it_passes_on() -> None:
    graph = star(8)
    bandwidth = graph.bandwidth_bytes_per_s.copy()
    bandwidth[0] = 0.5e9  # from NPU 0 up
    slow = replace(graph, bandwidth_bytes_per_s=bandwidth)
    found = collective_bounds(slow, "all_gather", 8e9)
    assert found.node_s == pytest.approx(7.0)
    assert found.cut_s == pytest.approx(7 * 8 / 7.5)


@pytest.mark.parametrize(
    ("kind", "root", "seconds"),
    [
        ("all_gather", 0, 1.0),  # NPU 1 has 1 GB to send, at 1 GB/s
        ("reduce_scatter", 0, 1.0),
        ("all_reduce", 0, 2.0),
        ("broadcast", 0, 1.0),
        ("broadcast", 1, 2.0),
        ("reduce", 0, 2.0),
        ("reduce", 1, 1.0),
    ],
)
def test_two_with_a_fast_and_a_slow_way(kind: Kind, root: int, seconds: float) -> None:
    graph = graph_of(2, [(0, 1, 2e9, 0.0), (1, 0, 1e9, 0.0)])
    assert collective_bounds(graph, kind, 2e9, root=root).seconds == pytest.approx(seconds)


def test_a_thin_cable_binds_though_no_node_does() -> None:
    found = collective_bounds(dumbbell(), "all_gather", 6e9)
    assert found.node_s == pytest.approx(5 / 20)
    assert found.cut_s == found.seconds == pytest.approx(3.0)
    assert found.cut in {(0, 1, 2), (3, 4, 5)}
    assert collective_bounds(dumbbell(), "all_to_all", 6e9).seconds == pytest.approx(9.0)
    assert collective_bounds(dumbbell(), "broadcast", 6e9).seconds == pytest.approx(6.0)


def test_finite_chunks_and_latency_count() -> None:
    found = collective_bounds(
        ring(4, 0.25), "all_gather", 4e9, chunks=2
    )  # 6 chunks of 0.5 GB for each, 0.75 s on a link
    assert found.ingress_s == pytest.approx(3 * 0.75)
    assert found.distance_s == pytest.approx(2 * 0.75)
    free = collective_bounds(ring(4, 0.25), "all_gather", 4e9)
    assert [free.ingress_s, free.distance_s] == pytest.approx([0.0, 0.5])
    assert collective_bounds(star(4, latency_s=1.0), "broadcast", 1.0).distance_s == pytest.approx(2.0)


def test_links_of_two_speeds_share_the_chunks_of_a_node() -> None:
    graph = graph_of(2, [(0, 1, 1e9, 0.0), (0, 1, 2e9, 0.0), (1, 0, 3e9, 0.0)])
    found = collective_bounds(
        graph, "broadcast", 4e9, chunks=4
    )  # 1 s and 0.5 s for a chunk: 1 + 2 after 1 s, 1 + 3 after 1.5 s
    assert found.ingress_s == pytest.approx(1.5)


def test_groups_share_the_links_between_them() -> None:
    line = grid(4, wrap=False, bandwidth=1e9, latency_s=0.0)
    alone = collective_bounds(line, "all_gather", 2e9, groups=[(0, 2)]).seconds
    both = collective_bounds(line, "all_gather", 2e9, groups=[(0, 2), (1, 3)])
    assert [alone, both.seconds] == pytest.approx([1.0, 2.0])
    assert both.cut == (0, 1)
    factors: dict[Kind, int] = {"reduce_scatter": 1, "broadcast": 2, "reduce": 2, "all_to_all": 1, "all_reduce": 2}
    for kind, factor in factors.items():
        assert collective_bounds(line, kind, 2e9, groups=[(0, 2), (1, 3)]).cut_s == pytest.approx(2.0 * factor)


def test_one_member_alone_takes_no_time() -> None:
    assert collective_bounds(ring(4), "all_reduce", 4e9, groups=[(2,)]).seconds == 0.0
    assert collective_bounds(graph_of(1, []), "broadcast", 4e9).seconds == 0.0


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["all_gather", "broadcast"])
def test_more_bandwidth_never_raises_a_bound_and_turned_links_turn_the_collective(seed: int, kind: Kind) -> None:
    graph = random_network(seed, switches=seed % 2 == 0)
    found = collective_bounds(graph, kind, 1e9, chunks=2)
    faster = replace(graph, bandwidth_bytes_per_s=2 * graph.bandwidth_bytes_per_s)
    assert collective_bounds(faster, kind, 1e9, chunks=2).seconds <= found.seconds * (1 + 1e-9)
    assert found.cut_s >= found.node_s * (1 - 1e-9)
    turned: Kind = "reduce_scatter" if kind == "all_gather" else "reduce"
    assert collective_bounds(graph.transposed(), turned, 1e9, chunks=2) == found


@pytest.mark.parametrize("seed", range(8))
def test_all_cuts_together_give_the_bound(seed: int) -> None:
    graph = random_network(seed)
    worst = 0.0
    for code in range(1, 2**graph.npus - 1):
        inside = (code >> np.arange(graph.npus)) & 1
        out = graph.bandwidth_bytes_per_s[(inside[graph.sources] == 1) & (inside[graph.targets] == 0)].sum()
        worst = max(worst, 1e9 / graph.npus * inside.sum() / out)
    assert collective_bounds(graph, "all_gather", 1e9).cut_s == pytest.approx(worst)


def test_symmetry_is_found_and_not_imagined() -> None:
    for graph in (ring(5), grid(3, 4), grid(2, 2, 2), star(6)):
        assert symmetry_of(graph) is not None
    for graph in (grid(3, 3, wrap=False), dumbbell(), graph_of(2, [(0, 1, 2e9, 0.0), (1, 0, 1e9, 0.0)])):
        assert symmetry_of(graph) is None
    torus = grid(4, 4)
    slow = torus.bandwidth_bytes_per_s.copy()
    slow[7] /= 2
    assert symmetry_of(replace(torus, bandwidth_bytes_per_s=slow)) is None


def test_what_cannot_be_gets_one_sentence() -> None:
    apart = graph_of(3, [(0, 1, 1e9, 0.0), (1, 0, 1e9, 0.0), (2, 0, 1e9, 0.0)])
    with pytest.raises(SpecError, match="node 2 = 2: there is no way to it from node 0"):
        collective_bounds(apart, "all_gather", 1e9)
    with pytest.raises(SpecError, match="node 2 = 2: there is no way to it from node 0"):
        collective_bounds(apart, "broadcast", 1e9)
    assert collective_bounds(apart, "reduce", 1e9).seconds == pytest.approx(1.0)
    mistakes: list[dict[str, Any]] = [
        {"kind": "all_sum"},
        {"size_bytes": 0.0},
        {"size_bytes": float("nan")},
        {"chunks": 0},
        {"root": 4},
        {"groups": []},
        {"groups": [[]]},
        {"groups": [[0, 1], [1, 2]]},
        {"groups": [[0, 9]]},
    ]
    for wrong in mistakes:
        with pytest.raises(SpecError):
            collective_bounds(ring(4), **{"kind": "all_gather", "size_bytes": 1e9, **wrong})


def read_links(path: Path) -> LinkGraph:
    """Return a recorded network."""
    first, *rows = [line.split() for line in path.read_text().splitlines() if line.strip()]
    return graph_of(int(first[0]), [(int(a), int(b), float(c) * GIB, float(d) * 1e-6) for a, b, c, d in rows])


@needs_reference
def test_recorded_bounds_are_found() -> None:
    checked = 0
    with (REFERENCE / "tacos_bounds.csv").open() as file:
        for row in csv.DictReader(file):
            path = REFERENCE / "tacos_links" / f"{row['topology']}.txt"
            if not path.is_file() or not row["fluid_cut_bound_us"]:
                continue
            graph, chunks, kind = read_links(path), int(row["chunks_per_npu"]), row["collective"]
            found = collective_bounds(graph, kind, float(row["total_size_bytes"]))  # type: ignore[arg-type]
            assert found.cut_s * 1e6 == pytest.approx(float(row["fluid_cut_bound_us"]), rel=1e-6)
            assert found.node_s * 1e6 == pytest.approx(float(row["node_bound_us"]), rel=1e-6)
            whole = (
                float(row["total_size_bytes"]) // (graph.npus * chunks) * graph.npus * chunks
            )  # bytes of whole chunks
            chunked = collective_bounds(graph, kind, whole, chunks=chunks)  # type: ignore[arg-type]
            assert chunked.ingress_s * 1e6 == pytest.approx(float(row["discrete_ingress_bound_us"]), rel=1e-6)
            assert chunked.distance_s * 1e6 == pytest.approx(float(row["distance_bound_us"]), rel=1e-6)
            checked += 1
    assert checked > 100


def line(npus: int) -> LinkGraph:
    """Return NPUs in a row, joined both ways at 1 byte a second."""
    return graph_of(npus, [ends for i in range(npus - 1) for ends in ((i, i + 1, 1.0, 0.0), (i + 1, i, 1.0, 0.0))])


def test_an_all_reduce_may_be_shorter_than_a_reduce_scatter_and_an_all_gather() -> None:
    """On a row of 3, sums flow to the middle and back in M seconds a way, both ways at once: chunks follow each other.

    Every cut carries M each way, and 4 messages a byte share 4 links: M. In turn it is twice 2/3 M over an end's link.
    """
    found = collective_bounds(line(3), "all_reduce", 3.0)
    assert found.seconds == pytest.approx(3.0)
    assert found.in_turn_s == pytest.approx(4.0)


def test_parts_exchange_two_messages_for_each_but_one() -> None:
    """Two pairs, each joined at 10, and with the other at 1 over two links each way: 2 M / 4, and M / 2 by the cut.

    Of all four by themselves 6 messages share 4 · 10 + 4 · 1: 6 M / 44. Three pairs in a triangle of such links have
    4 messages over 12 links: M / 3.
    """
    pair = [(0, 1, 10.0, 0.0), (1, 0, 10.0, 0.0), (2, 3, 10.0, 0.0), (3, 2, 10.0, 0.0)]
    across = [(0, 2, 1.0, 0.0), (2, 0, 1.0, 0.0), (1, 3, 1.0, 0.0), (3, 1, 1.0, 0.0)]
    assert collective_bounds(graph_of(4, pair + across), "all_reduce", 8.0).seconds == pytest.approx(4.0)
    inner = [(a, b, 10.0, 0.0) for p in (0, 2, 4) for a, b in ((p, p + 1), (p + 1, p))]
    outer = [(a, b, 1.0, 0.0) for s in (0, 1) for a in (s, s + 2, s + 4) for b in (s, s + 2, s + 4) if a != b]
    assert parted_s(graph_of(6, inner + outer), 6.0, np.arange(6)) == pytest.approx(2.0)


def test_the_distance_of_an_all_reduce_is_to_the_farthest_and_not_there_and_back() -> None:
    far = graph_of(2, [(0, 1, 1e12, 3.0), (1, 0, 1e12, 1.0)])
    assert collective_bounds(far, "all_reduce", 1.0).distance_s == pytest.approx(3.0)


def test_groups_that_cross_the_same_links_are_bounded_together_by_any_cut_of_few_nodes() -> None:
    """The cut between {0, 3} and {1, 2} has 1 + 10 bytes a second each way, and both groups cross it."""
    links = [(0, 1, 1.0, 0.0), (1, 0, 1.0, 0.0), (2, 3, 10.0, 0.0), (3, 2, 10.0, 0.0)]
    fast = [(0, 3, 100.0, 0.0), (3, 0, 100.0, 0.0), (1, 2, 100.0, 0.0), (2, 1, 100.0, 0.0)]
    found = collective_bounds(graph_of(4, links + fast), "all_reduce", 11.0, groups=[(0, 1), (2, 3)])
    assert found.cut_s == pytest.approx(2.0)
    assert sorted(found.cut) in ([0, 3], [1, 2])
