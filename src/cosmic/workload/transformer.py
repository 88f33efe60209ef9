"""Transformers as operators: decoders, encoders, encoder-decoders, MoE, vision transformers."""

from __future__ import annotations

from cosmic.design.model import Transformer, moe_layers
from cosmic.workload.blocks import TOKENS, Block, Builder
from cosmic.workload.graph import Tensor

HIDDEN = (*TOKENS, "hidden")
SOURCE = ("batch", "source", "hidden")
"""The encoder's output, to which the decoder attends."""


def transformer_blocks(model: Transformer, dropout: bool = False) -> tuple[Block, ...]:
    """Return the blocks of a transformer: embedding, each kind of layer, head."""
    moe_count = moe_layers(model)
    cross = model.family == "encoder_decoder"
    found = [embedding(model)]
    if cross:
        found.append(_layer(model, "encoder_layer", model.encoder_layers, dropout=dropout))
    if model.layers > moe_count:
        found.append(_layer(model, "layer", model.layers - moe_count, cross=cross, dropout=dropout))
    if moe_count:
        found.append(_layer(model, "moe_layer", moe_count, moe=True, cross=cross, dropout=dropout))
    return (*found, head(model))


# ------------------------------------------------------------------------------------------------ layers


def _layer(
    model: Transformer, name: str, repeats: int, *, moe: bool = False, cross: bool = False, dropout: bool = False
) -> Block:
    build = Builder()
    entering = Tensor("x", HIDDEN)
    normed = _norm(build, model, "attention_norm", entering)
    mixed = _dropped(build, "attention_dropped", self_attention(build, model, normed), dropout)
    if model.parallel_block:
        alone = model.norms_per_layer == 1
        other = normed if alone else _norm(build, model, "ffn_norm", entering)
        added = build.apply("add", "mixed", (mixed, feed_forward(build, model, other, moe)), HIDDEN)
        build.apply("add", "y", (entering, added), HIDDEN)
        return Block(name, build.graph(), repeats, "layers", ("x",))
    if model.norms_per_layer == 4:
        mixed = _norm(build, model, "attention_post_norm", mixed)
    between = build.apply("add", "attended", (entering, mixed), HIDDEN)
    if cross:
        reading = _norm(build, model, "cross_norm", between)
        crossed = cross_attention(build, model, reading)
        between = build.apply("add", "crossed", (between, crossed), HIDDEN)
    forward = feed_forward(build, model, _norm(build, model, "ffn_norm", between), moe)
    forward = _dropped(build, "ffn_dropped", forward, dropout)
    if model.norms_per_layer == 4:
        forward = _norm(build, model, "ffn_post_norm", forward)
    build.apply("add", "y", (between, forward), HIDDEN)
    return Block(name, build.graph(), repeats, "layers", ("x",))


def _norm(build: Builder, model: Transformer, name: str, read: Tensor, over: str = "hidden") -> Tensor:
    return build.norm(name, read, over, bias=model.norm == "layernorm" and model.norm_bias)


def _dropped(build: Builder, name: str, read: Tensor, dropout: bool) -> Tensor:
    return build.apply("dropout", name, (read,), read.dims) if dropout else read


def self_attention(build: Builder, model: Transformer, read: Tensor) -> Tensor:
    """Add self-attention; return what it adds to the residual stream."""
    if model.mla:
        query, key, value = _mla_projections(build, model, read)
    else:
        query, key, value = _projections(build, model, read, "")
    query = build.apply("view", "query", (query,), query.dims)
    return _attend(build, model, "", (query, _as_context(build, "key", key), _as_context(build, "value", value)))


def cross_attention(build: Builder, model: Transformer, read: Tensor) -> Tensor:
    """Add attention of the decoder to the encoder's output."""
    source = Tensor("encoded", SOURCE)
    query = build.linear("cross_q", read, ("hidden",), ("heads", "head_dim"))
    key = build.linear("cross_k", source, ("hidden",), ("kv_heads", "head_dim"))
    value = build.linear("cross_v", source, ("hidden",), ("kv_heads", "head_dim"))
    return _attend(build, model, "cross_", (query, key, value))


def _projections(build: Builder, model: Transformer, read: Tensor, prefix: str) -> tuple[Tensor, Tensor, Tensor]:
    bias = "qkv" in model.biases
    query = build.linear(f"{prefix}q", read, ("hidden",), ("heads", "head_dim"), bias=bias)
    key = build.linear(f"{prefix}k", read, ("hidden",), ("kv_heads", "head_dim"), bias=bias)
    value = build.linear(f"{prefix}v", read, ("hidden",), ("kv_heads", "head_dim"), bias=bias)
    if model.qk_norm:
        query = _norm(build, model, "q_norm", query, "head_dim")
        key = _norm(build, model, "k_norm", key, "head_dim")
    if rotary(model):
        query = build.apply("rope", "q_placed", (query,), query.dims)
        key = build.apply("rope", "k_placed", (key,), key.dims)
    return query, key, value


def rotary(model: Transformer) -> bool:
    """Return whether queries and keys have rotary embeddings: where there are no other position embeddings."""
    return model.family == "decoder" and not model.positions and not model.position_buckets


def _mla_projections(build: Builder, model: Transformer, read: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Add the projections of MLA; return queries, keys and values."""
    if model.mla and model.mla.q_lora_rank:
        small = _norm(
            build, model, "q_down_norm", build.linear("q_down", read, ("hidden",), ("q_lora_rank",)), "q_lora_rank"
        )
        query = build.linear("q_up", small, ("q_lora_rank",), ("heads", "qk_dim"))
    else:
        query = build.linear("q", read, ("hidden",), ("heads", "qk_dim"))
    query = build.apply("rope", "q_placed", (query,), query.dims)
    shared = build.linear("kv_down", read, ("hidden",), ("kv_lora_rank",))
    position = build.linear("k_position", read, ("hidden",), ("qk_rope_head_dim",))
    small = _norm(build, model, "kv_down_norm", shared, "kv_lora_rank")
    content = build.linear("k_up", small, ("kv_lora_rank",), ("heads", "head_dim"))
    value = build.linear("v_up", small, ("kv_lora_rank",), ("heads", "v_head_dim"))
    key = build.apply("rope", "k_placed", (content, position), (*TOKENS, "heads", "qk_dim"))
    return query, key, value


def _as_context(build: Builder, name: str, read: Tensor) -> Tensor:
    """Rename the ``sequence`` of keys or values to ``context``: the same numbers under another name."""
    dims = tuple("context" if dim == "sequence" else dim for dim in read.dims)
    return build.apply("view", name, (read,), dims, same=(("context", "sequence"),))


def _attend(build: Builder, model: Transformer, prefix: str, read: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    query, key, value = read
    context = key.dims[1]
    dims = (*query.dims[:3], value.dims[3])
    grouped = (("kv_heads", "heads"),) if "kv_heads" in key.dims else ()
    sinks = (Tensor("w_sinks", ("heads",), "weight"),) if model.sinks and not prefix else ()
    attended = build.apply("attention", f"{prefix}attention", (*read, *sinks), dims, same=grouped, whole=(context,))
    leaving = build.apply("view", f"{prefix}leaving", (attended,), dims)
    return build.linear(f"{prefix}out", leaving, ("heads", value.dims[3]), ("hidden",), bias="out" in model.biases)


# ------------------------------------------------------------------------------------------ feed-forward


def feed_forward(build: Builder, model: Transformer, read: Tensor, moe: bool) -> Tensor:
    """Add the feed-forward network of a layer: dense or MoE."""
    if not moe or model.experts is None:
        return _perceptron(build, model, "ffn", read, bias="ffn" in model.biases)
    routed = _routed(build, model, read)
    if not model.experts.shared_ffn:
        return routed
    shared = _perceptron(build, model, "shared_ffn", read)
    if model.experts.shared_gate:
        weight = build.linear("shared_gate", read, ("hidden",), ("gate",))
        shared = build.apply("multiply", "shared_gated", (shared, weight), shared.dims)
    return build.apply("add", "experts_added", (routed, shared), read.dims)


def _perceptron(build: Builder, model: Transformer, width: str, read: Tensor, *, bias: bool = False) -> Tensor:
    """Add an MLP of two or three matrices; *width* is its inner dimension."""
    inner = _activated(build, model, width, read, (), bias)
    return build.linear(f"{width}_down", inner, (width,), ("hidden",), bias=bias)


def _activated(
    build: Builder, model: Transformer, width: str, read: Tensor, lead: tuple[str, ...], bias: bool
) -> Tensor:
    """Add the first half of an MLP; *lead* is the dimension of experts where each has its own weights."""

    def project(name: str) -> Tensor:
        weight = Tensor(f"w_{name}", (*lead, "hidden", width), "weight")
        dims = (*(dim for dim in read.dims if dim != "hidden"), width)
        made = build.apply("einsum", name, (read, weight), dims)
        offset = Tensor(f"b_{name}", (*lead, width), "weight")
        return build.apply("bias", f"{name}_biased", (made, offset), dims) if bias else made

    up = project(f"{width}_up")
    if not model.gated:
        return build.apply("gelu", f"{width}_inner", (up,), up.dims)
    gate = build.apply("silu", f"{width}_gate_open", (project(f"{width}_gate"),), up.dims)
    return build.apply("multiply", f"{width}_inner", (gate, up), up.dims)


def _routed(build: Builder, model: Transformer, read: Tensor) -> Tensor:
    """Add an MoE: route, dispatch each token to its experts, compute, and combine the results.

    An expert gets a ``share`` of the tokens, active / experts of them on average. To experts a token is a token of any
    sequence: batch and sequence are one dimension, ``tokens``.
    """
    bias = "experts" in model.biases
    scores = build.linear("router", read, ("hidden",), ("experts",), bias="router" in model.biases)
    chosen = build.apply("router", "chosen", (scores,), (*TOKENS, "active"), whole=("experts",))
    slots = ("experts", "tokens", "share", "hidden")
    same = (("tokens", "batch"), ("tokens", "sequence"))
    sent = build.apply("dispatch", "sent", (read, chosen), slots, same=same)
    inner = _activated(build, model, "expert_ffn", sent, ("experts",), bias)
    weight = Tensor("w_expert_down", ("experts", "expert_ffn", "hidden"), "weight")
    made = build.apply("einsum", "expert_down", (inner, weight), slots)
    if bias:
        offset = Tensor("b_expert_down", ("experts", "hidden"), "weight")
        made = build.apply("bias", "expert_down_biased", (made, offset), slots)
    return build.apply("combine", "combined", (made, chosen), read.dims, same=same)


# ---------------------------------------------------------------------------------------- first and last


def embedding(model: Transformer) -> Block:
    """Return the block that embeds tokens or images."""
    build = Builder()
    if model.image:
        patches = Tensor("patches", (*TOKENS, "patch"), "input")
        vectors = build.linear("patch", patches, ("patch",), ("hidden",), bias=True)
        if model.image.class_token:
            start = Tensor("w_class", ("class_tokens", "hidden"), "weight")
            vectors = build.apply("bias", "with_class", (vectors, start), HIDDEN)
    else:
        tokens = Tensor("tokens", (*TOKENS, "vocab"), "index")
        vectors = build.apply("embedding", "embedded", (tokens, vocabulary(model)), HIDDEN)
    for name, there in (("positions", model.positions), ("segments", model.segments)):
        if there:
            vectors = build.apply(
                "bias", f"with_{name}", (vectors, Tensor(f"w_{name}", (name, "hidden"), "weight")), HIDDEN
            )
    if model.position_buckets:
        distances = Tensor("w_distances", ("stacks", "buckets", "heads"), "weight")
        vectors = build.apply("bias", "with_distances", (vectors, distances), HIDDEN)
    if model.embedding_norm:
        _norm(build, model, "embedding_norm", vectors)
    return Block("embedding", build.graph(), 1, "first")


def vocabulary(model: Transformer) -> Tensor:
    """Return the embedding table, which the head shares where embeddings are tied."""
    return Tensor("w_vocabulary" if model.tied_embeddings else "w_embedding", ("vocab", "hidden"), "weight")


def head(model: Transformer) -> Block:
    """Return the block of the head and the loss."""
    build = Builder()
    last = Tensor("x", HIDDEN)
    if model.final_norm:
        last = _norm(build, model, "final_norm", last)
    if model.family == "encoder_decoder" and model.final_norm:
        _norm(build, model, "encoder_final_norm", Tensor("encoded", SOURCE))
    if model.image:
        last = build.apply("pool", "pooled", (last,), ("batch", "hidden"), whole=("sequence",))
    if model.pretraining_heads:
        last = _pretraining_heads(build, model, last)
    table = vocabulary(model) if model.tied_embeddings else Tensor("w_head", ("vocab", "hidden"), "weight")
    dims = (*last.dims[:-1], "vocab")
    logits = build.apply("einsum", "logits", (last, table), dims)
    if "head" in model.biases:
        logits = build.apply("bias", "logits_biased", (logits, Tensor("b_head", ("vocab",), "weight")), dims)
    build.apply("loss", "loss", (logits,), dims[:-1])
    return Block("head", build.graph(), 1, "last", ("x",))


def _pretraining_heads(build: Builder, model: Transformer, last: Tensor) -> Tensor:
    """Add BERT's two heads: next-sentence prediction from the first token, masked words from every token."""
    first = build.apply("pool", "first_token", (last,), ("batch", "hidden"), whole=("sequence",))
    pooled = build.linear("pooler", first, ("hidden",), ("hidden_out",), bias=True)
    build.linear(
        "next_sentence", build.apply("tanh", "pooled", (pooled,), pooled.dims), ("hidden_out",), ("pair",), bias=True
    )
    weight = Tensor("w_transform", ("hidden", "hidden_out"), "weight")
    turned = build.apply("einsum", "transform", (last, weight), (*TOKENS, "hidden_out"))
    turned = build.apply(
        "bias", "transform_biased", (turned, Tensor("b_transform", ("hidden_out",), "weight")), turned.dims
    )
    turned = build.apply("gelu", "transform_open", (turned,), turned.dims)
    named = build.apply("view", "transformed", (turned,), HIDDEN, same=(("hidden", "hidden_out"),))
    return _norm(build, model, "transform_norm", named)
