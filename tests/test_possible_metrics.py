"""Metrics that no design can have are reasons, and numbers that overflow leave the designs beside them alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import Batch
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate import step_evaluation as evaluation
from cosmic.simulate.metrics import Infeasible, Metrics

pytestmark = pytest.mark.usefixtures("without_programs")
POINT = load_design("llama3-8b@dgx-h100:8", {"tp": 8, "pp": 1, "cp": 1}, plain=True)
LEAST, MOST = evaluation.POSSIBLE["step_s"]


def with_step(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    """Let the metrics of every design be what they are, but for some."""
    true = evaluation._metrics
    monkeypatch.setattr(evaluation, "_metrics", lambda batch: true(batch) | changed)


@pytest.mark.parametrize(
    ("name", "value", "possible"),
    [
        ("step_s", LEAST, True),
        ("step_s", LEAST / 2, False),
        ("step_s", MOST, True),
        ("step_s", MOST * 2, False),
        ("mfu", 0.0, True),
        ("mfu", -0.1, False),
        ("mfu", 1.02, False),
        ("memory_bytes", 0.0, True),
        ("tokens_per_s", float("nan"), False),
    ],
)
def test_a_metric_that_no_design_can_have_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, name: str, value: float, possible: bool
) -> None:
    with_step(monkeypatch, **{name: value})
    found = evaluate(POINT)
    batch = evaluate_batch(Batch(POINT, {"workload.micro_batch": np.array([1, 1])}))
    if possible:
        assert isinstance(found, Metrics)
        assert "range" not in batch.broken
    else:
        said = f"its numbers are too large or too small to compute with: {name} would be {value:.4g}"
        assert found == Infeasible((said,))
        assert batch.broken["range"].tolist() == [True, True]
        assert np.isinf(batch.excess).all()


def test_a_mapping_that_is_invalid_is_not_out_of_range_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    with_step(monkeypatch, mfu=2.0)
    batch = evaluate_batch(Batch(POINT, {"workload.tp": np.array([8, 3]), "workload.dp": np.array([1, 2])}))
    assert batch.broken["range"].tolist() == [True, False]


@pytest.mark.parametrize("wrong", [(), (0,), (4,), (1, 3), (0, 1, 2, 3, 4)])
def test_designs_whose_numbers_overflow_are_left_out_alone(
    monkeypatch: pytest.MonkeyPatch, wrong: tuple[int, ...]
) -> None:
    sizes = np.array([1, 2, 4, 8, 16])
    rows = Batch(POINT, {"workload.micro_batch": sizes})
    expected = evaluate_batch(rows)
    true = evaluation._metrics

    def overflow(batch: Batch) -> dict[str, Any]:
        if np.isin(batch["workload.micro_batch"], sizes[list(wrong)]).any():
            raise FloatingPointError("overflow")
        return true(batch)

    monkeypatch.setattr(evaluation, "_metrics", overflow)
    found = evaluate_batch(rows)
    assert np.flatnonzero(np.isnan(found.columns["step_s"])).tolist() == list(wrong)
    others = [place for place in range(5) if place not in wrong]
    assert np.array_equal(found.columns["step_s"][others], expected.columns["step_s"][others])


def test_a_single_design_that_overflows_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def overflow(batch: Batch) -> dict[str, Any]:
        raise FloatingPointError("overflow in multiply")

    monkeypatch.setattr(evaluation, "_metrics", overflow)
    assert evaluate(POINT) == Infeasible(
        ("its numbers are too large or too small to compute with: overflow in multiply",)
    )
