"""Measured runs: rows of a CSV file as points of a parameter set, or as designs of any model and machine.

trial, step_s                a trial of the study, and what was measured of it
tp, pp, micro_batch, step_s  fields by their paths or short names; all that are searched must be stated
design, tp, …, step_s        a design of its own (MODEL@SYSTEM:N or a file), where the file may name any
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.calibrating.tables import LABELS, SHORT
from cosmic.catalog.yaml_files import parse_yaml
from cosmic.design import schema
from cosmic.design.paths import full_path
from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError, require
from cosmic.evaluation import BETTER
from cosmic.exploration.problem import Problem
from cosmic.exploration.tabular import column_name
from cosmic.exploration.trials import Trials
from cosmic.files import Unreadable, read_bytes
from cosmic.loading.designs import design_tree, load_design
from cosmic.psa.diagram import Indices
from cosmic.psa.parameters import Parameter

MOST_BYTES = 2**24
MOST_RUNS = 10_000
"""Most measured runs of a study, or of a file."""
LEAST, MOST = 1e-12, 1e30
"""Bounds of a measured number: beyond them the unit is wrong."""
MILLI = {"step_ms": "step_s"}
SHOWN = 8


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run of a point of a parameter set."""

    point: tuple[int, ...]
    """Its value indices."""
    metrics: Mapping[str, float]
    """What was measured, by the names of metrics."""
    source: str
    """The file and the row that it came from."""


@dataclass(frozen=True, slots=True)
class MeasuredDesign:
    """One measured run of a design of any space."""

    point: DesignPoint
    metrics: Mapping[str, float]


def read_rows(path: str | Path, where: str) -> tuple[list[dict[str, str]], bytes]:
    """Return the rows of the CSV file at *path*, by column, and its bytes."""
    data = read_bytes(path, where, MOST_BYTES)
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
        reader = csv.DictReader(StringIO(text, newline=""), restval="")
        columns = [each.strip() for each in reader.fieldnames or ()]
        reader.fieldnames = columns
        rows = [dict(row) for row in reader]
    except (UnicodeDecodeError, csv.Error):
        raise Unreadable(where, str(path), "is not a CSV file in UTF-8") from None
    name = Path(path).name
    measured = any(MILLI.get(column, column) in BETTER for column in columns)
    rule = (
        "no column is a metric: a CSV file of runs has step_s, or another of 'cosmic list metrics', in its first line"
    )
    require(measured, name, ", ".join(columns)[:80], rule)
    require(bool(rows), name, 0, "there are no rows")
    require(len(rows) <= MOST_RUNS, name, len(rows), f"at most {MOST_RUNS:,} rows are read")
    twice = [column for place, column in enumerate(columns) if column in columns[:place]]
    require(not twice, name, ", ".join(twice), "is there twice among the columns")
    for place, row in enumerate(rows, 1):
        require(None not in row, f"{name} row {place}", "", "has more cells than there are columns")
    return [{column: (cell or "").strip() for column, cell in row.items()} for row in rows], data


def metrics_of(row: Mapping[str, str]) -> dict[str, float]:
    """Return what was measured in a row: cells of columns that are metrics."""
    found: dict[str, float] = {}
    for column, cell in row.items():
        name = MILLI.get(column, column)
        if name not in BETTER or not cell:
            continue
        try:
            value = float(cell)
        except ValueError:
            raise SpecError(column, cell, "must be a number") from None
        require(isfinite(value) and LEAST <= value <= MOST, column, cell, f"must be from {LEAST:g} to {MOST:g}")
        require(name not in found, column, cell, f"{name} is measured twice in this row")
        found[name] = value * (1e-3 if column in MILLI else 1.0)
    require(bool(found), "row", "", "measures nothing: give step_s, or another metric (cosmic list metrics)")
    return found


def _cells_of_fields(row: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the cells of a row that state fields of a design, each with its column."""
    for column, cell in row.items():
        measured = MILLI.get(column, column) in BETTER
        if cell and not measured and column not in (*LABELS, "trial", "design"):
            yield column, cell


# ---------------------------------------------------------------------------------------- points of a study


def read_runs(problem: Problem, trials: Trials, path: str | Path, where: str = "ROWS") -> list[Run]:
    """Return the measured runs in the CSV file at *path*, each a point of *problem*; any other row is refused."""
    name = Path(path).name
    runs = []
    for place, row in enumerate(read_rows(path, where)[0], 1):
        try:
            point = _trial(row, trials) if row.get("trial") else _point(problem, row)
            _check_rest(problem, point, row)
            runs.append(Run(tuple(point.tolist()), metrics_of(row), f"{name} row {place}"))
        except SpecError as error:
            raise error.inside(f"{name} row {place}") from None
    return runs


def _trial(row: Mapping[str, str], trials: Trials) -> Indices:
    cell = row["trial"]
    known = cell.isdecimal() and len(cell) < 12 and int(cell) < len(trials)
    require(known, "trial", cell, f"the study has trials 0 to {len(trials) - 1:,}")
    return trials.row(int(cell))


def _point(problem: Problem, row: Mapping[str, str]) -> Indices:
    """Return the point whose fields a row states."""
    space = problem.space
    stated = _stated(problem, row)
    found = [_index(parameter, stated) for parameter in space.parameters]
    point = np.array(found, dtype=np.intp)
    for broken in space.broken(point).values():
        raise SpecError("row", _shortly(stated), f"is no design of the study: it {broken}")
    return point


def _index(parameter: Parameter, stated: Mapping[str, Any]) -> int:
    """Return which value of a *parameter* the stated fields are."""
    known = {place: stated[path] for place, path in enumerate(parameter.paths) if path in stated}
    if not known and len(parameter.values) > 1:
        raise SpecError(parameter.name, None, "is searched by the study, and the row does not state it")
    found = [
        index for index, value in enumerate(parameter.values) if all(value[at] == each for at, each in known.items())
    ]
    if not found:
        some = ", ".join(map(str, parameter.labels[:SHOWN])) + (", …" if len(parameter.labels) > SHOWN else "")
        said = next(iter(known.values())) if len(known) == 1 else tuple(known.values())
        raise SpecError(parameter.name, said, f"is outside the study, which has {some}")
    if len(found) > 1:
        others = [path for path in parameter.paths if path not in stated]
        raise SpecError(parameter.name, None, f"is not complete: state {' and '.join(others)} too")
    return found[0]


def _stated(problem: Problem, row: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields that a row states, by path, as designs hold them."""
    base = problem.space.base
    paths = [path for parameter in problem.space.parameters for path in parameter.paths]
    in_si = {column_name(problem, path): path for path in [*paths, *problem.space.derived]}
    found: dict[str, Any] = {}
    for column, cell in _cells_of_fields(row):
        path = in_si.get(column) or full_path(SHORT.get(column, column))
        require("." in path, column, cell, "is neither a field of a design nor a metric")
        slot = schema.slot_at(base, path)
        value = parse_yaml(cell, column)
        dimension = None if column in in_si and column != path else slot.dimension
        if slot.dimension is not None and dimension is None:
            value = float(value) if isinstance(value, int | float) else value
        found[path] = schema.read(slot.hint, value, column, dimension)
    return found


def _check_rest(problem: Problem, point: Indices, row: Mapping[str, str]) -> None:
    """Refuse a row that states another value of a field than the design of its point has."""
    held = problem.space.changes(point)
    base = problem.space.base
    for path, value in _stated(problem, row).items():
        own = held[path] if path in held else schema.get(base, path)
        require(own == value, path, value, f"is outside the study, whose design has {own}")


def _shortly(stated: Mapping[str, Any]) -> str:
    return ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in stated.items())[:120]


# ------------------------------------------------------------------------------------------------ any design


def read_designs(base: DesignPoint, rows: Sequence[Mapping[str, str]], name: str) -> list[MeasuredDesign]:
    """Return the measured designs of *rows*; one without a ``design`` is *base* with the fields that it states."""
    found = []
    for place, row in enumerate(rows, 1):
        try:
            settings = _settings(row)
            source: Any = row.get("design") or design_tree(base)
            found.append(MeasuredDesign(load_design(source, settings), metrics_of(row)))
        except SpecError as error:
            raise error.inside(f"{name} row {place}") from None
    return found


def _settings(row: Mapping[str, str]) -> dict[str, Any]:
    require(not row.get("trial"), "trial", row.get("trial"), "of which study? put it in with 'cosmic study tell'")
    return {full_path(SHORT.get(column, column)): parse_yaml(cell, column) for column, cell in _cells_of_fields(row)}
