"""Hugging Face configurations of models whose layers differ in their mixers: one short function per architecture.

Attention layers, state-space layers and experts become a pattern of the model layer. What it cannot express is refused.
Modules that predict further tokens are not of transformers' classes, and left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cosmic.catalog.config_json import Config

Tree = dict[str, Any]
NO_BIAS = "biases of these projections cannot be expressed"
LETTERS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
"""Letters of Nemotron-H's pattern, by the names that newer files have in place of them."""


def _decoder(config: Config, *, tied: bool = False, **more: Any) -> Tree:
    """Return what the language models here have in common, plus *more*."""
    return {
        "family": "decoder",
        "layers": config.size("num_hidden_layers"),
        "hidden": config.size("hidden_size"),
        "vocab": config.size("vocab_size"),
        "tied_embeddings": config.get("tie_word_embeddings", tied),
        "norm": "rmsnorm",
        **more,
    }


def _attention(config: Config, kv_heads: int) -> Tree:
    return {
        "heads": config.size("num_attention_heads"),
        "kv_heads": config.optional("num_key_value_heads", kv_heads) or config.size("num_attention_heads"),
        "head_dim": config.optional("head_dim"),
    }


def _stateful(heads: int, head_dim: int) -> Tree:
    """Return the sizes of attention that a model without any has: those of its state space."""
    return {"heads": heads, "head_dim": head_dim, "ffn": heads * head_dim}


def _wide(config: Config, heads: int, width: int, where: str) -> int:
    """Return the width of one of some *heads* that have a *width* together."""
    config.refuse(width % heads != 0, where, f"must divide the width of the state space, {width}")
    return width // heads


# ------------------------------------------------------------------------------------------------ Mamba


def mamba(config: Config) -> Tree:
    """Return a model of Mamba-1 layers alone."""
    config.fixed("use_bias", False, NO_BIAS)
    hidden = config.size("hidden_size")
    inner = config.size("intermediate_size", default=config.size("expand", default=2) * hidden)
    ssm = {
        "kind": "mamba1",
        "heads": inner,
        "state": config.size("state_size", default=16),
        "conv": config.size("conv_kernel", default=4),
        "conv_bias": config.get("use_conv_bias", True),
        "rank": _rank(config, "time_step_rank"),
        "norm": False,
    }
    alone = {"pattern": "M", "single_mixers": True, "norms_per_layer": 1, "rope": False, "ssm": ssm}
    return _decoder(config, tied=True, **_stateful(inner, 1), **alone)


def _rank(config: Config, key: str) -> int:
    """Return the rank of Mamba-1's time steps: a sixteenth of the width, unless it is stated."""
    if config.keys.get(key) in (None, "auto"):
        return -(-config.size("hidden_size") // 16)
    return config.size(key)


def mamba2(config: Config) -> Tree:
    """Return a model of Mamba-2 layers alone."""
    config.fixed("use_bias", False, NO_BIAS)
    heads, head_dim = config.size("num_heads", default=128), config.size("head_dim", default=64)
    ssm = {
        "heads": heads,
        "head_dim": head_dim,
        "groups": config.size("n_groups", default=8),
        "state": config.size("state_size", default=128),
        "conv": config.size("conv_kernel", default=4),
        "conv_bias": config.get("use_conv_bias", True),
        "norm": config.get("rms_norm", True),
        "chunk": config.size("chunk_size", default=256),
    }
    alone: Tree = {"pattern": "M", "single_mixers": True, "norms_per_layer": 1, "rope": False, "ssm": ssm}
    return _decoder(config, **_stateful(heads, head_dim), **alone)


# ----------------------------------------------------------------------------------------------- hybrids


def nemotron_h(config: Config) -> Tree:
    """Return a Nemotron-H: Mamba-2, attention, feed-forward networks and experts as layers of their own."""
    for name in ("attention_bias", "mlp_bias", "use_bias", "mamba_proj_bias"):
        config.fixed(name, False, NO_BIAS)
    pattern = _letters(config)
    ssm = {
        "heads": config.size("mamba_num_heads", default=128),
        "head_dim": config.size("mamba_head_dim", default=64),
        "groups": config.size("n_groups", default=8),
        "state": config.size("ssm_state_size", default=128),
        "conv": config.size("conv_kernel", default=4),
        "conv_bias": config.get("use_conv_bias", True),
        "chunk": config.size("chunk_size", default=128),
    }
    more: Tree = {"pattern": pattern, "single_mixers": True, "norms_per_layer": 1, "rope": False}
    more |= {"ssm": ssm} if "M" in pattern else {}
    if "E" in pattern:
        more["experts"] = {
            "count": config.size("n_routed_experts"),
            "active": config.size("num_experts_per_tok"),
            "ffn": config.size("moe_intermediate_size"),
            "shared_ffn": config.size("n_shared_experts", default=1, least=0)
            and config.size("moe_shared_expert_intermediate_size"),
            "latent_width": config.optional("moe_latent_size") or 0,
        }
    return _decoder(config, **_attention(config, 8), ffn=config.size("intermediate_size"), **more)


def _letters(config: Config) -> str:
    """Return the pattern of Nemotron-H, which must name each layer."""
    given = config.get("hybrid_override_pattern", "")
    if not given:
        kinds = config.get("layers_block_type", [])
        known = bool(kinds) and all(isinstance(kind, str) and kind in LETTERS for kind in kinds)
        config.refuse(not known, "layers_block_type", f"must be one of {', '.join(LETTERS)} for each layer")
        given = "".join(LETTERS[kind] for kind in kinds)
    whole = len(given) == config.size("num_hidden_layers") and set(given) <= set(LETTERS.values())
    config.refuse(not whole, "hybrid_override_pattern", "must name each layer by one of the letters M * - E")
    return given


def qwen3_next(config: Config) -> Tree:
    """Return a Qwen3-Next: gated delta nets and gated attention, with experts."""
    config.fixed("attention_bias", False, NO_BIAS)
    dense = config.get("mlp_only_layers", [])
    every = config.size("decoder_sparse_step", default=1)
    first = dense == list(range(len(dense))) and (not dense or every == 1)
    config.refuse(not first, "mlp_only_layers", "layers without experts must be the first ones")
    ssm = {
        "kind": "delta",
        "heads": config.size("linear_num_value_heads", default=32),
        "head_dim": config.size("linear_value_head_dim", default=128),
        "groups": config.size("linear_num_key_heads", default=16),
        "state": config.size("linear_key_head_dim", default=128),
        "conv": config.size("linear_conv_kernel_dim", default=4),
        "conv_bias": False,
        "chunk": 64,
    }
    experts = {
        "count": config.size("num_experts", default=512),
        "active": config.size("num_experts_per_tok", default=10),
        "ffn": config.size("moe_intermediate_size", default=512),
        "shared_ffn": config.size("shared_expert_intermediate_size", default=512, least=0),
        "shared_gate": True,
        "dense_first": len(dense),
        "every": every,
    }
    more: Tree = {"gated": True, "qk_norm": True, "attention_gate": True, "experts": experts}
    pattern = _linear_pattern(config)
    more |= {"pattern": pattern} | ({"ssm": ssm} if "M" in pattern else {})
    sizes = _attention(config, 2) | {"head_dim": config.size("head_dim", default=256)}
    return _decoder(config, **sizes, ffn=config.size("intermediate_size", default=5632), **more)


def _linear_pattern(config: Config) -> str:
    """Return which layers attend, as ``layer_types`` says or every so many."""
    every = config.size("full_attention_interval", default=4)
    types = config.get("layer_types", [])
    if not types:
        return "M" * (every - 1) + "*"
    letters = {"linear_attention": "M", "full_attention": "*"}
    known = all(isinstance(kind, str) and kind in letters for kind in types)
    fits = known and len(types) == config.size("num_hidden_layers")
    config.refuse(not fits, "layer_types", "must be linear_attention or full_attention for each layer")
    return "".join(letters[kind] for kind in types)


def jamba(config: Config) -> Tree:
    """Return a Jamba: Mamba-1 layers with attention and experts in some of them."""
    config.fixed("mamba_proj_bias", False, NO_BIAS)
    config.refuse(config.optional("sliding_window") is not None, "sliding_window", "a window cannot be expressed here")
    period, offset = config.size("attn_layer_period", default=8), config.size("attn_layer_offset", default=4, least=0)
    config.refuse(offset >= period, "attn_layer_offset", f"must be less than attn_layer_period, {period}")
    every = config.size("expert_layer_period", default=2)
    first = config.size("expert_layer_offset", default=1, least=0) - every + 1
    config.refuse(first < 0, "expert_layer_offset", "experts must not start before a whole period of layers")
    ssm = {
        "kind": "mamba1",
        "heads": config.size("mamba_expand", default=2) * config.size("hidden_size"),
        "state": config.size("mamba_d_state", default=16),
        "conv": config.size("mamba_d_conv", default=4),
        "conv_bias": config.get("mamba_conv_bias", True),
        "rank": _rank(config, "mamba_dt_rank"),
    }
    pattern = "M" * offset + "*" + "M" * (period - offset - 1)
    ffn = config.size("intermediate_size")
    count = config.size("num_experts", default=16)
    experts = {"count": count, "active": config.size("num_experts_per_tok", default=2), "ffn": ffn}
    more: Tree = {"gated": True, "rope": False, "pattern": pattern, "ffn": ffn}
    more |= {"ssm": ssm} if "M" in pattern else {}
    more |= {"experts": experts | {"dense_first": first, "every": every}} if count > 1 else {}
    return _decoder(config, **_attention(config, 8), **more)


def falcon_h1(config: Config) -> Tree:
    """Return a Falcon-H1: attention and Mamba-2 side by side in every layer."""
    for name in ("attention_bias", "mlp_bias", "mamba_proj_bias", "projectors_bias"):
        config.fixed(name, False, NO_BIAS)
    hidden, heads = config.size("hidden_size"), config.size("mamba_n_heads", default=128)
    expanded = config.size("mamba_expand", default=2) * hidden
    inner = config.optional("mamba_d_ssm", 1024) or expanded
    ssm = {
        "heads": heads,
        "head_dim": _wide(config, heads, inner, "mamba_n_heads"),
        "groups": config.size("mamba_n_groups", default=1),
        "state": config.size("mamba_d_state", default=256),
        "conv": config.size("mamba_d_conv", default=4),
        "conv_bias": config.get("mamba_conv_bias", True),
        "norm": config.get("mamba_rms_norm", False),
        "chunk": config.size("mamba_chunk_size", default=256),
    }
    more: Tree = {"gated": True, "pattern": "P", "ssm": ssm, "ffn": config.size("intermediate_size")}
    return _decoder(config, **_attention(config, 8), **more)


# ------------------------------------------------------------------------------- attention to few keys


def deepseek_v4(config: Config) -> Tree:
    """Return a DeepSeek-V4: attention to a window and to compressed keys, experts, several residual streams."""
    config.fixed("attention_bias", False, NO_BIAS)
    layers = config.size("num_hidden_layers")
    ratios = config.get("compress_ratios", [])[:layers]
    letters = {0: "W", 4: "C", 128: "H"}
    known = len(ratios) == layers and all(type(ratio) is int and ratio in letters for ratio in ratios)
    config.refuse(not known, "compress_ratios", "must be 0, 4 or 128 for each layer")
    ffn = config.size("moe_intermediate_size")
    sparse = {
        "q_lora_rank": config.size("q_lora_rank"),
        "o_lora_rank": config.size("o_lora_rank"),
        "o_groups": config.size("o_groups"),
        "window": config.size("sliding_window"),
        "picked": config.size("index_topk"),
        "index_heads": config.size("index_n_heads"),
        "index_dim": config.size("index_head_dim"),
    }
    experts = {
        "count": config.size("n_routed_experts"),
        "active": config.size("num_experts_per_tok"),
        "ffn": ffn,
        "shared_ffn": ffn * config.size("n_shared_experts", default=1, least=0),
    }
    more: Tree = {"gated": True, "sinks": True, "ffn": ffn, "sparse": sparse, "experts": experts}
    more |= {"pattern": "".join(letters[ratio] for ratio in ratios), "residual_streams": config.size("hc_mult")}
    return _decoder(config, **_attention(config, 1), **more)


HYBRIDS: dict[str, Callable[[Config], Tree]] = {
    "deepseek_v4": deepseek_v4,
    "falcon_h1": falcon_h1,
    "jamba": jamba,
    "mamba": mamba,
    "mamba2": mamba2,
    "nemotron_h": nemotron_h,
    "qwen3_next": qwen3_next,
}
"""By ``model_type``."""
