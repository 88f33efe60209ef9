"""Chakra's schema in protobuf's wire format.

A message is a sequence of fields. A field is a key (its number times 8, plus its wire type) and then a varint, four or
eight bytes, or a length and that many bytes. A varint holds 7 bits per byte, the lowest first; the top bit of each byte
says whether another follows. A file is a sequence of messages, each after its length: one of metadata, then one for
each node.

`decode_node` is the reference: `cosmic.traces.chakra.trace_reader` decodes many regular nodes at once and leaves the
others to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from cosmic.base.errors import SpecError
from cosmic.traces.trace import CollectiveType, NodeType

VARINT, I64, LEN, I32 = 0, 1, 2, 5
"""Wire types."""

METADATA_FIELDS = {"version": 1, "attr": 2}
NODE_FIELDS = {
    "id": 1,
    "name": 2,
    "type": 3,
    "ctrl_deps": 4,
    "data_deps": 5,
    "start_time_micros": 6,
    "duration_micros": 7,
    "inputs": 8,
    "outputs": 9,
    "attr": 10,
}
IO_VALUES = 1
"""Field of a node's inputs: their values, as text."""
ATTRIBUTE_NAME, ATTRIBUTE_NOTE = 1, 2
LIST_VALUES = 1

_WIRE_TYPES = {
    "double": I64,
    "float": I32,
    "int32": VARINT,
    "int64": VARINT,
    "uint32": VARINT,
    "uint64": VARINT,
    "sint32": VARINT,
    "sint64": VARINT,
    "fixed32": I32,
    "fixed64": I64,
    "sfixed32": I32,
    "sfixed64": I64,
    "bool": VARINT,
    "string": LEN,
    "bytes": LEN,
}
VALUE_FIELDS = {name: 3 + 2 * index for index, name in enumerate(_WIRE_TYPES)}
"""Field numbers of an attribute's value by its type; a list of such values has the next number."""
_TYPES = {number: name for name, number in VALUE_FIELDS.items()} | {
    number + 1: f"list of {name}" for name, number in VALUE_FIELDS.items()
}
_NOT_INTEGERS = ("double", "float", "string", "bytes")

COLUMN_OF = {
    "is_cpu_op": "on_cpu",
    "num_ops": "num_ops",
    "tensor_size": "tensor_size",
    "comm_type": "comm_type",
    "comm_size": "comm_size",
    "comm_priority": "comm_priority",
    "comm_tag": "comm_tag",
    "comm_src": "source",
    "comm_dst": "destination",
    "start_ns": "start_ns",
    "duration_ns": "duration_ns",
    "delay_ns": "delay_ns",
    "stream": "stream",
}
"""Columns of the attributes that hold an integer."""
GROUP, DIMENSIONS, KERNEL = "pg_name", "involved_dim", "kernel"
SIZES = ("num_ops", "tensor_size", "comm_size", "start_ns", "duration_ns", "delay_ns", "stream")
"""Attributes that are not negative."""
MOST_DIMENSIONS = 62
"""Their bits are kept in one integer."""
INTEGER_LIMIT = 2**63
_NODE_TYPES, _COLLECTIVE_TYPES = frozenset(map(int, NodeType)), frozenset(map(int, CollectiveType))


class WireField(NamedTuple):
    """One field of a message; its content is between *start* and *stop*."""

    number: int
    wire_type: int
    value: int
    """The integer, or the length in bytes."""
    start: int
    stop: int


@dataclass(slots=True)
class DecodedNode:
    """One decoded node."""

    name: tuple[int, int] = (0, 0)
    """Its start and end in the buffer."""
    numbers: dict[str, int] = field(default_factory=dict)
    """Stated values, by column."""
    data: list[int] = field(default_factory=list)
    ctrl: list[int] = field(default_factory=list)
    group: bytes | None = None
    kernel: bytes | None = None
    process_groups: str | None = None


def encode_varint(value: int) -> bytes:
    """Return *value* as a varint; a negative one as its 64-bit two's complement.

    >>> encode_varint(300).hex(), len(encode_varint(-1))
    ('ac02', 10)
    """
    value %= 2**64
    if value < 0x80:
        return _ONE_BYTE[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_ONE_BYTE = [bytes([value]) for value in range(0x80)]


@cache
def field_key(number: int, wire_type: int) -> bytes:
    """Return the key of a field."""
    return encode_varint(number << 3 | wire_type)


def read_varint(data: bytes, start: int, end: int, where: str) -> tuple[int, int]:
    """Return the varint at *start* and where it ends.

    >>> read_varint(encode_varint(300), 0, 2, "file")
    (300, 2)
    """
    value = 0
    for index, byte in enumerate(data[start : min(end, start + 10)]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value % 2**64, start + index + 1
    rule = "ends inside a number" if end - start < 10 else "has a number of more than 10 bytes"
    raise _broken_message(data, start, end, where, rule)


def read_fields(data: bytes, offset: int, end: int, where: str) -> Iterator[WireField]:
    """Yield the fields of the message between *offset* and *end*.

    >>> [tuple(each) for each in read_fields(field_key(1, VARINT) + encode_varint(5) + field_key(2, LEN) + encode_varint(1) + b"x", 0, 5, "")]
    [(1, 0, 5, 1, 2), (2, 2, 1, 4, 5)]
    """
    while offset < end:
        first = offset
        tag, offset = read_varint(data, offset, end, where)
        number, wire_type = tag >> 3, tag & 7
        start = offset
        value = 0
        if wire_type in (VARINT, LEN):
            value, offset = read_varint(data, offset, end, where)
        if wire_type == LEN:
            start, offset = offset, offset + value
        elif wire_type in (I64, I32):
            offset += 8 if wire_type == I64 else 4
            value = int.from_bytes(data[start:offset], "little")
        elif wire_type != VARINT:
            raise _broken_message(data, first, end, where, "has a field of unknown wire type")
        if number == 0:
            raise _broken_message(data, first, end, where, "has a field without a number")
        if offset > end:
            raise _broken_message(data, first, end, where, "ends inside a field")
        yield WireField(number, wire_type, value, start, offset)


def _broken_message(data: bytes, start: int, end: int, where: str, rule: str) -> SpecError:
    return SpecError(where, data[start : min(end, start + 20)], rule)


def check_metadata(data: bytes, start: int, end: int, where: str) -> None:
    """Refuse a first message, between *start* and *end*, that is not the metadata of a trace."""
    try:
        fields = [entry for entry in read_fields(data, start, end, where) if entry.number in METADATA_FIELDS.values()]
    except SpecError as error:
        raise _broken_message(
            data, start, end, where, f"is not a Chakra trace: its first message {error.rule}"
        ) from None
    if any(entry.wire_type != LEN for entry in fields):
        raise _broken_message(data, start, end, where, "is not a Chakra trace: its first message is not metadata")


_NODE_WIRE_TYPES = {NODE_FIELDS[name]: LEN for name in ("name", "inputs", "outputs", "attr")} | {
    NODE_FIELDS[name]: VARINT for name in ("id", "type", "start_time_micros", "duration_micros")
}


def decode_node(data: bytes, start: int, end: int, where: str) -> DecodedNode:
    """Return the node between *start* and *end*; fields and attributes without a column are skipped."""
    fields = list(read_fields(data, start, end, f"{where}: a node"))
    node_id = next((entry.value for entry in reversed(fields) if entry.number == NODE_FIELDS["id"]), 0)
    where = f"{where}: node {node_id}"
    node = DecodedNode()
    for entry in fields:
        if entry.wire_type != _NODE_WIRE_TYPES.get(entry.number, entry.wire_type):
            raise SpecError(f"{where}: field", entry.number, "its wire type is not that of the schema")
        _decode_field(node, data, entry, where)
    if node.numbers.get("type", 0) not in _NODE_TYPES:
        raise SpecError(f"{where}: type", node.numbers["type"], "the schema has no such node type")
    if node.numbers.get("type") == NodeType.METADATA:
        # Inputs of a metadata node describe PyTorch's process groups.
        text = None
        for inputs in fields:
            if inputs.number == NODE_FIELDS["inputs"]:
                for value in read_fields(data, inputs.start, inputs.stop, f"{where}: inputs"):
                    if value.number == IO_VALUES and value.wire_type == LEN:
                        text = decode_text(data[value.start : value.stop])
        node.process_groups = text
    return node


def _decode_field(node: DecodedNode, data: bytes, entry: WireField, where: str) -> None:
    """Decode one field into *node*."""
    match entry.number:  # as in NODE_FIELDS
        case 1:
            node.numbers["id"] = _check_column_range(entry.value, where)
        case 2:
            node.name = entry.start, entry.stop
        case 3:
            node.numbers["type"] = entry.value
        case 4:
            node.ctrl += _integers(data, entry, f"{where}: ctrl_deps")
        case 5:
            node.data += _integers(data, entry, f"{where}: data_deps")
        case 7:
            node.numbers["duration_us"] = _check_column_range(entry.value, f"{where}: duration_micros")
        case 10:
            _decode_attribute(node, data, entry, where)


def _check_column_range(value: int, where: str) -> int:
    """Return *value* if a column can hold it."""
    if value >= INTEGER_LIMIT:
        raise SpecError(where, value, "must be below 2^63")
    return value


def _integers(data: bytes, entry: WireField, where: str) -> list[int]:
    """Return the integers of a repeated field: one, or several packed."""
    if entry.wire_type == VARINT:
        return [_check_column_range(entry.value, where)]
    if entry.wire_type != LEN:
        raise SpecError(where, entry.number, "its wire type is not that of the schema")
    values, offset = [], entry.start
    while offset < entry.stop:
        value, offset = read_varint(data, offset, entry.stop, where)
        values.append(_check_column_range(value, where))
    return values


def _decode_attribute(node: DecodedNode, data: bytes, attribute: WireField, where: str) -> None:
    """Decode one attribute into *node*, if it has a column."""
    name, value = _name_and_value(data, attribute, f"{where}: an attribute")
    if not name:
        return
    where = f"{where}: {name}"
    if value is None:
        raise SpecError(where, None, "the attribute has no value")
    kind = _TYPES.get(value.number)
    if kind is None or value.wire_type != _WIRE_TYPES.get(kind, LEN):
        raise SpecError(where, value.number, "the schema has no such type of attribute")
    if name in (GROUP, KERNEL):
        if kind != "string":
            raise SpecError(where, kind, "must be a string")
        setattr(node, "group" if name == GROUP else "kernel", data[value.start : value.stop])
    elif name == DIMENSIONS:
        node.numbers["involved_dims"] = _dimension_bits(data, value, kind, where)
    else:
        number = _integer(value.value, kind, where)
        if name in SIZES and number < 0:
            raise SpecError(where, number, "must not be negative")
        if name == "comm_type" and number not in _COLLECTIVE_TYPES:
            raise SpecError(where, number, "the schema has no such collective")
        node.numbers[COLUMN_OF[name]] = int(number != 0) if name == "is_cpu_op" else number


def _name_and_value(data: bytes, attribute: WireField, where: str) -> tuple[str, WireField | None]:
    """Return an attribute's name and value; an empty name if it has no column."""
    name, value = "", None
    for entry in read_fields(data, attribute.start, attribute.stop, where):
        if entry.number == ATTRIBUTE_NAME and entry.wire_type == LEN:
            name = data[entry.start : entry.stop].decode(errors="replace")
            if name not in COLUMN_OF and name not in (GROUP, DIMENSIONS, KERNEL):
                return "", None
        elif entry.number != ATTRIBUTE_NOTE:
            value = entry
    return name, value


def _integer(raw: int, kind: str, where: str) -> int:
    """Return the integer encoded as *raw*.

    >>> _integer(2**64 - 5, "int64", ""), _integer(9, "sint64", ""), _integer(2**32 - 5, "sfixed32", "")
    (-5, -5, -5)
    """
    if kind in _NOT_INTEGERS or kind not in _WIRE_TYPES:
        raise SpecError(where, kind, "must be an integer")
    if kind == "bool":
        return int(raw != 0)
    bits = 32 if kind.endswith("32") else 64
    raw %= 2**bits
    if kind.startswith("sint"):
        return raw >> 1 ^ -(raw & 1)
    if kind.startswith(("int", "sfixed")):
        return raw - (raw >> bits - 1 << bits)
    return _check_column_range(raw, where)


def _dimension_bits(data: bytes, value: WireField, kind: str, where: str) -> int:
    """Return a list of bools as bits, the first one lowest."""
    element = kind.removeprefix("list of ")
    if element == kind or element in _NOT_INTEGERS or _WIRE_TYPES[element] != VARINT:
        raise SpecError(where, kind, "must be a list of bool")
    bools = [
        flag
        for entry in read_fields(data, value.start, value.stop, where)
        if entry.number == LIST_VALUES
        for flag in _integers(data, entry, where)
    ]
    if len(bools) > MOST_DIMENSIONS:
        raise SpecError(where, len(bools), f"there can be at most {MOST_DIMENSIONS} dimensions")
    return sum((flag != 0) << index for index, flag in enumerate(bools))


def decode_text(encoded: bytes) -> str:
    r"""Return *encoded* as text; bytes that are not UTF-8 are escaped.

    >>> decode_text(b"a\xff")
    'a\\xff'
    """
    return encoded.decode(errors="backslashreplace")
