"""Engines that are programs: what goes in, what comes out, and what goes wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.user_engines import engines, external

Ask = Callable[..., Any]
OUT = "import json, sys\nfound = json.load(sys.stdin)\nprint(json.dumps({}))"


def test_fields_go_in_and_metrics_come_out(program: Ask) -> None:
    code = OUT.format("{'metrics': {'latency_s': found['fields']['scratch'] / found['fields']['tile']}}")
    assert program(code).metrics == {"latency_s": 1024.0}


def test_a_design_goes_in_as_fields_and_as_a_file_has_it(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(OUT.format("{'infeasible': [json.dumps(sorted(found)), found['design']['workload']['tp']]}"))
    external("designs", [sys.executable, "-S", path], version="1", metrics={"a": "less"})
    found = engines["designs"].ask(load_design("llama3-8b@dgx-h100:8", {"tp": 4}))
    assert found.reasons == ('["design"; "engine"; "fields"]', "4")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('hello')", "printed no JSON: hello"),
        ("", "printed no JSON: nothing"),
        ("print('{\"metrics\": 3}')", "printed other JSON than"),
        ("print('[]')", "printed other JSON than"),
        ("import sys; sys.exit('out of licences')", "ended with status 1: out of licences"),
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
        ("print('x' * 2**21)", "printed more than 1 MiB"),
        ('print(\'{"metrics": {"latency_s": NaN}}\')', "returned latency_s = nan"),
    ],
)
def test_what_goes_wrong_is_a_reason(program: Ask, code: str, said: str) -> None:
    found = program(code)
    assert found.failed
    assert said in found.reasons[0]


def test_a_program_that_takes_too_long_is_killed_with_all_that_it_started(program: Ask, tmp_path: Path) -> None:
    child = "import subprocess, time; p = subprocess.Popen(['sleep', '60']); "
    child += "open({!r}, 'w').write(str(p.pid)); time.sleep(60)"
    found = program(child.format(str(tmp_path / "pid")), timeout_s=0.5)
    assert found.reasons == ("engine failed: took longer than 0.5 s",)
    _gone(int((tmp_path / "pid").read_text()))


def test_a_program_that_closes_its_streams_and_goes_on_takes_too_long(program: Ask) -> None:
    code = "import os, time; os.close(0); os.close(1); os.close(2); time.sleep(60)"
    assert program(code, timeout_s=0.3).reasons == ("engine failed: took longer than 0.3 s",)


def test_a_program_that_is_not_there_is_named() -> None:
    external("absent", ["./no-such-program"], version="1", metrics={"a": "less"})
    point = load_design("llama3-8b@dgx-h100:8")
    assert engines["absent"].ask(point).reasons == (
        "engine failed: ./no-such-program cannot be run: No such file or directory",
    )


def test_a_command_is_a_list_of_texts_and_a_timeout_above_zero() -> None:
    with pytest.raises(SpecError, match="give a program and its arguments"):
        external("one", [], version="1", metrics={"a": "less"})
    with pytest.raises(SpecError, match="must be a number of seconds"):
        external("one", ["true"], version="1", metrics={"a": "less"}, timeout_s=0)


def test_the_identity_is_that_of_the_programs_content(tmp_path: Path) -> None:
    said = []
    for folder, text in (("a", "1"), ("b", "1"), ("c", "2")):
        path = tmp_path / folder / "program"
        path.parent.mkdir()
        path.write_text(text)
        external("same", ["sh", str(path)], version="1", metrics={"a": "less"})
        said.append(engines["same"].identity)
        del engines._variants["same"]
    assert said[0] == said[1] != said[2]


PLUGIN = """
import sys
from dataclasses import dataclass
from cosmic.design.design_point import EngineFields
from cosmic.simulate.user_engines import external

@dataclass(frozen=True)
class Wait(EngineFields):
    n: int = 1

CODE = "import json, sys, os, time; n = json.load(sys.stdin)['fields']['n']; "
CODE += "open(f'pid-{n}', 'w').write(str(os.getpid())); "
CODE += "sys.exit(n) if n == 3 else time.sleep(60) if n > 4 else print(json.dumps({'metrics': {'wait_s': n}}))"
external("wait", [sys.executable, "-S", "-c", CODE], version="1", metrics={"wait_s": "less"}, fields=Wait)
"""


@pytest.mark.long
def test_a_study_goes_on_after_failures_and_ctrl_c_ends_the_programs_of_workers(tmp_path: Path) -> None:
    (tmp_path / "mine" / "engines").mkdir(parents=True)
    (tmp_path / "mine" / "engines" / "wait.py").write_text(PLUGIN)
    values = list(range(1, 7))
    (tmp_path / "wait.yaml").write_text(json.dumps({"engine": "wait", "parameters": {"n": values}}))
    command = [
        sys.executable,
        "-m",
        "cosmic",
        "search",
        "wait.yaml",
        "--workers",
        "2",
        "--batch",
        "2",
        "--out",
        "study",
    ]
    searching = subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "COSMIC_PATH": "mine"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    until = time.monotonic() + 120
    while not (tmp_path / "pid-5").exists() and time.monotonic() < until:
        assert searching.poll() is None, searching.communicate()
        time.sleep(0.05)
    time.sleep(0.2)  # its number is being written
    searching.send_signal(signal.SIGINT)
    printed = searching.communicate(timeout=60)[0].decode()
    assert searching.returncode == 130
    assert "best design (trial 0)" in printed
    _gone(int((tmp_path / "pid-5").read_text()))


def _gone(pid: int) -> None:
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} runs on")
