"""Traces on networks of links, in numbers worked by hand: a byte takes a nanosecond, a link 100 more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.network.link_graph import LinkGraph, graph_of
from cosmic.network.schedules.collective_schedule import Kind, Schedule
from cosmic.network.schedules.schedule_replay import to_nanoseconds
from cosmic.network.synthesis.schedule_synthesis import synthesize
from cosmic.report.schedule_files import traces_of_schedule
from cosmic.simulate.events.message_fabrics import SimulatedNetwork
from cosmic.simulate.events.simulation_job import Job, dimension_of
from cosmic.simulate.events.simulation_result import SimulationResult
from cosmic.simulate.events.trace_simulation import simulate_job
from tests.network.schedules.made import gathered, random_graph
from tests.simulate.jobs import Node, collective, computation, job, network, receive, send

BYTE_PER_NS = 1e9
LATE = 100e-9
QUIET: dict[str, Any] = {"endpoint_delay": 0, "local_mem_bw": 1e9, "preferred_dataset_splits": 1}


def wires(*pairs: tuple[int, int], npus: int, switches: int = 0, rate: float = BYTE_PER_NS) -> LinkGraph:
    """Return links of one rate and latency, both ways."""
    ways = [way for a, b in pairs for way in ((a, b), (b, a))]
    return graph_of(npus, [(a, b, rate, LATE) for a, b in ways], switches)


def like(topology: str, npus: int, rate: float, latency_s: float) -> LinkGraph:
    """Return the links of one of ASTRA-sim's dimensions."""
    pairs = {
        "Ring": [(i, (i + 1) % npus) for i in range(npus)],
        "FullyConnected": [(i, j) for i in range(npus) for j in range(i)],
        "Switch": [(i, npus) for i in range(npus)],
    }[topology]
    ways = [way for a, b in pairs for way in ((a, b), (b, a))]
    return graph_of(npus, [(a, b, rate, latency_s) for a, b in ways], int(topology == "Switch"))


def on(graph: LinkGraph, ranks: list[list[Node]], algorithm: str = "ring", **more: Any) -> Job:
    net = SimulatedNetwork((dimension_of(graph),))
    return job(ranks, net, [algorithm], graph=graph, backend="aware", **(QUIET | more))


def sent(graph: LinkGraph, *messages: tuple[int, int, int], **more: Any) -> SimulationResult:
    """Return the result of messages (from, to, bytes), all sent at once if by different ranks."""
    ranks: list[list[Node]] = [[] for _ in range(graph.npus)]
    for tag, (source, target, size) in enumerate(messages):
        ranks[source].append(send(target, size, tag))
        ranks[target].append(receive(source, size, tag))
    return simulate_job(on(graph, ranks, **more))


def arrivals(graph: LinkGraph, *messages: tuple[int, int, int]) -> list[int]:
    """Return when each of some messages, of one sender each, has arrived."""
    ends = {each.ranks[0]: each.ended[each.template.type == 5] for each in sent(graph, *messages).rank_times}
    return [int(ends[source][0]) for source, _, _ in messages]


def alone(graph: LinkGraph, kind: str, size: int, algorithm: str = "ring", **more: Any) -> int:
    return simulate_job(on(graph, [[collective(kind, size)]] * graph.npus, algorithm, **more)).cycles


def test_a_message_takes_every_link_of_its_path_in_turn() -> None:
    line = wires((0, 1), (1, 2), npus=3)
    assert arrivals(line, (0, 1, 1000)) == [1100]
    assert arrivals(line, (0, 2, 1000)) == [2 * 1100]


def test_a_link_is_held_for_its_latency_too() -> None:
    star = wires((0, 3), (1, 3), (2, 3), npus=3, switches=1)
    assert arrivals(star, (0, 2, 1000), (1, 2, 1000)) == [2200, 3300]  # ASTRA-sim frees the link 100 ns earlier
    astra = job(
        [[send(2, 1000, 0)], [send(2, 1000, 1)], [receive(0, 1000, 0), receive(1, 1000, 1)]],
        network(("Switch", 3, 1e9 / 2**30, 100.0)),
        backend="aware",
    )
    assert simulate_job(astra).cycles == 3200


def test_a_path_of_many_links_is_rounded_down_once() -> None:
    line = graph_of(4, [(i, i + 1, 1e9, 0.6e-9) for i in range(3)] + [(i + 1, i, 1e9, 0.0) for i in range(3)])
    assert arrivals(line, (0, 3, 10)) == [31]  # 3 x 10.6 = 31.8


def test_links_beside_each_other_share_the_messages() -> None:
    pair = graph_of(2, [(0, 1, 1e9, 0.0), (0, 1, 5e8, 0.0), (1, 0, 1e9, 0.0)])
    script = [[collective("all_gather", 1000)]] * 2
    made = [[send(1, 900, tag) for tag in range(3)], [receive(0, 900, tag) for tag in range(3)]]
    custom: dict[str, Any] = {"all_gather_implementation_custom": ["x"]}
    found = simulate_job(replace(on(pair, script, **custom), scripts={"x": on(pair, made).traces}))
    assert found.cycles == 1800  # two on the fast one, and one, of half the rate, beside them
    assert {each.link: each.busy_cycles for each in found.links} == {"0→1": 1800, "0→1 (2)": 1800}


def planes(npus: int, count: int) -> LinkGraph:
    """Return NPUs behind several switches, each of which joins them all."""
    return wires(*((i, npus + plane) for i in range(npus) for plane in range(count)), npus=npus, switches=count)


def test_of_equally_quick_paths_a_message_takes_the_one_that_is_free() -> None:
    made: list[list[Node]] = [[send(1, 1000, tag) for tag in range(3)], [receive(0, 1000, tag) for tag in range(3)]]
    both = planes(2, 2)
    whole = on(both, [[collective("all_gather", 1000)]] * 2, all_gather_implementation_custom=["x"])
    found = simulate_job(replace(whole, scripts={"x": on(both, made).traces}))
    assert found.cycles == 3 * 1100  # the third follows the first
    assert {each.link: each.busy_cycles for each in found.links} == {
        "0→s0": 2200,
        "s0→1": 2200,
        "0→s1": 1100,
        "s1→1": 1100,
    }


def test_switches_choose_among_the_links_that_are_free() -> None:
    leaves = [(0, 4), (1, 4), (2, 5), (3, 5)]
    tree = wires(*leaves, (4, 6), (4, 7), (5, 6), (5, 7), npus=4, switches=4)
    assert arrivals(tree, (0, 2, 1000), (1, 3, 1000)) == [4400, 4400]


def test_messages_go_on_the_quickest_path() -> None:
    triangle = graph_of(3, [(0, 1, 1e8, 0.0), (0, 2, 1e9, 0.0), (2, 1, 1e9, 0.0), (1, 0, 1e9, 0.0), (2, 0, 1e9, 0.0)])
    assert arrivals(triangle, (0, 1, 1000)) == [2000]
    assert [each.link for each in sent(triangle, (0, 1, 1000)).links] == ["0→2", "2→1"]


def test_a_custom_collective_is_relayed_by_none_where_a_link_is_there() -> None:
    triangle = graph_of(3, [(0, 1, 1e8, 0.0), (0, 2, 1e9, 0.0), (2, 1, 1e9, 0.0), (1, 0, 1e9, 0.0), (2, 0, 1e9, 0.0)])
    made: list[list[Node]] = [[send(1, 1000), send(2, 500, 1)], [receive(0, 1000), send(2, 10)], []]
    made[2] = [receive(0, 500, 1), receive(1, 10)]
    custom: dict[str, Any] = {"all_gather_implementation_custom": ["x"]}
    whole = on(triangle, [[collective("all_gather", 1000)]] * 3, **custom)
    found = simulate_job(replace(whole, scripts={"x": on(triangle, made).traces}))
    assert found.cycles == 10_000
    assert {each.link for each in found.links} == {"0→1", "0→2", "1→0"}  # from 1 to 2, NPU 0 must relay


def test_a_ring_all_reduce_by_hand() -> None:
    ring = like("Ring", 4, BYTE_PER_NS, LATE)
    assert alone(ring, "all_reduce", 4000) == 6 * 1100
    assert alone(ring, "all_reduce", 4000, endpoint_delay=10) == 6 * 1110 + 10


@pytest.mark.parametrize("algorithm", ["ring", "direct", "halvingDoubling", "doubleBinaryTree"])
@pytest.mark.parametrize("topology", ["Ring", "FullyConnected", "Switch"])
@pytest.mark.parametrize("npus", [4, 5])
def test_without_latency_it_agrees_with_the_aware_backend(topology: str, npus: int, algorithm: str) -> None:
    graph = like(topology, npus, BYTE_PER_NS, 0.0)
    net = network((topology, npus, 1e9 / 2**30, 0.0))
    for kind in ("all_reduce", "all_gather", "reduce_scatter"):
        ranks = [[collective(kind, 10_003)]] * npus
        aware = job(ranks, net, [algorithm], backend="aware", preferred_dataset_splits=2)
        assert simulate_job(
            on(graph, ranks, algorithm, endpoint_delay=10, local_mem_bw=1000, preferred_dataset_splits=2)
        ).cycles == (simulate_job(aware, folded=False).cycles)


@pytest.mark.parametrize("topology", ["Ring", "FullyConnected"])
def test_where_no_message_waits_it_agrees_at_any_rate_and_latency(topology: str) -> None:
    for npus, rate, latency_ns in ((3, 50.0, 500.0), (6, 23.7, 33.3), (8, 450.0, 0.7)):
        ranks = [[collective("all_reduce", 1_000_003)]] * npus
        aware = simulate_job(job(ranks, network((topology, npus, rate, latency_ns)), backend="aware")).cycles
        graph = like(topology, npus, rate * 2**30, latency_ns * 1e-9)
        assert (
            simulate_job(on(graph, ranks, endpoint_delay=10, local_mem_bw=1000, preferred_dataset_splits=4)).cycles
            == aware
        )


def star(npus: int) -> LinkGraph:
    return like("Switch", npus, 1.3e9, 5e-7)


def rails(npus: int) -> LinkGraph:
    """Return two nodes of *npus* each, behind a switch, and a slower switch for each rail."""
    within = [(i, 2 * npus + i // npus, 4e11, 5e-7) for i in range(2 * npus)]
    across = [(i, 2 * npus + 2 + i % npus, 5e10, 2e-6) for i in range(2 * npus)]
    ways = [way for a, b, rate, late in within + across for way in ((a, b, rate, late), (b, a, rate, late))]
    return graph_of(2 * npus, ways, 2 + npus)


def played(schedule: Schedule, graph: LinkGraph | None = None) -> int:
    """Return the time of a schedule's Chakra traces as a custom collective."""
    kind = schedule.kind.replace("_", "-")
    custom: dict[str, Any] = {f"{kind}-implementation-custom": ["x"]}
    ranks = [[collective(schedule.kind, int(schedule.size_bytes))]] * schedule.graph.npus
    whole = on(graph or schedule.graph, ranks, **custom)
    return simulate_job(replace(whole, scripts={"x": traces_of_schedule(schedule)})).cycles


@pytest.mark.parametrize("seed", range(6))
def test_chakra_traces_take_the_time_of_their_schedule(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(3, 9)))
    schedule = gathered(graph, 2, 1024.0 * graph.npus * int(rng.integers(1, 999)), rng)
    assert 0 <= to_nanoseconds(schedule.time_s) - played(schedule) <= 1


GRAPHS = (star(4), rails(4), like("Ring", 6, 1e9, 1e-6))
KINDS: tuple[Kind, ...] = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("graph", GRAPHS, ids=["star", "rails", "ring"])
def test_so_do_those_of_synthesized_schedules_through_switches(graph: LinkGraph, kind: Kind) -> None:
    schedule = synthesize(graph, kind, 2.0**26 * 3, chunks=2)
    assert 0 <= to_nanoseconds(schedule.time_s) - played(schedule) <= 1


@pytest.mark.parametrize("count", [2, 3])
def test_an_all_gather_over_several_switches_takes_the_time_of_its_schedule(count: int) -> None:
    schedule = synthesize(planes(6, count), "all_gather", 2.0**20 * 3, chunks=2)
    assert 0 <= to_nanoseconds(schedule.time_s) - played(schedule) <= 1


@pytest.mark.parametrize("seed", range(6))
def test_a_slower_link_makes_no_schedule_faster(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 6)
    schedule = gathered(graph, 2, 1e6 * 6, rng)
    slow = graph.bandwidth_bytes_per_s.copy()
    slow[rng.integers(graph.links)] *= rng.uniform(0.1, 0.9)
    assert played(schedule, replace(graph, bandwidth_bytes_per_s=slow)) >= played(schedule)


@pytest.mark.parametrize("seed", range(6))
def test_a_slower_link_makes_no_ring_on_a_ring_faster(seed: int) -> None:
    rng = np.random.default_rng(seed)
    npus = int(rng.integers(3, 9))
    rates, late = rng.uniform(5e8, 5e9, npus), rng.uniform(0, 1e-6, npus)
    slower = rates.copy()
    slower[rng.integers(npus)] *= rng.uniform(0.1, 0.9)
    links = [
        graph_of(npus, [(i, (i + 1) % npus, float(each[i]), float(late[i])) for i in range(npus)])
        for each in (rates, slower)
    ]
    for kind in ("all_reduce", "all_gather"):
        fast, slow = (alone(graph, kind, 100_003, preferred_dataset_splits=3) for graph in links)
        assert slow >= fast


@pytest.mark.parametrize("algorithm", ["ring", "direct", "halvingDoubling", "doubleBinaryTree"])
def test_links_of_half_the_rate_take_twice_as_long(algorithm: str) -> None:
    rng = np.random.default_rng(5)
    for _ in range(3):
        graph = random_graph(rng, int(rng.integers(3, 9)))
        graph = replace(graph, latency_s=graph.latency_s * 0)
        half = replace(graph, bandwidth_bytes_per_s=graph.bandwidth_bytes_per_s / 2)
        one, two = (alone(each, "all_reduce", 840_000, algorithm, local_mem_bw=1e15) for each in (graph, half))
        assert two == 2 * one


@pytest.mark.parametrize("seed", range(4))
def test_jobs_end_and_no_link_is_busier_than_the_time_there_is(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 6)
    groups = {"0": (0, 2, 4), "1": (1, 3, 5)}
    ranks = [
        [
            computation(int(rng.integers(1, 10**7)), 1000),
            collective("all_reduce", 60_000, str(rank % 2), [0]),
            collective("all_to_all", 60_000, None, [0]),
            send((rank + 1) % 6, 5000, 0, [1]),
            receive((rank - 1) % 6, 5000, 0, [0]),
        ]
        for rank in range(6)
    ]
    for more in ({}, {"rendezvous": True}, {"queues_per_dim": 2}, {"compat": False}, {"endpoint_delay": 10}):
        whole = on(graph, ranks, "direct", groups=groups, preferred_dataset_splits=2, **more)
        found = simulate_job(whole)
        assert found.cycles == simulate_job(whole).cycles
        assert found.simulated_ranks == 6
        assert max(each.busy_cycles for each in found.links) <= found.cycles
        assert [each.busy_cycles for each in found.links] == sorted((e.busy_cycles for e in found.links), reverse=True)
        assert 0 < found.dimensions[0].mean_utilization <= found.dimensions[0].max_utilization <= 1


def test_what_a_graph_does_not_do_is_said() -> None:
    graph = like("Switch", 4, 1e9, 0.0)
    ranks: list[list[Node]] = [[collective("all_reduce", 1000)]] * 4
    with pytest.raises(SpecError, match=r"inSwitch = '4 NPUs': no switch of a network of links reduces here"):
        simulate_job(on(graph, ranks, "inSwitch"))
    with pytest.raises(SpecError, match=r"backend = 'unaware': messages queue on the links"):
        replace(on(graph, ranks), backend="unaware")
    with pytest.raises(SpecError, match=r"the network has 4 NPUs: one trace for each"):
        on(graph, ranks[:3])
    with pytest.raises(SpecError, match=r"one for each of 1 dimensions"):
        simulate_job(
            job(ranks, SimulatedNetwork((dimension_of(graph),)), ["ring", "ring"], graph=graph, backend="aware")
        )
