"""Read Chakra traces: a file for each rank, `<prefix>.<rank>.et`.

The files of a job's ranks are mostly equal byte by byte. So each distinct message is decoded once. Ranks that run the
same nodes share a template.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, overload

import numpy as np

from cosmic.errors import SpecError, require
from cosmic.files import Unreadable, open_regular
from cosmic.traces.columns import UNSTATED
from cosmic.traces.decoding import Lists, Table, decode
from cosmic.traces.trace import ABSENT, Ints, NodeType, RankTrace, Template, TraceSet
from cosmic.traces.wire import as_text, check_metadata, read_varint

MOST_BYTES = 2**30
"""The most that the trace of one rank may have, decompressed: about ten million nodes."""
_GZIP = b"\x1f\x8b"
_RANK_COLUMNS = ("source", "destination")
"""Columns in which ranks of one template differ."""


class Names(Sequence[str]):
    """The names of nodes, decoded on access.

    >>> names = Names(b"addmul", np.array([0, 3]), np.array([3, 6]))
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
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Names: ...
    def __getitem__(self, place: int | slice) -> str | Names:
        if isinstance(place, slice):
            return Names(self._buffer, self._start[place], self._stop[place])
        return as_text(self._buffer[self._start[place] : self._stop[place]])


def read_trace(path: str | Path) -> RankTrace:
    """Return the trace in the file at *path*, which may be compressed with gzip."""
    path = Path(path)
    data = _contents(path)
    heads = np.fromiter(_heads(data, path.name), np.int64)
    table = decode(data, heads, lambda _: path.name)
    rank = _bind(table, np.arange(len(heads) - 1), path.name)
    return rank.to(_template(table, rank))


def read_traces(prefix: str | Path, ranks: int | None = None) -> TraceSet:
    """Return the traces of a job: the files `<prefix>.<rank>.et` (or `.et.gz`) of ranks 0, 1, ...

    Without *ranks*, read all files; no rank below the last may be missing.
    """
    paths = _paths(Path(prefix), ranks)
    if len(paths) == 1:
        return TraceSet((read_trace(paths[0]),), str(prefix))
    table, rows = _decode_once(paths)
    classes = _node_classes(table)
    templates: dict[tuple[bytes, ...], Template] = {}
    traces: dict[bytes, RankTrace] = {}  # files may be equal byte by byte
    for path, each in zip(paths, rows, strict=True):
        if each.tobytes() in traces:
            continue
        rank = _bind(table, each, path.name)
        key = classes[rank.rows].tobytes(), rank.group.tobytes(), rank.peer.tobytes()
        if key not in templates:
            templates[key] = _template(table, rank)
        traces[each.tobytes()] = rank.to(templates[key])
    return TraceSet(tuple(traces[each.tobytes()] for each in rows), str(prefix))


def _paths(prefix: Path, ranks: int | None) -> list[Path]:
    """Return the file of each rank."""
    require(ranks is None or ranks > 0, "ranks", ranks, "must be at least 1")
    pattern = re.compile(rf"{re.escape(prefix.name)}\.(0|[1-9][0-9]{{0,8}})\.et(\.gz)?")
    try:
        names = sorted(path.name for path in prefix.parent.iterdir())
    except (OSError, ValueError) as error:
        raise Unreadable.of("file", prefix.parent, error) from None
    found = {int(match[1]): match[0] for name in reversed(names) if (match := pattern.fullmatch(name))}
    wanted = range(max(found, default=0) + 1 if ranks is None else ranks)
    for rank in wanted:
        if rank not in found:
            raise SpecError("file", f"{prefix}.{rank}.et", "the trace of this rank is missing")
    return [prefix.parent / found[rank] for rank in wanted]


def _contents(path: Path) -> bytes:
    """Return the bytes of a file, decompressed."""
    with open_regular(path, most=MOST_BYTES) as file:
        try:
            start = file.read(len(_GZIP))
            file.seek(0)
            data = _decompressed(file, path) if start == _GZIP else file.read(MOST_BYTES + 1)
        except OSError as error:
            raise Unreadable.of("file", path, error) from None
    if len(data) > MOST_BYTES:
        raise Unreadable("file", str(path), f"has more than the {MOST_BYTES // 2**20:,} MiB that a trace may have")
    return data


def _decompressed(file: IO[bytes], path: Path) -> bytes:
    """Return the first bytes of a compressed file, just enough to see whether there are too many."""
    try:
        with gzip.GzipFile(fileobj=file) as opened:
            return opened.read(MOST_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        file.seek(0)
        raise SpecError(path.name, file.read(20), "is not a valid gzip file") from None


def _heads(data: bytes, where: str) -> Iterator[int]:
    """Return where each node starts, at its length, and where the last one ends."""
    if not data:
        raise SpecError(where, data, "the file is empty")
    length, start = read_varint(data, 0, len(data), where)
    if start + length <= len(data):
        check_metadata(data, start, start + length, where)
    return _message_starts(data, min(start + length, len(data) + 1), where)


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


class _Numbering(dict[Any, int]):
    """Numbers keys in the order of first access."""

    def __missing__(self, wanted: Any) -> int:
        number = self[wanted] = len(self)
        return number

    def of(self, all_wanted: list[Any]) -> Ints:
        """Return the number of each."""
        return np.fromiter(map(self.__getitem__, all_wanted), np.int64, len(all_wanted))


def _decode_once(paths: Sequence[Path]) -> tuple[Table, list[Ints]]:
    """Return the distinct nodes of all files, and the rows of each file."""
    messages = _Numbering()
    rows, known = [], [0]
    for path in paths:
        data = _contents(path)
        rows.append(messages.of([data[start:stop] for start, stop in pairwise(_heads(data, path.name))]))
        known.append(len(messages))

    def where(row: int) -> str:
        return paths[int(np.searchsorted(known, row, "right")) - 1].name

    return decode(b"".join(messages), np.cumsum([0, *map(len, messages)]), where), rows


def _node_classes(table: Table) -> Ints:
    """Return a number for each node of *table*, equal for nodes that differ only in group and peer."""
    names = [
        table.buffer[start:stop]
        for start, stop in zip(table.name_start.tolist(), table.name_stop.tolist(), strict=True)
    ]
    columns = [values for name, values in table.numbers.items() if name not in _RANK_COLUMNS]
    columns.append(_Numbering().of(names))
    for lists in (table.data, table.ctrl):
        values = lists.value.tobytes()
        bounds = (lists.start * lists.value.itemsize).tolist()
        columns.append(_Numbering().of([values[start:stop] for start, stop in pairwise(bounds)]))
    texts = np.full(len(names), ABSENT)
    texts[list(table.process_groups)] = _Numbering().of(list(table.process_groups.values()))
    matrix = np.stack([*columns, texts], axis=1)
    return _Numbering().of(matrix.view(f"V{matrix.shape[1] * matrix.itemsize}").ravel().tolist())


@dataclass(frozen=True, slots=True, eq=False)
class _Rank:
    """The nodes of a rank as rows of a table, in the order of their ids, and their groups and peers."""

    rows: Ints
    group: Ints
    peer: Ints
    groups: tuple[str, ...]
    peers: tuple[int, ...]
    own_rank: int | None

    def to(self, template: Template) -> RankTrace:
        """Return the rank's trace."""
        return RankTrace(template, self.groups, self.peers, self.own_rank)


def _bind(table: Table, rows: Ints, where: str) -> _Rank:
    """Return the rank whose nodes are *rows* of *table*."""
    ids = table.numbers["id"][rows]
    if (ids[1:] <= ids[:-1]).any():
        order = np.argsort(ids, kind="stable")
        rows, ids = rows[order], ids[order]
        twice = ids[1:][ids[1:] == ids[:-1]]
        if len(twice):
            raise SpecError(f"{where}: node", int(twice[0]), "two nodes have this id")
    kind = table.numbers["type"][rows]
    exchanges = np.flatnonzero((kind == NodeType.COMM_SEND) | (kind == NodeType.COMM_RECV))
    sends = kind[exchanges] == NodeType.COMM_SEND
    source, destination = (table.numbers[name][rows[exchanges]] for name in _RANK_COLUMNS)
    own, owners = _codes(np.where(sends, source, destination), UNSTATED)
    if len(owners) > 1:
        wrong = f"{where}: node {ids[exchanges[np.argmax(own)]]}: own rank"
        raise SpecError(wrong, owners[1], f"nodes before it belong to rank {owners[0]}")
    group, groups = _codes(table.group[rows], ABSENT)
    peer = np.full(len(rows), ABSENT)
    peer[exchanges], peers = _codes(np.where(sends, destination, source), UNSTATED)
    names = tuple(table.groups[each] for each in groups)
    return _Rank(rows, group, peer, names, tuple(peers), owners[0] if owners else None)


def _codes(values: Ints, absent: int) -> tuple[Ints, list[int]]:
    """Return the code of each of *values*, in order of first appearance, and the distinct values.

    >>> codes, distinct = _codes(np.array([7, -1, 5, 7]), -1)
    >>> codes.tolist(), distinct
    ([0, -1, 1, 0], [7, 5])
    """
    present = np.flatnonzero(values != absent)
    codes = np.full(len(values), ABSENT)
    if not len(present):
        return codes, []
    distinct, first, which = np.unique(values[present], return_index=True, return_inverse=True)
    order = np.argsort(first)
    codes[present] = np.argsort(order)[which]
    return codes, distinct[order].tolist()


def _template(table: Table, rank: _Rank) -> Template:
    """Return the template of *rank*."""
    rows = rank.rows
    whole = np.array_equal(rows, np.arange(len(table.name_start)))  # nothing is copied then

    def of(column: Ints) -> Ints:
        return column if whole else column[rows]

    data, ctrl = (each if whole else _lists_of(each, rows) for each in (table.data, table.ctrl))
    texts = table.process_groups
    return Template(
        **{name: of(column) for name, column in table.numbers.items() if name not in _RANK_COLUMNS},
        names=Names(table.buffer, of(table.name_start), of(table.name_stop)),
        data_start=data.start,
        data_id=data.value,
        ctrl_start=ctrl.start,
        ctrl_id=ctrl.value,
        group=rank.group,
        peer=rank.peer,
        process_groups={place: texts[row] for place, row in enumerate(rows.tolist()) if row in texts} if texts else {},
    )


def _lists_of(lists: Lists, rows: Ints) -> Lists:
    """Return the lists of *rows*."""
    first = lists.start[rows]
    counts = lists.start[rows + 1] - first
    start = np.concatenate([[0], np.cumsum(counts)])
    return Lists(start, lists.value[np.arange(start[-1]) + np.repeat(first - start[:-1], counts)])
