"""Trials found in the bytes of a damaged database, whatever became of its structure.

SQLite keeps a row as a cell: the length of its payload, its number, a header with the type of each column, then the
columns. The headers of our tables look like nothing else, so they are searched for in all bytes of the file and of its
write-ahead log: pages, trees and schema need not be whole. A row counts if it agrees with its own checksum.

    varint  payload    varint  number    varint  header    varint... types    columns

Format: https://www.sqlite.org/fileformat2.html, sections 1.5 (pages), 1.6 (overflow), 2.1 (records) and 4.1 (log).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import unpack, unpack_from
from typing import Any

from cosmic.exploration.problem import METRICS
from cosmic.exploration.studies.storage import NO_BATCH, Written, is_whole

PAGE_BYTES = 4096
"""What SQLite uses unless told otherwise."""
LOG_HEADER, FRAME_HEADER = 32, 24
_INTEGER = rb"[\x01-\x06\x08\x09]"
_LONG = rb"[\x80-\xff]{0,3}[\x00-\x7f]"
_TRIAL = re.compile(
    rb"(?=[\x08-\x7f]\x00%b%b[\x08\x09]%b[\x00-\x09]{%d})" % (_INTEGER, _LONG, _LONG, len(METRICS) + 2), re.DOTALL
)
_BATCH = re.compile(rb"(?=\x05\x00%b{3})" % _INTEGER, re.DOTALL)
_INPUTS = re.compile(rb"(?=[\x04-\x06]\x17[\x80-\xff]{1,3}[\x00-\x7f]study\{)", re.DOTALL)
_SIZES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
"""Bytes of a column, by its type."""


@dataclass
class Carved:
    """What is whole in the bytes of a database."""

    trials: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """Rows by the number of their trial."""
    salvaged: dict[bytes, tuple[Any, ...]] = field(default_factory=dict)
    """Rows that were saved once before, by their point."""
    batches: dict[int, Written] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    """What may be a copy of study.json."""


def carve(path: Path) -> Carved:
    """Return what is whole in the database at *path* and in its write-ahead log; what the log has is newer."""
    found = Carved()
    main, log = (each.read_bytes() if each.exists() else b"" for each in (path, path.with_name(f"{path.name}-wal")))
    for page_bytes in dict.fromkeys((_page_bytes(main), PAGE_BYTES)):
        pages = _Pages(main, log, page_bytes)
        for data in (main, log):
            for number, columns in _records(data, pages):
                _sort_in(found, number, columns)
    return found


def _sort_in(found: Carved, number: int, values: list[Any]) -> None:
    if len(values) == 2 and isinstance(values[1], str):
        found.texts.append(values[1])
    elif len(values) == 4:
        row = (number, *values[1:])
        if is_whole(row):
            found.batches[number] = Written(*row[:-1])
    elif len(values) > 4:
        _, batch, point, counted, reasons, *numbers, crc = values
        floats = [float(value) if isinstance(value, int) else value for value in numbers]  # as SQLite gives them back
        row = (number, batch, point, counted, reasons, *floats, crc)
        if is_whole(row) and batch == NO_BATCH:
            found.salvaged[point] = row
        elif is_whole(row):
            found.trials[number] = row


def _page_bytes(main: bytes) -> int:
    """Return the size of a page as the file states it, or what is usual where it states nonsense."""
    stated = int.from_bytes(main[16:18], "big")
    stated = 65536 if stated == 1 else stated
    return stated if stated >= 512 and stated & (stated - 1) == 0 else PAGE_BYTES


# -------------------------------------------------------------------------------------------------- records


def _records(data: bytes, pages: _Pages) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number and the columns of whatever looks like a row of ours in *data*."""
    for pattern in (_INPUTS, _BATCH, _TRIAL):
        for match in pattern.finditer(data):
            number = _number_before(data, match.start())
            columns = None if number is None else _columns(data, match.start(), pages)
            if number is not None and columns is not None:
                yield number, columns


def _columns(data: bytes, start: int, pages: _Pages) -> list[Any] | None:
    """Return the columns of the record at *start*; None where it cannot be one."""
    size, place = _varint(data, start)
    head_end, types = start + size, []
    while place < head_end:
        kind, place = _varint(data, place)
        types.append(kind)
    sizes = [_SIZES[kind] if kind < len(_SIZES) else max(0, (kind - 12) // 2) for kind in types]
    payload = pages.payload(data, start, size + sum(sizes))
    if payload is None or place != head_end:
        return None
    values, at = [], size
    for kind, length in zip(types, sizes, strict=True):
        values.append(_value(kind, payload[at : at + length]))
        at += length
    return values


def _value(kind: int, content: bytes) -> Any:
    if kind == 0:
        return None
    if kind == 7:
        return unpack(">d", content)[0]
    if kind in (8, 9):
        return kind - 8
    if kind < 12:
        return int.from_bytes(content, "big", signed=True)
    return content if kind % 2 == 0 else content.decode("utf-8", "replace")


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Return the number at *place*, seven bits a byte, and where it ends."""
    value = 0
    for at in range(place, min(place + 8, len(data))):
        value = value << 7 | data[at] & 0x7F
        if data[at] < 0x80:
            return value, at + 1
    return value, place + 8


def _number_before(data: bytes, end: int) -> int | None:
    """Return the number of the row whose header begins at *end*: its last byte alone is below 128."""
    start = end - 1
    if start < 0 or data[start] >= 0x80:
        return None
    while start > 0 and end - start < 8 and data[start - 1] >= 0x80:
        start -= 1
    return _varint(data, start)[0]


# ---------------------------------------------------------------------------------------------------- pages


class _Pages:
    """The pages of a database, the newest version of each: rows that are too long for a page go on in others."""

    def __init__(self, main: bytes, log: bytes, page_bytes: int) -> None:
        self._main, self._log, self._bytes = main, log, page_bytes
        self._newest: dict[int, int] = {}
        for frame in range(LOG_HEADER, len(log) - FRAME_HEADER - page_bytes + 1, page_bytes + FRAME_HEADER):
            self._newest[unpack_from(">I", log, frame)[0]] = frame + FRAME_HEADER

    def payload(self, data: bytes, start: int, size: int) -> bytes | None:
        """Return the *size* bytes of a record that starts at *start*; None where a page that it needs is missing."""
        most, least = self._bytes - 35, (self._bytes - 12) * 32 // 255 - 23
        if size <= most:
            return data[start : start + size] if start + size <= len(data) else None
        local = least + (size - least) % (self._bytes - 4)
        local = local if local <= most else least
        parts, left = [data[start : start + local]], size - local
        following = data[start + local : start + local + 4]
        while left > 0:
            page = self._page(int.from_bytes(following, "big"))
            following, content = page[:4], page[4 : 4 + left]
            if not content:
                return None
            parts.append(content)
            left -= len(content)
        return b"".join(parts)

    def _page(self, number: int) -> bytes:
        if number in self._newest:
            return self._log[self._newest[number] : self._newest[number] + self._bytes]
        return self._main[(number - 1) * self._bytes : number * self._bytes] if number >= 1 else b""
