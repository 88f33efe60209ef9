"""Checkpoints of served models: the name on the Hugging Face Hub, in the precision of the design.

The table of checkpoints is the YAML file beside this module.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from cosmic.base.errors import SpecError
from cosmic.base.files import is_file
from cosmic.design import catalog_entries, schema
from cosmic.design.catalog_entries import load_mapping
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import Model, Transformer

PLACEHOLDER = "MODEL"
"""Stands for a checkpoint that is not known."""
DRAFT_PLACEHOLDER = "DRAFT_MODEL"
WIDE = ("bf16", "bf16_pure", "fp16", "fp32")
"""Precisions that an engine casts a checkpoint of 16 bits to, with ``--dtype``."""
WIDTHS = {"bf16": 16, "fp8": 8, "fp4": 4, "int4": 4}
"""Bits of a weight, by the format of a checkpoint."""
QUANTIZED_AT_LOADING = ("it is quantized when loaded; a checkpoint in FP8 loads faster",)
"""How a note ends about a checkpoint that an engine quantizes."""
QUANTIZED = {"fp8": "FP8", "fp4": "NVFP4 (or MXFP4)", "int4": "4-bit integers (AWQ, GPTQ)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedCheckpoint:
    """What an engine loads."""

    name: str
    """On the Hugging Face Hub, or a placeholder."""
    quantize: bool = False
    """Whether the engine has to quantize it to the design's precision when it loads it."""
    draft: str | None = None
    """Draft model of speculative decoding; None if the checkpoint has modules for that itself."""
    remote_code: bool = False
    context: int | None = None
    """Tokens that the model takes at most, where that is known to be few."""
    warnings: tuple[str, ...] = ()


def choose_checkpoint(point: DesignPoint) -> ServedCheckpoint:
    """Return the checkpoint of a design's model in its precision: of what was asked for, never of another model."""
    model = point.model
    catalog_name = catalog_entries.resolve_name("models", model.name) if model.name else None
    requested = model.checkpoint if isinstance(model, Transformer) else ""
    entry, remarks = _find_checkpoints(requested, catalog_name)
    name, quantize, precision_remarks = _choose_precision(
        entry, point.workload.precision, requested or model.name or "the model"
    )
    warnings = [*([precision_remarks] if precision_remarks else []), *remarks]
    if (
        catalog_name is not None
        and name != PLACEHOLDER
        and not _has_catalog_shapes(model, catalog_name)
        and not _is_path(requested)
    ):
        warnings.append(
            f"the design's model is not {catalog_name} as the catalog has it: serve a checkpoint of its own shapes"
        )
    if entry.get("remote_code"):
        warnings.append(f"the card of {name} asks for --trust-remote-code, which runs code of that repository")
    return ServedCheckpoint(
        name=name,
        quantize=quantize,
        draft=None if entry.get("mtp") else entry.get("draft", DRAFT_PLACEHOLDER),
        remote_code=bool(entry.get("remote_code")),
        context=entry.get("context"),
        warnings=tuple(warnings),
    )


def _find_checkpoints(requested: str, catalog_name: str | None) -> tuple[dict[str, Any], list[str]]:
    """Return the checkpoints, by precision, of a model that is *requested* for, and remarks; *catalog_name* has its shapes."""
    family = _load_table().get(catalog_name or "", {})
    if not requested:
        return family, _remark_shared_name(family, catalog_name or "")
    if _is_path(requested):
        return {_stored_in_folder(requested): requested}, []
    if (listed := _find_in_table(requested)) is not None:
        return listed, []
    aliases = catalog_entries.read_entry("models", catalog_name).get("aliases", []) if catalog_name else []
    if "/" not in requested and _normalize_checkpoint(requested) in map(_normalize_checkpoint, aliases):
        return family, []  # only another word for it
    family_options = {key: family[key] for key in ("mtp", "remote_code") if key in family}
    usual = next((form for form in family if form in WIDTHS), "bf16")
    form = catalog_entries.stated_weight_format(requested) or usual
    if "/" in requested:
        return {form: requested, **family_options}, []
    owner = str(family[usual]).partition("/")[0] if usual in family else ""
    if not owner:
        return {}, []
    name = f"{owner}/{requested}"
    return {form: name, **family_options}, [f"check that {name} exists: {requested} was asked for, without an owner"]


def _remark_shared_name(family: dict[str, Any], catalog_name: str) -> list[str]:
    """Return for which model a name is taken that several have, if the checkpoint does not say so itself."""
    first = next((str(family[form]) for form in family if form in WIDTHS), "")
    sharing_names = [
        name
        for name in _load_table()
        if name != catalog_name and catalog_entries.resolve_name("models", name) == catalog_name
    ]
    other_names = [name for name in sharing_names if first not in _load_table()[name].values()]
    if not other_names or _normalize_checkpoint(catalog_name) in _normalize_checkpoint(first):
        return []
    return [
        f"{catalog_name} is taken for {first}: set model.checkpoint for another of its shapes, such as {other_names[0]}"
    ]


def _find_in_table(requested: str) -> dict[str, Any] | None:
    """Return the entry of a name of the table, or of a checkpoint in it; None if it has neither."""
    normalized = _normalize_checkpoint(requested.rpartition("/")[2])
    entry: dict[str, Any]
    for name, entry in _load_table().items():
        checkpoints = [str(entry[form]) for form in WIDTHS if form in entry]
        if "/" in requested:
            if requested.lower() in (checkpoint.lower() for checkpoint in checkpoints):
                return entry
        elif normalized == _normalize_checkpoint(name) or normalized in (
            _normalize_checkpoint(checkpoint.rpartition("/")[2]) for checkpoint in checkpoints
        ):
            return entry
    return None


def _normalize_checkpoint(name: str) -> str:
    """Return a name without what different spellings of it differ in."""
    return "".join(letter for letter in name.lower() if letter.isalnum() or letter == ".")


def _is_path(name: str) -> bool:
    """Return whether a checkpoint is a folder, not a name on the hub."""
    return name.startswith((".", "~")) or Path(name).is_absolute()


def _stored_in_folder(folder: str) -> str:
    """Return the format of the weights in a folder: what its config.json says, 16 bits where it says nothing."""
    path = Path(folder) / "config.json"
    try:
        config = load_mapping(path) if is_file(path) else {}
    except SpecError:  # whoever loads the model is told
        config = {}
    quantization = config.get("quantization_config")
    words = " ".join(map(str, quantization.values())) if isinstance(quantization, dict) else ""
    return catalog_entries.stated_weight_format(f"-{words.lower().replace(' ', '-')}") or "bf16"


def _choose_precision(entry: dict[str, Any], precision: str, model: str) -> tuple[str, bool, str]:
    """Return a checkpoint, whether to quantize it, and what is to be said of it."""
    form_wanted = "bf16" if precision in WIDE else precision
    if form_wanted in entry:
        return entry[form_wanted], False, ""
    forms = [(form, entry[form]) for form in entry if form in WIDTHS]
    if not forms:
        return PLACEHOLDER, False, f"no checkpoint of {model} is known: replace {PLACEHOLDER} by the path of yours"
    form, name = forms[0]  # the one that its makers published
    if WIDTHS[form] < WIDTHS[form_wanted]:
        return name, False, f"{name} is stored in {form}: set precision={form}, or serve a checkpoint in {precision}"
    if form == "bf16" and form_wanted == "fp8":
        return name, True, f"{name} is in 16 bits: {QUANTIZED_AT_LOADING[0]}"
    return (
        name,
        False,
        f"a checkpoint in {QUANTIZED[form_wanted]} is needed for {precision}: quantize {name}, or find one",
    )


def _has_catalog_shapes(model: Model, name: str) -> bool:
    """Return whether a model has the shapes of a catalog's entry."""
    listed = schema.read_value(
        Model, {"name": model.name, **catalog_entries.read_entry("models", name)["model"]}, f"models/{name}.yaml"
    )
    return bool(listed == (replace(model, checkpoint="") if isinstance(model, Transformer) else model))


@cache
def _load_table() -> dict[str, Any]:
    table: dict[str, Any] = load_mapping(Path(__file__).with_suffix(".yaml"))
    return table
