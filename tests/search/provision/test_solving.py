"""The best bandwidth: closed forms, LIBRA's own optima, SciPy's solver, and the proof that comes with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from cosmic.accuracy.rows.bandwidth_rows import network_named
from cosmic.base.errors import SpecError
from cosmic.search.provision import libra
from cosmic.search.provision.bandwidth_optimum import solve_bandwidth
from cosmic.search.provision.bandwidth_problem import (
    BandwidthProblem,
    Limit,
    Objective,
    Traffic,
    TrafficLoad,
    read_budget,
    read_limit,
)
from tests.batches import check_all

THREE, FOUR = "Ring(16)_FullyConnected(8)_Switch(32)", "Ring(4)_FullyConnected(8)_Ring(4)_Switch(32)"
GB = 1e9


def libra_problem(
    topology: str, workload: str, budget: str, objective: Objective = "time", limits: tuple[str, ...] = ()
) -> BandwidthProblem:
    network = network_named(topology)
    carried = libra.shipped_workloads()[workload]
    prices = libra.usd_per_bandwidth(network, libra.shipped_prices(network))
    stated = [read_budget(budget, prices), *(each for text in limits for each in read_limit(text, prices))]
    load = libra.load_of(carried, network, libra.usual_communicator(carried, network))
    return BandwidthProblem((load,), tuple(stated), prices, objective)


def random_problem(seed: int) -> BandwidthProblem:
    rng = np.random.default_rng(seed)
    dims = int(rng.integers(1, 7))

    def traffic(place: int) -> Traffic:
        sent = np.exp(rng.normal(0, 2, dims)) * GB * (rng.random(dims) < 0.7)
        sent[0] += GB * (sent.max() == 0)
        return Traffic(f"collective {place}", tuple(sent.tolist()), float(rng.integers(1, 9)))

    loads = tuple(
        TrafficLoad(
            f"load {place}",
            float(np.exp(rng.normal())),
            tuple(traffic(each) for each in range(int(rng.integers(1, 9)))),
            tuple(traffic(each) for each in range(int(rng.integers(0, 3)))),
            float(np.exp(rng.normal())),
            float(rng.uniform(0.5, 2)),
        )
        for place in range(int(rng.integers(1, 3)))
    )
    inside = rng.dirichlet(np.ones(dims)) * 500 * GB
    limits = [Limit("budget", (1.0,) * dims, "==", 500 * GB, budget=True)]
    for _ in range(int(rng.integers(0, 4))):
        row = rng.normal(size=dims) * (rng.random(dims) < 0.6)
        sense = ("<=", ">=", "==")[int(rng.integers(0, 3 if dims > 3 else 2))]
        spare = float(abs(row @ inside) * rng.uniform(0.0, 0.3))
        if row.any():
            value = float(row @ inside) + {"<=": spare, ">=": -spare, "==": 0.0}[sense]
            limits.append(Limit("random", tuple(row.tolist()), sense, value))  # type: ignore[arg-type]
    prices = tuple((np.exp(rng.normal(0, 2, dims)) * 1e-5).tolist())
    return BandwidthProblem(loads, tuple(limits), prices, "time" if seed % 2 else "time_per_dollar")


def test_one_collective_gets_bandwidth_in_proportion_to_its_bytes() -> None:
    # 3 s in the first dimension for each in the second: 300 and 100 of 400 GB/s, so 3 GB take 10 ms.
    load = TrafficLoad("one", 2.0, (Traffic("all-reduce", (3 * GB, 1 * GB)),))
    found = solve_bandwidth(
        BandwidthProblem((load,), (Limit("budget", (1.0, 1.0), "==", 400 * GB, budget=True),), (1e-9, 1e-9))
    )
    assert found.bandwidth_bytes_per_s == pytest.approx((300 * GB, 100 * GB))
    assert found.time_s == pytest.approx(2.01)
    assert found.bindings[0].dims == (0, 1)
    # T = 2 + 4 GB / budget: another byte/s saves 4 GB / budget².
    assert found.prices[0].per_unit == pytest.approx(4 * GB / (400 * GB) ** 2)


def test_two_collectives_on_dimensions_of_their_own_get_the_roots_of_their_bytes() -> None:
    # 9 GB / x + 4 GB / (500 GB - x) is least at x : rest = 3 : 2.
    load = TrafficLoad("two", 0.0, (Traffic("a", (9 * GB, 0.0)), Traffic("b", (0.0, 4 * GB))))
    found = solve_bandwidth(
        BandwidthProblem((load,), (Limit("budget", (1.0, 1.0), "==", 500 * GB, budget=True),), (1e-9, 1e-9))
    )
    assert found.bandwidth_bytes_per_s == pytest.approx((300 * GB, 200 * GB), rel=1e-6)
    assert found.time_s == pytest.approx(0.05)


def test_what_runs_beside_compute_gets_no_more_bandwidth_than_that_hides_it() -> None:
    # 10 GB hide behind 0.1 s at 100 GB/s; all the rest goes to what does not hide.
    load = TrafficLoad("hidden", 1.0, (Traffic("a", (8 * GB, 0.0)),), (Traffic("b", (0.0, 10 * GB)),), 0.1)
    found = solve_bandwidth(
        BandwidthProblem((load,), (Limit("budget", (1.0, 1.0), "==", 500 * GB, budget=True),), (1e-9, 1e-9))
    )
    assert found.bandwidth_bytes_per_s == pytest.approx((400 * GB, 100 * GB), rel=1e-6)
    assert found.time_s == pytest.approx(1.0 + 0.02 + 0.1)


LIBRA = [
    (FOUR, "GPT_3", 500, "time", (338.45, 84.6124, 58.1578, 18.7801), 722411780.9202213, None),
    (FOUR, "GPT_3", 500, "time_per_dollar", (448.833, 44.5587, 4.99562, 1.61317), 813451676.1436754, 4868030.218570543),
    (THREE, "GPT_3", 300, "time", (238.532, 53.9956, 7.47261), 756101119.1367934, None),
    (THREE, "MSFT_1T", 100, "time", (80.4376, 4.6922, 14.8702), 368450918.39285755, None),
    (
        FOUR,
        "MSFT_1T",
        500,
        "time_per_dollar",
        (391.558, 91.7816, 9.83374, 6.82614),
        268829912.3262755,
        6477438.090502132,
    ),
    (
        FOUR,
        "Turing_NLG",
        300,
        "time_per_dollar",
        (285.163, 12.9953, 1.39235, 0.449613),
        356419622.5018447,
        2677502.144190665,
    ),
    (THREE, "ResNet_50", 300, "time", (281.319, 16.4103, 2.27106), 1435269.8093899502, None),
    (FOUR, "DLRM", 300, "time", (185.129, 53.9959, 26.5637, 34.3115), 4526419.448580304, None),
]


@pytest.mark.parametrize(("topology", "workload", "total", "objective", "rates", "time_ns", "cost_usd"), LIBRA)
def test_optima_are_those_that_libra_found_with_gurobi(
    topology: str,
    workload: str,
    total: int,
    objective: Objective,
    rates: tuple[float, ...],
    time_ns: float,
    cost_usd: float | None,
) -> None:
    found = solve_bandwidth(libra_problem(topology, workload, f"{total} GB/s", objective))
    assert found.objective == pytest.approx(time_ns * 1e-9 * (cost_usd or 1.0), rel=1e-5)
    assert np.array(found.bandwidth_bytes_per_s) / GB == pytest.approx(rates, rel=2e-3)
    assert found.duality_gap < 1e-9


def test_the_shipped_example_with_several_limits() -> None:
    limits = ("B0 = 500 GB/s", "B0 >= B1 >= B2", "B2 + B3 = 200 GB/s")
    found = solve_bandwidth(libra_problem(FOUR, "GPT_3", "1000 GB/s", limits=limits))
    assert np.array(found.bandwidth_bytes_per_s) / GB == pytest.approx((500, 300, 151.1811, 48.8189), rel=1e-5)
    assert found.time_s == pytest.approx(0.7084387, rel=1e-6)
    assert found.cost_usd == pytest.approx(22.966e6, rel=1e-4)
    binding = {price.limit.text: price.binds for price in found.prices}
    assert binding == {"1000 GB/s": True, "B0 = 500 GB/s": True, "B0 >= B1 >= B2": False, "B2 + B3 = 200 GB/s": True}


@check_all("seed", range(40), tests=2)
def test_every_optimum_is_proven_and_meets_its_limits(seed: int) -> None:
    problem = random_problem(seed)
    found = solve_bandwidth(problem)
    bandwidth = np.array(found.bandwidth_bytes_per_s)
    assert found.duality_gap < 1e-9
    assert bandwidth.min() > 0
    for limit in problem.limits:
        size = max(np.abs(np.array(limit.coefficients) * bandwidth).max(), abs(limit.value))
        assert limit.excess(bandwidth) <= 1e-8 * size


@pytest.mark.parametrize("seed", range(12))
def test_scipy_finds_nothing_better(seed: int) -> None:
    problem = random_problem(seed)
    found = solve_bandwidth(problem)
    start = np.log(np.array(found.bandwidth_bytes_per_s) / GB) + np.random.default_rng(seed).normal(
        0, 0.1, problem.dims
    )
    constraints: list[dict[str, Any]] = [
        {
            "type": "eq" if limit.sense == "==" else "ineq",
            "fun": lambda y, limit=limit: (
                (-1.0 if limit.sense == "<=" else 1.0)
                * float(np.dot(limit.coefficients, np.exp(y)) * GB - limit.value)
                / (100 * GB)
            ),
        }
        for limit in problem.limits
    ]
    other = minimize(
        lambda y: float(np.log(problem.value(np.exp(y) * GB))),
        start,
        bounds=[(-12.0, 12.0)] * problem.dims,
        constraints=constraints,
        method="SLSQP",
        options={"maxiter": 300, "ftol": 1e-13},
    )
    met = all(
        abs(each["fun"](other.x)) < 1e-9 if each["type"] == "eq" else each["fun"](other.x) > -1e-9
        for each in constraints
    )
    if met:
        assert found.objective <= np.exp(other.fun) * (1 + 1e-7)


@pytest.mark.parametrize("seed", range(8))
def test_shadow_prices_are_what_moved_limits_gain(seed: int) -> None:
    problem = random_problem(seed)
    found = solve_bandwidth(problem)
    for place, price in enumerate(found.prices):
        limit = price.limit
        size = np.abs(np.array(limit.coefficients) * found.bandwidth_bytes_per_s).max()
        outwards = -1.0 if limit.sense == ">=" else 1.0
        gains = []
        for share in (-1e-5, 1e-5):
            moved = Limit(limit.text, limit.coefficients, limit.sense, limit.value + outwards * share * size)
            others = (*problem.limits[:place], moved, *problem.limits[place + 1 :])
            try:
                again = solve_bandwidth(
                    BandwidthProblem(problem.loads, others, problem.usd_per_bytes_per_s, problem.objective)
                )
            except SpecError:
                break
            gains.append((found.objective - again.objective) / (share * size))
        if len(gains) == 2:  # at a kink the price lies between what is lost and what is gained
            spare = 1e-3 * max(map(abs, gains)) + 1e-7 * found.objective / size
            assert min(gains) - spare <= price.per_unit <= max(gains) + spare


def test_twice_the_budget_takes_half_the_time_of_communication() -> None:
    once, twice = (solve_bandwidth(libra_problem(FOUR, "DLRM", f"{total} GB/s")) for total in (300, 600))
    compute = sum(libra.shipped_workloads()["DLRM"].compute_s.values())
    assert (twice.time_s - compute) * 2 == pytest.approx(once.time_s - compute, rel=1e-9)


def test_the_same_problem_gives_the_same_bits() -> None:
    first, second = (solve_bandwidth(libra_problem(THREE, "DLRM", "300 GB/s", "time_per_dollar")) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("budget", "limits", "words"),
    [
        ("500 GB/s", ("B0 <= 100 GB/s", "B1 <= 100 GB/s", "B2 + B3 <= 100 GB/s"), "cannot be met together with"),
        ("500 GB/s", ("B0 = 600 GB/s",), "cannot be met"),
        ("500 GB/s", ("B0 = 100 GB/s", "B0 = 200 GB/s"), "cannot be met"),
        ("500 GB/s", ("B0 <= 0 GB/s",), "cannot be met"),
        (">= 500 GB/s", (), "nothing bounds the bandwidth"),
    ],
)
def test_limits_that_cannot_be_met_are_named(budget: str, limits: tuple[str, ...], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        solve_bandwidth(libra_problem(FOUR, "GPT_3", budget, limits=limits))


def test_limits_that_leave_one_point_are_met() -> None:
    limits = ("B0 <= 200 GB/s", "B0 >= 200 GB/s", "B1 = 100 GB/s", "B2 = 100 GB/s")
    found = solve_bandwidth(libra_problem(FOUR, "GPT_3", "500 GB/s", limits=limits))
    assert np.array(found.bandwidth_bytes_per_s) / GB == pytest.approx((200, 100, 100, 100), rel=1e-6)


def test_time_for_its_cost_needs_something_to_be_spent() -> None:
    with pytest.raises(SpecError, match="least without a network"):
        solve_bandwidth(libra_problem(FOUR, "GPT_3", "<= 500 GB/s", "time_per_dollar"))


def test_without_communication_any_bandwidth_is_the_best() -> None:
    found = solve_bandwidth(
        BandwidthProblem(
            (TrafficLoad("quiet", 1.0, ()),), (Limit("b", (1.0, 1.0), "==", GB, budget=True),), (1e-9, 1e-9)
        )
    )
    assert (found.time_s, found.duality_gap) == (1.0, 0.0)
