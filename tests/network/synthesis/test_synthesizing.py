"""Schedules made to measure: correct by an independent check, never below the bound, near it, and always the same."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.base.native.library import SWITCH
from cosmic.network.link_graph import LinkGraph, graph_of
from cosmic.network.schedules.collective_schedule import KINDS, Kind, Schedule
from cosmic.network.synthesis import schedule_synthesis
from cosmic.network.synthesis.graph_symmetry import OrbitSchedule
from cosmic.network.synthesis.lower_bounds import collective_bounds
from cosmic.network.synthesis.schedule_synthesis import synthesize
from tests.batches import check_all

from .checker import check, grid, random_network, star
from .test_bounds import GIB, REFERENCE, needs_reference, read_links


def ratio(graph: LinkGraph, kind: Kind, size_bytes: float, schedule: Schedule, chunks: int | None = None) -> float:
    """Return time over bound."""
    groups = None if len(schedule.groups[0]) == graph.npus else schedule.groups
    found = collective_bounds(graph, kind, size_bytes, chunks=chunks, groups=groups, root=schedule.root)
    return schedule.time_s / found.seconds


def product(rings: tuple[tuple[int, float, float], ...]) -> LinkGraph:
    """Return a network of several dimensions, each a ring of its own size, bandwidth and latency."""
    npus = int(np.prod([size for size, _, _ in rings]))
    links, stride = [], 1
    for size, bandwidth, latency_s in rings:
        for npu in range(npus):
            at = npu // stride % size
            for to in sorted({(at + 1) % size, (at - 1) % size}):
                links.append((npu, npu + (to - at) * stride, bandwidth, latency_s))
        stride *= size
    return graph_of(npus, links)


@check_all("kind", KINDS, tests=3)
@check_all("switches", [False, True])
@check_all("seed", range(5))
def test_any_network_gets_a_valid_schedule(seed: int, switches: bool, kind: Kind) -> None:
    graph = random_network(seed, switches=switches)
    schedule = synthesize(graph, kind, 1e8, chunks=1 + seed % 3, root=seed % graph.npus)
    check(schedule)
    assert ratio(graph, kind, 1e8, schedule, schedule.chunks_per_npu) >= 1 - 1e-9


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_groups_use_other_npus_as_relays_and_share_links(seed: int, kind: Kind) -> None:
    graph = random_network(seed + 20, switches=seed % 2 == 1)
    order = np.random.default_rng(seed).permutation(graph.npus).tolist()
    for groups in ([order[: max(2, graph.npus - 2)]], [order[:2], order[2:]], [order[:1], order[1:]]):
        if not all(groups):
            continue
        schedule = synthesize(graph, kind, 1e8, chunks=2, groups=groups)
        check(schedule)
        assert schedule.groups == tuple(tuple(group) for group in groups)
        found = collective_bounds(graph, kind, 1e8, chunks=2, groups=groups)
        assert schedule.time_s >= found.seconds * (1 - 1e-9)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"])
@pytest.mark.parametrize(
    "graph",
    [grid(4), grid(5), grid(4, 4), grid(3, 4), grid(2, 2, 2), star(6, 50e9, 5e-7)],
    ids=lambda graph: graph.digest,
)
def test_symmetric_networks_are_near_the_bound(graph: LinkGraph, kind: Kind) -> None:
    schedule = synthesize(graph, kind, float(GIB))
    check(schedule)
    assert 1 - 1e-9 <= ratio(graph, kind, float(GIB), schedule) <= 1.05


@pytest.mark.parametrize(
    "graph",
    [
        product(((4, 200e9, 5e-7), (4, 50e9, 1e-6))),
        product(((2, 200e9, 5e-7), (3, 100e9, 5e-7), (4, 25e9, 1e-6))),
        grid(4, 3, wrap=False),
        replace(grid(4, 4), bandwidth_bytes_per_s=np.where(np.arange(64) == 9, 25.0, 50.0) * GIB),
    ],
    ids=["2-D", "3-D", "mesh", "slow link"],
)
@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
def test_uneven_networks_are_near_the_bound(graph: LinkGraph, kind: Kind) -> None:
    schedule = synthesize(graph, kind, float(GIB))
    check(schedule)
    assert 1 - 1e-9 <= ratio(graph, kind, float(GIB), schedule) <= 1.10


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_chunks_from_one_root_keep_all_its_links_busy(kind: Kind) -> None:
    graph = grid(3, 3)
    schedule = synthesize(graph, kind, float(GIB), root=4)
    check(schedule)
    assert 1 - 1e-9 <= ratio(graph, kind, float(GIB), schedule) <= 1.10


def test_small_sizes_take_the_shortest_ways() -> None:
    schedule = synthesize(grid(8), "all_gather", 8.0)
    check(schedule)
    assert schedule.chunks_per_npu == 1
    assert schedule.time_s == pytest.approx(4 * 5e-7, rel=1e-3)


def test_switches_that_add_up_nearly_halve_an_all_reduce() -> None:
    plain = star(8, 50e9, 5e-7)
    adding = replace(plain, reducing=frozenset([8]))
    apart, together = synthesize(plain, "all_reduce", 1e9), synthesize(adding, "all_reduce", 1e9)
    check(apart)
    check(together)
    assert 1 - 1e-9 <= ratio(adding, "all_reduce", 1e9, together) <= 1.05
    assert together.time_s < 0.6 * apart.time_s
    for kind in ("all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all"):
        check(synthesize(adding, kind, 1e9, chunks=4))


def test_servers_with_switches_and_rails() -> None:
    links = []
    for npu in range(8):
        for switch, bandwidth, latency_s in ((8 + npu // 4, 450e9, 5e-7), (10 + npu % 4, 50e9, 2e-6)):
            links += [(npu, switch, bandwidth, latency_s), (switch, npu, bandwidth, latency_s)]
    graph = graph_of(8, links, 6)
    broken = graph_of(8, links[:-4] + links[-2:], 6)  # without the cable between NPU 7 and its NVLink switch
    for network, most in ((graph, 1.10), (broken, 1.35)):
        schedule = synthesize(network, "all_gather", float(GIB))
        check(schedule)
        assert 1 - 1e-9 <= ratio(network, "all_gather", float(GIB), schedule) <= most


def same(left: Schedule, right: Schedule) -> bool:
    """Return whether schedules are equal to the bit."""
    columns = ("link", "chunk", "start_s", "end_s")
    return left.chunks_per_npu == right.chunks_per_npu and all(
        np.array_equal(getattr(left, column), getattr(right, column)) for column in columns
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_schedule(kind: Kind) -> None:
    graph = random_network(3)
    first = synthesize(graph, kind, 1e9, chunks=2, seed=5)
    assert same(first, synthesize(graph, kind, 1e9, chunks=2, seed=5))
    check(synthesize(graph, kind, 1e9, chunks=2, seed=6))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("switches", [False, True])
def test_python_makes_the_same_as_c(kind: Kind, switches: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_network(41 if switches else 40, switches=switches)
    monkeypatch.setattr(schedule_synthesis, "BUDGET", 20_000)
    groups = [range(graph.npus - 1)] if graph.npus > 2 else None
    wanted = [{"chunks": 2}, {"groups": groups, "chunks": 1}, {}]
    compiled = [synthesize(graph, kind, 1e8, **each) for each in wanted]  # type: ignore[arg-type]
    monkeypatch.setenv(SWITCH, "0")
    for each, before in zip(wanted, compiled, strict=True):
        assert same(before, synthesize(graph, kind, 1e8, **each))  # type: ignore[arg-type]


def test_python_makes_the_same_as_c_with_symmetry(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = product(((3, 200e9, 5e-7), (3, 50e9, 1e-6)))
    compiled = synthesize(graph, "all_reduce", 1e9, chunks=4)
    monkeypatch.setenv(SWITCH, "0")
    assert same(compiled, synthesize(graph, "all_reduce", 1e9, chunks=4))


def test_large_symmetric_schedules_are_kept_as_an_orbit() -> None:
    small = grid(4, 4)
    whole = synthesize(small, "all_to_all", 1e9, chunks=1)
    large = synthesize(grid(72, 72), "all_gather", 1e12)
    assert isinstance(large, OrbitSchedule)
    assert not isinstance(whole, OrbitSchedule)
    assert large.transfers == 5184 * 5183
    assert large.time_s == pytest.approx(float(large.orbit.end_s.max()))
    with pytest.raises(SpecError, match=r"schedule.transfers = 26868672: at most 20,000,000"):
        assert large.link.size
    check(whole)


def test_an_orbit_written_out_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("cosmic.network.synthesis.schedule_synthesis"), "WRITTEN_OUT", 0)
    for graph in (grid(3, 3), star(5, 50e9, 1e-6), grid(2, 2, 2)):
        for kind in ("all_gather", "reduce_scatter", "all_reduce", "all_to_all"):
            schedule = synthesize(graph, kind, 1e8, chunks=2)
            assert isinstance(schedule, OrbitSchedule)
            assert len(schedule.link) == schedule.transfers
            check(schedule)


def test_one_member_alone_sends_nothing() -> None:
    assert synthesize(grid(4), "all_gather", 1e9, groups=[(1,)]).transfers == 0
    assert synthesize(graph_of(1, []), "all_reduce", 1e9).time_s == 0.0


def test_progress_grows_to_the_whole() -> None:
    shares: list[float] = []
    synthesize(random_network(2), "all_reduce", 1e9, chunks=2, progress=shares.append)
    assert shares == sorted(shares)
    assert len(shares) > 1
    assert shares[-1] == 1.0


def test_what_cannot_be_gets_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = graph_of(3, [(0, 1, 1e9, 0.0), (1, 0, 1e9, 0.0), (0, 2, 1e9, 0.0)])
    with pytest.raises(SpecError, match="node 2 = 2: there is no way from it to node 0"):
        synthesize(apart, "all_gather", 1e9)
    check(synthesize(apart, "broadcast", 1e9, chunks=2))
    with pytest.raises(SpecError, match="chunks"):
        synthesize(grid(4), "all_gather", 1e9, chunks=-1)
    monkeypatch.setattr(schedule_synthesis, "MOST_CELLS", 10)
    with pytest.raises(SpecError, match="chunks = 4: times nodes, at most 10 can be planned for"):
        synthesize(grid(4, wrap=False), "all_gather", 1e9)


@needs_reference
@pytest.mark.long
@pytest.mark.parametrize("path", sorted((REFERENCE / "tacos_links").glob("*.txt")), ids=lambda path: path.stem)
def test_recorded_networks_are_near_the_bound(path: Path) -> None:
    graph = read_links(path)
    even = len(set(graph.bandwidth_bytes_per_s.tolist())) == 1
    kinds: tuple[Kind, ...] = ("all_gather", "reduce_scatter")
    for kind in kinds:
        schedule = synthesize(graph, kind, float(GIB))
        assert 1 - 1e-9 <= ratio(graph, kind, float(GIB), schedule) <= (1.05 if even else 1.10)
        if schedule.transfers < 100_000:
            check(schedule)
