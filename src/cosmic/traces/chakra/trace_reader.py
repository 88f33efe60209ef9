"""Read Chakra traces: a file for each rank, `<prefix>.<rank>.et`.

The files of a job's ranks have the same nodes, and differ in a few bytes of some: groups and peers. So files are
split into messages, and each distinct message is decoded once. A file is compared with earlier ones of its length.
Where all bytes that state lengths are equal, its messages lie where the other file's do, and only those that differ
are looked at. Ranks that run the same nodes share a template.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError, require
from cosmic.base.files import Unreadable, read_bytes
from cosmic.traces.chakra.node_decoding import UNSTATED, Lists, NodeTable, decode_nodes
from cosmic.traces.chakra.wire_format import (
    ATTRIBUTE_NAME,
    METADATA_FIELDS,
    VALUE_FIELDS,
    check_metadata,
    decode_text,
    read_fields,
    read_varint,
)
from cosmic.traces.trace import ABSENT, Ints, NodeType, RankTrace, Template, TraceSet

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
