"""Rows: columns say the kind of a file, and no cell stops a validation."""

from __future__ import annotations

import warnings
from importlib import import_module
from math import inf, isfinite
from pathlib import Path
from typing import Any

import pytest

from cosmic.accuracy.measured_rows import (
    KINDS,
    Fields,
    MemoryFigure,
    Row,
    RowKind,
    Verdict,
    carried_files,
    compare_row,
    read_rows,
    row_kind,
)
from cosmic.base.errors import SpecError
from cosmic.design.prediction_accuracy import Range
from tests.batches import check_all


def test_every_carried_file_is_of_a_known_kind_and_no_file_is_missing() -> None:
    names = {path.stem for path in carried_files()}
    assert {"training_published", "training_single_node_a100", "h200_training", "h200_inference"} <= names
    assert {"h200_gemm", "h200_attention", "h200_memory_ops", "gemm", "collectives"} <= names
    for path in carried_files():
        kind, rows = read_rows(path)
        assert kind in KINDS
        assert rows


def test_columns_of_no_kind_are_refused_with_the_kinds_there_are() -> None:
    with pytest.raises(
        SpecError, match=r"no known kind, which are memory of .*; training runs \(accel, gbs, .*; collectives"
    ):
        row_kind(["a", "b"], "mine.csv")


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "no known kind"), (b"\xff\xfe\x00", "is not text in UTF-8"), (b"m,n,k,dtype,ms\n", "there are no rows")],
)
def test_a_file_that_holds_no_rows_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=said):
        read_rows(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        read_rows(tmp_path / "rows.csv")


def test_what_is_taken_for_an_empty_cell_is_noted() -> None:
    fields = Fields({"tp": "", "pp": "4.0"})
    assert fields.whole("tp", 1, "as usual") == 1
    assert fields.whole("pp", 1) == 4
    assert fields.assumed == ["tp: 1 assumed, as usual"]


@pytest.mark.parametrize("cell", ["many", "nan", "inf", "-1", "0", "1.5", "1e300", ""])
def test_a_cell_that_is_no_count_is_refused(cell: str) -> None:
    with pytest.raises(SpecError, match="tp = "):
        Fields({"tp": cell}).whole("tp")


def test_a_row_that_cannot_be_judged_is_skipped_with_the_reason() -> None:
    def refuse(fields: Fields) -> Verdict:
        raise SpecError("tp", 3, "is odd")

    assert compare_row({}, "a", "s", refuse).to_dict() == {"id": "a", "set": "s", "skipped": "tp = 3: is odd"}


@pytest.mark.parametrize(
    "numbers",
    [
        {"measured_s": 1.0, "predicted_s": float("nan")},
        {"measured_s": 0.0, "predicted_s": 1.0},
        {"measured_s": 1.0, "predicted_s": 1.0, "memory": MemoryFigure("device", 1.0, Range(1.0, 1.0, inf, inf, inf))},
    ],
)
def test_an_error_that_is_no_number_is_skipped_whatever_the_kind(
    numbers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in KINDS:
        module = import_module(f"cosmic.accuracy.rows.{kind.module}")
        monkeypatch.setattr(module, "compare_rows", lambda rows: [Verdict(id="a", set="s", row={}, **numbers)])
        [found] = kind.compare_rows([{}])
        assert (found.id, found.skipped, found.error) == ("a", "the prediction is not finite", None)


UNCARRIED = {
    "bandwidth of LIBRA": {
        "network": "3D-4K",
        "topology": "Ring(16)_FullyConnected(8)_Switch(32)",
        "workload": "ResNet_50",
        "total_bw_GBps": "500",
        "objective": "PerfOpt",
        "gurobi_e2e_ns": "1299287.4856399505",
    }
}
"""A row of each kind of which no file is carried."""


def a_row(kind: RowKind) -> Row:
    """Return a row that can be judged."""
    if kind.name in UNCARRIED:
        return UNCARRIED[kind.name]
    return next(rows[0] for path in carried_files() for known, rows in [read_rows(path)] if known == kind)


@check_all("cell", ["1e-300", "5e-324", "1e300", "0.5"], tests=2)
@check_all("kind", KINDS)
def test_no_cell_makes_an_error_that_is_no_number(kind: RowKind, cell: str) -> None:
    row = a_row(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for column in kind.columns:
            for found in kind.compare_rows([{**row, column: cell}]):
                known = [each for each in (found.error, found.memory_error, found.fits) if each is not None]
                assert found.skipped or (known and all(map(isfinite, known)))


def test_errors_are_predicted_over_measured_less_one() -> None:
    verdict = Verdict(
        id="a",
        set="s",
        row={},
        measured_s=2.0,
        predicted_s=3.0,
        memory=MemoryFigure("reserved", 4.0, Range(2.0, 2.5, 3.0, 3.5, 4.0)),
        ran=True,
        fits=0.9,
        assumed=("x",),
    )
    assert verdict.to_dict() == {
        "id": "a",
        "set": "s",
        "measured_s": 2.0,
        "predicted_s": 3.0,
        "relative_error": 0.5,
        "assumed": ["x"],
        "memory_kind": "reserved",
        "peak_bytes_measured": 4.0,
        "peak_bytes_predicted": 3.0,
        "peak_bytes_range": {"p05": 2.0, "p25": 2.5, "p50": 3.0, "p75": 3.5, "p95": 4.0},
        "memory_error": -0.25,
        "ran": True,
        "fits": 0.9,
    }


@pytest.mark.parametrize(
    ("kind", "row", "stack", "model"),
    [
        ("h200-training", {"execution": "eager"}, "eager", ""),
        ("serving agg ttft", {"backend": "vllm", "backend_version": "0.15", "system": "b300"}, "vllm 0.15", ""),
        (
            "nemo2407",
            {"accel": "H100", "framework": "nemo", "model": "GPT", "catalog_model": "gpt3-5b"},
            "nemo",
            "gpt3-5b",
        ),
    ],
)
def test_a_row_of_any_kind_says_where_it_was_measured(kind: str, row: Row, stack: str, model: str) -> None:
    found = Verdict(set=kind, row=row).provenance
    assert (found.stack, found.model) == (stack, model)
    assert found.accelerator == (row.get("accel") or row.get("system") or "h200-sxm-141gb")


def test_a_column_may_not_be_there_twice(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("m,n,k,dtype,ms, ms\n1,1,1,bf16,1,2\n")
    with pytest.raises(SpecError, match=r"rows\.csv = 'ms': is there twice among the columns"):
        read_rows(path)
