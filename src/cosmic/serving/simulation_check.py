"""The simulation beside the closed form: what it says of a design, and where the two differ.

Of a deployment with many instances a part is simulated: in the ratio of its pools, each instance with its whole load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd, isfinite, log

import numpy as np

from cosmic.base.numeric import divisors
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.serving_layer import Load
from cosmic.serving.deployment import Deployment, Pool, deployment_of, dimension_sizes_within
from cosmic.serving.request_simulation import SimulatedLoad, simulate_load
from cosmic.serving.served_evaluation import NOT_MEASURED, add_token_costs, metrics_of_point, served_columns
from cosmic.serving.serving_accuracy import tpot_expectation
from cosmic.serving.serving_metrics import ServingMetrics, plain_metrics, scale_metrics
from cosmic.serving.serving_requests import Requests
from cosmic.simulate.metrics import Infeasible, Metrics, Outcome

NOTABLE = 0.1
"""By what share the two may differ without a word."""
COMPARED = {
    "TTFT": ("ttft", "mean"),
    "TTFT P95": ("ttft", "p95"),
    "TPOT": ("tpot", "mean"),
    "TPOT P95": ("tpot", "p95"),
    "end to end": ("e2e", "mean"),
}
FEW_INSTANCES = 24
"""Instances of a part at least: a router finds one that is free among many sooner than among few."""
UNEVEN = 0.01
"""By what share the clients of an instance may differ in a part, as there are whole clients only."""
LEAST_REQUESTS, MANY_REQUESTS, MOST_REQUESTS = 1_000, 10_000, 30_000
"""Requests of such a simulation, at least, where there are many, and at most."""
ROUNDS, LEAST_ROUNDS = 12, 7
"""As many as are in flight, so many times over; where that is many, the fewest times that have a steady part."""


@dataclass(frozen=True)
class PartialSimulation:
    """What the simulation of a part says of the whole."""

    metrics: ServingMetrics
    """Of the whole deployment."""
    share: float
    """Share of its instances, and of its load, that was simulated."""


def simulate_served(point: DesignPoint, closed: Metrics) -> Outcome:
    """Return what a design that achieves *closed* in closed form achieves if its requests are simulated one by one."""
    deployment = deployment_of(point)
    simulation = simulate_load(deployment)
    if isinstance(simulation, Infeasible):
        return simulation
    columns = served_columns(deployment, simulation.metrics, 1)
    simulated = metrics_of_point(point, {name: float(column[0]) for name, column in columns.items()})
    tpot_difference = abs(log(simulated.tpot_s / closed.tpot_s)) if simulated.tpot_s and closed.tpot_s else 0.0
    return replace(
        simulated,
        expected_error=None,
        expected_on=f"{NOT_MEASURED}; in closed form {100 * (closed.expected_error or 0):.0f} %",
        step_s_range=closed.step_s_range.around(simulated.step_s, tpot_difference),
        tokens_per_s_range=tpot_expectation(point)
        .around(closed.throughput_per_s)
        .around(simulated.throughput_per_s, tpot_difference),
    )


def simulate_design(
    design: DesignPoint,
    requests: Requests | None = None,
    count: int | None = None,
    seed: int = 0,
    *,
    noting: bool = False,
) -> tuple[ServingMetrics, SimulatedLoad] | Infeasible:
    """Return what the simulation says of a design, with its costs, and all that it saw; or why it cannot serve."""
    simulation = simulate_load(deployment_of(design), requests, count=count, seed=seed, noting=noting)
    if isinstance(simulation, Infeasible):
        return simulation
    return plain_metrics(add_token_costs(simulation.metrics, simulation.deployment)), simulation


def simulate_part_of_design(design: DesignPoint, in_flight: float, seed: int = 0) -> PartialSimulation | Infeasible:
    """Return what the simulation of some instances of a design says of all; *in_flight* are the requests of all."""
    deployment = deployment_of(design)
    instances, filling = (
        _count_instances(deployment.pool),
        _count_instances(deployment.prefill) if deployment.prefill else 0,
    )
    instances_of_part, prefillers_of_part = choose_part(instances, filling, deployment.load.concurrency)
    share = Fraction(instances_of_part, instances)
    running = in_flight * float(share) if isfinite(in_flight) else LEAST_REQUESTS
    count = int(min(max(LEAST_REQUESTS, ROUNDS * running), max(MANY_REQUESTS, LEAST_ROUNDS * running), MOST_REQUESTS))
    simulation = simulate_load(
        _deployment_part(design, deployment, instances_of_part, prefillers_of_part), count=count, seed=seed
    )
    if isinstance(simulation, Infeasible):
        return simulation
    return PartialSimulation(
        plain_metrics(add_token_costs(scale_metrics(simulation.metrics, float(1 / share)), deployment)), float(share)
    )


def choose_part(instances: int, filling: int, clients: int | None) -> tuple[int, int]:
    """Return how many instances of a deployment stand for all: of those that decode or do all, and that prefill.

    They are in the ratio of the whole, and each has the load that it has there.

    >>> choose_part(60, 76, None), choose_part(116, 0, None), choose_part(5, 0, None), choose_part(30, 41, None), choose_part(50, 0, 70)
    ((15, 19), (24, 0), (5, 0), (30, 41), (25, 0))
    """
    parts = [(count, 0) for count in range(1, instances)]
    if filling:
        parts = [(instances // by, filling // by) for by in divisors(gcd(instances, filling))]
    fair = (
        part for part in parts if sum(part) >= FEW_INSTANCES and _is_even_share(clients, Fraction(part[0], instances))
    )
    return min(fair, key=sum, default=(instances, filling))


def _is_even_share(clients: int | None, share: Fraction) -> bool:
    """Return whether a share of the clients is about a whole number of them."""
    return clients is None or abs(round(clients * share) - clients * share) <= UNEVEN * clients * share


def _count_instances(pool: Pool) -> int:
    return int(np.ravel(pool.instances)[0])


def _deployment_part(
    design: DesignPoint, deployment: Deployment, instances_of_part: int, prefillers_of_part: int
) -> Deployment:
    """Return so many instances of a deployment with their share of its load, on the network of the whole."""
    instances = _count_instances(deployment.pool)
    if instances_of_part == instances:
        return deployment
    assert design.serving is not None  # noqa: S101  it has a deployment
    ranks, layer = int(np.ravel(deployment.pool.ranks)[0]), design.serving
    serving = replace(layer, load=_share_of_load(layer.load, Fraction(instances_of_part, instances)))
    if deployment.prefill and layer.prefill:
        serving = replace(serving, prefill=replace(layer.prefill, replicas=prefillers_of_part))
    part = replace(
        design.changed({"workload.dp": ranks * instances_of_part, "workload.global_batch": ranks * instances_of_part}),
        serving=serving,
    )
    if deployment.prefill:  # cut out of the whole machine, as its pools are
        loaded = replace(design, serving=replace(layer, load=serving.load))
        return replace(deployment_of(part), batch=batch_of(loaded))
    instance_npus = int(np.ravel(deployment.npus)[0]) // instances
    sizes = dimension_sizes_within(
        tuple(dim.npus for dim in design.network.dims), instances_of_part * instance_npus, instance_npus
    )
    dimensions = [index for index, size in enumerate(sizes) if size > 1]
    fewer = {
        "network.dims": tuple(
            replace(design.network.dims[dimension], npus=sizes[dimension]) for dimension in dimensions
        ),
        "collective.algorithms": tuple(design.collective.algorithms[dimension] for dimension in dimensions),
    }
    return deployment_of(part.changed(fewer))


def _share_of_load(load: Load, share: Fraction) -> Load:
    if load.rate is not None:
        return replace(load, rate=load.rate * float(share))
    return replace(load, concurrency=max(1, round((load.concurrency or 1) * share)))


def compare_with_simulation(closed: ServingMetrics, simulated: ServingMetrics) -> Mapping[str, float]:
    """Return how many times the closed form's a simulated metric is, for those that differ by more than 10 %."""
    ratios = {}
    for name, (metric, statistic) in COMPARED.items():
        values = [float(getattr(metrics, metric).at(statistic)) for metrics in (closed, simulated)]
        if all(isfinite(value) and value > 0 for value in values):
            ratios[name] = values[1] / values[0]
    ratios["tokens/s"] = float(simulated.output_tokens_per_s) / float(closed.output_tokens_per_s)
    return {name: ratio for name, ratio in ratios.items() if not 1 / (1 + NOTABLE) <= ratio <= 1 + NOTABLE}
