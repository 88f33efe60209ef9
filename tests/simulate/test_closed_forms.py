"""One collective alone has a formula: an independent way to the same nanoseconds."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.simulate.events.trace_simulation import simulate_job
from tests.simulate.closed_forms import Dimension, System, collective_ns, pipeline_ns
from tests.simulate.jobs import collective, job, network

TOPOLOGIES = {"ring": "Ring", "fully_connected": "FullyConnected", "switch": "Switch"}
ALGORITHMS = {"ring": "ring", "direct": "direct", "halving_doubling": "halvingDoubling"}


@st.composite
def dimensions(draw: st.DrawFn) -> list[Dimension]:
    """Return dimensions in which every rank is in the same position; near peers of a ring would be served earlier."""
    algorithm = draw(st.sampled_from(list(ALGORITHMS)))
    topologies = ["switch", "fully_connected"] if algorithm == "direct" else list(TOPOLOGIES)
    sizes = st.sampled_from([2, 4, 8]) if algorithm == "halving_doubling" else st.integers(2, 6)
    return [
        Dimension(
            topology=draw(st.sampled_from(topologies)),
            npus=draw(sizes),
            algorithm=algorithm,
            bandwidth_gib_per_s=draw(st.sampled_from([12.5, 50.0, 400.0])),
            latency_ns=draw(st.sampled_from([0.0, 20.0, 936.25])),
        )
        for _ in range(draw(st.integers(1, 2)))
    ]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(dimensions(), st.data())
def test_a_collective_alone_takes_what_the_formula_says(dims: list[Dimension], data: Any) -> None:
    kinds = ["all_reduce", "all_gather", "reduce_scatter"]
    kind = data.draw(st.sampled_from(kinds if dims[0].algorithm == "halving_doubling" else [*kinds, "all_to_all"]))
    size = data.draw(st.integers(8, 2**24))
    system = System(
        memory_bandwidth_gb_per_s=data.draw(st.sampled_from([50.0, 1600.0, 3350.0])),
        splits=data.draw(st.integers(1, 5)),
        active_chunks=data.draw(st.integers(1, 3)),
        endpoint_delay_ns=data.draw(st.sampled_from([0, 10, 1000])),
        all_reduce_in_every_dimension=data.draw(st.booleans()),
    )
    net = network(*((TOPOLOGIES[d.topology], d.npus, d.bandwidth_gib_per_s, d.latency_ns) for d in dims))
    work = job(
        [[collective(kind, size)]] * net.npus,
        net,
        [ALGORITHMS[dim.algorithm] for dim in dims],
        local_mem_bw=system.memory_bandwidth_gb_per_s,
        preferred_dataset_splits=system.splits,
        active_chunks_per_dimension=system.active_chunks,
        endpoint_delay=system.endpoint_delay_ns,
        collective_optimization="baseline" if system.all_reduce_in_every_dimension else "localBWAware",
    )
    assert simulate_job(work, folded=data.draw(st.booleans())).cycles == collective_ns(kind, size, dims, system)


def test_chunks_follow_each_other_through_dimensions() -> None:
    assert pipeline_ns([(0, 4), (1, 2), (0, 1)], 1, 1) == 7
    assert pipeline_ns([(0, 4), (1, 2), (0, 1)], 2, 1) == 11  # 0 to 4, 4 to 8; 8 to 10; 10 to 11
