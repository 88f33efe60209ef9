"""The loops of the synthesis in C and in Python: the same bits on random networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.base.native.library import SWITCH, native_library
from cosmic.network.synthesis.max_flow import cut_rate, member_distances, net_of
from cosmic.network.synthesis.synthesis_loops import (
    Growing,
    Playing,
    SpreadProblem,
    plan_trees,
    play_transfers,
    routes_of,
)

from .checker import random_network

pytestmark = pytest.mark.skipif(native_library() is None, reason="no compiler was at hand")
NETWORKS = st.builds(random_network, st.integers(0, 2**16), switches=st.booleans())


def in_both(run: Callable[[], Any]) -> list[Any]:
    """Return what C gives, and what Python gives."""
    with pytest.MonkeyPatch.context() as patch:
        found = run()
        patch.setenv(SWITCH, "0")
        return [found, run()]


@settings(max_examples=40, deadline=None)
@given(NETWORKS, st.data())
def test_trees_and_transfers(graph: Any, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    routes, chunks = routes_of(graph, 10_000), data.draw(st.integers(1, 12))
    origin = rng.integers(0, graph.npus, chunks)
    need = np.zeros((chunks, len(routes.keepers)), np.uint8)
    need[:, : graph.npus] = rng.integers(0, 2, (chunks, graph.npus))
    need[np.arange(chunks), origin] = 0
    seconds = np.array([graph.latency_s + size / graph.bandwidth_bytes_per_s for size in (1e6, 3e7)])
    size, release = rng.integers(0, 2, chunks), 1e-4 * rng.integers(0, 2, chunks).astype(np.float64)
    paths, rounds, turn = data.draw(st.tuples(st.booleans(), st.integers(1, 3), st.booleans()))
    playing = Playing(data.draw(st.booleans()), data.draw(st.integers(1, 16)), data.draw(st.booleans()), turn, rounds)

    def run() -> tuple[Any, ...]:
        links = np.arange(graph.links)
        problem = SpreadProblem(routes, links, seconds, size, origin, need.copy(), release)
        reached = plan_trees(problem, Growing(target_s=1e-3, mu=0.3, paths=paths, rounds=rounds, seed=turn))
        done = play_transfers(problem, playing) if reached else None
        columns = (done.link, done.chunk, done.start_s, done.end_s) if done else ()
        return reached, problem.plan.tolist(), problem.need.tolist(), *(column.tolist() for column in columns)

    found, wanted = in_both(run)
    assert found == wanted


@settings(max_examples=60, deadline=None)
@given(NETWORKS, st.booleans(), st.floats(1e6, 1e12))
def test_cuts_and_distances(graph: Any, rooted: bool, rate: float) -> None:
    members, sinks = np.arange(graph.npus), np.arange(rooted, graph.npus)
    flows, lengths = net_of(graph, graph.bandwidth_bytes_per_s), net_of(graph, graph.latency_s)

    def run() -> tuple[Any, ...]:
        lowest, cut = cut_rate(flows, members, 0 if rooted else None, sinks, rate)
        far = member_distances(lengths, members, members)
        return lowest, cut is not None and cut.tolist(), far.largest.tolist(), far.total.tolist(), far.load.tolist()

    found, wanted = in_both(run)
    assert found == wanted
