"""Measure sharding and sizing of mappings of a model on one core; print JSON.

python benchmarks/workload.py --space cosmic-1024-full-stack --mappings 10000
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from command import main

from cosmic.design.design_batch import Batch
from cosmic.search.space.space_files import load_space
from cosmic.step.communication import list_collectives
from cosmic.step.device_memory import footprint
from cosmic.step.operator_work import list_operators
from cosmic.workload.mapping_rules import rules_met_by_design
from cosmic.workload.mesh_sizes import structural_paths


def shard_and_size(batch: Batch) -> int:
    """Compute checks, operators, collectives and memory of every design; return the number of arrays."""
    rules_met_by_design(batch)
    footprint(batch)
    return sum(
        len(list_operators(part)) + len(list_collectives(part)) for _, part in batch.groups(structural_paths(batch))
    )


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
