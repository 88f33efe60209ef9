"""ASTRA-sim 1.0's text workloads as traces: times by hand, groups, and one sentence for what is malformed."""

from __future__ import annotations

import json
import random
from math import prod
from pathlib import Path
from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.simulate.events.trace_simulation import simulate
from cosmic.traces.chakra.workload_files import PHASES, Communicator, read_layers, traces_of_layers
from cosmic.traces.trace_checks import list_problems
from tests.commands import output, run

EXAMPLES = Path(__file__).parents[2] / "examples" / "astra_sim"
A = "a -1 1000 ALLREDUCE 4000 2000 NONE 0 5000 ALLREDUCE 8000 10\n"
B = "b -1 500 NONE 0 700 REDUCESCATTER 4000 900 ALLREDUCE 4000 20\n"
HEADER = "DATA\n2\n"
BYTE_PER_NS = 1e9 / 2**30
"""In the units of ASTRA-sim's networks."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a directory with a workload of two layers, and a ring of four NPUs with a byte each nanosecond."""
    monkeypatch.chdir(tmp_path)
    Path("work.txt").write_text(HEADER + A + B)
    ring = f"topology: [Ring]\nnpus_count: [4]\nbandwidth: [{BYTE_PER_NS!r}]\nlatency: [0]\n"
    Path("ring.yml").write_text(ring)
    Path("libra.yml").write_text("Topology: [Ring, Switch]\nNpusCount: [4, 2]\n")
    return tmp_path


def convert(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output(capsys, "trace", "convert", *words, "--json"))
    return found


def test_a_pass_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("work.txt", "--out", "job", "--network", "ring.yml", "--system-out", "system.json")
    printed = output(capsys, "trace", "convert", *words)
    (command,) = (line.split() for line in printed.splitlines() if "cosmic simulate" in line)
    data = json.loads(output(capsys, *command[1:], "--json"))
    # a forward to 1,000, its all-reduce in 6 steps of 1,000 to 7,000, b forward to 7,500, its input gradient to 8,200
    # and reduce-scatter in 3 steps to 11,200, its weight gradient to 12,100 with an all-reduce beside the rest, to
    # 18,100; a backward to 14,100 and 19,100, then b's update, and a's last all-reduce in 6 steps of 2,000 to 31,100.
    assert data["cycles"] == 31_110
    assert data["per_npu"][0]["compute_cycles"] == 1_000 + 500 + 700 + 900 + 2_000 + 5_000 + 20 + 10


def test_the_next_pass_of_a_layer_waits_for_its_update(capsys: pytest.CaptureFixture[str]) -> None:
    convert(capsys, *["work.txt", "--out", "job", "--npus", "4", "--system-out", "system.json", "--passes", "3"])
    assert simulate(workload="job", system="system.json", network="ring.yml", comm_groups="job.json").cycles == 93_330
    job = traces_of_layers(read_layers("work.txt"), (4,), passes=2)
    template = job.traces.ranks[0].template
    rows = {name: row for row, name in enumerate(template.names)}
    start, stop = template.data_start[rows["pass2.b.forward"]], template.data_start[rows["pass2.b.forward"] + 1]
    assert rows["pass1.b.update"] in template.data_id[start:stop]


def test_computes_take_their_nanoseconds_exactly(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = random.Random(3)
    times = [15, 30, 60, 63, 120, 1, *(chosen.randrange(1, 10**12) for _ in range(200))]
    Path("work.txt").write_text("".join(f"n{each} -1 {each} NONE 0 0 NONE 0 0 NONE 0 0\n" for each in times))
    convert(capsys, *["work.txt", "--out", "job", "--npus", "4", "--system-out", "system.json"])
    assert simulate(workload="job", system="system.json", network="ring.yml").cycles == sum(times)


def test_a_layer_without_compute_keeps_what_it_waits_for() -> None:
    text = "a -1 0 ALLREDUCE 8 0 NONE 0 0 ALLREDUCE 8 5\nb -1 7 NONE 0 0 NONE 0 0 NONE 0 0\n"
    Path("work.txt").write_text(text)
    template = traces_of_layers(read_layers("work.txt"), (4,), passes=2).traces.ranks[0].template
    names = list(template.names)
    row = names.index("pass2.a.forward.allreduce")
    waits = {names[each] for each in template.data_id[template.data_start[row] : template.data_start[row + 1]]}
    assert waits == {"pass1.b.forward", "pass1.a.update"}
    assert "pass1.a.forward" not in names


def test_the_example_runs_in_its_dimensions(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(EXAMPLES / name) for name in ("text_workload.txt", "network.yml", "communicator.yml")]
    words = (files[0], "--out", "job", "--network", files[1], "--communicator", files[2], "--groups-out", "g.json")
    found = convert(capsys, *words, "--system-out", "system.json")
    assert (found["ranks"], found["groups"], found["files"], found["layers"]) == (16, 0, 18, 3)
    assert output(capsys, "trace", "check", "job", "--groups", "g.json").endswith("no problem found\n")
    result = simulate(workload="job", system="system.json", network=files[1], comm_groups="g.json")
    assert {npu.compute_cycles for npu in result.per_npu} == {567_000}


def test_a_split_dimension_has_neighbours_in_one_pass_and_the_rest_in_the_other() -> None:
    communicator: Communicator = {"Forward": (2, -1), "InputGrad": (2, -1), "WeightGrad": (2, 2)}
    assert not traces_of_layers(read_layers("work.txt"), (4, 2)).groups
    job = traces_of_layers(read_layers("work.txt"), (4, 2), communicator)
    assert list(job.groups.values()) == [(0, 1), (2, 3), (4, 5), (6, 7), (0, 2, 4, 6), (1, 3, 5, 7)]
    assert job.traces.ranks[3].groups == ("2", "2", "6")


def test_groups_share_out_all_ranks() -> None:
    chosen = random.Random(5)
    layers = read_layers("work.txt")
    for _ in range(40):
        npus = tuple(chosen.choice((2, 4, 6)) for _ in range(chosen.randint(1, 3)))
        members: Communicator = {
            phase: tuple(chosen.choice([-1, *(n for n in range(1, size + 1) if size % n == 0)]) for size in npus)
            for phase in PHASES
        }
        job = traces_of_layers(layers, npus, members)
        assert not list_problems(job.traces, job.groups)
        for place, phase in enumerate(PHASES):
            counts = [max(1, count) for count in members[phase]]
            whole = all(count in {1, size} for count, size in zip(counts, npus, strict=True))
            for rank, trace in enumerate(job.traces.ranks):
                name = trace.groups[place]
                assert bool(name) != whole
                assert whole or (rank in job.groups[name] and len(job.groups[name]) == prod(counts))


def test_whole_dimensions_are_taken_one_after_the_other_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    rates = f"bandwidth: [{BYTE_PER_NS!r}, {BYTE_PER_NS!r}, {BYTE_PER_NS!r}]\nlatency: [0, 0, 0]\n"
    Path("three.yml").write_text("topology: [Ring, Ring, Ring]\nnpus_count: [4, 2, 2]\n" + rates)
    Path("groups.yml").write_text("Forward: [4, 2, -1]\nInputGrad: [4, 2, -1]\nWeightGrad: [-1, -1, 2]\n")
    Path("work.txt").write_text("a -1 1000 ALLREDUCE 16000 0 NONE 0 500 ALLREDUCE 6000 25\n")
    words = ("--network", "three.yml", "--communicator", "groups.yml", "--system-out", "system.json")
    convert(capsys, "work.txt", "--out", "job", *words)
    found = simulate(workload="job", system="system.json", network="three.yml", comm_groups="job.json")
    # 2 · 16,000 · 3/4 inside and 2 · 4,000 · 1/2 of what is left outside; then 2 · 6,000 · 1/2 between the two halves
    assert found.cycles == 1_000 + 24_000 + 4_000 + 500 + 6_000 + 25


def test_all_ranks_take_part_on_whatever_network_the_traces_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("work.txt").write_text("a -1 1000 ALLREDUCE 16000 0 NONE 0 0 NONE 0 0\n")
    rates = f"bandwidth: [{BYTE_PER_NS!r}, {BYTE_PER_NS!r}]\nlatency: [0, 0]\n"
    Path("two.yml").write_text("topology: [Ring, Ring]\nnpus_count: [4, 2]\n" + rates)
    convert(capsys, "work.txt", "--out", "job", "--network", "two.yml", "--system-out", "system.json")
    convert(capsys, "work.txt", "--out", "job", "--npus", "8")
    found = simulate(workload="job", system="system.json", network="two.yml", comm_groups="job.json")
    assert found.cycles == 1_000 + 24_000 + 4_000


def test_one_rank_has_no_collectives(capsys: pytest.CaptureFixture[str]) -> None:
    found = convert(capsys, "work.txt", "--out", "job", "--npus", "1")
    assert (found["nodes"], found["groups"], found["system_file"]) == (8, 0, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (A.replace("1000", "-1"), "line 1 = '-1': must be from 0"),
        (A.replace("1000", "1.5"), "line 1 = 1.5: a trace has whole nanoseconds"),
        (A.replace("1000", "1e16"), "takes at most 1,000,000,000,000,000 ns"),
        (A.replace(" 4000 ", " 0.5 "), "a trace has whole bytes"),
        (A.replace("10\n", "soon\n"), "line 1 = 'soon': must be a number"),
        (A.replace("ALLREDUCE", "ALLREDUC"), "ALLREDUC"),
        (A.replace(" 10\n", "\n"), "must be a layer of 12 words"),
        ("DATA\n3\n" + A, "line 2 = '3': 1 layers follow"),
        ("", "is empty: a profile of PyTorch or a text workload is converted"),
        ("some words\nof nothing\n", "is neither a profile of PyTorch (JSON) nor a text workload"),
    ],
)
def test_a_malformed_workload_is_one_sentence(capsys: pytest.CaptureFixture[str], text: str, words: str) -> None:
    Path("work.txt").write_text(text)
    status, out, err = run(capsys, "trace", "convert", "work.txt", "--out", "job", "--npus", "4")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert words in err
    assert not list(Path().glob("job*"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "--npus"),
        ("--npus 8 --network ring.yml", "--npus = 8: ring.yml has 4 NPUs"),
        ("--npus 4 --communicator groups.yml", "needs --network"),
        ("--network libra.yml --communicator groups.yml", "must divide the 4 NPUs of dimension 0"),
        ("--network work.txt", "work.txt"),
        ("--network huge.yml", "at most 131,072"),
    ],
)
def test_options_that_do_not_fit_are_one_sentence(capsys: pytest.CaptureFixture[str], options: str, words: str) -> None:
    Path("groups.yml").write_text("Forward: [3, -1]\nInputGrad: [3, -1]\nWeightGrad: [-1, 2]\n")
    Path("huge.yml").write_text("Topology: [Ring, Ring]\nNpusCount: [65536, 4]\n")
    status, out, err = run(capsys, "trace", "convert", "work.txt", "--out", "job", *options.split())
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert words in err


def test_too_many_passes_are_refused() -> None:
    with pytest.raises(SpecError, match="more than 5,000,000"):
        traces_of_layers(read_layers("work.txt") * 100, (4,), passes=10_000)
