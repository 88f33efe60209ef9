"""How a study is spoiled: any cell, table, input or file of it changed, with the right checksums."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

from cosmic.search.search_loop import search

Spoil = Callable[[Path], None]
SECRET = "hunter2"
"""What a message must never quote."""


class Spoils(dict[str, Spoil]):
    """Ways to spoil a study, by the name of the harm."""

    def add(self, spoil: Spoil) -> Spoil:
        """Add a function under its own name."""
        self[spoil.__name__] = spoil
        return spoil


def good_study(folder: Path) -> Path:
    """Return a small study in *folder*: some designs are feasible, several pages of trials."""
    good = folder / "good"
    if not good.exists():
        search("cosmic-512-full-stack", agent="random", trials=48, batch=12, seed=1, stacks=["workload"], out=good)
        with closing(sqlite3.connect(good / "trials.db")) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return good


def copied(good: Path, name: str) -> Path:
    """Return a copy of the *good* study beside it."""
    study = good.parent / name
    shutil.rmtree(study, ignore_errors=True)
    study.mkdir()
    for file in ("study.json", "trials.db", "lock"):
        shutil.copyfile(good / file, study / file)
    return study


# ---- tools of the trade


def digest(content: Mapping[str, Any]) -> str:
    """Return the checksum of a study.json."""
    plain = {name: value for name, value in content.items() if name != "sha256"}
    return sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def keep(study: Path, text: str) -> None:
    """Write *text* as study.json, and as its copy among the trials."""
    data = text.encode("utf-8", "surrogatepass")
    (study / "study.json").write_bytes(data)
    with database_of(study) as database:
        database.execute("UPDATE inputs SET content = CAST(? AS TEXT) WHERE name = 'study'", (data,))


@contextmanager
def rewritten(study: Path) -> Iterator[dict[str, Any]]:
    """Yield the content of study.json to change; then write it with its checksum; BESIDE is the folder around it."""
    content = json.loads((study / "study.json").read_text())
    yield content
    content = json.loads(json.dumps(content).replace("BESIDE", str(study.parent)))
    keep(study, json.dumps(content | {"sha256": digest(content)}, indent=1))


@contextmanager
def database_of(study: Path) -> Iterator[sqlite3.Connection]:
    """Yield the trials of a study to change."""
    with closing(sqlite3.connect(study / "trials.db")) as database:
        database.execute("PRAGMA synchronous = OFF")
        yield database
        database.commit()


def run_sql(study: Path, statements: Iterable[str]) -> None:
    """Run statements on the trials."""
    with database_of(study) as database:
        for statement in statements:
            database.execute(statement)


def sign(database: sqlite3.Connection, table: str) -> None:
    """Write the checksum of every row of *table* again, as somebody does who knows how it is computed."""
    names = [row[1] for row in database.execute(f"PRAGMA table_info({table})")][:-1]
    rows = list(database.execute(f"SELECT rowid, {', '.join(names)} FROM {table}"))
    for key, *values in rows:
        crc = crc32(repr(tuple(values)).encode())
        database.execute(f"UPDATE {table} SET crc = ? WHERE rowid = ?", (crc, key))


def set_cell(study: Path, column: str, value: Any, *, row: int) -> None:
    """Set one cell of the table of batches, with the right checksum of its row."""
    with database_of(study) as database:
        database.execute(f"UPDATE batches SET {column} = ? WHERE batch = ?", (value, row))
        sign(database, "batches")


def set_input(study: Path, name: str, value: Any) -> None:
    """Set one of the inputs."""
    with rewritten(study) as content:
        content["inputs"][name] = value


def set_base(study: Path, value: Any) -> None:
    """Set the base of the parameter set."""
    with rewritten(study) as content:
        content["inputs"]["space"]["base"] = value


def change_base(study: Path, layer: str, value: Any) -> None:
    """Set one layer of the base."""
    with rewritten(study) as content:
        content["inputs"]["space"]["base"][layer] = value


def change_space(study: Path, key: str, value: Any) -> None:
    """Set one key of the parameter set."""
    with rewritten(study) as content:
        content["inputs"]["space"][key] = value


def set_about(study: Path, key: str, value: Any) -> None:
    """Set one key of study.json."""
    with rewritten(study) as content:
        content[key] = value


def linked(study: Path, name: str, target: str) -> None:
    """Put a link in the place of a file."""
    (study / name).unlink(missing_ok=True)
    (study / name).symlink_to(target)


def piped(study: Path, name: str) -> None:
    """Put a named pipe in the place of a file."""
    (study / name).unlink(missing_ok=True)
    os.mkfifo(study / name)


def a_folder(study: Path, name: str) -> None:
    """Put a folder in the place of a file."""
    (study / name).unlink(missing_ok=True)
    (study / name / "inside").mkdir(parents=True)
