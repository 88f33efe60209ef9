"""Many nodes of a trace at once: all of them advance field by field together, with array operations.

Nodes are taken in blocks. A step loads from each node of the block the key of its next field and the eight bytes after
it, which hold the field's number or length, has the field put into its column, and moves on; nodes at their end drop
out. The fields of a step are nearly always the same in all nodes, or one of two or three. Whatever is not as usual
(long numbers, another order within an attribute, rare types, anything malformed) is left to
`cosmic.traces.wire.decode_node`, which decodes one node and knows what to say.
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
"""A block has at most so many nodes, and little more than so many bytes: its arrays stay in a processor's cache."""
FEW = 16
"""So many nodes are decoded sooner one by one than together."""
MARGIN = 2 * WORD
"""So near to the end of the buffer nodes are decoded one by one: words may be loaded from beyond them."""
_LISTS = {NODE_FIELDS["data_deps"]: "data", NODE_FIELDS["ctrl_deps"]: "ctrl"}
_NOTHING: Ints = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """A list of integers for each row: row *r* has ``value[start[r]:start[r + 1]]``."""

    start: Ints
    value: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Decoded nodes, in the order in which they came."""

    buffer: bytes
    numbers: dict[str, Ints]
    """By column, one of `NUMBERS`."""
    name_start: Ints
    """Where in *buffer* a node's name starts."""
    name_stop: Ints
    data: Lists
    ctrl: Lists
    group: Ints
    """Place in *groups*; `ABSENT` stands for all ranks."""
    groups: list[str]
    process_groups: dict[int, str]
    """By row."""


def decode(buffer: bytes, heads: Ints, where: Callable[[int], str]) -> Table:
    """Return the nodes that start at *heads*, each with its length; the last entry is where the last one ends.

    *where* says for a row what file it is from.
    """
    decoder = _Decoder(buffer, heads, where)
    for first, stop in _blocks(heads):
        decoder.take(first, stop)
    return decoder.table()


def _blocks(heads: Ints) -> Iterator[tuple[int, int]]:
    """Yield the rows with which blocks start and end."""
    first, nodes = 0, len(heads) - 1
    while first < nodes:
        stop = min(first + BLOCK_NODES, int(np.searchsorted(heads, heads[first] + BLOCK_BYTES)) + 1, nodes)
        yield first, stop
        first = stop


class _Decoder:
    """A table, as far as it is filled."""

    def __init__(self, buffer: bytes, heads: Ints, where: Callable[[int], str]) -> None:
        self._columns = Columns(buffer, len(heads) - 1)
        self._heads = heads
        self._where = where
        self._counts = {kind: np.zeros(len(heads) - 1, np.int64) for kind in _LISTS.values()}
        self._values: dict[str, list[Ints]] = {kind: [_NOTHING] for kind in _LISTS.values()}

    def table(self) -> Table:
        """Return what was decoded."""
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
            groups=columns.groups.names(),
            process_groups=columns.process_groups,
        )

    def _lists(self, kind: str) -> Lists:
        return Lists(np.concatenate([[0], np.cumsum(self._counts[kind])]), np.concatenate(self._values[kind]))

    def take(self, first: int, stop: int) -> None:
        """Decode the rows from *first* to *stop*."""
        listed = {kind: self._listed(fields) for kind, fields in self._walk(first, stop).items()}
        nodes = {row: self._one(row) for row in (np.flatnonzero(self._columns.left[first:stop]) + first).tolist()}
        for kind, usual in listed.items():
            owner, value = self._with_lists_of(nodes, kind, *usual) if nodes else usual
            self._counts[kind][first:stop] = np.bincount(owner - first, minlength=stop - first)
            self._values[kind].append(value)

    def _walk(self, first: int, stop: int) -> dict[str, list[Fields]]:
        """Fill in what the rows from *first* to *stop* say, but for the ids they wait for: return where these stand."""
        columns = self._columns
        lists: dict[str, list[Fields]] = {kind: [] for kind in _LISTS.values()}
        row, head, end = np.arange(first, stop), self._heads[first:stop], self._heads[first + 1 : stop + 1]
        inside = end <= len(columns.buffer) - MARGIN
        columns.leave(row, unless=inside)
        row, head, end = row[inside], head[inside], end[inside]
        at = head + leading_varints(columns.words[head])[1]
        while True:
            if not (going := at < end).all():
                row, at, end = row[going], at[going], end[going]
            if len(row) <= FEW:
                columns.left[row] = True
                return lists
            tag = columns.bytes[at]
            value, size = leading_varints(columns.words[at + 1])
            has_length = (tag >> 1 & 1).astype(np.int64)  # true of tags as usual, and no other is taken
            start = at + 1 + size * has_length
            at = at + 1 + size + value * has_length
            usual = (size < TOO_LONG) & (at <= end)
            if not usual.all():
                columns.leave(row, unless=usual)
                row, tag, value, start, at, end = (each[usual] for each in (row, tag, value, start, at, end))
            fields = Fields(row, value, start, at)
            for one in distinct(tag):
                chosen = fields.where(tag == one)
                columns.take(one, chosen)
                if (kind := _LISTS.get(one >> 3)) is not None:
                    lists[kind].append(chosen)

    def _listed(self, steps: list[Fields]) -> tuple[Ints, Ints]:
        """Return whose the integers of a repeated field are, and these, be they packed or not."""
        columns, fields = self._columns, _by_row(steps)
        ended = (columns.bytes[fields.stop - 1] < 0x80) | (fields.stop == fields.start)
        columns.leave(fields.row, unless=ended)
        fields = fields.where(ended)
        sizes = fields.stop - fields.start
        places = np.arange(sizes.sum()) + np.repeat(fields.start - np.cumsum(sizes) + sizes, sizes)
        ends = np.flatnonzero(columns.bytes[places] < 0x80)
        starts = np.concatenate([[0], ends + 1])[: len(ends)]
        value, size = leading_varints(columns.words[places[starts]])
        owner = np.repeat(fields.row, sizes)[ends]
        columns.leave(owner, unless=size < TOO_LONG)
        return owner, value

    def _with_lists_of(self, nodes: dict[int, Node], kind: str, owner: Ints, value: Ints) -> tuple[Ints, Ints]:
        """Return lists together with those of nodes that were decoded one by one."""
        lists = [node.data if kind == "data" else node.ctrl for node in nodes.values()]
        usual = ~self._columns.left[owner]
        owners = np.concatenate([owner[usual], np.repeat(np.array(list(nodes)), list(map(len, lists)))])
        values = np.concatenate([value[usual], np.array([each for one in lists for each in one], np.int64)])
        order = np.argsort(owners, kind="stable")
        return owners[order], values[order]

    def _one(self, row: int) -> Node:
        """Fill in a node that is not as usual, and return it for its lists."""
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
