"""Measured runs: read from CSV files, kept in studies, set beside predictions, and what corrects predictions by them.

Rows of a file are points of a parameter set, or designs of any model and machine:

    trial, step_s                a trial of the study, and what was measured of it
    tp, pp, micro_batch, step_s  fields by their paths or short names; all that are searched must be stated
    design, tp, …, step_s        a design of its own (MODEL@SYSTEM:N or a file), where the file may name any

A study keeps its runs as text in its database. Measured runs of designs, or simulations of them, correct predictions by
features of designs:

    log(measured / predicted)  =  what `cosmic.search.learning.prediction_quality` makes of few runs
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from cosmic.base.caching import digest
from cosmic.base.errors import SpecError, require
from cosmic.base.files import Unreadable, read_bytes
from cosmic.base.json_types import Count, Keywords, PositiveCount, Ratio, json_keys, unit
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
from cosmic.search.learning.prediction_quality import Quality, Residuals, fit_residuals, measure_quality
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

# ---- Measured runs: rows of a CSV file as points of a parameter set, or as designs of any model and machine

MAX_FILE_BYTES = 2**24
MAX_RUNS = 10_000
"""Most measured runs of a study, or of a file."""
MIN_MEASURED, MAX_MEASURED = 1e-12, 1e30
"""Bounds of a measured number: beyond them the unit is wrong."""
MILLISECOND_COLUMNS = {"step_ms": "step_s"}
SHARE_METRICS = ("mfu", "hfu", "goodput")
"""Metrics that are at most 1."""
SHOWN_VALUES = 8
LABEL_COLUMNS = ("id", "name", "notes", "source", "url", "date", "device", "kind")
"""Columns that are no fields of a design."""
SHORT_COLUMNS = {
    "mbs": "micro_batch",
    "gbs": "global_batch",
    "seq_len": "sequence",
    "seq": "sequence",
    "vpp": "virtual_stages",
}
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
    data = read_bytes(path, where, MAX_FILE_BYTES)
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
        reader = csv.DictReader(StringIO(text, newline=""), restval="")
        columns = [heading.strip() for heading in reader.fieldnames or ()]
        reader.fieldnames = columns
        rows = [dict(row) for row in reader]
    except (UnicodeDecodeError, csv.Error):
        raise Unreadable(where, str(path), "is not a CSV file in UTF-8") from None
    name = Path(path).name
    require(bool(rows), name, 0, "there are no rows")
    require(len(rows) <= MAX_RUNS, name, len(rows), f"at most {MAX_RUNS:,} rows are read")
    repeated = [column for index, column in enumerate(columns) if column in columns[:index]]
    require(not repeated, name, ", ".join(repeated), "is there twice among the columns")
    for number, row in enumerate(rows, 1):
        require(None not in row, f"{name} row {number}", "", "has more cells than there are columns")
    return [{column: (cell or "").strip() for column, cell in row.items()} for row in rows], data


def _require_metric(rows: Sequence[Mapping[str, str]], problem: Problem, name: str) -> None:
    """Refuse rows without a column that is a metric of the problem's engine."""
    columns = list(rows[0])
    rule = f"no column is a metric: a CSV file of runs has {_metric_examples(problem)}, in its first line"
    require(any(_metric_of_column(column, problem) for column in columns), name, ", ".join(columns)[:80], rule)


def _metric_of_column(column: str, problem: Problem) -> str:
    """Return the metric that a column measures; empty where it is none of the problem's engine."""
    name = MILLISECOND_COLUMNS.get(column, column)
    return name if name in problem.metrics else ""


def _metric_examples(problem: Problem) -> str:
    if problem.of_designs:
        return "step_s, or another of 'cosmic catalog list metrics'"
    return f"{' or '.join(problem.metrics[:SHOWN_VALUES])}, which {problem.engine} gives"


def measured_metrics(row: Mapping[str, str], problem: Problem) -> dict[str, float]:
    """Return what was measured in a row: cells of columns that are metrics."""
    metrics: dict[str, float] = {}
    for column, cell in row.items():
        name = _metric_of_column(column, problem)
        if not name or not cell:
            continue
        try:
            value = float(cell)
        except ValueError:
            raise SpecError(column, cell, "must be a number") from None
        require(
            isfinite(value) and MIN_MEASURED <= value <= MAX_MEASURED,
            column,
            cell,
            f"must be from {MIN_MEASURED:g} to {MAX_MEASURED:g}",
        )
        require(name not in SHARE_METRICS or value <= 1, column, cell, "is a share, at most 1: write 0.45 for 45 %")
        require(name not in metrics, column, cell, f"{name} is measured twice in this row")
        metrics[name] = value * (1e-3 if column in MILLISECOND_COLUMNS else 1.0)
    require(bool(metrics), "row", "", f"measures nothing: give {_metric_examples(problem)}")
    return metrics


def _cells_of_fields(
    problem: Problem, row: Mapping[str, str], parameters: Container[str] = ()
) -> Iterator[tuple[str, str]]:
    """Yield the cells of a row that state fields of a design, each with its column; *parameters* are fields always."""
    for column, cell in row.items():
        is_label = column in (*LABEL_COLUMNS, "trial", "design") and column not in parameters
        if cell and not is_label and not _metric_of_column(column, problem):
            yield column, cell


# ---- points of a study


def read_runs(problem: Problem, trials: Trials, path: str | Path, where: str = "ROWS") -> list[MeasuredRun]:
    """Return the measured runs in the CSV file at *path*, each a point of *problem*; any other row is refused."""
    name = Path(path).name
    runs = []
    rows = read_run_rows(path, where)[0]
    _require_metric(rows, problem, name)
    for index, row in enumerate(rows, 1):
        try:
            point = _trial_point(row, trials) if row.get("trial") else _read_point(problem, row)
            _check_other_fields(problem, point, row)
            runs.append(MeasuredRun(tuple(point.tolist()), measured_metrics(row, problem), f"{name} row {index}"))
        except SpecError as error:
            raise error.inside(f"{name} row {index}") from None
    return runs


def _trial_point(row: Mapping[str, str], trials: Trials) -> Indices:
    cell = row["trial"]
    exists = cell.isdecimal() and len(cell) < 12 and int(cell) < len(trials)
    require(exists, "trial", cell, f"the study has trials 0 to {len(trials) - 1:,}")
    return trials.row(int(cell))


def _read_point(problem: Problem, row: Mapping[str, str]) -> Indices:
    """Return the point whose fields a row states."""
    space = problem.space
    fields = _stated_fields(problem, row)
    indices = [_index_of_value(parameter, fields) for parameter in space.parameters]
    point = np.array(indices, dtype=np.intp)
    for violation in space.broken(point).values():
        raise SpecError(
            "row",
            ", ".join((f"{path.rpartition('.')[2]} {value}" for path, value in fields.items()))[:120],
            f"is no design of the study: it {violation}",
        )
    return point


def _index_of_value(parameter: Parameter, fields: Mapping[str, Any]) -> int:
    """Return which value of a *parameter* the stated fields are."""
    set_values = {position: fields[path] for position, path in enumerate(parameter.paths) if path in fields}
    if not set_values and len(parameter.values) > 1:
        raise SpecError(parameter.name, None, "is searched by the study, and the row does not state it")
    matches = [
        index
        for index, value in enumerate(parameter.values)
        if all(value[column] == content for column, content in set_values.items())
    ]
    if not matches:
        listed = ", ".join(map(str, parameter.labels[:SHOWN_VALUES])) + (
            ", …" if len(parameter.labels) > SHOWN_VALUES else ""
        )
        shown = next(iter(set_values.values())) if len(set_values) == 1 else tuple(set_values.values())
        raise SpecError(parameter.name, shown, f"is outside the study, which has {listed}")
    if len(matches) > 1:
        missing = [path for path in parameter.paths if path not in fields]
        raise SpecError(parameter.name, None, f"is not complete: state {' and '.join(missing)} too")
    return matches[0]


def _stated_fields(problem: Problem, row: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields that a row states, by path, as designs hold them."""
    base = problem.space.base
    paths = [path for parameter in problem.space.parameters for path in parameter.paths]
    in_si = {column_name(problem, path): path for path in [*paths, *problem.space.derived]}
    fields: dict[str, Any] = {}
    for column, cell in _cells_of_fields(problem, row, in_si):
        path = in_si.get(column) or full_key(SHORT_COLUMNS.get(column, column), column, base)
        require("." in path or path in base.fields, column, cell, "is neither a field of a design nor a metric")
        slot = schema.slot_at(base, path)
        value = parse_yaml(cell, column)
        dimension = None if column in in_si and column != path else slot.dimension
        if slot.dimension is not None and dimension is None:
            value = float(value) if isinstance(value, int | float) else value
        fields[path] = schema.read_value(slot.hint, value, column, dimension)
    return fields


def _check_other_fields(problem: Problem, point: Indices, row: Mapping[str, str]) -> None:
    """Refuse a row that states another value of a field than the design of its point has."""
    changes = problem.space.changes(point)
    base = problem.space.base
    for path, value in _stated_fields(problem, row).items():
        content = changes[path] if path in changes else schema.get_field(base, path)
        require(content == value, path, value, f"is outside the study, whose design has {content}")


# ---- any design


def read_designs(problem: Problem, rows: Sequence[Mapping[str, str]], name: str) -> list[MeasuredDesign]:
    """Return the measured designs of *rows*.

    One without a ``design`` is the base of the problem's set with the fields that it states; fields that the set
    derives follow them, unless the row states those too.
    """
    _require_metric(rows, problem, name)
    designs = []
    for index, row in enumerate(rows, 1):
        try:
            require(
                not row.get("trial"), "trial", row.get("trial"), "of which study? put it in with 'cosmic study tell'"
            )
            point = _load_named_design(problem, row) if row.get("design") else _derive_base(problem, row)
            designs.append(MeasuredDesign(point, measured_metrics(row, problem)))
        except SpecError as error:
            raise error.inside(f"{name} row {index}") from None
    return designs


def _load_named_design(problem: Problem, row: Mapping[str, str]) -> DesignPoint:
    """Return the design that a row names, with the fields that it states."""
    rule = f"is no design of {problem.engine}, which has fields of its own: state those"
    require(problem.space.of_designs, "design", row["design"], rule)
    return load_design(row["design"], _settings_of_row(problem, row))


def _derive_base(problem: Problem, row: Mapping[str, str]) -> DesignPoint:
    """Return the base of the problem's set with the fields that a row states, and those that follow them."""
    space = problem.space
    if space.of_designs:
        settings = _settings_of_row(problem, row)
        base, set_paths = load_design(design_tree(space.base), settings), set(settings)
    else:
        content = _stated_fields(problem, row)
        base, set_paths = schema.assign_fields(space.base, content), set(content)
    remaining = {path: text for path, text in space.derived.items() if path not in set_paths and text != PROVISIONED}
    if not remaining:
        return base
    around = replace(space, base=base, parameters=(), derived=remaining, constraints=(), workloads=(), provisioner=None)
    return around.point(np.empty(0, dtype=np.intp))


def _settings_of_row(problem: Problem, row: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields that a row states, as files write them."""
    cells = _cells_of_fields(problem, row)
    return {full_path(SHORT_COLUMNS.get(column, column)): parse_yaml(cell, column) for column, cell in cells}


# ---- What corrects predictions: measured runs of designs, or simulations of them, by features of designs

RUN_METRICS = ("step_s", "tokens_per_s", "samples_per_s", "mfu")
"""Metrics that say how long a measured step took, the one that says most first."""
UNIT_FACTOR = 30.0
"""Predictions are not off by such a factor: a unit is."""
FAR_TEXT = f"They are more than {UNIT_FACTOR:.0f} times apart: look at the units of what was measured."


def learn_correction(
    problem: Problem, measured: Sequence[MeasuredDesign]
) -> tuple[Callable[[Indices], Floats] | None, list[str]]:
    """Return the correction that measured runs teach, and what to say of it."""
    if not measured:
        return None, []
    parts, logs, predicted, failed = [], [], [], 0
    paths = varied_paths(problem)
    metric_names = RUN_METRICS if problem.of_designs else problem.objectives[:1]
    for run in measured:
        name = next((name for name in metric_names if name in run.metrics), "")
        prediction = _predict_metric(problem, run.point, name) if name else None
        if prediction is None:
            failed += 1
            continue
        logs.append(_log_loss(name, run.metrics[name] / prediction[0]))
        predicted.append(_log_loss(metric_names[0], prediction[1]))
        parts.append(features_of(batch_of(run.point), paths, closed=problem.of_designs))
    lack = "time" if problem.of_designs else metric_names[0]
    failure_text = (
        f" {failed} of them say nothing of it: they have no {lack}, or cannot run by the model." if failed else ""
    )
    if not parts:
        return None, [f"Measured runs teach nothing.{failure_text}"]
    seen = join_features(parts)
    described = describe_points(problem, problem.space.sample(1, np.random.default_rng(0)), closed=problem.of_designs)
    encode = encoding_of(seen, shared_features(seen, described))
    model = fit_residuals(encode(seen), np.array(logs), np.array(predicted), encode.parts)

    def factor(rows: Indices) -> Floats:
        return model.predict(encode(describe_points(problem, rows, closed=problem.of_designs)))

    factor_text = "times are {}× as long" if problem.of_designs else f"{metric_names[0]} is {{}}× as much"
    return (None if model.kind == "none" else factor), [
        correction_text(len(logs), "measured run", model, factor_text) + failure_text
    ]


def _predict_metric(problem: Problem, point: DesignPoint, name: str) -> tuple[float, float] | None:
    """Return what the engine says of a metric, and of the usual one; None where it says neither, or not above 0."""
    if (brought := problem.user_engine) is not None:
        answer = brought.ask(point).metrics.get(name, 0.0)
        return (answer, answer) if answer > 0 else None
    outcome = evaluate(point, problem.engine)
    predicted = getattr(outcome, name) if isinstance(outcome, Metrics) else None
    return (predicted, outcome.step_s) if predicted and isinstance(outcome, Metrics) else None


def _log_loss(name: str, value: float) -> float:
    """Return the logarithm of a metric, or of a ratio of two, as a loss."""
    return float(np.log(value)) * (1 if direction(name) == "less" else -1)


def correction_text(count: int, source: str, model: Residuals, factor_text: str = "times are {}× as long") -> str:
    """Return how far a rung of the ladder is from the one below it, in words, and what corrects that.

    *factor_text* says what one factor does.
    """
    singular = count == 1
    many = f"{count:,} {source}{'' if singular else 's'}"
    corrected = "closed forms" if source.startswith("simulated") else "predictions"
    before, after = (f"{100 * np.expm1(error_log):.1f} %" for error_log in (model.before, model.error))
    far_text = (
        f" {FAR_TEXT}"
        if abs(model.level) > np.log(UNIT_FACTOR) or (model.kind == "none" and model.before > np.log(UNIT_FACTOR))
        else ""
    )
    if model.kind == "none":
        sentence = f"{many} {'does' if singular else 'do'} not improve {corrected}, which are off by {before}: none is corrected."
        return sentence + far_text
    how = {
        "factor": factor_text.format(f"{np.exp(model.level):.3f}"),
        "parts": "parts of a step differ",
        "trend": "they differ by what a design is",
    }
    kind = source.rpartition(" ")[2]
    return (
        f"{many} correct {corrected} ({how[model.kind]}): each {kind}, predicted from the others, is off by {after}"
        f" instead of {before}.{far_text}"
    )


# ---- features


def varied_paths(problem: Problem) -> list[str]:
    """Return the fields in which designs of a problem differ."""
    space = problem.space
    searched = [path for parameter in space.parameters for path in parameter.paths]
    return [*dict.fromkeys([*searched, *space.derived])]


def describe_points(problem: Problem, rows: Indices, *, closed: bool) -> Features:
    """Return the features of points of a problem."""
    batch = Batch(problem.space.base, problem.space.columns(rows))
    return features_of(batch, varied_paths(problem), closed=closed)


def features_of(batch: Batch, paths: Iterable[str], *, closed: bool) -> Features:
    """Return the features of designs; the closed form's only where it is *closed*-form evaluation that is corrected."""
    available = [path for path in paths if path in batch.columns or path in batch.base.fields]
    features = field_features(batch, available)
    if isinstance(batch.base, EngineFields):
        return features
    if batch.base.serving is None and not isinstance(batch.base.model, Recommender):
        features = features | derived_features(batch)
    return features | physics_features(batch)[0] if closed else features


def shared_features(seen: Features, described: Features) -> list[str]:
    """Return the features that both have, of one kind."""
    return [
        name
        for name, column in seen.columns.items()
        if name in described.columns and isinstance(column, tuple) == isinstance(described.columns[name], tuple)
    ]


# ---- The measured runs of a study: as text in its database, beside what was predicted, and put in from files

MAX_SOURCE_LENGTH = 500
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
        if content["format"] != RUNS_FORMAT or content["sha256"] != _digest(plain) or len(plain) > MAX_RUNS:
            raise ValueError("its digest")
        return [_parse_run(run, problem) for run in plain]
    except (KeyError, TypeError, RecursionError, AttributeError) as error:
        raise ValueError("its form") from error


def _parse_run(plain: Any, problem: Problem | None) -> MeasuredRun:
    point, metrics, source = tuple(plain["point"]), dict(plain["metrics"]), plain["source"]
    is_point = all(type(index) is int and index >= 0 for index in point)
    if problem is not None:
        sizes = problem.space.sizes
        is_point = (
            is_point
            and len(point) == len(sizes)
            and all(value_index < size for value_index, size in zip(point, sizes, strict=True))
        )
        allowed = (*BETTER, *problem.metrics)
    else:
        allowed = tuple(metrics)  # an engine of somebody else may give any
    numbers = all(name in allowed and type(metric) is float and isfinite(metric) for name, metric in metrics.items())
    if not (
        is_point and numbers and isinstance(source, str) and len(source) <= MAX_SOURCE_LENGTH and source.isprintable()
    ):
        raise ValueError("a run")
    return MeasuredRun(point, metrics, source)


# ---- measured beside predicted


@json_keys("ratio", point="labels")
@dataclass(frozen=True)
class BesidePrediction:
    """A measured design."""

    point: tuple[int, ...]
    labels: Mapping[str, Any]
    """Value of each parameter and derived field of the space, by path, written as in YAML files."""
    trial: Count | None
    """Its trial in the study; None where the search has not tried it."""
    measured: Annotated[float, unit("that of the metric")]
    """The median over its runs."""
    predicted: Annotated[float | None, unit("that of the metric")]
    """What the study's engine predicts; None where it says that the design cannot run."""
    runs: PositiveCount
    """How often it was measured."""
    sources: tuple[str, ...]
    """Where each run comes from: a file, with the row."""

    @property
    def ratio(self) -> Ratio | None:
        """Measured over predicted; None without a prediction."""
        return None if self.predicted is None else self.measured / self.predicted


@json_keys("tau", designs="rows")
@dataclass(frozen=True)
class Evidence:
    """Measured designs beside predictions, the best measured first."""

    metric: str
    """The metric that is compared: the study's first objective, or the time of a step."""
    rows: tuple[BesidePrediction, ...]
    """Every measured design once, the best measured first."""

    @property
    def tau(self) -> Annotated[float | None, unit("1"), Keywords(minimum=-1, maximum=1)]:
        """Kendall's tau of predictions and measurements; None for fewer than two designs with both."""
        return None if self.quality is None else self.quality.tau

    @property
    def quality(self) -> Quality | None:
        """How well the predictions rank the measured designs."""
        ranked = [row for row in self.rows if row.predicted is not None]
        measured, predicted = (
            loss(self.metric, np.array([getattr(row, name) for row in ranked], dtype=float))
            for name in ("measured", "predicted")
        )
        return measure_quality(predicted, measured)

    @property
    def best_predicted(self) -> BesidePrediction | None:
        """The measured design with the best prediction."""
        ranked = [row for row in self.rows if row.predicted is not None]
        order = loss(self.metric, np.array([row.predicted for row in ranked], dtype=float))
        return ranked[int(np.argmin(order))] if ranked else None


def gather_evidence(problem: Problem, runs: Sequence[MeasuredRun], points: Any) -> Evidence | None:
    """Return measured *runs* beside predictions; *points* are those of the study's trials. None without runs."""
    candidates = [name for name in (problem.objectives[0], "step_s") if name in problem.metrics]
    metric = next((name for name in candidates if any(name in run.metrics for run in runs)), "")
    if not metric:
        return None
    grouped: dict[tuple[int, ...], list[MeasuredRun]] = {}
    for run in runs:
        if metric in run.metrics:
            grouped.setdefault(run.point, []).append(run)
    rows = np.array(list(grouped), dtype=np.intp).reshape(len(grouped), -1)
    predicted: Floats = problem.evaluate(rows).columns[metric]
    beside = []
    for index, (point, point_runs) in enumerate(grouped.items()):
        trials = np.flatnonzero((points == rows[index]).all(axis=1))
        value = float(np.median([run.metrics[metric] for run in point_runs]))
        prediction = None if np.isnan(predicted[index]) else float(predicted[index])
        sources = tuple(run.source for run in point_runs)
        beside.append(
            BesidePrediction(
                point,
                problem.space.labels(rows[index]),
                int(trials[0]) if len(trials) else None,
                value,
                prediction,
                len(point_runs),
                sources,
            )
        )
    order = np.argsort(loss(metric, np.array([row.measured for row in beside])), kind="stable")
    return Evidence(metric, tuple(beside[position] for position in order.tolist()))


def summarize_evidence(evidence: Evidence) -> list[str]:
    """Return what measured runs say of the predictions, a sentence each."""
    best, predicted = evidence.rows[0], evidence.best_predicted
    count_text = f"{len(evidence.rows):,} measured design{'' if len(evidence.rows) == 1 else 's'}"
    sentences = []
    if predicted is None:
        sentences.append(f"None of {count_text} can run by the model.")
    elif predicted.point == best.point:
        sentences.append(f"Of {count_text} the best predicted is also the best measured{_trial_text(best)}.")
    else:
        behind = abs(predicted.measured / best.measured - 1)
        sentences.append(
            f"Of {count_text} the best measured{_trial_text(best)} is not the best predicted{_trial_text(predicted)}, which is measured"
            f" {100 * behind:.1f} % worse."
        )
    ratios = [row.ratio for row in evidence.rows if row.ratio is not None]
    if ratios:
        span = f"{np.median(ratios):.3f} in the median, {min(ratios):.3f} to {max(ratios):.3f}"
        sentences.append(f"Measured over predicted: {span}.")
        if max(*ratios, *(1 / ratio for ratio in ratios)) > UNIT_FACTOR:
            sentences.append(FAR_TEXT)
    if (ranked := evidence.quality) is not None and len(ratios) > 2:
        sentences.append(f"Predictions rank the measured designs with Kendall τ {ranked.tau:.2f}.")
    return sentences


def _trial_text(row: BesidePrediction) -> str:
    return "" if row.trial is None else f" (trial {row.trial:,})"


def add_runs(before: Sequence[MeasuredRun], new: Sequence[MeasuredRun], folder: str | Path) -> list[MeasuredRun]:
    """Return the runs of a study with *new* ones; the same row of the same file is not added twice."""
    unique_runs = list(dict.fromkeys((run.point, tuple(run.metrics.items()), run.source) for run in [*before, *new]))
    require(len(unique_runs) <= MAX_RUNS, "runs", len(unique_runs), f"{folder} keeps at most {MAX_RUNS:,}")
    return [MeasuredRun(point, dict(metrics), source) for point, metrics, source in unique_runs]
