"""Fields that a user states and that have no effect, each with the reason.

They are fields of the workload and of the memory layer, and what a workload offloads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.field_facts import NOTHING, facts_of
from cosmic.design.memory_layer import HBM
from cosmic.design.model_layer import Recommender, is_moe
from cosmic.design.program_model import ProgramModel
from cosmic.design.workload_layer import Workload
from cosmic.step.device_memory import memory_of
from cosmic.step.state_placement import is_state_placed, placed_states
from cosmic.workload.mapping_rules import invalid_reasons

# ---- Fields of the memory layer, and what a workload offloads, that have no effect, each with the reason

SERVED_STATES = ("weights", "experts", "kv_cache")
"""Classes of state of a served model; training has all but keys and values."""
UPDATE_STATES = ("optimizer", "expert_optimizer")
"""Classes of state that no layer uses: they come for the update, and need no buffers."""
OFFLOADED_STATES = {
    "weights": ("weights", "experts"),
    "activations": ("activations",),
    "optimizer": ("optimizer", "expert_optimizer"),
}
"""Classes of state that a workload offloads under one name."""


def find_ineffective_memory(point: DesignPoint, paths: Iterable[str]) -> dict[str, str]:
    """Return those of the *paths* fields of the memory that have no effect, by path, with the reason.

    Of tiers as a whole, each that nothing crosses.

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> placed = load_design("llama3-8b@dgx-h100:8", {"tp": 8, "memory.placement.kv_cache": ["host"]})
    >>> find_ineffective_memory(placed, ["memory.placement.kv_cache"])
    {'memory.placement.kv_cache': 'the task is training'}
    """
    step = _as_single_step(point)
    reasons: dict[str, str] = {}
    for path in sorted(paths):
        _, _, name = path.partition(".")
        kind, _, field = name.partition(".")
        if kind == "placement" and field:
            reasons[path] = _why_missing(step, field)
        elif kind == "tiers":
            reasons |= _ineffective_tiers(step, field)
        elif kind in MEMORY_REASONS:
            reasons[path] = MEMORY_REASONS[kind](step)
    return {path: reason for path, reason in reasons.items() if reason}


def find_ineffective_offload(point: DesignPoint) -> dict[str, str]:
    """Return what a workload offloads to no effect, with the reason: there is none of it, or its place is stated.

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> offloads = {"task": "decode", "tp": 8, "offload": ["weights", "optimizer"]}
    >>> find_ineffective_offload(load_design("llama3-8b@dgx-h100:8", offloads))
    {'workload.offload.optimizer': 'the task is decode'}
    """
    step = _as_single_step(point)
    reasons = {}
    for name in step.workload.offload:
        classes = OFFLOADED_STATES[name]
        if reason := _why_missing(step, classes[0]):
            reasons[f"workload.offload.{name}"] = reason
        elif all(step.memory.placement.of(class_) != (HBM,) for class_ in classes):
            reasons[f"workload.offload.{name}"] = f"memory.placement.{classes[0]} says where it is"
    return reasons


def _as_single_step(point: DesignPoint) -> DesignPoint:
    """Return the design as one of single steps: what serves a load decodes."""
    if point.serving is None:
        return point
    return replace(point, serving=None, workload=replace(point.workload, task="decode"))


def list_outer_states(point: DesignPoint, access: str | None = None) -> set[str]:
    """Return the classes of state that a design has, and that may be outside HBM; in tiers of one *access*, if given.

    Of designs that state no placement, those that are offloaded.
    """
    names = {tier.name for tier in point.memory.tiers if access in (None, tier.access)}
    placed = placed_states(point) if point.memory.tiers else {}
    return {state for state, listed in placed.items() if names & set(listed) and not _why_missing(point, state)}


def _why_missing(point: DesignPoint, state: str) -> str:
    """Return why a design has none of a class of state; nothing if it has some."""
    task = point.workload.task
    if (state == "kv_cache") if task == "training" else (state not in SERVED_STATES):
        return f"the task is {task}"
    if state.startswith("expert") and not is_moe(point.model):
        return "the model has no experts"
    if (
        state != "experts" and is_state_placed(point) and not invalid_reasons(point)
    ):  # these may exist as master copy alone
        placed = memory_of(batch_of(point)).placed
        if placed is not None and state in placed.sizes and not float(placed.sizes[state]):
            return f"the model has no {state.replace('_', ' ')} in {task}"
    return ""


# ---- tiers


def _ineffective_tiers(point: DesignPoint, field: str) -> dict[str, str]:
    """Return the tiers, or the field of a tier that *field* names, without effect."""
    index, _, name = field.partition(".")
    chosen = [int(index)] if index.isdigit() else range(len(point.memory.tiers))
    reasons = {f"memory.tiers.{tier}": _why_unused(point, tier) for tier in chosen if tier < len(point.memory.tiers)}
    if name and not any(reasons.values()):
        return {f"memory.tiers.{field}": _why_tier_field_ineffective(point, int(index), name)}
    return reasons


def _why_unused(point: DesignPoint, index: int) -> str:
    """Return why a tier has no effect: nothing lives there, nor, if it is one of a chain, further out."""
    tiers = point.memory.tiers
    placed = placed_states(point)
    listed = {name for state in list_outer_states(point) for name in placed[state]}
    beyond = [tier.name for tier in tiers[index:] if tier.access == "copy"]
    crossed = beyond if tiers[index].access == "copy" else [tiers[index].name]
    return "" if listed & set(crossed) else f"nothing is placed in {tiers[index].name}"


def _why_tier_field_ineffective(point: DesignPoint, index: int, name: str) -> str:
    """Return why a field of a tier in use has no effect."""
    tier = point.memory.tiers[index]
    if name == "latency" and tier.access == "load_store" and tier.latency_s:
        return f"kernels read {tier.name} in place, with loads enough on their way to hide it"
    if name == "processor_bandwidth" and tier.processor_bandwidth_bytes_per_s is not None:
        return _why_processor_ineffective(point, index)
    return ""


def _why_processor_ineffective(point: DesignPoint, index: int) -> str:
    workload, copied = (
        point.workload,
        [position for position, tier in enumerate(point.memory.tiers) if tier.access == "copy"],
    )
    if workload.task != "training":
        return f"the task is {workload.task}"
    if workload.optimizer_device == "gpu":
        return "optimizer_device is gpu"
    first = point.memory.tiers[copied[0]].name if copied else "none"
    return "" if [index] == copied[:1] else f"the processor of {first} updates weights"


# ---- fields


def _why_prefetch_ineffective(point: DesignPoint) -> str:
    copied, workload = list_outer_states(point, "copy"), point.workload
    if point.memory.prefetch is None or copied - {*UPDATE_STATES} or workload.offload:
        return ""
    if copied and workload.optimizer_device == "cpu":
        return ""
    return "the update alone moves state between tiers" if copied else "no state is copied from an outer tier"


def _why_resident_layers_ineffective(point: DesignPoint) -> str:
    if not is_state_placed(point) and point.workload.offload:
        return "offloaded state comes as early as the step allows: set prefetch to layer"
    return (
        ""
        if list_outer_states(point, "copy") - {*UPDATE_STATES}
        else "no state that layers use is copied from an outer tier"
    )


def _why_experts_ineffective(point: DesignPoint, classes: Iterable[str]) -> str:
    if not is_moe(point.model):
        return "the model has no experts"
    if not is_state_placed(point):
        return "no experts are placed in an outer tier"
    return "" if list_outer_states(point) & {*classes} else "no experts are placed in an outer tier"


MEMORY_REASONS: Mapping[str, Callable[[DesignPoint], str]] = {
    "prefetch": _why_prefetch_ineffective,
    "resident_layers": _why_resident_layers_ineffective,
    "active_experts": lambda p: _why_experts_ineffective(p, ("experts", "expert_gradients", "expert_optimizer")),
    "expert_cache": lambda p: _why_experts_ineffective(p, ("experts", "expert_optimizer")),
    "expansion": lambda p: (
        "" if list_outer_states(p, "load_store") else "no state is in a tier that kernels read in place"
    ),
}
"""Why a field of the memory has no effect, if it has none, by its name."""


def find_ineffective_fields(point: DesignPoint, set_paths: Iterable[str]) -> dict[str, str]:
    """Return those of the *set_paths* fields of workload and memory that have no effect, by path, with the reason.

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> find_ineffective_fields(load_design("llama3-8b@dgx-h100:8", {"cp": 1}), ["workload.cp_comm_type"])
    {'workload.cp_comm_type': 'cp is 1'}
    """
    paths = sorted(set_paths)
    reasons = {path: _why_ineffective(point, path.partition(".")[2]) for path in paths if path.startswith("workload.")}
    if "workload.offload" in reasons:
        reasons |= find_ineffective_offload(point)
    reasons |= find_ineffective_memory(point, (path for path in paths if path.startswith("memory.")))
    return {path: reason for path, reason in reasons.items() if reason}


def _why_ineffective(point: DesignPoint, name: str) -> str:
    """Return why a field of the workload has no effect, as it declares beside it."""
    workload, model, about = point.workload, point.model, facts_of(Workload).get(name, NOTHING)
    if point.serving is not None and about.single_step:
        return "the load of requests decides it"
    if workload.task != "training" and about.training:
        return f"the task is {workload.task}"
    if isinstance(model, Recommender) and "recommender" not in about.models:
        return "the model is a recommender"
    if isinstance(model, ProgramModel) and "program" not in about.models:
        return "annotations of the program say what is split"
    if about.experts and not is_moe(model):
        return "the model has no experts"
    if about.outer_states and list_outer_states(point) & about.outer_states:
        return ""
    return about.idle(workload)
