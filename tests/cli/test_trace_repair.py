"""`cosmic trace repair`: what it writes and says, and how each failure ends."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from cosmic.traces.chakra.trace_reader import read_traces
from cosmic.traces.chakra.trace_writer import write_traces
from cosmic.traces.trace import NodeType, RankTrace, TraceSet, read_groups, template_of
from tests.commands import output, run

NODES: list[dict[str, Any]] = [
    {"id": 3, "type": NodeType.COMP, "name": "matmul", "ctrl": [1], "duration_us": 5},
    {"id": 4, "type": NodeType.COMM_COLL, "data": [3], "ctrl": [4], "comm_type": 0, "comm_size": 1024},
]
SYSTEM = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 1,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["direct"],
    "collective-optimization": "localBWAware",
    "local-mem-bw": 3350,
    "peak-perf": 989,
    "roofline-enabled": 0,
}


def written(folder: Path, *ranks: list[dict[str, Any]], name: str = "job") -> str:
    """Write the traces of a job, and return their prefix."""
    write_traces(TraceSet(tuple(RankTrace(template_of(rows), ("1",), (1,)) for rows in ranks)), folder / name)
    return str(folder / name)


def test_repair_says_what_it_did_and_writes_what_can_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    prefix, out = written(tmp_path, NODES, NODES), str(tmp_path / "new" / "mended")
    lines = output(capsys, "trace", "repair", prefix, "--out", out).splitlines()
    assert lines[:4] == [
        "2 control dependencies on absent nodes dropped",
        f"  {prefix}: rank 0 and 1 more: node 3 'matmul' waited for node 1",
        "2 control self dependencies dropped",
        f"  {prefix}: rank 0 and 1 more: node 4 waited for node 4",
    ]
    assert lines[4].startswith("2 ranks, 4 nodes, 1 template, 0 groups: 3 files, ")
    assert output(capsys, "trace", "check", out) == "2 ranks, 4 nodes, 1 template: no problem found\n"
    again = output(capsys, "trace", "repair", out, "--out", str(tmp_path / "again"))
    assert again.startswith("nothing to repair\n")
    for rank in range(2):
        assert (tmp_path / f"again.{rank}.et").read_bytes() == Path(f"{out}.{rank}.et").read_bytes()


def test_one_compressed_file_is_copied_to_ranks_and_simulated(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    prefix, out = written(tmp_path, NODES), str(tmp_path / "mended")
    packed = tmp_path / "other.0.et.gz"
    packed.write_bytes(gzip.compress(Path(f"{prefix}.0.et").read_bytes()))
    text = output(capsys, "trace", "repair", str(packed), "--out", str(tmp_path / "one"))
    assert "a simulation needs at least two ranks: --ranks 2 lets two run these nodes" in text
    text = output(capsys, "trace", "repair", str(packed), "--ranks", "2", "--out", out)
    assert text.startswith("all 2 ranks run the nodes of the one that was read\n")
    (tmp_path / "system.json").write_text(json.dumps(SYSTEM))
    (tmp_path / "network.yml").write_text("topology: [Ring]\nnpus_count: [2]\nbandwidth: [50.0]\nlatency: [500.0]\n")
    files = ["--system", str(tmp_path / "system.json"), "--network", str(tmp_path / "network.yml")]
    told = output(capsys, "simulate", "--workload", out, "--comm-groups", f"{out}.json", *files, "--json")
    assert json.loads(told)["cycles"] > 5_000


def test_what_is_left_is_said_and_ends_with_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    send = {"id": 9, "type": NodeType.COMM_SEND, "comm_size": 8, "comm_tag": 2, "peer": 0}
    prefix, out = written(tmp_path, [*NODES, send], NODES), str(tmp_path / "mended")
    status, text, errors = run(capsys, "trace", "repair", prefix, "--out", out)
    assert status == 2
    assert "cosmic simulate" not in text
    assert errors == (
        f"cosmic trace repair: {prefix}: rank 0: node 9 sends to rank = 1: has no receive of 8 bytes with tag 2\n"
    )
    assert read_traces(out).nodes == 5
    text = output(capsys, "trace", "repair", prefix, "--out", out, "--drop-unmatched", "--json")
    found = json.loads(text)
    assert (found["problems"], found["nodes"]) == ([], 4)
    assert found["repairs"][-1] == {
        "what": "unmatched sends and receives dropped",
        "count": 1,
        "example": f"{prefix}: rank 0: node 9 matches nothing",
    }


def test_groups_that_are_given_and_missing_ones_are_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [NODES[0], NODES[1] | {"group": 0}]
    prefix, out = written(tmp_path, rows, rows), str(tmp_path / "mended")
    (tmp_path / "groups.json").write_text('{"7": [1]}')
    words = ("trace", "repair", prefix, "--out", out, "--groups", str(tmp_path / "groups.json"), "--json")
    found = json.loads(output(capsys, *words))
    assert (found["groups"], found["groups_file"], found["copied_ranks"]) == (2, f"{out}.json", 0)
    assert read_groups(f"{out}.json") == {"7": (1,), "1": (0, 1)}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("job --out job", "--out = 'job': its files are those to repair: give another prefix"),
        ("job.0.et --out job", "--out = 'job': its files are those to repair: give another prefix"),
        ("job.1.et --out ./job", "--out = './job': its files are those to repair: give another prefix"),
        ("job --out .", "--out = '.': is a folder; give a prefix of files, such as runs/gpt"),
        (
            "job --out new --ranks 3",
            "--ranks = 3: the job has traces of 2 ranks; only a single one is copied to others",
        ),
        ("nothing --out new", "file = 'nothing.0.et': the trace of this rank is missing"),
        ("nothing.et.gz --out new", "file = 'nothing.et.gz.0.et': the trace of this rank is missing"),
        ("text.txt --out new", "text.txt = '8 bytes': the file ends inside a message"),
        ("job --out new --groups text.txt", "file = 'text.txt': is not JSON"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, NODES, NODES)
    Path("text.txt").write_text("no trace")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    status, out, errors = run(capsys, "trace", "repair", *words.split())
    assert (status, out) == (2, "")
    assert sentence in errors
    assert len(errors.splitlines()) == 1
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
