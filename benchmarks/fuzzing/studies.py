"""Studies whose files are spoilt, with checksums that hold: what a hostile or damaged disk may offer."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import struct
from pathlib import Path
from typing import Any

from cosmic.base.errors import SpecError
from cosmic.search.space.space_files import load_space
from cosmic.search.study.study import INPUTS, LOCK, TRIALS, _inputs_digest
from cosmic.search.study.trial_storage import HEADER_STRUCT, PACKED_COLUMNS, piece_checksum, with_checksum

from .documents import garble, spoil
from .trial import Maker, read_bytes
from .values import FILES, awkward, plain

SCHEMA = (
    "DROP TABLE packed",
    "DROP TABLE batches",
    "DROP TABLE inputs",
    "DROP TABLE packed_salvaged",
    "ALTER TABLE packed DROP COLUMN trials",
    "ALTER TABLE packed RENAME COLUMN content TO stuff",
    "ALTER TABLE packed ADD COLUMN more TEXT",
    "CREATE TABLE extra (a TEXT)",
    "CREATE TABLE trials (trial INTEGER PRIMARY KEY)",
    "DELETE FROM packed",
    "DELETE FROM batches",
    "DELETE FROM packed WHERE first = 1",
    "DELETE FROM inputs",
    "INSERT INTO packed_salvaged SELECT * FROM packed",
    "UPDATE packed SET content = zeroblob(40)",
    "UPDATE inputs SET content = 12345",
    "UPDATE inputs SET content = x'ff00ff'",
    "INSERT INTO inputs VALUES ('ended', 'stalled 40')",
    "UPDATE batches SET trials = trials + 1",
    "PRAGMA user_version = 99",
    "CREATE TRIGGER hook AFTER INSERT ON packed BEGIN DELETE FROM packed; END",
    "ALTER TABLE packed RENAME TO kept; CREATE VIEW packed AS SELECT * FROM kept",
    "PRAGMA journal_mode = DELETE; PRAGMA page_size = 512; VACUUM",
)
CELLS: tuple[Any, ...] = (
    None,
    "",
    "x",
    b"",
    b"\xff" * 7,
    -1,
    0,
    2**31,
    2**62,
    -(2**63),
    1e308,
    -1e308,
    float("inf"),
    1.5,
    "\x1b[31m",
)
FLOATS = (float("nan"), float("inf"), -1.0, -0.0, 0.0, 1e308, 5e-324, 1.5)


def studies(maker: Maker) -> list[str]:
    """Return the words of a command that reads a spoilt study."""
    rng = maker.rng
    folder = maker.stock.copy(rng.choice(maker.stock.studies), maker.folder / "s")
    for _ in range(rng.choice((1, 1, 1, 2))):
        spoilers = (_inputs, _inputs, _inputs, _cells, _cells, _cells, _batches, _schema, _bytes, _replaced)
        with contextlib.suppress(sqlite3.Error, OSError, ValueError):
            rng.choice(spoilers)(maker, folder)
    other = maker.stock.copy(rng.choice(maker.stock.studies), maker.folder / "whole").name
    reading = (
        ["report", "s"],
        ["report", "s", "--out", "page.html"],
        ["study", "compare", "s", other],
        ["study", "compare", other, "s", "--plot", "plot.svg"],
        ["study", "export", "s", "--to", rng.choice(("t.csv", "-", "t.parquet"))],
        ["study", "doctor", "s"],
        ["study", "doctor", "s", "--check"],
    )
    working = (
        ["study", "replay", "s", "--check"],
        ["study", "replay", "s"],
        ["search", "--resume", "--out", "s", "-n", str(rng.choice((10, 50)))],
    )
    words = rng.choice(reading if _simulates(folder) else (*reading, *working))
    return [*words, *(["--json"] if maker.chance(0.3) and "-" not in words else [])]


def _simulates(folder: Path) -> bool:
    """Return whether the study says that its designs were simulated: seconds for each of them, were it run again."""
    with contextlib.suppress(OSError, ValueError):
        return b'"event"' in read_bytes(folder / INPUTS)
    return False


def _inputs(maker: Maker, folder: Path) -> None:
    """Spoil study.json; its checksum and identity usually hold, and the copy in the database often says the same."""
    path = folder / INPUTS
    data = read_bytes(path)
    content = json.loads(data)
    drawn = maker.rng.random()
    if not _is_whole(content):  # it is spoilt already
        path.write_bytes(garble(maker, data))
        return
    if drawn < 0.5:
        _spoil_input(maker, content["inputs"])
    elif drawn < 0.85:
        content["inputs"]["space"] = spoil(maker, content["inputs"]["space"])
        with contextlib.suppress(SpecError):
            content["inputs"]["identity"] = load_space(content["inputs"]["space"]).identity
    else:
        content = spoil(maker, content)
    with contextlib.suppress(TypeError, ValueError, AttributeError, RecursionError):
        if maker.chance(0.9):
            content = dict(content) | {"sha256": _inputs_digest(content)}
    text = json.dumps(content, default=str, skipkeys=True)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    if maker.chance(0.5):
        said = text.encode(errors="replace").decode()
        with contextlib.closing(sqlite3.connect(folder / TRIALS)) as base, base:
            base.execute("UPDATE inputs SET content = ? WHERE name = 'study'", (said,))


def _is_whole(content: Any) -> bool:
    """Return whether the content of study.json still has inputs, and a parameter set among them."""
    inputs = content.get("inputs") if isinstance(content, dict) else None
    return isinstance(inputs, dict) and len(inputs) > 1 and isinstance(inputs.get("space"), dict)


def _spoil_input(maker: Maker, inputs: dict[str, Any]) -> None:
    """Change one input other than the parameter set."""
    rng = maker.rng
    key = rng.choice([name for name in inputs if name != "space"])
    others = {
        "agent": ("random", "exhaustive", "none", "tpe", "../random"),
        "objectives": ([], ["step_s"], ["step_s", "step_s"], ["nothing"], "step_s", ["energy_j", "cost_usd"]),
        "constraints": (["step_s <= 1"], ["step_s"], ["tp <= 2"], [1], ["memory_bytes <= 1 s"]),
        "stacks": (["workload"], ["nothing"], ["network", "network"], [""]),
        "engine": ("event", "ray9", "", None),
        "settings": ({"population": 0}, {"population": 10**9}, {"x": 1}, [], {"population": "a"}, {"": None}),
    }
    numbers = (0, -1, 1, 2**63, 2**64, 1.5, "1", True, None, 10**30)
    choices = others.get(key, numbers if isinstance(inputs[key], int) else ())
    inputs[key] = rng.choice(choices) if choices and maker.chance(0.7) else plain(rng)


def _cells(maker: Maker, folder: Path) -> None:
    """Change packed trials, or another cell of their row; its checksum usually holds."""
    rng = maker.rng
    with contextlib.closing(sqlite3.connect(folder / TRIALS)) as base, base:
        rows = base.execute(f"SELECT {', '.join(PACKED_COLUMNS)} FROM packed").fetchall()
        for row in rows if maker.chance(0.3) else rng.sample(rows, min(1, len(rows))):  # a mutant may have lost them
            first, batch, trials, crc, content = row
            if maker.chance(0.7):
                content = _spoilt(maker, content)
            else:
                values = [first, batch, trials]
                values[rng.randrange(3)] = rng.choice(CELLS)
                first, batch, trials = values
            if maker.chance(0.95):
                crc = piece_checksum(first, batch, trials, content)
            base.execute("DELETE FROM packed WHERE first = ?", (row[0],))
            base.execute("INSERT INTO packed VALUES (?, ?, ?, ?, ?)", (first, batch, trials, crc, content))


def _spoilt(maker: Maker, content: bytes) -> bytes:
    """Return packed trials with numbers changed: awkward ones, at the start or anywhere; or shorter, or longer."""
    rng, changed = maker.rng, bytearray(content)
    for _ in range(rng.choice((1, 1, 5))):
        place = rng.randrange(rng.choice((HEADER_STRUCT.size + 16, len(changed))) or 1)
        drawn = rng.choice(
            (b"\0", b"\xff", b"\xff\xff\xff\x7f", struct.pack("<d", rng.choice(FLOATS)), rng.randbytes(3))
        )
        changed[place : place + len(drawn)] = drawn
    if maker.chance(0.2):
        del changed[rng.randrange(len(changed)) :]
    return bytes(changed)


def _batches(maker: Maker, folder: Path) -> None:
    """Change what is said of a batch; its checksum holds."""
    rng = maker.rng
    with contextlib.closing(sqlite3.connect(folder / TRIALS)) as base, base:
        values: list[Any] = list(rng.choice(base.execute("SELECT batch, asked, trials FROM batches").fetchall()))
        key, place = values[0], rng.randrange(3)
        values[place] = rng.choice((*CELLS, values[place] * 2, 10**12, 10**9))
        base.execute(
            "UPDATE batches SET batch=?, asked=?, trials=?, crc=? WHERE batch=?", (*with_checksum(*values), key)
        )


def _schema(maker: Maker, folder: Path) -> None:
    """Change the tables."""
    with contextlib.closing(sqlite3.connect(folder / TRIALS)) as base:
        base.executescript(maker.rng.choice(SCHEMA))


def _bytes(maker: Maker, folder: Path) -> None:
    """Change bytes of a file."""
    path = folder / maker.rng.choice((INPUTS, TRIALS, TRIALS, "best.yaml"))
    path.write_bytes(garble(maker, read_bytes(path)))


def _replaced(maker: Maker, folder: Path) -> None:
    """Replace a file of the study by something else, or add files that disturb."""
    rng = maker.rng
    name = rng.choice((INPUTS, TRIALS, LOCK, "best.yaml", f"{TRIALS}-wal", f"{TRIALS}-shm", "report.html"))
    path = folder / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if maker.chance(0.2):
        path.write_text(awkward(rng) + str(plain(rng))[:1000], encoding="utf-8", errors="replace")
    else:
        FILES[rng.choice(tuple(FILES))](path)
