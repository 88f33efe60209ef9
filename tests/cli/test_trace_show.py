"""`cosmic trace show`: the files that it writes, and how each mistake ends."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cosmic.traces.chakra.trace_writer import write_traces
from cosmic.traces.trace import NodeType, RankTrace, TraceSet, template_of
from tests.commands import output, run
from tests.report.publishing.pages import held_by

NODES = [
    {"id": 3, "type": NodeType.COMP, "name": "a<b> & \x01", "num_ops": 2**40, "duration_us": 5},
    {
        "id": 4,
        "type": NodeType.COMM_COLL,
        "name": "sum",
        "data": [3, 77],
        "comm_type": 0,
        "comm_size": 1024,
        "group": 0,
    },
    {
        "id": 9,
        "type": NodeType.COMM_SEND,
        "data": [4],
        "ctrl": [3],
        "comm_size": 8,
        "comm_tag": 2,
        "peer": 0,
        "on_cpu": 1,
    },
]
SPACE = "{http://graphml.graphdrawing.org/xmlns}"


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """Return the prefix of the traces of two ranks."""
    template = template_of(NODES)
    write_traces(TraceSet(tuple(RankTrace(template, ("1",), (1 - rank,), rank) for rank in range(2))), tmp_path / "job")
    return str(tmp_path / "job")


def test_a_page_is_written_of_one_rank_and_of_all(
    capsys: pytest.CaptureFixture[str], prefix: str, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert output(capsys, "trace", "show", f"{prefix}.1.et", "--html", str(page)).startswith(
        f"{page}: 1 rank, 3 nodes, "
    )
    document, _ = held_by(page.read_text())
    assert (document["title"], len(document["ranks"])) == ("job.1.et", 1)
    assert output(capsys, "trace", "show", prefix, "--html", str(page)).startswith(f"{page}: 2 ranks, 6 nodes, ")
    document, _ = held_by(page.read_text())
    assert [each["peers"] for each in document["ranks"]] == [[1], [0]]
    assert len(document["views"]) == 1


def test_graphml_holds_every_node_attribute_and_dependency(
    capsys: pytest.CaptureFixture[str], prefix: str, tmp_path: Path
) -> None:
    file = tmp_path / "graph.graphml"
    assert output(capsys, "trace", "show", f"{prefix}.0.et", "--graphml", str(file)) == f"{file}: 3 nodes\n"
    root = ElementTree.fromstring(file.read_text(encoding="utf-8"))
    assert root.tag == f"{SPACE}graphml"
    types = {key.get("id"): key.get("attr.type") for key in root.iter(f"{SPACE}key")}
    nodes = {node.get("id"): {data.get("key"): data.text for data in node} for node in root.iter(f"{SPACE}node")}
    assert nodes == {
        "3": {"label": "a<b> & \ufffd", "type": "COMP", "duration_us": "5", "num_ops": str(2**40)},
        "4": {
            "label": "sum",
            "type": "COMM_COLL",
            "comm_type": "ALL_REDUCE",
            "comm_size": "1024",
            "group": "1",
            "absent": "77",
        },
        "9": {
            "label": None,
            "type": "COMM_SEND",
            "comm_size": "8",
            "comm_tag": "2",
            "peer": "1",
            "on_cpu": "true",
        },
    }
    assert all(key in types for stated in nodes.values() for key in stated)
    edges = [(edge.get("source"), edge.get("target"), edge[0].text) for edge in root.iter(f"{SPACE}edge")]
    assert edges == [("3", "4", "data"), ("4", "9", "data"), ("3", "9", "ctrl")]


def test_recorded_times_are_in_graphml(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [{"id": 1, "type": NodeType.COMP, "start_ns": 0, "duration_ns": 7, "stream": 3, "work": "gemm"}]
    write_traces(TraceSet((RankTrace(template_of(rows)),)), tmp_path / "job")
    output(capsys, "trace", "show", str(tmp_path / "job"), "--graphml", str(tmp_path / "graph.xml"))
    text = (tmp_path / "graph.xml").read_text()
    for name, value in {"start_ns": 0, "duration_ns": 7, "stream": 3, "kernel": "gemm"}.items():
        assert f'<data key="{name}">{value}</data>' in text


def test_the_graph_for_graphviz_is_printed_or_written(
    capsys: pytest.CaptureFixture[str], prefix: str, tmp_path: Path
) -> None:
    printed = output(capsys, "trace", "show", f"{prefix}.0.et", "--dot")
    file = tmp_path / "graph.dot"
    assert output(capsys, "trace", "show", f"{prefix}.0.et", "--dot", "--out", str(file)) == f"{file}: 3 nodes\n"
    assert file.read_text() == printed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{0}"], "is the prefix of 2 ranks, and one is shown at a time"),
        (["{0}", "--graphml", "{0}.xml"], "is the prefix of 2 ranks"),
        (["{0}.0.et", "--html", "{0}.0.et"], "is the trace itself"),
        (["{0}", "--html", "{0}.1.et"], "is the trace itself"),
        (["{0}.0.et", "--graphml", "{0}.0.et"], "is the trace itself"),
        (["{0}.0.et", "--html", "{0}.html", "--json"], "excludes --json: a trace is printed in one format"),
        (["{0}.0.et", "--html", "{0}.html", "--graphml", "{0}.xml"], "excludes --html"),
        (["{0}.0.et", "--out", "{0}.dot"], "is for --dot"),
        (["{0}.0.et", "--html", "{0}.none/page.html"], "cannot be written"),
        (["{0}.5.et", "--html", "{0}.html"], "cannot be read"),
        (["{0}.0.et", "--html", "-"], "is no file's name"),
    ],
)
def test_mistakes_end_in_a_sentence_and_leave_files_alone(
    capsys: pytest.CaptureFixture[str], prefix: str, tmp_path: Path, words: list[str], said: str
) -> None:
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    status, out, err = run(capsys, "trace", "show", *(word.format(prefix) for word in words))
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_failed_page_leaves_what_was_there(
    capsys: pytest.CaptureFixture[str], prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    page.write_text("before")
    monkeypatch.setattr(import_module("cosmic.report.trace_page"), "MOST_NODES", 1)
    assert run(capsys, "trace", "show", prefix, "--html", str(page))[0] == 2
    assert page.read_text() == "before"
