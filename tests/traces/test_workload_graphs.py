"""Chakra's JSON traces are read as the same nodes; whatever is not understood is said."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.traces.chakra.trace_reader import read_trace
from cosmic.traces.chakra.workload_files import FIELDS, read_workload_graph, workload_graph_of
from cosmic.traces.trace import ABSENT, NodeType, RankTrace

SAMPLES = Path(__file__).parents[3] / "shared" / "reference" / "chakra" / "chakra_tests"
needs_reference = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the collection of traces is not there")


def read(*nodes: Any, **others: Any) -> tuple[RankTrace, tuple[str, ...]]:
    """Return what a file with these nodes says."""
    return workload_graph_of(json.dumps({"workload_graph": list(nodes), **others}).encode(), "rank.json")


def test_every_key_becomes_its_column() -> None:
    compute = {"Id": 7, "Name": "gemm", "NodeType": 4, "runtime": 318, "is_cpu_op": True, "num_ops": 9}
    stated = {"comm_type": 2, "comm_size": 64, "comm_priority": 3, "pg_name": "5", "involved_dim": [True, False, True]}
    reduce = {"Id": 4, "NodeType": 7, "data_deps": [7], "ctrl_deps": [7, 3], "tensor_size": 8, **stated}
    trace, notes = read(compute, reduce)
    template = trace.template
    assert notes == ()
    assert (template.id.tolist(), template.type.tolist(), list(template.names)) == ([4, 7], [7, 4], ["", "gemm"])
    assert (template.data_id.tolist(), template.ctrl_id.tolist()) == ([7], [7, 3])
    assert (template.duration_us.tolist(), template.on_cpu.tolist()) == ([0, 318], [0, 1])
    assert (template.num_ops.tolist(), template.tensor_size.tolist()) == ([ABSENT, 9], [8, ABSENT])
    assert (template.comm_type.tolist(), template.comm_size.tolist()) == ([2, ABSENT], [64, ABSENT])
    assert (template.comm_priority.tolist(), template.involved_dims.tolist()) == ([3, 0], [5, ABSENT])
    assert (template.group.tolist(), trace.groups) == ([0, ABSENT], ("5",))


def test_sends_and_receives_have_an_own_rank_and_peers() -> None:
    send = {"Id": 1, "NodeType": 5, "comm_src": 2, "comm_dst": 3, "comm_tag": 0, "comm_size": 8}
    receive = {"Id": 2, "NodeType": 6, "comm_src": 1, "comm_dst": 2, "comm_tag": 0, "comm_size": 8}
    trace, notes = read(send, receive)
    assert (trace.own_rank, trace.peers, trace.template.peer.tolist(), notes) == (2, (3, 1), [0, 1], ())


@pytest.mark.parametrize("key", ["ctrlDeps", "ctrl_deps", "CTRL_DEPS", "CtrlDeps"])
def test_case_and_underscores_of_keys_do_not_count(key: str) -> None:
    trace, notes = read({"id": 1, "node_type": "COMP_NODE", key: [5]})
    assert (trace.template.ctrl_id.tolist(), trace.template.type.tolist(), notes) == ([5], [NodeType.COMP], ())


def test_keys_that_are_not_understood_are_named_once_with_their_number() -> None:
    nodes = [{"Id": 1, "NodeType": 4, "colour": 1}, {"Id": 2, "NodeType": 4, "colour": 2, "comm_dst": 1}]
    assert read(*nodes, ngpus=8)[1] == (
        "rank.json: key = 'ngpus': is not read",
        "rank.json: node key = 'colour': is not understood, and left out of 2 nodes, first of node 1",
        "rank.json: node key = 'comm_dst': means nothing but to sends and receives, and left out of 1 node, first of"
        " node 2",
    )
    many = read({"Id": 1, "NodeType": 4, **{f"key{place}": 0 for place in range(100)}})[1]
    assert (len(many), many[-1]) == (21, "and 80 more keys that are not read")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "file = 'rank.json': is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("[" * 100_000, "file = 'rank.json': is nested too deeply"),
        ('{"workload_graph": [NaN]}', "file = 'rank.json': is not JSON: NaN is no number"),
        ('{"a": 1, "a": 2}', "file = 'rank.json': is not JSON: an object has the key 'a' twice"),
        ("[]", 'rank.json = []: must be an object with the key "workload_graph"'),
        ("{}", "rank.json: workload_graph = None: the file has no such key: it is no trace in JSON"),
        ('{"workload_graph": {}}', "rank.json: workload_graph = {}: must be a list of nodes"),
        ('{"workload_graph": [4]}', "rank.json: workload_graph.0 = 4: must be an object: a node"),
    ],
)
def test_what_is_no_trace_is_refused_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(SpecError) as caught:
        workload_graph_of(text.encode(), "rank.json")
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"Id": None}, "Id = None: must be a whole number from 0 to 2^63 - 1"),
        ({"Id": -1}, "Id = -1: must be a whole number from 0 to 2^63 - 1"),
        ({"Id": 2**63}, "Id = 9223372036854775808: must be a whole number from 0 to 2^63 - 1"),
        ({"Id": True}, "Id = True: must be a whole number from 0 to 2^63 - 1"),
        ({"Id": 9}, "Id = 9: two nodes have this id"),
        ({"NodeType": 8}, "NodeType = 8: must be a whole number from 0 to 7"),
        ({"NodeType": "GEMM"}, "NodeType = 'GEMM': must be a whole number from 0 to 7"),
        ({"Name": 3}, "Name = 3: must be text"),
        ({"runtime": 1.5}, "runtime = 1.5: must be a whole number from 0 to 2^63 - 1"),
        ({"is_cpu_op": "yes"}, "is_cpu_op = 'yes': must be true or false"),
        ({"data_deps": 3}, "data_deps = 3: must be a list of ids"),
        ({"data_deps": [3, "4"]}, "data_deps.1 = '4': must be a whole number from 0 to 2^63 - 1"),
        ({"comm_type": 10}, "comm_type = 10: must be a whole number from 0 to 9"),
        ({"comm_tag": 2**31}, "comm_tag = 2147483648: must be a whole number from 0 to 2,147,483,647"),
        ({"pg_name": [1]}, "pg_name = [1]: must be the name of a group"),
        ({"involved_dim": True}, "involved_dim = True: must be a list of at most 62 times true or false"),
        ({"comm_src": 5, "NodeType": 5}, "comm_src = 5: nodes before it belong to rank 0"),
        ({"ctrlDeps": [], "ctrl_deps": []}, "ctrl_deps = []: the node states this twice, in two spellings"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(changes: dict[str, Any], sentence: str) -> None:
    first = {"Id": 9, "NodeType": 5, "comm_src": 0}
    with pytest.raises(SpecError) as caught:
        read(first, {"Id": 1, "NodeType": 4} | changes)
    assert str(caught.value) == f"rank.json: workload_graph.1.{sentence}"


@pytest.mark.parametrize(("key", "lacking"), [("Id", "NodeType"), ("NodeType", "Id")])
def test_a_node_needs_an_id_and_a_type(key: str, lacking: str) -> None:
    with pytest.raises(SpecError, match=rf"workload_graph.0.{lacking} = None: every node needs it"):
        read({key: 4})


def test_whole_numbers_may_be_written_as_floats() -> None:
    assert read({"Id": 1, "NodeType": 4, "runtime": 318.0})[0].template.duration_us.tolist() == [318]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.integers(0, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
KEYS = st.sampled_from([*FIELDS, "Id", "NodeType", "ctrlDeps", "is_cpu_op", "other"])


@settings(max_examples=30)
@given(VALUES | st.lists(st.dictionaries(KEYS, VALUES, max_size=6), max_size=3), st.booleans())
def test_any_json_is_a_trace_or_one_sentence(value: Any, inside: bool) -> None:
    text = json.dumps({"workload_graph": value} if inside else value)
    try:
        trace, notes = workload_graph_of(text.encode(), "rank.json")
    except SpecError as error:
        assert str(error).isprintable()
    else:
        assert trace.template.nodes == len(value if inside else [])
        assert all("\n" not in note for note in notes)


@settings(max_examples=30)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_trace_or_one_sentence(data: bytes) -> None:
    with pytest.raises(SpecError):
        workload_graph_of(data, "rank.json")


def test_files_may_be_compressed(tmp_path: Path) -> None:
    text = b'\xef\xbb\xbf\n {"ngpus": 8, "workload_graph" : [{"Id": 1, "NodeType": 4}]}'
    (tmp_path / "rank.json.gz").write_bytes(gzip.compress(text))
    trace, notes = read_workload_graph(tmp_path / "rank.json.gz")
    assert (trace.template.id.tolist(), notes) == ([1], ("rank.json.gz: key = 'ngpus': is not read",))


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nothing\.json"):
        read_workload_graph(tmp_path / "nothing.json")
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(b"{}")[:12])
    with pytest.raises(SpecError, match="is not a valid gzip file"):
        read_workload_graph(tmp_path / "cut.json.gz")


@needs_reference
def test_the_samples_of_chakra_are_read() -> None:
    trace, notes = read_workload_graph(SAMPLES / "small_chakra.0.json")
    assert (trace.template.nodes, len(trace.template.data_id), len(trace.template.ctrl_id)) == (7, 6, 7)
    assert [note.partition(" = ")[2] for note in notes] == [
        f"'{key}': is not read" for key in ("workload_name", "ngpus", "soc")
    ]
    large, notes = read_workload_graph(SAMPLES / "chakra.0.json.gz")
    same = read_trace(SAMPLES / "chakra.0.et.gz").template
    assert notes == ()
    for column in ("id", "type", "duration_us", "on_cpu", "data_start", "data_id"):
        assert getattr(large.template, column).tolist() == getattr(same, column).tolist()
