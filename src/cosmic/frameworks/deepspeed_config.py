"""DeepSpeed: `ds_config.json`, the inverse of `cosmic.frameworks.targets.deepspeed`.

The file says nothing about the model, the sequence and what the user's script does: pipeline stages, experts,
context parallelism, which layers are checkpointed. The model comes with --model, the rest with --set.
"""

from __future__ import annotations

import re
from typing import Any

from cosmic.base.errors import SpecError, require
from cosmic.design.model_layer import is_moe
from cosmic.design.plain_data import parse_json
from cosmic.frameworks.launch_arguments import ConfigEntries
from cosmic.frameworks.launch_readers import ImportedLayers, ImportRequest, check_decoder
from cosmic.frameworks.launch_scale import NO_SCALE, LaunchScale
from cosmic.frameworks.shell_script import follow_script
from cosmic.frameworks.targets.deepspeed import STAGES
from cosmic.frameworks.torchtitan_config import first_launcher_scale
from cosmic.workload.precision import RECIPES

Tree = dict[str, Any]
SHARDINGS = {stage: ours for ours, stage in STAGES.items()}
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
    keys, scale = _read_config(request)
    require(bool(request.model), "--model", "nothing", "name the model: a DeepSpeed configuration does not describe it")
    system, npus = request.placed(scale, keys.assumed)
    model = check_decoder(request.resolved(request.model), "--model")
    workload = _workload(keys, request, npus) | ({"grouped_gemm": False} if is_moe(model) else {})
    keys.finish(WITHOUT_COST, EFFECTS)
    return ImportedLayers.of(request.model, system, workload, scale, keys)


def _read_config(request: ImportRequest) -> tuple[ConfigEntries, LaunchScale]:
    text, scale = request.text(), NO_SCALE
    if request.path.suffix.lower() != ".json":
        require(request.path.suffix.lower() in (".sh", ".bash", ""), "file", str(request.path), "is no JSON file")
        script = follow_script(text, request.where, request.defines)
        text = next((document for name, document in script.files.items() if name.endswith(".json")), "")
        require(bool(text), request.where, "no JSON file", "the script writes none: give the JSON file itself")
        scale = first_launcher_scale(script)
    tree = parse_json(text, request.where)
    require(isinstance(tree, dict) and bool(tree), request.where, tree, "must be an object with keys of DeepSpeed")
    return ConfigEntries(tree, request.where), scale


def _workload(keys: ConfigEntries, request: ImportRequest, npus: int) -> Tree:
    degrees = {path: request.overrides.get(path, 1) for path in AXES}
    tp_size = keys.whole("tensor_parallel.autotp_size") or keys.whole("tensor_parallel.tp_size", 1) or 1
    tp = degrees["workload.tp"] if request.stated("workload.tp") else tp_size
    sizes = [tp, degrees["workload.cp"], degrees["workload.pp"]]
    if not all(isinstance(size, int) and size >= 1 for size in sizes):
        raise SpecError("--set", sizes, "tp, cp and pp must be whole numbers of at least 1")
    split = sizes[0] * sizes[1] * sizes[2]
    rule = f"{npus:,} accelerators do not divide by tp × cp × pp = {sizes[0]} × {sizes[1]} × {sizes[2]}"
    require(npus % split == 0, f"{keys.where} accelerators", npus, rule)
    tree: Tree = {"tp": sizes[0], "cp": sizes[1], "pp": sizes[2], **_batch(keys, request, npus // split)}
    tree |= _states(keys) | _precision(keys) | {"execution": "eager"}
    tree |= {"cp_comm_type": "ulysses"} if sizes[1] > 1 else {}
    if tp > 1:
        tree["sequence_parallel"] = keys.flag("activation_checkpointing.partition_activations")
    return tree | _recomputation(keys, request)


def _batch(keys: ConfigEntries, request: ImportRequest, dp: int) -> Tree:
    """Return the batch: any two of whole batch, microbatch and accumulation steps give the third."""
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    global_batch, micro, steps = (_size(keys, name) for name in names)
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


def _size(keys: ConfigEntries, name: str) -> int | None:
    """Return a size; "auto", which the user's script fills in, is none."""
    return None if keys.get(name) == "auto" else keys.whole(name)


def _is_set(request: ImportRequest, path: str) -> int | None:
    value = request.overrides.get(path)
    return value if isinstance(value, int) and value >= 1 else None


def _states(keys: ConfigEntries) -> Tree:
    stage = keys.whole("zero_optimization.stage", 0, least=0) or 0
    if stage not in SHARDINGS:
        raise keys.error("zero_optimization.stage", "must be 0, 1, 2 or 3")
    tree: Tree = {"weight_sharding": SHARDINGS[stage]}
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


def _precision(keys: ConfigEntries) -> Tree:
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
    tree: Tree = {"precision": precision}
    if (
        accumulation_format
        and precision != "fp32"
        and (accumulation_format == "fp32") != (RECIPES[precision].gradient == 4)
    ):
        tree["grad_reduce_in_fp32"] = accumulation_format == "fp32"
    return tree


def _recomputation(keys: ConfigEntries, request: ImportRequest) -> Tree:
    """Return what is recomputed: the file only says how, the script whether."""
    if request.stated("workload.recompute"):
        return {}
    if any(path.startswith("activation_checkpointing") for path in keys.values):
        keys.assume("full recomputation, as the file configures activation_checkpointing: or --set recompute=none")
        return {"recompute": "full"}
    keys.assume("no recomputation, as the file has no activation_checkpointing: or --set recompute=full")
    return {"recompute": "none"}
