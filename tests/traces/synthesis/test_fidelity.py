"""Distances between traces are what a person finds by hand, and tell a model from a baseline."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cosmic.accuracy.trace_fidelity import (
    comparison_networks,
    fidelity_rows,
    kolmogorov_smirnov,
    measure_fidelity,
    report_fidelity,
    resample,
    wasserstein,
)
from cosmic.traces.synthesis.rank_roles import source_job
from cosmic.traces.synthesis.trace_model import fit_model, synthesize
from cosmic.traces.trace import RankTrace, TraceSet, template_of
from cosmic.traces.trace_checks import list_problems
from tests.traces.synthesis.jobs import COLLECTIVE, COMP, Given, layers, pipeline


def chain(*durations: int, ranks: int = 2) -> Given:
    """Return compute nodes in a chain, the same on each rank."""
    rows = [
        {"id": at, "type": COMP, "duration_us": each, "data": [at - 1] if at else []}
        for at, each in enumerate(durations)
    ]
    template = template_of(rows)
    return TraceSet(tuple(RankTrace(template) for _ in range(ranks))), {}


def test_traces_are_no_distance_from_themselves() -> None:
    job = pipeline(4)
    found = measure_fidelity(job, job)
    assert (found.types, found.bigrams, found.in_degrees, found.out_degrees) == (0, 0, 0, 0)
    assert (found.nodes, found.critical_path) == (1, 1)
    assert set(found.sizes.values()) == {0.0}
    assert found.seconds == {"ring": 0.0, "switch": 0.0, "2-D": 0.0}


def test_distances_are_those_found_by_hand() -> None:
    found = measure_fidelity(chain(10, 20, 30, 40), chain(10, 20))
    assert found.types == found.bigrams == 0
    # At 20 µs all of the shorter chain is done, and half of the longer one.
    assert found.sizes == {"duration_us": 0.5}
    # Of four nodes, one depends on nothing; of two, one: 3/4 against 1/2 have one dependency.
    assert found.in_degrees == found.out_degrees == pytest.approx(0.25)
    assert found.nodes == 2
    assert found.critical_path == pytest.approx(100 / 30)
    assert found.seconds == {"ring": pytest.approx(7 / 3), "switch": pytest.approx(7 / 3)}


def test_shares_of_types_are_of_all_ranks() -> None:
    one = template_of([{"id": 0, "type": COMP}])
    two = template_of([{"id": 0, "type": COLLECTIVE, "comm_type": 9}])
    mixed = TraceSet((RankTrace(one), RankTrace(one), RankTrace(one), RankTrace(two)))
    whole = TraceSet((RankTrace(one),) * 4)
    assert measure_fidelity((mixed, {}), (whole, {}), simulated=False).types == pytest.approx(0.25)


def test_weights_count_as_repeated_values() -> None:
    values, weights = np.array([1, 5]), np.array([3.0, 1.0])
    assert kolmogorov_smirnov(values, weights, np.array([1, 1, 1, 5]), np.ones(4)) == 0
    assert wasserstein(values, weights, np.array([1]), np.ones(1)) == pytest.approx(1.0)


def test_networks_have_two_dimensions_where_ranks_have_two_factors() -> None:
    assert {name: [dim.npus for dim in each.dims] for name, each in comparison_networks(12).items()} == {
        "ring": [12],
        "switch": [12],
        "2-D": [3, 4],
    }
    assert set(comparison_networks(7)) == {"ring", "switch"}
    assert comparison_networks(1) == {}


def test_other_numbers_of_ranks_are_not_timed() -> None:
    found = measure_fidelity(chain(1, ranks=4), chain(1, ranks=2))
    assert found.seconds == {"ring": None, "switch": None}


@pytest.mark.parametrize("job", [layers(6), pipeline(6)])
def test_the_baseline_runs_and_is_further_away(job: Given) -> None:
    model = fit_model([job])
    reports = [report_fidelity(model, seed) for seed in range(5)]
    assert all(found.model.seconds == dict.fromkeys(found.model.seconds, 0.0) for found in reports)
    errors = [abs(error) for found in reports for error in found.baseline.seconds.values() if error is not None]
    assert sum(errors) / len(errors) > 0.05
    found = reports[0]
    assert found.baseline.critical_path < 0.9
    assert [len(row) for row in fidelity_rows(found)] == [3] * (6 + len(found.model.sizes) + 3)


@pytest.mark.parametrize("seed", range(5))
def test_the_baseline_is_valid(seed: int) -> None:
    for job in (layers(5), pipeline(4), chain(3, 4, ranks=1)):
        traces, groups = resample(source_job(*job), seed)
        assert list_problems(traces, groups) == []
        assert traces.nodes / len(traces.ranks) == pytest.approx(job[0].nodes / len(job[0].ranks), rel=0.7)


def test_slow_ranks_stay_slow() -> None:
    traces, groups = layers(8)
    slow = [
        replace(rank, template=replace(rank.template, duration_us=rank.template.duration_us * (1 + (place == 2))))
        for place, rank in enumerate(traces.ranks)
    ]
    model = fit_model([(TraceSet(tuple(slow)), groups)])
    made = synthesize(model, seed=4)
    sums = [int(rank.template.duration_us.sum()) for rank in made.traces.ranks]
    assert [each / sums[0] for each in sums] == [1, 1, 2, 1]
