"""How commands behave on terminals, in pipes, in the middle of it, and when a word is misspelt."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from cosmic.cli import output_streams
from cosmic.cli.console import emit_table, has_style, print_sentences
from cosmic.cli.dispatch import main, split_command
from cosmic.cli.output_streams import ERASE, Patience, StatusLine, doing
from cosmic.design import catalog_entries
from tests.commands import output, run

DESIGN = "llama3-8b@dgx-h100:8"
SPACE = "cosmic-512-full-stack"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        """It is one."""
        return True

    def fileno(self) -> int:
        """It has no size that could be asked for."""
        raise OSError


def cosmic_process(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return subprocess.run(
        [sys.executable, "-m", "cosmic", *words], env={**clean, **environment}, capture_output=True, check=False
    )


# ---- help


def test_help_fits_a_narrow_terminal_and_lists_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    out = output(capsys, "--help")
    assert max(map(len, out.splitlines())) <= 80
    listed = " ".join(out.partition("Exit codes: ")[2].split())
    codes = "0 done, 1 no feasible design or a failed check, 2 bad input, 130 interrupted, 141 nobody reads,"
    assert listed == f"{codes} 143 terminated."


def test_help_of_a_command_can_be_asked_for_in_two_ways(capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "help", "design", "show") == output(capsys, "design", "show", "--help")
    assert run(capsys, "help", "serach")[2] == "cosmic: no command 'serach'; did you mean 'cosmic search'?\n"


# ---- did you mean


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("serach", "'cosmic search'"),
        ("--hlep", "'--help'"),
        ("--verison", "'--version'"),
        ("space cuont x", "'cosmic space count'"),
        ("trace stast x", "'cosmic trace stats'"),
        ("search --tirals 3", "'--trials'"),
        ("space show x --stakcs y", "'--stacks'"),
        ("catalog list modles", "'models'"),
        ("evaluate lama3-8b@dgx-h100", "'llama3-8b'"),
        ("evaluate llama3-8b@dgx-h10", "'dgx-h100'"),
        (f"evaluate {DESIGN} --engine evnt", "'event'"),
        (f"design show {DESIGN} --set workloda.tp=1", "'workload'"),
        (f"design show {DESIGN} --set workload.tpp=1", "'tp'"),
        (f"design show {DESIGN} --set network.dims.0.topology=swich", "'switch'"),
        (f"design show {DESIGN} --set workload.recompute=ful", "'full'"),
        (f"design show {DESIGN} --set workload.schedule=gpip", "'gpipe'"),
        (f"design show {DESIGN} --set collective.algorithms.0=rign", "'ring'"),
        (f"design sweep {DESIGN} --vary workload.tpp=1,2", "'tp'"),
        (f"design sweep {DESIGN} --vary workload.tp=1 --metric stepp_s", "'step_s'"),
        (f"design diff {DESIGN} llama3-8b@dgx-h10", "'dgx-h100'"),
        (f"design export {DESIGN} --to megatrn", "'megatron'"),
        ("space count cosmic-512-ful-stack", f"'{SPACE}'"),
        (f"space count {SPACE} --stacks netwrok", "'network'"),
        (f"study tournament {SPACE} --agents gentic", "'genetic'"),
        (f"study tournament {SPACE} --objective stepp_s", "'step_s'"),
        (f"study tournament {SPACE} --constraint memory_byte<=1GB", "'memory_bytes'"),
        (f"study tournament {SPACE} --engine evnt", "'event'"),
        (f"search {SPACE} --setting populaton=3", "'population'"),
        ("completion bsh", "'bash'"),
        ("schema evalute", "'evaluate'"),
    ],
)
def test_a_misspelt_word_is_answered_with_the_one_that_was_meant(
    words: str, meant: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, *words.split())
    assert (status, out) == (2, "")
    assert re.search(rf"[Dd]id you mean {re.escape(meant)}\?$", err.strip().splitlines()[-1])
    assert not list(tmp_path.iterdir())


# ---- pipes and style


@pytest.mark.parametrize(
    ("environment", "terminal", "styled"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"NO_COLOR": "1"}, True, False),
        ({"CLICOLOR": "0"}, True, False),
        ({"TERM": "dumb"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"CLICOLOR_FORCE": "1"}, False, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
    ],
)
def test_heads_are_bold_on_terminals_alone_unless_the_environment_says_otherwise(
    environment: dict[str, str], terminal: bool, styled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    emit_table("", ["name"], [["value"]])
    assert has_style() is styled
    assert ("\x1b[1m" in stream.getvalue()) is styled


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 120])
@pytest.mark.parametrize("kind", ["systems", "models", "accelerators", "agents"])
def test_tables_fit_the_terminal_and_lose_nothing(kind: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    with pytest.raises(SystemExit):
        main(["catalog", "list", kind])
    shown = terminal.getvalue()
    assert max(map(len, shown.splitlines())) <= columns
    assert "…" not in shown
    if columns >= 80:
        names = catalog_entries.entry_names(kind) if kind in catalog_entries.KINDS else ["genetic"]
        assert all(f"\n{name} " in shown for name in names)


def test_a_wide_table_is_one_line_a_row_when_piped(capsys: pytest.CaptureFixture[str]) -> None:
    emit_table("", ["first", "long", "number_bytes"], [["a", "word " * 500, 2**30], ["b", "", None]])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(line == line.rstrip() for line in lines)


def test_sentences_are_broken_between_words_on_a_terminal_and_whole_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = "accelerator h100-sxm-80gb " * 8
    print_sentences([sentence])
    assert capsys.readouterr().out == f"{sentence}\n"
    monkeypatch.setenv("COLUMNS", "60")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    print_sentences([sentence])
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    assert " ".join(lines).split() == sentence.split()


ASCII_COMMANDS = [
    f"evaluate {DESIGN}",
    f"design diff {DESIGN} {DESIGN} --set-b workload.tp=2",
    f"design sweep {DESIGN} --vary workload.tp=1,2 --vary workload.micro_batch=1,2",
    f"design workload {DESIGN}",
    f"space show {SPACE}",
    "catalog list systems",
    "study compare one",
    "evaluate grün@dgx-h100",
]


@pytest.mark.long
@pytest.mark.parametrize("words", ASCII_COMMANDS)
def test_where_there_is_only_ascii_something_stands_for_other_letters(
    words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if "one" in words:
        run(capsys, "search", SPACE, "-n", "40", "--agent", "random", "--out", "one")
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    out.flush()
    err.flush()
    said = out.buffer.getvalue() + err.buffer.getvalue()
    assert ended.value.code == (2 if "grün" in words else 0)
    assert said.isascii()
    assert b"Traceback" not in said
    assert b"\\u" not in said


def test_json_in_ascii_is_the_same_json() -> None:
    plain = cosmic_process("catalog", "list", "systems", "--json", LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    usual = cosmic_process("catalog", "list", "systems", "--json", PYTHONIOENCODING="utf-8")
    assert (plain.returncode, plain.stderr) == (0, b"")
    assert plain.stdout.isascii()
    assert not usual.stdout.isascii()
    assert json.loads(plain.stdout) == json.loads(usual.stdout)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device")
def test_an_output_that_cannot_be_written_is_one_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "cosmic", "catalog", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr == "cosmic: standard output: cannot be written: No space left on device\n"


# ---- progress


def test_a_silent_command_is_spoken_for_and_the_line_is_gone_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(output_streams, "PATIENCE_S", 0.01)
    monkeypatch.setattr(output_streams, "REDRAW_INTERVAL_S", 0.01)
    with Patience("trace"):
        doing("reading traces")
        deadline = time.monotonic() + 10
        while "reading" not in terminal.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert f"{ERASE}cosmic trace: reading traces · 0 s" in terminal.getvalue()
    assert terminal.getvalue().endswith(ERASE)


def test_a_command_that_speaks_is_not_spoken_for(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(output_streams, "PATIENCE_S", 0.05)
    with Patience("search"), StatusLine() as line:
        line.show("3 of 10 trials")
        time.sleep(0.1)
    assert "working" not in terminal.getvalue()
    assert terminal.getvalue() == f"{ERASE}3 of 10 trials{ERASE}"


@pytest.mark.parametrize(("terminal", "term"), [(False, "xterm"), (True, "dumb")])
def test_nothing_is_drawn_where_it_could_not_be_erased(
    terminal: bool, term: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(output_streams, "PATIENCE_S", 0.0)
    with Patience("trace"), StatusLine() as line:
        line.show("text")
    assert stream.getvalue() == ""


def test_a_line_that_is_too_long_is_cut_so_that_it_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    StatusLine(shown=True).show("word " * 100)
    assert len(terminal.getvalue().removeprefix(ERASE)) < 80


def read_terminal(ours: int, until: bytes = b"nothing is ever called so") -> bytes:
    """Return what was drawn on a terminal *until* something is, or until its other end is closed."""
    drawn = b""
    while until not in drawn and select.select([ours], [], [], 60)[0]:
        try:
            part = os.read(ours, 1000)
        except OSError:  # the other end is closed
            break
        drawn += part
    return drawn


@pytest.mark.long
def test_progress_goes_to_the_terminal_and_data_to_the_pipe() -> None:
    """A command that takes more than a second, with a terminal on standard error alone."""
    ours, theirs = pty.openpty()
    code = "import time; from cosmic.cli import dispatch as cli\n"
    code += "from cosmic.search.mapping import design_completion as d; load = d.load_design\n"
    code += "d.load_design = lambda *a: (time.sleep(1.8), load(*a))[1]\n"
    code += f"cli.main(['design', 'show', '{DESIGN}'])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(theirs)
        drawn = read_terminal(ours)
        assert process.stdout is not None
        out = process.stdout.read()
    os.close(ours)
    assert process.returncode == 0
    assert re.search("cosmic design show: working · [0-9]+ s".encode(), drawn)
    assert drawn.endswith(ERASE.encode())
    assert out.startswith(b"# ")
    assert b"\x1b" not in out


# ---- interruption


@pytest.mark.parametrize(
    ("words", "at"),
    [
        (f"design sweep {DESIGN} --vary workload.tp=1,2", "cosmic.search.compare.remapping.evaluate"),
        (f"design diff {DESIGN} {DESIGN}", "cosmic.search.design_answers.compare_designs"),
        (f"design export {DESIGN} --to megatron", "cosmic.evaluation.evaluate"),
        (f"trace generate {DESIGN} --out x", "cosmic.simulate.trace_generation.generate_traces"),
        ("trace stats x", "cosmic.traces.trace_jobs.read_traces"),
        (f"space count {SPACE}", "cosmic.search.space.space_files.load_space"),
        (f"study tournament {SPACE}", "cosmic.search.leaderboard.hold_tournament"),
        ("study compare x", "cosmic.search.study.study.open_study"),
        ("study replay x", "cosmic.search.study.study_comparison.replay_study"),
        ("study doctor x", "cosmic.search.study.doctor.repair_study"),
        ("calibrate validate", "cosmic.accuracy.validating.validate"),
        (f"design workload {DESIGN}", "cosmic.search.design_answers.load_design"),
        ("catalog list models", "cosmic.cli.catalog_commands.list_entries"),
    ],
)
def test_an_interruption_is_one_line_and_exit_code_130(
    words: str, at: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    module, _, name = at.rpartition(".")
    monkeypatch.setattr(import_module(module), name, interrupted)
    assert run(capsys, *words.split()) == (130, "", f"cosmic {split_command(words.split())[0]}: interrupted\n")
    assert not list(tmp_path.iterdir())


def test_ctrl_c_ends_a_sweep_at_once() -> None:
    values = ",".join(map(str, range(1, 5000)))
    words = [
        sys.executable,
        "-m",
        "cosmic",
        "design",
        "sweep",
        DESIGN,
        "--vary",
        f"workload.micro_batch={values}",
        "--csv",
    ]
    ours, theirs = pty.openpty()
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(theirs)
        read_terminal(ours, b" of 4,999 designs")
        process.send_signal(signal.SIGINT)
        drawn = read_terminal(ours)
        assert process.stdout is not None
        assert process.stdout.read() == b""
    os.close(ours)
    assert process.returncode == 130
    assert drawn.rpartition(ERASE.encode())[2] == b"cosmic design sweep: interrupted\r\n"
