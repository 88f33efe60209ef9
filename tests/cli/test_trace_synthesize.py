"""`cosmic trace synthesize` and `cosmic trace suite`: what they write and print, and how each failure ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cosmic.traces.chakra.trace_reader import read_traces
from cosmic.traces.chakra.trace_writer import write_traces
from cosmic.traces.trace import groups_text, read_groups
from cosmic.traces.trace_checks import list_problems
from tests.commands import output, run
from tests.traces.synthesis.jobs import Given, layers, pipeline


def written(folder: Path, name: str, job: Given) -> tuple[str, str]:
    """Write a job, and return its prefix and the file of its groups."""
    prefix = folder / name
    write_traces(job[0], prefix)
    prefix.with_suffix(".json").write_text(groups_text(job[1]))
    return str(prefix), f"{prefix}.json"


@pytest.fixture
def job(tmp_path: Path) -> tuple[str, ...]:
    """Return the arguments that name the traces of four layers on four ranks."""
    prefix, groups = written(tmp_path, "job", layers(4))
    return prefix, "--groups", groups


def test_traces_of_another_length_and_width_are_written(
    job: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "new" / "made")
    text = output(capsys, "trace", "synthesize", *job, "--out", out, "--blocks", "8", "--ranks", "16")
    assert "fitted: roles 1, nodes 11, rules 7" in text
    assert "blocks: 4 become 8 of 1 nodes" in text
    assert "mesh: 2 × 2 becomes 8 × 2" in text
    assert "16 ranks, 304 nodes, 8 groups: 17 files" in text
    made = read_traces(out)
    assert list_problems(made, read_groups(f"{out}.json")) == []
    assert [rank.template.nodes for rank in made.ranks] == [19] * 16


def test_the_report_sets_the_model_beside_the_baseline(
    job: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = output(capsys, "trace", "synthesize", *job, "--out", str(tmp_path / "made"), "--report")
    [line] = [line for line in text.splitlines() if line.startswith("critical path: ratio")]
    model, baseline = (float(each) for each in line.split()[-2:])
    assert model == 1.0 != baseline
    assert "simulated time, switch: error" in text


def test_json_says_what_repeats_and_what_grew(
    job: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("trace", "synthesize", *job, "--out", str(tmp_path / "made"), "--scale", "2", "--json")
    found = json.loads(output(capsys, *words))
    assert found["block"] == {"kind": "blocks", "nodes": 1, "copies": 9, "before": 4}
    assert (found["source"]["nodes"], found["nodes"], found["report"]) == (44, 84, None)
    assert found["blocks"][0] == {"kind": "blocks", "copies": 4, "nodes": 1, "share": pytest.approx(8 / 11)}


def test_the_same_seed_writes_the_same_bytes(
    job: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        output(capsys, "trace", "synthesize", *job, "--out", str(tmp_path / name), "--scale", "3", "--seed", "5")
    assert (tmp_path / "a.0.et").read_bytes() == (tmp_path / "b.0.et").read_bytes()


def test_several_jobs_are_fitted_with_their_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = written(tmp_path, "one", layers(3)), written(tmp_path, "two", pipeline(3))
    out = str(tmp_path / "made")
    words = ("trace", "synthesize", one[0], two[0], "--groups", one[1], "--groups", two[1], "--out", out)
    sizes = {json.loads(output(capsys, *words, "--seed", str(seed), "--json"))["nodes"] for seed in range(6)}
    assert sizes == {layers(3)[0].nodes, pipeline(3)[0].nodes}
    status, _, err = run(capsys, *words[:-4], "--out", out)
    assert (status, err) == (2, "cosmic trace synthesize: --groups = 1: give one for each of 2 prefixes, or none\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--blocks", "0"], "blocks = 0: must be from 1 to 1,000,000"),
        (["--blocks", "many"], "--blocks = 'many': must be a number of copies, such as 24"),
        (["--blocks", "7:9"], "blocks = '7:9': there is no such block; copies and their nodes are 4x1, 1x11"),
        (["--scale", "-1"], "scale = -1.0: must be positive"),
        (["--scale", "nan"], "scale = nan: must be positive"),
        (["--scale", "1e7"], "scale = 10000000.0: must be positive, and at most 1,000,000"),
        (["--scale", "2", "--blocks", "2"], "blocks = 2: excludes scale"),
        (["--ranks", "0"], "ranks = 0: must be from 1 to"),
        (["--ranks", "999999999"], "ranks = 999999999: must be from 1 to"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(
    words: list[str], sentence: str, job: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, "trace", "synthesize", *job, "--out", str(tmp_path / "sub" / "made"), *words)
    assert (status, out) == (2, "")
    assert err.startswith(f"cosmic trace synthesize: {sentence}")
    assert err.count("\n") == 1
    assert not list((tmp_path / "sub").glob("*"))


def test_files_that_are_missing_or_in_the_way_are_named(
    job: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run(capsys, "trace", "synthesize", str(tmp_path / "none"), "--out", str(tmp_path / "made"))
    assert status == 2
    assert "none.0.et" in err
    status, _, err = run(capsys, "trace", "synthesize", *job, "--out", str(tmp_path))
    assert (status, "is a folder" in err) == (2, True)
    (tmp_path / "made.4.et").write_bytes(b"")
    status, _, err = run(capsys, "trace", "synthesize", *job, "--out", str(tmp_path / "made"))
    assert (status, "is of a job with more ranks" in err) == (2, True)
    assert not (tmp_path / "made.0.et").exists()


def test_traces_without_their_groups_are_refused(
    job: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run(capsys, "trace", "synthesize", job[0], "--out", str(tmp_path / "made"))
    assert status == 2
    assert "no ranks are given for this group" in err


# ---- the suite


def test_a_case_of_the_suite_is_run_and_its_files_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = output(capsys, "trace", "suite", "--only", "recommender-8", "--out", str(tmp_path / "suite"))
    assert text.splitlines()[1].split()[:2] == ["recommender-8", "8"]
    assert "yes" in text.splitlines()[1]
    folder = tmp_path / "suite" / "recommender-8"
    words = ("--system", str(folder / "system.json"), "--network", str(folder / "network.yml"))
    groups = ("--comm-groups", str(folder / "comm_groups.json"))
    again = json.loads(output(capsys, "simulate", "--workload", str(folder / "trace"), *groups, *words, "--json"))
    [case] = json.loads(output(capsys, "trace", "suite", "--only", "recommender-8", "--json"))
    assert again["cycles"] == case["cycles"] == case["expected"]


def test_other_cycles_than_expected_end_in_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from cosmic.accuracy import trace_suite  # noqa: PLC0415

    text = trace_suite.CASES.read_text()
    changed = tmp_path / "suite.yaml"
    changed.write_text("".join(line.replace("cycles: ", "cycles: 1") for line in text.splitlines(keepends=True)))
    monkeypatch.setattr(trace_suite, "CASES", changed)
    status, out, err = run(capsys, "trace", "suite", "--only", "recommender-8")
    assert status == 1
    assert " no " in out
    assert err == "cosmic trace suite: cycles differ from what is expected: recommender-8\n"


def test_an_unknown_case_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "trace", "suite", "--only", "moe-17")
    assert (status, out) == (2, "")
    assert err == "cosmic trace suite: --only = 'moe-17': no such case; did you mean 'moe-16'?\n"
