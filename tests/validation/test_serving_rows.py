"""Measured serving: what its columns mean, and how far off predictions are."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import fmean

import pytest

from cosmic.validation import serving_rows
from cosmic.validation.rows import CARRIED, Row, Verdict, read_rows

WHOLE = Path(__file__).parents[3] / "shared" / "reference" / "inference" / "published.csv"


def rows(path: Path = CARRIED / "serving.csv") -> list[Row]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def changed(**cells: str) -> Row:
    """Return a row of Llama 70B on H200s with other cells."""
    known = {"id": "one", "backend": "vllm", "backend_version": "0.15", "model_path": "meta-llama/Llama-3.1-70B"}
    known |= {"system": "h200_sxm", "precision": "fp8", "mode": "agg", "isl": "1024", "osl": "1024", "tp_size": "8.0"}
    known |= {"concurrency": "64.0", "batch_size": "64.0", "pp_size": "1.0", "attention_dp_size": "1.0"}
    known |= {"moe_tp_size": "8.0", "moe_ep_size": "1.0", "silicon_ttft_ms": "194.9", "silicon_tpot_ms": "12.73"}
    return {**known, "silicon_data_source": "source_file=2026-04-06.csv", **cells}


def judged(**cells: str) -> list[Verdict]:
    return serving_rows.judge([changed(**cells)])


def read(**cells: str) -> serving_rows.Served:
    found = serving_rows.understood(changed(**cells))
    assert isinstance(found, serving_rows.Served)
    return found


def mean_error(verdicts: list[Verdict], name: str) -> float:
    return fmean(abs(verdict.error) for verdict in verdicts if verdict.set.endswith(name) and verdict.error is not None)


# ------------------------------------------------------------------------------------------------ accuracy


def test_carried_rows_are_predicted_as_well_as_claimed() -> None:
    verdicts = serving_rows.judge(rows())
    assert fmean(not verdict.skipped for verdict in verdicts) > 0.95
    assert mean_error(verdicts, "tpot") < 0.2
    assert mean_error(verdicts, "ttft") < 0.3


@pytest.mark.skipif(not WHOLE.exists(), reason="the whole of the source is not here")
def test_all_aggregated_rows_are_predicted_as_well_as_claimed() -> None:
    verdicts = serving_rows.judge([row for row in rows(WHOLE) if row["mode"] == "agg"])
    assert fmean(not verdict.skipped for verdict in verdicts) > 0.95
    assert mean_error(verdicts, "tpot") < 0.2
    assert mean_error(verdicts, "ttft") < 0.3


def test_a_row_has_two_verdicts() -> None:
    first, further = judged()
    assert (first.id, further.id) == ("one:ttft", "one:tpot")
    assert (first.set, further.set) == ("serving agg ttft", "serving agg tpot")
    assert (first.measured_s, further.measured_s) == pytest.approx((0.1949, 0.01273))


def test_columns_say_the_kind() -> None:
    kind, found = read_rows(CARRIED / "serving.csv")
    assert kind.module == "serving_rows"
    assert len(found) <= 300


# ----------------------------------------------------------------------------------------------- mappings


@pytest.mark.parametrize(
    ("cells", "tp", "dp", "ep"),
    [
        ({"tp_size": "64", "moe_tp_size": "8", "moe_ep_size": "8"}, 8, 1, 1),
        ({"tp_size": "1", "attention_dp_size": "64", "moe_tp_size": "8", "moe_ep_size": "8"}, 1, 8, 8),
        ({"tp_size": "4", "attention_dp_size": "4", "moe_tp_size": "1", "moe_ep_size": "16"}, 1, 4, 4),
        ({"tp_size": "1", "attention_dp_size": "8", "moe_tp_size": "1", "moe_ep_size": "8"}, 1, 8, 8),
        ({"tp_size": "2", "attention_dp_size": "", "moe_tp_size": "4", "moe_ep_size": "1"}, 2, 2, 2),
        ({"tp_size": "4", "attention_dp_size": "", "moe_tp_size": "2", "moe_ep_size": "2"}, 4, 1, 1),
    ],
)
def test_gpus_are_counted_once(cells: dict[str, str], tp: int, dp: int, ep: int) -> None:
    found = read(model_path="deepseek-ai/DeepSeek-R1", **cells).design
    assert (found.workload.tp, found.workload.dp, found.workload.ep) == (tp, dp, ep)
    assert found.network.npus == tp * dp


def test_a_batch_that_is_part_of_the_concurrency_is_one_of_several_deployments() -> None:
    found = read(attention_dp_size="", batch_size="16.0")
    assert found.concurrency == 16
    assert any("deployments: 4" in each for each in found.assumed)


def test_lengths_are_drawn_or_exact_and_drafts_are_known_by_their_version() -> None:
    assert read().spread == 0.2
    assert read(silicon_data_source="source_file=aic-auto-gap-analysis/data/x.csv").spread == 0
    drafting = {"backend": "trtllm", "backend_version": "1.2.0rc6.post3"}
    assert read(**drafting, model_path="deepseek-ai/DeepSeek-R1").drafting
    assert not read(**drafting).drafting


@pytest.mark.parametrize(
    ("cells", "polling", "holding"),
    [
        ({"backend": "sglang", "system": "b200_sxm", "concurrency": "8"}, 10, 0),
        ({"backend": "sglang", "system": "b200_sxm", "concurrency": "16"}, 30, 0),
        ({"backend": "sglang"}, 0, 0),
        ({"backend": "trtllm", "tp_size": "4"}, 0, 20),
        ({"backend": "trtllm", "tp_size": "8"}, 0, 0),
        ({"backend": "trtllm", "tp_size": "4", "osl": "8192"}, 0, 0),
        ({"backend": "vllm", "tp_size": "4"}, 0, 0),
    ],
)
def test_recipes_hold_requests_back(cells: dict[str, str], polling: float, holding: float) -> None:
    found = read(**cells)
    assert (found.polling, found.holding) == (polling, holding)


def test_no_precision_is_16_bits_and_said_so() -> None:
    found = read(precision="")
    assert found.design.workload.precision == "bf16"
    assert "precision: bf16 assumed" in found.assumed


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"mode": "disagg"}, "only aggregated serving is modelled"),
        ({"backend": "other"}, "engine"),
        ({"model_path": "nobody/Nothing-7B"}, "model"),
        ({"system": "abacus"}, "system"),
        ({"tp_size": "72", "moe_tp_size": "72"}, "disaggregated"),
        ({"concurrency": ""}, "is not given"),
        ({"precision": "fp2"}, "no such precision"),
        ({"isl": "many"}, "must be a number"),
        ({"isl": "0.5"}, "must be a whole number"),
        ({"osl": "1e-9"}, "must be a whole number"),
        ({"concurrency": "1.5"}, "must be a whole number"),
        ({"tp_size": "3", "moe_tp_size": "3"}, "does not divide"),
        ({"silicon_tpot_ms": ""}, "is not given"),
    ],
)
def test_what_is_not_understood_is_skipped_with_its_reason(cells: dict[str, str], reason: str) -> None:
    verdicts = judged(**cells)
    assert len(verdicts) == 2
    assert all(reason in verdict.skipped for verdict in verdicts)
