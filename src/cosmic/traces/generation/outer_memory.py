"""Traffic with outer tiers of memory, as a plan of traces states it: the closed form's seconds of each transfer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cosmic.numeric import Numeric, sum_of
from cosmic.step.profile import StepProfile, stages_of
from cosmic.step.profile import profile as profile_of
from cosmic.step.tier_traffic import TierTraffic, tier_traffic
from cosmic.traces.generation.stages import Layer
from cosmic.traces.generation.tapes import Fetched


def outer_memory(profile: StepProfile, parts: Sequence[Sequence[Layer]], passes: int) -> dict[str, Any]:
    """Return the fields of a plan that say what travels between accelerators and outer tiers.

    State that is placed comes a layer ahead, or, like what is offloaded, anywhere in the step: then each of so many
    *passes* of a stage has a part of it, for which the update alone waits.
    """
    traffic = tier_traffic(profile.batch)
    if traffic is None:
        return _offloaded(profile, passes)
    update = traffic.update
    states = float(max(update.links_s, update.processor_s))
    found: dict[str, Any] = {
        "offloaded_states": (states, float(next(iter(update.links), 0.0))),
        "follows": profile.batch.base.workload.task == "decode",
    }
    if not traffic.ahead:
        stages = [profile_of(profile.batch, stage).counts for stage in stages_of(profile.batch)]
        whole, size = max((float(traffic.passes_s(counts)), _near_bytes(traffic, counts)) for counts in stages)
        return found | {"offloaded": (whole / passes, size / passes)}
    gradients = float(traffic.gradients_out_s), float(sum(update.gradient_links))
    blocks = {layer.label: layer.piece.name for part in parts for layer in part}
    outer = {phase: {label: _moved(traffic, name, phase) for label, name in blocks.items()} for phase in traffic.passes}
    resident = profile.batch.base.memory.resident_layers
    return found | {"outer": outer, "resident": resident, "gradients_out": gradients}


def _near_bytes(traffic: TierTraffic, counts: Mapping[str, Numeric]) -> float:
    """Return the bytes that cross the nearest link in all passes of a stage."""
    each = ((name, count, phase) for name, count in counts.items() for phase in traffic.passes)
    blocks = (count * next(iter(traffic.block(name, phase)), 0.0) for name, count, phase in each)
    return float(traffic.count * sum_of(blocks, 0.0) + next(iter(traffic.update.gradient_links), 0.0))


def _moved(traffic: TierTraffic, name: str, phase: str) -> Fetched:
    near = [float(next(iter(links), 0.0)) for links in (traffic.loads(name, phase), traffic.stores(name, phase))]
    shards = {*traffic.placed.sizes}.isdisjoint(("activations", "kv_cache"))  # gradients leave, none comes
    return Fetched(float(traffic.load_s(name, phase)), near[0], float(traffic.store_s(name, phase)), near[1], shards)


def _offloaded(profile: StepProfile, passes: int) -> dict[str, Any]:
    """Return the same of a workload that offloads whole kinds of state."""
    offloads = bool(profile.batch.base.workload.offload)
    states = float(profile.memory.update_share) if offloads else 0.0
    traffic = [float(moved) for moved in profile.memory.tier_traffic] if offloads else []
    whole_s = float(profile.network.offload_seconds(traffic))
    return {
        "offloaded": (whole_s * (1 - states) / passes, sum(traffic) * (1 - states) / passes),
        "offloaded_states": (whole_s * states, sum(traffic) * states),
    }
