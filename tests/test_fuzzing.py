"""The fuzzer: it repeats itself, sees what is planted, and finds nothing wrong with a handful of commands."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(BENCHMARKS))

from fuzzing import server, stock, studies, traces, wire  # noqa: E402  it is no package that is installed
from fuzzing.commands import commands  # noqa: E402
from fuzzing.generation import KINDS, make_trial  # noqa: E402
from fuzzing.judging import failures  # noqa: E402
from fuzzing.server import Outcome, Server  # noqa: E402
from fuzzing.trial import LARGEST_BYTES, Maker, Trial  # noqa: E402
from fuzzing.values import FILES  # noqa: E402
from fuzzing.words import bounded  # noqa: E402

from cosmic.cli.dispatch import COMMANDS  # noqa: E402

CHEAP = tuple(kind for kind in KINDS if kind not in ("studies", "traces", "simulations", "interrupts"))


@pytest.fixture(scope="module")
def goods(tmp_path_factory: pytest.TempPathFactory) -> stock.Stock:
    return stock.make(tmp_path_factory.mktemp("stock"), studies=False, traces=False)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.stat().st_size < 2**20}


def test_a_trial_follows_from_seed_and_number(goods: stock.Stock, tmp_path: Path) -> None:
    made: list[list[tuple[Trial, dict[str, bytes]]]] = []
    for run in range(2):
        made.append([])
        for number in range(25):
            folder = tmp_path / f"{run}-{number}"
            folder.mkdir()
            trial = make_trial(5, number, folder, goods, CHEAP)
            made[-1].append((trial, contents(folder)))
    assert made[0] == made[1]
    assert len({trial.words for trial, _ in made[0]}) > 20


@pytest.mark.parametrize(
    "content", ["5", "[]", '{"inputs": 5}', '{"inputs": {"space": 5}}', '{"inputs": {"space": {}}}']
)
def test_a_study_that_is_spoilt_already_can_be_spoilt_again(content: str, goods: stock.Stock, tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / "study.json").write_text(content)
        with contextlib.suppress(sqlite3.Error):  # there is no database
            studies._inputs(Maker(Random(number), tmp_path, goods), tmp_path)


@pytest.mark.parametrize("what", ["pipe", "sparse", "large"])
def test_what_was_put_in_the_place_of_a_file_does_not_stop_the_fuzzer(
    what: str, goods: stock.Stock, tmp_path: Path
) -> None:
    for name in ("study.json", "t.0.et"):
        FILES[what](tmp_path / name)
    maker = Maker(Random(0), tmp_path, goods)
    with pytest.raises(ValueError, match=r"study\.json"):
        studies._inputs(maker, tmp_path)
    for _ in range(4):
        traces._spoil_trace(maker, tmp_path)
    assert not (tmp_path / "t.0.et").is_file() or (tmp_path / "t.0.et").stat().st_size > LARGEST_BYTES


def test_a_number_of_a_trace_that_does_not_end_is_refused() -> None:
    assert wire._read(wire.varint(2**64 - 1), 0) == (2**64 - 1, wire.LONGEST)
    with pytest.raises(ValueError, match="does not end"):
        list(wire.messages(b"\x80" * 1000))


@pytest.mark.long
def test_a_generator_that_hangs_is_told_from_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WALL_S", 0.2)
    monkeypatch.setattr(server, "GRACE_S", 0.1)
    [found] = Server(lambda number, folder: time.sleep(600), tmp_path).run([0])  # type: ignore[arg-type, return-value]
    assert [failure.key for failure in failures(found)] == [("hangs", "the fuzzer's generator")]


def test_large_clusters_are_not_simulated(goods: stock.Stock, tmp_path: Path) -> None:
    search = next(command for command in commands() if command.path == ("search",))
    words = bounded(
        Maker(Random(0), tmp_path, goods), search, ["search", "cosmic-1024-full-stack", "--engine", "event"]
    )
    assert words[1] == "f1.yaml"
    assert (tmp_path / "f1.yaml").exists()


def test_a_study_that_was_simulated_is_not_run_again(tmp_path: Path) -> None:
    for content, simulated in (('{"engine": "event"}', True), ('{"engine": "analytic"}', False)):
        (tmp_path / "study.json").write_text(content)
        assert studies._simulates(tmp_path) == simulated


def test_every_command_is_tried() -> None:
    assert {" ".join(command.path) for command in commands()} == set(COMMANDS)
    search = next(command for command in commands() if command.path == ("search",))
    kinds = {parameter.name: parameter.kind for parameter in search.parameters}
    assert (kinds["seed"], kinds["json"], kinds["out"]) == ("int", "flag", "Path")


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, main: Any, **given: Any) -> Outcome:
    """Return what comes of one trial of a command that does as *main*."""
    monkeypatch.setattr(server, "main", main)
    trial = Trial(0, "commands", ("evaluate", "--json"), **given)
    [found] = Server(lambda number, folder: trial, tmp_path).run([0])
    return found


def rules(outcome: Outcome) -> list[str]:
    return [failure.rule for failure in failures(outcome)]


def raises(words: object) -> None:
    raise RuntimeError("planted")


def says(text: str, status: int, *, error: bool = False) -> Any:
    def main(words: object) -> None:
        (sys.stderr if error else sys.stdout).write(text)
        sys.exit(status)

    return main


@pytest.mark.parametrize(
    ("main", "rule"),
    [
        (raises, "prints a traceback"),
        (says("", 7), "ends with status 7"),
        (says("", 2), "ends with status 2 and no sentence"),
        (says("", 1), "ends with status 1 and says nothing"),
        (says('{"a": NaN}', 0), "prints no JSON"),
        (says('"\x1b[31m"', 0), "prints a control character on standard output"),
        (says("x.py:1: RuntimeWarning: overflow\n", 0, error=True), "prints a warning of Python"),
        (lambda words: Path(".a.0123456789ab").write_text(""), "leaves something behind"),
        (lambda words: os.kill(os.getpid(), 9), "is ended by signal 9"),
    ],
)
def test_what_is_planted_is_reported(main: Any, rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rule in rules(run(tmp_path, monkeypatch, main))


def test_what_is_right_is_not_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rules(run(tmp_path, monkeypatch, says("cosmic evaluate: a = 1: is odd\n", 2, error=True))) == []
    assert rules(run(tmp_path, monkeypatch, says('{"a": 1}\n', 0))) == []


def test_commands_that_do_not_end_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WALL_S", 0.2)
    monkeypatch.setattr(server, "GRACE_S", 0.1)
    assert rules(run(tmp_path, monkeypatch, lambda words: time.sleep(600))) == ["hangs"]


def test_ctrl_c_comes_and_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run(tmp_path, monkeypatch, lambda words: time.sleep(60), interrupt_s=0.1)
    assert (outcome.status, outcome.late_s is not None) == (130, True)
    assert rules(outcome) == ["prints a traceback"]


@pytest.mark.long
def test_the_command_reports_in_json() -> None:
    words = [sys.executable, str(BENCHMARKS / "fuzz.py"), "--trials", "20", "--kinds", "settings,designs", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    found = json.loads(done.stdout)
    assert (found["trials"], sum(found["kinds"].values()), found["changed"]) == (20, 20, [])
    assert done.returncode == int(bool(found["failures"]))
    assert set(found["worst"]) == {"cpu_s", "wall_s", "rss_bytes"}
