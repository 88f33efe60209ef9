"""Systems of one's own: the path of a file wherever MODEL@SYSTEM is written."""

from __future__ import annotations

from pathlib import Path

import pytest

import cosmic
from cosmic.base.errors import SpecError
from cosmic.search.mapping.design_completion import load_design
from tests.commands import run

SYSTEM = """source: ours
accelerator: h100-sxm-80gb
npus: 32
network:
  dims:
    - {topology: switch, npus: 8, bandwidth: 450 GB/s, link: nvlink4}
    - {topology: switch, npus: rest, bandwidth: 100 Gbps, link: infiniband-ndr}
compute: {gemm_efficiency: 0.5, tp_hiding: 0.9}
memory: {capacity: 96 GiB}
"""
MESH = {"tp": 2, "pp": 1, "cp": 1}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(SYSTEM)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "design.yaml").write_text("model: llama3-8b\nsystem: ../mine.yaml:16\nworkload: {tp: 2}\n")
    return tmp_path


def test_a_file_is_a_system_at_any_size(folder: Path) -> None:
    for source, npus in ((f"llama3-8b@{folder}/mine.yaml:16", 16), ("llama3-8b@mine.yaml", 32)):
        point = load_design(source, MESH)
        assert point.network.npus == npus
        assert point.network.dims[1].bandwidth_bytes_per_s == 12.5e9
        assert (point.compute.gemm_efficiency, point.compute.tp_hiding) == (0.5, 0.9)
        assert point.memory.capacity_bytes == 96 * 2**30
        assert load_design({"model": "llama3-8b", "system": source[10:]}, MESH) == point
    assert load_design(folder / "below" / "design.yaml").network.npus == 16


def test_what_a_user_sets_comes_before_what_the_system_says(folder: Path) -> None:
    assert load_design("llama3-8b@mine.yaml:8", {**MESH, "gemm_efficiency": 0.7}).compute.gemm_efficiency == 0.7
    other = load_design("llama3-8b@mine.yaml:8", {**MESH, "compute.accelerator": "a100-sxm-80gb"})
    assert other.compute.gemm_efficiency != 0.5  # it was said of another accelerator


def test_a_design_on_such_a_system_is_written_in_full(folder: Path) -> None:
    point = load_design("llama3-8b@mine.yaml:8", MESH)
    (folder / "whole.yaml").write_text(cosmic.design.dump_design(point))
    assert load_design("whole.yaml") == point


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("llama3-8b@absent.yaml:8", "cannot be read"),
        ("llama3-8b@absent.yaml", "cannot be read"),
        ("llama3-8b@mine.yaml:x", "what follows the colon must be a number of NPUs"),
        ("llama3-8b@mine.yaml:3", "must be a multiple or a divisor of 8"),
        ("llama3-8b@bad.yaml:8", "must name an accelerator of the catalog"),
        ("llama3-8b@worse.yaml:8", "must be a mapping of keys to values"),
        ("llama3-8b@unknown.yaml:8", "no such key"),
    ],
)
def test_a_file_that_is_no_system_is_one_sentence(source: str, rule: str, folder: Path) -> None:
    (folder / "bad.yaml").write_text("npus: 8\nnetwork: {dims: []}\n")
    (folder / "worse.yaml").write_text(SYSTEM.replace("{gemm_efficiency: 0.5, tp_hiding: 0.9}", "5"))
    (folder / "unknown.yaml").write_text(SYSTEM.replace("tp_hiding", "tp_hidden"))
    with pytest.raises(SpecError, match=rule):
        load_design(source, MESH)


def test_what_somebody_sends_names_no_file(folder: Path) -> None:
    for source in ("llama3-8b@mine.yaml:8", {"model": "llama3-8b", "system": "mine.yaml:8"}):
        with pytest.raises(SpecError, match="refers to no file"):
            load_design(source, MESH, files=False)


@pytest.mark.long
def test_commands_take_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ("evaluate", "llama3-8b@mine.yaml:16"),
        ("design", "show", "llama3-8b@mine.yaml"),
        ("design", "diff", "llama3-8b@mine.yaml:16", "llama3-8b@dgx-h100:16"),
        ("design", "sweep", "llama3-8b@mine.yaml:16", "--vary", "tp=1,2"),
        ("design", "workload", "llama3-8b@mine.yaml:16"),
        ("design", "export", "llama3-8b@mine.yaml:16", "--to", "megatron"),
        ("search", "llama3-8b@mine.yaml:16", "-n", "5", "--out", "study"),
        ("study", "replay", "study"),
    ):
        assert run(capsys, *words)[0] == 0, words
