"""Measure sharding and sizing of mappings of a model on one core; print JSON.

python benchmarks/workload.py --space cosmic-1024-full-stack --mappings 10000
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from command import main

from cosmic.design.batch import Batch
from cosmic.psa.files import load_space
from cosmic.step.communication import collectives
from cosmic.step.compute import operators
from cosmic.step.memory import footprint
from cosmic.workload.checks import fits
from cosmic.workload.sizes import structural_paths


def shard_and_size(batch: Batch) -> int:
    """Compute checks, operators, collectives and memory of every design; return the number of arrays."""
    fits(batch)
    footprint(batch)
    return sum(len(operators(part)) + len(collectives(part)) for _, part in batch.groups(structural_paths(batch)))


def measure(name: str, mappings: int) -> dict[str, Any]:
    """Return the seconds for *mappings* designs of the space *name*, first and again."""
    space = load_space(name)
    columns = space.columns(space.sample(mappings, np.random.default_rng(0)))
    times = []
    for _ in range(4):
        start = time.process_time()
        shard_and_size(Batch(space.base, columns))  # a new batch each time: batches cache results
        times.append(time.process_time() - start)
    return {
        "space": name,
        "mappings": mappings,
        "first_s": times[0],
        "again_s": min(times[1:]),
        "mappings_per_s": mappings / min(times[1:]),
    }


if __name__ == "__main__":
    main(__doc__, measure, "mappings", 10_000)
