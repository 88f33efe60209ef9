"""What operators reach: never more than their roofline, and all that the step's breakdown has of them."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.design.design_batch import batch_of
from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.analytic_step import bounding_profile
from cosmic.simulate.metrics import Metrics
from cosmic.step.bottleneck import roofline_operators, workload_peak_flop_per_s

DECODE = {"workload.task": "decode", "workload.global_batch": 8, "workload.micro_batch": 8}
DESIGNS: list[tuple[str, dict[str, Any]]] = [
    ("llama3-70b@dgx-h100:512", {}),
    ("llama3-70b@dgx-h100:64", {"workload.pp": 4, "workload.tp": 8, "workload.recompute": "full"}),
    ("deepseek-v3@gb200-nvl72:576", {}),
    ("gpt3-175b@cosmic-1024", {}),
    ("llama3-8b@dgx-h100:1", DECODE),
    ("mixtral-8x7b@dgx-h100:64", {"workload.ep": 8, "workload.execution": "eager"}),
]


@pytest.mark.parametrize(("source", "changes"), DESIGNS)
def test_no_operator_is_above_its_roofline(source: str, changes: dict[str, Any]) -> None:
    point = load_design(source, changes, plain=True)
    found = roofline_operators(bounding_profile(batch_of(point)))
    assert found
    for each in found:
        roof = min(workload_peak_flop_per_s(point), each.intensity * point.memory.bandwidth_bytes_per_s)
        assert each.flop / each.seconds <= roof * (1 + 1e-9), each


@pytest.mark.parametrize(("source", "changes"), DESIGNS)
def test_products_take_what_the_breakdown_says(source: str, changes: dict[str, Any]) -> None:
    point = load_design(source, {"workload.recompute": "none", "memory.capacity": "4 TiB"} | changes, plain=True)
    outcome = evaluate(point)
    assert isinstance(outcome, Metrics)
    products = sum(
        each.seconds for each in roofline_operators(bounding_profile(batch_of(point))) if each.kind == "einsum"
    )
    again = outcome.breakdown["recompute"]
    assert outcome.breakdown["gemm"] <= products * (1 + 1e-9)
    assert products <= (outcome.breakdown["gemm"] + again) * (1 + 1e-9)


def test_decoding_waits_for_memory_and_training_does_not() -> None:
    shares = []
    for changes in (DECODE, {}):
        point = load_design("llama3-8b@dgx-h100:1", changes, plain=True)
        products = [each for each in roofline_operators(bounding_profile(batch_of(point))) if each.kind == "einsum"]
        ridge = workload_peak_flop_per_s(point) / point.memory.bandwidth_bytes_per_s
        below = sum(each.seconds for each in products if each.intensity < ridge)
        shares.append(below / sum(each.seconds for each in products))
    assert shares[0] > 0.99
    assert shares[1] < 0.1
