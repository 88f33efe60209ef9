"""Read a model from a Hugging Face ``config.json``: one short function per architecture.

The file must state layers, hidden size, heads and vocabulary. Other keys default as in transformers, on which many
released files rely. What the model layer cannot express is refused. The parameters are those of transformers' training
class: ``…ForCausalLM``, ``BertForPreTraining``, ``T5ForConditionalGeneration``, ``ViTForImageClassification``.

An architecture without a function of its own is read from the usual keys (`cosmic.catalog.huggingface_generic`), with
what that assumes under ``assumed``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cosmic.catalog.config_json import Config
from cosmic.catalog.huggingface_generic import generic_model, language_part, states_sizes
from cosmic.catalog.huggingface_hybrid import HYBRIDS
from cosmic.design.schema import Absent
from cosmic.errors import SpecError, UnknownName, join, suggestion
from cosmic.registry import Registry

Tree = dict[str, Any]
architectures: Registry[Callable[[Config], Tree]] = Registry("model_type")
"""Functions from a config to a model tree, by ``model_type``."""
for _name, _function in HYBRIDS.items():
    architectures.register(_name)(_function)
NAMES = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "vocab": "vocab_size",
}
"""Sizes that every file must state, and their usual keys."""
SEQUENCES = {
    512: ("bert", "t5"),
    1024: ("gpt2",),
    2048: ("bloom", "deepseek_v2", "falcon", "gpt_neox", "llama", "opt", "phi"),
    4096: ("deepseek_v3", "kimi_k2", "phi3"),
    8192: ("falcon_h1", "gemma", "gemma2"),
    32768: ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"),
    131072: ("gemma3", "gemma3_text", "gpt_oss", "mistral", "mixtral"),
}
"""Default sequence length by ``model_type``."""


LONGEST = ("max_position_embeddings", "n_positions", "seq_length", "max_sequence_length")
"""Keys of the most tokens that a model takes."""


def model_from_config(config: Mapping[str, Any], where: str) -> Tree:
    """Return a tree as in a model file, ``{"model": …, "workload": {"sequence": …}}``, from a config.json.

    >>> shape = {"n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257}
    >>> model_from_config({"model_type": "gpt2", **shape}, "config.json")["workload"]
    {'sequence': 1024}
    """
    if not isinstance(config, Mapping):
        raise SpecError(where, config, "must be a mapping of keys to values")
    whole = Config(config, where)
    outer = whole.get("model_type", "")
    given, assumed = language_part(whole)  # of a model for images and text, only the language model is read
    name = outer if outer in architectures else given.get("model_type", "")
    if name in architectures:
        model = {key: value for key, value in architectures[name](given).items() if value is not None}
    elif not states_sizes(given):
        known = suggestion(name, architectures, shown=len(architectures))
        raise UnknownName(join(where, "model_type"), name or Absent(), f"no such architecture{known}")
    else:
        model, further = generic_model(given)
        unknown = f"the architecture {name} is not known: a decoder was read from the usual keys"
        assumed = [*assumed, unknown if name else "the file has no model_type: read from the usual keys", *further]
    sequence = model["positions"] if name == "vit" else _sequence(given, name)
    if model["family"] == "decoder" and (context := _context(given)) is not None:
        model["context"] = context
    found: Tree = {"model": model, "workload": {"sequence": sequence}}
    return found | ({"assumed": assumed} if assumed else {})


def _context(config: Config) -> int | None:
    """Return the tokens that a model takes at most: as stated, or as far as its rotary positions are stretched."""
    stated = [config.size(key) for key in LONGEST if config.keys.get(key) is not None][:1]
    for place in (config.inner("rope_scaling"), config.inner("rope_parameters")):
        before, factor = (place.keys.get(key) for key in ("original_max_position_embeddings", "factor"))
        if isinstance(before, int) and isinstance(factor, int | float):
            stated.append(int(before * factor))
    return max(stated, default=None)


def _sequence(config: Config, architecture: str) -> int:
    """Return the sequence length in training: before the rotary positions were extended, if they were."""
    for place in (config, config.inner("rope_scaling"), config.inner("rope_parameters")):
        if place.keys.get("original_max_position_embeddings") is not None:
            return place.size("original_max_position_embeddings")
    default = next((tokens for tokens, names in SEQUENCES.items() if architecture in names), 4096)
    return config.size("max_position_embeddings", "n_positions", "seq_length", default=default)


def _sizes(config: Config, *, tied: bool = False, **names: str) -> Tree:
    """Return the sizes of any language model; *names* are the keys that differ from `NAMES`."""
    sizes: Tree = {key: config.size(names.get(key, usual), usual) for key, usual in NAMES.items()}
    return sizes | {"tied_embeddings": config.get("tie_word_embeddings", tied)}


def _biases(**present: bool) -> list[str]:
    return [name for name, there in present.items() if there]


def _attention_biases(config: Config, default: bool = False) -> list[str]:
    present = config.get("attention_bias", default)
    return _biases(qkv=present, out=present)


def _windows(config: Config, window: int | None, every: int | None = None) -> Tree:
    """Return the sliding *window* of all layers but every *every*-th, unless ``layer_types`` says otherwise."""
    if types := config.get("layer_types", []):
        every = _full_attention_every(config, types)
    return {} if window is None or every == 1 else {"window": window, "full_attention_every": every}


def _full_attention_every(config: Config, types: list[Any]) -> int | None:
    """Return the interval of layers with full attention; None if there are none."""
    known = all(entry in ("full_attention", "sliding_attention") for entry in types)
    fits = known and len(types) == config.size("num_hidden_layers")
    config.refuse(not fits, "layer_types", "must be full_attention or sliding_attention for each layer")
    full = [place for place, entry in enumerate(types, 1) if entry == "full_attention"]
    every = full[0] if full else None
    regular = every is None or full == list(range(every, len(types) + 1, every))
    config.refuse(not regular, "layer_types", "full attention must come in every n-th layer")
    return every


def _qwen_windows(config: Config) -> Tree:
    """Return Qwen's sliding windows: off unless enabled, and then from one layer on."""
    if not config.get("use_sliding_window", False):
        return {}
    if not config.get("layer_types", []):
        start = config.size("max_window_layers", default=28, least=0)
        if start >= config.size("num_hidden_layers"):
            return {}
        config.refuse(start > 0, "max_window_layers", "a window in later layers alone cannot be expressed")
    return _windows(config, config.optional("sliding_window", 4096))


# ------------------------------------------------------------------------- gated decoders, after Llama


def _gated_decoder(config: Config, *, kv_heads: int | None = None, tied: bool = False, **more: Any) -> Tree:
    """Return a decoder with RMS norms, a gated feed-forward network and rotary positions, plus *more*."""
    sizes = _sizes(config, tied=tied)
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
def _llama(config: Config) -> Tree:
    ffn = _biases(ffn=config.get("mlp_bias", False))
    return _gated_decoder(config, biases=_attention_biases(config) + ffn)


@architectures.register("mistral")
def _mistral(config: Config) -> Tree:
    return _gated_decoder(config, kv_heads=8, **_windows(config, config.optional("sliding_window", 4096)))


@architectures.register("phi3")
def _phi3(config: Config) -> Tree:
    return _gated_decoder(config, **_windows(config, config.optional("sliding_window")))


@architectures.register("qwen2")
def _qwen2(config: Config) -> Tree:
    return _gated_decoder(config, kv_heads=32, biases=["qkv"], **_qwen_windows(config))


@architectures.register("qwen3")
def _qwen3(config: Config) -> Tree:
    more = {"qk_norm": True, "biases": _attention_biases(config), **_qwen_windows(config)}
    return _gated_decoder(config, kv_heads=32, **more) | {"head_dim": config.size("head_dim", default=128)}


def _gemma_decoder(config: Config, **more: Any) -> Tree:
    model = _gated_decoder(config, tied=True, biases=_attention_biases(config), **more)
    return model | {"head_dim": config.size("head_dim", default=256)}


@architectures.register("gemma")
def _gemma(config: Config) -> Tree:
    return _gemma_decoder(config, kv_heads=16)


@architectures.register("gemma2")
def _gemma2(config: Config) -> Tree:
    windows = _windows(config, config.optional("sliding_window", 4096), every=2)
    return _gemma_decoder(config, kv_heads=4, norms_per_layer=4, **windows)


@architectures.register("gemma3")
@architectures.register("gemma3_text")
def _gemma3(config: Config) -> Tree:
    # Released files leave out the heads and the vocabulary where they are these.
    config = Config({"num_attention_heads": 8, "vocab_size": 262208, **config.keys}, config.where)
    every = config.size("sliding_window_pattern", default=6)
    windows = _windows(config, config.optional("sliding_window", 4096), every)
    return _gemma_decoder(config, kv_heads=4, norms_per_layer=4, qk_norm=True, **windows)


# ------------------------------------------------------------------------------------------- MoE models


def _local_experts(config: Config) -> Tree:
    return {
        "count": config.size("num_local_experts", "num_experts"),
        "active": config.size("num_experts_per_tok", "experts_per_token"),
        "ffn": config.size("intermediate_size"),
    }


@architectures.register("mixtral")
def _mixtral(config: Config) -> Tree:
    more = _windows(config, config.optional("sliding_window")) | {"experts": _local_experts(config)}
    return _gated_decoder(config, kv_heads=8, **more)


@architectures.register("gpt_oss")
def _gpt_oss(config: Config) -> Tree:
    more = _windows(config, config.optional("sliding_window", 128), every=2)
    more["biases"] = [*_attention_biases(config, default=True), "experts", "router"]
    model = _gated_decoder(config, kv_heads=8, sinks=True, experts=_local_experts(config), **more)
    return model | {"head_dim": config.size("head_dim", default=64)}


def _qwen_experts(config: Config) -> Tree:
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
def _qwen2_moe(config: Config) -> Tree:
    unclear = config.get("use_sliding_window", False) and not config.get("layer_types", [])
    config.refuse(unclear, "use_sliding_window", "needs layer_types that say which layers have a window")
    shared = config.size("shared_expert_intermediate_size", default=5632)
    experts = {**_qwen_experts(config), "shared_ffn": shared, "shared_gate": True}
    biases = _biases(qkv=config.get("qkv_bias", True))
    return _gated_decoder(config, kv_heads=16, biases=biases, experts=experts, **_qwen_windows(config))


@architectures.register("qwen3_moe")
def _qwen3_moe(config: Config) -> Tree:
    window = config.optional("sliding_window", 4096)
    more = _windows(config, window) if config.get("use_sliding_window", False) else {}
    more |= {"biases": _attention_biases(config), "experts": _qwen_experts(config)}
    return _gated_decoder(config, kv_heads=4, qk_norm=True, **more)


@architectures.register("deepseek_v2")
@architectures.register("deepseek_v3")
@architectures.register("kimi_k2")
def _deepseek(config: Config) -> Tree:
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


# --------------------------------------------------------------------------------------- plain decoders


@architectures.register("gpt2")
def _gpt2(config: Config) -> Tree:
    config.fixed("add_cross_attention", False, "a decoder without an encoder has nothing else to attend to")
    sizes = _sizes(config, tied=True, layers="n_layer", hidden="n_embd", heads="n_head")
    return {
        "family": "decoder",
        **sizes,
        "ffn": config.size("n_inner", default=4 * sizes["hidden"]),
        "positions": config.size("n_positions", default=1024),
        "biases": ["qkv", "out", "ffn"],
    }


@architectures.register("gpt_neox")
def _gpt_neox(config: Config) -> Tree:
    return {
        "family": "decoder",
        **_sizes(config),
        "ffn": config.size("intermediate_size"),
        "parallel_block": config.get("use_parallel_residual", True),
        "biases": [*_attention_biases(config, default=True), "ffn"],
    }


@architectures.register("opt")
def _opt(config: Config) -> Tree:
    sizes = _sizes(config, tied=True)
    config.fixed("word_embed_proj_dim", sizes["hidden"], "embeddings must be as wide as hidden_size")
    config.fixed("layer_norm_elementwise_affine", True, "norms without a scale cannot be expressed")
    bias, bare = config.get("enable_bias", True), config.get("_remove_final_layer_norm", False)
    return {
        "family": "decoder",
        **sizes,
        "ffn": config.size("ffn_dim"),
        "positions": 2 + config.size("max_position_embeddings", default=2048),  # two are for padding
        "final_norm": config.get("do_layer_norm_before", True) and not bare,
        "biases": _biases(qkv=bias, out=bias, ffn=bias),
    }


@architectures.register("bloom")
def _bloom(config: Config) -> Tree:
    sizes = _sizes(config, tied=True, layers="n_layer", hidden="n_embed", heads="n_head")
    more = {"ffn": 4 * sizes["hidden"], "embedding_norm": True, "biases": ["qkv", "out", "ffn"]}
    return {"family": "decoder", **sizes, **more}


@architectures.register("falcon")
def _falcon(config: Config) -> Tree:
    sizes = _sizes(config, tied=True)
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
        "biases": _biases(qkv=bias, out=bias, ffn=bias),
    }


@architectures.register("phi")
def _phi(config: Config) -> Tree:
    config.fixed("qk_layernorm", False, "layer norms of queries and keys cannot be expressed")
    return {
        "family": "decoder",
        **_sizes(config),
        "kv_heads": config.optional("num_key_value_heads"),
        "ffn": config.size("intermediate_size"),
        "norms_per_layer": 1,
        "parallel_block": True,
        "biases": ["qkv", "out", "ffn", "head"],
    }


# --------------------------------------------------------------------------------------------- encoders


@architectures.register("bert")
def _bert(config: Config) -> Tree:
    config.fixed("add_cross_attention", False, "an encoder has nothing else to attend to")
    config.fixed("position_embedding_type", "absolute", "relative positions cannot be expressed")
    return {
        "family": "encoder",
        **_sizes(config, tied=True),
        "ffn": config.size("intermediate_size"),
        "positions": config.size("max_position_embeddings", default=512),
        "segments": config.size("type_vocab_size", default=2),
        "embedding_norm": True,
        "final_norm": False,
        "pretraining_heads": True,
        "biases": ["qkv", "out", "ffn", "head"],
    }


@architectures.register("t5")
def _t5(config: Config) -> Tree:
    sizes = _sizes(config, tied=True, layers="num_layers", hidden="d_model", heads="num_heads")
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
def _vit(config: Config) -> Tree:
    size, patch = config.size("image_size", default=224), config.size("patch_size", default=16)
    classes = config.size("num_labels", default=len(config.inner("id2label").keys) or 2)
    return {
        "family": "vision",
        **_sizes(Config({**config.keys, "vocab_size": classes}, config.where)),
        "ffn": config.size("intermediate_size"),
        "positions": (size // patch) ** 2 + 1,
        "biases": [*_biases(qkv=config.get("qkv_bias", True)), "out", "ffn", "head"],
        "image": {"size": size, "patch": patch, "channels": config.size("num_channels", default=3)},
    }
