"""Completion: what fits where the cursor is, and that shells find it there."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cosmic.cli import value_completion
from cosmic.cli.completion_command import SHELLS, answer_shell
from cosmic.cli.dispatch import COMPLETE, HEADINGS, main
from tests.commands import output, run

Complete = Callable[[str], list[str]]


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Complete:
    """A function from a line, its last word being written, to the candidates for that word."""
    monkeypatch.setitem(sys.modules, "rich", None)  # as `answer` does; restored after the test

    def complete(line: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", f"cosmic {line}")
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" "))))
        assert answer_shell("complete_bash") == 0
        return capsys.readouterr().out.split()

    return complete


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("stu", ["study"]),
        ("study imp", ["importance"]),
        ("catalog show models llama3-40", ["llama3-405b"]),
        ("se", ["search", "serve"]),
        ("serve x --eng", ["--engine"]),
        ("serve x --precision f", ["fp4", "fp8"]),
        ("--v", ["--version"]),
        ("space co", ["count"]),
        ("search --tri", ["--trials"]),
        ("search cosmic-51", ["cosmic-512-full-stack"]),
        ("search x --agent gen", ["genetic"]),
        ("search x --agent=gen", ["genetic"]),
        ("search x --objective perf_per_b", ["perf_per_bandwidth"]),
        ("search x --constraint memory", ["memory_bytes", "memory_used_bytes"]),
        ("search x --stacks workload,net", ["workload,network"]),
        ("search x --engine ", ["analytic", "event", "ray"]),
        ("study tournament x --agents random,gen", ["random,genetic"]),
        ("evaluate gpt3-13", ["gpt3-13b@"]),
        ("evaluate gpt3-13b@dgx-h2", ["gpt3-13b@dgx-h200"]),
        ("design diff gpt3-13b@dgx-h100 llama3-8", ["llama3-8b@"]),
        ("evaluate x --set workload.sch", ["workload.schedule="]),
        ("evaluate x --set workload.recompute=s", ["workload.recompute=selective"]),
        ("evaluate x --set tp", ["tp=", "tp_overlap=", "tp_hiding=", "tpot_slo="]),
        ("evaluate x --set recompute=s", ["recompute=selective"]),
        ("evaluate x --set network.dims.0.topology=sw", ["network.dims.0.topology=switch"]),
        ("design sweep x --vary dp_overlap=", ["dp_overlap=true", "dp_overlap=false"]),
        ("design sweep x --metric mf", ["mfu"]),
        ("simulate --backend a", ["aware"]),
        ("design export x --to meg", ["megatron"]),
        ("catalog list top", ["topologies"]),
        ("catalog list models ", []),
        ("schema cal", ["calibrate"]),
        ("calibrate validate --by laye", ["layers"]),
        ("completion f", ["fish"]),
        ("search --trials ", []),
    ],
)
def test_what_fits_is_offered_and_nothing_else(words: Complete, line: str, found: list[str]) -> None:
    assert words(line) == found


def test_commands_and_options_are_all_offered(words: Complete) -> None:
    assert set(words("")) == {name for names in HEADINGS.values() for name in names}
    assert words("study leaderboard ") == ["new", "enter", "show"]
    assert {"--agent", "--trials", "-n", "--json", "--help", "--resume"} <= set(words("search -"))
    assert set(words("space ")) == {"show", "count", "sample", "schema", "certify"}


def test_a_short_name_is_offered_only_where_it_is_unique(words: Complete) -> None:
    offered = words("evaluate x --set ")
    assert {"tp=", "workload.tp=", "network.dims.3.bandwidth="} <= set(offered)
    assert "bandwidth=" not in offered  # of the network or of memory
    assert len(offered) == len(set(offered))


def test_names_that_are_listed_without_loading_registries_are_those_of_the_registries() -> None:
    from cosmic.search.agent import agents  # noqa: PLC0415
    from cosmic.simulate.metrics import BETTER  # noqa: PLC0415

    assert value_completion.complete_agents("") == list(agents)
    assert value_completion.complete_metrics("") == list(BETTER)


def test_entries_of_the_user_are_offered_as_well(
    words: Complete, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine-7b.yaml").touch()
    monkeypatch.setenv("COSMIC_PATH", str(tmp_path))
    assert words("evaluate mine") == ["mine-7b@"]


def test_what_a_shell_would_run_is_not_offered(
    words: Complete, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    for name in ("mine-7b", "mine$(touch x)", "mine;x", "mine x", "mine*"):
        (tmp_path / "models" / f"{name}.yaml").touch()
    monkeypatch.setenv("COSMIC_PATH", str(tmp_path))
    assert words("evaluate mine") == ["mine-7b@"]


def test_folders_of_the_user_that_are_at_fault_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)  # as `answer` does; restored after the test
    monkeypatch.setenv("COSMIC_PATH", "nosuch")
    for name, value in (
        ("COMP_WORDS", "cosmic evaluate x"),
        ("COMP_CWORD", "2"),
        ("_COSMIC_COMPLETE", "complete_bash"),
    ):
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("is no folder\n")


# ---- shells


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which cosmic is this one."""
    command = tmp_path / "bin" / "cosmic"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m cosmic "$@"\n')
    command.chmod(0o755)
    return f"{command.parent}{os.pathsep}{os.environ['PATH']}"


def bash(line: str, path: str) -> list[str]:
    """Return what bash would offer for a line: what is left of a word that it breaks before '@' and behind '='."""
    script = f"""
        source <(cosmic completion bash)
        complete -p cosmic >&2
        compopt() {{ echo "$2"; }}  # it works only while the key is pressed
        COMP_LINE={line!r} COMP_POINT={len(line)}
        _cosmic cosmic
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    ended = subprocess.run(
        ["bash", "--norc", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    )
    assert ended.stderr == "complete -o default -F _cosmic cosmic\n"
    return [each for each in ended.stdout.split("\n") if each]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("cosmic study comp", ["compare"]),
        ("cosmic sea", ["search"]),
        ("cosmic catalog list mod", ["models"]),
        ("cosmic evaluate gpt3-13", ["nospace", "gpt3-13b@"]),
        ("cosmic evaluate gpt3-13b@dgx-h2", ["@dgx-h200"]),
        ("cosmic evaluate x --set workload.recompute=se", ["selective"]),
        ("cosmic evaluate x --set sequence_parallel=", ["true", "false"]),
        ("cosmic evaluate my", []),  # bash itself completes files
    ],
)
def test_bash_completes(line: str, found: list[str], path: str) -> None:
    assert sorted(bash(line, path)) == sorted(found)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_can_read_its_script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script"
    script.write_text(output(capsys, "completion", shell))
    assert f"{COMPLETE}=complete_" in script.read_text()
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    subprocess.run([shell, "--no-execute" if shell == "fish" else "-n", str(script)], check=True)


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "completion", "fsh") == (
        2,
        "",
        "cosmic completion: shell = 'fsh': no such shell; did you mean 'fish'?\n",
    )


@pytest.mark.parametrize("given", [{}, {"COMP_WORDS": "cosmic 'un"}, {"COMP_WORDS": "cosmic ev", "COMP_CWORD": "x"}])
def test_words_that_no_shell_sends_get_no_traceback(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert answer_shell("complete_bash") == 1
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.long
def test_a_press_of_the_key_is_answered_at_once() -> None:
    """At most four times the processor time of importing what it is made with, in the best of five."""
    given = {"COMP_WORDS": "cosmic evaluate gpt3-13b@dgx", "COMP_CWORD": "2", COMPLETE: "complete_bash"}

    def seconds(*line: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *line], env={**os.environ, **given}, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    took, plain = (min(seconds(*line) for _ in range(5)) for line in (("-m", "cosmic"), ("-c", "import typer, yaml")))
    assert took <= 4 * plain
