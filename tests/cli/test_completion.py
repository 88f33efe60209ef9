"""Completion: what fits where the cursor is, and that shells find it there."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from tests.commands import output, run

from cosmic.cli import COMMANDS
from cosmic.cli.completing import WORDS, answer, complete
from cosmic.cli.completion import FREE, SCRIPTS, SHELLS, VALUES, _parameters, describe

BREAKS = " \t\n\"'@><=;|&(:"
"""At what bash breaks words, unless told otherwise."""


def words(line: str) -> list[str]:
    """Return the candidates for a line, its last word being written."""
    return [word for word, _ in complete(line.split(" "))[1]]


def test_the_table_of_words_is_what_the_commands_say() -> None:
    assert json.loads(WORDS.read_text()) == describe(), "run: python -m cosmic.cli.completion"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("se", ["search"]),
        ("psa co", ["count"]),
        ("search --tri", ["--trials"]),
        ("search cosmic-51", ["cosmic-512-full-stack"]),
        ("search x --agent gen", ["genetic"]),
        ("search x --agent=gen", ["--agent=genetic"]),
        ("search x --objective perf_per_b", ["perf_per_bandwidth"]),
        ("search x --constraint memory", ["memory_bytes"]),
        ("search x --stacks workload,net", ["workload,network"]),
        ("search x --setting popul", ["population="]),
        ("search x --engine ", ["analytic", "event", "ray"]),
        ("tournament x --agents random,gen", ["random,genetic"]),
        ("evaluate gpt3-13", ["gpt3-13b@"]),
        ("evaluate gpt3-13b@dgx-h2", ["gpt3-13b@dgx-h200"]),
        ("diff gpt3-13b@dgx-h100 llama3-8", ["llama3-8b@"]),
        ("evaluate x --set workload.sch", ["workload.schedule="]),
        ("evaluate x --set workload.recompute=s", ["workload.recompute=selective"]),
        ("evaluate x --set network.dims.0.topology=sw", ["network.dims.0.topology=switch"]),
        ("sweep x --vary workload.dp_overlap=", ["workload.dp_overlap=true", "workload.dp_overlap=false"]),
        ("sweep x --metric mf", ["mfu"]),
        ("simulate --backend a", ["aware"]),
        ("export x --to meg", ["megatron"]),
        ("list top", ["topologies"]),
        ("list models ", []),
        ("schema val", ["validate"]),
        ("completion f", ["fish"]),
        ("nosuch ", []),
        ("search --trials ", []),
    ],
)
def test_what_fits_is_offered_and_nothing_else(line: str, found: list[str]) -> None:
    assert words(line) == found


def test_commands_and_options_are_all_offered() -> None:
    assert set(words("")) == set(COMMANDS)
    assert {"--agent", "--trials", "-n", "--json", "--help", "--resume"} <= set(words("search -"))
    assert set(words("psa ")) == {"show", "count", "sample", "schema"}
    assert dict(complete(["sea"])[1])["search"] == COMMANDS["search"][1]


@pytest.mark.parametrize(
    ("line", "besides"),
    [
        ("evaluate ", "files"),
        ("compare a ", "folders"),
        ("search x --out ", "folders"),
        ("simulate --system ", "files"),
        ("search x --agent ", "none"),
    ],
)
def test_files_are_offered_where_they_fit(line: str, besides: str) -> None:
    assert complete(line.split(" "))[0] == besides


def test_entries_of_the_user_are_offered_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine-7b.yaml").touch()
    monkeypatch.setenv("COSMIC_PATH", str(tmp_path))
    assert words("evaluate mine") == ["mine-7b@"]


def test_every_option_that_takes_a_text_has_values_or_takes_any() -> None:
    for name, (module, _) in COMMANDS.items():
        for command in import_module(f"cosmic.cli.{module}").app.registered_commands:
            for parameter, (hint, _) in _parameters(command.callback).items():
                if "str" in str(hint):
                    assert parameter in VALUES or parameter in FREE, f"{name}: say what fits {parameter}"


def test_bash_gets_what_is_left_of_a_word_that_it_breaks() -> None:
    """It breaks before an '@' and after the others, as it turned out at a real prompt."""
    assert list(answer(["bash", "cosmic evaluate gpt3-13b@dgx-h2", BREAKS])) == ["files", "@dgx-h200"]
    assert list(answer(["bash", "cosmic evaluate x --set workload.recompute=se", BREAKS])) == ["none", "selective"]
    assert list(answer(["bash", "cosmic evaluate gpt3-13b@dgx-h2", " "])) == ["files", "gpt3-13b@dgx-h200"]
    assert list(answer(["zsh", "cosmic", "psa", "co"]))[1].startswith("count\tPrint how many points")
    assert list(answer([])) == ["none", *COMMANDS]


# --------------------------------------------------------------------------------------------------- shells


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which cosmic is this one."""
    command = tmp_path / "bin" / "cosmic"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m cosmic "$@"\n')
    command.chmod(0o755)
    return f"{command.parent}{os.pathsep}{os.environ['PATH']}"


def bash(line: str, path: str, folder: Path) -> list[str]:
    """Return what bash would offer for a line, from its own arrays."""
    script = f"""
        source <(cosmic completion bash)
        complete -p cosmic >&2
        compopt() {{ :; }}  # it works only while the key is pressed
        COMP_LINE={line!r} COMP_POINT={len(line)} COMP_WORDS=({line}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        [[ $COMP_LINE == *' ' ]] && COMP_CWORD=${{#COMP_WORDS[@]}}
        _cosmic
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    ended = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={**os.environ, "PATH": path},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stderr == "complete -F _cosmic cosmic\n"
    return [each for each in ended.stdout.split("\n") if each]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("line", "found"),
    [("cosmic sea", ["search"]), ("cosmic list mod", ["models"]), ("cosmic evaluate my", ["my design.yaml"])],
)
def test_bash_completes(line: str, found: list[str], path: str, tmp_path: Path) -> None:
    (tmp_path / "my design.yaml").touch()
    assert bash(line, path, tmp_path) == found


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_can_read_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "completion", shell)
    assert text == (SCRIPTS / f"cosmic.{shell}").read_text()
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    no_run = "--no-execute" if shell == "fish" else "-n"
    subprocess.run([shell, no_run, str(SCRIPTS / f"cosmic.{shell}")], check=True)


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "completion", "fsh") == (
        2,
        "",
        "cosmic completion: shell = 'fsh': no such shell; did you mean 'fish'?\n",
    )


def test_a_press_of_the_key_is_answered_at_once() -> None:
    """At most 0.15 s of processor time, in the best of five, and no library is loaded."""

    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        line = [sys.executable, "-m", "cosmic", "__complete", "bash", "cosmic evaluate gpt3-13b@dgx", BREAKS]
        subprocess.run(line, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    assert min(seconds() for _ in range(5)) <= 0.15
