"""Bandwidth to measure, of designs or of LIBRA's own files: the one entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.base.files import is_file
from cosmic.base.linear_algebra import multiply
from cosmic.design.catalog_entries import load_mapping
from cosmic.design.systems import YAML_ENDINGS
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.provision import libra
from cosmic.search.provision.bandwidth_optimum import find_whole_ports, port_bandwidth, solve_bandwidth
from cosmic.search.provision.bandwidth_problem import (
    OBJECTIVES,
    BandwidthProblem,
    Limit,
    Objective,
    Provisioned,
    ProvisionedDimension,
    ProvisionedLoad,
    Solution,
    TrafficLoad,
    WholePorts,
    read_budget,
    read_limit,
)
from cosmic.search.provision.design_bandwidth import WeightedDesign, provision_designs
from cosmic.search.provision.interior_point import Vector


def provision(  # noqa: PLR0913  one option each
    source: str,
    *,
    budget: str | None = None,
    objective: Objective = "time",
    limits: Sequence[str] = (),
    workloads: Sequence[str] = (),
    communicators: Sequence[str] = (),
    cost: str | None = None,
    loop: libra.Loop = "no_overlap",
    in_network_reduction: bool = False,
    ports: str | None = None,
    radix: int | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Provisioned:
    """Return the best bandwidth of every network dimension.

    *source* is a design, or a network file of LIBRA; then *workloads* are its text files (or names that LIBRA ships),
    and *communicators* and *cost* its YAML files. Of a design, *workloads* are others on the same network. Each may end
    in ``=WEIGHT``. *budget* and *limits* are written as `cosmic.search.provision.bandwidth_problem` says.

    >>> found = provision("llama3-70b@dgx-h100:512", budget="600 GB/s")
    >>> round(sum(dim.bandwidth_bytes_per_s for dim in found.dims) / 1e9, 6), found.time_s < found.base_time_s
    (600.0, True)
    """
    check_options(objective, ports, radix)
    if _is_libra(source):
        require(not overrides, "--set", str(overrides), "changes designs, not LIBRA's files")
        network = libra.read_network(source)
        loads = _read_loads(network, workloads, communicators, loop, in_network_reduction)
        prices = libra.usd_per_bandwidth(network, _find_prices(network, cost))
        return provision_libra(network, loads, prices, budget, objective, limits, ports, radix)
    _refuse_libra_option("--communicator", ", ".join(communicators))
    _refuse_libra_option("--cost", cost or "")
    _refuse_libra_option("--loop", "" if loop == "no_overlap" else loop, "set dp_overlap of the design")
    _refuse_libra_option(
        "--in-network-reduction",
        "yes" if in_network_reduction else "",
        "set network.dims.N.transport.reduction_efficiency of the design",
    )
    named_weights = [(source, 1.0), *(_read_weight(workload) for workload in workloads)]
    designs = [WeightedDesign(name, load_design(name, overrides), weight) for name, weight in named_weights]
    return provision_designs(designs, budget, objective, limits, ports, radix)


def check_options(objective: str, ports: str | None, radix: int | None) -> None:
    """Refuse options that say nothing that could be sought."""
    if objective not in OBJECTIVES:
        raise UnknownName.among("--objective", objective, "objective", OBJECTIVES)
    if radix is not None:
        require(ports is not None, "--radix", radix, "is of use with --ports")
        require(radix >= 2, "--radix", radix, "a switch has at least 2 ports")


def _is_libra(source: str) -> bool:
    path = Path(source)
    return path.suffix in YAML_ENDINGS and is_file(path) and libra.is_libra_network(load_mapping(path))


def _refuse_libra_option(option: str, value: str, instead: str = "leave it out") -> None:
    require(not value, option, value, f"goes with a network file of LIBRA, and not with a design: {instead}")


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


# ---- LIBRA's files


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
    rounded = None
    if port is not None:
        step = port_bandwidth(port, network.topologies, network.npus, radix)
        rounded = _round_to_ports(problem, limit_list, best, step, port)
    return _provisioned_result(network, problem, solution, rounded)


def _round_to_ports(
    problem: BandwidthProblem, limits: Sequence[Limit], best: Vector, step: Vector, port: str
) -> WholePorts:
    whole_ports = find_whole_ports(problem.value, limits, best, step, port)
    size = port_bandwidth(port, ["switch"], [2], None)[0]
    return WholePorts(
        port,
        tuple(whole_ports.tolist()),
        tuple(round(bandwidth / size) for bandwidth in whole_ports.tolist()),
        float(problem.seconds(whole_ports)),
        float(problem.usd(whole_ports)),
        float(problem.value(whole_ports) / problem.value(best)) - 1,
    )


def _provisioned_result(
    network: libra.LibraNetwork, problem: BandwidthProblem, solution: Solution, rounded: WholePorts | None
) -> Provisioned:
    best = np.array(solution.bandwidth_bytes_per_s)
    spent = next((np.array(limit.coefficients) for limit in problem.limits if limit.budget), np.ones(problem.dims))
    equal = np.full(problem.dims, float(multiply(spent, best)) / float(spent.sum()))
    dims = tuple(
        ProvisionedDimension(
            name,
            count,
            float(equal[index]),
            float(best[index]),
            float(problem.usd_per_bytes_per_s[index] * best[index]),
            _busiest_collective(problem, index),
            solution.worth_s_per_bytes_per_s[index],
        )
        for index, (name, count) in enumerate(zip(network.topologies, network.npus, strict=True))
    )
    return Provisioned(
        problem.objective,
        dims,
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
        rounded,
    )


def _busiest_collective(problem: BandwidthProblem, dim: int) -> str:
    """Return the collective that sends most in a dimension, over all its runs."""
    sent: dict[str, float] = {}
    for load in problem.loads:
        for traffic in (*load.exposed, *load.hidden):
            sent[traffic.name] = sent.get(traffic.name, 0.0) + load.weight * traffic.times * traffic.bytes_of_dims[dim]
    return max(sent, key=lambda name: sent[name]) if sent and max(sent.values()) > 0 else ""
