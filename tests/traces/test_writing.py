"""Traces that are written are read back as they were, and have the types that every feeder accepts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.traces.chakra.trace_reader import read_trace, read_traces
from cosmic.traces.chakra.trace_writer import write_traces
from cosmic.traces.chakra.wire_format import LEN, NODE_FIELDS, VALUE_FIELDS, read_fields, read_varint
from cosmic.traces.trace import ABSENT, NodeType, RankTrace, TraceSet, template_of
from tests.traces.encoding import encoded, said

SIZE = st.integers(0, 300) | st.integers(0, 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
RANK = st.integers(0, 2**31 - 1)
SAID = {
    "duration_us": SIZE,
    "on_cpu": st.integers(0, 1),
    "num_ops": SIZE,
    "tensor_size": SIZE,
    "comm_type": st.integers(0, 9),
    "comm_size": SIZE,
    "comm_priority": INT32,
    "comm_tag": INT32,
    "involved_dims": st.integers(0, 2**62 - 1),
    "name": TEXT,
    "data": st.lists(SIZE, max_size=4),
    "ctrl": st.lists(SIZE, max_size=4),
}


@st.composite
def rank_traces(draw: st.DrawFn) -> RankTrace:
    """Draw nodes that say anything at all."""
    ids = draw(st.lists(SIZE, max_size=30, unique=True))
    names = draw(st.lists(TEXT.filter(lambda name: name not in ("", "0")), min_size=1, max_size=4, unique=True))
    ranks = draw(st.lists(RANK, min_size=1, max_size=4, unique=True))
    rows, groups, peers = [], dict[str, int](), dict[int, int]()
    for node_id in sorted(ids):
        row: dict[str, Any] = {"id": node_id, "type": draw(st.sampled_from(NodeType))}
        row |= draw(st.fixed_dictionaries({}, optional=SAID))
        if draw(st.booleans()):
            row["group"] = groups.setdefault(draw(st.sampled_from(names)), len(groups))
        if row["type"] in (NodeType.COMM_SEND, NodeType.COMM_RECV) and draw(st.booleans()):
            row["peer"] = peers.setdefault(draw(st.sampled_from(ranks)), len(peers))
        if row["type"] == NodeType.METADATA and draw(st.booleans()):
            row["process_groups"] = draw(TEXT)
        rows.append(row)
    return RankTrace(template_of(rows), tuple(groups), tuple(peers))


def small_trace() -> RankTrace:
    """Return a trace with a node of each kind that moves data."""
    collective = {"type": NodeType.COMM_COLL, "comm_size": 64}
    rows: list[dict[str, Any]] = [
        {"id": 2, "type": NodeType.COMP, "name": "mul", "num_ops": 10, "tensor_size": 20},
        {"id": 3, "data": [2], "comm_type": 0, "comm_priority": 1, "group": 0} | collective,
        {"id": 4, "comm_type": 2, "involved_dims": 2} | collective,
        {"id": 5, "type": NodeType.COMM_SEND, "ctrl": [3], "comm_size": 8, "comm_tag": 7, "peer": 0},
        {"id": 6, "type": NodeType.COMM_RECV, "comm_size": 8, "comm_tag": 7, "peer": 1},
    ]
    return RankTrace(template_of(rows), ("12",), (1, 3))


@given(rank_traces(), RANK)
@settings(max_examples=40)
def test_whatever_is_written_is_read_back(trace: RankTrace, rank: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "job.0.et"
        path.write_bytes(encoded(trace, rank))
        back = read_trace(path)
    exchanges = {NodeType.COMM_SEND, NodeType.COMM_RECV} & set(trace.template.type.tolist())
    assert said(back) == said(replace(trace, own_rank=rank if exchanges else None))


@given(rank_traces(), st.integers(1, 5))
@settings(max_examples=30)
def test_ranks_of_one_template_share_one_when_they_are_read_back(trace: RankTrace, count: int) -> None:
    ranks = tuple(
        RankTrace(
            trace.template,
            tuple(f"{name}/{rank}" for name in trace.groups),
            tuple((peer + rank) % 2**31 for peer in trace.peers),
        )
        for rank in range(count)
    )
    with TemporaryDirectory() as folder:
        write_traces(TraceSet(ranks), Path(folder) / "job")
        back = read_traces(Path(folder) / "job")
    assert len(back.templates()) == 1
    assert [said(replace(one, own_rank=None)) for one in back.ranks] == list(map(said, ranks))


def test_a_file_is_written_for_each_rank(tmp_path: Path) -> None:
    first, second = small_trace(), RankTrace(small_trace().template, ("13",), (2, 4))
    write_traces(TraceSet((first, second)), tmp_path / "job")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.0.et", "job.1.et"]
    assert (tmp_path / "job.0.et").read_bytes() == encoded(first, 0)
    assert (tmp_path / "job.1.et").read_bytes() == encoded(second, 1)


def messages(data: bytes) -> list[tuple[int, int]]:
    """Return from where to where the messages of a file go."""
    spans, at = [], 0
    while at < len(data):
        length, at = read_varint(data, at, len(data), "file")
        spans.append((at, at + length))
        at += length
    return spans


def test_metadata_is_never_empty() -> None:
    data = encoded(RankTrace(template_of([])), 0)
    (span,) = messages(data)
    version, attribute = read_fields(data, *span, "file")
    assert (version.number, data[version.start : version.stop]) == (1, b"1.0.0")
    assert (attribute.number, attribute.wire_type) == (2, LEN)


def test_a_node_that_says_nothing_is_not_empty() -> None:
    data = encoded(RankTrace(template_of([{"id": 0, "type": NodeType.INVALID}])), 0)
    assert all(stop > start for start, stop in messages(data))


def test_attributes_have_the_types_that_every_feeder_accepts() -> None:
    data = encoded(small_trace(), 5)
    found = {}
    for span in messages(data)[1:]:
        for each in read_fields(data, *span, "node"):
            if each.number == NODE_FIELDS["attr"]:
                name, value = read_fields(data, each.start, each.stop, "attribute")
                found[data[name.start : name.stop].decode()] = value.number
    assert found == {
        "is_cpu_op": VALUE_FIELDS["bool"],
        "num_ops": VALUE_FIELDS["int64"],
        "tensor_size": VALUE_FIELDS["uint64"],
        "comm_type": VALUE_FIELDS["int64"],
        "comm_size": VALUE_FIELDS["int64"],
        "comm_priority": VALUE_FIELDS["int32"],
        "comm_src": VALUE_FIELDS["int32"],
        "comm_dst": VALUE_FIELDS["int32"],
        "comm_tag": VALUE_FIELDS["int32"],
        "pg_name": VALUE_FIELDS["string"],
        "involved_dim": VALUE_FIELDS["bool"] + 1,
    }


def test_both_sides_of_a_message_are_written(tmp_path: Path) -> None:
    (tmp_path / "job.0.et").write_bytes(encoded(small_trace(), 5))
    back = read_trace(tmp_path / "job.0.et")
    assert (back.own_rank, back.peers, back.template.peer[-2:].tolist()) == (5, (1, 3), [0, 1])


def test_dimensions_are_listed_as_far_as_others_do() -> None:
    data = encoded(small_trace(), 0)
    assert b"involved_dim\xe2\x01\x06\x0a\x04\x00\x01\x00\x00" in data


def test_a_number_that_its_type_cannot_hold_is_refused() -> None:
    template = template_of([{"id": 7, "type": NodeType.COMP, "comm_tag": 2**31}])
    with pytest.raises(SpecError, match=r"^node 7: comm_tag = 2147483648: must fit into 32 bits$"):
        encoded(RankTrace(template), 0)


def test_a_name_that_is_no_text_is_written_all_the_same(tmp_path: Path) -> None:
    template = template_of([{"id": 7, "type": NodeType.COMP, "name": "half \ud800"}])
    (tmp_path / "job.0.et").write_bytes(encoded(RankTrace(template), 0))
    assert read_trace(tmp_path / "job.0.et").template.names[0] == "half \\ud800"


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    traces = TraceSet((small_trace(),))
    for prefix in (tmp_path / "nowhere" / "job", "a\0b"):
        with pytest.raises(SpecError, match=r"cannot be written|is no name that a file can have"):
            write_traces(traces, prefix)


def test_what_is_absent_is_not_written() -> None:
    data = encoded(RankTrace(template_of([{"id": 1, "type": NodeType.COMM_SEND, "group": ABSENT}])), 3)
    assert b"comm_src" in data
    for name in (b"comm_dst", b"comm_size", b"comm_tag", b"pg_name", b"num_ops", b"comm_priority", b"involved_dim"):
        assert name not in data
