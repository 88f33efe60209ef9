"""Trials on disk: one SQLite file in write-ahead mode, in which every row has a checksum.

A batch is written in one transaction, so readers, and a search that is resumed after a crash, see whole batches. No
trial is recorded as running. SQLite detects missing pages, the checksums detect changed bits, and the number of trials
is checked against the batches.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any, Self
from zlib import crc32

import numpy as np

from cosmic.errors import BackendError
from cosmic.exploration.agent import Floats
from cosmic.exploration.problem import METRICS, Results
from cosmic.exploration.trials import Trials
from cosmic.psa.diagram import Indices

FIXED = ("trial", "batch", "point", "counted", "reasons", "excess")
COLUMNS = (*FIXED, *METRICS, "crc")
BATCH_COLUMNS = ("batch", "asked", "trials", "crc")
_TYPES = {"trial": "INTEGER PRIMARY KEY", "batch": "INTEGER", "point": "BLOB", "counted": "INTEGER", "reasons": "TEXT"}
_FIELDS = ", ".join(f"{name} {_TYPES.get(name, 'INTEGER' if name == 'crc' else 'REAL')}" for name in COLUMNS)
TABLES = ("trials", "salvaged")
"""The trials of a search, and results that `cosmic doctor` saved apart, to be looked up instead of evaluated again."""
NO_BATCH = -1
"""The batch of a salvaged trial."""
LONGEST_BYTES = 2**26
"""The longest value that is read: a damaged file may state any length."""
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS inputs (name TEXT PRIMARY KEY, content TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS batches (batch INTEGER PRIMARY KEY, asked INTEGER, trials INTEGER, crc INTEGER)",
    *(f"CREATE TABLE IF NOT EXISTS {table} ({_FIELDS})" for table in TABLES),
)


_INDEX = "<u4"
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


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A batch on disk."""

    batch: int
    asked: int
    """How many points the agent was asked for; only new ones are trials."""
    trials: int


class Storage:
    """The database of one study."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    @contextmanager
    def opened(cls, path: Path, *, write: bool = False) -> Iterator[Self]:
        """Yield the database at *path*, to read or to *write*; to write creates it."""
        with _explained(path):
            connection = sqlite3.connect(_address(path, write), uri=True, isolation_level=None, timeout=30)
        try:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_BYTES)
            storage = cls(path, connection)
            if write:
                storage._prepare()
            yield storage
        finally:
            connection.close()

    def _prepare(self) -> None:
        with _explained(self.path):
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            for statement in _SCHEMA:
                self._connection.execute(statement)

    # --------------------------------------------------------------------------------------------- writing

    def append(self, written: BatchRecord, trials: Trials, first: int) -> None:
        """Add a batch whose trials are numbered from *first*, in one transaction."""
        rows = _records(first, np.full(len(trials), written.batch), trials)
        with self._transaction():
            self._connection.executemany(_insert("trials"), rows)
            self._connection.execute(_insert("batches", 4), _batch_row(written))

    def restore(self, batches: list[BatchRecord], records: dict[str, list[tuple[Any, ...]]]) -> None:
        """Write the rows that were saved from a damaged file, with their checksums."""
        with self._transaction():
            self._connection.executemany(_insert("batches", 4), map(_batch_row, batches))
            for table, rows in records.items():
                self._connection.executemany(_insert(table), rows)

    def set_inputs(self, content: str) -> None:
        """Keep a copy of the text of study.json, so that either can be restored from the other."""
        with self._transaction():
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
        found = self.rows("SELECT content FROM inputs WHERE name = 'study'")
        return found[0][0] if found and isinstance(found[0][0], str) else None

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
        for row in self.rows(f"SELECT {', '.join(BATCH_COLUMNS)} FROM batches ORDER BY batch"):
            if not checksum_holds(row) or row[0] != len(found):
                raise Damaged(self.path, f"batch {len(found)} is not what was written")
            found.append(BatchRecord(*row[:-1]))
        return found

    def count(self, table: str = "trials") -> int:
        """Return how many trials there are."""
        return int(self.rows(f"SELECT COUNT(*) FROM {table}")[0][0])

    def trials(self, table: str = "trials") -> Trials:
        """Return every trial, each checked against its checksum."""
        return self.history()[1] if table == "trials" else as_trials(self._whole(table))

    def history(self) -> tuple[list[BatchRecord], Trials]:
        """Return every batch and every trial, from one snapshot."""
        with _explained(self.path):
            self._connection.execute("BEGIN")
        try:
            batches, rows = self.batches(), self._whole("trials")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        wanted = [batch.batch for batch in batches for _ in range(batch.trials)]
        if wanted != [row[1] for row in rows]:
            raise Damaged(self.path, f"{len(wanted)} trials were written, {len(rows)} are there")
        return batches, as_trials(rows)

    def since(self, first: int, most: int) -> Trials:
        """Return at most *most* trials from *first* on, each checked against its checksum."""
        return as_trials(self._whole("trials", first, most))

    def _whole(self, table: str, first: int = 0, most: int = -1) -> list[tuple[Any, ...]]:
        """Return at most *most* rows from *first* on (all where *most* is negative), each checked."""
        rows: list[tuple[Any, ...]] = self.rows(
            f"SELECT {', '.join(COLUMNS)} FROM {table} WHERE trial >= {first} ORDER BY trial LIMIT {most}"
        )
        for place, row in enumerate(rows, first):
            if not checksum_holds(row) or row[0] != place:
                raise Damaged(self.path, f"trial {place} is not what was written")
        return rows

    def readable(self, table: str) -> dict[int, tuple[Any, ...]]:
        """Return by their key the rows of a damaged table that SQLite can read and whose checksums hold.

        A damaged page ends a scan, so the table is scanned from both ends; rows in between are looked up one by one.
        """
        self._connection.text_factory = lambda text: text.decode(errors="replace")  # a checksum tells what is damaged
        key, columns = ("batch", BATCH_COLUMNS) if table == "batches" else ("trial", COLUMNS)
        select = f"SELECT {', '.join(columns)} FROM {table}"
        found = self._intact(f"{select} ORDER BY {key}") | self._intact(f"{select} ORDER BY {key} DESC")
        for place in range(max(found, default=0)):
            if place not in found:
                found |= self._intact(f"{select} WHERE {key} = {place}")
        return dict(sorted(found.items()))

    def _intact(self, query: str) -> dict[int, tuple[Any, ...]]:
        """Return by their first column the rows of *query* up to the first that SQLite cannot read."""
        found = {}
        with suppress(Damaged, MemoryError), _explained(self.path):
            for row in self._connection.execute(query):
                if checksum_holds(row):
                    found[row[0]] = row
        return found

    def problems(self) -> list[str]:
        """Return the findings of SQLite's integrity check; none for an intact file."""
        try:
            found = [str(row[0]) for row in self._connection.execute("PRAGMA integrity_check(20)")]
        except (sqlite3.Error, MemoryError) as error:
            return [str(error)]
        return [each for each in found if each != "ok"]

    def rows(self, query: str) -> list[Any]:
        """Return the rows of a query; an error is a sentence that says what to do."""
        with _explained(self.path):
            try:
                return self._connection.execute(query).fetchall()
            except MemoryError as error:
                raise Damaged(self.path, "it states a size larger than the memory") from error


def holds_trials(path: Path) -> bool:
    """Return whether there is a database with trials, or a damaged one; a search killed early leaves an empty one."""
    if not path.exists():
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


def _batch_row(batch: BatchRecord) -> tuple[Any, ...]:
    return with_checksum(batch.batch, batch.asked, batch.trials)


def _records(first: int, batches: Indices, trials: Trials) -> Iterator[tuple[Any, ...]]:
    """Yield trials as rows of the database, each with its checksum."""
    results = trials.results
    points = [row.tobytes() for row in trials.rows.astype(_INDEX)]
    numbers = _numbers(results)
    facts = zip(batches.tolist(), points, results.counted.tolist(), results.reasons, numbers.tolist(), strict=True)
    for trial, (batch, point, counted, reasons, (excess, *metrics)) in enumerate(facts, first):
        values = [None if isnan(value) else value for value in metrics]  # SQLite stores NaN as NULL
        yield with_checksum(trial, batch, point, int(counted), reasons, excess, *values)


def _numbers(results: Results) -> Floats:
    numbers = np.stack([results.excess, *(results.columns[name] for name in METRICS)], axis=1)
    return np.asarray(numbers + 0.0)  # SQLite stores -0.0 as 0.0


def _crc(*values: Any) -> int:
    """Return a checksum of the exact text of *values*, which is different for different floats."""
    return crc32(repr(values).encode())


def with_checksum(*values: Any) -> tuple[Any, ...]:
    """Return a row of the database: *values* and their checksum."""
    return (*values, _crc(*values))


def checksum_holds(row: tuple[Any, ...]) -> bool:
    """Return whether a row of the database agrees with its checksum."""
    return bool(row[-1] == _crc(*row[:-1]))


def as_trials(rows: list[tuple[Any, ...]]) -> Trials:
    """Return rows of the database as trials."""
    if not rows:
        return Trials(np.empty((0, 0), dtype=np.intp), Results.failed(0, ""))
    _, _, points, counted, reasons, *numbers, _ = zip(*rows, strict=True)
    excess, *metrics = (np.array(column, dtype=np.float64) for column in numbers)
    columns = dict(zip(METRICS, metrics, strict=True))
    found = np.frombuffer(b"".join(points), dtype=_INDEX).reshape(len(rows), -1).astype(np.intp)
    return Trials(found, Results(columns, excess, list(reasons), np.array(counted, dtype=bool)))


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
        raise Damaged(path, str(error)) from error
