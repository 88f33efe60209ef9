"""What a row of training says of its software beside the mapping: formats, kernels, overlap, adapters.

Columns come first, then words in the notes; what neither says is the practice of the row's framework at its date.
"""

from __future__ import annotations

import re
from typing import Any, get_args

from cosmic.design.workload import Precision
from cosmic.errors import require
from cosmic.validation.accelerators import accelerator_named
from cosmic.validation.rows import Fields
from cosmic.validation.software import FLASH_2, TUNED, Software, usable

YES = ("1", "1.0", "true", "yes", "on", "y")
NO = ("0", "0.0", "false", "no", "off", "n", "none")
SCALINGS = (
    ("delayed", r"fp8-?ds|delayed|hybrid"),
    ("mxfp8", r"mxfp8|fp8-?mx|\bmx\b"),
    ("blockwise", r"block|fp8-?sub|1x128|128x128"),
    ("rowwise", r"row-?wise"),
    ("tensorwise", r"fp8-?cs|current|tensor-?wise|per-?tensor"),
)
"""How fp8 is scaled, by words for it."""
SIXTEEN = {
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "fp32": "fp32",
    "float32": "fp32",
    "tf32": "fp32",
}
"""Wide formats by words for them, which are searched in this order."""
NO_BF16 = ("v100",)
"""Families without bf16."""
LORA_RANK = 16
RECOMPUTES = (
    ("none", r"^(none|no|off|0|0\.0|false|disabled)\b"),
    ("alternate", r"alternate|save_|_proj|custom|every other|every 2"),
    ("selective", r"selective|core_?attn|sac|minimal|partial|attention only|modules"),
    ("full", r"full|uniform|block|layer|^(yes|true|1|1\.0|on)\b|ac\b|checkpoint|remat|all"),
)
"""What is recomputed, by words for it, searched in this order."""


def settings_of(fields: Fields, software: Software) -> dict[str, Any]:
    """Return the settings of a run's software, without its mapping and what it recomputes."""
    found: dict[str, Any] = {
        **software.settings,
        "precision": precision_of(fields, software),
        "attention": _attention(fields, software),
        "dp_overlap": _overlaps(fields, software),
        "execution": _execution(fields, software),
        "tp_overlap": _tensors_overlap(fields, software),
        "fp8_recipe": _scaling(fields),
        **_dropout(fields),
        **_experts_overlap(fields),
        **_dispatcher(fields),
        **_graphs(fields),
        **_adapters(fields, software),
        **_packing(fields),
    }
    return {key: value for key, value in usable(found).items() if value is not None}


def _words(fields: Fields) -> str:
    """Return what a row says in words of its own."""
    return " ".join(fields.text(name) for name in ("notes", "overlap", "schedule", "source_loc")).lower()


# ------------------------------------------------------------------------------------------------- formats


def precision_of(fields: Fields, software: Software) -> str:
    """Return the number format of GEMMs; of two that are named, the one that is usual."""
    name = fields.text("precision").lower()
    if not name:
        return str(fields.assume("precision", _usual(fields, software)))
    if "fp4" in name and "fp8" in name:
        return str(fields.assume("precision", "fp4" if _usual(fields, software) == "fp4" else "fp8", f"of {name}"))
    if "fp4" in name or "float4" in name:
        require("fp4" in get_args(Precision), "precision", fields.text("precision"), "training in fp4 is not modelled")
        return "fp4"
    if re.search(r"fp8|float8|e4m3|e5m2|hybrid8", name):
        return "fp8"
    wide = next((number for word, number in SIXTEEN.items() if word in name), "")
    if not wide and re.search("amp|mixed|16", name):
        wide = str(fields.assume("precision", _usual(fields, software), f"of {name}"))
    require(bool(wide), "precision", fields.text("precision"), "no such precision")
    return "bf16_pure" if wide == "bf16" and re.search(r"pure", f"{name} {fields.text('notes')}", re.I) else wide


def _usual(fields: Fields, software: Software) -> str:
    """Return the number format that its framework uses on a row's accelerator, or the next wider that this has."""
    accelerator = accelerator_named(fields.text("accel"))
    if accelerator.like.startswith(NO_BF16):
        return "fp16"
    compute, _ = accelerator.layers()
    narrower = {"fp4": compute.fp4_flop_per_s, "fp8": compute.fp8_flop_per_s}
    usable_from = list(narrower).index(software.precision) if software.precision in narrower else len(narrower)
    return next((name for name in list(narrower)[usable_from:] if narrower[name]), "bf16")


def _scaling(fields: Fields) -> str | None:
    """Return how fp8 is scaled, if the row says: in the precision, else in the notes."""
    texts = [fields.text("fp8_recipe").lower(), fields.text("precision").lower()]
    if "fp8" in texts[1] or "float8" in texts[1]:
        texts += [part for part in fields.text("notes").lower().split(";") if "fp8" in part or "float8" in part]
    for text in texts:
        for scaling, pattern in SCALINGS:
            if re.search(pattern, text):
                return scaling
    return None


# ------------------------------------------------------------------------------------------------- kernels


def _attention(fields: Fields, software: Software) -> str:
    """Return the kernels of attention: as the row says, else its framework's of that date."""
    usual = str(software.settings.get("attention", "fused"))
    for text in (fields.text("attention").lower(), _words(fields)):
        if re.search(
            r"unfused|naive|(no|not|without|w/o) (flash|fused attention)|eager attention|math attention", text
        ):
            return "unfused"
        if re.search(r"(flash|fa)\w*[ -]?(attention)?[ -]?v?[34]\b|cudnn (fused )?attention|fused ?attn", text):
            return "fused"
        if re.search(r"flash[ -]?(attention|attn)?[ -]?v?2\b|\bfa-?2\b", text):
            return "flash2"
        if re.search(
            r"flash[ -]?(attention|attn)?[ -]?v?1\b|\bfa-?1\b|xformers|memory-efficient (causal )?attention", text
        ):
            return "flash1"
        if re.search(r"flash|\bfused$|^fused\b", text) and usual == "unfused":
            return "flash1" if software.date < FLASH_2 else "flash2" if software.date < TUNED else "fused"
    return usual


def _execution(fields: Fields, software: Software) -> str:
    """Return how kernels run: as the row says, else its framework; PyTorch's fp8 needs a compiler."""
    given = fields.text("execution").lower()
    if given in ("eager", "compiled", "fused"):
        return given
    usual = str(software.settings.get("execution", "fused"))
    words = f"{given} {_words(fields)}"
    if re.search(r"(no|without|w/o)[ -](torch\.)?compile|compile ?= ?(0|false|off)|eager mode", words):
        return "eager"
    if usual == "eager" and re.search(r"\bte\b|transformer engine", words):
        return "fused"
    narrow = "fp8" in fields.text("precision").lower() or "float8" in fields.text("precision").lower()
    return "compiled" if usual == "eager" and ("compile" in words or narrow) else usual


def _dropout(fields: Fields) -> dict[str, bool]:
    given = fields.text("dropout").lower()
    if given:
        return {"dropout": given not in NO}
    found = re.search(r"dropout\s*[=:]?\s*(0?\.\d+|0|1|yes|no|off|on)", _words(fields))
    if re.search(r"(no|without|w/o) dropout", _words(fields)):
        return {"dropout": False}
    return {"dropout": found[1] not in NO} if found else {}


# ------------------------------------------------------------------------------------------------- overlap


def _overlaps(fields: Fields, software: Software) -> bool:
    """Return whether gradient reduction overlaps the backward pass: as the row says, else its framework."""
    text = fields.text("overlap").lower()
    if not text:
        return bool(software.settings.get("dp_overlap", True))
    return not re.match(r"none|no\b|off|false|0", text)


def _tensors_overlap(fields: Fields, software: Software) -> bool:
    """Return whether tensor-parallel communication overlaps GEMMs: as the row says, else its framework."""
    words = _words(fields)
    off = r"all overlap off|(no|without) (tp|tensor|any)[ -]?(comm\w*)?[ -]?overlap|vanilla tp|no async"
    if re.search(rf"{off}|(tp|tensor)[ _-](comm[ _-])?overlap (is )?off", words):
        return False
    if re.search(r"async|user-?buffers?|tp[ _-](comm[ _-])?overlap|collective matmul", words):
        return True
    return bool(software.settings.get("tp_overlap", False)) and not fields.text("overlap").lower().startswith("none")


def _experts_overlap(fields: Fields) -> dict[str, bool]:
    overlap, words = r"(ep|a2a|all-?to-?all|expert)[ _-](comm[ _-])?overlap", _words(fields)
    if re.search(rf"(no|without) {overlap}|{overlap} (is )?off", words):
        return {"ep_overlap": False}
    return {"ep_overlap": True} if re.search(rf"{overlap}|dualpipe|1f1b overlap", words) else {}


def _graphs(fields: Fields) -> dict[str, tuple[str, ...]]:
    """Return what a step replays from CUDA graphs, if the row says."""
    words = _words(fields)
    if not re.search(r"cuda[ _-]?graphs?|_cg\b|_cg_", words):
        return {}
    if re.search(r"(no|without|w/o) cuda[ _-]?graph", words):
        return {"cuda_graph": ()}
    whole = re.search(r"full[ _-]iteration|whole step|full cuda|_cg\b|_cg_", words)
    return {"cuda_graph": ("full_iteration",) if whole else ("attn", "mlp", "moe_router", "moe_preprocess")}


def _dispatcher(fields: Fields) -> dict[str, str]:
    """Return how tokens reach experts, if the row says."""
    words = _words(fields)
    if re.search(r"deep-?ep|hybrid-?ep|flex dispatcher", words):
        return {"moe_token_dispatcher_type": "flex"}
    return {"moe_token_dispatcher_type": "alltoall"} if "all-to-all dispatcher" in words else {}


# ------------------------------------------------------------------------------------------------ adapters


def is_adapted(fields: Fields) -> bool:
    """Return whether a row trains adapters.

    >>> is_adapted(Fields({"set": "mlperf-llama2_70b_lora"})), is_adapted(Fields({"notes": "no LoRA"}))
    (True, False)
    """
    if given := fields.text("lora").lower():
        return given not in NO
    words = " ".join(fields.text(name) for name in ("set", "model", "notes", "source_loc")).lower()
    return bool(re.search(r"(?<![a-z])q?lora(?![a-z])|adapters", words)) and not re.search(
        r"(no|not|without) lora", words
    )


def _adapters(fields: Fields, software: Software) -> dict[str, Any]:
    if not is_adapted(fields):
        return {}
    given = fields.text("lora")
    found = re.search(r"(?:rank|dim|\br)\s*=?\s*(\d+)", f"{given} {fields.text('notes')}".lower())
    rank = int(given) if given.isdecimal() and int(given) > 1 else int(found[1]) if found else None
    usual = {"lora_rank": LORA_RANK, **software.adapters}
    chosen = rank or fields.assume("lora_rank", usual["lora_rank"], f"as usual with {software.framework}")
    return {**usual, "lora_rank": chosen}


def _packing(fields: Fields) -> dict[str, float]:
    """Return the mean length of packed documents, where the row gives it."""
    given = fields.text("packing")
    found = re.search(r"(\d+(?:\.\d+)?)", given) if given.lower() not in (*YES, *NO) else None
    said = found or re.search(r"(?:mean|average|avg)\w* (?:document|sample|length)\D{0,12}(\d{2,6})", _words(fields))
    return {"packed_length": float(said[1])} if said else {}


# ---------------------------------------------------------------------------------------------- recomputing


def recompute_of(fields: Fields, software: Software) -> dict[str, Any]:
    """Return what a row says of recomputation; empty if it says nothing.

    >>> recompute_of(Fields({"recompute": "Full (uniform, 1 layer)"}), Software("megatron-lm", "2023-01"))
    {'recompute': 'full'}
    >>> recompute_of(Fields({"notes": "no activation checkpointing"}), Software("pytorch", "2023-01"))
    {'recompute': 'none'}
    """
    text = (fields.text("recompute_policy") or fields.text("recompute")).lower()
    if not text:
        return _noted_recompute(fields, software)
    name = next((name for name, pattern in RECOMPUTES if re.search(pattern, text)), "")
    require(bool(name), "recompute", text, "must be one of none, selective, alternate, full")
    if name != "selective":
        return {"recompute": name}
    modules = _modules(fields)
    return {"recompute": "selective", "recompute_modules": modules} if modules else {"recompute": software.selective}


MODULES = (
    ("layernorm", r"norms?\b|layernorm"),
    ("moe_act", r"activations?\b(?! checkpoint)|moe_act|swiglu"),
    ("mla_up_proj", r"up-?proj\w*|mla_up_proj"),
    ("shared_experts", r"shared expert|shared_experts"),
    ("moe", r"moe layers?|\bmoe\b(?!_)|experts? layers?"),
    ("mlp", r"\bmlps?\b|feed-?forward"),
    ("core_attn", r"core_?attn|core attention|attention\b(?!s)"),
)
"""Modules that are recomputed, by words for them in a row's notes."""


def _modules(fields: Fields) -> tuple[str, ...]:
    """Return the modules that the notes say are recomputed.

    >>> _modules(Fields({"notes": "DeepEP; recompute of norms and MoE layers; bf16"}))
    ('layernorm', 'moe')
    """
    notes = fields.text("notes").lower()
    said = re.search(r"([^;()]+?) (?:are |is )?recomputed", notes)
    said = said or re.search(r"(?:recompute\b|recomputation|recompute_modules)[ =:]+(?:of )?([^;()]+)", notes)
    if not said or "not stated" in said[1] or "not read" in said[1]:
        return ()
    return tuple(name for name, pattern in MODULES if re.search(pattern, said[1]))


def _noted_recompute(fields: Fields, software: Software) -> dict[str, Any]:
    words = fields.text("notes").lower()
    what = r"(activation |gradient )?(recomput\w*|checkpointing|remat\w*)"
    if re.search(rf"(no|without|w/o) (full |selective )?{what}", words):
        return {"recompute": "none"}
    if found := re.search(rf"(full|selective) {what}", words):
        return {"recompute": software.selective if found[1] == "selective" else "full"}
    return {"recompute": "full"} if re.search(r"(activation|gradient) checkpointing", words) else {}
