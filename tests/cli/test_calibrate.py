"""`cosmic calibrate run` and `cosmic calibrate probe`, as they are called."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from cosmic.accuracy.calibrate.probing import COLUMNS, LARGE, SMALL, plan_probes, probe
from cosmic.base.errors import SpecError
from cosmic.cli.schema_command import schema_of
from tests.accuracy.calibrate.fake_device import FakeDevice
from tests.commands import output, run

ROWS = """id,design,tp,pp,cp,gbs,recompute,step_s
first,llama3-8b@dgx-h100:16,2,1,1,64,full,7.2
second,llama3-8b@dgx-h100:16,4,1,1,64,full,8.9
third,llama3-8b@dgx-h100:16,8,1,1,64,full,12.0
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text(ROWS)
    return tmp_path


@pytest.mark.long
def test_it_says_what_it_learned_and_what_not(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    text = output(capsys, "calibrate", "run", "rows.csv", "--out", "mine.yaml")
    lines = text.splitlines()
    assert lines[0] == "dgx-h100: mean errors"
    assert lines[2].startswith("steps        3 ")
    assert "rate of 16-bit GEMMs" in text
    assert "not learned (no measurement depends on it): " in text
    assert "a factor for all times: " in text
    assert lines[-1] == "wrote mine.yaml: use it as MODEL@mine.yaml:SIZE in every command"
    settings = [
        word for each in ("tp=4", "pp=1", "cp=1", "global_batch=64", "recompute=full") for word in ("--set", each)
    ]
    found = json.loads(output(capsys, "evaluate", "llama3-8b@mine.yaml:16", *settings, "--json"))
    told = json.loads(output(capsys, "calibrate", "run", "rows.csv", "--json"))
    assert found["step_s"] == pytest.approx(told["rows"][1]["after_s"], rel=2e-3)
    assert abs(told["rows"][1]["after_s"] / 8.9 - 1) < abs(told["rows"][1]["before_s"] / 8.9 - 1)


def test_a_name_that_is_no_yaml_file_is_refused(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    status, _, err = run(capsys, "calibrate", "run", "rows.csv", "--out", "mine.txt")
    assert (status, err) == (2, "cosmic calibrate run: --out = 'mine.txt': must name a YAML file, ending in .yaml\n")
    assert run(capsys, "calibrate", "run", "rows.csv", "--system", "dgx-h900")[0] == 2
    assert run(capsys, "calibrate", "run", "rows.csv", "--system", "dgx-h100", "--on", "llama3-8b@dgx-h100:8")[0] == 2


# ---- probe


@pytest.mark.long
def test_a_probe_writes_what_calibrate_reads(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FakeDevice()
    monkeypatch.setattr("cosmic.accuracy.calibrate.torch_device.torch_device", lambda _: device)
    text = output(capsys, "calibrate", "probe", "--out", "probe.csv")
    assert "NVIDIA H200: " in text
    assert "refused: GEMM 512x4096x4096 fp8: CUDA error: no such kernel\n" in text
    assert device.closed
    assert output(capsys, "calibrate", "probe") == (folder / "probe.csv").read_text()
    data = json.loads(output(capsys, "calibrate", "probe", "--json"))
    Draft202012Validator(schema_of("calibrate probe")).validate(data)
    assert {row["kind"] for row in data["rows"]} == {"gemm", "attention", "memory", "launch", "step"}
    assert "dgx-h200: mean errors" in output(capsys, "calibrate", "run", "probe.csv", "--out", "mine.yaml")


def test_a_probe_without_a_gpu_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # as where it is not installed
    status, out, err = run(capsys, "calibrate", "probe")
    assert (status, out) == (2, "")
    assert err.startswith("cosmic calibrate probe: PyTorch = 'torch': is not installed: pip install '.[torch]'")
    assert err.count("\n") == 1
    for words in (("--minutes", "0"), ("--minutes", "nan"), ("--device", "tpu"), ("--out", "probe.txt")):
        status, _, err = run(capsys, "calibrate", "probe", *words)
        assert (status, err.count("\n")) == (2, 1)


def test_a_probe_that_runs_out_of_time_says_what_is_left() -> None:
    found = probe(FakeDevice(8, 1), 1e-12)
    assert {row["kind"] for row in found.rows} == {"collective"}  # which all ranks measure together
    assert found.left == sum(1 for _ in plan_probes(FakeDevice()))
    assert set(found.rows[0]) <= set(COLUMNS)


def test_small_shapes_are_of_the_same_kinds() -> None:
    assert LARGE.keys() == SMALL.keys()


def test_a_probe_needs_no_library_of_ours() -> None:
    code = "import sys, cosmic.accuracy.calibrate.probing; print([m for m in ('numpy', 'yaml', 'typer') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_probe_runs_where_typer_is_missing(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.setattr("cosmic.accuracy.calibrate.probing.torch_device", lambda _: FakeDevice())
    status, _, err = run(capsys, "calibrate", "probe", "--out", "probe.csv")
    assert (status, err) == (0, "")
    assert (folder / "probe.csv").read_text().startswith("kind,device,")

    def refuse(_: str) -> FakeDevice:
        raise SpecError("--device", "cuda", "PyTorch sees no GPU here")

    monkeypatch.setattr("cosmic.accuracy.calibrate.probing.torch_device", refuse)
    assert run(capsys, "calibrate", "probe")[0] == 2
