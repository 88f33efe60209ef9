"""Scripts and configurations as people have them, each with the design that was worked out by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.design.field_facts import flags_of
from cosmic.design.workload_layer import Workload
from cosmic.frameworks import megatron_model
from cosmic.frameworks.megatron_files import COSTLESS_FLAGS, READ_ARGUMENTS, UNMODELLED_ARGUMENTS, is_without_cost
from cosmic.frameworks.targets import megatron
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.mapping.launch_import import Imported, import_launch

FILES = Path(__file__).parent / "files"
CASES: dict[str, tuple[dict[str, Any], str, int, dict[str, Any], list[str]]] = {
    # file: (how it is read, model, accelerators, workload, arguments that are not modelled)
    "gpt3_175b.sh": (
        {"origin": "megatron"},
        "gpt3-175b",
        512,
        {"dp": 4, "tp": 8, "pp": 16, "cp": 1, "schedule": "interleaved", "virtual_stages": 2}
        | {"precision": "fp16", "global_batch": 1536, "micro_batch": 1, "sequence": 2048, "dropout": True}
        | {"sequence_parallel": False, "weight_sharding": "none", "dp_overlap": False, "recompute": "none"},
        [],
    ),
    "llama3_8b_fp8.sh": (
        {"origin": "megatron", "system": "dgx-h100"},
        "llama3-8b",
        8,
        {
            "dp": 2,
            "tp": 2,
            "cp": 2,
            "pp": 1,
            "cp_comm_type": "ring",
            "precision": "fp8",
            "grad_reduce_in_fp32": None,
            "fp8_param_gather": True,
        }
        | {"sequence_parallel": True, "weight_sharding": "zero1", "dp_overlap": True, "dropout": False, "loss": "auto"},
        [],
    ),
    "mixtral_8x7b.sh": (
        {"origin": "megatron", "system": "dgx-a100"},
        "mixtral-8x7b",
        32,
        {"dp": 8, "pp": 4, "ep": 8, "etp": None, "grouped_gemm": True, "precision": "bf16", "global_batch": 256}
        | {"weight_sharding": "zero1", "dp_overlap": True, "schedule": "1f1b", "sequence": 4096},
        [],
    ),
    "deepseek_v3_slurm.sh": (
        {"origin": "megatron", "system": "dgx-h800"},
        "deepseek-v3",
        1024,
        {"dp": 64, "pp": 16, "ep": 64, "etp": None, "precision": "fp8", "grad_reduce_in_fp32": True, "sequence": 4096}
        | {"recompute": "selective", "recompute_modules": ("mla_up_proj", "moe_act", "layernorm")}
        | {"global_batch": 4096, "weight_sharding": "zero1", "moe_token_dispatcher_type": "flex"},
        ["--mtp-num-layers 1"],
    ),
    "arguments.txt": (
        {"origin": "megatron", "system": "dgx-h100:64"},
        "llama3-70b",
        64,
        {"dp": 2, "tp": 4, "cp": 2, "pp": 4, "cp_comm_type": "ulysses", "virtual_stages": 5, "micro_batch": 1}
        | {"weight_sharding": "zero2", "tp_overlap": True, "recompute": "full", "recompute_num_layers": 2}
        | {"recompute_to_end": True},
        [],
    ),
    "zoo.yaml": (
        {"origin": "megatron", "system": "dgx-h100:64", "defines": {"TP": "2", "PP": "1", "EP": "8"}},
        "qwen3-30b-a3b",
        64,
        {"dp": 32, "tp": 2, "pp": 1, "ep": 8, "etp": 1, "grouped_gemm": True, "precision": "bf16"},
        [],
    ),
    "yaml_cfg.yaml": (
        {"origin": "megatron", "system": "dgx-a100:8"},
        "gpt3-1.3b",
        8,
        {"dp": 4, "tp": 2, "micro_batch": 2, "recompute": "selective", "recompute_modules": ("core_attn",)}
        | {"sequence_parallel": True, "dropout": False, "weight_sharding": "zero1"},
        [],
    ),
    "nemo1_llama2_70b.yaml": (
        {"origin": "nemo"},
        "llama2-70b",
        128,
        {"dp": 8, "tp": 4, "pp": 4, "virtual_stages": 20, "tp_overlap": True, "dp_overlap": True, "sequence": 4096}
        | {"recompute": "full", "recompute_num_layers": 1, "weight_sharding": "zero1", "precision": "bf16"},
        [],
    ),
    "bridge_qwen3.yaml": (
        {"origin": "nemo", "model": "qwen3-30b-a3b", "system": "dgx-h100:32"},
        "qwen3-30b-a3b",
        32,
        {"dp": 4, "tp": 4, "pp": 2, "ep": 4, "etp": 1, "micro_batch": 2, "precision": "fp8", "tp_overlap": True}
        | {"grad_reduce_in_fp32": True, "dp_overlap": True, "recompute_modules": ("moe_act", "layernorm")},
        [],
    ),
    "bridge_deepseek.yaml": (
        {"origin": "nemo", "system": "dgx-h100:1024"},
        "deepseek-v3",
        1024,
        {"dp": 64, "tp": 2, "pp": 8, "ep": 64, "etp": 1, "virtual_stages": 4, "precision": "fp8", "loss": "fused"}
        | {"grad_reduce_in_fp32": None, "dp_overlap": False, "recompute_modules": ("mla_up_proj", "mlp")},
        [
            "optimizer.exp_avg_dtype = bf16",
            "model.pipeline_model_parallel_layout = Et|(tt|)*30mL",
            "ddp.overlap_param_gather = true",
            "model.mtp_num_layers = 1",
            "not model.overlap_p2p_comm = true",
        ],
    ),
    "titan_70b.toml": (
        {"origin": "torchtitan", "system": "dgx-h100:64"},
        "llama3-70b",
        64,
        {"dp": 8, "tp": 8, "micro_batch": 8, "global_batch": 64, "weight_sharding": "zero3", "recompute": "full"}
        | {"execution": "compiled", "tp_overlap": True, "recompute_to_end": False},
        [],
    ),
    "titan_pipeline.toml": (
        {"origin": "torchtitan", "system": "dgx-h100:512"},
        "llama3-405b",
        512,
        {"dp": 4, "tp": 8, "cp": 2, "pp": 8, "schedule": "interleaved", "virtual_stages": 2, "micro_batch": 2}
        | {"global_batch": 128, "precision": "fp8", "recompute": "alternate", "cp_comm_type": "ring"},
        ["parallelism.data_parallel_replicate_degree = 2"],
    ),
    "ds_zero3.json": (
        {"origin": "deepspeed", "model": "llama3-8b", "system": "dgx-h100:16"},
        "llama3-8b",
        16,
        {"dp": 16, "micro_batch": 2, "global_batch": 128, "weight_sharding": "zero3", "offload": ("optimizer",)}
        | {"recompute": "full", "precision": "bf16", "dp_overlap": True, "sequence": 8192},
        ["zero_optimization.zero_hpz_partition_size = 8"],
    ),
    "ds_auto.json": (
        {"origin": "deepspeed", "model": "llama3-8b", "system": "dgx-h100:16"}
        | {"overrides": {"micro_batch": 1, "global_batch": 64, "pp": 2}},
        "llama3-8b",
        16,
        {"dp": 8, "pp": 2, "micro_batch": 1, "global_batch": 64, "weight_sharding": "zero2"}
        | {"reduce_every": "microbatch", "dp_overlap": False, "recompute": "none", "precision": "bf16"},
        [],
    ),
}


def read(name: str) -> Imported:
    given = dict(CASES[name][0])
    return import_launch(FILES / name, given.pop("origin"), **given)


@pytest.mark.parametrize("name", CASES)
def test_a_file_is_the_design_that_was_worked_out_by_hand(name: str) -> None:
    _, model, npus, workload, left_out = CASES[name]
    found = read(name)
    assert found.point.model.name == model
    assert found.point.network.npus == npus
    assert {key: getattr(found.point.workload, key) for key in workload} == workload
    assert [each.argument for each in found.not_modelled] == left_out
    assert all(each.why for each in found.not_modelled)


@pytest.mark.parametrize("name", CASES)
def test_the_design_that_is_printed_loads_as_the_same_design(name: str, tmp_path: Path) -> None:
    found = read(name)
    (tmp_path / "design.yaml").write_text(found.text)
    assert load_design(tmp_path / "design.yaml") == found.point


def test_every_file_is_covered() -> None:
    assert {path.name for path in FILES.iterdir()} == set(CASES)


def test_a_script_says_where_its_accelerators_come_from() -> None:
    assert read("gpt3_175b.sh").said == "--nnodes 64 × --nproc_per_node 8"
    assert read("deepseek_v3_slurm.sh").said == "#SBATCH --nodes 128 × --gpus-per-node 8"
    assert read("nemo1_llama2_70b.yaml").said == "trainer.num_nodes 16 × trainer.devices 8"


def test_the_size_that_the_user_gives_wins_and_the_other_is_said() -> None:
    found = import_launch(FILES / "gpt3_175b.sh", "megatron", system="dgx-h100:1024")
    assert found.point.workload.dp == 8
    assert "1,024 accelerators as --system says, though --nnodes 64 × --nproc_per_node 8 are 512" in found.assumed


def test_a_defined_variable_wins_over_the_script_s_own() -> None:
    found = import_launch(FILES / "gpt3_175b.sh", "megatron", defines={"NUM_NODES": "32"})
    assert found.point.network.npus == 256


def test_settings_change_the_design_and_the_rest_follows() -> None:
    found = import_launch(FILES / "gpt3_175b.sh", "megatron", overrides={"tp": 4, "model.layers": 48})
    assert (found.point.workload.tp, found.point.workload.dp) == (4, 8)
    assert found.tree["model"] == {"base": "gpt3-175b", "layers": 48}


MINIMAL = "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 128 --micro-batch-size 1"


def minimal(tmp_path: Path, more: str = "", **given: Any) -> Imported:
    path = tmp_path / "tiny.sh"
    path.write_text(f"torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py {MINIMAL} {more}\n")
    return import_launch(path, "megatron", **given)


def test_a_model_that_is_not_in_the_catalog_is_described_by_its_sizes(tmp_path: Path) -> None:
    found = minimal(tmp_path, "--vocab-size 1000")
    model = found.tree["model"]
    assert (model["name"], model["layers"], model["ffn"], model["vocab"]) == ("tiny", 4, 2048, 1000)
    assert (model["positions"], model["biases"]) == (128, ["qkv", "out", "ffn"])  # Megatron-LM's defaults


def test_a_padded_vocabulary_does_not_hide_a_model_of_the_catalog(tmp_path: Path) -> None:
    text = (FILES / "gpt3_175b.sh").read_text().replace("GPT2BPETokenizer", "NullTokenizer --vocab-size 50304")
    (tmp_path / "padded.sh").write_text(text)
    found = import_launch(tmp_path / "padded.sh", "megatron")
    assert found.tree["model"] == {"base": "gpt3-175b", "vocab": 50304}


def test_a_tokenizer_s_name_gives_the_vocabulary_and_that_is_said(tmp_path: Path) -> None:
    found = minimal(tmp_path, "--tokenizer-type GPT2BPETokenizer")
    assert "a vocabulary of 50,257, as --tokenizer-type GPT2BPETokenizer has it" in found.assumed


@pytest.mark.parametrize(
    ("more", "fields"),
    [
        ("--bf16", {"precision": "bf16", "grad_reduce_in_fp32": None}),
        ("", {"precision": "fp32"}),
        ("--fp16 --accumulate-allreduce-grads-in-fp32", {"precision": "fp16", "grad_reduce_in_fp32": True}),
        ("--bf16 --fp8-format hybrid", {"precision": "fp8", "grad_reduce_in_fp32": True}),
        ("--bf16 --fp4-format e2m1 --grad-reduce-in-bf16", {"precision": "fp4", "grad_reduce_in_fp32": None}),
        ("--use-torch-fsdp2", {"weight_sharding": "zero3"}),
        (
            "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params",
            {"weight_sharding": "zero3"},
        ),
        ("--attention-backend unfused", {"attention": "unfused"}),
        ("--transformer-impl local", {"attention": "unfused"}),
        ("--transformer-impl local --use-flash-attn", {"attention": "fused"}),
        ("--recompute-activations", {"recompute": "selective", "recompute_modules": ("core_attn",)}),
        ("--optimizer-cpu-offload", {"offload": ("optimizer",)}),
        ("--cpu-offloading-num-layers 2", {"offload": ("activations",), "offload_num_layers": 2}),
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", {"loss": "fused"}),
        ("--use-tp-pp-dp-mapping", {"placement": ("tp", "cp", "pp", "dp")}),
        ("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2", {"virtual_stages": 2}),
        ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|t|t|tL'", {"virtual_stages": 2}),
        ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|(t|)*2tL'", {"virtual_stages": 2}),
        ("--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16", {"moments": "bf16"}),
        ("--micro-batch-size 2 --micro-batch-size 4", {"micro_batch": 4, "global_batch": 32}),
        ("--global_batch_size 16", {"global_batch": 16}),
    ],
)
def test_an_argument_sets_what_it_means(more: str, fields: dict[str, Any], tmp_path: Path) -> None:
    found = minimal(tmp_path, f"--vocab-size 1000 {more}")
    assert {key: getattr(found.point.workload, key) for key in fields} == fields
    assert found.not_modelled == ()


@pytest.mark.parametrize(
    ("more", "scopes"),
    [
        ("--cuda-graph-impl none --cuda-graph-scope attn", ()),
        ("--cuda-graph-impl local", ("attn", "mlp")),
        ("--cuda-graph-impl local --cuda-graph-scope full_iteration", ("full_iteration",)),
        ("--cuda-graph-impl transformer_engine --cuda-graph-scope moe_router attn", ("attn", "moe_router")),
    ],
)
def test_graphs_are_those_of_their_scopes(more: str, scopes: tuple[str, ...], tmp_path: Path) -> None:
    assert minimal(tmp_path, f"--vocab-size 1000 {more}").point.workload.cuda_graph == scopes


def test_a_key_of_a_nested_configuration_that_nothing_reads_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "bridge.yaml"
    path.write_text(
        (FILES / "bridge_qwen3.yaml").read_text().replace("model:\n", "model:\n  offload_modules: [core_attn]\n", 1)
    )
    found = import_launch(path, "nemo", model="qwen3-30b-a3b", system="dgx-h100:32")
    assert [left_out.argument for left_out in found.not_modelled] == ["model.offload_modules = core_attn"]


@pytest.mark.parametrize(
    ("more", "shown", "why"),
    [
        ("--frobnicate 7", "--frobnicate 7", "unknown to COSMIC"),
        ("--mtp-num-layers 1", "--mtp-num-layers 1", "left out"),
        ("--num-query-groups 2", "--num-query-groups 2", "no effect without --group-query-attention"),
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 2",
            "--recompute-num-layers 2",
            "each layer is checkpointed by itself",
        ),
        ("--enable-cuda-graph", "--enable-cuda-graph", "launched one by one"),
    ],
)
def test_what_is_not_modelled_is_listed_with_the_reason(more: str, shown: str, why: str, tmp_path: Path) -> None:
    found = minimal(tmp_path, f"--vocab-size 1000 {more}")
    assert [each.argument for each in found.not_modelled] == [shown]
    assert why in found.not_modelled[0].why


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--fp16 --bf16", "tiny.sh --fp16 = True: contradicts --bf16: choose one"),
        ("--tensor-model-parallel-size 3", "tiny.sh accelerators = 8: 8 accelerators do not divide by tp × cp × pp"),
        ("--tensor-model-parallel-size two", "tiny.sh --tensor-model-parallel-size = 'two': must be a whole number"),
        ("--tensor-model-parallel-size 0", "--tensor-model-parallel-size = '0': must be at least 1"),
        ("--tensor-model-parallel-size $TP", "= '$TP': $TP is set nowhere: give --define TP=VALUE"),
        ("--global-batch-size 12", "--global-batch-size = '12': does not divide by microbatch × dp = 1 × 8"),
        ("--tensor-model-parallel-size 2 --tp-comm-overlap", "--tp-comm-overlap = True: needs --sequence-parallel"),
        ("--expert-model-parallel-size 2", "the model has no experts"),
        ("--moe-layer-freq \"__import__('os')\" --num-experts 4", "must be a number, or a list made of whole numbers"),
        ("--num-experts 4 --moe-layer-freq [1,0,0,1]", "at a fixed interval"),
        ("--num-experts 4 --moe-router-topk 5", "must be at most 4"),
        ("--recompute-granularity some", "must be one of full, selective"),
        ("--recompute-granularity selective --recompute-modules mpl", "must be some of core_attn"),
        ("--hybrid-override-pattern M-M*", "state-space layers are not modelled"),
        ("--bf16 $EXTRA_ARGS", "$EXTRA_ARGS is set nowhere: give --define EXTRA_ARGS=VALUE"),
        ("--lr 1e-4 $EXTRA_ARGS", "$EXTRA_ARGS is set nowhere: give --define EXTRA_ARGS=VALUE"),
        ('"--fp8-format hybrid"', "is one word with a blank in it"),
        ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout EtxL", "must be made of E, t, m, L"),
        ("--use-torch-fsdp2 --use-megatron-fsdp", "contradicts --use-megatron-fsdp"),
    ],
)
def test_what_is_wrong_is_refused_with_place_value_and_rule(more: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        minimal(tmp_path, f"--vocab-size 1000 {more}")
    assert message in str(caught.value)


def test_a_vocabulary_that_nobody_states_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"--vocab-size = 'nothing'.*--set model\.vocab=N"):
        minimal(tmp_path)
    assert minimal(tmp_path, overrides={"model.vocab": 1000}).tree["model"]["vocab"] == 1000


def test_every_argument_that_a_reader_asks_for_is_in_the_list_of_those() -> None:
    asked = {flag.name for _, flag in flags_of(Workload, "megatron") if flag.read and flag.name}
    for module, start in ((megatron, "A design from arguments"), (megatron_model, "A decoder from arguments")):
        text = Path(str(module.__file__)).read_text()
        reader = text.partition(f"# ---- {start}")[2].partition("# ---- Models of the catalog")[0]
        asked |= set(re.findall(r'"(--[a-z0-9-]+)"', reader))
    asked |= set(megatron.ENDS)
    assert asked == set(READ_ARGUMENTS)
    assert not any(is_without_cost(name) for name in READ_ARGUMENTS - {"--max-position-embeddings"} - COSTLESS_FLAGS)
    assert not READ_ARGUMENTS & set(UNMODELLED_ARGUMENTS)


@pytest.mark.parametrize(
    ("more", "recipe"),
    [
        ("--fp8-format hybrid", "auto"),
        ("--fp8-format e4m3 --fp8-recipe mxfp8", "mxfp8"),
        ("--fp8-format hybrid --fp8-recipe tensorwise", "tensorwise"),
        ("--fp8-recipe tensorwise", "auto"),  # of no effect without --fp8-format
    ],
)
def test_the_recipe_of_fp8_is_read(more: str, recipe: str, tmp_path: Path) -> None:
    found = minimal(tmp_path, f"--vocab-size 1000 --bf16 {more}").tree["workload"]
    assert found.get("fp8_recipe", "auto") == recipe
