"""What a block keeps on a device: weights, activations for its backward pass, embedding tables, KV cache.

An activation is saved because backward operators read it. What is saved follows from three choices:

    recomputation   operators that run again before the backward pass keep nothing but what enters them from outside
    execution       a fused or compiled activation function is recomputed inside its backward kernel from its inputs
    precision       a GEMM in 8 or 4 bits reads its input in that format: 16 bits are kept only if others read them too

**Embedding tables** of a recommender (`table_use`): a step looks up few of the rows, so gradients are sparse: those of
the rows that some sample of the global batch looks up. Tables are trained as DLRM's frameworks (TorchRec, HugeCTR)
train them, by row-wise Adagrad: one sum of squares in fp32 for each row, no moments for each weight and no master copy.
The optimizer streams the touched rows alone.

**KV cache** (`cache_bytes`): keys and values of the sequences that a device serves, and states of state-space layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from cosmic.base.numeric import Numeric, floats, largest_whole, sum_of
from cosmic.design.design_batch import Batch
from cosmic.design.model_layer import Model, Recommender, SparseAttention, StateSpace, Transformer, layer_kinds
from cosmic.design.workload_layer import Workload
from cosmic.step.scan import STATE_BYTES
from cosmic.workload.block_plans import BlockPlan, plan_of
from cosmic.workload.lora_adapters import is_frozen, trains_adapters
from cosmic.workload.mesh_sizes import INSIDE, layers_by_part, sizes_of
from cosmic.workload.model_blocks import Block, touched_rows
from cosmic.workload.operator_graph import Operator, Sizes, Tensor, cached_size
from cosmic.workload.operator_kinds import kept_activations, kinds
from cosmic.workload.precision import Recipe, is_adapter, is_wide, recipe_of
from cosmic.workload.sharding.factor_assignment import factors_of
from cosmic.workload.sharding.graph_partition import CollectiveOp
from cosmic.workload.sharding.tensor_sharding import Sharding, group_size, local_size

WIDE = frozenset(("ffn", "expert_ffn", "shared_ffn"))
ROW_STATISTIC_BYTES = 4
"""A number in fp32 per row: a norm's scale, a softmax's logarithm."""
POINTWISE = frozenset(("bias", "gelu", "silu", "relu", "tanh", "multiply"))
"""Operators that a fused backward kernel can run again on its way."""
REMADE = {"ssd_scan": "conv"}
"""Kinds whose fused backward pass runs another kind before them again: Mamba-2's, its convolution."""
MODULES = {
    "core_attn": ("attention", "cross_attention"),
    "layernorm": ("attention_norm", "cross_norm", "ffn_norm"),
    "mla_up_proj": (
        "q_down_norm",
        "q_up",
        "q_placed",
        "query",
        "kv_down_norm",
        "k_up",
        "v_up",
        "k_placed",
        "key",
        "value",
    ),
    "mlp": ("ffn_norm", "ffn_up*", "ffn_gate*", "ffn_inner", "ffn_down*"),
    "moe": ("router*", "chosen", "sent", "expert_*", "combined", "shared_*", "experts_added"),
    "moe_act": ("expert_ffn_gate_open", "expert_ffn_inner"),
    "shared_experts": ("shared_ffn_*", "shared_gate*"),
}
"""The operators of each module that Megatron-LM can recompute; a star ends what a name starts with.

A dense network has its norm inside (Transformer Engine fuses it with the first GEMM), a layer of experts before it.
"""
DISCARDED = ("layernorm", "mla_up_proj", "moe_act")
"""Modules whose outputs are dropped too, although others read them: they are made again before their first use."""


@dataclass(frozen=True, slots=True)
class ActivationPolicy:
    """What decides which activations of a layer are kept."""

    recompute: str = "none"
    modules: tuple[str, ...] = ("core_attn",)
    attention: str = "fused"
    execution: str = "fused"
    adapted: bool = False
    """Whether only adapters are trained: the backward pass of a frozen GEMM reads no activation."""

    @property
    def all(self) -> ActivationPolicy:
        """The same without recomputation."""
        return ActivationPolicy("none", (), self.attention, self.execution, self.adapted)


def activation_policy(workload: Workload, part: str = "layers") -> ActivationPolicy:
    """Return what a workload keeps of the blocks of one part of a model; only layers are recomputed."""
    adapted = trains_adapters(workload)
    policy = ActivationPolicy(
        workload.recompute, workload.recompute_modules, workload.attention, workload.execution, adapted
    )
    return policy if part == "layers" else policy.all


# ---- weights


def used_elements(plan: BlockPlan, weight: Tensor, sizes: Sizes) -> Numeric:
    """Elements of a weight on a device while it is used: split by tp, etp and ep, and by what its use is split by."""
    if plan.used is not None:
        return plan.used[weight.name].elements(weight.dims, sizes)
    total: Numeric = 1
    used = ("tp", "etp", *plan.split.get(weight.name, ()))
    for dim in weight.dims:
        axes = plan.shardings[weight.name].axes(dim)
        model_axes = [sizes[axis] for axis in axes if axis in used or dim in ("experts", "tables")]
        size = local_size(sizes[dim], model_axes)
        if dim == "tables":  # large ones are split by rows, so that every device has as many
            size = sizes[dim] / group_size(tuple(axes), sizes)
        total = total * size
    return total


def weight_elements(plan: BlockPlan, sizes: Sizes, replicas_split: bool, only: frozenset[str] | None = None) -> Numeric:
    """Elements of a block's weights on one device; with *replicas_split*, sharded over their replicas as well."""
    return cached_size(
        sizes,
        (weight_elements, plan, replicas_split, only),
        lambda: _weight_elements(plan, sizes, replicas_split, only),
    )


def _weight_elements(plan: BlockPlan, sizes: Sizes, replicas_split: bool, only: frozenset[str] | None) -> Numeric:
    total: Numeric = 0.0
    for weight in plan.block.graph.weights:
        if only is not None and weight.name not in only:
            continue
        replicas: Numeric = 1
        for axis in _weight_replicas(plan, weight.name) if replicas_split else ():
            expert_axis = INSIDE.get(axis, axis)
            replicas = replicas * sizes[expert_axis if expert_axis in sizes else axis]
        total = total + used_elements(plan, weight, sizes) / replicas
    return total


def _weight_replicas(plan: BlockPlan, weight: str) -> tuple[str, ...]:
    if plan.used is None:
        return replicating_axes(plan.shardings[weight], plan.split.get(weight, ()))
    return tuple(axis for axis in ("dp", "cp") if axis not in plan.used[weight].used)


def replicating_axes(sharding: Sharding, split: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the axes of ranks that use the same weight: edp for experts, else dp and cp; a table is on one.

    *split* are axes by which the use of a weight is split.
    """
    if "ep" in sharding.axes("experts"):
        return ("edp",)
    return tuple(axis for axis in ("dp", "cp") if axis not in (*sharding.axes("tables"), *split))


def replica_axes(sharding: Sharding) -> tuple[str, ...]:
    """Return the axes along which a weight is stored more than once."""
    return tuple(axis for axis in replicating_axes(sharding) if axis not in sharding.used)


# ---- activations


@cache
def saved_tensors(block: Block, policy: ActivationPolicy, narrow: bool = False) -> dict[Tensor, frozenset[str]]:
    """Return the activations of a block that are kept until its backward pass, and by whom they are read.

    Readers are ``wide``, or ``narrow`` for GEMMs whose format is narrower than activations (*narrow*).
    """
    if policy.recompute == "full":
        return {block.graph.tensors[name]: frozenset(("wide",)) for name in block.kept_whole}
    if policy.recompute == "alternate":
        return dict.fromkeys(_alternate_tensors(block), frozenset(("wide",)))
    return _TensorReaders(block, policy, narrow).found


def _alternate_tensors(block: Block) -> tuple[Tensor, ...]:
    """Return the block's input, the output of attention, and that of every second GEMM."""
    tensors = [block.graph.tensors[name] for name in block.kept_whole]
    products = [
        operator for operator in block.graph.operators if operator.kind == "einsum" and not is_adapter(operator.name)
    ]
    tensors += [operator.outputs[0] for operator in products[1::2]]
    return tuple(tensors + [operator.outputs[0] for operator in block.graph.operators if operator.kind == "attention"])


class _TensorReaders:
    """Collects what the backward pass of a block reads of its forward pass, where modules may be recomputed."""

    def __init__(self, block: Block, policy: ActivationPolicy, narrow: bool) -> None:
        self.narrow = narrow and policy.execution == "fused" and block.part == "layers"
        self.fuses = policy.execution != "eager"
        self.makers = {operator.outputs[0].name: operator for operator in block.graph.operators}
        self.adapted = policy.adapted
        recomputed = recomputed_operators(block, policy)
        self.discarded = _operators_in_modules(
            block, policy.modules if policy.recompute == "selective" else (), DISCARDED
        )
        readers: dict[Tensor, set[str]] = {}
        for operator in block.graph.operators:
            if operator.name in recomputed:
                for tensor in operator.inputs:
                    maker = self.makers.get(tensor.name)
                    if tensor.role == "activation" and (maker is None or maker.name not in recomputed):
                        readers.setdefault(tensor, set()).add("wide")  # enters what is recomputed
            elif not (operator.kind == "combine" and self.fuses):  # probabilities multiply the experts' activations
                for tensor in () if self.adapted and is_frozen(operator) else kept_activations(operator):
                    self.add(readers, tensor, operator)
        self.found = {tensor: frozenset(kinds_of_readers) for tensor, kinds_of_readers in readers.items()}

    def add(self, readers: dict[Tensor, set[str]], tensor: Tensor, reader: Operator) -> None:
        """Note that the backward pass of *reader* reads *tensor*, or what a fused kernel makes it from."""
        maker = self.makers.get(tensor.name)
        if maker is not None and maker.name in self.discarded:
            return
        remakes = maker is not None and maker is not reader and maker.kind in POINTWISE
        if maker is not None and REMADE.get(reader.kind) == maker.kind and self.fuses:
            return  # its inputs are kept for it
        if maker is not None and remakes and self.fuses and reader.kind in POINTWISE:
            for source in maker.inputs:
                if source.role == "activation":
                    self.add(readers, source, maker)
            return
        wide = reader.kind != "einsum" or is_wide(reader.inputs[1].name) or is_adapter(reader.name)
        slim = self.narrow and not wide
        readers.setdefault(tensor, set()).add("narrow" if slim else "wide")


def saved_bytes(
    plan: BlockPlan, policy: ActivationPolicy, sizes: Sizes, recipe: Recipe, statistics: int = 1, cached: bool = False
) -> Numeric:
    """Return the activation bytes of one microbatch that a device keeps for the backward pass of one block.

    A norm keeps so many *statistics* of each row: its scale, and a layer norm's mean. With *cached*, keys and values
    are left out: they are those of the KV cache.
    """
    key = (saved_bytes, plan, policy, recipe.activation, recipe.saved, statistics, cached)
    return cached_size(sizes, key, lambda: _sum_saved_bytes(plan, policy, sizes, recipe, statistics, cached))


def _sum_saved_bytes(
    plan: BlockPlan, policy: ActivationPolicy, sizes: Sizes, recipe: Recipe, statistics: int, cached: bool
) -> Numeric:
    total: Numeric = 0.0
    for usual, tensors in zip(
        (recipe.activation, recipe.saved or 0.0), _saved_by_width(plan, policy, recipe), strict=True
    ):
        for tensor in tensors:
            if not (cached and "context" in tensor.dims):
                width = tensor.width(usual) if usual == recipe.activation else usual
                total = total + width * plan.shardings[tensor.name].elements(tensor.dims, sizes)
    if policy.recompute in ("full", "alternate"):
        return total
    recomputed = recomputed_operators(plan.block, policy)
    for operator in plan.block.graph.operators:
        if operator.name not in recomputed:
            total = total + _bytes_beside_tensors(plan, operator, policy, sizes, statistics)
    return total


def _bytes_beside_tensors(
    plan: BlockPlan, operator: Operator, policy: ActivationPolicy, sizes: Sizes, statistics: int
) -> Numeric:
    """Return the bytes that an operator keeps beside its inputs and outputs: masks, statistics of rows, scores."""
    output = operator.outputs[0]
    sharding, extra = plan.shardings[output.name], kinds[operator.kind].extra_bytes_per_output
    if extra:
        return extra * sharding.elements(output.dims, sizes)
    if operator.kind not in ("norm", "attention"):
        return 0.0
    rows = sharding.elements(output.dims[:-1], sizes)
    if operator.kind == "norm":
        return ROW_STATISTIC_BYTES * statistics * rows
    # Fused attention keeps the log-sum-exp of each row. Unfused, each score keeps its softmax and the softmax after
    # dropout (2 bytes each) and a mask (1): the 5 a s / h of Korthikanti et al., arXiv 2205.05198.
    return (
        5.0 * rows * sizes[operator.inputs[1].dims[1]]
        if policy.attention.startswith("unfused")
        else ROW_STATISTIC_BYTES * rows
    )


@cache
def _saved_by_width(
    plan: BlockPlan, policy: ActivationPolicy, recipe: Recipe
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the activations of a block that are kept in their own format, and in that of GEMMs, without views."""
    readers = saved_tensors(plan.block, policy, recipe.saved is not None)
    wide, narrow = (
        [tensor for tensor, formats in readers.items() if number_format in formats]
        for number_format in ("wide", "narrow")
    )
    return tuple(_without_views(plan, wide)), tuple(_without_views(plan, narrow))


def _without_views(plan: BlockPlan, tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield *tensors* that are no view of another of them, of which each device has the same."""
    names = {tensor.name for tensor in tensors}
    views = {operator.outputs[0].name: operator for operator in plan.block.graph.operators if operator.kind == "view"}
    for tensor in tensors:
        name = tensor.name
        while name in views and _is_view_in_place(plan, views[name]):
            name = views[name].inputs[0].name
            if name in names:
                break
        else:
            yield tensor


def _is_view_in_place(plan: BlockPlan, view: Operator) -> bool:
    """Return whether each device has the data of a view already: its factors are split as those of what it shows."""
    factors, source, output = factors_of(view), view.inputs[0], view.outputs[0]
    source_sharding, output_sharding = plan.shardings[source.name], plan.shardings[output.name]
    split = (
        factors.axes(source, factor, source_sharding) == factors.axes(output, factor, output_sharding)
        for factor in factors.names
    )
    return source_sharding.partial == output_sharding.partial and all(split)


def wide_elements(plan: BlockPlan, policy: ActivationPolicy, sizes: Sizes, usual: float = 1.0) -> Numeric:
    """Return the elements of a layer's input and wide activations: those whose gradients are alive together.

    One that states its bytes counts as so many of those that have the *usual* ones.
    """
    entering = [plan.block.graph.tensors[name] for name in plan.block.kept_whole]
    wide = [tensor for tensor in saved_tensors(plan.block, policy.all) if WIDE.intersection(tensor.dims)]
    shares = ((tensor.width(usual) / usual, plan.shardings[tensor.name], tensor.dims) for tensor in (*entering, *wide))
    return sum_of((share * sharding.elements(dims, sizes) for share, sharding, dims in shares), 0.0)


def elementwise_largest(values: Iterable[Numeric]) -> Numeric:
    """Return the largest of some numbers or arrays, place by place; 0 if there are none."""
    largest: Numeric = 0.0
    for value in values:
        largest = np.maximum(largest, value)
    return largest


# ---- recomputation


@cache
def recomputed_operators(block: Block, policy: ActivationPolicy) -> frozenset[str]:
    """Return the names of the operators of a block in modules that are recomputed: they keep nothing of their own."""
    if policy.recompute != "selective" or block.part != "layers":
        return frozenset()
    return _operators_in_modules(block, policy.modules, tuple(MODULES))


@cache
def _operators_in_modules(block: Block, modules: tuple[str, ...], among: tuple[str, ...]) -> frozenset[str]:
    """Return the operators of a block that belong to those of *modules* that are *among* some."""
    patterns = [name for module in modules if module in among for name in _module_operators(block, module)]
    starts = tuple(name[:-1] for name in patterns if name.endswith("*"))
    return frozenset(
        operator.name
        for operator in block.graph.operators
        if operator.name in patterns or (starts and operator.name.startswith(starts))
    )


def _module_operators(block: Block, module: str) -> tuple[str, ...]:
    """Return the names of a module's operators; none where a block has no such module."""
    tensors = block.graph.tensors
    if (module == "mlp" and "ffn_up" not in tensors) or (module == "mla_up_proj" and "kv_down_norm" not in tensors):
        return ()
    return MODULES[module]


def repeated_operators(block: Block, workload: Workload) -> frozenset[str]:
    """Return the names of the forward operators of a block that run again before its backward pass.

    Full recomputation runs those whose result was not kept, up to the last that the backward pass reads: PyTorch stops
    before a layer's last GEMM, whose output nothing reads, while Megatron-LM runs to the end. Selective recomputation
    runs its modules.
    """
    if workload.task != "training" or block.part != "layers" or workload.recompute == "none":
        return frozenset()
    return _repeated_operators(block, activation_policy(workload), workload.recompute_to_end)


@cache
def _repeated_operators(block: Block, policy: ActivationPolicy, to_end: bool) -> frozenset[str]:
    if policy.recompute == "selective":
        return recomputed_operators(block, policy)
    operators = block.graph.operators
    saved = {tensor.name for tensor in saved_tensors(block, policy)}
    rerun = operators if to_end else operators[: _count_needed_operators(block, policy)]
    return frozenset(
        operator.name for operator in rerun if policy.recompute == "full" or operator.outputs[0].name not in saved
    )


def _count_needed_operators(block: Block, policy: ActivationPolicy) -> int:
    """Return how many of a block's operators must run again before its backward pass has all that it reads."""
    read = {tensor.name for tensor in saved_tensors(block, policy.all)}
    indices = [
        index
        for index, operator in enumerate(block.graph.operators)
        if operator.outputs[0].name in read or kinds[operator.kind].extra_bytes_per_output
    ]
    return max(indices, default=-1) + 1


def recomputed_layers_of(batch: Batch) -> int | None:
    """Return how many layers of each virtual stage recompute, the first ones; None where all do."""
    layers: int | None = batch.base.workload.recompute_num_layers
    return layers


def recomputes_some(batch: Batch) -> bool:
    """Return whether only the first layers of each virtual stage recompute."""
    return recomputed_layers_of(batch) is not None


def layers_that_recompute(batch: Batch, stage: Numeric, blocks: Sequence[Block]) -> list[dict[str, Numeric]]:
    """Return how many layers of each kind recompute in each virtual stage of *stage*."""
    return layers_by_part(batch, stage, blocks, recomputed_layers_of(batch))


def recomputed_share(batch: Batch, block: Block) -> Numeric:
    """Return the share of a block's layers that recompute, where only the first ones of each virtual stage do."""
    recomputed_layers = recomputed_layers_of(batch)
    if recomputed_layers is None or block.part != "layers":
        return 1.0
    return batch.once((recomputed_share, block), lambda: _recomputed_share(batch, block, recomputed_layers))


def _recomputed_share(batch: Batch, block: Block, recomputed_layers: int) -> Numeric:
    stages: Numeric = batch["workload.pp"]
    blocks = [plan.block for plan in plan_of(batch)]
    count: Numeric = 0.0
    most_stages = sum(block.repeats for block in blocks if block.part == "layers") + 2  # both ends may have no layers
    for index in range(min(largest_whole(stages), most_stages)):
        for part in layers_by_part(batch, np.minimum(index, stages - 1), blocks, recomputed_layers):
            count = count + part[block.name] * (index < stages)
    return count / block.repeats


def is_collective_repeated(collective: CollectiveOp, block: Block, workload: Workload) -> bool:
    """Return whether a forward collective runs again: with the operator that needs it."""
    return collective.phase == "forward" and collective.operator in repeated_operators(block, workload)


TABLES = frozenset(("w_tables",))
ROW_STATE_BYTES = 4
"""Of the sum of squares that row-wise Adagrad keeps for a row."""


@dataclass(frozen=True, slots=True)
class TableUse:
    """The tables that one device holds; all zero where there are none."""

    elements: Numeric = 0.0
    rows: Numeric = 0.0
    touched: Numeric = 0.0
    """Rows that the step looks up."""
    width: float = 0.0
    """Elements of a row."""
    recipe: Recipe | None = None

    @property
    def weight_bytes(self) -> Numeric:
        """Bytes of all rows."""
        return self.elements * self.recipe.weight if self.recipe else 0.0

    @property
    def gradient_bytes(self) -> Numeric:
        """Bytes of the gradients of the touched rows."""
        return self.touched * self.width * self.recipe.gradient if self.recipe else 0.0

    @property
    def state_bytes(self) -> Numeric:
        """Bytes that the optimizer keeps for all rows."""
        return ROW_STATE_BYTES * self.rows

    @property
    def update_bytes(self) -> Numeric:
        """Bytes that the optimizer streams: gradients read, rows and their states read and written."""
        row_bytes = self.touched * self.width * self.recipe.weight if self.recipe else 0.0
        return self.gradient_bytes + 2 * row_bytes + 2 * ROW_STATE_BYTES * self.touched


def table_use(batch: Batch) -> TableUse:
    """Return the tables of the device that holds most of them, for designs that share one plan."""
    model = batch.base.model
    if not isinstance(model, Recommender):
        return TableUse()
    (block,) = plan_of(batch)
    elements = weight_elements(block, sizes_of(batch), False, only=TABLES)
    rows = elements / model.embedding
    share = rows / sum(model.tables)
    return TableUse(
        elements=elements,
        rows=rows,
        touched=share * touched_rows(model, batch["workload.global_batch"]),
        width=model.embedding,
        recipe=recipe_of(batch.base.workload.precision, batch.base.workload.task),
    )


CONVOLVED_BYTES = 2
"""Of a number before the convolution."""


def cache_bytes(
    batch: Batch, counts: Mapping[str, Numeric], blocks: Mapping[str, BlockPlan], recipe: Recipe
) -> Numeric:
    """Bytes of the KV cache on a device: of every token of every sequence, in layers that decode.

    MLA caches one compressed vector per token. A sliding window caches its last tokens only. Layers that read an
    encoder cache its keys and values too; the layers of an encoder cache nothing. A state space keeps its state in
    single precision, and the last tokens before its convolution.
    """
    model = batch.base.model
    if not isinstance(model, Transformer) or not is_decoder(model):
        return 0.0
    if model.sparse:
        return _sparse_attention_bytes(batch, model, model.sparse, counts, recipe)
    per_token: Numeric = 2 * np.ceil(model.kv_heads / batch["workload.tp"]) * model.head_dim
    crossed = per_token if model.family == "encoder_decoder" else 0.0
    if model.mla:
        per_token = model.mla.kv_lora_rank + model.mla.qk_rope_head_dim
    tokens = floats(batch["workload.sequence"] / batch["workload.cp"])
    windowed = tokens if model.window is None else np.minimum(tokens, model.window)
    full = 1.0 if model.window is None else 1 / model.full_attention_every if model.full_attention_every else 0.0
    elements = per_token * (full * tokens + (1 - full) * windowed) + crossed * tokens
    attending = sum_of((counts[name] for name, block in blocks.items() if _caches_tokens(block, "attention")), 0.0)
    sequences: Numeric = np.ceil(batch["workload.global_batch"] / batch["workload.dp"])
    cached = attending * sequences * recipe.cache * elements
    if model.ssm is None:
        return cached
    stateful = sum_of((counts[name] for name, block in blocks.items() if _caches_tokens(block, "scanned")), 0.0)
    ranks: Numeric = batch["workload.tp"] * batch["workload.cp"]
    return cached + stateful * sequences * state_bytes(model.ssm) / ranks


def _sparse_attention_bytes(
    batch: Batch, model: Transformer, sparse: SparseAttention, counts: Mapping[str, Numeric], recipe: Recipe
) -> Numeric:
    """Return the bytes of attention to few keys: one vector for each token of the window and for each block of tokens.

    Layers C keep the keys of their index, too.
    """
    tokens = floats(batch["workload.sequence"] / batch["workload.cp"])
    sequences: Numeric = np.ceil(batch["workload.global_batch"] / batch["workload.dp"])
    elements: Numeric = 0.0
    for kind in layer_kinds(model):
        block = sparse.compressed(kind)
        width = model.head_dim + (sparse.index_dim if kind.startswith("sparse_") else 0)
        blocks: Numeric = tokens / block * width if block else 0.0
        recent = np.minimum(tokens, float(sparse.window)) * model.head_dim
        elements = elements + counts[kind] * (recent + blocks)
    return sequences * recipe.cache * elements


def _caches_tokens(plan: BlockPlan, operator: str) -> bool:
    """Return whether a block is a layer that decodes, and has an operator of that name."""
    layer = plan.block.part == "layers" and plan.block.name != "encoder_layer"
    return layer and operator in plan.block.graph.tensors


def state_bytes(ssm: StateSpace) -> int:
    """Return the bytes that a state space keeps of one sequence.

    >>> state_bytes(StateSpace(heads=64, head_dim=64, groups=8, state=128))
    2134016
    """
    return STATE_BYTES * ssm.kept + CONVOLVED_BYTES * ssm.convolved * (ssm.conv - 1)


def is_decoder(model: Model) -> bool:
    """Return whether a model generates tokens, one after the other."""
    return isinstance(model, Transformer) and model.family in ("decoder", "encoder_decoder")
