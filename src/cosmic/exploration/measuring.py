"""Measured runs: rows of a CSV file as points of a parameter set, or as designs of any model and machine.

trial, step_s                a trial of the study, and what was measured of it
tp, pp, micro_batch, step_s  fields by their paths or short names; all that are searched must be stated
design, tp, …, step_s        a design of its own (MODEL@SYSTEM:N or a file), where the file may name any
"""

from __future__ import annotations

import csv
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.catalog.yaml_files import parse_yaml
from cosmic.design import schema
from cosmic.design.paths import full_path
from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError, require
from cosmic.exploration.problem import Problem
from cosmic.exploration.tabular import column_name
from cosmic.exploration.trials import Trials
from cosmic.files import Unreadable, read_bytes
from cosmic.loading.designs import design_tree
from cosmic.mapping.completing import load_design
from cosmic.psa.binding import PROVISIONED
from cosmic.psa.diagram import Indices
from cosmic.psa.parameters import Parameter, full_key

MOST_BYTES = 2**24
MOST_RUNS = 10_000
"""Most measured runs of a study, or of a file."""
LEAST, MOST = 1e-12, 1e30
"""Bounds of a measured number: beyond them the unit is wrong."""
MILLI = {"step_ms": "step_s"}
SHARES = ("mfu", "hfu", "goodput")
"""Metrics that are at most 1."""
SHOWN = 8
LABELS = ("id", "name", "notes", "source", "url", "date", "device", "kind")
"""Columns that are no fields of a design."""
SHORT = {"mbs": "micro_batch", "gbs": "global_batch", "seq_len": "sequence", "seq": "sequence", "vpp": "virtual_stages"}
"""Names of columns that stand for fields."""


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
    require(bool(rows), name, 0, "there are no rows")
    require(len(rows) <= MOST_RUNS, name, len(rows), f"at most {MOST_RUNS:,} rows are read")
    twice = [column for place, column in enumerate(columns) if column in columns[:place]]
    require(not twice, name, ", ".join(twice), "is there twice among the columns")
    for place, row in enumerate(rows, 1):
        require(None not in row, f"{name} row {place}", "", "has more cells than there are columns")
    return [{column: (cell or "").strip() for column, cell in row.items()} for row in rows], data


def _require_metric(rows: Sequence[Mapping[str, str]], problem: Problem, name: str) -> None:
    """Refuse rows without a column that is a metric of the problem's engine."""
    columns = list(rows[0])
    rule = f"no column is a metric: a CSV file of runs has {_examples(problem)}, in its first line"
    require(any(_metric(column, problem) for column in columns), name, ", ".join(columns)[:80], rule)


def _metric(column: str, problem: Problem) -> str:
    """Return the metric that a column measures; empty where it is none of the problem's engine."""
    name = MILLI.get(column, column)
    return name if name in problem.metrics else ""


def _examples(problem: Problem) -> str:
    if problem.of_designs:
        return "step_s, or another of 'cosmic list metrics'"
    return f"{' or '.join(problem.metrics[:SHOWN])}, which {problem.engine} gives"


def metrics_of(row: Mapping[str, str], problem: Problem) -> dict[str, float]:
    """Return what was measured in a row: cells of columns that are metrics."""
    found: dict[str, float] = {}
    for column, cell in row.items():
        name = _metric(column, problem)
        if not name or not cell:
            continue
        try:
            value = float(cell)
        except ValueError:
            raise SpecError(column, cell, "must be a number") from None
        require(isfinite(value) and LEAST <= value <= MOST, column, cell, f"must be from {LEAST:g} to {MOST:g}")
        require(name not in SHARES or value <= 1, column, cell, "is a share, at most 1: write 0.45 for 45 %")
        require(name not in found, column, cell, f"{name} is measured twice in this row")
        found[name] = value * (1e-3 if column in MILLI else 1.0)
    require(bool(found), "row", "", f"measures nothing: give {_examples(problem)}")
    return found


def _cells_of_fields(
    problem: Problem, row: Mapping[str, str], parameters: Container[str] = ()
) -> Iterator[tuple[str, str]]:
    """Yield the cells of a row that state fields of a design, each with its column; *parameters* are fields always."""
    for column, cell in row.items():
        told = column in (*LABELS, "trial", "design") and column not in parameters
        if cell and not told and not _metric(column, problem):
            yield column, cell


# ---------------------------------------------------------------------------------------- points of a study


def read_runs(problem: Problem, trials: Trials, path: str | Path, where: str = "ROWS") -> list[Run]:
    """Return the measured runs in the CSV file at *path*, each a point of *problem*; any other row is refused."""
    name = Path(path).name
    runs = []
    rows = read_rows(path, where)[0]
    _require_metric(rows, problem, name)
    for place, row in enumerate(rows, 1):
        try:
            point = _trial(row, trials) if row.get("trial") else _point(problem, row)
            _check_rest(problem, point, row)
            runs.append(Run(tuple(point.tolist()), metrics_of(row, problem), f"{name} row {place}"))
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
    for column, cell in _cells_of_fields(problem, row, in_si):
        path = in_si.get(column) or full_key(SHORT.get(column, column), column, base)
        require("." in path or path in base.fields, column, cell, "is neither a field of a design nor a metric")
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


def read_designs(problem: Problem, rows: Sequence[Mapping[str, str]], name: str) -> list[MeasuredDesign]:
    """Return the measured designs of *rows*.

    One without a ``design`` is the base of the problem's set with the fields that it states; fields that the set
    derives follow them, unless the row states those too.
    """
    _require_metric(rows, problem, name)
    found = []
    for place, row in enumerate(rows, 1):
        try:
            require(
                not row.get("trial"), "trial", row.get("trial"), "of which study? put it in with 'cosmic study tell'"
            )
            point = _design(problem, row) if row.get("design") else _derived(problem, row)
            found.append(MeasuredDesign(point, metrics_of(row, problem)))
        except SpecError as error:
            raise error.inside(f"{name} row {place}") from None
    return found


def _design(problem: Problem, row: Mapping[str, str]) -> DesignPoint:
    """Return the design that a row names, with the fields that it states."""
    rule = f"is no design of {problem.engine}, which has fields of its own: state those"
    require(problem.space.of_designs, "design", row["design"], rule)
    return load_design(row["design"], _settings(problem, row))


def _derived(problem: Problem, row: Mapping[str, str]) -> DesignPoint:
    """Return the base of the problem's set with the fields that a row states, and those that follow them."""
    space = problem.space
    if space.of_designs:
        settings = _settings(problem, row)
        base, stated = load_design(design_tree(space.base), settings), set(settings)
    else:
        fields = _stated(problem, row)
        base, stated = schema.assign(space.base, fields), set(fields)
    left = {path: text for path, text in space.derived.items() if path not in stated and text != PROVISIONED}
    if not left:
        return base
    around = replace(space, base=base, parameters=(), derived=left, constraints=(), workloads=(), provisioner=None)
    return around.point(np.empty(0, dtype=np.intp))


def _settings(problem: Problem, row: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields that a row states, as files write them."""
    cells = _cells_of_fields(problem, row)
    return {full_path(SHORT.get(column, column)): parse_yaml(cell, column) for column, cell in cells}
