"""Where state lives: every class of it in tiers of memory, nearest first, by bytes.

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

from cosmic.design.memory import HBM
from cosmic.design.point import DesignPoint
from cosmic.numeric import Numeric, larger, sum_of
from cosmic.step.activations import largest
from cosmic.step.block_states import BlockStates, active_share, block_states, from_master, placed_states
from cosmic.step.stage_memory import CONSTANTS, StageMemory, training_task
from cosmic.workload.sizes import microbatches

NEAREST = (
    *("weights", "experts", "activations", "kv_cache"),
    *("gradients", "expert_gradients", "optimizer", "expert_optimizer"),
)
"""Classes of state in the order in which they get what a tier has left: what travels most often first."""
COMPONENT = {"experts": "weights", "expert_gradients": "gradients", "expert_optimizer": "optimizer"}
"""The component of a footprint that a class belongs to, where it is not its own."""
CACHED = ("experts", "expert_optimizer")


@dataclass(frozen=True, slots=True)
class Placed:
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
        home = self.homes.get((tier, state))
        return 0.0 if home is None else home / np.maximum(self.sizes[state], 1e-9)

    @property
    def movable(self) -> Numeric:
        """Bytes in HBM of classes that may live further out too: they take what is left, so that HBM is often full."""
        return sum_of((size for (tier, _), size in self.homes.items() if tier == HBM), 0.0)

    def in_hbm(self, component: str) -> Numeric:
        """Return the bytes of a component's placed classes in HBM, buffers included."""
        homes = (size for (tier, state), size in self.homes.items() if tier == HBM and _component(state) == component)
        return sum_of(homes, self.buffers.get(component, 0.0))

    def away(self, component: str) -> Numeric:
        """Return the bytes of a component that live in outer tiers."""
        return sum_of(
            (size for (tier, state), size in self.homes.items() if tier != HBM and _component(state) == component), 0.0
        )


def merged(one: Placed, other: Placed, choose: Callable[[Numeric, Numeric], Numeric]) -> Placed:
    """Return what *choose* takes of two stages, design by design; the fullest tier of either counts."""
    found: dict[str, Any] = {}
    for each in fields(Placed):
        left, right = getattr(one, each.name), getattr(other, each.name)
        if each.name == "excess":
            found["excess"] = larger(left, right)
        else:
            found[each.name] = {key: choose(value, right[key]) for key, value in left.items()}
    return Placed(**found)


def _component(state: str) -> str:
    return COMPONENT.get(state, state)


# -------------------------------------------------------------------------------------------------- classes


@dataclass(frozen=True, slots=True)
class State:
    """One class of state on a stage."""

    size: Numeric
    buffer: Numeric
    """Bytes on the accelerator while it is used, where some of it is further out: of as many layers as are resident."""


def _states(stage: StageMemory, parts: Mapping[str, Numeric]) -> dict[str, State]:
    """Return every class of state that may be placed: its bytes on the stage, and those of its buffers."""
    model, batch = stage.model, stage.batch
    layers, active = batch["memory.resident_layers"], active_share(batch)
    own = {name: block_states(model, name, experts=False) for name in model.blocks}
    experts = {name: block_states(model, name, experts=True) for name in model.blocks}

    def total(of: Callable[[BlockStates], Numeric]) -> Numeric:
        return sum_of((count * of(experts[name]) for name, count in stage.counts.items()), 0.0)

    def most(blocks: Mapping[str, BlockStates], of: Callable[[BlockStates], Numeric]) -> Numeric:
        found: Numeric = layers * largest(
            np.where(np.asanyarray(stage.counts[n]) > 0, of(b), 0.0) for n, b in blocks.items()
        )
        return found

    weights, gradients, optimizer = (
        total(lambda each: each.weights),
        total(lambda each: each.gradients),
        total(lambda each: each.optimizer),
    )
    found = {
        "weights": State(np.maximum(parts["weights"] - weights, 0.0), most(own, lambda e: e.weights)),
        "experts": State(weights * (0.0 if _cast(stage) else 1.0), active * most(experts, lambda e: e.weights)),
        "gradients": State(np.maximum(parts["gradients"] - gradients, 0.0), most(own, lambda e: e.gradients)),
        "expert_gradients": State(active * gradients, active * most(experts, lambda e: e.gradients)),
        "optimizer": State(np.maximum(parts["optimizer"] - optimizer, 0.0), 0.0),  # when activations are gone
        "expert_optimizer": State(optimizer, 0.0),
        "kv_cache": State(
            parts["kv_cache"],
            layers * parts["kv_cache"] / np.maximum(stage.layer_count, 1.0) / microbatches(batch),
        ),
    }
    if training_task(batch):
        chosen = stage.workload.offload_num_layers
        share = 1.0 if chosen is None else np.minimum(1.0, chosen / np.maximum(stage.layer_count, 1.0))
        used = layers * stage.per_microbatch / np.maximum(stage.layer_count, 1.0)
        found["activations"] = State(share * stage.in_flight, used)
    else:
        found["activations"] = State(0.0, 0.0)
    return found


def cast_from_master(point: DesignPoint, master: float) -> bool:
    """Return whether experts exist as the *master* copy alone, which lives where they are placed.

    That of sharded weights (zero3) counts as the weights themselves.
    """
    return from_master(point) and bool(master) and point.workload.weight_sharding != "zero3"


def _cast(stage: StageMemory) -> bool:
    return cast_from_master(stage.batch.base, stage.recipe.master)


# ------------------------------------------------------------------------------------------------- placing


def place_state(stage: StageMemory, parts: Mapping[str, Numeric]) -> Placed:
    """Return where the state of a stage lives, whose components are *parts* if all were in HBM."""
    batch = stage.batch
    memory, lists = batch.base.memory, placed_states(batch.base)
    every = _states(stage, parts)
    states = {name: every[name] for name in NEAREST if name in lists}
    copied = {each.name for each in memory.tiers if each.access == "copy"}
    buffers = {name: np.minimum(each.buffer, _flowing(stage, name, each)) for name, each in states.items()}
    buffers = {name: size if copied & set(lists[name]) else size * 0.0 for name, size in buffers.items()}
    room = {each.name: batch[f"memory.tiers.{place}.capacity"] for place, each in enumerate(memory.tiers)}
    homes: dict[tuple[str, str], Numeric] = {}
    left: dict[str, Numeric] = {name: each.size for name, each in states.items()}
    free = _free(stage, parts, {name: every[name] for name in states})
    near = [name for name in states if lists[name][0] == HBM]
    held: dict[str, Numeric] = {name: buffers[name] for name in states if name not in near}
    free = free - sum_of((_weight(name) * size for name, size in held.items()), 0.0)
    for name in near:
        inside = np.maximum(free, 0.0) / _weight(name)
        fits = np.asanyarray(left[name]) <= inside
        taken: Numeric = np.where(fits, left[name], np.clip(inside - buffers[name], 0.0, left[name]))
        held[name] = np.where(fits, 0.0, buffers[name])
        homes[HBM, name] = taken
        left[name] = left[name] - taken
        free = free - _weight(name) * (taken + held[name])
    outer = {name: [each for each in lists[name] if each != HBM] for name in states}
    for name in sorted(states, key=lambda each: len(outer[each]) > 1):  # what has one tier alone goes first
        for tier in outer[name]:
            last = tier == outer[name][-1]
            taken = left[name] if last else np.minimum(left[name], np.maximum(room[tier], 0.0))
            homes[tier, name] = taken
            room[tier] = room[tier] - taken
            left[name] = left[name] - taken
    copies = _caches(stage, states, homes, outer)
    return _settled(stage, states, homes, held, copies)


def _flowing(stage: StageMemory, name: str, each: State) -> Numeric:
    """Return the bytes of a class that buffers never exceed: all of it, but tables, whose rows are looked up."""
    if name in ("experts", "weights"):
        own = {block: block_states(stage.model, block, experts=name == "experts") for block in stage.model.blocks}
        return stage.total(lambda block: own[block].weights)
    return each.size


def _weight(name: str) -> float:
    """Return what a byte of a class takes of HBM: activations are allocated anew, and leave gaps."""
    return 1.0 + CONSTANTS.fragmentation if name == "activations" else 1.0


def _free(stage: StageMemory, parts: Mapping[str, Numeric], states: Mapping[str, State]) -> Numeric:
    """Return what HBM has left beside what must be there."""
    there: Numeric = sum_of(parts[name] for name in parts)
    there = there + CONSTANTS.fragmentation * (parts["activations"] + parts["loss"] + parts["buffers"])
    for name in states:
        there = there - _weight(name) * _size_in_parts(stage, name, states[name])
    free: Numeric = stage.batch["memory.capacity"] - there
    return free


def _size_in_parts(stage: StageMemory, name: str, each: State) -> Numeric:
    """Return the bytes of a class in the components of a stage: all experts, also those that no token picks."""
    if name not in ("experts", "expert_gradients"):
        return each.size
    own = {block: block_states(stage.model, block, experts=True) for block in stage.model.blocks}
    if name == "experts":
        return stage.total(lambda block: own[block].weights)
    return stage.total(lambda block: own[block].gradients)


def _caches(
    stage: StageMemory,
    states: Mapping[str, State],
    homes: Mapping[tuple[str, str], Numeric],
    outer: Mapping[str, list[str]],
) -> dict[str, Numeric]:
    """Return the bytes of cached experts in each tier: copies of those in the next, with all their states.

    Where experts are stored as the master copy, a cached one has its 16 bits beside it.
    """
    cached = stage.batch["memory.expert_cache"]
    names = [HBM, *(each.name for each in stage.batch.base.memory.tiers)]
    found: dict[str, Numeric] = dict.fromkeys(names, 0.0)
    for name in (name for name in CACHED if name in states):
        for tier in outer[name]:
            before = names[names.index(tier) - 1]
            found[before] = found[before] + cached * homes[tier, name]
    wide = _cast(stage) or stage.workload.weight_sharding == "zero3"
    if wide and stage.recipe.master and "experts" in states:
        ours = {block: block_states(stage.model, block, experts=True) for block in stage.model.blocks}
        whole = stage.total(lambda block: ours[block].used)
        before = names[names.index(outer["experts"][-1]) - 1]
        found[before] = found[before] + cached * whole
    return found


def _settled(
    stage: StageMemory,
    states: Mapping[str, State],
    homes: Mapping[tuple[str, str], Numeric],
    held: Mapping[str, Numeric],
    copies: Mapping[str, Numeric],
) -> Placed:
    """Return the placement with what every tier holds, and by how much the fullest is too small."""
    batch = stage.batch
    buffers: dict[str, Numeric] = {}
    for name, size in held.items():
        buffers[_component(name)] = buffers.get(_component(name), 0.0) + size
    if "experts" in states:
        buffers["weights"] = buffers["weights"] + copies[HBM]
    used: dict[str, Numeric] = {}
    excess: Numeric = 0.0
    for place, tier in enumerate(each.name for each in batch.base.memory.tiers):
        mine = (size for (where, _), size in homes.items() if where == tier)
        used[tier] = sum_of(mine, copies[tier])
        excess = larger(excess, used[tier] / batch[f"memory.tiers.{place}.capacity"] - 1)
    streams = {
        name: np.where(np.asanyarray(each.buffer) < _flowing(stage, name, each), 1.0, 0.0)
        for name, each in states.items()
    }
    whole = {**copies, HBM: sum_of(held.values(), copies[HBM])}
    in_parts: dict[str, Numeric] = {}
    for name, each in states.items():
        in_parts[_component(name)] = in_parts.get(_component(name), 0.0) + _size_in_parts(stage, name, each)
    sizes = {name: each.size for name, each in states.items()}
    return Placed(sizes, homes, whole, buffers, used, larger(excess, 0.0), in_parts, streams)
