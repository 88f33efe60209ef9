"""Write Chakra traces: a file for each rank, `<prefix>.<rank>.et`, that every feeder of ASTRA-sim accepts.

Attributes have the types that the strictest feeder requires. A template is encoded once. Ranks differ only in the
names of groups and in peers, which come last in a node. `pack_nodes` encodes nodes in C (`native/encoding.c`); where
there is no compiled library, Python writes the same bytes node by node.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError
from cosmic.base.files import write_all
from cosmic.base.native.library import native_library
from cosmic.traces.chakra.wire_format import (
    ATTRIBUTE_NAME,
    DIMENSIONS,
    GROUP,
    IO_VALUES,
    KERNEL,
    LEN,
    LIST_VALUES,
    METADATA_FIELDS,
    NODE_FIELDS,
    VALUE_FIELDS,
    VARINT,
    encode_varint,
    field_key,
)
from cosmic.traces.trace import ABSENT, Ints, NodeType, RankTrace, Template, TraceSet

NUMBER, ATTRIBUTE, PIECE, LIST = 0, 1, 2, 3
"""Kinds of fields: a varint, an attribute with one, one of some given pieces, a list of varints."""
ROOM_BYTES = 2**24
ALWAYS = -(2**63)
"""No value at all: the field is always written."""


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field of all nodes."""

    kind: int
    values: Ints
    """By node; of pieces, their numbers; of lists, where they start."""
    unwritten: int = ALWAYS
    start: bytes = b""
    """What comes before a value; the second byte of an attribute is its length without the value."""
    pieces: Sequence[bytes] = ()
    ids: Ints | None = None
    """Of lists."""


class _PackedField(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int64),
        ("values", ctypes.c_void_p),
        ("ids", ctypes.c_void_p),
        ("unwritten", ctypes.c_int64),
        ("bytes", ctypes.c_char_p),
        ("size", ctypes.c_int64),
        ("stops", ctypes.c_void_p),
    ]


def pack_nodes(
    native: ctypes.CDLL, fields: Sequence[Field], nodes: int, bare: npt.NDArray[np.bool_]
) -> tuple[memoryview, Ints]:
    """Return *nodes* one after the other, each after its length, except where *bare*; and where each ends."""
    buffers: list[object] = []  # what C points to
    packed_fields = (_PackedField * len(fields))(*(_field_for_c(field, buffers) for field in fields))
    without = bare.astype(np.uint8)
    stops = np.zeros(nodes, np.int64)
    room, done, filled = np.empty(ROOM_BYTES, np.uint8), 0, 0
    while done < nodes:
        count = native.cosmic_encode_nodes(
            packed_fields,
            len(fields),
            done,
            nodes,
            without.ctypes.data,
            room.ctypes.data + filled,
            len(room) - filled,
            stops.ctypes.data,
        )
        if count:
            stops[done : done + count] += filled
            done += count
            filled = int(stops[done - 1])
        if done < nodes:  # as much as the others would take, were they like these
            size = max(2 * len(room), filled * nodes // max(done, 1) * 9 // 8)
            room = np.concatenate([room[:filled], np.empty(size - filled, np.uint8)])
    return memoryview(room.data)[:filled], stops


def _field_for_c(field: Field, buffers: list[object]) -> _PackedField:
    """Return a field as C takes it."""
    values = np.ascontiguousarray(field.values, np.int64)
    ids = np.ascontiguousarray(field.ids if field.ids is not None else [], np.int64)
    stops = np.cumsum([len(piece) for piece in field.pieces], dtype=np.int64)
    content = b"".join(field.pieces) or field.start
    buffers += [values, ids, stops, content]
    return _PackedField(
        field.kind, values.ctypes.data, ids.ctypes.data, field.unwritten, content, len(field.start), stops.ctypes.data
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
    "start_ns": "int64",
    "duration_ns": "int64",
    "delay_ns": "int64",
    "stream": "int64",
}
"""The integer type of each attribute: some readers look only for this one, and read 0 from others."""
_OMITTED = dict.fromkeys(("num_ops", "tensor_size", "comm_type", "comm_size", "comm_tag"), ABSENT)
_OMITTED |= {"comm_priority": 0} | dict.fromkeys(("start_ns", "duration_ns", "delay_ns", "stream"), ABSENT)
"""The value of each column that is not written."""


def write_traces(traces: TraceSet, prefix: str | Path, where: str = "file") -> None:
    """Write a file for each rank, all of them or none; messages name them by *where*."""
    write_all(trace_files(traces, prefix), where)


def trace_files(
    traces: TraceSet, prefix: str | Path, metadata: Sequence[Mapping[str, str]] = ()
) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the content of each rank's file; *metadata* says of each rank where its trace is from."""
    encoders: dict[int, Encoder] = {}
    for rank, trace in enumerate(traces.ranks):
        template = trace.template
        if id(template) not in encoders:
            encoders[id(template)] = Encoder(template)
        origin = metadata[rank] if metadata else {}
        yield f"{prefix}.{rank}.et", encoders[id(template)].encode(trace, rank, origin)


class Encoder:
    """A template's encoded nodes, without what differs between ranks."""

    def __init__(self, template: Template) -> None:
        exchanges = np.isin(template.type, (NodeType.COMM_SEND, NodeType.COMM_RECV))
        varies = exchanges | (template.group != ABSENT)
        kind, peer = np.where(exchanges, template.type, ABSENT), np.where(exchanges, template.peer, ABSENT)
        endings = list(zip(*(column[varies].tolist() for column in (kind, template.group, peer)), strict=True))
        self._endings = list(dict.fromkeys(endings))
        index = {ending: position for position, ending in enumerate(self._endings)}
        self._ending_index = [index[ending] for ending in endings]
        for name in _OMITTED:
            # Refuse what the attribute's type cannot hold.
            values: Ints = getattr(template, name)
            if TYPES[name] == "int32":
                wide = np.flatnonzero(values != values.astype(np.int32))
                if len(wide):
                    node = f"node {template.id[wide[0]]}: {name}"
                    raise SpecError(node, int(values[wide[0]]), "must fit into 32 bits")
        native = native_library()
        view, stop = (
            _encoded(template, varies)
            if native is None
            else pack_nodes(native, _fields(template), template.nodes, varies)
        )
        bounds = np.concatenate([[0], stop])
        rows = np.flatnonzero(varies)
        starts, stops = bounds[rows].tolist(), bounds[rows + 1].tolist()
        self._varying: list[memoryview] = [view[start:stop] for start, stop in zip(starts, stops, strict=True)]
        between = zip([0, *stops], [*starts, len(view)], strict=True)
        *self._between, self._last = (view[first:last] for first, last in between)

    def encode(self, trace: RankTrace, rank: int, metadata: Mapping[str, str] = MappingProxyType({})) -> bytes:
        """Return the file of *rank*: constant nodes, then a varying node's length, constant part and ending; again."""
        endings = [_rank_attributes(trace, rank, *key) for key in self._endings]
        sizes = [len(ending) for ending in endings]
        lengths = _EncodedValues(encode_varint)
        parts: list[bytes | memoryview] = [b""] * (4 * len(self._varying))
        parts[0::4] = self._between
        parts[1::4] = [
            lengths[len(node) + sizes[index]] for node, index in zip(self._varying, self._ending_index, strict=True)
        ]
        parts[2::4] = self._varying
        parts[3::4] = [endings[index] for index in self._ending_index]
        # The first message: the schema's version, who wrote the file, and what is said of its origin
        attributes = {"generator": "cosmic", **metadata}
        texts = (_field(ATTRIBUTE_NAME, _text(name)) + _string(text) for name, text in attributes.items())
        fields = [_field(METADATA_FIELDS["attr"], encoded_text) for encoded_text in texts]
        return b"".join(
            [_with_length(_field(METADATA_FIELDS["version"], VERSION.encode()) + b"".join(fields)), *parts, self._last]
        )


class _EncodedValues(dict[int, bytes]):
    """A cache of encoded integers."""

    def __init__(self, write: Callable[[int], bytes]) -> None:
        super().__init__()
        self._write = write

    def __missing__(self, value: int) -> bytes:
        encoded = self[value] = self._write(value)
        return encoded


def _with_length(content: bytes) -> bytes:
    return encode_varint(len(content)) + content


def _field(number: int, content: bytes) -> bytes:
    return field_key(number, LEN) + _with_length(content)


def _text(text: str) -> bytes:
    return text.encode(errors="backslashreplace")  # half of a surrogate pair is not a character


def _attribute(name: str, value: bytes) -> bytes:
    return _field(NODE_FIELDS["attr"], _field(ATTRIBUTE_NAME, name.encode()) + value)


@cache
def _integer_starts(name: str) -> list[bytes]:
    """Return the first bytes of an integer attribute, by the integer's size in bytes."""
    start = _field(ATTRIBUTE_NAME, name.encode()) + field_key(VALUE_FIELDS[TYPES[name]], VARINT)
    return [field_key(NODE_FIELDS["attr"], LEN) + encode_varint(len(start) + size) + start for size in range(11)]


def _integer(name: str, value: int) -> bytes:
    varint = encode_varint(value)
    return _integer_starts(name)[len(varint)] + varint


def _string(text: str) -> bytes:
    return _field(VALUE_FIELDS["string"], _text(text))


def _rank_attributes(trace: RankTrace, rank: int, kind: int, group: int, peer: int) -> bytes:
    """Return the attributes of a node that differ between ranks: its group, or the source and destination."""
    own, other = ("comm_src", "comm_dst") if kind == NodeType.COMM_SEND else ("comm_dst", "comm_src")
    encoded = _attribute(GROUP, _string(trace.groups[group])) if group != ABSENT else b""
    if kind != ABSENT:
        encoded += _integer(own, rank)
    if peer != ABSENT:
        encoded += _integer(other, trace.peers[peer])
    return encoded


def _encoded(template: Template, bare: npt.NDArray[np.bool_]) -> tuple[memoryview, Ints]:
    """Return the same as `pack_nodes`, encoded in Python; tests compare both."""
    nodes = [
        content if is_bare else _with_length(content)
        for content, is_bare in zip(_constant_parts(template), bare.tolist(), strict=True)
    ]
    return memoryview(b"".join(nodes)), np.cumsum([len(node) for node in nodes], dtype=np.int64)


def _fields(template: Template) -> list[Field]:
    """Return the fields of nodes that are equal on all ranks, in the order in which they are written."""
    distinct = [name for name in dict.fromkeys(template.names) if name]
    numbers = {"": ABSENT} | {name: number for number, name in enumerate(distinct)}
    named = np.fromiter(map(numbers.__getitem__, template.names), np.int64, template.nodes)
    names = [_field(NODE_FIELDS["name"], _text(name)) for name in distinct]
    inputs = np.full(template.nodes, ABSENT, np.int64)
    inputs[list(template.process_groups)] = np.arange(len(template.process_groups))
    dimensions, involved = np.unique(template.involved_dims, return_inverse=True)
    return [
        _number_field("id", template.id),
        Field(PIECE, named, ABSENT, pieces=names),
        _number_field("type", template.type),
        Field(LIST, template.ctrl_start, start=field_key(NODE_FIELDS["ctrl_deps"], LEN), ids=template.ctrl_id),
        Field(LIST, template.data_start, start=field_key(NODE_FIELDS["data_deps"], LEN), ids=template.data_id),
        _number_field("start_time_micros", np.maximum(template.start_ns, 0) // 1000),
        _number_field("duration_micros", template.duration_us),
        Field(PIECE, inputs, ABSENT, pieces=[_inputs(text) for text in template.process_groups.values()]),
        Field(ATTRIBUTE, template.on_cpu, start=_integer_starts("is_cpu_op")[0]),
        *(
            Field(ATTRIBUTE, getattr(template, name), unwritten, _integer_starts(name)[0])
            for name, unwritten in _OMITTED.items()
        ),
        Field(PIECE, template.kernel, ABSENT, pieces=[_kernel(text) for text in template.kernels]),
        Field(PIECE, involved.reshape(-1), pieces=[_dimensions(bits) for bits in dimensions.tolist()]),
    ]


def _number_field(name: str, values: Ints) -> Field:
    return Field(NUMBER, values, 0, field_key(NODE_FIELDS[name], VARINT))


def _constant_parts(template: Template) -> list[bytes]:
    """Return the fields of each node that are equal on all ranks."""
    texts = [_kernel(text) for text in template.kernels]
    parts = [
        _numbers(template.id, "id"),
        (_field(NODE_FIELDS["name"], _text(name)) if name else b"" for name in template.names),
        _numbers(template.type, "type"),
        _list_field(template.ctrl_start, template.ctrl_id, "ctrl_deps"),
        _list_field(template.data_start, template.data_id, "data_deps"),
        _numbers(np.maximum(template.start_ns, 0) // 1000, "start_time_micros"),
        _numbers(template.duration_us, "duration_micros"),
        (_inputs(template.process_groups.get(row)) for row in range(template.nodes)),
        map(_EncodedValues(lambda value: _integer("is_cpu_op", value)).__getitem__, template.on_cpu.tolist()),
        *(_attributes(template, name) for name in _OMITTED),
        (b"" if kernel == ABSENT else texts[kernel] for kernel in template.kernel.tolist()),
        map(_EncodedValues(_dimensions).__getitem__, template.involved_dims.tolist()),
    ]
    return list(map(b"".join, zip(*parts, strict=True)))


def _numbers(column: Ints, name: str) -> Iterator[bytes]:
    """Yield a field of each node; as in protobuf, 0 is not written."""
    start = field_key(NODE_FIELDS[name], VARINT)
    return map(
        _EncodedValues(lambda value: start + encode_varint(value) if value else b"").__getitem__, column.tolist()
    )


def _list_field(start: Ints, ids: Ints, name: str) -> Iterator[bytes]:
    """Yield a list of each node; an empty one is not written."""
    values = list(map(_EncodedValues(encode_varint).__getitem__, ids.tolist()))
    for first, stop in pairwise(start.tolist()):
        yield _field(NODE_FIELDS[name], b"".join(values[first:stop])) if first < stop else b""


def _inputs(text: str | None) -> bytes:
    return b"" if text is None else _field(NODE_FIELDS["inputs"], _field(IO_VALUES, _text(text)))


def _attributes(template: Template, name: str) -> Iterator[bytes]:
    """Yield an attribute of each node."""
    column: Ints = getattr(template, name)
    unwritten = _OMITTED[name]
    encoded = _EncodedValues(lambda value: _integer(name, value) if value != unwritten else b"")
    return map(encoded.__getitem__, column.tolist())


def _kernel(text: str) -> bytes:
    return _attribute(KERNEL, _string(text))


def _dimensions(bits: int) -> bytes:
    """Return the attribute that lists the dimensions of a collective."""
    if bits == ABSENT:
        return b""
    bools = bytes(bits >> index & 1 for index in range(max(bits.bit_length(), FEWEST_DIMENSIONS)))
    return _attribute(DIMENSIONS, _field(VALUE_FIELDS["bool"] + 1, _field(LIST_VALUES, bools)))
