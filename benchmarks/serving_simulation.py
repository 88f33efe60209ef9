"""Measure how fast serving is simulated, on one core; print JSON.

python benchmarks/serving_simulation.py [--requests 25000] [--trace FILE] [--repeats 3]

Most cases are at 85 % of their capacity in closed form. *seconds* is CPU time of the simulation with the tables of its
steps, the best of some runs; *times_real* how many times faster than the load's own clock it is. With --trace the
requests of a file (Mooncake, BurstGPT, Azure) are served by each case, stretched to its rate; otherwise a trace of as
many requests is written and read.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.design.serving_layer import Load, PrefillPool, Serving
from cosmic.search.mapping.design_completion import load_design
from cosmic.serving.closed_form import deployment_capacity
from cosmic.serving.deployment import Deployment, deployment_of
from cosmic.serving.request_simulation import SimulatedLoad, simulate_load
from cosmic.serving.serving_requests import Requests, draw_requests, read_request_trace

LOAD = Load(isl=1000, osl=300, isl_cv=0.3, osl_cv=0.5, rate=1.0)
CASES: dict[str, dict[str, Any]] = {
    "8 replicas of LLaMA-3 8B, vLLM": {"model": "llama-3-8b", "dp": 8, "share": 0.85, "engine": "vllm"},
    "8 replicas of LLaMA-3 8B, SGLang": {"model": "llama-3-8b", "dp": 8, "share": 0.85, "engine": "sglang"},
    "8 replicas of LLaMA-3 8B, TensorRT-LLM": {"model": "llama-3-8b", "dp": 8, "share": 0.85, "engine": "trtllm"},
    "LLaMA-3 70B on 8 GPUs, few requests": {"model": "llama-3-70b", "tp": 8, "share": 0.05, "engine": "vllm"},
    "DeepSeek-V3, 8 ranks of attention": {"model": "deepseek-v3", "dp": 8, "ep": 8, "share": 0.3, "engine": "sglang"},
    "2 replicas prefill, 6 decode": {
        "model": "llama-3-8b",
        "dp": 6,
        "rate": 90.0,
        "engine": "vllm",
        "prefill": PrefillPool(replicas=2),
    },
}


def deployment(model: str, engine: str, load: Load, prefill: PrefillPool | None = None, **mapping: int) -> Deployment:
    """Return a deployment on a node of H200."""
    usual = {"tp": 1, "dp": 1, "pp": 1, "ep": 1, "global_batch": 1, "precision": "fp8", "task": "decode"}
    fields = {f"workload.{name}": each for name, each in (usual | mapping).items()}
    point = load_design(f"{model}@dgx-h200:8", fields, plain=True)
    return deployment_of(replace(point, serving=Serving(engine=engine, load=load, prefill=prefill)))


def measured(given: Deployment, requests: Requests, repeats: int) -> dict[str, Any]:
    """Return how long the simulation of *requests* takes."""
    took = []
    for _ in range(repeats):
        start = time.process_time()
        found = simulate_load(given, requests)
        took.append(time.process_time() - start)
    if not isinstance(found, SimulatedLoad):
        return {"infeasible": found.reasons}
    seconds = min(took)
    return {
        "requests": requests.count,
        "seconds": round(seconds, 3),
        "requests_per_s": round(requests.count / seconds),
        "steps": found.steps,
        "times_real": round(found.end_s / seconds),
        "utilisation": {name: round(each, 3) for name, each in found.metrics.utilisation.items()},
        "waiting": round(found.metrics.waiting, 1),
        "ttft_p95_s": round(found.metrics.ttft.p95_s, 4),
        "tpot_mean_s": round(found.metrics.tpot.mean_s, 5),
    }


def written(requests: Requests, path: Path) -> None:
    """Write *requests* as a trace of Mooncake: with conversations of several turns."""
    rng = np.random.default_rng(0)
    talks = rng.integers(0, max(requests.count // 8, 1), requests.count).tolist()
    lists = (each.tolist() for each in (requests.arrival_s, requests.input_tokens, requests.output_tokens))
    with path.open("w") as file:
        for arrival, inputs, outputs, talk in zip(*lists, talks, strict=True):
            blocks = [1000 * talk + place for place in range(-(-inputs // 512))]
            row = {"timestamp": 1e3 * arrival, "input_length": inputs, "output_length": outputs, "hash_ids": blocks}
            file.write(json.dumps(row) + "\n")


def main() -> None:
    """Print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=25_000)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    results: dict[str, Any] = {}
    for name, case in CASES.items():
        plain = {key: each for key, each in case.items() if key not in ("rate", "share")}
        rate = case.get("rate") or case["share"] * float(
            np.ravel(deployment_capacity(deployment(load=LOAD, **plain)))[0]
        )
        load = replace(LOAD, rate=rate)
        given = deployment(load=load, **plain)
        requests = draw_requests(load, asked.requests)
        if asked.trace:
            requests = read_request_trace(asked.trace, most_requests=asked.requests).at_rate(rate)
        results[name] = measured(given, requests, asked.repeats)
    with tempfile.TemporaryDirectory() as folder:
        path = asked.trace or Path(folder) / "trace.jsonl"
        if not asked.trace:
            written(draw_requests(load, asked.requests), path)
        start = time.process_time()
        trace = read_request_trace(path, most_requests=asked.requests)
        results["reading a trace"] = {"requests": trace.count, "seconds": round(time.process_time() - start, 3)}
        first = {key: each for key, each in next(iter(CASES.values())).items() if key != "share"}
        results["a trace with prefixes"] = measured(deployment(load=load, **first), trace, asked.repeats)
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
