"""The tables of a study's database, each exactly as SQLite keeps its definition.

Trials are packed: a row of `packed` holds a batch, or a piece of a large one, in columns. Studies of earlier releases
have a row of `trials` for each trial; they are read, and go on in `packed`. What `cosmic doctor` saved apart, to be
looked up instead of evaluated again, is in `packed_salvaged`, before that in `salvaged`.
"""

from __future__ import annotations

from cosmic.metrics import OF_STEPS

FIXED = ("trial", "batch", "point", "counted", "reasons", "excess")
COLUMNS = (*FIXED, *OF_STEPS, "crc")
"""Of a row for each trial: the metrics that there were then, which are those of a step."""
BATCH_COLUMNS = ("batch", "asked", "trials", "crc")
PACKED_COLUMNS = ("first", "batch", "trials", "crc", "content")
_TYPES = {"trial": "INTEGER PRIMARY KEY", "batch": "INTEGER", "point": "BLOB", "counted": "INTEGER", "reasons": "TEXT"}
_FIELDS = ", ".join(f"{name} {_TYPES.get(name, 'INTEGER' if name == 'crc' else 'REAL')}" for name in COLUMNS)
_PACKED = "first INTEGER PRIMARY KEY, batch INTEGER, trials INTEGER, crc INTEGER, content BLOB"
BY_ROW = ("trials", "salvaged")
PACKED = ("packed", "packed_salvaged")
WRITTEN = {
    "inputs": "CREATE TABLE inputs (name TEXT PRIMARY KEY, content TEXT NOT NULL)",
    "batches": "CREATE TABLE batches (batch INTEGER PRIMARY KEY, asked INTEGER, trials INTEGER, crc INTEGER)",
    **{table: f"CREATE TABLE {table} ({_PACKED})" for table in PACKED},
}
"""The tables of a new study."""
SCHEMA = WRITTEN | {table: f"CREATE TABLE {table} ({_FIELDS})" for table in BY_ROW}
"""Every table. Nothing else may be in the file: a view can run for ever."""
OWN_INDEX = ("index", "sqlite_autoindex_inputs_1", "inputs", None)
KEYS = {
    "batches": ("batch", BATCH_COLUMNS),
    **dict.fromkeys(BY_ROW, ("trial", COLUMNS)),
    **dict.fromkeys(PACKED, ("first", PACKED_COLUMNS)),
}
"""The key and the columns of each table of batches or trials."""


def select(table: str) -> str:
    """Return the query for all columns of a table, without its condition."""
    return f"SELECT {', '.join(KEYS[table][1])} FROM {table}"
