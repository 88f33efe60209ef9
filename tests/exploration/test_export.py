"""Trials as tables for other programs."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmic.errors import SpecError
from cosmic.exploration.problem import METRICS
from cosmic.exploration.searching import search
from cosmic.exploration.studies.export import csv_lines, export, table
from cosmic.exploration.studies.study import open_study
from tests.commands import output, run


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_a_row_is_a_trial_with_its_point_and_its_metrics(original: Path, tmp_path: Path) -> None:
    rows, columns = export(original, tmp_path / "t.csv")
    study = open_study(original)
    found = read_csv((tmp_path / "t.csv").read_text())
    assert len(found) == rows == len(study.trials)
    assert columns == len(found[0])
    assert list(found[0])[:2] == ["trial", "batch"]
    assert list(found[0])[-len(METRICS) :] == list(METRICS)
    for place in (0, 1, 7, 100, rows - 1):
        wanted = study.trials.describe(study.problem, place)
        assert {name: found[place][name] for name in wanted["point"]} == {
            name: str(value) for name, value in wanted["point"].items()
        }
        for name, value in wanted["metrics"].items():
            assert found[place][name] == ("" if value is None else repr(value))
        assert found[place]["reasons"] == ", ".join(wanted["reasons"])
        assert found[place]["feasible"] == str(not wanted["reasons"])
    sizes = np.bincount([int(row["batch"]) for row in found])
    assert sizes[0] == 1  # the base


def test_parquet_holds_the_same_with_types(original: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an extra")
    export(original, tmp_path / "t.parquet")
    found = parquet.read_table(tmp_path / "t.parquet")
    assert found.to_pydict() == table(original)
    kinds = {name: str(found.schema.field(name).type) for name in found.column_names}
    assert kinds["workload.dp"] == kinds["trial"] == "int64"
    assert kinds["network.dims.0.bandwidth"] == "string"
    assert {kinds[name] for name in METRICS} == {"double"}
    assert kinds["feasible"] == "bool"


def test_values_of_several_kinds_and_lists_are_written_as_text(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an extra")
    space: dict[str, Any] = {
        "base": "gpt3-125m@dgx-h100:8",
        "parameters": {"workload.{dp,tp,pp}": {"split": "npus"}, "workload.weight_sharding": ["none", "zero3"]},
    }
    search(space, agent="random", trials=8, out=tmp_path / "s")
    export(tmp_path / "s", tmp_path / "t.parquet")
    export(tmp_path / "s", tmp_path / "t.csv")
    point = parquet.read_table(tmp_path / "t.parquet").to_pydict()["workload.{dp,tp,pp}"]
    assert all(np.prod(json.loads(each)) == 8 for each in point)
    assert [row["workload.{dp,tp,pp}"] for row in read_csv((tmp_path / "t.csv").read_text())] == point


def test_text_that_looks_like_a_formula_is_made_harmless() -> None:
    cells = ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "a\nb", "a=b", "", None, -1.5, 3, True]
    found = [row["x"] for row in read_csv("\r\n".join(csv_lines({"x": cells, "y": cells})))]
    assert found[:6] == ["'=1+1", "'+1", "'-1", "'@x", "'\tx", "'\rx"]
    assert found[6:] == ["a\nb", "a=b", "", "", "-1.5", "3", "True"]


def test_a_file_that_cannot_be_written_leaves_nothing_behind(original: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"must end in \.csv or \.parquet"):
        export(original, tmp_path / "t.xlsx")
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(SpecError, match="cannot be written"):
        export(original, tmp_path / "t.csv")
    with pytest.raises(SpecError, match="cannot be written"):
        export(original, tmp_path / "nowhere" / "t.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_an_export_that_fails_keeps_the_file_that_was_there(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "t.csv"
    target.write_text("before")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(SpecError, match="No space left on device"):
        export(original, target)
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def test_the_command_writes_and_prints(original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "t.csv"
    count = len(open_study(original).trials)
    assert output(capsys, "export", str(original), "--to", str(file)).startswith(f"{count} trials with ")
    assert output(capsys, "export", str(original), "--to", "-") == file.read_text()
    found = json.loads(output(capsys, "export", str(original), "--to", str(file), "--json"))
    assert found["trials"] == count
    status, _, err = run(capsys, "export", str(original), "--to", "-", "--json")
    assert status == 2
    assert err.count("\n") == 1
