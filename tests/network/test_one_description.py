"""An algorithm's rounds, its closed form, its loads on links, its messages in the event engine and its schedule agree."""

from __future__ import annotations

from dataclasses import replace
from math import isclose

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.base.native.library import native_library
from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.network.collective_costs import collective_terms
from cosmic.network.collective_rounds import Rounds, rounds_of, usable_share
from cosmic.network.dimension_wiring import healthy_graph
from cosmic.network.link_costs import link_terms
from cosmic.network.link_graph import LinkGraph
from cosmic.network.schedules.baseline_algorithms import algorithms_of, textbook_schedule
from cosmic.network.schedules.collective_schedule import KINDS, Kind
from cosmic.network.schedules.schedule_checking import check_schedule, infer_reducing
from cosmic.simulate.events.trace_simulation import simulate_job
from tests.simulate.jobs import collective, job
from tests.simulate.jobs import network as dimensions

DESCRIBED = ("ring", "direct", "halving_doubling", "double_binary_tree")
COLLECTIVES: tuple[CollectiveKind, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


@pytest.mark.parametrize("name", DESCRIBED)
@pytest.mark.parametrize("kind", COLLECTIVES)
def test_the_closed_form_is_the_sum_over_rounds(name: str, kind: CollectiveKind) -> None:
    algorithm = algorithms[name]
    for members in range(2, 65):
        rounds = rounds_of(algorithm, kind, members)
        assert float(algorithm.steps(kind, members)) == rounds.steps, members
        assert isclose(float(algorithm.traffic(kind, members)), float(rounds.traffic), rel_tol=1e-12), members
        if kind != "all_to_all":
            assert isclose(float(algorithm.peers(members)), rounds.traffic / rounds.pair_traffic, rel_tol=1e-12)


@pytest.mark.parametrize(
    ("topology", "names"), [("switch", DESCRIBED), ("fully_connected", DESCRIBED), ("ring", ("ring",))]
)
@pytest.mark.parametrize("kind", COLLECTIVES)
def test_the_closed_form_is_what_the_most_loaded_link_takes(
    topology: str, names: tuple[str, ...], kind: CollectiveKind
) -> None:
    for name in names:
        algorithm = algorithms[name]
        for members in range(2, 65):
            links, seconds = collective_terms(kind, topology, name, members, members, 1)
            hops, share_s = link_terms(kind, topology, name, members, members, 1)
            traffic = float(algorithm.traffic(kind, members))
            assert isclose(links, float(algorithm.steps(kind, members)) * hops), (name, members)
            assert isclose(seconds, traffic * share_s, rel_tol=1e-9), (name, members)


def network(topology: str, npus: int) -> LinkGraph:
    """Return a network whose NPUs inject 1e9 bytes per second, with 1 us a link."""
    graph = healthy_graph(topology, npus)
    return LinkGraph(
        graph.npus,
        graph.sources,
        graph.targets,
        graph.bandwidth_bytes_per_s * 1e9,
        np.full(graph.links, 1e-6),
        graph.switches,
    )


@pytest.mark.parametrize("topology", ["ring", "switch", "fully_connected", "torus_2d", "hybrid_cube_mesh"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_algorithm_is_a_valid_schedule_on_every_network(topology: str, kind: Kind) -> None:
    sizes = (8,) if topology == "hybrid_cube_mesh" else (4, 6, 9)
    for npus in sizes:
        if topology == "torus_2d" and npus == 6:
            continue
        for name in algorithms_of(kind):
            try:
                schedule = textbook_schedule(network(topology, npus), name, kind, 1e6, [range(npus)])
            except SpecError as error:
                # Its messages would go through members that they are not for.
                assert topology in ("ring", "torus_2d", "hybrid_cube_mesh"), (name, npus)
                assert "no path of switches" in str(error)
                continue
            verdict = check_schedule(schedule)
            assert verdict.valid, (name, npus, verdict.examples)
            assert check_schedule(replace(schedule, reduces=None)).valid
            assert (infer_reducing(schedule) == schedule.reduces).all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_algorithm_is_a_valid_schedule_of_any_number_of_members(kind: Kind) -> None:
    for members in (2, 3, 5, 6, 7, 12, 16, 33, 64):
        graph = network("fully_connected", members)
        for name in algorithms_of(kind):
            if kind == "all_to_all" and members > 16 and name != "direct":
                continue
            verdict = check_schedule(textbook_schedule(graph, name, kind, 1e6, [range(members)]))
            assert verdict.valid, (name, members, verdict.examples)


def test_shares() -> None:
    assert usable_share("fully_connected", "double_binary_tree", 8, 8, 1) == 2 / 7


TYPES = {
    "all_reduce": "ALL_REDUCE",
    "all_gather": "ALL_GATHER",
    "reduce_scatter": "REDUCE_SCATTER",
    "all_to_all": "ALL_TO_ALL",
}
PER_MEMBER = 2**6 * 3**2 * 5 * 7 * 11 * 13
"""Bytes: a whole number of every chunk of up to 16 members."""


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("name", DESCRIBED)
@pytest.mark.parametrize("kind", COLLECTIVES)
def test_the_event_engine_takes_what_the_rounds_add_up_to(
    name: str, kind: CollectiveKind, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every two NPUs have a link of 1 byte per ns and 500 ns: a round takes its largest message, a tree its levels."""
    if native and native_library() is None:
        pytest.skip("there is no compiled library")
    monkeypatch.setenv("COSMIC_NATIVE", str(int(native)))
    for members in (2, 3, 4, 6, 8, 13, 16):
        size = PER_MEMBER * members
        stated = size // members if kind == "all_gather" else size
        ranks = [[collective(TYPES[kind], stated)]] * members
        dims = dimensions(("FullyConnected", members, 1e9 / 2**30, 500.0))
        more = {"endpoint_delay": 0, "local_mem_bw": 1e9, "preferred_dataset_splits": 1}
        simulated = simulate_job(job(ranks, dims, [f"cosmic:{name}"], **more))
        rounds = rounds_of(algorithms[name], kind, members)
        assert simulated.cycles == last_arrival_ns(rounds, size), members
        in_turn = sum(one.times * one.levels * (500 + round(float(one.sizes.max()) * size)) for one in rounds.rounds)
        # Where messages of a round differ in size, members that have theirs go on: the sum over rounds is the most.
        even = all(len(set(one.sizes.tolist())) == 1 for one in rounds.rounds)
        assert simulated.cycles == in_turn if even else simulated.cycles <= in_turn, members


def last_arrival_ns(rounds: Rounds, size: int) -> int:
    """Return when the last message arrives, if each is sent when its sender has received what came before."""
    ready = [0] * rounds.members
    for one in rounds.rounds:
        levels = [0] * len(one.source) if one.level is None else one.level.tolist()
        for level in sorted(set(levels)) * one.times:
            arrived = ready[:]
            for source, target, share, own in zip(one.source, one.target, one.sizes, levels, strict=True):
                if own == level:
                    arrived[target] = max(arrived[target], ready[source] + 500 + round(float(share) * size))
            ready = arrived
    return max(ready)
