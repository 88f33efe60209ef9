"""What a block keeps on a device: its weights, the activations that its backward pass reads, and what it recomputes.

A tensor is kept because backward operators read it. What is kept follows from three choices:

    recomputation   operators that run again before the backward pass keep nothing but what enters them from outside
    execution       a fused or compiled activation function is recomputed inside its backward kernel from its inputs
    precision       a GEMM in 8 or 4 bits reads its input in that format: 16 bits are kept only if others read them too
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from cosmic.base.numeric import Numeric, largest_whole, sum_of
from cosmic.design.design_batch import Batch
from cosmic.design.workload_layer import Workload
from cosmic.workload.block_plans import BlockPlan, plan_of
from cosmic.workload.lora_adapters import is_frozen, trains_adapters
from cosmic.workload.mesh_sizes import INSIDE, layers_by_part
from cosmic.workload.model_blocks import Block
from cosmic.workload.operator_graph import Operator, Sizes, Tensor, cached_size
from cosmic.workload.operator_kinds import kept_activations, kinds
from cosmic.workload.precision import Recipe, is_adapter, is_wide
from cosmic.workload.sharding.factor_assignment import factors_of
from cosmic.workload.sharding.graph_partition import CollectiveOp
from cosmic.workload.sharding.tensor_sharding import Sharding, group_size, local_size

WIDE = frozenset(("ffn", "expert_ffn", "shared_ffn"))
ROW_STATISTIC_BYTES = 4
"""A number in fp32 per row: a norm's scale, a softmax's logarithm."""
POINTWISE = frozenset(("bias", "gelu", "silu", "relu", "tanh", "multiply"))
REMADE = {"ssd_scan": "conv"}
"""Kinds whose fused backward pass runs another kind before them again: Mamba-2's, its convolution."""
"""Operators that a fused backward kernel can run again on its way."""
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
class ActivationKeeping:
    """What decides which activations of a layer are kept."""

    recompute: str = "none"
    modules: tuple[str, ...] = ("core_attn",)
    attention: str = "fused"
    execution: str = "fused"
    adapted: bool = False
    """Whether only adapters are trained: the backward pass of a frozen GEMM reads no activation."""

    @property
    def all(self) -> ActivationKeeping:
        """The same without recomputation."""
        return ActivationKeeping("none", (), self.attention, self.execution, self.adapted)


def activation_keeping(workload: Workload, part: str = "layers") -> ActivationKeeping:
    """Return what a workload keeps of the blocks of one part of a model; only layers are recomputed."""
    adapted = trains_adapters(workload)
    found = ActivationKeeping(
        workload.recompute, workload.recompute_modules, workload.attention, workload.execution, adapted
    )
    return found if part == "layers" else found.all


# ------------------------------------------------------------------------------------------------ weights


def used_elements(each: BlockPlan, weight: Tensor, sizes: Sizes) -> Numeric:
    """Elements of a weight on a device while it is used: split by tp, etp and ep, and by what its use is split by."""
    if each.used is not None:
        return each.used[weight.name].elements(weight.dims, sizes)
    total: Numeric = 1
    used = ("tp", "etp", *each.split.get(weight.name, ()))
    for dim in weight.dims:
        axes = each.shardings[weight.name].axes(dim)
        model_axes = [sizes[axis] for axis in axes if axis in used or dim in ("experts", "tables")]
        here = local_size(sizes[dim], model_axes)
        if dim == "tables":  # large ones are split by rows, so that every device has as many
            here = sizes[dim] / group_size(tuple(axes), sizes)
        total = total * here
    return total


def weight_elements(each: BlockPlan, sizes: Sizes, replicas_split: bool, only: frozenset[str] | None = None) -> Numeric:
    """Elements of a block's weights on one device; with *replicas_split*, sharded over their replicas as well."""
    return cached_size(
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
        for axis in _weight_replicas(each, weight.name) if replicas_split else ():
            inside = INSIDE.get(axis, axis)
            replicas = replicas * sizes[inside if inside in sizes else axis]
        total = total + used_elements(each, weight, sizes) / replicas
    return total


def _weight_replicas(each: BlockPlan, weight: str) -> tuple[str, ...]:
    if each.used is None:
        return replicating_axes(each.shardings[weight], each.split.get(weight, ()))
    return tuple(axis for axis in ("dp", "cp") if axis not in each.used[weight].used)


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


# -------------------------------------------------------------------------------------------- activations


@cache
def kept_tensors(block: Block, keeping: ActivationKeeping, narrow: bool = False) -> dict[Tensor, frozenset[str]]:
    """Return the activations of a block that are kept until its backward pass, and by whom they are read.

    Readers are ``wide``, or ``narrow`` for GEMMs whose format is narrower than activations (*narrow*).
    """
    if keeping.recompute == "full":
        return {block.graph.tensors[name]: frozenset(("wide",)) for name in block.kept_whole}
    if keeping.recompute == "alternate":
        return dict.fromkeys(_alternate_tensors(block), frozenset(("wide",)))
    return _TensorReaders(block, keeping, narrow).found


def _alternate_tensors(block: Block) -> tuple[Tensor, ...]:
    """Return the block's input, the output of attention, and that of every second GEMM."""
    found = [block.graph.tensors[name] for name in block.kept_whole]
    products = [
        operator for operator in block.graph.operators if operator.kind == "einsum" and not is_adapter(operator.name)
    ]
    found += [operator.outputs[0] for operator in products[1::2]]
    return tuple(found + [operator.outputs[0] for operator in block.graph.operators if operator.kind == "attention"])


class _TensorReaders:
    """Collects what the backward pass of a block reads of its forward pass, where modules may be recomputed."""

    def __init__(self, block: Block, keeping: ActivationKeeping, narrow: bool) -> None:
        self.narrow = narrow and keeping.execution == "fused" and block.part == "layers"
        self.fuses = keeping.execution != "eager"
        self.makers = {operator.outputs[0].name: operator for operator in block.graph.operators}
        self.adapted = keeping.adapted
        again = recomputed_operators(block, keeping)
        self.discarded = _operators_in_modules(
            block, keeping.modules if keeping.recompute == "selective" else (), DISCARDED
        )
        readers: dict[Tensor, set[str]] = {}
        for operator in block.graph.operators:
            if operator.name in again:
                for tensor in operator.inputs:
                    maker = self.makers.get(tensor.name)
                    if tensor.role == "activation" and (maker is None or maker.name not in again):
                        readers.setdefault(tensor, set()).add("wide")  # enters what is recomputed
            elif not (operator.kind == "combine" and self.fuses):  # probabilities multiply the experts' activations
                for tensor in () if self.adapted and is_frozen(operator) else kept_activations(operator):
                    self.add(readers, tensor, operator)
        self.found = {tensor: frozenset(those) for tensor, those in readers.items()}

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


def kept_bytes(
    each: BlockPlan, keeping: ActivationKeeping, sizes: Sizes, recipe: Recipe, statistics: int = 1, cached: bool = False
) -> Numeric:
    """Return the activation bytes of one microbatch that a device keeps for the backward pass of one block.

    A norm keeps so many *statistics* of each row: its scale, and a layer norm's mean. With *cached*, keys and values
    are left out: they are those of the KV cache.
    """
    key = (kept_bytes, each, keeping, recipe.activation, recipe.saved, statistics, cached)
    return cached_size(sizes, key, lambda: _kept_bytes(each, keeping, sizes, recipe, statistics, cached))


def _kept_bytes(
    each: BlockPlan, keeping: ActivationKeeping, sizes: Sizes, recipe: Recipe, statistics: int, cached: bool
) -> Numeric:
    total: Numeric = 0.0
    for usual, tensors in zip((recipe.activation, recipe.saved or 0.0), _kept_once(each, keeping, recipe), strict=True):
        for tensor in tensors:
            if not (cached and "context" in tensor.dims):
                width = tensor.width(usual) if usual == recipe.activation else usual
                total = total + width * each.shardings[tensor.name].elements(tensor.dims, sizes)
    if keeping.recompute in ("full", "alternate"):
        return total
    again = recomputed_operators(each.block, keeping)
    for operator in each.block.graph.operators:
        if operator.name not in again:
            total = total + _bytes_beside_tensors(each, operator, keeping, sizes, statistics)
    return total


def _bytes_beside_tensors(
    each: BlockPlan, operator: Operator, keeping: ActivationKeeping, sizes: Sizes, statistics: int
) -> Numeric:
    """Return the bytes that an operator keeps beside its inputs and outputs: masks, statistics of rows, scores."""
    made = operator.outputs[0]
    sharding, extra = each.shardings[made.name], kinds[operator.kind].extra_bytes_per_output
    if extra:
        return extra * sharding.elements(made.dims, sizes)
    if operator.kind not in ("norm", "attention"):
        return 0.0
    rows = sharding.elements(made.dims[:-1], sizes)
    if operator.kind == "norm":
        return ROW_STATISTIC_BYTES * statistics * rows
    return _score_bytes(keeping.attention, rows, sizes[operator.inputs[1].dims[1]])


def _score_bytes(attention: str, rows: Numeric, keys: Numeric) -> Numeric:
    """Return what attention keeps beside its inputs and output: the log-sum-exp of each row if fused, else the scores.

    Unfused, each score keeps its softmax and the softmax after dropout (2 bytes each) and a mask (1), the 5 a s / h of
    Korthikanti et al., arXiv 2205.05198. Where layers with a window alone are, the fullest stage may have only those.
    """
    return 5.0 * rows * keys if attention.startswith("unfused") else ROW_STATISTIC_BYTES * rows


@cache
def _kept_once(
    each: BlockPlan, keeping: ActivationKeeping, recipe: Recipe
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the activations of a block that are kept in their own format, and in that of GEMMs, without views."""
    readers = kept_tensors(each.block, keeping, recipe.saved is not None)
    wide, narrow = ([tensor for tensor, those in readers.items() if who in those] for who in ("wide", "narrow"))
    return tuple(_without_views(each, wide)), tuple(_without_views(each, narrow))


def _without_views(each: BlockPlan, tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield *tensors* that are no view of another of them, of which each device has the same."""
    names = {tensor.name for tensor in tensors}
    views = {operator.outputs[0].name: operator for operator in each.block.graph.operators if operator.kind == "view"}
    for tensor in tensors:
        name = tensor.name
        while name in views and _is_view_in_place(each, views[name]):
            name = views[name].inputs[0].name
            if name in names:
                break
        else:
            yield tensor


def _is_view_in_place(each: BlockPlan, view: Operator) -> bool:
    """Return whether each device has the data of a view already: its factors are split as those of what it shows."""
    factors, source, made = factors_of(view), view.inputs[0], view.outputs[0]
    before, after = each.shardings[source.name], each.shardings[made.name]
    split = (factors.axes(source, factor, before) == factors.axes(made, factor, after) for factor in factors.names)
    return before.partial == after.partial and all(split)


def wide_elements(each: BlockPlan, keeping: ActivationKeeping, sizes: Sizes, usual: float = 1.0) -> Numeric:
    """Return the elements of a layer's input and wide activations: those whose gradients are alive together.

    One that states its bytes counts as so many of those that have the *usual* ones.
    """
    entering = [each.block.graph.tensors[name] for name in each.block.kept_whole]
    wide = [tensor for tensor in kept_tensors(each.block, keeping.all) if WIDE.intersection(tensor.dims)]
    found = ((tensor.width(usual) / usual, each.shardings[tensor.name], tensor.dims) for tensor in (*entering, *wide))
    return sum_of((share * sharding.elements(dims, sizes) for share, sharding, dims in found), 0.0)


def elementwise_largest(values: Iterable[Numeric]) -> Numeric:
    """Return the largest of some numbers or arrays, place by place; 0 if there are none."""
    found: Numeric = 0.0
    for value in values:
        found = np.maximum(found, value)
    return found


# ------------------------------------------------------------------------------------------ recomputation


@cache
def recomputed_operators(block: Block, keeping: ActivationKeeping) -> frozenset[str]:
    """Return the names of the operators of a block in modules that are recomputed: they keep nothing of their own."""
    if keeping.recompute != "selective" or block.part != "layers":
        return frozenset()
    return _operators_in_modules(block, keeping.modules, tuple(MODULES))


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
    made = block.graph.tensors
    if (module == "mlp" and "ffn_up" not in made) or (module == "mla_up_proj" and "kv_down_norm" not in made):
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
    return _repeated_operators(block, activation_keeping(workload), workload.recompute_to_end)


@cache
def _repeated_operators(block: Block, keeping: ActivationKeeping, to_end: bool) -> frozenset[str]:
    if keeping.recompute == "selective":
        return recomputed_operators(block, keeping)
    operators = block.graph.operators
    kept = {tensor.name for tensor in kept_tensors(block, keeping)}
    again = operators if to_end else operators[: _count_needed_operators(block, keeping)]
    return frozenset(
        operator.name for operator in again if keeping.recompute == "full" or operator.outputs[0].name not in kept
    )


def _count_needed_operators(block: Block, keeping: ActivationKeeping) -> int:
    """Return how many of a block's operators must run again before its backward pass has all that it reads."""
    read = {tensor.name for tensor in kept_tensors(block, keeping.all)}
    places = [
        index
        for index, operator in enumerate(block.graph.operators)
        if operator.outputs[0].name in read or kinds[operator.kind].extra_bytes_per_output
    ]
    return max(places, default=-1) + 1


def recomputed_share(batch: Batch, block: Block) -> Numeric:
    """Return the share of a block's layers that recompute, where only the first ones of each virtual stage do."""
    most = batch.base.workload.recompute_num_layers
    if most is None or block.part != "layers":
        return 1.0
    return batch.once((recomputed_share, block), lambda: _recomputed_share(batch, block, most))


def _recomputed_share(batch: Batch, block: Block, most: int) -> Numeric:
    stages: Numeric = batch["workload.pp"]
    every = [each.block for each in plan_of(batch)]
    count: Numeric = 0.0
    most_stages = sum(each.repeats for each in every if each.part == "layers") + 2  # both ends may have no layers
    for index in range(min(largest_whole(stages), most_stages)):
        for part in layers_by_part(batch, np.minimum(index, stages - 1), every, most):
            count = count + part[block.name] * (index < stages)
    return count / block.repeats


def is_collective_repeated(found: CollectiveOp, block: Block, workload: Workload) -> bool:
    """Return whether a forward collective runs again: with the operator that needs it."""
    return found.phase == "forward" and found.operator in repeated_operators(block, workload)
