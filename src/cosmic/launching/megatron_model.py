"""A decoder as arguments of Megatron-LM."""

from __future__ import annotations

from cosmic.design.model import MLA, Experts, Transformer, is_moe_layer
from cosmic.design.workload import Workload
from cosmic.launching.launch import Draft


def describe(draft: Draft, model: Transformer, workload: Workload) -> None:
    """Add the arguments of *model*, and warn of what Megatron-LM cannot express."""
    draft.add("--num-layers", model.layers)
    draft.add("--hidden-size", model.hidden)
    draft.add("--ffn-hidden-size", model.ffn)
    draft.add("--swiglu", when=model.gated)
    draft.add("--normalization", "RMSNorm", when=model.norm == "rmsnorm")
    draft.add("--untie-embeddings-and-output-weights", when=not model.tied_embeddings)
    _attention(draft, model)
    _positions(draft, model, workload)
    _biases(draft, model)
    if model.experts is not None:
        _experts(draft, model, model.experts)
    _unknown(draft, model)


def _attention(draft: Draft, model: Transformer) -> None:
    draft.add("--num-attention-heads", model.heads)
    if model.mla is not None:
        _mla(draft, model, model.mla)
        return
    grouped = model.kv_heads < model.heads
    draft.add("--group-query-attention", when=grouped)
    draft.add("--num-query-groups", model.kv_heads, when=grouped)
    draft.add("--kv-channels", model.head_dim, when=model.head_dim * model.heads != model.hidden)
    draft.add("--qk-layernorm", when=model.qk_norm)
    draft.add("--softmax-type", "learnable", when=model.sinks)
    if model.window is not None:  # that many tokens back, besides the token itself
        draft.add("--window-size", f"{model.window - 1},0")
        every = model.full_attention_every
        draft.add("--window-attn-skip-freq", every or 0, when=every is not None)


def _mla(draft: Draft, model: Transformer, mla: MLA) -> None:
    draft.add("--multi-latent-attention")
    draft.add("--q-lora-rank", mla.q_lora_rank or 0, when=mla.q_lora_rank is not None)
    draft.add("--kv-lora-rank", mla.kv_lora_rank)
    draft.add("--qk-head-dim", model.head_dim)
    draft.add("--qk-pos-emb-head-dim", mla.qk_rope_head_dim)
    draft.add("--v-head-dim", mla.v_head_dim)
    draft.add("--qk-layernorm")  # the norms of both compressed vectors


def _positions(draft: Draft, model: Transformer, workload: Workload) -> None:
    draft.add("--seq-length", workload.sequence)
    draft.add("--max-position-embeddings", max(workload.sequence, model.positions))
    if model.positions:
        draft.add("--position-embedding-type", "learned_absolute")
    elif model.position_buckets:
        draft.add("--position-embedding-type", "relative")
        draft.add("--relative-attention-num-buckets", model.position_buckets)
    else:
        draft.add("--position-embedding-type", "rope")


def _biases(draft: Draft, model: Transformer) -> None:
    """Add which projections have biases: all, none, or those of queries, keys and values."""
    moe = [is_moe_layer(model, layer) for layer in range(model.layers)]
    usual = {"qkv", "out"} | {"experts" for _ in range(any(moe))} | {"ffn" for _ in range(not all(moe))}
    given = set(model.biases) & usual
    draft.add("--disable-bias-linear", when=given != usual and given <= {"qkv"})
    draft.add("--add-qkv-bias", when=given == {"qkv"})
    some = given != usual and not given <= {"qkv"}
    draft.warn(f"Megatron-LM adds biases to all projections, the design to {', '.join(sorted(given))}", when=some)
    for place in sorted(set(model.biases) & {"head", "router"}):
        draft.warn(f"Megatron-LM has no argument for a bias of the {place}")


def _experts(draft: Draft, model: Transformer, experts: Experts) -> None:
    draft.add("--num-experts", experts.count)
    draft.add("--moe-router-topk", experts.active)
    draft.add("--moe-ffn-hidden-size", experts.ffn)
    draft.add("--moe-shared-expert-intermediate-size", experts.shared_ffn, when=experts.shared_ffn > 0)
    draft.add("--moe-layer-freq", layer_pattern(model), when=experts.dense_first > 0 or experts.every > 1)
    factor = experts.capacity_factor
    draft.add("--moe-expert-capacity-factor", factor or 0.0, when=factor is not None)
    draft.add("--moe-pad-expert-input-to-capacity", when=factor is not None)
    draft.warn("Megatron-LM has no argument for the gate of shared experts", when=experts.shared_gate)
    draft.warn(
        "the design's experts are evenly loaded: add --moe-router-force-load-balancing to time it with mock data",
        when=factor is None,
    )


def layer_pattern(model: Transformer) -> str:
    """Return which layers are MoE layers, as a Python expression: runs of equal layers.

    >>> from cosmic.design.model import Experts
    >>> sizes = {"layers": 8, "hidden": 8, "heads": 1, "ffn": 8, "vocab": 8}
    >>> layer_pattern(Transformer(**sizes, experts=Experts(count=4, active=1, ffn=8, dense_first=3)))
    '([0]*3+[1]*5)'
    >>> layer_pattern(Transformer(**sizes, experts=Experts(count=4, active=1, ffn=8, every=2)))
    '([0]*1+[1]*1)*4'
    """
    experts = model.experts
    if experts is not None and experts.every > 1 and not experts.dense_first and model.layers % experts.every == 0:
        return f"([0]*{experts.every - 1}+[1]*1)*{model.layers // experts.every}"
    runs: list[list[int]] = []
    for layer in range(model.layers):
        kind = int(is_moe_layer(model, layer))
        if runs and runs[-1][0] == kind:
            runs[-1][1] += 1
        else:
            runs.append([kind, 1])
    return "(" + "+".join(f"[{kind}]*{count}" for kind, count in runs) + ")"


def _unknown(draft: Draft, model: Transformer) -> None:
    """Warn of what has no argument."""
    draft.warn("Megatron-LM runs attention before the feed-forward network, not in parallel", when=model.parallel_block)
    draft.warn(
        f"Megatron-LM has 2 norms per layer, the design {model.norms_per_layer}", when=model.norms_per_layer != 2
    )
    draft.warn("Megatron-LM does not normalise embeddings", when=model.embedding_norm)
    draft.warn("Megatron-LM has a norm after the last layer", when=not model.final_norm)
    draft.warn("Megatron-LM's layer norm has a bias", when=model.norm == "layernorm" and not model.norm_bias)
