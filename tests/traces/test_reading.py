"""Chakra files are read as they were meant, whichever way they were written, or refused in one sentence."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.traces.chakra import trace_reader
from cosmic.traces.chakra.trace_reader import read_trace, read_traces
from cosmic.traces.chakra.wire_format import COLUMN_OF, encode_varint, field_key
from cosmic.traces.dependencies import checked_dependencies
from cosmic.traces.trace import ABSENT, COLUMNS, CollectiveType, NodeType
from tests.traces.encoding import attribute, field, file, ids, node, number, raw_attribute, said, value

REFERENCE = Path(__file__).parents[3] / "shared" / "reference"
needs_reference = pytest.mark.skipif(not REFERENCE.is_dir(), reason="the collection of traces is not there")
COMP, SEND, RECEIVE, COLLECTIVE = NodeType.COMP, NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL
MANY = 40
"""Enough nodes for them to be decoded together."""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes], Path]:
    """Return a function that writes a file and returns its path."""

    def write(content: bytes) -> Path:
        path = tmp_path / "job.0.et"
        path.write_bytes(content)
        return path

    return write


def one_by_one() -> Any:
    """Return a context in which no two nodes are decoded together."""
    return patch.object(trace_reader, "FEW", 10**9)


def job(folder: Path, *ranks: bytes) -> Path:
    """Write a file for each rank, and return their prefix."""
    for rank, content in enumerate(ranks):
        (folder / f"job.{rank}.et").write_bytes(content)
    return folder / "job"


# ---- one file


def test_a_file_is_read_as_its_bytes_say(write: Callable[[bytes], Path]) -> None:
    metadata = b"\x07\x0a\x051.0.0"
    compute = b"\x08\x03\x12\x03mul\x18\x04\x38\x0c\x52\x0c\x0a\x07num_ops\x48\xac\x02"
    collective = b"\x08\x05\x18\x07\x22\x01\x03\x2a\x02\x03\x04\x52\x0e\x0a\x07pg_name\xea\x01\x0212"
    trace = read_trace(write(metadata + b"\x19" + compute + b"\x1b" + collective))
    template = trace.template
    assert template.id.tolist() == [3, 5]
    assert template.type.tolist() == [NodeType.COMP, NodeType.COMM_COLL]
    assert list(template.names) == ["mul", ""]
    assert (template.data_start.tolist(), template.data_id.tolist()) == ([0, 0, 2], [3, 4])
    assert (template.ctrl_start.tolist(), template.ctrl_id.tolist()) == ([0, 0, 1], [3])
    assert template.duration_us.tolist() == [12, 0]
    assert template.num_ops.tolist() == [300, ABSENT]
    assert template.group.tolist() == [ABSENT, 0]
    assert (trace.groups, trace.peers, trace.own_rank) == (("12",), (), None)


def test_nodes_are_in_the_order_of_their_ids(write: Callable[[bytes], Path]) -> None:
    nodes = [node(place * 7 % MANY, ids("data_deps", place), name=f"n{place}") for place in range(MANY)]
    template = read_trace(write(file(*nodes))).template
    assert template.id.tolist() == list(range(MANY))
    assert [template.names[7 * place % MANY] for place in range(MANY)] == [f"n{place}" for place in range(MANY)]
    assert template.data_id[7 * 3 % MANY] == 3


def test_what_a_node_does_not_say_is_absent_or_zero(write: Callable[[bytes], Path]) -> None:
    template = read_trace(write(file(*(number("id", place) for place in range(1, MANY)), b""))).template
    zero = {"type", "duration_us", "on_cpu", "comm_priority"}
    assert template.id.tolist() == list(range(MANY))
    for name in set(COLUMNS) - {"id"}:
        assert set(getattr(template, name).tolist()) == {0 if name in zero else ABSENT}, name


def test_metadata_alone_is_a_trace_without_nodes(write: Callable[[bytes], Path]) -> None:
    for metadata in (b"\x0a\x051.0.0", b""):
        trace = read_trace(write(file(metadata=metadata)))
        assert trace.template.nodes == 0
        assert trace.template.data_start.tolist() == trace.template.ctrl_start.tolist() == [0]


@pytest.mark.parametrize(
    "kind", ["int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64"]
)
@pytest.mark.parametrize("name", [name for name in COLUMN_OF if name not in ("is_cpu_op", "comm_type")])
def test_any_integer_type_does_for_an_integer(write: Callable[[bytes], Path], name: str, kind: str) -> None:
    wanted = [0, 1, 127, 128, 2**31 - 1]
    type_ = RECEIVE if name == "comm_src" else SEND  # so that this is the other side
    nodes = [node(place, attribute(name, kind, wanted[place % 5]), kind=type_) for place in range(MANY)]
    trace = read_trace(write(file(*nodes)))
    if name in ("comm_src", "comm_dst"):
        assert [trace.peers[place] for place in trace.template.peer[:5]] == wanted
    else:
        assert getattr(trace.template, COLUMN_OF[name])[:5].tolist() == wanted


@pytest.mark.parametrize("kind", ["bool", "int32", "uint64", "sint64", "fixed32"])
def test_a_truth_value_may_have_any_integer_type(write: Callable[[bytes], Path], kind: str) -> None:
    nodes = [node(place, attribute("is_cpu_op", kind, place % 2)) for place in range(MANY)]
    assert read_trace(write(file(*nodes))).template.on_cpu.tolist() == [0, 1] * (MANY // 2)
    if kind != "bool":
        assert read_trace(write(file(node(0, attribute("is_cpu_op", kind, 5))))).template.on_cpu.tolist() == [1]


@pytest.mark.parametrize("kind", ["int32", "int64", "sint32", "sint64", "sfixed32", "sfixed64"])
@pytest.mark.parametrize("wanted", [-2, -7, -(2**31)])
def test_negative_integers_are_read_right(write: Callable[[bytes], Path], kind: str, wanted: int) -> None:
    nodes = [node(place, attribute("comm_tag", kind, wanted)) for place in range(MANY)]
    assert set(read_trace(write(file(*nodes))).template.comm_tag.tolist()) == {wanted}


@pytest.mark.parametrize("wanted", [2**bits - 1 for bits in range(6, 64)])
def test_integers_of_any_length_are_read_right(write: Callable[[bytes], Path], wanted: int) -> None:
    first = max(wanted - MANY, 0)
    assert read_trace(write(file(*map(node, range(first, first + MANY))))).template.id[-1] == first + MANY - 1
    said = {
        "data_id": ids("data_deps", wanted),
        "ctrl_id": ids("ctrl_deps", wanted, packed=False),
        "duration_us": number("duration_micros", wanted),
        "num_ops": attribute("num_ops", "uint64", wanted),
        "comm_size": attribute("comm_size", "int64", wanted),
        "tensor_size": attribute("tensor_size", "sint64", wanted),
    }
    for column, part in said.items():
        template = read_trace(write(file(*(node(place, part) for place in range(MANY))))).template
        assert set(getattr(template, column).tolist()) == {wanted}, column


def test_waiting_lists_may_be_packed_or_not_or_in_pieces(write: Callable[[bytes], Path]) -> None:
    ways = [
        ids("data_deps", 1, 300, 2**40, packed=False),
        ids("data_deps", 1, 300, 2**40),
        ids("data_deps", 1) + ids("ctrl_deps") + ids("data_deps", 300, packed=False) + ids("data_deps", 2**40),
    ]
    nodes = [node(place, ways[place % 3], ids("ctrl_deps", 9, packed=place % 2 == 0)) for place in range(3 * MANY)]
    template = read_trace(write(file(*nodes))).template
    assert template.data_id.tolist() == [1, 300, 2**40] * 3 * MANY
    assert template.data_start.tolist() == list(range(0, 9 * MANY + 1, 3))
    assert template.ctrl_id.tolist() == [9] * 3 * MANY


def test_one_node_may_wait_for_very_many(write: Callable[[bytes], Path]) -> None:
    wanted = list(range(50_000))
    packed, unpacked = (node(place, ids("data_deps", *wanted, packed=place > 0)) for place in range(2))
    few = [node(place, ids("data_deps", 1)) for place in range(2, MANY)]
    template = read_trace(write(file(unpacked, packed, *few))).template
    assert template.data_id.tolist() == wanted + wanted + [1] * (MANY - 2)


def test_attributes_that_nobody_uses_are_passed_over(write: Callable[[bytes], Path]) -> None:
    unused = [
        attribute("op_type", "string", "M"),
        attribute("comm_sizf", "double", 1.5),
        attribute("is_cpu", "bool", 1),
    ]
    unused += [
        raw_attribute(b""),
        raw_attribute(field(1, b"outputs")),
        raw_attribute(field(1, b"x" * 200) + b"\xff\xff"),
    ]
    unused += [attribute("inputs", "bytes", b"x" * 300), attribute("comm_type_of_it", "int64", 77)]
    nodes = [node(place, *unused, attribute("comm_size", "int64", place), kind=COLLECTIVE) for place in range(MANY)]
    template = read_trace(write(file(*nodes))).template
    assert template.comm_size.tolist() == list(range(MANY))
    assert template.comm_type.tolist() == [ABSENT] * MANY


def test_an_attribute_may_be_in_any_order_and_the_last_of_two_counts(write: Callable[[bytes], Path]) -> None:
    turned = raw_attribute(value("int64", 5) + field(2, b"a note") + field(1, b"comm_size"))
    noted = raw_attribute(field(1, b"comm_size") + field(2, b"a note") + value("int64", 5))
    twice = attribute("comm_size", "int64", 4) + attribute("comm_size", "uint32", 5)
    both = raw_attribute(field(1, b"comm_size") + value("int64", 4) + value("fixed64", 5))
    nodes = [node(place, (turned, noted, twice, both)[place % 4]) for place in range(MANY)]
    assert set(read_trace(write(file(*nodes))).template.comm_size.tolist()) == {5}


def test_fields_of_later_schemas_are_passed_over(write: Callable[[bytes], Path]) -> None:
    later = (
        field(11, b"x")
        + field_key(12, 0)
        + encode_varint(5)
        + field_key(13, 1)
        + bytes(8)
        + field_key(300, 5)
        + bytes(4)
    )
    nodes = [node(place, later, attribute("num_ops", "int64", place)) for place in range(MANY)]
    assert read_trace(write(file(*nodes))).template.num_ops.tolist() == list(range(MANY))


@pytest.mark.parametrize("count", [0, 1, 3, 4, 8, 9, 62])
@pytest.mark.parametrize("packed", [True, False])
def test_dimensions_are_bits(write: Callable[[bytes], Path], count: int, packed: bool) -> None:
    bools = [place % 3 != 1 for place in range(count)]
    listed = field(1, bytes(bools)) if packed else b"".join(field_key(1, 0) + bytes([value]) for value in bools)
    for kind in (28, 8, 18):  # lists of bool, int32, sint64
        said = raw_attribute(field(1, b"involved_dim") + field(kind, listed))
        template = read_trace(write(file(*(node(place, said) for place in range(MANY))))).template
        assert set(template.involved_dims.tolist()) == {sum(value << place for place, value in enumerate(bools))}


def test_the_last_of_two_lists_of_dimensions_counts(write: Callable[[bytes], Path]) -> None:
    for count in range(1, 10):
        lists = field(28, field(1, b"\x01" * count)) + field(28, field(1, b"\x00\x01"))
        nodes = [node(place, raw_attribute(field(1, b"involved_dim") + lists)) for place in range(MANY)]
        assert set(read_trace(write(file(*nodes))).template.involved_dims.tolist()) == {2}


def test_groups_are_numbered_as_they_appear_in_the_order_of_ids(write: Callable[[bytes], Path]) -> None:
    names = ["7", "a group with a long name", "7", "0", "", "12", "x\0", "x"]
    nodes = [node(place, attribute("pg_name", "string", names[place % 8]), kind=COLLECTIVE) for place in range(MANY)]
    trace = read_trace(write(file(*reversed(nodes), node(MANY, kind=COLLECTIVE))))
    assert trace.groups == ("7", "a group with a long name", "12", "x\0", "x")
    assert trace.template.group.tolist() == [0, 1, 0, ABSENT, ABSENT, 2, 3, 4] * (MANY // 8) + [ABSENT]


def test_sides_of_messages(write: Callable[[bytes], Path]) -> None:
    def sides(source: int, destination: int) -> bytes:
        return attribute("comm_src", "int32", source) + attribute("comm_dst", "int32", destination)

    nodes = [node(1, sides(3, 9), kind=SEND), node(2, sides(4, 3), kind=RECEIVE), node(3, sides(9, 3), kind=RECEIVE)]
    trace = read_trace(write(file(*nodes, node(4, sides(5, 6), kind=COLLECTIVE))))
    assert (trace.peers, trace.own_rank) == ((9, 4), 3)
    assert trace.template.peer.tolist() == [0, 1, 0, ABSENT]
    trace = read_trace(write(file(node(1, attribute("comm_dst", "int32", 2), kind=SEND), node(2, kind=RECEIVE))))
    assert (trace.peers, trace.own_rank, trace.template.peer.tolist()) == ((2,), None, [0, ABSENT])


def test_what_metadata_says_of_process_groups_is_kept(write: Callable[[bytes], Path]) -> None:
    text = '[\'[{"pg_name": "1", "ranks": []}]\']'
    inputs = field(8, field(1, text.encode()) + field(2, b"[]"))
    nodes = [node(place, inputs, kind=NodeType.METADATA if place == 7 else COMP) for place in range(MANY)]
    template = read_trace(write(file(*reversed(nodes)))).template
    assert template.process_groups == {7: text}


def test_names_are_texts_of_any_kind(write: Callable[[bytes], Path]) -> None:
    odd = number("id", 1) + field(2, b"a\xff")
    names = read_trace(
        write(file(node(0, name="größe"), odd, *(node(place) for place in range(2, MANY))))
    ).template.names
    assert list(names[:3]) == ["größe", "a\\xff", ""]
    assert (names[-1], len(names), len(names[1:])) == ("", MANY, MANY - 1)
    with pytest.raises(IndexError):
        _ = names[MANY]


def test_a_file_may_be_compressed(tmp_path: Path) -> None:
    content = file(node(1, name="one"))
    for name in ("job.0.et", "other.0.et.gz"):
        (tmp_path / name).write_bytes(gzip.compress(content))
    assert list(read_trace(tmp_path / "job.0.et").template.names) == ["one"]
    assert list(read_traces(tmp_path / "other").ranks[0].template.names) == ["one"]


# ---- what is refused

WRONG_FILES = {
    "empty": (b"", "the file is empty"),
    "a length that is cut": (b"\x85", "ends inside a number"),
    "a length that is cut later": (file() + b"\x85", "ends inside a length"),
    "a long length that is cut": (file() + b"\x85\x85", "ends inside a number"),
    "a length beyond the file": (file(node(1)) + b"\x7f\x08", "the file ends inside a message"),
    "a long length beyond the file": (file() + encode_varint(2**16) + b"\x08", "the file ends inside a message"),
    "a length beyond any file": (file() + encode_varint(2**64 - 1) + b"\x08", "the file ends inside a message"),
    "metadata beyond any file": (encode_varint(2**63) + b"\x0a", "the file ends inside a message"),
    "metadata beyond the file": (b"\x7f\x0a", "the file ends inside a message"),
    "text": (b'{"workload_graph": []}' * 9, "is not a Chakra trace: its first message ends inside a field"),
    "nodes without metadata": (b"\x04\x08\x01\x18\x04", "is not a Chakra trace: its first message is not metadata"),
    "bad gzip": (b"\x1f\x8b\x08 nonsense", "is not a valid gzip file"),
    "cut gzip": (gzip.compress(file(node(1)))[:-9], "is not a valid gzip file"),
    "two equal ids": (file(node(4), node(3), node(4)), "job.0.et: node = 4: two nodes have this id"),
    "two own sides": (
        file(*(node(place, attribute("comm_src", "int32", place), kind=SEND) for place in (1, 2))),
        "job.0.et: node 2: own rank = 2: nodes before it belong to rank 1",
    ),
}


@pytest.mark.parametrize("wrong", WRONG_FILES)
def test_what_is_wrong_with_a_file_is_said_in_one_sentence(write: Callable[[bytes], Path], wrong: str) -> None:
    content, sentence = WRONG_FILES[wrong]
    with pytest.raises(SpecError) as caught:
        read_trace(write(content))
    assert sentence in str(caught.value)
    assert "job.0.et" in caught.value.where


def dimensions(content: bytes) -> bytes:
    """Return the attribute that names dimensions, with any value."""
    return raw_attribute(field(1, b"involved_dim") + content)


def operations(content: bytes) -> bytes:
    """Return the attribute that counts operations, with any value."""
    return raw_attribute(field(1, b"num_ops") + content)


WRONG_NODES = {
    "a field that is cut": (b"\x12\x05ab", "a node = b'\\x12\\x05ab': ends inside a field"),
    "a number that is cut": (b"\x30\x80", "a node = b'\\x80': ends inside a number"),
    "a number of 11 bytes": (b"\x30" + b"\x80" * 10 + b"\x00", "has a number of more than 10 bytes"),
    "a field without a number": (b"\x00\x01", "a node = b'\\x00\\x01': has a field without a number"),
    "groups of old protobuf": (b"\x5b\x5c", "has a field of unknown wire type"),
    "a name that is a number": (b"\x10\x01", "node 5: field = 2: its wire type is not that of the schema"),
    "ids of eight bytes": (b"\x29" + bytes(8), "node 5: data_deps = 5: its wire type is not that of the schema"),
    "an id that is cut": (b"\x2a\x01\x80", "node 5: data_deps = b'\\x80': ends inside a number"),
    "an unknown type": (number("type", 8), "node 5: type = 8: the schema has no such node type"),
    "an id that is too big": (
        number("id", 2**63),
        "node 9223372036854775808 = 9223372036854775808: must be below 2^63",
    ),
    "ids that are too big": (
        ids("ctrl_deps", 2**64 - 1),
        "node 5: ctrl_deps = 18446744073709551615: must be below 2^63",
    ),
    "a negative size": (attribute("comm_size", "int64", -4), "node 5: comm_size = -4: must not be negative"),
    "negative operations": (attribute("num_ops", "sint32", -4), "node 5: num_ops = -4: must not be negative"),
    "negative bytes": (attribute("tensor_size", "sfixed64", -4), "node 5: tensor_size = -4: must not be negative"),
    "a huge number": (
        attribute("num_ops", "uint64", 2**63),
        "node 5: num_ops = 9223372036854775808: must be below 2^63",
    ),
    "no collective": (attribute("comm_type", "int64", 10), "node 5: comm_type = 10: the schema has no such collective"),
    "no integer": (attribute("comm_size", "double", 4.0), "node 5: comm_size = 'double': must be an integer"),
    "a float": (attribute("num_ops", "float", 4.0), "node 5: num_ops = 'float': must be an integer"),
    "a text": (attribute("comm_tag", "string", "4"), "node 5: comm_tag = 'string': must be an integer"),
    "a list": (operations(field(10, b"")), "node 5: num_ops = 'list of int64': must be an integer"),
    "an unknown type of value": (
        operations(field_key(33, 0) + b"\x01"),
        "node 5: num_ops = 33: the schema has no such type of attribute",
    ),
    "a type of value far beyond": (
        operations(field_key(27 + 16, 0) + b"\x01"),
        "node 5: num_ops = 43: the schema has no such type of attribute",
    ),
    "a name that is cut": (raw_attribute(b"\x0a\x07num_op"), "node 5: an attribute = b'\\n\\x07num_op': ends inside"),
    "a value written otherwise": (
        operations(field_key(9, 5) + bytes(4)),
        "node 5: num_ops = 9: the schema has no such type of attribute",
    ),
    "no value": (operations(b""), "node 5: num_ops = None: the attribute has no value"),
    "a value that is cut": (operations(b"\x48\x80"), "node 5: an attribute = b'\\x80': ends inside a number"),
    "a group by number": (attribute("pg_name", "int32", 1), "node 5: pg_name = 'int32': must be a string"),
    "one dimension": (attribute("involved_dim", "bool", 1), "node 5: involved_dim = 'bool': must be a list of bool"),
    "named dimensions": (dimensions(field(30, b"")), "involved_dim = 'list of string': must be a list of bool"),
    "many dimensions": (
        dimensions(field(28, field(1, bytes(63)))),
        "node 5: involved_dim = 63: there can be at most 62 dimensions",
    ),
}


@pytest.mark.parametrize("others", [0, MANY])
@pytest.mark.parametrize("wrong", WRONG_NODES)
def test_what_is_wrong_with_a_node_is_said_in_one_sentence(
    write: Callable[[bytes], Path], wrong: str, others: int
) -> None:
    content, sentence = WRONG_NODES[wrong]
    good = [node(1000 + place, attribute("num_ops", "int64", place)) for place in range(others)]
    with pytest.raises(SpecError) as caught:
        read_trace(write(file(*good[: MANY // 2], node(5, content), *good[MANY // 2 :])))
    assert sentence in str(caught.value)
    assert caught.value.where.startswith("job.0.et: ")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for wrong in (tmp_path / "none.0.et", tmp_path):
        with pytest.raises(SpecError, match=r"cannot be read|is a directory") as caught:
            read_trace(wrong)
        assert caught.value.value == str(wrong)
    with pytest.raises(SpecError, match="is no name that a file can have"):
        read_trace("a\0b")


# ---- many files


def rank_file(rank: int, *, size: int = 64) -> bytes:
    """Return a rank's file: all do the same with others."""
    group = attribute("pg_name", "string", str(rank * 999))
    peer = attribute("comm_src", "int32", rank) + attribute("comm_dst", "int64", rank + 1)
    nodes = [node(place, attribute("num_ops", "int64", 3**place), name=f"mul{place}") for place in range(MANY // 2)]
    nodes += [node(place, group, attribute("comm_size", "int64", size), kind=COLLECTIVE) for place in (50, 51)]
    return file(*nodes, node(60, peer, attribute("comm_tag", "int32", 3), kind=SEND))


def test_ranks_that_do_the_same_share_a_template(tmp_path: Path) -> None:
    traces = read_traces(job(tmp_path, *map(rank_file, range(1, 6)), rank_file(6, size=65)))
    assert [trace.template is traces.ranks[0].template for trace in traces.ranks] == [True] * 5 + [False]
    assert [trace.groups for trace in traces.ranks] == [(str(rank * 999),) for rank in range(1, 7)]
    assert [(trace.own_rank, trace.peers) for trace in traces.ranks] == [(rank, (rank + 1,)) for rank in range(1, 7)]
    assert (traces.nodes, len(traces.templates()), traces.where) == (6 * 23, 2, str(tmp_path / "job"))


@pytest.mark.parametrize(
    "other",
    [
        node(1, name="y"),
        node(1, kind=7, name="x"),
        node(2, name="x"),
        node(1, ids("data_deps", 1), name="x"),
        node(1, ids("ctrl_deps", 1), name="x"),
        node(1, number("duration_micros", 1), name="x"),
        node(1, attribute("comm_tag", "int32", 1), name="x"),
        node(1, attribute("pg_name", "string", "1"), name="x"),
        node(1, field(8, field(1, b"[]")), kind=1, name="x"),
    ],
)
def test_ranks_that_do_something_else_do_not(tmp_path: Path, other: bytes) -> None:
    assert len(read_traces(job(tmp_path, file(node(1, name="x")), file(other))).templates()) == 2


def test_the_order_in_which_groups_appear_is_part_of_the_template(tmp_path: Path) -> None:
    def uses(*names: str) -> bytes:
        nodes = (node(at, attribute("pg_name", "string", name), kind=7) for at, name in enumerate(names))
        return file(*nodes)

    traces = read_traces(
        job(tmp_path, uses("1", "2", "1"), uses("3", "4", "3"), uses("5", "5", "6"), uses("7", "0", "7"))
    )
    assert [trace.template.group.tolist() for trace in traces.ranks] == [[0, 1, 0], [0, 1, 0], [0, 0, 1], [0, -1, 0]]
    assert len(traces.templates()) == 3


def test_files_are_read_alike_alone_and_together(tmp_path: Path) -> None:
    prefix = job(tmp_path, *map(rank_file, range(1, 5)))
    for rank, trace in enumerate(read_traces(prefix).ranks):
        assert said(read_trace(tmp_path / f"job.{rank}.et")) == said(trace)


def test_an_error_names_the_file_it_is_in(tmp_path: Path) -> None:
    wrong = file(node(0, name="mul0"), node(9, attribute("comm_size", "int64", -1)))
    prefix = job(tmp_path, rank_file(1), rank_file(2), wrong, rank_file(3))
    with pytest.raises(SpecError, match=r"^job\.2\.et: node 9: comm_size = -1: must not be negative$"):
        read_traces(prefix)
    (tmp_path / "job.2.et").write_bytes(file(node(0), node(0)))
    with pytest.raises(SpecError, match=r"^job\.2\.et: node = 0: two nodes have this id$"):
        read_traces(prefix)


def test_a_rank_that_is_missing_is_named(tmp_path: Path) -> None:
    prefix = job(tmp_path, *map(rank_file, range(1, 5)))
    (tmp_path / "job.10.et").write_bytes(rank_file(11))
    (tmp_path / "job.01.et").write_bytes(b"")
    (tmp_path / "job.json").write_bytes(b"")
    assert len(read_traces(prefix, 3).ranks) == 3
    with pytest.raises(SpecError, match=r"job\.4\.et': the trace of this rank is missing"):
        read_traces(str(prefix))
    with pytest.raises(SpecError, match=r"other\.0\.et': the trace of this rank is missing"):
        read_traces(tmp_path / "other")
    with pytest.raises(SpecError, match="ranks = 0: must be at least 1"):
        read_traces(prefix, 0)
    with pytest.raises(SpecError, match="cannot be read"):
        read_traces(tmp_path / "nowhere" / "job")


# ---- traces that others wrote


@needs_reference
@pytest.mark.parametrize(
    "prefix",
    [
        "astra_sim/custom_ring_allreduce_8npus_1MB/custom_allreduce",
        "chakra_tests/chakra",
        "generated/dp",
        "generated/ALL_REDUCE",
        "generated/one_metadata_node_all_types",
    ],
)
def test_real_traces_say_the_same_node_by_node(prefix: str) -> None:
    together = read_traces(REFERENCE / "chakra" / prefix)
    with one_by_one():
        alone = read_traces(REFERENCE / "chakra" / prefix)
    assert list(map(said, together.ranks)) == list(map(said, alone.ranks))


@needs_reference
def test_a_real_trace_with_dangling_dependencies_is_read_as_it_is() -> None:
    template = read_traces(REFERENCE / "chakra" / "chakra_tests" / "chakra").ranks[0].template
    assert (template.nodes, len(template.data_id)) == (3664, 181_878)
    owner = np.repeat(template.id, np.diff(template.ctrl_start))
    assert np.count_nonzero(owner == template.ctrl_id) == 383
    assert np.count_nonzero(~np.isin(template.ctrl_id, template.id)) == 1277
    with pytest.raises(SpecError, match="no node has this id"):
        checked_dependencies(template)


@needs_reference
def test_a_real_job_has_a_template_for_each_stage_of_its_pipeline(tmp_path: Path) -> None:
    archives = sorted((REFERENCE / "astra_sim" / "workloads").glob("*.tar.xz"), key=lambda path: path.stat().st_size)
    if not archives:
        pytest.skip("the collection has no jobs")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(tmp_path, filter="data")
    (prefix,) = {path.with_name(path.name.split(".")[0]) for path in tmp_path.rglob("*.et")}
    traces = read_traces(prefix)
    with one_by_one():
        for rank in (0, len(traces.ranks) - 1):
            assert said(read_trace(f"{prefix}.{rank}.et")) == said(traces.ranks[rank])
    assert len(traces.templates()) <= 4
    collectives = traces.ranks[0].template
    kinds = collectives.comm_type[collectives.type == NodeType.COMM_COLL]
    assert set(kinds.tolist()) <= set(map(int, CollectiveType))
