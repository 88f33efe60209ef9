"""Loads and steps of an engine on one H200: all are predicted, and near what was measured."""

from __future__ import annotations

from math import sqrt

import pytest

from cosmic.accuracy.measured_rows import CARRIED, Fields, Row, Verdict, read_rows
from cosmic.accuracy.rows.serving_load_rows import compare_rows, read_served_load
from cosmic.accuracy.validating import summarise_errors

KIND, LOADS = read_rows(CARRIED / "h200_serving.csv")
KIND_OF_STEPS, STEPS = read_rows(CARRIED / "h200_serving_steps.csv")
ONE = LOADS[0]

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    return compare_rows(LOADS) + compare_rows(STEPS)


def test_columns_say_the_kinds() -> None:
    assert (KIND.name, KIND_OF_STEPS.name) == ("loads of one GPU", "serving steps of one GPU")


def test_every_load_has_two_times_by_two_models_and_every_step_one(verdicts: list[Verdict]) -> None:
    assert len(LOADS) >= 12
    assert len(verdicts) == 4 * len(LOADS) + len(STEPS)
    assert len({each.id for each in verdicts}) == len(verdicts)
    assert not [each.skipped for each in verdicts if each.skipped]


@pytest.mark.parametrize(
    ("name", "mean", "worst"),
    [
        ("h200-serving ttft", 0.06, 0.15),
        ("h200-serving tpot", 0.05, 0.12),
        ("h200-serving closed form ttft", 0.15, 0.35),
        ("h200-serving closed form tpot", 0.10, 0.35),
        ("h200-serving decode step", 0.06, 0.20),
        ("h200-serving prefill step", 0.10, 0.50),
        ("h200-serving mixed step", 0.08, 0.20),
    ],
)
def test_predictions_are_near(verdicts: list[Verdict], name: str, mean: float, worst: float) -> None:
    found = summarise_errors(name, [each for each in verdicts if each.set == name])
    assert found.mean is not None
    assert found.worst is not None
    assert found.mean < mean
    assert found.worst < worst


def test_one_client_waits_for_nobody() -> None:
    ttft, tpot, closed_ttft, closed_tpot = compare_rows([ONE])
    assert closed_ttft.predicted_s == pytest.approx(ttft.predicted_s, rel=0.03)
    assert closed_tpot.predicted_s == pytest.approx(tpot.predicted_s, rel=0.03)


def test_requests_are_those_that_were_measured() -> None:
    """The first lengths of the load with this seed, as its clients sent them."""
    row = next(row for row in LOADS if row["id"] == "llama3-8b-chunked-2048-1024-128-c128")
    found = read_served_load(Fields(row))
    assert found.requests.input_tokens[:4].tolist() == [968, 1063, 1042, 863]
    assert found.requests.output_tokens[:4].tolist() == [84, 128, 188, 79]
    assert found.deployment.load.isl_cv == pytest.approx(0.5 / sqrt(3))
    assert found.deployment.load.rounds == 3


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"scheduler": "fifo"}, "scheduler = 'fifo': must be one of chunked, whole"),
        ({"spread": "1"}, "spread = '1': must be below 1"),
        ({"requests": "7", "concurrency": "2"}, "requests = 7: must be a multiple of the 2 clients: all send as many"),
        ({"requests": "9000000"}, "requests = 9000000: must be at most 2,000,000"),
        ({"osl": "1"}, "osl = 1: must be at least 2: TPOT is of the tokens after the first"),
        ({"isl": "2000000"}, "isl = 2000000: must be at most 1,048,576"),
        ({"precision": "fp8"}, "precision = 'fp8': must be bf16"),
        ({"layers": ""}, "layers = '': is not given"),
        ({"isl": "1000000"}, "the KV cache of a rank holds"),
        ({"ttft_mean_ms": "x"}, "ttft_mean_ms = 'x': must be a number"),
    ],
)
def test_a_row_that_cannot_be_predicted_is_skipped_with_its_reason(changes: dict[str, str], why: str) -> None:
    row: Row = {**ONE, **changes}
    found = compare_rows([row])
    assert len(found) == 4
    assert all(why in each.skipped for each in found)


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"step": "train"}, "step = 'train': must be one of decode, prefill, mixed"), ({"batch": "0"}, "batch = '0'")],
)
def test_a_step_that_cannot_be_predicted_is_skipped_with_its_reason(changes: dict[str, str], why: str) -> None:
    (found,) = compare_rows([{**STEPS[0], **changes}])
    assert why in found.skipped
