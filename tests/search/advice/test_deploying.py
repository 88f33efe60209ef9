"""The smallest machine that holds limits: whatever the bound, and whatever the closed form flatters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cosmic.design.design_point import DesignPoint
from cosmic.search.advice import deployment_plan
from cosmic.search.advice.deployment_plan import (
    GROWTH_FACTOR,
    DeploymentSizing,
    Plan,
    fills_machine,
    next_machine_size,
    plan_deployments,
    split_machine,
)
from cosmic.search.advice.service_question import Asked, Service, read_service
from cosmic.serving.deployment_search import FoundDeployments, search_in_one, search_in_two
from cosmic.serving.served_evaluation import estimate_design
from cosmic.serving.serving_metrics import Percentiles, ServingMetrics, Slo, read_slo, shares_used
from cosmic.serving.simulation_check import PartialSimulation

LIMITS = [read_slo("1 s", "ttft"), read_slo("15 ms", "tpot")]


@pytest.fixture(scope="module")
def service() -> Service:
    return read_service("llama3-8b@h100", {}, Asked(input=1000, output=200, rate=300.0, largest=True))


@pytest.fixture(scope="module")
def searched(service: Service) -> tuple[FoundDeployments, FoundDeployments]:
    return search_in_one(service.design, LIMITS), search_in_two(service.design, LIMITS)


def times(seen: Percentiles, factor: float) -> Percentiles:
    return Percentiles(*(getattr(seen, name) * factor for name in Percentiles.__slots__))


def slower(factor: Callable[[DesignPoint], float]) -> Callable[..., PartialSimulation]:
    """Return a simulation that finds times so many times the closed form's."""

    def simulated(design: DesignPoint, in_flight: float, seed: int = 0) -> PartialSimulation:
        del in_flight, seed
        seen = estimate_design(design)
        assert isinstance(seen, ServingMetrics)
        by = factor(design)
        return PartialSimulation(replace(seen, ttft=times(seen.ttft, by), tpot=times(seen.tpot, by)), 1.0)

    return simulated


@pytest.fixture
def planned(
    monkeypatch: pytest.MonkeyPatch, service: Service, searched: tuple[FoundDeployments, FoundDeployments]
) -> Callable[[Callable[[DesignPoint], float], int | None], Plan]:
    """Return a plan by a simulation that is so many times slower, without searching again."""
    monkeypatch.setattr(deployment_plan, "search_in_one", lambda *_: searched[0])
    monkeypatch.setattr(deployment_plan, "search_in_two", lambda *_: searched[1])

    def of(factor: Callable[[DesignPoint], float], most: int | None = None) -> Plan:
        monkeypatch.setattr(deployment_plan, "simulate_part_of_design", slower(factor))
        return plan_deployments(service, LIMITS, most)

    return of


@pytest.mark.long
def test_a_tighter_bound_never_gives_a_cheaper_deployment(planned: Any) -> None:
    for factor in (0.9, 1.3):
        free = planned(lambda _, by=factor: by)
        assert free.chosen is not None
        best = free.chosen.candidate.npus
        for most in (best, best - 1, 1):
            found = planned(lambda _, by=factor: by, most)
            if most >= best:
                assert found.chosen is not None
                assert found.chosen.design == free.chosen.design
            else:
                assert found.chosen is None
                assert found.needed is not None
                assert found.needed > most
                assert f"more than {most}" in found.reasons[0]


@pytest.mark.long
def test_what_is_chosen_holds_and_is_a_machine_that_there_is(planned: Any, service: Service) -> None:
    found = planned(lambda _: 1.1)
    assert found.chosen is not None
    for each in found.checked:
        assert service.sized(each.candidate.npus) is not None
        assert each.design.network.npus == each.candidate.npus
        assert each.holds == all(limit.holds(each.simulated) for limit in LIMITS)
    assert min(each.candidate.npus for each in found.checked if each.holds) == found.chosen.candidate.npus
    assert found.needed == found.chosen.candidate.npus


@pytest.mark.long
def test_a_kind_that_the_closed_form_flatters_gives_way_to_another(planned: Any) -> None:
    first = planned(lambda _: 1.0).chosen
    assert first is not None
    tp = first.design.workload.tp
    other = planned(lambda design: 4.0 if design.workload.tp == tp else 1.0).chosen
    assert other is not None
    assert other.design.workload.tp != tp
    assert other.candidate.npus < 3 * first.candidate.npus


@pytest.mark.long
def test_nothing_that_holds_has_a_reason(planned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment_plan, "MAX_SIZES", 1)
    monkeypatch.setattr(deployment_plan, "MAX_SIMULATED_PER_SIZE", 1)
    found = planned(lambda _: 50.0)
    assert found.chosen is None
    assert "no deployment holds in the simulation" in found.reasons[0]


def test_sizes_are_those_of_whole_hosts(service: Service) -> None:
    assert [next_machine_size(service, npus) for npus in (1, 3, 9, 16, 17)] == [1, 4, 16, 16, 24]


@pytest.mark.long
def test_machines_grow_to_sizes_that_instances_fill(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod has any number of accelerators, and instances of 16 fill only every 16th."""
    pod = read_service(
        "llama3-70b@tpu-v5e", {}, Asked(input=1000, output=200, rate=50.0, engine="sglang", largest=True)
    )
    limits = [read_slo("1 s", "ttft"), read_slo("50 ms", "tpot")]
    monkeypatch.setattr(
        deployment_plan, "simulate_part_of_design", slower(lambda design: 1.0 if design.network.npus > 200 else 2.0)
    )
    tried = DeploymentSizing(pod, search_in_two(pod.design, limits).cheapest, limits)
    found = tried.find_smallest()
    assert found is not None
    assert found.candidate.npus == 208
    assert tried.sizes == [144, 160, 176, 208, 192]
    assert not tried.untried(208)
    assert tried.untried(240)


@pytest.mark.long
def test_steps_between_sizes_are_small(service: Service, searched: tuple[FoundDeployments, FoundDeployments]) -> None:
    for part in searched:
        tried = DeploymentSizing(service, part.cheapest, LIMITS)
        size = tried.size_within(800, 1000)
        assert size is not None
        assert 1000 / GROWTH_FACTOR <= size <= 1000
        assert any(fills_machine(each, size) for each in part.cheapest)


@pytest.mark.long
def test_a_kind_fills_a_machine_where_it_can_be_split(searched: tuple[FoundDeployments, FoundDeployments]) -> None:
    for each in (*searched[0].cheapest[:8], *searched[1].cheapest[:8]):
        for npus in range(1, 80):
            assert fills_machine(each, npus) == any(True for _ in split_machine(each, npus, None))


@pytest.mark.long
def test_splits_fill_a_machine(searched: tuple[FoundDeployments, FoundDeployments]) -> None:
    each = searched[1].cheapest[0]
    assert each.kind.prefill is not None
    found = list(split_machine(each, 48, None))
    assert found
    for some, others in found:
        assert some * each.kind.shape.npus + others * each.kind.prefill.npus == 48


@pytest.mark.long
def test_the_cheapest_of_a_search_has_totals_and_costs_of_its_own(
    searched: tuple[FoundDeployments, FoundDeployments], service: Service
) -> None:
    for part in searched:
        each = part.cheapest[0]
        assert each.metrics.requests_per_s == pytest.approx(300.0)
        assert each.metrics.output_tokens_per_s == pytest.approx(each.metrics.tokens_per_s_per_npu * each.npus)
        machine = service.design.network.npus
        assert each.metrics.usd_per_million_tokens is not None
        assert 0 < each.metrics.usd_per_million_tokens < 10
        assert each.npus < machine


@pytest.mark.long
def test_a_limit_has_the_share_that_is_used(searched: tuple[FoundDeployments, FoundDeployments]) -> None:
    seen = searched[0].cheapest[0].metrics
    assert max(float(each) for each in shares_used(seen, LIMITS)) <= 1
    assert len(shares_used(seen, [Slo("tpot", "p95", 1.0)])) == 2  # and the wait
