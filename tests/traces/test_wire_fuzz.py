"""Whatever bytes a file has, reading it gives a trace or one `SpecError`; nodes say the same alone and together."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.traces.chakra import trace_reader
from cosmic.traces.chakra.trace_reader import MARGIN, MISSING, decode_nodes, read_trace
from cosmic.traces.chakra.wire_format import COLUMN_OF, VALUE_FIELDS, decode_node, decode_text, encode_varint, field_key
from cosmic.traces.trace import NodeType
from tests.traces.encoding import attribute, field, file, ids, node, number, raw_attribute, said, sized

WHERE = "file"
NUMBER = st.integers(0, 300) | st.integers(0, 2**64 - 1) | st.sampled_from([2**k for k in (7, 14, 31, 32, 55, 56, 63)])
NAMES = st.sampled_from([*COLUMN_OF, "pg_name", "involved_dim", "kernel", "op_type", "num_opz", "comm_sizes", ""])
BYTES, NOISE = st.binary(max_size=12), st.binary(max_size=200)


def any_field(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[bytes]:
    """Return fields that are written in any way, with any content that fits it."""
    return st.one_of(
        st.builds(lambda at, content: field_key(at, 0) + encode_varint(content), numbers, NUMBER),
        st.builds(lambda at, content: field_key(at, 1) + content, numbers, st.binary(min_size=8, max_size=8)),
        st.builds(lambda at, content: field_key(at, 2) + sized(content), numbers, BYTES),
        st.builds(lambda at, content: field_key(at, 5) + content, numbers, st.binary(min_size=4, max_size=4)),
    )


ATTRIBUTES = st.one_of(
    st.builds(
        attribute,
        st.sampled_from(list(COLUMN_OF)),
        st.sampled_from(["int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool"]),
        st.integers(-(2**31), 2**31) | st.integers(-(2**63), 2**63),
    ),
    st.builds(
        attribute,
        st.sampled_from(["pg_name", "kernel"]),
        st.just("string"),
        st.sampled_from(["", "0", "7", "x\0"]) | BYTES,
    ),
    st.builds(
        lambda kind, content: raw_attribute(field(1, b"involved_dim") + field(kind, content)),
        st.just(28) | st.integers(1, 34),
        BYTES | st.lists(st.integers(0, 2), max_size=10).map(lambda bools: field(1, bytes(bools))),
    ),
    st.builds(
        lambda name, parts: raw_attribute(field(1, name.encode()) + b"".join(parts)),
        NAMES,
        st.lists(any_field(st.integers(1, 34) | st.sampled_from(list(VALUE_FIELDS.values()))), max_size=2),
    ),
    st.builds(lambda parts: raw_attribute(b"".join(parts)), st.lists(any_field(st.integers(0, 40)), max_size=3)),
    BYTES.map(raw_attribute),
)
PARTS = st.one_of(
    ATTRIBUTES,
    ATTRIBUTES,
    st.builds(number, st.sampled_from(["id", "type", "duration_micros", "start_time_micros", "data_deps"]), NUMBER),
    st.builds(
        lambda name, values, packed: ids(name, *values, packed=packed),
        st.sampled_from(["data_deps", "ctrl_deps"]),
        st.lists(NUMBER, max_size=4),
        st.booleans(),
    ),
    st.builds(field, st.sampled_from([2, 4, 5, 8, 9, 11]), BYTES),
    any_field(st.integers(0, 20)),
    BYTES,
)
NODES = st.builds(
    lambda node_id, kind, parts: node(node_id, *parts, kind=kind),
    st.integers(0, 300) | NUMBER,
    st.integers(0, 8),
    st.lists(PARTS, max_size=4) | st.lists(ATTRIBUTES, max_size=3),
)


Said = tuple[Any, ...]


def alone(content: bytes) -> Said:
    """Return what a node says, decoded by itself."""
    each = decode_node(content, 0, len(content), WHERE)
    numbers: dict[str, Any] = {name: each.numbers.get(name, missing) for name, missing in MISSING.items()}
    numbers["kernel"] = decode_text(each.kernel) if each.kernel else None
    group = None if each.group in (None, b"", b"0") else decode_text(each.group or b"")
    return numbers, content[slice(*each.name)], each.data, each.ctrl, group, each.process_groups


def together(nodes: list[bytes]) -> list[Said]:
    """Return what nodes say, decoded with each other however few they are."""
    framed = list(map(sized, nodes))
    buffer = b"".join(framed) + bytes(MARGIN)
    with patch.object(trace_reader, "FEW", 0):
        table = decode_nodes(buffer, np.cumsum([0, *map(len, framed)]), lambda _: WHERE)
    names = [buffer[start:stop] for start, stop in zip(table.name_start, table.name_stop, strict=True)]
    data, ctrl = (
        [lists.value[start:stop].tolist() for start, stop in pairwise(lists.start)]
        for lists in (table.data, table.ctrl)
    )
    groups = [None if at < 0 else table.groups[at] for at in table.group]
    rows = range(len(names))
    numbers: list[dict[str, Any]] = [{name: int(column[row]) for name, column in table.numbers.items()} for row in rows]
    for each in numbers:
        each["kernel"] = None if each["kernel"] < 0 else table.kernels[each["kernel"]]
    return [
        (numbers[row], names[row], data[row], ctrl[row], groups[row], table.process_groups.get(row)) for row in rows
    ]


def outcome(read: Callable[[Any], Any], given: Any) -> Any:
    """Return what *read* returns, or what it has to complain about."""
    try:
        return read(given)
    except SpecError as error:
        return str(error)


@given(st.lists(NODES | st.binary(max_size=20), max_size=6))
@settings(max_examples=60)
def test_nodes_say_the_same_alone_and_together(nodes: list[bytes]) -> None:
    outcomes = [outcome(alone, content) for content in nodes]
    wrong = {content: said for content, said in zip(nodes, outcomes, strict=True) if isinstance(said, str)}
    assert together([content for content in nodes if content not in wrong]) == [
        said for said in outcomes if not isinstance(said, str)
    ]
    for content, sentence in wrong.items():
        assert outcome(together, [content]) == sentence
    if wrong:
        assert outcome(together, nodes) == next(iter(wrong.values()))


def usual_node(place: int) -> bytes:
    """Return a node as traces have them."""
    collective = place % 3 == 0
    said = [("comm_type", "int64", 2), ("comm_size", "int64", 2**place), ("pg_name", "string", str(place))]
    if not collective:
        said = [("num_ops", "int64", 3**place), ("tensor_size", "uint64", 5 * place), ("comm_tag", "int32", place)]
    parts = [ids("data_deps", *range(place)), attribute("is_cpu_op", "bool", place % 2)]
    parts += [attribute(*each) for each in said]
    return node(place, *parts, kind=NodeType.COMM_COLL if collective else NodeType.COMP, name=f"node {place}")


USUAL = file(*map(usual_node, range(30)))


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """Draw a file in which some bytes are others, are missing, or are too many."""
    data = bytearray(USUAL)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["flip", "cut", "insert", "end"])):
            case "flip":
                data[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case "cut":
                del data[at : at + draw(st.integers(1, 40))]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=8))
            case _:
                del data[at:]
    return bytes(data)


def read(data: bytes, few: int) -> Any:
    """Return all that a file says, or what is wrong with it."""
    with TemporaryDirectory() as folder, patch.object(trace_reader, "FEW", few):
        path = Path(folder) / "job.0.et"
        path.write_bytes(data)
        return outcome(lambda path: said(read_trace(path)), path)


@given(spoilt())
@settings(max_examples=60)
def test_a_spoilt_file_is_read_or_refused_and_alike_alone_and_together(data: bytes) -> None:
    assert read(data, few=0) == read(data, few=10**9)


@given(
    st.builds(
        lambda *parts: b"".join(parts), st.sampled_from([b"", file()]), st.just(b"") | NUMBER.map(encode_varint), NOISE
    )
)
@settings(max_examples=60)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    assert read(data, few=0) == read(data, few=10**9)


@given(st.binary(max_size=60), st.integers(0, 80))
@settings(max_examples=50)
def test_any_compressed_bytes_are_read_or_refused(noise: bytes, at: int) -> None:
    packed = bytearray(gzip.compress(file(usual_node(1)), mtime=0))
    packed[at : at + 3] = noise[:3]
    for data in (bytes(packed), b"\x1f\x8b" + noise, gzip.compress(noise)):
        read(data, few=0)


def test_the_usual_file_is_as_usual() -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a node was decoded by itself")

    with patch.object(trace_reader, "decode_node", refuse), patch.object(trace_reader, "FEW", 0):
        nodes = list(map(sized, map(usual_node, range(30))))
        heads = np.cumsum([0, *map(len, nodes)])
        assert decode_nodes(b"".join(nodes) + bytes(MARGIN), heads, lambda _: WHERE).numbers["id"].tolist() == list(
            range(30)
        )
