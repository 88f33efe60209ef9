"""Links and ports, in numbers worked by hand: a byte takes a nanosecond, a link 100 more."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.simulate.events.message_fabrics import SimulatedNetwork
from cosmic.simulate.events.simulation_result import SimulationResult
from cosmic.simulate.events.trace_simulation import simulate_job
from tests.simulate.jobs import Node, collective, job, network, receive, send

BYTE_PER_NS = 1e9 / 2**30
"""In units of 2**30 bytes per second."""
TOPOLOGIES = ("Ring", "FullyConnected", "Switch")
QUIET: dict[str, Any] = {"endpoint_delay": 0, "local_mem_bw": 1e9, "preferred_dataset_splits": 1}
Message = tuple[int, int, int]


def dims(*shape: tuple[str, int]) -> SimulatedNetwork:
    return network(*((topology, npus, BYTE_PER_NS, 100.0) for topology, npus in shape))


def sent(net: SimulatedNetwork, *messages: Message, **more: Any) -> SimulationResult:
    """Return the result of messages (from, to, bytes), all sent at once if by different ranks."""
    ranks: list[list[Node]] = [[] for _ in range(net.npus)]
    for tag, (source, target, size) in enumerate(messages):
        ranks[source].append(send(target, size, tag))
        ranks[target].append(receive(source, size, tag))
    return simulate_job(job(ranks, net, **more))


def arrivals(net: SimulatedNetwork, *messages: Message, **more: Any) -> list[int]:
    """Return when each of some messages, of one sender each, has arrived."""
    sends = {each.ranks[0]: each.ended[each.template.type == 5] for each in sent(net, *messages, **more).rank_times}
    return [int(sends[source][0]) for source, _, _ in messages]


def alone(kind: str, size: int, net: SimulatedNetwork, algorithm: str, **more: Any) -> SimulationResult:
    algorithms = [algorithm] * len(net.dims)
    return simulate_job(job([[collective(kind, size)]] * net.npus, net, algorithms, **(QUIET | more)))


def test_a_link_takes_latency_and_serialisation() -> None:
    for backend in ("unaware", "aware"):
        assert arrivals(dims(("Ring", 4)), (0, 1, 1000), backend=backend) == [1100]
        assert arrivals(dims(("FullyConnected", 4)), (0, 2, 1000), backend=backend) == [1100]


def test_a_message_is_stored_before_it_is_forwarded() -> None:
    assert arrivals(dims(("Ring", 5)), (0, 2, 1000), backend="aware") == [2 * 1100]
    assert arrivals(dims(("Ring", 5)), (0, 2, 1000)) == [2 * 100 + 1000]


def test_a_switch_is_paid_for_twice() -> None:
    assert arrivals(dims(("Switch", 4)), (0, 3, 1000), backend="aware") == [2 * 1100]
    assert arrivals(dims(("Switch", 4)), (0, 3, 1000)) == [2 * 100 + 1000]


def test_a_ring_goes_the_shorter_way() -> None:
    ring = dims(("Ring", 7))
    hops = [arrivals(ring, (0, target, 1000), backend="aware")[0] // 1100 for target in range(1, 7)]
    assert hops == [1, 2, 3, 3, 2, 1]
    assert [link.link for link in sent(dims(("Ring", 4)), (0, 2, 8), backend="aware").links] == [
        "dim 0: 0→1",
        "dim 0: 1→2",
    ]  # of two ways as long, upwards


def test_a_link_is_busy_while_bytes_enter_it_and_then_serves_who_waits() -> None:
    ring = dims(("Ring", 5))
    assert arrivals(ring, (1, 2, 1000), (0, 2, 1000), backend="aware") == [1100, 2200]  # nobody waits
    assert arrivals(ring, (1, 2, 2000), (0, 2, 1000), backend="aware") == [2100, 2000 + 1100]
    assert arrivals(ring, (1, 2, 2000), (0, 2, 1000)) == [2100, 1200]  # no message delays another


def test_directions_of_a_cable_do_not_delay_each_other() -> None:
    assert arrivals(dims(("Ring", 2)), (0, 1, 1000), (1, 0, 1000), backend="aware") == [1100, 1100]


def test_messages_into_one_npu_queue_up_behind_the_switch() -> None:
    net = dims(("Switch", 4))
    assert arrivals(net, (1, 0, 1000), (2, 0, 1000), (3, 0, 1000), backend="aware") == [2200, 3200, 4200]
    assert arrivals(net, (1, 0, 1000), (2, 3, 1000), backend="aware") == [2200, 2200]
    found = sent(net, (1, 0, 1000), (2, 0, 1000), backend="aware")
    assert found.links[0].link == "dim 0: switch→0"
    assert found.links[0].busy_cycles == 2000


def test_dimensions_are_crossed_one_after_another_the_innermost_first() -> None:
    net = dims(("Ring", 2), ("Switch", 2))
    found = sent(net, (0, 3, 1000), backend="aware")
    assert found.cycles == 1100 + 2 * 1100
    assert {link.link for link in found.links} == {"dim 0: 0→1", "dim 1: 1→switch", "dim 1: switch→3"}
    assert sent(net, (0, 3, 1000)).cycles == 1100  # as in ASTRA-sim: only the first counts
    assert sent(net, (0, 3, 1000), compat=False).cycles == 3 * 100 + 1000


def test_use_is_bytes_over_bandwidth() -> None:
    found = sent(dims(("Ring", 2)), (0, 1, 900))
    assert found.dimensions[0].sent_bytes == 900
    assert found.dimensions[0].max_utilization == pytest.approx(0.9)
    assert found.dimensions[0].mean_utilization == pytest.approx(0.45)


# ---- one bandwidth for all


@pytest.mark.parametrize("active", [1, 2, 4, 8])
def test_more_chunks_at_a_time_do_not_multiply_an_npus_bandwidth(active: int) -> None:
    net, size = dims(("Ring", 4)), 2**20
    chunks = {"preferred_dataset_splits": 8, "active_chunks_per_dimension": active}
    needed = 2 * 3 * size / 4
    assert alone("all_reduce", size, net, "ring", compat=False, **chunks).cycles >= needed
    as_in_astra_sim = alone("all_reduce", size, net, "ring", **chunks).cycles
    assert (as_in_astra_sim < needed) == (active > 1)


@settings(max_examples=30)
@given(st.sampled_from(TOPOLOGIES), st.integers(2, 6), st.integers(64, 2**20), st.integers(1, 4), st.integers(1, 4))
def test_all_to_all_takes_what_leaves_an_npu(topology: str, npus: int, size: int, splits: int, active: int) -> None:
    chunks = {"preferred_dataset_splits": splits, "active_chunks_per_dimension": active}
    found = alone("all_to_all", size, dims((topology, npus)), "direct", compat=False, **chunks)
    assert found.cycles >= (npus - 1) * (size // npus // splits) * splits
    assert found.dimensions[0].max_utilization <= 1


def test_all_to_all_between_all_pairs_takes_its_share_of_the_buffer() -> None:
    net, size = dims(("FullyConnected", 8)), 8000
    assert alone("all_to_all", size, net, "direct", compat=False).cycles == 7 * 1000 + 100
    assert alone("all_to_all", size, net, "direct").cycles == 1000 + 100  # as in ASTRA-sim: all at once


@settings(max_examples=30)
@given(st.data())
def test_links_that_are_queues_never_make_a_collective_faster(data: Any) -> None:
    algorithm = data.draw(st.sampled_from(["ring", "direct", "direct2", "halvingDoubling"]))
    npus = data.draw(st.sampled_from([2, 4, 8]) if algorithm == "halvingDoubling" else st.integers(2, 6))
    kinds = ["all_reduce", "all_gather", "reduce_scatter"] + ["all_to_all"] * (algorithm != "halvingDoubling")
    net = network(
        (
            data.draw(st.sampled_from(TOPOLOGIES)),
            npus,
            data.draw(st.sampled_from([12.5, 50.0])),
            data.draw(st.sampled_from([0.0, 500.0])),
        )
    )
    kind, size = data.draw(st.sampled_from(kinds)), data.draw(st.integers(8, 2**22))
    more = {
        "preferred_dataset_splits": data.draw(st.integers(1, 4)),
        "active_chunks_per_dimension": data.draw(st.integers(1, 3)),
    }
    aware = alone(kind, size, net, algorithm, backend="aware", **more)
    assert aware.cycles >= alone(kind, size, net, algorithm, **more).cycles
    assert all(link.utilization <= 1 for link in aware.links)
