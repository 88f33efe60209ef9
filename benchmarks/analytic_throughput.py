"""Measure the analytic engine in designs per second on one core; print JSON.

python benchmarks/analytic_throughput.py [--spaces cosmic-1024,llama3-70b] [--points 100000] [--peers PYTHON]

*points_per_s*: over uniform samples of --space, sampling included. *spaces*: for each parameter set of `spaces.py`, by
batch size; points are sampled before, and what turns a row into a design is counted. *peers*: other analytic models
beside it (see `peers.py`), measured where PYTHON can import them.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from command import SPACE
from peers import measured_by
from spaces import NAMES, benchmark_space

from cosmic.design.design_batch import Batch
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameter_set import ParameterSet

CHUNK = 10_000
"""Points per batch: arrays that stay in the processor's cache."""
BATCHES = (1, 100, 10_000)
ROUNDS, ROUND_S = 3, 0.3
"""The fastest of some rounds counts: the least disturbed by other processes."""


def evaluated(space: ParameterSet, rows: Indices) -> int:
    """Evaluate the points *rows*; return the number of feasible ones."""
    return int(evaluate_batch(Batch(space.base, space.columns(rows))).feasible.sum())


def run(space: ParameterSet, points: int, rng: np.random.Generator) -> int:
    """Sample and evaluate *points* points; return the number of feasible ones."""
    sizes = [min(CHUNK, points - start) for start in range(0, points, CHUNK)]
    return sum(evaluated(space, space.sample(size, rng)) for size in sizes)


def measure(name: str, points: int) -> dict[str, Any]:
    """Return the rate over uniform samples of the space *name*, all metrics and feasibility checks included."""
    space, rng = benchmark_space(name), np.random.default_rng(0)
    run(space, CHUNK, rng)  # fill the cache of plans
    start = time.process_time()
    feasible = run(space, points, rng)
    elapsed = time.process_time() - start
    alone = []
    for _ in range(10):
        start = time.process_time()
        for _ in range(20):
            evaluate(space.base)
        alone.append((time.process_time() - start) / 20)
    return {
        "space": name,
        "points": points,
        "points_per_s": points / elapsed,
        "feasible_share": feasible / points,
        "one_evaluate_s": min(alone),
    }


def measure_batches(name: str) -> dict[str, float]:
    """Return the designs per second of the space *name* by batch size."""
    space, rng = benchmark_space(name), np.random.default_rng(0)
    for _ in range(2):  # fill the cache of plans
        evaluated(space, space.sample(CHUNK, rng))
    rows = space.sample(CHUNK, rng)
    return {str(size): _rate(rows, size, lambda part: evaluated(space, part)) for size in BATCHES}


def _rate(rows: Indices, size: int, work: Callable[[Indices], object]) -> float:
    """Return how many rows a second *work* takes in batches of *size*: other rows in each, for as long as there are."""
    best, start = 0.0, 0
    for _ in range(ROUNDS):
        began, done = time.process_time(), 0
        while not done or time.process_time() - began < ROUND_S:
            work(rows[start : start + size])
            done += size
            start = (start + size) % len(rows)
        best = max(best, done / (time.process_time() - began))
    return best


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--space", default=SPACE, help="of points_per_s")
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--spaces", default=",".join(NAMES), help="to measure by batch size; may be empty")
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON", help="an interpreter that may have them")
    parser.add_argument("--json", action="store_true", help="no effect: output is always JSON")
    options = parser.parse_args()
    found = {
        **measure(options.space, options.points),
        "spaces": {name: measure_batches(name) for name in filter(None, options.spaces.split(","))},
        "peers": measured_by(options.peers),
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
