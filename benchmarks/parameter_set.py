"""Measure counting, sampling, moves and output of a parameter set on one core; print JSON.

python benchmarks/parameter_set.py --space cosmic-1024-full-stack --points 100000
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from command import main

from cosmic.search.learning.agent_memory import Moves
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space, sample_json_lines


def seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    """Return the CPU seconds of the fastest of some runs."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def blind_sample(space: ParameterSet, n: int, rng: np.random.Generator) -> int:
    """Sample values independently until *n* points are valid, without the decision diagram; return the draws."""
    found = drawn = 0
    while found < n:
        rows = rng.integers(np.array(space.sizes), size=(n, len(space.sizes)))
        found += int(space.contains(rows).sum())
        drawn += n
    return drawn


def measure(name: str, n: int) -> dict[str, Any]:
    """Return rates for the space *name*, with *n* points at a time."""
    start = time.process_time()
    space = load_space(name)
    count = {"valid": space.valid, "load_and_count_s": time.process_time() - start}
    rng = np.random.default_rng(0)
    rows = space.sample(n, rng)
    moves = Moves(space)
    sample_s = seconds(lambda: space.sample(n, rng))
    blind_s = seconds(lambda: blind_sample(space, n, rng), repeats=1)
    return {
        "space": name,
        "points": n,
        **count,
        "points_per_s": n / sample_s,
        "blind_points_per_s": n / blind_s,
        "over_blind": blind_s / sample_s,
        "decoded_points_per_s": n / seconds(lambda: space.columns(space.sample(n, rng))),
        "json_points_per_s": n / seconds(lambda: sum(1 for _ in sample_json_lines(space, n, rng)), repeats=1),
        "neighbours_per_s": n / seconds(lambda: moves.neighbour(rows, rng)),
        "mutations_per_s": n / seconds(lambda: moves.mutate(rows, rng, 0.05)),
        "crossovers_per_s": n / seconds(lambda: moves.crossover(rows, rows[::-1], rng)),
    }


if __name__ == "__main__":
    main(__doc__, measure, "points", 100_000)
