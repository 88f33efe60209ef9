"""Searches for deployments: shapes, replicas that do not meet, the fewest that hold limits, the front."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.search.advice.service_question import Asked, Service, read_service
from cosmic.search.mapping.design_completion import load_design
from cosmic.serving import deployment_search
from cosmic.serving.deployment_candidates import (
    InstanceKind,
    InstanceShape,
    as_design,
    deployment_rows,
    list_shapes,
    shape_of,
)
from cosmic.serving.deployment_search import (
    best_mappings,
    best_split,
    cheapest_in_one,
    least_holding,
    search_in_one,
    search_in_two,
)
from cosmic.serving.served_evaluation import estimate_deployments, estimate_design
from cosmic.serving.serving_metrics import ServingMetrics, read_slo

LIMITS = [read_slo("2 s", "ttft"), read_slo("40 ms", "tpot")]


def service(source: str = "llama3-8b@dgx-h100:8", **asked: object) -> Service:
    given = {"input": 2000, "output": 200, "rate": 20.0, "largest": True, **asked}
    return read_service(source, {}, Asked(**given))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def base() -> DesignPoint:
    return service().design


def test_shapes_of_a_dense_model_are_all_ways_to_split_it(base: DesignPoint) -> None:
    found = list_shapes(base, {})
    assert {(each.tp, each.pp) for each in found} == {
        (tp, pp) for tp in (1, 2, 4, 8) for pp in (1, 2, 4, 8) if tp * pp <= 8
    }
    assert [each.npus for each in found] == sorted(each.npus for each in found)


def test_shapes_of_experts_split_them_or_spread_them() -> None:
    found = list_shapes(service("gpt-oss-20b@dgx-h100:4").design, {})
    assert InstanceShape(tp=4) in found
    assert InstanceShape(tp=4, ep=4) in found
    assert InstanceShape(ranks=4, ep=4) in found
    assert all(each.ranks == 1 or each.ep == each.tp * each.ranks for each in found)


def test_a_stated_mapping_is_kept(base: DesignPoint) -> None:
    assert {each.tp for each in list_shapes(base, {"tp": 4})} == {4}
    assert [str(each) for each in list_shapes(base, {"tp": 4, "pp": 1})] == ["tp 4"]


def test_a_shape_is_what_its_design_has(base: DesignPoint) -> None:
    moe = service("gpt-oss-20b@dgx-h100:8").design
    for design in (base, moe):
        for shape in list_shapes(design, {}):
            laid = as_design(design, InstanceKind(shape), 8 // shape.npus)
            assert shape_of(laid.workload) == shape
            assert laid.workload.ranks == 8


def test_twice_the_instances_under_twice_the_load_do_the_same(base: DesignPoint) -> None:
    rows = deployment_rows(base, [InstanceKind(InstanceShape(tp=2))] * 2, "rate", [3.0, 6.0], [1, 2])
    found = rows.estimates
    assert found.metrics_at(0).tpot.mean_s == pytest.approx(found.metrics_at(1).tpot.mean_s)
    assert found.metrics_at(0).ttft.p95_s == pytest.approx(found.metrics_at(1).ttft.p95_s)


@pytest.mark.long
def test_many_deployments_at_once_are_each_what_one_is(base: DesignPoint) -> None:
    shapes = list_shapes(base, {})
    counts = [8 // each.npus for each in shapes]
    together = deployment_rows(base, [InstanceKind(each) for each in shapes], "rate", 20.0, counts).estimates
    for place, (shape, count) in enumerate(zip(shapes, counts, strict=True)):
        alone = estimate_deployments(batch_of(as_design(base, InstanceKind(shape), count)))
        assert alone.runs[0] == together.runs[place]
        if alone.runs[0]:
            assert alone.metrics_at(0).e2e.mean_s == pytest.approx(together.metrics_at(place).e2e.mean_s, rel=1e-9)


def test_the_least_number_is_found_by_halving() -> None:
    wanted = np.array([1, 7, 1000, 5000])
    found, _ = least_holding(lambda counts: counts >= wanted, np.full(4, 4096))
    assert found.tolist() == [1, 7, 1000, 0]


@pytest.mark.long
def test_the_cheapest_holds_and_one_instance_less_does_not() -> None:
    load = service(rate=200.0).design
    found = cheapest_in_one(load, LIMITS)
    assert found
    assert [each.npus for each in found] == sorted(each.npus for each in found)
    for each in found[:4]:
        assert each.holds
        if each.instances > 1:
            fewer = deployment_rows(load, [each.kind], "rate", 200.0, each.instances - 1)
            assert not fewer.holding(LIMITS)[0]


@pytest.mark.long
def test_nothing_of_the_front_is_dominated(base: DesignPoint) -> None:
    found = search_in_one(base, LIMITS)
    assert len(found.front) > 2
    for slower, faster in pairwise(found.front):
        assert slower.metrics.tokens_per_s_per_user < faster.metrics.tokens_per_s_per_user
        assert slower.metrics.tokens_per_s_per_npu > faster.metrics.tokens_per_s_per_npu
    assert found.kinds >= 10
    assert found.priced > found.kinds


def test_two_pools_hold_the_limits_that_they_say(base: DesignPoint) -> None:
    found = search_in_two(base, LIMITS, 8)
    assert found.cheapest
    for each in (*found.front, *found.cheapest[:3]):
        assert each.kind.prefill is not None
        assert each.prefill_instances > 0
    assert all(each.npus <= 8 for each in found.front)
    assert all(each.holds for each in found.cheapest)


def test_accelerators_are_shared_between_two_pools(base: DesignPoint) -> None:
    found = best_split(base, LIMITS)
    assert found is not None
    assert found.npus == 8
    laid = as_design(base, found.kind, found.instances, found.prefill_instances)
    told = estimate_design(laid)
    assert isinstance(told, ServingMetrics)
    assert told.e2e.mean_s == pytest.approx(found.metrics.e2e.mean_s)
    assert best_split(service("llama3-8b@dgx-h100:1").design, LIMITS) is None


@pytest.mark.parametrize("load", [{"rate": 20.0}, {"rate": None, "concurrency": 16}])
def test_of_many_shapes_those_are_shared_that_serve_soonest_alone(
    load: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = service(**load).design
    every = best_split(base, LIMITS)
    monkeypatch.setattr(deployment_search, "PROMISING", 3)
    few = best_split(base, LIMITS)
    assert every is not None
    assert few is not None
    assert few.npus == 8
    assert few.metrics.e2e.mean_s <= 1.1 * every.metrics.e2e.mean_s


def test_the_best_mapping_is_the_soonest_of_all(base: DesignPoint) -> None:
    designs, searched = best_mappings(base, LIMITS, {})
    shapes = list_shapes(base, {})
    every = deployment_rows(
        base, [InstanceKind(each) for each in shapes], "rate", 20.0, [8 // each.npus for each in shapes]
    )
    told = [estimate_design(each) for each in designs]
    seconds = [each.e2e.mean_s for each in told if isinstance(each, ServingMetrics)]
    assert seconds == sorted(seconds)
    assert seconds[0] == pytest.approx(np.nanmin(every.estimates.metrics.e2e.mean_s))
    assert searched == len(shapes)


def test_weights_that_fit_nowhere_are_no_deployment() -> None:
    huge = service("llama3-405b@dgx-h100:1").design
    assert best_mappings(huge, [], {})[0] == []
    assert search_in_one(huge, []).kinds == 0
    assert cheapest_in_one(huge, []) == ()


@pytest.mark.parametrize(
    ("source", "stated", "sizes"),
    [
        ("llama3-70b@gb200-nvl72:72", {}, {1, 2, 4, 8, 12, 24, 36, 72}),
        ("llama3-70b@dgx-h100:24", {}, {1, 2, 4, 8, 24}),
        ("llama3-70b@dgx-h100:24", {"pp": 3}, {3, 6, 12, 24}),
        ("llama3-70b@gb200-nvl72:14", {}, {1, 2, 7, 14}),
        ("llama3-70b@tpu-v6e:12", {}, {1, 2, 3, 4, 6, 12}),
    ],
)
def test_instances_share_hosts_evenly_or_take_whole_ones(source: str, stated: dict[str, int], sizes: set[int]) -> None:
    assert {each.npus for each in list_shapes(load_design(source), stated)} == sizes


def test_groups_of_keys_and_values_are_split_or_copied_evenly() -> None:
    machine = load_design("starcoder2-3b@gb200-nvl72:72")  # 24 heads, 2 groups of keys and values
    assert {each.tp for each in list_shapes(machine, {})} == {1, 2, 4, 6, 8, 12, 24}


@pytest.mark.long
def test_pools_have_no_stages_where_the_engine_moves_no_caches_of_them() -> None:
    """VLLM's connector refuses pipeline ranks; SGLang's does not."""
    for engine, staged in (("vllm", False), ("sglang", True)):
        asked = Asked(input=1000, output=100, concurrency=64, engine=engine, largest=True)
        base = read_service("llama3-70b@dgx-h100:8", {}, asked).design
        kinds = [each.kind for each in search_in_two(base, []).front]
        assert any(kind.shape.pp > 1 or (kind.prefill and kind.prefill.pp > 1) for kind in kinds) == staged
