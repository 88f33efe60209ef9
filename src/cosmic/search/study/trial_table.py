"""Trials as a table: one column for each field, metric and part of a metric, a block of rows at a time.

A field that has a unit is a number in SI units, and its column ends in the unit as fields in Python do:
``network.dims.0.bandwidth_bytes_per_s``. What a step and its memory are made of is not in a study: it is evaluated
again.

Notebooks get a DataFrame of pandas or a Table of Arrow; both are optional libraries.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from cosmic.design import schema
from cosmic.search.agent import Flags, Floats
from cosmic.search.importance import Importance, measure_importance
from cosmic.search.optional_libraries import import_optional
from cosmic.search.problem import Problem, Results
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameters import ACCELERATOR, Parameter, value_label
from cosmic.search.trials import BatchedTrials, Trials
from cosmic.simulate.analytic_step import BREAKDOWN
from cosmic.step.device_memory import COMPONENTS

BLOCK_ROWS = 2**13
"""How many trials a block has at most."""
INT_LIMIT = 2**63


class Head(NamedTuple):
    """The head of a column."""

    name: str
    kind: type
    """What its values are: `bool`, `int`, `float` or `str`. Any may be missing."""


@dataclass(frozen=True, slots=True)
class Coded:
    """A column with few distinct values: each row has a code, the position of its value."""

    values: Sequence[Any]
    """Of the kind of the column; None for a missing one."""
    codes: npt.NDArray[Any]

    def tolist(self) -> list[Any]:
        """Return the value of each row."""
        return [self.values[code] for code in self.codes.tolist()]


Cells = Coded | npt.NDArray[Any]
"""The rows of a column: coded, or an array in which NaN is a missing number."""


@dataclass(frozen=True, slots=True)
class TableBlock:
    """Some rows of a table."""

    columns: dict[str, Cells]
    rows: int


class TrialTable:
    """The table of the trials of one problem."""

    def __init__(self, problem: Problem, *, batches: bool = True, parts: bool = True) -> None:
        self._problem = problem
        self._batches = batches
        self._fields = [
            field for parameter in problem.space.parameters for field in _parameter_fields(problem, parameter)
        ]
        self._derived = {path: _derived_head(problem, path) for path in problem.space.derived}
        self._breakdown = _Breakdown(problem) if parts and problem.of_designs else None
        self.heads: tuple[Head, ...] = tuple(self._heads())
        """What its columns are, whatever the trials."""

    def _heads(self) -> Iterator[Head]:
        yield Head("trial", int)
        if self._batches:
            yield Head("batch", int)
        yield from (field.head for field in self._fields)
        yield from self._derived.values()
        yield from (Head("feasible", bool), Head("counted", bool), Head("reasons", str))
        yield from (Head(name, float) for name in self._problem.metrics)
        yield from (Head(name, float) for name in (self._breakdown.names if self._breakdown else ()))

    def blocks(self, chunks: Iterable[BatchedTrials]) -> Iterator[TableBlock]:
        """Yield the rows of consecutive *chunks*, of any size, in blocks of at most `BLOCK_ROWS`."""
        first = 0
        for batches, trials in map(_join_chunks, _gather_chunks(chunks)):
            for start in range(0, len(trials), BLOCK_ROWS):
                selection = slice(start, start + BLOCK_ROWS)
                block_trials = trials.part(selection)
                yield self._block(first, batches[selection], block_trials)
                first += len(block_trials)

    def _block(self, first: int, batches: Indices, trials: Trials) -> TableBlock:
        results = trials.results
        columns: dict[str, Cells] = {"trial": np.arange(first, first + len(trials))}
        if self._batches:
            columns["batch"] = batches.astype(np.int64, copy=False)
        for field in self._fields:
            columns[field.head.name] = Coded(field.values, trials.points[:, field.column])
        if self._derived:
            rows = trials.rows
            columns |= {head.name: self._derive(path, head, rows) for path, head in self._derived.items()}
        columns |= {"feasible": results.feasible, "counted": results.counted}
        columns["reasons"] = Coded(results.coded.texts, results.coded.codes)
        columns |= {name: results.columns[name] for name in self._problem.metrics}
        if self._breakdown is not None:
            columns |= self._breakdown.compute(trials)
        return TableBlock(columns, len(trials))

    def _derive(self, path: str, head: Head, rows: Indices) -> Coded:
        codes_by_value: dict[Any, int] = {}
        values = self._problem.space.derive(path, rows).tolist()
        codes = [codes_by_value.setdefault(value, len(codes_by_value)) for value in values]
        texts = [_plain_value(self._problem, path, value, head.kind) for value in codes_by_value]
        return Coded(texts, np.array(codes, dtype=np.intp))


def _gather_chunks(chunks: Iterable[BatchedTrials]) -> Iterator[list[BatchedTrials]]:
    """Yield small *chunks* together: to evaluate few trials takes as long as to evaluate many."""
    waiting: list[BatchedTrials] = []
    for chunk in chunks:
        waiting.append(chunk)
        if sum(len(trials) for _, trials in waiting) >= BLOCK_ROWS:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _join_chunks(chunks: list[BatchedTrials]) -> BatchedTrials:
    if len(chunks) == 1:
        return chunks[0]
    points = np.concatenate([trials.points for _, trials in chunks])
    trials = Trials(points, Results.join(trials.results for _, trials in chunks))
    return np.concatenate([batches for batches, _ in chunks]), trials


# ---- fields


class _Field(NamedTuple):
    """A field that a parameter sets."""

    head: Head
    column: int
    """The column of its parameter in a point."""
    values: tuple[Any, ...]
    """Its content for each value of the parameter."""


def _parameter_fields(problem: Problem, parameter: Parameter) -> list[_Field]:
    """Return the fields that *parameter* sets; of an accelerator, which sets two layers, its name alone."""
    column = problem.space.parameters.index(parameter)
    if parameter.name == ACCELERATOR:
        return [_Field(Head(ACCELERATOR, str), column, tuple(map(str, parameter.labels)))]
    fields = []
    for path, contents in zip(parameter.paths, zip(*parameter.values, strict=True), strict=True):
        head = Head(column_name(problem, path), _column_kind(contents))
        fields.append(_Field(head, column, tuple(_plain_value(problem, path, value, head.kind) for value in contents)))
    return fields


def column_name(problem: Problem, path: str) -> str:
    """Return the name of the column of the field at *path*: its path, which ends in its unit."""
    outer, dot, _ = path.rpartition(".")
    slot = schema.slot_at(problem.space.base, path)
    return f"{outer}{dot}{slot.name}" if slot.dimension is not None else path


def _derived_head(problem: Problem, path: str) -> Head:
    """Return the head of a derived field, whose values are not known beforehand."""
    hint = schema.slot_at(problem.space.base, path).hint
    hints = {hint, *get_args(hint)}
    kind: type = next((kind for kind in (bool, int, float) if kind in hints and str not in hints), str)
    return Head(column_name(problem, path), kind)


def _column_kind(values: Sequence[Any]) -> type:
    """Return what all *values* of a field can be written as: text, where there are names or lists among them."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} and kinds:
        fits_int = kinds == {int} and all(value is None or abs(value) < INT_LIMIT for value in values)
        return int if fits_int else float
    return bool if kinds == {bool} else str


def _plain_value(problem: Problem, path: str, value: Any, kind: type) -> Any:
    """Return *value* of the field at *path* as a column of this *kind* has it; lists are JSON."""
    if value is None or isinstance(value, str):
        return value
    if kind is not str:
        return kind(value)
    text = value_label(problem.space.base, path, value)
    return text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)


# ---- what the seconds of a step and the bytes of memory are made of


class _Breakdown:
    """The columns that break ``step_s`` and ``memory_used_bytes`` down into parts, such as ``step_s.gemm``.

    Of a mix, the seconds of each workload are those of a round, so that all parts add up to ``step_s``. An engine that
    simulates does not say what a step is made of; the parts of memory are the same.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = replace(problem, engine="analytic")
        self._simulated = problem.engine != "analytic"
        of_step: list[tuple[str, str, tuple[str, ...]]] = [("step_s", "breakdown", BREAKDOWN)]
        broken_down = [*([] if self._simulated else of_step), ("memory_used_bytes", "memory", COMPONENTS)]
        self._origins = [
            (".".join(filter(None, [metric, share.name, part])), index, f"{origin}.{part}", metric == "step_s")
            for metric, origin, parts in broken_down
            for index, share in enumerate(problem.shares)
            for part in parts
        ]
        self.names = [name for name, *_ in self._origins]

    def compute(self, trials: Trials) -> dict[str, Cells]:
        """Return the parts of *trials*: seconds of those that can run, memory also of those that need too much.

        Trials are evaluated again, as a study does not keep the parts. Where this release finds other metrics than the
        study has, the parts would not add up to them: such a trial has none.
        """
        parts = {name: np.full(len(trials), np.nan) for name in self.names}
        indices = np.flatnonzero(np.isfinite(trials.results.excess))
        if len(indices):
            outcomes, results = self._problem.evaluate_shares(trials.rows[indices])
            evaluated = trials.select(indices)
            same = self._has_same_results(evaluated, results.excess, results.columns)
            runs = evaluated.results.feasible
            for name, share, origin, seconds in self._origins:
                weight = self._problem.shares[share].weight if seconds else 1.0
                shown = same & runs if seconds else same
                parts[name][indices] = np.where(shown, weight * outcomes[share].columns[origin], np.nan)
        return dict(parts)

    def _has_same_results(self, trials: Trials, excess: Floats, columns: Any) -> Flags:
        """Return which trials are evaluated to the results that the study has of them."""
        runs, before = trials.results.feasible, trials.results
        metric = "memory_bytes" if self._simulated else "step_s"
        equal = (before.excess == excess) if not self._simulated else runs
        with np.errstate(invalid="ignore"):
            return np.asarray(equal & (~runs | (before.columns[metric] == columns[metric])))


# ---- Tables of trials for notebooks: a DataFrame of pandas, a Table of Arrow. Both are optional libraries

EXTRA = "notebook"


def to_pandas(table: TrialTable, chunks: Iterable[BatchedTrials]) -> Any:
    """Return trials as a DataFrame of numbers, truth values and text; NaN or None where there is no value."""
    pandas = import_optional("pandas", EXTRA, "to_pandas", "study")
    blocks = list(table.blocks(chunks))
    columns = {}
    for head in table.heads:
        pieces = [_as_array(head, block.columns.pop(head.name)) for block in blocks]  # each column is in memory once
        columns[head.name] = np.concatenate([_as_array(head, Coded((), np.empty(0, dtype=np.intp))), *pieces])
    return pandas.DataFrame(columns, copy=False)


def _as_array(head: Head, cells: Cells) -> npt.NDArray[Any]:
    """Return a column as pandas has it: a whole number that is missing makes floats, as in a file that it reads."""
    if not isinstance(cells, Coded):
        return cells
    missing = any(value is None for value in cells.values)
    if head.kind is str or (head.kind is bool and missing):
        values = np.array([*cells.values, None], dtype=object)[:-1]  # the None keeps lists of one length from stacking
    elif missing:
        values = np.array([np.nan if value is None else value for value in cells.values], dtype=np.float64)
    else:
        values = np.array(cells.values, dtype={int: np.int64, float: np.float64, bool: np.bool_}[head.kind])
    return np.asarray(values[cells.codes])


# ---- Arrow


def to_arrow(table: TrialTable, chunks: Iterable[BatchedTrials]) -> Any:
    """Return trials as an Arrow Table, null where there is no value."""
    arrow = import_optional("pyarrow", EXTRA, "to_arrow", "study")
    schema = arrow_schema(arrow, table)
    return arrow.Table.from_batches(
        [arrow_batch(arrow, schema, table, block) for block in table.blocks(chunks)], schema
    )


def arrow_schema(arrow: Any, table: TrialTable) -> Any:
    """Return the columns of *table* as a schema of Arrow."""
    types = {int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_(), str: arrow.string()}
    return arrow.schema([(head.name, types[head.kind]) for head in table.heads])


def arrow_batch(arrow: Any, schema: Any, table: TrialTable, block: TableBlock) -> Any:
    """Return some rows as a record batch of Arrow."""
    arrays = []
    for head in table.heads:
        cells, kind = block.columns[head.name], schema.field(head.name).type
        if isinstance(cells, Coded):
            arrays.append(arrow.array(list(cells.values), kind).take(arrow.array(cells.codes)))
        else:
            missing = np.isnan(cells) if head.kind is float else None
            arrays.append(arrow.array(cells, kind, mask=missing))
    return arrow.RecordBatch.from_arrays(arrays, schema=schema)


# ---- what was searched, as tables


class TabledTrials(ABC):
    """Trials that notebooks may have as tables: those of a search, and those of a study."""

    @property
    @abstractmethod
    def batch_sizes(self) -> tuple[int, ...] | None:
        """How many trials each batch has; None where that is not known: then tables do not say it."""

    @property
    @abstractmethod
    def _searched(self) -> tuple[Problem, Trials]:
        """The problem, and its trials."""

    def to_pandas(self, *, parts: bool = True) -> Any:
        """Return every trial as a DataFrame: a column for each field, metric and, with *parts*, part of a metric."""
        return to_pandas(*self._table(parts))

    def to_arrow(self, *, parts: bool = True) -> Any:
        """Return every trial as an Arrow Table, with the columns of `to_pandas`."""
        return to_arrow(*self._table(parts))

    def importance(self, objective: str = "") -> Importance:
        """Return which parameters matter for *objective*; by default, for the first one of the search."""
        return measure_importance(*self._searched, objective)

    def _table(self, parts: bool) -> tuple[TrialTable, list[BatchedTrials]]:
        (problem, trials), sizes = self._searched, self.batch_sizes
        known = (len(trials),) if sizes is None else sizes
        return TrialTable(problem, batches=sizes is not None, parts=parts), [
            (np.repeat(np.arange(len(known)), known), trials)
        ]
