"""Measured runs: read from CSV files, kept in studies, set beside predictions, and what corrects predictions by them.

Rows of a file are points of a parameter set, or designs of any model and machine:

    trial, step_s                a trial of the study, and what was measured of it
    tp, pp, micro_batch, step_s  fields by their paths or short names; all that are searched must be stated
    design, tp, …, step_s        a design of its own (MODEL@SYSTEM:N or a file), where the file may name any

A study keeps its runs as text in its database. Measured runs of designs, or simulations of them, correct predictions by
features of designs:

    log(measured / predicted)  =  what `cosmic.search.learning.residuals` makes of few runs
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.base.caching import digest
from cosmic.base.errors import SpecError, require
from cosmic.base.files import Unreadable, read_bytes
from cosmic.design import schema
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint, EngineFields, full_path
from cosmic.design.loading import design_tree
from cosmic.design.model_layer import Recommender
from cosmic.design.plain_data import parse_yaml
from cosmic.evaluation import evaluate
from cosmic.search.agent import Floats
from cosmic.search.learning.design_features import (
    Features,
    derived_features,
    encoding_of,
    field_features,
    join_features,
    physics_features,
)
from cosmic.search.learning.prediction_quality import Quality, measure_quality
from cosmic.search.learning.residuals import Residuals, fit_residuals
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.objectives import loss
from cosmic.search.problem import Problem
from cosmic.search.space.diagram import Indices
from cosmic.search.space.expressions import PROVISIONED
from cosmic.search.space.parameters import Parameter, full_key
from cosmic.search.study.trial_table import column_name
from cosmic.search.trials import Trials
from cosmic.simulate.metrics import BETTER, Metrics
from cosmic.simulate.user_engines import direction

# --------------------------------------------------------------------------------------
# Measured runs: rows of a CSV file as points of a parameter set, or as designs of any model and machine
# --------------------------------------------------------------------------------------

MOST_BYTES = 2**24
MOST_RUNS = 10_000
"""Most measured runs of a study, or of a file."""
LEAST_MEASURED, MOST_MEASURED = 1e-12, 1e30
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
class MeasuredRun:
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


def read_run_rows(path: str | Path, where: str) -> tuple[list[dict[str, str]], bytes]:
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
    for index, row in enumerate(rows, 1):
        require(None not in row, f"{name} row {index}", "", "has more cells than there are columns")
    return [{column: (cell or "").strip() for column, cell in row.items()} for row in rows], data


def _require_metric(rows: Sequence[Mapping[str, str]], problem: Problem, name: str) -> None:
    """Refuse rows without a column that is a metric of the problem's engine."""
    columns = list(rows[0])
    rule = f"no column is a metric: a CSV file of runs has {_examples(problem)}, in its first line"
    require(any(_metric_of_column(column, problem) for column in columns), name, ", ".join(columns)[:80], rule)


def _metric_of_column(column: str, problem: Problem) -> str:
    """Return the metric that a column measures; empty where it is none of the problem's engine."""
    name = MILLI.get(column, column)
    return name if name in problem.metrics else ""


def _examples(problem: Problem) -> str:
    if problem.of_designs:
        return "step_s, or another of 'cosmic catalog list metrics'"
    return f"{' or '.join(problem.metrics[:SHOWN])}, which {problem.engine} gives"


def measured_metrics(row: Mapping[str, str], problem: Problem) -> dict[str, float]:
    """Return what was measured in a row: cells of columns that are metrics."""
    found: dict[str, float] = {}
    for column, cell in row.items():
        name = _metric_of_column(column, problem)
        if not name or not cell:
            continue
        try:
            value = float(cell)
        except ValueError:
            raise SpecError(column, cell, "must be a number") from None
        require(
            isfinite(value) and LEAST_MEASURED <= value <= MOST_MEASURED,
            column,
            cell,
            f"must be from {LEAST_MEASURED:g} to {MOST_MEASURED:g}",
        )
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
        if cell and not told and not _metric_of_column(column, problem):
            yield column, cell


# ---------------------------------------------------------------------------------------- points of a study


def read_runs(problem: Problem, trials: Trials, path: str | Path, where: str = "ROWS") -> list[MeasuredRun]:
    """Return the measured runs in the CSV file at *path*, each a point of *problem*; any other row is refused."""
    name = Path(path).name
    runs = []
    rows = read_run_rows(path, where)[0]
    _require_metric(rows, problem, name)
    for index, row in enumerate(rows, 1):
        try:
            point = _trial(row, trials) if row.get("trial") else _point(problem, row)
            _check_rest(problem, point, row)
            runs.append(MeasuredRun(tuple(point.tolist()), measured_metrics(row, problem), f"{name} row {index}"))
        except SpecError as error:
            raise error.inside(f"{name} row {index}") from None
    return runs


def _trial(row: Mapping[str, str], trials: Trials) -> Indices:
    cell = row["trial"]
    known = cell.isdecimal() and len(cell) < 12 and int(cell) < len(trials)
    require(known, "trial", cell, f"the study has trials 0 to {len(trials) - 1:,}")
    return trials.row(int(cell))


def _point(problem: Problem, row: Mapping[str, str]) -> Indices:
    """Return the point whose fields a row states."""
    space = problem.space
    stated = _stated_fields(problem, row)
    found = [_index_of_value(parameter, stated) for parameter in space.parameters]
    point = np.array(found, dtype=np.intp)
    for broken in space.broken(point).values():
        raise SpecError("row", _shortly(stated), f"is no design of the study: it {broken}")
    return point


def _index_of_value(parameter: Parameter, stated: Mapping[str, Any]) -> int:
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


def _stated_fields(problem: Problem, row: Mapping[str, str]) -> dict[str, Any]:
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
        found[path] = schema.read_value(slot.hint, value, column, dimension)
    return found


def _check_rest(problem: Problem, point: Indices, row: Mapping[str, str]) -> None:
    """Refuse a row that states another value of a field than the design of its point has."""
    held = problem.space.changes(point)
    base = problem.space.base
    for path, value in _stated_fields(problem, row).items():
        own = held[path] if path in held else schema.get_field(base, path)
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
    for index, row in enumerate(rows, 1):
        try:
            require(
                not row.get("trial"), "trial", row.get("trial"), "of which study? put it in with 'cosmic study tell'"
            )
            point = _design(problem, row) if row.get("design") else _derive_base(problem, row)
            found.append(MeasuredDesign(point, measured_metrics(row, problem)))
        except SpecError as error:
            raise error.inside(f"{name} row {index}") from None
    return found


def _design(problem: Problem, row: Mapping[str, str]) -> DesignPoint:
    """Return the design that a row names, with the fields that it states."""
    rule = f"is no design of {problem.engine}, which has fields of its own: state those"
    require(problem.space.of_designs, "design", row["design"], rule)
    return load_design(row["design"], _settings_of_row(problem, row))


def _derive_base(problem: Problem, row: Mapping[str, str]) -> DesignPoint:
    """Return the base of the problem's set with the fields that a row states, and those that follow them."""
    space = problem.space
    if space.of_designs:
        settings = _settings_of_row(problem, row)
        base, stated = load_design(design_tree(space.base), settings), set(settings)
    else:
        fields = _stated_fields(problem, row)
        base, stated = schema.assign_fields(space.base, fields), set(fields)
    left = {path: text for path, text in space.derived.items() if path not in stated and text != PROVISIONED}
    if not left:
        return base
    around = replace(space, base=base, parameters=(), derived=left, constraints=(), workloads=(), provisioner=None)
    return around.point(np.empty(0, dtype=np.intp))


def _settings_of_row(problem: Problem, row: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields that a row states, as files write them."""
    cells = _cells_of_fields(problem, row)
    return {full_path(SHORT.get(column, column)): parse_yaml(cell, column) for column, cell in cells}


# --------------------------------------------------------------------------------------
# What corrects predictions: measured runs of designs, or simulations of them, by features of designs
# --------------------------------------------------------------------------------------

OF_RUN = ("step_s", "tokens_per_s", "samples_per_s", "mfu")
"""Metrics that say how long a measured step took, the one that says most first."""
UNIT = 30.0
"""Predictions are not off by such a factor: a unit is."""
FAR = f"They are more than {UNIT:.0f} times apart: look at the units of what was measured."


def learn_correction(
    problem: Problem, measured: Sequence[MeasuredDesign]
) -> tuple[Callable[[Indices], Floats] | None, list[str]]:
    """Return the correction that measured runs teach, and what to say of it."""
    if not measured:
        return None, []
    parts, logs, predicted, failed = [], [], [], 0
    paths = differing_paths(problem)
    usual = OF_RUN if problem.of_designs else problem.objectives[:1]
    for each in measured:
        name = next((name for name in usual if name in each.metrics), "")
        known = _predicted(problem, each.point, name) if name else None
        if known is None:
            failed += 1
            continue
        logs.append(_log_loss(name, each.metrics[name] / known[0]))
        predicted.append(_log_loss(usual[0], known[1]))
        parts.append(features_of(batch_of(each.point), paths, closed=problem.of_designs))
    lack = "time" if problem.of_designs else usual[0]
    left = f" {failed} of them say nothing of it: they have no {lack}, or cannot run by the model." if failed else ""
    if not parts:
        return None, [f"Measured runs teach nothing.{left}"]
    seen = join_features(parts)
    own = describe_points(problem, problem.space.sample(1, np.random.default_rng(0)), closed=problem.of_designs)
    encode = encoding_of(seen, shared_names(seen, own))
    model = fit_residuals(encode(seen), np.array(logs), np.array(predicted), encode.parts)

    def factor(rows: Indices) -> Floats:
        return model.at(encode(describe_points(problem, rows, closed=problem.of_designs)))

    of = "times are {}× as long" if problem.of_designs else f"{usual[0]} is {{}}× as much"
    return (None if model.kind == "none" else factor), [correction_text(len(logs), "measured run", model, of) + left]


def _predicted(problem: Problem, point: DesignPoint, name: str) -> tuple[float, float] | None:
    """Return what the engine says of a metric, and of the usual one; None where it says neither, or not above 0."""
    if (brought := problem.brought) is not None:
        found = brought.ask(point).metrics.get(name, 0.0)
        return (found, found) if found > 0 else None
    outcome = evaluate(point, problem.engine)
    known = getattr(outcome, name) if isinstance(outcome, Metrics) else None
    return (known, outcome.step_s) if known and isinstance(outcome, Metrics) else None


def _log_loss(name: str, value: float) -> float:
    """Return the logarithm of a metric, or of a ratio of two, as a loss."""
    return float(np.log(value)) * (1 if direction(name) == "less" else -1)


def correction_text(count: int, what: str, model: Residuals, of: str = "times are {}× as long") -> str:
    """Return how far a rung of the ladder is from the one below it, in words, and what corrects that.

    *of* says what one factor does.
    """
    one = count == 1
    many = f"{count:,} {what}{'' if one else 's'}"
    below = "closed forms" if what.startswith("simulated") else "predictions"
    before, after = (f"{100 * np.expm1(each):.1f} %" for each in (model.before, model.error))
    far = f" {FAR}" if abs(model.level) > np.log(UNIT) or (model.kind == "none" and model.before > np.log(UNIT)) else ""
    if model.kind == "none":
        said = f"{many} {'does' if one else 'do'} not improve {below}, which are off by {before}: none is corrected."
        return said + far
    how = {
        "factor": of.format(f"{np.exp(model.level):.3f}"),
        "parts": "parts of a step differ",
        "trend": "they differ by what a design is",
    }
    kind = what.rpartition(" ")[2]
    return (
        f"{many} correct {below} ({how[model.kind]}): each {kind}, predicted from the others, is off by {after}"
        f" instead of {before}.{far}"
    )


# --------------------------------------------------------------------------------------------------- features


def differing_paths(problem: Problem) -> list[str]:
    """Return the fields in which designs of a problem differ."""
    space = problem.space
    found = [path for parameter in space.parameters for path in parameter.paths]
    return [*dict.fromkeys([*found, *space.derived])]


def describe_points(problem: Problem, rows: Indices, *, closed: bool) -> Features:
    """Return the features of points of a problem."""
    batch = Batch(problem.space.base, problem.space.columns(rows))
    return features_of(batch, differing_paths(problem), closed=closed)


def features_of(batch: Batch, paths: Iterable[str], *, closed: bool) -> Features:
    """Return the features of designs; the closed form's only where it is *closed*-form evaluation that is corrected."""
    held = [path for path in paths if path in batch.columns or path in batch.base.fields]
    found = field_features(batch, held)
    if isinstance(batch.base, EngineFields):
        return found
    if batch.base.serving is None and not isinstance(batch.base.model, Recommender):
        found = found | derived_features(batch)
    return found | physics_features(batch)[0] if closed else found


def shared_names(seen: Features, own: Features) -> list[str]:
    """Return the features that both have, of one kind."""
    return [
        name
        for name, column in seen.columns.items()
        if name in own.columns and isinstance(column, tuple) == isinstance(own.columns[name], tuple)
    ]


# --------------------------------------------------------------------------------------
# The measured runs of a study: as text in its database, beside what was predicted, and put in from files
# --------------------------------------------------------------------------------------

LONGEST_SOURCE = 500
RUNS_FORMAT = 1


def dump_runs(runs: Sequence[MeasuredRun]) -> str:
    """Return measured runs as text, with the digest of what it holds."""
    plain = [asdict(run) for run in runs]
    return json.dumps({"format": RUNS_FORMAT, "runs": plain, "sha256": _digest(plain)}, ensure_ascii=False)


def _digest(plain: Any) -> str:
    return digest(json.dumps(plain, sort_keys=True))


def parse_runs(text: str, problem: Problem | None) -> list[MeasuredRun]:
    """Return the runs of a text; one that no search writes, or that *problem* cannot have, is a `ValueError`."""
    try:
        content = json.loads(text)
        plain = content["runs"]
        if content["format"] != RUNS_FORMAT or content["sha256"] != _digest(plain) or len(plain) > MOST_RUNS:
            raise ValueError("its digest")
        return [_parse_run(each, problem) for each in plain]
    except (KeyError, TypeError, RecursionError, AttributeError) as error:
        raise ValueError("its form") from error


def _parse_run(plain: Any, problem: Problem | None) -> MeasuredRun:
    point, metrics, source = tuple(plain["point"]), dict(plain["metrics"]), plain["source"]
    whole = all(type(each) is int and each >= 0 for each in point)
    if problem is not None:
        sizes = problem.space.sizes
        whole = whole and len(point) == len(sizes) and all(at < size for at, size in zip(point, sizes, strict=True))
        known = (*BETTER, *problem.metrics)
    else:
        known = tuple(metrics)  # an engine of somebody else may give any
    numbers = all(name in known and type(metric) is float and isfinite(metric) for name, metric in metrics.items())
    if not (whole and numbers and isinstance(source, str) and len(source) <= LONGEST_SOURCE and source.isprintable()):
        raise ValueError("a run")
    return MeasuredRun(point, metrics, source)


# --------------------------------------------------------------------------------- measured beside predicted


@dataclass(frozen=True)
class BesidePrediction:
    """What was measured of one design, beside what the study's engine predicts."""

    point: tuple[int, ...]
    trial: int | None
    """Its trial in the study; None where the search has not tried it."""
    measured: float
    """The median over its runs."""
    predicted: float | None
    """None where the engine says that it cannot run."""
    runs: int
    sources: tuple[str, ...]

    @property
    def ratio(self) -> float | None:
        """The measured number over the predicted one."""
        return None if self.predicted is None else self.measured / self.predicted


@dataclass(frozen=True)
class Evidence:
    """The measured runs of a study, by its first objective or, if that was not measured, by the time of a step."""

    metric: str
    rows: tuple[BesidePrediction, ...]
    """Each measured design once, the best measured first."""

    @property
    def quality(self) -> Quality | None:
        """How well the predictions rank the measured designs."""
        known = [row for row in self.rows if row.predicted is not None]
        measured, predicted = (
            loss(self.metric, np.array([getattr(row, name) for row in known], dtype=float))
            for name in ("measured", "predicted")
        )
        return measure_quality(predicted, measured)

    @property
    def best_predicted(self) -> BesidePrediction | None:
        """The measured design with the best prediction."""
        known = [row for row in self.rows if row.predicted is not None]
        order = loss(self.metric, np.array([row.predicted for row in known], dtype=float))
        return known[int(np.argmin(order))] if known else None


def gather_evidence(problem: Problem, runs: Sequence[MeasuredRun], points: Any) -> Evidence | None:
    """Return measured *runs* beside predictions; *points* are those of the study's trials. None without runs."""
    wanted = [name for name in (problem.objectives[0], "step_s") if name in problem.metrics]
    metric = next((name for name in wanted if any(name in run.metrics for run in runs)), "")
    if not metric:
        return None
    grouped: dict[tuple[int, ...], list[MeasuredRun]] = {}
    for run in runs:
        if metric in run.metrics:
            grouped.setdefault(run.point, []).append(run)
    rows = np.array(list(grouped), dtype=np.intp).reshape(len(grouped), -1)
    predicted: Floats = problem.evaluate(rows).columns[metric]
    found = []
    for index, (point, some) in enumerate(grouped.items()):
        at = np.flatnonzero((points == rows[index]).all(axis=1))
        value = float(np.median([run.metrics[metric] for run in some]))
        known = None if np.isnan(predicted[index]) else float(predicted[index])
        sources = tuple(run.source for run in some)
        found.append(BesidePrediction(point, int(at[0]) if len(at) else None, value, known, len(some), sources))
    order = np.argsort(loss(metric, np.array([each.measured for each in found])), kind="stable")
    return Evidence(metric, tuple(found[place] for place in order.tolist()))


def summarize_evidence(found: Evidence) -> list[str]:
    """Return what measured runs say of the predictions, a sentence each."""
    best, predicted = found.rows[0], found.best_predicted
    many = f"{len(found.rows):,} measured design{'' if len(found.rows) == 1 else 's'}"
    said = []
    if predicted is None:
        said.append(f"None of {many} can run by the model.")
    elif predicted.point == best.point:
        said.append(f"Of {many} the best predicted is also the best measured{_trial_text(best)}.")
    else:
        behind = abs(predicted.measured / best.measured - 1)
        said.append(
            f"Of {many} the best measured{_trial_text(best)} is not the best predicted{_trial_text(predicted)}, which is measured"
            f" {100 * behind:.1f} % worse."
        )
    ratios = [row.ratio for row in found.rows if row.ratio is not None]
    if ratios:
        span = f"{np.median(ratios):.3f} in the median, {min(ratios):.3f} to {max(ratios):.3f}"
        said.append(f"Measured over predicted: {span}.")
        if max(*ratios, *(1 / ratio for ratio in ratios)) > UNIT:
            said.append(FAR)
    if (ranked := found.quality) is not None and len(ratios) > 2:
        said.append(f"Predictions rank the measured designs with Kendall τ {ranked.tau:.2f}.")
    return said


def _trial_text(row: BesidePrediction) -> str:
    return "" if row.trial is None else f" (trial {row.trial:,})"


def add_runs(before: Sequence[MeasuredRun], new: Sequence[MeasuredRun], folder: str | Path) -> list[MeasuredRun]:
    """Return the runs of a study with *new* ones; the same row of the same file is not added twice."""
    whole = list(dict.fromkeys(_key(run) for run in [*before, *new]))
    require(len(whole) <= MOST_RUNS, "runs", len(whole), f"{folder} keeps at most {MOST_RUNS:,}")
    return [MeasuredRun(point, dict(metrics), source) for point, metrics, source in whole]


def _key(run: MeasuredRun) -> tuple[tuple[int, ...], tuple[tuple[str, float], ...], str]:
    return run.point, tuple(run.metrics.items()), run.source
