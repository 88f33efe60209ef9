"""What one device reads, computes and sends in a serving step: a whole step summed up, as fused kernels see it.

Serving engines fuse what a training framework runs one by one: Q, K and V are one GEMM, gate and up another, norms and
casts are fused into them. So a few sums describe a step: bytes of weights and of KV cache that are read once, flop by
number format, and collectives. They come out of the plan of the model under its mapping (`cosmic.workload.plan`), with
the experts' widths split over tp too.

Only experts that some token of the step picks are read (`cosmic.step.compute.gemm_of`). MLA decodes in the compressed
space: each head's query is projected into it and meets the cached vectors,

    2 (2 c + r) flop for a query's head and a token of the cache        c  kv_lora_rank       r  qk_rope_head_dim

and devices that split the heads read the same cache. Only the last token of a prompt needs the head. The outputs of
experts split over tp are summed per token, with those of shared experts, before the all-reduce.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cosmic.design.batch import Batch
from cosmic.design.model import Transformer, is_moe
from cosmic.errors import require
from cosmic.numeric import Numeric
from cosmic.step.activations import weight_elements
from cosmic.step.compute import Gemm, attention_of, gemm_of
from cosmic.step.kv_cache import cache_bytes
from cosmic.workload.blocks import is_decoded
from cosmic.workload.graph import SizeTable
from cosmic.workload.operators import moved_elements
from cosmic.workload.plan import BlockPlan, plan_of
from cosmic.workload.precision import Recipe, recipe_of, weight_bytes
from cosmic.workload.sharding import CollectiveOp, PartitionedOperator
from cosmic.workload.sizes import sizes_of, visible_share


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingWork:
    """What one device does in a step; numbers, or arrays over a batch."""

    resident_bytes: Numeric
    """Weights that it keeps."""
    weight_bytes: Numeric
    """Weights that the step reads, of experts those that are picked."""
    cache_bytes: Numeric
    """Keys and values of all its requests: what they take, and what a decode step reads."""
    wide_flop: Numeric
    """Operations of products in 16 bits."""
    narrow_flop: Numeric
    """Operations of products in the serving format."""
    expert_flop: Numeric
    """Operations of experts, in the serving format."""
    attention_flop: Numeric
    activation_bytes: Numeric
    """What products and the operators between them (norms, gates, rotations) read and write, each by itself."""
    exchanges: Numeric
    """Collectives, one after the other."""
    exchanged_bytes: Numeric
    """Payload of all of them."""
    group: Numeric
    """Devices that take part in the largest."""


def serving_work(batch: Batch, cache: float | None = None) -> ServingWork:
    """Return what one device does in a step of prefill or decode, for designs that share one plan."""
    workload, model = batch.base.workload, batch.base.model
    require(workload.task != "training", "task", workload.task, "must be prefill or decode")
    require(isinstance(model, Transformer), "model", model.name, "only transformers are served")
    blocks = plan_of(batch)
    sizes, recipe = sizes_of(batch), recipe_of(workload.precision, workload.task)
    if cache is not None:
        recipe = replace(recipe, cache=cache)
    moe = is_moe(model)
    total: dict[str, Numeric] = dict.fromkeys(ServingWork.__slots__, 0.0)
    for each in blocks:
        sizes["visible"] = visible_share(batch, each.block)
        decoding = workload.task == "decode"
        passed = each.block.part == "layers" or decoding
        for name, value in _block(each, sizes, recipe, moe, passed, decoding):
            joined = np.maximum(total[name], value) if name == "group" else total[name] + each.block.repeats * value
            total[name] = joined
    counts = {each.block.name: each.block.repeats for each in blocks}
    total["cache_bytes"] = cache_bytes(batch, counts, {each.block.name: each for each in blocks}, recipe)
    return ServingWork(**total)


def _block(
    each: BlockPlan, sizes: SizeTable, recipe: Recipe, moe: bool, passed: bool, decoding: bool
) -> Iterator[tuple[str, Numeric]]:
    """Yield what one block adds to the sums; where a prompt does not pass through it, what it keeps alone."""
    for weight in each.block.graph.weights:
        width = weight_bytes(recipe, weight.name, moe=moe)
        yield "resident_bytes", width * weight_elements(each, sizes, False, only=frozenset((weight.name,)))
    if not passed:
        return
    running = {one.name for one in each.block.graph.operators if not decoding or is_decoded(each.block, one)}
    for part in each.partitioned.operators:
        if part.operator.name not in running:
            continue
        if part.operator.kind == "einsum":
            yield from _product(part, gemm_of(part, sizes), recipe, moe)
        elif part.operator.kind == "attention":
            yield "attention_flop", _attention(part, sizes)
        else:
            yield "activation_bytes", recipe.activation * _moved(part, sizes)
    shared = any("shared_ffn" in found.tensor for found in each.partitioned.collectives)
    for found in each.partitioned.collectives:
        alone = shared and found.tensor == "combined"  # added to the shared expert's before the all-reduce
        if found.operator in running and not alone:
            yield from _exchange(found, sizes, recipe)


def _product(part: PartitionedOperator, shape: Gemm, recipe: Recipe, moe: bool) -> Iterator[tuple[str, Numeric]]:
    name = part.operator.inputs[1].name
    width = weight_bytes(recipe, name, moe=moe)
    yield "weight_bytes", width * shape.count * shape.n * shape.k
    kind = "wide" if width == recipe.wide else "expert" if "expert" in name else "narrow"
    yield f"{kind}_flop", 2 * shape.count * shape.m * shape.n * shape.k
    yield "activation_bytes", recipe.activation * shape.count * shape.m * (shape.n + shape.k)


def _attention(part: PartitionedOperator, sizes: SizeTable) -> Numeric:
    shape = attention_of(part, sizes)
    pairs = shape.batch * shape.heads * shape.queries * shape.keys * shape.visible
    usual = 2 * pairs * (shape.width + shape.value_width)
    if "kv_lora_rank" not in sizes:
        return usual
    latent = 2 * pairs * (2 * sizes["kv_lora_rank"] + sizes["qk_rope_head_dim"])
    return np.where(np.asanyarray(sizes["sequence"]) == 1, latent, usual)


def _moved(part: PartitionedOperator, sizes: SizeTable) -> Numeric:
    return moved_elements(part.operator, lambda dims: part.elements(dims, sizes))


def _exchange(found: CollectiveOp, sizes: SizeTable, recipe: Recipe) -> Iterator[tuple[str, Numeric]]:
    group = np.asanyarray(found.group(sizes))
    yield "exchanges", 1.0 * (group > 1)
    yield "exchanged_bytes", found.elements(sizes) * recipe.activation * (group > 1)
    yield "group", group
