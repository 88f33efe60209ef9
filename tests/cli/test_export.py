"""`cosmic design export` of designs; of studies: tests/search/test_export.py."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from cosmic.design.loading import dump_design
from cosmic.search.mapping.design_completion import load_design
from tests.commands import output, run

DESIGN = "llama3-8b@dgx-h100:64"
SERVED = ["llama3-8b@dgx-h100:8", "--set", "isl=1000", "--set", "osl=100", "--set", "concurrency=16"]


def test_a_design_is_printed_as_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "design", "export", DESIGN, "--to", "megatron", "--set", "workload.tp=4").splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert any(line.startswith("torchrun --nnodes 8 --nproc-per-node 8 ") for line in lines)
    assert "  --tensor-model-parallel-size 4 \\" in lines


@pytest.mark.parametrize("to", ["megatron", "torchtitan", "deepspeed", "nccl"])
def test_json_has_the_same_keys_for_every_target(to: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(output(capsys, "design", "export", DESIGN, "--to", to, "--json"))
    assert list(found) == ["to", "command", "arguments", "environment", "files", "warnings"]
    assert found["to"] == to


@pytest.mark.parametrize("to", ["vllm", "sglang", "trtllm", "dynamo"])
def test_a_served_design_goes_to_engines(to: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["design", "export", *SERVED, "--to", to]
    found = json.loads(output(capsys, *words, "--json"))
    assert list(found)[-2:] == ["pools", "script"]
    assert found["pools"] == {"serve": found["arguments"]}
    assert found["script"] == output(capsys, *words)


def test_a_folder_gets_the_script_the_files_and_the_traces(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    design = ["gpt3-13b@dgx-h100:16", "--set", "model.layers=2", "--set", "workload.global_batch=32"]
    folder = str(tmp_path / "job")
    status, out, err = run(capsys, "design", "export", *design, "--to", "astra-sim", "--out", folder)
    assert (status, err.count("\n")) == (0, 1)  # one warning
    command = out.splitlines()[-1].removeprefix("  cosmic ")
    names = {path.name for path in (tmp_path / "job").iterdir()}
    assert names > {"launch.sh", "system.json", "network.yml", "memory.json", "comm_groups.json", "trace.15.et"}
    assert json.loads(output(capsys, *command.split(), "--json"))["cycles"] > 0
    found = json.loads(output(capsys, "design", "export", *design, "--to", "astra-sim", "--out", folder, "--json"))
    assert found["traces"] == 16


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            [DESIGN, "--to", "trials.csv"],
            "--to = 'trials.csv': is for 'cosmic study export'; a design goes to one of astra-sim, ",
        ),
        ([DESIGN, "--to", "-"], "--to = '-': is for 'cosmic study export'"),
        ([DESIGN, "--to", "megatorn"], "--to = 'megatorn': no such target; did you mean 'megatron'?"),
        ([DESIGN, "--to", "astra-sim"], "--out = '': astra-sim reads files"),
        ([".", "--to", "megatron"], "design = '.': is the folder of a study: 'cosmic study export' writes it"),
        ([DESIGN, "--to", "vllm", "--set", "task=training"], "workload.task = 'training': vllm serves models: give"),
        (["bert-large@dgx-h100:8", "--to", "dynamo"], "model = 'bert-large': generates no tokens"),
        ([*SERVED, "--to", "megatron"], "serving.engine = 'vllm': megatron runs training designs only"),
        (
            ["bert-large@dgx-h100:8", "--set", "task=prefill", "--to", "sglang"],
            "model.family = 'encoder': only decoders",
        ),
        (["t5-11b@dgx-h100:64", "--to", "megatron"], "model.family = 'encoder_decoder': only decoders"),
    ],
)
def test_pairs_that_do_not_go_together_are_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, "design", "export", *words)
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([DESIGN, "--to", "x.csv"], f"study = '{DESIGN}': is a design: 'cosmic design export' writes it"),
        (["best.yaml", "--to", "megatron"], "study = 'best.yaml': is a design: 'cosmic design export' writes it"),
        ([".", "--to", "megatron"], "--to = 'megatron': is for 'cosmic design export'; a study is written to FILE.csv"),
        (["no-such-study", "--to", "x.csv"], "study = 'no-such-study': is no study"),
    ],
)
def test_what_is_no_study_is_not_written_as_a_table(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, "study", "export", *words)
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_design_that_cannot_run_is_not_launched(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "design", "export", "gpt3-175b@dgx-h100:8", "--to", "megatron")
    assert (status, err) == (1, "")
    assert out.startswith("cannot run: needs ")
    status, out, _ = run(
        capsys, "design", "export", "mixtral-8x7b@dgx-h100:8", *SERVED[1:], "--set", "ep=3", "--to", "vllm"
    )
    assert status == 1
    assert out.startswith("cannot run: ")
    status, out, _ = run(capsys, "design", "export", "gpt3-175b@dgx-h100:8", "--to", "megatron", "--json")
    assert status == 1
    assert json.loads(out)["feasible"] is False


@pytest.mark.long
def test_a_name_of_the_catalog_is_served_under_a_usual_load(capsys: pytest.CaptureFixture[str]) -> None:
    """As `cosmic serve` has it; what was assumed is said."""
    words = ("design", "export", "llama3-8b@h100:2", "--set", "isl=500", "--set", "rate=2")
    found = json.loads(output(capsys, *words, "--to", "sglang", "--json"))
    assert found["arguments"]["--model-path"] == "nvidia/Llama-3.1-8B-Instruct-FP8"
    assumed = [each for each in found["warnings"] if each.startswith("assumed: ")]
    assert assumed[0] == "assumed: 256 tokens out, as --output is not given"
    assert "cosmic serve llama3-8b@h100:2 … --save FILE" in assumed[-1]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a deployment of two pools, of a model that shares its shapes with others."""
    path = tmp_path_factory.mktemp("saved") / "two.yaml"
    fields = {
        "tp": 2,
        "pp": 1,
        "dp": 1,
        "prefill.replicas": 2,
        "prefill.tp": 1,
        "isl": 500,
        "osl": 100,
        "rate": 2.0,
        "precision": "fp8",
    }
    path.write_text(dump_design(load_design("meta-llama/Meta-Llama-3.1-8B@h100:4", fields)))
    return path


@pytest.mark.long
def test_a_saved_deployment_has_only_what_counts(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Loading it gives the same design, which no command calls unable to run, or full of fields without effect."""
    tree = yaml.safe_load(saved.read_text())
    assert set(tree["workload"]) == {"precision", "dp", "tp", "cp", "pp", "ep"}
    assert tree["model"]["checkpoint"] == "meta-llama/Meta-Llama-3.1-8B"
    assert dump_design(load_design(saved)) == saved.read_text()
    shown = output(capsys, "design", "show", str(saved))
    assert "cannot run" not in shown
    assert "Meta-Llama-3.1-8B (shapes of llama3-8b)" in shown
    assert json.loads(output(capsys, "design", "show", str(saved), "--json"))["invalid"] == []
    assert "note:" not in output(capsys, "evaluate", str(saved))
    assert "note: sequence has no effect" in output(capsys, "evaluate", str(saved), "--set", "sequence=9")
    invalid = json.loads(output(capsys, "design", "show", str(saved), "--set", "dp=2", "--json"))["invalid"]
    assert invalid == [
        "4 NPUs decode (dp 2 × tp 2 × cp 1 × pp 1) and 2 prefill, 6 in all, of 4 NPUs: make them equal",
    ]


def test_a_saved_deployment_is_launched_by_the_name_it_has(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = output(capsys, "design", "export", str(saved), "--to", "vllm")
    assert "vllm serve meta-llama/Meta-Llama-3.1-8B " in found
    assert "--quantization fp8" in found


def test_a_load_has_requests_in_flight_or_a_rate(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Setting either drops the other; setting both is a mistake."""
    rows = json.loads(output(capsys, "design", "sweep", str(saved), "--vary", "concurrency=1,2", "--json"))
    assert rows[1]["tokens_per_s"] > rows[0]["tokens_per_s"]
    status, _, err = run(capsys, "design", "sweep", str(saved), "--set", "rate=1", "--vary", "concurrency=1")
    assert status == 2
    assert "not both" in err


def test_served_designs_are_compared_by_what_clients_feel(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = output(capsys, "design", "diff", str(saved), str(saved), "--set-b", "engine=trtllm")
    assert re.match(r"B has [\d.]+× the TTFT, [\d.]+× the TPOT and the same tokens/s an accelerator of A; all of", told)
    assert "a step" not in told
    assert "nan" not in told
    found = json.loads(output(capsys, "design", "diff", str(saved), str(saved), "--set-b", "engine=trtllm", "--json"))
    change = found["metrics"]["tpot_s"]["b"] - found["metrics"]["tpot_s"]["a"]
    assert found["differences"][0]["worth_s"] == pytest.approx(change)
    status, _, err = run(capsys, "design", "diff", str(saved), "llama3-8b@h100:4")
    assert status == 2
    assert "one design serves a load, and the other is a single step" in err
