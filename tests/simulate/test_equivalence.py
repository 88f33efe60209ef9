"""Shortcuts change nothing: equivalent ranks simulated once, phases evaluated in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.simulate.events.astra_sim_inputs import INTER, INTRA
from cosmic.simulate.events.message_fabrics import SimulatedNetwork
from cosmic.simulate.events.simulation_job import Job
from cosmic.simulate.events.trace_simulation import simulate_job
from tests.simulate.jobs import collective, computation, job, network, receive, send

TOPOLOGIES = st.sampled_from(["Ring", "FullyConnected", "Switch"])
ALGORITHMS = st.sampled_from(["ring", "direct", "direct2", "halvingDoubling", "doubleBinaryTree", "inSwitch"])
FLAT = st.sampled_from(["oneRing", "oneDirect", "oneHalvingDoubling"])
KINDS = st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
SIZES = st.sampled_from([1, 100, 4096, 10**6, 2**24])


@st.composite
def dimensions(draw: st.DrawFn, most: int) -> Any:
    shapes = st.sampled_from([(2,), (4,), (8,), (3,), (2, 2), (4, 2), (2, 4), (3, 2), (2, 2, 2)])
    shape = draw(shapes.filter(lambda each: len(each) <= most))
    speeds = st.sampled_from([(50.0, 500.0), (100.0, 20.0), (12.5, 1000.0), (200.0, 0.0)])
    return network(*((draw(TOPOLOGIES), npus, *draw(speeds)) for npus in shape))


@st.composite
def groupings(draw: st.DrawFn, npus: int) -> dict[str, tuple[int, ...]]:
    """Return groups that divide the ranks evenly, next to each other or apart."""
    size = draw(st.sampled_from([each for each in (1, 2, 3, 4) if npus % each == 0]))
    apart = draw(st.booleans())
    count = npus // size
    return {
        str(place + 1): tuple(range(place, npus, count) if apart else range(place * size, (place + 1) * size))
        for place in range(count)
    }


@st.composite
def algorithms(draw: st.DrawFn, net: SimulatedNetwork) -> list[str]:
    """Return an algorithm for each dimension, or one for all; switches add in their own dimensions only."""
    if draw(st.integers(0, 4)) == 0:
        return [draw(FLAT)]
    chosen = [draw(ALGORITHMS) for _ in net.dims]
    switched = all(dim.topology == "Switch" for dim in net.dims)  # a group may cross any
    return ["ring" if each == "inSwitch" and not switched else each for each in chosen]


def allowed(kind: str, chosen: list[str]) -> str:
    """Return a kind of collective that the algorithms have."""
    if "doubleBinaryTree" in chosen or ("alvingDoubling" in "".join(chosen) and kind == "all_to_all"):
        return "all_reduce"
    return kind


@st.composite
def jobs(draw: st.DrawFn, /, *, backend: str, most_dims: int = 3, rules: Sequence[str] = INTRA, **more: Any) -> Job:
    """Return jobs whose ranks run the same collectives, and now and then something of their own."""
    net = draw(dimensions(most_dims))
    groups = draw(groupings(net.npus))
    of = {rank: name for name, members in groups.items() for rank in members}
    ranks: list[list[Any]] = [[] for _ in range(net.npus)]
    lagging = draw(st.sampled_from([None, None, 0, net.npus - 1]))
    chosen = draw(algorithms(net))
    for place in range(draw(st.integers(1, 4))):
        what = draw(st.sampled_from(["compute", "all", "group", "shift"]))
        kind, size = allowed(draw(KINDS), chosen), draw(SIZES)
        size = max(size, 4) if kind == "all_gather" else size
        operations = draw(st.sampled_from([10**6, 10**9, 3 * 10**8]))
        shift = draw(st.integers(1, net.npus - 1))
        chained = draw(st.booleans())
        for rank, nodes in enumerate(ranks):
            after = [len(nodes) - 1] if nodes and chained else []
            if what == "compute":
                nodes.append(computation(operations * (3 if rank == lagging else 1), 10**6, after))
            elif what == "shift":
                nodes.append(send((rank + shift) % net.npus, size, place, after))
                nodes.append(receive((rank - shift) % net.npus, size, place))
            else:
                nodes.append(collective(kind, size, of[rank] if what == "group" else None, after))
    return job(
        ranks,
        net,
        chosen,
        groups=groups,
        backend=backend,
        queues_per_dim=draw(st.sampled_from([1, 1, 2])),
        preferred_dataset_splits=draw(st.integers(1, 4)),
        active_chunks_per_dimension=draw(st.integers(1, 3)),
        scheduling_policy=draw(st.sampled_from(["LIFO", "FIFO"])),
        collective_optimization=draw(st.sampled_from(["localBWAware", "baseline"])),
        intra_dimension_scheduling=draw(st.sampled_from(["FIFO", *rules])),
        inter_dimension_scheduling=draw(st.sampled_from(["ascending", *INTER])),
        **more,
    )


def ends(work: Job, **how: bool) -> list[int] | str:
    """Return when ranks are done; orders that make them wait for each other must do so in every way."""
    try:
        return [npu.cycles for npu in simulate_job(work, **how).per_npu]
    except SpecError:
        return "deadlock"


@settings(max_examples=80, deadline=None, derandomize=True)
@given(jobs(backend="unaware"))
def test_phases_evaluated_at_once_end_as_if_simulated(work: Job) -> None:
    assert ends(work, folded=False) == ends(work, folded=False, closed_forms=False)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(jobs(backend="unaware"))
def test_ranks_alike_end_as_if_each_were_simulated(work: Job) -> None:
    assert ends(work) == ends(work, folded=False)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(jobs(backend="aware", most_dims=2))
def test_so_do_they_where_links_are_queues(work: Job) -> None:
    assert ends(work) == ends(work, folded=False)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(jobs(backend="unaware", compat=False))
def test_so_do_they_where_an_npu_shares_its_bandwidth(work: Job) -> None:
    assert ends(work) == ends(work, folded=False)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(jobs(backend="unaware", rendezvous=True) | jobs(backend="aware", most_dims=2, rendezvous=True))
def test_so_do_they_where_receivers_say_first_that_they_are_ready(work: Job) -> None:
    assert ends(work) == ends(work, folded=False)
