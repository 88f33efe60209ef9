"""The best bandwidth for designs: at least as good as a fine grid, by the step that evaluation gives."""

from __future__ import annotations

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.cluster.cluster_cost import network_usd
from cosmic.design.design_batch import Batch
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.provision.bandwidth_problem import Objective
from cosmic.search.provision.provisioning import provision
from cosmic.simulate.metrics import Metrics

TWO, FOUR = "llama3-70b@dgx-h100:512", "gpt3-175b@cosmic-1024"


def grid_best(source: str, total: float, points: int, objective: Objective) -> float:
    """Return the best objective of a grid over all shares of a budget."""
    point = load_design(source)
    dims = len(point.network.dims)
    shares = np.exp(np.linspace(np.log(2e-3), np.log(0.99), points))
    some = np.stack([each.ravel() for each in np.meshgrid(*[shares] * (dims - 1), indexing="ij")], axis=1)
    last = 1 - some.sum(axis=1)
    rates = np.hstack([some[last > 2e-3], last[last > 2e-3, None]]) * total
    columns = {f"network.dims.{place}.bandwidth": rates[:, place] for place in range(dims)}
    found = evaluate_batch(Batch(point, columns)).columns
    names, npus = [dim.topology for dim in point.network.dims], [dim.npus for dim in point.network.dims]
    dollars = network_usd(names, npus, list(rates.T)) if objective != "time" else 1.0
    return float(np.min(found["step_s"] * dollars))


@pytest.mark.parametrize("objective", ["time", "time_per_dollar"])
@pytest.mark.parametrize(("source", "points"), [(TWO, 3000), (FOUR, 24)])
def test_no_point_of_a_fine_grid_is_better(source: str, points: int, objective: Objective) -> None:
    found = provision(source, objective=objective)
    total = sum(dim.base_bytes_per_s for dim in found.dims)
    assert sum(dim.bandwidth_bytes_per_s for dim in found.dims) == pytest.approx(total, rel=1e-9)
    assert found.value <= grid_best(source, total, points, objective) * (1 + 1e-12)


def test_the_step_is_that_of_evaluation_and_dollars_those_of_pricing() -> None:
    found = provision(TWO, budget="700 GB/s", limits=["network.dims.1.bandwidth <= 120 GB/s"])
    changes = {f"network.dims.{place}.bandwidth": dim.bandwidth_bytes_per_s for place, dim in enumerate(found.dims)}
    outcome = evaluate(load_design(TWO).changed(changes))
    assert isinstance(outcome, Metrics)
    assert found.time_s == outcome.step_s
    rates = [dim.bandwidth_bytes_per_s for dim in found.dims]
    assert found.cost_usd == pytest.approx(float(network_usd(["switch", "switch"], [8, 64], rates)))
    assert rates[1] <= 120e9 * (1 + 1e-9)
    assert found.duality_gap is None
    assert {each.traffic for each in found.bindings} >= {"tensor-parallel communication"}


def test_a_budget_in_dollars_is_kept_and_more_of_it_is_worth_something() -> None:
    found = provision(TWO, budget="8 M USD")
    assert found.cost_usd == pytest.approx(8e6)
    assert found.prices[0].per_unit > 0


def test_designs_that_share_a_network_add_up() -> None:
    found = provision(TWO, workloads=["llama3-8b@dgx-h100:512=3"])
    assert found.time_s == pytest.approx(found.loads[0].time_s + 3 * found.loads[1].time_s)
    assert found.time_s <= found.base_time_s


def test_whole_ports_of_a_design() -> None:
    found = provision(TWO, budget="600 GB/s", ports="25 GB/s")
    assert found.ports is not None
    assert sum(found.ports.ports) == 24
    assert 0 <= found.ports.gap < 0.05


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        ("llama3-8b@dgx-h100:1", {}, "no network"),
        (TWO, {"workloads": ["llama3-8b@dgx-h100:64"]}, "another network"),
        (TWO, {"workloads": ["llama3-8b@dgx-h100:512=0"]}, "weight must be positive"),
        (TWO, {"cost": "cost.yml"}, "network file of LIBRA"),
        (TWO, {"loop": "tp_dp_overlap"}, "dp_overlap"),
        (TWO, {"in_network_reduction": True}, "reduction_efficiency"),
        (TWO, {"radix": 64}, "with --ports"),
        (TWO, {"objective": "speed"}, "objective"),
        (TWO, {"budget": "100 GB/s", "limits": ["B0 >= 200 GB/s"]}, "cannot be met"),
        ("gpt3-175b@dgx-h100:8", {"settings": {"tp": 1}}, "cannot run"),
        ("nothing.yml", {}, "nothing.yml"),
    ],
)
def test_what_cannot_be_provisioned_gets_one_sentence(source: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        provision(source, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
