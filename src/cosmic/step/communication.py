"""What each device sends: every collective of a step, how large, among how many, how often, and whether it can hide.

The collectives within a layer come out of the plan. This module adds what lies between steps and stages: the
reduction of gradients once their accumulation is done, the return of updated weights, the passing of
activations from stage to stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from cosmic.design.batch import Batch
from cosmic.design.model import is_moe
from cosmic.design.workload import Workload
from cosmic.step.recomputation import is_repeated, repeated
from cosmic.workload.graph import SizeTable
from cosmic.workload.plan import BlockPlan, plan
from cosmic.workload.precision import Recipe, recipe_of, weight_bytes
from cosmic.workload.sharding import CollectiveOp
from cosmic.workload.sizes import Stage, layers_on_stage, microbatches, sizes_of
from cosmic.workload.strategies import strategies_of

Kind = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "collective_permute", "send"]
ORDER = ("tp", "cp", "ep", "edp", "dp", "pp")
NARROW = ("fp8", "fp4")
"""Precisions whose products read what takes a byte or less."""
PASSED_ROUND = ("key", "value", "d_key", "d_value")
"""What ring attention passes from rank to rank instead of gathering it."""


@dataclass(frozen=True, slots=True)
class CollectiveUse:
    """One collective of a step."""

    kind: Kind
    axes: tuple[str, ...]
    """Mesh axes whose ranks take part: tp, cp, ep, dp or pp, or several together; edp: those of dp that hold the same
    experts."""
    group: Any
    """How many ranks take part."""
    bytes: Any
    """Payload per device: what a gather ends with, what any other collective starts from."""
    times: Any
    """How often in one step, on the stage that has most of them."""
    phase: Literal["forward", "backward", "step"]
    block: str
    tensor: str
    hides: bool
    """Whether compute can go on meanwhile: weights fetched ahead, gradients reduced behind, keys passed round."""
    why: str
    copies: int = 1
    """In how many copies each token is sent, to as many experts."""


def collectives(batch: Batch, stage: Stage = "first", *, together: bool = False) -> list[CollectiveUse]:
    """Return the collectives of designs that share one plan (see `cosmic.workload.sizes.structural_paths`).

    Of layers, those of one *stage*; embedding and head are listed whichever it is.

    With *together*, those of a block that are alike but for their size are one, of their mean size: time is nearly
    linear in bytes and in calls, so that little is lost where only time is asked for. Weights and gradients of a block
    travel in one buffer.
    """
    workload = batch.base.workload
    training = workload.task == "training"
    blocks = plan(batch.base.model, strategies_of(workload), training, workload.dropout)
    recipe = recipe_of(workload.precision, workload.task)
    step = _Step(batch, sizes_of(batch), recipe, workload, microbatches(batch))
    counts = layers_on_stage(batch, stage, tuple(each.block for each in blocks))
    found = []
    for each in blocks:
        layers = counts.get(each.block.name, 1)
        found += [step.use(each, group, layers) for group in step.groups(each, together=together)]
        if training and workload.weight_sharding in ("zero1", "zero2"):
            found += step.weights_back(each, layers)
    return [*found, *step.between_stages(blocks[-1], training)]


@dataclass(frozen=True, slots=True)
class _Step:
    """One training or inference step of a group of designs that share one plan."""

    batch: Batch
    sizes: SizeTable
    recipe: Recipe
    workload: Workload
    microbatches: Any

    def groups(self, each: BlockPlan, *, together: bool) -> tuple[tuple[CollectiveOp, ...], ...]:
        """Return the collectives of a block, each alone, or *together* with those that differ only in what is sent."""
        if not together:
            return tuple((one,) for one in each.partitioned.collectives)
        return _alike(each, repeated(each.block, self.workload))

    def use(self, each: BlockPlan, alike: tuple[CollectiveOp, ...], layers: Any) -> CollectiveUse:
        """Return what collectives of the plan that are alike amount to in the step."""
        found = alike[0]
        weight, gradient = _belongs(each, found.tensor)
        ring = self.workload.cp_comm_type == "ring" and found.tensor in PASSED_ROUND and found.axes == ("cp",)
        deferred = gradient and self.workload.weight_sharding in ("none", "zero1")
        together = len(alike) if weight or gradient else 1  # in one buffer; others are sent when they are there
        times = layers * (len(alike) / together) * (1 if deferred else self.microbatches)
        if not weight and is_repeated(found, each.block, self.workload):
            times = times * 2  # before the backward pass
        if ring:
            times = times * np.maximum(self.sizes["cp"] - 1, 0)
        return CollectiveUse(
            kind="collective_permute" if ring else self.kind(found, gradient),
            axes=named_axes(found.axes),
            group=found.group(self.sizes),
            bytes=self.mean_bytes(each, alike) * together / (self.sizes["cp"] if ring else 1),
            times=times,
            phase="step" if deferred else found.phase,
            block=each.block.name,
            tensor=found.tensor,
            hides=weight or gradient or ring,
            why=found.why,
            copies=int(self.sizes["active"]) if found.kind == "all_to_all" and "share" in found.dims else 1,
        )

    @property
    def sent_gradient(self) -> float:
        """The bytes of a gradient on its way: recipes of 8 and 4 bits reduce them in 16."""
        return 2.0 if self.workload.precision in (*NARROW, "fp16") else self.recipe.gradient

    @property
    def sent_weight(self) -> float:
        """The bytes of an updated weight on its way: recipes of 8 and 4 bits cast it before."""
        return 1.0 if self.workload.precision in NARROW else self.recipe.weight

    def width(self, each: BlockPlan, found: CollectiveOp) -> float:
        """Return the bytes of an element on its way; activations that are gathered to be multiplied are cast before."""
        weight, gradient = _belongs(each, found.tensor)
        if gradient:
            return self.sent_gradient
        if weight:
            return weight_bytes(self.recipe, found.tensor, mixture=is_moe(self.batch.base.model))
        narrow = self.workload.precision in NARROW and self.workload.execution != "eager"
        return 1.0 if narrow and found.kind == "all_gather" and found.axes == ("tp",) else self.recipe.activation

    def summed(self, found: CollectiveOp) -> float:
        """Return the share that is left of a payload by adding up first what is for one token.

        Engines that serve add what a token's experts make of it before they exchange what tp split of them.
        """
        slots = self.workload.task != "training" and "share" in found.dims and "tp" in found.axes
        return 1 / self.sizes["active"] if slots else 1.0

    def kind(self, found: CollectiveOp, gradient: bool) -> Kind:
        """Return the collective; a gradient of which each rank needs its share only is scattered, not spread."""
        shared = gradient and self.workload.weight_sharding in ("zero1", "zero2")
        return "reduce_scatter" if shared and found.kind == "all_reduce" else found.kind

    def mean_bytes(self, each: BlockPlan, alike: tuple[CollectiveOp, ...]) -> Any:
        """Return the bytes of a payload, on average: of an index its numbers, not its one-hot vectors."""
        total: Any = 0
        for found in alike:
            known = each.block.graph.tensors.get(found.tensor)
            elements = found.sharding.elements(known.stored_dims if known else found.dims, self.sizes)
            total = total + elements * self.width(each, found) * self.summed(found)
        return total / len(alike)

    def weights_back(self, each: BlockPlan, layers: Any) -> Iterator[CollectiveUse]:
        """Yield the gathering of updated weights, of which each rank that holds the same ones updated its share."""
        together: dict[tuple[str, ...], Any] = {}
        for weight in each.block.graph.weights:
            sharding = each.shardings[weight.name]
            axes = tuple(axis for axis in ("edp", "ep", "cp") if axis not in sharding.used)
            together[axes] = together.get(axes, 0.0) + sharding.elements(weight.dims, self.sizes)
        for axes, elements in together.items():
            group: Any = 1
            for axis in axes:
                group = group * self.sizes[axis]
            yield CollectiveUse(
                kind="all_gather",
                axes=named_axes(axes),
                group=group,
                bytes=elements * self.sent_weight,
                times=layers,
                phase="step",
                block=each.block.name,
                tensor="weights",
                hides=True,
                why="each rank updates its share of the weights, all need the whole",
            )

    def between_stages(self, last: BlockPlan, training: bool) -> Iterator[CollectiveUse]:
        """Yield the sending of activations to the next stage, and of their gradients back."""
        if last.block.name != "head":
            return
        stream = last.shardings["x"].elements(last.block.graph.tensors["x"].dims, self.sizes)
        stages = np.asarray(self.sizes["pp"])
        crossing = self.microbatches * self.batch["workload.virtual_stages"] * (stages > 1)
        directions: tuple[tuple[Literal["forward", "backward"], str], ...] = (("forward", "x"), ("backward", "d_x"))
        for phase, tensor in directions if training else directions[:1]:
            yield CollectiveUse(
                kind="send",
                axes=("pp",),
                group=np.minimum(stages, 2),
                bytes=stream * self.recipe.activation,
                times=crossing,
                phase=phase,
                block="layer",
                tensor=tensor,
                hides=False,
                why="the next stage goes on from here",
            )


@cache
def _belongs(each: BlockPlan, name: str) -> tuple[bool, bool]:
    """Return whether a tensor of a block is a weight, and whether it is the gradient of one."""
    weights = {weight.name for weight in each.block.graph.weights}
    return name in weights, name.startswith("d_") and name.removeprefix("d_") in weights


@cache
def _alike(each: BlockPlan, repeats: frozenset[str]) -> tuple[tuple[CollectiveOp, ...], ...]:
    """Return the collectives of a block in groups that differ only in what is sent."""
    groups: dict[Any, list[CollectiveOp]] = {}
    for found in each.partitioned.collectives:
        role = (*_belongs(each, found.tensor), found.tensor in PASSED_ROUND, found.operator in repeats)
        groups.setdefault((found.kind, found.axes, found.phase, role), []).append(found)
    return tuple(tuple(group) for group in groups.values())


@cache
def named_axes(axes: tuple[str, ...]) -> tuple[str, ...]:
    """Return mesh axes by the names that designs use: the two halves of data parallelism are dp.

    >>> named_axes(("edp", "ep", "cp")), named_axes(("ep",)), named_axes(("edp", "cp"))
    (('cp', 'dp'), ('ep',), ('cp', 'edp'))
    """
    both = "edp" in axes and "ep" in axes
    names = {"dp" if both and axis in ("edp", "ep") else axis for axis in axes}
    return tuple(axis for axis in ORDER if axis in names)
