"""How long questions about clusters take: sizing, searching, one evaluation of a huge cluster, goodput, a fleet.

python benchmarks/cluster_questions.py           a line for each
python benchmarks/cluster_questions.py --json    the same for programs
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from cosmic.cluster.goodput import checkpoint_bytes
from cosmic.cluster.interruption_terms import run_fields, run_terms
from cosmic.cluster.run_simulation import simulate_runs
from cosmic.design import schema
from cosmic.evaluation import evaluate
from cosmic.search.cluster_sizing import Question, size_clusters
from cosmic.search.fleet import fleet
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.search_loop import search
from cosmic.search.space.space_files import load_space
from cosmic.simulate.metrics import Metrics

SPACE = Path(__file__).resolve().parents[1] / "examples" / "size" / "space.yaml"
SIZES = (16_384, 131_072, 1_048_576)
MESH = {
    "tp": 8,
    "cp": 1,
    "pp": 16,
    "micro_batch": 1,
    "schedule": "1f1b",
    "recompute": "full",
    "weight_sharding": "zero1",
}
REPEATS = 20
RUNS = 200
JOBS = 1000


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that *work* takes, and what it returns."""
    began = perf_counter()
    found = work()
    return perf_counter() - began, found


def sizing() -> dict[str, Any]:
    """Return the time of sizing one model over all systems."""
    question = Question(model="llama3-405b", tokens=15e12, budget_usd=200e6, power_w=25e6)
    taken, found = timed(lambda: size_clusters(question))
    return {"size_s": taken, "size_systems": len(found.rows), "size_mappings": found.counted.mappings}


def searching() -> dict[str, Any]:
    """Return the time of a search over system, count, mapping and checkpoints, all of it."""
    loaded, space = timed(lambda: load_space(SPACE))
    limits = ["power_w <= 25 MW", "cost_usd <= 200 M USD"]
    taken, _ = timed(
        lambda: search(space, trials=space.valid, agent="exhaustive", objectives=["train_days"], constraints=limits)
    )
    return {"search_load_s": loaded, "search_s": taken, "search_designs": space.valid}


def huge(npus: int) -> Any:
    """Return LLaMA-3 405B on so many H100, with a run of 15 T tokens."""
    base = load_design("llama3-405b@dgx-h100:16384", {**MESH, "run.tokens": "15T"})
    more = {"network.dims.1.npus": npus // 8, "workload.dp": npus // 128, "workload.global_batch": npus // 8}
    return schema.assign_fields(base, more)


def evaluating() -> dict[str, Any]:
    """Return the time of one evaluation: the first one at a size, and the least of several with other batches."""
    found = {}
    for npus in SIZES:
        point = huge(npus)
        first, _ = timed(lambda: evaluate(point))  # noqa: B023  called at once
        times = []
        for place in range(REPEATS):
            other = schema.assign_fields(point, {"workload.global_batch": npus // 8 * (place + 2)})
            taken, outcome = timed(lambda: evaluate(other))  # noqa: B023
            if not isinstance(outcome, Metrics):
                raise SystemExit(f"{npus}: {outcome.reasons[0]}")
            times.append(taken)
        found[f"evaluate_{npus}_first_ms"], found[f"evaluate_{npus}_ms"] = 1e3 * first, 1e3 * min(times)
    return found


def goodput() -> dict[str, Any]:
    """Return the time of simulated runs on a million accelerators."""
    point = schema.assign_fields(huge(SIZES[-1]), {"run.recovery": "replica"})
    metrics = evaluate(point)
    if not isinstance(metrics, Metrics) or point.run.tokens is None:
        raise SystemExit("the design of a million accelerators cannot run")
    work_s = point.run.tokens / metrics.tokens_per_s
    each = checkpoint_bytes(point) / point.network.npus
    given = run_terms(run_fields(point.run), point.network.npus, point.workload.dp, each, work_s)
    if given is None:
        raise SystemExit("no rate of interruptions is known")
    taken, found = timed(lambda: simulate_runs(given, work_s, runs=RUNS))
    return {"goodput_s": taken, "goodput_runs": RUNS, "goodput_simulated_share": found.simulated_share}


def sharing() -> dict[str, Any]:
    """Return the time of a fleet of many jobs of four kinds."""
    kinds = [("llama3-8b", 32), ("llama3-8b", 64), ("llama3-70b", 128), ("qwen3-32b", 64)]
    jobs = [
        {"name": f"job{place}", "model": model, "npus": npus, "duration": "1 h", "every": "30 min", "count": JOBS // 4}
        for place, (model, npus) in enumerate(kinds)
    ]
    taken, found = timed(lambda: fleet({"system": "dgx-h100:1024", "jobs": jobs}))
    return {"fleet_s": taken, "fleet_jobs": len(found.jobs)}


def main(words: list[str]) -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    as_json = parser.parse_args(words).json
    found: dict[str, Any] = {}
    for measure in (sizing, searching, evaluating, goodput, sharing):
        found |= measure()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        print(f"{name:28} {value:,.4g}")


if __name__ == "__main__":
    main(sys.argv[1:])
