"""`cosmic export` of designs; of studies: tests/exploration/test_export.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.commands import output, run

DESIGN = "llama3-8b@dgx-h100:64"


def test_a_design_is_printed_as_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "export", DESIGN, "--to", "megatron", "--set", "workload.tp=4").splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert any(line.startswith("torchrun --nnodes 8 --nproc-per-node 8 ") for line in lines)
    assert "  --tensor-model-parallel-size 4 \\" in lines


@pytest.mark.parametrize("to", ["megatron", "torchtitan", "deepspeed", "nccl"])
def test_json_has_the_same_keys_for_every_target(to: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(output(capsys, "export", DESIGN, "--to", to, "--json"))
    assert list(found) == ["to", "command", "arguments", "environment", "files", "warnings"]
    assert found["to"] == to


def test_a_folder_gets_the_script_the_files_and_the_traces(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    design = ["gpt3-13b@dgx-h100:16", "--set", "model.layers=2", "--set", "workload.global_batch=32"]
    folder = str(tmp_path / "job")
    status, out, err = run(capsys, "export", *design, "--to", "astra-sim", "--out", folder)
    assert (status, err.count("\n")) == (0, 1)  # one warning
    command = out.splitlines()[-1].removeprefix("  cosmic ")
    names = {path.name for path in (tmp_path / "job").iterdir()}
    assert names > {"launch.sh", "system.json", "network.yml", "memory.json", "comm_groups.json", "trace.15.et"}
    assert json.loads(output(capsys, *command.split(), "--json"))["cycles"] > 0
    found = json.loads(output(capsys, "export", *design, "--to", "astra-sim", "--out", folder, "--json"))
    assert found["traces"] == 16


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([DESIGN, "--to", "trials.csv"], "--to = 'trials.csv': is for studies; a design goes to one of astra-sim, "),
        ([DESIGN, "--to", "-"], "--to = '-': is for studies"),
        ([DESIGN, "--to", "megatorn"], "--to = 'megatorn': no such target; did you mean 'megatron'?"),
        ([DESIGN, "--to", "astra-sim"], "--out = '': astra-sim reads files"),
        (
            [".", "--to", "megatron"],
            "--to = 'megatron': is for designs; a study is written to FILE.csv, .jsonl or .parquet",
        ),
        ([".", "--to", "x.csv", "--set", "workload.tp=2"], "--set = ['workload.tp=2']: changes a design"),
        ([".", "--to", "x.csv", "--out", "folder"], "--out = 'folder': is for designs"),
        (["no-such-study", "--to", "x.csv"], "study = 'no-such-study': is no study"),
        (["t5-11b@dgx-h100:64", "--to", "megatron"], "model.family = 'encoder_decoder': only decoders"),
    ],
)
def test_pairs_that_do_not_go_together_are_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, "export", *words)
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_design_that_cannot_run_is_not_launched(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "export", "gpt3-175b@dgx-h100:8", "--to", "megatron")
    assert (status, err) == (1, "")
    assert out.startswith("cannot run: needs ")
    status, out, _ = run(capsys, "export", "gpt3-175b@dgx-h100:8", "--to", "megatron", "--json")
    assert status == 1
    assert json.loads(out)["feasible"] is False
