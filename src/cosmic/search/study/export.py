"""The trials of a study as a table for other programs: CSV, JSON lines or Parquet, written a block at a time."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

from cosmic.base.errors import SpecError
from cosmic.base.files import replace_file
from cosmic.search.optional_libraries import import_optional
from cosmic.search.study import trial_table
from cosmic.search.study.study import Study, open_study
from cosmic.search.study.trial_table import Cells, Coded, TableBlock, TrialTable

Table = Mapping[str, Sequence[Any]]
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""The first characters of text that a spreadsheet takes for a formula, and may run."""
PARQUET_EXTRA = "parquet"
"""The extra that writes Parquet."""
_LINE_END = "\r\n"
"""Both characters, so that the writer quotes text with either of them."""


@dataclass(frozen=True, slots=True)
class ExportedStudy:
    """A study to be written."""

    study: Study
    table: TrialTable

    @classmethod
    def open(cls, path: str | Path, *, parts: bool = True) -> ExportedStudy:
        """Return the study in the directory *path*; *parts*: with what steps and memory are made of."""
        study = open_study(path)
        return cls(study, TrialTable(study.problem, parts=parts))

    def blocks(self) -> Iterator[TableBlock]:
        """Yield its trials, some at a time."""
        yield from self.table.blocks(self.study.stream())


def export_trials(study: str | Path, to: str | Path, *, parts: bool = True) -> tuple[int, int]:
    """Write every trial of *study* to the file *to*, in the format of its suffix; return how many rows and columns."""
    path = Path(to)
    if path.suffix not in WRITERS:
        raise SpecError("to", str(to), f"must end in {', '.join(list(WRITERS)[:-1])} or {list(WRITERS)[-1]}")
    if path.suffix == ".parquet":
        import_optional(
            "pyarrow.parquet", PARQUET_EXTRA, str(to), "to"
        )  # a missing library is reported before the work
    source = ExportedStudy.open(study, parts=parts)
    with _replace_file(path) as beside:
        rows = WRITERS[path.suffix](source, beside)
    return rows, len(source.table.heads)


@contextmanager
def _replace_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces *path* once it is complete."""
    with replace_file(path, "--to") as beside:
        yield beside


# ---- CSV


class _Echo:
    """A file whose `write` returns the text."""

    def write(self, text: str) -> str:
        return text


_WRITER: Any = csv.writer(_Echo(), lineterminator=_LINE_END)


def csv_lines(columns: Table) -> Iterator[str]:
    """Yield a table as lines of CSV, with text that looks like a formula escaped.

    >>> list(csv_lines({"trial": [0, 1], "note": ["=1+1", None], "x": [-1.5, 2]}))
    ['trial,note,x', "0,'=1+1,-1.5", '1,,2']
    """
    yield _csv_row(columns)
    yield from map(_csv_row, zip(*columns.values(), strict=True))


def _csv_row(values: Iterable[Any]) -> str:
    line: str = _WRITER.writerow([_escape_formula(value) for value in values])
    return line.removesuffix(_LINE_END)


def _escape_formula(value: Any) -> Any:
    """Return *value*, an apostrophe before text that looks like a formula, which a spreadsheet then takes for text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def study_lines(source: ExportedStudy) -> Iterator[str]:
    """Yield the trials of a study as lines of CSV: `csv_lines` with every different text written once."""
    yield _csv_row(head.name for head in source.table.heads)
    for block in source.blocks():
        cells = [_csv_cells(block.columns[head.name]) for head in source.table.heads]
        yield from map(",".join, zip(*cells, strict=True))


def _csv_cells(cells: Cells) -> Iterable[str]:
    if isinstance(cells, Coded):
        return _expand_codes(["" if value is None else _csv_row([value, ""])[:-1] for value in cells.values], cells)
    return _number_texts(cells, "", str)


def _expand_codes(texts: Sequence[str], cells: Coded) -> Iterable[str]:
    return map(texts.__getitem__, cells.codes.tolist())


def _number_texts(cells: Any, missing: str, shown: Callable[[Any], str]) -> Iterable[str]:
    """Return an array as texts: the shortest that read back as exactly the same numbers."""
    values = cells.tolist()
    if cells.dtype.kind != "f":
        return map(shown, values)
    return [missing if isnan(value) else repr(value) for value in values]


def _write_csv(source: ExportedStudy, path: Path) -> int:
    return _write_lines(study_lines(source), path) - 1


def _write_lines(lines: Iterable[str], path: Path) -> int:
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        for line in lines:
            file.write(f"{line}\n")
            count += 1
    return count


# ---- JSON lines


def json_lines(source: ExportedStudy) -> Iterator[str]:
    """Yield the trials of a study as lines of JSON, each an object with all columns; null where there is no value."""
    names = [f"{json.dumps(head.name, ensure_ascii=False)}: " for head in source.table.heads]
    for block in source.blocks():
        cells = [_json_cells(block.columns[head.name]) for head in source.table.heads]
        for row in zip(*cells, strict=True):
            yield f"{{{', '.join(map(str.__add__, names, row))}}}"


def _json_cells(cells: Cells) -> Iterable[str]:
    if isinstance(cells, Coded):
        return _expand_codes([json.dumps(value, ensure_ascii=False) for value in cells.values], cells)
    return _number_texts(cells, "null", json.dumps)


def _write_json(source: ExportedStudy, path: Path) -> int:
    return _write_lines(json_lines(source), path)


# ---- Parquet


def _write_parquet(source: ExportedStudy, path: Path) -> int:
    arrow, parquet = (import_optional(name, PARQUET_EXTRA, str(path), "to") for name in ("pyarrow", "pyarrow.parquet"))
    schema, rows = trial_table.arrow_schema(arrow, source.table), 0
    with parquet.ParquetWriter(path, schema) as file:
        for block in source.blocks():
            file.write_batch(trial_table.arrow_batch(arrow, schema, source.table, block))
            rows += block.rows
    return rows


WRITERS: dict[str, Callable[[ExportedStudy, Path], int]] = {
    ".csv": _write_csv,
    ".jsonl": _write_json,
    ".parquet": _write_parquet,
}
