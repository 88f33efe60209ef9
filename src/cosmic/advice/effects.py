"""Fields that a user states and that have no effect, each with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from cosmic.advice.tier_effects import memory_without_effect, offload_without_effect, outer_states
from cosmic.design.model import Recommender, is_moe
from cosmic.design.point import DesignPoint
from cosmic.design.program import ProgramModel
from cosmic.design.workload import Workload

TRAINING_ONLY = (
    *("recompute", "recompute_modules", "recompute_num_layers", "recompute_to_end", "loss", "dropout"),
    *("sequence_parallel", "reduce_every", "grad_reduce_in_fp32", "moments", "schedule", "offload_num_layers"),
    *("fp8_recipe", "fp8_weight_cache", "packed_length", "packed_spread", "sync_period", "optimizer_device"),
)
"""Fields that only a step of training reads."""
TRANSFORMERS_ONLY = (
    *("sequence_parallel", "attention", "cp_comm_type", "cp_balanced", "kv_repeated", "grouped_gemm", "tp_overlap"),
    "ep_overlap",
    *("recompute", "recompute_modules", "recompute_num_layers", "recompute_to_end", "loss", "schedule"),
    *("packed_length", "packed_spread"),
)
"""Fields that a recommender, which is spread over dp alone, has no use for."""
ANNOTATED = ("sequence_parallel", "cp_balanced", "kv_repeated", "strategies", "dropout", "etp")
"""Fields that a program, which says its own operators and shardings, has no use for."""
OF_ONE_STEP = ("task", "sequence", "global_batch", "micro_batch")
"""Fields of a single step, which a design that serves a load has no use for."""
REASONS: Mapping[str, Callable[[Workload], str]] = {
    "reduce_every": lambda w: "" if w.weight_sharding == "zero2" else f"weight_sharding is {w.weight_sharding}",
    "recompute_modules": lambda w: "" if w.recompute == "selective" else f"recompute is {w.recompute}",
    "recompute_num_layers": lambda w: "recompute is none" if w.recompute == "none" else "",
    "recompute_to_end": lambda w: "recompute is none" if w.recompute == "none" else "",
    "cp_comm_type": lambda w: "cp is 1" if w.cp == 1 else "",
    "cp_balanced": lambda w: "cp is 1" if w.cp == 1 else "",
    "kv_repeated": lambda w: "cp is 1" if w.cp == 1 else "",
    "fp8_recipe": lambda w: "" if w.precision == "fp8" else f"precision is {w.precision}",
    "tp_overlap": lambda w: "tp is 1" if w.tp == 1 else "",
    "sequence_parallel": lambda w: "tp is 1" if w.tp == 1 else "",
    "ep_overlap": lambda w: "ep is 1" if w.ep == 1 else "",
    "enable_eplb": lambda w: "moe_routing_skew is 0" if not w.moe_routing_skew and not w.num_redundant_experts else "",
    "schedule": lambda w: "pp is 1" if w.pp == 1 else "",
    "virtual_stages": lambda w: "pp is 1" if w.pp == 1 and w.virtual_stages > 1 else "",
    "stage_layers": lambda w: "pp is 1" if w.pp == 1 and w.stage_layers != "even" else "",
    "npus_per_host": lambda w: "runtime is multi_controller" if w.runtime == "multi_controller" else "",
    "moments": lambda w: f"precision is {w.precision}" if w.precision in ("fp32", "bf16_pure") else "",
    "grad_reduce_in_fp32": lambda w: f"precision is {w.precision}" if w.precision in ("fp32", "bf16_pure") else "",
    "fp8_weight_cache": lambda w: "" if w.precision in ("fp8", "fp4") else f"precision is {w.precision}",
    "lora_targets": lambda w: "lora_rank is not given" if w.lora_rank is None else "",
    "lora_adapters": lambda w: (
        "lora_rank is not given" if w.lora_rank is None else "one is trained" if w.task == "training" else ""
    ),
    "packed_spread": lambda w: "packed_length is not given" if w.packed_length is None else "",
    "placement": lambda w: "one axis has all ranks" if w.ranks in (w.dp, w.tp, w.cp, w.pp) else "",
}
"""Why a field has no effect, if it has none, by its name."""

OUTER: Mapping[str, tuple[frozenset[str], Callable[[Workload], str]]] = {
    "offload_num_layers": (frozenset({"activations"}), lambda _: "activations are not offloaded"),
    "moe_routing_skew": (
        frozenset({"experts", "expert_gradients", "expert_optimizer"}),
        lambda w: "ep is 1" if w.ep == 1 and not w.moe_expert_capacity_factor else "",
    ),
}
"""Why a field has no effect where none of some classes of state is outside HBM, by its name."""


def without_effect(point: DesignPoint, stated: Iterable[str]) -> dict[str, str]:
    """Return those of the *stated* fields of workload and memory that have no effect, by path, with the reason.

    >>> from cosmic.mapping.completing import load_design
    >>> without_effect(load_design("llama3-8b@dgx-h100:8", {"cp": 1}), ["workload.cp_comm_type"])
    {'workload.cp_comm_type': 'cp is 1'}
    """
    paths = sorted(stated)
    found = {path: _reason(point, path.partition(".")[2]) for path in paths if path.startswith("workload.")}
    if "workload.offload" in found:
        found |= offload_without_effect(point)
    found |= memory_without_effect(point, (path for path in paths if path.startswith("memory.")))
    return {path: reason for path, reason in found.items() if reason}


def _reason(point: DesignPoint, name: str) -> str:
    workload = point.workload
    if point.serving is not None and name in OF_ONE_STEP:
        return "the load of requests decides it"
    if workload.task != "training" and name in TRAINING_ONLY:
        return f"the task is {workload.task}"
    if isinstance(point.model, Recommender) and name in TRANSFORMERS_ONLY:
        return "the model is a recommender"
    if isinstance(point.model, ProgramModel) and name in ANNOTATED:
        return "annotations of the program say what is split"
    if name in ("grouped_gemm", "ep_overlap") and not is_moe(point.model):
        return "the model has no experts"
    if name in OUTER and not outer_states(point) & OUTER[name][0]:
        return OUTER[name][1](workload)
    return REASONS[name](workload) if name in REASONS else ""
