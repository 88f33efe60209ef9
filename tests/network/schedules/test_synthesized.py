"""Synthesized schedules: the validator finds nothing, and the event engine takes the time that they state."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cosmic.network.link_graph import LinkGraph
from cosmic.network.network_files.network_file import degrade_links, read_graph
from cosmic.network.schedules.collective_schedule import KINDS, Kind
from cosmic.network.schedules.schedule_checking import check_schedule
from cosmic.network.schedules.schedule_replay import simulate_schedule, to_nanoseconds
from tests.network.schedules.made import random_graph, ring, star

synthesizing = pytest.importorskip(
    "cosmic.network.synthesis.schedule_synthesis", reason="nothing synthesizes schedules here"
)
LINKS = Path(__file__).parents[4] / "shared" / "reference" / "collectives" / "tacos_links"
NETWORKS = {
    "ring": ring(6),
    "slow link": degrade_links(ring(5), ["0-1*0.25"]),
    "switch": star(4),
    "several speeds": random_graph(np.random.default_rng(7), 7),
}


def assert_as_stated(graph: LinkGraph, kind: Kind, chunks: int | None = None) -> None:
    """Synthesize, check and simulate."""
    schedule = synthesizing.synthesize(graph, kind, 64e6, chunks=chunks)
    verdict = check_schedule(schedule)
    assert verdict.valid, verdict.examples
    assert simulate_schedule(schedule) == to_nanoseconds(schedule.time_s)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NETWORKS)
def test_small_networks(name: str, kind: Kind) -> None:
    assert_as_stated(NETWORKS[name], kind, 4)


@pytest.mark.long
@pytest.mark.skipif(not LINKS.is_dir(), reason="the reference data is not here")
@pytest.mark.parametrize("kind", KINDS)
def test_reference_networks(kind: Kind) -> None:
    for path in sorted(LINKS.glob("*.txt")):
        graph = read_graph(path)
        if ".rev" not in path.name and graph.npus <= (64 if kind in ("all_gather", "reduce_scatter") else 20):
            assert_as_stated(graph, kind)
