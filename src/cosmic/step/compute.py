"""What each device computes: operators with their flop, bytes and kernels, and the flop that a token costs a model.

The time of a kernel depends on its shape, not on flop alone. A GEMM is ``y[m, n] = x[m, k] w[k, n]``; its backward pass
is two more,

    dx[m, k] = dy[m, n] w'[n, k]        dw[k, n] = x'[k, m] dy[m, n]

and *count* of them, of one shape, run as one grouped GEMM (the experts of an MoE layer). A dimension's place says what
it is: in both inputs and the output, count; in the activation and the output, m; in the weight and the output, n; in
both inputs only, k.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import numpy as np

from cosmic.cost.attention import Attention
from cosmic.design.batch import Batch
from cosmic.design.model import Model, Transformer, is_moe
from cosmic.numeric import Numeric, power
from cosmic.step.activations import recomputed_share, repeated
from cosmic.workload.blocks import blocks, dimensions, is_decoded
from cosmic.workload.graph import Sizes
from cosmic.workload.operators import flop, kinds, looked_up_elements, moved_elements, seen_share, unsharded
from cosmic.workload.plan import BlockPlan, plan_of
from cosmic.workload.precision import Recipe, recipe_of, weight_bytes
from cosmic.workload.sharding import PartitionedOperator
from cosmic.workload.sizes import attended_share, microbatches, sizes_of, visible_share

BACKWARD_FLOP = 2.0
"""Flop of an operator's backward pass over those of its forward pass: one GEMM for the gradient of each input."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """GEMMs of one shape."""

    count: Numeric
    m: Numeric
    n: Numeric
    k: Numeric

    def backward(self) -> tuple[Gemm, Gemm]:
        """Return the GEMMs for the gradients of the activation and of the weight.

        >>> Gemm(1, 4096, 8192, 2048).backward()
        (Gemm(count=1, m=4096, n=2048, k=8192), Gemm(count=1, m=2048, n=8192, k=4096))
        """
        return Gemm(self.count, self.m, self.k, self.n), Gemm(self.count, self.k, self.n, self.m)


def gemm_of(part: PartitionedOperator, sizes: Sizes) -> Gemm:
    """Return the GEMM that an einsum is, on one device.

    Only experts that get a token count: with T tokens that pick k of E experts each, no token picks an expert with
    probability (1 - k/E)^T, so that some weights stay unread when few tokens are decoded.
    """
    read, weight = part.operator.inputs[:2]
    made = set(part.operator.outputs[0].dims)

    def size(dims: Iterable[str]) -> Numeric:
        return part.elements(tuple(dims), sizes)

    shared = [dim for dim in read.dims if dim in weight.dims]
    count = size(dim for dim in shared if dim in made)
    m = size(dim for dim in read.dims if dim not in weight.dims)
    if "share" in read.dims and "experts" in shared:
        tokens = size(dim for dim in read.dims if dim not in weight.dims and dim != "share")
        busy = 1 - power(1 - np.minimum(sizes["share"], 1.0), np.maximum(tokens, 1))
        count, m = count * busy, m / busy
    n = size(dim for dim in weight.dims if dim not in read.dims)
    return Gemm(count, m, n, size(dim for dim in shared if dim not in made))


def attention_of(part: PartitionedOperator, sizes: Sizes, decoding: bool = False) -> Attention:
    """Return the shape of attention on one device.

    With MLA, decoding reads the compressed KV vectors, once for all heads.
    """
    queries, keys, values = part.operator.inputs[:3]

    def size(dim: str) -> Numeric:
        return part.elements((dim,), sizes)

    batch, sequence, heads, width = queries.dims
    found = Attention(
        batch=size(batch),
        heads=size(heads),
        kv_heads=size(keys.dims[2]),
        queries=size(sequence),
        keys=sizes[keys.dims[1]],
        width=size(width),
        value_width=size(values.dims[3]),
        visible=seen_share(part.operator, sizes),
    )
    if width == "qk_dim" and decoding:
        rank = sizes["kv_lora_rank"]
        return replace(found, kv_heads=1, width=rank + sizes["qk_rope_head_dim"], value_width=rank, mla=True)
    return found


@dataclass(frozen=True, slots=True)
class Kernel:
    """The shape of an operator's kernel: of one forward run, on one device."""

    shape: Gemm | Attention | None = None
    """Of a GEMM or of attention; None for what streams through memory."""
    gathered: Numeric = 1
    """Ranks over which the activation of a GEMM was split before it was gathered."""
    elements: Numeric = 0
    """Of the largest activation that a streaming operator reads or writes."""
    weight: str = ""
    """Name of the weight of a GEMM."""
    beside: Numeric = 0
    """Columns of the GEMMs before it that read the same activation: serving engines fuse them into one GEMM."""

    @property
    def fuses(self) -> bool:
        """Whether an earlier GEMM reads the same activation: backward, its gradient is added to theirs."""
        return bool(np.any(self.beside))


@dataclass(frozen=True, slots=True)
class OperatorUse:
    """One operator of a step, as the busiest device runs it."""

    name: str
    kind: str
    block: str
    phase: Literal["forward", "backward"]
    flop: Numeric
    """Of one run."""
    bytes: Numeric
    """Bytes that one run reads and writes, each tensor once: the roofline's, and what traces state. The kernels of a
    measured accelerator move what `kernel` says."""
    runs: Numeric
    """Runs in one step, for one layer."""
    kernel: Kernel
    """The shape of its kernel: of one forward run, also where the use is backward."""
    recomputed: Numeric = 0.0
    """Runs in a backward pass for each one of a forward pass: the share of layers that recompute it."""


def operators(batch: Batch) -> list[OperatorUse]:
    """Return the operators of designs that share one plan (see `cosmic.workload.sizes.structural_paths`).

    Those of one layer of each kind, of the embedding and of the head, for all microbatches of a step. An operator is
    followed by its backward pass: twice its flop, and its tensors and their gradients moved.
    """
    count = microbatches(batch)
    return [use for each in plan_of(batch) for use in _block_operators(batch, each, count)]


def _block_operators(batch: Batch, each: BlockPlan, times: Numeric) -> Iterator[OperatorUse]:
    """Yield the operators of a block that runs so many *times* in a step."""
    workload, sizes = batch.base.workload, sizes_of(batch)
    training, decoding = workload.task == "training", workload.task == "decode"
    recipe = recipe_of(workload.precision, workload.task)
    sizes["visible"] = visible_share(batch, each.block)
    repeats, share = repeated(each.block, workload), recomputed_share(batch, each.block)
    columns: dict[str, Numeric] = {}
    for part in each.partitioned.operators:
        if part.operator.phase != "forward" or part.operator.kind == "view":
            continue
        if decoding and not is_decoded(each.block, part.operator):
            continue
        work, moved = _cost(part, sizes)
        moved = moved * recipe.activation
        of = (part.operator.name, part.operator.kind, each.block.name)
        again = share if part.operator.name in repeats else 0.0
        kernel = _fused_with(columns, part, kernel_of(part, sizes, decoding))
        if not training:
            moved = _served_bytes(kernel, moved, recipe, batch)
        yield OperatorUse(*of, "forward", work, moved, times * (1 + again), kernel, again)
        if training:
            yield OperatorUse(*of, "backward", BACKWARD_FLOP * work, 2 * moved, times, kernel)


def _fused_with(columns: dict[str, Numeric], part: PartitionedOperator, kernel: Kernel) -> Kernel:
    """Return *kernel* with the columns of the GEMMs before it that read the same tensor, by name in *columns*."""
    if not isinstance(kernel.shape, Gemm):
        return kernel
    read = part.operator.inputs[0].name
    beside = columns.get(read, 0)
    columns[read] = beside + kernel.shape.n
    return replace(kernel, beside=beside)


def _cost(part: PartitionedOperator, sizes: Sizes) -> tuple[Numeric, Numeric]:
    """Return the flop and the elements moved by one run of a forward operator on one device."""

    def local(dims: Iterable[str]) -> Numeric:
        return part.elements(dims, sizes)

    return flop(part.operator, local, sizes), moved_elements(part.operator, local)


def _served_bytes(kernel: Kernel, moved: Numeric, recipe: Recipe, batch: Batch) -> Numeric:
    """Return the bytes of one run while serving: weights and KV cache in their own formats, of routed experts only.

    *moved* is what the operator would move if all of it were activations.
    """
    shape = kernel.shape
    if isinstance(shape, Gemm):
        width = weight_bytes(recipe, kernel.weight, moe=is_moe(batch.base.model))
        return shape.count * (width * shape.n * shape.k + recipe.activation * shape.m * (shape.n + shape.k))
    if isinstance(shape, Attention) and batch.base.workload.task == "decode":
        both = shape.width + shape.value_width
        cache = shape.kv_heads * shape.keys * shape.visible * (shape.width if shape.mla else both)
        return shape.batch * (recipe.cache * cache + recipe.activation * shape.heads * shape.queries * both)
    return moved


def kernel_of(part: PartitionedOperator, sizes: Sizes, decoding: bool) -> Kernel:
    """Return the kernel of a forward operator; `Kernel.beside` is for its block to fill in."""
    operator = part.operator
    if operator.kind == "einsum":
        weight = operator.inputs[1].name
        return Kernel(gemm_of(part, sizes), gathered=_gathered_from(part, sizes), weight=weight)
    if operator.kind == "attention":
        return Kernel(attention_of(part, sizes, decoding))
    if operator.kind == "embedding":
        return Kernel(elements=_copied(part, sizes))
    return Kernel(elements=_largest(part, sizes))


def _copied(part: PartitionedOperator, sizes: Sizes) -> Numeric:
    """Return the mean of the elements that an embedding reads and writes: alike, unless it pools rows."""

    def local(dims: Iterable[str]) -> Numeric:
        return part.elements(dims, sizes)

    return (looked_up_elements(part.operator, local) + local(part.operator.outputs[0].dims)) / 2


def _largest(part: PartitionedOperator, sizes: Sizes) -> Numeric:
    found: Numeric = 0
    for dims in dict.fromkeys(tensor.stored_dims for tensor in part.operator.tensors if tensor.role != "weight"):
        found = np.maximum(found, part.elements(dims, sizes))
    return found


def _gathered_from(part: PartitionedOperator, sizes: Sizes) -> Numeric:
    ranks: Numeric = 1
    for step in part.inputs[0].steps if part.inputs else ():
        if step.kind == "all_gather":
            for axis in step.axes:
                ranks = ranks * sizes[axis]
    return ranks


def model_flop_per_token(model: Model, sequence: Numeric, *, training: bool = True, decoding: bool = False) -> Numeric:
    """Return the flop that a token costs: GEMMs and attention, without recomputation.

    This is the numerator of MFU. Of attention, the pairs count that the mask and the window of each layer show; of
    experts, the tokens that they are meant to get, not empty slots. A token being decoded attends to the whole
    *sequence* before it, and to a source whose keys and values are cached.

    >>> from cosmic.loading.designs import load_design
    >>> round(model_flop_per_token(load_design("gpt3-175b@dgx-h100:8").model, 2048) / 1e9)
    1062
    """
    forward, _ = _forward_flop(model, sequence, decoding, slots=False)
    return (1 + BACKWARD_FLOP if training else 1) * forward


def hardware_flop_per_token(batch: Batch) -> Numeric:
    """Return the flop that a token costs all accelerators together: those of the model, and what they do beside.

    This is the numerator of HFU: what is recomputed counts, and the slots of experts beyond their tokens.
    """
    model, workload = batch.base.model, batch.base.workload
    sequence, training = batch["workload.sequence"], workload.task == "training"
    repeats = {block.name: (repeated(block, workload), recomputed_share(batch, block)) for block in blocks(model)}
    forward, again = _forward_flop(model, sequence, workload.task == "decode", slots=True, repeats=repeats)
    return (1 + BACKWARD_FLOP if training else 1) * forward + again


def _forward_flop(
    model: Model,
    sequence: Numeric,
    decoding: bool,
    *,
    slots: bool,
    repeats: Mapping[str, tuple[frozenset[str], Numeric]] = MappingProxyType({}),
) -> tuple[Numeric, Numeric]:
    """Return the flop of one token's forward pass, and of what runs again: *repeats* says what, and in which layers.

    With *slots*, experts compute all slots that they have; without, those that tokens fill.
    """
    queries = sequence * 0 + 1 if decoding else sequence
    sizes: dict[str, Numeric] = {**dimensions(model), "batch": 1, "sequence": queries, "context": sequence}
    sizes |= {"source": sequence, "samples": 1, "tokens": queries}
    if isinstance(model, Transformer) and model.experts and not slots:
        sizes["share"] = np.minimum(sizes["share"], model.experts.active / model.experts.count)
    total: Numeric = 0.0
    again: Numeric = 0.0
    for block in blocks(model):
        if isinstance(model, Transformer):
            sizes["visible"] = attended_share(model, block.name, sequence, decoding=decoding)
        for operator in block.graph.operators:
            counts = kinds[operator.kind].index_space or operator.kind == "attention"
            if not counts or (decoding and not is_decoded(block, operator)):
                continue
            work = block.repeats * flop(operator, unsharded(sizes), sizes) / queries
            total = total + work
            names, share = repeats.get(block.name, ((), 0.0))
            again = again + work * share * (operator.name in names)
    return total, again
