"""Whether what a workload says of routing goes with its model and its task."""

from __future__ import annotations

from cosmic.design.batch import Batch
from cosmic.design.model import Transformer, is_moe
from cosmic.design.point import DesignPoint
from cosmic.numeric import Condition
from cosmic.workload.routed import capacity_of

KEYS = ("moe_routing_skew", "moe_expert_capacity_factor", "num_redundant_experts", "enable_eplb")


def routing_fits(batch: Batch) -> Condition:
    """Return whether there are experts to route to, one capacity, and copies only where they serve."""
    workload, model = batch.base.workload, batch.base.model
    capacity = capacity_of(batch)
    copies = batch["workload.num_redundant_experts"]
    if workload.moe_pad_expert_input_to_capacity and workload.moe_expert_capacity_factor is None:
        return False
    if not is_moe(model):
        plain: Condition = (batch["workload.moe_routing_skew"] == 0) & (capacity == 0)
        alone: Condition = plain & (copies == 0) & (not workload.enable_eplb)
        return alone
    twice = isinstance(model, Transformer) and model.experts is not None and model.experts.capacity_factor is not None
    once: Condition = (capacity == 0) | (not twice)
    spread = (copies == 0) | ((batch["workload.ep"] > 1) & workload.enable_eplb)
    served: Condition = once & spread & (not (workload.enable_eplb and workload.task == "training"))
    return served


def routing_sentence(point: DesignPoint) -> str:
    """Return what to change."""
    w = point.workload
    if w.moe_pad_expert_input_to_capacity and w.moe_expert_capacity_factor is None:
        return (
            "moe_pad_expert_input_to_capacity without moe_expert_capacity_factor, which says how many rows: give both"
        )
    if w.num_redundant_experts and not w.enable_eplb:
        return f"num_redundant_experts {w.num_redundant_experts} without enable_eplb, which places copies: set it"
    if not is_moe(point.model):
        stated = next((key for key in KEYS if getattr(w, key)), KEYS[0])
        return f"{stated} {getattr(w, stated)} without experts: the model has none, leave it out"
    if w.enable_eplb and w.task == "training":
        return "enable_eplb in training: copies would need the sum of their gradients, leave it out"
    if w.num_redundant_experts and w.ep == 1:
        return f"num_redundant_experts {w.num_redundant_experts} with ep 1: one rank has all experts, leave it out"
    return (
        f"moe_expert_capacity_factor {w.moe_expert_capacity_factor:g} beside model.experts.capacity_factor: "
        "give one of both"
    )
