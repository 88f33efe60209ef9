"""Studies as earlier releases wrote them: a row for each trial. Nothing here uses the code that reads them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from math import isnan
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from cosmic.search.study.study_database import BatchRecord
from cosmic.search.study.trial_storage import Storage
from cosmic.search.trials import Trials

METRICS = (
    *("step_s", "ttft_s", "tpot_s", "tokens_per_s", "mfu", "hfu", "memory_bytes", "offloaded_bytes", "cost_usd"),
    *("network_usd", "cost_usd_per_token", "energy_j", "perf_per_bandwidth", "perf_per_network_cost"),
)
_FIELDS = (
    "trial INTEGER PRIMARY KEY, batch INTEGER, point BLOB, counted INTEGER, reasons TEXT, excess REAL, "
    + "".join(f"{name} REAL, " for name in METRICS)
    + "crc INTEGER"
)
SCHEMA = (
    "CREATE TABLE inputs (name TEXT PRIMARY KEY, content TEXT NOT NULL)",
    "CREATE TABLE batches (batch INTEGER PRIMARY KEY, asked INTEGER, trials INTEGER, crc INTEGER)",
    f"CREATE TABLE trials ({_FIELDS})",
    f"CREATE TABLE salvaged ({_FIELDS})",
)
COLUMNS = ("trial", "batch", "point", "counted", "reasons", "excess", *METRICS, "crc")


def signed(*values: Any) -> tuple[Any, ...]:
    """Return a row with its checksum."""
    return (*values, crc32(repr(values).encode()))


def rows_of(batches: list[BatchRecord], trials: Trials) -> Iterator[tuple[Any, ...]]:
    """Yield trials as rows."""
    results, of_batch = trials.results, np.repeat(np.arange(len(batches)), [each.trials for each in batches]).tolist()
    columns = [results.columns[name].tolist() for name in METRICS]
    for trial, (batch, point) in enumerate(zip(of_batch, trials.points.astype("<u4"), strict=True)):
        metrics = [None if isnan(column[trial]) else column[trial] + 0.0 for column in columns]
        facts = (int(results.counted[trial]), results.reasons[trial], float(results.excess[trial]) + 0.0)
        yield signed(trial, batch, point.tobytes(), *facts, *metrics)


def as_rows(study: Path) -> Path:
    """Turn a study into one of format 1; return it."""
    with Storage.opened(study / "trials.db") as storage:
        batches, trials = storage.history()
        kept = storage.rows("SELECT name, content FROM inputs")
    for name in ("trials.db", "trials.db-wal", "trials.db-shm"):
        (study / name).unlink(missing_ok=True)
    content = json.loads((study / "study.json").read_text())
    content = {name: value for name, value in content.items() if name != "sha256"} | {"format": 1}
    text = json.dumps(content | {"sha256": sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}, indent=1)
    (study / "study.json").write_text(text)
    with closing(sqlite3.connect(study / "trials.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = OFF")
        database.execute("BEGIN")
        for statement in SCHEMA:
            database.execute(statement)
        database.executemany("INSERT INTO inputs VALUES (?, ?)", kept)
        database.execute("UPDATE inputs SET content = ? WHERE name = 'study'", (text,))
        facts = (signed(each.batch, each.asked, each.trials) for each in batches)
        database.executemany("INSERT INTO batches VALUES (?, ?, ?, ?)", facts)
        marks = ", ".join("?" * len(COLUMNS))
        database.executemany(f"INSERT INTO trials VALUES ({marks})", rows_of(batches, trials))
        database.execute("COMMIT")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return study
