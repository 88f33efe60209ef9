"""Layers and heads of one H200: all are predicted, compiled ones nearly as they were measured."""

from __future__ import annotations

import pytest

from cosmic.accuracy.measured_rows import CARRIED, Fields, read_rows
from cosmic.accuracy.rows.single_gpu_rows import block_design, compare_rows
from cosmic.accuracy.validating import summarise_errors
from cosmic.design.model_layer import Transformer

KIND, ROWS = read_rows(CARRIED / "h200_layers.csv")
VERDICTS = compare_rows(ROWS)


def test_columns_say_the_kind() -> None:
    assert KIND.name == "layers of one GPU"
    assert {verdict.kind for verdict in KIND.compare_rows(ROWS[:1])} == {KIND.name}


def test_each_mode_is_a_set_and_every_row_is_predicted() -> None:
    modes = {"h200-layers eager", "h200-layers compiled", "h200-layers fp8", "h200-head eager", "h200-head compiled"}
    assert {verdict.set for verdict in VERDICTS} == modes
    assert all(verdict.predicted_s for verdict in VERDICTS)
    assert len({verdict.id for verdict in VERDICTS}) == len(ROWS) == 30


def test_both_passes_are_measured_together() -> None:
    assert VERDICTS[0].measured_s == pytest.approx((14.8871 + 30.4903) * 1e-3)


@pytest.mark.parametrize(
    ("name", "mean", "worst"),
    [
        ("h200-layers compiled", 0.04, 0.06),
        ("h200-layers fp8", 0.05, 0.12),
        ("h200-layers eager", 0.08, 0.20),
        ("h200-head compiled", 0.04, 0.06),
        ("h200-head eager", 0.12, 0.16),
    ],
)
def test_predictions_are_near(name: str, mean: float, worst: float) -> None:
    found = summarise_errors(name, [verdict for verdict in VERDICTS if verdict.set == name])
    assert found.mean is not None
    assert found.worst is not None
    assert found.mean < mean
    assert found.worst < worst


def test_modes_are_ranked_as_measured() -> None:
    for eager, compiled, narrow in zip(*(VERDICTS[place:24:3] for place in range(3)), strict=True):
        assert (eager.predicted_s or 0) > (compiled.predicted_s or 0) > (narrow.predicted_s or 0)


def test_a_rank_may_hold_fewer_heads_than_fill_the_hidden_size() -> None:
    row = next(row for row in ROWS if row["heads"] == "8")
    model = block_design(Fields(row)).model
    assert isinstance(model, Transformer)
    assert (model.hidden, model.heads, model.head_dim) == (8192, 8, 128)


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"what": "tail"}, "what = 'tail': must be one of layers, head"),
        ({"mode": "fp6"}, "mode = 'fp6': must be one of eager, compiled, fp8"),
        ({"fwd_ms": ""}, "fwd_ms"),
        ({"hidden": "many"}, "must be a number"),
        ({"accel": "abacus"}, "abacus"),
    ],
)
def test_rows_that_describe_no_part_are_skipped(cells: dict[str, str], said: str) -> None:
    (verdict,) = compare_rows([{**ROWS[0], **cells}])
    assert verdict.predicted_s is None
    assert said in verdict.skipped
