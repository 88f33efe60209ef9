"""Trials as tables for other programs."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import sqlite3
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design import schema
from cosmic.search.optional_libraries import how_to_install
from cosmic.search.problem import METRICS, Problem, make_problem
from cosmic.search.search_loop import Progress, evaluate_proposals, read_interrupted, search
from cosmic.search.space.diagram import Indices
from cosmic.search.space.space_files import load_space
from cosmic.search.study import trial_table
from cosmic.search.study.study import Study, csv_lines, export_trials, open_study
from cosmic.search.study.trial_storage import StudyError
from cosmic.search.study.trial_table import TrialTable
from cosmic.search.trials import Trials
from tests.commands import output, run


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def plain(value: Any) -> Any:
    """Return a value as a table of trials has it."""
    return json.dumps(value) if isinstance(value, list) else value


def fields_of(study: Study, row: Indices) -> dict[str, Any]:
    """Return the columns that a point has by its parameters and derived fields, from the set's own description."""
    space = study.problem.space
    searched = [path for each in space.parameters for path in each.paths if each.name != "compute.accelerator"]
    accelerators = ["compute.accelerator"] if any(p.name == "compute.accelerator" for p in space.parameters) else []
    changes, found = space.changes(row), {}
    for path in (*searched, *accelerators, *space.derived):
        slot = schema.slot_at(space.base, path)
        value = list(changes[path]) if isinstance(changes[path], tuple) else changes[path]
        found[path if slot.dimension is None else f"{path.rpartition('.')[0]}.{slot.name}"] = plain(value)
    return found


def test_a_row_is_a_trial_with_its_fields_and_its_metrics(original: Path, tmp_path: Path) -> None:
    rows, columns = export_trials(original, tmp_path / "t.csv")
    study = open_study(original)
    found = read_csv((tmp_path / "t.csv").read_text())
    assert len(found) == rows == len(study.trials)
    assert columns == len(found[0])
    assert list(found[0])[:2] == ["trial", "batch"]
    for place in (0, 1, 7, 100, rows - 1):
        for name, value in fields_of(study, study.trials.row(place)).items():
            assert found[place][name] == str(value)
        described = study.trials.describe(study.problem, place)
        for name, value in described["metrics"].items():
            assert found[place][name] == ("" if value is None else repr(value))
        assert found[place]["reasons"] == ", ".join(described["reasons"])
        assert found[place]["feasible"] == str(not described["reasons"])
    sizes = np.bincount([int(row["batch"]) for row in found])
    assert sizes[0] == 1  # the base


def test_every_format_holds_the_same(original: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an extra")
    for suffix in ("csv", "jsonl", "parquet"):
        export_trials(original, tmp_path / f"t.{suffix}")
    table = parquet.read_table(tmp_path / "t.parquet")
    rows = table.to_pylist()
    assert [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()] == rows
    texts = read_csv((tmp_path / "t.csv").read_text())
    assert texts == [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows]
    kinds = {name: str(table.schema.field(name).type) for name in table.column_names}
    assert kinds["workload.dp"] == kinds["trial"] == kinds["network.dims.0.npus"] == "int64"
    assert {kinds[name] for name in (*METRICS, "network.dims.0.bandwidth_bytes_per_s")} == {"double"}
    assert kinds["feasible"] == "bool"
    assert open_study(original).to_arrow().equals(table)


def test_parts_add_up_to_their_metric(original: Path, tmp_path: Path) -> None:
    export_trials(original, tmp_path / "t.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    for row in rows:
        for metric in ("step_s", "memory_used_bytes"):
            parts = [value for name, value in row.items() if name.startswith(f"{metric}.") and value is not None]
            if row["feasible"]:
                assert math.fsum(parts) == pytest.approx(row[metric], rel=1e-12)
            elif metric == "step_s" or row["reasons"] != "memory":
                assert not parts
            else:
                assert math.fsum(parts) > 0  # which memory is too much
    export_trials(original, tmp_path / "t.csv", parts=False)
    assert read_csv((tmp_path / "t.csv").read_text())[0].keys().isdisjoint({"step_s.gemm", "memory_used_bytes.weights"})


def test_a_trial_that_would_be_evaluated_otherwise_now_has_no_parts(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Problem.evaluate_shares

    def slower(self: Problem, rows: Indices) -> Any:
        found, results = before(self, rows)
        return found, dataclasses.replace(results, columns={**results.columns, "step_s": 2 * results.columns["step_s"]})

    monkeypatch.setattr(Problem, "evaluate_shares", slower)
    export_trials(original, tmp_path / "t.jsonl")
    for row in map(json.loads, (tmp_path / "t.jsonl").read_text().splitlines()):
        assert row["step_s.gemm"] is None
        assert not row["feasible"] or row["memory_used_bytes.weights"] is None


BASE = "gpt3-125m@dgx-h100:8"
KINDS: dict[str, dict[str, Any]] = {
    "tuples": {"parameters": {"workload.{dp,tp,pp}": {"split": "npus"}, "workload.weight_sharding": ["none", "zero3"]}},
    "derived": {"parameters": {"workload.tp": [1, 2, 4, 8]}, "derived": {"workload.dp": "8 / workload.tp"}},
    "lists": {"parameters": {"workload.offload": [[], ["weights"], ["weights", "optimizer"]], "workload.dp": [8]}},
    "units": {"parameters": {"network.dims.*.bandwidth": {"values": ["100 Gbps", "50 GB/s"], "shared": True}}},
    "accelerators": {
        "parameters": {"compute.accelerator": ["h100-sxm-80gb", "a100-sxm-80gb"], "memory.capacity": ["80 GB", "1 MB"]}
    },
    "truth values": {"parameters": {"workload.dp_overlap": [True, False], "workload.micro_batch": [1, 2, 4]}},
    "several workloads": {
        "parameters": {"workload.{dp,tp}": {"split": 8}},
        "workloads": {"short": {"sequence": 512}, "long": {"weight": 3, "sequence": 2048}},
    },
    "constraints": {
        "parameters": {"workload.tp": [1, 2, 4, 8], "workload.dp": [1, 2, 4, 8], "workload.micro_batch": [1, 2, 64]},
        "constraints": ["workload.tp * workload.dp <= 8", "memory_bytes <= 4 GB"],
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_random_studies_of_every_kind_are_their_trials(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    space = {"base": BASE, **KINDS[kind]}
    folder, seed = tmp_path / "s", len(kind)
    for trials in (5, 12):  # resumed
        found = search(
            space,
            agent="random",
            trials=trials,
            batch=3,
            seed=seed,
            out=folder,
            resume=trials > 5,
            objectives=["step_s", "network_usd"],
        )
    study = open_study(folder)
    export_trials(folder, tmp_path / "t.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert rows == study.to_arrow().to_pylist() == found.to_arrow().to_pylist()
    assert len(rows) == len(study.trials)
    batches = [batch.batch for batch in study.history[0] for _ in range(batch.trials)]
    for place, row in enumerate(rows):
        wanted = study.trials.describe(study.problem, place)
        assert (row["trial"], row["batch"]) == (place, batches[place])
        assert {name: row[name] for name in METRICS} == wanted["metrics"]
        assert row["reasons"] == ", ".join(wanted["reasons"])
        fields = fields_of(study, study.trials.row(place))
        assert {name: row[name] for name in fields} == fields
        for metric in ("step_s", "memory_used_bytes") if row["feasible"] else ():
            parts = [value for name, value in row.items() if name.startswith(f"{metric}.")]
            whole = math.fsum(parts) if metric == "step_s" or kind != "several workloads" else row[metric]
            assert whole == pytest.approx(row[metric], rel=1e-12)


def test_a_search_that_is_not_kept_has_the_table_of_one_that_is(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    kept, free = (search("cosmic-512-full-stack", trials=40, batch=8, out=out) for out in (tmp_path / "s", None))
    assert kept.to_arrow() == free.to_arrow() == open_study(tmp_path / "s").to_arrow()
    assert "batch" not in dataclasses.replace(free, batches=None).to_arrow().column_names


def test_pandas_reads_the_numbers_that_were_written(original: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is an extra")
    export_trials(original, tmp_path / "t.csv")
    frame = open_study(original).to_pandas()
    exact = {} if tuple(map(int, pandas.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}
    read = pandas.read_csv(tmp_path / "t.csv", **exact)
    assert list(frame) == list(read)
    for name in set(frame) - {"reasons"}:
        assert frame[name].dtype == read[name].dtype, name
        assert frame[name].equals(read[name]), name
    assert (frame["reasons"] == read["reasons"].fillna("")).all()
    assert frame["step_s"].min() == open_study(original).trials.results.columns["step_s"][frame["step_s"].idxmin()]


@pytest.mark.parametrize(("library", "method"), [("pandas", "to_pandas"), ("pyarrow", "to_arrow")])
def test_a_missing_library_is_one_sentence(
    original: Path, library: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(SpecError) as caught:
        getattr(open_study(original), method)()
    assert str(caught.value) == f"study = '{method}': needs {library}; {how_to_install('notebook', library)}"


def test_a_study_that_lacks_trials_is_damaged_and_leaves_no_file(study: Path, tmp_path: Path) -> None:
    with sqlite3.connect(study / "trials.db") as database:
        database.execute("DELETE FROM packed WHERE first = (SELECT MAX(first) FROM packed)")
    database.close()
    with pytest.raises(StudyError, match="trials were written"):
        export_trials(study, tmp_path / "t.csv")
    assert not (tmp_path / "t.csv").exists()


def test_text_that_looks_like_a_formula_is_made_harmless() -> None:
    cells = ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "a\nb", "a=b", "", None, -1.5, 3, True]
    found = [row["x"] for row in read_csv("\r\n".join(csv_lines({"x": cells, "y": cells})))]
    assert found[:6] == ["'=1+1", "'+1", "'-1", "'@x", "'\tx", "'\rx"]
    assert found[6:] == ["a\nb", "a=b", "", "", "-1.5", "3", "True"]


def test_a_file_that_cannot_be_written_leaves_nothing_behind(original: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"must end in \.csv, \.jsonl or \.parquet"):
        export_trials(original, tmp_path / "t.xlsx")
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(SpecError, match="cannot be written"):
        export_trials(original, tmp_path / "t.csv")
    with pytest.raises(SpecError, match="cannot be written"):
        export_trials(original, tmp_path / "nowhere" / "t.csv")
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
        export_trials(original, target)
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def test_the_command_writes_and_prints(original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "t.csv"
    count = len(open_study(original).trials)
    assert output(capsys, "study", "export", str(original), "--to", str(file)).startswith(f"{count} trials with ")
    assert output(capsys, "study", "export", str(original), "--to", "-") == file.read_text()
    found = json.loads(output(capsys, "study", "export", str(original), "--to", str(file), "--json"))
    assert found["trials"] == count
    status, _, err = run(capsys, "study", "export", str(original), "--to", "-", "--json")
    assert status == 2
    assert err.count("\n") == 1


def test_a_point_outside_the_set_has_a_row_without_what_it_lacks() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    space = load_space(
        {
            "base": BASE,
            "parameters": {"workload.tp": [1, 2, 3, 4], "workload.micro_batch": [1, 2]},
            "derived": {"workload.dp": "8 / workload.tp"},
            "constraints": ["8 % workload.tp == 0"],
        }
    )
    problem = make_problem(space)
    rows = np.array([[0, 0], [2, 1], [3, 0]])
    trials = Trials(rows, evaluate_proposals(problem, rows, space.contains(rows), problem.evaluate))
    found = trial_table.to_arrow(TrialTable(problem), [(np.array([0, 0, 1]), trials)]).to_pylist()
    assert [row["workload.dp"] for row in found] == [8, None, 2]
    assert found[1]["reasons"] == "constraints.0"
    assert [row["step_s.gemm"] is None for row in found] == [False, True, False]
    pandas = pytest.importorskip("pandas", reason="pandas is an extra")
    frame = trial_table.to_pandas(TrialTable(problem), [(np.array([0, 0, 1]), trials)])
    assert frame["workload.dp"].tolist()[::2] == [8, 2]
    assert pandas.isna(frame["workload.dp"][1])


def test_no_trials_are_a_table_without_rows() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    problem = make_problem(load_space({"base": BASE, **KINDS["derived"]}))
    table = TrialTable(problem)
    found = trial_table.to_arrow(table, [])
    assert (found.num_rows, found.column_names) == (0, [head.name for head in table.heads])
    pytest.importorskip("pandas", reason="pandas is an extra")
    assert trial_table.to_pandas(table, []).shape == (0, len(table.heads))


def test_of_a_simulated_study_only_memory_has_parts(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    space = {
        "base": "gpt3-125m@dgx-h100:2",
        "parameters": {"workload.micro_batch": [1, 2], "model.layers": [2], "workload.global_batch": [4]},
    }
    search(space, agent="exhaustive", trials=2, engine="event", out=tmp_path / "s")
    rows = open_study(tmp_path / "s").to_arrow().to_pylist()
    assert any(row["feasible"] for row in rows)
    for row in rows:
        assert not [name for name in row if name.startswith("step_s.")]
        parts = [value for name, value in row.items() if name.startswith("memory_used_bytes.")]
        assert not row["feasible"] or math.fsum(parts) == pytest.approx(row["memory_used_bytes"], rel=1e-12)


def test_an_interrupted_study_has_the_rows_that_were_written(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is an extra")

    def stop(progress: Progress) -> None:
        if progress.seen >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search("cosmic-512-full-stack", agent="random", trials=90, batch=8, out=tmp_path / "s", watch=stop)
    study, found = open_study(tmp_path / "s"), read_interrupted(tmp_path / "s")
    assert found is not None
    assert study.stopped == "interrupted"
    rows = study.to_arrow().to_pylist()
    assert rows == found.to_arrow().to_pylist()
    assert 20 <= len(rows) == len(study.trials) < 90
    assert export_trials(tmp_path / "s", tmp_path / "t.csv")[0] == len(rows)
