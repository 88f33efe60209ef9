"""Decode many nodes of a trace at once, field by field, with array operations.

Nodes are decoded in blocks. A step loads, from each node of the block, the key of its next field and the eight bytes
after it, which hold the field's number or length. It decodes the field into its column and moves on; finished nodes
drop out. In a step nearly all nodes have the same field, or one of two or three. Irregular nodes (long numbers, another
order within an attribute, rare types, anything malformed) are left to `cosmic.traces.wire.decode_node`, which decodes
one node and reports its mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from cosmic.traces.columns import Columns, Fields, distinct
from cosmic.traces.trace import Ints
from cosmic.traces.wire import NODE_FIELDS, Node, decode_node, read_varint
from cosmic.traces.words import TOO_LONG, WORD, leading_varints

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
class Table:
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


def decode(buffer: bytes, heads: Ints, where: Callable[[int], str]) -> Table:
    """Return the nodes that start, each with its length, at *heads*; the last entry of *heads* is the end.

    *where* returns the file of a row, for errors.
    """
    decoder = _Decoder(buffer, heads, where)
    for first, stop in _blocks(heads):
        decoder.take(first, stop)
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
        self._columns = Columns(buffer, len(heads) - 1)
        self._heads = heads
        self._where = where
        self._counts = {kind: np.zeros(len(heads) - 1, np.int64) for kind in _LISTS.values()}
        self._values: dict[str, list[Ints]] = {kind: [_NOTHING] for kind in _LISTS.values()}

    def table(self) -> Table:
        """Return the decoded table."""
        columns = self._columns
        on_cpu = columns.numbers["on_cpu"]
        np.not_equal(on_cpu, 0, out=on_cpu, casting="unsafe")
        return Table(
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

    def take(self, first: int, stop: int) -> None:
        """Decode the rows from *first* to *stop*."""
        listed = {kind: self._listed(fields) for kind, fields in self._walk(first, stop).items()}
        irregular = np.flatnonzero(self._columns.irregular[first:stop]) + first
        nodes = {row: self._decode_one(row) for row in irregular.tolist()}
        for kind, regular in listed.items():
            owner, value = self._with_lists_of(nodes, kind, *regular) if nodes else regular
            self._counts[kind][first:stop] = np.bincount(owner - first, minlength=stop - first)
            self._values[kind].append(value)

    def _walk(self, first: int, stop: int) -> dict[str, list[Fields]]:
        """Fill in the rows from *first* to *stop*, except their dependencies: return the fields that hold these."""
        columns = self._columns
        lists: dict[str, list[Fields]] = {kind: [] for kind in _LISTS.values()}
        row, head, end = np.arange(first, stop), self._heads[first:stop], self._heads[first + 1 : stop + 1]
        inside = end <= len(columns.buffer) - MARGIN
        columns.mark_irregular(row, unless=inside)
        row, head, end = row[inside], head[inside], end[inside]
        at = head + leading_varints(columns.words[head])[1]
        while True:
            if not (going := at < end).all():
                row, at, end = row[going], at[going], end[going]
            if len(row) <= FEW:
                columns.irregular[row] = True
                return lists
            tag = columns.bytes[at]
            value, size = leading_varints(columns.words[at + 1])
            has_length = (tag >> 1 & 1).astype(np.int64)  # holds for regular tags; others are marked
            start = at + 1 + size * has_length
            at = at + 1 + size + value * has_length
            regular = (size < TOO_LONG) & (at <= end)
            if not regular.all():
                columns.mark_irregular(row, unless=regular)
                row, tag, value, start, at, end = (each[regular] for each in (row, tag, value, start, at, end))
            fields = Fields(row, value, start, at)
            for one in distinct(tag):
                chosen = fields.where(tag == one)
                columns.take(one, chosen)
                if (kind := _LISTS.get(one >> 3)) is not None:
                    lists[kind].append(chosen)

    def _listed(self, steps: list[Fields]) -> tuple[Ints, Ints]:
        """Return the row and the value of every integer of a repeated field, packed or not."""
        columns, fields = self._columns, _by_row(steps)
        ended = (columns.bytes[fields.stop - 1] < 0x80) | (fields.stop == fields.start)
        columns.mark_irregular(fields.row, unless=ended)
        fields = fields.where(ended)
        sizes = fields.stop - fields.start
        places = np.arange(sizes.sum()) + np.repeat(fields.start - np.cumsum(sizes) + sizes, sizes)
        ends = np.flatnonzero(columns.bytes[places] < 0x80)
        starts = np.concatenate([[0], ends + 1])[: len(ends)]
        value, size = leading_varints(columns.words[places[starts]])
        owner = np.repeat(fields.row, sizes)[ends]
        columns.mark_irregular(owner, unless=size < TOO_LONG)
        return owner, value

    def _with_lists_of(self, nodes: dict[int, Node], kind: str, owner: Ints, value: Ints) -> tuple[Ints, Ints]:
        """Return rows and values together with those of *nodes* that were decoded one by one."""
        lists = [node.data if kind == "data" else node.ctrl for node in nodes.values()]
        regular = ~self._columns.irregular[owner]
        owners = np.concatenate([owner[regular], np.repeat(np.array(list(nodes)), list(map(len, lists)))])
        values = np.concatenate([value[regular], np.array([each for one in lists for each in one], np.int64)])
        order = np.argsort(owners, kind="stable")
        return owners[order], values[order]

    def _decode_one(self, row: int) -> Node:
        """Fill in an irregular node, and return it for its lists."""
        buffer, where, end = self._columns.buffer, self._where(row), int(self._heads[row + 1])
        _, at = read_varint(buffer, int(self._heads[row]), end, where)
        node = decode_node(buffer, at, end, where)
        self._columns.take_node(row, node)
        return node


def _by_row(steps: list[Fields]) -> Fields:
    """Return the fields of all steps in the order of their nodes."""
    if len(steps) == 1:
        return steps[0]
    row, value, start, stop = (
        np.concatenate([_NOTHING, *(getattr(each, name) for each in steps)]) for name in Fields.__slots__
    )
    return Fields(row, value, start, stop).at(np.argsort(row, kind="stable"))
