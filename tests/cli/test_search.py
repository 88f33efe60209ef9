"""Searching from the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cosmic.cli.search_output import progress_text
from cosmic.search.search_loop import Progress
from tests.commands import output, run

SPACE = "cosmic-512-full-stack"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # studies go to runs/


def data(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return json.loads(output(capsys, *words, "--json"))


def test_a_search_says_what_is_best_and_where_its_study_is(capsys: pytest.CaptureFixture[str]) -> None:
    out = output(capsys, "search", SPACE, "-n", "200", "--seed", "3")
    assert f"{SPACE} · genetic · for perf_per_bandwidth · seed 3" in out
    assert re.match(r"[\d.]+× over the base design; [\w' -]+ bounds? it \(.*\d+ % of the step\)\n", out)
    assert re.search(r"best design \(trial [\d,]+\): perf_per_bandwidth [\d.e-]+\n", out)
    assert "study: runs/cosmic-512-full-stack-genetic-3" in out
    assert "workload.tp" in out
    assert (Path("runs") / "cosmic-512-full-stack-genetic-3" / "trials.db").is_file()


def test_a_small_space_says_how_many_trials_would_prove_its_best(capsys: pytest.CaptureFixture[str]) -> None:
    out = output(capsys, "search", "llama3-70b-serving-64-h100", "-n", "20", "--out", "study")
    assert "; without --agent, -n 1224 goes through all 1,224 valid designs and proves the best\n" in out


def test_the_best_design_is_left_ready_to_evaluate(capsys: pytest.CaptureFixture[str]) -> None:
    out = output(capsys, "search", SPACE, "-n", "100", "--out", "study")
    assert re.search(r"expected to be off by \d+ %", out)
    found = data(capsys, "search", SPACE, "-n", "100", "--out", "other")["best"]["metrics"]
    assert data(capsys, "evaluate", "study/best.yaml")["step_s"] == pytest.approx(found["step_s"])


def test_a_search_speaks_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = data(capsys, "search", SPACE, "-n", "100", "--objective", "step_s", "--objective", "network_usd")
    assert {"best", "front", "trials", "feasible", "evaluations_per_s", "study"} <= set(found)
    assert found["trials"] == 100
    assert 0 < found["feasible"] <= 100
    assert found["best"]["metrics"]["step_s"] == min(each["metrics"]["step_s"] for each in found["front"])
    assert set(found["best"]["point"]) >= {"workload.dp", "workload.tp", "network.dims.0.bandwidth"}
    assert Path(found["study"]).is_dir()


def test_a_second_search_does_not_touch_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    first = data(capsys, "search", SPACE, "-n", "20", "--agent", "random")
    second = data(capsys, "search", SPACE, "-n", "20", "--agent", "random")
    assert first["study"] != second["study"]
    assert first["best"] == second["best"]


def test_a_study_goes_on_without_its_space_being_named_again(capsys: pytest.CaptureFixture[str]) -> None:
    data(capsys, "search", SPACE, "-n", "50", "--out", "s")
    longer = data(capsys, "search", "--resume", "--out", "s", "-n", "80")
    assert longer["trials"] == 80
    assert data(capsys, "search", "--resume", "--out", "s")["trials"] == 80


def test_layers_can_be_isolated(capsys: pytest.CaptureFixture[str]) -> None:
    found = data(capsys, "search", SPACE, "--stacks", "workload", "-n", "300", "--agent", "random")
    assert set(found["best"]["point"]) == {f"workload.{name}" for name in ("dp", "cp", "pp", "weight_sharding", "tp")}
    assert found["stopped"] == "exhausted"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nosuch"], "no such space"),
        ([SPACE, "--agent", "gnetic"], "agent = 'gnetic': no such agent; did you mean 'genetic'?"),
        ([SPACE, "--objective", "stepp"], "objective = 'stepp': no such objective; did you mean 'step_s'?"),
        ([SPACE, "--constraint", "memory <= 3 GB"], "did you mean 'memory_bytes'?"),
        ([SPACE, "--stacks", "wrkload"], "did you mean 'workload'?"),
        ([SPACE, "--engine", "evnt"], "did you mean 'event'?"),
        ([SPACE, "--setting", "pop=3"], "genetic.pop = 3: no such key; did you mean 'population'?"),
        ([], "name MODEL@SYSTEM:N, a space of the catalog or a YAML file"),
        ([SPACE, "--resume"], "say which study: --out DIR"),
        (["--resume", "--out", "nowhere"], "does not exist"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "search", *words)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not Path("runs").exists()
    assert not Path("nowhere").exists()


def test_where_nothing_can_run_the_reasons_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    limit = ("--constraint", "memory_bytes <= 1 kB")
    status, out, _ = run(capsys, "search", SPACE, "-n", "20", "--agent", "random", *limit)
    assert status == 1
    assert "No design that was tried can run" in out
    assert "memory_bytes <= 1 kB: " in out


def test_progress_is_one_line_with_speed_best_and_time_left() -> None:
    now = Progress(
        objective="step_s", evaluated=500, trials=2000, feasible=300, seen=600, best=1.5, computed=500, elapsed_s=2.0
    )
    assert progress_text(now) == "500 of 2,000 trials · 250/s · best step 1.5 s · 50 % feasible · 6 s left"


@pytest.mark.long
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_search_that_is_ended_says_what_it_has_and_can_go_on(
    number: int, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["search", SPACE, "-n", "10000000", "--out", "s", "--agent", "random"]
    process = subprocess.Popen(
        [sys.executable, "-m", "cosmic", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        reader = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sqlite3; print(sqlite3.connect('file:s/trials.db?mode=ro', uri=True)"
                ".execute('SELECT COUNT(*) FROM packed').fetchone()[0])",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if reader.returncode == 0 and int(reader.stdout) > 0:
            break
        time.sleep(0.1)
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert "best design" in out
    assert "Traceback" not in err
    so_far = data(capsys, "study", "compare", "s")["studies"][0]["trials"]
    assert data(capsys, "search", "--resume", "--out", "s", "-n", str(so_far + 10))["trials"] == so_far + 10


@pytest.mark.long
def test_a_search_with_the_event_engine_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    words = ["search", SPACE, "-n", "100000", "--out", str(tmp_path / "s"), "--agent", "random", "--engine", "event"]
    process = subprocess.Popen(
        [sys.executable, "-m", "cosmic", *words, "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (tmp_path / "s" / "study.json").exists():
        time.sleep(0.05)
    time.sleep(1)  # an interpreter that is only starting, as a worker's, says more than one sentence
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: its workers too
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "cosmic search: interrupted"
    assert "Traceback" not in err


def test_studies_are_compared_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    for agent in ("random", "genetic"):
        output(capsys, "search", SPACE, "-n", "300", "--agent", agent, "--out", agent)
    out = output(capsys, "study", "compare", "random", "genetic", "--plot", "c.svg")
    assert "0.00 %" in out
    assert "perf per bandwidth (higher is better) over evaluations" in out
    assert Path("c.svg").read_text().startswith("<svg")
    found = data(capsys, "study", "compare", "random", "genetic")
    assert [each["agent"] for each in found["studies"]] == ["random", "genetic"]
    curve = [value for _, value in found["curves"]["genetic"]]
    assert curve == sorted(curve)


def test_studies_that_want_different_things_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    for metric in ("step_s", "mfu"):
        output(capsys, "search", SPACE, "-n", "10", "--objective", metric, "--out", metric)
    status, _, err = run(capsys, "study", "compare", "step_s", "mfu")
    assert status == 2
    assert "its objective is mfu, that of the first study is step_s: they cannot be compared" in err


def test_a_tournament_ranks_agents_and_checks_their_winners(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "study",
        "tournament",
        SPACE,
        "--agents",
        "random,genetic",
        "-n",
        "60",
        "--seeds",
        "2",
        "--stacks",
        "workload",
    )
    found = data(capsys, *words)
    assert found["optimum"] == "exhaustive"
    assert [row["regret_mean"] for row in found["leaderboard"]] == sorted(
        row["regret_mean"] for row in found["leaderboard"]
    )
    assert all(row["checked"] and row["seeds"] == 2 and row["regret_mean"] >= 0 for row in found["leaderboard"])
    assert len(found["entries"]) == 4
    assert "regret is against the exhaustive optimum" in output(capsys, *words)


@pytest.mark.long
def test_the_demo_compares_the_full_stack_with_each_layer(capsys: pytest.CaptureFixture[str]) -> None:
    out = output(capsys, "demo", "-n", "300", "--out", "d")
    assert "full stack over this" in out
    assert "report: d/report.html" in out
    assert Path("d/report.html").read_text().count("cosmic-document") == 1
    found = data(capsys, "demo", "-n", "300", "--seed", "5")
    assert found["designs"] > 300
    searched = {row["searched"]: row for row in found["searches"]}
    assert {"workload", "collective", "network", "full stack"} < set(searched)
    assert searched["full stack"]["full_stack_over_it"] == 1
    assert Path(found["report"]).is_file()


CHIPS = """
base: llama3-8b@dgx-h100:8
parameters:
  compute.accelerator: [a100-sxm-80gb, h200-sxm-141gb]
  workload.micro_batch: [1, 2]
objective: tokens_per_s
"""


def test_a_base_outside_the_set_is_told_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    Path("chips.yaml").write_text(CHIPS)
    out = output(capsys, "search", "chips.yaml", "--agent", "exhaustive", "-n", "9")
    assert re.search(r"^compute.accelerator +h100-sxm-80gb +h200-sxm-141gb$", out, re.MULTILINE)


def test_the_front_of_two_objectives_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    goals = ("--objective", "step_s", "--objective", "network_usd")
    out = output(capsys, "search", SPACE, "-n", "200", *goals)
    assert "network (USD, lower is better) over step (lower is better)" in out
    drawn = out[out.index("network (USD") : out.index("Pareto front")]
    assert "●" in drawn
    assert "○ base" in drawn
    assert max(map(len, drawn.splitlines())) <= 78


def test_what_to_do_next_is_what_can_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    Path("chips.yaml").write_text(CHIPS)
    out = output(capsys, "search", "chips.yaml", "--agent", "exhaustive", "-n", "9", "--out", "all")
    assert "--resume" not in out, "every valid design was tried"
    out = output(capsys, "search", SPACE, "-n", "20", "--out", "some")
    assert "  cosmic search --resume --out some -n 200\n" in out
    lines = out.splitlines()
    told = [above for above, line in pairwise(lines) if line.startswith("  cosmic ")]
    assert all(above.startswith("  # ") for above in told), "each command has its purpose above it"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("evaluate", "gpt3-13b"), "design = 'gpt3-13b': is a model: say on which system, as in gpt3-13b@"),
        (("evaluate", "dgx-h100:8"), "design = 'dgx-h100:8': is a system: say which model it runs, as in llama3-70b@"),
        (("design", "diff", "a", "b", "--set-b", "x"), "--set-b = 'x': write PATH=VALUE"),
        (("search", SPACE, "--setting", "x"), "--setting = 'x': write NAME=VALUE"),
        (("report", "runs/stud"), "does not exist; did you mean 'runs/study'?"),
        (("report", "runs"), "it has no study.json; did you mean 'runs/study'?"),
    ],
)
def test_what_was_probably_meant_is_said(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    Path("runs/study").mkdir(parents=True)
    Path("runs/study/study.json").write_text("{}")
    status, out, err = run(capsys, *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_the_mapping_of_a_design_is_searched_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["search", "llama3-8b@dgx-h100:4", "--framework", "deepspeed", "--fix", "micro_batch=1", "--fix", "cp=1"]
    out = output(capsys, *words, "--save-space", "mine.yaml")
    assert re.match(r"Proven best of \d+ mappings; ", out)
    assert "study: runs/llama3-8b@dgx-h100-4-bounded-0" in out
    assert "cosmic design export runs/llama3-8b@dgx-h100-4-bounded-0/best.yaml --to" in out
    first = json.loads(output(capsys, *words, "--json"))
    again = json.loads(output(capsys, "search", "mine.yaml", "--json"))
    assert (first["best"]["point"], first["trials"]) == (again["best"]["point"], again["trials"])
    assert first["plateau"]["count"] >= 1
    best = json.loads(output(capsys, "evaluate", "runs/llama3-8b@dgx-h100-4-bounded-0/best.yaml", "--json"))
    assert best["step_s"] == first["best"]["metrics"]["step_s"]


def test_a_space_takes_no_options_of_designs(capsys: pytest.CaptureFixture[str]) -> None:
    for option in (["--fix", "tp"], ["--vary", "tp=1,2"], ["--framework", "megatron"], ["--set", "tp=2"]):
        status, out, err = run(capsys, "search", SPACE, *option)
        assert (status, out) == (2, "")
        assert "is for designs" in err


LAUNCH = """TP=4
torchrun --nproc-per-node 4 pretrain_gpt.py --num-layers 4 --hidden-size 1024 --num-attention-heads 8 \\
  --seq-length 2048 \\
  --vocab-size 32000 --micro-batch-size 1 --global-batch-size 32 --tensor-model-parallel-size $TP --bf16 \\
  --use-distributed-optimizer --sequence-parallel --recompute-granularity full --recompute-method uniform \\
  --recompute-num-layers 1
"""


def test_a_launch_script_ends_with_what_to_change_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.sh").write_text(LAUNCH)
    words = ["search", "train.sh", "--from", "megatron", "--system", "dgx-h100", "--fix", "cp=1"]
    out = output(capsys, *words)
    assert "what to change in train.sh:" in out
    assert "~ --tensor-model-parallel-size 4 → --tensor-model-parallel-size 1" in out
    assert "- --recompute-granularity full" in out
    found = data(capsys, *words)
    assert "- --recompute-granularity full" in found["changes"]
    assert found["gain_over_base"] > 1.2


def test_options_of_launches_need_one(capsys: pytest.CaptureFixture[str]) -> None:
    for option in (["--system", "dgx-h100"], ["--model", "llama3-8b"], ["--define", "TP=8"]):
        status, out, err = run(capsys, "search", "llama3-8b@dgx-h100:8", *option)
        assert (status, out) == (2, "")
        assert "is for launch scripts" in err
