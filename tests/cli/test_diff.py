"""`cosmic design diff`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cosmic.search.mapping.design_completion import load_design
from tests.commands import output, run

DESIGN = "llama3-70b@dgx-h100:512"
OTHER = "llama3-70b@dgx-b200:512"
KEYS = {"answer", "verdict", "certainty", "a", "b", "mapping", "metrics", "differences", "attribution", "breakdown"}


@pytest.mark.long
def test_the_verdict_comes_first_then_metrics_differences_and_parts(capsys: pytest.CaptureFixture[str]) -> None:
    out = output(capsys, "design", "diff", DESIGN, OTHER)
    first, *rest = out.splitlines()
    assert first.startswith("B is ")
    heads = [line for line in rest if line.split()[-1:] in (["B/A"], ["share"]) or line.endswith("B - A")]
    assert [line.split()[0] for line in heads] == ["A", "what", "step"]
    assert "  compute.accelerator" in out
    assert "more: --json has all" in out
    assert "average over all orders of changing A into B" in out


def test_json_has_stable_keys(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(output(capsys, "design", "diff", DESIGN, OTHER, "--set", "workload.recompute=full", "--json"))
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
    found = json.loads(output(capsys, "design", "diff", DESIGN, DESIGN, *words))
    assert found["b"]["settings"] == {"workload.recompute": "full", "workload.tp": 4}
    assert [each["group"] for each in found["differences"]] == ["mapping"]


def test_a_file_is_compared_with_a_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(output(capsys, "design", "show", DESIGN))
    assert output(capsys, "design", "diff", DESIGN, str(path)).startswith("A and B are the same design\n")


def test_a_design_that_does_not_fit_together_is_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "design", "diff", DESIGN, DESIGN, "--same-mapping", "--set-b", "workload.dp=1")
    assert status == 1
    assert "\nB cannot run: dp 1 " in out
    assert "no difference has a worth" in out


def test_a_design_without_enough_memory_is_compared_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--set-b", "memory.capacity=8 GiB", "--set-b", "workload.recompute=full")
    status, out, _ = run(capsys, "design", "diff", "llama3-8b@dgx-h100:8", "llama3-8b@dgx-h100:8", *words)
    assert status == 1
    assert "\nB cannot run: needs " in out
    assert "their times count all the same" in out


@pytest.mark.long
def test_many_differences_say_that_orders_were_sampled(capsys: pytest.CaptureFixture[str]) -> None:
    fields = "tp=4 recompute=full precision=fp8 loss=chunked execution=eager tp_overlap=true dp_overlap=false"
    fields += " dropout=true attention=unfused"
    words = [word for field in fields.split() for word in ("--set-b", f"workload.{field}")]
    out = output(
        capsys, "design", "diff", "llama3-8b@dgx-h100:64", "llama3-8b@dgx-h100:64", "--set", "sequence=2048", *words
    )
    assert "average over 32 orders" in out


def test_a_bad_design_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    rule = "is neither MODEL@SYSTEM nor the path of a YAML file"
    assert run(capsys, "design", "diff", DESIGN, "nope") == (2, "", f"cosmic design diff: design = 'nope': {rule}\n")


def test_the_gain_is_split_into_the_change_itself_and_re_mapping(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(output(capsys, "design", "diff", DESIGN, OTHER, "--json"))
    mapping, rate = found["mapping"], found["metrics"]["tokens_per_s"]
    assert mapping["mode"] == "best"
    assert mapping["change_speedup"] * mapping["remapping_speedup"] == pytest.approx(rate["ratio"])
    assert mapping["sentence"].startswith("each with its best mapping")
    assert ("and re-mapping" in mapping["sentence"]) == bool(mapping["remapped"])
    assert output(capsys, "design", "diff", DESIGN, OTHER).splitlines()[1] == mapping["sentence"]


def test_the_same_mapping_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    best = json.loads(output(capsys, "design", "diff", DESIGN, OTHER, "--json"))
    same = json.loads(output(capsys, "design", "diff", DESIGN, OTHER, "--same-mapping", "--json"))
    assert same["mapping"]["mode"] == "same"
    assert same["metrics"]["tokens_per_s"]["ratio"] == pytest.approx(best["mapping"]["change_speedup"])
    assert same["mapping"]["remapping_speedup"] == pytest.approx(best["mapping"]["remapping_speedup"])
    assert "mapping" not in [each["group"] for each in same["differences"]]
    assert same["mapping"]["sentence"].startswith("same mapping: B has A's")
    assert ("a mapping of its own would make B" in same["mapping"]["sentence"]) == bool(same["mapping"]["remapped"])


def test_the_same_mapping_counts_more_than_what_a_file_states(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "other.yaml"
    path.write_text(output(capsys, "design", "show", OTHER, "--set", "tp=2", "--set", "pp=4", "--set", "cp=1"))
    found = json.loads(output(capsys, "design", "diff", DESIGN, str(path), "--same-mapping", "--json"))
    assert found["mapping"]["mode"] == "same"
    assert "mapping" not in [each["group"] for each in found["differences"]]


def test_fix_holds_fields_of_a(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(output(capsys, "design", "diff", DESIGN, OTHER, "--fix", "tp, recompute", "--json"))
    assert found["mapping"]["mode"] == "fixed"
    assert found["mapping"]["fixed"] == ["workload.tp", "workload.recompute"]
    assert found["b"]["settings"]["workload.tp"] == load_design(DESIGN).workload.tp
    assert "workload.tp" not in {path for each in found["differences"] for path in each["a"]}


def test_a_mapping_that_is_stated_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    mesh = [word for each in ("tp=8", "pp=2", "cp=1", "weight_sharding=zero1") for word in ("--set", each)]
    found = json.loads(
        output(capsys, "design", "diff", DESIGN, DESIGN, *mesh, "--set-b", "memory.capacity=160 GiB", "--json")
    )
    assert found["mapping"]["mode"] == "stated"
    assert found["mapping"]["sentence"] == "both with the mapping that they state"
    assert found["mapping"]["change_speedup"] is None


def test_a_mapping_that_does_not_run_on_b_is_said_not_to(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("design", "diff", DESIGN, DESIGN, "--set-b", "memory.capacity=16 GiB")
    assert "each with its best mapping; A's mapping does not run on B: " in output(capsys, *words)
    status, out, _ = run(capsys, *words, "--same-mapping")
    assert status == 1
    assert "B cannot run: " in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fix", "nope"), "path = 'nope': no such field"),
        (("--fix", "workload"), "--fix = 'workload': is a whole layer: name a field of it, such as tp"),
        (("--fix", "tp,,dp"), "--fix = 'tp,,dp': name fields to hold, such as recompute,micro_batch"),
        (("--fix", "tp", "--set-b", "tp=4"), "--fix = 'workload.tp': is set of B alone, too: leave one of them out"),
        (("--fix", "network.dims.7.npus"), "--fix = 'network.dims.7.npus': "),
        (("--fix", "system"), "--fix = 'system': "),
    ],
)
def test_what_cannot_be_held_is_refused(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    status, _, err = run(capsys, "design", "diff", DESIGN, OTHER, *words)
    assert status == 2
    assert err.startswith(f"cosmic design diff: {said}")
