"""Designs per second of other analytic models, GPT-3 175B, one design at a time on one core; print JSON.

python benchmarks/peers.py

A model that can be imported is measured (``pip install llm-analysis``, in an environment of its own); for the others
stands what an earlier run gave, with ``"measured": false``. This script needs no COSMIC.
"""

from __future__ import annotations

import json
import logging
import subprocess
import time
from collections.abc import Callable
from typing import Any

EARLIER = {
    "calculon": (146, 214, "Isaev et al., SC 2023: github.com/calculon-ai/calculon"),
    "llm-analysis": (4000, 6000, "Li, 2023: github.com/cli99/llm-analysis"),
}
"""Least and most designs per second of earlier runs, and what was run."""
ROUNDS, ROUND_S = 5, 0.5
MICRO_BATCHES = (1, 2, 4)


def llm_analysis() -> Callable[[], int]:
    """Return a function that evaluates some designs with llm-analysis, and returns how many."""
    from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis  # noqa: PLC0415  may be missing
    from llm_analysis.config import (  # noqa: PLC0415
        ParallelismConfig,
        get_dtype_config_by_name,
        get_gpu_config_by_name,
        get_model_config_by_name,
    )

    logging.disable(logging.CRITICAL)  # it logs every design
    model, gpu = get_model_config_by_name("megatron-lm-175b"), get_gpu_config_by_name("a100-sxm-80gb")
    dtype = get_dtype_config_by_name("w16a16e16")

    def evaluate() -> int:
        for micro_batch in MICRO_BATCHES:
            mesh = ParallelismConfig(tp_size=8, pp_size=8, dp_size=16)
            LLMAnalysis(model, gpu, dtype, mesh, flops_efficiency=0.5).training(
                batch_size_per_gpu=micro_batch,
                global_batch_size=1536,
                seq_len=2048,
                total_num_tokens=1e12,
                activation_recomputation=ActivationRecomputation.FULL,
                ds_zero=DSZeRO.STAGE_1,
            )
        return len(MICRO_BATCHES)

    return evaluate


PEERS = {"llm-analysis": llm_analysis}


def rate(evaluate: Callable[[], int]) -> float:
    """Return the designs per second of the fastest of some rounds: the least disturbed by other processes."""
    best = 0.0
    for _ in range(ROUNDS):
        began, designs = time.process_time(), 0
        while time.process_time() - began < ROUND_S:
            designs += evaluate()
        best = max(best, designs / (time.process_time() - began))
    return best


def measure() -> dict[str, Any]:
    """Return for each peer its designs per second: measured here, or those of an earlier run."""
    found: dict[str, Any] = {}
    for name, (least, most, source) in EARLIER.items():
        found[name] = {"measured": False, "designs_per_s": [least, most], "source": source}
        if name in PEERS:
            try:
                evaluate = PEERS[name]()
            except ImportError:
                continue
            found[name] = {"measured": True, "designs_per_s": rate(evaluate), "source": source}
    return found


def measured_by(python: str) -> dict[str, Any]:
    """Return what this script measures with the interpreter *python*, which may have packages that ours lacks."""
    said = subprocess.run([python, __file__], capture_output=True, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(said)
    return found


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
