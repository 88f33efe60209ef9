"""Memory of a device: weights, gradients, optimizer state, activations, buffers, KV cache, at the peak of a step.

Activations have no formula of their own: they are the tensors that the backward operators read (see
`cosmic.workload.operator_kinds.kept_activations`), as the sharding lays them out, each counted once, for as many microbatches as the
schedule has in flight. The peak is at one of three moments: the loss, the gradients of the head, or those of a layer.
Each is summed on every stage that may be the fullest (`cosmic.step.stage_memory`), and the largest counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from cosmic.base.numeric import Numeric, floats, larger, sum_of
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.step.stage_memory import (
    CONSTANTS,
    ModelMemory,
    StageMemory,
    fullest_stage_candidates,
    is_training_batch,
    model_memory,
)
from cosmic.step.state_placement import PlacedState, is_state_placed, merge_placements, place_state
from cosmic.workload.mesh_sizes import microbatches, structural_paths

STATIC = ("weights", "gradients", "optimizer", "inputs", "workspace")
PLACEABLE = ("weights", "gradients", "optimizer", "activations", "kv_cache")
"""Components that can live in outer tiers."""
COMPONENTS = (*STATIC, "activations", "loss", "buffers", "kv_cache", "allowance")


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes on the fullest device, by component; numbers, or arrays over a batch."""

    parts: Mapping[str, Numeric]
    offloaded: Mapping[str, Numeric] = field(default_factory=dict)
    """Bytes offloaded to outer tiers, by component."""
    tier_traffic: tuple[Numeric, ...] = ()
    """Bytes moved between the device and each outer tier in one step, both ways together."""
    stage: Numeric = 0
    """Number of the pipeline stage of the device, from 0 on."""
    placed: PlacedState | None = None
    """Where state lives, if it is placed in tiers class by class."""
    excess: Numeric = 0.0
    """By what share the fullest outer tier of any stage is too small for what is placed there."""

    @property
    def outer(self) -> Numeric:
        """Bytes that live in outer tiers."""
        return sum_of(self.offloaded.values())

    @property
    def update_share(self) -> Numeric:
        """The share of the traffic with outer tiers that belongs to the update: optimizer states, in and out."""
        states = 2.0 * self.offloaded.get("optimizer", 0.0)
        return states / np.maximum(self.offload_traffic, 1.0)

    @property
    def offload_traffic(self) -> Numeric:
        """Bytes moved between the device and all outer tiers in one step, both ways together."""
        return sum_of(self.tier_traffic)

    @property
    def total(self) -> Numeric:
        """All components, with the allowance for fragmentation: what must fit."""
        return sum_of(self.parts.values())

    @property
    def peak(self) -> Numeric:
        """Allocated bytes at the peak: all components but the allowance."""
        return self.total - self.parts["allowance"]

    @property
    def static(self) -> Numeric:
        """What stays allocated from step to step."""
        return sum_of(self.parts[name] for name in STATIC)


def footprint(batch: Batch) -> Footprint:
    """Return the memory of the fullest device of each design."""
    found = [(rows, _footprint(part)) for rows, part in batch.groups(structural_paths(batch))]
    if len(found) == 1:
        return found[0][1]

    def joined(values: Iterable[Numeric]) -> Numeric:
        whole = np.empty(batch.size)
        for (rows, _), value in zip(found, values, strict=True):
            whole[rows] = value
        return whole

    groups = [each for _, each in found]
    names = sorted({name for group in groups for name in group.offloaded})
    tiers = range(len(batch.base.memory.tiers))
    return Footprint(
        {name: joined(group.parts[name] for group in groups) for name in COMPONENTS},
        {name: joined(group.offloaded.get(name, 0.0) for group in groups) for name in names},
        tuple(joined(group.tier_traffic[place] if group.tier_traffic else 0.0 for group in groups) for place in tiers),
        joined(group.stage for group in groups),
        excess=joined(group.excess for group in groups),
    )


def memory_of(batch: Batch) -> Footprint:
    """Return the footprint of the fullest device, worked out once for a batch."""
    return batch.once(memory_of, lambda: footprint(batch))


def stage_footprints(point: DesignPoint) -> tuple[Footprint, ...]:
    """Return the memory of a device of each pipeline stage of a design, in order."""
    batch = batch_of(point)
    model = model_memory(batch)
    return tuple(_stage_footprint(model, index) for index in range(point.workload.pp))


def updated_elements(batch: Batch, place: Numeric) -> Numeric:
    """Return the weights that a device of stage number *place* updates: all that it has, or its shard of them."""
    return StageMemory(model_memory(batch), place).trained(batch.base.workload.weight_sharding != "none")


def _footprint(batch: Batch) -> Footprint:
    model = model_memory(batch)
    places = fullest_stage_candidates(batch, [block.block for block in model.blocks.values()])
    return reduce(_fuller_stage, (_stage_footprint(model, place) for place in places))


def _fuller_stage(one: Footprint, other: Footprint) -> Footprint:
    """Return the fuller of two stages, design by design; of equals the first. What spills from HBM counts."""
    if one.placed is None:
        fuller = np.asanyarray(one.total) >= np.asanyarray(other.total)
    else:
        fuller = np.asanyarray(one.total + one.outer) >= np.asanyarray(other.total + other.outer)

    def choose(left: Numeric, right: Numeric) -> Numeric:
        return _plain_number(np.where(fuller, left, right))

    return Footprint(
        {name: choose(value, other.parts[name]) for name, value in one.parts.items()},
        {name: choose(value, other.offloaded[name]) for name, value in one.offloaded.items()},
        tuple(choose(*each) for each in zip(one.tier_traffic, other.tier_traffic, strict=True)),
        choose(one.stage, other.stage),
        one.placed and other.placed and merge_placements(one.placed, other.placed, choose),
        larger(one.excess, other.excess),
    )


def _stage_footprint(model: ModelMemory, number: Numeric) -> Footprint:
    """Return the memory of a device of a stage."""
    stage = StageMemory(model, number)
    parts = stage.training() if stage.workload.task == "training" else stage.inference()
    return _place_in_tiers(stage, parts) if is_state_placed(stage.batch.base) else _offload_state(stage, parts)


def _place_in_tiers(stage: StageMemory, parts: dict[str, Numeric]) -> Footprint:
    """Move state to the tiers in which it is placed."""
    placed = place_state(stage, parts)
    rest = {name: parts[name] - placed.in_parts.get(name, 0.0) + placed.in_hbm(name) for name in parts}
    moving = rest["activations"] + rest["loss"] + rest["buffers"]
    whole = {**rest, "allowance": CONSTANTS.fragmentation * moving}
    capacity = stage.batch["memory.capacity"]
    return Footprint(
        {name: _plain_number(whole[name]) for name in COMPONENTS},
        {name: _plain_number(placed.away(name)) for name in PLACEABLE},
        (),
        _plain_number(stage.place),
        placed,
        larger(placed.excess, sum_of(whole.values()) / capacity - 1),
    )


def _plain_number(value: Numeric) -> Numeric:
    array = floats(value)
    return float(array) if array.ndim == 0 else array


# ----------------------------------------------------------------------------------------------- offloading

NEAREST = ("weights", "activations", "optimizer")
"""What goes to the nearest tier first: what travels most often."""


def _offload_state(stage: StageMemory, parts: dict[str, Numeric]) -> Footprint:
    """Move what the workload offloads to the outer tiers, and count the traffic with each of them.

    Weights come in for every pass of every microbatch; activations go out and come in once a microbatch; optimizer
    states come in and go out once a step. The layer in use and the next one are on the device.
    """
    batch, workload = stage.batch, stage.workload
    moved: dict[str, Numeric] = {}
    traffic: dict[str, Numeric] = {}
    for name in (name for name in NEAREST if name in workload.offload):
        moved[name], traffic[name] = _offloaded_bytes(stage, name, parts[name])
        parts[name] = parts[name] - moved[name]
    moving = parts["activations"] + parts["loss"] + parts["buffers"]
    whole = {**parts, "allowance": CONSTANTS.fragmentation * moving}
    return Footprint(
        {name: _plain_number(whole[name]) for name in COMPONENTS},
        {name: _plain_number(moved[name]) for name in workload.offload},
        _traffic_by_tier(batch, moved, traffic),
        _plain_number(stage.place),
    )


def _offloaded_bytes(stage: StageMemory, name: str, size: Numeric) -> tuple[Numeric, Numeric]:
    """Return the bytes of a component that leave the device, and those that travel in one step."""
    trains, count = is_training_batch(stage.batch), microbatches(stage.batch)
    if name == "optimizer":
        return size, 2.0 * size
    if name == "weights":
        away = np.maximum(0.0, size - CONSTANTS.gathered_layers * stage.largest_block_bytes())
        return away, (2.0 if trains else 1.0) * count * away
    if not trains:
        return size * 0.0, 0.0
    layers = stage.workload.offload_num_layers
    share = 1.0 if layers is None else np.minimum(1.0, layers / np.maximum(stage.layer_count, 1.0))
    held, each = stage.in_flight, stage.per_microbatch
    used = CONSTANTS.gathered_layers * each / np.maximum(stage.layer_count, 1.0)
    away = np.maximum(0.0, share * held - used)
    return away, 2.0 * count * each * away / np.maximum(held, 1.0)


def _traffic_by_tier(batch: Batch, moved: Mapping[str, Numeric], traffic: Mapping[str, Numeric]) -> tuple[Numeric, ...]:
    """Return the bytes of a step that travel to or from each tier, where the nearest is filled first."""
    last = len(batch.base.memory.tiers) - 1
    found: list[Numeric] = []
    near: Numeric = 0.0  # capacity of the tiers before
    for index in range(last + 1):
        far = near + batch[f"memory.tiers.{index}.capacity"] if index < last else np.inf
        total: Numeric = 0.0
        start: Numeric = 0.0
        for name, size in moved.items():
            here = np.clip(np.minimum(start + size, far) - np.maximum(start, near), 0.0, None)
            total = total + traffic[name] * here / np.maximum(size, 1e-9)
            start = start + size
        found.append(_plain_number(total))
        near = far
    return tuple(found)
