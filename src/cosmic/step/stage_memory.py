"""The memory of blocks and pipeline stages: weights, states, activations, buffers, at the peak of a step.

`ModelMemory` has the bytes of one of each block; `StageMemory` is so much of each of them, at the worst of three
moments of a training step, or while serving. `cosmic.step.device_memory` asks which stage is the fullest.

Stages differ in their layers (61 do not divide by 16, the first three have no experts), in the embedding and the head,
and in the microbatches that wait there for their backward pass. `fullest_stage_candidates` names the few stages one of
which is the fullest; `in_flight_bytes` weighs each virtual stage by the microbatches that it has in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from cosmic.base.numeric import Condition, Numeric, choose, elementwise, larger, largest_whole, sum_of, where
from cosmic.design.catalog_entries import load_constants
from cosmic.design.design_batch import Batch
from cosmic.design.model_layer import Transformer, is_moe
from cosmic.design.program_model import ProgramModel
from cosmic.design.workload_layer import Workload
from cosmic.step.block_memory import (
    activation_policy,
    cache_bytes,
    elementwise_largest,
    is_decoder,
    layers_that_recompute,
    recomputes_some,
    saved_bytes,
    table_use,
    used_elements,
    weight_elements,
    wide_elements,
)
from cosmic.step.communication import reduces_once
from cosmic.step.gemm import kept_copies
from cosmic.workload.block_plans import BlockPlan, plan_of
from cosmic.workload.lora_adapters import is_trained, trained_weights, trains_adapters
from cosmic.workload.mesh_sizes import (
    blocks_on_stage,
    cut_of,
    heaviest_stage_number,
    layers_by_part,
    microbatches,
    sizes_of,
)
from cosmic.workload.model_blocks import Block
from cosmic.workload.pipeline_schedule import schedules
from cosmic.workload.precision import (
    NARROW,
    Recipe,
    is_adapter,
    is_wide,
    keeps_narrow_weights_alone,
    recipe_for,
    weight_bytes,
)

EARLY = 16
"""Stages among which each kind of layer of a pattern has its turn: Jamba's attend once in eight layers."""


def fullest_stage_candidates(batch: Batch, blocks: Sequence[Block]) -> list[Numeric]:
    """Return the numbers of the stages one of which is the fullest.

    Stages with the same layers follow each other, and of them the first has most microbatches in flight. So it is the
    first of such a run, or the last stage, which has the head. Kinds of layers end in the middle of a stage, which is
    a run of its own. A bidirectional schedule adds up a stage and its mirror image, so that either end of a run counts.
    """
    stages: Numeric = batch["workload.pp"]
    if np.all(stages == 1):
        return [0]
    starts = _layer_run_starts(batch, blocks)
    if is_bidirectional(batch):
        starts += [start - 1 for start in starts[1:]] + [stages // 2 - 1]
        starts += [stages - 1 - start for start in starts]
    clipped = [np.clip(start, 0, stages - 1) for start in starts]
    return _distinct_stages([*clipped, stages - 1])


def is_bidirectional(batch: Batch) -> bool:
    """Return whether microbatches enter at both ends, so that a stage holds two parts of the model."""
    trains = batch.base.workload.task == "training"
    return trains and bool(np.any(schedules[batch.base.workload.schedule].parameter_copies(batch["workload.pp"]) > 1))


def _layer_run_starts(batch: Batch, blocks: Sequence[Block]) -> list[Numeric]:
    """Return the first stage of each run of stages with the same layers.

    Where all layers are alike, earlier ones of the stages that share them have as many as later ones, or one more: the
    first of them is enough.
    """
    layers = [block for block in blocks if block.part == "layers"]
    cut = cut_of(batch, blocks)
    model = batch.base.model
    if isinstance(model, Transformer) and model.pattern:
        # Early stages have most microbatches in flight, and kinds take turns among them; another one may have more
        # parameters.
        early = [cut.stages * 0 + index for index in range(min(largest_whole(cut.stages), EARLY))]
        return [*early, heaviest_stage_number(cut, model, active=False), heaviest_stage_number(cut, model, active=True)]
    layers_per_part, longer_parts, embedding_alone = cut.rest // cut.parts, cut.rest % cut.parts, cut.alone
    starts = [cut.stages * 0]
    if cut.stated:
        starts.append(cut.stage_of(0))
    if np.any(embedding_alone):
        starts.append(cut.stage_of(embedding_alone))  # the embedding has a virtual stage to itself
    if len(layers) == 1 and not is_bidirectional(batch):
        return starts
    starts.append(cut.stage_of(longer_parts + embedding_alone))
    for end in _layer_kind_ends(batch, layers):
        shared = cut.shared_before(end)
        short = longer_parts + (shared - longer_parts * (layers_per_part + 1)) // np.maximum(layers_per_part, 1)
        within = cut.stage_of(
            embedding_alone
            + np.where(shared < longer_parts * (layers_per_part + 1), shared // (layers_per_part + 1), short)
        )
        starts += [within, within + 1]
    experts = batch.base.model.experts if isinstance(batch.base.model, Transformer) else None
    period = experts.every if experts else 1  # where kinds take turns, so do the layers of stages
    return [start + offset for start in starts for offset in range(period)]


def _layer_kind_ends(batch: Batch, layers: Sequence[Block]) -> list[int]:
    """Return the numbers of the layers before which a kind of layers ends."""
    experts = batch.base.model.experts if isinstance(batch.base.model, Transformer) else None
    ends = [sum(block.repeats for block in layers[: index + 1]) for index in range(len(layers) - 1)]
    return [*ends, experts.dense_first] if experts and experts.every > 1 else ends


def _distinct_stages(stages: Sequence[Numeric]) -> list[Numeric]:
    distinct: dict[bytes, Numeric] = {}
    for stage in stages:
        distinct.setdefault(np.asanyarray(stage).astype(np.int64).tobytes(), stage)
    return list(distinct.values())


def in_flight_bytes(
    batch: Batch,
    stage: Numeric,
    blocks: Sequence[Block],
    bytes_of_layers: Callable[[dict[str, Numeric], dict[str, Numeric]], Numeric],
) -> Numeric:
    """Return the activation bytes of a training step that stage number *stage* keeps at one time.

    *bytes_of_layers* gives the bytes of one microbatch from the layers of each kind in a virtual stage, and from those
    of them that recompute.
    """
    workload, stages = batch.base.workload, batch["workload.pp"]

    def parts_of(number: Numeric) -> list[Numeric]:
        layers_of_parts = layers_by_part(batch, number, blocks)
        recomputing_of_parts = (
            layers_that_recompute(batch, number, blocks) if recomputes_some(batch) else layers_of_parts
        )
        return [
            bytes_of_layers(layers, recomputing)
            for layers, recomputing in zip(layers_of_parts, recomputing_of_parts, strict=True)
        ]

    parts, count, virtual = parts_of(stage), microbatches(batch), batch["workload.virtual_stages"]
    if is_bidirectional(batch):
        mirror = parts_of(stages - 1 - stage)
        from_front, from_back = stages - stage, np.where(stages > 1, stage + 1, 0)
        total: Numeric = from_front * sum_of(parts) + from_back * sum_of(mirror)
        return total
    if len(parts) == 1:
        in_flight: Numeric = schedules[workload.schedule].in_flight(stage, stages, count, virtual)
        return in_flight * sum_of(parts)
    return interleaved_bytes(stage, stages, count, virtual, *parts)


@elementwise
def interleaved_bytes(stage: Numeric, stages: Numeric, count: Numeric, virtual: Numeric, *parts: Numeric) -> Numeric:
    """Return the most bytes in flight where the virtual stages of a stage have different layers: *parts* of bytes.

    Forwards run K = 2 (p - s - 1) + (v - 1) p + 1 ahead; after j backwards, virtual stage c has

        n_c(j) = F_c(K + j) - F_{v-1-c}(j)        F_c(k) = p floor(k / p v) + clip(k mod p v - c p, 0, p)

    microbatches in flight. That is linear between the j at which a round of p forwards or of p backwards ends, so that
    the most is at one of these. See `cosmic.workload.pipeline_schedules.interleaved`.
    """
    per_stage = 1 + (virtual > 1)
    ends = count * virtual
    ahead = np.where(stages > 1, per_stage * (stages - stage - 1) + (virtual - 1) * stages + 1, virtual)
    ahead = np.minimum(ahead, ends)

    round_passes = stages * virtual

    def begun(chunk: Numeric, rounds: Numeric, within: Numeric) -> Numeric:
        return rounds * stages + np.clip(within - chunk * stages, 0, stages)

    largest: Numeric = 0.0
    for breakpoint_index in range(2 * largest_whole(virtual) + 2):
        done = (breakpoint_index // 2) * stages - (breakpoint_index % 2) * (ahead % stages)
        done = np.clip(done, 0, ends - ahead)
        forward, backward = ((passes // round_passes, passes % round_passes) for passes in (ahead + done, done))
        held_bytes: Numeric = 0.0
        for chunk, size in enumerate(parts):
            in_flight = begun(chunk, *forward) - begun(virtual - 1 - chunk, *backward)
            held_bytes = held_bytes + (chunk < virtual) * size * in_flight
        largest = where(
            breakpoint_index < 2 * virtual + 2, np.maximum(largest, held_bytes), largest
        )  # others have had all their turns
    return largest


INDEX_BYTES = 16
"""Of a token id and of its label, 8 each."""
FP32_BYTES = 4
EXCHANGED_BYTES = 2 * FP32_BYTES
"""Of a parameter that islands exchange every few steps: as it was at the last exchange, and the outer momentum."""


@dataclass(frozen=True, slots=True)
class LogitBytes:
    """Bytes alive per logit, by how the loss is computed."""

    chunked_bytes: float
    fused_bytes: float
    half_bytes: float
    eager_bytes: float
    retained_bytes: float

    def of_loss(self, workload: Workload) -> float:
        """Return the bytes of a workload's way to compute the loss."""
        usual = "fused" if workload.execution == "compiled" else "eager"
        method = usual if workload.loss == "auto" else workload.loss
        bytes_per_logit: float = getattr(self, f"{method}_bytes")
        return bytes_per_logit


@dataclass(frozen=True, slots=True)
class MemoryConstants:
    """What frameworks allocate beside tensors."""

    workspace_bytes: float
    """What GEMM libraries keep for themselves."""
    gathered_layers: int
    """Layers whose sharded weights are gathered at one time."""
    loss: LogitBytes
    """When the loss is computed."""
    head_gradient: LogitBytes
    """When the weight gradient of the head is computed."""


CONSTANTS = load_constants("memory", MemoryConstants)


# ---- blocks


class ModelMemory:
    """What one of each block of a model needs on a device, for designs that share one plan."""

    def __init__(self, batch: Batch) -> None:
        self.batch, self.workload = batch, batch.base.workload
        self.sizes, self.recipe = sizes_of(batch), recipe_for(self.workload)
        self.blocks = {plan.block.name: plan for plan in plan_of(batch)}
        self.layers = {name: block for name, block in self.blocks.items() if block.block.part == "layers"}
        norm = getattr(batch.base.model, "norm", "")
        self.statistics = 2 if norm == "layernorm" else 1

    # ------------------------------------------------------------------------------------------- weights

    def elements(self, name: str, replicas_split: bool) -> Numeric:
        """Elements of one block's weights; with *replicas_split*, sharded over their replicas as well."""
        return weight_elements(self.blocks[name], self.sizes, replicas_split)

    @cached_property
    def adapted(self) -> bool:
        """Whether only adapters are trained."""
        return trains_adapters(self.workload)

    @cached_property
    def gathers(self) -> Condition:
        """Whether weights exist as shards of a master copy, gathered for every use: where one rank has all, none do."""
        if not self.workload.shards_weights:
            return False
        sharing = larger(self.sizes["dp"] * self.sizes["cp"], self.sizes["edp"])
        return sharing > 1

    @cached_property
    def state_bytes(self) -> Numeric:
        """Bytes of optimizer state per weight; a master copy of which weights are gathered counts as weights."""
        return choose(self.gathers, self.recipe.moments, self.recipe.optimizer)

    def trained(self, name: str, replicas_split: bool) -> Numeric:
        """Elements of one block's adapters, which alone have gradients and states where adapters are trained."""
        only = trained_weights(self.blocks[name].block, adapted=True)
        return weight_elements(self.blocks[name], self.sizes, replicas_split, only=only)

    def served_bytes(self, name: str, replicas_split: bool) -> Numeric:
        """Bytes of one block's weights, each in its serving format, and of all its adapters."""
        plan, moe = self.blocks[name], is_moe(self.batch.base.model)
        copies = {True: self.batch["workload.lora_adapters"], False: 1}
        return sum_of(
            copies[adapters] * width * weight_elements(plan, self.sizes, replicas_split, only=weights)
            for (width, adapters), weights in _weights_by_width(plan, self.recipe, moe)
        )

    def narrow_elements(self, name: str) -> Numeric:
        """Elements of one block's weights that GEMMs multiply in the recipe's narrow format."""
        plan = self.blocks[name]
        names = (weight.name for weight in plan.block.graph.weights)
        narrow = frozenset(weight for weight in names if not is_wide(weight) and not is_adapter(weight))
        return weight_elements(plan, self.sizes, False, only=narrow)

    def tied(self, replicas_split: bool) -> Numeric:
        """Elements of the weights that embedding and head share."""
        first, last = (
            [block for block in self.blocks.values() if block.block.part == part] for part in ("first", "last")
        )
        shared = frozenset(weight.name for plan in last for weight in plan.block.graph.weights)
        return sum_of((weight_elements(plan, self.sizes, replicas_split, only=shared) for plan in first), 0.0)

    def largest_weight(self, part: str) -> Numeric:
        """Elements of the largest single trained weight among blocks of one part, gathered."""
        return elementwise_largest(
            used_elements(block, weight, self.sizes)
            for block in self.blocks.values()
            if block.block.part == part
            for weight in block.block.graph.weights
            if is_trained(self.workload, weight.name)
        )

    # ----------------------------------------------------------------------------------------- activations

    def saved_bytes(self, name: str, *, without_recomputation: bool = False, cached: bool = False) -> Numeric:
        """Activation bytes that one microbatch saves for the backward pass of one block."""
        plan = self.blocks[name]
        policy = activation_policy(self.workload, plan.block.part)
        policy = policy.all if without_recomputation else policy
        return saved_bytes(plan, policy, self.sizes, self.recipe, self.statistics, cached)

    def stream(self) -> Numeric:
        """Elements on one device of what enters a layer, whose sequence may be split over tp."""
        return elementwise_largest(
            layer.shardings[name].elements(layer.block.graph.tensors[name].dims, self.sizes)
            for layer in self.layers.values()
            for name in layer.block.kept_whole
        )

    def head(self, name: str) -> Numeric:
        """Elements on one device of a tensor of the head block, 0 if there is none; of logits, those of all tokens."""
        plan = self.blocks.get("head")
        if plan is None or name not in plan.shardings:
            return 0.0
        tensors = plan.block.graph.tensors
        further = (
            sum(name_of_logits.removeprefix("logits_").isdigit() for name_of_logits in tensors)
            if name == "logits"
            else 0
        )
        return (1 + further) * plan.shardings[name].elements(tensors[name].dims, self.sizes)

    def input_bytes(self) -> Numeric:
        """Bytes of one microbatch's tokens, pictures or features."""
        total: Numeric = 0.0
        for block in self.blocks.values():
            for tensor in block.block.graph.tensors.values():
                if tensor.role in ("input", "index"):
                    width = tensor.width(INDEX_BYTES if tensor.role == "index" else self.recipe.activation)
                    total = total + width * block.shardings[tensor.name].elements(tensor.stored_dims, self.sizes)
        return total


def model_memory(batch: Batch) -> ModelMemory:
    """Return what blocks need, worked out once for a batch of designs that share one plan."""
    return batch.once(ModelMemory, lambda: ModelMemory(batch))


# ---- stages


class StageMemory:
    """One pipeline stage of designs that share one plan: so much of each block."""

    def __init__(self, model: ModelMemory, stage: Numeric) -> None:
        self.model, self.number = model, stage
        self.batch, self.workload, self.recipe = model.batch, model.workload, model.recipe
        self.plain = [block.block for block in model.blocks.values()]
        counts = blocks_on_stage(self.batch, stage, self.plain)
        stages = model.sizes["pp"]
        copies = schedules[self.workload.schedule].parameter_copies(stages) if is_training_batch(self.batch) else 1
        self.counts = {name: count * copies for name, count in counts.items()}
        """How much of each block is there; in both directions, where there are two."""
        self.has_head = self.counts.get("head", 0.0)

    def total(self, value: Callable[[str], Numeric]) -> Numeric:
        """Return the sum of a quantity over the blocks of the stage."""
        return sum_of((count * value(name) for name, count in self.counts.items()), 0.0)

    def most(self, value: Callable[[str], Numeric], names: Iterable[str]) -> Numeric:
        """Return the largest of a quantity over those of some blocks that the stage has."""
        return elementwise_largest(np.where(np.asanyarray(self.counts[name]) > 0, value(name), 0.0) for name in names)

    @property
    def both_ends(self) -> Numeric:
        """1 where the stage has the first block and the last: the embedding and the head."""
        return np.minimum(self.counts[self.plain[0].name], self.counts[self.plain[-1].name])

    def weights(self, replicas_split: bool) -> Numeric:
        """Elements of all weights on the stage; with *replicas_split*, sharded over their replicas as well."""
        elements = self.total(lambda name: self.model.elements(name, replicas_split))
        return elements - self.both_ends * self.model.tied(replicas_split)

    def trained(self, replicas_split: bool) -> Numeric:
        """Elements of the weights that are trained: all of them, or adapters, which no two blocks share."""
        if not self.model.adapted:
            return self.weights(replicas_split)
        return self.total(lambda name: self.model.trained(name, replicas_split))

    def served_weights(self, replicas_split: bool) -> Numeric:
        """Bytes of all weights on the stage, each in its serving format."""
        size = self.total(lambda name: self.model.served_bytes(name, replicas_split))
        return size - self.both_ends * self.recipe.wide * self.model.tied(replicas_split)

    def largest_block_bytes(self) -> Numeric:
        """Bytes of the weights of the stage's largest block; 0 where weights are gathered, as buffers count them."""
        if is_training_batch(self.batch):
            size = self.recipe.weight * self.most(lambda name: self.model.elements(name, False), self.model.blocks)
        else:
            size = self.most(lambda name: self.model.served_bytes(name, False), self.model.blocks)
        return choose(self.model.gathers, 0.0 * size, size)

    @property
    def layer_count(self) -> Numeric:
        """Layers of all kinds."""
        return sum_of(self.counts[name] for name in self.model.layers)

    # ------------------------------------------------------------------------------------------- activations

    @cached_property
    def per_microbatch(self) -> Numeric:
        """Activation bytes that one microbatch leaves on the stage."""
        parts = layers_by_part(self.batch, self.number, self.plain)
        recomputing = layers_that_recompute(self.batch, self.number, self.plain)
        return sum_of(self.saved_bytes_of_layers(*pair) for pair in zip(parts, recomputing, strict=True))

    @cached_property
    def in_flight(self) -> Numeric:
        """Activation bytes of the stage's layers, of all microbatches in flight."""
        return in_flight_bytes(self.batch, self.number, self.plain, self.saved_bytes_of_layers)

    def saved_bytes_of_layers(self, layers: dict[str, Numeric], recomputing: dict[str, Numeric]) -> Numeric:
        """Return the activation bytes of one microbatch in some layers, so many of which recompute *recomputing*."""
        return sum_of(
            recomputing[name] * self.model.saved_bytes(name)
            + (count - recomputing[name]) * self.model.saved_bytes(name, without_recomputation=True)
            for name, count in layers.items()
        )

    def recomputed_bytes(self) -> Numeric:
        """Bytes of a layer's recomputed activations: alive while its backward pass runs.

        Where only the first layers recompute, the others are done by then, and what they kept is free.
        """
        if self.workload.recompute == "none":
            return 0.0
        recomputing = layers_that_recompute(self.batch, self.number, self.plain)
        largest = elementwise_largest(
            (np.asanyarray(count) > 0)
            * (self.model.saved_bytes(name, without_recomputation=True) - self.model.saved_bytes(name))
            for part in recomputing
            for name, count in part.items()
        )
        if not recomputes_some(self.batch):
            return largest
        all_layers = layers_by_part(self.batch, self.number, self.plain)
        done = elementwise_largest(
            sum_of(
                (part[name] - first[name]) * self.model.saved_bytes(name, without_recomputation=True) for name in part
            )
            for part, first in zip(all_layers, recomputing, strict=True)
        )
        return np.maximum(0.0, largest - done)

    def layer_gradient_bytes(self) -> Numeric:
        """Bytes of the activation gradients alive in the backward pass of a layer."""
        policy, model, width = activation_policy(self.workload), self.model, self.recipe.activation
        return width * self.most(
            lambda name: wide_elements(model.blocks[name], policy, model.sizes, width), model.layers
        )

    # --------------------------------------------------------------------------------------------- moments

    def training(self) -> dict[str, Numeric]:
        """Return the components at the peak of a training step."""
        recipe, model = self.recipe, self.model
        tables = table_use(self.batch)
        elements, split = (
            np.maximum(self.weights(replicas_split) - tables.elements, 0.0) for replicas_split in (False, True)
        )
        shards = split * (recipe.master or recipe.weight)
        weights = choose(model.gathers, shards, elements * recipe.weight)
        if model.adapted:
            frozen = split - self.trained(True)
            elements, split = self.trained(False), self.trained(True)
            master_excess = frozen * ((recipe.master or recipe.weight) - recipe.weight)
            weights = choose(model.gathers, weights - master_excess, weights)
        copies = kept_copies(self.workload, lambda key: self.batch[f"compute.{key}"])
        in_16_bits = recipe.weight if keeps_narrow_weights_alone(self.workload) else 0.0
        if self.workload.precision in NARROW:
            beside = self.total(model.narrow_elements) * (copies - in_16_bits)
            weights = choose(model.gathers, weights, weights + beside)
        gradients = (elements if reduces_once(self.workload) else split) * recipe.gradient
        updated = split if self.workload.shards_states else elements
        states = updated * model.state_bytes
        if self.workload.exchanges_apart:
            states = states + updated * EXCHANGED_BYTES
        static = {
            "weights": weights + tables.weight_bytes,
            "gradients": gradients + tables.gradient_bytes,
            "optimizer": states + tables.state_bytes,
            "inputs": model.input_bytes(),
            "workspace": CONSTANTS.workspace_bytes,
            "kv_cache": 0.0,
        }
        activations = self.in_flight
        head_kept = self.has_head * model.saved_bytes("head") if "head" in model.blocks else 0.0
        logits, stream = model.head("logits"), model.head("x")
        fixed = self.fixed_buffers()
        running = self.layer_gradient_bytes() + self.weight_gradient("layers")
        # Gradients that a step frees are not there before the first backward pass.
        waits = choose(self.frees_gradients, static["gradients"], 0.0 * static["gradients"])
        moments = [
            {
                "activations": activations + head_kept,
                "loss": self.has_head * CONSTANTS.loss.of_loss(self.workload) * logits,
                "buffers": fixed,
                "gradients": static["gradients"] - waits,
            },
            {
                "activations": activations + head_kept,
                "loss": self.has_head * CONSTANTS.head_gradient.of_loss(self.workload) * logits,
                "buffers": fixed + self.has_head * (recipe.activation * stream + self.weight_gradient("last")),
                "gradients": static["gradients"] - waits,
            },
            {
                "activations": activations + self.recomputed_bytes(),
                "loss": 0.0,
                "buffers": fixed + running,
                "gradients": static["gradients"] - waits,
            },
        ]
        after = {"gradients": static["gradients"]}
        moments += [moment | after for moment in (*self.last_of_backward(fixed + running), *self.end_of_graph(fixed))]
        moments.append({"activations": 0.0, "loss": 0.0, "buffers": self.update_bytes(updated), **after})
        return {**static, **_worst_moment(moments)}

    @property
    def frees_gradients(self) -> Condition:
        """Whether no gradient is there before the first backward pass of a step of one microbatch."""
        keeps = self.workload.execution == "fused" or not self.workload.set_to_none
        return False if keeps else microbatches(self.batch) == 1

    def last_of_backward(self, running: Numeric) -> list[dict[str, Numeric]]:
        """Return the moment of the last layer of a backward pass: what the others kept is free, gradients are there."""
        if self.workload.execution == "fused" or not self.workload.set_to_none:
            return []
        kept = self.per_microbatch / np.maximum(self.layer_count, 1.0)
        waiting = self.in_flight - self.per_microbatch
        return [{"activations": waiting + kept + self.recomputed_bytes(), "loss": 0.0, "buffers": running}]

    def update_bytes(self, updated: Numeric) -> Numeric:
        """Bytes of the temporary values of an update.

        Megatron-LM copies gradients in 16 bits to the 32 of the master copy (its 4 + 16 / d bytes of a parameter in
        fp16 have them); PyTorch has gradients as wide as what it updates. Where no kernel is fused, there is one more
        copy of all that is updated.
        """
        recipe = self.recipe
        widens = recipe.master > recipe.gradient and self.workload.execution == "fused"
        widened = FP32_BYTES if widens else 0.0
        copied = 0.0 if self.workload.optimizer_kernels == "fused" else recipe.master or recipe.weight
        return (widened + copied) * updated

    def weight_gradient(self, part: str) -> Numeric:
        """Bytes of a weight gradient beside the accumulated one, where the GEMM does not add to it directly."""
        if self.recipe.master and not self.compiled:  # with a master copy, GEMMs accumulate themselves
            return 0.0
        size = self.recipe.weight * self.model.largest_weight(part)
        return choose(self.model.gathers, 0.0 * size, size)  # counted with the gathered layer

    @property
    def compiled(self) -> bool:
        """Whether a backward pass is one graph, which gives all gradients of weights when it ends."""
        return self.workload.execution == "compiled"

    def end_of_graph(self, fixed: Numeric) -> list[dict[str, Numeric]]:
        """Return the moments at the end of a compiled backward pass: its first layer, and the embedding.

        All gradients of weights are there, beside those that they will be added to. An embedding's is summed in fp32.
        """
        if not self.compiled:
            return []
        waiting = self.in_flight - self.per_microbatch
        layer_activations = self.most(
            lambda name: self.model.saved_bytes(name, without_recomputation=True), self.model.layers
        )
        tables = self.total(
            lambda name: self.model.elements(name, False) * (self.model.blocks[name].block.part == "first")
        )
        if self.model.adapted:
            tables = 0.0  # what is frozen has no gradients
        gradients = self.recipe.weight * self.trained(False)
        layer = gradients - self.recipe.weight * tables + self.layer_gradient_bytes()
        moments = [
            {"activations": waiting + layer_activations, "loss": 0.0, "buffers": fixed + layer},
            {"activations": waiting, "loss": 0.0, "buffers": fixed + gradients + FP32_BYTES * tables},
        ]
        gathers = self.model.gathers  # then each layer has a graph of its own
        return [{name: choose(gathers, 0.0, value) for name, value in moment.items()} for moment in moments]

    def fixed_buffers(self) -> Numeric:
        """Bytes of communication buffers: gathered weights and their gradient, gathered activations."""
        buffers: Numeric = 0.0
        sizes = self.model.sizes
        if self.workload.shards_weights:
            unit = self.most(lambda name: self.model.elements(name, False), self.model.blocks)
            unit = choose(self.model.gathers, unit, 0.0 * unit)
            gradients = self.recipe.weight
            if self.workload.execution != "fused":
                gradients = gradients + self.recipe.gradient  # FSDP copies them, as they are reduced, into one buffer
            if self.model.adapted:
                gradients = 0.0  # what is frozen has none
            buffers = unit * (CONSTANTS.gathered_layers * self.recipe.weight + gradients)
        if self.workload.sequence_parallel and not isinstance(self.batch.base.model, ProgramModel):
            buffers = buffers + self.recipe.activation * self.model.stream() * (sizes["tp"] > 1) * sizes["tp"]
        return buffers

    def inference(self) -> dict[str, Numeric]:
        """Return the components while serving: weights in their format, the KV cache, one layer's activations.

        A decoded token's keys and values are in the cache. Of a prompt, only the last token is given to the head.
        """
        workload, model = self.workload, self.model
        decoding, logits = workload.task == "decode", model.head("logits")
        if not decoding and is_decoder(self.batch.base.model):
            logits = logits * model.sizes["cp"] / model.sizes["sequence"]
        return {
            "weights": self.served_weights(workload.shards_weights),
            "gradients": 0.0,
            "optimizer": 0.0,
            "inputs": model.input_bytes(),
            "activations": self.most(
                lambda name: model.saved_bytes(name, without_recomputation=True, cached=decoding), model.layers
            ),
            "loss": self.has_head * self.recipe.activation * logits,
            "buffers": 0.0,
            "kv_cache": cache_bytes(self.batch, self.counts, model.blocks, self.recipe),
            "workspace": CONSTANTS.workspace_bytes,
        }


@cache
def _weights_by_width(
    plan: BlockPlan, recipe: Recipe, moe: bool
) -> tuple[tuple[tuple[float, bool], frozenset[str]], ...]:
    """Return the names of a block's weights by their bytes per element, adapters apart."""
    names: dict[tuple[float, bool], set[str]] = {}
    for weight in plan.block.graph.weights:
        key = weight_bytes(recipe, weight.name, moe=moe), is_adapter(weight.name)
        names.setdefault(key, set()).add(weight.name)
    return tuple((key, frozenset(weights)) for key, weights in names.items())


def is_training_batch(batch: Batch) -> bool:
    """Return whether gradients are computed."""
    return batch.base.workload.task == "training"


def _worst_moment(moments: list[dict[str, Numeric]]) -> dict[str, Numeric]:
    """Return the moment with the largest sum, design by design."""
    worst, largest = moments[0], sum_of(moments[0].values())
    for moment in moments[1:]:
        total = sum_of(moment.values())
        larger_here = total > largest
        worst = {name: where(larger_here, moment[name], value) for name, value in worst.items()}
        largest = larger(largest, total)
    return worst
