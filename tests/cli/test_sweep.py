"""`cosmic design sweep`: which fields move along with those that are varied, and how to hold them."""

from __future__ import annotations

import csv
import json
from random import Random

import pytest

from cosmic.cli.design_comparison_commands import run_sweep
from cosmic.design.loading import design_tree
from cosmic.design.plain_data import dump_yaml
from cosmic.evaluation import evaluate
from cosmic.search.compare.remapping import sweep_design
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Infeasible, Metrics
from tests.commands import output, run
from tests.relations.random_designs import random_design

DESIGN = "llama3-70b@dgx-h100:512"
WORDS = ("design", "sweep", DESIGN, "--vary", "tp=1,4,8")


def test_rows_say_what_moved_along(capsys: pytest.CaptureFixture[str]) -> None:
    base = load_design(DESIGN)
    rows = json.loads(output(capsys, *WORDS, "--json"))
    for row in rows:
        point = load_design(DESIGN, {"tp": row["tp"]})
        for path, pair in row["moved"].items():
            name = path.partition(".")[2]
            assert pair == {"from": getattr(base.workload, name), "to": getattr(point.workload, name)}
        names = ("dp", "pp", "recompute", "weight_sharding", "micro_batch", "global_batch")
        differing = {name for name in names if getattr(point.workload, name) != getattr(base.workload, name)}
        assert {f"workload.{name}" for name in differing} <= row["moved"].keys()
        assert "workload.tp" not in row["moved"]


def test_the_table_has_a_column_for_what_moved_and_a_sentence_says_how_to_hold_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = output(capsys, *WORDS)
    rows = run_sweep(DESIGN, [], ["tp=1,4,8"])
    moved = {path for row in rows for path in row.moved}
    assert moved
    table, sentence = out.rstrip("\n").split("\n\n")
    head = table.splitlines()[0].split("  ")
    assert " moved along with tp" in sentence
    for path in moved:
        name = path.removeprefix("workload.")
        assert f"{name} " in sentence
        values = {row.moved[path][1] if path in row.moved else None for row in rows}
        assert (name.replace("_", " ") in [each.strip() for each in head]) <= (len(values) > 1)


def test_fix_holds_what_would_move(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(output(capsys, *WORDS, "--fix", "pp,recompute", "--fix", "weight_sharding", "--json"))
    held = {"workload.pp", "workload.recompute", "workload.weight_sharding"}
    assert all(held.isdisjoint(row["moved"]) for row in rows)
    base = load_design(DESIGN).workload
    fields = {"pp": base.pp, "recompute": base.recompute, "weight_sharding": base.weight_sharding}
    for row in rows:
        outcome = evaluate(load_design(DESIGN, {"tp": row["tp"], **fields}))
        assert row["feasible"] == isinstance(outcome, Metrics)
        assert row["reasons"] == (list(outcome.reasons) if isinstance(outcome, Infeasible) else [])


def test_a_row_that_cannot_hold_a_field_says_why() -> None:
    rows = run_sweep(DESIGN, [], ["tp=1,8"], fix=["dp,pp,cp"])
    reasons = [row.outcome.reasons for row in rows if isinstance(row.outcome, Infeasible)]
    assert any("ranks on 512 NPUs" in each for reason in reasons for each in reason)


def test_nothing_moves_where_the_mapping_is_stated(capsys: pytest.CaptureFixture[str]) -> None:
    mesh = [
        word for each in ("tp=8", "pp=2", "cp=1", "weight_sharding=zero1", "recompute=full") for word in ("--set", each)
    ]
    assert "moved" not in output(capsys, "design", "sweep", DESIGN, *mesh, "--vary", "micro_batch=1,2")


def test_csv_keeps_varied_fields_that_are_named_like_parts_of_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(output(capsys, *WORDS, "--csv").splitlines()))
    assert [row["workload.tp"] for row in rows] == ["1", "4", "8"]
    assert float(rows[0]["tp"]) == 0
    dps = [load_design(DESIGN, {"tp": int(row["workload.tp"])}).workload.dp for row in rows]
    if len(set(dps)) > 1:
        assert [int(row["workload.dp"]) for row in rows] == dps


def test_progress_is_shown_before_the_first_design() -> None:
    said: list[str] = []
    run_sweep("llama3-8b@dgx-h100:8", [], ["tp=1,2"], said.append)
    assert said == ["the base design", "1 of 2 designs", "2 of 2 designs"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fix", "tp"), "--fix = 'workload.tp': is varied: leave one of them out"),
        (("--fix", "workload"), "--fix = 'workload': is varied: leave one of them out"),
        (("--fix", "memory"), "--fix = 'memory': is a whole layer: name a field of it, such as tp"),
        (("--fix", "nope"), "path = 'nope': no such field"),
        (("--fix", ""), "--fix = '': name fields to hold"),
    ],
)
def test_what_cannot_be_held_is_refused(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    status, _, err = run(capsys, *WORDS, *words)
    assert status == 2
    assert err.startswith(f"cosmic design sweep: {said}")


@pytest.mark.parametrize("seed", range(6))
def test_designs_of_every_kind_are_swept(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("designs") / "design.yaml"
    point = random_design(Random(seed))
    path.write_text(dump_yaml(design_tree(point)))
    same = point.workload.micro_batch
    rows = sweep_design(str(path), {}, {"micro_batch": [same, 2 * same]}, ["recompute"])
    assert rows[0].moved == {}
    assert rows[0].outcome == evaluate(point)


def test_what_a_cluster_costs_and_loses_is_shown_where_it_differs(capsys: pytest.CaptureFixture[str]) -> None:
    mesh = ["--set", "tp=1", "--set", "pp=1", "--set", "cp=1", "--set", "micro_batch=1"]
    vary = ["--vary", "network.dims.1.oversubscription=1,4"]
    lines = run(capsys, "design", "sweep", "llama3-8b@dgx-h100:1024", *mesh, *vary)[1].splitlines()
    assert "network M USD" in lines[0]
    assert "goodput" not in lines[0]
    # 1:1: two tiers of 64-port switches for 1,024 links are 32 leaves and 16 spines, 48 of 40,000 USD; 1,024 links to
    # NICs and as many up, each with a cable of 240 and two optics of 500 USD
    assert " 4.460 " in lines[1]
    assert 48 * 40_000 + 2 * 1024 * (240 + 2 * 500) == 4_459_520
    run_of = ["--set", "run.tokens=1T", "--vary", "run.checkpoint=blocking,in_memory"]
    lines = run(capsys, "design", "sweep", "llama3-8b@dgx-h100:1024", *mesh, *run_of)[1].splitlines()
    assert "goodput" in lines[0]
    assert "days" in lines[0]
    assert "network M USD" not in lines[0]
