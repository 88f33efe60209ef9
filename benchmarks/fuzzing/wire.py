"""Traces that are whole as files but wrong in a field: messages of protobuf, changed and written with right lengths."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

VARINT, I64, LEN, I32 = 0, 1, 2, 5
LONGEST = 10
"""The most bytes of a varint: 64 bits."""
NUMBERS = (0, 1, 2, 7, 99, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, 10**12, 10**6)
BYTES = (b"", b"\xff", b"\x1b[31m", b"a" * 300, b"comm_size", b"\x80" * 12, "\u202e".encode())

Field = tuple[int, int, bytes]
"""The number of a field, its wire type and its bytes."""


def varint(value: int) -> bytes:
    """Return a whole number as a varint."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _read(data: bytes, place: int) -> tuple[int, int]:
    """Return the varint at a place, and the place behind it."""
    value = 0
    for count in range(LONGEST):
        byte = data[place + count]
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, place + count + 1
    raise ValueError("a varint does not end")


def messages(data: bytes) -> Iterator[bytes]:
    """Yield the messages of a file."""
    place = 0
    while place < len(data):
        length, place = _read(data, place)
        yield data[place : place + length]
        place += length


def fields(message: bytes) -> list[Field]:
    """Return the fields of a message."""
    found: list[Field] = []
    place = 0
    while place < len(message):
        key, place = _read(message, place)
        kind, begin = key & 7, place
        if kind == VARINT:
            _, place = _read(message, place)
        elif kind == LEN:
            length, begin = _read(message, place)
            place = begin + length
        elif kind in (I64, I32):
            place += 8 if kind == I64 else 4
        else:
            raise ValueError(f"no such wire type: {kind}")
        if place > len(message):
            raise ValueError("a field ends behind its message")
        found.append((key >> 3, kind, message[begin:place]))
    return found


def joined(parts: list[Field]) -> bytes:
    """Return fields as a message."""
    whole = bytearray()
    for number, kind, data in parts:
        whole += varint(number << 3 | kind) + (varint(len(data)) if kind == LEN else b"") + data
    return bytes(whole)


def spoil(rng: Random, data: bytes) -> bytes:
    """Return the bytes of a trace in which some messages are changed, left out, repeated or moved."""
    found = list(messages(data))
    for _ in range(rng.choice((1, 1, 2, 5))):
        place = rng.randrange(len(found))
        drawn = rng.random()
        if drawn < 0.1:
            found.pop(place)
        elif drawn < 0.2:
            found.insert(rng.randrange(len(found)), found[place])
        elif drawn < 0.3:
            found.insert(rng.randrange(len(found)), found.pop(place))
        else:
            found[place] = _changed(rng, found[place])
        found = found or [b""]
    return b"".join(varint(len(each)) + each for each in found)


def _changed(rng: Random, message: bytes, depth: int = 0) -> bytes:
    """Return a message with one field changed, or one within a field."""
    try:
        parts = fields(message)
    except (ValueError, IndexError):  # text, not a message
        return rng.choice(BYTES)
    if not parts:
        return rng.choice(BYTES)
    place = rng.randrange(len(parts))
    number, kind, data = parts[place]
    drawn = rng.random()
    if drawn < 0.12:
        parts.pop(place)
    elif drawn < 0.2:
        parts.insert(place, parts[place])
    elif drawn < 0.26:
        parts[place] = (rng.choice((0, 1, 2, 3, 15, 99, 2**28)), kind, data)
    elif kind == VARINT:
        parts[place] = (number, kind, varint(rng.choice(NUMBERS)))
    elif kind == LEN:
        parts[place] = (number, kind, _changed(rng, data, depth + 1) if depth < 3 else rng.choice(BYTES))
    else:
        parts[place] = (number, kind, rng.randbytes(len(data)))
    return joined(parts)
