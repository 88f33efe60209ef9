"""Write Chakra traces: a file for each rank, `<prefix>.<rank>.et`, that every feeder of ASTRA-sim accepts.

Attributes have the types that the strictest feeder requires. A template is encoded once. Ranks differ only in the names
of groups and in peers, which come last in a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from cosmic.errors import SpecError
from cosmic.files import write_all
from cosmic.traces.trace import ABSENT, Ints, NodeType, RankTrace, Template, TraceSet
from cosmic.traces.wire import (
    ATTRIBUTE_NAME,
    DIMENSIONS,
    GROUP,
    IO_VALUES,
    LEN,
    LIST_VALUES,
    METADATA_FIELDS,
    NODE_FIELDS,
    VALUE_FIELDS,
    VARINT,
    key,
    varint,
)

VERSION = "1.0.0"
"""Version of Chakra's schema."""
FEWEST_DIMENSIONS = 4
"""Fewest entries of a collective's list of dimensions, as other tools write it."""
TYPES = {
    "is_cpu_op": "bool",
    "num_ops": "int64",
    "tensor_size": "uint64",
    "comm_type": "int64",
    "comm_size": "int64",
    "comm_priority": "int32",
    "comm_src": "int32",
    "comm_dst": "int32",
    "comm_tag": "int32",
}
"""The integer type of each attribute: some readers look only for this one, and read 0 from others."""
_UNWRITTEN = dict.fromkeys(("num_ops", "tensor_size", "comm_type", "comm_size", "comm_tag"), ABSENT)
_UNWRITTEN |= {"comm_priority": 0}
"""The value of each column that is not written."""


def write_traces(traces: TraceSet, prefix: str | Path, where: str = "file") -> None:
    """Write a file for each rank, all of them or none; messages name them by *where*."""
    write_all(trace_files(traces, prefix), where)


def trace_files(traces: TraceSet, prefix: str | Path) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the content of each rank's file."""
    encoders: dict[int, Encoder] = {}
    for rank, trace in enumerate(traces.ranks):
        template = trace.template
        if id(template) not in encoders:
            encoders[id(template)] = Encoder(template)
        yield f"{prefix}.{rank}.et", encoders[id(template)].encode(trace, rank)


class Encoder:
    """A template's encoded nodes, without what differs between ranks."""

    def __init__(self, template: Template) -> None:
        nodes = _constant_parts(template)
        exchanges = np.isin(template.type, (NodeType.COMM_SEND, NodeType.COMM_RECV))
        varying = np.flatnonzero(exchanges | (template.group != ABSENT))
        kind, peer = np.where(exchanges, template.type, ABSENT), np.where(exchanges, template.peer, ABSENT)
        endings = list(zip(*(column[varying].tolist() for column in (kind, template.group, peer)), strict=True))
        self._endings = list(dict.fromkeys(endings))
        place = {ending: at for at, ending in enumerate(self._endings)}
        self._ending = [place[ending] for ending in endings]
        self._varying = [nodes[row] for row in varying.tolist()]
        bounds = [-1, *varying.tolist(), len(nodes)]
        constant = [_with_length(node) for node in nodes]
        *self._between, self._last = (b"".join(constant[last + 1 : stop]) for last, stop in pairwise(bounds))

    def encode(self, trace: RankTrace, rank: int) -> bytes:
        """Return the file of *rank*: constant nodes, then a varying node's length, constant part and ending; again."""
        endings = [_ending(trace, rank, *each) for each in self._endings]
        sizes = [len(ending) for ending in endings]
        lengths = _Written(varint)
        parts = [b""] * (4 * len(self._varying))
        parts[0::4] = self._between
        parts[1::4] = [lengths[len(node) + sizes[at]] for node, at in zip(self._varying, self._ending, strict=True)]
        parts[2::4] = self._varying
        parts[3::4] = [endings[at] for at in self._ending]
        return b"".join([_METADATA, *parts, self._last])


class _Written(dict[int, bytes]):
    """A cache of encoded integers."""

    def __init__(self, write: Callable[[int], bytes]) -> None:
        super().__init__()
        self._write = write

    def __missing__(self, value: int) -> bytes:
        written = self[value] = self._write(value)
        return written


def _with_length(content: bytes) -> bytes:
    return varint(len(content)) + content


def _field(number: int, content: bytes) -> bytes:
    return key(number, LEN) + _with_length(content)


def _text(text: str) -> bytes:
    return text.encode(errors="backslashreplace")  # half of a surrogate pair is not a character


def _attribute(name: str, value: bytes) -> bytes:
    return _field(NODE_FIELDS["attr"], _field(ATTRIBUTE_NAME, name.encode()) + value)


@cache
def _integer_starts(name: str) -> list[bytes]:
    """Return the first bytes of an integer attribute, by the integer's size in bytes."""
    start = _field(ATTRIBUTE_NAME, name.encode()) + key(VALUE_FIELDS[TYPES[name]], VARINT)
    return [key(NODE_FIELDS["attr"], LEN) + varint(len(start) + size) + start for size in range(11)]


def _integer(name: str, value: int) -> bytes:
    written = varint(value)
    return _integer_starts(name)[len(written)] + written


def _string(text: str) -> bytes:
    return _field(VALUE_FIELDS["string"], _text(text))


_GENERATOR = _field(ATTRIBUTE_NAME, b"generator") + _string("cosmic")
_METADATA = _with_length(
    _field(METADATA_FIELDS["version"], VERSION.encode()) + _field(METADATA_FIELDS["attr"], _GENERATOR)
)


def _ending(trace: RankTrace, rank: int, kind: int, group: int, peer: int) -> bytes:
    """Return the attributes of a node that differ between ranks: its group, or the source and destination."""
    own, other = ("comm_src", "comm_dst") if kind == NodeType.COMM_SEND else ("comm_dst", "comm_src")
    said = _attribute(GROUP, _string(trace.groups[group])) if group != ABSENT else b""
    if kind != ABSENT:
        said += _integer(own, rank)
    if peer != ABSENT:
        said += _integer(other, trace.peers[peer])
    return said


def _constant_parts(template: Template) -> list[bytes]:
    """Return the fields of each node that are equal on all ranks."""
    parts = [
        _numbers(template.id, "id"),
        (_field(NODE_FIELDS["name"], _text(name)) if name else b"" for name in template.names),
        _numbers(template.type, "type"),
        _packed(template.ctrl_start, template.ctrl_id, "ctrl_deps"),
        _packed(template.data_start, template.data_id, "data_deps"),
        _numbers(template.duration_us, "duration_micros"),
        (_inputs(template.process_groups.get(row)) for row in range(template.nodes)),
        map(_Written(lambda value: _integer("is_cpu_op", value)).__getitem__, template.on_cpu.tolist()),
        *(_attributes(template, name) for name in _UNWRITTEN),
        map(_Written(_dimensions).__getitem__, template.involved_dims.tolist()),
    ]
    return list(map(b"".join, zip(*parts, strict=True)))


def _numbers(column: Ints, name: str) -> Iterator[bytes]:
    """Yield a field of each node; as in protobuf, 0 is not written."""
    start = key(NODE_FIELDS[name], VARINT)
    return map(_Written(lambda value: start + varint(value) if value else b"").__getitem__, column.tolist())


def _packed(start: Ints, ids: Ints, name: str) -> Iterator[bytes]:
    """Yield a list of each node; an empty one is not written."""
    values = list(map(_Written(varint).__getitem__, ids.tolist()))
    for first, stop in pairwise(start.tolist()):
        yield _field(NODE_FIELDS[name], b"".join(values[first:stop])) if first < stop else b""


def _inputs(text: str | None) -> bytes:
    return b"" if text is None else _field(NODE_FIELDS["inputs"], _field(IO_VALUES, _text(text)))


def _attributes(template: Template, name: str) -> Iterator[bytes]:
    """Yield an attribute of each node."""
    column: Ints = getattr(template, name)
    if TYPES[name] == "int32":
        wide = np.flatnonzero(column != column.astype(np.int32))
        if len(wide):
            node = f"node {template.id[wide[0]]}: {name}"
            raise SpecError(node, int(column[wide[0]]), "must fit into 32 bits")
    unwritten = _UNWRITTEN[name]
    written = _Written(lambda value: _integer(name, value) if value != unwritten else b"")
    return map(written.__getitem__, column.tolist())


def _dimensions(bits: int) -> bytes:
    """Return the attribute that lists the dimensions of a collective."""
    if bits == ABSENT:
        return b""
    bools = bytes(bits >> place & 1 for place in range(max(bits.bit_length(), FEWEST_DIMENSIONS)))
    return _attribute(DIMENSIONS, _field(VALUE_FIELDS["bool"] + 1, _field(LIST_VALUES, bools)))
