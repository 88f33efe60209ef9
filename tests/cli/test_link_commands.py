"""Commands on networks of links: shown, evaluated, searched, certified, compared and reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import output, run

DESIGN = """
model: llama3-8b
compute: {accelerator: h100-sxm-80gb}
network:
  dims:
    - topology: graph
      npus: 4
      links:
LINKS
    - {topology: switch, npus: 4, bandwidth: 50 GB/s, latency: 2 us}
workload: {tp: 4, cp: 1, pp: 1, dp: 4, global_batch: 16, micro_batch: 1, weight_sharding: zero1}
"""
SPACE = """
version: 1
base: design.yaml
parameters:
  collective.algorithms.*: [ring, direct, synthesized]
  network.dims.0.bandwidth: [50 GB/s, 100 GB/s]
  workload.micro_batch: [1, 2]
objective: step_s
"""


@pytest.fixture
def design(tmp_path: Path) -> str:
    """Return the path of a design whose inner dimension is a ring, one way faster than the other."""
    ends = [(npu, (npu + turn) % 4, speed) for npu in range(4) for turn, speed in ((1, 75), (3, 25))]
    links = [f"        - {{source: {a}, target: {b}, bandwidth: {s} GB/s, latency: 1 us}}" for a, b, s in ends]
    path = tmp_path / "design.yaml"
    path.write_text(DESIGN.replace("LINKS", "\n".join(links)))
    (tmp_path / "space.yaml").write_text(SPACE)
    return str(path)


def test_show_says_what_a_network_is_made_of(design: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = output(capsys, "design", "show", design, "--set", "network.faults=[{npu: 5, dim: 1, speed: 0.5}]")
    assert "graph: 4 NPUs, 8 links, 2 out of each NPU; the slowest is link 0→3 at 25 GB/s" in said
    assert "switch with 1 fault: 4 NPUs, 1 switch, 8 links, 1 out of each NPU" in said
    assert "at 25 GB/s" in said
    shown = json.loads(output(capsys, "design", "show", design, "--json"))
    assert len(shown["design"]["network"]["dims"][0]["links"]) == 8


@pytest.mark.long
def test_evaluate_takes_faults_and_names_what_is_synthesised(design: str, capsys: pytest.CaptureFixture[str]) -> None:
    faults = "network.faults=[{npu: 0, dim: 1, speed: 0.25}]"
    said = output(capsys, "evaluate", design, "--set", faults, "--set", "collective.algorithms.0=synthesized")
    assert "note: network dimension 0 has 8 listed links and collectives synthesised for its links" in said
    assert "note: network dimension 1 has 1 fault" in said


def test_a_fault_that_disconnects_is_infeasible(design: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "evaluate", design, "--set", "network.faults=[{npu: 0, dim: 1}]")
    assert "faults leave no path from NPU 0 to NPU 1" in out + err
    assert status not in (0, 2)


def test_a_malformed_fault_is_an_error(design: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "evaluate", design, "--set", "network.faults=[{npu: 0, dim: 9}]")
    assert (status, out) == (2, "")
    assert err == "cosmic evaluate: network.faults.0.dim = 9: there are 2 dimensions, from 0\n"


@pytest.mark.long
def test_searches_choose_synthesised_collectives(
    design: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = str(tmp_path / "study")
    searched = run(capsys, "search", str(tmp_path / "space.yaml"), "--out", study, "--trials", "36")
    assert searched[0] == 0
    table = tmp_path / "trials.csv"
    assert run(capsys, "study", "export", study, "--to", str(table))[0] == 0
    assert "synthesized" in table.read_text(encoding="utf-8")
    assert "all 36 trials are the same" in output(capsys, "study", "replay", study, "--check")
    assert run(capsys, "report", study)[0] == 0
    assert (tmp_path / "study" / "report.html").is_file()


def test_certify_goes_through_designs_of_links(design: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = output(capsys, "space", "certify", str(tmp_path / "space.yaml"))
    assert "times that follow from links one by one are not bounded by the ends of a range" in said


def test_differences_name_links_once(design: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = output(capsys, "design", "diff", design, design, "--set-b", "network.dims.0.links.0.bandwidth=50 GB/s")
    assert "network.dims.0.links " in said
    assert "links.0.source" not in said


@pytest.mark.long
def test_a_search_of_all_layers_keeps_the_links(
    design: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = str(tmp_path / "study")
    words = ("search", design, "--stacks", "collective,network", "--out", study, "--trials", "30")
    status, out, err = run(capsys, *words)
    assert status == 0, err
    assert "network.dims.0.bandwidth" in out
