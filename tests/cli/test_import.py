"""`cosmic design import`: launch scripts and configurations as designs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from cosmic.search.mapping.launch_import import import_launch
from tests.commands import output, run

SCRIPT = """#!/bin/bash
# Llama 3 8B
TP=2
ARGS=(
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
  --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm --disable-bias-linear
  --untie-embeddings-and-output-weights --position-embedding-type rope --seq-length 8192
  --attention-dropout 0 --hidden-dropout 0 --vocab-size 128256
  --tensor-model-parallel-size ${TP} --sequence-parallel --micro-batch-size 1 --global-batch-size 128
  --bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --frobnicate
)
torchrun --nnodes ${NNODES:-2} --nproc-per-node 8 pretrain_gpt.py "${ARGS[@]}" --save $OUT
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("train.sh").write_text(SCRIPT)
    return "train.sh"


def test_what_is_printed_is_a_design_file(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "design", "import", script, "--from", "megatron", "--system", "dgx-h100")
    assert text.startswith("# llama3-8b on 16 × h100-sxm-80gb: dp 8 · tp 2 · microbatch 1 · zero1 · recompute none\n")
    assert "# accelerators: --nnodes 2 × --nproc-per-node 8\n" in text
    assert "# not modelled: --frobnicate (unknown to COSMIC)\n" in text
    assert " tokens/s · " in text
    assert " % MFU · fits: " in text
    assert yaml.safe_load(text)["system"] == "dgx-h100:16"
    Path("printed.yaml").write_text(text)
    assert "llama3-8b on 16" in output(capsys, "evaluate", "printed.yaml")


def test_a_file_is_written_and_what_to_do_next_is_said(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(
        capsys, "design", "import", script, "--from", "megatron", "--define", "NNODES=8", "--out", "design.yaml"
    )
    assert "64 × h100" in text
    commands = [line.split("   ")[0].strip() for line in text.splitlines() if line.startswith("  cosmic ")]
    assert len(commands) == 4
    for command in commands:
        status, _, error = run(capsys, *command.split()[1:])
        assert (status, error) == (0, ""), command


def test_json_says_the_same(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(
        output(capsys, "design", "import", script, "--from", "megatron", "--system", "dgx-h100:32", "--json")
    )
    assert (found["from"], found["accelerators"], found["feasible"], found["reasons"]) == ("megatron", 32, True, [])
    assert found["design"]["model"] == "llama3-8b"
    assert found["not_modelled"] == [{"argument": "--frobnicate", "why": "unknown to COSMIC"}]
    assert found["step_s"] > 0


def test_a_design_that_cannot_run_is_imported_all_the_same(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(
        capsys, "design", "import", script, "--from", "megatron", "--set", "micro_batch=16", "--set", "sequence=65536"
    )
    assert "# cannot run: " in text
    found = json.loads(
        output(capsys, "design", "import", script, "--from", "megatron", "--set", "sequence=1000000", "--json")
    )
    assert (found["feasible"], found["step_s"]) == (False, None)
    assert found["reasons"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train.sh", "--from", "megatorn"], "--from = 'megatorn': no such format; did you mean 'megatron'?"),
        (["none.sh", "--from", "megatron"], "file = 'none.sh': "),
        ([".", "--from", "megatron"], "file = '.': is a directory, not a file"),
        (["empty.sh", "--from", "megatron"], "file = 'empty.sh': is empty"),
        (["binary.sh", "--from", "megatron"], "file = 'binary.sh': is no"),
        (["huge.sh", "--from", "megatron"], "file = 'huge.sh': has more than"),
        (["other.sh", "--from", "megatron"], "other.sh = 'no launch': has no argument of Megatron-LM"),
        (["train.sh", "--from", "torchtitan"], "the script writes none: give the TOML file itself"),
        (["train.sh", "--from", "deepspeed"], "the script writes none: give the JSON file itself"),
        (["train.sh", "--from", "nemo"], "file = 'train.sh': is no YAML file, which recipes are"),
        (["a.json", "--from", "megatron"], "file = 'a.json': is no shell script, file of arguments or YAML file"),
        (["a.json", "--from", "deepspeed"], "--model = 'nothing': name the model"),
        (["a.json", "--from", "torchtitan"], "file = 'a.json': is no TOML file"),
        (["bad.toml", "--from", "torchtitan"], "is no valid TOML"),
        (["bad.yaml", "--from", "nemo"], "is no valid YAML"),
        (["list.yaml", "--from", "nemo"], "must be a mapping of keys to values"),
        (["bert.sh", "--from", "megatron"], "trains models with encoders: only decoders are read"),
        (["two.sh", "--from", "megatron"], "lines 1, 2 launch different jobs: keep one"),
        (["unknown.sh", "--from", "megatron"], "$NNODES is set nowhere: give --define NNODES=VALUE; or say on what"),
        (["train.sh", "--from", "megatron", "--system", "dgx-h101"], "--system = 'dgx-h101': no such system"),
        (["train.sh", "--from", "megatron", "--system", "dgx-h100:many"], "must be a number of NPUs"),
        (["train.sh", "--from", "megatron", "--define", "8"], "--define = '8': write NAME=VALUE"),
        (["train.sh", "--from", "megatron", "--model", "llama9"], "llama9"),
        (["train.sh", "--from", "megatron", "--set", "tpp=8"], "no such"),
        (["train.sh", "--from", "megatron", "--model", "bert-large"], "must be a decoder"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(
    words: list[str], message: str, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty.sh").write_text("\n")
    Path("binary.sh").write_bytes(b"\x7fELF\0\xff\xfe")
    Path("huge.sh").write_text("# x\n" * 100_000)
    Path("other.sh").write_text("echo hello\n")
    Path("a.json").write_text('{"train_micro_batch_size_per_gpu": 1}')
    Path("bad.toml").write_text("[a\n")
    Path("bad.yaml").write_text("a: [1\n")
    Path("list.yaml").write_text("- 1\n")
    Path("bert.sh").write_text("torchrun --nproc-per-node 8 pretrain_bert.py --num-layers 24\n")
    launch = "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers"
    Path("two.sh").write_text(f"{launch} 24\n{launch} 48\n")
    Path("unknown.sh").write_text(SCRIPT.replace("${NNODES:-2}", "$NNODES"))
    status, out, err = run(capsys, "design", "import", *words)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_pipe_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe.sh")
    status, _, err = run(capsys, "design", "import", str(tmp_path / "pipe.sh"), "--from", "megatron")
    assert status == 2
    assert "no regular file" in err


def test_what_export_writes_import_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    design = ["llama3-8b@dgx-h100:64", "--set", "tp=2", "--set", "pp=1", "--set", "weight_sharding=zero1"]
    for target in ("megatron", "torchtitan", "deepspeed"):
        path = tmp_path / f"{target}.sh"
        path.write_text(output(capsys, "design", "export", *design, "--to", target))
        found = import_launch(path, target, model="llama3-8b" if target == "deepspeed" else "")
        assert (found.point.workload.tp, found.point.workload.dp, found.point.model.name) == (2, 32, "llama3-8b")
