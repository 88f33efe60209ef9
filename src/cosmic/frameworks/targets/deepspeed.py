"""DeepSpeed: `ds_config.json`, and the line that launches a script with it.

Keys: DeepSpeed's runtime/constants.py and runtime/zero/config.py (github.com/microsoft/DeepSpeed at 03dc2b92f3d3), and
its documentation of the JSON file. The user's script builds the model, and with it what DeepSpeed leaves to code:
pipeline stages, experts, context-parallel attention.
"""

from __future__ import annotations

import json
from typing import Any

from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import is_moe
from cosmic.frameworks.launch import (
    Draft,
    Launch,
    common_warnings,
    count_hosts,
    describe_launch,
    outer_device,
    outer_share,
    places_otherwise,
    targets,
    trained_decoder,
)
from cosmic.frameworks.launch_quoting import quote_options
from cosmic.step.cuts.balanced import state_end_layers
from cosmic.step.state_placement import is_state_placed
from cosmic.workload.mesh_sizes import microbatches

CONFIG = "ds_config.json"
STAGES = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3}
ORDER = ("tp", "cp", "dp", "pp")


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
        warnings=(*draft.warnings, *common_warnings(point)),
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
    return config


def _zero(point: DesignPoint) -> dict[str, Any]:
    w = point.workload
    zero: dict[str, Any] = {"stage": STAGES[w.weight_sharding]}
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
    layer_counts = {"first_stage_layers": w.first_stage_layers, "last_stage_layers": w.last_stage_layers}
    for key, layers in layer_counts.items():
        draft.warn(
            f"{key} {layers}: DeepSpeed balances stages itself; the script overrides PipelineModule's partition",
            when=layers is not None,
        )
    draft.warn("DeepSpeed's pipelines support at most ZeRO stage 1", when=w.pp > 1 and STAGES[w.weight_sharding] > 1)
    odd = w.pp > 1 and w.schedule != "1f1b"
    draft.warn(f"DeepSpeed has no schedule like {w.schedule}", when=odd)
    draft.warn(
        "DeepSpeed's tensor parallelism (AutoTP) supports at most ZeRO stage 2",
        when=w.tp > 1 and w.weight_sharding == "zero3",
    )
    draft.warn(f"cp {w.cp}: the script registers Ulysses attention of that size", when=w.cp > 1)
    draft.warn(
        f"DeepSpeed's context parallelism is Ulysses, not {w.cp_comm_type}",
        when=w.cp > 1 and w.cp_comm_type != "ulysses",
    )
    draft.warn(f"ep {w.ep}: the script passes ep_size={w.ep} to its MoE layers", when=w.ep > 1)
    if is_moe(point.model):
        draft.warn("DeepSpeed spreads experts over dp only", when=w.dp % w.ep != 0)
        draft.warn(
            f"etp {w.expert_tensor}: the script passes enable_expert_tensor_parallelism=True", when=w.expert_tensor > 1
        )
        draft.warn("DeepSpeed's etp is 1 or tp", when=w.expert_tensor not in (1, w.tp))
    draft.warn("DeepSpeed runs experts one by one, not as a grouped GEMM", when=w.grouped_gemm and is_moe(point.model))
    draft.warn(f"recompute {w.recompute}: the script checkpoints the layers", when=w.recompute != "none")
    draft.warn(f"DeepSpeed runs GEMMs in 16 bits, not in {w.precision}", when=w.precision in ("fp8", "fp4", "int4"))
    draft.warn("DeepSpeed keeps an fp32 copy of bf16 weights", when=w.precision == "bf16_pure")
    draft.warn("DeepSpeed does not overlap tensor-parallel communication", when=w.tp_overlap and w.tp > 1)
    draft.warn("DeepSpeed does not overlap expert-parallel communication", when=w.ep_overlap and w.ep > 1)
    draft.warn(
        "DeepSpeed offloads weights only with ZeRO stage 3",
        when=outer_device(point, "weights") != "none" and w.weight_sharding != "zero3",
    )
    draft.warn(
        "DeepSpeed offloads activations only with recomputation",
        when=outer_device(point, "activations") != "none" and w.recompute == "none",
    )
    outer = outer_device(point, "optimizer") != "none"
    draft.warn("DeepSpeed offloads optimizers from ZeRO stage 1 on", when=outer and STAGES[w.weight_sharding] == 0)
    draft.warn(
        "offload_optimizer updates on the CPU, not on the GPU",
        when=is_state_placed(point) and outer and w.optimizer_device == "gpu",
    )
    draft.warn(
        "/local_nvme stands for the path of your drives",
        when="nvme" in (outer_device(point, "optimizer"), outer_device(point, "weights")),
    )
    if places_otherwise(point, [ORDER]):
        draft.warn(f"DeepSpeed numbers ranks in the order {', '.join(ORDER)}, not {', '.join(w.placement)}")
