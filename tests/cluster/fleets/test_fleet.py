"""Jobs of real models on a cluster of the catalog."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import cosmic
from cosmic.base.errors import SpecError
from cosmic.cluster.fleet_jobs import Fleet, jain_index
from cosmic.cluster.job_requests import contention_factor, shared_tier
from cosmic.design.network_layer import Dimension, Network
from cosmic.report.fleet_charts import fleet_page, fleet_svg, fleet_text_chart, format_duration, write_fleet_timeline
from cosmic.report.page import to_html
from cosmic.search.fleet import best_of, fleet

EXPERTS = {"global_batch": 64, "tp": 1, "cp": 1, "pp": 1, "ep": 32}
MOE = {"model": "qwen3-30b-a3b", "npus": 32, "steps": 100, "workload": EXPERTS}
"""An all-to-all over four nodes in each layer."""


def two_mixtures(**rules: Any) -> Fleet:
    """Return what comes of two mixtures of experts on two leaves of four nodes."""
    return fleet({"jobs": [{"name": "a", **MOE}, {"name": "b", **MOE}]}, "dgx-h100:64", leaf=32, **rules)


def test_a_job_alone_takes_its_own_steps() -> None:
    point = cosmic.load_design("llama3-8b@dgx-h100:8")
    metrics = cosmic.evaluate(point)
    assert isinstance(metrics, cosmic.design.Metrics)
    (job,) = cosmic.cluster.fleet(
        {"jobs": [{"name": "a", "model": "llama3-8b", "npus": 8, "steps": 10}]}, "dgx-h100:16"
    ).jobs
    assert job.end_s == pytest.approx(10 * metrics.step_s, rel=1e-12)
    assert (job.wait_s, job.slowdown, job.accelerators) == (0.0, 1.0, ((0, 8),))
    assert job.tokens_per_s == pytest.approx(metrics.tokens_per_s, rel=1e-12)
    assert job.memory_bytes == metrics.memory_used_bytes


def test_lengths_in_tokens_and_time_become_steps() -> None:
    base = {"model": "llama3-8b", "npus": 8}
    jobs = [{"name": "a", **base, "tokens": "9 M"}, {"name": "b", **base, "duration": "1 h", "count": 2}]
    tokens, first, second = fleet({"jobs": jobs}, "dgx-h100:16").jobs
    assert tokens.steps == 3  # 512 sequences of 8,192 tokens are 4.19 M
    assert (first.name, second.name) == ("b-1", "b-2")
    assert first.end_s == pytest.approx(3600, rel=1e-12)


def test_full_bisection_slows_nobody() -> None:
    for placement in ("packed", "scattered"):
        assert [job.slowdown for job in two_mixtures(placement=placement).jobs] == [1.0, 1.0]


def test_an_oversubscribed_tier_slows_scattered_jobs_and_not_those_in_one_leaf() -> None:
    packed = two_mixtures(placement="packed", oversubscription=4)
    scattered = two_mixtures(placement="scattered", oversubscription=4)
    assert [job.accelerators for job in packed.jobs] == [((0, 32),), ((32, 64),)]
    assert [job.slowdown for job in packed.jobs] == [1.0, 1.0]
    assert all(len(job.accelerators) == 2 and job.slowdown > 1.1 for job in scattered.jobs)
    # no worse than a network with a quarter of the bandwidth for everybody
    point = cosmic.load_design(
        {"model": "qwen3-30b-a3b", "system": "dgx-h100:32", "workload": EXPERTS},
        {"network.dims.1.bandwidth": "12.5 GB/s"},
    )
    worst = cosmic.evaluate(point)
    assert isinstance(worst, cosmic.design.Metrics)
    assert scattered.jobs[0].step_s <= worst.step_s


def test_jobs_that_can_never_run_are_results_with_reasons() -> None:
    jobs = [
        {"name": "large", "model": "llama3-8b", "npus": 64, "steps": 1},
        {"name": "heavy", "model": "gpt3-175b", "npus": 8, "steps": 1},
        {"name": "fine", "model": "llama3-8b", "npus": 8, "steps": 1},
    ]
    found = fleet({"jobs": jobs}, "dgx-h100:16")
    assert [job.name for job in found.jobs] == ["fine"]
    reasons = {each.name: each.reasons[0] for each in found.refused}
    assert reasons["large"] == "it asks for 64 accelerators of 16"
    assert reasons["heavy"].startswith("needs ")
    assert "GiB" in reasons["heavy"]


def test_without_a_number_a_job_has_the_fewest_accelerators_that_hold_it() -> None:
    content = {"jobs": [{"name": "a", "model": "llama3-70b", "npus": "find", "steps": 1}]}
    (job,) = fleet(content, "dgx-h100:64").jobs
    assert job.npus in (16, 32)
    half = {"jobs": [{"name": "a", "model": "llama3-70b", "npus": job.npus // 2, "steps": 1}]}
    assert fleet(half, "dgx-h100:64").refused


def test_a_search_holds_what_is_stated_and_puts_the_best_first() -> None:
    jobs = [
        {"name": "a", "model": "llama3-8b", "npus": 8, "duration": "10 h"},
        {"name": "b", "model": "llama3-8b", "npus": 16, "duration": "1 h", "arrival": "1 min"},
        {"name": "c", "model": "llama3-8b", "npus": 8, "duration": "1 h", "arrival": "2 min"},
    ]
    found = best_of({"jobs": jobs}, "dgx-h100:16", sharing="space", placement="packed")
    assert {each.rules.placement for each in found} == {"packed"}
    assert next(each.rules.policy for each in found) == "backfill"  # c runs beside a
    assert len(found) == 3
    values = [each.value("mean_slowdown") for each in found]
    assert values == sorted(values)
    assert len(best_of({"jobs": jobs}, "dgx-h100:16")) == 10
    with pytest.raises(SpecError, match="no such objective"):
        best_of({"jobs": jobs}, "dgx-h100:16", "makespam")


def test_gangs_measure_the_shares_that_were_asked_for() -> None:
    jobs = [
        {"name": f"{share}", "model": "llama3-8b", "npus": 8, "steps": 100, "share": share} for share in (1, 2, 4, 8)
    ]
    found = fleet({"jobs": jobs, "swap": "50 GB/s", "quantum": "100 s"}, "dgx-h100:8", sharing="time")
    (gang,) = found.gangs
    for tenant in gang.tenants:
        assert tenant.measured == pytest.approx(tenant.share, rel=0.01)
    assert [tenant.share for tenant in gang.tenants] == pytest.approx([1 / 15, 2 / 15, 4 / 15, 8 / 15])
    assert sum(job.device_s for job in found.jobs) < found.makespan_s  # switching takes the rest


def test_a_fleet_is_a_function_of_its_inputs() -> None:
    assert two_mixtures(oversubscription=4) == two_mixtures(oversubscription=4)


# ---- formulas


def network(*sizes: int) -> Network:
    """Return a network of switches."""
    dims = [Dimension(topology="switch", npus=size, bandwidth_bytes_per_s=50e9, latency_s=0.0) for size in sizes]
    return Network(dims=tuple(dims))


def test_a_tier_is_what_lies_above_the_outermost_groups() -> None:
    tier = shared_tier(network(8, 64), 256, 4.0)
    assert (tier.npus, tier.node, tier.group, tier.leaf) == (512, 8, 8, 256)
    assert tier.uplink_bytes_per_s == 256 * 50e9 / 4
    assert shared_tier(network(4, 4, 4, 2)).blocks == (4, 16, 64)
    assert shared_tier(network(8)).group == 1
    assert shared_tier(network(8, 64)).leaf == 8


def test_contention_is_demand_over_capacity_of_the_fullest_leaf() -> None:
    # leaf 0: (100 + 20) / 200 < 1; leaf 1: (300 + 100) / 200 = 2
    assert contention_factor({0: 100.0, 1: 300.0}, {0: 20.0, 1: 100.0, 2: 999.0}, 200.0) == 2.0


def test_fairness_is_one_where_all_are_equal() -> None:
    assert jain_index([3.0] * 7) == pytest.approx(1.0)
    assert jain_index([1.0, 3.0]) == pytest.approx(16 / 20)  # (1 + 3)^2 / (2 * (1 + 9))


# ---- pictures


def test_a_timeline_has_each_job_on_the_rows_of_its_accelerators(tmp_path: Path) -> None:
    found = two_mixtures()
    write_fleet_timeline(found, tmp_path / "x.json")
    events = json.loads((tmp_path / "x.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {event["name"] for event in spans} == {"a", "b"}
    assert spans[0]["dur"] == pytest.approx(1e6 * found.jobs[0].run_s)
    assert [event["args"]["name"] for event in events if event["name"] == "thread_name"] == ["0-31", "32-63"]


def test_charts_show_every_job() -> None:
    found = two_mixtures()
    lines = fleet_text_chart(found, 40)
    assert lines[0] == f"{'0-31':>11} │" + "A" * 26
    assert lines[1] == f"{'32-63':>11} │" + "B" * 26
    assert fleet_svg(found).count("<rect") == 3  # the paper, and two bars
    html = to_html(fleet_page(found, (found,)))
    assert "Jobs on dgx-h100:64" in html
    assert ">a<" in html
    assert format_duration(3600) == "1 h"


def test_an_empty_fleet_has_pictures_too(tmp_path: Path) -> None:
    found = fleet({"jobs": [{"name": "a", "model": "llama3-8b", "npus": 64, "steps": 1}]}, "dgx-h100:8")
    assert (found.jobs, found.mean_slowdown, found.makespan_s, found.utilization) == ((), None, 0.0, 0.0)
    assert fleet_text_chart(found, 60) == []
    assert "cannot run" in to_html(fleet_page(found))
    write_fleet_timeline(found, tmp_path / "x.json")
