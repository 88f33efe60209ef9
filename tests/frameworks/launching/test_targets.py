"""Every target: its names exist, it says what the design says, and it warns of what it cannot express."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, get_args

import pytest

from cosmic.base.errors import SpecError
from cosmic.design import catalog_entries, schema
from cosmic.design import workload_layer as words
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import Model, Transformer
from cosmic.frameworks.launch import Launch, count_hosts, render_script, targets, write_launch
from cosmic.frameworks.targets.megatron import pipeline_layout
from cosmic.workload.pipeline_cut import layers_per_part
from tests.frameworks.launching.launched_designs import CHECKED, DESIGNS, HERE, design

FRAMEWORKS = ("deepspeed", "megatron", "torchtitan")
VARIANTS: dict[str, Any] = {
    "precision": words.Precision,
    "weight_sharding": words.WeightSharding,
    "schedule": words.schedules,
    "recompute": words.Recompute,
    "attention": words.Attention,
    "cp_comm_type": words.ContextParallel,
    "loss": words.Loss,
    "execution": words.Execution,
}
SWITCHES = ("sequence_parallel", "cp_balanced", "dropout", "grouped_gemm", "dp_overlap", "tp_overlap", "ep_overlap")


def with_workload(point: DesignPoint, **changes: Any) -> DesignPoint:
    return replace(point, workload=replace(point.workload, **changes))


def decoders() -> Iterator[Transformer]:
    """Yield every decoder of the catalog whose layers have the same mixers."""
    for name in catalog_entries.entry_names("models"):
        model = schema.read_value(Model, {"name": name, **catalog_entries.read_entry("models", name)["model"]}, "model")
        if isinstance(model, Transformer) and model.family == "decoder" and not model.pattern:
            yield model


def variants() -> Iterator[DesignPoint]:
    """Yield designs that differ in everything a target looks at; not all of them could run."""
    for base in map(design, DESIGNS):
        yield base
        for field, values in VARIANTS.items():
            yield from (with_workload(base, **{field: value}) for value in get_args(values) or values)
        for field in SWITCHES:
            yield from (with_workload(base, **{field: value}) for value in (True, False))
        yield from (with_workload(base, offload=(each,)) for each in get_args(words.Offloaded))
        yield with_workload(base, placement=("tp", "cp", "pp", "dp"))
        yield with_workload(base, placement=("dp", "pp", "cp", "tp"))
        yield with_workload(base, schedule="interleaved", virtual_stages=3, pp=4, recompute="full")
        yield with_workload(base, pp=4, first_stage_layers=6, last_stage_layers=2)
        yield with_workload(base, schedule="interleaved", virtual_stages=2, pp=4, first_stage_layers=6)
    base = design("gpt3-175b")
    yield from (replace(base, model=model) for model in decoders())


def flat(tree: dict[str, Any], before: str = "") -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}"


# ---- names


@pytest.mark.parametrize("to", ["megatron", "torchtitan"])
def test_every_name_and_choice_that_is_written_was_read_in_the_target_s_own_file(to: str) -> None:
    names, choices = set(CHECKED[to]["names"]), CHECKED[to]["choices"]
    seen = set()
    for point in variants():
        for name, value in targets[to](point).arguments.items():
            seen.add(name)
            assert name in names
            if name in choices:
                assert set(value if isinstance(value, list) else [value]) <= set(choices[name])
    assert len(seen) > (60 if to == "megatron" else 20)


def test_every_key_of_deepspeed_s_file_is_one_of_its_keys() -> None:
    names = set(CHECKED["deepspeed"]["names"])
    seen = set()
    for point in variants():
        seen |= set(flat(json.loads(targets["deepspeed"](point).files["ds_config.json"])))
    assert seen == names


@pytest.mark.parametrize(
    ("algorithms", "environment"),
    [
        (("auto", "auto"), {}),
        (("auto", "ring"), {}),
        (("direct", "direct"), {"NCCL_NVLS_ENABLE": "0"}),
        (("ring", "ring"), {"NCCL_ALGO": "ring", "NCCL_NVLS_ENABLE": "0"}),
        (("ring", "double_binary_tree"), {"NCCL_ALGO": "allreduce:tree", "NCCL_NVLS_ENABLE": "0"}),
        (("in_network", "double_binary_tree"), {"NCCL_ALGO": "allreduce:nvlstree", "NCCL_NVLS_ENABLE": "1"}),
        (
            ("ring", "in_network"),
            {"NCCL_ALGO": "allreduce:collnetchain", "NCCL_COLLNET_ENABLE": "1", "NCCL_NVLS_ENABLE": "0"},
        ),
    ],
)
def test_nccl_is_held_to_the_design_s_algorithms_or_says_that_it_cannot_be(
    algorithms: tuple[str, ...], environment: dict[str, str]
) -> None:
    base = design("gpt3-175b")
    found = targets["nccl"](replace(base, collective=replace(base.collective, algorithms=algorithms)))
    assert found.environment == environment
    assert found.warnings
    assert set(found.environment) <= set(CHECKED["nccl"]["names"])
    for part in filter(None, found.environment.get("NCCL_ALGO", "").split(";")):
        assert part.rpartition(":")[2] in CHECKED["nccl"]["algorithms"]


# ---- meaning


def test_degrees_multiply_to_the_number_of_npus() -> None:
    for point in map(design, DESIGNS):
        nodes, each = count_hosts(point)
        assert nodes * each == point.network.npus
        found = targets["megatron"](point).arguments
        split = prod(
            int(str(found[f"--{axis}-parallel-size"])) for axis in ("tensor-model", "pipeline-model", "context")
        )
        assert split * point.workload.dp == point.network.npus
        table = tomllib.loads(targets["torchtitan"](point).files["torchtitan.toml"])["parallelism"]
        degrees = ("data_parallel_replicate", "data_parallel_shard", "tensor_parallel", "context_parallel")
        degree = prod(table[f"{name}_degree"] for name in (*degrees, "pipeline_parallel"))
        assert degree == point.network.npus
        config = json.loads(targets["deepspeed"](point).files["ds_config.json"])
        replicas = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"]
        assert config["train_batch_size"] == replicas * point.workload.dp == point.workload.global_batch


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"schedule": "dualpipe"}, "no schedule like dualpipe"),
        ({"schedule": "zero_bubble"}, "no schedule like zero_bubble"),
        ({"recompute": "alternate"}, "not every other GEMM"),
        ({"offload": ("weights",)}, "does not offload weights"),
        ({"precision": "bf16_pure"}, "fp32 copy"),
        ({"placement": ("dp", "tp", "cp", "pp")}, "numbers ranks"),
        ({"tp_overlap": True, "sequence_parallel": False}, "needs sequence_parallel"),
        ({"execution": "eager"}, "execution is eager"),
        ({"global_batch": 1537}, "divides by 32"),
    ],
)
def test_what_megatron_cannot_express_is_said(changes: dict[str, Any], sentence: str) -> None:
    base = design("gpt3-175b")
    assert not targets["megatron"](base).warnings
    found = targets["megatron"](with_workload(base, **changes))
    assert any(sentence in warning for warning in found.warnings)
    assert f"# note: {found.warnings[0]}" in render_script(found)


def test_a_placement_that_megatron_knows_is_an_argument() -> None:
    base = design("gpt3-175b")
    assert "--use-tp-pp-dp-mapping" not in targets["megatron"](base).arguments
    swapped = targets["megatron"](with_workload(base, placement=("tp", "cp", "pp", "dp")))
    assert "--use-tp-pp-dp-mapping" in swapped.arguments
    assert not swapped.warnings


def test_layers_that_do_not_divide_lie_as_the_design_deals_them_out() -> None:
    uneven = targets["megatron"](design("deepseek-v3")).arguments
    assert uneven["--pipeline-model-parallel-layout"] == "Et*16|t*15|t*15|t*15L"
    point = with_workload(design("deepseek-v3"), schedule="interleaved", virtual_stages=2)
    found = targets["megatron"](point).arguments["--pipeline-model-parallel-layout"]
    assert found == "Et*8|t*8|t*8|t*8|t*8|t*7|t*7|t*7L"
    for layers, stages, virtual in ((61, 4, 2), (9, 8, 1), (96, 8, 4)):
        parts = layers_per_part(layers, stages * virtual)
        assert sum(parts) == layers
        assert pipeline_layout(parts).count("|") == stages * virtual - 1
    even = with_workload(design("gpt3-175b"), schedule="interleaved", virtual_stages=4)
    assert targets["megatron"](even).arguments["--num-virtual-stages-per-pipeline-rank"] == 4


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # 96 layers on 4 stages: 22 of the others each.
        (
            {"first_stage_layers": 26, "last_stage_layers": 26},
            {"--decoder-first-pipeline-num-layers": 26, "--decoder-last-pipeline-num-layers": 26},
        ),
        ({"last_stage_layers": 21}, {"--decoder-last-pipeline-num-layers": 21}),  # 25 for the others
        ({"first_stage_layers": 24}, {}),  # as many as without
        (
            {"first_stage_layers": 22},  # 25, 25 and 24 for the others
            {"--decoder-first-pipeline-num-layers": 22, "--decoder-last-pipeline-num-layers": 24},
        ),
        ({"last_stage_layers": 0}, {"--pipeline-model-parallel-layout": "Et*32|t*32|t*32|L"}),  # takes no 0
        (
            {"last_stage_layers": 18, "schedule": "interleaved", "virtual_stages": 2},
            {"--num-virtual-stages-per-pipeline-rank": 2, "--decoder-last-pipeline-num-layers": 18},
        ),
        (
            {"last_stage_layers": 20, "schedule": "interleaved", "virtual_stages": 2},
            {"--pipeline-model-parallel-layout": "Et*13|t*13|t*13|t*10|t*13|t*12|t*12|t*10L"},
        ),
    ],
)
def test_stated_layers_of_stages_are_megatron_s_own_arguments(
    changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    point = with_workload(design("gpt3-175b"), pp=4, dp=16, **changes)
    found = targets["megatron"](point).arguments
    names = ("--decoder-first", "--decoder-last", "--pipeline-model-parallel-layout", "--num-virtual")
    assert {name: value for name, value in found.items() if name.startswith(names)} == expected


def test_stated_layers_of_stages_are_fewer_layers_or_modules_of_torchtitan() -> None:
    """96 layers on 4 stages."""
    key = "parallelism.pipeline_parallel"
    point = with_workload(design("gpt3-175b"), pp=4, dp=16, first_stage_layers=23, last_stage_layers=23)
    found = targets["torchtitan"](point).arguments
    # 96 and 3 more are 25, 25, 25, 24: two fewer on the first, one on the last.
    assert found[f"{key}_layers_per_stage"] == 25
    assert (found[f"{key}_first_stage_less_layers"], found[f"{key}_last_stage_less_layers"]) == (2, 1)
    chunks: dict[str, Any] = {"schedule": "interleaved", "virtual_stages": 2}
    other = targets["torchtitan"](with_workload(point, first_stage_layers=None, last_stage_layers=20, **chunks))
    table = tomllib.loads(other.files["torchtitan.toml"])["parallelism"]
    named = table["module_fqns_per_model_part"]
    assert [len(each) for each in named] == [1 + 13, 13, 13, 10, 13, 12, 12, 10 + 2]
    assert (named[0][:2], named[-1][-3:]) == (["tok_embeddings", "layers.0"], ["layers.95", "norm", "output"])
    assert "pipeline_parallel_layers_per_stage" not in table
    odd = targets["torchtitan"](with_workload(point, schedule="zero_bubble"))
    assert any("into which 23 layers do not divide" in warning for warning in odd.warnings)


def test_deepspeed_balances_stages_itself() -> None:
    found = targets["deepspeed"](with_workload(design("gpt3-175b"), last_stage_layers=40))
    assert any("last_stage_layers 40: DeepSpeed balances stages itself" in warning for warning in found.warnings)


def test_sharded_weights_are_megatron_fsdp_with_several_hardware_queues() -> None:
    found = targets["megatron"](design("llama3-8b-zero3"))
    assert found.arguments["--data-parallel-sharding-strategy"] == "optim_grads_params"
    assert found.environment == {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}
    assert found.arguments["--cp-comm-type"] == ["p2p"]


def test_a_model_that_torchtitan_does_not_have_is_described() -> None:
    base = design("llama3-8b-zero3")
    assert targets["torchtitan"](base).arguments["model.flavor"] == "8B"
    assert isinstance(base.model, Transformer)
    smaller = targets["torchtitan"](replace(base, model=replace(base.model, layers=16)))
    assert any("register one with 16 layers" in warning for warning in smaller.warnings)


@pytest.mark.parametrize("to", FRAMEWORKS)
def test_only_decoders_that_are_trained_go_to_frameworks_for_training(to: str) -> None:
    base = design("llama3-8b-zero3")
    with pytest.raises(SpecError, match=r"workload\.task = 'decode'"):
        targets[to](with_workload(base, task="decode"))
    other = schema.read_value(Model, {"name": "t5", **catalog_entries.read_entry("models", "t5-11b")["model"]}, "model")
    hybrid = schema.read_value(
        Model, {"name": "h", **catalog_entries.read_entry("models", "nemotron-h-8b")["model"]}, "model"
    )
    with pytest.raises(SpecError, match=r"model\.pattern = .*: layers of several mixers are not written for"):
        targets[to](replace(base, model=hybrid))
    with pytest.raises(SpecError, match=r"model\.family = 'encoder_decoder': only decoders"):
        targets[to](replace(base, model=other))


def test_accelerators_that_the_software_does_not_drive_are_named() -> None:
    base = design("llama3-8b-zero3")
    other = replace(base, compute=replace(base.compute, accelerator="tpu-v5p"))
    assert any("Google" in warning for warning in targets["megatron"](other).warnings)


# ---- writing


@pytest.mark.parametrize("name", DESIGNS)
def test_the_script_is_the_one_that_was_looked_at(name: str) -> None:
    assert render_script(targets["megatron"](design(name))) == (HERE / "golden" / f"{name}.megatron.sh").read_text()


def test_torchtitan_s_and_deepspeed_s_files_are_the_ones_that_were_looked_at() -> None:
    point = design("llama3-8b-zero3")
    for to, file in (("torchtitan", "torchtitan.toml"), ("deepspeed", "ds_config.json")):
        assert targets[to](point).files[file] == (HERE / "golden" / f"llama3-8b-zero3.{file}").read_text()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("to", [*FRAMEWORKS, "nccl"])
def test_a_shell_reads_every_script(to: str, tmp_path: Path) -> None:
    for name in DESIGNS:
        launch = targets[to](design(name))
        written = write_launch(launch, tmp_path / name)
        assert {path.name for path in written} == {"launch.sh", *launch.files}
        for text in (render_script(launch), (tmp_path / name / "launch.sh").read_text()):
            subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_a_script_makes_the_files_that_it_reads(tmp_path: Path) -> None:
    launch = Launch(about="a test", files={"a.toml": "x = 1\n"}, command=("cat a.toml",))
    ran = subprocess.run(
        ["bash"], input=render_script(launch), text=True, check=True, cwd=tmp_path, capture_output=True
    )
    assert ran.stdout == "x = 1\n"


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match=r"--out = .*cannot be written"):
        write_launch(targets["nccl"](design("gpt3-175b")), tmp_path / "file" / "folder")


def test_virtual_stages_are_written_only_with_a_pipeline() -> None:
    alone = with_workload(design("llama3-8b-zero3"), schedule="interleaved", virtual_stages=2)
    assert "--num-virtual-stages-per-pipeline-rank" not in targets["megatron"](alone).arguments


def test_torchtitan_reduces_gradients_in_the_format_of_the_design() -> None:
    base = design("llama3-8b-zero3")
    for changes, narrow in (
        ({}, False),
        ({"precision": "fp8"}, True),
        ({"precision": "fp8", "grad_reduce_in_fp32": True}, False),
    ):
        found = targets["torchtitan"](with_workload(base, **changes)).arguments
        assert (found.get("training.mixed_precision_reduce") == "bfloat16") is narrow


def test_what_no_framework_does_is_said() -> None:
    apart = with_workload(design("gpt3-175b"), runtime="single_parallel", sync_period=100)
    for target in ("megatron", "torchtitan", "deepspeed"):
        warnings = targets[target](apart).warnings
        assert any(warning.startswith("runtime single_parallel is not exported") for warning in warnings)
        assert any(warning.startswith("sync_period 100 is not exported") for warning in warnings)
