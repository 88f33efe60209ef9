"""Unknown prices and powers: the part that wants one is named, and nothing is made of it."""

from __future__ import annotations

import pytest

from cosmic.base.errors import SpecError
from cosmic.cluster.cluster_cost import needed_figures, unknown_parts
from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.problem import make_problem
from cosmic.search.space.space_files import mapping_space
from cosmic.simulate.metrics import Metrics
from cosmic.simulate.step_evaluation import IN_THE_NODE, unknown_metrics

MESH = {"tp": 1, "pp": 1, "cp": 1, "micro_batch": 1, "weight_sharding": "zero3"}


def test_everything_of_a_dgx_is_known() -> None:
    point = load_design("llama3-8b@dgx-h100:64", MESH)
    assert unknown_metrics(point) == {}
    assert len(needed_figures(point, "price")) == 5
    assert list(needed_figures(point, "network.price")) == [
        f"network.dims.1.fabric.{part}_price" for part in ("switch", "optic", "cable")
    ]


@pytest.mark.parametrize(
    ("path", "metrics", "part"),
    [
        ("node.host_price", {"cost_usd", "cost_usd_per_token"}, "the host of dgx-h100"),
        ("node.host_power", {"power_w", "energy_j", "cost_usd_per_token"}, "the host of dgx-h100"),
        (
            "network.dims.1.fabric.switch_price",
            {"cost_usd", "cost_usd_per_token", "network_usd", "perf_per_network_cost"},
            "switches of network.dims.1",
        ),
        (
            "network.dims.1.fabric.optic_power",
            {"power_w", "energy_j", "cost_usd_per_token"},
            "optics of network.dims.1",
        ),
        (
            "network.dims.1.fabric.cable_price",
            {"cost_usd", "cost_usd_per_token", "network_usd", "perf_per_network_cost"},
            "cables of network.dims.1",
        ),
    ],
)
def test_a_part_without_a_figure_makes_metrics_unknown(path: str, metrics: set[str], part: str) -> None:
    point = load_design("llama3-8b@dgx-h100:64", {**MESH, path: None})
    outcome = evaluate(point)
    assert isinstance(outcome, Metrics)
    assert set(outcome.unknown) == metrics
    assert all(why.endswith(f"is known for {part}") for why in outcome.unknown.values())
    assert all(getattr(outcome, metric) is None for metric in metrics)
    assert all(getattr(outcome, metric) is not None for metric in {"cost_usd", "network_usd", "power_w"} - metrics)


def test_a_part_that_is_not_there_needs_no_price() -> None:
    stated = {"network.dims.1.fabric.circuit_port_price": None, "network.dims.0.fabric.switch_price": None}
    assert unknown_metrics(load_design("llama3-8b@dgx-h100:64", {**MESH, **stated})) == {}


def test_a_tpu_has_no_price_for_cables_and_circuits_either() -> None:
    point = load_design("llama3-8b@tpu-v4:64", MESH)
    assert unknown_parts(point, "price")[:2] == ("tpu-v4", "cables of network.dims.0")
    assert unknown_metrics(point)["network_usd"] == (
        "no price is known for cables of network.dims.0 and 1 and 2, "
        "ports of circuit switches of network.dims.0 and 1 and 2"
    )


def test_a_network_inside_a_node_has_no_price_of_its_own() -> None:
    outcome = evaluate(load_design("llama3-8b@dgx-h100:8", MESH))
    assert isinstance(outcome, Metrics)
    assert (outcome.network_usd, outcome.perf_per_network_cost) == (0, None)
    assert outcome.unknown == {"perf_per_network_cost": IN_THE_NODE}


@pytest.mark.parametrize(
    ("design", "objective", "why"),
    [
        ("llama3-8b@dgx-h800:16", "cost_usd", "no price is known for h800-sxm-80gb, the host of hgx-h800"),
        ("llama3-8b@trn2:32", "power_w", "no power is known for the host of trn2-48xlarge"),
        ("llama3-8b@tpu-v5e:16", "network_usd", "no price is known for cables"),
        ("llama3-8b@dgx-h100:8", "perf_per_network_cost", "part of the node"),
    ],
)
def test_an_objective_that_no_design_has_is_refused(design: str, objective: str, why: str) -> None:
    with pytest.raises(SpecError, match=f"{objective}.*is unknown for every design: .*{why}"):
        make_problem(mapping_space(design), [objective])
