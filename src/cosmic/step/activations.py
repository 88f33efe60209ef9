"""What a block keeps on a device: its weights, the activations that its backward pass reads, and what it recomputes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np

from cosmic.design.workload import Workload
from cosmic.numeric import Numeric
from cosmic.workload.blocks import Block
from cosmic.workload.graph import Sizes, Tensor, remembered
from cosmic.workload.operators import kept, kinds
from cosmic.workload.plan import BlockPlan
from cosmic.workload.precision import Recipe
from cosmic.workload.sharding import CollectiveOp, Sharding
from cosmic.workload.sharding.annotation import local_size

WIDE = frozenset(("ffn", "expert_ffn", "shared_ffn"))
ROW_STATISTIC_BYTES = 4
"""A number in fp32 per row: a norm's scale, a softmax's logarithm."""


def used_elements(each: BlockPlan, weight: Tensor, sizes: Sizes) -> Numeric:
    """Elements of a weight on a device while it is used: split by tp, etp and ep only."""
    total: Numeric = 1
    for dim in weight.dims:
        axes = each.shardings[weight.name].axes(dim)
        model_axes = [sizes[axis] for axis in axes if axis in ("tp", "etp") or dim in ("experts", "tables")]
        total = total * local_size(sizes[dim], model_axes)
    return total


def weight_elements(each: BlockPlan, sizes: Sizes, replicas_split: bool, only: frozenset[str] | None = None) -> Numeric:
    """Elements of a block's weights on one device; with *replicas_split*, sharded over their replicas as well."""
    return remembered(
        sizes,
        (weight_elements, each, replicas_split, only),
        lambda: _weight_elements(each, sizes, replicas_split, only),
    )


def _weight_elements(each: BlockPlan, sizes: Sizes, replicas_split: bool, only: frozenset[str] | None) -> Numeric:
    total: Numeric = 0.0
    for weight in each.block.graph.weights:
        if only is not None and weight.name not in only:
            continue
        replicas: Numeric = 1
        for axis in replicating_axes(each.shardings[weight.name]) if replicas_split else ():
            replicas = replicas * sizes[axis]
        total = total + used_elements(each, weight, sizes) / replicas
    return total


def replicating_axes(sharding: Sharding) -> tuple[str, ...]:
    """Return the axes of ranks that use the same weight: edp for experts, else dp and cp; a table is on one."""
    if "ep" in sharding.axes("experts"):
        return ("edp",)
    return tuple(axis for axis in ("dp", "cp") if axis not in sharding.axes("tables"))


def replica_axes(sharding: Sharding) -> tuple[str, ...]:
    """Return the axes along which a weight is stored more than once."""
    return tuple(axis for axis in replicating_axes(sharding) if axis not in sharding.used)


@cache
def kept_tensors(block: Block, recompute: str) -> tuple[Tensor, ...]:
    """Return the activations of a block that are kept until its backward pass, each once."""
    if recompute == "full":
        return tuple(block.graph.tensors[name] for name in block.kept_whole)
    if recompute == "alternate":
        return _alternate(block)
    found = {tensor.name: tensor for operator in block.graph.operators for tensor in kept(operator)}
    return tuple(found.values())


def _alternate(block: Block) -> tuple[Tensor, ...]:
    """Return the block's input, the output of attention, and that of every second GEMM."""
    found = [block.graph.tensors[name] for name in block.kept_whole]
    products = [operator for operator in block.graph.operators if operator.kind == "einsum"]
    found += [operator.outputs[0] for operator in products[1::2]]
    return tuple(found + [operator.outputs[0] for operator in block.graph.operators if operator.kind == "attention"])


def kept_bytes(each: BlockPlan, recompute: str, attention: str, sizes: Sizes, recipe: Recipe) -> Numeric:
    """Return the activation bytes of one microbatch that a device keeps for the backward pass of one block."""
    key = (kept_bytes, each, recompute, attention, recipe.activation)
    return remembered(sizes, key, lambda: _kept_bytes(each, recompute, attention, sizes, recipe))


def _kept_bytes(each: BlockPlan, recompute: str, attention: str, sizes: Sizes, recipe: Recipe) -> Numeric:
    tensors = _kept_once(each, recompute)
    total = recipe.activation * sum(
        (each.shardings[tensor.name].elements(tensor.dims, sizes) for tensor in tensors), 0.0
    )
    if recompute in ("full", "alternate"):
        return total
    for operator in each.block.graph.operators:
        kind = kinds[operator.kind]
        made = operator.outputs[0]
        if kind.extra_bytes_per_output:
            total = total + kind.extra_bytes_per_output * each.shardings[made.name].elements(made.dims, sizes)
        if operator.kind == "norm":
            rows = each.shardings[made.name].elements(made.dims[:-1], sizes)
            total = total + ROW_STATISTIC_BYTES * (len(operator.inputs) - 1) * rows
        if operator.kind == "attention":
            rows = each.shardings[made.name].elements(made.dims[:-1], sizes)
            total = total + _score_bytes(attention, recompute, rows, sizes)
    return total


@cache
def _kept_once(each: BlockPlan, recompute: str) -> tuple[Tensor, ...]:
    """Return the kept activations of a block without views of others."""
    return tuple(tensor for tensor in kept_tensors(each.block, recompute) if not _is_alias(each, tensor, recompute))


def _is_alias(each: BlockPlan, tensor: Tensor, recompute: str) -> bool:
    """Return whether *tensor* is a view of another kept tensor, with the same sharding."""
    kept_names = {other.name for other in kept_tensors(each.block, recompute)}
    for operator in each.block.graph.operators:
        if operator.kind == "view" and operator.outputs[0].name == tensor.name:
            original = operator.inputs[0].name
            return original in kept_names and each.shardings[original] == each.shardings[tensor.name]
    return False


def _score_bytes(attention: str, recompute: str, rows: Numeric, sizes: Sizes) -> Numeric:
    """Return what attention keeps beside its inputs and output: the log-sum-exp of each row if fused, else the scores.

    Unfused, each score keeps its softmax and the softmax after dropout (2 bytes each) and a mask (1), the 5 a s / h of
    Korthikanti et al., arXiv 2205.05198; selective recomputation drops just these.
    """
    if attention == "fused" or recompute == "selective":
        return ROW_STATISTIC_BYTES * rows
    return 5.0 * rows * sizes["context"]


def wide_elements(each: BlockPlan, sizes: Sizes) -> Numeric:
    """Return the elements of a layer's input and wide activations: those whose gradients are alive together."""
    entering = [each.block.graph.tensors[name] for name in each.block.kept_whole]
    wide = [tensor for tensor in kept_tensors(each.block, "none") if WIDE.intersection(tensor.dims)]
    return sum((each.shardings[tensor.name].elements(tensor.dims, sizes) for tensor in (*entering, *wide)), 0.0)


def largest(values: Iterable[Numeric]) -> Numeric:
    """Return the largest of some numbers or arrays, place by place; 0 if there are none."""
    found: Numeric = 0.0
    for value in values:
        found = np.maximum(found, value)
    return found


# ------------------------------------------------------------------------------------------ recomputation


def repeated(block: Block, workload: Workload) -> frozenset[str]:
    """Return the names of the forward operators of a block that run again before its backward pass.

    Those whose result was not kept, up to the last that the backward pass reads: PyTorch stops before a layer's last
    GEMM, whose output nothing reads, while Megatron-LM runs to the end. Selective recomputation repeats the scores of
    attention; fused attention keeps none, so that it repeats nothing.
    """
    if workload.task != "training" or block.part != "layers":
        return frozenset()
    if workload.recompute == "none" or (workload.recompute == "selective" and workload.attention == "fused"):
        return frozenset()
    return _repeated(block, workload.recompute, workload.recompute_to_end)


@cache
def _repeated(block: Block, recompute: str, to_end: bool) -> frozenset[str]:
    operators = block.graph.operators
    if recompute == "selective":
        return frozenset(operator.name for operator in operators if operator.kind == "attention")
    kept = {tensor.name for tensor in kept_tensors(block, recompute)}
    again = operators if to_end else operators[: _needed(block)]
    return frozenset(operator.name for operator in again if recompute == "full" or operator.outputs[0].name not in kept)


def _needed(block: Block) -> int:
    """Return how many of a block's operators must run again before its backward pass has all that it reads."""
    read = {tensor.name for tensor in kept_tensors(block, "none")}
    places = [
        place
        for place, operator in enumerate(block.graph.operators)
        if operator.outputs[0].name in read or kinds[operator.kind].extra_bytes_per_output
    ]
    return max(places, default=-1) + 1


def is_repeated(found: CollectiveOp, block: Block, workload: Workload) -> bool:
    """Return whether a forward collective runs again: with the operator that needs it."""
    return found.phase == "forward" and found.operator in repeated(block, workload)
