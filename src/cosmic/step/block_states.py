"""What one block has of each class of state: weights, gradients and optimizer states, those of experts apart.

Sums over the blocks of a stage are the components of `cosmic.step.stage_memory`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosmic.design.batch import Batch
from cosmic.design.combinations import Combinations
from cosmic.design.memory import ALL_IN_HBM, HBM, STATES
from cosmic.design.model import Transformer, is_moe
from cosmic.design.point import DesignPoint
from cosmic.numeric import Numeric, choose
from cosmic.step.activations import weight_elements
from cosmic.step.communication import reduced_once
from cosmic.step.experts import picked_share
from cosmic.step.stage_memory import EXCHANGED_BYTES, ModelMemory, training_task
from cosmic.step.tables import TABLES
from cosmic.workload.adapters import trained_weights
from cosmic.workload.blocks import Block, is_decoded
from cosmic.workload.expert_cache import cached_hits
from cosmic.workload.islands import exchanges_apart
from cosmic.workload.plan import BlockPlan, plan_of
from cosmic.workload.precision import is_adapter, weight_bytes
from cosmic.workload.routing import routing_key
from cosmic.workload.sizes import sizes_of


@dataclass(frozen=True, slots=True)
class BlockStates:
    """Bytes of some weights of one block on a device, and of what training keeps beside them."""

    weights: Numeric = 0.0
    """As stored: where sharded weights exist as the master copy alone, that."""
    used: Numeric = 0.0
    """As GEMMs read them, with replicas' shards gathered."""
    gradients: Numeric = 0.0
    optimizer: Numeric = 0.0
    updated: Numeric = 0.0
    """Elements that the device updates."""


def is_placed(point: DesignPoint) -> bool:
    """Return whether state is placed in tiers, class by class; otherwise all is in HBM but what is offloaded."""
    offloads = bool(point.workload.offload and point.memory.tiers)
    on_host = point.workload.optimizer_device == "cpu" and point.workload.task == "training"
    stated = point.memory.prefetch is not None or on_host
    return point.memory.placement != ALL_IN_HBM or (offloads and stated)


def tiers_of(point: DesignPoint, state: str) -> tuple[str, ...]:
    """Return the tiers of a class of state, nearest first; what is offloaded, and not placed, is in all outer ones."""
    placed = point.memory.placement.of(state)
    named = {"experts": "weights"}.get(state, state.removeprefix("expert_"))
    if placed == (HBM,) and named in point.workload.offload:
        return tuple(each.name for each in point.memory.tiers)
    return placed


def placed_states(point: DesignPoint) -> dict[str, tuple[str, ...]]:
    """Return the tiers of every class of state that is not in HBM alone."""
    found = {state: tiers_of(point, state) for state in STATES}
    return {state: listed for state, listed in found.items() if listed != (HBM,)}


def from_master(point: DesignPoint) -> bool:
    """Return whether outer experts exist as the optimizer's master copy alone, and are cast on their way."""
    experts, states = tiers_of(point, "experts"), tiers_of(point, "expert_optimizer")
    return point.workload.task == "training" and experts == states and HBM not in experts


def expert_names(each: BlockPlan) -> frozenset[str]:
    """Return the names of a block's weights that are experts'; the router has a column for each, and is none."""
    return frozenset(weight.name for weight in each.block.graph.weights if weight.dims[0] == "experts")


def block_states(model: ModelMemory, name: str, *, experts: bool, read: bool = False) -> BlockStates:
    """Return the states of one block's experts, or of its other weights, without embedding tables.

    With *read*, of the weights that the task reads: a decoded token needs none of the encoder's.
    """
    each = model.blocks[name]
    theirs = expert_names(each)
    only = theirs if experts else frozenset(weight.name for weight in each.block.graph.weights) - theirs - TABLES
    if read and model.workload.task == "decode":
        only &= _decoded_weights(each.block)
    if not only:
        return BlockStates()
    return _trained(model, each, only) if training_task(model.batch) else _served(model, each, only)


def _decoded_weights(block: Block) -> frozenset[str]:
    """Return the names of the weights that operators read when a token is decoded."""
    return frozenset(each.name for one in block.graph.operators if is_decoded(block, one) for each in one.inputs)


def _served(model: ModelMemory, each: BlockPlan, only: frozenset[str]) -> BlockStates:
    moe = is_moe(model.batch.base.model)
    shard = model.workload.weight_sharding == "zero3"
    found: list[Numeric] = [0.0, 0.0]
    for weight in only:
        copies = model.batch["workload.lora_adapters"] if is_adapter(weight) else 1
        width = copies * weight_bytes(model.recipe, weight, moe=moe)
        for place, split in enumerate((shard, False)):
            found[place] = found[place] + width * weight_elements(each, model.sizes, split, only=frozenset((weight,)))
    return BlockStates(weights=found[0], used=found[1])


def _trained(model: ModelMemory, each: BlockPlan, only: frozenset[str]) -> BlockStates:
    recipe, sharding, sizes = model.recipe, model.workload.weight_sharding, model.sizes
    whole, split = (weight_elements(each, sizes, replicas, only=only) for replicas in (False, True))
    kept = only & trained_weights(each.block, adapted=True) if model.adapted else only
    own, own_split = (weight_elements(each, sizes, replicas, only=kept) for replicas in (False, True))
    shards = own_split * (recipe.master or recipe.weight) + (split - own_split) * recipe.weight
    stored = choose(model.gathers, shards, whole * recipe.weight)
    updated = own if sharding == "none" else own_split
    each_state = model.state_bytes + (EXCHANGED_BYTES if exchanges_apart(model.workload) else 0)
    gradients = (own if reduced_once(model.workload) else own_split) * recipe.gradient
    return BlockStates(stored, whole * recipe.weight, gradients, updated * each_state, updated)


def active_share(batch: Batch) -> Numeric:
    """Return the share of a layer's experts on a device that the tokens of a microbatch use."""
    stated = batch.base.memory.active_experts
    if stated is not None:
        return stated
    sizes = sizes_of(batch)
    for each in plan_of(batch):
        for part in each.partitioned.operators:
            read = part.operator.inputs[0]
            if "share" in read.dims and "experts" in read.dims and part.operator.kind == "einsum":
                weight = part.operator.inputs[1]
                tokens = part.elements(tuple(dim for dim in read.dims if dim not in (*weight.dims, "share")), sizes)
                return picked_share(np.minimum(sizes["share"], 1.0), tokens, even="popularity" not in sizes)
    return 1.0


def cache_hits(batch: Batch) -> Numeric:
    """Return how often an expert in use is cached nearer: by how many are, and by how unevenly they are picked."""
    model = batch.base.model
    share: Numeric = batch["memory.expert_cache"]
    if not isinstance(model, Transformer) or model.experts is None:
        return share
    sizes = sizes_of(batch)
    tokens = sizes["tokens"] / sizes["edp"]
    looked_up = Combinations(share, batch["workload.moe_routing_skew"], tokens)
    found: Numeric = looked_up.look_up(cached_hits, routing_key(model.experts))[0]
    return found
