"""`cosmic simulate`: what it prints of a small job, and how failures end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cosmic.frameworks.targets.astra_sim import machine_files
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.events.trace_simulation import simulate
from tests.commands import run
from tests.simulate.files import SYSTEM, words, write_job
from tests.simulate.jobs import Node, collective, computation, receive, send

RANKS: list[list[Node]] = [
    [computation(10**9, 10**6), collective("all_gather", 10**6, after=[0]), send(1, 4096, after=[1])],
    [computation(3 * 10**9, 10**6), collective("all_gather", 10**6, after=[0]), receive(0, 4096)],
]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    return write_job(tmp_path, RANKS)


def test_it_prints_who_is_last_and_what_it_did(capsys: pytest.CaptureFixture[str], files: dict[str, Any]) -> None:
    status, out, err = run(capsys, "simulate", *words(files))
    result = simulate(**files)
    assert (status, err) == (0, "")
    assert out.startswith(f"{result.cycles:,} cycles (ns) = ")
    for text in ("compute", "communication", "overlapped by compute", "exposed", "idle", "dimension", "Ring", "ranks"):
        assert text in out
    assert "busiest links" not in out


def test_json_has_stable_keys(capsys: pytest.CaptureFixture[str], files: dict[str, Any]) -> None:
    status, out, err = run(capsys, "simulate", *words(files), "--json")
    assert (status, err) == (0, "")
    found, result = json.loads(out), simulate(**files)
    assert {"cycles", "per_npu", "events", "cpu_s", "simulated_ranks", "warnings", "dimensions", "links"} <= set(found)
    assert found["cycles"] == result.cycles == max(npu["cycles"] for npu in found["per_npu"])
    assert found["events"] == result.events
    for npu, expected in zip(found["per_npu"], result.per_npu, strict=True):
        assert {"npu", "cycles", "exposed_cycles", "compute_cycles"} <= set(npu)
        assert npu["npu"] == expected.npu
        assert npu["cycles"] - npu["compute_cycles"] == npu["exposed_cycles"] == expected.exposed_cycles


def test_links_are_shown_where_they_are_queues(capsys: pytest.CaptureFixture[str], files: dict[str, Any]) -> None:
    status, out, err = run(capsys, "simulate", *words(files), "--backend", "aware")
    assert (status, err) == (0, "")
    assert "busiest links" in out
    assert "dim 0: 0→1" in out


@pytest.mark.parametrize(
    "how",
    [
        {"rendezvous": True},
        {"compat": False},
        {"queues_per_dim": 2},
        {"injection_scale": 100.0},
        {"backend": "aware", "rendezvous": True},
    ],
    ids=str,
)
def test_options_do_what_the_function_does(
    capsys: pytest.CaptureFixture[str], files: dict[str, Any], how: dict[str, Any]
) -> None:
    options = []
    for key, value in how.items():
        name = key.replace("_", "-")
        options += [f"--{'' if value else 'no-'}{name}"] if isinstance(value, bool) else [f"--{name}", str(value)]
    status, out, _ = run(capsys, "simulate", *words(files), *options, "--json")
    assert status == 0
    assert json.loads(out)["cycles"] == simulate(**files, **how).cycles
    if how != {"compat": False}:
        assert json.loads(out)["cycles"] != simulate(**files).cycles


def test_a_timeline_is_written_on_the_side(
    capsys: pytest.CaptureFixture[str], files: dict[str, Any], tmp_path: Path
) -> None:
    plain = run(capsys, "simulate", *words(files), "--json")[1]
    status, out, err = run(capsys, "simulate", *words(files), "--json", "--timeline", str(tmp_path / "out.json"))
    assert (status, err) == (0, "")
    assert json.loads(out)["per_npu"] == json.loads(plain)["per_npu"]
    assert json.loads((tmp_path / "out.json").read_text())["traceEvents"]


def test_a_timeline_that_cannot_be_written_is_one_sentence(
    capsys: pytest.CaptureFixture[str], files: dict[str, Any], tmp_path: Path
) -> None:
    status, out, err = run(capsys, "simulate", *words(files), "--timeline", str(tmp_path / "no" / "out.json"))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "cannot be written: No such file or directory" in err


def test_warnings_go_to_standard_error_and_into_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = write_job(tmp_path, RANKS, system=SYSTEM | {"boost-mode": 1, "endpoint-dellay": 3})
    status, out, err = run(capsys, "simulate", *words(files), "--json")
    assert status == 0
    assert all(line.startswith("cosmic simulate: ") for line in err.splitlines())
    assert "boost-mode: ASTRA-sim ignores it" in err
    assert "endpoint-dellay: no such key, ignored" in err
    assert len(json.loads(out)["warnings"]) == len(err.splitlines()) == 2


def test_an_unknown_back_end_is_refused_with_a_suggestion(
    capsys: pytest.CaptureFixture[str], files: dict[str, Any]
) -> None:
    message = "cosmic simulate: backend = 'awaer': no such back end; did you mean 'aware'?\n"
    assert run(capsys, "simulate", *words(files), "--backend", "awaer") == (2, "", message)


def test_traces_are_asked_for(capsys: pytest.CaptureFixture[str], files: dict[str, Any]) -> None:
    status, out, err = run(capsys, "simulate", *words({key: files[key] for key in ("system", "network")}))
    assert (status, out) == (2, "")
    assert "--workload" in err
    assert err.startswith("Usage: cosmic simulate")


@pytest.mark.parametrize("given", [("workload",), ("workload", "network"), ("workload", "system")])
def test_traces_that_were_not_recorded_need_a_system_and_a_network(
    capsys: pytest.CaptureFixture[str], files: dict[str, Any], given: tuple[str, ...]
) -> None:
    status, out, err = run(capsys, "simulate", *words({key: files[key] for key in given}))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "network" in err or "system" in err


def test_a_design_is_a_machine_for_traces_that_were_not_recorded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A flop-bound node of 989.4 GFLOP takes 1 ms of a peak of 989.4 TFLOP/s; a duration, where stated, is played."""
    stated: list[tuple[dict[str, Any], int]] = [({}, 1_000_000), ({"duration_us": 5}, 5_000)]
    for durations, cycles in stated:
        job = write_job(tmp_path, [[computation(989_400_000_000, 1, **durations)]] * 2)
        command = ["simulate", "--workload", job["workload"], "--on", "dgx-h100", "--json"]
        status, out, err = run(capsys, *command)
        assert (status, json.loads(out)["cycles"]) == (0, cycles), err
    write_job(tmp_path, [[collective("all_reduce", 2**20)]] * 2)
    _, out, _ = run(capsys, *command)
    files, _ = machine_files(load_design("gpt3-125m@dgx-h100:2"), roofline=False)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    given: dict[str, Any] = {"system": tmp_path / "system.json", "network": tmp_path / "network.yml"}
    assert json.loads(out)["cycles"] == simulate(workload=job["workload"], **given).cycles > 1000


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    """Enough ranks that differ, so that there is something left to write when the reader is gone."""
    ranks = [[computation(10**6 * (rank + 1), 10**6)] for rank in range(512)]
    network = {"topology": ["Ring"], "npus_count": [512], "bandwidth": [50], "latency": [500]}
    command = [sys.executable, "-u", "-m", "cosmic", "simulate", *words(write_job(tmp_path, ranks, network=network))]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141
