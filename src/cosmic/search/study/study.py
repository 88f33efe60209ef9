"""A study: a directory with the inputs of a search and every trial.

study.json   resolved inputs, seed and versions: everything that determines the result
trials.db    the trials (`cosmic.search.study.trial_storage`)
lock         held by the one process that writes

The trials of a study as a table for other programs: CSV, JSON lines or Parquet, written a block at a time.
"""

from __future__ import annotations

import csv
import json
import os
import platform
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from math import isnan
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from cosmic.base._version import __version__
from cosmic.base.caching import digest
from cosmic.base.errors import SpecError, one_line, require, suggest_names
from cosmic.base.files import DASH, Unreadable, Unwritable, exists, read_text, replace_file, write_text
from cosmic.search.learning.prediction_quality import Learned
from cosmic.search.optional_libraries import import_optional
from cosmic.search.problem import Problem
from cosmic.search.search_inputs import Inputs, read_inputs
from cosmic.search.study import trial_storage as files
from cosmic.search.study import trial_table
from cosmic.search.study.measured_runs import Evidence, MeasuredRun, add_runs, gather_evidence, read_runs
from cosmic.search.study.trial_storage import (
    MAX_INPUT_BYTES,
    BatchRecord,
    Storage,
    StudyError,
    find_unsafe_file,
    holds_trials,
    out_of_space,
    study_files,
)
from cosmic.search.study.trial_table import Cells, Coded, TableBlock, TabledTrials, TrialTable
from cosmic.search.trials import BatchedTrials, Trials
from cosmic.simulate.user_engines import BUILT_IN, identity_of

FORMAT = 2
LIBRARIES = ("cmaes", "optuna", "scikit-learn", "scipy")
"""Optional libraries of agents: their versions may change what an agent proposes."""
INPUTS, TRIALS, LOCK = files.INPUTS, files.TRIALS, files.LOCK
MAX_DEPTH = 100
"""Most levels of lists and mappings in a study.json."""
MAX_INT_DIGITS = 40
"""Most digits of a whole number in a study.json: seeds may have 128 bits, and a float can hold all of these."""
MAX_TEXT_LENGTH = 500
"""Most characters of a date or version."""


@dataclass(frozen=True)
class Study(TabledTrials):
    """A study on disk, read-only."""

    path: Path
    inputs: Inputs
    written_by: Mapping[str, str]
    created: str

    @property
    def problem(self) -> Problem:
        """The problem that was searched."""
        with name_study(self.path):
            return self.inputs.problem

    @cached_property
    def history(self) -> tuple[list[BatchRecord], Trials]:
        """Every batch and every trial so far."""
        with Storage.opened(self.path / TRIALS, problem=self.problem) as storage:
            return storage.history()

    @property
    def trials(self) -> Trials:
        """Every trial so far."""
        return self.history[1]

    def stream(self) -> Iterator[BatchedTrials]:
        """Yield every trial with its batch, some at a time: for studies that are larger than memory."""
        with Storage.opened(self.path / TRIALS, problem=self.problem) as storage:
            yield from storage.stream()

    @property
    def _searched(self) -> tuple[Problem, Trials]:
        return self.problem, self.trials

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """How many trials each batch has."""
        return tuple(batch.trials for batch in self.history[0])

    @cached_property
    def learned(self) -> Learned | None:
        """What the agent said of its model at the end of the search; None where it said nothing."""
        trials = len(self.trials)
        with Storage.opened(self.path / TRIALS) as storage:
            return storage.learned(trials)

    @cached_property
    def runs(self) -> list[MeasuredRun]:
        """The measured runs that were put into the study."""
        with Storage.opened(self.path / TRIALS, problem=self.problem) as storage:
            return storage.runs()

    @property
    def evidence(self) -> Evidence | None:
        """What was measured beside what is predicted; None where nothing was measured."""
        return gather_evidence(self.problem, self.runs, self.trials.points)

    @property
    def stopped(self) -> str:
        """Why its search ended, as in `Found`; ``interrupted`` where it has not ended."""
        trials = self.trials
        with Storage.opened(self.path / TRIALS) as storage:
            ended = storage.ending(len(trials))
        if ended in ("exhausted", "stalled"):  # whatever number of trials it may have
            return ended
        if trials.evaluated >= self.inputs.trials:
            return "trials"
        return "exhausted" if len(trials) >= self.problem.space.valid else "interrupted"


@contextmanager
def name_study(folder: str | Path) -> Iterator[None]:
    """Name the study in *folder* in whatever is wrong with its inputs."""
    try:
        yield
    except SpecError as error:
        raise type(error)(f"{folder}: {error.where}", error.value, error.rule) from None


def open_study(path: str | Path) -> Study:
    """Return the study in the directory *path*."""
    folder = Path(path)
    if wrong := find_unsafe_file(study_files(folder)):
        raise StudyError(f"{folder}: {wrong}")
    try:
        text = read_text(folder / INPUTS, most=MAX_INPUT_BYTES)
    except Unreadable as error:
        if not error.missing:
            raise StudyError(
                f"{folder / INPUTS}: {error.rule}; try 'cosmic study doctor {quote(str(folder))}'"
            ) from None
        if holds_trials(folder / TRIALS):
            raise StudyError(
                f"{folder}: has lost its {INPUTS}: 'cosmic study doctor {quote(str(folder))}' restores it"
            ) from None
        why = f"is no study: it has no {INPUTS}" if exists(folder) else "is no study: it does not exist"
        raise SpecError("study", str(path), f"{why}{_suggest_study(folder)}") from None
    return parse_study(folder, text)


def _suggest_study(folder: Path) -> str:
    """Return a suggestion of a study with a similar name, or inside *folder*; an empty text where there is none."""
    with suppress(OSError):
        inside = sorted(str(path.parent) for path in folder.glob(f"*/{INPUTS}"))
        beside = [str(path.parent) for path in folder.parent.glob(f"*/{INPUTS}")]
        return suggest_names(str(folder), beside) or (f"; did you mean '{inside[-1]}'?" if inside else "")
    return ""


def parse_study(folder: Path, text: str) -> Study:
    """Return the study that the text of a `study.json` describes; every value in it is checked."""
    try:
        content = _parse_bounded_json(text)
        format_number = content["format"]
        intact = content["sha256"] == _inputs_digest(content)
    except (ValueError, KeyError, TypeError, RecursionError):
        format_number, intact = FORMAT, False
    if type(format_number) is not int or format_number != FORMAT:
        raise SpecError(f"{folder}: study.format", format_number, f"this release reads format {FORMAT}")
    if not intact:
        raise _damaged_inputs(folder, "")
    try:
        inputs, written_by = read_inputs(content["inputs"]), _read_versions(content["written_by"])
        return Study(folder, inputs, written_by, _read_date(content["created"]))
    except SpecError as error:
        raise _damaged_inputs(folder, f" ({error})") from None
    except KeyError as error:
        raise _damaged_inputs(folder, f" ({error} is missing)") from None


def _damaged_inputs(folder: Path, why: str) -> StudyError:
    rule = f"is not what was written{why}: 'cosmic study doctor {quote(str(folder))}' restores it from the trials"
    return StudyError(f"{folder / INPUTS}: {rule}")


def _parse_bounded_json(text: str) -> Any:
    """Return the content of a study.json; nesting, numbers and characters that no search writes are a `ValueError`."""
    if len(text) > MAX_INPUT_BYTES:
        raise ValueError
    content = json.loads(text, parse_int=_parse_bounded_int)
    level = [content]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for node in level
            if isinstance(node, dict | list)
            for inner in (node.values() if isinstance(node, dict) else node)
        ]
    if level:
        raise ValueError
    json.dumps(content, ensure_ascii=False).encode()  # half of a surrogate pair can be neither printed nor written
    return content


def _parse_bounded_int(digits: str) -> int:
    if len(digits) > MAX_INT_DIGITS:
        raise ValueError
    return int(digits)


def _read_date(value: Any) -> str:
    valid = isinstance(value, str) and len(value) <= MAX_TEXT_LENGTH and value.isprintable()
    require(valid, "created", value, "must be a date")
    return str(value)


def _read_versions(value: Any) -> dict[str, str]:
    require(isinstance(value, dict), "written_by", value, "must map names to versions")
    for text in (name for pair in value.items() for name in pair):
        valid = isinstance(text, str) and len(text) <= MAX_TEXT_LENGTH and text.isprintable()
        require(valid, "written_by", text, "must be a name or a version")
    return dict(value)


def render_inputs(inputs: Inputs, created: str = "") -> str:
    """Return the text of a `study.json`."""
    # Through JSON and back, so that a resumed search compares its inputs with exactly the same values.
    plain = json.loads(json.dumps(asdict(inputs)))
    if not inputs.engine_identity:  # as studies with COSMIC's own engines were always written
        del plain["engine_identity"]
    if not inputs.learn:  # as earlier releases wrote it
        del plain["learn"]
    content = {
        "format": FORMAT,
        "inputs": plain,
        "written_by": software_versions(inputs.engine),
        "created": created or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    text = json.dumps(content | {"sha256": _inputs_digest(content)}, indent=1, ensure_ascii=False) + "\n"
    size = len(text.encode("utf-8", "replace"))
    rule = (
        f"a study keeps its parameter set, which may have {MAX_INPUT_BYTES // 2**20} MiB; this one has {size:,} bytes"
    )
    require(size <= MAX_INPUT_BYTES, "space", plain["space"].get("name"), rule)
    return text


def software_versions(engine: str = BUILT_IN[0]) -> dict[str, str]:
    """Return the versions of all software that may change the last bit of a result, that of an *engine* included."""
    return {
        "cosmic": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "platform": platform.platform(),
        **{name: version(name) for name in LIBRARIES if _is_installed(name)},
        **({} if engine in BUILT_IN else {f"engine {engine}": identity_of(engine)}),
    }


def _is_installed(name: str) -> bool:
    with suppress(PackageNotFoundError):
        return bool(version(name))
    return False


def _inputs_digest(content: Mapping[str, Any]) -> str:
    plain = {name: value for name, value in content.items() if name != "sha256"}
    return digest(json.dumps(plain, sort_keys=True))


def keep_text(path: Path, text: str) -> None:
    """Write a file of a study atomically."""
    try:
        write_text(path, text)
    except Unwritable as error:
        raise out_of_space(path) if error.no_room else StudyError(f"{path}: {error.rule}") from None


@contextmanager
def lock_study(folder: Path) -> Iterator[None]:
    """Hold the write lock of a study; the operating system releases it however the process ends."""
    import fcntl  # noqa: PLC0415  not available on Windows, where studies can still be read

    require(str(folder) != DASH, "out", DASH, "is no directory's name; name one for the study")
    if wrong := find_unsafe_file(study_files(folder)):
        raise StudyError(f"{folder}: {wrong}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise StudyError(f"{folder}: cannot be written ({error.strerror})") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = one_line(os.read(handle, 200).decode(errors="replace").strip()) or "another process"
            raise StudyError(f"{folder}: {holder} is writing to this study; wait for it, or stop it first") from None
        with suppress(OSError):  # a full disk has no room for the name; the lock is held all the same
            os.ftruncate(handle, 0)
            os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        os.close(handle)


def tell_runs(path: str | Path, rows: str | Path) -> tuple[int, int]:
    """Put the measured runs of the CSV file *rows* into the study at *path*; return how many are new, and how many all.

    All rows are put in, or none: one that is no design of the study's set is refused.
    """
    folder = Path(path)
    open_study(folder)  # before a lock makes a folder
    with lock_study(folder):
        study = open_study(folder)
        new = read_runs(study.problem, study.trials, rows)
        merged = add_runs(study.runs, new, folder)
        with Storage.opened(folder / TRIALS, write=True, problem=study.problem) as storage:
            storage.set_runs(merged)
    return len(merged) - len(study.runs), len(merged)


# ---- The trials of a study as a table for other programs: CSV, JSON lines or Parquet, written a block at a time

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
