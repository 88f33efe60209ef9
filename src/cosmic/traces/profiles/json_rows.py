"""Elements of a long JSON array, objects, as rows of integers.

A row holds what some keys say: integers, times as nanoseconds, and texts by their numbers. C reads what is written as
usual; anything else, and all of it where there is no C, is left to Python: such a row is irregular.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError
from cosmic.base.native.library import native_library
from cosmic.traces.profiles.json_stream import JsonDocument, decode_json, text_beginning

Ints = npt.NDArray[np.int64]
TEXT, RAW, WHOLE, TIME, FUNCTION = 0, 1, 2, 3, 4
"""Kinds of columns: a string, any value as text, an integer, a time, the function in a list of attributes."""
ABSENT = -(2**63)
"""In a column: not stated."""
MOST_ROWS = 2**15
"""Rows that are handed on at a time."""
MOST_TEXT_BYTES = 2**29
"""The most that distinct texts may have in all."""
_FIRST = 3
_MORE, _CLOSED, _FULL, _BROKEN = 0, 1, 2, 3


class Key(NamedTuple):
    """A key whose values make a column."""

    name: str
    kind: int
    level: int = 0
    """1 for keys of the object inside an element."""


class RowBatch(NamedTuple):
    """Some elements."""

    table: Ints
    """A row for each, a column for each key."""
    irregular: Ints
    """Rows to fill in by Python."""
    text: bytes
    start: Ints
    stop: Ints

    def element(self, row: int) -> bytes:
        """Return the text of an element."""
        return self.text[self.start[row] : self.stop[row]]


class Texts(Protocol):
    """Numbers for distinct texts."""

    def number(self, text: bytes) -> int:
        """Return the number of *text*."""
        ...

    def text(self, number: int) -> bytes:
        """Return the text with a number."""
        ...

    def listed(self, first: int = 0) -> list[bytes]:
        """Return all texts by their numbers, from *first* on."""
        ...


class _PlainTexts:
    """Texts in a dictionary."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._listed: list[bytes] = []
        self._left = MOST_TEXT_BYTES

    def number(self, text: bytes) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._numbers)
            self._listed.append(text)
            self._left -= len(text)
            if self._left < 0:
                raise _too_many()
        return number

    def text(self, number: int) -> bytes:
        return self._listed[number]

    def listed(self, first: int = 0) -> list[bytes]:
        return self._listed[first:]


def _too_many() -> SpecError:
    return SpecError("names and shapes", f"{MOST_TEXT_BYTES // 2**20} MiB", "are the most that a profile may have")


class _TextTable(ctypes.Structure):
    _fields_ = [
        ("bytes", ctypes.c_void_p),
        ("room", ctypes.c_int64),
        ("used", ctypes.c_int64),
        ("stops", ctypes.c_void_p),
        ("hashes", ctypes.c_void_p),
        ("most", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("slots", ctypes.c_void_p),
        ("mask", ctypes.c_int64),
    ]


class _CompiledTexts:
    """Texts in arrays that C fills."""

    def __init__(self, native: ctypes.CDLL) -> None:
        self._native = native
        self._bytes, self._stops = np.empty(2**20, np.uint8), np.empty(2**13, np.int64)
        self._hashes, self._slots = np.empty(2**13, np.uint64), np.zeros(2**14, np.int64)
        self.table = _TextTable(used=0, count=0)
        self._point()
        native.cosmic_texts_number.restype = ctypes.c_int64

    def _point(self) -> None:
        table = self.table
        table.bytes, table.room = self._bytes.ctypes.data, len(self._bytes)
        table.stops, table.hashes, table.most = self._stops.ctypes.data, self._hashes.ctypes.data, len(self._stops)
        table.slots, table.mask = self._slots.ctypes.data, len(self._slots) - 1

    def grow(self, size: int = 0) -> None:
        """Make room for twice as many texts, of *size* bytes more."""
        room = 2 * len(self._bytes) + size
        if room > 4 * MOST_TEXT_BYTES:
            raise _too_many()
        self._bytes = np.concatenate([self._bytes, np.empty(room - len(self._bytes), np.uint8)])
        self._stops = np.concatenate([self._stops, np.empty_like(self._stops)])
        self._hashes = np.concatenate([self._hashes, np.empty_like(self._hashes)])
        self._slots = np.zeros(2 * len(self._slots), np.int64)
        self._point()
        self._native.cosmic_texts_rehash(ctypes.byref(self.table))

    def number(self, text: bytes) -> int:
        while True:
            number = self._native.cosmic_texts_number(ctypes.byref(self.table), text, ctypes.c_int64(len(text)))
            if number >= 0:
                return int(number)
            self.grow(len(text))

    def text(self, number: int) -> bytes:
        start = self._stops[number - 1] if number else 0
        return self._bytes[start : self._stops[number]].tobytes()

    def listed(self, first: int = 0) -> list[bytes]:
        before = int(self._stops[first - 1]) if first else 0
        content = self._bytes[before : self.table.used].tobytes()
        bounds = [0, *(self._stops[first : self.table.count] - before).tolist()]
        return [content[start:stop] for start, stop in pairwise(bounds)]


class _RowTable(ctypes.Structure):
    _fields_ = [
        ("text", ctypes.c_char_p),
        ("size", ctypes.c_int64),
        ("at", ctypes.c_int64),
        ("parted", ctypes.c_int64),
        ("keys", ctypes.c_char_p),
        ("key_stops", ctypes.c_void_p),
        ("key_levels", ctypes.c_void_p),
        ("key_kinds", ctypes.c_void_p),
        ("key_count", ctypes.c_int64),
        ("nested", ctypes.c_char_p),
        ("nested_size", ctypes.c_int64),
        ("rows", ctypes.c_void_p),
        ("width", ctypes.c_int64),
        ("most", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("texts", ctypes.c_void_p),
    ]


@dataclass(slots=True)
class RowReader:
    """Reads the elements of a document as rows; *texts* has the texts of all."""

    document: JsonDocument
    keys: Sequence[Key]
    nested: str = ""
    texts: Any = None

    def batches(self) -> Iterator[RowBatch]:
        """Yield the elements, some at a time."""
        native = native_library()
        if native is None:
            self.texts = _PlainTexts()
            yield from self._plain()
        else:
            self.texts = _CompiledTexts(native)
            yield from self.document.pieces(_RowCutter(native, self.texts, self.keys, self.nested, self.document.where))

    def _plain(self) -> Iterator[RowBatch]:
        """Yield rows that are all irregular."""
        for text in self.document.elements():
            elements: list[msgspec.Raw] = decode_json(_ELEMENTS, text, self.document.where)
            for first in range(0, len(elements), MOST_ROWS):
                parts = [bytes(element) for element in elements[first : first + MOST_ROWS]]
                stop = np.cumsum([len(part) for part in parts])
                start = np.concatenate([[0], stop[:-1]])
                table = np.full((len(parts), len(self.keys)), ABSENT, np.int64)
                yield RowBatch(table, np.arange(len(parts)), b"".join(parts), start, stop)


_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])


class _RowCutter:
    """Cuts elements into rows, in C."""

    def __init__(
        self, native: ctypes.CDLL, texts: _CompiledTexts, keys: Sequence[Key], nested: str, where: str
    ) -> None:
        self._native, self._texts, self._where = native, texts, where
        self.at, self.closed = 0, False
        names = [key.name.encode() for key in keys]
        self._columns = (
            np.cumsum([len(name) for name in names]),
            np.array([key.level for key in keys], np.int64),
            np.array([key.kind for key in keys], np.int64),
        )
        width = _FIRST + len(keys)
        self._rows = np.empty((MOST_ROWS, width), np.int64)
        stops, levels, kinds = (column.ctypes.data for column in self._columns)
        self._table = _RowTable(
            keys=b"".join(names),
            key_stops=stops,
            key_levels=levels,
            key_kinds=kinds,
            key_count=len(keys),
            nested=nested.encode(),
            nested_size=len(nested.encode()),
            rows=self._rows.ctypes.data,
            width=width,
            most=MOST_ROWS,
            texts=ctypes.addressof(texts.table),
        )
        native.cosmic_json_rows.restype = ctypes.c_int64

    def cut(self, text: bytes, start: int, _: int) -> Iterator[RowBatch]:
        """Yield the elements of *text* from *start* on; `at` and `closed` then say where it ended."""
        table = self._table
        table.text, table.size, table.at = text, len(text), start
        why = _FULL
        while why == _FULL:
            why = self._native.cosmic_json_rows(ctypes.byref(table))
            if why == _FULL and table.count < MOST_ROWS:
                self._texts.grow(0)
            if table.count:
                rows = self._rows[: table.count]
                yield RowBatch(rows[:, _FIRST:], np.flatnonzero(rows[:, 2]), text, rows[:, 0].copy(), rows[:, 1].copy())
        if why == _BROKEN:
            raise SpecError(self._where, text_beginning(text[table.at :]), "is no valid JSON: a bracket closes nothing")
        self.at, self.closed = table.at, why == _CLOSED
        if self.closed:
            table.parted = 0
