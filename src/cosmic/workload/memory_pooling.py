"""Memory pools behind switches that gather and reduce: which state they spare the network between accelerators.

Sharded weights (zero3, FSDP) live in shards, and are gathered for every use. A pool whose switches gather sends each
shard once, and they copy it to every accelerator that wants it; whose switches reduce, takes the gradients of all and
writes their sum. Neither all-gather nor reduce-scatter then crosses the network. What is partly in HBM is gathered by
accelerators, as ever.
"""

from __future__ import annotations

from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import is_moe

SWITCHED = ("weights", "experts", "gradients", "expert_gradients")
"""Classes of state that switches gather or reduce."""


def switched_in(point: DesignPoint, state: str) -> int | None:
    """Return the number of the tier whose switches gather or reduce a class of state; None where none does."""
    if state not in SWITCHED or point.workload.weight_sharding != "zero3":
        return None
    if state.startswith("expert") and not is_moe(point.model):
        return None
    listed = point.memory.placement.of(state)
    for index, tier in enumerate(point.memory.tiers):
        if tier.pool is not None and tier.pool.in_switch and listed == (tier.name,):
            return index
    return None


def switches_work(point: DesignPoint) -> bool:
    """Return whether switches that gather and reduce have something to do, if there are some."""
    able = any(tier.pool is not None and tier.pool.in_switch for tier in point.memory.tiers)
    return not able or any(switched_in(point, state) is not None for state in SWITCHED)
