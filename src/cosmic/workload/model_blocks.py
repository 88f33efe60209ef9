"""A model as blocks: its graphs, and how often each occurs.

Transformers are decoders, encoders, encoder-decoders, MoE, vision transformers, state spaces; recommenders are embedding
tables, two perceptrons and pairwise interaction (DLRM).

**State-space layers** (Mamba-2, gated DeltaNet, Mamba-1). Heads are the dimension that tensor parallelism splits. What
groups of heads share (B and C, keys and queries) is split with them: a head counts its part of them, so that one
projection, one convolution and one scan make a layer

    x ──projection──▶ gate, values, B, C, steps ──convolution──▶ ──scan──▶ ──gated norm──▶ ──projection──▶

Under context parallelism the sequence is whole from the convolution to the scan, and heads are split instead, as in
Megatron-LM: an all-to-all before and one after (`catalog/strategies/context_parallel.yaml`).

**Attention to few keys** (DeepSeek-V4): a window, compressed blocks, and an index that picks some of them. All heads read
one vector per token, as key and as value. What a query reads of the window and of compressed keys is the share of pairs
that `cosmic.workload.attended_keys.attended_share` says. The index is attention of its own, of narrow heads, to all
compressed keys before a query: `index_context` is how many that are on average.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from cosmic.base.numeric import Numeric, expm1
from cosmic.design.model_layer import (
    Model,
    Recommender,
    SparseAttention,
    StateSpace,
    Transformer,
    layer_kinds,
    mtp_kinds,
)
from cosmic.design.program_model import ProgramModel
from cosmic.workload.operator_graph import Graph, Operator, Tensor

TOKENS = ("batch", "sequence")


@dataclass(frozen=True, slots=True, eq=False)  # made once for each model, and compared by identity
class Block:
    """A part of a model that a pipeline stage holds as a whole: a layer, the embedding, the head."""

    name: str
    graph: Graph
    repeats: int
    part: str
    """Its place in the model: ``first`` (embeddings), ``layers``, or ``last`` (head and loss)."""
    kept_whole: tuple[str, ...] = ()
    """Names of its input tensors: all that full recomputation keeps."""
    handed: tuple[str, ...] = ()
    """Of a part of a program that is repeated, what it hands to its next run."""


def is_decoded(block: Block, operator: Operator) -> bool:
    """Return whether an operator runs when a token is decoded: the encoder has run, its keys and values are cached."""
    return block.name != "encoder_layer" and not any("source" in tensor.dims for tensor in operator.outputs)


class Builder:
    """Collects operators; each method adds one and returns its output."""

    def __init__(self) -> None:
        self.operators: list[Operator] = []

    def apply(
        self, kind: str, name: str, inputs: tuple[Tensor, ...], dims: tuple[str, ...], **details: tuple[object, ...]
    ) -> Tensor:
        """Add an operator of any kind with one output, the activation *name*."""
        output = Tensor(name, dims)
        self.operators.append(Operator(name, kind, inputs, (output,), **details))  # type: ignore[arg-type]
        return output

    def linear(
        self, name: str, read: Tensor, inner: tuple[str, ...], outer: tuple[str, ...], *, bias: bool = False
    ) -> Tensor:
        """Add a GEMM with a weight: the *inner* dimensions are summed over, the *outer* ones are new."""
        weight = Tensor(f"w_{name}", inner + outer, "weight")
        dims = tuple(dim for dim in read.dims if dim not in inner) + outer
        product = self.apply("einsum", name, (read, weight), dims)
        if not bias:
            return product
        offset = Tensor(f"b_{name}", outer, "weight")
        return self.apply("bias", f"{name}_biased", (product, offset), dims)

    def norm(self, name: str, read: Tensor, over: str, *, bias: bool) -> Tensor:
        """Add a normalisation over one dimension, with a scale and, with *bias*, an offset."""
        weights = (Tensor(f"w_{name}", (over,), "weight"),) + (
            (Tensor(f"b_{name}", (over,), "weight"),) if bias else ()
        )
        return self.apply("norm", name, (read, *weights), read.dims, whole=(over,))

    def graph(self) -> Graph:
        """Return the graph of the collected operators."""
        return Graph(tuple(self.operators))


@cache
def blocks(model: Model, dropout: bool = False) -> tuple[Block, ...]:
    """Return the blocks of *model*, in the order in which data passes through them."""
    if isinstance(model, Recommender):
        return build_recommender_blocks(model)
    if isinstance(model, ProgramModel):
        from cosmic.workload.user_programs.program_blocks import build_program_blocks  # noqa: PLC0415  it builds on this module

        return build_program_blocks(model)
    return build_transformer_blocks(model, dropout)


@cache
def dimensions(model: Model) -> Mapping[str, float]:
    """Return the sizes of the dimensions that *model* fixes; batch and sequence come from the workload."""
    if isinstance(model, Recommender):
        return recommender_dimensions(model)
    if isinstance(model, ProgramModel):
        return model.sizes
    sizes: dict[str, float] = {
        "hidden": model.hidden,
        "hidden_out": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "ffn": model.ffn,
        "vocab": model.vocab,
        "positions": model.positions,
        "segments": model.segments,
        "buckets": model.position_buckets,
        "pair": 2,
        "stacks": 2 if model.family == "encoder_decoder" else 1,
    }
    if model.mla:
        sizes |= {
            "kv_lora_rank": model.mla.kv_lora_rank,
            "q_lora_rank": model.mla.q_lora_rank or 0,
            "qk_rope_head_dim": model.mla.qk_rope_head_dim,
            "qk_dim": model.head_dim + model.mla.qk_rope_head_dim,
            "v_head_dim": model.mla.v_head_dim,
        }
    if model.experts:
        experts = model.experts
        sizes |= {
            "experts": experts.count,
            "routed": experts.count,
            "active": experts.active,
            "share": (experts.capacity_factor or 1.0) * experts.active / experts.count,
            "expert_ffn": experts.ffn,
            "shared_ffn": experts.shared_ffn,
            "latent": experts.latent_width,
            "gate": 1,
        }
    streams = model.residual_streams
    sizes |= {"streams": streams, "mixing": streams * streams + 2 * streams, "streams_read": streams}
    if model.sparse:
        sizes |= sparse_sizes(model, model.sparse)
    if model.ssm:
        sizes |= state_sizes(model)
    if model.image:
        sizes |= {"patch": model.image.channels * model.image.patch**2, "class_tokens": int(model.image.class_token)}
    return sizes


# ---- Transformers: attention, state spaces, feed-forward networks, MoE, embeddings, head

HIDDEN = (*TOKENS, "hidden")
SOURCE = ("batch", "source", "hidden")
"""The encoder's output, to which the decoder attends."""


def build_transformer_blocks(model: Transformer, dropout: bool = False) -> tuple[Block, ...]:
    """Return the blocks of a transformer: embedding, each kind of layer, what predicts further tokens, head."""
    cross = model.family == "encoder_decoder"
    parts = [build_embedding(model)]
    if cross:
        parts.append(_build_layer(model, "encoder_layer", model.encoder_layers, dropout=dropout))
    for kind, count in layer_kinds(model).items():
        if model.single_mixers:
            parts.append(_build_single_layer(model, kind, count, dropout))
        else:
            parts.append(_build_layer(model, kind, count, cross=cross, dropout=dropout))
    if model.mtp_layers:
        parts.append(_build_mtp(model, dropout))
    return (*parts, build_head(model))


# ---- layers


def _build_layer(model: Transformer, name: str, repeats: int, *, cross: bool = False, dropout: bool = False) -> Block:
    build = Builder()
    _add_layer(build, model, name, Tensor("x", _stream_dims(model)), cross=cross, dropout=dropout)
    return Block(name, build.graph(), repeats, "layers", ("x",))


def _add_layer(
    build: Builder, model: Transformer, kind: str, entering: Tensor, *, cross: bool = False, dropout: bool = False
) -> None:
    """Add a layer with a mixer and a feed-forward network, from its input to its output ``y``."""
    moe = "moe_" in kind
    normed = _add_norm(build, model, "attention_norm", _add_stream_mixing(build, "attention", entering))
    mixed = _add_dropout(build, "attention_dropped", _add_mixer(build, model, kind, normed), dropout)
    if model.parallel_block:
        shared_norm = model.norms_per_layer == 1
        ffn_input = normed if shared_norm else _add_norm(build, model, "ffn_norm", entering)
        added = build.apply("add", "mixed", (mixed, add_feed_forward(build, model, ffn_input, moe)), HIDDEN)
        build.apply("add", "y", (entering, added), HIDDEN)
        return
    if model.norms_per_layer == 4:
        mixed = _add_norm(build, model, "attention_post_norm", mixed)
    stream = build.apply("add", "attended", (entering, mixed), entering.dims)
    if cross:
        reading = _add_norm(build, model, "cross_norm", stream)
        crossed = add_cross_attention(build, model, reading)
        stream = build.apply("add", "crossed", (stream, crossed), HIDDEN)
    reading = _add_stream_mixing(build, "ffn", stream)
    forward = add_feed_forward(build, model, _add_norm(build, model, "ffn_norm", reading), moe)
    forward = _add_dropout(build, "ffn_dropped", forward, dropout)
    if model.norms_per_layer == 4:
        forward = _add_norm(build, model, "ffn_post_norm", forward)
    build.apply("add", "y", (stream, forward), entering.dims)


def _stream_dims(model: Transformer) -> tuple[str, ...]:
    """Return the dimensions of the residual stream: one vector for each token, or several."""
    return (*TOKENS, "streams", "hidden") if model.residual_streams > 1 else HIDDEN


def _add_stream_mixing(build: Builder, name: str, read: Tensor, mixing: str = "mixing") -> Tensor:
    """Add what mixes several residual streams into the one that a mixer reads, with weights that follow from them."""
    if "streams" not in read.dims:
        return read
    weight = Tensor(f"w_{name}_mix", ("streams", "hidden", mixing), "weight")
    return build.apply("mix_streams", f"{name}_mixed", (read, weight), HIDDEN, whole=("streams",))


def _add_mixer(build: Builder, model: Transformer, kind: str, normed: Tensor) -> Tensor:
    """Add what mixes the tokens of a sequence: attention, a state space, or both side by side."""
    if kind.startswith("state_"):
        return add_state_space(build, model, normed)
    if kind.startswith(("window_", "sparse_", "heavy_")):
        return add_sparse_attention(build, model, kind, normed)
    attended = add_self_attention(build, model, normed)
    if not kind.startswith("parallel_"):
        return attended
    return build.apply("add", "mixers_added", (attended, add_state_space(build, model, normed)), HIDDEN)


def _build_single_layer(model: Transformer, kind: str, repeats: int, dropout: bool) -> Block:
    """Return a layer of a single mixer: attention, a state space, a feed-forward network, or experts."""
    build = Builder()
    _add_single_mixer(build, model, kind, Tensor("x", HIDDEN), "y", dropout)
    return Block(kind, build.graph(), repeats, "layers", ("x",))


def _add_single_mixer(
    build: Builder, model: Transformer, kind: str, entering: Tensor, out: str, dropout: bool
) -> Tensor:
    if kind in ("attention_layer", "state_layer"):
        mixed = _add_mixer(build, model, kind, _add_norm(build, model, "attention_norm", entering))
        mixed = _add_dropout(build, "attention_dropped", mixed, dropout)
    else:
        mixed = add_feed_forward(build, model, _add_norm(build, model, "ffn_norm", entering), kind == "experts_layer")
        mixed = _add_dropout(build, "ffn_dropped", mixed, dropout)
    return build.apply("add", out, (entering, mixed), HIDDEN)


def _build_mtp(model: Transformer, dropout: bool) -> Block:
    """Return a module that predicts a further token.

    It joins the next token's embedding and the last layer's output, both normalised, and has a layer. Its logits are in
    the block of the head. The rows that it looks up are left out.
    """
    build = Builder()
    last, following = Tensor("x", HIDDEN), Tensor("embedded", HIDDEN)
    both = [_add_norm(build, model, f"{name}_norm", read) for name, read in (("last", last), ("following", following))]
    parts = [build.linear(f"joined_{index}", read, ("hidden",), ("hidden_out",)) for index, read in enumerate(both)]
    added = build.apply("add", "joined", tuple(parts), (*TOKENS, "hidden_out"))
    # The two projections are summed like one GEMM over both inputs; a view gives the sum its usual dimension back.
    entering = build.apply("view", "entering", (added,), HIDDEN, same=(("hidden", "hidden_out"),))
    kinds = mtp_kinds(model)
    if model.single_mixers:
        between = _add_single_mixer(build, model, kinds[0], entering, "attended", dropout)
        _add_single_mixer(build, model, kinds[1], between, "y", dropout)
    else:
        _add_layer(build, model, kinds[0], entering, dropout=dropout)
    _add_norm(build, model, "further_norm", build.operators[-1].outputs[0])
    return Block("mtp", build.graph(), model.mtp_layers, "last", ("x",))


def _add_norm(build: Builder, model: Transformer, name: str, read: Tensor, over: str = "hidden") -> Tensor:
    return build.norm(name, read, over, bias=model.norm == "layernorm" and model.norm_bias)


def _add_dropout(build: Builder, name: str, read: Tensor, dropout: bool) -> Tensor:
    return build.apply("dropout", name, (read,), read.dims) if dropout else read


def add_self_attention(build: Builder, model: Transformer, read: Tensor) -> Tensor:
    """Add self-attention; return what it adds to the residual stream."""
    if model.mla:
        query, key, value = _add_mla_projections(build, model, read)
    else:
        query, key, value = _add_projections(build, model, read, "")
    # Views mark where strategies may change the sharding: Ulysses has whole sequences of some heads from here on.
    query = build.apply("view", "query", (query,), query.dims)
    keys, values = _rename_to_context(build, "key", key), _rename_to_context(build, "value", value)
    return _add_attention_output(build, model, "", (query, keys, values), read if model.attention_gate else None)


def add_sparse_attention(build: Builder, model: Transformer, kind: str, read: Tensor) -> Tensor:
    """Add attention to few keys; return what it adds to the residual stream."""
    small, query = add_queries(build, read)
    key = add_shared_keys(build, read)
    add_compression(build, model, kind, read, small)
    query = build.apply("view", "query", (query,), query.dims)
    keys, values = _rename_to_context(build, "key", key), _rename_to_context(build, "value", key)
    return add_grouped_output(build, _add_attention(build, model, "", (query, keys, values)))


def add_cross_attention(build: Builder, model: Transformer, read: Tensor) -> Tensor:
    """Add attention of the decoder to the encoder's output."""
    source = Tensor("encoded", SOURCE)
    query = build.linear("cross_q", read, ("hidden",), ("heads", "head_dim"))
    key = build.linear("cross_k", source, ("hidden",), ("kv_heads", "head_dim"))
    value = build.linear("cross_v", source, ("hidden",), ("kv_heads", "head_dim"))
    return _add_attention_output(build, model, "cross_", (query, key, value))


def _add_projections(build: Builder, model: Transformer, read: Tensor, prefix: str) -> tuple[Tensor, Tensor, Tensor]:
    bias = "qkv" in model.biases
    query = build.linear(f"{prefix}q", read, ("hidden",), ("heads", "head_dim"), bias=bias)
    key = build.linear(f"{prefix}k", read, ("hidden",), ("kv_heads", "head_dim"), bias=bias)
    value = build.linear(f"{prefix}v", read, ("hidden",), ("kv_heads", "head_dim"), bias=bias)
    if model.qk_norm:
        query = _add_norm(build, model, "q_norm", query, "head_dim")
        key = _add_norm(build, model, "k_norm", key, "head_dim")
    if has_rotary(model):
        query = build.apply("rope", "q_placed", (query,), query.dims)
        key = build.apply("rope", "k_placed", (key,), key.dims)
    return query, key, value


def has_rotary(model: Transformer) -> bool:
    """Return whether queries and keys have rotary embeddings: where there are no other position embeddings."""
    return model.rope and model.family == "decoder" and not model.positions and not model.position_buckets


def _add_mla_projections(build: Builder, model: Transformer, read: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Add the projections of MLA; return queries, keys and values."""
    if model.mla and model.mla.q_lora_rank:
        small = _add_norm(
            build, model, "q_down_norm", build.linear("q_down", read, ("hidden",), ("q_lora_rank",)), "q_lora_rank"
        )
        query = build.linear("q_up", small, ("q_lora_rank",), ("heads", "qk_dim"))
    else:
        query = build.linear("q", read, ("hidden",), ("heads", "qk_dim"))
    query = build.apply("rope", "q_placed", (query,), query.dims)
    shared = build.linear("kv_down", read, ("hidden",), ("kv_lora_rank",))
    position = build.linear("k_position", read, ("hidden",), ("qk_rope_head_dim",))
    small = _add_norm(build, model, "kv_down_norm", shared, "kv_lora_rank")
    content = build.linear("k_up", small, ("kv_lora_rank",), ("heads", "head_dim"))
    value = build.linear("v_up", small, ("kv_lora_rank",), ("heads", "v_head_dim"))
    key = build.apply("rope", "k_placed", (content, position), (*TOKENS, "heads", "qk_dim"))
    return query, key, value


def _rename_to_context(build: Builder, name: str, read: Tensor) -> Tensor:
    """Rename the ``sequence`` of keys or values to ``context``: the same numbers under another name."""
    dims = tuple("context" if dim == "sequence" else dim for dim in read.dims)
    return build.apply("view", name, (read,), dims, same=(("context", "sequence"),))


def _add_attention_output(
    build: Builder,
    model: Transformer,
    prefix: str,
    read: tuple[Tensor, Tensor, Tensor],
    gating: Tensor | None = None,
) -> Tensor:
    """Add attention and the projection of its output, which a gate scales that is projected from *gating*."""
    leaving = _add_attention(build, model, prefix, read)
    dims = leaving.dims
    if gating is not None:
        gate = build.apply("silu", "q_gate_open", (build.linear("q_gate", gating, ("hidden",), dims[2:]),), dims)
        leaving = build.apply("multiply", "attention_gated", (leaving, gate), dims)
    return build.linear(f"{prefix}out", leaving, dims[2:], ("hidden",), bias="out" in model.biases)


def _add_attention(build: Builder, model: Transformer, prefix: str, read: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Add attention alone; return its output."""
    query, key, value = read
    context = key.dims[1]
    dims = (*query.dims[:3], value.dims[3])
    grouped = (("kv_heads", "heads"),) if "kv_heads" in key.dims else ()
    sinks = (Tensor("w_sinks", ("heads",), "weight"),) if model.sinks and not prefix else ()
    attended = build.apply("attention", f"{prefix}attention", (*read, *sinks), dims, same=grouped, whole=(context,))
    return build.apply("view", f"{prefix}leaving", (attended,), dims)


# ---- feed-forward


def add_feed_forward(build: Builder, model: Transformer, read: Tensor, moe: bool) -> Tensor:
    """Add the feed-forward network of a layer: dense or MoE."""
    if not moe or model.experts is None:
        return _add_mlp(build, model, "ffn", read, bias="ffn" in model.biases)
    routed = _add_moe(build, model, read)
    if not model.experts.shared_ffn:
        return routed
    shared = _add_mlp(build, model, "shared_ffn", read)
    if model.experts.shared_gate:
        weight = build.linear("shared_gate", read, ("hidden",), ("gate",))
        shared = build.apply("multiply", "shared_gated", (shared, weight), shared.dims)
    return build.apply("add", "experts_added", (routed, shared), read.dims)


def _add_mlp(build: Builder, model: Transformer, width: str, read: Tensor, *, bias: bool = False) -> Tensor:
    """Add an MLP of two or three matrices; *width* is its inner dimension."""
    inner = _add_activation(build, model, width, read, (), bias)
    return build.linear(f"{width}_down", inner, (width,), ("hidden",), bias=bias)


def _add_activation(
    build: Builder, model: Transformer, width: str, read: Tensor, lead: tuple[str, ...], bias: bool
) -> Tensor:
    """Add the first half of an MLP; *lead* is the dimension of experts where each has its own weights."""
    entering = read.dims[-1]

    def project(name: str) -> Tensor:
        weight = Tensor(f"w_{name}", (*lead, entering, width), "weight")
        dims = (*(dim for dim in read.dims if dim != entering), width)
        product = build.apply("einsum", name, (read, weight), dims)
        offset = Tensor(f"b_{name}", (*lead, width), "weight")
        return build.apply("bias", f"{name}_biased", (product, offset), dims) if bias else product

    up = project(f"{width}_up")
    if not model.gated:
        return build.apply("gelu", f"{width}_inner", (up,), up.dims)
    gate = build.apply("silu", f"{width}_gate_open", (project(f"{width}_gate"),), up.dims)
    return build.apply("multiply", f"{width}_inner", (gate, up), up.dims)


def _add_moe(build: Builder, model: Transformer, read: Tensor) -> Tensor:
    """Add an MoE: route, dispatch each token to its experts, compute, and combine the results.

    An expert gets a ``share`` of the tokens, active / experts of them on average. To experts a token is a token of any
    sequence: batch and sequence are one dimension, ``tokens``. A LatentMoE sends narrower vectors to its experts. The
    router chooses among ``routed`` experts; with copies of some there are more ``experts`` than that.
    """
    bias = "experts" in model.biases
    scores = build.linear("router", read, ("hidden",), ("routed",), bias="router" in model.biases)
    chosen = build.apply("router", "chosen", (scores,), (*TOKENS, "active"), whole=("routed",))
    latent = model.experts is not None and model.experts.latent_width > 0
    width = "latent" if latent else "hidden"
    routed_input = build.linear("latent_down", read, ("hidden",), ("latent",)) if latent else read
    slots = ("experts", "tokens", "share", width)
    same = (("tokens", "batch"), ("tokens", "sequence"))
    sent = build.apply("dispatch", "sent", (routed_input, chosen), slots, same=same)
    inner = _add_activation(build, model, "expert_ffn", sent, ("experts",), bias)
    weight = Tensor("w_expert_down", ("experts", "expert_ffn", width), "weight")
    expert_output = build.apply("einsum", "expert_down", (inner, weight), slots)
    if bias:
        offset = Tensor("b_expert_down", ("experts", width), "weight")
        expert_output = build.apply("bias", "expert_down_biased", (expert_output, offset), slots)
    combined = build.apply("combine", "combined", (expert_output, chosen), routed_input.dims, same=same)
    return build.linear("latent_up", combined, ("latent",), ("hidden",)) if latent else combined


# ---- first and last


def build_embedding(model: Transformer) -> Block:
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
        rows = build.apply("embedding", "embedded", (tokens, vocabulary_tensor(model)), HIDDEN)
        vectors = build.apply("view", "arrived", (rows,), HIDDEN)  # where the rows are needed
    for name, present in (("positions", model.positions), ("segments", model.segments)):
        if present:
            vectors = build.apply(
                "bias", f"with_{name}", (vectors, Tensor(f"w_{name}", (name, "hidden"), "weight")), HIDDEN
            )
    if model.position_buckets:
        distances = Tensor("w_distances", ("stacks", "buckets", "heads"), "weight")
        vectors = build.apply("bias", "with_distances", (vectors, distances), HIDDEN)
    if model.embedding_norm:
        _add_norm(build, model, "embedding_norm", vectors)
    return Block("embedding", build.graph(), 1, "first")


def vocabulary_tensor(model: Transformer) -> Tensor:
    """Return the embedding table, which the head shares where embeddings are tied."""
    return Tensor("w_vocabulary" if model.tied_embeddings else "w_embedding", ("vocab", "hidden"), "weight")


def build_head(model: Transformer) -> Block:
    """Return the block of the head and the loss."""
    build = Builder()
    last = _add_stream_mixing(build, "head", Tensor("x", _stream_dims(model)), "streams_read")
    if model.final_norm:
        last = _add_norm(build, model, "final_norm", last)
    if model.family == "encoder_decoder" and model.final_norm:
        _add_norm(build, model, "encoder_final_norm", Tensor("encoded", SOURCE))
    if model.image:
        last = build.apply("pool", "pooled", (last,), ("batch", "hidden"), whole=("sequence",))
    if model.pretraining_heads:
        last = _add_pretraining_heads(build, model, last)
    table = vocabulary_tensor(model) if model.tied_embeddings else Tensor("w_head", ("vocab", "hidden"), "weight")
    dims = (*last.dims[:-1], "vocab")
    logits = build.apply("einsum", "logits", (last, table), dims)
    if "head" in model.biases:
        logits = build.apply("bias", "logits_biased", (logits, Tensor("b_head", ("vocab",), "weight")), dims)
    build.apply("loss", "loss", (logits,), dims[:-1])
    for index in range(1, model.mtp_layers + 1):  # of each further token
        logits = build.apply("einsum", f"logits_{index}", (last, table), dims)
        build.apply("loss", f"loss_{index}", (logits,), dims[:-1])
    return Block("head", build.graph(), 1, "last", ("x",))


def _add_pretraining_heads(build: Builder, model: Transformer, last: Tensor) -> Tensor:
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
    return _add_norm(build, model, "transform_norm", named)


HEADS = (*TOKENS, "ssm_heads")
SCANS = {"mamba2": "ssd_scan", "delta": "delta_scan", "mamba1": "selective_scan"}
"""The kind of operator that each kind of state space has for its scan."""


def add_state_space(build: Builder, model: Transformer, read: Tensor) -> Tensor:
    """Add a state space; return what it adds to the residual stream."""
    ssm = model.ssm
    if ssm is None:
        return read
    projected = build.linear("ssm_in", read, ("hidden",), ("ssm_heads", "ssm_columns"))
    entering = build.apply("view", "scan_entering", (projected,), projected.dims)
    convolved = _add_convolution(build, ssm, entering)
    scanned = _add_scan(build, ssm, entering, convolved)
    leaving = build.apply("view", "scan_leaving", (scanned,), scanned.dims)
    inner = ("ssm_heads", "ssm_head_dim")
    return build.linear("ssm_out", leaving, inner, ("hidden",))


def _add_convolution(build: Builder, ssm: StateSpace, entering: Tensor) -> Tensor:
    weights = [Tensor("w_conv", ("ssm_heads", "ssm_channels", "ssm_taps"), "weight")]
    if ssm.conv_bias:
        weights.append(Tensor("b_conv", ("ssm_heads", "ssm_channels"), "weight"))
    return build.apply("conv", "convolved", (entering, *weights), (*HEADS, "ssm_channels"), whole=("sequence",))


def _add_scan(build: Builder, ssm: StateSpace, entering: Tensor, convolved: Tensor) -> Tensor:
    dims = (*HEADS, "ssm_head_dim")
    per_head = tuple(Tensor(name, ("ssm_heads",), "weight") for name in ("w_decay", "b_step"))
    if ssm.kind == "mamba1":
        inputs = (convolved, entering, *_add_time_steps(build, ssm, convolved))
        decay = Tensor("w_decay", ("ssm_heads", "ssm_head_dim", "ssm_state"), "weight")
        skip = Tensor("w_skip", ("ssm_heads",), "weight")
        return build.apply(SCANS[ssm.kind], "scanned", (*inputs, decay, skip), dims, whole=("sequence",))
    skips = (Tensor("w_skip", ("ssm_heads",), "weight"),) if ssm.kind == "mamba2" else ()
    read = (convolved, entering, *per_head, *skips)
    scanned = build.apply(SCANS[ssm.kind], "scanned", read, dims, whole=("sequence",))
    scale = ("ssm_heads", "ssm_head_dim") if ssm.kind == "mamba2" else ("ssm_head_dim",)
    weights = (Tensor("w_gated_norm", scale, "weight"),) if ssm.norm else ()
    return build.apply("gated_norm", "gated", (scanned, entering, *weights), dims, whole=("ssm_head_dim",))


def _add_time_steps(build: Builder, ssm: StateSpace, convolved: Tensor) -> tuple[Tensor, Tensor]:
    """Add what Mamba-1 projects from its channels: B and C, and the time step of each channel, through a low rank."""
    small = build.linear("ssm_small", convolved, ("ssm_heads", "ssm_channels"), ("ssm_small",))
    if ssm.norm:
        small = build.norm("small_norm", small, "ssm_small", bias=False)
    rank = build.apply("view", "ssm_rank", (small,), (*TOKENS, "ssm_rank"))
    return small, build.linear("ssm_step", rank, ("ssm_rank",), ("ssm_heads",), bias=True)


def state_sizes(model: Transformer) -> dict[str, float]:
    """Return the sizes of the dimensions of a state space: of a head, with its part of what groups share."""
    ssm = model.ssm
    if ssm is None:
        return {}
    sizes: dict[str, float] = {
        "ssm_heads": ssm.heads,
        "ssm_head_dim": ssm.head_dim,
        "ssm_columns": ssm.projected / ssm.heads,
        "ssm_channels": ssm.convolved / ssm.heads,
        "ssm_groups": ssm.groups,
        "ssm_state": ssm.state,
        "ssm_taps": ssm.conv,
        "ssm_chunk": ssm.chunk,
    }
    return sizes | ({"ssm_rank": ssm.rank, "ssm_small": ssm.rank + 2 * ssm.state} if ssm.rank else {})


def add_queries(build: Builder, read: Tensor) -> tuple[Tensor, Tensor]:
    """Add the projections of queries through a low rank; return that, and the queries."""
    small = build.linear("q_down", read, ("hidden",), ("q_lora_rank",))
    small = build.norm("q_down_norm", small, "q_lora_rank", bias=False)
    query = build.linear("q_up", small, ("q_lora_rank",), ("heads", "head_dim"))
    return small, build.apply("rope", "q_placed", (query,), query.dims)


def add_shared_keys(build: Builder, read: Tensor) -> Tensor:
    """Add the projection of what all heads read of a token."""
    keys = build.linear("kv", read, ("hidden",), ("kv_heads", "head_dim"))
    keys = build.norm("kv_norm", keys, "head_dim", bias=False)
    return build.apply("rope", "k_placed", (keys,), keys.dims)


def add_compression(build: Builder, model: Transformer, kind: str, read: Tensor, small: Tensor) -> None:
    """Add what compresses tokens into keys and, in layers C, what picks some of these for each query."""
    sparse = model.sparse
    if sparse is None or not sparse.compressed(kind):
        return
    _add_pooled(build, kind, "compressed", read, "head_dim")
    if kind.startswith("sparse_"):
        _add_index(build, kind, read, small)


def _add_pooled(build: Builder, kind: str, name: str, read: Tensor, width: str) -> Tensor:
    """Add values and gates; sum each block of values weighted by its gates, and normalise the sum."""
    columns = f"{width}_pair" if kind.startswith("sparse_") else width
    values, weights = (build.linear(f"{name}_{part}", read, ("hidden",), (columns,)) for part in ("kv", "gate"))
    summed = build.apply("pool_block", f"{name}_sum", (values, weights), (*TOKENS, "per_block", width))
    return build.norm(f"{name}_norm", summed, width, bias=False)


def _add_index(build: Builder, kind: str, read: Tensor, small: Tensor) -> None:
    query = build.linear("index_q", small, ("q_lora_rank",), ("index_heads", "index_dim"))
    scale = build.linear("index_weights", read, ("hidden",), ("index_heads",))
    pooled = _add_pooled(build, kind, "index", read, "index_dim")
    same = (("index_context", "sequence"),)
    key = build.apply("view", "index_key", (pooled,), ("batch", "index_context", "index_one", "index_dim"), same=same)
    value = build.apply(
        "view", "index_value", (pooled,), ("batch", "index_context", "index_one", "index_two"), same=same
    )
    dims = (*TOKENS, "index_heads", "index_two")
    scores = build.apply("attention", "index_scores", (query, key, value), dims, whole=("index_context",))
    build.apply("multiply", "index_weighed", (scores, scale), dims)


def add_grouped_output(build: Builder, leaving: Tensor) -> Tensor:
    """Add the projection of heads to the hidden size: group by group to a low rank, then all together."""
    dims = (*TOKENS, "o_groups", "o_inner")
    grouped = build.apply("view", "grouped", (leaving,), dims, same=(("o_groups", "heads"),))
    weight = Tensor("w_out_down", ("o_groups", "o_inner", "o_rank"), "weight")
    small = build.apply("einsum", "out_down", (grouped, weight), (*TOKENS, "o_groups", "o_rank"))
    return build.linear("out", small, ("o_groups", "o_rank"), ("hidden",))


def sparse_sizes(model: Transformer, sparse: SparseAttention) -> dict[str, float]:
    """Return the sizes of the dimensions of attention to few keys; ``index_context`` comes from the workload."""
    return {
        "q_lora_rank": sparse.q_lora_rank,
        "o_groups": sparse.o_groups,
        "o_inner": model.heads * model.head_dim / sparse.o_groups,
        "o_rank": sparse.o_lora_rank,
        "head_dim_pair": 2 * model.head_dim,
        "per_block": 1 / sparse.block,
        "index_heads": sparse.index_heads,
        "index_dim": sparse.index_dim,
        "index_dim_pair": 2 * sparse.index_dim,
        "index_one": 1,
        "index_two": 1,
    }


# ---- Recommenders (DLRM)


def build_recommender_blocks(model: Recommender) -> tuple[Block, ...]:
    """Return the one block of a recommender.

    All tables have the average size. An accelerator holds some tables for all samples and computes some samples with
    all tables: the all-to-alls follow from that change of sharding. The rows that a sample looks up in a table are
    summed where they lie.
    """
    build = Builder()
    features = Tensor("features", ("batch", "dense_features"), "input")
    dense = _add_perceptron(build, "bottom", features, "dense_features", len(model.bottom))
    keys = Tensor("keys", ("batch", "tables", "lookups", "rows"), "index")
    rows = Tensor("w_tables", ("tables", "rows", "embedding"), "weight")
    table_keys = Tensor("keys_there", ("samples", "tables", "lookups", "rows"), "index")
    # Keys travel to the accelerators of their tables: from here on the batch is split another way.
    build.operators.append(Operator("keys_there", "view", (keys,), (table_keys,), same=(("samples", "batch"),)))
    looked_up = build.apply("embedding", "looked_up", (table_keys, rows), ("samples", "tables", "embedding"))
    dims = ("batch", "tables", "embedding")
    gathered = build.apply("view", "gathered", (looked_up,), dims, same=(("samples", "batch"),))
    inputs = (gathered, dense)
    crossed = build.apply("interaction", "crossed", inputs, ("batch", "interactions"), whole=("tables", "embedding"))
    score = _add_perceptron(build, "top", crossed, "interactions", len(model.top))
    build.apply("loss", "loss", (score,), ("batch",))
    return (Block("model", build.graph(), 1, "layers", ("features",)),)


def _add_perceptron(build: Builder, name: str, read: Tensor, width: str, depth: int) -> Tensor:
    for layer in range(depth):
        output = f"{name}_{layer}" if not (name == "bottom" and layer == depth - 1) else "embedding"
        read = build.linear(f"{name}_{layer}", read, (width,), (output,), bias=True)
        read = build.apply("relu", f"{name}_{layer}_open", (read,), read.dims)
        width = output
    return read


def touched_rows(model: Recommender, samples: Numeric) -> Numeric:
    """Return the distinct rows of all tables that *samples* look up, each row of a table equally likely.

    A table of R rows under L lookups has R (1 - (1 - 1/R)^L) of them on average.

    >>> two = Recommender(dense_features=1, tables=(2, 1), embedding=1, bottom=(1,), top=(1,))
    >>> float(touched_rows(two, 2))
    2.5
    """
    total: Numeric = 0.0
    for rows in model.tables:
        # (1 - 1/R)^(samples L) in logarithms: R is large, and 1 - 1/R would lose digits.
        missed = np.log1p(-1 / rows) if rows > 1 else -np.inf
        total = total - rows * expm1(samples * model.lookups * missed)
    return total


def recommender_dimensions(model: Recommender) -> dict[str, float]:
    """Return the sizes of a recommender's dimensions."""
    vectors = len(model.tables) + 1
    sizes: dict[str, float] = {
        "dense_features": model.dense_features,
        "tables": len(model.tables),
        "lookups": model.lookups,
        "rows": sum(model.tables) / len(model.tables),
        "embedding": model.embedding,
        "interactions": vectors * (vectors - 1) // 2 + model.embedding,
    }
    sizes |= {f"bottom_{index}": width for index, width in enumerate(model.bottom)}
    return sizes | {f"top_{index}": width for index, width in enumerate(model.top)}
