"""Megatron-LM: shell scripts, argument files and YAML configurations; NeMo and Megatron-Bridge: recipes in YAML.

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

from cosmic.base.errors import SpecError, as_key, require, shorten
from cosmic.design.catalog_entries import load_mapping
from cosmic.design.field_facts import flags_of
from cosmic.design.model_layer import is_moe
from cosmic.design.plain_data import parse_yaml
from cosmic.design.workload_layer import Workload
from cosmic.frameworks.launch_arguments import NamedArgument, NamedArguments, NotModelled, parse_arguments
from cosmic.frameworks.launch_readers import (
    MOST_NPUS,
    NO_SCALE,
    ImportedLayers,
    ImportRequest,
    LaunchScale,
    check_decoder,
    find_launch_scale,
)
from cosmic.frameworks.megatron_model import megatron_model_tree, recognise_model
from cosmic.frameworks.shell_expansion import DOUBT, UNKNOWN
from cosmic.frameworks.shell_script import LARGEST_BYTES, ShellScript, follow_script
from cosmic.frameworks.targets.megatron import DecoderShape, megatron_workload_tree

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


# ---- files of arguments, and recipes


OTHER_PROGRAMS = {
    "pretrain_bert": "encoders",
    "pretrain_t5": "encoder-decoders",
    "pretrain_mamba": "state-space layers",
    "pretrain_hybrid": "state-space layers",
    "pretrain_retro": "retrieval",
    "pretrain_vlm": "vision towers",
    "pretrain_ict": "retrieval",
    "pretrain_vision": "vision transformers",
}
"""Programs of Megatron-LM whose models are others."""
SECTIONS = ("MODEL_ARGS", "model_args", "args", "arguments")
"""Keys under which YAML files list arguments."""
SIZES = ("--num-layers", "--hidden-size", "--num-attention-heads")
"""What every description of a model states."""
TOKENIZERS = {
    r"gpt2bpe|gpt2": 50257,
    r"llama-?2|llama2tokenizer|mixtral|mistral-7b": 32000,
    r"llama-?3": 128256,
    r"qwen2\.5|qwen3": 151936,
    r"deepseek-v[23]": 129280,
}
"""Vocabularies by what tokenizers are called."""


def read_megatron(request: ImportRequest) -> ImportedLayers:
    """Return the design of a script, of a file of arguments, or of a YAML file."""
    suffix = request.path.suffix.lower()
    rule = "is no shell script, file of arguments or YAML file"
    require(suffix not in (".json", ".toml", ".py"), "file", str(request.path), rule)
    text = request.text()
    if suffix in (".yaml", ".yml"):
        arguments, scale = yaml_arguments(request, text)
    else:
        require(len(text) <= LARGEST_BYTES, "file", str(request.path), f"has more than {LARGEST_BYTES:,} characters")
        arguments, scale = script_arguments(follow_script(text, request.where, request.defines))
    return design_of_arguments(request, arguments, scale)


def design_of_arguments(
    request: ImportRequest, arguments: NamedArguments, scale: LaunchScale, *, dropout: float = 0.1
) -> ImportedLayers:
    """Return the design that arguments in Megatron-LM's spelling describe."""
    system, npus = request.placed(scale, arguments.assumed)
    model = _resolve_model(request, arguments)
    decoder = check_decoder(request.resolved(model), "--model")
    workload = megatron_workload_tree(arguments, npus, DecoderShape(decoder.layers, is_moe(decoder)), dropout=dropout)
    note_unread_arguments(arguments)
    return ImportedLayers.of(model, system, workload, scale, arguments)


def _resolve_model(request: ImportRequest, arguments: NamedArguments) -> str | dict[str, Any]:
    """Return the model: the one that the user names, one of the catalog with the same sizes, or the sizes."""
    if request.model:
        if _states_model(arguments):
            megatron_model_tree(arguments)
            arguments.assume(f"{request.model} as --model says; the sizes in the file are not used")
        return request.model
    if not _states_model(arguments):
        rule = "the file does not describe the model: name it with --model"
        raise SpecError(f"{arguments.where} model", "nothing", rule)
    tree = megatron_model_tree(arguments)
    sequence = arguments.whole("--seq-length") or 0
    catalog_model = recognise_model(tree, sequence)
    if catalog_model is not None:
        if "vocab" not in tree:
            arguments.assume(f"the vocabulary of {catalog_model}")
        return catalog_model
    if "vocab" not in tree and not request.stated("model.vocab"):
        vocabulary = _tokenizer_vocabulary(arguments)
        if vocabulary is None:
            rule = "is left to the tokenizer, which is not read: give --set model.vocab=N"
            raise SpecError(f"{arguments.where} --vocab-size", "nothing", rule)
        tree["vocab"] = vocabulary[0]
        arguments.assume(f"a vocabulary of {vocabulary[0]:,}, as {vocabulary[1]} has it")
    return {"name": re.sub(r"[^\w.-]+", "-", request.path.stem)[:60] or "model", **tree}


def _states_model(arguments: NamedArguments) -> bool:
    """Return whether the arguments state the sizes of a model."""
    return any(name in arguments for name in SIZES)


def _tokenizer_vocabulary(arguments: NamedArguments) -> tuple[int, str] | None:
    """Return the size of a vocabulary by the name of its tokenizer, and that name; None if it tells nothing."""
    for name in ("--tokenizer-model", "--tokenizer-type"):
        argument = arguments.given.get(name)
        called = arguments.readable(" ".join(argument.values)).lower() if argument else ""
        for pattern, size in TOKENIZERS.items():
            if called and re.search(pattern, called):
                return size, arguments.shown(name)
    return None


# ---- scripts


def script_arguments(script: ShellScript) -> tuple[NamedArguments, LaunchScale]:
    """Return the arguments of the one launch in a script, and its accelerators."""
    launches = [(command.words, command.line) for command in script.commands if _is_launch(command.words)]
    loose = [words for words, _ in launches if words[0].startswith("--")]
    if loose and len(loose) == len(launches):  # a file of arguments, a line for some of them each
        launches = [(tuple(word for words in loose for word in words), launches[0][1])]
    if not launches:
        launches = [(_variable_arguments(script), 0)]
    programs = {_split_launch(words)[1]: line for words, line in reversed(launches)}
    if len(programs) > 1:
        lines = ", ".join(str(line) for line in sorted(programs.values()))
        raise SpecError(script.where, f"{len(programs)} launches", f"lines {lines} launch different jobs: keep one")
    launcher, program = _split_launch(launches[0][0])
    for word in launcher:
        other_program = OTHER_PROGRAMS.get(word.rpartition("/")[2].removesuffix(".py"))
        if other_program:
            raise SpecError(script.where, word, f"trains models with {other_program}: only decoders are read")
    arguments = parse_arguments(program, script.where, script.state.reasons)
    if not arguments.given:
        raise _no_launch_error(script.where, script.sourced)
    if script.sourced:
        files = ", ".join(map(arguments.readable, script.sourced))
        arguments.assume(f"nothing of what {files} sets, which is not read")
    return arguments, find_launch_scale(script, launcher)


def _no_launch_error(where: str, sourced: list[str]) -> SpecError:
    also = f"; {', '.join(sourced)} is not read" if sourced else ""
    return SpecError(where, "no launch", f"has no argument of Megatron-LM, such as --num-layers{also}")


def _is_launch(words: tuple[str, ...]) -> bool:
    return any(_argument_name(word) in READ_ARGUMENTS for word in words)


def _argument_name(word: str) -> str:
    return DOUBT.sub("", word).partition("=")[0].replace("_", "-")


def _split_launch(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what stands before the arguments of the program, its name included, and the arguments."""
    first = next((index for index, word in enumerate(words) if _argument_name(word) in READ_ARGUMENTS), len(words))
    program = next((index for index in range(first) if DOUBT.sub("", words[index]).endswith(".py")), None)
    if program is not None:
        return words[: program + 1], words[program + 1 :]
    module = next((index + 1 for index in range(first - 1) if words[index] == "-m"), None)
    if module is not None and not words[module].startswith("torch.distributed"):
        return words[: module + 1], words[module + 1 :]
    start = first if not words[0].startswith("--") else 0
    return words[:start], words[start:]


def _variable_arguments(script: ShellScript) -> tuple[str, ...]:
    """Return the arguments that variables hold, in a script that launches nothing itself."""
    words_of_arguments: list[str] = []
    for value in script.state.variables.values():
        words = value.split() if isinstance(value, str) else [part for word in value for part in word.split()]
        new = _is_launch(tuple(words)) and not set(words) <= set(words_of_arguments)
        words_of_arguments += words if new and words[0].startswith("--") else []
    if not words_of_arguments:
        raise _no_launch_error(script.where, script.sourced)
    return tuple(words_of_arguments)


# ---- YAML


def yaml_arguments(request: ImportRequest, text: str) -> tuple[NamedArguments, LaunchScale]:
    """Return the arguments of a YAML file: nested as for --yaml-cfg, or under their own names (--bf16: true)."""
    tree = parse_yaml(text, request.where)
    require(isinstance(tree, dict), request.where, tree, "must be a mapping of arguments to values")
    inner = next((tree[key] for key in SECTIONS if isinstance(tree.get(key), Mapping)), None)
    if inner is not None or any(str(key).startswith("--") for key in tree):
        return _listed_arguments(request, inner or tree), _yaml_scale(request)
    return nested_arguments(tree, request), _yaml_scale(request)


def _yaml_scale(request: ImportRequest) -> LaunchScale:
    world = request.defines.get("WORLD_SIZE", "")
    return LaunchScale(int(world), f"WORLD_SIZE={world}") if re.fullmatch(r"[1-9]\d{0,7}", world) else NO_SCALE


def _listed_arguments(request: ImportRequest, tree: Mapping[str, Any]) -> NamedArguments:
    """Return arguments that a mapping lists; variables of a shell in values are the user's to define."""
    values_by_name: dict[str, list[Any]] = {}
    for key, value in tree.items():
        require(isinstance(key, str), request.where, key, "must be the name of an argument")
        if value is not None and value is not False:
            values_by_name[key] = [] if value is True else value if isinstance(value, list) else [value]
    require(bool(values_by_name), request.where, shorten(dict(tree)), "has no argument of Megatron-LM")
    lines = [
        f"{_variable_name(index, position)}={_quote_double(str(word))}"
        for index, position, word in _number_values(values_by_name)
    ]
    state = follow_script("\n".join(lines), request.where, request.defines).state
    arguments = NamedArguments(request.where, reasons=state.reasons)
    for index, (key, words) in enumerate(values_by_name.items()):
        values = tuple(str(state.variables[_variable_name(index, position)]) for position in range(len(words)))
        arguments.given[f"--{key.lstrip('-').replace('_', '-')}"] = NamedArgument(values, key)
    return arguments


def _number_values(values_by_name: Mapping[str, list[Any]]) -> list[tuple[int, int, Any]]:
    return [
        (index, position, word)
        for index, words in enumerate(values_by_name.values())
        for position, word in enumerate(words)
    ]


def _variable_name(index: int, position: int) -> str:
    return f"_argument_{index}_{position}"


def _quote_double(text: str) -> str:
    escaped = re.sub(r'(["\\`])', r"\\\1", text)
    return f'"{escaped}"'


# ---- Recipes of NeMo and Megatron-Bridge

NODES = ("num_nodes", "nnodes")
PER_NODE = ("devices", "num_gpus_per_node", "gpus_per_node", "nproc_per_node", "ntasks_per_node")
TOTAL = ("num_gpus", "world_size")


def read_nemo(request: ImportRequest) -> ImportedLayers:
    """Return the design of a recipe."""
    suffix = request.path.suffix.lower()
    require(suffix in (".yaml", ".yml", ".json"), "file", str(request.path), "is no YAML file, which recipes are")
    tree = parse_yaml(request.text(), request.where)
    require(isinstance(tree, dict), request.where, tree, "must be a mapping of keys to values")
    arguments = nested_arguments(tree, request)
    require(bool(arguments.given), request.where, tree, "has no key of a recipe, such as model.num_layers")
    return design_of_arguments(request, arguments, nemo_scale(tree), dropout=0.0)


def nemo_scale(tree: Mapping[Any, Any]) -> LaunchScale:
    """Return the accelerators of a recipe: nodes by devices.

    >>> nemo_scale({"trainer": {"num_nodes": 4, "devices": 8}}).npus
    32
    """
    counts = dict(_find_counts(tree, ()))
    total = next((entry for entry in counts.items() if entry[0].rpartition(".")[2] in TOTAL), None)
    if total is not None:
        return LaunchScale(total[1], f"{total[0]} {total[1]}")
    nodes = next((entry for entry in counts.items() if entry[0].rpartition(".")[2] in NODES), None)
    devices = next((entry for entry in counts.items() if entry[0].rpartition(".")[2] in PER_NODE), None)
    if nodes is None or devices is None:
        return NO_SCALE
    return LaunchScale(nodes[1] * devices[1], f"{nodes[0]} {nodes[1]} × {devices[0]} {devices[1]}")


def _find_counts(tree: Mapping[Any, Any], path: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Yield the whole numbers that count nodes or devices."""
    for key, value in tree.items():
        key_path = (*path, as_key(key))
        if isinstance(value, Mapping):
            yield from _find_counts(value, key_path)
        elif key_path[-1] in (*NODES, *PER_NODE, *TOTAL) and type(value) is int and 1 <= value <= MOST_NPUS:
            yield ".".join(key_path), value
