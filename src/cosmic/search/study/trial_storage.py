"""Trials on disk: one SQLite file in write-ahead mode, in which every row has a checksum.

A batch is written in one transaction, so readers, and a search that is resumed after a crash, see whole batches. No
trial is recorded as running. SQLite detects missing pages, the checksums detect changed bits, and the number of trials
is checked against the batches.

Trials are packed into bytes, column by column, and read back bit for bit:

    header     layout, bytes of an index, metrics, parameters, bytes of text, checksum of the metrics' names
    names      of an engine of somebody else (layout 2): bytes of text, and the metrics' names
    kinds      a byte for each metric: no trial has it, those that run have it, or it is written for every trial
    texts      the different reasons, UTF-8, a line each
    points     an index for each parameter of each trial
    reasons    for each trial its reason: a code of 1, 2 or 4 bytes, by the number of texts
    counted    a bit for each trial
    excess     a number of 64 bits for each trial
    metrics    such numbers, one metric after the other

Everything is little-endian; nothing is compressed, so that a few bytes cannot become many. The length follows from the
header and the number of trials and must be exactly that. The bytes may come from anybody: each value is checked.

The file may come from anybody. The files of a study are regular ones inside the study's directory, never links, pipes
or devices: a link would make us read or overwrite a file elsewhere, and a pipe would make us wait for ever. So they are
looked at before anything opens them. The database may hold only the known tables, each exactly as SQLite keeps its
definition, and a query ends after as many steps as the size of the file explains. Errors are said in sentences.

Trials are packed: a row of `packed` holds a batch, or a piece of a large one, in columns. What `cosmic study doctor`
saved apart, to be looked up instead of evaluated again, is in `packed_salvaged`.

Cells are of the right type, length and range, or the study is damaged. A checksum tells what a disk changed. It does
not tell who wrote a row, so that every cell is checked as well.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from shlex import quote
from typing import Any, Self
from zlib import crc32

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import BackendError, SpecError, one_line, shorten
from cosmic.base.files import Unreadable, open_regular
from cosmic.search.agent import Flags, Floats
from cosmic.search.learning.prediction_quality import Learned, dump_learned, parse_learned
from cosmic.search.problem import METRICS, Problem, Reasons, Results
from cosmic.search.search_inputs import MAX_BATCH
from cosmic.search.space.diagram import Indices
from cosmic.search.study.measured_runs import MeasuredRun, dump_runs, parse_runs
from cosmic.search.trials import BatchedTrials, Columns, Trials, index_type
from cosmic.simulate.metrics import OF_CLUSTERS, OF_REQUESTS, OF_RUNS, OF_SAMPLES, OF_STEPS
from cosmic.simulate.user_engines import MOST_METRICS

# ---- The cells of a study's tables: of the right type, length and range, or the study is damaged

Row = tuple[Any, ...]
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


def metrics_in(problem: Problem | None) -> tuple[str, ...]:
    """Return the metrics of a study's trials."""
    return METRICS if problem is None else problem.metrics


def empty_points(shape: TrialShape) -> Indices:
    """Return no points."""
    return np.empty((0, shape.width or 0), dtype=np.uint8)


def is_reason(text: str) -> bool:
    """Return whether a search may have written *text* as the reason of a trial."""
    return len(text) <= MAX_REASONS_LENGTH and text.isprintable()


def has_impossible_metric(metric: Floats) -> bool:
    """Return whether some value of a metric is beyond those that designs have; NaN, for none, is not."""
    return bool(((metric < 0) | (metric > MAX_METRIC) | ((metric > 0) & (metric < MIN_METRIC))).any())


def require_sound(holds: bool) -> None:
    """Raise a `ValueError` where something does not hold."""
    if not holds:
        raise ValueError


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

BATCH_COLUMNS = ("batch", "asked", "trials", "crc")
PACKED_COLUMNS = ("first", "batch", "trials", "crc", "content")
_PACKED = "first INTEGER PRIMARY KEY, batch INTEGER, trials INTEGER, crc INTEGER, content BLOB"
PACKED = ("packed", "packed_salvaged")
SCHEMA = {
    "inputs": "CREATE TABLE inputs (name TEXT PRIMARY KEY, content TEXT NOT NULL)",
    "batches": "CREATE TABLE batches (batch INTEGER PRIMARY KEY, asked INTEGER, trials INTEGER, crc INTEGER)",
    **{table: f"CREATE TABLE {table} ({_PACKED})" for table in PACKED},
}
"""Every table. Nothing else may be in the file: a view can run for ever."""
OWN_INDEX = ("index", "sqlite_autoindex_inputs_1", "inputs", None)
TABLE_KEYS = {
    "batches": ("batch", BATCH_COLUMNS),
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
            for text in SCHEMA.values():
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


# ---- Trials packed into bytes, column by column, and read back bit for bit

LAYOUT, NAMED = 1, 2
"""The layout of pieces with metrics of COSMIC, and of others, whose names are written too."""
NAMES_STRUCT = struct.Struct("<H")
HEADER_STRUCT = struct.Struct("<BBHIII")
TOKEN_METRICS = tuple(name for name in METRICS if name not in OF_SAMPLES)
PIECE_METRICS = (
    tuple(OF_STEPS),
    (*OF_STEPS, *OF_REQUESTS),
    (*OF_STEPS, *OF_CLUSTERS, *OF_RUNS),
    TOKEN_METRICS,
    METRICS,
)
METRICS_OF_PIECES = {crc32(",".join(names).encode()): names for names in PIECE_METRICS}
"""The metrics of a piece, by the checksum of their names: those of a step alone where no trial has another."""
NO_TRIAL, RUNNING_TRIALS, ALL_TRIALS = range(3)
"""The kinds of a metric's column."""
MAX_PIECE_BYTES = 2**22
"""The most bytes of one piece."""
TARGET_PIECE_BYTES = 2**21
"""A piece has about so many bytes at most, apart from its texts."""
MAX_PIECE_TRIALS = 2**14
"""The most trials of one piece."""
MAX_BATCHES = 2**31 - 1


def split_pieces(trials: Trials, first: int, batch: int) -> Iterator[Row]:
    """Yield rows of a packed table that hold *trials* of one *batch*, numbered from *first* on."""
    size = 4 * trials.points.shape[1] + 8 * (len(METRICS) + 2)
    step = max(1, min(MAX_PIECE_TRIALS, TARGET_PIECE_BYTES // size))
    for start in range(0, len(trials), step):
        yield from _halve_trials(trials.part(slice(start, start + step)), first + start, batch)


def _halve_trials(trials: Trials, first: int, batch: int) -> Iterator[Row]:
    """Yield *trials* as one row, or as several if its texts are too long for one."""
    content, middle = pack_piece(trials), len(trials) // 2
    if len(content) > MAX_PIECE_BYTES and middle:
        yield from _halve_trials(trials.part(slice(middle)), first, batch)
        yield from _halve_trials(trials.part(slice(middle, None)), first + middle, batch)
    else:
        yield (first, batch, len(trials), piece_checksum(first, batch, len(trials), content), content)


def piece_checksum(first: int, batch: int, trials: int, content: bytes) -> int:
    """Return the checksum of a row of a packed table."""
    return crc32(content, crc32(repr((first, batch, trials)).encode()))


def piece_is_sound(row: Row) -> bool:
    """Return whether a row of a packed table agrees with its checksum and states a possible number of trials."""
    first, batch, trials, crc, content = row
    typed = all(type(number) is int for number in (first, batch, trials)) and isinstance(content, bytes)
    possible = typed and 1 <= trials <= MAX_PIECE_TRIALS and NO_BATCH <= batch <= MAX_BATCHES
    return possible and bool(crc == piece_checksum(first, batch, trials, content))


# ---- writing


def pack_piece(trials: Trials) -> bytes:
    """Return *trials* as bytes; there is at least one."""
    results, points = trials.results, trials.points
    if points.dtype.itemsize > 1 or points.dtype.kind != "u":
        points = points.astype(index_type(int(points.max(initial=0))))
    # The texts that are there, and their codes in the smallest type.
    used = np.flatnonzero(np.bincount(results.coded.codes, minlength=len(results.coded.texts)))
    code = np.zeros(len(results.coded.texts), dtype=index_type(len(used) - 1))
    code[used] = np.arange(len(used))
    texts, codes = [results.coded.texts[index] for index in used.tolist()], code[results.coded.codes]
    names, metrics = _select_metrics(results)
    kinds, numbers = _stored_columns(np.stack([results.columns[name] for name in metrics]), results.excess == 0)
    text = "\n".join(texts).encode()
    named = ",".join(metrics).encode() if names not in METRICS_OF_PIECES else b""
    layout = NAMED if named else LAYOUT
    header = HEADER_STRUCT.pack(layout, points.dtype.itemsize, len(metrics), points.shape[1], len(text), names)
    return b"".join(
        [
            header,
            NAMES_STRUCT.pack(len(named)) + named if named else b"",
            bytes(kinds),
            text,
            _little_endian_bytes(points),
            _little_endian_bytes(codes),
            np.packbits(results.counted, bitorder="little").tobytes(),
            _little_endian_bytes(results.excess),
            *map(_little_endian_bytes, numbers),
        ]
    )


def _select_metrics(results: Results) -> tuple[int, tuple[str, ...]]:
    """Return the metrics to write, and the checksum of their names: no others than some trial has."""
    if results.columns.keys() != set(METRICS):
        names = tuple(results.columns)
        return crc32(",".join(names).encode()), names
    present = {name for name, column in results.columns.items() if not np.isnan(column).all()}
    return next((code, names) for code, names in METRICS_OF_PIECES.items() if present <= {*names})


def _stored_columns(metrics: Floats, runs: Flags) -> tuple[list[int], list[Floats]]:
    """Return the kind of each metric's column, and the values that are written of it."""
    has_value = ~np.isnan(metrics)
    has_infeasible_value = (has_value & ~runs).any(axis=1)
    kinds = np.where(
        has_infeasible_value, ALL_TRIALS, np.where(has_value.any(axis=1), RUNNING_TRIALS, NO_TRIAL)
    ).tolist()
    if ALL_TRIALS not in kinds:  # as usual: a design that cannot run has no metrics
        return kinds, [metrics[np.array(kinds) == RUNNING_TRIALS][:, runs]]
    selections = {NO_TRIAL: runs[:0], RUNNING_TRIALS: runs, ALL_TRIALS: slice(None)}
    return kinds, [column[selections[kind]] for kind, column in zip(kinds, metrics, strict=True) if kind != NO_TRIAL]


def _little_endian_bytes(array: npt.NDArray[Any]) -> bytes:
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


# ---- reading


class _Reader:
    """Takes arrays from bytes, one after the other."""

    def __init__(self, content: bytes) -> None:
        self._content, self.offset = content, 0

    def read(self, count: int, kind: str) -> npt.NDArray[Any]:
        """Return the next *count* numbers; too few are a `ValueError`."""
        numbers = np.frombuffer(self._content, kind, count, self.offset) if count else np.empty(0, kind)
        self.offset += numbers.nbytes
        return numbers


def piece_width(content: bytes) -> int:
    """Return how many parameters the points of a piece have, by its header."""
    require_sound(len(content) >= HEADER_STRUCT.size)
    return int(HEADER_STRUCT.unpack_from(content)[3])


def unpack_piece(content: bytes, trials: int, shape: TrialShape) -> Trials:
    """Return so many *trials*; raise a `ValueError` where the bytes are not what `pack_piece` writes."""
    require_sound(HEADER_STRUCT.size <= len(content) <= MAX_PIECE_BYTES)
    layout, itemsize, metrics, width, text_bytes, names = HEADER_STRUCT.unpack_from(content)
    piece_metrics, start = _read_metrics(content, layout, names, shape)
    require_sound(metrics == len(piece_metrics) and bool(piece_metrics) and itemsize in (1, 2, 4))
    require_sound(width <= MAX_PARAMETERS and shape.width in (None, width) and text_bytes <= len(content))
    reader = _Reader(content[start:])
    kinds = reader.read(metrics, "u1").tolist()
    texts = reader.read(text_bytes, "u1").tobytes().decode().split("\n")  # what is no UTF-8 is a ValueError too
    require_sound(len(texts) <= trials and len(set(texts)) == len(texts) and all(map(is_reason, texts)))
    points = reader.read(trials * width, f"<u{itemsize}").reshape(trials, width)
    codes = reader.read(trials, index_type(len(texts) - 1).newbyteorder("<").str)
    bits = reader.read(-(-trials // 8), "u1")
    excess = reader.read(trials, "<f8")
    require_sound(bool((codes < len(texts)).all()) and not (np.isnan(excess) | (excess < 0)).any())
    runs = excess == 0
    columns = dict.fromkeys(piece_metrics if layout == NAMED else METRICS, np.broadcast_to(np.nan, runs.shape))
    columns |= {name: _read_column(reader, kind, runs) for name, kind in zip(piece_metrics, kinds, strict=True)}
    require_sound(reader.offset == len(content) - start)
    flags = np.unpackbits(bits, bitorder="little")
    require_sound(not flags[trials:].any())
    results = Results(columns, excess, Reasons(tuple(texts), codes.astype(np.uint32)), flags[:trials].astype(bool))
    unpacked = Trials(points, results)
    require_sound(shape.problem is None or unpacked.fits(shape.problem))
    return unpacked


def _read_metrics(content: bytes, layout: int, names: int, shape: TrialShape) -> tuple[tuple[str, ...], int]:
    """Return the metrics of a piece, and where what follows their names begins."""
    require_sound(layout in (LAYOUT, NAMED))
    if layout == LAYOUT:
        return METRICS_OF_PIECES.get(names, ()), HEADER_STRUCT.size
    require_sound(len(content) >= HEADER_STRUCT.size + NAMES_STRUCT.size)
    start = HEADER_STRUCT.size + NAMES_STRUCT.size + NAMES_STRUCT.unpack_from(content, HEADER_STRUCT.size)[0]
    text = content[HEADER_STRUCT.size + NAMES_STRUCT.size : start]
    piece_metrics = tuple(text.decode().split(","))
    require_sound(
        crc32(text) == names
        and len(set(piece_metrics)) == len(piece_metrics) <= MOST_METRICS
        and all(map(str.isidentifier, piece_metrics))
    )
    require_sound(shape.problem is None or piece_metrics == shape.problem.metrics)
    return piece_metrics, start


def _read_column(reader: _Reader, kind: int, runs: Flags) -> Floats:
    require_sound(kind in (NO_TRIAL, RUNNING_TRIALS, ALL_TRIALS))
    if kind == NO_TRIAL:
        return np.broadcast_to(np.nan, runs.shape)
    values = reader.read(len(runs) if kind == ALL_TRIALS else int(runs.sum()), "<f8")
    require_sound(not has_impossible_metric(values))
    if kind == ALL_TRIALS:
        return values
    column = np.full(len(runs), np.nan)
    column[runs] = values
    return column


MAX_EXPANSION = 4
"""Packed trials are at most so many times as long as the file, which the file system may compress."""


class Storage(Database):
    """The batches and the trials of one study."""

    # --------------------------------------------------------------------------------------------- writing

    def append(self, record: BatchRecord, trials: Trials, first: int) -> None:
        """Add a batch whose trials are numbered from *first*, in one transaction."""
        rows = list(split_pieces(trials, first, record.batch))
        with self._allowing_values(MAX_PIECE_BYTES), self._transaction():
            self._insert("packed", rows)
            self._insert("batches", [_batch_row(record)])

    def restore(self, batches: list[BatchRecord], trials: Trials, separate: Trials) -> None:
        """Write what was saved from a damaged file: whole batches with their trials, and trials kept *separate*."""
        first = 0
        with self._allowing_values(MAX_PIECE_BYTES), self._transaction():
            for batch in batches:
                batch_trials = trials.part(slice(first, first + batch.trials))
                self._insert("packed", split_pieces(batch_trials, first, batch.batch))
                self._insert("batches", [_batch_row(batch)])
                first += batch.trials
            self._insert("packed_salvaged", split_pieces(separate, 0, NO_BATCH))

    def _insert(self, table: str, rows: Iterable[Row]) -> None:
        marks = ", ".join("?" * len(TABLE_KEYS[table][1]))
        self._connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)

    def set_inputs(self, content: str) -> None:
        """Keep a copy of the text of study.json, so that either can be restored from the other."""
        self._write_text("study", content)

    def set_ending(self, stopped: str, trials: int) -> None:
        """Keep why a search ended after this number of *trials*."""
        with self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO inputs VALUES ('ended', ?)", (f"{stopped} {trials}",))

    def set_learned(self, learned: Learned | None, trials: int) -> None:
        """Keep what the agent says of its model after this number of *trials*; None: it has none."""
        if learned is not None:
            self._write_text("learned", json.dumps({"trials": trials, **dump_learned(learned)}, ensure_ascii=False))

    def set_runs(self, runs: Sequence[MeasuredRun]) -> None:
        """Keep the measured runs of the study, all of them, in one transaction."""
        self._write_text("measured", dump_runs(runs))

    def _write_text(self, name: str, content: str) -> None:
        with self._allowing_values(MAX_INPUT_BYTES), self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO inputs VALUES (?, ?)", (name, content))

    # --------------------------------------------------------------------------------------------- reading

    def learned(self, trials: int) -> Learned | None:
        """Return what the agent said of its model after this number of *trials*; None where it said nothing."""
        with suppress(
            DamagedTrials, ValueError, KeyError, TypeError, RecursionError, SpecError
        ):  # the trials may be intact
            content = json.loads(self._read_text("learned") or "null")
            return parse_learned(content) if content is not None and content["trials"] == trials else None
        return None

    def runs(self) -> list[MeasuredRun]:
        """Return the measured runs of the study."""
        text = self._read_text("measured")
        try:
            return [] if text is None else parse_runs(text, self.problem)
        except ValueError:
            raise DamagedTrials(self.path, "its measured runs are not what was written") from None

    def _read_text(self, name: str) -> str | None:
        """Return a text that was kept under a *name*; None where there is none."""
        with self._allowing_values(MAX_INPUT_BYTES):
            rows = self.rows(f"SELECT content FROM inputs WHERE name = '{name}'")
        return rows[0][0] if rows and isinstance(rows[0][0], str) else None

    def inputs(self) -> str | None:
        """Return the copy of the text of study.json; None where there is none."""
        return self._read_text("study")

    def ending(self, trials: int) -> str:
        """Return why the search ended after this number of *trials*; an empty text where it has not ended."""
        rows = []
        with suppress(DamagedTrials):  # the trials may be intact all the same
            rows = self.rows("SELECT content FROM inputs WHERE name = 'ended'")
        stopped, _, count = str(rows[0][0]).rpartition(" ") if rows else ("", "", "")
        return stopped if count == str(trials) else ""

    def is_empty(self) -> bool:
        """Return whether no batch was written."""
        tables = self.rows("SELECT name FROM sqlite_master WHERE name = 'batches'")
        return not tables or not self.rows("SELECT 1 FROM batches LIMIT 1")

    def batches(self) -> list[BatchRecord]:
        """Return every batch, in order."""
        records: list[BatchRecord] = []
        query = f"{select_query('batches')} ORDER BY batch"
        try:
            for rows in self._chunks(query):
                records += read_batches(rows, len(records))
        except WrongRow as error:
            raise DamagedTrials(self.path, f"batch {error.row_index} is not what was written") from None
        return records

    def salvaged(self) -> Trials:
        """Return every result that was kept apart, each checked."""
        of_batch, trials = self._join_parts(self._read_packed("packed_salvaged", 0))
        if (of_batch != NO_BATCH).any():
            raise DamagedTrials(self.path, "results that were kept apart belong to batches")
        return trials

    def history(self) -> tuple[list[BatchRecord], Trials]:
        """Return every batch and every trial, from one snapshot."""
        with self._snapshot():
            batches = self.batches()
            sizes = [batch.trials for batch in batches]
            of_batch, trials = self._join_parts(self.parts(), min(sum(sizes), MAX_EXPANSION * self._bytes()))
        if sum(sizes) != len(trials):
            raise DamagedTrials(self.path, f"{sum(sizes)} trials were written, {len(trials)} are there")
        if not np.array_equal(np.repeat(np.arange(len(sizes)), sizes), of_batch):
            raise DamagedTrials(self.path, "trials are not in the batches that they were written with")
        return batches, trials

    def stream(self) -> Iterator[BatchedTrials]:
        """Yield every trial with its batch, some at a time, from one snapshot: as `history` without keeping them."""
        with self._snapshot():
            ends = np.cumsum([batch.trials for batch in self.batches()], dtype=np.int64)
            first = 0
            for of_batch, trials in self.parts():
                expected = np.searchsorted(ends, np.arange(first, first + len(trials)), side="right")
                if not np.array_equal(expected, of_batch):
                    raise DamagedTrials(self.path, "trials are not in the batches that they were written with")
                first += len(trials)
                yield of_batch, trials
            total = int(ends[-1]) if len(ends) else 0
        if total != first:
            raise DamagedTrials(self.path, f"{total} trials were written, {first} are there")

    def since(self, first: int, most: int) -> Trials:
        """Return at most *most* trials from *first* on, each checked against its checksum."""
        parts: list[BatchedTrials] = []
        with self._snapshot():
            for part in self.parts(first):
                parts.append(part)
                if sum(len(trials) for _, trials in parts) >= most:
                    break
        return self._join_parts(parts)[1].part(slice(most))

    def parts(self, first: int = 0) -> Iterator[BatchedTrials]:
        """Yield all trials from *first* on, some at a time."""
        yield from self._read_packed("packed", first, inside=True)

    def _join_parts(self, parts: Iterable[BatchedTrials], expected: int = 0) -> BatchedTrials:
        """Return parts as one; so many trials are *expected*."""
        columns = Columns(
            empty_points(TrialShape.for_problem(self.problem)),
            metrics=metrics_in(self.problem),
        )
        of_batch: list[Indices] = []
        for batches, trials in parts:
            if not len(columns):
                columns = Columns(trials.points, room=expected, metrics=tuple(trials.results.columns))
            elif columns.points.shape[1] != trials.points.shape[1]:
                raise DamagedTrials(self.path, "points have different numbers of parameters")
            columns.extend(trials.points, trials.results)
            of_batch.append(batches)
        none = np.empty(0, dtype=np.int32)
        return np.concatenate([none, *of_batch]), Trials(columns.points, columns.results)

    def _read_packed(self, table: str, first: int, *, inside: bool = False) -> Iterator[BatchedTrials]:
        """Yield packed trials from *first* on, a piece at a time; *first* may be *inside* a piece."""
        if not self.has(table):
            return
        shape, position, room = TrialShape.for_problem(self.problem), first, MAX_EXPANSION * self._bytes()
        start = self.rows(f"SELECT MAX(first) FROM {table} WHERE first <= {first}")[0][0] if inside else 0
        query = f"{select_query(table)} WHERE first >= ? ORDER BY first"
        with self._wrong_is_damage(table), self._allowing_values(MAX_PIECE_BYTES):
            for (row,) in self._chunks(query, (start or 0,), at_once=1):
                number, batch, count, _, content = row
                skipped = position - number
                if not piece_is_sound(row) or skipped < 0 or (skipped and not inside):
                    raise WrongRow(position)
                room -= len(content)
                self._check_room(room)
                trials = _unpack_row(content, count, position, shape)
                shape = TrialShape(trials.points.shape[1], self.problem)
                inside = inside and skipped >= count
                if skipped < count:
                    position = number + count
                    yield np.full(count - skipped, batch, dtype=np.int32), trials.part(slice(skipped, None))

    @contextmanager
    def _wrong_is_damage(self, table: str) -> Iterator[None]:
        """Name the trial that is wrong; numbers below 0, which no query asks for, are wrong too."""
        try:
            yield
        except WrongRow as error:
            raise DamagedTrials(self.path, f"trial {error.row_index} is not what was written") from None
        if self.rows(f"SELECT 1 FROM {table} WHERE first < 0 LIMIT 1"):
            raise DamagedTrials(self.path, "trials have numbers below 0")

    def _check_room(self, room: int) -> None:
        if room < 0:
            raise DamagedTrials(self.path, "its rows are longer than the file")

    # ---------------------------------------------------------------------------------------------- saving

    def readable(self, table: str) -> dict[int, Row]:
        """Return by their key the rows of a damaged table that SQLite can read and whose checksums and cells are right.

        A damaged page ends a scan, so the table is scanned from both ends; rows in between are looked up one by one.
        """
        if not self.has(table):
            return {}
        self._connection.text_factory = lambda text: text.decode(errors="replace")  # a checksum tells what is damaged
        key, most = TABLE_KEYS[table][0], self._bytes() // MIN_ROW_BYTES
        inside = f"WHERE {key} BETWEEN 0 AND {most} ORDER BY {key}"
        with self._allowing_values(MAX_PIECE_BYTES if table in PACKED else 0):
            rows = self._intact(table, inside) | self._intact(table, f"{inside} DESC")
            position = 0
            while position < max(rows, default=0):
                if position not in rows:
                    rows |= self._intact(table, f"WHERE {key} = {position}")
                position += rows[position][2] if position in rows and table in PACKED else 1
        return self._sound(table, dict(sorted(rows.items())))

    def _intact(self, table: str, condition: str) -> dict[int, Row]:
        """Return by their key the rows under a *condition*, up to the first that SQLite cannot read."""
        rows: dict[int, Row] = {}
        packed, room = table in PACKED, MAX_EXPANSION * self._bytes()
        with suppress(DamagedTrials), self._limited_query():
            for row in self._connection.execute(f"{select_query(table)} {condition}"):
                if piece_is_sound(row) if packed else checksum_holds(row):
                    rows[row[0]] = row
                    room -= len(row[-1]) if packed else 0
                    self._check_room(room)
        return rows

    def _sound(self, table: str, rows: dict[int, Row]) -> dict[int, Row]:
        """Return the rows whose cells are right."""
        if table == "batches":
            return {key: row for key, row in rows.items() if is_sound_batch(row)}
        shape = _usual_shape(rows.values()) if self.problem is None else TrialShape.for_problem(self.problem)
        return {key: row for key, row in rows.items() if _is_sound(row, shape)}


def holds_trials(path: Path) -> bool:
    """Return whether there is a database with trials, or a damaged one; a search killed early leaves an empty one."""
    if not os.path.lexists(path):
        return False
    try:
        with Storage.opened(path) as storage:
            return not storage.is_empty()
    except StudyError:
        return True


def has_lost_trials(path: Path) -> bool:
    """Return whether there is no database where a study.json says that there was one: it is written after it."""
    if not os.path.lexists(path):
        return True
    with Storage.opened(path) as storage:
        return storage.is_empty() and not storage.rows("SELECT name FROM sqlite_master WHERE name = 'inputs'")


def _batch_row(batch: BatchRecord) -> Row:
    return with_checksum(batch.batch, batch.asked, batch.trials)


def _unpack_row(content: bytes, count: int, position: int, shape: TrialShape) -> Trials:
    try:
        return unpack_piece(content, count, shape)
    except ValueError:
        raise WrongRow(position) from None


def _is_sound(row: Row, shape: TrialShape) -> bool:
    with suppress(ValueError):
        unpack_piece(row[4], row[2], shape)
        return True
    return False


def _usual_shape(rows: Iterable[Row]) -> TrialShape:
    """Return the shape that most rows have."""
    widths = [piece_width(row[4]) for row in rows if len(row[4]) >= HEADER_STRUCT.size]
    return TrialShape(Counter(widths).most_common(1)[0][0] if widths else 0)
