"""Crafted studies: packed trials that no search writes, each with the right checksum."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from cosmic.search.study import trial_storage
from cosmic.simulate.metrics import OF_STEPS
from tests.search.crafted_databases import endless_view, silent_view
from tests.search.spoiling import Spoils, database_of, run_sql

SPOILED = Spoils()
spoils = SPOILED.add
Cells = dict[str, Any]
NAMES = ("first", "batch", "trials", "crc", "content")
WIDTHS = {1: "<u1", 2: "<u2", 4: "<u4"}


def rewrite(study: Path, change: Callable[[Cells], None], *, row: int = 2, sign: bool = True) -> None:
    """Change the cells of one row of packed trials, and sign it again."""
    with database_of(study) as database:
        cells = dict(zip(NAMES, list(database.execute("SELECT * FROM packed ORDER BY first"))[row], strict=True))
        was = cells["first"]
        change(cells)
        if sign:
            content = cells["content"] if isinstance(cells["content"], bytes) else b""
            head = repr((cells["first"], cells["batch"], cells["trials"])).encode()
            cells["crc"] = crc32(content, crc32(head))
        database.execute("DELETE FROM packed WHERE first = ?", (was,))
        database.execute("INSERT INTO packed VALUES (?, ?, ?, ?, ?)", list(cells.values()))


def set_packed(study: Path, column: str, value: Any, *, sign: bool = True) -> None:
    """Set one cell."""
    rewrite(study, lambda cells: cells.update({column: value}), sign=sign)


class Content:
    """The parts of packed trials, to change."""

    def __init__(self, cells: Cells) -> None:
        content, n = cells["content"], cells["trials"]
        self.header = list(trial_storage.HEADER_STRUCT.unpack_from(content))
        _, size, metrics, width, text_bytes, _ = self.header
        at = trial_storage.HEADER_STRUCT.size
        self.kinds = bytearray(content[at : at + metrics])
        self.text = content[at + metrics : at + metrics + text_bytes]
        at += metrics + text_bytes
        self.points = np.frombuffer(content, WIDTHS[size], n * width, at).reshape(n, width).copy()
        at += self.points.nbytes
        self.codes = bytearray(content[at : at + n])  # there are few reasons
        self.bits = bytearray(content[at + n : at + n + -(-n // 8)])
        at += n + len(self.bits)
        self.excess = np.frombuffer(content, "<f8", n, at).copy()
        self.numbers = np.frombuffer(content[at + 8 * n :], "<f8").copy()

    def bytes(self) -> bytes:
        """Return the content again; the header says how long the text is."""
        self.header[4] = len(self.text)
        head = trial_storage.HEADER_STRUCT.pack(*self.header)
        numbers = [self.points, self.excess, self.numbers]
        points, excess, metrics = (each.tobytes() for each in numbers)
        return b"".join([head, self.kinds, self.text, points, self.codes, self.bits, excess, metrics])


def change_content(study: Path, change: Callable[[Content], None]) -> None:
    """Change the packed trials of one row."""

    def changed(cells: Cells) -> None:
        content = Content(cells)
        assert content.bytes() == cells["content"]
        change(content)
        cells["content"] = content.bytes()

    rewrite(study, changed)


# ---- tables and cells

for _table in ("packed", "packed_salvaged"):
    SPOILED[f"{_table}_are_endless"] = partial(endless_view, table=_table)
    SPOILED[f"{_table}_never_come"] = partial(silent_view, table=_table)
    SPOILED[f"{_table}_are_dropped"] = partial(run_sql, statements=[f"DROP TABLE {_table}"])
STATEMENTS = {
    "column_more": ["ALTER TABLE packed ADD COLUMN more TEXT"],
    "column_renamed": ["ALTER TABLE packed RENAME COLUMN content TO stuff"],
    "index": ["CREATE INDEX more ON packed (batch)"],
    "trigger": ["CREATE TRIGGER more AFTER INSERT ON packed BEGIN DELETE FROM batches; END"],
    "deleted": ["DELETE FROM packed"],
    "first_deleted": ["DELETE FROM packed WHERE first = 0"],
    "last_deleted": ["DELETE FROM packed WHERE first = (SELECT MAX(first) FROM packed)"],
    "huge": ["UPDATE packed SET content = zeroblob(50000000) WHERE first = 0"],
    "text": ["UPDATE packed SET content = CAST(content AS TEXT) WHERE first = 0"],
    "swapped": ["UPDATE packed SET content = (SELECT content FROM packed WHERE first = 0)"],
    "salvaged_nonsense": ["INSERT INTO packed_salvaged VALUES (0, -1, 5, 7, x'00')"],
    "salvaged_of_a_batch": ["INSERT INTO packed_salvaged SELECT * FROM packed WHERE first = 0"],
    "rows_beside": ["CREATE TABLE trials (trial INTEGER PRIMARY KEY, batch INTEGER)"],
}
for _name, _statements in STATEMENTS.items():
    SPOILED[f"packed_sql_{_name}"] = partial(run_sql, statements=_statements)
CELLS: dict[str, list[Any]] = {
    "first": [-5, 10**15, 2**63 - 1, 2],
    "batch": [None, "x", -1, 10**15, 2**62, 1.5, 0, b""],
    "trials": [None, "x", -1, 0, 1, 10**6, 2**62, 1.5, b"\xff", 16_384],
    "content": [
        None,
        b"",
        b"\0",
        "text",
        7,
        b"\xff" * 100,
        b"\0" * 3_000_000,
        trial_storage.HEADER_STRUCT.pack(1, 1, 14, 0, 0, 0),
    ],
}
for _column, _values in CELLS.items():
    for _place, _value in enumerate(_values):
        SPOILED[f"packed_{_column}_{_place}"] = partial(set_packed, column=_column, value=_value)
for _place, _crc in enumerate((None, "x", 0, 2**62)):
    SPOILED[f"packed_crc_{_place}"] = partial(set_packed, column="crc", value=_crc, sign=False)

# ---- the content


def _header(study: Path, place: int, value: int) -> None:
    def changed(cells: Cells) -> None:
        header = list(trial_storage.HEADER_STRUCT.unpack_from(cells["content"]))
        header[place] = value
        cells["content"] = (
            trial_storage.HEADER_STRUCT.pack(*header) + cells["content"][trial_storage.HEADER_STRUCT.size :]
        )

    rewrite(study, changed)


HEADERS = {
    "layout": (0, [0, 2, 255]),
    "index": (1, [0, 2, 3, 4, 8, 255]),
    "metrics": (2, [0, 1, 65_535]),
    "parameters": (3, [0, 1, 10_001, 2**31, 2**32 - 1]),
    "text": (4, [0, 1, 2**31, 2**32 - 1]),
    "names": (5, [0, 1]),
}
for _name, (_at, _numbers) in HEADERS.items():
    for _number in _numbers:
        SPOILED[f"packed_header_{_name}_{_number}"] = partial(_header, place=_at, value=_number)


def _cut(study: Path, length: int) -> None:
    rewrite(study, lambda cells: cells.update(content=cells["content"][:length]))


for _length in (1, 15, 16, 17, 30, 100, -1, -8):
    SPOILED[f"packed_cut_at_{_length}"] = partial(_cut, length=_length)


@spoils
def packed_longer(study: Path) -> None:
    """A byte more than there is to say."""
    rewrite(study, lambda cells: cells.update(content=cells["content"] + b"\0"))


def _text(study: Path, text: bytes) -> None:
    change_content(study, lambda content: setattr(content, "text", text))


TEXTS = (b"", b"\xff\xfe", b"\x1b[2J", b"a\0b", b"\n" * 1000, b"same\nsame", b"x" * 70_000, b"\xed\xa0\x80")
for _place, _said in enumerate(TEXTS):
    SPOILED[f"packed_text_{_place}"] = partial(_text, text=_said)


def _kind(study: Path, metric: int, kind: int) -> None:
    def changed(content: Content) -> None:
        content.kinds[metric] = kind

    change_content(study, changed)


for _metric in (0, len(OF_STEPS) - 1):
    for _number in (0, 1, 2, 3, 255):
        SPOILED[f"packed_kind_{_metric}_{_number}"] = partial(_kind, metric=_metric, kind=_number)


def _excess(study: Path, value: float) -> None:
    def changed(content: Content) -> None:
        place = np.flatnonzero(content.excess != 0)[0]
        content.excess[place] = value

    change_content(study, changed)


NOT_EXCESS = (float("nan"), -1.0, float("-inf"), 0.0, -0.0)
"""Also 0: a design that can run and has no metrics."""
for _place, _bad in enumerate(NOT_EXCESS):
    SPOILED[f"packed_excess_{_place}"] = partial(_excess, value=_bad)


def _metric_value(study: Path, value: float) -> None:
    def changed(content: Content) -> None:
        content.numbers[: None if np.isnan(value) else 1] = value

    change_content(study, changed)


NOT_METRICS = (float("nan"), float("inf"), float("-inf"), -1.0, 1e308, 5e-324, -5e-324)
"""Also NaN in all of them: every design that can run has a value of the objective."""
for _place, _bad in enumerate(NOT_METRICS):
    SPOILED[f"packed_number_{_place}"] = partial(_metric_value, value=_bad)


@spoils
def packed_code_beyond(study: Path) -> None:
    """A reason that is not there."""

    def changed(content: Content) -> None:
        content.codes[0] = 255

    change_content(study, changed)


@spoils
def packed_bits_beyond(study: Path) -> None:
    """A flag of a trial that is not there."""

    def changed(content: Content) -> None:
        content.bits.append(1)

    change_content(study, changed)


@spoils
def packed_points_beyond(study: Path) -> None:
    """A value that a parameter does not have."""
    change_content(study, lambda content: content.points.fill(255))


@spoils
def packed_points_wide(study: Path) -> None:
    """Indices of four bytes, as large as they come."""

    def changed(content: Content) -> None:
        content.points = np.full(content.points.shape, 2**32 - 1, dtype="<u4")
        content.header[1] = 4

    change_content(study, changed)


@spoils
def packed_without_parameters(study: Path) -> None:
    """Designs without a parameter."""

    def changed(content: Content) -> None:
        content.points, content.header[3] = content.points[:, :0], 0

    change_content(study, changed)


@spoils
def packed_all_the_same(study: Path) -> None:
    """The same design in every trial of a batch."""

    def changed(content: Content) -> None:
        content.points[:] = content.points[0]

    change_content(study, changed)


@spoils
def packed_nothing_counted(study: Path) -> None:
    """No trial took an evaluation."""

    def changed(content: Content) -> None:
        content.bits[:] = bytes(len(content.bits))

    change_content(study, changed)


@spoils
def packed_overlaps(study: Path) -> None:
    """A trial in two rows."""

    def changed(cells: Cells) -> None:
        cells["first"] -= 1

    rewrite(study, changed)


@spoils
def packed_bomb(study: Path) -> None:
    """Few bytes that state many trials, in many rows."""
    names, no_metric = next(iter(trial_storage.METRICS_OF_PIECES)), bytes(len(OF_STEPS))
    head = struct.pack("<BBHIII", 1, 1, len(OF_STEPS), 0, 0, names)
    n = 16_384
    content = head + no_metric + bytes(n) + b"\xff" * (n // 8) + np.full(n, np.inf).tobytes()
    with database_of(study) as database:
        first = database.execute("SELECT SUM(trials) FROM batches").fetchone()[0]
        for batch in range(100, 120):
            crc = crc32(content, crc32(repr((first, batch, n)).encode()))
            database.execute("INSERT INTO packed VALUES (?, ?, ?, ?, ?)", (first, batch, n, crc, content))
            first += n
