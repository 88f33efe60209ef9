"""Trials on disk: one SQLite file in write-ahead mode, in which every row has a checksum.

A batch is written in one transaction, so readers, and a search that is resumed after a crash, see whole batches. No
trial is recorded as running. SQLite detects missing pages, the checksums detect changed bits, and the number of trials
is checked against the batches.

The file may come from anybody. So its tables must be exactly those below, its cells are checked (`cells`), and a query
ends after as many steps as the size of the file explains.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf, isnan
from pathlib import Path
from typing import Any, Self

import numpy as np

from cosmic.errors import BackendError, one_line, shorten
from cosmic.exploration.agent import Floats
from cosmic.exploration.problem import METRICS, Problem, Results
from cosmic.exploration.studies import cells
from cosmic.exploration.studies.cells import BatchRecord, Row, Shape, Wrong, checksum_holds, with_checksum
from cosmic.exploration.studies.folder import MOST_INPUT_BYTES, complaint, database_files
from cosmic.exploration.trials import Trials, joined
from cosmic.psa.diagram import Indices

FIXED = ("trial", "batch", "point", "counted", "reasons", "excess")
COLUMNS = (*FIXED, *METRICS, "crc")
BATCH_COLUMNS = ("batch", "asked", "trials", "crc")
_TYPES = {"trial": "INTEGER PRIMARY KEY", "batch": "INTEGER", "point": "BLOB", "counted": "INTEGER", "reasons": "TEXT"}
_FIELDS = ", ".join(f"{name} {_TYPES.get(name, 'INTEGER' if name == 'crc' else 'REAL')}" for name in COLUMNS)
TABLES = ("trials", "salvaged")
"""The trials of a search, and results that `cosmic doctor` saved apart, to be looked up instead of evaluated again."""
SCHEMA = {
    "inputs": "CREATE TABLE inputs (name TEXT PRIMARY KEY, content TEXT NOT NULL)",
    "batches": "CREATE TABLE batches (batch INTEGER PRIMARY KEY, asked INTEGER, trials INTEGER, crc INTEGER)",
    **{table: f"CREATE TABLE {table} ({_FIELDS})" for table in TABLES},
}
"""Every table, as SQLite keeps its definition. Nothing else may be in the file: a view can run for ever."""
_OWN_INDEX = ("index", "sqlite_autoindex_inputs_1", "inputs", None)
LONGEST_ROW = 2**17
"""The longest row that is read: a file may state any length."""
AT_ONCE = 2048
"""How many rows are read before they are checked."""
LEAST_STEPS, STEPS_PER_BYTE = 20_000_000, 10
"""A query may take so many steps of SQLite's machine, and so many more for each byte of the file: a scan takes 1."""
_STEPS = 100_000
"""After how many steps they are counted."""
SMALLEST_ROW = 32
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


class Damaged(StudyError):  # noqa: N818  its base says that it is an error
    """The trials of a study are damaged."""

    def __init__(self, path: Path, what: str) -> None:
        folder = path.parent
        super().__init__(f"{folder}: its trials are damaged ({what}): 'cosmic doctor {folder}' saves the rest")
        self.what = what


class Storage:
    """The database of one study."""

    def __init__(self, path: Path, connection: sqlite3.Connection, problem: Problem | None = None) -> None:
        self.path = path
        self.problem = problem
        """The problem that was searched: trials that it cannot have are damage; None: they are not compared."""
        self._connection = connection
        self._left = inf
        """How many steps the query that runs may still take."""

    @classmethod
    @contextmanager
    def opened(
        cls, path: Path, *, write: bool = False, problem: Problem | None = None, strict: bool = True
    ) -> Iterator[Self]:
        """Yield the database at *path*, to read or to *write*; to write creates it.

        One that holds anything but the known tables is damaged; if not *strict*, that is left to the caller.
        """
        if wrong := complaint(database_files(path)):
            raise StudyError(f"{path.parent}: {wrong}")
        with _explained(path):
            connection = sqlite3.connect(_address(path, write), uri=True, isolation_level=None, timeout=30)
        try:
            storage = cls(path, connection, problem)
            storage._guard(write)
            if strict and (foreign := storage.foreign()):
                raise Damaged(path, foreign[0])
            if write:
                storage._prepare()
            yield storage
        finally:
            connection.close()

    def _guard(self, write: bool) -> None:
        """Limit what a file can make SQLite do."""
        for limit, most in _LIMITS.items():
            self._connection.setlimit(limit, most)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_ROW)
        self._connection.set_progress_handler(self._is_endless, _STEPS)
        with _explained(self.path):
            for pragma in (*_PRAGMAS, *(() if write else ("query_only = ON",))):
                self._connection.execute(f"PRAGMA {pragma}")

    def _is_endless(self) -> bool:
        self._left -= _STEPS
        return self._left < 0

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Run a query that takes no more steps than the size of the file explains; an error is a sentence."""
        self._left = LEAST_STEPS + STEPS_PER_BYTE * self._bytes()
        try:
            with _explained(self.path):
                yield
        except MemoryError as error:
            raise Damaged(self.path, "it states a size larger than the memory") from error
        finally:
            self._left = inf

    def _bytes(self) -> int:
        """Return how many bytes the file and its log have on the disk; holes do not count."""
        found = 0
        for path in database_files(self.path)[:2]:
            with suppress(OSError):
                about = path.stat()
                found += min(about.st_size, 512 * getattr(about, "st_blocks", 2**60))
        return found

    def foreign(self) -> list[str]:
        """Return what the file holds besides the known tables; no search makes it."""
        found = []
        for kind, name, table, text in self.rows("SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT 20"):
            if (kind, name, table, text) != _OWN_INDEX and (kind, name, text) != ("table", table, SCHEMA.get(name)):
                found.append(f"no search makes its {one_line(str(kind)[:20])} {shorten(name)}")
        return found

    def _prepare(self) -> None:
        with _explained(self.path):
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            for text in SCHEMA.values():
                self._connection.execute(text.replace("TABLE", "TABLE IF NOT EXISTS", 1))

    # --------------------------------------------------------------------------------------------- writing

    def append(self, written: BatchRecord, trials: Trials, first: int) -> None:
        """Add a batch whose trials are numbered from *first*, in one transaction."""
        rows = _records(first, np.full(len(trials), written.batch), trials)
        with self._transaction():
            self._connection.executemany(_insert("trials"), rows)
            self._connection.execute(_insert("batches", 4), _batch_row(written))

    def restore(self, batches: list[BatchRecord], records: dict[str, list[Row]]) -> None:
        """Write the rows that were saved from a damaged file, with their checksums."""
        with self._transaction():
            self._connection.executemany(_insert("batches", 4), map(_batch_row, batches))
            for table, rows in records.items():
                self._connection.executemany(_insert(table), rows)

    def set_inputs(self, content: str) -> None:
        """Keep a copy of the text of study.json, so that either can be restored from the other."""
        with self._long_values(), self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO inputs VALUES ('study', ?)", (content,))

    def set_ending(self, stopped: str, trials: int) -> None:
        """Keep why a search ended after this number of *trials*."""
        with self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO inputs VALUES ('ended', ?)", (f"{stopped} {trials}",))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk may have ended it already
                    self._connection.execute("ROLLBACK")
                raise

    # --------------------------------------------------------------------------------------------- reading

    def inputs(self) -> str | None:
        """Return the copy of the text of study.json; None where there is none."""
        with self._long_values():
            found = self.rows("SELECT content FROM inputs WHERE name = 'study'")
        return found[0][0] if found and isinstance(found[0][0], str) else None

    @contextmanager
    def _long_values(self) -> Iterator[None]:
        """Allow a value as long as a study.json may be."""
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_INPUT_BYTES + LONGEST_ROW)
        try:
            yield
        finally:
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_ROW)

    def ending(self, trials: int) -> str:
        """Return why the search ended after this number of *trials*; an empty text where it has not ended."""
        found = []
        with suppress(Damaged):  # the trials may be intact all the same
            found = self.rows("SELECT content FROM inputs WHERE name = 'ended'")
        stopped, _, count = str(found[0][0]).rpartition(" ") if found else ("", "", "")
        return stopped if count == str(trials) else ""

    def is_empty(self) -> bool:
        """Return whether no batch was written."""
        tables = self.rows("SELECT name FROM sqlite_master WHERE name = 'batches'")
        return not tables or not self.rows("SELECT 1 FROM batches LIMIT 1")

    def batches(self) -> list[BatchRecord]:
        """Return every batch, in order."""
        found: list[BatchRecord] = []
        query = f"SELECT {', '.join(BATCH_COLUMNS)} FROM batches ORDER BY batch"
        try:
            for rows in self._chunks(query):
                found += cells.read_batches(rows, len(found))
        except Wrong as error:
            raise Damaged(self.path, f"batch {error.place} is not what was written") from None
        return found

    def trials(self, table: str = "trials") -> Trials:
        """Return every trial, each checked against its checksum."""
        return self.history()[1] if table == "trials" else self._whole(table)[1]

    def history(self) -> tuple[list[BatchRecord], Trials]:
        """Return every batch and every trial, from one snapshot."""
        with _explained(self.path):
            self._connection.execute("BEGIN")
        try:
            batches, (of_batch, trials) = self.batches(), self._whole("trials")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        sizes = [batch.trials for batch in batches]
        if sum(sizes) != len(trials):
            raise Damaged(self.path, f"{sum(sizes)} trials were written, {len(trials)} are there")
        if not np.array_equal(np.repeat(np.arange(len(sizes)), sizes), of_batch):
            raise Damaged(self.path, "trials are not in the batches that they were written with")
        return batches, trials

    def since(self, first: int, most: int) -> Trials:
        """Return at most *most* trials from *first* on, each checked against its checksum."""
        return self._whole("trials", first, most)[1]

    def _whole(self, table: str, first: int = 0, most: int = -1) -> tuple[Indices, Trials]:
        """Return at most *most* rows from *first* on (all where *most* is negative) and their batches, each checked.

        Pages of a crafted file can be part of many rows, and a small file would fill the memory: rows that together are
        longer than the file are damage.
        """
        query = f"SELECT {', '.join(COLUMNS)} FROM {table} WHERE trial >= ? ORDER BY trial LIMIT ?"
        shape, place, parts, left = Shape.of(self.problem), first, [], self._bytes()
        try:
            for rows in self._chunks(query, (first, most)):
                shape = shape.given(rows)
                parts.append(cells.read_trials(rows, place, shape))
                place += len(rows)
                left -= cells.bytes_of(parts[-1][1])
                if left < 0:
                    raise Damaged(self.path, "its rows are longer than the file")
        except Wrong as error:
            raise Damaged(self.path, f"trial {error.place} is not what was written") from None
        if self.rows(f"SELECT 1 FROM {table} WHERE trial < 0 LIMIT 1"):
            raise Damaged(self.path, "trials have numbers below 0")
        if not parts:
            return np.empty(0, dtype=np.int64), cells.empty(shape)
        return np.concatenate([batches for batches, _ in parts]), joined([trials for _, trials in parts])

    def _chunks(self, query: str, values: tuple[int, ...] = ()) -> Iterator[list[Row]]:
        """Yield the rows of a query, some at a time."""
        with self._reading():
            cursor = self._connection.execute(query, values)
            while rows := cursor.fetchmany(AT_ONCE):
                yield rows

    def readable(self, table: str) -> dict[int, Row]:
        """Return by their key the rows of a damaged table that SQLite can read and whose checksums and cells are right.

        A damaged page ends a scan, so the table is scanned from both ends; rows in between are looked up one by one.
        """
        if not self.has(table):
            return {}
        self._connection.text_factory = lambda text: text.decode(errors="replace")  # a checksum tells what is damaged
        key, columns = ("batch", BATCH_COLUMNS) if table == "batches" else ("trial", COLUMNS)
        select, most = f"SELECT {', '.join(columns)} FROM {table}", self._bytes() // SMALLEST_ROW
        inside = f"WHERE {key} BETWEEN 0 AND {most} ORDER BY {key}"
        found = self._intact(f"{select} {inside}") | self._intact(f"{select} {inside} DESC")
        for place in range(max(found, default=0)):
            if place not in found:
                found |= self._intact(f"{select} WHERE {key} = {place}")
        return self._sound(table, dict(sorted(found.items())))

    def has(self, table: str) -> bool:
        """Return whether there is this table, defined as a search defines it."""
        query = f"SELECT sql FROM sqlite_master WHERE type = 'table' AND name = '{table}'"
        with suppress(Damaged):
            return bool(self.rows(query) == [(SCHEMA[table],)])
        return False

    def _sound(self, table: str, found: dict[int, Row]) -> dict[int, Row]:
        """Return the rows whose cells are right."""
        if table == "batches":
            return {key: row for key, row in found.items() if cells.is_batch(row)}
        rows = list(found.values())
        widths = [len(row[2]) // 4 for row in rows if isinstance(row[2], bytes)]
        usual = Shape(max(set(widths), key=widths.count)) if widths else Shape(0)
        shape = usual if self.problem is None else Shape.of(self.problem)
        return {row[0]: row for row in cells.sound(rows, shape)}

    def _intact(self, query: str) -> dict[int, Row]:
        """Return by their first column the rows of *query* up to the first that SQLite cannot read."""
        found = {}
        with suppress(Damaged), self._reading():
            for row in self._connection.execute(query):
                if checksum_holds(row):
                    found[row[0]] = row
        return found

    def problems(self) -> list[str]:
        """Return the findings of SQLite's integrity check; none for an intact file."""
        try:
            found = [str(row[0]) for row in self.rows("PRAGMA integrity_check(20)")]
        except Damaged as error:
            return [error.what]
        return [each for each in found if each != "ok"]

    def rows(self, query: str) -> list[Any]:
        """Return the rows of a query; an error is a sentence that says what to do."""
        with self._reading():
            return self._connection.execute(query).fetchall()


def holds_trials(path: Path) -> bool:
    """Return whether there is a database with trials, or a damaged one; a search killed early leaves an empty one."""
    if not os.path.lexists(path):
        return False
    try:
        with Storage.opened(path) as storage:
            return not storage.is_empty()
    except StudyError:
        return True


def _address(path: Path, write: bool) -> str:
    """Return the URI of the file for SQLite; immutable in a read-only directory, where it cannot create locks."""
    mode = "rwc" if write else "ro"
    alone = not write and not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()
    return f"{path.absolute().as_uri()}?mode={mode}{'&immutable=1' if alone else ''}"


# ------------------------------------------------------------------------------------------------- records


def _insert(table: str, columns: int = len(COLUMNS)) -> str:
    return f"INSERT INTO {table} VALUES ({', '.join('?' * columns)})"


def _batch_row(batch: BatchRecord) -> Row:
    return with_checksum(batch.batch, batch.asked, batch.trials)


def _records(first: int, batches: Indices, trials: Trials) -> Iterator[Row]:
    """Yield trials as rows of the database, each with its checksum."""
    results = trials.results
    points = [row.tobytes() for row in trials.rows.astype(cells.INDEX)]
    numbers = _numbers(results)
    facts = zip(batches.tolist(), points, results.counted.tolist(), results.reasons, numbers.tolist(), strict=True)
    for trial, (batch, point, counted, reasons, (excess, *metrics)) in enumerate(facts, first):
        values = [None if isnan(value) else value for value in metrics]  # SQLite stores NaN as NULL
        yield with_checksum(trial, batch, point, int(counted), reasons, excess, *values)


def _numbers(results: Results) -> Floats:
    numbers = np.stack([results.excess, *(results.columns[name] for name in METRICS)], axis=1)
    return np.asarray(numbers + 0.0)  # SQLite stores -0.0 as 0.0


# -------------------------------------------------------------------------------------------------- errors


def out_of_space(path: Path) -> StudyError:
    """Return the error of a study on a full disk."""
    rule = "the disk is full; every finished batch is safe: make room, then go on with --resume"
    return StudyError(f"{path.parent}: {rule}")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
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
            raise Damaged(path, "to read it takes more steps than its size explains") from error
        raise Damaged(path, str(error)) from error
