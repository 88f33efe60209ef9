"""`cosmic run` and `cosmic study leaderboard` with real commands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cosmic
from tests.commands import output, run

SMALL = "gpt3-125m@dgx-h100:2"
RECIPE = """\
name: two
variables: {trials: 12}
grid: {batch: [8, 16]}
steps:
  - search: {space: "gpt3-125m@dgx-h100:2", fix: {global_batch: "${batch}"}, trials: "${trials}", agent: random}
  - evaluate: {design: "${search.design}", set: {workload.execution: eager}}
  - space count: "gpt3-125m@dgx-h100:2"
results: {step_s: "${search.best.metrics.step_s}", eager_s: "${evaluate.step_s}"}
expect: ["${eager_s >= step_s}"]
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.long
def test_a_recipe_runs_commands_and_a_second_run_evaluates_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("r.yaml").write_text(RECIPE)
    first = json.loads(output(capsys, "run", "r.yaml", "--json"))
    assert (first["status"], first["executed"], first["cached"]) == ("ok", 5, 1)
    second = json.loads(output(capsys, "run", "r.yaml", "--json"))
    assert (second["executed"], second["cached"], second["rows"]) == (0, 6, first["rows"])
    assert "2 rows, 0 steps run, 6 known" in output(capsys, "run", "r.yaml")
    replayed = json.loads(output(capsys, "run", "--replay", first["run"], "--json"))
    assert replayed["same"], replayed["differences"]
    listed = json.loads(output(capsys, "run", "--list", "--json"))
    assert next(each["run"] for each in listed) == first["run"]


def test_a_row_that_cannot_run_has_no_numbers_and_the_others_do(capsys: pytest.CaptureFixture[str]) -> None:
    Path("r.yaml").write_text(
        """\
name: grid
grid: {tp: [1, 3]}
steps: [evaluate: {design: "gpt3-125m@dgx-h100:2", set: {tp: "${tp}"}}]
results: {step_s: "${evaluate.step_s}", bound_s: as a text}
"""
    )
    status, out, err = run(capsys, "run", "r.yaml")
    rows = [line.split() for line in out.split("\n")[3:5]]
    assert (status, rows[0][0], rows[0][-1], rows[1][:2], rows[1][-1]) == (1, "1", "ok", ["3", "-"], "failed")
    assert "bound s" in out.split("\n")[2]
    assert err == "cosmic run: evaluate: cosmic evaluate: workload.tp = 3: there are only 2 accelerators\n"


def test_the_function_takes_a_mapping_and_a_design_inside_it() -> None:
    found = cosmic.run({"steps": [{"evaluate": {"design": {"model": "gpt3-125m", "system": "dgx-h100:2"}}}]})
    direct = cosmic.evaluate(cosmic.load_design(SMALL))
    assert isinstance(direct, cosmic.design.Metrics)
    assert found["rows"][0]["steps"][0]["output"]["step_s"] == pytest.approx(direct.step_s, rel=1e-12)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("evaluat: {}", "did you mean 'evaluate'"),
        ("run: {}", "no such command"),
        ("evaluate: {desing: x}", "did you mean 'design'"),
        ("space: {}", "no such command"),
        ("space counts: {}", "did you mean 'space count'"),
        ("evaluate: 3", "must be options by name"),
        ('evaluate: "\'x"', "quotation mark"),
    ],
)
def test_a_wrong_step_is_one_sentence(capsys: pytest.CaptureFixture[str], step: str, said: str) -> None:
    Path("r.yaml").write_text(f"steps:\n  - {step}\n")
    status, out, err = run(capsys, "run", "r.yaml")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_a_failed_step_is_told_with_its_own_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    Path("r.yaml").write_text("steps:\n  - evaluate: {design: gpt3-125m@nothing}\n")
    status, _, err = run(capsys, "run", "r.yaml")
    assert status == 1
    assert "no such system" in err
    Path("r.yaml").write_text("steps:\n  - evaluate: {design: llama3-70b@dgx-h100:1}\n")
    assert "needs" in run(capsys, "run", "r.yaml")[2]


@pytest.mark.long
def test_a_board_evaluates_what_is_entered_and_again_when_it_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    output(capsys, "study", "leaderboard", "new", "b", SMALL, "-n", "10", "--seeds", "2")
    output(capsys, "study", "leaderboard", "enter", "b", "--agent", "random")
    run(capsys, "search", SMALL, "-n", "10", "--agent", "genetic", "--out", "study")
    board = json.loads(
        output(capsys, "study", "leaderboard", "enter", "b", "--design", "study/best.yaml", "--name", "m", "--json")
    )
    assert {line["name"]: line["kind"] for line in board["lines"]} == {"m": "design", "random": "agent"}
    assert all(line["confirmed"] and line["regret"] >= 0 for line in board["lines"])
    entries = [json.loads(text) for text in Path("b/entries.jsonl").read_text().splitlines()]
    entries[1]["losses"] = [entries[1]["losses"][0] / 2]  # a claim that is not true
    Path("b/entries.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in entries))
    again = {
        line["name"]: line
        for line in json.loads(output(capsys, "study", "leaderboard", "show", "b", "--json"))["lines"]
    }
    before = {line["name"]: line for line in board["lines"]}
    assert (again["m"]["confirmed"], again["m"]["value"]) == (False, before["m"]["value"])


def _tampered(change: Any) -> None:
    entries = [json.loads(text) for text in Path("b/entries.jsonl").read_text().splitlines()]
    change(entries)
    Path("b/entries.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in entries))


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        lambda entries: entries[0]["rows"][0].__setitem__(0, 9999),
        lambda entries: entries[0]["rows"][0].__setitem__(0, -1),
        lambda entries: entries[0]["rows"][0].__setitem__(0, "a"),
        lambda entries: entries[0]["rows"][0].pop(),
        lambda entries: entries[0].update(rows=entries[0]["rows"][:1], losses=entries[0]["losses"][:1]),
        lambda entries: entries[0].update(losses=["x", "y"]),
        lambda entries: entries[0].update(kind="person"),
        lambda entries: entries[0].update(name=3),
        lambda entries: entries.append(entries[0]),
    ],
)
def test_an_entry_that_no_command_writes_is_refused(capsys: pytest.CaptureFixture[str], change: Any) -> None:
    output(capsys, "study", "leaderboard", "new", "b", SMALL, "-n", "10", "--seeds", "2")
    output(capsys, "study", "leaderboard", "enter", "b", "--agent", "random")
    _tampered(change)
    status, out, err = run(capsys, "study", "leaderboard", "show", "b")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "is no entry" in err or "is called as one before it is" in err


@pytest.mark.long
def test_an_agent_that_did_not_find_its_designs_is_found_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Designs that somebody put in as an agent's are evaluated as they are; run again, it finds its own."""
    output(capsys, "study", "leaderboard", "new", "b", SMALL, "-n", "3", "--seeds", "2")
    first = json.loads(output(capsys, "study", "leaderboard", "enter", "b", "--agent", "random", "--json"))["lines"][0]
    trials = cosmic.search(SMALL, agent="exhaustive").trials
    step = trials.results.columns["step_s"]
    other = int(np.nanargmax(step))
    assert step[other] > first["value"]
    row, loss = trials.row(other).tolist(), float(step[other])
    _tampered(lambda entries: entries[0].update(rows=[row, row], losses=[loss, loss]))
    [line] = json.loads(output(capsys, "study", "leaderboard", "show", "b", "--json"))["lines"]
    assert (line["confirmed"], line["value"]) == (True, pytest.approx(loss))
    [line] = json.loads(output(capsys, "study", "leaderboard", "show", "b", "--rerun", "--json"))["lines"]
    assert (line["confirmed"], line["value"]) == (False, first["value"])


@pytest.mark.long
def test_entries_by_other_rules_are_not_confirmed(capsys: pytest.CaptureFixture[str]) -> None:
    output(capsys, "study", "leaderboard", "new", "b", SMALL, "-n", "10", "--seeds", "1")
    output(capsys, "study", "leaderboard", "enter", "b", "--agent", "random")
    rules = json.loads(Path("b/problem.json").read_text())
    Path("b/problem.json").write_text(json.dumps(rules | {"trials": 1000}))
    assert not json.loads(output(capsys, "study", "leaderboard", "show", "b", "--json"))["lines"][0]["confirmed"]
    for wrong in ({"trials": "x"}, {"seeds": 0}, {"objective": 3}):
        Path("b/problem.json").write_text(json.dumps(rules | wrong))
        status, _, err = run(capsys, "study", "leaderboard", "show", "b")
        assert (status, "does not hold the rules" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("enter", "b"), "give a --design or an --agent"),
        (("enter", "b", "--agent", "nobody"), "no such agent"),
        (("enter", "b", "--design", "other.yaml"), "is no point of the board's space"),
        (("new", "b", SMALL), "is a leaderboard already"),
        (("show", "c"), "is no leaderboard"),
    ],
)
def test_a_wrong_entry_is_one_sentence(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    output(capsys, "study", "leaderboard", "new", "b", SMALL, "-n", "10", "--seeds", "1")
    Path("other.yaml").write_text("model: gpt3-125m\nsystem: dgx-h100:4\n")
    status, out, err = run(capsys, "study", "leaderboard", *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_a_model_that_a_word_or_a_design_names_is_read_again_when_it_changes() -> None:
    """Twice the layers take about twice as long: a result of the smaller model would be a wrong answer."""
    model = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "vocab_size": 32000}
    model |= {"num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 4096}
    Path("d.yaml").write_text("{model: m.json, system: dgx-h100:2, workload: {dp: 2, global_batch: 64}}")
    for design in ("d.yaml", "m.json@dgx-h100:2"):
        seconds = []
        for layers in (8, 8, 16):
            Path("m.json").write_text(json.dumps(model | {"num_hidden_layers": layers}))
            found = cosmic.run({"steps": [{"evaluate": {"design": design}}]})
            seconds.append(found["rows"][0]["steps"][0]["output"]["step_s"])
        assert seconds[1] == seconds[0] < seconds[2] / 1.5


def test_a_search_whose_study_is_gone_is_run_again() -> None:
    tree = {"steps": [{"search": {"space": "gpt3-125m@dgx-h100:2", "trials": 5, "agent": "random"}}]}
    first = cosmic.run(tree, store="store")
    [study] = Path("store/cache").glob("*/study")
    shutil.rmtree(study)
    again = cosmic.run(tree, store="store")
    assert (first["executed"], again["executed"], study.is_dir()) == (1, 1, True)
