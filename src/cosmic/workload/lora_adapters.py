"""LoRA: small trained matrices beside frozen weights (Hu et al., arXiv 2106.09685), as a rewriting of a model's blocks.

    y = x W          becomes          y = x W + (x A) B          A [k, r],  B [r, n],  r the rank

W is frozen: the backward pass makes the gradient of x, and none of W. A and B are trained; only they have gradients,
a master copy and moments, and only their gradients are reduced. Modules are named as in Megatron-LM, where one fused
GEMM makes queries, keys and values, another the gate and the input of a feed-forward network. GEMMs of one module that
read the same tensor share A, and each has its columns of B: the same products as those of a fused module.

A served model has many adapters, in 16 bits whatever the format of W, and each request names one: a step multiplies
the tokens of each adapter by its own A and B, as grouped GEMMs do (Punica, arXiv 2310.18547; S-LoRA, arXiv 2311.03285).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from cosmic.design.model_layer import Model
from cosmic.design.workload_layer import Workload
from cosmic.workload.model_blocks import Block, blocks
from cosmic.workload.operator_graph import Graph, Operator, Tensor
from cosmic.workload.precision import is_adapter

RANK = "lora_rank"
MODULES = {
    "linear_qkv": ("q", "k", "v"),
    "linear_proj": ("out",),
    "linear_fc1": ("ffn_up", "ffn_gate", "shared_ffn_up", "shared_ffn_gate", "expert_ffn_up", "expert_ffn_gate"),
    "linear_fc2": ("ffn_down", "shared_ffn_down", "expert_down"),
    "linear_q_proj": ("q",),
    "linear_q_down_proj": ("q_down",),
    "linear_q_up_proj": ("q_up",),
    "linear_kv_down_proj": ("kv_down", "k_position"),
    "linear_kv_up_proj": ("k_up", "v_up"),
}
"""The GEMMs of each module that may have an adapter. The last five are MLA's."""


def trains_adapters(workload: Workload) -> bool:
    """Return whether a workload trains adapters, and freezes all other weights."""
    return workload.task == "training" and workload.lora_rank is not None


def is_trained(workload: Workload, name: str) -> bool:
    """Return whether a workload trains the weight called *name*."""
    return not trains_adapters(workload) or is_adapter(name)


def targets_of(workload: Workload) -> tuple[str, ...]:
    """Return the modules that have adapters."""
    return () if workload.lora_rank is None else workload.lora_targets


def trained_weights(block: Block, adapted: bool) -> frozenset[str]:
    """Return the names of a block's weights that have gradients: of an *adapted* model, its adapters."""
    return frozenset(weight.name for weight in block.graph.weights if is_adapter(weight.name) or not adapted)


def is_frozen(operator: Operator) -> bool:
    """Return whether the weight of a GEMM of an adapted model is frozen."""
    return operator.kind == "einsum" and not any(is_adapter(tensor.name) for tensor in operator.inputs)


def weight_gradient_share(workload: Workload) -> float:
    """Return the share of a backward pass that makes the gradients of weights: half, and none worth naming of adapters.

    >>> weight_gradient_share(Workload(sequence=1, global_batch=1, lora_rank=8))
    0.0
    """
    return 0.0 if trains_adapters(workload) else 0.5


@cache
def workload_blocks(model: Model, dropout: bool, targets: tuple[str, ...]) -> tuple[Block, ...]:
    """Return the blocks of *model*, with adapters beside the GEMMs of its *targets*."""
    plain = blocks(model, dropout)
    return tuple(_add_adapters(block, targets) for block in plain) if targets else plain


def _add_adapters(block: Block, targets: tuple[str, ...]) -> Block:
    """Return a block whose targets have adapters; only layers have some."""
    if block.part != "layers":
        return block
    names = {operator.name for operator in block.graph.operators}
    # A fused qkv GEMM is there only where keys are projected from the hidden state directly.
    fused = [module for module in targets if module != "linear_qkv" or "k" in names]  # MLA has other modules
    module_of = {name: module for module in fused for name in MODULES[module]}
    operators: list[Operator] = []
    inner: dict[tuple[str, str], Tensor] = {}
    for operator in block.graph.operators:
        module = module_of.get(operator.name)
        if operator.kind != "einsum" or module is None:
            operators.append(operator)
            continue
        operators += _add_adapter(operator, module, inner)
    return replace(block, graph=Graph(tuple(operators))) if inner else block


def _add_adapter(operator: Operator, module: str, inner: dict[tuple[str, str], Tensor]) -> Iterator[Operator]:
    """Yield a GEMM with its adapter, whose sum takes the place of its result; *inner* has each module's x A."""
    read, weight = operator.inputs[:2]
    result = operator.outputs[0]
    # Dimensions of a weight: those of experts lead, k is summed over, n is new.
    lead = tuple(dim for dim in weight.dims if dim in read.dims and dim in result.dims)
    summed = tuple(dim for dim in weight.dims if dim in read.dims and dim not in result.dims)
    added = tuple(dim for dim in weight.dims if dim not in read.dims)
    frozen = Tensor(f"{result.name}_frozen", result.dims)
    yield replace(operator, outputs=(frozen,))
    if (module, read.name) not in inner:
        first = Tensor(f"{weight.name}_lora_a", (*lead, *summed, RANK), "weight")
        small = Tensor(f"{result.name}_lora_a", (*(dim for dim in read.dims if dim not in summed), RANK))
        inner[module, read.name] = small
        yield Operator(small.name, "einsum", (read, first), (small,))
    second = Tensor(f"{weight.name}_lora_b", (*lead, RANK, *added), "weight")
    low = Tensor(f"{result.name}_lora_b", result.dims)
    yield Operator(low.name, "einsum", (inner[module, read.name], second), (low,))
    yield Operator(f"{result.name}_adapted", "add", (frozen, low), (result,))
