"""The work of each device: operators with their flop, bytes and kernels, and the flop that a token costs a model.

The time of a kernel depends on its shape, not on flop alone. A GEMM is ``y[m, n] = x[m, k] w[k, n]``; its backward pass
is two more,

    dx[m, k] = dy[m, n] w'[n, k]        dw[k, n] = x'[k, m] dy[m, n]

and *count* of them, of one shape, run as one grouped GEMM (the experts of an MoE layer). A dimension's place says what
it is: in both inputs and the output, count; in the activation and the output, m; in the weight and the output, n; in
both inputs only, k.

Einsums and convolutions become GEMMs (`Gemm`) of these letters. `padded_sizes` has the dimensions that are larger where
tensor parallelism pads them; `picked_expert_share` how many experts the tokens of a step pick.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, cast

import numpy as np

from cosmic.base.numeric import Numeric, power
from cosmic.design.design_batch import Batch
from cosmic.design.model_layer import Model, Transformer, is_moe, served_model
from cosmic.design.program_model import ProgramModel
from cosmic.design.workload_layer import Workload
from cosmic.step.attention import Attention
from cosmic.step.block_memory import is_decoder, recomputed_share, repeated_operators
from cosmic.step.gemm import Gemm
from cosmic.step.scan import Scan, ScanKind
from cosmic.workload.attended_keys import attended_share, causal_share, document_length, visible_share
from cosmic.workload.block_plans import BlockPlan, plan_of
from cosmic.workload.lora_adapters import RANK, is_frozen, targets_of, trains_adapters, workload_blocks
from cosmic.workload.mesh_sizes import microbatches, pad_dimensions, pads_dimensions, sizes_of
from cosmic.workload.model_blocks import dimensions, is_decoded
from cosmic.workload.operator_graph import Sizes, SizeTable
from cosmic.workload.operator_kinds import (
    SCANS,
    kinds,
    looked_up_elements,
    moved_bytes,
    moved_elements,
    operator_flop,
    seen_share,
    unsharded_elements,
)
from cosmic.workload.precision import Recipe, is_adapter, recipe_for, weight_bytes
from cosmic.workload.sharding.graph_partition import PartitionedOperator
from cosmic.workload.user_programs.program_blocks import add_equal_dims


def padded_sizes(batch: Batch, model: Model) -> Mapping[str, Numeric]:
    """Return the sizes of *model* that padding may change: what all accelerators together compute."""
    if not isinstance(model, Transformer) or not pads_dimensions(batch.base):
        return {}
    sizes = sizes_of(batch)
    return pad_dimensions(model, sizes["tp"], sizes["etp"])


POPULARITY = 1.0
"""Variance of the popularity of a served model's experts, over the square of its mean. Not measured: a round number
with which decode steps of published serving samples grow with their batch as they do."""
LEAST_REST = 1e-12


def picked_expert_share(share: Numeric, tokens: Numeric, *, even: bool) -> Numeric:
    """Return the share of experts that some token picks, if a token picks a *share* s of them.

    Training keeps experts *even*: no token of T picks one with probability (1 - s)^T. Of a served model some are more
    popular than others. If popularity has a gamma distribution of variance σ², that probability is

        (1 - s) (1 + σ² s (T - 1) / (1 - s)) ^ (-1 / σ²)

    >>> [round(float(picked_expert_share(1 / 16, tokens, even=False)), 3) for tokens in (1, 16, 64, 1024)]
    [0.062, 0.531, 0.82, 0.986]
    >>> [round(float(picked_expert_share(1 / 16, tokens, even=True)), 3) for tokens in (1, 16, 64)]
    [0.062, 0.644, 0.984]
    """
    if even:
        return 1 - power(1 - share, np.maximum(tokens, 1))
    unpicked = np.maximum(1 - share, LEAST_REST)
    other_tokens = np.maximum(tokens, 1) - 1
    return 1 - unpicked * power(1 + POPULARITY * share * other_tokens / unpicked, -1 / POPULARITY)


def einsum_gemm(part: PartitionedOperator, sizes: Sizes) -> Gemm:
    """Return the GEMM that an einsum is, on one device.

    Only experts that get a token count (`picked_expert_share`): some weights stay unread when few tokens are decoded.
    Tokens
    of each adapter of a served model have a product of their own.
    """
    read, weight = part.operator.inputs[:2]
    output_dims = set(part.operator.outputs[0].dims)

    def size(dims: Iterable[str]) -> Numeric:
        return part.elements(tuple(dims), sizes)

    shared = [dim for dim in read.dims if dim in weight.dims]
    count = size(dim for dim in shared if dim in output_dims)
    m = size(dim for dim in read.dims if dim not in weight.dims)
    if "share" in read.dims and "experts" in shared:
        tokens = size(dim for dim in read.dims if dim not in weight.dims and dim != "share")
        busy = picked_expert_share(np.minimum(sizes["share"], 1.0), tokens, even="popularity" not in sizes)
        count, m = count * busy, m / busy
    if "adapters" in sizes and is_adapter(weight.name):
        count, m = count * sizes["adapters"], m / sizes["adapters"]
    n = size(dim for dim in weight.dims if dim not in read.dims)
    return Gemm(count, m, n, size(dim for dim in shared if dim not in output_dims))


def convolution_gemm(part: PartitionedOperator, sizes: Sizes) -> Gemm:
    """Return the implicit GEMM that a convolution is, on one device: m pixels, n filters, k of a window's elements.

    What weight and output share beside the filters are groups of channels, each a GEMM of its own.
    """
    read, weight = part.operator.inputs[:2]
    output_dims = part.operator.outputs[0].dims

    def size(dims: Iterable[str]) -> Numeric:
        return part.elements(tuple(dims), sizes)

    return Gemm(
        count=size(dim for dim in output_dims if dim in weight.dims and dim in read.dims),
        m=size(dim for dim in output_dims if dim not in weight.dims),
        n=size(dim for dim in output_dims if dim in weight.dims and dim not in read.dims),
        k=size(dim for dim in weight.dims if dim not in output_dims),
    )


BACKWARD_FLOP = 2.0
"""Flop of an operator's backward pass over those of its forward pass: one GEMM for the gradient of each input."""


def attention_shape(part: PartitionedOperator, sizes: Sizes, decoding: bool = False) -> Attention:
    """Return the shape of attention on one device.

    With MLA, decoding reads the compressed KV vectors, once for all heads.
    """
    queries, keys, values = part.operator.inputs[:3]

    def size(dim: str) -> Numeric:
        return part.elements((dim,), sizes)

    batch, sequence, heads, width = queries.dims
    shape = Attention(
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
        return replace(shape, kv_heads=1, width=rank + sizes["qk_rope_head_dim"], value_width=rank, mla=True)
    return shape


def unfused_share(workload: Workload, model: Model) -> float:
    """Return the share of layers whose attention writes its scores to memory.

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> point = load_design("gpt-oss-120b@dgx-h100:64", {"attention": "unfused_windows"}, plain=True)
    >>> unfused_share(point.workload, point.model)
    0.5
    """
    if workload.attention != "unfused_windows":
        return float(workload.attention == "unfused")
    if not isinstance(model, Transformer) or model.window is None:
        return 0.0
    return 1 - (1 / model.full_attention_every if model.full_attention_every else 0.0)


def scan_shape(part: PartitionedOperator, sizes: Sizes) -> Scan:
    """Return the shape of a scan on one device: it has the groups of its heads."""
    batch, sequence, heads, width = part.operator.outputs[0].dims
    local_heads = part.elements((heads,), sizes)
    return Scan(
        kind=cast(ScanKind, part.operator.kind),
        sequences=part.elements((batch,), sizes),
        tokens=part.elements((sequence,), sizes),
        heads=local_heads,
        head_dim=sizes[width],
        groups=sizes["ssm_groups"] * local_heads / sizes[heads],
        state=sizes["ssm_state"],
        chunk=sizes["ssm_chunk"],
    )


@dataclass(frozen=True, slots=True)
class KernelShape:
    """The shape of an operator's kernel: of one forward run, on one device."""

    shape: Gemm | Attention | Scan | None = None
    """Of a GEMM, of attention or of a scan; None for what streams through memory."""
    gathered: Numeric = 1
    """Ranks over which the activation of a GEMM was split before it was gathered."""
    summed: Numeric = 1
    """Ranks that split the sum of a GEMM; with sequence parallelism, each keeps a part of its result."""
    elements: Numeric = 0
    """Of the largest activation that a streaming operator reads or writes."""
    weight: str = ""
    """Name of the weight of a GEMM."""
    beside: Numeric = 0
    """Columns of the GEMMs before it that read the same activation: serving engines fuse them into one GEMM."""
    wider: Numeric = 1
    """Bytes that it moves over those in the format of the precision: tensors may state others."""
    frozen: bool = False
    """Whether the weight of a GEMM is frozen: its backward pass is the gradient of the activation alone."""

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
    kernel: KernelShape
    """The shape of its kernel: of one forward run, also where the use is backward."""
    recomputed: Numeric = 0.0
    """Runs in a backward pass for each one of a forward pass: the share of layers that recompute it."""
    steps: Numeric = 1
    """Steps of one run, a kernel after the other: the time of a recurrence. Flop, bytes and kernel are of one."""


def list_operators(batch: Batch) -> list[OperatorUse]:
    """Return the operators of designs that share one plan (see `cosmic.workload.mesh_sizes.structural_paths`).

    Those of one layer of each kind, of the embedding and of the head, for all microbatches of a step. An operator is
    followed by its backward pass: twice its flop, and its tensors and their gradients moved; of a GEMM with a frozen
    weight, half of that. Beside adapters, an embedding has none.
    """
    count = microbatches(batch)
    return [use for plan in plan_of(batch) for use in _block_operators(batch, plan, count)]


def _block_operators(batch: Batch, plan: BlockPlan, times: Numeric) -> Iterator[OperatorUse]:
    """Yield the operators of a block that runs so many *times* in a step."""
    workload, sizes = batch.base.workload, sizes_of(batch)
    training, decoding = workload.task == "training", workload.task == "decode"
    recipe = recipe_for(workload)
    # Of a prompt, only the last token passes the head, which predicts the first new one.
    if workload.task == "prefill" and plan.block.name == "head" and is_decoder(batch.base.model):
        sizes = SizeTable({**sizes, "sequence": batch["workload.sequence"] * 0 + 1})
    sizes["visible"] = visible_share(batch, plan.block)
    repeats, share = repeated_operators(plan.block, workload), recomputed_share(batch, plan.block)
    adapted = trains_adapters(workload)
    differentiated = training and not (adapted and plan.block.part == "first")
    columns: dict[str, Numeric] = {}
    for part in plan.partitioned.operators:
        if part.operator.phase != "forward" or part.operator.kind == "view":
            continue
        if decoding and not is_decoded(plan.block, part.operator):
            continue
        parallel, steps = sequential_step(part, sizes)
        work, moved, wider = _operator_flop_and_bytes(part, parallel, recipe.activation)
        labels = (part.operator.name, part.operator.kind, plan.block.name)
        recomputed = share if part.operator.name in repeats else 0.0
        kernel = _fuse_columns(columns, part, kernel_shape(part, parallel, decoding))
        kernel = replace(kernel, frozen=True) if adapted and is_frozen(part.operator) else kernel
        kernel = kernel if wider is None else replace(kernel, elements=kernel.elements * wider, wider=wider)
        if not training:
            moved = moved if wider is not None else _served_bytes(kernel, moved, recipe, batch)
        yield OperatorUse(*labels, "forward", work, moved, times * (1 + recomputed), kernel, recomputed, steps)
        if differentiated:
            gradients = 1.0 if kernel.frozen else BACKWARD_FLOP
            yield OperatorUse(*labels, "backward", gradients * work, gradients * moved, times, kernel, steps=steps)


def sequential_step(part: PartitionedOperator, sizes: Sizes) -> tuple[Sizes, Numeric]:
    """Return the sizes of one step of an operator that runs through some dimensions step by step, and its steps."""
    if not part.operator.serial:
        return sizes, 1
    steps: Numeric = 1.0
    for dim in part.operator.serial:
        steps = steps * sizes[dim]
    return SizeTable({**sizes, **dict.fromkeys(part.operator.serial, 1)}), steps


def _fuse_columns(columns: dict[str, Numeric], part: PartitionedOperator, kernel: KernelShape) -> KernelShape:
    """Return *kernel* with the columns of the GEMMs before it that read the same tensor, by name in *columns*."""
    if not isinstance(kernel.shape, Gemm):
        return kernel
    read = part.operator.inputs[0].name
    fused_columns = columns.get(read, 0)
    columns[read] = fused_columns + kernel.shape.n
    return replace(kernel, beside=fused_columns)


def _operator_flop_and_bytes(
    part: PartitionedOperator, sizes: Sizes, width: float
) -> tuple[Numeric, Numeric, Numeric | None]:
    """Return the flop and the bytes moved by one run of a forward operator on one device, whose elements have *width*.

    Also how many times more bytes these are than in the format of the precision; None where no tensor states others.
    """

    def local(dims: Iterable[str]) -> Numeric:
        return part.elements(dims, sizes)

    work, moved = operator_flop(part.operator, local, sizes), moved_bytes(part.operator, local, width)
    if all(tensor.element_bytes is None for tensor in part.operator.tensors):
        return work, moved, None
    return work, moved, moved / (moved_elements(part.operator, local) * width)


def _served_bytes(kernel: KernelShape, moved: Numeric, recipe: Recipe, batch: Batch) -> Numeric:
    """Return the bytes of one run while serving: weights and KV cache in their own formats, of routed experts only.

    *moved* is what the operator would move if all of it were activations.
    """
    shape = kernel.shape
    if isinstance(shape, Gemm):
        width = weight_bytes(recipe, kernel.weight, moe=is_moe(batch.base.model))
        return shape.count * (width * shape.n * shape.k + recipe.activation * shape.m * (shape.n + shape.k))
    if isinstance(shape, Attention) and batch.base.workload.task == "decode":
        widths = shape.width + shape.value_width
        cache = shape.kv_heads * shape.keys * shape.visible * (shape.width if shape.mla else widths)
        return shape.batch * (recipe.cache * cache + recipe.activation * shape.heads * shape.queries * widths)
    if isinstance(shape, Scan) and batch.base.workload.task == "decode":
        return moved + 2 * shape.sequences * shape.state_bytes
    return moved


def kernel_shape(part: PartitionedOperator, sizes: Sizes, decoding: bool) -> KernelShape:
    """Return the kernel of a forward operator; `Kernel.beside` is for its block to fill in."""
    operator = part.operator
    if operator.kind == "einsum":
        weight = operator.inputs[1].name
        gathered, summed = _gathered_from(part, sizes), _summed_over(part, sizes)
        return KernelShape(einsum_gemm(part, sizes), gathered=gathered, summed=summed, weight=weight)
    if operator.kind == "convolution":
        return KernelShape(convolution_gemm(part, sizes), weight=operator.inputs[1].name)
    if operator.kind == "attention":
        return KernelShape(attention_shape(part, sizes, decoding))
    if operator.kind in SCANS:
        return KernelShape(scan_shape(part, sizes))
    if operator.kind == "embedding":
        return KernelShape(elements=_copied_elements(part, sizes))
    if operator.kind in ("conv", "gated_norm"):  # they read a part of a wider projection
        return KernelShape(elements=part.elements(operator.outputs[0].dims, sizes))
    return KernelShape(elements=_largest(part, sizes))


def _copied_elements(part: PartitionedOperator, sizes: Sizes) -> Numeric:
    """Return the mean of the elements that an embedding reads and writes: alike, unless it pools rows."""

    def local(dims: Iterable[str]) -> Numeric:
        return part.elements(dims, sizes)

    return (looked_up_elements(part.operator, local) + local(part.operator.outputs[0].dims)) / 2


def _largest(part: PartitionedOperator, sizes: Sizes) -> Numeric:
    largest: Numeric = 0
    for dims in dict.fromkeys(tensor.stored_dims for tensor in part.operator.tensors if tensor.role != "weight"):
        largest = np.maximum(largest, part.elements(dims, sizes))
    return largest


def _gathered_from(part: PartitionedOperator, sizes: Sizes) -> Numeric:
    ranks: Numeric = 1
    for step in part.inputs[0].steps if part.inputs else ():
        if step.kind == "all_gather":
            for axis in step.axes:
                ranks = ranks * sizes[axis]
    return ranks


def _summed_over(part: PartitionedOperator, sizes: Sizes) -> Numeric:
    read, weight = part.operator.inputs[:2]
    output_dims = part.operator.outputs[0].dims
    ranks: Numeric = 1
    for dim in read.dims:
        if dim in weight.dims and dim not in output_dims:
            for axis in part.dims.get(dim, ()):
                ranks = ranks * sizes[axis]
    return ranks


def model_flop_per_token(
    model: Model,
    sequence: Numeric,
    *,
    training: bool = True,
    decoding: bool = False,
    document: Numeric | None = None,
    lora: tuple[int, tuple[str, ...]] | None = None,
    prompt: bool = False,
) -> Numeric:
    """Return the flop that a token costs: GEMMs and attention, without recomputation.

    This is the numerator of MFU. Of attention, the pairs count that the mask and the window of each layer show; of
    experts, the tokens that they are meant to get, not empty slots. A token being decoded attends to the whole
    *sequence* before it, and to a source whose keys and values are cached. One of a packed sequence attends to its own
    *document* alone. With *lora*, the rank and the modules of adapters, frozen weights have no gradients. Of a *prompt*
    that a decoder reads, only the last token passes the head.

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> round(model_flop_per_token(load_design("gpt3-175b@dgx-h100:8").model, 2048) / 1e9)
    1062
    """
    flop = _token_flop(
        model if training else served_model(model),
        sequence,
        decoding,
        slots=False,
        tuned=_TunedModel(document, lora, prompt),
    )
    return flop.forward + flop.backward if training else flop.forward


def adapter_of(workload: Workload) -> tuple[int, tuple[str, ...]] | None:
    """Return the rank of a workload's adapters and the modules that have them; None where all weights are trained."""
    rank = workload.lora_rank
    return (rank, workload.lora_targets) if rank is not None and trains_adapters(workload) else None


def hardware_flop_per_token(batch: Batch) -> Numeric:
    """Return the flop that a token costs all accelerators together: those of the model, and what they do beside.

    This is the numerator of HFU: what is recomputed counts, slots of experts beyond their tokens, what tp pads.
    """
    workload = batch.base.workload
    model = batch.base.model if workload.task == "training" else served_model(batch.base.model)
    sequence, training = batch["workload.sequence"], workload.task == "training"
    plain = workload_blocks(model, False, targets_of(workload))
    repeats = {block.name: (repeated_operators(block, workload), recomputed_share(batch, block)) for block in plain}
    tuned = _TunedModel(
        document_length(batch), adapter_of(workload), workload.task == "prefill", padded_sizes(batch, model)
    )
    flop = _token_flop(model, sequence, workload.task == "decode", slots=True, repeats=repeats, tuned=tuned)
    return (flop.forward + flop.backward if training else flop.forward) + flop.again


@dataclass(frozen=True, slots=True)
class _TunedModel:
    """How a model is fine-tuned, if it is, or otherwise not run as it is."""

    document: Numeric | None = None
    """Tokens of the document that a token attends to."""
    lora: tuple[int, tuple[str, ...]] | None = None
    """Rank of the adapters, and the modules that have them."""
    prompt: bool = False
    """Whether only the last token passes the head, as of a prompt."""
    padded: Mapping[str, Numeric] = field(default_factory=dict)
    """Dimensions that are larger than the model's, as ranks compute them."""


@dataclass(frozen=True, slots=True)
class TokenFlop:
    """The flop of one token, in all layers."""

    forward: Numeric
    backward: Numeric
    """Of a training step: the gradients of activations and of trained weights."""
    again: Numeric
    """What runs again before the backward pass."""


def _token_flop(
    model: Model,
    sequence: Numeric,
    decoding: bool,
    *,
    slots: bool,
    repeats: Mapping[str, tuple[frozenset[str], Numeric]] = MappingProxyType({}),
    tuned: _TunedModel,
) -> TokenFlop:
    """Return the flop of one token: *repeats* says what runs again, and in which layers.

    With *slots*, experts compute all slots that they have; without, those that tokens fill.
    """
    queries = sequence * 0 + 1 if decoding else sequence
    sizes: dict[str, Numeric] = {
        **dimensions(model),
        **tuned.padded,
        "batch": 1,
        "sequence": queries,
        "context": sequence,
    }
    sizes |= {"source": sequence, "samples": 1, "tokens": queries}
    if isinstance(model, Transformer) and model.sparse:
        sizes["index_context"] = sequence / (model.sparse.block * (1 if decoding else 2))
    if isinstance(model, Transformer) and model.experts and not slots:
        sizes["share"] = np.minimum(sizes["share"], model.experts.active / model.experts.count)
    if isinstance(model, ProgramModel):
        sizes = {**add_equal_dims(model, sizes), "visible": causal_share(sequence)}
    rank, targets = tuned.lora or (0, ())
    sizes[RANK] = rank
    total: Numeric = 0.0
    trained: Numeric = 0.0
    recomputed: Numeric = 0.0
    for block in workload_blocks(model, False, targets):
        if isinstance(model, Transformer):
            sizes["visible"] = attended_share(model, block.name, sequence, decoding=decoding, document=tuned.document)
        for operator in block.graph.operators:
            counts = kinds[operator.kind].index_space or operator.kind == "attention" or operator.kind in SCANS
            if not counts or (decoding and not is_decoded(block, operator)):
                continue
            work = block.repeats * operator_flop(operator, unsharded_elements(sizes), sizes) / queries
            if block.name == "head" and tuned.prompt and is_decoder(model):
                work = work / queries
            total = total + work
            if not targets or not is_frozen(operator):
                trained = trained + work  # attention has two gradients as well
            names, share = repeats.get(block.name, ((), 0.0))
            recomputed = recomputed + work * share * (operator.name in names)
    return TokenFlop(total, total + trained if targets else BACKWARD_FLOP * total, recomputed)
