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

STATED = ("inputs", "outputs")
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
    found: dict[int, NodeTensors] = {}
    size, at = read_varint(data, 0, len(data), where)
    at += size  # the metadata
    while at < len(data):
        size, at = read_varint(data, at, len(data), where)
        node, stated = _stated(data, at, min(at + size, len(data)), where)
        if stated:
            found[node] = NodeTensors(stated.get("inputs", ()), stated.get("outputs", ()))
        at += size
    return found


def _stated(data: bytes, at: int, end: int, where: str) -> tuple[int, dict[str, Tensors]]:
    """Return the id of a node, and the tensors that it states, by attribute."""
    node, stated = 0, {}
    for field in read_fields(data, at, end, f"{where}: a node"):
        if field.number == NODE_FIELDS["id"]:
            node = field.value
        elif field.number == NODE_FIELDS["attr"] and field.wire_type == LEN:
            parts = {part.number: part for part in read_fields(data, field.start, field.stop, f"{where}: an attribute")}
            named = parts.get(ATTRIBUTE_NAME)
            name = decode_text(data[named.start : named.stop]) if named is not None else ""
            if name not in STATED:
                continue
            place = f"{where}: node {node}: {name}"
            if _LIST not in parts or parts[_LIST].wire_type != LEN:
                raise SpecError(place, None, "must be a list of text: names and bytes")
            values = read_fields(data, parts[_LIST].start, parts[_LIST].stop, place)
            words = [decode_text(data[value.start : value.stop]) for value in values if value.number == LIST_VALUES]
            stated[name] = _tensors(words, place)
    return node, stated


def _tensors(words: list[str], where: str) -> Tensors:
    """Return the tensors of a list in which names and bytes alternate.

    >>> _tensors(["w", "8", "x", "16"], "here")
    (('w', 8), ('x', 16))
    """
    if len(words) % 2:
        raise SpecError(where, len(words), "must hold names and bytes in turn, so an even number of texts")
    found = []
    for name, size in zip(words[::2], words[1::2], strict=True):
        if not (
            size.isascii() and size.isdigit() and len(size) <= len(str(INTEGER_LIMIT)) and int(size) < INTEGER_LIMIT
        ):
            raise SpecError(f"{where}: {name}", size, "must be a whole number of bytes")
        found.append((name, int(size)))
    return tuple(found)
