"""What performance recipes set beside the columns of published tables.

Some tables give a run's mapping and batch and refer to its recipe for the rest. ``catalog/recipes.yaml`` has what those
recipes set, by model, accelerator, number format and release. What all recipes of a framework have in common is its
practice (``catalog/software.yaml``). Layouts of pipelines whose last stage predicts further tokens, too, give it fewer
layers.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from cosmic import catalog
from cosmic.design.model import Transformer
from cosmic.validation.models import catalog_name
from cosmic.validation.rows import Fields
from cosmic.validation.software import usable

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
    found: dict[str, Any] = {}
    for entry in _entries(name):
        if _applies(entry, fields, model, stages, date):
            found |= entry["set"]
    regressed = name and "cudnn regression" in fields.text("notes").lower() and model.startswith("gpt-oss")
    return usable(found) | (WITHOUT_SINKS if regressed else {})


@cache
def _entries(name: str) -> list[dict[str, Any]]:
    table = catalog.load_mapping(catalog.FOLDER / "recipes.yaml")
    return list(table[name]["entries"]) if name in table else []


def _applies(entry: dict[str, Any], fields: Fields, model: str, stages: int, date: str) -> bool:
    """Return whether an entry is for a run."""
    return (
        model.startswith(tuple(entry["models"]))
        and fields.text("accel").upper().startswith(tuple(entry.get("accelerators", [""])))
        and fields.text("precision").upper().startswith(tuple(entry.get("formats", [""])))
        and fields.text("mbs") in ("", str(entry.get("micro_batch", fields.text("mbs"))))
        and str(entry.get("since", "")) <= date < str(entry.get("until", "9999"))
        and stages == entry.get("stages", stages)
    )


def last_stage(model: Transformer, stages: int) -> dict[str, int]:
    """Return the layers of the last of several stages, where it has a module for further tokens beside.

    All stages have as many layers as if that module and the second head were layers, but the last, which has what is
    left: of 61 layers, seven stages have eight each, and the last has five.

    >>> deepseek = Transformer(layers=61, hidden=8, heads=1, ffn=8, vocab=8, mtp_layers=1)
    >>> last_stage(deepseek, 8), last_stage(deepseek, 1)
    ({'last_stage_layers': 5}, {})
    """
    each = -(-(model.layers + 1 + model.mtp_layers) // stages)
    left = model.layers - each * (stages - 1)
    ends = stages > 1 and bool(model.mtp_layers) and not model.pattern
    return {"last_stage_layers": left} if ends and left > 0 else {}
