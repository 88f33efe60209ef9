"""Trials on disk: one SQLite file in write-ahead mode, every row with a checksum of its own.

A batch is written in one transaction: whoever reads, or comes back after a crash, sees whole batches. No trial is ever
recorded as running, so none can be left so. SQLite finds pages that are missing; the checksums find bits that changed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from cosmic.errors import BackendError
from cosmic.exploration.agent import Floats
from cosmic.exploration.problem import METRICS, Results
from cosmic.exploration.trials import Trials
from cosmic.psa.diagram import Indices

FIXED = ("trial", "batch", "point", "counted", "reasons", "excess")
COLUMNS = (*FIXED, *METRICS, "crc")
_TYPES = {"trial": "INTEGER PRIMARY KEY", "batch": "INTEGER", "point": "BLOB", "counted": "INTEGER", "reasons": "TEXT"}
_FIELDS = ", ".join(f"{name} {_TYPES.get(name, 'INTEGER' if name == 'crc' else 'REAL')}" for name in COLUMNS)
TABLES = ("trials", "salvaged")
"""What a search wrote, and what `cosmic doctor` saved out of order: results that need not be computed again."""
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS inputs (name TEXT PRIMARY KEY, content TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS batches (batch INTEGER PRIMARY KEY, asked INTEGER, trials INTEGER, crc INTEGER)",
    *(f"CREATE TABLE IF NOT EXISTS {table} ({_FIELDS})" for table in TABLES),
)


class StudyError(BackendError):
    """A study cannot be read or written; the sentence says what to do."""


@dataclass(frozen=True, slots=True)
class Written:
    """One batch on disk."""

    batch: int
    asked: int
    """How many points the agent was asked for; fewer are new, and so are trials."""
    trials: int


class Storage:
    """The database of one study."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    @contextmanager
    def opened(cls, path: Path, *, write: bool = False) -> Iterator[Storage]:
        """Yield the database at *path*, to read, or to write (which creates it)."""
        with _explained(path):
            address = f"{path.absolute().as_uri()}?mode={'rwc' if write else 'ro'}"
            connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=30)
        try:
            with _explained(path):
                if write:
                    connection.execute("PRAGMA journal_mode = WAL")
                    connection.execute("PRAGMA synchronous = FULL")
                    for statement in _SCHEMA:
                        connection.execute(statement)
            yield cls(path, connection)
        finally:
            connection.close()

    # --------------------------------------------------------------------------------------------- writing

    def append(self, written: Written, trials: Trials, first: int) -> None:
        """Add a batch whose trials are numbered from *first*, all of it or nothing."""
        rows = _records(first, np.full(len(trials), written.batch), trials)
        with self._transaction():
            self._connection.executemany(_insert("trials"), rows)
            batch = (written.batch, written.asked, written.trials)
            self._connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?)", (*batch, _crc(*batch)))

    def restore(self, batches: list[Written], records: dict[str, list[tuple[Any, ...]]]) -> None:
        """Write what was saved from a damaged file: rows as they were read, checksums included."""
        with self._transaction():
            for batch in batches:
                values = (batch.batch, batch.asked, batch.trials)
                self._connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?)", (*values, _crc(*values)))
            for table, rows in records.items():
                self._connection.executemany(_insert(table), rows)

    def set_inputs(self, content: str) -> None:
        """Keep the study's inputs beside its trials, so that either can be restored from the other."""
        with self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO inputs VALUES ('study', ?)", (content,))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._connection.in_transaction:  # a full disk may have ended it already
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    # --------------------------------------------------------------------------------------------- reading

    def inputs(self) -> str | None:
        """Return the study's inputs as they were kept here."""
        found = self._rows("SELECT content FROM inputs WHERE name = 'study'")
        return found[0][0] if found else None

    def batches(self) -> list[Written]:
        """Return every batch, in order."""
        found: list[Written] = []
        for *values, crc in self._rows("SELECT batch, asked, trials, crc FROM batches ORDER BY batch"):
            if crc != _crc(*values) or values[0] != len(found):
                raise damaged(self.path, f"batch {len(found)} is not what was written")
            found.append(Written(*values))
        return found

    def count(self, table: str = "trials") -> int:
        """Return how many trials there are."""
        return int(self._rows(f"SELECT COUNT(*) FROM {table}")[0][0])

    def trials(self, table: str = "trials") -> Trials:
        """Return every trial, each checked against its checksum."""
        rows = self._rows(f"SELECT {', '.join(COLUMNS)} FROM {table} ORDER BY trial")
        for place, row in enumerate(rows):
            if not is_whole(row) or (table == "trials" and row[0] != place):
                raise damaged(self.path, f"trial {place} is not what was written")
        return as_trials(rows)

    def whole_rows(self, table: str, most: int) -> Iterator[tuple[Any, ...]]:
        """Yield each row of *table* that can be read and is what was written: around the damage, one by one."""
        query = f"SELECT {', '.join(COLUMNS)} FROM {table} WHERE trial = ?"
        for trial in range(most):
            try:
                row = self._connection.execute(query, (trial,)).fetchone()
            except sqlite3.DatabaseError:
                continue
            if row is not None and is_whole(row):
                yield row

    def problems(self) -> list[str]:
        """Return what SQLite finds wrong with its file."""
        try:
            found = [str(row[0]) for row in self._connection.execute("PRAGMA integrity_check(20)")]
        except sqlite3.DatabaseError as error:
            return [str(error)]
        return [each for each in found if each != "ok"]

    def _rows(self, query: str) -> list[Any]:
        with _explained(self.path):
            return self._connection.execute(query).fetchall()


# ------------------------------------------------------------------------------------------------- records


def _insert(table: str) -> str:
    return f"INSERT INTO {table} VALUES ({', '.join('?' * len(COLUMNS))})"


def _records(first: int, batches: Indices, trials: Trials) -> Iterator[tuple[Any, ...]]:
    """Yield trials as rows of the database, each with its checksum."""
    results = trials.results
    points = [row.tobytes() for row in trials.rows.astype("<u2")]
    numbers = _numbers(results)
    facts = zip(batches.tolist(), points, results.counted.tolist(), results.reasons, numbers.tolist(), strict=True)
    for trial, (batch, point, counted, reasons, (excess, *metrics)) in enumerate(facts, first):
        values = [None if isnan(value) else value for value in metrics]  # as SQLite keeps NaN
        crc = _crc(trial, batch, point, int(counted), reasons, excess, *values)
        yield (trial, batch, point, int(counted), reasons, excess, *values, crc)


def _numbers(results: Results) -> Floats:
    return np.stack([results.excess, *(results.columns[name] for name in METRICS)], axis=1)


def _crc(*values: Any) -> int:
    """Return a checksum of *values*: of their exact text, which tells every float from every other."""
    return crc32(repr(values).encode())


def is_whole(row: tuple[Any, ...]) -> bool:
    """Return whether a row of the database is what was written."""
    return bool(row[-1] == _crc(*row[:-1]))


def as_trials(rows: list[tuple[Any, ...]]) -> Trials:
    """Return rows of the database as trials."""
    if not rows:
        return Trials(np.empty((0, 0), dtype=np.intp), Results.failed(0, ""))
    _, _, points, counted, reasons, *numbers, _ = zip(*rows, strict=True)
    excess, *metrics = (np.array(column, dtype=np.float64) for column in numbers)
    columns = dict(zip(METRICS, metrics, strict=True))
    found = np.stack([np.frombuffer(point, dtype="<u2") for point in points]).astype(np.intp)
    return Trials(found, Results(columns, excess, list(reasons), np.array(counted, dtype=bool)))


# -------------------------------------------------------------------------------------------------- errors


def damaged(path: Path, what: str) -> StudyError:
    """Return the error of a study whose files are not whole."""
    return StudyError(f"{path.parent}: its trials are damaged ({what}): 'cosmic doctor {path.parent}' saves the rest")


def out_of_space(path: Path) -> StudyError:
    """Return the error of a study that cannot grow."""
    rule = "the disk is full; every finished batch is safe: make room, then go on with --resume"
    return StudyError(f"{path.parent}: {rule}")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what SQLite says into what a person can do."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "full" in text or "disk I/O" in text:
            raise out_of_space(path) from error
        if "unable to open" in text or "readonly" in text or "locked" in text:
            raise StudyError(f"{path}: {text}") from error
        raise damaged(path, text) from error
    except sqlite3.DatabaseError as error:
        raise damaged(path, str(error)) from error
