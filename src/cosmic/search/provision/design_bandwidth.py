"""The best bandwidth for designs: the step is that of the closed form, overlap, protocols and latency included.

A step is not exactly a sum of max(bytes / bandwidth). So a convex model of it, from how busy each dimension is, gives
the search a start, and the search asks the step itself, of hundreds of networks at once. What is reported is what
`cosmic.evaluation` gives for the bandwidth found; that nothing is better is searched, and not proven.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cosmic.base.errors import SpecError, require
from cosmic.base.linear_algebra import multiply
from cosmic.cluster.cluster_cost import network_usd
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.network.dimension_wiring import label_of, wiring_at
from cosmic.search.provision.bandwidth_descent import descend
from cosmic.search.provision.bandwidth_optimum import find_interior, find_whole_ports, port_bandwidth, solve_bandwidth
from cosmic.search.provision.bandwidth_problem import (
    GIGA,
    BandwidthProblem,
    Binding,
    Limit,
    Objective,
    Price,
    Provisioned,
    ProvisionedDimension,
    ProvisionedLoad,
    Traffic,
    TrafficLoad,
    WholePorts,
    read_budget,
    read_limit,
)
from cosmic.search.provision.interior_point import Matrix, Vector
from cosmic.simulate.metrics import Infeasible
from cosmic.step.bottleneck import PART_TITLES, network_loads
from cosmic.step.step_profile import profile_step

MIN_SHARE = 1e-3
"""A dimension keeps this share of its bandwidth at least, even if no collective uses it."""
PERTURBATION = 1e-3
"""By what share bandwidth and limits are moved to see what they are worth."""
TIE_SHARE = 1e-3
"""Dimensions within this share of the busiest bind a collective together."""


@dataclass(frozen=True, slots=True)
class WeightedDesign:
    """A design that the network is to serve, and how much it counts."""

    name: str
    point: DesignPoint
    weight: float = 1.0


@dataclass(frozen=True)
class _SharedNetwork:
    """Designs on one network."""

    designs: tuple[WeightedDesign, ...]
    objective: Objective

    @cached_property
    def names(self) -> list[str]:
        return [dim.topology for dim in self.designs[0].point.network.dims]

    @cached_property
    def npus(self) -> list[int]:
        return [dim.npus for dim in self.designs[0].point.network.dims]

    @cached_property
    def base(self) -> Vector:
        return np.array([dim.bandwidth_bytes_per_s for dim in self.designs[0].point.network.dims])

    @cached_property
    def prices(self) -> tuple[float, ...]:
        unit_bandwidth = np.eye(len(self.npus)) * GIGA
        network = self.designs[0].point.network
        names = [label_of(dim.topology, wiring_at(network, index)) for index, dim in enumerate(network.dims)]
        return tuple(float(network_usd(names, self.npus, row.tolist())) / GIGA for row in unit_bandwidth)

    def seconds(self, bandwidth: Matrix) -> Vector:
        """Return the weighted sum of the designs' steps on each network; infinite where one cannot run."""
        total = np.zeros(len(bandwidth))
        columns = {f"network.dims.{index}.bandwidth": bandwidth[:, index] for index in range(bandwidth.shape[1])}
        for design in self.designs:
            outcome = evaluate_batch(Batch(design.point, columns))
            total = total + design.weight * np.where(outcome.feasible, outcome.columns["step_s"], np.inf)
        return total

    def value(self, bandwidth: Matrix) -> Vector:
        seconds = self.seconds(bandwidth)
        return seconds if self.objective == "time" else seconds * multiply(bandwidth, np.array(self.prices))

    def design_at(self, bandwidth: Vector, design: WeightedDesign) -> DesignPoint:
        changed = {f"network.dims.{index}.bandwidth": float(rate) for index, rate in enumerate(bandwidth)}
        return design.point.changed(changed)

    def step_s(self, bandwidth: Vector, design: WeightedDesign) -> float:
        """Return the step of one design as evaluation gives it."""
        outcome = evaluate(self.design_at(bandwidth, design))
        if isinstance(outcome, Infeasible):
            raise SpecError("design", design.name, f"cannot run: {'; '.join(outcome.reasons)}")
        return outcome.step_s


def provision_designs(
    designs: Sequence[WeightedDesign],
    budget: str | None = None,
    objective: Objective = "time",
    limits: Sequence[str] = (),
    port: str | None = None,
    radix: int | None = None,
) -> Provisioned:
    """Return the best bandwidth of the network that *designs* share; without a budget, of as much as there is."""
    cluster = _SharedNetwork(tuple(designs), objective)
    _check_designs(cluster)
    total = f"{float(cluster.base.sum()) / GIGA!r} GB/s"
    limit_list = [read_budget(budget if budget is not None else total, cluster.prices)]
    for text in limits:
        limit_list += read_limit(text, cluster.prices)
    floors = [_least_bandwidth(cluster, index, limit_list) for index in range(len(cluster.npus))]
    all_limits = (*limit_list, *floors)
    best = _best_bandwidth(cluster, all_limits)
    bindings = _bindings(cluster, best)
    rounded = None
    if port is not None:
        step = port_bandwidth(port, cluster.names, cluster.npus, radix)
        port_bandwidths = find_whole_ports(cluster.value, limit_list, best, step, port)
        rounded = _round_to_ports(cluster, best, port_bandwidths, step, port)
    return _provisioned_result(cluster, best, _limit_prices(cluster, limit_list, floors, best), bindings, rounded)


def _check_designs(cluster: _SharedNetwork) -> None:
    first, *other_designs = cluster.designs
    require(bool(cluster.npus), "design", first.name, "is a single accelerator, which has no network")
    for design in cluster.designs:
        require(design.point.serving is None, "design", design.name, "serves a load: provision one step of it instead")
        require(
            np.isfinite(design.weight) and design.weight > 0, "--workload", design.weight, "a weight must be positive"
        )
    for design_beside in other_designs:
        same = [(dim.topology, dim.npus) for dim in design_beside.point.network.dims]
        rule = f"has another network than {first.name}: dimensions must be the same but for their bandwidth"
        require(same == list(zip(cluster.names, cluster.npus, strict=True)), "--workload", design_beside.name, rule)


def _least_bandwidth(cluster: _SharedNetwork, dim: int, limits: Sequence[Limit]) -> Limit:
    """Return the limit by which a dimension keeps some bandwidth, far below whatever the budget could give it."""
    spent = limits[0]
    most = min(float(cluster.base[dim]), spent.value / spent.coefficients[dim])
    row = tuple(np.eye(len(cluster.npus))[dim].tolist())
    return Limit(f"B{dim} >= {MIN_SHARE:g} of its bandwidth", row, ">=", MIN_SHARE * most)


def _best_bandwidth(cluster: _SharedNetwork, limits: tuple[Limit, ...]) -> Vector:
    """Return the best bandwidth: the search from the convex model's optimum, and from inside the limits."""
    problem = BandwidthProblem(_traffic_model(cluster), limits, cluster.prices, cluster.objective)
    starts = [np.array(solve_bandwidth(problem).bandwidth_bytes_per_s), find_interior(problem)[0]]
    return descend(cluster.value, limits, np.array(starts))


def _traffic_model(cluster: _SharedNetwork) -> tuple[TrafficLoad, ...]:
    """Return the designs as loads: as long as each part of a step keeps every dimension busy at its bandwidth."""
    loads = []
    for design in cluster.designs:
        step_s = cluster.step_s(cluster.base, design)
        busy = _busy_seconds(design.point, len(cluster.npus))
        traffic = tuple(Traffic(part, tuple((row * cluster.base).tolist())) for part, row in busy.items())
        loads.append(TrafficLoad(design.name, step_s, traffic, weight=design.weight))
    return tuple(loads)


def _busy_seconds(point: DesignPoint, dims: int) -> dict[str, Vector]:
    """Return the seconds for which each part of a step keeps every dimension busy, on the first stage."""
    busy_by_part: dict[str, Vector] = {}
    for load in network_loads(profile_step(batch_of(point), "first")):
        busy_by_part.setdefault(load.part, np.zeros(dims))[load.dimension] += load.seconds
    return busy_by_part


def _bindings(cluster: _SharedNetwork, bandwidth: Vector) -> tuple[Binding, ...]:
    bindings = []
    for design in cluster.designs:
        for part, row in _busy_seconds(cluster.design_at(bandwidth, design), len(cluster.npus)).items():
            longest = float(row.max())
            slowest = tuple(np.flatnonzero(row >= (1 - TIE_SHARE) * longest).tolist()) if longest > 0 else ()
            share = row / row.sum() if longest > 0 else row
            bindings.append(
                Binding(design.name, PART_TITLES[part], design.weight * longest, slowest, tuple(share.tolist()))
            )
    return tuple(bindings)


def _limit_prices(
    cluster: _SharedNetwork, limits: Sequence[Limit], floors: Sequence[Limit], best: Vector
) -> tuple[Price, ...]:
    """Return what each limit costs: the gain of a search with it moved a little, where it binds."""
    value = float(cluster.value(best[None, :])[0])
    prices = []
    for index, limit in enumerate(limits):
        size = float(np.abs(np.array(limit.coefficients) * best).max())
        binds = limit.sense == "==" or float(limit.excess(best)) > -1e-6 * size
        per_unit = 0.0
        if binds:
            moved = (-1.0 if limit.sense == ">=" else 1.0) * PERTURBATION * size
            moved_limits = [
                replace(limit, value=limit.value + moved) if position == index else other_limit
                for position, other_limit in enumerate(limits)
            ]
            try:
                better = _best_bandwidth(cluster, (*moved_limits, *floors))
                per_unit = (value - float(cluster.value(better[None, :])[0])) / abs(moved)
            except SpecError:  # moved, it contradicts another: it cannot be bought alone
                per_unit = 0.0
        prices.append(Price(limit, per_unit, binds))
    return tuple(prices)


def _provisioned_result(
    cluster: _SharedNetwork,
    best: Vector,
    prices: tuple[Price, ...],
    bindings: tuple[Binding, ...],
    rounded: WholePorts | None,
) -> Provisioned:
    loads = tuple(
        ProvisionedLoad(design.name, design.weight, cluster.step_s(cluster.base, design), cluster.step_s(best, design))
        for design in cluster.designs
    )
    time_s = sum(load.weight * load.time_s for load in loads)
    cost = np.array(cluster.prices)
    busy: list[dict[str, float]] = [{} for _ in best]
    for binding in bindings:
        for index, share in enumerate(binding.shares):
            busy[index][binding.traffic] = busy[index].get(binding.traffic, 0.0) + share * binding.seconds
    dims = tuple(
        ProvisionedDimension(
            name,
            count,
            float(cluster.base[dim]),
            float(best[dim]),
            float(cost[dim] * best[dim]),
            _busiest_part(busy[dim]),
            worth,
        )
        for dim, (name, count, worth) in enumerate(
            zip(cluster.names, cluster.npus, _bandwidth_worth(cluster, best), strict=True)
        )
    )
    return Provisioned(
        cluster.objective,
        dims,
        loads,
        sum(load.weight * load.base_time_s for load in loads),
        time_s,
        float(multiply(cost, cluster.base)),
        float(multiply(cost, best)),
        time_s * (1.0 if cluster.objective == "time" else float(multiply(cost, best))),
        None,
        prices,
        bindings,
        rounded,
    )


def _busiest_part(busy: dict[str, float]) -> str:
    return max(busy, key=lambda name: busy[name]) if busy and max(busy.values()) > 0 else ""


def _bandwidth_worth(cluster: _SharedNetwork, best: Vector) -> list[float]:
    """Return the seconds that a byte/s of each dimension is worth: the mean of one more and of one less."""
    increased = best * (1 + PERTURBATION * np.eye(len(best)))
    decreased = best * (1 - PERTURBATION * np.eye(len(best)))
    step_seconds = cluster.seconds(np.vstack([increased, decreased]))
    slope = (step_seconds[len(best) :] - step_seconds[: len(best)]) / (2 * PERTURBATION * best)
    return [max(0.0, worth) for worth in slope.tolist()]


def _round_to_ports(cluster: _SharedNetwork, best: Vector, whole_ports: Vector, step: Vector, port: str) -> WholePorts:
    seconds = float(cluster.seconds(whole_ports[None, :])[0])
    rounded_value, continuous = (float(cluster.value(bandwidth[None, :])[0]) for bandwidth in (whole_ports, best))
    size = port_bandwidth(port, ["switch"], [2], None)[0]
    ports = tuple(round(bandwidth / size) for bandwidth in whole_ports.tolist())
    return WholePorts(
        port,
        tuple(whole_ports.tolist()),
        ports,
        seconds,
        float(multiply(np.array(cluster.prices), whole_ports)),
        rounded_value / continuous - 1,
    )
