"""Rows of LIBRA: a network, a workload and a budget, and the objective at the optimum that its solver found.

The prediction is the objective at ours: seconds, and for perf-per-cost seconds times dollars. What LIBRA ships
(workloads, groups, prices) is carried in `catalog/libra.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from cosmic.accuracy.measured_rows import Fields, Row, Verdict, compare_row
from cosmic.base.errors import UnknownName, require
from cosmic.search.provision import libra
from cosmic.search.provision.bandwidth_optimum import solve_bandwidth
from cosmic.search.provision.bandwidth_problem import GIGA, BandwidthProblem, Limit, Objective

NANO = 1e-9
OBJECTIVES: dict[str, Objective] = {"PerfOpt": "time", "PerfPerCostOpt": "time_per_dollar"}
_DIMENSION = re.compile(r"([A-Za-z]+)\((\d{1,9})\)")


def compare_rows(rows: Sequence[Row]) -> list[Verdict]:
    """Return the verdict on each case."""
    return [
        compare_row(row, _name(row, index), f"bandwidth {row['workload']} {row['objective']}", _compare_fields)
        for index, row in enumerate(rows)
    ]


def _name(row: Row, index: int) -> str:
    parts = [row.get(key, "") for key in ("network", "workload", "total_bw_GBps", "objective")]
    return "-".join([*parts, str(index)])


def _compare_fields(fields: Fields) -> Verdict:
    network = network_named(fields.text("topology"))
    name, chosen = fields.text("workload"), fields.text("objective")
    if name not in libra.shipped_workloads():
        raise UnknownName.among("workload", name, "workload of LIBRA", libra.shipped_workloads())
    if chosen not in OBJECTIVES:
        raise UnknownName.among("objective", chosen, "objective of LIBRA", OBJECTIVES)
    workload = libra.shipped_workloads()[name]
    load = libra.load_of(workload, network, libra.usual_communicator(workload, network))
    if fields.number("compute_ns") is not None:
        load = replace(load, compute_s=fields.seconds("compute_ns", NANO))
    total = fields.number("total_bw_GBps")
    require(total is not None, "total_bw_GBps", "", "is not given")
    spent = Limit("total_bw_GBps", (1.0,) * len(network.npus), "==", float(total or 0.0) * GIGA, budget=True)
    prices = libra.usd_per_bandwidth(network, libra.shipped_prices(network))
    solution = solve_bandwidth(BandwidthProblem((load,), (spent,), prices, OBJECTIVES[chosen]))
    measured = fields.seconds("gurobi_e2e_ns", NANO)
    if chosen == "PerfPerCostOpt":
        cost = fields.number("gurobi_cost_usd")
        require(cost is not None, "gurobi_cost_usd", "", "is not given, and the objective is time multiplied by it")
        measured *= float(cost or 0.0)
    return Verdict(row=fields.row, measured_s=measured, predicted_s=solution.objective, assumed=tuple(fields.assumed))


def network_named(text: str) -> libra.LibraNetwork:
    """Return the network that a name such as Ring(16)_Switch(32) describes.

    >>> network_named("Ring(16)_Switch(32)").npus
    (16, 32)
    """
    parts = [_DIMENSION.fullmatch(word) for word in text.split("_")]
    matches = [part for part in parts if part]
    require(len(matches) == len(parts), "topology", text, "must be written as Ring(16)_FullyConnected(8)_Switch(32)")
    data = {"Topology": [match[1] for match in matches], "NpusCount": [int(match[2]) for match in matches]}
    return libra.network_of(data, "topology")
