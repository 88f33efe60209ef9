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


def _columns(study: Path, table: str) -> list[str]:
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


for _table in ("inputs", "batches"):
    SPOILED[f"{_table}_are_endless"] = partial(endless_view, table=_table)
    SPOILED[f"{_table}_never_come"] = partial(silent_view, table=_table)
    SPOILED[f"{_table}_are_dropped"] = partial(run_sql, statements=[f"DROP TABLE {_table}"])

STATEMENTS = {
    "view_beside": ["CREATE VIEW more AS SELECT 1"],
    "trigger_endless": [
        f"CREATE TRIGGER more BEFORE INSERT ON batches BEGIN SELECT x FROM ({_ENDLESS} SELECT x FROM n); END"
    ],
    "table_beside": ["CREATE TABLE more (x)"],
    "index_of_expression": ["CREATE INDEX more ON packed (abs(batch))"],
    "index_partial": ["CREATE INDEX more ON packed (batch) WHERE batch > 1"],
    "virtual_table": ["CREATE VIRTUAL TABLE more USING fts5(x)"],
    "column_generated": ["ALTER TABLE packed ADD COLUMN more AS (zeroblob(1000000000))"],
    "column_fewer": ["ALTER TABLE packed DROP COLUMN crc"],
    "table_renamed": ["ALTER TABLE packed RENAME TO others"],
    "trials_with_a_gap": ["DELETE FROM packed WHERE batch = 2"],
    "batches_deleted": ["DELETE FROM batches"],
    "inputs_deleted": ["DELETE FROM inputs"],
    "copy_is_a_blob": ["UPDATE inputs SET content = x'00ff' WHERE name = 'study'"],
    "copy_is_large": ["UPDATE inputs SET content = CAST(zeroblob(20000000) AS TEXT) WHERE name = 'study'"],
    "ending_is_a_blob": ["UPDATE inputs SET content = x'00ff' WHERE name = 'ended'"],
    "ending_is_long": ["UPDATE inputs SET content = hex(zeroblob(1000000)) WHERE name = 'ended'"],
    "other_page_size": ["PRAGMA journal_mode = DELETE", "PRAGMA page_size = 65536", "VACUUM"],
}
for _name, _statements in STATEMENTS.items():
    SPOILED[f"sql_{_name}"] = partial(run_sql, statements=_statements)


def _schema_text(study: Path, table: str, old: str, new: str) -> None:
    """Change the text of a table's definition and nothing else."""
    with database_of(study) as database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute("UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = ?", (old, new, table))


SPOILED |= {
    "schema_check": partial(_schema_text, table="packed", old="crc INTEGER", new="crc INTEGER CHECK (crc < 1)"),
    "schema_default": partial(_schema_text, table="packed", old="crc INTEGER", new="crc INTEGER DEFAULT (random())"),
    "schema_no_rowid": partial(_schema_text, table="packed", old="BLOB)", new="BLOB) WITHOUT ROWID"),
    "schema_collation": partial(_schema_text, table="inputs", old="name TEXT", new="name TEXT COLLATE NOCASE"),
    "schema_generated": partial(
        _schema_text, table="packed", old="crc INTEGER", new="crc INTEGER AS (hex(zeroblob(9999999)))"
    ),
    "schema_nonsense": partial(_schema_text, table="packed", old="CREATE", new="DESTROY"),
    "schema_another_page": partial(
        run_sql,
        statements=["PRAGMA writable_schema = ON", "UPDATE sqlite_master SET rootpage = 1 WHERE name = 'packed'"],
    ),
    "schema_same_page": partial(
        run_sql,
        statements=[
            "PRAGMA writable_schema = ON",
            "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE name = 'packed')"
            " WHERE name = 'packed_salvaged'",
        ],
    ),
}


SMALL_PAGE = 512
"""Bytes of a page with which even the table of a small study is a tree."""


def _with_small_pages(study: Path) -> bytearray:
    """Return the bytes of the database after its pages were made small."""
    run_sql(study, ["PRAGMA journal_mode = DELETE", f"PRAGMA page_size = {SMALL_PAGE}", "VACUUM"])
    content = bytearray((study / "trials.db").read_bytes())
    assert any(content[start] == 5 for start in range(SMALL_PAGE, len(content), SMALL_PAGE))
    return content


@spoils
def trials_page_repeated(study: Path) -> None:
    """A tree whose branches all lead to the same page: the same trials again and again."""
    content, page = _with_small_pages(study), SMALL_PAGE
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
    content, page = _with_small_pages(study), SMALL_PAGE
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

BATCHES: dict[str, list[Any]] = {
    "trials": [10**12, -1, "x", None, 0, 1.5, 2**62],
    "asked": [10**12, -1, "x", None, 10**6 + 1, b"x", 0],
}
for _column, _values in BATCHES.items():
    for _place, _value in enumerate(_values):
        SPOILED[f"batch_{_column}_{_place}"] = partial(set_cell, column=_column, value=_value, row=1)


@spoils
def batch_numbers_far(study: Path) -> None:
    """A batch at the end of all numbers."""
    with database_of(study) as database:
        database.execute("UPDATE batches SET batch = 9223372036854775807 WHERE batch = 2")
        sign(database, "batches")
