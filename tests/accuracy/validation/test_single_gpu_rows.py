"""One H200: the models have the parameters that were counted, and their steps are near."""

from __future__ import annotations

import pytest

from cosmic.accuracy.measured_rows import CARRIED, Fields, read_rows
from cosmic.accuracy.rows.single_gpu_rows import compare_rows, training_design
from cosmic.accuracy.validating import summarise_errors
from cosmic.design.model_layer import count_parameters

STEPS = read_rows(CARRIED / "h200_training.csv")[1]
KINDS = read_rows(CARRIED / "h200_steps.csv")[1]
SERVED = read_rows(CARRIED / "h200_inference.csv")[1]


def test_every_model_has_the_parameters_that_were_counted() -> None:
    assert len(STEPS) == 53
    for row in STEPS:
        assert count_parameters(training_design(Fields(row)).model) == int(row["params"])


def test_peaks_of_memory_are_within_five_per_cent_on_average() -> None:
    rows = [row for row in STEPS if row["style"] == "gpt"]
    found = summarise_errors("memory", compare_rows(rows), memory=True)
    assert found.predicted == len(rows)
    assert found.mean is not None
    assert found.mean < 0.05


def test_prefill_and_decode_are_sets_of_their_own_and_all_are_predicted() -> None:
    verdicts = compare_rows(SERVED)
    assert {verdict.set for verdict in verdicts} == {"h200-prefill", "h200-decode"}
    assert all(verdict.predicted_s for verdict in verdicts)


def test_rows_that_describe_no_model_are_skipped() -> None:
    odd = [{**STEPS[0], "style": "cnn"}, {**STEPS[0], "style": "vit"}, {**SERVED[0], "phase": "sleep"}]
    assert ["must be one of" in compare_rows([row])[0].skipped for row in odd[:1]] == [True]
    assert "tokens" in compare_rows(odd[1:2])[0].skipped
    assert "must be prefill or decode" in compare_rows(odd[2:])[0].skipped


@pytest.mark.long
def test_steps_of_every_kind_are_predicted_and_those_that_wait_for_the_host_are_apart() -> None:
    verdicts = compare_rows(KINDS)
    assert all(verdict.predicted_s for verdict in verdicts)
    device = [verdict for verdict in verdicts if verdict.set != "h200-steps host-bound"]
    assert (len(device), len(verdicts)) == (64, 82)
    assert {verdict.row["execution"] for verdict in device} == {"eager", "compiled", "graph"}
    for part in (device, device[::3]):
        found = summarise_errors("steps", part)
        assert found.mean is not None
        assert found.mean < 0.05
    memory = summarise_errors("memory", device, memory=True)
    assert memory.mean is not None
    assert memory.mean < 0.05


def test_models_with_experts_have_the_parameters_that_were_counted() -> None:
    for row in KINDS:
        assert count_parameters(training_design(Fields(row)).model) == int(row["params"])


def test_words_of_a_row_that_mean_nothing_are_refused() -> None:
    for name in ("execution", "precision", "loss"):
        assert "must be one of" in compare_rows([{**KINDS[0], name: "odd"}])[0].skipped
    assert compare_rows([{**KINDS[0], "device_ms": "odd"}])[0].set == "h200-steps experts eager"


def test_a_step_in_8_bits_has_no_master_copy() -> None:
    """Without 4 bytes for each weight, and without the time to read and write them."""
    row = next(row for row in KINDS if row["precision"] == "fp8_tensor")
    narrow, wide = compare_rows([row])[0], compare_rows([{**row, "precision": "bf16"}])[0]
    assert narrow.memory is not None
    assert wide.memory is not None
    assert narrow.memory.predicted_bytes.p50 == pytest.approx(wide.memory.predicted_bytes.p50, rel=0.2)
    assert (narrow.predicted_s or 0) < (wide.predicted_s or 0)
