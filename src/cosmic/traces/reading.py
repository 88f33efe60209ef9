"""Read Chakra traces: a file for each rank, `<prefix>.<rank>.et`.

The files of a job's ranks are mostly equal byte by byte. So each distinct message is decoded once
(`cosmic.traces.splitting`). Ranks that run the same nodes share a template.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import overload

import numpy as np
import numpy.typing as npt

from cosmic.errors import SpecError, require
from cosmic.files import Unreadable, read_bytes
from cosmic.traces.columns import UNSTATED
from cosmic.traces.decoding import Lists, Table, decode
from cosmic.traces.splitting import Messages, Numbering, Split, message_heads
from cosmic.traces.trace import ABSENT, Ints, NodeType, RankTrace, Template, TraceSet
from cosmic.traces.wire import (
    ATTRIBUTE_NAME,
    METADATA_FIELDS,
    VALUE_FIELDS,
    as_text,
    check_metadata,
    read_fields,
    read_varint,
)

MOST_BYTES = 2**30
"""The most that the trace of one rank may have, decompressed; `MOST_NODES` bounds it, too."""
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


def read_trace(path: str | Path, *, distinct_ids: bool = True) -> RankTrace:
    """Return the trace in the file at *path*, which may be compressed with gzip.

    Two nodes with the same id are refused; without *distinct_ids* they are kept, in the order of the file.
    """
    path = Path(path)
    data = contents(path)
    heads = message_heads(data, path.name)
    table = decode(data, heads, lambda _: path.name)
    rank = _bind(table, np.arange(len(heads) - 1), path.name, distinct_ids)
    return rank.to(_template(table, rank))


def read_traces(prefix: str | Path, ranks: int | None = None, *, distinct_ids: bool = True) -> TraceSet:
    """Return the traces of a job: the files `<prefix>.<rank>.et` (or `.et.gz`) of ranks 0, 1, ...

    Without *ranks*, read all files; no rank below the last may be missing. *distinct_ids* as for `read_trace`.
    """
    paths = trace_paths(prefix, ranks)
    if len(paths) == 1:
        return TraceSet((read_trace(paths[0], distinct_ids=distinct_ids),), str(prefix))
    table, files = _decode_once(paths)
    classes = _node_classes(table)
    templates: dict[tuple[bytes, ...], Template] = {}
    bound: dict[int, tuple[_Rank, RankTrace]] = {}  # by the identity of a file: files may be equal byte by byte
    for path, file in zip(paths, files, strict=True):
        if id(file) in bound:
            continue
        if (trace := _like(table, classes, file, bound.get(id(file.like)))) is not None:
            bound[id(file)] = bound[id(file.like)][0], trace
            continue
        rank = _bind(table, file.rows, path.name, distinct_ids)
        key = classes[rank.rows].tobytes(), rank.group.tobytes(), rank.peer.tobytes()
        if key not in templates:
            templates[key] = _template(table, rank)
        bound[id(file)] = rank, rank.to(templates[key])
    return TraceSet(tuple(bound[id(file)][1] for file in files), str(prefix))


def read_metadata(prefix: str | Path) -> dict[str, str]:
    """Return what the trace of rank 0 says of its origin: attributes of its first message that hold a text."""
    path = trace_paths(prefix, 1)[0]
    data = contents(path)
    size, at = read_varint(data, 0, len(data), path.name)
    check_metadata(data, at, at + size, path.name)
    found = {}
    for each in read_fields(data, at, min(at + size, len(data)), path.name):
        if each.number == METADATA_FIELDS["attr"]:
            fields = read_fields(data, each.start, each.stop, path.name)
            parts = {field.number: as_text(data[field.start : field.stop]) for field in fields}
            if ATTRIBUTE_NAME in parts and VALUE_FIELDS["string"] in parts:
                found[parts[ATTRIBUTE_NAME]] = parts[VALUE_FIELDS["string"]]
    return found


def trace_paths(prefix: str | Path, ranks: int | None = None) -> list[Path]:
    """Return the file of each rank; without *ranks*, of all that there are."""
    prefix = Path(prefix)
    require(ranks is None or ranks > 0, "ranks", ranks, "must be at least 1")
    pattern = re.compile(rf"{re.escape(prefix.name)}\.(0|[1-9][0-9]{{0,8}})\.et(\.gz)?")
    try:
        names = sorted(path.name for path in prefix.parent.iterdir())
    except (OSError, ValueError) as error:
        raise Unreadable.of("file", prefix.parent, error) from None
    found = {int(match[1]): match[0] for name in reversed(names) if (match := pattern.fullmatch(name))}
    wanted = range(max(found, default=0) + 1 if ranks is None else ranks)
    if not found and prefix.name.endswith((".et", ".et.gz")) and prefix.name in names:
        start = prefix.with_name(prefix.name.removesuffix(".gz").removesuffix(".et").rpartition(".")[0] or "PREFIX")
        raise SpecError("traces", str(prefix), f"is the trace of one rank: give the prefix of all, such as {start}")
    for rank in wanted:
        if rank not in found:
            raise SpecError("file", f"{prefix}.{rank}.et", "the trace of this rank is missing")
    return [prefix.parent / found[rank] for rank in wanted]


def contents(path: Path) -> bytes:
    """Return the bytes of a file, decompressed."""
    data = decompressed(read_bytes(path, most=MOST_BYTES), path.name)
    if len(data) > MOST_BYTES:
        raise Unreadable("file", str(path), f"has more than the {MOST_BYTES // 2**20:,} MiB that a trace may have")
    return data


def decompressed(data: bytes, where: str) -> bytes:
    """Return *data*; if compressed, the first bytes within, just enough to see whether there are too many."""
    if not data.startswith(_GZIP):
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as opened:
            return opened.read(MOST_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise SpecError(where, data[:20], "is not a valid gzip file") from None


def _decode_once(paths: Sequence[Path]) -> tuple[Table, list[Split]]:
    """Return the distinct nodes of all files, and the rows of each file."""
    messages = Messages()
    files, known = [], [0]
    for path in paths:
        files.append(messages.split(contents(path), path.name))
        known.append(len(messages.numbers))

    def where(row: int) -> str:
        return paths[int(np.searchsorted(known, row, "right")) - 1].name

    return decode(b"".join(messages.numbers), np.cumsum([0, *map(len, messages.numbers)]), where), files


def _node_classes(table: Table) -> Ints:
    """Return a number for each node of *table*, equal for nodes that differ only in group and peer."""
    names = [
        table.buffer[start:stop]
        for start, stop in zip(table.name_start.tolist(), table.name_stop.tolist(), strict=True)
    ]
    columns = [values for name, values in table.numbers.items() if name not in _RANK_COLUMNS]
    columns.append(Numbering().of(names))
    for lists in (table.data, table.ctrl):
        values = lists.value.tobytes()
        bounds = (lists.start * lists.value.itemsize).tolist()
        columns.append(Numbering().of([values[start:stop] for start, stop in pairwise(bounds)]))
    texts = np.full(len(names), ABSENT)
    texts[list(table.process_groups)] = Numbering().of(list(table.process_groups.values()))
    matrix = np.stack([*columns, texts], axis=1)
    return Numbering().of(matrix.view(f"V{matrix.shape[1] * matrix.itemsize}").ravel().tolist())


@dataclass(frozen=True, slots=True, eq=False)
class _Codes:
    """Values as numbers, in order of first appearance.

    >>> codes = _Codes.of(np.array([7, -1, 5, 7]), -1)
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
    def of(cls, values: Ints, absent: int) -> _Codes:
        """Return the codes of *values*, in which *absent* stands for none."""
        present = np.flatnonzero(values != absent)
        code = np.full(len(values), ABSENT)
        if not len(present):
            return cls(code, [], present, absent)
        distinct, first, which = np.unique(values[present], return_index=True, return_inverse=True)
        order = np.argsort(first)
        code[present] = np.argsort(order)[which]
        return cls(code, distinct[order].tolist(), present[first[order]], absent)

    def like(self, values: Ints) -> list[int] | None:
        """Return the distinct ones of other *values* that have the same codes; None if they have others."""
        distinct = values[self.first]
        found: list[int] = distinct.tolist()
        same = np.array_equal(np.append(distinct, self.absent)[self.code], values)
        return found if same and len({self.absent, *found}) == len(found) + 1 else None


@dataclass(frozen=True, slots=True, eq=False)
class _Rank:
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


def _bind(table: Table, rows: Ints, where: str, distinct_ids: bool) -> _Rank:
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
    own_values, peer_values = _ends(table, rows[exchanges], sends)
    own = _Codes.of(own_values, UNSTATED)
    if len(own.distinct) > 1:
        wrong = f"{where}: node {ids[exchanges[np.argmax(own.code)]]}: own rank"
        raise SpecError(wrong, own.distinct[1], f"nodes before it belong to rank {own.distinct[0]}")
    groups, peers = _Codes.of(table.group[rows], ABSENT), _Codes.of(peer_values, UNSTATED)
    names = tuple(table.groups[each] for each in groups.distinct)
    return _Rank(rows, order, exchanges, sends, own, groups, peers, names)


def _ends(table: Table, exchanges: Ints, sends: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Return the own rank and the peer that each send or receive states."""
    source, destination = (table.numbers[name][exchanges] for name in _RANK_COLUMNS)
    return np.where(sends, source, destination), np.where(sends, destination, source)


def _like(table: Table, classes: Ints, file: Split, known: tuple[_Rank, RankTrace] | None) -> RankTrace | None:
    """Return the trace of a file that has the nodes of a known one, with other groups and peers; None if it has not."""
    if file.like is None or known is None:
        return None
    rank, trace = known
    if (classes[file.rows[file.changed]] != classes[file.like.rows[file.changed]]).any():
        return None
    rows = file.rows if rank.order is None else file.rows[rank.order]
    own_values, peer_values = _ends(table, rows[rank.exchanges], rank.sends)
    own, peers, groups = rank.own.like(own_values), rank.peers.like(peer_values), rank.groups.like(table.group[rows])
    if own is None or peers is None or groups is None:
        return None
    names = tuple(table.groups[each] for each in groups)
    return RankTrace(trace.template, names, tuple(peers), next(iter(own), None))


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
        kernels=table.kernels,
        process_groups={place: texts[row] for place, row in enumerate(rows.tolist()) if row in texts} if texts else {},
    )


def _lists_of(lists: Lists, rows: Ints) -> Lists:
    """Return the lists of *rows*."""
    first = lists.start[rows]
    counts = lists.start[rows + 1] - first
    start = np.concatenate([[0], np.cumsum(counts)])
    return Lists(start, lists.value[np.arange(start[-1]) + np.repeat(first - start[:-1], counts)])
