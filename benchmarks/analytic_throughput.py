"""How many designs the analytic engine evaluates: one core, JSON out.

python benchmarks/analytic_throughput.py --space cosmic-1024-full-stack --points 100000
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from typing import Any

import numpy as np

from cosmic.design.batch import Batch
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.psa.files import load_space
from cosmic.psa.space import ParameterSet

CHUNK = 10_000
"""Points evaluated at a time: arrays that stay in the processor's cache."""


def run(space: ParameterSet, points: int, rng: np.random.Generator) -> int:
    """Draw and evaluate so many points; return how many of them can run."""
    feasible = 0
    for start in range(0, points, CHUNK):
        rows = space.sample(min(CHUNK, points - start), rng)
        feasible += int(evaluate_batch(Batch(space.base, space.columns(rows))).feasible.sum())
    return feasible


def measure(name: str, points: int) -> dict[str, Any]:
    """Return the rate over uniform samples of the space *name*, all metrics and feasibility included."""
    space, rng = load_space(name), np.random.default_rng(0)
    run(space, CHUNK, rng)  # plans are made once
    start = time.process_time()
    feasible = run(space, points, rng)
    elapsed = time.process_time() - start
    alone = space.base
    evaluate(alone)
    start = time.process_time()
    for _ in range(50):
        evaluate(alone)
    return {
        "space": name,
        "points": points,
        "points_per_s": points / elapsed,
        "feasible_share": feasible / points,
        "one_evaluate_s": (time.process_time() - start) / 50,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--space", default="cosmic-1024-full-stack")
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--json", action="store_true", help="JSON is what is printed anyway")
    options = parser.parse_args()
    print(json.dumps(measure(options.space, options.points), indent=2))


if __name__ == "__main__":
    main()
