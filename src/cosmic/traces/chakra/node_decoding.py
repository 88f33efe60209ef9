"""Decode many nodes of a Chakra trace at once, field by field, with array operations.

Nodes are decoded in blocks. A step loads, from each node of the block, the key of its next field and the eight bytes
after it, which hold the field's number or length. It decodes the field into its column and moves on; finished nodes
drop out. In a step nearly all nodes have the same field, or one of two or three. Irregular nodes (long numbers,
another order within an attribute, rare types, anything malformed) are marked and left to
`cosmic.traces.chakra.wire_format.decode_node`, which decodes one node and reports its mistakes.

`Words` loads eight bytes from many places of a buffer, each as one little-endian integer. Bit operations act on all
eight bytes together, so a varint is decoded without a loop over its bytes. `TableColumns` decodes one field of many
nodes into its column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.traces.chakra.wire_format import (
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
    DecodedNode,
    decode_node,
    decode_text,
    encode_varint,
    field_key,
    read_varint,
)
from cosmic.traces.trace import ABSENT, COLUMNS, CollectiveType, Ints, NodeType
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
