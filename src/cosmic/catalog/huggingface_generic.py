"""Hugging Face configurations of architectures that nobody described: a decoder from the usual keys.

Most new language models are decoders with grouped queries, rotary positions, a gated feed-forward network and perhaps
experts; their files use the same keys. What such a file leaves open is assumed, and said. What is no such decoder is
refused: state-space layers, linear attention, encoders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cosmic.catalog.config_json import Config
from cosmic.design.schema import Absent
from cosmic.errors import SpecError, join

Tree = dict[str, Any]
TEXT = ("text_config", "llm_config", "language_config", "language_model_config", "thinker_config", "decoder_config")
"""Keys under which models of several modalities describe their language model."""
TOWERS = ("vision", "audio", "image", "video", "speech", "visual", "vit", "talker", "encoder", "code2wav", "token2wav")
"""How keys begin that describe what else such a model has."""
STATE_SPACE = re.compile(
    r"(mamba|ssm|rwkv|lru|conv_kernel|conv_L_cache|state_size|time_step|gated_delta|linear_(num|key|value|conv|attn)"
    r"|hybrid_override|hybrid_layer|attn_layer_(period|offset|indices)|block_types|layers_block_type|attn_type_list"
    r"|full_attn_idxs|xlstm|retention).*"
)
"""Keys of models with layers that are no attention."""
OTHER_TYPES = re.compile(
    r"(mamba|rwkv|jamba|xlstm|recurrent|hyena|retnet|falcon_h1|zamba|bamba|lfm2|nemotron_h|plamo2).*"
)
LAYER_TYPES = ("full_attention", "sliding_attention", "attention", "chunked_attention", "global", "local")
DECODERS = re.compile(
    r".*(ForCausalLM|LMHeadModel|ForConditionalGeneration|ForVision2Seq|ForImageTextToText|ChatModel)$"
)
GATED = ("silu", "swish", "swiglu", "geglu")
ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function", "activation")
ENCODERS = ("encoder_layers", "decoder_layers", "num_decoder_layers", "num_encoder_layers")
"""Keys of models with an encoder of their own."""
SIZES = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "vocab": ("vocab_size", "padded_vocab_size"),
}
"""Sizes that a file must state, and their usual keys."""
SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")


def generic_model(config: Config) -> tuple[Tree, list[str]]:
    """Return a model tree of an unknown architecture, and what was assumed."""
    _refuse_others(config)
    assumed: list[str] = []
    if not config.keys.get("architectures"):
        assumed.append("a decoder, as the file names no architecture")
    sizes = _sizes(config)
    mla, norm = _mla(config), _norm(config, assumed)
    tree: Tree = {
        "family": "decoder",
        **sizes,
        "kv_heads": _first(config, ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "multi_query_group_num"))
        or sizes["heads"],
        "head_dim": _head_dim(config, sizes, mla),
        "gated": _gated(config, norm, assumed),
        "norm": norm,
        "qk_norm": _switch(config, "qk_norm", "use_qk_norm", "qk_layernorm"),
        "tied_embeddings": _tied(config, assumed),
        "biases": _biases(config),
        "mla": mla,
        "experts": _experts(config, sizes["layers"], assumed),
        **_window(config, sizes["layers"], assumed),
    }
    tree["ffn"] = _ffn(config, tree)
    if mla:
        tree |= {"kv_heads": sizes["heads"]}
    assumed.append("rotary positions and two norms per layer")
    if _first(config, ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers"), least=0):
        assumed.append("no layers for multi-token prediction, which the file has")
    return {key: value for key, value in tree.items() if value is not None}, assumed


def states_sizes(config: Config) -> bool:
    """Return whether a file has some sizes of a language model under their usual keys."""
    return sum(any(config.keys.get(key) is not None for key in keys) for keys in SIZES.values()) > 1


def language_part(config: Config) -> tuple[Config, list[str]]:
    """Return the part of a configuration that describes the language model, and what else it has, in words."""
    for key in TEXT:
        if isinstance(config.keys.get(key), Mapping):
            inner = config.inner(key)
            deeper, further = language_part(inner)
            return deeper, [*_towers(config), *further]
    return config, _towers(config)


def _towers(config: Config) -> list[str]:
    found = []
    for key, value in config.keys.items():
        kind = next((word for word in TOWERS if key.startswith(word)), None)
        if kind is None or not key.endswith("config") or not isinstance(value, Mapping) or not value:
            continue
        size = _tower_parameters(value)
        named = f"{'vision' if kind in ('vision', 'visual', 'image', 'vit') else kind} tower"
        article = "an" if named[0] in "aeiou" else "a"
        of_size = (
            f"{article} {named} of about {size / 1e9:.2g} B parameters"
            if size
            else f"{article} {named} of unknown size"
        )
        found.append(f"{of_size} ({key}) is not modelled")
    return found


def _tower_parameters(keys: Mapping[str, Any]) -> float:
    """Return roughly how many parameters a stack of attention layers has; 0 if its sizes are not given."""

    def size(*names: str) -> float:
        values = (keys.get(name) for name in names)
        return next((float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool) and v > 0), 0.0)

    hidden = size("hidden_size", "width", "embed_dim", "d_model")
    layers = size("num_hidden_layers", "depth", "layers", "num_layers", "encoder_layers")
    ffn = size("intermediate_size", "mlp_dim", "encoder_ffn_dim") or size("mlp_ratio") * hidden or 4 * hidden
    return layers * (4 * hidden**2 + 2 * hidden * ffn)


# ---------------------------------------------------------------------------------------------------- what is refused


def _refuse_others(config: Config) -> None:
    kind = config.keys.get("model_type")
    if isinstance(kind, str) and OTHER_TYPES.fullmatch(kind):
        raise SpecError(
            join(config.where, "model_type"), kind, "has state-space or recurrent layers, not modelled here"
        )
    for key, value in config.keys.items():
        if isinstance(key, str) and STATE_SPACE.fullmatch(key) and value not in (None, 0, False, [], {}):
            rule = "is of state-space, convolution or linear-attention layers, which are not modelled"
            raise SpecError(join(config.where, key), value, rule)
    types = config.keys.get("layer_types")
    if isinstance(types, list) and not set(map(str, types)) <= set(LAYER_TYPES):
        other = sorted(set(map(str, types)) - set(LAYER_TYPES))
        raise SpecError(
            join(config.where, "layer_types"), other, "are layers without attention, which are not modelled"
        )
    config.fixed("is_encoder_decoder", False, "only decoders are read from unknown architectures")
    names = config.keys.get("architectures")
    if (
        isinstance(names, list)
        and names
        and not any(isinstance(name, str) and DECODERS.fullmatch(name) for name in names)
    ):
        rule = "is no known architecture, and its name is not that of a decoder (…ForCausalLM)"
        raise SpecError(join(config.where, "architectures"), names, rule)


# ------------------------------------------------------------------------------------------------------------- sizes


def _first(config: Config, names: tuple[str, ...], least: int = 1) -> int | None:
    """Return the whole number under the first of *names* that is there."""
    name = next((name for name in names if config.keys.get(name) is not None), None)
    return None if name is None else config.size(name, least=least)


def _needed(config: Config, *names: str) -> int:
    found = _first(config, names)
    if found is None:
        rule = "is needed to read an architecture that is not known by name"
        raise SpecError(join(config.where, names[0]), Absent(), rule)
    return found


def _sizes(config: Config) -> Tree:
    return {size: _needed(config, *keys) for size, keys in SIZES.items()}


def _head_dim(config: Config, sizes: Tree, mla: Tree | None) -> int:
    if mla:
        return _first(config, ("qk_nope_head_dim",)) or 128
    stated = _first(config, ("head_dim", "attention_head_dim", "kv_channels"))
    if stated is None and sizes["hidden"] % sizes["heads"]:
        rule = f"is needed, as hidden_size {sizes['hidden']} does not divide by {sizes['heads']} heads"
        raise SpecError(join(config.where, "head_dim"), Absent(), rule)
    return stated or sizes["hidden"] // sizes["heads"]


def _ffn(config: Config, tree: Tree) -> int:
    names = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "d_ff", "dense_intermediate_size")
    stated = _first(config, names)
    experts = tree.get("experts")
    if stated is None and experts:
        return int(experts["ffn"])
    return _needed(config, *names) if stated is None else stated


def _mla(config: Config) -> Tree | None:
    if config.keys.get("kv_lora_rank") is None:
        return None
    ranks = {
        "q_lora_rank": _first(config, ("q_lora_rank",)),
        "kv_lora_rank": config.size("kv_lora_rank"),
        "qk_rope_head_dim": config.size("qk_rope_head_dim", default=64, least=0),
        "v_head_dim": config.size("v_head_dim", default=128),
    }
    return {key: value for key, value in ranks.items() if value is not None}


def _experts(config: Config, layers: int, assumed: list[str]) -> Tree | None:
    names = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts", "num_routed_experts")
    count = _first(config, names, least=0)
    if not count or count == 1:
        return None
    own = ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size", "expert_intermediate_size")
    ffn = _first(config, own)
    if ffn is None:
        ffn = _needed(config, "intermediate_size")
        assumed.append(f"experts as wide as intermediate_size, {ffn}")
    shared, number = _first(config, ("shared_expert_intermediate_size",)), _first(config, SHARED, least=0) or 0
    every = _first(config, ("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step", "moe_layer_interval"))
    active = _needed(
        config, "num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_topk", "experts_per_token"
    )
    return {
        "count": count,
        "active": active,
        "ffn": ffn,
        "shared_ffn": shared if shared is not None else number * ffn,
        "dense_first": _first(config, ("first_k_dense_replace", "moe_layer_start_index"), least=0) or 0,
        "every": every or 1,
    }


# ------------------------------------------------------------------------------------------------------------- kinds


def _switch(config: Config, *names: str) -> bool:
    return any(config.keys.get(name) is True for name in names)


def _gated(config: Config, norm: str, assumed: list[str]) -> bool:
    """Return whether the feed-forward network is gated: with SiLU always, with GELU or unsaid beside RMS norms."""
    name = next((key for key in ACTIVATIONS if config.keys.get(key) is not None), None)
    stated = config.get(name, "").lower() if name is not None else ""
    gated = stated in GATED or (norm == "rmsnorm" and (not stated or "gelu" in stated))
    words = "a gated feed-forward network" if gated else "a feed-forward network without a gate"
    assumed.append(f"{words}, as {name} is {stated}" if name is not None else words)
    return gated


def _norm(config: Config, assumed: list[str]) -> str:
    if any(key in config.keys for key in ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon")) and not any(
        "rms" in key for key in config.keys
    ):
        assumed.append("layer norms")
        return "layernorm"
    if "rms_norm_eps" not in config.keys:
        assumed.append("RMS norms")
    return "rmsnorm"


def _tied(config: Config, assumed: list[str]) -> bool:
    """Return whether embeddings are shared; files leave the key out where they are: it is transformers' default."""
    if config.keys.get("tie_word_embeddings") is None:
        assumed.append("one embedding for input and output, as tie_word_embeddings is not there")
    return config.get("tie_word_embeddings", True)


def _biases(config: Config) -> list[str]:
    every = _switch(config, "use_bias", "bias", "add_bias_linear")
    attention = _switch(config, "attention_bias", "qkv_bias", "add_qkv_bias", "use_qkv_bias")
    out = _switch(config, "attention_bias", "attention_out_bias")
    feed = _switch(config, "mlp_bias")
    found = {"qkv": every or attention, "out": every or out, "ffn": every or feed}
    return [name for name, there in found.items() if there]


def _window(config: Config, layers: int, assumed: list[str]) -> Tree:
    """Return the sliding window, if the file has one and does not switch it off."""
    window = _first(config, ("sliding_window", "sliding_window_size", "attention_window"), least=0)
    if not window or config.keys.get("use_sliding_window") is False:
        return {}
    types = config.keys.get("layer_types")
    if not isinstance(types, list):
        every = _first(config, ("sliding_window_pattern", "full_attention_interval", "global_attn_every_n_layers"))
        if every is None:
            assumed.append(f"a window of {window} tokens in every layer")
        return (
            {"window": window}
            if every is None
            else {}
            if every == 1
            else {"window": window, "full_attention_every": every}
        )
    full = [place for place, kind in enumerate(types, 1) if kind in ("full_attention", "attention", "global")]
    if len(full) == len(types):
        return {}
    if not full:
        return {"window": window}
    if len(types) != layers or full != list(range(full[0], len(types) + 1, full[0])):
        assumed.append(
            f"full attention in every {max(1, len(types) // len(full))}th layer, as in {len(full)} of {len(types)}"
        )
        return {"window": window, "full_attention_every": max(2, len(types) // len(full))}
    return {"window": window, "full_attention_every": full[0]}
