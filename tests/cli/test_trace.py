"""`cosmic trace`: what it prints of traces, and how each failure ends."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cosmic.cli.dispatch import COMMANDS
from cosmic.traces.chakra.trace_reader import read_traces
from cosmic.traces.chakra.trace_writer import write_traces
from cosmic.traces.trace import NodeType, RankTrace, TraceSet, read_groups, template_of
from tests.commands import output, run

NODES = [
    {"id": 3, "type": NodeType.COMP, "name": "matmul", "num_ops": 2_000_000, "tensor_size": 4096, "duration_us": 5},
    {
        "id": 4,
        "type": NodeType.COMM_COLL,
        "name": 'sum "of" \\ grad',
        "data": [3],
        "comm_type": 0,
        "comm_size": 1024,
        "group": 0,
    },
    {"id": 9, "type": NodeType.COMM_SEND, "data": [4], "ctrl": [3], "comm_size": 8, "comm_tag": 2, "peer": 0},
    {"id": 10, "type": NodeType.COMM_RECV, "data": [4], "comm_size": 8, "comm_tag": 2, "peer": 0},
]


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """Return the prefix of the traces of two ranks that exchange a message and add something up."""
    template = template_of(NODES)
    write_traces(TraceSet(tuple(RankTrace(template, ("1",), (1 - rank,), rank) for rank in range(2))), tmp_path / "job")
    (tmp_path / "job.json").write_text('{"1": [0, 1]}')
    return str(tmp_path / "job")


# ---- show


def test_show_prints_a_row_for_each_node(capsys: pytest.CaptureFixture[str], prefix: str) -> None:
    lines = [re.split(r"  +", line.rstrip()) for line in output(capsys, "trace", "show", f"{prefix}.0.et").splitlines()]
    assert lines == [
        ["id", "type", "name", "depends on", "what"],
        ["3", "COMP", "matmul", "2 MFLOP, 4 KiB, 5 us"],
        ["4", "COMM_COLL", 'sum "of" \\ grad', "3", "ALL_REDUCE, 1 KiB, group 1"],
        ["9", "COMM_SEND", "4, 3 (ctrl)", "8 B, to rank 1, tag 2"],
        ["10", "COMM_RECV", "4", "8 B, from rank 1, tag 2"],
    ]


def test_show_says_how_many_nodes_it_leaves_out(capsys: pytest.CaptureFixture[str], prefix: str) -> None:
    out = output(capsys, "trace", "show", f"{prefix}.0.et", "--limit", "1")
    assert out.splitlines()[-1] == "… and 3 more: --limit 4 shows them all"
    assert "COMM_COLL" not in out


def test_show_prints_every_node_as_json(capsys: pytest.CaptureFixture[str], prefix: str) -> None:
    nodes = json.loads(output(capsys, "trace", "show", f"{prefix}.1.et", "--json", "--limit", "1"))
    assert [node["id"] for node in nodes] == [3, 4, 9, 10]
    assert nodes[2] == {
        "id": 9,
        "type": "COMM_SEND",
        "name": "",
        "data": [4],
        "ctrl": [3],
        "comm_size": 8,
        "comm_tag": 2,
        "peer": 0,
    }


def test_show_prints_a_graph(capsys: pytest.CaptureFixture[str], prefix: str) -> None:
    out = output(capsys, "trace", "show", f"{prefix}.0.et", "--dot")
    assert out.startswith("digraph trace {\n")
    assert out.endswith("}\n")
    assert r'4 [label="4 sum \"of\" \\ grad\nALL_REDUCE, 1 KiB, group 1" fillcolor="#80b1d3"];' in out
    assert "  4 -> 9;\n  3 -> 9 [style=dashed];\n" in out


def test_long_names_and_lists_are_cut_in_the_table_only(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"id": each, "type": NodeType.COMP} for each in range(20)]
    rows.append({"id": 20, "type": NodeType.COMP, "name": "kernel" * 100, "data": list(range(20))})
    write_traces(TraceSet((RankTrace(template_of(rows)),)), tmp_path / "job")
    file = str(tmp_path / "job.0.et")
    line = output(capsys, "trace", "show", file).splitlines()[-1]
    assert f"{('kernel' * 10)[:59]}…  0, 1, 2, 3, 4, 5, … 14 more" in line
    assert json.loads(output(capsys, "trace", "show", file, "--json"))[-1]["name"] == "kernel" * 100


# ---- check


def test_check_is_content_with_traces_that_agree(capsys: pytest.CaptureFixture[str], prefix: str) -> None:
    out = output(capsys, "trace", "check", prefix, "--groups", f"{prefix}.json")
    assert out == "2 ranks, 8 nodes, 1 template: no problem found\n"
    data = json.loads(output(capsys, "trace", "check", prefix, "--groups", f"{prefix}.json", "--json"))
    assert data == {"ranks": 2, "nodes": 8, "templates": 1, "problems": []}


def test_check_exits_with_2_and_a_sentence_for_each_problem(capsys: pytest.CaptureFixture[str], prefix: str) -> None:
    sentence = f"{prefix}: rank 0: node 4 'sum \"of\" \\\\ grad': group = '1': no ranks are given for this group"
    assert run(capsys, "trace", "check", prefix) == (2, "", f"cosmic trace: {sentence}\n")
    status, out, err = run(capsys, "trace", "check", prefix, "--json")
    assert (status, json.loads(out)["problems"], err) == (2, [sentence], "")


# ---- stats


def test_stats_prints_what_the_traces_hold(capsys: pytest.CaptureFixture[str], prefix: str) -> None:
    out = output(capsys, "trace", "stats", prefix, "--groups", f"{prefix}.json")
    assert out.startswith("2 ranks, 8 nodes, 1 template\n")
    text = re.sub(r" +", " ", out)
    assert "\nALL_REDUCE 2 2 2,048\n" in text
    assert "\ncompute 4 MFLOP 2 MFLOP 2 MFLOP" in text
    assert "\nlongest chain: 3 nodes (1 COMP, 1 COMM_SEND, 1 COMM_COLL) of rank 0, 5 us\n" in text.replace(
        "RECV", "SEND"
    )


def test_stats_are_json_too(capsys: pytest.CaptureFixture[str], prefix: str) -> None:
    data = json.loads(output(capsys, "trace", "stats", prefix, "--groups", f"{prefix}.json", "--json"))
    assert (data["ranks"], data["compute_flop"], data["critical_path"]["seconds"]) == (2, 4_000_000, 5e-6)
    words = ("stats", prefix, "--groups", f"{prefix}.json", "--json", "--peak", "1 MFLOP/s", "--bandwidth", "1 GB/s")
    assert json.loads(output(capsys, "trace", *words))["critical_path"]["seconds"] == 2


def test_stats_warns_of_problems(capsys: pytest.CaptureFixture[str], prefix: str) -> None:
    status, out, err = run(capsys, "trace", "stats", prefix, "--json")
    assert (status, json.loads(out)["collectives"][0]["group_size"]) == (0, None)
    assert err.startswith(f"cosmic trace: warning: {prefix}: rank 0: node 4 ")
    assert err.count("\n") == 1


def test_stats_of_traces_without_durations_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_traces(TraceSet((RankTrace(template_of([{"id": 1, "type": NodeType.COMP}])),)), tmp_path / "job")
    assert "critical path: no node states a duration" in output(capsys, "trace", "stats", str(tmp_path / "job"))


# ---- generate


SETTINGS = ("tp=8", "pp=2", "dp=1", "global_batch=4")
DESIGN = ("gpt3-13b@dgx-h100:16", *(word for each in SETTINGS for word in ("--set", f"workload.{each}")))


def test_generate_writes_traces_that_can_be_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    prefix = str(tmp_path / "new" / "gpt")
    out = output(capsys, "trace", "generate", *DESIGN, "--out", prefix)
    assert re.match(r"16 ranks, [\d,]+ nodes, 2 templates, \d+ groups: 17 files, [\d,]+ bytes, [\d.]+ s\n", out)
    assert ("cosmic simulate" in out) == ("simulate" in COMMANDS)
    assert len(read_traces(prefix).ranks) == 16
    assert set(read_groups(f"{prefix}.json"))
    assert output(capsys, "trace", "check", prefix, "--groups", f"{prefix}.json").endswith("no problem found\n")
    data = json.loads(output(capsys, "trace", "generate", *DESIGN, "--out", prefix, "--json"))
    assert (data["ranks"], data["templates"], data["files"], data["prefix"]) == (16, 2, 17, prefix)
    assert data["bytes"] == sum(file.stat().st_size for file in (tmp_path / "new").iterdir())


def test_generate_refuses_names_that_would_mix_jobs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "gpt.16.et").write_bytes(b"x")
    (tmp_path / "file").write_bytes(b"x")
    for out, rule in {
        tmp_path / "gpt": "gpt.16.et is of a job with more ranks: remove it first",
        tmp_path: "is a folder; give a prefix of files, such as runs/gpt",
        f"{tmp_path}/": "is a folder; give a prefix of files, such as runs/gpt",
        f"{tmp_path}/file/gpt": "cannot be written: Not a directory",
        "a\0b": "is no name that a file can have",
    }.items():
        status, printed, err = run(capsys, "trace", "generate", *DESIGN, "--out", str(out))
        assert (status, printed) == (2, "")
        assert err.endswith(f": {rule}\n")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "gpt.16.et"]


# ---- mistakes


@pytest.mark.parametrize(
    ("words", "end"),
    [
        (("show", "{0}/no.0.et"), "cannot be read: No such file or directory"),
        (("show", "{0}"), "is a directory, not a file"),
        (("show", "{0}/job.json"), None),
        (("show", "{0}/job.0.et", "--dot", "--json"), "a trace is printed in one format"),
        (("check", "{0}/no"), "the trace of this rank is missing"),
        (("check", "{0}"), "the trace of this rank is missing"),
        (("check", "{0}/no/job"), "cannot be read: No such file or directory"),
        (("stats", "{0}/job", "--groups", "{0}"), "is a directory, not a file"),
        (("stats", "{0}/job", "--groups", "{0}/job.0.et"), None),
        (("stats", "{0}/job", "--peak", "9"), "write a number and its unit, such as '400 Gbps' or '80 GiB'"),
        (("stats", "{0}/job", "--bandwidth", "0 GB/s"), "must be positive"),
        (("generate", "nope", "--out", "{0}/x"), "is neither MODEL@SYSTEM nor the path of a YAML file"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else None,
)
def test_a_mistake_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, prefix: str, words: tuple[str, ...], end: str | None
) -> None:
    assert prefix
    status, out, err = run(capsys, "trace", *(word.format(tmp_path) for word in words))
    assert (status, out) == (2, "")
    assert err.startswith(f"cosmic trace {words[0]}: ")
    assert err.count("\n") == 1
    assert end is None or err.endswith(f": {end}\n")


def test_a_reader_that_goes_away_ends_the_command(prefix: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "cosmic", "trace", "show", f"{prefix}.0.et", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 141
