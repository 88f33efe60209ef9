"""Read a large JSON file in pieces: the elements of one array of its outermost object, and everything else.

Profiles are one object with one long array. The file is read, and unpacked if it is compressed, block by block; a scan
of the brackets outside strings (in C, or with arrays) finds where elements part. So memory holds a block, not the file.

Elements that are objects are read as rows of integers: a row holds what some keys say, integers, times as nanoseconds,
and texts by their numbers. C reads what is written as usual; anything else, and all of it where there is no C, is left
to Python: such a row is irregular.
"""

from __future__ import annotations

import ctypes
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError
from cosmic.base.files import Unreadable, open_regular
from cosmic.base.native.library import native_library

BLOCK_BYTES = 2**20
MOST_BYTES = 2**34
"""The most that a profile may have, unpacked."""
MOST_REST_BYTES = 2**26
"""The most that everything but the long array may have."""
MOST_ELEMENT_BYTES = 2**24
"""The most that one element may have."""
OPENED, PARTED, CLOSED = 1, 2, 3
"""Marks: a container of the outermost object begins, its elements part, it ends."""
_GZIP = b"\x1f\x8b"
Marks = npt.NDArray[np.int64]


def read_blocks(path: str | Path) -> Iterator[bytes]:
    """Yield the content of the file at *path*, which may be compressed with gzip, in blocks."""
    total = 0
    with open_regular(path, most=MOST_BYTES) as file:
        start = file.read(2)
        file.seek(0)
        for block in _decompress(file, Path(path)) if start == _GZIP else _plain(file):
            total += len(block)
            if total > MOST_BYTES:
                raise Unreadable(
                    "file", str(path), f"has more than the {MOST_BYTES // 2**30} GiB that a profile may have"
                )
            yield block


def _plain(file: IO[bytes]) -> Iterator[bytes]:
    while block := file.read(BLOCK_BYTES):
        yield block


def _decompress(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """Yield the content of a file of one or more gzip members."""
    member = zlib.decompressobj(wbits=31)
    try:
        while packed := file.read(BLOCK_BYTES // 8):
            while packed:
                if block := member.decompress(packed, BLOCK_BYTES):
                    yield block
                packed = member.unconsumed_tail
                if member.eof:
                    packed = member.unused_data.lstrip(b"\0")  # what pads a file is no member
                    member = zlib.decompressobj(wbits=31) if packed else member
        complete = member.eof
    except zlib.error:
        complete = False
    if not complete:
        raise SpecError(path.name, "gzip", "is not a valid gzip file: it is broken, or ends early")


T_co = TypeVar("T_co", covariant=True)


class Cutter(Protocol[T_co]):
    """Cuts the text of an array into parts."""

    at: int
    """Where the last cut ended."""
    closed: bool
    """Whether that is the end of the array, a bracket."""

    def cut(self, text: bytes, start: int, fresh: int) -> Iterator[T_co]:
        """Yield whole elements of *text* from *start* on; what begins at *fresh* was not in the text before."""
        ...


@dataclass(slots=True)
class JsonDocument:
    """A JSON object that is read in pieces."""

    path: Path
    key: str
    """Of the long array."""
    rest: dict[str, Any] = field(default_factory=dict)
    """Everything else; complete once `pieces` has ended."""
    found: bool = False
    """Whether there is such an array."""

    @property
    def where(self) -> str:
        """What messages call the file."""
        return self.path.name

    def elements(self) -> Iterator[bytes]:
        """Yield the elements of the array, some at a time, each time as the text of a JSON array."""
        yield from self.pieces(_TextCutter(self.where))

    def pieces(self, cutter: Cutter[T_co]) -> Iterator[T_co]:
        """Yield the pieces into which *cutter* divides the elements."""
        scan, rest = _Scan(self.where), bytearray()
        buffer, start, fresh, inside = b"", 0, 0, False  # *start*: of what is not yet done with; *fresh*: of the block
        for block in read_blocks(self.path):
            buffer, fresh, start = buffer[start:] + block, len(buffer) - start, 0
            while fresh < len(buffer):
                if inside:
                    yield from cutter.cut(buffer, start, fresh)
                    start, inside = cutter.at, not cutter.closed
                    fresh = len(buffer) if inside else start
                    continue
                opened = self._array_start(scan, buffer, start, fresh)
                end = max(start, len(buffer) - 2 * len(self.key) - 64) if opened is None else opened + 1
                rest += buffer[start:end]  # the name of an array may be in two blocks
                start, fresh, inside = end, len(buffer) if opened is None else end, opened is not None
            if len(rest) > MOST_REST_BYTES:
                raise SpecError(self.where, self.key, "is not in the first 64 MiB: this is no profile")
            if len(buffer) - start > MOST_ELEMENT_BYTES:
                raise SpecError(self.where, self.key, "has more than 16 MiB in one element: this is no profile")
        if inside:
            raise SpecError(self.where, self.key, "is no valid JSON: the file ends within it")
        text = bytes(rest + buffer[start:])
        try:
            remaining = json.loads(text.decode(errors="replace"), strict=False)
        except (ValueError, RecursionError) as error:
            raise SpecError(self.where, text_beginning(text), f"is no valid JSON: {error}") from None
        if not isinstance(remaining, dict):
            raise SpecError(self.where, text_beginning(text), "must hold an object")
        self.rest.update(remaining)

    def _array_start(self, scan: _Scan, buffer: bytes, start: int, fresh: int) -> int | None:
        """Return where the array begins; None if it does not in *buffer*."""
        for mark in scan.marks(buffer[fresh:]):
            position = (mark >> 2) + fresh
            if (
                mark & 3 == OPENED
                and buffer[position : position + 1] == b"["
                and _names(buffer[start:position], self.key)
            ):
                self.found = True
                scan.enter()
                return position
        return None


class _TextCutter:
    """Cuts elements as the texts of JSON arrays."""

    def __init__(self, where: str) -> None:
        self._scan = _Scan(where)
        self._scan.enter()
        self.at, self.closed = 0, False

    def cut(self, text: bytes, start: int, fresh: int) -> Iterator[bytes]:
        """Yield the elements of *text* from *start* on that have ended."""
        last, self.at, self.closed = -1, start, False
        for mark in self._scan.marks(text[fresh:]):
            last = (mark >> 2) + fresh
            if mark & 3 == CLOSED:
                self.closed = True
                self._scan.enter()
                break
        if last >= 0:
            yield b"[" + text[start:last] + b"]"
            self.at = last + (not self.closed)


def text_beginning(text: bytes) -> str:
    """Return the beginning of a text, for a message."""
    return text[:40].decode(errors="replace")


def decode_json(decoder: msgspec.json.Decoder[Any], text: bytes, where: str) -> Any:
    """Return *text* decoded by *decoder*, including NaN and bytes that are no UTF-8, which some profilers write."""
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        tree = json.loads(text.decode(errors="replace"), strict=False, parse_constant=lambda _: None)
        return decoder.decode(json.dumps(tree).encode())
    except (ValueError, RecursionError, msgspec.DecodeError) as error:
        raise SpecError(where, text_beginning(text), f"is no valid profile: {error}") from None


def _names(before: bytes, key: str) -> bool:
    """Return whether the text *before* a bracket ends in the name of the array.

    >>> _names(b'{"a": 1, "nodes" : ', "nodes"), _names(b'"other": ', "nodes")
    (True, False)
    """
    stripped = before[-2 * len(key) - 64 :].rstrip()
    return stripped.endswith(b":") and stripped[:-1].rstrip().endswith(f'"{key}"'.encode())


class _Scan:
    """The marks of a text that is read block by block."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._state = np.zeros(4, np.int64)

    def enter(self) -> None:
        """Go on within the long array."""
        self._state[:3] = 2, 0, 0

    def marks(self, block: bytes) -> list[int]:
        """Return the marks of the next block: each is its position times four, plus its kind."""
        marks = self._compiled(block) if native_library() is not None else self._by_arrays(block)
        if marks is None:
            raise SpecError(self._where, text_beginning(block), "is no valid JSON: a bracket closes nothing")
        return marks

    def _compiled(self, block: bytes) -> list[int] | None:
        run = getattr(native_library(), "cosmic_json_marks")  # noqa: B009  a function of the library, by its name
        run.restype = ctypes.c_int64
        room = np.empty(2**16, np.int64)
        marks: list[int] = []
        offset = 0
        while offset < len(block):
            count = run(
                ctypes.c_char_p(block[offset:] if offset else block),
                ctypes.c_int64(len(block) - offset),
                self._state.ctypes.data_as(ctypes.c_void_p),
                room.ctypes.data_as(ctypes.c_void_p),
                ctypes.c_int64(len(room)),
            )
            if count < 0:
                return None
            marks += (room[:count] + 4 * offset).tolist()
            offset += int(self._state[3])
        return marks

    def _by_arrays(self, block: bytes) -> list[int] | None:
        """Return the same as the compiled scan; tests compare both."""
        text = np.frombuffer(block, np.uint8)
        depth, open_before, escaped = (int(number) for number in self._state[:3])
        slashes = np.flatnonzero(text == ord("\\"))
        quotes = np.flatnonzero(text == ord('"'))
        hidden, self._state[2] = _escaped_positions(slashes, len(text), bool(escaped))
        quotes = quotes[~np.isin(quotes, hidden)]
        structure = np.flatnonzero(_STRUCTURE[text])
        outside = (np.searchsorted(quotes, structure) + open_before) % 2 == 0
        structure = structure[outside]
        kinds = _STRUCTURE[text[structure]]
        steps = np.where(kinds == PARTED, 0, np.where(kinds == OPENED, 1, -1))
        after = depth + np.cumsum(steps)
        if len(after) and after.min() < 0:
            return None
        self._state[0] = after[-1] if len(after) else depth
        self._state[1] = (len(quotes) + open_before) % 2
        wanted = (after == 2) & (kinds != CLOSED) | (after == 1) & (kinds == CLOSED)
        marks: list[int] = (structure[wanted] * 4 + kinds[wanted]).tolist()
        return marks


_STRUCTURE = np.zeros(256, np.int64)
_STRUCTURE[[ord("{"), ord("[")]] = OPENED
_STRUCTURE[[ord("}"), ord("]")]] = CLOSED
_STRUCTURE[ord(",")] = PARTED


def _escaped_positions(slashes: Marks, size: int, first: bool) -> tuple[list[int], bool]:
    r"""Return the positions that a backslash escapes, and whether it escapes the first character of the next block.

    >>> _escaped_positions(np.array([1, 2, 5]), 6, False)
    ([2], True)
    """
    hidden = [0] if first else []
    for slash in slashes.tolist():
        if not hidden or hidden[-1] != slash:
            hidden.append(slash + 1)
    after = bool(hidden) and hidden[-1] == size
    return hidden[:-1] if after else hidden, after


# ---- elements as rows of integers


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
