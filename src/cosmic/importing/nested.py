"""Nested configurations of Megatron-Core (NeMo, Megatron-Bridge, --yaml-cfg) as arguments of Megatron-LM.

A key means the same wherever it stands, and mostly what the argument of its name means: `tensor_model_parallel_size` is
--tensor-model-parallel-size. The tables below say where names or senses differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cosmic.errors import as_key
from cosmic.importing.arguments import Argument, Arguments, NotModelled
from cosmic.importing.launches import Request
from cosmic.importing.megatron_names import EFFECTS, READ, REFUSED, is_without_cost

DEEPEST = 20
MOST_KEYS = 20_000
WITHOUT_COST = (
    *(
        "checkpoint",
        "logger",
        "log",
        "exp_manager",
        "rng",
        "profiling",
        "ft",
        "inprocess_restart",
        "experiment",
        "wandb",
    ),
    *(
        "scheduler",
        "straggler",
        "resume",
        "nvrx_straggler",
        "validation",
        "hooks",
        "rerun_state_machine",
        "tensorboard",
    ),
    *("nsys_profile", "run", "callbacks", "logging", "lr_scheduler", "sched"),
)
"""Sections that say nothing about time or memory."""
ORDER = ("model", "language_model", "model_parallel", "trainer", "dist", "ddp", "optimizer", "optim", "mixed_precision")
"""Sections, later ones of which win; those that are not listed come first, and `comm_overlap` last."""
SCALED = {"current_scaling": "tensorwise", "delayed": "delayed", "subchannel": "blockwise", "mxfp8": "mxfp8"}
"""Recipes of fp8 by what is in the name of a precision."""
TYPES = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16", "float8_e4m3fn": "fp8"}
"""Number formats by PyTorch's names."""
PARTS = {
    "tokenizer": ("vocab_size",),
    "data": ("seq_length", "global_batch_size", "micro_batch_size"),
    "dataset": ("seq_length", "sequence_length", "global_batch_size", "micro_batch_size"),
}
"""Sections of which only some keys matter."""
SAME = {
    "num_moe_experts": "--num-experts",
    "virtual_pipeline_model_parallel_size": "--num-virtual-stages-per-pipeline-rank",
    "num_layers_in_first_pipeline_stage": "--decoder-first-pipeline-num-layers",
    "num_layers_in_last_pipeline_stage": "--decoder-last-pipeline-num-layers",
    "gated_linear_unit": "--swiglu",
    "encoder_seq_length": "--seq-length",
    "sequence_length": "--seq-length",
    "activations_checkpoint_granularity": "--recompute-granularity",
    "activations_checkpoint_method": "--recompute-method",
    "activations_checkpoint_num_layers": "--recompute-num-layers",
    "ub_tp_comm_overlap": "--tp-comm-overlap",
    "overlap_grad_sync": "--overlap-grad-reduce",
    "overlap_param_sync": "--overlap-param-gather",
    "override_vocab_size": "--vocab-size",
    "microbatch_group_size_per_vp_stage": "--microbatch-group-size-per-virtual-pipeline-stage",
    "use_flash_attention": "--use-flash-attn",
}
"""Keys that differ in name alone."""
NEGATED = {
    "share_embeddings_and_output_weights": "--untie-embeddings-and-output-weights",
    "add_bias_linear": "--disable-bias-linear",
    "bias": "--disable-bias-linear",
    "overlap_p2p_comm": "--no-overlap-p2p-communication",
}
"""Keys that are true where the argument is not there."""
NOISE = re.compile(
    r"""_.*|.*_(fusion|func|init_method|method_std|comm_backend|interval|dir|path|seed|workers|cfg|eps|epsilon)
    |.*(logg|checkpoint|ckpt|wandb|tensorboard|timer|profil|tokenizer|nsys|random|rng|init(ial)?).*
    |inference_.*|mamba_.*|linear_(conv|key|value|num)_.*|rotary_.*|rope_.*|mup_.*|qk_clip.*|dsa_.*|tp_comm_(bulk|split|atomic|bootstrap).*
    |barrier_.*|batch_p2p_.*|average_in_collective|align_.*|gradient_.*|perform_.*|parallel_output|scatter_embedding_.*
    |create_attention_mask|mmap_.*|fp8_(amax|margin|interval|wgrad|hybrid).*|fp4_recipe|params_dtype|pipeline_dtype|autocast.*
    |grad_(sync|scale)_func|masked_softmax.*|persist.*|use_(gloo|decentralized|te|transformer_engine|cpu|mcore).*|cuda_graph_(warmup|use|retain).*
    |moe_(router|aux|z_loss|permute|token|input|deepep|hybridep|apply|per_layer).*|num_dataset.*|split|path.*|blend.*|mock.*|defer_npy.*
    |data_parallel_size|sequence_parallel_size|deallocate_.*|clone_scatter.*|transformer_block_type|megatron_amp_o2|apex.*|native_amp.*
    |name|accelerator|max_(steps|epochs|time)|train_(iters|samples)|eval_.*|exit_.*|val_.*|limit_.*|enable_.*(checkpoint|experimental).*|benchmark
    |lr|min_lr|weight_decay|betas|adam_.*|sgd.*|clip_grad|decoupled.*|optimizer|warmup.*|constant_steps|gradient_clip_val
    |accumulate_grad_batches|replace_sampler_ddp|use_distributed_sampler|nccl_communicator.*|hysteresis|.*loss_scale.*
    |hf_model_id|min_offloaded.*|cpu_offloading_(activations|retain|double).*|glu_linear_offset|softmax_scale|mscale.*|beta_.*
    |original_max_position_embeddings|num_layers_at_(start|end)_in_bf16|keep_.*|num_sanity.*|manual_gc.*|restore.*|seq_len_interp.*
    |barrier.*|disable_.*|(dis)?able_jit.*|distributed_.*|flight_.*|local_rank|high_priority.*|lazy_.*|external_gpu.*|sharp.*
    |kitchen_.*|mtp_(loss|enabled|hybrid|standalone|use).*|log_.*|memory_efficient.*|hidden_act|attention_type|data_impl|index_mapping.*
    |fsdp_(all|db|double|manual).*|megatron_fsdp_.*|outer_dp.*|suggested_.*|check_for.*|bucket_size|token_dtype.*|dataloader.*
    |drop_last.*|pin_memory|persistent.*|reset_.*|eod_.*|add_extra.*|allow_.*|mid_level.*|data_sharding|multiple_val.*|test_mode
    |variable_seq.*|should_pad_vocab|make_vocab.*|headscale|layernorm_zero.*|normalize_attention.*|bert_binary.*|nsys.*|gc_interval
    |precision_aware|mcore_gpt|seed|legacy|cp_size|ffn_dropout|transformer_impl|transformer_engine|openai_gelu|squared_relu|fast_.*|offload_modules""",
    re.VERBOSE,
)
"""Keys that say nothing about time or memory, or repeat what others say."""


def arguments_of(tree: Mapping[Any, Any], request: Request) -> Arguments:
    """Return what a nested configuration says, in Megatron-LM's spelling."""
    inner = tree.get("ConfigContainer")
    whole: Mapping[Any, Any] = inner if isinstance(inner, Mapping) else tree
    found = Arguments(request.where)
    for path, value in sorted(_leaves(whole, ()), key=_rank):
        _add(found, path, _resolved(value, whole, path))
    return found


def _rank(leaf: tuple[tuple[str, ...], Any]) -> int:
    section = leaf[0][0]
    return 99 if section == "comm_overlap" else ORDER.index(section) + 1 if section in ORDER else 0


def _leaves(tree: Mapping[Any, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield plain values with their paths; sections without a cost are passed over."""
    for key, value in tree.items():
        place = (*path, as_key(key))
        wanted = next((PARTS[each] for each in path if each in PARTS), None)
        plain = not isinstance(value, Mapping)
        if place[-1] in WITHOUT_COST or len(place) > DEEPEST or (plain and wanted and place[-1] not in wanted):
            continue
        if isinstance(value, Mapping) and "_target_" in value and value.keys() <= {"_target_", "_call_"}:
            named = str(value["_target_"]).removeprefix("torch.")  # a thing by its name, such as torch.bfloat16
            yield place, TYPES.get(named, named)
        elif isinstance(value, Mapping):
            yield from _leaves(value, place)
        else:
            yield place, value


def _resolved(value: Any, tree: Mapping[Any, Any], path: tuple[str, ...], depth: int = 0) -> Any:
    """Return a value with ``${model.seq_length}`` or ``${.seq_length}`` replaced by what it refers to."""
    match = re.fullmatch(r"\$\{(\.*)([\w.]+)\}", value) if isinstance(value, str) else None
    if match is None or depth > DEEPEST:
        return None if value == "???" else value
    steps = match[2].split(".")
    base = path[: len(path) - len(match[1])] if match[1] else ()
    node: Any = tree
    for step in (*base, *steps):
        node = node.get(step) if isinstance(node, Mapping) else None
    return _resolved(node, tree, (*base, *steps), depth + 1)


# ------------------------------------------------------------------------------------------------------- one key


def _add(found: Arguments, path: tuple[str, ...], value: Any) -> None:
    key, spelled = path[-1], ".".join(path)
    if value is None or isinstance(value, Mapping):
        return
    special = SPECIAL.get(key)
    if special is not None:
        special(found, spelled, value)
        return
    if key in NEGATED and isinstance(value, bool):
        _put(found, NEGATED[key], f"not {spelled}", not value)
        return
    name = SAME.get(key, f"--{key.replace('_', '-')}")
    if name in READ or name in EFFECTS or name in REFUSED:
        _put(found, name, spelled, value)
    elif not (is_without_cost(name) or NOISE.fullmatch(key.lower()) or value in (False, 0, "", [], "none")):
        _put(found, f"--{spelled}", spelled, value)


def _put(found: Arguments, name: str, spelled: str, value: Any) -> None:
    if isinstance(value, bool):
        words: tuple[str, ...] = (str(value).lower(),)
    elif isinstance(value, list):
        words = tuple(map(str, value))
    else:
        words = (str(value),)
    found.given[name] = Argument(words, spelled)


def _groups(found: Arguments, spelled: str, value: Any) -> None:
    _put(found, "--group-query-attention", spelled, True)
    _put(found, "--num-query-groups", spelled, value)


def _format(name: str, usual: str) -> Callable[[Arguments, str, Any], None]:
    def add(found: Arguments, spelled: str, value: Any) -> None:
        if value is not False:
            _put(found, name, spelled, usual if value is True else value)

    return add


def _reduced(found: Arguments, spelled: str, value: Any) -> None:
    found.given.pop("--grad-reduce-in-bf16", None)
    name = "--accumulate-allreduce-grads-in-fp32" if value is True else "--grad-reduce-in-bf16"
    _put(found, name, spelled, True)


def _precision(found: Arguments, spelled: str, value: Any) -> None:
    """Add the precision that a name such as ``bf16-mixed`` or ``bf16_with_fp8_current_scaling_mixed`` has."""
    text = str(value).lower()
    if "fp8" in text or "mxfp8" in text:
        _put(found, "--fp8-format", spelled, "hybrid")
        for word, recipe in SCALED.items():
            if word in text:
                _put(found, "--fp8-recipe", spelled, recipe)
    if "fp4" in text:
        _put(found, "--fp4-format", spelled, "e2m1")
    if text.startswith(("bf16", "bfloat16")) or "bf16" in text:
        _put(found, "--bf16", spelled, True)
        found.given.pop("--fp16", None)
    elif text.startswith(("16", "fp16", "float16")):
        _put(found, "--fp16", spelled, True)
    elif not text.startswith(("32", "fp32", "float32")):
        found.not_modelled.append(NotModelled(f"{spelled} = {value}", "unknown to COSMIC"))


def _normalization(found: Arguments, spelled: str, value: Any) -> None:
    _put(found, "--normalization", spelled, "RMSNorm" if "rms" in str(value).lower() else "LayerNorm")


def _activation(found: Arguments, spelled: str, value: Any) -> None:
    _put(found, "--swiglu", spelled, str(value).lower().endswith(("glu",)))


def _pattern(name: str) -> Callable[[Arguments, str, Any], None]:
    def add(found: Arguments, spelled: str, value: Any) -> None:
        _put(found, name, spelled, f"[{','.join(map(str, value))}]" if isinstance(value, list) else value)

    return add


def _backend(found: Arguments, spelled: str, value: Any) -> None:
    _put(found, "--attention-backend", spelled, str(value).rpartition(".")[2])


def _offloaded(found: Arguments, spelled: str, value: Any) -> None:
    if value not in (False, 0):
        _put(found, "--cpu-offloading-num-layers", spelled, value)


def _optimizer(found: Arguments, spelled: str, value: Any) -> None:
    if spelled.split(".")[-2:-1] in (["optim"], ["optimizer"]) and "distributed" in str(value):
        _put(found, "--use-distributed-optimizer", spelled, True)


def _peft(found: Arguments, spelled: str, value: Any) -> None:
    if value not in (False, "none", "None", ""):
        found.not_modelled.append(NotModelled(f"{spelled} = {value}", "all weights are trained"))


def _nothing(found: Arguments, spelled: str, value: Any) -> None:
    """Leave out what is read elsewhere."""


SPECIAL: dict[str, Callable[[Arguments, str, Any], None]] = {
    "num_query_groups": _groups,
    "fp8": _format("--fp8-format", "hybrid"),
    "fp4": _format("--fp4-format", "e2m1"),
    "grad_reduce_in_fp32": _reduced,
    "precision": _precision,
    "mixed_precision": _precision,
    "dtype": _precision,
    "normalization": _normalization,
    "activation": _activation,
    "moe_layer_freq": _pattern("--moe-layer-freq"),
    "window_attn_skip_freq": _pattern("--window-attn-skip-freq"),
    "window_size": _pattern("--window-size"),
    "attention_backend": _backend,
    "cpu_offloading_num_layers": _offloaded,
    "cpu_offloading": _nothing,
    "name": _optimizer,
    "peft": _peft,
    "peft_scheme": _peft,
    "num_nodes": _nothing,
    "devices": _nothing,
    "num_gpus": _nothing,
    "num_gpus_per_node": _nothing,
    "gpus_per_node": _nothing,
    "activation_func": _nothing,
}
