"""The models of measured rows: from the sizes in the row, or from the catalog where these are too few.

The column arch says the rest:

    gpt          learned positions, layer norm, biases, an ungated feed-forward network, tied embeddings
    gpt-sqrelu   rotary positions, layer norm, no biases, an ungated feed-forward network
    llama        rotary positions, RMS norm, no biases, a gated feed-forward network
    moe, mla-moe as the catalog has it under the row's name, with the row's number of layers
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

from cosmic import catalog
from cosmic.design import schema
from cosmic.design.model import Model, Transformer
from cosmic.errors import SpecError, require
from cosmic.validation.rows import Fields

STYLES: dict[str, dict[str, Any]] = {
    "gpt": {"biases": ["qkv", "out", "ffn"], "tied_embeddings": True},
    "gpt-sqrelu": {},
    "llama": {"gated": True, "norm": "rmsnorm"},
}
PADDED_TO = 128
"""Megatron-LM rounds vocabularies up to a multiple of this, times tp; others choose sizes that are multiples."""
NAMES = {
    "deepseekv2": "deepseek-v2",
    "deepseekv3": "deepseek-v3",
    "gpt-oss-20b": "gpt-oss-20b",
    "gpt-oss-120b": "gpt-oss-120b",
    "kimi-k2": "kimi-k2",
    "qwen3-30b-a3b": "qwen3-30b-a3b",
    "qwen3-235b-a22b": "qwen3-235b-a22b",
    "llama3.1-405b": "llama3-405b",
}
"""Names of the catalog, for models whose names in rows differ by more than case and separators."""


def model_of(fields: Fields, tp: int) -> Transformer:
    """Return the model of a row of published training runs."""
    arch = fields.text("arch")
    if arch in STYLES and fields.text("n_layers"):
        return _from_sizes(fields, arch, tp)
    model = _of_catalog(catalog_name(fields.text("model")))
    if not isinstance(model, Transformer):
        raise SpecError("model", fields.text("model"), "is no transformer")
    return _as_in_row(model, fields)


def catalog_name(name: str) -> str:
    """Return the catalog's name of a model, without remarks in brackets and numbers of layers.

    >>> catalog_name("Qwen3_30B_a3B (tokendrop)"), catalog_name("LLAMA3_70B-12layer"), catalog_name("GPT OSS 120B")
    ('qwen3-30b-a3b', 'llama3-70b', 'gpt-oss-120b')
    """
    plain = re.sub(r"\(.*\)|-\d+layer$", "", name.strip()).strip()
    spelled = re.sub(r"[\s_]+", "-", plain.lower())
    return NAMES.get(spelled, spelled)


@cache
def _of_catalog(name: str) -> Model:
    rule = "its sizes are not given, and the catalog has no such model"
    require(name in catalog.names("models"), "model", name, rule)
    model: Model = schema.read(Model, {"name": name, **catalog.entry("models", name)["model"]}, "model")
    return model


def _from_sizes(fields: Fields, arch: str, tp: int) -> Transformer:
    sequence, hidden = fields.whole("seq_len"), fields.whole("hidden")
    heads = fields.whole("n_heads")
    sizes = {
        "layers": fields.whole("n_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": fields.whole("n_kv_heads", heads, "as many as heads"),
        "ffn": fields.whole("ffn", 4 * hidden, "four times the width"),
        "vocab": _padded(fields.whole("vocab"), tp),
        "positions": sequence if arch == "gpt" else 0,
    }
    model: Transformer = schema.read(Transformer, {"family": "decoder", **STYLES[arch], **sizes}, "model")
    return model


def _padded(vocab: int, tp: int) -> int:
    """Return a vocabulary as it is sharded: padded where it does not divide.

    >>> _padded(50257, 8), _padded(128256, 4)
    (51200, 128256)
    """
    whole = PADDED_TO * tp
    return vocab if vocab % (8 * tp) == 0 else -(-vocab // whole) * whole


def _as_in_row(model: Transformer, fields: Fields) -> Transformer:
    """Return a model of the catalog with the row's number of layers, and with what its notes say."""
    layers = fields.whole("n_layers", model.layers, "as in the catalog")
    notes = fields.text("notes")
    experts = model.experts
    if experts and (found := re.search(r"dense_layers=(\d+)", notes)) and layers < model.layers:
        experts = replace(experts, dense_first=int(found[1]))
    if experts and ("token-drop" in notes or "tokendrop" in fields.text("model")):
        experts = replace(experts, capacity_factor=fields.assume("capacity_factor", 1.0, "as tokens are dropped"))
    if _predicts_two(model, fields):
        fields.assumed.append("multi-token prediction: one more layer, as the operations published per token tell")
        layers += 1
    return replace(model, name="", layers=layers, experts=experts)


def _predicts_two(model: Transformer, fields: Fields) -> bool:
    """Return whether a run of DeepSeek-V3 trains its multi-token prediction module: Megatron-Bridge's do.

    Where its tables do not say, they count as many operations per token as for runs that do.
    """
    said = f"{fields.text('notes')} {fields.text('model')}"
    without = "no MTP" in said or "w/o MTP" in said
    return model.name == "deepseek-v3" and fields.text("set").startswith("mbridge") and not without
