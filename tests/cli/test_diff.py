"""`cosmic diff`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.commands import output, run

DESIGN = "llama3-70b@dgx-h100:512"
OTHER = "llama3-70b@dgx-b200:512"
KEYS = {"verdict", "a", "b", "metrics", "differences", "attribution", "breakdown"}


def test_the_verdict_comes_first_then_metrics_differences_and_parts(capsys: pytest.CaptureFixture[str]) -> None:
    out = output(capsys, "diff", DESIGN, OTHER)
    first, *rest = out.splitlines()
    assert first.startswith("B is ")
    heads = [line for line in rest if line.split()[-1:] in (["B/A"], ["share"]) or line.endswith("B - A")]
    assert [line.split()[0] for line in heads] == ["A", "what", "step"]
    assert "  compute.accelerator" in out
    assert "more: --json has all" in out
    assert "average over all orders of changing A into B" in out


def test_json_has_stable_keys(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(output(capsys, "diff", DESIGN, OTHER, "--set", "workload.recompute=full", "--json"))
    assert set(found) == KEYS
    assert found["a"]["settings"] == {"workload.recompute": "full"}
    assert found["a"]["feasible"]
    step, last = found["metrics"]["step_s"], found["differences"][-1]
    assert step["ratio"] == pytest.approx(step["b"] / step["a"])
    assert set(last) == {"group", "a", "b", "alone_s", "worth_s", "worth_share"}
    assert sum(each["worth_s"] for each in found["differences"]) == pytest.approx(step["b"] - step["a"])
    parts = found["breakdown"].values()
    assert sum(each["difference_s"] for each in parts) == pytest.approx(step["b"] - step["a"])
    assert found["attribution"]["method"] == "exact"


def test_set_changes_both_designs_and_set_b_the_second(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--set", "workload.recompute=full", "--set-b", "workload.tp=4", "--json")
    found = json.loads(output(capsys, "diff", DESIGN, DESIGN, *words))
    assert found["b"]["settings"] == {"workload.recompute": "full", "workload.tp": 4}
    assert [each["group"] for each in found["differences"]] == ["mapping"]


def test_a_file_is_compared_with_a_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(output(capsys, "show", DESIGN))
    assert output(capsys, "diff", DESIGN, str(path)).startswith("A and B are the same design\n")


def test_a_design_that_does_not_fit_together_is_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "diff", DESIGN, DESIGN, "--set-b", "workload.dp=1")
    assert status == 1
    assert "\nB cannot run: dp 1 " in out
    assert "no difference has a worth" in out


def test_a_design_without_enough_memory_is_compared_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--set-b", "memory.capacity=8 GiB", "--set-b", "workload.recompute=full")
    status, out, _ = run(capsys, "diff", "llama3-8b@dgx-h100:8", "llama3-8b@dgx-h100:8", *words)
    assert status == 1
    assert "\nB cannot run: needs " in out
    assert "their times count all the same" in out


def test_many_differences_say_that_orders_were_sampled(capsys: pytest.CaptureFixture[str]) -> None:
    fields = "tp=4 recompute=full precision=fp8 loss=chunked execution=eager tp_overlap=true dp_overlap=false"
    fields += " dropout=true attention=unfused"
    words = [word for field in fields.split() for word in ("--set-b", f"workload.{field}")]
    out = output(capsys, "diff", "llama3-8b@dgx-h100:64", "llama3-8b@dgx-h100:64", *words)
    assert "average over 32 orders" in out


def test_a_bad_design_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    rule = "is neither MODEL@SYSTEM nor the path of a YAML file"
    assert run(capsys, "diff", DESIGN, "nope") == (2, "", f"cosmic diff: design = 'nope': {rule}\n")
