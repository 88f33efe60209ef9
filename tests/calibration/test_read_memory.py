"""What people report of memory is read into the columns of measured rows, once."""

from __future__ import annotations

import csv
from typing import Any

import pytest
import read_memory

from cosmic.accuracy.measured_rows import row_kind
from tests.batches import check_all


def reports() -> dict[str, dict[str, str]]:
    """Return the reports by id."""
    with read_memory.REPORTS.open() as file:
        return {report["id"]: report for report in csv.DictReader(file)}


def test_a_report_becomes_the_row_that_is_carried() -> None:
    row = read_memory.read_report(reports()["R002"])
    assert row is not None
    assert tuple(row) == read_memory.COLUMNS
    assert row_kind(list(row), "").name == "memory of training runs"
    said = ("set", "accel", "framework", "recompute", "attention", "execution", "outcome", "reserved_gib")
    assert [row[name] for name in said] == [
        *("torchtitan", "H100-96GB-HBM2", "torchtitan", "alternate", "flash2", "compiled", "ran", "77.0"),
    ]


def test_the_carried_rows_are_what_the_script_writes(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    carried = read_memory.ROWS.read_bytes()
    monkeypatch.setattr(read_memory, "ROWS", tmp_path / "rows.csv")
    read_memory.main()
    assert read_memory.ROWS.read_bytes() == carried


@check_all(
    "column, words",
    [
        ("task", "inference"),
        ("confidence", "low"),
        ("accel", "RTX 4090"),
        ("framework", "a framework of their own"),
        ("quantized", "nf4"),
        ("offload", "optimizer"),
        ("recompute", "not stated"),
        ("optimizer", "adamw_8bit"),
        ("mbs", ""),
    ],
)
def test_what_the_model_does_not_know_is_left_out(column: str, words: str) -> None:
    report = reports()["R002"]
    assert read_memory.read_report(report) is not None
    assert read_memory.read_report({**report, column: words}) is None


@pytest.mark.parametrize(
    ("words", "sharded", "precision"),
    [
        ("bf16", "3", "bf16"),
        ("fp8 (tensorwise)", "3", "fp8"),
        ("pure bf16", "", "bf16_pure"),
        ("bf16: true", "3", "bf16"),
        ("bf16: true", "", "bf16_pure"),
        ("torch_dtype bf16", "3", "bf16_pure"),
    ],
)
def test_weights_that_are_loaded_in_bf16_stay_so_unless_they_are_sharded(
    words: str, sharded: str, precision: str
) -> None:
    assert read_memory.precision_of({"precision": words}, {"zero_stage": sharded, "lora": ""}) == precision
