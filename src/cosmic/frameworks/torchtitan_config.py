"""TorchTitan: its TOML configuration, the inverse of `cosmic.frameworks.targets.torchtitan`.

Defaults are those of torchtitan/config/job_config.py: selective recomputation, 8 sequences per device, FSDP.
"""

from __future__ import annotations

import re
import tomllib
from math import ceil
from typing import Any

from cosmic.base.errors import SpecError, require
from cosmic.design.model_layer import Transformer, is_moe
from cosmic.frameworks.launch_arguments import ConfigEntries
from cosmic.frameworks.launch_readers import ImportedLayers, ImportRequest, check_decoder, find_stage_ends, stated_etp
from cosmic.frameworks.launch_scale import NO_SCALE, LaunchScale, find_launch_scale
from cosmic.frameworks.shell_script import ShellScript, follow_script
from cosmic.frameworks.targets.torchtitan import FLAVORS, SCHEDULES
from cosmic.workload.precision import RECIPES

Tree = dict[str, Any]
QWEN = ("0.6B", "1.7B", "4B", "8B", "14B", "32B", "30B-A3B", "235B-A22B")
MODELS = {torchtitan_name: ours for ours, torchtitan_name in FLAVORS.items()} | {
    ("qwen3", size): f"qwen3-{size.lower()}" for size in QWEN
}
"""Models of the catalog by TorchTitan's name and flavor."""
NAMES = {torchtitan_name.lower(): ours for ours, torchtitan_name in SCHEDULES.items()} | {
    "zbvzerobubble": "zero_bubble",
    "interleaved1f1b": "interleaved",
    "loopedbfs": "interleaved",
}
"""Schedules by TorchTitan's names."""
WITHOUT_COST = re.compile(
    r"""(job|profiling|metrics|checkpoint|optimizer|lr_scheduler|comm|validation|fault_tolerance|experimental|debug
    |memory_estimation|tokenizer|dataset|ft|training\.(dataset.*|steps|max_norm|seed|deterministic|gc_.*|warmup.*))(\..*)?
    |model\.(hf_assets_path|tokenizer_path|print_after_conversion|norm_type|tokenizer_flavor)
    |float8\.(filter_fqns|emulate|precompute_.*|enable_fsdp_.*|force_.*|moe_fqns.*)
    |quantize\..*|mx\..*|compile\..*|activation_checkpoint\.(per_op_.*|early_stop|preserve_.*|determinism.*|debug)
    |parallelism\.(disable_loss_parallel|pipeline_parallel_split_points)""",
    re.VERBOSE,
)
EFFECTS = {
    "parallelism.enable_compiled_autograd": "the backward pass is compiled with the forward pass",
    "optimizer.early_step_in_backward": "the optimizer steps after the backward pass",
}


def read_torchtitan(request: ImportRequest) -> ImportedLayers:
    """Return the design of a TOML file, or of a script that writes one."""
    keys, scale = _read_config(request)
    system, npus = request.placed(scale, keys.assumed)
    name = _model(request, keys)
    model = check_decoder(request.resolved(name), "--model")
    workload = _workload(keys, npus, model)
    keys.finish(WITHOUT_COST, EFFECTS)
    return ImportedLayers.of(name, system, workload, scale, keys)


def _read_config(request: ImportRequest) -> tuple[ConfigEntries, LaunchScale]:
    text, scale = request.text(), NO_SCALE
    if request.path.suffix.lower() != ".toml":
        require(request.path.suffix.lower() in (".sh", ".bash", ""), "file", str(request.path), "is no TOML file")
        script = follow_script(text, request.where, request.defines)
        text = next((document for name, document in script.files.items() if name.endswith(".toml")), "")
        require(bool(text), request.where, "no TOML file", "the script writes none: give the TOML file itself")
        scale = first_launcher_scale(script)
    try:
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SpecError(request.where, text[:40], f"is no valid TOML: {error}") from None
    require(bool(tree), request.where, "nothing", "has no key of TorchTitan, such as training.seq_len")
    return ConfigEntries(tree, request.where), scale


def first_launcher_scale(script: ShellScript) -> LaunchScale:
    """Return the accelerators of the first launcher in a script."""
    for command in script.commands:
        scale = find_launch_scale(script, command.words)
        if scale.npus is not None or scale.said:
            return scale
    return find_launch_scale(script, ())


def _model(request: ImportRequest, keys: ConfigEntries) -> str:
    name, flavor = keys.text("model.name"), keys.text("model.flavor")
    if request.model:
        return request.model
    model = MODELS.get((name, flavor))
    if model is None:
        raise SpecError(
            f"{keys.where} model.flavor", flavor or "nothing", "is no model of the catalog: name one by --model"
        )
    return model


def _workload(keys: ConfigEntries, npus: int, model: Transformer) -> Tree:
    tp = keys.whole("parallelism.tensor_parallel_degree", 1) or 1
    cp = keys.whole("parallelism.context_parallel_degree", 1) or 1
    pp = keys.whole("parallelism.pipeline_parallel_degree", 1) or 1
    split = tp * cp * pp
    rule = f"{npus:,} accelerators do not divide by tp × cp × pp = {tp} × {cp} × {pp}"
    require(npus % split == 0, f"{keys.where} accelerators", npus, rule)
    dp = npus // split
    tree: Tree = {"tp": tp, "cp": cp, "pp": pp, "sequence": keys.whole("training.seq_len", 2048)}
    tree |= _batch(keys, dp, pp) | _sharding(keys, dp, cp, pp) | _pipeline(keys, pp, model.layers)
    tree |= _experts(keys, model, tp, npus // pp)
    if tp > 1:
        tree |= {"sequence_parallel": True, "tp_overlap": keys.flag("parallelism.enable_async_tensor_parallel")}
    else:
        keys.asked.add("parallelism.enable_async_tensor_parallel")
    rotate = keys.text("parallelism.context_parallel_rotate_method", "allgather", ("allgather", "alltoall"))
    if cp > 1:
        tree["cp_comm_type"] = "all_gather" if rotate == "allgather" else "ring"
    compiled = keys.flag("training.compile") or keys.flag("compile.enable")
    tree["execution"] = "compiled" if compiled else "eager"
    if keys.flag("training.enable_cpu_offload"):
        tree["offload"] = ["weights", "optimizer"]
    return tree | _recomputation(keys, model.layers, pp) | _precision(keys)


def _batch(keys: ConfigEntries, dp: int, pp: int) -> Tree:
    local = keys.whole("training.local_batch_size") or keys.whole("training.batch_size", 8) or 8
    micro = (keys.whole("parallelism.pipeline_parallel_microbatch_size", 1) or 1) if pp > 1 else local
    keys.asked |= {"parallelism.pipeline_parallel_microbatch_size", "training.batch_size"}
    if local % micro:
        raise keys.error("parallelism.pipeline_parallel_microbatch_size", f"must divide the local batch, {local}")
    batch = keys.whole("training.global_batch_size", -1, least=-1) or -1
    if batch > 0 and batch % (local * dp):
        raise keys.error("training.global_batch_size", f"does not divide by local batch × dp = {local} × {dp}")
    return {"global_batch": local * dp if batch < 0 else batch, "micro_batch": micro}


def _sharding(keys: ConfigEntries, dp: int, cp: int, pp: int) -> Tree:
    """Return what FSDP shards: weights too, unless they stay gathered after the forward pass."""
    copies = keys.whole("parallelism.data_parallel_replicate_degree", 1) or 1
    shards = keys.whole("parallelism.data_parallel_shard_degree", -1, least=-1) or -1
    path = "parallelism.fsdp_reshard_after_forward"
    policy = keys.text(path, "default", ("default", "always", "never"))
    if dp % copies:
        raise keys.error("parallelism.data_parallel_replicate_degree", f"must divide dp, {dp}")
    if shards > 0 and shards * copies != dp:
        rule = f"data parallelism is {dp} on these accelerators, not {copies} × {shards}"
        raise keys.error("parallelism.data_parallel_shard_degree", rule)
    shards = dp // copies if shards < 0 else shards
    sharded = shards > 1 or (copies == 1 and (cp > 1 or path in keys))
    if shards > 1 and copies > 1:
        keys.leave_out("parallelism.data_parallel_replicate_degree", "weights are sharded over all replicas")
    if not sharded:
        return {"weight_sharding": "none"}
    reshards = policy == "always" or (policy == "default" and pp == 1)
    return {"weight_sharding": "zero3" if reshards else "zero2"}


def _pipeline(keys: ConfigEntries, pp: int, layers: int) -> Tree:
    name = keys.text("parallelism.pipeline_parallel_schedule", "1F1B")
    layers_per_stage = keys.whole("parallelism.pipeline_parallel_layers_per_stage", 0, least=0) or 0
    less_layers = [
        keys.whole(f"parallelism.pipeline_parallel_{end}_stage_less_layers", 0, least=0) or 0 for end in ENDS
    ]
    named = keys.get("parallelism.module_fqns_per_model_part")
    if pp == 1:
        return {}
    if name.lower() not in NAMES:
        raise keys.error("parallelism.pipeline_parallel_schedule", f"must be one of {', '.join(SCHEDULES.values())}")
    schedule = NAMES[name.lower()]
    if name.lower() == "loopedbfs":
        keys.leave_out("parallelism.pipeline_parallel_schedule", "the schedule is Interleaved1F1B")
    count = (
        len(named)
        if isinstance(named, list)
        else ceil((layers + sum(less_layers)) / layers_per_stage)
        if layers_per_stage
        else 2 * pp
    )
    virtual = ceil(count / pp) if schedule == "interleaved" else 1
    pipeline: Tree = {"schedule": schedule} | ({"virtual_stages": virtual} if schedule == "interleaved" else {})
    if named is None and not any(less_layers):
        return pipeline
    parts = _stage_parts(named, layers, less_layers, pp * virtual)
    ends = find_stage_ends(parts, pp, virtual) if parts else None
    if ends is None:
        key = "module_fqns_per_model_part" if named else "pipeline_parallel_last_stage_less_layers"
        keys.leave_out(f"parallelism.{key}", "layers lie on stages as evenly as they can")
    return pipeline | (ends or {})


ENDS = ("first", "last")


def _stage_parts(named: Any, layers: int, less_layers: list[int], count: int) -> list[int]:
    """Return the layers of each of *count* parts: those that are named, or an even share with fewer at the ends."""
    if isinstance(named, list):
        parts = [sum("layers." in str(module) for module in part) if isinstance(part, list) else 0 for part in named]
        return parts if len(parts) == count and sum(parts) == layers else []
    share, longer_parts = divmod(layers + sum(less_layers), count)
    parts = [share + (part < longer_parts) for part in range(count)]
    parts[0], parts[-1] = parts[0] - less_layers[0], parts[-1] - less_layers[1]
    return parts


def _experts(keys: ConfigEntries, model: Transformer, tp: int, ranks: int) -> Tree:
    ep = keys.whole("parallelism.expert_parallel_degree", 1) or 1
    etp = keys.whole("parallelism.expert_tensor_parallel_degree", tp) or tp
    backend = keys.text("parallelism.expert_parallel_comm_backend", "standard", ("standard", "deepep", "hybridep"))
    if not is_moe(model):
        if ep > 1:
            raise keys.error("parallelism.expert_parallel_degree", "the model has no experts")
        return {}
    if ranks % (ep * etp):
        rule = f"the {ranks:,} accelerators of a pipeline stage do not divide by ep × etp = {ep} × {etp}"
        raise keys.error("parallelism.expert_parallel_degree", rule)
    sent = {"moe_token_dispatcher_type": "flex" if backend != "standard" else "alltoall"} if ep > 1 else {}
    return {"ep": ep, **sent, **stated_etp(model, tp, ranks, ep, etp)}


def _recomputation(keys: ConfigEntries, layers: int, pp: int) -> Tree:
    mode = keys.text("activation_checkpoint.mode", "selective", ("selective", "full", "none", "memory_budget"))
    option = str(keys.get("activation_checkpoint.selective_ac_option", "2"))
    if mode == "memory_budget":
        keys.leave_out("activation_checkpoint.mode", "every other GEMM is recomputed")
    if mode in ("none", "full"):
        return {"recompute": mode}
    if mode == "memory_budget" or option == "op":
        return {"recompute": "alternate"}
    if re.fullmatch(r"[1-9]\d{0,3}", option) is None:
        raise keys.error("activation_checkpoint.selective_ac_option", "must be op, or a number of layers")
    recomputed_layers = -(-layers // (pp * int(option)))
    if option != "1":
        keys.assume(f"the first {recomputed_layers} layers of each stage recompute, instead of every {option}th")
    return {"recompute": "full"} if option == "1" else {"recompute": "full", "recompute_num_layers": recomputed_layers}


def _precision(keys: ConfigEntries) -> Tree:
    weights = keys.text("training.mixed_precision_param", "bfloat16", ("bfloat16", "float32"))
    reduced = keys.text("training.mixed_precision_reduce", "float32", ("bfloat16", "float32"))
    dtype = keys.text("training.dtype", "float32", ("bfloat16", "float32"))
    converters = keys.get("model.converters", [])
    if not isinstance(converters, (list, str)):
        raise keys.error("model.converters", "must be a list of names")
    quantized = (
        any("float8" in str(converter) or "mx" in str(converter) for converter in converters) if converters else False
    )
    precision = "fp8" if quantized else "fp32" if weights == "float32" else "bf16"
    if dtype == "bfloat16" and precision == "bf16":
        return {"precision": "bf16_pure"}
    recipe = keys.text("float8.recipe_name", "tensorwise", ("tensorwise", "rowwise", "rowwise_with_gw_hp"))
    tree: Tree = {"precision": precision}
    if precision == "fp8":
        blocks = any("mx" in str(converter) for converter in converters)
        fp8_recipe = "mxfp8" if blocks else "tensorwise" if recipe == "tensorwise" else "rowwise"
        tree |= {} if fp8_recipe == "tensorwise" else {"fp8_recipe": fp8_recipe}
    if precision == "fp32":
        return tree
    reduces_fp32 = reduced == "float32"
    return tree if reduces_fp32 == (RECIPES[precision].gradient == 4) else tree | {"grad_reduce_in_fp32": reduces_fp32}
