"""Bandwidth to measure: of designs, of the base of a parameter set, or of LIBRA's own files.

The step of a design is that of the closed form, overlap, protocols and latency included. It is not exactly a sum of
max(bytes / bandwidth). So a convex model of it, from how busy each dimension is, gives the search a start, and the
search asks the step itself, of hundreds of networks at once. What is reported is what `cosmic.evaluation` gives for the
bandwidth found; that nothing is better is searched, and not proven. For LIBRA's inputs it is proven.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.base.files import is_file
from cosmic.base.numeric import multiply
from cosmic.cluster.cluster_cost import network_usd
from cosmic.design import catalog_entries
from cosmic.design.catalog_entries import load_mapping
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.systems import YAML_ENDINGS, is_model_at_system
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.network.dimension_wiring import label_of, wiring_at
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.provision import libra
from cosmic.search.provision.bandwidth_descent import MIN_SHARE, descend
from cosmic.search.provision.bandwidth_optimum import find_interior, find_whole_ports, port_bandwidth, solve_bandwidth
from cosmic.search.provision.bandwidth_problem import (
    GIGA,
    OBJECTIVES,
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
from cosmic.search.space.space_files import load_space
from cosmic.simulate.metrics import Infeasible
from cosmic.step.bottleneck import PART_TITLES, network_loads
from cosmic.step.step_profile import profile_step

# ---- The one entry


def names_space(source: str) -> bool:
    """Return whether *source* is a parameter set: a name of the catalog, or a file with a base.

    >>> names_space("cosmic-1024-paper"), names_space("gpt3-175b@cosmic-1024")
    (True, False)
    """
    path = Path(source)
    if path.suffix in YAML_ENDINGS or is_file(path):
        return "base" in catalog_entries.load_mapping(path)
    return not is_model_at_system(source) and source in catalog_entries.entry_names("spaces")


def provision(  # noqa: PLR0913  the options of the command
    source: str,
    *,
    budget: str | None = None,
    objective: Objective | None = None,
    limits: Sequence[str] = (),
    workloads: Sequence[str] = (),
    communicators: Sequence[str] = (),
    cost: str | None = None,
    loop: libra.Loop = "no_overlap",
    in_network_reduction: bool = False,
    ports: str | None = None,
    radix: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Provisioned:
    """Return the best bandwidth of every network dimension under a budget, why, and what more of it is worth.

    *source* is a design, a parameter set, or a network file of LIBRA. Of LIBRA, *workloads* are its text files (or names
    that LIBRA ships), and *communicators* and *cost* its YAML files; of a design, *workloads* are others on the same
    network. Each may end in ``=WEIGHT``. A parameter set says such things itself. *budget* and *limits* are written as
    `cosmic.search.provision.bandwidth_problem` says.

    >>> import cosmic
    >>> found = cosmic.network.provision("gpt3-175b@cosmic-1024", budget="500 GB/s")
    >>> round(sum(dim.bandwidth_bytes_per_s for dim in found.dims) / 1e9)
    500
    """
    options_of_libra = {
        "--communicator": ", ".join(communicators),
        "--cost": cost or "",
        "--loop": "" if loop == "no_overlap" else loop,
        "--in-network-reduction": "yes" if in_network_reduction else "",
    }
    if names_space(source):
        given = {"--set": ", ".join(settings or {}), "--workload": ", ".join(workloads), **options_of_libra}
        _refuse_options(given, "goes with a design, not with a parameter set: state it there")
        return provision_base(source, budget=budget, objective=objective, limits=limits, ports=ports, radix=radix)
    goal: Objective = objective or "time"
    check_options(goal, ports, radix)
    if _is_libra(source):
        require(not settings, "--set", str(settings), "changes designs, not LIBRA's files")
        network = libra.read_network(source)
        loads = _read_loads(network, workloads, communicators, loop, in_network_reduction)
        prices = libra.usd_per_bandwidth(network, _find_prices(network, cost))
        return provision_libra(network, loads, prices, budget, goal, limits, ports, radix)
    instead = {
        "--loop": "set dp_overlap of the design",
        "--in-network-reduction": "set network.dims.N.transport.reduction_efficiency of the design",
    }
    for option, value in options_of_libra.items():
        rule = f"goes with a network file of LIBRA, and not with a design: {instead.get(option, 'leave it out')}"
        _refuse_options({option: value}, rule)
    named_weights = [(source, 1.0), *(_read_weight(workload) for workload in workloads)]
    designs = [WeightedDesign(name, load_design(name, settings), weight) for name, weight in named_weights]
    return provision_designs(designs, budget, goal, limits, ports, radix)


def _refuse_options(given: Mapping[str, str], rule: str) -> None:
    for option, value in given.items():
        require(not value, option, value, rule)


def check_options(objective: str, ports: str | None, radix: int | None) -> None:
    """Refuse options that say nothing that could be sought."""
    if objective not in OBJECTIVES:
        raise UnknownName.among("--objective", objective, "objective", OBJECTIVES)
    if radix is not None:
        require(ports is not None, "--radix", radix, "is of use with --ports")
        require(radix >= 2, "--radix", radix, "a switch has at least 2 ports")


def _read_weight(text: str) -> tuple[str, float]:
    """Return a workload's name and weight.

    >>> _read_weight("GPT_3=2"), _read_weight("GPT_3"), _read_weight("runs/a=b.txt")
    (('GPT_3', 2.0), ('GPT_3', 1.0), ('runs/a=b.txt', 1.0))
    """
    name, equals, weight = text.rpartition("=")
    try:
        value = float(weight) if equals else 1.0
    except ValueError:
        return text, 1.0
    require(bool(np.isfinite(value)) and value > 0, "--workload", text, "a weight must be positive")
    return (name, value) if equals else (text, 1.0)


def provision_base(
    source: str,
    *,
    budget: str | None = None,
    objective: Objective | None = None,
    limits: Sequence[str] = (),
    ports: str | None = None,
    radix: int | None = None,
) -> Provisioned:
    """Return the best bandwidth for the base of a parameter set, for all its workloads together.

    What is not given is as the set's own ``provision`` says, else as much bandwidth as the base has.
    """
    space = load_space(source)
    stated = space.provisioner.provision if space.provisioner is not None else None
    designs = [WeightedDesign(share.name, share.base, share.weight) for share in space.workloads]
    if stated is not None:
        budget, limits = budget or stated.budget, [*stated.limits, *limits]
        objective = objective or stated.objective
    check_options(objective or "time", ports, radix)
    return provision_designs(
        designs or [WeightedDesign(space.name, space.base)], budget, objective or "time", limits, ports, radix
    )


# ---- What came of it, whoever asked


class _Asked(Protocol):
    """What is provisioned: a design or several, or loads of LIBRA."""

    def seconds(self, bandwidth: Matrix, /) -> Vector: ...
    def usd(self, bandwidth: Matrix, /) -> Vector: ...
    def value(self, bandwidth: Matrix, /) -> Vector: ...


@dataclass(frozen=True, slots=True)
class _Dimensions:
    """The dimensions of a network: their topologies, NPUs and prices."""

    names: Sequence[str]
    npus: Sequence[int]
    usd_per_bytes_per_s: Sequence[float]


def _round_to_ports(
    asked: _Asked, dims: _Dimensions, limits: Sequence[Limit], best: Vector, port: str | None, radix: int | None
) -> WholePorts | None:
    """Return the best bandwidth in whole ports; None where none are asked for."""
    if port is None:
        return None
    step = port_bandwidth(port, dims.names, dims.npus, radix)
    whole = find_whole_ports(asked.value, limits, best, step, port)
    rounded, continuous = (float(asked.value(bandwidth[None, :])[0]) for bandwidth in (whole, best))
    size = port_bandwidth(port, ["switch"], [2], None)[0]
    return WholePorts(
        port,
        tuple(whole.tolist()),
        tuple(round(bandwidth / size) for bandwidth in whole.tolist()),
        float(asked.seconds(whole[None, :])[0]),
        float(asked.usd(whole)),
        rounded / continuous - 1,
    )


def _list_dimensions(
    dims: _Dimensions, base: Vector, best: Vector, busiest: Iterable[Mapping[str, float]], worth: Sequence[float]
) -> tuple[ProvisionedDimension, ...]:
    """Return the dimensions before and after; *busiest* says for each how much each collective is of it."""
    rows = zip(dims.names, dims.npus, dims.usd_per_bytes_per_s, busiest, worth, strict=True)
    return tuple(
        ProvisionedDimension(
            name, count, float(base[dim]), float(best[dim]), float(usd * best[dim]), _largest(busy), each_worth
        )
        for dim, (name, count, usd, busy, each_worth) in enumerate(rows)
    )


def _largest(amounts: Mapping[str, float]) -> str:
    """Return the name with the largest amount; empty where all are 0."""
    return max(amounts, key=lambda name: amounts[name]) if amounts and max(amounts.values()) > 0 else ""


# ---- Designs on one network


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

    def usd(self, bandwidth: Matrix) -> Vector:
        return multiply(bandwidth, np.array(self.prices))

    def value(self, bandwidth: Matrix) -> Vector:
        seconds = self.seconds(bandwidth)
        return seconds if self.objective == "time" else seconds * self.usd(bandwidth)

    @property
    def dimensions(self) -> _Dimensions:
        return _Dimensions(self.names, self.npus, self.prices)

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
    ports = _round_to_ports(cluster, cluster.dimensions, limit_list, best, port, radix)
    return _provisioned_designs(cluster, best, _limit_prices(cluster, limit_list, floors, best), ports)


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


def _provisioned_designs(
    cluster: _SharedNetwork, best: Vector, prices: tuple[Price, ...], ports: WholePorts | None
) -> Provisioned:
    loads = tuple(
        ProvisionedLoad(design.name, design.weight, cluster.step_s(cluster.base, design), cluster.step_s(best, design))
        for design in cluster.designs
    )
    time_s, cost_usd = sum(load.weight * load.time_s for load in loads), float(cluster.usd(best))
    bindings = _bindings(cluster, best)
    busy: list[dict[str, float]] = [{} for _ in best]
    for binding in bindings:
        for index, share in enumerate(binding.shares):
            busy[index][binding.traffic] = busy[index].get(binding.traffic, 0.0) + share * binding.seconds
    return Provisioned(
        cluster.objective,
        _list_dimensions(cluster.dimensions, cluster.base, best, busy, _bandwidth_worth(cluster, best)),
        loads,
        sum(load.weight * load.base_time_s for load in loads),
        time_s,
        float(cluster.usd(cluster.base)),
        cost_usd,
        time_s * (1.0 if cluster.objective == "time" else cost_usd),
        None,
        prices,
        bindings,
        ports,
    )


def _bandwidth_worth(cluster: _SharedNetwork, best: Vector) -> list[float]:
    """Return the seconds that a byte/s of each dimension is worth: the mean of one more and of one less."""
    increased = best * (1 + PERTURBATION * np.eye(len(best)))
    decreased = best * (1 - PERTURBATION * np.eye(len(best)))
    step_seconds = cluster.seconds(np.vstack([increased, decreased]))
    slope = (step_seconds[len(best) :] - step_seconds[: len(best)]) / (2 * PERTURBATION * best)
    return [max(0.0, worth) for worth in slope.tolist()]


# ---- LIBRA's files


def _is_libra(source: str) -> bool:
    path = Path(source)
    return path.suffix in YAML_ENDINGS and is_file(path) and libra.is_libra_network(load_mapping(path))


def _read_loads(
    network: libra.LibraNetwork,
    workloads: Sequence[str],
    communicators: Sequence[str],
    loop: libra.Loop,
    reducing: bool,
) -> tuple[TrafficLoad, ...]:
    rule = "name a text file of ASTRA-sim 1.0, or one that LIBRA ships, with --workload"
    require(bool(workloads), "--workload", "", rule)
    fitting = len(communicators) in (0, 1, len(workloads))
    require(fitting, "--communicator", len(communicators), "state one for all workloads, or one for each")
    loads = []
    for index, text in enumerate(workloads):
        name, weight = _read_weight(text)
        workload = _find_workload(name)
        chosen = communicators[index if len(communicators) > 1 else 0] if communicators else None
        groups = libra.usual_communicator(workload, network)
        if chosen is not None:
            groups = libra.read_communicator(chosen, network)
        loads.append(libra.load_of(workload, network, groups, loop=loop, reducing=reducing, weight=weight))
    return tuple(loads)


def _find_workload(name: str) -> libra.LibraWorkload:
    if not is_file(name) and name in libra.shipped_workloads():
        return libra.shipped_workloads()[name]
    if not is_file(name) and not Path(name).suffix:
        raise UnknownName.among("--workload", name, "workload of LIBRA", libra.shipped_workloads())
    return libra.read_workload(name)


def _find_prices(network: libra.LibraNetwork, path: str | None) -> Sequence[libra.Prices]:
    if path is None:
        return libra.shipped_prices(network)
    return [libra.read_prices(path)] * len(network.npus)


def provision_libra(
    network: libra.LibraNetwork,
    loads: tuple[TrafficLoad, ...],
    usd_per_bytes_per_s: tuple[float, ...],
    budget: str | None,
    objective: Objective = "time",
    limits: Sequence[str] = (),
    port: str | None = None,
    radix: int | None = None,
) -> Provisioned:
    """Return the best bandwidth for *loads* on a network of LIBRA, proven."""
    limit_list = [] if budget is None else [read_budget(budget, usd_per_bytes_per_s)]
    for text in limits:
        limit_list += read_limit(text, usd_per_bytes_per_s)
    if not limit_list:
        raise SpecError("--budget", "", "state one, such as '500 GB/s': without it all bandwidth is unlimited")
    problem = BandwidthProblem(loads, tuple(limit_list), usd_per_bytes_per_s, objective)
    solution = solve_bandwidth(problem)
    best = np.array(solution.bandwidth_bytes_per_s)
    dims = _Dimensions(network.topologies, network.npus, usd_per_bytes_per_s)
    ports = _round_to_ports(problem, dims, limit_list, best, port, radix)
    spent = next((np.array(limit.coefficients) for limit in problem.limits if limit.budget), np.ones(problem.dims))
    equal = np.full(problem.dims, float(multiply(spent, best)) / float(spent.sum()))
    sent = [_bytes_sent(problem, dim) for dim in range(problem.dims)]
    return Provisioned(
        problem.objective,
        _list_dimensions(dims, equal, best, sent, solution.worth_s_per_bytes_per_s),
        tuple(
            ProvisionedLoad(load.name, load.weight, float(load.seconds(equal)), float(load.seconds(best)))
            for load in problem.loads
        ),
        float(problem.seconds(equal)),
        solution.time_s,
        float(problem.usd(equal)),
        solution.cost_usd,
        solution.objective,
        solution.bound,
        solution.prices,
        solution.bindings,
        ports,
    )


def _bytes_sent(problem: BandwidthProblem, dim: int) -> dict[str, float]:
    """Return what each collective sends in a dimension, over all its runs."""
    sent: dict[str, float] = {}
    for load in problem.loads:
        for traffic in (*load.exposed, *load.hidden):
            sent[traffic.name] = sent.get(traffic.name, 0.0) + load.weight * traffic.times * traffic.bytes_of_dims[dim]
    return sent
