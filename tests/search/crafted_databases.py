"""Crafted studies: tables, rows and cells that no search writes."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from tests.search.spoiling import Spoils, database_of, run_sql, set_cell, sign

SPOILED = Spoils()
spoils = SPOILED.add

# ---- the database

_ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"


def _columns(study: Path, table: str = "trials") -> list[str]:
    with closing(sqlite3.connect(study / "trials.db")) as database:
        return [row[1] for row in database.execute(f"PRAGMA table_info({table})")]


def endless_view(study: Path, table: str) -> None:
    """A view without end in the place of a table."""
    columns = ", ".join(f"x AS {name}" for name in _columns(study, table))
    run_sql(study, [f"DROP TABLE {table}", f"CREATE VIEW {table} AS {_ENDLESS} SELECT {columns} FROM n"])


def silent_view(study: Path, table: str) -> None:
    """A view in the place of a table that never has a row."""
    columns = ", ".join(f"x AS {name}" for name in _columns(study, table))
    run_sql(study, [f"DROP TABLE {table}", f"CREATE VIEW {table} AS {_ENDLESS} SELECT {columns} FROM n WHERE x < 0"])


for _table in ("inputs", "batches", "trials", "salvaged"):
    SPOILED[f"{_table}_are_endless"] = partial(endless_view, table=_table)
    SPOILED[f"{_table}_never_come"] = partial(silent_view, table=_table)
    SPOILED[f"{_table}_are_dropped"] = partial(run_sql, statements=[f"DROP TABLE {_table}"])

STATEMENTS = {
    "view_beside": ["CREATE VIEW more AS SELECT 1"],
    "trigger": ["CREATE TRIGGER more AFTER INSERT ON trials BEGIN DELETE FROM batches; END"],
    "trigger_endless": [
        f"CREATE TRIGGER more BEFORE INSERT ON batches BEGIN SELECT x FROM ({_ENDLESS} SELECT x FROM n); END"
    ],
    "table_beside": ["CREATE TABLE more (x)"],
    "index_of_expression": ["CREATE INDEX more ON trials (abs(batch))"],
    "index_partial": ["CREATE INDEX more ON trials (batch) WHERE batch > 1"],
    "index_plain": ["CREATE INDEX more ON trials (step_s)"],
    "virtual_table": ["CREATE VIRTUAL TABLE more USING fts5(x)"],
    "column_more": ["ALTER TABLE trials ADD COLUMN more TEXT"],
    "column_generated": ["ALTER TABLE trials ADD COLUMN more AS (zeroblob(1000000000))"],
    "column_fewer": ["ALTER TABLE trials DROP COLUMN mfu"],
    "column_renamed": ["ALTER TABLE trials RENAME COLUMN mfu TO ufm"],
    "table_renamed": ["ALTER TABLE trials RENAME TO others"],
    "trials_deleted": ["DELETE FROM trials"],
    "trials_with_a_gap": ["DELETE FROM trials WHERE trial = 5"],
    "batches_deleted": ["DELETE FROM batches"],
    "inputs_deleted": ["DELETE FROM inputs"],
    "copy_is_a_blob": ["UPDATE inputs SET content = x'00ff' WHERE name = 'study'"],
    "copy_is_large": ["UPDATE inputs SET content = CAST(zeroblob(20000000) AS TEXT) WHERE name = 'study'"],
    "ending_is_a_blob": ["UPDATE inputs SET content = x'00ff' WHERE name = 'ended'"],
    "ending_is_long": ["UPDATE inputs SET content = hex(zeroblob(1000000)) WHERE name = 'ended'"],
    "crc_is_text": ["UPDATE trials SET crc = 'x' WHERE trial = 3"],
    "crc_is_none": ["UPDATE trials SET crc = NULL WHERE trial = 3"],
    "reasons_not_utf8": ["UPDATE trials SET reasons = CAST(x'ff' AS TEXT) WHERE trial = 3"],
    "other_page_size": ["PRAGMA journal_mode = DELETE", "PRAGMA page_size = 65536", "VACUUM"],
    "other_encoding": ["UPDATE trials SET reasons = char(0) WHERE trial = 3"],
}
for _name, _statements in STATEMENTS.items():
    SPOILED[f"sql_{_name}"] = partial(run_sql, statements=_statements)


def _schema_text(study: Path, table: str, old: str, new: str) -> None:
    """Change the text of a table's definition and nothing else."""
    with database_of(study) as database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute("UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = ?", (old, new, table))


SPOILED |= {
    "schema_check": partial(_schema_text, table="trials", old="mfu REAL", new="mfu REAL CHECK (mfu < 1)"),
    "schema_default": partial(_schema_text, table="trials", old="crc INTEGER", new="crc INTEGER DEFAULT (random())"),
    "schema_no_rowid": partial(_schema_text, table="trials", old="crc INTEGER)", new="crc INTEGER) WITHOUT ROWID"),
    "schema_collation": partial(_schema_text, table="inputs", old="name TEXT", new="name TEXT COLLATE NOCASE"),
    "schema_generated": partial(
        _schema_text, table="trials", old="mfu REAL", new="mfu REAL AS (hex(zeroblob(9999999)))"
    ),
    "schema_nonsense": partial(_schema_text, table="trials", old="CREATE", new="DESTROY"),
    "schema_another_page": partial(
        run_sql,
        statements=["PRAGMA writable_schema = ON", "UPDATE sqlite_master SET rootpage = 1 WHERE name = 'trials'"],
    ),
    "schema_same_page": partial(
        run_sql,
        statements=[
            "PRAGMA writable_schema = ON",
            "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE name = 'trials')"
            " WHERE name = 'salvaged'",
        ],
    ),
}


@spoils
def trials_page_repeated(study: Path) -> None:
    """A tree whose branches all lead to the same page: the same trials again and again."""
    content, page = bytearray((study / "trials.db").read_bytes()), 4096
    for start in range(page, len(content), page):
        if content[start] != 5:  # an inner page of a table
            continue
        cells = int.from_bytes(content[start + 3 : start + 5], "big")
        places = [int.from_bytes(content[start + 12 + 2 * n : start + 14 + 2 * n], "big") for n in range(cells)]
        first = content[start + places[0] : start + places[0] + 4]
        for place in (8, *places):  # the last child stands in the head of the page
            content[start + place : start + place + 4] = first
    (study / "trials.db").write_bytes(content)


@spoils
def trials_page_of_itself(study: Path) -> None:
    """A tree whose branches lead back to itself."""
    content, page = bytearray((study / "trials.db").read_bytes()), 4096
    for start in range(page, len(content), page):
        if content[start] == 5:
            content[start + 8 : start + 12] = (start // page + 1).to_bytes(4, "big")
    (study / "trials.db").write_bytes(content)


@spoils
def trials_db_sparse(study: Path) -> None:
    """A file that claims a terabyte."""
    os.truncate(study / "trials.db", 2**40)


@spoils
def trials_db_empty(study: Path) -> None:
    """No database."""
    (study / "trials.db").write_bytes(b"")


@spoils
def trials_db_is_text(study: Path) -> None:
    """No database, but a text."""
    (study / "trials.db").write_bytes(b"not a database" * 1000)


@spoils
def log_is_garbage(study: Path) -> None:
    """A log that is none."""
    (study / "trials.db-wal").write_bytes(b"\x37\x7f\x06\x82" + b"\xff" * 10_000)


@spoils
def index_of_log_is_garbage(study: Path) -> None:
    """The index of a log that is none."""
    (study / "trials.db-shm").write_bytes(b"\xff" * 32768)


# ---- the cells

_LONG = "a reason, " * 100_000
CELLS: dict[str, list[Any]] = {
    "point": [b"", b"\0", b"\xff" * 16, b"\0" * 1_000_000, "text", None, 7, b"\xff\xff\xff\x7f" * 4],
    "counted": [2, -1, "x", None, 0.5, b"", 2**62],
    "reasons": [None, 7, b"x", _LONG, "\x1b[2J\x07", "a\nb\0c", "=cmd()"],
    "excess": [None, "x", -1.0, float("-inf"), 1e308, b"\0"],
    "batch": [None, "x", -1, 10**15, 1.5],
    "step_s": ["x", -1.0, 1e308, float("inf"), float("-inf"), b"\0", 5e-324, 0.0, "nan"],
    "perf_per_bandwidth": ["x", -1.0, 1e308, float("inf"), 0.0, None, 5e-324],
    "memory_bytes": [b"\xff", -1e308, 1e308],
}
for _column, _values in CELLS.items():
    for _place, _value in enumerate(_values):
        SPOILED[f"cell_{_column}_{_place}"] = partial(set_cell, column=_column, value=_value)

BATCHES: dict[str, list[Any]] = {
    "trials": [10**12, -1, "x", None, 0, 1.5, 2**62],
    "asked": [10**12, -1, "x", None, 10**6 + 1, b"x", 0],
}
for _column, _values in BATCHES.items():
    for _place, _value in enumerate(_values):
        SPOILED[f"batch_{_column}_{_place}"] = partial(set_cell, column=_column, value=_value, table="batches", row=1)


@spoils
def every_metric_huge(study: Path) -> None:
    """Numbers beyond what any formula takes."""
    with database_of(study) as database:
        names = _columns(study)[6:-1]
        database.execute(f"UPDATE trials SET excess = 0, counted = 1, {', '.join(f'{name} = 1e308' for name in names)}")
        sign(database, "trials")


@spoils
def every_metric_negative(study: Path) -> None:
    """Numbers that no design has."""
    with database_of(study) as database:
        names = _columns(study)[6:-1]
        database.execute(f"UPDATE trials SET excess = 0, {', '.join(f'{name} = -1e-300' for name in names)}")
        sign(database, "trials")


@spoils
def feasible_without_metrics(study: Path) -> None:
    """Designs that can run, and have no metrics."""
    with database_of(study) as database:
        names = _columns(study)[6:-1]
        database.execute(f"UPDATE trials SET excess = 0, {', '.join(f'{name} = NULL' for name in names)}")
        sign(database, "trials")


@spoils
def nothing_counted(study: Path) -> None:
    """No trial took an evaluation."""
    with database_of(study) as database:
        database.execute("UPDATE trials SET counted = 0")
        sign(database, "trials")


@spoils
def all_points_the_same(study: Path) -> None:
    """The same design in every trial."""
    with database_of(study) as database:
        database.execute("UPDATE trials SET point = (SELECT point FROM trials WHERE trial = 0)")
        sign(database, "trials")


@spoils
def points_empty(study: Path) -> None:
    """Designs without a parameter."""
    with database_of(study) as database:
        database.execute("UPDATE trials SET point = x''")
        sign(database, "trials")


@spoils
def points_wider(study: Path) -> None:
    """A parameter more than the set has."""
    with database_of(study) as database:
        database.execute("UPDATE trials SET point = CAST(point || x'00000000' AS BLOB)")
        sign(database, "trials")


@spoils
def trial_numbers_negative(study: Path) -> None:
    """Trials that count from below."""
    with database_of(study) as database:
        database.execute("UPDATE trials SET trial = trial - 1000")
        sign(database, "trials")


@spoils
def trial_numbers_far(study: Path) -> None:
    """A trial at the end of all numbers."""
    with database_of(study) as database:
        database.execute("UPDATE trials SET trial = 9223372036854775807 WHERE trial = (SELECT MAX(trial) FROM trials)")
        sign(database, "trials")


@spoils
def batch_numbers_far(study: Path) -> None:
    """A batch at the end of all numbers."""
    with database_of(study) as database:
        database.execute("UPDATE batches SET batch = 9223372036854775807 WHERE batch = 2")
        sign(database, "batches")


@spoils
def salvaged_nonsense(study: Path) -> None:
    """Results kept apart that are none."""
    with database_of(study) as database:
        names = _columns(study)
        values = ", ".join("'x'" if name not in ("trial", "crc") else "0" for name in names)
        database.execute(f"INSERT INTO salvaged VALUES ({values})")
        sign(database, "salvaged")


@spoils
def salvaged_points_beyond(study: Path) -> None:
    """Results kept apart of points that the set does not have."""
    with database_of(study) as database:
        database.execute("INSERT INTO salvaged SELECT * FROM trials WHERE trial < 3")
        database.execute("UPDATE salvaged SET batch = -1, trial = trial, point = x'ffffffffffffffffffffffffffffffff'")
        sign(database, "salvaged")


@spoils
def blob_of_many_megabytes(study: Path) -> None:
    """A value larger than any that is read."""
    run_sql(study, ["UPDATE trials SET point = zeroblob(5000000) WHERE trial = 3"])
