"""Schedules without gaps: the event engine, which starts transfers as early as it can, gains nothing on them."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np

from cosmic.network.link_graph import LinkGraph, graph_of
from cosmic.network.schedules.collective_schedule import Kind
from cosmic.network.schedules.schedule_checking import check_schedule
from cosmic.network.schedules.schedule_replay import simulate_schedule, to_nanoseconds
from cosmic.network.synthesis.schedule_synthesis import settle_transfers, synthesize
from cosmic.network.synthesis.synthesis_loops import Transfers
from tests.batches import check_all


def uneven(seed: int) -> LinkGraph:
    """Return a ring with chords, of links of different bandwidths and latencies; every third has switches."""
    rng = np.random.default_rng(seed)
    npus, switches = int(rng.integers(3, 9)), int(rng.integers(1, 3)) if seed % 3 == 0 else 0
    nodes = npus + switches
    ends = {(node, (node + 1) % nodes) for node in range(nodes)}
    ends |= {(b, a) for a, b in ends if seed % 2}
    chords = rng.integers(0, nodes, (nodes, 2)).tolist()
    ends |= {(a, b) for a, b in chords if a != b}
    links = [(a, b, 1e9 * rng.choice([10, 25, 50]), 1e-6 * rng.choice([0, 0.5, 2])) for a, b in sorted(ends)]
    return graph_of(npus, links, switches)


@check_all("kind", get_args(Kind), tests=4)
@check_all("seed", range(12))
def test_a_schedule_takes_as_long_in_the_event_engine_as_it_says(seed: int, kind: Kind) -> None:
    schedule = synthesize(uneven(seed), kind, 1e8, chunks=1 + seed % 4)
    assert check_schedule(schedule).valid
    assert simulate_schedule(schedule) == to_nanoseconds(schedule.time_s)


def test_sums_in_switches_have_no_gaps() -> None:
    star = graph_of(4, [(a, b, 1e9, 1e-6) for i in range(4) for a, b in ((i, 4), (4, i))], 1)
    schedule = synthesize(replace(star, reducing=frozenset({4})), "all_reduce", 1e6)
    assert check_schedule(schedule).valid
    assert simulate_schedule(schedule) == to_nanoseconds(schedule.time_s)


def test_a_transfer_moves_up_to_the_end_of_what_it_waits_for() -> None:
    """Chunk 0 goes over two links of 1 s; each began a second late, and a third transfer waits for its link."""
    line = graph_of(3, [(0, 1, 1.0, 0.0), (1, 2, 1.0, 0.0)])
    late = Transfers(np.array([0, 0, 1]), np.array([0, 3, 0]), np.array([1.0, 2.5, 3.0]), np.array([2.0, 3.5, 4.0]))
    found = settle_transfers(line, late)
    assert (found.link.tolist(), found.start_s.tolist()) == ([0, 0, 1], [0.0, 1.0, 1.0])
    assert found.time_s == 2.0
    assert settle_transfers(line, found) is found


def test_a_switch_passes_on_what_came_first() -> None:
    """Two messages of one chunk come at 1 and 2 s; the first leaves at 1 s, though it was to leave at 2.5 s."""
    star = graph_of(3, [(0, 3, 1.0, 0.0), (3, 1, 1.0, 0.0), (3, 2, 1.0, 0.0)], 1)
    late = Transfers(
        np.array([0, 0, 1, 2]), np.zeros(4, np.int64), np.array([0.0, 1.0, 2.5, 3.0]), np.array([1.0, 2.0, 3.5, 4.0])
    )
    assert settle_transfers(star, late).end_s.tolist() == [1.0, 2.0, 2.0, 3.0]
