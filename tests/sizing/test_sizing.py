"""What to buy."""

from __future__ import annotations

import pytest

from cosmic.sizing import Question, size


def test_a_deadline_alone_finds_a_cluster_that_just_makes_it() -> None:
    # 6 * 8.03e9 * 1e12 flop in 30 days of 86,400 s are 18.6 PFLOP/s: 19 H100 at their peak of 989 TFLOP/s, and 40 to
    # 60 at the third to half of it that such runs reach; a node less would be late.
    found = size(Question(model="llama3-8b", tokens=1e12, deadline_days=30), ["dgx-h100"])
    assert found.best is not None
    assert found.best.bound_by == "deadline"
    days = found.best.best.metrics.train_days
    assert days is not None
    assert days <= 30
    assert 40 <= found.best.best.accelerators <= 64
    late = [each.metrics.train_days for each in found.tried if each.accelerators < found.best.best.accelerators]
    assert late
    assert all(each is not None and each > 30 for each in late)


def test_a_system_without_a_rate_of_interruptions_is_refused_for_that() -> None:
    found = size(Question(model="llama3-8b", tokens=1e12, accelerators=64), ["mi300x"])
    assert found.best is None
    assert "no rate of interruptions is known for mi300x" in found.refused["mi300x"]


def test_more_power_than_a_batch_can_use_is_no_reason_to_buy_for_it() -> None:
    found = size(Question(model="llama3-8b", tokens=1e12, power_w=1e9), ["dgx-h100"])
    assert found.best is not None
    assert found.best.bound_by == "mapping"
    assert found.best.best.accelerators < 100_000


def test_a_budget_below_one_node_is_said_so() -> None:
    found = size(Question(model="llama3-8b", tokens=1e12, budget_usd=1.0), ["dgx-h100"])
    assert found.refused == {"dgx-h100": "one node of 8 does not fit: budget"}


@pytest.mark.parametrize("limit", [{"budget_usd": 5e6}, {"power_w": 2e5}])
def test_the_best_is_within_the_limits(limit: dict[str, float]) -> None:
    found = size(Question(model="llama3-8b", tokens=1e12, **limit), ["dgx-h100"])  # type: ignore[arg-type]
    assert found.best is not None
    metrics = found.best.best.metrics
    assert metrics.cost_usd is not None
    assert metrics.power_w is not None
    assert metrics.cost_usd <= limit.get("budget_usd", 1e30)
    assert metrics.power_w <= limit.get("power_w", 1e30)
