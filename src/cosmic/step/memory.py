"""Memory of a device: weights, gradients, optimizer state, activations, buffers, KV cache, at the peak of a step.

Activations have no formula of their own: they are the tensors that the backward operators read (see
`cosmic.workload.operators.kept`), as the sharding lays them out, each counted once, for as many microbatches as the
schedule has in flight. The peak is at one of three moments: the loss, the gradients of the head, or those of a layer.
Each is summed on every stage that may be the fullest (`cosmic.step.stages`), and the largest counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, reduce

import numpy as np

from cosmic.catalog.fitted import fitted
from cosmic.design.batch import Batch, batch_of
from cosmic.design.model import Model, Transformer, is_moe
from cosmic.design.point import DesignPoint
from cosmic.design.workload import Workload
from cosmic.numeric import Numeric
from cosmic.step.activations import (
    keeping_of,
    kept_bytes,
    largest,
    used_elements,
    weight_elements,
    wide_elements,
)
from cosmic.step.communication import reduced_once
from cosmic.step.stages import candidates, in_flight_bytes
from cosmic.step.tables import table_use
from cosmic.workload.plan import BlockPlan, plan_of
from cosmic.workload.precision import Recipe, recipe_for, weight_bytes
from cosmic.workload.schedule import schedules
from cosmic.workload.sizes import blocks_on_stage, layers_by_part, microbatches, sizes_of, structural_paths

INDEX_BYTES = 16
"""Of a token id and of its label, 8 each."""
FP32_BYTES = 4
STATIC = ("weights", "gradients", "optimizer", "inputs", "workspace")
COMPONENTS = (*STATIC, "activations", "loss", "buffers", "kv_cache", "allowance")


@dataclass(frozen=True, slots=True)
class LogitBytes:
    """Bytes alive per logit, by how the loss is computed."""

    chunked_bytes: float
    fused_bytes: float
    half_bytes: float
    eager_bytes: float
    retained_bytes: float

    def of(self, workload: Workload) -> float:
        """Return the bytes of a workload's way to compute the loss."""
        usual = "fused" if workload.execution == "compiled" else "eager"
        way = usual if workload.loss == "auto" else workload.loss
        found: float = getattr(self, f"{way}_bytes")
        return found


@dataclass(frozen=True, slots=True)
class MemoryConstants:
    """What frameworks allocate beside tensors."""

    workspace_bytes: float
    """What GEMM libraries keep for themselves."""
    fragmentation: float
    """Share of transient memory that an allocator cannot use, added as an allowance of its own."""
    gathered_layers: int
    """Layers whose sharded weights are gathered at one time."""
    loss: LogitBytes
    """When the loss is computed."""
    head_gradient: LogitBytes
    """When the weight gradient of the head is computed."""


CONSTANTS = fitted("memory", MemoryConstants)


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

    @property
    def offload_traffic(self) -> Numeric:
        """Bytes moved between the device and all outer tiers in one step, both ways together."""
        return sum(self.tier_traffic)

    @property
    def total(self) -> Numeric:
        """All components, with the allowance for fragmentation: what must fit."""
        return sum(self.parts.values())

    @property
    def peak(self) -> Numeric:
        """Allocated bytes at the peak: all components but the allowance."""
        return self.total - self.parts["allowance"]

    @property
    def static(self) -> Numeric:
        """What stays allocated from step to step."""
        return sum(self.parts[name] for name in STATIC)


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
    names = sorted({name for each in groups for name in each.offloaded})
    tiers = range(len(batch.base.memory.tiers))
    return Footprint(
        {name: joined(each.parts[name] for each in groups) for name in COMPONENTS},
        {name: joined(each.offloaded.get(name, 0.0) for each in groups) for name in names},
        tuple(joined(each.tier_traffic[place] if each.tier_traffic else 0.0 for each in groups) for place in tiers),
        joined(each.stage for each in groups),
    )


def stage_footprints(point: DesignPoint) -> tuple[Footprint, ...]:
    """Return the memory of a device of each pipeline stage of a design, in order."""
    batch = batch_of(point)
    model = _Model(batch)
    return tuple(model.stage(place) for place in range(point.workload.pp))


def updated_elements(batch: Batch, place: Numeric) -> Numeric:
    """Return the weights that a device of stage number *place* updates: all that it has, or its shard of them."""
    return _Stage(_Model(batch), place).weights(batch.base.workload.weight_sharding != "none")


def _footprint(batch: Batch) -> Footprint:
    model = _Model(batch)
    places = candidates(batch, [each.block for each in model.blocks.values()])
    return reduce(_fuller, (model.stage(place) for place in places))


def _fuller(one: Footprint, other: Footprint) -> Footprint:
    """Return the fuller of two stages, design by design; of equals the first."""
    fuller = np.asarray(one.total) >= np.asarray(other.total)

    def choose(left: Numeric, right: Numeric) -> Numeric:
        return _plain(np.where(fuller, left, right))

    return Footprint(
        {name: choose(value, other.parts[name]) for name, value in one.parts.items()},
        {name: choose(value, other.offloaded[name]) for name, value in one.offloaded.items()},
        tuple(choose(*each) for each in zip(one.tier_traffic, other.tier_traffic, strict=True)),
        choose(one.stage, other.stage),
    )


def _plain(value: Numeric) -> Numeric:
    array = np.asarray(value, dtype=float)
    return float(array) if array.ndim == 0 else array


# ------------------------------------------------------------------------------------------------- blocks


class _Model:
    """What one of each block of a model needs on a device, for designs that share one plan."""

    def __init__(self, batch: Batch) -> None:
        self.batch, self.workload = batch, batch.base.workload
        self.sizes, self.recipe = sizes_of(batch), recipe_for(self.workload)
        self.blocks = {each.block.name: each for each in plan_of(batch)}
        self.layers = {name: each for name, each in self.blocks.items() if each.block.part == "layers"}
        norm = getattr(batch.base.model, "norm", "")
        self.statistics = 2 if norm == "layernorm" else 1

    def stage(self, place: Numeric) -> Footprint:
        """Return the memory of a device of stage number *place*."""
        stage = _Stage(self, place)
        parts = stage.training() if self.workload.task == "training" else stage.inference()
        return _offload(stage, parts)

    # ------------------------------------------------------------------------------------------- weights

    @cached_property
    def shared_weights(self) -> frozenset[str]:
        """Names of the weights that embedding and head share."""
        sides = [
            {
                weight.name
                for each in self.blocks.values()
                if each.block.part == part
                for weight in each.block.graph.weights
            }
            for part in ("first", "last")
        ]
        return frozenset(sides[0] & sides[1])

    def elements(self, name: str, replicas_split: bool) -> Numeric:
        """Elements of one block's weights; with *replicas_split*, sharded over their replicas as well."""
        return weight_elements(self.blocks[name], self.sizes, replicas_split)

    def served_bytes(self, name: str, replicas_split: bool) -> Numeric:
        """Bytes of one block's weights, each in its serving format."""
        each, moe = self.blocks[name], is_moe(self.batch.base.model)
        return sum(
            width * weight_elements(each, self.sizes, replicas_split, only=weights)
            for width, weights in _by_width(each, self.recipe, moe)
        )

    def tied(self, replicas_split: bool) -> Numeric:
        """Elements of the weights that embedding and head share."""
        if not self.shared_weights:
            return 0.0
        first = next(each for each in self.blocks.values() if each.block.part == "first")
        return weight_elements(first, self.sizes, replicas_split, only=self.shared_weights)

    def largest_weight(self, part: str) -> Numeric:
        """Elements of the largest single weight among blocks of one part, gathered."""
        return largest(
            used_elements(each, weight, self.sizes)
            for each in self.blocks.values()
            if each.block.part == part
            for weight in each.block.graph.weights
        )

    # ----------------------------------------------------------------------------------------- activations

    def kept_bytes(self, name: str, *, whole: bool = False, cached: bool = False) -> Numeric:
        """Activation bytes that one microbatch keeps for the backward pass of one block; *whole* if not recomputed."""
        each = self.blocks[name]
        keeping = keeping_of(self.workload, each.block.part)
        policy = keeping.all if whole else keeping
        return kept_bytes(each, policy, self.sizes, self.recipe, self.statistics, cached)

    def stream(self) -> Numeric:
        """Elements on one device of what enters a layer, whose sequence may be split over tp."""
        return largest(
            each.shardings[name].elements(each.block.graph.tensors[name].dims, self.sizes)
            for each in self.layers.values()
            for name in each.block.kept_whole
        )

    def head(self, name: str) -> Numeric:
        """Elements on one device of a tensor of the head block, 0 where there is none."""
        each = self.blocks.get("head")
        if each is None or name not in each.shardings:
            return 0.0
        return each.shardings[name].elements(each.block.graph.tensors[name].dims, self.sizes)

    def input_bytes(self) -> Numeric:
        """Bytes of one microbatch's tokens, pictures or features."""
        total: Numeric = 0.0
        for each in self.blocks.values():
            for tensor in each.block.graph.tensors.values():
                if tensor.role in ("input", "index"):
                    width = INDEX_BYTES if tensor.role == "index" else self.recipe.activation
                    total = total + width * each.shardings[tensor.name].elements(tensor.stored_dims, self.sizes)
        return total


# ------------------------------------------------------------------------------------------------- stages


class _Stage:
    """One pipeline stage of designs that share one plan: so much of each block."""

    def __init__(self, model: _Model, place: Numeric) -> None:
        self.model, self.place = model, place
        self.batch, self.workload, self.recipe = model.batch, model.workload, model.recipe
        self.plain = [each.block for each in model.blocks.values()]
        found = blocks_on_stage(self.batch, place, self.plain)
        stages = model.sizes["pp"]
        copies = schedules[self.workload.schedule].parameter_copies(stages) if training_task(self.batch) else 1
        self.counts = {name: count * copies for name, count in found.items()}
        """How much of each block is there; in both directions, where there are two."""
        self.has_head = np.minimum(self.counts.get("head", 0.0), 1.0)

    def total(self, of: Callable[[str], Numeric]) -> Numeric:
        """Return the sum of a quantity over the blocks of the stage."""
        return sum((count * of(name) for name, count in self.counts.items()), 0.0)

    def most(self, of: Callable[[str], Numeric], names: Iterable[str]) -> Numeric:
        """Return the largest of a quantity over those of some blocks that the stage has."""
        return largest(np.where(np.asarray(self.counts[name]) > 0, of(name), 0.0) for name in names)

    @property
    def both_ends(self) -> Numeric:
        """1 where the stage has the embedding and the head."""
        ends = [self.counts[each.name] for each in self.plain if each.part != "layers"]
        return np.minimum(ends[0], ends[-1]) if len(ends) > 1 else 0.0

    def weights(self, replicas_split: bool) -> Numeric:
        """Elements of all weights on the stage; with *replicas_split*, sharded over their replicas as well."""
        whole = self.total(lambda name: self.model.elements(name, replicas_split))
        return whole - self.both_ends * self.model.tied(replicas_split)

    def served_weights(self, replicas_split: bool) -> Numeric:
        """Bytes of all weights on the stage, each in its serving format."""
        whole = self.total(lambda name: self.model.served_bytes(name, replicas_split))
        return whole - self.both_ends * self.recipe.wide * self.model.tied(replicas_split)

    def largest_block_bytes(self) -> Numeric:
        """Bytes of the weights of the stage's largest block; 0 where weights are gathered, as buffers count them."""
        if self.workload.weight_sharding == "zero3":
            return 0.0
        if training_task(self.batch):
            return self.recipe.weight * self.most(lambda name: self.model.elements(name, False), self.model.blocks)
        return self.most(lambda name: self.model.served_bytes(name, False), self.model.blocks)

    @property
    def layer_count(self) -> Numeric:
        """Layers of all kinds."""
        return sum(self.counts[name] for name in self.model.layers)

    # ------------------------------------------------------------------------------------------- activations

    @cached_property
    def per_microbatch(self) -> Numeric:
        """Activation bytes that one microbatch leaves on the stage."""
        parts = layers_by_part(self.batch, self.place, self.plain)
        again = layers_by_part(self.batch, self.place, self.plain, self.workload.recompute_num_layers)
        return sum(self.kept_of(*each) for each in zip(parts, again, strict=True))

    @cached_property
    def in_flight(self) -> Numeric:
        """Activation bytes of the stage's layers, of all microbatches in flight."""
        return in_flight_bytes(self.batch, self.place, self.plain, self.kept_of)

    def kept_of(self, layers: dict[str, Numeric], again: dict[str, Numeric]) -> Numeric:
        """Return the activation bytes of one microbatch in some layers, so many of which recompute *again*."""
        return sum(
            again[name] * self.model.kept_bytes(name)
            + (count - again[name]) * (self.model.kept_bytes(name, whole=True) if again is not layers else 0.0)
            for name, count in layers.items()
        )

    def remade_bytes(self) -> Numeric:
        """Bytes of a layer's recomputed activations: alive while its backward pass runs.

        Where only the first layers recompute, the others are done by then, and what they kept is free.
        """
        if self.workload.recompute == "none":
            return 0.0
        again = layers_by_part(self.batch, self.place, self.plain, self.workload.recompute_num_layers)
        most = largest(
            np.where(np.asarray(count) > 0, self.model.kept_bytes(name, whole=True) - self.model.kept_bytes(name), 0.0)
            for part in again
            for name, count in part.items()
        )
        if self.workload.recompute_num_layers is None:
            return most
        whole = layers_by_part(self.batch, self.place, self.plain)
        done = largest(
            sum((part[name] - first[name]) * self.model.kept_bytes(name, whole=True) for name in part)
            for part, first in zip(whole, again, strict=True)
        )
        return np.maximum(0.0, most - done)

    def layer_gradient_bytes(self) -> Numeric:
        """Bytes of the activation gradients alive in the backward pass of a layer."""
        keeping = keeping_of(self.workload)
        return self.recipe.activation * self.most(
            lambda name: wide_elements(self.model.blocks[name], keeping, self.model.sizes), self.model.layers
        )

    # --------------------------------------------------------------------------------------------- moments

    def training(self) -> dict[str, Numeric]:
        """Return the components at the peak of a training step."""
        recipe, sharding, model = self.recipe, self.workload.weight_sharding, self.model
        tables = table_use(self.batch)
        elements, split = (np.maximum(self.weights(each) - tables.elements, 0.0) for each in (False, True))
        gathered = sharding == "zero3"
        weights = split * (recipe.master or recipe.weight) if gathered else elements * recipe.weight
        gradients = (elements if reduced_once(self.workload) else split) * recipe.gradient
        states = (split if sharding != "none" else elements) * state_bytes(recipe, sharding)
        static = {
            "weights": weights + tables.weight_bytes,
            "gradients": gradients + tables.gradient_bytes,
            "optimizer": states + tables.state_bytes,
            "inputs": model.input_bytes(),
            "workspace": CONSTANTS.workspace_bytes,
            "kv_cache": 0.0,
        }
        activations = self.in_flight
        head_kept = self.has_head * model.kept_bytes("head") if "head" in model.blocks else 0.0
        logits, stream = model.head("logits"), model.head("x")
        fixed = self.fixed_buffers()
        running = self.layer_gradient_bytes() + self.weight_gradient("layers")
        moments = [
            {
                "activations": activations + head_kept,
                "loss": self.has_head * CONSTANTS.loss.of(self.workload) * logits,
                "buffers": fixed,
            },
            {
                "activations": activations + head_kept,
                "loss": self.has_head * CONSTANTS.head_gradient.of(self.workload) * logits,
                "buffers": fixed + self.has_head * (recipe.activation * stream + self.weight_gradient("last")),
            },
            {"activations": activations + self.remade_bytes(), "loss": 0.0, "buffers": fixed + running},
        ]
        return {**static, **_worst([*moments, *self.end_of_graph(fixed)])}

    def weight_gradient(self, part: str) -> Numeric:
        """Bytes of a weight gradient beside the accumulated one, where the GEMM does not add to it directly."""
        if self.workload.weight_sharding == "zero3":
            return 0.0  # counted with the gathered layer
        fused = self.recipe.master > 0 and not self.compiled  # with a master copy, GEMMs accumulate themselves
        return 0.0 if fused else self.recipe.weight * self.model.largest_weight(part)

    @property
    def compiled(self) -> bool:
        """Whether a backward pass is one graph, which gives all gradients of weights when it ends."""
        return self.workload.execution == "compiled" and self.workload.weight_sharding != "zero3"

    def end_of_graph(self, fixed: Numeric) -> list[dict[str, Numeric]]:
        """Return the moments at the end of a compiled backward pass: its first layer, and the embedding.

        All gradients of weights are there, beside those that they will be added to. An embedding's is summed in fp32.
        """
        if not self.compiled:
            return []
        waiting = self.in_flight - self.per_microbatch
        whole = self.most(lambda name: self.model.kept_bytes(name, whole=True), self.model.layers)
        tables = self.total(
            lambda name: self.model.elements(name, False) * (self.model.blocks[name].block.part == "first")
        )
        gradients = self.recipe.weight * self.weights(False)
        layer = gradients - self.recipe.weight * tables + self.layer_gradient_bytes()
        return [
            {"activations": waiting + whole, "loss": 0.0, "buffers": fixed + layer},
            {"activations": waiting, "loss": 0.0, "buffers": fixed + gradients + FP32_BYTES * tables},
        ]

    def fixed_buffers(self) -> Numeric:
        """Bytes of communication buffers: gathered weights and their gradient, gathered activations."""
        buffers: Numeric = 0.0
        sizes = self.model.sizes
        if self.workload.weight_sharding == "zero3":
            unit = self.most(lambda name: self.model.elements(name, False), self.model.blocks)
            unit = unit * (np.asarray(sizes["dp"] * sizes["cp"]) > 1)
            buffers = unit * (CONSTANTS.gathered_layers * self.recipe.weight + self.recipe.weight)
        if self.workload.sequence_parallel:
            buffers = buffers + self.recipe.activation * self.model.stream() * (sizes["tp"] > 1) * sizes["tp"]
        return buffers

    def inference(self) -> dict[str, Numeric]:
        """Return the components while serving: weights in their format, the KV cache, one layer's activations.

        A decoded token's keys and values are in the cache. Of a prompt, only the last token is given to the head.
        """
        workload, model = self.workload, self.model
        decoding = workload.task == "decode"
        logits = model.head("logits")
        if not decoding and is_decoder(self.batch.base.model):
            logits = logits * model.sizes["cp"] / model.sizes["sequence"]
        return {
            "weights": self.served_weights(workload.weight_sharding == "zero3"),
            "gradients": 0.0,
            "optimizer": 0.0,
            "inputs": model.input_bytes(),
            "activations": self.most(lambda name: model.kept_bytes(name, whole=True, cached=decoding), model.layers),
            "loss": self.has_head * self.recipe.activation * logits,
            "buffers": 0.0,
            "kv_cache": cache_bytes(self.batch, self.counts, model.blocks, self.recipe),
            "workspace": CONSTANTS.workspace_bytes,
        }


@cache
def _by_width(each: BlockPlan, recipe: Recipe, moe: bool) -> tuple[tuple[float, frozenset[str]], ...]:
    """Return the names of a block's weights by their bytes per element."""
    names: dict[float, set[str]] = {}
    for weight in each.block.graph.weights:
        names.setdefault(weight_bytes(recipe, weight.name, moe=moe), set()).add(weight.name)
    return tuple((width, frozenset(those)) for width, those in names.items())


def state_bytes(recipe: Recipe, sharding: str) -> float:
    """Return the bytes of optimizer state per weight.

    Weights that are gathered for every use exist as the master copy alone, which then counts as weights.

    >>> from cosmic.workload.precision import recipe_of
    >>> state_bytes(recipe_of("bf16", "training"), "zero1"), state_bytes(recipe_of("bf16", "training"), "zero3")
    (12, 8)
    """
    return recipe.moments if sharding == "zero3" else recipe.optimizer


def training_task(batch: Batch) -> bool:
    """Return whether gradients are computed."""
    return batch.base.workload.task == "training"


def _worst(moments: list[dict[str, Numeric]]) -> dict[str, Numeric]:
    """Return the moment with the largest sum, design by design."""
    totals = np.stack(np.broadcast_arrays(*(np.asarray(sum(moment.values()), dtype=float) for moment in moments)))
    worst = totals.argmax(axis=0)
    return {
        name: np.choose(worst, np.broadcast_arrays(*(np.asarray(moment[name], dtype=float) for moment in moments)))
        for name in moments[0]
    }


# -------------------------------------------------------------------------------------------------- cache


def cache_bytes(
    batch: Batch, counts: Mapping[str, Numeric], blocks: Mapping[str, BlockPlan], recipe: Recipe
) -> Numeric:
    """Bytes of the KV cache on a device: of every token of every sequence, in layers that decode.

    MLA caches one compressed vector per token. A sliding window caches its last tokens only. Layers that read an
    encoder cache its keys and values too; the layers of an encoder cache nothing.
    """
    model = batch.base.model
    if not isinstance(model, Transformer) or not is_decoder(model):
        return 0.0
    per_token: Numeric = 2 * np.ceil(model.kv_heads / batch["workload.tp"]) * model.head_dim
    crossed = per_token if model.family == "encoder_decoder" else 0.0
    if model.mla:
        per_token = model.mla.kv_lora_rank + model.mla.qk_rope_head_dim
    tokens = np.asarray(batch["workload.sequence"] / batch["workload.cp"], dtype=float)
    windowed = tokens if model.window is None else np.minimum(tokens, model.window)
    full = 1.0 if model.window is None else 1 / model.full_attention_every if model.full_attention_every else 0.0
    held = per_token * (full * tokens + (1 - full) * windowed) + crossed * tokens
    layers = sum(
        counts[name]
        for name, each in blocks.items()
        if each.block.part == "layers" and each.block.name != "encoder_layer"
    )
    sequences: Numeric = np.ceil(batch["workload.global_batch"] / batch["workload.dp"])
    return layers * sequences * recipe.cache * held


def is_decoder(model: Model) -> bool:
    """Return whether a model generates tokens, one after the other."""
    return isinstance(model, Transformer) and model.family in ("decoder", "encoder_decoder")


# ----------------------------------------------------------------------------------------------- offloading

NEAREST = ("weights", "activations", "optimizer")
"""What goes to the nearest tier first: what travels most often."""


def _offload(stage: _Stage, parts: dict[str, Numeric]) -> Footprint:
    """Move what the workload offloads to the outer tiers, and count the traffic with each of them.

    Weights come in for every pass of every microbatch; activations go out and come in once a microbatch; optimizer
    states come in and go out once a step. The layer in use and the next one are on the device.
    """
    batch, workload = stage.batch, stage.workload
    moved: dict[str, Numeric] = {}
    traffic: dict[str, Numeric] = {}
    for name in (name for name in NEAREST if name in workload.offload):
        moved[name], traffic[name] = _moved(stage, name, parts[name])
        parts[name] = parts[name] - moved[name]
    moving = parts["activations"] + parts["loss"] + parts["buffers"]
    whole = {**parts, "allowance": CONSTANTS.fragmentation * moving}
    return Footprint(
        {name: _plain(whole[name]) for name in COMPONENTS},
        {name: _plain(moved[name]) for name in workload.offload},
        _by_tier(batch, moved, traffic),
        _plain(stage.place),
    )


def _moved(stage: _Stage, name: str, size: Numeric) -> tuple[Numeric, Numeric]:
    """Return the bytes of a component that leave the device, and those that travel in one step."""
    trains, count = training_task(stage.batch), microbatches(stage.batch)
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


def _by_tier(batch: Batch, moved: Mapping[str, Numeric], traffic: Mapping[str, Numeric]) -> tuple[Numeric, ...]:
    """Return the bytes of a step that travel to or from each tier, where the nearest is filled first."""
    last = len(batch.base.memory.tiers) - 1
    found: list[Numeric] = []
    near: Numeric = 0.0  # capacity of the tiers before
    for place in range(last + 1):
        far = near + batch[f"memory.tiers.{place}.capacity"] if place < last else np.inf
        total: Numeric = 0.0
        start: Numeric = 0.0
        for name, size in moved.items():
            here = np.clip(np.minimum(start + size, far) - np.maximum(start, near), 0.0, None)
            total = total + traffic[name] * here / np.maximum(size, 1e-9)
            start = start + size
        found.append(_plain(total))
        near = far
    return tuple(found)
