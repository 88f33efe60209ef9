"""The software and model of a measured training run: by its row, its recipe, or the practice of its framework and date.

A row's own words come first: columns such as framework, software_date or attention, then its source, notes and address.
A framework that no word names follows from the mapping and the accelerator. The date is that of a release (24.07), of
an archive's number (2205.05198), or a year; a paper measures what was there a year before; without any, it is the year
after the accelerator's. ``catalog/software.yaml`` says what a framework does from which date on.

Beside the mapping a row says formats, kernels, overlap and adapters: columns first, then words in the notes; what
neither says is the practice. Some tables give a run's mapping and batch and refer to its recipe for the rest.
``catalog/recipes.yaml`` has what those recipes set, by model, accelerator, number format and release. What all recipes
of a framework have in common is its practice. Layouts of pipelines whose last stage predicts further tokens, too, give
it fewer layers.

The model follows from the sizes in the row, or from the catalog where these are too few. The column arch says the rest; without it, the catalog's model of that name and those sizes counts, else the sizes:

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from dataclasses import fields as fields_of
from functools import cache
from typing import Any, get_args

from cosmic.accuracy.measured_rows import Fields
from cosmic.base.errors import SpecError, require
from cosmic.design import catalog_entries, schema
from cosmic.design.measured_hardware import find_accelerator
from cosmic.design.model_layer import Model, Transformer
from cosmic.design.workload_layer import Precision, Workload

NAMING = ("framework", "source", "notes", "schedule", "url", "source_loc", "set")
"""Columns that may name a framework, the most telling first."""
DATING = ("software_date", "source", "source_loc", "url", "notes")
"""Columns that may date a run, the most telling first."""
UNKNOWN = "unknown"
FLASH_2 = "2023-07"
"""When FlashAttention-2 was published."""
TUNED = "2024-07"
"""Since when frameworks run the accelerator's best attention kernels, where a run says that they are on chip."""
VENUES = "SC|ISC|MICRO|ISCA|HPCA|ASPLOS|OSDI|SOSP|NSDI|MLSYS|NEURIPS|ICML|ICLR|ATC|PPOPP|EUROSYS|SIGCOMM|ACL|VLDB|KDD"
RELEASE = re.compile(r"(?<![\d.])(2[0-9])\.(0[1-9]|1[0-2])(?![\d])(?!\s*min)(?!\d*%)")
ARCHIVED = re.compile(r"(?<!\d)(2[0-9])(0[1-9]|1[0-2])\.\d{4,5}(?!\d)")
DATED = re.compile(r"(?<!\d)(20[12]\d)[-_./]?(0[1-9]|1[0-2])(?!\d)")
PUBLISHED = re.compile(rf"\b(?:{VENUES})\s*['’]?\s*(?:20)?([12]\d)(?!\d)", re.IGNORECASE)
ROUND = re.compile(r"(?:mlperf training|training_results_|training results )\s*v?(\d)\.([01])", re.IGNORECASE)
"""Rounds of MLPerf Training: v5.0 is of June 2025, v5.1 of November."""
YEAR = re.compile(r"(?<!\d)(20[12]\d)(?!\d)")


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
    framework, hardware = framework_of(fields), catalog_entries.read_entry("accelerators", accelerator)
    date = date_of(fields, accelerator_year(accelerator))
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
def _table() -> dict[str, Any]:
    return catalog_entries.load_mapping(catalog_entries.CATALOG_FOLDER / "software.yaml")


def _practice_by_date(framework: str) -> list[dict[str, Any]]:
    """Return what a framework does, by date: what it shares with others first."""
    entry = _table().get(framework)
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


# ---- framework


def framework_of(fields: Fields) -> str:
    """Return the framework that a row names, or that its mapping and accelerator make likely.

    >>> framework_of(Fields({"source": "MLPerf Training v5.1", "source_loc": "nemo/config"}))
    'mlperf'
    >>> framework_of(Fields({"schedule": "1f1b", "tp": "8", "pp": "4"})), framework_of(Fields({"zero_stage": "3"}))
    ('megatron-lm', 'pytorch')
    """
    for column in NAMING:
        if framework := _named(fields.text(column).lower(), "words"):
            return framework
    if framework := _named(fields.text("accel").lower(), "words"):
        return framework
    if framework := _named(fields.text("model").lower(), "models"):
        return framework
    return _structural(fields)


def _named(text: str, key: str) -> str:
    """Return the framework with the longest of the words that *text* has."""
    names = [
        (len(word), name)
        for name, entry in _table().items()
        for word in entry.get(key, ())
        if re.search(rf"(?<![a-z]){re.escape(word)}(?![a-z])", text)
    ]
    return max(names)[1] if names else ""


def _structural(fields: Fields) -> str:
    """Return the framework that a mapping makes likely: whoever splits tensors or stages uses Megatron-LM's code."""
    split = any(fields.text(axis) not in ("", "1", "1.0") for axis in ("tp", "pp"))
    if split or "1f1b" in fields.text("schedule").lower():
        return "megatron-lm"
    stage = fields.text("zero_stage").removesuffix(".0")
    return "pytorch" if stage == "3" else "deepspeed" if stage == "2" else UNKNOWN


# ---- date


def date_of(fields: Fields, year: int) -> str:
    """Return the year and month of a run's software; *year* is that of its accelerator.

    >>> date_of(Fields({"source": "performance summary 24.07", "notes": "26.08 min"}), 2022)
    '2024-07'
    >>> date_of(Fields({"source": "Narayanan et al. SC'21", "url": "https://arxiv.org/abs/2104.04473"}), 2020)
    '2021-04'
    >>> date_of(Fields({"source": "a study (MICRO 24)"}), 2020), date_of(Fields({}), 2022)
    ('2023-06', '2023-06')
    """
    texts = [fields.text(name) for name in DATING]
    return max(next(_dates(texts), f"{year + 1}-06"), f"{year}-01")


def _dates(texts: Sequence[str]) -> Iterator[str]:
    """Yield the dates that texts have, the most telling first."""
    for pattern in (RELEASE, ARCHIVED, DATED):
        yield from (f"20{match[1][-2:]}-{match[2]}" for text in texts for match in pattern.finditer(text))
    for text in texts:
        yield from (f"202{match[1]}-{'11' if match[2] == '1' else '06'}" for match in ROUND.finditer(text))
    for text in texts:
        yield from (f"{1999 + int(match[1])}-06" for match in PUBLISHED.finditer(text))
    for text in texts:
        yield from (f"{match[1]}-06" for match in YEAR.finditer(text))


WITHOUT_SINKS: dict[str, Any] = {
    "attention": "unfused_windows",
    "recompute": "selective",
    "recompute_modules": ("core_attn",),
}
"""Attention with sinks where cuDNN's kernels for it fail: Transformer Engine falls back to unfused attention in layers
with a window, whose scores memory has room for one layer at a time."""


def recipe_of(name: str, fields: Fields, stages: int, date: str) -> dict[str, Any]:
    """Return the workload keys that the recipe of a row's run sets; none where its framework has no recipes.

    >>> run = {"model": "Kimi_K2", "accel": "GB300", "precision": "MXFP8", "mbs": "2"}
    >>> recipe_of("megatron-bridge", Fields(run), 4, "2026-04")["recompute_modules"]
    ('mla_up_proj',)
    """
    model = catalog_name(fields.text("model"))
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
    regressed = name and "cudnn regression" in fields.text("notes").lower() and model.startswith("gpt-oss")
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
    settings: dict[str, Any] = {
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
    return {key: value for key, value in workload_settings(settings).items() if value is not None}


def _words_of_row(fields: Fields) -> str:
    """Return what a row says in words of its own."""
    return " ".join(fields.text(name) for name in ("notes", "overlap", "schedule", "source_loc")).lower()


# ---- formats


def precision_of(fields: Fields, software: Software) -> str:
    """Return the number format of GEMMs; of two that are named, the one that is usual."""
    name = fields.text("precision").lower()
    if not name:
        return str(fields.assume("precision", _usual_precision(fields, software)))
    if "fp4" in name and "fp8" in name:
        return str(
            fields.assume("precision", "fp4" if _usual_precision(fields, software) == "fp4" else "fp8", f"of {name}")
        )
    if "fp4" in name or "float4" in name:
        require("fp4" in get_args(Precision), "precision", fields.text("precision"), "training in fp4 is not modelled")
        return "fp4"
    if re.search(r"fp8|float8|e4m3|e5m2|hybrid8", name):
        return "fp8"
    sixteen_bit = next((number for word, number in SIXTEEN.items() if word in name), "")
    if not sixteen_bit and re.search("amp|mixed|16", name):
        sixteen_bit = str(fields.assume("precision", _usual_precision(fields, software), f"of {name}"))
    require(bool(sixteen_bit), "precision", fields.text("precision"), "no such precision")
    return (
        "bf16_pure"
        if sixteen_bit == "bf16" and re.search(r"pure", f"{name} {fields.text('notes')}", re.I)
        else sixteen_bit
    )


def _usual_precision(fields: Fields, software: Software) -> str:
    """Return the number format that its framework uses on a row's accelerator, or the next wider that this has."""
    accelerator = find_accelerator(fields.text("accel"))
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


# ---- kernels


def _attention(fields: Fields, software: Software) -> str:
    """Return the kernels of attention: as the row says, else its framework's of that date."""
    usual = str(software.settings.get("attention", "fused"))
    for text in (fields.text("attention").lower(), _words_of_row(fields)):
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
    text = fields.text("execution").lower()
    if text in ("eager", "compiled", "fused"):
        return text
    usual = str(software.settings.get("execution", "fused"))
    words = f"{text} {_words_of_row(fields)}"
    if re.search(r"(no|without|w/o)[ -](torch\.)?compile|compile ?= ?(0|false|off)|eager mode", words):
        return "eager"
    if usual == "eager" and re.search(r"\bte\b|transformer engine", words):
        return "fused"
    narrow_format = "fp8" in fields.text("precision").lower() or "float8" in fields.text("precision").lower()
    return "compiled" if usual == "eager" and ("compile" in words or narrow_format) else usual


def _dropout(fields: Fields) -> dict[str, bool]:
    text = fields.text("dropout").lower()
    if text:
        return {"dropout": text not in NO}
    match = re.search(r"dropout\s*[=:]?\s*(0?\.\d+|0|1|yes|no|off|on)", _words_of_row(fields))
    if re.search(r"(no|without|w/o) dropout", _words_of_row(fields)):
        return {"dropout": False}
    return {"dropout": match[1] not in NO} if match else {}


# ---- overlap


def _overlaps(fields: Fields, software: Software) -> bool:
    """Return whether gradient reduction overlaps the backward pass: as the row says, else its framework."""
    text = fields.text("overlap").lower()
    if not text:
        return bool(software.settings.get("dp_overlap", True))
    return not re.match(r"none|no\b|off|false|0", text)


def _tensors_overlap(fields: Fields, software: Software) -> bool:
    """Return whether tensor-parallel communication overlaps GEMMs: as the row says, else its framework."""
    words = _words_of_row(fields)
    off = r"all overlap off|(no|without) (tp|tensor|any)[ -]?(comm\w*)?[ -]?overlap|vanilla tp|no async"
    if re.search(rf"{off}|(tp|tensor)[ _-](comm[ _-])?overlap (is )?off", words):
        return False
    if re.search(r"async|user-?buffers?|tp[ _-](comm[ _-])?overlap|collective matmul", words):
        return True
    return bool(software.settings.get("tp_overlap", False)) and not fields.text("overlap").lower().startswith("none")


def _experts_overlap(fields: Fields) -> dict[str, bool]:
    overlap, words = r"(ep|a2a|all-?to-?all|expert)[ _-](comm[ _-])?overlap", _words_of_row(fields)
    if re.search(rf"(no|without) {overlap}|{overlap} (is )?off", words):
        return {"ep_overlap": False}
    return {"ep_overlap": True} if re.search(rf"{overlap}|dualpipe|1f1b overlap", words) else {}


def _graphs(fields: Fields) -> dict[str, tuple[str, ...]]:
    """Return what a step replays from CUDA graphs, if the row says."""
    words = _words_of_row(fields)
    if not re.search(r"cuda[ _-]?graphs?|_cg\b|_cg_", words):
        return {}
    if re.search(r"(no|without|w/o) cuda[ _-]?graph", words):
        return {"cuda_graph": ()}
    full_iteration = re.search(r"full[ _-]iteration|whole step|full cuda|_cg\b|_cg_", words)
    return {"cuda_graph": ("full_iteration",) if full_iteration else ("attn", "mlp", "moe_router", "moe_preprocess")}


def _dispatcher(fields: Fields) -> dict[str, str]:
    """Return how tokens reach experts, if the row says."""
    words = _words_of_row(fields)
    if re.search(r"deep-?ep|hybrid-?ep|flex dispatcher", words):
        return {"moe_token_dispatcher_type": "flex"}
    return {"moe_token_dispatcher_type": "alltoall"} if "all-to-all dispatcher" in words else {}


# ---- adapters


def is_adapted(fields: Fields) -> bool:
    """Return whether a row trains adapters.

    >>> is_adapted(Fields({"set": "mlperf-llama2_70b_lora"})), is_adapted(Fields({"notes": "no LoRA"}))
    (True, False)
    """
    if text := fields.text("lora").lower():
        return text not in NO
    words = " ".join(fields.text(name) for name in ("set", "model", "notes", "source_loc")).lower()
    return bool(re.search(r"(?<![a-z])q?lora(?![a-z])|adapters", words)) and not re.search(
        r"(no|not|without) lora", words
    )


def _adapters(fields: Fields, software: Software) -> dict[str, Any]:
    if not is_adapted(fields):
        return {}
    text = fields.text("lora")
    match = re.search(r"(?:rank|dim|\br)\s*=?\s*(\d+)", f"{text} {fields.text('notes')}".lower())
    rank = int(text) if text.isdecimal() and int(text) > 1 else int(match[1]) if match else None
    usual = {"lora_rank": LORA_RANK, **software.adapters}
    chosen = rank or fields.assume("lora_rank", usual["lora_rank"], f"as usual with {software.framework}")
    return {**usual, "lora_rank": chosen}


def _packing(fields: Fields) -> dict[str, float]:
    """Return the mean length of packed documents, where the row gives it."""
    text = fields.text("packing")
    match = re.search(r"(\d+(?:\.\d+)?)", text) if text.lower() not in (*YES, *NO) else None
    density = match or re.search(
        r"(?:mean|average|avg)\w* (?:document|sample|length)\D{0,12}(\d{2,6})", _words_of_row(fields)
    )
    return {"packed_length": float(density[1])} if density else {}


# ---- recomputing


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
    match = re.search(r"([^;()]+?) (?:are |is )?recomputed", notes)
    match = match or re.search(r"(?:recompute\b|recomputation|recompute_modules)[ =:]+(?:of )?([^;()]+)", notes)
    if not match or "not stated" in match[1] or "not read" in match[1]:
        return ()
    return tuple(name for name, pattern in MODULES if re.search(pattern, match[1]))


def _noted_recompute(fields: Fields, software: Software) -> dict[str, Any]:
    words = fields.text("notes").lower()
    pattern = r"(activation |gradient )?(recomput\w*|checkpointing|remat\w*)"
    if re.search(rf"(no|without|w/o) (full |selective )?{pattern}", words):
        return {"recompute": "none"}
    if match := re.search(rf"(full|selective) {pattern}", words):
        return {"recompute": software.selective if match[1] == "selective" else "full"}
    return {"recompute": "full"} if re.search(r"(activation|gradient) checkpointing", words) else {}


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


# ---- of the catalog


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
    name = catalog_name(fields.text("model"))
    usual = (
        catalog_entries.read_entry("models", name).get("workload", {})
        if name in catalog_entries.entry_names("models")
        else {}
    )
    length = usual.get("sequence", SEQUENCE)
    return fields.whole("seq_len", length if isinstance(length, int) else SEQUENCE, "as usual")
