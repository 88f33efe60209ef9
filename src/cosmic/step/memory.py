"""Memory of a device: weights, gradients, optimizer state, activations, buffers, KV cache, at the peak of a step.

Activations have no formula of their own: they are the tensors that the backward operators read (see
`cosmic.workload.operators.kept`), as the sharding lays them out, each counted once, for as many microbatches as the
schedule has in flight. The peak is at one of three moments: the loss, the gradients of the head, or those of a layer.
Each is summed, on the first and on the last pipeline stage, and the largest counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from cosmic.catalog.fitted import fitted
from cosmic.design.batch import Batch
from cosmic.design.model import Recommender, is_moe
from cosmic.numeric import Numeric
from cosmic.step.activations import kept_bytes, largest, used_elements, weight_elements, wide_elements
from cosmic.workload.graph import Sizes
from cosmic.workload.plan import BlockPlan, plan_of
from cosmic.workload.precision import Recipe, recipe_of, weight_bytes
from cosmic.workload.schedule import schedules
from cosmic.workload.sizes import blocks_on_stage, microbatches, sizes_of, structural_paths

INDEX_BYTES = 16
"""Of a token id and of its label, 8 each."""
STATIC = ("weights", "gradients", "optimizer", "inputs", "workspace")
COMPONENTS = (*STATIC, "activations", "loss", "buffers", "kv_cache", "allowance")


@dataclass(frozen=True, slots=True)
class LogitBytes:
    """Bytes alive per logit, by how the loss is computed."""

    chunked_bytes: float
    eager_bytes: float
    retained_bytes: float

    def of(self, loss: str) -> float:
        """Return the bytes of one way to compute the loss."""
        return {"chunked": self.chunked_bytes, "eager": self.eager_bytes, "retained": self.retained_bytes}[loss]


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
    offload_traffic: Numeric = 0.0
    """Bytes moved between the device and outer tiers in one step, both ways together."""

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
    return Footprint(
        {name: joined(each.parts[name] for each in groups) for name in COMPONENTS},
        {name: joined(each.offloaded.get(name, 0.0) for each in groups) for name in names},
        joined(each.offload_traffic for each in groups),
    )


def _footprint(batch: Batch) -> Footprint:
    workload = batch.base.workload
    training = workload.task == "training"
    blocks = plan_of(batch)
    sizes, recipe = sizes_of(batch), recipe_of(workload.precision, workload.task)
    first = _Stage(batch, blocks, sizes, recipe, first=True)
    last = _Stage(batch, blocks, sizes, recipe, first=False)
    sides = [stage.training() if training else stage.inference() for stage in (first, last)]
    fuller = np.asarray(sum(sides[0].values())) >= np.asarray(sum(sides[1].values()))
    parts = {name: np.where(fuller, sides[0][name], sides[1][name]) for name in COMPONENTS if name != "allowance"}
    moving = parts["activations"] + parts["loss"] + parts["buffers"]
    whole = {**parts, "allowance": CONSTANTS.fragmentation * moving}
    return _offload(batch, {name: _plain(value) for name, value in whole.items()})


def _plain(value: Numeric) -> Numeric:
    array = np.asarray(value, dtype=float)
    return float(array) if array.ndim == 0 else array


# ------------------------------------------------------------------------------------------------- stages


class _Stage:
    """The first or the last pipeline stage of a group of designs that share one plan."""

    def __init__(
        self, batch: Batch, blocks: tuple[BlockPlan, ...], sizes: Sizes, recipe: Recipe, *, first: bool
    ) -> None:
        self.batch, self.sizes, self.recipe, self.first = batch, sizes, recipe, first
        workload = batch.base.workload
        self.workload = workload
        self.blocks = {each.block.name: each for each in blocks}
        self.counts = blocks_on_stage(batch, 0 if first else sizes["pp"] - 1, [each.block for each in blocks])
        schedule = schedules[workload.schedule]
        stage = 0 if first else sizes["pp"] - 1
        virtual = batch["workload.virtual_stages"]
        self.in_flight = (
            schedule.in_flight(stage, sizes["pp"], microbatches(batch), virtual) if training_task(batch) else 1
        )
        self.copies = schedule.parameter_copies(sizes["pp"])
        self.has_head = self.counts.get("head", 0)

    # ------------------------------------------------------------------------------------------- weights

    def weights(self, replicas_split: bool) -> Numeric:
        """Elements of all weights on the stage; with *replicas_split*, sharded over their replicas as well."""
        total = sum(
            self.counts[name] * weight_elements(each, self.sizes, replicas_split) for name, each in self.blocks.items()
        )
        return self.copies * (total - self.tied(replicas_split))

    def served_weights(self, replicas_split: bool) -> Numeric:
        """Bytes of all weights on the stage, each in its serving format."""
        moe = is_moe(self.batch.base.model)
        total: Numeric = 0.0
        for name, each in self.blocks.items():
            for width, weights in _by_width(each, self.recipe, moe):
                elements = weight_elements(each, self.sizes, replicas_split, only=weights)
                total = total + self.counts[name] * width * elements
        return self.copies * (total - self.recipe.wide * self.tied(replicas_split))

    def tied(self, replicas_split: bool) -> Numeric:
        """Elements of the weights that embedding and head share, where one stage holds both."""
        first, last = (
            next((each for each in self.blocks.values() if each.block.part == part), None) for part in ("first", "last")
        )
        if first is None or last is None:
            return 0.0
        shared = {weight.name for weight in first.block.graph.weights} & {
            weight.name for weight in last.block.graph.weights
        }
        both = self.counts[first.block.name] * self.counts[last.block.name]
        return both * weight_elements(first, self.sizes, replicas_split, only=frozenset(shared))

    def largest_layer_weights(self) -> Numeric:
        """Elements of the largest block's weights, gathered."""
        return largest(weight_elements(each, self.sizes, False) for each in self.blocks.values())

    def largest_weight(self, part: str) -> Numeric:
        """Elements of the largest single weight among blocks of one part, gathered."""
        return largest(
            used_elements(each, weight, self.sizes)
            for each in self.blocks.values()
            if each.block.part == part
            for weight in each.block.graph.weights
        )

    # ----------------------------------------------------------------------------------------- activations

    def kept_bytes(self, each: BlockPlan) -> Numeric:
        """Activation bytes that one microbatch keeps for the backward pass of one block."""
        recompute = self.workload.recompute if each.block.part == "layers" else "none"
        return kept_bytes(each, recompute, self.workload.attention, self.sizes, self.recipe)

    def whole_layer_bytes(self) -> Numeric:
        """Bytes of a layer's recomputed activations: alive while its backward pass runs."""
        if self.workload.recompute in ("none", "selective"):
            return 0.0
        layers = [each for each in self.blocks.values() if each.block.part == "layers"]
        return largest(
            kept_bytes(each, "none", self.workload.attention, self.sizes, self.recipe)
            - kept_bytes(each, "full", self.workload.attention, self.sizes, self.recipe)
            for each in layers
        )

    def layer_gradient_bytes(self) -> Numeric:
        """Bytes of the activation gradients alive in the backward pass of a layer."""
        layers = [each for each in self.blocks.values() if each.block.part == "layers"]
        return self.recipe.activation * largest(wide_elements(each, self.sizes) for each in layers)

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

    # --------------------------------------------------------------------------------------------- moments

    def training(self) -> dict[str, Numeric]:
        """Return the components at the peak of a training step."""
        recipe, sharding = self.recipe, self.workload.weight_sharding
        elements, split = self.weights(False), self.weights(True)
        gathered = sharding == "zero3"
        static = {
            "weights": split * (recipe.master or recipe.weight) if gathered else elements * recipe.weight,
            "gradients": (split if sharding in ("zero2", "zero3") else elements) * recipe.gradient,
            "optimizer": (split if sharding != "none" else elements) * state_bytes(recipe, sharding),
            "inputs": self.input_bytes(),
            "workspace": CONSTANTS.workspace_bytes,
            "kv_cache": 0.0,
        }
        layers = sum(
            self.counts[name] * self.kept_bytes(each)
            for name, each in self.blocks.items()
            if each.block.part == "layers"
        )
        activations = layers * self.in_flight
        head_kept = self.has_head * self.kept_bytes(self.blocks["head"]) if "head" in self.blocks else 0.0
        logits, stream = self.head("logits"), self.head("x")
        fixed = self.fixed_buffers()
        moments = [
            {
                "activations": activations + head_kept,
                "loss": self.has_head * CONSTANTS.loss.of(self.workload.loss) * logits,
                "buffers": fixed,
            },
            {
                "activations": activations + head_kept,
                "loss": self.has_head * CONSTANTS.head_gradient.of(self.workload.loss) * logits,
                "buffers": fixed + self.has_head * (recipe.activation * stream + self.weight_gradient("last")),
            },
            {
                "activations": activations + self.whole_layer_bytes(),
                "loss": 0.0,
                "buffers": fixed + self.layer_gradient_bytes() + self.weight_gradient("layers"),
            },
        ]
        return {**static, **_worst(moments)}

    def weight_gradient(self, part: str) -> Numeric:
        """Bytes of a weight gradient beside the accumulated one, where the GEMM does not add to it directly."""
        if self.workload.weight_sharding == "zero3":
            return 0.0  # counted with the gathered layer
        fused = self.recipe.master > 0  # frameworks with a master copy accumulate inside the matrix product
        return 0.0 if fused else self.recipe.weight * self.largest_weight(part)

    def fixed_buffers(self) -> Numeric:
        """Bytes of communication buffers: gathered weights and their gradient, gathered activations."""
        buffers: Numeric = 0.0
        if self.workload.weight_sharding == "zero3":
            unit = self.largest_layer_weights() * (np.asarray(self.sizes["dp"] * self.sizes["cp"]) > 1)
            buffers = unit * (CONSTANTS.gathered_layers * self.recipe.weight + self.recipe.weight)
        if self.workload.sequence_parallel:
            buffers = (
                buffers + self.recipe.activation * self.head("final_norm") * (self.sizes["tp"] > 1) * self.sizes["tp"]
            )
        return buffers

    def inference(self) -> dict[str, Numeric]:
        """Return the components while serving: weights in their format, the KV cache, one layer's activations."""
        layers = [each for each in self.blocks.values() if each.block.part == "layers"]
        passing = largest(kept_bytes(each, "none", self.workload.attention, self.sizes, self.recipe) for each in layers)
        return {
            "weights": self.served_weights(self.workload.weight_sharding == "zero3"),
            "gradients": 0.0,
            "optimizer": 0.0,
            "inputs": self.input_bytes(),
            "activations": passing,
            "loss": self.has_head * self.recipe.activation * self.head("logits"),
            "buffers": 0.0,
            "kv_cache": cache_bytes(self.batch, self.counts, self.blocks, self.recipe),
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
    """Bytes of the KV cache on a device: of every token of every sequence.

    MLA caches one compressed vector per token. A sliding window caches its last tokens only.
    """
    model = batch.base.model
    if isinstance(model, Recommender):
        return 0.0
    per_token: Numeric = 2 * np.ceil(model.kv_heads / batch["workload.tp"]) * model.head_dim
    if model.mla:
        per_token = model.mla.kv_lora_rank + model.mla.qk_rope_head_dim
    tokens = np.asarray(batch["workload.sequence"] / batch["workload.cp"], dtype=float)
    windowed = tokens if model.window is None else np.minimum(tokens, model.window)
    full = 1.0 if model.window is None else 1 / model.full_attention_every if model.full_attention_every else 0.0
    layers = sum(counts[name] for name, each in blocks.items() if each.block.part == "layers")
    sequences: Numeric = np.ceil(batch["workload.global_batch"] / batch["workload.dp"])
    return layers * sequences * per_token * recipe.cache * (full * tokens + (1 - full) * windowed)


# ----------------------------------------------------------------------------------------------- offloading


def _offload(batch: Batch, parts: dict[str, Numeric]) -> Footprint:
    """Move what the workload offloads to the outer tiers, and count the traffic.

    Weights come in for the forward and for the backward pass and stay for a layer; optimizer states come in and go out
    once a step; activations go out and come in once a microbatch.
    """
    trips = {"weights": 2.0, "optimizer": 2.0, "activations": 2.0}
    moved: dict[str, Numeric] = {}
    traffic: Numeric = 0.0
    for name in batch.base.workload.offload:
        moved[name] = parts[name]
        times = microbatches(batch) if name == "activations" else 1.0
        traffic = traffic + trips[name] * parts[name] * times
        parts[name] = parts[name] * 0.0
    return Footprint(parts, moved, traffic)
