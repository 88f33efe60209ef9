"""Designs that the tests launch, with mappings that later rules for filling them in cannot change."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cosmic.design.design_point import DesignPoint
from cosmic.search.mapping.design_completion import load_design

HERE = Path(__file__).parent
CHECKED: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "checked_names.yaml").read_text())
DESIGNS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt3-175b": (
        "gpt3-175b@dgx-h100:512",
        {"workload.dp": 32, "workload.tp": 8, "workload.pp": 2, "workload.weight_sharding": "zero1"},
    ),
    "deepseek-v3": (
        "deepseek-v3@dgx-h100:2048",
        {"workload.dp": 128, "workload.tp": 4, "workload.cp": 1, "workload.pp": 4, "workload.ep": 64}
        | {"workload.precision": "fp8", "workload.weight_sharding": "zero1"},
    ),
    "llama3-8b-zero3": (
        "llama3-8b@dgx-h100:64",
        {"workload.dp": 32, "workload.tp": 1, "workload.cp": 2, "workload.pp": 1, "workload.weight_sharding": "zero3"},
    ),
}


@cache
def design(name: str) -> DesignPoint:
    """Return one of the designs by its name here."""
    source, overrides = DESIGNS[name]
    return load_design(source, {"workload.recompute": "none", **overrides}, plain=True)
