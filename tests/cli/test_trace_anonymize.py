"""`cosmic trace anonymize`: what it writes and prints, and how each failure ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cosmic.traces.chakra.trace_reader import read_traces
from cosmic.traces.chakra.trace_writer import write_traces
from cosmic.traces.trace import NodeType, RankTrace, TraceSet, read_groups, template_of
from cosmic.traces.trace_checks import list_problems
from tests.commands import output, run

NODES = [
    {"id": 3, "type": NodeType.COMP, "name": "secret_matmul", "num_ops": 2_000_000, "duration_us": 5},
    {
        "id": 4,
        "type": NodeType.COMM_COLL,
        "name": "secret_sum",
        "data": [3],
        "comm_type": 0,
        "comm_size": 1_048_576,
        "group": 0,
    },
    {"id": 9, "type": NodeType.COMM_SEND, "data": [4], "comm_size": 8, "comm_tag": 2, "peer": 0},
    {"id": 10, "type": NodeType.COMM_RECV, "data": [4], "comm_size": 8, "comm_tag": 2, "peer": 0},
]


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the prefix of the traces of two ranks, in the working directory."""
    monkeypatch.chdir(tmp_path)
    template = template_of(NODES)
    write_traces(TraceSet(tuple(RankTrace(template, ("17",), (1 - rank,), rank) for rank in range(2))), "job")
    Path("job.json").write_text('{"17": [0, 1]}')
    return "job"


def command(prefix: str, *more: str) -> list[str]:
    usual = {"--groups": "job.json", "--out": "shared/x"}
    stated = [word for name, value in usual.items() if name not in more for word in (name, value)]
    return ["trace", "anonymize", prefix, *stated, *more]


def test_it_writes_traces_and_groups_without_the_names(capsys: pytest.CaptureFixture[str], prefix: str) -> None:
    output(capsys, *command(prefix))
    assert sorted(path.name for path in Path("shared").iterdir()) == ["x.0.et", "x.1.et", "x.json"]
    traces, groups = read_traces("shared/x"), read_groups("shared/x.json")
    assert groups == {"1": (0, 1)}
    assert list_problems(traces, groups) == []
    assert list(traces.ranks[0].template.names) == ["COMP_1", "ALL_REDUCE_1", "", ""]
    assert all(b"secret" not in path.read_bytes() for path in Path("shared").iterdir())


def test_it_prints_what_changed_and_what_is_still_visible(capsys: pytest.CaptureFixture[str], prefix: str) -> None:
    printed = output(capsys, *command(prefix, "--seed", "3"))
    rows = {line.split()[0]: line.split()[1:] for line in printed.splitlines() if line and line[0] != "-"}
    assert rows["names"] == ["class", "2", "0"]
    assert rows["bytes"][:3] == ["perturb", "2", "1"]  # 8 bytes have no other value within 5 %
    assert rows["ranks"] == ["keep", "2", "2"]
    assert "sizes and times are within 5 %: multiplied or divided by at most 1.05" in printed
    assert "- 8 nodes on 2 ranks (2 COMP, 2 COMM_SEND, 2 COMM_RECV, 2 COMM_COLL), 1 graph of them" in printed
    assert "(1 of 2)" in printed
    assert "--keep-map FILE" in printed
    assert "may change" not in printed


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--tolerance", "20%"), "simulated times may change by 20 % or more: a tolerance of 5 % or less"),
        (("--policy", "ranks=permute"), "simulated times may change by any amount"),
    ],
)
def test_it_says_where_times_may_change_by_more_than_5_percent(
    capsys: pytest.CaptureFixture[str], prefix: str, words: tuple[str, ...], sentence: str
) -> None:
    assert sentence in output(capsys, *command(prefix, *words))
    (warning,) = json.loads(output(capsys, *command(prefix, *words, "--json")))["warnings"]
    assert sentence in warning


def test_a_large_tolerance_is_no_warning_where_nothing_is_changed(
    capsys: pytest.CaptureFixture[str], prefix: str
) -> None:
    words = ("--tolerance", "0.2", "--policy", "sizes=keep", "--policy", "times=keep", "--json")
    found = json.loads(output(capsys, *command(prefix, *words)))
    assert found["warnings"] == []
    assert read_traces("shared/x").ranks[0].template.comm_size.tolist() == [-1, 1_048_576, 8, 8]


def test_the_way_back_is_written_only_when_asked_for(capsys: pytest.CaptureFixture[str], prefix: str) -> None:
    output(capsys, *command(prefix, "--seed", "12", "--keep-map", "map.json"))
    found = json.loads(Path("map.json").read_text())
    assert found["seed"] == "12"
    assert found["names"] == {"COMP_1": "secret_matmul", "ALL_REDUCE_1": "secret_sum"}
    assert found["groups"] == {"1": "17"}
    assert found["ids"] == {"0": [3, 4, 9, 10]}
    assert 1_048_576 in found["bytes"].values()


def test_a_seed_repeats_a_run_and_runs_without_one_differ(capsys: pytest.CaptureFixture[str], prefix: str) -> None:
    contents = []
    for words in (("--seed", "7"), ("--seed", "7"), (), ()):
        output(capsys, *command(prefix, *words))
        contents.append(Path("shared/x.0.et").read_bytes())
    assert contents[0] == contents[1]
    assert len(set(contents)) == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--tolerance", "much"), "--tolerance = 'much': is a share, such as 5% or 0.05"),
        (("--tolerance", "0%"), "tolerance = 0.0: must be above 0 %"),
        (("--tolerance", "nan"), "must be above 0 %"),
        (("--policy", "names=keep"), "policy names = 'keep': no such way; choose from class, drop"),
        (("--seed", "-1"), "--seed = '-1': must be a whole number below 2^128"),
        (("--seed", str(2**128)), "must be a whole number below 2^128"),
        (("--out", "job"), "is the prefix of the original"),
        (("--out", "."), "is a folder; give a prefix of files"),
        (("--keep-map", "shared/x.json"), "is another file of this command"),
        (("--keep-map", "shared/x.0.et"), "has a name as traces have"),
        (("--keep-map", "-"), "is a file, which must not be shared"),
        (("--groups", "none.json"), "No such file"),
    ],
)
def test_a_mistake_ends_in_one_sentence_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], prefix: str, words: tuple[str, ...], sentence: str
) -> None:
    before = sorted(Path().rglob("*"))
    status, out, err = run(capsys, *command(prefix, *words))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert sentence in err
    assert sorted(Path().rglob("*")) == before


def test_groups_may_not_be_overwritten_by_the_new_ones(capsys: pytest.CaptureFixture[str], prefix: str) -> None:
    Path("given.json").write_text('{"17": [0, 1]}')
    status, _, err = run(capsys, "trace", "anonymize", prefix, "--groups", "given.json", "--out", "given")
    assert status == 2
    assert "choose another --out" in err


def test_files_of_a_larger_job_are_not_mixed_with_new_ones(capsys: pytest.CaptureFixture[str], prefix: str) -> None:
    Path("shared").mkdir()
    Path("shared/x.2.et").write_bytes(b"of another job")
    status, _, err = run(capsys, *command(prefix))
    assert status == 2
    assert "remove it first" in err
    assert [path.name for path in Path("shared").iterdir()] == ["x.2.et"]


def test_traces_without_groups_need_no_file_of_them(capsys: pytest.CaptureFixture[str], prefix: str) -> None:
    write_traces(TraceSet((RankTrace(template_of(NODES[:1])),)), "alone")
    output(capsys, "trace", "anonymize", "alone", "--out", "shared/y")
    assert read_groups("shared/y.json") == {}
