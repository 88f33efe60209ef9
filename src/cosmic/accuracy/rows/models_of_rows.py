"""The models of measured rows: from the sizes in the row, or from the catalog where these are too few.

The column arch says the rest; without it, the catalog's model of that name and those sizes counts, else the sizes:

    gpt          learned positions, layer norm, biases, an ungated feed-forward network, tied embeddings
    gpt-neox     rotary positions, attention and feed-forward network in parallel, an untied head
    bloom        no positions (ALiBi), embeddings that are normalised, else as gpt
    gpt-sqrelu   rotary positions, layer norm, no biases, an ungated feed-forward network
    llama        rotary positions, RMS norm, no biases, a gated feed-forward network
    moe, mla-moe as the catalog has it under the row's name, with the row's number of layers; else as llama, with the
                 row's experts
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

from cosmic.accuracy.measured_rows import Fields
from cosmic.base.errors import SpecError, require
from cosmic.design import catalog_entries, schema
from cosmic.design.model_layer import Model, Transformer

GPT: dict[str, Any] = {"biases": ["qkv", "out", "ffn"], "tied_embeddings": True}
STYLES: dict[str, dict[str, Any]] = {
    "gpt": GPT,
    "gpt-neox": {"biases": ["qkv", "out", "ffn"], "parallel_block": True},
    "bloom": {**GPT, "embedding_norm": True},
    "gpt-sqrelu": {},
    "llama": {"gated": True, "norm": "rmsnorm"},
}
LEARNED_POSITIONS = ("gpt",)
ARCHS = {
    "gpt2": "gpt",
    "gpt3": "gpt",
    "gpt-2": "gpt",
    "gpt-3": "gpt",
    "opt": "gpt",
    "mpt": "gpt",
    "megatron": "gpt",
    "neox": "gpt-neox",
    "gptneox": "gpt-neox",
    "pythia": "gpt-neox",
    "alibi": "bloom",
    "nemotron": "gpt-sqrelu",
    "llama2": "llama",
    "llama3": "llama",
    "mistral": "llama",
    "qwen": "llama",
    "gemma": "llama",
    "swiglu": "llama",
}
"""Styles by other names."""
PADDED_TO = 128
"""Megatron-LM rounds vocabularies up to a multiple of this, times tp; others choose sizes that are multiples."""
USUAL_VOCAB = {"gpt": 50257, "gpt-neox": 50432, "bloom": 250880, "gpt-sqrelu": 256000, "llama": 32000}
"""Vocabularies of models whose rows give none."""
HEAD = 128
"""Width of a head, where a row gives no number of heads."""
GATED_TO = 256
"""A gated feed-forward network of no given width has 8/3 of the model's, rounded up to a multiple of this."""
NEAR = 0.05
"""How far the parameters of a model of the catalog may be from those that a row gives."""
VERSIONS = (
    (r"^meta-", ""),
    (r"llama-?3[.-]?[123]?(?=-|$)", "llama3"),
    (r"llama-?v?2(?=-|$)", "llama2"),
    (r"llama-?v?1(?=-|$)", "llama"),
    (r"gpt-?3(?=-|$)|^gpt(?=-\d+b)", "gpt3"),
    (r"(megatron-turing|mt)-?nlg|megatron-turing", "megatron"),
    (r"nemotron-4(?=-)", "nemotron"),
    (r"deepseek-?v(?=\d)", "deepseek-v"),
    (r"-(base|instruct|chat|hf|pretrain(ing)?|sft|lora|moe|dense|bf16|fp8|v0\.\d)(?=-|$)", ""),
)
"""Spellings of models, and those of the catalog."""


def model_of_row(fields: Fields, tp: int, *, next_tokens: bool = False) -> Transformer:
    """Return the model of a row of published training runs.

    With *next_tokens*, a model with a module for the token after next trains it, unless the row says no.
    """
    name = fields.text("arch").lower().replace("_", "-")
    arch = ARCHS.get(name, name)
    if arch in STYLES and fields.text("n_layers"):
        return _from_sizes(fields, arch, tp)
    model = _of_name(fields)
    mixed = re.search("hybrid|mamba|ssm|linear", arch)
    require(
        model is not None or not mixed, "model", fields.text("model"), "the catalog has no such model of mixed layers"
    )
    if model is not None and (fields.text("arch") or _sizes_agree(model, fields)):
        return _as_in_row(model, fields, next_tokens)
    if fields.text("n_layers") and fields.text("hidden"):
        return _from_sizes(fields, fields.assume("arch", _likely_style(fields), "as its sizes tell"), tp)
    raise SpecError("model", fields.text("model"), "its sizes are not given, and the catalog has no such model")


def _likely_style(fields: Fields) -> str:
    """Return the style that sizes tell: shared key heads or a width other than four times the model's is LLaMA's."""
    hidden, ffn = fields.whole("hidden"), fields.number("ffn")
    shared = fields.number("n_kv_heads") != fields.number("n_heads") and fields.text("n_kv_heads")
    unusual_ffn = ffn is not None and ffn != 4 * hidden
    return "llama" if shared or unusual_ffn or fields.text("n_experts") else "gpt"


def _sizes_agree(model: Transformer, fields: Fields) -> bool:
    """Return whether the sizes that a row gives are those of a model."""
    sizes = {"hidden": model.hidden, "n_heads": model.heads, "n_kv_heads": model.kv_heads}
    return all(fields.number(name) in (None, size) for name, size in sizes.items())


# ------------------------------------------------------------------------------------------- of the catalog


def catalog_name(name: str) -> str:
    """Return the catalog's name of a model, without remarks in brackets and numbers of layers; else as it is spelled.

    >>> catalog_name("Qwen3_30B_a3B (tokendrop)"), catalog_name("LLAMA3_70B-12layer"), catalog_name("GPT OSS 120B")
    ('qwen3-30b-a3b', 'llama3-70b', 'gpt-oss-120b')
    >>> catalog_name("GPT-3 175B"), catalog_name("Llama-2-70B"), catalog_name("LLaMA 65B"), catalog_name("Mixtral 8x7B")
    ('gpt3-175b', 'llama2-70b', 'llama-65b', 'mixtral-8x7b')
    >>> catalog_name("Megatron-Turing NLG 530B"), catalog_name("GPT 22B")
    ('megatron-529.6b', 'megatron-22b')
    """
    plain = re.sub(r"\(.*\)|-\d+-?layers?$", "", name.strip()).strip()
    spelled = re.sub(r"-+", "-", re.sub(r"[\s_/]+", "-", plain.lower())).strip("-")
    names = {_squeezed(entry_name): entry_name for entry_name in catalog_entries.entry_names("models")}
    for pattern, version in (("", ""), *VERSIONS):
        spelled = re.sub(pattern, version, spelled) if pattern else spelled
        if _squeezed(spelled) in names:
            return names[_squeezed(spelled)]
    longer = [entry for entry in names.values() if spelled.startswith(f"{entry}-")]
    return _nearest(spelled) or max(longer, key=len, default=spelled)


def _squeezed(name: str) -> str:
    """Return a name without separators.

    >>> _squeezed("GPT-3 1.3B"), _squeezed("gpt3-13b")
    ('gpt31.3b', 'gpt313b')
    """
    return re.sub(r"[\s_-]+", "", name.lower())


def _nearest(spelled: str) -> str:
    """Return the model of the same family whose size in the name is nearest, within a twentieth; empty if none is."""
    match = re.fullmatch(r"(.*?)-?(\d+(?:\.\d+)?)([bmt])", spelled)
    if not match:
        return ""
    family, size = match[1].rstrip("-"), _billions(match[2], match[3])
    families = {family} | ({"gpt3", "megatron"} if family in ("gpt", "gpt3", "megatron", "megatron-lm") else set())
    rated = [
        (abs(_billions(same_family[2], same_family[3]) / size - 1), name)
        for name in catalog_entries.entry_names("models")
        if (same_family := re.fullmatch(r"(.*?)-(\d+(?:\.\d+)?)([bmt])", name)) and same_family[1] in families
    ]
    return min(rated)[1] if size and rated and min(rated)[0] <= NEAR else ""


def _billions(number: str, unit: str) -> float:
    return float(number) * {"m": 1e-3, "b": 1.0, "t": 1e3}[unit]


def _of_name(fields: Fields) -> Transformer | None:
    name = catalog_name(fields.text("model"))
    if name not in catalog_entries.entry_names("models"):
        return None
    model = _of_catalog(name)
    require(isinstance(model, Transformer), "model", fields.text("model"), "is no transformer")
    return model if isinstance(model, Transformer) else None


@cache
def _of_catalog(name: str) -> Model:
    model: Model = schema.read_value(
        Model, {"name": name, **catalog_entries.read_entry("models", name)["model"]}, "model"
    )
    return model


def _as_in_row(model: Transformer, fields: Fields, next_tokens: bool) -> Transformer:
    """Return a model of the catalog with the row's number of layers, and with what its notes say."""
    layers = fields.whole("n_layers", model.layers, "as in the catalog")
    notes = fields.text("notes")
    experts = model.experts
    if experts and (match := re.search(r"dense_layers=(\d+)", notes)) and layers < model.layers:
        experts = replace(experts, dense_first=int(match[1]))
    if experts and re.search("token-?drop", f"{notes} {fields.text('model')}", re.IGNORECASE):
        experts = replace(experts, capacity_factor=fields.assume("capacity_factor", 1.0, "as tokens are dropped"))
    return replace(
        model, name="", layers=layers, experts=experts, mtp_layers=_token_modules(model, fields, next_tokens)
    )


def _token_modules(model: Transformer, fields: Fields, next_tokens: bool) -> int:
    """Return the modules for further tokens that a run trains: as the row says, else those that the catalog has.

    That of DeepSeek-V3 is no part of its main model. Where the tables of Megatron-Bridge do not say, they count as many
    operations per token as for runs that train it.
    """
    words = f"{fields.text('notes')} {fields.text('model')}".lower()
    if re.search(r"(no|w/o|without) (mtp|multi-token)", words):
        return 0
    named = re.search(r"\bmtp\b|multi-token prediction", words)
    if model.name.startswith("deepseek-v3") and (next_tokens or named):
        fields.assumed.append("multi-token prediction: one module, as the operations published per token tell")
        return 1
    return model.mtp_layers


def shared_out(model: Transformer, stages: int, virtual: int) -> Transformer:
    """Return a model whose modules for further tokens are layers like others, if virtual stages share them out.

    Layouts of interleaved pipelines give the last virtual stage so many fewer layers that all take equally long.
    """
    if stages == 1 or virtual == 1 or model.pattern or not model.mtp_layers:
        return model
    return replace(model, layers=model.layers + model.mtp_layers, mtp_layers=0)


# ----------------------------------------------------------------------------------------------- from sizes


def _from_sizes(fields: Fields, arch: str, tp: int) -> Transformer:
    hidden, style = fields.whole("hidden"), STYLES[arch]
    heads = fields.whole("n_heads", max(1, hidden // HEAD), f"{HEAD} columns each")
    sizes: dict[str, Any] = {
        "layers": fields.whole("n_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": fields.whole("n_kv_heads", heads, "as many as heads"),
        "ffn": fields.whole("ffn", *_usual_width(fields, arch, hidden)),
        "vocab": _padded(fields.whole("vocab", USUAL_VOCAB[arch], "as usual"), tp),
        "positions": fields.whole("seq_len", SEQUENCE, "as usual") if arch in LEARNED_POSITIONS else 0,
    }
    if count := fields.number("n_experts"):
        sizes["experts"] = _experts(fields, int(count), sizes["ffn"])
    model: Transformer = schema.read_value(Transformer, {"family": "decoder", **style, **sizes}, "model")
    return model


SEQUENCE = 2048
"""Tokens of a sequence, where neither the row nor the catalog says."""


def _usual_width(fields: Fields, arch: str, hidden: int) -> tuple[int, str]:
    if (width := fields.number("moe_ffn")) and fields.text("n_experts"):
        return int(width), "as wide as an expert"
    if STYLES[arch].get("gated"):
        return -(-8 * hidden // 3 // GATED_TO) * GATED_TO, "8/3 of the width"
    return 4 * hidden, "four times the width"


def _experts(fields: Fields, count: int, ffn: int) -> dict[str, Any]:
    """Return the experts of a row: each as wide as the row says, shared ones together."""
    width = fields.whole("moe_ffn", ffn, "as the feed-forward network")
    shared = int(fields.number("n_shared_experts") or 0)
    active = fields.whole("topk", min(2, count), "as usual")
    return {"count": count, "active": active, "ffn": width, "shared_ffn": shared * width}


def _padded(vocab: int, tp: int) -> int:
    """Return a vocabulary as it is sharded: padded where it does not divide.

    >>> _padded(50257, 8), _padded(128256, 4)
    (51200, 128256)
    """
    multiple = PADDED_TO * tp
    return vocab if vocab % (8 * tp) == 0 else -(-vocab // multiple) * multiple


def sequence_of(fields: Fields) -> int:
    """Return the length of a row's sequences: as in the catalog where the row says nothing."""
    name = catalog_name(fields.text("model"))
    usual = (
        catalog_entries.read_entry("models", name).get("workload", {})
        if name in catalog_entries.entry_names("models")
        else {}
    )
    length = usual.get("sequence", SEQUENCE)
    return fields.whole("seq_len", length if isinstance(length, int) else SEQUENCE, "as usual")
