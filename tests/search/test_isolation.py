"""Co-design beside tuning one layer."""

from __future__ import annotations

import pytest

from cosmic.report.search_charts import metric_axis
from cosmic.search.search_verdict import FULL_STACK, isolate_layers


def test_each_layer_is_searched_by_itself_and_the_full_stack_beside_them() -> None:
    found = isolate_layers("cosmic-2048-full-stack", trials=3000, seed=1)
    rows = {row["searched"]: row for row in found.rows()}
    assert list(rows) == ["nothing: the base", "workload", "collective", "network", FULL_STACK]
    assert found.evaluated == sum(row["evaluated"] for row in found.rows()[1:])
    base = rows["nothing: the base"]
    for name in ("workload", "collective", "network"):
        row = rows[name]
        assert row["over_base"] >= 1
        assert row["over_base"] == pytest.approx(row["reward"] / base["reward"])
        assert row["full_stack_over_it"] == pytest.approx(rows[FULL_STACK]["reward"] / row["reward"])
        assert row["full_stack_over_it"] > 1  # the whole point


@pytest.mark.parametrize(
    ("metric", "label", "unit", "better"),
    [
        ("step_s", "step", "s", "lower"),
        ("memory_bytes", "memory", "B", "lower"),
        ("tokens_per_s", "tokens per s", "", "higher"),
        ("network_usd", "network", "USD", "lower"),
    ],
)
def test_an_axis_says_what_a_metric_is(metric: str, label: str, unit: str, better: str) -> None:
    axis = metric_axis(metric)
    assert (axis.label, axis.unit, axis.better) == (label, unit, better)
