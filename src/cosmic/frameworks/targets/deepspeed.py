"""DeepSpeed: `ds_config.json`, written and read, and the line that launches a script with it.

Keys: DeepSpeed's runtime/constants.py and runtime/zero/config.py (github.com/microsoft/DeepSpeed at 03dc2b92f3d3), and
its documentation of the JSON file. The user's script builds the model, and with it what DeepSpeed leaves to code:
pipeline stages, experts, context-parallel attention, which layers are checkpointed. Of a file that is read, the model
comes with --model, and the rest with --set.
"""

from __future__ import annotations

import json
import re
from typing import Any

from cosmic.base.errors import SpecError, require
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.field_facts import fields_told, unsupported_fields, written_arguments
from cosmic.design.model_layer import is_moe
from cosmic.design.plain_data import parse_json
from cosmic.design.workload_layer import Workload
from cosmic.frameworks.launch import (
    Draft,
    Launch,
    common_warnings,
    count_hosts,
    describe_launch,
    outer_device,
    outer_share,
    places_otherwise,
    quote_options,
    targets,
    trained_decoder,
)
from cosmic.frameworks.launch_arguments import ConfigEntries, read_fields
from cosmic.frameworks.launch_readers import (
    ImportedLayers,
    ImportRequest,
    check_decoder,
    count_replicas,
    read_written_file,
    stated_gradients,
)
from cosmic.step.cuts.balanced import state_end_layers
from cosmic.step.state_placement import is_state_placed
from cosmic.workload.mesh_sizes import microbatches

CONFIG = "ds_config.json"
STAGE = "zero_optimization.stage"
ORDER = ("tp", "cp", "dp", "pp")


# ---- A design as a file


@targets.register("deepspeed")
def launch_deepspeed(point: DesignPoint) -> Launch:
    """Return how DeepSpeed trains *point*."""
    point = state_end_layers(point)
    trained_decoder(point, "deepspeed")
    draft = Draft()
    draft.add("--deepspeed")
    draft.add("--deepspeed_config", CONFIG)
    nodes, gpus_per_node = count_hosts(point)
    hostfile = ' --hostfile "$HOSTFILE"' if nodes > 1 else ""
    launcher = f"deepspeed --num_nodes {nodes} --num_gpus {gpus_per_node}{hostfile}"
    _warn_left_to_code(draft, point)
    return Launch(
        about=describe_launch(point, "DeepSpeed's configuration"),
        command=(launcher, "train.py", *quote_options(draft.arguments)),
        arguments=draft.arguments,
        files={CONFIG: json.dumps(deepspeed_json(point), indent=2) + "\n"},
        warnings=(
            *draft.warnings,
            *unsupported_fields(point.workload, "deepspeed", moe=is_moe(point.model)),
            *common_warnings(point),
        ),
    )


def deepspeed_json(point: DesignPoint) -> dict[str, Any]:
    """Return the content of the JSON file."""
    w = point.workload
    count = int(microbatches(batch_of(point)))
    config: dict[str, Any] = {
        "train_batch_size": w.micro_batch * count * w.dp,
        "train_micro_batch_size_per_gpu": w.micro_batch,
        "gradient_accumulation_steps": count,
        "bf16": {"enabled": w.precision not in ("fp16", "fp32")},
        "fp16": {"enabled": w.precision == "fp16"},
        "zero_optimization": _zero(point),
    }
    if w.recompute != "none":
        config["activation_checkpointing"] = {
            "partition_activations": w.sequence_parallel and w.tp > 1,
            "cpu_checkpointing": outer_device(point, "activations") != "none",
        }
    if w.tp > 1:
        config["tensor_parallel"] = {"autotp_size": w.tp}
    for path, value in written_arguments(w, "deepspeed", moe=is_moe(point.model)).items():
        section, _, key = path.rpartition(".")
        (config.setdefault(section, {}) if section else config)[key] = value
    return config


def _zero_stage(w: Workload) -> int:
    return int(written_arguments(w, "deepspeed", moe=False)[STAGE])


def _zero(point: DesignPoint) -> dict[str, Any]:
    w = point.workload
    zero: dict[str, Any] = {"stage": _zero_stage(w)}
    if zero["stage"]:
        zero |= {"overlap_comm": w.dp_overlap, "contiguous_gradients": True, "reduce_scatter": True}
    if zero["stage"] and outer_device(point, "optimizer") != "none":
        zero["offload_optimizer"] = _offload_section(point, "optimizer")
        share = outer_share(point, "optimizer")
        if zero["stage"] == 3 and share < 1:
            zero["offload_optimizer"]["ratio"] = round(share, 4)
    if zero["stage"] == 3 and outer_device(point, "weights") != "none":
        zero["offload_param"] = _offload_section(point, "weights")
    return zero


def _offload_section(point: DesignPoint, state: str) -> dict[str, Any]:
    device = outer_device(point, state)
    return {"device": device, "pin_memory": True} | ({"nvme_path": "/local_nvme"} if device == "nvme" else {})


def _warn_left_to_code(draft: Draft, point: DesignPoint) -> None:
    """Warn of what the script must do, and of what DeepSpeed cannot do."""
    w = point.workload
    draft.warn("write train.py yourself: it builds the model and calls deepspeed.initialize")
    draft.warn(f"pp {w.pp}: the script makes a PipelineModule(num_stages={w.pp}); it runs 1F1B", when=w.pp > 1)
    draft.warn("DeepSpeed's pipelines support at most ZeRO stage 1", when=w.pp > 1 and _zero_stage(w) > 1)
    draft.warn(
        "DeepSpeed's tensor parallelism (AutoTP) supports at most ZeRO stage 2",
        when=w.tp > 1 and w.shards_weights,
    )
    draft.warn(f"cp {w.cp}: the script registers Ulysses attention of that size", when=w.cp > 1)
    draft.warn(f"ep {w.ep}: the script passes ep_size={w.ep} to its MoE layers", when=w.ep > 1)
    if is_moe(point.model):
        draft.warn("DeepSpeed spreads experts over dp only", when=w.dp % w.ep != 0)
        draft.warn(
            f"etp {w.expert_tensor}: the script passes enable_expert_tensor_parallelism=True", when=w.expert_tensor > 1
        )
        draft.warn("DeepSpeed's etp is 1 or tp", when=w.expert_tensor not in (1, w.tp))
    draft.warn(
        "DeepSpeed offloads weights only with ZeRO stage 3",
        when=outer_device(point, "weights") != "none" and not w.shards_weights,
    )
    draft.warn(
        "DeepSpeed offloads activations only with recomputation",
        when=outer_device(point, "activations") != "none" and w.recompute == "none",
    )
    outer = outer_device(point, "optimizer") != "none"
    draft.warn("DeepSpeed offloads optimizers from ZeRO stage 1 on", when=outer and _zero_stage(w) == 0)
    draft.warn(
        "offload_optimizer updates on the CPU, not on the GPU",
        when=is_state_placed(point) and outer and not w.updates_on_host,
    )
    draft.warn(
        "/local_nvme stands for the path of your drives",
        when="nvme" in (outer_device(point, "optimizer"), outer_device(point, "weights")),
    )
    if places_otherwise(point, [ORDER]):
        draft.warn(f"DeepSpeed numbers ranks in the order {', '.join(ORDER)}, not {', '.join(w.placement)}")


# ---- A design from a file

Tree = dict[str, Any]
AXES = ("workload.tp", "workload.cp", "workload.pp")
WITHOUT_COST = re.compile(
    r"""(optimizer|scheduler|tensorboard|wandb|csv_monitor|comet|flops_profiler|monitor_config|checkpoint|elasticity|aio
    |autotuning|data_efficiency|eigenvalue|nebula|compression_training|dataloader_.*)(\..*)?
    |steps_per_print|wall_clock_breakdown|dump_state|memory_breakdown|gradient_clipping|prescale_gradients|seed
    |gradient_predivide_factor|zero_allow_untested_optimizer|zero_force_ds_cpu_optimizer|train_.*|disable_allgather
    |(fp16|bf16)\.(loss_scale.*|initial_scale_power|hysteresis|min_loss_scale|consecutive_hysteresis|auto_cast|immediate.*)
    |zero_optimization\.(.*bucket_size|contiguous_gradients|reduce_scatter|allgather_partitions|round_robin_gradients
    |stage3_.*|sub_group_size|load_from_fp32_weights|elastic_checkpoint|ignore_unused_parameters|memory_efficient_linear
    |offload_(optimizer|param)\.(pin_memory|buffer_.*|fast_init|pipeline.*|nvme_path|max_in_cpu|ratio|device))
    |activation_checkpointing\.(contiguous_.*|number_checkpoints|synchronize.*|profile|cpu_checkpointing
    |partition_activations)|tensor_parallel\.(tp_.*|dtype|preset.*)|comms_logger.*|communication_data_type""",
    re.VERBOSE,
)
EFFECTS = {
    "zero_optimization.zero_hpz_partition_size": "weights are sharded over all replicas (no hpZ)",
    "zero_optimization.zero_quantized_weights": "weights are gathered in 16 bits",
    "zero_optimization.zero_quantized_gradients": "gradients are reduced in 16 or 32 bits",
    "zero_optimization.mics_shard_size": "weights are sharded over all replicas (no MiCS)",
    "sparse_attention.mode": "attention is dense",
}


def read_deepspeed(request: ImportRequest) -> ImportedLayers:
    """Return the design of a JSON file, or of a script that writes one."""
    text, scale = read_written_file(request, ".json")
    tree = parse_json(text, request.where)
    require(isinstance(tree, dict) and bool(tree), request.where, tree, "must be an object with keys of DeepSpeed")
    keys = ConfigEntries(tree, request.where)
    require(bool(request.model), "--model", "nothing", "name the model: a DeepSpeed configuration does not describe it")
    system, npus = request.placed(scale, keys.assumed)
    model = check_decoder(request.resolved(request.model), "--model")
    workload = read_fields(keys, "deepspeed", _read_workload(keys, request, npus), moe=is_moe(model))
    workload |= {"grouped_gemm": False} if is_moe(model) else {}
    keys.finish(WITHOUT_COST, EFFECTS)
    return ImportedLayers.of(request.model, system, workload, scale, keys)


def _read_workload(keys: ConfigEntries, request: ImportRequest, npus: int) -> Tree:
    degrees = {path: request.overrides.get(path, 1) for path in AXES}
    tp_size = keys.whole("tensor_parallel.autotp_size") or keys.whole("tensor_parallel.tp_size", 1) or 1
    tp = degrees["workload.tp"] if request.stated("workload.tp") else tp_size
    sizes = tp, cp, pp = [tp, degrees["workload.cp"], degrees["workload.pp"]]
    if not all(isinstance(size, int) and size >= 1 for size in sizes):
        raise SpecError("--set", sizes, "tp, cp and pp must be whole numbers of at least 1")
    dp = count_replicas(keys.where, npus, tp, cp, pp)
    tree: Tree = {"tp": tp, "cp": cp, "pp": pp, **_read_batch(keys, request, dp)}
    tree |= _read_states(keys) | _read_precision(keys) | {"execution": "eager"}
    tree |= {"cp_comm_type": "ulysses"} if cp > 1 else {}
    if tp > 1:
        tree["sequence_parallel"] = keys.flag("activation_checkpointing.partition_activations")
    return tree | _read_recomputation(keys, request)


def _read_batch(keys: ConfigEntries, request: ImportRequest, dp: int) -> Tree:
    """Return the batch: any two of whole batch, microbatch and accumulation steps give the third."""
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    global_batch, micro, steps = (_read_size(keys, name) for name in names)
    micro = _is_set(request, "workload.micro_batch") or micro
    global_batch = _is_set(request, "workload.global_batch") or global_batch
    if micro is None and global_batch is not None:
        micro = max(1, global_batch // (dp * (steps or 1)))
    if micro is None:
        rule = "is needed: give it, or --set micro_batch=N --set global_batch=N"
        raise keys.error("train_micro_batch_size_per_gpu", rule)
    batch = global_batch if global_batch is not None else micro * (steps or 1) * dp
    if batch != micro * dp * (steps or max(1, batch // (micro * dp))):
        rule = f"must be microbatch × accumulation steps × dp = {micro} × {steps or 1} × {dp}"
        raise keys.error("train_batch_size", rule)
    return {"global_batch": batch, "micro_batch": micro}


def _read_size(keys: ConfigEntries, name: str) -> int | None:
    """Return a size; "auto", which the user's script fills in, is none."""
    return None if keys.get(name) == "auto" else keys.whole(name)


def _is_set(request: ImportRequest, path: str) -> int | None:
    value = request.overrides.get(path)
    return value if isinstance(value, int) and value >= 1 else None


def _read_states(keys: ConfigEntries) -> Tree:
    stage = keys.whole(STAGE, 0, least=0) or 0
    tree: Tree = fields_told(Workload, "deepspeed", STAGE, stage)
    if not tree:
        raise keys.error(STAGE, "must be 0, 1, 2 or 3")
    if stage == 2:
        tree["reduce_every"] = "microbatch"
    overlap = keys.get("zero_optimization.overlap_comm", stage == 3)
    if stage:
        tree["dp_overlap"] = overlap is True or overlap == "auto"
    offloaded = []
    for section, state, least in (("offload_param", "weights", 3), ("offload_optimizer", "optimizer", 1)):
        device = keys.text(f"zero_optimization.{section}.device", "none", ("none", "cpu", "nvme", "auto"))
        if device in ("cpu", "nvme"):
            if stage < least:
                raise keys.error(f"zero_optimization.{section}.device", f"needs ZeRO stage {least}, and has {stage}")
            offloaded.append(state)
        if device == "nvme":
            keys.assumed.append(
                f"{section} to nvme fills the host's memory first, then drives: or --set memory.placement"
            )
    if keys.flag("activation_checkpointing.cpu_checkpointing"):
        offloaded.append("activations")
    return tree | ({"offload": offloaded} if offloaded else {})


def _read_precision(keys: ConfigEntries) -> Tree:
    half, brain = (
        (False if keys.get(f"{name}.enabled") == "auto" else keys.flag(f"{name}.enabled")) for name in ("fp16", "bf16")
    )
    if half and brain:
        raise keys.error("fp16.enabled", "contradicts bf16.enabled: choose one")
    if "auto" in (keys.get("bf16.enabled"), keys.get("fp16.enabled")) and not (half or brain):
        keys.assume("bf16, as the file leaves the precision to the script")
        brain = True
    precision = "bf16" if brain else "fp16" if half else "fp32"
    accumulation_format = keys.text("data_types.grad_accum_dtype", "", ("", "fp32", "fp16", "bf16"))
    in_fp32 = accumulation_format == "fp32"
    return {"precision": precision} | (stated_gradients(precision, in_fp32) if accumulation_format else {})


def _read_recomputation(keys: ConfigEntries, request: ImportRequest) -> Tree:
    """Return what is recomputed: the file only says how, the script whether."""
    if request.stated("workload.recompute"):
        return {}
    if any(path.startswith("activation_checkpointing") for path in keys.values):
        keys.assume("full recomputation, as the file configures activation_checkpointing: or --set recompute=none")
        return {"recompute": "full"}
    keys.assume("no recomputation, as the file has no activation_checkpointing: or --set recompute=full")
    return {"recompute": "none"}
