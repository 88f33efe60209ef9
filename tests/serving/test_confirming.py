"""Simulations of a part of a deployment: in its own ratio, with the load of an instance, and totals of the whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_point import DesignPoint
from cosmic.search.advice.service_question import Asked, read_service
from cosmic.serving import simulation_check
from cosmic.serving.deployment import Deployment
from cosmic.serving.deployment_candidates import InstanceKind, InstanceShape, as_design
from cosmic.serving.served_evaluation import estimate_design
from cosmic.serving.serving_metrics import ServingMetrics
from cosmic.serving.simulation_check import choose_part, simulate_part_of_design
from cosmic.simulate.metrics import Infeasible


def served(npus: int, kind: InstanceKind, *counts: int, **load: Any) -> DesignPoint:
    asked = Asked(**{"input": 500, "output": 50, **load})
    return as_design(read_service(f"llama3-8b@dgx-h100:{npus}", {}, asked).design, kind, *counts)


@pytest.mark.parametrize(
    ("npus", "kind", "counts", "load"),
    [
        (64, InstanceKind(InstanceShape(tp=1), InstanceShape(tp=1)), (16, 48), {"rate": 640.0}),
        (128, InstanceKind(InstanceShape(tp=2), InstanceShape(tp=1)), (24, 80), {"concurrency": 1024}),
        (128, InstanceKind(InstanceShape(tp=2)), (64,), {"rate": 640.0}),
        (128, InstanceKind(InstanceShape(tp=2)), (64,), {"concurrency": 640}),
        (8, InstanceKind(InstanceShape(tp=1), InstanceShape(tp=1)), (3, 5), {"rate": 20.0}),
    ],
)
def test_a_part_has_the_ratio_of_the_pools_and_the_load_of_an_instance(
    monkeypatch: pytest.MonkeyPatch, npus: int, kind: InstanceKind, counts: tuple[int, ...], load: dict[str, Any]
) -> None:
    seen: list[Deployment] = []

    def noted(part: Deployment, **_: object) -> Infeasible:
        seen.append(part)
        return Infeasible(("not here",))

    monkeypatch.setattr(simulation_check, "simulate_load", noted)
    assert isinstance(simulate_part_of_design(served(npus, kind, *counts, **load), 100.0), Infeasible)
    (part,) = seen
    some, whole = int(np.ravel(part.pool.instances)[0]), counts[0]
    if part.prefill is not None:
        assert int(np.ravel(part.prefill.instances)[0]) * whole == some * counts[1]
    (name,) = load
    assert getattr(part.load, name) / some == pytest.approx(load[name] / whole, rel=0.01)
    assert some <= whole
    assert int(np.ravel(part.npus)[0]) < npus or npus == 8


def test_what_a_part_says_is_of_the_whole() -> None:
    kind = InstanceKind(InstanceShape(tp=1), InstanceShape(tp=1))
    design = served(64, kind, 16, 48, rate=640.0)
    closed = estimate_design(design)
    assert isinstance(closed, ServingMetrics)
    found = simulate_part_of_design(design, float(closed.running))
    assert not isinstance(found, Infeasible)
    assert found.share == 0.5
    seen = found.metrics
    assert seen.requests_per_s == pytest.approx(640, rel=0.05)
    assert seen.output_tokens_per_s == pytest.approx(64 * seen.tokens_per_s_per_npu)
    assert seen.usd_per_million_tokens == pytest.approx(closed.usd_per_million_tokens, rel=0.05)


def test_few_instances_are_simulated_as_they_are() -> None:
    assert choose_part(3, 20, None) == (3, 20)
    assert choose_part(7, 0, 5) == (7, 0)
    assert choose_part(48, 96, 7) == (48, 96)  # clients do not divide
    assert choose_part(48, 96, 144 * 7) == (8, 16)


def test_the_same_accelerators_cost_the_same_however_they_are_split() -> None:
    kind, found = InstanceKind(InstanceShape(tp=1), InstanceShape(tp=1)), []
    for counts in ((2, 6), (3, 5), (4, 4)):
        seen = estimate_design(served(8, kind, *counts, rate=10.0))
        assert isinstance(seen, ServingMetrics)
        found.append((seen.usd_per_million_tokens, seen.j_per_million_tokens))
    one = estimate_design(replace(served(8, InstanceKind(InstanceShape(tp=1)), 8, rate=10.0)))
    assert isinstance(one, ServingMetrics)
    for each in found:
        assert each == pytest.approx((one.usd_per_million_tokens, one.j_per_million_tokens), rel=1e-6)
