"""What each device computes: operators with their flop and bytes, and what a token costs a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from cosmic.cost.attention import Attention
from cosmic.design.batch import Batch
from cosmic.design.model import Model, Transformer, is_moe
from cosmic.step.kernels import Kernel, Product, kernel_of
from cosmic.step.recomputation import repeated
from cosmic.workload.blocks import blocks, dimensions
from cosmic.workload.graph import Sizes
from cosmic.workload.operators import flop, kinds, moved_elements, unsharded
from cosmic.workload.plan import plan
from cosmic.workload.precision import Recipe, recipe_of, weight_bytes
from cosmic.workload.sharding import PartitionedOperator
from cosmic.workload.sizes import Stage, layers_on_stage, microbatches, sizes_of, visible_share
from cosmic.workload.strategies import strategies_of

BACKWARD_FLOP = 2.0
"""Of an operator's backward pass relative to its forward: one product for each of its two inputs' gradients."""


@dataclass(frozen=True, slots=True)
class OperatorUse:
    """One operator of a step, as the busiest device runs it."""

    name: str
    kind: str
    block: str
    phase: Literal["forward", "backward"]
    flop: Any
    """Operations of one run."""
    bytes: Any
    """Bytes that one run reads and writes, each tensor once: the roofline's, and what traces state. Of an accelerator
    that was measured, kernels are priced by what they really move, which `kernel` tells."""
    times: Any
    """Runs in one step."""
    kernel: Kernel
    """What else its time depends on: of one run forward, also where the use is backward."""
    again: bool = False
    """Whether every second of them is recomputation."""


def operators(batch: Batch, stage: Stage = "first") -> list[OperatorUse]:
    """Return the operators of designs that share one plan (see `cosmic.workload.sizes.structural_paths`).

    Of layers, those of one *stage*; embedding and head are listed whichever it is.

    The backward pass of an operator is listed with it: twice its flop, and its tensors and their gradients moved.
    """
    workload = batch.base.workload
    training = workload.task == "training"
    recipe = recipe_of(workload.precision, workload.task)
    planned = plan(batch.base.model, strategies_of(workload), training, workload.dropout)
    counts = layers_on_stage(batch, stage, tuple(each.block for each in planned))
    found = []
    sizes, count = sizes_of(batch), microbatches(batch)
    for each in planned:
        sizes["visible"] = visible_share(batch, each.block)
        times = counts.get(each.block.name, 1) * count
        repeats = repeated(each.block, workload)
        columns: dict[str, Any] = {}
        for part in each.partitioned.operators:
            if part.operator.phase == "forward" and part.operator.kind != "view":
                work, moved = _cost(part, sizes)
                moved = moved * recipe.activation
                of = (part.operator.name, part.operator.kind, each.block.name)
                again = part.operator.name in repeats
                kernel = kernel_of(part, sizes, workload.task == "decode")
                if isinstance(kernel.shape, Product):
                    read = part.operator.inputs[0].name
                    beside = columns.get(read, 0)
                    columns[read] = beside + kernel.shape.n
                    kernel = replace(kernel, beside=beside)
                runs = times * (2 if again else 1)
                if not training:
                    moved = _served_bytes(kernel, moved, recipe, batch)
                found.append(OperatorUse(*of, "forward", work, moved, runs, kernel, again))
                if training:
                    undo = BACKWARD_FLOP * work, 2 * moved
                    found.append(OperatorUse(*of, "backward", *undo, times, kernel))
    return found


def _cost(part: PartitionedOperator, sizes: Sizes) -> tuple[Any, Any]:
    """Return the flop and the elements moved by one run of a forward operator on one device."""

    def local(dims: Any) -> Any:
        return part.elements(dims, sizes)

    return flop(part.operator, local, sizes), moved_elements(part.operator, local)


def _served_bytes(kernel: Kernel, moved: Any, recipe: Recipe, batch: Batch) -> Any:
    """Return the bytes of one run while serving: weights and cache as they are kept, of experts those that are picked.

    *moved* is what the operator moves if all of it were activations.
    """
    shape = kernel.shape
    if isinstance(shape, Product):
        width = weight_bytes(recipe, kernel.weight, mixture=is_moe(batch.base.model))
        return shape.count * (width * shape.n * shape.k + recipe.activation * shape.m * (shape.n + shape.k))
    if isinstance(shape, Attention) and batch.base.workload.task == "decode":
        both = shape.width + shape.value_width
        cache = shape.kv_heads * shape.keys * shape.visible * (shape.width if shape.mla else both)
        return shape.batch * (recipe.cache * cache + recipe.activation * shape.heads * shape.queries * both)
    return moved


def model_flop_per_token(model: Model, sequence: Any, *, training: bool = True, decoding: bool = False) -> Any:
    """Return the operations that a token costs: matrix products and attention, nothing recomputed or repeated.

    This is the numerator of model flop utilisation. With a causal mask only the visible half of attention counts;
    a token being decoded attends to the whole *sequence* before it.

    >>> from cosmic.loading.designs import load_design
    >>> round(model_flop_per_token(load_design("gpt3-175b@dgx-h100:8").model, 2048) / 1e9)
    1062
    """
    queries = sequence * 0 + 1 if decoding else sequence
    sizes: dict[str, Any] = {**dimensions(model), "batch": 1, "sequence": queries, "context": sequence}
    sizes |= {"source": sequence, "samples": 1, "visible": 1.0 if decoding else (sequence + 1) / (2 * sequence)}
    total: Any = 0.0
    for block in blocks(model):
        bidirectional = isinstance(model, Transformer) and model.family in ("encoder", "vision")
        here = {**sizes, "visible": 1.0} if bidirectional or block.name == "encoder_layer" else sizes
        for operator in block.graph.operators:
            if kinds[operator.kind].index_space or operator.kind == "attention":
                total = total + block.repeats * flop(operator, unsharded(here), here)
    return (1 + BACKWARD_FLOP if training else 1) * total / queries
