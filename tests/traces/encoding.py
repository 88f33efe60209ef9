"""Chakra files, byte by byte: each field as a test asks for it; and the values of a trace that was read."""

from __future__ import annotations

import struct
from typing import Any

from cosmic.traces.chakra.trace_writer import Encoder
from cosmic.traces.chakra.wire_format import (
    ATTRIBUTE_NAME,
    LEN,
    NODE_FIELDS,
    VALUE_FIELDS,
    VARINT,
    encode_varint,
    field_key,
)
from cosmic.traces.trace import RankTrace

_FORMATS = {"double": "<d", "float": "<f", "fixed32": "<I", "sfixed32": "<i", "fixed64": "<Q", "sfixed64": "<q"}


def sized(content: bytes) -> bytes:
    """Return *content* after its length."""
    return encode_varint(len(content)) + content


def field(number: int, content: bytes) -> bytes:
    """Return a field that has a length."""
    return field_key(number, LEN) + sized(content)


def number(name: str, value: int) -> bytes:
    """Return a field of a node that is a varint."""
    return field_key(NODE_FIELDS[name], VARINT) + encode_varint(value)


def ids(name: str, *values: int, packed: bool = True) -> bytes:
    """Return a list of ids."""
    if packed:
        return field(NODE_FIELDS[name], b"".join(map(encode_varint, values)))
    return b"".join(number(name, value) for value in values)


def value(kind: str, content: float | str | bytes) -> bytes:
    """Return the value of an attribute, of any type of the schema but lists."""
    place = VALUE_FIELDS[kind]
    if isinstance(content, str | bytes):
        return field(place, content.encode() if isinstance(content, str) else content)
    if kind in _FORMATS:
        return field_key(place, 1 if "64" in kind or kind == "double" else 5) + struct.pack(_FORMATS[kind], content)
    whole = int(content)
    if kind.startswith("sint"):
        whole = whole << 1 ^ whole >> 63
    return field_key(place, VARINT) + encode_varint(whole)


def attribute(name: str, kind: str, content: float | str | bytes) -> bytes:
    """Return an attribute of a node."""
    return raw_attribute(field(ATTRIBUTE_NAME, name.encode()) + value(kind, content))


def raw_attribute(content: bytes) -> bytes:
    """Return an attribute of a node, whatever it contains."""
    return field(NODE_FIELDS["attr"], content)


def node(node_id: int, *parts: bytes, kind: int = 4, name: str = "") -> bytes:
    """Return a node."""
    start = number("id", node_id) + (field(NODE_FIELDS["name"], name.encode()) if name else b"")
    return start + number("type", kind) + b"".join(parts)


def file(*nodes: bytes, metadata: bytes = b"\x0a\x051.0.0") -> bytes:
    """Return a trace of *nodes*."""
    return sized(metadata) + b"".join(map(sized, nodes))


def encoded(trace: RankTrace, rank: int) -> bytes:
    """Return the file of *rank*."""
    return Encoder(trace.template).encode(trace, rank)


def said(trace: RankTrace) -> dict[str, Any]:
    """Return all values of *trace*, to compare."""
    template = trace.template
    columns = [name for name in template.__slots__ if name not in ("names", "kernel", "kernels", "process_groups")]
    found: dict[str, Any] = {name: getattr(template, name).tolist() for name in columns}
    found |= {"names": list(template.names), "process_groups": dict(template.process_groups)}
    found["kernel"] = [template.kernels[at] if at >= 0 else None for at in template.kernel.tolist()]
    return found | {"groups": trace.groups, "peers": trace.peers, "own_rank": trace.own_rank}
