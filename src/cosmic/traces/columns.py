"""Decode one field of many nodes at once into its column.

A step of `cosmic.traces.decoding` passes one field of each of many nodes. A node with an irregular field is marked, to
be decoded by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.traces.trace import ABSENT, COLUMNS, CollectiveType, Ints, NodeType
from cosmic.traces.trace import MISSING as OF_TEMPLATES
from cosmic.traces.wire import (
    ATTRIBUTE_NAME,
    COLUMN_OF,
    DIMENSIONS,
    GROUP,
    KERNEL,
    LEN,
    LIST_VALUES,
    NODE_FIELDS,
    SIZES,
    VALUE_FIELDS,
    VARINT,
    Node,
    as_text,
    key,
    varint,
)
from cosmic.traces.words import TOO_LONG, WORD, WordArray, Words, bools, byte, first_bytes, leading_varints, word

Mask = npt.NDArray[np.bool_]

UNSTATED = int(np.iinfo(np.int64).min)
"""In the columns `source` and `destination`, whose values may be any integer: not stated."""
NUMBERS = (*(name for name in COLUMNS if name not in ("group", "peer")), "source", "destination")
MISSING = {name: OF_TEMPLATES.get(name, UNSTATED) for name in NUMBERS}


@dataclass(frozen=True, slots=True, eq=False)
class Fields:
    """A field of each of many nodes: its row, its integer or length, and its place in the buffer."""

    row: Ints
    value: Ints
    start: Ints
    stop: Ints

    def where(self, condition: Mask) -> Fields:
        """Return the fields for which *condition* holds."""
        if condition.all():
            return self
        return self.at(np.flatnonzero(condition))

    def at(self, places: npt.NDArray[np.intp]) -> Fields:
        """Return the fields at *places*."""
        return Fields(self.row[places], self.value[places], self.start[places], self.stop[places])


@dataclass(frozen=True, slots=True)
class _Attribute:
    """An attribute that becomes a column."""

    name: str

    @property
    def start(self) -> bytes:
        """The first bytes of its message: the name's key, its length, and the name."""
        return key(ATTRIBUTE_NAME, LEN) + varint(len(self.name)) + self.name.encode()

    def bounds(self) -> tuple[int, int]:
        """Return the range of regular integers."""
        if self.name == "comm_type":
            return 0, max(CollectiveType)
        return 0 if self.name in SIZES else UNSTATED, 2**62


_ATTRIBUTES = [_Attribute(name) for name in (*COLUMN_OF, GROUP, DIMENSIONS, KERNEL)]
_SLOT_BITS = 6


def _slots(attributes: Sequence[_Attribute]) -> tuple[int, dict[int, _Attribute]]:
    """Return the factor of a perfect hash of the attributes' first words, and the attribute of each slot.

    The slot is the top bits of the product.
    """
    factor = 0x9E3779B97F4A7C15
    while True:
        slots = {int(word(each.start)) * factor % 2**64 >> 64 - _SLOT_BITS: each for each in attributes}
        if len(slots) == len(attributes):
            return factor, slots
        factor = factor * 5 % 2**64


_FACTOR, _SLOTS = _slots(_ATTRIBUTES)


def _tag(name: str, wire_type: int) -> int:
    """Return the one byte of the key of a node's field."""
    return key(NODE_FIELDS[name], wire_type)[0]


_LENGTHS = ("name", "ctrl_deps", "data_deps", "inputs", "outputs", "attr")
_VARINTS = ("id", "type", "ctrl_deps", "data_deps", "start_time_micros", "duration_micros")
_REGULAR_TAGS = {_tag(name, LEN) for name in _LENGTHS} | {_tag(name, VARINT) for name in _VARINTS}

_LIMITS = {"int32": 2**31, "uint32": 2**32, "sint32": 2**32, "bool": 2}
_LIMITS |= dict.fromkeys(("int64", "uint64", "sint64"), 2**56)
"""Integers of these types are regular below this."""
_KINDS = {key(VALUE_FIELDS[kind], VARINT)[0]: kind for kind in _LIMITS}
"""Types by the first byte of an attribute's value."""
_STRING = key(VALUE_FIELDS["string"], LEN)
_BOOLS = np.array(
    [
        word(key(VALUE_FIELDS["bool"] + 1, LEN) + varint(count + 2) + key(LIST_VALUES, LEN) + varint(count))
        for count in range(WORD + 1)
    ]
)
"""The first bytes of a list of bools, by its length."""
_BOOLS_START = 5


class _Texts(dict[bytes, int]):
    """A number for each text that nodes state; some texts mean none."""

    def __init__(self, *none: bytes) -> None:
        super().__init__(dict.fromkeys(none, ABSENT))
        self._none = len(none)
        self.short = _ShortTexts(self)

    def __missing__(self, text: bytes) -> int:
        number = self[text] = len(self) - self._none
        return number

    def texts(self) -> list[str]:
        """Return the texts by their numbers."""
        return [as_text(text) for text in list(self)[self._none :]]


class _ShortTexts(dict[int, int]):
    """Numbers of texts by a word that holds a text of up to seven bytes and, at the top, its length."""

    def __init__(self, texts: _Texts) -> None:
        super().__init__()
        self._texts = texts

    def __missing__(self, packed: int) -> int:
        *text, size = packed.to_bytes(WORD, "little")
        number = self[packed] = self._texts[bytes(text[:size])]
        return number


class Columns:
    """The columns of a table of *nodes* that is being decoded."""

    def __init__(self, buffer: bytes, nodes: int) -> None:
        self.buffer = buffer
        self.bytes = np.frombuffer(buffer, np.uint8)
        self.words = Words(buffer)
        self.numbers = {name: np.full(nodes, MISSING[name], np.int64) for name in NUMBERS}
        self.name_start, self.name_stop = np.zeros((2, nodes), np.int64)
        self.group = np.full(nodes, ABSENT, np.int64)
        self.groups = _Texts(b"", b"0")  # both mean all ranks
        self.kernels = _Texts(b"")
        self.process_groups: dict[int, str] = {}
        self.irregular = np.zeros(nodes, bool)
        """Nodes to decode one by one."""

    def mark_irregular(self, row: Ints, unless: Mask) -> None:
        """Mark rows as irregular, except where *unless* holds."""
        if not unless.all():
            self.irregular[row[~unless]] = True

    def take_node(self, row: int, node: Node) -> None:
        """Fill in a node that was decoded by itself."""
        for name, column in self.numbers.items():
            column[row] = node.numbers.get(name, MISSING[name])
        self.name_start[row], self.name_stop[row] = node.name
        self.group[row] = ABSENT if node.group is None else self.groups[node.group]
        self.numbers["kernel"][row] = ABSENT if node.kernel is None else self.kernels[node.kernel]
        if node.process_groups is not None:
            self.process_groups[row] = node.process_groups

    def take(self, tag: int, fields: Fields) -> None:
        """Fill in one field of some nodes."""
        if tag not in _REGULAR_TAGS:
            self.irregular[fields.row] = True
            return
        match tag >> 3:  # the number of a field, as in NODE_FIELDS
            case 1:
                self.numbers["id"][fields.row] = fields.value
            case 2:
                self.name_start[fields.row], self.name_stop[fields.row] = fields.start, fields.stop
            case 3:
                self.numbers["type"][fields.row] = fields.value
                regular = (fields.value != NodeType.METADATA) & (fields.value <= max(NodeType))
                self.mark_irregular(fields.row, unless=regular)
            case 7:
                self.numbers["duration_us"][fields.row] = fields.value
            case 10:
                self._take_attributes(fields)

    def _take_attributes(self, fields: Fields) -> None:
        """Fill in the attributes that become columns."""
        head = self.words[fields.start]
        slot = (head * np.uint64(_FACTOR) >> np.uint64(64 - _SLOT_BITS)).view(np.int64)
        others = np.ones(len(head), bool)
        for attribute in [_SLOTS[one] for one in distinct(slot) if one in _SLOTS]:
            same = head == word(attribute.start)
            others &= ~same
            self._take_attribute(attribute, fields.where(same))
        if others.any():
            self._skip(fields.where(others), head[others])

    def _skip(self, fields: Fields, head: WordArray) -> None:
        """Skip other attributes, if they start with a name."""
        size = byte(head, 1)
        named = (byte(head, 0) == key(ATTRIBUTE_NAME, LEN)[0]) & (size < 0x80)
        self.mark_irregular(fields.row, unless=named & (fields.start + 2 + size <= fields.stop))

    def _take_attribute(self, attribute: _Attribute, fields: Fields) -> None:
        """Fill in an attribute whose first word matches; the second has the rest of its name and the value's key."""
        start = fields.start + len(attribute.start)
        within = start <= fields.stop
        self.mark_irregular(fields.row, unless=within)
        rest = attribute.start[WORD:]
        second = self.words[fields.start + WORD]
        same = first_bytes(second, len(rest)) == word(rest)
        values = Fields(fields.row, byte(second, len(rest)), start, fields.stop).where(within & same)
        if attribute.name == GROUP:
            self._take_texts(values, self.groups, self.group)
        elif attribute.name == KERNEL:
            self._take_texts(values, self.kernels, self.numbers["kernel"])
        elif attribute.name == DIMENSIONS:
            self._take_dimensions(values)
        else:
            for tag in distinct(values.value):
                self._take_integers(attribute, _KINDS.get(tag), values.where(values.value == tag))

    def _take_integers(self, attribute: _Attribute, kind: str | None, values: Fields) -> None:
        """Fill in an attribute that holds a varint."""
        if kind is None:
            self.irregular[values.row] = True
            return
        written = key(VALUE_FIELDS[kind], VARINT)
        start = values.start + len(written)
        value, size = leading_varints(self.words[start])
        regular = (size < TOO_LONG) & (start + size == values.stop) & (value < _LIMITS[kind])
        regular &= self.bytes[start - 1] == written[-1]
        if kind.startswith("sint"):
            value = value >> 1 ^ -(value & 1)
        least, most = attribute.bounds()
        regular &= (value >= least) & (value <= most)
        self.mark_irregular(values.row, unless=regular)
        self.numbers[COLUMN_OF[attribute.name]][values.row] = value

    def _take_texts(self, values: Fields, texts: _Texts, column: Ints) -> None:
        """Fill in a column of texts by their numbers."""
        head = self.words[values.start]
        start = values.start + len(_STRING) + 1
        size = byte(head, len(_STRING))
        regular = (first_bytes(head, len(_STRING)) == word(_STRING)) & (size < 0x80) & (start + size == values.stop)
        self.mark_irregular(values.row, unless=regular)
        row, start, stop, size = (each[regular] for each in (values.row, start, values.stop, size))
        short = size < WORD
        if not short.all():
            spans = zip(start.tolist(), stop.tolist(), strict=True)
            column[row] = [texts[self.buffer[first:last]] for first, last in spans]
            return
        packed = first_bytes(self.words[start], size) | size.view(np.uint64) << np.uint64(8 * WORD - 8)
        column[row] = list(map(texts.short.__getitem__, packed.tolist()))

    def _take_dimensions(self, values: Fields) -> None:
        """Fill in lists of up to eight bools as bits."""
        count = values.stop - values.start - _BOOLS_START
        size = np.clip(count, 0, WORD)
        bits, regular = bools(first_bytes(self.words[values.start + _BOOLS_START], size))
        regular &= (size == count) & (first_bytes(self.words[values.start], _BOOLS_START) == _BOOLS[size])
        self.mark_irregular(values.row, unless=regular)
        self.numbers["involved_dims"][values.row] = bits


def distinct(values: npt.NDArray[Any]) -> list[int]:
    """Return the distinct *values*, which are small integers."""
    if len(values) and (values == values[0]).all():
        return [int(values[0])]
    found: list[int] = np.flatnonzero(np.bincount(values)).tolist()
    return found
