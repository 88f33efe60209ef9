"""The software and model of a measured training run: by its columns, its recipe, or the practice of its framework and date.

A row states its software in columns (framework, software_date, attention, …), as it is or as `calibration/read_words.py`
read it from a table's words. Any field of a workload may be a column, with values as files write them. A framework that
is not named follows from the mapping; without a date, the software is that of the year after the accelerator's.
``catalog/software.yaml`` says what a framework does from which date on, unless the row says otherwise.

Some tables give a run's mapping and batch and refer to its recipe for the rest. ``catalog/recipes.yaml`` has what those
recipes set, by model, accelerator, number format and release. What all recipes of a framework have in common is its
practice. Layouts of pipelines whose last stage predicts further tokens, too, give it fewer layers.

The model follows from the sizes in the row, or from the catalog where these are too few. The column arch says the rest;
without it, the catalog's model of that name and those sizes counts, else the sizes:

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
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from dataclasses import fields as fields_of
from functools import cache
from typing import Any, get_args

from cosmic.accuracy.measured_rows import Fields
from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.design import catalog_entries, schema
from cosmic.design.measured_hardware import find_accelerator
from cosmic.design.model_layer import Model, Transformer
from cosmic.design.plain_data import parse_yaml
from cosmic.design.workload_layer import Recompute, Workload

FLASH_2 = "2023-07"
"""When FlashAttention-2 was published."""
TUNED = "2024-07"
"""Since when frameworks run the accelerator's best attention kernels, where a run says that they are on chip."""


@dataclass(frozen=True, slots=True)
class Software:
    """The software of a run, and what it does unless the run says otherwise."""

    framework: str
    date: str
    """Year and month."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the workload."""
    selective: str = "selective"
    """What its selective recomputation is."""
    staged_zero3: str = "zero3"
    """What fully sharded weights are in a pipeline."""
    precision: str = "bf16"
    sharding: str = "zero1"
    next_tokens: bool = False
    """Whether models with a module for the token after next train it."""
    recipe: str = ""
    microbatches: str = ""
    """How a pipeline splits its batch: into as many as stages, or single sequences; empty if nothing is usual."""
    offloads: bool = False
    """Whether it may keep activations in the memory of the host."""
    compiled: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the workload where it compiles."""
    adapters: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the workload where it trains adapters."""
    counts: str = "full"
    """Pairs of query and key that its counter of operations counts: full or causal."""
    interleaves: bool = False
    """Whether its guides ask for virtual stages."""

    @property
    def year(self) -> int:
        """The year of its date."""
        return int(self.date[:4])


def software_of(fields: Fields, accelerator: str) -> Software:
    """Return the software of a row that runs on an accelerator of the catalog."""
    framework, hardware = _framework(fields), catalog_entries.read_entry("accelerators", accelerator)
    year = accelerator_year(accelerator)
    date = max(fields.text("software_date", f"{year + 1}-06"), f"{year}-01")
    merged: dict[str, Any] = {}
    for step in _practice_by_date(framework):
        if hardware.get("vendor") in step.get("vendors", [hardware.get("vendor")]) and (
            str(step["since"]) <= date or not merged
        ):
            merged |= step
    software_fields = {slot.name: merged[slot.name] for slot in fields_of(Software) if slot.name in merged}
    settings = workload_settings({key: value for key, value in merged.items() if key not in software_fields})
    return Software(framework, date, settings or {"attention": attention_of_date(date)}, **software_fields)


def accelerator_year(accelerator: str) -> int:
    """Return the year of an accelerator of the catalog; 2022 where it is not known."""
    year = catalog_entries.read_entry("accelerators", accelerator).get("year")
    return year if isinstance(year, int) else 2022


def workload_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are fields of a workload."""
    field_names = {slot.name for slot in fields_of(Workload)}
    listed = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    return {key: value for key, value in listed.items() if key in field_names}


def attention_of_date(date: str) -> str:
    """Return the kernels that attention on chip had at a date.

    >>> [attention_of_date(each) for each in ("2021-05", "2022-12", "2024-01", "2025-01")]
    ['unfused', 'flash1', 'flash2', 'fused']
    """
    if date < "2022-06":
        return "unfused"
    return "flash1" if date < FLASH_2 else "flash2" if date < TUNED else "fused"


@cache
def software_table() -> dict[str, Any]:
    """Return what the catalog says of frameworks."""
    return catalog_entries.load_mapping(catalog_entries.CATALOG_FOLDER / "software.yaml")


def _practice_by_date(framework: str) -> list[dict[str, Any]]:
    """Return what a framework does, by date: what it shares with others first."""
    entry = software_table().get(framework)
    if entry is None:
        return []
    shared = _practice_by_date(entry["like"]) if "like" in entry else []
    practice = [dict(practice_entry) for practice_entry in entry["practice"]]
    started = str(practice[0]["since"])
    # what it took over before it began is there from its beginning; what its model does later, it does later
    return sorted(
        [*shared, *practice],
        key=lambda practice_entry: (str(practice_entry["since"]), str(practice_entry["since"]) >= started),
    )


def _framework(fields: Fields) -> str:
    """Return the framework of a row: whoever splits tensors or stages and names none uses Megatron-LM's code."""
    if named := fields.text("framework").lower():
        if named not in software_table():
            raise UnknownName.among("framework", named, "framework", software_table())
        return named
    split = any(fields.text(axis) not in ("", "1", "1.0") for axis in ("tp", "pp"))
    if split or "1f1b" in fields.text("schedule").lower():
        return "megatron-lm"
    stage = fields.text("zero_stage").removesuffix(".0")
    return "pytorch" if stage == "3" else "deepspeed" if stage == "2" else "unknown"


WITHOUT_SINKS: dict[str, Any] = {
    "attention": "unfused_windows",
    "recompute": "selective",
    "recompute_modules": ("core_attn",),
}
"""Attention with sinks where cuDNN's kernels for it fail: Transformer Engine falls back to unfused attention in layers
with a window, whose scores memory has room for one layer at a time."""


def recipe_of(name: str, fields: Fields, stages: int, date: str) -> dict[str, Any]:
    """Return the workload keys that the recipe of a row's run sets; none where its framework has no recipes.

    >>> run = {"model": "kimi-k2", "accel": "GB300", "precision": "MXFP8", "mbs": "2"}
    >>> recipe_of("megatron-bridge", Fields(run), 4, "2026-04")["recompute_modules"]
    ('mla_up_proj',)
    """
    model = catalog_name(fields)
    recipe: dict[str, Any] = {}
    for entry in _entries(name):
        if (
            model.startswith(tuple(entry["models"]))
            and fields.text("accel").upper().startswith(tuple(entry.get("accelerators", [""])))
            and fields.text("precision").upper().startswith(tuple(entry.get("formats", [""])))
            and fields.text("mbs") in ("", str(entry.get("micro_batch", fields.text("mbs"))))
            and str(entry.get("since", "")) <= date < str(entry.get("until", "9999"))
            and stages == entry.get("stages", stages)
        ):
            recipe |= entry["set"]
    regressed = name and fields.text("regression") == "cudnn" and model.startswith("gpt-oss")
    return workload_settings(recipe) | (WITHOUT_SINKS if regressed else {})


@cache
def _entries(name: str) -> list[dict[str, Any]]:
    table = catalog_entries.load_mapping(catalog_entries.CATALOG_FOLDER / "recipes.yaml")
    return list(table[name]["entries"]) if name in table else []


def last_stage(model: Transformer, stages: int) -> dict[str, int]:
    """Return the layers of the last of several stages, where it has a module for further tokens beside.

    All stages have as many layers as if that module and the second head were layers, but the last, which has what is
    left: of 61 layers, seven stages have eight each, and the last has five.

    >>> deepseek = Transformer(layers=61, hidden=8, heads=1, ffn=8, vocab=8, mtp_layers=1)
    >>> last_stage(deepseek, 8), last_stage(deepseek, 1)
    ({'last_stage_layers': 5}, {})
    """
    layers_per_stage = -(-(model.layers + 1 + model.mtp_layers) // stages)
    remaining = model.layers - layers_per_stage * (stages - 1)
    ends = stages > 1 and bool(model.mtp_layers) and not model.pattern
    return {"last_stage_layers": remaining} if ends and remaining > 0 else {}


YES = ("1", "1.0", "true", "yes", "on", "y")
NO = ("0", "0.0", "false", "no", "off", "n", "none")
FORMATS = {
    **dict.fromkeys(("bf16", "bfloat16", "amp_bf16"), "bf16"),
    **dict.fromkeys(("fp16", "float16", "half"), "fp16"),
    **dict.fromkeys(("fp32", "float32", "tf32"), "fp32"),
    **dict.fromkeys(("fp8", "float8", "amp_fp8", "mxfp8", "fp8-mx", "fp8-cs", "fp8-ds", "float8-tensorwise"), "fp8"),
    **dict.fromkeys(("fp4", "nvfp4"), "fp4"),
    **dict.fromkeys(("amp", "mixed"), ""),
    "bf16_pure": "bf16_pure",
}
"""Number formats of GEMMs by their names in tables; empty where a framework chooses."""
NO_BF16 = ("v100",)
"""Families without bf16."""
LORA_RANK = 16
READ_APART = ("tp", "cp", "pp", "dp", "ep", "etp", "precision", "schedule", "recompute", "recompute_modules")
"""Fields of a workload whose columns are read by rules of their own."""


def settings_of(fields: Fields, software: Software) -> dict[str, Any]:
    """Return the settings of a run's software, without its mapping and what it recomputes."""
    usual = {"attention": "fused", "execution": "fused", "dp_overlap": True, "tp_overlap": False, **software.settings}
    usual["precision"] = precision_of(fields, software)
    if usual["precision"] == "fp8" and usual["execution"] == "eager":
        usual["execution"] = "compiled"  # PyTorch's fp8 needs a compiler
    stated = _stated_settings(fields)
    if (usual | stated)["execution"] == "compiled":
        usual |= workload_settings(software.compiled)
    return usual | workload_settings(_adapters(fields, software)) | stated


def _stated_settings(fields: Fields) -> dict[str, Any]:
    """Return the fields of the workload that a row states in columns of their names."""
    cells: dict[str, Any] = {}
    if fields.text("overlap").lower() in NO:
        cells |= {"dp_overlap": False, "tp_overlap": False}
    if fields.text("packing").lower() not in ("", *YES, *NO):
        cells["packed_length"] = fields.number("packing")
    names = [slot.name for slot in fields_of(Workload) if slot.name not in READ_APART and fields.text(slot.name)]
    cells |= {name: parse_yaml(fields.text(name), name) for name in names}
    workload = schema.read_value(Workload, {"sequence": 1, "global_batch": 1, **cells}, "")
    return {name: getattr(workload, name) for name in cells}


def precision_of(fields: Fields, software: Software) -> str:
    """Return the number format of GEMMs; of two that are named, the one that is usual."""
    name = fields.text("precision").lower()
    if not name:
        return str(fields.assume("precision", _usual_precision(fields, software)))
    stated = fields.text("number_format", name).partition("(")[0].split("/")
    formats = [FORMATS.get(part.strip()) for part in stated]
    require(None not in formats, "precision", fields.text("precision"), f"must be one of {', '.join(FORMATS)}")
    if len(formats) == 1 and formats[0]:
        return formats[0]
    usual = _usual_precision(fields, software)
    return str(fields.assume("precision", usual if usual in formats else formats[-1] or usual, f"of {name}"))


def _usual_precision(fields: Fields, software: Software) -> str:
    """Return the number format that its framework uses on a row's accelerator, or the next wider that this has."""
    accelerator = find_accelerator(fields.text("accel"))
    if accelerator.like.startswith(NO_BF16):
        return "fp16"
    compute, _ = accelerator.layers()
    narrower = {"fp4": compute.fp4_flop_per_s, "fp8": compute.fp8_flop_per_s}
    usable_from = list(narrower).index(software.precision) if software.precision in narrower else len(narrower)
    return next((name for name in list(narrower)[usable_from:] if narrower[name]), "bf16")


def _adapters(fields: Fields, software: Software) -> dict[str, Any]:
    """Return the settings of a run that trains adapters: the column lora has their rank, or yes."""
    text = fields.text("lora").lower()
    if text in ("", *NO):
        return {}
    usual = {"lora_rank": LORA_RANK, **software.adapters}
    if text.isdecimal() and int(text) > 1:
        return {**usual, "lora_rank": int(text)}
    return {**usual, "lora_rank": fields.assume("lora_rank", usual["lora_rank"], f"as usual with {software.framework}")}


def recompute_of(fields: Fields, software: Software) -> dict[str, Any]:
    """Return what a row says of recomputation; empty if it says nothing.

    >>> recompute_of(Fields({"recompute": "full"}), Software("megatron-lm", "2023-01"))
    {'recompute': 'full'}
    >>> recompute_of(Fields({"recompute": "selective"}), Software("maxtext", "2023-01", selective="alternate"))
    {'recompute': 'alternate'}
    """
    name = (fields.text("recompute_policy") or fields.text("recompute")).lower()
    require(name in ("", *get_args(Recompute)), "recompute", name, f"must be one of {', '.join(get_args(Recompute))}")
    if not name or name != "selective":
        return {"recompute": name} if name else {}
    if modules := fields.text("recompute_modules"):
        return {"recompute": "selective", "recompute_modules": tuple(parse_yaml(modules, "recompute_modules"))}
    return {"recompute": software.selective}


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


# ---- of the catalog


def catalog_name(fields: Fields) -> str:
    """Return the name by which the catalog may have a row's model."""
    name = fields.text("model") or fields.text("model_path")
    return fields.text("catalog_model") or catalog_entries.resolve_name("models", name) or name.lower()


def _of_name(fields: Fields) -> Transformer | None:
    name = catalog_name(fields)
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
    """Return a model of the catalog with the row's number of layers, and with what it says of experts."""
    layers = fields.whole("n_layers", model.layers, "as in the catalog")
    experts = model.experts
    if experts and fields.text("dense_layers") and layers < model.layers:
        experts = replace(experts, dense_first=fields.whole("dense_layers"))
    if experts and fields.text("token_drop") in YES:
        experts = replace(experts, capacity_factor=fields.assume("capacity_factor", 1.0, "as tokens are dropped"))
    return replace(
        model, name="", layers=layers, experts=experts, mtp_layers=_token_modules(model, fields, next_tokens)
    )


def _token_modules(model: Transformer, fields: Fields, next_tokens: bool) -> int:
    """Return the modules for further tokens that a run trains: as the row says, else those that the catalog has.

    That of DeepSeek-V3 is no part of its main model. Where the tables of Megatron-Bridge do not say, they count as many
    operations per token as for runs that train it.
    """
    if fields.text("mtp") in NO:
        return 0
    if model.name.startswith("deepseek-v3") and (next_tokens or fields.text("mtp") in YES):
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


# ---- from sizes


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
    name = catalog_name(fields)
    usual = (
        catalog_entries.read_entry("models", name).get("workload", {})
        if name in catalog_entries.entry_names("models")
        else {}
    )
    length = usual.get("sequence", SEQUENCE)
    return fields.whole("seq_len", length if isinstance(length, int) else SEQUENCE, "as usual")
