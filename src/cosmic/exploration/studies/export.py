"""The trials of a study as a table for other programs: CSV or Parquet."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.errors import SpecError
from cosmic.exploration.extras import needs
from cosmic.exploration.problem import METRICS
from cosmic.exploration.studies.study import open_study
from cosmic.exploration.trials import Trials
from cosmic.files import replacing
from cosmic.psa.parameters import label
from cosmic.psa.space import ParameterSet

Table = dict[str, list[Any]]
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""The first characters of text that a spreadsheet takes for a formula, and may run."""
_END = "\r\n"
"""Both characters, so that the writer quotes text with either of them."""


def export(study: str | Path, to: str | Path) -> tuple[int, int]:
    """Write every trial of *study* to the file *to*, in the format of its suffix; return how many rows and columns."""
    path = Path(to)
    if path.suffix not in WRITERS:
        raise SpecError("to", str(to), f"must end in {' or '.join(WRITERS)}")
    if path.suffix == ".parquet":
        needs("pyarrow.parquet", "parquet", str(to), "to")  # a missing library is reported before the work
    columns = table(study)
    with _in_place(path) as beside:
        WRITERS[path.suffix](columns, beside)
    return len(columns["trial"]), len(columns)


def table(path: str | Path) -> Table:
    """Return every trial of a study, a list for each column; None where there is no value."""
    study = open_study(path)
    batches, trials = study.history
    sizes = [batch.trials for batch in batches]
    found: Table = {"trial": list(range(len(trials))), "batch": np.repeat(np.arange(len(sizes)), sizes).tolist()}
    if len(trials):
        found |= _points(study.problem.space, trials)
    results = trials.results
    found |= {"feasible": results.feasible.tolist(), "counted": results.counted.tolist()}
    found["reasons"] = list(results.reasons)
    for name in METRICS:
        found[name] = [None if isnan(value) else value for value in results.columns[name].tolist()]
    return found


def _points(space: ParameterSet, trials: Trials) -> Table:
    """Return each parameter and derived field as files write it; lists as JSON."""
    found: Table = {}
    for place, parameter in enumerate(space.parameters):
        labels = [_plain(each) for each in parameter.labels]
        found[parameter.name] = [labels[index] for index in trials.rows[:, place].tolist()]
    for path in space.derived:
        written: dict[Any, Any] = {}  # there are few different values
        values = space.derive(path, trials.rows).tolist()
        for value in values:
            if value not in written:
                written[value] = _plain(label(space.base, path, value))
        found[path] = [written[value] for value in values]
    return found


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)


# ---------------------------------------------------------------------------------------------------- files


class _Echo:
    """A file whose `write` returns the text."""

    def write(self, text: str) -> str:
        return text


def csv_lines(columns: Table) -> Iterator[str]:
    """Yield a table as lines of CSV, with text that looks like a formula escaped.

    >>> list(csv_lines({"trial": [0, 1], "note": ["=1+1", None], "x": [-1.5, 2]}))
    ['trial,note,x', "0,'=1+1,-1.5", '1,,2']
    """
    writer: Any = csv.writer(_Echo(), lineterminator=_END)
    yield writer.writerow(columns).removesuffix(_END)
    for row in zip(*map(_harmless, columns.values()), strict=True):
        yield writer.writerow(row).removesuffix(_END)


def _harmless(column: Sequence[Any]) -> Sequence[Any]:
    """Return *column* with an apostrophe before text that looks like a formula, which a spreadsheet takes for text."""
    if not any(isinstance(value, str) and value.startswith(FORMULA) for value in column):
        return column
    return [f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value for value in column]


def _write_csv(columns: Table, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(f"{line}\n" for line in csv_lines(columns))


def _write_parquet(columns: Table, path: Path) -> None:
    arrow, parquet = (needs(name, "parquet", str(path), "to") for name in ("pyarrow", "pyarrow.parquet"))
    arrays = {name: arrow.array(_uniform(column), from_pandas=False) for name, column in columns.items()}
    floats = {name: arrays[name].cast(arrow.float64()) for name in METRICS}  # also where all are None
    parquet.write_table(arrow.table(arrays | floats), path)


def _uniform(column: list[Any]) -> list[Any]:
    """Return *column* as values of one type: a parameter may have numbers and names."""
    kinds = {type(value) for value in column} - {type(None)}
    mixed = str in kinds and len(kinds) > 1
    return [None if value is None else str(value) for value in column] if mixed else column


WRITERS: dict[str, Callable[[Table, Path], None]] = {".csv": _write_csv, ".parquet": _write_parquet}


@contextmanager
def _in_place(path: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces *path* once it is complete."""
    try:
        with replacing(path) as beside:
            yield beside
            with beside.open("rb+") as file:
                os.fsync(file.fileno())
    except OSError as error:
        raise SpecError("to", str(path), f"cannot be written ({error.strerror or error})") from None
