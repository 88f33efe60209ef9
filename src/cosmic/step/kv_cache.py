"""The KV cache of a device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cosmic.design.batch import Batch
from cosmic.design.model import Model, Transformer
from cosmic.numeric import Numeric, floats, sum_of
from cosmic.workload.plan import BlockPlan
from cosmic.workload.precision import Recipe


def cache_bytes(
    batch: Batch, counts: Mapping[str, Numeric], blocks: Mapping[str, BlockPlan], recipe: Recipe
) -> Numeric:
    """Bytes of the KV cache on a device: of every token of every sequence, in layers that decode.

    MLA caches one compressed vector per token. A sliding window caches its last tokens only. Layers that read an
    encoder cache its keys and values too; the layers of an encoder cache nothing.
    """
    model = batch.base.model
    if not isinstance(model, Transformer) or not is_decoder(model):
        return 0.0
    per_token: Numeric = 2 * np.ceil(model.kv_heads / batch["workload.tp"]) * model.head_dim
    crossed = per_token if model.family == "encoder_decoder" else 0.0
    if model.mla:
        per_token = model.mla.kv_lora_rank + model.mla.qk_rope_head_dim
    tokens = floats(batch["workload.sequence"] / batch["workload.cp"])
    windowed = tokens if model.window is None else np.minimum(tokens, model.window)
    full = 1.0 if model.window is None else 1 / model.full_attention_every if model.full_attention_every else 0.0
    held = per_token * (full * tokens + (1 - full) * windowed) + crossed * tokens
    layers = sum_of(
        counts[name]
        for name, each in blocks.items()
        if each.block.part == "layers" and each.block.name != "encoder_layer"
    )
    sequences: Numeric = np.ceil(batch["workload.global_batch"] / batch["workload.dp"])
    return layers * sequences * recipe.cache * held


def is_decoder(model: Model) -> bool:
    """Return whether a model generates tokens, one after the other."""
    return isinstance(model, Transformer) and model.family in ("decoder", "encoder_decoder")
