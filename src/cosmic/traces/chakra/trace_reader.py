"""Read Chakra traces: a file for each rank, `<prefix>.<rank>.et`.

The files of a job's ranks have the same nodes, and differ in a few bytes of some: groups and peers. So files are
split into messages, and each distinct message is decoded once. A file is compared with earlier ones of its length.
Where all bytes that state lengths are equal, its messages lie where the other file's do, and only those that differ
are looked at. Ranks that run the same nodes share a template.

**Decoding.** Nodes are decoded in blocks, field by field, with array operations. A step loads, from each node of the block, the key of its next field and the eight bytes
after it, which hold the field's number or length. It decodes the field into its column and moves on; finished nodes
drop out. In a step nearly all nodes have the same field, or one of two or three. Irregular nodes (long numbers,
another order within an attribute, rare types, anything malformed) are marked and left to
`cosmic.traces.chakra.wire_format.decode_node`, which decodes one node and reports its mistakes.

`Words` loads eight bytes from many places of a buffer, each as one little-endian integer. Bit operations act on all
eight bytes together, so a varint is decoded without a loop over its bytes. `TableColumns` decodes one field of many
nodes into its column.

**Tensors.** What a node reads and writes, as ASTRA-sim's memory tracker reads it, are two attributes, `inputs` and `outputs`: lists of text in which names and bytes alternate. No other
part of a simulation needs them, so they are read apart from the columns (`tensors_of`).
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError, require
from cosmic.base.files import Unreadable, read_bytes
from cosmic.traces.chakra.wire_format import (
    ATTRIBUTE_NAME,
    COLUMN_OF,
    DIMENSIONS,
    GROUP,
    INTEGER_LIMIT,
    KERNEL,
    LEN,
    LIST_VALUES,
    METADATA_FIELDS,
    NODE_FIELDS,
    SIZES,
    VALUE_FIELDS,
    VARINT,
    DecodedNode,
    check_metadata,
    decode_node,
    decode_text,
    encode_varint,
    field_key,
    read_fields,
    read_varint,
)
from cosmic.traces.trace import ABSENT, COLUMNS, CollectiveType, Ints, NodeType, RankTrace, Template, TraceSet
from cosmic.traces.trace import MISSING as OF_TEMPLATES

WordArray = npt.NDArray[np.uint64]

WORD = 8
TOO_LONG = WORD + 1
"""The size of a varint that does not end within its word."""


def _repeat_byte(byte: int) -> np.uint64:
    """Return a word of eight equal bytes."""
    return np.uint64(int.from_bytes(bytes([byte] * WORD), "little"))


_TOP_BITS, _LOWEST_BITS, _OTHER_BITS = _repeat_byte(0x80), _repeat_byte(0x01), _repeat_byte(0x7F)
_FIRST = np.array([256**size - 1 for size in range(WORD + 1)], np.uint64)
_COLLECT = np.uint64(sum(1 << 7 * index for index in range(1, WORD + 1)))


class Words:
    """The words of a buffer, by start."""

    def __init__(self, buffer: bytes) -> None:
        self._all: WordArray = np.ndarray((max(len(buffer) - WORD + 1, 0),), "<u8", buffer, strides=(1,))

    def __getitem__(self, offsets: Ints) -> WordArray:
        return self._all[offsets].astype(np.uint64, copy=False)


def leading_word(start: bytes) -> np.uint64:
    r"""Return the word that begins with *start*, padded with zeros.

    >>> int(leading_word(b"\x01\x02"))
    513
    """
    return np.uint64(int.from_bytes(start[:WORD], "little"))


def select_byte(words: WordArray, position: int) -> Ints:
    """Return one byte of each word."""
    return (words >> np.uint64(8 * position) & np.uint64(0xFF)).view(np.int64)


def first_bytes(words: WordArray, sizes: Ints | int) -> WordArray:
    """Return the words with all but their first *sizes* bytes cleared."""
    return words & _FIRST[sizes]


def leading_varints(words: WordArray) -> tuple[Ints, Ints]:
    r"""Return the varints at the start of *words*, and their sizes in bytes (`TOO_LONG` if more than eight).

    >>> values, sizes = leading_varints(np.array([leading_word(b"\x05"), leading_word(b"\xac\x02")]))
    >>> values.tolist(), sizes.tolist()
    ([5, 300], [1, 2])
    """
    ends = ~words
    ends &= _TOP_BITS
    below = np.negative(ends)
    below &= ends  # the top bit of the varint's last byte
    below -= np.uint64(1)
    sizes = below & _LOWEST_BITS
    sizes *= _LOWEST_BITS  # adds the bytes up in the top byte
    sizes >>= np.uint64(56)
    sizes[ends == 0] = TOO_LONG
    below &= words
    below &= _OTHER_BITS
    # Close the gaps between the 7 bits of each byte: pairs, then fours, then eights; no varint is longer than `most`.
    bits = below
    most = int(sizes.max(initial=0))
    for size, width, low in ((1, 7, 0x007F007F007F007F), (2, 14, 0x00003FFF00003FFF), (4, 28, 0x0FFFFFFF)):
        if most > size:
            upper = bits >> np.uint64(size)
            upper &= np.uint64(low << width)
            bits &= np.uint64(low)
            bits |= upper
    return bits.view(np.int64), sizes.view(np.int64)


def pack_bools(words: WordArray) -> tuple[Ints, npt.NDArray[np.bool_]]:
    r"""Return the bytes of words, each 0 or 1, as bits, the first one lowest, and whether all bytes were 0 or 1.

    >>> bits, right = pack_bools(np.array([leading_word(b"\x01\x00\x01"), leading_word(b"\x01\x02")]))
    >>> int(bits[0]), right.tolist()
    (5, [True, False])
    """
    return (words * _COLLECT >> np.uint64(56)).view(np.int64), words & ~_LOWEST_BITS == 0


Mask = npt.NDArray[np.bool_]

UNSTATED = int(np.iinfo(np.int64).min)
"""In the columns `source` and `destination`, whose values may be any integer: not stated."""
NUMBERS = (*(name for name in COLUMNS if name not in ("group", "peer")), "source", "destination")
MISSING = {name: OF_TEMPLATES.get(name, UNSTATED) for name in NUMBERS}


@dataclass(frozen=True, slots=True, eq=False)
class NodeFields:
    """A field of each of many nodes: its row, its integer or length, and its place in the buffer."""

    row: Ints
    value: Ints
    start: Ints
    stop: Ints

    def where(self, condition: Mask) -> NodeFields:
        """Return the fields for which *condition* holds."""
        if condition.all():
            return self
        return self.select(np.flatnonzero(condition))

    def select(self, indices: npt.NDArray[np.intp]) -> NodeFields:
        """Return the fields at *indices*."""
        return NodeFields(self.row[indices], self.value[indices], self.start[indices], self.stop[indices])


@dataclass(frozen=True, slots=True)
class _ColumnAttribute:
    """An attribute that becomes a column."""

    name: str

    @property
    def start(self) -> bytes:
        """The first bytes of its message: the name's key, its length, and the name."""
        return field_key(ATTRIBUTE_NAME, LEN) + encode_varint(len(self.name)) + self.name.encode()

    def bounds(self) -> tuple[int, int]:
        """Return the range of regular integers."""
        if self.name == "comm_type":
            return 0, max(CollectiveType)
        return 0 if self.name in SIZES else UNSTATED, 2**62


_ATTRIBUTES = [_ColumnAttribute(name) for name in (*COLUMN_OF, GROUP, DIMENSIONS, KERNEL)]
_SLOT_BITS = 6


def _perfect_hash(attributes: Sequence[_ColumnAttribute]) -> tuple[int, dict[int, _ColumnAttribute]]:
    """Return the factor of a perfect hash of the attributes' first words, and the attribute of each slot.

    The slot is the top bits of the product.
    """
    factor = 0x9E3779B97F4A7C15
    while True:
        slots = {
            int(leading_word(attribute.start)) * factor % 2**64 >> 64 - _SLOT_BITS: attribute
            for attribute in attributes
        }
        if len(slots) == len(attributes):
            return factor, slots
        factor = factor * 5 % 2**64


_FACTOR, _SLOTS = _perfect_hash(_ATTRIBUTES)


def _one_byte_key(name: str, wire_type: int) -> int:
    """Return the one byte of the key of a node's field."""
    return field_key(NODE_FIELDS[name], wire_type)[0]


_LENGTHS = ("name", "ctrl_deps", "data_deps", "inputs", "outputs", "attr")
_VARINTS = ("id", "type", "ctrl_deps", "data_deps", "start_time_micros", "duration_micros")
_REGULAR_TAGS = {_one_byte_key(name, LEN) for name in _LENGTHS} | {_one_byte_key(name, VARINT) for name in _VARINTS}

_LIMITS = {"int32": 2**31, "uint32": 2**32, "sint32": 2**32, "bool": 2}
_LIMITS |= dict.fromkeys(("int64", "uint64", "sint64"), 2**56)
"""Integers of these types are regular below this."""
_KINDS = {field_key(VALUE_FIELDS[kind], VARINT)[0]: kind for kind in _LIMITS}
"""Types by the first byte of an attribute's value."""
_STRING = field_key(VALUE_FIELDS["string"], LEN)
_BOOLS = np.array(
    [
        leading_word(
            field_key(VALUE_FIELDS["bool"] + 1, LEN)
            + encode_varint(count + 2)
            + field_key(LIST_VALUES, LEN)
            + encode_varint(count)
        )
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
        return [decode_text(text) for text in list(self)[self._none :]]


class _ShortTexts(dict[int, int]):
    """Numbers of texts by a word that holds a text of up to seven bytes and, at the top, its length."""

    def __init__(self, texts: _Texts) -> None:
        super().__init__()
        self._texts = texts

    def __missing__(self, packed: int) -> int:
        *text, size = packed.to_bytes(WORD, "little")
        number = self[packed] = self._texts[bytes(text[:size])]
        return number


class TableColumns:
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

    def fill_node(self, row: int, node: DecodedNode) -> None:
        """Fill in a node that was decoded by itself."""
        for name, column in self.numbers.items():
            column[row] = node.numbers.get(name, MISSING[name])
        self.name_start[row], self.name_stop[row] = node.name
        self.group[row] = ABSENT if node.group is None else self.groups[node.group]
        self.numbers["kernel"][row] = ABSENT if node.kernel is None else self.kernels[node.kernel]
        if node.process_groups is not None:
            self.process_groups[row] = node.process_groups

    def fill_field(self, tag: int, fields: NodeFields) -> None:
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

    def _take_attributes(self, fields: NodeFields) -> None:
        """Fill in the attributes that become columns."""
        head = self.words[fields.start]
        slot = (head * np.uint64(_FACTOR) >> np.uint64(64 - _SLOT_BITS)).view(np.int64)
        others = np.ones(len(head), bool)
        for attribute in [_SLOTS[name_length] for name_length in distinct_small_values(slot) if name_length in _SLOTS]:
            same = head == leading_word(attribute.start)
            others &= ~same
            self._take_attribute(attribute, fields.where(same))
        if others.any():
            self._skip(fields.where(others), head[others])

    def _skip(self, fields: NodeFields, head: WordArray) -> None:
        """Skip other attributes, if they start with a name."""
        size = select_byte(head, 1)
        named = (select_byte(head, 0) == field_key(ATTRIBUTE_NAME, LEN)[0]) & (size < 0x80)
        self.mark_irregular(fields.row, unless=named & (fields.start + 2 + size <= fields.stop))

    def _take_attribute(self, attribute: _ColumnAttribute, fields: NodeFields) -> None:
        """Fill in an attribute whose first word matches; the second has the rest of its name and the value's key."""
        start = fields.start + len(attribute.start)
        within = start <= fields.stop
        self.mark_irregular(fields.row, unless=within)
        rest = attribute.start[WORD:]
        second = self.words[fields.start + WORD]
        same = first_bytes(second, len(rest)) == leading_word(rest)
        values = NodeFields(fields.row, select_byte(second, len(rest)), start, fields.stop).where(within & same)
        if attribute.name == GROUP:
            self._take_texts(values, self.groups, self.group)
        elif attribute.name == KERNEL:
            self._take_texts(values, self.kernels, self.numbers["kernel"])
        elif attribute.name == DIMENSIONS:
            self._take_dimensions(values)
        else:
            for tag in distinct_small_values(values.value):
                self._take_integers(attribute, _KINDS.get(tag), values.where(values.value == tag))

    def _take_integers(self, attribute: _ColumnAttribute, kind: str | None, values: NodeFields) -> None:
        """Fill in an attribute that holds a varint."""
        if kind is None:
            self.irregular[values.row] = True
            return
        key = field_key(VALUE_FIELDS[kind], VARINT)
        start = values.start + len(key)
        value, size = leading_varints(self.words[start])
        regular = (size < TOO_LONG) & (start + size == values.stop) & (value < _LIMITS[kind])
        regular &= self.bytes[start - 1] == key[-1]
        if kind.startswith("sint"):
            value = value >> 1 ^ -(value & 1)
        least, most = attribute.bounds()
        regular &= (value >= least) & (value <= most)
        self.mark_irregular(values.row, unless=regular)
        self.numbers[COLUMN_OF[attribute.name]][values.row] = value

    def _take_texts(self, values: NodeFields, texts: _Texts, column: Ints) -> None:
        """Fill in a column of texts by their numbers."""
        head = self.words[values.start]
        start = values.start + len(_STRING) + 1
        size = select_byte(head, len(_STRING))
        regular = (
            (first_bytes(head, len(_STRING)) == leading_word(_STRING)) & (size < 0x80) & (start + size == values.stop)
        )
        self.mark_irregular(values.row, unless=regular)
        row, start, stop, size = (entries[regular] for entries in (values.row, start, values.stop, size))
        short = size < WORD
        if not short.all():
            spans = zip(start.tolist(), stop.tolist(), strict=True)
            column[row] = [texts[self.buffer[first:last]] for first, last in spans]
            return
        packed = first_bytes(self.words[start], size) | size.view(np.uint64) << np.uint64(8 * WORD - 8)
        column[row] = list(map(texts.short.__getitem__, packed.tolist()))

    def _take_dimensions(self, values: NodeFields) -> None:
        """Fill in lists of up to eight bools as bits."""
        count = values.stop - values.start - _BOOLS_START
        size = np.clip(count, 0, WORD)
        bits, regular = pack_bools(first_bytes(self.words[values.start + _BOOLS_START], size))
        regular &= (size == count) & (first_bytes(self.words[values.start], _BOOLS_START) == _BOOLS[size])
        self.mark_irregular(values.row, unless=regular)
        self.numbers["involved_dims"][values.row] = bits


def distinct_small_values(values: npt.NDArray[Any]) -> list[int]:
    """Return the distinct *values*, which are small integers."""
    if len(values) and (values == values[0]).all():
        return [int(values[0])]
    distinct: list[int] = np.flatnonzero(np.bincount(values)).tolist()
    return distinct


BLOCK_NODES, BLOCK_BYTES = 2**14, 2**23
"""Most nodes, and about the most bytes, of a block: its arrays stay in a processor's cache."""
FEW = 16
"""Up to this many nodes are decoded faster one by one."""
MARGIN = 2 * WORD
"""Nodes this near to the end of the buffer are decoded one by one: words are loaded from beyond them."""
_LISTS = {NODE_FIELDS["data_deps"]: "data", NODE_FIELDS["ctrl_deps"]: "ctrl"}
_NOTHING: Ints = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """A list of integers for each row: row *r* has ``value[start[r]:start[r + 1]]``."""

    start: Ints
    value: Ints


@dataclass(frozen=True, slots=True, eq=False)
class NodeTable:
    """Decoded nodes, in the order of the buffer."""

    buffer: bytes
    numbers: dict[str, Ints]
    """By column, one of `NUMBERS`."""
    name_start: Ints
    """Where in *buffer* a node's name starts."""
    name_stop: Ints
    data: Lists
    ctrl: Lists
    group: Ints
    """Index into *groups*; `ABSENT` means all ranks."""
    groups: list[str]
    kernels: list[str]
    process_groups: dict[int, str]
    """By row."""


def decode_nodes(buffer: bytes, heads: Ints, where: Callable[[int], str]) -> NodeTable:
    """Return the nodes that start, each with its length, at *heads*; the last entry of *heads* is the end.

    *where* returns the file of a row, for errors.
    """
    decoder = _Decoder(buffer, heads, where)
    for first, stop in _blocks(heads):
        decoder.decode_rows(first, stop)
    return decoder.table()


def _blocks(heads: Ints) -> Iterator[tuple[int, int]]:
    """Yield the first row of each block, and its end."""
    first, nodes = 0, len(heads) - 1
    while first < nodes:
        stop = min(first + BLOCK_NODES, int(np.searchsorted(heads, heads[first] + BLOCK_BYTES)) + 1, nodes)
        yield first, stop
        first = stop


class _Decoder:
    """A table that is being decoded."""

    def __init__(self, buffer: bytes, heads: Ints, where: Callable[[int], str]) -> None:
        self._columns = TableColumns(buffer, len(heads) - 1)
        self._heads = heads
        self._where = where
        self._counts = {kind: np.zeros(len(heads) - 1, np.int64) for kind in _LISTS.values()}
        self._values: dict[str, list[Ints]] = {kind: [_NOTHING] for kind in _LISTS.values()}

    def table(self) -> NodeTable:
        """Return the decoded table."""
        columns = self._columns
        on_cpu = columns.numbers["on_cpu"]
        np.not_equal(on_cpu, 0, out=on_cpu, casting="unsafe")
        return NodeTable(
            buffer=columns.buffer,
            numbers=columns.numbers,
            name_start=columns.name_start,
            name_stop=columns.name_stop,
            data=self._lists("data"),
            ctrl=self._lists("ctrl"),
            group=columns.group,
            groups=columns.groups.texts(),
            kernels=columns.kernels.texts(),
            process_groups=columns.process_groups,
        )

    def _lists(self, kind: str) -> Lists:
        return Lists(np.concatenate([[0], np.cumsum(self._counts[kind])]), np.concatenate(self._values[kind]))

    def decode_rows(self, first: int, stop: int) -> None:
        """Decode the rows from *first* to *stop*."""
        listed = {kind: self._repeated_integers(fields) for kind, fields in self._decode_fields(first, stop).items()}
        irregular = np.flatnonzero(self._columns.irregular[first:stop]) + first
        nodes = {row: self._decode_one(row) for row in irregular.tolist()}
        for kind, regular in listed.items():
            owner, value = self._with_lists_of(nodes, kind, *regular) if nodes else regular
            self._counts[kind][first:stop] = np.bincount(owner - first, minlength=stop - first)
            self._values[kind].append(value)

    def _decode_fields(self, first: int, stop: int) -> dict[str, list[NodeFields]]:
        """Fill in the rows from *first* to *stop*, except their dependencies: return the fields that hold these."""
        columns = self._columns
        lists: dict[str, list[NodeFields]] = {kind: [] for kind in _LISTS.values()}
        row, head, end = np.arange(first, stop), self._heads[first:stop], self._heads[first + 1 : stop + 1]
        inside = end <= len(columns.buffer) - MARGIN
        columns.mark_irregular(row, unless=inside)
        row, head, end = row[inside], head[inside], end[inside]
        offset = head + leading_varints(columns.words[head])[1]
        while True:
            if not (going := offset < end).all():
                row, offset, end = row[going], offset[going], end[going]
            if len(row) <= FEW:
                columns.irregular[row] = True
                return lists
            tag = columns.bytes[offset]
            value, size = leading_varints(columns.words[offset + 1])
            has_length = (tag >> 1 & 1).astype(np.int64)  # holds for regular tags; others are marked
            start = offset + 1 + size * has_length
            offset = offset + 1 + size + value * has_length
            regular = (size < TOO_LONG) & (offset <= end)
            if not regular.all():
                columns.mark_irregular(row, unless=regular)
                row, tag, value, start, offset, end = (
                    column[regular] for column in (row, tag, value, start, offset, end)
                )
            fields = NodeFields(row, value, start, offset)
            for key in distinct_small_values(tag):
                chosen = fields.where(tag == key)
                columns.fill_field(key, chosen)
                if (kind := _LISTS.get(key >> 3)) is not None:
                    lists[kind].append(chosen)

    def _repeated_integers(self, steps: list[NodeFields]) -> tuple[Ints, Ints]:
        """Return the row and the value of every integer of a repeated field, packed or not."""
        columns, fields = self._columns, _by_row(steps)
        ended = (columns.bytes[fields.stop - 1] < 0x80) | (fields.stop == fields.start)
        columns.mark_irregular(fields.row, unless=ended)
        fields = fields.where(ended)
        sizes = fields.stop - fields.start
        offsets = np.arange(sizes.sum()) + np.repeat(fields.start - np.cumsum(sizes) + sizes, sizes)
        ends = np.flatnonzero(columns.bytes[offsets] < 0x80)
        starts = np.concatenate([[0], ends + 1])[: len(ends)]
        value, size = leading_varints(columns.words[offsets[starts]])
        owner = np.repeat(fields.row, sizes)[ends]
        columns.mark_irregular(owner, unless=size < TOO_LONG)
        return owner, value

    def _with_lists_of(self, nodes: dict[int, DecodedNode], kind: str, owner: Ints, value: Ints) -> tuple[Ints, Ints]:
        """Return rows and values together with those of *nodes* that were decoded one by one."""
        lists = [node.data if kind == "data" else node.ctrl for node in nodes.values()]
        regular = ~self._columns.irregular[owner]
        owners = np.concatenate([owner[regular], np.repeat(np.array(list(nodes)), list(map(len, lists)))])
        values = np.concatenate(
            [value[regular], np.array([number for numbers in lists for number in numbers], np.int64)]
        )
        order = np.argsort(owners, kind="stable")
        return owners[order], values[order]

    def _decode_one(self, row: int) -> DecodedNode:
        """Fill in an irregular node, and return it for its lists."""
        buffer, where, end = self._columns.buffer, self._where(row), int(self._heads[row + 1])
        _, start = read_varint(buffer, int(self._heads[row]), end, where)
        node = decode_node(buffer, start, end, where)
        self._columns.fill_node(row, node)
        return node


def _by_row(steps: list[NodeFields]) -> NodeFields:
    """Return the fields of all steps in the order of their nodes."""
    if len(steps) == 1:
        return steps[0]
    row, value, start, stop = (
        np.concatenate([_NOTHING, *(getattr(step, name) for step in steps)]) for name in NodeFields.__slots__
    )
    return NodeFields(row, value, start, stop).select(np.argsort(row, kind="stable"))


MOST_NODES = 5_000_000
"""Of one rank."""
MOST_EMPTY = 64
"""A node that says nothing, not even its id, is one byte, 0: more of them are zeros that fill a file after a crash."""
_MOST_FILES = 8
"""How many files of one length a file is compared with."""
_MOST_KEPT_BYTES = 2**28
"""How many bytes of files are kept to compare others with."""
_MOST_DIFFERENT = 4
"""A file is like another if at most one byte in this many differs: else it is faster split anew."""


class Numbering(dict[Any, int]):
    """Numbers keys in the order of first access."""

    def __missing__(self, wanted: Any) -> int:
        number = self[wanted] = len(self)
        return number

    def number_all(self, all_wanted: list[Any]) -> Ints:
        """Return the number of each."""
        return np.fromiter(map(self.__getitem__, all_wanted), np.int64, len(all_wanted))


@dataclass(frozen=True, slots=True, eq=False)
class SplitFile:
    """A file as messages."""

    rows: Ints
    """The number of each of its messages."""
    like: SplitFile | None = None
    """The file that it differs from in the messages at *changed*, and nowhere else."""
    changed: Ints = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class _KnownFile:
    """A file that was split byte by byte."""

    split: SplitFile
    bytes: npt.NDArray[np.uint8]
    heads: Ints
    bodies: Ints
    """Where each message starts behind its length."""

    def changed(self, data: npt.NDArray[np.uint8]) -> Ints | None:
        """Return the messages in which *data*, of the same length, differs; None if they may lie elsewhere."""
        differences = np.flatnonzero(self.bytes != data)
        if not len(differences):
            return differences
        if len(differences) * _MOST_DIFFERENT > len(data) or differences[0] < self.heads[0]:
            return None
        node = np.searchsorted(self.heads, differences, "right") - 1
        if (differences < self.bodies[node]).any():
            return None
        return node[np.flatnonzero(np.diff(node, prepend=-1))]


class DistinctMessages:
    """The distinct messages of files, numbered."""

    def __init__(self) -> None:
        self.numbers = Numbering()
        self._known: dict[int, list[_KnownFile]] = {}
        self._kept_bytes = 0

    def split(self, data: bytes, where: str) -> SplitFile:
        """Return the messages of a file; *where* is its name, for errors."""
        seen = np.frombuffer(data, np.uint8)
        for file in self._known.get(len(data), ()):
            if (changed := file.changed(seen)) is None:
                continue
            if not len(changed):
                return file.split
            rows = file.split.rows.copy()
            spans = zip(file.heads[changed].tolist(), file.heads[changed + 1].tolist(), strict=True)
            rows[changed] = self.numbers.number_all([data[start:stop] for start, stop in spans])
            return SplitFile(rows, file.split, changed)
        return self._split_anew(data, seen, where)

    def _split_anew(self, data: bytes, seen: npt.NDArray[np.uint8], where: str) -> SplitFile:
        starts = message_heads(data, where)
        split = SplitFile(self.numbers.number_all([data[start:stop] for start, stop in pairwise(starts.tolist())]))
        same_length = self._known.setdefault(len(data), [])
        if len(same_length) < _MOST_FILES and self._kept_bytes + len(data) <= _MOST_KEPT_BYTES:
            self._kept_bytes += len(data)
            # The bytes of each length: 7 bits a byte, the top bit set in all but the last.
            heads = starts[:-1]
            sizes = np.ones(len(heads), np.int64)
            going = np.flatnonzero(seen[heads] >= 0x80)
            while len(going):
                sizes[going] += 1
                going = going[seen[heads[going] + sizes[going] - 1] >= 0x80]
            same_length.append(_KnownFile(split, seen, starts, starts[:-1] + sizes))
        return split


def message_heads(data: bytes, where: str) -> Ints:
    """Return where each node starts, at its length, and where the last one ends."""
    if not data:
        raise SpecError(where, data, "the file is empty")
    length, start = read_varint(data, 0, len(data), where)
    if start + length <= len(data):
        check_metadata(data, start, start + length, where)
    starts = islice(_message_starts(data, min(start + length, len(data) + 1), where), MOST_NODES + 2)
    heads = np.fromiter(starts, np.int64)
    if len(heads) > MOST_NODES + 1:
        raise SpecError(where, f"{len(data):,} bytes", f"has more than the {MOST_NODES:,} nodes that a rank may have")
    empty = int((np.diff(heads) == 1).sum())
    if empty > MOST_EMPTY:
        raise SpecError(where, f"{empty:,} nodes", "say nothing, not even their id: zeros fill this file")
    return heads


def _message_starts(data: bytes, offset: int, where: str) -> Iterator[int]:
    """Yield where messages start, from *offset* on, and where the last one ends."""
    size = len(data)
    yield offset
    try:
        while offset < size:
            low = data[offset]
            if low < 0x80:
                offset += low + 1
            elif (high := data[offset + 1]) < 0x80:
                offset += (low & 0x7F) + (high << 7) + 2
            else:
                length, offset = read_varint(data, offset, size, where)
                offset = min(offset + length, size + 1)  # lest it overflow an array
            yield offset
    except IndexError:
        raise SpecError(where, data[offset:], "the file ends inside a length") from None
    if offset > size:
        raise SpecError(where, f"{size} bytes", "the file ends inside a message")


MOST_BYTES = 2**30
"""The most that the trace of one rank may have, decompressed; `MOST_NODES` bounds it, too."""
_GZIP = b"\x1f\x8b"
_RANK_COLUMNS = ("source", "destination")
"""Columns in which ranks of one template differ."""


class DecodedNames(Sequence[str]):
    """The names of nodes, decoded on access.

    >>> names = DecodedNames(b"addmul", np.array([0, 3]), np.array([3, 6]))
    >>> len(names), names[1], list(names[:1])
    (2, 'mul', ['add'])
    """

    def __init__(self, buffer: bytes, start: Ints, stop: Ints) -> None:
        self._buffer = buffer
        self._start = start
        self._stop = stop

    def __len__(self) -> int:
        return len(self._start)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> DecodedNames: ...
    def __getitem__(self, index: int | slice) -> str | DecodedNames:
        if isinstance(index, slice):
            return DecodedNames(self._buffer, self._start[index], self._stop[index])
        return decode_text(self._buffer[self._start[index] : self._stop[index]])


def read_trace(path: str | Path, *, distinct_ids: bool = True) -> RankTrace:
    """Return the trace in the file at *path*, which may be compressed with gzip.

    Two nodes with the same id are refused; without *distinct_ids* they are kept, in the order of the file.
    """
    path = Path(path)
    data = read_contents(path)
    heads = message_heads(data, path.name)
    table = decode_nodes(data, heads, lambda _: path.name)
    rank = _bind_rank(table, np.arange(len(heads) - 1), path.name, distinct_ids)
    return rank.to(_template(table, rank))


def read_traces(prefix: str | Path, ranks: int | None = None, *, distinct_ids: bool = True) -> TraceSet:
    """Return the traces of a job: the files `<prefix>.<rank>.et` (or `.et.gz`) of ranks 0, 1, ...

    Without *ranks*, read all files; no rank below the last may be missing. *distinct_ids* as for `read_trace`.
    """
    paths = trace_paths(prefix, ranks)
    if len(paths) == 1:
        return TraceSet((read_trace(paths[0], distinct_ids=distinct_ids),), str(prefix))
    messages = DistinctMessages()
    split_files, file_rows = [], [0]
    for file_path in paths:
        split_files.append(messages.split(read_contents(file_path), file_path.name))
        file_rows.append(len(messages.numbers))

    def where(row: int) -> str:
        return paths[int(np.searchsorted(file_rows, row, "right")) - 1].name

    table, files = (
        decode_nodes(b"".join(messages.numbers), np.cumsum([0, *map(len, messages.numbers)]), where),
        split_files,
    )
    # Nodes that differ only in group and peer get one number.
    names = [
        table.buffer[start:stop]
        for start, stop in zip(table.name_start.tolist(), table.name_stop.tolist(), strict=True)
    ]
    columns = [values for name, values in table.numbers.items() if name not in _RANK_COLUMNS]
    columns.append(Numbering().number_all(names))
    for lists in (table.data, table.ctrl):
        values = lists.value.tobytes()
        bounds = (lists.start * lists.value.itemsize).tolist()
        columns.append(Numbering().number_all([values[start:stop] for start, stop in pairwise(bounds)]))
    texts = np.full(len(names), ABSENT)
    texts[list(table.process_groups)] = Numbering().number_all(list(table.process_groups.values()))
    matrix = np.stack([*columns, texts], axis=1)
    classes = Numbering().number_all(matrix.view(f"V{matrix.shape[1] * matrix.itemsize}").ravel().tolist())
    templates: dict[tuple[bytes, ...], Template] = {}
    bound: dict[int, tuple[_RankRows, RankTrace]] = {}  # by the identity of a file: files may be equal byte by byte
    for path, file in zip(paths, files, strict=True):
        if id(file) in bound:
            continue
        if (trace := _bind_like_earlier(table, classes, file, bound.get(id(file.like)))) is not None:
            bound[id(file)] = bound[id(file.like)][0], trace
            continue
        rank = _bind_rank(table, file.rows, path.name, distinct_ids)
        key = classes[rank.rows].tobytes(), rank.group.tobytes(), rank.peer.tobytes()
        if key not in templates:
            templates[key] = _template(table, rank)
        bound[id(file)] = rank, rank.to(templates[key])
    return TraceSet(tuple(bound[id(file)][1] for file in files), str(prefix))


def read_metadata(prefix: str | Path) -> dict[str, str]:
    """Return the origin that the trace of rank 0 states: the text attributes of its first message."""
    path = trace_paths(prefix, 1)[0]
    data = read_contents(path)
    size, start = read_varint(data, 0, len(data), path.name)
    check_metadata(data, start, start + size, path.name)
    metadata = {}
    for entry in read_fields(data, start, min(start + size, len(data)), path.name):
        if entry.number == METADATA_FIELDS["attr"]:
            fields = read_fields(data, entry.start, entry.stop, path.name)
            parts = {field.number: decode_text(data[field.start : field.stop]) for field in fields}
            if ATTRIBUTE_NAME in parts and VALUE_FIELDS["string"] in parts:
                metadata[parts[ATTRIBUTE_NAME]] = parts[VALUE_FIELDS["string"]]
    return metadata


def trace_paths(prefix: str | Path, ranks: int | None = None) -> list[Path]:
    """Return the file of each rank; without *ranks*, of all that there are."""
    prefix = Path(prefix)
    require(ranks is None or ranks > 0, "ranks", ranks, "must be at least 1")
    pattern = re.compile(rf"{re.escape(prefix.name)}\.(0|[1-9][0-9]{{0,8}})\.et(\.gz)?")
    try:
        names = sorted(path.name for path in prefix.parent.iterdir())
    except (OSError, ValueError) as error:
        raise Unreadable.of("file", prefix.parent, error) from None
    names_by_rank = {int(match[1]): match[0] for name in reversed(names) if (match := pattern.fullmatch(name))}
    wanted = range(max(names_by_rank, default=0) + 1 if ranks is None else ranks)
    if not names_by_rank and prefix.name.endswith((".et", ".et.gz")) and prefix.name in names:
        start = prefix.with_name(prefix.name.removesuffix(".gz").removesuffix(".et").rpartition(".")[0] or "PREFIX")
        raise SpecError("traces", str(prefix), f"is the trace of one rank: give the prefix of all, such as {start}")
    for rank in wanted:
        if rank not in names_by_rank:
            raise SpecError("file", f"{prefix}.{rank}.et", "the trace of this rank is missing")
    return [prefix.parent / names_by_rank[rank] for rank in wanted]


def read_contents(path: Path) -> bytes:
    """Return the bytes of a file, decompressed."""
    data = decompress(read_bytes(path, most=MOST_BYTES), path.name)
    if len(data) > MOST_BYTES:
        raise Unreadable("file", str(path), f"has more than the {MOST_BYTES // 2**20:,} MiB that a trace may have")
    return data


def decompress(data: bytes, where: str) -> bytes:
    """Return *data*; if compressed, the first bytes within, just enough to see whether there are too many."""
    if not data.startswith(_GZIP):
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as opened:
            return opened.read(MOST_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise SpecError(where, data[:20], "is not a valid gzip file") from None


@dataclass(frozen=True, slots=True, eq=False)
class _Codes:
    """Values as numbers, in order of first appearance.

    >>> codes = _Codes.from_values(np.array([7, -1, 5, 7]), -1)
    >>> codes.code.tolist(), codes.distinct
    ([0, -1, 1, 0], [7, 5])
    >>> codes.like(np.array([3, -1, 7, 3])), codes.like(np.array([3, -1, 3, 3]))
    ([3, 7], None)
    """

    code: Ints
    """Of each value; `ABSENT` where there is none."""
    distinct: list[int]
    first: Ints
    """Where each appears first."""
    absent: int

    @classmethod
    def from_values(cls, values: Ints, absent: int) -> _Codes:
        """Return the codes of *values*, in which *absent* stands for none."""
        present = np.flatnonzero(values != absent)
        code = np.full(len(values), ABSENT)
        if not len(present):
            return cls(code, [], present, absent)
        distinct, first, value_of = np.unique(values[present], return_index=True, return_inverse=True)
        order = np.argsort(first)
        code[present] = np.argsort(order)[value_of]
        return cls(code, distinct[order].tolist(), present[first[order]], absent)

    def like(self, values: Ints) -> list[int] | None:
        """Return the distinct ones of other *values* that have the same codes; None if they have others."""
        distinct = values[self.first]
        codes: list[int] = distinct.tolist()
        same = np.array_equal(np.append(distinct, self.absent)[self.code], values)
        return codes if same and len({self.absent, *codes}) == len(codes) + 1 else None


@dataclass(frozen=True, slots=True, eq=False)
class _RankRows:
    """The nodes of a rank as rows of a table, in the order of their ids, and their groups and peers."""

    rows: Ints
    order: Ints | None
    """Where in the file each node is; None if that is in order, too."""
    exchanges: Ints
    """Which nodes send or receive."""
    sends: npt.NDArray[np.bool_]
    """Which of these send."""
    own: _Codes
    groups: _Codes
    peers: _Codes
    names: tuple[str, ...]
    """Of the groups."""

    @property
    def group(self) -> Ints:
        """The code of each node's group."""
        return self.groups.code

    @property
    def peer(self) -> Ints:
        """The code of each node's peer."""
        peer = np.full(len(self.rows), ABSENT)
        peer[self.exchanges] = self.peers.code
        return peer

    def to(self, template: Template) -> RankTrace:
        """Return the rank's trace."""
        return RankTrace(template, self.names, tuple(self.peers.distinct), next(iter(self.own.distinct), None))


def _bind_rank(table: NodeTable, rows: Ints, where: str, distinct_ids: bool) -> _RankRows:
    """Return the rank whose nodes are *rows* of *table*."""
    ids, order = table.numbers["id"][rows], None
    if (ids[1:] <= ids[:-1]).any():
        order = np.argsort(ids, kind="stable")
        rows, ids = rows[order], ids[order]
        twice = ids[1:][ids[1:] == ids[:-1]]
        if distinct_ids and len(twice):
            raise SpecError(f"{where}: node", int(twice[0]), "two nodes have this id")
    kind = table.numbers["type"][rows]
    exchanges = np.flatnonzero((kind == NodeType.COMM_SEND) | (kind == NodeType.COMM_RECV))
    sends = kind[exchanges] == NodeType.COMM_SEND
    own_values, peer_values = _message_ends(table, rows[exchanges], sends)
    own = _Codes.from_values(own_values, UNSTATED)
    if len(own.distinct) > 1:
        where_rank = f"{where}: node {ids[exchanges[np.argmax(own.code)]]}: own rank"
        raise SpecError(where_rank, own.distinct[1], f"nodes before it belong to rank {own.distinct[0]}")
    groups, peers = _Codes.from_values(table.group[rows], ABSENT), _Codes.from_values(peer_values, UNSTATED)
    names = tuple(table.groups[name] for name in groups.distinct)
    return _RankRows(rows, order, exchanges, sends, own, groups, peers, names)


def _message_ends(table: NodeTable, exchanges: Ints, sends: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Return the own rank and the peer that each send or receive states."""
    source, destination = (table.numbers[name][exchanges] for name in _RANK_COLUMNS)
    return np.where(sends, source, destination), np.where(sends, destination, source)


def _bind_like_earlier(
    table: NodeTable, classes: Ints, file: SplitFile, earlier: tuple[_RankRows, RankTrace] | None
) -> RankTrace | None:
    """Return the trace of a file that has the nodes of a known one, with other groups and peers; None if it has not."""
    if file.like is None or earlier is None:
        return None
    rank, trace = earlier
    if (classes[file.rows[file.changed]] != classes[file.like.rows[file.changed]]).any():
        return None
    rows = file.rows if rank.order is None else file.rows[rank.order]
    own_values, peer_values = _message_ends(table, rows[rank.exchanges], rank.sends)
    own, peers, groups = rank.own.like(own_values), rank.peers.like(peer_values), rank.groups.like(table.group[rows])
    if own is None or peers is None or groups is None:
        return None
    names = tuple(table.groups[group] for group in groups)
    return RankTrace(trace.template, names, tuple(peers), next(iter(own), None))


def _template(table: NodeTable, rank: _RankRows) -> Template:
    """Return the template of *rank*."""
    rows = rank.rows
    all_rows = np.array_equal(rows, np.arange(len(table.name_start)))  # nothing is copied then

    def select(column: Ints) -> Ints:
        return column if all_rows else column[rows]

    data, ctrl = (lists if all_rows else _lists_of(lists, rows) for lists in (table.data, table.ctrl))
    texts = table.process_groups
    return Template(
        **{name: select(column) for name, column in table.numbers.items() if name not in _RANK_COLUMNS},
        names=DecodedNames(table.buffer, select(table.name_start), select(table.name_stop)),
        data_start=data.start,
        data_id=data.value,
        ctrl_start=ctrl.start,
        ctrl_id=ctrl.value,
        group=rank.group,
        peer=rank.peer,
        kernels=table.kernels,
        process_groups={index: texts[row] for index, row in enumerate(rows.tolist()) if row in texts} if texts else {},
    )


def _lists_of(lists: Lists, rows: Ints) -> Lists:
    """Return the lists of *rows*."""
    first = lists.start[rows]
    counts = lists.start[rows + 1] - first
    start = np.concatenate([[0], np.cumsum(counts)])
    return Lists(start, lists.value[np.arange(start[-1]) + np.repeat(first - start[:-1], counts)])


# ---- The tensors that nodes read and write, as ASTRA-sim's memory tracker reads them

TENSOR_ATTRIBUTES = ("inputs", "outputs")
_LIST = VALUE_FIELDS["string"] + 1
Tensors = tuple[tuple[str, int], ...]
"""Names of tensors, and their bytes."""


@dataclass(frozen=True, slots=True)
class NodeTensors:
    """What a node reads and writes."""

    reads: Tensors = ()
    writes: Tensors = ()


def tensors_of(data: bytes, where: str) -> dict[int, NodeTensors]:
    """Return the tensors of the nodes in the contents of a trace that state some, by the id of the node."""
    tensors: dict[int, NodeTensors] = {}
    size, offset = read_varint(data, 0, len(data), where)
    offset += size  # the metadata
    while offset < len(data):
        size, offset = read_varint(data, offset, len(data), where)
        node, attributes = _node_tensors(data, offset, min(offset + size, len(data)), where)
        if attributes:
            tensors[node] = NodeTensors(attributes.get("inputs", ()), attributes.get("outputs", ()))
        offset += size
    return tensors


def _node_tensors(data: bytes, start: int, end: int, where: str) -> tuple[int, dict[str, Tensors]]:
    """Return the id of a node, and the tensors that it states, by attribute."""
    node, attributes = 0, {}
    for entry in read_fields(data, start, end, f"{where}: a node"):
        if entry.number == NODE_FIELDS["id"]:
            node = entry.value
        elif entry.number == NODE_FIELDS["attr"] and entry.wire_type == LEN:
            parts = {part.number: part for part in read_fields(data, entry.start, entry.stop, f"{where}: an attribute")}
            named = parts.get(ATTRIBUTE_NAME)
            name = decode_text(data[named.start : named.stop]) if named is not None else ""
            if name not in TENSOR_ATTRIBUTES:
                continue
            where_attribute = f"{where}: node {node}: {name}"
            if _LIST not in parts or parts[_LIST].wire_type != LEN:
                raise SpecError(where_attribute, None, "must be a list of text: names and bytes")
            values = read_fields(data, parts[_LIST].start, parts[_LIST].stop, where_attribute)
            words = [decode_text(data[value.start : value.stop]) for value in values if value.number == LIST_VALUES]
            attributes[name] = _tensors(words, where_attribute)
    return node, attributes


def _tensors(words: list[str], where: str) -> Tensors:
    """Return the tensors of a list in which names and bytes alternate.

    >>> _tensors(["w", "8", "x", "16"], "here")
    (('w', 8), ('x', 16))
    """
    if len(words) % 2:
        raise SpecError(where, len(words), "must hold names and bytes in turn, so an even number of texts")
    tensors = []
    for name, size in zip(words[::2], words[1::2], strict=True):
        if not (
            size.isascii() and size.isdigit() and len(size) <= len(str(INTEGER_LIMIT)) and int(size) < INTEGER_LIMIT
        ):
            raise SpecError(f"{where}: {name}", size, "must be a whole number of bytes")
        tensors.append((name, int(size)))
    return tuple(tensors)
