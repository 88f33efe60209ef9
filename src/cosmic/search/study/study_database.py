"""The database of a study, which may come from anybody: its files, its tables, its cells, and what opens it.

The files are regular ones inside the study's directory, never links, pipes or devices: a link would make us read or
overwrite a file elsewhere, and a pipe would make us wait for ever. So they are looked at before anything opens them.
The database may hold only the known tables, each exactly as SQLite keeps its definition, and a query ends after as many
steps as the size of the file explains. Errors are said in sentences.

Trials are packed: a row of `packed` holds a batch, or a piece of a large one, in columns. Studies of earlier releases
have a row of `trials` for each trial; they are read, and go on in `packed`. What `cosmic study doctor` saved apart, to be
looked up instead of evaluated again, is in `packed_salvaged`, before that in `salvaged`.

Cells are of the right type, length and range, or the study is damaged. A checksum tells what a disk changed. It does
not tell who wrote a row, so that every cell is checked as well.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from shlex import quote
from typing import Any, Self
from zlib import crc32

import numpy as np

from cosmic.base.errors import BackendError, one_line, shorten
from cosmic.base.files import Unreadable, open_regular
from cosmic.search.agent import Floats
from cosmic.search.problem import METRICS, Problem, Results
from cosmic.search.search_inputs import MAX_BATCH
from cosmic.search.space.diagram import Indices
from cosmic.search.trials import Trials, index_type
from cosmic.simulate.metrics import OF_STEPS

# ---- The cells of a study's tables of rows: of the right type, length and range, or the study is damaged

Row = tuple[Any, ...]
INDEX_TYPE = "<u4"
"""How a point is kept: an index of 4 bytes for each parameter."""
MAX_PARAMETERS = 10_000
MAX_REASONS_LENGTH = 2**16
MIN_METRIC, MAX_METRIC = 1e-150, 1e150
"""Between these are the metrics of all designs that are not 0: ratios and squares of them are numbers."""
ROWS_AT_ONCE = 2048
"""How many rows are read before they are checked."""
NO_BATCH = -1
"""The batch of a salvaged trial."""


class WrongRow(ValueError):  # noqa: N818  its base says that it is an error
    """A row that no search writes."""

    def __init__(self, row_index: int) -> None:
        super().__init__(row_index)
        self.row_index = row_index
        """The row's place in its table."""


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A batch on disk."""

    batch: int
    asked: int
    """How many points the agent was asked for; only new ones are trials."""
    trials: int


def _row_checksum(*values: Any) -> int:
    """Return a checksum of the exact text of *values*, which is different for different floats."""
    return crc32(repr(values).encode())


def with_checksum(*values: Any) -> Row:
    """Return a row of the database: *values* and their checksum."""
    return (*values, _row_checksum(*values))


def checksum_holds(row: Row) -> bool:
    """Return whether a row of the database agrees with its checksum."""
    return bool(row[-1] == _row_checksum(*row[:-1]))


# ---- batches


def read_batches(rows: Sequence[Row], first: int) -> list[BatchRecord]:
    """Return rows of the table of batches, which are numbered from *first* on."""
    batches = []
    for index, row in enumerate(rows, first):
        if not checksum_holds(row) or row[0] != index or not is_sound_batch(row):
            raise WrongRow(index)
        batches.append(BatchRecord(*row[:-1]))
    return batches


def is_sound_batch(row: Row) -> bool:
    """Return whether the cells of a row of the table of batches are right."""
    return all(type(value) is int and 0 <= value <= MAX_BATCH for value in row[1:-1])


# ---- trials


@dataclass(frozen=True, slots=True)
class TrialShape:
    """What the trials of one study have in common."""

    width: int | None = None
    """How many parameters a point has; None while that is unknown."""
    problem: Problem | None = None
    """The problem that was searched; without it, indices cannot be checked against the values there are."""

    @classmethod
    def for_problem(cls, problem: Problem | None) -> TrialShape:
        """Return the shape of the trials of *problem*."""
        return cls() if problem is None else cls(len(problem.space.parameters), problem)

    def with_width(self, rows: Sequence[Row]) -> TrialShape:
        """Return the shape with the width of the first of *rows*, if it is still unknown."""
        if self.width is not None or not rows:
            return self
        point = rows[0][2]
        readable = isinstance(point, bytes) and len(point) % 4 == 0 and len(point) <= 4 * MAX_PARAMETERS
        return TrialShape(len(point) // 4 if readable else 0, self.problem)


def metrics_in(problem: Problem | None) -> tuple[str, ...]:
    """Return the metrics of a study's trials."""
    return METRICS if problem is None else problem.metrics


def empty_points(shape: TrialShape) -> Indices:
    """Return no points."""
    return np.empty((0, shape.width or 0), dtype=np.uint8)


def read_trials(rows: Sequence[Row], first: int, shape: TrialShape) -> tuple[Indices, Trials]:
    """Return the batches and the trials of *rows*, which are numbered from *first* on.

    A wrong one raises `WrongRow`.
    """
    for index, row in enumerate(rows, first):
        if not checksum_holds(row) or row[0] != index:
            raise WrongRow(index)
    try:
        return decode_rows(rows, shape)
    except ValueError:
        raise WrongRow(first + _find_first_wrong(rows, shape)) from None


def select_sound(rows: Sequence[Row], shape: TrialShape) -> list[Row]:
    """Return those of *rows* that a search may have written."""
    try:
        decode_rows(rows, shape)
    except ValueError:
        middle = len(rows) // 2
        return [*select_sound(rows[:middle], shape), *select_sound(rows[middle:], shape)] if middle else []
    return list(rows)


def _find_first_wrong(rows: Sequence[Row], shape: TrialShape) -> int:
    """Return the place of the first wrong one of *rows*; some row is wrong."""
    below, above = 0, len(rows)  # all rows before `below` are sound, some before `above` are not
    while above - below > 1:
        middle = (below + above) // 2
        try:
            decode_rows(rows[below:middle], shape)
        except ValueError:
            above = middle
        else:
            below = middle
    return below


def decode_rows(rows: Sequence[Row], shape: TrialShape) -> tuple[Indices, Trials]:
    """Return the batches and the trials of *rows*; raise a `ValueError` where a cell is wrong."""
    if not rows:
        return np.empty(0, dtype=np.int64), Trials(
            empty_points(shape), Results.failed(0, "", metrics_in(shape.problem))
        )
    _, batches, points, counted, reasons, *numbers, _ = zip(*rows, strict=True)
    require_sound(_has_only(batches, int) and _has_only(counted, int) and set(counted) <= {0, 1})
    require_sound(_has_only(reasons, str) and all(map(is_reason, set(reasons))))
    require_sound(_has_only(numbers[0], float) and all(_has_only(column, float, type(None)) for column in numbers[1:]))
    width = 4 * (shape.width or 0)
    require_sound(_has_only(points, bytes) and set(map(len, points)) == {width})
    excess, *metrics = (np.array(column, dtype=np.float64) for column in numbers)
    require_sound(not (excess < 0).any() and not any(has_impossible_metric(column) for column in metrics))
    indices = np.frombuffer(b"".join(points), dtype=INDEX_TYPE).reshape(len(rows), -1 if width else 0)
    indices = indices.astype(index_type(int(indices.max(initial=0))))
    columns = dict.fromkeys(METRICS, np.broadcast_to(np.nan, excess.shape)) | dict(zip(OF_STEPS, metrics, strict=True))
    results = Results(columns, excess, list(reasons), np.array(counted, dtype=bool))
    trials = Trials(indices, results)
    require_sound(shape.problem is None or trials.fits(shape.problem))
    return np.array(batches, dtype=np.int64), trials


def is_reason(text: str) -> bool:
    """Return whether a search may have written *text* as the reason of a trial."""
    return len(text) <= MAX_REASONS_LENGTH and text.isprintable()


def min_bytes(trials: Trials) -> int:
    """Return how many bytes the points and reasons of *trials* take on disk at least."""
    return trials.points.size * np.dtype(INDEX_TYPE).itemsize + sum(map(len, trials.results.reasons))


def has_impossible_metric(metric: Floats) -> bool:
    """Return whether some value of a metric is beyond those that designs have; NaN, for none, is not."""
    return bool(((metric < 0) | (metric > MAX_METRIC) | ((metric > 0) & (metric < MIN_METRIC))).any())


def require_sound(holds: bool) -> None:
    """Raise a `ValueError` where something does not hold."""
    if not holds:
        raise ValueError


def _has_only(column: Sequence[Any], *kinds: type) -> bool:
    """Return whether every value of *column* is of one of these types, none of a subtype."""
    return set(map(type, column)) <= set(kinds)


# ---- The files of a study: regular files inside its directory, never links, pipes or devices

INPUTS, TRIALS, LOCK, BEST, PAGE = "study.json", "trials.db", "lock", "best.yaml", "report.html"
MAX_INPUT_BYTES = 2**24
"""A study.json has a few kilobytes; a larger one is not read, nor written."""
MAX_TRIAL_BYTES = 2**40
"""The largest database that is opened."""
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")


def database_files(path: Path) -> tuple[Path, ...]:
    """Return the files that SQLite opens for the database *path*: itself, its log, the log's index, its journal."""
    return path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal"))


def study_files(folder: Path) -> tuple[Path, ...]:
    """Return the files that commands read and write in the study in *folder*, whether they are there or not."""
    return *database_files(folder / TRIALS), *(folder / name for name in (INPUTS, LOCK, BEST, PAGE))


def find_unsafe_file(files: Iterable[Path]) -> str:
    """Return why *files* cannot be those of a study; an empty text where nothing is wrong with them."""
    for path in files:
        try:
            about = path.lstat()
        except (OSError, ValueError):  # it is not there, or whoever opens it will say why it cannot be read
            continue
        if not stat.S_ISREG(about.st_mode):
            return f"its {path.name} is {_kind_of_file(about.st_mode)}, and must be a file of its own: remove it"
        if about.st_size > MAX_TRIAL_BYTES:
            return f"its {path.name} has more than {MAX_TRIAL_BYTES // 2**40} TiB"
        if path.name.endswith("-journal") and _names_other_journal(path):
            return f"its {path.name} names a file elsewhere: remove it"
    return ""


def _kind_of_file(mode: int) -> str:
    kinds = {
        "a link": stat.S_ISLNK(mode),
        "a directory": stat.S_ISDIR(mode),
        "a pipe": stat.S_ISFIFO(mode),
        "a socket": stat.S_ISSOCK(mode),
    }
    return next((name for name, holds in kinds.items() if holds), "a device")


def _names_other_journal(journal: Path) -> bool:
    """Return whether a journal ends in the name of another one, which SQLite would delete."""
    try:
        with open_regular(journal, most=MAX_TRIAL_BYTES) as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - len(_JOURNAL_MAGIC)))
            return file.read() == _JOURNAL_MAGIC
    except (OSError, Unreadable):
        return True


# ---- The tables of a study's database, each exactly as SQLite keeps its definition

FIXED_COLUMNS = ("trial", "batch", "point", "counted", "reasons", "excess")
COLUMNS = (*FIXED_COLUMNS, *OF_STEPS, "crc")
"""Of a row for each trial: the metrics that there were then, which are those of a step."""
BATCH_COLUMNS = ("batch", "asked", "trials", "crc")
PACKED_COLUMNS = ("first", "batch", "trials", "crc", "content")
_TYPES = {"trial": "INTEGER PRIMARY KEY", "batch": "INTEGER", "point": "BLOB", "counted": "INTEGER", "reasons": "TEXT"}
_FIELDS = ", ".join(f"{name} {_TYPES.get(name, 'INTEGER' if name == 'crc' else 'REAL')}" for name in COLUMNS)
_PACKED = "first INTEGER PRIMARY KEY, batch INTEGER, trials INTEGER, crc INTEGER, content BLOB"
BY_ROW = ("trials", "salvaged")
PACKED = ("packed", "packed_salvaged")
NEW_TABLES = {
    "inputs": "CREATE TABLE inputs (name TEXT PRIMARY KEY, content TEXT NOT NULL)",
    "batches": "CREATE TABLE batches (batch INTEGER PRIMARY KEY, asked INTEGER, trials INTEGER, crc INTEGER)",
    **{table: f"CREATE TABLE {table} ({_PACKED})" for table in PACKED},
}
"""The tables of a new study."""
SCHEMA = NEW_TABLES | {table: f"CREATE TABLE {table} ({_FIELDS})" for table in BY_ROW}
"""Every table. Nothing else may be in the file: a view can run for ever."""
OWN_INDEX = ("index", "sqlite_autoindex_inputs_1", "inputs", None)
TABLE_KEYS = {
    "batches": ("batch", BATCH_COLUMNS),
    **dict.fromkeys(BY_ROW, ("trial", COLUMNS)),
    **dict.fromkeys(PACKED, ("first", PACKED_COLUMNS)),
}
"""The key and the columns of each table of batches or trials."""


def select_query(table: str) -> str:
    """Return the query for all columns of a table, without its condition."""
    return f"SELECT {', '.join(TABLE_KEYS[table][1])} FROM {table}"


# ---- A database that may come from anybody: opened with limits, searched within bounds, its errors said in sentences

MAX_ROW_BYTES = 2**17
"""The longest row that is read: a file may state any length."""
MIN_STEPS, STEPS_PER_BYTE = 20_000_000, 10
"""A query may take so many steps of SQLite's machine, and so many more for each byte of the file: a scan takes 1."""
STEPS_AT_ONCE = 100_000
"""After how many steps they are counted."""
MIN_ROW_BYTES = 32
"""Bytes that a row takes at least: there are no more rows than fit into the file."""
_LIMITS = {
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 10_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_PRAGMAS = ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0")
_NO_ROOM = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_SHM", "SQLITE_IOERR_TRUNCATE")
_NO_ACCESS = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PERM", "SQLITE_IOERR_LOCK")


class StudyError(BackendError):
    """A study cannot be read or written; the sentence says what to do."""


class DamagedTrials(StudyError):  # noqa: N818  its base says that it is an error
    """The trials of a study are damaged."""

    def __init__(self, path: Path, damage: str) -> None:
        folder = path.parent
        super().__init__(
            f"{folder}: its trials are damaged ({damage}): 'cosmic study doctor {quote(str(folder))}' saves the rest"
        )
        self.damage = damage


class Database:
    """The SQLite file of one study."""

    def __init__(self, path: Path, connection: sqlite3.Connection, problem: Problem | None = None) -> None:
        self.path = path
        self.problem = problem
        """The problem that was searched: trials that it cannot have are damage; None: they are not compared."""
        self._connection = connection
        self._steps_left = inf
        """How many steps the query that runs may still take."""

    @classmethod
    @contextmanager
    def opened(
        cls, path: Path, *, write: bool = False, problem: Problem | None = None, strict: bool = True
    ) -> Iterator[Self]:
        """Yield the database at *path*, to read or to *write*; to write creates it.

        One that holds anything but the known tables is damaged; if not *strict*, that is left to the caller.
        """
        if wrong := find_unsafe_file(database_files(path)):
            raise StudyError(f"{path.parent}: {wrong}")
        with _explain_errors(path):
            connection = sqlite3.connect(_database_uri(path, write), uri=True, isolation_level=None, timeout=30)
        try:
            storage = cls(path, connection, problem)
            storage._guard(write)
            if strict and (foreign := storage.foreign()):
                raise DamagedTrials(path, foreign[0])
            if write:
                storage._prepare()
            yield storage
        finally:
            connection.close()

    def _guard(self, write: bool) -> None:
        """Limit what a file can make SQLite do."""
        for limit, most in _LIMITS.items():
            self._connection.setlimit(limit, most)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_ROW_BYTES)
        self._connection.set_progress_handler(self._is_endless, STEPS_AT_ONCE)
        with _explain_errors(self.path):
            for pragma in (*_PRAGMAS, *(() if write else ("query_only = ON",))):
                self._connection.execute(f"PRAGMA {pragma}")

    def _is_endless(self) -> bool:
        self._steps_left -= STEPS_AT_ONCE
        return self._steps_left < 0

    @contextmanager
    def _limited_query(self) -> Iterator[None]:
        """Run a query that takes no more steps than the size of the file explains; an error is a sentence."""
        self._steps_left = MIN_STEPS + STEPS_PER_BYTE * self._bytes()
        try:
            with _explain_errors(self.path):
                yield
        except MemoryError as error:
            raise DamagedTrials(self.path, "it states a size larger than the memory") from error
        finally:
            self._steps_left = inf

    def _bytes(self) -> int:
        """Return how many bytes the file and its log have on the disk; holes do not count."""
        total = 0
        for path in database_files(self.path)[:2]:
            with suppress(OSError):
                status = path.stat()
                total += min(status.st_size, 512 * getattr(status, "st_blocks", 2**60))
        return total

    def foreign(self) -> list[str]:
        """Return what the file holds besides the known tables; no search makes it."""
        descriptions = []
        for kind, name, table, text in self.rows("SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT 20"):
            if (kind, name, table, text) != OWN_INDEX and (kind, name, text) != ("table", table, SCHEMA.get(name)):
                descriptions.append(f"no search makes its {one_line(str(kind)[:20])} {shorten(name)}")
        return descriptions

    def _prepare(self) -> None:
        with _explain_errors(self.path):
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            for text in NEW_TABLES.values():
                self._connection.execute(text.replace("TABLE", "TABLE IF NOT EXISTS", 1))

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Read one state of the file, whatever is written meanwhile."""
        with _explain_errors(self.path):
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    @contextmanager
    def _allowing_values(self, longest: int) -> Iterator[None]:
        """Allow values of so many bytes, and a row's other values beside it."""
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest + MAX_ROW_BYTES)
        try:
            yield
        finally:
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_ROW_BYTES)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _explain_errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk may have ended it already
                    self._connection.execute("ROLLBACK")
                raise

    def has(self, table: str) -> bool:
        """Return whether there is this table, defined as a search defines it."""
        query = f"SELECT sql FROM sqlite_master WHERE type = 'table' AND name = '{table}'"
        with suppress(DamagedTrials):
            return bool(self.rows(query) == [(SCHEMA[table],)])
        return False

    def _chunks(self, query: str, values: tuple[int, ...] = (), at_once: int = ROWS_AT_ONCE) -> Iterator[list[Row]]:
        """Yield the rows of a query, some at a time."""
        with self._limited_query():
            cursor = self._connection.execute(query, values)
            while rows := cursor.fetchmany(at_once):
                yield rows

    def problems(self) -> list[str]:
        """Return the findings of SQLite's integrity check; none for an intact file."""
        try:
            findings = [str(row[0]) for row in self.rows("PRAGMA integrity_check(20)")]
        except DamagedTrials as error:
            return [error.damage]
        return [finding for finding in findings if finding != "ok"]

    def rows(self, query: str) -> list[Any]:
        """Return the rows of a query; an error is a sentence that says what to do."""
        with self._limited_query():
            return self._connection.execute(query).fetchall()


def _database_uri(path: Path, write: bool) -> str:
    """Return the URI of the file for SQLite; immutable in a read-only directory, where it cannot create locks."""
    mode = "rwc" if write else "ro"
    alone = not write and not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()
    return f"{path.absolute().as_uri()}?mode={mode}{'&immutable=1' if alone else ''}"


# ---- errors


def out_of_space(path: Path) -> StudyError:
    """Return the error of a study on a full disk."""
    rule = "the disk is full; every finished batch is safe: make room, then go on with --resume"
    return StudyError(f"{path.parent}: {rule}")


@contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    """Turn an error of SQLite into a `StudyError` that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(_NO_ROOM):
            raise out_of_space(path) from error
        if name.startswith(_NO_ACCESS):
            raise StudyError(f"{path}: {error}") from error
        if name == "SQLITE_INTERRUPT":
            raise DamagedTrials(path, "to read it takes more steps than its size explains") from error
        raise DamagedTrials(path, str(error)) from error
