"""What reaches a terminal: no character that moves its cursor. And streams that are closed, or that nobody reads."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

import cosmic
from cosmic.cli import console, output_streams
from cosmic.cli.dispatch import main
from cosmic.cli.output_streams import ERASE, StatusLine, complain, emit, emit_data, printable_json
from cosmic.design import catalog_entries
from cosmic.traces.chakra.trace_writer import write_traces
from cosmic.traces.trace import NodeType, RankTrace, TraceSet, template_of
from tests.commands import output, run

SPACE = "cosmic-1024-paper"
EVIL = "a\x1b[2J\r\u202eb\x9b\u2028\ttail"
SPELLED = r"a\x1b[2J\r\u202eb\x9b\u2028\ttail"


def harmless(text: str) -> bool:
    return all(letter.isprintable() or letter == "\n" for letter in text)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:  # noqa: D102  io's
        return True


class Unread(io.StringIO):
    """A pipe whose reader is gone."""

    def write(self, _: str) -> int:  # noqa: D102  io's
        raise BrokenPipeError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def status_of(*words: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code


# ---- escapes


def test_lines_and_cells_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    emit([EVIL, "two\nlines"])
    console.emit_table(EVIL, [EVIL, "[bold]head"], [[EVIL, 1]])
    console.print_sentences([EVIL])
    console.emit_commands({EVIL: EVIL})
    complain([EVIL])
    out, err = capsys.readouterr()
    assert harmless(out.replace("\t", ""))
    assert harmless(err.replace("\t", ""))
    assert r"two\nlines" in out
    assert "[bold]head" in out
    assert out.count(r"\x1b[2J") == 7


def test_a_table_keeps_its_own_style(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    console.emit_table("", ["head"], [[EVIL]])
    out = capsys.readouterr().out
    assert "\x1b[1mhead" in out
    assert SPELLED in out


def test_json_is_the_same_json_and_printable(capsys: pytest.CaptureFixture[str]) -> None:
    data = {EVIL: [EVIL, "\x7f\xa0\U000e0001\udcff é…"]}
    console.emit_json(data)
    out = capsys.readouterr().out
    assert harmless(out)
    assert json.loads(out) == data
    assert "é…" in out
    assert printable_json('{\n  "a": 1\n}') == '{\n  "a": 1\n}'


def test_data_is_written_as_it_is_but_not_to_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    emit_data([EVIL])
    assert capsys.readouterr().out == EVIL + "\n"
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    emit_data(["a\x1b[2J\nb\tc"])
    assert terminal.getvalue() == "a\\x1b[2J\nb\tc\n"


def test_a_status_line_is_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    StatusLine(shown=True).show(EVIL)
    assert terminal.getvalue() == f"{ERASE}{SPELLED}"


def test_nodes_of_a_trace_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        {"id": 1, "type": NodeType.COMP, "name": EVIL, "duration_us": 5},
        {"id": 2, "type": NodeType.COMM_COLL, "name": EVIL, "data": [1], "comm_type": 0, "comm_size": 8, "group": 0},
    ]
    template = template_of(nodes)
    write_traces(TraceSet(tuple(RankTrace(template, (EVIL,), (), rank) for rank in range(2))), "job")
    for words in ("show job.0.et", "show job.0.et --dot", "show job.0.et --json", "stats job", "stats job --json"):
        status, out, err = run(capsys, "trace", *words.split())
        assert status == 0
        assert harmless(out + err), words
    assert json.loads(output(capsys, "trace", "show", "job.0.et", "--json"))[0]["name"] == EVIL


def test_the_path_of_a_study_is_printable_even_if_it_is_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    place = "s\udcff\x1b[2J\n\u202e"
    cosmic.search(SPACE, trials=20, agent="random", out=place)
    for words in (["study", "doctor", place], ["study", "compare", place], ["study", "compare", place, "--json"]):
        status, out, err = run(capsys, *words)
        assert status == 0
        assert harmless(out + err), words
    status, out, _ = run(capsys, "report", place, "--isolated", "0")
    assert status == 0
    assert harmless(out)
    assert Path(place, "report.html").stat().st_size


@pytest.mark.parametrize(
    "words",
    [
        ["\udcff\x1b[2J"],
        ["--\udcff\x1b[2J\n"],
        ["evaluate", "\udcff\x1b[2J"],
        ["evaluate", "\udcff\x1b@\x1b"],
        ["evaluate", "--\udcff\x1b[2J\n"],
        ["evaluate", "llama3-8b@dgx-h100:8", "--set", "\udcff\x1b=3"],
        ["evaluate", "llama3-8b@dgx-h100:8", "--set", 'model.name="\\e[2J"'],
        ["design", "sweep", "llama3-8b@dgx-h100:8", "--vary", "\x1b[2J\udcff=1,2"],
        ["trace", "show", "\udcff\n\x1b"],
        ["space", "sample", SPACE, "-n", "\x1b[2J\udcff"],
        ["catalog", "list", "\udcff\x1b"],
        ["design", "export", "\udcff\x1b.yaml", "--to", "\udcff\x1b"],
    ],
)
def test_arguments_that_are_no_text_are_refused_in_printable_words(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert harmless(err)


def test_entries_of_a_user_s_catalog_are_printable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = (catalog_entries.CATALOG_FOLDER / "accelerators" / "h100-sxm-80gb.yaml").read_text()
    place = Path("own", "accelerators")
    place.mkdir(parents=True)
    (place / "mine.yaml").write_text(known.replace("vendor: NVIDIA", 'vendor: "A\\e[2J\\ntouch b"'))
    monkeypatch.setenv("COSMIC_PATH", "own")
    out = output(capsys, "catalog", "list", "accelerators")
    assert harmless(out)
    assert r"A\x1b[2J\ntouch b" in out
    design = ["llama3-8b@dgx-h100:8", "--set", "compute.accelerator=mine"]
    assert "\ntouch b" not in output(capsys, "design", "export", *design, "--to", "nccl")
    status, out, err = run(capsys, "design", "export", *design, "--to", "megatron", "--out", "launch")
    assert status == 0
    assert harmless(out + err)
    assert r"cosmic design export: mine is A\x1b[2J\ntouch b's" in err


# ---- streams


def test_no_standard_output_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (
        "catalog list",
        "--help",
        "--version",
        "evaluate --help",
        "evaluate llama3-8b@dgx-h100:8",
        "space show " + SPACE,
    ):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", None)
            assert status_of(*words.split()) == 1
        assert capsys.readouterr().err == "cosmic: standard output: cannot be written: it is closed\n"


@pytest.mark.parametrize("stream", [None, Unread()])
def test_no_standard_error_changes_no_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, stream: io.StringIO | None
) -> None:
    monkeypatch.setattr(output_streams, "PATIENCE_S", 0.0)
    for words in ("nosuch", "--nosuch", "evaluate nosuch", "evaluate --nosuch", "evaluate", "trace show nosuch"):
        monkeypatch.setattr(sys, "stderr", stream)
        assert status_of(*words.split()) == 2
    monkeypatch.setattr(sys, "stderr", stream)
    assert status_of("design", "export", "llama3-8b@dgx-h100:8", "--to", "megatron", "--out", "launch") == 0
    assert "launch" in capsys.readouterr().out
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "stdout", None)
    assert status_of("catalog", "list") == 1


def test_closed_streams_end_a_process_with_its_usual_status() -> None:
    closed = 'exec "$0" -m cosmic "$@"'
    for end, words, status in (
        (">&- 2>&- <&-", ["nosuch"], 2),
        ("2>&-", ["--version"], 0),
        (">&-", ["--version"], 1),
    ):
        command = ["sh", "-c", f"{closed} {end}", sys.executable, *words]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == status
        assert "Traceback" not in ended.stderr


def test_a_reader_of_messages_that_goes_away_changes_no_status() -> None:
    words = [sys.executable, "-m", "cosmic", "nosuch"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        process.stderr.close()
        assert process.wait() == 2


def test_a_reader_of_help_that_goes_away_ends_it_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Unread())
    assert status_of("evaluate", "--help") == 141
