"""One H200: the models have the parameters that were counted, and their steps are near."""

from __future__ import annotations

from cosmic.design.model import parameters
from cosmic.validation.rows import CARRIED, Fields, read_rows
from cosmic.validation.single_gpu_rows import judge, training_design
from cosmic.validation.statistics import summarise

STEPS = read_rows(CARRIED / "h200_training.csv")[1]
SERVED = read_rows(CARRIED / "h200_inference.csv")[1]


def test_every_model_has_the_parameters_that_were_counted() -> None:
    assert len(STEPS) == 53
    for row in STEPS:
        assert parameters(training_design(Fields(row)).model) == int(row["params"])


def test_peaks_of_memory_are_within_five_per_cent_on_average() -> None:
    rows = [row for row in STEPS if row["style"] == "gpt"]
    found = summarise("memory", judge(rows), memory=True)
    assert found.predicted == len(rows)
    assert found.mean is not None
    assert found.mean < 0.05


def test_prefill_and_decode_are_sets_of_their_own_and_all_are_predicted() -> None:
    verdicts = judge(SERVED)
    assert {verdict.set for verdict in verdicts} == {"h200-prefill", "h200-decode"}
    assert all(verdict.predicted_s for verdict in verdicts)


def test_rows_that_describe_no_model_are_skipped() -> None:
    odd = [{**STEPS[0], "style": "cnn"}, {**STEPS[0], "style": "vit"}, {**SERVED[0], "phase": "sleep"}]
    assert ["must be one of" in judge([row])[0].skipped for row in odd[:1]] == [True]
    assert "tokens" in judge(odd[1:2])[0].skipped
    assert "must be prefill or decode" in judge(odd[2:])[0].skipped
