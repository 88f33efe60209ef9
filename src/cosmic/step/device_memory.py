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
from cosmic.step.process_memory import PROCESS, left_bytes, needed_bytes, process_parts
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
TENSORS = (*STATIC, "activations", "loss", "buffers", "kv_cache")
"""Components that an allocator is asked for."""
COMPONENTS = (*TENSORS, *PROCESS)
"""Everything that the device shows of a process."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes on the fullest device, by component; numbers, or arrays over a batch."""

    parts: Mapping[str, Numeric]
    offloaded: Mapping[str, Numeric] = field(default_factory=dict)
    """Bytes offloaded to outer tiers, by component."""
    tier_traffic: tuple[Numeric, ...] = ()
    """Bytes moved between the device and each outer tier in one step, both ways together."""
    must_fit: Numeric = 0.0
    """What must fit: the components that are not given back, at the quantile that the design asks for."""
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
        """All components: what the device shows."""
        return sum_of(self.parts.values())

    @property
    def peak(self) -> Numeric:
        """Tensors at the peak: what the allocator has given out."""
        return sum_of(self.parts[name] for name in TENSORS)

    @property
    def static(self) -> Numeric:
        """What stays allocated from step to step."""
        return sum_of(self.parts[name] for name in STATIC)


def footprint(batch: Batch) -> Footprint:
    """Return the memory of the fullest device of each design."""
    parts = [(rows, _footprint(part)) for rows, part in batch.groups(structural_paths(batch))]
    if len(parts) == 1:
        return parts[0][1]

    def joined(values: Iterable[Numeric]) -> Numeric:
        column = np.empty(batch.size)
        for (rows, _), value in zip(parts, values, strict=True):
            column[rows] = value
        return column

    groups = [part for _, part in parts]
    names = sorted({name for group in groups for name in group.offloaded})
    tiers = range(len(batch.base.memory.tiers))
    return Footprint(
        {name: joined(group.parts[name] for group in groups) for name in COMPONENTS},
        {name: joined(group.offloaded.get(name, 0.0) for group in groups) for name in names},
        tuple(joined(group.tier_traffic[tier] if group.tier_traffic else 0.0 for group in groups) for tier in tiers),
        joined(group.must_fit for group in groups),
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


def updated_elements(batch: Batch, stage: Numeric) -> Numeric:
    """Return the weights that a device of stage number *stage* updates: all that it has, or its shard of them."""
    return StageMemory(model_memory(batch), stage).trained(batch.base.workload.shards_states)


def _footprint(batch: Batch) -> Footprint:
    model = model_memory(batch)
    stages = fullest_stage_candidates(batch, [block.block for block in model.blocks.values()])
    return reduce(_fuller_stage, (_stage_footprint(model, stage) for stage in stages))


def _fuller_stage(first: Footprint, second: Footprint) -> Footprint:
    """Return the fuller of two stages, design by design; of equals the first. What spills from HBM counts."""
    if first.placed is None:
        fuller = np.asanyarray(first.must_fit) >= np.asanyarray(second.must_fit)
    else:
        fuller = np.asanyarray(first.must_fit + first.outer) >= np.asanyarray(second.must_fit + second.outer)

    def choose(value: Numeric, alternative: Numeric) -> Numeric:
        return _plain_number(np.where(fuller, value, alternative))

    return Footprint(
        {name: choose(value, second.parts[name]) for name, value in first.parts.items()},
        {name: choose(value, second.offloaded[name]) for name, value in first.offloaded.items()},
        tuple(choose(*pair) for pair in zip(first.tier_traffic, second.tier_traffic, strict=True)),
        choose(first.must_fit, second.must_fit),
        choose(first.stage, second.stage),
        first.placed and second.placed and merge_placements(first.placed, second.placed, choose),
        larger(first.excess, second.excess),
    )


def _stage_footprint(model: ModelMemory, number: Numeric) -> Footprint:
    """Return the memory of a device of a stage."""
    stage = StageMemory(model, number)
    parts = stage.training() if stage.workload.task == "training" else stage.inference()
    return _place_in_tiers(stage, parts) if is_state_placed(stage.batch.base) else _offload_state(stage, parts)


def _place_in_tiers(stage: StageMemory, parts: dict[str, Numeric]) -> Footprint:
    """Move state to the tiers in which it is placed."""
    placed = place_state(stage, parts)
    in_hbm = {name: parts[name] - placed.in_parts.get(name, 0.0) + placed.in_hbm(name) for name in parts}
    components = {**in_hbm, **process_parts(stage.batch, in_hbm)}
    needed = needed_bytes(stage.batch.base, components)
    return Footprint(
        {name: _plain_number(components[name]) for name in COMPONENTS},
        {name: _plain_number(placed.away(name)) for name in PLACEABLE},
        (),
        _plain_number(needed),
        _plain_number(stage.number),
        placed,
        larger(placed.excess, needed / left_bytes(stage.batch) - 1),
    )


def _plain_number(value: Numeric) -> Numeric:
    array = floats(value)
    return float(array) if array.ndim == 0 else array


# ---- offloading

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
    components = {**parts, **process_parts(batch, parts)}
    return Footprint(
        {name: _plain_number(components[name]) for name in COMPONENTS},
        {name: _plain_number(moved[name]) for name in workload.offload},
        _traffic_by_tier(batch, moved, traffic),
        _plain_number(needed_bytes(batch.base, components)),
        _plain_number(stage.number),
    )


def _offloaded_bytes(stage: StageMemory, name: str, size: Numeric) -> tuple[Numeric, Numeric]:
    """Return the bytes of a component that leave the device, and those that travel in one step."""
    trains, count = is_training_batch(stage.batch), microbatches(stage.batch)
    if name == "optimizer":
        return size, 2.0 * size
    if name == "weights":
        offloaded = np.maximum(0.0, size - CONSTANTS.gathered_layers * stage.largest_block_bytes())
        # fetched for the forward pass, and again for the backward pass, of every microbatch
        return offloaded, (2.0 if trains else 1.0) * count * offloaded
    if not trains:
        return size * 0.0, 0.0
    layers = stage.workload.offload_num_layers
    share = 1.0 if layers is None else np.minimum(1.0, layers / np.maximum(stage.layer_count, 1.0))
    in_flight, per_microbatch = stage.in_flight, stage.per_microbatch
    # activations of the layers in use stay on the device
    used = CONSTANTS.gathered_layers * per_microbatch / np.maximum(stage.layer_count, 1.0)
    offloaded = np.maximum(0.0, share * in_flight - used)
    # out after the forward pass and in before the backward pass, for the share that is offloaded
    return offloaded, 2.0 * count * per_microbatch * offloaded / np.maximum(in_flight, 1.0)


def _traffic_by_tier(batch: Batch, moved: Mapping[str, Numeric], traffic: Mapping[str, Numeric]) -> tuple[Numeric, ...]:
    """Return the bytes of a step that travel to or from each tier, where the nearest is filled first."""
    last = len(batch.base.memory.tiers) - 1
    tier_bytes: list[Numeric] = []
    start_of_tier: Numeric = 0.0  # capacity of the tiers before
    for index in range(last + 1):
        end_of_tier = start_of_tier + batch[f"memory.tiers.{index}.capacity"] if index < last else np.inf
        total: Numeric = 0.0
        start: Numeric = 0.0
        for name, size in moved.items():
            in_tier = np.clip(np.minimum(start + size, end_of_tier) - np.maximum(start, start_of_tier), 0.0, None)
            total = total + traffic[name] * in_tier / np.maximum(size, 1e-9)
            start = start + size
        tier_bytes.append(_plain_number(total))
        start_of_tier = end_of_tier
    return tuple(tier_bytes)
