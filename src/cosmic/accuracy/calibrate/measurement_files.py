"""Files of measurements: told apart by what they hold, then read as measurements of one system.

CSV    published training runs, and the kinds of rows of `cosmic calibrate validate` that one system explains
       ``design``, a time, and columns that are fields of the design
       a column ``kind``: what `cosmic calibrate probe` writes, rows of several kinds
text   the output of nccl-tests
JSON   a trace of Kineto
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

from cosmic.accuracy.calibrate.calibration_target import Target, check_accelerator, system_of_design, system_of_device
from cosmic.accuracy.calibrate.kineto_steps import is_kineto, observed_trace, read_kineto
from cosmic.accuracy.calibrate.nccl_tests import is_nccl_tests, read_nccl_tests
from cosmic.accuracy.calibrate.predicted_measurements import (
    PredictedMeasurements,
    observed_attention,
    observed_collectives,
    observed_gemms,
    observed_launches,
    observed_memory,
    observed_step,
    on_machine,
    require_valid,
    step_seconds,
)
from cosmic.accuracy.measured_rows import KINDS, MOST_BYTES, Fields, Row
from cosmic.accuracy.rows.single_gpu_rows import inference_design, training_design
from cosmic.accuracy.rows.training_rows import read_run, require_fit
from cosmic.base.errors import SpecError, require
from cosmic.base.files import Unreadable, read_bytes
from cosmic.design.design_point import DesignPoint, full_path
from cosmic.design.measured_hardware import AICONFIGURATOR, find_system
from cosmic.design.plain_data import parse_yaml
from cosmic.search.mapping.design_completion import complete_design
from cosmic.search.study.measured_runs import LABEL_COLUMNS, SHORT_COLUMNS

TIMES = ("step_s", "step_ms", "tokens_per_s", "tokens_per_s_per_accel", "tflops", "tflops_per_accel")
"""Columns that give a step's time, of which a row needs one."""
SIZES = ("gpus", "n_accel", "npus")
OF_SYSTEM = ("system", "compute", "memory", "network")


Reader = Callable[[Sequence[Row], Target, list[str]], list[PredictedMeasurements]]
"""From rows of a kind to measurements of a system; what is left out is noted in the list, a sentence each."""


@dataclass(frozen=True, slots=True)
class MeasurementTable:
    """Measurements of a file: the systems that they name, and how they become measurements of one."""

    name: str
    systems: frozenset[str]
    rows: int
    observed: Callable[[Target], list[PredictedMeasurements]]
    skipped: list[str]
    """Rows that are left out, a sentence each; known once they are asked for."""


def read_tables(path: str | Path) -> list[MeasurementTable]:
    """Return the measurements in the file at *path*."""
    name = Path(path).name
    data = read_bytes(path, "data", MOST_BYTES)
    if is_kineto(data):
        return [_trace(data, name)]
    require(
        b"\0" not in data, "data", str(path), "is neither a CSV file, nor the output of nccl-tests, nor a Kineto trace"
    )
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise Unreadable("data", str(path), "is not text in UTF-8") from None
    if is_nccl_tests(text):
        return [_of_rows(name, "collective", read_nccl_tests(text, name))]
    return _csv(text, path, name)


def _csv(text: str, path: str | Path, name: str) -> list[MeasurementTable]:
    try:
        reader = csv.DictReader(StringIO(text, newline=""), restval="")
        columns = [column.strip() for column in reader.fieldnames or ()]
        reader.fieldnames = columns
        rows = [{key: value for key, value in row.items() if key is not None} for row in reader]
    except csv.Error:
        raise Unreadable("data", str(path), "is not a CSV file") from None
    require(bool(rows), name, 0, "there are no rows")
    twice = [column for index, column in enumerate(columns) if column in columns[:index]]
    require(not twice, name, ", ".join(twice), "is there twice among the columns")
    if "kind" in columns and not {"design", *TIMES} & set(columns) - {"step_ms"}:
        kinds = dict.fromkeys(row["kind"].strip() for row in rows)
        return [_of_rows(name, kind, [row for row in rows if row["kind"].strip() == kind]) for kind in kinds]
    row_kind = next((kind for kind in KINDS if kind.columns <= set(columns)), None)
    if row_kind is not None:
        require(
            row_kind.name in CARRIED,
            name,
            row_kind.name,
            f"rows of this kind say nothing about one system; {_expected_columns()}",
        )
        return [_of_rows(name, CARRIED[row_kind.name], rows)]
    if set(TIMES) & set(columns):
        return [_of_rows(name, "design", rows)]
    raise SpecError(name, ", ".join(columns), f"these columns are of no known kind; {_expected_columns()}")


def _expected_columns() -> str:
    return f"give design and one of {', '.join(TIMES)}, or the columns of {', '.join(CARRIED)}"


CARRIED = {
    "training runs": "run",
    "training steps of one GPU": "step",
    "prefill and decode of one GPU": "served",
    "GEMMs": "gemm",
    "GEMMs of several GPUs": "gemm",
    "attention": "attention",
    "memory-bound operators": "memory",
    "collectives": "collective",
}
"""Kinds of rows that `cosmic calibrate validate` knows, as kinds of this package."""


def _of_rows(name: str, kind: str, rows: Sequence[Row]) -> MeasurementTable:
    require(kind in READERS, f"{name} kind", kind, f"must be one of {', '.join(READERS)}")
    named = {_system(row, kind) for row in rows}
    skipped: list[str] = []

    def observed(target: Target) -> list[PredictedMeasurements]:
        try:
            return READERS[kind](rows, target, skipped)
        except SpecError as error:
            raise error.inside(name) from None

    return MeasurementTable(name, frozenset(named - {""}), len(rows), observed, skipped)


def _system(row: Row, kind: str) -> str:
    """Return the system that a row names; empty if none."""
    if kind == "run":
        return find_system(row.get("accel") or "")
    if kind == "design":
        source = (row.get("design") or "").strip()
        return system_of_design(source) if source else ""
    hardware = row.get("hardware") or ""
    return find_system(AICONFIGURATOR.get(hardware, "")) or system_of_device(row.get("device") or "")


# ------------------------------------------------------------------------------------------------------- steps


def _designs(rows: Sequence[Row], target: Target, _: list[str]) -> list[PredictedMeasurements]:
    return [_design_row(row, index, target) for index, row in enumerate(rows, 1)]


def _design_row(row: Row, number: int, target: Target) -> PredictedMeasurements:
    fields = Fields(row)
    name = fields.text("id") or fields.text("name") or f"row {number}"
    source = fields.text("design")
    try:
        point, assumed = _point(source, _settings(row), target)
        require_valid(point)
        return observed_step(name, point, _step_s(fields, point), assumed)
    except SpecError as error:
        raise error.inside(f"row {number}") from None


def _point(source: str, settings: Mapping[str, Any], target: Target) -> tuple[DesignPoint, list[str]]:
    if not source:
        if target.design is None:
            raise SpecError("design", "", "is not given: name a design in each row, or one for all with --on")
        completed = complete_design(_as_tree(target.design), dict(settings))
    else:
        check_accelerator(target, system_of_design(source), "design", source)
        completed = complete_design(source, dict(settings))
        if target.name and system_of_design(source) != target.name:
            completed = replace(
                completed, point=on_machine(completed.point, target.sized(completed.point.network.npus))
            )
    return completed.point, completed.mapping_in_words("cosmic search")


def _as_tree(point: DesignPoint) -> Mapping[str, Any]:
    from cosmic.design.loading import design_tree  # noqa: PLC0415  only where --on is given

    return design_tree(point)


def _settings(row: Row) -> dict[str, Any]:
    """Return the fields of the design that columns set; empty cells set none."""
    settings = {}
    for column, cell in row.items():
        if column in (*LABEL_COLUMNS, *TIMES, "design") or not (cell or "").strip():
            continue
        path = SHORT_COLUMNS.get(column, column)
        require(path not in SIZES, column, cell, "write the size behind the system: MODEL@SYSTEM:SIZE")
        field_path = full_path(path)
        rule = "is a field of the system, not of a run: write a system's file, and name it with --system"
        require(not field_path.startswith(OF_SYSTEM), column, cell, rule)
        settings[field_path] = parse_yaml(cell.strip(), column)
    return settings


def _step_s(fields: Fields, point: DesignPoint) -> float:
    stated_times = [name for name in TIMES if fields.text(name)]
    require(len(stated_times) == 1, "time", ", ".join(stated_times), f"give one of {', '.join(TIMES)}")
    value = float(fields.number(stated_times[0]) or 0.0)
    if stated_times[0] in ("step_s", "step_ms"):
        return value * (1e-3 if stated_times[0] == "step_ms" else 1.0)
    if stated_times[0].startswith("tokens"):
        return step_seconds(point, tokens_per_s=value * (point.network.npus if "per_accel" in stated_times[0] else 1))
    return step_seconds(point, tera=value)


def _runs(rows: Sequence[Row], target: Target, skipped: list[str]) -> list[PredictedMeasurements]:
    """Return published runs; one that leaves too much open is skipped, unless all do."""
    runs = []
    for index, row in enumerate(rows, 1):
        fields = Fields(row)
        name = fields.text("id", f"row {index}")
        check_accelerator(target, _system(row, "run"), f"{name}.accel", fields.text("accel"))
        try:
            run = read_run(fields)
            require_fit(run.point)
            runs.append(observed_step(name, run.point, run.measured_s, fields.assumed))
        except SpecError as error:
            skipped.append(str(error.inside(name)))
            if len(skipped) == len(rows):
                raise error.inside(name) from None
    return runs


def _single(design: Callable[[Fields], DesignPoint], time: str) -> Reader:
    def read(rows: Sequence[Row], target: Target, _: list[str]) -> list[PredictedMeasurements]:
        rows_read = []
        for index, row in enumerate(rows, 1):
            check_accelerator(target, system_of_device(row.get("device") or ""), "device", row.get("device") or "")
            fields = Fields(row)
            point = on_machine(design(fields), target.sized(1))
            name = fields.text("id") or f"{fields.text('style') or fields.text('phase')} step {index}"
            rows_read.append(observed_step(name, point, fields.seconds(time, 1e-3)))
        return rows_read

    return read


def _trace(data: bytes, name: str) -> MeasurementTable:
    step = read_kineto(data, name)
    skipped: list[str] = []

    def observed(target: Target) -> list[PredictedMeasurements]:
        check_accelerator(target, system_of_device(step.device), name, step.device)
        if target.design is None:
            raise SpecError(name, "", "does not say which design it is of: name it with --on DESIGN")
        require_valid(target.design)
        return observed_trace(step, target.design, name, skipped)

    return MeasurementTable(name, frozenset({system_of_device(step.device)} - {""}), 1, observed, skipped)


READERS: dict[str, Reader] = {
    "design": _designs,
    "run": _runs,
    "step": _single(training_design, "step_ms"),
    "served": _single(inference_design, "ms"),
    "gemm": observed_gemms,
    "attention": observed_attention,
    "memory": observed_memory,
    "launch": observed_launches,
    "collective": observed_collectives,
}
"""How rows of each kind are read."""
