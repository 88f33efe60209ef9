"""Parameters of the parts of a transformer, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosmic.design.model_parts import MLA

if TYPE_CHECKING:
    from cosmic.design.model import Transformer


def mixing_parameters(model: Transformer) -> int:
    """Return the parameters that mix n residual streams before and after a mixer: into one, back into n, and n by n."""
    n = model.residual_streams
    return (n * n + 2 * n) * n * model.hidden


def attention_parameters(model: Transformer) -> int:
    """Return the parameters of one attention block: projections, their biases, norms inside."""
    if model.mla:
        return _mla_parameters(model, model.mla)
    query, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    weights = model.hidden * (query + 2 * keys) + query * model.hidden
    weights += model.attention_gate * model.hidden * query
    biases = ("qkv" in model.biases) * (query + 2 * keys) + ("out" in model.biases) * model.hidden
    return weights + biases + model.qk_norm * 2 * model.head_dim + model.sinks * model.heads


def _mla_parameters(model: Transformer, mla: MLA) -> int:
    d, h = model.hidden, model.heads
    query_width = h * (model.head_dim + mla.qk_rope_head_dim)
    if mla.q_lora_rank is None:
        query = d * query_width
    else:
        query = d * mla.q_lora_rank + mla.q_lora_rank + mla.q_lora_rank * query_width
    compress = d * (mla.kv_lora_rank + mla.qk_rope_head_dim) + mla.kv_lora_rank
    expand = mla.kv_lora_rank * h * (model.head_dim + mla.v_head_dim)
    return query + compress + expand + h * mla.v_head_dim * d


def ffn_parameters(model: Transformer) -> int:
    """Return the parameters of a dense feed-forward layer."""
    weights = (2 + model.gated) * model.hidden * model.ffn
    return weights + ("ffn" in model.biases) * ((1 + model.gated) * model.ffn + model.hidden)


def moe_parameters(model: Transformer, counted: int) -> int:
    """Return the parameters of one MoE layer, counting *counted* routed experts."""
    experts = model.experts
    if experts is None:
        return 0
    d, matrices = model.hidden, 2 + model.gated
    width = experts.latent_width or d
    biases = ("experts" in model.biases) * ((1 + model.gated) * experts.ffn + width)
    routed = counted * (matrices * width * experts.ffn + biases) + 2 * d * experts.latent_width
    shared = matrices * d * experts.shared_ffn + experts.shared_gate * d
    router = experts.count * (d + ("router" in model.biases))
    return routed + shared + router


def norm_parameters(model: Transformer) -> int:
    """Return the parameters of one norm."""
    return model.hidden * (1 + (model.norm == "layernorm" and model.norm_bias))


def embedding_parameters(model: Transformer) -> int:
    """Return the parameters before the first layer and after the last norm."""
    d, norm = model.hidden, norm_parameters(model)
    total = d * (model.positions + model.segments) + model.position_buckets * model.heads
    total += model.embedding_norm * norm + ("head" in model.biases) * model.vocab
    if model.pretraining_heads:
        total += 2 * (d * d + d) + norm + 2 * (d + 1)
    if model.image:
        patch = model.image.channels * model.image.patch**2
        return total + d * (patch + 1 + model.image.class_token) + d * model.vocab
    return total + d * model.vocab * (1 if model.tied_embeddings else 2)
