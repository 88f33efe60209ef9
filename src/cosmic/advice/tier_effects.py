"""Fields of the memory layer, and what a workload offloads, that have no effect, each with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from cosmic.design.batch import batch_of
from cosmic.design.memory import HBM
from cosmic.design.model import is_moe
from cosmic.design.point import DesignPoint
from cosmic.step.block_states import is_placed, placed_states
from cosmic.step.memory import memory_of
from cosmic.workload.checks import invalid_reasons

SERVED = ("weights", "experts", "kv_cache")
"""Classes of state of a served model; training has all but keys and values."""
UPDATED = ("optimizer", "expert_optimizer")
"""Classes of state that no layer uses: they come for the update, and need no buffers."""
OFFLOADED = {
    "weights": ("weights", "experts"),
    "activations": ("activations",),
    "optimizer": ("optimizer", "expert_optimizer"),
}
"""Classes of state that a workload offloads under one name."""


def memory_without_effect(point: DesignPoint, stated: Iterable[str]) -> dict[str, str]:
    """Return those of the *stated* fields of the memory that have no effect, by path, with the reason.

    Of tiers as a whole, each that nothing crosses.

    >>> from cosmic.mapping.completing import load_design
    >>> placed = load_design("llama3-8b@dgx-h100:8", {"tp": 8, "memory.placement.kv_cache": ["host"]})
    >>> memory_without_effect(placed, ["memory.placement.kv_cache"])
    {'memory.placement.kv_cache': 'the task is training'}
    """
    step = _one_step(point)
    found: dict[str, str] = {}
    for path in sorted(stated):
        _, _, name = path.partition(".")
        kind, _, rest = name.partition(".")
        if kind == "placement" and rest:
            found[path] = _missing(step, rest)
        elif kind == "tiers":
            found |= _tiers(step, rest)
        elif kind in FIELDS:
            found[path] = FIELDS[kind](step)
    return {path: reason for path, reason in found.items() if reason}


def offload_without_effect(point: DesignPoint) -> dict[str, str]:
    """Return what a workload offloads to no effect, with the reason: there is none of it, or its place is stated.

    >>> from cosmic.mapping.completing import load_design
    >>> offloads = {"task": "decode", "tp": 8, "offload": ["weights", "optimizer"]}
    >>> offload_without_effect(load_design("llama3-8b@dgx-h100:8", offloads))
    {'workload.offload.optimizer': 'the task is decode'}
    """
    step = _one_step(point)
    found = {}
    for name in step.workload.offload:
        classes = OFFLOADED[name]
        if reason := _missing(step, classes[0]):
            found[f"workload.offload.{name}"] = reason
        elif all(step.memory.placement.of(each) != (HBM,) for each in classes):
            found[f"workload.offload.{name}"] = f"memory.placement.{classes[0]} says where it is"
    return found


def _one_step(point: DesignPoint) -> DesignPoint:
    """Return the design as one of single steps: what serves a load decodes."""
    if point.serving is None:
        return point
    return replace(point, serving=None, workload=replace(point.workload, task="decode"))


def outer_states(point: DesignPoint, access: str | None = None) -> set[str]:
    """Return the classes of state that a design has, and that may be outside HBM; in tiers of one *access*, if given.

    Of designs that state no placement, those that are offloaded.
    """
    names = {each.name for each in point.memory.tiers if access in (None, each.access)}
    placed = placed_states(point) if point.memory.tiers else {}
    return {state for state, listed in placed.items() if names & set(listed) and not _missing(point, state)}


def _missing(point: DesignPoint, state: str) -> str:
    """Return why a design has none of a class of state; nothing if it has some."""
    task = point.workload.task
    if (state == "kv_cache") if task == "training" else (state not in SERVED):
        return f"the task is {task}"
    if state.startswith("expert") and not is_moe(point.model):
        return "the model has no experts"
    if state != "experts" and is_placed(point) and not invalid_reasons(point):  # these may exist as master copy alone
        placed = memory_of(batch_of(point)).placed
        if placed is not None and state in placed.sizes and not float(placed.sizes[state]):
            return f"the model has no {state.replace('_', ' ')} in {task}"
    return ""


# ---------------------------------------------------------------------------------------------------- tiers


def _tiers(point: DesignPoint, rest: str) -> dict[str, str]:
    """Return the tiers, or the field of a tier that *rest* names, without effect."""
    place, _, name = rest.partition(".")
    chosen = [int(place)] if place.isdigit() else range(len(point.memory.tiers))
    found = {f"memory.tiers.{each}": _unused(point, each) for each in chosen if each < len(point.memory.tiers)}
    if name and not any(found.values()):
        return {f"memory.tiers.{rest}": _of_tier(point, int(place), name)}
    return found


def _unused(point: DesignPoint, place: int) -> str:
    """Return why a tier has no effect: nothing lives there, nor, if it is one of a chain, further out."""
    tiers = point.memory.tiers
    placed = placed_states(point)
    listed = {name for state in outer_states(point) for name in placed[state]}
    beyond = [each.name for each in tiers[place:] if each.access == "copy"]
    crossed = beyond if tiers[place].access == "copy" else [tiers[place].name]
    return "" if listed & set(crossed) else f"nothing is placed in {tiers[place].name}"


def _of_tier(point: DesignPoint, place: int, name: str) -> str:
    """Return why a field of a tier in use has no effect."""
    tier = point.memory.tiers[place]
    if name == "latency" and tier.access == "load_store" and tier.latency_s:
        return f"kernels read {tier.name} in place, with loads enough on their way to hide it"
    if name == "processor_bandwidth" and tier.processor_bandwidth_bytes_per_s is not None:
        return _of_processor(point, place)
    return ""


def _of_processor(point: DesignPoint, place: int) -> str:
    workload, copied = point.workload, [at for at, each in enumerate(point.memory.tiers) if each.access == "copy"]
    if workload.task != "training":
        return f"the task is {workload.task}"
    if workload.optimizer_device == "gpu":
        return "optimizer_device is gpu"
    first = point.memory.tiers[copied[0]].name if copied else "none"
    return "" if [place] == copied[:1] else f"the processor of {first} updates weights"


# --------------------------------------------------------------------------------------------------- fields


def _prefetch(point: DesignPoint) -> str:
    copied, workload = outer_states(point, "copy"), point.workload
    if point.memory.prefetch is None or copied - {*UPDATED} or workload.offload:
        return ""
    if copied and workload.optimizer_device == "cpu":
        return ""
    return "the update alone moves state between tiers" if copied else "no state is copied from an outer tier"


def _resident_layers(point: DesignPoint) -> str:
    if not is_placed(point) and point.workload.offload:
        return "offloaded state comes as early as the step allows: set prefetch to layer"
    return "" if outer_states(point, "copy") - {*UPDATED} else "no state that layers use is copied from an outer tier"


def _of_experts(point: DesignPoint, classes: Iterable[str]) -> str:
    if not is_moe(point.model):
        return "the model has no experts"
    if not is_placed(point):
        return "no experts are placed in an outer tier"
    return "" if outer_states(point) & {*classes} else "no experts are placed in an outer tier"


FIELDS: Mapping[str, Callable[[DesignPoint], str]] = {
    "prefetch": _prefetch,
    "resident_layers": _resident_layers,
    "active_experts": lambda p: _of_experts(p, ("experts", "expert_gradients", "expert_optimizer")),
    "expert_cache": lambda p: _of_experts(p, ("experts", "expert_optimizer")),
    "expansion": lambda p: "" if outer_states(p, "load_store") else "no state is in a tier that kernels read in place",
}
"""Why a field of the memory has no effect, if it has none, by its name."""
