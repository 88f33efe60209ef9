"""The classes of state of a block, and the tiers of memory in which each lives, nearest first, by bytes.

A class is weights, gradients or optimizer states, those of experts apart (`BlockStates`). Sums over the blocks of a
stage are the components of `cosmic.step.stage_memory`.

    homes      bytes of each class in each tier; over all tiers they sum to the class
    copies     what a tier holds of state that lives further out: buffers of the layers in use, cached experts

What must be in one tier is there. Of what is left of HBM, states that travel most often get their part first; so it
goes on from tier to tier. The last tier of a class takes the rest, and is full if it has no room for it. Every layer
has the same share of its state in each tier, so that all of them wait alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from cosmic.base.numeric import Numeric, choose, larger, sum_of
from cosmic.design.design_batch import Batch, Combinations
from cosmic.design.design_point import DesignPoint
from cosmic.design.memory_layer import ALL_IN_HBM, HBM, STATES
from cosmic.design.model_layer import Transformer, is_moe
from cosmic.step.block_memory import TABLES, elementwise_largest, weight_elements
from cosmic.step.communication import reduces_once
from cosmic.step.operator_work import picked_expert_share
from cosmic.step.process_memory import (
    left_bytes,
    needed_bytes,
    needed_per_byte,
    process_parts,
)
from cosmic.step.stage_memory import EXCHANGED_BYTES, ModelMemory, StageMemory, is_training_batch
from cosmic.workload.block_plans import BlockPlan, plan_of
from cosmic.workload.expert_routing import cached_hits, routing_key
from cosmic.workload.lora_adapters import trained_weights
from cosmic.workload.mesh_sizes import microbatches, sizes_of
from cosmic.workload.model_blocks import is_decoded
from cosmic.workload.precision import is_adapter, weight_bytes


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


def is_state_placed(point: DesignPoint) -> bool:
    """Return whether state is placed in tiers, class by class; otherwise all is in HBM but what is offloaded."""
    offloads = bool(point.workload.offload and point.memory.tiers)
    on_host = point.workload.updates_on_host
    explicit = point.memory.prefetch is not None or on_host
    return point.memory.placement != ALL_IN_HBM or (offloads and explicit)


def state_tiers(point: DesignPoint, state: str) -> tuple[str, ...]:
    """Return the tiers of a class of state, nearest first; what is offloaded, and not placed, is in all outer ones."""
    placed = point.memory.placement.of(state)
    named = {"experts": "weights"}.get(state, state.removeprefix("expert_"))
    if placed == (HBM,) and named in point.workload.offload:
        return tuple(tier.name for tier in point.memory.tiers)
    return placed


def placed_states(point: DesignPoint) -> dict[str, tuple[str, ...]]:
    """Return the tiers of every class of state that is not in HBM alone."""
    tiers_of_states = {state: state_tiers(point, state) for state in STATES}
    return {state: listed for state, listed in tiers_of_states.items() if listed != (HBM,)}


def has_master_copy_only(point: DesignPoint) -> bool:
    """Return whether outer experts exist as the optimizer's master copy alone, and are cast on their way."""
    experts, states = state_tiers(point, "experts"), state_tiers(point, "expert_optimizer")
    return point.workload.task == "training" and experts == states and HBM not in experts


def block_states(model: ModelMemory, name: str, *, experts: bool, read: bool = False) -> BlockStates:
    """Return the states of one block's experts, or of its other weights, without embedding tables.

    With *read*, of the weights that the task reads: a decoded token needs none of the encoder's.
    """
    plan = model.blocks[name]
    # The router has a column for each expert, and is none of their weights.
    expert_weights = frozenset(weight.name for weight in plan.block.graph.weights if weight.dims[0] == "experts")
    only = (
        expert_weights
        if experts
        else frozenset(weight.name for weight in plan.block.graph.weights) - expert_weights - TABLES
    )
    if read and model.workload.task == "decode":
        only &= frozenset(
            input_.name
            for operator in plan.block.graph.operators
            if is_decoded(plan.block, operator)
            for input_ in operator.inputs
        )
    if not only:
        return BlockStates()
    return _trained_states(model, plan, only) if is_training_batch(model.batch) else _served_states(model, plan, only)


def _served_states(model: ModelMemory, plan: BlockPlan, only: frozenset[str]) -> BlockStates:
    moe = is_moe(model.batch.base.model)
    shard = model.workload.shards_weights
    bytes_by_split: list[Numeric] = [0.0, 0.0]
    for weight in only:
        copies = model.batch["workload.lora_adapters"] if is_adapter(weight) else 1
        width = copies * weight_bytes(model.recipe, weight, moe=moe)
        for index, split in enumerate((shard, False)):
            bytes_by_split[index] = bytes_by_split[index] + width * weight_elements(
                plan, model.sizes, split, only=frozenset((weight,))
            )
    return BlockStates(weights=bytes_by_split[0], used=bytes_by_split[1])


def _trained_states(model: ModelMemory, plan: BlockPlan, only: frozenset[str]) -> BlockStates:
    recipe, sizes = model.recipe, model.sizes
    elements, split = (weight_elements(plan, sizes, replicas, only=only) for replicas in (False, True))
    trained = only & trained_weights(plan.block, adapted=True) if model.adapted else only
    trained_elements, trained_split = (
        weight_elements(plan, sizes, replicas, only=trained) for replicas in (False, True)
    )
    # ZeRO-3 stores what is trained as its master copy alone, if it has one; frozen weights (LoRA) have none
    shards = trained_split * (recipe.master or recipe.weight) + (split - trained_split) * recipe.weight
    stored = choose(model.gathers, shards, elements * recipe.weight)
    updated = trained_split if model.workload.shards_states else trained_elements
    each_state = model.state_bytes + (EXCHANGED_BYTES if model.workload.exchanges_apart else 0)
    gradients = (trained_elements if reduces_once(model.workload) else trained_split) * recipe.gradient
    return BlockStates(stored, elements * recipe.weight, gradients, updated * each_state, updated)


def active_expert_share(batch: Batch) -> Numeric:
    """Return the share of a layer's experts on a device that the tokens of a microbatch use."""
    share = batch.base.memory.active_experts
    if share is not None:
        return share
    sizes = sizes_of(batch)
    for plan in plan_of(batch):
        for part in plan.partitioned.operators:
            read = part.operator.inputs[0]
            if "share" in read.dims and "experts" in read.dims and part.operator.kind == "einsum":
                weight = part.operator.inputs[1]
                tokens = part.elements(tuple(dim for dim in read.dims if dim not in (*weight.dims, "share")), sizes)
                return picked_expert_share(np.minimum(sizes["share"], 1.0), tokens, even="popularity" not in sizes)
    return 1.0


def expert_cache_hits(batch: Batch) -> Numeric:
    """Return how often an expert in use is cached nearer: by how many are, and by how unevenly they are picked."""
    model = batch.base.model
    share: Numeric = batch["memory.expert_cache"]
    if not isinstance(model, Transformer) or model.experts is None:
        return share
    sizes = sizes_of(batch)
    tokens = sizes["tokens"] / sizes["edp"]
    looked_up = Combinations(share, batch["workload.moe_routing_skew"], tokens)
    hits: Numeric = looked_up.look_up(cached_hits, routing_key(model.experts))[0]
    return hits


NEAREST = (
    *("weights", "experts", "activations", "kv_cache"),
    *("gradients", "expert_gradients", "optimizer", "expert_optimizer"),
)
"""Classes of state in the order in which they get what a tier has left: what travels most often first."""
COMPONENT = {"experts": "weights", "expert_gradients": "gradients", "expert_optimizer": "optimizer"}
"""The component of a footprint that a class belongs to, where it is not its own."""
CACHED = ("experts", "expert_optimizer")


@dataclass(frozen=True, slots=True)
class PlacedState:
    """The state of one device in tiers; numbers, or arrays over a batch."""

    sizes: Mapping[str, Numeric]
    """Bytes of each class that is placed, all tiers together."""
    homes: Mapping[tuple[str, str], Numeric]
    """Bytes by tier and class: of HBM, only of classes that are placed."""
    copies: Mapping[str, Numeric]
    """Bytes of copies by tier: HBM has buffers for layers in use, other tiers cached experts."""
    buffers: Mapping[str, Numeric]
    """Of HBM's copies, those of each component."""
    used: Mapping[str, Numeric]
    """Bytes of each outer tier that are taken."""
    excess: Numeric
    """By what share the fullest outer tier is too small."""
    in_parts: Mapping[str, Numeric]
    """Bytes of the placed classes in each component of a stage that has all in HBM."""
    streams: Mapping[str, Numeric]
    """1 for classes that travel; 0 where all their layers have a buffer, and stay."""

    def share(self, state: str, tier: str) -> Numeric:
        """Return the share of a class that lives in a tier."""
        resident = self.homes.get((tier, state))
        return 0.0 if resident is None else resident / np.maximum(self.sizes[state], 1e-9)

    @property
    def movable(self) -> Numeric:
        """Bytes in HBM of classes that may live further out too: they take what is left, so that HBM is often full."""
        return sum_of((size for (tier, _), size in self.homes.items() if tier == HBM), 0.0)

    def in_hbm(self, component: str) -> Numeric:
        """Return the bytes of a component's placed classes in HBM, buffers included."""
        homes = (
            size for (tier, state), size in self.homes.items() if tier == HBM and _state_component(state) == component
        )
        return sum_of(homes, self.buffers.get(component, 0.0))

    def away(self, component: str) -> Numeric:
        """Return the bytes of a component that live in outer tiers."""
        return sum_of(
            (
                size
                for (tier, state), size in self.homes.items()
                if tier != HBM and _state_component(state) == component
            ),
            0.0,
        )


def merge_placements(
    first: PlacedState, second: PlacedState, choose: Callable[[Numeric, Numeric], Numeric]
) -> PlacedState:
    """Return what *choose* takes of two stages, design by design; the fullest tier of either counts."""
    merged: dict[str, Any] = {}
    for field in fields(PlacedState):
        one_value, alternative = getattr(first, field.name), getattr(second, field.name)
        if field.name == "excess":
            merged["excess"] = larger(one_value, alternative)
        else:
            merged[field.name] = {key: choose(value, alternative[key]) for key, value in one_value.items()}
    return PlacedState(**merged)


def _state_component(state: str) -> str:
    return COMPONENT.get(state, state)


# ---- classes


@dataclass(frozen=True, slots=True)
class StateClass:
    """One class of state on a stage."""

    size: Numeric
    buffer: Numeric
    """Bytes on the accelerator while it is used, where some of it is further out: of as many layers as are resident."""


def _state_classes(stage: StageMemory, parts: Mapping[str, Numeric]) -> dict[str, StateClass]:
    """Return every class of state that may be placed: its bytes on the stage, and those of its buffers."""
    model, batch = stage.model, stage.batch
    layers, active = batch["memory.resident_layers"], active_expert_share(batch)
    dense = {name: block_states(model, name, experts=False) for name in model.blocks}
    experts = {name: block_states(model, name, experts=True) for name in model.blocks}

    def total(component: Callable[[BlockStates], Numeric]) -> Numeric:
        return sum_of((count * component(experts[name]) for name, count in stage.counts.items()), 0.0)

    def most(blocks: Mapping[str, BlockStates], component: Callable[[BlockStates], Numeric]) -> Numeric:
        classes: Numeric = layers * elementwise_largest(
            np.where(np.asanyarray(stage.counts[n]) > 0, component(b), 0.0) for n, b in blocks.items()
        )
        return classes

    weights, gradients, optimizer = (
        total(lambda block: block.weights),
        total(lambda block: block.gradients),
        total(lambda block: block.optimizer),
    )
    classes = {
        "weights": StateClass(np.maximum(parts["weights"] - weights, 0.0), most(dense, lambda e: e.weights)),
        "experts": StateClass(
            weights * (0.0 if _cast_state(stage) else 1.0), active * most(experts, lambda e: e.weights)
        ),
        "gradients": StateClass(np.maximum(parts["gradients"] - gradients, 0.0), most(dense, lambda e: e.gradients)),
        "expert_gradients": StateClass(active * gradients, active * most(experts, lambda e: e.gradients)),
        "optimizer": StateClass(np.maximum(parts["optimizer"] - optimizer, 0.0), 0.0),  # when activations are gone
        "expert_optimizer": StateClass(optimizer, 0.0),
        "kv_cache": StateClass(
            parts["kv_cache"],
            layers * parts["kv_cache"] / np.maximum(stage.layer_count, 1.0) / microbatches(batch),
        ),
    }
    if is_training_batch(batch):
        chosen = stage.workload.offload_num_layers
        share = 1.0 if chosen is None else np.minimum(1.0, chosen / np.maximum(stage.layer_count, 1.0))
        used = layers * stage.per_microbatch / np.maximum(stage.layer_count, 1.0)
        classes["activations"] = StateClass(share * stage.in_flight, used)
    else:
        classes["activations"] = StateClass(0.0, 0.0)
    return classes


def cast_from_master(point: DesignPoint, master: float) -> bool:
    """Return whether experts exist as the *master* copy alone, which lives where they are placed.

    That of sharded weights (zero3) counts as the weights themselves.
    """
    return has_master_copy_only(point) and bool(master) and not point.workload.shards_weights


def _cast_state(stage: StageMemory) -> bool:
    return cast_from_master(stage.batch.base, stage.recipe.master)


# ---- placing


def place_state(stage: StageMemory, parts: Mapping[str, Numeric]) -> PlacedState:
    """Return where the state of a stage lives, whose components are *parts* if all were in HBM."""
    batch = stage.batch
    memory, lists = batch.base.memory, placed_states(batch.base)
    every = _state_classes(stage, parts)
    states = {name: every[name] for name in NEAREST if name in lists}
    copied = {tier.name for tier in memory.tiers if tier.access == "copy"}
    buffers = {name: np.minimum(state.buffer, _buffered_bytes(stage, name, state)) for name, state in states.items()}
    buffers = {name: size if copied & set(lists[name]) else size * 0.0 for name, size in buffers.items()}
    room = {tier.name: batch[f"memory.tiers.{index}.capacity"] for index, tier in enumerate(memory.tiers)}
    homes: dict[tuple[str, str], Numeric] = {}
    unplaced: dict[str, Numeric] = {name: state.size for name, state in states.items()}
    free = _free_hbm_bytes(stage, parts, {name: every[name] for name in states})
    in_hbm = [name for name in states if lists[name][0] == HBM]
    buffered: dict[str, Numeric] = {name: buffers[name] for name in states if name not in in_hbm}
    needs = {name: needed_per_byte(batch.base, _state_component(name)) for name in states}
    free = free - sum_of((needs[name] * size for name, size in buffered.items()), 0.0)
    for name in in_hbm:
        room_in_hbm = np.maximum(free, 0.0) / needs[name]
        fits = np.asanyarray(unplaced[name]) <= room_in_hbm
        placed_bytes: Numeric = np.where(
            fits, unplaced[name], np.clip(room_in_hbm - buffers[name], 0.0, unplaced[name])
        )
        buffered[name] = np.where(fits, 0.0, buffers[name])
        homes[HBM, name] = placed_bytes
        unplaced[name] = unplaced[name] - placed_bytes
        free = free - needs[name] * (placed_bytes + buffered[name])
    outer = {name: [tier for tier in lists[name] if tier != HBM] for name in states}
    for name in sorted(states, key=lambda state: len(outer[state]) > 1):  # what has one tier alone goes first
        for tier in outer[name]:
            last = tier == outer[name][-1]
            placed_bytes = unplaced[name] if last else np.minimum(unplaced[name], np.maximum(room[tier], 0.0))
            homes[tier, name] = placed_bytes
            room[tier] = room[tier] - placed_bytes
            unplaced[name] = unplaced[name] - placed_bytes
    copies = _cached_expert_bytes(stage, states, homes, outer)
    return _total_placement(stage, states, homes, buffered, copies)


def _buffered_bytes(stage: StageMemory, name: str, state: StateClass) -> Numeric:
    """Return the bytes of a class that buffers never exceed: all of it, but tables, whose rows are looked up."""
    if name in ("experts", "weights"):
        states = {block: block_states(stage.model, block, experts=name == "experts") for block in stage.model.blocks}
        return stage.total(lambda block: states[block].weights)
    return state.size


def _free_hbm_bytes(stage: StageMemory, parts: Mapping[str, Numeric], states: Mapping[str, StateClass]) -> Numeric:
    """Return what HBM has left beside what must be there."""
    point = stage.batch.base
    occupied = needed_bytes(point, {**parts, **process_parts(stage.batch, parts)})
    for name in states:
        occupied = occupied - needed_per_byte(point, _state_component(name)) * _size_in_parts(stage, name, states[name])
    return left_bytes(stage.batch) - occupied


def _size_in_parts(stage: StageMemory, name: str, state: StateClass) -> Numeric:
    """Return the bytes of a class in the components of a stage: all experts, also those that no token picks."""
    if name not in ("experts", "expert_gradients"):
        return state.size
    states = {block: block_states(stage.model, block, experts=True) for block in stage.model.blocks}
    if name == "experts":
        return stage.total(lambda block: states[block].weights)
    return stage.total(lambda block: states[block].gradients)


def _cached_expert_bytes(
    stage: StageMemory,
    states: Mapping[str, StateClass],
    homes: Mapping[tuple[str, str], Numeric],
    outer: Mapping[str, list[str]],
) -> dict[str, Numeric]:
    """Return the bytes of cached experts in each tier: copies of those in the next, with all their states.

    Where experts are stored as the master copy, a cached one has its 16 bits beside it.
    """
    cached = stage.batch["memory.expert_cache"]
    names = [HBM, *(tier.name for tier in stage.batch.base.memory.tiers)]
    copies: dict[str, Numeric] = dict.fromkeys(names, 0.0)
    for name in (name for name in CACHED if name in states):
        for tier in outer[name]:
            nearer = names[names.index(tier) - 1]
            copies[nearer] = copies[nearer] + cached * homes[tier, name]
    gathered = _cast_state(stage) or stage.workload.shards_weights
    if gathered and stage.recipe.master and "experts" in states:
        ours = {block: block_states(stage.model, block, experts=True) for block in stage.model.blocks}
        used_bytes = stage.total(lambda block: ours[block].used)
        nearer = names[names.index(outer["experts"][-1]) - 1]
        copies[nearer] = copies[nearer] + cached * used_bytes
    return copies


def _total_placement(
    stage: StageMemory,
    states: Mapping[str, StateClass],
    homes: Mapping[tuple[str, str], Numeric],
    buffered: Mapping[str, Numeric],
    copies: Mapping[str, Numeric],
) -> PlacedState:
    """Return the placement with what every tier holds, and by how much the fullest is too small."""
    batch = stage.batch
    buffers: dict[str, Numeric] = {}
    for name, size in buffered.items():
        buffers[_state_component(name)] = buffers.get(_state_component(name), 0.0) + size
    if "experts" in states:
        buffers["weights"] = buffers["weights"] + copies[HBM]
    used: dict[str, Numeric] = {}
    excess: Numeric = 0.0
    for index, tier in enumerate(tier.name for tier in batch.base.memory.tiers):
        in_tier = (size for (home_tier, _), size in homes.items() if home_tier == tier)
        used[tier] = sum_of(in_tier, copies[tier])
        excess = larger(excess, used[tier] / batch[f"memory.tiers.{index}.capacity"] - 1)
    streams = {
        name: np.where(np.asanyarray(state.buffer) < _buffered_bytes(stage, name, state), 1.0, 0.0)
        for name, state in states.items()
    }
    all_copies = {**copies, HBM: sum_of(buffered.values(), copies[HBM])}
    in_parts: dict[str, Numeric] = {}
    for name, state in states.items():
        in_parts[_state_component(name)] = in_parts.get(_state_component(name), 0.0) + _size_in_parts(
            stage, name, state
        )
    sizes = {name: state.size for name, state in states.items()}
    return PlacedState(sizes, homes, all_copies, buffers, used, larger(excess, 0.0), in_parts, streams)
