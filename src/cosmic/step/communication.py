"""The collectives of a step: the size, group, calls and role of each that a device takes part in.

The collectives within a layer come out of the plan. This module adds those between steps and stages: the reduction of
accumulated gradients, the all-gather of updated weights, the sends from stage to stage.
What a stage of a user's program sends is what its parts hand to later parts (`crossing_elements`).

`NetworkCosts` says what they cost on a system: the seconds of one collective, of one message, of offloading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from cosmic.base.numeric import Numeric, larger, sum_of
from cosmic.design.catalog_entries import load_constants
from cosmic.design.collective_layer import CollectiveKind
from cosmic.design.design_batch import Batch
from cosmic.design.model_layer import is_moe
from cosmic.design.program_model import MOST_CUTS, ProgramModel
from cosmic.design.workload_layer import AXES, Workload
from cosmic.network.collective_costs import NetworkDimension, Subgroup, collective_seconds, send_seconds, subgroups
from cosmic.network.mesh_spans import Span, axis_spans, axis_strides, folded_spans, joint_spans
from cosmic.step.block_memory import (
    is_collective_repeated,
    recomputed_share,
    repeated_operators,
    replica_axes,
    replicating_axes,
    weight_elements,
)
from cosmic.step.gemm import scaled_in_blocks
from cosmic.workload.block_plans import BlockPlan, plan_of
from cosmic.workload.lora_adapters import is_trained
from cosmic.workload.mapping_rules import IN_SWITCH_STATES, switched_in
from cosmic.workload.mesh_sizes import INSIDE, OUTSIDE, expert_degrees, folded_order, microbatches, sizes_of
from cosmic.workload.model_blocks import is_decoded
from cosmic.workload.operator_graph import Sizes, SizeTable
from cosmic.workload.precision import (
    Recipe,
    gathers_narrow,
    is_wide,
    keeps_narrow_weights_alone,
    recipe_for,
    shards_narrow,
    weight_bytes,
)
from cosmic.workload.sharding.graph_partition import CollectiveOp
from cosmic.workload.sharding.tensor_sharding import Sharding, group_size

SUB_AXES = tuple(f"tp_{index}" for index in range(MOST_CUTS))
"""The parts of tp, the outermost first, in programs that cut it."""


def crossing_elements(plans: Sequence[BlockPlan], sizes: Sizes, usual: float) -> Numeric:
    """Return the most elements that a device sends of what earlier parts of a program make and later ones read.

    A tensor that states its bytes counts as so many elements of the *usual* ones.
    """
    makers: dict[str, BlockPlan] = {}
    largest: Numeric = 0.0
    for index, plan in enumerate(plans):  # a repeated part hands on what it was handed
        read = dict.fromkeys(
            tensor.name
            for later in plans[index:]
            for operator in later.block.graph.operators
            for tensor in operator.inputs
        )
        crossing: Numeric = 0.0
        for name in read:
            if name in makers:
                crossing = crossing + _sent_elements(makers[name], name, sizes, usual)
        largest = np.maximum(largest, crossing)
        makers |= {tensor.name: plan for operator in plan.block.graph.operators for tensor in operator.outputs}
        handed: Numeric = 0.0
        for name in plan.block.handed:
            handed = handed + _sent_elements(plan, name, sizes, usual)
        largest = np.maximum(largest, handed)
    return largest


def _sent_elements(plan: BlockPlan, name: str, sizes: Sizes, usual: float) -> Numeric:
    """Return the elements of a tensor that a device sends: ranks of tp that all have it send a part each."""
    tensor, sharding = plan.block.graph.tensors[name], plan.shardings[name]
    elements = sharding.elements(tensor.dims, sizes)
    if tensor.element_bytes is not None:
        elements = elements * (tensor.element_bytes / usual)
    return elements if sharding.holds("tp") else elements / _tp_replicas(sharding, sizes)


def _tp_replicas(sharding: Sharding, sizes: Sizes) -> Numeric:
    """Return the ranks of tp that all have the same part of a tensor."""
    split = tuple(axis for axis in SUB_AXES if sharding.holds(axis))
    return sizes["tp"] / group_size(split, sizes) if split else sizes["tp"]


CommunicationKind = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "collective_permute", "send"]
Role = Literal["tp", "cp", "ep", "dp", "pp", "ring", "weights", "updated", "sync"]
"""What a collective does in a step, and what waits for it.

    tp cp ep dp   the next operator needs its result: exposed
    pp            activations to the next pipeline stage, and their gradients back
    ring          keys and values passed from rank to rank: attention overlaps them
    weights       sharded weights fetched ahead, gradients reduced behind: compute overlaps them
    updated       weights that other ranks updated, back to all (ZeRO-1 and 2)
    sync          parameters exchanged between islands every few steps: exposed, its mean over these steps
"""
BLOCKING: tuple[Role, ...] = ("tp", "cp", "ep", "dp")
"""Roles on the critical path: the next operator needs the result."""
ORDER = ("etp", "tp", *reversed(SUB_AXES), "cp", "ep", "oep", "iedp", "oedp", "edp", "idp", "odp", "dp", "pp")
ROLES: dict[str, Role] = {"etp": "ep", "oep": "ep", "edp": "dp", **dict.fromkeys(SUB_AXES, "tp")}
"""What axes of experts and sub-axes do in a step, where it is not what they are called: a dispatch sends and gathers
tokens."""
MASTER_BYTES = 4
"""Of a parameter in fp32."""
INDEX_BYTES = 8
"""Of a token id or of a row's number: int64, which PyTorch's embeddings and TorchRec take and send."""
RING_TENSORS = ("key", "value", "d_key", "d_value")
"""What ring attention passes from rank to rank instead of gathering it."""


@dataclass(frozen=True, slots=True)
class CollectiveUse:
    """One collective of a step."""

    kind: CommunicationKind
    axes: tuple[str, ...]
    """Mesh axes whose ranks take part: tp, cp, dp, pp, or several; of experts etp, ep, edp, and oep: ep outside tp."""
    group: Numeric
    """Ranks that take part."""
    bytes: Numeric
    """Payload per device: the result of a gather, the input of any other collective."""
    calls: Numeric
    """Calls in one step, for one layer."""
    phase: Literal["forward", "backward", "step"]
    block: str
    """Empty for what is sent between stages."""
    tensor: str
    role: Role
    why: str
    copies: int = 1
    """Copies of each token that an all-to-all sends, to as many experts."""
    recomputed: Numeric = 0.0
    """Calls in a backward pass for each one of a forward pass: the share of layers that recompute it."""

    @property
    def overlaps(self) -> bool:
        """Whether compute can go on meanwhile."""
        return self.role in ("ring", "weights", "updated")

    @property
    def part(self) -> str:
        """The part of the step's breakdown that its exposed seconds belong to."""
        return breakdown_part(self.role, self.phase)


def reduces_once(workload: Workload) -> bool:
    """Return whether gradients are reduced once a step, after the last microbatch; otherwise after each of them."""
    once = not workload.shards_weights and workload.reduce_every == "step"
    return once or not workload.shards_gradients


def breakdown_part(role: Role, phase: str) -> str:
    """Return the part of the step's breakdown that a role belongs to.

    Weights and gradients that travel once a step are data parallelism's; for each microbatch, those of sharded weights.

    >>> breakdown_part("ring", "forward"), breakdown_part("weights", "step"), breakdown_part("weights", "backward"), breakdown_part("tp", "forward")
    ('cp', 'dp', 'weights', 'tp')
    """
    if role == "ring":
        return "cp"
    return "dp" if phase == "step" and role in ("weights", "updated", "sync") else role


def list_collectives(batch: Batch, *, together: bool = False) -> list[CollectiveUse]:
    """Return the collectives of designs that share one plan (see `cosmic.workload.mesh_sizes.structural_paths`).

    Those of one layer of each kind, of the embedding and of the head, and the sends between stages.

    With *together*, collectives of a block that differ only in their size are one, of their mean size: time is nearly
    linear in bytes and in calls, so that closed forms lose little. Weights and gradients of a block travel in one
    buffer.
    """
    workload = batch.base.workload
    training = workload.task == "training"
    blocks = plan_of(batch)
    recipe = recipe_for(workload)
    step = _PlannedStep(batch, sizes_of(batch), recipe, workload, microbatches(batch))
    uses = []
    for block in blocks:
        uses += [step.use(block, group) for group in step.groups(block, together=together)]
        if training and workload.shards_states and not workload.shards_weights:
            uses += step.updated_weights(block)
        if workload.exchanges_apart:
            uses += step.exchanged(block)
    return [*uses, *step.between_stages(blocks[-1], training)]


@dataclass(frozen=True, slots=True)
class _PlannedStep:
    """One training or inference step of a group of designs that share one plan."""

    batch: Batch
    sizes: SizeTable
    recipe: Recipe
    workload: Workload
    microbatches: Numeric

    def groups(self, plan: BlockPlan, *, together: bool) -> tuple[tuple[CollectiveOp, ...], ...]:
        """Return the collectives of a block, each alone, or *together* with those that differ only in their tensor."""
        if not together:
            return tuple((collective,) for collective in plan.partitioned.collectives)
        buckets = _bucket_collectives(plan, repeated_operators(plan.block, self.workload))
        if any(switched_in(self.batch.base, state) is not None for state in IN_SWITCH_STATES):
            kept_buckets = (
                tuple(collective for collective in group if not self.by_pool(plan, collective)) for group in buckets
            )
            buckets = tuple(group for group in kept_buckets if group)
        if self.workload.task != "decode":
            return buckets
        running = (tuple(collective for collective in group if self.runs(plan, collective)) for group in buckets)
        return tuple(group for group in running if group)

    def use(self, plan: BlockPlan, bucket: tuple[CollectiveOp, ...]) -> CollectiveUse:
        """Return collectives of the plan that differ only in their tensor as one collective of the step."""
        first = bucket[0]
        weight, gradient = _weight_or_gradient(plan, first.tensor)
        ring = self.workload.cp_comm_type == "ring" and first.tensor in _ring_tensors(plan) and first.axes == ("cp",)
        deferred = gradient and reduces_once(self.workload)
        messages = len(bucket) if weight or gradient else 1  # in one buffer; others are sent as soon as they exist
        calls = (len(bucket) / messages) * (1 if deferred else self.microbatches)
        if first.serial:
            calls = calls * first.steps(self.sizes)
        repeats = not weight and is_collective_repeated(first, plan.block, self.workload)
        recomputed = recomputed_share(self.batch, plan.block) if repeats else 0.0
        calls = calls * (1 + recomputed)
        if ring:
            calls = calls * np.maximum(self.sizes["cp"] - 1, 0)
        axes = self.inside(order_axes(first.axes)) if weight or gradient else order_axes(first.axes)
        group = first.group(self.sizes) if axes == order_axes(first.axes) else self.members(axes)
        return CollectiveUse(
            kind="collective_permute" if ring else self.kind(first, gradient),
            axes=axes,
            group=group if self.runs(plan, first) and not self.by_pool(plan, first) else 1,
            bytes=self.mean_bytes(plan, bucket) * messages * self.repeats(first) / (self.sizes["cp"] if ring else 1),
            calls=calls,
            phase="step" if deferred else first.phase,
            block=plan.block.name,
            tensor=first.tensor,
            role="ring" if ring else "weights" if weight or gradient else _axis_role(axes[0]),
            why=first.why,
            copies=int(self.sizes["active"]) if self.sends_once(first) else 1,
            recomputed=recomputed,
        )

    def by_pool(self, plan: BlockPlan, collective: CollectiveOp) -> bool:
        """Return whether switches of a memory pool do a collective: they gather weights, or reduce gradients."""
        weight, gradient = _weight_or_gradient(plan, collective.tensor)
        if not (weight or gradient):
            return False
        tensor = plan.block.graph.tensors[collective.tensor.removeprefix("d_")]
        kind = "gradients" if gradient else "weights"
        of_experts = {"weights": "experts", "gradients": "expert_gradients"}
        state = of_experts[kind] if "experts" in tensor.dims else kind
        return switched_in(self.batch.base, state) is not None

    def sends_once(self, collective: CollectiveOp) -> bool:
        """Return whether a token goes to a node once, however many of its experts are there."""
        routed = collective.kind == "all_to_all" and "share" in collective.dims
        return routed and self.workload.moe_token_dispatcher_type == "flex"

    def repeats(self, collective: CollectiveOp) -> Numeric:
        """Return how many heads share a key that cp ranks exchange, where it is repeated for each of them before."""
        if not (self.workload.kv_repeated and collective.tensor in RING_TENSORS and collective.axes == ("cp",)):
            return 1
        return self.sizes["heads"] / self.sizes["kv_heads"]

    def runs(self, plan: BlockPlan, collective: CollectiveOp) -> bool:
        """Return whether the operator that a collective serves runs: decoding, not what was done for the source."""
        if self.workload.task != "decode":
            return True
        return all(
            is_decoded(plan.block, operator)
            for operator in plan.block.graph.operators
            if operator.name == collective.operator
        )

    @property
    def sent_gradient(self) -> float:
        """Bytes of a gradient element in a collective: as it is accumulated."""
        return self.recipe.gradient

    @property
    def sent_weight(self) -> float:
        """Bytes of an updated weight in a collective, cast before where none in 16 bits is kept."""
        return 1.0 if keeps_narrow_weights_alone(self.workload) else self.recipe.weight

    def width(self, plan: BlockPlan, collective: CollectiveOp) -> Numeric:
        """Return the bytes of an element in a collective.

        Activations gathered for a narrow GEMM are cast before. A gradient is read along rows and along columns: where
        both copies have scales of their own, both are gathered.
        """
        weight, gradient = _weight_or_gradient(plan, collective.tensor)
        if gradient:
            return self.sent_gradient
        if weight:
            if shards_narrow(self.workload) and self.workload.task == "training" and not is_wide(collective.tensor):
                return 1.0
            return weight_bytes(self.recipe, collective.tensor, moe=is_moe(self.batch.base.model))
        if (element_bytes := _tensor_element_bytes(plan, collective.tensor)) is not None:
            return element_bytes
        if _is_index_tensor(plan, collective.tensor):
            return INDEX_BYTES
        if not (gathers_narrow(self.workload) and collective.kind == "all_gather" and collective.axes == ("tp",)):
            return self.recipe.activation
        if not collective.tensor.startswith("d_"):
            return 1.0
        return 1.0 + scaled_in_blocks(self.workload, lambda key: self.batch[f"compute.{key}"])

    def kind(self, collective: CollectiveOp, gradient: bool) -> CommunicationKind:
        """Return the kind of collective; a gradient whose rank needs only its shard is reduce-scattered."""
        shared = gradient and self.workload.shards_states and not self.workload.shards_weights
        return "reduce_scatter" if shared and collective.kind == "all_reduce" else collective.kind

    def mean_bytes(self, plan: BlockPlan, bucket: tuple[CollectiveOp, ...]) -> Numeric:
        """Return the mean bytes of a payload; an index counts its numbers, not its one-hot vectors."""
        total: Numeric = 0
        for collective in bucket:
            tensor = plan.block.graph.tensors.get(collective.tensor)
            elements = collective.elements(self.sizes, tensor.stored_dims if tensor else collective.dims)
            total = total + elements * self.width(plan, collective)
        return total / len(bucket)

    def updated_weights(self, plan: BlockPlan) -> Iterator[CollectiveUse]:
        """Yield the all-gathers of updated weights: each rank updated its shard (ZeRO-1 and 2)."""
        bytes_by_axes: dict[tuple[str, ...], Numeric] = {}
        for weight in plan.block.graph.weights:
            if not is_trained(self.workload, weight.name):
                continue
            sharding = plan.shardings[weight.name]
            axes = replica_axes(sharding)
            bytes_by_axes[axes] = bytes_by_axes.get(axes, 0.0) + sharding.elements(weight.dims, self.sizes)
        for axes, elements in bytes_by_axes.items():
            named = self.inside(order_axes(axes))
            yield CollectiveUse(
                kind="all_gather",
                axes=named,
                group=self.members(named),
                bytes=elements * self.sent_weight,
                calls=1,
                phase="step",
                block=plan.block.name,
                tensor="weights",
                role="updated",
                why="each rank updates its share of the weights, all need the whole",
            )

    def inside(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """Return the axes of replicas among which weights and gradients travel in every step: those of an island."""
        if not self.workload.exchanges_apart:
            return axes
        return order_axes(tuple(INSIDE.get(axis, axis) for axis in axes))

    def members(self, axes: tuple[str, ...]) -> Numeric:
        """Return the ranks of a group along *axes*."""
        group: Numeric = 1
        for axis in axes:
            group = group * self.sizes[axis]
        return group

    def exchanged(self, plan: BlockPlan) -> Iterator[CollectiveUse]:
        """Yield what islands exchange every few steps: how far the parameters of each have moved.

        A rank exchanges the share of a block that it updates, or would update if the ranks of its island shared the
        work out; without sharding, the island gathers the result.
        """
        share, period = self.workload.sync_compression, self.workload.sync_period
        names = [weight.name for weight in plan.block.graph.weights if is_trained(self.workload, weight.name)]
        unsharded = not self.workload.shards_states
        for axis, outer in OUTSIDE.items():
            replicas = {name: replicating_axes(plan.shardings[name], plan.split.get(name, ())) for name in names}
            shared_weights = frozenset(name for name in names if axis in replicas[name])
            if not shared_weights:
                continue
            split, on_device = (
                weight_elements(plan, self.sizes, shared, only=shared_weights) for shared in (True, False)
            )
            inner = self.inside(order_axes(next(axes for name, axes in replicas.items() if name in shared_weights)))
            sent: list[tuple[CommunicationKind, tuple[str, ...], Numeric]]
            sent = [("all_reduce", (outer,), split * MASTER_BYTES * share)]
            sent += [("all_gather", inner, on_device * self.recipe.weight)] if unsharded else []
            for kind, axes, size in sent:
                yield CollectiveUse(
                    kind=kind,
                    axes=axes,
                    group=self.members(axes),
                    bytes=size,
                    calls=1 / period,
                    phase="step",
                    block=plan.block.name,
                    tensor="parameters",
                    role="sync",
                    why=f"islands exchange parameters every {period} steps",
                )

    def between_stages(self, last: BlockPlan, training: bool) -> Iterator[CollectiveUse]:
        """Yield the sends of activations to the next stage, and of their gradients back.

        Ranks of tp that all have the same tensor send a part of it each, and those that receive it share it: Narayanan
        et al., SC 2021, §4.1. Within a node that takes little time beside the send, and none is counted.
        """
        if isinstance(self.batch.base.model, ProgramModel):
            stream = crossing_elements(plan_of(self.batch), self.sizes, self.recipe.activation)
        elif last.block.name != "head":
            return
        else:
            elements = last.shardings["x"].elements(last.block.graph.tensors["x"].dims, self.sizes)
            stream = elements if last.shardings["x"].holds("tp") else elements / self.sizes["tp"]
        stages = np.asanyarray(self.sizes["pp"])
        crossing = self.microbatches * self.batch["workload.virtual_stages"] * (stages > 1)
        directions: tuple[tuple[Literal["forward", "backward"], str], ...] = (("forward", "x"), ("backward", "d_x"))
        for phase, tensor in directions if training else directions[:1]:
            yield CollectiveUse(
                kind="send",
                axes=("pp",),
                group=np.minimum(stages, 2),
                bytes=stream * self.recipe.activation,
                calls=crossing,
                phase=phase,
                block="",
                tensor=tensor,
                role="pp",
                why="the next stage goes on from here",
            )


def _axis_role(axis: str) -> Role:
    """Return the role of a blocking collective, by its innermost axis."""
    return ROLES.get(axis, axis)  # type: ignore[arg-type]  # the other axes of `ORDER` are roles


@cache
def _weight_or_gradient(plan: BlockPlan, name: str) -> tuple[bool, bool]:
    """Return whether a tensor of a block is a weight, and whether it is the gradient of one."""
    weights = {weight.name for weight in plan.block.graph.weights}
    return name in weights, name.startswith("d_") and name.removeprefix("d_") in weights


@cache
def _tensor_element_bytes(plan: BlockPlan, name: str) -> float | None:
    """Return the bytes of an element that a tensor of a block states, or the one that a gradient is of."""
    tensors = {tensor.name: tensor for part in plan.partitioned.operators for tensor in part.operator.tensors}
    return tensors[name].element_bytes if name in tensors else None


def _is_index_tensor(plan: BlockPlan, name: str) -> bool:
    tensor = plan.block.graph.tensors.get(name)
    return tensor is not None and tensor.role == "index"


@cache
def _ring_tensors(plan: BlockPlan) -> frozenset[str]:
    """Return what ring attention passes from rank to rank: of a program, what its attention reads beside queries."""
    if plan.used is None:
        return frozenset(RING_TENSORS)
    read = [operator.inputs[1:3] for operator in plan.block.graph.operators if operator.kind == "attention"]
    names = {tensor.name for tensors in read for tensor in tensors}
    return frozenset(names | {f"d_{name}" for name in names})


@cache
def _bucket_collectives(plan: BlockPlan, repeats: frozenset[str]) -> tuple[tuple[CollectiveOp, ...], ...]:
    """Return the collectives of a block in groups that differ only in their tensor."""
    groups: dict[Any, list[CollectiveOp]] = {}
    for collective in plan.partitioned.collectives:
        role = (
            *_weight_or_gradient(plan, collective.tensor),
            collective.tensor in _ring_tensors(plan),
            collective.operator in repeats,
            collective.serial,
        )
        groups.setdefault((collective.kind, collective.axes, collective.phase, role), []).append(collective)
    return tuple(tuple(group) for group in groups.values())


@cache
def order_axes(axes: tuple[str, ...]) -> tuple[str, ...]:
    """Return mesh axes in the order of `ORDER`, each once.

    >>> order_axes(("dp", "cp")), order_axes(("edp", "ep"))
    (('cp', 'dp'), ('ep', 'edp'))
    """
    return tuple(axis for axis in ORDER if axis in axes)


# ---- What collectives take on the network, and how much compute hides


@dataclass(frozen=True, slots=True)
class OverlapEfficiency:
    """Share of an axis's communication that compute beside it can hide at best; the rest is what it takes from it."""

    tp: float
    ep: float


OVERLAP = load_constants("overlap", OverlapEfficiency)


class NetworkCosts:
    """The seconds of collectives and messages for a batch of designs, by the place of their group in the network."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._chunks, self._multi_dim = batch["collective.chunks"], batch["collective.multi_dim"]
        self._all_to_all = batch["collective.all_to_all"]
        self.dims = [NetworkDimension.of(batch, index) for index in range(len(batch.base.network.dims))]
        degrees: dict[str, Any] = {axis: batch[f"workload.{axis}"] for axis in AXES}
        placed = axis_strides(batch.base.workload.placement, degrees)
        sizes = [dim.npus for dim in self.dims]
        self.shapes: dict[str, tuple[Span, ...]] = {
            axis: axis_spans(sizes, placed[axis], degrees[axis]) for axis in AXES
        }
        """What every mesh axis has of each dimension: those of `AXES`, and those of experts."""
        if isinstance(batch.base.model, ProgramModel):
            for cut in batch.base.model.cuts:
                stride = placed[cut.axis]
                for name, size in reversed(cut.sizes.items()):
                    self.shapes[name] = axis_spans(sizes, stride, size)
                    stride = stride * size
        if is_moe(batch.base.model):
            experts = expert_degrees(batch)
            order = [(placed[axis], degrees[axis]) for axis in folded_order(batch.base.workload.placement)]
            expert_ranks = experts["etp"] * experts["ep"]
            for axis, first, last in (
                ("etp", 1, experts["etp"]),
                ("ep", experts["etp"], expert_ranks),
                ("oep", degrees["tp"], expert_ranks),
                ("edp", expert_ranks, expert_ranks * experts["edp"]),
            ):
                self.shapes[axis] = folded_spans(sizes, order, first, last)
        if batch.base.workload.exchanges_apart:
            for axis in (axis for axis in INSIDE if axis in self.shapes):
                *inner, outermost = self.shapes[axis]
                self.shapes[INSIDE[axis]] = (*inner, Span(1.0, 1.0))
                self.shapes[OUTSIDE[axis]] = (*(Span(1.0, 1.0) for _ in inner), outermost)
        self._groups: dict[tuple[str, ...], list[Subgroup]] = {}
        self._time_factor: Numeric = batch["compute.time_factor"]

    def group(self, axes: tuple[str, ...]) -> list[Subgroup]:
        """Return the place of the ranks of *axes* in the network: their part of each dimension that they span."""
        if axes not in self._groups:
            self._groups[axes] = subgroups(self.dims, joint_spans([self.shapes[axis] for axis in axes]))
        return self._groups[axes]

    def seconds(self, kind: CommunicationKind, axes: tuple[str, ...], size_bytes: Numeric, copies: int = 1) -> Numeric:
        """Return the seconds of one collective among the ranks of *axes*, or of one message to the next of them.

        An all-to-all sends one of several *copies* of a token that go to one node, and spreads it there.
        """
        group = self.group(axes)
        if kind in ("send", "collective_permute"):
            return send_seconds(group, size_bytes) * self._time_factor
        collective: CollectiveKind = kind  # type: ignore[assignment]  # the others were handled above
        multiplicity = self.copies(axes, copies)
        policy = (self._chunks, self._multi_dim, multiplicity, self._all_to_all)
        return collective_seconds(group, collective, size_bytes, *policy) * self._time_factor

    def exchange_s(self, axes: tuple[str, ...], size_bytes: Numeric) -> Numeric:
        """Return the seconds in which islands exchange so many bytes of parameters, once the first have arrived.

        All blocks are on their way at the same time: `mean_exchange_latency_s` is waited for once.
        """
        group = self.group(axes)
        full_s, latency_s = (
            collective_seconds(group, "all_reduce", size, 1, self._multi_dim) for size in (size_bytes, 0.0)
        )
        return (full_s - latency_s) * self._time_factor

    def mean_exchange_latency_s(self) -> Numeric:
        """Return what exchanges of parameters between islands take a step beyond their bytes, on average.

        0 where there are none.
        """
        workload = self._batch.base.workload
        if not workload.exchanges_apart:
            return 0.0
        latency_s = collective_seconds(self.group(("odp",)), "all_reduce", 0.0, 1, self._multi_dim)
        return latency_s * self._time_factor / workload.sync_period

    def copies(self, axes: tuple[str, ...], copies: int) -> Numeric:
        """Return how many of the *copies* of a token one rank sends: the ranks of tp that have it share them out."""
        return larger(1, copies / expert_degrees(self._batch)["tep"]) if axes == ("oep",) else copies

    def efficiency(self, role: Role) -> Numeric:
        """Return the share of a role's seconds that compute can hide at best; 0 where it does not overlap.

        What is left is what communication takes from the compute beside it: SMs, and memory bandwidth.
        """
        workload = self._batch.base.workload
        if role == "tp":
            return np.minimum(OVERLAP.tp * self._batch["compute.tp_hiding"], 1.0) if workload.tp_overlap else 0.0
        if role == "ep":
            return np.minimum(OVERLAP.ep * self._batch["compute.ep_hiding"], 1.0) if workload.ep_overlap else 0.0
        return self._batch["collective.overlap_efficiency"] if workload.dp_overlap else 0.0

    def offload_seconds(self, tier_traffic: Sequence[Numeric]) -> Numeric:
        """Return the seconds in which bytes travel between the device and its outer tiers, so many to or from each.

        Tiers are a chain: what lies in the second passes the link of the first too. Links work at the same time, so
        that the slowest counts; transfers start ahead of their use, which hides their latency.
        """
        slowest: Numeric = 0.0
        for index in range(len(tier_traffic)):
            beyond = sum_of(tier_traffic[index:])
            slowest = larger(slowest, beyond / self._batch[f"memory.tiers.{index}.bandwidth"])
        return slowest * self._time_factor
