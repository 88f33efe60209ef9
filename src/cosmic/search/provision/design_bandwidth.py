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
from cosmic.search.provision.bandwidth_limits import read_budget, read_limit
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
)
from cosmic.search.provision.interior_point import Matrix, Vector
from cosmic.simulate.metrics import Infeasible
from cosmic.step.bottleneck import PART_TITLES, network_loads
from cosmic.step.step_profile import profile_step

LEAST = 1e-3
"""A dimension keeps this share of its bandwidth at least, even if no collective uses it."""
NUDGE = 1e-3
"""By what share bandwidth and limits are moved to see what they are worth."""
TIED = 1e-3
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
        every = np.eye(len(self.npus)) * GIGA
        network = self.designs[0].point.network
        names = [label_of(dim.topology, wiring_at(network, index)) for index, dim in enumerate(network.dims)]
        return tuple(float(network_usd(names, self.npus, each.tolist())) / GIGA for each in every)

    def seconds(self, bandwidth: Matrix) -> Vector:
        """Return the weighted sum of the designs' steps on each network; infinite where one cannot run."""
        total = np.zeros(len(bandwidth))
        columns = {f"network.dims.{index}.bandwidth": bandwidth[:, index] for index in range(bandwidth.shape[1])}
        for design in self.designs:
            found = evaluate_batch(Batch(design.point, columns))
            total = total + design.weight * np.where(found.feasible, found.columns["step_s"], np.inf)
        return total

    def value(self, bandwidth: Matrix) -> Vector:
        seconds = self.seconds(bandwidth)
        return seconds if self.objective == "time" else seconds * multiply(bandwidth, np.array(self.prices))

    def at(self, bandwidth: Vector, design: WeightedDesign) -> DesignPoint:
        changed = {f"network.dims.{index}.bandwidth": float(rate) for index, rate in enumerate(bandwidth)}
        return design.point.changed(changed)

    def step_s(self, bandwidth: Vector, design: WeightedDesign) -> float:
        """Return the step of one design as evaluation gives it."""
        found = evaluate(self.at(bandwidth, design))
        if isinstance(found, Infeasible):
            raise SpecError("design", design.name, f"cannot run: {'; '.join(found.reasons)}")
        return found.step_s


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
    stated = [read_budget(budget if budget is not None else total, cluster.prices)]
    for text in limits:
        stated += read_limit(text, cluster.prices)
    floors = [_least_bandwidth(cluster, index, stated) for index in range(len(cluster.npus))]
    every = (*stated, *floors)
    best = _best_bandwidth(cluster, every)
    bindings = _bindings(cluster, best)
    rounded = None
    if port is not None:
        step = port_bandwidth(port, cluster.names, cluster.npus, radix)
        found = find_whole_ports(cluster.value, stated, best, step, port)
        rounded = _rounded(cluster, best, found, step, port)
    return _result(cluster, best, _prices(cluster, stated, floors, best), bindings, rounded)


def _check_designs(cluster: _SharedNetwork) -> None:
    first, *others = cluster.designs
    require(bool(cluster.npus), "design", first.name, "is a single accelerator, which has no network")
    for design in cluster.designs:
        require(design.point.serving is None, "design", design.name, "serves a load: provision one step of it instead")
        require(
            np.isfinite(design.weight) and design.weight > 0, "--workload", design.weight, "a weight must be positive"
        )
    for other in others:
        same = [(dim.topology, dim.npus) for dim in other.point.network.dims]
        rule = f"has another network than {first.name}: dimensions must be the same but for their bandwidth"
        require(same == list(zip(cluster.names, cluster.npus, strict=True)), "--workload", other.name, rule)


def _least_bandwidth(cluster: _SharedNetwork, place: int, stated: Sequence[Limit]) -> Limit:
    """Return the limit by which a dimension keeps some bandwidth, far below whatever the budget could give it."""
    spent = stated[0]
    most = min(float(cluster.base[place]), spent.value / spent.coefficients[place])
    row = tuple(np.eye(len(cluster.npus))[place].tolist())
    return Limit(f"B{place} >= {LEAST:g} of its bandwidth", row, ">=", LEAST * most)


def _best_bandwidth(cluster: _SharedNetwork, limits: tuple[Limit, ...]) -> Vector:
    """Return the best bandwidth: the search from the convex model's optimum, and from inside the limits."""
    problem = BandwidthProblem(_model(cluster), limits, cluster.prices, cluster.objective)
    starts = [np.array(solve_bandwidth(problem).bandwidth_bytes_per_s), find_interior(problem)[0]]
    return descend(cluster.value, limits, np.array(starts))


def _model(cluster: _SharedNetwork) -> tuple[TrafficLoad, ...]:
    """Return the designs as loads: as long as each part of a step keeps every dimension busy at its bandwidth."""
    found = []
    for design in cluster.designs:
        step_s = cluster.step_s(cluster.base, design)
        busy = _busy_seconds(design.point, len(cluster.npus))
        traffic = tuple(Traffic(part, tuple((row * cluster.base).tolist())) for part, row in busy.items())
        found.append(TrafficLoad(design.name, step_s, traffic, weight=design.weight))
    return tuple(found)


def _busy_seconds(point: DesignPoint, dims: int) -> dict[str, Vector]:
    """Return the seconds for which each part of a step keeps every dimension busy, on the first stage."""
    found: dict[str, Vector] = {}
    for load in network_loads(profile_step(batch_of(point), "first")):
        found.setdefault(load.part, np.zeros(dims))[load.dimension] += load.seconds
    return found


def _bindings(cluster: _SharedNetwork, bandwidth: Vector) -> tuple[Binding, ...]:
    found = []
    for design in cluster.designs:
        for part, row in _busy_seconds(cluster.at(bandwidth, design), len(cluster.npus)).items():
            longest = float(row.max())
            slowest = tuple(np.flatnonzero(row >= (1 - TIED) * longest).tolist()) if longest > 0 else ()
            share = row / row.sum() if longest > 0 else row
            found.append(
                Binding(design.name, PART_TITLES[part], design.weight * longest, slowest, tuple(share.tolist()))
            )
    return tuple(found)


def _prices(
    cluster: _SharedNetwork, stated: Sequence[Limit], floors: Sequence[Limit], best: Vector
) -> tuple[Price, ...]:
    """Return what each limit costs: the gain of a search with it moved a little, where it binds."""
    value = float(cluster.value(best[None, :])[0])
    found = []
    for index, limit in enumerate(stated):
        size = float(np.abs(np.array(limit.coefficients) * best).max())
        binds = limit.sense == "==" or float(limit.excess(best)) > -1e-6 * size
        per_unit = 0.0
        if binds:
            moved = (-1.0 if limit.sense == ">=" else 1.0) * NUDGE * size
            others = [
                replace(limit, value=limit.value + moved) if at == index else each for at, each in enumerate(stated)
            ]
            try:
                better = _best_bandwidth(cluster, (*others, *floors))
                per_unit = (value - float(cluster.value(better[None, :])[0])) / abs(moved)
            except SpecError:  # moved, it contradicts another: it cannot be bought alone
                per_unit = 0.0
        found.append(Price(limit, per_unit, binds))
    return tuple(found)


def _result(
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
            float(cluster.base[place]),
            float(best[place]),
            float(cost[place] * best[place]),
            _busiest_part(busy[place]),
            worth,
        )
        for place, (name, count, worth) in enumerate(
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
    more = best * (1 + NUDGE * np.eye(len(best)))
    less = best * (1 - NUDGE * np.eye(len(best)))
    found = cluster.seconds(np.vstack([more, less]))
    slope = (found[len(best) :] - found[: len(best)]) / (2 * NUDGE * best)
    return [max(0.0, each) for each in slope.tolist()]


def _rounded(cluster: _SharedNetwork, best: Vector, found: Vector, step: Vector, port: str) -> WholePorts:
    seconds = float(cluster.seconds(found[None, :])[0])
    whole, continuous = (float(cluster.value(each[None, :])[0]) for each in (found, best))
    size = port_bandwidth(port, ["switch"], [2], None)[0]
    ports = tuple(round(each / size) for each in found.tolist())
    return WholePorts(
        port,
        tuple(found.tolist()),
        ports,
        seconds,
        float(multiply(np.array(cluster.prices), found)),
        whole / continuous - 1,
    )
