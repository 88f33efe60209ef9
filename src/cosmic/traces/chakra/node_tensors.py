"""The tensors that nodes of a trace read and write, as ASTRA-sim's memory tracker reads them.

A node states them as two attributes, `inputs` and `outputs`: lists of text in which names and bytes alternate. No other
part of a simulation needs them, so they are read apart from the columns of `cosmic.traces.chakra.trace_reader`.
"""

from __future__ import annotations

from dataclasses import dataclass

from cosmic.base.errors import SpecError
from cosmic.traces.chakra.wire_format import (
    ATTRIBUTE_NAME,
    INTEGER_LIMIT,
    LEN,
    LIST_VALUES,
    NODE_FIELDS,
    VALUE_FIELDS,
    decode_text,
    read_fields,
    read_varint,
)

TENSOR_ATTRIBUTES = ("inputs", "outputs")
_LIST = VALUE_FIELDS["string"] + 1
Tensors = tuple[tuple[str, int], ...]
"""Names of tensors, and their bytes."""


@dataclass(frozen=True, slots=True)
class NodeTensors:
    """What a node reads and writes."""

    reads: Tensors = ()
    writes: Tensors = ()


def tensors_of(data: bytes, where: str) -> dict[int, NodeTensors]:
    """Return the tensors of the nodes in the contents of a trace that state some, by the id of the node."""
    tensors: dict[int, NodeTensors] = {}
    size, offset = read_varint(data, 0, len(data), where)
    offset += size  # the metadata
    while offset < len(data):
        size, offset = read_varint(data, offset, len(data), where)
        node, attributes = _node_tensors(data, offset, min(offset + size, len(data)), where)
        if attributes:
            tensors[node] = NodeTensors(attributes.get("inputs", ()), attributes.get("outputs", ()))
        offset += size
    return tensors


def _node_tensors(data: bytes, start: int, end: int, where: str) -> tuple[int, dict[str, Tensors]]:
    """Return the id of a node, and the tensors that it states, by attribute."""
    node, attributes = 0, {}
    for field in read_fields(data, start, end, f"{where}: a node"):
        if field.number == NODE_FIELDS["id"]:
            node = field.value
        elif field.number == NODE_FIELDS["attr"] and field.wire_type == LEN:
            parts = {part.number: part for part in read_fields(data, field.start, field.stop, f"{where}: an attribute")}
            named = parts.get(ATTRIBUTE_NAME)
            name = decode_text(data[named.start : named.stop]) if named is not None else ""
            if name not in TENSOR_ATTRIBUTES:
                continue
            where_attribute = f"{where}: node {node}: {name}"
            if _LIST not in parts or parts[_LIST].wire_type != LEN:
                raise SpecError(where_attribute, None, "must be a list of text: names and bytes")
            values = read_fields(data, parts[_LIST].start, parts[_LIST].stop, where_attribute)
            words = [decode_text(data[value.start : value.stop]) for value in values if value.number == LIST_VALUES]
            attributes[name] = _tensors(words, where_attribute)
    return node, attributes


def _tensors(words: list[str], where: str) -> Tensors:
    """Return the tensors of a list in which names and bytes alternate.

    >>> _tensors(["w", "8", "x", "16"], "here")
    (('w', 8), ('x', 16))
    """
    if len(words) % 2:
        raise SpecError(where, len(words), "must hold names and bytes in turn, so an even number of texts")
    tensors = []
    for name, size in zip(words[::2], words[1::2], strict=True):
        if not (
            size.isascii() and size.isdigit() and len(size) <= len(str(INTEGER_LIMIT)) and int(size) < INTEGER_LIMIT
        ):
            raise SpecError(f"{where}: {name}", size, "must be a whole number of bytes")
        tensors.append((name, int(size)))
    return tuple(tensors)
