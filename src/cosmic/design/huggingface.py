"""Read a model from a Hugging Face ``config.json``: one short function per architecture.

The file must state layers, hidden size, heads and vocabulary. Other keys default as in transformers, on which many
released files rely. What the model layer cannot express is refused. The parameters are those of transformers' training
class: ``…ForCausalLM``, ``BertForPreTraining``, ``T5ForConditionalGeneration``, ``ViTForImageClassification``.

Models whose layers differ in their mixers (attention layers, state-space layers, experts) become a pattern of the model
layer. Modules that predict further tokens are not of transformers' classes, and left out.

An architecture without a function of its own is read from the usual keys. Most new language models are decoders with
grouped queries, rotary positions, a gated feed-forward network and perhaps experts; their files use the same keys. What
such a file leaves open is assumed, and said under ``assumed``. What is no such decoder is refused: state-space layers,
linear attention, encoders.

A model is named after its folder, in a Hugging Face cache as on the hub, and its checkpoint is what was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cosmic.base.errors import LONGEST_NAME, SpecError, UnknownName, check_text, join_path, require, suggest_names
from cosmic.base.files import is_file
from cosmic.base.registry import Registry
from cosmic.design.schema import Absent
from cosmic.design.systems import YAML_ENDINGS

# ---- Checked look-ups in a Hugging Face ``config.json``

KeyType = TypeVar("KeyType", bool, int, str, list[Any])

TYPE_RULES = {
    bool: "must be true or false",
    int: "must be a whole number",
    str: "must be text",
    list: "must be a list",
}


@dataclass(frozen=True, slots=True)
class ConfigKeys:
    """The keys of a file, and its name for messages. Each look-up checks the type; null counts as absent."""

    keys: Mapping[str, Any]
    where: str

    def get(self, name: str, default: KeyType) -> KeyType:
        """Return the value of *name*, which must have the type of *default*."""
        value = self.keys.get(name)
        if value is None:
            return default
        require(type(value) is type(default), join_path(self.where, name), value, TYPE_RULES[type(default)])
        if isinstance(value, str):
            check_text(value, join_path(self.where, name))
        typed: KeyType = value
        return typed

    def size(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """Return the whole number under the first of *names* that is present."""
        name = next((name for name in names if self.keys.get(name) is not None), names[0])
        if default is None and self.keys.get(name) is None:
            raise SpecError(join_path(self.where, name), self.keys.get(name, Absent()), TYPE_RULES[int])
        value = self.get(name, default or 0)
        require(value >= least, join_path(self.where, name), value, f"must be at least {least}")
        return value

    def optional(self, name: str, absent: int | None = None) -> int | None:
        """Return the whole number under *name*; None if it is null, *absent* if it is missing."""
        if name not in self.keys:
            return absent
        return None if self.keys[name] is None else self.size(name)

    def inner(self, name: str) -> ConfigKeys:
        """Return the mapping under *name*, empty if there is none."""
        value = self.keys.get(name)
        is_mapping = value is None or isinstance(value, Mapping)
        require(is_mapping, join_path(self.where, name), value, "must be a mapping of keys to values")
        return ConfigKeys(value or {}, join_path(self.where, name))

    def fixed(self, name: str, value: KeyType, rule: str) -> None:
        """Refuse anything but *value* under *name*, because the model layer cannot express it."""
        self.refuse(self.get(name, value) != value, name, rule)

    def refuse(self, holds: bool, name: str, rule: str) -> None:
        """Raise a `SpecError` about *name* if *holds*."""
        require(not holds, join_path(self.where, name), self.keys.get(name, Absent()), rule)


# ---- Hugging Face configurations of architectures that nobody described: a decoder from the usual keys

Tree = dict[str, Any]
TEXT_SECTIONS = (
    "text_config",
    "llm_config",
    "language_config",
    "language_model_config",
    "thinker_config",
    "decoder_config",
)
"""Keys under which models of several modalities describe their language model."""
TOWER_KEYS = (
    "vision",
    "audio",
    "image",
    "video",
    "speech",
    "visual",
    "vit",
    "talker",
    "encoder",
    "code2wav",
    "token2wav",
)
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


def generic_model(config: ConfigKeys) -> tuple[Tree, list[str]]:
    """Return a model tree of an unknown architecture, and what was assumed."""
    _refuse_other_models(config)
    assumed: list[str] = []
    if not config.keys.get("architectures"):
        assumed.append("a decoder, as the file names no architecture")
    sizes = {size: _required_size(config, *keys) for size, keys in SIZES.items()}
    mla, norm = _usual_mla(config), _usual_norm(config, assumed)
    tree: Tree = {
        "family": "decoder",
        **sizes,
        "kv_heads": _first_size(config, ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "multi_query_group_num"))
        or sizes["heads"],
        "head_dim": _usual_head_dim(config, sizes, mla),
        "gated": _is_gated(config, norm, assumed),
        "norm": norm,
        "qk_norm": _is_on(config, "qk_norm", "use_qk_norm", "qk_layernorm"),
        "tied_embeddings": _is_tied(config, assumed),
        "biases": _usual_biases(config),
        "mla": mla,
        "experts": _usual_experts(config, sizes["layers"], assumed),
        **_usual_window(config, sizes["layers"], assumed),
    }
    tree["ffn"] = _usual_ffn(config, tree)
    if mla:
        tree |= {"kv_heads": sizes["heads"]}
    assumed.append("rotary positions and two norms per layer")
    if _first_size(config, ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers"), least=0):
        assumed.append("no layers for multi-token prediction, which the file has")
    return {key: value for key, value in tree.items() if value is not None}, assumed


def states_sizes(config: ConfigKeys) -> bool:
    """Return whether a file has some sizes of a language model under their usual keys."""
    return sum(any(config.keys.get(key) is not None for key in keys) for keys in SIZES.values()) > 1


def language_part(config: ConfigKeys) -> tuple[ConfigKeys, list[str]]:
    """Return the part of a configuration that describes the language model, and what else it has, in words."""
    for key in TEXT_SECTIONS:
        if isinstance(config.keys.get(key), Mapping):
            inner = config.inner(key)
            deeper, further = language_part(inner)
            return deeper, [*_list_towers(config), *further]
    return config, _list_towers(config)


def _list_towers(config: ConfigKeys) -> list[str]:
    notes = []
    for key, value in config.keys.items():
        kind = next((word for word in TOWER_KEYS if key.startswith(word)), None)
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
        notes.append(f"{of_size} ({key}) is not modelled")
    return notes


def _tower_parameters(keys: Mapping[str, Any]) -> float:
    """Return roughly how many parameters a stack of attention layers has; 0 if its sizes are not given."""

    def size(*names: str) -> float:
        values = (keys.get(name) for name in names)
        return next((float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool) and v > 0), 0.0)

    hidden = size("hidden_size", "width", "embed_dim", "d_model")
    layers = size("num_hidden_layers", "depth", "layers", "num_layers", "encoder_layers")
    ffn = size("intermediate_size", "mlp_dim", "encoder_ffn_dim") or size("mlp_ratio") * hidden or 4 * hidden
    return layers * (4 * hidden**2 + 2 * hidden * ffn)


# ---- what is refused


def _refuse_other_models(config: ConfigKeys) -> None:
    kind = config.keys.get("model_type")
    if isinstance(kind, str) and OTHER_TYPES.fullmatch(kind):
        raise SpecError(
            join_path(config.where, "model_type"), kind, "has state-space or recurrent layers, not modelled here"
        )
    for key, value in config.keys.items():
        if isinstance(key, str) and STATE_SPACE.fullmatch(key) and value not in (None, 0, False, [], {}):
            rule = "is of state-space, convolution or linear-attention layers, which are not modelled"
            raise SpecError(join_path(config.where, key), value, rule)
    types = config.keys.get("layer_types")
    if isinstance(types, list) and not set(map(str, types)) <= set(LAYER_TYPES):
        unknown = sorted(set(map(str, types)) - set(LAYER_TYPES))
        raise SpecError(
            join_path(config.where, "layer_types"), unknown, "are layers without attention, which are not modelled"
        )
    config.fixed("is_encoder_decoder", False, "only decoders are read from unknown architectures")
    names = config.keys.get("architectures")
    if (
        isinstance(names, list)
        and names
        and not any(isinstance(name, str) and DECODERS.fullmatch(name) for name in names)
    ):
        rule = "is no known architecture, and its name is not that of a decoder (…ForCausalLM)"
        raise SpecError(join_path(config.where, "architectures"), names, rule)


# ---- sizes


def _first_size(config: ConfigKeys, names: tuple[str, ...], least: int = 1) -> int | None:
    """Return the whole number under the first of *names* that is there."""
    name = next((name for name in names if config.keys.get(name) is not None), None)
    return None if name is None else config.size(name, least=least)


def _required_size(config: ConfigKeys, *names: str) -> int:
    size = _first_size(config, names)
    if size is None:
        rule = "is needed to read an architecture that is not known by name"
        raise SpecError(join_path(config.where, names[0]), Absent(), rule)
    return size


def _usual_head_dim(config: ConfigKeys, sizes: Tree, mla: Tree | None) -> int:
    if mla:
        return _first_size(config, ("qk_nope_head_dim",)) or 128
    head_dim = _first_size(config, ("head_dim", "attention_head_dim", "kv_channels"))
    if head_dim is None and sizes["hidden"] % sizes["heads"]:
        rule = f"is needed, as hidden_size {sizes['hidden']} does not divide by {sizes['heads']} heads"
        raise SpecError(join_path(config.where, "head_dim"), Absent(), rule)
    return head_dim or sizes["hidden"] // sizes["heads"]


def _usual_ffn(config: ConfigKeys, tree: Tree) -> int:
    names = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "d_ff", "dense_intermediate_size")
    width = _first_size(config, names)
    experts = tree.get("experts")
    if width is None and experts:
        return int(experts["ffn"])
    return _required_size(config, *names) if width is None else width


def _usual_mla(config: ConfigKeys) -> Tree | None:
    if config.keys.get("kv_lora_rank") is None:
        return None
    ranks = {
        "q_lora_rank": _first_size(config, ("q_lora_rank",)),
        "kv_lora_rank": config.size("kv_lora_rank"),
        "qk_rope_head_dim": config.size("qk_rope_head_dim", default=64, least=0),
        "v_head_dim": config.size("v_head_dim", default=128),
    }
    return {key: value for key, value in ranks.items() if value is not None}


def _usual_experts(config: ConfigKeys, layers: int, assumed: list[str]) -> Tree | None:
    names = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts", "num_routed_experts")
    count = _first_size(config, names, least=0)
    if not count or count == 1:
        return None
    own = ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size", "expert_intermediate_size")
    ffn = _first_size(config, own)
    if ffn is None:
        ffn = _required_size(config, "intermediate_size")
        assumed.append(f"experts as wide as intermediate_size, {ffn}")
    shared, number = (
        _first_size(config, ("shared_expert_intermediate_size",)),
        _first_size(config, SHARED, least=0) or 0,
    )
    every = _first_size(
        config, ("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step", "moe_layer_interval")
    )
    active = _required_size(
        config, "num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_topk", "experts_per_token"
    )
    return {
        "count": count,
        "active": active,
        "ffn": ffn,
        "shared_ffn": shared if shared is not None else number * ffn,
        "dense_first": _first_size(config, ("first_k_dense_replace", "moe_layer_start_index"), least=0) or 0,
        "every": every or 1,
    }


# ---- kinds


def _is_on(config: ConfigKeys, *names: str) -> bool:
    return any(config.keys.get(name) is True for name in names)


def _is_gated(config: ConfigKeys, norm: str, assumed: list[str]) -> bool:
    """Return whether the feed-forward network is gated: with SiLU always, with GELU or unsaid beside RMS norms."""
    name = next((key for key in ACTIVATIONS if config.keys.get(key) is not None), None)
    activation = config.get(name, "").lower() if name is not None else ""
    # Beside RMS norms, files often say GELU or nothing of a gated network, as Gemma's and Llama's relatives do.
    gated = activation in GATED or (norm == "rmsnorm" and (not activation or "gelu" in activation))
    words = "a gated feed-forward network" if gated else "a feed-forward network without a gate"
    assumed.append(f"{words}, as {name} is {activation}" if name is not None else words)
    return gated


def _usual_norm(config: ConfigKeys, assumed: list[str]) -> str:
    if any(key in config.keys for key in ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon")) and not any(
        "rms" in key for key in config.keys
    ):
        assumed.append("layer norms")
        return "layernorm"
    if "rms_norm_eps" not in config.keys:
        assumed.append("RMS norms")
    return "rmsnorm"


def _is_tied(config: ConfigKeys, assumed: list[str]) -> bool:
    """Return whether embeddings are shared; files leave the key out where they are: it is transformers' default."""
    if config.keys.get("tie_word_embeddings") is None:
        assumed.append("one embedding for input and output, as tie_word_embeddings is not there")
    return config.get("tie_word_embeddings", True)


def _usual_biases(config: ConfigKeys) -> list[str]:
    all_biases = _is_on(config, "use_bias", "bias", "add_bias_linear")
    attention = _is_on(config, "attention_bias", "qkv_bias", "add_qkv_bias", "use_qkv_bias")
    out = _is_on(config, "attention_bias", "attention_out_bias")
    feed = _is_on(config, "mlp_bias")
    present = {"qkv": all_biases or attention, "out": all_biases or out, "ffn": all_biases or feed}
    return [name for name, is_present in present.items() if is_present]


def _usual_window(config: ConfigKeys, layers: int, assumed: list[str]) -> Tree:
    """Return the sliding window, if the file has one and does not switch it off."""
    window = _first_size(config, ("sliding_window", "sliding_window_size", "attention_window"), least=0)
    if not window or config.keys.get("use_sliding_window") is False:
        return {}
    types = config.keys.get("layer_types")
    if not isinstance(types, list):
        every = _first_size(config, ("sliding_window_pattern", "full_attention_interval", "global_attn_every_n_layers"))
        if every is None:
            assumed.append(f"a window of {window} tokens in every layer")
        return (
            {"window": window}
            if every is None
            else {}
            if every == 1
            else {"window": window, "full_attention_every": every}
        )
    full = [index for index, kind in enumerate(types, 1) if kind in ("full_attention", "attention", "global")]
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


# ---- Hugging Face configurations of models whose layers differ in their mixers: one short function per architecture

NO_BIAS = "biases of these projections cannot be expressed"
LETTERS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
"""Letters of Nemotron-H's pattern, by the names that newer files have in place of them."""


def _hybrid_decoder(config: ConfigKeys, *, tied: bool = False, **more: Any) -> Tree:
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


def _hybrid_attention(config: ConfigKeys, kv_heads: int) -> Tree:
    return {
        "heads": config.size("num_attention_heads"),
        "kv_heads": config.optional("num_key_value_heads", kv_heads) or config.size("num_attention_heads"),
        "head_dim": config.optional("head_dim"),
    }


def _state_space_decoder(heads: int, head_dim: int) -> Tree:
    """Return the sizes of attention that a model without any has: those of its state space."""
    return {"heads": heads, "head_dim": head_dim, "ffn": heads * head_dim}


def _divide_width(config: ConfigKeys, heads: int, width: int, where: str) -> int:
    """Return the width of one of some *heads* that have a *width* together."""
    config.refuse(width % heads != 0, where, f"must divide the width of the state space, {width}")
    return width // heads


# ---- Mamba


def read_mamba(config: ConfigKeys) -> Tree:
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
        "rank": _time_step_rank(config, "time_step_rank"),
        "norm": False,
    }
    alone = {"pattern": "M", "single_mixers": True, "norms_per_layer": 1, "rope": False, "ssm": ssm}
    return _hybrid_decoder(config, tied=True, **_state_space_decoder(inner, 1), **alone)


def _time_step_rank(config: ConfigKeys, key: str) -> int:
    """Return the rank of Mamba-1's time steps: a sixteenth of the width, unless it is stated."""
    if config.keys.get(key) in (None, "auto"):
        return -(-config.size("hidden_size") // 16)
    return config.size(key)


def read_mamba2(config: ConfigKeys) -> Tree:
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
    return _hybrid_decoder(config, **_state_space_decoder(heads, head_dim), **alone)


# ---- hybrids


def read_nemotron_h(config: ConfigKeys) -> Tree:
    """Return a Nemotron-H: Mamba-2, attention, feed-forward networks and experts as layers of their own."""
    for name in ("attention_bias", "mlp_bias", "use_bias", "mamba_proj_bias"):
        config.fixed(name, False, NO_BIAS)
    pattern = _layer_letters(config)
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
    return _hybrid_decoder(config, **_hybrid_attention(config, 8), ffn=config.size("intermediate_size"), **more)


def _layer_letters(config: ConfigKeys) -> str:
    """Return the pattern of Nemotron-H, which must name each layer."""
    letters = config.get("hybrid_override_pattern", "")
    if not letters:
        kinds = config.get("layers_block_type", [])
        valid = bool(kinds) and all(isinstance(kind, str) and kind in LETTERS for kind in kinds)
        config.refuse(not valid, "layers_block_type", f"must be one of {', '.join(LETTERS)} for each layer")
        letters = "".join(LETTERS[kind] for kind in kinds)
    complete = len(letters) == config.size("num_hidden_layers") and set(letters) <= set(LETTERS.values())
    config.refuse(not complete, "hybrid_override_pattern", "must name each layer by one of the letters M * - E")
    return letters


def read_qwen3_next(config: ConfigKeys) -> Tree:
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
    sizes = _hybrid_attention(config, 2) | {"head_dim": config.size("head_dim", default=256)}
    return _hybrid_decoder(config, **sizes, ffn=config.size("intermediate_size", default=5632), **more)


def _linear_pattern(config: ConfigKeys) -> str:
    """Return the pattern of attention layers: from ``layer_types``, or every n-th."""
    interval = config.size("full_attention_interval", default=4)
    types = config.get("layer_types", [])
    if not types:
        return "M" * (interval - 1) + "*"
    letters = {"linear_attention": "M", "full_attention": "*"}
    valid = all(isinstance(kind, str) and kind in letters for kind in types)
    fits = valid and len(types) == config.size("num_hidden_layers")
    config.refuse(not fits, "layer_types", "must be linear_attention or full_attention for each layer")
    return "".join(letters[kind] for kind in types)


def read_jamba(config: ConfigKeys) -> Tree:
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
        "rank": _time_step_rank(config, "mamba_dt_rank"),
    }
    pattern = "M" * offset + "*" + "M" * (period - offset - 1)
    ffn = config.size("intermediate_size")
    count = config.size("num_experts", default=16)
    experts = {"count": count, "active": config.size("num_experts_per_tok", default=2), "ffn": ffn}
    more: Tree = {"gated": True, "rope": False, "pattern": pattern, "ffn": ffn}
    more |= {"ssm": ssm} if "M" in pattern else {}
    more |= {"experts": experts | {"dense_first": first, "every": every}} if count > 1 else {}
    return _hybrid_decoder(config, **_hybrid_attention(config, 8), **more)


def read_falcon_h1(config: ConfigKeys) -> Tree:
    """Return a Falcon-H1: attention and Mamba-2 side by side in every layer."""
    for name in ("attention_bias", "mlp_bias", "mamba_proj_bias", "projectors_bias"):
        config.fixed(name, False, NO_BIAS)
    hidden, heads = config.size("hidden_size"), config.size("mamba_n_heads", default=128)
    expanded = config.size("mamba_expand", default=2) * hidden
    inner = config.optional("mamba_d_ssm", 1024) or expanded
    ssm = {
        "heads": heads,
        "head_dim": _divide_width(config, heads, inner, "mamba_n_heads"),
        "groups": config.size("mamba_n_groups", default=1),
        "state": config.size("mamba_d_state", default=256),
        "conv": config.size("mamba_d_conv", default=4),
        "conv_bias": config.get("mamba_conv_bias", True),
        "norm": config.get("mamba_rms_norm", False),
        "chunk": config.size("mamba_chunk_size", default=256),
    }
    more: Tree = {"gated": True, "pattern": "P", "ssm": ssm, "ffn": config.size("intermediate_size")}
    return _hybrid_decoder(config, **_hybrid_attention(config, 8), **more)


# ---- attention to few keys


def read_deepseek_v4(config: ConfigKeys) -> Tree:
    """Return a DeepSeek-V4: attention to a window and to compressed keys, experts, several residual streams."""
    config.fixed("attention_bias", False, NO_BIAS)
    layers = config.size("num_hidden_layers")
    ratios = config.get("compress_ratios", [])[:layers]
    letters = {0: "W", 4: "C", 128: "H"}
    valid = len(ratios) == layers and all(type(ratio) is int and ratio in letters for ratio in ratios)
    config.refuse(not valid, "compress_ratios", "must be 0, 4 or 128 for each layer")
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
    return _hybrid_decoder(config, **_hybrid_attention(config, 1), **more)


HYBRIDS: dict[str, Callable[[ConfigKeys], Tree]] = {
    "deepseek_v4": read_deepseek_v4,
    "falcon_h1": read_falcon_h1,
    "jamba": read_jamba,
    "mamba": read_mamba,
    "mamba2": read_mamba2,
    "nemotron_h": read_nemotron_h,
    "qwen3_next": read_qwen3_next,
}
"""By ``model_type``."""


# ---- Read a model from a Hugging Face ``config.json``: one short function per architecture

architectures: Registry[Callable[[ConfigKeys], Tree]] = Registry("model_type")
"""Functions from a config to a model tree, by ``model_type``."""
for _name, _function in HYBRIDS.items():
    architectures.register(_name)(_function)
NAME_KEYS = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "vocab": "vocab_size",
}
"""Sizes that every file must state, and their usual keys."""
SEQUENCE_KEYS = {
    512: ("bert", "t5"),
    1024: ("gpt2",),
    2048: ("bloom", "deepseek_v2", "falcon", "gpt_neox", "llama", "opt", "phi"),
    4096: ("deepseek_v3", "kimi_k2", "phi3"),
    8192: ("falcon_h1", "gemma", "gemma2"),
    32768: ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"),
    131072: ("gemma3", "gemma3_text", "gpt_oss", "mistral", "mixtral"),
}
"""Default sequence length by ``model_type``."""


LONGEST_SEQUENCE = ("max_position_embeddings", "n_positions", "seq_length", "max_sequence_length")
"""Keys of the most tokens that a model takes."""


def model_from_config(config: Mapping[str, Any], where: str) -> Tree:
    """Return a tree as in a model file, ``{"model": …, "workload": {"sequence": …}}``, from a config.json.

    >>> shape = {"n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257}
    >>> model_from_config({"model_type": "gpt2", **shape}, "config.json")["workload"]
    {'sequence': 1024}
    """
    if not isinstance(config, Mapping):
        raise SpecError(where, config, "must be a mapping of keys to values")
    file_keys = ConfigKeys(config, where)
    outer = file_keys.get("model_type", "")
    language, assumed = language_part(file_keys)  # of a model for images and text, only the language model is read
    name = outer if outer in architectures else language.get("model_type", "")
    if name in architectures:
        model = {key: value for key, value in architectures[name](language).items() if value is not None}
    elif not states_sizes(language):
        hint = suggest_names(name, architectures, shown=len(architectures))
        raise UnknownName(join_path(where, "model_type"), name or Absent(), f"no such architecture{hint}")
    else:
        model, further = generic_model(language)
        unknown = f"the architecture {name} is not known: a decoder was read from the usual keys"
        assumed = [*assumed, unknown if name else "the file has no model_type: read from the usual keys", *further]
    sequence = model["positions"] if name == "vit" else _training_sequence(language, name)
    if model["family"] == "decoder" and (context := _context_length(language)) is not None:
        model["context"] = context
    tree: Tree = {"model": model, "workload": {"sequence": sequence}}
    return tree | ({"assumed": assumed} if assumed else {})


def _context_length(config: ConfigKeys) -> int | None:
    """Return the tokens that a model takes at most: as stated, or as far as its rotary positions are stretched."""
    lengths = [config.size(key) for key in LONGEST_SEQUENCE if config.keys.get(key) is not None][:1]
    for rope in (config.inner("rope_scaling"), config.inner("rope_parameters")):
        before, factor = (rope.keys.get(key) for key in ("original_max_position_embeddings", "factor"))
        if isinstance(before, int) and isinstance(factor, int | float):
            # YaRN and its kin: the trained length times the factor by which positions are stretched.
            lengths.append(int(before * factor))
    return max(lengths, default=None)


def _training_sequence(config: ConfigKeys, architecture: str) -> int:
    """Return the sequence length in training: before the rotary positions were extended, if they were."""
    for keys in (config, config.inner("rope_scaling"), config.inner("rope_parameters")):
        if keys.keys.get("original_max_position_embeddings") is not None:
            return keys.size("original_max_position_embeddings")
    default = next((tokens for tokens, names in SEQUENCE_KEYS.items() if architecture in names), 4096)
    return config.size("max_position_embeddings", "n_positions", "seq_length", default=default)


def _read_sizes(config: ConfigKeys, *, tied: bool = False, **names: str) -> Tree:
    """Return the sizes of any language model; *names* are the keys that differ from `NAME_KEYS`."""
    sizes: Tree = {key: config.size(names.get(key, usual), usual) for key, usual in NAME_KEYS.items()}
    return sizes | {"tied_embeddings": config.get("tie_word_embeddings", tied)}


def _list_biases(**present: bool) -> list[str]:
    return [name for name, is_present in present.items() if is_present]


def _attention_biases(config: ConfigKeys, default: bool = False) -> list[str]:
    present = config.get("attention_bias", default)
    return _list_biases(qkv=present, out=present)


def _read_windows(config: ConfigKeys, window: int | None, every: int | None = None) -> Tree:
    """Return the sliding *window* of all layers but every *every*-th, unless ``layer_types`` says otherwise."""
    if types := config.get("layer_types", []):
        every = _full_attention_every(config, types)
    return {} if window is None or every == 1 else {"window": window, "full_attention_every": every}


def _full_attention_every(config: ConfigKeys, types: list[Any]) -> int | None:
    """Return the interval of layers with full attention; None if there are none."""
    valid = all(entry in ("full_attention", "sliding_attention") for entry in types)
    fits = valid and len(types) == config.size("num_hidden_layers")
    config.refuse(not fits, "layer_types", "must be full_attention or sliding_attention for each layer")
    full = [index for index, entry in enumerate(types, 1) if entry == "full_attention"]
    # Full attention in layers n, 2 n, 3 n, …: other patterns have no field.
    every = full[0] if full else None
    regular = every is None or full == list(range(every, len(types) + 1, every))
    config.refuse(not regular, "layer_types", "full attention must come in every n-th layer")
    return every


def _qwen_windows(config: ConfigKeys) -> Tree:
    """Return Qwen's sliding windows: off unless enabled, and then from one layer on."""
    if not config.get("use_sliding_window", False):
        return {}
    if not config.get("layer_types", []):
        start = config.size("max_window_layers", default=28, least=0)
        if start >= config.size("num_hidden_layers"):
            return {}
        config.refuse(start > 0, "max_window_layers", "a window in later layers alone cannot be expressed")
    return _read_windows(config, config.optional("sliding_window", 4096))


# ---- gated decoders, after Llama


def _gated_decoder(config: ConfigKeys, *, kv_heads: int | None = None, tied: bool = False, **more: Any) -> Tree:
    """Return a decoder with RMS norms, a gated feed-forward network and rotary positions, plus *more*."""
    sizes = _read_sizes(config, tied=tied)
    return {
        "family": "decoder",
        **sizes,
        "kv_heads": config.optional("num_key_value_heads", absent=kv_heads) or sizes["heads"],
        "head_dim": config.optional("head_dim"),
        "ffn": config.size("intermediate_size"),
        "gated": True,
        "norm": "rmsnorm",
        **more,
    }


@architectures.register("llama")
def _read_llama(config: ConfigKeys) -> Tree:
    ffn = _list_biases(ffn=config.get("mlp_bias", False))
    return _gated_decoder(config, biases=_attention_biases(config) + ffn)


@architectures.register("mistral")
def _read_mistral(config: ConfigKeys) -> Tree:
    return _gated_decoder(config, kv_heads=8, **_read_windows(config, config.optional("sliding_window", 4096)))


@architectures.register("phi3")
def _read_phi3(config: ConfigKeys) -> Tree:
    return _gated_decoder(config, **_read_windows(config, config.optional("sliding_window")))


@architectures.register("qwen2")
def _read_qwen2(config: ConfigKeys) -> Tree:
    return _gated_decoder(config, kv_heads=32, biases=["qkv"], **_qwen_windows(config))


@architectures.register("qwen3")
def _read_qwen3(config: ConfigKeys) -> Tree:
    more = {"qk_norm": True, "biases": _attention_biases(config), **_qwen_windows(config)}
    return _gated_decoder(config, kv_heads=32, **more) | {"head_dim": config.size("head_dim", default=128)}


def _gemma_decoder(config: ConfigKeys, **more: Any) -> Tree:
    model = _gated_decoder(config, tied=True, biases=_attention_biases(config), **more)
    return model | {"head_dim": config.size("head_dim", default=256)}


@architectures.register("gemma")
def _read_gemma(config: ConfigKeys) -> Tree:
    return _gemma_decoder(config, kv_heads=16)


@architectures.register("gemma2")
def _read_gemma2(config: ConfigKeys) -> Tree:
    windows = _read_windows(config, config.optional("sliding_window", 4096), every=2)
    return _gemma_decoder(config, kv_heads=4, norms_per_layer=4, **windows)


@architectures.register("gemma3")
@architectures.register("gemma3_text")
def _read_gemma3(config: ConfigKeys) -> Tree:
    # Released files leave out the heads and the vocabulary where they are these.
    config = ConfigKeys({"num_attention_heads": 8, "vocab_size": 262208, **config.keys}, config.where)
    every = config.size("sliding_window_pattern", default=6)
    windows = _read_windows(config, config.optional("sliding_window", 4096), every)
    return _gemma_decoder(config, kv_heads=4, norms_per_layer=4, qk_norm=True, **windows)


# ---- MoE models


def _local_experts(config: ConfigKeys) -> Tree:
    return {
        "count": config.size("num_local_experts", "num_experts"),
        "active": config.size("num_experts_per_tok", "experts_per_token"),
        "ffn": config.size("intermediate_size"),
    }


@architectures.register("mixtral")
def _read_mixtral(config: ConfigKeys) -> Tree:
    more = _read_windows(config, config.optional("sliding_window")) | {"experts": _local_experts(config)}
    return _gated_decoder(config, kv_heads=8, **more)


@architectures.register("gpt_oss")
def _read_gpt_oss(config: ConfigKeys) -> Tree:
    more = _read_windows(config, config.optional("sliding_window", 128), every=2)
    more["biases"] = [*_attention_biases(config, default=True), "experts", "router"]
    model = _gated_decoder(config, kv_heads=8, sinks=True, experts=_local_experts(config), **more)
    return model | {"head_dim": config.size("head_dim", default=64)}


def _qwen_experts(config: ConfigKeys) -> Tree:
    every = config.size("decoder_sparse_step", default=1)
    dense = config.get("mlp_only_layers", [])
    first = dense == list(range(len(dense))) and (not dense or every == 1)
    config.refuse(not first, "mlp_only_layers", "layers without experts must be the first ones")
    return {
        "count": config.size("num_experts", "num_local_experts"),
        "active": config.size("num_experts_per_tok"),
        "ffn": config.size("moe_intermediate_size"),
        "dense_first": len(dense),
        "every": every,
    }


@architectures.register("qwen2_moe")
def _read_qwen2_moe(config: ConfigKeys) -> Tree:
    unclear = config.get("use_sliding_window", False) and not config.get("layer_types", [])
    config.refuse(unclear, "use_sliding_window", "needs layer_types that say which layers have a window")
    shared = config.size("shared_expert_intermediate_size", default=5632)
    experts = {**_qwen_experts(config), "shared_ffn": shared, "shared_gate": True}
    biases = _list_biases(qkv=config.get("qkv_bias", True))
    return _gated_decoder(config, kv_heads=16, biases=biases, experts=experts, **_qwen_windows(config))


@architectures.register("qwen3_moe")
def _read_qwen3_moe(config: ConfigKeys) -> Tree:
    window = config.optional("sliding_window", 4096)
    more = _read_windows(config, window) if config.get("use_sliding_window", False) else {}
    more |= {"biases": _attention_biases(config), "experts": _qwen_experts(config)}
    return _gated_decoder(config, kv_heads=4, qk_norm=True, **more)


@architectures.register("deepseek_v2")
@architectures.register("deepseek_v3")
@architectures.register("kimi_k2")
def _read_deepseek(config: ConfigKeys) -> Tree:
    config.fixed("attention_bias", False, "biases in MLA cannot be expressed")
    config.fixed("mlp_bias", False, "biases in only some feed-forward networks cannot be expressed")
    config.fixed("moe_layer_freq", 1, "dense layers between MoE layers cannot be expressed")
    ffn = config.size("moe_intermediate_size")
    experts = {
        "count": config.size("n_routed_experts"),
        "active": config.size("num_experts_per_tok"),
        "ffn": ffn,
        "shared_ffn": ffn * config.size("n_shared_experts", least=0),
        "dense_first": config.size("first_k_dense_replace", least=0),
    }
    mla = {
        "q_lora_rank": config.optional("q_lora_rank", 1536),
        "kv_lora_rank": config.size("kv_lora_rank", default=512),
        "qk_rope_head_dim": config.size("qk_rope_head_dim", default=64),
        "v_head_dim": config.size("v_head_dim", default=128),
    }
    model = _gated_decoder(config, experts=experts, mla=mla)
    # Every head has its own keys and values, projected from the shared vector: no grouped queries.
    return model | {"kv_heads": model["heads"], "head_dim": config.size("qk_nope_head_dim", default=128)}


# ---- plain decoders


@architectures.register("gpt2")
def _read_gpt2(config: ConfigKeys) -> Tree:
    config.fixed("add_cross_attention", False, "a decoder without an encoder has nothing else to attend to")
    sizes = _read_sizes(config, tied=True, layers="n_layer", hidden="n_embd", heads="n_head")
    return {
        "family": "decoder",
        **sizes,
        "ffn": config.size("n_inner", default=4 * sizes["hidden"]),
        "positions": config.size("n_positions", default=1024),
        "biases": ["qkv", "out", "ffn"],
    }


@architectures.register("gpt_neox")
def _read_gpt_neox(config: ConfigKeys) -> Tree:
    return {
        "family": "decoder",
        **_read_sizes(config),
        "ffn": config.size("intermediate_size"),
        "parallel_block": config.get("use_parallel_residual", True),
        "biases": [*_attention_biases(config, default=True), "ffn"],
    }


@architectures.register("opt")
def _read_opt(config: ConfigKeys) -> Tree:
    sizes = _read_sizes(config, tied=True)
    config.fixed("word_embed_proj_dim", sizes["hidden"], "embeddings must be as wide as hidden_size")
    config.fixed("layer_norm_elementwise_affine", True, "norms without a scale cannot be expressed")
    bias, bare = config.get("enable_bias", True), config.get("_remove_final_layer_norm", False)
    return {
        "family": "decoder",
        **sizes,
        "ffn": config.size("ffn_dim"),
        "positions": 2 + config.size("max_position_embeddings", default=2048),  # two are for padding
        "final_norm": config.get("do_layer_norm_before", True) and not bare,
        "biases": _list_biases(qkv=bias, out=bias, ffn=bias),
    }


@architectures.register("bloom")
def _read_bloom(config: ConfigKeys) -> Tree:
    sizes = _read_sizes(config, tied=True, layers="n_layer", hidden="n_embed", heads="n_head")
    more = {"ffn": 4 * sizes["hidden"], "embedding_norm": True, "biases": ["qkv", "out", "ffn"]}
    return {"family": "decoder", **sizes, **more}


@architectures.register("falcon")
def _read_falcon(config: ConfigKeys) -> Tree:
    sizes = _read_sizes(config, tied=True)
    new, bias = config.get("new_decoder_architecture", False), config.get("bias", False)
    old_kv_heads = 1 if config.get("multi_query", True) else sizes["heads"]
    parallel = config.get("parallel_attn", True)
    norms = config.size("num_ln_in_parallel_attn", default=2 if new else 1)
    return {
        "family": "decoder",
        **sizes,
        "kv_heads": config.size("num_kv_heads", default=sizes["heads"]) if new else old_kv_heads,
        "ffn": config.size("ffn_hidden_size", default=4 * sizes["hidden"]),
        "norms_per_layer": 1 if parallel and norms != 2 else 2,
        "parallel_block": parallel,
        "biases": _list_biases(qkv=bias, out=bias, ffn=bias),
    }


@architectures.register("phi")
def _read_phi(config: ConfigKeys) -> Tree:
    config.fixed("qk_layernorm", False, "layer norms of queries and keys cannot be expressed")
    return {
        "family": "decoder",
        **_read_sizes(config),
        "kv_heads": config.optional("num_key_value_heads"),
        "ffn": config.size("intermediate_size"),
        "norms_per_layer": 1,
        "parallel_block": True,
        "biases": ["qkv", "out", "ffn", "head"],
    }


# ---- encoders


@architectures.register("bert")
def _read_bert(config: ConfigKeys) -> Tree:
    config.fixed("add_cross_attention", False, "an encoder has nothing else to attend to")
    config.fixed("position_embedding_type", "absolute", "relative positions cannot be expressed")
    return {
        "family": "encoder",
        **_read_sizes(config, tied=True),
        "ffn": config.size("intermediate_size"),
        "positions": config.size("max_position_embeddings", default=512),
        "segments": config.size("type_vocab_size", default=2),
        "embedding_norm": True,
        "final_norm": False,
        "pretraining_heads": True,
        "biases": ["qkv", "out", "ffn", "head"],
    }


@architectures.register("t5")
def _read_t5(config: ConfigKeys) -> Tree:
    sizes = _read_sizes(config, tied=True, layers="num_layers", hidden="d_model", heads="num_heads")
    return {
        "family": "encoder_decoder",
        **sizes,
        "layers": config.size("num_decoder_layers", default=sizes["layers"]),
        "encoder_layers": sizes["layers"],
        "head_dim": config.size("d_kv", default=64),
        "ffn": config.size("d_ff"),
        "gated": config.get("feed_forward_proj", "relu").startswith("gated-"),
        "position_buckets": config.size("relative_attention_num_buckets", default=32),
        "norm": "rmsnorm",
    }


@architectures.register("vit")
def _read_vit(config: ConfigKeys) -> Tree:
    size, patch = config.size("image_size", default=224), config.size("patch_size", default=16)
    classes = config.size("num_labels", default=len(config.inner("id2label").keys) or 2)
    return {
        "family": "vision",
        **_read_sizes(ConfigKeys({**config.keys, "vocab_size": classes}, config.where)),
        "ffn": config.size("intermediate_size"),
        "positions": (size // patch) ** 2 + 1,
        "biases": [*_list_biases(qkv=config.get("qkv_bias", True)), "out", "ffn", "head"],
        "image": {"size": size, "patch": patch, "channels": config.size("num_channels", default=3)},
    }


# ---- What a model is called that was asked for by a folder or a name on a hub, and where its weights are


def folder_name(config: Path) -> str:
    """Return what to call a model after the folder of its `config.json`; in a Hugging Face cache, as on the hub.

    >>> folder_name(Path("hub/models--Qwen--Qwen3-8B/snapshots/a1b2/config.json"))
    'Qwen3-8B'
    """
    folders = [folder.name for folder in config.absolute().parents]
    return next((name.rpartition("--")[2] for name in folders if name.startswith("models--")), folders[0])


def stated_checkpoint(base: str, name: str, folder: Path | None) -> str:
    """Return what was asked for where a model has the shapes of an entry of another name; the folder of its weights.

    >>> [stated_checkpoint(asked, "deepseek-v3", None) for asked in ("deepseek-ai/DeepSeek-R1-0528", "DeepSeek V3")]
    ['deepseek-ai/DeepSeek-R1-0528', '']
    """
    weights = folder / base if folder is not None else Path()
    if folder is not None and is_file(weights / "config.json"):
        return _weights_name(weights)
    if folder is not None and weights.suffix == ".json":
        return _weights_name(weights.parent)
    if folder is not None and weights.suffix in YAML_ENDINGS:
        return ""
    plain = ["".join(letter for letter in text.lower() if letter.isalnum() or letter == ".") for text in (base, name)]
    return "" if plain[0] == plain[1] else base


def _weights_name(folder: Path) -> str:
    """Return the name by which an engine loads a folder of weights: its path, or its name on the hub."""
    absolute = folder.absolute()
    names = [part.name for part in (absolute, *absolute.parents)]
    hub = next((name.removeprefix("models--").replace("--", "/") for name in names if name.startswith("models--")), "")
    path = hub or str(absolute)
    return path if len(path) <= LONGEST_NAME and path.isprintable() else ""
