"""Commands that are printed can be pasted into a shell, whatever the terminal's width; tables lose nothing."""

from __future__ import annotations

import random
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cosmic.cli.console import command_lines, emit_commands, emit_table
from cosmic.cli.dispatch import main
from cosmic.search.search_loop import search
from tests.cli.test_manners import Terminal
from tests.commands import run

WIDTHS = [None, 1, 10, 40, 80, 120]
COMMANDS = [
    ["cosmic", "report", "runs/a"],
    ["cosmic", "evaluate", "llama3-70b@dgx-h100:512", "--set", "tp=8", "--set", "pp=4", "--set", "recompute=full"],
    ["cosmic", "search", "--resume", "--out", "runs/a study with blanks and 'quotes' \"of two kinds\"", "-n", "500"],
    ["cosmic", "study", "export", "it's", "--to", "back\\slash $HOME `x` #no !b.csv", "", "--json"],
    ["cosmic", "simulate", *(word for n in range(9) for word in (f"--file-{n}", f"some/where/{n * 'x'}.json"))],
    ["cosmic", "evaluate", "x" * 150, "--set", "y" * 130],
]


def pasted(text: str) -> list[str]:
    """Return the words that a shell reads in lines that were copied from a terminal."""
    return shlex.split(text.replace("\\\n", ""))


@pytest.mark.parametrize("room", WIDTHS)
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[1])
def test_a_command_is_pasted_as_it_was_meant(words: list[str], room: int | None) -> None:
    lines = command_lines(shlex.join(words), room)
    assert pasted("\n".join(lines)) == words
    assert all(line.endswith(" \\") for line in lines[:-1])
    if room is None:
        assert len(lines) == 1
    elif room >= 40:
        longest = max(len(shlex.quote(word)) for word in words)
        assert max(map(len, lines)) <= max(room, longest + len("     \\"))


def test_a_shell_reads_the_lines_too() -> None:
    generator = random.Random(5)
    letters = "ab -'\"\\$`#!*?[]{}~=:@é"
    for room in (12, 25, 40):
        words = ["printf", "%s\\n", *("".join(generator.choices(letters, k=9)) for _ in range(12))]
        lines = command_lines(shlex.join(words), room)
        found = subprocess.run(["sh", "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
        assert found.stdout.splitlines() == words[2:]


@pytest.mark.parametrize("columns", [40, 80, 120, None])
def test_every_command_after_a_search_can_be_pasted(
    columns: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path / "a study")
    words = ["search", "cosmic-512-full-stack", "-n", "5", "--agent", "random", "--out", folder]
    if columns is None:
        status, shown, _ = run(capsys, *words)
    else:
        terminal = Terminal()
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "stdout", terminal)
        with pytest.raises(SystemExit) as ended:
            main(words)
        status, shown = int(str(ended.value.code)), terminal.getvalue()
    assert status == 0
    lines = shown.partition("\nstudy: ")[2].splitlines()[1:]
    commands = "\n".join(line for line in lines if not line.startswith("  #")).replace("\\\n", "")
    found = [shlex.split(line) for line in commands.splitlines() if line]
    assert found == [
        ["cosmic", "report", folder],
        ["cosmic", "evaluate", f"{folder}/best.yaml"],
        *([found[2]] if found[2][-2] == "--to" and found[2][-1] in ("megatron", "torchtitan", "deepspeed") else []),
        ["cosmic", "study", "export", folder, "--to", "trials.csv"],
        ["cosmic", "study", "importance", folder],
        ["cosmic", "study", "replay", folder, "--check"],
        ["cosmic", "search", "--resume", "--out", folder, "-n", "50"],
    ]


def test_the_purpose_is_above_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    emit_commands({"cosmic catalog list": "what there is", "cosmic demo": "a search"})
    assert capsys.readouterr().out == "  # what there is\n  cosmic catalog list\n  # a search\n  cosmic demo\n"


@pytest.mark.parametrize("columns", [1, 2, 5, 9, 12, 30])
def test_a_table_is_never_blank(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    cells = ["workload.micro_batch", "123456", "some text", "yes", "no"]
    emit_table("", ["name", "values", "text", "a", "b"], [cells])
    shown = "".join(terminal.getvalue().split())
    assert sorted(shown) == sorted("".join([*cells, "name", "values", "text", "a", "b"]).replace(" ", ""))


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        "evaluate gpt3-125m@dgx-h100:8 --timeline -",
        "simulate --timeline - --workload t --system s.json --network n.yml",
        "search cosmic-512-full-stack -n 2 --out -",
        "demo -n 10 --out -",
        "report study --out -",
        "study compare study --plot -",
        "design export gpt3-125m@dgx-h100:8 --to deepspeed --out -",
        "trace generate gpt3-125m@dgx-h100:8 --out -",
        "calibrate validate --page -",
        "schema --page -",
    ],
    ids=lambda words: words.split()[0],
)
def test_a_dash_is_no_file(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    search("cosmic-512-full-stack", trials=2, out="study")
    status, out, err = run(capsys, *words.split())
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert "= '-': " in err
    assert [path.name for path in tmp_path.iterdir()] == ["study"]
