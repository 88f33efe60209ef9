"""Every command with every output that cannot be written and every input that never ends: one sentence each."""

from __future__ import annotations

import gzip
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import cosmic
from cosmic.base.files import Unwritable
from cosmic.cli.dispatch import COMMANDS, function_of, split_command
from cosmic.traces.chakra import trace_reader
from tests.accuracy.calibrate.fake_device import FakeDevice
from tests.commands import run
from tests.simulate.files import write_job
from tests.simulate.jobs import Node, collective, computation

DESIGN = "gpt3-13b@dgx-h100:16"
SPACE = "cosmic-512-full-stack"
RANKS: list[list[Node]] = [[computation(10**9, 10**6), collective("all_gather", 10**6, after=[0])]] * 2
SIMULATION = ("simulate", "--workload", "job", "--system", "system.json", "--network", "network.yml")
SERVE = ("serve", "llama3-8b@dgx-h100:1", "--input", "10", "--output", "2")
IMPORT = ("design", "import", "launch.sh", "--from", "megatron")
FLEET = ("cluster", "fleet", "--system", "dgx-h100:8")
PROVISION = ("network", "provision", "libra.yml", "--budget", "9 GB/s")
SYNTHESIZE = ("network", "synthesize", "ring.txt", "--size", "1 MB")
RING = ("network", "check", "ring.csv", "--size", "2 GiB", "--network")
CONVERT = ("network", "convert", "ring.csv", "--size", "2 GiB", "--network", "ring.txt", "--to", "svg", "--out")
TEXT = ("trace", "convert", "text.txt", "--out", "new")
SIZE = ("size", "llama3-8b", "--tokens", "1T", "--accelerators", "16", "--systems", "dgx-h100", "--no-sensitivity")
LAUNCH = """torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 \\
  --seq-length 128 --vocab-size 100 --micro-batch-size 1
"""

PROGRAM = (Path(__file__).parents[2] / "examples" / "programs" / "rnn.yaml").read_text()
OUTPUTS: dict[tuple[str, str], tuple[str, ...]] = {
    ("calibrate run", "out"): ("calibrate", "run", "rows.csv", "--system", "dgx-h200", "--out"),
    ("space certify", "out"): ("space", "certify", "small.yaml", "--simulate", "0", "--out"),
    ("network convert", "out"): CONVERT,
    ("network synthesize", "out"): (*SYNTHESIZE, "--to", "msccl", "--out"),
    ("network synthesize", "schedule"): (*SYNTHESIZE, "--schedule"),
    ("study compare", "plot"): ("study", "compare", "study", "--plot"),
    ("evaluate", "timeline"): ("evaluate", DESIGN, "--timeline"),
    ("design export", "out"): ("design", "export", DESIGN, "--to", "megatron", "--out"),
    ("study export", "to"): ("study", "export", "study", "--to"),
    ("cluster fleet", "html"): (*FLEET, "jobs.yaml", "--html"),
    ("cluster fleet", "timeline"): (*FLEET, "jobs.yaml", "--timeline"),
    ("design import", "out"): (*IMPORT, "--out"),
    ("calibrate probe", "out"): ("calibrate", "probe", "--out"),
    ("model show", "out"): ("model", "show", "program.yaml", "--out"),
    ("report", "out"): ("report", "study", "--isolated", "0", "--out"),
    ("schema", "page"): ("schema", "--page"),
    ("search", "save_space"): ("search", "cosmic-1024-paper", "-n", "1", "--out", "new", "--save-space"),
    ("serve", "report"): (*SERVE, "--search", "--report"),
    ("serve", "save"): (*SERVE, "--save"),
    ("serve", "timeline"): (*SERVE, "--requests", "2", "--timeline"),
    ("model shard", "out"): ("model", "shard", "gpt3-125m", "--mesh", "dp=2", "--system", "dgx-h100", "--out"),
    ("simulate", "timeline"): (*SIMULATION, "--timeline"),
    ("size", "out"): (*SIZE, "--out"),
    ("size", "report"): (*SIZE, "--report"),
    ("trace anonymize", "keep_map"): ("trace", "anonymize", "job", "--out", "new", "--keep-map"),
    ("trace anonymize", "out"): ("trace", "anonymize", "job", "--out"),
    ("trace convert", "groups_out"): (*TEXT, "--npus", "4", "--groups-out"),
    ("trace convert", "out"): (*TEXT[:3], "--npus", "4", "--out"),
    ("trace convert", "system_out"): (*TEXT, "--npus", "4", "--system-out"),
    ("trace generate", "out"): ("trace", "generate", DESIGN, "--out"),
    ("trace repair", "out"): ("trace", "repair", "job", "--out"),
    ("trace show", "graphml"): ("trace", "show", "job.0.et", "--graphml"),
    ("trace show", "html"): ("trace", "show", "job.0.et", "--html"),
    ("trace show", "out"): ("trace", "show", "job.0.et", "--dot", "--out"),
    ("trace suite", "out"): ("trace", "suite", "--only", "recommender-8", "--out"),
    ("trace synthesize", "out"): ("trace", "synthesize", "job", "--out"),
    ("calibrate validate", "page"): ("calibrate", "validate", "rows.csv", "--page"),
}
"""How each option that names an output is written; its value comes last."""
TRACES = {
    (f"trace {command}", "out") for command in ("anonymize", "convert", "generate", "repair", "suite", "synthesize")
}
FOLDERS = {("design export", "out"), *TRACES}
"""Outputs that are folders, or prefixes of files."""
MADE = {*FOLDERS, ("calibrate validate", "page")}
"""Outputs whose folder is made where it is missing."""
STUDIES = {("demo", "out"), ("search", "out"), ("ui", "directory")}
"""Directories of studies, which have their own tests."""

INPUTS: dict[tuple[str, str], tuple[str, ...]] = {
    ("calibrate run", "data"): ("calibrate", "run", "{}"),
    ("calibrate run", "on"): ("calibrate", "run", "rows.csv", "--on", "{}"),
    ("calibrate run", "system"): ("calibrate", "run", "rows.csv", "--system", "{}"),
    ("network bound", "network"): ("network", "bound", "{}"),
    ("network check", "network"): (*RING, "{}"),
    ("network check", "schedule"): ("network", "check", "{}", "--network", "ring.txt"),
    ("network convert", "network"): (*CONVERT[:6], "{}", *CONVERT[7:], "new.svg"),
    ("network convert", "schedule"): ("network", "convert", "{}", *CONVERT[5:], "new.svg"),
    ("network synthesize", "network"): ("network", "synthesize", "{}"),
    ("study compare", "studies"): ("study", "compare", "study", "{}"),
    ("design diff", "a"): ("design", "diff", "{}", DESIGN),
    ("design diff", "b"): ("design", "diff", DESIGN, "{}"),
    ("space certify", "check"): ("space", "certify", "--check", "{}"),
    ("space certify", "space"): ("space", "certify", "{}"),
    ("study export", "study"): ("study", "export", "{}", "--to", "new.csv"),
    ("study doctor", "study"): ("study", "doctor", "--check", "{}"),
    ("evaluate", "design"): ("evaluate", "{}"),
    ("design experts", "design"): ("design", "experts", "{}"),
    ("design export", "design"): ("design", "export", "{}", "--to", "megatron"),
    ("cluster fleet", "jobs"): (*FLEET, "{}"),
    ("design diff", "prices"): ("design", "diff", DESIGN, DESIGN, "--prices", "{}"),
    ("evaluate", "prices"): ("evaluate", DESIGN, "--prices", "{}"),
    ("study importance", "study"): ("study", "importance", "{}"),
    ("design import", "file"): ("design", "import", "{}", "--from", "megatron"),
    ("design import", "model"): (*IMPORT, "--model", "{}"),
    ("study leaderboard new", "space"): ("study", "leaderboard", "new", "new", "{}"),
    ("model show", "source"): ("model", "show", "{}"),
    ("network provision", "communicator"): (*PROVISION, "--workload", "DLRM", "--communicator", "{}"),
    ("network provision", "cost"): (*PROVISION, "--workload", "DLRM", "--cost", "{}"),
    ("network provision", "source"): ("network", "provision", "{}", "--budget", "9 GB/s"),
    ("network provision", "workload"): (*PROVISION, "--workload", "{}"),
    ("space count", "space"): ("space", "count", "{}"),
    ("space sample", "space"): ("space", "sample", "{}"),
    ("space schema", "space"): ("space", "schema", "{}"),
    ("space show", "space"): ("space", "show", "{}"),
    ("study replay", "study"): ("study", "replay", "{}"),
    ("report", "study"): ("report", "{}"),
    ("run", "recipe"): ("run", "{}", "--store", "new"),
    ("search", "model"): ("search", "launch.sh", "--from", "megatron", "--model", "{}"),
    ("search", "prices"): ("search", DESIGN, "--out", "new", "--prices", "{}"),
    ("search", "space"): ("search", "{}", "--out", "new"),
    ("search", "learn"): ("search", DESIGN, "--out", "new", "--learn", "{}"),
    ("model shard", "program"): ("model", "shard", "{}", "--mesh", "dp=2"),
    ("size", "model"): ("size", "{}", *SIZE[2:]),
    ("size", "prices"): (*SIZE, "--prices", "{}"),
    ("design sweep", "prices"): ("design", "sweep", DESIGN, "--vary", "tp=1", "--prices", "{}"),
    ("serve", "design"): ("serve", "{}"),
    ("serve", "trace"): ("serve", DESIGN, "--trace", "{}"),
    ("design show", "design"): ("design", "show", "{}"),
    ("simulate", "comm_groups"): (*SIMULATION, "--comm-groups", "{}"),
    ("simulate", "network"): (*SIMULATION[:-1], "{}"),
    ("simulate", "remote_memory"): (*SIMULATION, "--remote-memory", "{}"),
    ("simulate", "system"): (*SIMULATION[:3], "--system", "{}", *SIMULATION[5:]),
    ("simulate", "workload"): ("simulate", "--workload", "{}", *SIMULATION[3:]),
    ("study show", "study"): ("study", "show", "{}"),
    ("study tell", "rows"): ("study", "tell", "study", "{}"),
    ("study tell", "study"): ("study", "tell", "{}", "rows.csv"),
    ("design sweep", "design"): ("design", "sweep", "{}", "--vary", "tp=1,2"),
    ("cluster tasks", "design"): ("cluster", "tasks", "{}", "--batch", "8", "--npus", "1"),
    ("study tournament", "space"): ("study", "tournament", "{}"),
    ("trace anonymize", "prefix"): ("trace", "anonymize", "{}", "--out", "new"),
    ("trace check", "groups"): ("trace", "check", "job", "--groups", "{}"),
    ("trace check", "prefix"): ("trace", "check", "{}"),
    ("trace convert", "communicator"): (*TEXT, "--network", "libra.yml", "--communicator", "{}"),
    ("trace convert", "files"): ("trace", "convert", "{}", "--npus", "4", "--out", "new"),
    ("trace convert", "network"): (*TEXT, "--network", "{}"),
    ("trace diff", "groups_a"): ("trace", "diff", "job", "job", "--groups-a", "{}"),
    ("trace diff", "groups_b"): ("trace", "diff", "job", "job", "--groups-b", "{}"),
    ("trace generate", "design"): ("trace", "generate", "{}", "--out", "new"),
    ("trace project", "prefix"): ("trace", "project", "{}", "--accelerator", "b200"),
    ("trace repair", "source"): ("trace", "repair", "{}", "--out", "new"),
    ("trace show", "file"): ("trace", "show", "{}"),
    ("trace stats", "groups"): ("trace", "stats", "job", "--groups", "{}"),
    ("trace stats", "prefix"): ("trace", "stats", "{}"),
    ("trace synthesize", "groups"): ("trace", "synthesize", "job", "--groups", "{}", "--out", "new"),
    ("trace synthesize", "prefixes"): ("trace", "synthesize", "{}", "--out", "new"),
    ("calibrate validate", "data"): ("calibrate", "validate", "{}"),
    ("design workload", "design"): ("design", "workload", "{}"),
}
"""How each argument that may name a file to read is written."""
TEXTS = {
    *("address", "agent", "agents", "backend", "bandwidth", "by", "command", "constraint", "engine", "fix", "kind"),
    *("metric", "objective", "peak", "setting", "settings", "settings_b", "shell", "stacks", "vary"),
    *("budget", "deadline", "loop", "ports", "power", "systems", "tokens", "precision", "rate", "tpot", "ttft"),
    *("algorithm", "chunks", "collective", "fail", "groups", "size", "to"),
    *("blocks", "only", "on", "placement", "policy", "seed", "sharing", "tolerance", "accelerator"),
    *("annotate", "dims", "memory", "mesh", "mode", "name", "shapes"),
    *("define", "device", "framework", "gap", "limit", "origin", "system", "within"),
}
"""Parameters that name no file."""
NAMES = {("trace diff", "a"), ("trace diff", "b"), ("trace project", "network"), ("trace project", "out")}
NAMES |= {("run", "again"), ("run", "changes"), ("run", "store"), ("run", "tags")}
NAMES |= {(f"study leaderboard {command}", "board") for command in ("enter", "new", "show")} | {
    ("study leaderboard enter", "design")
}
"""Names of traces or designs, of a system, of runs, and a prefix that only recorded traces can have; boards, which have
tests of their own."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a study, traces, rows, and files that nobody can use."""
    folder = tmp_path_factory.mktemp("files")
    cosmic.search(SPACE, trials=10, seed=1, out=folder / "study")
    write_job(folder, RANKS)
    (folder / "rows.csv").write_text("m,n,k,dtype,ms\n8,8,8,bf16,1\n")
    (folder / "file").write_text("")
    (folder / "launch.sh").write_text(LAUNCH)
    (folder / "jobs.yaml").write_text("jobs: [{name: a, model: llama3-8b, npus: 8, steps: 1}]\n")
    (folder / "libra.yml").write_text("Topology: [Ring]\nNpusCount: [4]\n")
    (folder / "text.txt").write_text("a -1 10 ALLREDUCE 64 20 NONE 0 30 ALLREDUCE 64 5\n")
    (folder / "ring.txt").write_text("2\n0 1 1 0\n1 0 1 0\n")
    (folder / "ring.csv").write_text("source,target,chunk,start_s,end_s\n0,1,0,0.0,1.0\n1,0,1,0.0,1.0\n")
    (folder / "program.yaml").write_text(PROGRAM)
    (folder / "small.yaml").write_text("base: llama3-8b@dgx-h100:8\nparameters: {collective.chunks: [1, 4]}\n")
    (folder / "latin.yaml").write_bytes(b"caf\xe9: [\xff")
    (folder / "bomb.0.et.gz").write_bytes(gzip.compress(bytes(2**21)))
    with (folder / "sparse.yaml").open("wb") as file:
        file.truncate(2**40)
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(os.path.relpath(folder / "socket.yaml"))  # addresses of sockets are short
    for ending in ("", ".csv", ".md", ".yaml", ".json"):
        (folder / f"folder{ending}").mkdir()
        os.mkfifo(folder / f"pipe{ending}")
        (folder / f"full{ending}").symlink_to("/dev/full")
    return folder


@pytest.fixture
def here(files: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in that directory, on a machine with a GPU; a refused command leaves nothing there."""
    monkeypatch.setattr("cosmic.accuracy.calibrate.torch_device.torch_device", lambda _: FakeDevice())
    monkeypatch.chdir(files)
    before = sorted(path.name for path in files.iterdir())
    yield files
    assert sorted(path.name for path in files.iterdir()) == before


def parameters() -> Iterator[tuple[str, str]]:
    """Yield each parameter of each command that takes a text or a path."""
    for name in COMMANDS:
        for parameter, hint in get_type_hints(function_of(name)).items():
            if parameter != "return" and not {hint, *get_args(hint)} & {bool, int, float}:
                yield name, parameter


def test_every_parameter_that_may_name_a_file_is_tried() -> None:
    found = set(parameters())
    known = OUTPUTS.keys() | INPUTS.keys() | STUDIES
    assert known <= found
    left = {each for each in found - known if each[1] not in TEXTS and each not in NAMES}
    assert not left, "say in this file whether they name an input, an output or no file"


def sentence(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the one sentence with which a command refuses a file."""
    status, _, err = run(capsys, *words)
    assert status in (1, 2), words
    if "Error: Invalid value for" in err:  # Typer's own words for a null character, which no shell can pass
        assert "\0" in "".join(words)
        return err.replace("': Value error, embedded null byte", " = : is no name that a file can have")
    assert err.startswith(f"cosmic {split_command(words)[0]}: "), words
    assert err.count("\n") == 1, words
    return err


# ---- outputs

ENDINGS = {
    ("calibrate run", "out"): ".yaml",
    ("study export", "to"): ".csv",
    ("calibrate probe", "out"): ".csv",
    ("calibrate validate", "page"): ".md",
}
UNWRITABLE = {
    "folder": "Is a directory",
    "file/x": "Not a directory",
    "n" * 300: "File name too long",
    "a\0b": "is no name that a file can have",
    "missing/x": "No such file or directory",
}
"""Targets that cannot be written, and what is said of them."""


@pytest.mark.long
@pytest.mark.parametrize("option", OUTPUTS, ids=" ".join)
def test_an_output_that_cannot_be_written_is_one_sentence(
    capsys: pytest.CaptureFixture[str], here: Path, option: tuple[str, str]
) -> None:
    words, ending = OUTPUTS[option], ENDINGS.get(option, "")
    for target, rule in UNWRITABLE.items():
        if (option in MADE and target == "missing/x") or (option in FOLDERS and target == "folder"):
            continue
        said = sentence(capsys, *words, f"{target}{ending}")
        assert f"{words[-1]} = " in said
        assert rule in said


@pytest.mark.long
@pytest.mark.parametrize("option", sorted(OUTPUTS.keys() - FOLDERS), ids=" ".join)
def test_a_full_disk_and_a_pipe_that_nobody_reads_are_one_sentence(
    capsys: pytest.CaptureFixture[str], here: Path, option: tuple[str, str]
) -> None:
    words, ending = OUTPUTS[option], ENDINGS.get(option, "")
    for target, rule in {"full": "No space left on device", "pipe": "No such device or address"}.items():
        said = sentence(capsys, *words, f"{target}{ending}")
        assert said.endswith(f"cannot be written: {rule}\n")
        assert f"{words[-1]} = " in said


def test_a_study_that_is_read_only_still_has_a_report(
    capsys: pytest.CaptureFixture[str], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(found: object) -> str:
        raise Unwritable("file", "best.yaml", "cannot be written: Read-only file system")

    monkeypatch.setattr("cosmic.cli.study_commands.write_best", refuse)
    status, _, err = run(capsys, "report", "study", "--isolated", "0", "--out", "/dev/null")
    assert (status, err) == (0, "")


# ---- inputs

ENDLESS = ("/dev/zero", "pipe", "pipe.yaml", "socket.yaml", "folder", "sparse.yaml", "latin.yaml", "n" * 300, "a\0b")


@pytest.mark.long
@pytest.mark.parametrize("argument", INPUTS, ids=" ".join)
def test_an_input_that_never_ends_is_one_sentence(
    capsys: pytest.CaptureFixture[str], here: Path, argument: tuple[str, str]
) -> None:
    for name in ENDLESS:
        sentence(capsys, *(word.replace("{}", name) for word in INPUTS[argument]))


@pytest.mark.parametrize("setting", ["model=pipe.json", "model=sparse.yaml", "compute.accelerator=pipe.yaml"])
def test_a_setting_that_names_such_a_file_is_one_sentence(
    capsys: pytest.CaptureFixture[str], here: Path, setting: str
) -> None:
    sentence(capsys, "design", "show", DESIGN, "--set", setting)


def test_a_trace_that_unpacks_to_too_much_is_refused(
    capsys: pytest.CaptureFixture[str], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_reader, "MOST_BYTES", 2**20)
    assert "has more than the 1 MiB that a trace may have" in sentence(capsys, "trace", "show", "bomb.0.et.gz")


def test_an_extension_that_never_ends_is_one_sentence(here: Path) -> None:
    (here / "own" / "agents").mkdir(parents=True)
    try:
        os.mkfifo(here / "own" / "agents" / "endless.py")
        words = [sys.executable, "-m", "cosmic", "catalog", "list", "agents"]
        given = os.environ | {"COSMIC_PATH": "own"}
        ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=given)
    finally:
        shutil.rmtree(here / "own")
    assert ended.returncode == 0  # the other agents work
    assert "is no regular file" in ended.stderr


def test_a_silent_pipe_as_standard_input_is_one_sentence(here: Path) -> None:
    words = [sys.executable, "-m", "cosmic", "trace", "show", "/dev/stdin"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.wait(60) == 2  # while nobody has closed its input
        assert process.stderr is not None
        assert "is no regular file" in process.stderr.read()
