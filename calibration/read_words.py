"""Read the words of published training runs into columns: ``python calibration/read_words.py [FILE …]``.

Tables of published runs say much in prose: a framework in an address, flash attention in a remark, full recomputation
in a heading. This script reads each such cell once and writes what it says into a column of its own, which
`cosmic.accuracy.rows` reads as it stands. The cells with the prose stay, so that every column can be read again; the
columns of `READ` are written anew each time. Without a file, those that the package carries are read.

The date is that of a release (24.07), of an archive's number (2205.05198), or a year; a paper measures what was there a
year before. Operations are counted by the convention that ``flops_words`` describes:

    model, hardware       hardware counts what is recomputed, too: a forward pass (full), or attention's (selective)
    causal, non-causal    pairs of query and key under the mask, or all of them
    6N, 8N                parameters alone, without attention, the latter with everything recomputed
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path

from cosmic.accuracy.measured_rows import CARRIED, Fields, Row
from cosmic.accuracy.rows.training_software import FLASH_2, NO, TUNED, Software, software_of, software_table
from cosmic.base.errors import require
from cosmic.design import catalog_entries
from cosmic.design.measured_hardware import find_accelerator, find_fabric

FILES = ("training_published.csv", "training_collected.csv", "training_single_node_a100.csv")
NAMING = ("source", "notes", "schedule", "url", "source_loc", "set")
"""Columns that may name a framework, the most telling first."""
DATING = ("source", "source_loc", "url", "notes")
"""Columns that may date a run, the most telling first."""
VENUES = "SC|ISC|MICRO|ISCA|HPCA|ASPLOS|OSDI|SOSP|NSDI|MLSYS|NEURIPS|ICML|ICLR|ATC|PPOPP|EUROSYS|SIGCOMM|ACL|VLDB|KDD"
RELEASE = re.compile(r"(?<![\d.])(2[0-9])\.(0[1-9]|1[0-2])(?![\d])(?!\s*min)(?!\d*%)")
ARCHIVED = re.compile(r"(?<!\d)(2[0-9])(0[1-9]|1[0-2])\.\d{4,5}(?!\d)")
DATED = re.compile(r"(?<!\d)(20[12]\d)[-_./]?(0[1-9]|1[0-2])(?!\d)")
PUBLISHED = re.compile(rf"\b(?:{VENUES})\s*['’]?\s*(?:20)?([12]\d)(?!\d)", re.IGNORECASE)
ROUND = re.compile(r"(?:mlperf training|training_results_|training results )\s*v?(\d)\.([01])", re.IGNORECASE)
"""Rounds of MLPerf Training: v5.0 is of June 2025, v5.1 of November."""
YEAR = re.compile(r"(?<!\d)(20[12]\d)(?!\d)")


def main(paths: Sequence[str]) -> None:
    """Read the words of tables, and write their columns."""
    for path in [Path(path) for path in paths] or [CARRIED / name for name in FILES]:
        path.write_text(with_columns(path.read_text(encoding="utf-8")), encoding="utf-8")


def with_columns(table: str) -> str:
    """Return a table of runs with the columns that its words say."""
    return write_columns(table, READ, columns_of)


def write_columns(table: str, names: Sequence[str], read: Callable[[Row], Mapping[str, str]]) -> str:
    """Return a table with columns of *names* read from its others; those that are empty everywhere are left out."""
    reader = csv.DictReader(StringIO(table, newline=""), restval="")
    stated = [name for name in reader.fieldnames or () if name not in names]
    rows = [{name: row[name] for name in stated} for row in reader]
    columns = [read(row) for row in rows]
    filled = [name for name in names if any(each.get(name) for each in columns)]
    text = StringIO(newline="")
    writer = csv.DictWriter(text, [*stated, *filled], lineterminator="\n")
    writer.writeheader()
    for row, each in zip(rows, columns, strict=True):
        writer.writerow({**row, **{name: each.get(name, "") for name in filled}})
    return text.getvalue()


def columns_of(row: Row, software: Software | None = None) -> dict[str, str]:
    """Return the columns that the words of a row say; *software* is what it runs, where that is known."""
    fields = Fields(row)
    named = {"framework": framework_of(fields), "software_date": date_of(fields)}
    usual = software or software_of(Fields({**row, **named}), find_accelerator(fields.text("accel")).like)
    columns = {
        **named,
        "catalog_model": catalog_name(fields.text("model")),
        "flops_kind": flops_kind_of(fields.text("flops_words")),
        "fabric": find_fabric(fields.text("notes")),
        "accumulated": accumulations(fields),
        "number_format": "bf16_pure" if _is_pure(fields) else "",
        "fp8_recipe": _scaling(fields),
        "attention": _attention(fields, usual),
        "execution": _execution(fields, usual),
        "dropout": _dropout(fields),
        "dp_overlap": _overlaps(fields),
        "tp_overlap": _tensors_overlap(fields),
        "ep_overlap": _experts_overlap(fields),
        "cuda_graph": _graphs(fields),
        "moe_token_dispatcher_type": _dispatcher(fields),
        "lora": adapters_of(fields),
        "packed_length": _packing(fields),
        **recompute_of(fields),
        **_model_remarks(fields),
    }
    return {name: value for name, value in columns.items() if value}


READ = (
    *("framework", "software_date", "catalog_model", "flops_kind", "fabric", "accumulated", "number_format"),
    *("fp8_recipe", "attention", "execution", "dropout", "dp_overlap", "tp_overlap", "ep_overlap", "cuda_graph"),
    *("moe_token_dispatcher_type", "lora", "packed_length", "recompute", "recompute_modules", "regression"),
    *("dense_layers", "token_drop", "mtp"),
)
"""Columns that are read from words."""


def _words_of_row(fields: Fields) -> str:
    """Return what a row says in words of its own."""
    return " ".join(fields.text(name) for name in ("notes", "overlap_words", "schedule", "source_loc")).lower()


def _flag(value: bool) -> str:
    return "true" if value else "false"


# ---- framework and date


def framework_of(fields: Fields) -> str:
    """Return the framework that a row names; empty if none.

    >>> framework_of(Fields({"source": "MLPerf Training v5.1", "source_loc": "nemo/config"}))
    'mlperf'
    """
    for column in NAMING:
        if framework := _named(fields.text(column).lower(), "words"):
            return framework
    return _named(fields.text("accel").lower(), "words") or _named(fields.text("model").lower(), "models")


def _named(text: str, key: str) -> str:
    """Return the framework with the longest of the words that *text* has."""
    names = [
        (len(word), name)
        for name, entry in software_table().items()
        for word in entry.get(key, ())
        if re.search(rf"(?<![a-z]){re.escape(word)}(?![a-z])", text)
    ]
    return max(names)[1] if names else ""


def date_of(fields: Fields) -> str:
    """Return the year and month of a run's software; empty if nothing dates it.

    >>> date_of(Fields({"source": "performance summary 24.07", "notes": "26.08 min"}))
    '2024-07'
    >>> date_of(Fields({"source": "Narayanan et al. SC'21", "url": "https://arxiv.org/abs/2104.04473"}))
    '2021-04'
    >>> date_of(Fields({"source": "a study (MICRO 24)"}))
    '2023-06'
    """
    return next(_dates([fields.text(name) for name in DATING]), "")


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


# ---- operations and microbatches

ACCUMULATED = re.compile(r"(?:grad\w*[ _-]*)?accum\w*(?:[ _-]steps)?\s*[=:]?\s*(\d+(?:\.\d+)?)", re.IGNORECASE)


def flops_kind_of(text: str) -> str:
    """Return how operations are counted, in the words of the column flops_kind.

    >>> flops_kind_of("model (6N*T+12*L*d*T^2, non-causal attention)"), flops_kind_of("model")
    ('model full', 'model')
    >>> flops_kind_of("hardware incl. full recompute: 96BslH^2(1+s/6h+V/16lh)"), flops_kind_of("6ND")
    ('hardware full', 'model none')
    """
    if not text:
        return ""
    plain = text.lower().replace(" ", "")
    hardware = re.search(r"hardware|hfu|(?<!\d)8nd?(?![a-z])|(?<!\d)96b", plain)
    only = re.search(r"(?<!\d)[68]\*?[np](d|\*|t|$|[^a-z+])?", plain) and not re.search(r"attention|att|\+", plain)
    attention = ""
    if re.search(r"non-?causal|fullattention|12\*?l|12l|(72|96)b\*?s|s/6h|quadratic", plain):
        attention = "full"
    elif "causal" in plain:
        attention = "causal"
    elif only or "withoutattention" in plain:
        attention = "none"
    peak = re.search(r"(?:of|peak)\s+(\d+(?:\.\d+)?)\s*TFLOP", text, re.IGNORECASE)
    words = ("hardware" if hardware else "model", attention, f"peak={peak[1]}" if peak else "")
    return " ".join(filter(None, words))


def accumulations(fields: Fields) -> str:
    """Return the microbatches that each replica accumulates, if the notes say.

    >>> accumulations(Fields({"notes": "grad-accum 24.0; runs 3"})), accumulations(Fields({}))
    ('24', '')
    """
    match = ACCUMULATED.search(fields.text("notes"))
    return str(max(1, int(float(match[1])))) if match else ""


# ---- formats and kernels

SCALINGS = (
    ("delayed", r"fp8-?ds|delayed|hybrid"),
    ("mxfp8", r"mxfp8|fp8-?mx|\bmx\b"),
    ("blockwise", r"block|fp8-?sub|1x128|128x128"),
    ("rowwise", r"row-?wise"),
    ("tensorwise", r"fp8-?cs|current|tensor-?wise|per-?tensor"),
)
"""How fp8 is scaled, by words for it."""


def _is_pure(fields: Fields) -> bool:
    """Return whether weights and gradients are in 16 bits, too."""
    name = fields.text("precision").lower()
    return ("bf16" in name or "bfloat16" in name) and bool(re.search("pure", f"{name} {fields.text('notes')}", re.I))


def _scaling(fields: Fields) -> str:
    """Return how fp8 is scaled, if the row says: in the precision, else in the notes."""
    texts = [fields.text("precision").lower()]
    if "fp8" in texts[0] or "float8" in texts[0]:
        texts += [part for part in fields.text("notes").lower().split(";") if "fp8" in part or "float8" in part]
    return next((name for text in texts for name, pattern in SCALINGS if re.search(pattern, text)), "")


def _attention(fields: Fields, software: Software) -> str:
    """Return the kernels of attention, if the row says; plain flash attention is that of the time."""
    usual, text = str(software.settings.get("attention", "fused")), _words_of_row(fields)
    if re.search(r"unfused|naive|(no|not|without|w/o) (flash|fused attention)|eager attention|math attention", text):
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
    return ""


def _execution(fields: Fields, software: Software) -> str:
    """Return how kernels run, if the row says."""
    words, eager = f" {_words_of_row(fields)}", software.settings.get("execution", "fused") == "eager"
    if re.search(r"(no|without|w/o)[ -](torch\.)?compile|compile ?= ?(0|false|off)|eager mode", words):
        return "eager"
    if eager and re.search(r"\bte\b|transformer engine", words):
        return "fused"
    return "compiled" if eager and "compile" in words else ""


def _dropout(fields: Fields) -> str:
    if re.search(r"(no|without|w/o) dropout", _words_of_row(fields)):
        return _flag(False)
    match = re.search(r"dropout\s*[=:]?\s*(0?\.\d+|0|1|yes|no|off|on)", _words_of_row(fields))
    return _flag(match[1] not in NO) if match else ""


# ---- overlap, graphs and dispatchers


def _overlaps(fields: Fields) -> str:
    """Return whether gradient reduction overlaps the backward pass, if the row says."""
    text = fields.text("overlap_words").lower()
    return _flag(not re.match(r"none|no\b|off|false|0", text)) if text else ""


def _tensors_overlap(fields: Fields) -> str:
    """Return whether tensor-parallel communication overlaps GEMMs, if the row says."""
    words = _words_of_row(fields)
    off = r"all overlap off|(no|without) (tp|tensor|any)[ -]?(comm\w*)?[ -]?overlap|vanilla tp|no async"
    if re.search(rf"{off}|(tp|tensor)[ _-](comm[ _-])?overlap (is )?off", words):
        return _flag(False)
    if re.search(r"async|user-?buffers?|tp[ _-](comm[ _-])?overlap|collective matmul", words):
        return _flag(True)
    return _flag(False) if fields.text("overlap_words").lower().startswith("none") else ""


def _experts_overlap(fields: Fields) -> str:
    overlap, words = r"(ep|a2a|all-?to-?all|expert)[ _-](comm[ _-])?overlap", _words_of_row(fields)
    if re.search(rf"(no|without) {overlap}|{overlap} (is )?off", words):
        return _flag(False)
    return _flag(True) if re.search(rf"{overlap}|dualpipe|1f1b overlap", words) else ""


def _graphs(fields: Fields) -> str:
    """Return what a step replays from CUDA graphs, if the row says."""
    words = _words_of_row(fields)
    if not re.search(r"cuda[ _-]?graphs?|_cg\b|_cg_", words):
        return ""
    if re.search(r"(no|without|w/o) cuda[ _-]?graph", words):
        return "[]"
    full_iteration = re.search(r"full[ _-]iteration|whole step|full cuda|_cg\b|_cg_", words)
    return "[full_iteration]" if full_iteration else "[attn, mlp, moe_router, moe_preprocess]"


def _dispatcher(fields: Fields) -> str:
    """Return how tokens reach experts, if the row says."""
    words = _words_of_row(fields)
    if re.search(r"deep-?ep|hybrid-?ep|flex dispatcher", words):
        return "flex"
    return "alltoall" if "all-to-all dispatcher" in words else ""


# ---- adapters and packing


def adapters_of(fields: Fields) -> str:
    """Return the rank of a run's adapters, or that it trains some; empty if it trains none.

    >>> adapters_of(Fields({"set": "mlperf-llama2_70b_lora"})), adapters_of(Fields({"notes": "no LoRA"}))
    ('yes', '')
    """
    words = " ".join(fields.text(name) for name in ("set", "model", "notes", "source_loc")).lower()
    named = re.search(r"(?<![a-z])q?lora(?![a-z])|adapters", words)
    if not named or re.search(r"(no|not|without) lora", words):
        return ""
    match = re.search(r"(?:rank|dim|\br)\s*=?\s*(\d+)", fields.text("notes").lower())
    return match[1] if match else "yes"


def _packing(fields: Fields) -> str:
    """Return the mean length of packed documents, where the row gives it."""
    pattern = r"(?:mean|average|avg)\w* (?:document|sample|length)\D{0,12}(\d{2,6})"
    density = re.search(pattern, _words_of_row(fields))
    return density[1] if density else ""


# ---- recomputation

RECOMPUTES = (
    ("none", r"^(none|no|off|0|0\.0|false|disabled)\b"),
    ("alternate", r"alternate|save_|_proj|custom|every other|every 2"),
    ("selective", r"selective|core_?attn|sac|minimal|partial|attention only|modules"),
    ("full", r"full|uniform|block|layer|^(yes|true|1|1\.0|on)\b|ac\b|checkpoint|remat|all"),
)
"""What is recomputed, by words for it, searched in this order."""
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


def recompute_of(fields: Fields) -> dict[str, str]:
    """Return what a row says of recomputation; empty if it says nothing.

    >>> recompute_of(Fields({"recompute_words": "Full (uniform, 1 layer)"}))
    {'recompute': 'full'}
    >>> recompute_of(Fields({"notes": "no activation checkpointing"}))
    {'recompute': 'none'}
    """
    text = fields.text("recompute_words").lower()
    if not text:
        return _noted_recompute(fields)
    name = next((name for name, pattern in RECOMPUTES if re.search(pattern, text)), "")
    require(bool(name), "recompute_words", text, "must be one of none, selective, alternate, full")
    modules = _modules(fields) if name == "selective" else []
    return {"recompute": name} | ({"recompute_modules": f"[{', '.join(modules)}]"} if modules else {})


def _modules(fields: Fields) -> list[str]:
    """Return the modules that the notes say are recomputed.

    >>> _modules(Fields({"notes": "DeepEP; recompute of norms and MoE layers; bf16"}))
    ['layernorm', 'moe']
    """
    notes = fields.text("notes").lower()
    match = re.search(r"([^;()]+?) (?:are |is )?recomputed", notes)
    match = match or re.search(r"(?:recompute\b|recomputation|recompute_modules)[ =:]+(?:of )?([^;()]+)", notes)
    if not match or "not stated" in match[1] or "not read" in match[1]:
        return []
    return [name for name, pattern in MODULES if re.search(pattern, match[1])]


def _noted_recompute(fields: Fields) -> dict[str, str]:
    words = fields.text("notes").lower()
    pattern = r"(activation |gradient )?(recomput\w*|checkpointing|remat\w*)"
    if re.search(rf"(no|without|w/o) (full |selective )?{pattern}", words):
        return {"recompute": "none"}
    if match := re.search(rf"(full|selective) {pattern}", words):
        return {"recompute": match[1]}
    return {"recompute": "full"} if re.search(r"(activation|gradient) checkpointing", words) else {}


# ---- models

NEAR = 0.05
"""How far the parameters of a model of the catalog may be from those that a name gives."""
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


def _model_remarks(fields: Fields) -> Mapping[str, str]:
    """Return what a row's notes say of its model: its dense layers, dropped tokens, modules for further tokens."""
    notes = fields.text("notes")
    words = f"{notes} {fields.text('model')}".lower()
    dense = re.search(r"dense_layers=(\d+)", notes)
    without = re.search(r"(no|w/o|without) (mtp|multi-token)", words)
    further = re.search(r"\bmtp\b|multi-token prediction", words)
    return {
        "dense_layers": dense[1] if dense else "",
        "token_drop": _flag(True) if re.search("token-?drop", words) else "",
        "mtp": _flag(False) if without else _flag(True) if further else "",
        "regression": "cudnn" if "cudnn regression" in words else "",
    }


if __name__ == "__main__":
    main(sys.argv[1:])
