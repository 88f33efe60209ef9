"""Searches that reports are made of, small ones."""

from __future__ import annotations

from functools import cache
from typing import Any

from cosmic.search.search_loop import Found, search
from cosmic.search.space.space_files import load_space

SPACE = "cosmic-1024-full-stack"
SERVED = {"workload.{dp,tp}": [[2, 8], [4, 4], [16, 1]], "workload.global_batch": [16, 32]}
ONE_STAGE = {"model": "llama3-8b", "system": "dgx-h100:16", "workload": {"pp": 1, "dp": 2, "tp": 8, "global_batch": 16}}


@cache
def found(trials: int = 400, agent: str = "random", seed: int = 3) -> Found:
    """Return a search of the full stack."""
    return search(SPACE, agent=agent, trials=trials, seed=seed)


def source(**changes: Any) -> dict[str, Any]:
    """Return the content of the full stack's file, changed."""
    return {**dict(load_space(SPACE).source or {}), **changes}


def small(task: str = "training", **changes: Any) -> dict[str, Any]:
    """Return a parameter set of a small model on sixteen accelerators."""
    base = {**ONE_STAGE, "workload": {**ONE_STAGE["workload"], "task": task}}  # type: ignore[dict-item]
    return {"name": f"small-{task}", "base": base, "parameters": SERVED, **changes}


def serving(**changes: Any) -> dict[str, Any]:
    """Return a parameter set of deployments of a small model on eight accelerators, in one pool or in two."""
    load = {"isl": 1000, "osl": 200, "concurrency": 32, "ttft_slo": "1 s", "tpot_slo": "20 ms"}
    base = {
        "model": "llama3-8b",
        "system": "dgx-h100:8",
        "workload": {"tp": 2, "dp": 3, "pp": 1, "micro_batch": 1},
        "serving": {"engine": "vllm", "load": load, "prefill": {"replicas": 1, "tp": 2}},
    }
    parameters = {
        "workload.{dp,tp}": [[4, 2], [3, 2], [2, 4], [6, 1], [8, 1]],
        "serving.prefill.replicas": [0, 1],
        "serving.load.concurrency": [8, 32, 64],
    }
    return {
        "name": "small-serving",
        "base": base,
        "parameters": parameters,
        "objective": "tokens_per_s_per_npu",
        **changes,
    }
