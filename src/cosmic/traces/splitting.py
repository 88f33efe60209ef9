"""Split files of traces into messages, each distinct one kept once.

The files of a job's ranks have the same nodes, and differ in a few bytes of some: groups and peers. So a file is
compared with earlier ones of its length. Where all bytes that state lengths are equal, its messages lie where the other
file's do, and only those that differ are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.errors import SpecError
from cosmic.traces.trace import Ints
from cosmic.traces.wire import check_metadata, read_varint

MOST_NODES = 5_000_000
"""Of one rank."""
MOST_EMPTY = 64
"""A node that says nothing, not even its id, is one byte, 0: more of them are zeros that fill a file after a crash."""
_MOST_FILES = 8
"""How many files of one length a file is compared with."""
_MOST_KEPT_BYTES = 2**28
"""How many bytes of files are kept to compare others with."""
_ALIKE = 4
"""A file is like another if at most one byte in this many differs: else it is faster split anew."""


class Numbering(dict[Any, int]):
    """Numbers keys in the order of first access."""

    def __missing__(self, wanted: Any) -> int:
        number = self[wanted] = len(self)
        return number

    def of(self, all_wanted: list[Any]) -> Ints:
        """Return the number of each."""
        return np.fromiter(map(self.__getitem__, all_wanted), np.int64, len(all_wanted))


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A file as messages."""

    rows: Ints
    """The number of each of its messages."""
    like: Split | None = None
    """The file that it differs from in the messages at *changed*, and nowhere else."""
    changed: Ints = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """A file that was split byte by byte."""

    split: Split
    bytes: npt.NDArray[np.uint8]
    heads: Ints
    bodies: Ints
    """Where each message starts behind its length."""

    def changed(self, data: npt.NDArray[np.uint8]) -> Ints | None:
        """Return the messages in which *data*, of the same length, differs; None if they may lie elsewhere."""
        places = np.flatnonzero(self.bytes != data)
        if not len(places):
            return places
        if len(places) * _ALIKE > len(data) or places[0] < self.heads[0]:
            return None
        node = np.searchsorted(self.heads, places, "right") - 1
        if (places < self.bodies[node]).any():
            return None
        return node[np.flatnonzero(np.diff(node, prepend=-1))]


class Messages:
    """The distinct messages of files, numbered."""

    def __init__(self) -> None:
        self.numbers = Numbering()
        self._known: dict[int, list[_Known]] = {}
        self._kept_bytes = 0

    def split(self, data: bytes, where: str) -> Split:
        """Return the messages of a file; *where* is its name, for errors."""
        seen = np.frombuffer(data, np.uint8)
        for known in self._known.get(len(data), ()):
            if (changed := known.changed(seen)) is None:
                continue
            if not len(changed):
                return known.split
            rows = known.split.rows.copy()
            spans = zip(known.heads[changed].tolist(), known.heads[changed + 1].tolist(), strict=True)
            rows[changed] = self.numbers.of([data[start:stop] for start, stop in spans])
            return Split(rows, known.split, changed)
        return self._split_anew(data, seen, where)

    def _split_anew(self, data: bytes, seen: npt.NDArray[np.uint8], where: str) -> Split:
        starts = message_heads(data, where)
        split = Split(self.numbers.of([data[start:stop] for start, stop in pairwise(starts.tolist())]))
        alike = self._known.setdefault(len(data), [])
        if len(alike) < _MOST_FILES and self._kept_bytes + len(data) <= _MOST_KEPT_BYTES:
            self._kept_bytes += len(data)
            alike.append(_Known(split, seen, starts, starts[:-1] + _length_sizes(seen, starts[:-1])))
        return split


def _length_sizes(data: npt.NDArray[np.uint8], heads: Ints) -> Ints:
    """Return how many bytes the length at each of *heads* has."""
    sizes = np.ones(len(heads), np.int64)
    going = np.flatnonzero(data[heads] >= 0x80)
    while len(going):
        sizes[going] += 1
        going = going[data[heads[going] + sizes[going] - 1] >= 0x80]
    return sizes


def message_heads(data: bytes, where: str) -> Ints:
    """Return where each node starts, at its length, and where the last one ends."""
    if not data:
        raise SpecError(where, data, "the file is empty")
    length, start = read_varint(data, 0, len(data), where)
    if start + length <= len(data):
        check_metadata(data, start, start + length, where)
    found = islice(_message_starts(data, min(start + length, len(data) + 1), where), MOST_NODES + 2)
    heads = np.fromiter(found, np.int64)
    if len(heads) > MOST_NODES + 1:
        raise SpecError(where, f"{len(data):,} bytes", f"has more than the {MOST_NODES:,} nodes that a rank may have")
    empty = int((np.diff(heads) == 1).sum())
    if empty > MOST_EMPTY:
        raise SpecError(where, f"{empty:,} nodes", "say nothing, not even their id: zeros fill this file")
    return heads


def _message_starts(data: bytes, at: int, where: str) -> Iterator[int]:
    """Yield where messages start, from *at* on, and where the last one ends."""
    size = len(data)
    yield at
    try:
        while at < size:
            low = data[at]
            if low < 0x80:
                at += low + 1
            elif (high := data[at + 1]) < 0x80:
                at += (low & 0x7F) + (high << 7) + 2
            else:
                length, at = read_varint(data, at, size, where)
                at = min(at + length, size + 1)  # lest it overflow an array
            yield at
    except IndexError:
        raise SpecError(where, data[at:], "the file ends inside a length") from None
    if at > size:
        raise SpecError(where, f"{size} bytes", "the file ends inside a message")
