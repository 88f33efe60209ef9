"""`cosmic calibrate validate`: what it prints, and how it refuses."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

import cosmic
from cosmic.accuracy.measured_rows import CARRIED
from tests.commands import output, run

GEMM = str(CARRIED / "h200_gemm.csv")
MEMORY = str(CARRIED / "h200_memory_ops.csv")


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A few published runs of one model, and one of a model that nobody knows."""
    head, *lines = (CARRIED / "training_published.csv").read_text().splitlines()
    chosen = [line for line in lines if line.startswith(("korth-t5-22B", "simumax-b200-01,"))]
    path = tmp_path_factory.mktemp("rows") / "few.csv"
    (row,) = csv.DictReader([head, next(line for line in lines if "Nemotron_3_Nano" in line)])
    unknown = io.StringIO()
    csv.writer(unknown).writerow((row | {"model": "Oracle", "catalog_model": "Oracle"}).values())
    path.write_text("\n".join([head, *chosen, unknown.getvalue()]))
    return str(path)


def test_errors_are_told_by_source_with_memory_and_what_was_skipped(
    capsys: pytest.CaptureFixture[str], few: str
) -> None:
    text = output(capsys, "calibrate", "validate", few)
    assert "korthikanti" in text
    assert "Peak memory" in text
    assert "P5–P95 holds " in text
    assert "the catalog has no such model" in text


def test_json_holds_rows_and_summaries(capsys: pytest.CaptureFixture[str], few: str) -> None:
    found = json.loads(output(capsys, "calibrate", "validate", few, "--json"))
    assert set(found) == {"rows", "summary", "memory_summary", "coverage", "fits"}
    by_id = {row["id"]: row for row in found["rows"]}
    full = by_id["korth-t5-22B-full"]
    assert full["relative_error"] == pytest.approx(full["predicted_s"] / full["measured_s"] - 1)
    assert by_id["simumax-b200-01"]["peak_bytes_measured"] == 66.55 * 2**30
    assert [set(row) for row in found["rows"] if "skipped" in row] == [{"id", "set", "skipped"}]
    first = found["summary"][0]
    keys = {"set", "rows", "predicted", "coverage", "mean_abs_error", "median_abs_error", "worst_abs_error"}
    keys |= {"bias", "kendall_tau", "pairs", "kendall_tau_clear", "pairs_clear", "skipped", "ranged", "in_range"}
    assert keys | {"range_width", "mean_abs_error_left_out", "median_abs_error_left_out"} == set(first)
    assert full["predicted_s_range"]["p05"] < full["predicted_s"] < full["predicted_s_range"]["p95"]
    assert "left_out_error" in full
    assert found["coverage"]["rows"] == len(found["rows"]) - 1
    assert sum(each["rows"] for each in found["summary"]) == len(found["rows"])
    assert [each["set"] for each in found["memory_summary"]] == ["simumax-b200"]


def test_errors_are_added_up_by_any_column_of_several_files(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(output(capsys, "calibrate", "validate", GEMM, MEMORY, "--by", "dtype", "--json"))
    assert {each["dtype"] for each in found["summary"]} == {"bf16", "u8"}


def test_a_page_is_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output(capsys, "calibrate", "validate", GEMM, "--page", str(tmp_path / "accuracy.md"))
    assert "## GEMM" in (tmp_path / "accuracy.md").read_text()
    assert (tmp_path / "accuracy-gemm.svg").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no.csv"], "data = 'no.csv': cannot be read: No such file or directory"),
        ([GEMM, "--by", "colour"], "--by = 'colour': no such column"),
        ([GEMM, "--page", "accuracy.html"], "--page = 'accuracy.html': must name a Markdown file"),
    ],
)
def test_bad_input_ends_with_one_sentence_and_status_2(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    status, out, err = run(capsys, "calibrate", "validate", *words)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_columns_of_no_kind_are_refused_with_the_kinds_there_are(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("a,b\n1,2\n")
    status, _, err = run(capsys, "calibrate", "validate", str(path))
    assert status == 2
    assert "no known kind, which are memory of training runs (" in err
    assert "; training runs (" in err


def test_the_same_is_a_function_of_the_package() -> None:
    found = cosmic.calibrate.validate([GEMM])
    assert [each.name for each in found.summary][-1] == "h200-gemm ≥ 10 GFLOP"
    assert found.to_dict()["summary"][0]["coverage"] == 1.0
