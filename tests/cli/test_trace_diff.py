"""`cosmic trace diff`: what it prints of two traces, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cosmic.cli.trace_analysis_commands import difference_headline, short_kernel_name
from cosmic.traces.chakra.trace_writer import write_traces
from cosmic.traces.profiles.trace_contrast import contrast_sides, side_of_traces
from cosmic.traces.trace import TraceSet, template_of
from tests.commands import output, run
from tests.traces.profiles.test_contrasting import rows, traces

DESIGN = "gpt3-1.3b@dgx-h200:1"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traces in the working directory: *slow* and *fast* differ in one kernel."""
    monkeypatch.chdir(tmp_path)
    for name, gemm_ns in (("slow", 2000), ("fast", 1000)):
        write_traces(traces(rows(gemm_ns=gemm_ns)), name)


def test_identical_traces_have_no_difference(capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "trace", "diff", "slow", "slow") == "no difference\n"


def test_the_headline_says_how_much_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "trace", "diff", "slow", "fast").splitlines()
    # slow: launch and its latency 30, GEMM 2,000, 5, addition 40, 30 of the all-reduce: 2,105 ns
    assert lines[0] == "B takes 1,000.0 ns less of 2,105.0 ns (-47.5 %): GEMMs -1,000.0"
    assert "of the difference of -1,000.0 ns, operators explain -1,000.0 and overlap and idle time 0" in lines


def test_rows_are_limited_and_the_rest_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    write_traces(traces(rows(gemm_ns=1000, add_ns=60)), "other")
    whole = output(capsys, "trace", "diff", "slow", "other")
    assert "nvjet" in whole
    assert "add_kernel" in whole
    short = output(capsys, "trace", "diff", "slow", "other", "--limit", "1")
    assert "nvjet" in short
    assert "add_kernel" not in short
    assert "… and 1 more: --limit 2 shows them all" in short
    assert "nvjet" not in output(capsys, "trace", "diff", "slow", "other", "--limit", "0")


def test_json_has_all_rows_with_both_amounts(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(output(capsys, "trace", "diff", "slow", "fast", "--limit", "0", "--json"))
    assert found["identical"] is False
    assert found["by"] == "name"
    assert found["span_difference_s"] == pytest.approx(-1e-6)
    assert [row["name"] for row in found["rows"]] == ["nvjet", "nccl", "add_kernel"]
    assert found["rows"][0]["a"]["seconds"] == pytest.approx(2e-6)
    assert found["a"]["structure"]["nodes"] == 4
    assert found["a"]["critical_path"]["nodes"] == 3


def test_a_recording_is_compared_with_a_design_by_class(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(output(capsys, "trace", "diff", "slow", DESIGN, "--json"))
    assert (found["by"], found["b"]["kind"]) == ("class", "design")
    classes = {row["class"]: row for row in found["rows"]}
    assert classes["GEMMs: head"]["a"]["count"] == 0 < classes["GEMMs: head"]["b"]["seconds"]
    assert classes["GEMMs: other"]["b"]["count"] == 0 < classes["GEMMs: other"]["a"]["seconds"]
    assert found["order"] is None


def test_generated_traces_are_those_of_their_design(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--set", "layers=2", "--set", "global_batch=1"]
    Path("small.yaml").write_text(
        "model: {base: gpt3-1.3b, layers: 2}\nsystem: dgx-h200:1\nworkload: {global_batch: 1}\n"
    )
    run(capsys, "trace", "generate", DESIGN, *small, "--out", "made")
    found = json.loads(output(capsys, "trace", "diff", "made", "small.yaml", "--json"))
    assert (found["by"], found["a"]["kind"], found["b"]["kind"]) == ("name", "generated", "generated")
    assert all(row["a"]["count"] == row["b"]["count"] for row in found["rows"])
    assert found["order"]["same"] == found["order"]["a"] == found["order"]["b"] > 0
    # files have whole microseconds
    assert all(abs(row["difference_s"]) < 1e-6 for row in found["rows"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["slow", "nothing"], "B = 'nothing': is neither a prefix of traces (there is no nothing.0.et) nor a design"),
        (["slow.0.et", "fast"], "A = 'slow.0.et': is the trace of one rank: give the prefix of all, such as slow"),
        (["slow", "fast", "--by", "colour"], "--by = 'colour': must be one of name, kernel, type, class"),
        (["slow", DESIGN, "--by", "name"], "compare them by class or kernel"),
        (["slow", DESIGN, "--groups-b", "groups.json"], "is for traces, and gpt3-1.3b@dgx-h200:1 is a design"),
        (["slow", "fast", "--groups-a", "missing.json"], "missing.json"),
        (["slow", "gpt3-1.3@dgx-h200:1"], "did you mean"),
        (["slow", "broken"], "broken.0.et"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_sentence(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("groups.json").write_text("{}")
    Path("broken.0.et").write_bytes(b"\xff" * 40)
    status, out, err = run(capsys, "trace", "diff", *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_empty_traces_and_traces_without_times_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    write_traces(traces([]), "none")
    assert output(capsys, "trace", "diff", "none", "none") == "no difference\n"
    assert output(capsys, "trace", "diff", "none", "slow").startswith("B has operators that take 2,090.0 ns more")
    write_traces(traces([{"id": 0, "type": 4, "name": "a"}]), "untimed")
    assert output(capsys, "trace", "diff", "untimed", "none").startswith("no node says how long it takes")


def test_many_ranks_of_one_template_take_one(capsys: pytest.CaptureFixture[str]) -> None:
    template = traces(rows()).ranks[0]
    slower = traces(rows(gemm_ns=200)).ranks[0]
    found = contrast_sides(side_of_traces(TraceSet((template,) * 1024)), side_of_traces(TraceSet((slower,) * 1024)))
    assert difference_headline(found).startswith("B takes 100.0 ns more than the 205.0 ns")
    assert template_of(rows()).nodes * 1024 == (found.a.structure.nodes if found.a.structure else None)


def test_names_of_kernels_are_short_enough_to_read() -> None:
    name = "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<8, c10::BFloat16, float>(float*, long)"
    assert short_kernel_name(name) == "cunn_SoftMaxBackward"
    assert len(short_kernel_name("x" * 500)) == 56
    assert short_kernel_name("operator<") == "operator"
    assert short_kernel_name("") == ""
