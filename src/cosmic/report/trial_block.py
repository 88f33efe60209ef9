"""Trials by column, compressed for the page.

Parameters are codes into their values. Objectives are numbers of 32 bits. Of the other metrics, one that follows
exactly from another column is stored as that rule, one with few values as codes, and the rest as 65,534 steps between
their bounds, logarithmic where the range is wide: off by less than 0.01 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from cosmic.design import schema
from cosmic.design.design_batch import Names
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import has_tokens
from cosmic.design.workload_layer import Task
from cosmic.report.container import Binary
from cosmic.report.document_types import (
    BlockJson,
    ChoicesCoding,
    Coding,
    Column,
    DerivedCoding,
    NumbersCoding,
    ScaledCoding,
    TuplePart,
    Value,
)
from cosmic.report.launch_commands import accelerator_label
from cosmic.search.design_wording import metric_label, metric_text, metric_unit, path_label, path_unit
from cosmic.search.problem import METRICS, Problem
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.parameters import Parameter, value_label
from cosmic.search.trials import Trials
from cosmic.simulate.metrics import OF_REQUESTS, OF_SAMPLES, OF_TOKENS
from cosmic.simulate.user_engines import direction

Floats = npt.NDArray[np.float64]
Rule = Literal["times", "over", "plus"]
STEPS = 65_534
LOG_RANGE = 4.0
"""Metrics with a range wider than this factor are scaled by their logarithm."""
TRIALS_PER_CODE = 20
"""Mean number of trials per value from which codes are shorter than numbers."""
MOST_CODES = 256
"""The most values of a metric for codes of one byte."""
AT_ONCE = 65_536
"""Trials of which a derived field is computed at a time: points are small, and the work on them is not."""
SAMPLED_VALUES = 4096
"""Values that tell that there are many, or that a column does not follow from another."""
PREFILL = "serving.prefill"
"""Begins the fields of the pool that only prefills."""
EXACT = 1e-9
"""Relative tolerance within which a column follows from another."""


def block_of(problem: Problem, trials: Trials, binary: Binary, first: int = 0) -> BlockJson:
    """Return *trials* as a block, its numbers added to *binary*; *first* is the number of the first trial.

    All blocks of a problem have the same columns: a study that grows is sent in several.
    """
    parameters = _parameter_columns(problem.space, trials.points, binary)
    columns = [*parameters, *_metric_columns(problem, trials, binary, len(parameters))]
    code = {"": 0}
    for reason in trials.results.coded.counts():
        code.setdefault(reason, len(code))
    reasons, outcomes = list(code), trials.results.coded.codes_in(dict(code))
    block: BlockJson = BlockJson(
        first=first,
        count=len(trials),
        columns=columns,
        reasons=reasons,
        outcomes=binary.add_codes(outcomes, len(reasons)),
    )
    if problem.of_designs and problem.space.base.serving is not None and not problem.space.workloads:
        return replace(block, pools=binary.add_codes(disaggregated_rows(problem.space, trials.points), 2))
    return block


def disaggregated_rows(space: ParameterSet, rows: Indices) -> Indices:
    """Return for each row 1 where its deployment has a pool that only prefills, else 0."""
    deciding = [
        index
        for index, parameter in enumerate(space.parameters)
        if any(path == "serving" or path.startswith(PREFILL) for path in parameter.paths)
    ]
    if not len(rows):
        return np.zeros(0, dtype=np.intp)
    _, first, which = np.unique(rows[:, deciding], axis=0, return_index=True, return_inverse=True)
    kinds = [_is_disaggregated(space.point(rows[row])) for row in first]
    return np.array(kinds, dtype=np.intp)[which.reshape(-1)]


def _is_disaggregated(point: DesignPoint) -> bool:
    return point.serving is not None and point.serving.disaggregated


# ---- parameters


def _parameter_columns(space: ParameterSet, rows: Indices, binary: Binary) -> list[Column]:
    columns: list[Column] = []
    for index, parameter in enumerate(space.parameters):
        if "{" in parameter.name:  # it sets several fields to values of their own: each is a column
            columns += _tuple_columns(space, parameter, rows[:, index], binary)
        else:
            coding = _code_choices(parameter, rows[:, index], binary)
            columns.append(parameter_column(parameter.name, parameter.stack, _unit(space, parameter.paths), coding))
    for path in space.derived:
        values, codes = _derived_codes(space, path, rows)
        labels = [value_label(space.base, path, value) for value in values]
        coding = _code_values(values, labels, codes, binary)
        columns.append(parameter_column(path, path.partition(".")[0], _unit(space, (path,)), coding))
    return columns


def parameter_column(name: str, stack: str, unit: str, coding: Coding) -> Column:
    """Return the column of a parameter."""
    return Column(name=name, label=path_label(name), role="parameter", stack=stack, unit=unit, coding=coding)


def _identity_of(value: Any) -> str:
    """Return what tells values apart: True is not 1."""
    return f"{type(value).__name__} {value!r}"


def _tuple_columns(space: ParameterSet, parameter: Parameter, codes: Indices, binary: Binary) -> Iterator[Column]:
    """Yield a column for each field of a parameter that sets several: all share the codes of its values."""
    packed = binary.add_codes(codes, len(parameter.values))
    for index, path in enumerate(parameter.paths):
        places: dict[str, int] = {}
        values: list[Any] = []
        for row in parameter.values:
            if places.setdefault(_identity_of(row[index]), len(places)) == len(values):
                values.append(row[index])
        labels = [_file_text(value_label(space.base, path, value)) for value in values]
        coding: Coding = ChoicesCoding(
            kind="choices",
            values=[_json_value(value, text) for value, text in zip(values, labels, strict=True)],
            labels=labels,
            codes=packed,
            of=[places[_identity_of(row[index])] for row in parameter.values],
        )
        column = parameter_column(path, parameter.stack, _unit(space, (path,)), coding)
        yield replace(column, part=TuplePart(of=parameter.name, place=index))


def _unit(space: ParameterSet, paths: Sequence[str]) -> str:
    """Return the unit of a parameter's numbers; none where its fields have different units."""
    dimensions = {schema.slot_at(space.base, path).dimension for path in paths}
    return path_unit(dimensions.pop()) if len(dimensions) == 1 else ""


def _code_choices(parameter: Parameter, codes: Indices, binary: Binary) -> Coding:
    single = [row[0] if len(set(row)) == 1 else None for row in parameter.values]
    return _code_values(single, parameter.labels, codes, binary)


def _code_values(values: Sequence[Any], labels: Sequence[Any], codes: Indices, binary: Binary) -> Coding:
    shown = [_file_text(label) for label in labels]
    plain = [_json_value(value, text) for value, text in zip(values, shown, strict=True)]
    return ChoicesCoding(kind="choices", values=plain, labels=shown, codes=binary.add_codes(codes, len(values)))


def _json_value(value: Any, text: str) -> Value:
    """Return a value for JSON: finite numbers and booleans as they are, all else as its text in files."""
    value = value.item() if isinstance(value, np.generic) else value
    finite = isinstance(value, int | float) and np.isfinite(value)
    return value if finite else text


def _file_text(value: Any) -> str:
    """Return a value as a file writes it, on one line.

    >>> _file_text([2, True, "ring"]), _file_text("50 GB/s"), _file_text(None)
    ('2, true, ring', '50 GB/s', '-')
    """
    if isinstance(value, list):
        return ", ".join(map(_file_text, value))
    if isinstance(value, bool):
        return str(value).lower()
    return "-" if value is None else str(value)


def _derived_codes(space: ParameterSet, path: str, rows: Indices) -> tuple[list[Any], Indices]:
    """Return the distinct values of a derived field, numbers in their order, and the index of each row's value."""
    code: dict[Any, int] = {}
    codes = np.empty(len(rows), dtype=np.intp)
    for start in range(0, len(rows), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        values, which = _distinct_values(space.derive(path, rows[part].astype(np.intp)))
        codes[part] = np.array([code.setdefault(value, len(code)) for value in values], dtype=np.intp)[which]
    values_in_order = list(code)
    if len(rows) > AT_ONCE and all(isinstance(value, int | float) for value in values_in_order):
        values_in_order.sort()
        codes = np.array([values_in_order.index(value) for value in code], dtype=np.intp)[codes]
    return values_in_order, codes


def _distinct_values(column: Any) -> tuple[list[Any], Indices]:
    """Return the distinct values of a column, and the index of each row's value."""
    if isinstance(column, Names):
        return list(column.names), column.codes
    if column.dtype == object:
        values: dict[Any, int] = {}
        codes = [values.setdefault(each, len(values)) for each in column.tolist()]
        return list(values), np.array(codes, dtype=np.intp)
    distinct, which = np.unique(column, return_inverse=True)
    return distinct.tolist(), which.reshape(-1)


# ---- metrics


def metrics_of(problem: Problem) -> list[str]:
    """Return the metrics that designs of a problem can have, objectives first, as others may follow from them."""
    if not problem.of_designs:
        return [*problem.objectives, *(name for name in problem.metrics if name not in problem.objectives)]
    bases = [share.base for share in problem.shares]
    opened = {path for parameter in problem.space.parameters for path in parameter.paths} | set(problem.space.derived)
    tasks = set(get_args(Task)) if "workload.task" in opened else {base.workload.task for base in bases}
    served = any(base.serving is not None for base in bases)
    absent = {
        "ttft_s": "prefill" not in tasks and not served,
        "tpot_s": "decode" not in tasks and not served,
        **dict.fromkeys(OF_REQUESTS, not served),
        **dict.fromkeys(OF_SAMPLES, any(has_tokens(base.model) for base in bases)),
        **dict.fromkeys(OF_TOKENS, not any(has_tokens(base.model) for base in bases)),
        "offloaded_bytes": "workload.offload" not in opened and not any(base.workload.offload for base in bases),
        "perf_per_bandwidth": not problem.space.base.network.dims,
        "perf_per_network_cost": not problem.space.base.network.dims,
    }
    others = (name for name in METRICS if name not in problem.objectives and not absent.get(name))
    return [*problem.objectives, *others]


def metric_label_in(problem: Problem, metric: str) -> str:
    """Return the label of a metric of the designs of *problem*."""
    return accelerator_label(problem.space.base, metric) if problem.space.of_designs else metric_label(metric)


def _metric_columns(problem: Problem, trials: Trials, binary: Binary, before: int) -> list[Column]:
    """Return metrics as columns: objectives as numbers, others by a rule from an earlier column where there is one.

    *before* is the number of columns before them.
    """
    names = metrics_of(problem)
    coded: list[tuple[int, Floats]] = []
    metric_columns: list[Column] = []
    for index, name in enumerate(names, start=before):
        values = np.asarray(trials.results.columns[name], dtype=np.float64)
        objective = name in problem.objectives
        coding: Coding | None = None if objective else rule_from_known(values, coded)
        if coding is None:
            if objective:
                coding = NumbersCoding(kind="numbers", numbers=binary.add(values, "f32"))
            else:
                coding = _code_metric(name, values, binary)
            coded.append((index, values))
        metric_columns.append(
            Column(
                name=name,
                label=metric_label_in(problem, name),
                role="metric",
                unit=metric_unit(name),
                better="less" if direction(name) == "less" else "more",
                objective=objective,
                coding=coding,
            )
        )
    return metric_columns


def _code_metric(name: str, values: Floats, binary: Binary) -> Coding:
    """Return a metric as codes: of its values if there are few, else of steps between its bounds."""
    runs = np.isfinite(values)
    mine = values[runs]
    distinct = np.unique(mine[:SAMPLED_VALUES])
    if len(distinct) < MOST_CODES:
        distinct = np.unique(mine)
    if len(distinct) <= 1 or (len(distinct) < MOST_CODES and len(distinct) * TRIALS_PER_CODE <= len(values)):
        codes = np.full(len(values), len(distinct), dtype=np.uint16)  # a code beyond the values: no value
        codes[runs] = np.searchsorted(distinct, mine)
        plain = distinct.tolist()
        packed = binary.add_codes(codes, len(distinct) + 1)
        return ChoicesCoding(
            kind="choices", values=plain, labels=[metric_text(name, each) for each in plain], codes=packed
        )
    return scale_numbers(values, binary)


def scale_numbers(values: Floats, binary: Binary) -> ScaledCoding:
    """Return numbers as steps between the least and the largest; 0 for those that are not finite."""
    runs = np.isfinite(values)
    low, high = float(values[runs].min()), float(values[runs].max())
    log = low > 0 and high / low > LOG_RANGE
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.log(values / low) / np.log(high / low) if log else (values - low) / (high - low)
    codes = np.where(runs, 1 + np.rint(np.where(runs, share, 0.0) * STEPS), 0)
    return ScaledCoding(kind="scaled", codes=binary.add(codes, "u16"), low=low, high=high, log=log)


def rule_from_known(values: Floats, earlier: Sequence[tuple[int, Floats]]) -> DerivedCoding | None:
    """Return the rule by which *values* follow from one of the *earlier* columns, each with its index, or None.

    >>> rule_from_known(np.array([4.0, 2.0, np.nan]), [(7, np.array([1.0, 2.0, np.nan]))])
    DerivedCoding(kind='from', column=7, rule='over', by=4.0)
    """
    runs = np.isfinite(values)
    mine = values[runs]
    for index, column in earlier:
        if not len(mine) or not np.array_equal(np.isfinite(column), runs):
            continue
        column_values = column[runs]
        for rule, factor in _rule_terms(float(mine[0]), float(column_values[0])).items():
            some = _apply_rule(rule, factor, column_values[:SAMPLED_VALUES])
            if np.allclose(some, mine[:SAMPLED_VALUES], rtol=EXACT, atol=0.0) and (
                len(mine) <= SAMPLED_VALUES
                or np.allclose(_apply_rule(rule, factor, column_values), mine, rtol=EXACT, atol=0.0)
            ):
                return DerivedCoding(kind="from", column=index, rule=rule, by=factor)
    return None


def _rule_terms(mine: float, base: float) -> dict[Rule, float]:
    """Return for each rule the number by which one value follows from another; none where that is no number, or 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        by: dict[Rule, Any] = {
            "times": np.float64(mine) / base,
            "over": np.float64(mine) * base,
            "plus": np.float64(mine) - base,
        }
    return {rule: float(factor) for rule, factor in by.items() if np.isfinite(factor) and factor != 0}


def _apply_rule(rule: str, by: float, base: Floats) -> Floats:
    """Return what a rule makes of a column."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(by * base if rule == "times" else by / base if rule == "over" else by + base)
