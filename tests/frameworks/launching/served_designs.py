"""Served designs that the tests launch, with mappings that later rules for filling them in cannot change."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from cosmic.design.design_point import DesignPoint
from cosmic.design.serving_layer import Load, PrefillPool, Serving
from cosmic.search.mapping.design_completion import load_design

LOAD = Load(isl=4000, osl=500, concurrency=64)
ONE = {"tp": 1, "dp": 1, "pp": 1, "cp": 1, "ep": 1, "micro_batch": 1, "global_batch": 16}
DESIGNS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "dense": ("llama3-70b@dgx-h100:8", {"tp": 8, "precision": "fp8"}, {"max_num_seqs": 128}),
    "moe": (
        "deepseek-v3@dgx-h200:8",
        {"dp": 8, "ep": 8, "precision": "fp8"},
        {"max_num_seqs": 64, "max_num_batched_tokens": 4096, "memory_fraction": 0.9},
    ),
    "multi-node": ("llama3-405b@dgx-h100:16", {"tp": 16, "precision": "bf16"}, {"max_num_seqs": 64}),
    "disaggregated": (
        "llama3-70b@dgx-h100:24",
        {"tp": 8, "precision": "fp8"},
        {
            "max_num_seqs": 256,
            "max_num_batched_tokens": 4096,
            "prefill": PrefillPool(replicas=4, tp=4, max_num_batched_tokens=16384),
        },
    ),
    "speculative": (
        "deepseek-v3@dgx-b200:8",
        {"tp": 8, "ep": 8, "precision": "fp4"},
        {"max_num_seqs": 32, "draft_tokens": 2, "acceptance": 0.7},
    ),
    "replicas": ("llama3-8b@dgx-h100:8", {"tp": 2, "dp": 4, "precision": "bf16"}, {"max_num_seqs": 128}),
}


def serve(source: str, workload: dict[str, Any], engine: str = "vllm", load: Load = LOAD, **limits: Any) -> DesignPoint:
    """Return a design that is served under a load."""
    fields = {f"workload.{key}": value for key, value in {**ONE, **workload}.items()}
    point = load_design(source, {"workload.task": "decode", **fields}, plain=True)
    return replace(point, serving=Serving(engine=engine, load=load, **limits))


@cache
def design(name: str, engine: str = "vllm") -> DesignPoint:
    """Return one of the designs by its name here."""
    source, workload, limits = DESIGNS[name]
    return serve(source, workload, engine, **limits)
