"""Arguments of Megatron-LM by what becomes of them, and nested configurations of Megatron-Core as such arguments.

An argument is read, without a cost, not modelled, or refused: the lists are in the YAML file beside this module. One in
none of them is unknown, and is said to be.

In nested configurations (NeMo, Megatron-Bridge, --yaml-cfg) a key means the same wherever it stands, and mostly what
the argument of its name means: `tensor_model_parallel_size` is --tensor-model-parallel-size. The tables below say where
names or senses differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cosmic.base.errors import as_key
from cosmic.design.catalog_entries import load_mapping
from cosmic.design.field_facts import flags_of
from cosmic.design.workload_layer import Workload
from cosmic.frameworks.launch_arguments import NamedArgument, NamedArguments, NotModelled
from cosmic.frameworks.launch_readers import ImportRequest
from cosmic.frameworks.shell_expansion import UNKNOWN

# ---- Arguments of Megatron-LM by what becomes of them: read, without a cost, not modelled, refused

_NAMES: dict[str, Any] = load_mapping(Path(__file__).with_suffix(".yaml"))
READ_ARGUMENTS = frozenset(f"--{name}" for name in _NAMES["read"].split()) | {
    flag.name for _, flag in flags_of(Workload, "megatron") if flag.read and flag.name
}
"""Arguments that the readers ask for: in code, or because they are declared as the flag of a field."""
COSTLESS_FLAGS = frozenset(f"--{name}" for name in _NAMES["flags"].split())
"""Flags without a cost that is modelled."""
UNMODELLED_ARGUMENTS: dict[str, str] = {f"--{name}": why for name, why in _NAMES["effects"].items()}
"""What the design has in place of an argument."""
REFUSED_ARGUMENTS: dict[str, str] = {f"--{name}": why for name, why in _NAMES["refused"].items()}
"""Arguments that change what a layer is: without them, the design would be another."""
COSTLESS_VALUES = re.compile(
    r"""--(
    lr|min-lr|lr-.*|decoupled-(min-)?lr|override-lr.*|warmup|weight-decay.*|start-weight-decay|end-weight-decay
    |adam-.*|sgd-.*|muon-.*|clip-grad|loss-scale.*|initial-loss-scale|min-loss-scale|hysteresis|optimizer|seed|init-.*
    |train-iters|train-samples|eval-.*|save.*|load.*|pretrained-checkpoint|ckpt-.*|dist-ckpt-.*|non-persistent-.*
    |checkpoint-.*|exit-.*|log-.*|logging-.*|tensorboard-.*|wandb-.*|mlflow-.*|comet-.*|timing-.*|profile-.*|nsys-.*
    |one-logger-.*|app-tag-.*|config-logger-dir|straggler-.*|inprocess-.*|ft-.*|memory-snapshot-path
    |data-(?!parallel).*|train-data-path|valid-data-path|test-data-path|per-split-data-args-path|split|num-workers|dataloader-type
    |num-dataset-builder-threads|multiple-validation-sets|tokenizer-.*|vocab-file|merge-file|vocab-extra-ids
    |tiktoken-.*|make-vocab-size-divisible-by|null-tokenizer-.*|distributed-timeout-.*|distributed-backend|local-rank|rank
    |world-size|manual-gc-.*|empty-unused-memory-level|rotary-.*|rope-.*|mscale.*|yarn-.*|original-max-position-embeddings
    |norm-epsilon|layernorm-epsilon|fp8-margin|fp8-interval|fp8-amax-.*|fp8-wgrad|fp16-lm-cross-entropy|moe-aux-loss-coeff
    |moe-z-loss-coeff|moe-router-load-balancing-type|moe-router-score-function|moe-router-num-groups|moe-router-group-topk
    |moe-router-topk-scaling-factor|moe-router-bias-update-rate|moe-router-dtype|moe-input-jitter-eps
    |moe-token-drop-policy|moe-router-topk-limited-devices|moe-deepep-num-sms|moe-hybridep-num-sms|mtp-loss-scaling-factor
    |max-position-embeddings|relative-attention-max-distance|softmax-scale|beta-fast|beta-slow|spec|yaml-cfg|master-addr
    |master-port|node-rank|rdzv-.*|log-dir|redirects|tee|max-restarts|start-method|monitor-interval|ddp-bucket-size
    |ddp-num-buckets|high-priority-stream-groups|nccl-communicator-config-path|activation-func-clamp-value
    |glu-linear-offset|mup-.*|result-rejected-tracker-filename|rerun-mode|error-injection-.*|stored-.*
    |cuda-graph-warmup-steps|fp4-recipe|megatron-.*-path|max-tokens-to-oom|external-gpu-.*|mid-level-dataset-surplus|enable-msc
    |position-embedding-interpolation|sample-rate|mask-prob|short-seq-prob|retriever-seq-length|barrier-with-l1-time
    |hf-model-id|timers|moe-hybridep-.*|offload-min-.*|use-gloo-.*|logger-.*
    )""",
    re.VERBOSE,
)
"""Arguments with a value and without a cost that is modelled."""
SEVERAL_VALUES = re.compile(
    r"--((train-|valid-|test-)?data-path|blend.*|profile-ranks|logging-.*|high-priority-stream-groups|tokenizer-.*)"
)
"""Those of them that take several values."""
_OFF_WORDS = ("", "none", "null", "false", "0", "0.0", "1.0e-0", "[]", "no")


def note_unread_arguments(arguments: NamedArguments) -> None:
    """List what nobody asked for: unmodelled and unknown arguments; those without a cost are left out."""
    for name, rule in REFUSED_ARGUMENTS.items():
        if name in arguments and not _is_off(arguments, name):
            raise arguments.error(name, rule)
    for name in [name for name in arguments.given if name not in arguments.asked]:
        _check_values(arguments, name)
        if name in UNMODELLED_ARGUMENTS:
            if not _is_off(arguments, name):
                arguments.leave_out(name, UNMODELLED_ARGUMENTS[name])
        elif not is_without_cost(name):
            arguments.leave_out(name, "unknown to COSMIC")


def is_without_cost(name: str) -> bool:
    """Return whether an argument says nothing about time or memory.

    >>> is_without_cost("--lr-decay-iters"), is_without_cost("--tensor-model-parallel-size")
    (True, False)
    """
    return name in COSTLESS_FLAGS or COSTLESS_VALUES.fullmatch(name) is not None


def _is_off(arguments: NamedArguments, name: str) -> bool:
    values = arguments.given[name].values
    off = (*_OFF_WORDS, "1") if name == "--num-distributed-optimizer-instances" else _OFF_WORDS
    return len(values) == 1 and values[0].strip().lower() in off


def _check_values(arguments: NamedArguments, name: str) -> None:
    """Refuse a variable of unknown content in the place of further arguments."""
    argument = arguments.given[name]
    value_count = 0 if name in COSTLESS_FLAGS else 1
    if SEVERAL_VALUES.fullmatch(name) or argument.doubt:
        return
    for word in argument.values[value_count:]:
        if UNKNOWN.fullmatch(word):
            arguments.known(argument, word)


# ---- Nested configurations of Megatron-Core (NeMo, Megatron-Bridge, --yaml-cfg) as arguments of Megatron-LM

DEEPEST = 20
MOST_KEYS = 20_000
COSTLESS_SECTIONS = (
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
PART_KEYS = {
    "tokenizer": ("vocab_size",),
    "data": ("seq_length", "global_batch_size", "micro_batch_size"),
    "dataset": ("seq_length", "sequence_length", "global_batch_size", "micro_batch_size"),
}
"""Sections of which only some keys matter."""
SAME_NAMES = {
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
NOISE_KEYS = re.compile(
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
    |precision_aware|mcore_gpt|seed|legacy|cp_size|ffn_dropout|transformer_impl|transformer_engine|openai_gelu|squared_relu|fast_.*""",
    re.VERBOSE,
)
"""Keys that say nothing about time or memory, or repeat what others say."""


def nested_arguments(tree: Mapping[Any, Any], request: ImportRequest) -> NamedArguments:
    """Return what a nested configuration says, in Megatron-LM's spelling."""
    inner = tree.get("ConfigContainer")
    config: Mapping[Any, Any] = inner if isinstance(inner, Mapping) else tree
    arguments = NamedArguments(request.where)
    for path, value in sorted(_walk_values(config, ()), key=_section_rank):
        _add_value(arguments, path, _resolve_reference(value, config, path))
    return arguments


def _section_rank(leaf: tuple[tuple[str, ...], Any]) -> int:
    section = leaf[0][0]
    return 99 if section == "comm_overlap" else ORDER.index(section) + 1 if section in ORDER else 0


def _walk_values(tree: Mapping[Any, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield plain values with their paths; sections without a cost are passed over."""
    for key, value in tree.items():
        key_path = (*path, as_key(key))
        part = next((PART_KEYS[part_key] for part_key in path if part_key in PART_KEYS), None)
        plain = not isinstance(value, Mapping)
        if (
            key_path[-1] in COSTLESS_SECTIONS
            or len(key_path) > DEEPEST
            or (plain and part and key_path[-1] not in part)
        ):
            continue
        if isinstance(value, Mapping) and "_target_" in value and value.keys() <= {"_target_", "_call_"}:
            named = str(value["_target_"]).removeprefix("torch.")  # a thing by its name, such as torch.bfloat16
            yield key_path, TYPES.get(named, named)
        elif isinstance(value, Mapping):
            yield from _walk_values(value, key_path)
        else:
            yield key_path, value


def _resolve_reference(value: Any, tree: Mapping[Any, Any], path: tuple[str, ...], depth: int = 0) -> Any:
    """Return a value with ``${model.seq_length}`` or ``${.seq_length}`` replaced by what it refers to."""
    match = re.fullmatch(r"\$\{(\.*)([\w.]+)\}", value) if isinstance(value, str) else None
    if match is None or depth > DEEPEST:
        return None if value == "???" else value
    steps = match[2].split(".")
    base = path[: len(path) - len(match[1])] if match[1] else ()
    node: Any = tree
    for step in (*base, *steps):
        node = node.get(step) if isinstance(node, Mapping) else None
    return _resolve_reference(node, tree, (*base, *steps), depth + 1)


# ---- one key


def _add_value(arguments: NamedArguments, path: tuple[str, ...], value: Any) -> None:
    key, spelled = path[-1], ".".join(path)
    if value is None or isinstance(value, Mapping):
        return
    special = SPECIAL.get(key)
    if special is not None:
        special(arguments, spelled, value)
        return
    if key in NEGATED and isinstance(value, bool):
        _put_argument(arguments, NEGATED[key], f"not {spelled}", not value)
        return
    name = SAME_NAMES.get(key, f"--{key.replace('_', '-')}")
    if name in READ_ARGUMENTS or name in UNMODELLED_ARGUMENTS or name in REFUSED_ARGUMENTS:
        _put_argument(arguments, name, spelled, value)
    elif not (is_without_cost(name) or NOISE_KEYS.fullmatch(key.lower()) or value in (False, 0, "", [], "none")):
        _put_argument(arguments, f"--{spelled}", spelled, value)


def _put_argument(arguments: NamedArguments, name: str, spelled: str, value: Any) -> None:
    if isinstance(value, bool):
        words: tuple[str, ...] = (str(value).lower(),)
    elif isinstance(value, list):
        words = tuple(map(str, value))
    else:
        words = (str(value),)
    arguments.given[name] = NamedArgument(words, spelled)


def _add_query_groups(arguments: NamedArguments, spelled: str, value: Any) -> None:
    _put_argument(arguments, "--group-query-attention", spelled, True)
    _put_argument(arguments, "--num-query-groups", spelled, value)


def _format_setter(name: str, usual: str) -> Callable[[NamedArguments, str, Any], None]:
    def add(arguments: NamedArguments, spelled: str, value: Any) -> None:
        if value is not False:
            _put_argument(arguments, name, spelled, usual if value is True else value)

    return add


def _add_reduction_format(arguments: NamedArguments, spelled: str, value: Any) -> None:
    arguments.given.pop("--grad-reduce-in-bf16", None)
    name = "--accumulate-allreduce-grads-in-fp32" if value is True else "--grad-reduce-in-bf16"
    _put_argument(arguments, name, spelled, True)


def _add_precision(arguments: NamedArguments, spelled: str, value: Any) -> None:
    """Add the precision that a name such as ``bf16-mixed`` or ``bf16_with_fp8_current_scaling_mixed`` has."""
    text = str(value).lower()
    if "fp8" in text or "mxfp8" in text:
        _put_argument(arguments, "--fp8-format", spelled, "hybrid")
        for word, recipe in SCALED.items():
            if word in text:
                _put_argument(arguments, "--fp8-recipe", spelled, recipe)
    if "fp4" in text:
        _put_argument(arguments, "--fp4-format", spelled, "e2m1")
    if text.startswith(("bf16", "bfloat16")) or "bf16" in text:
        _put_argument(arguments, "--bf16", spelled, True)
        arguments.given.pop("--fp16", None)
    elif text.startswith(("16", "fp16", "float16")):
        _put_argument(arguments, "--fp16", spelled, True)
    elif not text.startswith(("32", "fp32", "float32")):
        arguments.not_modelled.append(NotModelled(f"{spelled} = {value}", "unknown to COSMIC"))


def _add_normalization(arguments: NamedArguments, spelled: str, value: Any) -> None:
    _put_argument(arguments, "--normalization", spelled, "RMSNorm" if "rms" in str(value).lower() else "LayerNorm")


def _add_activation(arguments: NamedArguments, spelled: str, value: Any) -> None:
    _put_argument(arguments, "--swiglu", spelled, str(value).lower().endswith(("glu",)))


def _pattern_setter(name: str) -> Callable[[NamedArguments, str, Any], None]:
    def add(arguments: NamedArguments, spelled: str, value: Any) -> None:
        _put_argument(arguments, name, spelled, f"[{','.join(map(str, value))}]" if isinstance(value, list) else value)

    return add


def _add_attention_backend(arguments: NamedArguments, spelled: str, value: Any) -> None:
    _put_argument(arguments, "--attention-backend", spelled, str(value).rpartition(".")[2])


def _add_offload(arguments: NamedArguments, spelled: str, value: Any) -> None:
    if value not in (False, 0):
        _put_argument(arguments, "--cpu-offloading-num-layers", spelled, value)


def _add_optimizer(arguments: NamedArguments, spelled: str, value: Any) -> None:
    if spelled.split(".")[-2:-1] in (["optim"], ["optimizer"]) and "distributed" in str(value):
        _put_argument(arguments, "--use-distributed-optimizer", spelled, True)


def _add_peft(arguments: NamedArguments, spelled: str, value: Any) -> None:
    if value not in (False, "none", "None", ""):
        arguments.not_modelled.append(NotModelled(f"{spelled} = {value}", "all weights are trained"))


def _ignore_value(arguments: NamedArguments, spelled: str, value: Any) -> None:
    """Leave out what is read elsewhere."""


SPECIAL: dict[str, Callable[[NamedArguments, str, Any], None]] = {
    "num_query_groups": _add_query_groups,
    "fp8": _format_setter("--fp8-format", "hybrid"),
    "fp4": _format_setter("--fp4-format", "e2m1"),
    "grad_reduce_in_fp32": _add_reduction_format,
    "precision": _add_precision,
    "mixed_precision": _add_precision,
    "dtype": _add_precision,
    "normalization": _add_normalization,
    "activation": _add_activation,
    "moe_layer_freq": _pattern_setter("--moe-layer-freq"),
    "window_attn_skip_freq": _pattern_setter("--window-attn-skip-freq"),
    "window_size": _pattern_setter("--window-size"),
    "attention_backend": _add_attention_backend,
    "cpu_offloading_num_layers": _add_offload,
    "cpu_offloading": _ignore_value,
    "name": _add_optimizer,
    "peft": _add_peft,
    "peft_scheme": _add_peft,
    "num_nodes": _ignore_value,
    "devices": _ignore_value,
    "num_gpus": _ignore_value,
    "num_gpus_per_node": _ignore_value,
    "gpus_per_node": _ignore_value,
    "activation_func": _ignore_value,
}
