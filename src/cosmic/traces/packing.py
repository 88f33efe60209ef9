"""Nodes as bytes, in C: what `cosmic.traces.writing` does node by node where there is no compiled library."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cosmic.traces.trace import Ints

NUMBER, ATTRIBUTE, PIECE, LIST = 0, 1, 2, 3
"""Kinds of fields: a varint, an attribute with one, one of some given pieces, a list of varints."""
ROOM_BYTES = 2**24
ALWAYS = -(2**63)
"""No value at all: the field is always written."""


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field of all nodes."""

    kind: int
    values: Ints
    """By node; of pieces, their numbers; of lists, where they start."""
    unwritten: int = ALWAYS
    start: bytes = b""
    """What comes before a value; the second byte of an attribute is its length without the value."""
    pieces: Sequence[bytes] = ()
    ids: Ints | None = None
    """Of lists."""


class _Field(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int64),
        ("values", ctypes.c_void_p),
        ("ids", ctypes.c_void_p),
        ("unwritten", ctypes.c_int64),
        ("bytes", ctypes.c_char_p),
        ("size", ctypes.c_int64),
        ("stops", ctypes.c_void_p),
    ]


def packed(
    native: ctypes.CDLL, fields: Sequence[Field], nodes: int, bare: npt.NDArray[np.bool_]
) -> tuple[memoryview, Ints]:
    """Return *nodes* one after the other, each after its length, except where *bare*; and where each ends."""
    native.cosmic_encode_nodes.restype = ctypes.c_int64
    kept: list[object] = []  # what C points to
    given = (_Field * len(fields))(*(_given(field, kept) for field in fields))
    without = bare.astype(np.uint8)
    stops = np.zeros(nodes, np.int64)
    room, done, written = np.empty(ROOM_BYTES, np.uint8), 0, 0
    while done < nodes:
        count = native.cosmic_encode_nodes(
            given,
            ctypes.c_int64(len(fields)),
            ctypes.c_int64(done),
            ctypes.c_int64(nodes),
            ctypes.c_void_p(without.ctypes.data),
            ctypes.c_void_p(room.ctypes.data + written),
            ctypes.c_int64(len(room) - written),
            ctypes.c_void_p(stops.ctypes.data),
        )
        if count:
            stops[done : done + count] += written
            done += count
            written = int(stops[done - 1])
        if done < nodes:  # as much as the others would take, were they like these
            size = max(2 * len(room), written * nodes // max(done, 1) * 9 // 8)
            room = np.concatenate([room[:written], np.empty(size - written, np.uint8)])
    return memoryview(room.data)[:written], stops


def _given(field: Field, kept: list[object]) -> _Field:
    """Return a field as C takes it."""
    values = np.ascontiguousarray(field.values, np.int64)
    ids = np.ascontiguousarray(field.ids if field.ids is not None else [], np.int64)
    stops = np.cumsum([len(each) for each in field.pieces], dtype=np.int64)
    content = b"".join(field.pieces) or field.start
    kept += [values, ids, stops, content]
    return _Field(
        field.kind, values.ctypes.data, ids.ctypes.data, field.unwritten, content, len(field.start), stops.ctypes.data
    )
