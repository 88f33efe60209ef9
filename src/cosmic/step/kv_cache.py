"""What a device keeps of the sequences that it serves: the KV cache, and the states of state-space layers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cosmic.base.numeric import Numeric, floats, sum_of
from cosmic.design.design_batch import Batch
from cosmic.design.model_layer import Model, SparseAttention, StateSpace, Transformer, layer_kinds
from cosmic.step.scan import STATE_BYTES
from cosmic.workload.block_plans import BlockPlan
from cosmic.workload.precision import Recipe

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
    held = per_token * (full * tokens + (1 - full) * windowed) + crossed * tokens
    attending = sum_of((counts[name] for name, block in blocks.items() if _caches_tokens(block, "attention")), 0.0)
    sequences: Numeric = np.ceil(batch["workload.global_batch"] / batch["workload.dp"])
    cached = attending * sequences * recipe.cache * held
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
    held: Numeric = 0.0
    for kind in layer_kinds(model):
        block = sparse.compressed(kind)
        width = model.head_dim + (sparse.index_dim if kind.startswith("sparse_") else 0)
        blocks: Numeric = tokens / block * width if block else 0.0
        recent = np.minimum(tokens, float(sparse.window)) * model.head_dim
        held = held + counts[kind] * (recent + blocks)
    return sequences * recipe.cache * held


def _caches_tokens(each: BlockPlan, operator: str) -> bool:
    """Return whether a block is a layer that decodes, and has an operator of that name."""
    layer = each.block.part == "layers" and each.block.name != "encoder_layer"
    return layer and operator in each.block.graph.tensors


def state_bytes(ssm: StateSpace) -> int:
    """Return the bytes that a state space keeps of one sequence.

    >>> state_bytes(StateSpace(heads=64, head_dim=64, groups=8, state=128))
    2134016
    """
    return STATE_BYTES * ssm.kept + CONVOLVED_BYTES * ssm.convolved * (ssm.conv - 1)


def is_decoder(model: Model) -> bool:
    """Return whether a model generates tokens, one after the other."""
    return isinstance(model, Transformer) and model.family in ("decoder", "encoder_decoder")
