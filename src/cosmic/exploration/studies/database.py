"""A database that may come from anybody: opened with limits, searched within bounds, its errors said in sentences.

The file may hold only the known tables, and a query ends after as many steps as the size of the file explains.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from shlex import quote
from typing import Any, Self

from cosmic.errors import BackendError, one_line, shorten
from cosmic.exploration.problem import Problem
from cosmic.exploration.studies.cells import AT_ONCE, Row
from cosmic.exploration.studies.folder import complaint, database_files
from cosmic.exploration.studies.tables import OWN_INDEX, SCHEMA, WRITTEN

LONGEST_ROW = 2**17
"""The longest row that is read: a file may state any length."""
LEAST_STEPS, STEPS_PER_BYTE = 20_000_000, 10
"""A query may take so many steps of SQLite's machine, and so many more for each byte of the file: a scan takes 1."""
STEPS_AT_ONCE = 100_000
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
        super().__init__(
            f"{folder}: its trials are damaged ({what}): 'cosmic doctor {quote(str(folder))}' saves the rest"
        )
        self.what = what


class Database:
    """The SQLite file of one study."""

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
        self._connection.set_progress_handler(self._is_endless, STEPS_AT_ONCE)
        with _explained(self.path):
            for pragma in (*_PRAGMAS, *(() if write else ("query_only = ON",))):
                self._connection.execute(f"PRAGMA {pragma}")

    def _is_endless(self) -> bool:
        self._left -= STEPS_AT_ONCE
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
            if (kind, name, table, text) != OWN_INDEX and (kind, name, text) != ("table", table, SCHEMA.get(name)):
                found.append(f"no search makes its {one_line(str(kind)[:20])} {shorten(name)}")
        return found

    def _prepare(self) -> None:
        with _explained(self.path):
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            for text in WRITTEN.values():
                self._connection.execute(text.replace("TABLE", "TABLE IF NOT EXISTS", 1))

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Read one state of the file, whatever is written meanwhile."""
        with _explained(self.path):
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    @contextmanager
    def _allowing(self, longest: int) -> Iterator[None]:
        """Allow values of so many bytes, and a row's other values beside it."""
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest + LONGEST_ROW)
        try:
            yield
        finally:
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_ROW)

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

    def has(self, table: str) -> bool:
        """Return whether there is this table, defined as a search defines it."""
        query = f"SELECT sql FROM sqlite_master WHERE type = 'table' AND name = '{table}'"
        with suppress(Damaged):
            return bool(self.rows(query) == [(SCHEMA[table],)])
        return False

    def _chunks(self, query: str, values: tuple[int, ...] = (), at_once: int = AT_ONCE) -> Iterator[list[Row]]:
        """Yield the rows of a query, some at a time."""
        with self._reading():
            cursor = self._connection.execute(query, values)
            while rows := cursor.fetchmany(at_once):
                yield rows

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


def _address(path: Path, write: bool) -> str:
    """Return the URI of the file for SQLite; immutable in a read-only directory, where it cannot create locks."""
    mode = "rwc" if write else "ro"
    alone = not write and not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()
    return f"{path.absolute().as_uri()}?mode={mode}{'&immutable=1' if alone else ''}"


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
