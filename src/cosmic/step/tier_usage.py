"""What each tier of memory holds of a design's state, in words and numbers, and which of them is full by what."""

from __future__ import annotations

from typing import Any

from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.memory_layer import HBM
from cosmic.step.device_memory import Footprint, memory_of, stage_footprints
from cosmic.step.state_placement import is_state_placed
from cosmic.step.tier_traffic import tier_traffic

GIB = 2**30


def full_tiers(point: DesignPoint) -> tuple[str, ...]:
    """Return for each tier that some stage overfills a sentence: how much it would hold, and of what."""
    found: dict[str, str] = {}
    for stage in stage_footprints(point):
        for tier in point.memory.tiers:
            held = {} if stage.placed is None else bytes_in_tier(stage, tier.name)
            needed = sum(held.values())
            if needed > tier.capacity_bytes and tier.name not in found:
                most = sorted(held.items(), key=lambda item: -item[1])[:3]
                parts = ", ".join(f"{size / GIB:.3g} {name}" for name, size in most if size)
                room = f"{tier.capacity_bytes / GIB:.4g} GiB per NPU"
                found[tier.name] = f"{tier.name} is full: needs {needed / GIB:.4g} GiB of {room}: {parts}"
        whole = float(stage.total)
        if whole > point.memory.capacity_bytes and HBM not in found:
            room = f"{point.memory.capacity_bytes / GIB:.4g} GiB per NPU"
            found[HBM] = f"stage {int(stage.stage) + 1} needs {whole / GIB:.4g} GiB of {room} of HBM"
    return tuple(found.values())


def bytes_in_tier(memory: Footprint, tier: str) -> dict[str, float]:
    """Return the bytes that an outer tier holds of each class of state, and of cached experts."""
    if memory.placed is None:
        return {}
    homes = {state: float(size) for (where, state), size in memory.placed.homes.items() if where == tier}
    return homes | {"cached experts": float(memory.placed.copies[tier])}


def tier_metrics(point: DesignPoint) -> dict[str, dict[str, float]]:
    """Return by tier its capacity, what it holds of each class of state, and what crosses its link in a step.

    All tiers of a design that has some; HBM has the components of its footprint. Empty where nothing is out there.
    """
    if not point.memory.tiers or not (is_state_placed(point) or point.workload.offload):
        return {}
    batch = batch_of(point)
    memory, traffic = memory_of(batch), tier_traffic(batch)
    found = {
        HBM: _tier_row(point.memory.capacity_bytes, {name: float(size) for name, size in memory.parts.items()}, 0.0)
    }
    if traffic is None:
        return found | _offloaded_tiers(point, memory)
    sent = traffic.step_bytes()
    for index, tier in enumerate(point.memory.tiers):
        found[tier.name] = _tier_row(tier.capacity_bytes, bytes_in_tier(memory, tier.name), float(sent[index]))
    return found


def _tier_row(capacity: float, held: dict[str, float], traffic: float) -> dict[str, float]:
    used = {name: size for name, size in held.items() if size}
    return {"capacity_bytes": capacity, "used_bytes": sum(used.values()), "traffic_bytes": traffic, **used}


def _offloaded_tiers(point: DesignPoint, memory: Footprint) -> dict[str, dict[str, float]]:
    """Return the same of what a workload offloads: tiers are filled one after the other."""
    left = {name: float(memory.offloaded.get(name, 0.0)) for name in ("weights", "activations", "optimizer")}
    found: dict[str, dict[str, float]] = {}
    beyond = [float(sum(memory.tier_traffic[place:])) for place in range(len(memory.tier_traffic))]
    for index, tier in enumerate(point.memory.tiers):
        room, held = tier.capacity_bytes, {}
        for name, size in left.items():
            held[name] = min(size, room)
            room, left[name] = room - held[name], size - held[name]
        found[tier.name] = _tier_row(tier.capacity_bytes, held, beyond[index] if beyond else 0.0)
    return found


def describe_tiers(tiers: dict[str, Any]) -> list[str]:
    """Return a line for each tier, for people."""
    found = []
    for name, tier in tiers.items():
        parts = ", ".join(f"{tier[key] / GIB:.3g} {key}" for key in tier if key not in TOTAL_KEYS)
        moved = f"; {tier['traffic_bytes'] / GIB:.4g} GiB cross its link in a step" if tier["traffic_bytes"] else ""
        found.append(
            f"{name}: {tier['used_bytes'] / GIB:.4g} of {tier['capacity_bytes'] / GIB:.4g} GiB"
            f"{f' ({parts})' if parts else ''}{moved}"
        )
    return found


TOTAL_KEYS = ("capacity_bytes", "used_bytes", "traffic_bytes")
